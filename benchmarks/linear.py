"""The default policy with many contexts: decisions with their labels, beside linear bandits."""

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import numpy as np
from figures import Figure, Row, Verdict, short
from river import bandit
from timing import Timing, interleave

from covey.config import load
from covey.data.logs import EncodedLog
from covey.replay.engine import ReplayEngine

NAME = "linear"
TITLE = "Many contexts, a decision and its label"
FUNCTIONS = 8
# Coordinates, with the most microseconds that a decision and its label may take.
CASES = {8: None, 32: 25.0}
SLOTS = 1_000
WARM = 4_000  # slots before the measured ones of covey, which measures the first, too
ROUNDS = {"full": 10, "quick": 3}
METHOD = (
    f"CPU time per slot of one site with {FUNCTIONS} functions: the choice by a context, and the "
    f"label of what was chosen; {SLOTS:,} slots after {WARM:,}, and the first {SLOTS:,}. The peers "
    f"play the first {SLOTS:,}: LinUCB in numpy, with an inverse per function and rank-one "
    "updates, on as many features as covey; and LinUCBDisjoint of River on the contexts. The "
    "algorithms differ, and MABWiser and Vowpal Wabbit are not installed with the checks."
)


def measure(effort: str) -> Figure:
    """Time each policy in each case."""
    candidates: dict[str, Callable[[], float]] = {}
    for dimension in CASES:
        candidates[f"{dimension} contexts, first slots"] = partial(_covey, dimension, 0)
        candidates[f"{dimension} contexts"] = partial(_covey, dimension, WARM)
        candidates[f"{dimension} contexts, numpy"] = partial(_numpy, dimension)
        candidates[f"{dimension} contexts, River"] = partial(_river, dimension)
    timings = interleave(ROUNDS[effort], candidates)
    return Figure(NAME, TITLE, METHOD, [*map(_row, timings.items())], _verdicts(timings))


def _row(item: tuple[str, Timing]) -> Row:
    name, timing = item
    return Row(name, 1e6 * timing.best / SLOTS, "us", timing.over_best)


def _verdicts(timings: dict[str, Timing]) -> list[Verdict]:
    verdicts = []
    for dimension, most in CASES.items():
        if most is not None:
            name = f"{dimension} contexts, first slots"
            cost = 1e6 * timings[name].best / SLOTS
            sentence = f"{short(cost)} us with {name}; the goal is at most {most} us."
            verdicts.append(Verdict(cost <= most, sentence))
    return verdicts


def stream(dimension: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return contexts, and gains of functions whose accuracy depends on these."""
    rng = np.random.default_rng(dimension)
    contexts = rng.random((slots, dimension))
    slopes = rng.normal(size=(dimension, FUNCTIONS)) / np.sqrt(dimension)
    accuracy = 0.5 + np.tanh((contexts - 0.5) @ slopes * 3) / 2
    return contexts, (rng.random((slots, FUNCTIONS)) < accuracy).astype(np.int32)


def _covey(dimension: int, warm: int) -> float:
    contexts, gains = stream(dimension, warm + SLOTS)
    setup = load({"learner": [{"name": "site", "functions": [f"f{k}" for k in range(FUNCTIONS)]}]})
    engine = ReplayEngine(setup, setup.sites, dimension, [0, 1])
    if warm:
        engine.play(_log(contexts[:warm], gains[:warm]))
    log = _log(contexts[warm:], gains[warm:])
    begin = process_time()
    engine.play(log)
    return process_time() - begin


def _log(contexts: np.ndarray, gains: np.ndarray) -> EncodedLog:
    """Return rows whose label is 1, so that a function predicts its gain."""
    return EncodedLog(
        contexts=contexts.reshape(-1).data,
        predictions=np.ascontiguousarray(gains.T).data,
        labels=np.ones(len(gains), np.int32).data,
        at=None,
        delays=None,
    )


def _numpy(dimension: int) -> float:
    size = 1 + dimension + 64  # as many features as the default policy has
    points, gains = stream(size, SLOTS)
    inverses = np.tile(np.eye(size) / 4, (FUNCTIONS, 1, 1))
    weights = np.zeros((FUNCTIONS, size))
    begin = process_time()
    for point, gain in zip(points, gains, strict=True):
        spread = inverses @ point
        widths = np.sqrt(spread @ point)
        arm = int((weights @ point + 0.1 * widths).argmax())
        scale = 0.25 + spread[arm] @ point
        error = gain[arm] - 0.5 - weights[arm] @ point
        weights[arm] += spread[arm] * (error / scale)
        inverses[arm] -= np.outer(spread[arm], spread[arm] / scale)
    return process_time() - begin


def _river(dimension: int) -> float:
    points, gains = stream(dimension, SLOTS)
    contexts: list[dict[Any, float]] = [dict(enumerate(point)) for point in points.tolist()]
    policy = bandit.LinUCBDisjoint(seed=1)
    arms: list[Any] = list(range(FUNCTIONS))
    begin = process_time()
    for context, gain in zip(contexts, gains.tolist(), strict=True):
        arm = policy.pull(arms, context=context)
        policy.update(arm, context, gain[arm])  # type: ignore[no-untyped-call]
    return process_time() - begin
