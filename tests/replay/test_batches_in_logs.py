"""A column of batches in a log: from files and arrays, as in a network, and what is refused."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.data.logs import until_end_of_batch
from covey.errors import ConfigError
from support.streams import log_of
from support.two_sites import stream

FOUR = (0.6, 0.7, 0.65, 0.9)  # accuracies


def two_sites(policy: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy": policy,
        "learner": [
            {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.05}},
            {"name": "south", "functions": ["c", "d"], "peers": {}, "arrivals": False},
        ],
    }


def test_labels_of_a_batch_come_at_its_end_at_the_earliest_also_hidden_ones() -> None:
    delays = [-1, 0, -6, -1]  # a hidden label has the delay -1 - delay
    log = log_of([[0] * 4], [0] * 4, delays)._replace(batches=np.array([0, 0, 0, 1]).data)

    assert np.asarray(until_end_of_batch(log).delays).tolist() == [-3, 1, -6, -1]


def test_a_horizon_counts_slots_and_not_rows_where_batches_share_slots() -> None:
    policy = {"preset": "cos", "horizon": 4, "batch": "slot"}
    given = stream(6, *FOUR)

    covey.replay(two_sites(policy), **given, batch=[0, 0, 1, 2, 2, 3])
    with pytest.raises(ConfigError, match="more rows than the horizon of 4 slots"):
        covey.replay(two_sites(policy), **given, batch=[0, 0, 1, 2, 3, 4])


def test_epochs_and_link_changes_begin_between_batches_that_share_a_slot() -> None:
    policy = {
        "preset": "cos",
        "horizon": "doubling",
        "first-epoch": 3,
        "batch": "slot",
    }
    links = {
        "link": [{"between": ["north", "south"], "cost": 0.1}],
        "link-change": [{"slot": 14, "between": ["north", "south"], "cost": 0.4}],
    }
    config = {**two_sites(policy), **links}
    config["learner"] = [
        {key: value for key, value in one.items() if key != "peers"} for one in config["learner"]
    ]
    batch = np.repeat(np.arange(20), 3)

    trace = covey.replay(config, **stream(60, *FOUR), batch=batch)

    assert trace.slot.tolist() == (batch + 1).tolist()
    paid = {bool(slot >= 14): set() for slot in trace.slot}
    for slot, cost in zip(trace.slot.tolist(), trace.cost.tolist(), strict=True):
        paid[slot >= 14].add(cost)
    assert paid == {False: {0.0, 0.1}, True: {0.0, 0.4}}


def test_batches_in_one_slot_refuse_what_needs_a_slot_per_row() -> None:
    config = two_sites({"preset": "cos", "batch": "slot"})
    config["data"] = {"context": [{"scale": "previous-label"}], "delay": "late", "batch": "lot"}

    with pytest.raises(ConfigError, match="previous label and a delay"):
        covey.replay(config, **stream(2, *FOUR), batch=[0, 1])
