"""A network under replay: tables played chunk after chunk, in one game or a season of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from covey.config import ReplayConfig, Site
from covey.encoding import Log
from covey.engine import Arena, Clock, Table
from covey.policies import Policy
from covey.smoothness import Seen, adapt, epochs, estimate
from covey.traces import Decided, Trace, joined
from covey.types import PHASES, CellView, Label, Rule


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

    def blind(self) -> list[int]:
        """Return, per learner, the decisions for which nobody had a label."""
        return [table.blind_decisions() for table in self.tables]

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
            estimate=right / (labels * self._unit) if labels else None,
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
        self._blind: list[list[int]] = []
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

    def blind(self) -> list[int]:
        """Return, per learner, the decisions for which nobody had a label, in all games."""
        return [sum(counts) for counts in zip(*self._blind, self._game.blind(), strict=True)]

    def _start_anew(self) -> None:
        self._blind.append(self._game.blind())
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
        self._game = Game(sites, policy, self._labels, self._setup.unit)

    def _reprice(self, slot: int) -> None:
        while self._moves and self._moves[0].slot <= slot:
            move = self._moves.pop(0)
            self._game.reprice(move.place, move.arm, move.cost)


def start(
    setup: ReplayConfig, sites: Sequence[Site], dimension: int, labels: Sequence[Label]
) -> Game | Season:
    """Return the network at its first slot."""
    if setup.settings.horizon == "doubling" or setup.repricings:
        return Season(setup, sites, dimension, labels)
    return Game(sites, setup.policy(dimension), labels, setup.unit)


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


def _cut(log: Log, first: int, end: int) -> Log:
    """Return the rows of `log` from `first` to `end`."""
    width = len(log.contexts) // max(1, len(log.labels))
    by_slot: dict[str, Any] = {
        name: None if column is None else np.asarray(column)[first:end].data
        for name, column in log._asdict().items()
        if name not in ("contexts", "predictions", "gains")
    }
    return Log(
        contexts=np.asarray(log.contexts)[first * width : end * width].data,
        predictions=np.ascontiguousarray(np.asarray(log.predictions)[:, first:end]).data,
        gains=(
            None
            if log.gains is None
            else np.ascontiguousarray(np.asarray(log.gains)[:, first:end]).data
        ),
        **by_slot,
    )
