"""What is run: windows of a stream, the functions of four learners, and the cases played on them.

The paper's own window was chosen by its outcome. The others are chosen by rules that do not use any
prediction: they show how far the findings carry. A prepared window is a file that worker processes
read, so that one process reads the stream and trains the functions.
"""

import hashlib
import io
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from covey.errors import DataError
from covey.files import replace
from reproduction.data import LEFT_OUT, Floats, LabelledStream, Labels
from reproduction.models import (
    KINDS,
    LAST_LABEL,
    SETS,
    SLOTS,
    START,
    TRAINING_ROWS,
    PaperFunction,
    PredictionCache,
)

FEWEST_ATTACKS, MOST_ATTACKS = 46, 48  # percent; the paper's test data have 47
ELECTRICITY_ROWS = 1_000  # to train each function
ELECTRICITY_STEP = 2_400  # rows from one start to the next
ELECTRICITY_STARTS = 8


class Trial(NamedTuple):
    """A window of a stream, and eight functions, two for each of four learners."""

    name: str
    functions: tuple[PaperFunction, ...]
    start: int
    slots: int = SLOTS


def paper_trials() -> list[Trial]:
    """Return the paper's two sets of functions on its test window."""
    return [Trial(name, functions, START) for name, functions in SETS.items()]


def other_window_trials(stream: LabelledStream) -> list[Trial]:
    """Return both sets of functions on other windows with the paper's share of attacks.

    A window is the middle one of its group, if it shares no row with the paper's window. The six
    functions that are trained are so on rows before the window, at even distances, in the order
    of the paper's table; in S2 two of them toss coins instead.
    """
    starts = [
        (int(group[0]) + int(group[-1])) // 2
        for group in window_groups(stream.labels)
        if group[0] >= TRAINING_ROWS and (group[-1] + SLOTS <= START or group[0] >= START + SLOTS)
    ]
    return [
        Trial(f"{name} from row {start}", functions_before(start, functions), start)
        for start in starts
        for name, functions in SETS.items()
    ]


def check_window(trial: Trial, stream: LabelledStream, slots: int) -> None:
    """Raise `DataError` if a stream does not reach to the end of a trial's window."""
    end = trial.start + slots
    if end > len(stream):
        raise DataError(
            f"the window of {trial.name} goes from row {trial.start:,} to {end - 1:,}, but "
            f"{stream.file} ends with row {len(stream) - 1:,}; give a file that holds them all"
        )


def window_groups(labels: Labels, *, slots: int = SLOTS) -> list[npt.NDArray[np.int64]]:
    """Return the starts of all windows with 46 to 48 % attacks, neighbours in one group."""
    if len(labels) < slots:
        return []
    passed = np.concatenate([[0], np.cumsum(labels, dtype=np.int64)])
    attacks = passed[slots:] - passed[:-slots]
    is_wanted = (100 * attacks >= FEWEST_ATTACKS * slots) & (100 * attacks <= MOST_ATTACKS * slots)
    starts = np.flatnonzero(is_wanted)
    return np.split(starts, np.flatnonzero(np.diff(starts) > 1) + 1) if len(starts) else []


def functions_before(start: int, functions: tuple[PaperFunction, ...]) -> tuple[PaperFunction, ...]:
    """Return the functions trained on rows before `start`, from the first rows to the last."""
    trained = [function for function in SETS["S1"] if function.kind in KINDS]
    room = start - TRAINING_ROWS
    segment = {
        function: place * room // (len(trained) - 1) for place, function in enumerate(trained)
    }
    return tuple(function._replace(start=segment.get(function, 0)) for function in functions)


def electricity_trials() -> list[Trial]:
    """Return eight windows of the Electricity stream, with functions trained on its first rows.

    The first 8,000 rows are eight segments, one for each function; windows start behind them,
    2,400 rows apart, and so overlap.
    """
    functions = tuple(
        PaperFunction(
            f"{kind} {place + 1}", kind, start=place * ELECTRICITY_ROWS, rows=ELECTRICITY_ROWS
        )
        for place, kind in enumerate([*KINDS, *KINDS[:2]])
    )
    first = len(functions) * ELECTRICITY_ROWS
    starts = (first + step * ELECTRICITY_STEP for step in range(ELECTRICITY_STARTS))
    return [Trial(f"Electricity from row {start}", functions, start) for start in starts]


def electricity_with_last_label() -> list[Trial]:
    """Return the same windows, but the last learner's last function repeats the last label."""
    return [
        trial._replace(
            name=f"{trial.name} with the last label",
            functions=(*trial.functions[:-1], LAST_LABEL),
        )
        for trial in electricity_trials()
    ]


def previous_label(stream: LabelledStream, start: int, slots: int) -> Floats:
    """Return the label of the previous slot, and 0 in the first slot."""
    labels = stream.labels_of(start, slots)
    return np.concatenate([[0.0], labels[:-1].astype(np.float64)])


def source_bytes(stream: LabelledStream, start: int, slots: int) -> Floats:
    """Return the bytes that the source sent, scaled to the range of the window."""
    return _ranged(stream.column("src_bytes", start, slots))


def log_source_bytes(stream: LabelledStream, start: int, slots: int) -> Floats:
    """Return the logarithm of one plus the bytes that the source sent, scaled likewise."""
    return _ranged(np.log1p(stream.column("src_bytes", start, slots)))


def time(stream: LabelledStream, start: int, slots: int) -> Floats:
    """Return the share of the window up to and including this slot."""
    stream.labels_of(start, slots)
    return np.arange(1, slots + 1) / slots


def hour(stream: LabelledStream, start: int, slots: int) -> Floats:
    """Return the hour of the day, which the Electricity stream holds from 0 to 1."""
    return stream.column("hour", start, slots)


# By the paper's names. The paper scales its contexts and does not say how: A2 has two readings.
CONTEXTS: dict[str, Callable[[LabelledStream, int, int], Floats]] = {
    "A1": previous_label,
    "A2": source_bytes,
    "A2 log": log_source_bytes,
    "A3": time,
    "hour": hour,
}


def _ranged(values: Floats) -> Floats:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros(len(values))


TRAINING = 20_000  # rows before a window, for what the paper trains before it tests
_NOISY = "noisy"


class PreparedWindow(NamedTuple):
    """A window, ready to be replayed."""

    labels: Labels
    answers: Labels  # function, slot -> 0 or 1; unused for random and noisy functions
    coins: tuple[int, ...]  # indices of the random functions
    noise: tuple[float, ...]  # per function, its random error rate; -1: not a noisy function
    contexts: Mapping[str, Floats]
    labels_before: Labels
    answers_before: Labels

    def predictions(self, seed: int, functions: int) -> Labels:
        """Return predictions of the first `functions` functions; `seed` sets the random ones."""
        predictions = self.answers.copy()
        # Seed 0 gives the random predictions of `PredictionCache`.
        tosses = np.random.default_rng(seed + 1).integers(0, 2, predictions.shape)
        for toss, place in zip(tosses, self.coins, strict=False):
            predictions[place] = toss
        slips = np.random.default_rng([seed, len(predictions)]).random(predictions.shape)
        for place, rate in enumerate(self.noise):
            if rate >= 0:
                predictions[place] = self.labels ^ (slips[place] < rate)
        return predictions[:functions]

    def predictions_before(self, seed: int, functions: int) -> Labels:
        """Return the predictions in the rows before the window, with other random numbers."""
        before = self._replace(labels=self.labels_before, answers=self.answers_before)
        return before.predictions(seed + _OTHER_COINS, functions)


_OTHER_COINS = 1_000


def noisy_trials() -> list[Trial]:
    """Return the two readings of the paper's table of learners, on its window.

    Both take functions that err by chance, as often as a table says that the paper left out. It is
    the last learner only in "hybrid", which has the paper's second set otherwise, and all of them
    in "synthetic".
    """
    rates = [PaperFunction(key[2], f"{_NOISY} {number.value}") for key, number in LEFT_OUT.items()]
    _, second = paper_trials()
    return [
        second._replace(name="hybrid", functions=(*second.functions[:6], *rates[6:])),
        second._replace(name="synthetic", functions=tuple(rates)),
    ]


def prepare_window(
    trial: Trial, stream: LabelledStream, cache: PredictionCache, folder: Path, *, slots: int
) -> None:
    """Write the prepared window of a trial's first `slots` to `folder`, unless it exists."""
    path = window_path(folder, trial.name, slots)
    if path.is_file():
        return
    kinds = [function.kind for function in trial.functions]
    plain = [f._replace(kind="random") if f.kind.startswith(_NOISY) else f for f in trial.functions]
    before = TRAINING if trial.start >= TRAINING else 0
    arrays = dict(
        labels=stream.labels_of(trial.start, slots),
        answers=cache.predict(plain, start=trial.start, slots=slots),
        coins=np.array([place for place, kind in enumerate(kinds) if kind == "random"], np.int64),
        noise=np.array([_rate(kind) for kind in kinds]),
        labels_before=stream.labels[trial.start - before : trial.start],
        answers_before=cache.predict(plain, start=trial.start - before, slots=before)
        if before
        else np.empty((len(plain), 0), np.int8),
        **_contexts(stream, trial.start, slots),
    )
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type] # taken for the flag after them
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, content.getvalue())


@lru_cache(maxsize=8)
def load_window(content: bytes, slots: int) -> PreparedWindow:
    """Return the window in the file that `prepare_window` has written."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        contexts = {name: file[_field(name)] for name in CONTEXTS if _field(name) in file}
        return PreparedWindow(
            labels=file["labels"],
            answers=file["answers"],
            coins=tuple(file["coins"].tolist()),
            noise=tuple(file["noise"].tolist()),
            contexts={**contexts, "none": np.empty((slots, 0))},
            labels_before=file["labels_before"],
            answers_before=file["answers_before"],
        )


def window_path(folder: Path, trial: str, slots: int) -> Path:
    """Return the path of a trial's prepared window."""
    key = hashlib.sha256(json.dumps([trial, slots]).encode()).hexdigest()[:8]
    name = re.sub(r"\W+", "-", trial.lower())
    return folder / "windows" / f"{name}-{slots}-{key}.npz"


def _contexts(stream: LabelledStream, start: int, slots: int) -> dict[str, Floats]:
    names = [name for name in CONTEXTS if _NEEDS.get(name, stream.names[0]) in stream.names]
    return {_field(name): CONTEXTS[name](stream, start, slots)[:, None] for name in names}


# Context -> the column that it needs.
_NEEDS = {"A2": "src_bytes", "A2 log": "src_bytes", "hour": "hour"}


def _field(context: str) -> str:
    return f"context_{context}"


def _rate(kind: str) -> float:
    noisy, _, rate = kind.partition(" ")
    return float(rate) / 100 if noisy == _NOISY else -1.0


FUNCTIONS = 2  # of each learner
RIVER = ("river-epsilon-greedy", "river-ucb", "river-thompson", "river-forest")
Arrivals = Literal["all", "first"]
Does = Literal["replay", "ensemble", "yardsticks", "boosting", "river", "bumps"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One replay of an experiment: functions, context, policy and options."""

    trial: str
    context: str = "none"
    does: Does = "replay"
    policy: dict[str, Any] = {}
    seed: int = 0  # of coins, of noise, and of labels that are seen by chance
    slots: int = SLOTS
    learners: int = 4
    arrivals: Arrivals = "all"  # which learners receive the instances
    price: float = 0.0  # of asking any peer
    labels: float = 1.0  # share that is seen
    shown: Literal["data", "context"] = "data"  # to peers that are asked
    is_greedy: bool = False  # helpers do not explore
    locks_in: bool = False  # peers that see the context store only their own right answers
    weights: Literal["global", "cell"] = "global"  # of an ensemble

    def key(self) -> str:
        """Return the name of its result file."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:24]


def config(case: Case) -> dict[str, Any]:
    """Return the case as the configuration of a replay."""
    places = range(1, case.learners + 1)
    learners = [_learner(case, place, [str(k) for k in places if k != place]) for place in places]
    policy = {"seed": case.seed, **case.policy}
    if policy.get("preset") == "cos":  # the others need no horizon
        policy["horizon"] = case.slots
    table: dict[str, Any] = {"data": {"label": "label"}, "policy": policy, "learner": learners}
    if case.does == "ensemble":
        table["ensemble"] = {"weights": case.weights, "base": 0}
    return table


def _learner(case: Case, place: int, others: list[str]) -> dict[str, Any]:
    prices = dict.fromkeys(others, case.price)
    # As the published figures have it, only the first learner misses labels.
    is_missing = place == 1 or case.policy.get("reading") != "paper"
    return {
        "name": str(place),
        "functions": [f"{place}.{k + 1}" for k in range(FUNCTIONS)],
        "arrivals": place == 1 or case.arrivals == "all",
        "label-probability": case.labels if is_missing else 1.0,
        "peers": prices if case.shown == "data" else {},
        "context-peers": prices if case.shown == "context" else {},
    }


class CaseResult(msgspec.Struct, frozen=True):
    """The numbers of a finished case; curves are percentages in equal parts of the window."""

    case: Case
    numbers: dict[str, float]
    curves: dict[str, list[float]] = {}
