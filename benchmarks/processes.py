"""Requests a second of a site whose function burns CPU time, in a thread and in processes.

python benchmarks/processes.py [--quick] [--processes 2]

The two sites are measured by turns, each with an empty store and the default policy, by one client
process over 32 connections that stay open. Every answer is on the disk before it is given. CPU
times are those of all threads of a process, divided by the requests; "by CPU" is the rate that
these times allow on two cores that nobody else uses: two divided by the time of all processes, the
client included, and at most one divided by the time of the busiest one. Writes PROCESSES.md.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from loading import Server, drive, started

HERE = Path(__file__).parent
CORES = 2
CONNECTIONS = 32
COSTS_MS = (1.0, 5.0, 20.0)
GOAL_MS, LEAST_GAIN = 5.0, 1.5
MODEL = "/v2/models/north"
BURN = """
import time

def burn(row):
    until = time.thread_time() + {cost_s}
    while time.thread_time() < until:
        pass
    return 0
"""
SITE = """
[node]
name = "north"
features = { size = "FP64" }
store = "north.store"
address = "127.0.0.1:0"
dimension = 1

[[learner]]
name = "north"
functions = ["burn"]

[[function]]
name = "burn"
kind = "python"
entry = "burn:burn"
"""


class Turn(NamedTuple):
    """One measurement: CPU microseconds of each process for a request, and the rate."""

    rate: float
    client_us: float
    site_us: float
    workers_us: tuple[float, ...]
    p99_ms: float

    @property
    def by_cpu(self) -> float:
        """The rate that the CPU times allow on two cores."""
        each = (self.client_us, self.site_us, *self.workers_us)
        return min(1e6 * CORES / sum(each), 1e6 / max(each))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, nothing is written")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    rounds, seconds = (1, 1.5) if options.quick else (5, 4.0)
    load = os.getloadavg()[0]
    found: dict[float, list[tuple[Turn, Turn]]] = {cost: [] for cost in COSTS_MS}
    for number in range(rounds):
        for cost_ms, turns in found.items():
            thread = measured(cost_ms, 0, seconds)
            processes = measured(cost_ms, options.processes, seconds)
            turns.append((thread, processes))
            gain = processes.rate / thread.rate
            print(f"round {number + 1}, {cost_ms:g} ms: {gain:.2f} times by the clock", flush=True)
    page = written(found, options.processes, seconds, load)
    print(page)
    if not options.quick:
        (HERE / "PROCESSES.md").write_text(page)
    return 0


def measured(cost_ms: float, processes: int, seconds: float) -> Turn:
    """Serve a new site, and drive it for a while."""
    with tempfile.TemporaryDirectory() as folder, _site(Path(folder), cost_ms, processes) as server:
        workers = [Server(server.port, pid) for pid in _children(server.pid)]
        before_s, own_s = [worker.cpu_s() for worker in workers], time.process_time()
        load = asyncio.run(drive(server, _infers(), CONNECTIONS, seconds))
        own_s = time.process_time() - own_s
        spent_s = [one.cpu_s() - old_s for one, old_s in zip(workers, before_s, strict=True)]
        each = 1e6 / load.done
        spent_us = tuple(one * each for one in spent_s)
        return Turn(load.rate, own_s * each, load.cpu_us, spent_us, load.p99_ms)


@contextlib.contextmanager
def _site(folder: Path, cost_ms: float, processes: int) -> Iterator[Server]:
    (folder / "burn.py").write_text(BURN.format(cost_s=cost_ms / 1e3))
    more = f"processes = {processes}\n" if processes else ""
    (folder / "site.toml").write_text(SITE + more)
    with started([sys.executable, "-m", "covey", "serve", str(folder / "site.toml")]) as server:
        yield server


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started (Linux)."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _infers() -> Iterator[bytes]:
    for number in count():
        context = number * 0.618033988749895 % 1.0
        body = (
            b'{"id":"flow-%d","inputs":[{"name":"size","shape":[1],"datatype":"FP64","data":[1.5]},'
            b'{"name":"context","shape":[1,1],"datatype":"FP64","data":[%.17g]}]}'
            % (number, context)
        )
        yield (
            b"POST %b/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % (MODEL.encode(), len(body))
        ) + body


# -- the page -----------------------------------------------------------------------------------


def written(
    found: dict[float, list[tuple[Turn, Turn]]], processes: int, seconds: float, load: float
) -> str:
    """Return the page of all rounds; every figure is a median. `load` is that before the first."""
    lines = [
        "# A function in processes",
        "",
        "Written by `python benchmarks/processes.py`; its head says what is measured.",
        f"{len(found[GOAL_MS])} rounds of {seconds:g} s by turns, single rows, {CONNECTIONS} "
        f"connections, {os.cpu_count()} cores,",
        f"load of the machine before it {load:.1f}. Medians of requests a second in a thread and "
        f"in {processes} processes:",
        "",
        "| function, ms | by the clock, thread | processes | gain | by CPU, thread | processes "
        "| gain | p99 ms, thread | processes | CPU µs of the site, thread | processes |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cost_ms, turns in found.items():
        cells = [f"{cost_ms:g}"]
        for name in ("rate", "by_cpu"):
            cells += [f"{_median(getattr(turn[k], name) for turn in turns):,.0f}" for k in (0, 1)]
            cells.append(f"{_gain(turns, name):.2f}")
        for name in ("p99_ms", "site_us"):
            cells += [f"{_median(getattr(turn[k], name) for turn in turns):,.0f}" for k in (0, 1)]
        lines.append(f"| {' | '.join(cells)} |")
    gain = _gain(found[GOAL_MS], "rate")
    verdict = "reached" if gain >= LEAST_GAIN else "**missed**"
    if load > CORES:
        verdict = "**not shown** on a busy machine: run it again on idle cores"
    lines += [
        "",
        f"Goal, at least {LEAST_GAIN:g} times the rate on {CORES} cores with a function of "
        f"{GOAL_MS:g} ms: {gain:.2f} by the clock, {_gain(found[GOAL_MS], 'by_cpu'):.2f} by CPU, "
        f"{verdict}.",
        "",
    ]
    return "\n".join(lines)


def _gain(turns: Iterable[tuple[Turn, Turn]], name: str) -> float:
    return _median(getattr(second, name) / getattr(first, name) for first, second in turns)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    raise SystemExit(main())
