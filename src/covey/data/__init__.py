"""Columns in and out: logs, contexts, traces, and checks of what callers pass in."""
