"""The replay engine: learners' kernel tables, run over the chunks of a log."""

import itertools
import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple, cast

import msgspec
import numpy as np

from covey.bandit.links import LinkPrices, Pair
from covey.bandit.partitions import MOST_DRAWN, Candidates, space_names
from covey.bandit.policies import used_rows
from covey.bandit.several import Spaces
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
from covey.errors import ConfigError
from covey.kernel import Arena, Clock, Table, table_of
from covey.kernel.rules import Cell, Rule, Seat
from covey.replay.rounds import Player, Rounds
from covey.types import BY_CONTEXT, MEMORY, MILLIONTHS, PHASES, Context, Label


class CellView(msgspec.Struct, frozen=True):
    """Summary of one of a learner's own cells, for display."""

    name: str
    low: Context
    high: Context
    arrivals: int
    arm: str | None  # with the largest estimate (index: most labels); None: no labels
    estimate: float | None
    space: tuple[int, ...] | None = None  # context coordinates it divides; None: all
    bounds: list[tuple[float | str, float | str]] = []  # low and high in the units of the columns


class Repricing(NamedTuple):
    """The new cost of an arm; inf: unavailable."""

    place: int  # index of the learner that pays
    arm: int  # index among the learner's costs
    cost: float


class PathCosts:
    """The links of a replay: prices per slot, and the costs of their use.

    Paths are chosen when prices change, and kept until the next change.
    """

    def __init__(self, setup: NetworkConfig, sites: Sequence[LearnerSpec]) -> None:
        wiring = setup.wiring
        assert wiring is not None
        self._links = LinkPrices(wiring, setup.settings.relearn_every)
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
        for link in itertools.pairwise(self._links.links.path(*pair) or ()):
            if link not in self._rows:
                path_cost += self._links.links.cost(*link)
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
    ) -> None:
        """Create empty tables; contexts have `width` coordinates."""
        self.sites = sites
        self.slots = 0
        self._unit = setup.unit
        self._width = width
        self._everywhere = (0.0,) * width, (1.0,) * width
        self._spaces = setup.plan.of_width(width)
        self._names_spaces = len(self._spaces) > 1
        self._titles = space_names(self._spaces, setup.context.names) if self._names_spaces else []
        self._receivers = array("i", (k for k, site in enumerate(sites) if site.receives))
        self._policies = setup.policies(width)
        self._clocks = [Clock(*policy.curves()) for policy in self._policies]
        rules = self._rules()
        self.tables = [
            [table_of(clock, rule) for clock, rule in zip(self._clocks, row, strict=True)]
            for row in rules
        ]
        self._are_slots_shared = setup.shares_slots
        self._loop = self._loop_of(setup, rules)
        self._arms = arms_of(sites)
        functions = [name for site in sites for name in site.functions]
        streams = np.array([site.stream for site in sites])
        self._streams = streams * len(functions) if streams.any() else None
        self._cell_names: list[str] = []  # by their number in the trace
        self._alarms = 0  # those that were looked at
        self._unmarked: dict[int, list[int]] = {}  # learner -> slots of alarms not in the trace
        learners = [site.name for site in sites]
        readers = learners if any(site.context_peers for site in sites) else []
        self._readers = len(readers)
        self._names: dict[str, Sequence[Label]] = {
            "learner": learners,
            "phase": PHASES,
            "arm": [*functions, *learners, *(name + BY_CONTEXT for name in readers)],
            "function": [*functions, *(MEMORY for _ in readers)],
            "prediction": labels,
            "label": labels,
        }

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
        return f"{self._titles[space]}/{own}"

    def _rules(self) -> list[list[Rule]]:
        """Return the rule of each learner in each space."""
        consulted = {peer for site in self.sites for peer in site.context_peers}
        return [
            [
                policy.rule(
                    functions=len(site.functions),
                    costs=site.costs,
                    name=site.name,
                    position=index,
                    unit=self._unit,
                    rewards=site.rewards if space in site.spaces else (),
                    is_supervised=site.is_supervised,
                    context_peers=len(site.context_peers),
                    learns_costs=any(site.cost_columns),
                    remembers=index in consulted,
                )
                for space, policy in enumerate(self._policies)
            ]
            for index, site in enumerate(self.sites)
        ]

    def _loop_of(self, setup: NetworkConfig, rules: list[list[Rule]]) -> Arena | Rounds:
        """Return what plays the slots: a compiled loop, or any loop where options are rare."""
        seats = _seats(self.sites, setup.cost_columns)
        hidden_from = 1 if setup.settings.rules.is_paper else len(seats)
        wait = setup.settings.slots_waited
        is_rare = setup.shares_slots or any(setup.answer_delays) or setup.data.missing is not None
        for site in self.sites:
            is_rare |= len(site.spaces) > 1 or not site.is_supervised
            is_rare |= len(site.context_peers) > 0 or len(site.free) > 0
        if not is_rare:
            return Arena(self.tables, self._clocks, list(self._spaces), seats, hidden_from, wait)
        players = []
        for place, (site, seat) in enumerate(zip(self.sites, seats, strict=True)):
            own = tuple(dict.fromkeys(k for space in site.spaces for k in self._spaces[space]))
            players.append(Player(seat, rules[place][0], site.spaces, self._tables_for(place), own))
        return Rounds(
            players, self._clocks, hidden_from, wait, are_slots_shared=self._are_slots_shared
        )

    def _tables_for(self, place: int) -> dict[tuple[int, ...], Table]:
        """Return the tables of a learner, by the spaces in which an instance is decided."""
        tables = self.tables[place]
        by_spaces: dict[tuple[int, ...], Table] = {(k,): table for k, table in enumerate(tables)}
        for spaces in {site.spaces for site in self.sites if len(site.spaces) > 1}:
            listed = [(str(k), self._spaces[k], self._policies[k].partition) for k in spaces]
            several = Spaces(Candidates.of(listed))
            several.join([tables[k] for k in spaces])
            by_spaces[spaces] = cast("Table", several)
        return by_spaces

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
            recalled=np.full(self._readers and (self._readers, len(log.labels)), -1, np.int32),
        )
        first_slot = self.slots + 1
        if not self._are_slots_shared:
            log = until_end_of_batch(log)
            for table in itertools.chain(*self.tables):  # a shared instance counts once
                table.counters.once = log.at is None and self._streams is None
        self._loop.run(log, first_slot, decided)
        for space, cell in self._loop.cells_since(len(self._cell_names)):
            self._cell_names.append(self.cell_name(space, cell))
        self.slots += slots
        trace = Trace(
            decided,
            log,
            first_slot=first_slot,
            arms=self._arms,
            unit=self._unit,
            receivers=self._receivers,
            names={**self._names, "cell": list(self._cell_names)},
            are_slots_shared=self._are_slots_shared,
            streams=self._streams,
        )
        alarms = sum(clock.alarms for clock in self._clocks)
        if alarms > self._alarms:
            self._alarms = alarms
            for place, slots_of_alarms in enumerate(self.alarms()):
                new = [slot for slot in slots_of_alarms if slot >= first_slot]
                if new:
                    self._unmarked.setdefault(place, []).extend(new)
        for place in [*self._unmarked]:
            self._mark_alarms(place, trace)
        return trace

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
            sorted(slot for table in tables for slot in table.policy.alarms)
            for tables in self.tables
        ]

    def cells(self, place: int) -> list[CellView]:
        """Return the cells that a learner uses, for reports."""
        site = self.sites[place]
        arms = site.arms([other.name for other in self.sites])
        views = []
        for space in site.spaces:
            table = self.tables[place][space]
            views += [self._view(space, table, row, arms) for _, row in used_rows(table)]
        return views

    def blind(self) -> list[int]:
        """Return, per learner, the number of decisions without any label to learn from."""
        return [
            tables[site.spaces[0]].blind_decisions
            for tables, site in zip(self.tables, self.sites, strict=True)
        ]

    def reprice(self, place: int, arm: int, cost: float) -> None:
        """Set the cost of an arm of the learner at index `place`; inf: unavailable."""
        for table in self.tables[place]:
            table.set_cost(arm, cost)
        costs = self.sites[place].costs
        repriced = self.sites[place]._replace(costs=(*costs[:arm], cost, *costs[arm + 1 :]))
        self.sites = [*self.sites[:place], repriced, *self.sites[place + 1 :]]
        self._arms = self._arms.with_cost(place, arm, cost)

    def _view(self, space: int, table: Table, row: int, arms: list[str]) -> CellView:
        cell = table.cells.cell(row)
        policy = self._policies[space]
        side = policy.partition.levels(policy.dimension)[cell.level].side
        if not table.cells.is_wide:
            # Rewards can depend on the context: the middle of the cell is now the current one.
            table.cells.around(tuple((coordinate + 0.5) / side for coordinate in cell.coordinates))
        arm, labels, right = policy.preferred(table, row, arms)
        low, high = self._everywhere  # coordinates outside the space are unbounded
        if not table.cells.is_wide and len(cell.coordinates) <= MOST_DRAWN:
            ends = dict(zip(self._spaces[space], cell.coordinates, strict=True))
            low = tuple(ends.get(k, 0) / side for k in range(self._width))
            high = tuple((ends[k] + 1) / side if k in ends else 1.0 for k in range(self._width))
        return CellView(
            name=self.cell_name(space, cell),
            low=low,
            high=high,
            arrivals=table.cells.own(row),
            arm=arm,
            estimate=right / (labels * self._unit) if labels else None,
            space=self._spaces[space] if self._names_spaces else None,
        )


class EpochedReplay:
    """A replay restarted in epochs of doubling length, with changing link prices.

    An epoch starts with empty tables and its own clock at slot 1; pending labels of the previous
    epoch are dropped. Only prices carry over.
    """

    def __init__(
        self,
        setup: NetworkConfig,
        sites: Sequence[LearnerSpec],
        width: int,
        labels: Sequence[Label],
        links: PathCosts | None,
    ) -> None:
        self.slots = 0
        self._setup = setup
        self._width = width
        self._labels = labels
        self._links = links
        self._doubling = setup.settings.doubling
        self._blind: list[list[int]] = []  # of each past epoch
        self._start(sites)

    @property
    def title(self) -> str:
        """The policy and the current epoch, in one line for reports."""
        title = self._engine.title
        if self._doubling is None:
            return title
        first_slot = self._doubling.before(len(self._blind)) + 1
        return f"{title}; epoch of {self._slots_of_epoch} slots from slot {first_slot}"

    def play(self, log: EncodedLog) -> Trace:
        """Replay the rows of `log` and return their trace; slots count across epochs."""
        pieces: list[Trace] = []
        first = 0
        if not self._setup.shares_slots:
            log = until_end_of_batch(log)
        starts = slot_starts(log, are_shared=self._setup.shares_slots)
        slots = len(starts) - 1
        while first < slots or not pieces:
            if self._engine.slots == self._slots_of_epoch:
                self._blind.append(self._engine.blind())
                self._start(self._engine.sites)
            end = min(slots, first + self._slots_of_epoch - self._engine.slots)
            if self._links is not None:
                slot = self.slots + first + 1
                for change in self._links.moves(slot):
                    self._engine.reprice(*change)
                end = min(end, self._links.next_slot(slot) - 1 - self.slots)
            rows = log.cut(starts[first], starts[end])
            pieces.append(self._engine.play(rows))
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
        """Return `ReplayEngine.alarms`; no policy with epochs raises any."""
        return self._engine.alarms()

    def _start(self, sites: Sequence[LearnerSpec]) -> None:
        setup, self._slots_of_epoch = self._setup, 2**60
        if self._doubling is not None:
            self._slots_of_epoch = self._doubling.slots(len(self._blind))
            setup = setup._replace(settings=setup.settings.in_epoch(self._slots_of_epoch))
        self._engine = ReplayEngine(setup, sites, self._width, self._labels)


def start(
    setup: NetworkConfig, sites: Sequence[LearnerSpec], width: int, labels: Sequence[Label]
) -> ReplayEngine | EpochedReplay:
    """Return the network before its first slot; contexts have `width` coordinates."""
    wait = setup.settings.label_wait
    if isinstance(wait, str) and setup.data.time is None:
        raise ConfigError(
            f"[policy] label-wait is {wait!r}; name the column of times as time in [data], or give "
            "a number of slots"
        )
    has_changing_links = setup.wiring is not None and setup.wiring.is_moving
    has_peers = any(site.peers for site in sites)
    links = PathCosts(setup, sites) if has_changing_links and has_peers else None
    if setup.settings.doubling is not None or links is not None:
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
            space=site.spaces[0],
            receives=site.receives,
            stream=site.stream,
            patience=-1 if site.answer_wait is None else site.answer_wait,
            lies=site.reports_falsely,
            misleads=site.labels_falsely,
            free=site.free,
        )
        for site in sites
    ]


def arms_of(sites: Sequence[LearnerSpec]) -> ArmTable:
    """Return the arms of all learners, with the codes of a trace."""
    offsets = [0, *itertools.accumulate(len(site.functions) for site in sites)]
    total, learners = offsets[-1], len(sites)
    codes = [
        [
            *range(offsets[place], offsets[place + 1]),
            *(total + peer for peer in site.peers),
            *(total + learners + peer for peer in site.context_peers),
        ]
        for place, site in enumerate(sites)
    ]
    return ArmTable(codes, [site.costs for site in sites])
