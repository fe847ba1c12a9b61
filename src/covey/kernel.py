# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""The decision kernel: counters, thresholds and the choice, in one place.

Ordinary Python, which Cython also compiles (as `covey._kernel`, with the C types in `_kernel.pxd`);
`covey.engine` says which form runs.
A learner's cells are rows of one integer array, opened when a context first falls into them, so
memory follows the cells that are used and not the size of the grid. A decision is one integer,
`row << 20 | arm << 2 | phase`: whoever keeps it can settle it later.
"""

from __future__ import annotations

from array import array
from typing import Any

try:
    import cython
except ModuleNotFoundError:
    from covey import cythonless as cython

from covey.errors import ContextError, LimitError
from covey.types import Cell, Rule

if cython.compiled:
    from cython.cimports.libc.math import log
else:
    from math import log

# Where a row keeps what; the cell's coordinates, then the counters of its arms, follow.
LEVEL = 0
SINCE = 1  # the slot in which the cell became known
ARRIVALS = 2  # what others are told
OWN = 3  # what splits the cell
BEST = 4  # arm with the largest estimate, -1 = look again
BEST_OWN = 5  # most accurate own function, -1 = look again
CALM = 6  # before this slot no arm needs exploring or training
COORDINATES = 7

TRAIN = 0
EXPLORE = 1
EXPLOIT = 2
SERVE = 3
NEVER = -1  # in `delays`: the label does not come

ARRIVED = 0
LABELLED = 1
USED = 2

# Discounted counts are fixed-point numbers, so that they too are the same wherever they are kept.
ONE = 1 << 16
KEEP_BITS = 30

# Products stay below 63 bits, so that C's integers and Python's are the same.
MASK = (1 << 40) - 1
FACTOR = 1000003
FEW = 4096
FAR = 1 << 60
CLOSED = 1e300  # an arm at this cost is not to be used


def is_compiled() -> bool:
    """Say whether this is the compiled form of the kernel."""
    return bool(cython.compiled)


class Clock:
    """The thresholds D(t) = scale * t**power * ln t of the three tests, as whole numbers.

    A counter is at most D(t) just when it is at most the floor of D(t), and the floors change
    rarely: the next slot at which one does is found once, by galloping and then halving.
    """

    def __init__(self, scales: list[float], powers: list[float]) -> None:
        self.scales = array("d", scales)
        self.powers = array("d", powers)
        self.floors = array("q", [0] * len(scales))
        self.start = self.end = 0
        self.stride = 1

    def at(self, slot: int) -> tuple[int, ...]:
        """Return the floors of the thresholds at `slot`."""
        self.move(slot)
        return tuple(self.floors)

    def move(self, slot: int) -> None:
        if slot >= self.end or slot < self.start:
            self._look(slot)

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


class Table:
    """One learner's counters, and what it chooses on their strength."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        self.clock = clock
        self.dimension = rule.dimension
        self.functions = rule.functions
        self.arms = len(rule.costs)
        self.costs = array("d", rule.costs)
        self.trains_first = rule.trains_first
        self.explores_to_help = rule.explores_to_help
        self.counted = rule.counted
        self.is_pending = rule.is_pending
        self.inherits = rule.inherits
        self.is_supervised = rule.is_supervised
        self.is_random = rule.seed is not None
        self.state = (rule.seed or 0) & 0x7FFFFFFF
        self.unit = rule.unit
        self.window = rule.window
        self.keep = int(rule.discount * (1 << KEEP_BITS))  # the discount, fixed-point
        self.forgets = rule.window > 0 or rule.discount < 1.0
        self.blind = 0  # decisions for which nobody who could be asked had any label
        self._take_rewards(rule)
        self._take_levels(rule)
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
        self.deepest = 0  # level of the finest cell that somebody else spoke of first
        self.most_cells = rule.most_cells
        # A small grid is indexed by place; else a table of hashes grows with the used cells.
        places = rule.levels[0].side ** rule.dimension if self.levels == 1 else FEW + 1
        self.is_direct = places <= FEW
        self.index = array("i", bytes(4 * (places if self.is_direct else 16)))
        self.context = array("d", bytes(8 * max(1, self.dimension)))
        self.point = array("q", bytes(8 * max(1, self.dimension)))
        self.path = array("q", bytes(8 * (self.levels + 1)))  # known rows around the context
        self.found = 0  # how many they are, coarsest first

    def _lay_out_rows(self) -> None:
        """Say where a row keeps the counters of its arms; what is not needed takes no room."""
        self.labels = COORDINATES + self.dimension
        self.right = self.labels + self.arms
        self.untrained = self.right + self.arms  # of peers only
        self.underway = self.untrained + self.arms - self.functions
        self.recent = self.underway + (self.arms if self.is_pending else 0)
        self.recent_right = self.recent + (self.arms if self.forgets else 0)
        # The latest labels of the cell: how many there were, then `arm << 32 | gain` of each.
        self.ring = self.recent_right + (self.arms if self.forgets else 0)
        self.stride = self.ring + (1 + self.window if self.window else 0)
        self.used = 0
        self.rows = array("q", bytes(8 * 4 * self.stride))

    # -- one decision at a time ---------------------------------------------------------------

    def decide(self, context: tuple[float, ...], slot: int) -> int:
        """Choose an arm for `context` and count its arrival; return the decision.

        Where peers must first be asked for their arrivals, nothing is counted and the result is
        `-1 - row`: ask those of `stale(row, slot)`, `refresh` each, then `resume`.
        """
        self._read(context)
        row = self._locate(slot)
        choice = self._choose(row, slot, False)
        if choice < 0:
            return -1 - row
        self._follow_on()
        return self._begin(row, choice)

    def stale(self, row: int, slot: int) -> list[int]:
        """Return the peers whose training counter must be refreshed before `row` is decided."""
        base = row * self.stride + self.untrained
        self.clock.move(slot)
        limit = self.clock.floors[1]
        return [
            k
            for k in range(self.arms - self.functions)
            if self.rows[base + k] <= limit and self.costs[self.functions + k] < CLOSED
        ]

    def refresh(self, row: int, peer: int, arrivals: int) -> int:
        """Store how much `peer` was trained in `row`, given its arrivals; return the old value."""
        old = self.rows[row * self.stride + self.untrained + peer]
        self._refresh(row, peer, arrivals)
        return old

    def unrefresh(self, row: int, peer: int, old: int) -> None:
        """Put back what `refresh` returned."""
        base = row * self.stride
        self.rows[base + self.untrained + peer] = old
        self.rows[base + CALM] = 0

    def resume(self, row: int, context: tuple[float, ...], slot: int) -> int:
        """Go on with a decision whose stale peers have been refreshed."""
        self._read(context)
        self._follow()
        return self._begin(row, self._choose(row, slot, True))

    def retract(self, decision: int, context: tuple[float, ...]) -> None:
        """Undo what `decide`, `resume` or `serve` counted, as if it had never been asked."""
        row = decision >> 20
        if decision & 3 == SERVE:
            self._count_served(row, -1)
        else:
            self._read(context)
            self._follow()
            self._count_own(row, -1)
        self._release(row, decision >> 2 & 0x3FFFF, decision & 3)

    def settle(
        self,
        decision: int,
        gain: int,
        context: tuple[float, ...],
        slot: int,
    ) -> None:
        """Take the label of a decision made at `slot`: whether it was right."""
        row = decision >> 20
        arm = decision >> 2 & 0x3FFFF
        phase = decision & 3
        self._expect(row, arm, phase, -1)
        if phase == SERVE:
            self._learn_served(row, arm, gain)
        else:
            if self.levels > 1:
                self._read(context)
                self._follow()
            self._learn_own(row, arm, phase, gain, slot)

    def set_cost(self, arm: int, cost: float) -> None:
        """Change what `arm` costs from now on; nothing learnt is lost. Infinite: not to be used."""
        self.costs[arm] = cost
        for row in range(self.used):
            self.rows[row * self.stride + BEST] = -1
            self.rows[row * self.stride + CALM] = 0

    def forget(self, decision: int) -> None:
        """Stop waiting for the label of `decision`."""
        self._release(decision >> 20, decision >> 2 & 0x3FFFF, decision & 3)

    def meet(self, cell: Cell, slot: int) -> int:
        """Return the row of a cell that somebody else speaks of; it is known from now on."""
        for dimension in range(self.dimension):
            self.point[dimension] = cell.coordinates[dimension]
        self.deepest = max(self.deepest, cell.level)
        return self._open(cell.level, slot)

    def arrivals(self, row: int) -> int:
        """Return the arrivals that others are told of."""
        return self.rows[row * self.stride + ARRIVALS]

    def serve(self, row: int, slot: int) -> int:
        """Choose an own function for somebody else's instance in `row`, and count it."""
        self.clock.move(slot)
        function = self._help(row)
        self._count_served(row, 1)
        self._expect(row, function, SERVE, 1)
        return row << 20 | function << 2 | SERVE

    def decide_batch(self, contexts: memoryview, first_slot: int, decisions: memoryview) -> None:
        """Decide for consecutive slots, no label in between: what `decide` returns for each.

        `contexts` holds the coordinates one after the other, already checked. With labels under
        way counted, a batch spreads its exploration.
        """
        for k in range(len(decisions)):
            for n in range(self.dimension):
                self.context[n] = contexts[k * self.dimension + n]
            row = self._locate(first_slot + k)
            choice = self._choose(row, first_slot + k, False)
            decisions[k] = -1 - row
            if choice >= 0:
                self._follow_on()
                decisions[k] = self._begin(row, choice)

    # -- looking in, saving, loading ----------------------------------------------------------

    def __len__(self) -> int:
        return self.used

    def nbytes(self) -> int:
        """Return the memory that the cells take, spare room included."""
        return 8 * len(self.rows) + 4 * len(self.index)

    def cell(self, row: int) -> Cell:
        """Return the cell of `row`."""
        base = row * self.stride
        first = base + COORDINATES
        coordinates = tuple([self.rows[first + k] for k in range(self.dimension)])
        return Cell(self.rows[base + LEVEL], coordinates)

    def is_split(self, row: int) -> bool:
        """Say whether the learner itself uses finer cells here."""
        base = row * self.stride
        return self.rows[base + OWN] >= self.limits[self.rows[base + LEVEL]]

    def own(self, row: int) -> int:
        """Return the learner's own arrivals in `row` while it was its finest cell there."""
        return self.rows[row * self.stride + OWN]

    def record(self, row: int, arm: int) -> tuple[int, int]:
        """Return the labels of `arm` in `row`, and how many of them it got right."""
        base = row * self.stride
        return self.rows[base + self.labels + arm], self.rows[base + self.right + arm]

    def blind_decisions(self) -> int:
        """Return how often a learner without labels decided where nobody had any."""
        return self.blind

    def best(self, row: int) -> int:
        """Return the arm with the largest estimate."""
        return self._best(row * self.stride)

    def counters(self, row: int) -> list[int]:
        """Return all that is known of `row`: since, arrivals, own arrivals, then arm by arm."""
        base = row * self.stride
        head = [self.rows[base + SINCE], self.rows[base + ARRIVALS], self.rows[base + OWN]]
        return head + [self.rows[base + k] for k in range(self.labels, self.stride)]

    def load(self, cell: Cell, counters: list[int]) -> None:
        """Open `cell` with what `counters` returned for it."""
        base = self.meet(cell, 0) * self.stride
        self.rows[base + SINCE] = counters[0]
        self.rows[base + ARRIVALS] = counters[1]
        self.rows[base + OWN] = counters[2]
        for k in range(self.labels, self.stride):
            self.rows[base + k] = counters[3 + k - self.labels]

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
            side = int(self.sides[0])
            for k in range(self.dimension):
                value = value * side + self.point[k]
            return value
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
        """Return the row of the cell at `point`, opening it if it is new."""
        row = self._find(level)
        if row >= 0:
            return row
        return self._add(level, slot, -2 - row)

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
        return self._add(level, slot, -2 - found)

    def _add(self, level: int, slot: int, place: int) -> int:
        row = self.used
        base = row * self.stride
        if row >= self.most_cells:
            raise LimitError(f"{row} cells are in use, which is the cap; raise max-cells")
        if base + self.stride > len(self.rows):
            self._grow(base + max(4, row // 2) * self.stride)
        self.rows[base + LEVEL] = level
        self.rows[base + SINCE] = slot
        self.rows[base + BEST] = self.rows[base + BEST_OWN] = -1
        for k in range(self.dimension):
            self.rows[base + COORDINATES + k] = self.point[k]
        self.used += 1
        self.index[place] = row + 1
        if 2 * self.used > len(self.index) and not self.is_direct:
            self._reindex()
        return row

    def _grow(self, length: int) -> int:
        old = self.rows
        self.rows = array("q", bytes(8 * length))
        for k in range(len(old)):
            self.rows[k] = old[k]
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
        """Add to the path of `_locate` the finer cells that others spoke of."""
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
        # Counters only grow, so what was enough stays enough until a threshold rises.
        if slot < self.rows[base + CALM]:
            return self._best(base) << 2 | EXPLOIT
        self.clock.move(slot)
        if not self.trains_first:
            arm = self._wanting(base, self.labels, 0, self.functions, self.clock.floors[0])
            if arm >= 0:
                return arm << 2 | EXPLORE
        untrained = self.untrained - self.functions
        arm = self._wanting(base, untrained, self.functions, self.arms, self.clock.floors[1])
        if arm >= 0:
            return arm << 2 | TRAIN if is_fresh else -1
        if self.trains_first:
            arm = self._wanting(base, self.labels, 0, self.functions, self.clock.floors[0])
            if arm >= 0:
                return arm << 2 | EXPLORE
        arm = self._wanting(base, self.labels, self.functions, self.arms, self.clock.floors[2])
        if arm >= 0:
            return arm << 2 | EXPLORE
        self.rows[base + CALM] = self.clock.end
        return self._best(base) << 2 | EXPLOIT

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
            if count <= limit and self.costs[arm] < CLOSED:
                if not self.is_random:
                    return arm
                rivals += 1
                if self._is_drawn(rivals):
                    chosen = arm
        return chosen

    def _best(self, base: int) -> int:
        # Rewards may depend on the context, so that no leader of the cell can be remembered.
        if self.rows[base + BEST] < 0 or self.is_random or self.has_rewards:
            self.rows[base + BEST] = self._largest(base, self.arms, True)
        return self.rows[base + BEST]

    def _help(self, row: int) -> int:
        """Return the own function for somebody else's instance: costs are not the asker's."""
        base = row * self.stride
        if self.explores_to_help:
            arm = self._wanting(base, self.labels, 0, self.functions, self.clock.floors[0])
            if arm >= 0:
                return arm
        if self.rows[base + BEST_OWN] < 0 or self.is_random:
            self.rows[base + BEST_OWN] = self._largest(base, self.functions, False)
        return self.rows[base + BEST_OWN]

    def _largest(self, base: int, end: int, is_net: bool) -> int:
        chosen = 0
        rivals = 1
        largest = 0.0
        for arm in range(end):
            value = self._accuracy(base, arm)
            if is_net:
                value = self._worth(arm, value)
            # A greedy helper never tries what it has not tried: its ties go to the last function.
            is_later = value == largest and not is_net and not self.explores_to_help
            if arm == 0 or value > largest or (is_later and not self.is_random):
                largest = value
                chosen = arm
                rivals = 1
            elif self.is_random and value == largest:
                rivals += 1
                if self._is_drawn(rivals):
                    chosen = arm
        return chosen

    def _worth(self, arm: int, accuracy: float) -> float:
        """Return what an arm of this accuracy is worth here, its cost taken off."""
        if not self.has_rewards:
            return accuracy - self.costs[arm]
        at = arm * (3 + self.dimension)
        slope = 1.0
        for k in range(self.dimension):
            slope += self.rewards[at + 3 + k] * self.context[k]
        gained: float = self.rewards[at] * accuracy ** self.rewards[at + 1]
        return gained - self.rewards[at + 2] * self.costs[arm] * slope

    def _record_recent(self, base: int, arm: int, gain: int) -> None:
        """Record what estimates go by: the latest labels of the cell, or all with lesser weight."""
        if self.window:
            self._push(base, arm, gain)
            self.rows[base + self.recent + arm] += 1
            self.rows[base + self.recent_right + arm] += gain
        else:
            for k in range(self.recent, self.recent + 2 * self.arms):
                self.rows[base + k] = self.rows[base + k] * self.keep >> KEEP_BITS
            self.rows[base + self.recent + arm] += ONE
            self.rows[base + self.recent_right + arm] += ONE * gain // self.unit
        self.rows[base + BEST] = self.rows[base + BEST_OWN] = -1

    def _push(self, base: int, arm: int, gain: int) -> None:
        """Put a label into the ring, in the place of the one that leaves the window."""
        first = base + self.ring
        place = first + 1 + self.rows[first] % self.window
        if self.rows[first] >= self.window:
            old = self.rows[place]
            self.rows[base + self.recent + (old >> 32)] -= 1
            self.rows[base + self.recent_right + (old >> 32)] -= old & 0xFFFFFFFF
        self.rows[place] = arm << 32 | gain
        self.rows[first] += 1

    def _accuracy(self, base: int, arm: int) -> float:
        # An arm that the window or the discount has lost sight of is judged by all its labels.
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
        """Say whether the latest of `rivals` equal arms takes the place of the one held."""
        self.state = (self.state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self.state >> 12) % rivals == 0

    def _refresh(self, row: int, peer: int, arrivals: int) -> None:
        base = row * self.stride
        asked = self.rows[base + self.labels + self.functions + peer]
        # What is under way has been counted by the peer only if it counts before the label comes.
        if self.counted == ARRIVED:
            asked = self._tried(base, self.functions + peer)
        self.rows[base + self.untrained + peer] = arrivals - asked

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
        """Note that a label is under way; the asker's training labels move nothing of the arm."""
        base = row * self.stride
        if self.is_pending and phase != TRAIN:
            self.rows[base + self.underway + arm] += by

    def _release(self, row: int, arm: int, phase: int) -> None:
        """Note that no label comes; the arm may be underexplored again."""
        self._expect(row, arm, phase, -1)
        self.rows[row * self.stride + CALM] = 0

    def _learn_own(
        self,
        row: int,
        arm: int,
        phase: int,
        gain: int,
        slot: int,
    ) -> None:
        """Take the label of an own decision; `path` holds the known cells around its context."""
        is_own = arm < self.functions
        is_counted = self.counted == LABELLED or (self.counted == USED and is_own)
        if not is_own and phase != TRAIN:
            self._record(row * self.stride, arm, gain)
            if self.inherits:
                self._record_finer(row, arm, gain, slot)
        if self.levels == 1:
            base = row * self.stride
            self.rows[base + ARRIVALS] += is_counted
            if is_own:
                self._record(base, arm, gain)
        elif is_own or is_counted:
            for k in range(self.found):
                base = self.path[k] * self.stride
                # A cell that became known only later stays as it is: the decision was not its.
                if self.rows[base + SINCE] <= slot:
                    self.rows[base + ARRIVALS] += is_counted
                    if is_own:
                        self._record(base, arm, gain)

    def _record_finer(
        self,
        row: int,
        arm: int,
        gain: int,
        slot: int,
    ) -> None:
        """Record a peer's label where the cell of `row` will be split, too."""
        level = self.rows[row * self.stride + LEVEL] + 1
        for k in range(self.found):
            base = self.path[k] * self.stride
            if self.rows[base + LEVEL] == level and self.rows[base + SINCE] <= slot:
                self._record(base, arm, gain)

    def _learn_served(self, row: int, function: int, gain: int) -> None:
        base = row * self.stride
        self.rows[base + ARRIVALS] += self.counted != ARRIVED
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
        # The leader stays ahead when it is right or a rival is wrong; only else look again.
        if (self.rows[base + BEST] == arm) != gain:
            self.rows[base + BEST] = -1
        if arm < self.functions and (self.rows[base + BEST_OWN] == arm) != gain:
            self.rows[base + BEST_OWN] = -1


class Arena:
    """Many learners in one process, in step, on recorded predictions.

    In a slot every receiving learner decides on the state as the slot found it; then arrivals are
    counted and the labels that are due are settled. These only add up, so their order is free.
    """

    def __init__(
        self,
        tables: list[Table],
        peers: Any,
        receives: list[bool],
        hidden_from: int,
        label_wait: int | None,
    ) -> None:
        self.tables = tables
        self.clock = self._table(0).clock
        self.peers = peers  # learner, place among its peer arms -> learner
        self.offsets = array("i", [0] * len(tables))  # learner -> its first row of predictions
        for k in range(1, len(tables)):
            self.offsets[k] = self.offsets[k - 1] + self._table(k - 1).functions
        self.total = self.offsets[len(tables) - 1] + self._table(len(tables) - 1).functions
        self.receives = array("i", receives)
        self.hidden_from = hidden_from  # so many, from the first, never see a hidden label
        self.wait = -1 if label_wait is None else label_wait  # -1: for ever
        self.calendar: dict[int, list[Any]] = {}  # slot -> the labels that come at its end
        # Of the present slot, per learner: the cell, the choice, and who answers with what.
        self.row, self.choice, self.helper, self.helper_row, self.function = [
            array("q", bytes(8 * len(tables))) for _ in range(5)
        ]

    def run(self, log: Any, first_slot: int, trace: Any) -> None:
        """Play the rows of `log`, the first of them at `first_slot`, and write the trace."""
        at = log.at
        delays = log.delays
        shown = log.shown
        first = 0
        end = len(self.tables)
        delay = 0
        self._open(log, trace)
        for t in range(len(self.labels)):
            slot = first_slot + t
            self.clock.move(slot)
            if at is not None:
                first = at[t]
                end = first + 1
            if delays is not None:
                delay = delays[t]
            for i in range(first, end):
                if self.receives[i]:
                    self._decide(i, slot, t)
            for i in range(first, end):
                if self.receives[i]:
                    is_shown = shown is None or shown[t, i] != 0
                    self._end(i, slot, t, self._delay(i, delay) if is_shown else NEVER)
            if self.calendar:
                self._deliver(slot)

    def _open(self, log: Any, trace: Any) -> int:
        self.contexts = log.contexts
        self.predictions = log.predictions
        self.has_gains = log.gains is not None
        self.gains = log.gains
        self.labels = log.labels
        self.cells = trace.cell
        self.phases = trace.phase
        self.arms = trace.arm
        self.functions = trace.function
        self.correct = trace.correct
        self.written = 0
        return 0

    def _table(self, learner: int) -> Table:
        return self.tables[learner]

    def _decide(self, i: int, slot: int, t: int) -> int:
        table = self._table(i)
        for k in range(table.dimension):
            table.context[k] = self.contexts[t * table.dimension + k]
        row = table._locate(slot)
        if table.is_supervised:
            choice = table._choose(row, slot, False)
            if choice < 0:
                self._ask(i, row, slot)
                choice = table._choose(row, slot, True)
        else:
            choice = self._consult(i, row, slot)
        arm = choice >> 2
        self.row[i] = row
        self.choice[i] = choice
        self.helper[i] = -1
        self.function[i] = arm
        if arm >= table.functions:
            self.helper[i] = self.peers[i, arm - table.functions]
            helper = self._table(self.helper[i])
            self.helper_row[i] = helper._meet(table, row, slot)
            self.function[i] = helper._help(self.helper_row[i])
        return 0

    def _ask(self, i: int, row: int, slot: int) -> int:
        """Refresh what learner `i` knows of the training of its peers in `row`."""
        table = self._table(i)
        for k in range(table.arms - table.functions):
            is_stale = table.rows[row * table.stride + table.untrained + k] <= self.clock.floors[1]
            if is_stale and table.costs[table.functions + k] < CLOSED:
                peer = self._table(self.peers[i, k])
                met = peer._meet(table, row, slot)
                table._refresh(row, k, peer.rows[met * peer.stride + ARRIVALS])
        return 0

    def _consult(self, i: int, row: int, slot: int) -> int:
        """Choose for a learner without labels: by what serving taught it, and by what peers say."""
        table = self._table(i)
        chosen = 0
        largest = 0.0
        seen = 0
        for arm in range(table.arms):
            owner = table
            base = row * table.stride
            best = arm
            if arm >= table.functions:
                owner = self._table(self.peers[i, arm - table.functions])
                base = owner._meet(table, row, slot) * owner.stride
                best = owner._largest(base, owner.functions, False)
            seen += owner.rows[base + owner.labels + best]
            value = table._worth(arm, owner._accuracy(base, best))
            if arm == 0 or value > largest:
                largest = value
                chosen = arm
        table.blind += seen == 0
        return chosen << 2 | EXPLOIT

    def _gain(self, function: int, t: int) -> int:
        gain: int = self.predictions[function, t] == self.labels[t]
        if self.has_gains:
            gain = self.gains[function, t]
        return gain

    def _end(self, i: int, slot: int, t: int, delay: int) -> int:
        """Count the decision of learner `i`, write it down, and settle it or note when to."""
        table = self._table(i)
        at = self.written
        arm = self.choice[i] >> 2
        owner = self.helper[i] if self.helper[i] >= 0 else i
        function = self.offsets[owner] + self.function[i]
        label = self.labels[t]
        gain = self._gain(function, t)
        # Rows of different learners must not be mixed up: their numbers interleave.
        self.cells[at] = self.row[i] * len(self.tables) + i
        self.phases[at] = self.choice[i] & 3
        self.arms[at] = function if owner == i else self.total + owner
        self.functions[at] = function
        self.correct[at] = gain if label >= 0 else -1
        self.written = at + 1
        table._follow_on()
        table._count_own(self.row[i], 1)
        if owner != i:
            self._table(owner)._count_served(self.helper_row[i], 1)
        if delay != 0 or label < 0:
            self._note(i, slot, gain, delay if label >= 0 else NEVER)
            return 0
        table._learn_own(self.row[i], arm, self.choice[i] & 3, gain, slot)
        if owner != i:
            self._table(owner)._learn_served(self.helper_row[i], self.function[i], gain)
        return 0

    def _delay(self, i: int, delay: int) -> int:
        """Return when learner `i` sees the label; hidden ones are written as `-1 - delay`."""
        if delay < 0:
            delay = -1 - delay if i >= self.hidden_from else NEVER
        return delay if self.wait < 0 or delay <= self.wait else NEVER

    def _note(
        self,
        i: int,
        slot: int,
        gain: int,
        delay: int,
    ) -> int:
        """Note when the present decision of learner `i` is to be settled, if ever."""
        helper = self.helper[i]
        note = (i, self.row[i], self.choice[i], helper, self.helper_row[i], self.function[i])
        self._expect(note, 1)
        if delay != NEVER:
            kept = (note, gain, slot, self._table(i)._point_now())
            self.calendar.setdefault(slot + delay, []).append(kept)
        elif self.wait >= 0:
            self.calendar.setdefault(slot + self.wait, []).append((note, None, slot, ()))
        return 0

    def _deliver(self, slot: int) -> int:
        """Settle the labels that come at the end of `slot`."""
        for note, gain, decided, context in self.calendar.pop(slot, ()):
            i, row, choice, helper, helper_row, function = note
            table = self._table(i)
            if gain is None:
                table._release(row, choice >> 2, choice & 3)
                if helper >= 0:
                    self._table(helper)._release(helper_row, function, SERVE)
                continue
            self._expect(note, -1)
            table._read(context)
            table._follow()
            table._learn_own(row, choice >> 2, choice & 3, gain, decided)
            if helper >= 0:
                self._table(helper)._learn_served(helper_row, function, gain)
        return 0

    def _expect(self, note: tuple[Any, ...], by: int) -> int:
        i, row, choice, helper, helper_row, function = note
        self._table(i)._expect(row, choice >> 2, choice & 3, by)
        if helper >= 0:
            self._table(helper)._expect(helper_row, function, SERVE, by)
        return 0
