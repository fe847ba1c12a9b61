"""A batch as one slot (`batch = "slot"`): everywhere the same decisions, on the same batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.errors import FunctionError, LateLabel
from covey.node.node import Question
from covey.node.requests import AskRow
from covey.node.workers import Limits
from support import virtual
from support.flow import SITES, SLOTS, Stream, config_of, recorded_stream, site_file
from support.site_processes import Client, Offices, served

BATCHES = 60
PROCESS_BATCHES = 25
Rows = list[tuple[Any, ...]]  # phase, arm, function, price, whether it was right


@pytest.fixture(scope="module")
def stream() -> Stream:
    """Return a stream in batches of 1 to 9 rows, each of which arrives at one site."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 10, SLOTS)
    batch = np.repeat(np.arange(SLOTS), sizes)[:SLOTS]
    where = rng.integers(0, SITES, SLOTS)
    return recorded_stream()._replace(at=[f"site{where[number]}" for number in batch])


def batch_of(rows: int) -> np.ndarray:
    """Return the number of the batch of each row, as in `stream`."""
    sizes = np.random.default_rng(5).integers(1, 10, SLOTS)
    return np.repeat(np.arange(SLOTS), sizes)[:rows]


def batches(count: int) -> Iterator[tuple[int, list[int]]]:
    numbers = batch_of(SLOTS)
    for number in range(count):
        yield number, np.flatnonzero(numbers == number).tolist()


def config(preset: str, batch: str = "slot", **policy: Any) -> dict[str, Any]:
    table = config_of(preset, "spec")
    table["policy"] |= {"pending": False, "reading": {"batch": batch}, **policy}
    return table


def replayed(stream: Stream, table: dict[str, Any], count: int) -> Rows:
    rows = sum(len(places) for _, places in batches(count))
    trace = covey.replay(
        table,
        predictions=stream.predictions[:, :rows],
        labels=stream.labels[:rows],
        contexts=stream.contexts[:rows],
        at=stream.at[:rows],
        batch=batch_of(rows),
    ).columns()
    assert list(trace["slot"]) == (batch_of(rows) + 1).tolist()
    names = ("phase", "arm", "function", "cost", "correct")
    return list(zip(*(trace[name] for name in names), strict=True))


CASES = pytest.mark.parametrize(
    ("preset", "policy"),
    [
        ("cos", {}),
        ("cos", {"reading": {"batch": "slot", "queries": "one"}}),
        ("dcza", {}),
        ("dcza", {"inherit": True}),
        ("cos", {"pending": True}),
    ],
    ids=["cos", "one query", "dcza", "inherit", "pending"],
)


@CASES
def test_a_network_decides_the_rows_of_a_batch_in_one_slot_as_a_replay_does(
    stream: Stream, preset: str, policy: dict[str, Any]
) -> None:
    table = config(preset, **policy)
    network = covey.Network(table, functions=stream.functions, dimension=2)
    live: Rows = []
    for number, places in batches(BATCHES):
        site = network[stream.at[places[0]]]
        answers = site.predict_batch(places, stream.contexts[places], slot=number + 1)
        settled = site.learn_batch([one.ticket for one in answers], stream.labels[places])
        live += [
            (one.phase, one.arm, one.function, one.price, label.is_right)
            for one, label in zip(answers, settled, strict=True)
        ]

    assert live == replayed(stream, table, BATCHES)
    assert live != replayed_row_by_row(stream, table, BATCHES)
    assert any(row[1].startswith("site") for row in live)


def replayed_row_by_row(stream: Stream, table: dict[str, Any], count: int) -> Rows:
    rows = sum(len(places) for _, places in batches(count))
    reading = {**table["policy"]["reading"], "batch": "slots"}
    trace = covey.replay(
        {**table, "policy": {**table["policy"], "reading": reading}},
        predictions=stream.predictions[:, :rows],
        labels=stream.labels[:rows],
        contexts=stream.contexts[:rows],
        at=stream.at[:rows],
        batch=batch_of(rows),
    ).columns()
    names = ("phase", "arm", "function", "cost", "correct")
    return list(zip(*(trace[name] for name in names), strict=True))


@CASES
@pytest.mark.parametrize("trust", ["full", "isolated"])
def test_nodes_decide_the_rows_of_a_request_in_one_slot_restarted_or_not(
    stream: Stream, preset: str, policy: dict[str, Any], trust: str
) -> None:
    table = config(preset, **policy)

    live = virtual.run(through_nodes(stream, table, trust=trust, restart_every=1_000))
    restarted = virtual.run(through_nodes(stream, table, trust=trust, restart_every=3))

    assert live == restarted
    if trust == "full":  # as in a replay
        assert live == replayed(stream, table, BATCHES)


async def through_nodes(
    stream: Stream, table: dict[str, Any], *, trust: str, restart_every: int
) -> Rows:
    world = virtual.World(table, stream.functions, dimension=2, trust=trust)
    world.weather = virtual.Weather(delay_s=0.02, commit_s=0.004)
    live: Rows = []
    for number, places in batches(BATCHES):
        name = stream.at[places[0]]
        if number % restart_every == restart_every - 1:
            world.crash(name)
            world.boot(name)
        node, asked = world.nodes[name], Question("", str(number))
        request = await node.answer(
            places, stream.contexts[places], question=asked, slot=number + 1
        )
        rows, labels = list(range(len(places))), stream.labels[places].tolist()
        if number % restart_every == restart_every - 1:  # labels come after another restart
            world.crash(name)
            world.boot(name)
        settled = await world.nodes[name].learn_rows(str(number), rows, labels)
        await world.nodes[name].drained()
        for row in rows:
            group, function = request.group(row), request.function(row)
            live.append((group.phase, group.arm, function, group.price, settled.is_right[row]))
    for node in world.nodes.values():
        node.stop()
    return live


@pytest.mark.beside_the_kernel
def test_served_sites_decide_the_rows_of_a_request_in_one_slot_as_a_replay_does(
    stream: Stream, tmp_path: Path
) -> None:
    table = config("cos", **{"check-claims": False})
    offices = Offices(tmp_path, [f"site{k}" for k in range(SITES)])
    sites = {f"site{k}": site_file(offices, table, k) for k in range(SITES)}

    with served(tmp_path, sites) as clients:
        live = [
            row
            for number, places in batches(PROCESS_BATCHES)
            for row in through(clients[stream.at[places[0]]], stream, number, places)
        ]

    assert live == [row[1] for row in replayed(stream, table, PROCESS_BATCHES)]


def through(client: Client, stream: Stream, number: int, places: list[int]) -> list[str]:
    """Send a batch and its labels to a site; return the arms."""
    count = len(places)
    features = stream.predictions[:, places].T.reshape(-1).tolist()
    points = stream.contexts[places].reshape(-1).tolist()
    inputs = [
        {"name": "instances", "shape": [count, 2 * SITES], "datatype": "INT64", "data": features},
        {"name": "context", "shape": [count, 2], "datatype": "FP64", "data": points},
    ]
    told = client.infer(str(number), inputs, outputs=[{"name": "arm"}], slot=number + 1)
    client.label_rows(str(number), stream.labels[places].tolist())
    client.drain()
    return list(told["outputs"][0]["data"])


def test_the_rows_of_a_batch_take_one_slot() -> None:
    network = small_network(lambda x: 0)

    answers = network["north"].predict_batch([1, 2, 3], [(0.1,), (0.2,), (0.3,)])

    assert network["north"].learner.slot == 1
    assert [one.arm for one in answers] == ["a", "a", "a"]
    assert network["north"].predict(4, (0.1,)).ticket == 4
    assert network["north"].learner.slot == 2


def test_a_batch_in_one_slot_may_be_longer_than_label_wait() -> None:
    table = small_config()
    table["policy"]["label-wait"] = 2
    site = covey.Network(table, functions=dict.fromkeys("abc", lambda x: 0), dimension=1)["north"]

    answers = site.predict_batch(list(range(50)), np.full((50, 1), 0.5))
    settled = site.learn_batch([one.ticket for one in answers], [0] * 50)

    assert all(one.is_new for one in settled)


def test_a_context_of_time_is_the_same_in_all_rows_of_a_slot() -> None:
    table = small_config()
    table["policy"]["slices"] = 4
    table["data"] = {"context": [{"scale": "slot", "horizon": 4}]}
    site = covey.Network(table, functions=dict.fromkeys("abc", lambda x: 0))["north"]

    batches = [site.predict_batch([{}, {}, {}]) for _ in range(3)]

    assert [{site.cell_of(one.ticket) for one in answers} for answers in batches] == [
        {"g4:1"},
        {"g4:2"},
        {"g4:3"},
    ]


def test_a_batch_in_one_slot_that_fails_changes_no_counter() -> None:
    def fails_at_7(x: int) -> int:
        if x == 7:
            raise ValueError(x)
        return 0

    network = small_network(fails_at_7)
    site = network["north"]
    for k in range(5):
        site.learn(site.predict(k, (0.1 * k,)).ticket, 0)
    before = site.learner.snapshot(), network["south"].learner.snapshot()

    with pytest.raises(FunctionError, match="7"):
        site.predict_batch([5, 6, 7, 8], [(0.1,), (0.3,), (0.7,), (0.9,)])

    assert (site.learner.snapshot(), network["south"].learner.snapshot()) == before
    assert site.predict(9, (0.1,)).ticket == 6


def small_config() -> dict[str, Any]:
    return {
        "policy": {"preset": "cos", "slices": 1, "reading": {"batch": "slot"}},
        "learner": [
            {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.1}},
            {"name": "south", "functions": ["c"]},
        ],
    }


def small_network(function: Any) -> covey.Network:
    return covey.Network(small_config(), functions=dict.fromkeys("abc", function), dimension=1)


@pytest.mark.parametrize("source", ["own clients", "a peer"])
def test_a_node_whose_tickets_share_slots_makes_room_for_new_ones(source: str) -> None:
    """Only new tickets let slots pass: by its limit it would refuse for good."""

    async def answered() -> tuple[list[int], list[str]]:
        table = small_config()
        world = virtual.World(table, dict.fromkeys("abc", lambda x: 0), dimension=1, trust="full")
        world.limits = Limits(tickets=20, peer_tickets=20)
        for name in ("north", "south"):
            world.crash(name)
            world.boot(name)
        node = world.nodes["north"]
        held = []
        for number in range(1, 12):
            rows, ids = [0, 1, 2, 3, 4], [f"{number}:{row}" for row in range(5)]
            if source == "own clients":
                asked = Question("", str(number))
                await node.answer(rows, np.full((5, 1), 0.5), question=asked, slot=number)
            else:
                asked_rows = [AskRow(one, "g1:0", number, 0) for one in ids]
                await node.assist(asked_rows, source="south")
            held.append(node.state().open_tickets + node.state().for_peers.open_tickets)
        outcomes = []
        for number in (1, 11):
            try:
                if source == "own clients":
                    await node.learn_rows(str(number), [0], [0])
                    outcomes.append("taken")
                else:
                    outcomes += await node.take_labels([(f"{number}:0", 0)], source="south")
            except LateLabel:
                outcomes.append("late")
        for one in world.nodes.values():
            one.stop()
        return held, outcomes

    held, outcomes = virtual.run(answered())

    assert held == [5, 10, 15] + [20] * 8
    assert outcomes == ["late", "taken"]
