"""CPU time and requests a second of a served site, beside a reference that only answers.

python benchmarks/load.py [--quick]

Server and client are two processes on one machine and speak HTTP on the loopback, plain or by TLS,
over 64 connections that stay open, each with one request at a time. The client writes bytes that
were made before and reads no more of an answer than its status and length. The reference is a
protocol of asyncio that parses a request and writes a constant, without limits, checks or metrics.
CPU time is that of all threads of the server, and is compared with the reference of the same
round. Every answer and every label is on the disk before it is acknowledged. Writes LOAD.md.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from loading import Load, Server, drive, started

from covey.node.functions import Limits
from covey.server import keys
from covey.server.connection import Listener, LoopbackOnly
from covey.server.http import (
    BINARY,
    JSON,
    LENGTH,
    Address,
    HttpRequest,
    HttpResponse,
)
from covey.server.metrics import Metrics

HERE = Path(__file__).parent
CONNECTIONS, BATCH_CONNECTIONS = 64, 8
ROWS, WIDTH = 1_024, 8
GOAL_INFER, GOAL_FEEDBACK, GOAL_ROWS, TIMEOUT_S = 5.0, 4.0, 200_000, 1.0
SECONDS = {"full": 2.5, "quick": 1.0}
ROUNDS = {"full": 5, "quick": 1}
MODEL = "/v2/models/north"
BODY = b" " * 256  # of a constant, as long as an answer of a node
NODE = """
[node]
name = "north"
features = {{ {features} }}
instance = "row"
store = "north.store"
address = "127.0.0.1:0"
dimension = 1
{identity}
[policy]
preset = "cos"
slices = {slices}
label-wait = {wait}
{thresholds}
[[learner]]
name = "north"
functions = ["zero", "one"]
peers = {{ {peers} }}

[[function]]
name = "zero"
kind = "constant"
label = 0

[[function]]
name = "one"
kind = "constant"
label = 1
"""
IDENTITY = """
certificate = "north.crt"
key = "north.key"
tls = {tls}
"""
# With these, peers are asked from the first slot on.
ASKING = """
explore = { scale = 0.0, power = 0.0 }
train = { scale = 1.0, power = 0.5 }
explore-peers = { scale = 1.0, power = 0.5 }
"""
PEER = """
[[peer]]
name = "south"
key = "{key}"
url = "https://127.0.0.1:{port}"
share = "data"
"""


class Constant:
    """Answers every call alike, with as many bytes as a node would."""

    async def handle(self, call: HttpRequest) -> HttpResponse:
        """Answer."""
        return HttpResponse(body=BODY)


class Reference(asyncio.Protocol):
    """The least that a server can do: parse a request, and write a constant."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with nothing."""
        self._transport = transport
        self._held = b""

    def data_received(self, data: bytes) -> None:
        """Answer if a request is whole."""
        self._held += data
        head, mark, body = self._held.partition(b"\r\n\r\n")
        if not mark:
            return
        line, *lines = head.decode("latin-1").split("\r\n")
        _method, _path, _version = line.split(" ")
        headers = {}
        for one in lines:
            name, _, value = one.partition(":")
            headers[name.strip().lower()] = value.strip()
        if len(body) < int(headers.get("content-length", "0")):
            return
        self._held = b""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nContent-Length: {len(BODY)}\r\n\r\n"
        self._transport.write(head.encode("latin-1") + BODY)  # type: ignore[attr-defined] # asyncio types it as any transport


class Singles(NamedTuple):
    """What was measured of single requests in a round, plain or by TLS."""

    reference: Load
    constant: Load
    infer: Load
    feedback: Load


class Found(NamedTuple):
    """What was measured in a round, or the best of several."""

    plain: Singles
    tls: Singles
    batches: Load
    alone: Load
    beside: Load  # a peer that hangs


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Measure a served site over HTTP.")
    parser.add_argument("--quick", action="store_true", help="shorter, and writes nothing")
    parser.add_argument("--serve", choices=("reference", "constant"), help=argparse.SUPPRESS)
    parser.add_argument("--keys", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(_serve(options.serve, options.keys))
        return 0
    how = "quick" if options.quick else "full"
    page = _page(_measured(SECONDS[how], ROUNDS[how]))
    print(page)
    if not options.quick:
        (HERE / "LOAD.md").write_text(page)
    return 0


def _measured(seconds: float, rounds: int) -> list[Found]:
    return [
        Found(
            _singles(seconds, has_tls=False),
            _singles(seconds, has_tls=True),
            _batches(seconds),
            # Twice as long: who hangs is waited for at first, and then left alone.
            _asking(2 * seconds, hangs=False),
            _asking(2 * seconds, hangs=True),
        )
        for _ in range(rounds)
    ]


# -- what is measured ---------------------------------------------------------------------------


def _singles(seconds: float, *, has_tls: bool) -> Singles:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        _new_keys(folder)
        constants = []
        for name in ("reference", "constant"):
            command = [sys.executable, __file__, "--serve", name]
            command += ["--keys", str(folder)] if has_tls else []
            with started(command, _files(folder)[0]) as server:
                constants.append(asyncio.run(drive(server, _infers(), CONNECTIONS, seconds)))
        identity = IDENTITY.format(tls=str(has_tls).lower())
        with _site(folder, identity=identity) as server:
            answered = asyncio.run(drive(server, _infers(), CONNECTIONS, seconds))
            most = 3 * answered.done  # labels, which are quicker than answers, but not by that much
            asyncio.run(_fill(server, answered.done, most))
            told = asyncio.run(drive(server, map(_feedback, range(most)), CONNECTIONS, seconds))
    return Singles(*constants, answered, told)


async def _fill(server: Server, begin: int, end: int) -> None:
    """Ask for more tickets, as many as labels may be sent."""
    asked = (_infer(number) for number in range(begin, end))
    await drive(server, asked, CONNECTIONS, 600.0)


def _batches(seconds: float) -> Load:
    features = ", ".join(f'x{k} = "FP64"' for k in range(WIDTH))
    with (
        tempfile.TemporaryDirectory() as folder,
        _site(Path(folder), features, wait="200_000") as server,
    ):
        # Requests whose label-wait has expired leave the memory, as they do in a long run.
        tail = np.random.default_rng(1).random(ROWS * (WIDTH + 1)).astype("<f8").tobytes()
        sent = (_batch(number, tail) for number in count())
        return asyncio.run(drive(server, sent, BATCH_CONNECTIONS, seconds))


def _asking(seconds: float, *, hangs: bool) -> Load:
    """Measure single rows at a site with a peer that takes connections and says nothing."""
    with tempfile.TemporaryDirectory() as text, socket.create_server(("127.0.0.1", 0)) as silent:
        folder = Path(text)
        south = _new_keys(folder)
        peer = PEER.format(key=south, port=silent.getsockname()[1]) if hangs else ""
        peers = "south = 0.0" if hangs else ""
        parts = {"identity": IDENTITY.format(tls="false"), "thresholds": ASKING, "peers": peers}
        with _site(folder, more=peer, **parts) as server:
            return asyncio.run(drive(server, _infers(), CONNECTIONS, seconds, warm=0.0))


# -- requests -----------------------------------------------------------------------------------


def _infers() -> Iterator[bytes]:
    return map(_infer, count())


def _infer(number: int) -> bytes:
    context = number * 0.618033988749895 % 1.0
    body = {
        "id": f"flow-{number}",
        "inputs": [
            {"name": "size", "shape": [1], "datatype": "FP64", "data": [1.5]},
            {"name": "context", "shape": [1, 1], "datatype": "FP64", "data": [context]},
        ],
    }
    return _post("/infer", json.dumps(body).encode())


def _feedback(number: int) -> bytes:
    return _post("/feedback", b'{"id": "flow-%d", "truth": %d}' % (number, number % 3 % 2))


def _batch(number: int, tail: bytes) -> bytes:
    sizes = ROWS * WIDTH * 8, ROWS * 8
    inputs: list[dict[str, Any]] = [
        {"name": "instances", "shape": [ROWS, WIDTH], "datatype": "FP64"},
        {"name": "context", "shape": [ROWS, 1], "datatype": "FP64"},
    ]
    for tensor, size in zip(inputs, sizes, strict=True):
        tensor["parameters"] = {"binary_data_size": size}
    wanted = [{"name": "label", "parameters": {"binary_data": True}}]
    head = json.dumps({"id": f"batch-{number}", "inputs": inputs, "outputs": wanted}).encode()
    return _post("/infer", head + tail, f"{LENGTH}: {len(head)}\r\n", kind=BINARY)


def _post(path: str, body: bytes, more: str = "", *, kind: str = JSON) -> bytes:
    head = (
        f"POST {MODEL}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"{more}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


# -- servers ------------------------------------------------------------------------------------


async def _serve(name: str, folder: Path | None) -> None:
    """Serve the reference, or a constant behind all that a listener does."""
    context = None if folder is None else partial(keys.open_context, *_files(folder))
    if name == "reference":
        loop, tls = asyncio.get_running_loop(), None if context is None else context()
        serving = await loop.create_server(Reference, "127.0.0.1", 0, ssl=tls)
        scheme, port = "http" if tls is None else "https", serving.sockets[0].getsockname()[1]
        url = Address("127.0.0.1", port).url(scheme)
    else:
        listener = Listener(
            Constant(),
            Address("127.0.0.1", 0),
            gate=LoopbackOnly(),
            limits=Limits(),
            tls=context,
            side="front",
            metrics=Metrics({f"{MODEL}/infer": "/infer"}),
        )
        url = await listener.open()
    print(url, file=sys.stderr, flush=True)
    await asyncio.Event().wait()


def _new_keys(folder: Path) -> str:
    """Make the keys of two sites, of which one is served; return the hash of the other."""
    for name in ("north", "south"):
        card = keys.new(name, hosts=["127.0.0.1"], folder=folder)
    return str(card.key)


def _files(folder: Path) -> tuple[Path, Path]:
    return folder / "north.crt", folder / "north.key"


@contextlib.contextmanager
def _site(
    folder: Path, features: str = 'size = "FP64"', *, more: str = "", **parts: str
) -> Iterator[Server]:
    usual = {"wait": "10_000_000", "slices": "4", "identity": "", "thresholds": "", "peers": ""}
    usual |= parts
    (folder / "site.toml").write_text(NODE.format(features=features, **usual) + more)
    command = [sys.executable, "-m", "covey", "serve", str(folder / "site.toml")]
    with started(command, _files(folder)[0]) as server:
        yield server


# -- the page -----------------------------------------------------------------------------------


def _page(rounds: list[Found]) -> str:
    loads = zip(*(one[2:] for one in rounds), strict=True)
    batches, alone, beside = (max(one, key=lambda load: load.rate) for one in loads)
    lines = [
        "# Load",
        "",
        "Made by `python benchmarks/load.py`, which says how: rates are the best of "
        f"{len(rounds)} rounds, and CPU times the median of the rounds. The load average of the "
        f"machine was {os.getloadavg()[1]:.1f}: above its number of cores, times and rates are "
        "those of a busy machine, and CPU times are about right.",
        "",
        *_table("plain HTTP", [one.plain for one in rounds]),
        *_table("TLS 1.3", [one.tls for one in rounds]),
        f"Batches of {ROWS:,} rows of {WIDTH} numbers in bytes over {BATCH_CONNECTIONS} "
        f"connections: {batches.rate * ROWS:,.0f} rows a second, p50 and p99 "
        f"{' and '.join(_times(batches).split(' | '))} ms a batch; the goal is "
        f"{GOAL_ROWS:,} rows a second: {_verdict(batches.rate * ROWS >= GOAL_ROWS)}.",
        "",
        "| single rows at a site with keys | requests/s | p50 ms | p99 ms | longest ms |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {one.rate:,.0f} | {_times(one)} | {one.longest_ms:,.1f} |"
            for name, one in (("no peer", alone), ("one peer that hangs", beside))
        ),
        "",
        f"The goal is a p99 that grows by no more than the {TIMEOUT_S:g} s for which a peer is "
        f"waited for: {_verdict(beside.p99_ms - alone.p99_ms <= TIMEOUT_S * 1e3)}.",
        "",
    ]
    return "\n".join(lines)


def _table(title: str, rounds: list[Singles]) -> list[str]:
    """Return a table of single requests, and whether the goals are reached."""
    names = ("the reference", "a constant", "`infer`, one row", "`feedback`, one label")
    lines = [
        f"| {title} | CPU us/request | of the reference | requests/s | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    # Of the same round: how fast a shared machine is changes from one minute to the next.
    costs = []
    for name, loads in zip(names, zip(*rounds, strict=True), strict=True):
        best = max(loads, key=lambda load: load.rate)
        cpu_us = statistics.median(load.cpu_us for load in loads)
        pairs = zip(loads, rounds, strict=True)
        costs.append(statistics.median(one.cpu_us / by.reference.cpu_us for one, by in pairs))
        lines.append(
            f"| {name} | {cpu_us:,.0f} | {costs[-1]:.1f} | {best.rate:,.0f} | {_times(best)} |"
        )
    verdicts = [_verdict(costs[2] <= GOAL_INFER), _verdict(costs[3] <= GOAL_FEEDBACK)]
    goals = (
        f"The goal is a CPU time of at most {GOAL_INFER:g} references for an `infer`: "
        f"{verdicts[0]}; and of {GOAL_FEEDBACK:g} for a `feedback`: {verdicts[1]}."
    )
    return [*lines, "", goals, ""]


def _times(load: Load) -> str:
    return f"{load.p50_ms:,.1f} | {load.p99_ms:,.1f}"


def _verdict(is_reached: bool) -> str:
    return "reached" if is_reached else "missed"


if __name__ == "__main__":
    raise SystemExit(main())
