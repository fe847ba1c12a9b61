"""A column of batches in a log: from files and arrays, as in a network, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.data import tables
from covey.data.logs import EncodedLog, until_end_of_batch
from covey.errors import ConfigError
from support.presets import fitting
from support.replays import EVERY_KIND, NETWORK, play, stream, trace_in

ROWS = 600
EARLY = {"slices": 2, "train": {"scale": 1.0, "power": 0.0}, "split-scale": 4.0}
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


def live(config: dict[str, Any], given: dict[str, Any], batch: np.ndarray) -> list[Any]:
    """Return the decisions of a network that gets the same batches, and then their labels."""
    said = given["predictions"]
    network = covey.Network(
        config,
        functions={name: _recorded(said[k]) for k, name in enumerate("abcd")},
        dimension=1,
    )
    rows: list[Any] = []
    for number in range(batch[-1] + 1):
        places = np.flatnonzero(batch == number)
        answers = network["north"].predict_batch(places.tolist(), given["contexts"][places])
        labels = given["labels"][places].tolist()
        network["north"].learn_batch([one.ticket for one in answers], labels)
        rows += [(one.phase, one.arm, one.function) for one in answers]
    return rows


def _recorded(said: np.ndarray) -> Any:
    return lambda row: int(said[row])


def recorded(slots: int) -> dict[str, Any]:
    rng = np.random.default_rng(9)
    labels = rng.integers(0, 2, slots)
    is_right = rng.random((4, slots)) < [[0.6], [0.7], [0.65], [0.9]]
    return {
        "predictions": np.where(is_right, labels, 1 - labels),
        "labels": labels,
        "contexts": rng.random((slots, 1)),
    }


@pytest.mark.parametrize("preset", ["cos", "dcza", "auto", "share-ucb"])
def test_a_replay_in_batches_decides_as_a_network_whose_labels_come_after_each_batch(
    preset: str,
) -> None:
    policy = {key: value for key, value in EARLY.items() if preset != "auto" or key != "slices"}
    config = two_sites(fitting({"preset": preset, **policy}))
    given, batch = recorded(ROWS), batch_of(ROWS)

    columns = covey.replay(config, **given, batch=batch).columns()

    decided = list(zip(columns["phase"], columns["arm"], columns["function"], strict=True))
    assert decided == live(config, given, batch)
    assert {"south"} < set(columns["arm"])


def test_time_as_a_context_counts_the_slots_that_batches_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_CHUNK", 2)
    config = two_sites({"preset": "cos", "slices": 4, "batch": "slot"})
    config["data"] = {"context": [{"scale": "slot", "horizon": 4}], "batch": "lot"}
    columns = {"label": [1] * 6, "lot": [0, 0, 1, 2, 2, 2], **dict.fromkeys("abcd", [1] * 6)}
    network = covey.Network(config, functions=dict.fromkeys("abcd", lambda x: 1))
    live = [network["north"].predict_batch([{}] * rows) for rows in (2, 1, 3)]

    cells = covey.replay(config, columns).columns()["cell"]

    assert cells == ["g4:1", "g4:1", "g4:2", "g4:3", "g4:3", "g4:3"]
    assert cells == [network["north"].cell_of(one.ticket) for batch in live for one in batch]


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


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ({"context": [{"scale": "previous-label"}], "delay": "late"}, "previous label and a delay"),
    ],
)
def test_batches_in_one_slot_refuse_what_needs_a_slot_per_row(data: Any, what: str) -> None:
    config = two_sites({"preset": "cos", "batch": "slot"})
    config["data"] = {**data, "batch": "lot"}

    with pytest.raises(ConfigError, match=what):
        covey.replay(config, **recorded(2), batch=[0, 1])
