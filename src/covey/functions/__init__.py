"""Models as classification functions, from Python or from TOML."""
