"""Papers whose experiments can be run again: their data, their functions, their printed tables."""
