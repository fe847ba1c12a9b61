"""Rows that are held by themselves, without a request, follow the rules of requests."""

from collections import deque
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.policies import PRESETS
from covey.errors import UnknownTicket
from support.presets import fitting
from support.snapshots import snapshot_of

SITES = [
    {"name": "north", "functions": ["zero", "odd"], "peers": {"south": 0.05, "east": 0.1}},
    {"name": "south", "functions": ["even", "sign"], "peers": {"north": 0.1}},
    {"name": "east", "functions": ["one"], "peers": {"south": 0.0}},
]
FUNCTIONS: dict[str, Any] = {
    "zero": lambda x: 0,
    "odd": lambda x: x % 2,
    "even": lambda x: 1 - x % 2,
    "sign": lambda x: int(x > 60),
    "one": lambda x: 1,
}
ROWS = 500


def network(preset: str = "cos", wait: int = 30, **data: Any) -> covey.Network:
    policy = fitting({"preset": preset, "slices": 3, "label-wait": wait})
    setup = {"policy": policy, "learner": SITES, **data}
    return covey.Network(setup, functions=FUNCTIONS, dimension=1)


def life(sites: covey.Network, *, is_batch: bool) -> list[Any]:
    """Answer rows one at a time, with labels that come late, twice or never; return all of it."""
    draw = np.random.default_rng(8)
    told: list[Any] = []
    open_: deque[tuple[str, int, int]] = deque()
    for site in sites.values():  # pending labels count from the first batch on
        told.append(site.predict_batch([1, 2], np.array([[0.1], [0.6]])))
    for _ in range(ROWS):
        name, row = str(draw.choice(list(sites))), int(draw.integers(120))
        context, site = (float(draw.random()),), sites[name]
        if is_batch:
            answer = site.predict_batch([row], np.array([context]))[0]
        else:
            answer = site.predict(row, context)
        told.append(answer)
        open_.append((name, answer.ticket, int(context[0] > 0.5)))
        while len(open_) > 7 or (open_ and draw.random() < 0.3):
            late, ticket, label = open_.popleft()
            if draw.random() < 0.1:
                continue
            for _ in range(1 + (draw.random() < 0.1)):
                told.append(settled(sites[late], ticket, label, is_batch=is_batch))
    told += [(snapshot_of(one.learner), one.state.open.pending_rows) for one in sites.values()]
    return told


def settled(site: Any, ticket: int, label: int, *, is_batch: bool) -> Any:
    try:
        return site.learn_batch([ticket], [label])[0] if is_batch else site.learn(ticket, label)
    except UnknownTicket as error:
        return str(error)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_row_is_answered_and_settled_as_a_batch_of_one(preset: str) -> None:
    assert life(network(preset), is_batch=False) == life(network(preset), is_batch=True)


def test_tickets_of_rows_and_of_batches_are_settled_together() -> None:
    north = network()["north"]
    alone = north.predict(3, (0.5,)).ticket
    batch = [one.ticket for one in north.predict_batch([4, 5], np.array([[0.1], [0.2]]))]

    assert [one.is_new for one in north.learn_batch([batch[1], alone], [1, 1])] == [True, True]
    assert [north.learn(ticket, 1).is_new for ticket in (alone, *batch)] == [False, True, False]
    assert north.state.open.pending_rows == 0


def test_a_row_without_a_label_expires_after_label_wait() -> None:
    north = network(wait=3)["north"]
    tickets = [north.predict(k, (0.5,)).ticket for k in range(5)]

    with pytest.raises(UnknownTicket, match="label-wait is 3 slots"):
        north.learn(tickets[0], 1)
    assert north.learn(tickets[1], 1).is_new
    assert north.state.open.pending_rows == 3


def test_a_label_that_was_waited_for_in_vain_counts_as_pending_no_longer() -> None:
    policy = {"preset": "cos", "slices": 1, "pending": True, "label-wait": 2}
    setup = {"policy": policy, "learner": [{"name": "site", "functions": ["zero", "one"]}]}
    functions = {name: FUNCTIONS[name] for name in ("zero", "one")}
    site = covey.Network(setup, functions=functions, dimension=1)["site"]
    table = site.learner.tables[""]

    counted = []
    for k in range(6):
        site.predict(k, (0.5,))
        counted.append(sum(table.saved.pending(0)))

    assert counted == [1, 2, 3, 3, 3, 3]
