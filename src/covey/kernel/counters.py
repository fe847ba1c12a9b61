# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Counters of arms in cells: labels, estimates, costs, and labels that have not arrived yet.

A source of labels is the learner's own clients, or the peers whose instances it labelled. From time
to time the pending labels of a source are counted, and from then on those of them that arrive.
The share is that of the last such period, so it is too small rather than too large.
"""

from __future__ import annotations

from typing import Any

import cython

from covey.errors import DataError
from covey.kernel.cells import Cells, block
from covey.kernel.layout import Layout
from covey.kernel.rules import Rule

if not cython.compiled:
    from covey.kernel.cells import (
        ARRIVALS,
        BEST,
        BEST_OWN,
        COORDINATES,
        LEVEL,
        NEXT_TEST,
        OWN,
        PARENT,
        doubles,
        integers,
    )

    TRAIN, EXPLORE, EXPLOIT, SERVE = range(4)
    WAITS = 14  # numbers that are kept of the labels of own clients and of peers
    # What is counted of a source: instances so far, when the next period begins, the slot at which
    # this one began, the labels pending then, those that have arrived, and both of the one before.
    INSTANCES, DUE, SINCE_SLOT, POOL, CAME, LAST_POOL, LAST_CAME = range(7)
    OF_PEERS = 7  # where that of peers begins
    FIRST_PERIOD = 16  # instances; each period is as long as all before it
    LONGEST_PERIOD = 4096
    MILLIONTHS = 1000000  # unit of costs
    # Discounted counts are fixed-point numbers: the same on every platform.
    ONE = 1 << 16
    KEEP_BITS = 30
    UNPAID = -(1 << 60)  # no observed cost
    CLOSED = 1e300  # cost of an unavailable arm
    FOREVER = float("inf")

NO_REWARDS: list[Any] = []
NO_WAITS = bytearray(8 * 2 * WAITS)  # shared by all that weigh no pending labels


class ArmCounters:
    """What one learner counts in the cells of one context space."""

    def __init__(self, rule: Rule, layout: Layout, cells: Cells) -> None:
        self.cells = cells
        self.arms, self.functions, self.asked = layout.arms, layout.functions, layout.asked
        self.labels, self.right = layout.labels, layout.right
        self.underway, self.underway_served = layout.underway, layout.underway_served
        self.spent, self.times = layout.spent, layout.times
        self.recent, self.recent_right = layout.recent, layout.recent_right
        self.last, self.ring, self.beliefs = layout.last, layout.ring, layout.beliefs
        self.values, self.summed = layout.values, layout.summed
        self.is_pending, self.weighs = layout.is_pending, layout.weighs
        self.learns_costs, self.forgets = layout.learns_costs, layout.forgets
        self.dates_labels, self.has_tree = layout.dates_labels, layout.has_tree
        self.ignores_prices = rule.ignores_prices
        self.is_closing = False  # some arms are unavailable for the current decision
        self.explores_to_help, self.counts_labelled = rule.explores_to_help, rule.counts_labelled
        self.unit, self.window = rule.unit, rule.window
        self.keep = int(rule.discount * (1 << KEEP_BITS))  # the discount, fixed-point
        # Own decisions, and those with no label at any learner that could be asked.
        self.decided = self.blind = 0
        self.largest, self.once = 0.0, False  # value that `weigh` chose; one label a slot counts
        self.custom_rewards = rule.custom_rewards() or NO_REWARDS  # per arm; None: the formula
        self.has_rewards, self.has_custom_rewards = len(rule.rewards) > 0, any(self.custom_rewards)
        self.expected_labels = 0  # pending ones of all rows; 0: no row has any
        self._divide_block(rule.formulas())
        for arm in range(self.arms):
            self.costs[arm] = self.prices[arm] = self._cost_of(rule.costs[arm])
            if self.has_tree:
                self.learnt[arm] = 1

    def _divide_block(self, formulas: list[float]) -> None:
        """Make the block of all small arrays."""
        arms, dated = self.arms, self.arms if self.has_tree else 0
        first = 3 * arms + dated + len(formulas)
        self.block = block(8 * (first + 2 + (2 * WAITS if self.weighs else 0)))
        self.costs = doubles(self.block, 0, arms)
        self.prices = doubles(self.block, arms, arms)  # the costs of available arms
        self.told = doubles(self.block, 2 * arms, arms)  # accuracies reported by peers
        self.learnt = integers(self.block, 3 * arms, dated)  # goes up when labels of an arm do
        self.version = 0  # goes up when pending labels do
        self.rewards = doubles(self.block, 3 * arms + dated, len(formulas))
        for k in range(len(formulas)):
            self.rewards[k] = formulas[k]
        self.pending_of = integers(self.block, first, 2)  # labels: of own clients, and of peers
        memory, first = (self.block, first + 2) if self.weighs else (NO_WAITS, 0)
        self.waits = integers(memory, first, WAITS)  # what is known of earlier ones
        self.waits_there = integers(memory, first + WAITS, WAITS)  # in a combined table

    def nbytes(self) -> int:
        """Return the memory of rows and index, including unused capacity."""
        return 8 * self.cells.capacity + 4 * self.cells.places

    # -- estimates -----------------------------------------------------------------------------

    def best(self, base: int) -> int:
        """Return the arm that is worth most in a row, which begins at `base`."""
        marks = self.cells.marks
        if self.is_closing:
            return self.most(base, self.arms, True)
        # Rewards can depend on the context: the best arm of a cell cannot be cached.
        if marks[2 * base + BEST] < 0 or self.has_rewards:
            marks[2 * base + BEST] = self.most(base, self.arms, True)
        return marks[2 * base + BEST]

    def most_accurate(self, base: int) -> int:
        """Return the own function with the largest estimate."""
        marks = self.cells.marks
        if marks[2 * base + BEST_OWN] < 0:
            marks[2 * base + BEST_OWN] = self.most(base, self.functions, False)
        return marks[2 * base + BEST_OWN]

    def most(self, base: int, end: int, is_net: bool) -> int:
        """Return the arm before `end` with the largest estimate, `is_net`: its cost subtracted."""
        chosen = 0
        largest = -FOREVER
        for arm in range(end):
            value = self.accuracy(base, arm)
            if is_net:
                value = self.worth(base, arm, value)
            # A greedy helper does not explore; ties go to the last function.
            is_later = value == largest and not is_net and not self.explores_to_help
            if value > largest or is_later:
                largest = value
                chosen = arm
        return chosen

    def price(self, base: int, arm: int) -> float:
        """Return the arm's fixed cost plus the mean of its learnt variable cost."""
        rows = self.cells.rows
        price = self.costs[arm]
        if self.learns_costs and rows[base + self.times + arm] > 0:
            times = float(rows[base + self.times + arm]) * MILLIONTHS
            price += rows[base + self.spent + arm] / times
        return price

    def weigh(self, base: int, seen: int) -> int:
        """Exploit by accuracies (`told`): by labels from serving, and as peers report them."""
        chosen = 0
        for arm in range(self.arms):
            value = self.worth(base, arm, self.told[arm])
            if arm == 0 or value > self.largest:
                self.largest = value
                chosen = arm
        self.blind += seen == 0
        return chosen

    def worth(self, base: int, arm: int, accuracy: float) -> float:
        """Return the reward of an arm of this accuracy, its cost subtracted."""
        return self.net(arm, accuracy, self.price(base, arm))

    def net(self, arm: int, accuracy: float, price: float) -> float:
        """Return the same for a price."""
        if self.has_rewards:
            return self._reward(arm, accuracy, price)
        return accuracy - price

    def _reward(self, arm: int, accuracy: float, price: float) -> float:
        if self.has_custom_rewards and self.custom_rewards[arm] is not None:
            return self._custom_worth(arm, accuracy, price)
        at = arm * (3 + self.cells.dimension)
        slope = 1.0
        for k in range(self.cells.dimension):
            slope += self.rewards[at + 3 + k] * self.cells.context[k]
        accuracy = max(0.0, accuracy)  # a report may be lower; a power of that is no number
        gained: float = self.rewards[at] * accuracy ** self.rewards[at + 1]
        return gained - self.rewards[at + 2] * price * slope

    def _custom_worth(self, arm: int, accuracy: float, price: float) -> float:
        if price >= CLOSED:
            return -FOREVER
        if accuracy >= CLOSED:  # its report is wanted first
            return FOREVER
        reward = self.custom_rewards[arm]
        bound: float = reward.bound  # `worth` does the same, and is slower
        first = max(0.0, min(1.0, accuracy))
        first = bound * (1.0 - first) if bound > 0.0 else first
        point = self.cells.point_now()
        try:
            value = float(reward.function(first, price, point))
        except Exception as error:
            raise reward.failure(error, first, price, point) from error
        is_number = -FOREVER <= value <= FOREVER
        return value if is_number else reward.worth(accuracy, price, point)

    def accuracy(self, base: int, arm: int) -> float:
        """Return the estimated accuracy of an arm."""
        rows = self.cells.rows
        # Without labels in the window, or with discounted count 0, all labels are used.
        if self.forgets and rows[base + self.recent + arm] > 0:
            labels = float(rows[base + self.recent + arm])
            if self.window:
                labels = labels * self.unit
            return rows[base + self.recent_right + arm] / labels
        labels = float(rows[base + self.labels + arm])
        if labels == 0:
            return 0.0
        return rows[base + self.right + arm] / (labels * self.unit)

    # -- availability --------------------------------------------------------------------------

    def set_cost(self, arm: int, cost: float) -> None:
        """Change the cost of `arm` and keep its counters; infinite: unavailable."""
        self.costs[arm] = self._cost_of(cost)
        for row in range(self.cells.used):
            base = row * self.cells.stride
            self.cells.marks[2 * base + BEST] = -1
            self.cells.rows[base + NEXT_TEST] = 0

    def _cost_of(self, cost: float) -> float:
        """Return what a price is in decisions: nothing, if these go by accuracies alone."""
        return 0.0 if self.ignores_prices and cost < CLOSED else cost

    def close(self, closed: bytes | None) -> int:
        """Set the costs of arms to infinity until `reopen`; None: of no arm.

        Meanwhile the best arm of a cell is recomputed and not stored, because other decisions use
        all arms.
        """
        if closed is None:
            return 0
        if len(closed) != self.arms:
            raise DataError(f"`closed` has {len(closed)} bytes; there are {self.arms} arms")
        self.is_closing = True
        for arm in range(self.arms):
            self.prices[arm] = self.costs[arm]
            if closed[arm]:
                self.costs[arm] = FOREVER
        return 0

    def reopen(self) -> None:
        """Undo `close`."""
        for arm in range(self.arms if self.is_closing else 0):
            self.costs[arm] = self.prices[arm]
        self.is_closing = False

    # -- what is counted -----------------------------------------------------------------------

    def count_own(self, row: int, by: int) -> None:
        """Count an own arrival in the own cell `row` and in those of `path`, which led to it.

        Cells of a tree have no use for the arrivals in the finer ones.
        """
        rows, stride = self.cells.rows, self.cells.stride
        rows[row * stride + OWN] += by
        if self.weighs:
            self.waits[0] += by
        if self.has_tree:
            self.decided += by
            rows[row * stride + ARRIVALS] += by
        elif not self.counts_labelled:
            for k in range(self.cells.found):
                rows[self.cells.path[k] * stride + ARRIVALS] += by

    def count_served(self, row: int, by: int) -> None:
        """Count a peer's instance."""
        if self.weighs:
            self.waits[OF_PEERS] += by
        rows = self.cells.rows
        if not self.counts_labelled:
            rows[row * self.cells.stride + ARRIVALS] += by

    def spend(self, base: int, arm: int, paid: int) -> None:
        """Record the variable cost of a decision, in millionths."""
        rows = self.cells.rows
        if self.learns_costs and paid != UNPAID:
            rows[base + self.spent + arm] += paid
            rows[base + self.times + arm] += 1
            self.cells.marks[2 * base + BEST] = -1

    def take(self, base: int, function: int, gain: int, slot: int) -> None:
        """Record a label of an own function; one instance counts once, for all askers."""
        if self.dates_labels:
            rows = self.cells.rows
            if self.once and rows[base + self.last + function] == slot:
                return
            rows[base + self.last + function] = slot
            self.outdate(base, function)
        self.record(base, function, gain)

    def outdate(self, base: int, arm: int) -> None:
        """Let what was computed of an arm's labels in a row be computed again."""
        if self.has_tree:
            self.version += 1
        elif self.dates_labels:
            self.cells.rows[base + self.values + 2 * arm] = 0
            self.cells.rows[base + self.values + 2 * self.asked] = 0

    def record(self, base: int, arm: int, gain: int) -> None:
        """Record a label of an arm."""
        rows, marks = self.cells.rows, self.cells.marks
        rows[base + self.labels + arm] += 1
        rows[base + self.right + arm] += gain
        if self.forgets:
            self.record_recent(base, arm, gain)
            return
        if self.unit > 1:
            marks[2 * base + BEST] = -1
            if arm < self.functions:
                marks[2 * base + BEST_OWN] = -1
            return
        # The best arm is unchanged if it is correct or another arm is wrong; otherwise recompute.
        if (marks[2 * base + BEST] == arm) != gain:
            marks[2 * base + BEST] = -1
        if arm < self.functions and (marks[2 * base + BEST_OWN] == arm) != gain:
            marks[2 * base + BEST_OWN] = -1

    def record_recent(self, base: int, arm: int, gain: int) -> None:
        """Record a label for estimates: in the window, or with discounted counts."""
        rows, marks = self.cells.rows, self.cells.marks
        if self.window:
            self._push(base, arm, gain)
            rows[base + self.recent + arm] += 1
            rows[base + self.recent_right + arm] += gain
        else:
            for k in range(self.recent, self.recent + 2 * self.arms):
                rows[base + k] = rows[base + k] * self.keep >> KEEP_BITS
            rows[base + self.recent + arm] += ONE
            rows[base + self.recent_right + arm] += ONE * gain // self.unit
        marks[2 * base + BEST] = marks[2 * base + BEST_OWN] = -1

    def _push(self, base: int, arm: int, gain: int) -> None:
        """Put a label into the ring buffer, over the one that leaves the window."""
        rows = self.cells.rows
        first = base + self.ring
        place = first + 1 + rows[first] % self.window
        if rows[first] >= self.window:
            old = rows[place]
            rows[base + self.recent + (old >> 32)] -= 1
            rows[base + self.recent_right + (old >> 32)] -= old & 0xFFFFFFFF
        rows[place] = arm << 32 | gain
        rows[first] += 1

    def remember_around(self, label: Any, answer: Any, slot: int) -> int:
        """Store a label in the cells of `path` that existed when its instance arrived."""
        cells = self.cells
        for k in range(cells.found):
            if cells.since(cells.path[k] * cells.stride) <= slot:
                cells.memory.take(cells.path[k], label, answer)
        return 0

    def forget(self, end: int) -> int:
        """Reset the labels of the arms before `end`, in every cell."""
        rows, marks = self.cells.rows, self.cells.marks
        for row in range(self.cells.used):
            base = row * self.cells.stride
            for arm in range(end):
                rows[base + self.labels + arm] = 0
                rows[base + self.right + arm] = 0
                self.outdate(base, arm)
            marks[2 * base + BEST] = marks[2 * base + BEST_OWN] = -1
        return 0

    # -- pending labels ------------------------------------------------------------------------

    def tried(self, base: int, arm: int) -> int:
        """Return the labels of an arm, with all pending ones."""
        rows = self.cells.rows
        if self.is_pending:
            return rows[base + self.labels + arm] + rows[base + self.underway + arm]
        return rows[base + self.labels + arm]

    def expected(self, base: int, arm: int) -> int:
        """Return the labels of an arm, with the pending ones that can be expected to arrive."""
        rows = self.cells.rows
        own = rows[base + self.underway + arm]
        count = rows[base + self.labels + arm]
        if arm < self.functions:
            served = rows[base + self.underway_served + arm]
            own -= served
            count += self._arriving(OF_PEERS, served)
        return count + self._arriving(0, own)

    def _arriving(self, source: int, labels: int) -> int:
        pool = self.waits[source + LAST_POOL] + self.waits_there[source + LAST_POOL]
        came = self.waits[source + LAST_CAME] + self.waits_there[source + LAST_CAME]
        if self.has_tree:  # as if 100 more had come, so that first batches are spread
            return labels * (came + 100) // (pool + 100)
        return labels * came // max(1, pool)

    def begin_period(self, source: int, slot: int) -> None:
        """Count the pending labels of a source, if it is time to."""
        waits = self.waits
        if waits[source + INSTANCES] < waits[source + DUE]:
            return
        length = min(LONGEST_PERIOD, max(FIRST_PERIOD, waits[source + INSTANCES]))
        waits[source + DUE] = waits[source + INSTANCES] + length
        waits[source + LAST_POOL] = waits[source + POOL]
        waits[source + LAST_CAME] = waits[source + CAME]
        waits[source + POOL] = self.pending_of[source // OF_PEERS]
        waits[source + CAME] = 0
        waits[source + SINCE_SLOT] = slot
        self.version += 1  # another share of pending labels can be expected

    def note_arrival(self, phase: int, slot: int) -> None:
        """Note the label of a decision made at `slot`."""
        source = OF_PEERS if phase == SERVE else 0
        # Only if it was pending when the period began.
        if phase != TRAIN and slot < self.waits[source + SINCE_SLOT]:
            self.waits[source + CAME] += 1

    def expect(self, row: int, arm: int, phase: int, by: int) -> None:
        """Count a pending label; training labels of the asking learner do not count for the arm."""
        if not self.is_pending or phase == TRAIN:
            return
        self.pending_of[phase == SERVE] += by
        self.expected_labels += by
        self.outdate(row * self.cells.stride, arm)
        rows, marks, stride = self.cells.rows, self.cells.marks, self.cells.stride
        at = self.underway + arm
        is_weighed = self.weighs and phase == SERVE
        while row >= 0:  # only in a tree, where indices are outdated in all rows, it has a parent
            rows[row * stride + at] += by
            if is_weighed:
                rows[row * stride + self.underway_served + arm] += by
            row = marks[2 * row * stride + PARENT]

    def release(self, row: int, arm: int, phase: int) -> None:
        """Remove a pending label; the arm can become underexplored again."""
        self.expect(row, arm, phase, -1)
        self.cells.rows[row * self.cells.stride + NEXT_TEST] = 0

    # -- sums of two tables --------------------------------------------------------------------

    def combine(self, row: int, other: ArmCounters, by: int) -> None:
        """Add the counts of `other` for own functions in the cell of `row` (by 1), or subtract.

        In a tree, also in its parent cells. `other` has the same rule.
        """
        cells = self.cells
        if other.cells.stride != cells.stride:
            raise DataError("tables of different rules cannot be combined")
        for k in range(WAITS if self.weighs else 0):
            self.waits_there[k] += by * other.waits[k]
        self.expected_labels += by * other.expected_labels
        while row >= 0:
            base = row * cells.stride
            for k in range(cells.axes):
                other.cells.point[k] = cells.rows[base + COORDINATES + k]
            there = other.cells.seek(cells.marks[2 * base + LEVEL])
            if there >= 0:
                self._combine_row(base, other, there * cells.stride, by)
            row = cells.marks[2 * base + PARENT]

    def _combine_row(self, base: int, other: ArmCounters, there: int, by: int) -> None:
        rows, marks, theirs = self.cells.rows, self.cells.marks, other.cells.rows
        rows[base + ARRIVALS] += by * theirs[there + ARRIVALS]
        rows[base + NEXT_TEST] = 0
        marks[2 * base + BEST] = marks[2 * base + BEST_OWN] = -1
        for function in range(self.functions):
            self.outdate(base, function)
            for first in self.summed:
                rows[base + first + function] += by * theirs[there + first + function]
            if self.has_tree:
                for at in range(self.beliefs + 5 * function, self.beliefs + 5 * function + 5):
                    rows[base + at] += by * theirs[there + at]
