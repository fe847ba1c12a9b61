"""The store alone: a fixed script, with the power cut before its first operation, its second, ...

What is left must be the store as it was after the last batch that was acknowledged, or after the
next one as a whole; nothing in between, and nothing less.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from covey.errors import StoreError
from covey.records import Batch, Line, Owed, Standing, Ticket, Truth
from covey.store import Store
from storm.disk import Disk, Keeps

NAME, SHAPE = "north", "any"
TABLES = ("desks", "cells", "tickets", "counters", "outbox")
Dump = dict[str, list[Any]]


class Losses(msgspec.Struct):
    """What many losses of power came to."""

    cuts: int = 0
    acknowledged: int = 0  # batches, over all cuts
    bad: int = 0  # cuts after which something acknowledged was gone, torn, or out of step


def script(batches: int) -> list[Batch]:
    """Return batches that touch every table: tickets, labels, cells, labels owed and told."""
    return [_batch(k) for k in range(1, batches + 1)]


def _batch(k: int) -> Batch:
    owed = Owed("south", f"p{k}", "blue")
    return Batch(
        standings=[Standing("", k, range(1, 2 * k + 1))],
        lines=[Line("", k % 3, f"g4:{k % 3}", [k] * 9), Line("", 3, "g4:3", [k] * 9)],
        tickets=[_ticket(2 * k - 1), _ticket(2 * k)],
        truths=[Truth(2 * k - 1, "blue", k % 2 == 0)] + ([Truth(2 * k - 2, 1, True)] * (k > 1)),
        owed=[owed],
        told=[Owed("south", f"p{k - 2}", "blue")],
    )


def _ticket(number: int) -> Ticket:
    return Ticket(
        ticket=number,
        source="" if number % 3 else "south",
        id=f"t{number}",
        digest="d" * 64,
        slot=number,
        cell=f"g4:{number % 3}",
        code=number,
        phase="explore",
        arm="f",
        function="f",
        price=0.0,
        space="",
        context=(0.25,),
        prediction="blue",
        answer="blue",
        peer="south",
        peer_ticket=f"p{number}",
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


def cut_everywhere(batches: int, *, lies: bool = False, most_cuts: int = 10**9) -> Losses:
    """Cut the power before operation 0, 1, 2, ... until the script ends, in every pattern."""
    plan, losses = script(batches), Losses()
    expected = _expected(plan)
    for pattern in PATTERNS.values():
        fuse = 0
        while losses.cuts < most_cuts and _cut(plan, expected, fuse, pattern(), losses, lies=lies):
            fuse += 1
    return losses


def _cut(
    plan: list[Batch],
    expected: list[Dump],
    fuse: int,
    keeps: Keeps,
    losses: Losses,
    *,
    lies: bool,
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


def _run(plan: list[Batch], disk: Disk) -> int:
    """Return how many batches were acknowledged until the power went."""
    done = 0
    store = None
    try:
        store = Store("a", connect=disk.connect)  # type: ignore[arg-type]
        store.load(NAME, SHAPE)
        for batch in plan:
            store.commit(batch)
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
        store = Store("a", connect=disk.connect)  # type: ignore[arg-type]
        store.load(NAME, SHAPE)
    except StoreError:
        return False
    is_right = store.check() == [] and dump(store) in allowed
    store.close()
    return is_right


def _expected(plan: list[Batch]) -> list[Dump]:
    """Return what the store holds after no batch, one, two, ..."""
    store = Store.memory()
    store.load(NAME, SHAPE)
    dumps = [dump(store)]
    for batch in plan:
        store.commit(batch)
        dumps.append(dump(store))
    store.close()
    return dumps


def dump(store: Store) -> Dump:
    """Return every row of every table."""
    return {
        name: sorted(map(repr, map(tuple, store._base.execute(f"SELECT * FROM {name}").fetchall())))  # noqa: S608
        for name in TABLES
    }
