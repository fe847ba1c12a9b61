"""The previous label equals a direct search for the latest known label."""

import numpy as np
import pytest
from hypothesis import given

from covey.data import contexts
from covey.errors import DataError
from support.coordinates import CLASSES, histories, previous


def slow_previous(labels, *, at=None, revealed=None, delay=None):
    """Look back from every row over all earlier ones: the plain meaning of previous-label."""
    found = []
    for row in range(len(labels)):
        latest = None
        for earlier in range(row):
            has_come = earlier + (delay[earlier] if delay else 0) <= row - 1
            is_shown = revealed is None or revealed[earlier] == 1
            is_mine = at is None or at[earlier] == at[row]
            if labels[earlier] is not None and has_come and is_shown and is_mine:
                latest = labels[earlier]
        found.append(latest)
    return [{None: 0.25, "normal": 0.0, "probe": 0.5, "attack": 1.0}[label] for label in found]


def test_previous_label_is_the_place_of_the_last_class():
    assert previous(["attack", "probe", "normal", "attack"]) == [0.25, 1.0, 0.5, 0.0]


def test_previous_label_without_classes_is_the_label_itself():
    found = previous([1, "0.5", np.float32(0.25), True, 0], entry={"scale": "previous-label"})

    assert found == [0.0, 1.0, 0.5, 0.25, 1.0]


@given(histories())
def test_previous_label_equals_a_naive_search(history):
    labels, told = history

    assert previous(labels, **told) == slow_previous(labels, **told)


def test_delays_of_one_chunk_reach_into_chunks_without_delays():
    reader = contexts.parse([CLASSES])
    reader.extract({}, first_slot=1, labels=["attack"], delay=[2])
    found = reader.extract({}, first_slot=2, labels=[None, None, None])

    assert found[:, 0].tolist() == [0.25, 0.25, 1.0]


def test_slot_one_begins_a_new_log():
    reader = contexts.parse([CLASSES])
    reader.extract({}, first_slot=1, labels=["attack", "probe"], delay=[0, 5])
    found = reader.extract({}, first_slot=1, labels=[None] * 9)

    assert found[:, 0].tolist() == [0.25] * 9


def test_labels_without_a_place_among_the_classes_are_refused():
    reader = contexts.parse(["x", CLASSES])

    reader.check_labels(["attack", "normal"])
    with pytest.raises(DataError, match="the label 'scan' is not one of the classes"):
        reader.check_labels(["attack", "scan"])


def test_one_record_does_not_change_the_state_of_a_log():
    reader = contexts.parse([CLASSES])
    reader.extract({}, first_slot=1, labels=["attack"])
    reader.extract_one({}, slot=1, previous_label="probe")

    assert reader.extract({}, first_slot=2, labels=[None]).tolist() == [[1.0]]
