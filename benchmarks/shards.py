"""CPU time and requests a second of a site in one process, and in two shards behind a router.

python benchmarks/shards.py [--quick] [--shards 2]

Every function burns CPU time: the row of a table says how much. The site in one process and the
one in shards are measured by turns, a site with an empty store each, by one client process over 32
connections that stay open. Every answer is on the disk before it is given. CPU times are those of
all threads of a process, divided by the requests; "by CPU" is the rate that these times allow on
two cores that nobody else uses: two divided by the time of all processes, the client included, and
at most one divided by the time of the busiest one. Writes SHARDS.md.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from loading import Server, drive, started

HERE = Path(__file__).parent
CORES = 2
CONNECTIONS = 32
COSTS_MS = (0.2, 1.0, 2.0, 5.0)
MODEL = "/v2/models/north"
MOST_ROUTER_US, LEAST_GAIN = 300.0, 1.6
BURN = """
import time

def _burn():
    until = time.thread_time() + {cost_s}
    while time.thread_time() < until:
        pass

def zero(row):
    _burn()
    return 0

def one(row):
    _burn()
    return 1
"""
SITE = """
[node]
name = "north"
features = { size = "FP64" }
store = "north.store"
address = "127.0.0.1:0"
dimension = 1

[policy]
preset = "cos"
pending = false
slices = 64
label-wait = 1_000_000

[[learner]]
name = "north"
functions = ["zero", "one"]

[[function]]
name = "zero"
kind = "python"
entry = "burn:zero"

[[function]]
name = "one"
kind = "python"
entry = "burn:one"
"""


class Turn(NamedTuple):
    """One measurement: CPU microseconds of each process for a request, and the rate."""

    rate: float
    client_us: float
    first_us: float  # of the process that listens
    shards_us: tuple[float, ...]
    p99_ms: float

    @property
    def total_us(self) -> float:
        return self.client_us + self.first_us + sum(self.shards_us)

    @property
    def by_cpu(self) -> float:
        """The rate that the CPU times allow on two cores."""
        busiest = max(self.client_us, self.first_us, *self.shards_us)
        return min(1e6 * CORES / self.total_us, 1e6 / busiest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, nothing is written")
    parser.add_argument("--shards", type=int, default=2)
    options = parser.parse_args()
    rounds, seconds = (1, 1.5) if options.quick else (4, 4.0)
    load = os.getloadavg()[0]
    found: dict[float, list[tuple[Turn, Turn]]] = {cost: [] for cost in COSTS_MS}
    for turn in range(rounds):
        for cost_ms in COSTS_MS:
            pair = []
            for shards in (0, options.shards):
                pair.append(measured(cost_ms, shards, seconds))
                print(f"round {turn + 1}, {cost_ms} ms, {shards or 'no'} shards: {pair[-1]}")
            found[cost_ms].append((pair[0], pair[1]))
    page = written(found, options.shards, seconds, load)
    print(page)
    if not options.quick:
        (HERE / "SHARDS.md").write_text(page)
    return 0


def measured(cost_ms: float, shards: int, seconds: float) -> Turn:
    """Serve a new site, and drive it for a while."""
    with tempfile.TemporaryDirectory() as folder, _site(Path(folder), cost_ms, shards) as server:
        processes = [Server(server.port, pid) for pid in _shards_of(server.port)]
        before = [one.cpu_s() for one in processes]
        own_s = time.process_time()
        load = asyncio.run(drive(server, _infers(), CONNECTIONS, seconds))
        own_s = time.process_time() - own_s
        spent = [one.cpu_s() - old for one, old in zip(processes, before, strict=True)]
        each = 1e6 / load.done
        return Turn(
            load.rate, own_s * each, load.cpu_us, tuple(one * each for one in spent), load.p99_ms
        )


@contextlib.contextmanager
def _site(folder: Path, cost_ms: float, shards: int) -> Iterator[Server]:
    (folder / "burn.py").write_text(BURN.format(cost_s=cost_ms / 1e3))
    (folder / "site.toml").write_text(SITE)
    command = [sys.executable, "-m", "covey", "serve", str(folder / "site.toml")]
    command += ["--shards", str(shards)] if shards else []
    with started(command) as server:
        yield server


def _shards_of(port: int) -> list[int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{MODEL}/state") as response:
        return [shard["pid"] for shard in json.load(response)["shards"]]


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
    found: dict[float, list[tuple[Turn, Turn]]], shards: int, seconds: float, load: float
) -> str:
    """Return the page of all rounds; every figure is a median. `load` is that before the first."""
    lines = [
        "# A site in shards",
        "",
        "Written by `python benchmarks/shards.py`; its head says what is measured.",
        f"{len(next(iter(found.values())))} rounds of {seconds:g} s by turns, single rows with ids"
        f" of the client, {CONNECTIONS} connections, {os.cpu_count()} cores,",
        f"load of the machine before it {load:.1f}.",
        "",
        "CPU microseconds of a request, medians:",
        "",
        "| function, ms | one process | its client | router | shards, all | their client |",
        "|---|---|---|---|---|---|",
    ]
    for cost_ms, turns in found.items():
        one, many = [first for first, _ in turns], [second for _, second in turns]
        figures = (
            _median(turn.first_us for turn in one),
            _median(turn.client_us for turn in one),
            _median(turn.first_us for turn in many),
            _median(sum(turn.shards_us) for turn in many),
            _median(turn.client_us for turn in many),
        )
        lines.append(f"| {cost_ms:g} | " + " | ".join(f"{one:,.0f}" for one in figures) + " |")
    lines += [
        "",
        f"Requests a second, one process and {shards} shards, medians:",
        "",
        "| function, ms | by CPU, one | by CPU, shards | gain | by the clock, one "
        "| by the clock, shards | gain | p99 ms, one | p99 ms, shards |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cost_ms, turns in found.items():
        one, many = [first for first, _ in turns], [second for _, second in turns]
        cells = [f"{cost_ms:g}"]
        for which in ("by_cpu", "rate"):
            cells += [
                f"{_median(getattr(turn, which) for turn in side):,.0f}" for side in (one, many)
            ]
            gains = [getattr(b, which) / getattr(a, which) for a, b in turns]
            cells.append(f"{_median(gains):.2f}")
        cells += [f"{_median(turn.p99_ms for turn in side):.0f}" for side in (one, many)]
        lines.append("| " + " | ".join(cells) + " |")
    routers = [_median(b.first_us for _, b in turns) for turns in found.values()]
    by_cpu = _median(b.by_cpu / a.by_cpu for a, b in found[2.0])
    by_clock = _median(b.rate / a.rate for a, b in found[2.0])
    if load > CORES:
        lines += [
            "",
            f"**The machine was busy** (load {load:.0f} on {CORES} cores), and the site got a",
            "small share of it. Rates by the clock say nothing, and CPU times are too long: few",
            "requests shared a commit and a turn of the event loop. Run it again on idle cores.",
        ]
    lines += [
        "",
        f"- Goal, router at most {MOST_ROUTER_US / 1e3:g} ms CPU for a request: "
        f"{', '.join(f'{one / 1e3:.2f}' for one in routers)} ms by function, "
        f"{_verdict(max(routers) <= MOST_ROUTER_US, load)}.",
        f"- Goal, at least {LEAST_GAIN:g} times the rate on {CORES} cores with functions of 2 ms: "
        f"{by_clock:.2f} by the clock, {by_cpu:.2f} by CPU, "
        f"{_verdict(by_clock >= LEAST_GAIN, load)}.",
        "",
    ]
    return "\n".join(lines)


def _median(values: Iterator[float]) -> float:
    return statistics.median(values)


def _verdict(is_reached: bool, load: float) -> str:
    if load > CORES:
        return "**not shown** on a busy machine"
    return "reached" if is_reached else "**missed**"


if __name__ == "__main__":
    raise SystemExit(main())
