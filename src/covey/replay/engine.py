"""The replay engine: learners' kernel tables, run over the chunks of a log."""

import itertools
import math
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey.bandit.epochs import percent_of, seen_in
from covey.bandit.link_prices import ChangingLinks
from covey.bandit.links import Pair
from covey.bandit.partitions import cell_name
from covey.bandit.smoothness import Smoothness, adapt, epochs, estimate
from covey.config import LearnerSpec, NetworkConfig
from covey.data.logs import (
    ArmTable,
    DecisionColumns,
    EncodedLog,
    Trace,
    joined,
    slot_starts,
    until_end_of_batch,
)
from covey.kernel import Arena, Batches, Clock, Ledger, Table, table_of
from covey.kernel.rules import Cell, Seat
from covey.replay.arms import FUNCTIONS, LEARNERS, READERS, STORED, SiteNames, arms_of
from covey.types import MILLIONTHS, PHASES, Context, Label


class CellView(msgspec.Struct, frozen=True):
    """Summary of one of a learner's own cells, for display."""

    name: str
    low: Context
    high: Context
    arrivals: int
    arm: str | None  # with the largest estimate (index, cos-ce: most labels); None: no labels
    estimate: float | None
    space: tuple[int, ...] | None = None  # context coordinates it divides; None: all
    bounds: list[tuple[float | str, float | str]] = []  # low and high in the units of the columns


# A decision whose label is late: learner, rows, choice, helper, its rows, function.
Note = tuple[int, tuple[int, ...], int, int, tuple[int, ...], int]
# With its gain (-1: the label never comes), slot, contexts, label and answer, and cost.
Pending = tuple[Note, int | bool, int, tuple[tuple[float, ...], ...], tuple[Any, ...], int]


class KeptCell(NamedTuple):
    """A cell of a learner, its counters and the labels that it has stored."""

    level: int
    coordinates: tuple[int, ...]
    counters: list[int]  # the first is the slot in which it was created
    known: list[tuple[Any, int]]


class EngineState(msgspec.Struct):
    """All that later decisions depend on, in networks whose cells can be divided."""

    learners: list[list[KeptCell]]
    late: list[tuple[int, list[Pending]]]  # by the slots at whose ends the labels arrive
    blind: list[int]
    slots: int

    def add(self, other: "EngineState") -> None:
        """Add the cells of another part of the same log, in the order in which they were made."""
        self.learners = [
            sorted([*own, *more], key=lambda cell: cell.counters[0])
            for own, more in zip(self.learners, other.learners, strict=True)
        ]
        self.late = []  # the log has ended
        self.blind = [a + b for a, b in zip(self.blind, other.blind, strict=True)]
        self.slots += other.slots


class Repricing(NamedTuple):
    """The new cost of an arm; inf: unavailable."""

    place: int  # index of the learner that pays
    arm: int  # index among the learner's costs
    cost: float


class LinkPrices:
    """The links of a replay: prices per slot, and the costs of their use.

    Paths are chosen when prices change, and kept until the next change.
    """

    def __init__(self, setup: NetworkConfig, sites: Sequence[LearnerSpec]) -> None:
        wiring = setup.wiring
        assert wiring is not None
        self._links = ChangingLinks(wiring, setup.settings.relearn_every)
        rows = {column: row for row, column in enumerate(setup.cost_columns)}
        self._rows = {pair: rows[column] for pair, column in wiring.tolls.items()}
        self.next_slot = self._links.next_slot
        self._names = [site.name for site in sites]
        self._first_asked = sum(len(site.functions) for site in sites)
        self._arms: dict[Pair, tuple[int, int]] = {}
        self._carried: dict[Pair, float] = {}  # serving costs that prices include
        is_carried = setup.settings.carry_serving_costs
        for index, site in enumerate(sites):
            for arm, peer in enumerate(site.peers, len(site.functions)):
                pair = (site.name, sites[peer].name)
                self._arms[pair] = (index, arm)
                self._carried[pair] = sites[peer].serving_cost if is_carried else 0.0

    def moves(self, slot: int) -> list[Repricing]:
        """Return the costs that change at `slot`."""
        return [
            Repricing(*self._arms[pair], math.inf if price is None else price + self._carried[pair])
            for pair, price in self._links.advance(slot).items()
            if pair in self._arms
        ]

    def charge(self, trace: Trace, log: EncodedLog) -> None:
        """Set the costs of requests in `trace` to those of their paths in `log`; record them."""
        if not self._rows or log.costs is None:
            return
        sites = len(self._names)
        peer = trace.arm - self._first_asked
        pair = np.where((peer >= 0) & (peer < sites), trace.learner * sites + peer, -1)
        cost = trace.cost.copy()
        for code in np.unique(pair[pair >= 0]).tolist():
            rows = np.flatnonzero(pair == code)
            slots = trace.row[rows]
            asker, helper = divmod(code, sites)
            names = (self._names[asker], self._names[helper])
            cost[rows] = self._path_cost(names, slots, np.asarray(log.costs)) + self._carried[names]
            if len(trace.paid):
                cost[rows] += trace.paid[rows] / MILLIONTHS
        trace.cost = cost

    def _path_cost(self, pair: Pair, slots: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Return the path cost of a pair in these slots, and record the costs of its links.

        It is a sum over links, not a difference to the price, so it has no rounding error.
        """
        path_cost = np.zeros(len(slots))
        for link in itertools.pairwise(self._links.path(*pair)):
            if link not in self._rows:
                path_cost += self._links.cost(link)
                continue
            observed = costs[self._rows[link], slots]
            self._links.observe(link, int(observed.sum()), len(observed))
            path_cost += observed / MILLIONTHS
        return path_cost


class ReplayEngine:
    """A network under replay: the learners' tables, updated chunk by chunk."""

    def __init__(
        self,
        setup: NetworkConfig,
        sites: Sequence[LearnerSpec],
        width: int,
        labels: Sequence[Label],
        alphas: Sequence[float] | None = None,
    ) -> None:
        """Create empty tables; contexts have `width` coordinates.

        `alphas` are those of the learners, where they differ: each has cells of its own then.
        """
        self.sites = sites
        self.slots = 0
        self._unit = setup.unit
        self._width = width
        self._coordinates = setup.context.names
        self._spaces = setup.plan.of_width(width)
        self._names_spaces = len(self._spaces) > 1
        self._own: Sequence[tuple[int, ...]] = [site.spaces for site in sites]
        self._receivers = array("i", (k for k, site in enumerate(sites) if site.receives))
        self._policies = setup.policies(width)
        if alphas is not None and len(set(alphas)) > 1:
            self._divide(setup, alphas)
        self._clocks = [Clock(policy.scales(), policy.powers()) for policy in self._policies]
        self.ledgers = self._empty_ledgers()
        reading = self._policies[0].settings.reading
        hidden_from = 1 if reading.hidden_from == "first" else len(sites)
        seats = _seats(sites, setup.cost_columns)
        self._arena = Arena(self.ledgers, seats, hidden_from, setup.settings.label_wait)
        self._are_slots_shared = setup.shares_slots
        self._arms = ArmTable(partial(arms_of, sites))
        self._cell_names: list[str] = []  # by their number in the trace
        self._alarms = 0  # those that were looked at
        self._unmarked: dict[int, list[int]] = {}  # learner -> slots of alarms not in the trace
        self._blind = [0] * len(sites)  # of the state that it continues from
        ends = array("q", itertools.accumulate(len(site.functions) for site in sites))
        self._names: dict[str, Sequence[Label]] = {
            "learner": SiteNames(sites, (LEARNERS,)),
            "phase": PHASES,
            "arm": SiteNames(sites, (FUNCTIONS, LEARNERS, READERS), ends),
            "function": SiteNames(sites, (FUNCTIONS, STORED), ends),
            "prediction": labels,
            "label": labels,
        }

    def _divide(self, setup: NetworkConfig, alphas: Sequence[float]) -> None:
        """Give every alpha spaces of its own, in which learners with this alpha decide."""
        found, count = sorted(set(alphas), reverse=True), len(self._spaces)
        settings = [msgspec.structs.replace(setup.settings, alpha=alpha) for alpha in found]
        self._policies = [
            policy
            for one in settings
            for policy in setup._replace(settings=one).policies(self._width)
        ]
        self._spaces = tuple(self._spaces) * len(found)
        self._own = [
            tuple(found.index(alpha) * count + space for space in site.spaces)
            for site, alpha in zip(self.sites, alphas, strict=True)
        ]

    @property
    def title(self) -> str:
        """One line for reports: the policy in the first space."""
        several = f"; {len(self._spaces)} context spaces" if self._names_spaces else ""
        return self._policies[0].title + several

    def cell_name(self, space: int, cell: Cell) -> str:
        """Return the cell's name, the same for all learners."""
        own = self._policies[space].partition.name(cell)
        if not self._names_spaces:
            return own
        return cell_name(self._spaces[space], self._coordinates, own)

    def _empty_ledgers(self) -> list[Ledger]:
        consulted = {peer for site in self.sites for peer in site.context_peers}
        ledgers = []
        for index, site in enumerate(self.sites):
            rules = [
                policy.rule(
                    functions=len(site.functions),
                    costs=site.costs,
                    name=site.name,
                    position=index,
                    unit=self._unit,
                    rewards=site.rewards if space in self._own[index] else (),
                    is_supervised=site.is_supervised,
                    context_peers=len(site.context_peers),
                    learns_costs=any(site.cost_columns) or policy.keeps_widths,
                    remembers=index in consulted,
                )
                for space, policy in enumerate(self._policies)
            ]
            pairs = zip(self._clocks, rules, strict=True)
            tables = [table_of(clock, rule) for clock, rule in pairs]
            ledgers.append(Ledger(tables, self._own[index], self._spaces))
        return ledgers

    def play(self, log: EncodedLog) -> Trace:
        slots = len(slot_starts(log, are_shared=self._are_slots_shared)) - 1
        rows = len(log.labels) * (1 if log.at is not None else len(self._receivers))
        decided = DecisionColumns(
            cell=np.empty(rows, np.int32).data,
            phase=np.empty(rows, np.int8).data,
            arm=np.empty(rows, np.int32).data,
            function=np.empty(rows, np.int32).data,
            correct=np.empty(rows, np.int32).data,
            paid=np.empty(0 if log.costs is None else rows, np.int32).data,
        )
        first_slot = self.slots + 1
        if self._are_slots_shared:
            Batches(self._arena).run(log, first_slot, decided)
        else:
            self._arena.run(until_end_of_batch(log), first_slot, decided)
        for space, cell in self._arena.cells_since(len(self._cell_names)):
            self._cell_names.append(self.cell_name(space, cell))
        self.slots += slots
        trace = self.trace_of(decided, log, first_slot, list(self._cell_names))
        alarms = sum(clock.alarms for clock in self._clocks)
        if alarms > self._alarms:
            self._alarms = alarms
            for place, slots_of_alarms in enumerate(self.alarms()):
                new = [one for one in slots_of_alarms if one >= first_slot]
                if new:
                    self._unmarked.setdefault(place, []).extend(new)
        for place in [*self._unmarked]:
            self._mark_alarms(place, trace)
        return trace

    def trace_of(
        self, decided: DecisionColumns, log: EncodedLog, first_slot: int, cells: Sequence[str]
    ) -> Trace:
        """Return the trace of decisions, whose cells are numbered as in `cells`."""
        return Trace(
            decided,
            log,
            first_slot=first_slot,
            arms=self._arms,
            unit=self._unit,
            receivers=self._receivers,
            names={**self._names, "cell": cells},
            are_slots_shared=self._are_slots_shared,
        )

    def state(self) -> EngineState:
        """Return what an engine of the same configuration needs to continue."""
        learners = []
        for ledger in self.ledgers:
            (table,) = ledger.tables  # cells of several spaces cannot be divided
            cells = [(table.cell(row), row) for row in range(len(table))]
            learners.append(
                [
                    KeptCell(cell.level, cell.coordinates, table.counters(row), table.known(row))
                    for cell, row in cells
                ]
            )
        return EngineState(learners, self._arena.late(), self.blind(), self.slots)

    def restore(self, state: EngineState) -> None:
        """Continue from the state of an engine of the same configuration."""
        for ledger, cells in zip(self.ledgers, state.learners, strict=True):
            (table,) = ledger.tables
            for level, coordinates, counters, known in cells:
                row = table.load(Cell(level, tuple(coordinates)), counters)
                table.know(row, known)
        self._arena.take_late(state.late)
        self._blind, self.slots = state.blind, state.slots

    def catch_up(self, slot: int) -> None:
        """Settle the labels that arrive up to the end of `slot`; its row is in another part."""
        self._arena.catch_up(slot)

    def _mark_alarms(self, place: int, trace: Trace) -> None:
        """Mark a learner's first decision at or after each alarm; the rest is left for later."""
        rows = np.flatnonzero(trace.learner == place)
        at = np.searchsorted(trace.slot[rows], self._unmarked[place])
        trace.alarm[rows[at[at < len(rows)]]] = 1
        left = [self._unmarked[place][k] for k in np.flatnonzero(at == len(rows))]
        if left:
            self._unmarked[place] = left
        else:
            del self._unmarked[place]

    def alarms(self) -> list[list[int]]:
        """Return, per learner, the slots of the alarms of its change detection."""
        return [
            sorted(slot for table in ledger.tables for slot in table.alarms)
            for ledger in self.ledgers
        ]

    def cells(self, place: int) -> list[CellView]:
        """Return the cells that a learner uses, for reports."""
        site = self.sites[place]
        arms = site.arms(SiteNames(self.sites, (LEARNERS,)))
        views = []
        for space in self._own[place]:
            table = self.ledgers[place].tables[space]
            used = (row for row in range(len(table)) if table.own(row) and not table.is_split(row))
            views += [self._view(space, table, row, arms) for row in used]
        return views

    def smoothness(self, place: int) -> Smoothness | None:
        """Return what a learner's labels say of its functions, in the spaces it decides in."""
        ledger, functions = self.ledgers[place], len(self.sites[place].functions)
        return estimate(
            itertools.chain.from_iterable(
                seen_in(ledger.tables[space], self._policies[space], functions)
                for space in self._own[place]
            )
        )

    def blind(self) -> list[int]:
        """Return, per learner, the number of decisions without any label to learn from."""
        return [
            before + ledger.tables[own[0]].blind_decisions()
            for before, ledger, own in zip(self._blind, self.ledgers, self._own, strict=True)
        ]

    def reprice(self, place: int, arm: int, cost: float) -> None:
        """Set the cost of an arm of the learner at index `place`; inf: unavailable."""
        for table in self.ledgers[place].tables:
            table.set_cost(arm, cost)
        costs = self.sites[place].costs
        repriced = self.sites[place]._replace(costs=(*costs[:arm], cost, *costs[arm + 1 :]))
        self.sites = [*self.sites[:place], repriced, *self.sites[place + 1 :]]
        self._arms = self._arms.with_cost(place, arm, cost)

    def _view(self, space: int, table: Table, row: int, arms: list[str]) -> CellView:
        cell = table.cell(row)
        policy = self._policies[space]
        side = policy.partition.levels(policy.dimension)[cell.level].side
        # Rewards can depend on the context: that of the middle of the cell is now the current one.
        table.around(tuple((coordinate + 0.5) / side for coordinate in cell.coordinates))
        best = table.best(row)
        # An index, or an elimination by reports, ignores a high mean of few labels.
        if policy.has_index or policy.elimination is not None:
            best = max(range(len(arms)), key=lambda arm: table.record(row, arm)[0])
        labels, right = table.record(row, best)
        # Coordinates outside the space are unbounded.
        low, high = [0.0] * self._width, [1.0] * self._width
        for index, coordinate in zip(self._spaces[space], cell.coordinates, strict=True):
            low[index], high[index] = coordinate / side, (coordinate + 1) / side
        return CellView(
            name=self.cell_name(space, cell),
            low=tuple(low),
            high=tuple(high),
            arrivals=table.own(row),
            arm=arms[best] if labels else None,
            estimate=right / (labels * self._unit) if labels else None,
            space=self._spaces[space] if self._names_spaces else None,
        )


class EpochedReplay:
    """A replay restarted in epochs of doubling length, with changing link prices.

    An epoch starts with empty tables and its own clock at slot 1; pending labels of the previous
    epoch are dropped. Only prices and the estimated alphas carry over, one per learner.
    """

    def __init__(
        self,
        setup: NetworkConfig,
        sites: Sequence[LearnerSpec],
        width: int,
        labels: Sequence[Label],
        links: LinkPrices | None,
    ) -> None:
        self.slots = 0
        self._setup = setup
        self._width = width
        self._labels = labels
        self._links = links
        self._has_memory = any(site.context_peers for site in sites)
        alpha = setup.settings.alpha
        self._is_estimated = isinstance(alpha, str)
        self._alphas = [1.0 if isinstance(alpha, str) else alpha for _ in sites]
        self._is_doubling = setup.settings.horizon == "doubling"
        self._epochs = epochs(setup.settings.first_epoch if self._is_doubling else 2**60)
        self._blind: list[list[int]] = []
        self._alarms: list[list[int]] = [[] for _ in sites]
        self._start(sites)

    @property
    def title(self) -> str:
        """The policy and the current epoch, in one line for reports."""
        title = self._engine.title
        if not self._is_doubling:
            return title
        found = " and ".join(f"{alpha:.3g}" for alpha in sorted(set(self._alphas)))
        alpha = f", alpha {found}" if self._is_estimated else ""
        epoch = f"epoch of {self._epoch.slots} slots from slot {self._epoch.first_slot}"
        return f"{title}; {epoch}{alpha}"

    def play(self, log: EncodedLog) -> Trace:
        """Replay the rows of `log` and return their trace; slots count across epochs."""
        pieces: list[Trace] = []
        first = 0
        if not self._setup.shares_slots:
            log = until_end_of_batch(log)
        starts = slot_starts(log, are_shared=self._setup.shares_slots)
        slots = len(starts) - 1
        while first < slots or not pieces:
            if self._engine.slots == self._epoch.slots:
                self._restart()
            end = min(slots, first + self._epoch.slots - self._engine.slots)
            if self._links is not None:
                slot = self.slots + first + 1
                for change in self._links.moves(slot):
                    self._engine.reprice(*change)
                end = min(end, self._links.next_slot(slot) - 1 - self.slots)
            rows = _cut(log, starts[first], starts[end])
            pieces.append(self._engine.play(rows))
            if self._has_memory:  # the kernel wrote answers into the piece
                answers = np.asarray(log.predictions)
                answers[:, starts[first] : starts[end]] = rows.predictions
            if self._links is not None:
                self._links.charge(pieces[-1], rows)
            first = end
        trace = joined(pieces, log, first_slot=self.slots + 1)
        self.slots += slots
        return trace

    def cells(self, place: int) -> list[CellView]:
        """Return the cells that a learner uses in the current epoch."""
        return self._engine.cells(place)

    def blind(self) -> list[int]:
        """Return `ReplayEngine.blind`, summed over all epochs."""
        return [sum(counts) for counts in zip(*self._blind, self._engine.blind(), strict=True)]

    def alarms(self) -> list[list[int]]:
        """Return `ReplayEngine.alarms` of all epochs; slots count across them."""
        before = self._epoch.first_slot - 1
        pairs = zip(self._alarms, self._engine.alarms(), strict=True)
        return [[*past, *(slot + before for slot in new)] for past, new in pairs]

    def _restart(self) -> None:
        self._blind.append(self._engine.blind())
        self._alarms = self.alarms()
        for place in range(len(self._alphas)) if self._is_estimated else ():
            seen = self._engine.smoothness(place)
            if seen is not None:
                self._alphas[place] = percent_of(seen.safe_alpha) / 100
        self._start(self._engine.sites)

    def _start(self, sites: Sequence[LearnerSpec]) -> None:
        self._epoch = next(self._epochs)
        settings = self._setup.settings
        if self._is_doubling:
            settings = adapt(settings, self._epoch, alpha=max(self._alphas))
        setup = self._setup._replace(settings=settings)
        self._engine = ReplayEngine(setup, sites, self._width, self._labels, self._alphas)


def start(
    setup: NetworkConfig, sites: Sequence[LearnerSpec], width: int, labels: Sequence[Label]
) -> ReplayEngine | EpochedReplay:
    """Return the network before its first slot; contexts have `width` coordinates."""
    has_changing_links = setup.wiring is not None and setup.wiring.is_moving
    has_peers = any(site.peers for site in sites)
    links = LinkPrices(setup, sites) if has_changing_links and has_peers else None
    if setup.settings.horizon == "doubling" or links is not None:
        return EpochedReplay(setup, sites, width, labels, links)
    return ReplayEngine(setup, sites, width, labels)


def _seats(sites: Sequence[LearnerSpec], columns: Sequence[str]) -> list[Seat]:
    """Return the learners' seats; `columns` names the rows of a log's costs."""
    numbers: dict[str | None, int] = {column: number for number, column in enumerate(columns)}
    numbers[None] = -1
    return [
        Seat(
            behind=site.behind,
            cost_columns=tuple(
                numbers[column] for column in site.cost_columns or [None] * len(site.costs)
            ),
            receives=site.receives,
            stream=site.stream,
            patience=-1 if site.answer_wait is None else site.answer_wait,
            lies=site.reports_falsely,
            misleads=site.labels_falsely,
            free=site.free,
            answers=site.answers,
        )
        for site in sites
    ]


def _cut(log: EncodedLog, first: int, end: int) -> EncodedLog:
    width = len(log.contexts) // max(1, len(log.labels))
    pieces: dict[str, Any] = {}
    for name, column in log._asdict().items():
        if column is None:
            continue
        array = np.asarray(column)
        if name == "contexts":
            piece = array[first * width : end * width]
        elif name in ("predictions", "gains", "costs"):
            piece = np.ascontiguousarray(array[:, first:end])
        else:
            piece = array[first:end]
        pieces[name] = piece.data
    return log._replace(**pieces)
