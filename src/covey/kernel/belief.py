# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Gaussian beliefs on the tree of dyadic cells, or in one cell, and an upper bound from a belief.

The accuracy of an arm in a cell is that in the parent cell plus a Gaussian deviation, whose
variance is a quarter from level to level. A label weighs as much as one of a fair coin. Per cell
and arm two numbers are kept: how many labels the cell's subtree is worth, and how many of them are
right. `docs/research/auto.md` has the derivation.
"""

from __future__ import annotations

from array import array

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
from covey.kernel.counters import CellCounters
from covey.kernel.index import CachingTable, klucb
from covey.kernel.rules import Rule
from covey.kernel.thresholds import Clock

WHOLE_LABEL = 1 << 20  # what labels are worth is a fixed-point number: sums are exact
PRIOR_LABELS = 1.0  # the accuracy in the coarsest cell: mean 1/2, variance 1/4
PRIOR_MEAN = 0.5
# Nodes and half the weights of a rule of Gauss for integrals of x * g(x) from 0 to 1.
NEAR_NODE, FAR_NODE = (6.0 - sqrt(6.0)) / 10.0, (6.0 + sqrt(6.0)) / 10.0
AT_NEAR, AT_FAR = (9.0 - sqrt(6.0)) / 36.0, (9.0 + sqrt(6.0)) / 36.0
LEAST_BELIEF = 0.02  # where labels are tested, beliefs are at least this far from 0 and 1
USUAL_MARGIN = 5.0  # of the comparison with one cell, if there is no change detection
LEAST_MEAN = 0.1  # of an index without logarithms


def whole(value: float) -> int:
    """Return the nearest whole number; negative ones are rounded towards 0."""
    if cython.compiled:
        number: int = cython.cast(cython.longlong, value + 0.5)
        return number
    return int(value + 0.5)


def fixed(labels: float) -> int:
    """Return a number of labels as a fixed-point number, `WHOLE_LABEL` each."""
    return whole(labels * WHOLE_LABEL)


def unfixed(number: int) -> float:
    """Return the number of labels that a fixed-point number is."""
    return float(number) / WHOLE_LABEL


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


class BeliefTable(CachingTable):
    """Keeps what labels are worth in every cell around them."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        tree = rule.tree
        assert tree is not None
        CachingTable.__init__(self, clock, rule)
        # The variance of the deviation of a cell from its parent, in units of a label's: how much
        # each fixed-point unit of information shrinks.
        variances = [4 * (tree.spread / level.side) ** 2 for level in rule.levels]
        self.shrink = array("d", [variance / WHOLE_LABEL for variance in variances])
        self.mean = self.variance = 0.0  # what `_believe` found; a label's variance is 1
        # Contexts seem to say nothing: all labels of an arm count alike. `lead` speaks for that, by
        # so many `compared` labels; the current decision may try the tree in spite of it.
        self.uses_one_cell = self.tries_tree = False
        self.lead = self.compared = 0
        self.trust = tree.alarm if tree.alarm > 0 else USUAL_MARGIN
        self.expected = 0.0  # what the latest labels foretold of the current one
        self.versions = array("q", [1] * max(1, self.arms))  # an arm's goes up when its labels do
        # Where the cells around the row `standing` begin, by their level; its own is `depth`.
        self.chain = array("q", bytes(8 * (self.levels + 1)))
        self.standing, self.depth = -1, 0

    def _climb(self, row: int) -> None:
        """Set `chain` to the cells around a row."""
        if row == self.standing:
            return
        self.standing = row
        self.depth = self.marks[2 * row * self.stride + LEVEL]
        level = self.depth
        while row >= 0:
            self.chain[level] = row * self.stride
            row = self.marks[2 * row * self.stride + PARENT]
            level -= 1

    def _believe(self, row: int, arm: int) -> int:
        """Set `mean` and `variance` to what all labels of an arm say of its accuracy in a cell."""
        if self.uses_one_cell and not self.tries_tree:
            return self._believe_alike(row, arm)
        return self._infer(row, arm)

    def _believe_alike(self, row: int, arm: int) -> int:
        """Do the same as if contexts said nothing."""
        self._climb(row)
        right = float(self.rows[self.chain[0] + self.right + arm]) / self.unit
        self.variance = 1.0 / (PRIOR_LABELS + self.rows[self.chain[0] + self.labels + arm])
        self.mean = (PRIOR_LABELS * PRIOR_MEAN + right) * self.variance
        return 0

    def _infer(self, row: int, arm: int) -> int:
        """Do the same by the tree.

        Down the tree, the belief of a cell is its parent's, joined with what is known below it.
        """
        self._climb(row)
        at = self.info + 2 * arm
        base = self.chain[0] + at
        variance = 1.0 / (PRIOR_LABELS * WHOLE_LABEL + self.rows[base])
        mean = (PRIOR_LABELS * WHOLE_LABEL * PRIOR_MEAN + self.rows[base + 1]) * variance
        for level in range(1, self.depth + 1):
            base = self.chain[level] + at
            spread = self.shrink[level]
            part = 1.0 / (1.0 + spread * self.rows[base])
            mean = (mean + spread * self.rows[base + 1]) * part
            variance = (variance * part + spread) * part
        self.mean = min(1.0, max(0.0, mean))
        self.variance = variance * WHOLE_LABEL
        return 0

    def _under_way(self, row: int, arm: int) -> int:
        """Return how many labels the pending ones of an arm will be worth to `_believe`, at most.

        The pending labels around the row are summed in cells of every size. What finer cells may
        differ by makes those of a large cell worth less.
        """
        if not self.is_pending:
            return 0
        self._climb(row)
        at = self.underway + arm
        if not self.is_layered or (self.uses_one_cell and not self.tries_tree):
            return self.rows[self.chain[0] + at]
        most = 0
        for level in range(self.depth + 1):
            labels = self.rows[self.chain[level] + at]
            if labels == 0:
                break
            hidden = self.shrink[level] * WHOLE_LABEL / 3.0
            most = max(most, whole(labels / (1.0 + hidden * labels)))
        return most

    def _compare(self, row: int, arm: int, correct: float) -> bool:
        """Note whether one cell or the tree predicts a label better; return whether that changes.

        One cell is used when the sum of log-likelihood ratios exceeds a limit as that of the change
        detection, until it is below 0 again.
        """
        self._infer(row, arm)
        fine = min(1.0 - LEAST_BELIEF, max(LEAST_BELIEF, self.mean))
        self._believe_alike(row, arm)
        plain = min(1.0 - LEAST_BELIEF, max(LEAST_BELIEF, self.mean))
        ratio = 0.0
        if correct > 0.0:
            ratio = correct * log(plain / fine)
        if correct < 1.0:
            ratio += (1.0 - correct) * log((1.0 - plain) / (1.0 - fine))
        self.compared += 1
        limit = fixed(self.trust + log(1.0 + self.compared))
        self.lead = min(limit, max(-limit, self.lead + fixed(ratio)))
        is_better = self.lead >= (0 if self.uses_one_cell else limit)
        if is_better == self.uses_one_cell:
            return False
        self.uses_one_cell = is_better
        return True

    def _add_label(self, row: int, arm: int, gain: int, is_counted: bool) -> int:
        """Add a label to a cell and, as far as it tells of them, to its parents."""
        self._climb(row)
        worth = WHOLE_LABEL
        right = WHOLE_LABEL * gain if self.unit == 1 else WHOLE_LABEL * gain // self.unit
        right -= fixed(self.expected)
        counted = self.labels + arm
        gained = self.right + arm
        at = self.info + 2 * arm
        for level in range(self.depth, -1, -1):
            base = self.chain[level]
            if is_counted:
                self.rows[base + ARRIVALS] += 1
            self.rows[base + counted] += 1
            self.rows[base + gained] += gain
            self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
            labels = self.rows[base + at]
            correct = self.rows[base + at + 1]
            self.rows[base + at] = labels + worth
            self.rows[base + at + 1] = correct + right
            if level > 0:
                spread = self.shrink[level]
                before = 1.0 / (1.0 + spread * labels)
                after = 1.0 / (1.0 + spread * (labels + worth))
                worth = whole((labels + worth) * after) - whole(labels * before)
                right = whole((correct + right) * after) - whole(correct * before)
        self.versions[arm] += 1
        return 0

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
