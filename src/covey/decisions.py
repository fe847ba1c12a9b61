"""A decision's way: the choice, the answer under its ticket, and what the label settles."""

from typing import Any

import msgspec

from covey.errors import ConflictingLabel, DataError, UnknownTicket
from covey.types import Context, Label, Loss

LABEL_WAIT_SLOTS = 10_000
UNKNOWN = msgspec.UNSET


class Choice(msgspec.Struct, frozen=True):
    """An arm, why it was chosen and at what price."""

    phase: str  # train, explore, exploit; serve or recall where another learner asked
    arm: str  # own function or asked learner
    price: float  # in units of reward, what is learnt of it left out
    function: int  # the own function to run; -1: ask `peer`
    peer: str = ""
    is_by_context: bool = False  # the peer is shown the cell and never the instance


class Decision(msgspec.Struct, gc=False):
    """An instance's way through a learner: the choice, then the answer, then the truth.

    While `asks` is not empty the choice is open; `label` and `ticket` come with acceptance.
    """

    code: int  # the kernel's
    context: Context
    slot: int
    choice: Choice
    asks: tuple[str, ...] = ()  # peers to be asked for their arrivals in the cell
    label: Label | msgspec.UnsetType = UNKNOWN
    ticket: int = 0
    peer_ticket: int | str | None = None
    truth: Label | msgspec.UnsetType = UNKNOWN
    refreshed: tuple[tuple[int, int], ...] = ()  # peers' counters as they were
    # An own function and the instance that it is to be taught once the label is there.
    lesson: tuple[int, Any] | msgspec.UnsetType = UNKNOWN
    space: str = ""  # of the cell, where learners have contexts of their own
    width: int = 0  # how far the helper's function may be from its best, in millionths


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What a label did; `is_new` is False if the same label had been settled before."""

    is_new: bool
    is_right: bool
    peer: str | None = None  # whom to pass the label on to, and under which ticket
    peer_ticket: int | str | None = None
    is_kept: bool = False  # nothing moved: the label is kept until a busy peer's answer comes


OPEN = Choice("", "", 0.0, -1)
RECALL = Choice("recall", "", 0.0, -1)
NO_ANSWER = object()  # what one answers who has no labels to go by; it is never right
RIGHT = Settlement(True, True)
WRONG = Settlement(True, False)


class Snapshot(msgspec.Struct, frozen=True):
    """A learner's counters; open tickets are not part of it, nor is what is under way."""

    slot: int
    cells: list[tuple[str, list[int]]]
    seen: list[tuple[str, list[tuple[Any, int]]]] = []  # labels, of those who may be asked by cell
    doubts: dict[str, list[int]] = {}  # of what is known, by context space


def settle_again(decision: Decision, label: Label, *, owner: str) -> Settlement:
    """Say what a second label does: the same one nothing, another raises `ConflictingLabel`."""
    if decision.truth != label:
        raise ConflictingLabel(
            f"ticket {decision.ticket} of learner {owner!r} was settled with "
            f"{decision.truth!r}; {label!r} contradicts it and was not taken"
        )
    return Settlement(False, decision.label == label)


def unknown(ticket: int, kept: range, *, owner: str, wait: int) -> UnknownTicket:
    """Return the error for a ticket that is not kept: never given, or waited for too long."""
    was_given = isinstance(ticket, int) and 0 < ticket < kept.stop
    why = f"its label was due within {wait} slots" if was_given else "it was never given"
    return UnknownTicket(f"learner {owner!r} does not know ticket {ticket!r}: {why}")


def gained(loss: Loss, decision: Decision, label: Label, *, owner: str) -> int:
    """Return what an answer is worth under a loss; none is worth nothing."""
    if decision.label is NO_ANSWER:
        return 0
    answer: Any = decision.label
    try:
        return int(loss.gains(abs(answer - label)))
    except TypeError:
        raise DataError(
            f"a loss needs labels and predictions that are numbers; learner {owner!r} was "
            f"given {answer!r} and {label!r}"
        ) from None
