"""Slots and previous labels as contexts, past the horizon: everywhere the same decisions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.config import load
from covey.errors import DataError
from covey.server import doctor
from support.flow import Row, Stream, column_file, drawn_stream, through_processes
from support.site_processes import Offices

HORIZON = 40
SLOTS = 150  # three epochs and a half


def config(after: str) -> dict[str, Any]:
    return {
        "data": {
            "context": [
                "x",
                {"scale": "slot", "horizon": HORIZON, "after": after},
                {"scale": "previous-label", "classes": [0, 1]},
            ]
        },
        "policy": {
            "preset": "cos",
            "slices": 2,
            "explore": {"scale": 0.3, "power": 0.0},
            "train": {"scale": 0.3, "power": 0.0},
            "explore-peers": {"scale": 0.3, "power": 0.0},
            "pending": False,
            "check-claims": False,
        },
        "learner": [
            {"name": "site0", "functions": ["f0", "f1"], "peers": {"site1": 0.05}},
            {"name": "site1", "functions": ["f2", "f3"], "peers": {"site0": 0.05}},
        ],
    }


@pytest.fixture(scope="module")
def play() -> Stream:
    return drawn_stream(2, ["x"], slots=SLOTS, seed=5)


def replayed(play: Stream, table: dict[str, Any]) -> list[Row]:
    contexts = load(table).context.extract(
        {"x": play.contexts[:, 0]}, first_slot=1, labels=play.labels, at=np.array(play.at)
    )
    trace = covey.replay(
        table,
        predictions=play.predictions,
        labels=play.labels,
        contexts=contexts,
        at=play.at,
    ).columns()
    names = ("phase", "arm", "function", "cost", "correct")
    return list(zip(*(trace[name] for name in names), strict=True))


@pytest.mark.parametrize("after", ["doubling", "wrap"])
def test_served_sites_decide_as_a_replay_past_the_horizon_restarted_in_between(
    play: Stream, after: str, tmp_path: Path
) -> None:
    offices = Offices(tmp_path, ["site0", "site1"])
    sites = {name: column_file(offices, play, config(after), name) for name in ("site0", "site1")}

    live = through_processes(play, sites, tmp_path, slots=range(60))
    live += through_processes(play, sites, tmp_path, slots=range(60, SLOTS))

    assert live == replayed(play, config(after))


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (
            "doubling",
            "after slot 40 the clock begins again with epochs of 80 slots, then 160, and so on",
        ),
        ("wrap", "after slot 40 the clock begins again, every 40 slots"),
    ],
)
def test_the_doctor_says_what_comes_after_the_horizon(
    play: Stream, after: str, sentence: str, tmp_path: Path
) -> None:
    offices = Offices(tmp_path, ["site0", "site1"])
    file = tmp_path / "site0.toml"
    file.write_text(column_file(offices, play, config(after), "site0"))

    found = {one.what: one for one in doctor.examine(file)}

    assert (found["context slot"].state, found["context slot"].message) == ("ok", sentence)


def test_a_batch_of_records_is_answered_as_single_records_with_the_same_previous_label() -> None:
    table = config("wrap")
    table["policy"]["pending"] = True
    functions = dict.fromkeys(["f0", "f1", "f2", "f3"], lambda record: int(record["x"] > 0.5))
    records = [{"x": k / 50} for k in range(50)]
    single, batched = (covey.Network(table, functions=functions)["site0"] for _ in range(2))

    answers = batched.predict_batch(records)

    assert [one.arm for one in answers] == [single.predict(record).arm for record in records]


def test_what_is_no_record_is_refused_with_what_to_pass() -> None:
    functions = dict.fromkeys(["f0", "f1", "f2", "f3"], lambda record: 0)
    site = covey.Network(config("wrap"), functions=functions)["site0"]

    with pytest.raises(DataError, match="makes contexts from records .* or pass the context"):
        site.predict(0.5)
    with pytest.raises(DataError, match="there is no column 'x'"):
        site.predict({"y": 1})
    assert site.predict(None, (0.1, 0.5, 0.0)).arm == "f0"
