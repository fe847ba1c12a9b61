# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""The decision kernel: counters, thresholds and the choice of an arm.

Python code that Cython can compile (as `covey.kernel._compiled`, whose C types are in the `.pxd`
beside it); `covey.kernel` selects the form. A learner's cells are rows of one integer array, made
when a context first falls into them, so memory depends on the used cells, not on the size of the
grid. A decision is one integer, `row << 20 | arm << 2 | phase`, that is later passed to `settle`.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Any

try:
    import cython
except ModuleNotFoundError:
    from types import SimpleNamespace

    cython = SimpleNamespace(compiled=False)

from covey.errors import ContextError, DataError, LimitError
from covey.kernel.rules import Cell, Report, Rule, Seat

if cython.compiled:
    from cython.cimports.libc.math import exp, log, rint, sqrt
else:
    from math import exp, log, sqrt

    rint = round

# Layout of a row; the cell's coordinates and the counters of its arms follow.
LEVEL = 0
SINCE = 1  # slot in which the cell was created; -1 - slot for a foreign cell
ARRIVALS = 2  # reported to peers
OWN = 3  # own arrivals, which split the cell
BEST = 4  # arm with the largest estimate, -1 = recompute
BEST_OWN = 5  # most accurate own function, -1 = recompute
CALM = 6  # before this slot no arm needs exploration or training
PARENT = 7  # row of the parent cell, when all levels are used at once; -1: none
COORDINATES = 8

TRAIN = 0
EXPLORE = 1
EXPLOIT = 2
SERVE = 3
NEVER = -1  # in `delays`: the label never arrives

ARRIVED = 0
LABELLED = 1
USED = 2

# Discounted counts are fixed-point numbers: the same on every platform.
ONE = 1 << 16
KEEP_BITS = 30

# Products stay below 63 bits: C and Python integers give the same results.
MASK = (1 << 40) - 1
FACTOR = 1000003
FEW = 4096
FAR = 1 << 60
MILLIONTHS = 1000000  # unit of costs
UNPAID = -(1 << 60)  # no observed cost

# Change detection (CUSUM): accuracy after a change as a fraction of the estimate; minimum number
# of labels; fixed-point unit of the statistic; its decrease for a correct answer.
FEARED = 0.75
ENOUGH = 4
DOUBTS = 1 << 20
RELIEF = int(rint(log(FEARED) * DOUBTS))

CLOSED = 1e300  # cost of an unavailable arm
FOREVER = float("inf")
BITS, NUMBER = Struct("<q"), Struct("<d")  # floats are stored as the integers with the same bits
NOTHING: tuple[Any, int, int, dict[Any, int] | None] = (None, 0, 0, None)  # stored labels of a cell


def is_compiled() -> bool:
    """Return whether this is the compiled form of the kernel."""
    return bool(cython.compiled)


class Clock:
    """The floors of the thresholds D(t) = scale * t**power * ln t of the three tests.

    A counter is at most D(t) if and only if it is at most the floor of D(t). The floors change
    rarely; the next slot at which one changes is found by exponential and binary search.
    """

    def __init__(self, scales: list[float], powers: list[float]) -> None:
        self.scales = array("d", scales)
        self.powers = array("d", powers)
        self.floors = array("q", [0] * len(scales))
        self.start = self.end = 0
        self.stride = 1
        self.before = self.rounded = 0  # slots in (before, rounded] use the value of `rounded`
        self.logarithm = 0.0  # of `rounded`

    def at(self, slot: int) -> tuple[int, ...]:
        """Return the floors of the thresholds at `slot`."""
        self.move(slot)
        return tuple(self.floors)

    def move(self, slot: int) -> None:
        if slot >= self.end or slot < self.start:
            self._look(slot)

    def round_up(self, slot: int) -> None:
        """Round `slot` up to five binary digits, so that its logarithm rarely changes."""
        if self.before < slot <= self.rounded:
            return
        step = 1
        while slot // step >= 32:
            step = 2 * step
        self.rounded = (slot + step - 1) // step * step
        self.before = self.rounded - step
        self.logarithm = log(self.rounded)

    def _look(self, slot: int) -> None:
        low = slot
        for which in range(3):
            self.floors[which] = self._floor(which, slot)
        high = slot + max(1, self.stride // 2)
        while not self._has_changed(high) and high < FAR:
            low = high
            high = slot + 2 * (high - slot)
        while high - low > 1:
            middle = (low + high) // 2
            if self._has_changed(middle):
                high = middle
            else:
                low = middle
        self.stride = high - slot
        self.start = slot
        self.end = high

    def _has_changed(self, slot: int) -> bool:
        return (
            self._floor(0, slot) != self.floors[0]
            or self._floor(1, slot) != self.floors[1]
            or self._floor(2, slot) != self.floors[2]
        )

    def _floor(self, which: int, slot: int) -> int:
        value = self.scales[which] * slot ** self.powers[which] * log(slot)
        if value > FAR:
            return FAR
        return int(value)


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


class Table:
    """One learner's counters and decisions in one context space."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        self.clock = clock
        self.dimension = rule.dimension
        self.functions = rule.functions
        self.arms = len(rule.costs)
        self.asked = self.arms - rule.context_peers  # arms before this one receive the data
        self.costs = array("d", rule.costs)
        self.is_closing = False  # some arms are unavailable for the current decision
        self.prices = array("d", rule.costs)  # their costs when available
        self.trains_first = rule.trains_first
        self.explores_to_help = rule.explores_to_help
        self.counted = rule.counted
        self.is_pending = rule.is_pending
        self.inherits = rule.inherits
        self.is_supervised = rule.is_supervised
        self.learns_costs = rule.learns_costs
        self.remembers = rule.remembers
        self.floors_training = rule.floors_training
        self.asked_only = rule.asked_only
        self.memory: dict[int, Any] = {}  # row -> most frequent label, its count, total, counts
        self.is_random = rule.seed is not None
        self.state = (rule.seed or 0) & 0x7FFFFFFF
        self.unit = rule.unit
        self.window = rule.window
        self.keep = int(rule.discount * (1 << KEEP_BITS))  # the discount, fixed-point
        self.forgets = rule.window > 0 or rule.discount < 1.0
        self.blind = 0  # decisions with no label at any learner that could be asked
        self.largest = 0.0  # the value of the arm that `weigh` chose
        self._take_rewards(rule)
        self._take_levels(rule)
        self._take_index(rule)
        self._lay_out_rows()

    def _take_rewards(self, rule: Rule) -> None:
        numbers = []  # per arm: a, q, b, then c
        for reward in rule.rewards:
            slopes = reward.context or (0.0,) * rule.dimension
            numbers += [reward.accuracy, reward.power, reward.cost, *slopes]
        self.has_rewards = len(rule.rewards) > 0
        self.rewards = array("d", numbers or [0.0])

    def _take_levels(self, rule: Rule) -> None:
        self.sides = array("d", [level.side for level in rule.levels])
        self.limits = array("d", [level.split_at for level in rule.levels])
        self.levels = len(rule.levels)
        self.is_flat = self.levels == 1 and rule.levels[0].split_at == float("inf")
        self.deepest = 0  # level of the finest cell created by a peer
        self.most_cells = rule.most_cells
        self.foreign = 0  # rows of cells known only from isolated sources
        # Small grids are indexed directly; others use a hash table that grows with the used cells.
        self.firsts = array("q", bytes(8 * self.levels))
        places = 0
        for k in range(self.levels):
            self.firsts[k] = places
            places = min(FEW + 1, places + rule.levels[k].side ** rule.dimension)
        self.is_direct = places <= FEW
        self.index = array("i", bytes(4 * (places if self.is_direct else 16)))
        self.context = array("d", bytes(8 * max(1, self.dimension)))
        self.point = array("q", bytes(8 * max(1, self.dimension)))
        self.fine = array("q", bytes(8 * max(1, self.dimension)))
        self.path = array("q", bytes(8 * (self.levels + 1)))  # known rows around the context
        self.told = array("d", bytes(8 * self.arms))  # accuracies reported by peers
        self.found = 0  # how many they are, coarsest first

    def _take_index(self, rule: Rule) -> None:
        index = rule.index
        self.is_indexed = index is not None
        self.scale = index.scale if index else 0.0
        self.is_recent = index is not None and index.is_recent
        self.is_balanced = index is not None and index.is_balanced
        self.is_lazy = not self.is_recent and not self.is_balanced
        self.is_layered = index is not None and len(index.bias) > 1
        self.bias = array("d", (index.bias if index else ()) or [0.0] * self.levels)
        self.once = False  # labels of one slot count once for a function
        # Change-detection statistics: of own decisions, and of answers to peers.
        self.alarm = int(index.alarm * DOUBTS) if index else 0  # 0: there is none
        self.doubt = self.doubt_served = 0
        self.is_wary = False  # after a detected change, peers are judged by own labels only
        self.forgotten = 0  # labels of decisions up to this slot are ignored
        self.wanted = -1  # the peer to be asked next
        # Per row what own functions may be worth, then what peers said of themselves, then the
        # most of the first; and when each was worked out.
        self.bounds = self.asked + 1
        self.values = array("d", [0.0])
        self.stamps = array("q", [0])
        drop = rule.elimination
        self.eliminates = drop is not None
        self.confidence = drop.confidence if drop else 0.0
        self.slack = drop.bias if drop else 0.0
        self.most_functions = drop.most_functions if drop else 1
        self.low, self.high = (array("d", bytes(8 * self.arms)) for _ in range(2))
        self.heard = array("q", bytes(8 * self.arms))
        self.active = array("i", [1] * self.arms)

    def _lay_out_rows(self) -> None:
        """Compute the layout of a row; unused counters take no space."""
        self.labels = COORDINATES + self.dimension
        self.right = self.labels + self.arms
        self.untrained = self.right + self.arms  # of peers only
        self.underway = self.untrained + self.asked - self.functions
        self.spent = self.underway + (self.arms if self.is_pending else 0)
        self.times = self.spent + (self.arms if self.learns_costs else 0)
        self.recent = self.times + (self.arms if self.learns_costs else 0)
        self.recent_right = self.recent + (self.arms if self.forgets else 0)
        # The latest labels of the cell: how many there were, then `arm << 32 | gain` of each.
        self.last = self.recent_right + (self.arms if self.forgets else 0)
        is_bounded = self.is_indexed or self.eliminates
        self.trained = self.last + (self.functions if is_bounded else 0)  # with a label
        peers = self.asked - self.functions
        self.ring = self.trained + (peers if self.floors_training else 0)
        self.stride = self.ring + (1 + self.window if self.window else 0)
        self.used = 0
        self.rows = array("q", bytes(8 * 4 * self.stride))
        if self.is_indexed:
            self._grow_index(4)

    # -- one decision at a time ---------------------------------------------------------------

    def decide(self, context: tuple[float, ...], slot: int, closed: bytes | None = None) -> int:
        """Choose an arm for `context` and count its arrival; return the decision.

        If reports of peers are needed first, nothing is counted and the result is `-1 - row`: ask
        the peers in `stale(row, slot)`, call `hear` for each, then `resume`. A learner without
        labels always asks, for estimates, and continues with `consult`.
        `closed` has one byte per arm, 1: unavailable. The decision is the same as with infinite
        costs of these arms. None: all are available.
        """
        self._read(context)
        row = self._locate(slot)
        choice = -1
        if self.is_supervised:
            if closed is None:
                choice = self._choose(row, slot, False)
            else:
                choice = self._choose_open(row, slot, False, closed)
        if choice < 0:
            return -1 - row
        self._follow_on()
        return self._begin(row, choice)

    def stale(self, row: int, slot: int, closed: bytes | None = None) -> list[int]:
        """Return the peers whose training counter must be refreshed before `row` is decided."""
        if closed is not None:
            self._close(closed)
        peers = self._stale(row, slot)
        if closed is not None:
            self._reopen()
        return peers

    def _stale(self, row: int, slot: int) -> list[int]:
        if self.is_indexed or self.eliminates:
            return self._unheard(row, slot)
        base = row * self.stride + self.untrained
        self.clock.move(slot)
        limit = self.clock.floors[1]
        return [
            k
            for k in range(self.asked - self.functions)
            if self.rows[base + k] <= limit and self.costs[self.functions + k] < CLOSED
        ]

    def _unheard(self, row: int, slot: int) -> list[int]:
        """Return the peers whose bounds are needed before `row` is decided."""
        if self.is_lazy and self.is_indexed:
            return [self.wanted] if self._choose_by_index(row, slot) < 0 else []
        return [
            k for k in range(self.asked - self.functions) if self.costs[self.functions + k] < CLOSED
        ]

    def report(self, row: int, slot: int) -> Report:
        """Return the report for a peer: arrivals, and bounds of the best accuracy."""
        self.clock.move(slot)
        self.clock.round_up(slot)
        base = row * self.stride
        if self.is_indexed:
            return self.rows[base + ARRIVALS], 0.0, self._reply(row)
        if self.eliminates:
            self._bound(base, slot)
            best = (max(self.low[: self.functions]), max(self.high[: self.functions]))
            return self.rows[base + ARRIVALS], *best
        return self.rows[base + ARRIVALS], 0.0, 1.0

    def hear(self, row: int, peer: int, report: Report, slot: int) -> int:
        """Store the `report` of `peer`; return the previous training counter."""
        old = self.rows[row * self.stride + self.untrained + peer]
        self.clock.move(slot)
        if self.is_indexed or self.eliminates:
            self._hear(row, peer, report[0], report[1], report[2], slot)
        else:
            self._refresh(row, peer, report[0])
        return old

    def unrefresh(self, row: int, peer: int, old: int) -> None:
        """Restore the counter that `refresh` returned."""
        base = row * self.stride
        self.rows[base + self.untrained + peer] = old
        self.rows[base + CALM] = 0

    def resume(
        self, row: int, context: tuple[float, ...], slot: int, closed: bytes | None = None
    ) -> int:
        """Continue a decision after the peers' reports; -1 - row: more are needed."""
        self._read(context)
        self._follow()
        if closed is None:
            choice = self._choose(row, slot, True)
        else:
            choice = self._choose_open(row, slot, True, closed)
        return self._begin(row, choice) if choice >= 0 else -1 - row

    def retract(self, decision: int, context: tuple[float, ...], slot: int) -> None:
        """Undo what `decide`, `resume` or `serve` counted at `slot`.

        Cells created later are unchanged.
        """
        if decision & 3 != SERVE:
            self._read(context)
        self._retract(decision, slot)

    def _retract(self, decision: int, slot: int) -> None:
        row = decision >> 20
        if decision & 3 == SERVE:
            self._count_served(row, -1)
        else:
            self._follow()
            self.rows[row * self.stride + OWN] -= 1
            if self.counted == ARRIVED:
                for k in range(self.found):
                    base = self.path[k] * self.stride
                    if self._since(base) <= slot:
                        self.rows[base + ARRIVALS] -= 1
        self._release(row, decision >> 2 & 0x3FFFF, decision & 3)

    def settle(
        self,
        decision: int,
        gain: int,
        context: tuple[float, ...],
        slot: int,
        paid: int = UNPAID,
    ) -> None:
        """Record the label of a decision made at `slot`: its gain and its cost.

        `paid` is the variable cost in millionths. With `is_balanced`, it is the `width` that the
        helper reported.
        """
        row = decision >> 20
        arm = decision >> 2 & 0x3FFFF
        phase = decision & 3
        self._expect(row, arm, phase, -1)
        if phase == SERVE:
            self._learn_served(row, arm, gain, slot)
        else:
            if self.levels > 1:
                self._read(context)
                self._follow()
            self._learn_own(row, arm, phase, gain, slot, paid)

    def remember(self, decision: int, label: Any, context: tuple[float, ...], slot: int) -> None:
        """Store the label of a decision made at `slot`, for queries that contain only the cell."""
        if decision & 3 == SERVE:
            self._remember(decision >> 20, label)
        else:
            self._read(context)
            self._follow()
            self._remember_around(label, slot)

    def set_cost(self, arm: int, cost: float) -> None:
        """Change the cost of `arm` and keep its counters; infinite: unavailable."""
        self.costs[arm] = cost
        for row in range(self.used):
            self.rows[row * self.stride + BEST] = -1
            self.rows[row * self.stride + CALM] = 0

    def expect(self, decision: int) -> None:
        """Count a pending label of a decision that is already counted."""
        self._expect(decision >> 20, decision >> 2 & 0x3FFFF, decision & 3, 1)

    def forget(self, decision: int) -> None:
        """Remove the pending label of `decision`."""
        self._release(decision >> 20, decision >> 2 & 0x3FFFF, decision & 3)

    def meet(self, cell: Cell, slot: int) -> int:
        """Return the row of a cell named by a peer; create it if needed."""
        self._point_at(cell)
        self.deepest = max(self.deepest, cell.level)
        if self.is_layered:
            return self._open_layers(cell.level, slot)
        return self._open(cell.level, slot)

    def open_foreign(self, cell: Cell, slot: int) -> int:
        """Return the row of a cell named by an isolated source; own labels count in it.

        No own decision depends on it, and it does not count towards the cell limit, until
        `decide` or `meet` reaches it: then it is reset and becomes an own cell.
        """
        return self.meet(cell, -1 - slot)

    def find(self, cell: Cell) -> int:
        """Return the row of a known cell; -1 if it is not known."""
        self._point_at(cell)
        return max(-1, self._find(cell.level))

    def is_foreign(self, row: int) -> bool:
        """Return whether the cell of `row` is known only from isolated sources."""
        return self.rows[row * self.stride + SINCE] < 0

    def foreign_cells(self) -> int:
        """Return how many rows are foreign."""
        return self.foreign

    def layers(self, row: int) -> list[int]:
        """Return `row` and, if all levels are used at once, the rows of its parent cells."""
        rows = []
        while row >= 0:
            rows.append(row)
            row = self.rows[row * self.stride + PARENT] if self.is_layered else -1
        return rows

    def around(self, context: tuple[float, ...]) -> list[int]:
        """Return the rows of the known cells around a context."""
        self._read(context)
        self._follow()
        return [self.path[k] for k in range(self.found)]

    def around_batch(self, contexts: memoryview, count: int) -> set[int]:
        """Return the rows of the known cells around `count` contexts."""
        rows = set()
        for k in range(count):
            self._take_context(contexts, k)
            self._follow()
            for n in range(self.found):
                rows.add(self.path[n])
        return rows

    def combine(self, row: int, other: Table, by: int) -> None:
        """Add the counts of `other` for own functions in the cell of `row` (by 1), or subtract.

        If all levels are used at once, also in its parent cells. `other` has the same rule.
        """
        if other.stride != self.stride:
            raise DataError("tables of different rules cannot be combined")
        while row >= 0:
            base = row * self.stride
            for k in range(self.dimension):
                other.point[k] = self.rows[base + COORDINATES + k]
            there = other._find(self.rows[base + LEVEL])
            if there >= 0:
                self._combine(row, other, there * other.stride, by)
            row = self.rows[base + PARENT] if self.is_layered else -1

    def _combine(self, row: int, other: Table, there: int, by: int) -> None:
        base = row * self.stride
        self.rows[base + ARRIVALS] += by * other.rows[there + ARRIVALS]
        self.rows[base + BEST_OWN] = -1
        for function in range(self.functions):
            self._combine_at(base + self.labels + function, other, there - base, by)
            self._combine_at(base + self.right + function, other, there - base, by)
            if self.is_pending:
                self._combine_at(base + self.underway + function, other, there - base, by)
            if self.learns_costs:
                self._combine_at(base + self.spent + function, other, there - base, by)
                self._combine_at(base + self.times + function, other, there - base, by)
            if self.forgets:
                self._combine_at(base + self.recent + function, other, there - base, by)
                self._combine_at(base + self.recent_right + function, other, there - base, by)
            if self.is_indexed:
                self._outdate(row, function)

    def _combine_at(self, at: int, other: Table, shift: int, by: int) -> None:
        self.rows[at] += by * other.rows[at + shift]

    def forget_labels(self, slot: int) -> None:
        """Reset all labels of own functions; labels of decisions up to `slot` are ignored."""
        self._forget_all(self.functions)
        self.doubt_served = 0
        self.forgotten = max(self.forgotten, slot)

    def arrivals(self, row: int) -> int:
        """Return the arrivals in reports."""
        return self.rows[row * self.stride + ARRIVALS]

    def serve(self, row: int, slot: int, function: int = -1) -> int:
        """Count a peer's instance in `row` and return the decision.

        -1: the table chooses the own function; else it is `function`.
        """
        self.clock.move(slot)
        self.clock.round_up(slot)
        if function < 0:
            function = self._help(row)
        self._count_served(row, 1)
        self._expect(row, function, SERVE, 1)
        return row << 20 | function << 2 | SERVE

    def width(self, decision: int) -> int:
        """Return the uncertainty of a served function, in millionths."""
        return self._width(decision >> 20, decision >> 2 & 0x3FFFF)

    def best_own(self, row: int) -> int:
        """Return the own function with the largest estimate minus cost."""
        return self._largest(row * self.stride, self.functions, True)

    def estimate(self, row: int) -> tuple[float, int]:
        """Return accuracy and labels of the best own function, for a learner without labels."""
        base = row * self.stride
        best = self._largest(base, self.functions, False)
        return self._accuracy(base, best), self.rows[base + self.labels + best]

    def consult(
        self,
        row: int,
        context: tuple[float, ...],
        told: list[tuple[float, int]],
        closed: bytes | None = None,
    ) -> int:
        """Decide without labels, given the results of `estimate` or `recall` for each peer arm.

        Entries of closed arms are ignored, but must be present.
        """
        seen = 0
        for arm in range(self.functions, self.arms):
            self.told[arm] = told[arm - self.functions][0]
            if closed is None or not closed[arm]:
                seen += told[arm - self.functions][1]
        self._read(context)
        self._follow()
        if closed is not None:
            self._close(closed)
        arm = self._weigh(row * self.stride, seen)
        if closed is not None:
            self._reopen()
        return self._begin(row, arm << 2 | EXPLOIT)

    def recall(self, row: int) -> tuple[Any, int, int]:
        """Return the most frequent label in `row`, its count, and the number of labels."""
        leader, count, total, _ = self.memory.get(row, NOTHING)
        return leader, count, total

    def known(self, row: int) -> list[tuple[Any, int]]:
        """Return the labels in `row` with their counts, the most frequent first."""
        leader, _, _, counts = self.memory.get(row, NOTHING)
        return sorted((counts or {}).items(), key=lambda one: (-one[1], one[0] is not leader))

    def know(self, row: int, labels: list[tuple[Any, int]]) -> None:
        """Restore the result of `known`."""
        if labels:
            counts = dict(labels)
            self.memory[row] = (labels[0][0], labels[0][1], sum(counts.values()), counts)

    # -- batches ------------------------------------------------------------------------------

    def decide_batch(
        self,
        contexts: memoryview,
        first_slot: int,
        decisions: memoryview,
        closed: bytes | None = None,
    ) -> int:
        """Decide for consecutive slots without labels in between, as `decide` for each.

        Stops before the first row that needs reports of peers, and returns its index. `contexts`
        are flat, validated coordinates. With pending labels counted, a batch spreads its
        exploration.
        """
        if closed is None:
            return self._decide_batch(contexts, first_slot, decisions)
        self._close(closed)
        try:
            return self._decide_batch(contexts, first_slot, decisions)
        finally:
            self._reopen()

    def _decide_batch(self, contexts: memoryview, first_slot: int, decisions: memoryview) -> int:
        for k in range(len(decisions)):
            self._take_context(contexts, k)
            row = self._locate(first_slot + k)
            choice = self._choose(row, first_slot + k, False) if self.is_supervised else -1
            if choice < 0:
                decisions[k] = -1 - row
                return k
            self._follow_on()
            decisions[k] = self._begin(row, choice)
        return len(decisions)

    def retract_batch(self, contexts: memoryview, first_slot: int, decisions: memoryview) -> None:
        """Undo decisions of consecutive slots, as `retract`; undecided rows are skipped."""
        for k in range(len(decisions)):
            if decisions[k] >= 0:
                if decisions[k] & 3 != SERVE:
                    self._take_context(contexts, k)
                self._retract(decisions[k], first_slot + k)

    def settle_batch(
        self,
        contexts: memoryview,
        slots: memoryview,
        decisions: memoryview,
        gains: memoryview,
        paid: memoryview,
    ) -> None:
        """Record labels of decisions in order, as `settle` does."""
        for k in range(len(decisions)):
            row = decisions[k] >> 20
            arm = decisions[k] >> 2 & 0x3FFFF
            phase = decisions[k] & 3
            self._expect(row, arm, phase, -1)
            if phase == SERVE:
                self._learn_served(row, arm, gains[k], slots[k])
                continue
            if self.levels > 1:
                self._take_context(contexts, k)
                self._follow()
            self._learn_own(row, arm, phase, gains[k], slots[k], paid[k])

    def forget_batch(self, decisions: memoryview) -> None:
        """Remove the pending labels of decisions."""
        for k in range(len(decisions)):
            self._release(decisions[k] >> 20, decisions[k] >> 2 & 0x3FFFF, decisions[k] & 3)

    def _take_context(self, contexts: memoryview, k: int) -> None:
        for n in range(self.dimension):
            self.context[n] = contexts[k * self.dimension + n]

    # -- looking in, saving, loading ----------------------------------------------------------

    def __len__(self) -> int:
        return self.used

    def nbytes(self) -> int:
        """Return the memory of the cells, including unused capacity."""
        return 8 * len(self.rows) + 4 * len(self.index)

    def cell(self, row: int) -> Cell:
        """Return the cell of `row`."""
        base = row * self.stride
        first = base + COORDINATES
        coordinates = tuple([self.rows[first + k] for k in range(self.dimension)])
        return Cell(self.rows[base + LEVEL], coordinates)

    def is_split(self, row: int) -> bool:
        """Return whether the learner uses finer cells here."""
        base = row * self.stride
        return self.rows[base + OWN] >= self.limits[self.rows[base + LEVEL]]

    def own(self, row: int) -> int:
        """Return the learner's own arrivals in `row` while it was its finest cell there."""
        return self.rows[row * self.stride + OWN]

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

    def counters(self, row: int) -> list[int]:
        """Return the counters of `row`: since, arrivals, own arrivals, then per arm.

        If reports of peers are cached, their slots and the bits of their values follow.
        """
        base = row * self.stride
        head = [self.rows[base + SINCE], self.rows[base + ARRIVALS], self.rows[base + OWN]]
        tail = [self.rows[base + k] for k in range(self.labels, self.stride)]
        for k in range(self._kept_replies()):
            at = row * self.bounds + self.functions + k
            stamp = 0 if self.is_wary else self.stamps[at]
            tail += [stamp, BITS.unpack(NUMBER.pack(self.values[at]))[0] if stamp else 0]
        return head + tail

    def load(self, cell: Cell, counters: list[int]) -> int:
        """Create `cell` from the result of `counters`; return its row."""
        row = self.meet(cell, min(0, counters[0]))
        base = row * self.stride
        self.foreign += (counters[0] < 0) - (self.rows[base + SINCE] < 0)
        self.rows[base + SINCE] = counters[0]
        self.rows[base + ARRIVALS] = counters[1]
        self.rows[base + OWN] = counters[2]
        for k in range(self.labels, self.stride):
            self.rows[base + k] = counters[3 + k - self.labels]
        told = counters[3 + self.stride - self.labels :]
        for k in range(self._kept_replies()):
            at = row * self.bounds + self.functions + k
            self.stamps[at] = told[2 * k]
            self.values[at] = NUMBER.unpack(BITS.pack(told[2 * k + 1]))[0]
        return row

    def _kept_replies(self) -> int:
        return self.asked - self.functions if self.is_indexed and self.is_lazy else 0

    def doubts(self) -> list[int]:
        """Return the change-detection statistics, and the slot of the last reset."""
        return [self.doubt, self.doubt_served, int(self.is_wary), self.forgotten]

    def take_doubts(self, doubts: list[int]) -> None:
        """Restore the result of `doubts`."""
        self.doubt, self.doubt_served, self.forgotten = doubts[0], doubts[1], doubts[3]
        self.is_wary = doubts[2] > 0

    # -- context -> row -----------------------------------------------------------------------

    def _read(self, context: tuple[Any, ...]) -> int:
        if len(context) != self.dimension:
            raise ContextError(
                f"the context has {len(context)} coordinates; this learner's have {self.dimension}"
            )
        for k in range(self.dimension):
            value = float(context[k])
            if not 0.0 <= value <= 1.0:
                raise ContextError(f"context coordinate {k} is {value}; it must lie in [0, 1]")
            self.context[k] = value
        return 0

    def _point_at(self, cell: Cell) -> int:
        for k in range(self.dimension):
            self.point[k] = cell.coordinates[k]
        return 0

    def _since(self, base: int) -> int:
        """Return the slot in which a cell became known, foreign ones included."""
        since = self.rows[base + SINCE]
        return since if since >= 0 else -1 - since

    def _point_now(self) -> tuple[float, ...]:
        return tuple([self.context[k] for k in range(self.dimension)])

    def _aim(self, level: int) -> None:
        """Set `point` to the coordinates of the cell of `level` around the context."""
        side = self.sides[level]
        for k in range(self.dimension):
            slice_ = int(self.context[k] * side)
            self.point[k] = slice_ if slice_ < side else slice_ - 1

    def _locate(self, slot: int) -> int:
        """Return the row of the learner's own cell around the context; `path` leads to it."""
        level = 0
        while True:
            self._aim(level)
            row = self._open(level, slot)
            self.path[level] = row
            if self.is_layered:
                self.rows[row * self.stride + PARENT] = self.path[level - 1] if level else -1
            self.found = level + 1
            if self.is_flat or self.rows[row * self.stride + OWN] < self.limits[level]:
                if self.inherits and level + 1 < self.levels:
                    self._aim(level + 1)
                    self.path[level + 1] = self._open(level + 1, slot)
                    self.found = level + 2
                return row
            level += 1
            if level == self.levels:
                raise LimitError(
                    f"a cell of level {level - 1} is due to be split, and no finer level is "
                    "allowed; raise max-level, or split-power so that cells split later"
                )

    def _place(self, level: int) -> int:
        """Return where in the index the search for the cell at `point` begins."""
        value = 0
        if self.is_direct:
            side = int(self.sides[level])
            for k in range(self.dimension):
                value = value * side + self.point[k]
            return self.firsts[level] + value
        value = level + 1
        for k in range(self.dimension):
            value = (value * FACTOR + self.point[k]) & MASK
        value = value * FACTOR & MASK
        return (value ^ value >> 20) & (len(self.index) - 1)

    def _find(self, level: int) -> int:
        """Return the row of the cell at `point`, or `-2 - place` where it would be indexed."""
        place = self._place(level)
        while True:
            entry = self.index[place]
            if entry == 0:
                return -2 - place
            if self.is_direct or self._is_at(entry - 1, level):
                return entry - 1
            place = place + 1 & len(self.index) - 1

    def _is_at(self, row: int, level: int) -> bool:
        base = row * self.stride
        if self.rows[base + LEVEL] != level:
            return False
        for k in range(self.dimension):
            if self.rows[base + COORDINATES + k] != self.point[k]:
                return False
        return True

    def _open(self, level: int, slot: int) -> int:
        """Return the row of the cell at `point`, creating it if needed.

        A foreign one becomes an own one; with a negative slot, the new row is foreign.
        """
        row = self._find(level)
        if row < 0:
            return self._add(level, slot, -2 - row)
        if self.foreign > 0 and slot >= 0 and self.rows[row * self.stride + SINCE] < 0:
            self._adopt(row, slot)
        return row

    def _adopt(self, row: int, slot: int) -> int:
        """Reset a foreign row to a new own one."""
        self._check_room()
        base = row * self.stride
        for k in range(self.labels, self.stride):
            self.rows[base + k] = 0
        self.rows[base + ARRIVALS] = self.rows[base + OWN] = self.rows[base + CALM] = 0
        self.rows[base + BEST] = self.rows[base + BEST_OWN] = -1
        self.rows[base + SINCE] = slot
        if self.is_indexed:
            for k in range(self.bounds):
                self.stamps[row * self.bounds + k] = 0
        self.memory.pop(row, None)
        self.foreign -= 1
        return 0

    def _check_room(self) -> int:
        own = self.used - self.foreign
        if own >= self.most_cells:
            raise LimitError(f"{own} cells are in use, which is the cap; raise max-cells")
        return 0

    def _meet(self, other: Table, row: int, slot: int) -> int:
        """Return the own row of the cell that `other` keeps in `row`."""
        base = row * other.stride
        level = other.rows[base + LEVEL]
        for k in range(self.dimension):
            self.point[k] = other.rows[base + COORDINATES + k]
        found = self._find(level)
        if found >= 0:
            return found
        self.deepest = max(self.deepest, level)
        if self.is_layered:
            return self._open_layers(level, slot)
        return self._add(level, slot, -2 - found)

    def _open_layers(self, finest: int, slot: int) -> int:
        """Return the row of the cell of level `finest` at `point`; create its parents too."""
        for k in range(self.dimension):
            self.fine[k] = self.point[k]
        row = -1
        for level in range(finest + 1):
            scale = self.sides[level] / self.sides[finest]
            for k in range(self.dimension):
                self.point[k] = int(self.fine[k] * scale)
            parent = row
            row = self._open(level, slot)
            self.rows[row * self.stride + PARENT] = parent
        return row

    def _add(self, level: int, slot: int, place: int) -> int:
        row = self.used
        base = row * self.stride
        if slot >= 0:
            self._check_room()
        if base + self.stride > len(self.rows):
            self._grow(base + max(4, row // 2) * self.stride)
        self.rows[base + LEVEL] = level
        self.rows[base + SINCE] = slot
        self.rows[base + BEST] = self.rows[base + BEST_OWN] = -1
        for k in range(self.dimension):
            self.rows[base + COORDINATES + k] = self.point[k]
        self.used += 1
        self.foreign += slot < 0
        self.index[place] = row + 1
        if 2 * self.used > len(self.index) and not self.is_direct:
            self._reindex()
        return row

    def _grow(self, length: int) -> int:
        old = self.rows
        self.rows = array("q", bytes(8 * length))
        for k in range(len(old)):
            self.rows[k] = old[k]
        if self.is_indexed:
            self._grow_index(length // self.stride)
        return 0

    def _grow_index(self, rows: int) -> int:
        values, stamps = self.values, self.stamps
        self.values = array("d", bytes(8 * rows * self.bounds))
        self.stamps = array("q", bytes(8 * rows * self.bounds))
        for k in range(len(values)):
            self.values[k] = values[k]
            self.stamps[k] = stamps[k]
        return 0

    def _reindex(self) -> int:
        kept = self.point
        self.index = array("i", bytes(8 * len(self.index)))
        self.point = array("q", bytes(8 * len(kept)))
        for row in range(self.used):
            base = row * self.stride
            for k in range(self.dimension):
                self.point[k] = self.rows[base + COORDINATES + k]
            self.index[-2 - self._find(self.rows[base + LEVEL])] = row + 1
        self.point = kept
        return 0

    def _follow(self) -> None:
        """Set `path` to the known cells around the context."""
        self.found = 0
        for level in range(self.levels):
            self._aim(level)
            row = self._find(level)
            if row >= 0:
                self.path[self.found] = row
                self.found += 1
            elif level >= self.deepest:
                break

    def _follow_on(self) -> None:
        """Add to the path of `_locate` the finer cells that peers created."""
        for level in range(self.found, self.deepest + 1):
            self._aim(level)
            row = self._find(level)
            if row >= 0:
                self.path[self.found] = row
                self.found += 1

    # -- the choice ---------------------------------------------------------------------------

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        """Return `arm << 2 | phase`; -1 if peers must be asked first."""
        base = row * self.stride
        # Counters never decrease: a passed test stays passed until a threshold rises.
        if slot < self.rows[base + CALM]:
            return self._best(base) << 2 | EXPLOIT
        if self.is_indexed:
            return self._choose_by_index(row, slot)
        return self._choose_by_phase(row, slot, is_fresh)

    def _choose_open(self, row: int, slot: int, is_fresh: bool, closed: bytes) -> int:
        """Choose among the arms that are not closed."""
        self._close(closed)
        choice = self._choose(row, slot, is_fresh)
        self._reopen()
        return choice

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

    def _choose_by_phase(self, row: int, slot: int, is_fresh: bool) -> int:
        base = row * self.stride
        self.clock.move(slot)
        explore, train, explore_peers = (
            self.clock.floors[0],
            self.clock.floors[1],
            self.clock.floors[2],
        )
        if self.eliminates:
            if not is_fresh and self.asked > self.functions:
                return -1
            most = self._eliminate(row, slot)
            explore, explore_peers = min(explore, most), min(explore_peers, most)
        if not self.trains_first:
            arm = self._wanting(base, self.labels, 0, self.functions, explore)
            if arm >= 0:
                return arm << 2 | EXPLORE
        untrained = self.untrained - self.functions
        if self.eliminates:
            train = self._retrain(row, train)
        arm = self._wanting(base, untrained, self.functions, self.asked, train)
        if arm >= 0:
            return arm << 2 | TRAIN if is_fresh else -1
        if self.trains_first:
            arm = self._wanting(base, self.labels, 0, self.functions, explore)
            if arm >= 0:
                return arm << 2 | EXPLORE
        arm = self._wanting(base, self.labels, self.functions, self.arms, explore_peers)
        if arm >= 0:
            return arm << 2 | EXPLORE
        if not self.eliminates and not self.is_closing:
            self.rows[base + CALM] = self.clock.end
        return self._best(base) << 2 | EXPLOIT

    def _choose_by_index(self, row: int, slot: int) -> int:
        """Return the arm with the largest index; -1 if the peer `wanted` must be asked first."""
        base = row * self.stride
        self.clock.round_up(slot)
        is_asking = not self.is_balanced and not self.is_wary
        if is_asking and not self.is_lazy and self._is_unheard(row, slot):
            return -1
        chosen = -1
        largest = 0.0
        for arm in range(self.functions):
            value = self._worth(base, arm, self._upper(row, arm))
            if chosen < 0 or value > largest:
                chosen = arm
                largest = value
        replies = row * self.bounds + self.functions
        for k in range(self.asked - self.functions):
            arm = self.functions + k
            if self.costs[arm] >= CLOSED:
                continue
            value = self._worth(base, arm, self._promise(row, k, slot))
            if value > largest:
                chosen = arm
                largest = value
        if chosen >= self.functions and self.is_lazy and is_asking:
            self.wanted = chosen - self.functions
            if self.stamps[replies + self.wanted] != slot:
                return -1
        return chosen << 2 | (EXPLOIT if self._best(base) == chosen else EXPLORE)

    def _is_unheard(self, row: int, slot: int) -> bool:
        """Return whether the report of some peer is missing in this slot."""
        replies = row * self.bounds + self.functions
        for k in range(self.asked - self.functions):
            if self.costs[self.functions + k] < CLOSED and self.stamps[replies + k] != slot:
                return True
        return False

    def _promise(self, row: int, peer: int, slot: int) -> float:
        """Return the index of a peer without its price: from its report, or from own labels."""
        at = row * self.bounds + self.functions + peer
        promise = FOREVER
        if self.is_wary:  # reports are replaced by own records
            return min(1.0, self._upper(row, self.functions + peer))
        if self.is_balanced:
            promise = self._balance(row, peer)
        elif 2 * self.stamps[at] >= slot:  # the index of the queried peer grows with the slot
            promise = self.values[at]
        if self.floors_training:
            promise = min(promise, self._credit(row * self.stride, self.functions + peer))
        if self.is_pending and not self.is_balanced:
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
                value = self._bound_by(base, arm, under_way) + self.bias[self.rows[base + LEVEL]]
                smallest = min(smallest, value)
            row = self.rows[base + PARENT] if self.is_layered else -1
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
        """Return the index of an arm from all or recent labels of a cell.

        Pending labels narrow the interval without a change of the estimate.
        """
        labels = float(self.rows[base + self.labels + arm])
        right = float(self.rows[base + self.right + arm])
        most = labels * self.unit
        if self.is_recent:
            most = float(self.rows[base + self.recent + arm])
            right = float(self.rows[base + self.recent_right + arm])
            labels = most / ONE
        if labels + under_way == 0:
            return 1.0
        accuracy = right / most if labels > 0 else 0.5
        return klucb(accuracy, labels + under_way, self.scale * self.clock.logarithm)

    def _credit(self, base: int, arm: int) -> float:
        """Return the index of an arm from own records, without its report."""
        labels = float(self.rows[base + self.labels + arm])
        right = float(self.rows[base + self.right + arm]) / self.unit
        if self.is_recent:
            labels = float(self.rows[base + self.recent + arm]) / ONE
            right = float(self.rows[base + self.recent_right + arm]) / ONE
        if labels == 0:
            return FOREVER
        return klucb(right / labels, labels, self.clock.logarithm)

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

    def _upper(self, row: int, arm: int) -> float:
        """Return the index of an arm from own records, in this cell and its parents."""
        if not self.is_layered:
            return self._upper_in(row, arm)
        smallest = FOREVER
        while row >= 0:
            base = row * self.stride
            value = self._upper_in(row, arm) + self.bias[self.rows[base + LEVEL]]
            smallest = min(smallest, value)
            row = self.rows[base + PARENT]
        return smallest

    def _upper_by_labels(self, row: int, function: int) -> float:
        """Return the same without pending labels."""
        smallest = FOREVER
        while row >= 0:
            base = row * self.stride
            value = self._bound_by(base, function, 0) + self.bias[self.rows[base + LEVEL]]
            smallest = min(smallest, value)
            row = self.rows[base + PARENT] if self.is_layered else -1
        return smallest

    def _outdate(self, row: int, arm: int) -> None:
        """Mark the cached index of an arm in `row` as stale."""
        self.stamps[row * self.bounds + arm] = 0
        self.stamps[(row + 1) * self.bounds - 1] = 0

    def _outdate_recent(self, row: int) -> None:
        for function in range(self.functions):
            self._outdate(row, function)

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

    def _hear(self, row: int, peer: int, arrivals: int, low: float, high: float, slot: int) -> None:
        """Store the report of a peer."""
        if self.is_wary:
            return
        if self.is_indexed:
            at = row * self.bounds + self.functions + peer
            self.values[at] = high
            self.stamps[at] = slot
        else:
            self.heard[self.functions + peer] = arrivals
            self.low[self.functions + peer] = low
            self.high[self.functions + peer] = high

    def _bound(self, base: int, slot: int) -> float:
        """Set the bounds of the own functions; return their confidence level."""
        level: float = log(self.confidence * slot * slot)
        for arm in range(self.functions):
            labels = float(self.rows[base + self.labels + arm])
            self.low[arm] = -FOREVER
            self.high[arm] = FOREVER
            if labels > 0:
                accuracy = self.rows[base + self.right + arm] / (labels * self.unit)
                radius = sqrt(level / (2 * labels))
                self.low[arm] = accuracy - radius
                self.high[arm] = accuracy + radius
        return level

    def _eliminate(self, row: int, slot: int) -> int:
        """Set the arms that may be optimal; return the maximum number of trials of each."""
        base = row * self.stride
        level = self._bound(base, slot)
        best = -FOREVER
        for arm in range(self.arms):
            best = max(best, self.low[arm] - self._price(base, arm))
        for arm in range(self.arms):
            self.active[arm] = self.high[arm] - self._price(base, arm) + 2 * self.slack >= best
        self.rows[base + BEST] = -1
        self.cap = level / (2 * self.slack * self.slack) if self.slack > 0 else FOREVER
        return int(self.cap) if self.cap < FAR else FAR

    def _retrain(self, row: int, limit: int) -> int:
        """Refresh the training counters of peers that may need training; return their limit."""
        cap = self.most_functions * self.cap
        limit = min(limit, int(cap) if cap < FAR else FAR)
        base = row * self.stride + self.untrained
        for k in range(self.asked - self.functions):
            arm = self.functions + k
            is_open = self.active[arm] and self.costs[arm] < CLOSED
            if is_open and self.rows[base + k] <= limit:
                self._refresh(row, k, self.heard[arm])
        return limit

    def _tried(self, base: int, arm: int) -> int:
        if self.is_pending:
            return self.rows[base + self.labels + arm] + self.rows[base + self.underway + arm]
        return self.rows[base + self.labels + arm]

    def _wanting(self, base: int, field: int, first: int, end: int, limit: int) -> int:
        """Return the lowest arm (or one at random) whose count in `field` is at most `limit`."""
        chosen = -1
        rivals = 0
        for arm in range(first, end):
            count = self.rows[base + field + arm]
            if self.is_pending and field == self.labels:
                count += self.rows[base + self.underway + arm]
            if count <= limit and self.costs[arm] < CLOSED and self.active[arm]:
                if not self.is_random:
                    return arm
                rivals += 1
                if self._is_drawn(rivals):
                    chosen = arm
        return chosen

    def _best(self, base: int) -> int:
        if self.is_closing:
            return self._largest(base, self.arms, True)
        # Rewards can depend on the context: the best arm of a cell cannot be cached.
        if self.rows[base + BEST] < 0 or self.is_random or self.has_rewards:
            self.rows[base + BEST] = self._largest(base, self.arms, True)
        return self.rows[base + BEST]

    def _help(self, row: int) -> int:
        """Return the own function for a peer's instance, without regard to costs."""
        if self.is_indexed:
            return self._most_promising(row)
        function = self._unexplored(row)
        return function if function >= 0 else self._most_accurate(row * self.stride)

    def _most_promising(self, row: int) -> int:
        at = (row + 1) * self.bounds - 1
        base = row * self.stride
        if self.stamps[at] == self.clock.rounded and not self.is_layered:
            return self.rows[base + BEST_OWN]
        chosen = 0
        largest = 0.0
        for function in range(self.functions):
            value = self._upper(row, function)
            if function == 0 or value > largest:
                largest = value
                chosen = function
        self.rows[base + BEST_OWN] = chosen
        self.values[at] = largest
        self.stamps[at] = self.clock.rounded
        return chosen

    def _unexplored(self, row: int) -> int:
        """Return the own function that a helper explores next; -1: none."""
        if not self.explores_to_help:
            return -1
        base = row * self.stride
        for arm in range(self.functions):
            self.active[arm] = 1  # for a peer's request, any function can be explored
        return self._wanting(base, self.labels, 0, self.functions, self.clock.floors[0])

    def _most_accurate(self, base: int) -> int:
        if self.rows[base + BEST_OWN] < 0 or self.is_random:
            self.rows[base + BEST_OWN] = self._largest(base, self.functions, False)
        return self.rows[base + BEST_OWN]

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
        if self.learns_costs and not self.is_balanced and self.rows[base + self.times + arm] > 0:
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
        price = self._price(base, arm)
        if not self.has_rewards:
            return accuracy - price
        at = arm * (3 + self.dimension)
        slope = 1.0
        for k in range(self.dimension):
            slope += self.rewards[at + 3 + k] * self.context[k]
        gained: float = self.rewards[at] * accuracy ** self.rewards[at + 1]
        return gained - self.rewards[at + 2] * price * slope

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
            if self.is_indexed:
                self._outdate_recent(base // self.stride)
        self.rows[base + BEST] = self.rows[base + BEST_OWN] = -1

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

    def _accuracy(self, base: int, arm: int) -> float:
        # An arm without labels in the window, or with discounted count 0, uses all its labels.
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

    def _refresh(self, row: int, peer: int, arrivals: int) -> None:
        base = row * self.stride
        asked = self.rows[base + self.labels + self.functions + peer]
        # The peer has counted a pending label only if it counts before the label arrives.
        if self.counted == ARRIVED:
            asked = self._tried(base, self.functions + peer)
        self.rows[base + self.untrained + peer] = arrivals - asked
        # A peer that reports fewer instances than were sent to it is not trained for now.
        sent = 0 if self.inherits else asked
        if self.floors_training and arrivals < sent + self.rows[base + self.trained + peer]:
            self.rows[base + self.untrained + peer] = self.clock.floors[1] + 1

    # -- what moves -----------------------------------------------------------------------------

    def _begin(self, row: int, choice: int) -> int:
        self._count_own(row, 1)
        self._expect(row, choice >> 2, choice & 3, 1)
        return row << 20 | choice

    def _count_own(self, row: int, by: int) -> None:
        """Count an own arrival in the own cell `row` and in those of `path`, which led to it."""
        self.rows[row * self.stride + OWN] += by
        if self.counted == ARRIVED:
            for k in range(self.found):
                self.rows[self.path[k] * self.stride + ARRIVALS] += by

    def _count_served(self, row: int, by: int) -> None:
        if self.counted == ARRIVED:
            self.rows[row * self.stride + ARRIVALS] += by

    def _expect(
        self,
        row: int,
        arm: int,
        phase: int,
        by: int,
    ) -> None:
        """Count a pending label; training labels of the asking learner do not count for the arm."""
        if not self.is_pending or phase == TRAIN:
            return
        while row >= 0:
            base = row * self.stride
            self.rows[base + self.underway + arm] += by
            if self.is_indexed and (arm < self.functions or self.is_wary):
                self._outdate(row, arm)
            row = self.rows[base + PARENT] if self.is_layered else -1

    def _release(self, row: int, arm: int, phase: int) -> None:
        """Remove a pending label; the arm can become underexplored again."""
        self._expect(row, arm, phase, -1)
        self.rows[row * self.stride + CALM] = 0

    def _learn_own(
        self,
        row: int,
        arm: int,
        phase: int,
        gain: int,
        slot: int,
        paid: int,
    ) -> None:
        """Record the label of an own decision; `path` holds the known cells around its context."""
        is_own = arm < self.functions
        is_counted = self.counted == LABELLED or (self.counted == USED and is_own)
        if self.alarm > 0 and not self._is_credible(row, arm, gain, slot, False):
            return
        if not is_own and (self.alarm > 0 or (self.is_layered and self.is_pending)):
            self._record_around(row, arm, gain, slot)
            self._spend(row * self.stride, arm, paid)
        elif not is_own and phase != TRAIN:
            self._record(row * self.stride, arm, gain)
            self._spend(row * self.stride, arm, paid)
            if self.inherits:
                self._record_finer(row, arm, gain, slot, paid)
        elif not is_own and self.floors_training:
            self.rows[row * self.stride + self.trained + arm - self.functions] += 1
        if self.levels == 1:
            base = row * self.stride
            self.rows[base + ARRIVALS] += is_counted
            if is_own:
                self._take(base, arm, gain, slot)
                self._spend(base, arm, paid)
        elif is_own or is_counted:
            for k in range(self.found):
                base = self.path[k] * self.stride
                # A cell created after the decision is unchanged.
                if self._since(base) <= slot:
                    self.rows[base + ARRIVALS] += is_counted
                    if is_own:
                        self._take(base, arm, gain, slot)
                        self._spend(base, arm, paid)

    def _record_finer(
        self,
        row: int,
        arm: int,
        gain: int,
        slot: int,
        paid: int,
    ) -> None:
        """Record a peer's label also for the later split of the cell of `row`."""
        level = self.rows[row * self.stride + LEVEL] + 1
        for k in range(self.found):
            base = self.path[k] * self.stride
            if self.rows[base + LEVEL] == level and self._since(base) <= slot:
                self._record(base, arm, gain)
                self._spend(base, arm, paid)

    def _record_around(self, row: int, arm: int, gain: int, slot: int) -> None:
        """Record a peer's label in its cell and, if all levels are used at once, in its parents."""
        while row >= 0:
            base = row * self.stride
            if self._since(base) <= slot:
                self._record(base, arm, gain)
                if self.is_wary:
                    self._outdate(row, arm)
            row = self.rows[base + PARENT] if self.is_layered else -1

    def _is_credible(self, row: int, arm: int, gain: int, slot: int, is_served: bool) -> bool:
        """Update the change detection; on an alarm reset the statistics and return False.

        Labels of earlier decisions are then ignored.
        """
        if slot <= self.forgotten:
            return False
        doubt = self.doubt_served if is_served else self.doubt
        doubt = max(0, doubt + self._surprise(row, arm, gain))
        is_alarm = doubt > self.alarm
        if is_served:
            self.doubt_served = 0 if is_alarm else doubt
        else:
            self.doubt = 0 if is_alarm else doubt
        if is_alarm:
            self._forget_all(self.functions if is_served else self.arms)
            self.is_wary = self.is_wary or not is_served
            self.forgotten = slot
        return not is_alarm

    def _surprise(self, row: int, arm: int, gain: int) -> int:
        """Return the log-likelihood ratio of a label for a lower accuracy against the estimate."""
        base = row * self.stride
        while self.is_layered and self.rows[base + self.labels + arm] < ENOUGH:
            if self.rows[base + PARENT] < 0:
                break
            base = self.rows[base + PARENT] * self.stride
        labels = self.rows[base + self.labels + arm]
        if labels < ENOUGH:
            return 0
        right = float(self.rows[base + self.right + arm]) / self.unit
        believed = (right + 1.0) / (labels + 2.0)
        if gain == self.unit:
            return RELIEF
        share = float(gain) / self.unit
        grounds: float = log((1.0 - FEARED * believed) / (1.0 - believed)) * DOUBTS
        return int(rint(share * RELIEF + (1.0 - share) * grounds))

    def _forget_all(self, end: int) -> None:
        """Reset the counters of the arms before `end`, in every cell."""
        for row in range(self.used):
            base = row * self.stride
            for arm in range(end):
                self.rows[base + self.labels + arm] = 0
                self.rows[base + self.right + arm] = 0
                # After a reset of the peers' records, their reports are ignored.
                self._outdate(row, arm)
            self.rows[base + BEST] = self.rows[base + BEST_OWN] = -1

    def _spend(self, base: int, arm: int, paid: int) -> None:
        """Record the variable cost of a decision, in millionths."""
        if self.learns_costs and paid != UNPAID:
            self.rows[base + self.spent + arm] += paid
            self.rows[base + self.times + arm] += 1
            self.rows[base + BEST] = -1

    def _remember(self, row: int, label: Any) -> int:
        """Store a label; the leading label changes only when another has a larger count."""
        leader, count, total, counts = self.memory.get(row, NOTHING)
        if self.asked_only and label != (leader or 0):
            return 0
        counts = counts or {}
        counts[label] = seen = counts.get(label, 0) + 1
        if seen > count:
            leader, count = label, seen
        self.memory[row] = (leader, count, total + 1, counts)
        return 0

    def _remember_around(self, label: Any, slot: int) -> int:
        """Store a label in the cells of `path` that existed when its instance arrived."""
        if self.asked_only:
            return 0
        for k in range(self.found):
            if self._since(self.path[k] * self.stride) <= slot:
                self._remember(self.path[k], label)
        return 0

    def _learn_served(self, row: int, function: int, gain: int, slot: int) -> None:
        base = row * self.stride
        if self.alarm > 0:
            if self.once and self.rows[base + self.last + function] == slot:
                return
            if not self._is_credible(row, function, gain, slot, True):
                return
        self.rows[base + ARRIVALS] += self.counted != ARRIVED
        self._take(base, function, gain, slot)
        if self.is_layered:
            row = self.rows[base + PARENT]
            while row >= 0:
                self._take(row * self.stride, function, gain, slot)
                row = self.rows[row * self.stride + PARENT]

    def _take(self, base: int, function: int, gain: int, slot: int) -> None:
        """Record a label of an own function; one instance counts once, for all askers."""
        if self.is_indexed or self.eliminates:
            if self.once and self.rows[base + self.last + function] == slot:
                return
            self.rows[base + self.last + function] = slot
            if self.is_indexed:
                self._outdate(base // self.stride, function)
        self._record(base, function, gain)

    def _record(self, base: int, arm: int, gain: int) -> None:
        self.rows[base + self.labels + arm] += 1
        self.rows[base + self.right + arm] += gain
        if self.forgets:
            self._record_recent(base, arm, gain)
            return
        if self.unit > 1:
            self.rows[base + BEST] = self.rows[base + BEST_OWN] = -1
            return
        # The best arm is unchanged if it is correct or another arm is wrong; otherwise recompute.
        if (self.rows[base + BEST] == arm) != gain:
            self.rows[base + BEST] = -1
        if arm < self.functions and (self.rows[base + BEST_OWN] == arm) != gain:
            self.rows[base + BEST_OWN] = -1


class Ledger:
    """One learner's tables, one per context space; its own spaces decide.

    Any own space can require training or exploration; otherwise the arm with the largest estimate
    in any of them is exploited. Counts and labels are recorded in all of them.
    """

    def __init__(self, tables: list[Table], own: tuple[int, ...], columns: Any) -> None:
        self.tables = tables
        self.own = array("i", own)
        self.count = len(own)
        self.places = array("i", [place for space in own for place in columns[space]] or [0])
        self.first = tables[own[0]]
        # Of the current instance, per own space: the cell, and that of the queried learner.
        self.rows, self.asked_rows = [array("q", bytes(8 * self.count)) for _ in range(2)]
        self.chosen = 0  # the own space, among them, whose table decided
        self.choice = 0
        self.helper = -1  # the queried learner; -1: none
        self.asked = self.first  # its table for the first own space
        self.function = 0  # of the helper, or own; -1: answer from stored labels
        self.width = 0  # uncertainty of the helper's function, in millionths
        self.stand_in = -1  # own function that answers if the helper fails or is late

    def _at(self, k: int) -> Table:
        return self.first if k == 0 else self.tables[self.own[k]]

    def _locate(self, contexts: Any, start: int, slot: int) -> int:
        """Find the own cells around an instance, whose coordinates begin at `start`."""
        at = 0
        for k in range(self.count):
            table = self._at(k)
            for n in range(table.dimension):
                table.context[n] = contexts[start + self.places[at + n]]
            at += table.dimension
            self.rows[k] = table._locate(slot)
        return 0

    def _choose(self, slot: int, fresh: int) -> int:
        """Return `arm << 2 | phase`; -1 if peers must first be asked for the space `chosen`.

        `fresh` is the last of the own spaces for which they have been asked; -1: none.
        """
        self.chosen = 0
        if self.count == 1:
            return self.first._choose(self.rows[0], slot, fresh >= 0)
        largest = 0.0
        choice = 0
        for k in range(self.count):
            table = self._at(k)
            one = table._choose(self.rows[k], slot, k <= fresh)
            if one < 0 or one & 3 != EXPLOIT:
                self.chosen = k
                return one
            base = self.rows[k] * table.stride
            value = table._worth(base, one >> 2, table._accuracy(base, one >> 2))
            if k == 0 or value > largest:
                largest = value
                self.chosen = k
                choice = one
        return choice

    def _meet(self, asker: Ledger, slot: int) -> int:
        """Find or create the cells of the asking learner's instance."""
        asker.asked = self._table(asker.own[0])
        asker.asked_rows[0] = asker.asked._meet(asker.first, asker.rows[0], slot)
        for k in range(1, asker.count):
            table = self._table(asker.own[k])
            asker.asked_rows[k] = table._meet(asker._at(k), asker.rows[k], slot)
        return 0

    def _table(self, space: int) -> Table:
        return self.tables[space]

    def _help(self, asker: Ledger) -> int:
        """Return the own function for the asking learner's instance, after `meet`."""
        if asker.count == 1:
            return asker.asked._help(asker.asked_rows[0])
        largest = 0.0
        chosen = 0
        for k in range(asker.count):
            function = self._table(asker.own[k])._unexplored(asker.asked_rows[k])
            if function >= 0:
                return function
        for k in range(asker.count):
            table = self._table(asker.own[k])
            base = asker.asked_rows[k] * table.stride
            function = table._most_accurate(base)
            value = table._accuracy(base, function)
            if k == 0 or value > largest:
                largest = value
                chosen = function
        return chosen

    def _recall(self, asker: Ledger) -> int:
        """Return the most frequent label in the cell with the clearest majority; -1: none."""
        answer = 0 if asker.asked.asked_only else -1
        largest = 0.0
        for k in range(asker.count):
            table = self._table(asker.own[k])
            leader, count, total, _ = table.memory.get(asker.asked_rows[k], NOTHING)
            if total and float(count) / total > largest:
                largest = float(count) / total
                answer = leader
        return answer

    def _best_own(self) -> int:
        """Return the own function with the largest estimate in any own space."""
        chosen = 0
        largest = 0.0
        for k in range(self.count):
            table = self._at(k)
            base = self.rows[k] * table.stride
            function = table._largest(base, table.functions, True)
            value = table._worth(base, function, table._accuracy(base, function))
            if k == 0 or value > largest:
                largest = value
                chosen = function
        return chosen

    def _count(self) -> int:
        self.first._follow_on()
        self.first._count_own(self.rows[0], 1)
        for k in range(1, self.count):
            table = self._at(k)
            table._follow_on()
            table._count_own(self.rows[k], 1)
        return 0

    def _learn(self, gain: int, slot: int, paid: int) -> int:
        """Record the label of the current instance immediately."""
        arm, phase = self.choice >> 2, self.choice & 3
        self.first._learn_own(self.rows[0], arm, phase, gain, slot, paid)
        for k in range(1, self.count):
            self._at(k)._learn_own(self.rows[k], arm, phase, gain, slot, paid)
        return 0


class Arena:
    """Replay of many learners on recorded predictions.

    In a slot every receiving learner decides on the state at the start of the slot; then arrivals
    are counted and due labels are settled. These are sums, so their order does not matter.
    """

    def __init__(
        self, ledgers: list[Ledger], seats: list[Seat], hidden_from: int, label_wait: int | None
    ) -> None:
        self.ledgers = ledgers
        self.count = len(ledgers)
        self.spaces = len(self._ledger(0).tables)
        self.clock = self._ledger(0)._table(0).clock
        self.offsets = array("i", [0] * (self.count + 1))  # learner -> its first row of predictions
        self.remembers = False
        for k in range(self.count):
            self.offsets[k + 1] = self.offsets[k] + self._ledger(k).first.functions
            self.remembers = self.remembers or self._ledger(k).first.remembers
        self.total = self.offsets[self.count]
        # Per arm of every learner: the queried learner (-1: itself), and the column of its cost.
        self.behind = array("i", [who for seat in seats for who in seat.behind])
        self.cost_columns = array("i", [column for seat in seats for column in seat.cost_columns])
        self.starts = array("i", [0] * (self.count + 1))  # learner -> its first arm in these
        for k in range(self.count):
            self.starts[k + 1] = self.starts[k] + len(seats[k].behind)
        self.receives = array("i", [seat.receives for seat in seats])
        self.streams = array("i", [seat.stream for seat in seats])
        self.stream_count = max(self.streams) + 1
        self.patience = array("q", [seat.patience for seat in seats])
        self.lies = array("i", [seat.lies for seat in seats])
        self.hidden_from = hidden_from  # the first so many learners never see a hidden label
        self.wait = -1 if label_wait is None else label_wait  # -1: no limit
        self.calendar: dict[int, list[Any]] = {}  # slot -> labels that arrive at its end

    def run(self, log: Any, first_slot: int, trace: Any) -> None:
        """Replay the rows of `log` from `first_slot`, and write the trace."""
        at = log.at
        delays = log.delays
        shown = log.shown
        first = 0
        end = self.count
        delay = 0
        self._open(log, trace)
        for k in range(self.count):
            for space in range(self.spaces):
                # Learners that share an instance must count it once.
                self._ledger(k)._table(space).once = at is None and self.stream_count == 1
        for t in range(len(self.labels)):
            slot = first_slot + t
            self.clock.move(slot)
            self.clock.round_up(slot)
            for k in range(1, self.spaces):
                self._ledger(0)._table(k).clock.move(slot)
                self._ledger(0)._table(k).clock.round_up(slot)
            if at is not None:
                first = at[t]
                end = first + 1
            if delays is not None:
                delay = delays[t]
            for i in range(first, end):
                if self.receives[i]:
                    self._decide(self._ledger(i), i, slot, t)
            for i in range(first, end):
                if self.receives[i]:
                    is_shown = shown is None or shown[t, i] != 0
                    self._end(self._ledger(i), i, slot, t, delay if is_shown else FAR)
            if self.calendar:
                self._deliver(slot)

    def _open(self, log: Any, trace: Any) -> int:
        self.contexts = log.contexts
        self.predictions = log.predictions
        self.has_gains = log.gains is not None
        self.gains = log.gains
        self.labels = log.labels
        self.is_busy = log.busy is not None
        self.busy = log.busy
        self.has_costs = log.costs is not None
        self.costs = log.costs
        self.width = len(self.contexts) // (self.stream_count * max(1, len(self.labels)))
        self.cells = trace.cell
        self.phases = trace.phase
        self.arms = trace.arm
        self.functions = trace.function
        self.correct = trace.correct
        self.paid = trace.paid
        self.written = 0
        return 0

    def _ledger(self, learner: int) -> Ledger:
        return self.ledgers[learner]

    def _decide(self, ledger: Ledger, i: int, slot: int, t: int) -> int:
        stream = t * self.stream_count + self.streams[i]
        ledger._locate(self.contexts, stream * self.width, slot)
        table = ledger.first
        if table.is_supervised:
            choice = ledger._choose(slot, -1)
            while choice < 0:
                self._ask(i, ledger.chosen, slot)
                choice = ledger._choose(slot, ledger.chosen)
        else:
            choice = self._consult(i, slot)
        arm = choice >> 2
        ledger.choice = choice
        ledger.helper = -1
        ledger.function = arm
        ledger.stand_in = -1
        if arm >= table.functions:
            self._call(ledger, i, slot, t)
        return 0

    def _call(self, ledger: Ledger, i: int, slot: int, t: int) -> int:
        """Ask the learner of the chosen arm, with the data or with the cells only."""
        arm = ledger.choice >> 2
        ledger.helper = self.behind[self.starts[i] + arm]
        helper = self._ledger(ledger.helper)
        helper._meet(ledger, slot)
        if arm < ledger.first.asked:
            ledger.function = helper._help(ledger)
            if ledger.first.is_balanced:
                ledger.width = ledger.asked._width(ledger.asked_rows[0], ledger.function)
                if self.lies[ledger.helper]:
                    ledger.width = MILLIONTHS
            if self.is_busy and 0 <= self.patience[i] < self.busy[t, ledger.helper]:
                ledger.stand_in = ledger._best_own()
            return 0
        ledger.function = -1
        answer = helper._recall(ledger)
        self.predictions[self.stream_count * self.total + i, t] = answer
        if answer < 0:
            ledger.stand_in = ledger._best_own()
        return 0

    def _ask(self, i: int, k: int, slot: int) -> int:
        """Refresh the training counters of learner `i` for its peers, in own space `k`."""
        ledger = self._ledger(i)
        table = ledger._at(k)
        row = ledger.rows[k]
        if table.is_indexed or table.eliminates:
            return self._sound_out(i, k, slot)
        for place in range(table.asked - table.functions):
            is_stale = (
                table.rows[row * table.stride + table.untrained + place] <= table.clock.floors[1]
            )
            if is_stale and table.costs[table.functions + place] < CLOSED:
                who = self.behind[self.starts[i] + table.functions + place]
                peer = self._ledger(who)._table(ledger.own[k])
                met = peer._meet(table, row, slot)
                arrivals = 0 if self.lies[who] else peer.rows[met * peer.stride + ARRIVALS]
                table._refresh(row, place, arrivals)
        return 0

    def _sound_out(self, i: int, k: int, slot: int) -> int:
        """Collect reports of peers; only from the wanted one if that is enough."""
        ledger = self._ledger(i)
        table = ledger._at(k)
        for place in range(table.asked - table.functions):
            if table.costs[table.functions + place] >= CLOSED:
                continue
            if table.is_indexed and table.is_lazy and place != table.wanted:
                continue
            who = self.behind[self.starts[i] + table.functions + place]
            peer = self._ledger(who)._table(ledger.own[k])
            met = peer._meet(table, ledger.rows[k], slot)
            if self.lies[who]:
                high = 1.0 if table.is_indexed else FOREVER
                table._hear(ledger.rows[k], place, 0, -FOREVER, high, slot)
            elif table.is_indexed:
                table._hear(ledger.rows[k], place, 0, 0.0, peer._reply(met), slot)
            else:
                self._compare(table, place, peer, met, slot)
        return 0

    def _compare(self, table: Table, place: int, peer: Table, met: int, slot: int) -> int:
        base = met * peer.stride
        peer._bound(base, slot)
        low = high = -FOREVER
        for function in range(peer.functions):
            low = max(low, peer.low[function])
            high = max(high, peer.high[function])
        table._hear(0, place, peer.rows[base + ARRIVALS], low, high, slot)
        return 0

    def _consult(self, i: int, slot: int) -> int:
        """Choose for a learner without labels: by labels from serving, and by peers' estimates."""
        ledger = self._ledger(i)
        chosen = 0
        largest = 0.0
        blind = ledger.first.blind
        is_blind = True
        for k in range(ledger.count):
            table = ledger._at(k)
            before = table.blind
            seen = self._hear(i, k, slot)
            arm = table._weigh(ledger.rows[k] * table.stride, seen)
            is_blind = is_blind and table.blind > before
            if k == 0 or table.largest > largest:
                largest = table.largest
                chosen = arm
                ledger.chosen = k
        # A decision is not blind if one candidate has labels.
        ledger.first.blind = blind + is_blind
        return chosen << 2 | EXPLOIT

    def _hear(self, i: int, k: int, slot: int) -> int:
        """Collect the accuracies of peers in a cell; return their number of labels."""
        ledger = self._ledger(i)
        table = ledger._at(k)
        seen = 0
        for arm in range(table.functions, table.arms):
            owner = self._ledger(self.behind[self.starts[i] + arm])._table(ledger.own[k])
            met = owner._meet(table, ledger.rows[k], slot)
            base = met * owner.stride
            if arm < table.asked:
                best = owner._largest(base, owner.functions, False)
                table.told[arm] = owner._accuracy(base, best)
                seen += owner.rows[base + owner.labels + best]
            else:
                _, count, total, _ = owner.memory.get(met, NOTHING)
                table.told[arm] = float(count) / total if total else 0.0
                seen += total
        return seen

    def _gain(self, function: int, t: int) -> int:
        gain: int = self.predictions[function, t] == self.labels[t]
        if self.has_gains:
            gain = self.gains[function, t]
        return gain

    def _end(self, ledger: Ledger, i: int, slot: int, t: int, delay: int) -> int:
        """Count and trace the decision of learner `i`, and settle it or schedule its label."""
        helper = ledger.helper
        function = self.total + i
        if ledger.function >= 0:
            function = self.offsets[helper if helper >= 0 else i] + ledger.function
        gain = self._gain(self._row(i, function), t)
        paid = self._cost(i, ledger.choice >> 2, t) if self.has_costs else UNPAID
        self._write(ledger, i, function, gain if self.labels[t] >= 0 else -1, t, paid)
        if ledger.first.is_balanced and helper >= 0:
            paid = ledger.width
        ledger._count()
        if helper >= 0 and ledger.function >= 0:
            ledger.asked._count_served(ledger.asked_rows[0], 1)
            for k in range(1, ledger.count):
                table = self._ledger(helper)._table(ledger.own[k])
                table._count_served(ledger.asked_rows[k], 1)
            if self.is_busy and delay != FAR:
                delay = self._later(delay, self.busy[t, helper])
        delay = self._delay(i, delay) if self.labels[t] >= 0 else NEVER
        if delay != 0:
            self._note(i, slot, gain, delay, self.labels[t], paid)
            return 0
        ledger._learn(gain, slot, paid)
        if helper >= 0 and ledger.function >= 0:
            ledger.asked._learn_served(ledger.asked_rows[0], ledger.function, gain, slot)
            for k in range(1, ledger.count):
                table = self._ledger(helper)._table(ledger.own[k])
                table._learn_served(ledger.asked_rows[k], ledger.function, gain, slot)
        if self.remembers:
            self._remember(i, slot, self.labels[t])
        return 0

    def _row(self, i: int, function: int) -> int:
        """Return the row of predictions that holds the answers of `function` to learner `i`."""
        stream = self.streams[i] if function < self.total else self.stream_count - 1
        return stream * self.total + function

    def _cost(self, i: int, arm: int, t: int) -> int:
        """Return the variable cost of the arm, in millionths."""
        column = self.cost_columns[self.starts[i] + arm]
        return self.costs[column, t] if column >= 0 else UNPAID

    def _write(self, ledger: Ledger, i: int, function: int, gain: int, t: int, paid: int) -> int:
        at = self.written
        arm = ledger.choice >> 2
        shown = function
        if ledger.stand_in >= 0:
            shown = self.offsets[i] + ledger.stand_in
            if gain >= 0:
                gain = self._gain(self._row(i, shown), t)
        # Row numbers of different tables are interleaved, so that they are unique.
        space = ledger.own[ledger.chosen]
        self.cells[at] = (ledger.rows[ledger.chosen] * self.count + i) * self.spaces + space
        self.phases[at] = ledger.choice & 3
        self.arms[at] = function
        if ledger.helper >= 0:
            self.arms[at] = self.total + ledger.helper
            if arm >= ledger.first.asked:
                self.arms[at] += self.count
        self.functions[at] = shown
        self.correct[at] = gain
        if self.has_costs:
            self.paid[at] = max(0, paid)
        self.written = at + 1
        return 0

    def _remember(self, i: int, slot: int, label: int) -> int:
        """Store a label for cell-only queries: here, and at the queried learner."""
        ledger = self._ledger(i)
        for k in range(ledger.count):
            if ledger.first.remembers:
                ledger._at(k)._remember_around(label, slot)
            if ledger.helper >= 0:
                table = self._ledger(ledger.helper)._table(ledger.own[k])
                if table.remembers:
                    table._remember(ledger.asked_rows[k], label)
        return 0

    def _delay(self, i: int, delay: int) -> int:
        """Return when learner `i` sees the label; hidden ones are written as `-1 - delay`."""
        if delay == FAR:
            return NEVER
        if delay < 0:
            delay = -1 - delay if i >= self.hidden_from else NEVER
        return delay if self.wait < 0 or delay <= self.wait else NEVER

    def _later(self, delay: int, busy: int) -> int:
        """Return the delay of a label whose answer takes `busy` slots; hidden ones stay hidden."""
        return max(delay, busy) if delay >= 0 else min(delay, -1 - busy)

    def _note(self, i: int, slot: int, gain: int, delay: int, label: int, paid: int) -> int:
        """Schedule the label of the current decision of learner `i`, if it arrives."""
        ledger = self._ledger(i)
        rows = tuple(ledger.rows)
        asked_rows = tuple(ledger.asked_rows)
        note = (i, rows, ledger.choice, ledger.helper, asked_rows, ledger.function)
        self._expect(note, 1)
        if delay != NEVER:
            points = tuple([ledger._at(k)._point_now() for k in range(ledger.count)])
            kept = (note, gain, slot, points, label, paid)
            self.calendar.setdefault(slot + delay, []).append(kept)
        elif self.wait >= 0:
            self.calendar.setdefault(slot + self.wait, []).append((note, -1, slot, (), -1, 0))
        return 0

    def _deliver(self, slot: int) -> int:
        """Settle the labels that arrive at the end of `slot`."""
        for note, gain, decided, points, label, paid in self.calendar.pop(slot, ()):
            if gain < 0:
                self._release(note)
                continue
            self._expect(note, -1)
            self._settle(note, gain, decided, points, label, paid)
        return 0

    def _settle(
        self, note: Any, gain: int, decided: int, points: Any, label: int, paid: int
    ) -> int:
        i, rows, choice, helper, asked_rows, function = note
        ledger = self._ledger(i)
        for k in range(ledger.count):
            table = ledger._at(k)
            table._read(points[k])
            table._follow()
            table._learn_own(rows[k], choice >> 2, choice & 3, gain, decided, paid)
            if table.remembers:
                table._remember_around(label, decided)
            if helper >= 0:
                asked = (helper, ledger.own[k], asked_rows[k], function)
                self._settle_served(asked, gain, decided, label)
        return 0

    def _settle_served(
        self, asked: tuple[int, int, int, int], gain: int, decided: int, label: int
    ) -> int:
        helper, space, row, function = asked
        table = self._ledger(helper)._table(space)
        if function >= 0:
            table._learn_served(row, function, gain, decided)
        if table.remembers:
            table._remember(row, label)
        return 0

    def _release(self, note: tuple[Any, ...]) -> int:
        i, rows, choice, helper, asked_rows, function = note
        ledger = self._ledger(i)
        for k in range(ledger.count):
            ledger._at(k)._release(rows[k], choice >> 2, choice & 3)
            if helper >= 0 and function >= 0:
                table = self._ledger(helper)._table(ledger.own[k])
                table._release(asked_rows[k], function, SERVE)
        return 0

    def _expect(self, note: tuple[Any, ...], by: int) -> int:
        i, rows, choice, helper, asked_rows, function = note
        ledger = self._ledger(i)
        for k in range(ledger.count):
            ledger._at(k)._expect(rows[k], choice >> 2, choice & 3, by)
            if helper >= 0 and function >= 0:
                table = self._ledger(helper)._table(ledger.own[k])
                table._expect(asked_rows[k], function, SERVE, by)
        return 0
