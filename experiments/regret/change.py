"""Regret after one change to that of a network that begins then.

`python experiments/regret/change.py --seeds 4`: all accuracies switch after half of 60,000 slots.
"""

import argparse

import numpy as np

import covey
from covey.simulation.environment import Drift, Environment
from covey.simulation.world import World, WorldChunk

SLOTS, CHANGE, PRICE = 60_000, 30_000, 0.05
SITES, FUNCTIONS = 4, 2
DRIFT = Drift(kind="switch", severity=0.75, every_slots=CHANGE)


def lost_later(chunk: WorldChunk, names: tuple[str, ...], first: int) -> float:
    """Return the regret after the change of a network that begins with slot `first`."""
    functions = [f"{name}.{k}" for name in names for k in range(FUNCTIONS)]
    owner = np.repeat(np.arange(SITES), FUNCTIONS)
    prices = np.where(owner[None] == np.arange(SITES)[:, None], 0.0, PRICE)
    sites = [
        {
            "name": name,
            "functions": functions[FUNCTIONS * k : FUNCTIONS * (k + 1)],
            "peers": {other: PRICE for other in names if other != name},
        }
        for k, name in enumerate(names)
    ]
    trace = covey.replay(
        {"learner": sites},
        predictions=chunk.right[0][:, first:],
        labels=np.ones(SLOTS - first, np.int64),
        contexts=chunk.points[first:, 0],
    ).trace
    row = np.asarray(trace.slot) - 1 + first
    values = chunk.accuracy[0].T[row] - prices[np.asarray(trace.learner)]
    lost = values.max(axis=1) - values[np.arange(len(row)), np.asarray(trace.function)]
    return float(lost[row >= CHANGE].sum())


def main() -> None:
    """Print the ratio of each seed, and of all, in one and two dimensions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = range(parser.parse_args().seeds)
    for dimension in (1, 2):
        world = Environment(
            name="x", dimension=dimension, prices=PRICE, low=0.25, high=1.0, drift=DRIFT
        )
        chunks = [World(world, seed=seed, horizon=SLOTS).draw(SLOTS) for seed in seeds]
        pairs = [
            [lost_later(chunk, world.names, first) for first in (0, CHANGE)] for chunk in chunks
        ]
        ratios = [f"{kept / fresh:.2f}" for kept, fresh in pairs]
        kept, fresh = np.sum(pairs, axis=0)
        print(f"dimension {dimension}: {kept / fresh:.2f} ({', '.join(ratios)})")


if __name__ == "__main__":
    main()
