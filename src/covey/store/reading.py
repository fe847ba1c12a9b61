"""`covey.open_store`: what a site has decided and learnt, read from its store; and as a log.

A replay needs the predictions of all functions. So the column `sampled` of a log is 1 in rows that
have them by the draw of the shadow mode, and the configuration beside it replays only these.
"""

import math
import re
import tomllib
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey import config as configs
from covey import files, toml
from covey.bandit.learner import NO_ANSWER, UNKNOWN
from covey.bandit.partitions import MOST_DRAWN, places_of, side, space_of
from covey.data.contexts import Contexts
from covey.data.logs import ArmTable, DecisionColumns, EncodedLog, Trace, TraceFile
from covey.errors import DataError, StoreError
from covey.replay.engine import CellView
from covey.replay.outcome import (
    AlarmNumbers,
    ArmNumbers,
    ChoiceEstimate,
    LearnerNumbers,
    LearnerOutcome,
    Outcome,
    PairNumbers,
    PeerRows,
    ShadowNumbers,
    Timeline,
    percent,
    total_of,
)
from covey.replay.replay import ConfigLike
from covey.report.results import Result
from covey.site.requests import (
    Arm,
    Request,
    RowGroup,
    ShadowRow,
    ShadowSpan,
    add_counts,
    is_drawn,
    is_own,
    known_answers,
)
from covey.site.status import GainState, GainSums
from covey.store.database import DatabaseUrl, store_place
from covey.store.fingerprint import preset_in
from covey.store.store import Store
from covey.types import BY_CONTEXT, MEMORY, OWN_PHASES, Array, Context, Phase

BUCKETS = 256
CellCounters = Mapping[str, Mapping[str, tuple[int, int]]]  # cell, arm -> labels, right
Z_95 = 1.959964  # quantile of the normal distribution, for an interval of 95 %


def is_own_arm(arm: Arm) -> bool:
    """Return whether an arm is a function of the site; where its kind is not known, it is."""
    return arm.kind in ("own", "")


class KnownRow(NamedTuple):
    """A row of a client, with all answers to it that are known."""

    request: Request
    row: int
    answers: Mapping[str, Any]  # by what labels of the arm count as; None: it failed
    span: ShadowSpan | None  # None: no rows were drawn yet
    is_drawn: bool

    @property
    def group(self) -> RowGroup:
        """How the row was decided."""
        return self.request.group(self.row)

    @property
    def slot(self) -> int:
        """The slot of the row."""
        return self.request.slot_of(self.row)

    @property
    def answer(self) -> Any:
        """What the client got; None: no answer."""
        answer = self.request.answers[self.row]
        return None if answer is NO_ANSWER else answer

    @property
    def label(self) -> Any:
        """The true label; None: has not arrived."""
        truth = self.request.truths[self.row]
        return None if truth is UNKNOWN else truth

    @property
    def correct(self) -> int:
        """1 or 0 for the answer; -1 without a label."""
        return -1 if self.label is None else int(self.answer == self.label)

    def is_right(self, arm: str) -> int:
        """Return 1 or 0 for an arm on a labelled row; -1: what it answers is not known."""
        return int(self.answers[arm] == self.label) if arm in self.answers else -1

    @property
    def is_complete(self) -> bool:
        """Whether the row is drawn, and all answers of its span are known."""
        return self.is_drawn and self.span is not None and self.answers.keys() >= {*self.span.arms}


def known_rows(
    requests: Iterable[Request], spans: Sequence[ShadowSpan], shadows: Iterable[ShadowRow]
) -> list[KnownRow]:
    """Return the rows of requests, by slot, with what every arm is known to have answered."""
    by_row = {(shadow.request, shadow.row): shadow.answers for shadow in shadows}
    firsts = [span.first for span in spans]
    answered = []
    for request in requests:
        place = bisect(firsts, request.number) - 1
        span = spans[place] if place >= 0 and spans[place].share else None
        for row in range(len(request)):
            answers = {**known_answers(request, row), **by_row.get((request.number, row), {})}
            drawn = span is not None and is_drawn(span, request.source, request.id, row)
            answered.append(KnownRow(request, row, answers, span, drawn))
    return sorted(answered, key=lambda row: row.slot)


def open_store(path: str | Path, *, config: ConfigLike | None = None) -> Result:
    """Return what the store of a site holds: its decisions, labels, costs and preferred arms.

    `path` is a file, or the URL of a database; the site may be running. `config` is the file of
    the site, for the units of its contexts. Raises `StoreError` if the store cannot be read.
    """
    return stored_result(store_place(str(path)), config=config)


def stored_result(place: Path | DatabaseUrl, *, config: ConfigLike | None = None) -> Result:
    """Return what the store of a site holds; see `open_store`."""
    site = stored_site(place, config=config)
    return Result(site, title=f"Store of {site.name}", config=config)


def stored_site(place: Path | DatabaseUrl, *, config: ConfigLike | None = None) -> "StoredSite":
    """Return what the store of a site holds; see `open_store`."""
    contexts = None if config is None else configs.load(network_tables(config)).context
    with Store.reading(place) as store:
        loaded = store.peek(store.name())
        site = StoredSite(
            name=store.name(),
            fingerprint=loaded.fingerprint,
            counters=_counters(loaded.counters, {arm.id: arm.name for arm in loaded.of(Arm)}),
            arms=sorted(loaded.of(Arm), key=lambda arm: (arm.place < 0, arm.place)),
            requests=[request for request in store.requests() if is_own(request.source)],
            spans=store.all(ShadowSpan),
            shadows=store.all(ShadowRow),
            contexts=contexts,
        )
    if not site.rows:
        raise StoreError(f"{place} holds no requests of own clients yet; nothing can be shown")
    return site


def _counters(
    counts: Mapping[tuple[str, str, str], tuple[int, int]], names: Mapping[str, str]
) -> dict[str, dict[str, tuple[int, int]]]:
    """Return cell -> arm -> labels and right ones, of own rows."""
    by_cell: dict[str, dict[str, tuple[int, int]]] = {}
    for (cell, source, id_), counted in counts.items():
        if is_own(source):
            add_counts(by_cell.setdefault(cell, {}), {names.get(id_, id_): counted})
    return by_cell


def network_tables(config: ConfigLike) -> dict[str, Any]:
    """Return the tables of a network from the file of a site, whose peers become learners."""
    tables = configs.tables_in(config)
    learners = list(tables.get("learner", []))
    names = {learner.get("name") for learner in learners}
    for learner in list(learners):
        for peer in {**(learner.get("peers") or {}), **learner.get("context-peers", {})}:
            if peer not in names:
                names.add(peer)
                stub = {"name": peer, "functions": [f"{peer}_answer"], "arrivals": False}
                learners.append({**stub, "peers": {}})
    return {key: tables[key] for key in configs.TABLES if key in tables} | {"learner": learners}


class StoredSite(msgspec.Struct, frozen=True, dict=True):
    """What a store holds of a site; `trace` and `outcome` as a replay has them."""

    name: str
    fingerprint: str
    counters: dict[str, dict[str, tuple[int, int]]]
    arms: list[Arm]  # in the order of the site, then retired ones
    requests: list[Request]
    spans: list[ShadowSpan]
    shadows: list[ShadowRow]
    contexts: Contexts | None

    @cached_property
    def rows(self) -> list[KnownRow]:
        """All rows that are still stored, by slot, with the answers to them that are known."""
        return known_rows(self.requests, self.spans, self.shadows)

    @property
    def preset(self) -> str:
        """The preset of the policy."""
        return preset_in(self.fingerprint)

    @property
    def context_names(self) -> list[str]:
        """The names of the contexts, where the site makes them of features."""
        return [
            name
            for own, size in self.context_sizes
            for name in ([own] if size is None else [f"{own}[{k}]" for k in range(size)])
        ]

    @property
    def context_sizes(self) -> list[tuple[str, int | None]]:
        """Of contexts that the site makes of features, how many numbers those are; None: one."""
        lines = [line for line in self.fingerprint.splitlines() if line.startswith("context: ")]
        parts = [line.removeprefix("context: ").rpartition(" (") for line in lines]
        sizes = [re.match(r"\w+, size (\d+)", scale) for _, _, scale in parts]
        pairs = zip(parts, sizes, strict=True)
        return [(name, None if size is None else int(size[1])) for (name, _, _), size in pairs]

    @cached_property
    def trace(self) -> Trace:
        """The decisions on rows of own clients that are still stored."""
        rows = self.rows
        cells, cell = _coded(row.group.cell for row in rows)
        arms, arm = _coded(row.group.arm for row in rows)
        functions, function = _coded(row.request.function(row.row) for row in rows)
        labels, codes = _coded([row.label for row in rows] + [row.answer for row in rows])
        label, answer = codes[: len(rows)], codes[len(rows) :]
        phase = np.array([_phase(row) for row in rows], np.int8)
        correct = np.array([row.correct for row in rows], np.int8)
        names = {"learner": [self.name], "cell": cells, "phase": OWN_PHASES, "arm": arms}
        trace = Trace(
            DecisionColumns(cell, phase, arm, function, correct),
            EncodedLog(
                contexts=memoryview(b""),
                predictions=np.broadcast_to(answer, (len(functions), len(rows))).data,
                labels=label.data,
                at=np.zeros(len(rows), np.int32).data,
                delays=None,
            ),
            first_slot=rows[0].slot,
            arms=ArmTable.full(np.zeros((1, len(arms)))),
            receivers=[0],
            names={**names, "function": functions, "prediction": labels, "label": labels},
        )
        trace.slot = np.array([row.slot for row in rows])  # they may have gaps
        trace.cost = np.array([row.group.price for row in rows])
        return trace

    @cached_property
    def outcome(self) -> Outcome:
        """The counts of the site; what would have been without peers is not known."""
        names, cells = self.context_names, self._cells()
        dimension = max((len(cell.low) for cell in cells), default=0)
        learner = self._learner(cells)
        return Outcome(
            slots=len(self.rows),
            dimension=dimension,
            context_names=names if len(names) == dimension else [],
            policy=self._policy(),
            learners=[learner],
            functions={},
            total=total_of([learner.numbers], None),
            context_ticks=self.contexts.ticks() if self.contexts is not None else [],
            shadow=self._shadow(cells),
        )

    def _shadow(self, cells: Sequence[CellView]) -> ShadowNumbers | None:
        shadow = shadow_numbers(self.rows, self.arms, cells, self.counters)
        if shadow is None or self.gain is None:
            return shadow
        return msgspec.structs.replace(shadow, gain=str(self.gain))

    def _learner(self, cells: list[CellView]) -> LearnerOutcome:
        timeline, slots = _timeline(self.trace), len(self.rows)
        judged, errors = sum(timeline.judged), sum(timeline.errors)
        train, explore = sum(timeline.train), sum(timeline.explore)
        gain = self.gain
        numbers = LearnerNumbers(
            slots=slots,
            errors=errors,
            error_percent=percent(errors, judged),
            train_percent=percent(train, slots),
            explore_percent=percent(explore, slots),
            exploit_percent=percent(slots - train - explore, slots),
            cost_total=float(self.trace.cost.sum()),
            arms=dict(Counter(row.group.arm for row in self.rows).most_common()),
            alone_percent=None,
            best_own=None,
            best_own_percent=None,
            net_gain_points=None if gain is None else gain.points,
            pairs=_pairs(self.rows),
            alarms=AlarmNumbers(0, []),
            by_arm=_counted((row.group.arm or MEMORY, row) for row in self.rows),
        )
        functions = [arm.name for arm in self.arms if is_own_arm(arm)]
        return LearnerOutcome(self.name, functions, judged, numbers, timeline, cells)

    @cached_property
    def gain(self) -> GainState | None:
        """What the site gained over its best own function; None: no row is drawn now."""
        span = self.spans[-1] if self.spans and self.spans[-1].share else None
        if span is None:
            return None
        names = {arm.id: arm.name for arm in self.arms if arm.id in span.arms}
        prices = _prices(self.rows)
        costs = [prices.get(name, 0.0) for name in names.values()]
        sums = GainSums(names)
        run = {(kept.request, kept.row) for kept in self.shadows}
        for row in self.rows:
            is_run = row.span is span and (row.request.number, row.row) in run
            if is_run and row.label is not None:
                sums.take(row.request, row.row, row.answers, costs, lambda a, b: float(a == b))
        return sums.state()

    def _cells(self) -> list[CellView]:
        """Return the cells of the rows; of cells that were split, those that were not."""
        arrivals = Counter(row.group.cell for row in self.rows)
        split = {ancestor for cell in arrivals for ancestor in _ancestors(cell)}
        return [self._cell(name, count) for name, count in arrivals.items() if name not in split]

    def _cell(self, name: str, arrivals: int) -> CellView:
        own = name.rpartition("/")[2]
        # One cell of many contexts has no coordinates.
        places, length = places_of(own) or (0,) * len(self.context_names), side(own)
        counts = {arm: (n, right) for arm, (n, right) in self.counters.get(name, {}).items() if n}
        best = max(counts, key=lambda arm: counts[arm][1] / counts[arm][0], default=None)
        low = tuple(place * length for place in places)
        high = tuple((place + 1) * length for place in places)
        is_known = self.contexts is not None and self.contexts.dimension == len(places)
        return CellView(
            name=name,
            low=low,
            high=high,
            arrivals=arrivals,
            arm=best,
            estimate=None if best is None else counts[best][1] / counts[best][0],
            bounds=self.contexts.bounds_at(low, high) if is_known and self.contexts else [],
        )

    def _policy(self) -> str:
        """Return the preset and the cells of the site in one line."""
        parts = [line.partition(": ") for line in self.fingerprint.splitlines()]
        values = {part: value for part, _, value in reversed(parts)}
        cells = values.get("cells", "cells of several contexts")
        return f"{values.get('preset', 'policy')}: {cells}"


def _coded(values: Iterable[Any]) -> tuple[list[Any], Array]:
    """Return the distinct values and their codes; -1 for None."""
    codes: dict[Any, int] = {None: -1}
    column = [codes.setdefault(value, len(codes) - 1) for value in values]
    return list(codes)[1:], np.array(column, np.int32)


def _phase(row: KnownRow) -> int:
    """Return the phase of a row; an answer from memory has none, and explores nothing."""
    return OWN_PHASES.index(row.group.phase) if row.group.phase in OWN_PHASES else Phase.EXPLOIT


def _timeline(trace: Trace) -> Timeline:
    """Return the counts in time buckets."""
    width = max(1, -(-int(trace.slot[-1] - trace.slot[0] + 1) // BUCKETS))
    bucket = (trace.slot - trace.slot[0]) // width
    judged = trace.correct >= 0
    of_phases = (trace.phase == phase for phase in (Phase.TRAIN, Phase.EXPLORE))
    counts: list[list[Any]] = [
        np.bincount(bucket, weights).astype(int).tolist()
        for weights in (np.ones(len(bucket)), judged, trace.correct == 0, *of_phases)
    ]
    counts.append(np.bincount(bucket, np.where(judged, trace.cost, 0.0)).tolist())
    return Timeline(width, *counts)


def _counted(rows: Iterable[tuple[str, KnownRow]]) -> dict[str, ArmNumbers]:
    """Return what rows came to, by the name that each has; names with most rows first."""
    by_name: dict[str, list[KnownRow]] = {}
    for name, row in rows:
        by_name.setdefault(name, []).append(row)
    return {
        name: ArmNumbers(
            decisions=len(named),
            judged=sum(row.correct >= 0 for row in named),
            errors=sum(row.correct == 0 for row in named),
            cost_total=sum(row.group.price for row in named),
        )
        for name, named in sorted(by_name.items(), key=lambda pair: -len(pair[1]))
    }


def _pairs(rows: Sequence[KnownRow]) -> list[PairNumbers]:
    """Return what the site got from each peer that it asked."""
    peers = _counted((row.group.peer, row) for row in rows if row.group.peer)
    return [
        PairNumbers(peer, arm.decisions, arm.cost_total, arm.judged, arm.judged - arm.errors)
        for peer, arm in peers.items()
    ]


def _ancestors(cell: str) -> list[str]:
    """Return the names of the cells that a cell was split from."""
    space, own = space_of(cell), cell.rpartition("/")[2]
    if not own.startswith("z"):
        return []
    level, *places = (int(number) for number in own[1:].split(":"))
    prefix = f"{space}/" if space else ""
    return [
        prefix + ":".join([f"z{coarser}", *(str(place >> (level - coarser)) for place in places)])
        for coarser in range(level)
    ]


# -- what other choices would have done, by rows that were run in the shadow ----------------------


def estimate(
    choice: str,
    *,
    served: Array,
    right: Array,
    drawn: Array,
    share: Array,
    price: float | None = None,
) -> ChoiceEstimate:
    """Return the error of a choice over all rows, of which the drawn ones are known.

    By row: `served` is 1 if the answer was right, `right` is 1 if that of the choice is (0 if it is
    not, -1 if that is not known), `drawn` is whether it was drawn, and `share` the probability of
    that. Where a drawn row is not known, the interval allows for both cases.
    """
    rows = len(served)
    is_known = drawn & (right >= 0)
    known, missing = int(is_known.sum()), int((drawn & ~is_known).sum())
    if not known:
        return ChoiceEstimate(choice, rows, known, missing, None, None, None, price)
    weights = 1.0 / share
    gained = float((weights * (right - served))[is_known].sum())
    lost = is_known != drawn
    least = gained - float((weights * served)[lost].sum())
    most = gained + float((weights * (1 - served))[lost].sum())
    # Rows that are missing are taken to be like the others.
    gained *= float(weights[drawn].sum() / weights[is_known].sum())
    half = Z_95 * math.sqrt(_variance(right - served, share, is_known))
    wrong = rows - float(served.sum())

    mean, low, high = (100 * (wrong - more) / rows for more in (gained, most + half, least - half))
    return ChoiceEstimate(
        choice, rows, known, missing, mean, max(0.0, low), min(100.0, high), price
    )


def _variance(difference: Array, share: Array, is_known: Array) -> float:
    """Return the variance of the estimated sum.

    One row more is taken to have gained, and one to have lost: a few rows without a difference do
    not show that there is none.
    """
    each = (1 - share) / share**2
    variance = float((each * difference**2)[is_known].sum())
    return variance + 2 * float(each[is_known].mean())


def shadow_numbers(
    rows: Sequence[KnownRow],
    arms: Sequence[Arm],
    cells: Sequence[CellView],
    counters: CellCounters,
) -> ShadowNumbers | None:
    """Return what the drawn rows tell; None if no row was ever drawn."""
    spanned = [row for row in rows if row.span is not None]
    drawn = [row for row in spanned if row.is_drawn]
    if not drawn:
        return None
    labelled = [row for row in spanned if row.label is not None]
    served = _served(labelled)
    prices = _prices(rows)
    present = [arm for arm in arms if arm.place >= 0]
    choices = [_always(arm, labelled, prices.get(arm.name)) for arm in present]
    own = {arm.name: arm.id for arm in present if is_own_arm(arm)}
    choices.append(_mapped(labelled, _Located(cells, counters, own)))
    return ShadowNumbers(
        rows=len(spanned),
        labelled=len(labelled),
        drawn=len(drawn),
        complete=sum(row.is_complete for row in drawn),
        served_percent=percent(len(served) - float(served.sum()), len(served)),
        estimates=[choice for choice in choices if choice is not None],
        peers=[_peer(arm, drawn, own) for arm in present if not is_own_arm(arm)],
    )


def _served(rows: Sequence[KnownRow]) -> Array:
    return np.array([float(row.correct) for row in rows])


def _prices(rows: Sequence[KnownRow]) -> dict[str, float]:
    """Return the latest price of an answer of each arm, as far as it is known."""
    return {row.group.arm: row.group.price for row in rows}


def _estimate(
    choice: str, rows: Sequence[KnownRow], right: Sequence[int], price: float | None = None
) -> ChoiceEstimate:
    return estimate(
        choice,
        served=_served(rows),
        right=np.array(right, float),
        drawn=np.array([row.is_drawn for row in rows], bool),
        share=np.array([row.span.share if row.span else 0.0 for row in rows]),
        price=price,
    )


def _always(arm: Arm, labelled: Sequence[KnownRow], price: float | None) -> ChoiceEstimate | None:
    """Return the estimate of one arm for all rows; None: it is not run in the shadow."""
    rows = [row for row in labelled if row.span is not None and arm.id in row.span.arms]
    if not rows:
        return None
    return _estimate(arm.name, rows, [row.is_right(arm.id) for row in rows], price)


def _mapped(labelled: Sequence[KnownRow], locate: "_Located") -> ChoiceEstimate | None:
    """Return the estimate of the preferred functions of the cells.

    None: an arm of the map is not run in the shadow, or no own function has a label.
    """
    used = {*locate.arms, locate.overall}
    rows = [row for row in labelled if row.span is not None and used <= {*row.span.arms}]
    if not rows or not locate.overall:
        return None
    right = [row.is_right(locate.arm_of(row)) for row in rows]
    return _estimate("map of own functions", rows, right)


class _Located:
    """Finds the cell of the map that a row lies in, and the arm that it prefers."""

    def __init__(
        self, cells: Sequence[CellView], counters: CellCounters, ids: Mapping[str, str]
    ) -> None:
        totals: dict[str, tuple[int, int]] = {}
        for counts in counters.values():
            add_counts(totals, counts)
        # The best own function over all cells stands in for one where none has a label.
        self.overall = _preferred(totals, ids)
        of_cells = (counters.get(cell.name, {}) for cell in cells)
        self.arms = [_preferred(counts, ids) or self.overall for counts in of_cells]
        self._places = {cell.name: place for place, cell in enumerate(cells)}
        self._boxes = [(np.array(cell.low), np.array(cell.high)) for cell in cells]

    def arm_of(self, row: KnownRow) -> str:
        """Return the id of the arm."""
        place = self._places.get(row.group.cell)
        if place is not None:
            return self.arms[place]
        point = np.array(row.request.context(row.row))  # its cell was split later
        for arm, (low, high) in zip(self.arms, self._boxes, strict=True):
            if len(low) == len(point) and ((low <= point) & (point <= high)).all():
                return arm
        return self.overall


def _preferred(counts: Mapping[str, tuple[int, int]], ids: Mapping[str, str]) -> str:
    """Return the id of the arm with the best share of right answers; "": none has a label."""
    shares = {arm: right / labels for arm, (labels, right) in counts.items() if labels}
    own = [arm for arm in shares if arm in ids]
    return ids[max(own, key=lambda arm: shares[arm])] if own else ""


def _peer(arm: Arm, drawn: Sequence[KnownRow], own: Mapping[str, str]) -> PeerRows:
    """Return how a peer and the own functions did on the drawn rows that the peer answered."""
    rows = [
        row
        for row in drawn
        if row.label is not None
        and row.answers.get(arm.id) is not None
        and row.answers.keys() >= {*own.values()}
    ]
    errors = {name: sum(not row.is_right(id_) for row in rows) for name, id_ in own.items()}
    best = min(errors, key=lambda name: errors[name], default=None) if rows else None
    return PeerRows(
        peer=arm.name,
        rows=len(rows),
        error_percent=percent(sum(not row.is_right(arm.id) for row in rows), len(rows)),
        best_own=best,
        best_own_percent=None if best is None else percent(errors[best], len(rows)),
    )


SAMPLED = "sampled"
DECIDED = ("slot", "id", "row", "phase", "cell", "arm", "function", "answer", "cost")


class Exported(msgspec.Struct, frozen=True):
    """What an export wrote."""

    log: str
    config: str
    rows: int
    labelled: int
    drawn: int
    sampled: int  # rows that the configuration replays


class _Column(NamedTuple):
    """The predictions of an arm in the log."""

    arm: Arm
    name: str


class _ContextColumn(NamedTuple):
    """A context in the log, or a vector."""

    name: str
    first: int  # of its coordinates
    size: int | None  # None: it is no vector

    @property
    def entry(self) -> Any:
        """The context of the configuration."""
        scale = {"scale": "linear", "low": 0, "high": 1}
        return self.name if self.size is None else {"vector": self.name, "size": self.size, **scale}

    def value(self, point: Context) -> Any:
        if self.first >= len(point):
            return None
        if self.size is None:
            return point[self.first]
        return list(point[self.first : self.first + self.size])


def export(site: StoredSite, path: Path, *, config: ConfigLike | None = None) -> Exported:
    """Write the log of a site, and a configuration for it beside it.

    `config` is the file of the site: the configuration gets its policy and prices. Raises
    `ConfigError` for another kind of file, and `DataError` if a file cannot hold the labels.
    """
    columns = _columns(site)
    replayed = _replayed(site)
    is_sampled = [_is_sampled(row, replayed) for row in site.rows]
    if not any(is_sampled) and not site.spans:
        # Without a draw, rows whose answers are known by chance would favour chosen functions.
        own = [column.arm for column in columns if is_own_arm(column.arm) and column.arm.place >= 0]
        every = [_is_whole(row, own) for row in site.rows]
        is_sampled = every if all(every) else is_sampled
    toml_path = path.with_suffix(".toml")
    with TraceFile(path, what="log") as file:
        try:
            file.write(_content(site, columns, is_sampled))
        except (TypeError, ValueError, OverflowError) as error:  # those of pyarrow, too
            raise DataError(
                f"{path.name} cannot hold these labels together ({error}); write a .csv file"
            ) from None
    written = _configuration(site, columns, config, path)
    files.replace(toml_path, written.encode())
    return Exported(
        log=str(path),
        config=str(toml_path),
        rows=len(site.rows),
        labelled=sum(row.label is not None for row in site.rows),
        drawn=sum(row.is_drawn for row in site.rows),
        sampled=sum(is_sampled),
    )


def _columns(site: StoredSite) -> list[_Column]:
    """Return the columns of predictions: present arms, and retired ones that answered rows."""
    answered = {id_ for row in site.rows for id_ in row.answers}
    contexts = [column.name for column in _contexts(site)]
    taken = {*DECIDED, "label", "revealed", "drawn", "share", SAMPLED, *contexts}
    columns = []
    for arm in site.arms:
        if arm.place < 0 and arm.id not in answered:
            continue
        name = arm.name if arm.place >= 0 else arm.id
        name = name if is_own_arm(arm) else f"{name}_answer"
        while name in taken:
            name += "_"
        taken.add(name)
        columns.append(_Column(arm, name))
    return columns


def _contexts(site: StoredSite) -> list[_ContextColumn]:
    """Return the columns of contexts: vectors, and many without a name, are one column each."""
    count = max((len(row.request.context(row.row)) for row in site.rows), default=0)
    sizes = site.context_sizes
    if sum(size or 1 for _, size in sizes) != count or len(dict(sizes)) < len(sizes):
        sizes = [(str(k + 1), None) for k in range(count)]
        if count > MOST_DRAWN:
            sizes = [("all", count)]
    ends = accumulate(size or 1 for _, size in sizes)
    return [
        _ContextColumn(f"context_{name}", end - (size or 1), size)
        for (name, size), end in zip(sizes, ends, strict=True)
    ]


def _replayed(site: StoredSite) -> list[Arm]:
    """Return the arms that are replayed: those of the latest span in which rows were drawn."""
    drawn = [span for span in site.spans if span.share]
    ids = drawn[-1].arms if drawn else []
    return [arm for arm in site.arms if arm.place >= 0 and arm.id in ids]


def _is_sampled(row: KnownRow, replayed: Sequence[Arm]) -> bool:
    ids = {arm.id for arm in replayed}
    if not row.is_drawn or row.span is None or not ids <= {*row.span.arms}:
        return False
    return _is_whole(row, replayed)


def _is_whole(row: KnownRow, arms: Sequence[Arm]) -> bool:
    return all(row.answers.get(arm.id) is not None for arm in arms)


def _content(
    site: StoredSite, columns: Sequence[_Column], is_sampled: Sequence[bool]
) -> Mapping[str, Sequence[Any]]:
    rows = site.rows
    contexts = [row.request.context(row.row) for row in rows]
    return {
        "slot": [row.slot for row in rows],
        "id": [row.request.id for row in rows],
        "row": [row.row for row in rows],
        "phase": [row.group.phase for row in rows],
        "cell": [row.group.cell for row in rows],
        "arm": [row.group.arm for row in rows],
        "function": [row.request.function(row.row) for row in rows],
        "answer": [row.answer for row in rows],
        "cost": [row.group.price for row in rows],
        "label": [row.label for row in rows],
        "revealed": [int(row.label is not None) for row in rows],
        **{column.name: [column.value(point) for point in contexts] for column in _contexts(site)},
        **{name: [row.answers.get(arm.id) for row in rows] for arm, name in columns},
        "drawn": [int(row.is_drawn) for row in rows],
        "share": [None if row.span is None else row.span.share for row in rows],
        SAMPLED: [int(flag) for flag in is_sampled],
    }


# -- the configuration --------------------------------------------------------------------------


def _configuration(
    site: StoredSite,
    columns: Sequence[_Column],
    config: ConfigLike | None,
    path: Path,
) -> str:
    own = [column for column in columns if is_own_arm(column.arm) and column.arm.place >= 0]
    tables = {} if config is None else network_tables(config)
    costs = _costs(site, tables)
    policy: dict[str, Any] = dict(tables.get("policy", {}))
    if config is None:
        policy = {"preset": site.preset}
    data: dict[str, Any] = {"label": "label", "revealed": "revealed", "only": SAMPLED}
    loss = tables.get("data", {}).get("loss")
    entries = [column.entry for column in _contexts(site)]
    data |= {"context": entries} | ({} if loss is None else {"loss": loss})
    learner: dict[str, Any] = {"name": site.name, "functions": [column.name for column in own]}
    if any(costs.get(column.arm.name) for column in own):
        learner["function-costs"] = [costs.get(column.arm.name, 0.0) for column in own]
    free = [column.name for column in own if column.arm.name in _free(site, config)]
    learner |= {"free": free} if free else {}
    learner["peers"] = {}
    lines = [*_head(site, config, path), *_table("[data]", data), *_table("[policy]", policy)]
    lines += _table("[[learner]]", learner)
    text = "\n".join(lines)
    configs.load(tomllib.loads(text))
    return text


def _head(site: StoredSite, config: ConfigLike | None, path: Path) -> Iterator[str]:
    yield f"# Rows of site {site.name!r}, exported from its store. To replay those that have the"
    yield "# predictions of all functions:"
    yield f"#   covey replay {path.name} --config {path.with_suffix('.toml').name}"
    yield "# Contexts are as the site scaled them, from 0 to 1."
    if config is None:
        yield "# The store knows the preset of the policy, not its other keys, and the prices that"
        yield "# were paid: `covey export --config` takes both from the file of the site."
    yield ""


def _table(title: str, table: Mapping[str, Any]) -> list[str]:
    return [
        title,
        *(f"{toml.key_text(name)} = {toml.text_of(value)}" for name, value in table.items()),
        "",
    ]


def _free(site: StoredSite, config: ConfigLike | None) -> list[str]:
    """Return the functions that are free by the file of the site."""
    tables = {} if config is None else configs.tables_in(config)
    listed = [table["name"] for table in tables.get("function", []) if table.get("free")]
    for learner in tables.get("learner", []):
        if learner.get("name") == site.name:
            free = learner.get("free", [])
            listed += list(learner["functions"]) if free is True else list(free or [])
    return listed


def _costs(site: StoredSite, tables: Mapping[str, Any]) -> dict[str, float]:
    """Return what an answer of each arm costs: by the configuration, or as it was last paid."""
    if not tables:
        return {row.group.arm: row.group.price for row in site.rows}
    setup = configs.load(tables)
    spec = next((each for each in setup.sites if each.name == site.name), None)
    if spec is None:
        raise StoreError(f"the store is of site {site.name!r}, which --config does not have")
    names = [each.name for each in setup.sites]
    behind = [*(names[k] for k in spec.peers), *(names[k] + BY_CONTEXT for k in spec.context_peers)]
    return dict(zip([*spec.functions, *behind], spec.costs, strict=True))
