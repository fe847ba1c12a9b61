"""What a replay found: counts per learner, costs and utilities, errors of baselines."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np

from covey.bandit.accounts import Account
from covey.bandit.partitions import space_of
from covey.config import LearnerSpec
from covey.data.logs import EncodedLog, Rows, Trace
from covey.replay.baselines import BaselineOutcome
from covey.replay.engine import CellView
from covey.types import BY_CONTEXT, Array, Interval, Phase

CERTAINTY = 0.95
MOST_BATCHES = 32
FEWEST_BATCHES = 8  # with fewer there is no interval


class PairOutcome(msgspec.Struct, frozen=True):
    """What a learner got from one peer."""

    peer: str
    asked: int
    paid: float
    judged: int  # asked rows that have a label
    right: float  # answers of the peer among them
    best_own: str | None  # the own function that is right most often on the same rows
    best_own_right: float


def gain_of(
    sums: Sequence[float] | Array, counts: Sequence[float] | Array, *, comparisons: int = 1
) -> Interval | None:
    """Return the mean of what consecutive buckets hold, and its interval; None without rows.

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
        return Interval(mean)
    starts = np.concatenate([[0], edges[:-1] + 1])
    residuals = np.add.reduceat(sums - mean * counts, starts)
    variance = batches / (batches - 1) * float(np.square(residuals).sum()) / total**2
    certainty = 1 - (1 - CERTAINTY) / comparisons
    half_width = student(batches - 1, certainty) * math.sqrt(variance)
    return Interval(mean, mean - half_width, mean + half_width)


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


Z_95 = 1.959964  # quantile of the normal distribution, for an interval of 95 %


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


class ShadowOutcome(msgspec.Struct, frozen=True):
    """What rows that were run in the shadow tell."""

    rows: int  # own rows since rows are drawn, as far as they are stored
    labelled: int
    drawn: int
    complete: int  # drawn rows whose answers are all known
    served_percent: float | None  # error of what was answered, on labelled rows
    estimates: list[ChoiceEstimate]
    peers: list[PeerRows]


def estimate(
    choice: str,
    *,
    served: Array,
    right: Array,
    drawn: Array,
    share: Array,
    price: float | None = None,
) -> ChoiceEstimate:
    """Return the error of a choice over all rows, of which the drawn ones are known.

    By row: `served` is 1 if the answer was right, `right` is 1 if that of the choice is (0 if it is
    not, -1 if that is not known), `drawn` is whether it was drawn, and `share` the probability of
    that. Where a drawn row is not known, the interval allows for both cases.
    """
    rows = len(served)
    is_known = drawn & (right >= 0)
    known, missing = int(is_known.sum()), int((drawn & ~is_known).sum())
    if not known:
        return ChoiceEstimate(choice, rows, known, missing, None, None, None, price)
    weights = 1.0 / share
    gained = float((weights * (right - served))[is_known].sum())
    lost = is_known != drawn
    least = gained - float((weights * served)[lost].sum())
    most = gained + float((weights * (1 - served))[lost].sum())
    # Rows that are missing are taken to be like the others.
    gained *= float(weights[drawn].sum() / weights[is_known].sum())
    half = Z_95 * math.sqrt(_variance(right - served, share, is_known))
    wrong = rows - float(served.sum())

    def percent(more: float) -> float:
        return 100 * (wrong - more) / rows

    low, high = max(0.0, percent(most + half)), min(100.0, percent(least - half))
    return ChoiceEstimate(choice, rows, known, missing, percent(gained), low, high, price)


def _variance(difference: Array, share: Array, is_known: Array) -> float:
    """Return the variance of the estimated sum.

    One row more is taken to have gained, and one to have lost: a few rows without a difference do
    not show that there is none.
    """
    each = (1 - share) / share**2
    found = float((each * difference**2)[is_known].sum())
    return found + 2 * float(each[is_known].mean())


class Timeline(msgspec.Struct, frozen=True):
    """Counts of one learner in time buckets of equal length."""

    slots_per_bucket: int
    slots: list[int]
    judged: list[int]  # slots with a true label in the log
    errors: list[float]
    train: list[int]
    explore: list[int]
    spent: list[float] = []  # paid in slots with a true label


class ArmOutcome(msgspec.Struct, frozen=True):
    """What the rows of one arm came to."""

    decisions: int
    judged: int  # those with a label
    errors: int
    cost_total: float


class LearnerOutcome(msgspec.Struct, frozen=True):
    """Result of a replay for one learner."""

    name: str
    functions: list[str]
    slots: int
    judged: int
    errors: float  # a whole number, unless answers can be partly correct
    train: int
    explore: int
    exploit: int
    cost_total: float
    arms: dict[str, int]  # arm -> times chosen
    alone_errors: float | None  # of the same policy without peers; None: not known
    timeline: Timeline
    cells: list[CellView]
    blind: int = 0  # decisions with no label at this learner or at any of its peers
    stood_in: int = 0  # times an own function answered because the chosen peer was late or failed
    candidates: dict[str, int] = {}  # context -> decisions based on it, when there are several
    alarms: list[int] = []  # slots of the alarms of the change detection
    own_errors: dict[str, float] = {}  # own function -> its errors on the learner's own rows
    gain: Interval | None = None  # over the best of them, net of costs
    pairs: list[PairOutcome] = []  # peers that were asked
    by_arm: dict[str, ArmOutcome] = {}  # of a served site

    @property
    def best_own(self) -> str | None:
        """The own function with the fewest errors on the learner's own rows."""
        return min(self.own_errors, key=lambda name: self.own_errors[name], default=None)


class EnsembleOutcome(msgspec.Struct, frozen=True):
    """Result of an ensemble over the learners of a replay."""

    title: str
    judged: int
    errors: int
    exploit_errors: int  # in slots in which every learner exploited
    best_member: str
    best_member_errors: float
    weights: dict[str, dict[str, float]]  # cell ("all": global) -> learner -> final weight
    mean_weights: dict[str, float]  # over the cells, weighted by their slots
    slots_per_point: int
    history: list[list[float]]  # point in time -> weights; empty for weights per cell


class Outcome(msgspec.Struct, frozen=True):
    """Results of a replay."""

    slots: int
    dimension: int
    context_names: list[str]
    policy: str  # one-line description
    learners: list[LearnerOutcome]
    functions: dict[str, float | None]  # function -> error percent over the log
    accounts: dict[str, Account] | None = None  # when there are serving costs
    ensemble: EnsembleOutcome | None = None
    spaces: int = 1  # number of context spaces
    baselines: dict[str, BaselineOutcome] | None = None  # when requested
    gain: Interval | None = None  # of all learners, each over its best own function, net of costs
    # Per context: places on its axis from 0 to 1, and what they stand for.
    context_ticks: list[list[tuple[float, float | str]]] = []
    shadow: ShadowOutcome | None = None  # of a served site that runs rows in the shadow

    @property
    def is_replayed(self) -> bool:
        """Whether all functions answered every row, so that they can be compared."""
        return bool(self.functions)


MOST_BUCKETS = 256
# Sums are kept in parts, multiples of these and the rest, so that adding them is exact: then they
# do not depend on the order, nor on the size of chunks.
_GRAINS = (2.0**-22, 2.0**-45)
PARTS = len(_GRAINS) + 1


def _parts_of(numbers: Array) -> list[Array]:
    """Return what to add up separately; whole numbers need one sum only."""
    if numbers.dtype.kind in "bi":
        return [numbers]
    parts = []
    for grain in _GRAINS:
        parts.append(np.rint(numbers / grain) * grain)
        numbers = numbers - parts[-1]
    return [*parts, numbers]


def _total(parts: Array) -> Array:
    """Return sums from their parts, which are along the first axis."""
    total: Array = parts[0] + (parts[1] + parts[2])
    return total


class OutcomeBuilder:
    """Sums over the chunks of a replay; its memory does not grow with the log."""

    def __init__(self, sites: Sequence[LearnerSpec], unit: int = 1) -> None:
        self._unit = unit
        self._functions = [name for site in sites for name in site.functions]
        names = [site.name for site in sites]
        arms = [*self._functions, *names, *(name + BY_CONTEXT for name in names)]
        # The owner of each function; answers from memory have none.
        owners = [index for index, site in enumerate(sites) for _ in site.functions]
        ends = [*accumulate(len(site.functions) for site in sites)]
        self._learners = [
            _Learner(site, arms, range(end - len(site.functions), end), len(self._functions))
            for site, end in zip(sites, ends, strict=True)
        ]
        self._owners = np.array(owners + [-1] * len(sites))
        self._slots = self._judged = 0
        self._wrong = np.zeros((PARTS, len(self._functions)))  # the errors of each function
        self._labels: set[int] = set()
        self._answers: list[set[int]] = [set() for _ in self._functions]

    def add(self, together: Trace, alone: Trace) -> None:
        """Add the same rows, replayed with peers and without."""
        for index, learner in enumerate(self._learners):
            rows = together.rows_of(index)
            learner.add(together, rows)
            is_asked = together.arm[rows] >= len(self._functions)
            is_own = self._owners[together.function[rows]] == index
            learner.stood_in += int(np.count_nonzero(is_asked & is_own))
            errors = _parts_of(_errors(alone.correct[alone.rows_of(index)]))
            for part, piece in enumerate(errors):
                learner.alone_errors[part] += piece.sum()

    def add_functions(self, log: EncodedLog) -> None:
        """Add the errors that every function would have made."""
        labels = np.asarray(log.labels)
        judged = labels >= 0
        self._slots += len(labels)
        self._judged += int(np.count_nonzero(judged))
        if log.gains is not None:
            errors = _parts_of(1.0 - np.asarray(log.gains)[:, judged] / self._unit)
            for part, piece in enumerate(errors):
                self._wrong[part] += piece.sum(axis=1)
            return
        self._labels.update(_present(labels))
        for k, row in enumerate(np.asarray(log.predictions)[: len(self._functions)]):
            self._wrong[0, k] += np.count_nonzero((row != labels) & judged)
            self._answers[k].update(_present(row))

    def unfit(self) -> list[str]:
        """Return the functions none of whose answers is a label of the log."""
        labels = self._labels
        if len(labels) < 2:  # too few to tell
            return []
        pairs = zip(self._functions, self._answers, strict=True)
        return [name for name, answers in pairs if answers and not answers & labels]

    def outcome(
        self,
        context_names: list[str],
        policy: str,
        cells: Sequence[list[CellView]],
        blind: Sequence[int] | None = None,
        alarms: Sequence[list[int]] | None = None,
    ) -> Outcome:
        blind = blind or [0] * len(cells)
        alarms = alarms or [[] for _ in cells]
        found = zip(self._learners, cells, blind, alarms, strict=True)
        return Outcome(
            slots=self._slots,
            dimension=len(context_names),
            context_names=context_names,
            policy=policy,
            learners=[one.outcome(views, count, slots) for one, views, count, slots in found],
            gain=gain_of(*aligned([one.gains() for one in self._learners])),
            functions={
                name: 100.0 * float(wrong) / self._judged if self._judged else None
                for name, wrong in zip(self._functions, _total(self._wrong), strict=True)
            },
        )


# Rows of the buckets of a learner; right answers of its own functions follow.
SLOTS, JUDGED, ERRORS, TRAINED, EXPLORED, SPENT, RIGHT = range(7)


class _Learner:
    def __init__(self, site: LearnerSpec, arms: list[str], own: range, first_peer: int) -> None:
        self._own = own  # its functions among the arms
        self._first_peer = first_peer
        self._site = site
        self._arms = arms  # of the network
        self._candidates: Counter[str] = Counter()
        self._buckets = np.zeros((PARTS, RIGHT + len(self._own), MOST_BUCKETS))
        self._slots_per_bucket = 1
        self._chosen = np.zeros(len(arms), np.int64)
        # Arm -> parts of: asked, paid, judged, right, right by own functions.
        self._asked: dict[int, Array] = {}
        self._cost = np.zeros(PARTS)
        self.alone_errors = np.zeros(PARTS)
        self.stood_in = 0

    def add(self, trace: Trace, rows: Rows) -> None:
        slot, phase, correct = trace.slot[rows], trace.phase[rows], trace.correct[rows]
        if not len(slot):
            return
        cost = trace.cost[rows]
        self._chosen += np.bincount(trace.arm[rows], minlength=len(self._chosen))
        if not cost.any():
            cost = np.zeros(len(cost), np.int8)
        for part, piece in enumerate(_parts_of(cost)):
            self._cost[part] += piece.sum()
        if len(self._site.spaces) > 1:
            for cell, times in enumerate(np.bincount(trace.cell[rows]).tolist()):
                if times:
                    self._candidates[space_of(str(trace.names["cell"][cell]))] += times
        while (slot[-1] - 1) // self._slots_per_bucket >= MOST_BUCKETS:
            self._widen()
        bucket = (slot - 1) // self._slots_per_bucket
        own = [np.where(correct < 0, 0, trace.correct_by(function, rows)) for function in self._own]
        counted = (
            np.ones(len(slot), np.int8),
            correct >= 0,
            _errors(correct),
            phase == Phase.TRAIN,
            phase == Phase.EXPLORE,
            np.where(correct >= 0, cost, 0),
            *own,
        )
        for row, weights in enumerate(counted):
            for part, piece in enumerate(_parts_of(weights)):
                found = np.bincount(bucket, piece, minlength=MOST_BUCKETS)
                self._buckets[part, row] += found
        self._add_pairs(trace.arm[rows], (correct >= 0, np.maximum(0, correct), *own), cost)

    def _widen(self) -> None:
        """Let a bucket have twice as many slots."""
        shape = (*self._buckets.shape[:2], MOST_BUCKETS // 2, 2)
        pairs = self._buckets.reshape(shape).sum(axis=3)
        self._buckets = np.concatenate([pairs, np.zeros_like(pairs)], axis=2)
        self._slots_per_bucket *= 2

    def _add_pairs(self, arm: Array, judged: Sequence[Array], cost: Array) -> None:
        columns = [np.ones(len(arm), np.int8), cost, *judged]
        for asked in np.unique(arm[arm >= self._first_peer]).tolist():
            rows = np.flatnonzero(arm == asked)
            found = self._asked.setdefault(asked, np.zeros((PARTS, len(columns))))
            for place, column in enumerate(columns):
                for part, piece in enumerate(_parts_of(column[rows])):
                    found[part, place] += piece.sum()

    def gains(self) -> tuple[int, Array, Array]:
        """Return slots per bucket, and per bucket the gain over the best own function and rows."""
        buckets = _total(self._buckets)
        judged, right = buckets[JUDGED], buckets[RIGHT:]
        width = self._slots_per_bucket
        if not len(right):  # nothing to compare with
            return width, np.zeros(MOST_BUCKETS), np.zeros(MOST_BUCKETS)
        best = right[int(right.sum(axis=1).argmax())]
        return width, judged - buckets[ERRORS] - buckets[SPENT] - best, judged

    def _pairs(self) -> list[PairOutcome]:
        pairs = []
        for arm, counted in sorted(self._asked.items()):
            asked, paid, judged, right, *own = _total(counted).tolist()
            best = int(np.argmax(own)) if own else -1
            pairs.append(
                PairOutcome(
                    peer=self._arms[arm],
                    asked=int(asked),
                    paid=paid,
                    judged=int(judged),
                    right=_plain(right),
                    best_own=self._arms[self._own[best]] if own else None,
                    best_own_right=_plain(own[best]) if own else 0,
                )
            )
        return sorted(pairs, key=lambda pair: -pair.asked)

    def outcome(self, cells: list[CellView], blind: int, alarms: list[int]) -> LearnerOutcome:
        sums = _total(self._buckets)
        used = np.flatnonzero(sums[0])
        rows = sums[:, : used[-1] + 1 if len(used) else 0]
        buckets = [[_plain(number) for number in row] for row in rows[:RIGHT]]
        totals = map(_plain, sums.sum(axis=1))
        slots, judged, errors, train, explore, _, *right = totals
        names = [self._arms[function] for function in self._own]
        _, gained, counted = self.gains()
        return LearnerOutcome(
            name=self._site.name,
            functions=list(self._site.functions),
            slots=slots,
            judged=judged,
            errors=errors,
            train=train,
            explore=explore,
            exploit=slots - train - explore,
            cost_total=float(_total(self._cost)),
            arms={self._arms[k]: int(n) for k, n in enumerate(self._chosen) if n},
            alone_errors=_plain(float(_total(self.alone_errors))),
            blind=blind,
            stood_in=self.stood_in,
            candidates=dict(self._candidates.most_common()),
            timeline=Timeline(self._slots_per_bucket, *buckets),
            cells=cells,
            alarms=alarms,
            own_errors={name: judged - one for name, one in zip(names, right, strict=True)},
            gain=gain_of(gained, counted),
            pairs=self._pairs(),
        )


def _present(codes: Array) -> list[int]:
    """Return the codes that occur, but for -1."""
    found: list[int] = np.flatnonzero(np.bincount(codes + 1)[1:]).tolist()
    return found


def _errors(correct: np.ndarray) -> np.ndarray:
    """Return the loss of each answer; 0 where the log has no label."""
    return np.where(correct < 0, 0, 1 - correct)


def _plain(number: float) -> Any:
    """Return a sum as an int if it is whole, as all sums of 0/1 losses are."""
    return int(number) if float(number).is_integer() else float(number)
