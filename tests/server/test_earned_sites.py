"""Served sites whose trust in peers is the default: earned."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from covey.server.peer_client import PeerClient
from covey.site.requests import AskRow
from support.examined import examine
from support.served import FEEDBACK, INFER, Client, infer, serving
from support.site_processes import Offices, table, way

NODE = {"features": {"size": "FP64", "kind": "BYTES"}, "dimension": 1}


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south", "west"])


def north(offices: Offices, peers: tuple[str, ...] = ("south", "west"), **more: Any) -> str:
    """Return the file of north, which others may ask; the true label is always 1."""
    trust = {"trust": more.pop("trust")} if "trust" in more else {}
    known = [offices.peer(name, **{"may-ask": True}, **trust) for name in peers]
    own = {"learner": {"peers": {}, **more}, "labels": {"zero": 0, "one": 1}}
    return offices.file("north", table("[policy]", {"preset": "auto"}), *known, **own, **NODE)


async def passed_on(peer: PeerClient, number: int, label: int) -> None:
    row = AskRow(f"r{number}", "z8:76", number + 1, {"size": 1.0, "kind": "a"})
    await peer.ask([row])
    assert await peer.deliver([(row.id, label)]) == ["taken"]


async def own(client: Client, number: int, truth: int | None = 1) -> str:
    _, told = await client.post(INFER, infer(f"c{number}"))
    if truth is not None:
        await client.post(FEEDBACK, {"id": f"c{number}", "truth": truth})
    return str(told["parameters"]["arm"])


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
