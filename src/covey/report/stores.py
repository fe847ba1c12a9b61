"""`covey.open_store`: what a site has decided and learnt, read from its store."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey import config as configs
from covey.bandit.partitions import side, space_of
from covey.data.contexts import Contexts
from covey.data.logs import ArmTable, DecisionColumns, EncodedLog, Trace
from covey.errors import StoreError
from covey.node.database import DatabaseUrl, store_place
from covey.node.fingerprint import preset_in
from covey.node.requests import Arm, Request, ShadowRow, ShadowSpan, is_own
from covey.node.store import Store
from covey.replay.engine import CellView
from covey.replay.outcome import ArmOutcome, LearnerOutcome, Outcome, PairOutcome, Timeline
from covey.replay.replay import ConfigLike
from covey.report.results import Result
from covey.report.shadow import KnownRow, is_own_arm, known_rows, shadow_outcome
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
    kept = stored_site(place, config=config)
    return Result(kept, title=f"Store of {kept.name}", config=config, kind=f"store {kept.name!r}")


def stored_site(place: Path | DatabaseUrl, *, config: ConfigLike | None = None) -> "StoredSite":
    """Return what the store of a site holds; see `open_store`."""
    with Store.reading(place) as store:
        loaded = store.peek(store.name())
        requests = [request for request in store.requests() if is_own(request.source)]
        kept = StoredSite(
            name=store.name(),
            fingerprint=loaded.fingerprint,
            counters=_counters(loaded.counters, {arm.id: arm.name for arm in loaded.arms}),
            arms=sorted(loaded.arms, key=lambda arm: (arm.place < 0, arm.place)),
            requests=requests,
            spans=store.shadow_spans(),
            shadows=store.shadow_rows(),
            contexts=None if config is None else _contexts(config),
        )
    if not kept.rows:
        raise StoreError(f"{place} holds no requests of own clients yet; nothing can be shown")
    return kept


def _counters(
    counts: Mapping[tuple[str, str, str], tuple[int, int]], names: Mapping[str, str]
) -> dict[str, dict[str, tuple[int, int]]]:
    """Return cell -> arm -> labels and right ones, of own rows."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for (cell, source, arm), (labels, right) in counts.items():
        if is_own(source):
            of_cell = found.setdefault(cell, {})
            before = of_cell.get(names.get(arm, arm), (0, 0))
            of_cell[names.get(arm, arm)] = (before[0] + labels, before[1] + right)
    return found


def _contexts(config: ConfigLike) -> Contexts:
    return configs.load(network_tables(config)).context


def network_tables(config: ConfigLike) -> dict[str, Any]:
    """Return the tables of a network from the file of a site, whose peers become learners."""
    given = configs.tables_in(config)
    tables = {key: given[key] for key in configs.TABLES if key in given}
    learners = list(tables.get("learner", []))
    known = {one.get("name") for one in learners}
    for one in list(learners):
        for peer in {**(one.get("peers") or {}), **one.get("context-peers", {})}:
            if peer not in known:
                known.add(peer)
                stub = {"name": peer, "functions": [f"{peer}_answer"], "arrivals": False}
                learners.append({**stub, "peers": {}})
    return {**tables, "learner": learners}


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
        return _names(self.fingerprint)

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
            names={
                "learner": [self.name],
                "cell": cells,
                "phase": PHASES,
                "arm": arms,
                "function": functions,
                "prediction": labels,
                "label": labels,
            },
        )
        trace.slot = np.array([row.slot for row in rows])  # they may have gaps
        trace.cost = np.array([row.group.price for row in rows])
        return trace

    @cached_property
    def outcome(self) -> Outcome:
        """The counts of the site; what would have been without peers is not known."""
        names = self.context_names
        dimension = max((len(cell.low) for cell in self._cells()), default=0)
        return Outcome(
            slots=len(self.rows),
            dimension=dimension,
            context_names=names if len(names) == dimension else [],
            policy=_policy(self.fingerprint),
            learners=[self._learner()],
            functions={},
            context_ticks=self.contexts.ticks() if self.contexts is not None else [],
            shadow=shadow_outcome(self.rows, self.arms, self._cells(), self.counters),
        )

    def _learner(self) -> LearnerOutcome:
        trace = self.trace
        judged = trace.correct >= 0
        wrong = np.where(judged, 1 - trace.correct, 0)
        phases = Counter(row.group.phase for row in self.rows)
        return LearnerOutcome(
            name=self.name,
            functions=[arm.name for arm in self.arms if is_own_arm(arm)],
            slots=len(self.rows),
            judged=int(judged.sum()),
            errors=int(wrong.sum()),
            train=phases["train"],
            explore=phases["explore"],
            exploit=len(self.rows) - phases["train"] - phases["explore"],
            cost_total=float(trace.cost.sum()),
            arms=dict(Counter(row.group.arm for row in self.rows).most_common()),
            alone_errors=None,
            timeline=_timeline(trace, judged, wrong),
            cells=self._cells(),
            pairs=_pairs(self.rows),
            by_arm=_counted((row.group.arm or MEMORY, row) for row in self.rows),
        )

    def _cells(self) -> list[CellView]:
        """Return the cells of the rows; of cells that were split, those that were not."""
        arrivals = Counter(row.group.cell for row in self.rows)
        split = {ancestor for cell in arrivals for ancestor in _ancestors(cell)}
        return [self._cell(name, count) for name, count in arrivals.items() if name not in split]

    def _cell(self, name: str, arrivals: int) -> CellView:
        places = [int(number) for number in name.rpartition("/")[2].split(":")[1:]]
        length = side(name.rpartition("/")[2])
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


def _coded(values: Iterable[Any]) -> tuple[list[Any], Array]:
    """Return the distinct values and their codes; -1 for None."""
    codes: dict[Any, int] = {None: -1}
    found = [codes.setdefault(value, len(codes) - 1) for value in values]
    return list(codes)[1:], np.array(found, np.int32)


def _phase(row: KnownRow) -> int:
    """Return the phase of a row; an answer from memory has none, and explores nothing."""
    return PHASES.index(row.group.phase) if row.group.phase in PHASES else Phase.EXPLOIT


def _timeline(trace: Trace, judged: Array, wrong: Array) -> Timeline:
    """Return the counts in time buckets."""
    width = max(1, -(-int(trace.slot[-1] - trace.slot[0] + 1) // BUCKETS))
    bucket = (trace.slot - trace.slot[0]) // width
    counted = (
        np.ones(len(bucket)),
        judged,
        wrong,
        trace.phase == Phase.TRAIN,
        trace.phase == Phase.EXPLORE,
        np.where(judged, trace.cost, 0.0),
    )
    rows: list[list[Any]] = [np.bincount(bucket, weights).tolist() for weights in counted]
    slots, labelled, errors, train, explore = ([int(n) for n in row] for row in rows[:-1])
    return Timeline(width, slots, labelled, list(errors), train, explore, rows[-1])


def _counted(rows: Iterable[tuple[str, KnownRow]]) -> dict[str, ArmOutcome]:
    """Return what rows came to, by the name that each has; names with most rows first."""
    by_name: dict[str, list[KnownRow]] = {}
    for name, row in rows:
        by_name.setdefault(name, []).append(row)
    return {
        name: ArmOutcome(
            decisions=len(named),
            judged=sum(row.correct >= 0 for row in named),
            errors=sum(row.correct == 0 for row in named),
            cost_total=sum(row.group.price for row in named),
        )
        for name, named in sorted(by_name.items(), key=lambda pair: -len(pair[1]))
    }


def _pairs(rows: Sequence[KnownRow]) -> list[PairOutcome]:
    """Return what the site got from each peer that it asked."""
    peers = _counted((row.group.peer, row) for row in rows if row.group.peer)
    return [
        PairOutcome(
            peer=peer,
            asked=one.decisions,
            paid=one.cost_total,
            judged=one.judged,
            right=one.judged - one.errors,
            best_own=None,
            best_own_right=0,
        )
        for peer, one in peers.items()
    ]


def _ancestors(cell: str) -> list[str]:
    """Return the names of the cells that a cell was split from."""
    space, rest = space_of(cell), cell.rpartition("/")[2]
    if not rest.startswith("z"):
        return []
    level, *places = (int(number) for number in rest[1:].split(":"))
    prefix = f"{space}/" if space else ""
    return [
        prefix + ":".join([f"z{coarser}", *(str(place >> (level - coarser)) for place in places)])
        for coarser in range(level)
    ]


def _names(fingerprint: str) -> list[str]:
    """Return the names of the contexts in a fingerprint."""
    return [
        line.removeprefix("context: ").rpartition(" (")[0]
        for line in fingerprint.splitlines()
        if line.startswith("context: ")
    ]


def _policy(fingerprint: str) -> str:
    """Return the preset and the cells of a site in one line."""
    parts = [line.partition(": ") for line in fingerprint.splitlines()]
    found = {part: value for part, _, value in reversed(parts)}
    return f"{found.get('preset', 'policy')}: {found.get('cells', 'cells of several contexts')}"
