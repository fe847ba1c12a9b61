"""Pending labels narrow the bounds of an index, so decisions before their labels are spread."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.learner import Learner
from covey.errors import FunctionError
from covey.network.local_site import LocalSite
from covey.server.config import load as load_site
from support.presets import INDEXED
from support.served import SITE
from support.snapshots import snapshot_of

ROWS = 300
OWN = ["a", "b", "c"]
PEERS = ["south", "east"]
LEARNERS = [
    {"name": "north", "functions": OWN, "peers": dict.fromkeys(PEERS, 0.0)},
    {"name": "south", "functions": ["d", "e"], "peers": {}},
    {"name": "east", "functions": ["f"], "peers": {}},
]


def is_spread(arms: list[str], names: list[str]) -> bool:
    """Return whether each of the arms got at least half of its equal share."""
    counts = Counter(arms)
    return min(counts[name] for name in names) >= len(arms) / (2 * len(names))


def network(learners: list[dict[str, Any]], dimension: int) -> covey.Network:
    functions = {name: (lambda _: 1) for learner in learners for name in learner["functions"]}
    return covey.Network({"learner": learners}, functions=functions, dimension=dimension)


@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("peers", [[], PEERS])
def test_the_first_batch_of_a_fresh_site_is_spread_over_all_arms(
    peers: list[str], dimension: int
) -> None:
    learners = [{**LEARNERS[0], "peers": dict.fromkeys(peers, 0.0)}, *LEARNERS[1:]]
    contexts = np.random.default_rng(1).random((ROWS, dimension))

    answers = network(learners, dimension)["north"].predict_batch([0] * ROWS, contexts)

    arms = [answer.arm for answer in answers]
    assert {*OWN, *peers[:1]} <= set(arms)
    assert is_spread([arm for arm in arms if arm in OWN], OWN)  # an unknown peer seems worse


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
    arms = replayed(pending=True, delay=delay)[:delay]
    assert {*OWN, *PEERS[:1]} <= set(arms)
    assert is_spread([arm for arm in arms if arm in OWN], OWN)
    assert not is_spread(replayed(pending=False, delay=delay)[:delay], OWN)


def test_without_pending_all_rows_go_to_one_arm_until_a_label_comes() -> None:
    assert replayed(pending=False, delay=ROWS) == ["a"] * ROWS


def test_labels_that_come_at_once_are_never_pending() -> None:
    assert replayed(pending=True, delay=0) == replayed(pending=False, delay=0)


@pytest.mark.parametrize("pending", ["", "pending = true\n", "pending = false\n"])
def test_a_site_counts_pending_labels_unless_configured_otherwise(
    tmp_path: Path, pending: str
) -> None:
    """Its preset is the default one in any case."""
    file = tmp_path / "site.toml"
    file.write_text(SITE.replace('preset = "cos"\n', pending).replace("slices = 4\n", ""))
    site = load_site(file)

    arms = [decided(site.learner, 0.5) for _ in range(12)]

    assert site.setup.settings.preset == "auto"
    assert is_spread(arms, ["zero", "one"]) == ("false" not in pending)


def decided(learner: Learner, *context: float) -> str:
    slot = learner.slot + 1
    code = learner.decide(context, slot)
    learner.advance(slot)
    return learner.choice(code).arm


def alone(preset: str, **policy: Any) -> LocalSite:
    """Return the only site of a network, whose functions answer 0 and fail for None."""

    def zero(instance: Any) -> int:
        return 0 * instance

    table = {"preset": preset, "pending": True, **policy}
    learner = {"name": "north", "functions": ["a", "b"], "peers": {}}
    setup = {"policy": table, "learner": [learner]}
    return covey.Network(setup, functions={"a": zero, "b": zero}, dimension=1)["north"]


def pending(site: LocalSite) -> list[list[int]]:
    """Return the pending labels, cell by cell, arm by arm."""
    learner = site.learner
    table = learner.tables[""]
    return [table.saved.pending(row) for row in range(len(table))]


def test_pending_labels_count_in_the_cells_of_all_sizes_around_them() -> None:
    site = alone("auto")
    for context in (0.1, 0.4, 0.45):
        site.predict(1, (context,))

    # The coarsest cell and a half of it have all three; quarters have 1 and 2.
    counts = sorted(sum(arms) for arms in pending(site))
    assert counts[-3:] == [2, 3, 3]


@pytest.mark.parametrize("preset", INDEXED)
def test_nothing_is_pending_once_labels_came_or_their_wait_has_expired(preset: str) -> None:
    site = alone(preset, **{"label-wait": 30})
    rng = np.random.default_rng(3)
    for turn in range(60):
        ticket = site.predict(1, (rng.random(),)).ticket
        if turn % 3 == 0:
            site.learn(ticket, turn % 2)
        if turn % 5 == 0:
            with pytest.raises(FunctionError):
                site.predict(None, (rng.random(),))
    assert any(any(arms) for arms in pending(site))

    last = site.predict(1, (0.5,), slot=site.learner.slot + 31)
    site.learn(last.ticket, 0)

    assert not any(any(arms) for arms in pending(site))


@pytest.mark.parametrize("preset", INDEXED)
def test_labels_pending_at_an_alarm_count_until_they_come(preset: str) -> None:
    site = alone(preset, alarm=1.0)
    # From the 32nd instance on, they are in a cell of the same size.
    tickets = [site.predict(1, (0.5,)).ticket for _ in range(45)]
    for ticket in tickets[:25]:
        site.learn(ticket, 0)  # right
    for ticket in tickets[25:35]:
        site.learn(ticket, 1)  # wrong
    assert snapshot_of(site.learner).doubts[""][2:] != [0, 0]

    assert all(sum(arms) == 10 for arms in pending(site))
