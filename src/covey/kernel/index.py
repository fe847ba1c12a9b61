# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Policies by an upper confidence index: `share-ucb`, and `auto`, which is the default.

`auto` has beliefs about the accuracy of an arm, a test for changes, and a forecast of errors in
runs; `docs/research/auto.md` has the derivation and what is proved.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:
    from types import SimpleNamespace

    cython = SimpleNamespace(compiled=False)

from covey.kernel.cells import block
from covey.kernel.counters import ArmCounters
from covey.kernel.layout import Layout
from covey.kernel.rules import Rule
from covey.kernel.table import CellPolicy, Clock

if cython.compiled:
    from cython.cimports.libc.math import exp, log, rint, sqrt
else:
    from math import exp, log, sqrt

    from covey.kernel.cells import ARRIVALS, BEST, BEST_OWN, LEVEL, PARENT, doubles, integers
    from covey.kernel.counters import CLOSED, EXPLOIT, EXPLORE, FOREVER, UNPAID

    rint = round
    # What a detector keeps: for own decisions, for answers to peers, and for each free function.
    LARGE, SMALL, COUNT, UNTIL, LIMIT, ERRORS, VARIANCE, FILLED, RATIO, BLOCKS = range(10)
    WATCHED = 10
    # Sums of regressions: of own decisions, then those of answers to peers.
    PRODUCTS, SQUARES, RESIDUALS, RESIDUAL_COUNT, OF_SERVED = range(5)
    ARRIVING, ROUND, DECIDED, LEAD, COMPARED, ONE_CELL = range(8, 14)
    BLOCK = 32  # labels over which the dependence of errors is measured
    USUAL_BLOCKS = 8  # what the dependence is worth before it is measured
    LONGEST = 64  # slots after which nothing of a deviation is left
    PATIENCE = 100  # labels that are taken as arrived, when the share that arrives is measured
    WHOLE_LABEL = 1 << 20  # what labels are worth is a fixed-point number: sums are exact
    GOLDEN = 1327217885  # the golden ratio, of 31 bits: its multiples are spread evenly
    SILVER = 889516852  # the square root of 2, in the same way
    TURN = (1 << 31) - 1
    ENOUGH = 4  # labels of an arm, before a change of its accuracy is looked for
    EVIDENCE_UNIT = 1 << 20
    PRIOR_LABELS = 1.0  # the accuracy in the coarsest cell: mean 1/2, variance 1/4
    PRIOR_MEAN = 0.5
    LEAST_BELIEF = 0.02  # where labels are tested, beliefs are at least this far from 0 and 1
    LEAST_MEAN = 0.1  # of an index without logarithms
    LOWER_SHARE = 0.75  # of the estimate, after a change that `share-ucb` looks for
    # Two sums test against falls to these shares of what is believed.
    LARGE_FALL = 0.5
    SMALL_FALL = 0.85
    USUAL_DEPENDENCE = 2.0  # variance of a block to that of independent errors, before that
    # Errors in runs: what the latest labels of an arm, forgotten by the slot, say of the next one.
    REMEMBERED = 0.75  # of a deviation, a slot later
    SURE = 3.0  # standard deviations by which they must differ from independent ones
    UNSURE = 8.99  # less than its square

# Nodes and half the weights of a rule of Gauss for integrals of x * g(x) from 0 to 1.
NEAR_NODE, FAR_NODE = (6.0 - sqrt(6.0)) / 10.0, (6.0 + sqrt(6.0)) / 10.0
AT_NEAR, AT_FAR = (9.0 - sqrt(6.0)) / 36.0, (9.0 + sqrt(6.0)) / 36.0
LOG_LARGE_FALL, LOG_SMALL_FALL = log(LARGE_FALL), log(SMALL_FALL)
EVIDENCE_RIGHT = int(rint(log(LOWER_SHARE) * EVIDENCE_UNIT))  # for a correct answer
USUAL_MARGIN = 5.0  # of the comparison with one cell, if there is no change detection


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
        """Choose by the indices of own functions and the reports of peers."""
        self.clock.round_up(slot)
        base = row * self.stride
        chosen = self._most_valuable(base, slot)
        if chosen >= self.functions and not self.ignores_reports:
            self.wanted = chosen - self.functions
            if self.cells.rows[base + self.reports + 2 * self.wanted] != slot:
                return -1
        return chosen << 2 | (EXPLOIT if self.counters.best(base) == chosen else EXPLORE)

    def is_waiting(self, row: int, slot: int) -> bool:
        """Return whether the best arm is a peer whose report is of an earlier slot."""
        return self.choose(row, slot, False) < 0

    def wanted_from(self, row: int, peer: int) -> int:
        """Return the peer that looks best."""
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
        """Return the own function with the largest index."""
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
            self.highest = self.cells.reals[base + self.values + 2 * self.asked + 1]
            return 0
        self.highest = 0.0
        for function in range(self.functions):
            self.highest = max(self.highest, self._bound_by(base, function, 0))
        return 0

    def hear(self, row: int, peer: int, arrivals: int, low: float, high: float, slot: int) -> int:
        """Take the report of a peer, unless a change was detected."""
        if not self.ignores_reports:
            at = row * self.stride + self.reports + 2 * peer
            self.cells.rows[at] = slot
            self.cells.reals[at + 1] = high
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


class TreeBelief:
    """What the labels of an arm say of its accuracy in a cell, by the tree of cells or by one cell.

    The accuracy in a cell is that in the parent cell plus a Gaussian deviation, whose variance is a
    quarter from level to level. A label weighs as much as one of a fair coin. Per cell and arm two
    numbers are kept: how many labels the cell's subtree is worth, and how many of them are right.
    By how much they shrink is kept beside them, so that a belief is read without divisions.
    """

    def __init__(self, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        tree = rule.tree
        assert tree is not None
        self.counters, self.cells = counters, counters.cells
        self.stride, self.labels, self.right = layout.stride, layout.labels, layout.right
        self.info, self.shrunk, self.underway = layout.info, layout.shrunk, layout.underway
        self.arms, self.unit = layout.arms, rule.unit
        self.is_pending, self.is_layered = layout.is_pending, len(rule.levels) > 1
        # The variance of the deviation of a cell from its parent, in units of a label's: how much
        # each fixed-point unit of information shrinks.
        levels = len(rule.levels)
        self.block = block(8 * (2 * levels + 1))
        self.shrink = doubles(self.block, 0, levels)
        for k in range(levels):
            self.shrink[k] = 4 * (tree.spread / rule.levels[k].side) ** 2 / WHOLE_LABEL
        self.mean = self.variance = 0.0  # what `believe` found; a label's variance is 1
        # Contexts seem to say nothing: all labels of an arm count alike. `lead` speaks for that, by
        # so many `compared` labels; the current decision may try the tree in spite of it.
        self.uses_one_cell = self.tries_tree = False
        self.lead = self.compared = 0
        self.limit = 0  # of the lead, by fewer compared labels
        self.trust = tree.alarm if tree.alarm > 0 else USUAL_MARGIN
        # Where the cells around the row `standing` begin, by their level; its own is `depth`.
        self.chain = integers(self.block, levels, levels + 1)
        self.standing, self.depth = -1, 0

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

    def is_alike(self) -> bool:
        """Return whether the current decision is by one cell."""
        return self.uses_one_cell and not self.tries_tree

    def believe(self, row: int, arm: int) -> int:
        """Set `mean` and `variance` to what all labels of an arm say of its accuracy in a cell."""
        if self.uses_one_cell and not self.tries_tree:
            return self.believe_alike(row, arm)
        return self.infer(row, arm)

    def believe_alike(self, row: int, arm: int) -> int:
        """Do the same as if contexts said nothing."""
        self.climb(row)
        base = self.chain[0]
        right = float(self.cells.rows[base + self.right + arm]) / self.unit
        self.variance = 1.0 / (PRIOR_LABELS + self.cells.rows[base + self.labels + arm])
        self.mean = (PRIOR_LABELS * PRIOR_MEAN + right) * self.variance
        return 0

    def infer(self, row: int, arm: int) -> int:
        """Do the same by the tree.

        Down the tree, the belief of a cell is its parent's, joined with what is known below it.
        """
        self.climb(row)
        rows, reals = self.cells.rows, self.cells.reals
        at = self.chain[0] + self.info + 2 * arm
        variance = 1.0 / (PRIOR_LABELS * WHOLE_LABEL + rows[at])
        mean = (PRIOR_LABELS * WHOLE_LABEL * PRIOR_MEAN + rows[at + 1]) * variance
        for level in range(1, self.depth + 1):
            at = self.chain[level] + self.shrunk + 2 * arm
            part = reals[at]
            if part == 0.0:  # a cell without labels
                variance = variance + self.shrink[level]
            else:
                mean = (mean + reals[at + 1]) * part
                variance = (variance * part + self.shrink[level]) * part
        self.mean = min(1.0, max(0.0, mean))
        self.variance = variance * WHOLE_LABEL
        return 0

    def under_way(self, row: int, arm: int) -> int:
        """Return how many labels the pending ones of an arm will be worth to `believe`, at most.

        The pending labels around the row are summed in cells of every size. What finer cells may
        differ by makes those of a large cell worth less.
        """
        if not self.is_pending or self.counters.expected_labels == 0:
            return 0
        self.climb(row)
        at = self.underway + arm
        if not self.is_layered or (self.uses_one_cell and not self.tries_tree):
            return self.cells.rows[self.chain[0] + at]
        most = 0
        for level in range(self.depth + 1):
            labels = self.cells.rows[self.chain[level] + at]
            if labels == 0:
                break
            hidden = self.shrink[level] * WHOLE_LABEL / 3.0
            most = max(most, whole(labels / (1.0 + hidden * labels)))
        return most

    def compare(self, row: int, arm: int, correct: float, fine: float) -> bool:
        """Note whether one cell or the tree predicts a label better; return whether that changes.

        `fine` is what the tree predicts. One cell is used when the sum of log-likelihood ratios
        exceeds a limit as that of the change detection, until it is below 0 again.
        """
        fine = min(1.0 - LEAST_BELIEF, max(LEAST_BELIEF, fine))
        self.believe_alike(row, arm)
        plain = min(1.0 - LEAST_BELIEF, max(LEAST_BELIEF, self.mean))
        ratio = 0.0
        if correct > 0.0:
            ratio = correct * log(plain / fine)
        if correct < 1.0:
            ratio += (1.0 - correct) * log((1.0 - plain) / (1.0 - fine))
        self.compared += 1
        lead = self.lead + fixed(ratio)
        is_better = self.uses_one_cell and lead >= 0
        # The limit grows: a lead within an earlier one needs no logarithm.
        if lead <= -self.limit or lead >= self.limit:
            self.limit = fixed(self.trust + log(1.0 + self.compared))
            lead = min(self.limit, max(-self.limit, lead))
            is_better = lead >= (0 if self.uses_one_cell else self.limit)
        self.lead = lead
        if is_better == self.uses_one_cell:
            return False
        self.uses_one_cell = is_better
        return True

    def add_label(self, row: int, arm: int, gain: int, expected: float) -> int:
        """Add a label to a cell and, as far as it tells of them, to its parents.

        `expected` is what the latest labels foretold of it.
        """
        self.climb(row)
        rows, reals = self.cells.rows, self.cells.reals
        worth = WHOLE_LABEL
        right = WHOLE_LABEL * gain if self.unit == 1 else WHOLE_LABEL * gain // self.unit
        right -= fixed(expected)
        for level in range(self.depth, -1, -1):
            base = self.chain[level]
            rows[base + self.labels + arm] += 1
            rows[base + self.right + arm] += gain
            at = base + self.info + 2 * arm
            labels = rows[at]
            correct = rows[at + 1]
            worth += labels
            right += correct
            rows[at] = worth
            rows[at + 1] = right
            if level > 0:
                at = base + self.shrunk + 2 * arm
                before = reals[at] if reals[at] != 0.0 else 1.0
                after = 1.0 / (1.0 + self.shrink[level] * worth)
                reals[at] = after
                reals[at + 1] = self.shrink[level] * right
                worth = whole(worth * after) - whole(labels * before)
                right = whole(right * after) - whole(correct * before)
        self.outdate(arm)
        return 0

    def derive(self, row: int, arm: int) -> None:
        """Compute how much the labels of an arm shrink, in a cell and its parents."""
        self.standing = -1
        self.climb(row)
        rows, reals = self.cells.rows, self.cells.reals
        for level in range(self.depth + 1):
            at = self.chain[level] + self.info + 2 * arm
            to = self.chain[level] + self.shrunk + 2 * arm
            reals[to] = 1.0 / (1.0 + self.shrink[level] * rows[at])
            reals[to + 1] = self.shrink[level] * rows[at + 1]
        self.outdate(arm)

    def forget(self, first: int, end: int) -> None:
        """Reset the labels of the arms from `first` to before `end`, in every cell."""
        rows, marks = self.cells.rows, self.cells.marks
        for row in range(self.cells.used):
            base = row * self.stride
            for arm in range(first, end):
                rows[base + self.labels + arm] = rows[base + self.right + arm] = 0
                for k in range(2):
                    rows[base + self.info + 2 * arm + k] = 0
                    rows[base + self.shrunk + 2 * arm + k] = 0
            marks[2 * base + BEST] = marks[2 * base + BEST_OWN] = -1
        for arm in range(first, end):
            self.outdate(arm)

    def outdate(self, arm: int) -> None:
        """Let what was computed of an arm be computed again."""
        self.counters.versions[arm] += 1
        self.counters.learnt[arm] += 1


class FallTest:
    """Tests labels for lower accuracies than what is believed, by several detectors.

    The log-likelihood ratios are divided by the measured dependence of errors.
    """

    def __init__(self, detectors: int, margin: float) -> None:
        self.margin = margin
        self.count = detectors * WATCHED
        self.block = block(8 * 2 * self.count)
        self.watch = integers(self.block, 0, self.count)
        self.units = doubles(self.block, self.count, self.count)  # at a detector's first
        self.set_units()

    def is_fall(self, believed: float, gain: float, first: int) -> bool:
        """Test a label by the detector that begins at `first`; return whether it is an alarm."""
        watch = self.watch
        believed = min(1.0 - LEAST_BELIEF, max(LEAST_BELIEF, believed))
        unit = self.units[first]
        large = gain * LOG_LARGE_FALL
        small = gain * LOG_SMALL_FALL
        if gain < 1.0:
            large += (1.0 - gain) * log((1.0 - LARGE_FALL * believed) / (1.0 - believed))
            small += (1.0 - gain) * log((1.0 - SMALL_FALL * believed) / (1.0 - believed))
        watch[first + LARGE] = max(0, watch[first + LARGE] + whole(large * unit))
        watch[first + SMALL] = max(0, watch[first + SMALL] + whole(small * unit))
        if watch[first + COUNT] >= watch[first + UNTIL]:
            watch[first + UNTIL] = 2 * watch[first + COUNT] + 2
            watch[first + LIMIT] = fixed(self.margin + log(float(watch[first + UNTIL])))
        watch[first + COUNT] += 1
        if max(watch[first + LARGE], watch[first + SMALL]) > watch[first + LIMIT]:
            return True
        watch[first + ERRORS] += fixed(gain - believed)
        watch[first + VARIANCE] += fixed(believed * (1.0 - believed))
        watch[first + FILLED] += 1
        if watch[first + FILLED] == BLOCK:
            errors = float(watch[first + ERRORS])
            watch[first + RATIO] += whole(errors * errors / watch[first + VARIANCE])
            watch[first + BLOCKS] += 1
            watch[first + ERRORS] = watch[first + VARIANCE] = watch[first + FILLED] = 0
            self.set_units()
        return False

    def set_units(self) -> None:
        """Set the fixed-point units of log-likelihood ratios, divided by the dependence."""
        for first in range(0, self.count, WATCHED):
            weight = float(USUAL_BLOCKS + self.watch[first + BLOCKS])
            measured = USUAL_DEPENDENCE * USUAL_BLOCKS + unfixed(self.watch[first + RATIO])
            self.units[first] = WHOLE_LABEL / max(1.0, measured / weight)

    def restart(self, first: int) -> None:
        """Begin a test for changes anew; the dependence of errors stays known."""
        for k in (LARGE, SMALL, COUNT, UNTIL, ERRORS, VARIANCE, FILLED):
            self.watch[first + k] = 0


class ErrorRuns:
    """Errors in runs: what the latest labels of an arm foretell of the next one."""

    def __init__(self, arms: int, functions: int) -> None:
        self.arms = arms
        # Sums of the regression of errors on earlier ones, in own decisions and in answers; then
        # the share of labels that arrive, the rounded slot of that, and, when they are stored, own
        # decisions and the comparison with one cell.
        self.block = block(8 * (14 + 2 * arms + functions + LONGEST))
        self.sums = integers(self.block, 0, 14)
        self.sums[ARRIVING] = WHOLE_LABEL
        self.slope = self.slope_served = 0.0  # of the regressions, as far as they are certain
        # An arm's latest deviations, summed; then those of own functions in answers to peers.
        self.moods = integers(self.block, 14, 2 * arms + functions)  # with their slots
        self.mood_slots = integers(self.block, 14 + arms + functions, arms)
        self.fading = doubles(self.block, 14 + 2 * arms + functions, LONGEST)
        for k in range(LONGEST):
            self.fading[k] = REMEMBERED**k

    def mood(self, arm: int, slot: int) -> float:
        """Return what is left at `slot` of the latest deviations of an arm."""
        age = max(0, slot - self.mood_slots[arm])
        if age >= LONGEST:
            return 0.0
        return unfixed(self.moods[arm]) * self.fading[age]

    def note_error(self, arm: int, error: float, slot: int) -> float:
        """Learn from the deviation of a label from what was believed; return what was expected."""
        mood = self.mood(arm, slot)
        expected = self.slope * mood
        self._regress(0, mood, error)
        self.slope = self.sure_slope(0)
        self.moods[arm] = fixed(mood + error)
        self.mood_slots[arm] = max(slot, self.mood_slots[arm])
        return expected

    def note_served_error(self, function: int, error: float) -> float:
        """Do the same for an answer to a peer; slots of peers are not those of this learner."""
        mood = unfixed(self.moods[self.arms + function]) * REMEMBERED
        expected = self.slope_served * mood
        self._regress(OF_SERVED, mood, error)
        self.slope_served = self.sure_slope(OF_SERVED)
        self.moods[self.arms + function] = fixed(mood + error)
        return expected

    def _regress(self, first: int, mood: float, error: float) -> None:
        self.sums[first + PRODUCTS] += fixed(mood * error)
        self.sums[first + SQUARES] += fixed(mood * mood)
        self.sums[first + RESIDUALS] += fixed(error * error)
        self.sums[first + RESIDUAL_COUNT] += 1

    def sure_slope(self, first: int) -> float:
        """Return the lower end of the interval of a slope, at least 0."""
        products = unfixed(self.sums[first + PRODUCTS])
        squares = unfixed(self.sums[first + SQUARES])
        residuals = unfixed(self.sums[first + RESIDUALS])
        count = float(self.sums[first + RESIDUAL_COUNT])
        # Small sums may have squares of 0. Mostly it is clear without quotients that the slope is
        # below its margin.
        if products <= 0.0 or squares <= 0.0:
            return 0.0
        if products * products * count < UNSURE * residuals * squares:
            return 0.0
        margin: float = SURE * sqrt(residuals / count / squares)
        return max(0.0, products / squares - margin)


class AutoPolicy(CellPolicy):
    """Chooses by the mean of an arm plus a share of its width; the share changes by the slot."""

    def __init__(self, clock: Clock, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        tree = rule.tree
        assert tree is not None
        CellPolicy.__init__(self, clock, rule, layout, counters)
        self.belief = TreeBelief(rule, layout, counters)
        self.changes = FallTest(2 + self.functions, tree.alarm)
        self.runs = ErrorRuns(self.arms, self.functions)
        self.scale = tree.scale
        self.alarm = 1 if tree.alarm > 0 else 0
        self.offset = rule.offset & TURN
        self.share = 1.0  # of the width, for the current decision
        self.expected = 0.0  # what the latest labels foretold of the current one
        self.wanted = -1  # the peer to be asked next
        # What each arm may be worth in the current decision, and what it is worth on average.
        arms = self.arms
        self.block = block(8 * (4 * arms + self.functions))
        self.offers, self.averages = doubles(self.block, 0, arms), doubles(self.block, arms, arms)
        self.round = 0  # the rounded slot of the latest index
        # Per row and arm: the version of its labels, mean and variance by these, the version of
        # its index, and that. Per row and peer: the slot of its report, mean and index. Peers that
        # see the cell only do not report.
        self.values, self.reports = layout.values, layout.reports
        # Where contexts say nothing: the version and the index of each arm, in any row.
        self.alike_versions = integers(self.block, 2 * arms, arms)
        self.alike = doubles(self.block, 3 * arms, arms)
        self.labelled = integers(self.block, 4 * arms, self.functions)  # a function's last slot
        for function in range(self.functions):
            self.labelled[function] = -1

    # -- decisions -----------------------------------------------------------------------------

    def choose(self, row: int, slot: int, is_fresh: bool) -> int:
        """Choose by own beliefs and the reports of peers."""
        self._start(slot)
        self._measure()
        self.share = float(((slot & TURN) * GOLDEN + self.offset) & TURN) / TURN
        self._try_tree(self.belief.uses_one_cell and self._is_try(slot))
        judged = self.asked if self.ignores_reports else self.functions  # by own labels
        self._refresh(row, 0, judged)
        self._refresh(row, self.asked, self.arms)
        self._consider(row, 0, self.arms, judged, slot)
        return self._pick(row, slot)

    def choose_again(self, row: int, slot: int) -> int:
        """Do the same after the report of the peer that was wanted."""
        arm = self.functions + self.wanted
        self._consider(row, arm, arm + 1, arm, slot)
        return self._pick(row, slot)

    def is_waiting(self, row: int, slot: int) -> bool:
        """Return whether the best arm is a peer whose report is of an earlier slot."""
        return self.choose(row, slot, False) < 0

    def wanted_from(self, row: int, peer: int) -> int:
        """Return the peer that looks best."""
        is_open = self.counters.costs[self.functions + self.wanted] < CLOSED
        return self.wanted if self.wanted >= peer and is_open else -1

    def _start(self, slot: int) -> None:
        """Set what indices depend on besides labels: ln t."""
        self.clock.round_up(slot)
        if self.round != self.clock.rounded:
            self.round = self.clock.rounded
            self._outdate()

    def _outdate(self) -> None:
        """Let indices by own labels be computed again."""
        for arm in range(self.arms):
            self.counters.versions[arm] += 1

    def _doubt(self) -> None:
        """Let beliefs and indices by own labels be computed again."""
        for arm in range(self.arms):
            self.belief.outdate(arm)

    def _measure(self) -> None:
        """Measure the share of labels that arrive: at own decisions, whenever peers ask."""
        sums = self.runs.sums
        if sums[ROUND] != self.clock.rounded:
            sums[ROUND] = self.clock.rounded
            labels = float(sums[RESIDUAL_COUNT] + PATIENCE)
            share = labels / (max(sums[RESIDUAL_COUNT], self.counters.decided) + PATIENCE)
            sums[ARRIVING] = fixed(share)
            self._outdate()

    def _try_tree(self, tries: bool) -> None:
        if tries != self.belief.tries_tree:
            self.belief.tries_tree = tries
            self._doubt()

    def _is_try(self, slot: int) -> bool:
        """Return whether a decision is by the tree in any case, so that better arms are found.

        These are 2 * sqrt(arms / t) of the decisions.
        """
        part = float(((slot & TURN) * SILVER + self.offset) & TURN) / TURN
        return part * part * slot < 4 * self.arms

    def _index(self, under_way: int) -> float:
        """Return the upper index of what `believe` found; pending labels narrow it."""
        bound = self.scale * self.clock.logarithm * self.belief.variance
        if under_way > 0:
            arriving = unfixed(under_way * self.runs.sums[ARRIVING])
            bound = bound / (1.0 + arriving * self.belief.variance)
        return upper(self.belief.mean, bound)

    def _refresh(self, row: int, first: int, end: int) -> None:
        """Bring means and indices of the arms from `first` to `end`, by own labels, up to date."""
        for arm in range(first, end):
            at = row * self.stride + self.values + 5 * arm
            if self.cells.rows[at + 3] == self.counters.versions[arm]:
                continue
            self.cells.rows[at + 3] = self.counters.versions[arm]
            self._believe(row, arm)
            if not self.belief.is_alike():
                self.cells.reals[at + 4] = self._index(self.belief.under_way(row, arm))
                continue
            if self.alike_versions[arm] != self.counters.versions[arm]:
                self.alike_versions[arm] = self.counters.versions[arm]
                self.alike[arm] = self._index(self.belief.under_way(row, arm))
            self.cells.reals[at + 4] = self.alike[arm]

    def _believe(self, row: int, arm: int) -> None:
        """Set mean and variance of the belief, which are kept until a label of the arm comes."""
        at = row * self.stride + self.values + 5 * arm
        if self.cells.rows[at] == self.counters.learnt[arm]:
            self.belief.mean = self.cells.reals[at + 1]
            self.belief.variance = self.cells.reals[at + 2]
            return
        self.belief.believe(row, arm)
        self.cells.rows[at] = self.counters.learnt[arm]
        self.cells.reals[at + 1] = self.belief.mean
        self.cells.reals[at + 2] = self.belief.variance

    def _consider(self, row: int, first: int, end: int, judged: int, slot: int) -> int:
        """Set what arms from `first` to before `end` may be worth, and are worth on average.

        Those before `judged`, and peers that do not report, are judged by own labels.
        """
        reals, costs, base = self.cells.reals, self.counters.costs, row * self.stride
        for arm in range(first, end):
            if arm >= self.functions and costs[arm] >= CLOSED:
                self.offers[arm] = self.averages[arm] = -FOREVER
                continue
            if judged <= arm < self.asked:
                value = self._promise(row, arm, slot)
                mean = self.belief.mean
            else:
                at = base + self.values + 5 * arm
                mean = reals[at + 1]
                value = mean + self.share * (reals[at + 4] - mean)
            if self.runs.slope > 0.0:
                mood = self.runs.slope * self.runs.mood(arm, slot)
                value = value + mood
                mean = mean + mood
            price = costs[arm]
            if self.counters.learns_costs:
                price = self.counters.price(base, arm)
            if self.counters.has_rewards:
                self.offers[arm] = self.counters.net(arm, value, price)
                self.averages[arm] = self.counters.net(arm, mean, price)
            else:
                self.offers[arm] = value - price
                self.averages[arm] = mean - price
        return 0

    def _pick(self, row: int, slot: int) -> int:
        """Return the choice of the arm with the largest offer; -1 if its report is needed first."""
        chosen = best = 0 if self.functions > 0 else -1
        largest = highest = -FOREVER
        for arm in range(self.arms):
            if self.offers[arm] > largest:
                largest = self.offers[arm]
                chosen = arm
        if self._is_reported(chosen):
            self.wanted = chosen - self.functions
            if self.cells.rows[row * self.stride + self.reports + 3 * self.wanted] != slot:
                return -1
        for arm in range(self.arms):
            if self.averages[arm] > highest:
                highest = self.averages[arm]
                best = arm
        return chosen << 2 | (EXPLOIT if best == chosen else EXPLORE)

    def _is_reported(self, arm: int) -> bool:
        """Return whether an arm is judged by the reports of a peer, not by own labels."""
        return self.functions <= arm < self.asked and not self.ignores_reports

    def _promise(self, row: int, arm: int, slot: int) -> float:
        """Return the value of a peer by its report, and set the mean of the belief."""
        at = row * self.stride + self.reports + 3 * (arm - self.functions)
        if 2 * self.cells.rows[at] < slot:  # what it could report by now is not known
            self.belief.mean = 1.0
            return FOREVER
        mean = self.cells.reals[at + 1]
        highest = self.cells.reals[at + 2]
        is_pending = self.is_pending and self.counters.expected_labels > 0
        if is_pending or self.floors_training or self.belief.uses_one_cell:
            highest = self._check_promise(row, arm, mean, highest)
            mean = self.belief.mean
        self.belief.mean = mean
        return mean + self.share * (highest - mean)

    def _check_promise(self, row: int, arm: int, mean: float, highest: float) -> float:
        """Return the index of a peer that reported this, by own labels too; set its mean."""
        under_way = self.belief.under_way(row, arm)
        if under_way == 0 and not self.floors_training and not self.belief.uses_one_cell:
            self.belief.mean = mean
            return highest
        self._believe(row, arm)
        if self.belief.is_alike():
            own = self._index(under_way)
            if own - self.belief.mean < highest - mean:  # own labels say more than the report
                mean = self.belief.mean
                highest = own
        if under_way > 0:
            highest = min(highest, self._index(under_way))
        if self.floors_training:
            bound = self.clock.logarithm * self.belief.variance
            highest = min(highest, upper(self.belief.mean, bound))
        self.belief.mean = min(mean, highest)
        return highest

    # -- for peers -----------------------------------------------------------------------------

    def serve(self, row: int) -> int:
        """Return the own function with the largest index."""
        self._start(self.clock.now)
        self._try_tree(False)
        self._refresh(row, 0, self.functions)
        chosen = 0
        largest = -1.0
        for function in range(self.functions):
            value = self.cells.reals[row * self.stride + self.values + 5 * function + 4]
            if value > largest:
                largest = value
                chosen = function
        return chosen

    def report(self, row: int, slot: int) -> int:
        """Tell the largest mean and the largest index of own functions, by settled labels."""
        self.arrived = self.cells.rows[row * self.stride + ARRIVALS]
        self._start(slot)
        self._try_tree(False)
        self._refresh(row, 0, self.functions)
        self.lowest = self.highest = 0.0
        for function in range(self.functions):
            at = row * self.stride + self.values + 5 * function
            highest = self.cells.reals[at + 4]
            self.lowest = max(self.lowest, self.cells.reals[at + 1])
            if self.is_pending and self.belief.under_way(row, function) > 0:
                self._believe(row, function)
                highest = self._index(0)
            self.highest = max(self.highest, highest)
        return 0

    def hear(self, row: int, peer: int, arrivals: int, low: float, high: float, slot: int) -> int:
        """Take the report of a peer, unless a change was detected."""
        if not self.ignores_reports:
            at = row * self.stride + self.reports + 3 * peer
            self.cells.rows[at] = slot
            self.cells.reals[at + 1] = low
            self.cells.reals[at + 2] = max(low, high)
        return 0

    # -- labels --------------------------------------------------------------------------------

    def learn_now(self, row: int, arm: int, phase: int, gain: int, slot: int) -> int:
        """Count an own decision and record its label, which comes at once."""
        self.counters.count_own(row, 1)
        AutoPolicy.learn(self, row, arm, phase, gain, slot, UNPAID)
        return 0

    def learn(self, row: int, arm: int, phase: int, gain: int, slot: int, paid: int) -> int:
        """Record the label of an own decision."""
        if not AutoPolicy.is_credible(self, row, arm, gain, slot, False):
            return 0
        if arm >= self.functions or self._is_first(arm, slot):
            self.belief.add_label(row, arm, gain, self.expected)
        if self.counters.learns_costs:
            self.counters.spend(row * self.stride, arm, paid)
        return 0

    def learn_served(self, row: int, function: int, gain: int, slot: int) -> int:
        """Record the label of a peer's instance."""
        if not self._is_first(function, slot):
            return 0
        if AutoPolicy.is_credible(self, row, function, gain, slot, True):
            self.belief.add_label(row, function, gain, self.expected)
        return 0

    def score(self, row: int, function: int, gain: int, slot: int, is_served: bool) -> int:
        """Record the label of a free function, and test it for a rise of its accuracy."""
        if slot <= self.forgotten or not self._is_first(function, slot):
            return 0
        if self.alarm and self._is_rise(row, function, gain):
            self.belief.forget(function, function + 1)
            self.runs.moods[function] = self.runs.moods[self.arms + function] = 0
            self.changes.restart((2 + function) * WATCHED)
            self.note_alarm(slot)
            return 0
        self.expected = 0.0
        self.belief.add_label(row, function, gain, 0.0)
        return 0

    def _is_rise(self, row: int, function: int, gain: int) -> bool:
        """Test the label of a free function for a higher accuracy: a fall of its errors."""
        self._try_tree(False)
        self.belief.believe(row, function)
        error = 1.0 - float(gain) / self.counters.unit
        return self.changes.is_fall(1.0 - self.belief.mean, error, (2 + function) * WATCHED)

    def _is_first(self, function: int, slot: int) -> bool:
        """Return whether a label is the first of its slot, if learners share each instance."""
        if self.counters.once and self.labelled[function] == slot:
            return False
        self.labelled[function] = slot
        return True

    def is_credible(self, row: int, arm: int, gain: int, slot: int, is_served: bool) -> bool:
        """Update the change detection; on an alarm reset the statistics and return False."""
        if slot <= self.forgotten:
            return False
        self._try_tree(False)
        report = row * self.stride + self.reports + 3 * (arm - self.functions)
        self._believe(row, arm)
        believed = fine = self.belief.mean
        if self._is_reported(arm) and self.cells.rows[report]:
            believed = self.cells.reals[report + 1]
        correct = float(gain) / self.counters.unit
        if self.belief.is_layered:
            if self.belief.uses_one_cell:
                self.belief.infer(row, arm)
                fine = self.belief.mean
            if self.belief.compare(row, arm, correct, fine):
                self._doubt()
        # What the latest labels foretold is no sign of a change. Nor are answers that are better
        # for now a sign of the accuracy in the long run: an arm is used more while it is right.
        if is_served:
            self.expected = self.runs.note_served_error(arm, correct - believed)
        else:
            self.expected = self.runs.note_error(arm, correct - believed, slot)
        believed = believed + self.expected
        self.expected = 0.5 * max(0.0, self.expected)
        first = WATCHED if is_served else 0
        if not self.alarm or not self.changes.is_fall(believed, correct, first):
            return True
        self.forget(self.functions if is_served else self.arms)
        self.ignores_reports = self.ignores_reports or not is_served
        self.forgotten = slot
        self.note_alarm(slot)
        return False

    # -- changes, and what is kept besides counters --------------------------------------------

    def derive(self, row: int) -> int:
        """Compute again how much labels shrink."""
        for arm in range(self.arms):
            self.belief.derive(row, arm)
        return 0

    def forget(self, end: int) -> int:
        """Reset what is known of the arms before `end`, in every cell."""
        self.belief.forget(0, end)
        for arm in range(end):
            self.runs.moods[arm] = 0
        for function in range(self.functions):
            self.runs.moods[self.arms + function] = 0
        if end == self.arms:
            for row in range(self.cells.used):
                for peer in range(self.asked - self.functions):
                    self.cells.rows[row * self.stride + self.reports + 3 * peer] = 0
            self.changes.restart(0)
            self.belief.lead = 0
            self.belief.uses_one_cell = False
        self.changes.restart(WATCHED)
        for function in range(self.functions):
            self.changes.restart((2 + function) * WATCHED)
        return 0

    def state(self) -> list[int]:
        """Return the state of the change detection: first how many arms and functions it is of.

        Where the tests of free functions follow, the number of arms is written below 0.
        """
        sums, watch = self.runs.sums, self.changes.watch
        sums[DECIDED] = self.counters.decided
        sums[LEAD], sums[COMPARED] = self.belief.lead, self.belief.compared
        sums[ONE_CELL] = self.belief.uses_one_cell
        rises = [watch[k] for k in range(2 * WATCHED, self.changes.count)]
        kept = [-1 - self.arms if any(rises) else self.arms, self.functions]
        kept += [watch[k] for k in range(2 * WATCHED)] + [sums[k] for k in range(14)]
        # Moods and their slots follow each other.
        kept += [self.runs.moods[k] for k in range(2 * self.arms + self.functions)]
        return kept + (rises if any(rises) else []) + CellPolicy.state(self)

    def restore(self, state: list[int]) -> None:
        """Restore the result of `state`; nothing is known of the latest labels of other arms."""
        has_rises = state[0] < 0
        arms, functions = (-1 - state[0] if has_rises else state[0]), state[1]
        is_same = [arms, functions] == [self.arms, self.functions]
        for k in range(2 * WATCHED):
            self.changes.watch[k] = state[2 + k]
        at = 2 + 2 * WATCHED
        for k in range(14):
            self.runs.sums[k] = state[at + k]
        at += 14
        for k in range(2 * arms + functions if is_same else 0):
            self.runs.moods[k] = state[at + k]
        at += 2 * arms + functions
        if has_rises:
            for k in range(functions * WATCHED if is_same else 0):
                self.changes.watch[2 * WATCHED + k] = state[at + k]
            at += functions * WATCHED
        runs, belief = self.runs, self.belief
        self.counters.decided = runs.sums[DECIDED]
        belief.lead, belief.compared, belief.limit = runs.sums[LEAD], runs.sums[COMPARED], 0
        belief.uses_one_cell = runs.sums[ONE_CELL] > 0
        runs.slope, runs.slope_served = runs.sure_slope(0), runs.sure_slope(OF_SERVED)
        self.changes.set_units()
        CellPolicy.restore(self, state[at:])
