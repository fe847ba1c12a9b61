"""A site in several processes answers as one process does: decisions, refusals, sentences."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from covey.errors import ConflictingLabel, CoveyError
from covey.node.questions import Question
from covey.node.requests import AskRow
from covey.server.http import ShardAway
from support.served import CONSTANTS
from support.sharded import (
    FEEDBACK,
    KEY,
    DirectPeer,
    Site,
    answers_of,
    question,
    rng_of,
    routing,
    sent,
    standing,
    stream_of,
)

NODE = """
[node]
name = "north"
features = { size = "FP64" }
store = "north.store"
address = "127.0.0.1:0"
%s
"""
LEARNER = (
    """
[[learner]]
name = "north"
functions = ["zero", "one"]
%s
"""
    + CONSTANTS
)
IDENTITY = """
certificate = "north.crt"
key = "north.key"
authority = "ca.crt"
peer-address = "127.0.0.1:0"
"""
POLICY = '[policy]\npreset = "cos"\npending = false\nslices = 8\nlabel-wait = 20\n'
SITE = NODE % "dimension = 1" + POLICY + LEARNER % ""
POLICIES = [
    'preset = "cos"\nmode = "paper"',
    'preset = "cos"\nforget = { window = 5 }',
    'preset = "share-ucb"',
    'preset = "two-sizes"\nalarm = 0',
    'preset = "balance"',
    'preset = "cos-ce"',
    'preset = "discounted"',
]


def with_policy(policy: str) -> str:
    text = SITE.replace('preset = "cos"', policy)
    # Of presets with an index, pending labels are of a cell.
    return text if "cos" in policy else text.replace("pending = false", "pending = true")


def written(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "site.toml").write_text(text)
    return folder / "site.toml"


def compared(
    folder: Path, text: str, shards: tuple[int, ...], play: Callable[[Site], Awaitable[list[Any]]]
) -> list[Any]:
    """Let one node and several shards play the same, and require the same; return it."""

    async def run(count: int) -> list[Any]:
        async with standing(written(folder / str(count), text), count) as site:
            return await play(site)

    expected = asyncio.run(run(0))
    for count in shards:
        found = asyncio.run(run(count))
        for place, (one, many) in enumerate(zip(expected, found, strict=True)):
            assert many == one, f"{count} shards differ at {place}"
    return expected


@pytest.mark.parametrize("policy", ['preset = "cos"', *POLICIES])
def test_shards_answer_as_one_node_does(tmp_path: Path, policy: str) -> None:
    is_first = policy == 'preset = "cos"'
    stream = stream_of(1, 400 if is_first else 120)

    one = compared(
        tmp_path,
        with_policy(policy),
        (1, 2, 3) if is_first else (3,),
        lambda site: answers_of(site, stream),
    )

    if is_first:
        statuses = Counter(status for status, _ in one)
        assert min(statuses[status] for status in (200, 202, 404, 409, 410, 422)) > 0


def test_contexts_of_the_previous_label_and_of_the_slot_are_those_of_one_node(
    tmp_path: Path,
) -> None:
    made = """[data]
context = [
    { column = "size", scale = "linear", low = 0, high = 1 },
    { scale = "previous-label", classes = [0, 1] },
]
"""
    text = NODE % "" + made + POLICY.replace("8", "4") + LEARNER % ""
    stream = [
        question(body["id"], body["inputs"][0]["data"], has_contexts=False)
        if "inputs" in body
        else (path, body)
        for path, body in stream_of(3, 150)
    ]

    compared(tmp_path, text, (2,), lambda site: answers_of(site, stream))


# -- peers ----------------------------------------------------------------------------------------


def peer_table(trust: str) -> str:
    return f"""
[[peer]]
name = "south"
key = "{KEY}"
url = "https://127.0.0.1:9"
share = "data"
may-ask = true
trust = "{trust}"
asks-by-context = true
"""


SOUTH = (
    (NODE % f"dimension = 1{IDENTITY}").replace("north", "south")
    + POLICY
    + (LEARNER % "peers = {}").replace("north", "south")
    + peer_table("full").replace("south", "north")
)


@pytest.mark.parametrize("preset", ["cos", "share-ucb"])
def test_shards_ask_a_peer_as_one_node_does(tmp_path: Path, preset: str) -> None:
    own = LEARNER % "peers = { south = 0.01 }" + peer_table("full")
    north = (NODE % f"dimension = 1{IDENTITY}" + POLICY + own).replace("cos", preset)
    north, there = (text.replace("slices = 8", "slices = 2") for text in (north, SOUTH))
    stream = stream_of(5, 120)

    async def run(shards: int) -> Any:
        async with AsyncExitStack() as stack:
            folder = tmp_path / f"{shards} shards"
            folder.mkdir()
            south = await stack.enter_async_context(
                standing(written(folder / "south", there.replace("cos", preset)))
            )
            peers = {"south": DirectPeer(south.node, "north")}
            site = await stack.enter_async_context(
                standing(written(folder / "north", north), shards, peers)
            )
            found = await answers_of(site, stream)
            return found, south.node.state().for_peers.labels, site.node.previous_label

    expected, found = asyncio.run(run(0)), asyncio.run(run(2))

    assert found == expected
    outputs = [one for _, body in expected[0] for one in body.get("outputs", [])]
    assert any("south" in one["data"] for one in outputs if one["name"] == "arm")


@pytest.mark.parametrize("trust", ["isolated", "robust", "full"])
def test_a_peer_sees_one_site(tmp_path: Path, trust: str) -> None:
    text = NODE % f"dimension = 1{IDENTITY}" + POLICY + LEARNER % "peers = {}" + peer_table(trust)

    async def play(site: Site) -> list[Any]:
        return [await call for call in _calls(site, rng_of(7), 150)]

    words = compared(tmp_path, text, (2, 3), play)

    told = {word for one in words if isinstance(one, list) for word in one if isinstance(word, str)}
    assert {"taken", "repeated", "late", "unknown", "conflict", "unfit"} <= told


def _calls(site: Site, rng: random.Random, count: int) -> Any:
    node, slot, ids = site.node, 0, list[str]()
    for number in range(count):
        slot += rng.choice([0, 1, 1, 2])
        cell, what = f"g8:{rng.randrange(8)}", rng.random()
        if what < 0.2:
            yield _settled(sent(site.api, *question(f"own{number}", [rng.random()])))
        elif what < 0.3:
            yield _settled(sent(site.api, FEEDBACK, {"id": f"own{number - 3}", "truth": 1}))
        elif what < 0.4:
            yield _settled(node.report(cell, slot, source="south"))
        elif what < 0.5:
            how = {"source": "south", "is_by_context": rng.random() < 0.5}
            yield _settled(node.estimate(cell, slot, **how))
        elif what < 0.75 or not ids:
            size = rng.randint(1, 4)
            mine = [f"a{number}:{k}" for k in range(size)]
            if ids and rng.random() < 0.1:
                mine = [rng.choice(ids)]
            ids += mine
            shown = {} if rng.random() < 0.2 else {"instance": {"size": 1.0}}
            rows = [AskRow(id_, f"g8:{rng.randrange(8)}", slot, **shown) for id_ in mine]
            yield _settled(node.assist(rows, source="south"))
        else:
            some = [rng.choice([*ids[-12:], *ids[:20], "never"]) for _ in range(rng.randint(1, 5))]
            labels = [(id_, rng.choice([0, 1, ""])) for id_ in dict.fromkeys(some)]
            yield _settled(node.take_labels(labels, source="south"))


async def _settled(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except CoveyError as error:
        return f"{type(error).__name__}: {error}"


# -- shards that are away -------------------------------------------------------------------------


def test_only_the_cells_of_a_shard_that_is_away_are_refused(tmp_path: Path) -> None:
    points = [(k + 0.5) / 8 for k in range(8)]

    async def run() -> None:
        async with standing(written(tmp_path / "site", SITE), 2) as site:
            first = [await sent(site.api, *question(f"a{k}", [x])) for k, x in enumerate(points)]
            site.links[0].is_up = False
            slot = site.node.slot  # type: ignore[union-attr]
            away = [await sent(site.api, *question(f"b{k}", [x])) for k, x in enumerate(points)]
            labels = [await sent(site.api, FEEDBACK, {"id": f"a{k}", "truth": 1}) for k in range(8)]
            batch = await sent(site.api, *question("batch", points))
            site.links[0].is_up = True
            again = [await sent(site.api, FEEDBACK, {"id": f"a{k}", "truth": 1}) for k in range(8)]

        assert {status for status, _ in first} == {200}
        assert Counter(status for status, _ in away).keys() == {200, 503}
        assert [status == 503 for status, _ in labels] == [status == 503 for status, _ in away]
        assert {body["code"] for status, body in away if status == 503} == {"shard_away"}
        assert batch[0] == 503
        assert slot == 8
        assert sorted(status for status, _ in again) == sorted(
            202 if status == 503 else 200 for status, _ in labels
        )

    asyncio.run(run())


def test_a_batch_that_a_shard_could_not_take_is_completed_when_it_is_sent_again(
    tmp_path: Path,
) -> None:
    points = [(k + 0.5) / 8 for k in range(8)]

    async def run() -> None:
        async with standing(written(tmp_path / "site", SITE), 2) as site:
            routed, link = site.node, site.links[0]
            call, link.call = link.call, _failing  # type: ignore[method-assign]
            failed = await sent(site.api, *question("batch", points))
            link.call = call  # type: ignore[method-assign]
            kept = site.links[1].node.state().open_tickets
            done = await sent(site.api, *question("batch", points))
            same = await sent(site.api, *question("batch", points))
            other = await sent(site.api, *question("batch", points[:-1]))

        assert failed[0] == 503
        assert 0 < kept < 8
        assert done[0] == 200
        assert same == done
        assert other[0] == 409
        assert routed.state().name == "north"

    asyncio.run(run())


async def _failing(call: Any) -> Any:
    raise ShardAway("it went away with the call")


def test_a_new_router_gives_no_slot_again_and_knows_the_ids(tmp_path: Path) -> None:
    path = written(tmp_path / "site", SITE)

    async def run() -> None:
        async with standing(path, 3) as site:
            for k in range(20):
                await sent(site.api, *question(f"q{k}", [(k % 8 + 0.5) / 8]))
            await sent(site.api, *question("batch", [0.1, 0.5, 0.9]))
            again = routing(path, site.links)
            with pytest.raises(ConflictingLabel, match="'q3' was used for another request"):
                await again.answer([{"size": 1.0}], [(0.9,)], question=another("q3"))
            with pytest.raises(ConflictingLabel, match="'batch' was used"):
                await again.answer([{"size": 1.0}], [(0.1,)], question=another("batch"))
            settled = await again.learn("batch:2", 1)

            assert again.slot == 23
            assert settled.is_new

    asyncio.run(run())


def another(id_: str) -> Question:
    return Question("", id_, "another")
