"""Regret theorems, in their printed and corrected forms, and the problems they hold for."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple, get_args

import msgspec

from covey import toml
from covey.bandit.ensemble import Hedge
from covey.bandit.partitions import slices_for, split_power
from covey.errors import ConfigError

SQUARES = math.pi**2 / 6  # beta_2: the sum of 1 / t**2 over all slots


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a bound; the defaults match the paper's experiments."""

    horizon: float = 20_000  # slots
    alpha: float = 1.0
    dimension: int = 1
    lipschitz: float = 1.0
    learners: int = 4
    functions: int = 2  # of the learner of the bound
    most_functions: int | None = None  # of any learner; None: the same number
    label_probability: float = 0.5
    longest_delay: int = 100  # slots
    split_scale: float = 1.0
    split_power: float | None = None  # None: the value of the theorem
    cost: float = 0.0  # of the most expensive arm; used by the cautious form only

    def __post_init__(self) -> None:
        for name in _RANGES:
            _check_kind(name, getattr(self, name))
        toml.check_ranges(self, _RANGES, where="")
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
    def peers(self) -> int:
        """M - 1."""
        return self.learners - 1

    @property
    def arms(self) -> int:
        """K, the number of own functions and peers."""
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


_OPTIONAL = ("most_functions", "split_power")
_WHOLE = ("dimension", "learners", "functions", "most_functions", "longest_delay")
_RANGES = {
    "horizon": (1, 1e300),
    "alpha": (1e-3, 64),
    "dimension": (0, 8),
    "lipschitz": (1e-9, 1e9),
    "learners": (1, 10**4),
    "functions": (1, 10**4),
    "most_functions": (1, 10**4),
    "label_probability": (1e-9, 1),
    "longest_delay": (0, 2**53),
    "split_scale": (1, 1e18),
    "split_power": (0, 64),
    "cost": (0, 1),
}


def _check_kind(name: str, value: float | None) -> None:
    if value is None and name in _OPTIONAL:
        return
    key = name.replace("_", "-")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{key} is {value!r}; it must be a number")
    if name in _WHOLE and not isinstance(value, int):
        raise ConfigError(f"{key} is {value:g}; it must be a whole number")


Form = Literal["printed", "corrected", "cautious"]
FORMS: tuple[Form, ...] = get_args(Form)
NEAR = "near-optimal choice"
EXPLORE = "training and exploration"
FIRST = "first visits of cells"
MISLED = "wrong choice, misled by helpers"
CHANCE = "wrong choice, by chance"
HELPERS = "mistakes of helpers"
LATE = "late labels"


class Term(msgspec.Struct, frozen=True):
    """One term of a bound: coefficient * T ** exponent * logarithms."""

    name: str
    exponent: float
    logs: str
    value: float


class Statement(NamedTuple):
    """A theorem for one problem."""

    terms: list[Term]
    prefactor: str  # of the order
    memory: float  # records: one per arm and cell
    memory_order: str
    notes: list[str]
    power: float | None = None  # z of the thresholds
    slices: int | None = None  # per dimension
    split_power: float | None = None


State = Callable[[Problem, Form], Statement]


class Theorem(NamedTuple):
    """The title of a theorem, and its formula."""

    title: str
    state: State


class _Grid(NamedTuple):
    """Parameters that differ between the theorems on CoS."""

    dimension: int  # of a cell
    spread: int  # the d of 3 alpha + d
    visits: int  # of each cell, because thresholds are rounded up
    seen: float = 1.0  # share of labels that arrive
    contexts: int = 1  # each with its own slices
    exponent: float | None = None  # of the terms per cell; None: exponent of the number of cells


def _cos(problem: Problem, form: Form) -> Statement:
    return _on_grid(problem, form, _Grid(problem.dimension, problem.dimension, problem.arms))


def _learning(problem: Problem, form: Form) -> Statement:
    dimension = problem.dimension + 1
    printed = problem.dimension / (3 * problem.alpha + dimension) if form == "printed" else None
    slip = _slip(
        form,
        printed="T^(d/(3 alpha + d + 1)) in the terms per cell",
        corrected="T^((d + 1)/(3 alpha + d + 1)), which d + 1 dimensions give",
    )
    time = (
        "Time is one more dimension. That an accuracy rises by at most L T^-alpha per slot makes "
        "it Hoelder in time only for alpha = 1."
    )
    grid = _Grid(dimension, dimension, problem.arms, exponent=printed)
    return _on_grid(problem, form, grid, slip, time)


def _delay(problem: Problem, form: Form) -> Statement:
    return _late(problem, form, _cos(problem, form))


def _late(problem: Problem, form: Form, plain: Statement) -> Statement:
    """Return a theorem for labels that are late: as if it began that many slots later."""
    late = _term(problem, LATE, _loss(problem, form) * problem.longest_delay, 0)
    return plain._replace(
        terms=[*plain.terms, late],
        memory=plain.memory + problem.longest_delay,
        memory_order=f"L_max + {plain.memory_order}",
    )


def _zooming_late(problem: Problem, form: Form, *, case: State) -> Statement:
    stated = _late(problem, form, case(problem, form))
    return stated._replace(notes=[*stated.notes, f"{_ONLY_COS} as in T3."])


def _zooming_missing(problem: Problem, form: Form, *, case: State) -> Statement:
    """Return a theorem on DCZA for labels that are seen with a probability.

    A cell needs 1 / p_r as many slots for the same labels: a negative binomial number.
    """
    plain = case(problem, form)
    seen = problem.label_probability
    terms = [
        msgspec.structs.replace(term, value=term.value / seen)
        if term.name in (EXPLORE, FIRST)
        else term
        for term in plain.terms
    ]
    notes = [*plain.notes, f"{_ONLY_COS} by the argument of T4 in every cell."]
    return plain._replace(terms=terms, prefactor=f"({plain.prefactor} / p_r)", notes=notes)


def _missing(problem: Problem, form: Form) -> Statement:
    visits = problem.arms + problem.peers
    grid = _Grid(problem.dimension, problem.dimension, visits, seen=problem.label_probability)
    return _on_grid(problem, form, grid)._replace(prefactor="(M F_max / p_r)")


def _single_context(problem: Problem, form: Form) -> Statement:
    if problem.dimension == 0:
        raise ConfigError("T5 is about policies that use one context; dimension is 0")
    slip = _slip(
        form,
        printed="parameters with 3 alpha + 2, whose rate is not the T^((2 alpha + 1)/(3 alpha + "
        "1)) that it states",
        corrected="parameters with 3 alpha + 1, which the stated rate needs",
    )
    order_only = (
        "Against the best policy that looks at a single context. The paper states the order only; "
        "the constants are those of T1 in one dimension, d times."
    )
    spread = 2 if form == "printed" else 1
    grid = _Grid(1, spread, problem.arms, contexts=problem.dimension)
    return _on_grid(problem, form, grid, slip, order_only)._replace(prefactor="d M F_max")


def _on_grid(problem: Problem, form: Form, grid: _Grid, *notes: str) -> Statement:
    span = 3 * problem.alpha + grid.spread
    slices = slices_for(problem.horizon, alpha=problem.alpha, dimension=grid.spread)
    times = "d " if grid.contexts > 1 else ""
    return Statement(
        terms=_grid_terms(problem, form, grid, span),
        prefactor="M F_max",
        memory=grid.contexts * problem.arms * float(slices) ** grid.dimension,
        memory_order=f"{times}K T^{grid.dimension / span:.4g}",
        notes=[*notes, _left_out(form, _GRID_LEAVES_OUT)],
        power=2 * problem.alpha / span,
        slices=slices,
    )


def _grid_terms(problem: Problem, form: Form, grid: _Grid, span: float) -> list[Term]:
    loss, is_cautious = _loss(problem, form), form == "cautious"
    near, power, cells = 1 - problem.alpha / span, 2 * problem.alpha / span, grid.dimension / span
    per_cell = cells if grid.exponent is None else grid.exponent
    most_cells = grid.contexts * 2.0**grid.dimension  # times T ** cells
    gap = 2 * (2 * problem.distance(grid.dimension) + 6) / near
    visits = problem.arms + problem.peers if is_cautious else grid.visits
    exploring = loss * most_cells * problem.rounds / grid.seen
    misled = loss * most_cells * 4 * problem.mistakes / power
    chance = loss * most_cells * 2 * problem.rounds * SQUARES
    helpers = 4 * problem.mistakes * (most_cells if is_cautious else grid.contexts)
    return [
        _term(problem, NEAR, grid.contexts * gap, near),
        _term(problem, EXPLORE, exploring, cells + power, _natural(problem)),
        _term(problem, MISLED, misled, cells + power / 2),
        _term(problem, CHANCE, chance, per_cell),
        _term(problem, FIRST, loss * most_cells * visits / grid.seen, per_cell),
        _term(problem, HELPERS, helpers, per_cell if is_cautious else 0),
    ]


def _worst(problem: Problem, form: Form, *, is_best: bool) -> Statement:
    """DCZA with the worst arrivals; `is_best`: peers need no training."""
    alpha, dimension, loss = problem.alpha, problem.dimension, _loss(problem, form)
    rounds, prefactor, notes = _correlation(problem, is_best=is_best)
    split = _split(problem, split_power(alpha, dimension))
    cells, power, near = dimension / (dimension + split), 2 * alpha / split, dimension + split
    most_cells = 4.0**dimension  # times T ** cells
    levels, by_power = 2.0 ** (near - alpha), 1.0
    if form == "cautious":
        levels, by_power = levels**2 / (levels - 1), power
    terms = [
        _term(problem, NEAR, 2 * _reach(problem) * levels, (near - alpha) / near),
        _term(problem, EXPLORE, loss * most_cells * rounds, cells + power, _natural(problem)),
        _term(problem, MISLED, most_cells * 8 * problem.mistakes / by_power, cells + power / 2),
        _term(problem, CHANCE, most_cells * 4 * SQUARES * _chancy(problem, form), cells),
        _term(problem, FIRST, loss * most_cells * rounds, cells),
        _term(problem, HELPERS, most_cells * 2 * problem.mistakes, cells),
    ]
    return Statement(
        terms=terms,
        prefactor=prefactor,
        memory=problem.arms * most_cells * problem.horizon**cells,
        memory_order=f"K T^{cells:.4g}",
        notes=[_left_out(form, _WORST_LEAVES_OUT), *notes],
        power=power,
        split_power=split,
    )


def _best(problem: Problem, form: Form, *, is_best: bool) -> Statement:
    """DCZA with the best arrivals; `is_best`: peers need no training."""
    alpha, loss = problem.alpha, _loss(problem, form)
    rounds, prefactor, notes = _correlation(problem, is_best=is_best)
    printed = split_power(alpha, problem.dimension)
    split = _split(problem, printed if form == "printed" else 3 * alpha)
    power = 2 / 3 if form == "printed" else 2 * alpha / split
    near = 2 / 3 if form == "printed" else 1 - alpha / split
    finest = math.log2(problem.horizon) / split
    explored, visited = (finest + 2, finest + 2) if form == "cautious" else (finest, finest + 1)
    levels = 2.0 ** (split - alpha)
    natural, logarithm = _natural(problem), ("log2 T", visited)
    squared = ("ln T log2 T", natural[1] * explored)
    terms = [
        _term(problem, NEAR, 2 * _reach(problem) * levels**2 / (levels - 1), near),
        _term(problem, EXPLORE, loss * rounds, power, squared),
        _term(problem, MISLED, 8 / power * problem.mistakes, power / 2, logarithm),
        _term(problem, CHANCE, 4 * SQUARES * _chancy(problem, form), 0, logarithm),
        _term(problem, FIRST, loss * rounds, 0, logarithm),
        _term(problem, HELPERS, 2 * problem.mistakes, 0, logarithm),
    ]
    slip = _slip(
        form,
        printed="the p of C1, for which T^(2/3), T^(1/3) and the factor 12 do not hold: as it "
        "stands it is no bound",
        corrected="p = 3 alpha, with which z = 2/3 and the printed exponents hold",
    )
    return Statement(
        terms=terms,
        prefactor=prefactor,
        memory=problem.arms,
        memory_order="K",
        notes=[slip, _left_out(form, _BEST_LEAVES_OUT), *notes],
        power=2 * alpha / split,
        split_power=split,
    )


def _correlation(problem: Problem, *, is_best: bool) -> tuple[int, str, list[str]]:
    """Return the rounds of exploration, their symbol, and the notes of a case."""
    return (problem.arms, "K", [_SAME_DATA]) if is_best else (problem.rounds, "M F_max", [])


def _hedge(problem: Problem, form: Form) -> Statement:
    excess = Hedge().bound(problem.horizon, learners=problem.learners)
    return Statement(
        terms=[Term("mistakes beyond the best learner's", 0.5, "", excess)],
        prefactor="sqrt(ln M)",
        memory=problem.learners,
        memory_order="M",
        notes=[
            "For the answer that is drawn by the weights, with every label in time; the regret of "
            "the best learner comes on top. No theorem of the paper."
        ],
    )


_CASES: dict[str, tuple[str, State]] = {
    "C1": ("worst/worst", partial(_worst, is_best=False)),
    "C2": ("worst/best", partial(_worst, is_best=True)),
    "C3": ("best/worst", partial(_best, is_best=False)),
    "C4": ("best/best", partial(_best, is_best=True)),
}
THEOREMS: dict[str, Theorem] = {
    "T1": Theorem("CoS", _cos),
    "T2": Theorem("CoS, functions that learn", _learning),
    "T3": Theorem("CoS, late labels", _delay),
    "T4": Theorem("CoS, missing labels", _missing),
    "T5": Theorem("CoS-MC", _single_context),
    **{name: Theorem(f"DCZA, {which}", state) for name, (which, state) in _CASES.items()},
    **{
        f"{name}-late": Theorem(f"DCZA, {which}, late labels", partial(_zooming_late, case=state))
        for name, (which, state) in _CASES.items()
    },
    **{
        f"{name}-missing": Theorem(
            f"DCZA, {which}, missing labels", partial(_zooming_missing, case=state)
        )
        for name, (which, state) in _CASES.items()
    },
    "hedge": Theorem("ensemble", _hedge),
}

_ONLY_COS = "The paper states it for CoS only; for DCZA it is"
_LOSS = "losses of 1 + cost in a slot, not of 1"
_GRID_LEAVES_OUT = (
    _LOSS,
    "mistakes of helpers in every cell, not once",
    "first visits of |F_i| + 2 (M - 1) to a cell, as in T4, not of K",
)
_WORST_LEAVES_OUT = (
    _LOSS,
    "the 1/z of the lemma on wrong choices that helpers mislead to",
    "the sum over all levels of near-optimal choices",
    "wrong choices by chance of peers, not of own functions alone",
)
_BEST_LEAVES_OUT = (
    _LOSS,
    "cells of all log2(T)/p + 2 levels that are visited",
    "wrong choices by chance of peers, not of own functions alone",
)
_SAME_DATA = (
    "Needs the same context at every learner in every slot, and peers with at least as many "
    "functions as the learner itself."
)


def _loss(problem: Problem, form: Form) -> float:
    return 1 + problem.cost if form == "cautious" else 1.0


def _chancy(problem: Problem, form: Form) -> int:
    return problem.arms if form == "cautious" else problem.functions


def _split(problem: Problem, prescribed: float) -> float:
    return prescribed if problem.split_power is None else problem.split_power


def _reach(problem: Problem) -> float:
    """Return A B L d^(alpha/2), where B = 12 / (L d^(alpha/2) 2^-alpha) + 2."""
    distance = problem.distance(problem.dimension)
    return problem.split_scale * (12 * math.exp2(problem.alpha) + 2 * distance)


def _natural(problem: Problem) -> tuple[str, float]:
    return "ln T", math.log(problem.horizon)


def _term(
    problem: Problem,
    name: str,
    coefficient: float,
    exponent: float,
    logs: tuple[str, float] = ("", 1.0),
) -> Term:
    words, factor = logs
    return Term(name, exponent, words, coefficient * problem.horizon**exponent * factor)


def _slip(form: Form, *, printed: str, corrected: str) -> str:
    if form == "printed":
        return f"Printed form: {printed}. The corrected form has {corrected}."
    return f"Corrected: {corrected}. The paper prints {printed}."


def _left_out(form: Form, items: Sequence[str]) -> str:
    head = "Put in" if form == "cautious" else "Left out, which the cautious form puts in"
    return f"{head}: {'; '.join(items)}."
