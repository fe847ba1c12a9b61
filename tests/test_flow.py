"""One stream, the same decisions everywhere: replay, a network in process, nodes, processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import covey
from covey.bandit.policies import ALARMED, PRESETS
from covey.node.node import Question
from support import virtual
from support.site_processes import Client, Offices, served, table

SITES = 3
SLOTS = 1_500
NODE_SLOTS = 500
PROCESS_SLOTS = 200
LATE = 25  # slots until a label comes
EARLY = {  # few cells and low thresholds, so that peers are asked soon
    "slices": 2,
    "split-scale": 5.0,
    "split-power": 2.0,
    "finest-level": 1,
    "lipschitz": 0.01,
    "explore": {"scale": 0.5, "power": 0.0},
    "train": {"scale": 1.0, "power": 0.0},
    "explore-peers": {"scale": 0.5, "power": 0.0},
}


Row = tuple[Any, ...]  # phase, arm, function, price, whether it was right


class Stream(NamedTuple):
    """A recorded stream, and functions that say what was recorded of them."""

    predictions: Any
    labels: Any
    contexts: Any
    at: list[str]

    @property
    def functions(self) -> dict[str, Callable[[int], int]]:
        rows = enumerate(self.predictions)
        return {f"f{k}": lambda slot, row=row: int(row[slot]) for k, row in rows}


OWN = "support.own_policies"
EVERY_POLICY = [*sorted(PRESETS), f"{OWN}:CellUCB", f"{OWN}:EpsilonGreedy"]


@pytest.fixture(scope="module")
def stream() -> Stream:
    rng = np.random.default_rng(11)
    labels = rng.integers(0, 2, SLOTS)
    is_right = rng.random((2 * SITES, SLOTS)) < rng.uniform(0.5, 1.0, (2 * SITES, 1))
    predictions = np.where(is_right, labels, 1 - labels)
    contexts = rng.random((SLOTS, 2))
    at = [f"site{k}" for k in rng.integers(0, SITES, SLOTS)]
    return Stream(predictions, labels, contexts, at)


@pytest.mark.parametrize("preset", EVERY_POLICY)
@pytest.mark.parametrize("mode", ["spec", "paper"])
def test_replay_and_the_network_in_process_decide_the_same(
    stream: Stream, preset: str, mode: str
) -> None:
    config = _config(preset, mode)

    assert _decided_in_a_network(stream, config) == _replayed(stream, config)


@pytest.mark.parametrize("preset", EVERY_POLICY)
@pytest.mark.parametrize("mode", ["spec", "paper"])
def test_replay_and_nodes_over_a_slow_network_decide_the_same(
    stream: Stream, preset: str, mode: str
) -> None:
    config = _config(preset, mode)

    live = virtual.run(_through_nodes(stream, config, restart_every=NODE_SLOTS + 1))

    assert live == _replayed(stream, config)[:NODE_SLOTS]
    if mode == "spec":
        assert any(row[1].startswith("site") for row in live)


@pytest.mark.parametrize("preset", EVERY_POLICY)
def test_nodes_that_are_restarted_all_the_time_decide_the_same(stream: Stream, preset: str) -> None:
    config = _config(preset, "spec")

    live = virtual.run(_through_nodes(stream, config, restart_every=10))

    assert live == _replayed(stream, config)[:NODE_SLOTS]


@pytest.mark.parametrize("restart_every", [10, NODE_SLOTS + 1])
@pytest.mark.parametrize("preset", EVERY_POLICY[:-1])  # the last does not look at them
def test_nodes_whose_labels_come_late_decide_the_same_restarted_or_not(
    stream: Stream, preset: str, restart_every: int
) -> None:
    """What is under way is not stored: a node that starts counts its open tickets."""
    config = _config(preset, "spec")
    config["policy"]["pending"] = True
    late = {"restart_every": restart_every, "delay": LATE}

    live = virtual.run(_through_nodes(stream, config, **late))

    assert live == _replayed(stream, config, delay=LATE)[:NODE_SLOTS]
    config["policy"]["pending"] = False
    assert live != _replayed(stream, config, delay=LATE)[:NODE_SLOTS]


@pytest.mark.parametrize("preset", ["cos", "dcza", None], ids=str)
def test_replay_and_processes_over_https_decide_the_same(
    stream: Stream, preset: str | None, tmp_path: Path
) -> None:
    policy = {"slices": 1} if preset is None else {**EARLY, "preset": preset, "pending": False}
    policy["check-claims"] = False  # as in a replay
    config = {**_config("cos", "spec"), "policy": policy}
    offices = Offices(tmp_path, [f"site{k}" for k in range(SITES)])
    sites = {f"site{k}": _site(offices, config, k) for k in range(SITES)}

    with served(tmp_path, sites) as clients:
        live = [_through(clients[stream.at[slot]], stream, slot) for slot in range(PROCESS_SLOTS)]

    assert live == _replayed(stream, config)[:PROCESS_SLOTS]
    assert sum(row[1].startswith("site") for row in live) > PROCESS_SLOTS / 20  # peers are asked


SCORED = ["auto", "cos", "dcza", "discounted", "share-ucb", f"{OWN}:CellUCB"]


@pytest.mark.parametrize("preset", SCORED)
def test_free_functions_are_scored_the_same_in_replay_and_in_the_network_in_process(
    stream: Stream, preset: str
) -> None:
    config = _with_free(_config(preset, "spec"))
    live = _decided_in_a_network(stream, config)

    assert live == _replayed(stream, config)
    assert live != _replayed(stream, _with_free(_config(preset, "spec"), free=[]))
    assert any(row[1].startswith("site") for row in live)


@pytest.mark.parametrize("preset", SCORED)
def test_free_functions_are_scored_the_same_by_nodes_that_are_restarted_before_labels_come(
    stream: Stream, preset: str
) -> None:
    """What they answered is stored: a node that starts scores them when the label comes."""
    config = _with_free(_config(preset, "spec"))
    config["policy"]["pending"] = True

    live = virtual.run(_through_nodes(stream, config, restart_every=10, delay=LATE))

    assert live == _replayed(stream, config, delay=LATE)[:NODE_SLOTS]


def test_free_functions_are_scored_the_same_by_processes_over_https(
    stream: Stream, tmp_path: Path
) -> None:
    policy = {**EARLY, "preset": "cos", "pending": False, "check-claims": False}
    policy.pop("finest-level")
    config = _with_free({**_config("cos", "spec"), "policy": policy})
    offices = Offices(tmp_path, [f"site{k}" for k in range(SITES)])
    sites = {f"site{k}": _site(offices, config, k) for k in range(SITES)}

    with served(tmp_path, sites) as clients:
        live = [_through(clients[stream.at[slot]], stream, slot) for slot in range(PROCESS_SLOTS)]

    assert live == _replayed(stream, config)[:PROCESS_SLOTS]
    assert live != _replayed(stream, _with_free(config, free=[]))[:PROCESS_SLOTS]


def _with_free(config: dict[str, Any], *, free: list[int] | None = None) -> dict[str, Any]:
    """Return a configuration without costs, in which the functions of sites 0 and 1 are free."""
    chosen = [0, 1] if free is None else free
    learners = [
        {**one, "function-costs": [0.0, 0.0], "free": place in chosen}
        for place, one in enumerate(config["learner"])
    ]
    return {**config, "learner": learners}


def _through(client: Client, stream: Stream, slot: int) -> Row:
    """Send one instance and its label to a site, and wait until its peers know the label."""
    features = [int(said) for said in stream.predictions[:, slot]]
    inputs = [
        {"name": "instances", "shape": [1, 2 * SITES], "datatype": "INT64", "data": features},
        {"name": "context", "shape": [1, 2], "datatype": "FP64", "data": [*stream.contexts[slot]]},
    ]
    told = client.infer(str(slot), inputs, slot=slot + 1)["parameters"]
    settled = client.label(str(slot), int(stream.labels[slot]))
    client.drain()
    return told["phase"], told["arm"], told["function"], told["price"], settled["right"]


def _site(offices: Offices, config: dict[str, Any], place: int) -> str:
    """Return the file of one site: what the configuration says of it, and whom it knows."""
    own = dict(config["learner"][place])
    free = {"free": True} if own.pop("free", False) else {}
    features = {f"f{k}": "INT64" for k in range(2 * SITES)}
    node = {"features": features, "instance": "row", "dimension": 2, "slots": "given"}
    rights = {"share": "data", "trust": "full", "may-ask": True, "functions": 2}
    return "\n".join(
        [
            offices.node(own["name"], **node, **{"timeout-s": 30.0}),
            table("[policy]", config["policy"]),
            table("[[learner]]", own),
            *(offices.peer(name, **rights) for name in own["peers"]),
            *(
                table(
                    "[[function]]",
                    {
                        "name": name,
                        "kind": "python",
                        "entry": "support.site_processes:recorded",
                        "options": {"place": int(name[1:])},
                        **free,
                    },
                )
                for name in own["functions"]
            ),
        ]
    )


def _decided_in_a_network(stream: Stream, config: dict[str, Any]) -> list[Any]:
    """Return the decisions of a network in this process, each with its label at once."""
    network = covey.Network(config, functions=stream.functions, dimension=2)
    live = []
    for slot in range(SLOTS):
        site = network[stream.at[slot]]
        answer = site.predict(slot, tuple(stream.contexts[slot]), slot=slot + 1)
        settlement = site.learn(answer.ticket, int(stream.labels[slot]))
        live.append((answer.phase, answer.arm, answer.function, answer.price, settlement.is_right))
    return live


def _replayed(stream: Stream, config: dict[str, Any], *, delay: int = 0) -> list[Row]:
    recorded = covey.replay(
        config,
        predictions=stream.predictions,
        labels=stream.labels,
        contexts=stream.contexts,
        at=stream.at,
        delay=np.full(SLOTS, delay),
    ).columns()
    names = ("phase", "arm", "function", "cost", "correct")
    return list(zip(*(recorded[name] for name in names), strict=True))


async def _through_nodes(
    stream: Stream, config: dict[str, Any], *, restart_every: int, delay: int = 0
) -> list[Row]:
    world = virtual.World(config, stream.functions, dimension=2, trust="full")
    world.weather = virtual.Weather(delay_s=0.02, commit_s=0.004)
    live: list[Row] = []
    for slot in range(NODE_SLOTS):
        name = stream.at[slot]
        if slot % restart_every == restart_every - 1:
            world.crash(name)
            world.boot(name)
        node, asked = world.nodes[name], Question("", str(slot))
        context = tuple(stream.contexts[slot].tolist())
        ticket = await node.predict(slot, context, question=asked, slot=slot + 1)
        live.append((ticket.phase, ticket.arm, ticket.function, ticket.price))
        if slot >= delay:
            await _label(world, stream, live, slot - delay)
    for slot in range(NODE_SLOTS - delay, NODE_SLOTS):
        await _label(world, stream, live, slot)
    for node in world.nodes.values():
        node.stop()
    return live


async def _label(world: virtual.World, stream: Stream, live: list[Row], slot: int) -> None:
    node = world.nodes[stream.at[slot]]
    settlement = await node.learn(str(slot), int(stream.labels[slot]))
    await node.drained()
    live[slot] = (*live[slot], settlement.is_right)


def _early(preset: str) -> dict[str, Any]:
    """Return settings with which not only own functions are used, and labels raise alarms."""
    early = {**EARLY, "alarm": 5.0} if preset in ALARMED else EARLY
    dropped = "slices" if preset in ("auto", "multi-resolution") else "finest-level"
    return {key: value for key, value in early.items() if key != dropped}


def _config(preset: str, mode: str) -> dict[str, Any]:
    return {
        "policy": {"preset": preset, "mode": mode, **_early(preset)},
        "learner": [
            {
                "name": f"site{k}",
                "functions": [f"f{2 * k}", f"f{2 * k + 1}"],
                "function-costs": [0.0, 0.02],
                "peers": {f"site{other}": 0.05 for other in range(SITES) if other != k},
            }
            for k in range(SITES)
        ],
    }
