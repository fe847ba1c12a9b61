"""What the event streams of the live page add to the CPU time of an `infer`.

python benchmarks/streams.py

A served site with some hundred cells answers single rows over 64 connections without a pause, while
ten browsers follow its page by turns: on for two events, off for as long, in changing order. CPU
time is that of all threads of the server. Prints the CPU time of an `infer` in both kinds of turns,
the growth with its standard error over pairs of turns, and what the streams take of a site with
nothing else to do.
"""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

from load import CONNECTIONS, _infers, _site
from loading import Server, drive

STREAMS = 10
GOAL_PERCENT = 3.0
ASK = b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="Measure the event streams of the live page.")
    parser.add_argument("--pairs", type=int, default=20, help="of turns with and without streams")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        _site(Path(folder), wait="20_000", slices="300") as server,
    ):
        asyncio.run(measure(server, options.pairs, options.seconds))


class Turn(NamedTuple):
    """The CPU time of the server in a turn, and the requests that were sent."""

    cpu_s: float
    requests: int

    @property
    def each_us(self) -> float:
        return 1e6 * self.cpu_s / self.requests


async def measure(server: Server, pairs: int, seconds: float) -> None:
    """Print the CPU time of turns, and the growth by the streams."""
    sent = 0

    def counted() -> Iterator[bytes]:
        nonlocal sent
        for request in _infers():
            sent += 1
            yield request

    async def turn(streams: int) -> Turn:
        async with following(server, streams):
            cpu_s, before = server.cpu_s(), sent
            await asyncio.sleep(seconds)
            return Turn(server.cpu_s() - cpu_s, sent - before)

    whole_s = (2 * pairs + 2) * seconds
    loading = asyncio.ensure_future(drive(server, counted(), CONNECTIONS, whole_s, warm=0.0))
    await turn(0)  # cells, tables and caches fill
    found = []
    for number in range(pairs):
        first = await turn(STREAMS if number % 2 else 0)
        second = await turn(0 if number % 2 else STREAMS)
        found.append((second, first) if number % 2 else (first, second))
    rate = sum(sum(one.requests for one in pair) for pair in found) / (2 * pairs * seconds)
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    growths = [100 * (two.each_us / one.each_us - 1) for one, two in found]
    error = statistics.stdev(growths) / len(growths) ** 0.5
    for name, place in (("without streams", 0), (f"with {STREAMS} streams", 1)):
        turns = [pair[place] for pair in found]
        whole = Turn(sum(one.cpu_s for one in turns), sum(one.requests for one in turns))
        print(f"{name}: {whole.each_us:.1f} us for an infer")
    growth = statistics.mean(growths)
    word = "reached" if growth <= GOAL_PERCENT else "missed"
    print(
        f"growth {growth:+.2f} % (standard error {error:.2f}) at {rate:,.0f} requests/s; the goal "
        f"is at most {GOAL_PERCENT:g} %: {word}"
    )
    await share(server, 0, seconds)  # until what was left is done
    idle, busy = await share(server, 0, seconds), await share(server, STREAMS, seconds)
    print(f"without requests: {idle:.2f} % of a core without streams, {busy:.2f} % with {STREAMS}")


async def share(server: Server, streams: int, seconds: float) -> float:
    """Return how many percent of a core the server takes with so many streams."""
    async with following(server, streams):
        begun_s, cpu_s = time.perf_counter(), server.cpu_s()
        await asyncio.sleep(3 * seconds)
        return 100 * (server.cpu_s() - cpu_s) / (time.perf_counter() - begun_s)


@contextlib.asynccontextmanager
async def following(server: Server, streams: int) -> AsyncIterator[None]:
    """Follow the page with so many browsers."""

    async def follow() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(ASK)
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()

    tasks = [asyncio.ensure_future(follow()) for _ in range(streams)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    main()
