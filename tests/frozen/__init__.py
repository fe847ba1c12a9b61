"""What version 0.1.0 computed, kept so that later versions can be compared with it."""
