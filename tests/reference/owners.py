"""What the oracle of the index policies stands on: their set-up, and owners who count once."""

import math
from dataclasses import dataclass, replace
from typing import Any

from reference import Decision, Lesson, Network
from reference.records import Cell, Setup, Site, Tally


@dataclass(frozen=True)
class IndexSetup(Setup):
    preset: str = "share-ucb"
    index_scale: float = 1.0
    finest_level: int = 6
    level_step: int = 1
    lipschitz: float = 0.25
    alpha: float = 1.0
    alarm: float = 0.0  # in nats; 0: nothing is ever forgotten
    spread: float = 0.5
    check_claims: bool = False

    @property
    def all_functions(self) -> int:
        return sum(site.functions for site in self.sites)

    @property
    def most_functions(self) -> int:
        return max(site.functions for site in self.sites)


def index_setup(preset: str, sites: tuple[Site, ...], **changes: Any) -> IndexSetup:
    """Return what the preset stands for, with changes."""
    given: dict[str, Any] = {
        # The cells of several levels are named as those of DCZA.
        "zooming": preset in ("auto", "multi-resolution", "two-sizes"),
        "slices": 12,
        "split_scale": math.inf,
        "split_power": 1.0,
        "level_offset": 0,
        "explore": (1.0, 0.125),
        "train": (2.0, 0.125),
        "explore_peers": (1.0, 0.125),
        "order": "own-train-peers",
        "helper": "explore-first",
        "count": "arrivals",
        "askers": "all",
        "hidden_from": "all",
        "pending": False,
        "label_wait": None,
        "discount": 0.99 if preset == "discounted" else 1.0,
    }
    if preset == "auto":
        given |= {"index_scale": 0.5, "finest_level": 20, "alarm": 5.0, "pending": True}
    if preset == "two-sizes":
        given |= {"index_scale": 0.5, "finest_level": 3, "level_step": 2, "alarm": 9.0}
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


class OnceNetwork(Network):
    """Sites whose functions are counted once for an instance, however many learners used them.

    Choice: this is so for every preset of this file, CoS with elimination among them.
    """

    setup: IndexSetup

    def __init__(self, setup: IndexSetup, *, counts_once: bool) -> None:
        super().__init__(setup)
        self.counts_once = counts_once
        # Per owner, cell and own function: the slot of the decision whose label was taken last.
        self.last_taken: dict[tuple[int, Cell, int | None], int] = {}

    def cells_around(self, cell: Cell) -> list[Cell]:
        """The cells in which labels of own functions count, for a decision in the cell."""
        return [cell]

    def count_arrival(self, decision: Decision) -> None:
        for cell in self.cells_around(decision.cell):
            self.known[decision.site][cell].arrivals += 1
        if not decision.is_own:
            self.known[decision.owner][decision.cell].arrivals += 1

    def cells_of_peers(self, cell: Cell) -> list[Cell]:
        """The cells in which an asker counts the labels of its requests."""
        return [cell]

    def tallies_in_cells(self, decision: Decision) -> list[tuple[Tally, bool]]:
        tallies = []
        for cell in self.cells_around(decision.cell):
            if decision.phase != "train":
                tallies.append((self.known[decision.site][cell].arms[decision.arm], False))
            if not decision.is_own:
                assert decision.function is not None
                arm = self.known[decision.owner][cell].arms[decision.function]
                tallies.append((arm, True))
        return tallies

    def learn(self, decision: Decision, lesson: Lesson) -> None:
        self.stop_waiting(decision)
        self.has_come(decision)
        self.learn_at_site(decision, lesson)
        if not decision.is_own:
            self.learn_by_serving(decision, lesson)

    def learn_at_site(self, decision: Decision, lesson: Lesson) -> None:
        if decision.is_own:
            self.learn_of_function(decision, lesson)
        elif decision.phase != "train":
            for cell in self.cells_of_peers(decision.cell):
                record = self.known[decision.site][cell]
                record.take(self.setup, record.arms[decision.arm], right=lesson.right)

    def learn_by_serving(self, decision: Decision, lesson: Lesson) -> None:
        self.learn_of_function(decision, lesson)

    def learn_of_function(self, decision: Decision, lesson: Lesson) -> None:
        for cell in self.cells_around(decision.cell):
            if self.was_taken(decision, cell):
                continue
            self.last_taken[decision.owner, cell, decision.function] = decision.slot
            record = self.known[decision.owner][cell]
            record.take(self.setup, record.arms[decision.function], right=lesson.right)

    def score_function(self, decision: Decision, owner: int, function: int, *, right: bool) -> None:
        scored = replace(decision, owner=owner, function=function)
        self.learn_of_function(scored, Lesson(None, right, 0))

    def was_taken(self, decision: Decision, cell: Cell) -> bool:
        """Whether the label of the instance has moved the function in the cell already."""
        last = self.last_taken.get((decision.owner, cell, decision.function))
        return self.counts_once and last == decision.slot
