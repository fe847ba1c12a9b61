"""The kernel against that of 0.1.0 in the same run: few and many cells, two presets."""

from collections.abc import Callable
from functools import partial
from time import process_time
from types import ModuleType
from typing import Any

import msgspec
import network
import numpy as np
from compiler import NoFloor, floor, frozen
from figures import Figure, Row, Verdict, short
from timing import Timing, interleave

from covey import kernel
from covey.config import NetworkConfig, load
from covey.data.logs import DecisionColumns, EncodedLog
from covey.kernel.rules import Rule, Seat

NAME = "frozen"
TITLE = "The decisions alone, against the kernel of 0.1.0 in the same run"
GOAL = 2.7  # times as fast, CoS
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
    """Time `Arena.run` of both kernels."""
    slots = SLOTS[effort]
    try:
        old, least = frozen(), floor()
    except NoFloor as error:
        return Figure(NAME, TITLE, _method(slots), [Row("all", None, note=f"skipped: {error}")], [])
    jobs = {preset: _job(preset, slots) for preset in ("cos", "two-sizes", "auto")}
    jobs |= {f"cos, {side**2:,} cells": _many(side, slots) for side in (FEW, MANY)}
    timings: dict[str, Timing] = {}
    for name, job in jobs.items():
        candidates: dict[str, Callable[[], float]] = {
            f"{name}: 0.1.0": partial(job, old),
            f"{name}: now": partial(job, None),
        }
        timings |= interleave(ROUNDS[effort], candidates)
    for side in (FEW, MANY):
        name = f"a C loop on the rows of {side**2:,} cells"
        timings |= interleave(ROUNDS[effort], {name: partial(_touch, least, side, slots)})
    rows = [_row(name, timings, slots) for name in timings]
    return Figure(NAME, TITLE, _method(slots), rows, _verdicts(timings))


def _verdicts(timings: dict[str, Timing]) -> list[Verdict]:
    gains = {name: _gain(timings, name) for name in ("cos", "auto")}
    few, many = (timings[f"cos, {side**2:,} cells: now"].best for side in (FEW, MANY))
    return [
        Verdict(
            gains["cos"] >= GOAL,
            f"CoS decides {gains['cos']:.1f} times as fast as 0.1.0 (the goal is {GOAL:.1f}), "
            f"`auto` {gains['auto']:.1f} times.",
        ),
        Verdict(
            many / few <= GROWTH,
            f"a slot costs {many / few:.1f} times as much with {MANY**2:,} cells in use as with "
            f"{FEW**2:,}; the goal is at most {GROWTH:.0f}.",
        ),
    ]


def _gain(timings: dict[str, Timing], name: str) -> float:
    return timings[f"{name}: 0.1.0"].best / timings[f"{name}: now"].best


def _row(name: str, timings: dict[str, Timing], slots: int) -> Row:
    timing = timings[name]
    job = name.removesuffix(": now")
    ratio = 1 / _gain(timings, job) if name.endswith(": now") else None
    learner_slots = network.SITES * slots
    rate = f"{short(learner_slots / timing.best / 1e6)} M learner-slots/s"
    return Row(name, 1e9 * timing.best / learner_slots, "ns", timing.over_best, ratio, rate)


def _job(preset: str, slots: int) -> Callable[[ModuleType | None], float]:
    """Return what times the network of the replay figures under a preset.

    What 0.1.0 called `auto` is `two-sizes` now.
    """
    recorded = network.draw(slots)
    options = {"slices": 12} if preset == "cos" else {}
    now = load(network.config(preset=preset, **options))
    former = load(network.config(preset="two-sizes")) if preset == "auto" else now
    stream = (recorded.contexts, recorded.predictions, recorded.labels)

    def run(old: ModuleType | None) -> float:
        return _run(_arena(former if old else now, 1, old), stream, 0)

    return run


def _many(side: int, slots: int) -> Callable[[ModuleType | None], float]:
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

    def run(old: ModuleType | None) -> float:
        return _run(_arena(setup, 2, old), stream, side * side)

    return run


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
        trace = DecisionColumns(*columns, np.empty(0, np.int32).data)
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


def _arena(setup: NetworkConfig, width: int, old: ModuleType | None) -> Any:
    """Return the network before its first slot, with the kernel of 0.1.0 or that of today."""
    (policy,) = setup.policies(width)
    clock = (old or kernel).Clock(policy.scales(), policy.powers())
    ledgers, seats = [], []
    for position, site in enumerate(setup.sites):
        rule = policy.rule(functions=len(site.functions), costs=site.costs, position=position)
        table = old.Table(clock, _old_rule(rule)) if old else kernel.table_of(clock, rule)
        spaces = (tuple(range(width)),)
        ledgers.append((old or kernel).Ledger([table], (0,), spaces))
        seats.append(Seat(site.behind, (-1,) * len(site.behind)))
    return (old or kernel).Arena(ledgers, seats, len(seats), None)


def _old_rule(rule: Rule) -> Any:
    from frozen import kernel_records as records

    told = {name: getattr(rule, name) for name in records.Rule.__dataclass_fields__}
    if rule.index is not None:
        told["index"] = records.Index(**msgspec.structs.asdict(rule.index))
    return records.Rule(**told)


def _method(slots: int) -> str:
    return (
        f"CPU time per learner-slot of `Arena.run`: {slots:,} slots, {network.SITES} learners with "
        "2 functions each, every label comes at once. Both kernels are compiled on this "
        "machine with the same compiler and take turns. `cos`, `two-sizes` and `auto`: one "
        "context, the stream of the replay figures; 0.1.0 called `two-sizes` `auto`. Cells: a "
        "grid over two contexts, every cell used once before, then contexts at random. The C loop "
        "adds to four counters in the row of each learner and slot, which it is told: the least "
        "that memory allows. Ratios are to 0.1.0."
    )
