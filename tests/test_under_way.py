"""Labels under way make an index surer, so that many decisions before their labels are spread."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.config import load
from covey.learner import Learner
from covey.node.network import learner_of
from covey.policies import ALARMED, INDEXED
from covey.sites import load as load_site
from served import SITE

ROWS = 300
OWN = ["a", "b", "c"]
PEERS = ["south", "east"]
LEARNERS = [
    {"name": "north", "functions": OWN, "peers": dict.fromkeys(PEERS, 0.0)},
    {"name": "south", "functions": ["d", "e"], "peers": {}},
    {"name": "east", "functions": ["f"], "peers": {}},
]


def is_spread(arms: list[str], names: list[str]) -> bool:
    """Say whether each of the arms got at least half of its equal share."""
    counts = Counter(arms)
    return min(counts[name] for name in names) >= len(arms) / (2 * len(names))


def network(learners: list[dict[str, Any]], dimension: int) -> covey.Network:
    functions = {name: (lambda _: 1) for one in learners for name in one["functions"]}
    return covey.Network({"learner": learners}, functions=functions, dimension=dimension)


@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("peers", [[], PEERS])
def test_the_first_batch_of_a_fresh_site_is_spread_over_all_arms(
    peers: list[str], dimension: int
) -> None:
    learners = [{**LEARNERS[0], "peers": dict.fromkeys(peers, 0.0)}, *LEARNERS[1:]]
    contexts = np.random.default_rng(1).random((ROWS, dimension))

    answers = network(learners, dimension)["north"].predict_batch([0] * ROWS, contexts)

    assert is_spread([answer.arm for answer in answers], [*OWN, *peers])


def test_a_peer_spreads_its_share_of_a_batch_over_its_functions() -> None:
    answers = network(LEARNERS, 1)["north"].predict_batch([0] * ROWS, [(0.5,)] * ROWS)

    asked = [answer.function for answer in answers if answer.arm == "south"]
    assert is_spread(asked, ["d", "e"])


def replayed(*, pending: bool, delay: int) -> list[str]:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, ROWS)
    right = rng.random((6, ROWS)) < 0.7
    trace = covey.replay(
        {"policy": {"pending": pending}, "learner": LEARNERS},
        predictions=np.where(right, labels, 1 - labels),
        labels=labels,
        contexts=rng.random((ROWS, 1)),
        at=["north"] * ROWS,
        delay=np.full(ROWS, delay),
    )
    return list(trace.columns()["arm"])


@pytest.mark.parametrize("delay", [100, ROWS])
def test_single_rows_whose_labels_come_late_are_spread_over_all_arms(delay: int) -> None:
    assert is_spread(replayed(pending=True, delay=delay), [*OWN, *PEERS])
    assert not is_spread(replayed(pending=False, delay=delay), [*OWN, *PEERS])


def test_without_pending_rows_go_to_one_arm_until_a_label_comes() -> None:
    assert replayed(pending=False, delay=ROWS) == ["a"] * ROWS


def test_labels_that_come_at_once_are_never_under_way() -> None:
    assert replayed(pending=True, delay=0) == replayed(pending=False, delay=0)


@pytest.mark.parametrize("pending", ["", "pending = true\n", "pending = false\n"])
def test_a_site_counts_what_is_under_way_unless_told_otherwise(
    tmp_path: Path, pending: str
) -> None:
    """And it has the default preset, whatever it says of this."""
    file = tmp_path / "site.toml"
    file.write_text(SITE.replace('preset = "cos"\n', pending).replace("slices = 4\n", ""))
    site = load_site(file)

    arms = [site.learner.choice(decide(site.learner, 0.5, slot)).arm for slot in range(1, 5)]

    assert site.setup.settings.preset == "auto"
    assert arms == (["zero"] * 4 if "false" in pending else ["zero", "one", "zero", "one"])


def decide(learner: Learner, context: float, slot: int) -> int:
    code = learner.decide((context,), slot)
    learner.advance(slot)
    return code


def alone(preset: str, **policy: Any) -> Learner:
    table = {"preset": preset, "pending": True, **policy}
    site = {"name": "north", "functions": ["a", "b"], "peers": {}}
    return learner_of(load({"policy": table, "learner": [site]}), 0, 1)


def under_way(learner: Learner) -> list[list[int]]:
    """Return what is counted as under way, cell by cell, arm by arm."""
    table = learner.tables[""]
    return [table.counters(row)[learner.pending_slice] for row in range(len(table))]


def test_what_is_under_way_counts_in_the_cells_of_all_sizes_around_it() -> None:
    learner = alone("auto")
    for slot, context in enumerate((0.1, 0.4, 0.45), 1):  # in one large cell, and in two small ones
        decide(learner, context, slot)

    # The large cell, then the small ones.
    assert [sum(arms) for arms in under_way(learner)] == [3, 1, 2]


@pytest.mark.parametrize("preset", sorted(INDEXED))
def test_nothing_is_under_way_once_labels_came_or_are_waited_for_no_longer(preset: str) -> None:
    learner = alone(preset)
    rng = np.random.default_rng(3)
    waiting = []
    for slot in range(1, 61):
        context = rng.random()
        code = decide(learner, context, slot)
        if slot % 3 == 0:
            learner.settle(code, slot % 2, (context,), slot)
        elif slot % 5 == 0:
            learner.retract(code, (context,), slot)
        else:
            waiting.append(code)
    assert any(any(arms) for arms in under_way(learner))

    learner.forget_rows(waiting)

    assert not any(any(arms) for arms in under_way(learner))


@pytest.mark.parametrize("preset", sorted(ALARMED))
def test_what_was_under_way_at_an_alarm_counts_until_its_label_comes(preset: str) -> None:
    learner = alone(preset, alarm=1.0)
    codes = [decide(learner, 0.5, slot) for slot in range(1, 41)]
    for slot in range(1, 31):
        learner.settle(codes[slot - 1], int(slot <= 20), (0.5,), slot)
    assert learner.snapshot().doubts[""][2:] != [0, 0]

    assert all(sum(arms) == 10 for arms in under_way(learner))
