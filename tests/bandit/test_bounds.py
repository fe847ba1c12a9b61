"""Theorems against formulas of the paper; exponents, memory, horizons, begin of exploitation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import covey
from covey.bandit import bounds
from covey.bandit.bounds import (
    CASES,
    THEOREMS,
    Form,
    Problem,
    bound,
    chosen,
    exploitation,
    exploitation_begins,
    orders,
    sheet,
    theorem_thresholds,
)
from covey.bandit.partitions import Threshold, Uniform, slices_for, split_power
from covey.bandit.policies import DCZA, CoS
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


@given(problems, forms, st.sampled_from(list(THEOREMS)))
def test_a_bound_is_the_sum_of_its_terms_and_none_is_negative(
    problem: Problem, form: Form, name: str
) -> None:
    one = bound(name, problem, form=form)

    assert one.value == pytest.approx(sum(term.value for term in one.terms), rel=1e-12)
    assert min(term.value for term in one.terms) >= 0
    assert one.per_slot * problem.horizon == pytest.approx(one.value)


@pytest.mark.parametrize(
    ("dimension", "exponents"),
    [(1, (0.75, 0.7808, 2 / 3, 2 / 3)), (2, (0.8, 0.8333, 2 / 3, 0.75))],
)
def test_the_known_exponents_are_reproduced(dimension: int, exponents: tuple[float, ...]) -> None:
    table = {(o.algorithm, o.case): o.exponent for o in orders(Problem(dimension=dimension))}

    keys = (("CoS", "C1"), ("DCZA", "C1"), ("DCZA", "C3"), ("Share-UCB", "C1"))
    assert tuple(table[key] for key in keys) == pytest.approx(exponents, abs=1e-4)


def test_the_printed_table_counts_only_exploration_for_cos_with_best_arrivals() -> None:
    printed, corrected = (
        [order.formula for order in orders(Problem(), form=form) if order.algorithm == "CoS"]
        for form in ("printed", "corrected")
    )

    assert printed == ["M F_max T^0.75", "K T^0.75", "M F_max T^0.5", "K T^0.5"]
    assert corrected[2:] == ["T^0.75 + M F_max T^0.5", "T^0.75 + K T^0.5"]


@given(problems)
def test_the_prescribed_split_power_balances_near_optimal_choices_and_exploring(
    problem: Problem,
) -> None:
    near, exploring, misled, chance, *_ = bound("C1", problem).terms

    assert near.exponent == pytest.approx(exploring.exponent)
    assert near.exponent > misled.exponent > chance.exponent


@given(problems, st.floats(0.01, 10))
def test_any_other_split_power_has_a_larger_exponent(problem: Problem, away: float) -> None:
    prescribed = split_power(problem.alpha, problem.dimension)
    powers = [prescribed + away, max(prescribed - away, 2.01 * problem.alpha)]

    for power in powers:
        assert (
            bound("C1", changed(problem, split_power=power)).exponent
            > bound("C1", problem).exponent
        )


@pytest.mark.parametrize("dimension", [1, 2, 5])
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_policies_use_the_parameters_of_the_theorems(alpha: float, dimension: int) -> None:
    problem = Problem(alpha=alpha, dimension=dimension, most_functions=3)
    given_ = {"parameters": "theorem", "alpha": alpha}
    cos = CoS(**given_, horizon=20_000).resolve(dimension=dimension, most_functions=3)
    dcza = DCZA(**given_).resolve(dimension=dimension, most_functions=3)

    assert (cos.explore, cos.train, cos.explore_peers) == theorem_thresholds(problem)
    assert cos.partition == Uniform(bound("T1", problem).slices or 0)
    assert dcza.partition.power == bound("C1", problem).split_power  # type: ignore[attr-defined]
    assert dcza.explore.power == bound("C1", problem).power


def test_parameters_of_the_paper_s_experiments_are_reproduced() -> None:
    cos, dcza, best = bound("T1"), bound("C1"), bound("C3")

    assert (cos.power, cos.slices) == (0.5, 12)
    assert cos.thresholds["train"].formula == "2 t^0.5 ln t"
    assert cos.thresholds["explore"].at_horizon == pytest.approx(1400.56, abs=0.01)
    assert dcza.split_power == pytest.approx((3 + math.sqrt(17)) / 2)
    assert dcza.power == pytest.approx(0.5616, abs=1e-4)
    assert (best.split_power, best.power) == (3.0, pytest.approx(2 / 3))


def test_memory_counts_a_record_for_each_arm_in_each_cell() -> None:
    problem = Problem(dimension=2)

    found = {name: bound(name, problem).memory for name in ("T1", "T2", "T3", "T5", "C3")}

    slices = slices_for(20_000, alpha=1.0, dimension=2)
    times = slices_for(20_000, alpha=1.0, dimension=3)
    assert found == {"T1": 5 * slices**2, "T2": 5 * times**3, "T3": 5 * slices**2 + 100,
                     "T5": 2 * 5 * 12, "C3": 5}  # fmt: skip


@pytest.mark.parametrize(("name", "magnitude"), [("T1", 11.06), ("C1", 15.21), ("C4", 9.45)])
def test_bounds_are_non_trivial_only_at_long_horizons(name: str, magnitude: float) -> None:
    assert math.log10(bound(name).below_horizon_from or 1) == pytest.approx(magnitude, abs=0.01)


@settings(max_examples=30)
@given(problems, forms, st.sampled_from(PAPER), st.sampled_from([1.0, 2.0]))
def test_a_bound_crosses_the_horizon_once(
    problem: Problem, form: Form, name: str, times: float
) -> None:
    def per_slot(horizon: float) -> float:
        return value(name, changed(problem, horizon=horizon), form) / horizon

    horizon = bounds.below_from(name, problem, times=times, form=form)

    before = np.geomspace(1, (horizon or 1e30) * (1 - 1e-9), 50)
    assert min(map(per_slot, before)) >= times * (1 - 1e-9)
    if horizon is not None:
        after = np.geomspace(horizon * (1 + 1e-9), 1e31, 50)
        assert max(map(per_slot, after)) < times


def test_with_too_fast_thresholds_no_horizon_is_long_enough() -> None:
    hopeless = bound("C1", Problem(split_power=2.1, dimension=8))

    assert hopeless.exponent > 1
    assert (hopeless.below_horizon_from, hopeless.below_twice_horizon_from) == (None, None)


def first_exploitation(
    thresholds: bounds.Thresholds, arms: tuple[int, int, int], cells: int
) -> int:
    """Count visits one by one, cells in turn, until the last cell has nothing left to explore."""
    counters = [[[0] * count for count in arms] for _ in range(cells)]
    begun: set[int] = set()
    for slot in itertools.count(1):
        counts = counters[(slot - 1) % cells]
        pairs = zip(counts, thresholds, strict=True)
        needy = [
            (group, k) for group, d in pairs for k in range(len(group)) if group[k] <= d.at(slot)
        ]
        if needy:
            group, k = needy[0]
            group[k] += 1
        else:
            begun.add((slot - 1) % cells)
            if len(begun) == cells:
                return slot
    raise AssertionError


@settings(max_examples=40)
@given(
    st.tuples(st.floats(0.1, 2), st.floats(0.1, 3), st.floats(0.1, 2)),
    st.floats(0, 0.5),
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 2)),
    st.integers(1, 4),
)
def test_exploitation_begins_when_every_arm_has_enough_labels(
    scales: tuple[float, float, float], power: float, arms: tuple[int, int, int], cells: int
) -> None:
    thresholds = tuple(Threshold(scale, power) for scale in scales)
    functions, untrained, peers = arms

    found = exploitation_begins(
        thresholds, functions=functions, untrained=untrained, peers=peers, cells=cells
    )  # type: ignore[arg-type]

    assert found == first_exploitation(thresholds, arms, cells)  # type: ignore[arg-type]


@pytest.mark.parametrize("slices", [1, 3])
def test_a_replay_begins_to_exploit_in_the_computed_slot(slices: int) -> None:
    """In C1: only the first learner receives instances, its contexts take the cells in turn."""
    names = ["a", "b", "c"]
    config = {
        "policy": {"preset": "cos", "slices": slices},
        "learner": [
            {"name": name, "functions": [f"{name}1", f"{name}2"], "arrivals": name == "a",
             "peers": {other: 0.1 for other in names if other != name}}
            for name in names
        ],
    }  # fmt: skip
    rows = 2_000
    contexts = (np.arange(rows) % slices + 0.5)[:, None] / slices
    trace = covey.replay(
        config, predictions=np.ones((6, rows), int), labels=np.ones(rows, int), contexts=contexts
    )
    policy = CoS(slices=slices).resolve(dimension=1, most_functions=2)

    begins = exploitation_begins(
        (policy.explore, policy.train, policy.explore_peers), functions=2, peers=2, cells=slices
    )

    exploited = np.flatnonzero(trace.phase == 2)
    firsts = [exploited[exploited % slices == cell][0] for cell in range(slices)]
    assert begins == max(firsts) + 1


def test_cos_with_the_theorem_s_parameters_exploits_late() -> None:
    found = {case: exploitation(Problem(), case) for case in CASES}

    # Z t^(1/2) ln t < t / t^(1/4) from 3.4e9 on, with K in place of Z from 6.9e7 on.
    assert found["C1"].least_horizon == pytest.approx(3.4e9, rel=0.05)
    assert found["C2"].least_horizon == pytest.approx(6.9e7, rel=0.05)
    assert all((one.slot or 0) > 20_000 for case, one in found.items() if case in ("C1", "C2"))
    assert found["C4"].slot == found["C4"].least_horizon == 1286


def test_exploitation_after_2_to_the_53_slots_is_none() -> None:
    thresholds = (Threshold(1.0, 0.99), Threshold(1.0, 0.99), Threshold(1.0, 0.99))

    assert exploitation_begins(thresholds, functions=2, peers=3, cells=100) is None
    assert exploitation(Problem(alpha=0.01, dimension=8), "C1").least_horizon is None


def test_theorem_names_have_aliases_and_ignore_case() -> None:
    assert chosen(["cos", "t4", "T1"]) == ["T1", "T4"]
    assert chosen(["T6"]) == chosen(["DCZA"]) == list(CASES)
    assert chosen([]) == list(THEOREMS)


def test_other_invalid_arguments_give_a_message() -> None:
    with pytest.raises(ConfigError, match="unknown theorem 'T11'; did you mean 'T1'"):
        bound("T11")
    with pytest.raises(ConfigError, match="unknown form 'print'; did you mean 'printed'"):
        bound("T1", form="print")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"C1 at a horizon of 1e.300 overflows \(1.8e.308\)"):
        bound("C1", Problem(split_power=2.1, dimension=8, horizon=1e300))


@given(problems)
@example(Problem(dimension=0))
@example(Problem(dimension=0, lipschitz=10.0))  # one cell: L plays no part
def test_printed_forms_match_the_paper(problem: Problem) -> None:
    d = problem.dimension
    names = [name for name in PAPER if d or name != "T5"]
    printed = {name: value(name, problem, "printed") for name in names}
    p = split_power(problem.alpha, d)
    time = d / (3 * problem.alpha + d + 1)

    assert printed["T1"] == pytest.approx(cos_by_hand(problem, d), rel=1e-12)
    assert printed["T2"] == pytest.approx(cos_by_hand(problem, d + 1, third=time), rel=1e-12)
    if (share := problem.label_probability) < 1:
        assert printed["T4"] == pytest.approx(cos_by_hand(problem, d, p_r=share), rel=1e-12)
    for case in ("C1", "C2", "C3", "C4") if d else ():
        assert printed[case] == pytest.approx(dcza_by_hand(problem, case, p), rel=1e-9)


@given(problems)
def test_corrected_forms_differ_where_the_paper_is_wrong(problem: Problem) -> None:
    alpha, d = problem.alpha, problem.dimension

    assert value("T2", problem) == pytest.approx(cos_by_hand(problem, d + 1), rel=1e-12)
    assert value("T5", problem) == pytest.approx(d * cos_by_hand(problem, 1), rel=1e-12)
    for case in ("C3", "C4"):
        by_hand = dcza_by_hand(problem, case, 3 * alpha)
        assert value(case, problem) == pytest.approx(by_hand, rel=1e-9)


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
