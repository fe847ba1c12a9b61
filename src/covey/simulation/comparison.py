"""Comparison of policies: growth exponents and confidence intervals."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import asdict

from covey.replay.outcome import CERTAINTY, student, total_account
from covey.simulation.run import Run
from covey.simulation.scenario import Scenario
from covey.types import Interval

RESAMPLES = 10_000


class Band(msgspec.Struct, frozen=True):
    """The mean of a curve over seeds, and the 95 % interval at each of its points."""

    mean: list[float]
    low: list[float | None]
    high: list[float | None]


def exponent(slots: Sequence[int], regret: Sequence[float]) -> float | None:
    """Return p of the power law c * slots ** p fitted to the later half of a curve.

    Least squares on logarithms, without points of zero regret; None if fewer than two remain.

    >>> round(exponent([10, 100, 1000, 10000], [5, 9, 20, 200]), 6)
    1.0
    """
    later = len(slots) // 2
    pairs = zip(slots[later:], regret[later:], strict=True)
    points = [(math.log(slot), math.log(value)) for slot, value in pairs if value > 0]
    if len({across for across, _ in points}) < 2:
        return None
    across, up = np.array(points).T
    across = across - across.mean()
    return float(across @ up / (across @ across))


def growth_of(slots: Sequence[int], curves: Sequence[Sequence[float]]) -> Interval | None:
    """Return the estimated exponent over all seeds' curves; None if no curve has one."""
    exponents = [value for curve in curves if (value := exponent(slots, curve)) is not None]
    return mean_of(exponents) if exponents else None


def mean_of(values: Sequence[float]) -> Interval:
    """Return the mean of one value per seed, with Student's interval.

    >>> mean_of([1.0, 2.0, 3.0]).low is not None
    True
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Interval(mean)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    reach = student(len(values) - 1) * spread / math.sqrt(len(values))
    return Interval(mean, mean - reach, mean + reach)


def band(curves: Sequence[Sequence[float]]) -> Band:
    points = [mean_of(values) for values in zip(*curves, strict=True)]
    return Band([p.mean for p in points], [p.low for p in points], [p.high for p in points])


def ratio(values: Sequence[float], others: Sequence[float]) -> Interval | None:
    """Return the mean of `values` divided by that of `others`, paired by seed.

    The interval is a 95 % bootstrap interval over pairs. None if the others are all 0.
    """
    pairs = np.array([values, others], float)
    above, below = pairs.sum(axis=1)
    if not below > 0:
        return None
    if len(values) < 2:
        return Interval(float(above / below))
    drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    aboves, belows = pairs[:, drawn].sum(axis=2)
    ratios = aboves[belows > 0] / belows[belows > 0]
    low, high = np.quantile(ratios, [(1 - CERTAINTY) / 2, (1 + CERTAINTY) / 2])
    return Interval(float(above / below), float(low), float(high))


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in one environment; every regret is that of one receiving learner."""

    policy: str
    environment: str
    slots: list[int]  # checkpoints
    regret: Band  # cumulative
    exponent: Interval | None  # of its growth; None where there is no regret
    regret_per_slot: Interval
    ratio: Interval | None  # to the regret of the first policy; None for that one
    causes: dict[str, float]  # cause -> regret at the end
    error_percent: Interval
    cost_per_slot: Interval
    phases: dict[str, float]  # share of the decisions
    messages: dict[str, float]  # kind -> per 1,000 decisions
    alarms: Interval = Interval(0.0)  # of the change detection in a run, over all learners
    accounts: dict[str, dict[str, float]] = {}  # of each learner and of "all", means of the runs
    ensemble: dict[str, float] = {}  # shares of errors, see `Run`


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a simulation, for reports."""

    name: str
    horizon_slots: int
    seeds: list[int]
    policies: dict[str, str]  # name -> description
    environments: dict[str, str]  # name -> description
    scores: list[Score]  # by environment, then policy


def compare(scenario: Scenario, runs: Sequence[Run]) -> Comparison:
    policies, environments = scenario.titles(), scenario.descriptions()
    first_policy = next(iter(policies))
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.seed):
        groups[run.policy, run.environment].append(run)
    return Comparison(
        name=scenario.name,
        horizon_slots=scenario.horizon,
        seeds=list(scenario.seeds),
        policies=policies,
        environments=environments,
        scores=[
            _score(groups[policy, environment], first=groups[first_policy, environment])
            for environment in environments
            for policy in policies
        ],
    )


def total(run: Run) -> list[float]:
    return [math.fsum(causes) / run.learners for causes in zip(*run.regret.values(), strict=True)]


def _score(runs: Sequence[Run], *, first: Sequence[Run]) -> Score:
    run = runs[0]
    curves = [total(run) for run in runs]
    reference = [total(run)[-1] for run in first]
    is_first = run.policy == first[0].policy
    return Score(
        policy=run.policy,
        environment=run.environment,
        slots=run.slots,
        regret=band(curves),
        exponent=growth_of(run.slots, curves),
        regret_per_slot=mean_of([curve[-1] / run.slots[-1] for curve in curves]),
        ratio=None if is_first else ratio([curve[-1] for curve in curves], reference),
        causes=_means([{c: v[-1] / run.learners for c, v in run.regret.items()} for run in runs]),
        error_percent=mean_of([100 * run.errors for run in runs]),
        cost_per_slot=mean_of([run.cost for run in runs]),
        phases=_means([run.phases for run in runs]),
        messages=_means([run.messages for run in runs]),
        alarms=mean_of([run.alarms for run in runs]),
        accounts=_accounts(runs),
        ensemble=_means([run.ensemble for run in runs]),
    )


def _accounts(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    every = [{**run.accounts, "all": total_account(run.accounts.values())} for run in runs]
    if not runs[0].accounts:
        return {}
    return {name: _means([asdict(own[name]) for own in every]) for name in every[0]}


def _means(records: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: math.fsum(record.get(name, 0.0) for record in records) / len(records)
        for name in dict.fromkeys(name for record in records for name in record)
    }
