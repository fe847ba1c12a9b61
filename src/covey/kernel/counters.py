# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""CellCounters of arms in cells: labels, estimates, costs, pending labels, labels seen."""

from __future__ import annotations

from typing import Any

from covey.errors import DataError
from covey.kernel.cells import (
    ARRIVALS,
    BEST,
    BEST_OWN,
    COORDINATES,
    LEVEL,
    NEXT_TEST,
    OWN,
    PARENT,
    SINCE,
    Cells,
)
from covey.kernel.history import history_of
from covey.kernel.memory import doubles, halves, integers
from covey.kernel.rules import Cell, Rule

TRAIN = 0
EXPLORE = 1
EXPLOIT = 2
SERVE = 3

ARRIVED = 0
LABELLED = 1
USED = 2

# Discounted counts are fixed-point numbers: the same on every platform.
ONE = 1 << 16
KEEP_BITS = 30

WAITS = 14  # numbers that are kept of the labels of own clients and of peers

MILLIONTHS = 1000000  # unit of costs
UNPAID = -(1 << 60)  # no observed cost
CLOSED = 1e300  # cost of an unavailable arm
FOREVER = float("inf")
NO_WAITS = bytearray(8 * 2 * WAITS)  # shared by all tables that weigh no pending labels
NO_REWARDS: list[Any] = []


class CellCounters(Cells):
    """What one learner counts in the cells of one context space."""

    def __init__(self, rule: Rule) -> None:
        self.arms = len(rule.costs)
        formulas = rule.formulas()
        self.is_pending, self.weighs = rule.is_pending, rule.is_pending and rule.weighs_pending
        waits = 2 * WAITS if self.weighs else 0
        Cells.__init__(self, rule, 4 * self.arms + len(formulas) + 2 + waits)
        self._divide_spare(formulas)
        self.functions = rule.functions
        self.asked = self.arms - rule.context_peers  # arms before this one receive the data
        self.ignores_prices = rule.ignores_prices
        self.is_closing = False  # some arms are unavailable for the current decision
        for arm in range(self.arms):
            self.costs[arm] = self.prices[arm] = self._cost_of(rule.costs[arm])
            self.active[arm] = 1
        self.explores_to_help, self.counted = rule.explores_to_help, rule.counted
        self.learns_costs = rule.learns_costs
        # Learnt costs are added to the price, unless they are the widths of answers.
        self.adds_costs = rule.learns_costs and not (rule.index and rule.index.is_balanced)
        self.remembers, self.memory = rule.remembers, history_of(rule)
        self.is_random, self.state = rule.seed is not None, (rule.seed or 0) & 0x7FFFFFFF
        self.unit, self.window = rule.unit, rule.window
        self.keep = int(rule.discount * (1 << KEEP_BITS))  # the discount, fixed-point
        self.forgets = rule.window > 0 or rule.discount < 1.0
        # Own decisions, and those with no label at any learner that could be asked.
        self.decided = self.blind = 0
        self.largest, self.once = 0.0, False  # value that `_weigh` chose; one label a slot counts
        self.custom_rewards = rule.custom_rewards() or NO_REWARDS  # per arm; None: the formula
        self.has_rewards, self.has_custom_rewards = len(rule.rewards) > 0, any(self.custom_rewards)
        self.replied = 3 if self.has_tree else 2  # integers that are kept of the report of a peer
        self._lay_out_rows(rule)

    def _divide_spare(self, formulas: list[float]) -> None:
        """Set the small arrays, which are parts of the block."""
        first, arms = self.spare, self.arms
        self.costs = doubles(self.block, first, arms)
        self.prices = doubles(self.block, first + arms, arms)  # the costs of available arms
        self.told = doubles(self.block, first + 2 * arms, arms)  # accuracies reported by peers
        self.active = halves(self.block, first + 3 * arms, arms)
        self.rewards = doubles(self.block, first + 4 * arms, len(formulas))
        for k, number in enumerate(formulas):
            self.rewards[k] = number
        first = first + 4 * arms + len(formulas)
        self.pending_of = integers(self.block, first, 2)  # labels: of own clients, and of peers
        memory, first = (self.block, first + 2) if self.weighs else (NO_WAITS, 0)
        self.waits = integers(memory, first, WAITS)  # what is known of earlier ones
        self.waits_there = integers(memory, first + WAITS, WAITS)  # in a combined table

    def _lay_out_rows(self, rule: Rule) -> None:
        """Compute the layout of a row; unused counters take no space."""
        self.right = self.labels + self.arms
        self.untrained = self.right + self.arms  # of peers only
        self.underway = self.untrained + self.asked - self.functions
        self.underway_served = self.underway + (self.arms if self.is_pending else 0)
        self.spent = self.underway_served + (self.functions if self.weighs else 0)
        self.times = self.spent + (self.arms if self.learns_costs else 0)
        self.recent = self.times + (self.arms if self.learns_costs else 0)
        self.recent_right = self.recent + (self.arms if self.forgets else 0)
        # The slot of the latest label of each function, where one slot must count once.
        self.dates_labels = rule.index is not None or rule.elimination is not None
        self.last = self.recent_right + (self.arms if self.forgets else 0)
        self.trained = self.last + (self.functions if self.dates_labels else 0)  # with a label
        # The latest labels of the cell: how many there were, then `arm << 32 | gain` of each.
        self.ring = self.trained + (self.asked - self.functions if rule.floors_training else 0)
        # What the labels of the subtree of a cell are worth, and the right ones among them.
        self.info = self.ring + (1 + self.window if self.window else 0)
        self.allocate(self.info + (2 * self.arms if rule.tree else 0))

    # -- what inherits -------------------------------------------------------------------------

    def _has_changed(self, row: int, arm: int) -> int:
        """Note that the labels of an arm in `row` have changed."""
        return 0

    def _is_reset(self, row: int) -> int:
        """Forget the labels of a row."""
        self.memory.forget(row)
        return 0

    def _replies(self, row: int) -> list[int]:
        """Return what is kept of the reports of peers, as integers."""
        return []

    def _load_replies(self, row: int, replies: list[int]) -> int:
        """Restore the result of `_replies`."""
        return 0

    # -- looking in, saving, loading -----------------------------------------------------------

    def record(self, row: int, arm: int) -> tuple[int, int]:
        """Return the labels of `arm` in `row`, and its correct answers."""
        base = row * self.stride
        return self.rows[base + self.labels + arm], self.rows[base + self.right + arm]

    def spending(self, row: int, arm: int) -> tuple[int, int]:
        """Return the total variable cost of `arm` in `row`, in millionths, and its count."""
        base = row * self.stride
        if not self.learns_costs:
            return 0, 0
        return self.rows[base + self.spent + arm], self.rows[base + self.times + arm]

    def blind_decisions(self) -> int:
        """Return the number of decisions with no label at any learner."""
        return self.blind

    def best(self, row: int) -> int:
        """Return the arm with the largest estimate."""
        return self._best(row * self.stride)

    def best_own(self, row: int, context: tuple[float, ...] | None = None) -> int:
        """Return the own function with the largest estimate minus cost, for an instance."""
        if context is not None and self.has_rewards:
            self._read(context)
        return self._largest(row * self.stride, self.functions, True)

    def estimate(self, row: int) -> tuple[float, int]:
        """Return accuracy and labels of the best own function, for a learner without labels."""
        base = row * self.stride
        best = self._largest(base, self.functions, False)
        return self._accuracy(base, best), self.rows[base + self.labels + best]

    def counters(self, row: int) -> list[int]:
        """Return the counters of `row`: since, arrivals, own arrivals, then per arm.

        If reports of peers are cached, their slots and the bits of their values follow.
        """
        base = row * self.stride
        head = [self.rows[base + SINCE], self.rows[base + ARRIVALS], self.rows[base + OWN]]
        tail = [self.rows[base + k] for k in range(self.labels, self.stride)]
        return head + tail + self._replies(row)

    def load(self, cell: Cell, counters: list[int]) -> int:
        """Create `cell` from the result of `counters`; return its row."""
        row = self.meet(cell, min(0, counters[0]))
        self._forget_leaves()
        base = row * self.stride
        self.foreign += (counters[0] < 0) - (self.rows[base + SINCE] < 0)
        self.rows[base + SINCE] = counters[0]
        self.rows[base + ARRIVALS] = counters[1]
        self.rows[base + OWN] = counters[2]
        for k in range(self.labels, self.stride):
            self.rows[base + k] = counters[3 + k - self.labels]
        self._load_replies(row, counters[3 + self.stride - self.labels :])
        return row

    def pending(self, row: int) -> list[int]:
        """Return the pending labels of each arm in `row`; all 0 if they are not counted."""
        if not self.is_pending:
            return [0] * self.arms
        base = row * self.stride + self.underway
        return [self.rows[base + arm] for arm in range(self.arms)]

    def stored(self, row: int) -> list[int]:
        """Return the counters of `row` as they are stored: without pending labels."""
        counters = self.counters(row)
        if self.is_pending:
            first = 3 + self.underway - self.labels
            counters[first : first + self.spent - self.underway] = []
        return counters

    def load_stored(self, cell: Cell, stored: list[int], labels: list[tuple[Any, int]]) -> int:
        """Create `cell` from the results of `stored` and `known`; return its row."""
        counters = list(stored)
        if self.is_pending:
            first = 3 + self.underway - self.labels
            counters[first:first] = [0] * (self.spent - self.underway)
        row = self.load(cell, counters)
        self.know(row, labels)
        return row

    def arm_counters(self, row: int, arm: int) -> list[int]:
        """Return what is stored of `arm` in `row`, in an order that depends on no layout.

        Labels, correct ones, costs, their number and two discounted counts come first. The report
        of a peer comes last.
        """
        base = row * self.stride
        counters = [self.rows[base + at] if at >= 0 else 0 for at in self._places(arm)]
        peer = self.replied * (arm - self.functions)
        replies = self._replies(row)[peer : peer + self.replied] if peer >= 0 else []
        return counters + (replies or [0] * self.replied)

    def load_arm(self, row: int, arm: int, counters: list[int]) -> None:
        """Restore the result of `arm_counters`, except for what this table does not count."""
        base = row * self.stride
        places = self._places(arm)
        for k in range(len(places)):
            if places[k] >= 0:
                self.rows[base + places[k]] = counters[k]
        peer = self.replied * (arm - self.functions)
        replies = self._replies(row)
        if 0 <= peer < len(replies):
            replies[peer : peer + self.replied] = counters[len(places) :]
            self._load_replies(row, replies)
        self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
        self.rows[base + NEXT_TEST] = 0

    def _places(self, arm: int) -> list[int]:
        """Return where in a row the counters of an arm are; -1: not counted."""
        peer = arm - self.functions
        is_asked = 0 <= peer < self.asked - self.functions
        is_discounted = self.forgets and not self.window  # counts of a window are those of its ring
        return [
            self.labels + arm,
            self.right + arm,
            self.spent + arm if self.learns_costs else -1,
            self.times + arm if self.learns_costs else -1,
            self.recent + arm if is_discounted else -1,
            self.recent_right + arm if is_discounted else -1,
            self.last + arm if self.dates_labels and peer < 0 else -1,
            self.untrained + peer if is_asked else -1,
            self.trained + peer if is_asked and self.ring > self.trained else -1,
            *((self.info + 2 * arm, self.info + 2 * arm + 1) if self.has_tree else (-1, -1)),
        ]

    def take_row(self, old: Any, row: int, arms: list[int]) -> int:
        """Create the cell that a table of other arms has in `row`; return its row here.

        Arm `k` here is `arms[k]` there; -1: it is new. Cells and their arrivals stay.
        """
        counters = old.counters(row)[:3] + [0] * (
            self.stride - self.labels + self.replied * self.asked
        )
        here = self.load(old.cell(row), counters)
        for arm in range(self.arms):
            if arms[arm] >= 0:
                self.load_arm(here, arm, old.arm_counters(row, arms[arm]))
        if self.window:
            for label in old.latest(row):
                if label >> 32 in arms:
                    arm = arms.index(label >> 32)
                    self._record_recent(here * self.stride, arm, label & 0xFFFFFFFF)
        self.know(here, old.known(row))
        return here

    def latest(self, row: int) -> list[int]:
        """Return the labels in the window of a row, the oldest first: `arm << 32 | gain`."""
        if not self.window:
            return []
        first = row * self.stride + self.ring
        count = self.rows[first]
        kept = range(max(0, count - self.window), count)
        return [self.rows[first + 1 + k % self.window] for k in kept]

    def add_labels(self, row: int, arrivals: int, labels: list[tuple[int, int]]) -> None:
        """Add arrivals, and labels of own functions with how many of them were right.

        If all levels are used at once, labels are also those of the parent cells.
        """
        self.rows[row * self.stride + ARRIVALS] += arrivals
        while row >= 0:
            base = row * self.stride
            self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
            for function, (count, right) in enumerate(labels):
                self.rows[base + self.labels + function] += count
                self.rows[base + self.right + function] += right
            row = self.marks[2 * base + PARENT]

    def set_cost(self, arm: int, cost: float) -> None:
        """Change the cost of `arm` and keep its counters; infinite: unavailable."""
        self.costs[arm] = self._cost_of(cost)
        for row in range(self.used):
            self.marks[2 * row * self.stride + BEST] = -1
            self.rows[row * self.stride + NEXT_TEST] = 0

    def _cost_of(self, cost: float) -> float:
        """Return what a price is in decisions: nothing, if these go by accuracies alone."""
        return 0.0 if self.ignores_prices and cost < CLOSED else cost

    def combine(self, row: int, other: CellCounters, by: int) -> None:
        """Add the counts of `other` for own functions in the cell of `row` (by 1), or subtract.

        If all levels are used at once, also in its parent cells. `other` has the same rule.
        """
        if other.stride != self.stride:
            raise DataError("tables of different rules cannot be combined")
        for k in range(WAITS if self.weighs else 0):
            self.waits_there[k] += by * other.waits[k]
        while row >= 0:
            base = row * self.stride
            for k in range(self.dimension):
                other.point[k] = self.rows[base + COORDINATES + k]
            there = other._find(self.marks[2 * base + LEVEL])
            if there >= 0:
                self._combine(row, other, there * other.stride, by)
            row = self.marks[2 * base + PARENT]

    def _combine(self, row: int, other: CellCounters, there: int, by: int) -> None:
        base = row * self.stride
        self.rows[base + ARRIVALS] += by * other.rows[there + ARRIVALS]
        self.rows[base + NEXT_TEST] = 0
        self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
        for function in range(self.functions):
            self._combine_at(base + self.labels + function, other, there - base, by)
            self._combine_at(base + self.right + function, other, there - base, by)
            if self.is_pending:
                self._combine_at(base + self.underway + function, other, there - base, by)
            if self.weighs:
                self._combine_at(base + self.underway_served + function, other, there - base, by)
            if self.learns_costs:
                self._combine_at(base + self.spent + function, other, there - base, by)
                self._combine_at(base + self.times + function, other, there - base, by)
            if self.forgets:
                self._combine_at(base + self.recent + function, other, there - base, by)
                self._combine_at(base + self.recent_right + function, other, there - base, by)
            self._has_changed(row, function)

    def _combine_at(self, at: int, other: CellCounters, shift: int, by: int) -> None:
        self.rows[at] += by * other.rows[at + shift]

    # -- labels seen, for peers that show only the cell ----------------------------------------

    def recall(self, row: int) -> tuple[Any, int, int]:
        """Return the answer in `row`, how often it was right, and out of how many."""
        return self.memory.recall(row)

    def recall_sum(self, own: dict[Any, int], theirs: dict[Any, int]) -> tuple[Any, int, int]:
        """Return `recall` for a cell whose `known` is the sum of two."""
        return self.memory.recall_sum(own, theirs)

    def known(self, row: int) -> list[tuple[Any, int]]:
        """Return what `recall` goes by in `row`: labels with their counts."""
        return self.memory.known(row)

    def know(self, row: int, labels: list[tuple[Any, int]]) -> None:
        """Restore the result of `known`."""
        self.memory.know(row, labels)

    def _remember_around(self, label: Any, answer: Any, slot: int) -> int:
        """Store a label in the cells of `path` that existed when its instance arrived."""
        for k in range(self.found):
            if self._since(self.path[k] * self.stride) <= slot:
                self.memory.take_own(self.path[k], label, answer)
        return 0

    # -- estimates -----------------------------------------------------------------------------

    def _best(self, base: int) -> int:
        if self.is_closing:
            return self._largest(base, self.arms, True)
        # Rewards can depend on the context: the best arm of a cell cannot be cached.
        if self.marks[2 * base + BEST] < 0 or self.is_random or self.has_rewards:
            self.marks[2 * base + BEST] = self._largest(base, self.arms, True)
        return self.marks[2 * base + BEST]

    def _most_accurate(self, base: int) -> int:
        if self.marks[2 * base + BEST_OWN] < 0 or self.is_random:
            self.marks[2 * base + BEST_OWN] = self._largest(base, self.functions, False)
        return self.marks[2 * base + BEST_OWN]

    def _largest(self, base: int, end: int, is_net: bool) -> int:
        chosen = 0
        rivals = 1
        largest = -FOREVER
        for arm in range(end):
            if is_net and not self.active[arm]:
                continue
            value = self._accuracy(base, arm)
            if is_net:
                value = self._worth(base, arm, value)
            # A greedy helper does not explore; ties go to the last function.
            is_later = value == largest and not is_net and not self.explores_to_help
            if value > largest or (is_later and not self.is_random):
                largest = value
                chosen = arm
                rivals = 1
            elif self.is_random and value == largest:
                rivals += 1
                if self._is_drawn(rivals):
                    chosen = arm
        return chosen

    def _price(self, base: int, arm: int) -> float:
        """Return the arm's fixed cost plus the mean of its learnt variable cost."""
        price = self.costs[arm]
        if self.adds_costs and self.rows[base + self.times + arm] > 0:
            times = float(self.rows[base + self.times + arm]) * MILLIONTHS
            price += self.rows[base + self.spent + arm] / times
        return price

    def _weigh(self, base: int, seen: int) -> int:
        """Exploit by labels from serving and by accuracies reported by peers (`told`)."""
        chosen = 0
        for arm in range(self.arms):
            accuracy = self.told[arm]
            if arm < self.functions:
                accuracy = self._accuracy(base, arm)
                seen += self.rows[base + self.labels + arm]
            value = self._worth(base, arm, accuracy)
            if arm == 0 or value > self.largest:
                self.largest = value
                chosen = arm
        self.blind += seen == 0
        return chosen

    def _worth(self, base: int, arm: int, accuracy: float) -> float:
        """Return the reward of an arm of this accuracy, its cost subtracted."""
        return self._net(arm, accuracy, self._price(base, arm))

    def _net(self, arm: int, accuracy: float, price: float) -> float:
        if self.has_rewards:
            return self._reward(arm, accuracy, price)
        return accuracy - price

    def _reward(self, arm: int, accuracy: float, price: float) -> float:
        if self.has_custom_rewards and self.custom_rewards[arm] is not None:
            return self._custom_worth(arm, accuracy, price)
        at = arm * (3 + self.dimension)
        slope = 1.0
        for k in range(self.dimension):
            slope += self.rewards[at + 3 + k] * self.context[k]
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
        try:
            value = float(reward.function(first, price, self._point_now()))
        except Exception as error:
            raise reward.failure(error, first, price, self._point_now()) from error
        is_number = -FOREVER <= value <= FOREVER
        return value if is_number else reward.worth(accuracy, price, self._point_now())

    def _accuracy(self, base: int, arm: int) -> float:
        # Without labels in the window, or with discounted count 0, all labels are used.
        if self.forgets and self.rows[base + self.recent + arm] > 0:
            labels = float(self.rows[base + self.recent + arm])
            if self.window:
                labels = labels * self.unit
            return self.rows[base + self.recent_right + arm] / labels
        labels = float(self.rows[base + self.labels + arm])
        if labels == 0:
            return 0.0
        return self.rows[base + self.right + arm] / (labels * self.unit)

    def _is_drawn(self, rivals: int) -> bool:
        """Return whether the latest of `rivals` equal arms replaces the current one."""
        self.state = (self.state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self.state >> 12) % rivals == 0

    # -- availability --------------------------------------------------------------------------

    def _close(self, closed: bytes) -> int:
        """Set the costs of arms to infinity until `_reopen`.

        Meanwhile the best arm of a cell is recomputed and not stored, because other decisions use
        all arms.
        """
        if len(closed) != self.arms:
            raise DataError(f"`closed` has {len(closed)} bytes; there are {self.arms} arms")
        self.is_closing = True
        for arm in range(self.arms):
            self.prices[arm] = self.costs[arm]
            if closed[arm]:
                self.costs[arm] = FOREVER
        return 0

    def _reopen(self) -> None:
        self.is_closing = False
        for arm in range(self.arms):
            self.costs[arm] = self.prices[arm]

    # -- what is counted -----------------------------------------------------------------------

    def _count_own(self, row: int, by: int) -> None:
        """Count an own arrival in the own cell `row` and in those of `path`, which led to it.

        Cells of a tree have no use for the arrivals in the finer ones.
        """
        self.rows[row * self.stride + OWN] += by
        if self.weighs:
            self.waits[0] += by
        if self.has_tree:
            self.decided += by
            self.rows[row * self.stride + ARRIVALS] += by * (self.counted == ARRIVED)
        elif self.counted == ARRIVED:
            for k in range(self.found):
                self.rows[self.path[k] * self.stride + ARRIVALS] += by

    def _count_served(self, row: int, by: int) -> None:
        if self.weighs:
            self.waits[WAITS // 2] += by
        if self.counted == ARRIVED:
            self.rows[row * self.stride + ARRIVALS] += by

    def _spend(self, base: int, arm: int, paid: int) -> None:
        """Record the variable cost of a decision, in millionths."""
        if self.learns_costs and paid != UNPAID:
            self.rows[base + self.spent + arm] += paid
            self.rows[base + self.times + arm] += 1
            self.marks[2 * base + BEST] = -1

    def _take(self, base: int, function: int, gain: int, slot: int) -> None:
        """Record a label of an own function; one instance counts once, for all askers."""
        if self.dates_labels:
            if self.once and self.rows[base + self.last + function] == slot:
                return
            self.rows[base + self.last + function] = slot
            self._has_changed(base // self.stride, function)
        self._record(base, function, gain)

    def _record(self, base: int, arm: int, gain: int) -> None:
        self.rows[base + self.labels + arm] += 1
        self.rows[base + self.right + arm] += gain
        if self.forgets:
            self._record_recent(base, arm, gain)
            return
        if self.unit > 1:
            self.marks[2 * base + BEST] = -1
            if arm < self.functions:
                self.marks[2 * base + BEST_OWN] = -1
            return
        # The best arm is unchanged if it is correct or another arm is wrong; otherwise recompute.
        if (self.marks[2 * base + BEST] == arm) != gain:
            self.marks[2 * base + BEST] = -1
        if arm < self.functions and (self.marks[2 * base + BEST_OWN] == arm) != gain:
            self.marks[2 * base + BEST_OWN] = -1

    def _record_recent(self, base: int, arm: int, gain: int) -> None:
        """Record a label for estimates: in the window, or with discounted counts."""
        if self.window:
            self._push(base, arm, gain)
            self.rows[base + self.recent + arm] += 1
            self.rows[base + self.recent_right + arm] += gain
        else:
            for k in range(self.recent, self.recent + 2 * self.arms):
                self.rows[base + k] = self.rows[base + k] * self.keep >> KEEP_BITS
            self.rows[base + self.recent + arm] += ONE
            self.rows[base + self.recent_right + arm] += ONE * gain // self.unit
            for function in range(self.functions):
                self._has_changed(base // self.stride, function)
        self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1

    def _push(self, base: int, arm: int, gain: int) -> None:
        """Put a label into the ring buffer, over the one that leaves the window."""
        first = base + self.ring
        place = first + 1 + self.rows[first] % self.window
        if self.rows[first] >= self.window:
            old = self.rows[place]
            self.rows[base + self.recent + (old >> 32)] -= 1
            self.rows[base + self.recent_right + (old >> 32)] -= old & 0xFFFFFFFF
        self.rows[place] = arm << 32 | gain
        self.rows[first] += 1
