"""CPU time of a start of a site whose store has a million labelled requests.

python benchmarks/start.py --requests 1000000
"""

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

from covey.bandit.learner import UNKNOWN
from covey.site.requests import Commit, PeerAnswer, Request, RowGroup
from covey.store.store import Store

AT_ONCE = 2_000  # requests in one commit
FINGERPRINT = "arm: f"
GROUPS = [
    RowGroup(k, f"g4:{k}", "exploit", ("f", "g", "south")[k % 3], 0.0, ("", "", "south")[k % 3])
    for k in range(300)
]


def build(path: Path, requests: int, seed: int = 1) -> None:
    """Write a store of requests with one row and its label, a third of them answered by a peer."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    store = Store(path, rows_kept=2 * requests)
    store.load("north", FINGERPRINT)
    for first in range(1, requests + 1, AT_ONCE):
        commit = Commit()
        for number in range(first, min(first + AT_ONCE, requests + 1)):
            request = _request(number, chance)
            commit.requests.append(request)
            commit.add_labels(request, [0], ["normal"], [request.predictions[0] == "normal"])
            if number <= requests - 10_000:
                commit.closed.append(number)
        store.commit(commit)
    store.close()


def _request(number: int, chance: random.Random) -> Request:
    group, label = chance.choice(GROUPS), chance.choice(["normal", "attack"])
    answers = {0: PeerAnswer("h", f"{chance.getrandbits(128):032x}")} if group.peer else {}
    return Request(
        number=number,
        source="",
        id=f"{chance.getrandbits(128):032x}",
        slot=number,
        groups=[group],
        contexts=[(chance.random(), chance.random())],
        predictions=[label],
        answers=[label],
        truths=[UNKNOWN],
        digest=f"{chance.getrandbits(128):032x}",
        peer_answers=answers,
    )


def main() -> None:
    """Build a store, and measure how long it takes to open and load it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "north.store")
        build(path, options.requests)
        begun_s = time.process_time()
        store = Store(path, rows_kept=2 * options.requests, tell=print)
        opened_s = time.process_time()
        store.load("north", FINGERPRINT)
        loaded_s = time.process_time()
        mb = path.stat().st_size / 1e6
        memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        store.close()
    print(
        f"{options.requests:,} labelled requests, {mb:.0f} MB: "
        f"{opened_s - begun_s:.2f} s of CPU to check its pages, "
        f"{loaded_s - opened_s:.2f} s to load; {memory_mb:.0f} MB of memory"
    )


if __name__ == "__main__":
    main()
