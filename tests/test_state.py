"""Whatever happens, the store is the sum of its labels, and a restart goes on where it was."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from covey.books import Book, Question, Reply, settle_old
from covey.decisions import UNKNOWN, Decision
from covey.desks import Trust
from covey.errors import ConflictingLabel, LateLabel, UnknownTicket
from covey.learner import Learner
from covey.policies import Policy, resolve, settings_from
from covey.shapes import shape_of
from covey.store import Store
from covey.types import Cell

POLICIES: dict[str, dict[str, Any]] = {
    "grid": {"preset": "cos", "slices": 2, "label-wait": 8},
    "pending": {"slices": 2, "label-wait": 8, "pending": True},
    "zooming": {"preset": "dcza", "split-power": 1.0, "label-wait": 8},
    "inheriting": {"preset": "dcza", "split-power": 1.0, "label-wait": 8, "inherit": True},
    "layered": {"preset": "multi-resolution", "finest-level": 2, "label-wait": 8},
    "window": {"slices": 2, "label-wait": 8, "forget": {"window": 3}},
    "labelled": {"slices": 2, "label-wait": 8, "reading": {"count": "labelled"}},
    "auto": {"preset": "auto", "label-wait": 8, "horizon": 300},
    "eliminating": {"preset": "cos-ce", "label-wait": 8, "horizon": 300},
}


def policy_of(name: str) -> Policy:
    return resolve(settings_from(POLICIES[name]), dimension=1, most_functions=2)


def open_book(
    policy: Policy, store: Store, *, remembers: bool = True, trust: Trust = "full"
) -> Book:
    learner = Learner(
        "north",
        functions=("f", "g"),
        peers=("south",),
        costs=(0.0, 0.0, 0.1),
        policy=policy,
        remembers=remembers,
    )
    return Book(learner, store.load("north", shape_of(learner)), {"south": trust})


def decide(book: Book, context: float, arrivals: int = 0) -> Decision:
    decision = book.decide((context,))
    while decision.asks:
        book.inform(decision, [(arrivals, 0.0, 1.0) for _ in decision.asks])
    return decision


def answer(book: Book, id_: str, context: float, said: int, arrivals: int = 0) -> None:
    decision = decide(book, context, arrivals)
    peer_ticket = f"to-{id_}" if decision.choice.peer else None
    book.accept(decision, Question("", id_), Reply(said, said, "f", peer_ticket))


def flush(book: Book, store: Store) -> None:
    batch = book.take()
    if batch is not None:
        store.commit(batch)
        book.is_written(batch)


class Sums(RuleBasedStateMachine):
    """A node's life; `acknowledged` is what a client was told, kept apart from it."""

    ids = Bundle("ids")

    @initialize(
        name=st.sampled_from(sorted(POLICIES)),
        trust=st.sampled_from(["full", "isolated", "robust"]),
    )
    def begin(self, name: str, trust: Trust) -> None:
        self.policy, self.trust = policy_of(name), trust
        self.store = Store.memory()
        self.book = self._open()
        self.count = 0
        self.said: dict[tuple[str, str], int] = {}
        self.acknowledged: dict[tuple[str, str], int] = {}

    @rule(target=ids, context=st.floats(0, 1), said=st.integers(0, 1), seen=st.integers(0, 9))
    def decide(self, context: float, said: int, seen: int) -> Any:
        self.count += 1
        answer(self.book, str(self.count), context, said, seen)
        return self._given("", said)

    @rule(target=ids, place=st.integers(0, 1), said=st.integers(0, 1), ahead=st.integers(0, 2))
    def serve(self, place: int, said: int, ahead: int) -> Any:
        self.count += 1
        slot = max(1, self.book.learner.slot + ahead)
        decision = self.book.assist("south", self._cell(place), slot)
        self.book.accept(decision, Question("south", str(self.count)), Reply(said, said, "f"))
        return self._given("south", said)

    @rule(context=st.floats(0, 1))
    def abandon(self, context: float) -> None:
        self.book.abandon(decide(self.book, context))

    @rule(place=st.integers(0, 1))
    def report(self, place: int) -> None:
        self.book.report("south", self._cell(place), max(1, self.book.learner.slot))

    @rule(key=ids, label=st.integers(0, 1))
    def label(self, key: tuple[str, str], label: int) -> None:
        """New, repeated, conflicting, late, or lost with an answer that nobody got."""
        ticket = self.book.find(*key)
        known = self.acknowledged.get(key)
        try:
            if ticket is not None:
                settlement = self.book.settle(ticket, label)
            else:
                settlement = settle_old(self.store.find(*key), label, id=key[1])
        except ConflictingLabel:
            assert known == 1 - label
        except LateLabel:
            assert known is None
        except UnknownTicket:
            assert key not in self.said
        else:
            assert settlement.is_new == (known is None)
            assert settlement.is_right == (self.said[key] == label)
            flush(self.book, self.store)
            self.acknowledged[key] = label
            if self.policy.settings.slices == 2:
                self._check_counters()

    @rule()
    def crash(self) -> None:
        """What was not committed is gone; the next life goes on from the file."""
        self.book = self._open()
        self.said = {key: said for key, said in self.said.items() if self.store.find(*key)}

    @rule()
    def restart_goes_on_exactly(self) -> None:
        flush(self.book, self.store)
        again = self._open()
        assert states(again) == states(self.book)
        if self.policy.by_index is None and self.policy.elimination is None:
            assert decide(again, 0.4) == decide(self.book, 0.4)
        self.book = self._open()

    @invariant()
    def counters_are_the_sum_of_the_labels(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.check() == []

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        for key, label in getattr(self, "acknowledged", {}).items():
            kept = self.store.find(*key)
            assert kept is not None
            assert kept.truth == label

    def _open(self) -> Book:
        return open_book(self.policy, self.store, trust=self.trust)

    def _check_counters(self) -> None:
        """What a desk learnt is the sum of the labels that count there."""
        for name, learner in self.book.learners.items():
            sources = ["", "south"] if name or self.trust == "full" else [""]
            assert learnt(learner) == counted(self.store, sources)

    def _cell(self, place: int) -> Cell:
        """Return one of two cells, of the second level where there are several."""
        return Cell(int(len(self.policy.partition.levels(1)) > 1), (place,))

    def _given(self, source: str, said: int) -> Any:
        key = (source, str(self.count))
        self.said[key] = said
        return multiple(key)


def state(learner: Learner) -> tuple[object, ...]:
    waiting = [(one.ticket, one.slot, one.code, one.label) for one in learner.waiting()]
    rows = [table.counters(row) for table in learner.tables.values() for row in range(len(table))]
    return learner.snapshot(), rows, learner.kept_tickets, waiting, learner.slot


def states(book: Book) -> dict[str, tuple[object, ...]]:
    return {name: state(learner) for name, learner in book.learners.items()}


def learnt(learner: Learner) -> dict[tuple[str, str], tuple[int, int]]:
    """Return cell, arm -> labels, right, out of the learner's own counters; no zeros."""
    arms = ("f", "g", "south")
    return {
        (cell, arm): (known[3 + k], known[6 + k])
        for cell, known in learner.snapshot().cells
        for k, arm in enumerate(arms)
        if known[3 + k]
    }


def counted(store: Store, sources: list[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the same out of the store, over some sources."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for (cell, source, arm), (labels, right) in store.counters().items():
        if source in sources:
            old = sums.get((cell, arm), (0, 0))
            sums[cell, arm] = (old[0] + labels, old[1] + right)
    return sums


TestSums = Sums.TestCase
TestSums.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_life_with_restarts_is_the_same_life(name: str) -> None:
    policy, chance = policy_of(name), random.Random(5)  # noqa: S311
    script = [(chance.random(), chance.randrange(2), chance.randrange(2)) for _ in range(300)]

    whole = live(policy, script, lambda step: False)
    broken = live(policy, script, lambda step: step % 7 == 0)

    assert len(whole) == 301
    assert broken == whole


def live(policy: Policy, script: list[Any], is_restart: Callable[[int], bool]) -> list[Any]:
    """Return the decisions of a life and its last counters; labels come three slots late."""
    store = Store.memory()
    book = open_book(policy, store)
    said = []
    for step, (context, prediction, label) in enumerate(script):
        if is_restart(step):
            book = open_book(policy, store)
        answer(book, str(step), context, prediction, arrivals=step)
        due = book.find("", str(step - 3))
        if due is not None:
            book.settle(due, label)
        flush(book, store)
        kept = book.find("", str(step))
        assert kept is not None
        said.append((kept.phase, kept.arm, kept.cell, kept.slot))
    return [*said, state(book.learner)]


def test_what_is_written_is_no_more_than_what_moved() -> None:
    policy = policy_of("grid")
    book = open_book(policy, Store.memory())
    answer(book, "a", 0.1, 1)
    book.take()

    answer(book, "b", 0.9, 1)
    batch = book.take()

    assert batch is not None
    assert [line.name for line in batch.lines] == ["g2:1"]
    assert book.take() is None


def test_a_label_for_a_peers_answer_is_owed_to_it_in_the_same_batch() -> None:
    policy = policy_of("grid")
    book = open_book(policy, Store.memory())
    for step in range(40):
        answer(book, str(step), 0.1, 1, arrivals=0)
        ticket = book.find("", str(step))
        assert ticket is not None
        book.settle(ticket, 1)

    batch = book.take()

    assert batch is not None
    asked = [one.id for one in batch.tickets if one.peer == "south"]
    assert [owed.id for owed in batch.owed] == [f"to-{id_}" for id_ in asked]
    assert len(asked) > 5
    assert book.asked("g2:0", "south") == len(asked)


def test_a_ticket_is_unlabelled_until_its_label_is_stored() -> None:
    policy, store = policy_of("grid"), Store.memory()
    book = open_book(policy, store)
    answer(book, "a", 0.1, 1)
    flush(book, store)

    kept = store.find("", "a")

    assert kept is not None
    assert kept.truth is UNKNOWN
