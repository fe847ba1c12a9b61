"""`[[environment]]` tables: simulated environments with known accuracies, and their checks."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from covey import toml
from covey.bandit.bounds import MOST_SLOTS
from covey.config import Choices, Entry
from covey.data.contexts import MOST_COORDINATES
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

    def problems(self, dimension: int) -> Iterator[str]:
        yield from _above("low", self.low, "high", self.high)
        vectors = {"at": self.at} | ({} if self.shape == "bumps" else {"toward": self.toward})
        for key, vector in vectors.items():
            if len(vector) != dimension:
                yield f"{key} has {len(vector)} numbers; it must have {dimension}"
        if self.shape != "bumps" and not 0 < math.hypot(*self.toward) < math.inf:
            yield f"toward is {list(self.toward)}; it must not be zero"


class Drift(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Change of accuracies: at most `severity` in `every-slots` slots."""

    kind: Literal["switch", "recur", "gradual", "rise", "fall", "improve"] = "switch"
    severity: Annotated[float, msgspec.Meta(gt=0, le=1)]
    every_slots: Number
    learners: tuple[str, ...] = ()  # whose functions change; empty: all
    region: Region = ()  # empty: everywhere

    def problems(self, spread: float, dimension: int) -> Iterator[str]:
        if self.kind in ("switch", "recur") and self.severity > spread:
            yield (
                f"drift.severity is {self.severity}, but a switch changes accuracies by at most "
                f"{spread:g} (high - low); lower it"
            )
        if self.region and self.kind == "gradual":
            yield "drift.region has no effect with gradual drift; remove it"
        if self.region and len(self.region) != dimension:
            yield f"drift.region has {len(self.region)} intervals; it must have {dimension}"
        for low, high in self.region:
            if low >= high:
                yield f"drift.region holds [{low}, {high}]; it must be an interval from 0 to 1"


class Classes(msgspec.Struct, frozen=True, kw_only=True):
    """Classes of labels: equal intervals of the first coordinate, each with its usual class."""

    number: Annotated[int, msgspec.Meta(ge=2, le=1_000)] = 2
    usual: Share  # probability of the usual class; the others are equally likely


class DrawnColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of costs or answer delays: each value from `low` to `high`, all equally likely."""

    low: Cost = 0.0
    high: Cost

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def number(self, share: Any) -> Any:
        """Return the number at a share of the way, from 0 to 1."""
        return self.low + (self.high - self.low) * share

    def whole(self, share: Any) -> Any:
        """Return the whole number at a share of the way, below 1; all are equally wide."""
        return (self.low + (self.high - self.low + 1) * share).astype(np.int64)

    def share_above(self, limit: int) -> float:
        """Return the share of the whole numbers that lie above a limit."""
        count = self.high - self.low + 1
        return min(max(0.0, self.high - limit), count) / count


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


MOST_EMBEDDED = 8  # dimensions of a world that covey draws


_EMBEDDED = (
    "surfaces", "shape", "low", "high", "case", "arrivals", "split-power", "drift", "failing"
)  # fmt: skip


class Environment(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A simulated environment: its world, arrivals and labels, and the network of its sites."""

    # What draws instances and answers, and how accurate functions are; None: a default.
    name: str
    # What draws the instances if covey does not, as "module:name"; called with a generator and
    # the options.
    entry: str | None = msgspec.field(default=None, name="environment")
    options: dict[str, Any] = {}
    dimension: Annotated[int, msgspec.Meta(ge=1, le=MOST_COORDINATES)] = 1
    learners: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    functions: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None  # of each learner
    surfaces: tuple[tuple[Surface, ...], ...] | None = None  # learner, function; None: drawn
    shape: Shape = "bumps"
    lipschitz: Positive = 1.0
    # Above 1, only constant accuracies would be as smooth.
    alpha: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    low: Share = 0.3
    high: Share = 0.95
    drift: Drift | None = None
    # Of a function's answers: correlation of each with the one before.
    dependence: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    failing: dict[str, Share] = {}  # learner -> share of answers that are always wrong
    # When and where instances arrive, and what sites see of their contexts.
    case: Literal["C1", "C2", "C3", "C4"] | None = None
    arrivals: Literal["worst", "best", "uniform"] | None = None
    correlation: Literal["worst", "best", "independent"] | Share | None = None
    split_power: Positive | None = None  # p in the cube level of the best arrivals
    # What sites see of the coordinates x1, x2, ... and of time; by default all coordinates.
    context: list[Entry] = []
    candidates: Choices | None = None
    batch: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1  # consecutive instances of a batch
    # What labels are, when they come, and who sees or falsifies them.
    delay_slots: Slots = 0  # at most
    least_delay_slots: Slots = 0
    label_probability: Share = 1.0
    liars: dict[str, Literal["zero-arrivals", "false-labels"]] = {}
    loss: Loss | None = None  # answers are numbers, and an accuracy is an expected gain
    classes: Classes | None = None
    # The network.
    prices: Cost = 0.0  # of every peer; above 1: nobody asks anybody
    function_costs: Cost = 0.0  # of every function
    free: bool = False  # owners score all their functions by every label
    learner: list[dict[str, Any]] = []  # keys of `[[learner]]` tables, which override these
    measured: tuple[str, ...] = ()  # learners whose regret is measured; empty: all that receive
    columns: dict[str, DrawnColumn] = {}  # that `cost-columns` and `answer-delay` name
    link: list[dict[str, Any]] = []  # as `[[link]]` of a replay, instead of prices
    link_change: list[dict[str, Any]] = []
    ensemble: dict[str, Any] | None = None  # as `[ensemble]` of a replay

    @property
    def is_embedded(self) -> bool:
        """Whether covey draws the instances, not a class of one's own."""
        return self.entry is None

    @property
    def names(self) -> tuple[str, ...]:
        learners = 4 if self.learners is None else self.learners
        count = learners if self.surfaces is None else len(self.surfaces)
        return tuple(f"learner-{k + 1}" for k in range(count))

    @property
    def counts(self) -> tuple[int, ...]:
        if self.surfaces is not None:
            return tuple(len(own) for own in self.surfaces)
        return (2 if self.functions is None else self.functions,) * len(self.names)

    @property
    def coordinates(self) -> list[str]:
        return [f"x{k + 1}" for k in range(self.dimension)]

    @property
    def spread(self) -> float:
        """The largest possible difference of two accuracies."""
        own: Sequence[Surface | Environment] = sum(self.surfaces or (), ()) or (self,)
        return max(each.high for each in own) - min(each.low for each in own)

    def _wrong_world(self) -> Iterator[str]:
        if self.surfaces is not None:
            yield from self._wrong_surfaces(self.surfaces)
        if not self.is_embedded:
            yield from self._wrong_entry()
        elif self.options:
            yield "options are those of environment = 'module:name'; add it"
        elif self.dimension > MOST_EMBEDDED:
            yield (
                f"dimension is {self.dimension}; more than {MOST_EMBEDDED} need an environment of "
                "your own"
            )
        yield from _above("low", self.low, "high", self.high)
        if self.drift is not None:
            yield from self.drift.problems(self.spread, self.dimension)

    def _wrong_surfaces(self, surfaces: Sequence[Sequence[Surface]]) -> Iterator[str]:
        if self.learners is not None or self.functions is not None:
            yield "surfaces set the counts; remove learners and functions"
        if not surfaces or not all(surfaces):
            yield "surfaces must name at least one function of every learner"
        for learner, own in enumerate(surfaces, 1):
            for function, surface in enumerate(own, 1):
                for problem in surface.problems(self.dimension):
                    yield f"surface {function} of learner-{learner}: {problem}"

    def _wrong_entry(self) -> Iterator[str]:
        try:
            msgspec.json.encode(self.options)
        except TypeError as error:
            yield f"options must hold text, numbers, lists and tables ({error})"
        plain = Environment(name=self.name)
        for key in _EMBEDDED:
            name = key.replace("-", "_")
            if getattr(self, name) != getattr(plain, name):
                yield f"{key} has no effect with environment; remove {key}"

    @property
    def process(self) -> Process:
        """How contexts arrive; by default uniform and the same for all learners."""
        if self.case is not None:
            return CASES[self.case]
        correlation = "best" if self.correlation is None else self.correlation
        return Process(self.arrivals or "uniform", correlation)

    @property
    def streams(self) -> int:
        """The number of instance sequences: one, or one per learner."""
        return 1 if self.process.correlation in ("worst", "best") else len(self.names)

    @property
    def drawn_streams(self) -> int:
        """The sequences that are drawn: with a share of common instances, one more for these."""
        return self.streams + (not isinstance(self.process.correlation, str))

    @property
    def answers(self) -> int:
        """The number of answers in a slot: of all functions, per stream."""
        return self.streams * sum(self.counts)

    def cube_level(self, horizon: int) -> int:
        power = 3 * self.alpha if self.split_power is None else self.split_power
        return math.ceil(math.log2(horizon) / power) + 1

    def wrong_entries(self, *lists: Sequence[Any]) -> Iterator[str]:
        for entry in itertools.chain(*lists):
            for each in entry if isinstance(entry, list) else [entry]:
                is_slot = isinstance(each, Mapping) and each.get("scale") == "slot"
                if not is_slot and each not in self.coordinates:
                    yield (
                        f"the context {each!r} is not in the world; it has "
                        f'{", ".join(self.coordinates)} and {{ scale = "slot" }}'
                    )

    @property
    def labels(self) -> list[int]:
        return [*range(2 if self.classes is None else self.classes.number)]

    def _wrong_classes(self, classes: Classes) -> Iterator[str]:
        if classes.usual < 1 / classes.number:
            yield f"classes.usual is {classes.usual}; it must be at least 1 / classes.number"
        if self.streams > 1:
            yield (
                "classes need one stream of instances, but correlation gives each learner its own; "
                "remove one of them"
            )

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        return {table["name"]: table for table in self.learner}

    @property
    def receiving(self) -> tuple[int, ...]:
        """The learners that receive instances, by index: all, or only the first."""
        most = 1 if self.process.correlation == "worst" else len(self.names)
        tables = self.tables
        return tuple(
            place
            for place, name in enumerate(self.names[:most])
            if not tables or tables.get(name, {}).get("arrivals", True)
        )

    @property
    def label_probabilities(self) -> tuple[float, ...]:
        """The probability of each learner to see a label; 0 for one that is not supervised."""
        return tuple(
            table.get("label-probability", self.label_probability)
            if table.get("supervised", True)
            else 0.0
            for table in (self.tables.get(name, {}) for name in self.names)
        )

    def problems(self) -> Iterator[str]:
        """Yield what is wrong, each check on the assumption that those before it found nothing."""
        for key, learners in (
            ("failing", [*self.failing]),
            ("liars", [*self.liars]),
            ("measured", self.measured),
            ("drift.learners", self.drift.learners if self.drift else ()),
        ):
            for learner in learners:
                if learner not in self.names:
                    hint = toml.nearest(learner, self.names)
                    yield f"{key} names unknown learner {learner!r}{hint}"
        yield from self._wrong_world()
        yield from self.wrong_entries(self.context, self.candidates or [])
        least, most = self.least_delay_slots, self.delay_slots
        yield from _above("least-delay-slots", least, "delay-slots", most)
        if self.classes is not None:
            yield from self._wrong_classes(self.classes)
        yield from self._wrong_tables()
        yield from self._wrong_columns()
        has_memory = any(table.get("context-peers") for table in self.learner)
        for thing, other, are_both in (
            ("case", "arrivals", self.case and self.arrivals),
            ("case", "correlation", self.case and self.correlation is not None),
            ("loss", "classes", self.loss and self.classes),
            ("loss", "dependence", self.loss and self.dependence),
            ("prices", "link", self.prices and self.link),
            (
                "liars with false-labels",
                "context-peers",
                has_memory and "false-labels" in self.liars.values(),
            ),
        ):
            if are_both:
                yield f"{thing} and {other} cannot be combined; remove one of them"
        has_votes = self.ensemble is not None
        for key, is_there in (("context-peers", has_memory), ("ensemble", has_votes)):
            if is_there and self.classes is None:
                yield f"{key} needs labels of several classes; add classes"
        yield from self._wrong_network()

    def _wrong_tables(self) -> Iterator[str]:
        names = [table.get("name") for table in self.learner]
        for number, (name, table) in enumerate(zip(names, self.learner, strict=True), 1):
            if name not in self.names:
                yield (
                    f"[[environment.learner]] {number} has the name {name!r}; it must be one of "
                    f"{self.names[0]} to {self.names[-1]}"
                )
            if names.count(name) > 1:
                yield f"duplicate [[environment.learner]] {name!r}; keep one"
            which = f"[[environment.learner]] {name!r}: "
            for key in ("functions", "view"):
                if key in table:
                    yield f"{which}the world sets {key}; remove {key}"
            entries = (table.get("context") or [], table.get("candidates") or [])
            yield from (which + problem for problem in self.wrong_entries(*entries))

    def _wrong_columns(self) -> Iterator[str]:
        used = {
            table["cost-column"]: "cost-column" for table in self.link if "cost-column" in table
        }
        for table in self.learner:
            used |= dict.fromkeys(table.get("cost-columns", {}).values(), "cost-columns")
            if isinstance(table.get("answer-delay"), str):
                used[table["answer-delay"]] = "answer-delay"
        for name, key in used.items():
            if name not in self.columns:
                hint = toml.nearest(name, self.columns)
                yield f"{key} names {name!r}, which is not in columns{hint}"
            column = self.columns[name]
            most = MOST_SLOTS if key == "answer-delay" else 1
            if not column.low <= column.high <= most:
                yield (
                    f"columns.{name} goes from {column.low:g} to {column.high:g}; for {key} it "
                    f"must be a range from 0 to {most:g}"
                )
            if key == "answer-delay" and (column.low % 1 or column.high % 1):
                yield f"columns.{name} must hold whole numbers of slots"
        for name in self.columns.keys() - used:
            yield f"no cost-columns, answer-delay or cost-column names columns.{name}; remove it"

    def _wrong_network(self) -> Iterator[str]:
        if not self.receiving:
            yield "every learner has arrivals = false; let one receive instances"
        for name in self.measured:
            if self.names.index(name) not in self.receiving:
                yield (
                    f"measured names {name!r}, which receives no instances (correlation, "
                    "arrivals); remove it"
                )
        if self.link_change and not self.link:
            yield "link-change without link; list the links first"
        base = (self.ensemble or {}).get("base", 0)
        if base != 0:
            yield f"ensemble.base is {base!r}; classes are numbers, and the base class is 0"


def _above(key: str, value: float, other: str, limit: float) -> Iterator[str]:
    if value > limit:
        yield f"{key} is {value}, above {other}, {limit}"


def environment_from(table: Mapping[str, Any]) -> Environment:
    """Return a checked environment from a table of a scenario.

    >>> environment_from({"name": "calm", "case": "C4"}).process
    Process(arrivals='best', correlation='best')
    """
    if callable(entry := table.get("environment")):
        table = {**table, "environment": toml.named(entry)}
    environment = toml.read(table, Environment, where=f"[[environment]] {table.get('name')!r}")
    check(environment)
    return environment


def check(environment: Environment) -> None:
    """Raise `ConfigError` if keys of the environment do not fit each other."""
    problem = next(environment.problems(), None)
    if problem is not None:
        raise ConfigError(f"environment {environment.name!r}: {problem}")


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
