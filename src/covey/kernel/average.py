# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""The default policy: an average of beliefs about each arm, an upper index, a test for changes.

`docs/research/auto.md` has the rule with all constants, what is proved of it and what is measured.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

from covey.kernel.beliefs import MOST_COORDINATES, CellBeliefs, CoordinateTrees
from covey.kernel.cells import block
from covey.kernel.counters import ArmCounters
from covey.kernel.layout import Layout
from covey.kernel.linear import MOST_INPUTS, FeatureMap, LinearBelief, calibrate
from covey.kernel.rules import Rule, middle_of
from covey.kernel.table import CellPolicy, Clock, Said

if cython.compiled:
    from cython.cimports.covey.kernel.cells import items_of
    from cython.cimports.libc.math import exp, log, rint, sqrt
else:
    from math import exp, log, sqrt

    from covey.kernel.cells import ARRIVALS, WIDE_SIDE, doubles, integers
    from covey.kernel.counters import CLOSED, EXPLOIT, EXPLORE, FOREVER, OF_PEERS, SERVE, UNPAID
    from covey.kernel.index import upper

    rint = round
    UNIT = 1 << 20  # log-likelihoods and residuals are fixed-point numbers
    GOLDEN = 1327217885  # the golden ratio, of 31 bits: its multiples are spread evenly
    TURN = (1 << 31) - 1
    LEAST_BELIEF = 0.02  # labels are predicted with probabilities at least this far from 0 and 1
    LEAST_MEAN = 0.001
    LEAST_VARIANCE = 4e-9
    # Differences that no rounding makes up for: of values, and of shares times their slopes.
    APART = 1e-9
    NEAR = 1e-6
    UNTOLD = -1e301  # what a peer is worth on average that has not reported
    CALIBRATED = 256  # labels after which the features of very many contexts are made
    MOST_BEHIND = 3 << 20  # log-likelihood by which one is behind the best after an alarm
    # What is kept of the record of a function: two decayed sums of residuals, the slot that they
    # are of, and the sums of a regression on them.
    FAST, SLOW, LATEST, FAST_FAST, FAST_SLOW, SLOW_SLOW, FAST_ERROR, SLOW_ERROR = range(8)
    RECORDED = 8
    AGES = 512  # slots after which nothing of a residual is left
    RECORD_PRIOR = 25.0  # precision of the two slopes
    FALL = 0.75  # of what is believed, after a change that is looked for
    BLOCK = 32  # labels over which the dependence of errors is measured
    USUAL = 50.0  # sum of variances for which the errors count as independent from the start
    # What the test of changes keeps.
    SUM, COUNT, SQUARES, VARIANCES, NEW_SQUARES, NEW_VARIANCES, ERRORS, VARIANCE, FILLED = range(9)
    WATCHED = 9

PACKED = 6  # bytes in an integer that JSON can have
MOST_NOTES = 64  # labels after which a linear belief is stored again
LOG_FALL = log(FALL)
# Powers of the two decays of a record, by slots.
DECAY_BLOCK = block(8 * 2 * AGES)
DECAYS = doubles(DECAY_BLOCK, 0, 2 * AGES)
for _k in range(AGES):
    DECAYS[_k], DECAYS[AGES + _k] = 0.75**_k, 0.97**_k


def fixed(value: float) -> int:
    """Return a number as a fixed-point number, `UNIT` each."""
    if cython.compiled:
        number: int = cython.cast(cython.longlong, rint(value * UNIT))
        return number
    return int(rint(value * UNIT))


def clipped(mean: float, least: float) -> float:
    """Return a probability that is at least so far from 0 and 1."""
    return min(1.0 - least, max(least, mean))


def share_at(slot: int, offset: int) -> float:
    """Return the share of a width in the decision of a learner at a slot."""
    return float(((slot & TURN) * GOLDEN + offset) & TURN) / TURN


def doubt_of(variance: float) -> float:
    """Return half a standard deviation, by which means are taken as lower.

    So an uncertain peer must look better to be paid, and a belief that was a bit too high is no
    sign of a change.
    """
    deviation: float = sqrt(variance)
    return 0.25 * deviation


def likelihood(mean: float, correct: float) -> int:
    """Return the logarithm of the likelihood of a label that was predicted."""
    mean = clipped(mean, LEAST_BELIEF)
    if correct == 1.0:
        return fixed(log(mean))
    if correct == 0.0:
        return fixed(log(1.0 - mean))
    return fixed(correct * log(mean) + (1.0 - correct) * log(1.0 - mean))


def hold_back(logs: memoryview[int], first: int, count: int) -> None:
    """Let the best of some log-likelihoods be 0, and no other more than a bit behind."""
    best = logs[first]
    for k in range(1, count):
        best = max(best, logs[first + k])
    for k in range(count):
        logs[first + k] = max(logs[first + k] - best, -MOST_BEHIND)


def _packed(place: list[int]) -> list[int]:
    """Return bytes as fewer integers."""
    parts = [bytes(place[k : k + PACKED]) for k in range(0, len(place), PACKED)]
    return [int.from_bytes(part, "little") for part in parts]


def _unpacked(numbers: list[int], count: int) -> list[int]:
    """Return the `count` bytes of `_packed`."""
    place = b"".join([number.to_bytes(PACKED, "little") for number in numbers])
    return list(place[:count])


class Record:
    """How the latest labels of a function differed from what was believed, and what follows.

    A regression on two decayed sums of residuals says what is to be expected of the next one.
    """

    def __init__(self, block: bytearray, first: int, functions: int) -> None:
        self.block = block
        self.numbers = integers(block, first, RECORDED * functions)
        self.looked, self.slot = -1, 0  # of which function and slot the following is
        self.fast = self.slow = 0.0  # its sums at the slot, scaled
        self.shift = self.variance = 0.0  # what is expected, and its variance, a label's being 1

    def look(self, function: int, slot: int) -> int:
        """Set what the record foretells of a function at `slot`."""
        if function == self.looked and slot == self.slot:
            return 0
        self.looked, self.slot = function, slot
        numbers, base = self.numbers, RECORDED * function
        age = max(0, slot - numbers[base + LATEST])
        self.fast = self.slow = self.shift = self.variance = 0.0
        if age >= AGES or (numbers[base + FAST] == 0 and numbers[base + SLOW] == 0):
            return 0
        self.fast = float(numbers[base + FAST]) / UNIT * DECAYS[age]
        self.slow = float(numbers[base + SLOW]) / UNIT * DECAYS[AGES + age] * 0.12
        # A = prior + 4 S, of which the inverse is taken; labels have the variance 1/4.
        first = RECORD_PRIOR + 4.0 * numbers[base + FAST_FAST] / UNIT
        between = 4.0 * numbers[base + FAST_SLOW] / UNIT
        second = RECORD_PRIOR + 4.0 * numbers[base + SLOW_SLOW] / UNIT
        whole = first * second - between * between
        fast = (second * self.fast - between * self.slow) / whole
        slow = (first * self.slow - between * self.fast) / whole
        self.shift = 4.0 * (fast * numbers[base + FAST_ERROR] + slow * numbers[base + SLOW_ERROR])
        self.shift = self.shift / UNIT
        self.variance = 4.0 * (fast * self.fast + slow * self.slow)
        return 0

    def learn(self, function: int, error: float, slot: int, is_prompt: bool) -> int:
        """Take the residual of a label; `look` was at its slot. A late one teaches no slopes."""
        numbers, base = self.numbers, RECORDED * function
        self.looked = -1
        if is_prompt:
            numbers[base + FAST_FAST] += fixed(self.fast * self.fast)
            numbers[base + FAST_SLOW] += fixed(self.fast * self.slow)
            numbers[base + SLOW_SLOW] += fixed(self.slow * self.slow)
            numbers[base + FAST_ERROR] += fixed(self.fast * error)
            numbers[base + SLOW_ERROR] += fixed(self.slow * error)
        age = slot - numbers[base + LATEST]
        for k in range(2):
            kept, added = float(numbers[base + FAST + k]), error * UNIT
            if age > 0:
                kept = kept * DECAYS[k * AGES + age] if age < AGES else 0.0
            elif age < 0:
                added = added * DECAYS[k * AGES - age] if -age < AGES else 0.0
            numbers[base + FAST + k] = fixed((kept + added) / UNIT)
        numbers[base + LATEST] = max(slot, numbers[base + LATEST])
        return 0

    def forget(self, function: int) -> None:
        """Begin anew with a function."""
        self.looked = -1
        for k in range(RECORDED):
            self.numbers[RECORDED * function + k] = 0


class Average:
    """What all beliefs together say of an arm, each weighed by how well it predicted labels.

    `judge` sets `mean` and `variance`, the latter in units of that of a label, which is a quarter,
    and `plain`, the mean without what the record of the arm says.
    """

    def __init__(self, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        self.counters, self.cells = counters, counters.cells
        self.stride, self.unit = layout.stride, rule.unit
        self.functions, self.asked = layout.functions, layout.asked
        self.tree = CellBeliefs(rule, layout, counters)
        # Arms that are judged here: own functions, and peers that see the cell only.
        self.judged = layout.functions + layout.arms - layout.asked
        self.trees = 3 if len(rule.levels) > 1 else 1  # beliefs of cells: one cell first
        self.has_coordinates = self.cells.is_wide and rule.dimension <= MOST_COORDINATES
        size = rule.dimension if self.has_coordinates else 0
        self.coordinates = CoordinateTrees(size, self.judged, rule.unit)
        self.kinds = self.trees + self.cells.is_wide + self.has_coordinates
        # In very many dimensions the features are made of the contexts of the first labels: these,
        # each a place, a function and a gain.
        self.early: list[list[int]] = []
        self.is_early = rule.dimension > MOST_INPUTS
        is_linear = self.cells.is_wide and not self.is_early
        self.features = FeatureMap(rule.dimension if is_linear else 0)
        self.linear = LinearBelief(self.features, self.judged if is_linear else 1, rule.unit)
        # Labels since the belief about a function was last stored, if that is noted at all; and
        # whether it is to be stored again.
        self.is_noting = False
        self.notes: list[list[int]] = [[] for _ in range(self.judged)]
        self.dues, self.noted = [True] * self.judged, [0] * self.judged
        self.peers = layout.asked - layout.functions
        self._divide_block(layout.arms)
        self.mean = self.variance = self.plain = 0.0
        self.place, self.version = 0, 0  # of the context, and of the weights
        self.uses_told = not rule.floors_training
        self.reweigh()

    def _divide_block(self, arms: int) -> None:
        """Make the block of all small arrays."""
        kinds = self.kinds
        self.counted = kinds + 2  # log-likelihoods: of beliefs, without the record, and with it
        self.width = 4 + 2 * kinds
        lengths = [self.counted, self.counted * self.peers, self.counted, RECORDED * self.judged]
        self.stored = sum(lengths)
        lengths += [self.counted, kinds, 4 * arms, self.width * arms, self.functions, self.peers]
        firsts = [sum(lengths[:k]) for k in range(len(lengths))]
        self.block = block(8 * sum(lengths))
        self.logs = integers(self.block, firsts[0], lengths[0])
        self.told = integers(self.block, firsts[1], lengths[1])  # log-likelihoods of peers
        self.weighed = integers(self.block, firsts[2], lengths[2])  # of which the weights are
        self.record = Record(self.block, firsts[3], self.judged)
        self.sums = integers(self.block, firsts[4], lengths[4])  # of all peers
        self.weights = doubles(self.block, firsts[5], lengths[5])
        # Per arm: the place and the labels that beliefs are of, the slot and the weights that their
        # average is of; its mean and variance, the mean without the record, and with it alone; then
        # the means and the variances of the beliefs.
        self.stamps = integers(self.block, firsts[6], lengths[6])
        self.values = doubles(self.block, firsts[7], lengths[7])
        self.labelled = integers(self.block, firsts[8], self.functions)  # a function's last slot
        self.heard = integers(self.block, firsts[9], lengths[9])  # version of what a peer told
        for function in range(self.functions):
            self.labelled[function] = -1
        self.belief_in_record = 0.5
        self.is_reporting = False  # by settled labels only

    def aim(self, row: int) -> int:
        """Take the middle of a cell as the current context; in many dimensions it is that."""
        if self.cells.is_wide:
            if not self.is_early:
                self.features.take(self.cells.context, 0)
                self.place = self.features.version
            if self.has_coordinates:
                self.coordinates.take(self.cells.context, 0)
        else:
            self.place = row + 1
        return 0

    def judge(self, row: int, arm: int, slot: int) -> int:
        """Set mean and variance of an arm's accuracy in a cell, after `aim`."""
        at, values = 4 * arm, self.width * arm
        is_same = self.stamps[at] == self.place
        if not is_same or self.stamps[at + 1] != self.counters.learnt[arm]:
            self.stamps[at], self.stamps[at + 1] = self.place, self.counters.learnt[arm]
            self.stamps[at + 3] = 0
            self._believe(row, arm)
        if self.stamps[at + 2] != slot or self.stamps[at + 3] != self.version:
            self.stamps[at + 2], self.stamps[at + 3] = slot, self.version
            self._average(arm, slot)
        self.mean, self.variance = self.values[values], self.values[values + 1]
        self.plain = self.values[values + 2]
        return 0

    def _believe(self, row: int, arm: int) -> int:
        """Take the means and variances of all beliefs."""
        values = self.width * arm + 4
        self.tree.believe(row, arm)
        for k in range(self.trees):
            self.values[values + k] = clipped(self.tree.means[k], LEAST_MEAN)
            self.values[values + self.kinds + k] = self.tree.variances[k]
        kinds, function = self.kinds, self.seat(arm)
        if self.is_early:
            self.values[values + 1] = self.values[values]
            self.values[values + kinds + 1] = self.values[values + kinds]
        elif self.cells.is_wide:
            self.values[values + 1] = clipped(self.linear.mean(function), LEAST_MEAN)
            self.values[values + kinds + 1] = 4.0 * self.linear.variance(function)
        if self.has_coordinates:
            self.coordinates.believe(function)
            self.values[values + 2] = clipped(self.coordinates.mean, LEAST_MEAN)
            self.values[values + kinds + 2] = self.coordinates.variance
        return 0

    def _average(self, arm: int, slot: int) -> int:
        """Average the beliefs, and add what the record says at a slot."""
        values, kinds = self.width * arm, self.kinds
        first = second = 0.0
        for k in range(values + 4, values + 4 + kinds):
            mean, weight = self.values[k], self.weights[k - values - 4]
            first += weight * mean
            second += weight * (self.values[k + kinds] + 4.0 * mean * mean)
        variance = max(LEAST_VARIANCE, second - 4.0 * first * first)
        self.record.look(self.seat(arm), slot)
        shifted = clipped(first + self.record.shift, LEAST_MEAN)
        part, by = self.belief_in_record, shifted - first
        self.values[values] = first + part * by
        variance += part * self.record.variance + 4.0 * part * (1.0 - part) * by * by
        self.values[values + 1] = variance
        self.values[values + 2], self.values[values + 3] = first, shifted
        return 0

    def narrowed(self, row: int, arm: int) -> float:
        """Return the factor on the variance of an arm by its pending labels."""
        if self.counters.expected_labels == 0 or self.is_reporting:
            return 1.0
        base = self.tree.root(row)
        labels = float(self.cells.rows[base + self.counters.labels + arm])
        expected = float(self.counters.expected(base, arm))
        return (1.0 + labels) / (1.0 + expected) if expected > labels else 1.0

    def narrow(self, row: int, arm: int, mean: float, highest: float) -> float:
        """Return the index of a peer when its pending labels narrow it."""
        narrowed = self.narrowed(row, arm)
        return mean + (highest - mean) * sqrt(narrowed) if narrowed < 1.0 else highest

    def hear_other(self, peer: int, other: Average) -> int:
        """Take the log-likelihoods of a peer in this process, if they have changed."""
        if self.heard[peer] != other.version:
            self.heard[peer] = other.version
            self.hear(peer, other.logs, 0)
        return 0

    def is_first(self, function: int, slot: int) -> bool:
        """Return whether a label is the first of its slot, if learners share each instance."""
        if self.counters.once and self.labelled[function] == slot:
            return False
        self.labelled[function] = slot
        return True

    def seat(self, arm: int) -> int:
        """Return the place of an arm among those that are judged here."""
        return arm if arm < self.functions else arm - self.asked + self.functions

    def learn(self, row: int, arm: int, gain: int, slot: int, is_prompt: bool) -> int:
        """Weigh the beliefs by how they predicted a label, and let each learn from it.

        The first label of a slot weighs them: another one may be of the same instance, through
        another learner, and a belief that has seen the first knows it.
        """
        self.aim(row)
        self.judge(row, arm, slot)
        function, values = self.seat(arm), self.width * arm
        correct = float(gain) / self.unit
        is_new = self.record.numbers[RECORDED * function + LATEST] != slot
        is_prompt = is_prompt and is_new
        for k in range(self.kinds if is_new else 0):
            self.logs[k] += likelihood(self.values[values + 4 + k], correct)
        if is_prompt:
            self.logs[self.kinds] += likelihood(self.values[values + 2], correct)
            self.logs[self.kinds + 1] += likelihood(self.values[values + 3], correct)
        self.record.look(function, slot)
        self.record.learn(function, correct - self.plain, slot, is_prompt)
        if self.is_early:
            self._keep(function, gain)
        elif self.cells.is_wide:
            self.linear.learn(function, gain, 0.25 * self.values[values + 5 + self.kinds])
            if self.has_coordinates:
                self.coordinates.learn(function, gain)
            if self.is_noting:
                self.notes[function] += [gain, slot, *_packed(self._place_now())]
        self.tree.add(row, arm, gain)
        self.reweigh()
        return 0

    def _keep(self, function: int, gain: int) -> int:
        """Keep a label until there are enough to make the features, then learn from all."""
        self.early.append([*self._place_now(), function, gain])
        if len(self.early) < CALIBRATED:
            return 0
        self._make()
        for *place, early, gained in self.early:
            self._learn_at(place, early, gained)
        return 0

    def _learn_at(self, place: list[int], function: int, gain: int) -> int:
        """Teach the beliefs in many contexts a label of another place than the current one."""
        self.features.read(middle_of(place))
        self.linear.learn(function, gain, self.linear.variance(function))
        if self.has_coordinates:
            self.coordinates.take(self.features.context, 0)
            self.coordinates.learn(function, gain)
        return 0

    def _place_now(self) -> list[int]:
        return [int(self.cells.context[k] * WIDE_SIDE) for k in range(self.cells.dimension)]

    def _make(self) -> int:
        """Make the features of the contexts of early labels."""
        calibration = calibrate([middle_of(label[:-2]) for label in self.early])
        self.is_early = False
        self.features = FeatureMap(self.cells.dimension, calibration=calibration)
        self.linear = LinearBelief(self.features, self.judged, self.unit)
        return 0

    def hear(self, peer: int, logs: memoryview[int], first: int) -> None:
        """Take the log-likelihoods of a peer, which begin at `first`: they count from now on."""
        sums, told, at = self.sums, self.told, self.counted * peer
        for k in range(self.counted if self.uses_told else 0):
            sums[k] += logs[first + k] - told[at + k]
            told[at + k] = logs[first + k]

    def reweigh(self) -> None:
        """Compute the weights of beliefs, by own labels and those that peers told of."""
        logs, sums, weights, last = self.logs, self.sums, self.weights, self.kinds
        for k in range(self.counted):
            self.weighed[k] = sums[k]
        best = logs[0] + sums[0]
        for k in range(1, last):
            best = max(best, logs[k] + sums[k])
        total = 0.0
        for k in range(last):
            behind = logs[k] + sums[k] - best
            weights[k] = 1.0 if behind == 0 else exp(float(behind) / UNIT)
            total += weights[k]
        for k in range(last):
            weights[k] = weights[k] / total
        behind = logs[last] + sums[last] - logs[last + 1] - sums[last + 1]
        self.belief_in_record = 1.0 / (1.0 + exp(min(700.0, float(behind) / UNIT)))
        self.version += 1

    def hear_anew(self) -> None:
        """Take what peers tell next, although they have told it."""
        for peer in range(self.peers):
            self.heard[peer] = -1

    def _sum_told(self) -> None:
        """Add up what peers told."""
        self.hear_anew()
        for k in range(self.counted):
            self.sums[k] = 0
            for peer in range(self.peers):
                self.sums[k] += self.told[self.counted * peer + k]

    def forget(self, arms: int) -> None:
        """Forget all labels of the arms before `arms`; beliefs stay weighed, but less."""
        self.tree.forget(0, arms)
        if self.is_early:
            self.early = []
        for function in range(self.judged):
            self.record.forget(function)
            if self.cells.is_wide and not self.is_early:
                self.linear.forget(function)
                if self.has_coordinates:
                    self.coordinates.forget(function)
                self.dues[function] = True
        hold_back(self.logs, 0, self.kinds)
        hold_back(self.logs, self.kinds, 2)
        for peer in range(self.peers):
            hold_back(self.told, self.counted * peer, self.kinds)
            hold_back(self.told, self.counted * peer + self.kinds, 2)
        self._sum_told()
        self.reweigh()

    def state(self) -> list[int]:
        """Return all but the linear belief: first how many numbers follow."""
        kept = integers(self.block, 0, self.stored)
        early = [number for label in self.early for number in label]
        return [self.stored + len(early), *[kept[k] for k in range(self.stored)], *early]

    def belief(self, function: int) -> list[int]:
        """Return what is believed of a function: how many numbers follow, and no labels."""
        numbers = memoryview(self.linear.state(function)).cast("q").tolist()
        if self.has_coordinates:
            numbers += self.coordinates.state(function)
        return [len(numbers), *numbers, 0]

    def _restore(self, function: int, numbers: list[int]) -> None:
        """Continue from the numbers of `belief`."""
        size = self.linear.numbers_kept()
        self.linear.restore(function, array("q", numbers[:size]).tobytes())
        if self.has_coordinates:
            self.coordinates.restore(function, numbers[size:])

    def linears(self) -> int:
        """Return about how many functions there is a linear belief."""
        return self.judged if self.cells.is_wide and not self.is_early else 0

    def news(self) -> list[tuple[int, list[int], list[int]]]:
        """Return the beliefs that are to be stored, and labels that are new since they were."""
        self.is_noting = True
        news, width = [], self._note_width()
        for function in range(self.linears()):
            notes, belief = self.notes[function], []
            if self.dues[function] or len(notes) >= MOST_NOTES * width:
                self.dues[function], self.notes[function], notes = False, [], []
                belief = self.belief(function)
            if belief or len(notes) > self.noted[function]:
                news.append((function, belief, [0, len(notes) // width, *notes]))
            self.noted[function] = len(notes)
        return news

    def _note_width(self) -> int:
        """Return how many numbers a note has: gain, slot and the place."""
        return 2 + (self.cells.dimension + PACKED - 1) // PACKED

    def take_belief(self, function: int, belief: list[int]) -> None:
        """Restore a result of `belief`, and learn from the labels that have come since."""
        count, width = belief[0], self._note_width()
        self._restore(function, belief[1 : 1 + count])
        for k in range(belief[1 + count]):
            first = 2 + count + k * width
            place = _unpacked(belief[first + 2 : first + width], self.cells.dimension)
            self._learn_at(place, function, belief[first])
        self.counters.learnt[function] += 1

    def adopt(self, old: Average, arms: list[int]) -> None:
        """Continue from what another table has of these arms; -1: it has none."""
        for k in range(self.counted):
            self.logs[k] = old.logs[k]
        self.is_early, self.features = old.is_early, old.features
        if self.cells.is_wide and not self.is_early:
            self.linear = LinearBelief(self.features, self.judged, self.unit)
        self.record.looked = -1
        seats = {}  # there -> here
        for arm in range(len(arms)):
            there = arms[arm]
            if there < 0:
                continue
            if self.functions <= arm < self.asked and old.functions <= there < old.asked:
                for k in range(self.counted):
                    told = old.told[self.counted * (there - old.functions) + k]
                    self.told[self.counted * (arm - self.functions) + k] = told
                continue
            here, before = self.seat(arm), old.seat(there)
            seats[before] = here
            for k in range(RECORDED):
                self.record.numbers[RECORDED * here + k] = old.record.numbers[RECORDED * before + k]
            if self.cells.is_wide and not self.is_early:
                self._restore(here, old.belief(before)[1:-1])
        self.early = [
            [*place, seats.get(function, -1), gain]
            for *place, function, gain in old.early
            if function in seats or not self.is_early
        ]
        self._sum_told()
        self.reweigh()

    def restore(self, state: list[int]) -> list[int]:
        """Restore the result of `state`, and return what follows it."""
        kept, end = integers(self.block, 0, self.stored), 1 + state[0]
        for k in range(self.stored):
            kept[k] = state[1 + k]
        for k in range(self.counted):
            self.sums[k] = self.weighed[k]
        self.reweigh()
        self._sum_told()
        self.record.looked = -1
        width = self.cells.dimension + 2
        self.early = [state[k : k + width] for k in range(1 + self.stored, end, width)]
        if len(self.early) == CALIBRATED:
            self._make()
        return state[end:]


class FallTest:
    """Tests labels for lower accuracies than what was believed: a CUSUM.

    The log-likelihood ratios are divided by the measured dependence of errors.
    """

    def __init__(self, margin: float) -> None:
        self.margin = margin
        self.block = block(8 * WATCHED)
        self.watch = integers(self.block, 0, WATCHED)

    def is_change(self, believed: float, correct: float) -> bool:
        """Test a label; return whether it is an alarm."""
        watch = self.watch
        believed = clipped(believed, LEAST_BELIEF)
        step = correct * LOG_FALL
        if correct < 1.0:
            step += (1.0 - correct) * log((1.0 - FALL * believed) / (1.0 - believed))
        if watch[SUM] == 0:  # blocks that led to no alarm
            watch[SQUARES] += watch[NEW_SQUARES]
            watch[VARIANCES] += watch[NEW_VARIANCES]
            watch[NEW_SQUARES] = watch[NEW_VARIANCES] = 0
        squares, variances = float(watch[SQUARES]), float(watch[VARIANCES])
        dependence = (USUAL * UNIT + squares) / (USUAL * UNIT + variances)
        watch[SUM] = max(0, watch[SUM] + fixed(step / max(1.0, dependence)))
        watch[COUNT] += 1
        watch[ERRORS] += fixed(correct - believed)
        watch[VARIANCE] += fixed(believed * (1.0 - believed))
        watch[FILLED] += 1
        if watch[FILLED] == BLOCK:
            errors = float(watch[ERRORS]) / UNIT
            watch[NEW_SQUARES] += fixed(errors * errors)
            watch[NEW_VARIANCES] += watch[VARIANCE]
            watch[ERRORS] = watch[VARIANCE] = watch[FILLED] = 0
        if watch[SUM] < self.margin * UNIT:
            return False
        limit: float = (self.margin + log(watch[COUNT] + 1.0)) * UNIT
        return watch[SUM] > limit

    def restart(self) -> None:
        """Begin anew; the dependence of errors stays known."""
        for k in (SUM, COUNT, NEW_SQUARES, NEW_VARIANCES, ERRORS, VARIANCE, FILLED):
            self.watch[k] = 0


class Replies:
    """What a learner replies to all that ask it in a slot: which function depends on their share.

    `bounds` has four numbers of each function: see `AutoPolicy`.
    """

    def __init__(self, memory: bytearray, first: int, functions: int) -> None:
        self.block, self.functions = memory, functions
        self.bounds = doubles(memory, first, 8 * functions)
        # Where the first function is, and those that low shares take and high ones.
        self.slot = self.first = self.low = self.high = 0
        self.low_end, self.high_begin = -1.0, 2.0

    def pick(self, first: int, share: float) -> int:
        """Return where the function is that a share takes, in `bounds` from `first` on."""
        bounds, end = self.bounds, first + 4 * self.functions
        chosen, largest = first, -1.0
        for at in range(first, end, 4):
            mean = bounds[at]
            value = mean + share * (bounds[at + 1] - mean)
            if value > largest:
                largest, chosen = value, at
        return chosen

    def divide(self, first: int, slot: int) -> int:
        """Find the shares by which one function is taken, as no rounding can say otherwise.

        What a function may be worth is linear in the share, so that is so on both sides of where
        the best ones at 0 and 1 are worth the same, if a third one is worth less there.
        """
        bounds, low, high, end = self.bounds, first, first, first + 4 * self.functions
        for at in range(first, end, 4):
            if bounds[at] > bounds[low]:
                low = at
            if bounds[at + 1] > bounds[high + 1]:
                high = at
        self.slot, self.first, self.low, self.high = slot, first, low, high
        behind = bounds[low] - bounds[high]
        gained = behind + bounds[high + 1] - bounds[low + 1]
        is_clear = low == high or gained > NEAR
        turn = behind / gained if gained > NEAR else 1.0
        most = bounds[low] + turn * (bounds[low + 1] - bounds[low]) - APART
        for at in range(first, end, 4):
            if at not in (low, high):
                mean, highest = bounds[at], bounds[at + 1]
                is_clear = is_clear and mean + turn * (highest - mean) < most
                is_clear = is_clear and mean < bounds[low] - APART
                is_clear = is_clear and highest < bounds[high + 1] - APART
        self.low_end, self.high_begin = -1.0, 2.0
        if is_clear:
            self.low_end = 2.0 if low == high else turn - NEAR
            self.high_begin = turn + NEAR
        return 0

    def taken(self, share: float) -> int:
        """Return where the function is that a share takes."""
        if share < self.low_end:
            return self.low
        if share > self.high_begin:
            return self.high
        return self.pick(self.first, share)


class Friends:
    """The peers of a learner while all play in this process: it asks them in one walk."""

    def __init__(self, policy: AutoPolicy, peers: list[AutoPolicy], *, are_alike: bool) -> None:
        """`are_alike`: they keep the same cells in the same rows, and all decide in every slot."""
        self.policy, self.peers, self.are_alike = policy, peers, are_alike
        self.peer_at = items_of(peers) if cython.compiled else peers
        self.policy.average.hear_anew()
        self.policy.friends = self

    def part(self) -> None:
        """Let the learner wait for reports again."""
        self.policy.friends = None

    def choose(self, row: int, slot: int) -> int:
        """Return the same as `choose` of the policy when all that it wants have reported.

        A peer is asked if it might be right for sure and be worth more than all own functions.
        """
        policy, peer_at = self.policy, self.peer_at
        costs, share, bounds = policy.counters.costs, policy.share, policy.bounds
        rows, reals, functions = policy.cells.rows, policy.cells.reals, policy.functions
        at, is_pending = row * policy.stride + policy.reports, policy.counters.expected_labels > 0
        # All that are alike have the same instance in a slot; others prepare for each that asks.
        prepared = slot if self.are_alike else -1
        chosen = best = min(0, functions - 1)
        largest = best_mean = -FOREVER
        for arm in range(functions):
            mean = bounds[4 * arm]
            value = mean + share * (bounds[4 * arm + 1] - mean) - costs[arm]
            if value > largest:
                largest, chosen = value, arm
            if mean - costs[arm] > best_mean:
                best_mean, best = mean - costs[arm], arm
        enough = max(largest, 1.0 - CLOSED)
        for arm in range(functions, policy.asked):
            price = costs[arm]
            if 1.0 - price > enough:
                peer = peer_at[arm - functions]
                if cython.cast(AutoPolicy, peer).replies.slot != prepared:
                    self._prepare(arm - functions, row, slot)
                place = cython.cast(AutoPolicy, peer).replies.taken(share)
                bounds = cython.cast(AutoPolicy, peer).bounds
                mean = bounds[place + 2]
                highest = max(bounds[place + 1], mean)
                rows[at], reals[at + 1], reals[at + 2] = slot, mean, highest
                reals[at + 3] = bounds[place + 3]
                policy.average.hear_other(arm - functions, cython.cast(AutoPolicy, peer).average)
                if is_pending and highest - price > best_mean - APART:  # else it is not chosen
                    highest = policy.average.narrow(row, arm, mean, highest)
                value = mean + share * (highest - mean) - price
                if value > largest:
                    largest, chosen = value, arm
                if mean - price > best_mean:
                    best_mean, best = mean - price, arm
            at += 4
        return chosen << 2 | (EXPLOIT if best == chosen else EXPLORE)

    def _prepare(self, number: int, row: int, slot: int) -> int:
        """Let a peer judge its functions in the cell of a row."""
        peer, cells = self.peer_at[number], self.policy.cells
        if not self.are_alike or row >= cython.cast(AutoPolicy, peer).cells.used:
            row = cython.cast(AutoPolicy, peer).cells.open_for(cells, row, slot)
        cython.cast(AutoPolicy, peer).prepare(row, slot)
        return 0


def friends_of(policy: CellPolicy, peers: list[CellPolicy], *, are_alike: bool) -> list[Friends]:
    """Let a policy know its peers, if all are of this kind and no option has to look at each."""
    if not peers or not all(isinstance(each, AutoPolicy) for each in (policy, *peers)):
        return []
    auto: Any = policy
    return [Friends(auto, peers, are_alike=are_alike)] if auto.is_simple else []  # type: ignore[arg-type]


class AutoPolicy(CellPolicy):
    """Chooses by the mean of an arm plus a share of its width; the share changes by the slot."""

    def __init__(self, clock: Clock, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        tree = rule.tree
        assert tree is not None
        CellPolicy.__init__(self, clock, rule, layout, counters)
        self.average = Average(rule, layout, counters)
        self.changes = FallTest(tree.alarm)
        self.scale = tree.scale * (0.5 if rule.dimension > 2 else 1.0)
        self.alarm = 1 if tree.alarm > 0 else 0
        self.has_context = self.cells.is_wide
        self.share = 1.0  # of the width, for the current decision
        self.told_version = 0  # of the likelihoods in `said`
        self.latest = 0  # slot of the latest instance: a label of an earlier one is late
        # What each arm may be worth in the current decision, and what it is worth on average; the
        # most that is known so far.
        arms, functions = self.arms, self.functions
        self.block = block(8 * (2 * arms + 8 * functions + 8))
        self.offers, self.means = doubles(self.block, 0, arms), doubles(self.block, arms, arms)
        self.largest = 0.0
        # Mean and index of each own function, its mean in reports, and what labels are tested
        # against there; then, for reports while labels are pending, the same by settled labels
        # only. And of what both are: slot, place, weights, pending labels.
        self.bounds = doubles(self.block, 2 * arms, 8 * functions)
        self.judged = integers(self.block, 2 * arms + 8 * functions, 8)
        # Per row and peer: the slot of its report, mean, index, and what labels are tested against.
        self.reports = layout.reports
        self.said = Said(1 + self.average.counted)
        self.replies = Replies(self.block, 2 * arms, functions)
        self.friends: Friends | None = None
        has_options = self.floors_training or self.counters.learns_costs
        has_options = has_options or self.counters.has_rewards
        self.is_simple = not has_options and arms == self.asked

    # -- decisions -----------------------------------------------------------------------------

    def choose(self, row: int, slot: int, is_fresh: bool) -> int:
        self.clock.round_up(slot)
        self.latest = max(self.latest, slot)
        if self.weighs:
            self.counters.begin_period(0, slot)
        self.share = share_at(slot, self.offset)
        self._judge(row, slot)
        if self.friends is not None:
            return self.friends.choose(row, slot)
        for arm in range(self.functions):
            self._offer(row, arm, self.bounds[4 * arm], self.bounds[4 * arm + 1])
        for arm in range(self.asked, self.arms):
            highest = self._index(row, arm, slot)  # of a peer that sees the cell only
            self._offer(row, arm, self.average.mean, highest)
        return self.choose_again(row, slot)

    def choose_again(self, row: int, slot: int) -> int:
        offers, means, costs = self.offers, self.means, self.counters.costs
        rows, reals, share = self.cells.rows, self.cells.reals, self.share
        at, is_usual = row * self.stride + self.reports, self._is_usual()
        functions, asked = self.functions, self.asked
        chosen = best = 0 if functions > 0 else -1
        largest = highest = -FOREVER
        is_waiting = False
        for arm in range(self.arms):
            if functions <= arm < asked:
                price = costs[arm]
                if not is_usual or price >= CLOSED:
                    self._consider(row, arm, slot)
                elif rows[at] == slot:  # the same as `_consider`
                    mean = reals[at + 1]
                    offers[arm] = mean + share * (reals[at + 2] - mean) - price
                    means[arm] = mean - price
                else:
                    offers[arm], means[arm] = 1.0 - price, UNTOLD
                at += 4
            if means[arm] == UNTOLD:
                is_waiting = True
            elif offers[arm] > largest:
                largest, chosen = offers[arm], arm
            if means[arm] > highest:
                highest, best = means[arm], arm
        self.largest = largest
        if is_waiting and self.wanted_from(row, 0) >= 0:
            return -1
        return chosen << 2 | (EXPLOIT if best == chosen else EXPLORE)

    def _is_usual(self) -> bool:
        """Return whether an offer depends on nothing but the report of a peer and its price."""
        counters = self.counters
        has_options = self.floors_training or counters.learns_costs or counters.has_rewards
        return not has_options and counters.expected_labels == 0

    def is_waiting(self, row: int, slot: int) -> bool:
        return self.choose(row, slot, False) < 0

    def wanted_from(self, row: int, peer: int) -> int:
        for arm in range(self.functions + peer, self.asked):
            if self.means[arm] == UNTOLD and self.offers[arm] > self.largest:
                return arm - self.functions
        return -1

    def _judge(self, row: int, slot: int) -> int:
        """Return where what is believed of the own functions in a cell is in `bounds`."""
        # A local name of an object costs C more than what is looked up here.
        which = 4 if self.average.is_reporting else 0
        judged, place, version = self.judged, row + 1, self.average.version
        if self.cells.is_wide:
            self.average.aim(row)
            place = self.average.place
        is_same = judged[which] == slot and judged[which + 1] == place
        is_same = is_same and judged[which + 2] == version
        if not is_same or judged[which + 3] != self.counters.version:
            judged[which], judged[which + 1], judged[which + 2] = slot, place, version
            judged[which + 3] = self.counters.version
            self._judge_anew(row, slot, which * self.functions)
        return which * self.functions

    def _judge_anew(self, row: int, slot: int, first: int) -> int:
        average = self.average
        average.aim(row)
        for function in range(self.functions):
            at = first + 4 * function
            self.bounds[at + 1] = self._index(row, function, slot)
            doubt = doubt_of(average.variance)
            self.bounds[at], self.bounds[at + 2] = average.mean, average.mean - doubt
            self.bounds[at + 3] = float(fixed(average.plain - doubt)) / UNIT
        return 0

    def _index(self, row: int, arm: int, slot: int) -> float:
        """Return the upper index of an arm by own labels; its mean is that of `average`."""
        self.average.judge(row, arm, slot)
        bound = self.scale * self.clock.logarithm * self.average.variance
        return upper(self.average.mean, bound * self.average.narrowed(row, arm))

    def _offer(self, row: int, arm: int, mean: float, highest: float) -> int:
        """Set what an arm of this mean and index may be worth, and is worth on average."""
        price, value = self.counters.costs[arm], mean + self.share * (highest - mean)
        if self.counters.learns_costs:
            price = self.counters.price(row * self.stride, arm)
        self.offers[arm], self.means[arm] = value - price, mean - price
        if self.counters.has_rewards:
            self.offers[arm] = self.counters.net(arm, value, price)
            self.means[arm] = self.counters.net(arm, mean, price)
        return 0

    def _consider(self, row: int, arm: int, slot: int) -> int:
        """Do the same for a peer, by its report; one without may be right for sure."""
        if self.counters.costs[arm] >= CLOSED:
            self.offers[arm] = self.means[arm] = -FOREVER
            return 0
        at = row * self.stride + self.reports + 4 * (arm - self.functions)
        if self.cells.rows[at] != slot:
            self._offer(row, arm, 1.0, 1.0)
            self.means[arm] = UNTOLD
            return 0
        mean, highest = self.cells.reals[at + 1], self.cells.reals[at + 2]
        if self.floors_training:
            tree = self.average.tree
            tree.believe(row, arm)
            k = 1 if self.average.trees > 1 else 0  # by the Gaussian tree, if there is one
            bound = self.clock.logarithm * tree.variances[k]
            highest = min(highest, upper(tree.means[k], bound))
            mean = min(mean, highest)
        return self._offer(row, arm, mean, self.average.narrow(row, arm, mean, highest))

    # -- for peers -----------------------------------------------------------------------------

    def serve(self, row: int) -> int:
        slot = self.clock.now
        self.clock.round_up(slot)
        self.latest = max(self.latest, slot)
        if self.weighs:
            self.counters.begin_period(OF_PEERS, slot)
        first = self._judge(row, slot)
        return (self.replies.pick(first, share_at(slot, self.asker)) - first) // 4

    def accuracy(self, row: int, arm: int) -> float:
        at = row * self.stride + self.reports + 4 * (arm - self.functions)
        if self.functions <= arm < self.asked:
            return self.cells.reals[at + 1] if self.cells.rows[at] > 0 else 0.0
        self.average.aim(row)
        self.average.judge(row, arm, self.latest)
        return self.average.mean

    def basis(self, row: int) -> int:
        return self.average.tree.root(row) // self.stride

    def most_accurate(self, row: int) -> int:
        chosen, largest = 0, -FOREVER
        for function in range(self.functions):
            value = self.accuracy(row, function)
            if value > largest:
                largest, chosen = value, function
        return chosen

    def report(self, row: int, slot: int) -> int:
        """Tell mean and index of the own function that `serve` would return, and likelihoods.

        Unlike an answer it leaves no trace, so that a restart changes nothing.
        """
        self.said.arrived = self.cells.rows[row * self.stride + ARRIVALS]
        self.clock.round_up(slot)
        self.prepare(row, slot)
        at = self.replies.taken(share_at(slot, self.asker))
        self.said.lowest, self.said.highest = self.bounds[at + 2], self.bounds[at + 1]
        self.said.numbers[0] = fixed(self.bounds[at + 3])
        if self.told_version != self.average.version:
            self.told_version = self.average.version
            for k in range(self.average.counted):
                self.said.numbers[1 + k] = self.average.logs[k]
        return 0

    def prepare(self, row: int, slot: int) -> int:
        """Judge the own functions in a cell, for the reports of a slot."""
        if self.weighs:
            self.counters.begin_period(OF_PEERS, slot)
        # By settled labels: who asks knows what it has asked for.
        self.average.is_reporting = self.counters.expected_labels > 0
        first = self._judge(row, slot)
        self.average.is_reporting = False
        self.replies.divide(first, slot)
        return 0

    def hear(self, row: int, peer: int, said: Said, slot: int) -> int:
        """Take the report of a peer; its numbers are what to test labels against, and logs."""
        rows, reals = self.cells.rows, self.cells.reals
        at = row * self.stride + self.reports + 4 * peer
        rows[at] = slot
        reals[at + 1], reals[at + 2], reals[at + 3] = said.lowest, said.highest, said.lowest
        if said.highest < said.lowest:
            reals[at + 2] = said.lowest
        if said.count == 1 + self.average.counted:
            reals[at + 3] = float(said.numbers[0]) / UNIT
            self.average.hear(peer, said.numbers, 1)
        return 0

    # -- labels --------------------------------------------------------------------------------

    def learn_now(self, row: int, arm: int, phase: int, gain: int, slot: int) -> int:
        self.counters.count_own(row, 1)
        return AutoPolicy.learn(self, row, arm, phase, gain, slot, UNPAID)

    def learn(self, row: int, arm: int, phase: int, gain: int, slot: int, paid: int) -> int:
        if self.weighs:
            self.counters.note_arrival(phase, slot)
        if not AutoPolicy.is_credible(self, row, arm, gain, slot, False):
            return 0
        if self.functions <= arm < self.asked:
            if self.floors_training:
                self.average.tree.add(row, arm, gain)
            else:
                self.average.tree.count(row, arm, gain)
        elif arm >= self.asked or self.average.is_first(arm, slot):
            self.average.learn(row, arm, gain, slot, slot >= self.latest)
        if self.counters.learns_costs:
            self.counters.spend(row * self.stride, arm, paid)
        return 0

    def learn_served(self, row: int, function: int, gain: int, slot: int) -> int:
        if self.weighs:
            self.counters.note_arrival(SERVE, slot)
        return AutoPolicy.score(self, row, function, gain, slot, True)

    def score(self, row: int, function: int, gain: int, slot: int, is_served: bool) -> int:
        if slot > self.forgotten and self.average.is_first(function, slot):
            self.average.learn(row, function, gain, slot, slot >= self.latest)
        return 0

    def is_credible(self, row: int, arm: int, gain: int, slot: int, is_served: bool) -> bool:
        """Update the change detection; on an alarm reset the statistics and return False."""
        if slot <= self.forgotten:
            return False
        if not self.alarm:
            return True
        report = row * self.stride + self.reports + 4 * (arm - self.functions)
        if self.functions <= arm < self.asked:
            believed = self.cells.reals[report + 3]
        else:
            self.average.aim(row)
            self.average.judge(row, arm, slot)
            believed = self.average.plain - doubt_of(self.average.variance)
        if not self.changes.is_change(believed, float(gain) / self.counters.unit):
            return True
        self.forget(self.arms)
        self.forgotten = slot
        self.has_alarmed = True
        self.note_alarm(slot)
        return False

    # -- changes, and what is kept besides counters --------------------------------------------

    def derive(self, row: int) -> int:
        for place in self.cells.layers(row):
            for arm in range(self.arms):
                self.average.tree.derive(place, arm)
        self.counters.version += 1
        return 0

    def forget(self, end: int) -> int:
        self.average.forget(end)
        self.changes.restart()
        for row in range(self.cells.used if end == self.arms else 0):
            for peer in range(self.asked - self.functions):
                self.cells.rows[row * self.stride + self.reports + 4 * peer] = 0
        return 0

    def hear_alarm(self, slot: int) -> None:
        if self.alarm and slot > self.forgotten:
            self.forget(self.arms)
            self.forgotten = slot

    def state(self) -> list[int]:
        """Return what is in no row: of the test for changes, of the weights, of the features."""
        watch, average = self.changes.watch, self.average
        kept = [watch[k] for k in range(WATCHED)] + [self.counters.decided, self.latest]
        return [len(kept), *kept, *average.state(), *CellPolicy.state(self)]

    def beliefs(self) -> list[list[int]]:
        return [self.average.belief(function) for function in range(self.average.linears())]

    def take_belief(self, function: int, belief: list[int]) -> None:
        self.average.take_belief(function, belief)

    def news(self) -> list[tuple[int, list[int], list[int]]]:
        return self.average.news()

    def adopt(self, old: CellPolicy, arms: list[int]) -> None:
        CellPolicy.restore(self, CellPolicy.state(old))
        if isinstance(old, AutoPolicy):
            auto = old
            for k in range(WATCHED):
                self.changes.watch[k] = auto.changes.watch[k]
            self.counters.decided, self.latest = auto.counters.decided, auto.latest
            self.average.adopt(auto.average, arms)

    def restore(self, state: list[int]) -> None:
        for k in range(WATCHED):
            self.changes.watch[k] = state[1 + k]
        self.counters.decided, self.latest = state[1 + WATCHED], state[2 + WATCHED]
        rest = self.average.restore(state[1 + state[0] :])
        CellPolicy.restore(self, rest)
