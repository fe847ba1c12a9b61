"""Comparison of policies: growth exponents, confidence intervals, theoretical limits."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from covey.bandit.bounds import MOST_SLOTS, Problem, bound, exploitation_begins
from covey.bandit.partitions import Zooming
from covey.bandit.policies import DCZA, CoS, Policy, PolicyRecord
from covey.config import LearnerSpec
from covey.errors import ConfigError
from covey.replay.outcome import CERTAINTY, student
from covey.simulation.environment import CASES, Environment
from covey.simulation.run import Run, network
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
    known = [value for curve in curves if (value := exponent(slots, curve)) is not None]
    return mean_of(known) if known else None


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
    """Return the estimate at each point of the curves of all seeds."""
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


_FREE = ("horizon", "alpha", "split_scale", "seed", "label_wait", "max_cells")


def regret_limit(scenario: Scenario, policy: str, environment: str) -> float | None:
    """Return the bound on a learner's regret in a whole run; None if no theorem applies.

    It is T1 for CoS and the environment's case of T6 for DCZA, with the constants of the paper. It
    needs the theorems' parameters, no drift, and labels without delay.
    """
    world, settings = scenario.environments[environment], scenario.policies[policy]
    theorem = _theorem(settings, world)
    is_covered = world.drift is None and _has_all_labels(world) and policy not in scenario.contexts
    if theorem is None or not is_covered:
        return None
    resolved = scenario.policy(policy, world)
    if not _holds(theorem, resolved, world):
        return None
    try:
        return bound(theorem, _problem(resolved, world, scenario.horizon)).value
    except ConfigError:  # a number outside the theorem's range
        return None


def exploits_from(scenario: Scenario, policy: str, environment: str) -> int | None:
    """Return the slot by which every cell exploits if contexts visit the cells in turn.

    If cells are split, it is the first slot by which all of one level exploit. None: not within
    2**53 slots, or unknown: labels are late or missing, or the policy restarts or uses an index.
    """
    world, settings = scenario.environments[environment], scenario.policies[policy]
    if not _has_all_labels(world) or settings.doubling is not None:
        return None
    if world.learner or world.candidates or world.batch > 1 or world.link:
        return None
    resolved = scenario.policy(policy, world)
    if resolved.by_index is not None:
        return None
    sites = [site for site in network(world, settings).sites if site.receives]
    latest = max(_begins(resolved, site, world) for site in sites)
    return int(latest) if latest < math.inf else None


def _theorem(settings: PolicyRecord, world: Environment) -> str | None:
    """Return the theorem whose parameters these are, or None."""
    if not isinstance(settings, CoS | DCZA) or settings.doubling is not None:
        return None
    plain = type(settings)(parameters="theorem")
    free = {name: getattr(plain, name) for name in _FREE if hasattr(plain, name)}
    if msgspec.structs.replace(settings, **free) != plain:
        return None
    if settings.alpha != world.alpha or not world.is_plain or world.dependence:
        return None
    if isinstance(settings, CoS):
        return "T1"
    return next((case for case, process in CASES.items() if process == world.process), None)


def _has_all_labels(world: Environment) -> bool:
    return not world.delay_slots and world.label_probability >= 1


def _holds(theorem: str, policy: Policy, world: Environment) -> bool:
    """Return whether the other conditions of the theorem hold."""
    if theorem in ("C2", "C4") and len(set(world.counts)) > 1:
        return False  # peers with fewer functions need training, too
    if theorem in ("C3", "C4") and isinstance(policy.partition, Zooming):
        power = 3 * world.alpha if world.split_power is None else world.split_power
        return power <= policy.partition.power  # otherwise the cube is too large
    return True


def _problem(policy: Policy, world: Environment, slots: int) -> Problem:
    split = policy.partition if isinstance(policy.partition, Zooming) else None
    return Problem(
        # A grid is built for the policy's horizon, which may exceed the run's.
        horizon=policy.settings.slots or slots,
        alpha=world.alpha,
        dimension=world.dimension,
        lipschitz=world.lipschitz,
        learners=len(world.names),
        functions=max(world.counts[: world.receivers]),
        most_functions=max(world.counts),
        split_scale=1.0 if split is None else split.scale,
        split_power=None if split is None else split.power,
    )


def _begins(policy: Policy, site: LearnerSpec, world: Environment) -> float:
    arrivals, correlation = world.process
    since = 0
    for level in policy.partition.levels(policy.dimension):
        cells = 1 if arrivals == "best" else level.side**policy.dimension
        end = since + cells * math.ceil(min(level.split_at, MOST_SLOTS))
        slot = exploitation_begins(
            (policy.explore, policy.train, policy.explore_peers),
            functions=len(site.functions),
            peers=len(site.peers),
            untrained=len(site.peers) if correlation == "worst" else 0,
            cells=cells,
            since=since,
            most=min(end, MOST_SLOTS),
        )
        if slot is not None:
            return slot
        since = end
    return math.inf


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
    bound: list[float | None] | None = None  # on the regret, where it is below one per slot
    alarms: Interval = Interval(0.0)  # of the change detection in a run, over all learners
    utility: dict[str, float] = {}  # of each learner and the system, per slot
    ensemble: dict[str, float] = {}  # shares of errors, see `Run`
    exploits_from: int | None = None  # slot by which all cells exploit under even visits


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a simulation, for reports."""

    name: str
    horizon_slots: int
    seeds: list[int]
    policies: dict[str, str]  # name -> description
    environments: dict[str, str]  # name -> description
    scores: list[Score]  # by environment, then policy


def compare(scenario: Scenario, runs: Sequence[Run]) -> Comparison:
    """Return the comparison of a scenario's runs."""
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
            msgspec.structs.replace(
                _score(groups[policy, environment], first=groups[first_policy, environment]),
                bound=_informative(
                    scenario.checkpoints, regret_limit(scenario, policy, environment)
                ),
                exploits_from=exploits_from(scenario, policy, environment),
            )
            for environment in environments
            for policy in policies
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
        exponent=growth_of(run.slots, curves),
        regret_per_slot=mean_of([curve[-1] / run.slots[-1] for curve in curves]),
        ratio=None if is_first else ratio([curve[-1] for curve in curves], reference),
        causes=_means([{c: v[-1] / run.learners for c, v in run.regret.items()} for run in runs]),
        error_percent=mean_of([100 * run.errors for run in runs]),
        cost_per_slot=mean_of([run.cost for run in runs]),
        phases=_means([run.phases for run in runs]),
        messages=_means([run.messages for run in runs]),
        alarms=mean_of([run.alarms for run in runs]),
        utility=_means([run.utility for run in runs]),
        ensemble=_means([run.ensemble for run in runs]),
    )


def _means(records: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: math.fsum(record.get(name, 0.0) for record in records) / len(records)
        for name in dict.fromkeys(name for record in records for name in record)
    }


def _informative(slots: Sequence[int], limit: float | None) -> list[float | None] | None:
    """Return a bound from where it is below one per slot: regret never falls, so it holds there."""
    if limit is None or limit >= slots[-1]:
        return None
    return [limit if limit < slot else None for slot in slots]
