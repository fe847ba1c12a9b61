# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Upper confidence indices, and `share-ucb`, a policy by them over cells that are independent."""

from __future__ import annotations

import cython

from covey.kernel.counters import ArmCounters
from covey.kernel.layout import Layout
from covey.kernel.rules import Rule
from covey.kernel.table import CellPolicy, Clock, Said

if cython.compiled:
    from cython.cimports.libc.math import exp, log, rint, sqrt
else:
    from math import exp, log, sqrt

    from covey.kernel.cells import BEST_OWN
    from covey.kernel.counters import CLOSED, EXPLOIT, EXPLORE, FOREVER

    rint = round
    ENOUGH = 4  # labels of an arm, before a change of its accuracy is looked for
    EVIDENCE_UNIT = 1 << 20
    LEAST_MEAN = 0.1  # of an index without logarithms
    LOWER_SHARE = 0.75  # of the estimate, after a change

# Nodes and half the weights of a rule of Gauss for integrals of x * g(x) from 0 to 1.
NEAR_NODE, FAR_NODE = (6.0 - sqrt(6.0)) / 10.0, (6.0 + sqrt(6.0)) / 10.0
AT_NEAR, AT_FAR = (9.0 - sqrt(6.0)) / 36.0, (9.0 + sqrt(6.0)) / 36.0
EVIDENCE_RIGHT = int(rint(log(LOWER_SHARE) * EVIDENCE_UNIT))  # for a correct answer


def klucb(accuracy: float, labels: float, level: float) -> float:
    """Return the KL upper confidence bound: the largest q with labels * kl(accuracy, q) <= level.

    Newton's method from the right: the result is never too low.
    """
    bound = level / labels
    if accuracy >= 1.0:
        return 1.0
    rest = 1.0 - accuracy
    if accuracy <= 0.0:
        q: float = 1.0 - exp(-bound)
        return q
    entropy = accuracy * log(accuracy)
    q = 1.0 - rest * exp((entropy - bound) / rest)
    # From one half on the divergence curves more the closer it comes to 1: a nearer start.
    near = accuracy + sqrt(2 * bound * accuracy * rest if accuracy >= 0.5 else bound / 2)
    q = min(q, near)
    entropy = entropy + rest * log(rest)
    for _ in range(3):
        if q - accuracy <= 0 or q >= 1.0:
            break
        excess = entropy - accuracy * log(q) - rest * log(1.0 - q) - bound
        q = q - excess * q * (1.0 - q) / (q - accuracy)
    return q if q < 1.0 else 1.0


def upper(mean: float, bound: float) -> float:
    """Return an upper bound of the largest q with kl(mean, q) <= bound, mostly without logarithms.

    The divergence of q = mean + x is the integral of x / (q * (1 - q)). The inequality of Jensen
    bounds it from below, and a width from above. One step of Newton's method follows, with a rule
    of Gauss that is never above the integral: the result is never too low, and too high by less
    than 3 % of its distance from the mean.
    """
    rest = 1.0 - mean
    if mean < LEAST_MEAN or bound * (1.0 + mean) > 2.0 * rest or bound <= 0.0:
        return klucb(mean, 1.0, bound)
    bend = (rest - mean) * bound / 1.5
    root: float = sqrt(bend * bend + 2.0 * bound * (1.0 + bound) * mean * rest)
    width = (bend + root) / (1.0 + bound)
    near: float = mean + NEAR_NODE * width
    near = near * (1.0 - near)
    far: float = mean + FAR_NODE * width
    far = far * (1.0 - far)
    q = mean + width
    slope: float = width * (AT_NEAR * far + AT_FAR * near) / (near * far)
    return q - (slope - bound / width) * q * (1.0 - q)


class ShareUcb(CellPolicy):
    """Chooses the arm with the largest index; the peer that looks best is asked first."""

    def __init__(self, clock: Clock, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        CellPolicy.__init__(self, clock, rule, layout, counters)
        assert rule.index is not None
        self.scale = rule.index.scale
        self.alarm = int(rule.index.alarm * EVIDENCE_UNIT)
        self.wanted = -1  # the peer to be asked next
        # Per arm, when its index by own labels was computed, and that; then the largest of own
        # functions. Per peer, the slot of its report, and that.
        self.values, self.reports = layout.values, layout.reports

    def choose(self, row: int, slot: int, is_fresh: bool) -> int:
        self.clock.round_up(slot)
        base = row * self.stride
        chosen = self._most_valuable(base, slot)
        if chosen >= self.functions and not self.ignores_reports:
            self.wanted = chosen - self.functions
            if self.cells.rows[base + self.reports + 2 * self.wanted] != slot:
                return -1
        return chosen << 2 | (EXPLOIT if self.counters.best(base) == chosen else EXPLORE)

    def is_waiting(self, row: int, slot: int) -> bool:
        return self.choose(row, slot, False) < 0

    def wanted_from(self, row: int, peer: int) -> int:
        is_open = self.counters.costs[self.functions + self.wanted] < CLOSED
        return self.wanted if self.wanted >= peer and is_open else -1

    def _most_valuable(self, base: int, slot: int) -> int:
        """Return the arm with the largest index, its cost subtracted."""
        chosen = -1
        largest = 0.0
        for arm in range(self.functions):
            value = self.counters.worth(base, arm, self._upper(base, arm))
            if chosen < 0 or value > largest:
                chosen = arm
                largest = value
        for arm in range(self.functions, self.asked):
            if self.counters.costs[arm] >= CLOSED:
                continue
            value = self.counters.worth(base, arm, self._promise(base, arm, slot))
            if value > largest:
                chosen = arm
                largest = value
        return chosen

    def _promise(self, base: int, arm: int, slot: int) -> float:
        """Return the index of a peer without its price: from its report, or from own labels."""
        if self.ignores_reports:  # reports are replaced by own records
            return min(1.0, self._upper(base, arm))
        at = base + self.reports + 2 * (arm - self.functions)
        promise = FOREVER
        if 2 * self.cells.rows[at] >= slot:  # the index of the queried peer grows with the slot
            promise = self.cells.reals[at + 1]
        if self.floors_training:
            promise = min(promise, self._credit(base, arm))
        if self.is_pending:
            # The report does not include pending labels, nor the rows of the current batch.
            under_way = self.cells.rows[base + self.underway + arm]
            if under_way > 0:
                promise = min(promise, self._bound_by(base, arm, under_way))
        return promise

    def _credit(self, base: int, arm: int) -> float:
        """Return the index of an arm from own records, without its report."""
        labels = float(self.cells.rows[base + self.labels + arm])
        if labels == 0:
            return FOREVER
        right = float(self.cells.rows[base + self.right + arm]) / self.counters.unit
        return klucb(right / labels, labels, self.clock.logarithm)

    def _upper(self, base: int, arm: int) -> float:
        """Return the index of an arm from own records in a cell, which is kept while it holds."""
        at = base + self.values + 2 * arm
        if self.cells.rows[at] != self.clock.rounded:
            under_way = self.cells.rows[base + self.underway + arm] if self.is_pending else 0
            self.cells.reals[at + 1] = self._bound_by(base, arm, under_way)
            self.cells.rows[at] = self.clock.rounded
        return self.cells.reals[at + 1]

    def _bound_by(self, base: int, arm: int, under_way: int) -> float:
        """Return the index of an arm from the labels of a cell.

        Pending labels narrow the interval without a change of the estimate.
        """
        labels = float(self.cells.rows[base + self.labels + arm])
        if labels + under_way == 0:
            return 1.0
        accuracy = 0.5
        if labels > 0:
            right = float(self.cells.rows[base + self.right + arm])
            accuracy = right / (labels * self.counters.unit)
        return klucb(accuracy, labels + under_way, self.scale * self.clock.logarithm)

    def serve(self, row: int) -> int:
        base = row * self.stride
        at = base + self.values + 2 * self.asked
        if self.cells.rows[at] == self.clock.rounded:
            return self.cells.marks[2 * base + BEST_OWN]
        chosen = 0
        largest = 0.0
        for function in range(self.functions):
            value = self._upper(base, function)
            if function == 0 or value > largest:
                largest = value
                chosen = function
        self.cells.marks[2 * base + BEST_OWN] = chosen
        self.cells.reals[at + 1] = largest
        self.cells.rows[at] = self.clock.rounded
        return chosen

    def report(self, row: int, slot: int) -> int:
        """Tell the index of the best own function, from settled labels only.

        The asking learner keeps it, and adds its own pending labels.
        """
        CellPolicy.report(self, row, slot)
        base = row * self.stride
        if not self.is_pending:
            self.serve(row)
            self.said.highest = self.cells.reals[base + self.values + 2 * self.asked + 1]
            return 0
        highest = 0.0
        for function in range(self.functions):
            highest = max(highest, self._bound_by(base, function, 0))
        self.said.highest = highest
        return 0

    def hear(self, row: int, peer: int, said: Said, slot: int) -> int:
        if not self.ignores_reports:
            at = row * self.stride + self.reports + 2 * peer
            self.cells.rows[at] = slot
            self.cells.reals[at + 1] = said.highest
        return 0

    def is_credible(self, row: int, arm: int, gain: int, slot: int, is_served: bool) -> bool:
        """Update the change detection; on an alarm reset the statistics and return False.

        Labels of earlier decisions are then ignored.
        """
        if slot <= self.forgotten:
            return False
        evidence = self.evidence_served if is_served else self.evidence
        evidence = max(0, evidence + self._change_evidence(row * self.stride, arm, gain))
        is_alarm = evidence > self.alarm
        if is_served:
            self.evidence_served = 0 if is_alarm else evidence
        else:
            self.evidence = 0 if is_alarm else evidence
        if is_alarm:
            self.forget(self.functions if is_served else self.arms)
            self.ignores_reports = self.ignores_reports or not is_served
            self.forgotten = slot
            self.note_alarm(slot)
        return not is_alarm

    def _change_evidence(self, base: int, arm: int, gain: int) -> int:
        """Return the log-likelihood ratio of a label for a lower accuracy against the estimate."""
        labels = self.cells.rows[base + self.labels + arm]
        if labels < ENOUGH:
            return 0
        right = float(self.cells.rows[base + self.right + arm]) / self.counters.unit
        believed = (right + 1.0) / (labels + 2.0)
        if gain == self.counters.unit:
            return EVIDENCE_RIGHT
        share = float(gain) / self.counters.unit
        grounds: float = log((1.0 - LOWER_SHARE * believed) / (1.0 - believed)) * EVIDENCE_UNIT
        return int(rint(share * EVIDENCE_RIGHT + (1.0 - share) * grounds))
