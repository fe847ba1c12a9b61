"""The commands."""

from covey.cli.parser import main

__all__ = ["main"]
