"""The theorems against formulas copied from the paper, their forms, and their properties."""
# ruff: noqa: N806 - the paper's letters

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from covey.bandit.bounds import bound, sheet
from covey.bandit.partitions import split_power
from covey.bandit.theorems import FORMS, THEOREMS, Form, Problem
from covey.errors import ConfigError
from support.theory import (
    PAPER,
    changed,
    cos_by_hand,
    dcza_by_hand,
    forms,
    letters,
    problems,
    value,
)

pytestmark = pytest.mark.beside_the_kernel


@pytest.mark.parametrize(
    ("horizon", "values"),
    [
        (2e4, [425653.24, 792338.38, 1422348.74, 2440688.86, 1898300.11, 605394.34, 396846.26]),
        (1e6, [10446643.06, 20058804.45, 41360468.77, 59431013.23, 43389325.81, 12960908.28,
               7453566.50]),
    ],
)  # fmt: skip
def test_the_known_values_are_reproduced(horizon: float, values: list[float]) -> None:
    problem = Problem(horizon=horizon, label_probability=0.5)

    found = [value(name, problem) for name in ("T1", "T4", "T2", "C1", "C2", "C3", "C4")]

    assert found == pytest.approx(values, abs=0.01)


@given(problems)
def test_printed_forms_match_the_paper(problem: Problem) -> None:
    d, printed = problem.dimension, {name: value(name, problem, "printed") for name in PAPER}
    p = split_power(problem.alpha, d)
    time = d / (3 * problem.alpha + d + 1)

    assert printed["T1"] == pytest.approx(cos_by_hand(problem, d), rel=1e-12)
    assert printed["T2"] == pytest.approx(cos_by_hand(problem, d + 1, third=time), rel=1e-12)
    for case in ("C1", "C2", "C3", "C4"):
        assert printed[case] == pytest.approx(dcza_by_hand(problem, case, p), rel=1e-9)


@given(problems)
def test_corrected_forms_differ_where_the_paper_is_wrong(problem: Problem) -> None:
    alpha, d = problem.alpha, problem.dimension

    assert value("T2", problem) == pytest.approx(cos_by_hand(problem, d + 1), rel=1e-12)
    assert value("T5", problem) == pytest.approx(d * cos_by_hand(problem, 1), rel=1e-12)
    for case in ("C3", "C4"):
        by_hand = dcza_by_hand(problem, case, 3 * alpha)
        assert value(case, problem) == pytest.approx(by_hand, rel=1e-9)


@given(problems)
def test_missing_labels_prolong_exploration(problem: Problem) -> None:
    assume(problem.label_probability < 1)
    p_r = problem.label_probability

    by_hand = cos_by_hand(problem, problem.dimension, p_r=p_r)

    assert value("T4", problem) == pytest.approx(by_hand, rel=1e-12)


@given(problems, forms)
def test_late_labels_add_the_longest_delay_and_nothing_else(problem: Problem, form: Form) -> None:
    late, plain = (THEOREMS[name].state(problem, form) for name in ("T3", "T1"))

    loss = 1 + problem.cost if form == "cautious" else 1
    assert late.terms[:-1] == plain.terms
    assert late.terms[-1].value == loss * problem.longest_delay
    assert late.memory == plain.memory + problem.longest_delay


@given(problems, forms, st.sampled_from(list(THEOREMS)), st.floats(1.01, 1e6))
def test_a_bound_grows_with_the_horizon(
    problem: Problem, form: Form, name: str, factor: float
) -> None:
    later = changed(problem, horizon=problem.horizon * factor)

    assert value(name, later, form) >= value(name, problem, form)


@given(problems, forms)
def test_training_peers_never_makes_a_bound_smaller(problem: Problem, form: Form) -> None:
    assert value("C1", problem, form) >= value("C2", problem, form)
    assert value("C3", problem, form) >= value("C4", problem, form)


@given(problems, st.sampled_from(list(THEOREMS)))
def test_the_cautious_form_is_never_below_the_corrected_one(problem: Problem, name: str) -> None:
    assert value(name, problem, "cautious") >= value(name, problem) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("name", "ratios"),
    [
        ("T1", [1, 1.5, 1.5, 1.5, 1.5 * 8 / 5, 2 * 10]),
        ("C2", [2**3.5615528 / (2**3.5615528 - 1), 1.5, 3.5615528 / 2, 5 / 2, 1.5, 1]),
        ("C4", [1, 1.5 * (13.28771 + 6) / 13.28771, (13.28771 + 6) / (13.28771 + 3),
                5 / 2 * (13.28771 + 6) / (13.28771 + 3), 1.5 * (13.28771 + 6) / (13.28771 + 3),
                (13.28771 + 6) / (13.28771 + 3)]),
    ],
)  # fmt: skip
def test_the_cautious_form_adds_the_omitted_terms(name: str, ratios: list[float]) -> None:
    """At T = 10,000 with 2 functions and 3 peers: T^(1/4) is 10 and log2(T) is 13.28771."""
    problem = Problem(horizon=10_000, cost=0.5)

    cautious, corrected = (
        THEOREMS[name].state(problem, form) for form in ("cautious", "corrected")
    )

    pairs = zip(cautious.terms, corrected.terms, strict=True)
    assert [one.value / other.value for one, other in pairs] == pytest.approx(ratios, rel=1e-6)


@given(problems)
def test_with_all_labels_seen_the_cautious_forms_of_t1_and_t4_agree(problem: Problem) -> None:
    problem = changed(problem, label_probability=1.0)

    assert value("T4", problem, "cautious") == value("T1", problem, "cautious")


@given(problems)
def test_a_single_context_is_cos_in_one_dimension(problem: Problem) -> None:
    problem = changed(problem, dimension=1)

    assert value("T5", problem) == value("T1", problem)


def test_without_peers_the_helper_terms_are_zero() -> None:
    terms = THEOREMS["T1"].state(Problem(learners=1), "corrected").terms

    assert {term.name for term in terms if term.value == 0} == {
        "wrong choice, misled by helpers",
        "mistakes of helpers",
    }


def lemmas_of_cos(problem: Problem) -> float:
    """Return what the lemmas on CoS give if they are summed slot by slot and cell by cell."""
    T, a, L, peers, F_i, F_max = letters(problem)
    d, b2, loss = problem.dimension, math.pi**2 / 6, 1 + problem.cost
    z = 2 * a / (3 * a + d)
    cells = math.ceil(T ** (1 / (3 * a + d))) ** d
    slots = range(1, int(T) + 1)
    near = 2 * (2 * L * d ** (a / 2) + 6) * sum(t ** (-z / 2) for t in slots)
    exploring = problem.rounds * T**z * math.log(T) + F_i + 2 * peers
    misled = 2 * peers * F_max * b2 * sum(t ** (z / 2 - 1) for t in slots)
    wrong = 2 * (F_i + peers) * b2 + misled
    return near + cells * (loss * (exploring + wrong) + 2 * 2 * peers * F_max * b2)


def lemmas_of_dcza(problem: Problem, case: str, p: float) -> float:
    """Return what the lemmas on DCZA give if they are summed over the cells of every level."""
    T, a, L, peers, F_i, F_max = letters(problem)
    d, A, b2 = problem.dimension, problem.split_scale, math.pi**2 / 6
    z, B = 2 * a / p, 12 / (L * d ** (a / 2) * 2**-a) + 2
    side = d if case in ("C1", "C2") else 0  # contexts are everywhere, or in one cell of a level
    rounds = problem.rounds if case in ("C1", "C3") else F_i + peers
    split_after = itertools.accumulate(A * 2 ** ((side + p) * level) for level in itertools.count())
    finest = next(level for level, slots in enumerate(split_after) if slots >= T)
    total = 0.0
    for level in range(finest + 1):
        exploring = (1 + problem.cost) * rounds * (T**z * math.log(T) + 1)
        wrong = 4 * b2 * (F_i + peers) + 8 * peers * F_max * b2 * T ** (z / 2) / z
        near = 2 * A * B * L * d ** (a / 2) * 2 ** ((p - a) * level) + 2 * peers * F_max * b2
        total += 2 ** (side * level) * (exploring + wrong + near)
    return total


@given(problems, st.integers(2, 3_000))
def test_the_cautious_form_of_cos_covers_its_lemmas(problem: Problem, horizon: int) -> None:
    problem = changed(problem, horizon=horizon)

    assert lemmas_of_cos(problem) <= value("T1", problem, "cautious") * (1 + 1e-9)


@given(problems, st.sampled_from(["C1", "C2", "C3", "C4"]))
def test_the_cautious_form_of_dcza_covers_its_lemmas(problem: Problem, case: str) -> None:
    worst = split_power(problem.alpha, problem.dimension)
    power = worst if case in ("C1", "C2") else 3 * problem.alpha

    lemmas = lemmas_of_dcza(problem, case, power)

    assert lemmas <= value(case, problem, "cautious") * (1 + 1e-9)


def test_the_corrected_form_does_not_cover_all_lemmas() -> None:
    dear = Problem(horizon=3_000, learners=20, most_functions=9, cost=1)
    rough = Problem(horizon=16, alpha=0.1, learners=7, functions=5, most_functions=7)
    flat = Problem(horizon=11, dimension=8, lipschitz=0.003, learners=17, most_functions=9)

    assert lemmas_of_cos(dear) > value("T1", dear)
    assert lemmas_of_dcza(rough, "C1", split_power(0.1, 1)) > value("C1", rough)
    assert lemmas_of_dcza(flat, "C3", 3.0) > value("C3", flat)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"alpha": 0}, "alpha is 0; it must lie from 0.001 to 64"),
        ({"alpha": 65}, "alpha is 65; it must lie from 0.001 to 64"),
        ({"lipschitz": -2}, "lipschitz is -2; it must lie from 1e-09 to 1e+09"),
        ({"dimension": 9}, "dimension is 9; it must lie from 0 to 8"),
        ({"dimension": 1.5}, "dimension is 1.5; it must be a whole number"),
        ({"horizon": 1e301}, "horizon is 1e+301; it must lie from 1 to 1e+300"),
        ({"horizon": math.nan}, "horizon is nan; it must lie"),
        ({"horizon": "long"}, "horizon is 'long'; it must be a number"),
        ({"horizon": None}, "horizon is None; it must be a number"),
        ({"learners": 0}, "learners is 0; it must lie from 1 to 10000"),
        ({"functions": 0}, "functions is 0; it must lie from 1 to 10000"),
        ({"most_functions": 1}, "most-functions is 1; it must be at least functions = 2"),
        ({"label_probability": 0}, "label-probability is 0; it must lie from 1e-09 to 1"),
        ({"longest_delay": -1}, "longest-delay is -1; it must lie from 0 to 9.0072e+15"),
        ({"split_scale": 0.5}, "split-scale is 0.5; it must lie from 1 to 1e+18"),
        ({"split_power": 2}, "split-power is 2; it must exceed 2 (2 alpha)"),
        ({"cost": 2}, "cost is 2; it must lie from 0 to 1"),
    ],
)
def test_a_parameter_out_of_range_is_rejected(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Problem(**changes)
    with pytest.raises(ConfigError):
        changed(Problem(), **changes)

    assert sentence in str(refused.value)


CASES = ("C1", "C2", "C3", "C4")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_late_labels_of_dcza_add_their_delay_once_as_those_of_cos_do(case: str, form: Form) -> None:
    problem = Problem(longest_delay=250, cost=0.5)
    loss = 1.5 if form == "cautious" else 1.0

    assert value(f"{case}-late", problem, form) == pytest.approx(
        value(case, problem, form) + 250 * loss
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_missing_labels_of_dcza_prolong_what_needs_labels_and_nothing_else(
    case: str, form: Form
) -> None:
    """A cell that needs n labels takes n / p_r slots for them: the mean of a negative binomial."""
    rng = np.random.default_rng(4)
    problem, seen = Problem(label_probability=0.2), Problem(label_probability=1.0)
    needed = sum(
        term.value
        for term in bound(case, problem, form=form).terms
        if term.name in ("training and exploration", "first visits of cells")
    )
    slots = 50 + rng.negative_binomial(50, 0.2, 20_000)  # numpy counts the misses

    assert np.mean(slots) == pytest.approx(50 / 0.2, rel=0.01)
    assert value(f"{case}-missing", seen, form) == pytest.approx(value(case, seen, form))
    assert value(f"{case}-missing", problem, form) == pytest.approx(
        value(case, problem, form) + 4 * needed
    )


def test_t1_without_contexts_is_the_bound_of_one_cell() -> None:
    """The sum of the lemmas for one cell, with z = 2/3 and no distance between contexts."""
    horizon, arms, rounds, mistakes = 20_000.0, 5, 11, 3 * 2 * math.pi**2 / 6
    power = 2 / 3
    one_cell = (
        2 * 6 / (1 - power / 2) * horizon ** (2 / 3)
        + rounds * horizon**power * math.log(horizon)
        + 4 * mistakes / power * horizon ** (power / 2)
        + 2 * rounds * math.pi**2 / 6
        + arms
        + 4 * mistakes
    )

    for lipschitz in (0.1, 10.0):
        assert value("T1", Problem(dimension=0, lipschitz=lipschitz)) == pytest.approx(one_cell)


@pytest.mark.parametrize("name", ["T1", "T2", "T3", "T4", "C1", "C2", "C3", "C4"])
def test_every_theorem_on_contexts_has_a_value_without_any(name: str) -> None:
    found = bound(name, Problem(dimension=0))

    assert 0 < found.value < math.inf
    assert any("one cell" in note for note in found.notes)


def test_the_theorem_on_single_contexts_is_refused_where_there_is_none() -> None:
    with pytest.raises(ConfigError, match="T5 is about policies that use one context"):
        bound("T5", Problem(dimension=0))
    assert "T5" not in [one.theorem for one in sheet(problem=Problem(dimension=0)).bounds]


def test_alpha_above_1_follows_the_formula_and_says_what_it_means() -> None:
    found = bound("T1", Problem(alpha=2.0, horizon=1e6))

    assert [term.exponent for term in found.terms[:3]] == pytest.approx([5 / 7, 5 / 7, 3 / 7])
    assert any("do not depend on the context" in note for note in found.notes)
    assert found.terms[0].value == pytest.approx(2 * (2 + 6) / (5 / 7) * 1e6 ** (5 / 7))
