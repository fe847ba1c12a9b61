"""The status of a site: what is counted while it works, and the record that it publishes."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec
import numpy as np

from covey.bandit.accounts import Account
from covey.bandit.learner import Learner
from covey.node.earned import TrustState
from covey.node.requests import FEW, RELAY, Arm, ArmKind, Counts, Request, is_own

FOR_PEERS = ("serve", "recall", RELAY)  # phases of rows that peers ask


class ArmState(msgspec.Struct, frozen=True):
    """An arm: what it answered since the start, and the labels of own clients."""

    name: str
    kind: ArmKind
    price: float | None  # of one answer; None: the arm is not used
    decisions: int  # rows of own clients
    served: int  # rows of peers
    spent: float  # on answers since the start
    labels: int  # over all cells, and over all starts
    right: int
    version: str = ""  # of an own function


class PeerState(msgspec.Struct, frozen=True):
    """A peer: `resting` while its circuit is open, `not asked` if it is in no arm."""

    name: str
    state: Literal["open", "resting", "over_budget", "not asked"]
    owed: int  # undelivered labels
    asked: int  # rows that it asked since the start
    spent_today: float = 0.0  # on its answers, since midnight (UTC)
    budget: float | None = None  # per day; None: there is no limit


class ServedState(msgspec.Struct, frozen=True):
    """What a site holds for peers that ask it."""

    open_tickets: int  # pending labels of isolated peers
    labels: int  # from peers, over all starts
    cells: int  # opened by isolated peers only


class AccountState(msgspec.Struct, frozen=True):
    """What the site gained and what it paid since the start, with its serving costs."""

    right: int  # own clients' labels that the arm got right
    paid: float  # for own functions and for asking
    served: int  # rows of peers that own functions answered
    served_cost: float
    utility: float


class ShadowState(msgspec.Struct, frozen=True):
    """Rows that were drawn for the shadow since the start, by what became of them."""

    share: float  # of the rows of own clients that are drawn
    asks_peers: bool
    complete: int  # all arms answered, or failed
    incomplete: int  # a function was busy, or a peer was not available or over its budget
    dropped: int  # too many rows were waiting, or the site stopped
    waiting: int


class ShardState(msgspec.Struct, frozen=True):
    """A process of a site that is served by several."""

    number: int  # from 1
    is_up: bool
    pid: int
    restarts: int  # after crashes, since the start of the site
    slot: int
    cells: int
    open_tickets: int
    labels: int  # of own clients, over all starts


class State(msgspec.Struct, frozen=True):
    """The status of a site."""

    name: str
    is_ready: bool
    starts: int  # of its store, this one included
    uptime_s: float
    slot: int
    alarms: int  # of the change detection, since the start
    alarm_slot: int  # of the latest alarm, over all starts; 0: there was none
    phases: dict[str, int]  # decisions since the start, those for peers included
    arms: list[ArmState]
    peers: list[PeerState]
    open_tickets: int  # pending labels
    cells: int  # that are known
    owed: int  # undelivered labels, to all peers
    for_peers: ServedState
    spent_today: float = 0.0  # on answers of all peers
    budget: float | None = None  # for these, per day
    alarms_total: int = 0  # of the change detection, over all starts
    alarm_slots: list[int] = []  # of the latest ones, over all starts
    account: AccountState | None = None  # None: it has no serving-cost
    horizon: int | None = None  # slots that the policy was chosen for; None: any number
    trust: list[TrustState] = []  # of peers with earned trust that have sent labels
    # Of an ensemble: the weights by cell ("": all cells) and learner.
    ensemble: dict[str, dict[str, float]] | None = None
    shadow: ShadowState | None = None  # None: no row is drawn
    shards: list[ShardState] = []  # none: one process serves it


class Payments(Protocol):
    """What peers are paid, as far as the status knows it."""

    def is_over(self, peer: str) -> bool: ...

    def today(self, peer: str) -> tuple[float, float | None]: ...


class Deliveries(Protocol):
    """Deliveries of labels to peers, as far as the status knows them."""

    def undelivered(self, peer: str) -> int: ...


class Breaker(Protocol):
    """A circuit breaker, as far as the status knows it."""

    @property
    def is_open(self) -> bool: ...


class Counters:
    """Counts decisions and labels."""

    def __init__(self, counters: Counts) -> None:
        """Continue from labels by cell, source and arm."""
        self.peer_labels = 0  # over all starts
        self.decisions: Counter[tuple[str, str]] = Counter()  # by phase and arm
        self.asked: Counter[str] = Counter()  # rows of each peer
        self.alarms: Counter[str] = Counter()  # of the change detection, by context space
        self._alarms_seen = 0
        self.spent: dict[str, float] = {}
        self.labels: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        self.waits: Counter[int] = Counter()  # for labels since the start, by the bits of slots
        self.waited_slots = 0
        self.alone = 0  # rows decided without peers because one of them failed
        self._add_labels(counters)
        self._right_before = self.right.total()

    def count_decisions(self, request: Request) -> None:
        """Count the rows of a request."""
        groups = request.groups
        counts = [len(request)]
        if not is_own(request.source):
            self.asked[request.source] += len(request)
        if len(groups) > 1:
            counts = np.bincount(request.group_of, minlength=len(groups)).tolist()
        for group, count in zip(groups, counts, strict=True):
            self.decisions[group.phase, group.arm] += count
            if group.price:
                self.spent[group.arm] = self.spent.get(group.arm, 0.0) + group.price * count

    def count_labels(
        self, request: Request, rows: Sequence[int], counted: Counts, slot: int
    ) -> None:
        """Count labels that arrived at `slot`, and how long they were pending."""
        if len(rows) <= FEW:
            for row in rows:
                waited = max(0, slot - request.slot_of(row))
                self.waits[waited.bit_length()] += 1
                self.waited_slots += waited
        else:
            many = np.maximum(0, slot - request.slots_of(rows))
            self.waits.update(np.frexp(many)[1].tolist())
            self.waited_slots += int(many.sum())
        self._add_labels(counted)

    def _add_labels(self, counted: Counts) -> None:
        for (_, source, arm), (labels, right) in counted.items():
            if is_own(source):
                self.labels[arm] += labels
                self.right[arm] += right
            else:
                self.peer_labels += labels

    def is_alarmed(self) -> bool:
        """Return whether there was an alarm since this was last asked."""
        before, self._alarms_seen = self._alarms_seen, self.alarms.total()
        return self._alarms_seen > before

    def take_over(self, old: "Counters") -> None:
        """Continue what is counted since the start."""
        self.decisions, self.spent, self.alone = old.decisions, old.spent, old.alone
        self.waits, self.waited_slots = old.waits, old.waited_slots
        self._right_before = old._right_before
        self.asked.update(old.asked)
        self.alarms.update(old.alarms)  # in place: the change detection counts here
        self._alarms_seen += old._alarms_seen

    def account(self, serving_cost: float) -> AccountState | None:
        """Return the account since the start; a peer's price may carry the serving cost or not."""
        if not serving_cost:
            return None
        served = sum(rows for (phase, _), rows in self.decisions.items() if phase == "serve")
        mine = Account(
            self.right.total() - self._right_before,
            sum(self.spent.values()),
            served,
            0.0,
            served * serving_cost,
        )
        right = int(mine.right)
        return AccountState(right, mine.paid, served, mine.served_cost, mine.utility)

    def phases(self) -> dict[str, int]:
        """Return the decisions of each phase."""
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


def peer_states(
    breakers: Mapping[str, Breaker],
    others: Sequence[str],
    payments: Payments,
    deliveries: Deliveries,
    counters: Counters,
) -> list[PeerState]:
    """Return the state of the peers that are asked, and of others that may ask."""
    states = []
    for peer, breaker in breakers.items():
        state: Literal["open", "resting", "over_budget"] = "resting" if breaker.is_open else "open"
        if payments.is_over(peer):
            state = "over_budget"
        spent, budget = payments.today(peer)
        asked = counters.asked[peer]
        states.append(PeerState(peer, state, deliveries.undelivered(peer), asked, spent, budget))
    return states + [
        PeerState(peer, "not asked", deliveries.undelivered(peer), counters.asked[peer])
        for peer in others
    ]


def arms_of(learner: Learner, counters: Counters, arms: Iterable[Arm] = ()) -> list[ArmState]:
    """Return the state of each arm; `arms` say under which ids their labels are counted."""
    known = {arm.name: arm for arm in arms if arm.place >= 0}
    plain = {arm: known.get(arm, Arm(arm, arm)) for arm in learner.arms}
    chosen: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for (phase, arm), count in counters.decisions.items():
        chosen[phase in FOR_PEERS][arm] += count
    return [
        ArmState(
            arm,
            kind,
            cost if math.isfinite(cost) else None,
            chosen[False][arm],
            chosen[True][arm],
            counters.spent.get(arm, 0.0),
            counters.labels[plain[arm].id],
            counters.right[plain[arm].id],
            plain[arm].version or "",
        )
        for (arm, kind), cost in zip(kinds_of(learner).items(), learner.costs, strict=True)
    ]
