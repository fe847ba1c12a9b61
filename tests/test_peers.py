"""A guard turns whatever a peer does into an answer in time or a `PeerError`."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

import virtual
from covey.errors import CoveyError, PeerBusy, PeerDeclined, PeerError
from covey.peers import DEADLINE_S, OUTCOMES, Guard, Help, Patience, Request
from covey.types import Label, Report

PATIENCE = Patience(timeout_s=1.0, failures=3, rest_s=2.0, most_rest_s=8.0)


class Scripted:
    """A peer that does what is next: an exception is raised, a number is a delay."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.calls = 0
        self.helps: list[Help] = []
        self.said: list[str] = []
        self.deadline_s = 0.0

    async def report(self, cell: str, slot: int) -> Report:
        self.calls += 1
        self.deadline_s = DEADLINE_S.get()
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        await asyncio.sleep(step)
        return 5, 0.0, 1.0

    async def ask(self, requests: Sequence[Request]) -> list[Help]:
        await self.report("", 0)
        return self.helps

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        raise NotImplementedError

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        await self.report("", 0)
        return self.said


def guard(peer: Scripted) -> Guard:
    return Guard("south", peer, PATIENCE, random.Random(3))  # noqa: S311


async def tried(one: Guard) -> str:
    try:
        await one.report("g1:0", 1, one.deadline_s())
    except PeerError as error:
        return str(error)
    return ""


def test_an_answer_in_time_is_passed_on() -> None:
    async def main() -> None:
        one = guard(Scripted(0.9))

        assert await one.report("g1:0", 1, one.deadline_s()) == (5, 0.0, 1.0)

    virtual.run(main())


@pytest.mark.parametrize("step", [1.1, OSError("reset"), ConnectionError("gone"), CoveyError("x")])
def test_whatever_goes_wrong_is_a_peer_error(step: Any) -> None:
    async def main() -> None:
        assert (await tried(guard(Scripted(step)))).startswith("peer 'south' gave")

    virtual.run(main())


def test_three_failures_in_a_row_let_it_rest_and_one_success_forgets_them() -> None:
    async def main() -> None:
        gone = OSError("gone")
        peer = Scripted(gone, gone, 0.0, gone, gone, gone, gone, 0.0)
        one = guard(peer)

        resting = []
        for _ in range(6):
            await tried(one)
            resting.append(one.is_resting)
        said = await tried(one)

        assert resting == [False] * 5 + [True]
        assert "is left alone" in said
        assert peer.calls == 6

    virtual.run(main())


def test_rests_double_up_to_the_longest_and_end_with_an_answer() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop()
        one = guard(Scripted(*[OSError("gone")] * 8, 0.0))
        for _ in range(2):
            await tried(one)
        rests = []
        for _ in range(6):
            await tried(one)
            before = clock.time()
            while one.is_resting:
                await asyncio.sleep(0.01)
            rests.append(clock.time() - before)

        wholes = (2, 4, 8, 8, 8, 8)  # each is cut by at most a half
        assert all(a / 2 <= rest <= a + 0.02 for rest, a in zip(rests, wholes, strict=True))
        assert len(set(rests)) == 6
        assert await tried(one) == ""
        assert not one.is_resting

    virtual.run(main())


@pytest.mark.parametrize(("says_s", "rests_s"), [(5.0, 5.0), (0.0, 2.0), (1e9, 8.0)])
def test_a_busy_peer_is_left_alone_for_as_long_as_it_says(says_s: float, rests_s: float) -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop()
        one = guard(Scripted(PeerBusy("busy", wait_s=says_s), 0.0))

        said = await tried(one)
        before_s = clock.time()
        while one.is_resting:
            await asyncio.sleep(0.01)

        assert said == "peer 'south' gave busy"
        assert rests_s <= clock.time() - before_s < rests_s + 0.02
        assert await tried(one) == ""

    virtual.run(main())


def test_a_busy_peer_has_not_failed_however_often_it_is_so() -> None:
    async def main() -> None:
        busy, gone = PeerBusy("busy", wait_s=1.0), OSError("gone")
        one = guard(Scripted(gone, gone, *[busy] * 9, 0.0, gone, gone))
        resting = []
        for _ in range(14):
            await tried(one)
            resting.append(one.is_resting)
            await asyncio.sleep(PATIENCE.rest_s)

        assert resting == [False] * 2 + [True] * 9 + [False] * 3

    virtual.run(main())


def test_an_answer_that_was_under_way_does_not_end_the_rest_of_a_busy_peer() -> None:
    async def main() -> None:
        one = guard(Scripted(0.5, PeerBusy("busy", wait_s=5.0)))

        first = asyncio.ensure_future(tried(one))
        await asyncio.sleep(0.1)
        await tried(one)

        assert await first == ""
        assert one.is_resting

    virtual.run(main())


def test_what_becomes_of_labels_is_said_for_each_of_them() -> None:
    async def main() -> None:
        peer = Scripted(0.0)
        peer.said = list(OUTCOMES)

        assert await guard(peer).deliver([(word, 1) for word in OUTCOMES]) == list(OUTCOMES)

    virtual.run(main())


@pytest.mark.parametrize("said", [[], ["taken"] * 2, ["perhaps"]])
def test_words_that_do_not_fit_the_labels_are_a_failure(said: list[str]) -> None:
    async def main() -> None:
        peer = Scripted(0.0)
        peer.said = said

        with pytest.raises(PeerError, match="for 1 labels"):
            await guard(peer).deliver([("x", 1)])

    virtual.run(main())


@pytest.mark.parametrize("helps", [[], [Help(1, "f")] * 3])
def test_answers_that_do_not_fit_the_questions_are_a_failure(helps: list[Help]) -> None:
    async def main() -> None:
        peer = Scripted(0.0)
        peer.helps = helps
        one = guard(peer)

        with pytest.raises(PeerError, match="answers to 2 questions"):
            await one.ask([Request("a", "g1:0", 1), Request("b", "g1:0", 1)], one.deadline_s())

    virtual.run(main())


def test_the_way_to_a_peer_knows_until_when_it_is_waited_for() -> None:
    async def main() -> None:
        peer = Scripted(0.0)
        one = guard(peer)
        await one.report("g1:0", 1, asyncio.get_running_loop().time() + 0.25)

        assert peer.deadline_s == 0.25

    virtual.run(main())


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if one.name == "covey.peers"]


def test_the_log_says_when_a_peer_is_left_alone_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "covey")
    gone = OSError("gone")

    async def main() -> None:
        one = guard(Scripted(gone, gone, gone, gone, 0.0, 0.0, gone, gone, gone, 0.0))
        for _ in range(10):
            await tried(one)
            await asyncio.sleep(15.0)

    virtual.run(main())

    alone = "peer 'south' is left alone for a while: it gave gone"
    assert lines(caplog) == [alone, "peer 'south' is back", alone, "peer 'south' is back"]


def test_a_peer_that_comes_and_goes_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "covey")
    minutes = 5

    async def main() -> None:
        clock = asyncio.get_running_loop()
        one = guard(Scripted(*[PeerBusy("status 503 (busy)", wait_s=2.0), 0.0] * 10_000))
        while clock.time() < 60 * minutes:
            await tried(one)
            await asyncio.sleep(2.0)

    virtual.run(main())

    alone = "peer 'south' is left alone for a while: it gave status 503 (busy)"
    assert lines(caplog) == [alone, "peer 'south' is back"] * minutes


def test_the_log_says_once_a_minute_why_a_peer_takes_no_letters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = "status 422 (invalid): cell 'z1:0' is not in a grid of 4 slices"

    async def main() -> None:
        one = guard(Scripted(*[PeerDeclined(said)] * 40))
        for _ in range(12):
            await tried(one)
            await asyncio.sleep(PATIENCE.most_rest_s)

    virtual.run(main())

    expected = f"peer 'south' will not take letters of this site: it gave {said}"
    assert [line for line in lines(caplog) if "will not" in line] == [expected] * 2
