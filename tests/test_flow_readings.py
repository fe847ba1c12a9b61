"""Readings of the paper on one stream: the same decisions in a replay, a network and nodes."""

from typing import Any

import pytest

import covey
from covey.node.node import Question
from support import virtual
from support.flow import NODE_SLOTS, SLOTS, Row, Stream, config_of, recorded_stream, replayed


@pytest.fixture(scope="module")
def stream() -> Stream:
    return recorded_stream()


def _with_reading(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a configuration with a reading of the paper's, and the same without it."""
    preset, reading = {
        "queries": ("cos", {"queries": "one"}),
        "queries in split cells": ("dcza", {"queries": "one"}),
        "children": ("dcza", {"children": "averaged"}),
        "children and queries": ("dcza", {"children": "averaged", "queries": "one"}),
        "unlabelled": ("cos", {"unlabelled": "accuracy"}),
        "unlabelled by an index": ("auto", {"unlabelled": "accuracy"}),
        "history": ("cos", {"history": "predictions"}),
        "history by an index": ("auto", {"history": "predictions"}),
    }[name]
    config = config_of(preset, "spec")
    if name == "queries":  # so that one peer is trained before the other
        config["policy"] |= {"slices": 4, "train": {"scale": 3.0, "power": 0.2}}
    if name.startswith("children"):
        config["policy"]["inherit"] = True
    if name.startswith("unlabelled"):
        config["learner"][0]["supervised"] = False
        config["learner"][0]["peers"] = {"site1": 0.3, "site2": 0.05}
    if name.startswith("history"):
        for one in config["learner"]:
            one["context-peers"] = one.pop("peers")
            one["peers"] = {}
    return {**config, "policy": {**config["policy"], "reading": reading}}, config


READINGS = pytest.mark.parametrize(
    "name",
    [
        "queries",
        "queries in split cells",
        "children",
        "children and queries",
        "unlabelled",
        "unlabelled by an index",
        "history",
        "history by an index",
    ],
)


def _decided(stream: Stream, config: dict[str, Any]) -> list[Row]:
    """Return phase, arm, function and price of every decision of a replay."""
    return [row[:4] for row in replayed(stream, config)]


def _gets_labels(config: dict[str, Any], name: str) -> bool:
    return all(one.get("supervised", True) for one in config["learner"] if one["name"] == name)


@READINGS
def test_replay_and_the_network_in_process_decide_the_same_by_every_reading(
    stream: Stream, name: str
) -> None:
    config, plain = _with_reading(name)
    network = covey.Network(config, functions=stream.functions, dimension=2)
    live = []
    for slot in range(SLOTS):
        site = network[stream.at[slot]]
        answer = site.predict(slot, tuple(stream.contexts[slot]), slot=slot + 1)
        live.append((answer.phase, answer.arm, answer.function, answer.price))
        if _gets_labels(config, site.name):
            site.learn(answer.ticket, int(stream.labels[slot]))

    assert live == _decided(stream, config)
    assert live != _decided(stream, plain)


@READINGS
def test_replay_and_nodes_that_are_restarted_decide_the_same_by_every_reading(
    stream: Stream, name: str
) -> None:
    config, _ = _with_reading(name)

    live = virtual.run(_through_nodes(stream, config))

    assert live == _decided(stream, config)[:NODE_SLOTS]


async def _through_nodes(stream: Stream, config: dict[str, Any]) -> list[Row]:
    world = virtual.World(config, stream.functions, dimension=2, trust="full")
    live: list[Row] = []
    for slot in range(NODE_SLOTS):
        name = stream.at[slot]
        if slot % 10 == 9:
            world.crash(name)
            world.boot(name)
        node, context = world.nodes[name], tuple(stream.contexts[slot].tolist())
        one = await node.predict(slot, context, question=Question("", str(slot)), slot=slot + 1)
        live.append((one.phase, one.arm, one.function, one.price))
        if _gets_labels(config, name):
            await node.learn(str(slot), int(stream.labels[slot]))
            await node.drained()
    for node in world.nodes.values():
        node.stop()
    return live
