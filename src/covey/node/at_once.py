"""The driver of sites in one process: it does at once what the handler awaits."""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from covey.bandit.learner import NO_ANSWER
from covey.errors import FunctionError, NoAnswerYet, PeerError
from covey.functions.function import Function, Late, Later
from covey.kernel.rules import Cell, Report
from covey.node.requests import NO_INSTANCE, AskRow, Assistance, Request
from covey.node.training import Trainer
from covey.types import Label

if TYPE_CHECKING:
    from covey.node.local_site import LocalSite

Given = TypeVar("Given")
Wait = Callable[[Later], object]


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
    raise RuntimeError("the driver of a network suspended a request")


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


class LocalDriver:
    """Does at once what the handler of a site awaits."""

    def __init__(
        self,
        site: "LocalSite",
        functions: Sequence[Function],
        others: "Mapping[str, LocalSite]",
        wait: Wait | None,
    ) -> None:
        self._site = site
        self._functions = functions
        self._others = others
        self._wait = wait
        self._trainer = Trainer(functions, _at_once)
        self.trainable = self._trainer.trainable
        self._prepared: list[tuple[LocalSite, Request, dict[int, Any]]] = []
        self.cell: Callable[[str, int], Cell] = site.learner.known_cell

    def closed(self) -> bytes | None:
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
        other = self._others[peer]
        cells, slots = [cast("Cell", row.cell) for row in rows], [row.slot for row in rows]
        instances = None
        if rows[0].instance is not NO_INSTANCE:
            instances = [row.instance for row in rows]
            if len(rows) > 1 and not self._site.learner.shares_slots:
                other.state.count_pending()
        request = await other.handler.assist(instances, cells, slots, source=self._site.name)
        return [
            Assistance(
                request.answers[row],
                request.function(row),
                request.width(row),
                request.number + row,
            )
            for row in range(len(rows))
        ]

    async def report(self, peer: str, cell: Cell, slot: int) -> Report:
        return self._others[peer].state.report(self._site.name, cell, slot)

    async def estimate(
        self, peer: str, cell: Cell, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        state = self._others[peer].state
        return state.estimate(self._site.name, cell, slot, is_by_context=is_by_context)

    async def gather(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
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
        self._others[peer].state.withdraw(id)

    def note_alone(self, rows: int, reason: PeerError) -> None:
        raise reason

    async def train(self, request: Request, rows: Sequence[int], truths: Mapping[int, Any]) -> None:
        await self._trainer.train(request, rows, truths)

    async def pass_on(self, request: Request, truths: Mapping[int, Any]) -> None:
        """Prepare labels at the peers that answered; they are settled with the own ones."""
        shares: dict[str, dict[int, Any]] = {}
        for row, label in truths.items():
            answer = request.peer_answers.get(row)
            if answer is not None and answer.id:
                shares.setdefault(request.group(row).peer, {})[cast("int", answer.id)] = label
        for peer, share in shares.items():
            other = self._others[peer]
            known = {ticket: one for ticket, one in share.items() if other.state.knows(ticket)}
            try:
                for found, rows in other.parts(known):
                    await other.handler.prepare(found, rows)
                    self._prepared.append((other, found, rows))
            except BaseException:
                self.discard()
                raise

    def discard(self) -> None:
        """Settle nothing of what peers have prepared."""
        self._prepared = []

    def settle_peers(self) -> None:
        """Settle the labels that peers have prepared."""
        prepared, self._prepared = self._prepared, []
        for other, request, rows in prepared:
            other.state.settle(request, rows)


async def _awaited(function: Function, rows: Sequence[Any]) -> list[Label]:
    """Return the labels of rows, one after the other."""
    try:
        return [await function.ask_async(row) for row in rows]
    except _NotAwaited:
        raise FunctionError(
            f"{function} is asynchronous (async def); await apredict instead of predict"
        ) from None


async def _at_once(function: Function, call: Callable[..., Any], /, *arguments: Any) -> Any:
    return call(*arguments)
