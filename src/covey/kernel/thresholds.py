# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Thresholds that grow with the slot, and the slots at which they change."""

from __future__ import annotations

from array import array

try:
    import cython
except ModuleNotFoundError:
    from types import SimpleNamespace

    cython = SimpleNamespace(compiled=False)

if cython.compiled:
    from cython.cimports.libc.math import log
else:
    from math import log

FAR = 1 << 60


class Clock:
    """The floors of the thresholds D(t) = scale * t**power * ln t of the three tests.

    A counter is at most D(t) if and only if it is at most the floor of D(t). The floors change
    rarely; the next slot at which one changes is found by exponential and binary search.
    """

    def __init__(self, scales: list[float], powers: list[float]) -> None:
        self.scales = array("d", scales)
        self.powers = array("d", powers)
        self.floors = array("q", [0] * len(scales))
        self.now = 0  # the latest slot that it moved to
        self.start = self.end = 0
        self.stride = 1
        self.before = self.rounded = 0  # slots in (before, rounded] use the value of `rounded`
        self.logarithm = 0.0  # of `rounded`
        self.alarms = 0  # of all tables with this clock

    def at(self, slot: int) -> tuple[int, ...]:
        """Return the floors of the thresholds at `slot`."""
        self.move(slot)
        return tuple(self.floors)

    def move(self, slot: int) -> None:
        self.now = slot
        if slot >= self.end or slot < self.start:
            self._look(slot)

    def round_up(self, slot: int) -> None:
        """Round `slot` up to five binary digits, so that its logarithm rarely changes."""
        if self.before < slot <= self.rounded:
            return
        step = 1
        while slot // step >= 32:
            step = 2 * step
        self.rounded = (slot + step - 1) // step * step
        self.before = self.rounded - step
        self.logarithm = log(self.rounded)

    def _look(self, slot: int) -> None:
        low = slot
        for which in range(3):
            self.floors[which] = self._floor(which, slot)
        high = slot + max(1, self.stride // 2)
        while not self._has_changed(high) and high < FAR:
            low = high
            high = slot + 2 * (high - slot)
        while high - low > 1:
            middle = (low + high) // 2
            if self._has_changed(middle):
                high = middle
            else:
                low = middle
        self.stride = high - slot
        self.start = slot
        self.end = high

    def _has_changed(self, slot: int) -> bool:
        return (
            self._floor(0, slot) != self.floors[0]
            or self._floor(1, slot) != self.floors[1]
            or self._floor(2, slot) != self.floors[2]
        )

    def _floor(self, which: int, slot: int) -> int:
        value = self.scales[which] * slot ** self.powers[which] * log(slot)
        if value > FAR:
            return FAR
        return int(value)
