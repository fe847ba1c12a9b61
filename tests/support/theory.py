"""Problems to try theorems on, and the theorems typed off the paper, in its letters."""
# ruff: noqa: N806 - the paper's letters

import math
from typing import Any

import msgspec
from hypothesis import strategies as st

from covey.bandit.bounds import FORMS, THEOREMS, Form, Problem

PAPER = [*THEOREMS]

problems = st.builds(
    Problem,
    horizon=st.floats(2, 1e12),
    alpha=st.floats(0.1, 1),
    dimension=st.integers(1, 8),
    lipschitz=st.floats(0.01, 100),
    learners=st.integers(1, 20),
    functions=st.integers(1, 5),
    most_functions=st.integers(5, 9),
    label_probability=st.floats(0.01, 1),
    longest_delay=st.integers(0, 10_000),
    split_scale=st.floats(1, 10),
)
forms = st.sampled_from(FORMS)


def changed(problem: Problem, **changes: Any) -> Problem:
    return msgspec.structs.replace(problem, **changes)


def value(name: str, problem: Problem, form: Form = "corrected") -> float:
    return math.fsum(term.value for term in THEOREMS[name].state(problem, form).terms)


def letters(problem: Problem) -> tuple[float, float, float, int, int, int]:
    """Return T, alpha, L, M - 1, |F_i| and F_max."""
    return (problem.horizon, problem.alpha, problem.lipschitz, problem.learners - 1,
            problem.functions, problem.most)  # fmt: skip


def cos_by_hand(problem: Problem, d: int, *, third: float | None = None, p_r: float = 1) -> float:
    """Return T1, T2 or T4 as it is printed: by the dimension, the third exponent, the labels."""
    T, a, L, peers, F_i, F_max = letters(problem)
    b2, Z, K = math.pi**2 / 6, F_i + peers * (F_max + 1), F_i + peers
    first = K if p_r == 1 else (K + peers) / p_r
    return (
        T ** ((2 * a + d) / (3 * a + d))
        * (
            2 * (2 * L * d ** (a / 2) + 6) / ((2 * a + d) / (3 * a + d))
            + 2**d * Z / p_r * math.log(T)
        )
        + T ** ((a + d) / (3 * a + d)) * 2 ** (d + 2) * peers * F_max * b2 / (2 * a / (3 * a + d))
        + T ** (d / (3 * a + d) if third is None else third) * 2**d * (2 * Z * b2 + first)
        + 4 * peers * F_max * b2
    )


def dcza_by_hand(problem: Problem, case: str, p: float) -> float:
    """Return T6 as it is printed, with the given p."""
    T, a, L, peers, F_i, F_max = letters(problem)
    b2, Z, K = math.pi**2 / 6, F_i + peers * (F_max + 1), F_i + peers
    d, A, q = problem.dimension, problem.split_scale, Z if case in ("C1", "C3") else K
    B = 12 / (L * d ** (a / 2) * 2**-a) + 2
    if case in ("C1", "C2"):
        root = math.sqrt(9 * a**2 + 8 * a * d) / 2
        f1 = (d + a / 2 + root) / (d + 3 * a / 2 + root)
        f2 = d / (d + 3 * a / 2 + root) + a / (3 * a / 2 + root)
        f3 = d / (d + 3 * a / 2 + root)
        near = 2 * A * B * L * d ** (a / 2) * 2 ** (d + p - a)
        return (
            T**f1 * (near + 2 ** (2 * d) * q * math.log(T))
            + T**f2 * 2 ** (2 * d + 3) * peers * F_max * b2
            + T**f3 * 2 ** (2 * d) * (2 * peers * F_max * b2 + q + 4 * b2 * F_i)
        )
    near = 2 * A * B * L * d ** (a / 2) * 2 ** (2 * (p - a)) / (2 ** (p - a) - 1)
    levels = math.log2(T) / p
    return (
        T ** (2 / 3) * (q * math.log(T) * levels + near)
        + T ** (1 / 3) * 12 * peers * F_max * b2 * (levels + 1)
        + (q + 4 * b2 * F_i + 2 * peers * F_max * b2) * (levels + 1)
    )
