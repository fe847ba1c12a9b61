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

    None: accuracy minus cost. A function with a true attribute `takes_arrays` is called once: its
    context is then a tuple of d arrays.
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
    found = np.full(accuracy.shape, -np.inf)
    is_open = cost < np.inf  # an arm that cannot be reached is worth nothing, whatever it says
    given = accuracy[is_open], cost[is_open], contexts[is_open]
    if getattr(reward.function, "takes_arrays", False):
        found[is_open] = _worths_at_once(reward, *given)
    else:
        rows = zip(*(column.tolist() for column in given), strict=True)
        found[is_open] = [reward.worth(one, paid, tuple(context)) for one, paid, context in rows]
    return found


def _worths_at_once(
    reward: CustomReward, accuracy: np.ndarray, cost: np.ndarray, contexts: np.ndarray
) -> np.ndarray:
    first = np.clip(accuracy, 0.0, 1.0)
    if reward.bound:
        first = reward.bound * (1.0 - first)
    try:
        found = np.asarray(reward.function(first, cost, tuple(contexts.T)), np.float64)
        values = np.broadcast_to(found, accuracy.shape)
    except Exception as error:
        raise PolicyError(
            f"reward {reward.name!r} has takes_arrays and raised {type(error).__name__} for arrays "
            f"of {len(accuracy)} values: {error}"
        ) from error
    if np.isnan(values).any():
        raise PolicyError(f"reward {reward.name!r} returned nan; return numbers")
    return values
