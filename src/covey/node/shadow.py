"""Shadow mode: functions that were not chosen answer a random share of the rows, too.

They do so after the client has its answer, and what they answer teaches nothing: it is kept for
reports and exports. Whether a row is drawn depends on its id and a secret seed, and on nothing that
was decided. So a request that is sent again draws the same rows, and what holds for the drawn rows
is an unbiased estimate for all.
"""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from covey.bandit.learner import UNKNOWN
from covey.data.inputs import Rows, share_of
from covey.errors import StoreError
from covey.kernel import arm_of
from covey.node.functions import Journal, NodeEffects
from covey.node.peers import LogThrottle
from covey.site.handler import Handler
from covey.site.requests import (
    SHADOW,
    Request,
    ShadowRow,
    ShadowSpan,
    is_drawn,
    known_answers,
)
from covey.site.state import StoredState
from covey.site.status import GainState, GainSums, ShadowState
from covey.store.store import Store
from covey.types import Label

log = logging.getLogger(__name__)
MOST_WAITING = 1_024  # rows that are drawn and not run yet; further ones are dropped
MOST_UNLABELLED = 10_000  # rows that were run and whose labels have not come
WRITE_S = 1.0  # after which answers are written, if no commit has taken them along
FINISH_S = 1.0  # for rows that wait when the site stops or reads its file again
COMPLETE, INCOMPLETE, DROPPED = "complete", "incomplete", "dropped"


class _Waiting(NamedTuple):
    request: Request
    row: int
    instance: Rows  # one row


class Shadow:
    """Runs the drawn rows one by one, each by all functions at the same time."""

    def __init__(
        self,
        share: float,
        state: StoredState,
        handler: Handler,
        effects: NodeEffects,
        journal: Journal,
    ) -> None:
        """`share` is that of the rows of own clients which are drawn."""
        self._share = share
        self._state = state
        self._effects = effects
        self._journal = journal
        self._handler = handler
        self._learner = learner = state.learner
        own = learner.arms[: len(learner.arms) - len(learner.behind())]
        self._ids = [state.learning.id_of(function) for function in own]
        self._span = ShadowSpan(1, 0.0, "", [])
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue(MOST_WAITING)
        self._is_running = self._is_unwritten = False
        self._task: asyncio.Task[None] | None = None
        self._counts: Counter[str] = Counter()  # rows since the start, by what became of them
        self._throttle = LogThrottle()
        self._gains = GainSums(dict(zip(self._ids, own, strict=True)))
        # What arms answered to rows whose labels are to come, by request and row.
        self._unlabelled: dict[tuple[int, int], dict[str, Any]] = {}

    def continue_from(self, store: Store, rng: random.Random) -> None:
        """Draw as before if share and arms are the same; else begin a span with another seed."""
        arms = self._ids if self._share else []
        spans = store.all(ShadowSpan)
        span = spans[-1] if spans else self._span
        if (span.share, span.arms) != (self._share, arms):
            seed = f"{rng.getrandbits(256):064x}"
            span = ShadowSpan(self._state.open.next_number, self._share, seed, arms)
            self._state.changes.commit.records.append(span)
        self._span = span
        if not self._share:
            return
        answers = {(kept.request, kept.row): kept.answers for kept in store.all(ShadowRow)}
        for request in store.shadowed():
            for row in range(len(request)):
                key = (request.number, row)
                if key in answers and request.number >= span.first:
                    self._join(request, row, answers[key])

    def gain(self) -> GainState | None:
        """Return what the site gains over its best own function; None: no row is drawn."""
        return self._gains.state() if self._share else None

    def settled(self, request: Request, rows: Iterable[int]) -> None:
        """Count rows whose labels have come."""
        for row in rows if self._unlabelled else ():
            answers = self._unlabelled.pop((request.number, row), None)
            if answers is not None:
                self._join(request, row, answers)

    def _join(self, request: Request, row: int, answers: dict[str, Any]) -> None:
        """Count a row, with what arms answered that were not chosen, once it has a label."""
        if request.truths[row] is UNKNOWN:
            if len(self._unlabelled) >= MOST_UNLABELLED:
                del self._unlabelled[next(iter(self._unlabelled))]
            self._unlabelled[request.number, row] = answers
            return
        known = {**known_answers(request, row), **answers}
        self._gains.take(request, row, known, self._learner.costs, self._gain_of)

    def _gain_of(self, answer: Label, label: Label) -> float:
        return self._learner.gain_of(answer, label) / self._learner.unit

    def state(self) -> ShadowState | None:
        """Return what was drawn since the start; None: nothing is."""
        if not self._share:
            return None
        counts = self._counts
        return ShadowState(
            share=self._share,
            complete=counts[COMPLETE],
            incomplete=counts[INCOMPLETE],
            dropped=counts[DROPPED],
            waiting=self._waiting.qsize(),
        )

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to run rows, also after `finish`."""
        if self._share and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def finish(self) -> None:
        """Run the rows that wait, for a short time, and stop."""
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FINISH_S):
                    await self._waiting.join()
        self.stop()

    def stop(self) -> None:
        """Stop immediately; rows that wait are dropped."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._counts[DROPPED] += self._waiting.qsize() + self._is_running
        self._is_running = False
        while not self._waiting.empty():
            self._waiting.get_nowait()
            self._waiting.task_done()

    def take_over(self, old: "Shadow") -> None:
        """Continue what was counted since the start."""
        self._counts.update(old._counts)

    # -- rows -----------------------------------------------------------------------------------

    def offer(self, answered: Sequence[Request], rows: Rows) -> None:
        """Draw among the rows of a request that was answered now."""
        for request in answered:
            for row in range(len(request)):
                if is_drawn(self._span, request.source, request.id, row):
                    self._add(_Waiting(request, row, share_of(rows, [row])))

    def _add(self, one: _Waiting) -> None:
        if self._task is not None and not self._waiting.full():
            self._waiting.put_nowait(one)
            return
        self._counts[DROPPED] += 1
        if self._throttle.is_due():
            count = self._counts[DROPPED]
            log.warning("shadow: %d rows were dropped since the start; functions are busy", count)

    async def _work(self) -> None:
        self._effects.begin(SHADOW)
        while True:
            try:
                async with asyncio.timeout(WRITE_S if self._is_unwritten else None):
                    drawn = await self._waiting.get()
            except TimeoutError:
                # Requests of clients write them along, if there are any.
                self._is_unwritten = False
                with contextlib.suppress(StoreError):
                    await self._journal.flush()
                continue
            self._is_running = True
            try:
                await self._run(drawn)
            finally:
                self._waiting.task_done()
            self._is_running = False

    async def _run(self, one: _Waiting) -> None:
        request, row = one.request, one.row
        chosen = int(arm_of(request.group(row).code))
        scored = request.scored.get(row, {})
        functions = [
            place for place, id_ in enumerate(self._ids) if place != chosen and id_ not in scored
        ]
        context = request.context(row)
        self._effects.begin(SHADOW)
        by_row = await self._handler.run_others(
            functions, one.instance, [chosen], None, lambda _: context, keeps_failures=True
        )
        answers: dict[str, Any] = by_row.get(0, {})
        self._counts[COMPLETE if len(answers) == len(functions) else INCOMPLETE] += 1
        self._state.changes.commit.records.append(ShadowRow(request.number, row, answers))
        self._join(request, row, answers)
        self._is_unwritten = True
