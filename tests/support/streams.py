"""Seeded logs of functions that are right at given rates, as the baselines get them."""

import itertools
from collections.abc import Sequence

import numpy as np

from covey.data.logs import EncodedLog


def log_of(
    said: object,
    labels: object,
    delays: object = None,
    *,
    at: object = None,
    contexts: object = (),
) -> EncodedLog:
    """Return functions x slots as a log; a delay of -1 hides the label."""
    return EncodedLog(
        contexts=np.array(contexts, np.float64).ravel().data,
        predictions=np.array(said, np.int32).data,
        labels=np.array(labels, np.int32).data,
        at=None if at is None else np.array(at, np.int32).data,
        delays=None if delays is None else np.array(delays, np.int64).data,
    )


def stream(
    rates: Sequence[float], slots: int, *, classes: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what functions said that are right at these rates, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, slots)
    other = (labels + rng.integers(1, classes, (len(rates), slots))) % classes
    said = np.where(rng.random((len(rates), slots)) < np.array(rates)[:, None], labels, other)
    return said, labels


def cut(log: EncodedLog, at: Sequence[int]) -> list[EncodedLog]:
    """Return `log` in pieces that end at these slots."""
    said, labels = np.asarray(log.predictions), np.asarray(log.labels)
    delays = None if log.delays is None else np.asarray(log.delays)
    bounds = [0, *at, len(labels)]
    return [
        log_of(said[:, i:j], labels[i:j], None if delays is None else delays[i:j])
        for i, j in itertools.pairwise(bounds)
    ]
