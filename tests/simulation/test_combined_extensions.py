"""Extensions in any combination: a run with regret, or a sentence that says what does not fit."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.policies import DCZA, Auto, CoS, PolicyRecord
from covey.errors import ConfigError
from covey.kernel.rules import Reward
from covey.replay.engine import ReplayEngine
from covey.simulation.environment import environment_from
from covey.simulation.run import play
from covey.simulation.sites import log_of, network
from covey.simulation.world import World
from reference import choices

SLOTS = 180
LINKS = [{"between": ["learner-1", "learner-2"], "cost": 0.1}]
CHANGE = [{"between": ["learner-1", "learner-2"], "cost": "gone", "slot": 90}]
KEYS: list[dict[str, Any]] = [
    {"prices": 0.1},
    {"dimension": 2},
    {"function-costs": 0.05},
    {"free": True},
    {"case": "C1"},
    {"correlation": "independent"},
    {"correlation": 0.5},
    {"delay-slots": 7, "label-probability": 0.5},
    {"drift": {"severity": 0.2, "every-slots": 50}},
    {"drift": {"kind": "improve", "severity": 0.4, "every-slots": 100}},
    {"loss": {"kind": "absolute", "bound": 2.0}},
    {"classes": {"number": 3, "usual": 0.7}},
    {"batch": 9},
    {"context": ["x1", {"scale": "slot", "horizon": SLOTS}]},
    {"candidates": ["x1", ["x1", {"scale": "slot", "horizon": SLOTS}]]},
    {"dimension": 2, "candidates": ["x1", "x2"]},
    {"link": LINKS},
    {"link": LINKS, "link-change": CHANGE},
    {"columns": {"fee": {"high": 0.3}}},
    {"classes": {"usual": 0.6}, "ensemble": {}},
    {"measured": ["learner-2"]},
    {"liars": {"learner-3": "zero-arrivals"}},
    {"liars": {"learner-3": "false-labels"}},
    {"failing": {"learner-2": 0.3}},
    {"dependence": 0.6},
]
OF_LEARNERS: list[dict[str, Any]] = [
    {"supervised": False},
    {"label-probability": 0.3},
    {"serving-cost": 0.1},
    {"arrivals": False},
    {"answer-delay": 4},
    {"answer-wait": 2},
    {"context-peers": {"learner-3": 0.02}},
    {"peers": {"learner-3": 0.3}},
    {"rewards": {"learner-3": {"accuracy": 0.8}}},
    {"cost-columns": {"learner-3": "fee"}},
    {"context": ["x1"]},
]
POLICIES = [
    CoS(slices=2),
    DCZA(),
    Auto(),
    CoS(slices=2, carry_serving_costs=True),
    CoS(slices=2, reward=Reward(power=2.0, cost=0.5)),
    CoS(slices=2, reward=Reward(context=(0.5,))),
    CoS(slices=2, reading="paper"),
    CoS(slices=2, label_wait=3, pending=True),
    CoS(horizon="doubling", first_epoch=64),
]


def tables_of(keys: list[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Environments with up to four of these keys, and some of the keys of learners."""

    def merged(parts: tuple[list[dict[str, Any]], ...]) -> dict[str, Any]:
        whole, *own = ({key: one[key] for one in part for key in one} for part in parts)
        named = zip(("learner-1", "learner-2"), own, strict=True)
        learner = [{"name": name, **table} for name, table in named if table]
        return {"name": "mixed", "learners": 3, **whole, "learner": learner}

    some = [
        st.lists(st.sampled_from(listed), max_size=most)
        for listed, most in ((keys, 4), (OF_LEARNERS, 3), (OF_LEARNERS, 2))
    ]
    return st.tuples(*some).map(merged)


HOW: dict[str, Any] = {"seed": 1, "horizon": SLOTS, "checkpoints": [90, SLOTS]}


@settings(max_examples=150)
@given(tables_of(KEYS), st.sampled_from(POLICIES))
def test_a_combination_is_played_or_refused_by_a_sentence(
    table: dict[str, Any], policy: PolicyRecord
) -> None:
    try:
        run = play(environment_from(table), policy, **HOW)
    except ConfigError:
        return
    assert all(math.isfinite(value) for curve in run.regret.values() for value in curve)
    assert 0 <= run.errors <= 1
    assert run.learners == len(environment_from(table).measured) or run.learners >= 1
    assert msgspec.json.decode(msgspec.json.encode(run), type=type(run)) == run


# What the slow oracle below knows: no links, no parts of contexts.
KNOWN = [one for one in KEYS if not {"link", "dimension", "candidates", "measured"} & one.keys()]


def learners_of(table: dict[str, Any], policy: PolicyRecord) -> list[dict[str, Any]]:
    """The learners as a replay's tables; prices with the serving costs that are carried."""
    names = ["learner-1", "learner-2", "learner-3"]
    own = {name: next((t for t in table["learner"] if t["name"] == name), {}) for name in names}
    carried = {
        name: own[name].get("serving-cost", 0.0) * policy.carry_serving_costs for name in names
    }
    found = []
    for name in names:
        usual = {other: table.get("prices", 0.0) for other in names if other != name}
        peers = {} if "ensemble" in table else own[name].get("peers", usual)
        context_peers = {} if "ensemble" in table else own[name].get("context-peers", {})
        found.append(
            {
                **own[name],
                "name": name,
                "functions": [f"{name}.1", f"{name}.2"],
                "function-costs": [table.get("function-costs", 0.0)] * 2,
                "peers": {peer: price + carried[peer] for peer, price in peers.items()},
                "context-peers": context_peers,
            }
        )
    return found


@settings(max_examples=100)
@given(tables_of(KNOWN), st.sampled_from(POLICIES))
def test_the_numbers_of_a_combination_are_those_of_the_slow_oracle(
    table: dict[str, Any], policy: PolicyRecord
) -> None:
    try:
        environment = environment_from(table)
        run = play(environment, policy, **HOW)
    except ConfigError:
        return
    chunk = World(environment, seed=1, horizon=SLOTS).draw(SLOTS)
    setup = network(environment, policy)
    log = log_of(chunk, environment, setup)
    width = len(log.contexts) // SLOTS // len(chunk.accuracy)
    trace = ReplayEngine(setup, setup.sites, width, environment.labels).play(log)
    learners = learners_of(table, policy)
    contexts = np.asarray(log.contexts).reshape(SLOTS, len(chunk.accuracy), width)
    classes = table.get("classes", {"usual": 0.0})
    number = classes.get("number", 2)

    def worth(choice: choices.Choice) -> float:
        site = learners[choice.learner]
        fee = 0.15 if choice.arm in site.get("cost-columns", {}) else 0.0
        cost = choice.cost + fee
        reward = Reward(**site.get("rewards", {}).get(choice.arm, {}))
        if choice.arm not in site.get("rewards", {}) and isinstance(policy.reward, Reward):
            reward = policy.reward
        place = contexts[choice.slot, choice.learner if len(chunk.accuracy) > 1 else 0]
        slope = 1 + sum(c * x for c, x in zip(reward.context, place, strict=False))
        return reward.accuracy * choice.accuracy**reward.power - reward.cost * cost * slope

    def remembered(slot: int, label: int) -> float:
        usual = min(int(chunk.points[slot, 0, 0] * number), number - 1)
        return classes["usual"] if label == usual else (1 - classes["usual"]) / (number - 1)

    late = {
        (asker["name"], helper["name"]): 1.0
        for asker in learners
        for helper in learners
        if asker.get("answer-wait", SLOTS) < helper.get("answer-delay", 0)
    }
    known = choices.World(learners, chunk.accuracy, usual=classes["usual"], late=late)
    lost = choices.regret(known, trace, worth, remembered=remembered)
    half = lost[: np.searchsorted(trace.row, HOW["checkpoints"][0])]
    found = [sum(curve[k] for curve in run.regret.values()) for k in (0, 1)]

    assert found == pytest.approx([half.sum(), lost.sum()], abs=1e-3)
    assert run.errors == pytest.approx(1 - trace.correct.mean())
    assert run.cost == pytest.approx(trace.cost.mean())
    shares = np.bincount(trace.phase, minlength=3) / len(trace)
    assert [*run.phases.values()] == pytest.approx(shares.tolist())
