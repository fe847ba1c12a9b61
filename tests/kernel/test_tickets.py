"""Open rows in columns behave as a plain list of them, in both forms of the kernel."""

from typing import Any

import numpy as np
import pytest

from covey import kernel
from covey.bandit.learner import Learner
from covey.bandit.policies import CoS
from covey.kernel import ASKED, UNPAID
from support.tables import plain_kernel, rows_of

UNKNOWN = object()
WAIT = 40


def learner() -> Learner:
    policy = CoS(slices=3).resolve(dimension=1, most_functions=2)
    return Learner("site", functions=["a", "b"], peers=["p"], costs=[0, 0, 0.1], policy=policy)


class Site:
    """Tickets over a table of their own, in one form of the kernel."""

    def __init__(self, *, is_plain: bool, wait: int = WAIT, gain_of: Any = None) -> None:
        one = learner()
        one.count_pending({})
        policy, form = one.policies[""], plain_kernel() if is_plain else kernel
        clock = form.Clock(policy.scales(), policy.powers())
        self.table: Any = form.table_of(clock, one.rule)
        self.closed: list[Any] = []
        self.tickets: Any = form.Tickets(wait, unknown=UNKNOWN, close=self._close, gain_of=gain_of)
        self.tickets.count_in(self.table, True)

    def _close(self, request: Any) -> None:
        self.closed.append(request)
        self.tickets.pending -= request[1]

    def hold(self, slot: int, context: tuple[float], source: str, note: Any) -> int:
        if source:
            code = self.table.serve(self.table.cells.meet(self.table.cells.cell(0), slot), slot)
        else:
            code = self.table.decide(context, slot, b"\0\0\1")
        ticket: int = self.tickets.hold(code, slot, slot, context, slot % 2, source, note)
        return ticket

    def counters(self) -> list[Any]:
        return rows_of(self.table)

    def held(self) -> dict[str, Any]:
        tickets = self.tickets
        alone = [k for k in range(tickets.first, tickets.next) if tickets.request(k) is None]
        return {
            "tickets": (tickets.first, tickets.next, tickets.pending),
            "rows": {ticket: tickets.row(ticket) for ticket in alone},
            "requests": tickets.requests(),
            "pending": tickets.pending_codes(),
        }


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


def steps(seed: int, count: int = 400) -> list[tuple[str, int, Any]]:
    """Return what happens, by how much the slot moves on before it, and a number for it."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        kind = str(draw.choice(["own"] * 5 + ["served", "asked", "request", "replace", "back"]))
        found.append((kind, int(draw.choice([0, 0, 1, 1, 1, 5])), float(draw.random())))
    return found


def apply(site: Site, seed: int) -> list[Any]:
    """Let a site go through the steps of a seed, and return what it answered."""
    told: list[Any] = []
    slot, draw = 1, np.random.default_rng(seed)
    site.table.decide((0.1,), slot)
    tickets = site.tickets
    for kind, by, place in steps(seed):
        slot += by
        if kind in ("own", "served", "asked"):
            source = "peer" if kind == "served" else ""
            note = ("note", slot) if kind == "asked" else None
            told.append(site.hold(slot, (place,), source, note))
        elif kind == "request":
            rows = 1 + int(3 * place)
            tickets.hold_request((tickets.next, rows), rows, slot, slot)
        elif kind == "back" and tickets.next > tickets.first:
            last = tickets.next - 1
            if tickets.request(last) is None and tickets.row(last)[4] is UNKNOWN:
                site.table.forget(tickets.row(last)[0])
                tickets.take_back(last)
        ticket = int(draw.integers(tickets.first - 2, tickets.next + 2))
        if kind == "replace" and tickets.first <= ticket < tickets.next:
            is_alone = tickets.request(ticket) is None
            if is_alone and tickets.row(ticket)[4] is UNKNOWN:
                tickets.replace(ticket, (ticket, 1))
        else:
            done = tickets.settle(ticket, int(draw.integers(2)))
            told.append(done)
            if done == ASKED:
                told.append(tickets.settle(ticket, 1, UNPAID, True))
        told.append((site.held(), list(site.closed)))
    told.append(site.counters())
    return told


@pytest.mark.parametrize("seed", range(6))
def test_both_forms_of_the_kernel_hold_the_same_rows(seed: int) -> None:
    plain = apply(Site(is_plain=True), seed)

    assert apply(Site(is_plain=False), seed) == plain


@pytest.fixture(params=[True, False], ids=["plain", "running"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(is_plain=request.param)


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
            site.hold(slot, (0.5,), "", None)
            listed.add(slot)
        listed.expire(slot)

        assert (site.tickets.next, site.tickets.pending) == (listed.next, listed.pending())
        assert site.tickets.first == listed.rows[0]["ticket"]
        assert site.closed == listed.closed


def test_a_ring_grows_while_slots_stand_still(site: Site) -> None:
    for k in range(100):
        assert site.hold(7, (k / 100,), "", None) == k + 1

    assert [site.tickets.row(k + 1)[2] for k in range(100)] == [(k / 100,) for k in range(100)]
    assert site.tickets.pending == 100


def test_a_label_settles_a_row_once(site: Site) -> None:
    ticket = site.hold(1, (0.5,), "", None)
    before = site.counters()

    assert site.tickets.settle(ticket, 1) == 1
    after = site.counters()
    assert before != after
    assert [site.tickets.settle(ticket, label) for label in (0, 1)] == [-1, -1]
    assert (site.counters(), site.tickets.row(ticket)[4]) == (after, 1)


def test_what_is_no_ticket_settles_nothing(site: Site) -> None:
    site.hold(1, (0.5,), "", None)
    before = site.counters()

    for ticket in (0, 2, -1, 1 << 70, 1.0, True, "1", None):
        assert site.tickets.settle(ticket, 1) == -1
    assert (site.counters(), site.tickets.pending) == (before, 1)


def test_a_row_that_a_peer_answered_is_settled_after_the_peer_has_the_label(site: Site) -> None:
    ticket = site.hold(1, (0.5,), "", "answer")

    assert site.tickets.settle(ticket, 1) == ASKED
    assert site.tickets.settle(ticket, 1, UNPAID, True) == 1


def test_a_label_that_cannot_be_valued_changes_nothing() -> None:
    def fail(answer: Any, label: Any) -> int:
        raise ValueError("not a number")

    for is_plain in (True, False):
        site = Site(is_plain=is_plain, gain_of=fail)
        ticket = site.hold(1, (0.5,), "", None)
        before = site.counters()

        with pytest.raises(ValueError, match="not a number"):
            site.tickets.settle(ticket, 1)
        assert (site.counters(), site.tickets.pending) == (before, 1)


def test_a_row_that_expires_is_counted_as_pending_no_longer(site: Site) -> None:
    site.hold(1, (0.5,), "", None)
    site.table.forget(site.tickets.row(1)[0])
    expected = site.counters()
    site.table.expect(site.tickets.row(1)[0])

    site.tickets.hold_request("later", 1, WAIT + 2, WAIT + 2)

    assert (site.tickets.first, site.counters()) == (2, expected)
