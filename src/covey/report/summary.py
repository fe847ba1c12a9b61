"""The numbers of a replay as a typed record, which is also its JSON.

`docs/reference/summary.md` describes every field.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version

import msgspec
from msgspec import UNSET, UnsetType

from covey.bandit.accounts import system_utility
from covey.replay.outcome import (
    ArmOutcome,
    EnsembleOutcome,
    LearnerOutcome,
    Outcome,
    PairOutcome,
    ShadowOutcome,
)
from covey.report.text import percent
from covey.types import Interval

LATEST = 100  # alarms whose slots are listed


class AlarmSummary(msgspec.Struct, frozen=True):
    """How many alarms there were, and the slots of the latest."""

    count: int
    slots: list[int]


class LearnerSummary(msgspec.Struct, frozen=True):
    """The numbers of one learner, all of its own rows; None where unknown."""

    slots: int
    errors: float | None
    error_percent: float | None
    train_percent: float | None
    explore_percent: float | None
    exploit_percent: float | None
    cost_total: float | None
    arms: dict[str, int]
    alone_percent: float | None
    best_own: str | None
    best_own_percent: float | None
    net_gain_points: Interval | None
    pairs: list[PairOutcome]
    alarms: AlarmSummary
    candidates: dict[str, int] | UnsetType = UNSET
    stood_in: int | UnsetType = UNSET
    utility: float | UnsetType = UNSET
    served: int | UnsetType = UNSET
    by_arm: dict[str, ArmOutcome] | UnsetType = UNSET  # of a served site


class TotalSummary(msgspec.Struct, frozen=True):
    """The numbers of all learners together; percents are weighted by slots."""

    slots: int
    error_percent: float | None
    cost_points: float | None
    best_own_percent: float | None
    net_gain_points: Interval | None
    alone_percent: float | None
    train_percent: float | None
    explore_percent: float | None
    alarms: int


class BaselineSummary(msgspec.Struct, frozen=True):
    """The errors of a baseline."""

    errors: int
    error_percent: float | None


class EnsembleSummary(msgspec.Struct, frozen=True):
    """The errors of an ensemble and of its best member, and the final weights."""

    title: str
    errors: int | None
    error_percent: float | None
    exploit_errors: int | None
    exploit_error_percent: float | None
    best_member: str
    best_member_error_percent: float | None
    weights: dict[str, dict[str, float]]


class SystemSummary(msgspec.Struct, frozen=True):
    """The utility of all learners together."""

    utility: float


class Summary(msgspec.Struct, frozen=True):
    """The numbers of a replay."""

    version: str
    policy: str
    slots: int
    total: TotalSummary
    learners: dict[str, LearnerSummary]
    functions: dict[str, float | None]
    ensemble: EnsembleSummary | UnsetType = UNSET
    baselines: dict[str, BaselineSummary] | UnsetType = UNSET
    system: SystemSummary | UnsetType = UNSET
    shadow: ShadowOutcome | UnsetType = UNSET  # of a served site


def summarise(outcome: Outcome) -> Summary:
    """Return the numbers of an outcome."""
    return Summary(
        version=version("covey"),
        policy=outcome.policy,
        slots=outcome.slots,
        total=total_of(outcome.learners, outcome.gain),
        learners={learner.name: _learner(learner, outcome) for learner in outcome.learners},
        functions=dict(outcome.functions),
        ensemble=UNSET if outcome.ensemble is None else _ensemble(outcome.ensemble),
        baselines=UNSET
        if outcome.baselines is None
        else {
            name: BaselineSummary(found.errors, found.error_percent)
            for name, found in outcome.baselines.items()
        },
        system=UNSET
        if outcome.accounts is None
        else SystemSummary(system_utility(outcome.accounts)),
        shadow=outcome.shadow or UNSET,
    )


def total_of(learners: Sequence[LearnerOutcome], gain: Interval | None) -> TotalSummary:
    """Return the numbers of learners together; `gain` is theirs."""

    def mean(of: Callable[[LearnerOutcome], float | None]) -> float | None:
        known = [(each.slots, of(each)) for each in learners]
        weighted = [(slots, value) for slots, value in known if value is not None]
        weight = sum(slots for slots, _ in weighted)
        return sum(slots * value for slots, value in weighted) / weight if weight else None

    return TotalSummary(
        slots=sum(each.slots for each in learners),
        error_percent=mean(lambda each: percent(each.errors, each.judged)),
        cost_points=mean(lambda each: percent(each.cost_total, each.slots)),
        best_own_percent=mean(_best_own_percent),
        net_gain_points=points_of(gain),
        alone_percent=mean(lambda each: percent(each.alone_errors, each.judged)),
        train_percent=mean(lambda each: percent(each.train, each.slots)),
        explore_percent=mean(lambda each: percent(each.explore, each.slots)),
        alarms=sum(len(each.alarms) for each in learners),
    )


def _best_own_percent(learner: LearnerOutcome) -> float | None:
    """Return the error of the best own function on the learner's own rows."""
    if not learner.own_errors:
        return None
    return percent(min(learner.own_errors.values()), learner.judged)


def _learner(learner: LearnerOutcome, outcome: Outcome) -> LearnerSummary:
    has_rows = learner.slots > 0
    account = (outcome.accounts or {}).get(learner.name)
    return LearnerSummary(
        slots=learner.slots,
        errors=learner.errors if has_rows else None,
        error_percent=percent(learner.errors, learner.judged),
        train_percent=percent(learner.train, learner.slots),
        explore_percent=percent(learner.explore, learner.slots),
        exploit_percent=percent(learner.exploit, learner.slots),
        cost_total=learner.cost_total if has_rows else None,
        arms=dict(learner.arms) if has_rows else {},
        alone_percent=percent(learner.alone_errors, learner.judged),
        best_own=learner.best_own if learner.judged else None,
        best_own_percent=_best_own_percent(learner),
        net_gain_points=points_of(learner.gain),
        pairs=learner.pairs,
        alarms=AlarmSummary(len(learner.alarms), learner.alarms[-LATEST:]),
        candidates=dict(learner.candidates) or UNSET,
        stood_in=learner.stood_in or UNSET,
        utility=UNSET if account is None else account.utility,
        served=UNSET if account is None else account.served,
        by_arm=learner.by_arm or UNSET,
    )


def points_of(gain: Interval | None) -> Interval | None:
    """Return a gain in points."""
    return None if gain is None else gain.times(100)


def _ensemble(ensemble: EnsembleOutcome) -> EnsembleSummary:
    return EnsembleSummary(
        title=ensemble.title,
        errors=ensemble.errors if ensemble.judged else None,
        error_percent=percent(ensemble.errors, ensemble.judged),
        exploit_errors=ensemble.exploit_errors if ensemble.judged else None,
        exploit_error_percent=percent(ensemble.exploit_errors, ensemble.judged),
        best_member=ensemble.best_member,
        best_member_error_percent=percent(ensemble.best_member_errors, ensemble.judged),
        weights=ensemble.weights,
    )
