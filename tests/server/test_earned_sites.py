"""Served sites whose trust in peers is the default: earned."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from covey.node.requests import AskRow
from covey.server.peer_client import PeerClient
from support.coroutines import looped
from support.examined import examine
from support.served import FEEDBACK, INFER, Client, infer, serving
from support.site_processes import Offices, table, way

ROUNDS = 80
STATE = "/v2/models/north/state"
NODE = {"features": {"size": "FP64", "kind": "BYTES"}, "dimension": 1}
FUNCTIONS = [
    table("[[function]]", {"name": name, "kind": "constant", "label": label})
    for label, name in enumerate(("zero", "one"))
]


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south", "west"])


def north(offices: Offices, peers: tuple[str, ...] = ("south", "west"), **more: Any) -> str:
    """Return the file of north, which others may ask; the true label is always 1."""
    learner = {"name": "north", "functions": ["zero", "one"], "peers": {}}
    trust = {"trust": more.pop("trust")} if "trust" in more else {}
    return "\n".join(
        [
            offices.node("north", **NODE),
            table("[policy]", {"preset": "auto", "slices": 1}),
            table("[[learner]]", {**learner, **more}),
            *FUNCTIONS,
            *(offices.peer(name, **{"may-ask": True}, **trust) for name in peers),
        ]
    )


async def passed_on(peer: PeerClient, number: int, label: int) -> None:
    row = AskRow(f"r{number}", "g1:0", number + 1, {"size": 1.0, "kind": "a"})
    await peer.ask([row])
    assert await peer.deliver([(row.id, label)]) == ["taken"]


async def own(client: Client, number: int, truth: int | None = 1) -> str:
    _, told = await client.post(INFER, infer(f"c{number}"))
    if truth is not None:
        await client.post(FEEDBACK, {"id": f"c{number}", "truth": truth})
    return str(told["parameters"]["arm"])


@looped
async def test_a_served_site_parts_a_peer_with_false_labels_and_pools_an_honest_one(
    offices: Offices,
) -> None:
    async with (
        serving(offices.folder, north(offices)) as client,
        way(offices, "south") as south,
        way(offices, "west") as west,
    ):
        arms = []
        for number in range(ROUNDS):
            arms.append(await own(client, number))
            await passed_on(south, number, 1)
            await passed_on(west, number, 0)
        _, state = await client.get(STATE)
        trust = state["trust"]

    assert {one["source"]: one["state"] for one in trust} == {"south": "pooled", "west": "parted"}
    assert [one["why"] for one in trust if one["source"] == "west"] == [
        "its labels of 'one' differ from the site's own"
    ]
    assert arms[-20:].count("one") >= 18


def test_a_served_site_without_labels_of_its_own_learns_from_those_passed_on(
    offices: Offices,
) -> None:
    async def main() -> list[str]:
        async with (
            serving(offices.folder, north(offices, ("south",), supervised=False)) as client,
            way(offices, "south") as south,
        ):
            for number in range(20):
                await passed_on(south, number, 1)
            return [await own(client, number, None) for number in range(10)]

    assert asyncio.run(main()) == ["one"] * 10


def test_doctor_warns_where_no_label_can_ever_count(offices: Offices) -> None:
    found = examine(offices.folder, north(offices, supervised=False, trust="isolated"))

    assert (found["trust"].state, found["trust"].message) == (
        "warning",
        'supervised = false and trust = "isolated" for every peer with may-ask = true: no label '
        'ever counts for this site\'s own functions; set trust = "earned" for peers that may ask',
    )


def test_doctor_has_nothing_against_a_site_whose_peers_may_teach_it(offices: Offices) -> None:
    found = [
        examine(offices.folder, north(offices, supervised=supervised, trust=trust))["trust"]
        for supervised, trust in ((False, "earned"), (False, "full"), (True, "isolated"))
    ]

    assert [one.state for one in found] == ["ok"] * 3
    assert found[0].message == "labels of 2 of 2 peers that may ask count for this site"
