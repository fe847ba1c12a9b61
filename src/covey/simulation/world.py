"""Worlds drawn from an environment: instances, answers, labels.

Every purpose has its own source of random bits, so a world is the same on every machine.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from covey import toml
from covey.errors import ConfigError, DataError, place_of
from covey.simulation.environment import Classes, Environment, check, check_horizon
from covey.simulation.surfaces import AccuracyField, Purpose, bits_for
from covey.types import WHOLE, Array, Loss


class EmbeddedSource:
    """Contexts of an arrival process, accuracies of surfaces, independent answers."""

    def __init__(self, environment: Environment, *, seed: int, horizon: int) -> None:
        self.accuracies = AccuracyField(environment, seed)
        streams = range(environment.drawn_streams)
        self._samplers = [_sampler(environment, seed, horizon, k) for k in streams]

    def draw(self, first_slot: int, slots: int) -> tuple[Array, Array, None]:
        """Return the next slots, as a `WorldChunk` has them: points, accuracy, right.

        Answers that are None are drawn independently, each right with its accuracy.
        """
        points = np.stack([draw(first_slot, slots) for draw in self._samplers], axis=1)
        return points, self.accuracies.measure(points, first_slot), None


_OWN_SLOTS = 1_024  # that a class of the user's draws at a time, whatever the chunks


class OwnSource:
    """The user's class or function; what it returns is checked."""

    def __init__(self, environment: Environment, seed: int) -> None:
        self._where = where = f"environment {environment.name!r}: {environment.entry}"
        rng = np.random.Generator(bits_for(seed, Purpose.OWN))
        assert environment.entry is not None
        entry = toml.imported(environment.entry, where=f"environment {environment.name!r}:")
        made = self._call(entry, rng=rng, **environment.options)
        self._draw = getattr(made, "draw", made)
        if not callable(self._draw):
            raise ConfigError(f"{where} returned {made!r}, which has no method draw")
        streams, functions = environment.drawn_streams, sum(environment.counts)
        # Name -> shape, and the axis of the streams.
        self._shapes = {
            "contexts": ((_OWN_SLOTS, streams, environment.dimension), 1),
            "accuracies": ((streams, functions, _OWN_SLOTS), 0),
            "answers": ((streams, functions, _OWN_SLOTS), 0),
        }
        self._left: list[Array] = []  # drawn, but not used yet; slots are the last axis
        self._slots = 0  # drawn

    def draw(self, first_slot: int, slots: int) -> tuple[Array, Array, Array | None]:
        blocks = [self._left] if self._left else []
        while self._slots < first_slot + slots - 1:
            blocks.append(self._block())
            self._slots += _OWN_SLOTS
        if len(set(map(len, blocks))) > 1:
            raise DataError(f"{self._where} gives answers for some slots only")
        whole = [np.concatenate(parts, axis=-1) for parts in zip(*blocks, strict=True)]
        self._left = [part[..., slots:] for part in whole]
        points, accuracy, *right = (part[..., :slots] for part in whole)
        points = np.ascontiguousarray(np.moveaxis(points, -1, 0))
        answers = right[0].astype(np.int32, order="C") if right else None
        return points, accuracy.astype(np.float32, order="C"), answers

    def _block(self) -> list[Array]:
        drawn = self._call(self._draw, self._slots + 1, _OWN_SLOTS)
        if not isinstance(drawn, tuple) or len(drawn) not in (2, 3):
            raise DataError(
                f"{self._where} drew {type(drawn).__name__}; it must return a tuple of contexts, "
                "accuracies and, if it draws them, answers"
            )
        points, *others = map(self._checked, drawn, self._shapes)
        return [np.moveaxis(points, 0, -1), *others]

    def _checked(self, values: Any, what: str) -> Array:
        """Return an array of numbers from 0 to 1; a single stream needs no axis."""
        try:
            array = np.array(values, np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{self._where} gives {what} that are not numbers") from None
        full, axis = self._shapes[what]
        short = full[:axis] + full[axis + 1 :] if full[axis] == 1 else full
        if array.shape not in (full, short):
            raise DataError(
                f"{self._where} gives {what} of shape {array.shape}; it must be {short}"
            )
        is_valid, wanted = (array >= 0) & (array <= 1), "lie from 0 to 1"
        if what == "answers":
            is_valid, wanted = (array == 0) | (array == 1), "be 0 or 1"
        if not is_valid.all():
            value = array[~is_valid][0]
            raise DataError(f"{self._where} gives {value} in {what}; they must {wanted}")
        return array.reshape(full)

    def _call(self, call: Any, *args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except Exception as error:
            raised = f"{type(error).__name__}: {error} ({place_of(error)})"
            raise ConfigError(f"{self._where} raised {raised}") from error


class Labelled(NamedTuple):
    """The classes of one stream of instances."""

    labels: Array  # slot -> class
    usual: Array  # slot -> the usual class at this context
    answers: Array  # stream, function, slot -> class that the function answers


class WorldChunk(NamedTuple):
    """Consecutive slots of an environment."""

    first_slot: int
    points: Array  # slot, stream, dimension -> coordinate in [0, 1]
    accuracy: Array  # stream, function, slot -> probability of a right answer, float32
    # stream, function, slot -> 1 where the answer is right, with a loss its gain; int32
    right: Array
    delays: Array | None  # slot -> slots until the label arrives; None: immediately
    shown: Array | None  # slot, learner -> 0 where the learner never gets the label
    labelled: Labelled | None = None  # None: all labels are of one class
    columns: Mapping[str, Array] = {}  # name -> slot -> a number in [0, 1)


class World:
    """The instances of an environment, drawn in chunks.

    >>> from covey.simulation.environment import Environment
    >>> world = World(Environment(name="calm", learners=2), seed=1, horizon=100)
    >>> chunk = world.draw(60)
    >>> chunk.points.shape, chunk.accuracy.shape, world.draw(40).first_slot
    ((60, 1, 1), (1, 4, 60), 61)
    """

    def __init__(self, environment: Environment, *, seed: int, horizon: int) -> None:
        check(environment)
        check_horizon(environment, horizon)
        self.environment = environment
        self.horizon = horizon
        self.slots = 0
        self._source = (
            EmbeddedSource(environment, seed=seed, horizon=horizon)
            if environment.is_embedded
            else OwnSource(environment, seed)
        )
        correlation = environment.process.correlation
        self._share = None if isinstance(correlation, str) else correlation
        make = partial(_Persistent, environment.dependence) if environment.dependence else _fresh
        self._uniforms: list[list[_Uniform | _Persistent]] = [
            [make(seed, stream, function) for function in range(sum(environment.counts))]
            for stream in range(environment.drawn_streams)
        ]
        self._mixing, self._delays, self._shown = (
            np.random.Generator(bits_for(seed, purpose))
            for purpose in (Purpose.MIXING, Purpose.DELAYS, Purpose.SHOWN)
        )
        classes, rng = environment.classes, np.random.Generator(bits_for(seed, Purpose.CLASSES))
        self._classes = None if classes is None else ClassSource(classes, rng)
        self._probabilities = np.array(environment.label_probabilities)
        self._columns = {
            name: np.random.Generator(bits_for(seed, Purpose.COLUMNS, place))
            for place, name in enumerate(sorted(environment.columns))
        }

    def draw(self, slots: int) -> WorldChunk:
        first_slot = self.slots + 1
        if self.slots + slots > self.horizon:
            raise ConfigError(
                f"slot {self.slots + slots} is beyond the horizon of {self.horizon} slots; create "
                "the world with a larger horizon"
            )
        points, accuracy, right = self._instances(first_slot, slots)
        if self._share is not None:
            points, accuracy, right = self._mixed(points, accuracy, right, share=self._share)
        self.slots += slots
        delays: Array | None = None
        shown: Array | None = None
        environment = self.environment
        if environment.delay_slots:
            least = environment.least_delay_slots
            delays = self._delays.random(slots) * (environment.delay_slots - least + 1)
            delays = least + delays.astype(np.int64)
        if (self._probabilities < 1).any():
            shown = self._shown.random((slots, len(environment.names)))
            shown = (shown < self._probabilities).astype(np.int8)
        labelled = None if self._classes is None else self._classes.draw(points, right)
        columns = {name: rng.random(slots) for name, rng in self._columns.items()}
        return WorldChunk(first_slot, points, accuracy, right, delays, shown, labelled, columns)

    def _instances(self, first_slot: int, slots: int) -> tuple[Array, Array, Array]:
        points, accuracy, right = self._source.draw(first_slot, slots)
        # From 2 to 4 a float32 is a multiple of 2**-22. So all accuracies become such multiples:
        # comparisons with 22 random bits are exact, and so are sums of losses, in any order.
        accuracy += 2
        loss = self.environment.loss
        if right is None and loss is not None:
            drawn = [[uniform.draw(slots) for uniform in uniforms] for uniforms in self._uniforms]
            right = draw_gains(loss, np.array(drawn, np.float64) - 2, accuracy - 2.0)
        elif right is None:
            right = np.empty(accuracy.shape, np.int32)
            for uniforms, heights, answers in zip(self._uniforms, accuracy, right, strict=True):
                for uniform, height, answer in zip(uniforms, heights, answers, strict=True):
                    np.less(uniform.draw(slots), height, out=answer, casting="unsafe")
        elif self.environment.dependence or loss is not None:
            key = "loss" if self.environment.dependence == 0 else "dependence"
            raise ConfigError(
                f"environment {self.environment.name!r}: {key} has no effect, as "
                f"{self.environment.entry} draws the answers; remove {key}"
            )
        accuracy -= 2
        return points, accuracy, right

    def _mixed(
        self, points: Array, accuracy: Array, right: Array, *, share: float
    ) -> tuple[Array, Array, Array]:
        """Replace a share of each learner's instances by the common one, the last stream."""
        streams = len(accuracy) - 1
        is_common = self._mixing.random((len(points), streams)) < share
        np.copyto(points[:, :-1], points[:, -1:], where=is_common[:, :, None])
        for block in (accuracy, right):
            for stream in range(streams):
                # Exact, as both are multiples of 2**-22, and much faster than `np.where`.
                block[stream] += is_common[:, stream] * (block[-1] - block[stream])
        return np.ascontiguousarray(points[:, :-1]), accuracy[:-1], right[:-1]


Sampler = Callable[[int, int], Array]  # first slot, slots -> contexts


def _sampler(environment: Environment, seed: int, horizon: int, stream: int) -> Sampler:
    rng = np.random.Generator(bits_for(seed, Purpose.POINTS, 0, stream))
    dimension = environment.dimension
    arrivals = environment.process.arrivals
    if arrivals == "worst":
        return _Lattice(horizon, dimension, rng).points
    level = environment.cube_level(horizon) if arrivals == "best" else 0
    # All streams share one cube.
    corner = np.random.Generator(bits_for(seed, Purpose.POINTS, 1)).random(dimension)
    return partial(_cube_points, rng, np.floor(corner * 2**level), 2.0**-level)


def _cube_points(
    rng: np.random.Generator, corner: Array, side: float, first_slot: int, slots: int
) -> Array:
    """Draw contexts uniformly from one dyadic cube; side 1 is the whole space."""
    points = rng.random((slots, len(corner)))
    if side < 1:
        points += corner
        points *= side
    return points


class _Lattice:
    """Contexts on a shuffled lattice of width T ** (-1 / d): no repetition within T slots."""

    def __init__(self, horizon: int, dimension: int, rng: np.random.Generator) -> None:
        self._gap = horizon ** (-1.0 / dimension)
        self._side = _root(horizon, dimension)
        self._margin = max(0.0, 1.0 - self._gap * (self._side - 1)) / 2
        self._dimension = dimension
        self._shuffle = _Shuffle(self._side**dimension, rng)

    def points(self, first_slot: int, slots: int) -> Array:
        number = self._shuffle.places(first_slot - 1, slots)
        points = np.empty((slots, self._dimension))
        for k in range(self._dimension - 1):
            number, points[:, k] = np.divmod(number, np.uint64(self._side))
        points[:, -1] = number
        points *= self._gap
        points += self._margin
        return np.minimum(points, 1.0, out=points)


def _root(number: int, degree: int) -> int:
    """Return the least whole number whose power is at least `number`."""
    root: int = round(number ** (1.0 / degree))
    return root if root**degree >= number else root + 1


class _Shuffle:
    """A permutation of the numbers below `size` without a table: a Feistel network.

    It permutes all numbers of the same bit length; results of `size` or more are permuted again.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        bits = max(2, (size - 1).bit_length())
        low, high = bits // 2, bits - bits // 2
        self._size = np.uint64(size)
        self._low = np.uint64(low)
        self._masks = [np.uint64(2**low - 1), np.uint64(2**high - 1)]
        self._factors = rng.integers(0, 2**63, 6, np.uint64) * np.uint64(2) + np.uint64(1)
        self._terms = rng.integers(0, 2**63, 6, np.uint64)

    def places(self, first: int, count: int) -> Array:
        numbers = self._permuted(np.arange(first, first + count, dtype=np.uint64))
        beyond = np.flatnonzero(numbers >= self._size)
        while len(beyond):
            numbers[beyond] = self._permuted(numbers[beyond])
            beyond = beyond[numbers[beyond] >= self._size]
        return numbers

    def _permuted(self, numbers: Array) -> Array:
        halves = [numbers & self._masks[0], numbers >> self._low]
        for k, (factor, term) in enumerate(zip(self._factors, self._terms, strict=True)):
            other = halves[1 - k % 2] * factor
            other += term
            other >>= np.uint64(36)
            other &= self._masks[k % 2]
            halves[k % 2] ^= other
        halves[1] <<= self._low
        halves[1] |= halves[0]
        return halves[1]


class _Uniform:
    """Uniform draws from the multiples of 2**-22 in [2, 3), two from each 64 bits."""

    def __init__(self, source: np.random.SFC64) -> None:
        self._source = source
        self._left = np.empty(0, np.uint32)

    def draw(self, slots: int) -> Array:
        words = self._source.random_raw((slots - len(self._left) + 1) // 2).view(np.uint32)
        bits = np.concatenate([self._left, words]) if len(self._left) else words
        self._left = bits[slots:].copy()
        bits = bits[:slots]
        bits >>= 10
        bits |= 0x40000000  # sign and exponent of a float32 in [2, 4)
        return bits.view(np.float32)


def _fresh(seed: int, stream: int, function: int) -> _Uniform:
    """Return what decides on the answers of a function: right where the draw is small enough."""
    return _Uniform(bits_for(seed, Purpose.ANSWERS, stream, function))


class _Persistent:
    """Such draws of which each is the one before with a certain probability.

    At a constant accuracy the answers are then a Markov chain with that correlation, and at any
    accuracies each answer is right with exactly its own.
    """

    def __init__(self, share: float, seed: int, stream: int, function: int) -> None:
        self._fresh = _fresh(seed, stream, function)
        self._keeping = _Uniform(bits_for(seed, Purpose.DEPENDENCE, stream, function))
        self._limit = np.float32(2 + share)
        self._latest = self._fresh.draw(1)

    def draw(self, slots: int) -> Array:
        drawn = np.concatenate([self._latest, self._fresh.draw(slots)])
        origin = np.arange(slots + 1)
        origin[1:][self._keeping.draw(slots) < self._limit] = 0
        drawn = drawn[np.maximum.accumulate(origin)]
        self._latest = drawn[-1:]
        return drawn[1:]


class ClassSource:
    """Draws the label of each instance, and which class a wrong function answers."""

    def __init__(self, classes: Classes, rng: np.random.Generator) -> None:
        self._classes = classes
        self._rng = rng

    def draw(self, points: Array, right: Array) -> Labelled:
        """Return the classes of instances at `points` (slot, stream, dimension)."""
        number, functions = self._classes.number, right.shape[1]
        usual = np.minimum(points[:, 0, 0] * number, number - 1).astype(np.int32)
        # A row per slot, so that chunks of any length give the same labels.
        drawn = self._rng.random((len(points), 2 + functions)).T
        others = 1 + (drawn[1:] * (number - 1)).astype(np.int32)  # distances to other classes
        labels = np.where(drawn[0] < self._classes.usual, usual, (usual + others[0]) % number)
        answers = np.where(right[0] == 1, labels, (labels + others[1:]) % number)
        return Labelled(labels, usual, answers[None])


def chances(classes: Classes, usual: Array, answers: Array) -> Array:
    rest = (1 - classes.usual) / (classes.number - 1)
    return np.where(answers == usual, classes.usual, rest)


def draw_gains(loss: Loss, uniform: Array, expected: Array) -> Array:
    """Return gains of numeric answers, in parts of `WHOLE`, with these expectations.

    The gain is uniform from 0 to twice the expectation, or so far below 1. The distance from the
    truth follows from it, and the loss of that distance is what a replay would record.
    """
    reach = 2 * np.minimum(expected, 1 - expected)
    gain = expected + reach * (0.5 - uniform)
    distance = np.clip(1 - gain, 0, 1) * loss.bound
    if loss.kind == "squared":
        distance = np.sqrt(distance)
    gains: Array = np.clip(loss.gains(distance), 0, WHOLE).astype(np.int32)
    return gains
