"""Trials: windows chosen by rule, with functions that were not trained on them."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction import data
from reproduction.experiments import (
    Trial,
    electricity_trials,
    electricity_with_last_label,
    functions_before,
    other_window_trials,
    paper_trials,
    window_groups,
)
from reproduction.models import KINDS, SETS, START, TRAINING_ROWS, PredictionCache

DATA = os.environ.get("COVEY_DATA", "")
has_kdd = pytest.mark.skipif(
    not (Path(DATA) / data.KDD.file).is_file(),
    reason="COVEY_DATA names no folder with the KDD Cup 1999 data",
)


def is_apart(trial: Trial) -> bool:
    """Say whether no function is trained on rows of the window."""
    return all(
        function.start + function.rows <= trial.start
        for function in trial.functions
        if function.kind in KINDS
    )


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 20))
def test_groups_contain_all_windows_with_the_share_of_attacks(
    labels: list[bool], slots: int
) -> None:
    found = window_groups(np.array(labels, np.int8), slots=slots)

    wanted = [
        start
        for start in range(len(labels) - slots + 1)
        if 46 * slots <= 100 * sum(labels[start : start + slots]) <= 48 * slots
    ]
    assert [int(start) for group in found for start in group] == wanted
    assert all((np.diff(group) == 1).all() for group in found)
    assert all(one[-1] + 1 < other[0] for one, other in pairwise(found))


@given(st.integers(TRAINING_ROWS, 400_000), st.sampled_from(sorted(SETS)))
def test_functions_are_trained_on_rows_before_the_window(start: int, name: str) -> None:
    functions = functions_before(start, SETS[name])

    assert is_apart(Trial("", functions, start))
    assert [function.name for function in functions] == [function.name for function in SETS[name]]
    assert functions[0].start == 0
    assert functions[6].start == start - TRAINING_ROWS


def test_the_paper_has_two_sets_of_eight_functions_on_one_window() -> None:
    assert [(trial.name, len(trial.functions), trial.start) for trial in paper_trials()] == [
        ("S1", 8, START),
        ("S2", 8, START),
    ]
    assert all(is_apart(trial) for trial in paper_trials())


def test_electricity_has_eight_windows_after_eight_training_segments() -> None:
    found = electricity_trials()

    assert [trial.start for trial in found] == list(range(8_000, 27_200, 2_400))
    assert found[-1].start + found[-1].slots <= data.ELECTRICITY.rows
    assert all(is_apart(trial) for trial in found)
    assert sorted(function.start for function in found[0].functions) == list(range(0, 8_000, 1_000))


def test_the_last_label_replaces_one_function_of_the_last_learner() -> None:
    for plain, other in zip(electricity_trials(), electricity_with_last_label(), strict=True):
        assert other.start == plain.start
        assert other.functions[:-1] == plain.functions[:-1]
        assert other.functions[-1].kind == "last-label"
        assert other.name != plain.name


@has_kdd
def test_the_real_stream_has_four_groups_and_two_are_outside_the_paper_s_window() -> None:
    stream = data.load_kdd(Path(DATA))

    assert [(int(group[0]), int(group[-1])) for group in window_groups(stream.labels)] == [
        (31_358, 31_759),
        (64_783, 65_183),
        (80_353, 80_753),
        (129_387, 136_463),
    ]
    assert [(trial.name, trial.start) for trial in other_window_trials(stream)] == [
        ("S1 from row 31558", 31_558),
        ("S2 from row 31558", 31_558),
        ("S1 from row 132925", 132_925),
        ("S2 from row 132925", 132_925),
    ]


@has_kdd
def test_other_windows_have_good_and_poor_functions() -> None:
    stream = data.load_kdd(Path(DATA))
    answers = PredictionCache(stream)
    for trial in other_window_trials(stream):
        errors = answers.error_rates(trial.functions, start=trial.start, slots=trial.slots)
        if trial.name.startswith("S1"):
            assert min(errors) < 15.0
        assert max(errors) > 45.0
