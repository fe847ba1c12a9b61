# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""The base of all policies: one decision, one label, or many, at a time.

A policy inherits and overrides a few methods: `_choose`, `_help`, `_needs_report`, `_make_report`,
`_receive_report`, `_has_changed`, `_on_label`, `_score`. A decision is one integer,
`row << 20 | arm << 2 | phase`, that is later passed to `settle`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from covey.kernel.cells import ARRIVALS, BEST, BEST_OWN, LEVEL, NEXT_TEST, OWN, PARENT
from covey.kernel.counters import (
    ARRIVED,
    CLOSED,
    EXPLOIT,
    LABELLED,
    SERVE,
    TRAIN,
    UNPAID,
    USED,
    WAITS,
)
from covey.kernel.pending import PendingCounters
from covey.kernel.rules import Report, Rule
from covey.kernel.thresholds import Clock

LATEST_ALARMS = 10  # whose slots are stored
NO_ALARMS: list[int] = []  # shared by all tables


class Table(PendingCounters):
    """One learner's counters and decisions in one context space."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        PendingCounters.__init__(self, rule)
        self.clock = clock
        self.is_supervised = rule.is_supervised
        self.floors_training = rule.floors_training
        self.tells_widths = False  # a helper says how far its function may be from its best
        # What `_make_report` has found: arrivals, and bounds of the best accuracy.
        self.arrived = 0
        self.lowest, self.highest = 0.0, 1.0
        # Change-detection statistics: of own decisions, and of answers to peers.
        self.alarm = 0  # 0: there is none
        self.evidence = self.evidence_served = 0
        self.ignores_reports = False  # after a detected change, peers are judged by own labels only
        self.forgotten = 0  # labels of decisions up to this slot are ignored
        self.alarm_count = 0  # over all starts
        self.alarms = NO_ALARMS  # their slots, oldest first; after a restart the latest ones
        self.spare_waits = NO_ALARMS  # for a table that weighs pending labels, later on

    # -- what a policy overrides ---------------------------------------------------------------

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        """Return `arm << 2 | phase`; -1 if peers must be asked first.

        `is_fresh`: those that `_needs_report` names have been asked for this decision.
        """
        return EXPLOIT

    def _choose_again(self, row: int, slot: int) -> int:
        """Return the same as `_choose`, right after it and the reports that it asked for."""
        return self._choose(row, slot, True)

    def _help(self, row: int) -> int:
        """Return the own function for a peer's instance, without regard to costs."""
        return self._most_accurate(row * self.stride)

    def _unexplored(self, row: int) -> int:
        """Return the own function that a helper explores next; -1: none."""
        return -1

    def _needs_report(self, row: int, peer: int) -> bool:
        """Return whether `_choose` needs the report of a peer, after it returned -1."""
        return self.costs[self.functions + peer] < CLOSED

    def _value(self, base: int, arm: int) -> float:
        """Return what an arm is worth when it is exploited."""
        return self._worth(base, arm, self._accuracy(base, arm))

    def _best_of(self, base: int, end: int) -> int:
        return self._largest(base, end, True)

    def _is_waiting(self, row: int, slot: int) -> bool:
        """Return whether the decision on `row` waits for the reports that `_needs_report` names."""
        return True

    def _make_report(self, row: int, slot: int) -> int:
        """Set what a peer is told of a cell: `arrived`, `lowest` and `highest`."""
        self.arrived = self.rows[row * self.stride + ARRIVALS]
        return 0

    def _receive_report(
        self, row: int, peer: int, arrivals: int, low: float, high: float, slot: int
    ) -> int:
        """Take the report of a peer."""
        return 0

    def _receive_false_report(self, row: int, peer: int, slot: int) -> int:
        """Take the report of a peer that claims no arrivals and a perfect function."""
        return self._receive_report(row, peer, 0, 0.0, 1.0, slot)

    def _width(self, row: int, function: int) -> int:
        """Return how far a function may be from its best, in millionths."""
        return 0

    def _is_credible(self, row: int, arm: int, gain: int, slot: int, is_served: bool) -> bool:
        """Return whether a label counts; asked only if `alarm` is above 0."""
        return True

    def _on_label(self, row: int, arm: int, phase: int, gain: int, slot: int) -> int:
        """Count an own decision and record its label, which comes at once."""
        self._follow_on()
        self._count_own(row, 1)
        self._learn_own(row, arm, phase, gain, slot, UNPAID)
        return 0

    def _score(self, row: int, function: int, gain: int, slot: int, is_served: bool) -> int:
        """Record the label of a free own function that was not chosen: no arrival, no evidence.

        It counts in the cells in which that of a chosen one does: those of `path`, and for a
        peer's instance `row` and its parents.
        """
        if slot <= self.forgotten:
            return 0
        if is_served or self.levels == 1:
            while row >= 0:
                self._take(row * self.stride, function, gain, slot)
                row = self.marks[2 * row * self.stride + PARENT]
            return 0
        for k in range(self.found):
            if self._since(self.path[k] * self.stride) <= slot:
                self._take(self.path[k] * self.stride, function, gain, slot)
        return 0

    def _on_served_label(self, row: int, function: int, gain: int, slot: int) -> int:
        """Count a peer's instance and record its label, which comes at once."""
        self._count_served(row, 1)
        self._learn_served(row, function, gain, slot)
        return 0

    # -- one decision at a time ----------------------------------------------------------------

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

    def locate(self, context: tuple[float, ...], slot: int) -> int:
        """Return the row of the own cell around `context`, which `decide` decides at `slot`."""
        self._read(context)
        return self._locate(slot)

    def stale(self, row: int, slot: int, closed: bytes | None = None) -> list[int]:
        """Return the peers whose report is needed before `row` is decided."""
        if closed is not None:
            self._close(closed)
        self.clock.move(slot)
        peers = []
        if self._is_waiting(row, slot):
            peers = [k for k in range(self.asked - self.functions) if self._needs_report(row, k)]
        if closed is not None:
            self._reopen()
        return peers

    def report(self, row: int, slot: int) -> Report:
        """Return the report for a peer: arrivals, and bounds of the best accuracy."""
        self.clock.move(slot)
        self.clock.round_up(slot)
        self._make_report(row, slot)
        return self.arrived, self.lowest, self.highest

    def hear(self, row: int, peer: int, report: Report, slot: int) -> int:
        """Store the `report` of `peer`; return the previous training counter."""
        old = self.rows[row * self.stride + self.untrained + peer]
        self.clock.move(slot)
        self._receive_report(row, peer, report[0], report[1], report[2], slot)
        return old

    def unrefresh(self, row: int, peer: int, old: int) -> None:
        """Restore the counter that `refresh` returned."""
        base = row * self.stride
        self.rows[base + self.untrained + peer] = old
        self.rows[base + NEXT_TEST] = 0

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
            if self.has_tree:
                self._forget_leaves()
                self._count_own(row, -1)
            else:
                self.rows[row * self.stride + OWN] -= 1
                if self.weighs:
                    self.waits[0] -= 1
            if self.counted == ARRIVED and not self.has_tree:
                self._follow()
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
            if self.levels > 1 and self.follows:
                self._read(context)
                self._follow()
            self._learn_own(row, arm, phase, gain, slot, paid)

    def score(
        self, decision: int, function: int, gain: int, context: tuple[float, ...], slot: int
    ) -> None:
        """Record what a free function gains that a decision made at `slot` did not choose."""
        is_served = decision & 3 == SERVE
        if not is_served and self.levels > 1 and self.follows:
            self._read(context)
            self._follow()
        self._score(decision >> 20, function, gain, slot, is_served)

    def remember(
        self, decision: int, label: Any, context: tuple[float, ...], slot: int, answer: Any = None
    ) -> None:
        """Store the label of a decision made at `slot`, for queries that contain only the cell.

        `answer` is what the arm answered; None: nothing.
        """
        if decision & 3 == SERVE:
            self.memory.take(decision >> 20, label, answer)
        else:
            is_own = decision >> 2 & 0x3FFFF < self.functions
            self._read(context)
            self._follow()
            self._remember_around(label, answer if is_own else None, slot)

    def expect(self, decision: int) -> None:
        """Count a pending label of a decision that is already counted."""
        self._expect(decision >> 20, decision >> 2 & 0x3FFFF, decision & 3, 1)

    def forget(self, decision: int) -> None:
        """Remove the pending label of `decision`."""
        self._release(decision >> 20, decision >> 2 & 0x3FFFF, decision & 3)

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
        try:
            arm = self._weigh(row * self.stride, seen)
        finally:
            if closed is not None:
                self._reopen()
        return self._begin(row, arm << 2 | EXPLOIT)

    def _choose_open(self, row: int, slot: int, is_fresh: bool, closed: bytes) -> int:
        """Choose among the arms that are not closed."""
        self._close(closed)
        try:
            return self._choose(row, slot, is_fresh)
        finally:
            self._reopen()

    # -- batches -------------------------------------------------------------------------------

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

    def count_batch(self, contexts: memoryview, decisions: memoryview) -> None:
        """Count decisions of one slot that were retracted when they were made."""
        for k in range(len(decisions)):
            self._take_context(contexts, k)
            self._follow()
            self._begin(decisions[k] >> 20, decisions[k] & 0xFFFFF)

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
            if self.levels > 1 and self.follows:
                self._take_context(contexts, k)
                self._follow()
            self._learn_own(row, arm, phase, gains[k], slots[k], paid[k])

    def forget_batch(self, decisions: memoryview) -> None:
        """Remove the pending labels of decisions."""
        for k in range(len(decisions)):
            self._release(decisions[k] >> 20, decisions[k] >> 2 & 0x3FFFF, decisions[k] & 3)

    # -- changes -------------------------------------------------------------------------------

    def doubts(self) -> list[int]:
        """Return the change-detection statistics, the slot of the last reset, and the alarms."""
        return [
            self.evidence,
            self.evidence_served,
            int(self.ignores_reports),
            self.forgotten,
            self.alarm_count,
            *self.alarms[max(0, len(self.alarms) - LATEST_ALARMS) :],
            *self._kept_waits(),
        ]

    def _kept_waits(self) -> list[int]:
        """Return what is known of the labels of each source, below 0; nothing: nothing is."""
        if not self.weighs:
            return [-1 - one for one in self.spare_waits]
        kept = [-1 - self.waits[k] for k in range(WAITS)]
        return kept if min(kept) < -1 else []

    def take_doubts(self, doubts: list[int]) -> None:
        """Restore the result of `doubts`; those below 0 are of pending labels."""
        waits = [-1 - one for one in doubts[5:] if one < 0]
        if self.weighs:
            for k in range(len(waits)):
                self.waits[k] = waits[k]
        else:
            self.spare_waits = waits
        doubts = doubts[:5] + [one for one in doubts[5:] if one >= 0]
        self.evidence, self.evidence_served, self.forgotten = doubts[0], doubts[1], doubts[3]
        self.ignores_reports = doubts[2] > 0
        # Version 0.1.0 knew only the last one.
        self.alarms = doubts[5:] if len(doubts) > 4 else [slot for slot in doubts[3:] if slot]
        self.alarm_count = doubts[4] if len(doubts) > 4 else len(self.alarms)

    def _note_alarm(self, slot: int) -> None:
        """Note that the label of a decision made at `slot` raised an alarm."""
        self.alarm_count += 1
        self.clock.alarms += 1
        self.alarms = [*self.alarms, max(self.clock.now, slot)]

    def take_over(self, old: Table, pending: Iterable[int]) -> None:
        """Continue from another table, whose rows keep their numbers.

        `pending` are the decisions whose labels have not arrived.
        """
        for row in range(len(old)):
            self.load_stored(old.cell(row), old.stored(row), old.known(row))
        for decision in pending:
            self.expect(decision)
        self.take_doubts(old.doubts())
        self.alarms = old.alarms

    def forget_labels(self, slot: int) -> None:
        """Reset all labels of own functions; labels of decisions up to `slot` are ignored."""
        self._forget_all(self.functions)
        self.evidence_served = 0
        self.forgotten = max(self.forgotten, slot)

    def raise_alarm(self, slot: int) -> None:
        """Do what an alarm of answers to peers does, for labels that this table does not have."""
        if self.alarm > 0:
            self.forget_labels(slot)
            self._note_alarm(slot)

    def _forget_all(self, end: int) -> int:
        """Reset the counters of the arms before `end`, in every cell."""
        for row in range(self.used):
            base = row * self.stride
            for arm in range(end):
                self.rows[base + self.labels + arm] = 0
                self.rows[base + self.right + arm] = 0
            self.marks[2 * base + BEST] = self.marks[2 * base + BEST_OWN] = -1
        return 0

    # -- labels --------------------------------------------------------------------------------

    def _begin(self, row: int, choice: int) -> int:
        self._count_own(row, 1)
        self._expect(row, choice >> 2, choice & 3, 1)
        return row << 20 | choice

    def _learn_own(self, row: int, arm: int, phase: int, gain: int, slot: int, paid: int) -> None:
        """Record the label of an own decision; `path` holds the known cells around its context."""
        is_own = arm < self.functions
        if self.weighs:
            self._note_arrival(phase, slot)
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
        level = self.marks[2 * row * self.stride + LEVEL] + 1
        for k in range(self.found):
            base = self.path[k] * self.stride
            if self.marks[2 * base + LEVEL] == level and self._since(base) <= slot:
                self._record(base, arm, gain)
                self._spend(base, arm, paid)

    def _record_around(self, row: int, arm: int, gain: int, slot: int) -> None:
        """Record a peer's label in its cell and, if all levels are used at once, in its parents."""
        while row >= 0:
            base = row * self.stride
            if self._since(base) <= slot:
                self._record(base, arm, gain)
                self._has_changed(row, arm)
            row = self.marks[2 * base + PARENT]

    def _learn_served(self, row: int, function: int, gain: int, slot: int) -> None:
        base = row * self.stride
        if self.weighs:
            self._note_arrival(SERVE, slot)
        if self.alarm > 0:
            if self.once and self.rows[base + self.last + function] == slot:
                return
            if not self._is_credible(row, function, gain, slot, True):
                return
        self.rows[base + ARRIVALS] += self.counted != ARRIVED
        while row >= 0:
            self._take(row * self.stride, function, gain, slot)
            row = self.marks[2 * row * self.stride + PARENT]
