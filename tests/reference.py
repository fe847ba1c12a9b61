"""The slow, obvious oracle: cooperating sites on a recorded stream, one slot at a time.

Nothing here is cached, batched or clever, and nothing comes from the package: a trace on which
this file and the fast kernel agree has been worked out twice.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Curve = tuple[float, float]  # (scale, power) of a limit that grows with the slot


@dataclass(frozen=True)
class Site:
    name: str
    functions: int
    costs: tuple[float, ...]
    arrivals: bool
    peers: tuple[tuple[int, float], ...]  # (index of the site, price of asking it)
    supervised: bool = True  # False: it never sees a label of its own


@dataclass(frozen=True)
class Setup:
    sites: tuple[Site, ...]
    zooming: bool
    slices: int
    split_scale: float
    split_power: float
    level_offset: int
    explore: Curve
    train: Curve
    explore_peers: Curve
    order: str  # "own-train-peers" | "train-own-peers"
    helper: str  # "explore-first" | "greedy"
    count: str  # "arrivals" | "labelled" | "uses"
    askers: str  # "all" | "first"
    hidden_from: str  # "all" | "first"
    pending: bool
    label_wait: int | None  # in slots
    inherit: bool = False
    window: int = 0  # labels of a cell that accuracies go by; 0: all
    discount: float = 1.0


class Row(NamedTuple):
    slot: int
    site: int
    cell: str
    phase: str
    arm: int
    function: int
    correct: int | None


def replay(  # noqa: PLR0913 - each is one column of the recorded stream
    setup: Setup,
    *,
    contexts: Sequence[tuple[float, ...]],
    predictions: Sequence[Sequence[object]],
    labels: Sequence[object],
    at: Sequence[int] | None = None,
    revealed: Sequence[int] | None = None,
    delay: Sequence[int] | None = None,
    shown: Sequence[Sequence[int]] | None = None,
) -> list[Row]:
    """Run the whole stream and return every decision, by slot and then by site."""
    network = Network(setup)
    everywhere = [index for index, site in enumerate(setup.sites) if site.arrivals]
    labels_due: dict[int, list[tuple[Decision, bool]]] = defaultdict(list)
    waits_over: dict[int, list[Decision]] = defaultdict(list)
    rows = []
    for slot, context in enumerate(contexts, start=1):
        label = labels[slot - 1]
        is_shown = revealed is None or revealed[slot - 1] != 0
        late = 0 if delay is None else delay[slot - 1]
        receivers = everywhere if at is None else [at[slot - 1]]
        # Everybody decides before anything is counted: within a slot nobody is earlier.
        decisions = [network.decide(site, context, slot) for site in receivers]
        for decision in decisions:
            network.end_slot(decision)
            function = network.functions_before(decision.owner) + decision.function
            right = predictions[function][slot - 1] == label
            seen = shown is None or shown[slot - 1][decision.site] != 0
            if label is not None and label_comes(
                setup, decision.site, shown=is_shown and seen, late=late
            ):
                labels_due[slot + late].append((decision, right))
            elif setup.label_wait is not None:
                waits_over[slot + setup.label_wait].append(decision)
            correct = None if label is None else int(right)
            cell = cell_name(decision.cell, zooming=setup.zooming)
            rows.append(
                Row(slot, decision.site, cell, decision.phase, decision.arm, function, correct)
            )
        # Where the setup forgets, the order matters: this slot's labels first, then the late ones.
        for decision, right in sorted(labels_due[slot], key=lambda due: due[0].slot != slot):
            network.learn(decision, right=right)
        for decision in waits_over[slot]:
            network.stop_waiting(decision)
    return rows


def label_comes(setup: Setup, site: int, *, shown: bool, late: int) -> bool:
    if not setup.sites[site].supervised:
        return False
    if not shown and (setup.hidden_from == "all" or site == 0):
        return False
    return setup.label_wait is None or late <= setup.label_wait


class Cell(NamedTuple):
    side: int  # cells per dimension: the slices of the grid, or 2 ** level
    place: tuple[int, ...]


def cell_at(context: tuple[float, ...], side: int) -> Cell:
    # 1.0 belongs to the last cell; every other boundary to the cell above it.
    return Cell(side, tuple(min(math.floor(x * side), side - 1) for x in context))


def level_of(cell: Cell) -> int:
    return cell.side.bit_length() - 1


def cell_name(cell: Cell, *, zooming: bool) -> str:
    size = f"z{level_of(cell)}" if zooming else f"g{cell.side}"
    return ":".join([size, *map(str, cell.place)])


def limit(curve: Curve, slot: int) -> float:
    scale, power = curve
    growth: float = slot**power
    return scale * growth * math.log(slot)


@dataclass
class Tally:
    """What a site knows of one arm in one cell."""

    labels: int = 0
    right: int = 0
    under_way: int = 0  # uses whose label may still come; stays 0 unless the setup minds them
    recent: int = 0  # labels that still weigh, where the setup forgets
    recent_right: int = 0

    @property
    def tried(self) -> int:
        return self.labels + self.under_way

    @property
    def accuracy(self) -> float:
        if self.recent:
            return self.recent_right / self.recent
        return self.right / self.labels if self.labels else 0.0


class Record:
    """What a site knows of one cell. It is opened once, and never reset or dropped."""

    def __init__(self, functions: int, peers: int, since: int) -> None:
        self.since = since
        self.arms = [Tally() for _ in range(functions + peers)]
        # Per peer arm: how much its functions are believed to have been used apart from the
        # tries that this site has counted itself.
        self.training = {functions + peer: 0 for peer in range(peers)}
        self.arrivals = 0  # reported to whoever asks
        self.own_arrivals = 0  # drives splitting
        self.has_split = False
        self.latest: list[tuple[Tally, bool]] = []  # in the order in which their labels came

    def take(self, setup: Setup, tally: Tally, *, right: bool) -> None:
        """Take in a label, and forget what the setup says is too old."""
        tally.labels += 1
        tally.right += right
        if setup.window:
            self.latest.append((tally, right))
            for arm in self.arms:
                mine = [was for of, was in self.latest[-setup.window :] if of is arm]
                arm.recent, arm.recent_right = len(mine), sum(mine)
        elif setup.discount < 1:
            # Fixed-point with 16 bits below the point; the discount has 30.
            keep = int(setup.discount * 2**30)
            for arm in self.arms:
                arm.recent = arm.recent * keep // 2**30
                arm.recent_right = arm.recent_right * keep // 2**30
            tally.recent += 2**16
            tally.recent_right += 2**16 * right


@dataclass(frozen=True)
class Decision:
    slot: int
    site: int
    context: tuple[float, ...]
    cell: Cell
    phase: str
    arm: int
    owner: int  # the site whose function answers: the receiver itself, or the peer it asked
    function: int  # among the owner's


class Network:
    """All sites: per site, the records of the cells it knows."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.known: list[dict[Cell, Record]] = [{} for _ in setup.sites]

    def functions_before(self, site: int) -> int:
        return sum(earlier.functions for earlier in self.setup.sites[:site])

    def peers(self, site: int) -> tuple[tuple[int, float], ...]:
        may_ask = self.setup.askers == "all" or site == 0
        return self.setup.sites[site].peers if may_ask else ()

    def record(self, site: int, cell: Cell, slot: int) -> Record:
        """The site's record of the cell, opened now if this is the first it hears of it."""
        if cell not in self.known[site]:
            functions = self.setup.sites[site].functions
            self.known[site][cell] = Record(functions, len(self.peers(site)), since=slot)
        return self.known[site][cell]

    def active_cell(self, site: int, context: tuple[float, ...]) -> Cell:
        if not self.setup.zooming:
            return cell_at(context, self.setup.slices)
        cell = cell_at(context, 1)
        while cell in self.known[site] and self.known[site][cell].has_split:
            cell = cell_at(context, 2 * cell.side)
        return cell

    # Deciding: reads the state of the slot's start. All it writes is which cells are known,
    # since when, and the asker's own view of its peers' training.

    def decide(self, site: int, context: tuple[float, ...], slot: int) -> Decision:
        cell = self.active_cell(site, context)
        if self.setup.inherit and self.setup.zooming and context:
            # The finer cell that will take over is known ahead, so that it need not begin anew.
            self.record(site, cell_at(context, 2 * cell.side), slot)
        phase, arm = self.choose(site, cell, slot)
        owner, function = site, arm
        own = self.setup.sites[site].functions
        if arm >= own:
            owner = self.peers(site)[arm - own][0]
            function = self.assist(owner, cell, slot)
        return Decision(slot, site, context, cell, phase, arm, owner, function)

    def choose(self, site: int, cell: Cell, slot: int) -> tuple[str, int]:
        record = self.record(site, cell, slot)
        if not self.setup.sites[site].supervised:
            return "exploit", self.consult(site, cell, slot)
        own_arms = range(self.setup.sites[site].functions)
        for step in self.setup.order.split("-"):
            if step == "own":
                arm = under_explored(record, own_arms, limit(self.setup.explore, slot))
            elif step == "train":
                arm = self.under_trained(site, cell, slot)
            else:
                arm = under_explored(record, record.training, limit(self.setup.explore_peers, slot))
            if arm is not None:
                return ("train" if step == "train" else "explore"), arm
        return "exploit", self.best_arm(site, record)

    def under_trained(self, site: int, cell: Cell, slot: int) -> int | None:
        record = self.record(site, cell, slot)
        enough = limit(self.setup.train, slot)
        for arm, (peer, _) in zip(record.training, self.peers(site), strict=True):
            # Once it was seen above the limit, a peer is not asked again until the limit is there.
            if record.training[arm] <= enough:
                reported = self.record(peer, cell, slot).arrivals
                # What is under way is among the reported only if arrivals do not wait for labels.
                waits = self.setup.count != "arrivals"
                asked = record.arms[arm].labels if waits else record.arms[arm].tried
                record.training[arm] = reported - asked
        return next((arm for arm, used in record.training.items() if used <= enough), None)

    def consult(self, site: int, cell: Cell, slot: int) -> int:
        """Choose without labels: by what serving taught, and by what each peer says of its best."""
        mine = self.setup.sites[site]
        record = self.record(site, cell, slot)
        values = [record.arms[f].accuracy - mine.costs[f] for f in range(mine.functions)]
        for peer, price in self.peers(site):
            theirs = self.record(peer, cell, slot).arms[: self.setup.sites[peer].functions]
            values.append(max(tally.accuracy for tally in theirs) - price)
        return lowest_of_largest(values)

    def best_arm(self, site: int, record: Record) -> int:
        costs = [*self.setup.sites[site].costs, *(price for _, price in self.peers(site))]
        pairs = zip(record.arms, costs, strict=True)
        return lowest_of_largest([tally.accuracy - cost for tally, cost in pairs])

    def assist(self, helper: int, cell: Cell, slot: int) -> int:
        """Pick the helper's own function for a request in the asker's cell."""
        record = self.record(helper, cell, slot)
        own_arms = range(self.setup.sites[helper].functions)
        if self.setup.helper == "explore-first":
            function = under_explored(record, own_arms, limit(self.setup.explore, slot))
            if function is not None:
                return function
        # The price of the request is settled, so what a function costs its owner plays no part.
        accuracies = [record.arms[function].accuracy for function in own_arms]
        if self.setup.helper == "greedy":
            # It stays with its last function until another one has done better.
            return max(own_arms, key=lambda function: (accuracies[function], function))
        return lowest_of_largest(accuracies)

    # Counting: the end of a slot.

    def end_slot(self, decision: Decision) -> None:
        if self.setup.count == "arrivals":
            self.count_arrival(decision)
        if self.setup.pending:
            for tally in self.tallies_in_cell(decision):
                tally.under_way += 1
        leaf = self.known[decision.site][decision.cell]
        leaf.own_arrivals += 1
        if self.setup.zooming and decision.context:
            level = level_of(decision.cell) + self.setup.level_offset
            full = self.setup.split_scale * 2 ** (self.setup.split_power * level)
            leaf.has_split = leaf.own_arrivals >= full

    def learn(self, decision: Decision, *, right: bool) -> None:
        """Take in the label of a decision, at the site and at the peer it asked."""
        self.stop_waiting(decision)
        if self.setup.count != "arrivals":
            self.count_arrival(decision)
        for record, tally in self.records_that_learn(decision):
            record.take(self.setup, tally, right=right)

    def stop_waiting(self, decision: Decision) -> None:
        if self.setup.pending:
            for tally in self.tallies_in_cell(decision):
                tally.under_way -= 1

    def count_arrival(self, decision: Decision) -> None:
        asked = decision.owner != decision.site
        # What a peer answered has used none of the site's own functions.
        if not (asked and self.setup.count == "uses"):
            for record in self.records_around(decision):
                record.arrivals += 1
        if asked:
            self.known[decision.owner][decision.cell].arrivals += 1

    def tallies_in_cell(self, decision: Decision) -> list[Tally]:
        """The tallies that the decision concerns in its own cell, at the site and at the peer."""
        at_site = self.known[decision.site][decision.cell].arms[decision.arm]
        if decision.owner == decision.site:
            return [at_site]
        at_peer = self.known[decision.owner][decision.cell].arms[decision.function]
        # A peer in training answers worse than it will later: the asker does not hold it to that.
        return [at_peer] if decision.phase == "train" else [at_site, at_peer]

    def records_that_learn(self, decision: Decision) -> list[tuple[Record, Tally]]:
        """Return whatever the label of the decision moves, at the site and at the peer."""
        if decision.owner == decision.site:
            return [(r, r.arms[decision.arm]) for r in self.records_around(decision)]
        at_peer = self.known[decision.owner][decision.cell]
        moved = [(at_peer, at_peer.arms[decision.function])]
        if decision.phase == "train":
            return moved
        finer = cell_at(decision.context, 2 * decision.cell.side)
        places = [decision.cell, finer] if self.setup.inherit else [decision.cell]
        for place in places:
            record = self.known[decision.site].get(place)
            if record is not None and record.since <= decision.slot:
                moved.append((record, record.arms[decision.arm]))
        return moved

    def records_around(self, decision: Decision) -> list[Record]:
        """The site's records of all cells around the context that were known at the decision."""
        return [
            record
            for cell, record in self.known[decision.site].items()
            if record.since <= decision.slot and cell_at(decision.context, cell.side) == cell
        ]


def under_explored(record: Record, arms: Iterable[int], enough: float) -> int | None:
    return next((arm for arm in arms if record.arms[arm].tried <= enough), None)


def lowest_of_largest(values: list[float]) -> int:
    return values.index(max(values))
