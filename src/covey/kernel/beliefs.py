# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""What the labels of an arm say of its accuracy in a cell: three beliefs over the tree of cells.

*One cell* takes all labels of an arm alike. The *Gaussian tree* lets the accuracy in a cell be that
in its parent plus a deviation, whose variance is a quarter from level to level. The *weighted tree*
averages over all ways to stop dividing cells: in each, the labels are those of one coin. A label
counts in the cells of all sizes around its context. All that is kept are sums of integers, so they
do not depend on the order of the labels.

Where contexts have many coordinates there is one cell, and *single coordinates*: the accuracy of a
function depends on one coordinate, and nobody knows on which. Each has a weighted tree of its own,
and weighs as much as its tree gave probability to the labels of the function.
"""

from __future__ import annotations

import cython

from covey.errors import DataError
from covey.kernel.cells import block
from covey.kernel.counters import ArmCounters
from covey.kernel.layout import Layout
from covey.kernel.rules import Rule

if cython.compiled:
    from cython.cimports.libc.math import exp, log, log1p, rint
else:
    from math import exp, log, log1p

    from covey.kernel.cells import BEST, BEST_OWN, LEVEL, PARENT, doubles, integers

    rint = round
    WHOLE_LABEL = 1 << 20  # what labels are worth is a fixed-point number: sums are exact
    LOG_UNIT = 1 << 30  # so are logarithms of likelihoods
    KNOWN_LOGS = 4096  # counts whose logarithms are kept
    # What a cell keeps of an arm: what the labels of its subtree are worth, the right ones among
    # them; log-likelihoods of its labels as those of one coin, of the finer cells, and of both.
    WORTH, RIGHT, COIN, BELOW, BOTH = range(5)
    KEPT = 5
    # What is computed of these: by how much labels shrink, the right ones by how much, the chance
    # that the cell is not divided; mean and second moment if labels are of one coin, 0: none are.
    PART, PULL, STOP, HEADS, SECOND = range(5)
    DERIVED = 5
    FAR_APART = 40.0  # beyond this difference of log-likelihoods, one of them is all
    # What a cell of a single coordinate keeps in place of the first two.
    LABELS, GAINED = range(2)
    FINEST = 32  # cells of a coordinate
    CELLS = 2 * FINEST - 1  # and those around them: cell k is divided into 2 k + 1 and 2 k + 2

MOST_COORDINATES = 32  # with more, contexts are embeddings, whose single coordinates say little

LOG_HALF = -int(rint(log(2.0) * LOG_UNIT))
# The logarithms of k + 1/2, then those of k + 1, for counts k.
LOG_BLOCK = block(8 * 2 * KNOWN_LOGS)
LOGS = integers(LOG_BLOCK, 0, 2 * KNOWN_LOGS)
for _k in range(KNOWN_LOGS):
    LOGS[_k] = int(rint(log(_k + 0.5) * LOG_UNIT))
    LOGS[KNOWN_LOGS + _k] = int(rint(log(_k + 1.0) * LOG_UNIT))


def whole(value: float) -> int:
    """Return the nearest whole number; negative ones are rounded towards 0."""
    if cython.compiled:
        number: int = cython.cast(cython.longlong, value + 0.5)
        return number
    return int(value + 0.5)


def log_of_half(count: int) -> int:
    """Return ln(count + 1/2), as a fixed-point number."""
    if count < KNOWN_LOGS:
        return LOGS[count]
    if cython.compiled:
        number: int = cython.cast(cython.longlong, rint(log(count + 0.5) * LOG_UNIT))
        return number
    return int(rint(log(count + 0.5) * LOG_UNIT))


def log_of_next(count: int) -> int:
    """Return ln(count + 1), as a fixed-point number."""
    if count < KNOWN_LOGS:
        return LOGS[KNOWN_LOGS + count]
    if cython.compiled:
        number: int = cython.cast(cython.longlong, rint(log(count + 1.0) * LOG_UNIT))
        return number
    return int(rint(log(count + 1.0) * LOG_UNIT))


def rise(before: int, by: int, unit: int) -> int:
    """Return by how much the log-likelihood of one side of a coin grows with its gains.

    It is a sum over whole gains, and linear between them.
    """
    if by == 0:
        return 0
    if unit == 1:
        return log_of_half(before)
    first, last = before // unit, (before + by) // unit
    grown = part_of(log_of_half(last), (before + by) % unit, unit)
    grown -= part_of(log_of_half(first), before % unit, unit)
    return grown + (log_of_half(first) if last > first else 0)


def part_of(number: int, share: int, unit: int) -> int:
    """Return a share of a number, rounded towards 0: in C as in Python."""
    if number < 0:
        return -(-number * share // unit)
    return number * share // unit


def weigh(
    rows: memoryview[int], reals: memoryview[float], at: int, to: int, is_finest: bool
) -> None:
    """Set the log-likelihood of the labels of a subtree, and the chance of no division.

    Sums of a cell and arm begin at `at`, and what is computed of them at `to`.
    """
    stop = 1.0
    both = rows[at + COIN]
    if not is_finest:
        ahead = float(rows[at + BELOW] - rows[at + COIN]) / LOG_UNIT
        both = max(rows[at + COIN], rows[at + BELOW]) + LOG_HALF
        if -FAR_APART < ahead < FAR_APART:
            rest = exp(-ahead if ahead > 0.0 else ahead)
            both += whole(log1p(rest) * LOG_UNIT)
            stop = (rest if ahead > 0.0 else 1.0) / (1.0 + rest)
        elif ahead > 0.0:
            stop = 0.0
    rows[at + BOTH] = both
    reals[to + STOP] = stop


def toss(reals: memoryview[float], to: int, labels: int, gained: int, unit: int) -> None:
    """Set the moments of the accuracy in a cell with labels, as that of one coin."""
    doubt = 1.0 / (labels + 1.0)
    coin = (float(gained) / unit + 0.5) * doubt
    reals[to + HEADS], reals[to + SECOND] = coin, doubt + 4.0 * coin * coin


def shrink(
    rows: memoryview[int], reals: memoryview[float], at: int, to: int, spread: float
) -> None:
    """Compute by how much the labels of a cell shrink, in the same way."""
    reals[to + PART] = 1.0 / (1.0 + spread * rows[at + WORTH])
    reals[to + PULL] = spread * rows[at + RIGHT]


class CellBeliefs:
    """The three beliefs about the arms of a learner.

    `believe` sets the mean and the variance of each; a variance is in units of that of a label,
    which is a quarter.
    """

    def __init__(self, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        tree = rule.tree
        assert tree is not None
        self.counters, self.cells = counters, counters.cells
        self.stride, self.labels, self.right = layout.stride, layout.labels, layout.right
        self.kept, self.derived = layout.beliefs, layout.derived
        self.functions, self.asked, self.unjudged = layout.functions, layout.asked, layout.unjudged
        self.unit = rule.unit
        self.finest = len(rule.levels) - 1
        levels = len(rule.levels)
        self.block = block(8 * (3 * levels + 8))
        # The variance of the deviation of a cell from its parent, in units of a label's: how much
        # each fixed-point unit of information shrinks. Then its sums from a level on.
        self.shrink = doubles(self.block, 0, levels)
        self.tails = doubles(self.block, levels, levels + 1)
        for level in range(levels):
            self.shrink[level] = 4 * (tree.spread / rule.levels[level].side) ** 2 / WHOLE_LABEL
        for level in range(levels - 1, 0, -1):
            self.tails[level] = self.tails[level + 1] + self.shrink[level]
        # Where the cells around the row `standing` begin, by their level; its own is `depth`.
        self.chain = integers(self.block, 2 * levels + 1, levels)
        self.standing, self.depth = -1, 0
        self.means = doubles(self.block, 3 * levels + 1, 3)
        self.variances = doubles(self.block, 3 * levels + 4, 3)

    def seat(self, arm: int) -> int:
        """Return the place of an arm among those whose labels are judged."""
        return arm if arm < self.functions else arm - self.unjudged

    def climb(self, row: int) -> None:
        """Set `chain` to the cells around a row."""
        if row == self.standing:
            return
        self.standing = row
        self.depth = self.cells.marks[2 * row * self.stride + LEVEL]
        level = self.depth
        while row >= 0:
            self.chain[level] = row * self.stride
            row = self.cells.marks[2 * row * self.stride + PARENT]
            level -= 1

    def root(self, row: int) -> int:
        """Return where the coarsest cell around a row begins."""
        self.climb(row)
        return self.chain[0]

    def believe(self, row: int, arm: int) -> int:
        """Set the means and variances of an arm's accuracy in a cell."""
        self.climb(row)
        rows, reals, chain, depth = self.cells.rows, self.cells.reals, self.chain, self.depth
        base = chain[0]
        labels = float(rows[base + self.labels + arm])
        coin = (float(rows[base + self.right + arm]) / self.unit + 0.5) / (labels + 1.0)
        doubt = 1.0 / (labels + 1.0)
        self.means[0], self.variances[0] = coin, doubt
        if self.finest == 0:
            return 0
        seat = self.seat(arm)
        at = base + self.kept + KEPT * seat
        variance = 1.0 / (WHOLE_LABEL + rows[at + WORTH])
        mean = (0.5 * WHOLE_LABEL + rows[at + RIGHT]) * variance
        left = 1.0  # the chance that cells are divided so far
        first = moment = 0.0  # moments of the weighted tree
        second = doubt + 4.0 * coin * coin
        to, level = base + self.derived + DERIVED * seat, 0
        from_root = to - base
        if labels == 0.0:
            depth = 0
        while level < depth:
            weight = left * reals[to + STOP]
            first += weight * coin
            moment += weight * second
            left -= weight
            level += 1
            to = chain[level] + from_root
            second = reals[to + SECOND]
            if second == 0.0:  # the deviations are of all finer levels
                variance += self.tails[level]
                coin, second, level = 0.5, 2.0, -1
                break
            mean = (mean + reals[to + PULL]) * reals[to + PART]
            variance = (variance * reals[to + PART] + self.shrink[level]) * reals[to + PART]
            coin = reals[to + HEADS]
        first += left * coin  # cells are not divided further
        moment += left * second
        if level >= 0:
            variance += self.tails[level + 1]
        self.means[1] = min(1.0, max(0.0, mean))
        self.variances[1] = variance * WHOLE_LABEL
        self.means[2] = first
        self.variances[2] = moment - 4.0 * first * first
        return 0

    def add(self, row: int, arm: int, gain: int) -> int:
        """Count a label in the cells around a row."""
        self.climb(row)
        # C reads what is in local variables once, and attributes after every label.
        rows, reals, chain, unit = self.cells.rows, self.cells.reals, self.chain, self.unit
        labelled, righted, finest = self.labels + arm, self.right + arm, self.finest
        seat = self.seat(arm)
        kept, derived = self.kept + KEPT * seat, self.derived + DERIVED * seat
        worth = WHOLE_LABEL
        right = WHOLE_LABEL * gain if unit == 1 else WHOLE_LABEL * gain // unit
        below = 0
        for level in range(self.depth, -1, -1):
            base = chain[level]
            at, to = base + kept, base + derived
            labels, gained = rows[base + labelled], rows[base + righted]
            rows[base + labelled] = labels + 1
            rows[base + righted] = gained + gain
            if finest == 0:
                break
            coin = rise(gained, gain, unit) + rise(labels * unit - gained, unit - gain, unit)
            rows[at + COIN] += coin - log_of_next(labels)
            rows[at + BELOW] += below
            before = rows[at + BOTH]
            weigh(rows, reals, at, to, level == finest)
            below = rows[at + BOTH] - before
            toss(reals, to, labels + 1, gained + gain, unit)
            labels, gained = rows[at + WORTH], rows[at + RIGHT]
            rows[at + WORTH] = labels + worth
            rows[at + RIGHT] = gained + right
            if level > 0:
                old = reals[to + PART] if labels > 0 else 1.0
                shrink(rows, reals, at, to, self.shrink[level])
                worth = whole(rows[at + WORTH] * reals[to + PART]) - whole(labels * old)
                right = whole(rows[at + RIGHT] * reals[to + PART]) - whole(gained * old)
        self.counters.learnt[arm] += 1
        return 0

    def count(self, row: int, arm: int, gain: int) -> int:
        """Count a label in the cells around a row, for no belief."""
        self.climb(row)
        rows, chain = self.cells.rows, self.chain
        labels, right = self.labels + arm, self.right + arm
        for level in range(self.depth + 1):
            rows[chain[level] + labels] += 1
            rows[chain[level] + right] += gain
        return 0

    def derive(self, row: int, arm: int) -> None:
        """Compute again what depends on the sums of a cell."""
        self.standing = -1
        self.counters.learnt[arm] += 1
        if self.unjudged and self.functions <= arm < self.asked:
            return
        seat = self.seat(arm)
        base = row * self.stride
        level = self.cells.marks[2 * base + LEVEL]
        rows, reals = self.cells.rows, self.cells.reals
        at, to = base + self.kept + KEPT * seat, base + self.derived + DERIVED * seat
        weigh(rows, reals, at, to, level == self.finest)
        shrink(rows, reals, at, to, self.shrink[level])
        reals[to + SECOND] = 0.0
        if rows[base + self.labels + arm] > 0:
            labels, gained = rows[base + self.labels + arm], rows[base + self.right + arm]
            toss(reals, to, labels, gained, self.unit)

    def forget(self, first: int, end: int) -> None:
        """Reset the labels of the arms from `first` to before `end`, in every cell."""
        rows, marks = self.cells.rows, self.cells.marks
        for row in range(self.cells.used):
            base = row * self.stride
            for arm in range(first, end):
                rows[base + self.labels + arm] = rows[base + self.right + arm] = 0
                if self.unjudged and self.functions <= arm < self.asked:
                    continue
                for k in range(KEPT):
                    rows[base + self.kept + KEPT * self.seat(arm) + k] = 0
                for k in range(DERIVED):
                    rows[base + self.derived + DERIVED * self.seat(arm) + k] = 0
            marks[2 * base + BEST] = marks[2 * base + BEST_OWN] = -1
        for arm in range(first, end):
            self.counters.learnt[arm] += 1


class CoordinateTrees:
    """The belief about each function of a site; `believe` sets its mean and variance.

    A variance is in units of that of a label, which is a quarter.
    """

    def __init__(self, dimension: int, functions: int, unit: int) -> None:
        self.dimension, self.functions, self.unit = dimension, functions, unit
        self.stride = CELLS * dimension
        count = functions * self.stride
        self.block = block(8 * ((KEPT + 1) * count + (functions + 1) * dimension + 8))
        self.rows = integers(self.block, 0, KEPT * count)
        self.reals = doubles(self.block, KEPT * count, count + STOP)
        self.weights = doubles(self.block, (KEPT + 1) * count + STOP, functions * dimension)
        first = (KEPT + 1) * count + STOP + functions * dimension
        self.places = integers(self.block, first, dimension)  # the finest cells of the context
        self.mean = self.variance = 0.0
        for function in range(functions):
            self.forget(function)

    def take(self, coordinates: memoryview[float], first: int) -> None:
        """Take the context at `first` in an array as the current one."""
        for k in range(self.dimension):
            self.places[k] = min(FINEST - 1, int(coordinates[first + k] * FINEST))

    def believe(self, function: int) -> None:
        """Set mean and variance of the accuracy of a function in the current context."""
        rows, first = self.rows, function * self.dimension
        self.mean = self.variance = 0.0
        for k in range(self.dimension):
            base, cell, bit = function * self.stride + k * CELLS, 0, FINEST >> 1
            at, left, mean, second = KEPT * base, 1.0, 0.0, 0.0
            labels = float(rows[at + LABELS])
            doubt = 1.0 / (labels + 1.0)
            coin = (float(rows[at + GAINED]) / self.unit + 0.5) / (labels + 1.0)
            while bit > 0 and labels > 0.0:
                part = left * self.reals[base + cell]
                mean += part * coin
                second += part * (doubt + 4.0 * coin * coin)
                left -= part
                cell = 2 * cell + (2 if self.places[k] & bit else 1)
                bit >>= 1
                at = KEPT * (base + cell)
                labels = float(rows[at + LABELS])
                doubt = 1.0 / (labels + 1.0)
                coin = (float(rows[at + GAINED]) / self.unit + 0.5) * doubt
            mean += left * coin
            second += left * (doubt + 4.0 * coin * coin)
            self.mean += self.weights[first + k] * mean
            self.variance += self.weights[first + k] * second
        self.variance -= 4.0 * self.mean * self.mean

    def learn(self, function: int, gain: int) -> None:
        """Count a label of a function in the current context."""
        for k in range(self.dimension):
            self._add(function, k, self.places[k], gain)
        self._weigh(function)

    def _add(self, function: int, coordinate: int, place: int, gain: int) -> None:
        """Count a label in the finest cell `place` of a coordinate, and in those around it."""
        rows, unit = self.rows, self.unit
        base = function * self.stride + coordinate * CELLS
        cell, below, is_finest = FINEST - 1 + place, 0, True
        while True:
            at = KEPT * (base + cell)
            labels, gained = rows[at + LABELS], rows[at + GAINED]
            rows[at + COIN] += rise(gained, gain, unit) - log_of_next(labels)
            rows[at + COIN] += rise(labels * unit - gained, unit - gain, unit)
            rows[at + LABELS] = labels + 1
            rows[at + GAINED] = gained + gain
            rows[at + BELOW] += below
            before = rows[at + BOTH]
            weigh(rows, self.reals, at, base + cell - STOP, is_finest)
            below = rows[at + BOTH] - before
            if cell == 0:
                break
            cell, is_finest = (cell - 1) >> 1, False

    def _weigh(self, function: int) -> None:
        """Weigh the coordinates by how probable their trees made the labels."""
        first, count = function * self.stride, self.dimension
        best = self.rows[KEPT * first + BOTH]
        for k in range(1, count):
            best = max(best, self.rows[KEPT * (first + k * CELLS) + BOTH])
        total = 0.0
        for k in range(count):
            behind = self.rows[KEPT * (first + k * CELLS) + BOTH] - best
            weight = exp(float(behind) / LOG_UNIT)
            self.weights[function * count + k] = weight
            total += weight
        for k in range(count):
            self.weights[function * count + k] /= total

    def forget(self, function: int) -> None:
        """Return to the prior."""
        first = function * self.stride
        for k in range(KEPT * first, KEPT * (first + self.stride)):
            self.rows[k] = 0
        for k in range(self.dimension):
            self.weights[function * self.dimension + k] = 1.0 / self.dimension

    def state(self, function: int) -> list[int]:
        """Return labels and gains of a function in the finest cells of each coordinate."""
        kept = []
        for k in range(self.dimension):
            first = function * self.stride + k * CELLS + FINEST - 1
            for cell in range(first, first + FINEST):
                kept += [self.rows[KEPT * cell + LABELS], self.rows[KEPT * cell + GAINED]]
        return kept

    def restore(self, function: int, state: list[int]) -> None:
        """Continue from a result of `state`."""
        if len(state) != 2 * FINEST * self.dimension:
            raise DataError("the state is of other coordinates; restore it with the same contexts")
        self.forget(function)
        for k in range(self.dimension):
            base = function * self.stride + k * CELLS
            for cell in range(CELLS - 1, -1, -1):
                at = KEPT * (base + cell)
                if cell >= FINEST - 1:
                    leaf = 2 * (k * FINEST + cell - FINEST + 1)
                    self.rows[at + LABELS], self.rows[at + GAINED] = state[leaf], state[leaf + 1]
                else:
                    for part in (LABELS, GAINED):
                        first = KEPT * (base + 2 * cell + 1) + part
                        self.rows[at + part] = self.rows[first] + self.rows[first + KEPT]
                    first = KEPT * (base + 2 * cell + 1) + BOTH
                    self.rows[at + BELOW] = self.rows[first] + self.rows[first + KEPT]
                self.rows[at + COIN] = self._coin(at)
                weigh(self.rows, self.reals, at, base + cell - STOP, cell >= FINEST - 1)
        self._weigh(function)

    def _coin(self, at: int) -> int:
        """Return the log-likelihood of the labels of a cell as those of one coin."""
        labels, gained, total = self.rows[at + LABELS], self.rows[at + GAINED], 0
        for count in range(labels):
            total -= log_of_next(count)
        for before in range(0, gained, self.unit):
            total += rise(before, min(self.unit, gained - before), self.unit)
        lost = labels * self.unit - gained
        for before in range(0, lost, self.unit):
            total += rise(before, min(self.unit, lost - before), self.unit)
        return total
