"""Labels of which most never come."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import covey
from support.presets import fitting

WAIT = 15  # slots, of labels that come up to 24 slots late


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
@pytest.mark.parametrize("sites", [1, 3])
def test_labels_are_waited_for_as_long_live_as_in_a_replay(preset: str, sites: int) -> None:
    rng, slots = np.random.default_rng(4), 400
    names = [f"site{k}" for k in range(sites)]
    labels, at = rng.integers(0, 2, slots), rng.integers(0, sites, slots)
    accuracy = rng.uniform(0.5, 0.95, (2 * sites, 1))
    said = np.where(rng.random((2 * sites, slots)) < accuracy, labels, 1 - labels)
    contexts, delays = rng.random((slots, 1)), rng.integers(0, 25, slots)
    cells = {} if preset == "auto" else {"slices": 4}
    policy = fitting({"preset": preset, "pending": True, "label-wait": WAIT, **cells})
    own = [[f"f{2 * k}", f"f{2 * k + 1}"] for k in range(sites)]
    learners = [{"name": names[k], "functions": own[k]} for k in range(sites)]
    config = {"policy": policy, "learner": learners}
    functions = {f"f{k}": lambda row, k=k: int(said[k, row]) for k in range(2 * sites)}

    network = covey.Network(config, functions=functions, dimension=1)
    live, tickets = [], []
    for slot in range(slots):
        site = network[names[at[slot]]]
        answer = site.predict(slot, tuple(contexts[slot]), slot=slot + 1)
        live.append((answer.phase, answer.arm, answer.function))
        tickets.append((site, answer.ticket))
        # In a replay, a label that comes at once comes before late ones of the same slot.
        for early in [slot, *range(max(0, slot - WAIT), slot)]:
            if early + delays[early] == slot:
                tickets[early][0].learn(tickets[early][1], int(labels[early]))

    where = [names[k] for k in at]
    replayed = covey.replay(
        config, predictions=said, labels=labels, contexts=contexts, delay=delays, at=where
    ).columns()
    assert live == list(zip(*(replayed[key] for key in ("phase", "arm", "function")), strict=True))


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


def test_the_error_with_a_tenth_of_the_labels_is_near_that_without_pending() -> None:
    with_pending, _ = played(0.1)
    without, _ = played(0.1, pending=False)
    late = slice(1_000, 2_000)

    assert 1 - with_pending.correct[late].mean() <= 1.1 * (1 - without.correct[late].mean())
