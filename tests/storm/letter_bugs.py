"""Bugs in how letters are read, what they show, and whose labels count and teach."""

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from covey import back as backs
from covey import letters
from covey.books import Book, is_own
from covey.calls import Problem
from covey.decisions import UNKNOWN, Decision
from covey.neighbours import Neighbour
from covey.node.node import Node
from covey.standins import OwnFunctions
from covey.store import Ticket
from covey.teaching import Teaching

Patch = pytest.MonkeyPatch


def takes_the_answer_to_another_letter(patch: Patch) -> None:
    def read(body: bytes, kind: Any, letter: letters.Letter) -> Any:
        with contextlib.suppress(Problem):
            request = letters._decoded(body, kind).request
            letter = msgspec.structs.replace(letter, request=request)
        return real(body, kind, letter)

    real = letters.read_answer
    patch.setattr(letters, "read_answer", read)


def reads_on_where_a_letter_should_end(patch: Patch) -> None:
    def decoded(body: bytes, kind: Any) -> Any:
        try:
            return real(body, kind)
        except Problem:
            return real(body[:-1], kind)

    real = letters._decoded
    patch.setattr(letters, "_decoded", decoded)


def takes_letters_of_any_version(patch: Patch) -> None:
    def read(body: bytes, kind: Any) -> Any:
        return letters._decoded(body, kind)

    patch.setattr(letters, "read", read)


def answers_who_may_not_ask(patch: Patch) -> None:
    patch.setattr(backs, "_check_may_ask", lambda peer: None)


def shows_instances_to_who_may_see_the_cell(patch: Patch) -> None:
    async def ask(self: Node, instance: Any, decision: Decision, deadline_s: float) -> Any:
        decision.choice = msgspec.structs.replace(decision.choice, is_by_context=False)
        return await real(self, instance, decision, deadline_s)

    real = Node._ask
    patch.setattr(Node, "_ask", ask)
    patch.setattr(Neighbour, "shows", lambda self, requests: requests)


def trusts_everybody_like_who_is_trusted_most(patch: Patch) -> None:
    def is_pooled(self: Book, source: str) -> bool:
        return is_own(source) or "full" in self._trust.values()

    patch.setattr(Book, "is_pooled", is_pooled)


def teaches_by_labels_of_anybody(patch: Patch) -> None:
    async def assist(self: Node, request: Any, *, source: str) -> Any:
        token = is_assisting.set(True)
        try:
            return await real(self, request, source=source)
        finally:
            is_assisting.reset(token)

    async def run(self: OwnFunctions, number: int, instance: Any) -> Any:
        label = await answer(self, number, instance)
        if is_assisting.get():
            lesson.set((number, instance))
        return label

    def accept(self: Book, decision: Decision, question: Any, reply: Any) -> Ticket:
        if is_assisting.get():
            decision.lesson = lesson.get()
        return keep(self, decision, question, reply)

    is_assisting = ContextVar("is_assisting", default=False)
    lesson: ContextVar[Any] = ContextVar("lesson", default=UNKNOWN)
    real, answer, keep = Node.assist, OwnFunctions.answer, Book.accept
    patch.setattr(Node, "assist", assist)
    patch.setattr(OwnFunctions, "answer", run)
    patch.setattr(Book, "accept", accept)


def teaches_again_after_a_hang_up(patch: Patch) -> None:
    async def teach(self: Teaching, key: Any, decision: Decision | None, label: Any) -> None:
        if decision is not None and decision.lesson is not UNKNOWN:
            number, instance = decision.lesson
            await self._work(self._functions[number].learn, instance, label)
            decision.lesson = UNKNOWN

    patch.setattr(Teaching, "teach", teach)


def forgets_a_lesson_that_failed(patch: Patch) -> None:
    async def teach(self: Teaching, decision: Decision, *given: Any) -> None:
        try:
            await real(self, decision, *given)
        finally:
            decision.lesson = UNKNOWN

    real = Teaching._teach
    patch.setattr(Teaching, "_teach", teach)


BUGS: tuple[Callable[[Patch], None], ...] = (
    takes_the_answer_to_another_letter,
    reads_on_where_a_letter_should_end,
    takes_letters_of_any_version,
    answers_who_may_not_ask,
    shows_instances_to_who_may_see_the_cell,
    trusts_everybody_like_who_is_trusted_most,
    teaches_by_labels_of_anybody,
    teaches_again_after_a_hang_up,
    forgets_a_lesson_that_failed,
)
