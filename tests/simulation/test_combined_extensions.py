"""Extensions in any combination: a run with regret, or a sentence that says what does not fit."""

import math
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.policies import DCZA, CoS
from covey.bandit.settings import Reading, Settings
from covey.errors import ConfigError
from covey.kernel.rules import Reward
from covey.simulation.environment import environment_from
from covey.simulation.run import play
from covey.simulation.sites import PolicyContext

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
    {"correlation": "independent", "regions": {"learner-2": [[0.5, 1.0]]}},
    {"delay-slots": 7, "label-probability": 0.5},
    {"drift": {"severity": 0.2, "every-slots": 50}},
    {"drift": {"kind": "improve", "severity": 0.4, "every-slots": 100}},
    {"drift": {"kind": "use", "severity": 0.4, "every-slots": 50}},
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
    Settings(preset="auto"),
    CoS(slices=2, carry_serving_costs=True),
    CoS(slices=2, reward=Reward(power=2.0, cost=0.5)),
    CoS(slices=2, reward=Reward(context=(0.5,))),
    CoS(slices=2, reading=Reading(batch="slot", history="predictions", askers="first")),
    CoS(slices=2, label_wait=3, pending=True),
    CoS(horizon="doubling", first_epoch=64),
]
SEEN = [None, None, PolicyContext(context=["x1", {"scale": "slot", "horizon": SLOTS}])]


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(KEYS), max_size=4),
    st.lists(st.sampled_from(OF_LEARNERS), max_size=3),
    st.lists(st.sampled_from(OF_LEARNERS), max_size=2),
    st.sampled_from(POLICIES),
    st.sampled_from(SEEN),
)
def test_a_combination_is_played_or_refused_by_a_sentence(
    keys: list[dict[str, Any]],
    first: list[dict[str, Any]],
    second: list[dict[str, Any]],
    policy: Settings,
    seen: PolicyContext | None,
) -> None:
    table: dict[str, Any] = {"name": "mixed", "learners": 3}
    for one in keys:
        table |= one
    tables = {"learner-1": first, "learner-2": second}
    listed = [{key: one[key] for one in own for key in one} for own in tables.values()]
    table["learner"] = [
        {"name": name, **own} for name, own in zip(tables, listed, strict=True) if own
    ]
    how: dict[str, Any] = {"seed": 1, "horizon": SLOTS, "checkpoints": [90, SLOTS]}
    try:
        run = play(environment_from(table), policy, context=seen, **how)
    except ConfigError:
        return
    assert all(math.isfinite(value) for curve in run.regret.values() for value in curve)
    assert 0 <= run.errors <= 1
    assert run.learners == len(environment_from(table).measured) or run.learners >= 1
    assert msgspec.json.decode(msgspec.json.encode(run), type=type(run)) == run
