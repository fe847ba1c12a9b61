"""Boosting over fixed functions: weights for their votes, from whether they were right.

Nothing here depends on what an observation looks like, only on which functions were right about it.
So observations are kept as counts of such patterns, of which there are few.
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
# Errors and sums that differ by less are the same but for the rounding, and the first one wins.
_ALIKE = 1e-12
_TIED = 1e-9
_TINY = 1e-16


class AdaBoost:
    """Discrete AdaBoost (SAMME, of several classes) on the first labels, and the same ever after.

    Until then every function has one vote.
    """

    name = "adaboost"

    def __init__(self, functions: int, *, training: int = TRAINING, rounds: int = ROUNDS) -> None:
        self._left = training
        self._rounds = rounds
        self._sample = _Sample(functions, training)
        self.weights = [1.0] * functions

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Answer with the weighted vote."""
        return Guess(elect(self.weights, said), said)

    def learn(self, guess: Guess, label: int) -> None:
        """Keep the label while the training lasts; the last one of it sets the weights."""
        if not self._left:
            return
        self._sample.add(_is_right(guess.said, label), label)
        self._left -= 1
        if not self._left:
            self.weights = self._sample.boost(self._rounds)

    def play(self, chunk: Chunk) -> Array:
        """Answer all slots at once; the weights change once, at most."""
        before = self.weights
        missing = min(self._left, len(chunk.labels))
        rows, labels = chunk.asked[:missing].tolist(), chunk.labels[:missing].tolist()
        for said, label in zip(rows, labels, strict=True):
            self.learn(Guess(-1, tuple(said)), label)
        first = np.searchsorted(chunk.came, missing)
        early, late = chunk.said[:first], chunk.said[first:]
        return np.concatenate([elect_many(before, early), elect_many(self.weights, late)])


class SlidingAdaBoost:
    """AdaBoost trained anew in every slot, on the labels that came last."""

    def __init__(self, functions: int, *, window: int, rounds: int = ROUNDS) -> None:
        if window < 1:
            raise ConfigError(f"a window of {window} labels holds nothing; give 1 or more")
        self.name = f"sliding-adaboost-{window}"
        self._rounds = rounds
        self._seen: deque[tuple[tuple[bool, ...], int]] = deque(maxlen=window)
        self._sample = _Sample(functions, window)
        self._weights = [1.0] * functions
        self._is_stale = False

    @property
    def weights(self) -> list[float]:
        """What each vote weighs now."""
        if self._is_stale:
            self._weights = self._sample.boost(self._rounds)
            self._is_stale = False
        return self._weights

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Answer with the weighted vote."""
        return Guess(elect(self.weights, said), said)

    def learn(self, guess: Guess, label: int) -> None:
        """Let the label push the oldest one out of the window."""
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

    A label goes from member to member with a weight that falls where a member is right and grows
    where it is wrong. The Poisson draws of the original repeat the training of a member; functions
    that are fixed are not trained, so there is nothing to draw.
    """

    name = "oza-russell"

    def __init__(self, functions: int) -> None:
        self.right = [0.0] * functions  # the sums of weights that the paper calls lambda^sc
        self.wrong = [0.0] * functions  # and lambda^sw

    @property
    def weights(self) -> list[float]:
        """What each vote weighs; members worse than chance have none, unless all are."""
        sums = zip(self.right, self.wrong, strict=True)
        logs = [max(0.0, math.log((right + _TINY) / (wrong + _TINY))) for right, wrong in sums]
        return logs if any(logs) else [1.0] * len(logs)

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Answer with the weighted vote."""
        return Guess(elect(self.weights, said), said)

    def learn(self, guess: Guess, label: int) -> None:
        """Send the label through all members."""
        weight = 1.0
        for k, one in enumerate(guess.said):
            sums = self.right if one == label else self.wrong
            sums[k] += weight
            weight *= (self.right[k] + self.wrong[k]) / (2 * sums[k])


def elect(weights: Sequence[float], said: Sequence[int]) -> int:
    """Return the class with the largest weight behind it; of equals, the one that is said first."""
    sums = sums_of(weights, said)
    enough = max(sums.values()) - _TIED
    return next(one for one in said if sums[one] >= enough)


def elect_many(weights: Sequence[float], said: Array) -> Array:
    """Return what `elect` says to each row."""
    sums = np.array([(said == one[:, None]) @ np.array(weights) for one in said.T])
    first = np.argmax(sums >= sums.max(axis=0) - _TIED, axis=0)
    answers: Array = said[np.arange(len(said)), first]
    return answers


def boost(wrong: Array, counts: Array, *, classes: int, rounds: int) -> list[float]:
    """Return what each vote weighs: the sum of ln((1 - e) / e) + ln(classes - 1) of its rounds.

    `wrong` says for each function and pattern whether it is wrong there (1.0), `counts` how often
    the pattern was seen. A round takes the function with the least weighted error e, as long as one
    is better than chance. If none ever is, all votes weigh 1.
    """
    share = counts / counts.sum()
    weights = [0.0] * len(wrong)
    chance = 1 - 1 / classes
    for _ in range(rounds):
        errors = wrong.dot(share).tolist()
        enough = min(errors) + _ALIKE
        best = next(k for k, error in enumerate(errors) if error <= enough)
        error = errors[best]
        if error >= chance - _ALIKE:
            break
        if not error:
            weights[best] = 1.0  # never wrong, so it decides alone
            break
        weights[best] += math.log((1 - error) / error * (classes - 1))
        lowered, raised = (1 - chance) / (1 - error), chance / error
        share *= wrong[best] * (raised - lowered) + lowered
    return weights if any(weights) else [1.0] * len(weights)


class _Sample:
    """Labelled observations as counts: how often exactly these functions were right."""

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
            self._wrong[:, column] = [not one for one in is_right]
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
    return tuple([one == label for one in said])
