"""What the runs of a simulation come to: one score per policy and environment, over all seeds."""

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
    bound: list[float | None] | None = None  # on the regret, where it says anything
    exploits_from: int | None = None  # the slot by which cells exploit that are visited evenly


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All that a simulation found out, ready to be printed or drawn."""

    name: str
    horizon_slots: int
    seeds: list[int]
    policies: dict[str, str]  # name -> one line for a person
    environments: dict[str, str]  # name -> one line for a person
    scores: list[Score]  # by environment, then policy


def compare(scenario: Scenario, runs: Sequence[Run], *, bound: Bound | None = None) -> Comparison:
    """Return what the runs of a scenario come to.

    `bound` says what a learner's regret cannot exceed at the checkpoints, or None; left out, the
    theorems say it.
    """
    bound = bound or partial(guarantees.limits, scenario)
    policies, environments = scenario.titles(), scenario.descriptions()
    ordered = sorted(runs, key=lambda run: run.seed)
    teams = {
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
                _score(team, first=rivals[0]),
                bound=_telling(scenario.checkpoints, bound(policy, environment)),
                exploits_from=guarantees.exploits_from(scenario, policy, environment),
            )
            for environment, rivals in teams.items()
            for policy, team in zip(policies, rivals, strict=True)
        ],
    )


def total(run: Run) -> list[float]:
    """Return the regret of one receiving learner at the checkpoints, of all causes."""
    return [math.fsum(causes) / run.learners for causes in zip(*run.regret.values(), strict=True)]


def _score(team: Sequence[Run], *, first: Sequence[Run]) -> Score:
    run = team[0]
    curves = [total(run) for run in team]
    rivals = [total(run)[-1] for run in first]
    is_first = run.policy == first[0].policy
    return Score(
        policy=run.policy,
        environment=run.environment,
        slots=run.slots,
        regret=band(curves),
        exponent=growth(run.slots, curves),
        regret_per_slot=estimate([curve[-1] / run.slots[-1] for curve in curves]),
        ratio=None if is_first else ratio([curve[-1] for curve in curves], rivals),
        causes=_means([{c: v[-1] / run.learners for c, v in run.regret.items()} for run in team]),
        error_percent=estimate([100 * run.errors for run in team]),
        cost_per_slot=estimate([run.cost for run in team]),
        phases=_means([run.phases for run in team]),
        messages=_means([run.messages for run in team]),
    )


def _means(records: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for record in records for name in record)
    return {
        name: math.fsum(record.get(name, 0.0) for record in records) / len(records)
        for name in names
    }


def _telling(slots: Sequence[int], limits: Sequence[float] | None) -> list[float | None] | None:
    """Return a bound without its points at or above one per slot, which nobody can lose anyway."""
    if limits is None:
        return None
    told = [limit if limit < slot else None for slot, limit in zip(slots, limits, strict=True)]
    return told if any(limit is not None for limit in told) else None
