"""A network of recorded predictions, replayed from arrays, against a minimal C loop."""

from functools import partial
from time import process_time
from types import ModuleType
from typing import Any

import network
import numpy as np
from compiler import NoFloor, floor
from figures import Figure, Row, Verdict, short
from timing import Timing, interleave

from covey import replay
from covey.config import load
from covey.data.logs import EncodedLog
from covey.replay.engine import ReplayEngine

NAME = "replay"
TITLE = "Replay of a 4 x 2 network from arrays"
GOAL = 10e6  # learner-slots per second
SLOTS = {"full": 1_000_000, "quick": 200_000}
ROUNDS = {"full": 20, "quick": 5}
FLOOR = "minimal C loop"
COS = "covey.replay, CoS, 12 slices"


def measure(effort: str) -> Figure:
    """Time `covey.replay` and what lies below it."""
    recorded = network.draw(SLOTS[effort])
    cos, dcza = network.config(preset="cos", slices=12), network.config(preset="dcza")
    candidates = {
        COS: partial(_replay, cos, recorded),
        "covey.replay, DCZA": partial(_replay, dcza, recorded),
        "CoS without checks and codes": partial(_play, cos, recorded),
        "DCZA without checks and codes": partial(_play, dcza, recorded),
    }
    skipped = []
    try:
        candidates[FLOOR] = partial(_least, floor(), recorded)
    except NoFloor as error:
        skipped.append(Row(FLOOR, None, note=f"skipped: {error}"))
    timings = interleave(ROUNDS[effort], candidates)
    learner_slots = network.SITES * SLOTS[effort]
    rows = [_row(name, timings, learner_slots) for name in candidates]
    rate = learner_slots / timings[COS].best
    verdict = Verdict(
        rate >= GOAL,
        f"CoS replays {rate / 1e6:.1f} million learner-slots a second on one core; the goal is at "
        f"least {GOAL / 1e6:.0f} million.",
    )
    return Figure(NAME, TITLE, _method(effort), [*rows, *skipped], [verdict])


def _replay(config: dict[str, Any], recorded: network.Recorded) -> float:
    begin = process_time()
    trace = replay(
        config,
        predictions=recorded.predictions,
        labels=recorded.labels,
        contexts=recorded.contexts,
    )
    seconds = process_time() - begin
    assert len(trace) == network.SITES * len(recorded.labels)
    return seconds


def _play(config: dict[str, Any], recorded: network.Recorded, delay: int = 0) -> float:
    """Return the CPU time of the decisions alone; labels come `delay` slots late."""
    setup = load(config)
    log = EncodedLog(
        contexts=recorded.contexts.reshape(-1).data,
        predictions=recorded.predictions.astype(np.int32).data,
        labels=recorded.labels.astype(np.int32).data,
        at=None,
        delays=np.full(len(recorded.labels), delay, np.int64).data if delay else None,
    )
    begin = process_time()
    ReplayEngine(setup, setup.sites, 1, [0, 1]).play(log)
    return process_time() - begin


def _least(least: ModuleType, recorded: network.Recorded) -> float:
    contexts = recorded.contexts.reshape(-1)
    predictions = recorded.predictions.astype(np.int32)
    labels = recorded.labels.astype(np.int32)
    counters = np.zeros((network.SITES, 12, 2 * network.SITES, 2), np.int64)
    begin = process_time()
    least.replay(contexts, predictions, labels, counters)
    seconds = process_time() - begin
    assert counters[..., 0].sum() == network.SITES * len(labels)
    return seconds


def _row(name: str, timings: dict[str, Timing], learner_slots: int) -> Row:
    timing = timings[name]
    ratio = timing.best / timings[FLOOR].best if FLOOR in timings else None
    nanoseconds = 1e9 * timing.best / learner_slots
    rate = f"{short(learner_slots / timing.best / 1e6)} M learner-slots/s"
    return Row(name, nanoseconds, "ns", timing.over_best, ratio, rate)


def _method(effort: str) -> str:
    return (
        f"CPU time per learner-slot of {SLOTS[effort]:,} slots at {network.SITES} learners with 2 "
        "functions each, each may ask all others, every label comes at once, one context, Z1. "
        "The arrays hold NumPy's default integers. `covey.replay` is timed whole: reading the "
        "configuration, checking every context, label and prediction, turning them into codes, the "
        "decisions, the trace, and the names of the cells. The rows without checks and codes begin "
        "with arrays as the kernel takes them. The minimal C loop reads a context, finds the cell, "
        "reads a prediction and a label and adds to two counters: it decides nothing and writes no "
        "trace. Ratios are to that loop."
    )
