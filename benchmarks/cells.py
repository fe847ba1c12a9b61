"""The decisions of a replay alone, with few and with many cells in use."""

from collections.abc import Callable
from functools import partial
from time import process_time
from types import ModuleType
from typing import Any

import network
import numpy as np
from compiler import NoFloor, floor
from figures import Figure, Row, Verdict, short
from timing import Timing, interleave

from covey import kernel
from covey.config import NetworkConfig, load
from covey.data.logs import DecisionColumns, EncodedLog
from covey.kernel.rules import Seat

NAME = "cells"
TITLE = "The decisions alone, with few and with many cells"
GROWTH = 2.0  # of the cost per slot from few to many cells
SLOTS = {"full": 400_000, "quick": 100_000}
ROUNDS = {"full": 10, "quick": 3}
FEW, MANY = 10, 1_000  # slices per dimension, of two
THRESHOLDS = {
    "explore": {"scale": 1.0, "power": 0.125},
    "train": {"scale": 2.0, "power": 0.125},
    "explore-peers": {"scale": 1.0, "power": 0.125},
}


def measure(effort: str) -> Figure:
    """Time `Arena.run`."""
    slots = SLOTS[effort]
    try:
        least = floor()
    except NoFloor as error:
        return Figure(NAME, TITLE, _method(slots), [Row("all", None, note=f"skipped: {error}")], [])
    candidates = {preset: _job(preset, slots) for preset in ("cos", "auto")}
    for side in (FEW, MANY):
        candidates[_cells(side)] = _many(side, slots)
        name = f"a C loop on the rows of {side**2:,} cells"
        candidates[name] = partial(_touch, least, side, slots)
    timings = interleave(ROUNDS[effort], candidates)
    rows = [_row(name, timings[name], slots) for name in timings]
    return Figure(NAME, TITLE, _method(slots), rows, [_verdict(timings)])


def _cells(side: int) -> str:
    return f"cos, {side**2:,} cells"


def _verdict(timings: dict[str, Timing]) -> Verdict:
    growth = timings[_cells(MANY)].best / timings[_cells(FEW)].best
    return Verdict(
        growth <= GROWTH,
        f"a slot costs {growth:.1f} times as much with {MANY**2:,} cells in use as with "
        f"{FEW**2:,}; the goal is at most {GROWTH:.0f}.",
    )


def _row(name: str, timing: Timing, slots: int) -> Row:
    learner_slots = network.SITES * slots
    rate = f"{short(learner_slots / timing.best / 1e6)} M learner-slots/s"
    return Row(name, 1e9 * timing.best / learner_slots, "ns", timing.over_best, None, rate)


def _job(preset: str, slots: int) -> Callable[[], float]:
    """Return what times the network of the replay figures under a preset."""
    recorded = network.draw(slots)
    options = {"slices": 12} if preset == "cos" else {}
    setup = load(network.config(preset=preset, **options))
    stream = (recorded.contexts, recorded.predictions, recorded.labels)
    return lambda: _run(_arena(setup, 1), stream, 0)


def _many(side: int, slots: int) -> Callable[[], float]:
    """Return what times random slots after every cell of a grid was used once."""
    rng = np.random.default_rng(3)
    order = rng.permutation(side * side)
    first = np.stack([(order // side + 0.5) / side, (order % side + 0.5) / side], axis=1)
    contexts = np.concatenate([first, rng.random((slots, 2))])
    labels = rng.integers(0, 2, len(contexts))
    accuracy = np.array([0.55, 0.9, 0.5, 0.8, 0.6, 0.7, 0.65, 0.75])[:, None]
    right = rng.random((len(accuracy), len(labels))) < accuracy
    stream = (contexts, np.where(right, labels, 1 - labels), labels)
    policy = {"preset": "cos", "slices": side, "max-cells": 2_000_000, **THRESHOLDS}
    setup = load(network.config(**policy))
    return lambda: _run(_arena(setup, 2), stream, side * side)


def _touch(least: ModuleType, side: int, slots: int) -> float:
    rows = np.random.default_rng(3).integers(0, side * side, slots)
    counters = np.ones((network.SITES, side * side, 21), np.int64)
    begin = process_time()
    least.touch(rows, counters)
    return process_time() - begin


def _run(arena: Any, stream: tuple[np.ndarray, ...], opened: int) -> float:
    """Play a stream and return the seconds of its slots from `opened` on."""
    contexts, predictions, labels = stream
    seconds = 0.0
    for begin, end in ((0, opened), (opened, len(labels))):
        rows = network.SITES * (end - begin)
        kinds = (np.int32, np.int8, np.int32, np.int32, np.int32)
        columns = [np.zeros(rows, kind).data for kind in kinds]
        nothing = np.empty(0, np.int32).data
        trace = DecisionColumns(*columns, paid=nothing, recalled=nothing)
        log = EncodedLog(
            contexts=np.ascontiguousarray(contexts[begin:end]).reshape(-1).data,
            predictions=np.ascontiguousarray(predictions[:, begin:end], np.int32).data,
            labels=np.ascontiguousarray(labels[begin:end], np.int32).data,
            at=None,
            delays=None,
        )
        started = process_time()
        if end > begin:
            arena.run(log, begin + 1, trace)
        seconds = process_time() - started
    return seconds


def _arena(setup: NetworkConfig, width: int) -> Any:
    """Return the network before its first slot."""
    (policy,) = setup.policies(width)
    clock = kernel.Clock(*policy.curves())
    tables, seats = [], []
    for position, site in enumerate(setup.sites):
        rule = policy.rule(functions=len(site.functions), costs=site.costs, position=position)
        tables.append([kernel.table_of(clock, rule)])
        seats.append(Seat(site.behind, (-1,) * len(site.behind)))
    return kernel.Arena(tables, [clock], [tuple(range(width))], seats, len(seats), None)


def _method(slots: int) -> str:
    return (
        f"CPU time per learner-slot of `Arena.run`: {slots:,} slots, {network.SITES} learners with "
        "2 functions each, every label comes at once. `cos` and `auto`: one context, the stream of "
        "the replay figures. Cells: a grid over two contexts, every cell used once before, then "
        "contexts at random. The C loop adds to four counters in the row of each learner and slot, "
        "which it is told: the least that memory allows."
    )
