"""Baselines equal slow definitions; unknown names are refused."""

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import MissingExtra
from covey.replay.baselines import (
    BASELINES,
    PLAIN,
    BaselineRun,
    FollowTheLeader,
    PreviousLabel,
    make,
)
from support.streams import log_of, stream


def answers(baseline: Any, said: Any, labels: Any, delays: Any = None) -> list[int]:
    (given_answers,) = BaselineRun([baseline]).add(log_of(said, labels, delays)).values()
    return [int(one) for one in given_answers]


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-1, 6)), min_size=1, max_size=25
    )
)
def test_the_previous_label_is_that_of_the_latest_slot_of_those_that_came(
    rows: list[tuple[int, int, int]],
) -> None:
    said, labels, delays = zip(*rows, strict=True)
    expected = []
    for slot in range(len(rows)):
        came = [s for s in range(slot) if delays[s] >= 0 and s + delays[s] < slot]
        expected.append(labels[max(came)] if came else said[slot])

    assert answers(PreviousLabel(), [said], labels, delays) == expected


def test_the_leader_is_the_function_that_was_right_most_often() -> None:
    said, labels = stream([0.6, 0.5, 0.65], 300, classes=3, seed=1)
    is_right = said == labels
    expected = [int(said[is_right[:, :t].sum(axis=1).argmax(), t]) for t in range(300)]

    assert answers(FollowTheLeader(3), said, labels) == expected


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in PLAIN])
def test_without_river_its_baselines_name_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [one for one in sys.modules if one.partition(".")[0] == "river"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "river", None)

    with pytest.raises(MissingExtra, match=r'pip install "\.\[river\]"'):
        make([name], functions=2)


def test_a_bandit_learns_about_the_arm_that_it_pulled_however_late() -> None:
    # All labels come after the last slot but one, so what it knows then is what it pulled.
    labels = np.ones(40, int)
    said = np.array([np.zeros(40, int), labels])
    delays = np.arange(40)[::-1]
    (bandit,) = make(["river-ucb"], functions=2, seed=1)
    pulled = answers(bandit, said, labels, delays)[:39]
    after = answers(bandit, said, labels)

    assert 0 < sum(pulled) < 39
    assert sum(after) > 30
