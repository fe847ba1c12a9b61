"""What a decision chose and what a label did: the records around the codes of a learner."""

from typing import Any

import msgspec

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


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What a label did; `is_new` is False if the same label had been settled before."""

    is_new: bool
    is_right: bool
    peer: str | None = None  # whom to pass the label on to, and under which ticket
    peer_ticket: int | str | None = None
    is_kept: bool = False  # nothing moved: the label is kept until a busy peer's answer comes


NO_ANSWER = object()  # what one answers who has no labels to go by; it is never right
RIGHT = Settlement(True, True)
WRONG = Settlement(True, False)


class Snapshot(msgspec.Struct, frozen=True):
    """A learner's counters; open tickets are not part of it, nor is what is under way."""

    slot: int
    cells: list[tuple[str, list[int]]]
    seen: list[tuple[str, list[tuple[Any, int]]]] = []  # labels, of those who may be asked by cell
    doubts: dict[str, list[int]] = {}  # of what is known, by context space
