"""Jobs that run in other processes, of this machine or of a cluster."""
