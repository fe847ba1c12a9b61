"""A circuit breaker turns whatever a peer does into an answer in time or a `PeerError`."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from covey.errors import CoveyError, PeerBusy, PeerDeclined, PeerError
from covey.kernel.rules import Report
from covey.node.peers import DEADLINE_S, OUTCOMES, CircuitBreaker, PeerTimeouts
from covey.site.requests import AskRow, Assistance
from covey.types import Label
from support import virtual

TIMEOUTS = PeerTimeouts(timeout_s=1.0, failures=3, open_s=2.0, most_open_s=8.0)


class Scripted:
    """A peer that does what is next: an exception is raised, a number is a delay."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.calls = 0
        self.answers: list[Assistance] = []
        self.outcomes: list[str] = []
        self.deadline_s = 0.0
        self.reported: Report = (5, 0.0, 1.0, ())

    async def report(self, cell: str, slot: int, what: Any = "arrivals") -> Report:
        self.calls += 1
        self.deadline_s = DEADLINE_S.get()
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        await asyncio.sleep(step)
        return self.reported

    async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
        await self.report("", 0)
        return self.answers

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        await self.report("", 0)
        return self.outcomes


def breaker(peer: Scripted) -> CircuitBreaker:
    return CircuitBreaker("south", peer, TIMEOUTS, random.Random(3))  # noqa: S311


async def tried(one: CircuitBreaker) -> str:
    try:
        await one.report("g1:0", 1)
    except PeerError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("step", [1.1, OSError("reset"), ConnectionError("gone"), CoveyError("x")])
@virtual.timed
async def test_every_failure_is_a_peer_error(step: Any) -> None:
    assert (await tried(breaker(Scripted(step)))).startswith("peer 'south' gave")


@virtual.timed
async def test_three_failures_in_a_row_open_the_circuit_and_one_success_resets_them() -> None:
    gone = OSError("gone")
    peer = Scripted(gone, gone, 0.0, gone, gone, gone, gone, 0.0)
    one = breaker(peer)

    states = []
    for _ in range(6):
        await tried(one)
        states.append(one.is_open)
    said = await tried(one)

    assert states == [False] * 5 + [True]
    assert "its circuit is open" in said
    assert peer.calls == 6


@virtual.timed
async def test_open_times_double_up_to_a_limit_and_end_with_an_answer() -> None:
    clock = asyncio.get_running_loop()
    one = breaker(Scripted(*[OSError("gone")] * 8, 0.0))
    for _ in range(2):
        await tried(one)
    open_times = []
    for _ in range(6):
        await tried(one)
        before = clock.time()
        while one.is_open:
            await asyncio.sleep(0.01)
        open_times.append(clock.time() - before)

    wholes = (2, 4, 8, 8, 8, 8)  # each is cut by at most a half
    assert all(a / 2 <= open_s <= a + 0.02 for open_s, a in zip(open_times, wholes, strict=True))
    assert len(set(open_times)) == 6
    assert await tried(one) == ""
    assert not one.is_open


@pytest.mark.parametrize(("asked_s", "open_s"), [(5.0, 5.0), (0.0, 2.0), (1e9, 8.0)])
@virtual.timed
async def test_a_busy_peer_is_not_asked_for_as_long_as_it_wants(
    asked_s: float, open_s: float
) -> None:
    clock = asyncio.get_running_loop()
    one = breaker(Scripted(PeerBusy("busy", wait_s=asked_s), 0.0))

    said = await tried(one)
    before_s = clock.time()
    while one.is_open:
        await asyncio.sleep(0.01)

    assert said == "peer 'south' gave busy"
    assert open_s <= clock.time() - before_s < open_s + 0.02
    assert await tried(one) == ""


@virtual.timed
async def test_a_busy_peer_never_counts_as_failed() -> None:
    busy, gone = PeerBusy("busy", wait_s=1.0), OSError("gone")
    one = breaker(Scripted(gone, gone, *[busy] * 9, 0.0, gone, gone))
    states = []
    for _ in range(14):
        await tried(one)
        states.append(one.is_open)
        await asyncio.sleep(TIMEOUTS.open_s)

    assert states == [False] * 2 + [True] * 9 + [False] * 3


@virtual.timed
async def test_an_earlier_call_that_succeeds_does_not_close_the_circuit_of_a_busy_peer() -> None:
    one = breaker(Scripted(0.5, PeerBusy("busy", wait_s=5.0)))

    first = asyncio.ensure_future(tried(one))
    await asyncio.sleep(0.1)
    await tried(one)

    assert await first == ""
    assert one.is_open


@virtual.timed
async def test_each_delivered_label_has_an_outcome() -> None:
    peer = Scripted(0.0)
    peer.outcomes = list(OUTCOMES)

    assert await breaker(peer).deliver([(word, 1) for word in OUTCOMES]) == list(OUTCOMES)


@pytest.mark.parametrize("outcomes", [[], ["taken"] * 2, ["perhaps"]])
@virtual.timed
async def test_outcomes_that_do_not_fit_the_labels_are_a_failure(outcomes: list[str]) -> None:
    peer = Scripted(0.0)
    peer.outcomes = outcomes

    with pytest.raises(PeerError, match="for 1 labels"):
        await breaker(peer).deliver([("x", 1)])


@pytest.mark.parametrize("answers", [[], [Assistance(1, "f")] * 3])
@virtual.timed
async def test_answers_that_do_not_fit_the_rows_are_a_failure(answers: list[Assistance]) -> None:
    peer = Scripted(0.0)
    peer.answers = answers
    one = breaker(peer)

    with pytest.raises(PeerError, match="answers to 2 rows"):
        await one.ask([AskRow("a", "g1:0", 1), AskRow("b", "g1:0", 1)])


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "bounds", [(-INF, INF), (0.0, INF), (1.5, 1.5), (-1.1, 0.1), (0.9, 0.8), (NAN, 1.0), (0.0, NAN)]
)
@virtual.timed
async def test_bounds_that_no_site_can_have_are_a_failure(bounds: tuple[float, float]) -> None:
    peer = Scripted(0.0)
    peer.reported = (5, *bounds, ())

    assert "an accuracy between" in await tried(breaker(peer))


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.7, 1.03), (1.0, 1.0), (0.0, 0.0)])
@virtual.timed
async def test_bounds_of_few_labels_may_be_wide(bounds: tuple[float, float]) -> None:
    peer = Scripted(0.9)  # an answer in time
    peer.reported = (5, *bounds, ())

    assert await breaker(peer).report("g1:0", 1) == (5, *bounds, ())


@virtual.timed
async def test_a_transport_sees_the_deadline_of_its_call() -> None:
    peer = Scripted(0.0)
    one = breaker(peer)
    DEADLINE_S.set(asyncio.get_running_loop().time() + 0.25)
    await one.report("g1:0", 1)

    assert peer.deadline_s == 0.25


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "covey.node.peers"]


@virtual.timed
async def test_a_peer_that_fails_again_and_again_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "covey")
    minutes = 5

    clock = asyncio.get_running_loop()
    one = breaker(Scripted(*[PeerBusy("status 503 (busy)", wait_s=2.0), 0.0] * 10_000))
    while clock.time() < 60 * minutes:
        await tried(one)
        await asyncio.sleep(2.0)

    opened = "peer 'south': circuit open (status 503 (busy))"
    assert lines(caplog) == [opened, "peer 'south': circuit closed"] * minutes


@virtual.timed
async def test_the_log_says_once_a_minute_why_a_peer_declines_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = "status 422 (invalid): cell 'z1:0' is not in a grid of 4 slices"

    one = breaker(Scripted(*[PeerDeclined(said)] * 40))
    for _ in range(12):
        await tried(one)
        await asyncio.sleep(TIMEOUTS.most_open_s)

    expected = f"peer 'south' declines messages of this site ({said})"
    assert [line for line in lines(caplog) if "declines" in line] == [expected] * 2


@virtual.timed
async def test_a_peer_that_other_peers_left_no_time_for_has_not_failed() -> None:
    peer = Scripted([0.0])
    one = breaker(peer)
    DEADLINE_S.set(asyncio.get_running_loop().time())

    outcomes = [await tried(one) for _ in range(5)]

    assert set(outcomes) == {"no time is left to ask peer 'south'"}
    assert (peer.calls, one.is_open) == (0, False)
