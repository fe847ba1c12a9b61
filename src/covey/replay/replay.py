"""Replay recorded predictions: from arrays, from a table in memory, or from a file in chunks."""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey.bandit.partitions import MOST_DRAWN
from covey.bandit.policies import Own
from covey.config import ContextSpaces, NetworkConfig, in_batches
from covey.data import contexts, logs, tables
from covey.data.logs import Columns, EncodedLog, Trace, TraceFile
from covey.data.times import ArrivalTimes
from covey.errors import ConfigError, DataError
from covey.replay.baselines import BaselineRun, make
from covey.replay.encoding import Encoder, Vocabulary, runs_of, wanted_rows
from covey.replay.engine import CellView, ReplayEngine
from covey.replay.outcome import (
    BestFunction,
    ContextNumbers,
    ContextWorth,
    Outcome,
    OutcomeBuilder,
    RowGains,
    TellingContext,
    aligned,
    gain_of,
)
from covey.replay.voting import EnsembleReplay
from covey.types import Array, Interval, Label

FEWEST_ROWS = 500  # of a learner, to warn of too many cells
NARROW = 0.001  # share of an axis, to warn of a context
ROWS_PER_CELL = 32  # that a warning proposes
MOST_ROWS = 8192  # of a log, in equal distances, by which contexts are ranked
MOST_LISTED = 10  # contexts
PARTS = 4  # of an axis, with equally many rows
DEVIATIONS = 1.96  # half width of a 95 % interval


OPTIONAL = ("at", "revealed", "delay", "batch")  # arrays by row
ConfigLike = str | Path | Mapping[str, Any]
Progress = Callable[[float, int], None]  # processed share of the log, slots so far


class ReplayRun:
    """A replay in progress: decisions, then what they are compared with, chunk by chunk."""

    def __init__(
        self,
        setup: NetworkConfig,
        vocabulary: Vocabulary,
        *,
        width: int,
        baselines: Sequence[str] = (),
    ) -> None:
        """Prepare a replay of contexts with `width` coordinates."""
        self._setup = setup
        self._width = width
        labels = vocabulary.values
        self._together = ReplayEngine(setup, setup.sites, width, labels)
        self._tally = OutcomeBuilder(setup.sites, setup.unit, setup.payments())
        self._voting = _voting(setup, vocabulary)
        alone = tuple(site.alone() for site in setup.sites)
        # Sites that have no peers, or vote, decide as they would alone.
        is_compared = alone != setup.sites and self._voting is None
        self._alone = ReplayEngine(setup, alone, width, labels) if is_compared else None
        self._contest = _contest(setup, baselines) if baselines else None
        is_compared = width > 0 and self._voting is None
        self._bare = context_run(setup, labels) if is_compared else None
        self._least, self._most = np.full(width, math.inf), np.full(width, -math.inf)

    @property
    def slots(self) -> int:
        """The slots so far."""
        return self._together.slots

    def decide(self, log: EncodedLog) -> Trace:
        """Return the decisions of the next rows."""
        starts = logs.slot_starts(log, are_shared=self._setup.shares_slots)
        check_horizon(self._setup, self.slots + len(starts) - 1)
        return self._together.play(log)

    def judge(self, log: EncodedLog, chunk: Trace) -> None:
        """Add decided rows to the outcome, with what learners alone and baselines do there."""
        self._tally.add(chunk, chunk if self._alone is None else self._alone.play(log))
        self._tally.add_functions(log)
        if self._width and len(log.contexts):
            points = np.asarray(log.contexts).reshape(-1, self._width)
            self._least = np.minimum(self._least, points.min(axis=0))
            self._most = np.maximum(self._most, points.max(axis=0))
        if self._voting is not None:
            self._voting.add(chunk, log)
        if self._contest is not None:
            self._contest.add(log)
        if self._bare is not None:
            self._bare.add(log)

    def outcome(self) -> Outcome:
        """Return the outcome of all judged rows."""
        setup, together = self._setup, self._together
        for name, share in self._tally.unfit().items():
            warnings.warn(
                f"{share:.0%} of the predictions of {name!r} are not labels of the log; if they "
                "are probabilities, log the predicted labels",
                stacklevel=3,
            )
        views = [together.cells(index) for index in range(len(setup.sites))]
        self._warn_of_thin(views)
        self._warn_of_narrow()
        learners = self._tally.learners(views, together.blind(), together.alarms())
        names = setup.context.names or [f"context {k + 1}" for k in range(self._width)]
        return self._tally.outcome(
            learners,
            context_names=names,
            policy=together.title,
            ensemble=None if self._voting is None else self._voting.outcome(learners),
            spaces=len(setup.plan.of_width(self._width)),
            baselines=None if self._contest is None else self._contest.outcome(),
            context_ticks=setup.context.ticks(),
            contexts=None if self._bare is None else self._bare.worth(self._tally, names),
            value=setup.data.value,
        )

    def _warn_of_narrow(self) -> None:
        """Warn of contexts that are almost the same in all rows: often a scale does not fit."""
        names = self._setup.context.names  # none: contexts were given as arrays
        if self.slots < FEWEST_ROWS or not names or len(names) != self._width:
            return
        covered = np.split(self._most - self._least, np.cumsum(self._setup.context.widths)[:-1])
        for scale, part in zip(self._setup.context.scales, covered, strict=True):
            if part.max() < NARROW:
                name = scale.name
                warnings.warn(
                    f"context {name!r} covers less than {NARROW:.1%} of its scale, so nothing can "
                    "be learnt from it; see whether low, high and scale fit (the scales of time "
                    "take dates, or seconds since 1970)",
                    stacklevel=4,
                )

    def _warn_of_thin(self, views: Sequence[Sequence[CellView]]) -> None:
        """Warn if the cells of a learner have hardly any row each."""
        for site, cells in zip(self._setup.sites, views, strict=True):
            rows, used = sum(cell.arrivals for cell in cells), len(cells)
            if rows < FEWEST_ROWS or 2 * used < rows:
                continue
            dimension = max(1, len(cells[0].low))
            fitting = max(1, int((rows / ROWS_PER_CELL) ** (1 / dimension)))
            hint = f"slices = {fitting} for some {ROWS_PER_CELL} rows in each"
            if dimension > MOST_DRAWN:
                hint = "the default policy"
            warnings.warn(
                f"{rows:,} rows of {site.name!r} lie in {used:,} cells, so cells have too few rows "
                f"to learn from; use fewer contexts, or {hint}",
                stacklevel=4,
            )


class ContextRun:
    """The same learners without contexts, in the same replay."""

    def __init__(self, setup: NetworkConfig, labels: Sequence[Label]) -> None:
        """Raise `ConfigError` if the policy cannot do without contexts."""
        sites = [site._replace(spaces=(0,)) for site in setup.sites]
        plan = ContextSpaces([], ((),), tuple((0,) for _ in sites))
        bare = setup._replace(sites=sites, context=contexts.parse([]), plan=plan)
        self._setup = setup
        self._engine = ReplayEngine(bare, sites, 0, labels)
        self._tally = OutcomeBuilder(sites, setup.unit, has_gains=False)
        self._sample = _Sample(setup.unit)

    def add(self, log: EncodedLog) -> None:
        """Replay the next rows."""
        trace = self._engine.play(log._replace(contexts=np.empty(0).data))
        self._tally.add(trace, trace)
        self._sample.add(log)

    def worth(self, tally: OutcomeBuilder, names: Sequence[str]) -> ContextWorth | None:
        """Return what contexts of these names were worth; `tally` has the rows with them."""
        pairs = [*zip(tally.gains(), self._tally.gains(), strict=True)]
        learners = {
            site.name: numbers
            for site, pair in zip(self._setup.sites, pairs, strict=True)
            if (numbers := _numbers([pair])) is not None
        }
        total = _numbers(pairs)
        if total is None:
            return None
        functions = [name for site in self._setup.sites for name in site.functions]
        return ContextWorth(total, learners, self._sample.ranked(self._setup, names, functions))


def context_run(setup: NetworkConfig, labels: Sequence[Label]) -> ContextRun | None:
    """Return a run without contexts; None for a policy that may not be able to do without."""
    if isinstance(setup.settings, Own):
        return None
    try:
        return ContextRun(setup, labels)
    except ConfigError:  # rewards depend on the context
        return None


def _numbers(pairs: Sequence[tuple[RowGains, RowGains]]) -> ContextNumbers | None:
    """Return the numbers of learners together, from their losses with contexts and without."""
    with_all, rows = aligned([(each.slots, each.lost, each.rows) for each, _ in pairs])
    none, _ = aligned([(each.slots, each.lost, each.rows) for _, each in pairs])
    total = rows.sum()
    if not total:
        return None
    best = [each.best_own for each, _ in pairs if each.rows.any()]
    lost = sum(each for each in best if each is not None)
    return ContextNumbers(
        none_points=float(100 * none.sum() / total),
        given_points=float(100 * with_all.sum() / total),
        best_own_points=None if None in best else float(100 * lost / total),
        gain_points=gain_of(none - with_all, rows),
    )


class _Sample:
    """Labelled rows of a log in equal distances: contexts, and which functions were right."""

    def __init__(self, unit: int) -> None:
        self._unit = unit
        self._every = 1
        self._seen = 0  # rows of the log
        self.rows = np.empty(0, np.int64)  # their numbers in the log
        self.points: Array = np.empty((0, 0))
        self.right: Array = np.empty((0, 0))  # by function

    def add(self, log: EncodedLog) -> None:
        labels = np.asarray(log.labels)
        rows = np.arange(-self._seen % self._every, len(labels), self._every)
        rows = rows[labels[rows] >= 0]
        points = np.asarray(log.contexts).reshape(len(labels), -1)[rows]
        if log.gains is not None:
            right = np.asarray(log.gains)[:, rows] / self._unit
        else:
            right = (np.asarray(log.predictions)[:, rows] == labels[rows]).astype(float)
        if len(self.rows):
            points = np.concatenate([self.points, points])
            right = np.concatenate([self.right, right], axis=1)
        self.rows = np.concatenate([self.rows, self._seen + rows])
        self._seen += len(labels)
        kept = np.arange(len(self.rows))
        while len(kept) > MOST_ROWS:
            self._every *= 2
            kept = np.flatnonzero(self.rows % self._every == 0)
        self.rows, self.points, self.right = self.rows[kept], points[kept], right[:, kept]

    def ranked(
        self, setup: NetworkConfig, names: Sequence[str], functions: Sequence[str]
    ) -> list[TellingContext]:
        right = self.right
        contexts = []
        for k, name in enumerate(names if len(right) else ()):
            edges, part = self._parts(k)
            gain = _gain(part, right)
            if gain.low is not None and gain.low > 0:
                best = [functions[_best(right[:, part == each])] for each in range(len(edges) + 1)]
                pieces = _merged(setup, k, [0.0, *edges.tolist(), 1.0], best)
                contexts.append(TellingContext(name, gain, pieces))
        contexts.sort(key=lambda context: -context.gain_points.mean)
        return contexts[:MOST_LISTED]

    def gains(self) -> list[Interval]:
        """Return the gain by each context."""
        return [_gain(self._parts(k)[1], self.right) for k in range(self.points.shape[1])]

    def _parts(self, context: int) -> tuple[Array, Array]:
        """Return the edges of the parts of a context, and the part of each row."""
        points = self.points[:, context]
        edges = np.unique(np.quantile(points, np.arange(1, PARTS) / PARTS))
        return edges, np.searchsorted(edges, points, side="left")


def context_gains(setup: NetworkConfig, data: Any) -> list[Interval]:
    """Return what a better choice of functions gains by each coordinate of the contexts alone."""
    sample = _Sample(setup.unit)
    for log in Log(setup, data):
        sample.add(log)
    return sample.gains()


def _best(right: Array) -> int:
    return int(right.sum(axis=1).argmax())


def _gain(part: Array, right: Array) -> Interval:
    """Return the gain of one function per part over one for all.

    Functions are chosen by every second row and counted on the others, and the other way round.
    """
    gained = np.zeros(len(part))
    for half in (0, 1):
        chosen, counted = np.arange(half, len(part), 2), np.arange(1 - half, len(part), 2)
        if not len(chosen):
            return Interval(0.0)
        whole = _best(right[:, chosen])
        own = [
            _best(right[:, chosen[part[chosen] == each]]) if (part[chosen] == each).any() else whole
            for each in range(part.max() + 1)
        ]
        gained[counted] = right[np.array(own)[part[counted]], counted] - right[whole, counted]
    mean = 100 * float(gained.mean())
    reach = 100 * DEVIATIONS * float(gained.std()) / len(gained) ** 0.5
    return Interval(mean, mean - reach, mean + reach)


def _merged(
    setup: NetworkConfig, context: int, edges: Sequence[float], best: Sequence[str]
) -> list[BestFunction]:
    """Return neighbouring parts with the same function as one, with ends in units."""
    merged, first = [], 0
    for function, parts in groupby(best):
        last = first + len([*parts])
        low: float | str = edges[first]
        high: float | str = edges[last]
        if setup.context.dimension:
            # A row at an edge between parts belongs to the part below it.
            ends = [math.nextafter(x, 2.0) if 0 < x < 1 else x for x in (edges[first], edges[last])]
            low, high = setup.context.bounds_at(*([end] * setup.context.dimension for end in ends))[
                context
            ]
        if high != "":  # else no category lies there
            merged.append(BestFunction(low, high, function))
        first = last
    return merged


class Decided:
    """A replay whose decisions are kept in memory; its outcome is computed on first use."""

    def __init__(self, setup: NetworkConfig, data: Any, baselines: Sequence[str] = ()) -> None:
        """Replay a table: a frame, a mapping of columns or the path of a log."""
        self._run, log = _begun(setup, data, baselines)
        self._chunks = [(chunk, self._run.decide(chunk)) for chunk in log]

    @cached_property
    def trace(self) -> Trace:
        """All decisions."""
        traces = [trace for _, trace in self._chunks]
        return traces[0] if len(traces) == 1 else logs.concatenated(traces)

    @cached_property
    def outcome(self) -> Outcome:
        """The counts of every learner, with what it would have done alone."""
        for log, trace in self._chunks:
            self._run.judge(log, trace)
        return self._run.outcome()


def table_of_arrays(
    setup: NetworkConfig, arguments: Mapping[str, Any]
) -> tuple[NetworkConfig, Columns]:
    """Return a set-up and columns for arrays, by the names of the arguments of `covey.replay`.

    None stands for an array that is not there.
    """
    setup, by_row = _named_like_arguments(setup, arguments)
    functions, predictions = _functions(setup), arguments["predictions"]
    if len(predictions) != len(functions):
        raise DataError(
            f"predictions has {len(predictions)} rows, but the learners list {len(functions)} "
            "functions; give one row per function"
        )
    points = _points(setup, arguments["contexts"], len(arguments["labels"]))
    names = setup.context.names or [f"context {k + 1}" for k in range(points.shape[1])]
    more = arguments["columns"] or {}
    pairs = [
        *by_row.items(),
        *zip(functions, predictions, strict=True),
        *zip(names, points.T, strict=True),
        *((name, more[name]) for name in {*_cost_and_delay_columns(setup)} if name in more),
    ]
    columns = dict(pairs)
    if len(columns) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise DataError(f"two arrays have the name {twice!r}; rename the function or column")
    return setup._replace(context=contexts.parse(names)), columns


def _begun(setup: NetworkConfig, data: Any, baselines: Sequence[str]) -> "tuple[ReplayRun, Log]":
    """Return a replay before its first row, and the log."""
    log = Log(setup, data)
    width = setup.context.dimension
    run = ReplayRun(setup, log.vocabulary, width=width, baselines=baselines)
    check_horizon(setup, 0 if setup.shares_slots else log.reader.rows_total or 0)
    return run, log


def replay_file(
    data: Path | Mapping[str, Any],
    setup: NetworkConfig,
    *,
    trace: TraceFile | None = None,
    progress: Progress = lambda share, slots: None,
    baselines: Sequence[str] = (),
) -> Outcome:
    """Replay a log in chunks, of which none is kept, with the named `baselines`.

    `data` is the path of the log, or its columns.
    """
    run, log = _begun(setup, data, baselines)
    for chunk in log:
        decided = run.decide(chunk)
        run.judge(chunk, decided)
        if trace is not None:
            trace.write(decided)
        progress(log.reader.share_read(), run.slots)
    return run.outcome()


def _contest(setup: NetworkConfig, names: Sequence[str]) -> BaselineRun:
    methods = make(names, functions=len(_functions(setup)), seed=setup.settings.seed)
    return BaselineRun(
        methods,
        label_wait=setup.settings.slots_waited,
        receivers=[index for index, site in enumerate(setup.sites) if site.receives],
    )


def _voting(setup: NetworkConfig, vocabulary: Vocabulary) -> EnsembleReplay | None:
    """Return the configured ensemble; its base class gets code 0."""
    if setup.ensemble is None:
        return None
    base = setup.ensemble.base
    if base is not None:
        vocabulary.encode([base], name="base of [ensemble]", first_slot=0)
    voters = [site.name for site in setup.sites if site.receives]
    return EnsembleReplay(setup.ensemble, voters, label_wait=setup.settings.slots_waited)


def used_columns(setup: NetworkConfig) -> list[str]:
    """Return the columns of a log that a configuration names."""
    data = setup.data
    times = [data.delay] if setup.timing is None else setup.timing.columns()
    keys = filter(None, [data.label, data.at, data.revealed, data.batch, data.only, *times])
    used = [*keys, *setup.context.columns, *_functions(setup), *_cost_and_delay_columns(setup)]
    return list(dict.fromkeys(used))


def _functions(setup: NetworkConfig) -> list[str]:
    return [name for site in setup.sites for name in site.functions]


def _cost_and_delay_columns(setup: NetworkConfig) -> list[str]:
    return [*setup.cost_columns, *(d for d in setup.answer_delays if isinstance(d, str))]


class Log:
    """The rows of a log, encoded in the chunks in which they are read."""

    def __init__(self, setup: NetworkConfig, data: Any) -> None:
        """Open a table: a frame, a mapping of columns or the path of a log."""
        self.reader = tables.open_table(data, used_columns(setup))
        self._name = data.name if isinstance(data, Path) else "the table"
        self._setup = setup
        self._encoder = Encoder(setup, is_typed=self.reader.is_typed)
        self.vocabulary = self._encoder.vocabulary
        self._batches = 0  # so far

    def __iter__(self) -> Iterator[EncodedLog]:
        """Yield the chunks; raise `DataError` after the last one if there was no row."""
        data, timing = self._setup.data, self._setup.timing
        # Closed at once if a row is invalid, not when the generator is collected.
        with contextlib.closing(self.reader.chunks()) as chunks:
            whole: Iterator[Columns] = chunks
            if data.only is not None:
                whole = wanted_rows(chunks, data.only)
            if data.batch is not None:
                whole = whole_batches(whole, data.batch)
            if timing is None:
                for columns in whole:
                    yield self._encoded(columns, None)
            else:
                for columns, times in timing.arrivals(whole):
                    yield self._encoded(columns, times)
        if self._encoder.first_slot == 1:
            raise DataError(f"{self._name} has no rows; a log needs at least one")

    def _encoded(self, columns: Columns, times: ArrivalTimes | None) -> EncodedLog:
        setup, encoder = self._setup, self._encoder
        for name in columns.keys() - setup.context.vectors:
            tables.check_flat(columns[name], name)
        arrived = encoder.arrivals(columns, times)
        labels = slots = None
        if setup.context.has_previous:
            labels = logs.named(encoder.vocabulary.values, arrived.labels)
        if setup.shares_slots and arrived.batches is not None:
            slots = self._batches + 1 + arrived.batches
            self._batches = int(slots[-1])
        points = setup.context.extract(
            columns,
            first_slot=encoder.first_slot,
            labels=labels,
            at=arrived.at,
            revealed=arrived.revealed,
            delay=arrived.rows_until_label,
            slots=slots,
        )
        answers = [(name, columns[name]) for name in _functions(setup)]
        return encoder.encode(answers, arrived, points, columns)


def whole_batches(chunks: Iterable[Columns], batch: str) -> Iterator[Columns]:
    """Yield the chunks cut between batches: the last batch of one is the first of the next."""
    held: Columns = {}
    for chunk in chunks:
        columns = (
            {name: tables.joined([held[name], new]) for name, new in chunk.items()}
            if held
            else chunk
        )
        runs = runs_of(columns[batch])
        end = int(np.searchsorted(runs, runs[-1])) if len(runs) else 0
        held = {name: column[end:] for name, column in columns.items()}
        if end:
            yield {name: column[:end] for name, column in columns.items()}
    if held:
        yield held


def check_horizon(setup: NetworkConfig, slots: int) -> None:
    """Raise `ConfigError` if a log has more slots than the horizon."""
    horizon = setup.settings.slots
    if horizon is not None and slots > horizon:
        raise ConfigError(
            f"the log has more rows than the horizon of {horizon} slots; raise horizon in [policy]"
        )


def _named_like_arguments(
    setup: NetworkConfig, arguments: Mapping[str, Any]
) -> tuple[NetworkConfig, Columns]:
    """Return the set-up with columns named like the arguments of `replay`, and the arrays."""
    if not np.ndim(arguments["labels"]) or not len(arguments["labels"]):
        raise DataError("there are no slots to replay; labels is empty")
    arrays = {name: arguments[name] for name in OPTIONAL if arguments[name] is not None}
    for name in OPTIONAL:
        if getattr(setup.data, name) is not None and name not in arrays:
            raise ConfigError(
                f"the configuration has {name} in [data]; give replay the array {name}"
            )
    for name in ("only", "time"):
        if getattr(setup.data, name) is not None:
            raise ConfigError(
                f"the configuration has {name} in [data]; pass columns by name as data"
            )
    if setup.ensemble is not None and "at" in arrays:
        raise ConfigError("[ensemble] needs every learner's vote on every row; leave out at")
    named = {name: name for name in arrays}
    setup = setup._replace(data=msgspec.structs.replace(setup.data, label="label", **named))
    setup = in_batches(setup) if "batch" in arrays else setup
    return setup, {"label": arguments["labels"], **arrays}


def _points(setup: NetworkConfig, values: Any, slots: int) -> Array:
    try:
        points = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "contexts cannot be read as an array; it must hold numbers of one shape"
        ) from None
    if points.ndim != 2 or len(points) != slots:
        raise DataError(
            f"contexts has shape {points.shape}; it must be slots x dimensions, here {slots} x d"
        )
    if setup.plan.entries and setup.context.dimension != points.shape[1]:
        raise ConfigError(
            f"the configuration names {setup.context.dimension} contexts, but the array has "
            f"{points.shape[1]}"
        )
    return points
