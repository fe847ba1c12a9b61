# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Pending labels: how many there are, and how many of them can be expected to arrive.

A source of labels is the learner's own clients, or the peers whose instances it labelled. From time
to time the pending labels of a source are counted, and from then on those of them that arrive.
The share is that of the last such period, so it is too small rather than too large.
"""

from __future__ import annotations

from covey.kernel.cells import NEXT_TEST, PARENT
from covey.kernel.counters import SERVE, TRAIN, CellCounters

FIRST_PERIOD = 16  # instances; each period is as long as all before it
LONGEST_PERIOD = 4096
# What is counted of a source: instances so far, when the next period begins, the slot at which this
# one began, the labels pending then, those that have arrived, and both of the period before.
INSTANCES, DUE, SINCE_SLOT, POOL, CAME, LAST_POOL, LAST_CAME = range(7)
OF_PEERS = 7  # where that of peers begins


class PendingCounters(CellCounters):
    """Counts pending labels, and weighs them by the share that arrives."""

    def _tried(self, base: int, arm: int) -> int:
        if self.is_pending:
            return self.rows[base + self.labels + arm] + self.rows[base + self.underway + arm]
        return self.rows[base + self.labels + arm]

    def _expected(self, base: int, arm: int) -> int:
        """Return the labels of an arm, with the pending ones that can be expected to arrive."""
        own = self.rows[base + self.underway + arm]
        count = self.rows[base + self.labels + arm]
        if arm < self.functions:
            served = self.rows[base + self.underway_served + arm]
            own -= served
            count += self._arriving(OF_PEERS, served)
        return count + self._arriving(0, own)

    def _arriving(self, source: int, labels: int) -> int:
        pool = self.waits[source + LAST_POOL] + self.waits_there[source + LAST_POOL]
        came = self.waits[source + LAST_CAME] + self.waits_there[source + LAST_CAME]
        return labels * came // max(1, pool)

    def _begin_period(self, source: int, slot: int) -> None:
        """Count the pending labels of a source, if it is time to."""
        if self.waits[source + INSTANCES] < self.waits[source + DUE]:
            return
        length = min(LONGEST_PERIOD, max(FIRST_PERIOD, self.waits[source + INSTANCES]))
        self.waits[source + DUE] = self.waits[source + INSTANCES] + length
        self.waits[source + LAST_POOL] = self.waits[source + POOL]
        self.waits[source + LAST_CAME] = self.waits[source + CAME]
        self.waits[source + POOL] = self.pending_of[source // OF_PEERS]
        self.waits[source + CAME] = 0
        self.waits[source + SINCE_SLOT] = slot

    def _note_arrival(self, phase: int, slot: int) -> None:
        """Note the label of a decision made at `slot`."""
        source = OF_PEERS if phase == SERVE else 0
        # Only if it was pending when the period began.
        if phase != TRAIN and slot < self.waits[source + SINCE_SLOT]:
            self.waits[source + CAME] += 1

    def _expect(
        self,
        row: int,
        arm: int,
        phase: int,
        by: int,
    ) -> None:
        """Count a pending label; training labels of the asking learner do not count for the arm."""
        if not self.is_pending or phase == TRAIN:
            return
        self.pending_of[phase == SERVE] += by
        while row >= 0:
            base = row * self.stride
            self.rows[base + self.underway + arm] += by
            if self.weighs and phase == SERVE:
                self.rows[base + self.underway_served + arm] += by
            self._has_changed(row, arm)
            row = self.marks[2 * base + PARENT]

    def _release(self, row: int, arm: int, phase: int) -> None:
        """Remove a pending label; the arm can become underexplored again."""
        self._expect(row, arm, phase, -1)
        self.rows[row * self.stride + NEXT_TEST] = 0
