"""Flip single bits of a store, and see whether `covey check` finds what differs.

Run it in the folder of the tests: python -m chaos.flips --bits 2000
"""

import argparse
import contextlib
import random
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaos.prove import table, write
from covey.errors import StoreError
from covey.site.requests import (
    AnsweredRows,
    CellLine,
    Commit,
    CountedArm,
    DayPayments,
    Delivery,
    PeerAnswer,
    RowGroup,
    SourceState,
)
from covey.store.store import Store
from support.requests_of_nodes import commit_of, request

PAGE_BYTES = 4096  # the first page has the header, and is checked by SQLite
FINGERPRINT = "arm: f"
INDICES = {"ids": "SELECT source, id FROM requests INDEXED BY sqlite_autoindex_requests_1"}


class Flips(msgspec.Struct):
    """What flipped bits came to."""

    bits: int = 0
    different: int = 0  # flips after which the tables hold something else, or cannot be read
    found: int = 0  # of these, by a sentence
    raised: int = 0  # errors that are no sentence
    other: int = 0  # flips that left the tables as they were and were found, too
    missed: list[str] = []  # tables that differ and were not found


def build(path: Path, rounds: int, seed: int = 1) -> None:
    """Write a store with rows in every table, as clients, peers and pruning would leave it."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    store = Store(path, rows_kept=8 * rounds)
    store.load("north", FINGERPRINT)
    number = 0
    for _ in range(rounds):
        group = RowGroup(f"g4:{chance.randrange(6)}", "exploit", "f", 0.1)
        asked = RowGroup(f"g4:{chance.randrange(6)}", "explore", "south", 0.1, "south")
        ids = [f"{chance.getrandbits(128):032x}:{k}" for k in range(12)]
        one = {"id": f"{chance.getrandbits(128):032x}", "digest": f"{chance.getrandbits(64):x}"}
        made = [
            request(number + 1, groups=[group], contexts=[(chance.random(),)], **one),
            request(number + 2, groups=[asked], peer_answers={0: PeerAnswer("g", ids[0])}),
            request(
                number + 3,
                rows=12,
                groups=[group, asked],
                group_of=[k % 2 for k in range(12)],
                predictions=[chance.choice(["red", "blue"]) for _ in range(12)],
                contexts=[(chance.random(),) for _ in range(12)],
                source="south",
                id=ids[0],
                row_ids=ids,
                slots=[number + 3] * 12,
            ),
        ]
        commit = commit_of(made, {number + 1: [1], number + 3: ["red"] * 7})
        commit.closed = [one.number for one in made]
        cell = f"g4:{chance.randrange(40)}"
        commit.records = [
            CellLine("", "", int(cell[3:]), cell, [number, 3, 2], [("red", number)]),
            CountedArm("", cell, "f", [number, 3]),
            AnsweredRows(cell, "south", number + 2, 1),
            SourceState("", number + 1, {"": [number, 4]}, (number + 1, "red")),
            DayPayments(chance.random() < 0.5, number, "south", 1, 1, 100_000),
        ]
        commit.deliveries = [Delivery("south", ids[0], "red")]
        store.commit(commit)
        number += 3
    store.commit(Commit([SourceState("south", 9)]))
    assert store.check() == []
    store.close()


def flip_bits(path: Path, bits: int, seed: int = 1) -> Flips:
    """Flip bits beyond the first page one by one, each in a copy; return what was found."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    whole, before = path.read_bytes(), dump(path)
    flips = Flips()
    assert before.keys() >= {"requests", "payments", "ids"}
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for _ in range(bits):
            place = chance.randrange(8 * PAGE_BYTES, 8 * len(whole))
            changed = bytearray(whole)
            changed[place // 8] ^= 1 << place % 8
            copy = Path(folder, "copy")
            copy.write_bytes(changed)
            after = dump(copy)
            copy.write_bytes(changed)  # nothing of SQLite's own writing
            flips.bits += 1
            is_found = _is_found(copy, flips)
            if after == before:
                flips.other += is_found
            else:
                flips.different += 1
                flips.found += is_found
                if not is_found:
                    flips.missed += [name for name in before if after.get(name) != before[name]]
            for left in Path(folder).iterdir():
                left.unlink()
    return flips


def _is_found(path: Path, flips: Flips) -> bool:
    try:
        with contextlib.closing(Store(path, is_new_allowed=False)) as store:
            with contextlib.suppress(StoreError):
                store.load("north", FINGERPRINT)  # a start does not look at every row
            return bool(store.check())
    except StoreError:
        return True
    except Exception:
        flips.raised += 1
        return False


def dump(path: Path) -> dict[str, Sequence[Any]]:
    """Return all rows of all tables, as bytes where text is none; what cannot be read is left out.

    So are the indices.
    """
    found: dict[str, Sequence[Any]] = {}
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.text_factory = bytes
        try:
            found["schema"] = base.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
            for kind, name, _ in found["schema"]:
                if kind == b"table":
                    found[name.decode()] = base.execute(f"SELECT * FROM {name.decode()}").fetchall()  # noqa: S608
            for index, query in INDICES.items():
                found[index] = base.execute(query).fetchall()
        except (sqlite3.Error, ValueError):
            return {}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Flip bits and print, or write, the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--write", action="store_true", help="into RESULTS.md")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "north.store")
        build(path, options.rounds)
        kib, flips = path.stat().st_size // 1024, flip_bits(path, options.bits)
    rows = [
        (f"bits flipped, one at a time, in a store of {kib} KiB", f"{flips.bits:,}"),
        ("of these with another content of the tables", f"{flips.different:,}"),
        ("of these found by `covey check`", f"{flips.found:,}"),
        ("other flips that it found", f"{flips.other:,}"),
        ("errors that were no sentence, of `covey check` or of a start", f"{flips.raised:,}"),
    ]
    text = table(rows, "", "")
    print(text, *sorted(set(flips.missed)), sep="\n")
    if options.write:
        write("flips", text)


if __name__ == "__main__":
    main()
