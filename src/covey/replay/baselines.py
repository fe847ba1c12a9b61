"""Baselines that a replay is compared with: simple rules, boosting, and models of River."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from covey.bandit.ensemble import sums_of
from covey.errors import ConfigError, MissingExtra, need_of, warn_deprecated
from covey.toml import nearest
from covey.types import Array


class BaselineAnswer(NamedTuple):
    """A baseline's answer in a slot; it is passed to `learn` with the label."""

    label: int
    predictions: tuple[int, ...]  # predictions of the functions in that slot
    by: int = -1  # internal reference of the baseline: a function or a slot

    @property
    def said(self) -> tuple[int, ...]:
        """The old name of `predictions`."""
        warn_deprecated("BaselineAnswer.said", "BaselineAnswer.predictions")
        return self.predictions


class Baseline(Protocol):
    """A reference method: it sees all predictions and learns from labels as they arrive.

    Labels and predictions share one integer encoding.
    """

    name: str  # on the command line

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        """Answer a slot, given the predictions of the functions."""

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        """Learn from the label of the slot of `guess`; labels can be late or missing."""


class Chunk(NamedTuple):
    """Slots of a log, and the labels that arrive during them, in order of arrival."""

    predictions: Array  # slot, function -> code
    arrived: Array  # slot -> number of labels that arrived before it
    labels: Array
    asked: Array  # label, function -> prediction in the slot of the label
    slots: Array  # label -> its slot; the chunk starts at 0, earlier slots are negative


@runtime_checkable
class ChunkBaseline(Baseline, Protocol):
    """A baseline that can also process a whole chunk, with the same result as slot by slot."""

    def play(self, chunk: Chunk) -> Array:
        """Return the answers, and learn from all labels."""


ROUNDS = 10
TRAINING = 1_000
# Errors and sums that differ by less are equal up to rounding; ties: the first.
_ERROR_TOLERANCE = 1e-12
_SUM_TOLERANCE = 1e-9
_TINY = 1e-16


class AdaBoost:
    """Discrete AdaBoost (SAMME) trained once on the first labels; before, a majority vote."""

    name = "adaboost"

    def __init__(self, functions: int, *, training: int = TRAINING, rounds: int = ROUNDS) -> None:
        self._left = training
        self._rounds = rounds
        self._sample = _Sample(functions, training)
        self.weights = [1.0] * functions

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        return BaselineAnswer(elect(self.weights, predictions), predictions)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        """Collect the label during training; the last one sets the weights."""
        if not self._left:
            return
        self._sample.count(_is_right(guess.predictions, label), label)
        self._left -= 1
        if not self._left:
            self.weights = self._sample.boost(self._rounds)

    def play(self, chunk: Chunk) -> Array:
        """Predict all slots at once; the weights change at most once."""
        before = self.weights
        missing = min(self._left, len(chunk.labels))
        rows, labels = chunk.asked[:missing].tolist(), chunk.labels[:missing].tolist()
        for votes, label in zip(rows, labels, strict=True):
            self.learn(BaselineAnswer(-1, tuple(votes)), label)
        first = np.searchsorted(chunk.arrived, missing)
        early, late = chunk.predictions[:first], chunk.predictions[first:]
        return np.concatenate([elect_many(before, early), elect_many(self.weights, late)])


class SlidingAdaBoost:
    """AdaBoost retrained in every slot on a window of the latest labels."""

    def __init__(self, functions: int, *, window: int, rounds: int = ROUNDS) -> None:
        if window < 1:
            raise ConfigError(f"the window is {window} labels; it must be 1 or more")
        self.name = f"sliding-adaboost-{window}"
        self._rounds = rounds
        self._seen: deque[tuple[tuple[bool, ...], int]] = deque(maxlen=window)
        self._sample = _Sample(functions, window)
        self._weights: list[float] | None = [1.0] * functions  # None: the window has changed

    @property
    def weights(self) -> list[float]:
        if self._weights is None:
            self._weights = self._sample.boost(self._rounds)
        return self._weights

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        return BaselineAnswer(elect(self.weights, predictions), predictions)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        """Add the label to the window and drop the oldest one."""
        newest = (_is_right(guess.predictions, label), label)
        oldest = self._seen[0] if len(self._seen) == self._seen.maxlen else None
        self._seen.append(newest)
        if oldest == newest:
            return
        if oldest is not None:
            self._sample.count(*oldest, change=-1)
        self._sample.count(*newest)
        self._weights = None


class OzaRussell:
    """Online boosting of Oza and Russell, with the functions as members, in their order.

    A label passes through the members with a weight that falls after a right member and grows
    after a wrong one. Functions are not trained here, so the original's Poisson draws are omitted.
    """

    name = "oza-russell"

    def __init__(self, functions: int) -> None:
        self.right = [0.0] * functions  # the sums of weights that the paper calls lambda^sc
        self.wrong = [0.0] * functions  # and lambda^sw

    @property
    def weights(self) -> list[float]:
        """The weight of each vote: 0 for members worse than chance, unless all are."""
        sums = zip(self.right, self.wrong, strict=True)
        logs = [max(0.0, math.log((right + _TINY) / (wrong + _TINY))) for right, wrong in sums]
        return logs if any(logs) else [1.0] * len(logs)

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        return BaselineAnswer(elect(self.weights, predictions), predictions)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        weight = 1.0
        for k, prediction in enumerate(guess.predictions):
            sums = self.right if prediction == label else self.wrong
            sums[k] += weight
            weight *= (self.right[k] + self.wrong[k]) / (2 * sums[k])


def elect(weights: Sequence[float], predictions: Sequence[int]) -> int:
    """Return the class with the largest sum of weights; ties: the one predicted first."""
    sums = sums_of(weights, predictions)
    enough = max(sums.values()) - _SUM_TOLERANCE
    return next(code for code in predictions if sums[code] >= enough)


def elect_many(weights: Sequence[float], predictions: Array) -> Array:
    """Return the result of `elect` for each row."""
    sums = np.array([(predictions == v[:, None]) @ np.array(weights) for v in predictions.T])
    first = np.argmax(sums >= sums.max(axis=0) - _SUM_TOLERANCE, axis=0)
    elected: Array = predictions[np.arange(len(predictions)), first]
    return elected


def boost(wrong: Array, counts: Array, *, classes: int, rounds: int) -> list[float]:
    """Return the weight of each vote: the sum of ln((1 - e) / e) + ln(classes - 1) of its rounds.

    `wrong` is 1.0 where a function is wrong on a pattern, `counts` the frequency of the pattern. A
    round takes the function with the least weighted error e, if it is better than chance. If none
    ever is, all votes weigh 1.
    """
    share = counts / counts.sum()
    weights = [0.0] * len(wrong)
    chance = 1 - 1 / classes
    for _ in range(rounds):
        errors = wrong.dot(share).tolist()
        enough = min(errors) + _ERROR_TOLERANCE
        best = next(k for k, error in enumerate(errors) if error <= enough)
        error = errors[best]
        if error >= chance - _ERROR_TOLERANCE:
            break
        if not error:
            weights[best] = 1.0  # never wrong: it decides alone
            break
        weights[best] += math.log((1 - error) / error * (classes - 1))
        lowered, raised = (1 - chance) / (1 - error), chance / error
        share *= wrong[best] * (raised - lowered) + lowered
    return weights if any(weights) else [1.0] * len(weights)


class _Sample:
    """Labelled observations as counts per set of functions that were right."""

    def __init__(self, functions: int, most: int) -> None:
        columns = min(2**functions, most)
        self._wrong = np.zeros((functions, columns))
        self._counts = np.zeros(columns)
        self._columns: dict[tuple[bool, ...], int] = {}
        self._free = list(range(columns))
        self._labels: Counter[int] = Counter()

    def count(self, is_right: tuple[bool, ...], label: int, *, change: int = 1) -> None:
        if is_right not in self._columns:
            column = self._columns[is_right] = self._free.pop()
            self._wrong[:, column] = [not right for right in is_right]
        column = self._columns[is_right]
        self._counts[column] += change
        if not self._counts[column]:
            self._free.append(self._columns.pop(is_right))
        self._labels[label] += change
        if not self._labels[label]:
            del self._labels[label]

    def boost(self, rounds: int) -> list[float]:
        classes = max(2, len(self._labels))
        return boost(self._wrong, self._counts, classes=classes, rounds=rounds)


def _is_right(predictions: Sequence[int], label: int) -> tuple[bool, ...]:
    return tuple([prediction == label for prediction in predictions])


class RiverBandit:
    """A bandit policy of River with the functions as arms."""

    def __init__(self, name: str, policy: Any, functions: int) -> None:
        self.name = name
        self._policy = policy
        self._arms = list(range(functions))

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        arm = self._policy.pull(self._arms)
        return BaselineAnswer(predictions[arm], predictions, arm)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        """Reward the pulled arm with 1 if it was right, else with 0."""
        self._policy.update(guess.by, float(guess.label == label))


class RiverClassifier:
    """A classifier of River over the functions' predictions; untrained, a majority vote."""

    def __init__(self, name: str, model: Any) -> None:
        self.name = name
        self._model = model

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        guess = self._model.predict_one(_features(predictions))
        label = elect([1.0] * len(predictions), predictions) if guess is None else guess
        return BaselineAnswer(label, predictions)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        self._model.learn_one(_features(guess.predictions), label)


def _features(predictions: Sequence[int]) -> dict[int, str]:
    # As text, so that trees treat codes as classes, not as numbers.
    return {index: str(code) for index, code in enumerate(predictions)}


def _river() -> Any:
    try:
        import river.bandit
        import river.forest
        import river.proba
    except ModuleNotFoundError:
        raise MissingExtra(need_of("baselines from River", "river", extra="river")) from None
    return river


class PreviousLabel:
    """Predicts the known label of the latest slot; without any, the first function's prediction."""

    name = "previous-label"

    def __init__(self) -> None:
        self._slots = 0
        self._latest: tuple[int, int] | None = None  # slot, label

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        self._slots += 1
        label = self._latest[1] if self._latest else predictions[0]
        return BaselineAnswer(label, predictions, self._slots)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        """Keep the label, unless one of a later slot is known."""
        if self._latest is None or guess.by > self._latest[0]:
            self._latest = (guess.by, label)

    def play(self, chunk: Chunk) -> Array:
        slots, labels = chunk.slots + self._slots + 1, chunk.labels
        is_known = self._latest is not None
        if self._latest is not None:
            slots, labels = np.append(self._latest[0], slots), np.append(self._latest[1], labels)
        self._slots += len(chunk.predictions)
        if not len(slots):
            return chunk.predictions[:, 0]
        latest = np.maximum.accumulate(slots)
        latest_labels = labels[np.searchsorted(latest, latest)]
        self._latest = (int(latest[-1]), int(latest_labels[-1]))
        known = chunk.arrived + is_known
        return np.where(known > 0, latest_labels[known - 1], chunk.predictions[:, 0])


class WinStay:
    """Uses a function while it is right, and changes to the next one when it is wrong."""

    name = "win-stay"

    def __init__(self) -> None:
        self._function = 0

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        return BaselineAnswer(predictions[self._function], predictions, self._function)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        if guess.by == self._function and guess.label != label:
            self._function = (self._function + 1) % len(guess.predictions)


class FollowTheLeader:
    """Predicts as the function that was right most often so far; ties: the first."""

    name = "follow-the-leader"

    def __init__(self, functions: int) -> None:
        self._right = [0] * functions
        self._leader = 0

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        return BaselineAnswer(predictions[self._leader], predictions, self._leader)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        for k, prediction in enumerate(guess.predictions):
            self._right[k] += prediction == label
        self._leader = self._right.index(max(self._right))


Make = Callable[[int, int], Baseline]  # number of functions, seed

BASELINES: dict[str, Make] = {
    "previous-label": lambda functions, seed: PreviousLabel(),
    "win-stay": lambda functions, seed: WinStay(),
    "follow-the-leader": lambda functions, seed: FollowTheLeader(functions),
    "adaboost": lambda functions, seed: AdaBoost(functions),
    "sliding-adaboost-100": lambda functions, seed: SlidingAdaBoost(functions, window=100),
    "sliding-adaboost-1000": lambda functions, seed: SlidingAdaBoost(functions, window=1_000),
    "oza-russell": lambda functions, seed: OzaRussell(functions),
    "river-epsilon-greedy": lambda functions, seed: RiverBandit(
        "river-epsilon-greedy", _river().bandit.EpsilonGreedy(epsilon=0.1, seed=seed), functions
    ),
    "river-ucb": lambda functions, seed: RiverBandit(
        "river-ucb", _river().bandit.UCB(delta=1, seed=seed), functions
    ),
    "river-thompson": lambda functions, seed: RiverBandit(
        "river-thompson",
        _river().bandit.ThompsonSampling(reward_obj=_river().proba.Beta(), seed=seed),
        functions,
    ),
    "river-forest": lambda functions, seed: RiverClassifier(
        "river-forest", _river().forest.ARFClassifier(seed=seed)
    ),
}
PLAIN = tuple(name for name in BASELINES if not name.startswith("river-"))


def make(names: Iterable[str], *, functions: int, seed: int = 0) -> list[Baseline]:
    """Return new baselines by name.

    Raises `ConfigError` for an unknown or duplicate name, and `MissingExtra` if River is needed
    and missing.

    >>> [baseline.name for baseline in make(["win-stay", "adaboost"], functions=3)]
    ['win-stay', 'adaboost']
    """
    chosen = list(names)
    for name in chosen:
        if name not in BASELINES:
            raise ConfigError(f"unknown baseline {name!r}{nearest(name, BASELINES)}")
        if chosen.count(name) > 1:
            raise ConfigError(f"duplicate baseline {name!r}; name it once")
    return [BASELINES[name](functions, seed) for name in chosen]
