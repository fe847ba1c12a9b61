"""Records that describe one learner to the kernel: arms, partition, reward, policy."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from covey.errors import PolicyError
from covey.kernel.history import History

MOST_AXES = 3  # of a tree of cells
ASKED = -2  # no result of a label: a peer that answered gets it first
UNPAID = -(1 << 60)  # no observed cost
WIDE_LEVEL = 8  # of places in spaces of many dimensions: coordinates have 8 bits
# Arrivals in a cell, lower and upper bound of the best accuracy, and numbers of the policy.
Report = tuple[int, float, float, tuple[int, ...]]


class Cell(NamedTuple):
    """A region of a context space: partition level and integer coordinates."""

    level: int
    coordinates: tuple[int, ...]
    space: str = ""  # name of the context space, when there are several


def middle_of(place: Sequence[int]) -> tuple[float, ...]:
    """Return the context in the middle of a place, whose coordinates have 8 bits."""
    return tuple([(slice_ + 0.5) / (1 << WIDE_LEVEL) for slice_ in place])


class Level(NamedTuple):
    """One resolution of a partition: `side` slices per dimension."""

    side: int
    split_at: float  # own arrivals at which a cell of this level is split; inf = never


class CellState:
    """An instance and the counters of its cell, as a policy of one's own sees them for one call.

    Arms are numbered: own functions first, then peers.
    """

    def __init__(self, functions: int, seed: int, cells: Any) -> None:
        self.cells = cells
        self.functions = functions  # how many own ones; arms from this number on are peers
        self.seed = seed
        self.slot = self.row = self.draws = 0
        self.labels: list[int] = []  # per arm
        self.right: list[float] = []  # per arm, how many of them are right
        self.pending: list[int] = []  # per arm, labels that have not arrived, if these are counted
        self.costs: list[float] = []  # per arm; inf: not available now
        self.context: tuple[float, ...] = ()  # of a peer's instance, the middle of the cell
        # Per peer, if the policy has `asks_peers`: the slot of its report, its arrivals in the
        # cell and the accuracy of its best function there; None: it has not reported.
        self.reports: list[tuple[int, int, float] | None] = []

    @property
    def cell(self) -> Cell:
        """The cell: its level and coordinates."""
        cell: Cell = self.cells.cell(self.row)
        return cell

    def accuracy(self, arm: int) -> float:
        """Return the share of right answers of an arm, 0 without labels."""
        return self.right[arm] / self.labels[arm] if self.labels[arm] else 0.0

    def random(self) -> float:
        """Return a number in [0, 1) that depends on seed, cell, slot and how many came before."""
        self.draws += 1
        value, cell = self.seed, self.cell
        for part in (self.slot, self.draws, cell.level, *cell.coordinates):
            value = (value ^ part) * 0x9E3779B97F4A7C15 + 0xBF58476D1CE4E5B9
            value &= 0xFFFFFFFFFFFFFFFF
            value ^= value >> 29
        return (value >> 11) / (1 << 53)


class CustomPolicy:
    """A policy of one's own: inherit, and override `choose`.

    With a method `learn(context, arm, gain)` it gets every label, a gain in [0, 1], and with
    `state()` and `restore(value)` what it learns is stored, as a JSON value.
    """

    asks_peers = False  # whether each available peer reports before `choose`

    def __init__(self, functions: int, peers: int) -> None:
        """Options of the `[policy]` table follow as keyword arguments."""
        self.functions = functions
        self.peers = peers

    def choose(self, cell: CellState) -> int:
        """Return the arm for an own instance."""
        raise NotImplementedError

    def serve(self, cell: CellState) -> int:
        """Return the own function for a peer's instance: the most accurate one."""
        return max(range(self.functions), key=cell.accuracy)


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """Value of an arm: a * accuracy ** q - b * cost * (1 + sum of c * x over the context)."""

    accuracy: float = 1.0  # a
    power: float = 1.0  # q
    cost: float = 1.0  # b
    context: tuple[float, ...] = ()  # c, one per dimension


class CustomReward(msgspec.Struct, frozen=True):
    """A reward of one's own: a function of accuracy (or expected loss), cost and context."""

    name: str
    function: Callable[..., Any]  # of the three, as numbers and a tuple
    bound: float = 0.0  # of the loss; 0: the function takes the accuracy

    def worth(self, accuracy: float, cost: float, context: tuple[float, ...]) -> float:
        """Return the value of an arm; raise `PolicyError` for what is not a number."""
        first = max(0.0, min(1.0, accuracy))  # estimates and bounds can lie outside
        if self.bound:
            first = self.bound * (1.0 - first)
        try:
            value = float(self.function(first, cost, context))
        except Exception as error:
            raise self.failure(error, first, cost, context) from error
        if math.isnan(value):
            raise self.failure(None, first, cost, context)
        return value

    def failure(
        self, error: Exception | None, first: float, cost: float, context: tuple[float, ...]
    ) -> PolicyError:
        """Return what to raise for an exception of the function; None: it returned nan."""
        what = "expected loss" if self.bound else "accuracy"
        inputs = f"{what} {first:g}, cost {cost:g} and context {context}"
        if error is None:
            return PolicyError(f"reward {self.name!r} returned nan for {inputs}; return a number")
        return PolicyError(
            f"reward {self.name!r} raised {type(error).__name__} for {inputs}: {error}"
        )


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Choice by upper confidence index instead of thresholds."""

    scale: float = 1.0  # of the logarithm of the slot
    alarm: float = 0.0  # CUSUM threshold that resets the statistics; 0: never


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """Gaussian inference on the tree of dyadic cells, and an upper index."""

    scale: float = 0.5  # of the logarithm of the slot
    spread: float = 0.5  # standard deviation of a cell of side 1 from one twice as large
    alarm: float = 5.0  # margin of the change detection over the logarithm of the labels; 0: none


class Custom(msgspec.Struct, frozen=True):
    """A policy of one's own: its name, what makes it (from functions and peers), and its seed."""

    name: str
    make: Callable[[int, int], Any]
    seed: int


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of one learner's kernel table: arms, partition, variant of the decision rule."""

    dimension: int
    functions: int
    costs: tuple[float, ...]  # one per arm: own functions, then peers
    levels: tuple[Level, ...]
    most_cells: int
    is_pending: bool
    is_paper: bool = False  # by the paper's pseudocode to the letter
    explores_to_help: bool = True  # False: it answers peers by its most accurate function at once
    counts_labelled: bool = False  # reports count arrivals when their labels come
    weighs_pending: bool = False  # a pending label counts by the share of labels that arrive
    inherits: bool = False  # finer cells start with the counters of the cell they split
    window: int = 0  # latest labels per cell used by estimates; 0: all
    discount: float = 1.0  # factor on the weight of a label for each later one in its cell
    unit: int = 1  # gain of a correct answer; above 1 when answers can be partly correct
    rewards: tuple[Reward | CustomReward, ...] = ()  # one per arm; empty: accuracy minus cost
    is_supervised: bool = True  # False: it receives no labels and relies on its peers
    context_peers: int = 0  # number of arms, at the end, that receive only the cell
    learns_costs: bool = False  # some arm has a variable cost that must be learnt
    index: Index | None = None
    tree: Tree | None = None
    offset: int = 0  # by which the decisions of learners in the same slot differ
    remembers: bool = False  # stores labels per cell, to answer queries that carry only the cell
    floors_training: bool = False  # check peers' reports against own records
    history: type[History] = History  # what it stores
    ignores_prices: bool = False  # decide by accuracies alone
    arm_names: int = 0  # a checksum: what a policy of one's own keeps is of these arms
    custom: Custom | None = None

    @property
    def is_wide(self) -> bool:
        """Whether contexts have too many dimensions for a tree of cells."""
        return self.tree is not None and self.dimension > MOST_AXES

    def formulas(self) -> list[float]:
        """Return the numbers of the rewards, per arm: a, q, b, then c."""
        numbers = []
        for reward in self.rewards:
            formula = Reward() if isinstance(reward, CustomReward) else reward
            slopes = formula.context or (0.0,) * self.dimension
            numbers += [formula.accuracy, formula.power, formula.cost, *slopes]
        return numbers

    def custom_rewards(self) -> list[Any]:
        """Return the reward of one's own of each arm; None: it has a formula."""
        return [reward if isinstance(reward, CustomReward) else None for reward in self.rewards]


class Seat(NamedTuple):
    """A learner's place in a replay."""

    behind: tuple[int, ...]  # per arm, the queried learner; -1: an own function
    cost_columns: tuple[int, ...]  # per arm, the column of its variable cost; -1: none
    space: int = 0  # in which it decides
    receives: bool = True
    stream: int = 0  # index of its instance stream, when there are several
    lies: bool = False  # reports 0 arrivals and an upper bound of 1
    misleads: bool = False  # tells peers that answered the opposite of the label
