"""Sites in one process."""
