"""What clients do, and what they know afterwards: the oracle that stores are compared with."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from covey.books import Question
from covey.decisions import UNKNOWN
from covey.errors import (
    ConflictingLabel,
    DataError,
    LateLabel,
    LimitError,
    PeerError,
    UnknownTicket,
)
from covey.records import Ticket
from covey.store import Store
from covey.types import Label
from storm import cases
from storm.plans import Client, Plan
from storm.world import FAILURES, Network

NO_ANSWER_S = 600.0  # without an answer for so long, something hangs
Key = tuple[str, str, str]  # site, source, id


class Entry:
    """One question as its client knows it: the answer, and what its label may be."""

    def __init__(self, case: int, truth: int) -> None:
        self.case, self.truth = case, truth
        self.answer: Ticket | None = None
        self.possible: set[Any] = {UNKNOWN}
        self.is_acknowledged = False
        self.news = 0  # how often it was told that the label was new

    def try_label(self, label: Label) -> None:
        """Note that a label is on its way; nobody knows whether it arrives."""
        if UNKNOWN in self.possible:
            self.possible.add(label)


class Oracle:
    """All that clients were told, in dictionaries of its own."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.entries: dict[Key, Entry] = {}
        network.when_booted = self.look

    @property
    def acknowledged(self) -> int:
        """How many labels clients were told to be kept."""
        return sum(entry.is_acknowledged for entry in self.entries.values())

    def look(self, name: str, store: Store) -> None:
        """Compare what a node begins with to what its clients know."""
        expect = self.network.expect
        rows = store._base.execute("SELECT source, id, truth FROM tickets").fetchall()
        kept = {(source, id_): truth for source, id_, truth in rows}
        for (site, source, id_), entry in self.entries.items():
            if site != name:
                continue
            if entry.answer is not None:
                expect((source, id_) in kept, "I3", f"{name} lost the ticket {id_}")
            if UNKNOWN not in entry.possible:
                has_label = kept.get((source, id_)) is not None
                promise = "I1" if entry.is_acknowledged else "I10"
                expect(has_label, promise, f"{name} lost the label of {id_}")
        (starts,) = store._base.execute("SELECT starts FROM site").fetchone()
        before, self.network.starts[name] = self.network.starts[name], starts
        expect(starts > before, "I12", f"{name} started {starts} times, after {before}")

    def answered(self, key: Key, ticket: Ticket) -> None:
        entry = self.entries[key]
        before = entry.answer
        if before is not None:
            is_same = (before.ticket, before.answer) == (ticket.ticket, ticket.answer)
            self.network.expect(is_same, "I10", f"{key} was answered twice, and not the same")
        entry.answer = ticket

    def settled(self, key: Key, label: Label, *, is_new: bool) -> None:
        self.network.counts["labels, new" if is_new else "labels, repeated"] += 1
        entry, expect = self.entries[key], self.network.expect
        expect(label in entry.possible, "I2", f"{key}: {label} was taken after another")
        entry.news += is_new
        expect(entry.news <= 1, "I2", f"{key}: {label} was new twice")
        entry.possible, entry.is_acknowledged = {label}, True
        if is_new and entry.answer is not None:
            has_missed = self.network.has_missed(key[0], entry.answer.function, entry.case)
            expect(not has_missed, "I2", f"{key}: {label} counts, and taught nobody")

    def refused(self, key: Key, label: Label) -> None:
        """Note that another label stands."""
        self.network.counts["labels, conflicting"] += 1
        entry = self.entries[key]
        entry.possible -= {label, UNKNOWN}
        self.network.expect(bool(entry.possible), "I10", f"{key}: no other label was ever sent")

    def not_wanted(self, key: Key) -> None:
        """Note that a site takes no labels at all."""
        is_so = key[0] in self.network.plan.unsupervised
        self.network.counts["labels, not wanted"] += 1
        self.network.expect(is_so, "I10", f"{key}: a good label was refused")
        self.entries[key].possible = {UNKNOWN}

    def too_late(self, key: Key) -> None:
        self.network.counts["labels, late"] += 1
        network, entry = self.network, self.entries[key]
        network.expect(UNKNOWN in entry.possible, "I1", f"{key} has its label, and says it has not")
        entry.possible = {UNKNOWN}
        node = network.nodes.get(key[0])
        if node is not None and entry.answer is not None:
            is_over = node.learner.slot > entry.answer.slot + network.plan.wait
            network.expect(is_over, "I3", f"{key} was forgotten before its wait ended")


class Person:
    """One client at work."""

    def __init__(self, network: Network, oracle: Oracle, client: Client, number: int) -> None:
        self._network, self._oracle = network, oracle
        self._client, self._number = client, number
        self._chance = network.chance

    async def work(self) -> None:
        """Ask, and say the labels as they come."""
        labels = []
        for k in range(self._client.rounds):
            await asyncio.sleep(self._chance.expovariate(1 / self._client.pause_s))
            if await self.ask(k):
                labels.append(asyncio.ensure_future(self._label(k)))
        await asyncio.gather(*labels)

    def _key(self, k: int) -> Key:
        return self._client.site, self._client.source, f"{self._number}-{k}"

    async def ask(self, k: int) -> bool:
        """Ask instance `k` until there is an answer."""
        key, chance = self._key(k), self._chance
        case = cases.PER_CLIENT * self._number + k
        entry = self._oracle.entries[key] = Entry(case, chance.randrange(2))
        context = (chance.random(),)
        await self._persist(partial(self._ask_once, key, entry, context))
        if chance.random() < 0.05:
            await self._persist(partial(self._ask_once, key, entry, context))
        if chance.random() < 0.03:
            await self._persist(partial(self._ask_otherwise, key, context))
        return entry.answer is not None

    async def _ask_once(self, key: Key, entry: Entry, context: tuple[float, ...]) -> None:
        asked = Question(key[1], key[2], "the same")
        instance = cases.instance_of(entry.case, entry.truth)
        ticket = await self._network.call(
            key[0], lambda node: node.predict(instance, context, question=asked)
        )
        self._oracle.answered(key, ticket)

    async def _ask_otherwise(self, key: Key, context: tuple[float, ...]) -> None:
        asked = Question(key[1], key[2], "another")
        try:
            await self._network.call(
                key[0], lambda node: node.predict(cases.instance_of(0, 0), context, question=asked)
            )
        except ConflictingLabel:
            return
        self._network.blame("I10", f"{key} was given out for another question")

    async def say(self, k: int) -> None:
        """Say the label of instance `k`."""
        await self._say(self._key(k), self._oracle.entries[self._key(k)].truth)

    async def _label(self, k: int) -> None:
        key, chance = self._key(k), self._chance
        if chance.random() < 0.03:
            await self._say_for_another(key)
        if chance.random() < 0.2:
            return  # it never comes
        truth = self._oracle.entries[key].truth
        if chance.random() < 0.2:
            await self._say_at_the_last_moment(key, truth)
            return
        await asyncio.sleep(chance.expovariate(1 / self._client.label_s))
        labels = [truth]
        if chance.random() < 0.15:
            labels.append(truth)
        if chance.random() < 0.1:
            labels.append(1 - truth)
        if chance.random() < 0.5:
            await asyncio.gather(*(self._say(key, label) for label in labels))
            return
        for label in labels:
            await self._say(key, label)
            await asyncio.sleep(chance.expovariate(1 / self._client.label_s))

    async def _say_at_the_last_moment(self, key: Key, truth: Label) -> None:
        """Say a label just before its wait is over, and once more just then."""
        answer = self._oracle.entries[key].answer
        for _ in range(300):
            node = self._network.nodes.get(key[0])
            if node and answer and node.learner.slot >= answer.slot + self._network.plan.wait:
                break
            await asyncio.sleep(1.0)
        again = asyncio.ensure_future(self._say(key, truth))
        await asyncio.sleep(self._chance.expovariate(1.0))
        await self._say(key, truth)
        await again

    async def _say(self, key: Key, label: Label) -> None:
        patience = 1 if self._chance.random() < 0.1 else 1000
        await self._persist(partial(self._say_once, key, label), patience)

    async def _say_once(self, key: Key, label: Label) -> None:
        site, source, id_ = key
        self._oracle.entries[key].try_label(label)
        try:
            done = await self._network.call(
                site, lambda node: node.learn(id_, label, source=source)
            )
        except ConflictingLabel:
            self._oracle.refused(key, label)
        except LateLabel:
            self._oracle.too_late(key)
        except DataError:
            self._oracle.not_wanted(key)
        except UnknownTicket:
            self._network.blame("I3", f"{key} is not known")
        else:
            self._network.note("label", key, label, done.is_new)
            self._oracle.settled(key, label, is_new=done.is_new)

    async def _say_for_another(self, key: Key) -> None:
        site, source, id_ = key
        others = {"", "client/ann", "client/eve", *self._network.names} - {source, site}
        for other in sorted(others):
            await self._persist(partial(self._intrude, site, id_, other), 1)
        await self._persist(partial(self._intrude, site, "never-given", source), 1)

    async def _intrude(self, site: str, id_: str, source: str) -> None:
        if (site, source, id_) in self._oracle.entries:
            return
        with contextlib.suppress(UnknownTicket):
            await self._network.call(site, lambda node: node.learn(id_, 1, source=source))
            self._network.blame("I6", f"{site} let {source!r} label {id_}, which is not its own")

    async def _persist(self, call: Callable[[], Awaitable[None]], patience: int = 1000) -> None:
        """Try until there is an answer, whatever it is; a client may lose its patience."""
        clock = asyncio.get_running_loop()
        start_s, pause_s = clock.time(), 0.5
        for _ in range(patience):
            try:
                await call()
            except PeerError as error:
                self._network.blame("I9", f"a client of {self._client.site} is told: {error}")
                return
            except (*FAILURES, LimitError) as error:
                self._network.counts[type(error).__name__] += 1
                await asyncio.sleep(pause_s * self._chance.uniform(0.5, 1.0))
                pause_s = min(10.0, 2 * pause_s)
            else:
                return
            if clock.time() - start_s > NO_ANSWER_S:
                self._network.blame("I8", f"{self._client.site} gave no answer for ten minutes")
                return


def people(network: Network, oracle: Oracle, plan: Plan) -> list[Person]:
    """Return the clients of a plan."""
    return [Person(network, oracle, one, k) for k, one in enumerate(plan.clients)]
