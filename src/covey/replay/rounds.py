"""Replays with rare options: slot by slot, on the tables of the learners, as sites play.

These are several candidate contexts, free functions, learners without labels, busy peers and those
that are shown the cell only, batches whose rows share a slot, and functions without an answer.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from covey.bandit.harm import KEPT
from covey.bandit.learner import Learner, offset_of
from covey.config import LearnerSpec, NetworkConfig
from covey.data.logs import DecisionColumns, EncodedLog, slot_starts
from covey.kernel import (
    SERVE,
    UNPAID,
    Clock,
    Table,
    arm_of,
    code_of,
    phase_of,
    row_of,
    undecided_row,
)
from covey.kernel.rules import Cell, Report
from covey.types import PHASES, Context

LIE: Report = (0, 0.0, 1.0, ())
NEVER = -1  # a delay: the label never arrives


@dataclass(slots=True)
class _Decided:
    """A decision of a learner on a row of the log, until its label comes."""

    place: int  # of the learner
    site: LearnerSpec
    learner: Learner
    t: int  # the row
    slot: int
    context: Context
    code: int
    helper: int = -1  # the learner that was asked; -1: none
    there: Table | None = None  # its table
    cell: Cell | None = None  # what it was shown
    met: int = 0  # its row
    function: int = -1  # of the helper, or own; -1: the answer is from stored labels
    recalled: int = -1  # that answer
    stand_in: int = -1  # own function that answers if the helper fails or is late
    gain: int = 0
    paid: int = UNPAID
    label: int = -1
    answer: int | None = None  # where labels or answers are stored
    free: list[tuple[int, int]] = field(default_factory=list)  # functions, and what they gain
    free_there: list[tuple[int, int]] = field(default_factory=list)  # those of the helper

    @property
    def owner(self) -> int:
        """The learner whose function answered."""
        return self.place if self.helper < 0 else self.helper

    @property
    def served(self) -> int:
        """The decision of the helper."""
        return int(code_of(self.met, max(0, self.function), SERVE))

    @property
    def is_helped(self) -> bool:
        """Whether a function of the helper answered."""
        return self.helper >= 0 and self.function >= 0


class Rounds:
    """A network under replay, one row after the other.

    In a slot every receiving learner decides on the state at the start of the slot; then arrivals
    are counted and due labels are settled.
    """

    def __init__(
        self,
        setup: NetworkConfig,
        learners: Sequence[Learner],
        clocks: Sequence[Clock],
        width: int,
        costs: Sequence[str],
    ) -> None:
        """Begin; contexts have `width` coordinates, and `costs` names the rows of a log's costs."""
        spaces = setup.plan.of_width(width)
        self._width = width
        self._sites, self._learners, self._clocks = setup.sites, learners, clocks
        self._coordinates = [
            tuple(dict.fromkeys(k for space in site.spaces for k in spaces[space]))
            for site in setup.sites
        ]
        self._cost_rows = {column: row for row, column in enumerate(costs)}
        # By the paper's reading the first learner alone never sees a hidden label.
        self._hidden_from = 1 if setup.settings.rules.is_paper else len(setup.sites)
        self._wait = setup.settings.slots_waited
        self._are_slots_shared = setup.shares_slots
        functions = (len(site.functions) for site in setup.sites)
        self._offsets = [*itertools.accumulate(functions, initial=0)]
        self._streams = 1 + max(site.stream for site in setup.sites)
        self._due: dict[int, list[tuple[_Decided, bool]]] = defaultdict(list)
        self._known: dict[Cell, int] = {}  # a cell -> its number in the trace

    def cells_since(self, count: int) -> list[tuple[int, Cell]]:
        """Return the cells that the trace numbers from `count` on, with their spaces."""
        spaces = [*self._learners[0].policies]
        return [(spaces.index(cell.space), cell) for cell in list(self._known)[count:]]

    def run(self, log: EncodedLog, first_slot: int, trace: DecisionColumns) -> None:
        """Replay the rows of `log` from `first_slot`, and write the trace."""
        self._log, self._trace, self._written = log, trace, 0
        self._contexts = np.asarray(log.contexts).reshape(
            len(log.labels), self._streams, self._width
        )
        self._has_gaps = bool((np.asarray(log.predictions) < 0).any())
        starts = slot_starts(log, are_shared=self._are_slots_shared)
        for slot, (first, end) in enumerate(itertools.pairwise(starts), first_slot):
            for clock in self._clocks:
                clock.advance(slot)
            rows = [(t, place) for t in range(first, end) for place in self._receivers(t)]
            for decided in [self._decide(t, place, slot) for t, place in rows]:
                self._end(decided)
            for decided, is_hidden in self._due.pop(slot, ()):
                if is_hidden:
                    self._forget(decided)
                else:
                    self._settle(decided)

    def _receivers(self, t: int) -> Iterator[int]:
        """Yield the learners that receive an instance."""
        places = range(len(self._sites)) if self._log.at is None else [int(self._log.at[t])]
        return (place for place in places if self._sites[place].receives)

    # -- decisions ------------------------------------------------------------------------------

    def _decide(self, t: int, place: int, slot: int) -> _Decided:
        """Let a learner decide, and the one that it asks choose a function."""
        site, learner = self._sites[place], self._learners[place]
        coordinates = self._contexts[t, site.stream].tolist()
        context = tuple([coordinates[k] for k in self._coordinates[place]])
        table = learner.table
        row = table.locate(context, slot)
        decided = _Decided(place, site, learner, t, slot, context, -1 - row)
        closed = self._closed(decided) if self._has_gaps else None
        if learner.is_supervised:
            decided.code = table.choose(row, slot, False, closed)
            while decided.code < 0:
                row = undecided_row(decided.code)
                self._ask(decided, row, closed)
                decided.code = table.choose(row, slot, True, closed)
        else:
            decided.code = table.weigh(row, context, self._estimates(decided, row), closed)
        arm = arm_of(decided.code)
        if arm < len(site.functions):
            decided.function = arm
        else:
            self._call(decided, arm)
        if decided.stand_in >= 0:
            decided.stand_in = self._able(decided, place, decided.stand_in, row)
        return decided

    def _closed(self, decided: _Decided) -> bytes | None:
        """Return the arms of a learner that have no answer to a row; None if no arm has one."""
        site = decided.site
        closed = bytearray(len(site.behind))
        for arm, helper in enumerate(site.behind[: len(site.functions) + len(site.peers)]):
            owner = decided.place if helper < 0 else helper
            functions = [arm] if helper < 0 else range(len(self._sites[helper].functions))
            closed[arm] = not any(self._answers(decided, owner, k) for k in functions)
        return None if all(closed) else bytes(closed)

    def _able(self, decided: _Decided, owner: int, function: int, row: int) -> int:
        """Return a function, or the most accurate of its learner that has an answer to a row."""
        if not self._has_gaps or self._answers(decided, owner, function):
            return function
        accuracies = self._table(decided, owner).accuracies(row, decided.context)
        functions = range(len(self._sites[owner].functions))
        able = [k for k in functions if self._answers(decided, owner, k)]
        return max(able, key=lambda k: accuracies[k], default=function)

    def _table(self, decided: _Decided, helper: int) -> Table:
        """Return the table of a helper for the instances of a learner."""
        return self._learners[helper].tables[decided.learner.space]

    def _ask(self, decided: _Decided, row: int, closed: bytes | None) -> None:
        """Let peers report what a decision needs."""
        asker, slot = decided.learner, decided.slot
        for peer in asker.peers_to_query(row, slot, closed):
            helper = decided.site.behind[len(decided.site.functions) + peer]
            cell = asker.place(asker.space, row, decided.context)
            report = self._learners[helper].report(cell, slot, asker.name)
            is_lie = self._sites[helper].reports_falsely
            asker.receive_report(row, peer, LIE if is_lie else report, slot)

    def _estimates(self, decided: _Decided, row: int) -> list[tuple[float, int]]:
        """Return the accuracy of each peer by its labels, and how many these are."""
        site, learner, slot = decided.site, decided.learner, decided.slot
        cell = learner.place(learner.space, row, decided.context)
        by_data = [self._learners[k].estimate(cell, slot, is_by_context=False) for k in site.peers]
        return by_data + [
            self._learners[k].estimate(cell, slot, is_by_context=True) for k in site.context_peers
        ]

    def _call(self, decided: _Decided, arm: int) -> None:
        """Ask the learner of the chosen arm, with the data or with the cell only."""
        site, learner, row = decided.site, decided.learner, row_of(decided.code)
        decided.helper = helper = site.behind[arm]
        decided.there = there = self._table(decided, helper)
        decided.cell = learner.place(learner.space, row, decided.context)
        decided.met = self._learners[helper].open(decided.cell, decided.slot)
        if arm < len(site.functions) + len(site.peers):
            function = there.answer(decided.met, decided.slot, offset_of(site.name))
            decided.function = self._able(decided, helper, function, decided.met)
            is_alone = site.answer_wait is not None and site.answer_wait < self._busy_for(decided)
        else:
            memory = there.cells.memory
            label, count, _ = memory.recall(decided.met)
            decided.recalled = label if count else memory.unseen
            is_alone = decided.recalled < 0
        if is_alone:
            decided.stand_in = learner.table.best_own(row, decided.context)

    def _busy_for(self, decided: _Decided) -> int:
        """Return for how many slots the helper of a decision is busy."""
        if self._log.busy is None or not decided.is_helped:
            return 0
        return int(self._log.busy[decided.t, decided.helper])

    # -- the end of a slot ----------------------------------------------------------------------

    def _end(self, decided: _Decided) -> None:
        """Count and trace a decision, and settle it or keep it for its label."""
        site, t = decided.site, decided.t
        decided.label = int(self._log.labels[t])
        answer = decided.recalled
        if decided.function >= 0:
            answer = self._prediction(decided, decided.owner, decided.function)
            decided.gain = self._gain(decided, decided.owner, decided.function)
        else:
            decided.gain = int(answer == decided.label)
        decided.answer = answer if answer >= 0 else None
        column = site.cost_columns[arm_of(decided.code)] if site.cost_columns else None
        if self._log.costs is not None and column is not None:
            decided.paid = int(self._log.costs[self._cost_rows[column], t])
        self._write(decided)
        decided.learner.table.count(decided.code, decided.context)
        decided.free = self._free_gains(decided, decided.place, arm_of(decided.code))
        if decided.is_helped and decided.there is not None:
            decided.there.serve(decided.met, decided.slot, decided.function)
            decided.free_there = self._free_gains(decided, decided.helper, decided.function)
        delay, wait = self._delay(decided), self._wait_for(t)
        if delay == 0 and self._log.batches is None:  # labels of a batch come together, in order
            self._settle(decided)
        elif delay != NEVER:
            self._due[decided.slot + delay].append((decided, False))
        elif wait is not None:
            self._due[decided.slot + wait].append((decided, True))

    def _prediction(self, decided: _Decided, owner: int, function: int) -> int:
        """Return what a function says to an instance of a learner; below 0: nothing."""
        return int(self._log.predictions[self._line(decided, owner, function), decided.t])

    def _answers(self, decided: _Decided, owner: int, function: int) -> bool:
        return self._prediction(decided, owner, function) >= 0

    def _line(self, decided: _Decided, owner: int, function: int) -> int:
        """Return the row of predictions of a function, for the instances of a learner."""
        return decided.site.stream * self._offsets[-1] + self._offsets[owner] + function

    def _gain(self, decided: _Decided, owner: int, function: int) -> int:
        if self._log.gains is not None:
            return int(self._log.gains[self._line(decided, owner, function), decided.t])
        return int(self._prediction(decided, owner, function) == self._log.labels[decided.t])

    def _free_gains(self, decided: _Decided, owner: int, chosen: int) -> list[tuple[int, int]]:
        """Return the free functions of a learner but the chosen one, and what each gains."""
        return [
            (function, self._gain(decided, owner, function))
            for function in self._sites[owner].free
            if function != chosen and self._answers(decided, owner, function)
        ]

    def _write(self, decided: _Decided) -> None:
        """Write a decision to the trace."""
        trace, at, place = self._trace, self._written, decided.place
        total, is_called = self._offsets[-1], decided.helper >= 0
        gain, function = decided.gain, total + place
        if decided.function >= 0:
            function = self._offsets[decided.owner] + decided.function
        trace.arm[at] = function
        if is_called:
            site = decided.site
            is_by_cell = arm_of(decided.code) >= len(site.functions) + len(site.peers)
            trace.arm[at] = total + decided.helper + is_by_cell * len(self._sites)
            if decided.function < 0:
                trace.recalled[place, decided.t] = decided.recalled
        if decided.stand_in >= 0:
            function = self._offsets[place] + decided.stand_in
            gain = self._gain(decided, place, decided.stand_in)
        trace.cell[at] = self._number(decided)
        is_kept = phase_of(decided.code) == KEPT and not is_called
        trace.phase[at] = len(PHASES) if is_kept else phase_of(decided.code)
        trace.function[at] = function
        trace.correct[at] = gain if decided.label >= 0 else -1
        if self._log.costs is not None:
            trace.paid[at] = max(0, decided.paid)
        self._written += 1

    def _number(self, decided: _Decided) -> int:
        """Return the number of the cell that decided, in the trace."""
        learner = decided.learner
        cell = learner.known_cell(learner.space, row_of(decided.code))
        if learner.space in learner.candidates:
            cell = learner.candidates[learner.space].parts(cell)[cell.level]
        return self._known.setdefault(cell, len(self._known))

    # -- labels ---------------------------------------------------------------------------------

    def _delay(self, decided: _Decided) -> int:
        """Return when a learner sees the label of a decision.

        In a log, hidden labels have the delay `-1 - delay`; they stay hidden.
        """
        t, place = decided.t, decided.place
        is_shown = self._log.shown is None or self._log.shown[t, place]
        is_answered = decided.function < 0 or decided.answer is not None
        if decided.label < 0 or not is_shown or not is_answered:
            return NEVER
        delay = 0 if self._log.delays is None else int(self._log.delays[t])
        if busy := self._busy_for(decided):
            delay = max(delay, busy) if delay >= 0 else min(delay, -1 - busy)
        if delay < 0:
            if place < self._hidden_from:
                return NEVER
            delay = -1 - delay
        wait = self._wait_for(t)
        return delay if wait is None or delay <= wait else NEVER

    def _wait_for(self, t: int) -> int | None:
        """Return after how many slots the label of a row expires; None: after none."""
        return self._wait if self._log.waits is None else int(self._log.waits[t])

    def _forget(self, decided: _Decided) -> None:
        """Count the label of a decision as pending no longer."""
        decided.learner.table.forget(decided.code)
        if decided.there is not None and decided.is_helped:
            decided.there.forget(decided.served)

    def _settle(self, decided: _Decided) -> None:
        """Record the label of a decision."""
        learner, there, slot = decided.learner, decided.there, decided.slot
        table, context = learner.table, decided.context
        shown = () if decided.cell is None else learner.middle(decided.cell)
        if there is not None and decided.is_helped:
            there.settle(decided.served, self._told(decided, decided.gain), shown, slot)
        table.settle(decided.code, decided.gain, context, slot, decided.paid)
        if learner.remembers:
            table.remember(decided.code, decided.label, context, slot, decided.answer)
        for function, gain in decided.free:
            table.score(decided.code, function, gain, context, slot)
        if there is not None:
            if self._learners[decided.helper].remembers:
                there.remember(decided.served, decided.label, shown, slot, decided.answer)
            for function, gain in decided.free_there:
                there.score(decided.served, function, self._told(decided, gain), shown, slot)
        if table.take_alarm():
            for helper in sorted({*decided.site.peers, *decided.site.context_peers}):
                self._table(decided, helper).hear_alarm(slot)

    def _told(self, decided: _Decided, gain: int) -> int:
        """Return what a helper is told of what an answer of its own gained."""
        return decided.learner.unit - gain if decided.site.labels_falsely else gain
