"""Rows wait for their labels by ticket, settle once, and expire in order."""

from typing import Any

import numpy as np
import pytest

from covey.bandit.learner import Learner
from covey.bandit.policies import CoS
from covey.kernel import ASKED, UNPAID, Clock, Tickets, table_of
from support.tables import rows_of

UNKNOWN = object()
WAIT = 40


def learner() -> Learner:
    policy = CoS(slices=3).resolve(dimension=1, most_functions=2)
    return Learner("site", functions=["a", "b"], peers=["p"], costs=[0, 0, 0.1], policy=policy)


class Site:
    """Tickets over a table of their own."""

    def __init__(self, *, gain_of: Any = None) -> None:
        one = learner()
        one.count_pending({})
        policy = one.policies[""]
        self.table = table_of(Clock(*policy.curves()), one.rule)
        self.closed: list[Any] = []
        self.tickets = Tickets(WAIT, unknown=UNKNOWN, close=self._close, gain_of=gain_of)
        self.tickets.count_in(self.table, True)

    def _close(self, request: Any) -> None:
        self.closed.append(request)
        self.tickets.pending -= request[1]

    def hold(self, slot: int, x: float = 0.5, note: Any = None) -> int:
        code = self.table.decide((x,), slot, b"\0\0\1")
        return self.tickets.hold(code, slot, slot, (x,), slot % 2, "", note)

    def counters(self) -> list[Any]:
        return rows_of(self.table)


class Listed:
    """The same rows as a list: what `Tickets` is compared with."""

    def __init__(self, wait: int) -> None:
        self.wait = wait
        self.rows: list[dict[str, Any]] = []
        self.next = 1
        self.closed: list[Any] = []

    def add(self, slot: int, **row: Any) -> None:
        self.rows.append({"ticket": self.next, "slot": slot, "truth": UNKNOWN, **row})
        self.next += 1

    def expire(self, now: int) -> None:
        while self.rows and self.rows[0]["slot"] + self.wait < now:
            row = self.rows.pop(0)
            request = row.get("request")
            if request is not None and request not in self.closed:
                self.closed.append(request)

    def pending(self) -> int:
        return sum(row["truth"] is UNKNOWN for row in self.rows)


@pytest.fixture
def site() -> Site:
    return Site()


def test_rows_expire_in_order_after_the_wait(site: Site) -> None:
    listed, draw = Listed(WAIT), np.random.default_rng(3)
    slot = 1
    for k in range(600):
        slot += int(draw.choice([0, 0, 1, 7]))
        rows = int(draw.choice([0, 0, 1, 3]))
        if rows:
            site.tickets.hold_request((k, rows), rows, slot, slot)
            for _ in range(rows):
                listed.add(slot, request=(k, rows))
        else:
            site.hold(slot)
            listed.add(slot)
        listed.expire(slot)

        assert (site.tickets.next, site.tickets.pending) == (listed.next, listed.pending())
        assert site.tickets.first == listed.rows[0]["ticket"]
        assert site.closed == listed.closed


def test_rows_do_not_expire_while_slots_stand_still(site: Site) -> None:
    for k in range(100):
        assert site.hold(7, k / 100) == k + 1

    assert [site.tickets.row(k + 1)[2] for k in range(100)] == [(k / 100,) for k in range(100)]
    assert site.tickets.pending == 100


def test_a_label_settles_a_row_once(site: Site) -> None:
    ticket = site.hold(1)
    before = site.counters()

    assert site.tickets.settle(ticket, 1) == 1
    after = site.counters()
    assert before != after
    assert [site.tickets.settle(ticket, label) for label in (0, 1)] == [-1, -1]
    assert (site.counters(), site.tickets.row(ticket)[4]) == (after, 1)


def test_what_is_no_ticket_settles_nothing(site: Site) -> None:
    site.hold(1)
    before = site.counters()

    for ticket in (0, 2, -1, 1 << 70, 1.0, True, "1", None):
        assert site.tickets.settle(ticket, 1) == -1
    assert (site.counters(), site.tickets.pending) == (before, 1)


def test_a_row_that_a_peer_answered_is_settled_after_the_peer_has_the_label(site: Site) -> None:
    ticket = site.hold(1, note="answer")

    assert site.tickets.settle(ticket, 1) == ASKED
    assert site.tickets.settle(ticket, 1, UNPAID, True) == 1


def test_a_label_that_cannot_be_valued_changes_nothing() -> None:
    def fail(answer: Any, label: Any) -> int:
        raise ValueError("not a number")

    site = Site(gain_of=fail)
    ticket = site.hold(1)
    before = site.counters()

    with pytest.raises(ValueError, match="not a number"):
        site.tickets.settle(ticket, 1)
    assert (site.counters(), site.tickets.pending) == (before, 1)


def test_a_row_that_expires_is_counted_as_pending_no_longer(site: Site) -> None:
    site.hold(1)
    site.table.forget(site.tickets.row(1)[0])
    expected = site.counters()
    site.table.expect(site.tickets.row(1)[0])

    site.tickets.hold_request("later", 1, WAIT + 2, WAIT + 2)

    assert (site.tickets.first, site.counters()) == (2, expected)


def test_rows_are_held_alone_or_in_requests_and_taken_back_from_the_end(site: Site) -> None:
    alone = [site.hold(1), site.hold(2)]
    codes = site.tickets.pending_codes()
    site.tickets.hold_request("pair", 2, 3, 3)
    site.tickets.settle(alone[0], 1)

    assert [site.tickets.request(ticket) for ticket in range(6)] == [
        *[None] * 3,
        "pair",
        "pair",
        None,
    ]
    assert site.tickets.requests() == ["pair"]
    assert site.tickets.pending_codes() == codes[1:]
    site.tickets.replace(alone[1], "of its own")
    assert site.tickets.requests() == ["of its own", "pair"]
    assert site.tickets.settle(alone[1], 1) == -1
    site.tickets.take_back(3)
    assert (site.tickets.next, site.tickets.pending, site.tickets.request(3)) == (3, 1, None)
