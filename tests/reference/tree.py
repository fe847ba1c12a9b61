"""The oracle of the default policy: Gaussian inference on the tree of dyadic cells.

A learner keeps nothing but its labels, in the cells of their decisions. Whenever something is
looked at it is worked out anew from them, by recursion over the tree.
"""

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from reference import Decision, Lesson, Network
from reference.detection import WHOLE, Contest, Detector, Moods, whole
from reference.owners import IndexSetup, klucb, rounded_slot
from reference.records import (
    MILLION,
    Cell,
    Context,
    Record,
    cell_at,
    level_of,
    lowest_of_largest,
)

GOLDEN, TURN = 1327217885, 2**31 - 1  # the fractional part of the golden ratio, and 1
SILVER = 889516852  # that of the square root of 2


def upper(mean: float, bound: float) -> float:
    """Return an upper bound of the largest q with kl(mean, q) <= bound.

    kl(mean, mean + w) is w ** 2 / 2 times the mean of 1 / (q * (1 - q)), where q - mean has the
    density 2 x / w ** 2. Its least value by Jensen gives a width; one step of Newton's method with
    the two nodes of Gauss follows. Far from the middle it is the bound by logarithms.
    """
    rest = 1.0 - mean
    if mean < 0.1 or bound * (1.0 + mean) > 2.0 * rest or bound <= 0.0:
        return klucb(mean, 1.0, bound)
    # The root of w ** 2 * (1 + bound) = 2 * bend * w + 2 * bound * mean * rest.
    bend = (rest - mean) * bound / 1.5
    root = math.sqrt(bend * bend + 2.0 * bound * (1.0 + bound) * mean * rest)
    width = (bend + root) / (1.0 + bound)
    six = math.sqrt(6.0)
    near, far = (mean + (6.0 + sign * six) / 10.0 * width for sign in (-1, 1))
    near, far = near * (1.0 - near), far * (1.0 - far)
    slope = width * ((9.0 - six) / 36.0 * far + (9.0 + six) / 36.0 * near) / (near * far)
    q = mean + width
    return q - (slope - bound / width) * q * (1.0 - q)


class Belief(NamedTuple):
    mean: float
    variance: float  # that of a label is 1


class Report(NamedTuple):
    mean: float
    index: float
    slot: int


@cache
def parent(cell: Cell) -> Cell:
    return Cell(cell.space, cell.side // 2, tuple(k // 2 for k in cell.place))


@cache
def above(cell: Cell) -> list[Cell]:
    """Return the cell and all that it lies in, the finest first."""
    return [cell, *above(parent(cell))] if cell.side > 1 else [cell]


@dataclass
class Learner:
    """What one learner knows in its context space."""

    setup: IndexSetup
    name: str
    functions: int
    costs: tuple[float, ...]  # of all arms
    counts_once: bool = False
    readers: int = 0  # the last arms: peers that see the cell alone, and report nothing
    unit: int = 1  # gain of a right answer
    gains: dict[tuple[Cell, int], list[int]] = field(default_factory=dict)
    # Of the same labels, what earlier ones foretold of them; beliefs leave it out.
    foretold: dict[tuple[Cell, int], list[int]] = field(default_factory=dict)
    waiting: Counter[tuple[Cell, int]] = field(default_factory=Counter)  # labels not arrived yet
    paid: dict[tuple[Cell, int], list[int]] = field(default_factory=dict)  # in millionths
    arrivals: Counter[Cell] = field(default_factory=Counter)  # own ones
    reports: dict[tuple[Cell, int], Report] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)  # slot of the latest label of a function
    alarms: list[int] = field(default_factory=list)
    is_wary: bool = False  # peers are judged by own labels only
    forgotten: int = 0  # decisions up to this slot teach nothing
    measured: int = 0  # the rounded slot in which the share of labels that arrive was measured
    arriving: int = WHOLE  # that share
    found: dict[tuple[Cell, int], tuple[int, int]] = field(default_factory=dict)  # until a label

    def __post_init__(self) -> None:
        self.own, self.served = Detector(self.setup.alarm), Detector(self.setup.alarm)
        self.rises = [Detector(self.setup.alarm) for _ in range(self.functions)]
        self.moods, self.served_moods = Moods(), Moods()
        self.expected = 0.0
        self.contest = Contest(self.setup.alarm or 5.0)
        self.tries_tree = False  # in the decision that is being made

    def may_report(self, arm: int) -> bool:
        return self.functions <= arm < len(self.costs) - self.readers and not self.is_wary

    # -- cells ---------------------------------------------------------------------------------

    def cell_of(self, space: int, context: Context) -> Cell:
        if not self.setup.zooming:
            return cell_at(self.setup, space, context, self.setup.slices)
        cell = cell_at(self.setup, space, context, 1)
        while cell.place and level_of(cell) < self.setup.finest_level:
            if self.arrivals[cell] < (2 if len(cell.place) == 1 else 4) ** level_of(cell):
                break
            cell = cell_at(self.setup, space, context, 2 * cell.side)
        return cell

    def has_layers(self, cell: Cell) -> bool:
        return self.setup.zooming and bool(cell.place) and self.setup.finest_level > 0

    def path(self, cell: Cell) -> list[Cell]:
        return above(cell) if self.setup.zooming else [cell]

    def counted(self, cell: Cell, arm: int) -> tuple[int, int]:
        """Return the labels of an arm in a cell and in those below, and what they gained."""
        found = [g for (c, a), g in self.gains.items() if a == arm and cell in self.path(c)]
        return sum(map(len, found)), sum(map(sum, found))

    @property
    def uses_one_cell(self) -> bool:
        return self.contest.uses_one_cell and not self.tries_tree

    def under_way(self, cell: Cell, arm: int) -> int:
        if not self.setup.pending:
            return 0
        if self.uses_one_cell or not self.has_layers(cell):
            return self.waiting_in(self.path(cell)[-1], arm)
        pending = [(self.waiting_in(one, arm), self.variance(one)) for one in self.path(cell)]
        # A cell's own value and what it hides: a third of its deviation from its parent.
        return max(whole(n / (1.0 + variance / 3.0 * n)) for n, variance in pending)

    def waiting_in(self, cell: Cell, arm: int) -> int:
        return sum(n for (c, a), n in self.waiting.items() if a == arm and cell in self.path(c))

    # -- inference -----------------------------------------------------------------------------

    def evidence(self, cell: Cell, arm: int) -> tuple[int, int]:
        """Return what the labels in and below a cell are worth in it, and the right ones."""
        if (cell, arm) not in self.found:
            self.found[cell, arm] = self.summed(cell, arm)
        return self.found[cell, arm]

    def summed(self, cell: Cell, arm: int) -> tuple[int, int]:
        own = self.gains.get((cell, arm), [])
        worth = WHOLE * len(own)
        right = sum(WHOLE * gain // self.unit for gain in own)
        right -= sum(self.foretold.get((cell, arm), []))
        paths = [self.path(c) for c, a in self.gains if a == arm]
        for child in {c for path in paths for c in path if c.side > 1 and parent(c) == cell}:
            if self.setup.zooming:
                told, told_right = self.message(child, arm)
                worth, right = worth + told, right + told_right
        return worth, right

    def message(self, cell: Cell, arm: int) -> tuple[int, int]:
        """Return what the evidence of a cell is worth in its parent."""
        worth, right = self.evidence(cell, arm)
        part = 1.0 / (1.0 + self.variance(cell) / WHOLE * worth)
        return whole(worth * part), whole(right * part)

    def variance(self, cell: Cell) -> float:
        """Return the variance of a cell's deviation from its parent, to that of a label."""
        return float(4 * (self.setup.spread / cell.side) ** 2)

    def belief(self, cell: Cell, arm: int) -> Belief:
        return (self.by_one_cell if self.uses_one_cell else self.by_tree)(cell, arm)

    def by_one_cell(self, cell: Cell, arm: int) -> Belief:
        """Return what is believed if contexts say nothing."""
        labels, gain = self.counted(self.path(cell)[-1], arm)
        variance = 1.0 / (1.0 + labels)
        return Belief((0.5 + gain / self.unit) * variance, variance)

    def by_tree(self, cell: Cell, arm: int) -> Belief:
        """Return what all labels say of a cell.

        Given the value of its parent, that of a cell is a mean of it and of what is known below,
        weighed by 1 and `variance` times the labels. So are the means, and variances follow.
        """
        root, *cells = self.path(cell)[::-1]
        labels, correct = (one / WHOLE for one in self.evidence(root, arm))
        variance = 1.0 / (1.0 + labels)  # with the prior
        mean = (0.5 + correct) * variance
        for one in cells:
            below, correct_below = (part / WHOLE for part in self.evidence(one, arm))
            part = 1.0 / (1.0 + self.variance(one) * below)
            mean = (mean + self.variance(one) * correct_below) * part
            variance = (variance * part + self.variance(one)) * part
        return Belief(min(1.0, max(0.0, mean)), variance)

    def index(self, belief: Belief, slot: int, under_way: int) -> float:
        bound = self.setup.index_scale * math.log(rounded_slot(slot)) * belief.variance
        if under_way:
            bound = bound / (1.0 + under_way * self.arriving / WHOLE * belief.variance)
        return upper(belief.mean, bound)

    def measure(self, slot: int) -> None:
        """Measure the share of labels that arrive, as if 100 more had; once per rounded slot."""
        if self.measured != rounded_slot(slot):
            self.measured = rounded_slot(slot)
            labels, decided = self.moods.labels, sum(self.arrivals.values())
            self.arriving = whole(float(labels + 100) / (max(labels, decided) + 100) * WHOLE)

    # -- decisions -----------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        return zlib.crc32(self.name.encode()) & TURN

    def share(self, slot: int) -> float:
        return (((slot & TURN) * GOLDEN + self.offset) & TURN) / TURN

    def price(self, cell: Cell, arm: int) -> float:
        price, paid = self.costs[arm], self.paid.get((cell, arm))
        return price + sum(paid) / (float(len(paid)) * MILLION) if paid else price

    def by_own_labels(self, cell: Cell, arm: int, slot: int) -> tuple[float, float]:
        belief = self.belief(cell, arm)
        return belief.mean, self.index(belief, slot, self.under_way(cell, arm))

    def by_report(self, cell: Cell, arm: int, slot: int) -> tuple[float, float]:
        report = self.reports.get((cell, arm))
        if report is None or 2 * report.slot < slot:
            return 1.0, math.inf
        mean, index, _ = report
        under_way = self.under_way(cell, arm)
        belief = self.belief(cell, arm)
        own = self.index(belief, slot, under_way)
        if self.uses_one_cell and own - belief.mean < index - mean:
            mean, index = belief.mean, own
        if under_way:
            index = min(index, self.index(belief, slot, under_way))
        if self.setup.check_claims:
            bound = math.log(rounded_slot(slot)) * belief.variance
            index = min(index, upper(belief.mean, bound))
        return min(mean, index), index

    def choose(self, cell: Cell, slot: int, closed: Sequence[int] = ()) -> tuple[str, int]:
        """Return a phase and an arm; the phase "ask" if its report is needed first."""
        self.measure(slot)
        self.tries_tree = self.is_try(slot)
        try:
            return self.choose_by_beliefs(cell, slot, closed)
        finally:
            self.tries_tree = False

    def is_try(self, slot: int) -> bool:
        """Return whether a decision is by the tree in any case: 4 * sqrt(arms * t) of t are."""
        part = (((slot & TURN) * SILVER + self.offset) & TURN) / TURN
        return part * part * slot < 4 * len(self.costs)

    def choose_by_beliefs(self, cell: Cell, slot: int, closed: Sequence[int]) -> tuple[str, int]:
        arms, means, values = [], [], []
        slope = self.moods.slope
        for arm in range(len(self.costs)):
            if arm >= self.functions and arm in closed:
                continue
            by_report = self.may_report(arm)
            mean, index = (self.by_report if by_report else self.by_own_labels)(cell, arm, slot)
            value = index if index == math.inf else mean + self.share(slot) * (index - mean)
            price = math.inf if arm in closed else self.price(cell, arm)
            mood = slope * self.moods.left(arm, slot) if slope > 0 else 0.0
            arms.append(arm)
            means.append(mean + mood - price)
            values.append(value + mood - price)
        chosen = arms[lowest_of_largest(values)]
        if self.may_report(chosen):
            report = self.reports.get((cell, chosen))
            if report is None or report.slot != slot:
                return "ask", chosen
        best = arms[lowest_of_largest(means)]
        return ("exploit" if chosen == best else "explore"), chosen

    def report(self, cell: Cell, slot: int) -> tuple[float, float]:
        """Return the largest mean and the largest index of own functions."""
        beliefs = [self.belief(cell, function) for function in range(self.functions)]
        return max(b.mean for b in beliefs), max(self.index(b, slot, 0) for b in beliefs)

    def hear(self, cell: Cell, arm: int, report: tuple[float, float], slot: int) -> None:
        if not self.is_wary:
            self.reports[cell, arm] = Report(report[0], max(report), slot)

    def help(self, cell: Cell, slot: int) -> int:
        every = range(self.functions)
        return lowest_of_largest([self.by_own_labels(cell, f, slot)[1] for f in every])

    # -- labels --------------------------------------------------------------------------------

    def learn(self, cell: Cell, arm: int, gain: int, slot: int, paid: int | None = None) -> None:
        """Take in the label of an own decision."""
        if not self.is_credible(cell, arm, gain, slot, self.own):
            return
        if arm >= self.functions or self.is_first(arm, slot):
            self.add(cell, arm, gain)
        if paid is not None:
            self.paid.setdefault((cell, arm), []).append(paid)

    def learn_served(self, cell: Cell, function: int, gain: int, slot: int) -> None:
        """Take in the label of an answer to a peer."""
        if self.is_first(function, slot) and self.is_credible(
            cell, function, gain, slot, self.served
        ):
            self.add(cell, function, gain)

    def score(self, cell: Cell, function: int, gain: int, slot: int) -> None:
        """Take in what a label says of a free function that was not chosen."""
        if slot <= self.forgotten or not self.is_first(function, slot):
            return
        if self.setup.alarm and self.is_rise(cell, function, gain):
            self.forget_function(function)
            self.alarms.append(slot)
            return
        self.expected = 0.0
        self.add(cell, function, gain)

    def is_rise(self, cell: Cell, function: int, gain: int) -> bool:
        """Return whether errors have become so rare that what is known of them is of the past."""
        self.tries_tree = False
        mean, _ = self.belief(cell, function)
        return self.rises[function].is_fall(1.0 - mean, 1.0 - gain / self.unit)

    def forget_function(self, function: int) -> None:
        self.gains = {key: gains for key, gains in self.gains.items() if key[1] != function}
        self.foretold = {key: one for key, one in self.foretold.items() if key[1] != function}
        self.found = {}
        self.rises[function].restart()
        for moods in (self.moods, self.served_moods):
            moods.forget(function + 1, first=function)

    def add(self, cell: Cell, arm: int, gain: int) -> None:
        self.gains.setdefault((cell, arm), []).append(gain)
        foretold = whole(self.expected * WHOLE)
        self.foretold.setdefault((cell, arm), []).append(foretold)
        self.found = {}

    def is_first(self, function: int, slot: int) -> bool:
        if self.counts_once and self.last.get(function) == slot:
            return False
        self.last[function] = slot
        return True

    def is_credible(self, cell: Cell, arm: int, gain: int, slot: int, detector: Detector) -> bool:
        if slot <= self.forgotten:
            return False
        if self.may_report(arm) and (cell, arm) in self.reports:
            believed = self.reports[cell, arm].mean
        else:
            believed = self.belief(cell, arm).mean
        share = gain / self.unit
        if self.has_layers(cell):
            fine, plain = self.by_tree(cell, arm).mean, self.by_one_cell(cell, arm).mean
            self.contest.note(fine, plain, share)
        if detector is self.own:
            expected = self.moods.note(arm, share - believed, slot)
        else:
            expected = self.served_moods.note_next(arm, share - believed)
        believed = believed + expected
        self.expected = 0.5 * max(0.0, expected)
        if self.setup.alarm == 0 or not detector.is_fall(believed, share):
            return True
        self.is_wary = self.is_wary or detector is self.own
        self.forget(self.functions if detector is self.served else len(self.costs))
        self.forgotten = slot
        self.alarms.append(slot)
        return False

    def forget(self, end: int) -> None:
        """Forget the labels of the arms before `end`; if these are all, also the reports."""
        self.gains = {key: gains for key, gains in self.gains.items() if key[1] >= end}
        self.foretold = {key: one for key, one in self.foretold.items() if key[1] >= end}
        self.found = {}
        if end == len(self.costs):
            self.reports = {}
            self.own.restart()
            self.contest.restart()
        self.served.restart()
        for rise in self.rises:
            rise.restart()
        self.moods.forget(end)
        self.served_moods.forget(self.functions)


class TreeNetwork(Network):
    """Learners that ask each other in a replay."""

    setup: IndexSetup

    def __init__(self, setup: IndexSetup, *, counts_once: bool) -> None:
        super().__init__(setup)
        self.learners = [
            Learner(
                setup,
                site.name,
                site.functions,
                (*site.costs, *(price for _, price in (*site.peers, *site.readers))),
                counts_once,
                len(site.readers),
            )
            for site in setup.sites
        ]

    def record(self, site: int, cell: Cell, slot: int) -> Record:
        """A cell is known together with those that it lies in."""
        for one in self.learners[site].path(cell):
            super().record(site, one, slot)
        return super().record(site, cell, slot)

    def best_own_function(self, site: int, cells: tuple[Cell, ...]) -> int:
        (cell,) = cells
        learner = self.learners[site]
        every = range(learner.functions)
        return lowest_of_largest(
            [self.accuracy(learner, cell, f) - learner.price(cell, f) for f in every]
        )

    def active_cell(self, site: int, space: int, context: Context) -> Cell:
        return self.learners[site].cell_of(space, context)

    def choose(self, site: int, cells: tuple[Cell, ...], slot: int) -> tuple[str, int, Cell]:
        (cell,) = cells
        learner = self.learners[site]
        if not self.setup.sites[site].supervised:
            return "exploit", lowest_of_largest(self.hearsay(site, cell, slot)), cell
        while True:
            phase, arm = learner.choose(cell, slot)
            if phase != "ask":
                return phase, arm, cell
            peer, _ = self.peers(site)[arm - learner.functions]
            learner.hear(cell, arm, self.reported(peer, cell, slot), slot)

    def reported(self, peer: int, cell: Cell, slot: int) -> tuple[float, float]:
        self.record(peer, cell, slot)
        return self.learners[peer].report(cell, slot)

    def hearsay(self, site: int, cell: Cell, slot: int) -> list[float]:
        learner = self.learners[site]
        values = [
            self.accuracy(learner, cell, f) - learner.costs[f] for f in range(learner.functions)
        ]
        for peer, price in self.peers(site):
            self.record(peer, cell, slot)
            other = self.learners[peer]
            every = range(other.functions)
            values.append(max(self.accuracy(other, cell, f) for f in every) - price)
        for reader, price in self.readers(site):
            values.append(self.answers_of(self.record(reader, cell, slot)).share - price)
        return values

    def accuracy(self, learner: Learner, cell: Cell, function: int) -> float:
        labels, right = learner.counted(cell, function)
        return right / labels if labels else 0.0

    def assist(self, helper: int, cells: tuple[Cell, ...], slot: int) -> int:
        (cell,) = cells
        self.record(helper, cell, slot)
        return self.learners[helper].help(cell, slot)

    def end_slot(self, decision: Decision) -> None:
        self.learners[decision.site].arrivals[decision.cell] += 1
        self.wait(decision, 1)

    def stop_waiting(self, decision: Decision) -> None:
        self.wait(decision, -1)

    def wait(self, decision: Decision, by: int) -> None:
        self.learners[decision.site].waiting[decision.cell, decision.arm] += by
        if decision.asks_for_data:
            assert decision.function is not None
            self.learners[decision.owner].waiting[decision.cell, decision.function] += by

    def learn(self, decision: Decision, lesson: Lesson) -> None:
        self.stop_waiting(decision)
        gain = int(lesson.right)
        columns = self.setup.sites[decision.site].cost_columns
        paid = lesson.paid if columns and columns[decision.arm] is not None else None
        self.learners[decision.site].learn(decision.cell, decision.arm, gain, decision.slot, paid)
        if decision.asks_for_data:
            assert decision.function is not None
            self.learners[decision.owner].learn_served(
                decision.cell, decision.function, gain, decision.slot
            )
        self.remember(decision, lesson)

    def score_function(self, decision: Decision, owner: int, function: int, **label: Any) -> None:
        self.learners[owner].score(decision.cell, function, int(label["right"]), decision.slot)
