# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Policies by upper confidence index: no phases, and peers report the index of their best function.

`IndexTable` asks the peer that looks best; `RecentTable` asks all peers and uses discounted counts;
`BalanceTable` asks none, and judges answers by their reported uncertainty.
"""

from __future__ import annotations

from array import array
from struct import Struct

try:
    import cython
except ModuleNotFoundError:
    from types import SimpleNamespace

    cython = SimpleNamespace(compiled=False)

if cython.compiled:
    from cython.cimports.libc.math import exp, log, rint, sqrt
else:
    from math import exp, log, sqrt

    rint = round

from covey.kernel.cells import BEST_OWN, LEVEL, PARENT
from covey.kernel.counters import CLOSED, EXPLOIT, EXPLORE, FOREVER, MILLIONTHS, ONE
from covey.kernel.memory import zeros
from covey.kernel.rules import Rule
from covey.kernel.table import Table
from covey.kernel.thresholds import Clock

# Change detection (CUSUM): accuracy after a change as a fraction of the estimate; minimum number
# of labels; fixed-point unit of the statistic; its decrease for a correct answer.
LOWER_SHARE = 0.75
ENOUGH = 4
EVIDENCE_UNIT = 1 << 20
EVIDENCE_RIGHT = int(rint(log(LOWER_SHARE) * EVIDENCE_UNIT))
BITS, NUMBER = Struct("<q"), Struct("<d")  # floats are stored as the integers with the same bits


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


class CachingTable(Table):
    """Keeps what it works out per cell, and what it is of; asks the peer that leads."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        Table.__init__(self, clock, rule)
        self.wanted = -1  # the peer to be asked next
        self.bounds = self.arms  # stamps per row
        self.parts = 1  # values per stamp
        self.values = zeros(8).cast("d")
        self.stamps = zeros(8).cast("q")

    def _has_grown(self, rows: int) -> int:
        values = zeros(8 * rows * self.bounds * self.parts).cast("d")
        stamps = zeros(8 * rows * self.bounds).cast("q")
        values[: len(self.values)] = self.values
        stamps[: len(self.stamps)] = self.stamps
        self.values, self.stamps = values, stamps
        return 0

    def _is_reset(self, row: int) -> int:
        Table._is_reset(self, row)
        for k in range(self.bounds):
            self.stamps[row * self.bounds + k] = 0
        return 0

    def _is_waiting(self, row: int, slot: int) -> bool:
        return self._choose(row, slot, False) < 0

    def _needs_report(self, row: int, peer: int) -> bool:
        return peer == self.wanted and self.costs[self.functions + peer] < CLOSED


class IndexTable(CachingTable):
    """Chooses the arm with the largest index; the peer that looks best is asked first."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        CachingTable.__init__(self, clock, rule)
        index = rule.index
        assert index is not None
        self.scale = index.scale
        self.bias = array("d", index.bias or [0.0] * self.levels)
        self.alarm = int(index.alarm * EVIDENCE_UNIT)
        # Per row what own functions may be worth, then what peers said of themselves, then the
        # most of the first; and when each was worked out.
        self.bounds = self.asked + 1
        self._has_grown(4)

    def _replies(self, row: int) -> list[int]:
        replies = []
        for k in range(self.asked - self.functions):
            at = row * self.bounds + self.functions + k
            stamp = 0 if self.ignores_reports else self.stamps[at]
            replies += [stamp, BITS.unpack(NUMBER.pack(self.values[at]))[0] if stamp else 0]
        return replies

    def _load_replies(self, row: int, replies: list[int]) -> int:
        for k in range(self.asked - self.functions):
            at = row * self.bounds + self.functions + k
            self.stamps[at] = replies[2 * k]
            self.values[at] = NUMBER.unpack(BITS.pack(replies[2 * k + 1]))[0]
        return 0

    def _has_changed(self, row: int, arm: int) -> int:
        # Peers are judged by their reports, except after a detected change.
        if arm < self.functions or self.ignores_reports:
            self._outdate(row, arm)
        return 0

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        self.clock.round_up(slot)
        chosen = self._most_valuable(row, slot)
        if chosen >= self.functions and not self.ignores_reports:
            self.wanted = chosen - self.functions
            if self.stamps[row * self.bounds + chosen] != slot:
                return -1
        return chosen << 2 | (EXPLOIT if self._best(row * self.stride) == chosen else EXPLORE)

    def _most_valuable(self, row: int, slot: int) -> int:
        """Return the arm with the largest index, its cost subtracted."""
        base = row * self.stride
        chosen = -1
        largest = 0.0
        for arm in range(self.functions):
            value = self._worth(base, arm, self._upper(row, arm))
            if chosen < 0 or value > largest:
                chosen = arm
                largest = value
        for k in range(self.asked - self.functions):
            arm = self.functions + k
            if self.costs[arm] >= CLOSED:
                continue
            value = self._worth(base, arm, self._promise(row, k, slot))
            if value > largest:
                chosen = arm
                largest = value
        return chosen

    def _help(self, row: int) -> int:
        return self._most_promising(row)

    def _make_report(self, row: int, slot: int) -> int:
        Table._make_report(self, row, slot)
        self.highest = self._reply(row)
        return 0

    def _receive_report(
        self, row: int, peer: int, arrivals: int, low: float, high: float, slot: int
    ) -> int:
        if not self.ignores_reports:
            at = row * self.bounds + self.functions + peer
            self.values[at] = high
            self.stamps[at] = slot
        return 0

    def _promise(self, row: int, peer: int, slot: int) -> float:
        """Return the index of a peer without its price: from its report, or from own labels."""
        at = row * self.bounds + self.functions + peer
        promise = FOREVER
        if self.ignores_reports:  # reports are replaced by own records
            return min(1.0, self._upper(row, self.functions + peer))
        if 2 * self.stamps[at] >= slot:  # the index of the queried peer grows with the slot
            promise = self.values[at]
        if self.floors_training:
            promise = min(promise, self._credit(row * self.stride, self.functions + peer))
        if self.is_pending:
            promise = min(promise, self._patience(row, self.functions + peer))
        return promise

    def _patience(self, row: int, arm: int) -> float:
        """Return the index of a peer from own records, if it has pending labels.

        The cached report does not include them, nor the rows of the current batch.
        """
        smallest = FOREVER
        while row >= 0:
            base = row * self.stride
            under_way = self.rows[base + self.underway + arm]
            if under_way > 0:
                value = (
                    self._bound_by(base, arm, under_way) + self.bias[self.marks[2 * base + LEVEL]]
                )
                smallest = min(smallest, value)
            row = self.marks[2 * base + PARENT]
        return smallest

    def _upper_in(self, row: int, arm: int) -> float:
        """Return the cached index of an arm from own records in a cell; recompute it if stale."""
        at = row * self.bounds + arm
        if self.stamps[at] != self.clock.rounded:
            base = row * self.stride
            under_way = self.rows[base + self.underway + arm] if self.is_pending else 0
            self.values[at] = self._bound_by(base, arm, under_way)
            self.stamps[at] = self.clock.rounded
        return self.values[at]

    def _bound_by(self, base: int, arm: int, under_way: int) -> float:
        """Return the index of an arm from the labels of a cell.

        Pending labels narrow the interval without a change of the estimate.
        """
        labels = float(self.rows[base + self.labels + arm])
        if labels + under_way == 0:
            return 1.0
        accuracy = 0.5
        if labels > 0:
            accuracy = float(self.rows[base + self.right + arm]) / (labels * self.unit)
        return klucb(accuracy, labels + under_way, self.scale * self.clock.logarithm)

    def _credit(self, base: int, arm: int) -> float:
        """Return the index of an arm from own records, without its report."""
        labels = float(self.rows[base + self.labels + arm])
        if labels == 0:
            return FOREVER
        right = float(self.rows[base + self.right + arm]) / self.unit
        return klucb(right / labels, labels, self.clock.logarithm)

    def _upper(self, row: int, arm: int) -> float:
        """Return the index of an arm from own records, in this cell and its parents."""
        if not self.is_layered:
            return self._upper_in(row, arm)
        smallest = FOREVER
        while row >= 0:
            base = row * self.stride
            value = self._upper_in(row, arm) + self.bias[self.marks[2 * base + LEVEL]]
            smallest = min(smallest, value)
            row = self.marks[2 * base + PARENT]
        return smallest

    def _upper_by_labels(self, row: int, function: int) -> float:
        """Return the same without pending labels."""
        smallest = FOREVER
        while row >= 0:
            base = row * self.stride
            value = self._bound_by(base, function, 0) + self.bias[self.marks[2 * base + LEVEL]]
            smallest = min(smallest, value)
            row = self.marks[2 * base + PARENT]
        return smallest

    def _outdate(self, row: int, arm: int) -> None:
        """Mark the cached index of an arm in `row` as stale."""
        self.stamps[row * self.bounds + arm] = 0
        self.stamps[(row + 1) * self.bounds - 1] = 0

    def _reply(self, row: int) -> float:
        """Return the index of the best own function, from settled labels only.

        The asking learner caches it, and adds its own pending labels.
        """
        if not self.is_pending:
            self._most_promising(row)
            return self.values[(row + 1) * self.bounds - 1]
        largest = 0.0
        for function in range(self.functions):
            largest = max(largest, self._upper_by_labels(row, function))
        return largest

    def _width(self, row: int, function: int) -> int:
        base = row * self.stride
        labels = float(self.rows[base + self.labels + function])
        if labels == 0:
            return MILLIONTHS
        accuracy = self.rows[base + self.right + function] / (labels * self.unit)
        upper = self._reply(row) if self.is_pending else self._upper(row, function)
        return int(rint(min(1.0, upper - accuracy) * MILLIONTHS))

    def _most_promising(self, row: int) -> int:
        at = (row + 1) * self.bounds - 1
        base = row * self.stride
        if self.stamps[at] == self.clock.rounded and not self.is_layered:
            return self.marks[2 * base + BEST_OWN]
        chosen = 0
        largest = 0.0
        for function in range(self.functions):
            value = self._upper(row, function)
            if function == 0 or value > largest:
                largest = value
                chosen = function
        self.marks[2 * base + BEST_OWN] = chosen
        self.values[at] = largest
        self.stamps[at] = self.clock.rounded
        return chosen

    def _is_credible(self, row: int, arm: int, gain: int, slot: int, is_served: bool) -> bool:
        """Update the change detection; on an alarm reset the statistics and return False.

        Labels of earlier decisions are then ignored.
        """
        if slot <= self.forgotten:
            return False
        evidence = self.evidence_served if is_served else self.evidence
        evidence = max(0, evidence + self._change_evidence(row, arm, gain))
        is_alarm = evidence > self.alarm
        if is_served:
            self.evidence_served = 0 if is_alarm else evidence
        else:
            self.evidence = 0 if is_alarm else evidence
        if is_alarm:
            self._forget_all(self.functions if is_served else self.arms)
            self.ignores_reports = self.ignores_reports or not is_served
            self.forgotten = slot
            self._note_alarm(slot)
        return not is_alarm

    def _change_evidence(self, row: int, arm: int, gain: int) -> int:
        """Return the log-likelihood ratio of a label for a lower accuracy against the estimate."""
        base = row * self.stride
        while self.rows[base + self.labels + arm] < ENOUGH:
            if self.marks[2 * base + PARENT] < 0:
                break
            row = self.marks[2 * base + PARENT]
            base = row * self.stride
        labels = self.rows[base + self.labels + arm]
        if labels < ENOUGH:
            return 0
        right = float(self.rows[base + self.right + arm]) / self.unit
        believed = (right + 1.0) / (labels + 2.0)
        if gain == self.unit:
            return EVIDENCE_RIGHT
        share = float(gain) / self.unit
        grounds: float = log((1.0 - LOWER_SHARE * believed) / (1.0 - believed)) * EVIDENCE_UNIT
        return int(rint(share * EVIDENCE_RIGHT + (1.0 - share) * grounds))

    def _forget_all(self, end: int) -> int:
        Table._forget_all(self, end)
        for row in range(self.used):
            for arm in range(end):
                # After a reset of the peers' records, their reports are ignored.
                self._outdate(row, arm)
        return 0


class FreshTable(IndexTable):
    """Keeps no report of a peer beyond its slot."""

    def _replies(self, row: int) -> list[int]:
        return []

    def _load_replies(self, row: int, replies: list[int]) -> int:
        return 0

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        self.clock.round_up(slot)
        chosen = self._most_valuable(row, slot)
        return chosen << 2 | (EXPLOIT if self._best(row * self.stride) == chosen else EXPLORE)

    def _is_waiting(self, row: int, slot: int) -> bool:
        return True

    def _needs_report(self, row: int, peer: int) -> bool:
        return self.costs[self.functions + peer] < CLOSED


class RecentTable(FreshTable):
    """Asks all peers in every slot, and uses discounted counts."""

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        if not self.ignores_reports and self._is_unheard(row, slot):
            return -1
        return FreshTable._choose(self, row, slot, is_fresh)

    def _is_unheard(self, row: int, slot: int) -> bool:
        """Return whether the report of some peer is missing in this slot."""
        replies = row * self.bounds + self.functions
        for k in range(self.asked - self.functions):
            if self.costs[self.functions + k] < CLOSED and self.stamps[replies + k] != slot:
                return True
        return False

    def _bound_by(self, base: int, arm: int, under_way: int) -> float:
        most = float(self.rows[base + self.recent + arm])
        labels = most / ONE
        if labels + under_way == 0:
            return 1.0
        accuracy = float(self.rows[base + self.recent_right + arm]) / most if labels > 0 else 0.5
        return klucb(accuracy, labels + under_way, self.scale * self.clock.logarithm)

    def _credit(self, base: int, arm: int) -> float:
        labels = float(self.rows[base + self.recent + arm]) / ONE
        right = float(self.rows[base + self.recent_right + arm]) / ONE
        if labels == 0:
            return FOREVER
        return klucb(right / labels, labels, self.clock.logarithm)


class BalanceTable(FreshTable):
    """Asks for no reports: helpers say how uncertain each answer is."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        IndexTable.__init__(self, clock, rule)
        self.tells_widths = True

    def _promise(self, row: int, peer: int, slot: int) -> float:
        if self.ignores_reports:
            return min(1.0, self._upper(row, self.functions + peer))
        promise = self._balance(row, peer)
        if self.floors_training:
            promise = min(promise, self._credit(row * self.stride, self.functions + peer))
        return promise

    def _balance(self, row: int, peer: int) -> float:
        """Return the index of a peer from own labels and the uncertainty of its answers."""
        base = row * self.stride
        labels = float(self.rows[base + self.labels + self.functions + peer])
        tried = float(self._tried(base, self.functions + peer))
        if tried == 0:
            return FOREVER
        right = float(self.rows[base + self.right + self.functions + peer]) / self.unit
        width = float(self.rows[base + self.spent + self.functions + peer]) / MILLIONTHS
        mean = (right + width) / labels if labels > 0 else 0.5
        promise: float = mean + sqrt(2 * self.clock.logarithm / tried)
        return promise
