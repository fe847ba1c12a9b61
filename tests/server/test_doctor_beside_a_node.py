"""A site is looked at while it serves, and nothing that it keeps changes."""

import asyncio
from pathlib import Path

import pytest

from covey.server import tokens
from covey.server.doctor import Finding
from support.examined import examine, states
from support.served import FEEDBACK, INFER, SITE, infer, serving

pytestmark = pytest.mark.beside_the_kernel


@pytest.mark.parametrize("more", ["", 'tokens = "tokens.json"'])
def test_beside_a_node_its_address_is_its_own(tmp_path: Path, more: str) -> None:
    tokens.new(tmp_path / "tokens.json", "camera", scopes=["infer"])
    text = SITE.replace("dimension", f"{more}\ndimension")

    async def main() -> dict[str, Finding]:
        async with serving(tmp_path, text) as client:
            port = client.root.rpartition(":")[2]
            return await asyncio.to_thread(examine, tmp_path, text.replace(".1:0", f".1:{port}"))

    found = asyncio.run(main())
    assert states(found) == {}
    assert "is served by this site already" in found["address"].message


def test_an_address_of_another_model_is_a_failure(tmp_path: Path) -> None:
    async def main() -> dict[str, Finding]:
        async with serving(tmp_path, SITE) as client:
            text = SITE.replace('"north"', '"south"').replace("north.store", "south.store")
            port = client.root.rpartition(":")[2]
            return await asyncio.to_thread(examine, tmp_path, text.replace(".1:0", f".1:{port}"))

    assert states(asyncio.run(main())) == {"address": "failure"}


LESSONS = SITE.replace(
    'kind = "constant"\nlabel = 1',
    'kind = "python"\nentry = "support.models:Majority"\n'
    'lessons = "kept/one.jsonl"\nlessons-kept = 2',
)


def seen(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return what changes when something in a folder is written, made or removed."""
    return {
        str(one): (one.stat().st_ino, one.stat().st_size, one.stat().st_mtime_ns)
        for one in (folder, *folder.iterdir())
    }


def test_beside_a_node_what_functions_were_taught_stays_as_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()

    async def main() -> dict[str, Finding]:
        async with serving(tmp_path, LESSONS) as client:
            for k in range(12):
                await client.post(INFER, infer(str(k)))
                await client.post(FEEDBACK, {"id": str(k), "truth": "spam"})
            with (kept / "one.jsonl").open("ab") as file:
                file.write(b"[[1.5")  # a line that the node is about to end
            before = seen(kept)
            found = await asyncio.to_thread(examine, tmp_path, LESSONS)

            assert (kept / "one.jsonl").read_bytes().count(b"\n") > 2
            assert seen(kept) == before
            return found

    found = asyncio.run(main())
    assert "'spam'" in found["function one"].message


def test_training_logs_are_not_created_and_their_paths_must_be_usable(tmp_path: Path) -> None:
    missing = examine(tmp_path, LESSONS)
    (tmp_path / "kept").mkdir()
    before = seen(tmp_path / "kept")
    empty = examine(tmp_path, LESSONS)

    assert states(missing) == {"function one": "failure"}
    assert "cannot keep the training log" in missing["function one"].message
    assert states(empty) == {}
    assert seen(tmp_path / "kept") == before
