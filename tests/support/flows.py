"""One stream through a replay, a network in process, nodes, and processes over https."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import covey
from covey.config import load
from covey.node.node import Question
from support import virtual
from support.site_processes import Client, Offices, served, table

Row = tuple[Any, ...]  # phase, arm, function, price, whether it was right
Decide = dict[str, Any]  # a configuration


class Stream(NamedTuple):
    """A recorded stream, and functions that say what was recorded of them."""

    predictions: Any  # functions x slots
    labels: Any
    contexts: Any  # slots x coordinates
    coordinates: list[str]
    at: list[str]  # the site of each slot

    @property
    def functions(self) -> dict[str, Callable[[int], int]]:
        """The functions, which take a slot."""
        rows = enumerate(self.predictions)
        return {f"f{k}": lambda slot, row=row: int(row[slot]) for k, row in rows}


def stream(sites: int, coordinates: list[str], *, slots: int, seed: int = 11) -> Stream:
    """Return a stream of sites with two functions each, whose accuracies depend on the context."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, slots)
    contexts = rng.random((slots, len(coordinates)))
    low, high = rng.uniform(0.5, 1.0, (2, 2 * sites, 1))
    which = rng.integers(0, len(coordinates), 2 * sites)
    chance = np.where(contexts[:, which].T < 0.5, low, high)
    predictions = np.where(rng.random(chance.shape) < chance, labels, 1 - labels)
    at = [f"site{k}" for k in rng.integers(0, sites, slots)]
    return Stream(predictions, labels, contexts, coordinates, at)


def own_context(play: Stream, config: Decide, slot: int) -> tuple[float, ...]:
    """Return the context of a slot as the site sees it that receives the row."""
    setup = load(config)
    place = [site.name for site in setup.sites].index(play.at[slot])
    names = setup.contexts_of(place).names
    columns = [play.coordinates.index(name) for name in names]
    return tuple(play.contexts[slot, columns].tolist())


def replayed(play: Stream, config: Decide, *, delay: int = 0) -> list[Row]:
    """Return the decisions of a replay."""
    setup = load(config)
    columns = [play.coordinates.index(name) for name in setup.context.names]
    trace = covey.replay(
        config,
        predictions=play.predictions,
        labels=play.labels,
        contexts=play.contexts[:, columns],
        at=play.at,
        delay=np.full(len(play.labels), delay),
    ).columns()
    names = ("phase", "arm", "function", "cost", "correct")
    return list(zip(*(trace[name] for name in names), strict=True))


def in_a_network(play: Stream, config: Decide) -> list[Row]:
    """Return the decisions of a network in this process, each with its label at once."""
    network = covey.Network(config, functions=play.functions)
    live = []
    for slot, name in enumerate(play.at):
        answer = network[name].predict(slot, own_context(play, config, slot), slot=slot + 1)
        settled = network[name].learn(answer.ticket, int(play.labels[slot]))
        live.append((answer.phase, answer.arm, answer.function, answer.price, settled.is_right))
    return live


async def through_nodes(
    play: Stream,
    config: Decide,
    *,
    slots: int,
    restart_every: int,
    delay: int = 0,
    trust: Any = "full",
    kind: type[virtual.World] = virtual.World,
) -> list[Row]:
    """Return the decisions of nodes over a slow network, which are restarted now and then."""
    world = kind(config, play.functions, dimension=len(play.coordinates), trust=trust)
    world.weather = virtual.Weather(delay_s=0.02, commit_s=0.004)
    live: list[Row] = []
    for slot, name in enumerate(play.at[:slots]):
        if slot % restart_every == restart_every - 1:
            world.crash(name)
            world.boot(name)
        context = own_context(play, config, slot)
        asked = Question("", str(slot))
        ticket = await world.nodes[name].predict(slot, context, question=asked, slot=slot + 1)
        live.append((ticket.phase, ticket.arm, ticket.function, ticket.price))
        if slot >= delay:
            await _label(world, play, live, slot - delay)
    for slot in range(slots - delay, slots):
        await _label(world, play, live, slot)
    for node in world.nodes.values():
        node.stop()
    return live


async def _label(world: virtual.World, play: Stream, live: list[Row], slot: int) -> None:
    node = world.nodes[play.at[slot]]
    settlement = await node.learn(str(slot), int(play.labels[slot]))
    await node.drained()
    live[slot] = (*live[slot], settlement.is_right)


def through_processes(
    play: Stream, sites: Mapping[str, str], folder: Path, *, slots: range
) -> list[Row]:
    """Return the decisions of served sites on some slots; `sites` are their files."""
    with served(folder, sites) as clients:
        return [_through(clients[play.at[slot]], play, slot) for slot in slots]


def send(client: Client, play: Stream, slot: int) -> Any:
    """Send one instance to a site, and return the answer."""
    inputs = [
        {"name": name, "shape": [1], "datatype": "FP64", "data": [float(play.contexts[slot, k])]}
        for k, name in enumerate(play.coordinates)
    ]
    inputs += [
        {"name": f"f{k}", "shape": [1], "datatype": "INT64", "data": [int(said)]}
        for k, said in enumerate(play.predictions[:, slot])
    ]
    return client.infer(str(slot), inputs, slot=slot + 1)


def _through(client: Client, play: Stream, slot: int) -> Row:
    """Send one instance and its label to a site, and wait until its peers know the label."""
    told = send(client, play, slot)["parameters"]
    settled = client.label(str(slot), int(play.labels[slot]))
    client.drain()
    return told["phase"], told["arm"], told["function"], told["price"], settled["right"]


def site_file(
    offices: Offices, play: Stream, config: Decide, name: str, *, known: list[str] | None = None
) -> str:
    """Return the file of a served site; `known` are the learners that it lists, else all."""
    features = dict.fromkeys(play.coordinates, "FP64")
    features |= {f"f{k}": "INT64" for k in range(len(play.predictions))}
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
