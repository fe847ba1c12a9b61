"""The oracle of the policies that go by an upper index; it replays CoS with elimination too.

As slow and plain as `reference.py`: an index is worked out anew whenever it is looked at. What is
not offered to these policies (candidates, peers that see the cell alone, busy peers, random costs)
is not here either.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import reference
from reference import Decision, Lesson, Row
from reference.alarm import DoubtingNetwork
from reference.elimination import CosCe
from reference.owners import IndexSetup, OnceNetwork, index_setup, klucb, rounded_slot
from reference.records import (
    MILLION,
    Cell,
    Context,
    Record,
    Tally,
    cell_at,
    level_of,
    lowest_of_largest,
)
from reference.tree import TreeNetwork

__all__ = ["PRESETS", "IndexSetup", "Row", "index_setup", "replay"]

ONE = 2**16  # a label that has not been discounted yet


def replay(setup: IndexSetup, *, at: Sequence[int] | None = None, **stream: Any) -> list[Row]:
    """Run the whole stream, whose columns are those of `reference.replay`."""
    # Without `at` every receiver is given the same instance in a slot.
    network = PRESETS[setup.preset](setup, counts_once=at is None)
    return reference.replay(setup, at=at, network=network, **stream)


class IndexNetwork(DoubtingNetwork):
    """What the index policies share: the index of a function, the helper's rule, the phases."""

    def room(self, slot: int) -> float:
        return self.setup.index_scale * math.log(rounded_slot(slot))

    def index(self, tally: Tally, slot: int, under_way: int) -> float:
        """Return U of an arm by what is known of it, as sure as with so many labels more."""
        if tally.labels + under_way == 0:
            return 1.0
        # What is under way may turn out right or wrong.
        mean = tally.right / tally.labels if tally.labels else 0.5
        return klucb(mean, tally.labels + under_way, self.room(slot))

    def upper(self, owner: int, cell: Cell, slot: int) -> list[float]:
        """Return U of each of the owner's functions for an instance in the cell."""
        tallies = self.functions_known(owner, cell, slot)
        return [self.index(tally, slot, tally.under_way) for tally in tallies]

    def upper_by_labels(self, owner: int, cell: Cell, slot: int) -> list[float]:
        """Return the same as if nothing were under way."""
        tallies = self.functions_known(owner, cell, slot)
        return [self.index(tally, slot, 0) for tally in tallies]

    def functions_known(self, owner: int, cell: Cell, slot: int) -> list[Tally]:
        return self.record(owner, cell, slot).arms[: self.setup.sites[owner].functions]

    def slack(self, cell: Cell) -> float:
        """Return how much accuracies may differ within a cell, where that counts."""
        return 0.0

    def patience(self, site: int, cell: Cell, arm: int, slot: int) -> float:
        """Return the index of a peer for a learner with pending labels of it: by its own record."""
        known = [(around, self.known[site][around].arms[arm]) for around in self.cells_around(cell)]
        return min(
            [
                self.index(tally, slot, tally.under_way) + self.slack(around)
                for around, tally in known
                if tally.under_way > 0
            ],
            default=math.inf,
        )

    def own_values(self, site: int, cell: Cell, slot: int) -> list[float]:
        costs = self.setup.sites[site].costs
        return [u - cost for u, cost in zip(self.upper(site, cell, slot), costs, strict=True)]

    def assist(self, helper: int, cells: tuple[Cell, ...], slot: int) -> int:
        (cell,) = cells
        return lowest_of_largest(self.upper(helper, cell, slot))

    def choose(self, site: int, cells: tuple[Cell, ...], slot: int) -> tuple[str, int, Cell]:
        if not self.setup.sites[site].supervised:
            return super().choose(site, cells, slot)
        (cell,) = cells
        arm = self.most_promising(site, cell, slot)
        # Choice: of several arms with the largest estimate only the lowest one exploits.
        best = lowest_of_largest(self.estimates(site, cell))
        return ("exploit" if arm == best else "explore"), arm, cell

    def most_promising(self, site: int, cell: Cell, slot: int) -> int:
        raise NotImplementedError


class Asking(IndexNetwork):
    """Peers are worth what they reply, less their price."""

    def reply(self, peer: int, cell: Cell, slot: int) -> float:
        # What is under way to it is the business of who sent it.
        return max(self.upper_by_labels(peer, cell, slot))

    def most_promising(self, site: int, cell: Cell, slot: int) -> int:
        values = self.own_values(site, cell, slot)
        for arm, (peer, price) in enumerate(self.peers(site), start=len(values)):
            patience = self.patience(site, cell, arm, slot)
            values.append(min(self.reply(peer, cell, slot), patience) - price)
        return lowest_of_largest(values)


class Discounted(Asking):
    """The index of the recent labels alone."""

    def index(self, tally: Tally, slot: int, under_way: int) -> float:
        if tally.recent + under_way == 0:
            return 1.0
        mean = tally.recent_right / tally.recent if tally.recent else 0.5
        return klucb(mean, tally.recent / ONE + under_way, self.room(slot))


class ShareUcb(Asking):
    """Peers are asked only while an old reply makes them look best."""

    def __init__(self, setup: IndexSetup, *, counts_once: bool) -> None:
        super().__init__(setup, counts_once=counts_once)
        # Per asker, cell and peer: the last reply, and the slot it is of.
        self.replies: dict[tuple[int, Cell, int], tuple[float, int]] = {}

    def most_promising(self, site: int, cell: Cell, slot: int) -> int:
        own = self.own_values(site, cell, slot)
        if self.doubts[site].is_wary:
            return lowest_of_largest(own + self.values_by_own_labels(site, cell, slot))
        while True:
            arm = lowest_of_largest(own + self.values_by_old_replies(site, cell, slot))
            if arm < len(own):
                return arm
            peer, _ = self.peers(site)[arm - len(own)]
            _, asked = self.last_reply(site, cell, peer)
            if asked == slot:
                return arm
            self.replies[site, cell, peer] = (self.reply(peer, cell, slot), slot)

    def values_by_old_replies(self, site: int, cell: Cell, slot: int) -> list[float]:
        values = []
        first = self.setup.sites[site].functions
        for arm, (peer, price) in enumerate(self.peers(site), start=first):
            reply, asked = self.last_reply(site, cell, peer)
            # An index grows with the slot, so that of long ago bounds nothing.
            promise = reply if 2 * asked >= slot else math.inf
            values.append(min(promise, self.patience(site, cell, arm, slot)) - price)
        return values

    def values_by_own_labels(self, site: int, cell: Cell, slot: int) -> list[float]:
        first = self.setup.sites[site].functions
        return [
            self.upper_by_own_labels(site, cell, arm, slot) - price
            for arm, (_, price) in enumerate(self.peers(site), start=first)
        ]

    def upper_by_own_labels(self, site: int, cell: Cell, arm: int, slot: int) -> float:
        """Return what a peer may be worth to a learner that asks it for answers only."""
        around = self.cells_around(cell)
        tallies = [self.known[site][one].arms[arm] for one in around]
        by_level = [
            self.index(tally, slot, tally.under_way) + self.slack(one)
            for one, tally in zip(around, tallies, strict=True)
        ]
        return min(1.0, *by_level)

    def last_reply(self, site: int, cell: Cell, peer: int) -> tuple[float, int]:
        return self.replies.get((site, cell, peer), (math.inf, 0))


class MultiResolution(ShareUcb):
    """An instance lies in a cell of every level, and the level that says least decides.

    Where slices are given (and the set-up zooms not) there is one level: that of the grid.
    """

    def active_cell(self, site: int, space: int, context: Context) -> Cell:
        if not self.setup.zooming:
            return cell_at(self.setup, space, context, self.setup.slices)
        finest = self.setup.finest_level if context else 0
        return cell_at(self.setup, space, context, 2**finest)

    def cells_around(self, cell: Cell) -> list[Cell]:
        cells = [cell]
        times = 2**self.setup.level_step
        while self.setup.zooming and cells[-1].side >= times:
            space, side, place = cells[-1]
            cells.append(Cell(space, side // times, tuple(k // times for k in place)))
        return cells

    def record(self, site: int, cell: Cell, slot: int) -> Record:
        # A report on a cell covers all cells above it. So every label finds all its cells known.
        for around in self.cells_around(cell):
            super().record(site, around, slot)
        return self.known[site][cell]

    def upper(self, owner: int, cell: Cell, slot: int) -> list[float]:
        around = self.cells_around(cell)
        return self.least({one: ShareUcb.upper(self, owner, one, slot) for one in around})

    def upper_by_labels(self, owner: int, cell: Cell, slot: int) -> list[float]:
        around = self.cells_around(cell)
        return self.least({one: ShareUcb.upper_by_labels(self, owner, one, slot) for one in around})

    def least(self, by_level: dict[Cell, list[float]]) -> list[float]:
        slack = [[u + self.slack(cell) for u in uppers] for cell, uppers in by_level.items()]
        return [min(levels) for levels in zip(*slack, strict=True)]

    def slack(self, cell: Cell) -> float:
        if not self.setup.zooming or self.setup.finest_level < self.setup.level_step:
            return 0.0  # there is but one level
        diagonal = math.sqrt(len(cell.place)) * 2.0 ** -level_of(cell)
        slack: float = self.setup.lipschitz * diagonal**self.setup.alpha
        return slack


class Balance(IndexNetwork):
    """Peers say nothing of what they know but, with an answer, how unsure they are of it."""

    def __init__(self, setup: IndexSetup, *, counts_once: bool) -> None:
        super().__init__(setup, counts_once=counts_once)
        self.width_of: dict[Decision, int] = {}  # in millionths
        # Per asker, cell and arm: the widths of the answers whose labels came.
        self.widths: dict[tuple[int, Cell, int], int] = defaultdict(int)

    def decide(self, site: int, context: Context, slot: int, busy: Sequence[int]) -> Decision:
        decision = super().decide(site, context, slot, busy)
        if not decision.is_own:
            self.width_of[decision] = self.width(decision)
        return decision

    def width(self, decision: Decision) -> int:
        tally = self.known[decision.owner][decision.cell].arms[decision.function]
        if tally.labels == 0:
            return MILLION
        index = self.index(tally, decision.slot, 0)
        if self.setup.pending:
            # What was used may not have been what promised most: others have labels to come.
            index = max(self.upper_by_labels(decision.owner, decision.cell, decision.slot))
        # Choice: halves go to the even number.
        return round(min(1.0, index - tally.right / tally.labels) * 1e6)

    def most_promising(self, site: int, cell: Cell, slot: int) -> int:
        values = self.own_values(site, cell, slot)
        for arm, (_, price) in enumerate(self.peers(site), start=len(values)):
            values.append(self.peer_value(site, cell, arm, slot) - price)
        return lowest_of_largest(values)

    def peer_value(self, site: int, cell: Cell, arm: int, slot: int) -> float:
        tally = self.known[site][cell].arms[arm]
        if tally.tried == 0:
            return math.inf
        mean = 0.5
        if tally.labels > 0:
            mean = (tally.right + self.widths[site, cell, arm] / 1e6) / tally.labels
        # Choice: the index scale plays no part here, only in the indices of functions.
        return mean + math.sqrt(2 * math.log(rounded_slot(slot)) / tally.tried)

    def learn(self, decision: Decision, lesson: Lesson) -> None:
        super().learn(decision, lesson)
        if not decision.is_own:
            self.widths[decision.site, decision.cell, decision.arm] += self.width_of[decision]


PRESETS: dict[str, type[OnceNetwork] | type[TreeNetwork]] = {
    "auto": TreeNetwork,
    "share-ucb": ShareUcb,
    "two-sizes": MultiResolution,
    "discounted": Discounted,
    "multi-resolution": MultiResolution,
    "cos-ce": CosCe,
    "balance": Balance,
}
