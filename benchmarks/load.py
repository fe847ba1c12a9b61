"""Requests a second of a served site, beside the same server with nothing to do.

python benchmarks/load.py [--quick]

Server and client are two processes on one machine and speak plain HTTP on the loopback, over 64
connections that stay open, each with one request at a time. The client writes bytes that were made
before and reads no more of an answer than its status and length, so that the server is what is
measured. Every answer and every label is on the disk before it is acknowledged. Writes LOAD.md.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from loading import Load, drive

from covey.server import keys
from covey.server.http import BINARY, JSON, Address, HttpRequest, HttpResponse, SiteLimits
from covey.server.listener import Listener, LoopbackOnly
from covey.server.metrics import Metrics
from covey.server.tensors import LENGTH

HERE = Path(__file__).parent
CONNECTIONS, BATCH_CONNECTIONS = 64, 8
ROWS, WIDTH = 1_024, 8
GOAL_RATIO, GOAL_ROWS, TIMEOUT_S = 0.5, 200_000, 1.0
SECONDS = {"full": 2.5, "quick": 1.0}
ROUNDS = {"full": 5, "quick": 1}
MODEL = "/v2/models/north"
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
slices = 4
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
authority = "office/ca.crt"
tls = false
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
        return HttpResponse(body=b" " * 256)


class Found(NamedTuple):
    """What was measured in a round, or the best of several."""

    constant: Load
    infer: Load
    feedback: Load
    batches: Load
    alone: Load
    beside: Load  # a peer that hangs


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Measure a served site over HTTP.")
    parser.add_argument("--quick", action="store_true", help="shorter, and writes nothing")
    parser.add_argument("--constant", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.constant:
        asyncio.run(_serve_constant())
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
            _constant(seconds),
            *_single(seconds),
            _batches(seconds),
            # Twice as long: who hangs is waited for at first, and then left alone.
            _asking(2 * seconds, hangs=False),
            _asking(2 * seconds, hangs=True),
        )
        for _ in range(rounds)
    ]


# -- what is measured ---------------------------------------------------------------------------


def _constant(seconds: float) -> Load:
    with _process([sys.executable, __file__, "--constant"]) as port:
        sent = (_infer(number) for number in count())
        return asyncio.run(drive(port, sent, CONNECTIONS, seconds))


def _single(seconds: float) -> tuple[Load, Load]:
    """Measure answers to single rows, and then their labels."""
    with tempfile.TemporaryDirectory() as folder, _site(Path(folder)) as port:
        answered = asyncio.run(drive(port, map(_infer, count()), CONNECTIONS, seconds))
        most = 3 * answered.done  # labels, which are quicker than answers, but not by that much
        asyncio.run(_fill(port, answered.done, most))
        labels = map(_feedback, range(most))
        told = asyncio.run(drive(port, labels, CONNECTIONS, seconds))
    return answered, told


async def _fill(port: int, begin: int, end: int) -> None:
    """Ask for more tickets, as many as labels may be sent."""
    asked = (_infer(number) for number in range(begin, end))
    await drive(port, asked, CONNECTIONS, 600.0)


def _batches(seconds: float) -> Load:
    features = ", ".join(f'x{k} = "FP64"' for k in range(WIDTH))
    with (
        tempfile.TemporaryDirectory() as folder,
        _site(Path(folder), features, wait="200_000") as port,
    ):
        # Requests whose label-wait has expired leave the memory, as they do in a long run.
        tail = np.random.default_rng(1).random(ROWS * (WIDTH + 1)).astype("<f8").tobytes()
        sent = (_batch(number, tail) for number in count())
        return asyncio.run(drive(port, sent, BATCH_CONNECTIONS, seconds))


def _asking(seconds: float, *, hangs: bool) -> Load:
    """Measure single rows at a site with a peer that takes connections and says nothing."""
    with tempfile.TemporaryDirectory() as text, socket.create_server(("127.0.0.1", 0)) as silent:
        folder = Path(text)
        keys.new_authority(folder / "office")
        for name in ("north", "south"):
            card = keys.new_site(
                name, hosts=["127.0.0.1"], authority=folder / "office", folder=folder
            )
        peer = PEER.format(key=card.key_hash, port=silent.getsockname()[1]) if hangs else ""
        peers = "south = 0.0" if hangs else ""
        with _site(folder, identity=IDENTITY, thresholds=ASKING, peers=peers, more=peer) as port:
            sent = map(_infer, count())
            return asyncio.run(drive(port, sent, CONNECTIONS, seconds, warm=0.0))


# -- requests -----------------------------------------------------------------------------------


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


async def _serve_constant() -> None:
    listener = Listener(
        Constant(),
        Address("127.0.0.1", 0),
        gate=LoopbackOnly(),
        limits=SiteLimits(),
        side="front",
        watcher=Metrics({f"{MODEL}/infer": "/infer"}),
    )
    print(await listener.open(), file=sys.stderr, flush=True)
    await asyncio.Event().wait()


@contextlib.contextmanager
def _site(
    folder: Path, features: str = 'size = "FP64"', *, more: str = "", **parts: str
) -> Iterator[int]:
    usual = {"wait": "10_000_000", "identity": "", "thresholds": "", "peers": "", **parts}
    (folder / "site.toml").write_text(NODE.format(features=features, **usual) + more)
    with _process([sys.executable, "-m", "covey", "serve", str(folder / "site.toml")]) as port:
        yield port


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[int]:
    """Run a server; yield its port."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            if server.stderr is None:
                raise RuntimeError("no word of the server can be read")
            line = server.stderr.readline()
            if not line.startswith("http"):
                raise RuntimeError(line + server.stderr.read())
            yield int(line.split("/")[2].rpartition(":")[2])
        finally:
            server.kill()


# -- the page -----------------------------------------------------------------------------------


def _page(rounds: list[Found]) -> str:
    loads = zip(*rounds, strict=True)
    found = Found(*(max(one, key=lambda load: load.rate) for one in loads))
    # Of the same round: how fast a shared machine is changes from one minute to the next.
    infer = statistics.median(one.infer.rate / one.constant.rate for one in rounds)
    feedback = statistics.median(one.feedback.rate / one.constant.rate for one in rounds)
    singles = {
        "a constant": (found.constant, 1.0),
        "`infer`, one row": (found.infer, infer),
        "`feedback`, one label": (found.feedback, feedback),
    }
    lines = [
        "# Load",
        "",
        "Made by `python benchmarks/load.py`, which says how: rates are the best of "
        f"{len(rounds)} rounds, and what they are of the constant is the median of the rounds.",
        "",
        "| what is answered | requests/s | of the constant | p50 ms | p99 ms |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {one.rate:,.0f} | {share:.2f} | {_times(one)} |"
            for name, (one, share) in singles.items()
        ),
        "",
        f"The goal for single rows and labels is {GOAL_RATIO} of the constant: "
        f"{_verdict(min(infer, feedback) >= GOAL_RATIO)}.",
        "",
        f"Batches of {ROWS:,} rows of {WIDTH} numbers in bytes over {BATCH_CONNECTIONS} "
        f"connections: {found.batches.rate * ROWS:,.0f} rows a second, p50 and p99 "
        f"{' and '.join(_times(found.batches).split(' | '))} ms a batch; the goal is "
        f"{GOAL_ROWS:,} rows a second: {_verdict(found.batches.rate * ROWS >= GOAL_ROWS)}.",
        "",
        "| single rows at a site with keys | requests/s | p50 ms | p99 ms | longest ms |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {one.rate:,.0f} | {_times(one)} | {one.longest_ms:,.1f} |"
            for name, one in (("no peer", found.alone), ("one peer that hangs", found.beside))
        ),
        "",
        f"The goal is a p99 that grows by no more than the {TIMEOUT_S:g} s for which a peer is "
        f"waited for: {_verdict(found.beside.p99_ms - found.alone.p99_ms <= TIMEOUT_S * 1e3)}.",
        "",
    ]
    return "\n".join(lines)


def _times(load: Load) -> str:
    return f"{load.p50_ms:,.1f} | {load.p99_ms:,.1f}"


def _verdict(is_reached: bool) -> str:
    return "reached" if is_reached else "missed"


if __name__ == "__main__":
    raise SystemExit(main())
