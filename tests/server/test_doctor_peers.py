"""Peers are looked at before a site serves, and nothing changes at them."""

import asyncio
import contextlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from covey import cli
from covey.node.store import Store
from covey.server import config, doctor
from covey.server.doctor import Finding
from support.examined import FEATURES, FUNCTION, examine, states
from support.served import serving
from support.site_processes import Offices, served, table

pytestmark = pytest.mark.beside_the_kernel


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south"])


def site(offices: Offices, name: str, *, peer: str, asks: str = "", **rights: Any) -> str:
    """Return the file of a site that knows one peer, and may ask it by data or by context."""
    peers = {"peers": {peer: 0.0} if asks == "data" else {}}
    if asks == "context":
        peers["context-peers"] = {peer: 0.0}
    return "\n".join(
        [
            offices.node(name, features=FEATURES, dimension=1),
            table("[policy]", {"preset": "cos", "slices": 2}),
            table("[[learner]]", {"name": name, "functions": ["zero"], **peers}),
            FUNCTION,
            offices.peer(peer, share="data", **rights),
        ]
    )


BOTH = {"may-ask": True, "asks-by-context": True}


@pytest.mark.parametrize("asks", ["data", "context"])
def test_peers_that_work_have_nothing_to_mend_and_nothing_changes_there(
    offices: Offices, asks: str
) -> None:
    north = site(offices, "north", peer="south", asks=asks, **BOTH)
    south = site(offices, "south", peer="north", **BOTH)
    with served(offices.folder, {"north": north, "south": south}) as clients:
        before = [client.state() for client in clients.values()]
        found = examine(offices.folder, north)
        after = [client.state() for client in clients.values()]

    assert states(found) == {}
    assert "is served by this site already" in found["peer-address"].message
    assert "is running" in found["store"].message
    assert {"peer south", "peer south, asking", "peer south, clock"} <= set(found)
    for state in (*before, *after):
        state.pop("uptime_s", None)
    assert before == after
    with contextlib.closing(Store(offices.folder / "south.store")) as store:
        loaded = store.load("south", config.load(offices.folder / "south.toml").fingerprint)
    assert list(loaded.sources) == [""]  # there are no statistics of north


def test_a_peer_that_does_not_let_itself_be_asked_is_a_failure(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="data")
    with served(offices.folder, {"south": site(offices, "south", peer="north")}):
        found = examine(offices.folder, north)

    assert states(found) == {"peer south, asking": "failure"}
    assert "may-ask = true" in found["peer south, asking"].message


def test_a_peer_that_is_not_to_be_asked_by_context_is_a_failure(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="context")
    south = site(offices, "south", peer="north", **{"may-ask": True})
    with served(offices.folder, {"south": south}):
        found = examine(offices.folder, north)

    assert states(found) == {"peer south, asking": "failure"}
    assert "asks-by-context = true" in found["peer south, asking"].message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slices = 2", "slices = 3", "cells are 2 slices per dimension here and '3 slices per dim"),
        ("dimension = 1", "dimension = 2", "contexts have 1 dimensions here and 2 there"),
        ('preset = "cos"', 'preset = "auto"', "the preset is 'cos' here and 'auto' there"),
        ('"size" = "FP64"', '"size" = "INT64"', "feature 'size' is 'FP64' here and 'INT64' there"),
        ('size = "FP64"', 'age = "FP64"', "feature 'size' is 'FP64' here and is not there"),
        ('size = "FP64"', 'size = "FP64", age = "FP64"', "it takes a feature 'age' that is not"),
        ("dimension = 1", 'dimension = 1\ninstance = "row"', "a 'record' here and a 'row' there"),
    ],
)
def test_a_peer_whose_settings_do_not_fit_is_a_failure_with_what_differs(
    offices: Offices, old: str, new: str, said: str
) -> None:
    north = site(offices, "north", peer="south", asks="data", **BOTH)
    south = site(offices, "south", peer="north", **BOTH)
    other = south.replace(old.replace('"size" =', "size ="), new.replace('"size" =', "size ="))
    assert other != south
    with served(offices.folder, {"south": other}):
        found = examine(offices.folder, north)

    assert states(found) == {"peer south, settings": "failure"}
    assert said in found["peer south, settings"].message
    assert "the same" in found["peer south, settings"].message


def test_a_site_that_asks_by_context_needs_the_same_cells_and_no_more(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="context", **BOTH)
    south = site(offices, "south", peer="north", **BOTH).replace('preset = "cos"', "")
    with served(offices.folder, {"south": south.replace("FP64", "INT64")}):
        found = examine(offices.folder, north)

    assert states(found) == {}
    assert found["peer south, settings"].message == "compatible"


def test_a_peer_that_does_not_know_the_site_is_a_failure_with_what_it_must_write(
    offices: Offices,
) -> None:
    north = site(offices, "north", peer="south", asks="data")
    south = site(offices, "south", peer="north").replace(offices.key("north"), offices.key("south"))

    async def main() -> dict[str, Finding]:
        async with serving(offices.folder, south):
            return await asyncio.to_thread(examine, offices.folder, north)

    found = asyncio.run(main())

    assert states(found) == {"peer south": "failure"}
    assert "does not know this site" in found["peer south"].message
    assert offices.key("north") in found["peer south"].message


def test_a_peer_with_another_key_is_a_failure(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="data")
    with served(offices.folder, {"south": site(offices, "south", peer="north")}):
        found = examine(offices.folder, north.replace(offices.key("south"), offices.key("north")))

    assert states(found) == {"peer south": "failure"}
    assert "differs from the allow list" in found["peer south"].message


def test_a_peer_of_another_authority_is_a_failure(offices: Offices, tmp_path: Path) -> None:
    others = Offices(tmp_path / "others", ["north", "south"])
    others.ports = offices.ports
    north = site(offices, "north", peer="south", asks="data")
    with served(others.folder, {"south": site(others, "south", peer="north")}):
        found = examine(offices.folder, north)

    assert states(found) == {"peer south": "failure"}


def test_a_peer_that_is_down_is_only_a_warning(offices: Offices) -> None:
    found = examine(offices.folder, site(offices, "north", peer="south", asks="data"))

    assert states(found) == {"peer south": "warning"}
    assert "works without it" in found["peer south"].message


def test_a_peer_without_tls_is_a_failure_without_a_traceback(offices: Offices) -> None:
    async def main() -> dict[str, Finding]:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail\r\n")
            writer.close()

        listening = await asyncio.start_server(greet, "127.0.0.1", offices.ports["south"])
        async with listening:
            text = site(offices, "north", peer="south", asks="data")
            return await asyncio.to_thread(examine, offices.folder, text)

    assert states(asyncio.run(main())) == {"peer south": "failure"}


def test_the_protocol_of_a_peer_is_named(offices: Offices) -> None:
    north = site(offices, "north", peer="south", asks="data", **BOTH)
    with served(offices.folder, {"south": site(offices, "south", peer="north", **BOTH)}):
        found = examine(offices.folder, north)

    said = found["peer south, protocol"].message
    assert said == f"speaks peer protocol 1 (covey {version('covey')})"


def test_clocks_may_differ_by_five_minutes() -> None:
    assert [one.state for one in doctor._clock("peer", 300.0)] == ["ok"]
    assert [one.state for one in doctor._clock("peer", -301.0)] == ["warning"]
    assert list(doctor._clock("peer", None)) == []


def test_the_command_prints_a_line_for_each_look(
    offices: Offices, capsys: pytest.CaptureFixture[str]
) -> None:
    (offices.folder / "site.toml").write_text(site(offices, "north", peer="south"))

    code = cli.main(["doctor", str(offices.folder / "site.toml")])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0  # warnings do not keep a site from working
    assert [line.split()[0] for line in lines].count("warning") == 1
    assert all(line.split()[0] in ("ok", "warning") for line in lines)
