"""Whole networks of real nodes in weather that no operator would wish for, and what must hold."""
