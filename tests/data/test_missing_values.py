"""Categories, calendar scales and missing values: a cell of their own, in logs and live records."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import covey
from covey.data import contexts
from covey.errors import ConfigError, DataError
from covey.store.store import Store
from support.served import INFER, Client, run

LOAD = {"column": "load", "scale": "linear", "low": 0, "high": 10, "missing": "own"}
KIND = {"column": "kind", "scale": "category", "values": ["tcp", "udp"]}


@pytest.mark.parametrize("nothing", [None, math.nan, "", "nan", "NaN", np.float64("nan")])
@pytest.mark.parametrize(
    "entry",
    [
        {"column": "x", "missing": "own"},
        {"column": "x", "scale": "linear", "low": -9, "high": 9, "missing": "own"},
        {"column": "x", "scale": "log", "high": 9, "missing": "own"},
        {"column": "x", "scale": "rank", "sample": [1.0, 2.0], "missing": "own"},
        {"column": "x", "scale": "hour", "missing": "own"},
        {"column": "x", "scale": "weekday", "missing": "own"},
        {"column": "x", "scale": "month", "missing": "own"},
    ],
    ids=lambda entry: str(entry.get("scale")) if isinstance(entry, dict) else repr(entry),
)
def test_a_missing_value_has_a_coordinate_of_its_own(entry: Any, nothing: Any) -> None:
    reader = contexts.parse([entry])

    assert reader.names == ["x", "x is missing"]
    assert reader.extract_one({"x": nothing}, slot=1) == (0.0, 0.75)
    assert reader.extract_one({"x": 1}, slot=1)[1] == 0.25


def test_text_that_is_no_number_is_not_missing() -> None:
    with pytest.raises(DataError, match="column 'load' is 'none', which is not a number; correct"):
        contexts.parse([LOAD]).extract_one({"load": "none"}, slot=1)


@pytest.mark.parametrize(
    ("values", "places"),
    [
        (["udp", "tcp", "icmp", None], [3 / 8, 1 / 8, 5 / 8, 7 / 8]),
        (np.array(["udp", "tcp", "icmp", ""]), [3 / 8, 1 / 8, 5 / 8, 7 / 8]),
    ],
)
def test_other_and_missing_categories_have_places_of_their_own(values: Any, places: Any) -> None:
    reader = contexts.parse([{**KIND, "other": "own", "missing": "own"}])

    assert reader.names == ["kind"]
    assert reader.extract({"kind": values}, first_slot=1)[:, 0].tolist() == places


@pytest.mark.parametrize(
    ("values", "same"),
    [([1, 2], [1.0, "1", True]), ([True, False], [1, "1", True]), (["1.5", 2], [1.5, "1.5"])],
)
def test_categories_are_the_same_as_text_and_as_numbers(values: Any, same: list[Any]) -> None:
    reader = contexts.parse([{**KIND, "values": values}])

    assert {reader.extract_one({"kind": value}, slot=1) for value in same} == {(0.25,)}


def config(*context: Any, **policy: Any) -> dict[str, Any]:
    return {
        "data": {"context": list(context)},
        "policy": {"preset": "cos", **policy},
        "learner": [{"name": "north", "functions": ["nb", "tree"]}],
    }


def test_categories_that_would_share_a_cell_are_refused() -> None:
    three = {**KIND, "other": "own"}
    sentence = "2 slices per dimension, but the context 'kind' has 3 categories"
    data = {"label": [1], "nb": [1], "tree": [0], "kind": ["tcp"]}

    with pytest.raises(ConfigError, match=sentence):
        covey.replay(config(three, slices=2), data)
    with pytest.raises(ConfigError, match=sentence):
        covey.Network(config(three, slices=2), functions={"nb": bool, "tree": bool})
    assert covey.replay(config(three, slices=3), data).cell.tolist() == [0]


def log(rows: int) -> pd.DataFrame:
    """One function is right where the load is missing or the kind is udp, the other elsewhere."""
    rng = np.random.default_rng(2)
    load = np.where(rng.random(rows) < 0.3, np.nan, rng.random(rows) * 10)
    kind = rng.choice(["tcp", "udp"], rows)
    label = rng.integers(0, 2, rows)
    is_first = np.isnan(load) | (kind == "udp")
    return pd.DataFrame(
        {
            "load": load,
            "kind": kind,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, rows), "D"),
            "label": label,
            "nb": np.where(is_first, label, 1 - label),
            "tree": np.where(is_first, 1 - label, label),
        }
    )


SETUP = config(LOAD, KIND, {"column": "day", "scale": "weekday"}, slices=2)


def test_rows_with_missing_values_are_learnt_apart() -> None:
    result = covey.replay(config(LOAD, KIND, slices=2), log(4_000))

    assert result.correct[-500:].mean() > 0.95
    assert len(result.outcome.learners[0].cells) == 6  # 2 kinds x 2 halves, and missing
    assert result.outcome.context_names == ["load", "kind", "load is missing"]


def test_files_frames_and_networks_make_the_same_contexts(tmp_path: Path) -> None:
    frame = log(300)
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_parquet(tmp_path / "log.parquet")
    by_frame = covey.replay(SETUP, frame)
    network = covey.Network(
        SETUP, functions={"nb": lambda row: row["nb"], "tree": lambda row: row["tree"]}
    )
    arms = []
    for row in frame.to_dict("records"):
        answer = network["north"].predict(row)
        arms.append(answer.arm)
        network["north"].learn(answer.ticket, row["label"])

    for name in ("log.csv", "log.parquet"):
        columns = covey.replay(SETUP, tmp_path / name).trace.columns()
        assert columns["cell"] == by_frame.trace.columns()["cell"]
        assert columns["arm"] == by_frame.trace.columns()["arm"]
    assert arms == by_frame.trace.columns()["arm"]


def test_cells_and_axes_have_the_names_of_categories() -> None:
    result = covey.replay(config(KIND, {"column": "day", "scale": "month"}, slices=2), log(300))
    (first, *_) = result.outcome.learners[0].cells
    ticks = result.outcome.context_ticks

    assert [*first.bounds[0]] in (["tcp", "tcp"], ["udp", "udp"])
    assert first.bounds[1] == ("Jan", "Jun")
    assert ticks[0] == [(0.25, "tcp"), (0.75, "udp")]
    assert len(ticks[1]) == 12


def test_far_too_many_cells_get_a_warning_that_proposes_slices() -> None:
    """A million slices put every row with a load into a cell of its own."""
    data = log(1_000)
    fine = config({**LOAD, "missing": "refuse"}, slices=1_000_000)
    present = data[data["load"].notna()]

    with pytest.warns(UserWarning, match=r"rows of 'north' lie in \d+ cells, .*slices = 2\d for"):
        covey.replay(fine, present).summary()
    covey.replay({**fine, "policy": {"preset": "cos", "slices": 22}}, present).summary()


def test_a_context_that_covers_almost_nothing_of_its_scale_gets_a_warning() -> None:
    """Hours from 0 to 24 are no times: they would all lie in the first minute of 1970."""
    data = log(1_000).assign(hour=np.linspace(0.0, 23.9, 1_000))

    with pytest.warns(UserWarning, match=r"'hour' covers less than 0.1% of its scale.* since 1970"):
        covey.replay(config({"column": "hour", "scale": "hour"}), data).summary()
    fitting = {"column": "hour", "scale": "linear", "low": 0, "high": 24}
    covey.replay(config(fitting), data).summary()


def test_ends_of_cells_without_a_value_are_empty() -> None:
    reader = contexts.parse([KIND, {"column": "t", "scale": "month"}])

    assert reader.bounds_at([0.3, 0.0], [0.4, 1.0]) == [("", ""), ("Jan", "Dec")]
    assert reader.bounds_at([0.25, 1 / 24], [0.75, 5 / 24]) == [("tcp", "tcp"), ("Jan", "Feb")]
    assert [scale.value_at(0.5) for scale in reader.scales] == ["udp", "Jul"]


SERVED = """
[node]
name = "north"
features = { load = "BYTES", kind = "BYTES" }
store = "north.store"
address = "127.0.0.1:0"

[data]
context = [
    { column = "load", scale = "linear", low = 0, high = 10, missing = "own" },
    { column = "kind", scale = "category", values = ["tcp", "udp"] },
]

[policy]
preset = "cos"
slices = 2

[[learner]]
name = "north"
functions = ["zero"]

[[function]]
name = "zero"
kind = "constant"
label = 0
"""


def body(load: str, kind: str) -> dict[str, Any]:
    columns = {"load": load, "kind": kind}
    return {
        "inputs": [
            {"name": name, "shape": [1], "datatype": "BYTES", "data": [value]}
            for name, value in columns.items()
        ]
    }


def test_a_served_site_takes_empty_text_as_missing_and_refuses_unknown_categories(
    tmp_path: Path,
) -> None:
    async def story(client: Client) -> None:
        for size in ("", "2.5", "9"):
            status, _ = await client.post(INFER, body(size, "udp"))
            assert status == 200
        status, told = await client.post(INFER, body("2.5", "icmp"))
        assert (status, "which is not one of its values tcp, udp" in told["detail"]) == (422, True)

    run(tmp_path, story, SERVED)
    store = Store(tmp_path / "north.store")
    cells = {group.cell for request in store.requests() for group in request.groups}
    store.close()
    assert cells == {"g2:0:1:0", "g2:0:1:1", "g2:1:1:0"}
