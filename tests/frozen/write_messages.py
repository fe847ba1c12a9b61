"""Write `messages/`: requests and replies of the peer protocol, as two sites of 0.1.0 sent them.

To be run with version 0.1.0 only, as `python -m frozen.write_messages` in the folder `tests`. A
site of a later version must answer these requests with these replies, for as long as it speaks the
version of the protocol that they are of.
"""

import json
from typing import Any

import msgspec
import virtual

from covey.calls import Reply
from covey.types import Cell
from frozen.exchanges import FOLDER, POLICIES, USUAL, Record, call, peer_world, pen, record, send

STRANGER = {"may_ask": False, "share": "none", "asks_by_context": False}


def steps(cell: str, preset: str) -> list[tuple[str, str, Any, dict[str, Any]]]:
    """Return the calls of an asker: a name, a verb, what is given, and rights that differ."""
    ids = [f"row-{k}" for k in range(40)]
    many = [[id_, cell, 3 + k, [k, k + 1]] for k, id_ in enumerate(ids)]
    by_cell = [["cell-0", cell, 60], ["cell-1", cell, 61]]
    right = [[id_, k % 2] for k, id_ in enumerate(ids[:20])]
    mixed = [["text", "text"], ["plain-0", 0.5], ["plain-1", True], ["cell-0", 1]]
    is_phased = preset in ("cos", "dcza")
    return [
        ("hello", "hello", [], {}),
        ("hello of one that may nothing", "hello", [], STRANGER),
        ("report of an unknown cell", "report", [cell, 1], {}),
        ("ask with whole numbers", "ask", [["i8", cell, 2, [1, -2, 3]]], {}),
        ("ask with numbers", "ask", [["f8", cell, 2, [0.5, 1e300]]], {}),
        ("ask with a record of numbers", "ask", [["keys", cell, 2, {"size": 1.5, "b": 2.0}]], {}),
        ("ask with many rows", "ask", many, {}),
        ("ask with text", "ask", [["text", cell, 50, "text"]], {}),
        (
            "ask with plain values",
            "ask",
            [["plain-0", cell, 51, {"a": [1, "ü", None]}], ["plain-1", cell, 51, [True, 2.5]]],
            {},
        ),
        ("ask again under the same id", "ask", [["i8", cell, 2, [1, -2, 3]]], {}),
        *([("ask by the cell, nothing known", "ask", by_cell, {})] if is_phased else []),
        ("labels", "deliver", right, {}),
        ("labels of several kinds", "deliver", mixed, {}),
        ("labels again, in conflict, and unknown", "deliver", [*right[:2], ["row-2", 7]], {}),
        ("label of an unknown id", "deliver", [["nobody", 1]], {}),
        ("label of one that may ask no more", "deliver", [["row-30", 1]], STRANGER),
        ("report", "report", [cell, 80], {}),
        ("estimate", "estimate", [cell, 81, False], {}),
        ("estimate by the cell", "estimate", [cell, 82, True], {}),
        *([("ask by the cell", "ask", [["cell-2", cell, 83]], {})] if is_phased else []),
        ("ask that may not be asked", "ask", [["no-0", cell, 84, [1]]], STRANGER),
        (
            "ask by the cell that may not be asked",
            "ask",
            [["no-1", cell, 84]],
            {"asks_by_context": False},
        ),
        ("report that may not be asked", "report", [cell, 84], STRANGER),
        ("ask of a cell that there is not", "ask", [["no-2", "x9", 84, [1]]], {}),
        ("report too often", "report", [cell, 84], {"rate_per_s": 1.0}),
        ("ask that no function can answer", "ask", [["no-3", cell, 84, "unreadable"]], {}),
    ]


def letter(**more: Any) -> dict[str, Any]:
    return {"version": 1, "request": "r", "deadline_ms": 1000, **more}


def refused(cell: str) -> list[tuple[str, str, bytes, dict[str, Any]]]:
    """Return requests that no asker of 0.1.0 sends: a name, a path, a body, what differs."""
    pack = msgspec.msgpack.encode
    report = letter(cell=cell, slot=90)
    return [
        ("another version", "report", pack({**report, "version": 2}), {}),
        ("another version with other fields", "report", pack({"version": 7, "new": 1}), {}),
        ("an unknown field", "report", pack({**report, "more": 1}), {}),
        ("no rows", "ask", pack(letter(rows=[])), {}),
        ("a slot of 0", "report", pack({**report, "slot": 0}), {}),
        ("no MessagePack", "report", b"\xc1", {}),
        ("a deadline that is over", "report", pack({**report, "deadline_ms": 0}), {}),
        ("a block and values", "ask", pack(_doubled(cell)), {}),
        ("an unknown path", "other", pack(report), {}),
        ("another method", "report", b"", {"method": "GET"}),
        ("another media type", "report", pack(report), {"content-type": "application/json"}),
        ("an unknown caller", "report", pack(report), {"who": "nobody"}),
    ]


def _doubled(cell: str) -> dict[str, Any]:
    block = {"kind": "i8", "width": 1, "numbers": bytes(8), "keys": None}
    return letter(rows=[["both", cell, 90]], block=block, values=[1])


async def talk(preset: str) -> list[Record]:
    """Return all exchanges with a peer of this preset."""
    world = peer_world(preset)
    partition = world.nodes["south"].learner.policies[""].partition
    cell = partition.name(Cell(0, (0,)))
    kept: list[Record] = []
    for number, (name, verb, given, rights) in enumerate(steps(cell, preset), 1):
        sent: list[Record] = []

        async def post(path: str, body: bytes, sent=sent, rights=rights) -> Reply:  # type: ignore[no-untyped-def]
            one = record(body, Reply(), **{**USUAL, "path": path, "rights": rights})
            reply = await send(world, one)
            sent.append(record(body, reply, **{**USUAL, "path": path, "rights": rights}))
            return reply

        result = await call(pen(post, number), verb, given)
        (one,) = sent
        kept.append({"name": name, "verb": verb, "given": given, "first": number, **one})
        kept[-1]["result"] = result
    for name, path, body, differs in refused(cell):
        about = {**USUAL, "path": f"/covey/v1/{path}", **differs}
        reply = await send(world, record(body, Reply(), **about))
        kept.append({"name": name, "verb": None, **record(body, reply, **about)})
    return kept


def main() -> None:
    """Write all of them anew."""
    FOLDER.mkdir(exist_ok=True)
    for preset in POLICIES:
        kept = ",\n".join(json.dumps(one) for one in virtual.run(talk(preset)))
        (FOLDER / f"{preset}.json").write_text(f"[\n{kept}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
