"""What nodes keep in memory does not grow with the requests that they answer."""

import gc
import tracemalloc

import numpy as np

from support import virtual
from support.message_links import MessageLink
from support.virtual import World

ROWS, ROUNDS = 32, 30
MOST_BYTES = 48 * 1024  # of growth, less than 20 for each row
CONFIG = {
    "policy": {"preset": "cos", "slices": 2, "label-wait": 200},
    "learner": [
        {"name": "north", "functions": ["f"], "peers": {"south": 0.0}},
        {"name": "south", "functions": ["g"], "peers": {"north": 0.0}},
    ],
}


async def play(world: World, rng: np.random.Generator) -> None:
    """Let both sites answer batches, ask each other and learn, until what they hold is stable."""
    for _ in range(ROUNDS):
        for node in world.nodes.values():
            truths = rng.integers(0, 2, ROWS).tolist()
            request = await node.answer([[truth] for truth in truths], rng.random((ROWS, 1)))
            await node.learn_rows(request.id, range(ROWS), truths)
        for node in world.nodes.values():
            await node.drained()


def test_two_nodes_that_ask_each_other_in_batches_keep_no_more_and_more() -> None:
    async def main() -> tuple[list[int], int]:
        functions = {"f": lambda x: x[0], "g": lambda x: 0}
        world = World(CONFIG, functions, dimension=1, link=MessageLink)
        rng, sizes = np.random.default_rng(3), []
        for _ in range(3):
            await play(world, rng)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        return sizes, world.nodes["north"].counters.peer_labels

    tracemalloc.start()
    try:
        (_, before, after), answered = virtual.run(main())
    finally:
        tracemalloc.stop()

    assert answered > 2_000  # rows of the peer
    assert after - before < MOST_BYTES
