"""Accuracies of functions over the contexts, and the random bits of every purpose."""

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from covey.simulation.environment import Environment, Surface
from covey.types import Array

Change = Callable[[Array, int], None]  # accuracies (stream, function, slot) from a slot on


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
        self._change = None if kind in (None, "gradual") else _CHANGES[kind](environment, rng)
        self._region = environment.drift.region if environment.drift else ()
        kept = [1.0 - environment.failing.get(name, 0.0) for name in environment.names]
        self._kept = np.repeat(kept, environment.counts).astype(np.float32)

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
            self._apply(self._change, heights, points, first_slot)
        for failing in np.flatnonzero(self._kept < 1):
            heights[:, failing] *= self._kept[failing]
        return heights

    def _apply(self, change: Change, heights: Array, points: Array, first_slot: int) -> None:
        """Change accuracies (stream, function, slot) in place, within the region of the drift."""
        before = heights.copy() if self._region else None
        change(heights, first_slot)
        if before is None:
            return
        inside = np.ones(points.shape[:2], bool)
        for coordinate, (low, high) in enumerate(self._region):
            inside &= (points[..., coordinate] >= low) & (points[..., coordinate] <= high)
        np.copyto(heights, before, where=~inside.T[:, None, :])

    def _measure(self, surface: Surface, points: Array, at: Sequence[Any], out: Array) -> None:
        """Write `high - L * distance ** alpha`, at least `low`, with the distance to the region.

        A distance to a set is 1-Lipschitz and `x ** alpha` is subadditive, so accuracies vary by at
        most L * distance ** alpha.
        """
        if surface.shape == "bumps":
            _to_point(points, at, out)
        else:
            toward = np.array(surface.toward) / math.hypot(*surface.toward)
            away = _outside(surface, points, at, toward)
            np.copyto(out, away, casting="same_kind")
        if self._alpha != 1:
            np.power(out, self._alpha, out=out)
        out *= -self._lipschitz
        out += surface.high
        np.clip(out, surface.low, surface.high, out=out)


def _to_point(points: Array, at: Sequence[Any], out: Array) -> None:
    # Subtract in float64: contexts may be closer together than float32 can resolve.
    np.subtract(points[0], at[0], out=out, casting="same_kind")
    if len(points) == 1:
        np.abs(out, out=out)
        return
    out *= out
    for coordinate, centre in zip(points[1:], at[1:], strict=True):
        out += (coordinate - centre) ** 2
    np.sqrt(out, out=out)


def _outside(surface: Surface, points: Array, at: Sequence[Any], toward: Array) -> Array:
    """Return the distance of points to a region with edges, whose direction has the length 1."""
    # From the edge, positive inside the region.
    depth: Array = np.zeros(())
    for direction, coordinate, edge in zip(toward, points, at, strict=True):
        depth = depth + direction * (coordinate - edge)
    if surface.shape == "steps":  # bands are the first half of each period
        period = 2 * surface.every
        place = depth / period
        place -= np.floor(place)
        depth = -period * (0.25 - np.abs(place - 0.75))
    outside: Array = np.maximum(-depth, 0)
    return outside


class Motion:
    """Linear motion of the functions' regions, reflected at the walls of the cube."""

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        drift = environment.drift
        assert drift is not None
        # A region that moves by s changes accuracies by at most L * s ** alpha.
        step = (drift.severity / environment.lipschitz) ** (1 / environment.alpha)
        directions = rng.normal(size=(sum(environment.counts), environment.dimension))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        self._speeds = directions * (step / drift.every_slots)
        self._speeds[~np.isin(np.arange(len(directions)), changing(environment))] = 0

    def moved(self, at: Sequence[float], function: int, first_slot: int, slots: int) -> Array:
        """Return the region of `function`: coordinate, slot."""
        elapsed = np.arange(first_slot - 1, first_slot - 1 + slots, dtype=np.float64)
        lines = np.array(at)[:, None] + self._speeds[function][:, None] * elapsed
        lines -= 2 * np.floor(lines / 2)
        folded: Array = 1 - np.abs(1 - lines)
        return folded


def changing(environment: Environment) -> Array:
    """Return the functions whose accuracies change, by their index."""
    assert environment.drift is not None
    names = environment.drift.learners or environment.names
    owners = np.repeat(np.arange(len(environment.names)), environment.counts)
    return np.flatnonzero(np.isin(owners, [environment.names.index(name) for name in names]))


class _Switches:
    """Periodic permutation of the functions' surfaces, in part or whole; or two in turn."""

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        assert environment.drift is not None
        self._every = environment.drift.every_slots
        self._is_recurring = environment.drift.kind == "recur"
        # Two surfaces differ by at most the spread; this fraction of it is the severity.
        self._part = np.float32(environment.drift.severity / (environment.spread or 1.0))
        self._rng = rng
        self._changing = changing(environment)
        self._order = self._before = np.arange(sum(environment.counts))
        self._epoch = 0

    def __call__(self, heights: Array, first_slot: int) -> None:
        first = first_slot - 1
        last = first + heights.shape[2] - 1
        for epoch in range(first // self._every, last // self._every + 1):
            while self._epoch < epoch:
                self._epoch += 1
                self._switch()
            start = max(0, epoch * self._every - first)
            own = heights[:, :, start : (epoch + 1) * self._every - first]
            own += self._part * (own[:, self._order] - own)

    def _switch(self) -> None:
        self._order, self._before = self._before.copy(), self._order
        if self._is_recurring and self._epoch > 1:
            return
        cycle = self._changing[self._rng.permutation(len(self._changing))]
        self._order[:] = self._before
        self._order[cycle] = self._before[np.roll(cycle, -1)]


class _CommonChange:
    """A change of all accuracies by the same amount.

    It comes after `every-slots` slots at once; functions that improve begin too low, and reach
    their surfaces after so many slots.
    """

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        assert environment.drift is not None
        self._drift = environment.drift
        self._changing = changing(environment)

    def __call__(self, heights: Array, first_slot: int) -> None:
        kind, severity, every = self._drift.kind, self._drift.severity, self._drift.every_slots
        slots = np.arange(first_slot - 1, first_slot - 1 + heights.shape[2])
        amounts = np.where(slots < every, 0.0, severity if kind == "rise" else -severity)
        if kind == "improve":
            amounts = -severity * np.maximum(0.0, 1 - slots / every)
        raised = heights[:, self._changing] + amounts.astype(np.float32)
        heights[:, self._changing] = np.clip(raised, 0, 1)


_CHANGES: dict[str, Callable[[Environment, np.random.Generator], Change]] = {
    **dict.fromkeys(("switch", "recur"), _Switches),
    **dict.fromkeys(("rise", "fall", "improve"), _CommonChange),
}
