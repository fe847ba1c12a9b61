# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, infer_types=True
"""The least that compiled code can do: an empty pair of methods, and a minimal replay.

Compiled at run time with the directives of the kernel; `compiler.py` does it.
"""

import cython


@cython.final
@cython.cclass
class Pair:
    """The signatures of `Table.decide` and `Table.settle`, and nothing behind them."""

    def decide(self, context: tuple[float, ...], slot: cython.longlong) -> int:
        """Convert the arguments and return."""
        return 0

    def settle(
        self,
        decision: cython.longlong,
        is_right: cython.bint,
        context: tuple[float, ...],
        slot: cython.longlong,
    ) -> None:
        """Convert the arguments and return."""


def replay(
    contexts: cython.double[::1],
    predictions: cython.int[:, ::1],
    labels: cython.int[::1],
    counters: cython.longlong[:, :, :, ::1],
) -> None:
    """Per learner and slot: read, locate, look one prediction up, two increments.

    `counters` is learners x slices x functions x (labels, right). The function goes round, so that
    all counters are touched; nothing is decided, checked or written down.
    """
    learners = counters.shape[0]
    side = cython.cast(cython.double, counters.shape[1])
    functions = counters.shape[2]
    for t in range(labels.shape[0]):
        for i in range(learners):
            cell = cython.cast(cython.longlong, contexts[t] * side)
            function = (t + i) % functions
            counters[i, cell, function, 0] += 1
            counters[i, cell, function, 1] += predictions[function, t] == labels[t]


def touch(rows: cython.longlong[::1], counters: cython.longlong[:, :, ::1]) -> None:
    """Per learner and slot: four increments in the row of counters that is used.

    `rows` has the row of each slot, `counters` are learners x rows x integers of a row. Nothing is
    searched or decided: the least that memory allows.
    """
    last = counters.shape[2] - 1
    for t in range(rows.shape[0]):
        for i in range(counters.shape[0]):
            counters[i, rows[t], 3] += 1
            counters[i, rows[t], 4] += 1
            counters[i, rows[t], last // 2] += 1
            counters[i, rows[t], last] += 1
