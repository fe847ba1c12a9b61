"""A client that costs little: connections that send one request after the other, and a clock."""

import asyncio
import contextlib
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

WARM = 0.2  # the share of the time before anything is counted


class Server(NamedTuple):
    """A process that listens on the loopback; with `trust`, by TLS."""

    port: int
    pid: int
    trust: ssl.SSLContext | None = None

    def cpu_s(self) -> float:
        """Return the CPU time of all its threads (Linux: the clock of a process by its id)."""
        return time.clock_gettime((~self.pid << 3) | 2)


@contextlib.contextmanager
def started(command: Sequence[str], ca: Path | None = None) -> Iterator[Server]:
    """Run a server that says its address; `ca` is the file that clients check it by."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            if process.stderr is None:
                raise RuntimeError("no word of the server can be read")
            line = process.stderr.readline()
            if not line.startswith("http"):
                raise RuntimeError(line + process.stderr.read())
            has_tls = line.startswith("https")
            trust = ssl.create_default_context(cafile=ca) if has_tls else None
            yield Server(int(line.split("/")[2].rpartition(":")[2]), process.pid, trust)
        finally:
            process.terminate()


class Load(msgspec.Struct, frozen=True):
    """How many requests were answered, how fast, and how long each took."""

    done: int  # those before the clock started included
    rate: float  # a second
    cpu_us: float  # of the server, for each request
    p50_ms: float
    p99_ms: float
    longest_ms: float


class Connection(asyncio.Protocol):
    """Sends the next request when an answer has come."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._held = b""
        self.begun: list[float] = []
        self.ended: list[float] = []
        self.is_over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the others."""
        self._transport = transport

    def start(self, until_s: float) -> None:
        """Send the first; no more after that time."""
        self._until_s = until_s
        self._send()

    def data_received(self, data: bytes) -> None:
        """Take an answer if it is whole."""
        self._held += data
        head, mark, body = self._held.partition(b"\r\n\r\n")
        if not mark:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        if head[9:10] != b"2":
            self._end(RuntimeError(self._held.decode(errors="replace")))
            return
        self._held = b""
        self.ended.append(time.perf_counter())
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail, unless this was the end."""
        self._end(exc or ConnectionError("the server hung up"))

    def _send(self) -> None:
        request = next(self._requests, None) if time.perf_counter() < self._until_s else None
        if request is None:
            self._end(None)
            return
        self.begun.append(time.perf_counter())
        self._transport.write(request)  # type: ignore[attr-defined] # asyncio types it as any transport

    def _end(self, error: Exception | None) -> None:
        if not self.is_over.done():
            self.is_over.set_result(None) if error is None else self.is_over.set_exception(error)
            self._transport.close()


async def drive(
    server: Server,
    requests: Iterator[bytes],
    connections: int,
    seconds: float,
    *,
    warm: float = WARM,
) -> Load:
    """Send requests for a while, or until there are no more."""
    loop = asyncio.get_running_loop()
    opened = [
        (
            await loop.create_connection(
                lambda: Connection(requests), "127.0.0.1", server.port, ssl=server.trust
            )
        )[1]
        for _ in range(connections)
    ]
    cpu_s, start_s = server.cpu_s(), time.perf_counter()
    for one in opened:
        one.start(start_s + (1 + warm) * seconds)
    await asyncio.gather(*(one.is_over for one in opened))
    cpu_s = server.cpu_s() - cpu_s
    begun = np.concatenate([one.begun for one in opened])
    ended = np.concatenate([one.ended for one in opened])
    counted = begun >= start_s + warm * min(seconds, float(ended.max()) - start_s)
    took_ms = (ended - begun)[counted] * 1e3
    rate = len(took_ms) / (ended.max() - begun[counted].min())
    p50, p99 = np.percentile(took_ms, [50, 99]).tolist()
    cpu_us = cpu_s / len(ended) * 1e6
    return Load(len(ended), float(rate), cpu_us, p50, p99, float(took_ms.max()))
