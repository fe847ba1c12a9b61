"""The oracle of the alarm: labels that do not fit what was learnt make a site forget it."""

import math
from dataclasses import dataclass

from reference import Decision, Lesson
from reference.owners import IndexSetup, OnceNetwork
from reference.records import Cell, Record, Tally

DOUBTS = 2**20  # of doubt that come to one nat
RELIEF = round(math.log(0.75) * DOUBTS)
GROUNDS = 4  # labels from which on an arm is known well enough to be a surprise


@dataclass
class Doubt:
    """How little the labels of late fit what a site has learnt."""

    own: int = 0  # by the labels of its own decisions
    served: int = 0  # by those of answers to others
    is_wary: bool = False
    forgotten: int = 0  # decisions up to this slot teach nothing any more


def surprise(tally: Tally, share: float) -> int:
    """Return how much more likely a label is if the arm has become worse by a quarter."""
    if tally.labels < GROUNDS:
        return 0
    if share == 1:
        return RELIEF
    believed = (tally.right + 1) / (tally.labels + 2)
    grounds = math.log((1 - 0.75 * believed) / (1 - believed)) * DOUBTS
    return round(share * RELIEF + (1 - share) * grounds)


class DoubtingNetwork(OnceNetwork):
    """Sites that forget what they know when it fits no more; with an alarm of 0 none ever does."""

    def __init__(self, setup: IndexSetup, *, counts_once: bool) -> None:
        super().__init__(setup, counts_once=counts_once)
        self.doubts = [Doubt() for _ in setup.sites]
        self.alarm = int(setup.alarm * DOUBTS)

    def cells_of_peers(self, cell: Cell) -> list[Cell]:
        # Pending labels count on every level, and so do the labels when they arrive.
        if self.setup.alarm > 0 or self.setup.pending:
            return self.cells_around(cell)
        return super().cells_of_peers(cell)

    def learn_at_site(self, decision: Decision, lesson: Lesson) -> None:
        doubt = self.doubts[decision.site]
        if self.setup.alarm > 0:
            if decision.slot <= doubt.forgotten:
                return
            surprised = self.surprise_at(decision.site, decision.cell, decision.arm, lesson)
            doubt.own = max(0, doubt.own + surprised)
            if doubt.own > self.alarm:
                doubt.own, doubt.is_wary, doubt.forgotten = 0, True, decision.slot
                self.forget(decision.site, own_functions_only=False)
                return
        super().learn_at_site(decision, lesson)

    def learn_by_serving(self, decision: Decision, lesson: Lesson) -> None:
        doubt = self.doubts[decision.owner]
        if self.setup.alarm > 0:
            # The same instance surprises once, as it counts once.
            if self.was_taken(decision, decision.cell) or decision.slot <= doubt.forgotten:
                return
            surprised = self.surprise_at(decision.owner, decision.cell, decision.function, lesson)
            doubt.served = max(0, doubt.served + surprised)
            if doubt.served > self.alarm:
                doubt.served, doubt.forgotten = 0, decision.slot
                self.forget(decision.owner, own_functions_only=True)
                return
        super().learn_by_serving(decision, lesson)

    def score_function(self, decision: Decision, owner: int, function: int, *, right: bool) -> None:
        # What was not chosen is no surprise.
        if decision.slot > self.doubts[owner].forgotten:
            super().score_function(decision, owner, function, right=right)

    def surprise_at(self, site: int, cell: Cell, arm: int | None, lesson: Lesson) -> int:
        assert arm is not None
        known = [self.known[site][around].arms[arm] for around in self.cells_around(cell)]
        # From the finest up: the first that has grounds, or else the coarsest, which has none.
        tally = next((tally for tally in known if tally.labels >= GROUNDS), known[-1])
        return surprise(tally, float(lesson.right))

    def forget(self, site: int, *, own_functions_only: bool) -> None:
        for record in self.known[site].values():
            for tally in self.forgettable(site, record, own_functions_only=own_functions_only):
                tally.labels = tally.right = 0

    def forgettable(self, site: int, record: Record, *, own_functions_only: bool) -> list[Tally]:
        own = self.setup.sites[site].functions
        return record.arms[:own] if own_functions_only else record.arms
