"""Worlds whose accuracies are known, as a person writes them: one `[[environment]]` table each.

`covey.worlds` draws from them; here is what can be said of an environment before any draw.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from covey import fields
from covey.errors import ConfigError

MOST_DIMENSIONS = 8
MOST_SLOTS = 2**53  # beyond, slots are no longer exact as floating-point numbers
MOST_LEVEL = 52  # a finer cube has no room for two contexts

Shape = Literal["bumps", "ramps", "steps"]


class Surface(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a function is right: `high` within its field, falling to `low` around it.

    The field is a point (bumps), all beyond a plane (ramps) or every other band (steps).
    """

    shape: Shape = "bumps"
    at: tuple[float, ...]  # the point, or one on the edge of the field
    toward: tuple[float, ...] = ()  # of ramps and steps: the way from that edge into the field
    every: float = 0.5  # of steps: from the edge of a band to that of the next
    high: float
    low: float


class Drift(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """How accuracies change: by at most `severity` in `every-slots` slots."""

    kind: Literal["switch", "gradual"] = "switch"
    severity: float
    every_slots: int


class Process(NamedTuple):
    """How contexts are spread, and what the learners' contexts have to do with each other."""

    arrivals: str  # worst, best, uniform
    correlation: str | float  # worst, best, independent, or the share of common instances


CASES = {
    "C1": Process("worst", "worst"),
    "C2": Process("worst", "best"),
    "C3": Process("best", "worst"),
    "C4": Process("best", "best"),
}


class Environment(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A world to play in; None means "as it is by default", which the properties say."""

    name: str
    dimension: int = 1
    learners: int | None = None
    functions: int | None = None  # of each learner
    surfaces: tuple[tuple[Surface, ...], ...] | None = None  # learner, function; None: drawn
    shape: Shape = "bumps"
    lipschitz: float = 1.0
    alpha: float = 1.0
    low: float = 0.3
    high: float = 0.95
    prices: float | tuple[tuple[float, ...], ...] = 0.0  # asker, asked
    function_costs: float | tuple[tuple[float, ...], ...] = 0.0  # learner, function
    case: Literal["C1", "C2", "C3", "C4"] | None = None
    arrivals: Literal["worst", "best", "uniform"] | None = None
    correlation: Literal["worst", "best", "independent"] | float | None = None
    split_power: float | None = None  # p in the level of the cube of the best arrivals
    drift: Drift | None = None
    delay_slots: int = 0  # at most
    label_probability: float = 1.0
    liars: dict[str, Literal["zero-arrivals", "false-labels"]] = {}
    failing: dict[str, float] = {}  # learner -> share of its answers that are wrong whatever comes

    @property
    def process(self) -> Process:
        """How contexts arrive; uniform and the same for all unless something else is said."""
        if self.case is not None:
            return CASES[self.case]
        correlation = "best" if self.correlation is None else self.correlation
        return Process(self.arrivals or "uniform", correlation)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the learners."""
        learners = 4 if self.learners is None else self.learners
        count = learners if self.surfaces is None else len(self.surfaces)
        return tuple(f"learner-{k + 1}" for k in range(count))

    @property
    def counts(self) -> tuple[int, ...]:
        """How many functions each learner has."""
        if self.surfaces is not None:
            return tuple(len(own) for own in self.surfaces)
        return (2 if self.functions is None else self.functions,) * len(self.names)

    @property
    def receivers(self) -> int:
        """How many learners receive instances: all, or only the first."""
        return 1 if self.process.correlation == "worst" else len(self.names)

    @property
    def streams(self) -> int:
        """How many sequences of instances there are: one, or one for each learner."""
        return 1 if self.process.correlation in ("worst", "best") else len(self.names)

    def price(self, asker: int, asked: int) -> float:
        """Return what the learner at place `asker` pays for an answer of the one at `asked`."""
        prices = self.prices
        return prices[asker][asked] if isinstance(prices, tuple) else prices

    def function_cost(self, learner: int, function: int) -> float:
        """Return what a learner pays for running one of its own functions."""
        costs = self.function_costs
        return costs[learner][function] if isinstance(costs, tuple) else costs

    def cube_level(self, horizon: int) -> int:
        """Return the level of the cube in which the best arrivals lie."""
        power = 3 * self.alpha if self.split_power is None else self.split_power
        return math.ceil(math.log2(horizon) / power) + 1


def environment_from(table: Mapping[str, Any], *, where: str = "[[environment]]") -> Environment:
    """Return a checked environment from a table of a scenario.

    >>> environment_from({"name": "calm", "case": "C4"}).process
    Process(arrivals='best', correlation='best')
    """
    environment = fields.read(table, Environment, where=where)
    check(environment)
    return environment


def check(environment: Environment) -> None:
    """Raise `ConfigError` with a sentence if there can be no such world."""
    who = f"environment {environment.name!r}"
    _check_ranges(environment, who)
    _check_network(environment, who)
    _check_process(environment, who)
    _check_drift(environment, who)
    for learner in (*environment.liars, *environment.failing):
        if learner not in environment.names:
            hint = fields.nearest(learner, environment.names)
            raise ConfigError(f"{who} names unknown learner {learner!r}{hint}")
    for learner, share in environment.failing.items():
        fields.check_range(share, 0, 1, f"{who}: failing.{learner}")


def check_horizon(environment: Environment, horizon: int) -> None:
    """Raise `ConfigError` if the environment cannot be played for so many slots."""
    fields.check_range(horizon, 1, MOST_SLOTS, "the horizon")
    if environment.process.arrivals == "best" and environment.cube_level(horizon) > MOST_LEVEL:
        raise ConfigError(
            f"environment {environment.name!r}: over {horizon} slots the best arrivals lie in a "
            f"cube of level {environment.cube_level(horizon)}, and the finest has {MOST_LEVEL}; "
            "raise split-power"
        )


_RANGES = {
    "dimension": (1, MOST_DIMENSIONS),
    "learners": (1, 1_000),
    "functions": (1, 1_000),
    "delay_slots": (0, MOST_SLOTS),
    "label_probability": (0, 1),
}
_POSITIVE = ("lipschitz", "alpha", "split_power")


def _check_ranges(environment: Environment, who: str) -> None:
    fields.check_ranges(environment, _RANGES, where=f"{who}:")
    for name in _POSITIVE:
        value = getattr(environment, name)
        if value is not None and not 0 < value < math.inf:
            key = name.replace("_", "-")
            raise ConfigError(f"{who}: {key} is {value}; it must be above 0 and finite")
    if environment.alpha > 1:
        raise ConfigError(
            f"{who}: alpha is {environment.alpha}; above 1 only constant accuracies are so smooth, "
            "give one from above 0 to 1"
        )
    _check_heights(environment, who)


def _check_network(environment: Environment, who: str) -> None:
    if environment.surfaces is not None:
        _check_surfaces(environment, environment.surfaces, who)
    learners = len(environment.names)
    _check_costs(environment.prices, (learners,) * learners, f"{who}: prices")
    _check_costs(environment.function_costs, environment.counts, f"{who}: function-costs")


def _check_surfaces(
    environment: Environment, surfaces: Sequence[Sequence[Surface]], who: str
) -> None:
    if environment.learners is not None or environment.functions is not None:
        raise ConfigError(f"{who} has surfaces, which say how many there are; leave out the counts")
    if not surfaces or not all(surfaces):
        raise ConfigError(f"{who}: surfaces must name at least one function of every learner")
    for learner, own in enumerate(surfaces):
        for function, surface in enumerate(own):
            which = f"{who}: surface {function + 1} of learner-{learner + 1}"
            _check_heights(surface, which)
            _check_place(surface, environment.dimension, which)


def _check_place(surface: Surface, dimension: int, which: str) -> None:
    needed = {"at": surface.at}
    if surface.shape != "bumps":
        needed["toward"] = surface.toward
    for key, numbers in needed.items():
        if len(numbers) != dimension:
            raise ConfigError(
                f"{which}: {key} has {len(numbers)} numbers; it must have {dimension}"
            )
    for number in surface.at:
        fields.check_range(number, 0, 1, f"{which}: at")
    if surface.shape != "bumps" and not 0 < math.hypot(*surface.toward) < math.inf:
        raise ConfigError(f"{which}: toward is {list(surface.toward)}; it must lead somewhere")
    if not 0 < surface.every < math.inf:
        raise ConfigError(f"{which}: every is {surface.every}; it must be above 0 and finite")


def _check_heights(holder: Environment | Surface, who: str) -> None:
    for name in ("low", "high"):
        value = getattr(holder, name)
        if not 0 <= value <= 1:
            raise ConfigError(f"{who}: {name} is {value}; accuracies must lie in [0, 1]")
    if holder.low > holder.high:
        raise ConfigError(f"{who}: low is {holder.low}, above high, which is {holder.high}")


def _check_costs(
    costs: float | tuple[tuple[float, ...], ...], widths: Sequence[int], which: str
) -> None:
    rows = costs if isinstance(costs, tuple) else ((costs,),)
    if isinstance(costs, tuple) and [len(row) for row in rows] != list(widths):
        raise ConfigError(
            f"{which} has rows of {[len(row) for row in rows]} numbers; they must be of "
            f"{list(widths)}, one row per learner"
        )
    for row in rows:
        for cost in row:
            if not 0 <= cost < math.inf:
                raise ConfigError(f"{which} holds {cost}; it must be 0 or more, and finite")


def _check_process(environment: Environment, who: str) -> None:
    is_given = environment.arrivals is not None or environment.correlation is not None
    if environment.case is not None and is_given:
        raise ConfigError(
            f"{who}: case = {environment.case!r} says how contexts arrive; leave out arrivals and "
            "correlation, or case"
        )
    correlation = environment.process.correlation
    if not isinstance(correlation, str):
        fields.check_range(correlation, 0, 1, f"{who}: correlation")


def _check_drift(environment: Environment, who: str) -> None:
    drift = environment.drift
    if drift is None:
        return
    fields.check_range(drift.every_slots, 1, MOST_SLOTS, f"{who}: drift.every-slots")
    if not 0 < drift.severity <= 1:
        raise ConfigError(
            f"{who}: drift.severity is {drift.severity}; it must lie above 0 and not above 1"
        )
    if drift.kind == "switch" and drift.severity > spread(environment):
        raise ConfigError(
            f"{who}: drift.severity is {drift.severity}, but a switch between accuracies from low "
            f"to high changes none by more than {spread(environment):g}"
        )


def spread(environment: Environment) -> float:
    """Return by how much any two accuracies of the environment can differ."""
    given = [surface for own in environment.surfaces or () for surface in own]
    highs = [surface.high for surface in given] or [environment.high]
    lows = [surface.low for surface in given] or [environment.low]
    return max(highs) - min(lows)
