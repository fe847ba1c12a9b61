"""Recorded predictions -> decisions, outcome, baselines."""
