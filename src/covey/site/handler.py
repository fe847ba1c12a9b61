"""Answer requests of one or many rows: decide, query peers, run or ask, fall back, train, settle.

There is no I/O here. The coroutines await only what `Effects` do for them: one that never
suspends makes them synchronous (`Network`), one that awaits makes them asynchronous (`Node`).
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from covey.bandit.learner import NO_ANSWER, UNKNOWN, Choice
from covey.data.inputs import ALL, FeatureView, Rows, cut, grouped, share_of, shown
from covey.errors import FunctionBusy, FunctionError, NoAnswerYet, PeerError
from covey.functions.function import Late
from covey.kernel import NOT_DECIDED, arm_of, code_of, row_of, undecided_row
from covey.kernel.rules import Cell, Report
from covey.site.requests import (
    NO_INSTANCE,
    NONE,
    OWN,
    AskRow,
    Assistance,
    Draft,
    PeerAnswer,
    QueryKind,
    Request,
    rows_kept,
)
from covey.site.state import SiteState
from covey.types import Context, Label

NOT_ASKED = PeerAnswer("", "")
Failed = dict[int, FunctionError]  # own functions that failed in a request
Group = tuple[Choice, int, list[int]]  # an arm, its view of instances, and its rows


class Effects(Protocol):
    """All that a request may wait for, and what it needs of the site around it."""

    @property
    def trainable(self) -> Collection[int]:
        """The own functions that are trained with true labels."""

    def unavailable(self) -> bytes | None:
        """Return the arms that cannot be used now, one byte each; None: all can be."""

    def cell(self, space: str, row: int, context: Context, /) -> Any:
        """Return what messages to peers say of an instance in a known cell."""

    def new_id(self) -> str:
        """Return an id for rows that a peer is asked to label."""

    async def run(
        self, function: int, rows: Rows, *, is_served: bool = False
    ) -> list[Label] | FunctionError:
        """Run an own function; a failure is returned, or raised."""

    async def query(self, peer: str, cell: Any, slot: int, what: QueryKind = "arrivals") -> Report:
        """Ask a peer for its arrivals in a cell, or for its labels and accuracy there.

        The accuracy is that of its functions, or that of the label seen most. Raises `PeerError`.
        """

    async def ask(
        self, peer: str, rows: Sequence[AskRow], *, may_be_late: bool = False
    ) -> list[Assistance]:
        """Ask a peer for labels, some of them `Late` if they may be; raise `PeerError`."""

    async def has_come(self, late: Late) -> bool:
        """Wait for the answer of a busy peer as long as is allowed; return whether it arrived."""

    def withdraw(self, peer: str, id: Any) -> None:
        """Take back the answer of a peer to a row that failed, where that is possible."""

    def note_alone(self, rows: int, reason: PeerError) -> None:
        """Note that rows are decided without peers."""

    async def train(self, request: Request, rows: Sequence[int], truths: Mapping[int, Any]) -> None:
        """Train own functions with the labels of rows; raise `FunctionError`."""

    async def together(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
        """Return the results of calls, a `CoveyError` in the place of those that failed."""


class Decisions:
    """Decides rows in consecutive slots: each sees what the rows before it have counted."""

    step = 1  # slots from a row to the next

    def __init__(self, state: SiteState[Any, Any], effects: Effects) -> None:
        self._state = state
        self._learner = state.learner
        self._judge = state.judge
        self._effects = effects
        self._peers = [peer for peer, _ in state.learner.behind()]
        self._own = len(state.learner.arms) - len(self._peers)

    def begin(self, rows: Any, contexts: Any, slot: int | None, closed: bytes | None) -> Draft:
        """Return the draft of a request, in the slots that it gets."""
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
        codes = draft.codes[begin:]
        try:
            draft.done += self._judge.decide_rows(
                draft.contexts[begin:], draft.slot + begin, codes, draft.closed
            )
        except BaseException:
            draft.done += int(np.argmax(codes == NOT_DECIDED))
            raise
        return -1 if draft.done == count else -1 - int(draft.codes[draft.done])

    # -- reports of peers -----------------------------------------------------------------------

    async def _query_peers(self, draft: Draft, row: int) -> None:
        """Decide the next row, which lies in the cell of `row`, with reports of peers."""
        if self._learner.is_supervised:
            code = await self._decide_with_reports(draft, row)
        else:
            code = await self._decide_with_estimates(draft, row)
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
                for peer, report in await self._reports(draft, row, slot, peers):
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
    ) -> list[tuple[int, Report]]:
        """Return the reports of peers; a peer that fails is not available to this request."""
        effects, context = self._effects, draft.context(draft.done)
        cell = effects.cell(self._learner.space, row, context)
        calls = [effects.query(self._peers[peer], cell, slot) for peer in peers]
        reports = []
        for peer, report in zip(peers, await effects.together(calls), strict=True):
            if isinstance(report, PeerError):
                self._close(draft, peer, report)
                continue
            arrivals, low, high, logs = report
            # A peer has seen what it answered, whatever it reports.
            seen = max(arrivals, self._state.answered(row, self._peers[peer]))
            reports.append((peer, (seen + self._about_to_ask(draft, row, peer), low, high, logs)))
        return reports

    def _close(self, draft: Draft, peer: int, reason: PeerError) -> None:
        """Decide the rows that are left without a peer that failed."""
        closed = bytearray(draft.closed or bytes(self._own + len(self._peers)))
        closed[self._own + peer] = 1
        draft.closed = bytes(closed) if 0 in closed else self.alone(bytes(closed))
        if all(closed[self._own :]):
            self._effects.note_alone(len(draft.codes) - draft.done, reason)

    def _about_to_ask(self, draft: Draft, row: int, peer: int) -> int:
        """Return how many rows decided so far a peer is about to get, in the cell of `row`."""
        learner = self._learner
        if not draft.done or not learner.counts_at_once or learner.behind()[peer][1]:
            return 0
        codes, arm = draft.codes[: draft.done], len(learner.arms) - len(self._peers) + peer
        rows = row_of(codes[arm_of(codes) == arm])
        return int(np.count_nonzero(np.isin(rows, learner.same_cell(row, rows))))

    async def _decide_with_estimates(self, draft: Draft, row: int) -> int:
        learner, effects = self._learner, self._effects
        slot, context = draft.slot_of(draft.done), draft.context(draft.done)
        peers, behind = learner.peers_to_query(row, slot, draft.closed), learner.behind()
        cell = effects.cell(learner.space, row, context)
        calls = [
            effects.query(behind[k][0], cell, slot, "seen" if behind[k][1] else "accuracy")
            for k in peers
        ]
        reports = zip(peers, await effects.together(calls), strict=True)
        estimates: Mapping[int, tuple[float, int]] = {
            k: (min(1.0, report[1]), report[0])
            for k, report in reports
            if not isinstance(report, PeerError)
        }
        return self._judge.consult(row, context, estimates, draft.closed)


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
        for place, code in enumerate(draft.codes.tolist()):
            self._learner.table.count(code, draft.context(place))
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


class Handler:
    """Answers the requests of one site, and takes their labels."""

    def __init__(
        self, state: SiteState[Any, Any], views: Sequence[FeatureView], effects: Effects
    ) -> None:
        self._state = state
        self._learner = state.learner
        self._peers = [peer for peer, _ in state.learner.behind()]
        self._views = views
        self._effects = effects
        kind = DecisionsInOneSlot if state.learner.shares_slots else Decisions
        self._decisions = kind(state, effects)

    # -- own requests ---------------------------------------------------------------------------

    async def answer(
        self,
        rows: Rows,
        contexts: Any,
        *,
        slot: int | None = None,
        source: str = OWN,
        id: str = "",
        digest: str = "",
    ) -> Request:
        """Answer rows in consecutive slots, or in one; a failure takes back everything.

        `contexts` has one context per row, or is a function of the first slot that returns them.
        """
        draft = self._decisions.begin(rows, contexts, slot, self._effects.unavailable())
        return await self.complete(draft, source=source, id=id, digest=digest)

    async def complete(
        self, draft: Draft, *, source: str = OWN, id: str = "", digest: str = ""
    ) -> Request:
        """Answer what is left of a request; a failure takes back everything."""
        state = self._state
        try:
            if callable(draft.contexts):
                draft.contexts = draft.contexts(draft.slot)
            await self._decisions.decide(draft)
            if draft.helped:  # a peer answers later
                answers = await self._fall_back(draft, {})
            else:
                calls = self._call_arms(draft)
                if state.ensemble is not None:
                    calls = state.ensemble.vote(draft, calls, self._effects, self._learner)
                answers, scored = await self._and_free(
                    calls, draft.rows, draft.codes, draft.closed, draft.context
                )
                draft.scored |= scored
        except BaseException:
            self._retract(draft)
            raise
        request = Request(
            slot=draft.slot,
            slots=draft.slots,
            space=self._learner.space,
            source=source,
            id=id,
            digest=digest,
            contexts=draft.contexts,
            predictions=draft.predictions,
            answers=answers,
            peer_answers=draft.helped or NONE,
            training=draft.training or NONE,
            scored=draft.scored or NONE,
        )
        return state.accept(request, draft.codes)

    def _retract(self, draft: Draft) -> None:
        """Take back every decision of a request that failed."""
        for row, answer in reversed(draft.helped.items()):
            if answer.id:
                peer = self._learner.choice(int(draft.codes[row])).peer
                self._effects.withdraw(peer, answer.id)
        self._decisions.retract(draft)

    # -- arms -----------------------------------------------------------------------------------

    async def _call_arms(self, draft: Draft) -> list[Any]:
        """Run own functions and ask peers at the same time; return the response to the source."""
        groups = self._groups(draft, range(len(draft.codes)))
        if len(groups) == 1:
            results = [await self._call(draft, groups[0], draft.predictions)]
        else:
            calls = [self._call(draft, group, draft.predictions) for group in groups]
            results = await self._effects.together(calls)
        if not any(results):
            return draft.predictions
        failed: Failed = {}
        again, busy = list[int](), dict[int, FunctionBusy]()
        for (choice, _, places), result in zip(groups, results, strict=True):
            if isinstance(result, PeerError):
                self._effects.note_alone(len(places), result)
                again += places
            elif isinstance(result, FunctionBusy):
                busy[choice.function] = result
                again += places
            elif isinstance(result, FunctionError):
                failed[choice.function] = result
        if again:
            self._decide_again(draft, again, busy)
            groups = self._groups(draft, sorted(again))
            failed |= await self._run(draft, groups, draft.predictions)
        return await self._fall_back(draft, failed)

    async def _call(self, draft: Draft, group: Group, into: list[Any]) -> Any:
        """Run or ask the arm of a group; return what failed, or whether rows lack an answer."""
        choice, view, places = group
        if choice.function < 0:
            try:
                return await self._ask(draft, group)
            except PeerError as error:
                return error
        rows = draft.rows
        if view != ALL or len(places) != len(rows):
            rows = self._share(rows, group)
        labels = await self._effects.run(choice.function, rows)
        if isinstance(labels, FunctionError):
            for place in places:
                into[place] = NO_ANSWER
            if isinstance(labels, NoAnswerYet):  # it will have one, once it has learnt
                self._note_training(draft.training, choice.function, places, rows)
            return labels
        if len(places) == len(into):
            into[:] = labels
        else:
            for place, label in zip(places, labels, strict=True):
                into[place] = label
        self._note_training(draft.training, choice.function, places, rows)
        return None

    def _note_training(
        self, training: dict[int, Any], function: int, places: Sequence[int], rows: Rows
    ) -> None:
        if function in self._effects.trainable:
            id_ = self._state.learning.id_of(self._learner.arms[function])
            for place, instance in zip(places, rows, strict=True):
                training[place] = (id_, instance)

    async def _and_free(
        self,
        call: Awaitable[Any],
        rows: Rows,
        codes: Any,
        closed: bytes | None,
        context_of: Callable[[int], Context] | None = None,
    ) -> tuple[Any, dict[int, dict[str, Label]]]:
        """Await a call; free functions answer at the same time, so that labels can score them."""
        if not self._learner.free:
            return await call, {}
        arms = arm_of(np.asarray(codes)).tolist()
        others = self.run_others(self._learner.free, rows, arms, closed, context_of)
        result, scored = await self._effects.together([call, others])
        if isinstance(result, BaseException):
            raise result
        return result, scored

    async def run_others(
        self,
        functions: Sequence[int],
        rows: Rows,
        arms: Sequence[int],
        closed: bytes | None,
        context_of: Callable[[int], Context] | None = None,
        *,
        keeps_failures: bool = False,
    ) -> dict[int, dict[str, Label]]:
        """Return the answers to rows for which other `arms` were chosen, by what they count as.

        A function that is not available, fails or answers later is left out; with `keeps_failures`
        the answer of one that fails is None. Rows of peers have no context: they are shown as they
        are.
        """
        groups: list[Group] = []
        for function in functions:
            places = [place for place, arm in enumerate(arms) if arm != function]
            if places and (closed is None or not closed[function]):
                choice = self._learner.choice(code_of(0, function, 0))
                groups += self._by_view(choice, places, context_of)
        calls = [self._labels(group, rows, keeps_failures) for group in groups]
        answers: dict[int, dict[str, Label]] = {}
        for group, labels in zip(groups, await self._effects.together(calls), strict=True):
            id_ = self._state.learning.id_of(group[0].arm)
            for place, label in zip(group[2], labels, strict=False):
                if type(label) is not Late:
                    answers.setdefault(place, {})[id_] = label
        return answers

    async def _labels(self, group: Group, rows: Rows, keeps_failures: bool) -> list[Any]:
        """Return the answers of a function, as far as there are any."""
        share = self._share(rows, group)
        try:
            labels = await self._effects.run(group[0].function, share, is_served=True)
        except (FunctionError, MemoryError):
            return []
        if isinstance(labels, FunctionError):
            is_kept = keeps_failures and not isinstance(labels, FunctionBusy)
            return [None] * len(share) if is_kept else []
        return labels

    def _decide_again(
        self, draft: Draft, places: Sequence[int], busy: Mapping[int, FunctionBusy]
    ) -> None:
        """Decide rows whose arm failed without peers, and without functions that are busy."""
        closed = self._decisions.alone(draft.closed, busy)
        if 0 not in closed:
            raise next(iter(busy.values()))
        self._decisions.decide_again(draft, places, closed)

    async def _run(self, draft: Draft, groups: Sequence[Group], into: list[Any]) -> Failed:
        """Run own functions; return those that failed."""
        results = await self._effects.together([self._call(draft, group, into) for group in groups])
        return {
            group[0].function: result
            for group, result in zip(groups, results, strict=True)
            if result is not None
        }

    async def _ask(self, draft: Draft, group: Group) -> bool:
        """Ask a peer for all its rows at once; return whether some have no answer yet."""
        choice, _, places = group
        shared: Any = [NO_INSTANCE] * len(places)
        if not choice.is_by_context:
            shared = self._share(draft.rows, group)
        rows = rows_to_ask(self._effects, self._learner.space, draft, places, shared)
        may_be_late = len(draft.codes) == 1 and not choice.is_by_context
        answers = await self._effects.ask(choice.peer, rows, may_be_late=may_be_late)
        is_missing = False
        for place, row, answer in zip(places, rows, answers, strict=True):
            draft.predictions[place] = answer.label
            own_id = row.id if answer.id is None else answer.id
            draft.helped[place] = PeerAnswer(answer.function, own_id, answer.is_awaited)
            is_missing |= answer.label is NO_ANSWER or type(answer.label) is Late
        return is_missing

    async def _fall_back(self, draft: Draft, failed: Failed) -> list[Any]:
        """Let own functions answer where a peer or a function gave no answer."""
        missing = []
        for place, prediction in enumerate(draft.predictions):
            if type(prediction) is Late:
                if await self._effects.has_come(prediction):
                    draft.predictions[place] = prediction.label()
                else:
                    missing.append(place)
            elif prediction is NO_ANSWER:
                missing.append(place)
        if not missing:
            return draft.predictions
        answers: list[Any] = [NO_ANSWER] * len(draft.predictions)
        while missing:
            try:
                groups = self._fallback_groups(draft, missing, failed)
            except NoAnswerYet:
                break  # no function has an answer
            failed |= await self._run(draft, groups, answers)
            for choice, _, places in groups:
                for place in places:
                    answer = draft.helped.get(place, NOT_ASKED)
                    draft.helped[place] = answer._replace(function=choice.arm)
            missing = [place for place in missing if answers[place] is NO_ANSWER]
        return [
            prediction if answer is NO_ANSWER else answer
            for prediction, answer in zip(draft.predictions, answers, strict=True)
        ]

    def _fallback_groups(self, draft: Draft, missing: Sequence[int], failed: Failed) -> list[Group]:
        """Group rows by the function that answers instead; raise if none is left."""
        learner = self._learner
        groups: dict[tuple[int, int], list[int]] = {}
        for place in missing:
            code = int(draft.codes[place])
            function = self._fallback(code, draft.context(place), failed)
            # A function in the place of a peer sees what the peer would have seen.
            is_asked = learner.choice(code).function < 0
            arm = learner.choice(code).arm if is_asked else learner.arms[function]
            view = shown(self._views, arm, draft.context(place)) if self._views else ALL
            groups.setdefault((function, view), []).append(place)
        return [
            (learner.choice(code_of(0, function, 0)), view, places)
            for (function, view), places in groups.items()
        ]

    def _fallback(self, code: int, context: Context, failed: Failed) -> int:
        """Return the best own function that has not failed; ties go to the next in turn."""
        learner, row = self._learner, row_of(code)
        first = learner.choice(code).function
        first = learner.table.best_own(row, context) if first < 0 else first
        if first not in failed:
            return first
        accuracies = learner.table.accuracies(row, context)
        count = len(learner.arms) - len(self._peers)

        def worth(function: int) -> float:
            return accuracies[function] - learner.costs[function]

        others = [(first + k) % count for k in range(1, count)]
        for function in sorted(others, key=worth, reverse=True):
            if function not in failed:
                return function
        raise failed[first]

    def _groups(self, draft: Draft, places: Sequence[int]) -> list[Group]:
        """Group rows, which are in order, by arm and by the view that it gets."""
        learner = self._learner
        if len(places) == 1:
            choice = learner.choice(int(draft.codes[places[0]]))
            return self._by_view(choice, [*places], draft.context)
        where = np.arange(len(draft.codes))
        where = where if len(places) == len(where) else where[list(places)]
        arms = arm_of(np.asarray(draft.codes)[where])
        groups: list[Group] = []
        for arm in np.flatnonzero(np.bincount(arms)).tolist():
            rows = where[arms == arm].tolist()
            choice = learner.choice(int(draft.codes[rows[0]]))
            groups += self._by_view(choice, rows, draft.context)
        return groups

    def _by_view(
        self, choice: Choice, places: list[int], context_of: Callable[[int], Context] | None
    ) -> list[Group]:
        """Group rows of an arm by the view that it gets."""
        if not self._views or context_of is None:
            return [(choice, ALL, places)]
        by_view = grouped(shown(self._views, choice.arm, context_of(place)) for place in places)
        return [(choice, view, [places[k] for k in part]) for view, part in by_view.items()]

    def _share(self, rows: Rows, group: Group) -> Rows:
        _, view, places = group
        share = _part(rows, places)
        return share if view == ALL else [cut(row, self._views[view].columns) for row in share]

    # -- requests of peers ----------------------------------------------------------------------

    async def assist(
        self,
        rows: Rows | None,
        cells: Sequence[Cell],
        slots: Sequence[int],
        *,
        source: str,
        ids: Sequence[str] = ("",),
    ) -> Request:
        """Answer rows of a peer by own functions; without rows, from labels seen in the cells."""
        state = self._state
        if rows is None:
            return state.recall(source, cells, slots, ids)
        codes = state.serve(source, cells, slots)
        groups = grouped([self._learner.choice(code).function for code in codes])
        predictions: list[Any] = [None] * len(codes)
        try:
            call = self._effects.together(
                [
                    self._effects.run(function, _part(rows, places), is_served=True)
                    for function, places in groups.items()
                ]
            )
            closed = self._effects.unavailable() if self._learner.free else None
            results, scored = await self._and_free(call, rows, codes, closed)
            for places, labels in zip(groups.values(), results, strict=True):
                if isinstance(labels, FunctionError):
                    raise labels
                for place, label in zip(places, labels, strict=True):
                    predictions[place] = label
        except BaseException:
            state.retract_served(source, cells[0].space, codes)
            raise
        training: dict[int, tuple[str, Any]] = {}
        if self._trains(source):
            for function, places in groups.items():
                self._note_training(training, function, places, _part(rows, places))
        request = Request(
            slot=slots[0],
            slots=slots,
            space=cells[0].space,
            source=source,
            id=ids[0],
            row_ids=ids if len(ids) > 1 else None,
            contexts=[self._learner.middle(cell) for cell in cells],
            predictions=predictions,
            answers=predictions,
            training=training or NONE,
            scored=scored or NONE,
        )
        return state.accept(request, codes)

    # -- labels ---------------------------------------------------------------------------------

    def _trains(self, source: str) -> bool:
        """Return whether functions are trained with labels of a source."""
        return self._state.sources.teaches(source)

    async def prepare(self, request: Request, truths: Mapping[int, Any]) -> frozenset[int]:
        """Check labels and train with them, so that settling them cannot fail.

        A label that comes before the answer of a busy peer is kept for it: returns their rows.
        """
        self._state.check(request, truths)
        kept = rows_kept(request, truths)
        rows = [
            row
            for row in truths
            if row in request.training and request.truths[row] is UNKNOWN and row not in kept
        ]
        if rows and self._trains(request.source):
            await self._effects.train(request, rows, truths)
        return kept


def rows_to_ask(
    effects: Effects, space: str, draft: Draft, places: Sequence[int], instances: Any
) -> list[AskRow]:
    """Return decided rows as a peer is asked about them; they have one id, and their places."""
    id_, is_one = effects.new_id(), len(draft.codes) == 1
    instances = instances.tolist() if isinstance(instances, np.ndarray) else instances
    return [
        AskRow(
            id_ if is_one else f"{id_}:{place}",
            effects.cell(space, row_of(int(draft.codes[place])), draft.context(place)),
            draft.slot_of(place),
            instance,
        )
        for place, instance in zip(places, instances, strict=True)
    ]


def _part(rows: Rows, places: list[int]) -> Rows:
    return rows if len(places) == len(rows) else share_of(rows, places)
