"""A reward can be a Python function of accuracy (or expected loss), cost and context."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.policies import PRESETS, reward_from, worths
from covey.errors import PolicyError
from covey.kernel.rules import Reward
from covey.types import Loss
from support.flow import config_of, recorded_stream, replayed
from support.presets import INDEXED, fitting
from support.two_sites import stream

OWN = "support.own_rewards"
FORMULA = {"accuracy": 0.9, "power": 1.5, "cost": 2.0, "context": [0.5, 0.0]}


def with_reward(config: dict[str, Any], reward: Any) -> dict[str, Any]:
    return {**config, "policy": {**config["policy"], "reward": reward}}


# Bounds of a tree lie outside [0, 1], and a function sees them cut.
SAME = sorted(set(PRESETS) - {"auto"})


@pytest.mark.parametrize("preset", SAME)
def test_a_function_decides_as_the_formula_that_it_computes(preset: str) -> None:
    recorded = recorded_stream()
    config = config_of(preset)

    by_function = replayed(recorded, with_reward(config, f"{OWN}:formula"))

    assert by_function == replayed(recorded, with_reward(config, FORMULA))
    assert by_function != replayed(recorded, config)


def test_a_function_of_python_is_used_like_one_that_is_named() -> None:
    recorded = recorded_stream()
    config = config_of("cos")
    by_name = replayed(recorded, with_reward(config, f"{OWN}:outage"))

    def local(accuracy: float, cost: float, context: tuple[float, ...]) -> float:
        return -(20.0 if context[0] > 0.8 else 1.0) * (1.0 - accuracy) - cost

    dear: Callable[..., float] = lambda accuracy, cost, context: accuracy - 9 * cost  # noqa: E731

    assert replayed(recorded, with_reward(config, local)) == by_name
    assert replayed(recorded, with_reward(config, dear)) != by_name


@pytest.mark.parametrize("preset", ["cos", "auto"])
def test_the_dear_arm_is_used_only_in_the_context_in_which_errors_are_dear(preset: str) -> None:
    """The example of the paper: the network goes down when attacked at a certain context."""
    given = stream(8_000, 0.9, 0.95, seed=2)
    site = {"name": "north", "functions": ["cheap", "dear"], "function-costs": [0.0, 0.3]}
    policy = fitting({"preset": preset, "slices": 1, "reward": f"{OWN}:outage"})

    trace = covey.replay({"policy": policy, "learner": [site]}, **given)

    late = np.arange(8_000) > 4_000
    is_dear = given["contexts"][:, 0] > 0.8
    assert (trace.arm[late & is_dear] == 1).mean() > 0.9
    assert (trace.arm[late & ~is_dear] == 0).mean() > 0.9


def test_with_a_loss_a_function_takes_the_expected_loss() -> None:
    rng = np.random.default_rng(8)
    truth = rng.normal(20, 5, 3_000).round(1)
    given = {
        "labels": truth,
        "predictions": truth + rng.normal(0, [[4.0], [1.0]], (2, 3_000)).round(1),
        "contexts": rng.random((3_000, 1)),
    }
    seen: list[float] = []

    def noted(loss: float, cost: float, context: tuple[float, ...]) -> float:
        seen.append(loss)
        return -loss

    site = {"name": "north", "functions": ["rough", "fine"]}
    loss = {"kind": "squared", "bound": 50.0}
    config = {"data": {"loss": loss}, "policy": {"preset": "cos", "slices": 1, "reward": noted}}

    trace = covey.replay({**config, "learner": [site]}, **given)

    assert (trace.arm[-1_000:][trace.phase[-1_000:] == 2] == 1).all()
    rough, fine = seen[-2:]  # the mean of the few labels of one, and of the many of the other
    assert 8.0 < rough < 25.0
    assert fine == pytest.approx(1.0, rel=0.2)


# -- many instances at once --------------------------------------------------------------------


def test_the_values_of_many_instances_are_those_of_each() -> None:
    rng = np.random.default_rng(6)
    accuracy, cost, contexts = rng.random(50), rng.random(50) / 4, rng.random((50, 2))
    rewards = [
        None,
        Reward(accuracy=0.9, power=1.5, cost=2.0, context=(0.5, 0.0)),
        reward_from(f"{OWN}:outage", where="x"),
        reward_from(f"{OWN}:of_loss", where="x", loss=Loss("squared", 50.0)),
    ]
    one_by_one = [
        lambda a, c, x: a - c,
        lambda a, c, x: 0.9 * a**1.5 - 2.0 * c * (1 + 0.5 * x[0]),
        lambda a, c, x: -(20.0 if x[0] > 0.8 else 1.0) * (1.0 - a) - c,
        lambda a, c, x: -(1.0 - a) - (1 + x[0]) * c,
    ]

    for reward, each in zip(rewards, one_by_one, strict=True):
        expected = [each(*row) for row in zip(accuracy, cost, contexts, strict=True)]
        assert worths(reward, accuracy, cost, contexts) == pytest.approx(expected)
    assert worths(None, accuracy, 0.25, contexts) == pytest.approx(accuracy - 0.25)


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["cos", *INDEXED])
def test_an_exception_of_a_function_is_a_sentence_with_what_it_was_given(preset: str) -> None:
    site = {"name": "north", "functions": ["cheap", "dear"], "function-costs": [0.0, 0.3]}
    policy = {"preset": preset, "reward": f"{OWN}:fails_late"}

    with pytest.raises(PolicyError) as raised:
        covey.replay({"policy": policy, "learner": [site]}, **stream(500, 0.9, 0.95, seed=2))

    assert f"reward '{OWN}:fails_late' raised ZeroDivisionError for accuracy" in str(raised.value)
    assert "cost 0.3 and context (0." in str(raised.value)


def test_a_module_beside_the_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "beside_the_file.py").write_text(
        "def worth(accuracy, cost, context):\n    return accuracy - 2 * cost\n"
    )
    (tmp_path / "sites.toml").write_text(
        '[policy]\nreward = "beside_the_file:worth"\n'
        '[[learner]]\nname = "north"\nfunctions = ["cheap", "dear"]\n'
    )

    assert len(covey.replay(tmp_path / "sites.toml", **stream(20, 0.9, 0.95))) == 20
