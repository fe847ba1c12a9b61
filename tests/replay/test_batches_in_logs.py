"""A column of batches in a log: from files and arrays, as in a network, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.data import tables
from covey.data.logs import EncodedLog, until_end_of_batch
from covey.errors import ConfigError
from support.replays import EVERY_KIND, NETWORK, play, stream, trace_in

ROWS = 600
READINGS = pytest.mark.parametrize("reading", ["slots", "slot"])


def batch_of(rows: int) -> np.ndarray:
    """Return numbers of batches of 1 to 40 rows."""
    rng = np.random.default_rng(3)
    return np.repeat(np.arange(rows), rng.integers(1, 41, rows))[:rows]


def two_sites(policy: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy": policy,
        "learner": [
            {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.05}},
            {"name": "south", "functions": ["c", "d"], "peers": {}, "arrivals": False},
        ],
    }


@EVERY_KIND
@READINGS
def test_batches_that_lie_across_chunks_of_a_file_are_decided_as_in_one_chunk(
    kind: str, reading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {**stream(ROWS), "lot": batch_of(ROWS)}
    policy = {**NETWORK["policy"], "preset": "cos", "batch": reading}
    config = {**NETWORK, "data": {**NETWORK["data"], "batch": "lot"}, "policy": policy}
    play(columns, config, tmp_path, kind)
    whole = trace_in(tmp_path, kind)

    monkeypatch.setattr(tables, "ROWS_PER_CHUNK", 7)
    play(columns, config, tmp_path, kind)

    assert trace_in(tmp_path, kind) == whole
    assert len(set(whole["slot"])) == (ROWS if reading == "slots" else batch_of(ROWS)[-1] + 1)


def test_labels_of_a_batch_come_at_its_end_at_the_earliest_also_hidden_ones() -> None:
    log = EncodedLog(
        contexts=memoryview(b""),
        predictions=np.zeros((1, 4), np.int32).data,
        labels=np.zeros(4, np.int32).data,
        at=None,
        delays=np.array([-1, 0, -6, -1]).data,  # a hidden label has the delay -1 - delay
        batches=np.array([0, 0, 0, 1]).data,
    )

    assert np.asarray(until_end_of_batch(log).delays).tolist() == [-3, 1, -6, -1]


def recorded(slots: int) -> dict[str, Any]:
    rng = np.random.default_rng(9)
    labels = rng.integers(0, 2, slots)
    is_right = rng.random((4, slots)) < [[0.6], [0.7], [0.65], [0.9]]
    return {
        "predictions": np.where(is_right, labels, 1 - labels),
        "labels": labels,
        "contexts": rng.random((slots, 1)),
    }


def test_a_horizon_counts_slots_and_not_rows_where_batches_share_slots() -> None:
    policy = {"preset": "cos", "horizon": 4, "batch": "slot"}
    given = recorded(6)

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

    trace = covey.replay(config, **recorded(60), batch=batch)

    assert trace.slot.tolist() == (batch + 1).tolist()
    paid = {bool(slot >= 14): set() for slot in trace.slot}
    for slot, cost in zip(trace.slot.tolist(), trace.cost.tolist(), strict=True):
        paid[slot >= 14].add(cost)
    assert paid == {False: {0.0, 0.1}, True: {0.0, 0.4}}


def test_batches_in_one_slot_refuse_what_needs_a_slot_per_row() -> None:
    config = two_sites({"preset": "cos", "batch": "slot"})
    config["data"] = {"context": [{"scale": "previous-label"}], "delay": "late", "batch": "lot"}

    with pytest.raises(ConfigError, match="previous label and a delay"):
        covey.replay(config, **recorded(2), batch=[0, 1])
