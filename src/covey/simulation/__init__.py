"""Worlds with known accuracies -> regret."""

from typing import TYPE_CHECKING

from covey import _deprecated

if not TYPE_CHECKING:
    __getattr__ = _deprecated.attribute_of("simulation")
