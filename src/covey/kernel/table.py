# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""The protocol of one decision: a table is cells, what is counted in them, and a policy.

A decision is one integer, `row << 20 | arm << 2 | phase`, that is later passed to `settle`.
"""

from __future__ import annotations

import operator
from typing import Any

import cython
import msgspec

from covey.errors import PolicyError
from covey.kernel.cells import block
from covey.kernel.counters import ArmCounters
from covey.kernel.layout import Layout
from covey.kernel.rules import CellState, Report, Rule
from covey.kernel.saved import Saved

if cython.compiled:
    from cython.cimports.libc.math import log
else:
    from math import log

    from covey.kernel.cells import ARRIVALS, COORDINATES, LEVEL, NEXT_TEST, OWN, doubles, integers
    from covey.kernel.counters import CLOSED, EXPLOIT, EXPLORE, FOREVER, SERVE, TRAIN, UNPAID, WAITS

    FAR = 1 << 60

LATEST_ALARMS = 10  # whose slots are stored
NO_ALARMS: list[int] = []  # shared by all policies
NO_NUMBERS = bytearray(8)  # shared by all that tell none
OWN_STATE = -(1 << 62)  # in the state of a policy: what follows is that of an object


class Clock:
    """The floors of the thresholds D(t) = scale * t**power * ln t of the three tests.

    A counter is at most D(t) if and only if it is at most the floor of D(t). The floors change
    rarely; the next slot at which one changes is found by exponential and binary search.
    """

    def __init__(self, scales: list[float], powers: list[float]) -> None:
        self.block = block(8 * 9)
        self.scales, self.powers = doubles(self.block, 0, 3), doubles(self.block, 3, 3)
        self.floors = integers(self.block, 6, 3)
        for k in range(len(scales)):
            self.scales[k], self.powers[k] = scales[k], powers[k]
        self.now = 0  # the latest slot that it moved to
        self.start = self.end = 0
        self.stride = 1
        self.before = self.rounded = 0  # slots in (before, rounded] use the value of `rounded`
        self.logarithm = 0.0  # of `rounded`
        self.alarms = 0  # of all tables with this clock

    def at(self, slot: int) -> tuple[int, ...]:
        """Return the floors of the thresholds at `slot`."""
        self.move(slot)
        return self.floors[0], self.floors[1], self.floors[2]

    def advance(self, slot: int) -> None:
        """Move to a slot, whose rounded logarithm is needed, too."""
        self.move(slot)
        self.round_up(slot)

    def move(self, slot: int) -> None:
        self.now = slot
        if slot >= self.end or slot < self.start:
            self._look(slot)

    def is_within(self, slot: int) -> bool:
        """Move to `slot` if nothing changes by that; return whether it is so."""
        is_same = self.start <= slot < self.end and self.before < slot <= self.rounded
        if is_same:
            self.now = slot
        return is_same

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


class Said:
    """What a learner tells a peer of a cell: arrivals, bounds of the best accuracy, and numbers."""

    def __init__(self, count: int) -> None:
        self.arrived, self.lowest, self.highest = 0, 0.0, 1.0
        self.count = count
        self.block = block(8 * count) if count else NO_NUMBERS
        self.numbers = integers(self.block, 0, count)


class CellPolicy:
    """Judges the arms in one row after the other; inherit, and override `choose` and what it needs.

    What this base learns is the labels and costs of the arms that were used.
    """

    def __init__(self, clock: Clock, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        self.clock = clock
        self.counters = counters
        self.cells = counters.cells
        self.stride = layout.stride
        self.functions, self.arms, self.asked = layout.functions, layout.arms, layout.asked
        self.labels, self.right = layout.labels, layout.right
        self.untrained, self.trained = layout.untrained, layout.trained
        self.underway, self.is_pending = layout.underway, layout.is_pending
        self.weighs, self.floors_training = layout.weighs, layout.floors_training
        self.levels, self.inherits = len(rule.levels), rule.inherits
        # By which the decisions of learners in the same slot differ: own ones, and of who asks.
        self.offset, self.asker = rule.offset & 0x7FFFFFFF, 0
        self.said = Said(0)  # by `report`
        # Change-detection statistics: of own decisions, and of answers to peers.
        self.has_context = False  # it looks at the context, also where a label counts in one cell
        self.alarm = 0  # 0: there is none
        self.evidence = self.evidence_served = 0
        self.ignores_reports = False  # after a detected change, peers are judged by own labels only
        self.has_alarmed = False  # an alarm that peers have not been told of
        self.forgotten = 0  # labels of decisions up to this slot are ignored
        self.alarm_count = 0  # over all starts
        self.alarms = NO_ALARMS  # their slots, oldest first; after a restart the latest ones
        self.spare_waits = NO_ALARMS  # for a policy that weighs pending labels, later on

    # -- the choice ----------------------------------------------------------------------------

    def choose(self, row: int, slot: int, is_fresh: bool) -> int:
        """Return `arm << 2 | phase`; -1 if the peers of `wanted_from` must be asked first.

        `is_fresh`: they have been asked for this decision.
        """
        return EXPLOIT

    def choose_again(self, row: int, slot: int) -> int:
        """Return the same as `choose`, right after it and the reports that it asked for."""
        return self.choose(row, slot, True)

    def wanted_from(self, row: int, peer: int) -> int:
        """Return the next peer, from `peer` on, whose report `choose` needs; -1: there is none."""
        return -1

    def is_waiting(self, row: int, slot: int) -> bool:
        """Return whether the decision on `row` waits for the reports of `wanted_from`."""
        return True

    def accuracy(self, row: int, arm: int) -> float:
        """Return the estimated accuracy of an arm."""
        return self.counters.accuracy(row * self.stride, arm)

    def basis(self, row: int) -> int:
        """Return the row whose labels an estimate rests on."""
        return row

    def labelled_times(self, row: int, arm: int) -> int:
        """Return how many labels the estimate of an arm rests on."""
        return self.cells.rows[self.basis(row) * self.stride + self.labels + arm]

    def most_accurate(self, row: int) -> int:
        """Return the own function with the largest estimate."""
        return self.counters.most(row * self.stride, self.functions, False)

    def value(self, base: int, arm: int) -> float:
        """Return what an arm is worth when it is exploited."""
        return self.counters.worth(base, arm, self.accuracy(base // self.stride, arm))

    def best_of(self, base: int, end: int) -> int:
        """Return the arm before `end` that is worth most."""
        chosen, largest = 0, -FOREVER
        for arm in range(end):
            value = self.value(base, arm)
            if value > largest:
                largest, chosen = value, arm
        return chosen

    # -- for peers -----------------------------------------------------------------------------

    def serve(self, row: int) -> int:
        """Return the own function for a peer's instance, without regard to costs."""
        return self.counters.most_accurate(row * self.stride)

    def unexplored(self, row: int) -> int:
        """Return the own function that a helper explores next; -1: none."""
        return -1

    def report(self, row: int, slot: int) -> int:
        """Set what a peer is told of a cell: `said`."""
        self.said.arrived = self.cells.rows[row * self.stride + ARRIVALS]
        return 0

    def hear(self, row: int, peer: int, said: Said, slot: int) -> int:
        """Take the report of a peer."""
        return 0

    # -- labels --------------------------------------------------------------------------------

    def is_credible(self, row: int, arm: int, gain: int, slot: int, is_served: bool) -> bool:
        """Return whether a label counts; asked only if `alarm` is above 0."""
        return True

    def learn(self, row: int, arm: int, phase: int, gain: int, slot: int, paid: int) -> int:
        """Record the label of an own decision; `path` holds the known cells around its context."""
        rows = self.cells.rows
        is_own = arm < self.functions
        if self.weighs:
            self.counters.note_arrival(phase, slot)
        if self.alarm > 0 and not self.is_credible(row, arm, gain, slot, False):
            return 0
        base = row * self.stride
        if not is_own and self.alarm > 0:
            self.counters.record(base, arm, gain)
            self.counters.outdate(base, arm)
            self.counters.spend(base, arm, paid)
        elif not is_own and phase != TRAIN:
            self.counters.record(base, arm, gain)
            self.counters.spend(base, arm, paid)
            if self.inherits:
                self._record_finer(base, arm, gain, slot, paid)
        elif not is_own and self.floors_training:
            rows[base + self.trained + arm - self.functions] += 1
        if self.levels == 1:
            rows[base + ARRIVALS] += self.counters.counts_labelled
            if is_own:
                self.counters.take(base, arm, gain, slot)
                self.counters.spend(base, arm, paid)
        elif is_own or self.counters.counts_labelled:
            for k in range(self.cells.found):
                base = self.cells.path[k] * self.stride
                # A cell created after the decision is unchanged.
                if self.cells.since(base) <= slot:
                    rows[base + ARRIVALS] += self.counters.counts_labelled
                    if is_own:
                        self.counters.take(base, arm, gain, slot)
                        self.counters.spend(base, arm, paid)
        return 0

    def _record_finer(self, base: int, arm: int, gain: int, slot: int, paid: int) -> None:
        """Record a peer's label also for the later split of the cell."""
        level = self.cells.marks[2 * base + LEVEL] + 1
        for k in range(self.cells.found):
            finer = self.cells.path[k] * self.stride
            if self.cells.marks[2 * finer + LEVEL] == level and self.cells.since(finer) <= slot:
                self.counters.record(finer, arm, gain)
                self.counters.spend(finer, arm, paid)

    def learn_served(self, row: int, function: int, gain: int, slot: int) -> int:
        """Record the label of a peer's instance."""
        base = row * self.stride
        if self.weighs:
            self.counters.note_arrival(SERVE, slot)
        if self.alarm > 0:
            last = self.cells.rows[base + self.counters.last + function]
            if self.counters.once and last == slot:
                return 0
            if not self.is_credible(row, function, gain, slot, True):
                return 0
        rows = self.cells.rows
        rows[base + ARRIVALS] += self.counters.counts_labelled
        self.counters.take(base, function, gain, slot)
        return 0

    def count_own(self, row: int) -> int:
        """Count an own decision; `path` holds the cells that led to its row."""
        if self.cells.found <= self.cells.deepest:
            self.cells.follow_on()
        self.counters.count_own(row, 1)
        return 0

    def learn_now(self, row: int, arm: int, phase: int, gain: int, slot: int) -> int:
        """Count an own decision and record its label, which comes at once."""
        if self.cells.found <= self.cells.deepest:
            self.cells.follow_on()
        self.counters.count_own(row, 1)
        self.learn(row, arm, phase, gain, slot, UNPAID)
        return 0

    def learn_served_now(self, row: int, function: int, gain: int, slot: int) -> int:
        """Count a peer's instance and record its label, which comes at once."""
        self.counters.count_served(row, 1)
        self.learn_served(row, function, gain, slot)
        return 0

    def score(self, row: int, function: int, gain: int, slot: int, is_served: bool) -> int:
        """Record the label of a free own function that was not chosen: no arrival, no evidence.

        It counts in the cells in which that of a chosen one does: those of `path`, and for a
        peer's instance `row`.
        """
        if slot <= self.forgotten:
            return 0
        if is_served or self.levels == 1:
            self.counters.take(row * self.stride, function, gain, slot)
            return 0
        for k in range(self.cells.found):
            base = self.cells.path[k] * self.stride
            if self.cells.since(base) <= slot:
                self.counters.take(base, function, gain, slot)
        return 0

    # -- changes, and what is kept besides counters --------------------------------------------

    def derive(self, row: int) -> int:
        """Compute again what depends on the counters of a row, which were loaded or combined."""
        return 0

    def forget(self, end: int) -> int:
        """Reset what is known of the arms before `end`, in every cell."""
        return self.counters.forget(end)

    def hear_alarm(self, slot: int) -> None:
        """Learn that a peer raised an alarm by a label of a decision made at `slot`."""

    def note_alarm(self, slot: int) -> None:
        """Note that the label of a decision made at `slot` raised an alarm."""
        self.alarm_count += 1
        self.clock.alarms += 1
        self.alarms = [*self.alarms, max(self.clock.now, slot)]

    def state(self) -> list[int]:
        """Return the change-detection statistics, the slot of the last reset, and the alarms.

        What is known of the labels of each source follows, below 0.
        """
        waits = self.spare_waits
        if self.weighs:
            waits = [self.counters.waits[k] for k in range(WAITS)]
        return [
            self.evidence,
            self.evidence_served,
            int(self.ignores_reports),
            self.forgotten,
            self.alarm_count,
            *self.alarms[max(0, len(self.alarms) - LATEST_ALARMS) :],
            *([-1 - number for number in waits] if any(waits) else []),
        ]

    # A policy can have beliefs that are too large to be stored with every label.

    def beliefs(self) -> list[list[int]]:
        """Return them by function: how many numbers follow, these, how many labels, and these."""
        return []

    def take_belief(self, function: int, belief: list[int]) -> None:
        """Restore one of `beliefs`; labels of `news` may be added to it."""
        raise NotImplementedError

    def news(self) -> list[tuple[int, list[int], list[int]]]:
        """Return what is new of functions: the belief, if it is to be stored now, else nothing.

        Then the labels since it was stored, as a belief without numbers.
        """
        return []

    def adopt(self, old: CellPolicy, arms: list[int]) -> None:
        """Continue from the table of other arms: arm `k` is `arms[k]` there; -1: it is new."""
        self.restore(old.state())

    def restore(self, state: list[int]) -> None:
        """Restore the result of `state`."""
        waits = [-1 - number for number in state[5:] if number < 0]
        self.spare_waits = waits
        for k in range(len(waits) if self.weighs else 0):
            self.counters.waits[k] = waits[k]
        self.evidence, self.evidence_served, self.forgotten = state[0], state[1], state[3]
        self.ignores_reports = state[2] > 0
        self.alarm_count = state[4]
        self.alarms = [slot for slot in state[5:] if slot >= 0]


class OwnPolicy(CellPolicy):
    """Lets an object with `choose` and `serve` decide, by what is counted in a cell."""

    def __init__(self, clock: Clock, rule: Rule, layout: Layout, counters: ArmCounters) -> None:
        CellPolicy.__init__(self, clock, rule, layout, counters)
        assert rule.custom is not None
        self.has_context = True
        self.title = rule.custom.name
        policy = rule.custom.make(self.functions, self.arms - self.functions)
        self.choosing, self.serving = policy.choose, policy.serve
        self.asks_peers = bool(getattr(policy, "asks_peers", False))
        self.learning = getattr(policy, "learn", None)
        self.keeping = getattr(policy, "state", None)
        self.restoring = getattr(policy, "restore", None)
        self.arm_names = rule.arm_names
        self.view = CellState(self.functions, rule.custom.seed, self.cells)
        self.nothing = [0] * self.arms
        self.reports: dict[tuple[int, int], tuple[int, int, float]] = {}  # by row and peer

    # -- the choice ----------------------------------------------------------------------------

    def choose(self, row: int, slot: int, is_fresh: bool) -> int:
        if self.asks_peers and not is_fresh:
            self.clock.move(slot)
            if self.wanted_from(row, 0) >= 0:
                return -1
        arm = self._call(self.choosing, row, slot, self.arms, self.cells.point_now())
        return arm << 2 | (EXPLOIT if self.counters.best(row * self.stride) == arm else EXPLORE)

    def wanted_from(self, row: int, peer: int) -> int:
        for place in range(peer, self.arms - self.functions if self.asks_peers else 0):
            slot = self.reports.get((row, place), (-1,))[0]
            if slot != self.clock.now and self.counters.costs[self.functions + place] < CLOSED:
                return place
        return -1

    def report(self, row: int, slot: int) -> int:
        base = row * self.stride
        self.said.arrived = self.cells.rows[base + ARRIVALS]
        best = self.counters.most(base, self.functions, False)
        self.said.lowest = self.said.highest = self.counters.accuracy(base, best)
        return 0

    def hear(self, row: int, peer: int, said: Said, slot: int) -> int:
        self.reports[row, peer] = (slot, said.arrived, said.highest)
        return 0

    def serve(self, row: int) -> int:
        return self._call(self.serving, row, self.clock.now, self.functions, self._middle(row))

    def _call(self, method: Any, row: int, slot: int, end: int, context: Any) -> int:
        """Return the arm that the policy chooses, which must be below `end` and available."""
        self._show(row, slot)
        self.view.context = context
        answer = self._run(method, self.view)
        fault = ""
        arm = -1
        try:
            arm = operator.index(answer)
        except TypeError:
            fault = "return the number of an arm"
        if not fault and not 0 <= arm < end:
            fault = f"it must be 0 to {end - 1}"
        elif not fault and self.counters.costs[arm] >= CLOSED:
            fault = "which is not available now (its cost is inf)"
        if fault:
            raise PolicyError(
                f"policy {self.title!r}: {method.__name__} returned {answer!r}; {fault}"
            )
        return arm

    def _run(self, method: Any, *arguments: Any) -> Any:
        """Return what a method of the policy returns."""
        try:
            return method(*arguments)
        except Exception as error:
            raise PolicyError(
                f"policy {self.title!r} raised {type(error).__name__} in {method.__name__}: {error}"
            ) from error

    def _show(self, row: int, slot: int) -> int:
        """Set what the policy sees to the counters of a row."""
        view: Any = self.view
        rows, base = self.cells.rows, row * self.stride
        arms = range(self.arms)
        view.slot = slot
        view.row = row
        view.labels = [rows[base + self.labels + arm] for arm in arms]
        view.right = [rows[base + self.right + arm] for arm in arms]
        if self.counters.unit > 1:
            view.right = [gain / self.counters.unit for gain in view.right]
        view.pending = self.nothing
        if self.is_pending:
            view.pending = [rows[base + self.underway + arm] for arm in arms]
        view.costs = [self.counters.price(base, arm) for arm in arms]
        view.reports = [self.reports.get((row, arm - self.functions)) for arm in arms]
        del view.reports[: self.functions]
        view.draws = 0
        return 0

    def _middle(self, row: int) -> tuple[float, ...]:
        """Return the middle of the cell of a row, which is all that a peer says of a context."""
        base = row * self.stride
        side = self.cells.sides[self.cells.marks[2 * base + LEVEL]]
        first = base + COORDINATES
        return tuple(
            [(self.cells.rows[first + k] + 0.5) / side for k in range(self.cells.dimension)]
        )

    # -- labels, and what the policy keeps of them ---------------------------------------------

    def learn(self, row: int, arm: int, phase: int, gain: int, slot: int, paid: int) -> int:
        if self.learning is not None:
            self._teach(row, arm, phase, gain, self.cells.point_now())
        return CellPolicy.learn(self, row, arm, phase, gain, slot, paid)

    def learn_served(self, row: int, function: int, gain: int, slot: int) -> int:
        if self.learning is not None:
            self._teach(row, function, SERVE, gain, self._middle(row))
        return CellPolicy.learn_served(self, row, function, gain, slot)

    def _teach(self, row: int, arm: int, phase: int, gain: int, context: Any) -> int:
        try:
            self._run(self.learning, context, arm, float(gain) / self.counters.unit)
        except PolicyError:
            self.counters.expect(row, arm, phase, 1)  # its label may come again
            raise
        return 0

    def state(self) -> list[int]:
        """Return the same as other policies, then the bytes of the JSON of the policy's state."""
        if self.keeping is None and self.learning is not None:
            raise PolicyError(
                f"policy {self.title!r} has learn but not state and restore, so what it learns "
                "cannot be stored or copied; add both methods"
            )
        kept = CellPolicy.state(self)
        if self.keeping is None:
            return kept
        try:
            encoded = msgspec.json.encode(self._run(self.keeping))
        except TypeError as error:
            raise PolicyError(
                f"policy {self.title!r}: state returned no JSON value: {error}; return numbers, "
                "texts, lists and dicts"
            ) from error
        return [*kept, OWN_STATE, self.arm_names, *encoded]

    def restore(self, state: list[int]) -> None:
        end = state.index(OWN_STATE) if OWN_STATE in state else len(state)
        CellPolicy.restore(self, state[:end])
        if self.restoring is not None and state[end + 1 : end + 2] == [self.arm_names]:
            self._run(self.restoring, msgspec.json.decode(bytes(state[end + 2 :])))


class Table:
    """One learner's counters and decisions in one context space."""

    def __init__(self, clock: Clock, rule: Rule, layout: Layout, policy: CellPolicy) -> None:
        self.clock = clock
        self.layout = layout
        self.policy = policy
        self.counters, self.cells = self.policy.counters, self.policy.cells
        self.is_supervised = rule.is_supervised
        # A label needs its context if it counts in the cells around, or if the policy looks at it.
        is_counted_around = self.policy.levels > 1 and self.cells.follows
        self.needs_path = is_counted_around or self.policy.has_context

    def __len__(self) -> int:
        return self.cells.used

    @property
    def blind_decisions(self) -> int:
        """How many decisions there were with no label at any learner."""
        return self.counters.blind

    @property
    def saved(self) -> Saved:
        """What a store has of the rows."""
        return Saved(self)

    # -- one decision at a time ----------------------------------------------------------------

    def decide(self, context: tuple[float, ...], slot: int, closed: bytes | None = None) -> int:
        """Choose an arm for `context` and count its arrival; return the decision.

        If reports of peers are needed first, nothing is counted and the result is `-1 - row`: ask
        the peers in `stale(row, slot)`, call `hear` for each, then `resume`. A learner without
        labels always asks, for estimates, and continues with `consult`.
        `closed` has one byte per arm, 1: unavailable. The decision is the same as with infinite
        costs of these arms. None: all are available.
        """
        self.cells.read(context)
        row = self.cells.locate(slot)
        code = self.choose(row, slot, False, closed) if self.is_supervised else -1
        if code < 0:
            return -1 - row
        self.cells.follow_on()
        return self._begin(code)

    def locate(self, context: tuple[float, ...], slot: int) -> int:
        """Return the row of the own cell around `context`, which `decide` decides at `slot`."""
        self.cells.read(context)
        return self.cells.locate(slot)

    def stale(self, row: int, slot: int, closed: bytes | None = None) -> list[int]:
        """Return the peers whose report is needed before `row` is decided."""
        self.counters.close(closed)
        self.clock.move(slot)
        peers = []
        if self.policy.is_waiting(row, slot):
            peer = self.policy.wanted_from(row, 0)
            while peer >= 0:
                peers.append(peer)
                peer = self.policy.wanted_from(row, peer + 1)
        self.counters.reopen()
        return peers

    def report(self, row: int, slot: int, asker: int = 0) -> Report:
        """Return the report for a peer: arrivals, bounds of the best accuracy, and more numbers.

        `asker` is the offset of the peer that asks.
        """
        policy = self.policy
        self.clock.advance(slot)
        policy.asker = asker
        policy.report(row, slot)
        said = policy.said
        numbers = tuple([said.numbers[k] for k in range(said.count)])
        return said.arrived, said.lowest, said.highest, numbers

    def hear(self, row: int, peer: int, report: Report, slot: int) -> int:
        """Store the `report` of `peer`; return the previous training counter."""
        old = self.cells.rows[row * self.cells.stride + self.policy.untrained + peer]
        self.clock.move(slot)
        said = Said(len(report[3]))
        said.arrived, said.lowest, said.highest, numbers = report
        for k in range(said.count):
            said.numbers[k] = numbers[k]
        self.policy.hear(row, peer, said, slot)
        return old

    def unrefresh(self, row: int, peer: int, old: int) -> None:
        """Restore the counter that `hear` returned."""
        base = row * self.cells.stride
        self.cells.rows[base + self.policy.untrained + peer] = old
        self.cells.rows[base + NEXT_TEST] = 0

    def resume(
        self, row: int, context: tuple[float, ...], slot: int, closed: bytes | None = None
    ) -> int:
        """Continue a decision after the peers' reports; -1 - row: more are needed."""
        self.cells.read(context)
        self.cells.follow()
        code = self.choose(row, slot, True, closed)
        return self._begin(code) if code >= 0 else -1 - row

    def choose(self, row: int, slot: int, is_fresh: bool, closed: bytes | None = None) -> int:
        """Return the decision on the current context, which is in `row`, and count nothing.

        It is below 0 if peers must report first; `is_fresh`: they have, for this decision.
        """
        self.counters.close(closed)
        try:
            choice = self.policy.choose(row, slot, is_fresh)
        finally:
            self.counters.reopen()
        return row << 20 | choice if choice >= 0 else -1 - row

    def count(self, decision: int, context: tuple[float, ...]) -> None:
        """Count what `choose` or `weigh` returned."""
        self.cells.read(context)
        self.cells.follow()
        self._begin(decision)

    def _begin(self, decision: int) -> int:
        row = decision >> 20
        self.counters.count_own(row, 1)
        self.counters.expect(row, decision >> 2 & 0x3FFFF, decision & 3, 1)
        return decision

    def answer(self, row: int, slot: int, asker: int = 0) -> int:
        """Return the own function for a peer's instance; `asker` is the offset of the peer."""
        self.policy.asker = asker
        self.clock.advance(slot)
        return self.policy.serve(row)

    def serve(self, row: int, slot: int, function: int = -1, asker: int = 0) -> int:
        """Count a peer's instance in `row` and return the decision.

        -1: the policy chooses the own function; else it is `function`. `asker` is the offset of
        the peer that asks.
        """
        if function < 0:
            function = self.answer(row, slot, asker)
        self.counters.count_served(row, 1)
        self.counters.expect(row, function, SERVE, 1)
        return row << 20 | function << 2 | SERVE

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
        decision = self.weigh(row, context, told, closed)
        self.cells.follow()
        return self._begin(decision)

    def weigh(
        self,
        row: int,
        context: tuple[float, ...],
        told: list[tuple[float, int]],
        closed: bytes | None = None,
    ) -> int:
        """Do the same, and count no arrival."""
        seen = 0
        counters = self.counters
        self.cells.read(context)
        for arm in range(counters.functions):
            counters.told[arm] = self.policy.accuracy(row, arm)
            seen += self.policy.labelled_times(row, arm)
        for arm in range(counters.functions, counters.arms):
            counters.told[arm] = told[arm - counters.functions][0]
            if closed is None or not closed[arm]:
                seen += told[arm - counters.functions][1]
        counters.close(closed)
        try:
            arm = counters.weigh(row * self.cells.stride, seen)
        finally:
            counters.reopen()
        return row << 20 | arm << 2 | EXPLOIT

    # -- decisions and their labels ------------------------------------------------------------

    def retract(self, decision: int, context: tuple[float, ...], slot: int) -> None:
        """Undo what `decide`, `resume` or `serve` counted at `slot`.

        Cells created later are unchanged.
        """
        if decision & 3 != SERVE:
            self.cells.read(context)
        row = decision >> 20
        cells, counters = self.cells, self.counters
        if decision & 3 == SERVE:
            counters.count_served(row, -1)
        elif cells.has_tree:
            cells.forget_leaves()
            counters.count_own(row, -1)
        else:
            cells.rows[row * cells.stride + OWN] -= 1
            if counters.weighs:
                counters.waits[0] -= 1
            if not counters.counts_labelled:
                cells.follow()
                for k in range(cells.found):
                    base = cells.path[k] * cells.stride
                    if cells.since(base) <= slot:
                        cells.rows[base + ARRIVALS] -= 1
        counters.release(row, decision >> 2 & 0x3FFFF, decision & 3)

    def settle(
        self,
        decision: int,
        gain: int,
        context: tuple[float, ...],
        slot: int,
        paid: int = UNPAID,
    ) -> None:
        """Record the label of a decision made at `slot`: its gain and its cost, in millionths."""
        if self.needs_path and (decision & 3 != SERVE or self.cells.is_wide):
            self.cells.read(context)
        self._settle(decision, gain, slot, paid)

    def _settle(self, decision: int, gain: int, slot: int, paid: int) -> int:
        """Do the same, where the current context is that of the decision if it matters."""
        row = decision >> 20
        arm = decision >> 2 & 0x3FFFF
        phase = decision & 3
        if self.counters.is_pending:
            self.counters.expect(row, arm, phase, -1)
        if phase == SERVE:
            return self.policy.learn_served(row, arm, gain, slot)
        if self.needs_path:
            self.cells.follow()
        return self.policy.learn(row, arm, phase, gain, slot, paid)

    def score(
        self, decision: int, function: int, gain: int, context: tuple[float, ...], slot: int
    ) -> None:
        """Record what a free function gains that a decision made at `slot` did not choose."""
        is_served = decision & 3 == SERVE
        if self.needs_path and (not is_served or self.cells.is_wide):
            self.cells.read(context)
            self.cells.follow()
        self.policy.score(decision >> 20, function, gain, slot, is_served)

    def remember(
        self, decision: int, label: Any, context: tuple[float, ...], slot: int, answer: Any = None
    ) -> None:
        """Store the label of a decision made at `slot`, for queries that contain only the cell.

        `answer` is what the arm answered; None: nothing.
        """
        if decision & 3 == SERVE:
            self.cells.memory.take(decision >> 20, label, answer)
        else:
            self.cells.read(context)
            self.cells.follow()
            is_own = decision >> 2 & 0x3FFFF < self.counters.functions
            self.counters.remember_around(label, answer if is_own else None, slot)

    def expect(self, decision: int) -> None:
        """Count a pending label of a decision that is already counted."""
        self.counters.expect(decision >> 20, decision >> 2 & 0x3FFFF, decision & 3, 1)

    # -- batches -------------------------------------------------------------------------------

    def decide_batch(
        self,
        contexts: Any,
        first_slot: int,
        decisions: Any,
        closed: bytes | None = None,
    ) -> int:
        """Decide for consecutive slots without labels in between, as `decide` for each.

        Stops before the first row that needs reports of peers, and returns its index. `contexts`
        are flat, validated coordinates. With pending labels counted, a batch spreads its
        exploration.
        """
        coordinates, codes = doubles(contexts, 0, -1), integers(decisions, 0, -1)
        for k in range(len(decisions)):
            self.cells.take_context(coordinates, k)
            row, slot = self.cells.locate(first_slot + k), first_slot + k
            code = self.choose(row, slot, False, closed) if self.is_supervised else -1
            if code < 0:
                codes[k] = -1 - row
                return k
            self.cells.follow_on()
            codes[k] = self._begin(code)
        return len(decisions)

    def settle_batch(
        self, contexts: Any, slots: Any, decisions: Any, gains: Any, paid: Any
    ) -> None:
        """Record labels of decisions in order, as `settle` does."""
        coordinates, codes = doubles(contexts, 0, -1), integers(decisions, 0, -1)
        made, gained, spent = integers(slots, 0, -1), integers(gains, 0, -1), integers(paid, 0, -1)
        for k in range(len(decisions)):
            if self.needs_path and (codes[k] & 3 != SERVE or self.cells.is_wide):
                self.cells.take_context(coordinates, k)
            self._settle(codes[k], gained[k], made[k], spent[k])

    def forget(self, decision: int) -> None:
        """Remove the pending label of `decision`."""
        self.counters.release(decision >> 20, decision >> 2 & 0x3FFFF, decision & 3)

    # -- looking in ----------------------------------------------------------------------------

    def record(self, row: int, arm: int) -> tuple[int, int]:
        """Return the labels of `arm` in `row`, and its correct answers."""
        base = row * self.cells.stride
        labels, right = self.counters.labels, self.counters.right
        return self.cells.rows[base + labels + arm], self.cells.rows[base + right + arm]

    def worth(self, row: int, arm: int) -> float:
        """Return what an arm is worth when it is exploited: its estimate minus its cost."""
        return self.policy.value(row * self.cells.stride, arm)

    def judged(self, row: int, slot: int) -> tuple[int, int, float]:
        """Return the own function to explore for a peer (-1: none), the best one, its accuracy."""
        self.clock.advance(slot)
        best = self.policy.most_accurate(row)
        return self.policy.unexplored(row), best, self.policy.accuracy(row, best)

    def best_own(self, row: int, context: tuple[float, ...] | None = None) -> int:
        """Return the same among own functions, for an instance."""
        if context is not None and (self.counters.has_rewards or self.cells.is_wide):
            self.cells.read(context)
        return self.policy.best_of(row * self.cells.stride, self.counters.functions)

    def estimate(self, row: int) -> tuple[float, int]:
        """Return accuracy and labels of the best own function, for a learner without labels."""
        best = self.policy.most_accurate(row)
        return self.policy.accuracy(row, best), self.policy.labelled_times(row, best)

    def basis(self, row: int) -> int:
        """Return the row whose labels the estimates of a row rest on."""
        return self.policy.basis(row)

    def accuracies(self, row: int, context: tuple[float, ...]) -> list[float]:
        """Return the estimated accuracy of each arm, for an instance."""
        self.cells.read(context)
        return [self.policy.accuracy(row, arm) for arm in range(self.counters.arms)]

    def set_cost(self, arm: int, cost: float) -> None:
        """Change the cost of `arm` and keep its counters; infinite: unavailable."""
        self.counters.set_cost(arm, cost)

    def combine(self, row: int, other: Table, by: int) -> None:
        """Add the counts of `other` for own functions in the cell of `row` (by 1), or subtract."""
        self.counters.combine(row, other.counters, by)
        self.policy.derive(row)

    # -- changes -------------------------------------------------------------------------------

    def forget_labels(self, slot: int) -> None:
        """Reset all labels of own functions; labels of decisions up to `slot` are ignored."""
        policy = self.policy
        policy.forget(policy.functions)
        policy.evidence_served = 0
        policy.forgotten = max(policy.forgotten, slot)

    def take_alarm(self) -> bool:
        """Return whether there was an alarm that peers must be told of; they will be."""
        has_alarmed = self.policy.has_alarmed
        self.policy.has_alarmed = False
        return has_alarmed

    def hear_alarm(self, slot: int) -> None:
        """Learn that a peer raised an alarm by a label of a decision made at `slot`."""
        self.policy.hear_alarm(slot)

    def raise_alarm(self, slot: int) -> None:
        """Do what an alarm of answers to peers does, for labels that this table does not have."""
        if self.policy.alarm > 0:
            self.forget_labels(slot)
            self.policy.note_alarm(slot)
