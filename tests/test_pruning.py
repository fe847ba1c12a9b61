"""Old tickets leave the store, and nothing but their ids is lost."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import virtual
from covey.desks import Trust
from covey.errors import ConflictingLabel, LateLabel, UnknownTicket
from covey.store import Store
from lives import FUNCTIONS, GRID, ZOOM, Life, config, script_of
from virtual import World

WAIT = 12
KEPT = 10


class Pruned(World):
    def store(self, name: str) -> Store:
        return self.stores.get(name) or Store(":memory:", tickets_kept=KEPT)


class Forgiving(Life):
    """Notes what became of a label that came too late, whatever it was told."""

    async def learn(self, step: str, id_: str, rows: list[int], labels: list[int]) -> None:
        for row, label in zip(rows, labels, strict=True):
            try:
                await super().learn(step, id_, [row], [label])
            except (LateLabel, UnknownTicket):
                self.said.append("too late")


def lived(
    kind: type[World], policy: dict[str, Any], script: list[Any], trust: Trust, is_batched: bool
) -> tuple[list[Any], World]:
    async def main() -> tuple[list[Any], World]:
        setup = config({**policy, "label-wait": WAIT})
        world = kind(setup, FUNCTIONS, dimension=1, trust=trust)
        return await Forgiving(world, is_batched=is_batched).run(script), world

    return virtual.run(main())


def tables(world: World, *names: str) -> int:
    base = world.stores["north"]._base
    counts = [base.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in names]  # noqa: S608
    return sum(counts)


@pytest.mark.parametrize("policy", [GRID, ZOOM], ids=["grid", "zooming"])
@settings(max_examples=10)
@given(
    trust=st.sampled_from(["full", "isolated"]),
    is_batched=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_a_store_that_forgets_old_tickets_counts_as_one_that_keeps_them(
    policy: dict[str, Any], trust: Trust, is_batched: bool, seed: int
) -> None:
    script = [*script_of(seed, restarts=True), *script_of(seed + 1, restarts=True)]
    script = [
        ("serve", 0) if verb == "learn" and k >= 20 else (verb, *told)
        for k, (verb, *told) in enumerate(script)
    ]
    pruned, world = lived(Pruned, policy, script, trust, is_batched)
    whole, other = lived(World, policy, script, trust, is_batched)

    assert pruned == whole
    assert tables(world, "tickets", "lots") < tables(other, "tickets", "lots")
    for name, store in world.stores.items():
        assert store.check() == []
        assert store.counters() == other.stores[name].counters()
        again, kept = (one.load(name, shape(one)) for one in (store, other.stores[name]))
        assert again.asked == kept.asked
        assert again.desks == kept.desks
        assert store.size()["tickets"] <= KEPT + 3 * (WAIT + 9)


def shape(store: Store) -> str:
    return str(store._base.execute("SELECT shape FROM site").fetchone()[0])


def test_an_id_that_is_gone_is_unknown_and_one_that_is_kept_is_not() -> None:
    async def main() -> None:
        setup = config({**GRID, "label-wait": 3})
        world = Pruned(setup, FUNCTIONS, dimension=1)
        node = world.nodes["north"]
        lot = await node.predict_batch([1] * 4, [(0.5,)] * 4)
        await node.learn_many(lot.id, [0], [1])
        first = await node.predict(1, (0.5,))
        await node.learn(first.id, 1)
        later = [await node.predict(1, (0.5,)) for _ in range(30)]

        with pytest.raises(UnknownTicket):
            await node.learn_many(lot.id, [0], [1])
        with pytest.raises(UnknownTicket):
            await node.learn(first.id, 1)
        with pytest.raises(LateLabel):
            await node.learn(later[-6].id, 1)
        await node.learn(later[-1].id, 1)
        with pytest.raises(ConflictingLabel):
            await node.learn(later[-1].id, 0)
        assert world.stores["north"].size()["tickets"] == KEPT
        assert sum(labels for labels, _ in world.stores["north"].counters().values()) <= 3
        assert world.stores["north"].check() == []

    virtual.run(main())


def test_a_sum_that_was_tampered_with_is_found() -> None:
    async def main() -> None:
        world = Pruned(config({**GRID, "label-wait": 3}), FUNCTIONS, dimension=1)
        node = world.nodes["north"]
        for _ in range(30):
            ticket = await node.predict(1, (0.5,))
            await node.learn(ticket.id, 1)
        store = world.stores["north"]
        assert store.check() == []

        store._base.execute("UPDATE folded SET labels = labels + 1")
        assert store.check() != []

    virtual.run(main())
