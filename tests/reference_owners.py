"""What the oracle of the index policies stands on: their set-up, and owners who count once."""

import math
from dataclasses import dataclass
from typing import Any

from reference import Decision, Lesson, Network
from reference_records import Cell, Setup, Site


@dataclass(frozen=True)
class IndexSetup(Setup):
    preset: str = "share-ucb"
    index_scale: float = 1.0
    finest_level: int = 6
    lipschitz: float = 0.25
    alpha: float = 1.0

    @property
    def all_functions(self) -> int:
        return sum(site.functions for site in self.sites)

    @property
    def most_functions(self) -> int:
        return max(site.functions for site in self.sites)


def index_setup(preset: str, sites: tuple[Site, ...], **changes: Any) -> IndexSetup:
    """Return what the preset stands for, with changes."""
    given: dict[str, Any] = {
        "zooming": preset == "multi-resolution",  # its cells are named as those of DCZA
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
        "index_scale": 0.5 if preset == "auto" else 1.0,
        "discount": {"auto": 0.95, "discounted": 0.99}.get(preset, 1.0),
    }
    return IndexSetup(sites=sites, preset=preset, **(given | changes))


class OnceNetwork(Network):
    """Sites whose functions are held to an instance once, whoever used them for it.

    Choice: this is so for every preset of this file, CoS with elimination among them.
    """

    setup: IndexSetup

    def __init__(self, setup: IndexSetup, *, counts_once: bool) -> None:
        super().__init__(setup)
        self.counts_once = counts_once
        # Per owner, cell and own function: the slot of the decision whose label was taken last.
        self.last_taken: dict[tuple[int, Cell, int], int] = {}

    def cells_around(self, cell: Cell) -> list[Cell]:
        """The cells in which labels of own functions count, for a decision in the cell."""
        return [cell]

    def count_arrival(self, decision: Decision) -> None:
        for cell in self.cells_around(decision.cell):
            self.known[decision.site][cell].arrivals += 1
        if not decision.is_own:
            self.known[decision.owner][decision.cell].arrivals += 1

    def learn(self, decision: Decision, lesson: Lesson) -> None:
        if not decision.is_own and decision.phase != "train":
            record = self.known[decision.site][decision.cell]
            record.take(self.setup, record.arms[decision.arm], right=lesson.right)
        for cell in self.cells_around(decision.cell):
            self.learn_at_owner(decision, cell, right=lesson.right)

    def learn_at_owner(self, decision: Decision, cell: Cell, *, right: bool) -> None:
        used = (decision.owner, cell, decision.function)
        if self.counts_once and self.last_taken.get(used) == decision.slot:
            return
        self.last_taken[used] = decision.slot
        record = self.known[decision.owner][cell]
        record.take(self.setup, record.arms[decision.function], right=right)
