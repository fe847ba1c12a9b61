"""`replay`: recorded predictions in, a trace of decisions out.

The same network is also played with nobody to ask, so that what cooperation gained can be said.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey import logs
from covey.config import ReplayConfig, Site, load
from covey.contexts import Contexts, check_unit
from covey.encoding import Log, Luck, Vocabulary, arrivals, encode
from covey.engine import Arena, Clock, Table
from covey.errors import ConfigError, DataError
from covey.policies import Policy
from covey.tally import Tally
from covey.traces import Decided, Trace, TraceFile
from covey.types import PHASES, CellView, Label, Outcome, Rule

Progress = Callable[[float, int], None]  # share of the log that is done, slots so far


class Game:
    """A network under replay: the learners' tables, played chunk after chunk."""

    def __init__(
        self, sites: Sequence[Site], policy: Policy, labels: Sequence[Label], unit: int = 1
    ) -> None:
        clock = Clock(policy.scales(), policy.powers())
        self.sites = sites
        self.policy = policy
        self.tables = [
            Table(clock, _rule(site, policy, place, unit)) for place, site in enumerate(sites)
        ]
        self._unit = unit
        self.slots = 0
        self._arena = _arena(self.tables, sites, policy)
        self._costs = _costs(sites)
        self._cells: list[list[int]] = [[] for _ in sites]
        self._cell_numbers: dict[str, int] = {}
        functions = [name for site in sites for name in site.functions]
        learners = [site.name for site in sites]
        self._names: dict[str, Sequence[Label]] = {
            "learner": learners,
            "phase": PHASES,
            "arm": [*functions, *learners],
            "function": functions,
            "prediction": labels,
            "label": labels,
        }

    def play(self, log: Log) -> Trace:
        """Play the rows of `log` and return their trace."""
        slots = len(log.labels)
        per_slot = 1 if log.at is not None else sum(site.receives for site in self.sites)
        rows = slots * per_slot
        kinds = Decided(
            cell=np.int32, phase=np.int8, arm=np.int32, function=np.int32, correct=np.int32
        )
        decided = Decided(*(np.empty(rows, kind).data for kind in kinds))
        self._arena.run(log, self.slots + 1, decided)
        self._number_cells(np.asarray(decided.cell))
        first_slot = self.slots + 1
        self.slots += slots
        return Trace(
            decided,
            log,
            first_slot=first_slot,
            costs=self._costs,
            unit=self._unit,
            receivers=[place for place, site in enumerate(self.sites) if site.receives],
            names={**self._names, "cell": list(self._cell_numbers)},
        )

    def _number_cells(self, cell: np.ndarray) -> None:
        """Turn the learners' own rows into numbers of cells that mean the same for everybody."""
        most = max(len(table) for table in self.tables)
        numbers = np.zeros((max(1, most), len(self.tables)), np.int32)
        for place, table in enumerate(self.tables):
            known = self._cells[place]
            for new in range(len(known), len(table)):
                name = self.policy.partition.name(table.cell(new))
                known.append(self._cell_numbers.setdefault(name, len(self._cell_numbers)))
            numbers[: len(known), place] = known
        np.take(numbers.reshape(-1), cell, out=cell, mode="clip")

    def cells(self, place: int) -> list[CellView]:
        """Return the cells that a learner uses, for a person to look at."""
        table = self.tables[place]
        site = self.sites[place]
        arms = [*site.functions, *(self.sites[peer].name for peer in site.peers)]
        rows = (row for row in range(len(table)) if table.own(row) and not table.is_split(row))
        return [self._view(table, row, arms) for row in rows]

    def _view(self, table: Table, row: int, arms: list[str]) -> CellView:
        cell = table.cell(row)
        side = self.policy.partition.levels(self.policy.dimension)[cell.level].side
        best = table.best(row)
        labels, right = table.record(row, best)
        return CellView(
            name=self.policy.partition.name(cell),
            low=tuple(coordinate / side for coordinate in cell.coordinates),
            high=tuple((coordinate + 1) / side for coordinate in cell.coordinates),
            arrivals=table.own(row),
            arm=arms[best] if labels else None,
            estimate=right / (labels * self._unit) if labels else None,
        )


def replay(  # noqa: PLR0913 - each is one column of the log
    config: str | Path | Mapping[str, Any],
    *,
    predictions: Any,
    labels: Any,
    contexts: Any,
    at: Any = None,
    revealed: Any = None,
    delay: Any = None,
) -> Trace:
    """Replay arrays and return the trace.

    `predictions` is functions x slots, in the order in which the learners list them; `labels` has
    one entry per slot, `contexts` is slots x dimensions. `at` (names of the receiving learners),
    `revealed` (0 or 1) and `delay` (in slots) have one entry per slot, where they are given.

    >>> config = {"learner": [{"name": "north", "functions": ["nb", "tree"]}]}
    >>> trace = replay(config, predictions=[[1, 1], [0, 1]], labels=[1, 1], contexts=[[0.2], [0.9]])
    >>> trace.columns()["arm"], trace.columns()["correct"]
    (['nb', 'nb'], [1, 1])
    """
    columns = _columns({"label": labels, "at": at, "revealed": revealed, "delay": delay})
    setup = _for_arrays(load(config), columns)
    answers = _answers(setup, predictions, len(columns["label"]))
    points = _points(setup, contexts, len(columns["label"]))
    vocabulary = Vocabulary(is_typed=True, loss=setup.data.loss)
    arrived = arrivals(setup, columns, vocabulary, 1)
    log = encode(answers, arrived, points, vocabulary, 1, Luck(setup))
    _check_horizon(setup, len(log.labels))
    policy = setup.policy(points.shape[1])
    return Game(setup.sites, policy, vocabulary.values, setup.unit).play(log)


def replay_file(
    path: Path,
    setup: ReplayConfig,
    *,
    trace: TraceFile | None = None,
    progress: Progress = lambda share, slots: None,
) -> Outcome:
    """Replay the log at `path`, chunk by chunk, and return what came of it."""
    reader = logs.open_log(path, _wanted(setup))
    vocabulary = Vocabulary(is_typed=reader.is_typed, loss=setup.data.loss)
    policy = setup.policy(setup.context.dimension)
    together = Game(setup.sites, policy, vocabulary.values, setup.unit)
    alone = Game([site.alone() for site in setup.sites], policy, vocabulary.values, setup.unit)
    tally = Tally(setup.sites, setup.unit)
    _check_horizon(setup, reader.rows_total or 0)
    for log in _read(setup, reader, vocabulary):
        _check_horizon(setup, together.slots + len(log.labels))
        played = together.play(log)
        tally.add(played, alone.play(log))
        tally.add_functions(log)
        if trace is not None:
            trace.write(played.columns())
        progress(reader.share_read(), together.slots)
    if not together.slots:
        raise DataError(f"{path.name} has no rows; a log needs at least one")
    views = [together.cells(place) for place in range(len(setup.sites))]
    blind = [table.blind_decisions() for table in together.tables]
    return tally.outcome(setup.context.names, policy.title, views, blind)


def _rule(site: Site, policy: Policy, place: int, unit: int) -> Rule:
    return policy.rule(
        functions=len(site.functions),
        costs=site.costs,
        position=place,
        unit=unit,
        rewards=site.rewards,
        is_supervised=site.is_supervised,
    )


def _arena(tables: list[Table], sites: Sequence[Site], policy: Policy) -> Arena:
    peers = np.full((len(sites), max(1, len(sites))), -1, np.int32)
    for place, site in enumerate(sites):
        peers[place, : len(site.peers)] = site.peers
    hidden_from = 1 if policy.switches.hidden_from == "first" else len(sites)
    receives = [site.receives for site in sites]
    return Arena(tables, peers.data, receives, hidden_from, policy.settings.label_wait)


def _costs(sites: Sequence[Site]) -> np.ndarray:
    """Return what each learner pays for each arm of the network."""
    functions = [place for place, site in enumerate(sites) for _ in site.functions]
    costs = np.zeros((len(sites), len(functions) + len(sites)))
    for place, site in enumerate(sites):
        own = [arm for arm, owner in enumerate(functions) if owner == place]
        costs[place, own + [len(functions) + peer for peer in site.peers]] = site.costs
    return costs


def _wanted(setup: ReplayConfig) -> list[str]:
    data = setup.data
    named = [data.label, data.at, data.revealed, data.delay]
    functions = [name for site in setup.sites for name in site.functions]
    return list(dict.fromkeys([*filter(None, named), *setup.context.columns, *functions]))


def _read(setup: ReplayConfig, reader: logs.Reader, vocabulary: Vocabulary) -> Iterator[Log]:
    slot = 1
    luck = Luck(setup)
    for columns in _with_sample(setup.context, reader.chunks()):
        arrived = arrivals(setup, columns, vocabulary, slot)
        known = [*vocabulary.values, None]
        points = setup.context.extract(
            columns,
            first_slot=slot,
            labels=[known[code] for code in arrived.labels.tolist()],
            at=arrived.at,
            revealed=arrived.revealed,
            delay=arrived.delay,
        )
        answers = [(name, columns[name]) for site in setup.sites for name in site.functions]
        yield encode(answers, arrived, points, vocabulary, slot, luck)
        slot += len(arrived.labels)


def _with_sample(context: Contexts, chunks: Iterator[logs.Columns]) -> Iterator[logs.Columns]:
    """Show the first rows to the scales that rank against a sample, then yield every chunk."""
    held: list[logs.Columns] = []
    rows = 0
    while rows < context.sample_rows and (chunk := next(chunks, None)):
        held.append(chunk)
        rows += len(next(iter(chunk.values())))
    if held:
        sample = {
            name: [value for chunk in held for value in chunk[name]][: context.sample_rows]
            for name in context.columns
        }
        context.learn_sample(sample)
    return chain(held, chunks)


def _check_horizon(setup: ReplayConfig, slots: int) -> None:
    horizon = setup.settings.horizon
    if horizon is not None and slots > horizon:
        raise ConfigError(
            f"the log has more rows than the horizon of {horizon} slots; raise horizon in [policy]"
        )


def _for_arrays(setup: ReplayConfig, columns: Mapping[str, Any]) -> ReplayConfig:
    """Return the set-up with the columns named as the arguments of `replay` are."""
    for name in ("at", "revealed", "delay"):
        if getattr(setup.data, name) is not None and name not in columns:
            raise ConfigError(
                f"the configuration has {name} in [data]; give replay the array {name}"
            )
    names = {name: name if name in columns else None for name in ("at", "revealed", "delay")}
    data = msgspec.structs.replace(setup.data, label="label", **names)
    return setup._replace(data=data)


def _columns(given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    columns = {name: _array(values, name) for name, values in given.items() if values is not None}
    slots = len(columns["label"]) if columns["label"].ndim else 0
    if not slots:
        raise DataError("there are no slots to replay; labels is empty")
    for name, column in columns.items():
        _check_slots(column, name, slots)
    return columns


def _answers(setup: ReplayConfig, predictions: Any, slots: int) -> list[tuple[str, np.ndarray]]:
    functions = [name for site in setup.sites for name in site.functions]
    if len(predictions) != len(functions):
        raise DataError(
            f"predictions has {len(predictions)} rows, but the learners list {len(functions)} "
            "functions; give one row per function"
        )
    answers = [
        (name, _array(row, f"the predictions of {name!r}"))
        for name, row in zip(functions, predictions, strict=True)
    ]
    for name, row in answers:
        _check_slots(row, name, slots)
    return answers


def _points(setup: ReplayConfig, contexts: Any, slots: int) -> np.ndarray:
    points = _array(contexts, "contexts", np.float64)
    if points.ndim != 2 or len(points) != slots:
        raise DataError(
            f"contexts has shape {points.shape}; it must be slots x dimensions, here {slots} x d"
        )
    names = setup.context.names
    if setup.data.context and len(names) != points.shape[1]:
        raise ConfigError(
            f"the configuration names {len(names)} contexts, but the array has {points.shape[1]}"
        )
    names = names or [f"context {k}" for k in range(points.shape[1])]
    check_unit(points, names=names, first_slot=1)
    return points


def _array(values: Any, name: str, kind: Any = None) -> np.ndarray:
    try:
        return np.asarray(values, kind)
    except (TypeError, ValueError):
        wanted = "numbers of one shape" if kind else "one entry per slot"
        raise DataError(f"{name} cannot be read as an array; it must hold {wanted}") from None


def _check_slots(column: np.ndarray, name: str, slots: int) -> None:
    if column.shape != (slots,):
        raise DataError(f"{name!r} has shape {column.shape}; it must have {slots} entries")
