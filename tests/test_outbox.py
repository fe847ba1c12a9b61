"""Labels wait until peers have taken them, go out many at once, and none is told twice for good."""

import asyncio
import random
from collections.abc import Sequence

import pytest

import virtual
from covey.errors import PeerBusy, PeerError, StoreFull
from covey.outbox import AT_ONCE, Outbox
from covey.peers import Guard, Help, Patience, Request
from covey.records import Owed
from covey.types import Label, Report


class Listener:
    """A peer that takes labels, after so many failures, and says of each what it is told to."""

    def __init__(
        self, *, failures: int = 0, word: str = "taken", error: PeerError | None = None
    ) -> None:
        self.failures, self.word = failures, word
        self.error = PeerError("not now") if error is None else error
        self.batches: list[list[str]] = []
        self.called_s: list[float] = []

    async def deliver(self, labels: Sequence[tuple[str, Label]]) -> list[str]:
        self.called_s.append(asyncio.get_running_loop().time())
        if self.failures:
            self.failures -= 1
            raise self.error
        self.batches.append([id_ for id_, _ in labels])
        return [self.word] * len(labels)

    async def ask(self, requests: Sequence[Request]) -> list[Help]:
        raise NotImplementedError

    async def report(self, cell: str, slot: int) -> Report:
        raise NotImplementedError

    async def estimate(self, cell: str, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        raise NotImplementedError


def delivered(peer: Listener, count: int, *, full: int = 0) -> tuple[list[str], int]:
    """Return the ids that were noted as told, and how many labels were refused.

    The first `full` times there is no room to note it.
    """
    told: list[str] = []
    refusals = [StoreFull("the disk is full")] * full

    async def tell(owed: Sequence[Owed]) -> None:
        if refusals:
            raise refusals.pop()
        told.extend(one.id for one in owed)

    async def main() -> int:
        chance = random.Random(5)  # noqa: S311
        guards = {"south": Guard("south", peer, Patience(), chance)}
        owed = [Owed("south", str(k), 1) for k in range(count)]
        outbox = Outbox(guards, owed, chance, tell)
        outbox.start()
        await outbox.drained()
        outbox.stop()
        assert len(outbox) == 0
        return outbox.refused

    return told, virtual.run(main())


def test_many_labels_go_out_in_few_requests_and_in_order() -> None:
    peer = Listener()

    told, refused = delivered(peer, 2 * AT_ONCE + 1)

    assert [len(batch) for batch in peer.batches] == [AT_ONCE, AT_ONCE, 1]
    assert told == [str(k) for k in range(2 * AT_ONCE + 1)]
    assert refused == 0


def test_who_has_no_room_to_note_what_was_told_tells_it_again() -> None:
    peer = Listener()

    told, _ = delivered(peer, 2, full=3)

    assert peer.batches == [["0", "1"]] * 4
    assert told == ["0", "1"]


def test_a_peer_that_fails_gets_the_same_labels_again() -> None:
    peer = Listener(failures=5)

    told, _ = delivered(peer, 3)

    assert peer.batches == [["0", "1", "2"]]
    assert told == ["0", "1", "2"]


def test_a_busy_peer_gets_its_labels_when_it_says_so() -> None:
    peer = Listener(failures=3, error=PeerBusy("busy", wait_s=4.0))

    assert delivered(peer, 2) == (["0", "1"], 0)
    assert peer.called_s == [0.0, 4.0, 8.0, 12.0]


def test_labels_that_a_peer_does_not_want_are_owed_no_longer_and_counted() -> None:
    told, refused = delivered(Listener(word="unknown"), 3)

    assert told == ["0", "1", "2"]
    assert refused == 3


def test_the_log_says_that_labels_wait_after_a_minute_and_then_every_ten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told, _ = delivered(Listener(failures=70), 3)

    assert told == ["0", "1", "2"]
    lines = [one.message for one in caplog.records if one.name == "covey.outbox"]
    assert all(line.startswith("3 labels could not be delivered for ") for line in lines)
    assert all(line.endswith("s: peer 'south' gave not now") for line in lines)
    waited_s = [float(line.split()[7]) for line in lines]
    assert [round(waited_s[0] / 60), *(round(one / 600) for one in waited_s[1:])] == [1, 1, 2]


def test_labels_that_wait_less_than_a_minute_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    delivered(Listener(failures=6), 3)

    assert not [one for one in caplog.records if one.name == "covey.outbox"]
