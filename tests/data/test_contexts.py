"""Contexts of a log: in one piece, in chunks or one record at a time, they are the same."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey.data import contexts
from support.coordinates import CLASSES, HOUR, LINEAR, LOG, RANK, histories


def whole_log(rows):
    """Draw a log that has something for every scale."""
    generator = np.random.default_rng(rows)
    return {
        "share": generator.random(rows),
        "bytes": generator.integers(0, 1_000_000, rows),
        "temp": [f"{value:.2f}" for value in generator.uniform(-10, 40, rows)],
        "amount": generator.normal(5, 3, rows),
        "time": np.datetime64("2024-05-01") + generator.integers(0, 10**9, rows).astype("m8[us]"),
    }


EVERY_SCALE = ["share", LOG, LINEAR, RANK, HOUR, CLASSES, {"scale": "slot", "horizon": 30}]


@given(history=histories(), cuts=st.sets(st.integers(0, 30)))
def test_chunks_give_the_same_contexts_as_the_whole_log(history, cuts):
    labels, told = history
    log = whole_log(len(labels))
    reader = contexts.parse(EVERY_SCALE)
    edges = [0, *sorted(cut for cut in cuts if cut < len(labels)), len(labels)]
    chunks = [
        reader.extract(
            {name: values[start:end] for name, values in log.items()},
            first_slot=start + 1,
            labels=labels[start:end],
            **{name: values[start:end] for name, values in told.items()},
        )
        for start, end in itertools.pairwise(edges)
    ]
    whole = contexts.parse(EVERY_SCALE).extract(log, first_slot=1, labels=labels, **told)

    assert np.array_equal(np.concatenate(chunks), whole)


def test_one_record_gives_the_context_of_its_row():
    log, labels = whole_log(30), (["attack", "normal", "probe"] * 10)
    reader = contexts.parse(EVERY_SCALE)
    rows = [
        reader.extract_one(
            {name: values[row] for name, values in log.items()},
            slot=row + 1,
            previous_label=labels[row - 1] if row else None,
        )
        for row in range(30)
    ]

    assert rows == [tuple(row) for row in reader.extract(log, first_slot=1, labels=labels).tolist()]


def test_no_entries_make_contexts_without_coordinates():
    reader = contexts.parse([])

    assert (reader.dimension, reader.extract({"x": [1, 2]}, first_slot=1).shape) == (0, (2, 0))
