"""The linear belief: decisions with their labels, beside a rank-one update in numpy."""

from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
from compiler import NoFloor, linear_loop
from figures import Figure, Row, Verdict, short, skipped
from timing import Timing, interleave

from covey.kernel.linear import FeatureMap, LinearBelief

NAME = "linear"
TITLE = "The linear belief, a decision and its label"
FUNCTIONS = 8
# Coordinates and cosines, with the most microseconds that a decision and its label may take.
CASES = {(8, 64): None, (32, 64): 25.0}
WARM, SLOTS = 4_000, 1_000  # slots before the measured ones, and these
ROUNDS = {"full": 20, "quick": 4}
METHOD = (
    f"CPU time per slot: the features of a context, the means of {FUNCTIONS} functions, "
    "the variances of the best two, the label of the best, and the renewals that are due; "
    f"{SLOTS:,} slots after {WARM:,}, and the first {SLOTS:,}. The peer is LinUCB in numpy with an "
    "inverse per function and rank-one updates, on as many features."
)


def measure(effort: str) -> Figure:
    """Time the loop for each case."""
    try:
        play = linear_loop().play
    except NoFloor as error:
        return skipped(NAME, TITLE, str(error))
    candidates: dict[str, Callable[[], float]] = {}
    for dimension, cosines in CASES:
        name = _name(dimension, cosines)
        candidates[f"{name}, first"] = partial(_linear, play, dimension, cosines, 0)
        candidates[name] = partial(_linear, play, dimension, cosines, WARM)
        candidates[f"{name}, numpy"] = partial(_peer, 1 + dimension + cosines)
    timings = interleave(ROUNDS[effort], candidates)
    return Figure(NAME, TITLE, METHOD, [*map(_row, timings.items())], _verdicts(timings))


def _name(dimension: int, cosines: int) -> str:
    return f"{dimension} coordinates, {cosines} cosines"


def _row(item: tuple[str, Timing]) -> Row:
    name, timing = item
    return Row(name, 1e6 * timing.best / SLOTS, "us", timing.over_best)


def _verdicts(timings: dict[str, Timing]) -> list[Verdict]:
    verdicts = []
    for (dimension, cosines), most in CASES.items():
        if most is not None:
            name = _name(dimension, cosines)
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


def _linear(play: Callable[..., None], dimension: int, cosines: int, warm: int) -> float:
    contexts, gains = stream(dimension, warm + SLOTS)
    belief = LinearBelief(FeatureMap(dimension, cosines=cosines), FUNCTIONS)
    if warm:
        play(belief, contexts[:warm], gains[:warm])
    begin = process_time()
    play(belief, contexts[warm:], gains[warm:])
    return process_time() - begin


def _peer(size: int) -> float:
    contexts, gains = stream(size, SLOTS)
    inverses = np.tile(np.eye(size) / 4, (FUNCTIONS, 1, 1))
    weights = np.zeros((FUNCTIONS, size))
    begin = process_time()
    for point, gain in zip(contexts, gains, strict=True):
        spread = inverses @ point
        widths = np.sqrt(spread @ point)
        arm = int((weights @ point + 0.1 * widths).argmax())
        scale = 0.25 + spread[arm] @ point
        error = gain[arm] - 0.5 - weights[arm] @ point
        weights[arm] += spread[arm] * (error / scale)
        inverses[arm] -= np.outer(spread[arm], spread[arm] / scale)
    return process_time() - begin
