"""CONTRIBUTING lists the files that a replay and a request pass through, and they are few."""

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import covey
import covey.cli.commands  # imported now, so that only calls are traced
from support.required import ROOT
from support.served import FEEDBACK, INFER, Client, infer, serving_all
from support.site_processes import Offices, table

PACKAGE = Path(covey.__file__).parent
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
MOST_FILES_OF_A_REPLAY = 17
MOST_FILES_OF_A_REQUEST = 28
NODE = {"features": {"size": "FP64", "kind": "BYTES"}, "dimension": 1}
POLICY = table(
    "[policy]",
    {
        "preset": "cos",
        "slices": 1,
        "explore": {"scale": 0.0, "power": 0.0},  # so the peer is asked early
        "train": {"scale": 1.0, "power": 0.5},
    },
)
FUNCTION = table("[[function]]", {"name": "zero", "kind": "python", "entry": "test_paths:zero"})


def zero(instance: Any) -> int:
    """Classify, as a function of a user would."""
    return 0


@contextmanager
def traced() -> Iterator[list[str]]:
    """Collect the files of covey whose functions are called, in the order of their first call."""
    files: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            name = path.relative_to(PACKAGE).as_posix()
            files["kernel" if name.startswith("kernel/") else name] = None

    threading.setprofile(note)
    sys.setprofile(note)
    found: list[str] = []
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        found += files


def listed(heading: str) -> list[str]:
    """Return the files under a heading of CONTRIBUTING, in order."""
    text = CONTRIBUTING.read_text().split(f"### {heading}\n")[1].split("\n#")[0]
    files = re.findall(r"`([\w/]+(?:\.py)?)`", text)
    assert [file for file in files if not (PACKAGE / file).exists()] == []
    return files


def test_a_replay_passes_through_few_files_and_contributing_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 2, (40, 3)).tolist()
    lines = [",".join(map(str, [*row, round(rng.random(), 3)])) for row in rows]
    (tmp_path / "log.csv").write_text("\n".join(["a,b,label,load", *lines, ""]))
    (tmp_path / "sites.toml").write_text(
        '[data]\nlabel = "label"\ncontext = ["load"]\n[policy]\npreset = "cos"\nslices = 2\n'
        '[[learner]]\nname = "north"\nfunctions = ["a"]\npeers = { south = 0.1 }\n'
        '[[learner]]\nname = "south"\nfunctions = ["b"]\n'
    )
    command = ["replay", "log.csv", "--config", "sites.toml", "--trace", "trace.csv"]
    monkeypatch.chdir(tmp_path)

    with traced() as files:
        assert covey.cli.main(command) == 0

    assert 5 < len(files) <= MOST_FILES_OF_A_REPLAY
    assert set(files) <= set(listed("One replay"))


def site(offices: Offices, name: str, other: str, *, asks: bool) -> str:
    peers = {other: 0.0} if asks else {}
    share = {"share": "data"} if asks else {"may-ask": True}
    return "\n".join(
        [
            offices.node(name, **NODE),
            POLICY,
            table("[[learner]]", {"name": name, "functions": ["zero"], "peers": peers}),
            FUNCTION,
            offices.peer(other, **share),
        ]
    )


async def ask_a_peer(client: Client, post: Callable[[int], Any]) -> list[str]:
    """Send requests until a peer answers again; return the files that the second one passed."""
    times = 0
    for k in range(60):
        with traced() as files:
            _, told = await post(k)
        times += told["parameters"]["arm"] == "south"
        if times == 2:
            return files
        await client.post(FEEDBACK, {"id": told["id"], "truth": 1})
    raise AssertionError("the peer was never asked")


def test_a_request_that_asks_a_peer_passes_through_few_files_and_contributing_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a site does beside requests is no part of one.
    monkeypatch.setattr("covey.server.app.NOTED_S", 3_600.0)
    monkeypatch.setattr("covey.server.app.ServedSite._greet", lambda *_: asyncio.sleep(0))
    offices = Offices(tmp_path, ["north", "south"])

    async def main() -> list[str]:
        texts = {
            "south": site(offices, "south", "north", asks=False),
            "north": site(offices, "north", "south", asks=True),
        }
        async with serving_all(tmp_path, texts) as clients:
            client = clients["north"]
            await client.post(INFER, infer("warm"))
            return await ask_a_peer(client, lambda k: client.post(INFER, infer(f"r{k}")))

    files = asyncio.run(main())

    assert {"site/handler.py", "server/peer_api.py", "server/peer_client.py"} <= set(files)
    assert len(files) <= MOST_FILES_OF_A_REQUEST
    assert set(files) <= set(listed("One request that asks a peer"))
