"""Acknowledged labels a second of a store in a file and in PostgreSQL, by turns in one run.

Each commit has so many new requests and the labels of the requests of the commit before, as a node
under load makes them; its labels count as acknowledged when it is durable. The servers run on this
machine, one without and one with a synchronous standby. The CPU time is of this process and of all
processes of the servers. Run it with `python benchmarks/stores.py --write`.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # where the servers are started

from chaos.failover import pair  # noqa: E402 - needs the path of the tests
from covey.site.requests import CellLine, Commit, Request, RowGroup, SourceState  # noqa: E402 - needs the path of the tests
from covey.store.store import Store  # noqa: E402 - needs the path of the tests
from support.postgres import Server, servers  # noqa: E402 - needs the path of the tests
from support.requests_of_nodes import request  # noqa: E402 - needs the path of the tests
from support.stores import new_schema  # noqa: E402 - needs the path of the tests

PAGE = ROOT / "docs" / "operations" / "postgres.md"
BEGIN, END = "<!-- stores: begin -->", "<!-- stores: end -->"
SIZES = (1, 8, 64)
CELLS = 8
GOAL = 0.5  # of the rate of a file, with 64 labels a commit
TICKS = os.sysconf("SC_CLK_TCK")


class Figure(NamedTuple):
    """Labels a second, and CPU microseconds of the node and of the servers for each."""

    rate: float
    own_us: float
    server_us: float


class Kind(NamedTuple):
    """A kind of store."""

    name: str
    make: Callable[[], Store]
    servers: list[Server]


def measure(store: Store, size: int, seconds: float, kind: Kind) -> Figure:
    """Commit for so many seconds."""
    store.load("north", "fingerprint")
    number, labels, waiting = 0, 0, list[Request]()
    begun_s, own_s, server_s = time.perf_counter(), time.process_time(), _server_s(kind)
    while (took_s := time.perf_counter() - begun_s) < seconds:
        made = [_request(number + k + 1) for k in range(size)]
        number += size
        commit = Commit(requests=made, sources=[SourceState("", number)])
        commit.cells = [
            CellLine("", "", k, f"g8:{k}", [number, 1, 2, 3]) for k in range(min(size, CELLS))
        ]
        for one in waiting:
            commit.add_labels(one, [0], [1], [True])
            commit.closed.append(one.number)
        store.commit(commit)
        labels, waiting = labels + len(waiting), made
    own_us = (time.process_time() - own_s) / labels * 1e6
    return Figure(labels / took_s, own_us, (_server_s(kind) - server_s) / labels * 1e6)


def _request(number: int) -> Request:
    group = RowGroup(0, f"g8:{number % CELLS}", "explore", "f", 0.0)
    return request(number, groups=[group])


def _server_s(kind: Kind) -> float:
    """Return the CPU time of all processes of the servers, those that ended not included."""
    total = 0
    for server in kind.servers:
        for number in server.processes():
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def run(rounds: int, seconds: float) -> dict[tuple[int, str], list[Figure]]:
    """Measure all kinds of stores by turns."""
    found: dict[tuple[int, str], list[Figure]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (alone,) = stack.enter_context(servers())
        alone.create()
        alone.start()
        two = stack.enter_context(pair())
        files = iter(range(1_000))
        kinds = [
            Kind("file", lambda: Store(folder / f"{next(files)}.store"), []),
            Kind("alone", lambda: Store(new_schema(alone)), [alone]),
            Kind("standby", lambda: Store(new_schema(two.primary)), [two.primary, two.standby]),
        ]
        for number in range(rounds):
            for size in SIZES:
                for kind in kinds:
                    with closing(kind.make()) as store:
                        figure = measure(store, size, seconds, kind)
                    found.setdefault((size, kind.name), []).append(figure)
                    print(f"round {number + 1}, {size} a commit, {kind.name}: {figure}", flush=True)
    return found


def table(found: dict[tuple[int, str], list[Figure]], rounds: int, seconds: float) -> str:
    """Return the table of the page: the medians of the rounds."""
    load = os.getloadavg()[0]
    lines = [
        "| labels a commit | file: labels/s (CPU us) "
        "| PostgreSQL: labels/s (CPU us, of the server) "
        "| of the file | with a synchronous standby (CPU us, of both servers) | of the file |",
        "|---|---|---|---|---|---|",
    ]
    ratios = {}
    for size in SIZES:
        medians = {
            name: Figure(*map(statistics.median, zip(*found[size, name], strict=True)))
            for name in ("file", "alone", "standby")
        }
        file, alone, standby = medians.values()
        # Turns of one round are compared: the load of the machine changes.
        ratios[size] = [
            statistics.median(
                one.rate / other.rate
                for one, other in zip(found[size, name], found[size, "file"], strict=True)
            )
            for name in ("alone", "standby")
        ]
        lines.append(
            f"| {size} | {file.rate:,.0f} ({file.own_us:.0f}) "
            f"| {alone.rate:,.0f} ({alone.own_us:.0f} + {alone.server_us:.0f}) "
            f"| {ratios[size][0]:.2f} "
            f"| {standby.rate:,.0f} ({standby.own_us:.0f} + {standby.server_us:.0f}) "
            f"| {ratios[size][1]:.2f} |"
        )
    verdict = "reached" if ratios[SIZES[-1]][0] >= GOAL else "missed"
    return "\n".join(
        [
            BEGIN,
            f"Made by `python benchmarks/stores.py --write`: medians of {rounds} rounds of "
            f"{seconds:g} s each, by turns. The load average of the machine was {load:.1f}, on "
            f"{os.cpu_count()} cores: above that, rates are those of a busy machine, and CPU times "
            "are about right.",
            "",
            *lines,
            "",
            f"The goal is {GOAL} of the rate of a file, with {SIZES[-1]} labels a commit and "
            f"without a standby: {verdict}.",
            END,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--write", action="store_true", help=f"write the table of {PAGE.name}")
    options = parser.parse_args()
    text = table(run(options.rounds, options.seconds), options.rounds, options.seconds)
    print(text)
    if options.write:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(before + text + rest.partition(END)[2])


if __name__ == "__main__":
    main()
