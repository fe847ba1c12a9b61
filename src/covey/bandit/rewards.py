"""Rewards: what an arm is worth, by its accuracy or expected loss, its cost and the context."""

from typing import Any

import numpy as np

from covey import toml
from covey.errors import ConfigError, PolicyError
from covey.kernel.rules import CustomReward, Reward
from covey.types import Loss

AnyReward = Reward | CustomReward


def reward_from(given: Reward | str, *, where: str, loss: Loss | None = None) -> AnyReward:
    """Return the reward of a table: a formula, or the function that it names.

    A function takes the accuracy or, with a loss, the expected loss.
    """
    if isinstance(given, Reward):
        return given
    if ":" not in given:
        raise ConfigError(
            f"{where} is {given!r}; write a table such as {{ cost = 2.0 }}, or module:function"
        )
    function = toml.imported(given, where=where)
    if not callable(function):
        raise ConfigError(
            f"{where} {given!r} is not a function; write one of accuracy, cost and context"
        )
    return CustomReward(given, function, 0.0 if loss is None else loss.bound)


def check_reward(reward: CustomReward, *, where: str, dimension: int) -> None:
    """Raise `ConfigError` if the function fails for a perfect arm or for a useless one."""
    try:
        for accuracy in (0.0, 1.0):
            reward.worth(accuracy, 0.0, (0.5,) * dimension)
    except PolicyError as error:
        raise ConfigError(
            f"{where}: {error}; it must return a number for every accuracy (or expected loss, with "
            "[data] loss), cost and context"
        ) from error


def worths(
    reward: AnyReward | None, accuracies: np.ndarray, costs: Any, contexts: np.ndarray
) -> np.ndarray:
    """Return the value of an arm for many instances; `contexts` is n x d, `costs` n or one.

    None: accuracy minus cost.
    """
    accuracy = np.asarray(accuracies, np.float64)
    cost = np.broadcast_to(np.asarray(costs, np.float64), accuracy.shape)
    if reward is None:
        return accuracy - cost
    if isinstance(reward, Reward):
        slope: Any = 1.0 + contexts @ np.array(reward.context) if reward.context else 1.0
        return np.asarray(
            reward.accuracy * accuracy**reward.power - reward.cost * cost * slope, np.float64
        )
    values = np.full(accuracy.shape, -np.inf)
    is_open = cost < np.inf  # an arm that cannot be reached is worth nothing, whatever it says
    columns = (column[is_open].tolist() for column in (accuracy, cost, contexts))
    values[is_open] = [
        reward.worth(share, paid, tuple(context))
        for share, paid, context in zip(*columns, strict=True)
    ]
    return values
