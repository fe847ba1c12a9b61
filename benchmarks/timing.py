"""Best of many short rounds, the candidates interleaved, on one core."""

import gc
import os
import statistics
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Timing(NamedTuple):
    """Seconds of the rounds of one candidate."""

    best: float
    median: float

    @property
    def over_best(self) -> float:
        """Return by how much the median lies above the best, as a share."""
        return self.median / self.best - 1


def interleave(rounds: int, candidates: Mapping[str, Callable[[], float]]) -> dict[str, Timing]:
    """Run all candidates once per round; each returns the seconds that it measured itself."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        for name, run in candidates.items():
            seconds[name].append(run())
    gc.unfreeze()
    return {name: Timing(min(s), statistics.median(s)) for name, s in seconds.items()}


def pin() -> str:
    """Stay on one core where the system allows it; return a sentence that says so."""
    if not hasattr(os, "sched_setaffinity"):
        return "not pinned to a core (this system has no such call)"
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return f"pinned to core {core}"
