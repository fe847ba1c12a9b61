"""Late answers of busy peers: they join the request that fell back to an own function."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from covey.errors import CoveyError, PeerError
from covey.functions.function import Function, Late
from covey.node.peers import LogThrottle
from covey.node.recorded import RecordedState
from covey.node.requests import AWAITED_WIDTH, AskRow, Assistance, Request
from covey.types import Label

log = logging.getLogger(__name__)


class LateAnswer:
    """The answer of a peer to one row, which is still on its way."""

    def __init__(self, answers: "asyncio.Task[list[Assistance]]") -> None:
        self.answers = answers

    def done(self) -> bool:
        """Return whether the answer is available."""
        return self.answers.done()

    def result(self) -> Label:
        """Return the answer, or raise the error that prevented it."""
        (one,) = self.answers.result()
        if not one.is_given:
            raise PeerError("the peer gave no label")
        return one.label


async def answered(
    peer: str, rows: list[AskRow], call: Awaitable["list[Assistance] | asyncio.Task[Any]"]
) -> list[Assistance]:
    """Return the answers of a peer; for one that is late, something to wait for."""
    found = await call
    if isinstance(found, list):
        return found
    function = Function(peer, "this site", lambda _: None, None, None, None)
    return [Assistance(Late(function, LateAnswer(found)), "", AWAITED_WIDTH) for _ in rows]


class LateAnswers:
    """Waits for late answers, and joins them with their requests."""

    def __init__(self, state: RecordedState) -> None:
        self._state = state
        self.joins: dict[int, asyncio.Task[None]] = {}  # by the number of the request
        self._throttle = LogThrottle()
        if state.lost_answers:
            log.warning(
                "%d late answers of peers were lost with the last stop; their labels change no "
                "counter of this site",
                state.lost_answers,
            )

    def watch(self, request: Request) -> None:
        """Join the answer of a busy peer with its request when it comes."""
        late = request.predictions[0]
        task = asyncio.get_running_loop().create_task(self._join(request, late))
        self.joins[request.number] = task

    async def settled(self, request: Request) -> None:
        """Return when no answer to a request is awaited: its label comes after that."""
        task = self.joins.get(request.number)
        if task is not None:
            await asyncio.shield(task)

    def stop(self) -> None:
        """Wait no longer; what has not come is lost."""
        for task in self.joins.values():
            task.cancel()

    async def _join(self, request: Request, late: Any) -> None:
        try:
            await asyncio.wait([late.handle.answers])
            label = late.label()
            (one,) = late.handle.answers.result()
            self._state.join_answer(request, label, one.width)
        except (CoveyError, OSError, TimeoutError, asyncio.CancelledError) as error:
            self._state.drop_answer(request)
            if isinstance(error, asyncio.CancelledError):
                raise
            if self._throttle.is_due():
                log.warning("a late answer never came (%s); its label is not counted", error)
        finally:
            late.handle.answers.cancel()
            self.joins.pop(request.number, None)
