# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Policies by thresholds: explore own functions, train peers, explore peers, then exploit.

These are the three phases of CoS and DCZA; `EliminationTable` leaves out arms that cannot be best.
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

from covey.kernel.cells import ARRIVALS, BEST, BEST_OWN, COORDINATES, LEVEL, NEXT_TEST, OWN
from covey.kernel.counters import ARRIVED, CLOSED, EXPLOIT, EXPLORE, FOREVER, TRAIN
from covey.kernel.pending import OF_PEERS
from covey.kernel.rules import Rule
from covey.kernel.table import Table
from covey.kernel.thresholds import FAR, Clock


class PhaseTable(Table):
    """Chooses by the three tests of the paper."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        Table.__init__(self, clock, rule)
        self.trains_first = rule.trains_first
        self.is_sure = True  # no test of this decision was passed by labels that may never arrive

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        base = row * self.stride
        if self.weighs:
            self._begin_period(0, slot)
        # CellCounters never decrease: a passed test stays passed until a threshold rises.
        if slot < self.rows[base + NEXT_TEST]:
            return self._best(base) << 2 | EXPLOIT
        self.clock.move(slot)
        choice = self._test(
            row, self.clock.floors[0], self.clock.floors[1], self.clock.floors[2], is_fresh
        )
        if choice >= 0 and choice & 3 == EXPLOIT and self.is_sure and not self.is_closing:
            self.rows[base + NEXT_TEST] = self.clock.end
        return choice

    def _test(self, row: int, explore: int, train: int, explore_peers: int, is_fresh: bool) -> int:
        """Return the first arm below its threshold, else the best one."""
        base = row * self.stride
        self.is_sure = True
        if not self.trains_first:
            arm = self._wanting(base, self.labels, 0, self.functions, explore)
            if arm >= 0:
                return arm << 2 | EXPLORE
        untrained = self.untrained - self.functions
        arm = self._wanting(base, untrained, self.functions, self.asked, train)
        if arm >= 0:
            return arm << 2 | TRAIN if is_fresh else -1
        if self.trains_first:
            arm = self._wanting(base, self.labels, 0, self.functions, explore)
            if arm >= 0:
                return arm << 2 | EXPLORE
        arm = self._wanting(base, self.labels, self.functions, self.arms, explore_peers)
        if arm < 0 and self.weighs:
            arm = self._doubtful(base, self.arms, explore, explore_peers)
        if arm >= 0:
            return arm << 2 | EXPLORE
        return self._best(base) << 2 | EXPLOIT

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

    def _doubtful(self, base: int, end: int, explore: int, explore_peers: int) -> int:
        """Return the arm of the fewest trials that has too few labels by those that arrive.

        Pending labels say which arm is explored; the share that arrives says whether one is.
        """
        chosen = -1
        fewest = 0
        for arm in range(end):
            limit = explore if arm < self.functions else explore_peers
            is_open = self.costs[arm] < CLOSED and self.active[arm]
            if not is_open or self.rows[base + self.labels + arm] > limit:
                continue
            self.is_sure = False
            tried = self._tried(base, arm)
            if self._expected(base, arm) <= limit and (chosen < 0 or tried < fewest):
                chosen = arm
                fewest = tried
        return chosen

    def _help(self, row: int) -> int:
        base = row * self.stride
        if self.weighs:
            self._begin_period(OF_PEERS, self.clock.now)
        # Where nothing is to be tested for a while, own functions are explored, too.
        function = self._unexplored(row) if self.clock.now >= self.rows[base + NEXT_TEST] else -1
        return function if function >= 0 else self._most_accurate(base)

    def _unexplored(self, row: int) -> int:
        """Return the own function that a helper explores next; -1: none."""
        if self.weighs:
            self._begin_period(OF_PEERS, self.clock.now)
        if not self.explores_to_help:
            return -1
        base = row * self.stride
        for arm in range(self.functions):
            self.active[arm] = 1  # for a peer's request, any function can be explored
        limit = self.clock.floors[0]
        function = self._wanting(base, self.labels, 0, self.functions, limit)
        if function < 0 and self.weighs:
            function = self._doubtful(base, self.functions, limit, limit)
        return function

    def _needs_report(self, row: int, peer: int) -> bool:
        at = row * self.stride + self.untrained + peer
        return self.rows[at] <= self.clock.floors[1] and self.costs[self.functions + peer] < CLOSED

    def _receive_report(
        self, row: int, peer: int, arrivals: int, low: float, high: float, slot: int
    ) -> int:
        self._refresh(row, peer, arrivals)
        return 0

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


class PlainPhaseTable(PhaseTable):
    """The same over a grid, without options that change how labels are counted or compared."""

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        base = row * self.stride
        if slot >= self.rows[base + NEXT_TEST] or self.is_closing:
            return PhaseTable._choose(self, row, slot, is_fresh)
        if self.marks[2 * base + BEST] < 0:
            self.marks[2 * base + BEST] = self._largest(base, self.arms, True)
        return self.marks[2 * base + BEST] << 2 | EXPLOIT

    def _help(self, row: int) -> int:
        base = row * self.stride
        if self.clock.now >= self.rows[base + NEXT_TEST]:
            return PhaseTable._help(self, row)
        if self.marks[2 * base + BEST_OWN] < 0:
            self.marks[2 * base + BEST_OWN] = self._largest(base, self.functions, False)
        return self.marks[2 * base + BEST_OWN]

    def _on_label(self, row: int, arm: int, phase: int, gain: int, slot: int) -> int:
        base = row * self.stride
        self.rows[base + OWN] += 1
        self.rows[base + ARRIVALS] += 1
        if arm < self.functions or phase != TRAIN:
            self._add_label(base, arm, gain)
        return 0

    def _on_served_label(self, row: int, function: int, gain: int, slot: int) -> int:
        base = row * self.stride
        self.rows[base + ARRIVALS] += 1
        self._add_label(base, function, gain)
        return 0

    def _add_label(self, base: int, arm: int, gain: int) -> None:
        self.rows[base + self.labels + arm] += 1
        self.rows[base + self.right + arm] += gain
        if (self.marks[2 * base + BEST] == arm) != gain:
            self.marks[2 * base + BEST] = -1
        if arm < self.functions and (self.marks[2 * base + BEST_OWN] == arm) != gain:
            self.marks[2 * base + BEST_OWN] = -1


class OneQueryTable(PhaseTable):
    """Asks one untrained peer per decision; if that is trained by now, the next test follows.

    This is the "go to" of the paper's pseudocode, taken literally.
    """

    def __init__(self, clock: Clock, rule: Rule) -> None:
        PhaseTable.__init__(self, clock, rule)
        self.wanted: dict[int, int] = {}  # row -> the peer that its latest decision asks
        self.heard: dict[int, int] = {}  # row -> the peer that reported last

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        base = row * self.stride
        if self.weighs:
            self._begin_period(0, slot)
        if slot < self.rows[base + NEXT_TEST]:
            return self._best(base) << 2 | EXPLOIT
        self.clock.move(slot)
        self.is_sure = True
        if not self.trains_first:
            arm = self._wanting(base, self.labels, 0, self.functions, self.clock.floors[0])
            if arm >= 0:
                return arm << 2 | EXPLORE
        first = self.untrained - self.functions
        arm = self._wanting(base, first, self.functions, self.asked, self.clock.floors[1])
        if arm >= 0 and not is_fresh:
            self.wanted[row] = arm - self.functions
            return -1
        if arm >= 0 and self._is_untrained(row):
            return self.functions + self.heard[row] << 2 | TRAIN
        return self._after_training(base, arm < 0)

    def _after_training(self, base: int, is_trained: bool) -> int:
        """Do the tests after that for training; `is_trained`: no peer is to be asked."""
        if self.trains_first:
            arm = self._wanting(base, self.labels, 0, self.functions, self.clock.floors[0])
            if arm >= 0:
                return arm << 2 | EXPLORE
        arm = self._wanting(base, self.labels, self.functions, self.arms, self.clock.floors[2])
        if arm < 0 and self.weighs:
            arm = self._doubtful(base, self.arms, self.clock.floors[0], self.clock.floors[2])
        if arm >= 0:
            return arm << 2 | EXPLORE
        if is_trained and self.is_sure and not self.is_closing:
            self.rows[base + NEXT_TEST] = self.clock.end
        return self._best(base) << 2 | EXPLOIT

    def _is_untrained(self, row: int) -> bool:
        """Return whether the peer that reported last is still to be trained."""
        peer = self.heard.get(row, -1)
        if peer < 0 or self.costs[self.functions + peer] >= CLOSED:
            return False
        return self.rows[row * self.stride + self.untrained + peer] <= self.clock.floors[1]

    def _needs_report(self, row: int, peer: int) -> bool:
        return self.wanted.get(row, -1) == peer and self.costs[self.functions + peer] < CLOSED

    def _receive_report(
        self, row: int, peer: int, arrivals: int, low: float, high: float, slot: int
    ) -> int:
        self.heard[row] = peer
        self._refresh(row, peer, arrivals)
        return 0


class ChildrenMeanTable(OneQueryTable):
    """Exploits by the average of an arm's means in the finer cells that inherit."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        OneQueryTable.__init__(self, clock, rule)
        self.asks_one = rule.asks_one

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        if self.asks_one:
            choice = OneQueryTable._choose(self, row, slot, is_fresh)
        else:
            choice = PhaseTable._choose(self, row, slot, is_fresh)
        if choice >= 0 and choice & 3 == EXPLOIT:
            return self._best_of(row * self.stride, self.arms) << 2 | EXPLOIT
        return choice

    def _needs_report(self, row: int, peer: int) -> bool:
        if self.asks_one:
            return OneQueryTable._needs_report(self, row, peer)
        return PhaseTable._needs_report(self, row, peer)

    def best(self, row: int) -> int:
        """Return the arm with the largest estimate."""
        return self._best_of(row * self.stride, self.arms)

    def best_own(self, row: int, context: tuple[float, ...] | None = None) -> int:
        """Return the own function with the largest estimate minus cost, for an instance."""
        if context is not None and self.has_rewards:
            self._read(context)
        return self._best_of(row * self.stride, self.functions)

    def _value(self, base: int, arm: int) -> float:
        return self._worth(base, arm, self._average(base, arm))

    def _best_of(self, base: int, end: int) -> int:
        chosen = 0
        rivals = 1
        largest = -FOREVER
        for arm in range(end):
            value = self._value(base, arm)
            if value > largest:
                largest = value
                chosen = arm
                rivals = 1
            elif self.is_random and value == largest:
                rivals += 1
                if self._is_drawn(rivals):
                    chosen = arm
        return chosen

    def _average(self, base: int, arm: int) -> float:
        """Return the average of an arm's means in the finer cells where it has labels.

        Without such labels it is the mean in the cell itself.
        """
        total = 0.0
        means = 0
        level = self.marks[2 * base + LEVEL] + 1
        if level < self.levels:
            for child in range(1 << self.dimension):
                for k in range(self.dimension):
                    self.point[k] = 2 * self.rows[base + COORDINATES + k] + (child >> k & 1)
                row = self._find(level)
                if row >= 0 and self.rows[row * self.stride + self.labels + arm] > 0:
                    total += self._accuracy(row * self.stride, arm)
                    means += 1
        return total / means if means > 0 else self._accuracy(base, arm)


class EliminationTable(PhaseTable):
    """Tests only arms that may still be the best, by the bounds that peers report."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        PhaseTable.__init__(self, clock, rule)
        drop = rule.elimination
        assert drop is not None
        self.confidence = drop.confidence
        self.slack = drop.bias
        self.most_functions = drop.most_functions
        self.cap = 0.0
        self.low, self.high = (array("d", bytes(8 * self.arms)) for _ in range(2))
        self.heard = array("q", bytes(8 * self.arms))

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        self.clock.move(slot)
        if self.weighs:
            self._begin_period(0, slot)
        if not is_fresh and self.asked > self.functions:
            return -1
        most = self._eliminate(row, slot)
        explore, explore_peers = min(self.clock.floors[0], most), min(self.clock.floors[2], most)
        if not self.trains_first:
            arm = self._wanting(row * self.stride, self.labels, 0, self.functions, explore)
            if arm >= 0:
                return arm << 2 | EXPLORE
        train = self._retrain(row, self.clock.floors[1])
        return self._test(row, explore, train, explore_peers, is_fresh)

    def _needs_report(self, row: int, peer: int) -> bool:
        return self.costs[self.functions + peer] < CLOSED

    def _make_report(self, row: int, slot: int) -> int:
        Table._make_report(self, row, slot)
        self._bound(row * self.stride, slot)
        self.lowest = self.highest = -FOREVER
        for function in range(self.functions):
            self.lowest = max(self.lowest, self.low[function])
            self.highest = max(self.highest, self.high[function])
        return 0

    def _receive_report(
        self, row: int, peer: int, arrivals: int, low: float, high: float, slot: int
    ) -> int:
        self.heard[self.functions + peer] = arrivals
        self.low[self.functions + peer] = low
        self.high[self.functions + peer] = high
        return 0

    def _receive_false_report(self, row: int, peer: int, slot: int) -> int:
        return self._receive_report(row, peer, 0, -FOREVER, FOREVER, slot)

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

    def _limit(self, base: int, level: float) -> int:
        """Limit the bounds that peers report by own labels of their answers."""
        for arm in range(self.functions, self.arms):
            labels = float(self.rows[base + self.labels + arm])
            if labels > 0:
                accuracy = self.rows[base + self.right + arm] / (labels * self.unit)
                most = accuracy + sqrt(level / (2 * labels)) + self.slack
                self.low[arm] = min(self.low[arm], most)
                self.high[arm] = min(self.high[arm], most)
        return 0

    def _eliminate(self, row: int, slot: int) -> int:
        """Set the arms that may be optimal; return the maximum number of trials of each."""
        base = row * self.stride
        level = self._bound(base, slot)
        if self.floors_training:
            self._limit(base, level)
        best = -FOREVER
        for arm in range(self.arms):
            best = max(best, self.low[arm] - self._price(base, arm))
        for arm in range(self.arms):
            self.active[arm] = self.high[arm] - self._price(base, arm) + 2 * self.slack >= best
        self.marks[2 * base + BEST] = -1
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
