"""The records that flow between modules, and the seams where implementations plug in."""

import enum
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Label = Hashable
Context = tuple[float, ...]
Report = tuple[int, float, float]  # arrivals in a cell, and bounds of the best accuracy there


WHOLE = 1_000_000  # what a right answer is worth where answers may be right in part
MILLIONTHS = 1_000_000  # in which costs are counted


class Loss(msgspec.Struct, frozen=True):
    """How wrong a number is: its distance to the truth, or the square of it, at most `bound`."""

    kind: Literal["absolute", "squared"]
    bound: float

    def gains(self, distance: Any) -> Any:
        """Return how right an answer is at this distance to the truth, out of `WHOLE`."""
        lost = distance**2 if self.kind == "squared" else distance
        return np.rint(WHOLE * (1.0 - np.minimum(1.0, lost / self.bound)))


class Phase(enum.IntEnum):
    """Why an arm was chosen."""

    TRAIN = 0
    EXPLORE = 1
    EXPLOIT = 2


BY_CONTEXT = " (context)"  # after the name of a learner that is shown the cell only
MEMORY = "(labels seen)"  # what stands for a function where a learner answers from memory
PHASES = tuple(phase.name.lower() for phase in Phase)


class Cell(NamedTuple):
    """A region of a context space: a level of a partition, and integer coordinates in it."""

    level: int
    coordinates: tuple[int, ...]
    space: str = ""  # whose contexts it divides, where learners have contexts of their own


class Level(NamedTuple):
    """One resolution of a partition: `side` slices per dimension."""

    side: int
    split_at: float  # own arrivals from which a cell of this level is split; inf = never


class Partition(Protocol):
    """Context -> cell, described as data so that the kernel can walk it."""

    def levels(self, dimension: int) -> tuple[Level, ...]:
        """Return the resolutions, coarsest first; each divides the one before."""

    def name(self, cell: Cell) -> str:
        """Return the canonical name under which learners speak of `cell`."""

    def parse(self, name: str) -> Cell:
        """Return the cell of a canonical name; the inverse of `name`."""


class Standing(NamedTuple):
    """Where an ensemble's weights stand, in one cell or everywhere."""

    weights: tuple[float, ...]  # one per learner
    labels: int  # that have moved them
    losses: tuple[float, ...]  # one per learner, in mistakes


class Update(Protocol):
    """How the weights of an ensemble move when a label comes."""

    @property
    def name(self) -> str:
        """Return what a configuration calls it."""

    @property
    def threshold(self) -> float | None:
        """Return what a class needs to beat the base class; None: more than those who vote so."""

    @property
    def is_share(self) -> bool:
        """Say whether the weights are shares: never negative, and 1 in all."""

    def move(self, standing: Standing, votes: Sequence[int], label: int) -> Standing:
        """Return the standing after the label of a slot with these votes; 0 is the base class."""


class Guess(NamedTuple):
    """What a baseline answered in a slot; it is handed back with the label, if that ever comes."""

    label: int
    said: tuple[int, ...]  # by the functions, in that slot
    by: int = -1  # what the baseline went by and must know again: a function, a slot


class Baseline(Protocol):
    """What covey is compared with: it hears every function, and learns from labels as they come.

    Labels and what functions say are small integers, the same ones.
    """

    @property
    def name(self) -> str:
        """Return what a command line calls it."""

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Answer a slot in which the functions said this."""

    def learn(self, guess: Guess, label: int) -> None:
        """Take the label of the slot of `guess`; it may come late, or never."""


class Chunk(NamedTuple):
    """Slots of a log, and the labels that come meanwhile, in the order in which they come."""

    said: Array  # slot, function -> code
    came: Array  # slot -> how many of the labels have come before it
    labels: Array
    asked: Array  # label, function -> what was said in the slot of the label
    slots: Array  # label -> its slot; the chunk begins with 0, what was before it is below


@runtime_checkable
class Swift(Baseline, Protocol):
    """A baseline that can also answer a chunk at once, as if it had been slot by slot."""

    def play(self, chunk: Chunk) -> Array:
        """Return the answers, having learnt from all labels."""


class CellView(msgspec.Struct, frozen=True):
    """What a learner knows of one of its own cells, for a person to look at."""

    name: str
    low: Context
    high: Context
    arrivals: int
    arm: str | None  # of the largest estimate; by an index, of most labels; None before any
    estimate: float | None
    space: tuple[int, ...] | None = None  # places of the contexts it goes by; None: all of them


class Timeline(msgspec.Struct, frozen=True):
    """Counts of one learner in equal stretches of time."""

    slots_per_bucket: int
    slots: list[int]
    judged: list[int]  # slots whose true label the log holds
    errors: list[float]
    train: list[int]
    explore: list[int]


class LearnerOutcome(msgspec.Struct, frozen=True):
    """One learner's part of a replay."""

    name: str
    functions: list[str]
    slots: int
    judged: int
    errors: float  # whole, unless answers are right in part
    train: int
    explore: int
    exploit: int
    cost_total: float
    arms: dict[str, int]  # arm -> times chosen
    alone_errors: float  # of the same policy, had it nobody to ask
    timeline: Timeline
    cells: list[CellView]
    blind: int = 0  # decisions without a label, own or of anybody who could be asked
    stood_in: int = 0  # times an own function answered because the chosen peer did not, or late
    candidates: dict[str, int] = {}  # context -> decisions that went by it, where there are several


class EnsembleOutcome(msgspec.Struct, frozen=True):
    """What an ensemble over the learners of a replay came to."""

    title: str  # one line for a person
    judged: int
    errors: int
    exploit_errors: int  # in slots in which every learner exploited
    best_member: str
    best_member_errors: float
    weights: dict[str, dict[str, float]]  # cell ("all": everywhere) -> learner -> final weight
    mean_weights: dict[str, float]  # of the cells, by their slots
    slots_per_point: int
    history: list[list[float]]  # point in time -> weights; empty where they are per cell


class BaselineOutcome(msgspec.Struct, frozen=True):
    """What a baseline came to on a log."""

    errors: int
    judged: int  # slots whose true label the log holds

    @property
    def error_percent(self) -> float | None:
        """How often it was wrong; None where that cannot be said."""
        return 100 * self.errors / self.judged if self.judged else None


class Account(msgspec.Struct, frozen=True):
    """One learner's side: what it got right, paid, received and bore for others."""

    right: float
    paid: float  # for own functions and for asking
    served: int  # requests of others that it answered
    received: float  # what prices carried of its serving cost
    borne: float  # what serving cost it

    @property
    def utility(self) -> float:
        """What the learner is left with."""
        return self.right - self.paid + self.received - self.borne


class Outcome(msgspec.Struct, frozen=True):
    """All that a replay found out, ready to be printed or drawn."""

    slots: int
    dimension: int
    context_names: list[str]
    policy: str  # one line for a person
    learners: list[LearnerOutcome]
    functions: dict[str, float | None]  # function -> error percent over the log
    accounts: dict[str, Account] | None = None  # where serving costs something
    ensemble: EnsembleOutcome | None = None
    spaces: int = 1  # more where learners have contexts of their own
    baselines: dict[str, BaselineOutcome] | None = None  # where they are asked for


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """What an arm is worth: a * accuracy ** q - b * cost * (1 + sum of c * x over the context)."""

    accuracy: float = 1.0  # a
    power: float = 1.0  # q
    cost: float = 1.0  # b
    context: tuple[float, ...] = ()  # c, one per dimension


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """A choice by what arms may be worth at most, in place of thresholds."""

    scale: float = 1.0  # of the logarithm of the slot
    is_recent: bool = False  # it goes by recent labels, not by all
    bias: tuple[float, ...] = ()  # per level, where every level counts
    is_balanced: bool = False  # peers say nothing of themselves but how unsure an answer is
    alarm: float = 0.0  # doubt beyond which all that was learnt is forgotten; 0: never


class Elimination(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds only for arms that may still be the best."""

    confidence: float  # twice the number of functions and cells in all
    bias: float  # how much accuracies may differ within a cell
    most_functions: int


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What one learner's kernel table is told: its arms, its partition, its reading of the rule."""

    dimension: int
    functions: int
    costs: tuple[float, ...]  # one per arm: own functions, then peers
    levels: tuple[Level, ...]
    most_cells: int
    trains_first: bool
    explores_to_help: bool
    counted: int  # what is reported as an arrival: 0 arrivals, 1 labelled ones, 2 labelled uses
    is_pending: bool
    seed: int | None  # None: ties go to the lowest index
    inherits: bool = False  # finer cells begin with what was learnt in their place
    window: int = 0  # labels of a cell that estimates go by; 0: all of them
    discount: float = 1.0  # what a label weighs after the next one in its cell
    unit: int = 1  # what a label is worth at most; more than 1 where answers are right in part
    rewards: tuple[Reward, ...] = ()  # one per arm; none: accuracy less cost
    is_supervised: bool = True  # False: it never sees a label, and goes by what others know
    context_peers: int = 0  # the last so many arms see the cell and never the data
    learns_costs: bool = False  # some arm costs more than its fixed cost, which is found out
    index: Index | None = None
    elimination: Elimination | None = None
    remembers: bool = False  # it is asked by cell alone, and so keeps the labels it has seen
    floors_training: bool = False  # what peers say of themselves is held against own records
    asked_only: bool = False  # it keeps of them only those that its answers were right about


class Seat(NamedTuple):
    """A learner's place in a replay."""

    behind: tuple[int, ...]  # per arm, the learner that is asked; -1: an own function
    cost_columns: tuple[int, ...]  # per arm, the column of what it costs beyond that; -1: none
    receives: bool = True
    stream: int = 0  # the instances it receives, where learners have streams of their own
    patience: int = -1  # slots that it waits for an answer; -1: as long as it takes
    lies: bool = False  # it says that it has no arrivals and may be as good as can be


class Run(msgspec.Struct, frozen=True):
    """What one policy came to in one world."""

    policy: str
    environment: str
    seed: int
    slots: list[int]  # checkpoints
    regret: dict[str, list[float]]  # cause -> cumulative at the checkpoints, over all learners
    learners: int  # that receive instances
    errors: float  # share of the decisions
    cost: float  # mean paid per decision
    phases: dict[str, float]  # share of the decisions
    messages: dict[str, float]  # kind -> per 1,000 decisions
    seconds: float
    # Shares of decisions for which a liar was asked: of all, and of those in one learner's worst
    # cell of at least 1,000.
    to_liars: dict[str, float] = {}
