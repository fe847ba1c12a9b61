"""One site of a network in one process: predict now, learn when the label comes."""

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

from covey.bandit.accounts import Dealings
from covey.bandit.learner import RIGHT, UNKNOWN, WRONG, Learner, Settlement
from covey.config import LearnerSpec
from covey.data.contexts import Contexts
from covey.data.inputs import PLAIN, as_label, contexts_of, costs_of, points_of, rows_of, truths_of
from covey.errors import DataError
from covey.functions.function import Function, Late
from covey.node.at_once import LocalDriver, Stepped, Wait, run
from covey.node.fingerprint import schema_fingerprint
from covey.node.handler import Handler
from covey.node.learnt import LearntCells, Peek, Peeking
from covey.node.requests import (
    Draft,
    Prediction,
    Request,
    prediction_of,
)
from covey.node.rows import SETTLED, RowHandler, TicketState
from covey.types import Context, Cost, Label

KEPT = Settlement(False, False, is_kept=True)


class Lock(AbstractContextManager[Any], Protocol):
    """A lock that a thread can acquire again."""

    def acquire(self) -> bool: ...

    def release(self) -> None: ...


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
        lock: Lock,
    ) -> None:
        """`contexts` makes the contexts of records; None: they are given.

        Code that reads or changes a site holds the `lock` of its network.
        """
        self.name = site.name
        self.lock = lock
        self._acquire, self._release = lock.acquire, lock.release  # `with` takes twice as long
        self.learner = learner
        self._contexts = contexts
        self._is_supervised = learner.is_supervised
        self.dealings: Dealings | None = None  # where it keeps account
        self.in_flight = 0  # requests that wait for functions
        self._state = TicketState(learner)
        self._tickets = self._state.tickets
        self.functions = functions
        self._peeking = Peeking(self, others, site.views)
        self._driver = LocalDriver(self, functions, others, wait)
        self._handler = Handler(self._state, site.views, self._driver)
        self.rows = RowHandler(
            self._state,
            functions,
            others,
            trainable=self._driver.trainable,
            has_views=bool(site.views),
        )

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
        self, instance: Any, context: Context | None = None, *, slot: int | None = None
    ) -> Prediction:
        """Return a label for `instance`, by an own function or by a peer, at its price.

        Without `context` it is made as `[data] context` says, from the record `instance`.
        Raises `ContextError` for a context outside the unit cube and `FunctionError` if the chosen
        function fails; then every counter is as before.
        """
        self._acquire()
        try:
            if context is None and self._contexts is not None:
                request = run(self._begin(instance, context, slot))
            else:
                if type(context) is not tuple:
                    context = () if context is None else tuple(context)
                answer = self.rows.predict(instance, context, slot)
                if type(answer) is Prediction:
                    return answer
                request = run(self._handler.complete(cast("Draft", answer)))
        finally:
            self._release()
        return prediction_of(request, 0, request.number)

    async def apredict(
        self, instance: Any, context: Context | None = None, *, slot: int | None = None
    ) -> Prediction:
        """Return a label as `predict` does; functions that are coroutines are awaited.

        Other requests are answered in the meantime. Functions that are not coroutines run at once.
        """
        request = await self._awaited(self._begin(instance, context, slot))
        return prediction_of(request, 0, request.number)

    def peek(
        self, instance: Any, context: Context | None = None, *, slot: int | None = None
    ) -> Peek:
        """Return what `predict` would answer, and what is known of the arms; nothing changes.

        There is no ticket. Functions are called; those that are coroutines cannot be.
        """
        with self.lock:
            first = self._state.next_slot(slot)
            if context is None and self._contexts is not None:
                context = self._point(instance, self._contexts, first)
            return self._peeking.peek(instance, () if context is None else tuple(context), first)

    def observe(
        self,
        instance: Any,
        label: Label,
        context: Context | None = None,
        *,
        cost: Cost = None,
        slot: int | None = None,
    ) -> Prediction:
        """Predict and learn the label at once; return what was answered before it was known."""
        with self.lock:
            answer = self.predict(instance, context, slot=slot)
            self.learn(answer.ticket, label, cost)
        return answer

    def learnt(self) -> LearntCells:
        """Return what was learnt, per cell and arm, as a table."""
        with self.lock:
            return LearntCells([self.learner])

    def _point(self, record: Any, contexts: Contexts, slot: int) -> Context:
        """Return the context of a record."""
        self._check_records([record])
        latest = self._state.latest
        previous = None if latest is None else latest[1]
        return contexts.extract_one(record, slot=slot, previous_label=previous)

    def _check_records(self, records: Any) -> None:
        for record in records:
            if not isinstance(record, Mapping):
                raise DataError(
                    f"learner {self.name!r} makes contexts from records ([data] context); pass a "
                    "mapping from columns to values, or pass the context"
                )

    def _begin(
        self, instance: Any, context: Context | None, slot: int | None
    ) -> Coroutine[Any, Any, Request]:
        if context is None and self._contexts is not None:
            return self._answer_records([instance], self._contexts, slot)
        point = () if context is None else tuple(context)
        return self._handler.answer([instance], [point], slot=slot)

    def predict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None
    ) -> list[Prediction]:
        """Return one answer per row, as `predict` would one by one with the labels still pending.

        Every function is called once with its rows, every peer once with its share. Pending labels
        count from now on, so that a batch spreads its exploration; not so where its rows share one
        slot (`batch = "slot"`). Raises as `predict` does, and `DataError` for rows that do not fit
        together; then every counter is as before.
        """
        if not len(rows := rows_of(instances)):
            contexts_of(contexts, rows)
            return []
        with self.lock:
            begun = self._begin_rows(rows, contexts, slot)
            self._count_pending()
            request = run(begun)
        return _predictions(request)

    async def apredict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None
    ) -> list[Prediction]:
        """Return one answer per row as `predict_batch` does; coroutines are awaited in turn."""
        if not len(rows := rows_of(instances)):
            contexts_of(contexts, rows)
            return []
        with self.lock:
            begun = self._begin_rows(rows, contexts, slot)
            self._count_pending()
        return _predictions(await self._awaited(begun))

    async def _awaited(self, begun: Coroutine[Any, Any, Request]) -> Request:
        with self.lock:
            self.in_flight += 1
        try:
            return await Stepped(begun, self.lock)
        finally:
            with self.lock:
                self.in_flight -= 1

    def _begin_rows(
        self, rows: Any, contexts: Any, slot: int | None
    ) -> Coroutine[Any, Any, Request]:
        if contexts is None and self._contexts is not None:
            return self._answer_records(rows, self._contexts, slot)
        points: Any = contexts_of(contexts, rows)
        wait = self.learner.label_wait
        if len(rows) > wait + 1 and not self.learner.shares_slots:
            raise DataError(
                f"the batch has {len(rows)} rows, but label-wait of learner {self.name!r} is "
                f"{wait} slots; raise label-wait, or send fewer rows at once"
            )
        if len(rows) > 1:
            points = points_of(contexts, rows, dimension=self.learner.dimension)
        return self._handler.answer(rows, points, slot=slot)

    def _count_pending(self) -> None:
        """Count pending labels, without which the rows of a batch would all explore one arm."""
        if not self.learner.shares_slots:
            self._state.count_pending()

    def _answer_records(
        self, records: Any, contexts: Contexts, slot: int | None
    ) -> Coroutine[Any, Any, Request]:
        """Answer records; their contexts are made for the slots that they get."""

        def points(first: int) -> Any:
            if len(records) == 1:
                return [self._point(records[0], contexts, first)]
            latest = self._state.latest
            previous = None if latest is None else latest[1]
            columns = {name: [record.get(name) for record in records] for name in contexts.columns}
            return contexts.extract_rows(
                columns,
                slot=first,
                count=len(records),
                previous_label=previous,
                is_one_slot=self.learner.shares_slots,
            )

        self._check_records(records)
        return self._handler.answer(records, points, slot=slot)

    def learn(self, ticket: int, label: Label, cost: Cost = None) -> Settlement:
        """Settle `ticket` with its true label, at the peer that was asked too.

        `cost` is what the arm cost beyond its fixed cost, where that is to be learnt; or costs by
        the names of columns, of the arm and of the links to the peer that was asked. The function
        that answered is trained, if it can be. The same label again has no effect, and the
        settlement says so. Raises `FunctionError` if the function cannot learn from the label;
        then every counter is as before, and the label can be sent again.
        """
        kind = type(label)
        if kind is not str and kind is not int:
            label = _checked(label)
        self._acquire()
        try:
            if cost is None and self._is_supervised:
                found = self._tickets.settle(ticket, label)
                if found >= 0:
                    return SETTLED[found]
                done = self.rows.learn(ticket, label, found)
                if done is not None:
                    return done
            else:
                self._check_learns(ticket, [cost])
            request, row = self._state.find_ticket(ticket)
            costs = None if cost is None else {row: cost}
            settled = run(self._handler.learn(request, {row: label}, costs))
        finally:
            self._release()
        if settled.kept:
            return KEPT
        if settled.is_new[0]:
            return RIGHT if settled.is_right[0] else WRONG
        return Settlement(False, settled.is_right[0])

    def learn_batch(
        self, tickets: Sequence[int], labels: Any, costs: Sequence[Cost] | None = None
    ) -> list[Settlement]:
        """Settle each ticket with its label, as `learn` does; every peer gets its labels at once.

        If a ticket is unknown, a label conflicts, or a function cannot learn, no label of the
        batch is taken; it can be sent again, and no function is trained twice.
        """
        truths = truths_of(tickets, labels)
        paid = costs_of(tickets, costs)
        with self.lock:
            return self._learn_rows(tickets, truths, paid)

    def _learn_rows(
        self, tickets: Sequence[int], truths: Mapping[int, Any], paid: Mapping[int, Cost]
    ) -> list[Settlement]:
        for ticket in truths if paid or not self.learner.is_supervised else ():
            self._check_learns(ticket, [paid.get(ticket)])
        parts = self.parts(truths)
        kept: set[int] = set()
        for request, rows in parts:
            self._state.check(request, rows)
        try:
            for request, rows in parts:
                late = run(self._handler.prepare(request, rows))
                kept |= {request.number + row for row in late}
        except BaseException:
            self._driver.discard()
            raise
        self._driver.settle_peers()
        done: dict[int, Settlement] = {}
        for request, rows in parts:
            new = {row: one for row, one in rows.items() if request.number + row not in kept}
            costs_by_row = {row: paid.get(request.number + row) for row in new}
            settled = self._state.settle(request, new, costs_by_row)
            for row, is_new, is_right in zip(new, settled.is_new, settled.is_right, strict=True):
                done[request.number + row] = Settlement(is_new, is_right)
        found = []
        for ticket in tickets:
            found.append(KEPT if ticket in kept else done[ticket])
            if ticket in done:  # the same ticket again in the batch has no effect
                done[ticket] = Settlement(False, done[ticket].is_right)
        return found

    def join(self) -> list[Settlement]:
        """Settle the labels that were kept for a busy peer's answer, where that has come by now.

        Raises `FunctionError` for an answer that failed; its label is kept no longer, and the
        others can be joined again.
        """
        settlements = []
        with self.lock:
            for request, row in self._state.pending():
                late = request.predictions[row]
                if type(late) is Late and late.truth is not UNKNOWN and late.is_there():
                    label, late.truth = late.truth, UNKNOWN
                    settlements.append(self.learn(request.number + row, label))
        return settlements

    def cell_of(self, ticket: int) -> str:
        """Return the name of the cell that decided on a ticket."""
        with self.lock:
            request, row = self._state.find_ticket(ticket)
        return request.group(row).cell

    # -- for other sites and drivers ------------------------------------------------------------

    @property
    def state(self) -> TicketState:
        """The learner and its open rows."""
        return self._state

    @property
    def meaning(self) -> str:
        """What its counters mean: another site of the same meaning can continue from them."""
        scales = () if self._contexts is None else self._contexts.scales
        learner = self.learner
        return schema_fingerprint(learner.arms, learner.policies, scales, learner.counted_parts)

    @property
    def handler(self) -> Handler:
        """What answers requests."""
        return self._handler

    def parts(self, truths: Mapping[int, Any]) -> list[tuple[Request, dict[int, Any]]]:
        """Return labels by request and row; raise `UnknownTicket`."""
        found: dict[int, tuple[Request, dict[int, Any]]] = {}
        for ticket, label in truths.items():
            request, row = self._state.find_ticket(ticket)
            found.setdefault(request.number, (request, {}))[1][row] = label
        return list(found.values())

    def _check_learns(self, ticket: int, costs: Sequence[Cost]) -> None:
        request, row = self._state.find_ticket(ticket)
        is_served = request.group(row).phase in ("serve", "recall")
        if not self.learner.is_supervised and not is_served:
            raise DataError(
                f"learner {self.name!r} has supervised = false, and takes no labels; it learns by "
                "helping others"
            )
        self.learner.check_costs(costs)


class AccountedSite(LocalSite):
    """A site that keeps account of what it gains, pays and asks."""

    dealings: Dealings

    def __init__(self, *site: Any) -> None:
        super().__init__(*site)
        self.dealings = Dealings()

    def predict(
        self, instance: Any, context: Context | None = None, *, slot: int | None = None
    ) -> Prediction:
        with self.lock:
            answer = super().predict(instance, context, slot=slot)
            self._count([answer])
        return answer

    async def apredict(
        self, instance: Any, context: Context | None = None, *, slot: int | None = None
    ) -> Prediction:
        answer = await super().apredict(instance, context, slot=slot)
        self._count([answer])
        return answer

    def predict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None
    ) -> list[Prediction]:
        with self.lock:
            answers = super().predict_batch(instances, contexts, slot=slot)
            self._count(answers)
        return answers

    async def apredict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None
    ) -> list[Prediction]:
        answers = await super().apredict_batch(instances, contexts, slot=slot)
        self._count(answers)
        return answers

    def _count(self, answers: Sequence[Prediction]) -> None:
        peers = {peer for peer, is_by_context in self.learner.behind() if not is_by_context}
        with self.lock:
            for answer in answers:
                self.dealings.paid += answer.price
                if answer.arm in peers:
                    self.dealings.asked[answer.arm] = self.dealings.asked.get(answer.arm, 0) + 1

    def learn(self, ticket: int, label: Label, cost: Cost = None) -> Settlement:
        with self.lock:
            settled = super().learn(ticket, label, cost)
            self._gain([ticket], [settled])
        return settled

    def learn_batch(
        self, tickets: Sequence[int], labels: Any, costs: Sequence[Cost] | None = None
    ) -> list[Settlement]:
        with self.lock:
            settled = super().learn_batch(tickets, labels, costs)
            self._gain(tickets, settled)
        return settled

    def _gain(self, tickets: Sequence[int], settled: Sequence[Settlement]) -> None:
        """Count what the answers that clients got are worth: not those of late peers."""
        for ticket, one in zip(tickets, settled, strict=True):
            if one.is_new:
                request, row = self._state.find_ticket(ticket)
                gain = self.learner.gain_of(request.answers[row], request.truths[row])
                self.dealings.right += gain / self.learner.unit


def _predictions(request: Request) -> list[Prediction]:
    return [prediction_of(request, row, request.number + row) for row in range(len(request))]


def _checked(label: Any) -> Label:
    if type(label) in PLAIN:
        return cast("Label", label)
    try:
        return as_label(label)
    except ValueError as error:
        raise DataError(f"the label is {error}") from None
