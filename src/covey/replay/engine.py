"""The replay engine: the learners of a network, run over the chunks of a log."""

import itertools
from array import array
from collections.abc import Sequence

import msgspec
import numpy as np

from covey.bandit.learner import Region, regions
from covey.bandit.partitions import MOST_DRAWN
from covey.config import LearnerSpec, NetworkConfig, learners_of
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
from covey.kernel import Arena
from covey.kernel.rules import Cell, Seat
from covey.replay.rounds import Rounds
from covey.types import BY_CONTEXT, MEMORY, MILLIONTHS, OWN_PHASES, Context, Label

ENDLESS = 2**60  # slots


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


class ReplayEngine:
    """A network under replay: its learners, which decide and learn chunk by chunk.

    With an unknown horizon they begin anew in epochs of doubling length: with empty tables, at slot
    1 of their clock, and without the pending labels of the previous epoch. Only prices carry over.
    """

    def __init__(
        self,
        setup: NetworkConfig,
        sites: Sequence[LearnerSpec],
        width: int,
        labels: Sequence[Label],
    ) -> None:
        """Begin before the first slot; contexts have `width` coordinates."""
        wait = setup.settings.label_wait
        if isinstance(wait, str) and setup.data.time is None:
            raise ConfigError(
                f"[policy] label-wait is {wait!r}; name the column of times as time in [data], or "
                "give a number of slots"
            )
        self.sites = sites
        self.slots = 0
        self._setup = setup
        self._width = width
        self._spaces = setup.plan.of_width(width)
        self._receivers = array("i", (k for k, site in enumerate(sites) if site.receives))
        self._doubling = setup.settings.doubling
        self._links = setup.links() if any(site.peers for site in sites) else None
        functions = [name for site in sites for name in site.functions]
        streams = np.array([site.stream for site in sites])
        self._streams = streams * len(functions) if streams.any() else None
        self._alarms = 0  # those that were looked at
        self._unmarked: dict[int, list[int]] = {}  # learner -> slots of alarms not in the trace
        learners = [site.name for site in sites]
        readers = learners if any(site.context_peers for site in sites) else []
        self._readers = len(readers)
        self._names: dict[str, Sequence[Label]] = {
            "learner": learners,
            "phase": OWN_PHASES,
            "arm": [*functions, *learners, *(name + BY_CONTEXT for name in readers)],
            "function": [*functions, *(MEMORY for _ in readers)],
            "prediction": labels,
            "label": labels,
        }
        self._first_asked = len(functions)
        self._blind_before: list[list[int]] = []  # of each past epoch
        self._begin(setup._replace(sites=sites))

    def _begin(self, setup: NetworkConfig) -> None:
        """Begin an epoch, which is the only one if the horizon is known."""
        self._slots_of_epoch = ENDLESS
        if self._doubling is not None:
            self._slots_of_epoch = self._doubling.slots(len(self._blind_before))
            setup = setup._replace(settings=setup.settings.in_epoch(self._slots_of_epoch))
        self._slot = 0  # the latest of the epoch
        self._cell_names: list[str] = []  # by their number in the trace
        self.learners = learners_of(setup, self._width, are_together=True, links=self._links)
        first = self.learners[0]
        self._titles, self._clocks = [*first.policies], [*first.clocks.values()]
        self.tables = [[each.tables[space] for space in self._titles] for each in self.learners]
        self._loop = self._loop_of(setup)
        self._arms = self._present_arms()

    @property
    def title(self) -> str:
        """One line for reports: the policy in the first space, and the current epoch."""
        title = self.learners[0].policies[self._titles[0]].title
        if len(self._spaces) > 1:
            title += f"; {len(self._spaces)} context spaces"
        if self._doubling is None:
            return title
        first_slot = self._doubling.before(len(self._blind_before)) + 1
        return f"{title}; epoch of {self._slots_of_epoch} slots from slot {first_slot}"

    def cell_name(self, space: int, cell: Cell) -> str:
        """Return the cell's name, the same for all learners."""
        title = self._titles[space]
        return self.learners[0].names.of(cell._replace(space=title) if title else cell)

    def _loop_of(self, setup: NetworkConfig) -> Arena | Rounds:
        """Return what plays the slots: a compiled loop, or any loop where options are rare."""
        costs = self._setup.cost_columns  # in the order of the log, also without peers
        is_rare = setup.shares_slots or any(setup.answer_delays) or setup.data.missing is not None
        is_rare |= setup.settings.harm is not None
        for site in setup.sites:
            is_rare |= len(site.spaces) > 1 or not site.is_supervised
            is_rare |= len(site.context_peers) > 0 or len(site.free) > 0
        if is_rare:
            return Rounds(setup, self.learners, self._clocks, self._width, costs)
        seats = _seats(setup.sites, costs)
        hidden_from = 1 if setup.settings.rules.is_paper else len(seats)
        wait = setup.settings.slots_waited
        return Arena(self.tables, self._clocks, list(self._spaces), seats, hidden_from, wait)

    def play(self, log: EncodedLog) -> Trace:
        """Replay the rows of a log and return their trace; slots count across epochs."""
        are_shared = self._setup.shares_slots
        if not are_shared:
            log = until_end_of_batch(log)
        starts = slot_starts(log, are_shared=are_shared)
        slots, first = len(starts) - 1, 0
        pieces: list[Trace] = []
        while first < slots or not pieces:
            if self._slot == self._slots_of_epoch:
                self._blind_before.append(self._blind_now())
                self._begin(self._setup._replace(sites=self._repriced()))
            end = min(slots, first + self._slots_of_epoch - self._slot)
            if self._links is not None:
                slot = self.slots + first + 1
                self._reprice(slot)
                end = min(end, self._links.next_slot(slot) - 1 - self.slots)
            piece = log if end - first == slots else log.cut(starts[first], starts[end])
            pieces.append(self._play(piece, end - first))
            first = end
        trace = pieces[0]
        if len(pieces) > 1 or self._doubling is not None:
            trace = joined(pieces, log, first_slot=self.slots + 1)
        self.slots += slots
        return trace

    def _play(self, log: EncodedLog, slots: int) -> Trace:
        """Replay rows of one epoch, in which no price changes."""
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
        first_slot = self._slot + 1
        if not self._setup.shares_slots:
            for table in itertools.chain(*self.tables):  # a shared instance counts once
                table.counters.once = log.at is None and self._streams is None
        self._loop.run(log, first_slot, decided)
        for space, cell in self._loop.cells_since(len(self._cell_names)):
            self._cell_names.append(self.cell_name(space, cell))
        self._slot += slots
        trace = Trace(
            decided,
            log,
            first_slot=first_slot,
            arms=self._arms,
            unit=self._setup.unit,
            receivers=self._receivers,
            names={**self._names, "cell": list(self._cell_names)},
            are_slots_shared=self._setup.shares_slots,
            streams=self._streams,
        )
        self._mark_alarms(trace, first_slot)
        if self._links is not None and self._links.tolls and log.costs is not None:
            self._charge(trace, log)
        return trace

    # -- prices ---------------------------------------------------------------------------------

    def _reprice(self, slot: int) -> None:
        """Let learners pay what their peers cost from a slot on."""
        pairs = [(each.prices, each) for each in self.learners]
        moved = [prices.apply(each.reprice, slot) for prices, each in pairs if prices is not None]
        if any(moved):
            self._arms = self._present_arms()

    def _repriced(self) -> list[LearnerSpec]:
        pairs = zip(self.sites, self.learners, strict=True)
        return [site._replace(costs=learner.costs) for site, learner in pairs]

    def _present_arms(self) -> ArmTable:
        """Return the arms of all learners with their costs, by the codes of a trace."""
        asked, learners = self._first_asked, len(self.sites)
        offsets = [0, *itertools.accumulate(len(site.functions) for site in self.sites)]
        codes = [
            [
                *range(offsets[place], offsets[place + 1]),
                *(asked + peer for peer in site.peers),
                *(asked + learners + peer for peer in site.context_peers),
            ]
            for place, site in enumerate(self.sites)
        ]
        return ArmTable(codes, [learner.costs for learner in self.learners])

    def _charge(self, trace: Trace, log: EncodedLog) -> None:
        """Set the costs of requests in a trace to those of their paths, and learn from them."""
        columns = dict(zip(self._setup.cost_columns, np.asarray(log.costs), strict=True))
        sites, cost = len(self.sites), trace.cost.copy()
        peer = trace.arm - self._first_asked
        pair = np.where((peer >= 0) & (peer < sites), trace.learner * sites + peer, -1)
        for code in np.unique(pair[pair >= 0]).tolist():
            rows = np.flatnonzero(pair == code)
            slots = trace.row[rows]
            asker, helper = divmod(code, sites)
            prices = self.learners[asker].prices
            assert prices is not None
            observed = {column: costs[slots] for column, costs in columns.items()}
            cost[rows] = prices.charge(self.sites[helper].name, observed, len(rows))
            if len(trace.paid):
                cost[rows] += trace.paid[rows] / MILLIONTHS
        trace.cost = cost

    # -- alarms ---------------------------------------------------------------------------------

    def alarms(self) -> list[list[int]]:
        """Return, per learner, the slots of the alarms of its change detection."""
        return [learner.alarms for learner in self.learners]

    def _mark_alarms(self, trace: Trace, first_slot: int) -> None:
        """Mark each learner's first decision at or after an alarm; the rest is left for later."""
        alarms = sum(clock.alarms for clock in self._clocks)
        if alarms > self._alarms:
            self._alarms = alarms
            for place, slots in enumerate(self.alarms()):
                new = [slot for slot in slots if slot >= first_slot]
                self._unmarked[place] = self._unmarked.get(place, []) + new
        for place, slots in [pair for pair in self._unmarked.items() if pair[1]]:
            rows = np.flatnonzero(trace.learner == place)
            at = np.searchsorted(trace.slot[rows], slots)
            trace.alarm[rows[at[at < len(rows)]]] = 1
            self._unmarked[place] = [slots[k] for k in np.flatnonzero(at == len(rows))]

    # -- what tables know -----------------------------------------------------------------------

    def blind(self) -> list[int]:
        """Return, per learner, the number of decisions without any label to learn from."""
        return [sum(counts) for counts in zip(*self._blind_before, self._blind_now(), strict=True)]

    def _blind_now(self) -> list[int]:
        return [learner.table.blind_decisions for learner in self.learners]

    def cells(self, place: int) -> list[CellView]:
        """Return the cells that a learner uses in the current epoch, for reports."""
        spaces, cells = self.sites[place].spaces, regions(self.learners[place])
        return [self._view(spaces[cell.number], cell) for cell in cells]

    def _view(self, space: int, region: Region) -> CellView:
        own = self._spaces[space]
        # Coordinates outside the space are unbounded.
        low = dict(zip(own, region.shown.low, strict=False))
        high = dict(zip(own, region.shown.high, strict=False))
        ends = [
            tuple(low.get(k, 0.0) for k in range(self._width)),
            tuple(high.get(k, 1.0) for k in range(self._width)),
        ]
        context = self._setup.context
        is_named = context.dimension == self._width and len(own) <= MOST_DRAWN
        labels, right = region.record
        return CellView(
            name=self.cell_name(space, region.cell),
            low=ends[0],
            high=ends[1],
            bounds=context.bounds_at(*ends) if is_named else [],
            arrivals=region.shown.arrivals,
            arm=region.shown.arm,
            estimate=right / (labels * self._setup.unit) if labels else None,
            space=own if len(self._spaces) > 1 else None,
        )


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
            lies=site.reports_falsely,
            misleads=site.labels_falsely,
        )
        for site in sites
    ]
