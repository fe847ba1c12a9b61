"""Traces: integers with name tables, and files that are complete or absent."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from covey.data.logs import ArmTable, DecisionColumns, Trace, TraceFile
from covey.errors import ConfigError, DataError
from support.streams import log_of

COLUMNS = [
    *("slot", "learner", "cell", "phase", "arm", "function"),
    *("prediction", "label", "correct", "cost", "alarm"),
]
NAMES: dict[str, list[Any]] = {
    "learner": ["north", "south"],
    "cell": ["g2:0", "g2:1"],
    "phase": ["train", "explore", "exploit"],
    "arm": ["nb", "tree", "north", "south"],
    "function": ["nb", "tree"],
    "prediction": ["ok", "attack"],
    "label": ["ok", "attack"],
}
KINDS = ("int8", "int32")  # of indices
BOTH_KINDS = pytest.mark.parametrize("name", ["trace.csv", "trace.parquet", "trace.pq"])


def trace_of(*, at: list[int] | None = None, receivers: tuple[int, ...] = (0, 1)) -> Trace:
    """Make the trace of two slots, the second of them without a label, from slot 5 on."""
    log = log_of([[0, 1], [1, 1]], [1, -1], at=at)
    rows = 2 if at is not None else 2 * len(receivers)
    decided = DecisionColumns(
        cell=memoryview(np.array([0, 0, 1, 1], np.int32)[:rows]),
        phase=memoryview(np.array([1, 1, 0, 2], np.int8)[:rows]),
        arm=memoryview(np.array([0, 1, 3, 1], np.int32)[:rows]),
        function=memoryview(np.array([0, 1, 1, 1], np.int32)[:rows]),
        correct=memoryview(np.array([0, 1, -1, -1], np.int8)[:rows]),
    )
    costs = np.array([[0.0, 0.0, 0.0, 0.25], [0.0, 0.5, 0.0, 0.0]])
    trace = Trace(
        decided, log, first_slot=5, arms=ArmTable.full(costs), receivers=receivers, names=NAMES
    )
    trace.alarm[1] = 1
    return trace


def columns_of(trace: Trace) -> dict[str, list[Any]]:
    """Look every value up, one by one."""
    named = {
        name: [trace.names[name][code] if code >= 0 else None for code in getattr(trace, name)]
        for name in COLUMNS[1:8]
    }
    correct = [None if value < 0 else value for value in trace.correct.tolist()]
    numbers = {"correct": correct, "cost": trace.cost.tolist(), "alarm": trace.alarm.tolist()}
    return {"slot": trace.slot.tolist(), **named, **numbers}


def rows_of(path: Path) -> list[list[Any]]:
    """Return a trace file as rows, the header first."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))
    table = parquet.read_table(path)
    return [table.column_names, *(list(row.values()) for row in table.to_pylist())]


@pytest.mark.parametrize(
    ("trace", "slots", "learners"),
    [
        (trace_of(), [5, 5, 6, 6], [0, 1, 0, 1]),
        (trace_of(receivers=(1,)), [5, 6], [1, 1]),
        (trace_of(at=[1, 0]), [5, 6], [1, 0]),
    ],
    ids=["all receive", "one receives", "the log says who receives"],
)
def test_a_trace_has_a_row_per_receiving_learner_and_slot(
    trace: Trace, slots: list[int], learners: list[int]
) -> None:
    assert (trace.slot.tolist(), trace.learner.tolist()) == (slots, learners)
    assert len(trace) == len(slots)


def test_columns_are_names_and_numbers_in_the_order_of_a_trace_file() -> None:
    columns = trace_of().columns()

    assert list(columns) == COLUMNS
    assert list(zip(*columns.values(), strict=True)) == [
        (5, "north", "g2:0", "explore", "nb", "nb", "ok", "attack", 0, 0.0, 0),
        (5, "south", "g2:0", "explore", "tree", "tree", "attack", "attack", 1, 0.5, 1),
        (6, "north", "g2:1", "train", "south", "tree", "attack", None, None, 0.25, 0),
        (6, "south", "g2:1", "exploit", "tree", "tree", "attack", None, None, 0.5, 0),
    ]


def drawn_trace(
    seed: int, slots: int, labels: list[Any], *, first_slot: int = 1, cells: int = 3, **kinds: bool
) -> Trace:
    """Draw a trace of two learners whose functions have one name, with labels missing."""
    rng = np.random.default_rng(seed)
    rows = 2 * slots
    paid = rng.integers(0, 1_000_000, rows if kinds.get("is_paid") else 0).astype(np.int32)
    gained = rng.integers(-1, 11 if kinds.get("is_graded") else 2, rows).astype(np.int32)
    codes = rng.integers(-1, len(labels), slots).astype(np.int32)
    said = rng.integers(0, len(labels), (2, slots))
    log = log_of(said, np.full_like(codes, -1) if kinds.get("is_unlabelled") else codes)
    decided = DecisionColumns(
        cell=memoryview(rng.integers(0, cells, rows).astype(np.int32)),
        phase=memoryview(rng.integers(0, 3, rows).astype(np.int8)),
        arm=memoryview(rng.integers(0, 4, rows).astype(np.int32)),
        function=memoryview(rng.integers(0, 2, rows).astype(np.int32)),
        correct=memoryview(gained),
        paid=memoryview(paid),
    )
    names = {
        **NAMES,
        "cell": [f"g{cells}:{cell}" for cell in range(cells)],
        "arm": ["nb", "nb", *NAMES["learner"]],
        "function": ["nb", "nb"],
        "prediction": labels,
        "label": labels,
    }
    costs = np.round(rng.random((2, 4)), 3)
    unit = 10 if kinds.get("is_graded") else 1
    trace = Trace(
        decided,
        log,
        first_slot=first_slot,
        arms=ArmTable.full(costs),
        receivers=(0, 1),
        names=names,
        unit=unit,
    )
    trace.alarm[:] = rng.integers(0, 2, rows)
    return trace


LABELS = st.one_of(
    st.lists(st.text(alphabet='a,"\n\r \0é', min_size=1), min_size=1, unique=True),
    st.lists(st.integers(-9, 9) | st.floats(-9, 9), min_size=1, unique=True),
)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    slots=st.sampled_from([1, 2, 300, 1_500]),
    labels=LABELS,
    cells=st.sampled_from([1, 5, 3_000]),
    is_graded=st.booleans(),
    is_paid=st.booleans(),
)
def test_a_trace_is_written_as_its_columns_are(
    tmp_path_factory: pytest.TempPathFactory, seed: int, slots: int, labels: list[Any], **rest: Any
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    traces = [
        drawn_trace(seed + k, slots, labels, first_slot=1 + k * slots, **rest) for k in range(2)
    ]
    with (
        TraceFile(folder / "trace.csv") as text,
        TraceFile(folder / "trace.parquet") as table,
        TraceFile(folder / "columns.csv") as columns,
    ):
        for trace in traces:
            text.write(trace)
            table.write(trace)
            columns.write(columns_of(trace))
    first, second = (columns_of(trace) for trace in traces)

    assert (folder / "trace.csv").read_bytes() == (folder / "columns.csv").read_bytes()
    assert parquet.read_table(folder / "trace.parquet").to_pydict() == {
        name: first[name] + second[name] for name in COLUMNS
    }
    assert traces[0].columns() == first


def test_an_arrow_table_has_dictionaries_and_narrow_integers() -> None:
    trace = drawn_trace(0, 40, ["ok", "attack"])
    table = trace.to_arrow()
    kinds = {field.name: str(field.type) for field in table.schema}
    narrow, wide = (f"dictionary<values=string, indices={kind}, ordered=0>" for kind in KINDS)

    assert table.to_pydict() == columns_of(trace)
    assert kinds == {
        "slot": "int32",
        **dict.fromkeys(("learner", "phase", "arm", "function"), narrow),
        **dict.fromkeys(("cell", "prediction", "label"), wide),
        "correct": "int8",
        "cost": "double",
        "alarm": "int8",
    }


def test_a_dictionary_of_a_long_table_holds_what_occurs() -> None:
    trace = drawn_trace(0, 40, [0, 1], cells=5_000)
    dictionary = trace.to_arrow()["cell"].chunk(0).dictionary

    assert sorted(dictionary.to_pylist()) == sorted(set(trace.columns()["cell"]))


@pytest.mark.parametrize("name", ["trace.parquet", "trace.pq"])
def test_slots_beyond_32_bits_widen_a_parquet_trace(tmp_path: Path, name: str) -> None:
    with TraceFile(tmp_path / name) as file:
        for first_slot in (2**31 - 2, 2**31 - 1, 2**31):
            file.write(drawn_trace(0, 1, [0], first_slot=first_slot))
    slots = parquet.read_table(tmp_path / name)["slot"]

    assert slots.type == arrow.int64()
    assert slots.to_pylist()[::2] == [2**31 - 2, 2**31 - 1, 2**31]


@pytest.mark.parametrize("size", [2, 2_000])
@pytest.mark.parametrize("kind", [str, int, float])
def test_a_chunk_without_labels_keeps_the_type_of_labels(
    tmp_path: Path, size: int, kind: type
) -> None:
    labels = [kind(value) for value in range(size)]
    traces = [drawn_trace(0, 9, labels, is_unlabelled=missing) for missing in (True, False, True)]
    with TraceFile(tmp_path / "trace.parquet") as file:
        for trace in traces:
            file.write(trace)
    found = parquet.read_table(tmp_path / "trace.parquet")["label"].to_pylist()

    assert found == [value for trace in traces for value in trace.columns()["label"]]


def test_a_label_that_arrow_cannot_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught, TraceFile(tmp_path / "trace.parquet") as file:
        file.write(drawn_trace(0, 9, [2**70]))

    assert str(caught.value) == (
        "Arrow cannot hold column 'prediction' (Python int too large to convert to C long); write "
        "the trace as CSV, or use other labels"
    )
    assert list(tmp_path.iterdir()) == []


@BOTH_KINDS
def test_the_trace_appears_only_when_complete(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with TraceFile(path) as file:
        file.write({"slot": [1]})
        appeared = path.exists()

    assert not appeared
    assert list(tmp_path.iterdir()) == [path]


def write_and_fail(path: Path) -> None:
    with TraceFile(path) as file:
        file.write({"slot": [1]})
        raise LookupError("the log is bad")


@BOTH_KINDS
def test_an_error_leaves_no_file_and_keeps_an_earlier_trace(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(LookupError, match="the log is bad"):
        write_and_fail(path)
    assert list(tmp_path.iterdir()) == []
    path.write_text("the trace of yesterday", encoding="utf-8")
    with pytest.raises(LookupError):
        write_and_fail(path)

    assert path.read_text(encoding="utf-8") == "the trace of yesterday"


@BOTH_KINDS
def test_a_failed_rename_leaves_no_partial_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.mkdir()
    with pytest.raises(OSError, match="directory"), TraceFile(path) as file:
        file.write({"slot": [1]})

    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("first", "second", "all_values"),
    [
        ([1, 0], [0.5], [1.0, 0.0, 0.5]),
        ([0.5], [1, 0], [0.5, 1.0, 0.0]),
        ([None, None], [1], [None, None, 1]),
        ([None], ["attack"], [None, "attack"]),
        ([1], [None], [1, None]),
        ([None], [None], [None, None]),
    ],
)
def test_a_parquet_schema_widens_after_the_first_rows(
    tmp_path: Path, first: list[Any], second: list[Any], all_values: list[Any]
) -> None:
    path = tmp_path / "trace.parquet"
    with TraceFile(path) as file:
        file.write({"label": first})
        file.write({"label": second})
        file.write({"label": first})

    assert parquet.read_table(path)["label"].to_pylist() == [*all_values, *first]
    assert [one.name for one in tmp_path.iterdir()] == ["trace.parquet"]


@pytest.mark.parametrize("name", ["trace.txt", "trace", "trace.csv.gz", "trace.CSV"])
def test_a_trace_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TraceFile(tmp_path / name)

    assert str(caught.value) == f"the trace {name} must end in .csv or .parquet"


def test_a_trace_in_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        TraceFile(tmp_path / "runs" / "trace.csv")

    assert str(caught.value) == f"folder {tmp_path / 'runs'} of the trace does not exist; create it"
