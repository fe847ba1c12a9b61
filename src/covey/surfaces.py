"""True accuracies of simulated functions, per context and slot."""

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from covey.environments import Environment, Surface, spread
from covey.types import Array


class Purpose(enum.IntEnum):
    """Each purpose has an independent random stream."""

    SURFACES = 0
    DRIFT = 1
    DELAYS = 2
    SHOWN = 3
    MIXING = 4
    POINTS = 5
    ANSWERS = 6


def bits_for(seed: int, purpose: Purpose, *which: int) -> np.random.SFC64:
    """Return the bit generator for a purpose."""
    return np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(purpose, *which)))


def drawn_surfaces(environment: Environment, seed: int) -> list[Surface]:
    """Return the surface of every function, by learner: configured, or drawn."""
    if environment.surfaces is not None:
        return [surface for own in environment.surfaces for surface in own]
    rng = np.random.Generator(bits_for(seed, Purpose.SURFACES))
    return [_drawn(environment, rng) for _ in range(sum(environment.counts))]


def accuracy_at(
    surface: Surface, points: Array, *, lipschitz: float = 1.0, alpha: float = 1.0
) -> Array:
    """Return the accuracy of a function with this surface at `points` (point, dimension).

    >>> bump = Surface(at=(0.5,), high=0.9, low=0.6)
    >>> accuracy_at(bump, np.array([[0.5], [0.75], [1.0]]), lipschitz=0.8).round(2).tolist()
    [0.9, 0.7, 0.6]
    """
    out = np.empty(len(points), np.float32)
    _measure(surface, np.asarray(points).T, surface.at, (lipschitz, alpha), out=out)
    return out.astype(np.float64)


def _drawn(environment: Environment, rng: np.random.Generator) -> Surface:
    dimension = environment.dimension
    middle = (environment.low + environment.high) / 2
    return Surface(
        shape=environment.shape,
        at=tuple(rng.random(dimension).tolist()),
        toward=tuple(rng.normal(size=dimension).tolist()),
        every=float(rng.uniform(0.3, 1.0)),
        high=float(rng.uniform(middle, environment.high)),
        low=environment.low,
    )


class Terrain:
    """The accuracies of all functions at given contexts and slots."""

    def __init__(self, environment: Environment, seed: int) -> None:
        rng = np.random.Generator(bits_for(seed, Purpose.DRIFT))
        self._surfaces = drawn_surfaces(environment, seed)
        self._smoothness = (environment.lipschitz, environment.alpha)
        kind = None if environment.drift is None else environment.drift.kind
        self._switches = _Switches(environment, rng) if kind == "switch" else None
        self._motion = _Motion(environment, rng) if kind == "gradual" else None
        kept = [1.0 - environment.failing.get(name, 0.0) for name in environment.names]
        self._kept = np.repeat(kept, environment.counts).astype(np.float32)

    def measure(self, points: Array, first_slot: int) -> Array:
        """Return accuracies (stream, function, slot) at `points` (slot, stream, dimension).

        Slots must be requested in order: switches are not undone.
        """
        slots, streams, _ = points.shape
        heights = np.empty((streams, len(self._surfaces), slots), np.float32)
        for k, surface in enumerate(self._surfaces):
            at: Sequence[Any] = surface.at
            if self._motion is not None:
                at = self._motion.moved(at, k, first_slot, slots)
            for stream in range(streams):
                out = heights[stream, k]
                _measure(surface, points[:, stream].T, at, self._smoothness, out=out)
        if self._switches is not None:
            self._switches.mix(heights, first_slot)
        for failing in np.flatnonzero(self._kept < 1):
            heights[:, failing] *= self._kept[failing]
        return heights


def _measure(
    surface: Surface,
    points: Array,
    at: Sequence[Any],
    smoothness: tuple[float, float],
    *,
    out: Array,
) -> None:
    """Write `high - L * distance ** alpha`, at least `low`, with the distance to the region.

    A distance to a set is 1-Lipschitz and `x ** alpha` is subadditive, so accuracies vary by at
    most L * distance ** alpha.
    """
    lipschitz, alpha = smoothness
    _DISTANCES[surface.shape](surface, points, at, out)
    if alpha != 1:
        np.power(out, alpha, out=out)
    out *= -lipschitz
    out += surface.high
    np.clip(out, surface.low, surface.high, out=out)


def _to_point(surface: Surface, points: Array, at: Sequence[Any], out: Array) -> None:
    # Subtract in float64: contexts may be closer together than float32 can resolve.
    np.subtract(points[0], at[0], out=out, casting="same_kind")
    if len(points) == 1:
        np.abs(out, out=out)
        return
    out *= out
    for coordinate, centre in zip(points[1:], at[1:], strict=True):
        out += (coordinate - centre) ** 2
    np.sqrt(out, out=out)


def _to_half(surface: Surface, points: Array, at: Sequence[Any], out: Array) -> None:
    np.maximum(-_depth(surface, points, at), 0, out=out, casting="same_kind")


def _to_bands(surface: Surface, points: Array, at: Sequence[Any], out: Array) -> None:
    period = 2 * surface.every
    place = _depth(surface, points, at) / period
    place -= np.floor(place)  # bands are the first half of each period
    np.maximum(period * (0.25 - np.abs(place - 0.75)), 0, out=out, casting="same_kind")


_DISTANCES = {"bumps": _to_point, "ramps": _to_half, "steps": _to_bands}


def _depth(surface: Surface, points: Array, at: Sequence[Any]) -> Array:
    """Return the signed distance of each point from the edge, positive inside the region."""
    length = math.hypot(*surface.toward)
    depth = np.zeros(points.shape[1])
    for coordinate, edge, slope in zip(points, at, surface.toward, strict=True):
        depth += (slope / length) * (coordinate - edge)
    return depth


class _Switches:
    """Periodic permutation of the functions' surfaces, in part or whole."""

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        assert environment.drift is not None
        self._every = environment.drift.every_slots
        # Two surfaces differ by at most the spread; this fraction of it is the severity.
        self._part = np.float32(environment.drift.severity / (spread(environment) or 1.0))
        self._rng = rng
        self._order = np.arange(sum(environment.counts))
        self._epoch = 0

    def mix(self, heights: Array, first_slot: int) -> None:
        """Mix the accuracies of all functions in place, per slot."""
        slots = heights.shape[2]
        first = 0
        while first < slots:
            epoch = (first_slot - 1 + first) // self._every
            end = min(slots, (epoch + 1) * self._every - first_slot + 1)
            self._advance(epoch)
            own = heights[:, :, first:end]
            own += self._part * (own[:, self._order] - own)
            first = end

    def _advance(self, epoch: int) -> None:
        while self._epoch < epoch:
            cycle = self._rng.permutation(len(self._order))
            order = self._order.copy()
            order[cycle] = self._order[np.roll(cycle, -1)]
            self._order = order
            self._epoch += 1


class _Motion:
    """Linear motion of the functions' regions, reflected at the walls of the cube."""

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        drift = environment.drift
        assert drift is not None
        # A region that moves by s changes accuracies by at most L * s ** alpha.
        step = (drift.severity / environment.lipschitz) ** (1 / environment.alpha)
        directions = rng.normal(size=(sum(environment.counts), environment.dimension))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        self._speeds = directions * (step / drift.every_slots)

    def moved(self, at: Sequence[float], function: int, first_slot: int, slots: int) -> list[Array]:
        """Return the coordinates of the region of `function`, per slot."""
        elapsed = np.arange(first_slot - 1, first_slot - 1 + slots, dtype=np.float64)
        return [
            _reflected(start + speed * elapsed)
            for start, speed in zip(at, self._speeds[function], strict=True)
        ]


def _reflected(line: Array) -> Array:
    """Return a line folded into [0, 1] by reflection."""
    line -= 2 * np.floor(line / 2)
    folded: Array = 1 - np.abs(1 - line)
    return folded
