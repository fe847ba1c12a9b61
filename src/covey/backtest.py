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
from covey.smoothness import Seen, adapt, epochs, estimate
from covey.tally import Tally
from covey.traces import Decided, Trace, TraceFile, joined
from covey.types import PHASES, CellView, Label, Outcome
from covey.voting import Voting

Progress = Callable[[float, int], None]  # share of the log that is done, slots so far


class Game:
    """A network under replay: the learners' tables, played chunk after chunk."""

    def __init__(self, sites: Sequence[Site], policy: Policy, labels: Sequence[Label]) -> None:
        clock = Clock(policy.scales(), policy.powers())
        self.sites = sites
        self.policy = policy
        self.tables = [
            Table(clock, policy.rule(functions=len(s.functions), costs=s.costs, position=k))
            for k, s in enumerate(sites)
        ]
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
            cell=np.int32, phase=np.int8, arm=np.int32, function=np.int32, correct=np.int8
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

    def seen(self) -> Iterator[list[Seen]]:
        """Yield what every function's owner has seen of it, cell by cell."""
        sides = [level.side for level in self.policy.partition.levels(self.policy.dimension)]
        for table, site in zip(self.tables, self.sites, strict=True):
            cells = [table.cell(row) for row in range(len(table))]
            for function in range(len(site.functions)):
                yield [
                    Seen(sides[cell.level], cell.coordinates, *table.record(row, function))
                    for row, cell in enumerate(cells)
                ]

    def reprice(self, place: int, arm: int, cost: float) -> None:
        """Let an arm of the learner at `place` cost something else from now on; inf: closed."""
        self.tables[place].set_cost(arm, cost)
        costs = self.sites[place].costs
        repriced = self.sites[place]._replace(costs=(*costs[:arm], cost, *costs[arm + 1 :]))
        self.sites = [*self.sites[:place], repriced, *self.sites[place + 1 :]]
        self._costs = _costs(self.sites)

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
            estimate=right / labels if labels else None,
        )


class Season:
    """Games one after the other, each for twice as many slots; prices may change within.

    A game starts with empty tables and at slot 1 of its own clock; labels that were still under
    way are lost on it. Only prices, and the alpha that was estimated, are handed on.
    """

    def __init__(
        self, setup: ReplayConfig, sites: Sequence[Site], dimension: int, labels: Sequence[Label]
    ) -> None:
        self.slots = 0
        self._setup = setup
        self._dimension = dimension
        self._labels = labels
        self._moves = [move for move in setup.repricings if move.arm < len(sites[move.place].costs)]
        alpha = setup.settings.alpha
        self._is_estimated = isinstance(alpha, str)
        self._alpha = 1.0 if isinstance(alpha, str) else alpha
        self._is_doubling = setup.settings.horizon == "doubling"
        self._epochs = epochs(setup.settings.first_epoch if self._is_doubling else 2**60)
        self._start(sites)

    @property
    def policy(self) -> Policy:
        """The policy of the present game; its title says where in the season that is."""
        policy = self._game.policy
        if not self._is_doubling:
            return policy
        alpha = f", alpha {self._alpha:.3g}" if self._is_estimated else ""
        stretch = f"epoch of {self._epoch.slots} slots from slot {self._epoch.first_slot}"
        return policy._replace(title=f"{policy.title}; {stretch}{alpha}")

    def play(self, log: Log) -> Trace:
        """Play the rows of `log` and return their trace, whose slots go on from game to game."""
        pieces: list[Trace] = []
        first = 0
        while first < len(log.labels) or not pieces:
            if self._game.slots == self._epoch.slots:
                self._start_anew()
            self._reprice(self.slots + first + 1)
            end = min(len(log.labels), first + self._epoch.slots - self._game.slots)
            if self._moves:
                end = min(end, self._moves[0].slot - 1 - self.slots)
            pieces.append(self._game.play(_cut(log, first, end)))
            first = end
        trace = joined(pieces, log, first_slot=self.slots + 1)
        self.slots += len(log.labels)
        return trace

    def cells(self, place: int) -> list[CellView]:
        """Return the cells that a learner uses in the present game."""
        return self._game.cells(place)

    def _start_anew(self) -> None:
        seen = estimate(self._game.seen()) if self._is_estimated else None
        if seen is not None:
            self._alpha = seen.alpha
        self._start(self._game.sites)

    def _start(self, sites: Sequence[Site]) -> None:
        self._epoch = next(self._epochs)
        settings = self._setup.settings
        if self._is_doubling:
            settings = adapt(settings, self._epoch, alpha=self._alpha)
        policy = self._setup._replace(settings=settings).policy(self._dimension)
        self._game = Game(sites, policy, self._labels)

    def _reprice(self, slot: int) -> None:
        while self._moves and self._moves[0].slot <= slot:
            move = self._moves.pop(0)
            self._game.reprice(move.place, move.arm, move.cost)


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
    vocabulary = Vocabulary(is_typed=True)
    arrived = arrivals(setup, columns, vocabulary, 1)
    log = encode(answers, arrived, points, vocabulary, 1, Luck(setup))
    _check_horizon(setup, len(log.labels))
    return _game(setup, setup.sites, points.shape[1], vocabulary.values).play(log)


def replay_file(
    path: Path,
    setup: ReplayConfig,
    *,
    trace: TraceFile | None = None,
    progress: Progress = lambda share, slots: None,
) -> Outcome:
    """Replay the log at `path`, chunk by chunk, and return what came of it."""
    reader = logs.open_log(path, _wanted(setup))
    vocabulary = Vocabulary(is_typed=reader.is_typed)
    dimension = setup.context.dimension
    together = _game(setup, setup.sites, dimension, vocabulary.values)
    alone = _game(setup, [site.alone() for site in setup.sites], dimension, vocabulary.values)
    tally = Tally(setup.sites)
    voting = _voting(setup, vocabulary)
    _check_horizon(setup, reader.rows_total or 0)
    for log in _read(setup, reader, vocabulary):
        _check_horizon(setup, together.slots + len(log.labels))
        played = together.play(log)
        tally.add(played, alone.play(log) if voting is None else played)
        tally.add_functions(log)
        if voting is not None:
            voting.add(played, log)
        if trace is not None:
            trace.write(played.columns())
        progress(reader.share_read(), together.slots)
    if not together.slots:
        raise DataError(f"{path.name} has no rows; a log needs at least one")
    views = [together.cells(place) for place in range(len(setup.sites))]
    outcome = tally.outcome(setup.context.names, together.policy.title, views)
    if voting is None:
        return outcome
    return msgspec.structs.replace(outcome, ensemble=voting.outcome(outcome.learners))


def _voting(setup: ReplayConfig, vocabulary: Vocabulary) -> Voting | None:
    """Return the ensemble that is asked for; its base class gets the first code of all."""
    if setup.ensemble is None:
        return None
    base = setup.ensemble.base
    if base is not None:
        vocabulary.encode([base], name="base of [ensemble]", first_slot=0)
    voters = [site.name for site in setup.sites if site.receives]
    return Voting(setup.ensemble, voters, label_wait=setup.settings.label_wait)


def _game(
    setup: ReplayConfig, sites: Sequence[Site], dimension: int, labels: Sequence[Label]
) -> Game | Season:
    if setup.settings.horizon == "doubling" or setup.repricings:
        return Season(setup, sites, dimension, labels)
    return Game(sites, setup.policy(dimension), labels)


def _cut(log: Log, first: int, end: int) -> Log:
    """Return the rows of `log` from `first` to `end`."""
    width = len(log.contexts) // max(1, len(log.labels))
    by_slot: dict[str, Any] = {
        name: None if column is None else np.asarray(column)[first:end].data
        for name, column in log._asdict().items()
        if name not in ("contexts", "predictions")
    }
    return Log(
        contexts=np.asarray(log.contexts)[first * width : end * width].data,
        predictions=np.ascontiguousarray(np.asarray(log.predictions)[:, first:end]).data,
        **by_slot,
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
    if isinstance(horizon, int) and slots > horizon:
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
    if setup.ensemble is not None and "at" in columns:
        raise ConfigError("[ensemble] needs every learner's vote on every row; leave out at")
    names = {name: name if name in columns else None for name in ("at", "revealed", "delay")}
    data = type(setup.data)(label="label", context=setup.data.context, **names)
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
