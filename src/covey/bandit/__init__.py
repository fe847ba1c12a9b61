"""Decisions in Python: policies, partitions, the learner, ensembles, theory. No I/O, no clock."""
