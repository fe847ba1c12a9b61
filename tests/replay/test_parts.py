"""A log whose cells are divided among processes is replayed as by one, in all that it shows."""

from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from covey.bandit.cutting import CellWeights, cell_codes, weights_of
from covey.config import load
from covey.data.logs import TraceFile
from covey.errors import ConfigError, DataError, LimitError
from covey.jobs.running import SameProcess, open_pool
from covey.replay.outcome import Outcome
from covey.replay.parts import replay_in_parts
from covey.replay.replay import replay_file
from support.effort import effort

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of few rows and narrow contexts

PARTS = (1, 2, 3, 7)
POLICIES: list[dict[str, Any]] = [
    {"preset": "cos"},
    {"preset": "cos", "mode": "paper"},
    {"preset": "cos", "label-wait": 12},
    {"preset": "cos", "forget": {"window": 9}},
    {"preset": "cos", "forget": {"discount": 0.9}},
    {"preset": "cos", "reading": {"count": "labelled", "helper": "greedy"}},
    {"preset": "cos", "reward": {"accuracy": 2.0, "context": [0.3, 0.1]}},
    {"preset": "cos", "check-claims": True},
    {"preset": "cos-ce"},
    {"preset": "share-ucb"},
    {"preset": "share-ucb", "pending": True, "label-wait": 20},
    {"preset": "discounted"},
    {"preset": "two-sizes", "alarm": 0},
    {"preset": "multi-resolution", "pending": True},
    {"preset": "balance"},
]
LEARNERS: list[dict[str, Any]] = [
    {"name": "a", "functions": ["f", "g"], "peers": {"b": 0.1, "c": 0.03}},
    {"name": "b", "functions": ["h"], "serving-cost": 0.07},
    {"name": "c", "functions": ["i", "j"], "function-costs": [0.01, 0.2]},
]
# What a log or a network may have besides: changes of [data] and of the learners.
Change = tuple[dict[str, Any], dict[str, dict[str, Any]]]
CHANGES: dict[str, Change] = {
    "late": ({"delay": "delay"}, {}),
    "hidden": ({"revealed": "revealed"}, {}),
    "at": ({"at": "at"}, {}),
    "loss": ({"loss": {"kind": "absolute", "bound": 2.0}}, {}),
    "free": ({}, {"b": {"free": True}}),
    "cost column": ({}, {"a": {"cost-columns": {"b": "paid", "g": "paid"}}}),
    "busy": ({}, {"b": {"answer-delay": "busy"}, "a": {"answer-wait": 2}}),
    "some labels": ({}, {"a": {"label-probability": 0.6}, "c": {"label-probability": 0.3}}),
    "unsupervised": ({}, {"b": {"supervised": False}}),
    "silent": ({"at": None}, {"c": {"arrivals": False}}),
}
CONTEXT_PEERS: Change = (
    {},
    {"a": {"context-peers": {"c": 0.02}}, "b": {"context-peers": {"a": 0.0}}},
)
CONTEXTS: list[list[Any]] = [
    ["x", "y"],
    [{"column": "x", "scale": "rank", "sample-rows": 30}, "y"],
    [{"column": "z", "scale": "log", "high": 50.0}, "y"],
]


def columns(seed: int, rows: int, *, is_text: bool) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows)
    names = np.array(["no", "yes", "maybe"]) if is_text else np.array([4, 5, 7])
    said = {
        name: names[np.where(rng.random(rows) < 0.5 + 0.1 * k, labels, rng.integers(0, 3, rows))]
        for k, name in enumerate("fghij")
    }
    return {
        "label": names[labels],
        **said,
        "x": rng.beta(1, 3, rows),
        "y": rng.random(rows),
        "z": rng.exponential(8, rows).clip(0, 50),
        "at": np.array(list("abc"))[rng.integers(0, 3, rows)],
        "delay": rng.integers(0, 30, rows) * (rng.random(rows) < 0.7),
        "revealed": (rng.random(rows) < 0.8).astype(np.int8),
        "paid": rng.random(rows).round(4),
        "busy": rng.integers(0, 5, rows),
    }


def config_of(policy: dict[str, Any], changes: list[Change], context: list[Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"context": context}
    learners = {one["name"]: dict(one) for one in LEARNERS}
    for of_data, of_learners in changes:
        data = {**data, **of_data}
        for name, more in of_learners.items():
            learners[name] |= more
    data = {key: value for key, value in data.items() if value is not None}
    return {"data": data, "policy": policy, "learner": list(learners.values())}


def replayed(path: Path, config: dict[str, Any], **how: Any) -> tuple[Outcome, bytes]:
    """Return the outcome and the trace: in `parts`, or of one process."""
    traced = path.with_suffix(".csv")
    with TraceFile(traced) as trace:
        if "parts" in how:
            outcome = replay_in_parts(path, config, SameProcess(), trace=trace, **how)
        else:
            outcome = replay_file(path, load(config), trace=trace)
    return outcome, traced.read_bytes()


@settings(
    max_examples=effort(25, long=600, plain=5),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    policy=st.sampled_from(POLICIES),
    names=st.lists(st.sampled_from(sorted(CHANGES)), unique=True, max_size=4),
    context=st.sampled_from(CONTEXTS),
    slices=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 160),
    group=st.integers(5, 80),
    stretch=st.integers(1, 90),
    parts=st.sampled_from(PARTS),
)
def test_trace_outcome_and_final_cells_are_those_of_one_process(
    tmp_path: Path,
    policy: dict[str, Any],
    names: list[str],
    context: list[Any],
    slices: int,
    seed: int,
    rows: int,
    group: int,
    stretch: int,
    parts: int,
) -> None:
    path = tmp_path / "log.parquet"
    table = arrow.table(columns(seed, rows, is_text="loss" not in names and seed % 2 == 0))
    parquet.write_table(table, path, row_group_size=group)
    names.sort(key=list(CHANGES).index)  # who is silent is named nowhere
    chosen = [CHANGES[name] for name in names]
    if policy.get("mode") == "paper":  # which runs one function per instance
        chosen = [CHANGES[name] for name in names if name != "free"]
    config = config_of({**policy, "slices": slices}, chosen, context)
    try:
        expected = replayed(path, config)
    except ConfigError:  # options that cannot be combined
        return
    found = replayed(path, config, parts=parts, stretch_rows=stretch)

    assert found[1] == expected[1]
    assert found[0] == expected[0]


def test_late_labels_count_in_a_stretch_without_a_row_of_the_part(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    parquet.write_table(arrow.table(columns(43065305, 75, is_text=False)), path, row_group_size=73)
    changes = [CHANGES[name] for name in ("late", "loss", "cost column", "busy")]
    policy = {"preset": "multi-resolution", "pending": True, "slices": 4}
    config = config_of(policy, changes, CONTEXTS[0])

    assert replayed(path, config, parts=2, stretch_rows=4) == replayed(path, config)


@pytest.mark.parametrize("history", ["labels", "asked", "predictions"])
@pytest.mark.parametrize("parts", PARTS)
def test_answers_from_stored_labels_are_those_of_one_process(
    history: str, parts: int, tmp_path: Path
) -> None:
    path = tmp_path / "log.parquet"
    parquet.write_table(arrow.table(columns(5, 400, is_text=True)), path, row_group_size=70)
    policy = {"preset": "cos", "slices": 2, "reading": {"history": history}}
    config = config_of(policy, [CONTEXT_PEERS, CHANGES["late"]], CONTEXTS[0])
    expected = replayed(path, config)

    assert replayed(path, config, parts=parts, stretch_rows=100) == expected
    assert b"labels seen" in expected[1]


def written(path: Path, *, rows: int = 600, group: int = 60) -> Path:
    parquet.write_table(arrow.table(columns(5, rows, is_text=True)), path, row_group_size=group)
    return path


GRID = config_of({"preset": "cos", "slices": 3}, [CHANGES["late"]], CONTEXTS[0])


def test_worker_processes_give_the_trace_of_one(tmp_path: Path) -> None:
    path = written(tmp_path / "log.parquet")
    whole, divided = tmp_path / "whole.parquet", tmp_path / "divided.parquet"
    with TraceFile(whole) as trace:
        expected = replay_file(path, load(GRID), trace=trace)
    told: list[str] = []
    with open_pool(None, workers=2) as pool, TraceFile(divided) as trace:
        found = replay_in_parts(path, GRID, pool, trace=trace, tell=told.append)

    assert found == expected
    assert parquet.read_table(divided).to_pylist() == parquet.read_table(whole).to_pylist()
    (text,) = told
    assert text.startswith(
        "2 parts: at most 2.0 times as fast as one process. The busiest of 9 cells"
    )


def test_no_more_parts_are_made_than_the_busiest_cell_allows(tmp_path: Path) -> None:
    path = written(tmp_path / "log.parquet")
    told: list[str] = []
    with open_pool(None, workers=50) as pool:
        found = replay_in_parts(path, GRID, pool, tell=told.append)

    assert found == replay_file(path, load(GRID))
    assert told[0].startswith("5 parts: at most 4.3 times as fast")
    assert told[0].endswith("so more parts bring at most 4.3 times")


class Dying(SameProcess):
    """Loses all calls after the first ones, as processes that are killed do."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def submit(self, call: Any, /, *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise BrokenProcessPool
        return super().submit(call, *args, **options)


@pytest.mark.parametrize("is_traced", [False, True])
def test_an_interrupted_replay_resumes_where_it_was(is_traced: bool, tmp_path: Path) -> None:
    path, out = written(tmp_path / "log.parquet"), tmp_path / "out"

    def play(pool: Any, name: str) -> Outcome:
        how = {"parts": 3, "out": out, "stretch_rows": 100}
        if not is_traced:
            return replay_in_parts(path, GRID, pool, **how)
        with TraceFile(tmp_path / name) as trace:
            return replay_in_parts(path, GRID, pool, trace=trace, **how)

    for _ in range(2):
        with pytest.raises(LimitError, match="finished parts are kept"):
            play(Dying(4), "lost.csv")
    rest = Dying(3 * 5 - 8)
    found = play(rest, "found.csv")

    expected, trace = replayed(path, GRID)
    assert found == expected
    assert rest.left == 0
    assert not (tmp_path / "lost.csv").exists()
    if is_traced:
        assert (tmp_path / "found.csv").read_bytes() == trace


def test_a_folder_of_another_replay_is_refused(tmp_path: Path) -> None:
    path, out = written(tmp_path / "log.parquet"), tmp_path / "out"
    replay_in_parts(path, GRID, SameProcess(), parts=2, out=out)
    other = {**GRID, "policy": {"preset": "cos", "slices": 4}}

    with pytest.raises(ConfigError, match="another replay: config policy slices is 3 there"):
        replay_in_parts(path, other, SameProcess(), out=out)


def test_the_parts_of_a_folder_stay_those_that_it_has(tmp_path: Path) -> None:
    path, out = written(tmp_path / "log.parquet"), tmp_path / "out"
    told: list[str] = []
    for parts in (3, 2):
        replay_in_parts(path, GRID, SameProcess(), parts=parts, out=out, tell=told.append)

    assert [text[:7] for text in told] == ["3 parts", "3 parts"]


PREVIOUS = {"scale": "previous-label", "classes": ["no", "yes", "maybe"]}
ENDS: dict[str, Any] = {"between": ["a", "b"]}
CHANGE = {**ENDS, "slot": 5, "cost": 0.3}
UNLINKED = [{"name": "a", "functions": ["f"]}, {"name": "b", "functions": ["g"]}]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"policy": {}}, "preset 'auto'"),
        ({"policy": {"preset": "dcza"}}, "preset 'dcza'"),
        ({"policy": {"preset": "two-sizes", "slices": 3}}, "alarm"),
        ({"policy": {"preset": "cos", "pending": True}}, "pending"),
        ({"policy": {"preset": "cos", "horizon": "doubling"}}, "horizon"),
        ({"data": {"context": ["x"], "batch": "at"}}, "pending|batch"),
        ({"data": {"candidates": ["x", "y"]}}, "candidates"),
        ({"data": {"context": [PREVIOUS]}}, "previous-label"),
        ({"ensemble": {}}, "ensemble"),
        ({"link": [{**ENDS, "cost-column": "paid"}], "learner": UNLINKED}, "cost-column"),
        ({"link": [{**ENDS, "cost": 0.1}], "link-change": [CHANGE], "learner": UNLINKED}, "change"),
        ({"learner": [LEARNERS[0], {**LEARNERS[1], "context": ["y"]}, LEARNERS[2]]}, "context"),
    ],
    ids=str,
)
def test_what_couples_cells_is_refused_by_its_key(
    change: dict[str, Any], key: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "log.parquet")

    with pytest.raises(ConfigError, match=f"{key}.*or replay the log in one process"):
        replay_in_parts(path, {**GRID, **change}, SameProcess(), parts=2)


def test_a_log_without_row_groups_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("label\n")

    with pytest.raises(DataError, match="convert it to .parquet"):
        replay_in_parts(tmp_path / "log.csv", GRID, SameProcess(), parts=2)


def test_an_invalid_row_is_named_as_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    found = columns(5, 90, is_text=True)
    found["x"][70] = 1.5
    parquet.write_table(arrow.table(found), path, row_group_size=30)

    with pytest.raises(DataError, match="slot 71: context 'x' is 1.5"):
        replay_in_parts(path, GRID, SameProcess(), parts=2, stretch_rows=30)


def test_more_cells_than_allowed_are_refused_as_by_one_process(tmp_path: Path) -> None:
    path = written(tmp_path / "log.parquet")
    config = {**GRID, "policy": {"preset": "cos", "slices": 3, "max-cells": 8}}

    with pytest.raises(LimitError, match="8 cells are in use"):
        replay_in_parts(path, config, SameProcess(), parts=3)


@given(rows=st.lists(st.integers(1, 50), min_size=1, max_size=40), parts=st.sampled_from(PARTS))
def test_parts_have_about_as_many_rows_each(rows: list[int], parts: int) -> None:
    codes = np.arange(len(rows)).astype(np.uint64)
    weights = CellWeights(len(rows), codes, np.array(rows))
    loads = np.bincount(weights.divided(parts).owners, rows, minlength=parts)

    assert loads.max() - loads.min() <= max(rows)  # the largest cells came first
    assert weights.most_parts == sum(rows) / max(rows)


@pytest.mark.parametrize("slices", [3, 400, 2**31])
def test_contexts_of_a_cell_are_in_one_part_whether_it_was_counted_or_not(slices: int) -> None:
    rng = np.random.default_rng(2)
    points = rng.random((500, 2))
    division = weights_of([points[:200]], slices).divided(3)
    inside = (np.floor(points * slices) + 0.5) / slices  # the middles of the same cells
    found = division.parts_of(points)

    assert (division.parts_of(inside) == found).all()
    assert set(found.tolist()) == {0, 1, 2}
    assert (cell_codes(inside, slices) == cell_codes(points, slices)).all()
