"""Regret theorems, printed and corrected, and their values: terms, horizons, exploitation.

>>> round(bound("T1").value)
425653
>>> exploitation_begins(theorem_thresholds(Problem()), functions=2, peers=3, cells=12)
4030764
"""

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from covey import toml
from covey.bandit.partitions import Threshold, cos_power, slices_for, split_power
from covey.errors import ConfigError

_Count = Annotated[int, Meta(ge=1, le=10**4)]
SQUARES = math.pi**2 / 6  # beta_2: the sum of 1 / t**2 over all slots


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a bound; the defaults match the paper's experiments."""

    horizon: Annotated[float, Meta(ge=1, le=1e300)] = 20_000  # slots
    alpha: Annotated[float, Meta(ge=1e-3, le=64)] = 1.0
    dimension: Annotated[int, Meta(ge=0, le=8)] = 1
    lipschitz: Annotated[float, Meta(ge=1e-9, le=1e9)] = 1.0
    learners: _Count = 4
    functions: _Count = 2  # of the learner of the bound
    most_functions: _Count | None = None  # of any learner; None: the same number
    label_probability: Annotated[float, Meta(ge=1e-9, le=1)] = 0.5
    longest_delay: Annotated[int, Meta(ge=0, le=2**53)] = 100  # slots
    split_scale: Annotated[float, Meta(ge=1, le=1e18)] = 1.0
    split_power: Annotated[float, Meta(ge=0, le=64)] | None = None  # None: that of the theorem

    def __post_init__(self) -> None:
        toml.check(self)
        if self.most < self.functions:
            raise ConfigError(
                f"most-functions is {self.most}; it must be at least functions = {self.functions}"
            )
        if self.split_power is not None and self.split_power <= 2 * self.alpha:
            raise ConfigError(
                f"split-power is {self.split_power:g}; it must exceed {2 * self.alpha:g} (2 alpha)"
            )

    @property
    def most(self) -> int:
        """F_max, the largest number of functions of a learner."""
        return self.functions if self.most_functions is None else self.most_functions

    @property
    def peers(self) -> int:  # M - 1
        return self.learners - 1

    @property
    def arms(self) -> int:
        return self.functions + self.peers

    @property
    def rounds(self) -> int:
        """Z: exploration and training of a cell take Z t^z ln t slots."""
        return self.functions + self.peers * (self.most + 1)

    @property
    def mistakes(self) -> float:
        """(M - 1) F_max beta_2: half of the expected wrong choices of helpers in a cell."""
        return self.peers * self.most * SQUARES

    def distance(self, dimension: int) -> float:
        """L d^(alpha/2), the maximum difference of accuracies over the whole space."""
        return float(self.lipschitz * dimension ** (self.alpha / 2))


Form = Literal["printed", "corrected"]
FORMS: tuple[Form, ...] = get_args(Form)
FARTHEST = 1e30  # slots; largest horizon of the search
MOST_SLOTS = 2**53  # largest exact integer of a float

CASES = {"C1": "M F_max", "C2": "K", "C3": "M F_max", "C4": "K"}  # case -> factor of exploration
WORST_ARRIVALS = ("C1", "C2")
WORST_CORRELATION = ("C1", "C3")

Thresholds = tuple[Threshold, Threshold, Threshold]  # explore, train, explore peers


class Term(msgspec.Struct, frozen=True):
    """One term of a bound: coefficient * T ** exponent * logarithms."""

    name: str
    exponent: float
    logs: str
    value: float


class Statement(NamedTuple):
    """A theorem for one problem."""

    terms: list[Term]
    memory: float  # records: one per arm and cell
    memory_order: str
    power: float  # z of the thresholds
    slices: int | None = None  # per dimension
    split_power: float | None = None

    @property
    def value(self) -> float:
        return math.fsum(term.value for term in self.terms)

    @property
    def exponent(self) -> float:
        return max(term.exponent for term in self.terms)


class _Row(NamedTuple):
    """A term as it is written in a theorem."""

    coefficient: float
    exponent: float
    logs: str = ""
    factor: float = 1.0  # value of the logarithms


TERMS = (  # in the order of the rows of every theorem
    "near-optimal choice",
    "training and exploration",
    "wrong choice, misled by helpers",
    "wrong choice, by chance",
    "first visits of cells",
    "mistakes of helpers",
    "late labels",  # of T3 alone
)


def _terms(problem: Problem, *rows: _Row) -> list[Term]:
    return [
        Term(name, exponent, logs, coefficient * problem.horizon**exponent * factor)
        for name, (coefficient, exponent, logs, factor) in zip(TERMS, rows, strict=False)
    ]


def _cos(
    problem: Problem,
    dimension: int,  # of a cell
    *,
    spread: int | None = None,  # the d of 3 alpha + d; None: that of a cell
    per_cell: int | None = None,  # the d of T^d in the terms per cell; None: that of a cell
    visits: int | None = None,  # of each cell, because thresholds are rounded up; None: K
    seen: float = 1.0,  # share of labels that arrive
    contexts: int = 1,  # each with its own slices
    delay: int | None = None,  # slots by which labels are late
) -> Statement:
    if contexts == 0:
        raise ConfigError("T5 is about policies that use one context; dimension is 0")
    spread = dimension if spread is None else spread
    span = 3 * problem.alpha + spread
    z, near, cells = 2 * problem.alpha / span, 1 - problem.alpha / span, dimension / span
    last = cells if per_cell is None else per_cell / span
    count = contexts * 2.0**dimension  # times T ** cells: most cells
    late = [] if delay is None else [_Row(delay, 0)]
    slices = slices_for(problem.horizon, alpha=problem.alpha, dimension=spread)
    memory_order = f"{'d ' if contexts > 1 else ''}K T^{cells:.4g}"
    return Statement(
        _terms(
            problem,
            _Row(contexts * 2 * (2 * problem.distance(dimension) + 6) / near, near),
            _Row(count * problem.rounds / seen, cells + z, "ln T", math.log(problem.horizon)),
            _Row(count * 4 * problem.mistakes / z, cells + z / 2),
            _Row(count * 2 * problem.rounds * SQUARES, last),
            _Row(count * (visits or problem.arms) / seen, last),
            _Row(contexts * 4 * problem.mistakes, 0),
            *late,
        ),
        memory=contexts * problem.arms * float(slices) ** dimension + (delay or 0),
        memory_order=f"L_max + {memory_order}" if late else memory_order,
        power=z,
        slices=slices,
    )


def _dcza(problem: Problem, form: Form, *, case: str) -> Statement:
    """DCZA with the worst arrivals, or with the best: in one cell of each level."""
    alpha, d, horizon = problem.alpha, problem.dimension, problem.horizon
    is_worst, is_printed = case in WORST_ARRIVALS, form == "printed"
    rounds = problem.rounds if case in WORST_CORRELATION else problem.arms
    prescribed = split_power(alpha, d) if is_worst or is_printed else 3 * alpha
    p = prescribed if problem.split_power is None else problem.split_power
    natural, levels, z = math.log(horizon), math.log2(horizon) / p, 2 * alpha / p
    if is_worst:
        near, cells, count, misled = (d + p - alpha) / (d + p), d / (d + p), 4.0**d, 8.0
        finest, exploring, logs = 2.0 ** (d + p - alpha), ("ln T", natural), ("", 1.0)
    else:
        # The paper prints the exponents of p = 3 alpha beside another p.
        z, near = (2 / 3, 2 / 3) if is_printed else (z, 1 - alpha / p)
        cells, count, misled, finest = 0.0, 1.0, 8 / z, 2.0 ** (p - alpha)
        finest *= finest / (finest - 1)  # and all levels above it
        exploring, logs = ("ln T log2 T", natural * levels), ("log2 T", levels + 1)
    # A B L d^(alpha/2), where B = 12 / (L d^(alpha/2) 2^-alpha) + 2
    reach = problem.split_scale * (12 * math.exp2(alpha) + 2 * problem.distance(d))
    return Statement(
        _terms(
            problem,
            _Row(2 * reach * finest, near),
            _Row(count * rounds, cells + z, *exploring),
            _Row(count * misled * problem.mistakes, cells + z / 2, *logs),
            _Row(count * 4 * SQUARES * problem.functions, cells, *logs),
            _Row(count * rounds, cells, *logs),
            _Row(count * 2 * problem.mistakes, cells, *logs),
        ),
        memory=problem.arms * count * horizon**cells,
        memory_order=f"K T^{cells:.4g}" if is_worst else "K",
        power=2 * alpha / p,
        split_power=p,
    )


class Theorem(NamedTuple):
    """A theorem of the paper."""

    title: str
    alias: str
    prefactor: str  # of the order
    state: Callable[[Problem, Form], Statement]
    remark: str = ""
    printed: str = ""  # an error of the paper
    corrected: str = ""

    def notes(self, form: Form) -> list[str]:
        slip = f"Corrected: {self.corrected}. The paper prints {self.printed}."
        if form == "printed":
            slip = f"Printed form: {self.printed}. The corrected form has {self.corrected}."
        return [note for note in (slip if self.printed else "", self.remark, _CONSTANTS) if note]


_CONSTANTS = "The constants are the paper's; its proofs give larger ones."
_SAME_DATA = (
    "Needs the same context at every learner in every slot, and peers with at least as many "
    "functions as the learner itself."
)
_BEST_ARRIVALS = {
    "printed": "the p of C1, for which T^(2/3), T^(1/3) and the factor 12 do not hold: as it "
    "stands it is no bound",
    "corrected": "p = 3 alpha, with which z = 2/3 and the printed exponents hold",
}
THEOREMS: dict[str, Theorem] = {
    "T1": Theorem("CoS", "cos", "M F_max", lambda problem, _: _cos(problem, problem.dimension)),
    "T2": Theorem(
        "CoS, functions that learn",
        "learning",
        "M F_max",
        lambda problem, form: _cos(
            problem,
            problem.dimension + 1,
            per_cell=problem.dimension if form == "printed" else None,
        ),
        "Time is one more dimension. That an accuracy rises by at most L T^-alpha per slot makes "
        "it Hoelder in time only for alpha = 1.",
        printed="T^(d/(3 alpha + d + 1)) in the terms per cell",
        corrected="T^((d + 1)/(3 alpha + d + 1)), which d + 1 dimensions give",
    ),
    "T3": Theorem(  # T1 as if it began so many slots later
        "CoS, late labels",
        "delay",
        "M F_max",
        lambda problem, _: _cos(problem, problem.dimension, delay=problem.longest_delay),
    ),
    "T4": Theorem(
        "CoS, missing labels",
        "missing",
        "(M F_max / p_r)",
        lambda problem, _: _cos(
            problem,
            problem.dimension,
            visits=problem.arms + problem.peers,
            seen=problem.label_probability,
        ),
    ),
    "T5": Theorem(
        "CoS-MC",
        "cos-mc",
        "d M F_max",
        lambda problem, form: _cos(
            problem, 1, spread=2 if form == "printed" else 1, contexts=problem.dimension
        ),
        "Against the best policy that looks at a single context. The paper states the order only; "
        "the constants are those of T1 in one dimension, d times.",
        printed="parameters with 3 alpha + 2, whose rate is not the T^((2 alpha + 1)/(3 alpha + "
        "1)) that it states",
        corrected="parameters with 3 alpha + 1, which the stated rate needs",
    ),
    "C1": Theorem("DCZA, worst/worst", "dcza", "M F_max", partial(_dcza, case="C1")),
    "C2": Theorem("DCZA, worst/best", "dcza", "K", partial(_dcza, case="C2"), _SAME_DATA),
    "C3": Theorem(
        "DCZA, best/worst", "dcza", "M F_max", partial(_dcza, case="C3"), **_BEST_ARRIVALS
    ),
    "C4": Theorem(
        "DCZA, best/best", "dcza", "K", partial(_dcza, case="C4"), _SAME_DATA, **_BEST_ARRIVALS
    ),
}


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
    power: float  # z
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


def chosen(names: Sequence[str]) -> list[str]:
    """Return the theorems of names like T1, C3, cos or dcza; no names: all of them."""
    meanings: dict[str, list[str]] = {name.lower(): [name] for name in THEOREMS}
    for name, theorem in THEOREMS.items():
        meanings.setdefault(theorem.alias, []).append(name)
    meanings["t6"] = meanings["dcza"]
    for name in names:
        if name.lower() not in meanings:
            raise _unknown(name)
    listed = [theorem for name in names for theorem in meanings[name.lower()]]
    return list(dict.fromkeys(listed)) or list(THEOREMS)


def bound(name: str, problem: Problem | None = None, *, form: Form = "corrected") -> Bound:
    """Return the theorem `name` (a key of `THEOREMS`) for a problem.

    Raises `ConfigError` if the bound overflows.
    """
    problem = problem or Problem()
    stated = _state(name, problem, form)
    theorem = THEOREMS[name]
    names = ("explore", "train", "explore_peers")
    thresholds = zip(names, _thresholds(problem, stated.power), strict=True)
    return Bound(
        theorem=name,
        title=theorem.title,
        form=form,
        value=stated.value,
        per_slot=stated.value / problem.horizon,
        order=f"{theorem.prefactor} T^{stated.exponent:.4g}",
        exponent=stated.exponent,
        thresholds={name: Control(t.formula(), t.at(problem.horizon)) for name, t in thresholds},
        below_horizon_from=below_from(name, problem, form=form),
        below_twice_horizon_from=below_from(name, problem, times=2.0, form=form),
        notes=[*theorem.notes(form), *_limits(problem)],
        **stated._asdict(),
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
        return _state(name, longer, form).value < times * horizon

    return _least(is_below)


def orders(problem: Problem, *, form: Form = "corrected") -> list[Order]:
    alpha, dimension = problem.alpha, problem.dimension
    zooming = {case: _state(case, problem, form).exponent for case in CASES}
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


def _state(name: str, problem: Problem, form: Form) -> Statement:
    if name not in THEOREMS:
        raise _unknown(name)
    if form not in FORMS:
        raise ConfigError(f"unknown form {form!r}{toml.nearest(form, FORMS)}")
    with contextlib.suppress(OverflowError):
        stated = THEOREMS[name].state(problem, form)
        if math.isfinite(stated.value):
            return stated
    raise ConfigError(
        f"{name} at a horizon of {problem.horizon:g} overflows ({sys.float_info.max:.3g}); "
        "use a smaller horizon"
    )


def _unknown(name: str) -> ConfigError:
    aliases = {theorem.alias for theorem in THEOREMS.values()}
    return ConfigError(f"unknown theorem {name!r}{toml.nearest(name, [*THEOREMS, 'T6', *aliases])}")


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
