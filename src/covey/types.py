"""Shared records, and the protocols that implementations provide."""

import enum
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Label = Hashable
Context = tuple[float, ...]
Report = tuple[int, float, float]  # arrivals in a cell; lower and upper bound of the best accuracy

WHOLE = 1_000_000  # gain of a fully correct answer when answers can be partly correct
MILLIONTHS = 1_000_000  # unit of costs


class Loss(msgspec.Struct, frozen=True):
    """Loss of a numeric prediction: absolute or squared error, clipped at `bound`."""

    kind: Literal["absolute", "squared"]
    bound: float

    def gains(self, distance: Any) -> Any:
        """Return the gain of a prediction at this distance from the truth, from 0 to `WHOLE`."""
        lost = distance**2 if self.kind == "squared" else distance
        return np.rint(WHOLE * (1.0 - np.minimum(1.0, lost / self.bound)))


class Phase(enum.IntEnum):
    """Why an arm was chosen."""

    TRAIN = 0
    EXPLORE = 1
    EXPLOIT = 2


BY_CONTEXT = " (context)"  # name suffix of a peer that receives only the cell
MEMORY = "(labels seen)"  # function name in a trace when a learner answers from stored labels
PHASES = tuple(phase.name.lower() for phase in Phase)


class Cell(NamedTuple):
    """A region of a context space: partition level and integer coordinates."""

    level: int
    coordinates: tuple[int, ...]
    space: str = ""  # name of the context space, when there are several


class Level(NamedTuple):
    """One resolution of a partition: `side` slices per dimension."""

    side: int
    split_at: float  # own arrivals at which a cell of this level is split; inf = never


class Partition(Protocol):
    """Maps contexts to cells, as data for the kernel."""

    def levels(self, dimension: int) -> tuple[Level, ...]:
        """Return the levels, coarsest first; each one subdivides the previous one."""

    def name(self, cell: Cell) -> str:
        """Return the canonical name of `cell`, as used between learners."""

    def parse(self, name: str) -> Cell:
        """Return the cell of a canonical name; the inverse of `name`."""


class Standing(NamedTuple):
    """State of an ensemble's weights, in one cell or global."""

    weights: tuple[float, ...]  # one per learner
    labels: int  # number of labels applied
    losses: tuple[float, ...]  # one per learner, in mistakes


class Update(Protocol):
    """Update rule of the weights of an ensemble."""

    @property
    def name(self) -> str:
        """Return the name in a configuration."""

    @property
    def threshold(self) -> float | None:
        """Return the weight a class needs to win; None: at least the weight of the base class."""

    @property
    def is_share(self) -> bool:
        """Whether the weights are non-negative and sum to 1."""

    def move(self, standing: Standing, votes: Sequence[int], label: int) -> Standing:
        """Return the state after a label for these votes; 0 is the base class."""


class Guess(NamedTuple):
    """A baseline's answer in a slot; it is passed to `learn` with the label."""

    label: int
    said: tuple[int, ...]  # predictions of the functions in that slot
    by: int = -1  # internal reference of the baseline: a function or a slot


class Baseline(Protocol):
    """A reference method: it sees all predictions and learns from labels as they arrive.

    Labels and predictions share one integer encoding.
    """

    @property
    def name(self) -> str:
        """Return the name on the command line."""

    def predict(self, said: tuple[int, ...]) -> Guess:
        """Answer a slot, given the predictions of the functions."""

    def learn(self, guess: Guess, label: int) -> None:
        """Learn from the label of the slot of `guess`; labels can be late or missing."""


class Chunk(NamedTuple):
    """Slots of a log, and the labels that arrive during them, in order of arrival."""

    said: Array  # slot, function -> code
    came: Array  # slot -> number of labels that arrived before it
    labels: Array
    asked: Array  # label, function -> prediction in the slot of the label
    slots: Array  # label -> its slot; the chunk starts at 0, earlier slots are negative


@runtime_checkable
class Swift(Baseline, Protocol):
    """A baseline that can also process a whole chunk, with the same result as slot by slot."""

    def play(self, chunk: Chunk) -> Array:
        """Return the answers, and learn from all labels."""


class CellView(msgspec.Struct, frozen=True):
    """Summary of one of a learner's own cells, for display."""

    name: str
    low: Context
    high: Context
    arrivals: int
    arm: str | None  # with the largest estimate (index policies: most labels); None: no labels
    estimate: float | None
    space: tuple[int, ...] | None = None  # context coordinates it divides; None: all


class Timeline(msgspec.Struct, frozen=True):
    """Counts of one learner in time buckets of equal length."""

    slots_per_bucket: int
    slots: list[int]
    judged: list[int]  # slots with a true label in the log
    errors: list[float]
    train: list[int]
    explore: list[int]


class LearnerOutcome(msgspec.Struct, frozen=True):
    """Result of a replay for one learner."""

    name: str
    functions: list[str]
    slots: int
    judged: int
    errors: float  # a whole number, unless answers can be partly correct
    train: int
    explore: int
    exploit: int
    cost_total: float
    arms: dict[str, int]  # arm -> times chosen
    alone_errors: float  # of the same policy without peers
    timeline: Timeline
    cells: list[CellView]
    blind: int = 0  # decisions with no label at this learner or at any of its peers
    stood_in: int = 0  # times an own function answered because the chosen peer was late or failed
    candidates: dict[str, int] = {}  # context -> decisions based on it, when there are several


class EnsembleOutcome(msgspec.Struct, frozen=True):
    """Result of an ensemble over the learners of a replay."""

    title: str
    judged: int
    errors: int
    exploit_errors: int  # in slots in which every learner exploited
    best_member: str
    best_member_errors: float
    weights: dict[str, dict[str, float]]  # cell ("all": global) -> learner -> final weight
    mean_weights: dict[str, float]  # over the cells, weighted by their slots
    slots_per_point: int
    history: list[list[float]]  # point in time -> weights; empty for weights per cell


class BaselineOutcome(msgspec.Struct, frozen=True):
    """Result of a baseline on a log."""

    errors: int
    judged: int  # slots with a true label in the log

    @property
    def error_percent(self) -> float | None:
        """Error rate; None without judged slots."""
        return 100 * self.errors / self.judged if self.judged else None


class Account(msgspec.Struct, frozen=True):
    """Utility account of one learner."""

    right: float
    paid: float  # for own functions and for asking
    served: int  # requests of others that it answered
    received: float  # serving costs that prices passed on to it
    borne: float  # its serving costs

    @property
    def utility(self) -> float:
        """Gains minus payments, plus received serving costs minus own serving costs."""
        return self.right - self.paid + self.received - self.borne


class Outcome(msgspec.Struct, frozen=True):
    """Results of a replay."""

    slots: int
    dimension: int
    context_names: list[str]
    policy: str  # one-line description
    learners: list[LearnerOutcome]
    functions: dict[str, float | None]  # function -> error percent over the log
    accounts: dict[str, Account] | None = None  # when there are serving costs
    ensemble: EnsembleOutcome | None = None
    spaces: int = 1  # number of context spaces
    baselines: dict[str, BaselineOutcome] | None = None  # when requested


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


class Run(msgspec.Struct, frozen=True):
    """Result of one policy in one simulated environment."""

    policy: str
    environment: str
    seed: int
    slots: list[int]  # checkpoints
    regret: dict[str, list[float]]  # cause -> cumulative at the checkpoints, over all learners
    learners: int  # with arrivals
    errors: float  # share of the decisions
    cost: float  # mean paid per decision
    phases: dict[str, float]  # share of the decisions
    messages: dict[str, float]  # kind -> per 1,000 decisions
    seconds: float
    # Share of decisions that queried a falsely reporting learner: overall, and in the worst cell
    # (of one learner) with at least 1,000 decisions.
    to_liars: dict[str, float] = {}
