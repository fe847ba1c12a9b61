"""Compare the runs of a simulation: one score per policy and environment, over all seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from covey import guarantees
from covey.growth import Band, Estimate, band, estimate, growth, ratio
from covey.scenario import Scenario
from covey.types import Run

Bound = Callable[[str, str], Sequence[float] | None]  # policy, environment -> at the checkpoints


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in one environment; every regret is that of one receiving learner."""

    policy: str
    environment: str
    slots: list[int]  # checkpoints
    regret: Band  # cumulative
    exponent: Estimate | None  # of its growth; None where there is no regret
    regret_per_slot: Estimate
    ratio: Estimate | None  # to the regret of the first policy; None for that one
    causes: dict[str, float]  # cause -> regret at the end
    error_percent: Estimate
    cost_per_slot: Estimate
    phases: dict[str, float]  # share of the decisions
    messages: dict[str, float]  # kind -> per 1,000 decisions
    bound: list[float | None] | None = None  # on the regret, where it is below one per slot
    exploits_from: int | None = None  # slot by which all cells exploit under even visits


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a simulation, for reports."""

    name: str
    horizon_slots: int
    seeds: list[int]
    policies: dict[str, str]  # name -> description
    environments: dict[str, str]  # name -> description
    scores: list[Score]  # by environment, then policy


def compare(scenario: Scenario, runs: Sequence[Run], *, bound: Bound | None = None) -> Comparison:
    """Return the comparison of a scenario's runs.

    `bound` returns the regret bound at the checkpoints, or None; the default is the theorems'.
    """
    bound = bound or partial(guarantees.limits, scenario)
    policies, environments = scenario.titles(), scenario.descriptions()
    ordered = sorted(runs, key=lambda run: run.seed)
    groups = {
        environment: [
            [run for run in ordered if (run.policy, run.environment) == (policy, environment)]
            for policy in policies
        ]
        for environment in environments
    }
    return Comparison(
        name=scenario.name,
        horizon_slots=scenario.horizon,
        seeds=list(scenario.seeds),
        policies=policies,
        environments=environments,
        scores=[
            msgspec.structs.replace(
                _score(own, first=by_policy[0]),
                bound=_informative(scenario.checkpoints, bound(policy, environment)),
                exploits_from=guarantees.exploits_from(scenario, policy, environment),
            )
            for environment, by_policy in groups.items()
            for policy, own in zip(policies, by_policy, strict=True)
        ],
    )


def total(run: Run) -> list[float]:
    """Return the total regret of one receiving learner at the checkpoints."""
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
        exponent=growth(run.slots, curves),
        regret_per_slot=estimate([curve[-1] / run.slots[-1] for curve in curves]),
        ratio=None if is_first else ratio([curve[-1] for curve in curves], reference),
        causes=_means([{c: v[-1] / run.learners for c, v in run.regret.items()} for run in runs]),
        error_percent=estimate([100 * run.errors for run in runs]),
        cost_per_slot=estimate([run.cost for run in runs]),
        phases=_means([run.phases for run in runs]),
        messages=_means([run.messages for run in runs]),
    )


def _means(records: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: math.fsum(record.get(name, 0.0) for record in records) / len(records)
        for name in dict.fromkeys(name for record in records for name in record)
    }


def _informative(slots: Sequence[int], limits: Sequence[float] | None) -> list[float | None] | None:
    """Return a bound without its points at or above one per slot, which always hold."""
    if limits is None:
        return None
    kept = [limit if limit < slot else None for slot, limit in zip(slots, limits, strict=True)]
    return kept if any(limit is not None for limit in kept) else None
