"""The theorems against formulas copied from the paper, their forms, and their properties."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from covey.bandit.bounds import THEOREMS, Form, Problem, bound, sheet
from covey.bandit.partitions import split_power
from covey.errors import ConfigError
from support.theory import (
    PAPER,
    changed,
    cos_by_hand,
    dcza_by_hand,
    forms,
    problems,
    value,
)


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

    assert late.terms[:-1] == plain.terms
    assert late.terms[-1].value == problem.longest_delay
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
