"""A peer leaves, or its key was stolen: its tables are removed while the site serves."""

from pathlib import Path
from typing import Any

import pytest
from test_reload import told

from covey.errors import PeerError
from covey.server import keys as site_keys
from covey.site.requests import Arm, AskRow
from covey.store.store import Store
from support.served import FEEDBACK, INFER, Client, infer
from support.site_processes import Offices, table, way

NODE = {"features": {"size": "FP64", "kind": "BYTES"}, "dimension": 1, "tokens": "tokens.json"}
POLICY = table("[policy]", {"preset": "cos", "slices": 1})


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south", "west"])


def north(offices: Offices, *peers: str, asks: tuple[str, ...] = (), **keys: str) -> str:
    """Return the file of north, which knows these peers and asks some of them."""
    learner = {"peers": dict.fromkeys(asks, 0.0)}
    tables = [offices.peer(name, **{"may-ask": True, "share": "data"}) for name in peers]
    text = offices.file("north", POLICY, *tables, learner=learner, **NODE)
    for name, key in keys.items():
        text = text.replace(offices.key(name), key)
    return text


async def applied(offices: Offices, client: Client, text: str) -> dict[str, Any]:
    (offices.folder / "site.toml").write_text(text)
    status, plan = await client.post("/admin/reload", b"")
    assert status == 200, plan
    return dict(plan)


async def is_let_in(offices: Offices, name: str) -> bool:
    async with way(offices, name) as peer:
        try:
            return (await peer.hello()).name == "north"
        except PeerError:
            return False


def test_a_peer_that_is_removed_is_refused_at_once_and_the_site_keeps_its_store(
    offices: Offices,
) -> None:
    async def story(client: Client) -> None:
        async with way(offices, "south") as peer:
            await peer.ask([AskRow("r", "g1:0", 1, {"size": 1.0, "kind": "a"})])
            assert await peer.deliver([("r", 1)]) == ["taken"]
            for k in range(6):
                assert (await client.post(INFER, infer(f"r{k}")))[0] == 200
                assert (await client.post(FEEDBACK, {"id": f"r{k}", "truth": 0}))[0] == 202
            plan = await applied(offices, client, north(offices, "west"))
            assert [(one["what"], one["name"]) for one in plan["steps"]] == [
                ("keep", "zero"),
                ("retire", "south"),
            ]
            with pytest.raises(PeerError, match="not_allowed"):  # over the open connection
                await peer.hello()
        assert not await is_let_in(offices, "south")
        assert await is_let_in(offices, "west")
        _, state = await client.get("/v2/models/north/state")
        assert [(arm["name"], arm["labels"], arm["right"]) for arm in state["arms"]] == [
            ("zero", 6, 6)
        ]
        assert [(one["name"], one["state"]) for one in state["peers"]] == [("west", "not asked")]

    told(offices.folder, story, north(offices, "south", asks=("south",)))
    store = Store(offices.folder / "north.store")

    assert [(arm.id, arm.kind, arm.place) for arm in store.all(Arm)] == [
        ("south", "peer", -1),
        ("zero", "own", 0),
    ]
    assert sum(labels for labels, _ in store.counters().values()) == 7
    assert store.check() == []


def test_a_peer_with_a_new_key_continues_and_its_old_key_is_refused(offices: Offices) -> None:
    folder = offices.folder

    async def story(client: Client) -> None:
        assert await is_let_in(offices, "south")
        site_keys.new("south", folder=folder / "new")
        key = site_keys.show(folder / "new" / "south.crt").key
        plan = await applied(offices, client, north(offices, "south", south=key))
        assert plan["steps"] == []  # nothing changes but the port for peers
        assert not await is_let_in(offices, "south")
        for end in ("crt", "key"):
            (folder / "new" / f"south.{end}").replace(folder / f"south.{end}")
        assert await is_let_in(offices, "south")

    told(offices.folder, story, north(offices, "south"))


def test_a_peer_that_joins_is_let_in_without_a_restart(offices: Offices) -> None:
    async def story(client: Client) -> None:
        assert not await is_let_in(offices, "west")
        plan = await applied(offices, client, north(offices, "south", "west", asks=("west",)))
        assert [(one["what"], one["name"]) for one in plan["steps"]] == [
            ("keep", "zero"),
            ("add", "west"),
        ]
        assert await is_let_in(offices, "west")
        assert (await client.post(INFER, infer("a")))[0] == 200  # west is down: decided alone

    told(offices.folder, story, north(offices, "south"))
