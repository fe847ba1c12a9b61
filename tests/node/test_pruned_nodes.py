"""Nodes whose store folds old requests: labels, ids and counters across the folding."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.errors import ConflictingLabel, LateLabel, UnknownRow, UnknownTicket
from covey.node.node import Question
from covey.site.requests import AskRow, Commit
from covey.site.trust import Trust
from covey.store.store import Store
from support import virtual
from support.lives import FUNCTIONS, GRID, ZOOM, Life, config, script_of
from support.requests_of_nodes import commit_of, request
from support.virtual import World

WAIT = 12
KEPT = 10


class Pruned(World):
    def store(self, name: str) -> Store:
        return self.stores.get(name) or Store(":memory:", rows_kept=KEPT)


class Forgiving(Life):
    """Notes that a label was too late, whatever the answer was."""

    async def learn(self, step: str, id_: str, rows: list[int], labels: list[int]) -> None:
        for row, label in zip(rows, labels, strict=True):
            try:
                await super().learn(step, id_, [row], [label])
            except (LateLabel, UnknownTicket):
                self.noted.append("too late")


def run(
    kind: type[World], policy: dict[str, Any], script: list[Any], trust: Trust, is_batched: bool
) -> tuple[list[Any], World]:
    async def main() -> tuple[list[Any], World]:
        setup = config({**policy, "label-wait": WAIT})
        world = kind(setup, FUNCTIONS, dimension=1, trust=trust)
        return await Forgiving(world, is_batched=is_batched).run(script), world

    return virtual.run(main())


@pytest.mark.parametrize("policy", [GRID, ZOOM], ids=["grid", "zooming"])
@settings(max_examples=10)
@given(
    trust=st.sampled_from(["full", "isolated"]),
    is_batched=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_a_node_that_folds_old_requests_decides_and_counts_as_one_that_keeps_them(
    policy: dict[str, Any], trust: Trust, is_batched: bool, seed: int
) -> None:
    script = [*script_of(seed, restarts=True), *script_of(seed + 1, restarts=True)]
    script = [
        ("serve", [0]) if verb == "learn" and k >= 20 else (verb, *given_)
        for k, (verb, *given_) in enumerate(script)
    ]
    pruned, world = run(Pruned, policy, script, trust, is_batched)
    whole, other = run(World, policy, script, trust, is_batched)

    assert pruned == whole
    assert world.stores["north"].size()["rows"] < other.stores["north"].size()["rows"]
    for name, store in world.stores.items():
        assert store.check() == []
        assert store.counters() == other.stores[name].counters()
        again, kept = (one.load(name, fingerprint(one)) for one in (store, other.stores[name]))
        assert again.records == kept.records
        assert store.size()["rows"] <= KEPT + 3 * (WAIT + 9)


def fingerprint(store: Store) -> str:
    return str(store._base.execute("SELECT fingerprint FROM site").fetchone()[0])


@pytest.mark.parametrize("rows", [1, 4], ids=["1 row", "n rows"])
@virtual.timed
async def test_a_folded_id_is_unknown_and_a_kept_one_is_not(rows: int) -> None:
    world = Pruned(config({**GRID, "label-wait": 3}), FUNCTIONS, dimension=1)
    node, where = world.nodes["north"], [(0.5,)] * rows
    asked = Question("", "first", "digest")
    first = await node.answer([1] * rows, where, question=asked)
    await node.learn_rows("first", [0], [1])
    assert (await node.learn_rows("first", [0], [1])).is_new == [False]
    later = [await node.answer([1] * rows, where) for _ in range(30)]
    store = world.stores["north"]

    assert store.find("", "first") is None
    with pytest.raises(UnknownTicket, match="unknown id 'first'"):
        await node.learn_rows("first", [0], [1])
    with pytest.raises(UnknownTicket):
        await node.learn("first" if rows == 1 else "first:0", 1)
    late = later[-2 if rows > 1 else -6]
    with pytest.raises(LateLabel, match="label-wait has expired"):
        await node.learn_rows(late.id, [rows - 1], [1])
    with pytest.raises(UnknownRow):
        await node.learn_rows(late.id, [rows], [1])
    await node.learn_rows(later[-1].id, [0], [1])
    with pytest.raises(ConflictingLabel):
        await node.learn_rows(later[-1].id, [0], [0])
    assert KEPT - store.size()["rows"] in range(rows)
    assert sum(labels for labels, _ in store.counters().values()) <= 2
    assert store.check() == []
    again = await node.answer([1] * rows, where, question=asked)
    assert again.slot > first.slot


@pytest.mark.parametrize("trust", ["full", "isolated"])
@virtual.timed
async def test_labels_of_a_peer_across_pruning_get_their_outcomes(trust: Trust) -> None:
    world = Pruned(config({**GRID, "label-wait": 1}), FUNCTIONS, dimension=1, trust=trust)
    node = world.nodes["north"]
    for k in range(20):
        ask = [AskRow(f"{k}:{row}", "g2:1", k + 1, row) for row in range(2)]
        await node.for_peers.assist(ask, source="south")
        await node.predict(k, (0.5,))  # pooled peers share the slots of the site
        assert await node.for_peers.take_labels([(f"{k}:1", 1)], source="south") == ["taken"]

    async def deliver(row: int, label: int) -> list[str]:
        """Return the outcomes, each kind once, oldest first."""
        labels = [(f"{k}:{row}", label) for k in range(20)]
        return list(dict.fromkeys(await node.for_peers.take_labels(labels, source="south")))

    assert await deliver(1, 1) == ["unknown", "repeated"]
    assert await deliver(1, 0) == ["unknown", "conflict"]
    assert await deliver(0, 1) == ["unknown", "late", "taken"]
    assert await deliver(0, 1) == ["unknown", "late", "repeated"]
    assert world.stores["north"].check() == []


# -- old requests leave the store, and nothing but their ids is lost ------------------------------


def test_the_oldest_closed_requests_are_folded_first_and_their_ids_are_unknown() -> None:
    store = Store(":memory:", rows_kept=KEPT)
    store.load("north", "fingerprint")
    ids = ["x", "y", "z"]
    many = request(1, rows=3, source="south", id="x", row_ids=ids, slots=[1] * 3)
    store.commit(commit_of([many], {1: [1, 0]}))
    store.commit(commit_of([request(k) for k in range(2, 14)], {2: [1]}))
    store.commit(Commit(closed=[1, 2, 3, 4]))
    found = [store.find("south", one) for one in ids] + [store.find("", "t2")]

    assert found == [None] * 4
    assert store.find("", "t3") is None  # five of 15 rows are too many
    assert store.find("", "t4") is not None
    assert store.size() == {"requests": 10, "rows": 10, "labels": 0, "deliveries": 0}
    assert store.counters() == {("g4:1", "south", "f"): (2, 1), ("g4:1", "", "f"): (1, 1)}
    assert store._base.execute("SELECT COUNT(*) FROM row_ids").fetchone() == (0,)


def test_open_requests_stay_however_many_they_are() -> None:
    store = Store(":memory:", rows_kept=KEPT)
    store.load("north", "fingerprint")
    store.commit(commit_of([request(k) for k in range(1, 41)]))
    store.commit(Commit(closed=[20, 40]))

    left = [one.number for one in store.load("north", "fingerprint").requests]

    assert left == [k for k in range(1, 41) if k not in (20, 40)]
    assert store.find("", "t20") is None
