"""Labels of an isolated peer change nothing for any other source, however many it sends."""

import contextlib
import random
import statistics
from collections import Counter, deque
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_state import Site, everything, overlays

from covey.bandit.policies import PRESETS, resolve, settings_from
from covey.errors import FunctionError, LateLabel, LimitError, UnknownTicket
from covey.kernel.rules import Cell
from covey.node.medians import FEWEST_LABELS, RobustMedians
from covey.node.node import Node, Question
from covey.node.requests import NO_INSTANCE, AskRow, Assistance, is_own
from covey.node.store import Store
from covey.node.trust import Trust
from covey.node.workers import Limits
from support import virtual
from support.effort import effort
from support.virtual import World

SLOTS = 90
SHORT = effort(45, plain=30, long=90)
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
        self.cells = ["g1:0"]
        if world.setup.settings.preset in LAYERED:
            self.cells = ["z0:0", "z1:0", "z1:1", "z2:1"]
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
        report = await node.report(cell, slot, source=source)
        estimate = await node.estimate(cell, slot, source=source, is_by_context=False)
        (answer,) = await node.assist([AskRow(id_, cell, slot, instance)], source=source)
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
    restart_every: int = SLOTS + 1,
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


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_with_full_trust_the_same_flood_does_harm(preset: str) -> None:
    clean, _ = live(preset, "full")
    flooded, _ = live(preset, "full", lies=8)

    assert flooded.own != clean.own
    assert flooded.honest != clean.honest


@pytest.mark.parametrize("trust", ["isolated", "earned"])
@pytest.mark.parametrize("preset", ["auto", "cos"])
def test_a_source_with_false_labels_harms_itself_only(preset: str, trust: Trust) -> None:
    scale = {"explore": {"scale": 3.0, "power": 0.0}} if preset == "cos" else {}
    apart, _ = live(preset, trust, lies=8, **scale)
    pooled, _ = live(preset, "full", lies=8, **scale)

    assert apart.good_for_honest > 0.7
    assert apart.good_for_liar < 0.1
    assert pooled.good_for_honest < 0.1


@pytest.mark.parametrize("trust", ["isolated", "earned", "robust"])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_restarted_site_decides_and_serves_as_one_that_was_not(preset: str, trust: Trust) -> None:
    whole, _ = live(preset, trust, lies=2, slots=SHORT)
    broken, _ = live(preset, trust, lies=2, slots=SHORT, restart_every=7)

    assert broken == whole


@pytest.mark.parametrize("trust", ["isolated", "earned"])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_pending_labels_of_all_sources_are_the_same_after_a_restart(
    preset: str, trust: Trust
) -> None:
    whole, _ = live(preset, trust, lies=2, slots=SHORT, pending=True)
    broken, _ = live(preset, trust, lies=2, slots=SHORT, restart_every=5, pending=True)

    assert broken == whole


@pytest.mark.parametrize("trust", ["isolated", "robust"])
def test_one_liar_in_five_changes_no_median(trust: Trust) -> None:
    """Even the liar is served well by the median; isolated, it gets what its labels ask for."""
    good = virtual.run(among_five(trust))

    assert min(good["honest"], good["east"], good["west"]) >= 0.9
    if trust == "robust":
        assert good["liar"] == 1.0
    else:
        assert good["liar"] <= 0.1


async def among_five(trust: Trust) -> dict[str, float]:
    """Return how often each source got the good function in the end; own clients are the fifth."""
    sources = ["honest", "liar", "east", "west"]
    world = world_of(config(explore={"scale": 30.0, "power": 0.0}))
    world.trust["site"] = dict.fromkeys(sources, trust)
    world.crash("site")
    world.boot("site")
    chance, node = random.Random(4), world.nodes["site"]  # noqa: S311
    good = dict.fromkeys(sources, 0)
    for slot in range(1, 401):
        instance = instance_of(chance)
        own = await node.predict(instance, (0.5,))
        await node.learn(own.ticket, instance[0])
        for source in sources:
            instance = instance_of(chance)
            row = AskRow(str(slot), "g1:0", slot, instance)
            (answer,) = await node.assist([row], source=source)
            truth = lie(answer) if source == "liar" else instance[0]
            await node.learn(str(slot), truth, source=source)
            good[source] += slot > 300 and answer.function == "good"
    return {source: count / 100 for source, count in good.items()}


def lie(answer: Assistance) -> Any:
    """Return the label that makes the bad function look best."""
    label: Any = answer.label
    return label if answer.function == "bad" else 1 - label


counts = st.tuples(st.integers(FEWEST_LABELS - 1, 30), st.integers(0, 19))
SOURCES = st.dictionaries(st.sampled_from("abcdefg"), st.tuples(counts, counts, counts))


@given(sources=SOURCES)
def test_the_median_is_that_of_the_sources_with_enough_labels(sources: Any) -> None:
    medians = RobustMedians(["f", "g", "h"])
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


# Elsewhere a cell that the site comes to after the source begins anew, without earlier labels.
ADDED_UP = [one for one in POLICIES if one["preset"] != "dcza" or "inherit" in one]


@pytest.mark.parametrize("settings", ADDED_UP, ids=str)
def test_own_statistics_and_those_of_a_source_add_up_to_those_of_a_pooled_source(
    settings: dict[str, Any],
) -> None:
    """With one function there is nothing to choose, so that both lives have the same events."""
    apart, pooled = (play(settings, trust) for trust in ("isolated", "full"))

    found, own = combined(apart), functions(apart.learner.tables[""])
    expected = functions(pooled.learner.tables[""])
    assert found == {cell: expected[cell] for cell in found}
    assert any(own[cell] != counted for cell, counted in found.items())
    assert len(found) > 1


@pytest.mark.parametrize("settings", POLICIES, ids=str)
def test_all_statistics_are_the_same_after_many_restarts(settings: dict[str, Any]) -> None:
    whole, broken = (play(settings, "isolated", restart_every=every) for every in (1000, 5))

    assert everything(broken) == everything(whole)


@pytest.mark.parametrize("settings", [{"preset": "dcza", "split-power": 1.0}], ids=str)
def test_a_source_far_ahead_of_time_is_served_from_own_labels_too(settings: dict[str, Any]) -> None:
    near, far = (play(settings, "isolated", ahead=ahead) for ahead in (0, 10**6))

    assert combined(far) == combined(near)


def play(
    settings: dict[str, Any], trust: Trust, *, restart_every: int = 1000, ahead: int = 0
) -> Site:
    """Own rows and those of a peer in turn; some fail, some get no label in time."""
    chance, store = random.Random(8), Store.memory()  # noqa: S311
    policy = resolve(settings_from(settings), dimension=1, most_functions=1)
    level = int(len(policy.partition.levels(1)) > 1)

    def opened() -> Site:
        return Site(policy, store, trust, functions=("f",), peers=())

    site, waiting = opened(), deque[tuple[str, str]]()
    for slot in range(1, 200):
        if slot % restart_every == 0:
            site = opened()
        source = "south" if chance.random() < 0.5 else ""
        cell, context = Cell(level, (chance.randrange(2),)), chance.random()
        instance = None if chance.random() < 0.1 else 1
        with contextlib.suppress(FunctionError):
            if source:
                site.assist([str(slot)], cell, slot + ahead, instance)
            else:
                site.answer(str(slot), context, instance=instance, slot=slot)
            if chance.random() < 0.8:
                waiting.append((source, str(slot)))
        while len(waiting) > 3:
            found = site.state.find(*waiting.popleft())
            assert found is not None
            site.learn(found[0], 0, chance.randrange(2))
        site.flush()
    return site


def counts(table: Any, row: int) -> list[int]:
    """Return the arrivals in a cell, and the labels and right answers of the only function."""
    _, arrivals, _, labels, right = table.counters(row)[:5]
    return [arrivals, labels, right]


def functions(table: Any) -> dict[Cell, list[int]]:
    """Return the counts of each cell."""
    return {table.cell(row): counts(table, row) for row in range(len(table))}


def combined(site: Site) -> dict[Cell, list[int]]:
    """Return the same as the source is served from it: with own labels added."""
    table, own = overlays(site)["south"][""], site.learner.tables[""]
    found = {}
    for row in range(len(table)):
        table.combine(row, own, 1)
        found[table.cell(row)] = counts(table, row)
        table.combine(row, own, -1)
    return found


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
    cell = "z0:0" if preset in LAYERED else "g1:0"
    for k in range(peers):
        rows = [AskRow(str(row), cell, row + 1, instance_of(chance)) for row in range(4)]
        await node.assist(rows, source=f"peer{k}")
        await node.take_labels([("0", 1), ("2", 0)], source=f"peer{k}")
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


def test_a_peer_that_is_ahead_of_time_expires_its_own_requests_only() -> None:
    async def main() -> None:
        node = world_of(config(**{"label-wait": 10})).nodes["site"]
        own = await node.predict((1, 1, 1), (0.5,))
        for source in ("honest", "liar"):
            await node.assist([AskRow("a", "g1:0", 1, (1, 1, 1))], source=source)

        await node.assist([AskRow("b", "g1:0", 2**53, (1, 1, 1))], source="liar")

        assert node.learner.slot == 1
        assert (await node.learn(own.ticket, 1)).is_new
        assert (await node.learn("a", 1, source="honest")).is_new
        with pytest.raises(LateLabel):
            await node.learn("a", 1, source="liar")

    virtual.run(main())


@pytest.mark.parametrize("trust", ["full", "isolated", "robust"])
def test_a_peer_may_open_a_limited_number_of_cells(trust: Trust) -> None:
    async def main() -> None:
        setup = config("dcza", **{"max-cells": 40})
        world = world_of(setup, trust)
        world.limits = Limits(cells=20)
        world.crash("site")
        world.boot("site")
        node = world.nodes["site"]

        for k in range(20):
            await node.report(f"z9:{k}", 1, source="liar")
        with pytest.raises(LimitError, match="'liar' has opened 20 cells"):
            await node.report("z9:20", 1, source="liar")
        await node.report("z9:7", 1, source="liar")
        await node.report("z9:500", 1, source="honest")
        requests = [await node.answer([(1, 1, 1)], [(0.7,)]) for _ in range(20)]

        assert len({request.group(0).cell for request in requests}) > 1

    virtual.run(main())


def test_rows_of_a_peer_do_not_use_up_the_limit_of_clients() -> None:
    async def main() -> None:
        world = world_of(config())
        world.limits = Limits(tickets=3, peer_tickets=2)
        world.crash("site")
        world.boot("site")
        node = world.nodes["site"]

        for k in range(2):
            await node.assist([AskRow(str(k), "g1:0", 1, (1, 1, 1))], source="liar")
        with pytest.raises(LimitError, match="2 rows are in memory"):
            await node.assist([AskRow("2", "g1:0", 1, (1, 1, 1))], source="liar")
        await node.assist([AskRow("a", "g1:0", 1, (1, 1, 1))], source="honest")
        for k in range(3):
            await node.predict((1, 1, 1), (0.5,), question=Question(f"client/{k}", str(k)))
        with pytest.raises(LimitError, match="3 rows are in memory"):
            await node.predict((1, 1, 1), (0.5,))

    virtual.run(main())


def test_a_peer_that_shows_the_cell_only_is_answered_from_own_labels_and_its_own() -> None:
    async def main() -> list[Any]:
        setup = config()
        setup["learner"][0]["context-peers"] = {"site": 0.0}
        node = world_of(setup).nodes["site"]
        first = await node.predict((1, 1, 1), (0.5,))
        await node.learn(first.ticket, "own")
        for k in range(5):
            await node.assist([AskRow(str(k), "g1:0", 1, NO_INSTANCE)], source="liar")
            await node.learn(str(k), "false", source="liar")
        asked = [AskRow("x", "g1:0", 1, NO_INSTANCE)]
        sources = ("honest", "liar")
        answers = [await node.assist(asked, source=source) for source in sources]
        estimates = [
            await node.estimate("g1:0", 1, source=source, is_by_context=True) for source in sources
        ]
        return [[one.label for (one,) in answers], estimates]

    assert virtual.run(main()) == [["own", "false"], [(1.0, 1), (5 / 6, 6)]]


def test_clients_with_a_name_are_own_and_have_ids_of_their_own() -> None:
    async def main() -> None:
        node = world_of(config()).nodes["site"]
        await node.predict((1, 1, 1), (0.5,), question=Question("client/a", "x"))

        for other in ("client/b", "", "honest"):
            with pytest.raises(UnknownTicket):
                await node.learn("x", 1, source=other)
        assert (await node.learn("x", 1, source="client/a")).is_new
        assert node.counters.labels.total() == 1

    virtual.run(main())
    assert [is_own(one) for one in ("", "client/north", "north")] == [True, True, False]


def test_a_peer_that_is_trusted_later_can_still_label_what_it_asked_before() -> None:
    async def main() -> None:
        world = world_of(config())
        site = world.nodes["site"]
        await site.assist([AskRow("a", "g1:0", 1, (1, 1, 1))], source="honest")
        world.trust["site"]["honest"] = "full"
        world.crash("site")
        world.boot("site")
        site = world.nodes["site"]

        assert (await site.learn("a", 1, source="honest")).is_new
        await site.assist([AskRow("b", "g1:0", 2, (1, 1, 1))], source="honest")

        assert [site.learner.records(0)[k] for k in range(2)] == [(1, 1), (0, 0)]

    virtual.run(main())
