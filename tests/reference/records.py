"""What the oracle knows: the set-up of a network, its cells, and what is counted in them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Curve = tuple[float, float]  # (scale, power) of a limit that grows with the slot
Context = tuple[float, ...]
MILLION = 1_000_000


@dataclass(frozen=True)
class Site:
    name: str
    functions: int
    costs: tuple[float, ...]
    arrivals: bool
    peers: tuple[tuple[int, float], ...]  # (index of the site, price of asking it)
    supervised: bool = True  # False: it never sees a label of its own
    spaces: tuple[int, ...] = (0,)  # its candidates: one context of each is looked at
    readers: tuple[tuple[int, float], ...] = ()  # like peers, but they see the cell alone
    patience: int | None = None  # slots that it waits for an answer; None: as long as it takes
    cost_columns: tuple[int | None, ...] = ()  # per arm: what it cost on top; (): nothing
    free: tuple[int, ...] = ()  # own functions that every label scores
    misleads: bool = False  # tells the site that it asked the opposite of the label
    lies: bool = False  # reports no arrivals, and the best of functions


@dataclass(frozen=True)
class Setup:
    sites: tuple[Site, ...]
    zooming: bool
    slices: int
    split_scale: float
    split_power: float
    explore: Curve
    train: Curve
    explore_peers: Curve
    is_paper: bool = False  # the paper's pseudocode, and what its tables need, to the letter
    count: str = "arrivals"  # "arrivals" | "labelled"
    pending: bool = False
    label_wait: int | None = None  # in slots
    inherit: bool = False
    window: int = 0  # labels of a cell that accuracies go by; 0: all
    discount: float = 1.0
    spaces: tuple[tuple[int, ...], ...] | None = None  # coordinates of each; None: one, of all
    batch: str = "slots"  # "slots" | "slot": of the rows of a batch
    unlabelled: str = "net"  # "net" | "accuracy": what a site without labels goes by
    harm: tuple[float, float] | None = None  # points and confidence of a limit
    history: str = "labels"  # "labels" | "predictions": what readers answer by

    def seen_in(self, space: int, context: Context) -> Context:
        """Return the coordinates of the context that belong to the space."""
        if self.spaces is None:
            return context
        return tuple(context[coordinate] for coordinate in self.spaces[space])


class Cell(NamedTuple):
    space: int
    side: int  # cells per dimension: the slices of the grid, or 2 ** level
    place: tuple[int, ...]


def cell_at(setup: Setup, space: int, context: Context, side: int) -> Cell:
    # 1.0 belongs to the last cell; every other boundary to the cell above it.
    point = setup.seen_in(space, context)
    return Cell(space, side, tuple(min(math.floor(x * side), side - 1) for x in point))


def level_of(cell: Cell) -> int:
    return cell.side.bit_length() - 1


def cell_name(setup: Setup, cell: Cell) -> str:
    size = f"z{level_of(cell)}" if setup.zooming else f"g{cell.side}"
    name = ":".join([size, *map(str, cell.place)])
    if setup.spaces is None or len(setup.spaces) == 1:
        return name
    space = "+".join(f"x{coordinate}" for coordinate in setup.spaces[cell.space])
    return f"{space}/{name}" if space else name  # the space of no coordinates has no name


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
    for_peers: int = 0  # those of them that peers asked for
    recent: int = 0  # labels that still weigh, where the setup forgets
    recent_right: int = 0
    spent: int = 0  # in millionths, on top of the fixed cost; never forgotten
    times: int = 0

    @property
    def tried(self) -> int:
        return self.labels + self.under_way

    def expected(self, waits: "SourceWaits") -> int:
        """The labels, and the share of the pending ones that can be expected to arrive."""
        own = waits.own.arriving(self.under_way - self.for_peers)
        return self.labels + own + waits.peers.arriving(self.for_peers)

    @property
    def accuracy(self) -> float:
        if self.recent:
            return self.recent_right / self.recent
        return self.right / self.labels if self.labels else 0.0

    def pay(self, millionths: int) -> None:
        self.spent += millionths
        self.times += 1

    def estimate(self, cost: float, accuracy: float) -> float:
        if self.times:
            cost = cost + self.spent / (self.times * MILLION)
        return accuracy - cost


class Waits:
    """How many labels of one source a site waits for in a space, and how many of such came.

    At the first instance of a period all pending labels are the pool; what counts is how many of
    the pool of the period before came until this one began.
    """

    def __init__(self) -> None:
        self.instances = 0
        self.pending = 0
        self.next_period = 0
        self.began = 0  # the slot
        self.pool = self.came = 0
        self.last_pool = self.last_came = 0

    def look(self, slot: int) -> None:
        """Begin a period, if it is time to."""
        if self.instances >= self.next_period:
            self.next_period = self.instances + min(4096, max(16, self.instances))
            self.last_pool, self.last_came = self.pool, self.came
            self.pool, self.came, self.began = self.pending, 0, slot

    def come(self, decided: int) -> None:
        """Note the label of a decision of that slot."""
        if decided < self.began:
            self.came += 1

    def arriving(self, labels: int) -> int:
        return labels * self.last_came // max(1, self.last_pool)


class SourceWaits(NamedTuple):
    """Of the site's own clients, and of the peers that it helps."""

    own: Waits
    peers: Waits


class History:
    """How often each label was seen in one cell. Nothing of it is forgotten."""

    def __init__(self) -> None:
        self.counts: dict[object, int] = {}
        self.leader: object = None  # None: no label was seen

    def take(self, label: object) -> None:
        self.counts[label] = self.counts.get(label, 0) + 1
        # "Later" is later in time: who leads keeps the lead until another label has more.
        if self.leader is None or self.counts[label] > self.counts[self.leader]:
            self.leader = label

    @property
    def share(self) -> float:
        if self.leader is None:
            return 0.0
        return self.counts[self.leader] / sum(self.counts.values())


class Predictions:
    """What a site predicted in one cell, and how often each prediction was right."""

    def __init__(self) -> None:
        self.tries: dict[object, int] = {}
        self.right: dict[object, int] = {}

    def take(self, said: object, label: object) -> None:
        self.tries[said] = self.tries.get(said, 0) + 1
        self.right[said] = self.right.get(said, 0) + (said == label)

    @property
    def share(self) -> float:
        return max((self.right[said] / self.tries[said] for said in self.tries), default=0.0)

    @property
    def leader(self) -> object:
        """The prediction that was right most often, by its share; None: none was ever right."""
        if self.share == 0.0:
            return None
        return next(one for one in self.tries if self.right[one] / self.tries[one] == self.share)


class Record:
    """What a site knows of one cell. It is opened once, and never reset or dropped."""

    def __init__(self, *, functions: int, peers: int, readers: int, since: int) -> None:
        self.since = since
        self.arms = [Tally() for _ in range(functions + peers + readers)]
        # Per peer arm: how much its functions are believed to have been used apart from the
        # tries that this site has counted itself. Readers are never trained.
        self.training = {functions + peer: 0 for peer in range(peers)}
        self.arrivals = 0  # reported to every asker
        self.own_arrivals = 0  # drives splitting
        self.has_split = False
        self.latest: list[tuple[Tally, bool]] = []  # in the order in which their labels came
        self.history = History()
        self.predictions = Predictions()

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


def under_explored(record: Record, arms: Iterable[int], enough: Mapping[int, float]) -> list[int]:
    return [arm for arm in arms if record.arms[arm].tried <= enough[arm]]


def short_of_labels(record: Record, enough: dict[int, float], waits: SourceWaits) -> list[int]:
    """The arms that have too few labels by the share that comes, that of the fewest tries first."""
    short = [arm for arm in enough if record.arms[arm].expected(waits) <= enough[arm]]
    return sorted(short, key=lambda arm: record.arms[arm].tried)


def lowest_of_largest(values: list[float]) -> int:
    return values.index(max(values))
