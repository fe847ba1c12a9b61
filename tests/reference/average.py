"""The oracle of the default policy: an average of beliefs, an upper index, a test for changes.

A learner keeps nothing but its labels, with what was predicted of them when they came. Whenever
something is looked at it is worked out anew: trees by recursion over all cells with labels, records
and log-likelihoods by going through all labels in their order.
"""

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from reference import Decision, Lesson, Network, linear
from reference.owners import IndexSetup, klucb, rounded_slot
from reference.records import (
    MILLION,
    Cell,
    Context,
    Record,
    SourceWaits,
    Waits,
    lowest_of_largest,
)

WHOLE = 2**20  # fixed-point: worth of labels, residuals, log-likelihoods
FINE = 2**30  # log-likelihoods of coins
GOLDEN, TURN = 1327217885, 2**31 - 1  # the fractional part of the golden ratio, and 1
FINEST = {0: 0, 1: 8, 2: 7, 3: 4}  # level of the finest cells, by dimension
SIDE = 256  # of a place in more dimensions
SPREAD = 0.5
DECAYS = (0.75, 0.97)
AGES = 512


class Place(NamedTuple):
    """Where an instance is, as far as a peer knows: its cell, in many dimensions its context."""

    cell: Cell
    point: Context = ()


class Belief(NamedTuple):
    mean: float
    variance: float  # that of a label is 1


class Average(NamedTuple):
    """What all beliefs together say of an arm, and what each of them says."""

    mean: float
    variance: float
    plain: float  # without the record
    shifted: float  # with it
    means: tuple[float, ...]

    @property
    def doubt(self) -> float:
        return 0.25 * math.sqrt(self.variance)


class Report(NamedTuple):
    mean: float
    index: float
    numbers: tuple[int, ...] = ()  # what labels are tested against, and log-likelihoods
    slot: int = 0


class Label(NamedTuple):
    place: Place
    arm: int
    gain: int
    slot: int
    is_prompt: bool
    error: float  # of what was believed without the record
    record: tuple[float, float]  # as it was at the decision
    likelihoods: tuple[int, ...]  # of the label by each belief, without the record, and with it


def fixed(value: float) -> int:
    return round(value * WHOLE)


def whole(value: float) -> int:
    return int(value + 0.5)


def clipped(mean: float, least: float) -> float:
    return min(1.0 - least, max(least, mean))


def likelihood(mean: float, correct: float) -> int:
    mean = clipped(mean, 0.02)
    right = correct * math.log(mean) if correct > 0 else 0.0
    wrong = (1.0 - correct) * math.log(1.0 - mean) if correct < 1 else 0.0
    return fixed(right + wrong)


def held_back(logs: Sequence[int]) -> list[int]:
    """Return log-likelihoods after an alarm: none is more than 3 behind the best, which is 0."""
    return [max(log - max(logs), -3 * WHOLE) for log in logs]


def upper(mean: float, bound: float) -> float:
    """Return an upper bound of the largest q with kl(mean, q) <= bound.

    kl(mean, mean + w) is w ** 2 / 2 times the mean of 1 / (q * (1 - q)), where q - mean has the
    density 2 x / w ** 2. Its least value by Jensen gives a width; one step of Newton's method with
    the two nodes of Gauss follows. Far from the middle it is the bound by logarithms.
    """
    rest = 1.0 - mean
    if mean < 0.1 or bound * (1.0 + mean) > 2.0 * rest or bound <= 0.0:
        return klucb(mean, 1.0, bound)
    # The root of w ** 2 * (1 + bound) = 2 * bend * w + 2 * bound * mean * rest.
    bend = (rest - mean) * bound / 1.5
    root = math.sqrt(bend * bend + 2.0 * bound * (1.0 + bound) * mean * rest)
    width = (bend + root) / (1.0 + bound)
    six = math.sqrt(6.0)
    near, far = (mean + (6.0 + sign * six) / 10.0 * width for sign in (-1, 1))
    near, far = near * (1.0 - near), far * (1.0 - far)
    slope = width * ((9.0 - six) / 36.0 * far + (9.0 + six) / 36.0 * near) / (near * far)
    q = mean + width
    return q - (slope - bound / width) * q * (1.0 - q)


# -- beliefs -----------------------------------------------------------------------------------


@cache
def above(cell: Cell) -> tuple[Cell, ...]:
    """Return the cell and all that it lies in, the finest first."""
    if cell.side == 1:
        return (cell,)
    return (cell, *above(Cell(cell.space, cell.side // 2, tuple(k // 2 for k in cell.place))))


@cache
def side_of_coin(gained: int, unit: int) -> int:
    """Return the log-likelihood of one side of a coin: a sum, linear between whole gains."""
    full, part = divmod(gained, unit)
    logs = [round(math.log(k + 0.5) * FINE) for k in range(full + 1)]
    # A part of a negative logarithm is rounded towards 0, as that of a positive one.
    return sum(logs[:-1]) + int(math.copysign(abs(logs[-1]) * part // unit, logs[-1]))


@cache
def flips(labels: int) -> int:
    return sum(round(math.log(k + 1.0) * FINE) for k in range(labels))


class Node:
    """What the labels of an arm in a cell say, by those of the cell and of its children."""

    def __init__(self, cell: Cell, gains: list[int], children: list["Node"], unit: int) -> None:
        self.labels, self.right = len(gains), sum(gains)
        self.unit = unit
        # The variance of the deviation from the parent, to that of a label.
        self.deviation = 4 * (SPREAD / cell.side) ** 2
        self.worth, self.gained = WHOLE * len(gains), sum(WHOLE * gain // unit for gain in gains)
        if children:
            messages = [child.message() for child in children]
            self.worth, self.gained = (sum(part) for part in zip(*messages, strict=True))
        coin = side_of_coin(self.right, unit)
        coin += side_of_coin(self.labels * unit - self.right, unit)
        self.coin = coin - flips(self.labels)
        self.both, self.stop = self.coin, 1.0
        if children:
            self.divide(sum(child.both for child in children))

    def divide(self, below: int) -> None:
        """Take the cell as divided with probability 1/2."""
        ahead = (below - self.coin) / FINE
        self.both = max(self.coin, below) - round(math.log(2.0) * FINE)
        if abs(ahead) >= 40:
            self.stop = 0.0 if ahead > 0 else 1.0
            return
        rest = math.exp(-abs(ahead))
        self.both += whole(math.log1p(rest) * FINE)
        self.stop = (rest if ahead > 0 else 1.0) / (1.0 + rest)

    @property
    def part(self) -> float:
        return 1.0 / (1.0 + self.deviation / WHOLE * self.worth)

    def message(self) -> tuple[int, int]:
        """Return what the labels are worth in the parent, and the right ones."""
        return whole(self.worth * self.part), whole(self.gained * self.part)


class Tree:
    """All cells with labels of an arm."""

    def __init__(self, labels: Iterable[tuple[Cell, int]], unit: int, finest: int) -> None:
        self.unit, self.finest = unit, finest
        gains: dict[Cell, list[int]] = defaultdict(list)
        for cell, gain in labels:
            for larger in above(cell):
                gains[larger].append(gain)
        self.nodes: dict[Cell, Node] = {}
        inside: dict[Cell, list[Node]] = defaultdict(list)
        for cell in sorted(gains, key=lambda cell: -cell.side):
            node = self.nodes[cell] = Node(cell, gains[cell], inside[cell], unit)
            if cell.side > 1:
                inside[above(cell)[1]].append(node)

    def labels_in(self, cell: Cell) -> int:
        return self.nodes[cell].labels if cell in self.nodes else 0

    def one_cell(self, cell: Cell) -> Belief:
        node = self.nodes.get(above(cell)[-1])
        labels, right = (node.labels, node.right) if node else (0, 0)
        return Belief((right / self.unit + 0.5) / (labels + 1.0), 1.0 / (labels + 1.0))

    def gaussian(self, cell: Cell) -> Belief:
        """Return what the labels say if a cell deviates from its parent by a Gaussian."""
        root, *cells = above(cell)[::-1]
        node = self.nodes.get(root)
        worth, gained = (node.worth / WHOLE, node.gained / WHOLE) if node else (0.0, 0.0)
        variance = 1.0 / (1.0 + worth)
        mean = (0.5 + gained) * variance
        side = 1
        for smaller in cells:
            node = self.nodes.get(smaller)
            if node is None:
                break
            side = smaller.side
            mean = (mean + node.deviation * (node.gained / WHOLE)) * node.part
            variance = (variance * node.part + node.deviation) * node.part
        # Cells without labels; the finest first.
        levels = range(self.finest, side.bit_length() - 1, -1)
        rest = sum(4 * (SPREAD / 2**level) ** 2 for level in levels)
        return Belief(min(1.0, max(0.0, mean)), variance + rest)

    def weighted(self, cell: Cell) -> Belief:
        """Return what the labels say on average over all ways to stop dividing cells."""
        first, second = self.moments(cell)
        return Belief(first, second - 4.0 * first * first)

    def moments(self, cell: Cell) -> tuple[float, float]:
        left, first, second = 1.0, 0.0, 0.0
        for larger in above(cell)[::-1]:
            node = self.nodes.get(larger)
            doubt = 1.0 / ((node.labels if node else 0) + 1.0)
            right = node.right / self.unit if node else 0.0
            coin = (right + 0.5) * doubt if larger.side > 1 else self.one_cell(cell).mean
            stop = node.stop if node and larger != cell else 1.0
            weight = left * stop
            first += weight * coin
            second += weight * (doubt + 4.0 * coin * coin)
            left -= weight
            if node is None:
                break
        return first, second


def of_one_coordinate(labels: Sequence[tuple[Context, int]], unit: int, point: Context) -> Belief:
    """Return what labels say if they depend on one coordinate, and nobody knows on which."""
    trees = []
    for k in range(len(point)):
        cells = [(Cell(0, 32, (int(at[k] * 32),)), gain) for at, gain in labels]
        trees.append(Tree(cells, unit, 5))
    root = Cell(0, 1, (0,))
    logs = [tree.nodes[root].both if labels else 0 for tree in trees]
    shares = [math.exp((log - max(logs)) / FINE) for log in logs]
    total = 0.0
    for share in shares:
        total += share
    first = second = 0.0
    for x, tree, share in zip(point, trees, shares, strict=True):
        mean, square = tree.moments(Cell(0, 32, (int(x * 32),)))
        first += share / total * mean
        second += share / total * square
    return Belief(first, second - 4.0 * first * first)


def recorded(labels: Sequence[Label]) -> tuple[int, int, int]:
    """Return the two decayed sums of residuals, and the slot that they are of."""
    sums, latest = [0, 0], 0
    for label in labels:
        for k, decay in enumerate(DECAYS):
            kept, added = float(sums[k]), label.error * WHOLE
            if label.slot > latest:
                kept = kept * decay ** (label.slot - latest) if label.slot - latest < AGES else 0.0
            elif label.slot < latest:
                added = (
                    added * decay ** (latest - label.slot) if latest - label.slot < AGES else 0.0
                )
            sums[k] = round(kept + added)
        latest = max(latest, label.slot)
    return sums[0], sums[1], latest


def features_at(labels: Sequence[Label], slot: int) -> tuple[float, float]:
    fast, slow, latest = recorded(labels)
    age = max(0, slot - latest)
    if age >= AGES:
        return 0.0, 0.0
    return fast / WHOLE * DECAYS[0] ** age, slow / WHOLE * DECAYS[1] ** age * 0.12


def foretold(labels: Sequence[Label], slot: int) -> Belief:
    """Return what the record says of the next residual: a regression on its two sums."""
    fast, slow = features_at(labels, slot)
    prompt = [label for label in labels if label.is_prompt]
    by_fast, by_slow, between, fast_error, slow_error = (
        sum(fixed(product(*label.record, label.error)) for label in prompt) for product in PRODUCTS
    )
    first, second = 25.0 + 4.0 * by_fast / WHOLE, 25.0 + 4.0 * by_slow / WHOLE
    off = 4.0 * between / WHOLE
    determinant = first * second - off * off
    along_fast = (second * fast - off * slow) / determinant
    along_slow = (first * slow - off * fast) / determinant
    shift = 4.0 * (along_fast * fast_error + along_slow * slow_error) / WHOLE
    return Belief(shift, 4.0 * (along_fast * fast + along_slow * slow))


PRODUCTS: tuple[Callable[[float, float, float], float], ...] = (
    lambda fast, slow, error: fast * fast,
    lambda fast, slow, error: slow * slow,
    lambda fast, slow, error: fast * slow,
    lambda fast, slow, error: fast * error,
    lambda fast, slow, error: slow * error,
)


def arriving(waits: Waits, labels: int) -> int:
    """Return how many pending labels can be expected, as if 100 more had come."""
    return labels * (waits.last_came + 100) // (waits.last_pool + 100)


# -- changes -----------------------------------------------------------------------------------


@dataclass
class ChangeTest:
    """A CUSUM over labels; ratios are divided by the dependence of errors."""

    margin: float
    sum: int = 0
    labels: list[tuple[int, int]] = field(default_factory=list)  # errors and variances
    squares: int = 0  # of errors in blocks that led to no alarm
    variances: int = 0
    waiting: list[tuple[int, int]] = field(default_factory=list)  # of blocks since the sum was 0

    def is_change(self, believed: float, correct: float) -> bool:
        believed = clipped(believed, 0.02)
        step = correct * math.log(0.75)
        if correct < 1:
            step += (1.0 - correct) * math.log((1.0 - 0.75 * believed) / (1.0 - believed))
        if self.sum == 0:
            self.squares += sum(squares for squares, _ in self.waiting)
            self.variances += sum(variances for _, variances in self.waiting)
            self.waiting = []
        dependence = (50.0 * WHOLE + self.squares) / (50.0 * WHOLE + self.variances)
        self.sum = max(0, self.sum + fixed(step / max(1.0, dependence)))
        self.labels.append((fixed(correct - believed), fixed(believed * (1.0 - believed))))
        if len(self.labels) % 32 == 0:
            errors, variances = (sum(part) for part in zip(*self.labels[-32:], strict=True))
            self.waiting.append((fixed((errors / WHOLE) ** 2), variances))
        return self.sum > (self.margin + math.log(len(self.labels) + 1.0)) * WHOLE

    def restart(self) -> None:
        self.sum, self.labels, self.waiting = 0, [], []


# -- one learner -------------------------------------------------------------------------------


@dataclass
class Learner:
    """What one learner knows in its context space."""

    setup: IndexSetup
    name: str
    functions: int
    costs: tuple[float, ...]  # of all arms
    dimension: int
    counts_once: bool = False
    readers: int = 0  # the last arms: peers that see the cell alone, and report nothing
    unit: int = 1  # gain of a right answer
    labels: list[Label] = field(default_factory=list)  # of arms that are judged here
    of_peers: list[tuple[Cell, int, int]] = field(default_factory=list)  # cell, arm, gain
    pending: Counter[tuple[int, bool]] = field(default_factory=Counter)  # by arm; is it served?
    waits: SourceWaits = field(default_factory=lambda: SourceWaits(Waits(), Waits()))
    paid: dict[tuple[Cell, int], list[int]] = field(default_factory=dict)  # in millionths
    reports: dict[tuple[Cell, int], Report] = field(default_factory=dict)
    tested: dict[tuple[Cell, int], float] = field(default_factory=dict)  # by the latest report
    last: dict[int, int] = field(default_factory=dict)  # slot of the latest label of a function
    told: dict[int, tuple[int, ...]] = field(default_factory=dict)  # log-likelihoods, by peer
    heeded: tuple[int, ...] = ()  # sums of those at the latest own label
    alarms: list[int] = field(default_factory=list)
    latest: int = 0  # slot of a decision, own or of a peer
    forgotten: int = 0  # decisions up to this slot teach nothing
    trees: dict[int, Tree] = field(default_factory=dict)  # until a label comes
    lines: dict[int, linear.Function] = field(default_factory=dict)
    averages: dict[tuple[Place, int, int], Average] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.changes = ChangeTest(self.setup.alarm)
        self.is_wide = self.dimension > 3
        self.finest = FINEST.get(self.dimension, 0)
        self.has_coordinates = 3 < self.dimension <= 32
        self.kinds = 2 + self.has_coordinates if self.is_wide else 3 if self.finest else 1
        self.kept = [0] * (self.kinds + 2)  # log-likelihoods at the last alarm
        self.heeded = (0,) * (self.kinds + 2)
        self.scale = self.setup.index_scale * (0.5 if self.dimension > 2 else 1.0)
        # Choice: 64 cosines, for up to 64 coordinates.
        self.features = linear.Features(self.dimension if self.is_wide else 0, 64)

    @property
    def peers_end(self) -> int:
        return len(self.costs) - self.readers

    def place_of(self, space: int, point: Context) -> Place:
        if self.is_wide:
            middle = tuple((min(math.floor(SIDE * x), SIDE - 1) + 0.5) / SIDE for x in point)
            return Place(Cell(space, 1, ()), middle)
        side = 2**self.finest
        return Place(Cell(space, side, tuple(min(math.floor(x * side), side - 1) for x in point)))

    def counted(self, cell: Cell, arm: int) -> tuple[int, int]:
        """Return the labels of an arm in a cell and in those below, and what they gained."""
        labels = [
            (label.place.cell, label.arm, label.gain) for label in self.labels
        ] + self.of_peers
        gains = [gain for small, a, gain in labels if a == arm and cell in above(small)]
        return len(gains), sum(gains)

    # -- what is believed ----------------------------------------------------------------------

    def of_arm(self, arm: int) -> list[Label]:
        return [label for label in self.labels if label.arm == arm]

    def tree(self, arm: int) -> Tree:
        if arm not in self.trees:
            labels = [(label.place.cell, label.gain) for label in self.of_arm(arm)]
            labels += [(cell, gain) for cell, a, gain in self.of_peers if a == arm]
            self.trees[arm] = Tree(labels, self.unit, self.finest)
        return self.trees[arm]

    def by_line(self, place: Place, arm: int) -> Belief:
        if arm not in self.lines:
            self.lines[arm] = linear.Function(self.features, self.unit)
        line, phi = self.lines[arm], self.features.of(place.point)
        return Belief(line.mean(phi), 4.0 * line.variance(phi))

    def beliefs(self, place: Place, arm: int) -> list[Belief]:
        tree = self.tree(arm)
        beliefs = [tree.one_cell(place.cell)]
        if self.finest:
            beliefs += [tree.gaussian(place.cell), tree.weighted(place.cell)]
        if self.is_wide:
            beliefs.append(self.by_line(place, arm))
        if self.has_coordinates:
            labels = [(label.place.point, label.gain) for label in self.of_arm(arm)]
            beliefs.append(of_one_coordinate(labels, self.unit, place.point))
        return [Belief(clipped(belief.mean, 0.001), belief.variance) for belief in beliefs]

    def logs(self) -> list[int]:
        """Return the log-likelihoods of own labels: of beliefs, without the record, with it."""
        return [
            self.kept[k] + sum(label.likelihoods[k] for label in self.labels)
            for k in range(self.kinds + 2)
        ]

    def weights(self) -> tuple[list[float], float]:
        """Return the weights of beliefs, and that of the record."""
        logs = [own + heard for own, heard in zip(self.logs(), self.heeded, strict=True)]
        *beliefs, without, with_record = logs
        shares = [math.exp((log - max(beliefs)) / WHOLE) for log in beliefs]
        total = 0.0
        for share in shares:
            total += share
        behind = min(700.0, (without - with_record) / WHOLE)
        return [share / total for share in shares], 1.0 / (1.0 + math.exp(behind))

    def average(self, place: Place, arm: int, slot: int) -> Average:
        if (place, arm, slot) not in self.averages:
            self.averages[place, arm, slot] = self.worked_out(place, arm, slot)
        return self.averages[place, arm, slot]

    def worked_out(self, place: Place, arm: int, slot: int) -> Average:
        beliefs = self.beliefs(place, arm)
        weights, part = self.weights()
        first = second = 0.0
        for weight, (mean, variance) in zip(weights, beliefs, strict=True):
            first += weight * mean
            second += weight * (variance + 4.0 * mean * mean)
        variance = max(4e-9, second - 4.0 * first * first)
        shift, doubt = foretold(self.of_arm(arm), slot)
        shifted = clipped(first + shift, 0.001)
        by = shifted - first
        variance += part * doubt + 4.0 * part * (1.0 - part) * by * by
        means = tuple(belief.mean for belief in beliefs)
        return Average(first + part * by, variance, first, shifted, means)

    def narrowed(self, place: Place, arm: int) -> float:
        """Return by how much pending labels reduce the variance of an arm."""
        labels = self.tree(arm).labels_in(above(place.cell)[-1])
        expected = labels + arriving(self.waits.own, self.pending[arm, False])
        expected += arriving(self.waits.peers, self.pending[arm, True])
        return (1.0 + labels) / (1.0 + expected) if expected > labels else 1.0

    def index(
        self, place: Place, arm: int, slot: int, *, is_reported: bool = False
    ) -> tuple[float, float]:
        """Return the mean of an arm by own labels, and its upper index."""
        average = self.average(place, arm, slot)
        bound = self.scale * math.log(rounded_slot(slot)) * average.variance
        bound *= 1.0 if is_reported else self.narrowed(place, arm)
        return average.mean, upper(average.mean, bound)

    # -- decisions -----------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        return zlib.crc32(self.name.encode()) & TURN

    @staticmethod
    def share(slot: int, offset: int) -> float:
        return (((slot & TURN) * GOLDEN + offset) & TURN) / TURN

    def price(self, cell: Cell, arm: int) -> float:
        price, paid = self.costs[arm], self.paid.get((cell, arm))
        return price + sum(paid) / (float(len(paid)) * MILLION) if paid else price

    def by_report(self, place: Place, arm: int, slot: int) -> tuple[float, float]:
        cell = place.cell
        mean, index, _, _ = self.reports[cell, arm]
        if self.setup.check_claims:
            tree = self.tree(arm)
            own = tree.gaussian(cell) if self.finest else tree.one_cell(cell)
            index = min(index, upper(own.mean, math.log(rounded_slot(slot)) * own.variance))
            mean = min(mean, index)
        narrowed = self.narrowed(place, arm)
        if narrowed < 1.0:
            index = mean + (index - mean) * math.sqrt(narrowed)
        return mean, index

    def has_reported(self, cell: Cell, arm: int, slot: int) -> bool:
        return (cell, arm) in self.reports and self.reports[cell, arm].slot == slot

    def choose(
        self, place: Place, slot: int, closed: Sequence[int] = ()
    ) -> tuple[str, int, list[int]]:
        """Return a phase, an arm, and the peers that must report first."""
        self.latest = max(self.latest, slot)
        self.waits.own.look(slot)
        share = self.share(slot, self.offset)
        means = [-math.inf for _ in self.costs]
        offers, hopes = means[:], means[:]
        for arm in range(len(self.costs)):
            is_peer = self.functions <= arm < self.peers_end
            price = math.inf if arm in closed else self.price(place.cell, arm)
            if is_peer and not self.has_reported(place.cell, arm, slot):
                hopes[arm] = 1.0 - price
                continue
            mean, index = (self.by_report if is_peer else self.index)(place, arm, slot)
            means[arm] = mean - price
            offers[arm] = mean + share * (index - mean) - price
        chosen = lowest_of_largest(offers)
        wanted = [arm for arm, hope in enumerate(hopes) if hope > offers[chosen]]
        is_best = chosen == lowest_of_largest(means)
        return ("exploit" if is_best else "explore"), chosen, wanted

    def help(self, place: Place, slot: int, asker: int, *, is_reported: bool = False) -> int:
        """Return the own function that looks best with the share of the asker's decision."""
        if not is_reported:
            self.latest = max(self.latest, slot)
        self.waits.peers.look(slot)
        share, offers = self.share(slot, asker), []
        for function in range(self.functions):
            mean, index = self.index(place, function, slot, is_reported=is_reported)
            offers.append(mean + share * (index - mean))
        return lowest_of_largest(offers)

    def report(self, place: Place, slot: int, asker: int) -> Report:
        function = self.help(place, slot, asker, is_reported=True)
        average = self.average(place, function, slot)
        numbers = (fixed(average.plain - average.doubt), *self.logs())
        index = self.index(place, function, slot, is_reported=True)[1]
        return Report(average.mean - average.doubt, index, numbers)

    def hear(self, cell: Cell, arm: int, report: Report, slot: int) -> None:
        mean, index, numbers, _ = report
        self.reports[cell, arm] = Report(mean, max(mean, index), slot=slot)
        self.tested[cell, arm] = numbers[0] / WHOLE if numbers else mean
        if numbers and not self.setup.check_claims:
            self.told[arm] = numbers[1:]

    # -- labels --------------------------------------------------------------------------------

    def learn(self, place: Place, arm: int, gain: int, slot: int, paid: int | None = None) -> bool:
        """Take in the label of an own decision; return whether it raises an alarm."""
        if slot <= self.forgotten:
            return False
        if self.is_change(place, arm, gain, slot):
            self.forget(slot)
            self.alarms.append(slot)
            return True
        if self.functions <= arm < self.peers_end:
            self.of_peers.append((place.cell, arm, gain))
            self.trees.pop(arm, None)
        elif arm >= self.functions or self.is_first(arm, slot):
            self.add(place, arm, gain, slot)
        if paid is not None:
            self.paid.setdefault((place.cell, arm), []).append(paid)
        return False

    def learn_more(self, place: Place, function: int, gain: int, slot: int) -> None:
        """Take in the label of an answer to a peer, or of a free function."""
        if slot > self.forgotten and self.is_first(function, slot):
            self.add(place, function, gain, slot)

    def is_first(self, function: int, slot: int) -> bool:
        if self.counts_once and self.last.get(function) == slot:
            return False
        self.last[function] = slot
        return True

    def add(self, place: Place, arm: int, gain: int, slot: int) -> None:
        average, correct = self.average(place, arm, slot), gain / self.unit
        is_new = slot != recorded(self.of_arm(arm))[2]  # the first label of its slot
        is_prompt = is_new and slot >= self.latest
        likelihoods = [likelihood(mean, correct) if is_new else 0 for mean in average.means]
        for mean in (average.plain, average.shifted):
            likelihoods.append(likelihood(mean, correct) if is_prompt else 0)
        record = features_at(self.of_arm(arm), slot)
        error = correct - average.plain
        if self.is_wide:
            self.by_line(place, arm)
            self.lines[arm].learn(self.features.of(place.point), gain)
        self.labels.append(
            Label(place, arm, gain, slot, is_prompt, error, record, tuple(likelihoods))
        )
        self.trees.pop(arm, None)
        self.heed()

    def heed(self) -> None:
        """Let what peers told count from now on."""
        told = [(0,) * (self.kinds + 2), *self.told.values()]
        self.heeded = tuple(sum(part) for part in zip(*told, strict=True))
        self.averages = {}

    # -- changes -------------------------------------------------------------------------------

    def is_change(self, place: Place, arm: int, gain: int, slot: int) -> bool:
        if not self.setup.alarm:
            return False
        if self.functions <= arm < self.peers_end:
            believed = self.tested.get((place.cell, arm), 0.0)
        else:
            average = self.average(place, arm, slot)
            believed = average.plain - average.doubt
        return self.changes.is_change(believed, gain / self.unit)

    def hear_alarm(self, slot: int) -> None:
        if self.setup.alarm and slot > self.forgotten:
            self.forget(slot)

    def forget(self, slot: int) -> None:
        kinds, logs = self.kinds, self.logs()
        self.kept = held_back(logs[:kinds]) + held_back(logs[kinds:])
        self.told = {
            arm: (*held_back(told[:kinds]), *held_back(told[kinds:]))
            for arm, told in self.told.items()
        }
        self.labels, self.of_peers, self.reports = [], [], {}
        self.trees, self.lines = {}, {}
        self.changes.restart()
        self.forgotten = slot
        self.heed()


# -- a network ---------------------------------------------------------------------------------


class AverageNetwork(Network):
    """Learners that ask each other in a replay."""

    setup: IndexSetup

    def __init__(self, setup: IndexSetup, *, counts_once: bool, dimension: int) -> None:
        super().__init__(setup)
        self.learners = [
            Learner(
                setup,
                site.name,
                site.functions,
                (*site.costs, *(price for _, price in (*site.peers, *site.readers))),
                dimension,
                counts_once,
                len(site.readers),
            )
            for site in setup.sites
        ]

    def place(self, decision: Decision) -> Place:
        return self.learners[decision.site].place_of(decision.cell.space, decision.context)

    def record(self, site: int, cell: Cell, slot: int) -> Record:
        """A cell is known together with those that it lies in."""
        for larger in above(cell)[1:]:
            super().record(site, larger, slot)
        return super().record(site, cell, slot)

    def records_around(self, decision: Decision) -> list[Record]:
        return [self.known[decision.site][cell] for cell in above(decision.cell)]

    def active_cell(self, site: int, space: int, context: Context) -> Cell:
        self.deciding = self.learners[site].place_of(space, context)
        return self.deciding.cell

    def choose(self, site: int, cells: tuple[Cell, ...], slot: int) -> tuple[str, int, Cell]:
        learner, place = self.learners[site], self.deciding
        self.asker = learner.offset
        if not self.setup.sites[site].supervised:
            values = self.hearsay_at(site, place, slot)
            return "exploit", lowest_of_largest(values), place.cell
        _, _, wanted = learner.choose(place, slot)
        for arm in wanted:
            peer, _ = self.peers(site)[arm - learner.functions]
            self.record(peer, place.cell, slot)
            report = self.learners[peer].report(place, slot, learner.offset)
            learner.hear(place.cell, arm, report, slot)
        phase, arm, wanted = learner.choose(place, slot)
        assert not wanted
        return phase, arm, place.cell

    def hearsay_at(self, site: int, place: Place, slot: int) -> list[float]:
        learner = self.learners[site]
        values = [
            mean - cost
            for mean, cost in zip(self.means(learner, place), learner.costs, strict=False)
        ]
        for peer, price in self.peers(site):
            self.record(peer, place.cell, slot)
            values.append(max(self.means(self.learners[peer], place)) - price)
        for reader, price in self.readers(site):
            values.append(self.answers_of(self.record(reader, place.cell, slot)).share - price)
        return values

    def best_own_function(self, site: int, cells: tuple[Cell, ...]) -> int:
        learner, place = self.learners[site], self.deciding
        means = self.means(learner, place)
        return lowest_of_largest(
            [mean - learner.price(place.cell, f) for f, mean in enumerate(means)]
        )

    def means(self, learner: Learner, place: Place) -> list[float]:
        """Return what is believed of own functions, as of the latest decision."""
        every = range(learner.functions)
        return [learner.average(place, function, learner.latest).mean for function in every]

    def assist(self, helper: int, cells: tuple[Cell, ...], slot: int) -> int:
        self.record(helper, cells[0], slot)
        return self.learners[helper].help(self.deciding, slot, self.asker)

    def end_slot(self, decision: Decision) -> None:
        self.learners[decision.site].waits.own.instances += 1
        if decision.asks_for_data:
            self.learners[decision.owner].waits.peers.instances += 1
        if self.setup.pending:
            self.wait(decision, 1)

    def stop_waiting(self, decision: Decision) -> None:
        if self.setup.pending:
            self.wait(decision, -1)

    def wait(self, decision: Decision, by: int) -> None:
        learner = self.learners[decision.site]
        learner.pending[decision.arm, False] += by
        learner.waits.own.pending += by
        if decision.asks_for_data:
            assert decision.function is not None
            owner = self.learners[decision.owner]
            owner.pending[decision.function, True] += by
            owner.waits.peers.pending += by

    def learn(self, decision: Decision, lesson: Lesson) -> None:
        self.stop_waiting(decision)
        place, site, slot = self.place(decision), self.setup.sites[decision.site], decision.slot
        learner = self.learners[decision.site]
        if decision.asks_for_data:
            assert decision.function is not None
            owner = self.learners[decision.owner]
            owner.waits.peers.come(slot)
            told = int(lesson.right != site.misleads)
            owner.learn_more(place, decision.function, told, slot)
        learner.waits.own.come(slot)
        is_paid = bool(site.cost_columns) and site.cost_columns[decision.arm] is not None
        paid = lesson.paid if is_paid else None
        if learner.learn(place, decision.arm, int(lesson.right), slot, paid):
            for peer in {peer for peer, _ in (*site.peers, *site.readers)}:
                self.learners[peer].hear_alarm(slot)
        self.remember(decision, lesson)

    def score_function(self, decision: Decision, owner: int, function: int, **label: Any) -> None:
        gain = int(label["right"])
        learner = self.learners[owner]
        learner.learn_more(self.place(decision), function, gain, decision.slot)
