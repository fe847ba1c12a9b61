"""The contexts of the experiments, each a number from 0 to 1 per slot.

A range is that of the window itself: the paper scales its contexts, and does not say by what.
"""

from collections.abc import Callable

import numpy as np

from covey.papers.scikit import Floats
from covey.papers.streams import Stream


def previous_label(stream: Stream, start: int, slots: int) -> Floats:
    """Return the label of the slot before; the first slot has none, and 0 stands for it."""
    labels = stream.labels_of(start, slots)
    return np.concatenate([[0.0], labels[:-1].astype(np.float64)])


def source_bytes(stream: Stream, start: int, slots: int) -> Floats:
    """Return how much the source of a connection sent, as it is."""
    return _ranged(stream.column("src_bytes", start, slots))


def log_source_bytes(stream: Stream, start: int, slots: int) -> Floats:
    """Return the logarithm of what the source sent, one byte more so that none has a place."""
    return _ranged(np.log1p(stream.column("src_bytes", start, slots)))


def time(stream: Stream, start: int, slots: int) -> Floats:
    """Return how much of the window has passed, this slot included."""
    stream.labels_of(start, slots)
    return np.arange(1, slots + 1) / slots


def hour(stream: Stream, start: int, slots: int) -> Floats:
    """Return the hour of the day, which the Electricity stream holds from 0 to 1."""
    return stream.column("hour", start, slots)


# By the paper's names; the second reading of A2 spreads what the first has in one corner.
CONTEXTS: dict[str, Callable[[Stream, int, int], Floats]] = {
    "A1": previous_label,
    "A2": source_bytes,
    "A2 log": log_source_bytes,
    "A3": time,
    "hour": hour,
}


def _ranged(values: Floats) -> Floats:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros(len(values))
