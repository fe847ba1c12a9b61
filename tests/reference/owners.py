"""What the oracles of the index policies stand on: their set-up, the rounded slot, the index."""

import math
from dataclasses import dataclass
from typing import Any

from reference.records import Setup, Site


@dataclass(frozen=True)
class IndexSetup(Setup):
    preset: str = "share-ucb"
    index_scale: float = 1.0
    alarm: float = 0.0  # in nats; 0: nothing is ever forgotten
    check_claims: bool = False


def index_setup(preset: str, sites: tuple[Site, ...], **changes: Any) -> IndexSetup:
    """Return what the preset stands for, with changes."""
    given: dict[str, Any] = {
        "zooming": preset == "auto",  # the cells of a tree are named as those of DCZA
        "slices": 12,
        "split_scale": math.inf,
        "split_power": 1.0,
        "explore": (1.0, 0.125),
        "train": (2.0, 0.125),
        "explore_peers": (1.0, 0.125),
    }
    if preset == "auto":
        given |= {"index_scale": 0.5, "alarm": 5.0, "pending": True}
    return IndexSetup(sites=sites, preset=preset, **(given | changes))


def rounded_slot(slot: int) -> int:
    """Round the slot up to its five leading binary digits."""
    step = 2 ** max(0, slot.bit_length() - 5)
    return -(-slot // step) * step


def klucb(a: float, n: float, e: float) -> float:
    """Return a bound, seldom above by much, on the largest q with n * kl(a, q) <= e."""
    b = e / n
    if a >= 1:
        return 1.0
    if a <= 0:
        return 1.0 - math.exp(-b)
    h = a * math.log(a)
    q = 1.0 - (1.0 - a) * math.exp((h - b) / (1.0 - a))
    p = a + math.sqrt(2 * b * a * (1.0 - a) if a >= 0.5 else b / 2)
    q = min(q, p)
    h = h + (1.0 - a) * math.log(1.0 - a)
    for _ in range(3):
        # Choice: looked at before each step and not after the last, as the step divides by it.
        if q - a <= 0 or q >= 1.0:
            return min(q, 1.0)
        excess = h - a * math.log(q) - (1.0 - a) * math.log(1.0 - q) - b
        q = q - excess * q * (1.0 - q) / (q - a)
    return q
