"""What a person looks at: terminal, SVG, HTML."""
