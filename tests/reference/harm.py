"""The oracle of the limit of harm: every row so far is looked at again before each decision."""

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from reference.records import MILLION


@dataclass
class Limit:
    """What a site knows of its own rows, and whether the policy may decide the next one."""

    points: float
    confidence: float
    costs: tuple[float, ...]  # of its arms: own functions first
    functions: int
    pending: list[Any] = field(default_factory=list)  # decisions that wait for their label
    labelled: list[tuple[Any, int, int]] = field(default_factory=list)  # with gain and cost
    scored: list[tuple[int, int]] = field(default_factory=list)  # free functions on kept rows

    def function_to_keep(self) -> int | None:
        """Return the own function for the next row; None: the policy may decide."""
        if len(self.costs) == self.functions:
            return None
        worths = [self.highest(function) for function in range(self.functions)]
        free = [row for row in self.labelled if row[0].phase != "own"]
        waiting = 1 + sum(decision.phase != "own" for decision in self.pending)
        lost = (len(free) + waiting) * max(worths) - sum(gain * MILLION for _, gain, _ in free)
        spent = sum(round(self.costs[row.arm] * MILLION) + paid for row, _, paid in free)
        lost += spent + waiting * round(max(self.costs) * MILLION)
        rows = len(self.labelled) + len(self.pending) + 1
        if lost <= rows * round(self.points * MILLION / 100):
            return None
        return worths.index(max(worths))

    def highest(self, function: int) -> int:
        """Return what a function can be worth by its labels on kept rows, in millionths."""
        gains = [
            gain for row, gain, _ in self.labelled if (row.phase, row.arm) == ("own", function)
        ]
        gains += [gain for scored, gain in self.scored if scored == function]
        cost = round(self.costs[function] * MILLION)
        if not gains:
            return MILLION - cost
        labels, mean = len(gains), sum(gains) / len(gains)
        chance = (1 - self.confidence) / self.functions / (math.pi**2 / 6 * labels**2)

        def is_excluded(accuracy: int) -> bool:
            q = accuracy / MILLION
            right = mean * math.log(mean / q) if mean > 0 else 0.0
            wrong = (1 - mean) * math.log((1 - mean) / (1 - q)) if mean < 1 else 0.0
            return labels * (right + wrong) > math.log(1 / chance)

        above = range(min(MILLION, math.floor(mean * MILLION) + 1), MILLION)
        return above.start + bisect_left(above, True, key=is_excluded) - cost

    def take(self, decision: Any, right: int, paid: int, others: dict[int, int]) -> None:
        """Take the label of a decision, and what it says of free functions."""
        self.pending.remove(decision)
        self.labelled.append((decision, right, paid))
        if decision.phase == "own":
            self.scored += list(others.items())
