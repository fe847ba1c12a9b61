"""Values of the bounds: terms, horizons at which they become non-trivial, start of exploitation.

>>> round(bound("T1").value)
425653
>>> exploitation_begins(theorem_thresholds(Problem()), functions=2, peers=3, cells=12)
4030764
"""

import contextlib
import math
import sys
from collections.abc import Callable, Sequence

import msgspec

from covey.bandit.partitions import cos_power, slices_for
from covey.bandit.settings import Threshold
from covey.bandit.theorems import FORMS, THEOREMS, Form, Problem, Statement, Term
from covey.errors import ConfigError
from covey.toml import nearest

FARTHEST = 1e30  # slots; largest horizon of the search
MOST_SLOTS = 2**53  # largest exact integer of a float

ALIASES = {
    "cos": ("T1",),
    "learning": ("T2",),
    "delay": ("T3",),
    "missing": ("T4",),
    "cos-mc": ("T5",),
    "T6": ("C1", "C2", "C3", "C4"),
    "dcza": ("C1", "C2", "C3", "C4"),
    "dcza-late": ("C1-late", "C2-late", "C3-late", "C4-late"),
    "dcza-missing": ("C1-missing", "C2-missing", "C3-missing", "C4-missing"),
}
USUAL = ("T1", "T2", "T3", "T4", "T5", "C1", "C2", "C3", "C4", "hedge")  # without a name

CASES = {"C1": "M F_max", "C2": "K", "C3": "M F_max", "C4": "K"}  # case -> factor of exploration
WORST_ARRIVALS = ("C1", "C2")
WORST_CORRELATION = ("C1", "C3")

Thresholds = tuple[Threshold, Threshold, Threshold]  # explore, train, explore peers


class Control(msgspec.Struct, frozen=True):
    """A threshold of a theorem."""

    formula: str
    at_horizon: float


class Bound(msgspec.Struct, frozen=True):
    """A theorem for one problem; None: does not apply, or no such horizon up to 1e30."""

    theorem: str
    title: str
    form: Form
    value: float
    per_slot: float
    order: str
    exponent: float
    terms: list[Term]
    power: float | None  # z
    thresholds: dict[str, Control]
    slices: int | None  # per dimension
    split_power: float | None
    memory: float  # records: one per arm and cell
    memory_order: str
    below_horizon_from: float | None  # smallest horizon with a bound below one per slot
    below_twice_horizon_from: float | None
    notes: list[str]


class Order(msgspec.Struct, frozen=True):
    """Growth of regret in one of the paper's four cases, without logarithms."""

    algorithm: str
    case: str
    formula: str
    exponent: float


class Exploitation(msgspec.Struct, frozen=True):
    """Start of exploitation of CoS with the theorem's parameters, in one of the four cases."""

    case: str
    slot: int | None  # at which every cell exploits, with the slices of this horizon
    least_horizon: int | None  # smallest horizon that reaches exploitation


class BoundTable(msgspec.Struct, frozen=True):
    """All results for one problem."""

    problem: Problem
    form: Form
    bounds: list[Bound]
    orders: list[Order]
    exploitation: list[Exploitation]


def sheet(
    names: Sequence[str] = (), problem: Problem | None = None, *, form: Form = "corrected"
) -> BoundTable:
    """Return the named bounds (default: all), the orders and the start of exploitation.

    >>> [bound.theorem for bound in sheet(["cos", "T4"]).bounds]
    ['T1', 'T4']
    """
    problem = problem or Problem()
    listed = chosen(names)
    if not names and problem.dimension == 0:
        listed.remove("T5")  # there is no context that it could use
    return BoundTable(
        problem,
        form,
        [bound(name, problem, form=form) for name in listed],
        orders(problem, form=form),
        [exploitation(problem, case) for case in CASES],
    )


def sweep(
    argument: str,
    values: Sequence[float],
    names: Sequence[str] = (),
    problem: Problem | None = None,
    *,
    form: Form = "corrected",
) -> list[BoundTable]:
    """Return a sheet for each value of one argument of the problem.

    >>> [round(one.bounds[0].per_slot, 1) for one in sweep("horizon", [1e4, 1e12], ["cos"])]
    [24.1, 0.6]
    """
    known = [field.name.replace("_", "-") for field in msgspec.structs.fields(Problem)]
    if argument not in known:
        raise ConfigError(f"unknown argument {argument!r}{nearest(argument, known)}")
    name = argument.replace("-", "_")
    problems = [msgspec.structs.replace(problem or Problem(), **{name: v}) for v in values]
    return [sheet(names, one, form=form) for one in problems]


def chosen(names: Sequence[str]) -> list[str]:
    """Return the theorems of names like T1, C3, cos or dcza; no names: the usual ones."""
    meanings: dict[str, tuple[str, ...]] = {name.lower(): (name,) for name in THEOREMS}
    meanings |= {alias.lower(): theorems for alias, theorems in ALIASES.items()}
    for name in names:
        if name.lower() not in meanings:
            raise _unknown(name)
    found = [theorem for name in names for theorem in meanings[name.lower()]]
    return list(dict.fromkeys(found)) or list(USUAL)


def bound(name: str, problem: Problem | None = None, *, form: Form = "corrected") -> Bound:
    """Return the theorem `name` (a key of `THEOREMS`) for a problem.

    Raises `ConfigError` if the bound overflows.
    """
    problem = problem or Problem()
    stated = _state(name, problem, form)
    value, exponent = _value(stated), _exponent(stated)
    parts = stated._asdict()
    parts["notes"] = [*stated.notes, *_limits(problem)]
    return Bound(
        theorem=name,
        title=THEOREMS[name].title,
        form=form,
        value=value,
        per_slot=value / problem.horizon,
        order=f"{parts.pop('prefactor')} T^{exponent:.4g}",
        exponent=exponent,
        thresholds=_controls(problem, stated.power),
        below_horizon_from=below_from(name, problem, form=form),
        below_twice_horizon_from=below_from(name, problem, times=2.0, form=form),
        **parts,
    )


def _limits(problem: Problem) -> list[str]:
    """Return what arguments at the edge of the theory mean."""
    notes = []
    if problem.alpha > 1:
        notes.append(
            "With alpha above 1 only accuracies that do not depend on the context are as smooth as "
            "assumed; the bound holds for them."
        )
    if problem.dimension == 0:
        notes.append("Without contexts there is one cell, and L plays no part.")
    return notes


def below_from(
    name: str, problem: Problem, *, times: float = 1.0, form: Form = "corrected"
) -> float | None:
    """Return the horizon from which the bound is below `times` per slot; None: above 1e30.

    It is unique: every term per slot decreases once the bound is below two per slot.
    """

    def is_below(horizon: float) -> bool:
        longer = msgspec.structs.replace(problem, horizon=horizon)
        return _value(_state(name, longer, form)) < times * horizon

    return _least(is_below)


def orders(problem: Problem, *, form: Form = "corrected") -> list[Order]:
    """Return the four cases for CoS, DCZA and Share-UCB."""
    alpha, dimension = problem.alpha, problem.dimension
    zooming = {case: _exponent(_state(case, problem, form)) for case in CASES}
    shared = (alpha + dimension) / (2 * alpha + dimension)
    return [
        *[_cos_order(problem, case, form) for case in CASES],
        *[Order("DCZA", case, f"{CASES[case]} T^{z:.4g}", z) for case, z in zooming.items()],
        *[Order("Share-UCB", case, f"sqrt(F) T^{shared:.4g}", shared) for case in CASES],
    ]


def exploitation(problem: Problem, case: str) -> Exploitation:
    """Return the start of exploitation of CoS with the theorem's parameters, in case C1 to C4."""

    def begins(horizon: float, most: float) -> int | None:
        slices = slices_for(horizon, alpha=problem.alpha, dimension=problem.dimension)
        return exploitation_begins(
            theorem_thresholds(problem),
            functions=problem.functions,
            peers=problem.peers,
            untrained=problem.peers if case in WORST_CORRELATION else 0,
            cells=slices**problem.dimension if case in WORST_ARRIVALS else 1,
            most=most,
        )

    least = _least(lambda horizon: begins(horizon, horizon) is not None)
    slots = None if least is None else math.floor(least)
    return Exploitation(case, begins(problem.horizon, MOST_SLOTS), slots)


def exploitation_begins(
    thresholds: Thresholds,
    *,
    functions: int,
    peers: int,
    cells: int,
    untrained: int | None = None,
    since: int = 0,
    most: float = MOST_SLOTS,
) -> int | None:
    """Return the slot at which all `cells`, evenly visited, exploit; None: not within `most`.

    A cell exploits once each own function has more than D1 labels, each of the `untrained` peers
    (default: all) more than D2 trainings, and each peer more than D3 labels. The cells exist from
    the slot after `since`.
    """
    arms = (functions, peers if untrained is None else untrained, peers)
    slot = since + cells
    # Iterate from below: the first fixed point is the smallest one.
    while slot <= most:
        needed = sum(
            count * (math.floor(threshold.at(slot)) + 1)
            for count, threshold in zip(arms, thresholds, strict=True)
        )
        enough = since + cells * (needed + 1)
        if enough <= slot:
            return slot
        slot = enough
    return None


def theorem_thresholds(problem: Problem) -> Thresholds:
    """Return the thresholds of CoS in T1."""
    return _thresholds(problem, cos_power(problem.alpha, problem.dimension))


def _cos_order(problem: Problem, case: str, form: Form) -> Order:
    span = 3 * problem.alpha + problem.dimension
    near, exploring = 1 - problem.alpha / span, 2 * problem.alpha / span
    if case in WORST_ARRIVALS:
        return Order("CoS", case, f"{CASES[case]} T^{near:.4g}", near)
    formula = f"{CASES[case]} T^{exploring:.4g}"
    if form == "printed":  # it counts exploration only
        return Order("CoS", case, formula, exploring)
    return Order("CoS", case, f"T^{near:.4g} + {formula}", near)


def _thresholds(problem: Problem, power: float) -> Thresholds:
    single = Threshold(1.0, power)
    return single, Threshold(float(problem.most), power), single


def _controls(problem: Problem, power: float | None) -> dict[str, Control]:
    if power is None:
        return {}
    names = ("explore", "train", "explore_peers")
    return {
        name: Control(threshold.formula(), threshold.at(problem.horizon))
        for name, threshold in zip(names, _thresholds(problem, power), strict=True)
    }


def _state(name: str, problem: Problem, form: Form) -> Statement:
    if name not in THEOREMS:
        raise _unknown(name)
    if form not in FORMS:
        raise ConfigError(f"unknown form {form!r}{nearest(form, FORMS)}")
    with contextlib.suppress(OverflowError):
        stated = THEOREMS[name].state(problem, form)
        if math.isfinite(_value(stated)):
            return stated
    raise ConfigError(
        f"{name} at a horizon of {problem.horizon:g} overflows ({sys.float_info.max:.3g}); "
        "use a smaller horizon"
    )


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"unknown theorem {name!r}{nearest(name, [*THEOREMS, *ALIASES])}")


def _value(stated: Statement) -> float:
    return math.fsum(term.value for term in stated.terms)


def _exponent(stated: Statement) -> float:
    return max(term.exponent for term in stated.terms)


def _least(holds: Callable[[float], bool]) -> float | None:
    """Return the smallest horizon for which `holds` is true, by bisection of its logarithm."""
    if not holds(FARTHEST):
        return None
    if holds(1.0):
        return 1.0
    low, high = 0.0, math.log(FARTHEST)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(math.exp(middle)) else (middle, high)
    return math.exp(high)
