"""Worlds with known accuracies -> regret."""
