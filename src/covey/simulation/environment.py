"""`[[environment]]` tables: simulated environments with known accuracies, and their checks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from covey import toml
from covey.bandit.bounds import MOST_SLOTS
from covey.config import Candidates, Entry
from covey.errors import ConfigError
from covey.types import Loss

MOST_LEVEL = 52  # a finer cube cannot hold two contexts

Shape = Literal["bumps", "ramps", "steps"]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Cost = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Slots = Annotated[int, msgspec.Meta(ge=0, le=MOST_SLOTS)]
Number = Annotated[int, msgspec.Meta(ge=1, le=MOST_SLOTS)]
Region = tuple[tuple[Share, Share], ...]  # low and high per dimension


class Surface(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function's accuracy: `high` inside its region, falling to `low` around it.

    The region is a point (bumps), a half-space (ramps) or every other band (steps).
    """

    shape: Shape = "bumps"
    at: tuple[Share, ...]  # the point, or a point on the edge of the region
    toward: tuple[float, ...] = ()  # ramps and steps: direction from that edge into the region
    every: Positive = 0.5  # steps: width of a band
    high: Share
    low: Share


class Drift(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Change of accuracies: at most `severity` in `every-slots` slots."""

    kind: Literal["switch", "recur", "gradual", "rise", "fall", "improve"] = "switch"
    severity: Annotated[float, msgspec.Meta(gt=0, le=1)]
    every_slots: Number
    learners: tuple[str, ...] = ()  # whose functions change; empty: all
    region: Region = ()  # empty: everywhere


class RecordedLog(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A log from which blocks of consecutive rows are drawn; None: a default from its length."""

    path: str
    functions: tuple[tuple[str, ...], ...]  # columns of predictions: learner, function
    context: list[Entry]  # as in `[data]` of a replay
    label: str = "label"
    block_slots: Number | None = None
    slices: Number | None = None  # per dimension, of the cells in which accuracies are estimated


class Classes(msgspec.Struct, frozen=True, kw_only=True):
    """Classes of labels: equal intervals of the first coordinate, each with its usual class."""

    number: Annotated[int, msgspec.Meta(ge=2, le=1_000)] = 2
    usual: Share  # probability of the usual class; the others are equally likely


class DrawnColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of costs or answer delays: each value from `low` to `high`, all equally likely."""

    low: Cost = 0.0
    high: Cost


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
    # What draws the instances if covey does not, as "module:name"; called with a generator and
    # the options.
    entry: str | None = msgspec.field(default=None, name="environment")
    options: dict[str, Any] = {}
    log: RecordedLog | None = None  # or a log that they are drawn from
    dimension: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    learners: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    functions: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None  # of each learner
    surfaces: tuple[tuple[Surface, ...], ...] | None = None  # learner, function; None: drawn
    shape: Shape = "bumps"
    lipschitz: Positive = 1.0
    # Above 1, only constant accuracies would be as smooth.
    alpha: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    low: Share = 0.3
    high: Share = 0.95
    prices: Cost | tuple[tuple[Cost, ...], ...] = 0.0  # asker, asked
    function_costs: Cost | tuple[tuple[Cost, ...], ...] = 0.0  # learner, function
    free: bool = False  # owners score all their functions by every label
    case: Literal["C1", "C2", "C3", "C4"] | None = None
    arrivals: Literal["worst", "best", "uniform"] | None = None
    correlation: Literal["worst", "best", "independent"] | Share | None = None
    split_power: Positive | None = None  # p in the cube level of the best arrivals
    drift: Drift | None = None
    delay_slots: Slots = 0  # at most
    least_delay_slots: Slots = 0
    # Of a function's answers: correlation of each with the one before.
    dependence: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    label_probability: Share = 1.0
    liars: dict[str, Literal["zero-arrivals", "false-labels"]] = {}
    failing: dict[str, Share] = {}  # learner -> share of answers that are always wrong
    # What sites see of the coordinates x1, x2, ... and of time; by default all coordinates.
    context: list[Entry] = []
    candidates: Candidates | None = None
    learner: list[dict[str, Any]] = []  # keys of `[[learner]]` tables, which override these
    measured: tuple[str, ...] = ()  # learners whose regret is measured; empty: all that receive
    regions: dict[str, Region] = {}  # learner -> where its contexts are
    columns: dict[str, DrawnColumn] = {}  # that `cost-columns` and `answer-delay` name
    loss: Loss | None = None  # answers are numbers, and an accuracy is an expected gain
    classes: Classes | None = None
    batch: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1  # consecutive instances of a batch
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
            and not (self.batch > 1 or self.link or self.ensemble)
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
    def tables(self) -> dict[str, dict[str, Any]]:
        """The `[[environment.learner]]` tables by the name of the learner."""
        return {table["name"]: table for table in self.learner}

    @property
    def answers(self) -> int:
        """The number of answers in a slot: of all functions, per stream."""
        return self.streams * sum(self.counts)

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


def environment_from(table: Mapping[str, Any], *, folder: Path = Path()) -> Environment:
    """Return a checked environment from a table of a scenario in `folder`.

    >>> environment_from({"name": "calm", "case": "C4"}).process
    Process(arrivals='best', correlation='best')
    """
    if callable(entry := table.get("environment")):
        table = {**table, "environment": toml.named(entry)}
    environment = toml.read(table, Environment, where=f"[[environment]] {table.get('name')!r}")
    if (log := environment.log) is not None:
        environment = msgspec.structs.replace(
            environment,
            log=msgspec.structs.replace(log, path=str(folder / log.path)),
            dimension=table.get("dimension", len(log.context)),
        )
    check(environment)
    return environment


def check(environment: Environment) -> None:
    """Raise `ConfigError` if keys of the environment do not fit each other."""
    problem = next(_problems(environment), None)
    if problem is not None:
        raise ConfigError(f"environment {environment.name!r}: {problem}")


def _problems(environment: Environment) -> Iterator[str]:
    """Yield what is wrong, each check on the assumption that those before it found nothing."""
    yield from _wrong_surfaces(environment)
    yield from _wrong_names(environment)
    if not environment.is_embedded or environment.options:
        yield from _wrong_source(environment)
    yield from _wrong_numbers(environment)
    if environment.drift is not None:
        yield from _wrong_drift(environment, environment.drift)
    yield from _wrong_regions(environment)
    yield from _wrong_entries(environment)
    yield from _wrong_columns(environment)
    yield from _wrong_labels(environment)
    yield from _wrong_network(environment)


def _wrong_surfaces(environment: Environment) -> Iterator[str]:
    surfaces = environment.surfaces
    if surfaces is None:
        return
    if environment.learners is not None or environment.functions is not None:
        yield "surfaces set the counts; remove learners and functions"
    if not surfaces or not all(surfaces):
        yield "surfaces must name at least one function of every learner"
    for learner, own in enumerate(surfaces, 1):
        for function, surface in enumerate(own, 1):
            which = f"surface {function} of learner-{learner}"
            if surface.low > surface.high:
                yield f"{which}: low is {surface.low}, above high, {surface.high}"
            needed = {"at": surface.at, "toward": surface.toward}
            for key in ("at",) if surface.shape == "bumps" else ("at", "toward"):
                if len(needed[key]) != environment.dimension:
                    yield (
                        f"{which}: {key} has {len(needed[key])} numbers; it must have "
                        f"{environment.dimension}"
                    )
            if surface.shape != "bumps" and not 0 < math.hypot(*surface.toward) < math.inf:
                yield f"{which}: toward is {list(surface.toward)}; it must not be zero"


def _wrong_names(environment: Environment) -> Iterator[str]:
    names = environment.names
    tables = [table.get("name") for table in environment.learner]
    for number, name in enumerate(tables, 1):
        if name not in names:
            yield (
                f"[[environment.learner]] {number} has the name {name!r}; it must be one of "
                f"{names[0]} to {names[-1]}"
            )
        if tables.count(name) > 1:
            yield f"duplicate [[environment.learner]] {name!r}; keep one"
    keys = ("liars", "failing", "measured", "regions")
    listed = {key: getattr(environment, key) for key in keys}
    listed["drift.learners"] = environment.drift.learners if environment.drift else ()
    for key, learners in listed.items():
        for learner in learners:
            if learner not in names:
                yield f"{key} names unknown learner {learner!r}{toml.nearest(learner, names)}"


_EMBEDDED = (
    "surfaces", "shape", "low", "high", "case", "arrivals", "split_power", "drift", "failing"
)  # fmt: skip


def _wrong_source(environment: Environment) -> Iterator[str]:
    entry, log = environment.entry, environment.log
    if entry is None and environment.options:
        yield "options are those of environment = 'module:name'; add it"
    if entry is not None and log is not None:
        yield "environment and log cannot be combined; remove one of them"
    try:
        msgspec.json.encode(environment.options)
    except TypeError as error:
        yield f"options must hold text, numbers, lists and tables ({error})"
    source = "environment" if log is None else "log"
    unused = (*_EMBEDDED, *(("learners", "functions", "dependence") if log else ()))
    for key in _changed(environment, unused):
        yield f"{key} has no effect with {source}; remove {key}"
    if log is None:
        return
    if not log.functions or not all(log.functions):
        yield "log.functions must name a column for every learner"
    if len(log.context) != environment.dimension:
        yield (
            f"log.context has {len(log.context)} entries, but dimension is "
            f"{environment.dimension}; remove dimension"
        )


def _changed(environment: Environment, names: Sequence[str]) -> list[str]:
    """Return the keys, of fields with these names, that do not have their default."""
    plain = Environment(name=environment.name)
    changed = [name for name in names if getattr(environment, name) != getattr(plain, name)]
    return ["environment" if name == "entry" else name.replace("_", "-") for name in changed]


def _wrong_numbers(environment: Environment) -> Iterator[str]:
    if environment.low > environment.high:
        yield f"low is {environment.low}, above high, {environment.high}"
    if environment.least_delay_slots > environment.delay_slots:
        yield (
            f"least-delay-slots is {environment.least_delay_slots}, above delay-slots, "
            f"{environment.delay_slots}"
        )
    learners = len(environment.names)
    prices, costs = environment.prices, environment.function_costs
    shapes = (
        ("prices", prices, (learners,) * learners),
        ("function-costs", costs, environment.counts),
    )
    for key, given, widths in shapes:
        if isinstance(given, tuple) and tuple(map(len, given)) != widths:
            yield (
                f"{key} has rows of {[*map(len, given)]} numbers; they must have {[*widths]}, one "
                "row per learner"
            )
    is_given = environment.arrivals is not None or environment.correlation is not None
    if environment.case is not None and is_given:
        yield (
            f"case = {environment.case!r} sets arrivals and correlation; remove these keys, or case"
        )


def _wrong_drift(environment: Environment, drift: Drift) -> Iterator[str]:
    if drift.kind in ("switch", "recur") and drift.severity > spread(environment):
        yield (
            f"drift.severity is {drift.severity}, but a switch changes accuracies by at most "
            f"{spread(environment):g} (high - low); lower it"
        )
    if drift.region and drift.kind == "gradual":
        yield "drift.region has no effect with gradual drift; remove it"
    if drift.region:
        yield from _wrong_intervals(drift.region, environment.dimension, "drift.region")


def _wrong_intervals(region: Region, dimension: int, key: str) -> Iterator[str]:
    if len(region) != dimension:
        yield f"{key} has {len(region)} intervals; it must have {dimension}"
    for low, high in region:
        if low >= high:
            yield f"{key} holds [{low}, {high}]; it must be an interval of numbers from 0 to 1"


def _wrong_regions(environment: Environment) -> Iterator[str]:
    arrivals, correlation = environment.process
    if environment.regions and (arrivals != "uniform" or not environment.is_embedded):
        yield (
            'regions need arrivals = "uniform", without environment, log and case; remove one of '
            "them"
        )
    if environment.regions and correlation != "independent":
        yield (
            'regions need correlation = "independent", as other learners receive the same '
            "instances; set it, or remove regions"
        )
    for name, region in environment.regions.items():
        yield from _wrong_intervals(region, environment.dimension, f"regions.{name}")


def _wrong_entries(environment: Environment) -> Iterator[str]:
    """Yield what is wrong with the contexts, of all sites and of one."""
    shared = {"context": environment.context, "candidates": environment.candidates}
    for table in (shared, *environment.learner):
        which = f"[[environment.learner]] {table['name']!r}: " if "name" in table else ""
        for key in ("functions", "view"):
            if key in table:
                yield f"{which}the world sets {key}; remove {key}"
        listed = [*(table.get("context") or []), *(table.get("candidates") or [])]
        for entry in listed:
            for one in entry if isinstance(entry, list) else [entry]:
                is_slot = isinstance(one, Mapping) and one.get("scale") == "slot"
                if not is_slot and one not in environment.coordinates:
                    known = ", ".join(environment.coordinates)
                    yield (
                        f"{which}the context {one!r} is not in the world; it has {known} and "
                        '{ scale = "slot" }'
                    )


def _wrong_columns(environment: Environment) -> Iterator[str]:
    used = {
        table["cost-column"]: "cost-column" for table in environment.link if "cost-column" in table
    }
    for table in environment.learner:
        used |= dict.fromkeys(table.get("cost-columns", {}).values(), "cost-columns")
        if isinstance(table.get("answer-delay"), str):
            used[table["answer-delay"]] = "answer-delay"
    for name, key in used.items():
        if name not in environment.columns:
            hint = toml.nearest(name, environment.columns)
            yield f"{key} names {name!r}, which is not in columns{hint}"
        column = environment.columns[name]
        most = MOST_SLOTS if key == "answer-delay" else 1
        if not column.low <= column.high <= most:
            yield (
                f"columns.{name} goes from {column.low:g} to {column.high:g}; for {key} it must be "
                f"a range from 0 to {most:g}"
            )
        if key == "answer-delay" and (column.low % 1 or column.high % 1):
            yield f"columns.{name} must hold whole numbers of slots"
    for name in environment.columns:
        if name not in used:
            yield f"no cost-columns, answer-delay or cost-column names columns.{name}; remove it"


def _wrong_labels(environment: Environment) -> Iterator[str]:
    classes, log = environment.classes, environment.log
    has_memory = any(table.get("context-peers") for table in environment.learner)
    others = {"classes": classes, "log": log, "dependence": environment.dependence}
    for key, value in others.items():
        if environment.loss is not None and value:
            yield f"loss and {key} cannot be combined; remove one of them"
    if has_memory and "false-labels" in environment.liars.values():
        yield "liars with false-labels cannot be combined with context-peers; remove one of them"
    if has_memory and classes is None:
        yield (
            "context-peers answer with class labels, but the environment has no classes; add "
            "classes"
        )
    if classes is None:
        return
    if classes.usual < 1 / classes.number:
        yield f"classes.usual is {classes.usual}; it must be at least 1 / classes.number"
    if log is not None:
        yield "classes cannot be combined with log, whose labels are used; remove one of them"
    if environment.streams > 1:
        yield (
            "classes need one stream of instances, but correlation gives each learner its own; "
            "remove one of them"
        )


def _wrong_network(environment: Environment) -> Iterator[str]:
    receiving = environment.receiving
    if not receiving:
        yield "every learner has arrivals = false; let one receive instances"
    for name in environment.measured:
        if environment.names.index(name) not in receiving:
            yield (
                f"measured names {name!r}, which receives no instances (correlation, arrivals); "
                "remove it"
            )
    if environment.link and environment.prices:
        yield "prices and link, which sets prices, cannot be combined; remove one of them"
    if environment.link_change and not environment.link:
        yield "link-change without link; list the links first"
    if environment.ensemble is not None and environment.classes is None:
        yield (
            "ensemble needs labels of several classes, or every vote would be for or against the "
            "same one; add classes"
        )
    if environment.ensemble is not None and environment.ensemble.get("base", 0) != 0:
        base = environment.ensemble["base"]
        yield f"ensemble.base is {base!r}; classes are numbers, and the base class is 0"


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


def spread(environment: Environment) -> float:
    """Return the largest possible difference of two accuracies."""
    own: Sequence[Surface | Environment] = sum(environment.surfaces or (), ()) or (environment,)
    return max(each.high for each in own) - min(each.low for each in own)
