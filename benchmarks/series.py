"""What the history of a site adds to the writes of its store.

python benchmarks/series.py

The two commits of a request and its label, by turns with and without the history, which writes the
lines of minutes and hours that are over every five minutes, along with another commit. Prints CPU
times, as the disk takes longer and no longer with them, and what the history adds at several rates:
at one request a minute one arm has counts in a minute, at higher rates all have.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from covey.bandit.learner import UNKNOWN
from covey.site.requests import Commit, Request, RowGroup
from covey.site.status import MINUTE_S, ArmState, SiteHistory
from covey.store.store import Store

ARMS = 12
BUSY_RATES = (12, 60, 6_000)  # requests a minute


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=4_000)
    options = parser.parse_args()
    for busy, rates in ((1, (1,)), (ARMS, BUSY_RATES)):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            plain_s, with_history_s = measured(Path(folder) / "north.store", options.commits, busy)
        print(f"a request and its label: {1e6 * plain_s:.0f} us")
        print(
            f"with a minute in which {busy} of {ARMS} arms counted: {1e6 * with_history_s:.0f} us"
        )
        for rate in rates:
            added = (with_history_s - plain_s) / rate + looked_s()
            print(f"at {rate} requests a minute the history adds {100 * added / plain_s:.2f} %")


def measured(path: Path, count: int, busy: int) -> tuple[float, float]:
    """Return the mean seconds without history, and with that of a minute."""
    times: dict[bool, list[float]] = {False: [], True: []}
    history, unused, now_s = SiteHistory(), SiteHistory(), 1_800_000_000
    for one in (history, unused):
        one.note(arms(0, busy), now_s)
    with closing(Store(path)) as store:
        store.load("north", "")
        for number in range(1, count + 1):
            commit, of_label = commits_of(number)
            has_history = number % 2 == 0
            # Both turns do it, so that both commits find the caches of the processor in one state.
            (history if has_history else unused).note(arms(number, busy), now_s)
            now_s += MINUTE_S * has_history
            begun_s = time.process_time()
            if has_history:
                commit.series = history.due(now_s)
            store.commit(commit)
            store.commit(of_label)
            if has_history:
                history.written(commit.series)
            times[has_history].append(time.process_time() - begun_s)
    return statistics.mean(times[False]), statistics.mean(times[True])


def looked_s() -> float:
    """Return how long every commit looks whether lines are due."""
    history = SiteHistory()
    for number in range(2):
        history.note(arms(number, ARMS), 0)
    begun_s = time.process_time()
    for _ in range(10_000):
        history.due(1.0)
    return (time.process_time() - begun_s) / 10_000


def arms(count: int, busy: int) -> list[ArmState]:
    """Return all arms, of which some have counted so much."""
    counts = [count] * busy + [0] * (ARMS - busy)
    return [
        ArmState(f"arm-{k}", "own", 0.1, one, 0, 0.1 * one, one, one)
        for k, one in enumerate(counts)
    ]


def commits_of(number: int) -> tuple[Commit, Commit]:
    """Return the commits of a request and of its label."""
    request = Request(
        number=number,
        source="",
        id=f"{number:032x}",
        slot=number,
        groups=[RowGroup(0, "g4:1", "exploit", "arm-0", 0.1)],
        contexts=[(0.3,)],
        predictions=[1],
        answers=[1],
        truths=[UNKNOWN],
        group_of=[0],
    )
    of_label = Commit()
    of_label.add_labels(request, [0], [1], [True])
    return Commit(requests=[request]), of_label


if __name__ == "__main__":
    main()
