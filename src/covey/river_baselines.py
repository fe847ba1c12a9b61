"""Baselines from River: bandits that choose a function, and a forest over what functions say.

The one file that names River.
"""

from collections.abc import Sequence
from typing import Any

from covey.boosting import elect
from covey.errors import MissingExtra
from covey.types import Guess


class Bandit:
    """A bandit policy of River with the functions as arms; it learns about the arm it pulled."""

    def __init__(self, name: str, policy: Any, functions: int) -> None:
        self.name = name
        self._policy = policy
        self._arms = list(range(functions))

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Answer as the arm does that is pulled."""
        arm = self._policy.pull(self._arms)
        return Guess(said[arm], said, arm)

    def learn(self, guess: Guess, label: int) -> None:
        """Reward the arm that was pulled then with 1 if it was right, with 0 if not."""
        self._policy.update(guess.by, float(guess.label == label))


class Model:
    """A classifier of River that learns labels from what the functions say.

    Before it has learnt any, every function has one vote.
    """

    def __init__(self, name: str, model: Any) -> None:
        self.name = name
        self._model = model

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Answer with the model's label."""
        answer = self._model.predict_one(_features(said))
        return Guess(elect([1.0] * len(said), said) if answer is None else answer, said)

    def learn(self, guess: Guess, label: int) -> None:
        """Teach the model."""
        self._model.learn_one(_features(guess.said), label)


def epsilon_greedy(functions: int, seed: int) -> Bandit:
    """Return a bandit that explores one slot in ten."""
    river = _river()
    policy = river.bandit.EpsilonGreedy(epsilon=0.1, seed=seed)
    return Bandit("river-epsilon-greedy", policy, functions)


def ucb(functions: int, seed: int) -> Bandit:
    """Return the bandit UCB1."""
    river = _river()
    return Bandit("river-ucb", river.bandit.UCB(delta=1, seed=seed), functions)


def thompson(functions: int, seed: int) -> Bandit:
    """Return a bandit that samples from what it believes."""
    river = _river()
    policy = river.bandit.ThompsonSampling(reward_obj=river.proba.Beta(), seed=seed)
    return Bandit("river-thompson", policy, functions)


def forest(functions: int, seed: int) -> Model:
    """Return an adaptive random forest, which replaces trees where it detects drift."""
    return Model("river-forest", _river().forest.ARFClassifier(seed=seed))


def _features(said: Sequence[int]) -> dict[int, str]:
    # As text, so that trees take codes for classes and not for numbers.
    return {place: str(one) for place, one in enumerate(said)}


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
