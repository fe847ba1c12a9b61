"""How a site stands: what is counted while it works, and what it tells of that."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
import numpy as np

from covey.learner import Learner
from covey.lots import Counted, Lot
from covey.records import Ticket
from covey.schema import UNCOUNTED

ArmKind = Literal["own", "peer", "context_only"]


class ArmState(msgspec.Struct, frozen=True):
    """An arm: how often it was chosen since the start, and what the labels of own clients say."""

    name: str
    kind: ArmKind
    price: float | None  # of one answer; None: it is not to be asked
    decisions: int
    spent: float  # on answers since the start
    labels: int  # over all cells, and over all starts
    right: int


class PeerState(msgspec.Struct, frozen=True):
    """A peer that may be asked: `resting` if it failed often or is busy, and is left alone."""

    name: str
    state: Literal["open", "resting"]
    owed: int  # labels that it is still to be told


class ForPeers(msgspec.Struct, frozen=True):
    """What a site has of those who ask it."""

    open_tickets: int  # of peers whose labels are kept apart
    labels: int  # that peers have said, over all starts
    cells: int  # that only they have made known


class State(msgspec.Struct, frozen=True):
    """A site as it stands."""

    name: str
    is_ready: bool
    starts: int  # of its store, this one included
    uptime_s: float
    slot: int
    phases: dict[str, int]  # decisions since the start, those for peers included
    arms: list[ArmState]
    peers: list[PeerState]
    open_tickets: int  # whose label is waited for
    cells: int  # that are known
    owed: int  # labels, to all peers
    for_peers: ForPeers


class Ledger:
    """Counts decisions and labels as they come."""

    def __init__(self, counted: Iterable[tuple[str, int, int]] = ()) -> None:
        """Go on from arms with their labels of own clients, and how many of these were right."""
        self.labels_of_peers = 0  # over all starts
        self.decisions: Counter[tuple[str, str]] = Counter()  # by phase and arm
        self.spent: dict[str, float] = {}
        self.labels: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        self.waits: Counter[int] = Counter()  # for labels since the start, by the bits of slots
        self.waited_slots = 0
        self.alone = 0  # rows decided as if there were no peers, since one of them failed
        for arm, labels, right in counted:
            self.labels[arm] += labels
            self.right[arm] += right

    def decide(self, ticket: Ticket) -> None:
        """Count a ticket that was given out."""
        self.decisions[ticket.phase, ticket.arm] += 1
        if ticket.price:
            self.spent[ticket.arm] = self.spent.get(ticket.arm, 0.0) + ticket.price

    def settle(self, ticket: Ticket, *, is_right: bool, is_own: bool, slot: int) -> None:
        """Count a label that came at `slot`, and how long it was waited for."""
        waited = max(0, slot - ticket.slot)
        self.waits[waited.bit_length()] += 1
        self.waited_slots += waited
        if ticket.phase in UNCOUNTED:
            return
        if not is_own:
            self.labels_of_peers += 1
        else:
            self.labels[ticket.arm] += 1
            self.right[ticket.arm] += is_right

    def decide_lot(self, lot: Lot) -> None:
        """Count the rows of a lot that was given out."""
        for kind, count in zip(lot.kinds, np.bincount(lot.which).tolist(), strict=True):
            self.decisions[kind.phase, kind.arm] += count
            if kind.price:
                self.spent[kind.arm] = self.spent.get(kind.arm, 0.0) + kind.price * count

    def settle_lot(self, slots: np.ndarray, counted: Counted, slot: int) -> None:
        """Count labels of own rows, by the slots of these, that came at `slot`."""
        waited = np.maximum(0, slot - slots)
        for bits, count in enumerate(np.bincount(np.frexp(waited)[1]).tolist()):
            if count:
                self.waits[bits] += count
        self.waited_slots += int(waited.sum())
        for (_, _, arm), (labels, right) in counted.items():
            self.labels[arm] += labels
            self.right[arm] += right

    def phases(self) -> dict[str, int]:
        """Return how often each phase was decided."""
        phases: Counter[str] = Counter()
        for (phase, _), count in self.decisions.items():
            phases[phase] += count
        return dict(phases)


def kinds_of(learner: Learner) -> dict[str, ArmKind]:
    """Return the kinds of the arms by their names."""
    behind = learner.behind()
    own: list[ArmKind] = ["own"] * (len(learner.arms) - len(behind))
    others: list[ArmKind] = ["context_only" if is_blind else "peer" for _, is_blind in behind]
    return dict(zip(learner.arms, own + others, strict=True))


def arms_of(learner: Learner, ledger: Ledger, prices: Mapping[str, float]) -> list[ArmState]:
    """Return the arms; `prices` has what peers cost, also those that are not asked for now."""
    chosen: Counter[str] = Counter()
    for (_, arm), count in ledger.decisions.items():
        chosen[arm] += count
    own = learner.costs[: len(learner.arms) - len(prices)]
    costs = [*own, *(prices[peer] for peer, _ in learner.behind())]
    return [
        ArmState(
            arm,
            kind,
            cost if math.isfinite(cost) else None,
            chosen[arm],
            ledger.spent.get(arm, 0.0),
            ledger.labels[arm],
            ledger.right[arm],
        )
        for (arm, kind), cost in zip(kinds_of(learner).items(), costs, strict=True)
    ]
