"""Replay of one log in parts: its cells are divided among processes; the result is that of one.

Every process reads all rows, and plays those of its own cells in their own slots. A job is one
stretch of the log, for one part. Its result has the state of the part, with which any process can
play the next stretch. So a job that is lost is played again, and finished ones are kept.
"""

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey import files
from covey.bandit.cutting import WHY, CellWeights, Division, weights_of, why_coupled
from covey.bandit.partitions import Uniform
from covey.config import NetworkConfig, load
from covey.data import tables
from covey.data.logs import DecisionColumns, EncodedLog, Trace, TraceFile
from covey.data.tables import ROWS_PER_CHUNK, ParquetLog
from covey.errors import ConfigError, DataError
from covey.jobs import folders
from covey.jobs.running import Pool, completed, unbroken
from covey.replay.encoding import Encoder
from covey.replay.outcome import Outcome
from covey.replay.replay import (
    Progress,
    ReplayRun,
    RunState,
    check_horizon,
    encoded,
    used_columns,
    with_sample,
)

ROWS = 1 << 22  # of a stretch, at least: so many are lost with a worker
ROWS_WITH_TRACE = 1 << 20  # then decisions travel, too
BY_ROW_LAST = ("predictions", "gains", "costs")  # arrays of a log whose second axis is its rows
MOST_CHUNKS = 16  # that are read as one
SAMPLES = 8  # row groups that cells are counted in


class Stretch(NamedTuple):
    """Consecutive row groups of a log."""

    first_row: int
    rows: int
    groups: list[int]


class TracePart(msgspec.Struct):
    """The decisions of one part in one stretch."""

    rows: np.ndarray  # of the stretch, from 0
    decided: list[np.ndarray]  # the columns of the kernel
    cells: list[str]  # their names, by number
    answers: np.ndarray  # learner, row -> answers from stored labels; empty without context peers


class StretchResult(msgspec.Struct):
    """What a job returns: the state of a part after a stretch."""

    state: RunState
    trace: TracePart | None


class PartJob(NamedTuple):
    """One stretch of one part."""

    part: int
    stretch: int


def check_divisible(setup: NetworkConfig, baselines: Sequence[str] = ()) -> int:
    """Return the slices of the grid; raise `ConfigError` if cells cannot be divided."""
    policies = setup.policies(setup.context.dimension)
    why = why_coupled(
        policies,
        has_candidates=any(len(site.spaces) > 1 for site in setup.sites),
        has_ensemble=setup.ensemble is not None,
        learns_link_costs=setup.wiring is not None and bool(setup.wiring.tolls),
    )
    for is_there, what, remedy in (
        (len(policies) > 1, "context of a [[learner]]", "let all learners have the same context"),
        (setup.wiring is not None and setup.wiring.is_moving, "[[link-change]]", "remove it"),
        (setup.data.batch is not None, "batch in [data]", "remove it"),
        (setup.data.only is not None, "only in [data]", "write the rows to another log"),
        (setup.context.has_previous, "scale 'previous-label'", "use other contexts"),
        (bool(baselines), "--baselines", "leave it out"),
    ):
        if is_there and why is None:
            why = f"{what} {WHY}; {remedy}"
    if why is not None:
        raise ConfigError(f"{why}, or replay the log in one process")
    partition = policies[0].partition
    assert isinstance(partition, Uniform)
    return partition.slices


def replay_in_parts(
    path: Path,
    config: Mapping[str, Any],
    pool: Pool,
    *,
    parts: int | None = None,
    out: Path | None = None,
    trace: TraceFile | None = None,
    progress: Progress = lambda share, slots: None,
    tell: Callable[[str], None] = lambda text: None,
    stretch_rows: int | None = None,
) -> Outcome:
    """Replay a Parquet log with its cells divided among workers: the outcome is that of one.

    `parts` is their number (default: the workers of `pool`, but no more than can help). The folder
    `out` keeps what is finished: a repeated call resumes. `tell` receives how fast it can be at
    best.
    """
    setup = load(config)
    slices = check_divisible(setup)
    reader = _open(path, setup)
    check_horizon(setup, reader.rows_total or 0)
    wanted = stretch_rows or (ROWS if trace is None else ROWS_WITH_TRACE)
    stretches = list(_stretches(reader.group_rows(), wanted))
    weights = _weights(path, setup, slices, reader.group_rows())
    described = _described(path, config, reader, stretches, has_trace=trace is not None)
    useful = math.ceil(weights.most_parts)
    count = _claimed(out, described, parts or min(pool.workers, useful))
    division = weights.divided(count)
    tell(_bound(weights, division))
    work = _Work(path.absolute(), config, division, stretches, trace is not None, out)
    final = _Merger(setup, work, trace)
    done = [0] * count
    for job, result in _results(work, pool):
        final.add(job, result)
        done[job.part] = stretches[job.stretch].first_row + stretches[job.stretch].rows
        progress(sum(done) / count / (reader.rows_total or 1), sum(done) // count)
    return final.outcome()


class _Work(NamedTuple):
    path: Path
    config: Mapping[str, Any]
    division: Division
    stretches: list[Stretch]
    is_traced: bool
    out: Path | None

    def kept(self, job: PartJob) -> Path | None:
        """Return the file of a finished job."""
        name = f"{job.part}-{job.stretch}.msgpack"
        return None if self.out is None else self.out / "parts" / name


def play_stretch(
    path: Path,
    config: Mapping[str, Any],
    division: Division,
    part: int,
    stretch: Stretch,
    before: bytes | None,
    is_traced: bool,
) -> bytes:
    """Play the rows of one part in one stretch of a log, from the state before; called by workers.

    Returns an encoded `StretchResult`.
    """
    setup = load(config)
    encoder = Encoder(setup, is_typed=True, first_slot=stretch.first_row + 1)
    run = ReplayRun(setup, encoder.vocabulary, width=setup.context.dimension)
    if before is not None:
        run.restore(decode(before).state)
    pieces: list[_Piece] = []
    for first_row, log in _chunks(path, setup, encoder, stretch, division.parts):
        points = np.asarray(log.contexts).reshape(len(log.labels), -1)
        # Maybe none, but a log of no rows tells the kernel how late labels are counted.
        rows = np.flatnonzero(division.parts_of(points) == part)
        own = _taken(log, rows, first_row)
        decided = run.decide(own)
        run.judge(own, decided)
        if is_traced:
            answers = np.asarray(own.predictions)[len(_functions(setup)) :]
            pieces.append(_Piece(rows + first_row - stretch.first_row, decided, answers))
    state = run.state(stretch.first_row + stretch.rows)
    return encode(StretchResult(state, _trace_part(pieces) if is_traced else None))


class _Piece(NamedTuple):
    rows: np.ndarray  # of the stretch
    trace: Trace
    answers: np.ndarray


def _trace_part(pieces: Sequence[_Piece]) -> TracePart:
    empty = np.zeros(0, np.int64)
    columns = zip(*(piece.trace.decided for piece in pieces), strict=True)
    return TracePart(
        rows=np.concatenate([empty, *(piece.rows for piece in pieces)]),
        decided=[np.concatenate(column) for column in columns],
        cells=[str(name) for name in pieces[-1].trace.names["cell"]] if pieces else [],
        answers=np.concatenate([piece.answers for piece in pieces], axis=1) if pieces else empty,
    )


def _chunks(
    path: Path, setup: NetworkConfig, encoder: Encoder, stretch: Stretch, parts: int = 1
) -> Iterator[tuple[int, EncodedLog]]:
    """Yield the rows of a stretch, encoded, with the number of the first one from 0.

    Chunks are larger with more `parts`, of which one is used.
    """
    reader = _open(path, setup)
    if setup.context.sample_rows:
        with contextlib.closing(reader.chunks()) as chunks:
            with_sample(setup.context, chunks)
    first = stretch.first_row
    rows = ROWS_PER_CHUNK * min(parts, MOST_CHUNKS)
    with contextlib.closing(reader.chunks(stretch.groups, rows=rows)) as chunks:
        for log in encoded(setup, chunks, encoder):
            yield first, log
            first += len(log.labels)


def _taken(log: EncodedLog, rows: np.ndarray, first_row: int) -> EncodedLog:
    """Return some rows of a log, with their slots."""
    count = len(log.labels)
    found: dict[str, Any] = {"slots": (rows + first_row + 1).astype(np.int64).data}
    for name, column in log._asdict().items():
        if column is None:
            continue
        array = np.asarray(column)
        if name == "contexts":
            taken = array.reshape(count, -1).take(rows, axis=0).reshape(-1)
        else:
            taken = array.take(rows, axis=1 if name in BY_ROW_LAST else 0)
        found[name] = np.ascontiguousarray(taken).data
    return log._replace(**found)


def _results(work: _Work, pool: Pool) -> Iterator[tuple[PartJob, StretchResult]]:
    """Yield each job with its result: of a part in order, of all parts as they finish."""
    last: dict[int, bytes] = {}
    jobs: deque[PartJob] = deque()
    for part in range(work.division.parts):
        stretch = 0
        for job, content in _kept(work, part):
            yield job, decode(content)
            last[part], stretch = content, job.stretch + 1
        if stretch < len(work.stretches):
            jobs.append(PartJob(part, stretch))

    def submit(workers: Pool, job: PartJob) -> "Future[bytes]":
        stretch = work.stretches[job.stretch]
        given = (work.path, work.config, work.division, job.part, stretch)
        return workers.submit(play_stretch, *given, last.get(job.part), work.is_traced)

    with unbroken("parts"):
        for job, future in completed(jobs, submit, pool):
            last[job.part] = content = future.result()
            _keep(work, job, content)
            if job.stretch + 1 < len(work.stretches):
                jobs.append(PartJob(job.part, job.stretch + 1))
            yield job, decode(content)


def _kept(work: _Work, part: int) -> Iterator[tuple[PartJob, bytes]]:
    """Yield the finished jobs of a part that the folder has; the last one, without a trace."""
    found = [PartJob(part, stretch) for stretch in range(len(work.stretches))]
    there = [job for job in found if (path := work.kept(job)) is not None and path.exists()]
    if not work.is_traced:
        there = there[-1:]
    for job in there:
        path = work.kept(job)
        assert path is not None
        yield job, path.read_bytes()


def _keep(work: _Work, job: PartJob, content: bytes) -> None:
    path = work.kept(job)
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, content)
    before = work.kept(PartJob(job.part, job.stretch - 1))
    if not work.is_traced and before is not None:
        before.unlink(missing_ok=True)


class _Merger:
    """Puts the results of all parts together: the trace in the order of slots, then the outcome."""

    def __init__(self, setup: NetworkConfig, work: _Work, trace: TraceFile | None) -> None:
        self._work = work
        self._setup = setup
        self._trace = trace
        self._encoder = Encoder(setup, is_typed=True)
        # Its engines decide nothing: they name what the trace and the outcome hold.
        self._run = ReplayRun(setup, self._encoder.vocabulary, width=setup.context.dimension)
        self._traces: dict[int, list[TracePart]] = {}
        self._written = 0
        self._states: dict[int, RunState] = {}

    def add(self, job: PartJob, result: StretchResult) -> None:
        if job.stretch == len(self._work.stretches) - 1:
            self._states[job.part] = result.state
        if result.trace is None or self._trace is None:
            return
        self._traces.setdefault(job.stretch, []).append(result.trace)
        while len(self._traces.get(self._written, ())) == self._work.division.parts:
            self._write(self._work.stretches[self._written], self._traces.pop(self._written))
            self._written += 1

    def outcome(self) -> Outcome:
        """Return the outcome of all parts."""
        states = [self._states[part] for part in sorted(self._states)]
        for other in states[1:]:
            states[0].add(other)
        encoder = Encoder(self._setup, is_typed=True)
        width = self._setup.context.dimension
        run = ReplayRun(self._setup, encoder.vocabulary, width=width)
        run.restore(states[0])
        return run.outcome()

    def _write(self, stretch: Stretch, parts: Sequence[TracePart]) -> None:
        """Write the trace of a stretch; labels and answers are those of the log."""
        assert self._trace is not None
        numbers: dict[str, int] = {}
        for part in parts:
            for name in part.cells:
                numbers.setdefault(name, len(numbers))
            renamed = np.array([numbers[name] for name in part.cells] or [0], np.int32)
            if len(part.rows):
                part.decided[0] = renamed[part.decided[0]]
        first = 0
        for first_row, log in _chunks(self._work.path, self._setup, self._encoder, stretch):
            end = first + len(log.labels)
            decided = _gathered(parts, log, first, end, len(_functions(self._setup)))
            trace = self._run.trace_of(decided, log, first_row + 1, list(numbers))
            self._trace.write(trace)
            first = end


def _gathered(
    parts: Sequence[TracePart], log: EncodedLog, first: int, end: int, functions: int
) -> DecisionColumns:
    """Return the decisions on the rows from `first` to before `end`, in the order of rows.

    Answers from stored labels are written into the log.
    """
    predictions = np.asarray(log.predictions)
    columns: list[np.ndarray] = []
    for part in parts:
        if not len(part.rows):
            continue
        low, high = np.searchsorted(part.rows, [first, end])
        here = part.rows[low:high] - first
        each = len(part.decided[0]) // len(part.rows)  # decisions per row
        for place, column in enumerate(part.decided):
            if len(columns) <= place:
                width = each if len(column) else 0
                columns.append(np.zeros(((end - first) * width,), column.dtype))
            if len(column):
                own = column[low * each : high * each].reshape(-1, each)
                columns[place].reshape(-1, each)[here] = own
        if part.answers.size:
            predictions[functions:, here] = part.answers[:, low:high]
    return DecisionColumns(*columns)


def _functions(setup: NetworkConfig) -> list[str]:
    return [name for site in setup.sites for name in site.functions]


def _open(path: Path, setup: NetworkConfig) -> ParquetLog:
    reader = tables.open_log(path, used_columns(setup))
    if not isinstance(reader, ParquetLog):
        raise DataError(f"{path.name} cannot be read from the middle; convert it to .parquet")
    if not reader.rows_total:
        raise DataError(f"{path.name} has no rows; a log needs at least one")
    return reader


def _stretches(groups: Sequence[int], rows: int) -> Iterator[Stretch]:
    """Yield stretches of whole row groups with at least so many rows each."""
    starts = [0, *accumulate(groups)]
    some: list[int] = []
    for group in range(len(groups)):
        some.append(group)
        count = starts[group + 1] - starts[some[0]]
        if count >= rows or group + 1 == len(groups):
            yield Stretch(starts[some[0]], count, some)
            some = []


def _weights(path: Path, setup: NetworkConfig, slices: int, groups: Sequence[int]) -> CellWeights:
    """Count the cells of a sample: the first rows of some row groups, from all over the log."""
    reader = _open(path, setup)
    if setup.context.sample_rows:
        with contextlib.closing(reader.chunks()) as chunks:
            with_sample(setup.context, chunks)
    starts = [0, *accumulate(groups)]
    samples = []
    for group in np.unique(np.linspace(0, len(groups) - 1, SAMPLES).astype(int)).tolist():
        with contextlib.closing(reader.chunks([group])) as chunks:
            columns = next(chunks, None)
        if columns is not None:
            samples.append(setup.context.extract(columns, first_slot=starts[group] + 1))
    return weights_of(samples, slices)


def _bound(weights: CellWeights, division: Division) -> str:
    rows = weights.rows.sum()
    busiest = np.bincount(division.owners, weights.rows).max() / rows
    return (
        f"{division.parts} parts: at most {1 / busiest:.1f} times as fast as one process. The "
        f"busiest of {len(weights.codes):,} cells has {1 / weights.most_parts:.1%} of a sample of "
        f"{int(rows):,} rows, so more parts bring at most {weights.most_parts:.1f} times"
    )


def _described(
    path: Path,
    config: Mapping[str, Any],
    reader: ParquetLog,
    stretches: Sequence[Stretch],
    *,
    has_trace: bool,
) -> dict[str, Any]:
    """Return all that finished parts depend on."""
    stat = path.stat()
    return {
        "covey": version("covey"),
        "log": {"bytes": stat.st_size, "modified-ns": stat.st_mtime_ns, "rows": reader.rows_total},
        "config": msgspec.to_builtins(config, enc_hook=repr),
        "stretches": len(stretches),
        "trace": has_trace,
    }


def _claimed(out: Path | None, described: Mapping[str, Any], parts: int) -> int:
    """Mark the folder as that of this replay; return its number of parts."""
    if out is None:
        return parts
    stored = folders.kept(out / "replay.json", dict[str, Any]) or {}
    parts = stored.get("parts", parts)
    folders.claim(out, {**described, "parts": parts}, file="replay.json", what="replay")
    return parts


_encoder = msgspec.msgpack.Encoder(
    enc_hook=lambda array: [array.dtype.str, list(array.shape), array.tobytes()]
)


def _array(kind: type, found: Any) -> np.ndarray:
    dtype, shape, content = found
    return np.frombuffer(content, dtype).reshape(shape).copy()


_decoder = msgspec.msgpack.Decoder(StretchResult, dec_hook=_array)


def encode(result: StretchResult) -> bytes:
    """Return a result as bytes, which are sent and kept."""
    return _encoder.encode(result)


def decode(content: bytes) -> StretchResult:
    """Return the result in the bytes of `encode`."""
    return _decoder.decode(content)
