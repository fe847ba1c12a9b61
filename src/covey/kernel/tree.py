# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""The default policy: Gaussian inference on the tree of dyadic cells, and an upper index.

The accuracy of an arm in a cell is that in the parent cell plus a Gaussian deviation, whose
variance is a quarter from level to level. A label weighs as much as one of a fair coin. Per cell
and arm two numbers are kept: how many labels the cell's subtree is worth, and how many of them are
right. `docs/research/auto.md` has the derivation and what is proved.
"""

from __future__ import annotations

from array import array
from typing import Any

try:
    import cython
except ModuleNotFoundError:
    from types import SimpleNamespace

    cython = SimpleNamespace(compiled=False)

if cython.compiled:
    from cython.cimports.libc.math import log, sqrt
else:
    from math import log, sqrt

from covey.kernel.cells import ARRIVALS, BEST, BEST_OWN, LEVEL, PARENT
from covey.kernel.counters import (
    ARRIVED,
    CLOSED,
    EXPLOIT,
    EXPLORE,
    FOREVER,
    LABELLED,
    USED,
    CellCounters,
)
from covey.kernel.index import BITS, NUMBER, CachingTable, klucb
from covey.kernel.rules import Rule
from covey.kernel.table import Table
from covey.kernel.thresholds import Clock

WHOLE_LABEL = 1 << 20  # what labels are worth is a fixed-point number: sums are exact
PRIOR_LABELS = 1.0  # the accuracy in the coarsest cell: mean 1/2, variance 1/4
PRIOR_MEAN = 0.5
GOLDEN = 1327217885  # the golden ratio, of 31 bits: its multiples are spread evenly
TURN = (1 << 31) - 1

# Change detection. Two sums test against falls to these shares of what is believed.
LARGE_FALL = 0.5
SMALL_FALL = 0.85
LOG_LARGE_FALL, LOG_SMALL_FALL = log(LARGE_FALL), log(SMALL_FALL)
LEAST_BELIEF = 0.02  # beliefs are taken as at least this far from 0 and 1
BLOCK = 32  # labels over which the dependence of errors is measured
USUAL_DEPENDENCE = 2.0  # variance of a block to that of independent errors, before it is measured
USUAL_BLOCKS = 8  # what that is worth
# What a detector keeps, for own decisions and then for answers to peers.
(LARGE, SMALL, COUNT, UNTIL, LIMIT, ERRORS, VARIANCE, FILLED, RATIO, BLOCKS) = range(10)
WATCHED = 10

# Errors in runs: what the latest labels of an arm, forgotten by the slot, say of the next one.
REMEMBERED = 0.75  # of a deviation, a slot later
LONGEST = 64  # slots after which nothing of it is left
SURE = 3.0  # standard deviations by which they must differ from independent ones
PRODUCTS, SQUARES, RESIDUALS, RESIDUAL_COUNT = range(4)  # those of answers to peers follow
ARRIVING, ROUND, DECIDED = 8, 9, 10
PATIENCE = 100  # labels that are taken as arrived, when the share that arrives is measured


def whole(value: float) -> int:
    """Return the nearest whole number; negative ones are rounded towards 0."""
    if cython.compiled:
        number: int = cython.cast(cython.longlong, value + 0.5)
        return number
    return int(value + 0.5)


class TreeTable(CachingTable):
    """Chooses by the mean of an arm plus a share of its width; the share changes by the slot."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        tree = rule.tree
        assert tree is not None
        CachingTable.__init__(self, clock, rule)
        self.scale = tree.scale
        # The variance of the deviation of a cell from its parent, in units of a label's.
        self.shrink = array("d", [4 * (tree.spread / level.side) ** 2 for level in rule.levels])
        self.alarm = 1 if tree.alarm > 0 else 0
        self.margin = tree.alarm
        self.offset = rule.offset & TURN
        self.share = 1.0  # of the width, for the current decision
        self.mean = self.strength = 0.0  # what `_believe` found
        self.chain = array("q", bytes(8 * (self.levels + 1)))
        self.labelled = array("q", [-1] * max(1, self.functions))  # a function's last slot
        self.versions = array("q", [1] * max(1, self.arms))  # an arm's goes up when its labels do
        self.watch = array("q", bytes(8 * 2 * WATCHED))
        # Sums of the regression of errors on earlier ones, in own decisions and in answers; then
        # the share of labels that arrive, the rounded slot of that, and own decisions.
        self.runs = array("q", bytes(8 * 11))
        self.runs[ARRIVING] = WHOLE_LABEL
        self.round = 0  # the rounded slot of the latest index
        self.slope = self.slope_served = 0.0  # of the regressions, as far as they are certain
        self.expected = 0.0  # what the latest labels foretold of the current one
        # An arm's latest deviations, summed; then those of own functions in answers to peers.
        self.moods = array("q", bytes(8 * (self.arms + self.functions)))
        self.mood_slots = array("q", bytes(8 * max(1, self.arms)))
        self.fading = array("d", [REMEMBERED**k for k in range(LONGEST)])
        # Per row and arm: mean and index, and the version or slot that they are of. Those of
        # peers are what they reported, or, if reports are ignored, what own labels say.
        self.parts = 2
        self._has_grown(4)

    def _has_changed(self, row: int, arm: int) -> int:
        if arm < self.functions or self.ignores_reports:
            self.stamps[row * self.arms + arm] = 0
        return 0

    def _replies(self, row: int) -> list[int]:
        replies = []
        for arm in range(self.functions, self.asked):
            at = row * self.arms + arm
            stamp = 0 if self.ignores_reports else self.stamps[at]
            replies.append(stamp)
            for k in range(2 * at, 2 * at + 2):
                replies.append(BITS.unpack(NUMBER.pack(self.values[k]))[0] if stamp else 0)
        return replies

    def _load_replies(self, row: int, replies: list[int]) -> int:
        for arm in range(self.functions, self.asked):
            at = row * self.arms + arm
            k = 3 * (arm - self.functions)
            self.stamps[at] = replies[k]
            self.values[2 * at] = NUMBER.unpack(BITS.pack(replies[k + 1]))[0]
            self.values[2 * at + 1] = NUMBER.unpack(BITS.pack(replies[k + 2]))[0]
        return 0

    # -- inference -----------------------------------------------------------------------------

    def _believe(self, row: int, arm: int) -> int:
        """Set `mean` and `strength` to what all labels of an arm say of its accuracy in a cell.

        `strength` is in labels. Messages go down the tree, each without what its child sent up.
        """
        last = 0
        while row >= 0:
            self.chain[last] = row
            last += 1
            row = self.marks[2 * row * self.stride + PARENT]
        strength = PRIOR_LABELS
        right = PRIOR_LABELS * PRIOR_MEAN
        at = self.info + 2 * arm
        base = self.chain[last - 1] * self.stride + at
        labels = float(self.rows[base]) / WHOLE_LABEL
        correct = float(self.rows[base + 1]) / WHOLE_LABEL
        for k in range(last - 2, -1, -1):
            base = self.chain[k] * self.stride
            spread = self.shrink[self.marks[2 * base + LEVEL]]
            below = float(self.rows[base + at]) / WHOLE_LABEL
            correct_below = float(self.rows[base + at + 1]) / WHOLE_LABEL
            part = 1.0 / (1.0 + spread * below)
            strength = strength + labels - below * part
            right = right + correct - correct_below * part
            part = 1.0 / (1.0 + spread * strength)
            strength = strength * part
            right = right * part
            labels = below
            correct = correct_below
        self.strength = strength + labels
        self.mean = min(1.0, max(0.0, (right + correct) / self.strength))
        return 0

    def _add_label(self, row: int, arm: int, gain: int, is_counted: bool) -> int:
        """Add a label to a cell and, as far as it tells of them, to its parents."""
        worth = WHOLE_LABEL
        right = WHOLE_LABEL * gain // self.unit - whole(self.expected * WHOLE_LABEL)
        at = self.info + 2 * arm
        while row >= 0:
            base = row * self.stride
            self.rows[base + ARRIVALS] += is_counted
            self.rows[base + self.labels + arm] += 1
            self.rows[base + self.right + arm] += gain
            self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
            labels = self.rows[base + at]
            correct = self.rows[base + at + 1]
            self.rows[base + at] = labels + worth
            self.rows[base + at + 1] = correct + right
            row = self.marks[2 * base + PARENT]
            if row >= 0:
                spread = self.shrink[self.marks[2 * base + LEVEL]] / WHOLE_LABEL
                before = 1.0 / (1.0 + spread * labels)
                after = 1.0 / (1.0 + spread * (labels + worth))
                worth = whole((labels + worth) * after) - whole(labels * before)
                right = whole((correct + right) * after) - whole(correct * before)
        self.versions[arm] += 1
        return 0

    def _index(self, row: int, arm: int, under_way: int) -> float:
        """Return the upper index of what `_believe` found; pending labels narrow it."""
        expected = float(under_way) * self.runs[ARRIVING] / WHOLE_LABEL
        return klucb(self.mean, self.strength + expected, self.scale * self.clock.logarithm)

    def _refresh(self, row: int, arm: int) -> int:
        """Bring mean and index of an arm by own labels up to date; return where they are."""
        at = row * self.arms + arm
        if self.stamps[at] != self.versions[arm]:
            under_way = 0
            if self.is_pending:
                under_way = self.rows[row * self.stride + self.underway + arm]
            self._believe(row, arm)
            self.values[2 * at] = self.mean
            self.values[2 * at + 1] = self._index(row, arm, under_way)
            self.stamps[at] = self.versions[arm]
        return 2 * at

    def _start(self, slot: int) -> None:
        """Set what indices depend on besides labels: ln t."""
        self.clock.round_up(slot)
        if self.round != self.clock.rounded:
            self.round = self.clock.rounded
            for arm in range(self.functions if not self.ignores_reports else self.arms):
                self.versions[arm] += 1

    # -- decisions -----------------------------------------------------------------------------

    def _mood(self, arm: int, slot: int) -> float:
        """Return what is left at `slot` of the latest deviations of an arm."""
        age = max(0, slot - self.mood_slots[arm])
        if age >= LONGEST:
            return 0.0
        return self.moods[arm] * self.fading[age] / WHOLE_LABEL

    def _note_error(self, arm: int, error: float, slot: int) -> float:
        """Learn from the deviation of a label from what was believed; return what was expected."""
        mood = self._mood(arm, slot)
        expected = self.slope * mood
        self._regress(0, mood, error)
        self.slope = self._sure_slope(0)
        self.moods[arm] = whole((mood + error) * WHOLE_LABEL)
        self.mood_slots[arm] = max(slot, self.mood_slots[arm])
        return expected

    def _note_served_error(self, function: int, error: float) -> float:
        """Do the same for an answer to a peer; slots of peers are not those of this learner."""
        mood = self.moods[self.arms + function] * REMEMBERED / WHOLE_LABEL
        expected = self.slope_served * mood
        self._regress(4, mood, error)
        self.slope_served = self._sure_slope(4)
        self.moods[self.arms + function] = whole((mood + error) * WHOLE_LABEL)
        return expected

    def _regress(self, first: int, mood: float, error: float) -> None:
        self.runs[first + PRODUCTS] += whole(mood * error * WHOLE_LABEL)
        self.runs[first + SQUARES] += whole(mood * mood * WHOLE_LABEL)
        self.runs[first + RESIDUALS] += whole(error * error * WHOLE_LABEL)
        self.runs[first + RESIDUAL_COUNT] += 1

    def _sure_slope(self, first: int) -> float:
        """Return the lower end of the interval of a slope, at least 0."""
        squares = float(self.runs[first + SQUARES]) / WHOLE_LABEL
        if squares <= 0.0:
            return 0.0
        count = self.runs[first + RESIDUAL_COUNT]
        variance = float(self.runs[first + RESIDUALS]) / WHOLE_LABEL / count
        slope = float(self.runs[first + PRODUCTS]) / WHOLE_LABEL / squares
        margin: float = SURE * sqrt(variance / squares)
        return max(0.0, slope - margin)

    def _measure(self) -> None:
        """Measure the share of labels that arrive: at own decisions, whenever peers ask."""
        if self.runs[ROUND] != self.clock.rounded:
            self.runs[ROUND] = self.clock.rounded
            labels = float(self.runs[RESIDUAL_COUNT] + PATIENCE)
            share = labels / (max(self.runs[RESIDUAL_COUNT], self.decided) + PATIENCE)
            self.runs[ARRIVING] = whole(share * WHOLE_LABEL)
            for arm in range(self.functions if not self.ignores_reports else self.arms):
                self.versions[arm] += 1

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        self._start(slot)
        self._measure()
        self.share = float(((slot & TURN) * GOLDEN + self.offset) & TURN) / TURN
        base = row * self.stride
        chosen = best = -1
        largest = highest = 0.0
        for arm in range(self.asked):
            if arm < self.functions:
                at = self._refresh(row, arm)
                mean = self.values[at]
                value = mean + self.share * (self.values[at + 1] - mean)
            elif self.costs[arm] >= CLOSED:
                continue
            else:
                value = self._promise(row, arm, slot)
                mean = self.mean
            if self.slope > 0.0:
                mood = self.slope * self._mood(arm, slot)
                value = value + mood
                mean = mean + mood
            value = self._worth(base, arm, value)
            mean = self._worth(base, arm, mean)
            if chosen < 0 or value > largest:
                chosen = arm
                largest = value
            if best < 0 or mean > highest:
                best = arm
                highest = mean
        if chosen >= self.functions and not self.ignores_reports:
            self.wanted = chosen - self.functions
            if self.stamps[row * self.arms + chosen] != slot:
                return -1
        return chosen << 2 | (EXPLOIT if best == chosen else EXPLORE)

    def _promise(self, row: int, arm: int, slot: int) -> float:
        """Return the value of a peer, and set `mean`: by its report, or by own labels."""
        at = row * self.arms + arm
        if self.ignores_reports:
            self._refresh(row, arm)
            self.mean = self.values[2 * at]
            return self.mean + self.share * (self.values[2 * at + 1] - self.mean)
        if 2 * self.stamps[at] < slot:  # what it could report by now is not known
            self.mean = 1.0
            return FOREVER
        mean = self.values[2 * at]
        highest = self.values[2 * at + 1]
        under_way = 0
        if self.is_pending:
            under_way = self.rows[row * self.stride + self.underway + arm]
        if under_way > 0 or self.floors_training:
            self._believe(row, arm)
            if under_way > 0:
                highest = min(highest, self._index(row, arm, under_way))
            if self.floors_training:
                highest = min(highest, klucb(self.mean, self.strength, self.clock.logarithm))
            mean = min(mean, highest)
        self.mean = mean
        return mean + self.share * (highest - mean)

    def _help(self, row: int) -> int:
        self._start(self.clock.now)
        chosen = 0
        largest = -1.0
        for function in range(self.functions):
            at = self._refresh(row, function)
            if self.values[at + 1] > largest:
                largest = self.values[at + 1]
                chosen = function
        return chosen

    def _make_report(self, row: int, slot: int) -> int:
        """Tell the largest mean and the largest index of own functions, by settled labels."""
        Table._make_report(self, row, slot)
        self._start(slot)
        self.lowest = self.highest = 0.0
        for function in range(self.functions):
            if self.is_pending and self.rows[row * self.stride + self.underway + function]:
                self._believe(row, function)
                self.lowest = max(self.lowest, self.mean)
                self.highest = max(self.highest, self._index(row, function, 0))
            else:
                at = self._refresh(row, function)
                self.lowest = max(self.lowest, self.values[at])
                self.highest = max(self.highest, self.values[at + 1])
        return 0

    def _receive_report(
        self, row: int, peer: int, arrivals: int, low: float, high: float, slot: int
    ) -> int:
        if not self.ignores_reports:
            at = row * self.arms + self.functions + peer
            self.values[2 * at] = low
            self.values[2 * at + 1] = max(low, high)
            self.stamps[at] = slot
        return 0

    # -- labels --------------------------------------------------------------------------------

    def _learn_own(self, row: int, arm: int, phase: int, gain: int, slot: int, paid: int) -> None:
        is_own = arm < self.functions
        if not self._is_credible(row, arm, gain, slot, False):
            return
        is_counted = self.counted == LABELLED or (self.counted == USED and is_own)
        if not is_own or self._is_first(arm, slot):
            self._add_label(row, arm, gain, is_counted)
        self._spend(row * self.stride, arm, paid)

    def _learn_served(self, row: int, function: int, gain: int, slot: int) -> None:
        if not self._is_first(function, slot):
            return
        if not self._is_credible(row, function, gain, slot, True):
            return
        self._add_label(row, function, gain, self.counted != ARRIVED)

    def _score(self, row: int, function: int, gain: int, slot: int, is_served: bool) -> int:
        if slot > self.forgotten and self._is_first(function, slot):
            self.expected = 0.0
            self._add_label(row, function, gain, False)
        return 0

    def _is_first(self, function: int, slot: int) -> bool:
        """Return whether a label is the first of its slot, if learners share each instance."""
        if self.once and self.labelled[function] == slot:
            return False
        self.labelled[function] = slot
        return True

    def add_labels(self, row: int, arrivals: int, labels: list[tuple[int, int]]) -> None:
        """Add arrivals, and labels of own functions with how many of them were right."""
        self.rows[row * self.stride + ARRIVALS] += arrivals
        self.expected = 0.0
        for function, (count, right) in enumerate(labels):
            for k in range(count):
                self._add_label(row, function, right * (k + 1) // count - right * k // count, False)

    def _combine(self, row: int, other: CellCounters, there: int, by: int) -> None:
        CellCounters._combine(self, row, other, there, by)
        base = row * self.stride
        for function in range(self.functions):
            at = base + self.info + 2 * function
            self._combine_at(at, other, there - base, by)
            self._combine_at(at + 1, other, there - base, by)
            self.versions[function] += 1

    # -- change detection ----------------------------------------------------------------------

    def _is_credible(self, row: int, arm: int, gain: int, slot: int, is_served: bool) -> bool:
        """Update the change detection; on an alarm reset the statistics and return False."""
        if slot <= self.forgotten:
            return False
        if (
            arm >= self.functions
            and not self.ignores_reports
            and self.stamps[row * self.arms + arm]
        ):
            believed = self.values[2 * (row * self.arms + arm)]
        else:
            at = row * self.arms + arm
            if self.stamps[at] == self.versions[arm]:
                believed = self.values[2 * at]
            else:
                self._believe(row, arm)
                believed = self.mean
        correct = float(gain) / self.unit
        # What the latest labels foretold is no sign of a change. Nor are answers that are better
        # for now a sign of the accuracy in the long run: an arm is used more while it is right.
        if is_served:
            self.expected = self._note_served_error(arm, correct - believed)
        else:
            self.expected = self._note_error(arm, correct - believed, slot)
        believed = believed + self.expected
        self.expected = 0.5 * max(0.0, self.expected)
        if not self.alarm or not self._is_fall(believed, correct, WATCHED if is_served else 0):
            return True
        self._forget_all(self.functions if is_served else self.arms)
        self.ignores_reports = self.ignores_reports or not is_served
        self.forgotten = slot
        self._note_alarm(slot)
        return False

    def _is_fall(self, believed: float, gain: float, first: int) -> bool:
        """Test a label for lower accuracies than what is believed; return whether it is an alarm.

        The log-likelihood ratios are divided by the measured dependence of errors.
        """
        believed = min(1.0 - LEAST_BELIEF, max(LEAST_BELIEF, believed))
        watch = self.watch
        weight = float(USUAL_BLOCKS + watch[first + BLOCKS])
        measured = USUAL_DEPENDENCE * USUAL_BLOCKS + float(watch[first + RATIO]) / WHOLE_LABEL
        unit = WHOLE_LABEL / max(1.0, measured / weight)
        large = gain * LOG_LARGE_FALL
        small = gain * LOG_SMALL_FALL
        if gain < 1.0:
            large += (1.0 - gain) * log((1.0 - LARGE_FALL * believed) / (1.0 - believed))
            small += (1.0 - gain) * log((1.0 - SMALL_FALL * believed) / (1.0 - believed))
        watch[first + LARGE] = max(0, watch[first + LARGE] + whole(large * unit))
        watch[first + SMALL] = max(0, watch[first + SMALL] + whole(small * unit))
        if watch[first + COUNT] >= watch[first + UNTIL]:
            watch[first + UNTIL] = 2 * watch[first + COUNT] + 2
            limit = (self.margin + log(float(watch[first + UNTIL]))) * WHOLE_LABEL
            watch[first + LIMIT] = whole(limit)
        watch[first + COUNT] += 1
        if max(watch[first + LARGE], watch[first + SMALL]) > watch[first + LIMIT]:
            return True
        watch[first + ERRORS] += whole((gain - believed) * WHOLE_LABEL)
        watch[first + VARIANCE] += whole(believed * (1.0 - believed) * WHOLE_LABEL)
        watch[first + FILLED] += 1
        if watch[first + FILLED] == BLOCK:
            errors = float(watch[first + ERRORS])
            watch[first + RATIO] += whole(errors * errors / watch[first + VARIANCE])
            watch[first + BLOCKS] += 1
            watch[first + ERRORS] = watch[first + VARIANCE] = watch[first + FILLED] = 0
        return False

    def _forget_all(self, end: int) -> int:
        Table._forget_all(self, end)
        for row in range(self.used):
            base = row * self.stride + self.info
            for k in range(2 * end):
                self.rows[base + k] = 0
        if end == self.arms:
            for k in range(self.used * self.arms):
                self.stamps[k] = 0
        for arm in range(end):
            self.versions[arm] += 1
            self.moods[arm] = 0
        for function in range(self.functions):
            self.moods[self.arms + function] = 0
        if end == self.arms:
            self._restart(0)
        self._restart(WATCHED)
        return 0

    def _restart(self, first: int) -> None:
        """Begin a test for changes anew; the dependence of errors stays known."""
        for k in (LARGE, SMALL, COUNT, UNTIL, ERRORS, VARIANCE, FILLED):
            self.watch[first + k] = 0

    def doubts(self) -> list[int]:
        """Return the state of the change detection: first how many arms and functions it is of."""
        self.runs[DECIDED] = self.decided
        kept = [self.arms, self.functions]
        for part in self._detected():
            kept += [part[k] for k in range(len(part))]
        return kept + Table.doubts(self)

    def _detected(self) -> list[Any]:
        """Return the arrays whose numbers are stored; the last two depend on the arms."""
        return [self.watch, self.runs, self.moods, self.mood_slots]

    def take_doubts(self, doubts: list[int]) -> None:
        """Restore the result of `doubts`; nothing is known of the latest labels of other arms."""
        at = 2
        is_same = doubts[:2] == [self.arms, self.functions]
        for part in self._detected()[: 4 if is_same else 2]:
            for k in range(len(part)):
                part[k] = doubts[at + k]
            at += len(part)
        if not is_same:
            at += doubts[0] + doubts[1] + max(1, doubts[0])
        self.decided = self.runs[DECIDED]
        self.slope, self.slope_served = self._sure_slope(0), self._sure_slope(4)
        Table.take_doubts(self, doubts[at:])
