"""Damage to messages is such that it can be seen; a site that pauses does nothing meanwhile."""

import asyncio
from typing import Any

import pytest

from chaos.cases import MOST_ROWS, instance_of, is_shown
from chaos.links import HEAD, _flipped
from covey.server import peer_messages
from covey.server.http import HttpProblem
from covey.server.peer_messages import VERSION
from covey.site.requests import AskRow
from support import virtual
from support.virtual import Clock, VirtualLoop, at

USUAL: dict[str, Any] = {"version": VERSION, "request": "0123456789abcdef", "deadline_ms": 900}
MESSAGES = [
    peer_messages.ask([AskRow("r", "g1:0", 3, [1, 0, 7])], request="0123", deadline_ms=900),
    peer_messages.ask([AskRow("r", "g1:0", 3)], request="0123", deadline_ms=900),
    peer_messages.ReportQuery(**USUAL, cell="g1:0", slot=3),
    peer_messages.ReportQuery(**USUAL, cell="g1:0", slot=3, what="accuracy"),
    peer_messages.delivery([("r", 1)], request="0123", deadline_ms=900),
    peer_messages.HelloQuery(**USUAL),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_truncated_message_a_longer_one_and_one_with_another_head_is_refused(
    message: Any,
) -> None:
    whole = peer_messages.write(message)
    damaged = [whole[:end] for end in range(len(whole))]
    damaged += [whole + bytes([more]) for more in range(256)]
    damaged += [_flipped(whole, bit) for bit in range(8 * HEAD)]

    assert peer_messages.read(whole, type(message)) == message
    for body in damaged:
        with pytest.raises(HttpProblem):
            peer_messages.read(body, type(message))


@pytest.mark.parametrize("case", [0, MOST_ROWS])
def test_an_instance_is_found_by_its_mark_in_any_message(case: int) -> None:
    shown = [AskRow("r", "g1:0", 1, instance_of(case, 1))]
    hidden = [AskRow("r", "g1:0", 1)]

    sent = [
        peer_messages.write(peer_messages.ask(one, request="m", deadline_ms=1))
        for one in (shown, hidden)
    ]

    assert list(map(is_shown, sent)) == [True, False]


def test_a_paused_site_receives_nothing_and_its_timers_fire_late() -> None:
    told: list[tuple[str, float]] = []

    async def sleep(name: str) -> None:
        await asyncio.sleep(1.0)
        told.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        tasks = [loop.create_task(sleep(name), context=at(name)) for name in ("a", "b")]
        await asyncio.sleep(0.5)
        loop.hold("a")
        tasks.append(loop.create_task(sleep("a"), context=at("a")))
        await asyncio.sleep(4.5)
        loop.wake("a")
        await asyncio.gather(*tasks)

    virtual.run(main())

    assert told == [("b", 1.0), ("a", 5.0), ("a", 6.0)]


def test_a_site_s_clock_runs_at_its_own_rate_from_where_it_stood() -> None:
    async def wait() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await asyncio.sleep(3.0)
        return start_s, loop.time()

    async def main() -> tuple[tuple[float, float], float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.clocks["fast"] = Clock(rate=2.0, start_s=100.0)
        found = await loop.create_task(wait(), context=at("fast"))
        return found, loop.time()

    assert virtual.run(main()) == ((100.0, 103.0), 1.5)
