"""A site with another configuration keeps what its other arms have learnt, and loses no label."""

import random
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from covey.bandit.learner import UNKNOWN
from covey.config import load
from covey.errors import StoreError
from covey.functions.function import Function
from covey.node.node import Node
from covey.site.requests import DETACHED, Arm, AskRow
from covey.site.status import Counters
from support import virtual
from support.changes import ChangingWorld, Known, known_of, live, recorded, site
from support.lives import GRID, POLICIES
from support.snapshots import snapshot_of

EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
BOTH_WAYS = pytest.mark.parametrize("is_restarted", [True, False], ids=["restarted", "running"])


def changed(
    policy: dict[str, Any], use: Callable[[ChangingWorld, Node], Awaitable[None]], **trust: Any
) -> None:
    """Run `use` with north after 120 rows, most of which have labels."""

    async def main() -> None:
        world = ChangingWorld(site(policy), {}, dimension=1, trust=trust.get("trust", "isolated"))
        world.waiting = await live(world.nodes["north"], 120, seed=5)
        await world.nodes["north"].drained()
        await use(world, world.nodes["north"])
        assert world.stores["north"].check() == []

    virtual.run(main())


def of_arms(known: Known, *arms: str) -> Known:
    return {key: value for key, value in known.items() if key[1] in arms}


@BOTH_WAYS
@EVERY_POLICY
def test_arms_that_stay_keep_their_counters_and_new_ones_have_none(
    policy: dict[str, Any], is_restarted: bool
) -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        before, labels = known_of(node), recorded(world.stores["north"])
        table = site(policy, functions=["x", "b", "a"])
        after = known_of(await world.become(table, is_restarted=is_restarted))

        assert of_arms(after, "a", "b", "south") == before
        assert all(not any(arm) for arm in of_arms(after, "x").values())
        assert recorded(world.stores["north"]) == labels

    changed(policy, use)


@BOTH_WAYS
@EVERY_POLICY
def test_an_arm_that_comes_back_continues_with_what_it_had_learnt(
    policy: dict[str, Any], is_restarted: bool
) -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        before = known_of(node)
        less = site(policy, functions=["b"], peers={})
        without = await world.become(less, is_restarted=is_restarted)
        assert known_of(without) == of_arms(before, "b")
        after = known_of(await world.become(site(policy), is_restarted=is_restarted))

        assert [one for one in after if after[one][:4] != before[one][:4]] == []

    changed(policy, use)


@BOTH_WAYS
@EVERY_POLICY
def test_open_tickets_of_retired_arms_take_their_labels(
    policy: dict[str, Any], is_restarted: bool
) -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        before = recorded(world.stores["north"])
        less = site(policy, functions=["b"], peers={})
        node = await world.become(less, is_restarted=is_restarted)
        known, delivered = known_of(node), world.counts["messages"]
        arms = {}
        for id_ in world.waiting:
            request, _ = await node._known.locate("", id_)
            arms[id_] = request.group(0)
            assert (await node.learn(id_, 1)).is_new
        await node.drained()
        after = recorded(world.stores["north"])

        counted = [group for group in arms.values() if group.is_counted]
        for arm in ("a", "b", "south"):
            more = sum(group.arm == arm for group in counted)
            assert after.get(arm, (0, 0))[0] - before.get(arm, (0, 0))[0] == more
        assert {group.arm for group in counted} - {"b"} != set()
        assert all((group.code == DETACHED) == (group.arm != "b") for group in arms.values())
        if all(group.arm != "b" for group in arms.values()):
            assert known_of(node) == known
        asked = sum(group.peer == "south" for group in arms.values())
        assert world.counts["messages"] - delivered >= min(asked, 1)

    changed(policy, use)


@BOTH_WAYS
def test_a_new_version_begins_anew_and_an_old_one_returns_with_its_record(
    is_restarted: bool,
) -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        first = known_of(node)
        node = await world.become(site(GRID), is_restarted=is_restarted, a=("2" * 64, 0.0))
        second = known_of(node)
        assert of_arms(second, "b", "south") == of_arms(first, "b", "south")
        assert all(not any(arm) for arm in of_arms(second, "a@222222222222").values())
        waiting = await live(node, 60, seed=6)
        labels = recorded(world.stores["north"])
        assert labels["a@222222222222"][0] > 0
        node = await world.become(site(GRID), is_restarted=is_restarted, a=("", 0.0))
        back = known_of(node)
        for id_ in waiting:
            await node.learn(id_, 0)

        assert all(back[key] == value for key, value in of_arms(first, "a").items())
        assert recorded(world.stores["north"])["a"][0] >= labels["a"][0]
        state = {arm.name: arm for arm in node.state().arms}
        assert state["a"].version == ""

    changed(GRID, use)


@BOTH_WAYS
def test_a_new_version_carries_a_share_if_the_file_says_so(is_restarted: bool) -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        before = known_of(node)
        node = await world.become(site(GRID), is_restarted=is_restarted, a=("2", 0.5))
        after = known_of(node)

        for (cell, arm), counters in of_arms(before, "a").items():
            assert after[cell, f"{arm}@2"][:2] == [counter // 2 for counter in counters[:2]]
        assert sum(one[0] for one in of_arms(after, "a@2").values()) > 0
        assert "a@2" not in recorded(world.stores["north"])  # these are no labels of its own

    changed(GRID, use)


@BOTH_WAYS
@pytest.mark.parametrize("name", [one for one in POLICIES if one not in ("grid", "slow grid")])
def test_another_preset_or_other_cells_count_the_stored_labels_again(
    name: str, is_restarted: bool
) -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        labels = recorded(world.stores["north"])
        table = site({**POLICIES[name], **({"slices": 4} if "slices" in POLICIES[name] else {})})
        node = await world.become(table, is_restarted=is_restarted)
        own = known_of(node)

        assert recorded(world.stores["north"]) == labels
        assert node.plan.counted == node.plan.labels == sum(one for one, _ in labels.values())
        assert sum(one[0] for (_, arm), one in own.items() if arm == "b") >= labels["b"][0]
        for id_ in world.waiting:
            assert (await node.learn(id_, 1)).is_new
        await live(node, 40, seed=8)

    changed(GRID, use)


def test_labels_of_a_peer_stay_where_it_names_the_same_cells() -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        cells = ["g2:0", "g2:1"]
        for k in range(30):
            await node.for_peers.assist([AskRow(f"s{k}", cells[k % 2], 200 + k, k)], source="south")
            if k % 3:
                await node.for_peers.take_labels([(f"s{k}", k % 2)], source="south")
        labels = recorded(world.stores["north"])
        node = await world.become(site(GRID, functions=["b", "c"]), is_restarted=False)
        assert (
            await node.for_peers.take_labels([("s0", 1), ("s3", 1)], source="south")
            == ["taken"] * 2
        )
        node = await world.become(site({**GRID, "slices": 4}), is_restarted=False)
        assert await node.for_peers.take_labels([("s6", 1), ("s6", 1)], source="south") == [
            "taken",
            "repeated",
        ]

        total = sum(one for one, _ in recorded(world.stores["north"]).values())
        assert total == sum(one for one, _ in labels.values()) + 3
        assert node.plan.counted < node.plan.labels  # those of the peer name cells of two slices

    changed(GRID, use, trust="full")
    changed(GRID, use, trust="isolated")


@BOTH_WAYS
@virtual.timed
async def test_a_site_of_several_contexts_takes_labels_of_open_tickets_after_each_change(
    is_restarted: bool,
) -> None:
    """Rows of candidates are not stored: they are found again by the cells of the tickets."""

    def several(**north: Any) -> dict[str, Any]:
        table = site(GRID, **north) | {"data": {"candidates": ["x", "y"]}}
        for learner in table["learner"]:
            learner.pop("context-peers", None)
        return table

    world, chance = ChangingWorld(several(), {}, dimension=2), random.Random(5)  # noqa: S311
    node, waiting = world.nodes["north"], list[str]()
    for functions in (["a", "b"], ["c", "b", "a"], ["b", "a"]):
        node = await world.become(several(functions=functions), is_restarted=is_restarted)
        for id_ in waiting[::2]:
            assert (await node.learn(id_, 1)).is_new
        context = [(chance.random(), chance.random()) for _ in range(60)]
        waiting = [(await node.answer([7], [point])).id for point in context]
    cells = {name.rpartition("/")[0] for name, _ in snapshot_of(node.learner).cells}

    assert cells == {"x", "y"}
    assert world.stores["north"].check() == []


def test_a_request_in_the_store_is_answered_again_as_it_was_after_a_change() -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        request = await node.answer([7], [(0.3,)])
        node = await world.become(site(GRID, functions=["x"], peers={}), is_restarted=False)
        again, _ = await node._known.locate("", request.id)

        assert (again.answers, again.group(0).arm) == (request.answers, request.group(0).arm)
        assert again.truths == [UNKNOWN]

    changed(GRID, use)


def test_other_contexts_are_refused_and_the_running_node_continues() -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        before, world.dimension = known_of(node), 2
        with pytest.raises(StoreError, match="dimensions: 1 before, 2 now"):
            await world.become(site(GRID), is_restarted=False)
        node.start()
        assert known_of(node) == before
        await live(node, 20, seed=9)
        await node.drained()

    changed(GRID, use)


def test_a_change_is_written_whole_or_not_at_all() -> None:
    async def use(world: ChangingWorld, node: Node) -> None:
        before, store = known_of(node), world.stores["north"]
        arms = store.all(Arm)
        store._base.execute(
            "CREATE TRIGGER no BEFORE INSERT ON arms BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        with pytest.raises(StoreError, match="cannot be written"):
            await world.become(site(GRID, functions=["b"]), is_restarted=False)
        store._base.execute("DROP TRIGGER no")
        node.start()

        assert store.all(Arm) == arms
        assert known_of(node) == before
        for id_ in world.waiting:
            assert (await node.learn(id_, 1)).is_new
        node.stop()
        world.setup = load(site(GRID))
        world.boot("north")
        assert world.nodes["north"].plan.is_change is False

    changed(GRID, use)


@virtual.timed
async def test_a_label_after_a_change_trains_the_function_that_had_answered() -> None:
    class Teaching(ChangingWorld):
        taught: ClassVar[list[tuple[str, Any]]] = []

        def function(self, name: str, owner: str) -> Function:
            def teach(instance: Any, label: Any) -> None:
                self.taught.append((name, instance))

            return super().function(name, owner)._replace(teach=teach)

    world = Teaching(site(GRID, peers={}), {}, dimension=1)
    node = world.nodes["north"]
    requests = [await node.answer([k], [(0.3,)]) for k in range(6)]
    arms = [request.group(0).arm for request in requests]
    assert set(arms) == {"a", "b"}
    node = await world.become(site(GRID, peers={}, functions=["x", "b"]), is_restarted=False)
    for k, request in enumerate(requests):
        await node.learn(request.id, k % 2)

    assert world.taught == [("b", k) for k, arm in enumerate(arms) if arm == "b"]


def test_alarms_and_rows_of_peers_are_counted_on_where_the_change_detection_counts() -> None:
    old, new = Counters({}), Counters({})
    alarms = new.alarms
    old.alarms[""], old.asked["south"] = 2, 3
    assert old.is_alarmed()

    new.take_over(old)

    assert (new.alarms.total(), new.asked["south"], new.is_alarmed()) == (2, 3, False)
    alarms[""] += 1
    assert (new.alarms.total(), new.is_alarmed()) == (3, True)
