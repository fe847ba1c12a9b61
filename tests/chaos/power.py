"""The store alone: a fixed script, with the power cut before its first operation, its second, ...

What is left must be the store as it was after the last commit that was acknowledged, or after the
next one as a whole; nothing in between, and nothing less.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from chaos.disk import Disk, Keeps
from covey.bandit.learner import UNKNOWN
from covey.errors import StoreError
from covey.site.requests import (
    CellLine,
    Commit,
    Delivery,
    PeerAnswer,
    Request,
    RowGroup,
    SourceState,
)
from covey.store.store import Store

NAME, FINGERPRINT = "north", "any"
TABLES = ("sources", "cells", "requests", "row_ids", "labels", "counters", "folded", "outbox")
KEPT = 12  # rows, so that old requests are folded, too
Dump = dict[str, list[Any]]


class Losses(msgspec.Struct):
    """What many losses of power came to."""

    cuts: int = 0
    acknowledged: int = 0  # commits, over all cuts
    bad: int = 0  # cuts after which something acknowledged was gone, torn, or out of step


def script(commits: int) -> list[Commit]:
    """Return commits that change every table: requests, labels, cells, labels for peers."""
    requests = [_request(number) for number in range(1, 2 * commits + 1)]
    return [_commit(k, requests) for k in range(1, commits + 1)]


def _commit(k: int, requests: list[Request]) -> Commit:
    new = requests[2 * k - 2 : 2 * k]
    commit = Commit(
        [
            SourceState("", k),
            SourceState("south", 2 * k),
            CellLine("", "", k % 3, f"g4:{k % 3}", [k] * 9),
            CellLine("", "", 3, "g4:3", [k] * 9),
        ],
        requests=new,
        deliveries=[Delivery("south", f"p{k}", "blue")],
        delivered=[Delivery("south", f"p{k - 2}", "blue")],
        closed=[2 * k - 3, 2 * k - 2] if k > 1 else [],
    )
    new[0].truths[0] = "blue"
    commit.add_labels(new[0], [0], [k % 2 == 0])
    if k > 1:
        earlier = requests[2 * k - 3]
        earlier.truths[:2] = [2, 1]
        commit.add_labels(earlier, [1, 0], [True, False])
    return commit


def _request(number: int) -> Request:
    """Return a request of one row, or of two rows of a peer."""
    rows = 2 - number % 2
    return Request(
        number=number,
        source="south" if rows == 2 else "",
        id=f"t{number}",
        digest="d" * 64,
        slot=number,
        slots=[number] * rows if rows == 2 else None,
        groups=[RowGroup(f"g4:{k}", "explore", "f", 0.0, "south") for k in range(rows)],
        group_of=list(range(rows)),
        contexts=[(0.25,)] * rows,
        predictions=["blue"] * rows,
        answers=["blue"] * rows,
        peer_answers={0: PeerAnswer("f", f"p{number}")},
        row_ids=[f"t{number}", f"t{number}:1"] if rows == 2 else None,
        truths=[UNKNOWN] * rows,
    )


PATTERNS: dict[str, Callable[[], Keeps]] = {
    "all dropped": lambda: lambda number: False,
    "all kept": lambda: lambda number: True,
    "the first write kept": lambda: lambda number: number <= 0,
    "every other write kept": lambda: lambda number: number % 2 == 0,
    "torn, 1": lambda: _torn(1),
    "torn, 2": lambda: _torn(2),
    "torn, 3": lambda: _torn(3),
    "torn, 4": lambda: _torn(4),
}


def _torn(seed: int) -> Keeps:
    chance = random.Random(seed)  # noqa: S311 - a seeded world
    return lambda number: chance.random() < 0.5


def cut_everywhere(
    commits: int, *, every: int = 1, lies: bool = False, most_bad: int | None = None
) -> Losses:
    """Cut the power before operation 0, 1, 2, ... until the script ends, in every pattern.

    `every`: a pattern cuts at every third operation, say, and the next one at the ones after
    these. `most_bad`: after so many losses there is nothing more to show.
    """
    plan, losses = script(commits), Losses()
    expected = _expected(plan)
    for number, pattern in enumerate(PATTERNS.values()):
        fuse = number % every
        while losses.bad != most_bad and _cut(plan, expected, fuse, pattern(), losses, lies=lies):
            fuse += every
    return losses


def _cut(
    plan: list[Commit], expected: list[Dump], fuse: int, keeps: Keeps, losses: Losses, *, lies: bool
) -> bool:
    """Run the script up to operation `fuse`; return whether the power went before it ended."""
    disk = Disk()
    disk.fuse, disk.lies = fuse, lies
    done = _run(plan, disk)
    is_cut = disk.is_cut
    disk.lose_power(keeps)
    losses.cuts += 1
    losses.acknowledged += done
    losses.bad += not _is_whole(disk, expected[done : done + 2])
    disk.remove()
    return is_cut


def _run(plan: list[Commit], disk: Disk) -> int:
    """Return how many commits were acknowledged until the power went."""
    done = 0
    store = None
    try:
        store = Store("a", rows_kept=KEPT, connect=disk.connect)  # type: ignore[arg-type]
        store.load(NAME, FINGERPRINT)
        for commit in plan:
            store.commit(commit)
            done += 1
    except StoreError:
        pass
    finally:
        disk.boots += 1  # the process is gone, whatever else becomes of its files
        if store is not None:
            store.close()
    return done


def _is_whole(disk: Disk, allowed: list[Dump]) -> bool:
    try:
        store = Store("a", rows_kept=KEPT, connect=disk.connect)  # type: ignore[arg-type]
        store.load(NAME, FINGERPRINT)
    except StoreError:
        return False
    is_right = store.check() == [] and dump(store) in allowed
    store.close()
    return is_right


def _expected(plan: list[Commit]) -> list[Dump]:
    """Return what the store holds after no commit, one, two, ..."""
    store = Store(":memory:", rows_kept=KEPT)
    store.load(NAME, FINGERPRINT)
    dumps = [dump(store)]
    for commit in plan:
        store.commit(commit)
        dumps.append(dump(store))
    store.close()
    return dumps


def dump(store: Store) -> Dump:
    """Return every row of every table."""
    return {
        name: sorted(map(repr, map(tuple, store._base.execute(f"SELECT * FROM {name}").fetchall())))  # noqa: S608
        for name in TABLES
    }
