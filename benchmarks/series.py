"""What the history of a site adds to the writes of its store.

python benchmarks/series.py

Commits of one labelled request, by turns with and without the lines of a minute, which a site
writes at most once a minute, along with another commit. Prints their CPU time, as the disk takes
longer and no longer with them, and what they add at several rates of requests.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from covey.bandit.learner import UNKNOWN
from covey.node.requests import Commit, Request, RowGroup
from covey.node.series import MINUTE_S, SiteHistory
from covey.node.status import ArmState
from covey.node.store import Store

ARMS = 12
RATES = (1 / 60, 1.0, 100.0)  # requests a second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        plain_s, with_lines_s, look_s = measured(Path(folder) / "north.store", options.commits)
    print(f"commit of one labelled request: {1e6 * plain_s:.0f} us")
    print(
        f"with the lines of a minute, an hour and a day of {ARMS} arms: {1e6 * with_lines_s:.0f} us"
    )
    print(f"look whether lines are due, in every commit: {1e6 * look_s:.2f} us")
    for rate in RATES:
        per_minute = max(1.0, 60 * rate)
        added = (with_lines_s - plain_s) / per_minute + look_s
        print(f"at {60 * rate:g} requests a minute it adds {100 * added / plain_s:.3f} %")


def measured(path: Path, count: int) -> tuple[float, float, float]:
    """Return the mean seconds of a commit without and with lines, and of a look."""
    times: dict[bool, list[float]] = {False: [], True: []}
    history, begin = history_of(), 1_800_000_000
    with closing(Store(path)) as store:
        store.load("north", "")
        for number in range(1, count + 1):
            commit = commit_of(number)
            has_lines = number % 2 == 0
            if has_lines:
                history.note(arms(number), begin + number * MINUTE_S)
                commit.series = history.due(begin + number * MINUTE_S, is_last=True)
            begun_s = time.process_time()
            store.commit(commit)
            times[has_lines].append(time.process_time() - begun_s)
            history.written(commit.series)
    history.note(arms(count + 1), begin)
    begun_s = time.process_time()
    for _ in range(10_000):
        history.due(begin)
    look_s = (time.process_time() - begun_s) / 10_000
    return statistics.mean(times[False]), statistics.mean(times[True]), look_s


def history_of() -> SiteHistory:
    history = SiteHistory()
    history.note(arms(0), 0.0)
    return history


def arms(count: int) -> list[ArmState]:
    return [
        ArmState(f"arm-{k}", "own", 0.1, count, 0, 0.1 * count, count, count) for k in range(ARMS)
    ]


def commit_of(number: int) -> Commit:
    """Return the commit of a request and its label."""
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
    commit = Commit(requests=[request])
    commit.add_labels(request, [0], [1], [True])
    return commit


if __name__ == "__main__":
    main()
