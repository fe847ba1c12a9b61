"""A site whose slots pass the horizon of its policy says so, and serves on."""

import logging
from typing import Any

import pytest

from support import virtual

CONFIG = {
    "policy": {"preset": "cos", "parameters": "theorem", "horizon": 20},
    "learner": [{"name": "north", "functions": ["a"]}],
}


async def lived(slots: int) -> list[Any]:
    """Return the state after each slot."""
    world = virtual.World(CONFIG, {"a": lambda x: 0}, dimension=1)
    node, states = world.nodes["north"], []
    for _ in range(slots):
        await node.predict(0, (0.5,))
        states.append(node.state())
    node.stop()
    return states


def test_a_passed_horizon_is_logged_once_and_stands_in_the_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        states = virtual.run(lived(30))

    lines = [one.message for one in caplog.records if "horizon" in one.message]
    assert lines == [
        "slot 21: [policy] horizon is 20 slots; after them cells and thresholds stay as they are, "
        "and the bounds no longer hold; raise it (what is stored is counted again)"
    ]
    assert (states[-1].slot, states[-1].horizon) == (30, 20)
