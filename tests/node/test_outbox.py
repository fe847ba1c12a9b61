"""Labels are queued until a peer has them, sent many at once, and marked delivered once."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from covey.errors import PeerBusy, PeerError, StoreFull
from covey.kernel.rules import Report
from covey.node.peers import DELIVERY_ROWS, CircuitBreaker, LabelDelivery, PeerTimeouts
from covey.site.requests import AskRow, Assistance, Delivery
from covey.types import Label
from support import virtual


class Receiver:
    """A peer that fails a number of times, then takes labels with a fixed outcome."""

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

    async def ask(self, rows: Sequence[AskRow]) -> list[Assistance]:
        raise NotImplementedError

    async def report(self, cell: str, slot: int, what: object = "arrivals") -> Report:
        raise NotImplementedError


def delivered(peer: Receiver, count: int, *, full: int = 0) -> tuple[list[str], int]:
    """Return the ids that were marked delivered, and how many labels were refused.

    The first `full` times the disk is full.
    """
    marked: list[str] = []
    refusals = [StoreFull("the disk is full")] * full

    async def mark(deliveries: Sequence[Delivery]) -> None:
        if refusals:
            raise refusals.pop()
        marked.extend(one.id for one in deliveries)

    async def main() -> int:
        chance = random.Random(5)  # noqa: S311
        breakers = {"south": CircuitBreaker("south", peer, PeerTimeouts(), chance)}
        deliveries = [Delivery("south", str(k), 1) for k in range(count)]
        delivery = LabelDelivery(breakers, deliveries, chance, mark)
        delivery.start()
        await delivery.drained()
        delivery.stop()
        assert len(delivery) == 0
        return delivery.refused

    return marked, virtual.run(main())


def test_many_labels_are_sent_in_few_messages_and_in_order() -> None:
    peer = Receiver()

    marked, refused = delivered(peer, 2 * DELIVERY_ROWS + 1)

    assert [len(batch) for batch in peer.batches] == [DELIVERY_ROWS, DELIVERY_ROWS, 1]
    assert marked == [str(k) for k in range(2 * DELIVERY_ROWS + 1)]
    assert refused == 0


def test_labels_that_cannot_be_marked_delivered_are_sent_again() -> None:
    peer = Receiver()

    marked, _ = delivered(peer, 2, full=3)

    assert peer.batches == [["0", "1"]] * 4
    assert marked == ["0", "1"]


def test_a_peer_that_fails_receives_the_same_labels_again() -> None:
    peer = Receiver(failures=5)

    marked, _ = delivered(peer, 3)

    assert peer.batches == [["0", "1", "2"]]
    assert marked == ["0", "1", "2"]


def test_a_busy_peer_receives_its_labels_after_the_time_it_asked_for() -> None:
    peer = Receiver(failures=3, error=PeerBusy("busy", wait_s=4.0))

    assert delivered(peer, 2) == (["0", "1"], 0)
    assert peer.called_s == [0.0, 4.0, 8.0, 12.0]


def test_labels_that_a_peer_refuses_are_counted_and_not_sent_again() -> None:
    marked, refused = delivered(Receiver(word="unknown"), 3)

    assert marked == ["0", "1", "2"]
    assert refused == 3


def test_undelivered_labels_are_logged_after_a_minute_and_then_every_ten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    marked, _ = delivered(Receiver(failures=70), 3)

    assert marked == ["0", "1", "2"]
    lines = undelivered(caplog)
    assert all(line.startswith("peer 'south': 3 labels undelivered for ") for line in lines)
    assert all(line.endswith("s (peer 'south' gave not now)") for line in lines)
    waited_s = [float(line.split()[6]) for line in lines]
    assert [round(waited_s[0] / 60), *(round(one / 600) for one in waited_s[1:])] == [1, 1, 2]


def undelivered(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines about labels; those about the circuit are another matter."""
    return [record.message for record in caplog.records if "labels" in record.message]
