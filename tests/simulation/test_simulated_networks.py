"""Batches, links that change, and ensembles in simulation."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey import cli
from covey.bandit.policies import DCZA, CoS
from covey.bandit.settings import Reading, Settings
from covey.data.logs import Trace
from covey.errors import ConfigError
from covey.replay.outcome import label_delays
from covey.report import simulation as report
from covey.simulation import comparison, runner, scenario
from covey.simulation.environment import environment_from
from covey.simulation.run import CAUSES, Run, play
from covey.simulation.world import World, WorldChunk
from reference import choices

SLOTS = 1_500
NAMES = ["learner-1", "learner-2", "learner-3"]
TABLE: dict[str, Any] = {"name": "world", "learners": 3, "functions": 2, "lipschitz": 1.2}
POLICIES = [CoS(slices=3), DCZA(), Settings(preset="auto")]
by_preset = pytest.mark.parametrize("settings", POLICIES, ids=lambda one: one.preset)


def learners(price: float | None) -> list[dict[str, Any]]:
    """The learners of a replay; without a price, links set it."""
    return [
        {
            "name": name,
            "functions": [f"{name}.1", f"{name}.2"],
            **({} if price is None else {"peers": {one: price for one in NAMES if one != name}}),
        }
        for name in NAMES
    ]


def drawn(table: Mapping[str, Any]) -> WorldChunk:
    return World(environment_from(table), seed=3, horizon=SLOTS).draw(SLOTS)


def replayed(
    config: Mapping[str, Any], chunk: WorldChunk, settings: Settings, **more: Any
) -> Trace:
    given = {
        "predictions": chunk.right[0],
        "labels": np.ones(SLOTS, np.int64),
        "contexts": chunk.points[:, 0],
        **more,
    }
    return covey.replay({"policy": msgspec.to_builtins(settings), **config}, **given)


def played(table: Mapping[str, Any], settings: Settings) -> Run:
    environment = environment_from(table)
    return play(environment, settings, seed=3, horizon=SLOTS, checkpoints=[750, SLOTS])


def total(run: Run) -> np.ndarray:
    return np.array([run.regret[cause] for cause in CAUSES]).sum(axis=0)


# Batches.


@pytest.mark.parametrize("batch", ["slots", "slot"])
@pytest.mark.parametrize("settings", POLICIES[:2], ids=lambda one: one.preset)
def test_batches_have_the_decisions_of_a_replay_with_batches(
    settings: Settings, batch: Any
) -> None:
    settings = msgspec.structs.replace(settings, reading=Reading(batch=batch))
    table = {**TABLE, "prices": 0.1, "batch": 25}
    chunk = drawn(table)
    trace = replayed({"learner": learners(0.1)}, chunk, settings, batch=np.arange(SLOTS) // 25)
    owner = np.repeat(np.arange(3), 2)
    lost = []
    for row, function in enumerate(trace.function.tolist()):
        slot, learner = divmod(row, 3)
        worth = chunk.accuracy[0, :, slot] - 0.1 * (owner != learner)
        lost.append(float(worth.max() - worth[function]))

    assert total(played(table, settings)) == pytest.approx(
        [sum(lost[: 750 * 3]), sum(lost)], abs=2e-3
    )
    assert total(played({**table, "batch": 1}, settings))[-1] != pytest.approx(sum(lost), abs=0.1)


def test_chunks_and_checkpoints_are_whole_batches() -> None:
    tables = {
        "scenario": {"horizon-slots": 2_100, "seeds": 1, "workers": 1},
        "policy": [{"name": "grid", "preset": "cos"}],
        "environment": [{"name": "six", "batch": 6}, {"name": "ten", "batch": 10}],
    }
    chosen = scenario.load(tables)

    assert len(chosen.checkpoints) > 5
    assert all(slot % 30 == 0 for slot in chosen.checkpoints)
    with pytest.raises(ConfigError, match="2104 slots is not a whole number of batches of 6"):
        scenario.load(tables, horizon_slots=2_104)
    with pytest.raises(ConfigError, match="checkpoint 33 is not at the end of a batch of 6"):
        scenario.load({**tables, "scenario": {**tables["scenario"], "checkpoints": [33]}})


# Links.

LINKS: dict[str, Any] = {
    "link": [
        {"between": ["learner-1", "learner-2"], "cost": 0.05},
        {"from": "learner-2", "to": "learner-3", "cost": 0.1},
        {"from": "learner-3", "to": "learner-1", "cost": "gone"},
    ],
    "link-change": [
        {"from": "learner-2", "to": "learner-3", "cost": 0.3, "slot": 400},
        {"between": ["learner-1", "learner-2"], "cost": "gone", "slot": 900},
        {"from": "learner-3", "to": "learner-1", "cost": 0.02, "slot": 1_100},
    ],
}
PRICES = [  # from a slot on, asker and peer -> price, by hand
    (1, {(0, 1): 0.05, (1, 0): 0.05, (1, 2): 0.1, (0, 2): 0.15}),
    (400, {(0, 1): 0.05, (1, 0): 0.05, (1, 2): 0.3, (0, 2): 0.35}),
    (900, {(1, 2): 0.3}),
    (1_100, {(1, 2): 0.3, (2, 0): 0.02, (1, 0): 0.32}),
]


@by_preset
def test_regret_follows_links_that_change(settings: Settings) -> None:
    chunk = drawn({**TABLE, **LINKS})
    trace = replayed({"learner": learners(None), **LINKS}, chunk, settings)
    owner = np.repeat(np.arange(3), 2)
    lost = []
    for row, function in enumerate(trace.function.tolist()):
        slot, learner = divmod(row, 3)
        prices = [table for first, table in PRICES if first <= slot + 1][-1]
        cost = [0.0 if who == learner else prices.get((learner, who), np.inf) for who in owner]
        worth = chunk.accuracy[0, :, slot] - np.array(cost)
        lost.append(float(worth.max() - worth[function]))

    found = total(played({**TABLE, **LINKS}, settings))
    assert found == pytest.approx([sum(lost[: 750 * 3]), sum(lost)], abs=2e-3)


@by_preset
def test_regret_of_learners_that_ask_through_a_relay_is_against_the_sums_of_paths(
    settings: Settings,
) -> None:
    asked = {"learner-1": {"learner-2": 0.05}, "learner-2": {"learner-3": 0.1}, "learner-3": {}}
    tables = [
        {"name": name, "peers": peers, "relay": name == "learner-2"}
        for name, peers in asked.items()
    ]
    table = {**TABLE, "learner": tables}
    chunk = drawn(table)
    config = [{**own, **more} for own, more in zip(learners(None), tables, strict=True)]
    trace = replayed({"learner": config}, chunk, settings)
    prices = {(0, 1): 0.05, (1, 2): 0.1, (0, 2): 0.15}  # by hand
    lost = []
    for row, function in enumerate(trace.function.tolist()):
        slot, learner = divmod(row, 3)
        owner = np.repeat(np.arange(3), 2)
        cost = [0.0 if who == learner else prices.get((learner, who), np.inf) for who in owner]
        worth = chunk.accuracy[0, :, slot] - np.array(cost)
        lost.append(float(worth.max() - worth[function]))

    found = total(played(table, settings))
    assert found == pytest.approx([sum(lost[: 750 * 3]), sum(lost)], abs=2e-3)
    assert (trace.arm[trace.learner == 0] == trace.names["arm"].index("learner-3")).any()


def test_the_oracle_knows_the_mean_costs_of_links_and_the_cheapest_path() -> None:
    columns = {"direct": {"low": 0.2, "high": 0.4}, "detour": {"high": 0.1}}
    links = [
        {"from": "learner-1", "to": "learner-3", "cost-column": "direct", "guess": 0.0},
        {"from": "learner-1", "to": "learner-2", "cost-column": "detour", "guess": 0.0},
        {"from": "learner-2", "to": "learner-3", "cost": 0.1},
    ]
    table = {**TABLE, "correlation": "worst", "link": links, "columns": columns}
    settings = CoS(slices=2, relearn_every=50)
    chunk = drawn(table)
    tolls = {"direct": 0.2 + 0.2 * chunk.columns["direct"], "detour": 0.1 * chunk.columns["detour"]}
    config = [{**one, "arrivals": one["name"] == "learner-1"} for one in learners(None)]
    trace = replayed({"learner": config, "link": links}, chunk, settings, columns=tolls)
    price = np.array([0, 0, 0.05, 0.05, 0.15, 0.15])  # on average, over learner-2
    known = chunk.accuracy[0]
    best = (known - price[:, None]).max(axis=0)
    lost = best - (known[trace.function, np.arange(SLOTS)] - trace.cost)

    assert total(played(table, settings)) == pytest.approx([lost[:750].sum(), lost.sum()], abs=2e-3)


# Ensembles.


@pytest.mark.parametrize("update", ["gradient", "majority", "hedge"])
def test_an_ensemble_errs_as_one_of_a_replay(update: str) -> None:
    ensemble = {"update": update}
    table = {**TABLE, "classes": {"number": 3, "usual": 0.5}, "ensemble": ensemble}
    settings = CoS(slices=3)
    chunk = drawn(table)
    assert chunk.labelled is not None
    labels, answers = chunk.labelled.labels, chunk.labelled.answers[0]
    config = {"learner": learners(0.1), "ensemble": ensemble}
    trace = replayed(config, chunk, settings, predictions=answers, labels=labels)
    members = trace.correct.reshape(SLOTS, 3)
    voting = covey.Ensemble(NAMES, update=update, classes=[0, 1, 2])
    wrong = 0
    cast = trace.prediction.reshape(SLOTS, 3).tolist()
    for votes, label in zip(cast, labels.tolist(), strict=True):
        answer, ticket = voting.vote(votes)
        wrong += answer != label
        voting.learn(ticket, label)
    run = played(table, settings)

    assert run.ensemble["all"] == pytest.approx(wrong / SLOTS)
    assert run.ensemble["best member"] == pytest.approx(1 - members.mean(axis=0).max())
    alone = choices.World([{**one, "peers": {}} for one in learners(None)], chunk.accuracy)
    assert total(run)[-1] == pytest.approx(choices.regret(alone, trace).sum(), abs=2e-3)


# Reports.


def test_reports_have_utilities_and_ensembles_only_where_they_are(tmp_path: Any) -> None:
    def told(environments: Sequence[Mapping[str, Any]]) -> str:
        tables = {
            "scenario": {"horizon-slots": 400, "seeds": 1, "workers": 1},
            "policy": [{"name": "grid", "preset": "cos", "slices": 2}],
            "environment": environments,
        }
        chosen = scenario.load(tables)
        folder = tmp_path / environments[0]["name"]
        found = comparison.compare(chosen, runner.simulate(chosen, folder))
        assert "</html>" in report.html(found)
        return report.text(found)

    plain = told([{"name": "plain"}])
    serving = told([{"name": "serving", "learner": [{"name": "learner-1", "serving-cost": 0.1}]}])
    voting = told([{"name": "voting", "classes": {"usual": 0.6}, "ensemble": {}}])

    found = [
        [word in text for word in ("utility", "ensemble %")] for text in (plain, serving, voting)
    ]
    assert found == [[False, False], [True, False], [False, True]]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({**LINKS, "prices": 0.1}, "has prices and link, which sets prices"),
        ({"link-change": LINKS["link-change"]}, "has link-change without link"),
        ({**LINKS, "learner": [{"name": "learner-1", "peers": {}}]}, "prices come from .*link"),
        ({"link": [{"between": ["learner-1", "south"], "cost": 0.1}]}, "unknown learner 'south'"),
        ({"link": [{"from": "learner-1", "to": "learner-2", "cost-column": "toll"}]},
         "cost-column names 'toll', which is not in columns"),
        ({"ensemble": {}}, "ensemble needs labels of several classes"),
        ({"ensemble": {"base": 1}, "classes": {"usual": 0.8}}, "ensemble.base is 1"),
        ({"ensemble": {"update": "x"}, "classes": {"usual": 0.8}}, "update"),
        ({"ensemble": {}, "classes": {"usual": 0.8}, "free": True}, "free functions"),
        ({"batch": 7}, "checkpoint 750 is not at the end of a batch of 7"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 25, "context": [{"scale": "slot", "horizon": SLOTS}]}, 'scale "slot", which'),
    ],
)  # fmt: skip
def test_networks_that_cannot_be_simulated_are_refused(keys: dict[str, Any], reason: str) -> None:
    settings = CoS(slices=3, reading=Reading(batch="slot"))
    with pytest.raises(ConfigError, match=reason):
        played({**TABLE, **keys}, settings)


def test_labels_of_a_batch_come_at_its_end() -> None:
    """What the kernel gets: the delay of each row, until the last row of its batch."""
    from covey.simulation.sites import WorldLog, network

    environment = environment_from({**TABLE, "batch": 3})
    log = WorldLog(environment, network(environment, CoS())).rows(
        World(environment, seed=1, horizon=6).draw(6)
    )

    assert label_delays(log, None).tolist() == [2, 1, 0, 2, 1, 0]


def test_the_command_line_plays_extensions_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(
        """
        [scenario]
        horizon-slots = 300
        seeds = 1
        workers = 1

        [[policy]]
        name = "timed"
        preset = "cos"
        context = ["x1", { scale = "slot" }]

        [[environment]]
        name = "market"
        learners = 3
        drift = { kind = "improve", severity = 0.2, every-slots = 300 }
        columns = { toll = { high = 0.2 } }

        [[environment.learner]]
        name = "learner-1"
        supervised = false

        [[environment.learner]]
        name = "learner-2"
        serving-cost = 0.1

        [[environment.link]]
        between = ["learner-1", "learner-2"]
        cost-column = "toll"
        """
    )
    cli.main(["simulate", str(file), "--out", str(tmp_path / "out"), "--json", "--quiet"])
    (score,) = json.loads(capsys.readouterr().out)["scores"]

    assert set(score["utility"]) == {"learner-1", "learner-2", "learner-3", "system"}
    assert score["regret_per_slot"]["mean"] > 0
