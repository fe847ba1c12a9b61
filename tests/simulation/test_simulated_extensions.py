"""Extensions in simulation: the decisions of a replay, and regret as a slow oracle counts it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey.bandit.policies import DCZA, Auto, CoS, Forget, PolicyRecord
from covey.data.logs import Trace
from covey.errors import ConfigError
from covey.report import simulation as report
from covey.simulation import comparison, runner, scenario
from covey.simulation.environment import environment_from
from covey.simulation.run import CAUSES, Run, play
from covey.simulation.world import World, WorldChunk
from covey.types import WHOLE
from reference import choices
from support import own_rewards
from support.compared import printed

SLOTS = 1_500
PRICE, COST = 0.1, 0.02
TABLE: dict[str, Any] = {
    "name": "world",
    "learners": 3,
    "functions": 2,
    "lipschitz": 1.2,
    "prices": PRICE,
    "function-costs": COST,
}


def learners(changes: Mapping[str, Mapping[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The learners of the world as a replay's tables, with changes by name."""
    names = [f"learner-{k}" for k in (1, 2, 3)]
    return [
        {
            "name": name,
            "functions": [f"{name}.1", f"{name}.2"],
            "function-costs": [COST, COST],
            "peers": {other: PRICE for other in names if other != name},
            **(changes or {}).get(name, {}),
        }
        for name in names
    ]


def drawn(table: Mapping[str, Any], slots: int = SLOTS) -> WorldChunk:
    return World(environment_from(table), seed=3, horizon=slots).draw(slots)


def replayed(
    config: Mapping[str, Any], chunk: WorldChunk, settings: PolicyRecord, **more: Any
) -> Trace:
    """The same instances, replayed from arrays under a configuration written here."""
    given = {
        "predictions": chunk.right[0],
        "labels": np.ones(len(chunk.points), np.int64),
        "contexts": chunk.points[:, 0],
        **more,
    }
    return covey.replay({"policy": msgspec.to_builtins(settings), **config}, **given)


def played(table: Mapping[str, Any], settings: PolicyRecord, **more: Any) -> Run:
    half = SLOTS // 2
    environment = environment_from(table)
    return play(environment, settings, seed=3, horizon=SLOTS, checkpoints=[half, SLOTS], **more)


def total(run: Run) -> np.ndarray:
    return np.array([run.regret[cause] for cause in CAUSES]).sum(axis=0)


def assert_same(run: Run, lost: np.ndarray, receivers: int = 3) -> None:
    """The run lost what the oracle of the tests counts, at both checkpoints."""
    half = SLOTS // 2 * receivers
    assert total(run) == pytest.approx([lost[:half].sum(), lost.sum()], abs=2e-3)
    assert lost.sum() > 1


POLICIES = [CoS(slices=3), DCZA(), Auto()]
by_preset = pytest.mark.parametrize("settings", POLICIES, ids=lambda one: one.preset)


# Time as a context.


def test_a_scenario_gives_time_its_horizon() -> None:
    tables = {
        "scenario": {"horizon-slots": 700, "seeds": 1},
        "policy": [{"name": "grid", "preset": "cos"}],
        "environment": [{"name": "calm", "candidates": ["x1", ["x1", {"scale": "slot"}]]}],
    }
    chosen = scenario.load(tables)

    timed = ["x1", {"scale": "slot", "horizon": 700}]
    assert chosen.environments["calm"].candidates == ["x1", timed]
    assert chosen.policy("grid", chosen.environments["calm"]).dimension == 2


# Rewards, random costs, losses, labels.


@pytest.mark.parametrize("name", ["outage", "thrift"])
@by_preset
def test_regret_with_a_function_as_reward_is_that_of_the_function(
    settings: PolicyRecord, name: str
) -> None:
    settings = msgspec.structs.replace(settings, reward=f"support.own_rewards:{name}")
    config = {"learner": learners()}
    chunk = drawn(TABLE)
    reward = getattr(own_rewards, name)

    def worth(choice: choices.Choice) -> float:
        return float(reward(choice.accuracy, choice.cost, (chunk.points[choice.slot, 0, 0],)))

    trace = replayed(config, chunk, settings)
    known = choices.World(config["learner"], chunk.accuracy)

    assert_same(played(TABLE, settings), choices.regret(known, trace, worth))


def test_a_function_as_reward_gets_the_expected_loss() -> None:
    """Of one arm only: the others are worth their expected gain less their cost."""
    loss = {"kind": "absolute", "bound": 50.0}
    own = {"rewards": {"learner-2": "support.own_rewards:of_loss"}}
    table = {**TABLE, "loss": loss, "learner": [{"name": "learner-1", **own}]}
    config = {"data": {"loss": loss}, "learner": learners({"learner-1": own})}
    chunk = drawn(table)

    def worth(choice: choices.Choice) -> float:
        if (choice.learner, choice.arm) != (0, "learner-2"):
            return choice.accuracy - choice.cost
        place = (chunk.points[choice.slot, 0, 0],)
        return own_rewards.of_loss(50 * (1 - choice.accuracy), choice.cost, place)

    distance = (1 - chunk.right[0] / WHOLE) * 50
    settings = CoS(slices=3)
    trace = replayed(config, chunk, settings, predictions=distance, labels=np.zeros(SLOTS))
    known = choices.World(config["learner"], chunk.accuracy)

    assert_same(played(table, settings), choices.regret(known, trace, worth))


# Classes; peers that see the context only.


def test_classes_have_the_probabilities_of_the_table() -> None:
    chunk = drawn({**TABLE, "classes": {"number": 4, "usual": 0.7}}, 40_000)
    assert chunk.labelled is not None
    labels, usual, answers = chunk.labelled
    rest = (labels - usual) % 4

    assert [(rest == k).mean() for k in range(4)] == pytest.approx([0.7, 0.1, 0.1, 0.1], abs=0.01)
    assert ((answers == labels) == (chunk.right == 1)).all()
    wrong = ((answers - labels) % 4)[chunk.right == 0]
    assert [(wrong == k).mean() for k in (1, 2, 3)] == pytest.approx([1 / 3] * 3, abs=0.01)


# Busy peers.


@by_preset
def test_regret_with_busy_peers_counts_answers_that_come_too_late(settings: PolicyRecord) -> None:
    own = {"learner-1": {"answer-wait": 3}, "learner-2": {"answer-delay": "load"}}
    given = [{"name": name, **keys} for name, keys in own.items()]
    table = {**TABLE, "columns": {"load": {"low": 1, "high": 10}}, "learner": given}
    config = {"learner": learners(own)}
    chunk = drawn(table)
    trace = replayed(config, chunk, settings, columns={"load": 1 + chunk.columns["load"] * 10 // 1})
    late = {("learner-1", "learner-2"): 0.7}  # of 1 to 10 slots, 7 are more than 3

    known = choices.World(config["learner"], chunk.accuracy, late=late)
    assert_same(played(table, settings), choices.regret(known, trace))


# Learners without labels.


def in_quarters(rng: np.random.Generator, second: float) -> Any:
    """Learner-1 has instances in the first quarter, learner-2 in the one that begins there."""
    at, high = np.array([0.5, 0.0, 1.0, 1.0]), np.array([0.7, 0.9, 0.95, 0.3])

    def draw(first_slot: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
        points = rng.random((slots, 2)) / 4 + np.array([0.0, second])
        away = np.abs(points.T[:, None, :] - at[:, None])
        return points[:, :, None], np.clip(high[:, None] - away, 0.3, 1.0)

    return draw


def test_without_labels_regret_is_linear_where_no_other_learner_has_instances() -> None:
    """The example of the paper: nobody can tell learner-1 what its functions are worth."""
    blind = {
        "name": "apart",
        "environment": in_quarters,
        "learners": 2,
        "correlation": "independent",
        "learner": [{"name": "learner-1", "supervised": False}],
        "measured": ["learner-1"],
    }
    apart, together = (
        environment_from({**blind, "options": {"second": second}}) for second in (0.75, 0.0)
    )
    how: dict[str, Any] = {"seed": 1, "horizon": 16_000, "checkpoints": [4_000, 16_000]}
    lost = [
        np.array([*play(world, CoS(slices=4), **how).regret.values()]).sum(axis=0)
        for world in (apart, together)
    ]

    assert lost[0][1] / lost[0][0] > 3.9  # four times as many slots: four times the regret
    assert lost[1][1] < 0.5 * lost[0][1]


# Serving costs.


@pytest.mark.parametrize("are_carried", [False, True])
@by_preset
def test_utilities_are_those_of_the_accounts_of_a_replay(
    settings: PolicyRecord, are_carried: bool
) -> None:
    own = {"learner-2": {"serving-cost": 0.07}, "learner-3": {"serving-cost": 0.3}}
    settings = msgspec.structs.replace(settings, carry_serving_costs=are_carried)
    table = {**TABLE, "learner": [{"name": name, **keys} for name, keys in own.items()]}
    config = {"learner": learners(own)}
    chunk = drawn(table)
    trace = replayed(config, chunk, settings)
    columns = trace.columns()
    utility = dict.fromkeys(("learner-1", "learner-2", "learner-3"), 0.0)
    for row, learner in enumerate(columns["learner"]):
        utility[learner] += columns["correct"][row] - columns["cost"][row]
        if (helper := columns["arm"][row]) in utility:
            utility[helper] += columns["cost"][row]
            utility[helper] -= own.get(helper, {}).get("serving-cost", 0.0)
    accounts = played(table, settings).accounts

    found = {name: account.utility for name, account in accounts.items()}
    assert found == pytest.approx(utility)
    assert sum(account.bought for account in accounts.values()) > 0
    carried = {name: keys["serving-cost"] * are_carried for name, keys in own.items()}
    paying = [
        {
            **one,
            "peers": {peer: price + carried.get(peer, 0.0) for peer, price in one["peers"].items()},
        }
        for one in learners()
    ]
    lost = choices.regret(choices.World(paying, chunk.accuracy), trace)
    assert_same(played(table, settings), lost)


def test_a_policy_that_forgets_loses_less_after_a_switch() -> None:
    """Accuracies of the functions change places once, at half of the slots."""
    table = {**TABLE, "drift": {"kind": "switch", "severity": 0.4, "every-slots": 1_500}}
    how = {"seed": 3, "horizon": 3_000, "checkpoints": [1_500, 3_000]}
    after = []
    for forget in (Forget(), Forget(window=100)):
        run = play(environment_from(table), CoS(slices=1, forget=forget), **how)
        first, both = total(run)
        after.append(both - first)

    assert after[1] < 0.9 * after[0]


# Batches.


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

LINKED = {"name": "linked", "learners": 3, "functions": 2, "lipschitz": 1.2}
BARE = [{"name": one["name"], "functions": one["functions"]} for one in learners()]
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


def lost_by(
    chunk: WorldChunk, trace: Trace, prices: Sequence[tuple[int, Mapping[tuple[int, int], float]]]
) -> np.ndarray:
    """What each decision lost, with prices of peers by asker and peer from a slot on."""
    owner, lost = np.repeat(np.arange(3), 2), []
    for row, function in enumerate(trace.function.tolist()):
        slot, learner = divmod(row, 3)
        now = [table for first, table in prices if first <= slot + 1][-1]
        cost = [0.0 if who == learner else now.get((learner, who), np.inf) for who in owner]
        worth = chunk.accuracy[0, :, slot] - np.array(cost)
        lost.append(float(worth.max() - worth[function]))
    return np.array(lost)


@by_preset
def test_regret_follows_links_that_change(settings: PolicyRecord) -> None:
    chunk = drawn({**LINKED, **LINKS})
    trace = replayed({"learner": BARE, **LINKS}, chunk, settings)

    assert_same(played({**LINKED, **LINKS}, settings), lost_by(chunk, trace, PRICES))


@by_preset
def test_regret_of_learners_that_ask_through_a_relay_is_against_the_sums_of_paths(
    settings: PolicyRecord,
) -> None:
    asked = {"learner-1": {"learner-2": 0.05}, "learner-2": {"learner-3": 0.1}, "learner-3": {}}
    tables = [
        {"name": name, "peers": peers, "relay": name == "learner-2"}
        for name, peers in asked.items()
    ]
    table = {**LINKED, "learner": tables}
    chunk = drawn(table)
    config = [{**own, **more} for own, more in zip(BARE, tables, strict=True)]
    trace = replayed({"learner": config}, chunk, settings)
    prices = [(1, {(0, 1): 0.05, (1, 2): 0.1, (0, 2): 0.15})]  # by hand

    assert_same(played(table, settings), lost_by(chunk, trace, prices))
    assert (trace.arm[trace.learner == 0] == trace.names["arm"].index("learner-3")).any()


def test_the_oracle_knows_the_mean_costs_of_links_and_the_cheapest_path() -> None:
    columns = {"direct": {"low": 0.2, "high": 0.4}, "detour": {"high": 0.1}}
    links = [
        {"from": "learner-1", "to": "learner-3", "cost-column": "direct", "guess": 0.0},
        {"from": "learner-1", "to": "learner-2", "cost-column": "detour", "guess": 0.0},
        {"from": "learner-2", "to": "learner-3", "cost": 0.1},
    ]
    table = {**LINKED, "correlation": "worst", "link": links, "columns": columns}
    settings = CoS(slices=2, relearn_every=50)
    chunk = drawn(table)
    tolls = {"direct": 0.2 + 0.2 * chunk.columns["direct"], "detour": 0.1 * chunk.columns["detour"]}
    config = [{**one, "arrivals": one["name"] == "learner-1"} for one in BARE]
    trace = replayed({"learner": config, "link": links}, chunk, settings, columns=tolls)
    price = np.array([0, 0, 0.05, 0.05, 0.15, 0.15])  # on average, over learner-2
    known = chunk.accuracy[0]
    best = (known - price[:, None]).max(axis=0)
    lost = best - (known[trace.function, np.arange(SLOTS)] - trace.cost)

    assert_same(played(table, settings), lost, receivers=1)


# Reports and the command line.


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
        return printed(found)

    plain = told([{"name": "plain"}])
    serving = told([{"name": "serving", "learner": [{"name": "learner-1", "serving-cost": 0.1}]}])
    voting = told([{"name": "voting", "classes": {"usual": 0.6}, "ensemble": {}}])

    found = [
        [word in text for word in ("utility", "ensemble %")] for text in (plain, serving, voting)
    ]
    assert found == [[False, False], [True, False], [False, True]]
