"""Labels of a peer that is kept apart change nothing for anybody else, however many it sends."""

import random
import statistics
from collections import deque
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import virtual
from covey.books import Book, Question, Reply, is_own
from covey.desks import Trust
from covey.errors import LateLabel, LimitError, UnknownTicket
from covey.learner import Learner
from covey.medians import FEWEST_LABELS, Medians
from covey.node.node import Limits, Node
from covey.peers import NO_INSTANCE, Help, Request
from covey.policies import PRESETS, resolve, settings_from
from covey.shapes import shape_of
from covey.store import Store
from covey.types import Cell
from virtual import World

SLOTS = 90
LAYERED = ("dcza", "multi-resolution")  # presets with cells of several sizes


def config(preset: str = "cos", **more: Any) -> dict[str, Any]:
    """A site with a good and a bad function, which others may ask, by the cell only too."""
    grid = {} if preset in LAYERED else {"slices": 1}
    policy = {"preset": preset, **grid, "horizon": 500, **more}
    names = ["honest", "liar", "site"]
    functions = [["of-honest"], ["of-liar"], ["bad", "good"]]
    learners = [
        {"name": name, "functions": given, "peers": {}}
        for name, given in zip(names, functions, strict=True)
    ]
    return {"policy": policy, "learner": learners}


def world_of(setup: dict[str, Any], trust: Trust = "isolated") -> World:
    functions = {"bad": lambda x: x[1], "good": lambda x: x[2], "of-honest": int, "of-liar": int}
    return World(setup, functions, dimension=1, trust=trust)


class Said(NamedTuple):
    """What each of them was told, request by request."""

    own: list[Any]
    honest: list[Any]
    liar: list[Any]

    @property
    def good_for_honest(self) -> float:
        return statistics.mean(one[0] == "good" for one in self.honest[-45:])

    @property
    def good_for_liar(self) -> float:
        return statistics.mean(one[0] == "good" for one in self.liar[-200:])


class Life:
    """A site that answers its clients and an honest peer, and perhaps one that floods it."""

    def __init__(self, world: World, *, lies: int, restart_every: int) -> None:
        self.world, self.lies, self.restart_every = world, lies, restart_every
        self.cells = ["g1:0"]
        if world.setup.settings.preset in LAYERED:
            self.cells = ["z0:0", "z1:0", "z1:1", "z2:1"]
        self.said = Said([], [], [])
        self.due: deque[tuple[str, str, int]] = deque()  # labels that are on their way

    async def run(self) -> Said:
        # Everybody has a chance of his own, so that one who asks more changes nothing for others.
        chances = {name: random.Random(name) for name in ("own", "honest", "liar")}  # noqa: S311
        for slot in range(1, SLOTS + 1):
            if slot % self.restart_every == 0:
                self.world.crash("site")
                self.world.boot("site")
            node = self.world.nodes["site"]
            await self._predict(node, chances["own"], slot)
            await self._serve(node, chances["honest"], "honest", f"{slot}", slot)
            while len(self.due) > 6:
                source, id_, truth = self.due.popleft()
                await node.learn(id_, truth, source=source)
            for k in range(self.lies):
                await self._serve(node, chances["liar"], "liar", f"{slot}-{k}", 9 * slot + k)
        node.stop()
        return self.said

    async def _predict(self, node: Node, chance: random.Random, slot: int) -> None:
        instance = instance_of(chance)
        asked = Question("client/her" if slot % 2 else "", str(slot))
        ticket = await node.predict(instance, (chance.random(),), question=asked)
        self.due.append((asked.source, asked.id, instance[0]))
        self.said.own.append((ticket.phase, ticket.arm, ticket.cell, ticket.slot))

    async def _serve(
        self, node: Node, chance: random.Random, source: str, id_: str, slot: int
    ) -> None:
        instance = instance_of(chance)
        cell = self.cells[slot % len(self.cells)]
        told = await node.report(cell, slot, source=source)
        guess = await node.estimate(cell, slot, source=source, is_by_context=False)
        helped = await node.assist(Request(id_, cell, slot, instance), source=source)
        if source == "honest":
            self.due.append((source, id_, instance[0]))
        else:
            await node.learn(id_, lie(helped), source=source)
        getattr(self.said, source).append((helped.function, helped.label, told, guess))


def instance_of(chance: random.Random) -> tuple[int, int, int]:
    truth = chance.randrange(2)
    says = [truth if chance.random() < right else 1 - truth for right in (0.55, 0.95)]
    return truth, says[0], says[1]


def live(
    preset: str, trust: Trust, *, lies: int = 0, restart_every: int = SLOTS + 1, **more: Any
) -> tuple[Said, Store]:
    async def main() -> tuple[Said, Store]:
        world = world_of(config(preset, **more), trust)
        life = Life(world, lies=lies, restart_every=restart_every)
        return await life.run(), world.stores["site"]

    return virtual.run(main())


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_flood_of_false_labels_changes_nothing_for_anybody_else(preset: str) -> None:
    clean, _ = live(preset, "isolated")
    flooded, store = live(preset, "isolated", lies=8)

    assert len(flooded.liar) == 8 * SLOTS
    assert flooded.own == clean.own
    assert flooded.honest == clean.honest
    assert store.check() == []


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_with_full_trust_the_same_flood_does_harm(preset: str) -> None:
    clean, _ = live(preset, "full")
    flooded, _ = live(preset, "full", lies=8)

    assert flooded.own != clean.own
    assert flooded.honest != clean.honest


@pytest.mark.parametrize("preset", ["auto", "cos"])
def test_who_lies_harms_himself(preset: str) -> None:
    scale = {"explore": {"scale": 3.0, "power": 0.0}} if preset == "cos" else {}
    apart, _ = live(preset, "isolated", lies=8, **scale)
    pooled, _ = live(preset, "full", lies=8, **scale)

    assert apart.good_for_honest > 0.7
    assert apart.good_for_liar < 0.1
    assert pooled.good_for_honest < 0.1


@pytest.mark.parametrize("trust", ["isolated", "robust"])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_site_that_is_restarted_serves_as_if_it_had_not_been(preset: str, trust: Trust) -> None:
    whole, _ = live(preset, trust, lies=2)
    broken, _ = live(preset, trust, lies=2, restart_every=7)

    assert broken == whole


def test_labels_under_way_are_the_same_after_a_restart() -> None:
    whole, _ = live("cos", "isolated", lies=2, pending=True)
    broken, _ = live("cos", "isolated", lies=2, restart_every=5, pending=True)

    assert broken == whole


@pytest.mark.parametrize("trust", ["isolated", "robust"])
def test_one_liar_in_five_moves_no_median(trust: Trust) -> None:
    """Even the liar is served well by the median; kept apart, it gets what it asks for."""
    good = virtual.run(among_five(trust))

    assert min(good["honest"], good["east"], good["west"]) >= 0.9
    if trust == "robust":
        assert good["liar"] == 1.0
    else:
        assert good["liar"] <= 0.1


async def among_five(trust: Trust) -> dict[str, float]:
    """Return how often each was served by the good function at last; own clients are the fifth."""
    sources = ["honest", "liar", "east", "west"]
    world = world_of(config(explore={"scale": 30.0, "power": 0.0}))
    world.trust["site"] = dict.fromkeys(sources, trust)
    world.crash("site")
    world.boot("site")
    chance, node = random.Random(4), world.nodes["site"]  # noqa: S311
    good = dict.fromkeys(sources, 0)
    for slot in range(1, 401):
        instance = instance_of(chance)
        ticket = await node.predict(instance, (0.5,))
        await node.learn(ticket.id, instance[0])
        for source in sources:
            instance = instance_of(chance)
            helped = await node.assist(Request(str(slot), "g1:0", slot, instance), source=source)
            truth = lie(helped) if source == "liar" else instance[0]
            await node.learn(str(slot), truth, source=source)
            good[source] += slot > 300 and helped.function == "good"
    return {source: count / 100 for source, count in good.items()}


def lie(helped: Help) -> int:
    """Return the label that makes the bad function look best."""
    return helped.label if helped.function == "bad" else 1 - helped.label


counts = st.tuples(st.integers(FEWEST_LABELS - 1, 30), st.integers(0, 19))
SOURCES = st.dictionaries(st.sampled_from("abcdefg"), st.tuples(counts, counts, counts))


@given(sources=SOURCES)
def test_the_median_is_that_of_the_sources_with_enough_labels(sources: Any) -> None:
    medians = Medians(["f", "g", "h"])
    for source, records in sources.items():
        for function, counted in zip("fgh", records, strict=True):
            medians.add("cell", source, function, counted)
            medians.add("another", source, function, (50, 50))

    heard = [one for one in sources.values() if min(labels for labels, _ in one) >= FEWEST_LABELS]
    expected = None
    if len(heard) >= 3:
        values = [
            statistics.median(right / labels for labels, right in column)
            for column in zip(*heard, strict=True)
        ]
        expected = min(range(3), key=lambda k: (-values[k], k))
    assert medians.best("cell") == expected


POLICIES: list[dict[str, Any]] = [
    {"preset": "cos", "slices": 2},
    {"preset": "cos", "slices": 2, "pending": True, "label-wait": 9},
    {"preset": "cos", "slices": 2, "reading": {"count": "labelled"}},
    {"preset": "cos", "slices": 2, "forget": {"window": 3}},
    {"preset": "dcza", "split-power": 1.0},
    {"preset": "dcza", "split-power": 1.0, "inherit": True},
    {"preset": "multi-resolution", "finest-level": 2},
    {"preset": "auto", "horizon": 300},
    {"preset": "cos-ce", "horizon": 300},
]


@pytest.mark.parametrize("settings", POLICIES, ids=str)
def test_a_desk_has_what_the_site_would_have_were_its_source_the_only_one(
    settings: dict[str, Any],
) -> None:
    """With one function there is nothing to decide, and the events of both lives are the same."""
    apart, pooled = (play(settings, trust) for trust in ("isolated", "full"))

    ours, theirs = apart.learners["south"], pooled.learner
    assert rows(ours) == rows(theirs)
    assert rows(apart.learner) != rows(theirs)
    assert len(rows(ours)) > 1


@pytest.mark.parametrize("settings", POLICIES, ids=str)
def test_desks_are_the_same_after_many_restarts(settings: dict[str, Any]) -> None:
    whole = play(settings, "isolated").learners
    broken = play(settings, "isolated", restart_every=5).learners

    assert {name: rows(learner) for name, learner in broken.items()} == {
        name: rows(learner) for name, learner in whole.items()
    }


@pytest.mark.parametrize("settings", [{"preset": "dcza", "split-power": 1.0}], ids=str)
def test_a_peer_far_ahead_of_time_has_own_labels_all_the_same(settings: dict[str, Any]) -> None:
    near, far = (play(settings, "isolated", ahead=ahead) for ahead in (0, 10**6))

    assert rows(far.learners["south"]) == rows(near.learners["south"])


def open_book(settings: dict[str, Any], trust: Trust, store: Store) -> Book:
    policy = resolve(settings_from(settings), dimension=1, most_functions=1)
    learner = Learner(
        "site", functions=("f",), peers=(), costs=(0.0,), policy=policy, remembers=True
    )
    return Book(learner, store.load("site", shape_of(learner)), {"south": trust})


def play(
    settings: dict[str, Any], trust: Trust, *, restart_every: int = 1000, ahead: int = 0
) -> Book:
    """Own instances and those of a peer in turn; some are taken back, some get no label in time."""
    chance, store = random.Random(8), Store.memory()  # noqa: S311
    book = open_book(settings, trust, store)
    level = int(len(next(iter(book.learner.policies.values())).partition.levels(1)) > 1)
    waiting: deque[tuple[str, str]] = deque()
    for slot in range(1, 200):
        if slot % restart_every == 0:
            book = open_book(settings, trust, store)
        if chance.random() < 0.5:
            source, cell = "south", Cell(level, (chance.randrange(2),))
            decision = book.assist(source, cell, slot + ahead)
        else:
            source = ""
            decision = book.decide((chance.random(),), slot)
        if chance.random() < 0.1:
            book.abandon(decision, source)
        else:
            book.accept(decision, Question(source, str(slot)), Reply(1, 1, "f"))
            if chance.random() < 0.8:
                waiting.append((source, str(slot)))
        while len(waiting) > 3:
            ticket = book.find(*waiting.popleft())
            assert ticket is not None
            book.settle(ticket, chance.randrange(2))
        batch = book.take()
        assert batch is not None
        store.commit(batch)
        book.is_written(batch)
    return book


def rows(learner: Learner) -> dict[Cell, tuple[list[int], list[Any]]]:
    """Return counters and labels by cell; since when it is known each learner may say itself."""
    return {
        table.cell(row): (table.counters(row)[1:], table.known(row))
        for table in learner.tables.values()
        for row in range(len(table))
    }


def test_a_peer_that_is_ahead_of_time_makes_only_its_own_tickets_expire() -> None:
    async def main() -> None:
        node = world_of(config(**{"label-wait": 10})).nodes["site"]
        own = await node.predict((1, 1, 1), (0.5,))
        for source in ("honest", "liar"):
            await node.assist(Request("a", "g1:0", 1, (1, 1, 1)), source=source)

        await node.assist(Request("b", "g1:0", 2**53, (1, 1, 1)), source="liar")

        assert node.learner.slot == 1
        assert (await node.learn(own.id, 1)).is_new
        assert (await node.learn("a", 1, source="honest")).is_new
        with pytest.raises(LateLabel):
            await node.learn("a", 1, source="liar")

    virtual.run(main())


@pytest.mark.parametrize("trust", ["full", "isolated", "robust"])
def test_a_peer_that_asks_for_endless_cells_is_told_to_stop(trust: Trust) -> None:
    async def main() -> None:
        setup = config("dcza", **{"max-cells": 40})
        world = world_of(setup, trust)
        world.limits = Limits(cells=20)
        world.crash("site")
        world.boot("site")
        node = world.nodes["site"]

        for k in range(20):
            await node.report(f"z9:{k}", 1, source="liar")
        with pytest.raises(LimitError, match="'liar' has spoken of 20 cells"):
            await node.report("z9:20", 1, source="liar")
        await node.report("z9:7", 1, source="liar")
        await node.report("z9:500", 1, source="honest")
        tickets = [await node.predict((1, 1, 1), (0.7,)) for _ in range(20)]

        assert len({ticket.cell for ticket in tickets}) > 1

    virtual.run(main())


def test_a_peer_cannot_take_the_room_of_clients() -> None:
    async def main() -> None:
        world = world_of(config())
        world.limits = Limits(tickets=3, peer_tickets=2)
        world.crash("site")
        world.boot("site")
        node = world.nodes["site"]

        for k in range(2):
            await node.assist(Request(str(k), "g1:0", 1, (1, 1, 1)), source="liar")
        with pytest.raises(LimitError, match="2 tickets are held"):
            await node.assist(Request("2", "g1:0", 1, (1, 1, 1)), source="liar")
        await node.assist(Request("a", "g1:0", 1, (1, 1, 1)), source="honest")
        for k in range(3):
            await node.predict((1, 1, 1), (0.5,), question=Question(f"client/{k}", str(k)))
        with pytest.raises(LimitError, match="3 tickets are held"):
            await node.predict((1, 1, 1), (0.5,))

    virtual.run(main())


def test_a_peer_that_shows_the_cell_only_hears_of_own_labels_and_its_own() -> None:
    async def main() -> list[Any]:
        setup = config()
        setup["learner"][0]["context-peers"] = {"site": 0.0}
        node = world_of(setup).nodes["site"]
        first = await node.predict((1, 1, 1), (0.5,))
        await node.learn(first.id, "own")
        for k in range(5):
            await node.assist(Request(str(k), "g1:0", 1, NO_INSTANCE), source="liar")
            await node.learn(str(k), "false", source="liar")
        asked = Request("x", "g1:0", 1, NO_INSTANCE)
        sources = ("honest", "liar")
        labels = [(await node.assist(asked, source=source)).label for source in sources]
        told = [
            await node.estimate("g1:0", 1, source=source, is_by_context=True) for source in sources
        ]
        return [labels, told]

    assert virtual.run(main()) == [["own", "false"], [(1.0, 1), (5 / 6, 6)]]


def test_clients_with_a_name_are_own_and_have_tickets_of_their_own() -> None:
    async def main() -> None:
        node = world_of(config()).nodes["site"]
        ticket = await node.predict((1, 1, 1), (0.5,), question=Question("client/a", "x"))

        for other in ("client/b", "", "honest"):
            with pytest.raises(UnknownTicket):
                await node.learn("x", 1, source=other)
        assert (await node.learn("x", 1, source="client/a")).is_new
        assert ticket.desk == ""

    virtual.run(main())
    assert [is_own(one) for one in ("", "client/north", "north")] == [True, True, False]


def test_a_peer_that_is_trusted_later_can_still_label_what_it_asked_before() -> None:
    async def main() -> None:
        world = world_of(config())
        site = world.nodes["site"]
        await site.assist(Request("a", "g1:0", 1, (1, 1, 1)), source="honest")
        world.trust["site"]["honest"] = "full"
        world.crash("site")
        world.boot("site")
        site = world.nodes["site"]

        assert (await site.learn("a", 1, source="honest")).is_new
        await site.assist(Request("b", "g1:0", 2, (1, 1, 1)), source="honest")

        found = [world.stores["site"].find("honest", one) for one in "ab"]
        assert [one.desk for one in found if one] == ["honest", ""]

    virtual.run(main())
