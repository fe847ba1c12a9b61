"""One stream through a replay, a network in process, nodes and processes, for tests of the same."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import covey
from covey.config import load
from covey.node.node import Question
from support import virtual
from support.effort import effort
from support.presets import fitting
from support.site_processes import Client, Offices, served, table

SITES = 3
SLOTS = 1_500
NODE_SLOTS = effort(300, long=500)
EARLY = {  # few cells and low thresholds, so that peers are asked soon
    "slices": 2,
    "split-scale": 5.0,
    "split-power": 2.0,
    "explore": {"scale": 0.5, "power": 0.0},
    "train": {"scale": 1.0, "power": 0.0},
    "explore-peers": {"scale": 0.5, "power": 0.0},
}


Row = tuple[Any, ...]  # phase, arm, function, price, whether it was right


class Stream(NamedTuple):
    """A recorded stream, and functions that say what was recorded of them."""

    predictions: Any  # functions x slots
    labels: Any
    contexts: Any  # slots x coordinates
    at: list[str]  # the site of each slot
    columns: tuple[str, ...] = ()  # that the coordinates are made of; (): they are given

    @property
    def functions(self) -> dict[str, Callable[[int], int]]:
        """The functions, which take a slot."""
        rows = enumerate(self.predictions)
        return {f"f{k}": lambda slot, row=row: int(row[slot]) for k, row in rows}


def recorded_stream(seed: int = 11) -> Stream:
    """Return a stream of two classes, which arrives at three sites."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, SLOTS)
    is_right = rng.random((2 * SITES, SLOTS)) < rng.uniform(0.5, 1.0, (2 * SITES, 1))
    predictions = np.where(is_right, labels, 1 - labels)
    contexts = rng.random((SLOTS, 2))
    at = [f"site{k}" for k in rng.integers(0, SITES, SLOTS)]
    return Stream(predictions, labels, contexts, at)


def changing_stream(dimension: int, *, slots: int = 600, seed: int = 5) -> Stream:
    """Return a stream whose functions depend on all coordinates, and on none as before at last."""
    rng = np.random.default_rng(seed)
    labels, contexts = rng.integers(0, 2, slots), rng.random((slots, dimension))
    slopes = 2 * rng.normal(size=(2 * SITES, dimension))
    chance = 1 / (1 + np.exp(-(contexts - 0.5) @ slopes.T - 0.7)).T
    chance[:, slots // 2 :] = 1 - chance[:, slots // 2 :]
    predictions = np.where(rng.random(chance.shape) < chance, labels, 1 - labels)
    at = [f"site{k}" for k in rng.integers(0, SITES, slots)]
    return Stream(predictions, labels, contexts, at)


def drawn_stream(sites: int, columns: list[str], *, slots: int, seed: int = 11) -> Stream:
    """Return a stream of sites with two functions each, whose accuracies depend on the columns."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, slots)
    contexts = rng.random((slots, len(columns)))
    low, high = rng.uniform(0.5, 1.0, (2, 2 * sites, 1))
    which = rng.integers(0, len(columns), 2 * sites)
    chance = np.where(contexts[:, which].T < 0.5, low, high)
    predictions = np.where(rng.random(chance.shape) < chance, labels, 1 - labels)
    at = [f"site{k}" for k in rng.integers(0, sites, slots)]
    return Stream(predictions, labels, contexts, at, tuple(columns))


def context_of(stream: Stream, config: dict[str, Any], slot: int) -> tuple[float, ...]:
    """Return the context of a slot as the site sees it that receives the row."""
    if not stream.columns:
        return tuple(stream.contexts[slot].tolist())
    setup = load(config)
    place = [site.name for site in setup.sites].index(stream.at[slot])
    places = [stream.columns.index(name) for name in setup.contexts_of(place).names]
    return tuple(stream.contexts[slot, places].tolist())


def send(client: Client, stream: Stream, slot: int) -> Any:
    """Send one instance to a site, and return the answer."""
    said = [int(one) for one in stream.predictions[:, slot]]
    point = [float(one) for one in stream.contexts[slot]]
    if stream.columns:
        named = [*zip(stream.columns, ["FP64"] * len(point), point, strict=True)]
        named += [(f"f{k}", "INT64", one) for k, one in enumerate(said)]
        inputs = [
            {"name": name, "shape": [1], "datatype": kind, "data": [one]}
            for name, kind, one in named
        ]
    else:
        inputs = [
            {"name": "instances", "shape": [1, len(said)], "datatype": "INT64", "data": said},
            {"name": "context", "shape": [1, len(point)], "datatype": "FP64", "data": point},
        ]
    return client.infer(str(slot), inputs, slot=slot + 1)


def through(client: Client, stream: Stream, slot: int, cost: Any = None) -> Row:
    """Send one instance and its label to a site, and wait until its peers know the label."""
    told = send(client, stream, slot)["parameters"]
    settled = client.label(str(slot), int(stream.labels[slot]), cost)
    client.drain()
    return told["phase"], told["arm"], told["function"], told["price"], settled["right"]


def site_file(
    offices: Offices,
    config: dict[str, Any],
    place: int,
    known: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """Return the file of one site: what the configuration says of it, and whom it knows.

    `known` has more keys of the tables of the sites that it knows.
    """
    own = dict(config["learner"][place])
    free = {"free": True} if own.pop("free", False) else {}
    others = [one["name"] for one in config["learner"] if one["name"] != own["name"]]
    features = {f"f{k}": "INT64" for k in range(2 * SITES)}
    node = {"features": features, "instance": "row", "dimension": 2, "slots": "given"}
    rights = {"share": "data", "trust": "full", "may-ask": True, "functions": 2}
    return "\n".join(
        [
            offices.node(own["name"], **node),
            table("[policy]", config["policy"]),
            table("[[learner]]", own),
            *(
                offices.peer(name, **rights, **(known or {}).get(name, {}))
                for name in known or own.get("peers", others)
            ),
            *(table("[[link]]", link) for link in config.get("link", [])),
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


def column_file(
    offices: Offices,
    stream: Stream,
    config: dict[str, Any],
    name: str,
    *,
    known: list[str] | None = None,
) -> str:
    """Return the file of a site that makes contexts of columns.

    `known` are the learners that it lists, else all.
    """
    features = dict.fromkeys(stream.columns, "FP64")
    features |= {f"f{k}": "INT64" for k in range(len(stream.predictions))}
    node = {"features": features, "slots": "given"}
    rights = {"share": "data", "trust": "full", "may-ask": True, "functions": 2}
    (own,) = (one for one in config["learner"] if one["name"] == name)
    others = [one["name"] for one in config["learner"] if one["name"] != name]
    return "\n".join(
        [
            offices.node(name, **node),
            *(
                table(f"[{key}]", config[key])
                for key in ("data", "policy", "ensemble")
                if key in config
            ),
            *(
                table("[[learner]]", one)
                for one in config["learner"]
                if known is None or one["name"] in (name, *known)
            ),
            *(offices.peer(other, **rights) for other in others),
            *(
                table(
                    "[[function]]",
                    {
                        "name": function,
                        "kind": "python",
                        "entry": "support.site_processes:recorded",
                        "options": {"place": function},
                    },
                )
                for function in own["functions"]
            ),
        ]
    )


def through_processes(
    stream: Stream, sites: Mapping[str, str], folder: Path, *, slots: range
) -> list[Row]:
    """Return the decisions of served sites on some slots; `sites` are their files."""
    with served(folder, sites) as clients:
        return [through(clients[stream.at[slot]], stream, slot) for slot in slots]


def decided_in_a_network(stream: Stream, config: dict[str, Any]) -> list[Any]:
    """Return the decisions of a network in this process, each with its label at once."""
    dimension = None if stream.columns else stream.contexts.shape[1]
    network = covey.Network(config, functions=stream.functions, dimension=dimension)
    live = []
    for slot, name in enumerate(stream.at):
        site = network[name]
        answer = site.predict(slot, context_of(stream, config, slot), slot=slot + 1)
        settlement = site.learn(answer.ticket, int(stream.labels[slot]))
        live.append((answer.phase, answer.arm, answer.function, answer.price, settlement.is_right))
    return live


def replayed(stream: Stream, config: dict[str, Any], *, delay: int = 0) -> list[Row]:
    """Return the decisions of a replay."""
    slots, contexts = len(stream.labels), stream.contexts
    if stream.columns:
        contexts = contexts[:, [stream.columns.index(one) for one in load(config).context.names]]
    recorded = covey.replay(
        config,
        predictions=stream.predictions,
        labels=stream.labels,
        contexts=contexts,
        at=stream.at,
        delay=np.full(slots, delay),
    ).columns()
    names = ("phase", "arm", "function", "cost", "correct")
    return list(zip(*(recorded[name] for name in names), strict=True))


async def through_nodes(
    stream: Stream,
    config: dict[str, Any],
    *,
    restart_every: int,
    slots: int = NODE_SLOTS,
    delay: int = 0,
    trust: Any = "full",
    kind: type[virtual.World] = virtual.World,
) -> list[Row]:
    """Return the decisions of nodes over a slow network, which are restarted now and then."""
    world = kind(config, stream.functions, dimension=stream.contexts.shape[1], trust=trust)
    world.weather = virtual.Weather(delay_s=0.02, commit_s=0.004)
    live: list[Row] = []
    for slot, name in enumerate(stream.at[:slots]):
        if slot % restart_every == restart_every - 1:
            world.crash(name)
            world.boot(name)
        node, asked = world.nodes[name], Question("", str(slot))
        context = context_of(stream, config, slot)
        ticket = await node.predict(slot, context, question=asked, slot=slot + 1)
        live.append((ticket.phase, ticket.arm, ticket.function, ticket.price))
        if slot >= delay:
            await _label(world, stream, live, slot - delay)
    for slot in range(slots - delay, slots):
        await _label(world, stream, live, slot)
    for node in world.nodes.values():
        node.stop()
    return live


async def _label(world: virtual.World, stream: Stream, live: list[Row], slot: int) -> None:
    node = world.nodes[stream.at[slot]]
    settlement = await node.learn(str(slot), int(stream.labels[slot]))
    while any(one.undelivered for one in world.nodes.values()):  # a relay passes labels on
        for one in world.nodes.values():
            await one.drained()
    live[slot] = (*live[slot], settlement.is_right)


def early(preset: str) -> dict[str, Any]:
    """Return settings with which not only own functions are used, and labels raise alarms."""
    return fitting({"preset": preset, "alarm": 5.0, **EARLY})


def config_of(preset: str, reading: str = "spec") -> dict[str, Any]:
    keys = {} if reading == "spec" else {"reading": reading}
    return {
        "policy": {**keys, **early(preset)},
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


# What a network has besides counters of one space and tickets, each in a configuration.
MORE: dict[str, dict[str, Any]] = {
    "free functions": {"learner": {"free": True, "function-costs": [0.0, 0.0]}},
    "several contexts": {
        "policy": {"preset": "cos"},
        "data": {"candidates": ["a", ["b"], ["a", "b"]]},
    },
    "context-only peers of the default policy": {
        "learner": {"peers": {}, "context-peers": {"site2": 0.01}},
    },
    "context-only peers": {
        "policy": {"preset": "cos", "slices": 2},
        "learner": {"peers": {}, "context-peers": {"site2": 0.01}},
    },
    "an unknown horizon": {"policy": {"preset": "cos", "horizon": "doubling", "first-epoch": 40}},
    "labels that are forgotten": {
        "policy": {"preset": "cos", "slices": 2, "forget": {"discount": 0.99}},
    },
    "links that change": {
        "learner": {"peers": None},
        "link": [{"from": "site0", "to": "site1", "cost": 0.05}],
        "link-change": [{"slot": 150, "from": "site0", "to": "site1", "cost": 0.3}],
    },
    "unsupervised": {"policy": {"preset": "cos", "slices": 2}, "at": {"supervised": False}},
    "accounts": {"learner": {"serving-cost": 0.01}},
    "a loss": {"data": {"loss": {"kind": "absolute", "bound": 1.0}}},
}


def with_more(more: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of sites with the default policy, and with this."""
    config = config_of("auto", "spec")
    config["policy"] = more.get("policy", {})
    for key in ("data", "link", "link-change"):
        if key in more:
            config[key] = more[key]
    for learner in config["learner"]:
        learner.update(more.get("learner", {}))
        if "context-peers" in learner and learner["name"] == "site2":
            learner["context-peers"] = {}
        if learner.get("peers", 0) is None:
            del learner["peers"]
    config["learner"][0].update(more.get("at", {}))
    return config
