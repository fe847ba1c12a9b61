"""One stream through a replay, a network in process and nodes that are restarted or not."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import covey
from covey.node.node import Question
from support import virtual

SITES = 3
EARLY = {  # few cells and low thresholds, so that peers are asked soon
    "slices": 2,
    "explore": {"scale": 0.5, "power": 0.0},
    "train": {"scale": 1.0, "power": 0.0},
    "explore-peers": {"scale": 0.5, "power": 0.0},
}
Row = tuple[Any, ...]  # phase, arm, function, price


class FlowStream(NamedTuple):
    """A recorded stream, when its labels come (-1: never), and what the functions say."""

    predictions: Any
    labels: Any
    contexts: Any
    at: list[str]
    delays: Any

    @property
    def functions(self) -> dict[str, Callable[[int], int]]:
        rows = enumerate(self.predictions)
        return {f"f{k}": lambda slot, row=row: int(row[slot]) for k, row in rows}

    def due(self) -> dict[int, list[int]]:
        """Return by slot whose labels come at its end."""
        due: dict[int, list[int]] = {}
        for slot, delay in enumerate(self.delays.tolist()):
            if delay >= 0:
                due.setdefault(slot + delay, []).append(slot)
        # Labels of the slot itself come first, as in a replay.
        return {slot: sorted(of, key=lambda one: one != slot) for slot, of in due.items()}


def flow_stream(slots: int, *, seed: int, share: float, latest: int) -> FlowStream:
    """Return a stream of which this share of labels comes, up to `latest` slots late."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, slots)
    is_right = rng.random((2 * SITES, slots)) < rng.uniform(0.5, 1.0, (2 * SITES, 1))
    delays = np.where(rng.random(slots) < share, rng.integers(0, latest + 1, slots), -1)
    return FlowStream(
        np.where(is_right, labels, 1 - labels),
        labels,
        rng.random((slots, 2)),
        [f"site{k}" for k in rng.integers(0, SITES, slots)],
        delays,
    )


def flow_config(policy: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy": policy,
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


def replayed(stream: FlowStream, config: dict[str, Any]) -> list[Row]:
    recorded = covey.replay(
        config,
        predictions=stream.predictions,
        labels=stream.labels,
        contexts=stream.contexts,
        at=stream.at,
        delay=np.maximum(stream.delays, 0),
        revealed=(stream.delays >= 0).astype(int),
    ).columns()
    names = ("phase", "arm", "function", "cost")
    return list(zip(*(recorded[name] for name in names), strict=True))


def in_a_network(stream: FlowStream, config: dict[str, Any]) -> list[Row]:
    network = covey.Network(config, functions=stream.functions, dimension=2)
    due, tickets, live = stream.due(), {}, []
    for slot, name in enumerate(stream.at):
        answer = network[name].predict(slot, tuple(stream.contexts[slot]), slot=slot + 1)
        tickets[slot] = answer.ticket
        live.append((answer.phase, answer.arm, answer.function, answer.price))
        for one in due.get(slot, ()):
            network[stream.at[one]].learn(tickets[one], int(stream.labels[one]))
    return live


def through_nodes(
    stream: FlowStream, config: dict[str, Any], *, restart_every: int = 0, trust: Any = "full"
) -> list[Row]:
    return virtual.run(_through_nodes(stream, config, restart_every, trust))


async def _through_nodes(
    stream: FlowStream, config: dict[str, Any], restart_every: int, trust: Any
) -> list[Row]:
    world = virtual.World(config, stream.functions, dimension=2, trust=trust)
    world.weather = virtual.Weather(delay_s=0.02, commit_s=0.004)
    due, live = stream.due(), list[Row]()
    for slot, name in enumerate(stream.at):
        if restart_every and slot % restart_every == restart_every - 1:
            world.crash(name)
            world.boot(name)
        context = tuple(stream.contexts[slot].tolist())
        asked = Question("", str(slot))
        answer = await world.nodes[name].predict(slot, context, question=asked, slot=slot + 1)
        live.append((answer.phase, answer.arm, answer.function, answer.price))
        for one in due.get(slot, ()):
            node = world.nodes[stream.at[one]]
            await node.learn(str(one), int(stream.labels[one]))
            await node.drained()
    for node in world.nodes.values():
        node.stop()
    return live
