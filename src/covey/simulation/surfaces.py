"""Accuracies of functions over the contexts, and the random bits of every purpose."""

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from covey.simulation.drift import AccuracyChange, Motion
from covey.simulation.environment import Environment, Shape, Surface
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
    OWN = 7
    DEPENDENCE = 8
    CLASSES = 9
    COLUMNS = 10


def bits_for(seed: int, purpose: Purpose, *which: int) -> np.random.SFC64:
    """Return the bit generator for a purpose."""
    return np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(purpose, *which)))


def drawn_surfaces(environment: Environment, seed: int) -> list[Surface]:
    """Return the surface of every function, by learner: configured, or drawn."""
    if environment.surfaces is not None:
        return [surface for own in environment.surfaces for surface in own]
    rng = np.random.Generator(bits_for(seed, Purpose.SURFACES))
    dimension = environment.dimension
    middle = (environment.low + environment.high) / 2
    return [
        Surface(
            shape=environment.shape,
            at=tuple(rng.random(dimension).tolist()),
            toward=tuple(rng.normal(size=dimension).tolist()),
            every=float(rng.uniform(0.3, 1.0)),
            high=float(rng.uniform(middle, environment.high)),
            low=environment.low,
        )
        for _ in range(sum(environment.counts))
    ]


class AccuracyField:
    """The accuracies of all functions at given contexts and slots."""

    def __init__(self, environment: Environment, seed: int) -> None:
        rng = np.random.Generator(bits_for(seed, Purpose.DRIFT))
        self._surfaces = drawn_surfaces(environment, seed)
        self._lipschitz, self._alpha = environment.lipschitz, environment.alpha
        kind = None if environment.drift is None else environment.drift.kind
        self._motion = Motion(environment, rng) if kind == "gradual" else None
        self._change = AccuracyChange(environment, rng) if kind not in (None, "gradual") else None
        kept = [1.0 - environment.failing.get(name, 0.0) for name in environment.names]
        self._kept = np.repeat(kept, environment.counts).astype(np.float32)

    def record(self, uses: Array) -> None:
        """Take note of how often each function was used, in all so far."""
        if self._change is not None:
            self._change.record(uses)

    def measure(self, points: Array, first_slot: int) -> Array:
        """Return accuracies (stream, function, slot) at `points` (slot, stream, dimension).

        Slots must be requested in order: switches are not undone.
        """
        slots, streams, _ = points.shape
        heights = np.empty((streams, len(self._surfaces), slots), np.float32)
        for k, surface in enumerate(self._surfaces):
            at: Any = surface.at  # or per slot
            if self._motion is not None:
                at = self._motion.moved(at, k, first_slot, slots)
            for stream in range(streams):
                self._measure(surface, points[:, stream].T, at, heights[stream, k])
        if self._change is not None:
            self._change.apply(heights, points, first_slot)
        for failing in np.flatnonzero(self._kept < 1):
            heights[:, failing] *= self._kept[failing]
        return heights

    def _measure(self, surface: Surface, points: Array, at: Sequence[Any], out: Array) -> None:
        """Write `high - L * distance ** alpha`, at least `low`, with the distance to the region.

        A distance to a set is 1-Lipschitz and `x ** alpha` is subadditive, so accuracies vary by at
        most L * distance ** alpha.
        """
        _DISTANCES[surface.shape](surface, points, at, out)
        if self._alpha != 1:
            np.power(out, self._alpha, out=out)
        out *= -self._lipschitz
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
    np.copyto(out, _outside_half(_depth(surface, points, at)), casting="same_kind")


def _to_bands(surface: Surface, points: Array, at: Sequence[Any], out: Array) -> None:
    depth = _depth(surface, points, at)
    np.copyto(out, _outside_bands(depth, surface.every), casting="same_kind")


def _outside_half(depth: Array) -> Array:
    return np.maximum(-depth, 0)


def _outside_bands(depth: Array, every: Any) -> Array:
    period = 2 * every
    place = depth / period
    place -= np.floor(place)  # bands are the first half of each period
    outside: Array = np.maximum(period * (0.25 - np.abs(place - 0.75)), 0)
    return outside


_DISTANCES = {"bumps": _to_point, "ramps": _to_half, "steps": _to_bands}


def _depth(surface: Surface, points: Array, at: Sequence[Any]) -> Array:
    """Return the signed distance of each point from the edge, positive inside the region."""
    length = math.hypot(*surface.toward)
    depth = np.zeros(points.shape[1])
    for coordinate, edge, slope in zip(points, at, surface.toward, strict=True):
        depth += (slope / length) * (coordinate - edge)
    return depth


def distances(shape: Shape, points: Array, at: Array, toward: Array, every: Array) -> Array:
    """Return the distance of points (..., coordinate) to the region of as many surfaces.

    Directions `toward` have the length 1.
    """
    steps = points - at
    if shape == "bumps":
        away: Array = (
            np.abs(steps[..., 0]) if steps.shape[-1] == 1 else np.linalg.norm(steps, axis=-1)
        )
        return away
    depth: Array = (steps * toward).sum(axis=-1)
    return _outside_half(depth) if shape == "ramps" else _outside_bands(depth, every)
