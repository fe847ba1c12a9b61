# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""The linear belief: a Bayesian regression of "right, less 1/2" on features of the context.

A `FeatureMap` makes the features of a context: 1, the context, and random cosines of it. They are
integers of 16 bits, so all sums over labels are exact: in any order, on every machine. One map
serves all sites of a context space.

    features = FeatureMap(dimension)        # above 64 with what `calibrate(contexts)` returned
    belief = LinearBelief(features, functions, unit)
    features.read(context)                  # from C: take(coordinates, first)
    belief.mean(function), belief.variance(function)
    features.read(context)                  # when the label comes
    belief.learn(function, gain, belief.variance(function))

With the sums S of products of features and b of features times 2 y - 1, A = prior + 4 S and
A = L L'; G = L^-1. The weights are A^-1 2 b, the variance at features f is |G f|^2. They are worked
out from the sums at marks: when labels have grown by half, or those since the last mark were worth
more than `MOST_NEWS`. Between marks G stays, and the weights move by 4 G'G u, where u is a sum of
integers, too: labels since a mark may come in any order.

Every loop over floats has a fixed order: dot products in four lanes, (s0 + s2) + (s1 + s3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import cython

from covey.errors import DataError
from covey.kernel.cells import block

if cython.compiled:
    from cython.cimports.libc.math import sqrt
else:
    from math import sqrt

    from covey.kernel.cells import doubles, halves, integers, octets, shorts

    INPUTS = 1  # features: 1, then the inputs and the cosines
    ONE = 4096  # 1 as a feature, and the unit of inputs; that of cosines is 2^-14
    CUT = 16384  # inputs are cut at 4 units
    TURN = 1024  # entries of the table of cosines
    PHASE_BITS = 15  # of a phase below an entry of the table
    # What is kept of a function, before its sums.
    MAP, UNIT, LABELS, DUE, NEWS, RENEWALS, REPAIRS, HAS_MOVED = range(8)
    HEAD = 8
    MOST_STEP = 1 << 16
    MOST_NEWS = 8 << 10  # sum of four times the variances since the mark, in 2^-10
    LARGEST = 2147483647.0  # a weight
    OFFSET = 1 << 33
    ROUNDING = 8589934592.5  # with which a cut towards 0 rounds to the nearest
    WEIGHT = 5.820766091346741e-11  # unit of weights: 2^-34 per unit of a feature
    MOVE = 4194304.0  # 4 * 2^34, and steps are in 2^-14

MOST_INPUTS = 64  # contexts with more coordinates are projected
DIRECTIONS = 32  # to so many
STEPS = 3  # of the power iteration
FINE = 1 << 30  # unit of means and deviations
LEAST_DEVIATION = FINE >> 10  # a coordinate that varies less is left out
LENGTH = 0.7  # over which cosines vary
PRIOR = 4.0  # precision of the weight of 1
MASK = (1 << 64) - 1


class Calibration(NamedTuple):
    """How contexts become inputs: found once, then the same at every site and for ever."""

    means: tuple[int, ...]  # in 2^-30
    deviations: tuple[int, ...]
    directions: tuple[tuple[int, ...], ...] = ()  # of 8 bits, if coordinates are many
    spreads: tuple[int, ...] = ()  # standard deviations along them


def _cosines() -> Any:
    """Return the table of cosines, in 2^-14; no entry is near a tie of rounding."""
    memory = block(2 * TURN)
    table = memoryview(memory).cast("h")
    for k in range(TURN):
        table[k] = math.floor(math.cos(2 * math.pi * k / TURN) * 16384 + 0.5)
    return memory


COSINES = _cosines()


class _Draws:
    """Random integers from a seed, by integer arithmetic."""

    def __init__(self, seed: int) -> None:
        self._state = seed & MASK

    def bits(self, count: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & MASK
        return self._state >> 64 - count

    def normal(self) -> int:
        """Return a normal number of standard deviation 2^16, by a sum of 12 uniform ones."""
        return sum([self.bits(16) for _ in range(12)]) - 6 * 65535


def dot(
    left: memoryview[float], at: int, right: memoryview[float], first: int, count: int
) -> float:
    """Return the sum of `count` products, which is a multiple of 4, in four lanes."""
    s0 = s1 = s2 = s3 = 0.0
    for k in range(0, count, 4):
        s0 += left[at + k] * right[first + k]
        s1 += left[at + k + 1] * right[first + k + 1]
        s2 += left[at + k + 2] * right[first + k + 2]
        s3 += left[at + k + 3] * right[first + k + 3]
    return (s0 + s2) + (s1 + s3)


def add_multiple(
    target: memoryview[float],
    at: int,
    factor: float,
    source: memoryview[float],
    first: int,
    count: int,
) -> None:
    """Add a row times a factor to another one; four at a time, for compilers."""
    for k in range(0, count, 4):
        s0 = target[at + k] + factor * source[first + k]
        s1 = target[at + k + 1] + factor * source[first + k + 1]
        s2 = target[at + k + 2] + factor * source[first + k + 2]
        s3 = target[at + k + 3] + factor * source[first + k + 3]
        target[at + k], target[at + k + 1] = s0, s1
        target[at + k + 2], target[at + k + 3] = s2, s3


def subtract(
    rows: memoryview[float],
    at: int,
    first: int,
    width: int,
    a0: float,
    a1: float,
    a2: float,
    a3: float,
    count: int,
) -> None:
    """Subtract four rows of `width` from that at `at`, one after the other, times these factors."""
    second, third, fourth = first + width, first + 2 * width, first + 3 * width
    for k in range(0, count, 2):
        s0 = rows[at + k] - a0 * rows[first + k] - a1 * rows[second + k]
        s1 = rows[at + k + 1] - a0 * rows[first + k + 1] - a1 * rows[second + k + 1]
        s0 = s0 - a2 * rows[third + k] - a3 * rows[fourth + k]
        s1 = s1 - a2 * rows[third + k + 1] - a3 * rows[fourth + k + 1]
        rows[at + k], rows[at + k + 1] = s0, s1


def nearest(value: float) -> int:
    """Return the nearest integer, halves upwards; at most `LARGEST` in size."""
    value = min(max(value, -LARGEST), LARGEST)
    if cython.compiled:
        number: int = cython.cast(cython.longlong, value + ROUNDING)
        return number - OFFSET
    return int(value + ROUNDING) - OFFSET


def cut(value: float) -> int:
    """Return a standardised coordinate as an input."""
    if not value > -CUT:
        return -CUT
    return nearest(value) if value < CUT else CUT


def calibrate(contexts: Sequence[Sequence[float]]) -> Calibration:
    """Return means and deviations of contexts; if they are wide, directions of most variance."""
    means, deviations = [], []
    for column in zip(*contexts, strict=True):
        values = [math.floor(value * FINE + 0.5) for value in column]
        total, count = sum(values), len(values)
        squares = sum([value * value for value in values])
        means.append(total // count)
        deviations.append(math.isqrt((count * squares - total * total) // count**2))
    calibration = Calibration(tuple(means), tuple(deviations))
    if len(means) <= MOST_INPUTS:
        return calibration
    standard = _scales_of(calibration)
    points = [
        [cut((x - mean) * scale) for x, (mean, scale) in zip(context, standard, strict=True)]
        for context in contexts
    ]
    directions = principal_directions(points)
    spreads = []
    for direction in directions:
        sums = [sum([a * b for a, b in zip(direction, point, strict=True)]) for point in points]
        spreads.append(math.isqrt(sum([value * value for value in sums]) // len(sums)))
    return calibration._replace(directions=directions, spreads=tuple(spreads))


def _scales_of(calibration: Calibration) -> list[tuple[float, float]]:
    """Return the mean and the factor of each coordinate; one that hardly varies has 0."""
    return [
        (mean / FINE, ONE * (FINE / deviation) if deviation >= LEAST_DEVIATION else 0.0)
        for mean, deviation in zip(calibration.means, calibration.deviations, strict=True)
    ]


def principal_directions(points: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the directions in which points vary most, in integers of 8 bits.

    A block power iteration with a fixed order of operations. There are `DIRECTIONS`; those for
    which the points are too few are 0.
    """
    count, size = len(points), len(points[0])
    width = size + 3 & -4
    memory = block(8 * width * (count + 2 * DIRECTIONS))
    rows = doubles(memory, 0, count * width)
    now = doubles(memory, count * width, DIRECTIONS * width)
    then = doubles(memory, (count + DIRECTIONS) * width, DIRECTIONS * width)
    for n in range(count):
        for k in range(size):
            rows[n * width + k] = float(points[n][k])
    draws = _Draws(size)
    for n in range(DIRECTIONS):
        for k in range(size):
            now[n * width + k] = 1.0 - 2.0 * draws.bits(1)
    for _ in range(STEPS):
        _multiply(rows, count, now, then, width)
        _orthonormalise(then, width)
        now, then = then, now
    directions = []
    for n in range(DIRECTIONS):
        row = [now[n * width + k] for k in range(size)]
        largest = max([abs(value) for value in row]) or 1.0
        directions.append(tuple([math.floor(127 * value / largest + 0.5) for value in row]))
    return tuple(directions)


def _multiply(
    rows: memoryview[float],
    count: int,
    now: memoryview[float],
    then: memoryview[float],
    width: int,
) -> None:
    """Set `then` to the directions `now`, multiplied by the covariance of the rows."""
    for k in range(DIRECTIONS * width):
        then[k] = 0.0
    for n in range(count):
        for first in range(0, DIRECTIONS * width, width):
            part = dot(rows, n * width, now, first, width)
            add_multiple(then, first, part, rows, n * width, width)


def _orthonormalise(rows: memoryview[float], width: int) -> None:
    """Make directions orthogonal and of length 1, one after the other; 0 if nothing is left."""
    for first in range(0, DIRECTIONS * width, width):
        before = dot(rows, first, rows, first, width)
        for other in range(0, first, width):
            part = dot(rows, first, rows, other, width)
            add_multiple(rows, first, -part, rows, other, width)
        length = dot(rows, first, rows, first, width)
        factor = 1.0 / sqrt(length) if length > 1e-18 * before else 0.0
        for k in range(width):
            rows[first + k] *= factor


class FeatureMap:
    """From the contexts of a space to features; it holds those of the current context.

    Without a calibration, coordinates are taken as uniform in [0, 1]. There are 64 `cosines`, and
    none of projected contexts, if their number is not given.
    """

    def __init__(
        self, dimension: int, *, cosines: int = -1, calibration: Calibration | None = None
    ) -> None:
        is_projected = dimension > MOST_INPUTS
        self.dimension, self.is_projected = dimension, is_projected
        self.inputs = DIRECTIONS if is_projected else dimension
        if cosines < 0:
            cosines = 0 if is_projected else 64
        self.cosines = cosines if dimension > 0 else 0
        self.size = INPUTS + self.inputs + self.cosines
        self.width = self.size + 3 & -4
        self.version = 0  # of the current features
        self._divide_block()
        self._draw()
        for k in range(self.dimension):
            self.means[k], self.scales[k] = 0.5, ONE * sqrt(12.0)
        if calibration is not None:
            self._calibrate(calibration)
        self._weigh()
        parts = (dimension, self.cosines, calibration and tuple(calibration))
        digest = blake2b(repr(parts).encode(), digest_size=7).digest()
        self.fingerprint = int.from_bytes(digest)  # maps that differ make other features

    def _divide_block(self) -> None:
        """Make the block of all arrays; that of the scratch is for renewals."""
        size, width = self.dimension + 7 & -8, self.width
        self.points = self.inputs + 7 & -8  # room for the inputs of a cosine
        rows, cosines = self.inputs if self.is_projected else 0, self.cosines
        lengths = [size, size, size, size, width, width, width, width, width, width * width]
        lengths += [self.inputs, width // 4, size // 4, self.points // 4]
        lengths += [cosines * self.points // 4, (cosines + 1) // 2, rows * size // 8]
        firsts = [sum(lengths[:k]) for k in range(len(lengths))]
        self.block = block(8 * sum(lengths) + 8)
        self.context = doubles(self.block, firsts[0], size)
        self.arriving = doubles(self.block, firsts[1], size)
        self.means = doubles(self.block, firsts[2], size)
        self.scales = doubles(self.block, firsts[3], size)
        self.point = doubles(self.block, firsts[4], width)  # the features, as floats
        self.prior = doubles(self.block, firsts[5], width)
        self.inverse = doubles(self.block, firsts[6], width)
        self.source = doubles(self.block, firsts[7], width)
        self.target = doubles(self.block, firsts[8], width)
        self.factor = doubles(self.block, firsts[9], width * width)
        self.spreads = doubles(self.block, firsts[10], self.inputs)
        self.phi = shorts(self.block, firsts[11], width)
        self.coordinates = shorts(self.block, firsts[12], size)  # standardised
        self.input = shorts(self.block, firsts[13], self.points)
        self.directions = shorts(self.block, firsts[14], cosines * self.points)  # of cosines
        self.phases = halves(self.block, firsts[15], cosines)
        self.projection = octets(self.block, firsts[16], rows * size)
        self.table = shorts(COSINES, 0, TURN)

    def _draw(self) -> None:
        """Draw directions, in 2^-13 of a turn per unit of an input, and phases of cosines."""
        draws = _Draws(1)
        scale = round(8192 / (2 * math.pi * LENGTH * math.sqrt(max(1, self.inputs))))
        for j in range(self.cosines):
            for k in range(self.inputs):
                self.directions[j * self.points + k] = draws.normal() * scale >> 16
            self.phases[j] = draws.bits(25)

    def _calibrate(self, calibration: Calibration) -> None:
        scales = _scales_of(calibration)
        size = self.dimension + 7 & -8
        for k in range(self.dimension):
            self.means[k], self.scales[k] = scales[k]
        for j in range(self.inputs if self.is_projected else 0):
            self.spreads[j] = ONE / max(ONE, calibration.spreads[j])
            for k in range(self.dimension):
                self.projection[j * size + k] = calibration.directions[j][k]

    def _weigh(self) -> None:
        """Set the prior precisions, per unit of features as integers."""
        for k in range(self.size):
            self.prior[k] = 4.0 * self.inputs * ONE * ONE
            if k >= INPUTS + self.inputs:
                self.prior[k] = 2.0 * self.cosines * CUT * CUT
            elif k < INPUTS:
                self.prior[k] = PRIOR * ONE * ONE
        self.phi[0], self.point[0] = ONE, float(ONE)

    def read(self, context: tuple[Any, ...]) -> None:
        """Take a context as the current one."""
        for k in range(self.dimension):
            self.arriving[k] = float(context[k])
        self.take(self.arriving, 0)

    def take(self, coordinates: memoryview[float], first: int) -> None:
        """Take the context at `first` in an array as the current one; nothing changes if it is."""
        is_same = self.version > 0
        for k in range(self.dimension):
            if self.context[k] != coordinates[first + k]:
                is_same = False
                self.context[k] = coordinates[first + k]
        if is_same:
            return
        self.version += 1
        for k in range(self.dimension):
            self.coordinates[k] = cut((self.context[k] - self.means[k]) * self.scales[k])
        if self.is_projected:
            self._project()
        else:
            for k in range(self.dimension):
                self.input[k] = self.coordinates[k]
        for k in range(self.inputs):
            self.phi[INPUTS + k] = self.input[k]
        self._turn()
        for k in range(INPUTS, self.size):
            self.point[k] = self.phi[k]

    def _project(self) -> None:
        size = self.dimension + 7 & -8
        for j in range(self.inputs):
            total = 0
            for k in range(size):
                total += self.projection[j * size + k] * self.coordinates[k]
            self.input[j] = cut(total * self.spreads[j])

    def _turn(self) -> None:
        """Work out the cosines by phases in integers."""
        points, first = self.points, INPUTS + self.inputs
        directions, point = self.directions, self.input
        for j in range(self.cosines):
            turn = self.phases[j]
            for k in range(points):
                turn += directions[j * points + k] * point[k]
            self.phi[first + j] = self.table[turn >> PHASE_BITS & TURN - 1]

    def features(self) -> list[int]:
        """Return the current features."""
        return [self.phi[k] for k in range(self.size)]


class LinearBelief:
    """What the labels of each function of a site say of its accuracy at a context.

    `unit` is the gain of a correct answer. Sums of 64 bits have room for `most` labels of a
    function, 2^29 if the unit is the largest, 2^35 if it is 1; later ones are ignored.
    """

    def __init__(self, features: FeatureMap, functions: int, unit: int = 1) -> None:
        self.features, self.functions, self.unit = features, functions, unit
        self.size, self.width = features.size, features.width
        self.most = ((1 << 63) - 1) // (CUT * max(CUT, unit))
        self.a0 = self.a1 = self.a2 = self.a3 = 0.0
        width = self.width
        triangle = width * (width // 2 + 2)  # rows are as long as a multiple of 4
        self.labelled = HEAD  # where the sums b begin, then those since the mark
        self.moves = self.labelled + width
        self.products = self.moves + width
        self.roots = self.products + triangle  # G
        self.marks = self.roots + triangle  # weights at the mark, then those now
        self.weighs = self.marks + width // 2
        self.stride = self.weighs + width // 2
        self.block = block(8 * functions * self.stride + 8)
        self.numbers = integers(self.block, 0, functions * self.stride)
        self.reals = doubles(self.block, 0, functions * self.stride)
        self.words = halves(self.block, 0, 2 * functions * self.stride)
        for function in range(functions):
            self.forget(function)

    # -- decisions -----------------------------------------------------------------------------

    def mean(self, function: int) -> float:
        """Return the expected accuracy of a function at the features; not cut."""
        base = function * self.stride
        if self.numbers[base + HAS_MOVED] > 0:
            self._move(base)
        return 0.5 + self._product(2 * (base + self.weighs)) * WEIGHT

    def variance(self, function: int) -> float:
        """Return the variance of the expected accuracy, by the labels up to the last mark."""
        roots, point = self.reals, self.features.point
        first = function * self.stride + self.roots
        variance = 0.0
        for i in range(self.size):
            width = i + 4 & -4
            part = dot(roots, first, point, 0, width)
            variance += part * part
            first += width
        return variance

    def _product(self, first: int) -> int:
        """Return the sum of products of features and the weights from the half `first` on."""
        words, phi = self.words, self.features.phi
        total = 0
        for k in range(self.size):
            weight = words[first + k]
            total += weight * phi[k]
        return total

    # -- labels --------------------------------------------------------------------------------

    def learn(self, function: int, gain: int, variance: float) -> None:
        """Add a label at the current features, those of its decision; `variance` is that there."""
        base = function * self.stride
        numbers, phi = self.numbers, self.features.phi
        if numbers[base + LABELS] >= self.most:
            return
        worth = 2 * gain - self.unit
        error = worth / (2.0 * self.unit) - self._product(2 * (base + self.marks)) * WEIGHT
        step = nearest(16384.0 * error / (1.0 + 4.0 * variance))
        step = step if -MOST_STEP < step < MOST_STEP else MOST_STEP if step > 0 else -MOST_STEP
        for k in range(self.size):
            numbers[base + self.moves + k] += step * phi[k]
        self._add(base, worth)
        numbers[base + HAS_MOVED] = 1
        numbers[base + NEWS] += nearest(4096.0 * variance)
        is_due = numbers[base + LABELS] >= numbers[base + DUE]
        if is_due or numbers[base + NEWS] > MOST_NEWS:
            self.renew(function)

    def _add(self, base: int, worth: int) -> None:
        """Add the current features to the sums."""
        numbers, phi = self.numbers, self.features.phi
        first = base + self.products
        for i in range(self.size):
            value = phi[i]
            numbers[base + self.labelled + i] += value * worth
            left = i & -4
            for j in range(left, self.width):
                numbers[first + j - left] += value * phi[j]
            first += self.width - left
        numbers[base + LABELS] += 1

    # -- from sums to weights ------------------------------------------------------------------

    def renew(self, function: int) -> None:
        """Work out G and the weights from the sums: a mark."""
        base = function * self.stride
        numbers, words, source = self.numbers, self.words, self.features.source
        self._factorise(base)
        self._invert(base)
        pull = 34359738368.0 / self.unit  # 2 * 2^34
        for k in range(self.size):
            source[k] = numbers[base + self.labelled + k] * pull
        self._solve(base)
        for k in range(self.size):
            numbers[base + self.moves + k] = 0
            words[2 * (base + self.marks) + k] = nearest(self.features.target[k])
            words[2 * (base + self.weighs) + k] = words[2 * (base + self.marks) + k]
        labels = numbers[base + LABELS]
        numbers[base + DUE] = labels + (labels // 2 if labels > 1 else 1)
        numbers[base + NEWS] = numbers[base + HAS_MOVED] = 0
        numbers[base + RENEWALS] += 1

    def _factorise(self, base: int) -> None:
        """Set `factor` to L' by rows without the diagonal, whose inverse goes to `inverse`."""
        factor, inverse, prior = self.features.factor, self.features.inverse, self.features.prior
        numbers, at, width = self.numbers, base + self.products, self.width
        for i in range(self.size):
            left = i & -4
            first = i * width + left
            for j in range(width - left):
                factor[first + j] = 4.0 * numbers[at + j]
            at += width - left
            for k in range(0, i, 4):
                self._take_factors(k, i)
                a0, a1, a2, a3 = self.a0, self.a1, self.a2, self.a3
                subtract(factor, first, k * width + left, width, a0, a1, a2, a3, width - left)
            pivot = factor[i * width + i] + prior[i]
            # It is at least the prior, up to rounding.
            if pivot < 0.5 * prior[i]:
                pivot = prior[i]
                numbers[base + REPAIRS] += 1
            inverse[i] = 1.0 / sqrt(pivot)
            for j in range(i + 1, width):
                factor[i * width + j] *= inverse[i]

    def _take_factors(self, k: int, i: int) -> None:
        """Take what is above the diagonal in column `i`, in the four rows from `k` on."""
        factor, first, width = self.features.factor, k * self.width + i, self.width
        self.a0 = factor[first]
        self.a1 = factor[first + width] if k + 1 < i else 0.0
        self.a2 = factor[first + 2 * width] if k + 2 < i else 0.0
        self.a3 = factor[first + 3 * width] if k + 3 < i else 0.0

    def _invert(self, base: int) -> None:
        """Set G to the inverse of L."""
        inverse, roots = self.features.inverse, self.reals
        start = first = base + self.roots
        for i in range(self.size):
            width = i + 4 & -4
            for j in range(width):
                roots[first + j] = 0.0
            other = start
            for k in range(0, i, 4):
                self._take_factors(k, i)
                a0, a1, a2, a3 = self.a0, self.a1, self.a2, self.a3
                subtract(roots, first, other, k + 4, a0, a1, a2, a3, k + 4)
                other += 4 * (k + 4)
            for j in range(i):
                roots[first + j] *= inverse[i]
            roots[first + i] = inverse[i]
            first += width

    def _solve(self, base: int) -> None:
        """Set `target` to G'G `source`."""
        roots, source, target = self.reals, self.features.source, self.features.target
        first = base + self.roots
        for k in range(self.width):
            target[k] = 0.0
        for i in range(self.size):
            width = i + 4 & -4
            part = dot(roots, first, source, 0, width)
            add_multiple(target, 0, part, roots, first, width)
            first += width

    def _move(self, base: int) -> None:
        """Move the weights by the labels since the mark."""
        words, source, target = self.words, self.features.source, self.features.target
        for k in range(self.size):
            source[k] = self.numbers[base + self.moves + k] * MOVE
        for k in range(self.size, self.width):
            source[k] = 0.0
        self._solve(base)
        for k in range(self.size):
            value = words[2 * (base + self.marks) + k] + target[k]
            words[2 * (base + self.weighs) + k] = nearest(value)
        self.numbers[base + HAS_MOVED] = 0

    # -- what is kept --------------------------------------------------------------------------

    def forget(self, function: int) -> None:
        """Return to the prior."""
        base = function * self.stride
        for k in range(self.stride):
            self.numbers[base + k] = 0
        self.numbers[base + MAP], self.numbers[base + UNIT] = self.features.fingerprint, self.unit
        first = base + self.roots
        for i in range(self.size):
            self.reals[first + i] = 1.0 / sqrt(self.features.prior[i])
            first += i + 4 & -4
        self.numbers[base + DUE] = 1

    def numbers_kept(self) -> int:
        """Return how many integers `state` has."""
        return self.stride

    def state(self, function: int) -> bytes:
        """Return all that is kept of a function, to continue with the same bits."""
        base = function * self.stride
        if self.numbers[base + HAS_MOVED] > 0:
            self._move(base)
        return bytes(memoryview(self.block)[8 * base : 8 * (base + self.stride)])

    def restore(self, function: int, state: bytes) -> None:
        """Continue from a state of the same features and unit."""
        head = memoryview(state)[:16].cast("q") if len(state) == 8 * self.stride else ()
        if list(head) != [self.features.fingerprint, self.unit]:
            raise DataError(
                "the state is that of other features or of another unit of gains; restore it with "
                "the same contexts, calibration and seed"
            )
        base = function * self.stride
        memoryview(self.block)[8 * base : 8 * (base + self.stride)] = state
