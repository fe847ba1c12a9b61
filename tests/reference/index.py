"""The oracle of the policies that go by an upper index.

As slow and plain as `reference`: an index is worked out anew whenever it is looked at. What is not
offered to Share-UCB (candidates, peers that see the cell alone, busy peers, random costs) is not
here either.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import reference
from reference import Decision, Lesson, Network, Row
from reference.average import AverageNetwork
from reference.owners import IndexSetup, index_setup, klucb, rounded_slot
from reference.records import Cell, Tally, lowest_of_largest

__all__ = ["PRESETS", "IndexSetup", "Row", "index_setup", "replay"]

DOUBTS = 2**20  # of doubt that come to one nat
RELIEF = round(math.log(0.75) * DOUBTS)
GROUNDS = 4  # labels from which on an arm is known well enough to be a surprise


def replay(setup: IndexSetup, *, at: Sequence[int] | None = None, **stream: Any) -> list[Row]:
    """Run the whole stream, whose columns are those of `reference.replay`."""
    # Without `at` every receiver is given the same instance in a slot.
    network: Network
    if setup.preset == "auto":
        dimension = len(stream["contexts"][0])
        network = AverageNetwork(setup, counts_once=at is None, dimension=dimension)
    else:
        network = ShareUcb(setup, counts_once=at is None)
    return reference.replay(setup, at=at, network=network, **stream)


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


class ShareUcb(Network):
    """Sites that choose by an index; a peer is asked only while an old reply makes it look best.

    A function is counted once for an instance, however many learners used it. With an alarm, a
    site forgets what it knows when labels fit it no more.
    """

    setup: IndexSetup

    def __init__(self, setup: IndexSetup, *, counts_once: bool) -> None:
        super().__init__(setup)
        self.counts_once = counts_once
        # Per owner, cell and own function: the slot of the decision whose label was taken last.
        self.last_taken: dict[tuple[int, Cell, int | None], int] = {}
        # Per asker, cell and peer: the last reply, and the slot it is of.
        self.replies: dict[tuple[int, Cell, int], tuple[float, int]] = {}
        self.doubts = [Doubt() for _ in setup.sites]
        self.alarm = int(setup.alarm * DOUBTS)

    # Deciding.

    def index(self, tally: Tally, slot: int, under_way: int) -> float:
        """Return U of an arm by what is known of it, as sure as with so many labels more."""
        if tally.labels + under_way == 0:
            return 1.0
        # What is under way may turn out right or wrong.
        mean = tally.right / tally.labels if tally.labels else 0.5
        room = self.setup.index_scale * math.log(rounded_slot(slot))
        return klucb(mean, tally.labels + under_way, room)

    def functions_known(self, owner: int, cell: Cell, slot: int) -> list[Tally]:
        return self.record(owner, cell, slot).arms[: self.setup.sites[owner].functions]

    def upper(self, owner: int, cell: Cell, slot: int) -> list[float]:
        """Return U of each of the owner's functions for an instance in the cell."""
        tallies = self.functions_known(owner, cell, slot)
        return [self.index(tally, slot, tally.under_way) for tally in tallies]

    def reply(self, peer: int, cell: Cell, slot: int) -> float:
        if self.setup.sites[peer].lies:
            return 1.0
        # What is under way to it is the business of who sent it.
        return max(self.index(tally, slot, 0) for tally in self.functions_known(peer, cell, slot))

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
        costs = self.setup.sites[site].costs
        own = [u - cost for u, cost in zip(self.upper(site, cell, slot), costs, strict=True)]
        while True:
            arm = lowest_of_largest(own + self.values_of_peers(site, cell, slot))
            if arm < len(own) or self.doubts[site].is_wary:
                return arm
            peer, _ = self.peers(site)[arm - len(own)]
            if self.last_reply(site, cell, peer)[1] == slot:
                return arm
            self.replies[site, cell, peer] = (self.reply(peer, cell, slot), slot)

    def values_of_peers(self, site: int, cell: Cell, slot: int) -> list[float]:
        values = []
        first = self.setup.sites[site].functions
        for arm, (peer, price) in enumerate(self.peers(site), start=first):
            tally = self.known[site][cell].arms[arm]
            by_own_labels = self.index(tally, slot, tally.under_way)
            if self.doubts[site].is_wary:
                values.append(min(1.0, by_own_labels) - price)
                continue
            reply, asked = self.last_reply(site, cell, peer)
            # An index grows with the slot, so that of long ago bounds nothing.
            promise = reply if 2 * asked >= slot else math.inf
            is_checked = tally.under_way > 0 or (self.setup.check_claims and tally.labels > 0)
            patience = by_own_labels if is_checked else math.inf
            values.append(min(promise, patience) - price)
        return values

    def last_reply(self, site: int, cell: Cell, peer: int) -> tuple[float, int]:
        return self.replies.get((site, cell, peer), (math.inf, 0))

    # Counting and learning.

    def count_arrival(self, decision: Decision, *, is_labelled: bool) -> None:
        if self.counts_labels(decision.site) == is_labelled:
            self.known[decision.site][decision.cell].arrivals += 1
        if not decision.is_own and self.counts_labels(decision.owner) == is_labelled:
            self.known[decision.owner][decision.cell].arrivals += 1

    def tallies_in_cells(self, decision: Decision) -> list[tuple[Tally, bool]]:
        tallies = [(self.known[decision.site][decision.cell].arms[decision.arm], False)]
        if not decision.is_own:
            assert decision.function is not None
            arm = self.known[decision.owner][decision.cell].arms[decision.function]
            tallies.append((arm, True))
        return tallies

    def learn(self, decision: Decision, lesson: Lesson) -> None:
        self.stop_waiting(decision)
        self.has_come(decision)
        self.learn_at_site(decision, lesson)
        if not decision.is_own:
            self.learn_by_serving(decision, lesson)

    def learn_at_site(self, decision: Decision, lesson: Lesson) -> None:
        doubt = self.doubts[decision.site]
        record = self.known[decision.site][decision.cell]
        if self.setup.alarm > 0:
            if decision.slot <= doubt.forgotten:
                return
            surprised = surprise(record.arms[decision.arm], float(lesson.right))
            doubt.own = max(0, doubt.own + surprised)
            if doubt.own > self.alarm:
                doubt.own, doubt.is_wary, doubt.forgotten = 0, True, decision.slot
                self.forget(decision.site, own_functions_only=False)
                return
        if decision.is_own:
            self.learn_of_function(decision, right=lesson.right)
        else:
            record.take(self.setup, record.arms[decision.arm], right=lesson.right)

    def learn_by_serving(self, decision: Decision, lesson: Lesson) -> None:
        doubt = self.doubts[decision.owner]
        if self.setup.alarm > 0:
            # The same instance surprises once, as it counts once.
            if self.was_taken(decision) or decision.slot <= doubt.forgotten:
                return
            assert decision.function is not None
            tally = self.known[decision.owner][decision.cell].arms[decision.function]
            doubt.served = max(0, doubt.served + surprise(tally, float(lesson.right)))
            if doubt.served > self.alarm:
                doubt.served, doubt.forgotten = 0, decision.slot
                self.forget(decision.owner, own_functions_only=True)
                return
        self.learn_of_function(decision, right=lesson.right)

    def learn_of_function(self, decision: Decision, *, right: bool) -> None:
        if self.was_taken(decision):
            return
        self.last_taken[decision.owner, decision.cell, decision.function] = decision.slot
        record = self.known[decision.owner][decision.cell]
        record.take(self.setup, record.arms[decision.function], right=right)

    def score_function(self, decision: Decision, owner: int, function: int, *, right: bool) -> None:
        # What was not chosen is no surprise.
        if decision.slot > self.doubts[owner].forgotten:
            self.learn_of_function(replace(decision, owner=owner, function=function), right=right)

    def was_taken(self, decision: Decision) -> bool:
        """Whether the label of the instance has moved the function already."""
        last = self.last_taken.get((decision.owner, decision.cell, decision.function))
        return self.counts_once and last == decision.slot

    def forget(self, site: int, *, own_functions_only: bool) -> None:
        own = self.setup.sites[site].functions
        for record in self.known[site].values():
            for tally in record.arms[:own] if own_functions_only else record.arms:
                tally.labels = tally.right = 0


PRESETS = ("auto", "share-ucb")
