"""Labels of which most never come."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import covey
from support import virtual
from support.flow import config_of, recorded_stream, through_nodes
from support.presets import fitting

LATE = 25  # slots until a label comes


@pytest.mark.parametrize("preset", ["cos", "dcza"])
def test_restarted_nodes_with_isolated_peers_decide_as_those_that_are_not(preset: str) -> None:
    """Each isolated peer has its own share of labels that arrive, which is stored, too."""
    config = config_of(preset, "spec")
    config["policy"]["pending"] = True
    restarted, steady = (
        virtual.run(
            through_nodes(
                recorded_stream(), config, restart_every=every, delay=LATE, trust="isolated"
            )
        )
        for every in (10, 10_000)
    )

    assert restarted == steady


def alone(preset: str, **policy: Any) -> dict[str, Any]:
    wait = {"pending": True, "label-wait": 10_000}
    table = fitting({"preset": preset, **wait, "slices": 1, **policy})
    return {"policy": table, "learner": [{"name": "north", "functions": ["a", "b", "c"]}]}


def played(share: float, delay: int = 0, **policy: Any) -> tuple[covey.Trace, np.ndarray]:
    """Return the trace of one site of which this share of labels comes, and which come."""
    rng = np.random.default_rng(8)
    slots = 2_000
    labels = rng.integers(0, 2, slots)
    right = rng.random((3, slots)) < [[0.6], [0.7], [0.9]]
    comes = rng.random(slots) < share
    trace = covey.replay(
        alone(**{"preset": "cos", **policy}),
        predictions=np.where(right, labels, 1 - labels),
        labels=labels,
        contexts=rng.random((slots, 1)),
        delay=np.full(slots, delay),
        revealed=comes.astype(int),
    )
    return trace, comes


def test_no_site_exploits_before_a_label_of_each_function_has_come() -> None:
    trace, comes = played(0.1)
    first = int(np.argmax(trace.phase == 2))
    known = Counter(trace.function[:first][comes[:first]].tolist())

    assert min(known[function] for function in range(3)) > 0
    assert first > 13


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_exploration_takes_as_many_labels_as_if_no_label_were_missing(share: float) -> None:
    """A pending label stands for no exploration: what is explored by labels stays the same."""

    def explored(comes_share: float) -> int:
        trace, comes = played(comes_share)
        return int(np.sum((trace.phase == 1) & comes))

    assert explored(share) >= 0.8 * explored(1.0)


def test_late_labels_that_all_come_are_counted_before_they_come() -> None:
    with_pending, _ = played(1.0, delay=50)
    without, _ = played(1.0, delay=50, pending=False)

    assert np.sum(with_pending.phase == 1) < np.sum(without.phase == 1)


def test_the_error_with_a_tenth_of_the_labels_is_near_that_without_pending() -> None:
    with_pending, _ = played(0.1)
    without, _ = played(0.1, pending=False)
    late = slice(1_000, 2_000)

    assert 1 - with_pending.correct[late].mean() <= 1.1 * (1 - without.correct[late].mean())


def test_a_first_batch_explores_all_rows_and_spreads_them() -> None:
    network = covey.Network(alone("cos"), functions=dict.fromkeys("abc", lambda _: 1), dimension=1)

    answers = network["north"].predict_batch([0] * 60, [(0.5,)] * 60)

    assert {answer.phase for answer in answers} == {"explore"}
    assert Counter(answer.arm for answer in answers) == {"a": 20, "b": 20, "c": 20}
