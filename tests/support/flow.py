"""One stream through a replay, a network in process, nodes and processes, for tests of the same."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import covey
from covey.bandit.policies import ALARMED
from covey.config import load
from covey.node.node import Question
from support import virtual
from support.effort import effort
from support.site_processes import Client, Offices, served, table

SITES = 3
SLOTS = 1_500
NODE_SLOTS = effort(300, plain=200, long=500)
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
            offices.node(own["name"], **node, **{"timeout-s": 30.0}),
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
    node = {"features": features, "slots": "given", "timeout-s": 30.0}
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


Fees = dict[str, Any]  # column -> costs by slot


def _fee(config: dict[str, Any], fees: Fees | None, site: str, arm: str, slot: int) -> float | None:
    """Return what an arm cost in a slot beyond its price."""
    (own,) = (one for one in config["learner"] if one["name"] == site)
    column = own.get("cost-columns", {}).get(arm)
    return None if column is None or fees is None else float(fees[column][slot])


def decided_in_a_network(
    stream: Stream, config: dict[str, Any], *, fees: Fees | None = None
) -> list[Any]:
    """Return the decisions of a network in this process, each with its label at once."""
    dimension = None if stream.columns else 2
    network = covey.Network(config, functions=stream.functions, dimension=dimension)
    live = []
    for slot, name in enumerate(stream.at):
        site = network[name]
        answer = site.predict(slot, context_of(stream, config, slot), slot=slot + 1)
        paid = _fee(config, fees, site.name, answer.arm, slot)
        settlement = site.learn(answer.ticket, int(stream.labels[slot]), cost=paid)
        live.append((answer.phase, answer.arm, answer.function, answer.price, settlement.is_right))
    return live


def replayed(
    stream: Stream, config: dict[str, Any], *, delay: int = 0, fees: Fees | None = None
) -> list[Row]:
    """Return the decisions of a replay; with fees, prices are without them."""
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
        columns=fees,
    ).columns()
    if fees is not None:
        where = zip(stream.at, recorded["arm"], range(slots), strict=True)
        paid = [_fee(config, fees, *one) or 0.0 for one in where]
        recorded["cost"] = [round(a - b, 6) for a, b in zip(recorded["cost"], paid, strict=True)]
    names = ("phase", "arm", "function", "cost", "correct")
    return list(zip(*(recorded[name] for name in names), strict=True))


async def through_nodes(
    stream: Stream,
    config: dict[str, Any],
    *,
    restart_every: int,
    slots: int = NODE_SLOTS,
    delay: int = 0,
    fees: Fees | None = None,
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
            paid = _fee(config, fees, stream.at[slot - delay], live[slot - delay][1], slot - delay)
            await _label(world, stream, live, slot - delay, paid)
    for slot in range(slots - delay, slots):
        await _label(world, stream, live, slot)
    for node in world.nodes.values():
        node.stop()
    return live


async def _label(
    world: virtual.World, stream: Stream, live: list[Row], slot: int, cost: float | None = None
) -> None:
    node = world.nodes[stream.at[slot]]
    settlement = await node.learn(str(slot), int(stream.labels[slot]), cost=cost)
    while any(one.undelivered for one in world.nodes.values()):  # a relay passes labels on
        for one in world.nodes.values():
            await one.drained()
    live[slot] = (*live[slot], settlement.is_right)


def early(preset: str) -> dict[str, Any]:
    """Return settings with which not only own functions are used, and labels raise alarms."""
    early = {**EARLY, "alarm": 5.0} if preset in ALARMED else EARLY
    dropped = "slices" if preset in ("auto", "multi-resolution") else "finest-level"
    return {key: value for key, value in early.items() if key != dropped}


def config_of(preset: str, mode: str) -> dict[str, Any]:
    return {
        "policy": {"preset": preset, "mode": mode, **early(preset)},
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
