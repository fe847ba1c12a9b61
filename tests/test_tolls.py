"""Links whose costs a replay finds out: held to a slow loop, and what comes of it."""

import csv
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey import backtest, config
from covey.errors import ConfigError, DataError
from covey.types import Outcome
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
CHANGES = [(130, (2, 1), "gone"), (131, (0, 1), 0.125), (411, (2, 1), 0.0625)]


def table(*, changes: list[Any] = CHANGES, **policy: Any) -> dict[str, Any]:
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
        "link-change": [{"slot": slot, **ends(pair), "cost": c} for slot, pair, c in changes],
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
def test_a_replay_decides_and_pays_as_the_slow_loop_does(every: int, preset: str) -> None:
    given = stream()
    trace = covey.replay(table(preset=preset, slices=2, **{"relearn-every": every}), **given)

    assert rows_of(trace) == slow_loop(given, every, zooming=preset == "dcza")


def replayed_file(folder: Path, table: dict[str, Any]) -> Outcome:
    given = stream()
    functions = [f"{name}-{f}" for name in SITES for f in "fg"]
    columns = {
        "x": given["contexts"][:, 0],
        "label": given["labels"],
        **dict(zip(functions, given["predictions"], strict=True)),
        **given["columns"],
    }
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return backtest.replay_file(folder / "log.csv", config.load(table))


def test_a_file_in_small_chunks_is_replayed_as_its_arrays_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.logs.ROWS_PER_CHUNK", 13)
    learnt = table(slices=2, **{"relearn-every": 30})
    outcome = replayed_file(tmp_path, learnt)
    trace = covey.replay(learnt, **stream())

    for place, learner in enumerate(outcome.learners):
        mine = trace.learner == place
        assert learner.cost_total == trace.cost[mine].sum()
        assert learner.errors == int((trace.correct[mine] == 0).sum())


def test_alone_is_as_without_links(tmp_path: Path) -> None:
    linked = table(slices=2)
    nobody = {key: value for key, value in linked.items() if not key.startswith("link")}
    nobody["learner"] = [{**learner, "peers": {}} for learner in nobody["learner"]]

    together, apart = (replayed_file(tmp_path, one).learners for one in (linked, nobody))

    assert [one.alone_errors for one in together] == [one.errors for one in apart]


def test_an_epoch_that_starts_anew_keeps_what_is_known_of_the_links() -> None:
    policy = {"horizon": "doubling", "first-epoch": 50, "slices": 2, "relearn-every": 10}
    given = stream()
    trace = covey.replay(table(changes=[], **policy), **given)
    # Way of north to south by west: 0 at first, about a half once it is known, against 0.375.
    asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("south"))
    direct = trace.cost == 0.375

    assert (asks & ~direct)[trace.slot <= 20].any()
    assert (asks & direct)[trace.slot > 50].any()
    assert not (asks & ~direct)[trace.slot > 50].any()


def two_ways(slots: int, toll: float, *, is_direct: bool = True) -> covey.Trace:
    """North reaches south, who is always right, at 0.3, or by way of west at two unknown tolls."""
    labels = np.random.default_rng(1).integers(0, 2, slots)
    links: list[Any] = [
        {"from": "north", "to": "west", "cost-column": "toll"},
        {"from": "west", "to": "south", "cost-column": "toll"},
    ]
    if is_direct:
        links.append({"from": "north", "to": "south", "cost": 0.3})
    learners = [{"name": name, "functions": [f"{name}-f"]} for name in SITES]
    settings = {"policy": {"slices": 1, "relearn-every": 50}, "learner": learners}
    return covey.replay(
        {**settings, "link": links},
        predictions=[1 - labels, labels, 1 - labels],
        labels=labels,
        contexts=np.zeros((slots, 1)),
        columns={"toll": np.full(slots, toll)},
    )


def paid_for_south(trace: covey.Trace) -> list[float]:
    asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("south"))
    return [round(cost, 6) for cost in trace.cost[asks].tolist()]


def test_a_path_that_looks_free_is_taken_until_it_is_known() -> None:
    paid = paid_for_south(two_ways(1_000, 0.4))
    runs = [(cost, len(list(group))) for cost, group in itertools.groupby(paid)]

    assert [cost for cost, _ in runs] == [0.8, 0.3]
    assert runs[0][1] < 50


def test_a_path_that_is_cheaper_than_the_given_one_is_kept() -> None:
    assert set(paid_for_south(two_ways(1_000, 0.1))) == {0.2}


def test_who_turns_out_to_cost_more_than_a_right_label_is_asked_no_more() -> None:
    trace = two_ways(1_000, 0.7, is_direct=False)
    asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("south"))

    assert asks[trace.slot <= 50].any()
    assert not asks[trace.slot > 50].any()
    assert set(paid_for_south(trace)) == {1.4}


def test_serving_costs_are_carried_on_top_of_what_the_links_cost() -> None:
    labels = np.ones(200, int)
    table = {
        "policy": {"slices": 1, "carry-serving-costs": True, "relearn-every": 20},
        "learner": [
            {"name": "north", "functions": ["a"], "cost-columns": {"south": "fee"}},
            {"name": "south", "functions": ["b"], "serving-cost": 0.25},
        ],
        "link": [{"from": "north", "to": "south", "cost-column": "toll"}],
    }
    trace = covey.replay(
        table,
        predictions=[1 - labels, labels],
        labels=labels,
        contexts=np.zeros((200, 1)),
        columns={"toll": np.full(200, 0.125), "fee": np.full(200, 0.0625)},
    )

    assert set(paid_for_south(trace)) == {0.125 + 0.25 + 0.0625}


def test_a_peer_that_comes_into_reach_later_is_an_arm_that_is_closed() -> None:
    links = [
        {"from": "north", "to": "west", "cost": "gone"},
        {"from": "west", "to": "south", "cost-column": "toll"},
    ]
    table = {
        "learner": [{"name": name, "functions": [name + "-f"]} for name in SITES],
        "link": links,
        "link-change": [{"slot": 9, "from": "north", "to": "west", "cost": 0.9}],
    }
    north, south, west = config.load(table).sites

    assert (north.peers, north.costs) == ((1, 2), (0.0, math.inf, math.inf))
    assert (south.peers, west.peers) == ((), (1,))


@pytest.mark.parametrize(
    ("toll", "sentence"),
    [
        (1.5, "row 2: column 'toll' is 1.5; a cost must lie in [0, 1]"),
        (float("nan"), "row 2: column 'toll' is nan; a cost must lie in [0, 1]"),
    ],
)
def test_a_toll_that_is_none_is_refused(toll: float, sentence: str) -> None:
    with pytest.raises(DataError) as raised:
        covey.replay(
            {
                "learner": [{"name": name, "functions": [name + "-f"]} for name in SITES],
                "link": [{"between": ["north", "south"], "cost-column": "toll"}],
            },
            predictions=np.ones((3, 2), int),
            labels=[1, 1],
            contexts=[[0.5], [0.5]],
            columns={"toll": [0.5, toll]},
        )
    assert sentence in str(raised.value)


def test_a_column_of_tolls_must_be_given() -> None:
    given = stream()
    del given["columns"]["ws"]

    with pytest.raises(DataError, match="the configuration names column 'ws'; give it in columns"):
        covey.replay(table(), **given)


@pytest.mark.parametrize("every", [0, -5])
def test_prices_are_worked_out_every_slot_at_the_most(every: int) -> None:
    with pytest.raises(ConfigError, match=f"relearn-every is {every}; it must lie from 1 to"):
        config.load(table(**{"relearn-every": every}))


def test_a_network_refuses_columns_of_tolls() -> None:
    functions = {f"{name}-{f}": lambda x: 1 for name in SITES for f in "fg"}

    with pytest.raises(ConfigError, match=r"has cost-column in \[\[link\]\] \(use Links"):
        covey.Network(table(changes=[]), functions=functions)
