"""The status of a site: what is counted while it works, and the record that it publishes."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from covey.bandit.learner import CellPreference, Learner
from covey.replay.outcome import Account
from covey.site.cells import kinds_of
from covey.site.earned import TrustState
from covey.site.requests import (
    FEW,
    HOUR_S,
    RELAY,
    SPANS_KEPT,
    Arm,
    ArmKind,
    Counts,
    Request,
    SeriesLine,
    is_own,
)
from covey.types import MILLIONTHS, Interval, Value

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
    peer: str = ""  # that is asked

    @property
    def right_percent(self) -> float | None:
        """The share of right answers; None without labels."""
        return 100 * self.right / self.labels if self.labels else None


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


class ShadowState(msgspec.Struct, frozen=True):
    """Rows that were drawn for the shadow since the start, by what became of them."""

    share: float  # of the rows of own clients that are drawn
    complete: int  # all arms answered, or failed
    incomplete: int  # a function was busy, or a peer was not available or over its budget
    dropped: int  # too many rows were waiting, or the site stopped
    waiting: int


# The net gain of a site over its best own function, on rows that all own functions answered.
FEWEST = 30  # rows from which on a gain is said


class GainState(msgspec.Struct, frozen=True):
    """What a site gains over its best own function, net of costs and without income from peers."""

    rows: int  # drawn ones with a label and the answers of all own functions
    needed: int = FEWEST
    best_own: str = ""  # the own function that would have gained most on these rows
    points: Interval | None = None  # hundredths of a right answer per row; None: too few rows
    value: Value | None = None  # of a right answer, if the file has it

    def __str__(self) -> str:
        if self.points is None:
            return f"unknown: {self.rows} of {self.needed} rows drawn so far"
        mean, low, high = self.points.mean, self.points.low, self.points.high
        money = ""
        if self.value is not None:
            money = f", or {mean * self.value.amount:+,.2f} {self.value.currency} in 100 rows"
        ends = f"95 % interval {low:+.2f} to {high:+.2f}"
        return f"{mean:+.2f} points{money}, over {self.best_own} on {self.rows:,} rows ({ends})"


class GainSums:
    """Sums, by own function, of what the site gained beyond it on the same rows."""

    def __init__(self, functions: Mapping[str, str]) -> None:
        """`functions` are the names of own functions by what their labels count as."""
        self._functions = dict(functions)
        self._rows = 0
        self._sums = [0.0] * len(functions)
        self._squares = [0.0] * len(functions)

    def take(
        self,
        request: Request,
        row: int,
        answers: Mapping[str, Any],
        costs: Sequence[float],
        gain_of: Any,
    ) -> None:
        """Count a labelled row, unless the answer of an own function to it is not known.

        `costs` are those of the functions; `gain_of` is what an answer gains, at most 1.
        """
        if not answers.keys() >= self._functions.keys():
            return
        label = request.truths[row]
        served = gain_of(request.answers[row], label) - request.group(row).price
        gains = [
            (0.0 if answers[id_] is None else gain_of(answers[id_], label)) - cost
            for id_, cost in zip(self._functions, costs, strict=False)  # peers cost, too
        ]
        self.add([served - gain for gain in gains])

    def add(self, differences: Sequence[float]) -> None:
        """Count what a row gained beyond each function."""
        self._rows += 1
        for place, difference in enumerate(differences):
            self._sums[place] += difference
            self._squares[place] += difference**2

    def state(self) -> GainState:
        """Return the gain over the function that would have gained most.

        The interval holds for the best of all of them: its low end allows for each. One row more
        is taken to have gained, and one to have lost: a few rows without a difference do not show
        that there is none.
        """
        rows = self._rows
        if rows < FEWEST or not self._functions:
            return GainState(rows)
        names = list(self._functions.values())
        means = [total / rows for total in self._sums]
        errors = [
            math.sqrt(max(0.0, squares + 2 - rows * mean**2)) / rows
            for squares, mean in zip(self._squares, means, strict=True)
        ]
        low, high = (NormalDist().inv_cdf(1 - level / 2) for level in (0.05 / len(names), 0.05))
        pairs = list(zip(means, errors, strict=True))
        best = min(range(len(names)), key=means.__getitem__)
        ends = min(m - low * e for m, e in pairs), min(m + high * e for m, e in pairs)
        return GainState(
            rows,
            best_own=names[best],
            points=Interval(100 * means[best], *(100 * end for end in ends)),
        )


class AxisState(msgspec.Struct, frozen=True):
    """A context: its name, and what some places from 0 to 1 stand for."""

    name: str
    ticks: Sequence[Sequence[float | str]]  # pairs: a place and its value


class MapState(msgspec.Struct, frozen=True):
    """The cells with the most arrivals, in each context space; their places are axes."""

    axes: list[AxisState]
    cells: list[CellPreference]


class SeriesPoint(msgspec.Struct, frozen=True):
    """What happened in a minute or an hour; a label counts when it comes."""

    at: int  # its begin, in seconds since 1970
    decisions: int  # rows of own clients
    labels: int
    right: int
    cost: float  # of answers


class SiteEvent(msgspec.Struct, frozen=True):
    """A line of the log."""

    at: float  # seconds since 1970
    level: str  # info, warning or error
    text: str


class SiteCondition(msgspec.Struct, frozen=True):
    """What needs a person now."""

    kind: str
    subject: str  # the peer, function or token that it is about; "" is the site
    level: Literal["warning", "error"]
    text: str
    remedy: str
    since: float  # seconds since 1970


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
    account: Account | None = None  # over all starts
    horizon: int | None = None  # slots that the policy was chosen for; None: any number
    trust: list[TrustState] = []  # of peers with earned trust that have sent labels
    # Of an ensemble: the weights by cell ("": all cells) and learner.
    ensemble: dict[str, dict[str, float]] | None = None
    shadow: ShadowState | None = None  # None: no row is drawn
    gain: GainState | None = None  # over the best own function; None: no row is drawn
    why: str = ""  # it is not ready
    conditions: list[SiteCondition] = []  # errors first
    labels: int = 0  # of own clients, over all starts and all arms, retired ones included
    right: int = 0  # of these
    at: float = 0.0  # when this was read, in seconds since 1970
    in_progress: int = 0  # requests that are being answered
    waiting: int = 0  # requests that wait for their turn
    store_bytes: int | None = None  # None: it is in a database
    free_bytes: int | None = None  # on the disk of the store
    minutes: list[SeriesPoint] = []  # of the last hour in which anything happened
    hours: list[SeriesPoint] = []  # of the last day
    events: list[SiteEvent] = []  # the latest first
    failures: dict[str, int] = {}  # of calls of each own function, since the start
    certificate_ends: float | None = None  # in seconds since 1970; None: there is none
    map: MapState | None = None  # None: the request asks for no cells


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

    def count_decisions(self, request: Request) -> None:
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
        self.asked.update(old.asked)
        self.alarms.update(old.alarms)  # in place: the change detection counts here
        self._alarms_seen += old._alarms_seen

    def phases(self) -> dict[str, int]:
        """Return the decisions of each phase."""
        phases: Counter[str] = Counter()
        for (phase, _), count in self.decisions.items():
            phases[phase] += count
        return dict(phases)


def arms_of(learner: Learner, counters: Counters, arms: Iterable[Arm]) -> list[ArmState]:
    """Return the state of each arm; `arms` say under which ids their labels are counted."""
    by_name = {arm.name: arm for arm in arms if arm.place >= 0}
    behind = [peer for peer, _ in learner.behind()]
    peers = [""] * (len(learner.arms) - len(behind)) + behind
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
            counters.labels[by_name[arm].id],
            counters.right[by_name[arm].id],
            by_name[arm].version,
            peer,
        )
        for (arm, kind), cost, peer in zip(
            kinds_of(learner).items(), learner.costs, peers, strict=True
        )
    ]


MINUTE_S, DAY_S = 60, 86_400
TOGETHER_S = 300  # for which minutes wait to be written together


class Tally(NamedTuple):
    """Rows of an arm that were decided, labelled and right, and what they cost in millionths."""

    decisions: int = 0
    labels: int = 0
    right: int = 0
    cost: int = 0

    def plus(self, other: "Tally") -> "Tally":
        return Tally(*(own + more for own, more in zip(self, other, strict=True)))

    def since(self, before: "Tally") -> "Tally":
        """Return what was added; nothing if counting began again."""
        added = Tally(*(now - then for now, then in zip(self, before, strict=True)))
        return added if min(added) >= 0 else Tally()

    def most(self, other: "Tally") -> "Tally":
        """Return the larger one of each count."""
        return Tally(*map(max, self, other))


class SiteHistory:
    """The tallies of each arm by minute, hour and day.

    Spans that are over are written every five minutes, along with another commit, so that they
    cost no write of their own. Until an hour is written it is the sum of its minutes in the store,
    and a day that of its hours.
    """

    def __init__(self, lines: Iterable[SeriesLine] = ()) -> None:
        self._buckets: dict[tuple[int, int], dict[str, Tally]] = {}
        for line in lines:
            tallies = {arm: Tally(*counts) for arm, counts in line.counts.items()}
            self._buckets[line.every_s, line.at] = tallies
        self._totals: dict[str, Tally] | None = None
        self._changed: set[tuple[int, int]] = set()  # unwritten
        self._due_s = math.inf  # when the first unwritten minute has waited enough
        self._complete(HOUR_S, MINUTE_S)
        self._complete(DAY_S, HOUR_S)

    def _complete(self, every_s: int, of_s: int) -> None:
        """Add what the store has of the parts of a span, which ended before it was written."""
        sums: dict[tuple[int, int], dict[str, Tally]] = {}
        for (size, at), bucket in self._buckets.items():
            if size == of_s:
                whole = sums.setdefault((every_s, at // every_s * every_s), {})
                for arm, tally in bucket.items():
                    whole[arm] = whole.get(arm, Tally()).plus(tally)
        for key, tallies in sums.items():
            known = self._buckets.get(key, {})
            # Of an old span the store no longer has all parts.
            most = {arm: tally.most(known.get(arm, Tally())) for arm, tally in tallies.items()}
            if known != known | most:
                self._buckets[key] = known | most
                self._changed.add(key)

    def note(self, arms: Iterable[ArmState], now_s: float) -> None:
        """Add what has happened since this was last called; the first call only begins."""
        totals = {
            arm.name: Tally(arm.decisions, arm.labels, arm.right, round(arm.spent * MILLIONTHS))
            for arm in arms
        }
        before, self._totals = self._totals, totals
        if before is None:
            return
        added = {arm: tally.since(before[arm]) for arm, tally in totals.items() if arm in before}
        added = {arm: tally for arm, tally in added.items() if any(tally)}
        if added:
            for every_s in (MINUTE_S, HOUR_S, DAY_S):
                self._add((every_s, int(now_s) // every_s * every_s), added)
            self._forget(now_s)

    def _add(self, key: tuple[int, int], added: Mapping[str, Tally]) -> None:
        bucket = self._buckets.setdefault(key, {})
        for arm, tally in added.items():
            bucket[arm] = bucket.get(arm, Tally()).plus(tally)
        self._changed.add(key)
        if key[0] == MINUTE_S:
            self._due_s = min(self._due_s, key[1] + TOGETHER_S)

    def _forget(self, now_s: float) -> None:
        for key in [bucket for bucket in self._buckets if bucket[0] in SPANS_KEPT]:
            if key[1] <= now_s - SPANS_KEPT[key[0]] - key[0]:
                del self._buckets[key]
                self._changed.discard(key)

    # -- the store ------------------------------------------------------------------------------

    def due(self, now_s: float, *, is_last: bool = False) -> list[SeriesLine]:
        """Return what to write now: spans that are over, once one of them has waited enough.

        `is_last`: nothing waits, and this minute is written, too.
        """
        if now_s < self._due_s and not is_last:
            return []
        due = [key for key in self._changed if sum(key) <= now_s or (is_last and key[0] < HOUR_S)]
        return [self._line(key) for key in due]

    def written(self, lines: Sequence[SeriesLine]) -> None:
        """Note that lines are in the store; those that have changed meanwhile stay due."""
        if not lines:
            return
        for line in lines:
            key = (line.every_s, line.at)
            if key in self._changed and self._line(key) == line:
                self._changed.discard(key)
        minutes = (at for every_s, at in self._changed if every_s == MINUTE_S)
        self._due_s = min(minutes, default=math.inf) + TOGETHER_S

    def _line(self, key: tuple[int, int]) -> SeriesLine:
        return SeriesLine(*key, {arm: tuple(tally) for arm, tally in self._buckets[key].items()})

    # -- reading --------------------------------------------------------------------------------

    def points(self, every_s: int, since_s: float) -> list[SeriesPoint]:
        """Return the sums over all arms, by time."""
        points = []
        for size, at in sorted(self._buckets):
            if size == every_s and at >= since_s:
                whole = Tally()
                for tally in self._buckets[size, at].values():
                    whole = whole.plus(tally)
                points.append(SeriesPoint(at, *whole[:3], whole.cost / MILLIONTHS))
        return points
