# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Policies by thresholds: explore own functions, train peers, explore peers, then exploit.

These are the three phases of CoS and DCZA.
"""

from __future__ import annotations

import cython

from covey.kernel.counters import ArmCounters
from covey.kernel.layout import Layout
from covey.kernel.rules import Rule
from covey.kernel.table import CellPolicy, Clock, Said

if not cython.compiled:
    from covey.kernel.cells import ARRIVALS, BEST, BEST_OWN, COORDINATES, LEVEL, NEXT_TEST, OWN
    from covey.kernel.counters import CLOSED, EXPLOIT, EXPLORE, OF_PEERS, TRAIN


class Phases(CellPolicy):
    """Chooses by the three tests of the paper."""

    def __init__(self, clock: Clock, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        CellPolicy.__init__(self, clock, rule, layout, counters)
        self.is_sure = True  # no test of this decision was passed by labels that may never arrive

    def choose(self, row: int, slot: int, is_fresh: bool) -> int:
        base = row * self.stride
        if self.weighs:
            self.counters.begin_period(0, slot)
        # Counters never decrease: a passed test stays passed until a threshold rises.
        if slot < self.cells.rows[base + NEXT_TEST]:
            return self.counters.best(base) << 2 | EXPLOIT
        self.clock.move(slot)
        choice = self._test(
            row, self.clock.floors[0], self.clock.floors[1], self.clock.floors[2], is_fresh
        )
        if choice >= 0 and choice & 3 == EXPLOIT and self.is_sure and not self.counters.is_closing:
            self.cells.rows[base + NEXT_TEST] = self.clock.end
        return choice

    def _test(self, row: int, explore: int, train: int, explore_peers: int, is_fresh: bool) -> int:
        """Return the first arm below its threshold, else the best one."""
        base = row * self.stride
        self.is_sure = True
        arm = self._wanting(base, self.labels, 0, self.functions, explore)
        if arm >= 0:
            return arm << 2 | EXPLORE
        untrained = self.untrained - self.functions
        arm = self._wanting(base, untrained, self.functions, self.asked, train)
        if arm >= 0:
            return arm << 2 | TRAIN if is_fresh else -1
        arm = self._wanting(base, self.labels, self.functions, self.arms, explore_peers)
        if arm < 0 and self.weighs:
            arm = self._doubtful(base, self.arms, explore, explore_peers)
        if arm >= 0:
            return arm << 2 | EXPLORE
        return self.counters.best(base) << 2 | EXPLOIT

    def _wanting(self, base: int, field: int, first: int, end: int, limit: int) -> int:
        """Return the lowest arm whose count in `field` is at most `limit`; -1: there is none."""
        for arm in range(first, end):
            count = self.cells.rows[base + field + arm]
            if self.is_pending and field == self.labels:
                count += self.cells.rows[base + self.underway + arm]
            if count <= limit and self.counters.costs[arm] < CLOSED:
                return arm
        return -1

    def _doubtful(self, base: int, end: int, explore: int, explore_peers: int) -> int:
        """Return the arm of the fewest trials that has too few labels by those that arrive.

        Pending labels say which arm is explored; the share that arrives says whether one is.
        """
        chosen = -1
        fewest = 0
        for arm in range(end):
            limit = explore if arm < self.functions else explore_peers
            if (
                self.counters.costs[arm] >= CLOSED
                or self.cells.rows[base + self.labels + arm] > limit
            ):
                continue
            self.is_sure = False
            tried = self.counters.tried(base, arm)
            if self.counters.expected(base, arm) <= limit and (chosen < 0 or tried < fewest):
                chosen = arm
                fewest = tried
        return chosen

    def serve(self, row: int) -> int:
        base = row * self.stride
        if self.weighs:
            self.counters.begin_period(OF_PEERS, self.clock.now)
        # Where nothing is to be tested for a while, own functions are explored, too.
        function = (
            self.unexplored(row) if self.clock.now >= self.cells.rows[base + NEXT_TEST] else -1
        )
        return function if function >= 0 else self.counters.most_accurate(base)

    def unexplored(self, row: int) -> int:
        if self.weighs:
            self.counters.begin_period(OF_PEERS, self.clock.now)
        if not self.counters.explores_to_help:
            return -1
        base = row * self.stride
        limit = self.clock.floors[0]
        function = self._wanting(base, self.labels, 0, self.functions, limit)
        if function < 0 and self.weighs:
            function = self._doubtful(base, self.functions, limit, limit)
        return function

    def wanted_from(self, row: int, peer: int) -> int:
        base = row * self.stride + self.untrained
        for k in range(peer, self.asked - self.functions):
            is_open = self.counters.costs[self.functions + k] < CLOSED
            if is_open and self.cells.rows[base + k] <= self.clock.floors[1]:
                return k
        return -1

    def hear(self, row: int, peer: int, said: Said, slot: int) -> int:
        self._refresh(row, peer, said.arrived)
        return 0

    def _refresh(self, row: int, peer: int, arrivals: int) -> None:
        base = row * self.stride
        asked = self.cells.rows[base + self.labels + self.functions + peer]
        # The peer has counted a pending label only if it counts before the label arrives.
        if not self.counters.counts_labelled:
            asked = self.counters.tried(base, self.functions + peer)
        self.cells.rows[base + self.untrained + peer] = arrivals - asked
        # A peer that reports fewer instances than were sent to it is not trained for now.
        sent = 0 if self.inherits else asked
        if self.floors_training and arrivals < sent + self.cells.rows[base + self.trained + peer]:
            self.cells.rows[base + self.untrained + peer] = self.clock.floors[1] + 1


class PlainPhases(Phases):
    """The same over a grid, without options that change how labels are counted or compared."""

    def choose(self, row: int, slot: int, is_fresh: bool) -> int:
        base = row * self.stride
        if slot >= self.cells.rows[base + NEXT_TEST] or self.counters.is_closing:
            return Phases.choose(self, row, slot, is_fresh)
        if self.cells.marks[2 * base + BEST] < 0:
            self.cells.marks[2 * base + BEST] = self.counters.most(base, self.arms, True)
        return self.cells.marks[2 * base + BEST] << 2 | EXPLOIT

    def serve(self, row: int) -> int:
        base = row * self.stride
        if self.clock.now >= self.cells.rows[base + NEXT_TEST]:
            return Phases.serve(self, row)
        if self.cells.marks[2 * base + BEST_OWN] < 0:
            self.cells.marks[2 * base + BEST_OWN] = self.counters.most(base, self.functions, False)
        return self.cells.marks[2 * base + BEST_OWN]

    def learn(self, row: int, arm: int, phase: int, gain: int, slot: int, paid: int) -> int:
        if arm < self.functions or phase != TRAIN:
            self._add_label(row * self.stride, arm, gain)
        return 0

    def learn_served(self, row: int, function: int, gain: int, slot: int) -> int:
        self._add_label(row * self.stride, function, gain)
        return 0

    def count_own(self, row: int) -> int:
        rows, base = self.cells.rows, row * self.stride
        rows[base + OWN] += 1
        rows[base + ARRIVALS] += 1
        return 0

    def learn_now(self, row: int, arm: int, phase: int, gain: int, slot: int) -> int:
        rows, base = self.cells.rows, row * self.stride
        rows[base + OWN] += 1
        rows[base + ARRIVALS] += 1
        if arm < self.functions or phase != TRAIN:
            self._add_label(base, arm, gain)
        return 0

    def learn_served_now(self, row: int, function: int, gain: int, slot: int) -> int:
        rows, base = self.cells.rows, row * self.stride
        rows[base + ARRIVALS] += 1
        self._add_label(base, function, gain)
        return 0

    def _add_label(self, base: int, arm: int, gain: int) -> None:
        rows, marks = self.cells.rows, self.cells.marks
        rows[base + self.labels + arm] += 1
        rows[base + self.right + arm] += gain
        if (marks[2 * base + BEST] == arm) != gain:
            marks[2 * base + BEST] = -1
        if arm < self.functions and (marks[2 * base + BEST_OWN] == arm) != gain:
            marks[2 * base + BEST_OWN] = -1


class PaperPhases(Phases):
    """The paper's pseudocode to the letter: training is tested first, by one query per decision.

    If the peer that is asked is trained by now, the next test follows. Where finer cells inherit,
    an arm is exploited by the average of its means in these.
    """

    def __init__(self, clock: Clock, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        Phases.__init__(self, clock, rule, layout, counters)
        self.wanted: dict[int, int] = {}  # row -> the peer that its latest decision asks
        self.heard: dict[int, int] = {}  # row -> the peer that reported last

    def choose(self, row: int, slot: int, is_fresh: bool) -> int:
        base = row * self.stride
        if self.weighs:
            self.counters.begin_period(0, slot)
        if slot < self.cells.rows[base + NEXT_TEST]:
            return self._best_here(base) << 2 | EXPLOIT
        self.clock.move(slot)
        self.is_sure = True
        first = self.untrained - self.functions
        arm = self._wanting(base, first, self.functions, self.asked, self.clock.floors[1])
        if arm >= 0 and not is_fresh:
            self.wanted[row] = arm - self.functions
            return -1
        peer = self.heard.get(row, -1)  # which reported last
        is_open = peer >= 0 and self.counters.costs[self.functions + peer] < CLOSED
        limit = self.clock.floors[1]
        if arm >= 0 and is_open and self.cells.rows[base + self.untrained + peer] <= limit:
            return self.functions + peer << 2 | TRAIN
        return self._after_training(base, arm < 0)

    def _after_training(self, base: int, is_trained: bool) -> int:
        """Do the tests after that for training; `is_trained`: no peer is to be asked."""
        arm = self._wanting(base, self.labels, 0, self.functions, self.clock.floors[0])
        if arm < 0:
            arm = self._wanting(base, self.labels, self.functions, self.arms, self.clock.floors[2])
        if arm < 0 and self.weighs:
            arm = self._doubtful(base, self.arms, self.clock.floors[0], self.clock.floors[2])
        if arm >= 0:
            return arm << 2 | EXPLORE
        if is_trained and self.is_sure and not self.counters.is_closing:
            self.cells.rows[base + NEXT_TEST] = self.clock.end
        return self._best_here(base) << 2 | EXPLOIT

    def wanted_from(self, row: int, peer: int) -> int:
        wanted = self.wanted.get(row, -1)
        is_open = wanted >= peer and self.counters.costs[self.functions + wanted] < CLOSED
        return wanted if is_open else -1

    def hear(self, row: int, peer: int, said: Said, slot: int) -> int:
        self.heard[row] = peer
        self._refresh(row, peer, said.arrived)
        return 0

    def _best_here(self, base: int) -> int:
        return self.best_of(base, self.arms) if self.inherits else self.counters.best(base)

    def value(self, base: int, arm: int) -> float:
        average = self._average(base, arm) if self.inherits else self.counters.accuracy(base, arm)
        return self.counters.worth(base, arm, average)

    def _average(self, base: int, arm: int) -> float:
        """Return the average of an arm's means in the finer cells where it has labels.

        Without such labels it is the mean in the cell itself.
        """
        total = 0.0
        means = 0
        level = self.cells.marks[2 * base + LEVEL] + 1
        if level < self.levels:
            for child in range(1 << self.cells.dimension):
                for k in range(self.cells.dimension):
                    self.cells.point[k] = 2 * self.cells.rows[base + COORDINATES + k] + (
                        child >> k & 1
                    )
                row = self.cells.seek(level)
                if row >= 0 and self.cells.rows[row * self.stride + self.labels + arm] > 0:
                    total += self.counters.accuracy(row * self.stride, arm)
                    means += 1
        return total / means if means > 0 else self.counters.accuracy(base, arm)
