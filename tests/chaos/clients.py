"""What clients do, and what they know afterwards: the oracle that stores are compared with."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from chaos import cases, records
from chaos.plans import Client, Plan
from chaos.records import RowRecord
from chaos.world import FAILURES, Network
from covey.bandit.learner import UNKNOWN
from covey.errors import (
    ConflictingLabel,
    DataError,
    LateLabel,
    LimitError,
    PeerError,
    UnknownTicket,
)
from covey.node.node import Question
from covey.store.store import Store
from covey.types import Label

NO_ANSWER_S = 600.0  # without an answer for so long, something hangs
Key = tuple[str, str, str]  # site, source, id of a row


class Entry:
    """One row as its client knows it: the answer, and what its label may be."""

    def __init__(self, case: int, truth: int) -> None:
        self.case, self.truth = case, truth
        self.answer: RowRecord | None = None
        self.possible: set[Any] = {UNKNOWN}
        self.is_acknowledged = False
        self.news = 0  # how often the label was said to be new

    def try_label(self, label: Label) -> None:
        """Note that a label is on its way; whether it arrives is unknown."""
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
        """How many labels were acknowledged."""
        return sum(entry.is_acknowledged for entry in self.entries.values())

    def look(self, name: str, store: Store) -> None:
        """Compare what a node begins with to what its clients know."""
        expect = self.network.expect
        kept = records.read(store)
        for (site, source, id_), entry in self.entries.items():
            if site != name:
                continue
            row = kept.get((source, id_))
            if entry.answer is not None:
                expect(row is not None, "I3", f"{name} lost the request of {id_}")
            if UNKNOWN not in entry.possible:
                has_label = row is not None and row.truth is not UNKNOWN
                promise = "I1" if entry.is_acknowledged else "I10"
                expect(has_label, promise, f"{name} lost the label of {id_}")
        self.network.lost_arrivals[name] = records.arrivals_without_request(
            store, self.network.trust[name]
        )
        (starts,) = store._base.execute("SELECT starts FROM site").fetchone()
        before, self.network.starts[name] = self.network.starts[name], starts
        expect(starts > before, "I12", f"{name} started {starts} times, after {before}")

    def answered(self, site: str, row: RowRecord) -> None:
        key = (site, *row.key)
        entry, now = self.entries[key], row.as_answered
        is_same = entry.answer in (None, now)
        self.network.expect(is_same, "I10", f"{key} was answered twice, and not the same")
        entry.answer = now
        label = self.network.label_of(site, row.function, entry.case, entry.truth)
        is_its_own = label in (None, row.answer)
        self.network.expect(is_its_own, "I10", f"{key} got the answer to another row")

    def settled(self, key: Key, label: Label, *, is_new: bool) -> None:
        self.network.counts["labels, new" if is_new else "labels, repeated"] += 1
        entry, expect = self.entries[key], self.network.expect
        expect(label in entry.possible, "I2", f"{key}: {label} was taken after another")
        entry.news += is_new
        expect(entry.news <= 1, "I2", f"{key}: {label} was new twice")
        entry.possible, entry.is_acknowledged = {label}, True
        if is_new and entry.answer is not None:
            has_missed = self.network.has_missed(key[0], entry.answer.function, entry.case)
            expect(not has_missed, "I2", f"{key}: {label} counts, and trained nothing")

    def refused(self, key: Key, label: Label) -> None:
        """Note that the row has another label."""
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
        """Note that a label was refused because label-wait has expired."""
        self.network.counts["labels, late"] += 1
        network, entry = self.network, self.entries[key]
        network.expect(UNKNOWN in entry.possible, "I1", f"{key} has its label, and says it has not")
        entry.possible = {UNKNOWN}
        node = network.nodes.get(key[0])
        if node is not None and entry.answer is not None:
            # Requests that share slots are also forgotten, oldest first, to make room for others.
            # What has expired in a slot is forgotten before it is decided.
            latest = max(node.learner.slot, network.begun_slots[key[0]])
            is_over = latest > entry.answer.last_slot + network.plan.wait
            can_be = is_over or node.learner.shares_slots
            network.expect(can_be, "I3", f"{key} was forgotten before label-wait expired")


class RunningClient:
    """One client at work."""

    def __init__(self, network: Network, oracle: Oracle, client: Client, number: int) -> None:
        self._network, self._oracle = network, oracle
        self._client, self._number = client, number
        self._chance = network.chance
        self._keys: dict[int, list[Key]] = {}  # the rows of each request

    async def work(self) -> None:
        """Send requests, and labels as they come."""
        labels = []
        for k in range(self._client.rounds):
            await asyncio.sleep(self._chance.expovariate(1 / self._client.pause_s))
            if await self.ask(k):
                labels.append(asyncio.ensure_future(self._label(k)))
        await asyncio.gather(*labels)

    # -- requests -------------------------------------------------------------------------------

    async def ask(self, k: int) -> bool:
        """Send request `k` until there is an answer."""
        chance, entries = self._chance, self._oracle.entries
        keys = self._new_keys(k, chance.randint(1, self._client.rows))
        for row, key in enumerate(keys):
            case = cases.PER_CLIENT * self._number + cases.MOST_ROWS * k + row
            entries[key] = Entry(case, chance.randrange(2))
        contexts = [(chance.random(),) for _ in keys]
        await self._persist(partial(self._ask_once, k, contexts))
        if chance.random() < 0.05:
            await self._persist(partial(self._ask_once, k, contexts))
        if chance.random() < 0.03:
            await self._persist(partial(self._ask_otherwise, k, contexts))
        return entries[keys[0]].answer is not None

    def _new_keys(self, k: int, rows: int) -> list[Key]:
        site, source, id_ = self._client.site, self._client.source, self._id(k)
        ids = [id_] if rows == 1 else [f"{id_}:{row}" for row in range(rows)]
        self._keys[k] = [(site, source, one) for one in ids]
        return self._keys[k]

    def _id(self, k: int) -> str:
        return f"{self._number}-{k}"

    async def _ask_once(self, k: int, contexts: list[tuple[float, ...]]) -> None:
        asked = Question(self._client.source, self._id(k), "the same")
        entries = [self._oracle.entries[key] for key in self._keys[k]]
        instances = [cases.instance_of(entry.case, entry.truth) for entry in entries]
        request = await self._network.call(
            self._client.site, lambda node: node.answer(instances, contexts, question=asked)
        )
        rows = records.rows_of(request)
        self._network.counts["batches"] += len(rows) > 1
        for row in rows:
            self._oracle.answered(self._client.site, row)

    async def _ask_otherwise(self, k: int, contexts: list[tuple[float, ...]]) -> None:
        asked = Question(self._client.source, self._id(k), "another")
        instances = [cases.instance_of(0, 0) for _ in contexts]
        try:
            await self._network.call(
                self._client.site, lambda node: node.answer(instances, contexts, question=asked)
            )
        except ConflictingLabel:
            return
        self._network.blame("I10", f"{self._keys[k]} was answered for another request")

    # -- labels ---------------------------------------------------------------------------------

    async def say(self, k: int) -> None:
        """Send the labels of request `k`."""
        for key in self._keys[k]:
            await self._say(key, self._oracle.entries[key].truth)

    async def _label(self, k: int) -> None:
        keys = self._keys[k]
        if len(keys) > 1 and self._chance.random() < 0.5:
            await self._label_together(k)
        else:
            await asyncio.gather(*map(self._label_alone, keys))

    async def _label_together(self, k: int) -> None:
        """Send the labels of a batch at once, and a conflicting one of a row meanwhile."""
        chance, keys = self._chance, self._keys[k]
        await asyncio.sleep(chance.expovariate(1 / self._client.label_s))
        sent = [self._say_together(k, keys)]
        if chance.random() < 0.3:
            sent.append(self._say_together(k, keys[1:]))
        if chance.random() < 0.2:
            key = chance.choice(keys)
            sent.append(self._say(key, 1 - self._oracle.entries[key].truth))
        if chance.random() < 0.5:
            sent.reverse()
        await asyncio.gather(*sent)

    async def _label_alone(self, key: Key) -> None:
        chance = self._chance
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
        """Send a label just before label-wait expires, and again just then."""
        answer = self._oracle.entries[key].answer
        for _ in range(300):
            node = self._network.nodes.get(key[0])
            if node and answer and node.learner.slot >= answer.last_slot + self._network.plan.wait:
                break
            await asyncio.sleep(1.0)
        sent = [asyncio.ensure_future(self._say(key, truth))]
        for mean_s in (0.2, 1.0):
            await asyncio.sleep(self._chance.expovariate(1 / mean_s))
            sent.append(asyncio.ensure_future(self._say(key, truth)))
        await asyncio.gather(*sent)

    async def _say(self, key: Key, label: Label) -> None:
        await self._persist(partial(self._say_once, key, label), self._attempts())

    async def _say_together(self, k: int, keys: Sequence[Key]) -> None:
        await self._persist(partial(self._say_together_once, k, keys), self._attempts())

    def _attempts(self) -> int:
        return 1 if self._chance.random() < 0.1 else 1000

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

    async def _say_together_once(self, k: int, keys: Sequence[Key]) -> None:
        """Send labels of some rows of a batch; if they are refused, each of them alone."""
        entries = [self._oracle.entries[key] for key in keys]
        rows = [self._keys[k].index(key) for key in keys]
        labels = [entry.truth for entry in entries]
        for entry in entries:
            entry.try_label(entry.truth)
        try:
            done = await self._network.call(
                self._client.site,
                lambda node: node.learn_rows(self._id(k), rows, labels, source=self._client.source),
            )
        except (ConflictingLabel, LateLabel, DataError):
            for key, label in zip(keys, labels, strict=True):
                await self._say_once(key, label)
        except UnknownTicket:
            self._network.blame("I3", f"{keys} are not known")
        else:
            self._network.counts["labels together"] += len(keys)
            for key, label, is_new in zip(keys, labels, done.is_new, strict=True):
                self._network.note("label", key, label, is_new)
                self._oracle.settled(key, label, is_new=is_new)

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

    async def _persist(self, call: Callable[[], Awaitable[None]], attempts: int = 1000) -> None:
        """Try until there is an answer, whatever it is, or there are no more attempts."""
        clock = asyncio.get_running_loop()
        start_s, pause_s = clock.time(), 0.5
        for _ in range(attempts):
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


def clients_of(network: Network, oracle: Oracle, plan: Plan) -> list[RunningClient]:
    """Return the clients of a plan."""
    return [RunningClient(network, oracle, one, k) for k, one in enumerate(plan.clients)]
