"""Index policies decide as their reference where peers are cheap and where accuracies change."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.policies import policy_from
from covey.kernel import Clock, arm_of, code_of, table_of
from covey.kernel.rules import Cell as KernelCell
from reference import Site
from reference.index import PRESETS
from reference.owners import index_setup
from support.effort import effort
from support.networks import DELAYS, Case, kernel_rows, reference_rows, turned

SLOTS = effort(80, plain=60, long=300)


def crowded_case(preset: str, seed: int, **changes: Any) -> Case:
    """Four sites on one stream whose peers cost less than their own functions."""
    rng = np.random.default_rng(seed)
    made = tuple(
        Site(
            name=f"site{place}",
            functions=2,
            costs=(0.25, 0.25),
            arrivals=place < 3,
            peers=tuple((k, float(rng.choice([0.0, 0.1]))) for k in range(4) if k != place),
        )
        for place in range(4)
    )
    labels = rng.integers(0, 3, SLOTS)
    wrong = rng.random((8, SLOTS)) < rng.random((8, 1))
    return Case(
        setup=index_setup(
            preset,
            made,
            slices=int(rng.choice([1, 2])),
            **changes,
        ),
        contexts=rng.random((SLOTS, 1)),
        predictions=np.where(wrong, labels + 1, labels),
        labels=labels,
        at=None,
        revealed=None,
        delay=rng.choice(DELAYS, SLOTS),
    )


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("seed", range(effort(3, plain=1, long=6)))
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_the_kernel_keeps_to_the_reference_where_peers_are_cheaper(
    preset: str, seed: int, pending: bool
) -> None:
    case = crowded_case(preset, seed, pending=pending)

    assert kernel_rows(case) == reference_rows(case)


@settings(max_examples=effort(10, plain=6, long=60))
@given(
    preset=st.sampled_from(sorted(PRESETS)),
    alarm=st.sampled_from([0.3, 1.0, 3.0, 9.0]),
    seed=st.integers(0, 2**32),
    is_shared=st.booleans(),
    pending=st.booleans(),
)
def test_the_kernel_forgets_when_the_reference_does(
    preset: str, alarm: float, seed: int, is_shared: bool, pending: bool
) -> None:
    case = turned(crowded_case(preset, seed, alarm=alarm, pending=pending))
    if not is_shared:
        case = replace(case, at=np.random.default_rng(seed).integers(0, 3, SLOTS))

    assert kernel_rows(case) == reference_rows(case)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_pending_labels_change_decisions(preset: str) -> None:
    """Otherwise nothing above would have compared them."""
    rows = [reference_rows(crowded_case(preset, 0, pending=pending)) for pending in (False, True)]

    assert rows[0] != rows[1]


def test_a_partly_right_answer_of_a_peer_does_not_change_which_function_is_served() -> None:
    settings = policy_from({"preset": "share-ucb", "slices": 2})
    policy = settings.resolve(dimension=1, most_functions=2)
    rule = policy.rule(position=0, functions=2, costs=(0.0, 0.0, 0.1), unit=4)
    table = table_of(Clock(*policy.curves()), rule)
    row = table.cells.meet(KernelCell(0, (0,)), 40)
    first = arm_of(table.serve(row, 40))

    table.settle(code_of(row, 2, 1), 3, (0.2,), 40)

    assert arm_of(table.serve(row, 40)) == first
