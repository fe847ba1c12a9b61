"""Change of accuracies over time: the kinds of `drift` of an environment."""

from collections.abc import Callable, Sequence

import numpy as np

from covey.simulation.environment import Environment, spread
from covey.types import Array


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


class AccuracyChange:
    """A change of the accuracies themselves, of some functions and in some contexts."""

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        drift = environment.drift
        assert drift is not None
        self._region = drift.region
        self._change = _CHANGES[drift.kind](environment, rng)

    def record(self, uses: Array) -> None:
        """Take note of how often each function was used, in all so far."""
        if isinstance(self._change, _Practice):
            self._change.uses = uses

    def apply(self, heights: Array, points: Array, first_slot: int) -> None:
        """Change accuracies (stream, function, slot) in place; slots must come in order."""
        before = heights.copy() if self._region else None
        self._change(heights, first_slot)
        if before is None:
            return
        inside = np.ones(points.shape[:2], bool)
        for coordinate, (low, high) in enumerate(self._region):
            inside &= (points[..., coordinate] >= low) & (points[..., coordinate] <= high)
        np.copyto(heights, before, where=~inside.T[:, None, :])


def changing(environment: Environment) -> Array:
    """Return the functions whose accuracies change, by their index."""
    assert environment.drift is not None
    names = environment.drift.learners or environment.names
    owners = np.repeat(np.arange(len(environment.names)), environment.counts)
    return np.flatnonzero(np.isin(owners, [environment.names.index(name) for name in names]))


class _Switches:
    """Periodic permutation of the functions' surfaces, in part or whole."""

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        assert environment.drift is not None
        self._every = environment.drift.every_slots
        # Two surfaces differ by at most the spread; this fraction of it is the severity.
        self._part = np.float32(environment.drift.severity / (spread(environment) or 1.0))
        self._rng = rng
        self._changing = changing(environment)
        self._order = self._first = np.arange(sum(environment.counts))
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
        cycle = self._changing[self._rng.permutation(len(self._changing))]
        order = self._order.copy()
        order[cycle] = self._order[np.roll(cycle, -1)]
        self._order = order


class _Recurrence(_Switches):
    """Two concepts in turn: the functions' own surfaces, and one permutation of them."""

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        super().__init__(environment, rng)
        super()._switch()
        self._second, self._order = self._order, self._first

    def _switch(self) -> None:
        self._order = self._second if self._epoch % 2 else self._first


class _SuddenChange:
    """One change of all accuracies by the same amount, after `every-slots` slots."""

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        assert environment.drift is not None
        self._drift = environment.drift
        self._changing = changing(environment)

    def __call__(self, heights: Array, first_slot: int) -> None:
        amounts = self._amounts(np.arange(first_slot - 1, first_slot - 1 + heights.shape[2]))
        raised = heights[:, self._changing] + amounts.astype(np.float32)
        heights[:, self._changing] = np.clip(raised, 0, 1)

    def _amounts(self, slots: Array) -> Array:
        """Return what is added after so many slots."""
        drift = self._drift
        sign = 1 if drift.kind == "rise" else -1
        return np.where(slots < drift.every_slots, 0.0, sign * drift.severity)


class _Improvement(_SuddenChange):
    """Accuracies that begin too low, and reach their surfaces after `every-slots` slots."""

    def _amounts(self, slots: Array) -> Array:
        drift = self._drift
        return -drift.severity * np.maximum(0.0, 1 - slots / drift.every_slots)


class _Practice:
    """Accuracies that begin too low, and reach their surfaces after `every-slots` uses."""

    def __init__(self, environment: Environment, rng: np.random.Generator) -> None:
        assert environment.drift is not None
        self._drift = environment.drift
        self._changing = changing(environment)
        self.uses = np.zeros(sum(environment.counts))

    def __call__(self, heights: Array, first_slot: int) -> None:
        left = np.maximum(0.0, 1 - self.uses[self._changing] / self._drift.every_slots)
        lowered = heights[:, self._changing] - (self._drift.severity * left)[:, None]
        heights[:, self._changing] = np.clip(lowered, 0, 1)


_CHANGES: dict[str, Callable[[Environment, np.random.Generator], Callable[[Array, int], None]]] = {
    "switch": _Switches,
    "recur": _Recurrence,
    "rise": _SuddenChange,
    "fall": _SuddenChange,
    "improve": _Improvement,
    "use": _Practice,
}
