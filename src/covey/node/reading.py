"""`covey.open_store`: what a site has decided and learnt, read from its store."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey import config as configs
from covey.bandit.partitions import places_of, side, space_of
from covey.data.contexts import Contexts
from covey.data.logs import ArmTable, DecisionColumns, EncodedLog, Trace
from covey.errors import StoreError
from covey.node.database import DatabaseUrl, store_place
from covey.node.estimates import KnownRow, is_own_arm, known_rows, shadow_numbers
from covey.node.fingerprint import preset_in
from covey.node.requests import Arm, Request, ShadowRow, ShadowSpan, is_own
from covey.node.store import Store
from covey.replay.engine import CellView
from covey.replay.outcome import (
    AlarmNumbers,
    ArmNumbers,
    LearnerNumbers,
    LearnerOutcome,
    Outcome,
    PairNumbers,
    Timeline,
    percent,
    total_of,
)
from covey.replay.replay import ConfigLike
from covey.report.results import Result
from covey.types import MEMORY, PHASES, Array, Phase

BUCKETS = 256


def open_store(path: str | Path, *, config: ConfigLike | None = None) -> Result:
    """Return what the store of a site holds: its decisions, labels, costs and preferred arms.

    `path` is a file, or the URL of a database; the site may be running. `config` is the file of
    the site, for the units of its contexts. Raises `StoreError` if the store cannot be read.
    """
    return stored_result(store_place(str(path)), config=config)


def stored_result(place: Path | DatabaseUrl, *, config: ConfigLike | None = None) -> Result:
    """Return what the store of a site holds; see `open_store`."""
    site = stored_site(place, config=config)
    return Result(site, title=f"Store of {site.name}", config=config, kind=f"store {site.name!r}")


def stored_site(place: Path | DatabaseUrl, *, config: ConfigLike | None = None) -> "StoredSite":
    """Return what the store of a site holds; see `open_store`."""
    contexts = None if config is None else configs.load(network_tables(config)).context
    with Store.reading(place) as store:
        loaded = store.peek(store.name())
        site = StoredSite(
            name=store.name(),
            fingerprint=loaded.fingerprint,
            counters=_counters(loaded.counters, {arm.id: arm.name for arm in loaded.arms}),
            arms=sorted(loaded.arms, key=lambda arm: (arm.place < 0, arm.place)),
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
    for (cell, source, id_), (labels, right) in counts.items():
        if is_own(source):
            arms, arm = by_cell.setdefault(cell, {}), names.get(id_, id_)
            before = arms.get(arm, (0, 0))
            arms[arm] = (before[0] + labels, before[1] + right)
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
        return _sizes(self.fingerprint)

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
        names = {"learner": [self.name], "cell": cells, "phase": PHASES, "arm": arms}
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
            shadow=shadow_numbers(self.rows, self.arms, cells, self.counters),
        )

    def _learner(self, cells: list[CellView]) -> LearnerOutcome:
        timeline, slots = _timeline(self.trace), len(self.rows)
        judged, errors = sum(timeline.judged), sum(timeline.errors)
        train, explore = sum(timeline.train), sum(timeline.explore)
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
            net_gain_points=None,
            pairs=_pairs(self.rows),
            alarms=AlarmNumbers(0, []),
            by_arm=_counted((row.group.arm or MEMORY, row) for row in self.rows),
        )
        functions = [arm.name for arm in self.arms if is_own_arm(arm)]
        return LearnerOutcome(self.name, functions, judged, numbers, timeline, cells)

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
    return PHASES.index(row.group.phase) if row.group.phase in PHASES else Phase.EXPLOIT


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


def _sizes(fingerprint: str) -> list[tuple[str, int | None]]:
    """Return the names of the contexts in a fingerprint, and the sizes of vectors."""
    lines = [line for line in fingerprint.splitlines() if line.startswith("context: ")]
    parts = [line.removeprefix("context: ").rpartition(" (") for line in lines]
    found = [re.match(r"\w+, size (\d+)", scale) for _, _, scale in parts]
    pairs = zip(parts, found, strict=True)
    return [(name, None if size is None else int(size[1])) for (name, _, _), size in pairs]
