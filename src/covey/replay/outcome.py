"""What a replay found: counts per learner, costs and utilities, errors of baselines."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any

import msgspec
import numpy as np

from covey.bandit.accounts import Account, Dealings, asked_of, settle_accounts
from covey.bandit.partitions import space_of
from covey.config import LearnerSpec
from covey.data.logs import EncodedLog, Rows, Trace, until_end_of_batch
from covey.errors import ConfigError
from covey.replay.baselines import Baseline, BaselineAnswer, Chunk, ChunkBaseline
from covey.replay.engine import CellView
from covey.replay.gains import Gain, PairOutcome, aligned, gain_of
from covey.replay.sampled import ShadowOutcome
from covey.types import BY_CONTEXT, Array, Phase


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
    gain: Gain | None = None  # over the best of them, net of costs
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


class BaselineOutcome(msgspec.Struct, frozen=True):
    """Result of a baseline on a log."""

    errors: int
    judged: int  # slots with a true label in the log

    @property
    def error_percent(self) -> float | None:
        """Error rate; None without judged slots."""
        return 100 * self.errors / self.judged if self.judged else None


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
    gain: Gain | None = None  # of all learners, each over its best own function, net of costs
    # Per context: places on its axis from 0 to 1, and what they stand for.
    context_ticks: list[list[tuple[float, float | str]]] = []
    shadow: ShadowOutcome | None = None  # of a served site that runs rows in the shadow

    @property
    def is_replayed(self) -> bool:
        """Whether all functions answered every row, so that they can be compared."""
        return bool(self.functions)


def accounts_of(
    learners: Sequence[LearnerOutcome], serving_costs: Mapping[str, float], *, are_carried: bool
) -> dict[str, Account]:
    """Return the account of every learner by name."""
    names = [learner.name for learner in learners]
    dealings = {
        learner.name: Dealings(
            learner.judged - learner.errors,
            learner.cost_total,
            asked_of(learner.arms, learner.functions, names),
        )
        for learner in learners
    }
    return settle_accounts(dealings, serving_costs, are_carried=are_carried)


MOST_BUCKETS = 256
# Sums are kept in parts, multiples of these and the rest, so that adding them is exact: then they
# do not depend on the order, nor on how a log is divided.
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


class LearnerSums(msgspec.Struct):
    """What is added up for one learner; of several parts of a log, they can be added."""

    buckets: np.ndarray  # parts, row of `SLOTS` to `RIGHT`, bucket
    chosen: np.ndarray  # arm -> times
    asked: dict[int, np.ndarray]  # arm -> parts of: asked, paid, judged, right, right by own ones
    cost: np.ndarray
    alone_errors: np.ndarray
    stood_in: int = 0
    slots_per_bucket: int = 1

    def widen(self) -> None:
        """Let a bucket have twice as many slots."""
        shape = (*self.buckets.shape[:2], MOST_BUCKETS // 2, 2)
        pairs = self.buckets.reshape(shape).sum(axis=3)
        self.buckets = np.concatenate([pairs, np.zeros_like(pairs)], axis=2)
        self.slots_per_bucket *= 2

    def add(self, other: "LearnerSums") -> None:
        """Add the sums of another part of the log."""
        while self.slots_per_bucket < other.slots_per_bucket:
            self.widen()
        while other.slots_per_bucket < self.slots_per_bucket:
            other.widen()
        self.buckets = self.buckets + other.buckets
        self.chosen = self.chosen + other.chosen
        for arm, found in other.asked.items():
            self.asked[arm] = found + self.asked.get(arm, 0.0)
        self.cost = self.cost + other.cost
        self.alone_errors = self.alone_errors + other.alone_errors
        self.stood_in += other.stood_in


class OutcomeSums(msgspec.Struct):
    """What is added up over a replay."""

    learners: list[LearnerSums]
    wrong: np.ndarray  # parts, function -> its errors
    labels: set[int]
    answers: list[set[int]]  # of each function
    slots: int = 0
    judged: int = 0

    def add(self, other: "OutcomeSums") -> None:
        """Add the sums of another part of the log, with the same codes of labels."""
        for own, found in zip(self.learners, other.learners, strict=True):
            own.add(found)
        self.wrong = self.wrong + other.wrong
        self.labels |= other.labels
        for answers, more in zip(self.answers, other.answers, strict=True):
            answers.update(more)
        self.slots += other.slots
        self.judged += other.judged


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
        self.sums = OutcomeSums(
            learners=[learner.sums for learner in self._learners],
            wrong=np.zeros((PARTS, len(self._functions))),
            labels=set(),
            answers=[set() for _ in self._functions],
        )

    def add(self, together: Trace, alone: Trace) -> None:
        """Add the same rows, replayed with peers and without."""
        for index, learner in enumerate(self._learners):
            rows = together.rows_of(index)
            learner.add(together, rows)
            is_asked = together.arm[rows] >= len(self._functions)
            is_own = self._owners[together.function[rows]] == index
            learner.sums.stood_in += int(np.count_nonzero(is_asked & is_own))
            errors = _parts_of(_errors(alone.correct[alone.rows_of(index)]))
            for part, piece in enumerate(errors):
                learner.sums.alone_errors[part] += piece.sum()

    def add_functions(self, log: EncodedLog) -> None:
        """Add the errors that every function would have made."""
        labels = np.asarray(log.labels)
        judged = labels >= 0
        sums = self.sums
        sums.slots += len(labels)
        sums.judged += int(np.count_nonzero(judged))
        if log.gains is not None:
            errors = _parts_of(1.0 - np.asarray(log.gains)[:, judged] / self._unit)
            for part, piece in enumerate(errors):
                sums.wrong[part] += piece.sum(axis=1)
            return
        sums.labels.update(_present(labels))
        for k, row in enumerate(np.asarray(log.predictions)[: len(self._functions)]):
            sums.wrong[0, k] += np.count_nonzero((row != labels) & judged)
            sums.answers[k].update(_present(row))

    def restore(self, sums: OutcomeSums) -> None:
        """Continue from the sums of other builders for the same learners."""
        self.sums = sums
        for learner, own in zip(self._learners, sums.learners, strict=True):
            learner.sums = own

    def unfit(self) -> list[str]:
        """Return the functions none of whose answers is a label of the log."""
        labels = self.sums.labels
        if len(labels) < 2:  # too few to tell
            return []
        pairs = zip(self._functions, self.sums.answers, strict=True)
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
            slots=self.sums.slots,
            dimension=len(context_names),
            context_names=context_names,
            policy=policy,
            learners=[one.outcome(views, count, slots) for one, views, count, slots in found],
            gain=self._gain(),
            functions={
                name: 100.0 * float(wrong) / self.sums.judged if self.sums.judged else None
                for name, wrong in zip(self._functions, _total(self.sums.wrong), strict=True)
            },
        )

    def _gain(self) -> Gain | None:
        """Return the gain of all learners."""
        return gain_of(*aligned([one.gains() for one in self._learners]))


# Rows of the buckets of a learner; right answers of its own functions follow.
SLOTS, JUDGED, ERRORS, TRAINED, EXPLORED, SPENT, RIGHT = range(7)


class _Learner:
    def __init__(self, site: LearnerSpec, arms: list[str], own: range, first_peer: int) -> None:
        self._own = own  # its functions among the arms
        self._first_peer = first_peer
        self._site = site
        self._arms = arms  # of the network
        self._candidates: Counter[str] = Counter()
        self.sums = LearnerSums(
            buckets=np.zeros((PARTS, RIGHT + len(self._own), MOST_BUCKETS)),
            chosen=np.zeros(len(arms), np.int64),
            asked={},
            cost=np.zeros(PARTS),
            alone_errors=np.zeros(PARTS),
        )

    def add(self, trace: Trace, rows: Rows) -> None:
        slot, phase, correct = trace.slot[rows], trace.phase[rows], trace.correct[rows]
        if not len(slot):
            return
        sums, cost = self.sums, trace.cost[rows]
        sums.chosen += np.bincount(trace.arm[rows], minlength=len(sums.chosen))
        if not cost.any():
            cost = np.zeros(len(cost), np.int8)
        for part, piece in enumerate(_parts_of(cost)):
            sums.cost[part] += piece.sum()
        if len(self._site.spaces) > 1:
            for cell, times in enumerate(np.bincount(trace.cell[rows]).tolist()):
                if times:
                    self._candidates[space_of(str(trace.names["cell"][cell]))] += times
        while (slot[-1] - 1) // sums.slots_per_bucket >= MOST_BUCKETS:
            sums.widen()
        bucket = (slot - 1) // sums.slots_per_bucket
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
                sums.buckets[part, row] += found
        self._add_pairs(trace.arm[rows], (correct >= 0, np.maximum(0, correct), *own), cost)

    def _add_pairs(self, arm: Array, judged: Sequence[Array], cost: Array) -> None:
        columns = [np.ones(len(arm), np.int8), cost, *judged]
        for asked in np.unique(arm[arm >= self._first_peer]).tolist():
            rows = np.flatnonzero(arm == asked)
            found = self.sums.asked.setdefault(asked, np.zeros((PARTS, len(columns))))
            for place, column in enumerate(columns):
                for part, piece in enumerate(_parts_of(column[rows])):
                    found[part, place] += piece.sum()

    def gains(self) -> tuple[int, Array, Array]:
        """Return slots per bucket, and per bucket the gain over the best own function and rows."""
        buckets = _total(self.sums.buckets)
        judged, right = buckets[JUDGED], buckets[RIGHT:]
        width = self.sums.slots_per_bucket
        if not len(right):  # nothing to compare with
            return width, np.zeros(MOST_BUCKETS), np.zeros(MOST_BUCKETS)
        best = right[int(right.sum(axis=1).argmax())]
        return width, judged - buckets[ERRORS] - buckets[SPENT] - best, judged

    def _pairs(self) -> list[PairOutcome]:
        pairs = []
        for arm, counted in sorted(self.sums.asked.items()):
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
        sums = _total(self.sums.buckets)
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
            cost_total=float(_total(self.sums.cost)),
            arms={self._arms[k]: int(n) for k, n in enumerate(self.sums.chosen) if n},
            alone_errors=_plain(float(_total(self.sums.alone_errors))),
            blind=blind,
            stood_in=self.sums.stood_in,
            candidates=dict(self._candidates.most_common()),
            timeline=Timeline(self.sums.slots_per_bucket, *buckets),
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


def label_delays(log: EncodedLog, wait: int | None) -> Array:
    """Return the delay of each label in rows; -1: it never arrives, or later than `wait`."""
    log = until_end_of_batch(log)
    labels = np.asarray(log.labels)
    delays = np.zeros(len(labels), np.int64) if log.delays is None else np.asarray(log.delays)
    is_lost = (delays < 0) | (labels < 0)
    if wait is not None:
        is_lost |= delays > wait
    return np.where(is_lost, -1, delays)


HINDSIGHT = "best-in-hindsight"


class BaselineRun:
    """Baselines driven in chunks; memory grows with the pending labels only."""

    def __init__(
        self,
        baselines: Iterable[Baseline],
        *,
        label_wait: int | None = None,
        receivers: Sequence[int] | None = None,
        functions: int | None = None,
    ) -> None:
        self._players = [_Player(baseline) for baseline in baselines]
        self._wait = label_wait
        self._receivers = receivers  # indices of the learners; None: all
        self._functions = functions  # rows of predictions that belong to functions
        # Of pending labels: the slot at whose end they arrive, their slot, the label, the votes.
        self._pending: list[Array] = []
        self._first = 0
        self._judged = 0
        self._function_errors: Array = np.zeros(0, np.int64)
        names = [player.baseline.name for player in self._players]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"duplicate baseline name {name!r}; names must differ")

    def add(self, log: EncodedLog) -> dict[str, Array]:
        """Let all baselines predict and learn on the next rows; return predictions by name."""
        if log.gains is not None:
            raise ConfigError(
                "baselines need predictions that are right or wrong, but [data] has a loss; remove "
                "one of them"
            )
        votes = np.asarray(log.predictions)[: self._functions].T
        labels = np.asarray(log.labels)
        chunk, is_awaited = self._chunk(votes, labels, self._delays(log))
        is_judged = labels >= 0
        predictions = {}
        for player in self._players:
            predicted = player.play(chunk, is_awaited, self._first)
            player.errors += int(np.count_nonzero((predicted != labels) & is_judged))
            predictions[player.baseline.name] = predicted
        wrong = np.count_nonzero((votes != labels[:, None]) & is_judged[:, None], axis=0)
        self._function_errors = wrong + (self._function_errors if self._first else 0)
        self._judged += int(np.count_nonzero(is_judged))
        self._first += len(labels)
        return predictions

    def outcome(self) -> dict[str, BaselineOutcome]:
        """Return the errors of each baseline and of the best single function."""
        errors = {player.baseline.name: player.errors for player in self._players}
        errors[HINDSIGHT] = int(self._function_errors.min(initial=self._judged))
        return {name: BaselineOutcome(number, self._judged) for name, number in errors.items()}

    def _delays(self, log: EncodedLog) -> Array:
        """Return the delay of each label in slots; -1: it never arrives at a receiver."""
        delays = label_delays(log, self._wait)
        if log.shown is None:
            return delays
        shown = np.asarray(log.shown) > 0
        if log.at is not None:
            is_shown = shown[np.arange(len(shown)), np.asarray(log.at)]
        else:
            is_shown = shown[:, self._receivers or slice(None)].any(axis=1)
        return np.where(is_shown, delays, -1)

    def _chunk(self, votes: Array, labels: Array, delays: Array) -> tuple[Chunk, Array]:
        slots = self._first + np.arange(len(labels))
        arrives = delays >= 0
        known = [column[arrives] for column in (slots + delays, slots, labels, votes)]
        if self._pending:
            pairs = zip(self._pending, known, strict=True)
            known = [np.concatenate(pair) for pair in pairs]
        order = np.argsort(known[0], kind="stable")  # ties: by slot
        end = int(np.searchsorted(known[0][order], self._first + len(labels)))
        due, origins, arriving, asked = (column[order[:end]] for column in known)
        self._pending = [column[order[end:]] for column in known]
        arrived = np.searchsorted(due, slots)
        return Chunk(votes, arrived, arriving, asked, origins - self._first), arrives


class _Player:
    """A baseline, and its predictions whose labels are pending."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.errors = 0
        self._pending: dict[int, BaselineAnswer] = {}

    def play(self, chunk: Chunk, is_awaited: Array, first: int) -> Array:
        if isinstance(self.baseline, ChunkBaseline):
            return self.baseline.play(chunk)
        predict, learn, pending = self.baseline.predict, self.baseline.learn, self._pending
        arriving = zip((chunk.slots + first).tolist(), chunk.labels.tolist(), strict=True)
        # The number of labels that arrive at the end of each slot.
        counts = np.diff(chunk.arrived, append=len(chunk.labels)).tolist()
        rows = zip(*chunk.predictions.T.tolist(), strict=True)
        predictions = []
        slots = zip(rows, counts, is_awaited.tolist(), strict=True)
        for slot, (votes, count, is_pending) in enumerate(slots, first):
            prediction = predict(votes)
            predictions.append(prediction.label)
            if is_pending:
                pending[slot] = prediction
            for origin, label in islice(arriving, count):
                learn(pending.pop(origin), label)
        return np.array(predictions, np.int64)
