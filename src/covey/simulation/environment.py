"""`[[environment]]` tables: simulated environments with known accuracies, and their checks."""

import itertools
import math
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from covey import toml
from covey.bandit.bounds import MOST_SLOTS
from covey.config import Candidates, Entry
from covey.errors import ConfigError
from covey.types import Loss

MOST_DIMENSIONS = 8
MOST_LEVEL = 52  # a finer cube cannot hold two contexts

Shape = Literal["bumps", "ramps", "steps"]


class Surface(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function's accuracy: `high` inside its region, falling to `low` around it.

    The region is a point (bumps), a half-space (ramps) or every other band (steps).
    """

    shape: Shape = "bumps"
    at: tuple[float, ...]  # the point, or a point on the edge of the region
    toward: tuple[float, ...] = ()  # ramps and steps: direction from that edge into the region
    every: float = 0.5  # steps: width of a band
    high: float
    low: float


class Drift(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Change of accuracies: at most `severity` in `every-slots` slots."""

    kind: Literal["switch", "recur", "gradual", "rise", "fall", "improve", "use"] = "switch"
    severity: float
    every_slots: int
    learners: tuple[str, ...] = ()  # whose functions change; empty: all
    region: tuple[tuple[float, float], ...] = ()  # low and high per dimension; empty: everywhere


class RecordedLog(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A log from which blocks of consecutive rows are drawn; None: a default from its length."""

    path: str
    functions: tuple[tuple[str, ...], ...]  # columns of predictions: learner, function
    context: list[Entry]  # as in `[data]` of a replay
    label: str = "label"
    block_slots: int | None = None
    slices: int | None = None  # per dimension, of the cells in which accuracies are estimated


class Classes(msgspec.Struct, frozen=True, kw_only=True):
    """Classes of labels: equal intervals of the first coordinate, each with its usual class."""

    number: int = 2
    usual: float  # probability of the usual class; the others are equally likely


class DrawnColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of costs or answer delays: each value from `low` to `high`, all equally likely."""

    low: float = 0.0
    high: float


class Topology(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Who asks whom among many alike sites: each asks equally many others, whom the seed draws."""

    kind: Literal["random", "ring", "small-world"] = "random"
    peers_each: int
    rewired: float = 0.1  # small-world: share of the links of a ring that lead anywhere else
    seed: int = 0


class Process(NamedTuple):
    """The distribution of contexts, and their correlation between learners."""

    arrivals: str  # worst, best, uniform
    correlation: str | float  # worst, best, independent, or the share of common instances


CASES = {
    "C1": Process("worst", "worst"),
    "C2": Process("worst", "best"),
    "C3": Process("best", "worst"),
    "C4": Process("best", "best"),
}


class Environment(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A simulated environment; the properties resolve None to its default."""

    name: str
    # What draws the instances if covey does not: "module:name", or a callable that is not
    # importable by name; called with a generator and the options.
    entry: Any = msgspec.field(default=None, name="environment")
    options: dict[str, Any] = {}
    log: RecordedLog | None = None  # or a log that they are drawn from
    dimension: int = 1
    learners: int | None = None
    topology: Topology | None = None  # None: every learner can ask all others
    functions: int | None = None  # of each learner
    surfaces: tuple[tuple[Surface, ...], ...] | None = None  # learner, function; None: drawn
    shape: Shape = "bumps"
    lipschitz: float = 1.0
    alpha: float = 1.0
    low: float = 0.3
    high: float = 0.95
    prices: float | tuple[tuple[float, ...], ...] = 0.0  # asker, asked
    function_costs: float | tuple[tuple[float, ...], ...] = 0.0  # learner, function
    free: bool = False  # owners score all their functions by every label
    case: Literal["C1", "C2", "C3", "C4"] | None = None
    arrivals: Literal["worst", "best", "uniform"] | None = None
    correlation: Literal["worst", "best", "independent"] | float | None = None
    split_power: float | None = None  # p in the cube level of the best arrivals
    drift: Drift | None = None
    delay_slots: int = 0  # at most
    least_delay_slots: int = 0
    dependence: float = 0.0  # of a function's answers: correlation of each with the one before
    label_probability: float = 1.0
    liars: dict[str, Literal["zero-arrivals", "false-labels"]] = {}
    failing: dict[str, float] = {}  # learner -> share of answers that are always wrong
    # What sites see of the coordinates x1, x2, ... and of time; by default all coordinates.
    context: list[Entry] = []
    candidates: Candidates | None = None
    learner: list[dict[str, Any]] = []  # keys of `[[learner]]` tables, which override these
    measured: tuple[str, ...] = ()  # learners whose regret is measured; empty: all that receive
    regions: dict[str, tuple[tuple[float, float], ...]] = {}  # learner -> where its contexts are
    columns: dict[str, DrawnColumn] = {}  # that `cost-columns` and `answer-delay` name
    loss: Loss | None = None  # answers are numbers, and an accuracy is an expected gain
    classes: Classes | None = None
    batch: int = 1  # so many consecutive instances are one batch
    link: list[dict[str, Any]] = []  # as `[[link]]` of a replay, instead of prices
    link_change: list[dict[str, Any]] = []
    ensemble: dict[str, Any] | None = None  # as `[ensemble]` of a replay

    @property
    def is_embedded(self) -> bool:
        """Whether covey draws the instances: neither a class of one's own nor a log does."""
        return self.entry is None and self.log is None

    @property
    def is_plain(self) -> bool:
        """Whether the world has only what the theorems assume of learners and labels."""
        return (
            self.is_embedded
            and not any(
                (self.context, self.candidates, self.learner, self.regions, self.loss, self.classes)
            )
            and not (self.batch > 1 or self.link or self.ensemble or self.topology)
        )

    @property
    def process(self) -> Process:
        """How contexts arrive; by default uniform and the same for all learners."""
        if self.case is not None:
            return CASES[self.case]
        correlation = "best" if self.correlation is None else self.correlation
        return Process(self.arrivals or "uniform", correlation)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the learners."""
        learners = 4 if self.learners is None else self.learners
        count = learners if self._listed is None else len(self._listed)
        return tuple(f"learner-{k + 1}" for k in range(count))

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of functions of each learner."""
        if self._listed is not None:
            return tuple(len(own) for own in self._listed)
        return (2 if self.functions is None else self.functions,) * len(self.names)

    @property
    def _listed(self) -> tuple[tuple[Any, ...], ...] | None:
        """The functions of each learner where they are listed one by one."""
        return self.surfaces if self.log is None else self.log.functions

    @property
    def receiving(self) -> tuple[int, ...]:
        """The learners that receive instances, by index: all, or only the first."""
        most = 1 if self.process.correlation == "worst" else len(self.names)
        tables = self.tables
        if not tables:
            return tuple(range(most))
        return tuple(
            place
            for place, name in enumerate(self.names[:most])
            if tables.get(name, {}).get("arrivals", True)
        )

    @property
    def receivers(self) -> int:
        """The number of learners that receive instances."""
        return len(self.receiving)

    @property
    def coordinates(self) -> list[str]:
        """The names of the coordinates of a context."""
        return [f"x{k + 1}" for k in range(self.dimension)]

    @property
    def labels(self) -> list[int]:
        """The labels of all classes."""
        return [*range(2 if self.classes is None else self.classes.number)]

    @property
    def learns_by_use(self) -> bool:
        """Whether accuracies depend on how often functions were used."""
        return self.drift is not None and self.drift.kind == "use"

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The `[[environment.learner]]` tables by the name of the learner."""
        return {table["name"]: table for table in self.learner}

    @property
    def answers(self) -> int:
        """The number of answers in a slot: of all functions that can be asked, per stream."""
        if self.topology is None or self.streams == 1:
            return self.streams * sum(self.counts)
        return len(self.names) * (1 + self.topology.peers_each) * self.counts[0]

    @property
    def label_probabilities(self) -> tuple[float, ...]:
        """The probability of each learner to see a label; 0 for one that is not supervised."""
        if not self.learner:
            return (self.label_probability,) * len(self.names)
        return tuple(
            table.get("label-probability", self.label_probability)
            if table.get("supervised", True)
            else 0.0
            for table in (self.tables.get(name, {}) for name in self.names)
        )

    @property
    def streams(self) -> int:
        """The number of instance sequences: one, or one per learner."""
        return 1 if self.process.correlation in ("worst", "best") else len(self.names)

    @property
    def drawn_streams(self) -> int:
        """The sequences that are drawn: with a share of common instances, one more for these."""
        return self.streams + (not isinstance(self.process.correlation, str))

    def price(self, asker: int, asked: int) -> float:
        """Return the price that the learner at index `asker` pays the one at index `asked`."""
        return self.prices[asker][asked] if isinstance(self.prices, tuple) else self.prices

    def function_cost(self, learner: int, function: int) -> float:
        """Return the cost of running one of a learner's own functions."""
        costs = self.function_costs
        return costs[learner][function] if isinstance(costs, tuple) else costs

    def cube_level(self, horizon: int) -> int:
        """Return the level of the cube that contains the best arrivals."""
        power = 3 * self.alpha if self.split_power is None else self.split_power
        return math.ceil(math.log2(horizon) / power) + 1


def environment_from(
    table: Mapping[str, Any], *, where: str = "[[environment]]", folder: Path = Path()
) -> Environment:
    """Return a checked environment from a table of a scenario in `folder`.

    >>> environment_from({"name": "calm", "case": "C4"}).process
    Process(arrivals='best', correlation='best')
    """
    environment = toml.read(table, Environment, where=where)
    changes = {"entry": _by_name(environment.entry)}
    if (log := environment.log) is not None:
        changes["log"] = msgspec.structs.replace(log, path=str(folder / log.path))
        changes["dimension"] = table.get("dimension", len(log.context))
    environment = msgspec.structs.replace(environment, **changes)
    check(environment)
    return environment


def _by_name(entry: Any) -> Any:
    """Return a callable as "module:name" if every process finds it under that name."""
    name = name_of(entry)
    try:
        is_found = not name.startswith("__main__:") and pkgutil.resolve_name(name) is entry
    except (ImportError, AttributeError, ValueError):
        is_found = False
    return name if is_found else entry


def name_of(entry: Any) -> str:
    """Return "module:name" of what draws the instances, for messages and files."""
    named = entry if hasattr(entry, "__qualname__") else type(entry)
    return entry if isinstance(entry, str) else f"{named.__module__}:{named.__qualname__}"


def check(environment: Environment) -> None:
    """Raise `ConfigError` if the environment is not valid."""
    where = f"environment {environment.name!r}"
    _check_ranges(environment, where)
    _check_learner_tables(environment, where)
    if not environment.is_embedded or environment.options:
        _check_own(environment, where)
    if environment.surfaces is not None:
        _check_surfaces(environment, environment.surfaces, where)
    learners = len(environment.names)
    _check_costs(environment.prices, (learners,) * learners, f"{where}: prices")
    _check_costs(environment.function_costs, environment.counts, f"{where}: function-costs")
    _check_process(environment, where)
    _check_drift(environment, where)
    if environment.topology is not None:
        _check_topology(environment, environment.topology, where)
    named = (environment.liars, environment.failing, environment.measured, environment.regions)
    for learner in itertools.chain(*named):
        if learner not in environment.names:
            hint = toml.nearest(learner, environment.names)
            raise ConfigError(f"{where} names unknown learner {learner!r}{hint}")
    for learner, share in environment.failing.items():
        toml.check_range(share, 0, 1, f"{where}: failing.{learner}")


def check_horizon(environment: Environment, horizon: int) -> None:
    """Raise `ConfigError` if the environment cannot run for so many slots."""
    toml.check_range(horizon, 1, MOST_SLOTS, "the horizon")
    if horizon % environment.batch:
        raise ConfigError(
            f"environment {environment.name!r}: the horizon of {horizon} slots is not a whole "
            f"number of batches of {environment.batch}; change one of them"
        )
    if environment.process.arrivals == "best" and environment.cube_level(horizon) > MOST_LEVEL:
        raise ConfigError(
            f"environment {environment.name!r}: with {horizon} slots the best arrivals need a cube "
            f"of level {environment.cube_level(horizon)}, above the maximum {MOST_LEVEL}; raise "
            "split-power"
        )


_RANGES = {
    "dimension": (1, MOST_DIMENSIONS),
    "learners": (1, 100_000),
    "functions": (1, 1_000),
    "delay_slots": (0, MOST_SLOTS),
    "least_delay_slots": (0, MOST_SLOTS),
    "label_probability": (0, 1),
    "batch": (1, 1_000),
}


def _check_ranges(environment: Environment, where: str) -> None:
    toml.check_ranges(environment, _RANGES, where=f"{where}:")
    for name in ("lipschitz", "alpha", "split_power"):
        value = getattr(environment, name)
        if value is not None and not 0 < value < math.inf:
            key = name.replace("_", "-")
            raise ConfigError(f"{where}: {key} is {value}; it must be above 0 and finite")
    if environment.alpha > 1:
        raise ConfigError(
            f"{where}: alpha is {environment.alpha}; it must be above 0 and at most 1 (only "
            "constant accuracies are smoother)"
        )
    if not 0 <= environment.dependence < 1:
        raise ConfigError(
            f"{where}: dependence is {environment.dependence}; it must be 0 or more and below 1"
        )
    if environment.least_delay_slots > environment.delay_slots:
        raise ConfigError(
            f"{where}: least-delay-slots is {environment.least_delay_slots}, above delay-slots, "
            f"{environment.delay_slots}"
        )
    if environment.topology is None and len(environment.names) > _MOST_COMPLETE:
        raise ConfigError(
            f"{where}: {len(environment.names)} learners that all ask each other are above the "
            f"maximum {_MOST_COMPLETE}; add topology = {{ peers-each = 3 }}"
        )
    _check_heights(environment, where)


_EMBEDDED = (
    "surfaces", "shape", "low", "high", "case", "arrivals", "split_power", "drift", "failing"
)  # fmt: skip


_SEPARATE = (  # keys of a world in which sites are alike
    *("name", "dimension", "learners", "topology", "functions", "shape", "lipschitz", "alpha"),
    *("low", "high", "prices", "function_costs", "free", "correlation", "arrivals"),
    *("delay_slots", "least_delay_slots", "label_probability", "liars"),
)
_MOST_COMPLETE = 1_000  # learners that can all ask each other


def _check_topology(environment: Environment, topology: Topology, where: str) -> None:
    plain = Environment(name=environment.name)
    for name in environment.__struct_fields__:
        if name not in _SEPARATE and getattr(environment, name) != getattr(plain, name):
            unfit = "environment" if name == "entry" else name.replace("_", "-")
            raise ConfigError(
                f"{where}: {unfit} cannot be combined with topology, whose sites are alike; "
                "remove one of them"
            )
    prices, costs = environment.prices, environment.function_costs
    for key, given in (("prices", prices), ("function-costs", costs)):
        if isinstance(given, tuple) or given > 1:
            raise ConfigError(
                f"{where}: with topology, {key} must be one number for all sites, at most 1"
            )
    arrivals, correlation = environment.process
    if arrivals != "uniform" or correlation not in ("best", "independent"):
        raise ConfigError(
            f'{where}: topology needs arrivals = "uniform" and correlation = "best" or '
            '"independent"; change them'
        )
    most = len(environment.names) - 1
    toml.check_range(topology.peers_each, 1, most, f"{where}: topology.peers-each")
    toml.check_range(topology.rewired, 0, 1, f"{where}: topology.rewired")
    toml.check_range(topology.seed, 0, 2**32 - 1, f"{where}: topology.seed")


def _check_own(environment: Environment, where: str) -> None:
    entry, log = environment.entry, environment.log
    if entry is None and environment.options:
        raise ConfigError(f"{where}: options are those of environment = 'module:name'; add it")
    if entry is not None and not (isinstance(entry, str) or callable(entry)):
        raise ConfigError(
            f"{where}: environment is {entry!r}; write 'module:name', or give a class"
        )
    if entry is not None and log is not None:
        raise ConfigError(f"{where} has environment and log; remove one of them")
    try:
        msgspec.json.encode(environment.options)
    except TypeError as error:
        raise ConfigError(
            f"{where}: options must hold text, numbers, lists and tables ({error})"
        ) from None
    source = "environment" if log is None else "log"
    plain = Environment(name=environment.name)
    for name in (*_EMBEDDED, *(("learners", "functions", "dependence") if log else ())):
        if getattr(environment, name) != getattr(plain, name):
            key = name.replace("_", "-")
            raise ConfigError(f"{where}: {key} has no effect with {source}; remove {key}")
    if log is None:
        return
    if not log.functions or not all(log.functions):
        raise ConfigError(f"{where}: log.functions must name a column for every learner")
    if len(log.context) != environment.dimension:
        raise ConfigError(
            f"{where}: log.context has {len(log.context)} entries, but dimension is "
            f"{environment.dimension}; remove dimension"
        )
    ranges = {"block_slots": (1, MOST_SLOTS), "slices": (1, 2**31)}
    toml.check_ranges(log, ranges, where=f"{where}: log")


def _check_surfaces(
    environment: Environment, surfaces: Sequence[Sequence[Surface]], where: str
) -> None:
    if environment.learners is not None or environment.functions is not None:
        raise ConfigError(f"{where}: surfaces set the counts; remove learners and functions")
    if not surfaces or not all(surfaces):
        raise ConfigError(f"{where}: surfaces must name at least one function of every learner")
    for learner, own in enumerate(surfaces):
        for function, surface in enumerate(own):
            which = f"{where}: surface {function + 1} of learner-{learner + 1}"
            _check_heights(surface, which)
            _check_region(surface, environment.dimension, which)


def _check_region(surface: Surface, dimension: int, which: str) -> None:
    needed = {"at": surface.at}
    if surface.shape != "bumps":
        needed["toward"] = surface.toward
    for key, numbers in needed.items():
        if len(numbers) != dimension:
            raise ConfigError(
                f"{which}: {key} has {len(numbers)} numbers; it must have {dimension}"
            )
    for number in surface.at:
        toml.check_range(number, 0, 1, f"{which}: at")
    if surface.shape != "bumps" and not 0 < math.hypot(*surface.toward) < math.inf:
        raise ConfigError(f"{which}: toward is {list(surface.toward)}; it must not be zero")
    if not 0 < surface.every < math.inf:
        raise ConfigError(f"{which}: every is {surface.every}; it must be above 0 and finite")


def _check_heights(holder: Environment | Surface, where: str) -> None:
    for name in ("low", "high"):
        value = getattr(holder, name)
        if not 0 <= value <= 1:
            raise ConfigError(f"{where}: {name} is {value}; it must be from 0 to 1")
    if holder.low > holder.high:
        raise ConfigError(f"{where}: low is {holder.low}, above high, {holder.high}")


def _check_costs(
    costs: float | tuple[tuple[float, ...], ...], widths: Sequence[int], which: str
) -> None:
    rows = costs if isinstance(costs, tuple) else ((costs,),)
    lengths = [len(row) for row in rows]
    if isinstance(costs, tuple) and lengths != list(widths):
        raise ConfigError(
            f"{which} has rows of {lengths} numbers; they must have {list(widths)}, one row per "
            "learner"
        )
    for cost in itertools.chain(*rows):
        if not 0 <= cost < math.inf:
            raise ConfigError(f"{which} holds {cost}; it must be 0 or more, and finite")


def _check_learner_tables(environment: Environment, where: str) -> None:
    names: list[str] = []
    for number, table in enumerate(environment.learner, 1):
        name = table.get("name")
        if name not in environment.names:
            raise ConfigError(
                f"{where}: [[environment.learner]] {number} has the name {name!r}; it must be one "
                f"of {environment.names[0]} to {environment.names[-1]}"
            )
        if name in names:
            raise ConfigError(f"{where}: duplicate [[environment.learner]] {name!r}; keep one")
        names.append(name)


def _check_process(environment: Environment, where: str) -> None:
    is_given = environment.arrivals is not None or environment.correlation is not None
    if environment.case is not None and is_given:
        raise ConfigError(
            f"{where}: case = {environment.case!r} sets arrivals and correlation; remove these "
            "keys, or case"
        )
    correlation = environment.process.correlation
    if not isinstance(correlation, str):
        toml.check_range(correlation, 0, 1, f"{where}: correlation")


def _check_drift(environment: Environment, where: str) -> None:
    drift = environment.drift
    if drift is None:
        return
    toml.check_range(drift.every_slots, 1, MOST_SLOTS, f"{where}: drift.every-slots")
    if not 0 < drift.severity <= 1:
        raise ConfigError(
            f"{where}: drift.severity is {drift.severity}; it must be above 0 and at most 1"
        )
    if drift.kind in ("switch", "recur") and drift.severity > spread(environment):
        raise ConfigError(
            f"{where}: drift.severity is {drift.severity}, but a switch changes accuracies by at "
            f"most {spread(environment):g} (high - low); lower it"
        )
    if drift.kind == "use" and environment.batch > 1:
        raise ConfigError(
            f'{where}: batch cannot be combined with drift.kind = "use"; remove one of them'
        )
    for learner in drift.learners:
        if learner not in environment.names:
            hint = toml.nearest(learner, environment.names)
            raise ConfigError(f"{where}: drift.learners names unknown learner {learner!r}{hint}")
    _check_drift_region(drift, environment.dimension, f"{where}: drift.region")


def _check_drift_region(drift: Drift, dimension: int, where: str) -> None:
    if drift.region and drift.kind == "gradual":
        raise ConfigError(f"{where} has no effect with gradual drift; remove it")
    if drift.region and len(drift.region) != dimension:
        raise ConfigError(f"{where} has {len(drift.region)} intervals; it must have {dimension}")
    for low, high in drift.region:
        if not 0 <= low < high <= 1:
            raise ConfigError(
                f"{where} holds [{low}, {high}]; it must be an interval of numbers from 0 to 1"
            )


def spread(environment: Environment) -> float:
    """Return the largest possible difference of two accuracies."""
    own: Sequence[Surface | Environment] = sum(environment.surfaces or (), ()) or (environment,)
    return max(each.high for each in own) - min(each.low for each in own)
