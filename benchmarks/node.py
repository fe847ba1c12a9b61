"""Rows a second of a node and its store: batches of 1,024 rows, each one record on the disk.

python benchmarks/node.py [--quick]

The functions cost nothing: they answer a constant. Several clients send one batch after the other,
without a network; a second line labels every row as well, by the id of its batch. Client and node
share one process, so what the clients do counts too.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

import numpy as np

from covey.config import learner_of, load
from covey.network.network import functions_of
from covey.node.functions import ThreadWorkers
from covey.node.node import Node, NodeDependencies, Question
from covey.store.store import Store

ROWS = 1_024
CLIENTS = 8
GOAL = 200_000
SECONDS = {"full": 5.0, "quick": 1.0}
ROUNDS = {"full": 5, "quick": 2}


class Constant:
    """Answers a constant, many rows at once."""

    def __init__(self, label: int) -> None:
        self._label = label

    def __call__(self, instance: object) -> int:
        """Answer one row."""
        return self._label

    def predict_batch(self, rows: np.ndarray) -> list[int]:
        """Answer many."""
        return [self._label] * len(rows)


def main() -> int:
    """Measure answers alone, and answers with all their labels."""
    parser = argparse.ArgumentParser(description="Measure batches through a node and its store.")
    parser.add_argument("--quick", action="store_true", help="shorter")
    how = "quick" if parser.parse_args().quick else "full"
    best = {}
    for is_labelled in (False, True):
        rates = [
            asyncio.run(_rate(SECONDS[how], is_labelled=is_labelled)) for _ in range(ROUNDS[how])
        ]
        best[is_labelled] = max(rates)
        what = "with all labels" if is_labelled else "answers alone"
        print(f"{what:16}{max(rates):12,.0f} rows a second{1e6 / max(rates):8.2f} us a row")
    verdict = "Reached" if best[False] >= GOAL else "Missed"
    print(f"{verdict}: {best[False]:,.0f} rows a second; the goal is {GOAL:,}")
    return 0


async def _rate(seconds: float, *, is_labelled: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "site.store")
        workers = ThreadWorkers(store)
        node = _node(store, workers)
        node.start()
        begin = time.perf_counter()
        until = begin + seconds
        counts = await asyncio.gather(
            *(_client(node, k, until, is_labelled=is_labelled) for k in range(CLIENTS))
        )
        elapsed = time.perf_counter() - begin
        node.stop()
        workers.close()
        store.close()
    return sum(counts) / elapsed


async def _client(node: Node, number: int, until: float, *, is_labelled: bool) -> int:
    rng = np.random.default_rng(number)
    rows, contexts = rng.normal(size=(ROWS, 8)), rng.random((ROWS, 1))
    labels = rng.integers(0, 2, ROWS).tolist()
    places, count = list(range(ROWS)), 0
    while time.perf_counter() < until:
        asked = Question("", f"{number}-{count}", "digest")
        request = await node.answer(rows, contexts, question=asked)
        if is_labelled:
            await node.learn_rows(request.id, places, labels)
        count += ROWS
    return count


def _node(store: Store, workers: ThreadWorkers) -> Node:
    config = {
        "policy": {"preset": "cos", "slices": 4, "pending": True},
        "learner": [{"name": "site", "functions": ["zero", "one"]}],
    }
    setup = load(config)
    functions = functions_of(setup.sites[0], {"zero": Constant(0), "one": Constant(1)})
    chance = random.Random(0)  # noqa: S311 - ids need no secrecy here
    dependencies = NodeDependencies(store, {}, chance, workers)
    return Node(setup.sites[0], learner_of(setup, 0, 1), functions, dependencies)


if __name__ == "__main__":
    raise SystemExit(main())
