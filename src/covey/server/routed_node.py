"""A site in several processes as one node: the router counts slots, and knows where ids are.

A row goes to the shard that owns its cell. Contexts, slots and the previous label are made here,
so every shard decides as the one process of a site would.
"""

import asyncio
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from covey.bandit.cutting import owner_of
from covey.bandit.learner import Settlement
from covey.data.inputs import check_plain, costs_of, plain_label, points_of, rows_of, share_of
from covey.errors import (
    ConflictingLabel,
    CoveyError,
    DataError,
    StoreError,
    UnknownTicket,
)
from covey.kernel.rules import Report
from covey.node.bloom_filter import BloomFilter
from covey.node.node import Node
from covey.node.peers import UNKNOWN_ID, checked_slot
from covey.node.questions import ROW_ID, Question, divided
from covey.node.requests import OWN, ArmKind, AskRow, Assistance, Payment, Request
from covey.node.shard_node import RowPart, unknown_rows
from covey.node.state import Settlements
from covey.node.status import Counters, State, kinds_of
from covey.node.workers import InProgress, Limits
from covey.server import shard_messages as messages
from covey.server.channel import ERRORS, ChannelClosed
from covey.server.config import SiteConfig
from covey.server.http import ShardAway
from covey.server.merging import merged
from covey.server.shard_messages import AnsweredRows, AnyCall, Array, SlotClock, Status
from covey.types import Cost, Label

EVERY_S = 5.0  # in which the states of shards are asked for
MOST_CELLS = 400  # of each shard on the map of the page
MOST_NAMES = 65_536  # of cells that peers ask about, whose owners are kept


class ShardLink(Protocol):
    """A shard, as far as the router needs it."""

    @property
    def is_up(self) -> bool:
        """Whether it can be called."""

    @property
    def pid(self) -> int: ...

    @property
    def restarts(self) -> int: ...

    async def call(self, call: AnyCall) -> Any:
        """Return what a call gives; raise its `CoveyError`, or `ChannelClosed`."""


class RoutedNode:
    """What clients and peers of a site call, with the same promises as those of `Node`."""

    def __init__(self, served: SiteConfig, links: Sequence[ShardLink], rng: random.Random) -> None:
        self.name = served.serving.name
        self.learner = served.learner  # its cells say who owns a context; they count nothing
        self.starts = 0
        self.counters = Counters({})
        self.failures: dict[str, int] = {}
        self.cells: list[messages.MapCell] = []  # of the page's map
        self._served, self._links, self._rng = served, links, rng
        self._trust = {name: one.trust for name, one in served.neighbours.items()}
        self._step = 0 if self.learner.shares_slots else 1
        self._slot = self._now = 0  # the latest slot, and when a request was last recorded
        self._latest: tuple[int, Label] | None = None  # slot and label of the latest instance
        self._peer_slots: dict[str, int] = {}  # likewise
        self._peer_now: dict[str, int] = {}
        self._askers: set[str] = set()
        self._known = [BloomFilter() for _ in links]  # ids by shard
        self._in_progress = InProgress(Limits())
        self._labelling = InProgress(Limits())
        self._names = [str(number) for number in range(1, len(links) + 1)]  # of the owners of cells
        self._owners: list[int] = []  # by the row of the own cell
        self._named: dict[str, int] = {}  # by the name of a cell
        self._statuses: list[Status | None] = [None] * len(links)
        self._following: asyncio.Task[None] | None = None

    def continue_from(
        self, place: int, started: messages.Started, ids: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Take what a shard has in its store; no slot of it is given again."""
        self._slot = self._now = max(self._slot, started.slot)
        self.starts = max(self.starts, started.starts)
        self._note_latest(started.latest)
        self._askers.update(started.askers)
        for peer, slot in started.peer_slots.items():
            known = max(self._peer_slots.get(peer, 0), slot)
            self._peer_slots[peer] = self._peer_now[peer] = known
        self._known[place].add_many(ids)

    # -- status ---------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether every shard can answer and record."""
        known = [one for one in self._statuses if one is not None and one.state.is_ready]
        return len(known) == len(self._links) and all(link.is_up for link in self._links)

    @property
    def arm_kinds(self) -> dict[str, ArmKind]:
        """The kinds of the arms by their names."""
        return kinds_of(self.learner)

    @property
    def previous_label(self) -> Label | None:
        """The label of the latest own instance that has one; None: none has."""
        return None if self._latest is None else self._latest[1]

    @property
    def slot(self) -> int:
        """The latest slot."""
        return self._slot

    def state(self) -> State:
        """Return the status as the shards last told it: see `refresh`."""
        return merged(self.name, self._statuses, self._links, self._slot, is_ready=self.is_ready)

    async def refresh(self, *, cells: int = 0, has_metrics: bool = False) -> list[Status | None]:
        """Ask all shards for their states; those that are away keep the last one."""
        call = messages.GetStatus(cells, has_metrics)
        calls = [link.call(call) for link in self._links]
        found = await asyncio.gather(*calls, return_exceptions=True)
        given = [one if isinstance(one, Status) else None for one in found]
        self._statuses = [new or old for new, old in zip(given, self._statuses, strict=True)]
        self.counters.decisions.clear()
        self.counters.asked.clear()
        for one in filter(None, self._statuses):
            for phase, arm, rows in one.decisions:
                self.counters.decisions[phase, arm] += rows
            self.counters.asked.update(one.asked)
        if cells:
            self.cells = [cell for one in given if one is not None for cell in one.cells]
        return given

    def start(self) -> None:
        """Begin to follow the states of shards."""
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.refresh(cells=MOST_CELLS)

    async def pause(self) -> None:
        """Return: the shards write what they have when they stop."""

    def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()

    async def failed(self) -> StoreError:
        """Never return: a shard whose write fails is started again."""
        never: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        return await never

    def new_id(self) -> str:
        """Return an id that no request has."""
        return f"{self._rng.getrandbits(128):032x}"

    # -- shards ---------------------------------------------------------------------------------

    async def _call(self, place: int, call: AnyCall) -> Any:
        try:
            return await self._links[place].call(call)
        except ChannelClosed:
            raise self._away(place) from None

    def _away(self, place: int) -> ShardAway:
        count = len(self._links)
        return ShardAway(
            f"shard {place + 1} of {count}, which has this cell, restarts; retry later"
        )

    def _check_up(self, places: Iterable[int]) -> None:
        for place in places:
            if not self._links[place].is_up:
                raise self._away(place)

    def _with_id(self, source: str, *ids: str) -> list[int]:
        """Return the shards that may have one of these ids; those that are up come first."""
        found = [
            place
            for place, known in enumerate(self._known)
            if any((source, id_) in known for id_ in ids)
        ]
        return sorted(found, key=lambda place: not self._links[place].is_up)

    async def _each(self, calls: Mapping[int, AnyCall]) -> dict[int, Any]:
        """Return what calls at several shards give, by shard; raise the first error."""
        if len(calls) == 1:
            ((place, call),) = calls.items()
            return {place: await self._call(place, call)}
        given = await asyncio.gather(
            *(self._call(place, call) for place, call in calls.items()), return_exceptions=True
        )
        for one in given:
            if isinstance(one, BaseException):
                raise one
        return dict(zip(calls, given, strict=True))

    def _owner(self, context: Any, slot: int) -> int:
        """Return the shard that has the own cell around a context."""
        table, names, space = self.learner.table, self.learner.names, self.learner.space
        row = table.locate(context, slot)
        while len(self._owners) <= row:
            cell = table.cell(len(self._owners))._replace(space=space)
            self._owners.append(owner_of(names.of(cell), self._names))
        return self._owners[row]

    def _owner_named(self, cell: str) -> int:
        """Return the shard that has a cell that a peer names; raise `DataError` if none has."""
        place = self._named.get(cell)
        if place is None:
            names = self.learner.names
            place = owner_of(names.of(names.parse(cell)), self._names)
            if len(self._named) >= MOST_NAMES:
                self._named.clear()
            self._named[cell] = place
        return place

    def _note_latest(self, latest: tuple[int, Label] | None) -> None:
        """Note what a shard has recorded."""
        self._now = max(self._now, self._slot)
        if latest is not None and (self._latest is None or latest[0] >= self._latest[0]):
            self._latest = latest

    # -- own clients ----------------------------------------------------------------------------

    async def answer(
        self,
        instances: Any,
        contexts: Any = None,
        *,
        question: Question | None = None,
        slot: int | None = None,
    ) -> Request:
        """Answer the rows of a request as `Node.answer` does.

        If a shard fails, the rows of others may be recorded; the same request again is completed.
        """
        rows = rows_of(instances)
        count = len(rows)
        if not count:
            raise DataError("the batch has no rows")
        asked = Question(OWN, self.new_id()) if question is None else question
        asked = divided(asked, rows=count, shares_slots=not self._step)
        key = (asked.source, asked.id)
        await self._in_progress.free([key])
        with self._in_progress.noted([key], count):
            known = self._with_id(*key)
            parts = await self._earlier(asked, count, known) if known else []
            done = {row for part in parts for row in part.numbers}
            if len(done) < count:
                parts += await self._ask(asked, rows, contexts, slot, done)
        return messages.gathered(parts, count=count, source=asked.source, id=asked.id)

    async def _earlier(
        self, asked: Question, count: int, known: Collection[int]
    ) -> list[AnsweredRows]:
        """Return what was answered before under an id; raise `ConflictingLabel` for another."""
        call = messages.FindEarlier(asked.source, asked.id, asked.digest, count)
        found = await self._each(dict.fromkeys(known, call))
        return [part for parts in found.values() for part in parts]

    async def _ask(
        self, asked: Question, rows: Any, contexts: Any, slot: int | None, done: Collection[int]
    ) -> list[AnsweredRows]:
        """Have rows answered by the shards that own their cells, in the next slots."""
        before, clock = self._slot, SlotClock(self._now, self._slot)
        first = before + 1 if slot is None else max(slot, before)
        points = contexts(first) if callable(contexts) else contexts
        count = len(rows)
        if count > 1 or not isinstance(points, list) or len(points) != 1:
            points = points_of(points, rows, dimension=self.learner.dimension)
        step, places = self._step, dict[int, list[int]]()
        for row in range(count):
            if row not in done:
                at = first + row * step
                places.setdefault(self._owner(_point(points, row), at), []).append(row)
        self._check_up(places)
        last = self._slot = first + (count - 1) * step
        calls: dict[int, AnyCall] = {}
        for place, mine in places.items():
            part = RowPart(
                asked.source,
                asked.id,
                asked.digest,
                [first + row * step for row in mine],
                mine if count > 1 else None,
            )
            self._known[place].add((asked.source, asked.id))
            share = rows if len(mine) == count else share_of(rows, mine)
            given = points if len(mine) == count else points[mine]
            calls[place] = messages.AnswerRows(
                clock,
                part,
                Array.of(share) if isinstance(share, np.ndarray) else list(share),
                Array.of(given) if isinstance(given, np.ndarray) else given,
            )
        try:
            given = list((await self._each(calls)).values())
            self._now = max(self._now, last)
            return given
        except ShardAway:
            raise
        except CoveyError:
            if len(calls) == 1 and self._slot == last:
                self._slot = before  # nothing is recorded, and no later slot is in use
            raise

    async def learn(
        self,
        id: str,
        label: Label,
        *,
        source: str = OWN,
        cost: Cost = None,
    ) -> Settlement:
        """Take the true label of a ticket as `Node.learn` does."""
        label = plain_label(label)
        self._served.labels.check_own([label])
        row = ROW_ID.fullmatch(id)
        ids = [id] if row is None else [id, row[1]]
        places = self._with_id(source, *ids)
        call = messages.LearnRow(SlotClock(self._now, self._slot), source, id, label, cost)
        for place in places:
            try:
                learnt = await self._call(place, call)
            except UnknownTicket as error:
                if type(error) is not UnknownTicket:
                    raise
                continue  # the filter of ids is no proof
            self._note_latest(learnt.latest)
            settled = learnt.rows[0]
            return Settlement(settled.is_new, settled.is_right)
        if row is not None and (size := await self._size(source, row[1], places)):
            raise unknown_rows(row[1], [int(row[2])], size)
        if size := await self._size(source, id, places):
            raise DataError(f"{id!r} has {size} rows; say of which row this is the label")
        raise unknown_rows(id, [], 0)

    async def _size(self, source: str, id: str, places: Sequence[int]) -> int:
        """Return how many rows a request has; 0: it is not known."""
        call = messages.FindSize(source, id)
        sizes = await self._each(dict.fromkeys(places, call)) if places else {}
        return max(sizes.values(), default=0)

    async def learn_rows(
        self,
        id: str,
        rows: Sequence[int],
        labels: Any,
        *,
        source: str = OWN,
        costs: Sequence[Cost] | None = None,
    ) -> Settlements:
        """Take true labels of rows of a request, all or none; return when they are durable.

        If a shard fails after the labels were checked, those of others may be taken; the same
        labels again complete them.
        """
        truths = _truths(id, rows, labels)
        self._served.labels.check_own(list(truths.values()))
        paid = costs_of(rows, costs) or None
        places = self._with_id(source, id)
        if not places:
            raise unknown_rows(id, rows, 0)
        key = (source, id)
        await self._labelling.free([key])
        with self._labelling.noted([key], 0):
            found = await self._learn_rows(key, truths, paid, places)
        for learnt in found:
            self._note_latest(learnt.latest)
        settled = {one.row: one for learnt in found for one in learnt.rows}
        return Settlements(
            [settled[row].is_new for row in truths], [settled[row].is_right for row in truths]
        )

    async def _learn_rows(
        self,
        key: tuple[str, str],
        truths: dict[int, Label],
        paid: dict[int, Cost] | None,
        places: Sequence[int],
    ) -> list[messages.Learnt]:
        """Take labels of rows: at one shard at once, at several after all have checked them."""
        source, id_ = key
        clock = SlotClock(self._now, self._slot)
        if len(places) == 1:
            return [
                await self._call(places[0], messages.LearnRows(clock, source, id_, truths, paid))
            ]
        check = messages.CheckRows(clock, source, id_, truths)
        here = await self._each(dict.fromkeys(places, check))
        verdicts = {one.row: one for found in here.values() for one in found}
        if len(verdicts) < len(truths):
            raise unknown_rows(id_, truths, await self._size(source, id_, places))
        for row in truths:
            if verdicts[row].error:
                raise ERRORS[verdicts[row].error](verdicts[row].sentence)
        calls: dict[int, AnyCall] = {}
        for place, found in here.items():
            mine = {one.row: truths[one.row] for one in found}
            costs = None if paid is None else {row: paid[row] for row in mine}
            if mine:
                calls[place] = messages.LearnRows(clock, source, id_, mine, costs)
        return list((await self._each(calls)).values())

    # -- peers ----------------------------------------------------------------------------------

    def has_asked(self, source: str) -> bool:
        """Return whether a peer has ever asked this site."""
        return source in self._askers

    def _clock(self, source: str) -> SlotClock:
        """Return the slots of the site and of a peer."""
        now, slot = self._peer_now.get(source, 0), self._peer_slots.get(source, 0)
        if self._trust.get(source) == "full":
            now, slot = self._now, self._slot  # its slots are those of the site
        return SlotClock(self._now, self._slot, source, now, slot)

    def _note_slot(self, source: str, slot: int, *, is_recorded: bool = False) -> None:
        """Note the latest slot of a peer."""
        slot = max(self._peer_slots.get(source, 0), slot)
        self._peer_slots[source] = slot
        if self._trust.get(source) == "full":
            self._slot = max(self._slot, slot)
        if is_recorded:
            self._peer_now[source], self._now = slot, max(self._now, self._slot)

    async def assist(self, rows: Sequence[AskRow], *, source: str) -> list[Assistance]:
        """Answer rows of a peer, each by the shard that has its cell."""
        cells = [self.learner.names.parse(str(row.cell)) for row in rows]
        for row in rows:
            checked_slot(row.slot)
        if any(cell.space != cells[0].space for cell in cells):
            raise DataError("the cells of one request must lie in one context space")
        if len({row.id for row in rows}) < len(rows):
            raise DataError("the ids of rows must differ")
        owners = [self._owner_named(str(row.cell)) for row in rows]
        keys = [(source, row.id) for row in rows]
        await self._in_progress.free(keys)
        with self._in_progress.noted(keys, len(rows)):
            await self._find_earlier(source, rows, owners)
            self._check_up(owners)
            self._askers.add(source)
            clock = self._clock(source)
            mine: dict[int, list[int]] = {}
            for k, place in enumerate(owners):
                mine.setdefault(place, []).append(k)
                self._known[place].add(keys[k])
            given = await self._each(
                {
                    place: messages.Assist(clock, [messages.Row.of(rows[k]) for k in some])
                    for place, some in mine.items()
                }
            )
        self._note_slot(source, max(one.slot for one in given.values()), is_recorded=True)
        by_row = {
            k: one
            for place, some in mine.items()
            for k, one in zip(some, given[place].rows, strict=True)
        }
        return [by_row[k].assistance() for k in range(len(rows))]

    async def _find_earlier(self, source: str, rows: Sequence[AskRow], owners: list[int]) -> None:
        """Let rows whose id is that of an earlier row go where that is, as its answer stays."""
        for place, known in enumerate(self._known):
            away = {
                row.id: k
                for k, row in enumerate(rows)
                if owners[k] != place and (source, row.id) in known
            }
            if away:
                for id_ in await self._call(place, messages.FindIds(source, list(away))):
                    owners[away[id_]] = place

    async def report(self, cell: str, slot: int, *, source: str) -> Report:
        """Return the arrivals in a cell."""
        place = self._owner_named(cell)
        clock = self._clock(source)
        found = await self._call(place, messages.GetReport(clock, cell, checked_slot(slot)))
        self._note_slot(source, slot)
        return cast("Report", found)

    async def estimate(
        self, cell: str, slot: int, *, source: str, is_by_context: bool
    ) -> tuple[float, int]:
        """Return the accuracy of answers in a cell, and the labels behind it."""
        place = self._owner_named(cell)
        clock = self._clock(source)
        call = messages.GetEstimate(clock, cell, checked_slot(slot), is_by_context)
        found = await self._call(place, call)
        self._note_slot(source, slot)
        return cast("tuple[float, int]", found)

    async def take_labels(self, labels: Sequence[tuple[str, Label]], *, source: str) -> list[str]:
        """Take labels that a peer delivers; return the outcome of each when they are durable."""
        clock = self._clock(source)
        return await self._scatter(
            source,
            [id_ for id_, _ in labels],
            lambda some: messages.TakeLabels(clock, [labels[k] for k in some]),
        )

    async def take_payments(self, payments: Sequence[Payment]) -> list[str]:
        """Record what a peer pays for answers of this site; return the outcome of each."""
        source = payments[0].peer if payments else OWN
        return await self._scatter(
            source,
            [one.id for one in payments],
            lambda some: messages.TakePayments([payments[k] for k in some]),
        )

    async def _scatter(self, source: str, ids: Sequence[str], make: Any) -> list[str]:
        """Send each id to a shard that may have it, until one knows it; return the outcomes."""
        outcomes = [UNKNOWN_ID] * len(ids)
        left = {k: self._with_id(source, id_) or [0] for k, id_ in enumerate(ids)}
        while left:
            some: dict[int, list[int]] = {}
            for k, places in left.items():
                some.setdefault(places.pop(0), []).append(k)
            given = await self._each({place: make(mine) for place, mine in some.items()})
            for place, mine in some.items():
                for k, word in zip(mine, given[place], strict=True):
                    outcomes[k] = word
            left = {k: places for k, places in left.items() if places and outcomes[k] == UNKNOWN_ID}
        return outcomes


AnyNode = Node | RoutedNode  # what answers clients and peers of a site


def _point(points: Any, row: int) -> Any:
    point = points[row]
    return tuple(point.tolist()) if isinstance(point, np.ndarray) else point


def _truths(id: str, rows: Sequence[int], labels: Any) -> dict[int, Label]:
    """Return the label of each row; raise `ConflictingLabel` for two labels of a row."""
    given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(rows) != len(given):
        raise DataError(f"there are {len(rows)} rows and {len(given)} labels; give one for each")
    check_plain(given)
    truths: dict[int, Label] = {}
    for row, label in zip(rows, given, strict=True):
        if truths.setdefault(row, label) != label:
            raise ConflictingLabel(f"row {row} of {id!r} is given two labels; none was taken")
    return truths
