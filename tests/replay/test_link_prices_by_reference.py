"""Links with learnt costs equal the reference in every decision and payment."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import covey
from reference import Lesson, Network, Setup, Site

SITES = ("north", "south", "west")
SLOTS = 600
LINKS: dict[tuple[int, int], float | str] = {  # a cost, or the column that says it
    (0, 2): "nw",
    (2, 1): "ws",
    (0, 1): 0.375,
    (1, 0): "sn",
    (2, 0): 0.25,
}
CHANGES: list[tuple[int, tuple[int, int], float | str]] = [
    (130, (0, 1), "gone"),
    (131, (2, 0), 0.125),
    (411, (0, 1), 0.0625),
]


def table(**policy: Any) -> dict[str, Any]:
    def ends(pair: tuple[int, int]) -> dict[str, str]:
        return {"from": SITES[pair[0]], "to": SITES[pair[1]]}

    return {
        "data": {"context": ["x"]},
        "policy": {"explore": {"scale": 0.2, "power": 0.1}, **policy},
        "learner": [{"name": name, "functions": [f"{name}-f", f"{name}-g"]} for name in SITES],
        "link": [
            {**ends(pair), "cost-column" if isinstance(cost, str) else "cost": cost}
            for pair, cost in LINKS.items()
        ],
        "link-change": [{"slot": slot, **ends(pair), "cost": c} for slot, pair, c in CHANGES],
    }


def stream() -> dict[str, Any]:
    """Return a log whose costs are binary fractions, so that sums of them are exact."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, SLOTS)
    is_right = rng.random((6, SLOTS)) < np.array([[0.5], [0.6], [0.9], [0.7], [0.8], [0.95]])
    return {
        "predictions": np.where(is_right, labels, 1 - labels),
        "labels": labels,
        "contexts": rng.random((SLOTS, 1)),
        "columns": {name: rng.integers(0, 32, SLOTS) / 64 for name in ("nw", "ws", "sn")},
    }


class Wires:
    """What is known of the links, slot by slot and path by path."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = columns
        self.costs: dict[tuple[int, int], Any] = dict(LINKS)
        self.uses: dict[tuple[int, int], list[float]] = {pair: [] for pair in LINKS}
        self.known: dict[tuple[int, int], float] = dict.fromkeys(LINKS, 0.0)

    def relearn(self) -> None:
        self.known |= {pair: sum(seen) / len(seen) for pair, seen in self.uses.items() if seen}

    def path(self, asker: int, peer: int) -> tuple[float, list[tuple[int, int]]]:
        """Return the cheapest way from one to the other by what is known."""
        (middle,) = {0, 1, 2} - {asker, peer}
        ways = [[(asker, peer)], [(asker, middle), (middle, peer)]]
        there = [way for way in ways if all(pair in self.costs for pair in way)]
        costs = [sum(self.cost(pair) for pair in way) for way in there]
        assert len(set(costs)) == len(costs)  # so that it does not matter which of equals is taken
        return min(zip(costs, there, strict=True))

    def cost(self, pair: tuple[int, int]) -> float:
        cost = self.costs[pair]
        return self.known[pair] if isinstance(cost, str) else cost

    def use(self, asker: int, peer: int, slot: int) -> float:
        paid = 0.0
        for pair in self.path(asker, peer)[1]:
            cost = self.costs[pair]
            if isinstance(cost, str):
                cost = self.columns[cost][slot - 1]
                self.uses[pair].append(cost)
            paid += cost
        return paid


def slow_loop(given: dict[str, Any], every: int, *, zooming: bool) -> list[tuple[Any, ...]]:
    sites = tuple(Site(name, 2, (0.0, 0.0), True, ()) for name in SITES)
    thresholds = ((0.2, 0.1), (2.0, 0.125), (1.0, 0.125))
    setup = Setup(
        sites, zooming, 2, 1.0, 4.0, 0, *thresholds, "own-train-peers", "explore-first",
        "arrivals", "all", "all", False, None,
    )  # fmt: skip
    network, wires, rows = Network(setup), Wires(given["columns"]), []
    for slot in range(1, SLOTS + 1):
        if (slot - 1) % every == 0:
            wires.relearn()
        for _, pair, cost in [change for change in CHANGES if change[0] == slot]:
            wires.costs.pop(pair, None)
            if cost != "gone":
                wires.costs[pair] = cost
        priced = [
            replace(site, peers=tuple((k, wires.path(i, k)[0]) for k in range(3) if k != i))
            for i, site in enumerate(sites)
        ]
        network.setup = replace(setup, sites=tuple(priced))
        answers = given["predictions"][:, slot - 1].tolist()
        context = tuple(given["contexts"][slot - 1].tolist())
        decisions = [network.decide(i, context, slot, [0, 0, 0]) for i in range(3)]
        for decision in decisions:
            network.end_slot(decision)
            paid = 0.0
            if not decision.is_own:
                paid = wires.use(decision.site, decision.owner, slot)
            function, answer = network.site_says(decision, answers)
            right = answer == given["labels"][slot - 1]
            rows.append((slot, decision.site, decision.phase, function, int(right), paid))
        for decision in decisions:
            right = network.arm_says(decision, answers) == given["labels"][slot - 1]
            network.learn(decision, Lesson(given["labels"][slot - 1], right, 0))
    assert all(wires.uses[pair] for pair, cost in LINKS.items() if isinstance(cost, str))
    return rows


def rows_of(trace: covey.Trace) -> list[tuple[Any, ...]]:
    columns = trace.columns()
    return list(
        zip(
            columns["slot"],
            trace.learner.tolist(),
            columns["phase"],
            trace.function.tolist(),
            columns["correct"],
            columns["cost"],
            strict=True,
        )
    )


@pytest.mark.parametrize("preset", ["cos", "dcza"])
@pytest.mark.parametrize("every", [1, 7, 100, 1_000])
def test_a_replay_decides_and_pays_like_the_reference(every: int, preset: str) -> None:
    given = stream()
    trace = covey.replay(table(preset=preset, slices=2, **{"relearn-every": every}), **given)

    assert rows_of(trace) == slow_loop(given, every, zooming=preset == "dcza")
