"""Extensions in simulation: the decisions of a replay, and regret as a slow oracle counts it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey.bandit.policies import DCZA, CoS
from covey.bandit.settings import Reading, Settings
from covey.data.logs import Trace
from covey.errors import ConfigError
from covey.kernel.rules import Reward
from covey.simulation import scenario
from covey.simulation.environment import Environment, environment_from
from covey.simulation.run import CAUSES, Run, play
from covey.simulation.sites import PolicyContext
from covey.simulation.world import World, WorldChunk
from covey.types import WHOLE
from reference import choices
from support import own_rewards

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
    config: Mapping[str, Any], chunk: WorldChunk, settings: Settings, **more: Any
) -> Trace:
    """The same instances, replayed from arrays under a configuration written here."""
    given = {
        "predictions": chunk.right[0],
        "labels": np.ones(len(chunk.points), np.int64),
        "contexts": chunk.points[:, 0],
        **more,
    }
    return covey.replay({"policy": msgspec.to_builtins(settings), **config}, **given)


def played(table: Mapping[str, Any], settings: Settings, **more: Any) -> Run:
    half = SLOTS // 2
    environment = environment_from(table)
    return play(environment, settings, seed=3, horizon=SLOTS, checkpoints=[half, SLOTS], **more)


def assert_same(run: Run, lost: np.ndarray, receivers: int = 3) -> None:
    """The run lost what the oracle of the tests counts, at both checkpoints."""
    found = np.array([run.regret[cause] for cause in CAUSES]).sum(axis=0)
    half = SLOTS // 2 * receivers
    assert found == pytest.approx([lost[:half].sum(), lost.sum()], abs=2e-3)
    assert lost.sum() > 1


POLICIES = [CoS(slices=3), DCZA(), Settings(preset="auto")]
by_preset = pytest.mark.parametrize("settings", POLICIES, ids=lambda one: one.preset)


# Time as a context; functions that improve.

IMPROVING = {**TABLE, "drift": {"kind": "improve", "severity": 0.5, "every-slots": SLOTS}}
TIMED = ["x1", {"scale": "slot", "horizon": SLOTS}]


@by_preset
def test_time_is_a_context_of_a_policy(settings: Settings) -> None:
    chunk = drawn(IMPROVING)
    config = {"data": {"context": TIMED}, "learner": learners()}
    time = np.arange(1, SLOTS + 1) / SLOTS
    contexts = np.column_stack([chunk.points[:, 0, 0], time])
    trace = replayed(config, chunk, settings, contexts=contexts)
    lost = choices.regret(choices.World(config["learner"], chunk.accuracy), trace)

    assert_same(played(IMPROVING, settings, context=PolicyContext(context=TIMED)), lost)
    assert_same(played({**IMPROVING, "context": TIMED}, settings), lost)


def test_the_context_of_a_policy_changes_its_decisions_only() -> None:
    blind = played(IMPROVING, CoS(slices=3))
    seeing = played(IMPROVING, CoS(slices=3), context=PolicyContext(context=TIMED))

    assert blind.regret != seeing.regret


def test_functions_improve_up_to_their_surfaces() -> None:
    before, after = drawn(IMPROVING).accuracy, drawn(TABLE).accuracy

    assert (before <= after).all()
    assert np.abs(after[..., 0] - before[..., 0]).max() == pytest.approx(0.5, abs=0.21)
    assert np.abs(after[..., -1] - before[..., -1]).max() < 1e-3


def test_a_scenario_gives_time_its_horizon() -> None:
    tables = {
        "scenario": {"horizon-slots": 700, "seeds": 1},
        "policy": [{"name": "timed", "context": ["x1", {"scale": "slot"}]}],
        "environment": [{"name": "calm", "candidates": ["x1", [{"scale": "slot"}]]}],
    }
    with pytest.raises(ConfigError, match="does not support several candidates"):
        scenario.load({**tables, "policy": [{"name": "auto"}]})
    tables["environment"] = [{"name": "calm"}]
    chosen = scenario.load(tables)

    assert chosen.contexts["timed"].context == ["x1", {"scale": "slot", "horizon": 700}]
    assert chosen.dimensions("timed", chosen.environments["calm"]) == [2]
    assert chosen.titles()["timed"].endswith("; context x1, slot")
    assert PolicyContext(candidates=["x1", ["x2", "x3"]]).title == "candidates x1, x2 and x3"


# Rewards, random costs, losses, labels.


@by_preset
def test_regret_with_a_reward_is_that_of_the_reward(settings: Settings) -> None:
    reward = Reward(accuracy=1.5, power=2.0, cost=2.0, context=(1.0,))
    special = {"learner-2": {"accuracy": 0.7}}
    settings = msgspec.structs.replace(settings, reward=reward)
    config = {"learner": learners({"learner-1": {"rewards": special}})}
    table = {**TABLE, "learner": [{"name": "learner-1", "rewards": special}]}
    chunk = drawn(table)

    def worth(choice: choices.Choice) -> float:
        if (choice.learner, choice.arm) == (0, "learner-2"):
            return 0.7 * choice.accuracy - choice.cost
        place = chunk.points[choice.slot, 0, 0]
        return 1.5 * choice.accuracy**2 - 2 * choice.cost * (1 + place)

    trace = replayed(config, chunk, settings)
    known = choices.World(config["learner"], chunk.accuracy)

    assert_same(played(table, settings), choices.regret(known, trace, worth))


@pytest.mark.parametrize("name", ["outage", "thrift", "at_once"])
@by_preset
def test_regret_with_a_function_as_reward_is_that_of_the_function(
    settings: Settings, name: str
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


@by_preset
def test_regret_with_random_costs_is_that_of_their_means(settings: Settings) -> None:
    columns = {"fee": {"low": 0.1, "high": 0.5}, "toll": {"high": 0.3}}
    own = {"cost-columns": {"learner-1.1": "fee", "learner-2": "toll"}}
    table = {**TABLE, "columns": columns, "learner": [{"name": "learner-1", **own}]}
    config = {"learner": learners({"learner-1": own})}
    chunk = drawn(table)
    fees = {"fee": 0.1 + 0.4 * chunk.columns["fee"], "toll": 0.3 * chunk.columns["toll"]}
    trace = replayed(config, chunk, settings, columns=fees)
    means = {"learner-1.1": 0.3, "learner-2": 0.15}

    def worth(choice: choices.Choice) -> float:
        more = means.get(choice.arm, 0.0) if choice.learner == 0 else 0.0
        return choice.accuracy - choice.cost - more

    run = played(table, settings)
    assert_same(run, choices.regret(choices.World(config["learner"], chunk.accuracy), trace, worth))
    assert run.cost == pytest.approx(trace.cost.mean(), abs=1e-6)


@pytest.mark.parametrize("kind", ["absolute", "squared"])
@by_preset
def test_regret_with_a_loss_is_that_of_expected_gains(settings: Settings, kind: str) -> None:
    loss = {"kind": kind, "bound": 4.0}
    table = {**TABLE, "loss": loss}
    chunk = drawn(table)
    distance = (1 - chunk.right[0] / WHOLE) * 4
    distance = np.sqrt(distance) if kind == "squared" else distance
    config = {"data": {"loss": loss}, "learner": learners()}
    labels = np.zeros(SLOTS)
    trace = replayed(config, chunk, settings, predictions=distance, labels=labels)
    run = played(table, settings)

    assert_same(run, choices.regret(choices.World(config["learner"], chunk.accuracy), trace))
    assert run.errors == pytest.approx(1 - trace.correct.mean())


@pytest.mark.parametrize("kind", ["absolute", "squared"])
def test_gains_of_numeric_answers_have_the_accuracies_as_means(kind: str) -> None:
    heights = (0.1, 0.5, 0.85)
    surfaces = [[{"at": [0.5], "high": height, "low": height} for height in heights]]
    loss = {"kind": kind, "bound": 2.0}
    table = {"name": "numbers", "surfaces": surfaces, "loss": loss}
    gains = drawn(table, 40_000).right[0] / WHOLE

    assert gains.mean(axis=1) == pytest.approx(heights, abs=0.006)
    assert 0 <= gains.min() < gains.max() <= 1


@by_preset
def test_labels_come_to_each_learner_with_its_own_probability(settings: Settings) -> None:
    own = [
        {"name": "learner-1", "label-probability": 0.2},
        {"name": "learner-3", "label-probability": 0.0},
    ]
    chunk = drawn({**TABLE, "label-probability": 0.7, "learner": own})

    assert chunk.shown is not None
    assert chunk.shown.mean(axis=0) == pytest.approx([0.2, 0.7, 0], abs=0.04)
    run = played({**TABLE, "label-probability": 0.7, "learner": own}, settings)
    assert run.messages["labels"] < run.messages["requests"]


# Classes; peers that see the context only.


def usual_class(chunk: WorldChunk, slot: int, classes: int) -> int:
    return min(int(chunk.points[slot, 0, 0] * classes), classes - 1)


@pytest.mark.parametrize("history", ["labels", "predictions"])
@by_preset
def test_regret_with_context_peers_is_against_the_best_label(
    settings: Settings, history: Any
) -> None:
    settings = msgspec.structs.replace(settings, reading=Reading(history=history))
    own = {"context-peers": {"learner-2": 0.03}, "peers": {"learner-3": 0.2}}
    table = {
        **TABLE,
        "classes": {"number": 3, "usual": 0.8},
        "learner": [{"name": "learner-1", **own}],
    }
    config = {"learner": learners({"learner-1": own})}
    chunk = drawn(table)
    assert chunk.labelled is not None
    trace = replayed(
        config,
        chunk,
        settings,
        predictions=chunk.labelled.answers[0],
        labels=chunk.labelled.labels,
    )

    def remembered(slot: int, label: Any) -> float:
        return 0.8 if label == usual_class(chunk, slot, 3) else 0.1

    known = choices.World(config["learner"], chunk.accuracy, usual=0.8)
    lost = choices.regret(known, trace, remembered=remembered)

    assert "learner-2 (context)" in trace.columns()["arm"]
    assert "(labels seen)" in trace.columns()["function"]
    assert_same(played(table, settings), lost)


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
@pytest.mark.parametrize("delay", [0, 5, "load"])
def test_regret_with_busy_peers_counts_answers_that_come_too_late(
    settings: Settings, delay: int | str
) -> None:
    own = {"learner-1": {"answer-wait": 3}, "learner-2": {"answer-delay": delay}}
    columns = {"columns": {"load": {"low": 1, "high": 10}}} if delay == "load" else {}
    given = [{"name": name, **keys} for name, keys in own.items()]
    table = {**TABLE, **columns, "learner": given}
    config = {"learner": learners(own)}
    chunk = drawn(table)
    load = {name: 1 + np.floor(10 * values) for name, values in chunk.columns.items()}
    trace = replayed(config, chunk, settings, columns=load)
    late = {0: 0.0, 5: 1.0, "load": 0.7}[delay]
    known = choices.World(
        config["learner"], chunk.accuracy, late={("learner-1", "learner-2"): late}
    )

    assert_same(played(table, settings), choices.regret(known, trace))


# Learners without labels.


@by_preset
def test_regret_of_a_learner_without_labels_is_against_the_same_oracle(settings: Settings) -> None:
    own = {"learner-2": {"supervised": False}}
    table = {**TABLE, "learner": [{"name": "learner-2", "supervised": False}]}
    config = {"learner": learners(own)}
    chunk = drawn(table)
    trace = replayed(config, chunk, settings)
    lost = choices.regret(choices.World(config["learner"], chunk.accuracy), trace)

    assert_same(played(table, settings), lost)
    assert_same(played({**table, "measured": ["learner-2"]}, settings), lost[1::3], receivers=1)


BLIND = {
    "name": "apart",
    "correlation": "independent",
    "learner": [{"name": "learner-1", "supervised": False}],
    "measured": ["learner-1"],
    "surfaces": [
        [{"at": [0.5], "high": 0.7, "low": 0.3}, {"at": [0.0], "high": 0.9, "low": 0.3}],
        [{"at": [1.0], "high": 0.95, "low": 0.3}],
    ],
}


def test_without_labels_regret_is_linear_where_no_other_learner_has_instances() -> None:
    """The example of the paper: nobody can tell learner-1 what its functions are worth."""
    regions = {"learner-1": [[0.0, 0.25]], "learner-2": [[0.75, 1.0]]}
    apart = environment_from({**BLIND, "regions": regions})
    together = environment_from({**BLIND, "regions": {**regions, "learner-2": [[0.0, 0.25]]}})
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
    settings: Settings, are_carried: bool
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
        if (helper := columns["arm"][row]) in own:
            utility[helper] -= 0 if are_carried else own[helper]["serving-cost"]
    found = played(table, settings).utility

    assert found.pop("system") == pytest.approx(sum(utility.values()) / SLOTS)
    assert found == pytest.approx({name: total / SLOTS for name, total in utility.items()})
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


# What cannot be combined.


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"learner": [{"name": "nobody"}]}, r"\[\[environment.learner\]\] 1 has the name 'nobody'"),
        ({"learner": [{"name": "learner-1"}] * 2}, "duplicate .* 'learner-1'; keep one"),
        ({"learner": [{"name": "learner-1", "functions": ["a"]}]}, "has functions, which the "),
        ({"learner": [{"name": "learner-1", "serving_cost": 1}]}, "unknown key 'serving_cost'"),
        ({"learner": [{"name": f"learner-{k}", "arrivals": False} for k in (1, 2, 3)]},
         "every learner has arrivals = false"),
        ({"context": ["x2"]}, "the context 'x2' is not in the world; it has x1 and"),
        ({"context": ["x1", {"scale": "slot", "horizon": 99}]}, "horizon 99, but the run has 1500"),
        ({"learner": [{"name": "learner-2", "context": ["hour"]}]}, "'hour' is not in the world"),
        ({"measured": ["learner-2"], "correlation": "worst"}, "measured names 'learner-2', which"),
        ({"measured": ["other"]}, "unknown learner 'other'"),
        ({"regions": {"learner-1": [[0, 0.5]]}}, 'regions need correlation = "independent"'),
        ({"regions": {"learner-1": [[0, 0.5]]}, "case": "C2"}, 'regions need arrivals = "uniform"'),
        ({"regions": {"learner-1": []}, "correlation": "independent"}, "has 0 intervals"),
        ({"columns": {"fee": {"high": 0.2}}}, "answer-delay or cost-column names columns.fee"),
        ({"learner": [{"name": "learner-1", "answer-delay": "load"}]}, "'load', which is not in"),
        ({"learner": [{"name": "learner-1", "answer-delay": "load"}],
          "columns": {"load": {"high": 1.5}}}, "must hold whole numbers of slots"),
        ({"learner": [{"name": "learner-1", "cost-columns": {"learner-2": "fee"}}],
          "columns": {"fee": {"high": 2}}}, "for cost-columns it must be a range from 0 to 1"),
        ({"learner": [{"name": "learner-1", "context-peers": {"learner-2": 0.1}}]},
         "context-peers answer with class labels, but the environment has no classes"),
        ({"classes": {"usual": 0.3}}, "classes.usual is 0.3"),
        ({"classes": {"usual": 0.8}, "correlation": 0.5}, "classes need one stream .* correlation"),
        ({"classes": {"usual": 0.8}, "loss": {"kind": "absolute", "bound": 1}},
         "has loss and classes, which cannot be combined"),
        ({"loss": {"kind": "absolute", "bound": 1}, "dependence": 0.4}, "has loss and dependence"),
        ({"loss": {"kind": "absolute", "bound": 0}}, "loss.bound is 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_simulated_is_refused_by_name(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        played({**TABLE, **keys}, CoS(slices=3))


def test_a_plain_environment_has_no_extension() -> None:
    assert Environment(name="plain").is_plain
    assert not environment_from({"name": "x", "learner": [{"name": "learner-1"}]}).is_plain
