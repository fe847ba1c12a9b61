"""Decide the rows of a request, with what peers report; nothing is answered here."""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from covey.errors import PeerError
from covey.kernel import NOT_DECIDED, arm_of, row_of, undecided_row
from covey.kernel.rules import Cell, Report
from covey.node.requests import Draft
from covey.node.state import SiteState


class Asker(Protocol):
    """What decisions have done for them: the part of a `Driver` that queries peers."""

    def cell(self, space: str, row: int) -> str | Cell:
        """Return the name of a known cell in messages to peers."""

    async def report(self, peer: str, cell: Any, slot: int) -> Report:
        """Ask a peer for its arrivals in a cell; raise `PeerError`."""

    async def estimate(
        self, peer: str, cell: Any, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        """Ask a peer for the accuracy of its answers in a cell; raise `PeerError`."""

    async def gather(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
        """Return the results of calls to peers, a `PeerError` in the place of those that failed."""

    def note_alone(self, rows: int, reason: PeerError) -> None:
        """Note that rows are decided without peers."""


class Decisions:
    """Decides rows in consecutive slots: each sees what the rows before it have counted."""

    step = 1  # slots from a row to the next

    def __init__(self, state: SiteState, asker: Asker) -> None:
        self._state = state
        self._learner = state.learner
        self._judge = state.judge
        self._asker = asker
        self._peers = [peer for peer, _ in state.learner.behind()]
        self._own = len(state.learner.arms) - len(self._peers)

    def begin(
        self, rows: Any, contexts: Any, slot: int | list[int] | None, closed: bytes | None
    ) -> Draft:
        """Return the draft of a request, in the slots that it gets.

        A list has the slot of each row, ascending.
        """
        if isinstance(slot, list):
            first = self._state.take_slots(slot[0], slot[-1] - slot[0] + 1)
            draft = Draft(rows, contexts, first, closed, step=self.step)
            draft.given_slots = [one + first - slot[0] for one in slot]
            return draft
        first = self._state.take_slots(slot, len(rows) if self.step else 1)
        return Draft(rows, contexts, first, closed, step=self.step)

    async def decide(self, draft: Draft) -> None:
        """Decide all rows of a request, and count them."""
        row = draft.row if draft.row >= 0 else self._decide(draft)
        while row >= 0:
            await self._query_peers(draft, row)
            row = self._decide(draft)

    def decide_again(self, draft: Draft, places: Sequence[int], closed: bytes) -> None:
        """Decide rows whose arm failed again, one by one and without peers."""
        learner = self._learner
        for place in places:
            context, slot = draft.context(place), draft.slot_of(place)
            learner.retract(int(draft.codes[place]), context, slot)
            draft.codes[place] = NOT_DECIDED  # should the next decision fail
            code = learner.decide(context, slot, closed)
            while code < 0:
                row = -1 - code
                if learner.is_supervised:
                    code = self._judge.resume(row, context, slot, closed)
                else:
                    code = learner.consult(row, context, {}, closed)
            draft.codes[place] = code

    def alone(self, closed: bytes | None, busy: Collection[int] = ()) -> bytes:
        """Return the arms that are not available to rows that are decided without peers."""
        own = bytes(self._own) if closed is None else closed[: self._own]
        if 0 not in own:  # no arm is: these are the ones to wait for
            own = bytes(self._own)
        own = bytes([shut or arm in busy for arm, shut in enumerate(own)])
        return own + b"\1" * len(self._peers)

    def retract(self, draft: Draft) -> None:
        """Take back every decision of a request that failed, and its slots."""
        self._uncount(draft)
        self._state.undo_reports(draft.undo)
        last = draft.slot_of(len(draft.codes) - 1)
        self._state.return_slots(draft.slot, last - draft.slot + 1)

    def _uncount(self, draft: Draft) -> None:
        if draft.given_slots is not None:
            for place, code in reversed(list(enumerate(draft.codes[: draft.done].tolist()))):
                self._state.retract([draft.context(place)], draft.slot_of(place), [code], 1)
            return
        self._state.retract(draft.contexts, draft.slot, draft.codes, draft.done)

    def _decide(self, draft: Draft) -> int:
        """Decide rows up to one that needs reports of peers; return its cell, -1 if all are."""
        begin, count = draft.done, len(draft.codes)
        if begin == count:
            return -1
        if count == 1:
            code = self._judge.decide(draft.context(0), draft.slot, draft.closed)
            if code < 0:
                return -1 - code
            draft.codes[0] = code
            draft.done = 1
            return -1
        if draft.given_slots is not None:
            return self._decide_one_by_one(draft)
        codes = draft.codes[begin:]
        try:
            draft.done += self._judge.decide_rows(
                draft.contexts[begin:], draft.slot + begin, codes, draft.closed
            )
        except BaseException:
            draft.done += int(np.argmax(codes == NOT_DECIDED))
            raise
        return -1 if draft.done == count else -1 - int(draft.codes[draft.done])

    def _decide_one_by_one(self, draft: Draft) -> int:
        """Decide rows whose slots are not consecutive; return as `_decide` does."""
        while draft.done < len(draft.codes):
            slot = draft.slot_of(draft.done)
            code = self._judge.decide(draft.context(draft.done), slot, draft.closed)
            if code < 0:
                return -1 - code
            self._decided(draft, code)
        return -1

    # -- reports of peers -----------------------------------------------------------------------

    async def _query_peers(self, draft: Draft, row: int) -> None:
        """Decide the next row, which lies in the cell of `row`, with reports of peers."""
        try:
            if self._learner.is_supervised:
                code = await self._decide_with_reports(draft, row)
            else:
                code = await self._decide_with_estimates(draft, row)
        except PeerError as error:
            self._asker.note_alone(len(draft.codes) - draft.done, error)
            draft.closed = self.alone(draft.closed)
            return
        self._decided(draft, code)

    def _decided(self, draft: Draft, code: int) -> None:
        """Take the decision on the next row, which is counted."""
        draft.codes[draft.done] = code
        draft.done += 1

    async def _decide_with_reports(self, draft: Draft, row: int) -> int:
        learner = self._learner
        slot, context = draft.slot_of(draft.done), draft.context(draft.done)
        undo: list[tuple[int, int, int]] = []
        try:
            while True:
                peers = self._judge.peers_to_query(row, slot, draft.closed)
                reports = await self._reports(draft, row, slot, peers)
                for peer, report in zip(peers, reports, strict=True):
                    undo.append((row, peer, learner.receive_report(row, peer, report, slot)))
                code = self._judge.resume(row, context, slot, draft.closed)
                if code >= 0:
                    break
                row = undecided_row(code)
        except BaseException:
            self._state.undo_reports(undo)
            raise
        draft.undo += undo
        return code

    async def _reports(
        self, draft: Draft, row: int, slot: int, peers: Sequence[int]
    ) -> list[Report]:
        asker, cell = self._asker, self._asker.cell(self._learner.space, row)
        calls = [asker.report(self._peers[k], cell, slot) for k in peers]
        reports = []
        for k, (arrivals, low, high) in zip(peers, await self._each(calls), strict=True):
            # A peer has seen what it answered, whatever it reports.
            known = max(arrivals, self._state.answered(cell, self._peers[k]))
            reports.append((known + self._about_to_ask(draft, row, k), low, high))
        return reports

    def _about_to_ask(self, draft: Draft, row: int, peer: int) -> int:
        """Return how many rows decided so far a peer is about to get, in the cell of `row`."""
        learner = self._learner
        if not draft.done or not learner.counts_at_once or learner.behind()[peer][1]:
            return 0
        codes, arm = draft.codes[: draft.done], len(learner.arms) - len(self._peers) + peer
        rows = row_of(codes[arm_of(codes) == arm])
        return int(np.count_nonzero(np.isin(rows, learner.same_cell(row, rows))))

    async def _decide_with_estimates(self, draft: Draft, row: int) -> int:
        learner, asker = self._learner, self._asker
        slot, context = draft.slot_of(draft.done), draft.context(draft.done)
        peers, behind = learner.peers_to_query(row, slot, draft.closed), learner.behind()
        cell = asker.cell(learner.space, row)
        calls = [
            asker.estimate(behind[k][0], cell, slot, is_by_context=behind[k][1]) for k in peers
        ]
        found = zip(peers, await asker.gather(calls), strict=True)
        estimates: Mapping[int, tuple[float, int]] = {
            k: one for k, one in found if not isinstance(one, PeerError)
        }
        return self._judge.consult(row, context, estimates, draft.closed)

    async def _each(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
        """Return the results of calls to peers; raise the first failure."""
        if len(calls) == 1:
            return [await calls[0]]
        results = await self._asker.gather(calls)
        for one in results:
            if isinstance(one, PeerError):
                raise one
        return results


class DecisionsInOneSlot(Decisions):
    """Decides the rows of a request in one slot, all on the counters from before the request."""

    step = 0

    def _decide(self, draft: Draft) -> int:
        """Decide rows as `Decisions` does, and count them when all are decided."""
        if len(draft.codes) == 1:
            return super()._decide(draft)
        while draft.done < len(draft.codes):
            code = self._judge.decide(draft.context(draft.done), draft.slot, draft.closed)
            if code < 0:
                return -1 - code
            self._decided(draft, code)
        self._learner.count_rows(np.ascontiguousarray(draft.contexts), draft.codes)
        draft.is_counted = True
        return -1

    def _decided(self, draft: Draft, code: int) -> None:
        """Take the decision on the next row, and count it with the others."""
        if len(draft.codes) > 1:
            self._learner.retract(code, draft.context(draft.done), draft.slot)
        super()._decided(draft, code)

    def _uncount(self, draft: Draft) -> None:
        if len(draft.codes) == 1:
            super()._uncount(draft)
        elif draft.is_counted:
            for place, code in enumerate(draft.codes.tolist()):
                self._state.retract([draft.context(place)], draft.slot, [code], 1)

    def _about_to_ask(self, draft: Draft, row: int, peer: int) -> int:
        """Return 0: what a peer is about to get counts at the end of the slot."""
        return 0
