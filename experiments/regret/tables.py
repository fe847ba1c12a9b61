"""Runs -> tables in Markdown, and sentences on what they come to."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from playing import Played

from covey.bandit import bounds
from covey.bandit.bounds import Problem
from covey.simulation.comparison import growth_of, ratio, total
from covey.simulation.run import Run
from covey.types import Interval

DEFAULT = "auto"
CASES = ("C1", "C2", "C3", "C4")
DASH = "\N{EN DASH}"


class Entry(NamedTuple):
    """One policy in one environment, against the better of the paper's two."""

    policy: str
    environment: str
    loss: float  # regret per slot
    rival: str
    ratio: Interval


def entries(played: Played) -> list[Entry]:
    """Return what every policy lost in every environment."""
    found = []
    for environment in played.scenario.environments:
        losses = {policy: played.losses(policy, environment) for policy in played.scenario.policies}
        rival = better(losses["cos"], losses["dcza"])
        for policy, own in losses.items():
            compared = ratio(own, losses[rival]) or Interval(float("nan"))
            found.append(Entry(policy, environment, mean(own), rival, compared))
    return found


def better(cos: Sequence[float], dcza: Sequence[float]) -> str:
    """Return which of the paper's two lost less on average."""
    return "cos" if mean(cos) <= mean(dcza) else "dcza"


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


def matrix(found: Sequence[Entry]) -> str:
    """Return a table: a row per environment, a column per policy."""
    policies = list(dict.fromkeys(entry.policy for entry in found))
    environments = list(dict.fromkeys(entry.environment for entry in found))
    at = {(entry.environment, entry.policy): entry for entry in found}
    rows = [[name, *(_cell(at[name, policy]) for policy in policies)] for name in environments]
    return table(["", *policies], rows)


def _cell(entry: Entry) -> str:
    lost = f"{entry.loss:.4f}"
    return lost if entry.policy == entry.rival else f"{lost}<br>{interval(entry.ratio)}"


def goal(found: Sequence[Entry], most: float) -> str:
    """Say whether the default's ratio is at most `most` in each environment."""
    mine = [entry for entry in found if entry.policy == DEFAULT]
    missed = [entry for entry in mine if entry.ratio.mean > most]
    worst = max(mine, key=lambda entry: entry.ratio.mean)
    told = "; ".join(f"{entry.environment} {interval(entry.ratio)}" for entry in missed)
    return (
        f"Goal: `{DEFAULT}` loses at most {most:g} times as much as the better of the two in each "
        f"environment. It is **{'missed' if missed else 'met'}** in "
        f"{len(missed) if missed else len(mine)} of {len(mine)}"
        + (f" ({told})." if missed else f"; the largest ratio is {worst.ratio.mean:.2f}.")
    )


def no_harm(found: Sequence[Entry], most: float) -> str:
    """Say where the interval of the default's ratio reaches above `most`."""
    mine = [entry for entry in found if entry.policy == DEFAULT]
    above = [entry for entry in mine if (entry.ratio.high or entry.ratio.mean) > most]
    told = "; ".join(f"{entry.environment} {interval(entry.ratio)}" for entry in above)
    return f"Goal: nowhere does the interval of `{DEFAULT}` reach above {most:g}. It is " + (
        f"**missed** in {len(above)} of {len(mine)}: {told}." if above else "**met**."
    )


class Growth(NamedTuple):
    """How the regret of one policy in one environment grows with the horizon."""

    policy: str
    environment: str
    losses: list[float]  # regret of a learner, at the horizons
    across: Interval | None  # exponent over horizons
    within: Interval | None  # exponent over the slots of the longest runs
    explored: list[float]  # percent of training and exploring, at the horizons


def growths(series: Sequence[Played]) -> list[Growth]:
    """Return how regret grows over the horizons of a series."""
    first, last = series[0].scenario, series[-1]
    slots = [played.scenario.horizon for played in series]
    found = []
    for environment in first.environments:
        for policy in first.policies:
            teams = [played.team(policy, environment) for played in series]
            ends = [[total(run)[-1] for run in team] for team in teams]
            found.append(
                Growth(
                    policy,
                    environment,
                    [mean(values) for values in ends],
                    growth_of(slots, list(zip(*ends, strict=True))),
                    growth_of(last.runs[0].slots, [total(run) for run in teams[-1]]),
                    [100 * mean([_trying(run) for run in team]) for team in teams],
                )
            )
    return found


def _trying(run: Run) -> float:
    return run.phases["train"] + run.phases["explore"]


def growth_table(series: Sequence[Played]) -> str:
    """Return exponents beside those of the theorems, and how much was training and exploring."""
    slots = [played.scenario.horizon for played in series]
    rows = []
    for one in growths(series):
        world = series[0].scenario.environments[one.environment]
        promised = _order(one.policy, world.case or "", world.dimension)
        rows.append(
            [
                one.environment,
                one.policy,
                spread(one.across),
                spread(one.within),
                f"{promised:.3f}",
                *(
                    f"{lost:,.0f} ({share:.1f} %)"
                    for lost, share in zip(one.losses, one.explored, strict=True)
                ),
            ]
        )
    heads = ["", "", "exponent over T", "within the longest", "theorem"]
    return table([*heads, *(f"T = {slot:,}" for slot in slots)], rows)


def _order(policy: str, case: str, dimension: int) -> float:
    orders = bounds.orders(Problem(dimension=dimension))
    name = {"cos": "CoS", "dcza": "DCZA"}[policy]
    return next(one.exponent for one in orders if (one.algorithm, one.case) == (name, case))


def exploitation_table(horizons: Iterable[int]) -> str:
    """Return when CoS with the theorem's parameters begins to exploit."""
    rows = []
    for dimension in (1, 2):
        for case in ("C1", "C2"):
            for horizon in horizons:
                one = bounds.exploitation(Problem(dimension=dimension, horizon=horizon), case)
                begins = "never" if one.slot is None else f"{one.slot:,}"
                least = DASH if one.least_horizon is None else f"{one.least_horizon:.3g}"
                rows.append([f"{case} d {dimension}", f"{horizon:,}", begins, least])
    return table(["", "T", "exploits from slot", "least T that is long enough"], rows)


def liar_table(played: Played) -> str:
    """Return what liars get, trusted and checked, and what it costs."""
    rows = []
    for case in CASES:
        for policy in [name for name in played.scenario.policies if "trusting" not in name]:
            wary = played.team(policy, f"{case} lies")
            trusting = played.team(f"{policy} trusting", f"{case} lies")
            rows.append(
                [
                    case,
                    policy,
                    _percent(run.to_liars["overall"] for run in trusting),
                    _percent(run.to_liars["overall"] for run in wary),
                    f"{100 * worst_cell(wary):.2f}",
                    *(
                        f"{mean(played.losses(name, world)):.4f}"
                        for name, world in (
                            (f"{policy} trusting", f"{case} lies"),
                            (policy, f"{case} lies"),
                            (f"{policy} trusting", f"{case} honest"),
                            (policy, f"{case} honest"),
                        )
                    ),
                ]
            )
    return table(
        [
            "",
            "",
            "% to the liar, trusting",
            "% to the liar, checked",
            "worst cell, %",
            "regret, trusting",
            "regret, checked",
            "honest, trusting",
            "honest, checked",
        ],
        rows,
    )


def worst_cell(team: Iterable[Run]) -> float:
    """Return the largest share of a cell that went to a liar, over all seeds."""
    return max(run.to_liars["worst cell"] for run in team)


def liar_goal(played: Played, most: float) -> str:
    """Say whether CoS keeps liars below `most` of any cell."""
    worst = max(worst_cell(played.team("cos", f"{case} lies")) for case in CASES)
    return (
        f"Goal: with `cos` and Z1, at most {100 * most:g} % of the instances of any cell go to the "
        f"liar. It is **{'met' if worst <= most else 'missed'}**: {100 * worst:.2f} % at most."
    )


def _percent(shares: Iterable[float]) -> str:
    return f"{100 * mean(list(shares)):.2f}"


def interval(one: Interval) -> str:
    """Return a ratio with its interval."""
    if one.low is None or one.high is None:
        return f"{one.mean:.2f}"
    return f"{one.mean:.2f} ({one.low:.2f}{DASH}{one.high:.2f})"


def spread(one: Interval | None) -> str:
    """Return an exponent with its interval."""
    if one is None:
        return DASH
    reach = "" if one.high is None else f" ± {one.high - one.mean:.3f}"
    return f"{one.mean:.3f}{reach}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
