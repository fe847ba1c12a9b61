"""Boosting over fixed functions: weights for their votes.

Weights depend only on which functions were right about an observation, so observations are kept as
counts of such patterns.
"""

import math
from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from covey.errors import ConfigError
from covey.types import Array, Chunk, Guess
from covey.updates import sums_of

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

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Predict the weighted vote."""
        return Guess(elect(self.weights, said), said)

    def learn(self, guess: Guess, label: int) -> None:
        """Collect the label during training; the last one sets the weights."""
        if not self._left:
            return
        self._sample.add(_is_right(guess.said, label), label)
        self._left -= 1
        if not self._left:
            self.weights = self._sample.boost(self._rounds)

    def play(self, chunk: Chunk) -> Array:
        """Predict all slots at once; the weights change at most once."""
        before = self.weights
        missing = min(self._left, len(chunk.labels))
        rows, labels = chunk.asked[:missing].tolist(), chunk.labels[:missing].tolist()
        for votes, label in zip(rows, labels, strict=True):
            self.learn(Guess(-1, tuple(votes)), label)
        first = np.searchsorted(chunk.came, missing)
        early, late = chunk.said[:first], chunk.said[first:]
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
        self._weights = [1.0] * functions
        self._is_stale = False

    @property
    def weights(self) -> list[float]:
        """The current weight of each vote."""
        if self._is_stale:
            self._weights = self._sample.boost(self._rounds)
            self._is_stale = False
        return self._weights

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Predict the weighted vote."""
        return Guess(elect(self.weights, said), said)

    def learn(self, guess: Guess, label: int) -> None:
        """Add the label to the window and drop the oldest one."""
        newest = (_is_right(guess.said, label), label)
        if len(self._seen) == self._seen.maxlen:
            oldest = self._seen[0]
            self._seen.append(newest)
            if oldest == newest:
                return
            self._sample.remove(*oldest)
        else:
            self._seen.append(newest)
        self._sample.add(*newest)
        self._is_stale = True


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

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Predict the weighted vote."""
        return Guess(elect(self.weights, said), said)

    def learn(self, guess: Guess, label: int) -> None:
        """Pass the label through all members."""
        weight = 1.0
        for k, prediction in enumerate(guess.said):
            sums = self.right if prediction == label else self.wrong
            sums[k] += weight
            weight *= (self.right[k] + self.wrong[k]) / (2 * sums[k])


def elect(weights: Sequence[float], said: Sequence[int]) -> int:
    """Return the class with the largest sum of weights; ties: the one predicted first."""
    sums = sums_of(weights, said)
    enough = max(sums.values()) - _SUM_TOLERANCE
    return next(code for code in said if sums[code] >= enough)


def elect_many(weights: Sequence[float], said: Array) -> Array:
    """Return the result of `elect` for each row."""
    sums = np.array([(said == votes[:, None]) @ np.array(weights) for votes in said.T])
    first = np.argmax(sums >= sums.max(axis=0) - _SUM_TOLERANCE, axis=0)
    elected: Array = said[np.arange(len(said)), first]
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

    def add(self, is_right: tuple[bool, ...], label: int) -> None:
        column = self._columns.get(is_right)
        if column is None:
            column = self._columns[is_right] = self._free.pop()
            self._wrong[:, column] = [not right for right in is_right]
        self._counts[column] += 1
        self._labels[label] += 1

    def remove(self, is_right: tuple[bool, ...], label: int) -> None:
        column = self._columns[is_right]
        self._counts[column] -= 1
        if not self._counts[column]:
            del self._columns[is_right]
            self._free.append(column)
        self._labels[label] -= 1
        if not self._labels[label]:
            del self._labels[label]

    def boost(self, rounds: int) -> list[float]:
        classes = max(2, len(self._labels))
        return boost(self._wrong, self._counts, classes=classes, rounds=rounds)


def _is_right(said: Sequence[int], label: int) -> tuple[bool, ...]:
    return tuple([prediction == label for prediction in said])
