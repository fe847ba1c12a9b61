"""The horizon of a policy: what it was chosen for, and that it has passed."""

import logging
from typing import Literal

log = logging.getLogger(__name__)


class HorizonWatch:
    """Logs once that the slots have passed the horizon of the policy."""

    def __init__(self, horizon: int | Literal["doubling"] | None) -> None:
        self.slots = horizon if isinstance(horizon, int) else None
        self._is_logged = False

    def look(self, slot: int) -> None:
        """Log if `slot` is the first one seen after the horizon."""
        if self.slots is not None and slot > self.slots and not self._is_logged:
            self._is_logged = True
            log.warning("slot %d: %s", slot, after_horizon(self.slots))


def after_horizon(slots: int) -> str:
    """Return what holds after the horizon."""
    return (
        f"[policy] horizon is {slots} slots; after them cells and thresholds stay as they are, and "
        "the bounds no longer hold; raise it (what is stored is counted again)"
    )


def in_epochs(first: int) -> str:
    """Return what holds where the horizon is not known."""
    return (
        f"epochs of {first} slots, then {2 * first}, {4 * first} and so on; cells and thresholds "
        "begin anew in each"
    )
