"""Replays with rare options: slot by slot, on the tables of the learners, as sites play.

These are several candidate contexts, free functions, learners without labels, busy peers and those
that are shown the cell only, batches whose rows share a slot, and functions without an answer.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from covey.bandit.harm import KEPT
from covey.bandit.learner import Learner, offset_of
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
from covey.kernel.rules import Cell, Report, Seat
from covey.types import PHASES, Context

LIE: Report = (0, 0.0, 1.0, ())
NEVER = -1  # a delay: the label never arrives


class Player(NamedTuple):
    """A learner, as the others meet it."""

    seat: Seat
    learner: Learner
    columns: Sequence[int]  # of its coordinates, among those of all learners

    @property
    def functions(self) -> int:
        """How many functions it has; they are its first arms."""
        return self.learner.rule.functions

    @property
    def asked(self) -> int:
        """The first arm that is a peer which is shown the cell only."""
        return len(self.seat.behind) - self.learner.rule.context_peers


@dataclass(slots=True)
class _Decided:
    """A decision of a learner on a row of the log, until its label comes."""

    player: Player
    place: int  # of the learner
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
        players: Sequence[Player],
        clocks: Sequence[Clock],
        hidden_from: int,
        label_wait: int | None,
        *,
        are_slots_shared: bool,
    ) -> None:
        """Begin; the first `hidden_from` learners never see a hidden label."""
        self._players, self._clocks = players, clocks
        self._hidden_from, self._wait = hidden_from, label_wait
        self._are_slots_shared = are_slots_shared
        self._offsets = [*itertools.accumulate((player.functions for player in players), initial=0)]
        self._streams = 1 + max(player.seat.stream for player in players)
        self._due: dict[int, list[tuple[_Decided, bool]]] = defaultdict(list)
        self._known: dict[Cell, int] = {}  # a cell -> its number in the trace

    def cells_since(self, count: int) -> list[tuple[int, Cell]]:
        """Return the cells that the trace numbers from `count` on, with their spaces."""
        spaces = [*self._players[0].learner.policies]
        return [(spaces.index(cell.space), cell) for cell in list(self._known)[count:]]

    def run(self, log: EncodedLog, first_slot: int, trace: DecisionColumns) -> None:
        """Replay the rows of `log` from `first_slot`, and write the trace."""
        self._open(log, trace)
        starts = slot_starts(log, are_shared=self._are_slots_shared)
        for slot, (first, end) in enumerate(itertools.pairwise(starts), first_slot):
            for clock in self._clocks:
                clock.advance(slot)
            rows = [(t, place) for t in range(first, end) for place in self._receivers(t)]
            for decided in [self._decide(t, place, slot) for t, place in rows]:
                self._end(decided)
            for decided, is_hidden in self._due.pop(slot, ()):
                self._settle(decided, is_hidden)

    def _open(self, log: EncodedLog, trace: DecisionColumns) -> None:
        """Take the columns of a log and of its trace."""
        self._log, self._trace, self._written = log, trace, 0
        self._slots = len(log.labels)
        self._contexts = _flat(log.contexts)
        self._width = len(self._contexts) // (self._streams * max(1, self._slots))
        self._predictions, self._labels = _flat(log.predictions), _flat(log.labels)
        self._has_gaps = bool((np.asarray(log.predictions) < 0).any())
        self._gains, self._costs = _flat(log.gains), _flat(log.costs)
        self._shown, self._busy = _flat(log.shown), _flat(log.busy)

    def _receivers(self, t: int) -> Iterator[int]:
        """Yield the learners that receive an instance."""
        places = range(len(self._players)) if self._log.at is None else [int(self._log.at[t])]
        return (place for place in places if self._players[place].seat.receives)

    # -- decisions ------------------------------------------------------------------------------

    def _decide(self, t: int, place: int, slot: int) -> _Decided:
        """Let a learner decide, and the one that it asks choose a function."""
        player = self._players[place]
        at = (t * self._streams + player.seat.stream) * self._width
        context = tuple([self._contexts[at + column] for column in player.columns])
        table = player.learner.table
        row = table.locate(context, slot)
        closed = self._closed(player, place, t) if self._has_gaps else None
        if player.learner.is_supervised:
            code = table.choose(row, slot, False, closed)
            while code < 0:
                row = undecided_row(code)
                self._ask(player, row, context, slot, closed)
                code = table.choose(row, slot, True, closed)
        else:
            accuracies = self._estimates(player, row, context, slot)
            code = table.weigh(row, context, accuracies, closed)
        decided = _Decided(player, place, t, slot, context, code)
        arm = arm_of(code)
        if arm < player.functions:
            decided.function = arm
        else:
            self._call(decided, arm)
        if decided.stand_in >= 0:
            decided.stand_in = self._able(player, place, decided.stand_in, row, context, t)
        return decided

    def _answers(self, player: Player, owner: int, function: int, t: int) -> bool:
        """Return whether a function has an answer to a row."""
        line = self._first_line(player, owner) + function
        return bool(self._predictions[line * self._slots + t] >= 0)

    def _closed(self, player: Player, place: int, t: int) -> bytes | None:
        """Return the arms of a learner that have no answer to a row; None if no arm has one."""
        closed = bytearray(len(player.seat.behind))
        for arm, helper in enumerate(player.seat.behind[: player.asked]):
            owner = place if helper < 0 else helper
            functions = [arm] if helper < 0 else range(self._players[helper].functions)
            closed[arm] = not any(self._answers(player, owner, k, t) for k in functions)
        return None if all(closed) else bytes(closed)

    def _able(
        self, player: Player, owner: int, function: int, row: int, context: Context, t: int
    ) -> int:
        """Return a function, or the most accurate of its learner that has an answer to a row."""
        if not self._has_gaps or self._answers(player, owner, function, t):
            return function
        accuracies = self._table(player, owner).accuracies(row, context)
        functions = range(self._players[owner].functions)
        able = [k for k in functions if self._answers(player, owner, k, t)]
        return max(able, key=lambda k: accuracies[k], default=function)

    def _table(self, player: Player, helper: int) -> Table:
        """Return the table of a helper for the instances of a player."""
        return self._players[helper].learner.tables[player.learner.space]

    def _ask(
        self, player: Player, row: int, context: Context, slot: int, closed: bytes | None
    ) -> None:
        """Let peers report what a decision needs."""
        asker = player.learner
        for peer in asker.peers_to_query(row, slot, closed):
            helper = self._players[player.seat.behind[player.functions + peer]]
            cell = asker.place(asker.space, row, context)
            report = helper.learner.report(cell, slot, asker.name)
            asker.receive_report(row, peer, LIE if helper.seat.lies else report, slot)

    def _estimates(
        self, player: Player, row: int, context: Context, slot: int
    ) -> list[tuple[float, int]]:
        """Return the accuracy of each peer by its labels, and how many these are."""
        cell = player.learner.place(player.learner.space, row, context)
        helpers = enumerate(player.seat.behind[player.functions :], player.functions)
        return [
            self._players[helper].learner.estimate(cell, slot, is_by_context=arm >= player.asked)
            for arm, helper in helpers
        ]

    def _call(self, decided: _Decided, arm: int) -> None:
        """Ask the learner of the chosen arm, with the data or with the cell only."""
        player, slot, row = decided.player, decided.slot, row_of(decided.code)
        decided.helper = helper = player.seat.behind[arm]
        decided.there = there = self._table(player, helper)
        decided.cell = player.learner.place(player.learner.space, row, decided.context)
        decided.met = self._players[helper].learner.open(decided.cell, slot)
        if arm < player.asked:
            function = there.answer(decided.met, slot, offset_of(player.learner.name))
            decided.function = self._able(
                player, helper, function, decided.met, decided.context, decided.t
            )
            is_alone = 0 <= player.seat.patience < self._busy_for(decided)
        else:
            memory = there.cells.memory
            label, count, _ = memory.recall(decided.met)
            decided.recalled = label if count else memory.unseen
            is_alone = decided.recalled < 0
        if is_alone:
            decided.stand_in = player.learner.table.best_own(row, decided.context)

    def _busy_for(self, decided: _Decided) -> int:
        """Return for how many slots the helper of a decision is busy."""
        if not self._busy or not decided.is_helped:
            return 0
        return int(self._busy[decided.t * len(self._players) + decided.helper])

    # -- the end of a slot ----------------------------------------------------------------------

    def _end(self, decided: _Decided) -> None:
        """Count and trace a decision, and settle it or keep it for its label."""
        player, t, label = decided.player, decided.t, self._labels[decided.t]
        line = self._line(decided)
        right = int(decided.recalled == label) if line < 0 else self._gain(line, t)
        column = player.seat.cost_columns[arm_of(decided.code)]
        if self._costs and column >= 0:
            decided.paid = self._costs[column * self._slots + t]
        decided.gain = right
        self._write(decided)
        player.learner.table.count(decided.code, decided.context)
        if decided.is_helped and decided.there is not None:
            decided.there.serve(decided.met, decided.slot, decided.function)
        self._score(decided)
        delay = self._delay(decided)
        if delay == 0 and self._log.batches is None:  # labels of a batch come together, in order
            self._settle(decided, is_hidden=False)
        elif delay != NEVER or self._wait_for(t) is not None:
            is_hidden = delay == NEVER
            due = decided.slot + (self._wait_for(t) or 0 if is_hidden else delay)
            self._due[due].append((decided, is_hidden))

    def _line(self, decided: _Decided) -> int:
        """Return the row of predictions with the answer; -1: it is from stored labels."""
        if decided.function < 0:
            return -1
        owner = decided.helper if decided.helper >= 0 else decided.place
        return self._first_line(decided.player, owner) + decided.function

    def _first_line(self, player: Player, owner: int) -> int:
        """Return where the predictions of a learner begin, for the instances of a player."""
        return player.seat.stream * self._offsets[-1] + self._offsets[owner]

    def _gain(self, line: int, t: int) -> int:
        at = line * self._slots + t
        return int(self._gains[at] if self._gains else self._predictions[at] == self._labels[t])

    def _write(self, decided: _Decided) -> None:
        """Write a decision to the trace."""
        trace, at, place = self._trace, self._written, decided.place
        total, players = self._offsets[-1], len(self._players)
        is_called, arm = decided.helper >= 0, arm_of(decided.code)
        function, gain = total + place, decided.gain
        if decided.function >= 0:
            function = self._offsets[decided.helper if is_called else place] + decided.function
        shown = function
        if decided.stand_in >= 0:
            shown = self._offsets[place] + decided.stand_in
            line = self._first_line(decided.player, place) + decided.stand_in
            gain = self._gain(line, decided.t)
        trace.cell[at] = self._number(decided)
        is_kept = phase_of(decided.code) == KEPT and not is_called
        trace.phase[at] = len(PHASES) if is_kept else phase_of(decided.code)
        trace.arm[at] = function
        if is_called:
            by_cell = players if arm >= decided.player.asked else 0
            trace.arm[at] = total + decided.helper + by_cell
        trace.function[at] = shown
        trace.correct[at] = gain if self._labels[decided.t] >= 0 else -1
        if self._costs:
            trace.paid[at] = max(0, decided.paid)
        if is_called and decided.function < 0:
            trace.recalled[place, decided.t] = decided.recalled
        self._written += 1

    def _number(self, decided: _Decided) -> int:
        """Return the number of the cell that decided, in the trace."""
        learner = decided.player.learner
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
        is_shown = not self._shown or self._shown[t * len(self._players) + place]
        if self._labels[t] < 0 or not is_shown:
            return NEVER
        line = self._line(decided)
        if line >= 0 and self._predictions[line * self._slots + t] < 0:  # nobody has an answer
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

    def _settle(self, decided: _Decided, is_hidden: bool) -> None:
        """Record the label of a decision, or count it as pending no longer."""
        player, there = decided.player, decided.there
        table, asked = player.learner.table, there if decided.is_helped else None
        if is_hidden:
            table.forget(decided.code)
            if asked is not None:
                asked.forget(decided.served)
            return
        shown = () if decided.cell is None else player.learner.middle(decided.cell)
        reported = player.learner.unit - decided.gain if player.seat.misleads else decided.gain
        if asked is not None:
            asked.settle(decided.served, reported, shown, decided.slot)
        table.settle(decided.code, decided.gain, decided.context, decided.slot, decided.paid)
        self._settle_more(decided, shown)
        if table.take_alarm():
            for helper in sorted({who for who in player.seat.behind if who >= 0}):
                self._table(player, helper).hear_alarm(decided.slot)

    def _settle_more(self, decided: _Decided, shown: Context) -> None:
        """Store a label for queries that show only the cell, and score free functions."""
        player, there = decided.player, decided.there
        table = player.learner.table
        label, answer, slot = decided.label, decided.answer, decided.slot
        if player.learner.remembers:
            table.remember(decided.code, label, decided.context, slot, answer)
        for function, gain in decided.free:
            table.score(decided.code, function, gain, decided.context, slot)
        if there is None:
            return
        if self._players[decided.helper].learner.remembers:
            there.remember(decided.served, label, shown, slot, answer)
        for function, gain in decided.free_there:
            reported = player.learner.unit - gain if player.seat.misleads else gain
            there.score(decided.served, function, reported, shown, slot)

    def _score(self, decided: _Decided) -> None:
        """Note the label and what the answer and free functions are worth by it, for later."""
        line, t = self._line(decided), decided.t
        answer = decided.recalled if line < 0 else self._predictions[line * self._slots + t]
        decided.label, decided.answer = self._labels[t], answer if answer >= 0 else None
        chosen = arm_of(decided.code)
        decided.free = self._free_gains(decided, decided.place, chosen)
        if decided.is_helped:
            decided.free_there = self._free_gains(decided, decided.helper, decided.function)

    def _free_gains(self, decided: _Decided, owner: int, chosen: int) -> list[tuple[int, int]]:
        """Return the free functions of a learner but the chosen one, and what each gains."""
        first = self._first_line(decided.player, owner)
        free = self._players[owner].seat.free
        return [
            (f, self._gain(first + f, decided.t))
            for f in free
            if f != chosen and self._answers(decided.player, owner, f, decided.t)
        ]


def _flat(column: memoryview | None) -> Any:
    """Return a column as one sequence; nothing if there is none."""
    return () if column is None else column.cast("B").cast(cast("Any", column.format))
