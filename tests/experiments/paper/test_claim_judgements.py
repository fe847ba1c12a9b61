"""The verdict on a claim: it holds, does not hold, depends, or is undecided."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.claims import (
    Claim,
    Comparison,
    ComparisonResult,
    DropDeviation,
    Increase,
    Minimum,
    SumOf,
    Term,
    comparisons,
    growth,
    judge,
    judge_across,
    keys_of,
)
from reproduction.data import key_of

A, B, C = ("table", "a"), ("table", "b"), ("table", "c")
FIGURES = {A: 1.0, B: 2.0, C: 4.0}


def claim(*parts: Comparison, is_some: bool = False) -> Claim:
    return Claim("name", "Text.", "Section", 1, parts, is_some)


RIGHT, WRONG, EVEN = Comparison("right", A, B), Comparison("wrong", C, B), Comparison("even", A, A)


def test_a_claim_holds_if_all_its_comparisons_hold() -> None:
    finding = judge(claim(RIGHT, Comparison("too", B, C)), FIGURES)

    assert (finding.verdict, finding.on) == ("holds", "")


@pytest.mark.parametrize("part", [WRONG, EVEN])
def test_a_claim_does_not_hold_if_no_comparison_holds(part: Comparison) -> None:
    assert judge(claim(part), FIGURES).verdict == "does not hold"


def test_a_claim_depends_if_some_comparisons_hold() -> None:
    finding = judge(claim(RIGHT, WRONG, EVEN), FIGURES)

    assert (finding.verdict, finding.on) == ("depends", "holds for right; not for wrong, even")


def test_one_comparison_is_enough_where_the_paper_claims_may() -> None:
    assert judge(claim(RIGHT, WRONG, is_some=True), FIGURES)[1:3] == ("holds", "in right")
    assert judge(claim(WRONG, is_some=True), FIGURES).verdict == "does not hold"


@pytest.mark.parametrize("figures", [{A: 1.0}, {A: 1.0, B: math.nan}])
def test_without_a_figure_a_claim_is_undecided(figures: dict[tuple[str, ...], float]) -> None:
    finding = judge(claim(RIGHT, EVEN), figures)

    assert finding[1:] == ("undecided", "not run: table/b", ())


def test_a_judgement_has_the_numbers_that_decided_it() -> None:
    assert judge(claim(RIGHT, WRONG), FIGURES).results == (
        ComparisonResult("right", 1.0, 2.0),
        ComparisonResult("wrong", 4.0, 2.0),
    )


@pytest.mark.parametrize(
    ("term", "value"),
    [
        (2.5, 2.5),
        (B, 2.0),
        (SumOf((A, B, C)), 7.0),
        (Minimum((C, B)), 2.0),
        (Increase((B, C)), 2.0),
        (DropDeviation((C, A), 70.0), 5.0),  # from 4 to 1 is a drop of 75 %
    ],
)
def test_the_value_of_each_kind_of_term(term: Term, value: float) -> None:
    assert judge(claim(Comparison("", term, math.inf)), FIGURES).results[0].smaller == value


def test_keys_of_a_claim_have_no_duplicates() -> None:
    assert keys_of(claim(RIGHT, Comparison("", SumOf((B, C)), 1.0))) == [A, B, C]


def test_readings_that_agree_give_one_verdict() -> None:
    turned = {A: 3.0, B: 5.0, C: 6.0}
    finding = judge_across(claim(RIGHT), {"raw": FIGURES, "log": turned})

    assert finding[1:3] == ("holds", "")
    assert finding.results == (
        ComparisonResult("raw: right", 1.0, 2.0),
        ComparisonResult("log: right", 3.0, 5.0),
    )


def test_the_verdict_depends_on_the_reading_if_readings_disagree() -> None:
    finding = judge_across(claim(RIGHT), {"raw": FIGURES, "log": {A: 3.0, B: 2.0}})

    assert finding[1:3] == ("depends", "raw: holds; log: does not hold")


def test_there_is_a_comparison_for_every_choice_of_names() -> None:
    parts = comparisons(
        key_of("t/{one}/{two}"),
        SumOf((key_of("s/{two}"),)),
        {"one": ["a", "b"], "two": ["c d", "e"]},
        case="so",
    )

    assert parts == (
        Comparison("a c d so", ("t", "a", "c d"), SumOf((("s", "c d"),))),
        Comparison("a e so", ("t", "a", "e"), SumOf((("s", "e"),))),
        Comparison("b c d so", ("t", "b", "c d"), SumOf((("s", "c d"),))),
        Comparison("b e so", ("t", "b", "e"), SumOf((("s", "e"),))),
    )


def test_growth_is_a_comparison_for_each_step() -> None:
    assert growth(key_of("t/{one}/{step}"), ["1", "2", "3"], {"one": ["x"]}) == (
        Comparison("x 1 to 2", ("t", "x", "1"), ("t", "x", "2")),
        Comparison("x 2 to 3", ("t", "x", "2"), ("t", "x", "3")),
    )


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=6))
def test_the_verdict_counts_the_comparisons_that_hold(pairs: list[tuple[float, float]]) -> None:
    parts = [Comparison(str(place), *pair) for place, pair in enumerate(pairs)]
    held = sum(one < other for one, other in pairs)

    wanted = "holds" if held == len(pairs) else "depends" if held else "does not hold"
    assert judge(claim(*parts), {}).verdict == wanted
    assert judge(claim(*parts, is_some=True), {}).verdict == ("holds" if held else "does not hold")
