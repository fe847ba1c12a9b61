"""What a replay found: numbers of learners and of all, with what is drawn of them."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from covey.bandit.partitions import space_of
from covey.config import LearnerSpec, Payments
from covey.data.logs import EncodedLog, Rows, Trace
from covey.replay.baselines import BaselineNumbers
from covey.replay.engine import CellView
from covey.types import BY_CONTEXT, Array, Interval, Phase, Value

CERTAINTY = 0.95
DIGITS = 9  # of differences, which have rounding errors
MOST_BATCHES = 32
FEWEST_BATCHES = 8  # with fewer there is no interval


class PairNumbers(msgspec.Struct, frozen=True):
    """What a learner got from one peer."""

    peer: str
    asked: int
    paid: float
    judged: int  # asked rows that have a label
    right: float  # answers of the peer among them
    best_own: str | None = None  # the own function that is right most often on the same rows
    best_own_right: float = 0
    worth_points: Interval | None = None  # right answers over that function's, less the price

    @property
    def right_percent(self) -> float | None:
        """How often the peer was right."""
        return percent(self.right, self.judged)

    @property
    def best_own_percent(self) -> float | None:
        """How often the best own function would have been."""
        return percent(self.best_own_right, self.judged) if self.best_own else None


def gain_of(
    sums: Sequence[float] | Array, counts: Sequence[float] | Array, *, comparisons: int = 1
) -> Interval | None:
    """Return the mean of what consecutive buckets hold, in points, and its interval.

    Points are hundredths of a right answer per slot; without rows there is no mean.

    `sums` has the gain of each bucket, `counts` its labelled rows. The intervals of so many
    `comparisons` hold all together in 95 % of the cases (Bonferroni).
    """
    sums, counts = np.asarray(sums, float), np.asarray(counts, float)
    total = counts.sum()
    if not total:
        return None
    mean = float(sums.sum() / total)
    edges = np.unique(np.searchsorted(np.cumsum(counts), _thresholds(total), side="left"))
    batches = len(edges)
    if batches < FEWEST_BATCHES:
        return Interval(100 * mean)
    starts = np.concatenate([[0], edges[:-1] + 1])
    residuals = np.add.reduceat(sums - mean * counts, starts)
    variance = batches / (batches - 1) * float(np.square(residuals).sum()) / total**2
    certainty = 1 - (1 - CERTAINTY) / comparisons
    half_width = student(batches - 1, certainty) * math.sqrt(variance)
    return Interval(100 * mean, 100 * (mean - half_width), 100 * (mean + half_width))


def aligned(parts: Sequence[tuple[int, Array, Array]]) -> tuple[Array, Array]:
    """Return the sums of several learners in buckets of the same length.

    Each part has the slots per bucket, and per bucket the gain and the labelled rows.
    """
    width = max(slots for slots, _, _ in parts)
    buckets = max(len(counts) * slots for slots, _, counts in parts) // width + 1
    sums, totals = np.zeros(buckets), np.zeros(buckets)
    for slots, gained, counts in parts:
        place = np.arange(len(counts)) * slots // width
        sums += np.bincount(place, gained, minlength=buckets)
        totals += np.bincount(place, counts, minlength=buckets)
    return sums, totals


def _thresholds(total: float) -> Array:
    """Return the numbers of rows after which batches end."""
    batches = min(MOST_BATCHES, int(total))
    return total * np.arange(1, batches + 1) / batches - 1e-9 * total


def student(freedom: int, certainty: float = CERTAINTY) -> float:
    """Return the half-width of Student's interval in standard errors.

    >>> round(student(4), 3)
    2.776
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < certainty else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """Return the probability of |t| < sqrt(freedom) * tan(angle), a finite sum of cosines."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for power in range(is_odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return (angle + sine * total) * 2 / math.pi if is_odd else sine * total


class Account(msgspec.Struct, frozen=True):
    """What a site did with the others; amounts in units of a right answer."""

    bought: int  # answers of peers
    sold: int  # answers to peers
    paid: float  # to peers
    earned: float  # from peers
    serving_cost: float  # of the answers to peers
    balance: float  # earned less paid and serving cost
    spent: float  # on what nobody receives: own functions, links, cost columns
    right: float  # own right answers
    utility: float  # right answers less what was spent, and the balance


class Dealings(msgspec.Struct):
    """What one site did, as far as accounts need it."""

    right: float = 0.0
    cost: float = 0.0  # of all its decisions
    asked: dict[str, int] = {}  # arm -> answers; those of own functions do not matter
    prices: dict[str, float] = {}  # arm -> sum of what was paid, where prices change

    def mean_price(self, arm: str) -> float:
        return self.prices.get(arm, 0.0) / max(1, self.asked.get(arm, 0))


def settle_accounts(
    dealings: Mapping[str, Dealings], payments: Payments, serving_costs: Mapping[str, float]
) -> dict[str, Account]:
    """Return the account of every site by name."""
    sums = {name: dict.fromkeys(_SUMMED, 0.0) for name in dealings}
    for name, dealing in dealings.items():
        _add(sums[name], spent=dealing.cost)
        for arm, times in dealing.asked.items():
            path = payments.get((name, arm))
            if path is None:
                continue
            _add(sums[name], spent=-times * path[0].amount)
            for payer, receiver, amount in path:
                _add(sums[payer], bought=times, paid=times * amount)
                _add(sums[receiver], sold=times, earned=times * amount)
            if not arm.endswith(BY_CONTEXT):  # else no function runs
                server = path[-1].receiver
                _add(sums[server], serving_cost=times * serving_costs.get(server, 0.0))
    return {name: account_of(dealing.right, **sums[name]) for name, dealing in dealings.items()}


def total_account(accounts: Iterable[Account]) -> Account:
    """Return the account of all sites: what they pay each other has no effect on its balance."""
    every = [*accounts]
    names = ("right", *_SUMMED)
    return account_of(**{name: sum((getattr(own, name) for own in every), 0.0) for name in names})


_SUMMED = ("bought", "sold", "paid", "earned", "serving_cost", "spent")


def _add(sums: dict[str, float], **more: float) -> None:
    for name, amount in more.items():
        sums[name] += amount


def account_of(right: float, **sums: float) -> Account:
    """Return the account of these right answers and sums."""
    balance = round(sums["earned"] - sums["paid"] - sums["serving_cost"], DIGITS) + 0.0  # not -0.0
    spent = round(sums["spent"], DIGITS) + 0.0
    whole: Any = {name: int(sums[name]) for name in ("bought", "sold")}
    known = {**sums, **whole, "spent": spent}
    return Account(**known, balance=balance, right=right, utility=right - spent + balance)


class ChoiceEstimate(msgspec.Struct, frozen=True):
    """The error of a fixed choice over labelled rows, in percent, with its 95 % interval."""

    choice: str
    rows: int  # that the estimate is for
    drawn: int  # of these, those whose answer is known by the draw
    missing: int  # drawn rows whose answer is not known; they widen the interval
    error_percent: float | None
    low_percent: float | None
    high_percent: float | None
    price: float | None = None  # of an answer, as it was last paid; None: not known


class PeerRows(msgspec.Struct, frozen=True):
    """A peer beside the own functions, on the drawn rows that it answered."""

    peer: str
    rows: int
    error_percent: float | None
    best_own: str | None  # with the fewest errors on the same rows
    best_own_percent: float | None


class ShadowNumbers(msgspec.Struct, frozen=True):
    """What rows that were run in the shadow tell."""

    rows: int  # own rows since rows are drawn, as far as they are stored
    labelled: int
    drawn: int
    complete: int  # drawn rows whose answers are all known
    served_percent: float | None  # error of what was answered, on labelled rows
    estimates: list[ChoiceEstimate]
    peers: list[PeerRows]
    gain: str = ""  # over the best own function, in words; empty: no row is drawn now


class Timeline(msgspec.Struct, frozen=True):
    """Counts of one learner in time buckets of equal length."""

    slots_per_bucket: int
    slots: list[int]
    judged: list[int]  # slots with a true label in the log
    errors: list[float]
    train: list[int]
    explore: list[int]
    spent: list[float] = []  # paid in slots with a true label
    gain: list[float] = []  # over the best own function, net of costs and with income
    income: list[float] = []  # from peers, less what serving them costs


class ArmNumbers(msgspec.Struct, frozen=True):
    """What the rows of one arm came to."""

    decisions: int
    judged: int  # those with a label
    errors: int
    cost_total: float


class AlarmNumbers(msgspec.Struct, frozen=True):
    """How many alarms there were, and the slots of the latest."""

    count: int
    slots: list[int]


class LearnerNumbers(msgspec.Struct, frozen=True):
    """The numbers of one learner, all of its own rows; None where unknown."""

    slots: int
    errors: float | None  # a whole number, unless answers can be partly correct
    error_percent: float | None
    train_percent: float | None
    explore_percent: float | None
    exploit_percent: float | None
    cost_total: float | None
    arms: dict[str, int]  # arm -> times chosen
    alone_percent: float | None  # error of the same policy without peers
    best_own: str | None  # the own function with the fewest errors on the same rows
    best_own_percent: float | None
    net_gain_points: Interval | None  # over that function, net of costs, with what peers pay
    pairs: list[PairNumbers]  # peers that were asked
    alarms: AlarmNumbers
    buyer_gain_points: Interval | None = None  # without income and serving costs
    account: Account | None = None
    candidates: dict[str, int] | UnsetType = UNSET  # context -> decisions, if there are several
    stood_in: int | UnsetType = UNSET  # own answers because the chosen peer was late or failed
    by_arm: dict[str, ArmNumbers] | UnsetType = UNSET  # of a served site

    @property
    def cost_points(self) -> float | None:
        """What a slot cost, in hundredths of a right answer."""
        return percent(self.cost_total, self.slots)


class TotalNumbers(msgspec.Struct, frozen=True):
    """The numbers of all learners together; percents are weighted by slots."""

    slots: int
    error_percent: float | None
    cost_points: float | None
    best_own_percent: float | None
    net_gain_points: Interval | None
    alone_percent: float | None
    train_percent: float | None
    explore_percent: float | None
    alarms: AlarmNumbers
    buyer_gain_points: Interval | None = None  # of all as buyers: payments between sites count
    account: Account | None = None


class ContextNumbers(msgspec.Struct, frozen=True):
    """Errors and costs in points, hundredths of a right answer per labelled row."""

    none_points: float  # the same policy without contexts
    given_points: float
    best_own_points: float | None  # each learner's best own function in hindsight, if it has one
    gain_points: Interval | None  # of the given contexts over none


class BestFunction(msgspec.Struct, frozen=True):
    """The function that is right most often in a part of an axis."""

    low: float | str  # in the units of the column
    high: float | str
    function: str


class TellingContext(msgspec.Struct, frozen=True):
    """A context by which a better function can be chosen than one function for all rows."""

    context: str
    gain_points: Interval  # right answers, chosen on one half of the rows and counted on the other
    best: list[BestFunction]


class ContextWorth(msgspec.Struct, frozen=True):
    """What contexts were worth to all learners and to each, and which of them tell most."""

    total: ContextNumbers
    learners: dict[str, ContextNumbers]
    telling: list[TellingContext]  # those whose gain is more than chance, the largest first


class EnsembleNumbers(msgspec.Struct, frozen=True):
    """The errors of an ensemble and of its best member, and the final weights."""

    title: str
    errors: int | None
    error_percent: float | None
    exploit_errors: int | None  # in slots in which every learner exploited
    exploit_error_percent: float | None
    best_member: str
    best_member_error_percent: float | None
    weights: dict[str, dict[str, float]]  # cell ("all": global) -> learner -> final weight


class Summary(msgspec.Struct, frozen=True):
    """The numbers of a replay, and its JSON; docs/reference/summary.md describes every field."""

    version: str
    policy: str
    slots: int
    total: TotalNumbers
    learners: dict[str, LearnerNumbers]
    functions: dict[str, float | None]  # function -> error percent over the log
    ensemble: EnsembleNumbers | UnsetType = UNSET
    baselines: dict[str, BaselineNumbers] | UnsetType = UNSET
    shadow: ShadowNumbers | UnsetType = UNSET  # of a served site
    contexts: ContextWorth | UnsetType = UNSET  # of a replay with contexts
    value: Value | UnsetType = UNSET  # of a right answer


class LearnerOutcome(msgspec.Struct, frozen=True):
    """One learner: its numbers, and what is drawn of it."""

    name: str
    functions: list[str]
    judged: int  # slots with a true label in the log
    numbers: LearnerNumbers
    timeline: Timeline
    cells: list[CellView]
    blind: int = 0  # decisions with no label at this learner or at any of its peers
    alarms: list[int] = []  # slots of all alarms of the change detection


class EnsembleOutcome(msgspec.Struct, frozen=True):
    """An ensemble over the learners of a replay."""

    numbers: EnsembleNumbers
    mean_weights: dict[str, float]  # over the cells, weighted by their slots


_OPTIONAL = ("baselines", "shadow", "contexts", "value")  # fields of a summary


class Outcome(msgspec.Struct, frozen=True):
    """What a replay found, or what a store holds: numbers, and what is drawn of them."""

    slots: int
    dimension: int
    context_names: list[str]
    policy: str  # one-line description
    learners: list[LearnerOutcome]
    functions: dict[str, float | None]
    total: TotalNumbers
    ensemble: EnsembleOutcome | None = None
    spaces: int = 1  # number of context spaces
    baselines: dict[str, BaselineNumbers] | None = None  # when requested
    # Per context: places on its axis from 0 to 1, and what they stand for.
    context_ticks: list[list[tuple[float, float | str]]] = []
    shadow: ShadowNumbers | None = None
    contexts: ContextWorth | None = None
    value: Value | None = None  # of a right answer

    @property
    def accounts(self) -> dict[str, Account]:
        """What the sites did with each other."""
        pairs = [(learner.name, learner.numbers.account) for learner in self.learners]
        return {name: account for name, account in pairs if account is not None}

    @property
    def is_replayed(self) -> bool:
        """Whether all functions answered every row, so that they can be compared."""
        return bool(self.functions)

    @property
    def summary(self) -> Summary:
        """All numbers."""
        return Summary(
            version=version("covey"),
            policy=self.policy,
            slots=self.slots,
            total=self.total,
            learners={learner.name: learner.numbers for learner in self.learners},
            functions=self.functions,
            ensemble=UNSET if self.ensemble is None else self.ensemble.numbers,
            **{name: getattr(self, name) or UNSET for name in _OPTIONAL},
        )


def percent(part: float | None, whole: int) -> float | None:
    """Return a part in percent; None of nothing, or if it is not known."""
    return 100 * part / whole if whole and part is not None else None


def total_of(
    learners: Sequence[LearnerNumbers], gain: Interval | None, as_buyers: Interval | None = None
) -> TotalNumbers:
    """Return the numbers of learners together; `gain` is theirs, also `as_buyers`."""

    def mean(name: str) -> float | None:
        values = [(learner.slots, getattr(learner, name)) for learner in learners]
        weighted = [(slots, value) for slots, value in values if value is not None]
        weight = sum(slots for slots, _ in weighted)
        return sum(slots * value for slots, value in weighted) / weight if weight else None

    accounts = [learner.account for learner in learners if learner.account is not None]
    return TotalNumbers(
        slots=sum(learner.slots for learner in learners),
        cost_points=mean("cost_points"),
        **{f"{name}_percent": mean(f"{name}_percent") for name in _PERCENTS},
        net_gain_points=gain,
        alarms=AlarmNumbers(
            sum(learner.alarms.count for learner in learners),
            sorted(slot for learner in learners for slot in learner.alarms.slots)[-LATEST:],
        ),
        buyer_gain_points=as_buyers,
        account=total_account(accounts) if accounts else None,
    )


_PERCENTS = ("error", "best_own", "alone", "train", "explore")
LATEST = 100  # alarms whose slots are listed
MOST_BUCKETS = 256
BILLION = 10**9  # Sums are whole numbers of billionths: so they do not depend on order or chunks.


def _billionths(numbers: Array) -> Array:
    return np.rint(np.multiply(numbers, BILLION, dtype=float))


def _sum(numbers: Array) -> int:
    return int(_billionths(numbers).sum())


def _summed(buckets: Array, numbers: Array, count: int) -> Array:
    """Return the sums of numbers in so many buckets."""
    is_whole = numbers.dtype.kind in "bi"  # nearly all are
    numbers = numbers if is_whole else _billionths(numbers)
    sums: Array = np.bincount(buckets, numbers, minlength=count).astype(np.int64)
    return sums * BILLION if is_whole else sums


class OutcomeBuilder:
    """Sums over the chunks of a replay; its memory does not grow with the log."""

    def __init__(
        self,
        sites: Sequence[LearnerSpec],
        unit: int = 1,
        payments: Payments | None = None,
        *,
        has_gains: bool = True,
    ) -> None:
        """Without `payments` there are no accounts; without gains no best own functions."""
        self._unit = unit
        self._payments = payments
        self._serving = {site.name: site.serving_cost for site in sites}
        self._functions = [name for site in sites for name in site.functions]
        names = [site.name for site in sites]
        arms = [*self._functions, *names, *(name + BY_CONTEXT for name in names)]
        # The owner of each function; answers from memory have none.
        owners = [index for index, site in enumerate(sites) for _ in site.functions]
        ends = [*accumulate(len(site.functions) for site in sites)]
        self._learners = [
            _Learner(
                site,
                arms,
                range(end - has_gains * len(site.functions), end),
                len(self._functions),
            )
            for site, end in zip(sites, ends, strict=True)
        ]
        self._by_name = dict(zip(names, self._learners, strict=True))
        if len(sites) > MOST_PAIRED:
            for learner in self._learners:
                learner.pair_buckets = 1
        self._owners = np.array(owners + [-1] * len(sites))
        self._slots = self._judged = 0
        self._wrong = np.zeros(len(self._functions), np.int64)  # the errors of each function
        # How often each code occurs, among labels and in the answers of each function.
        self._labels: Array = np.zeros(0, np.int64)
        self._answers: list[Array] = [self._labels] * len(self._functions)

    def add(self, together: Trace, alone: Trace) -> None:
        """Add the same rows, replayed with peers and without."""
        for index, learner in enumerate(self._learners):
            rows = together.rows_of(index)
            learner.add(together, rows)
            is_asked = together.arm[rows] >= len(self._functions)
            is_own = self._owners[together.function[rows]] == index
            learner.stood_in += int(np.count_nonzero(is_asked & is_own))
            if self._payments is not None:
                self._pay(learner, together, rows, self._payments)
            learner.alone_errors += _sum(_errors(alone.correct[alone.rows_of(index)]))

    def _pay(self, asker: "_Learner", trace: Trace, rows: Rows, payments: Payments) -> None:
        """Count what peers get for their answers, and what those cost them."""
        arm, slot, correct = trace.arm[rows], trace.slot[rows], trace.correct[rows]
        for code in np.unique(arm[arm >= len(self._functions)]).tolist():
            at = np.flatnonzero(arm == code)
            name = asker.arms[code]
            path = payments[asker.name, name]
            asker.add_amount(TRANSFERRED, slot[at[correct[at] >= 0]], path[0].amount)
            for payer, receiver, amount in path:
                self._by_name[receiver].add_amount(INCOME, slot[at], amount)
                if payer != asker.name:
                    self._by_name[payer].add_amount(INCOME, slot[at], -amount)
            if not name.endswith(BY_CONTEXT):
                server = path[-1].receiver
                self._by_name[server].add_amount(SERVED, slot[at], self._serving[server])

    def add_functions(self, log: EncodedLog) -> None:
        """Add the errors that every function would have made."""
        labels = np.asarray(log.labels)
        judged = labels >= 0
        self._slots += len(labels)
        self._judged += int(np.count_nonzero(judged))
        if log.gains is not None:
            errors = 1.0 - np.asarray(log.gains)[:, judged] / self._unit
            self._wrong += _billionths(errors).sum(axis=1).astype(np.int64)
            return
        self._labels = _counted(self._labels, labels)
        for k, row in enumerate(np.asarray(log.predictions)):
            self._wrong[k] += _sum((row != labels) & judged)
            self._answers[k] = _counted(self._answers[k], row)

    def gains(self) -> "list[RowGains]":
        """Return what labelled rows came to, by learner."""
        return [learner.gains() for learner in self._learners]

    def unfit(self) -> dict[str, float]:
        """Return the functions of whose answers most are no label of the log, and their share."""
        codes = np.flatnonzero(self._labels)
        if len(codes) < 2:  # too few to tell
            return {}
        unfit = {}
        for name, counts in zip(self._functions, self._answers, strict=True):
            fitting, total = counts[codes[codes < len(counts)]].sum(), counts.sum()
            if 2 * fitting < total:
                unfit[name] = 1 - float(fitting / total)
        return unfit

    def learners(
        self,
        cells: Sequence[list[CellView]],
        blind: Sequence[int] | None = None,
        alarms: Sequence[list[int]] | None = None,
    ) -> list[LearnerOutcome]:
        """Return the learners; the arguments have what their tables know, by learner."""
        blind = blind or [0] * len(cells)
        alarms = alarms or [[] for _ in cells]
        parts = zip(self._learners, cells, blind, alarms, strict=True)
        learners = [learner.outcome(views, count, at) for learner, views, count, at in parts]
        if self._payments is None:
            return learners
        dealings = {
            learner.name: Dealings(
                learner.judged - (learner.numbers.errors or 0),
                learner.numbers.cost_total or 0.0,
                learner.numbers.arms,
            )
            for learner in learners
        }
        accounts = settle_accounts(dealings, self._payments, self._serving)
        replace = msgspec.structs.replace
        return [
            replace(each, numbers=replace(each.numbers, account=accounts[each.name]))
            for each in learners
        ]

    def outcome(
        self, learners: list[LearnerOutcome], *, context_names: list[str], policy: str, **more: Any
    ) -> Outcome:
        """Return the outcome of these learners; `more` has further fields of it."""
        parts = self.gains()
        slots = sum(learner.numbers.slots for learner in learners)
        labelled = sum(learner.judged for learner in learners) / max(1, slots)
        own, judged = aligned([(each.slots, each.without_transfers, each.judged) for each in parts])
        serving, _ = aligned([(each.slots, each.served, each.judged) for each in parts])
        as_buyers, _ = aligned([(each.slots, each.as_buyer, each.judged) for each in parts])
        return Outcome(
            slots=self._slots,
            dimension=len(context_names),
            context_names=context_names,
            policy=policy,
            learners=learners,
            total=total_of(
                [learner.numbers for learner in learners],
                gain_of(own - labelled * serving, judged),
                gain_of(as_buyers, judged),
            ),
            functions={
                name: 100.0 * float(wrong) / self._judged if self._judged else None
                for name, wrong in zip(self._functions, (self._wrong / BILLION), strict=True)
            },
            **more,
        )


class RowGains(NamedTuple):
    """What labelled rows of a learner came to, in buckets of so many slots."""

    slots: int
    rows: Array  # labelled
    lost: Array  # errors and costs
    best_own: float | None  # errors of the best own function in hindsight
    # Gains over that function; nothing without one.
    judged: Array  # labelled rows
    as_buyer: Array  # net of what the learner pays
    income: Array  # what peers pay it, less what serving them costs, in the labelled share
    without_transfers: Array  # net of what nobody receives
    served: Array  # cost of serving, of all rows


# Rows of the buckets of a learner; right answers of its own functions follow. The last three: paid
# to peers on labelled rows; received from them less what a relay passes on; cost of serving.
SLOTS, JUDGED, ERRORS, TRAINED, EXPLORED, SPENT, TRANSFERRED, INCOME, SERVED, RIGHT = range(10)
MOST_PAIRED = 32  # learners, so that the worth of each pair has an interval


class _Learner:
    def __init__(self, site: LearnerSpec, arms: list[str], own: range, first_peer: int) -> None:
        self.name = site.name
        self.pair_buckets = MOST_BUCKETS
        self._own = own  # its functions among the arms
        self._first_peer = first_peer
        self._site = site
        self.arms = arms  # of the network
        self._candidates: Counter[str] = Counter()
        self._buckets = np.zeros((RIGHT + len(self._own), MOST_BUCKETS), np.int64)
        self._slots_per_bucket = 1
        self._chosen = np.zeros(len(arms), np.int64)
        # Arm -> sums of: asked, paid, judged, right, paid if judged, right by own functions.
        self._asked: dict[int, Array] = {}
        self._cost = self.alone_errors = 0
        self.stood_in = 0

    def add(self, trace: Trace, rows: Rows) -> None:
        slot, phase, correct = trace.slot[rows], trace.phase[rows], trace.correct[rows]
        if not len(slot):
            return
        cost = trace.cost[rows]
        self._chosen += np.bincount(trace.arm[rows], minlength=len(self._chosen))
        self._cost += _sum(cost)
        if len(self._site.spaces) > 1:
            for cell, times in enumerate(np.bincount(trace.cell[rows]).tolist()):
                if times:
                    self._candidates[space_of(str(trace.names["cell"][cell]))] += times
        bucket = self._bucket(slot)
        own = [np.where(correct < 0, 0, trace.correct_by(function, rows)) for function in self._own]
        every, is_judged = np.ones(len(slot), np.int8), correct >= 0
        spent = np.where(is_judged, cost, 0)
        is_trained, is_explored = phase == Phase.TRAIN, phase == Phase.EXPLORE
        counted = (every, is_judged, _errors(correct), is_trained, is_explored, spent, *own)
        rows_of_sums = [*range(TRANSFERRED), *range(RIGHT, RIGHT + len(own))]
        for row, weights in zip(rows_of_sums, counted, strict=True):
            self._buckets[row] += _summed(bucket, weights, MOST_BUCKETS)
        right = np.maximum(0, correct)
        self._add_pairs(trace.arm[rows], bucket, (every, cost, is_judged, right, spent, *own))

    def _bucket(self, slot: Array) -> Array:
        """Return the bucket of each slot; a bucket gets more slots if there are too few."""
        while (slot[-1] - 1) // self._slots_per_bucket >= MOST_BUCKETS:
            self._buckets = _halved(self._buckets)
            self._asked = {arm: _halved(sums) for arm, sums in self._asked.items()}
            self._slots_per_bucket *= 2
        bucket: Array = (slot - 1) // self._slots_per_bucket
        return bucket

    def add_amount(self, row: int, slots: Array, amount: float) -> None:
        """Add an amount in each of some slots."""
        if not len(slots) or not amount:
            return
        bucket = self._bucket(slots)
        self._buckets[row] += _summed(bucket, np.full(len(slots), amount), MOST_BUCKETS)

    def _add_pairs(self, arm: Array, bucket: Array, columns: Sequence[Array]) -> None:
        count = self.pair_buckets
        for asked in np.unique(arm[arm >= self._first_peer]).tolist():
            rows = np.flatnonzero(arm == asked)
            sums = self._asked.setdefault(asked, np.zeros((len(columns), count), np.int64))
            places = bucket[rows] if count > 1 else np.zeros(len(rows), np.int64)
            for place, column in enumerate(columns):
                sums[place] += _summed(places, column[rows], count)

    def gains(self) -> RowGains:
        """Return what labelled rows came to."""
        buckets = self._buckets / BILLION
        judged, right, served = buckets[JUDGED], buckets[RIGHT:], buckets[SERVED]
        width, lost = self._slots_per_bucket, buckets[ERRORS] + buckets[SPENT]
        if not len(right):  # nothing to compare with
            none = np.zeros(MOST_BUCKETS)
            return RowGains(width, judged, lost, None, none, none, none, none, served)
        totals = right.sum(axis=1)
        best = int(totals.argmax())
        as_buyer = judged - buckets[ERRORS] - buckets[SPENT] - right[best]
        # Peers are served on all rows of theirs; gains are known on the labelled share of the own.
        labelled = judged.sum() / max(1.0, buckets[SLOTS].sum())
        income = labelled * (buckets[INCOME] - served)
        without = as_buyer + buckets[TRANSFERRED]
        own = float(judged.sum() - totals[best])
        return RowGains(width, judged, lost, own, judged, as_buyer, income, without, served)

    def _pairs(self, rows: Array) -> list[PairNumbers]:
        """Return what each peer was worth; `rows` are the labelled rows of the buckets."""
        pairs = []
        for arm, counted in sorted(self._asked.items()):
            sums = counted / BILLION
            asked, paid, judged, right, _, *own = sums.sum(axis=1).tolist()
            pair = PairNumbers(self.arms[arm], int(asked), paid, int(judged), _plain(right))
            if own:
                best, is_timed = int(np.argmax(own)), sums.shape[1] > 1
                gained = sums[3] - sums[4] - sums[5 + best]
                pair = msgspec.structs.replace(
                    pair,
                    best_own=self.arms[self._own[best]],
                    best_own_right=_plain(own[best]),
                    worth_points=gain_of(gained, rows if is_timed else rows.sum(keepdims=True)),
                )
            pairs.append(pair)
        return sorted(pairs, key=lambda pair: -pair.asked)

    def outcome(self, cells: list[CellView], blind: int, alarms: list[int]) -> LearnerOutcome:
        sums = self._buckets / BILLION
        gains = self.gains()
        used = np.flatnonzero(sums[SLOTS])
        shown = slice(used[-1] + 1 if len(used) else 0)
        net = gains.as_buyer + gains.income
        timed = [*sums[:TRANSFERRED], net, gains.income]
        buckets = [[_plain(number) for number in row[shown]] for row in timed]
        whole = [_plain(number) for number in sums.sum(axis=1)]
        (slots, judged, errors, train, explore), right = whole[:SPENT], whole[RIGHT:]
        best = int(np.argmax(right)) if right else 0
        numbers = LearnerNumbers(
            slots=slots,
            errors=errors if slots else None,
            error_percent=percent(errors, judged),
            train_percent=percent(train, slots),
            explore_percent=percent(explore, slots),
            exploit_percent=percent(slots - train - explore, slots),
            cost_total=self._cost / BILLION if slots else None,
            arms={self.arms[k]: int(times) for k, times in enumerate(self._chosen) if times},
            alone_percent=percent(_plain(self.alone_errors / BILLION), judged),
            best_own=self.arms[self._own[best]] if right and judged else None,
            best_own_percent=percent(judged - right[best], judged) if right else None,
            net_gain_points=gain_of(net, gains.judged),
            buyer_gain_points=gain_of(gains.as_buyer, gains.judged),
            pairs=self._pairs(sums[JUDGED]),
            alarms=AlarmNumbers(len(alarms), alarms[-LATEST:]),
            candidates=dict(self._candidates.most_common()) or UNSET,
            stood_in=self.stood_in or UNSET,
        )
        return LearnerOutcome(
            name=self._site.name,
            functions=list(self._site.functions),
            judged=judged,
            numbers=numbers,
            timeline=Timeline(self._slots_per_bucket, *buckets),
            cells=cells,
            blind=blind,
            alarms=alarms,
        )


def _halved(sums: Array) -> Array:
    """Return sums of twice as long buckets, which are the last axis; a single one stays."""
    count = sums.shape[-1]
    if count == 1:
        return sums
    pairs = sums.reshape(*sums.shape[:-1], count // 2, 2).sum(axis=-1)
    return np.concatenate([pairs, np.zeros_like(pairs)], axis=-1)


def _counted(counts: Array, codes: Array) -> Array:
    """Return how often each code has occurred, but for -1."""
    counted: Array = np.bincount(codes + 1, minlength=len(counts) + 1)[1:]
    counted[: len(counts)] += counts
    return counted


def _errors(correct: np.ndarray) -> np.ndarray:
    """Return the loss of each answer; 0 where the log has no label."""
    return np.where(correct < 0, 0, 1 - correct)


def _plain(number: float) -> Any:
    """Return a sum as an int if it is whole, as all sums of 0/1 losses are."""
    return int(number) if float(number).is_integer() else float(number)
