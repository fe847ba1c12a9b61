"""The oracle of the linear belief: lists, and everything worked out anew from all labels.

It keeps the labels themselves, in the order of their arrival. The floats have the order of
operations that is part of the rule, so that results are equal bit for bit.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Label(NamedTuple):
    features: tuple[int, ...]
    gain: int


def uniform(seed: int) -> Iterator[int]:
    """Give 64 random bits again and again."""
    state = seed % 2**64
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state


def half_up(value: float) -> int:
    return math.floor(value + 0.5)


def within(value: int, bound: int) -> int:
    return max(-bound, min(bound, value))


@dataclass
class Features:
    """1, coordinates in 2^-12, and cosines in 2^-14."""

    dimension: int
    cosines: int
    rows: list[tuple[list[int], int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        draws = uniform(1)
        if not self.dimension:
            return
        # Choice: cosines vary over a length of 0.7.
        scale = round(8192 / (2 * math.pi * 0.7 * math.sqrt(self.dimension)))
        for _ in range(self.cosines):
            normal = [
                sum(next(draws) // 2**48 for _ in range(12)) - 6 * 65535
                for _ in range(self.dimension)
            ]
            row = [number * scale // 65536 for number in normal]
            self.rows.append((row, next(draws) // 2**39))

    def of(self, context: Sequence[float]) -> tuple[int, ...]:
        inputs = [within(half_up((x - 0.5) * (4096 * math.sqrt(12))), 16384) for x in context]
        turns = [
            (phase + sum(w * z for w, z in zip(row, inputs, strict=True))) // 2**15 % 1024
            for row, phase in self.rows
        ]
        cosines = [half_up(math.cos(2 * math.pi * turn / 1024) * 16384) for turn in turns]
        return (4096, *inputs, *cosines)

    def prior(self) -> list[float]:
        """Return the prior precisions of the weights of features as they are: integers."""
        inputs = [4.0 * self.dimension * 2**24] * self.dimension
        return [4.0 * 2**24, *inputs, *[2.0 * self.cosines * 2**28] * len(self.rows)]


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the sum of products: every fourth one in a lane of its own."""
    lanes = [0.0, 0.0, 0.0, 0.0]
    for k, (a, b) in enumerate(zip(left, right, strict=False)):
        lanes[k % 4] += a * b
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])


def sums(labels: Sequence[Label], unit: int) -> tuple[list[list[int]], list[int]]:
    """Return S and b."""
    size = len(labels[0].features)
    products, gains = [[0] * size for _ in range(size)], [0] * size
    for features, gain in labels:
        for i in range(size):
            gains[i] += features[i] * (2 * gain - unit)
            for j in range(size):
                products[i][j] += features[i] * features[j]
    return products, gains


def inverse_factor(products: Sequence[Sequence[int]], prior: Sequence[float]) -> list[list[float]]:
    """Return G, where G (prior + 4 S) G' is 1, by rows up to the diagonal."""
    size = len(prior)
    upper: list[list[float]] = []  # of which G is the inverse, transposed; without its diagonal
    diagonal: list[float] = []  # inverted
    inverse: list[list[float]] = []
    for i in range(size):
        row = [4.0 * products[i][j] for j in range(size)]
        for k in range(i):
            for j in range(i, size):
                row[j] -= upper[k][i] * upper[k][j]
        diagonal.append(1.0 / math.sqrt(row[i] + prior[i]))
        upper.append([value * diagonal[i] for value in row])
        made = [0.0] * i
        for k in range(i):
            for j in range(k + 1):
                made[j] -= upper[k][i] * inverse[k][j]
        inverse.append([value * diagonal[i] for value in made] + [diagonal[i]])
    return inverse


def solve(inverse: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    solution = [0.0] * len(right)
    for row in inverse:
        part = dot(row, right)
        for j, value in enumerate(row):
            solution[j] += part * value
    return solution


class Function:
    """What is believed of one function."""

    def __init__(self, features: Features, unit: int) -> None:
        self.features, self.unit = features, unit
        self.labels: list[Label] = []
        self.since: list[Label] = []  # the last mark
        self.renew()

    @property
    def count(self) -> int:
        return len(self.labels)

    def renew(self) -> None:
        prior = self.features.prior()
        nothing = Label((0,) * len(prior), 0)
        products, gains = sums([nothing, *self.labels], self.unit)
        self.inverse = inverse_factor(products, prior)
        pull = 2.0**35 / self.unit
        self.mark = [self.whole(value) for value in solve(self.inverse, [b * pull for b in gains])]
        self.due = self.count + max(1, self.count // 2)
        self.since = []
        self.known: dict[tuple[int, ...], float] = {}  # variances, until the next mark

    @staticmethod
    def whole(value: float) -> int:
        return half_up(max(-(2.0**31 - 1), min(2.0**31 - 1, value)))

    def weights(self) -> list[int]:
        if not self.since:
            return self.mark
        steps = [self.step(label) for label in self.since]
        moves = [
            sum(step * label.features[k] for step, label in zip(steps, self.since, strict=True))
            for k in range(len(self.mark))
        ]
        moved = solve(self.inverse, [move * 2.0**22 for move in moves])
        return [self.whole(mark + move) for mark, move in zip(self.mark, moved, strict=True)]

    def step(self, label: Label) -> int:
        error = (2 * label.gain - self.unit) / (2.0 * self.unit)
        error -= sum(w * f for w, f in zip(self.mark, label.features, strict=True)) * 2.0**-34
        step = half_up(16384.0 * error / (1.0 + 4.0 * self.variance(label.features)))
        return within(step, 2**16)

    def mean(self, features: Sequence[int]) -> float:
        weights = self.weights()
        return 0.5 + sum(w * f for w, f in zip(weights, features, strict=True)) * 2.0**-34

    def variance(self, features: tuple[int, ...]) -> float:
        if features not in self.known:
            parts = [dot(row, features) for row in self.inverse]
            total = 0.0
            for part in parts:
                total += part * part
            self.known[features] = total
        return self.known[features]

    def learn(self, features: tuple[int, ...], gain: int) -> None:
        label = Label(features, gain)
        self.labels.append(label)
        self.since.append(label)
        news = sum(half_up(4096.0 * self.variance(label.features)) for label in self.since)
        if self.count >= self.due or news > 8 * 1024:
            self.renew()
