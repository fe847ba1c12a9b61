"""Labels of an isolated peer change nothing for any other source, however many it sends."""

import random
import statistics
from collections import Counter, deque
from typing import Any, NamedTuple

import pytest

from covey.bandit.policies import PRESETS
from covey.errors import LateLabel, LimitError, UnknownTicket
from covey.node.functions import Limits
from covey.node.node import Node, Question
from covey.site.requests import NO_INSTANCE, AskRow, Assistance, is_own
from covey.site.trust import Trust
from covey.store.store import Store
from support import virtual
from support.effort import effort
from support.presets import fitting
from support.snapshots import snapshot_of
from support.virtual import World

SLOTS = 90
SHORT = effort(45, long=90)
CELLS = {
    "auto": ["z8:0", "z8:1", "z8:64", "z8:192"],
    "dcza": ["z0:0", "z1:0", "z1:1", "z2:1"],
}

WIDE = {"dimension": 2}
CELLS_OF_BOTH = {f"{space}/g4:{k}" for space in "ab" for k in range(4)}


def config(preset: str = "cos", **more: Any) -> dict[str, Any]:
    """A site with a good and a bad function, which others may ask, by the cell only too."""
    policy = fitting({"preset": preset, "slices": 1}) | more
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


class Answers(NamedTuple):
    """The answers of the site, by source."""

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

    def __init__(self, world: World, *, lies: int, restart_every: int, slots: int) -> None:
        self.world, self.lies, self.restart_every = world, lies, restart_every
        self.slots = slots
        self.cells = CELLS.get(world.setup.settings.preset, ["g1:0"])
        self.answers = Answers([], [], [])
        self.due: deque[tuple[str, str, int]] = deque()  # labels that are pending

    async def run(self) -> Answers:
        # A random source each, so that more requests of one change nothing for the others.
        chances = {name: random.Random(name) for name in ("own", "honest", "liar")}  # noqa: S311
        for slot in range(1, self.slots + 1):
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
        return self.answers

    async def _predict(self, node: Node, chance: random.Random, slot: int) -> None:
        instance = instance_of(chance)
        asked = Question("client/her" if slot % 2 else "", str(slot))
        request = await node.answer([instance], [(chance.random(),)], question=asked)
        self.due.append((asked.source, asked.id, instance[0]))
        group = request.group(0)
        self.answers.own.append((group.phase, group.arm, group.cell, request.slot))

    async def _serve(
        self, node: Node, chance: random.Random, source: str, id_: str, slot: int
    ) -> None:
        instance = instance_of(chance)
        cell = self.cells[slot % len(self.cells)]
        report = await node.for_peers.report(cell, slot, source=source)
        estimate = await node.for_peers.report(cell, slot, "accuracy", source=source)
        (answer,) = await node.for_peers.assist([AskRow(id_, cell, slot, instance)], source=source)
        if source == "honest":
            self.due.append((source, id_, instance[0]))
        else:
            await node.learn(id_, lie(answer), source=source)
        given = (answer.function, answer.label, report, estimate)
        getattr(self.answers, source).append(given)


def instance_of(chance: random.Random) -> tuple[int, int, int]:
    truth = chance.randrange(2)
    bad, good = (truth if chance.random() < right else 1 - truth for right in (0.55, 0.95))
    return truth, bad, good


def live(
    preset: str,
    trust: Trust,
    *,
    lies: int = 0,
    restart_every: int = 1000,
    slots: int = SLOTS,
    **more: Any,
) -> tuple[Answers, Store]:
    async def main() -> tuple[Answers, Store]:
        world = world_of(config(preset, **more), trust)
        life = Life(world, lies=lies, restart_every=restart_every, slots=slots)
        return await life.run(), world.stores["site"]

    return virtual.run(main())


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_flood_of_false_labels_changes_nothing_for_other_sources(preset: str) -> None:
    clean, _ = live(preset, "isolated", slots=SHORT)
    flooded, store = live(preset, "isolated", lies=8, slots=SHORT)

    assert len(flooded.liar) == 8 * SHORT
    assert flooded.own == clean.own
    assert flooded.honest == clean.honest
    assert store.check() == []


@pytest.mark.parametrize("trust", ["isolated", "earned"])
@pytest.mark.parametrize("preset", ["auto", "cos"])
def test_a_source_with_false_labels_harms_itself_only(preset: str, trust: Trust) -> None:
    scale = {"explore": {"scale": 3.0, "power": 0.0}} if preset == "cos" else {}
    # With beliefs over all cells, the other labels tell the liar apart after 75 slots.
    slots = 135 if (preset, trust) == ("auto", "earned") else SLOTS
    apart, _ = live(preset, trust, lies=8, slots=slots, **scale)
    pooled, _ = live(preset, "full", lies=8, **scale)

    assert apart.good_for_honest > 0.7
    assert apart.good_for_liar < 0.1
    assert pooled.good_for_honest < 0.1


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("trust", ["isolated", "earned"])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_restarted_site_decides_and_serves_as_one_that_was_not(
    preset: str, trust: Trust, pending: bool
) -> None:
    whole, _ = live(preset, trust, lies=2, slots=SHORT, pending=pending)
    broken, _ = live(preset, trust, lies=2, slots=SHORT, restart_every=7, pending=pending)

    assert broken == whole


def lie(answer: Assistance) -> Any:
    """Return the label that makes the bad function look best."""
    label: Any = answer.label
    return label if answer.function == "bad" else 1 - label


class Counted:
    """A table of the kernel that counts its calls."""

    def __init__(self, table: Any, calls: Counter[str]) -> None:
        self._table, self._calls = table, calls

    def __len__(self) -> int:
        self._calls["len"] += 1
        return len(self._table)

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._table, name)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_own_rows_cost_the_same_kernel_calls_with_and_without_isolated_peers(
    preset: str, pending: bool
) -> None:
    none, many = (virtual.run(own_calls(preset, peers, pending)) for peers in (0, 16))

    assert none == many
    assert none.total() > 100


async def own_calls(preset: str, peers: int, pending: bool) -> Counter[str]:
    """Return the calls of the kernel for own rows and labels, after peers have asked."""
    world = world_of(config(preset, pending=pending))
    node, chance = world.nodes["site"], random.Random(6)  # noqa: S311
    await own_rows(node, chance, 30)
    cell = CELLS.get(preset, ["g1:0"])[0]
    for k in range(peers):
        rows = [AskRow(str(row), cell, row + 1, instance_of(chance)) for row in range(4)]
        await node.for_peers.assist(rows, source=f"peer{k}")
        await node.for_peers.take_labels([("0", 1), ("2", 0)], source=f"peer{k}")
    calls, learner = Counter[str](), node.learner
    learner.tables[""] = learner._table = Counted(learner.tables[""], calls)  # type: ignore[assignment]
    for overlay in node._state.sources._overlays.values():
        overlay.tables[""] = Counted(overlay.tables[""], calls)  # type: ignore[assignment]
    assert len(node._state.sources._overlays) == peers
    await own_rows(node, random.Random(7), 30)  # noqa: S311
    return calls


async def own_rows(node: Node, chance: random.Random, rows: int) -> None:
    for _ in range(rows):
        instance = instance_of(chance)
        answer = await node.predict(instance, (chance.random(),))
        await node.learn(answer.ticket, instance[0])


@virtual.timed
async def test_a_peer_that_is_ahead_of_time_expires_its_own_requests_only() -> None:
    node = world_of(config(**{"label-wait": 10})).nodes["site"]
    own = await node.predict((1, 1, 1), (0.5,))
    for source in ("honest", "liar"):
        await node.for_peers.assist([AskRow("a", "g1:0", 1, (1, 1, 1))], source=source)

    await node.for_peers.assist([AskRow("b", "g1:0", 2**53, (1, 1, 1))], source="liar")

    assert node.learner.slot == 1
    assert (await node.learn(own.ticket, 1)).is_new
    assert (await node.learn("a", 1, source="honest")).is_new
    with pytest.raises(LateLabel):
        await node.learn("a", 1, source="liar")


@pytest.mark.parametrize("trust", ["full", "isolated"])
@virtual.timed
async def test_a_peer_may_open_a_limited_number_of_cells(trust: Trust) -> None:
    setup = config("dcza", **{"max-cells": 40})
    world = world_of(setup, trust)
    world.limits = Limits(cells=20)
    world.crash("site")
    world.boot("site")
    node = world.nodes["site"]

    for k in range(20):
        await node.for_peers.report(f"z9:{k}", 1, source="liar")
    with pytest.raises(LimitError, match="'liar' has opened 20 cells"):
        await node.for_peers.report("z9:20", 1, source="liar")
    await node.for_peers.report("z9:7", 1, source="liar")
    await node.for_peers.report("z9:500", 1, source="honest")
    requests = [await node.answer([(1, 1, 1)], [(0.7,)]) for _ in range(20)]

    assert len({request.group(0).cell for request in requests}) > 1


@pytest.mark.parametrize("trust", ["full", "isolated"])
@virtual.timed
async def test_combinations_of_candidate_cells_are_not_counted_as_cells(trust: Trust) -> None:
    setup = config("cos", slices=4) | {"data": {"candidates": ["a", "b"]}}
    world = World(setup, dict.fromkeys(["bad", "good", "of-honest", "of-liar"], int), **WIDE)
    world.trust["site"] = {"honest": trust, "liar": trust}
    world.limits = Limits(cells=8)
    world.crash("site")
    world.boot("site")
    for k in range(16):
        cell = f"a|b/g4:{k // 4}|g4:{k % 4}@0"
        await world.nodes["site"].for_peers.assist([AskRow(str(k), cell, 1, 1)], source="liar")
    before = snapshot_of(world.nodes["site"].learner)
    world.crash("site")
    world.boot("site")
    for k in range(16):
        await world.nodes["site"].learn(str(k), 1, source="liar")
    after = snapshot_of(world.nodes["site"].learner)

    assert {name for name, _ in before.cells} <= CELLS_OF_BOTH
    labels = {"full": 16, "isolated": 0}[trust]
    assert sum(sum(counters[3:]) for _, counters in after.cells if "a/" in _) >= labels


@virtual.timed
async def test_a_peer_that_shows_the_cell_only_is_answered_from_own_labels_and_its_own() -> None:
    setup = config()
    setup["learner"][0]["context-peers"] = {"site": 0.0}
    node = world_of(setup).nodes["site"]
    first = await node.predict((1, 1, 1), (0.5,))
    await node.learn(first.ticket, 7)
    for k in range(5):
        await node.for_peers.assist([AskRow(str(k), "g1:0", 1, NO_INSTANCE)], source="liar")
        await node.learn(str(k), 9, source="liar")
    asked = [AskRow("x", "g1:0", 1, NO_INSTANCE)]
    sources = ("honest", "liar")
    answers = [await node.for_peers.assist(asked, source=source) for source in sources]
    estimates = [
        (await node.for_peers.report("g1:0", 1, "seen", source=source))[:2] for source in sources
    ]

    assert [[one.label for (one,) in answers], estimates] == [[7, 9], [(1, 1.0), (6, 5 / 6)]]


@virtual.timed
async def test_clients_with_a_name_are_own_and_have_ids_of_their_own() -> None:
    node = world_of(config()).nodes["site"]
    await node.predict((1, 1, 1), (0.5,), question=Question("client/a", "x"))

    for other in ("client/b", "", "honest"):
        with pytest.raises(UnknownTicket):
            await node.learn("x", 1, source=other)
    assert (await node.learn("x", 1, source="client/a")).is_new
    assert node.counters.labels.total() == 1
    assert [is_own(one) for one in ("", "client/north", "north")] == [True, True, False]


@virtual.timed
async def test_a_peer_that_is_trusted_later_can_still_label_what_it_asked_before() -> None:
    world = world_of(config())
    site = world.nodes["site"]
    await site.for_peers.assist([AskRow("a", "g1:0", 1, (1, 1, 1))], source="honest")
    world.trust["site"]["honest"] = "full"
    world.crash("site")
    world.boot("site")
    site = world.nodes["site"]

    assert (await site.learn("a", 1, source="honest")).is_new
    await site.for_peers.assist([AskRow("b", "g1:0", 2, (1, 1, 1))], source="honest")

    assert [site.learner.table.record(0, k) for k in range(2)] == [(1, 1), (0, 0)]
