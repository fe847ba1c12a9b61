# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""The default policy: an upper index of Gaussian beliefs, change detection, errors in runs.

`docs/research/auto.md` has the derivation and what is proved.
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

from covey.kernel.belief import (
    LEAST_BELIEF,
    WHOLE_LABEL,
    BeliefTable,
    fixed,
    unfixed,
    upper,
    whole,
)
from covey.kernel.cells import BEST, BEST_OWN
from covey.kernel.counters import (
    ARRIVED,
    CLOSED,
    EXPLOIT,
    EXPLORE,
    FOREVER,
    LABELLED,
    UNPAID,
    USED,
    CellCounters,
)
from covey.kernel.index import BITS, NUMBER
from covey.kernel.rules import Rule
from covey.kernel.table import Table
from covey.kernel.thresholds import Clock

GOLDEN = 1327217885  # the golden ratio, of 31 bits: its multiples are spread evenly
SILVER = 889516852  # the square root of 2, in the same way
TURN = (1 << 31) - 1

# Change detection. Two sums test against falls to these shares of what is believed.
LARGE_FALL = 0.5
SMALL_FALL = 0.85
LOG_LARGE_FALL, LOG_SMALL_FALL = log(LARGE_FALL), log(SMALL_FALL)
BLOCK = 32  # labels over which the dependence of errors is measured
USUAL_DEPENDENCE = 2.0  # variance of a block to that of independent errors, before it is measured
USUAL_BLOCKS = 8  # what that is worth
# What a detector keeps: for own decisions, for answers to peers, and for each free function.
(LARGE, SMALL, COUNT, UNTIL, LIMIT, ERRORS, VARIANCE, FILLED, RATIO, BLOCKS) = range(10)
WATCHED = 10

# Errors in runs: what the latest labels of an arm, forgotten by the slot, say of the next one.
REMEMBERED = 0.75  # of a deviation, a slot later
LONGEST = 64  # slots after which nothing of it is left
SURE = 3.0  # standard deviations by which they must differ from independent ones
UNSURE = 8.99  # less than its square
PRODUCTS, SQUARES, RESIDUALS, RESIDUAL_COUNT = range(4)  # those of answers to peers follow
ARRIVING, ROUND, DECIDED, LEAD, COMPARED, ONE_CELL = 8, 9, 10, 11, 12, 13
PATIENCE = 100  # labels that are taken as arrived, when the share that arrives is measured


class TreeTable(BeliefTable):
    """Chooses by the mean of an arm plus a share of its width; the share changes by the slot."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        tree = rule.tree
        assert tree is not None
        BeliefTable.__init__(self, clock, rule)
        self.scale = tree.scale
        self.alarm = 1 if tree.alarm > 0 else 0
        self.margin = tree.alarm
        self.offset = rule.offset & TURN
        self.share = 1.0  # of the width, for the current decision
        self.offers = array("d", bytes(16 * max(1, self.arms)))
        self.labelled = array("q", [-1] * max(1, self.functions))  # a function's last slot
        self.watch = array("q", bytes(8 * (2 + self.functions) * WATCHED))
        self.units = array("d", bytes(8 * (2 + self.functions) * WATCHED))  # at a detector's first
        # Sums of the regression of errors on earlier ones, in own decisions and in answers; then
        # the share of labels that arrive, the rounded slot of that, and, when they are stored, own
        # decisions and the comparison with one cell.
        self.runs = array("q", bytes(8 * 14))
        self.runs[ARRIVING] = WHOLE_LABEL
        self.round = 0  # the rounded slot of the latest index
        self.slope = self.slope_served = 0.0  # of the regressions, as far as they are certain
        # An arm's latest deviations, summed; then those of own functions in answers to peers.
        self.moods = array("q", bytes(8 * (self.arms + self.functions)))
        self.mood_slots = array("q", bytes(8 * max(1, self.arms)))
        self.fading = array("d", [REMEMBERED**k for k in range(LONGEST)])
        # Per row and arm: mean and index, and the version or slot that they are of. Those of
        # peers are what they reported, or, if reports are ignored, what own labels say. Peers that
        # see the cell only do not report.
        self.parts = 2
        self._has_grown(4)
        self._set_units()

    def _has_changed(self, row: int, arm: int) -> int:
        if not self._is_reported(arm):
            self.versions[arm] += 1
        return 0

    def _is_reported(self, arm: int) -> bool:
        """Return whether an arm is judged by the reports of a peer, not by own labels."""
        return self.functions <= arm < self.asked and not self.ignores_reports

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

    def _index(self, under_way: int) -> float:
        """Return the upper index of what `_believe` found; pending labels narrow it."""
        bound = self.scale * self.clock.logarithm * self.variance
        if under_way > 0:
            bound = bound / (1.0 + unfixed(under_way * self.runs[ARRIVING]) * self.variance)
        return upper(self.mean, bound)

    def _refresh(self, row: int, first: int, end: int) -> None:
        """Bring means and indices of the arms from `first` to `end`, by own labels, up to date."""
        for arm in range(first, end):
            at = row * self.arms + arm
            if self.stamps[at] != self.versions[arm]:
                BeliefTable._believe(self, row, arm)
                self.values[2 * at] = self.mean
                self.values[2 * at + 1] = self._index(self._under_way(row, arm))
                self.stamps[at] = self.versions[arm]

    def _start(self, slot: int) -> None:
        """Set what indices depend on besides labels: ln t."""
        self.clock.round_up(slot)
        if self.round != self.clock.rounded:
            self.round = self.clock.rounded
            self._outdate()

    def _outdate(self) -> None:
        """Let beliefs and indices by own labels be computed again."""
        for arm in range(self.arms):
            self.versions[arm] += 1

    def _try_tree(self, tries: bool) -> None:
        if tries != self.tries_tree:
            self.tries_tree = tries
            self._outdate()

    def _is_try(self, slot: int) -> bool:
        """Return whether a decision is by the tree in any case, so that better arms are found.

        These are 2 * sqrt(arms / t) of the decisions.
        """
        part = float(((slot & TURN) * SILVER + self.offset) & TURN) / TURN
        return part * part * slot < 4 * self.arms

    # -- decisions -----------------------------------------------------------------------------

    def _mood(self, arm: int, slot: int) -> float:
        """Return what is left at `slot` of the latest deviations of an arm."""
        age = max(0, slot - self.mood_slots[arm])
        if age >= LONGEST:
            return 0.0
        return unfixed(self.moods[arm]) * self.fading[age]

    def _note_error(self, arm: int, error: float, slot: int) -> float:
        """Learn from the deviation of a label from what was believed; return what was expected."""
        mood = self._mood(arm, slot)
        expected = self.slope * mood
        self._regress(0, mood, error)
        self.slope = self._sure_slope(0)
        self.moods[arm] = fixed(mood + error)
        self.mood_slots[arm] = max(slot, self.mood_slots[arm])
        return expected

    def _note_served_error(self, function: int, error: float) -> float:
        """Do the same for an answer to a peer; slots of peers are not those of this learner."""
        mood = unfixed(self.moods[self.arms + function]) * REMEMBERED
        expected = self.slope_served * mood
        self._regress(4, mood, error)
        self.slope_served = self._sure_slope(4)
        self.moods[self.arms + function] = fixed(mood + error)
        return expected

    def _regress(self, first: int, mood: float, error: float) -> None:
        self.runs[first + PRODUCTS] += fixed(mood * error)
        self.runs[first + SQUARES] += fixed(mood * mood)
        self.runs[first + RESIDUALS] += fixed(error * error)
        self.runs[first + RESIDUAL_COUNT] += 1

    def _sure_slope(self, first: int) -> float:
        """Return the lower end of the interval of a slope, at least 0."""
        products = unfixed(self.runs[first + PRODUCTS])
        squares = unfixed(self.runs[first + SQUARES])
        residuals = unfixed(self.runs[first + RESIDUALS])
        count = float(self.runs[first + RESIDUAL_COUNT])
        # Small sums may have squares of 0. Mostly it is clear without quotients that the slope is
        # below its margin.
        if products <= 0.0 or squares <= 0.0:
            return 0.0
        if products * products * count < UNSURE * residuals * squares:
            return 0.0
        margin: float = SURE * sqrt(residuals / count / squares)
        return max(0.0, products / squares - margin)

    def _measure(self) -> None:
        """Measure the share of labels that arrive: at own decisions, whenever peers ask."""
        if self.runs[ROUND] != self.clock.rounded:
            self.runs[ROUND] = self.clock.rounded
            labels = float(self.runs[RESIDUAL_COUNT] + PATIENCE)
            share = labels / (max(self.runs[RESIDUAL_COUNT], self.decided) + PATIENCE)
            self.runs[ARRIVING] = fixed(share)
            self._outdate()

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        self._start(slot)
        self._measure()
        self.share = float(((slot & TURN) * GOLDEN + self.offset) & TURN) / TURN
        self._try_tree(self.uses_one_cell and self._is_try(slot))
        judged = self.asked if self.ignores_reports else self.functions  # by own labels
        self._refresh(row, 0, judged)
        self._refresh(row, self.asked, self.arms)
        for arm in range(self.arms):
            self._consider(row, arm, slot, judged <= arm < self.asked)
        return self._pick(row, slot)

    def _choose_again(self, row: int, slot: int) -> int:
        self._consider(row, self.functions + self.wanted, slot, True)
        return self._pick(row, slot)

    def _consider(self, row: int, arm: int, slot: int, is_reported: bool) -> int:
        """Set `offers` of an arm: what it may be worth, and what it is worth on average."""
        if arm >= self.functions and self.costs[arm] >= CLOSED:
            self.offers[2 * arm] = self.offers[2 * arm + 1] = -FOREVER
            return 0
        at = 2 * (row * self.arms + arm)
        if is_reported:
            value = self._promise(row, arm, slot)
            mean = self.mean
        else:
            mean = self.values[at]
            value = mean + self.share * (self.values[at + 1] - mean)
        if self.slope > 0.0:
            mood = self.slope * self._mood(arm, slot)
            value = value + mood
            mean = mean + mood
        # C can inline a call by the name of the class.
        price = CellCounters._price(self, row * self.stride, arm)
        self.offers[2 * arm] = CellCounters._net(self, arm, value, price)
        self.offers[2 * arm + 1] = CellCounters._net(self, arm, mean, price)
        return 0

    def _pick(self, row: int, slot: int) -> int:
        """Return the choice of the arm with the largest offer; -1 if its report is needed first."""
        chosen = best = 0 if self.functions > 0 else -1
        largest = highest = -FOREVER
        for arm in range(self.arms):
            if self.offers[2 * arm] > largest:
                largest = self.offers[2 * arm]
                chosen = arm
            if self.offers[2 * arm + 1] > highest:
                highest = self.offers[2 * arm + 1]
                best = arm
        if self._is_reported(chosen):
            self.wanted = chosen - self.functions
            if self.stamps[row * self.arms + chosen] != slot:
                return -1
        return chosen << 2 | (EXPLOIT if best == chosen else EXPLORE)

    def _promise(self, row: int, arm: int, slot: int) -> float:
        """Return the value of a peer by its report, and set `mean`."""
        at = row * self.arms + arm
        if 2 * self.stamps[at] < slot:  # what it could report by now is not known
            self.mean = 1.0
            return FOREVER
        self.mean = self.values[2 * at]
        highest = self.values[2 * at + 1]
        if self.floors_training or self.uses_one_cell or self._under_way(row, arm) > 0:
            highest = self._check_promise(row, arm, self.mean, highest)
        return self.mean + self.share * (highest - self.mean)

    def _check_promise(self, row: int, arm: int, mean: float, highest: float) -> float:
        """Return the index of a peer that reported this, by own labels too; set its `mean`."""
        under_way = self._under_way(row, arm)
        BeliefTable._believe(self, row, arm)
        if self.uses_one_cell and not self.tries_tree:
            own = self._index(under_way)
            if own - self.mean < highest - mean:  # own labels say more than the report
                mean = self.mean
                highest = own
        if under_way > 0:
            highest = min(highest, self._index(under_way))
        if self.floors_training:
            highest = min(highest, upper(self.mean, self.clock.logarithm * self.variance))
        self.mean = min(mean, highest)
        return highest

    def _help(self, row: int) -> int:
        self._start(self.clock.now)
        self._try_tree(False)
        self._refresh(row, 0, self.functions)
        chosen = 0
        largest = -1.0
        for function in range(self.functions):
            value = self.values[2 * (row * self.arms + function) + 1]
            if value > largest:
                largest = value
                chosen = function
        return chosen

    def _make_report(self, row: int, slot: int) -> int:
        """Tell the largest mean and the largest index of own functions, by settled labels."""
        Table._make_report(self, row, slot)
        self._start(slot)
        self._try_tree(False)
        self._refresh(row, 0, self.functions)
        self.lowest = self.highest = 0.0
        for function in range(self.functions):
            at = 2 * (row * self.arms + function)
            mean = self.values[at]
            highest = self.values[at + 1]
            if self._under_way(row, function) > 0:
                BeliefTable._believe(self, row, function)
                highest = self._index(0)
            self.lowest = max(self.lowest, mean)
            self.highest = max(self.highest, highest)
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

    def _on_label(self, row: int, arm: int, phase: int, gain: int, slot: int) -> int:
        CellCounters._count_own(self, row, 1)
        TreeTable._learn_own(self, row, arm, phase, gain, slot, UNPAID)
        return 0

    def _learn_own(self, row: int, arm: int, phase: int, gain: int, slot: int, paid: int) -> None:
        is_own = arm < self.functions
        if not TreeTable._is_credible(self, row, arm, gain, slot, False):
            return
        is_counted = self.counted == LABELLED or (self.counted == USED and is_own)
        if not is_own or self._is_first(arm, slot):
            BeliefTable._add_label(self, row, arm, gain, is_counted)
        CellCounters._spend(self, row * self.stride, arm, paid)

    def _learn_served(self, row: int, function: int, gain: int, slot: int) -> None:
        if not self._is_first(function, slot):
            return
        if not TreeTable._is_credible(self, row, function, gain, slot, True):
            return
        BeliefTable._add_label(self, row, function, gain, self.counted != ARRIVED)

    def _score(self, row: int, function: int, gain: int, slot: int, is_served: bool) -> int:
        if slot <= self.forgotten or not self._is_first(function, slot):
            return 0
        if self.alarm and self._is_rise(row, function, gain):
            self._forget_function(function)
            self._note_alarm(slot)
            return 0
        self.expected = 0.0
        BeliefTable._add_label(self, row, function, gain, False)
        return 0

    def _is_rise(self, row: int, function: int, gain: int) -> bool:
        """Test the label of a free function for a higher accuracy: a fall of its errors."""
        self._try_tree(False)
        BeliefTable._believe(self, row, function)
        first = (2 + function) * WATCHED
        return self._is_fall(1.0 - self.mean, 1.0 - float(gain) / self.unit, first)

    def _forget_function(self, function: int) -> None:
        """Reset the labels of a function that is better than it was, in every cell."""
        for row in range(self.used):
            base = row * self.stride
            for k in (self.labels + function, self.right + function):
                self.rows[base + k] = 0
            for k in range(2):
                self.rows[base + self.info + 2 * function + k] = 0
            self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
        self.versions[function] += 1
        self.moods[function] = self.moods[self.arms + function] = 0
        self._restart((2 + function) * WATCHED)

    def _is_first(self, function: int, slot: int) -> bool:
        """Return whether a label is the first of its slot, if learners share each instance."""
        if self.once and self.labelled[function] == slot:
            return False
        self.labelled[function] = slot
        return True

    # -- change detection ----------------------------------------------------------------------

    def _is_credible(self, row: int, arm: int, gain: int, slot: int, is_served: bool) -> bool:
        """Update the change detection; on an alarm reset the statistics and return False."""
        if slot <= self.forgotten:
            return False
        self._try_tree(False)
        if self._is_reported(arm) and self.stamps[row * self.arms + arm]:
            believed = self.values[2 * (row * self.arms + arm)]
        else:
            at = row * self.arms + arm
            if self.stamps[at] == self.versions[arm]:
                believed = self.values[2 * at]
            else:
                BeliefTable._believe(self, row, arm)
                believed = self.mean
        correct = float(gain) / self.unit
        if self.is_layered and self._compare(row, arm, correct):
            self._outdate()
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
        unit = self.units[first]
        large = gain * LOG_LARGE_FALL
        small = gain * LOG_SMALL_FALL
        if gain < 1.0:
            large += (1.0 - gain) * log((1.0 - LARGE_FALL * believed) / (1.0 - believed))
            small += (1.0 - gain) * log((1.0 - SMALL_FALL * believed) / (1.0 - believed))
        self.watch[first + LARGE] = max(0, self.watch[first + LARGE] + whole(large * unit))
        self.watch[first + SMALL] = max(0, self.watch[first + SMALL] + whole(small * unit))
        if self.watch[first + COUNT] >= self.watch[first + UNTIL]:
            self.watch[first + UNTIL] = 2 * self.watch[first + COUNT] + 2
            self.watch[first + LIMIT] = fixed(self.margin + log(float(self.watch[first + UNTIL])))
        self.watch[first + COUNT] += 1
        if max(self.watch[first + LARGE], self.watch[first + SMALL]) > self.watch[first + LIMIT]:
            return True
        self.watch[first + ERRORS] += fixed(gain - believed)
        self.watch[first + VARIANCE] += fixed(believed * (1.0 - believed))
        self.watch[first + FILLED] += 1
        if self.watch[first + FILLED] == BLOCK:
            errors = float(self.watch[first + ERRORS])
            self.watch[first + RATIO] += whole(errors * errors / self.watch[first + VARIANCE])
            self.watch[first + BLOCKS] += 1
            for k in (ERRORS, VARIANCE, FILLED):
                self.watch[first + k] = 0
            self._set_units()
        return False

    def _set_units(self) -> None:
        """Set the fixed-point units of log-likelihood ratios, divided by the dependence."""
        for first in range(0, (2 + self.functions) * WATCHED, WATCHED):
            weight = float(USUAL_BLOCKS + self.watch[first + BLOCKS])
            measured = USUAL_DEPENDENCE * USUAL_BLOCKS + unfixed(self.watch[first + RATIO])
            self.units[first] = WHOLE_LABEL / max(1.0, measured / weight)

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
            self.lead = 0
            self.uses_one_cell = False
        self._restart(WATCHED)
        for function in range(self.functions):
            self._restart((2 + function) * WATCHED)
        return 0

    def _restart(self, first: int) -> None:
        """Begin a test for changes anew; the dependence of errors stays known."""
        for k in (LARGE, SMALL, COUNT, UNTIL, ERRORS, VARIANCE, FILLED):
            self.watch[first + k] = 0

    def doubts(self) -> list[int]:
        """Return the state of the change detection: first how many arms and functions it is of.

        Where the tests of free functions follow, the number of arms is written below 0.
        """
        self.runs[DECIDED] = self.decided
        self.runs[LEAD], self.runs[COMPARED] = self.lead, self.compared
        self.runs[ONE_CELL] = self.uses_one_cell
        rises = [self.watch[k] for k in range(2 * WATCHED, len(self.watch))]
        kept = [-1 - self.arms if any(rises) else self.arms, self.functions]
        for part in self._detected():
            kept += [part[k] for k in range(len(part))]
        return kept + (rises if any(rises) else []) + Table.doubts(self)

    def _detected(self) -> list[Any]:
        """Return the arrays whose numbers are always stored; the last two depend on the arms."""
        return [memoryview(self.watch)[: 2 * WATCHED], self.runs, self.moods, self.mood_slots]

    def take_doubts(self, doubts: list[int]) -> None:
        """Restore the result of `doubts`; nothing is known of the latest labels of other arms."""
        at = 2
        has_rises = doubts[0] < 0
        arms, functions = (-1 - doubts[0] if has_rises else doubts[0]), doubts[1]
        is_same = [arms, functions] == [self.arms, self.functions]
        for part in self._detected()[: 4 if is_same else 2]:
            for k in range(len(part)):
                part[k] = doubts[at + k]
            at += len(part)
        if not is_same:
            at += arms + functions + max(1, arms)
        if has_rises:
            for k in range(functions * WATCHED if is_same else 0):
                self.watch[2 * WATCHED + k] = doubts[at + k]
            at += functions * WATCHED
        self.decided = self.runs[DECIDED]
        self.lead, self.compared = self.runs[LEAD], self.runs[COMPARED]
        self.uses_one_cell = self.runs[ONE_CELL] > 0
        self.slope, self.slope_served = self._sure_slope(0), self._sure_slope(4)
        self._set_units()
        Table.take_doubts(self, doubts[at:])
