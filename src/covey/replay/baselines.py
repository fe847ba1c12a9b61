"""Baselines that a replay is compared with: simple rules, boosting, and models of River."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from covey.bandit.ensemble import sums_of
from covey.data.logs import EncodedLog, label_delays
from covey.errors import ConfigError, need_of, optional_module
from covey.toml import nearest
from covey.types import Array


class BaselineAnswer(NamedTuple):
    """A baseline's answer in a slot; it is passed to `learn` with the label."""

    label: int
    predictions: tuple[int, ...]  # predictions of the functions in that slot
    by: int = -1  # internal reference of the baseline: a function or a slot


class Baseline(Protocol):
    """A reference method: it sees all predictions and learns from labels as they arrive.

    Labels and predictions share one integer encoding.
    """

    name: str  # on the command line

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        """Answer a slot, given the predictions of the functions."""

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        """Learn from the label of the slot of `guess`; labels can be late or missing."""


ROUNDS = 10
TRAINING = 1_000
# Errors and sums that differ by less are equal up to rounding; ties: the first.
_ERROR_TOLERANCE = 1e-12
_SUM_TOLERANCE = 1e-9


class _Boosted:
    """Votes with weights that a sample of labels sets by AdaBoost (SAMME); before, a majority."""

    def __init__(self, functions: int, *, labels: int, rounds: int) -> None:
        self._rounds = rounds
        self._sample = _Sample(functions, labels)
        self._weights: list[float] | None = [1.0] * functions  # None: the sample has changed

    @property
    def weights(self) -> list[float]:
        if self._weights is None:
            self._weights = self._sample.boost(self._rounds)
        return self._weights

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        return BaselineAnswer(elect(self.weights, predictions), predictions)


class AdaBoost(_Boosted):
    """AdaBoost trained once on the first labels."""

    name = "adaboost"

    def __init__(self, functions: int, *, training: int = TRAINING, rounds: int = ROUNDS) -> None:
        super().__init__(functions, labels=training, rounds=rounds)
        self._left = training

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        """Collect the label during training; the last one sets the weights."""
        if self._left:
            self._sample.count(_is_right(guess.predictions, label), label)
            self._left -= 1
            self._weights = self._weights if self._left else None


class SlidingAdaBoost(_Boosted):
    """AdaBoost retrained in every slot on a window of the latest labels."""

    def __init__(self, functions: int, *, window: int, rounds: int = ROUNDS) -> None:
        if window < 1:
            raise ConfigError(f"the window is {window} labels; it must be 1 or more")
        super().__init__(functions, labels=window, rounds=rounds)
        self.name = f"sliding-adaboost-{window}"
        self._seen: deque[tuple[tuple[bool, ...], int]] = deque(maxlen=window)

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


def elect(weights: Sequence[float], predictions: Sequence[int]) -> int:
    """Return the class with the largest sum of weights; ties: the one predicted first."""
    sums = sums_of(weights, predictions)
    enough = max(sums.values()) - _SUM_TOLERANCE
    return next(code for code in predictions if sums[code] >= enough)


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


def _river(part: str) -> Any:
    missing = need_of("baselines from River", "river", extra="river")
    return optional_module(f"river.{part}", missing=missing)


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


class FollowTheLeader:
    """Predicts as the function that was right most often so far; ties: the first."""

    name = "follow-the-leader"

    def __init__(self, functions: int) -> None:
        self._right = [0] * functions

    def predict(self, predictions: tuple[int, ...]) -> BaselineAnswer:
        leader = self._right.index(max(self._right))
        return BaselineAnswer(predictions[leader], predictions, leader)

    def learn(self, guess: BaselineAnswer, label: int) -> None:
        for k, prediction in enumerate(guess.predictions):
            self._right[k] += prediction == label


class BaselineNumbers(msgspec.Struct, frozen=True):
    """The errors of a baseline on the rows that have a label."""

    errors: int
    error_percent: float | None


HINDSIGHT = "best-in-hindsight"


class BaselineRun:
    """Baselines driven in chunks; memory grows with the pending labels only.

    At the end of a slot they learn from the labels that arrive then, those of older slots first.
    """

    def __init__(
        self,
        baselines: Sequence[Baseline],
        *,
        label_wait: int | None = None,
        receivers: Sequence[int] | None = None,
    ) -> None:
        self._baselines = baselines
        self._wait = label_wait
        self._receivers = receivers  # indices of the learners; None: all
        self._pending: dict[int, list[tuple[list[BaselineAnswer], int]]] = {}  # by slot of arrival
        self._slot = 0
        self._judged = 0
        self._errors = dict.fromkeys((baseline.name for baseline in baselines), 0)
        self._function_errors: Array = np.zeros(1, np.int64)

    def add(self, log: EncodedLog) -> dict[str, Array]:
        """Let all baselines predict and learn on the next rows; return predictions by name."""
        if log.gains is not None:
            raise ConfigError(
                "baselines need predictions that are right or wrong, but [data] has a loss; remove "
                "one of them"
            )
        votes = np.asarray(log.predictions).T
        labels = np.asarray(log.labels)
        rows = zip(votes.tolist(), labels.tolist(), self._delays(log).tolist(), strict=True)
        answers = np.array([self._play(tuple(row), *late) for row, *late in rows], np.int64)
        answers = answers.reshape(len(labels), len(self._baselines)).T
        is_judged = labels >= 0
        for name, answered in zip(self._errors, answers, strict=True):
            self._errors[name] += int(np.count_nonzero((answered != labels) & is_judged))
        wrong = np.count_nonzero((votes != labels[:, None]) & is_judged[:, None], axis=0)
        self._function_errors = self._function_errors + wrong
        self._judged += int(np.count_nonzero(is_judged))
        return dict(zip(self._errors, answers, strict=True))

    def outcome(self) -> dict[str, BaselineNumbers]:
        """Return the errors of each baseline and of the best single function."""
        best = int(self._function_errors.min(initial=self._judged))
        errors = {**self._errors, HINDSIGHT: best}
        judged = self._judged
        return {
            name: BaselineNumbers(number, 100 * number / judged if judged else None)
            for name, number in errors.items()
        }

    def _play(self, votes: tuple[int, ...], label: int, delay: int) -> list[int]:
        answers = [baseline.predict(votes) for baseline in self._baselines]
        self._slot += 1
        if delay >= 0:
            self._pending.setdefault(self._slot + delay, []).append((answers, label))
        for guesses, truth in self._pending.pop(self._slot, ()):
            for baseline, guess in zip(self._baselines, guesses, strict=True):
                baseline.learn(guess, truth)
        return [answer.label for answer in answers]

    def _delays(self, log: EncodedLog) -> Array:
        """Return the delay of each label in slots; -1: it never arrives at a receiver."""
        delays = label_delays(log, self._wait)
        if log.shown is None:
            return delays
        shown = np.asarray(log.shown) > 0
        if log.at is not None:
            is_shown = shown[np.arange(len(shown)), np.asarray(log.at)]
        else:
            is_shown = shown[:, self._receivers or slice(None)].any(axis=1)
        return np.where(is_shown, delays, -1)


Make = Callable[[int, int], Baseline]  # number of functions, seed

BASELINES: dict[str, Make] = {
    "previous-label": lambda functions, seed: PreviousLabel(),
    "follow-the-leader": lambda functions, seed: FollowTheLeader(functions),
    "adaboost": lambda functions, seed: AdaBoost(functions),
    "sliding-adaboost-100": lambda functions, seed: SlidingAdaBoost(functions, window=100),
    "sliding-adaboost-1000": lambda functions, seed: SlidingAdaBoost(functions, window=1_000),
    "river-epsilon-greedy": lambda functions, seed: RiverBandit(
        "river-epsilon-greedy", _river("bandit").EpsilonGreedy(epsilon=0.1, seed=seed), functions
    ),
    "river-ucb": lambda functions, seed: RiverBandit(
        "river-ucb", _river("bandit").UCB(delta=1, seed=seed), functions
    ),
    "river-thompson": lambda functions, seed: RiverBandit(
        "river-thompson",
        _river("bandit").ThompsonSampling(reward_obj=_river("proba").Beta(), seed=seed),
        functions,
    ),
    "river-forest": lambda functions, seed: RiverClassifier(
        "river-forest", _river("forest").ARFClassifier(seed=seed)
    ),
}
PLAIN = tuple(name for name in BASELINES if not name.startswith("river-"))


def make(names: Iterable[str], *, functions: int, seed: int = 0) -> list[Baseline]:
    """Return new baselines by name.

    Raises `ConfigError` for an unknown or duplicate name, and `MissingExtra` if River is needed
    and missing.

    >>> [baseline.name for baseline in make(["previous-label", "adaboost"], functions=3)]
    ['previous-label', 'adaboost']
    """
    if isinstance(names, str):
        raise ConfigError(f"baselines are the text {names!r}; give a list, such as [{names!r}]")
    chosen = list(names)
    for name in chosen:
        if name not in BASELINES:
            raise ConfigError(f"unknown baseline {name!r}{nearest(name, BASELINES)}")
        if chosen.count(name) > 1:
            raise ConfigError(f"duplicate baseline {name!r}; name it once")
    return [BASELINES[name](functions, seed) for name in chosen]
