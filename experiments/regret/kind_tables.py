"""Runs in many kinds of worlds -> tables in Markdown: against a reference, and against the best."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tables
from kinds import DEFAULT, FORMER, Runs, losses

from covey.simulation.comparison import RESAMPLES, mean_of, ratio, total
from covey.simulation.run import Run
from covey.types import Interval

Losses = Mapping[tuple[str, str], Sequence[float]]  # policy, environment -> seed by seed

# What the default does besides losing: name -> of a run, and how it is written.
MEASURES: dict[str, tuple[Callable[[Run], float], str]] = {
    "errors, %": (lambda run: 100 * run.errors, "{:.2f}"),
    "paid per decision": (lambda run: run.cost, "{:.4f}"),
    "alarms": (lambda run: run.alarms, "{:.2f}"),
    "asks of 1,000 decisions": (lambda run: run.messages["requests"], "{:.0f}"),
}


class Compared(NamedTuple):
    """The losses of several policies, and that of the one which they are compared with."""

    lost: Losses
    reference: str

    @property
    def policies(self) -> list[str]:
        """All policies, in the order in which they were played."""
        return list(dict.fromkeys(policy for policy, _ in self.lost))

    @property
    def worlds(self) -> list[str]:
        """All environments, likewise."""
        return list(dict.fromkeys(world for _, world in self.lost))

    def to_reference(self, policy: str, world: str) -> Interval:
        """Return how many times as much as the reference a policy loses."""
        return self._ratio(policy, self.reference, world)

    def best(self, world: str) -> str:
        """Return which policy lost least on average; the reference only if there is no other."""
        others = [name for name in self.policies if not name.startswith(FORMER)]
        return min(others or self.policies, key=lambda name: tables.mean(self.lost[name, world]))

    def to_best(self, policy: str, world: str) -> Interval:
        """Return how many times as much as the best in hindsight a policy loses."""
        return self._ratio(policy, self.best(world), world)

    def _ratio(self, policy: str, other: str, world: str) -> Interval:
        return ratio(self.lost[policy, world], self.lost[other, world]) or Interval(math.nan)


def compared(runs: Runs) -> Compared:
    """Return the losses, to be compared with the former default if it is there, or with today's."""
    lost = losses(runs)
    names = list(dict.fromkeys(policy for policy, _ in lost))
    reference = next((name for name in (FORMER, DEFAULT) if name in names), names[0])
    return Compared(lost, reference)


def ratio_table(found: Compared, policies: Sequence[str]) -> str:
    """Return a row per environment: regret per slot of each policy, and to the reference."""
    rows = [
        [
            world,
            f"{tables.mean(found.lost[found.reference, world]):.4f}",
            *(
                f"{tables.mean(found.lost[policy, world]):.4f}<br>"
                f"{tables.interval(found.to_reference(policy, world))}"
                for policy in policies
            ),
        ]
        for world in found.worlds
    ]
    return tables.table(["", found.reference, *policies], rows)


def summary_table(found: Compared) -> str:
    """Return a row per policy: its ratios to the reference, and to the best in hindsight."""
    rows = []
    for policy in found.policies:
        to_reference = {world: found.to_reference(policy, world).mean for world in found.worlds}
        to_best = {world: found.to_best(policy, world).mean for world in found.worlds}
        rows.append(
            [
                policy,
                tables.interval(geometric(found, policy)),
                _worst(to_reference),
                f"{_geometric(list(to_best.values())):.2f}",
                _worst(to_best),
            ]
        )
    heads = ["", f"to {found.reference}, geometric mean", "worst", "to the best of all", "worst"]
    return tables.table(heads, rows)


def _worst(ratios: Mapping[str, float]) -> str:
    world = max(ratios, key=lambda name: ratios[name])
    return f"{ratios[world]:.2f} ({world})"


def best_table(found: Compared, policy: str = DEFAULT) -> str:
    """Return a row per environment: the best policy there, and what the default loses to it."""
    rows = [
        [
            world,
            best,
            f"{tables.mean(found.lost[best, world]):.4f}",
            f"{tables.mean(found.lost[policy, world]):.4f}",
            tables.interval(found.to_best(policy, world)),
        ]
        for world in found.worlds
        for best in [found.best(world)]
    ]
    return tables.table(["", "best in hindsight", "its regret", policy, "ratio"], rows)


def geometric(found: Compared, policy: str) -> Interval:
    """Return the geometric mean over environments of the ratio to the reference.

    The interval is a 95 % bootstrap interval over pairs of seeds, drawn in each environment.
    """
    rng = np.random.default_rng(0)
    middles, drawn = [], []
    for world in found.worlds:
        pairs = np.array([found.lost[policy, world], found.lost[found.reference, world]])
        if not pairs.mean(axis=1).all():
            continue
        middles.append(np.log(pairs.mean(axis=1)))
        which = rng.integers(0, pairs.shape[1], (RESAMPLES, pairs.shape[1]))
        drawn.append(np.log(np.maximum(pairs[:, which].mean(axis=2), 1e-12)))
    if not middles:
        return Interval(math.nan)
    middle = float(np.exp(np.mean([own - other for own, other in middles])))
    if pairs.shape[1] < 2:
        return Interval(middle)
    means = np.exp(np.mean([own - other for own, other in drawn], axis=0))
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(middle, float(low), float(high))


def _geometric(ratios: Sequence[float]) -> float:
    known = [math.log(one) for one in ratios if one > 0]
    return math.exp(tables.mean(known)) if known else math.nan


def measure_table(runs: Runs, policy: str = DEFAULT) -> str:
    """Return a row per environment: what the default does besides losing."""
    rows = [
        [
            world,
            *(how.format(tables.mean([of(run) for run in team])) for of, how in MEASURES.values()),
        ]
        for (name, world), team in runs.items()
        if name == policy
    ]
    return tables.table(["", *MEASURES], rows)


def growth_table(runs: Runs) -> str:
    """Return regret per slot at the checkpoints, and local exponents over the last two decades."""
    slots = next(iter(runs.values()))[0].slots
    decades = [
        (slots.index(end // 10), slots.index(end))
        for end in (slots[-1] // 10, slots[-1])
        if end // 10 in slots and end in slots
    ]
    rows = []
    for (policy, world), team in sorted(runs.items(), key=lambda item: item[0][1]):
        curves = [total(run) for run in team]
        rows.append(
            [
                world,
                policy,
                *(
                    f"{tables.mean([c[k] for c in curves]) / slot:.4f}"
                    for k, slot in enumerate(slots)
                ),
                *(
                    tables.spread(mean_of([_local(curve, first, last, slots) for curve in curves]))
                    for first, last in decades
                ),
            ]
        )
    spans = [f"exponent from {slots[first]:,} to {slots[last]:,}" for first, last in decades]
    return tables.table(["", "", *(f"T = {slot:,}" for slot in slots), *spans], rows)


def _local(curve: Sequence[float], first: int, last: int, slots: Sequence[int]) -> float:
    if not 0 < curve[first] <= curve[last]:
        return math.nan
    return math.log(curve[last] / curve[first]) / math.log(slots[last] / slots[first])


def stream_table(runs: Runs) -> str:
    """Return a row per stream: the percentage of errors of each policy, and what it paid."""
    policies = list(dict.fromkeys(policy for policy, _ in runs))
    worlds = list(dict.fromkeys(world for _, world in runs))
    rows = [[world, *(_errors(runs[policy, world]) for policy in policies)] for world in worlds]
    return tables.table(["", *policies], rows)


def _errors(team: Sequence[Run]) -> str:
    wrong = 100 * tables.mean([run.errors for run in team])
    paid = 100 * tables.mean([run.cost for run in team])
    return f"{wrong + paid:.2f}<br>{wrong:.2f} + {paid:.2f}"


def sensitivity_table(runs: Runs) -> str:
    """Return a row per policy: its ratios to the default, which is the first."""
    found = Compared(losses(runs), DEFAULT)
    rows = [
        [
            policy,
            tables.interval(geometric(found, policy)),
            _worst({world: found.to_reference(policy, world).mean for world in found.worlds}),
        ]
        for policy in found.policies
    ]
    return tables.table(["", f"to {DEFAULT}, geometric mean", "worst"], rows)


def free_table(plain: Runs, free: Runs) -> str:
    """Return a row per environment: the regret of the default without and with free functions."""
    lost, scored = losses(plain), losses(free)
    rows = [
        [
            world,
            f"{tables.mean(lost[policy, world]):.4f}",
            f"{tables.mean(scored[policy, world]):.4f}",
            tables.interval(
                ratio(scored[policy, world], lost[policy, world]) or Interval(math.nan)
            ),
        ]
        for policy, world in lost
    ]
    return tables.table(["", "not free", "free", "ratio"], rows)
