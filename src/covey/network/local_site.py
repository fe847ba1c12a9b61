"""One site of a network in one process: predict now, learn when the label comes.

Requests of one row go without a draft. The rules are those of `Handler`, which takes over where a
row has a view of its own, a function is trained or free, or a peer answers late or is shown the
cell only; its effects do at once what it awaits. `tests/test_flow.py` holds both to the same
decisions.
"""

import asyncio
import threading
from collections import deque
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from covey.bandit.learner import (
    NO_ANSWER,
    RIGHT,
    UNKNOWN,
    WRONG,
    Choice,
    Learner,
    Settlement,
)
from covey.bandit.partitions import EpochCells
from covey.config import LearnerSpec
from covey.data.contexts import TIME, UNUSABLE, Contexts
from covey.data.inputs import (
    PLAIN,
    as_label,
    context_of,
    contexts_of,
    costs_of,
    points_of,
    record_of,
    rows_of,
    truths_of,
)
from covey.data.logs import Frame, arrow_module
from covey.data.times import duration_of, moment_of
from covey.errors import DataError, FunctionError, NoAnswerYet, PeerError, UnknownTicket
from covey.functions.function import Function, Late, Later
from covey.kernel import (
    ASKED,
    CHOICE,
    NOT_DECIDED,
    UNPAID,
    Table,
    Tickets,
    doubts_of,
    row_of,
    take_doubts,
    undecided_row,
)
from covey.kernel.rules import Cell, Report
from covey.node.functions import Trainer
from covey.replay.outcome import Dealings
from covey.site.handler import Handler
from covey.site.requests import (
    NO_INSTANCE,
    NONE,
    RECALL,
    Arm,
    AskRow,
    Assistance,
    Draft,
    PeerAnswer,
    Prediction,
    QueryKind,
    Request,
    prediction_of,
)
from covey.site.state import Learning, RowGroups, SiteState, codes_of
from covey.site.trust import Record, SourceStatistics
from covey.store.fingerprint import schema_fingerprint
from covey.types import Context, Cost, Label

Undo = list[tuple[int, int, int]]
SETTLED = (WRONG, RIGHT)
MOST_CELLS = 100_000  # that are cached


class OpenTickets:
    """The open rows of a site in one process, by ticket.

    Most rows are held by themselves, in the columns of `ring`; a request is made of such a row
    only where it is needed. The number of a request is the ticket of its first row.
    """

    def __init__(self, learning: Learning, groups: RowGroups) -> None:
        self._learning, self._groups = learning, groups
        self._learner = learner = learning.learner
        self.ring = Tickets(
            learner.label_wait,
            unknown=UNKNOWN,
            close=self._close,
            gain_of=learner.gain_of if learner.unit > 1 else None,
            remembers=learner.remembers,
        )
        self.ring.count_in(learner.table, learner.knows_ends)

    @property
    def pending_rows(self) -> int:
        """How many rows have no label yet."""
        return self.ring.pending

    @pending_rows.setter
    def pending_rows(self, rows: int) -> None:
        self.ring.pending = rows

    def expire(self, slot: int) -> None:
        if slot > self.ring.due:
            self.ring.expire(slot)

    def _close(self, request: Request) -> None:
        self.ring.pending -= self._learning.close(request)

    def add(self, request: Request) -> None:
        rows = len(request)
        last = request.slot if rows == 1 else request.last_slot
        self._learner.advance(last)
        request.number = self.ring.next
        self.ring.hold_request(request, rows, last, self._learner.slot)

    def name(self, request: Request, row: int) -> str:
        return f"ticket {request.number + row} of learner {self._learner.name!r}"

    def find(self, ticket: Any) -> tuple[Request, int]:
        """Return the request and the row of a ticket; raise `UnknownTicket`."""
        request: Request | None = self.ring.request(ticket)
        if request is not None:
            return request, ticket - request.number
        number = _number(ticket)
        if not self.knows(number):
            learner = self._learner
            was_issued = 0 < number < self.ring.next
            why = (
                f"label-wait is {learner.label_wait} slots" if was_issued else "it was never issued"
            )
            if isinstance(ticket, Prediction):
                why = "that is an answer, and its attribute `ticket` is the number"
            raise UnknownTicket(f"learner {learner.name!r}: unknown ticket {ticket!r}; {why}")
        request = self.ring.request(number)
        if request is None:  # a row that was held by itself is held in a request from now on
            request = self._made(number)
            self.ring.replace(number, request)
        return request, number - request.number

    def knows(self, ticket: int) -> bool:
        """Return whether the label of a ticket can still be settled or compared."""
        return self.ring.first <= ticket < self.ring.next

    def all(self) -> Iterator[Request]:
        """Yield what accepts labels; a row that is held by itself is a request of one row."""
        ticket = self.ring.first
        while ticket < self.ring.next:
            request = self.ring.request(ticket) or self._made(ticket)
            ticket += len(request)
            yield request

    def _made(self, ticket: int) -> Request:
        """Return a request of a row that is held by itself."""
        code, slot, context, answer, truth, source, helped = self.ring.row(ticket)
        space, labels = self._learner.space, [answer]
        return Request(
            number=ticket,
            slot=slot,
            space=space,
            source=source,
            groups=(self._groups.of(source, space, code),),
            contexts=[context],
            predictions=labels,
            answers=labels,
            truths=[truth],
            peer_answers=NONE if helped is None else answer_of(helped),
        )

    def withdraw(self, ticket: int) -> None:
        """Take back the latest request, which has this ticket; nothing if it is gone already.

        Nothing either if others came since, while a function was awaited: its label never comes.
        """
        if not self.knows(ticket):
            return
        request, _ = self.find(ticket)
        if request.number + len(request) != self.ring.next:
            return
        self.ring.take_back(request.number)
        if request.groups[0].phase != RECALL:
            codes = request.codes_of(range(len(request)))
            self._learning.sources.retract(request.source, request.space, codes)

    def pending(self) -> list[tuple[Request, int]]:
        """Return the rows of requests whose label has not arrived."""
        return [(request, row) for request in self.ring.requests() for row in request.pending]

    def pending_codes(self) -> dict[str, list[int]]:
        """Return the decisions whose label has not arrived, by space."""
        codes = codes_of(self.pending())
        codes.setdefault(self._learner.space, []).extend(self.ring.pending_codes())
        return codes

    def count_pending(self) -> None:
        """Count pending labels from now on."""
        if not self._learner.is_pending:
            self._learner.count_pending(self.pending_codes())
            self.ring.count_in(self._learner.table, self._learner.knows_ends)


TicketState = SiteState[OpenTickets, None]


def ticket_state(learner: Learner) -> TicketState:
    """Return the state of a site in one process that begins."""
    arm_ids: dict[str, str] = {}
    sources = SourceStatistics(learner, {}, default="full")
    groups = RowGroups(learner, sources, arm_ids)
    learning = Learning(learner, sources, arm_ids, None)
    return SiteState(groups, learning, OpenTickets(learning, groups), None)


class RowHandler:
    """Answers and settles requests of one row that nobody has to wait for."""

    def __init__(
        self,
        state: TicketState,
        functions: Sequence[Function],
        others: "Mapping[str, LocalSite]",
        *,
        trainable: Collection[int],
        has_views: bool,
    ) -> None:
        self._state = state
        self._tickets = state.open.ring
        self._learner = state.learner
        self._others = others
        self._trainable = trainable
        has_free = bool(state.learner.free)
        self.takes_handler = has_free or any(
            function.is_async for function in functions
        )  # for peers
        self._needs_handler = has_views or has_free
        self._is_wide = state.learner.table.cells.is_wide
        self._cells: dict[int, Cell] = {}  # by decision
        self._peers = [peer for peer, _ in state.learner.behind()]
        self._functions: list[Callable[[Any], Label | Late]] = [
            function.ask for function in functions
        ]
        # By the part `CHOICE` of a code; None: not an own function, or `Handler` runs it.
        self._at_once = [
            None
            if self._needs_handler
            or choice.function < 0
            or choice.function in trainable
            or functions[choice.function].is_async
            else self._functions[choice.function]
            for choice in state.learner.choices
        ]

    def predict(self, instance: Any, context: Context, slot: int | None) -> Prediction | Draft:
        """Decide an own row, and answer it; or return the draft, which `Handler` completes."""
        learner = self._learner
        slot = self._state.take_slots(slot, 1)
        undo: Undo | None = None
        helped = None
        code = NOT_DECIDED
        try:
            code = learner.table.decide(context, slot)
            if code < 0 and learner.is_supervised:
                undo = []
                code = self._query_peers(code, context, slot, undo)
            if code < 0:
                return _draft(instance, context, slot, code)
            which = code & CHOICE
            call, choice = self._at_once[which], learner.choices[which]
            if call is not None:
                label, function = call(instance), choice.arm
                if type(label) is Late:
                    label = label.label()
            else:
                helped = self._ask_peer(code, choice, instance, context, slot)
                if helped is None or type(helped.label) is Late or not helped.is_given:
                    return _draft(instance, context, slot, code, undo, helped)
                label, function = helped.label, helped.function
        except BaseException:
            self._state.retract([context], slot, [code], 1)
            self._state.undo_reports(undo or ())
            self._state.return_slots(slot, 1)
            raise
        if slot > learner.slot:  # noqa: PLR1730 - max() costs twice as much
            learner.slot = slot
        ticket = self._tickets.hold(code, slot, learner.slot, context, label, "", helped)
        return Prediction(label, ticket, choice.phase, choice.arm, function, choice.price)

    def report(self, cell: Cell, slot: int, source: str) -> Report:
        """Return what a peer may know of a cell."""
        self._state.open.expire(slot)
        return self._learner.report(cell, slot, source)

    def _query_peers(self, code: int, context: Context, slot: int, undo: Undo) -> int:
        """Decide a row with the reports of peers; `code` is that of the row undecided."""
        table = self._learner.table
        while code < 0:
            row, cell = undecided_row(code), self._cell(code, context)
            for k in table.stale(row, slot):
                report = self._others[self._peers[k]].rows.report(cell, slot, self._learner.name)
                undo.append((row, k, table.hear(row, k, report, slot)))
            code = table.resume(row, context, slot)
        return code

    def _ask_peer(
        self, code: int, choice: Choice, instance: Any, context: Context, slot: int
    ) -> Assistance | None:
        if choice.function >= 0 or choice.is_by_context or self._needs_handler:
            return None
        peer = self._others[choice.peer].rows
        if peer.takes_handler:
            return None
        return peer.assist(instance, self._cell(code, context), slot, self._learner.name)

    def _cell(self, code: int, context: Context) -> Cell:
        """Return what a peer is told of a decision, or of a row that is undecided."""
        if self._is_wide:
            return self._learner.place(self._learner.space, 0, context)
        cell = self._cells.get(code)
        if cell is None:
            if len(self._cells) >= MOST_CELLS:
                self._cells.clear()
            learner, row = self._learner, row_of(code) if code >= 0 else undecided_row(code)
            cell = self._cells[code] = learner.known_cell(learner.space, row)
        return cell

    def assist(self, instance: Any, cell: Cell, slot: int, source: str) -> Assistance:
        """Answer a row of a peer by an own function."""
        learner, space = self._learner, cell.space
        self._state.open.expire(slot)
        code, context = learner.serve(cell, slot, source), learner.middle(cell)
        choice = learner.choices[code & CHOICE]
        try:
            label = self._functions[choice.function](instance)
        except NoAnswerYet:
            label = NO_ANSWER
        except BaseException:
            self._state.retract_served(source, space, [code])
            raise
        if type(label) is Late or choice.function in self._trainable or space != learner.space:
            is_trained = choice.function in self._trainable
            request = Request(
                slot=slot,
                space=space,
                source=source,
                contexts=[context],
                predictions=[label],
                answers=[label],
                training={0: (self._state.learning.id_of(choice.arm), instance)}
                if is_trained
                else NONE,
            )
            ticket = self._state.accept(request, [code]).number
        else:
            ticket = self._tickets.hold(code, slot, learner.slot, context, label, source)
        return Assistance(label, choice.arm, ticket)

    def learn(self, ticket: int, label: Label) -> Settlement | None:
        """Take the label of a row that a peer answered, there too; None: it takes more than that.

        It is a row for which `Tickets.settle` returned `ASKED`.
        """
        code, _, _, _, _, _, helped = self._tickets.row(ticket)
        if not self._others[self._learner.choice(code).peer].rows.is_told(helped.id, label):
            return None
        return SETTLED[self._tickets.settle(ticket, label, UNPAID, True)]

    def is_told(self, ticket: int, label: Label) -> bool:
        """Take the label of a row answered for a peer, if it is open; False: that takes more."""
        return self._tickets.settle(ticket, label) >= 0 or ticket < self._tickets.first


def _draft(
    instance: Any,
    context: Context,
    slot: int,
    code: int,
    undo: Undo | None = None,
    helped: Assistance | None = None,
) -> Draft:
    draft = Draft([instance], [context], slot, None)
    draft.undo = undo or []
    if code >= 0:
        draft.codes[0], draft.done = code, 1
    else:
        draft.row = undecided_row(code)
    if helped is not None:
        draft.predictions[0] = helped.label
        draft.helped = answer_of(helped)
    return draft


def answer_of(helped: Assistance) -> dict[int, PeerAnswer]:
    """Return what a request of one row keeps of the answer of a peer."""
    return {0: PeerAnswer(helped.function, helped.id)}


def _number(ticket: Any) -> int:
    """Return a ticket as a number; 0 for what is none."""
    try:
        number = int(ticket)
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if number == ticket else 0


LEARNT = ("site", "cell", "arrivals", "arm", "labels", "right", "estimate")


class ArmEstimate(msgspec.Struct, frozen=True):
    """How right the answers of an arm are believed to be, and the labels that this rests on.

    These are the labels in all cells for the policy `auto`, and else those in the finest cell that
    has some.
    """

    labels: int
    right: float  # in units of a right answer
    accuracy: float | None  # None without labels


class Peek(msgspec.Struct, frozen=True):
    """What a site would answer now."""

    label: Any  # None: no function has an answer yet
    phase: str
    arm: str
    function: str
    price: float
    cell: str
    estimates: dict[str, ArmEstimate]  # by arm


class ContextEffect(msgspec.Struct, frozen=True):
    """How right a function is believed to be at a quarter of an axis and at three quarters of it.

    The other contexts are in the middle of theirs.
    """

    context: str
    function: str
    low: float
    high: float


class LearntCells(Frame):
    """What sites have learnt: one line per cell and arm."""

    def __init__(self, learners: Sequence[Learner]) -> None:
        lines = [line for learner in learners for line in _lines(learner)]
        self._columns = {name: [line[k] for line in lines] for k, name in enumerate(LEARNT)}

    def __len__(self) -> int:
        return len(self._columns["site"])

    def __repr__(self) -> str:
        return f"<LearntCells of {', '.join(dict.fromkeys(self._columns['site']))}: {len(self)}>"

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns by name; `estimate` is None without labels."""
        return {name: list(values) for name, values in self._columns.items()}

    def to_arrow(self) -> Any:
        """Return the columns as a `pyarrow.Table`; raise `MissingExtra` without pyarrow."""
        return arrow_module("pyarrow", what="Arrow tables").table(self._columns)


def _lines(learner: Learner) -> list[tuple[Any, ...]]:
    lines = []
    for space in learner.own_spaces:
        table = learner.tables[space]
        for row in range(len(table)):
            cell, arrivals = learner.name_at(space, row), table.cells.arrivals(row)
            for arm, name in enumerate(learner.arms):
                labels, right = table.record(row, arm)
                gained = right / learner.unit
                share = gained / labels if labels else None
                lines.append((learner.name, cell, arrivals, name, labels, gained, share))
    return lines


# -- what would be decided ------------------------------------------------------------------------


def _copies(site: "LocalSite", space: str, point: Context) -> dict[str, Table]:
    """Return copies of the tables of a site, with the cells around a point of a space at least."""
    learner = site.learner
    if learner.candidates or learner.rule.inherits or learner.harm or _is_epoched(learner):
        codes = site.state.open.pending_codes()  # other cells count, too
        tables = learner.empty_tables()
        for name, table in tables.items():
            counted = codes.get(name, ()) if learner.is_pending else ()
            table.saved.take_over(learner.tables[name], counted)
        return tables
    tables = {name: learner.empty_table(name) for name in {space, learner.space}}
    known = learner.tables[space]
    for row in known.cells.around(point):
        tables[space].saved.copy_row(known, row)
    take_doubts(tables, doubts_of({space: known}))
    return tables


def _is_epoched(learner: Learner) -> bool:
    return any(isinstance(policy.partition, EpochCells) for policy in learner.policies.values())


def _middle(learner: Learner, cell: Cell) -> Context:
    """Return a point of a cell, in whose space cells are copied one by one; else nothing."""
    policy = learner.policies.get(cell.space)
    if policy is None or _is_epoched(learner):
        return ()
    if learner.tables[cell.space].cells.is_wide:
        return learner.middle(cell)
    side = policy.partition.levels(policy.dimension)[cell.level].side
    return tuple((k + 0.5) / side for k in cell.coordinates)


def _estimates(
    learner: Learner, table: Table, row: int, context: Context
) -> dict[str, ArmEstimate]:
    accuracies = table.accuracies(row, context)
    rows = [table.basis(row), *reversed(table.cells.around(context))]
    estimates = {}
    for arm, name in enumerate(learner.arms):
        records = [(level, *table.record(level, arm)) for level in rows]
        at, labels, right = next((record for record in records if record[1]), (row, 0, 0))
        gained, accuracy = right / learner.unit, None
        if labels:
            accuracy = accuracies[arm] if at == rows[0] else gained / labels
        estimates[name] = ArmEstimate(labels, gained, accuracy)
    return estimates


Given = TypeVar("Given")
Wait = Callable[[Later], object]
KEPT = Settlement(False, False, is_kept=True)


class _NotAwaited(BaseException):
    """Thrown into a function that suspends a call that nobody awaits."""


def run(coroutine: Coroutine[Any, Any, Given]) -> Given:
    """Run a coroutine of the handler, which only asynchronous functions suspend."""
    try:
        coroutine.send(None)
        coroutine.throw(_NotAwaited)
    except StopIteration as stop:
        return cast("Given", stop.value)
    coroutine.close()
    raise RuntimeError("the effects of a network suspended a request")


class Stepped(Awaitable[Given]):
    """A coroutine of the handler that has the lock of its network while it runs, not suspended."""

    def __init__(self, coroutine: Coroutine[Any, Any, Given], lock: Any) -> None:
        self._coroutine = coroutine
        self._lock = lock

    def __await__(self) -> Generator[Any, Any, Given]:
        step: Callable[[], Any] = partial(self._coroutine.send, None)
        while True:
            try:
                with self._lock:
                    awaited = step()
            except StopIteration as stop:
                return cast("Given", stop.value)
            try:
                step = partial(self._coroutine.send, (yield awaited))
            except BaseException as error:
                step = partial(self._coroutine.throw, error)


class LocalEffects:
    """Does at once what the handler of a site awaits: the `Effects` of a network."""

    def __init__(
        self,
        site: "LocalSite | PeekedSite",
        functions: Sequence[Function],
        others: "Mapping[str, LocalSite]",
        wait: Wait | None,
    ) -> None:
        self._site = site
        self._functions = functions
        self._others = others
        self._wait = wait
        trainer = Trainer(functions, _at_once, lambda: site.state.learning.places)
        self.trainable, self.train = trainer.trainable, trainer.train
        self.cell: Callable[[str, int, Context], Cell] = site.learner.place

    def _peer(self, name: str, cell: Cell, slot: int) -> "LocalSite | PeekedSite":
        """Return what answers for a peer in a cell."""
        return self._others[name]

    def unavailable(self) -> bytes | None:
        return None

    def new_id(self) -> str:
        return ""

    async def run(
        self, function: int, rows: Any, *, is_served: bool = False
    ) -> list[Label] | FunctionError:
        called = self._functions[function]
        try:
            if called.is_async:
                return await _awaited(called, rows)
            if len(rows) > 1:
                return called.answer_many(rows)
            label = called.ask(rows[0])
        except NoAnswerYet as error:
            return [NO_ANSWER] * len(rows) if is_served else error
        if type(label) is Late and not is_served:
            label = label.label()
        return [label]

    async def ask(
        self, peer: str, rows: Sequence[AskRow], *, may_be_late: bool = False
    ) -> list[Assistance]:
        cells, slots = [cast("Cell", row.cell) for row in rows], [row.slot for row in rows]
        other = self._peer(peer, cells[0], slots[0])
        instances = None
        if rows[0].instance is not NO_INSTANCE:
            instances = [row.instance for row in rows]
            if len(rows) > 1 and not self._site.learner.shares_slots:
                other.state.open.count_pending()
        request = await other.handler.assist(instances, cells, slots, source=self._site.name)
        return [
            Assistance(request.answers[row], request.function(row), request.number + row)
            for row in range(len(rows))
        ]

    async def query(self, peer: str, cell: Cell, slot: int, what: QueryKind = "arrivals") -> Report:
        return self._peer(peer, cell, slot).state.query(self._site.name, cell, slot, what)

    async def together(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
        results, waiting = [], iter(calls)
        try:
            for call in waiting:
                results.append(await call)
        except BaseException:
            for call in waiting:
                cast("Coroutine[Any, Any, Any]", call).close()
            raise
        return results

    async def has_come(self, late: Late) -> bool:
        if self._wait is not None:
            self._wait(late.handle)
        return late.is_there()

    def withdraw(self, peer: str, id: Any) -> None:
        self._others[peer].state.open.withdraw(id)

    def note_alone(self, rows: int, reason: PeerError) -> None:
        raise reason


async def _awaited(function: Function, rows: Sequence[Any]) -> list[Label]:
    """Return the labels of rows by a coroutine function, one after the other."""
    try:
        return [await _awaited_label(function, row) for row in rows]
    except _NotAwaited:
        raise FunctionError(
            f"{function} is asynchronous (async def); await apredict instead of predict"
        ) from None


async def _awaited_label(function: Function, row: Any) -> Label:
    try:
        answer = await function.predict(row)
    except (GeneratorExit, _NotAwaited):  # nobody awaits it
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise
        raise function.failed(error) from error
    return function.label(answer)


def _is_cancelled() -> bool:
    """Return whether the current task is being cancelled, and not only what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _at_once(function: Function, call: Callable[..., Any], /, *arguments: Any) -> Any:
    return call(*arguments)


class PeekedSite:
    """Answers as a site would, on copies of its tables: nothing changes there or at its peers."""

    def __init__(
        self,
        site: "LocalSite",
        others: "Mapping[str, LocalSite]",
        space: str,
        point: Context,
        slot: int,
    ) -> None:
        """Copy the cells around a point of a space at least."""
        self.name = site.name
        self.learner = learner = site.learner.with_tables(_copies(site, space, point))
        if learner.prices is not None:
            for peer, cost in learner.prices.due(slot).items():
                learner.reprice(peer, cost)
        learner.prices, learner.free = None, ()  # no label comes
        self.state = ticket_state(learner)
        effects = PeekedEffects(self, site.functions, others, None)
        self.handler = Handler(self.state, site.views, effects)

    def peek(self, instance: Any, context: Context, slot: int) -> Peek:
        """Return what is answered to an instance at a slot."""
        learner = self.learner
        request = run(self.handler.answer([instance], [context], slot=slot))
        answer, group = prediction_of(request, 0, 0), request.group(0)
        estimates = _estimates(learner, learner.table, row_of(group.code), context)
        return Peek(
            answer.label,
            answer.phase,
            answer.arm,
            answer.function,
            answer.price,
            group.cell,
            estimates,
        )


class PeekedEffects(LocalEffects):
    """Lets peers answer on copies too, and takes an answer that has not come for none."""

    def _peer(self, name: str, cell: Cell, slot: int) -> PeekedSite:
        peer = self._others[name]
        return PeekedSite(peer, self._others, cell.space, _middle(peer.learner, cell), slot)

    async def run(
        self, function: int, rows: Any, *, is_served: bool = False
    ) -> list[Label] | FunctionError:
        called = self._functions[function]
        try:
            label = called.ask(rows[0])
            if type(label) is Late and not label.is_there():
                raise NoAnswerYet(f"{called} has not answered yet")
        except NoAnswerYet as error:
            return [NO_ANSWER] if is_served else error
        return [label.label() if type(label) is Late else label]

    def withdraw(self, peer: str, id: Any) -> None:
        """Do nothing: the peer has answered on a copy."""


class TicketTimes:
    """When tickets of a network were given, where `label-wait` is a duration: they expire by it."""

    def __init__(self, wait: int | str | None, sites: "Mapping[str, LocalSite]") -> None:
        self._wait = duration_of(wait) if isinstance(wait, str) else None
        self._sites = sites
        # Times, and by site the first ticket after them; the latest has none yet.
        self._given: deque[tuple[int, dict[str, int]]] = deque()

    def move(self, at: Any) -> None:
        """Go on to the time of an instance, and forget tickets whose wait is over."""
        if at is None and self._wait is None:
            return
        if at is None:
            raise DataError(
                "label-wait is a duration, so an instance needs its time; pass at = ..."
            )
        try:
            moment = moment_of(at)
        except UNUSABLE:
            raise DataError(f"at is {at!r}, which is not {TIME}") from None
        latest = self._given[-1][0] if self._given else moment
        if moment < latest:
            raise DataError(f"at is {at}, before the time of the latest instance; keep their order")
        if moment > latest:
            self._given[-1][1].update(self._next_tickets())
        if moment > latest or not self._given:
            self._given.append((moment, {}))
        while self._wait is not None and self._given[0][0] + self._wait < moment:
            for name, ticket in self._given.popleft()[1].items():
                self._sites[name].state.open.ring.expire_before(ticket)
        while self._wait is None and len(self._given) > 1:
            self._given.popleft()

    def _next_tickets(self) -> dict[str, int]:
        return {name: site.state.open.ring.next for name, site in self._sites.items()}

    def saved(self) -> list[tuple[int, dict[str, int]]]:
        """Return the times that tickets can still expire by."""
        return [*self._given]

    def restore(self, times: Iterable[tuple[int, dict[str, int]]]) -> None:
        """Continue with the times that were saved."""
        self._given = deque(times)


class LocalRequests:
    """Begins the requests of a site in one process, with the contexts that it makes of records."""

    def __init__(self, state: TicketState, handler: Handler, contexts: Contexts | None) -> None:
        """Without `contexts` they are given."""
        self._state = state
        self._handler = handler
        self._learner = state.learner
        self.contexts = contexts

    def context_names(self) -> list[str]:
        """Return the names of the axes of contexts."""
        if self.contexts is not None and self.contexts.names:
            return self.contexts.names
        return [f"context {k + 1}" for k in range(self._learner.dimension)]

    def point(self, record: Any, contexts: Contexts, slot: int) -> Context:
        self._check_records([record])
        latest = self._state.latest_label
        previous = None if latest is None else latest[1]
        return contexts.extract_one(record, slot=slot, previous_label=previous)

    def _check_records(self, records: Any) -> None:
        for record in records:
            if not isinstance(record, Mapping):
                raise DataError(
                    f"learner {self._learner.name!r} makes contexts from records ([data] context); "
                    "pass a mapping from columns to values, or pass the context"
                )

    def begin(
        self, instance: Any, context: Sequence[float] | None, slot: int | None
    ) -> Coroutine[Any, Any, Request]:
        if context is None and self.contexts is not None:
            return self._answer_records([record_of(instance)], self.contexts, slot)
        point = context_of(context)
        return self._handler.answer([instance], [point], slot=slot)

    def begin_rows(
        self, rows: Any, contexts: Any, slot: int | None
    ) -> Coroutine[Any, Any, Request]:
        if contexts is None and self.contexts is not None:
            return self._answer_records(rows, self.contexts, slot)
        points: Any = contexts_of(contexts, rows)
        wait = self._learner.label_wait
        if len(rows) > wait + 1 and not self._learner.shares_slots:
            raise DataError(
                f"the batch has {len(rows)} rows, but label-wait of learner "
                f"{self._learner.name!r} is {wait} slots; raise label-wait, or send fewer rows at "
                "once"
            )
        if len(rows) > 1:
            points = points_of(contexts, rows, dimension=self._learner.dimension)
        return self._handler.answer(rows, points, slot=slot)

    def _answer_records(
        self, records: Any, contexts: Contexts, slot: int | None
    ) -> Coroutine[Any, Any, Request]:
        """Answer records; their contexts are made for the slots that they get."""

        def points(first: int) -> Any:
            if len(records) == 1:
                return [self.point(records[0], contexts, first)]
            latest = self._state.latest_label
            previous = None if latest is None else latest[1]
            columns = {name: [record.get(name) for record in records] for name in contexts.columns}
            return contexts.extract_rows(
                columns,
                slot=first,
                count=len(records),
                previous_label=previous,
                is_one_slot=self._learner.shares_slots,
            )

        self._check_records(records)
        return self._handler.answer(records, points, slot=slot)


class TicketLabels:
    """Takes the labels of tickets, at the peers that were asked, too."""

    def __init__(
        self,
        state: TicketState,
        handler: Handler,
        rows: RowHandler,
        others: "Mapping[str, LocalSite]",
    ) -> None:
        self._state = state
        self._handler = handler
        self._learner = state.learner
        self._tickets = state.open.ring
        self._rows = rows
        self._others = others
        self._is_supervised = state.learner.is_supervised
        self._takes_text: bool | None = None  # None: no label has come

    def take(self, ticket: int, label: Label, cost: Cost) -> Settlement:
        """Settle a ticket: see `LocalSite.learn`."""
        kind = type(label)
        if kind is not str and kind is not int:
            label = _checked(label)
        if (kind is str) is not self._takes_text:
            request, row = self._state.open.find(ticket)
            self._state.check(request, {row: label})
            self._takes_text = kind is str
        if cost is None and self._is_supervised:
            result = self._tickets.settle(ticket, label)
            if result >= 0:
                self._tell_alarm()
                return SETTLED[result]
            done = self._rows.learn(ticket, label) if result == ASKED else None
            if done is not None:
                self._tell_alarm()
                return done
        else:
            self._check_learns(ticket, [cost])
        request, row = self._state.open.find(ticket)
        number = request.number + row
        (settled,) = self.take_rows(
            [number], {number: label}, {} if cost is None else {number: cost}
        )
        return settled

    def _tell_alarm(self) -> None:
        """Let the sites that it may ask know of an alarm that a label has raised."""
        slot = self._learner.take_alarm()
        if slot:
            for peer in {peer for peer, _ in self._learner.behind()}:
                self._others[peer].learner.hear_alarm(self._learner.space, slot)

    def take_rows(
        self, tickets: Sequence[int], truths: Mapping[int, Any], paid: Mapping[int, Cost]
    ) -> list[Settlement]:
        """Settle tickets, all or none: see `LocalSite.learn_batch`."""
        for ticket in truths if paid or not self._learner.is_supervised else ():
            self._check_learns(ticket, [paid.get(ticket)])
        done: dict[int, Settlement] = {}
        for state, request, rows in self._prepared(truths):
            if state is not self._state:
                state.settle(request, rows)
                continue
            costs = {row: paid.get(request.number + row) for row in rows} if paid else None
            settled = self._state.settle(request, rows, costs)
            self._tell_alarm()
            for row, is_new, is_right in zip(rows, settled.is_new, settled.is_right, strict=True):
                done[request.number + row] = Settlement(is_new, is_right)
        settlements = []
        for ticket in tickets:
            settlements.append(done.get(ticket, KEPT))
            if ticket in done:  # the same ticket again in the batch has no effect
                done[ticket] = Settlement(False, done[ticket].is_right)
        return settlements

    def _prepared(
        self, truths: Mapping[int, Any]
    ) -> list[tuple[TicketState, Request, dict[int, Any]]]:
        """Check labels by ticket and train with them, here and at the peers that answered.

        Returns what can be settled, by site and request: that of peers first.
        """
        parts: dict[int, tuple[Request, dict[int, Any]]] = {}
        for ticket, label in truths.items():
            request, row = self._state.open.find(ticket)
            parts.setdefault(request.number, (request, {}))[1][row] = label
        for request, rows in parts.values():
            self._state.check(request, rows)
        shares: dict[str, dict[int, Any]] = {}
        for request, rows in parts.values():
            for row in run(self._handler.prepare(request, rows)):
                del rows[row]
            for row, label in rows.items() if request.peer_answers else ():
                answer = request.peer_answers.get(row)
                if answer is not None and answer.id and request.truths[row] is UNKNOWN:
                    shares.setdefault(request.group(row).peer, {})[answer.id] = label
        prepared = []
        for peer, share in shares.items():
            other = self._others[peer]
            held = {
                ticket: label for ticket, label in share.items() if other.state.open.knows(ticket)
            }
            prepared += other.labels._prepared(held)
        return prepared + [(self._state, request, rows) for request, rows in parts.values()]

    def _check_learns(self, ticket: int, costs: Sequence[Cost]) -> None:
        request, row = self._state.open.find(ticket)
        is_served = request.group(row).phase in ("serve", "recall")
        if not self._learner.is_supervised and not is_served:
            raise DataError(
                f"learner {self._learner.name!r} has supervised = false, and takes no labels; it "
                "learns by helping others"
            )
        self._learner.check_costs(costs)


class LocalSite:
    """One site of a network: predict, and learn from true labels."""

    def __init__(
        self,
        site: LearnerSpec,
        learner: Learner,
        functions: Sequence[Function],
        others: "Mapping[str, LocalSite]",
        wait: Wait | None,
        contexts: Contexts | None,
        lock: threading.RLock,
        times: "TicketTimes",
    ) -> None:
        """`contexts` makes the contexts of records; None: they are given.

        Code that reads or changes a site holds the `lock` of its network.
        """
        self.name = site.name
        self.lock = lock
        self._acquire, self._release = lock.acquire, lock.release  # `with` takes twice as long
        self.learner = learner
        self._times = times
        self.dealings = Dealings()
        self.in_flight = 0  # requests that wait for functions
        self.state = ticket_state(learner)  # the learner and its open rows
        self.functions = functions
        # Where functions were changed: all arms that there are or were, and what was learnt of
        # those that are retired.
        self.arms: list[Arm] = []
        self.aside: list[Record] = []
        self.views = site.views
        self._others = others
        self._effects = LocalEffects(self, functions, others, wait)
        self.handler = Handler(self.state, site.views, self._effects)
        self.rows = RowHandler(
            self.state,
            functions,
            others,
            trainable=self._effects.trainable,
            has_views=bool(site.views),
        )
        self._requests = LocalRequests(self.state, self.handler, contexts)
        self.labels = TicketLabels(self.state, self.handler, self.rows, others)

    def __repr__(self) -> str:
        return f"<LocalSite {self.name}: {', '.join(self.learner.arms)}>"

    def __reduce__(self) -> str:
        raise DataError(
            f"site {self.name!r} is a part of its network; pickle or copy the Network, and take "
            "the site of that"
        )

    @property
    def alarms(self) -> list[int]:
        """The slots in which the change detection of this site raised an alarm, oldest first."""
        return self.learner.alarms

    def predict(
        self,
        instance: Any,
        context: Sequence[float] | None = None,
        *,
        slot: int | None = None,
        at: Any = None,
    ) -> Prediction:
        """Return a label for `instance`, by an own function or by a peer, at its price.

        Without `context` it is made as `[data] context` says, from the record `instance`. `at` is
        the time of the instance, which a `label-wait` that is a duration needs.
        Raises `ContextError` for a context outside the unit cube and `FunctionError` if the chosen
        function fails; then every counter is as before.
        """
        self._acquire()
        try:
            if at is not None or self.learner.waits_by_time:
                self._times.move(at)
            if context is None and self._requests.contexts is not None:
                request = run(self._requests.begin(instance, context, slot))
            else:
                point = context if type(context) is tuple else context_of(context)
                answer = self.rows.predict(instance, point, slot)
                if type(answer) is Prediction:
                    self._count(answer)
                    return answer
                request = run(self.handler.complete(cast("Draft", answer)))
            return self._answers(request)[0]
        finally:
            self._release()

    async def apredict(
        self,
        instance: Any,
        context: Sequence[float] | None = None,
        *,
        slot: int | None = None,
        at: Any = None,
    ) -> Prediction:
        """Return a label as `predict` does; functions that are coroutines are awaited.

        Other requests are answered in the meantime. Functions that are not coroutines run at once.
        """
        with self.lock:
            self._times.move(at)
        (answer,) = self._answers(
            await self._awaited(self._requests.begin(instance, context, slot))
        )
        return answer

    def peek(
        self, instance: Any, context: Sequence[float] | None = None, *, slot: int | None = None
    ) -> Peek:
        """Return what `predict` would answer, and what is known of the arms; nothing changes.

        There is no ticket. Functions are called; those that are coroutines cannot be.
        """
        with self.lock:
            first = self.state.next_slot(slot)
            if context is None and self._requests.contexts is not None:
                context = self._requests.point(record_of(instance), self._requests.contexts, first)
            point = context_of(context)
            peeked = PeekedSite(self, self._others, self.learner.space, point, first)
            return peeked.peek(instance, point, first)

    def observe(
        self,
        instance: Any,
        label: Label,
        context: Sequence[float] | None = None,
        *,
        cost: Cost = None,
        slot: int | None = None,
        at: Any = None,
    ) -> Prediction:
        """Predict and learn the label at once; return what was answered before it was known."""
        with self.lock:
            answer = self.predict(instance, context, slot=slot, at=at)
            self.learn(answer.ticket, label, cost)
        return answer

    def learnt(self) -> LearntCells:
        """Return what was learnt, per cell and arm, as a table."""
        with self.lock:
            return LearntCells([self.learner])

    def effects(self) -> list[ContextEffect]:
        """Return what each context tells of each own function, the largest difference first.

        Contexts in whose cells nothing is known yet are left out.
        """
        learner, effects = self.learner, list[ContextEffect]()
        with self.lock:
            for k, name in enumerate(self._requests.context_names()):
                before, after = (0.5,) * k, (0.5,) * (learner.dimension - k - 1)
                ends = [self._believed((*before, end, *after)) for end in (0.25, 0.75)]
                functions = zip(learner.arms[: len(self.functions)], *ends, strict=False)
                effects += [ContextEffect(name, *each) for each in functions]
        return sorted(effects, key=lambda effect: -abs(effect.high - effect.low))

    def _believed(self, point: Context) -> list[float]:
        """Return how right each arm is believed to be at a point; nothing without a cell there."""
        table = _copies(self, self.learner.space, point)[self.learner.space]
        rows = table.cells.around(point)
        return table.accuracies(rows[-1], point) if rows else []

    def predict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None, at: Any = None
    ) -> list[Prediction]:
        """Return one answer per row, as `predict` would one by one with the labels still pending.

        Every function is called once with its rows, every peer once with its share. Pending labels
        count from now on, so that a batch spreads its exploration; not so where its rows share one
        slot (`batch = "slot"`). Raises as `predict` does, and `DataError` for rows that do not fit
        together; then every counter is as before.
        """
        with self.lock:
            begun = self._begin_rows(instances, contexts, slot, at)
            return [] if begun is None else self._answers(run(begun))

    async def apredict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None, at: Any = None
    ) -> list[Prediction]:
        """Return one answer per row as `predict_batch` does; coroutines are awaited in turn."""
        with self.lock:
            begun = self._begin_rows(instances, contexts, slot, at)
        return [] if begun is None else self._answers(await self._awaited(begun))

    def _begin_rows(
        self, instances: Any, contexts: Any, slot: int | None, at: Any
    ) -> Coroutine[Any, Any, Request] | None:
        """Begin a batch; None: it has no rows."""
        if not len(rows := rows_of(instances)):
            contexts_of(contexts, rows)
            return None
        self._times.move(at)
        begun = self._requests.begin_rows(rows, contexts, slot)
        if not self.learner.shares_slots:  # or the rows of the batch would all explore one arm
            self.state.open.count_pending()
        return begun

    def _answers(self, request: Request) -> list[Prediction]:
        rows = range(len(request))
        answers = [prediction_of(request, row, request.number + row) for row in rows]
        for answer in answers:
            self._count(answer)
        return answers

    def _count(self, answer: Prediction) -> None:
        dealings, arm, price = self.dealings, answer.arm, answer.price
        with self.lock:
            dealings.cost += price
            dealings.asked[arm] = dealings.asked.get(arm, 0) + 1
            dealings.prices[arm] = dealings.prices.get(arm, 0.0) + price

    def _gain(self, tickets: Sequence[int], settled: Sequence[Settlement]) -> list[Settlement]:
        """Count what the answers that clients got are worth: not those of late peers."""
        for ticket, settlement in zip(tickets, settled, strict=True):
            if settlement.is_new and self.learner.unit == 1:  # no request is made of a row for it
                self.dealings.right += settlement.is_right
            elif settlement.is_new:
                request, row = self.state.open.find(ticket)
                gain = self.learner.gain_of(request.answers[row], request.truths[row])
                self.dealings.right += gain / self.learner.unit
        return [*settled]

    async def _awaited(self, begun: Coroutine[Any, Any, Request]) -> Request:
        with self.lock:
            self.in_flight += 1
        try:
            return await Stepped(begun, self.lock)
        finally:
            with self.lock:
                self.in_flight -= 1

    def learn(self, ticket: int, label: Label, cost: Cost = None) -> Settlement:
        """Settle `ticket` with its true label, at the peer that was asked too.

        `cost` is what the arm cost beyond its fixed cost, where that is to be learnt; or costs by
        the names of columns, of the arm and of the links to the peer that was asked. The function
        that answered is trained, if it can be. The same label again has no effect, and the
        settlement says so. Raises `FunctionError` if the function cannot learn from the label;
        then every counter is as before, and the label can be sent again.
        """
        with self.lock:
            return self._gain([ticket], [self.labels.take(ticket, label, cost)])[0]

    def learn_batch(
        self, tickets: Sequence[int], labels: Any, costs: Sequence[Cost] | None = None
    ) -> list[Settlement]:
        """Settle each ticket with its label, as `learn` does; every peer gets its labels at once.

        If a label of the batch raises an alarm, peers hear of it after all labels of the batch.
        If a ticket is unknown, a label conflicts, or a function cannot learn, no label of the
        batch is taken; it can be sent again, and no function is trained twice.
        """
        truths = truths_of(tickets, labels)
        paid = costs_of(tickets, costs)
        with self.lock:
            return self._gain(tickets, self.labels.take_rows(tickets, truths, paid))

    def join(self) -> list[Settlement]:
        """Settle the labels that were kept for a busy peer's answer, where that has come by now.

        Raises `FunctionError` for an answer that failed; its label is kept no longer, and the
        others can be joined again.
        """
        settlements = []
        with self.lock:
            for request, row in self.state.open.pending():
                late = request.predictions[row]
                if type(late) is Late and late.truth is not UNKNOWN and late.is_there():
                    label, late.truth = late.truth, UNKNOWN
                    settlements.append(self.learn(request.number + row, label))
        return settlements

    def cell_of(self, ticket: int) -> str:
        """Return the name of the cell that decided on a ticket."""
        with self.lock:
            request, row = self.state.open.find(ticket)
        return request.group(row).cell

    # -- for other sites and drivers ------------------------------------------------------------

    @property
    def meaning(self) -> str:
        """What its counters mean: another site of the same meaning can continue from them."""
        contexts = self._requests.contexts
        scales = () if contexts is None else contexts.scales
        learner = self.learner
        return schema_fingerprint(learner.arms, learner.policies, scales, learner.counted_parts)


def _checked(label: Any) -> Label:
    if type(label) in PLAIN:
        return cast("Label", label)
    try:
        return as_label(label)
    except ValueError as error:
        raise DataError(f"the label is {error}") from None
