"""Labels late by times: a label is usable by the first row whose time is at or after its own."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import covey
from covey.data.times import ArrivalTimes, Timing, duration_of

START = datetime(2024, 5, 1, 13, 30)
HOUR = timedelta(hours=1)
SITES = [
    {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.05}},
    {"name": "south", "functions": ["c"], "peers": {}},
]
WHOLE = {"data": {"context": ["x"]}, "learner": SITES, "policy": {"preset": "cos", "slices": 2}}


def stream(rows: int = 300, seed: int = 1) -> dict[str, Any]:
    """Make a log whose rows are at irregular times, many of them at the same one."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, rows)
    right = rng.random((3, rows)) < np.array([[0.6], [0.8], [0.9]])
    hours = np.cumsum(rng.integers(0, 3, rows) * rng.integers(0, 4, rows))
    columns = dict(zip("abc", np.where(right, label, 1 - label), strict=True))
    return {"label": label, **columns, "x": rng.random(rows), "hours": hours}


def slots_until(times: list[int], due: list[int | None]) -> list[int]:
    """Say how many rows later each label comes, so that it counts before the first later row.

    -1: it never comes. Labels of times after the last row come after it.
    """
    slots = []
    for t, time in enumerate(due):
        later = (
            j - 1 - t for j in range(t + 1, len(times)) if time is not None and times[j] >= time
        )
        after = len(times) - t if time is not None and time > times[-1] else 0
        slots.append(-1 if time is None else next(later, after))
    return slots


@given(st.data())
def test_every_label_is_there_before_the_first_row_at_or_after_its_time(
    data: st.DataObject,
) -> None:
    times = np.cumsum(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=30))).tolist()
    late = st.one_of(st.none(), st.integers(-2, 12))
    lateness = [data.draw(late) for _ in times]
    due = [None if k is None else t + k for t, k in zip(times, lateness, strict=True)]
    wait = data.draw(st.none() | st.integers(0, 9))
    ends = sorted(data.draw(st.sets(st.integers(1, len(times)), max_size=5)) | {len(times)})
    columns = {"at": [*map(float, times)], "known": [*map(_or_nothing, due)]}
    cuts = [
        {n: c[k:e] for n, c in columns.items()} for k, e in zip([0, *ends[:-1]], ends, strict=True)
    ]

    timing = Timing("at", "known", None, None if wait is None else wait * 1_000_000)
    chunks: list[ArrivalTimes] = [found for _, found in timing.arrivals(cuts)]

    assert [len(chunk.delay) for chunk in chunks] == [len(cut["at"]) for cut in cuts]
    delay = np.concatenate([chunk.delay for chunk in chunks])
    expected = slots_until(times, due)
    if wait is not None:
        waits = np.concatenate([chunk.wait for chunk in chunks if chunk.wait is not None])
        assert waits.tolist() == slots_until(times, [t + wait + 1 for t in times])
        expected = [k if k <= most else most + 1 for k, most in zip(expected, waits, strict=True)]
        delay = np.minimum(delay, waits + 1)
    assert delay.tolist() == expected


@pytest.mark.parametrize(
    ("timing", "read"),
    [
        (Timing("at", None, 2_000_000, None), 2),  # the last label is there at 3 s, as row 4 is
        (Timing("at", None, 2_000_001, None), 3),
        (Timing("at", "known", None, None), 2),  # at 3 s or never
        (Timing("at", None, 9_000_000, 1_000_000), 2),  # it expires after 2 s
        (Timing("at", None, 9_000_000, 2_000_000), 3),
    ],
)
def test_rows_are_passed_on_once_later_rows_say_when_their_labels_come(
    timing: Timing, read: int
) -> None:
    chunks = iter(
        [{"at": [k, k + 1.0], "known": [float("nan"), k + 3.0]} for k in (0.0, 2.0, 4.0, 6.0)]
    )
    next(timing.arrivals(chunks))

    assert len([*chunks]) == 4 - read


@pytest.mark.parametrize(
    ("timing", "column", "words"),
    [
        (
            Timing("at", None, None, None),
            {"at": [3.0, None]},
            "column 'at' is None, which is not a",
        ),
        (Timing("at", None, None, None), {"at": [3.0, "noon"]}, "column 'at' is 'noon', which is"),
        (Timing("at", None, "late", None), {"late": ["0s", "soon"]}, "column 'late' is 'soon', wh"),
        (Timing("at", None, "late", None), {"late": [None, -HOUR]}, "column 'late' is .*duration"),
    ],
)
def test_what_is_no_time_is_named_by_its_row(
    timing: Timing, column: dict[str, Any], words: str
) -> None:
    good = {"at": [1.0, 2.0], "late": ["1s", "0s"]}
    with pytest.raises(covey.DataError, match=f"^row 4: {words}"):
        list(timing.arrivals([good, {"at": [3.0, 4.0], "late": ["1s", "2s"], **column}]))


def _or_nothing(time: int | None) -> float:
    return float("nan") if time is None else float(time)


def test_a_replay_by_times_decides_as_one_by_the_slots_that_they_come_to(tmp_path: Path) -> None:
    log = stream()
    hours = log.pop("hours").tolist()
    slots = slots_until(hours, [hour + 36 for hour in hours])
    by_slots = covey.replay(
        {**WHOLE, "data": {"context": ["x"], "delay": "k"}}, {**log, "k": slots}
    )
    moments = [START + hour * HOUR for hour in hours]
    known = [moment + 36 * HOUR for moment in moments]
    columns = {**log, "ts": moments, "known": known, "late": [36 * HOUR] * len(hours)}
    texts = {**columns, "ts": [f"{m.isoformat()}Z" for m in moments], "late": ["1.5d"] * len(hours)}
    path = tmp_path / "log.parquet"
    parquet.write_table(arrow.table(columns), path)

    for keys in ({"delay": "36h"}, {"delay": "late"}, {"label-time": "known"}):
        config = {**WHOLE, "data": {"context": ["x"], "time": "ts", **keys}}
        for data in (columns, texts, path):
            trace = covey.replay(config, data).trace
            assert trace.columns() == by_slots.trace.columns()


def test_labels_that_never_come_have_no_time() -> None:
    log = stream(40)
    hours = log.pop("hours")
    never = np.arange(40) % 2 == 0
    known = np.where(never, np.nan, hours)
    log["label"] = [
        None if hidden else int(v) for v, hidden in zip(log["label"], never, strict=True)
    ]
    config = {**WHOLE, "data": {"time": "h", "label-time": "known", "context": ["x"]}}

    trace = covey.replay(config, {**log, "h": hours, "known": known}).trace

    assert (trace.label[trace.row % 2 == 0] == -1).all()
    assert set(trace.correct[trace.row % 2 == 1]) == {0, 1}


def test_a_label_that_comes_after_its_wait_does_not_count() -> None:
    hours = np.arange(200)
    log = {**stream(200), "h": 3600 * hours}
    data = {"context": ["x"], "time": "h", "delay": "5h"}

    def trace(data: dict[str, Any], wait: Any, **more: Any) -> Any:
        policy = {"preset": "cos", "slices": 1, "label-wait": wait, "pending": True}
        return covey.replay(
            {"learner": SITES, "data": data, "policy": policy}, {**log, **more}
        ).trace

    in_slots = {"context": ["x"], "delay": "k"}
    for wait, slots in (("3h", 3), ("4h", 4), ("1d", 24)):
        assert trace(data, wait).columns() == trace(in_slots, slots, k=np.full(200, 4)).columns()
    assert len(np.unique(trace(data, "3h").arm)) == 3  # it explores on: nothing is known


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("90min", 5_400),
        ("1.5 h", 5_400),
        ("7d", 604_800),
        ("2w", 1_209_600),
    ],
)
def test_durations_have_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration_of(text) == seconds * 1_000_000


def test_times_with_a_zone_are_compared_in_utc() -> None:
    east = datetime.fromisoformat("2024-05-01T15:30:00+02:00")
    log = {"label": [1, 1], "a": [1, 1], "b": [0, 0], "c": [1, 0], "x": [0.1, 0.2]}
    config = {**WHOLE, "data": {"time": "ts", "context": ["x"]}}

    covey.replay(config, {**log, "ts": [START.replace(tzinfo=UTC), east]})  # the same time
    with pytest.raises(covey.DataError, match="row 2: .*sort the rows"):
        covey.replay(config, {**log, "ts": [START.replace(tzinfo=UTC), east - HOUR]})
