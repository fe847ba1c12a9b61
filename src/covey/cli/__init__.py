"""The commands."""

from covey.cli.commands import main

__all__ = ["main"]
