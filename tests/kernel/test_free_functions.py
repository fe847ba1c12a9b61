"""Free functions: every label scores them, those that were not chosen as well."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from covey.bandit.policies import policy_from
from covey.config import load
from covey.errors import ConfigError
from covey.replay.engine import ReplayEngine
from covey.simulation.environment import Environment
from covey.simulation.run import network, play
from support.networks import Case, free_cases, reference_rows
from support.streams import log_of


def test_free_functions_change_what_the_reference_decides() -> None:
    """Otherwise a kernel that scores nothing would equal it, too: see `test_kernel.py`."""
    changed = []

    @settings(max_examples=60, database=None)
    @given(case=free_cases())
    def look(case: Case) -> None:
        sites = tuple(replace(site, free=()) for site in case.setup.sites)
        without = replace(case, setup=replace(case.setup, sites=sites))
        changed.append(reference_rows(case) != reference_rows(without))

    look()
    assert sum(changed) > len(changed) / 10


def learner(name: str, functions: list[str], **keys: Any) -> dict[str, Any]:
    return {"name": name, "functions": functions, "peers": {}, **keys}


def counted(config: dict[str, Any], right: list[list[int]], at: list[int]) -> list[list[Any]]:
    """Replay one cell whose label is always 1; return the labels of each arm of each learner."""
    setup = load({"policy": {"preset": "share-ucb", "slices": 1}, **config})
    engine = ReplayEngine(setup, setup.sites, 1, [0, 1])
    slots = len(at)
    engine.play(log_of(right, [1] * slots, at=at, contexts=[0.5] * slots))
    return [
        [tables[0].record(0, arm) for arm in range(len(site.costs))]
        for tables, site in zip(engine.tables, engine.sites, strict=True)
    ]


def test_each_label_counts_once_for_every_free_function() -> None:
    config = {"learner": [learner("north", ["a", "b", "c"], free=["a", "b"])]}

    (arms,) = counted(config, [[1, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]], [0] * 4)

    assert arms[:2] == [(4, 3), (4, 1)]
    assert arms[2][0] < 4  # it is scored only where it was chosen


def test_a_label_that_a_peer_passes_on_scores_the_free_functions_of_the_one_that_answered() -> None:
    north = learner("north", ["a"], peers={"south": 0.0})
    south = learner("south", ["b", "c"], free=True)

    own, served = counted({"learner": [north, south]}, [[0] * 9, [1] * 9, [0] * 9], [0] * 9)

    asked = own[1][0]
    assert 0 < asked < 9
    assert served == [(asked, asked), (asked, 0)]


def test_free_functions_are_scored_where_a_peer_was_chosen() -> None:
    north = learner("north", ["a", "b"], peers={"south": 0.0}, free=True)
    south = learner("south", ["c"])

    own, _ = counted({"learner": [north, south]}, [[0] * 9, [0] * 9, [1] * 9], [0] * 9)

    assert own[2][0] > 0  # south was asked
    assert own[:2] == [(9, 0), (9, 0)]


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as raised:
        load(config)
    return str(raised.value)


def test_free_functions_without_a_meaning_are_refused_with_a_sentence() -> None:
    plain = learner("north", ["a", "b"], free=True)
    costly = {**plain, "function-costs": [0.0, 0.1]}

    assert refusal({"learner": [costly]}) == (
        "learner 'north': function 'b' is free and has a cost (0.1), but it would run on every "
        "instance; remove one of them"
    )
    assert "has a cost (fee)" in refusal({"learner": [{**plain, "cost-columns": {"a": "fee"}}]})
    assert refusal({"learner": [{**plain, "free": ["a", "bb"]}]}) == (
        "learner 'north' has 'bb' in free, which is not one of its functions; did you mean 'b'?"
    )
    others = {
        "[ensemble]": {"ensemble": {}, "learner": [plain]},
        "several candidates": {
            "policy": {"preset": "cos"},
            "learner": [{**plain, "candidates": ["x", "y"]}],
        },
        'reading = "paper"': {"policy": {"preset": "cos", "reading": "paper"}, "learner": [plain]},
    }
    for what, config in others.items():
        assert f"free functions cannot be combined with {what}" in refusal(config)


def test_a_function_that_is_not_free_may_have_a_cost_beside_free_ones() -> None:
    costly = learner("north", ["a", "b"], free=["a"], **{"function-costs": [0.0, 0.1]})

    assert load({"learner": [costly]}).sites[0].free == (0,)


def test_the_functions_of_an_environment_may_be_free() -> None:
    """Full information of own functions: less regret where nothing changes."""
    settings_ = policy_from({"preset": "share-ucb", "slices": 4})
    worlds = [Environment(name="one", learners=1, functions=6, free=free) for free in (False, True)]

    lost = [
        sum(sum(causes) for causes in run.regret.values())
        for world in worlds
        for run in [play(world, settings_, seed=2, horizon=3_000, checkpoints=[3_000])]
    ]

    assert network(worlds[1], settings_).sites[0].free == (0, 1, 2, 3, 4, 5)
    assert lost[1] < 0.6 * lost[0]


def test_a_free_function_that_stays_as_it_is_raises_no_alarm() -> None:
    world = Environment(name="one", learners=1, functions=6, free=True)

    run = play(world, policy_from({}), seed=2, horizon=20_000, checkpoints=[20_000])

    assert run.alarms == 0
