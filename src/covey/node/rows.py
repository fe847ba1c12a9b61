"""Requests of one row that nobody has to wait for: decide, ask, answer and learn without a draft.

The rules are those of `Handler`, which takes over where something must be awaited, a row has a
view of its own, or a function is trained. `tests/test_flow.py` holds both to the same decisions.
"""

from collections.abc import Callable, Collection
from typing import Any, Protocol

from covey.bandit.learner import UNKNOWN, Learner, Settlement
from covey.functions.function import Late
from covey.kernel import CHOICE, NOT_DECIDED, row_of, undecided_row
from covey.kernel.rules import Cell, Report
from covey.node.requests import NONE, Assistance, Draft, PeerAnswer, Request
from covey.node.state import SiteState
from covey.types import Context, Label

Undo = list[tuple[int, int, int]]


class RowDriver(Protocol):
    """What can be done for a row without waiting."""

    is_immediate: bool  # peers answer within the call

    @property
    def trainable(self) -> Collection[int]:
        """The own functions that are trained with true labels."""

    def closed(self) -> bytes | None:
        """Return the arms that are not available now, one byte each; None: all are."""

    def at_once(self, function: int) -> Callable[[Any], Label | Late] | None:
        """Return an own function that can be called for one row; None: `run` must be awaited."""

    def ask_row(self, peer: str, instance: Any, cell: Cell, slot: int) -> Assistance:
        """Ask a peer for the label of a row."""

    def report_row(self, peer: str, cell: Cell, slot: int) -> Report:
        """Ask a peer for its arrivals in a cell."""

    def pass_on_row(self, peer: str, ticket: Any, label: Label) -> bool:
        """Settle a label at the peer that answered; False: that takes more than one call."""


class RowHandler:
    """Answers and settles requests of one row that nobody has to wait for."""

    def __init__(self, state: SiteState, driver: RowDriver, *, has_views: bool) -> None:
        self._row_driver = driver
        self._state = state
        self._learner: Learner = state.learner
        self._has_views = has_views
        self._peers = [peer for peer, _ in state.learner.behind()]
        own = len(state.learner.arms) - len(self._peers)
        self._functions = [driver.at_once(function) for function in range(own)]
        self._at_once = [
            None
            if has_views or choice.function < 0 or choice.function in driver.trainable
            else self._functions[choice.function]
            for choice in state.learner.choices
        ]

    def begin_row(self, instance: Any, context: Context, slot: int | None) -> Request | Draft:
        """Decide an own row; answer it if nobody has to wait.

        Else return the draft, which `Handler.complete` answers.
        """
        state, learner, undo = self._state, self._learner, Undo()
        slot = state.take_slots(slot, 1)
        code, helped = NOT_DECIDED, None
        try:
            closed = self._row_driver.closed()
            code = learner.decide(context, slot, closed)
            if code < 0 and self._row_driver.is_immediate and learner.is_supervised:
                code = self._query_row(undecided_row(code), context, slot, closed, undo)
            call = self._at_once[code & CHOICE] if code >= 0 else None
            if call is not None:
                label = call(instance)
                label = label.label() if type(label) is Late else label
                return state.accept_row(code, context, slot, label)
            if code >= 0 and self._row_driver.is_immediate and not self._has_views:
                helped = self._ask_row(code, instance, slot)
                if helped is not None and type(helped.label) is not Late:
                    return state.accept_row(code, context, slot, helped.label, _answer_of(helped))
        except BaseException:
            state.retract([context], slot, [code], 1)
            state.undo_reports(undo)
            state.return_slots(slot, 1)
            raise
        draft = Draft([instance], [context], slot, closed)
        draft.undo = undo
        if code >= 0:
            draft.codes[0], draft.done = code, 1
        else:
            draft.row = undecided_row(code)
        if helped is not None:
            draft.predictions[0] = helped.label
            draft.helped = _answer_of(helped)
        return draft

    def _query_row(
        self, row: int, context: Context, slot: int, closed: bytes | None, undo: Undo
    ) -> int:
        learner = self._learner
        cell = learner.known_cell(learner.space, row)
        code = -1
        while code < 0:
            for k in learner.peers_to_query(row, slot, closed):
                report = self._row_driver.report_row(self._peers[k], cell, slot)
                undo.append((row, k, learner.receive_report(row, k, report, slot)))
            code = learner.resume(row, context, slot, closed)
        return code

    def _ask_row(self, code: int, instance: Any, slot: int) -> Assistance | None:
        learner = self._learner
        choice = learner.choice(code)
        if choice.function >= 0 or choice.is_by_context:
            return None
        cell = learner.known_cell(learner.space, row_of(code))
        return self._row_driver.ask_row(choice.peer, instance, cell, slot)

    def assist_row(self, instance: Any, cell: Cell, slot: int, source: str) -> Assistance:
        """Answer a row of a peer by an own function."""
        state = self._state
        (code,), widths = state.serve(source, [cell], [slot])
        function = self._learner.choice(code).function
        call: Any = self._functions[function]
        try:
            labels = [call(instance)]
        except BaseException:
            state.retract_served(source, cell.space, [code])
            raise
        is_trained = function in self._row_driver.trainable and state.is_pooled(source)
        request = state.accept(
            [code],
            space=cell.space,
            slot=slot,
            slots=[slot],
            source=source,
            contexts=[()],
            predictions=labels,
            answers=labels,
            peer_answers=widths,
            training={0: (function, instance)} if is_trained else NONE,
        )
        return Assistance(labels[0], request.function(0), request.width(0), request.number)

    def learn_row(
        self, request: Request, row: int, label: Label, cost: float | None
    ) -> Settlement | None:
        """Take the true label of a row, at the peer that answered too; None: use `learn`."""
        if request.training or type(request.predictions[row]) is Late:
            return None
        answers = request.peer_answers
        if answers and request.truths[row] is UNKNOWN and request.is_open:
            answer = answers.get(row)
            if answer is not None and answer.id:
                peer = request.groups[request.group_of[row]].peer
                if not self._row_driver.pass_on_row(peer, answer.id, label):
                    return None
        return self._state.settle_row(request, row, label, cost)


def _answer_of(helped: Assistance) -> dict[int, PeerAnswer]:
    return {0: PeerAnswer(helped.function, helped.id, helped.width)}
