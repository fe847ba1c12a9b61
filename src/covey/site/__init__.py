"""What one site knows and decides: requests, their handler, its state; no I/O and no clock."""
