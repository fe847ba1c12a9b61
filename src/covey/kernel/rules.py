"""Records that describe one learner to the kernel: arms, partition, reward, policy."""

from typing import NamedTuple

import msgspec

Report = tuple[int, float, float]  # arrivals in a cell; lower and upper bound of the best accuracy


class Cell(NamedTuple):
    """A region of a context space: partition level and integer coordinates."""

    level: int
    coordinates: tuple[int, ...]
    space: str = ""  # name of the context space, when there are several


class Level(NamedTuple):
    """One resolution of a partition: `side` slices per dimension."""

    side: int
    split_at: float  # own arrivals at which a cell of this level is split; inf = never


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """Value of an arm: a * accuracy ** q - b * cost * (1 + sum of c * x over the context)."""

    accuracy: float = 1.0  # a
    power: float = 1.0  # q
    cost: float = 1.0  # b
    context: tuple[float, ...] = ()  # c, one per dimension


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Choice by upper confidence index instead of thresholds."""

    scale: float = 1.0  # of the logarithm of the slot
    is_recent: bool = False  # use discounted counts
    bias: tuple[float, ...] = ()  # per level, when all levels are used at once
    is_balanced: bool = False  # peers report only the uncertainty of each answer
    alarm: float = 0.0  # CUSUM threshold that resets the statistics; 0: never


class Elimination(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds only for arms that may still be the best."""

    confidence: float  # twice the number of functions times cells
    bias: float  # maximum difference of accuracies within a cell
    most_functions: int


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of one learner's kernel table: arms, partition, variant of the decision rule."""

    dimension: int
    functions: int
    costs: tuple[float, ...]  # one per arm: own functions, then peers
    levels: tuple[Level, ...]
    most_cells: int
    trains_first: bool
    explores_to_help: bool
    counted: int  # arrivals in reports: 0 all arrivals, 1 labelled ones, 2 labelled uses
    is_pending: bool
    seed: int | None  # None: ties go to the lowest index
    inherits: bool = False  # finer cells start with the counters of the cell they split
    window: int = 0  # latest labels per cell used by estimates; 0: all
    discount: float = 1.0  # factor on the weight of a label for each later one in its cell
    unit: int = 1  # gain of a correct answer; above 1 when answers can be partly correct
    rewards: tuple[Reward, ...] = ()  # one per arm; empty: accuracy minus cost
    is_supervised: bool = True  # False: it receives no labels and relies on its peers
    context_peers: int = 0  # number of arms, at the end, that receive only the cell
    learns_costs: bool = False  # some arm has a variable cost that must be learnt
    index: Index | None = None
    elimination: Elimination | None = None
    remembers: bool = False  # stores labels per cell, to answer queries that carry only the cell
    floors_training: bool = False  # check peers' reports against own records
    asked_only: bool = False  # store only labels that its answers got right


class Seat(NamedTuple):
    """A learner's place in a replay."""

    behind: tuple[int, ...]  # per arm, the queried learner; -1: an own function
    cost_columns: tuple[int, ...]  # per arm, the column of its variable cost; -1: none
    receives: bool = True
    stream: int = 0  # index of its instance stream, when there are several
    patience: int = -1  # slots that it waits for an answer; -1: no limit
    lies: bool = False  # reports 0 arrivals and an upper bound of 1
