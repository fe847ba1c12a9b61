"""Theoretical results for a policy in an environment: regret bounds and start of exploitation."""

import math

import msgspec

from covey.bounds import MOST_SLOTS, bound, exploitation_begins
from covey.config import Site
from covey.environments import CASES, Environment
from covey.errors import ConfigError
from covey.partitions import Zooming
from covey.policies import Policy
from covey.problems import Problem
from covey.runs import network
from covey.scenario import Scenario
from covey.settings import Settings

_FREE = ("horizon", "alpha", "split_scale", "seed", "label_wait", "max_cells")


def limits(scenario: Scenario, policy: str, environment: str) -> list[float] | None:
    """Return the bound on a learner's regret at the checkpoints; None if no theorem applies.

    It is the cautious form of T1 for CoS and of the environment's case of T6 for DCZA. It needs the
    theorems' parameters, no drift, and labels without delay. Regret never falls, so the bound for
    the whole run holds at every checkpoint.
    """
    world, settings = scenario.environments[environment], scenario.policies[policy]
    theorem = _theorem(settings, world)
    if theorem is None or world.drift is not None or not _has_all_labels(world):
        return None
    resolved = scenario.policy(policy, world)
    if not _holds(theorem, resolved, world):
        return None
    try:
        problem = _problem(resolved, world, scenario.horizon)
        return [bound(theorem, problem, form="cautious").value] * len(scenario.checkpoints)
    except ConfigError:  # a number outside the theorem's range
        return None


def exploits_from(scenario: Scenario, policy: str, environment: str) -> int | None:
    """Return the slot by which every cell exploits if contexts visit the cells in turn.

    If cells are split, it is the first slot by which all of one level exploit. None: not within
    2**53 slots, or unknown: labels are late or missing, or the policy restarts or uses an index.
    """
    world, settings = scenario.environments[environment], scenario.policies[policy]
    if not _has_all_labels(world) or settings.horizon == "doubling":
        return None
    resolved = scenario.policy(policy, world)
    if resolved.by_index is not None:
        return None
    sites = [site for site in network(world, settings).sites if site.receives]
    latest = max(_begins(resolved, site, world) for site in sites)
    return int(latest) if latest < math.inf else None


def _theorem(settings: Settings, world: Environment) -> str | None:
    """Return the theorem whose parameters these are, or None."""
    plain = Settings(preset=settings.preset, parameters="theorem")
    free = {name: getattr(plain, name) for name in _FREE}
    if msgspec.structs.replace(settings, **free) != plain or settings.horizon == "doubling":
        return None
    if settings.alpha != world.alpha:
        return None
    if settings.preset == "cos":
        return "T1"
    if settings.preset != "dcza":
        return None
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
    is_zooming = isinstance(policy.partition, Zooming)
    horizon = policy.settings.horizon
    return Problem(
        # A grid is built for the policy's horizon, which may exceed the run's.
        horizon=slots if is_zooming or not isinstance(horizon, int) else horizon,
        alpha=world.alpha,
        dimension=world.dimension,
        lipschitz=world.lipschitz,
        learners=len(world.names),
        functions=max(world.counts[: world.receivers]),
        most_functions=max(world.counts),
        split_scale=policy.settings.split_scale,
        split_power=policy.partition.power if isinstance(policy.partition, Zooming) else None,
        cost=max(cost for site in network(world, policy.settings).sites for cost in site.costs),
    )


def _begins(policy: Policy, site: Site, world: Environment) -> float:
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
