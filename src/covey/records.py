"""What is written of a site and read again: tickets, labels, lines of tables, labels owed."""

from collections.abc import Sequence
from typing import Any

import msgspec

from covey.decisions import NO_ANSWER, OPEN, RECALL, UNKNOWN, Decision, Snapshot
from covey.lots import Lot, LotBatch, as_text
from covey.types import Label


class Ticket(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A decision as it is kept: what was answered to whom, and the true label once it is there."""

    desk: str = ""  # that gave it out; "": the site's own
    ticket: int
    source: str  # who asked, and so who may say the true label; "": the site's own clients
    id: str  # under which the source knows it
    digest: str  # of what was asked, so that another question under the same id is noticed
    slot: int
    cell: str
    code: int
    phase: str
    arm: str
    function: str
    price: float
    space: str
    context: tuple[float, ...]
    prediction: Label  # what the arm said; NO_ANSWER: nothing
    answer: Label  # what the source was told
    peer: str = ""
    peer_ticket: str | None = None
    width: int = 0
    truth: Label | msgspec.UnsetType = UNKNOWN

    def decision(self) -> Decision:
        """Return the learner's side of it; the learner puts the choice back."""
        return Decision(
            self.code,
            self.context,
            self.slot,
            RECALL if self.phase == "recall" else OPEN,
            label=self.prediction,
            ticket=self.ticket,
            peer_ticket=self.peer_ticket,
            truth=self.truth,
            space=self.space,
            width=self.width,
        )


_CONTEXT, _PREDICTION, _ANSWER, _TRUTH = map(
    Ticket.__struct_fields__.index, ("context", "prediction", "answer", "truth")
)


class Line(msgspec.Struct, frozen=True):
    """A known cell of a desk's learner: where it stands in its tables, and its counters."""

    space: str
    line: int
    name: str
    counters: list[int]
    seen: list[tuple[Any, int]] = []
    desk: str = ""


class Truth(msgspec.Struct, frozen=True, gc=False):
    """The true label of a ticket, and whether what the arm said was right."""

    ticket: int
    label: Label
    is_right: bool
    desk: str = ""


class Owed(msgspec.Struct, frozen=True):
    """A label that a peer is to be told, under the id that it was asked with."""

    peer: str
    id: str
    label: Label


class Standing(msgspec.Struct, frozen=True):
    """How far a desk has come: its latest slot, and the tickets that its learner knows."""

    desk: str
    slot: int
    kept: range
    doubts: dict[str, list[int]] = {}
    latest: tuple[int, Label] | None = None  # own label of the latest slot, with that


class Batch(msgspec.Struct):
    """What is written together, or not at all."""

    standings: list[Standing] = []  # of desks that have moved
    lines: list[Line] = []
    tickets: list[Ticket] = []
    truths: list[Truth] = []
    owed: list[Owed] = []
    told: list[Owed] = []  # owed no longer
    lots: LotBatch = msgspec.field(default_factory=LotBatch)


class Saved(msgspec.Struct, frozen=True):
    """All that a desk's learner goes on from."""

    snapshot: Snapshot
    tickets: list[Ticket]  # that it still knows, labelled or not
    kept: range
    latest: tuple[int, Label] | None = None


class Loaded(msgspec.Struct, frozen=True):
    """All that a site goes on from."""

    desks: dict[str, Saved]  # the site's own, "", is always there
    counters: dict[tuple[str, str, str], tuple[int, int]]  # cell, source, arm -> labels, right
    owed: list[Owed]
    asked: dict[tuple[str, str], tuple[int, int]]  # cell, peer -> its answers, those with a label
    starts: int  # how often the store has been loaded
    lots: list[Lot] = []  # whose labels are waited for
    latest_lot: int = 0


def as_value(text: str) -> Any:
    """Return what was kept as text."""
    return msgspec.json.decode(text)


def row_of(ticket: Ticket) -> tuple[Any, ...]:
    """Return a ticket as the columns of its table; it is labelled later."""
    values = list(msgspec.structs.astuple(ticket))
    values[_CONTEXT] = as_text(ticket.context)
    values[_PREDICTION] = None if ticket.prediction is NO_ANSWER else as_text(ticket.prediction)
    values[_ANSWER] = None if ticket.answer is NO_ANSWER else as_text(ticket.answer)
    values[_TRUTH] = None
    return (*values, None)


def ticket_of(row: Sequence[Any]) -> Ticket:
    """Return a ticket from the columns of its table."""
    fields = dict(zip(Ticket.__struct_fields__, row, strict=False))
    fields["context"] = tuple(as_value(fields["context"]))
    for name in ("prediction", "answer"):
        fields[name] = NO_ANSWER if fields[name] is None else as_value(fields[name])
    fields["truth"] = UNKNOWN if fields["truth"] is None else as_value(fields["truth"])
    return Ticket(**fields)


def differing(old: str, new: str) -> list[str]:
    """Return which parts of two shapes differ, and how: only what one of them has alone."""
    before, now = _parts(old), _parts(new)
    if before.keys().isdisjoint(now):
        return ["what they were cannot be told from it"]
    return [
        f"{part}: {_change(before.get(part, []), now.get(part, []))}"
        for part in dict.fromkeys([*before, *now])
        if before.get(part) != now.get(part)
    ]


def _parts(shape: str) -> dict[str, list[str]]:
    """Return the values of a shape, part by part."""
    parts: dict[str, list[str]] = {}
    for line in shape.splitlines():
        part, _, value = line.partition(": ")
        parts.setdefault(part, []).append(value)
    return parts


def _change(before: list[str], now: list[str]) -> str:
    gone = [one for one in before if one not in now]
    come = [one for one in now if one not in before]
    if not gone and not come:
        return "the same in another order"
    return f"{_listed(gone)} before, {_listed(come)} now"


def _listed(values: list[str]) -> str:
    more = f" and {len(values) - 3} more" if len(values) > 3 else ""
    return ", ".join(values[:3]) + more if values else "nothing"
