"""Baselines from River: bandits over the functions, and a forest over their predictions."""

from collections.abc import Sequence
from typing import Any

from covey.boosting import elect
from covey.errors import MissingExtra
from covey.types import Guess


class Bandit:
    """A bandit policy of River with the functions as arms."""

    def __init__(self, name: str, policy: Any, functions: int) -> None:
        self.name = name
        self._policy = policy
        self._arms = list(range(functions))

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Predict as the pulled arm does."""
        arm = self._policy.pull(self._arms)
        return Guess(said[arm], said, arm)

    def learn(self, guess: Guess, label: int) -> None:
        """Reward the pulled arm with 1 if it was right, else with 0."""
        self._policy.update(guess.by, float(guess.label == label))


class Model:
    """A classifier of River over the functions' predictions; untrained, a majority vote."""

    def __init__(self, name: str, model: Any) -> None:
        self.name = name
        self._model = model

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Predict the model's label."""
        label = self._model.predict_one(_features(said))
        return Guess(elect([1.0] * len(said), said) if label is None else label, said)

    def learn(self, guess: Guess, label: int) -> None:
        """Train the model."""
        self._model.learn_one(_features(guess.said), label)


def epsilon_greedy(functions: int, seed: int) -> Bandit:
    """Return a bandit that explores one slot in ten."""
    policy = _river().bandit.EpsilonGreedy(epsilon=0.1, seed=seed)
    return Bandit("river-epsilon-greedy", policy, functions)


def ucb(functions: int, seed: int) -> Bandit:
    """Return the bandit UCB1."""
    return Bandit("river-ucb", _river().bandit.UCB(delta=1, seed=seed), functions)


def thompson(functions: int, seed: int) -> Bandit:
    """Return a bandit that samples from its posterior."""
    river = _river()
    policy = river.bandit.ThompsonSampling(reward_obj=river.proba.Beta(), seed=seed)
    return Bandit("river-thompson", policy, functions)


def forest(functions: int, seed: int) -> Model:
    """Return an adaptive random forest, which replaces trees when it detects drift."""
    return Model("river-forest", _river().forest.ARFClassifier(seed=seed))


def _features(said: Sequence[int]) -> dict[int, str]:
    # As text, so that trees treat codes as classes, not as numbers.
    return {index: str(code) for index, code in enumerate(said)}


def _river() -> Any:
    try:
        import river.bandit
        import river.forest
        import river.proba
    except ModuleNotFoundError:
        raise MissingExtra(
            'baselines from River need river; install it with pip install "covey[river]"'
        ) from None
    return river
