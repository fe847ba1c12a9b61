"""What replays are made of: labels, answers and contexts of a window, in a file that is kept.

Processes read it, so that the stream is read and the functions are trained in one of them only.
"""

import hashlib
import io
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from covey.files import replace
from covey.papers.contexts import CONTEXTS
from covey.papers.functions import Answers, Function
from covey.papers.printed import LEFT_OUT
from covey.papers.scikit import Floats, Labels
from covey.papers.streams import Stream
from covey.papers.trials import Trial, paper

TRAINING = 20_000  # rows before a window, for what the paper trains before it tests
_NOISY = "noisy"


class Material(NamedTuple):
    """A window, ready to be replayed."""

    labels: Labels
    answers: Labels  # function, slot -> 0 or 1; of coins and noisy functions they mean nothing
    coins: tuple[int, ...]  # which functions toss coins
    noise: tuple[float, ...]  # per function, how often it is wrong by chance; -1: it is no such
    contexts: Mapping[str, Floats]
    labels_before: Labels
    answers_before: Labels

    def said(self, seed: int, functions: int) -> Labels:
        """Return the answers of the first so many functions, chance being that of `seed`."""
        said = self.answers.copy()
        # The coins of seed 0 are those that `Answers` tosses by itself.
        tosses = np.random.default_rng(seed + 1).integers(0, 2, said.shape)
        for toss, place in zip(tosses, self.coins, strict=False):
            said[place] = toss
        slips = np.random.default_rng([seed, len(said)]).random(said.shape)
        for place, rate in enumerate(self.noise):
            if rate >= 0:
                said[place] = self.labels ^ (slips[place] < rate)
        return said[:functions]

    def said_before(self, seed: int, functions: int) -> Labels:
        """Return the answers in the rows before the window, with coins of their own."""
        before = self._replace(labels=self.labels_before, answers=self.answers_before)
        return before.said(seed + _OTHER_COINS, functions)


_OTHER_COINS = 1_000


def noisy_trials() -> list[Trial]:
    """Return the two readings of the paper's table of learners, on its window.

    Both take functions that err by chance, as often as a table says that the paper left out. It is
    the last learner only in "hybrid", which has the paper's second set otherwise, and all of them
    in "synthetic".
    """
    rates = [Function(key[2], f"{_NOISY} {number.value}") for key, number in LEFT_OUT.items()]
    _, second = paper()
    return [
        second._replace(name="hybrid", functions=(*second.functions[:6], *rates[6:])),
        second._replace(name="synthetic", functions=tuple(rates)),
    ]


def prepare(trial: Trial, stream: Stream, answers: Answers, folder: Path, *, slots: int) -> None:
    """Put the material of a trial's first `slots` into `folder`, unless it is there."""
    path = path_of(folder, trial.name, slots)
    if path.is_file():
        return
    kinds = [function.kind for function in trial.functions]
    plain = [f._replace(kind="random") if f.kind.startswith(_NOISY) else f for f in trial.functions]
    before = TRAINING if trial.start >= TRAINING else 0
    arrays = dict(
        labels=stream.labels_of(trial.start, slots),
        answers=answers.of(plain, start=trial.start, slots=slots),
        coins=np.array([place for place, kind in enumerate(kinds) if kind == "random"], np.int64),
        noise=np.array([_rate(kind) for kind in kinds]),
        labels_before=stream.labels[trial.start - before : trial.start],
        answers_before=answers.of(plain, start=trial.start - before, slots=before)
        if before
        else np.empty((len(plain), 0), np.int8),
        **_contexts(stream, trial.start, slots),
    )
    content = io.BytesIO()
    # The stubs take a name for the flag that follows the arrays.
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, content.getvalue())


@lru_cache(maxsize=8)
def load(folder: Path, trial: str, slots: int) -> Material:
    """Return what `prepare` has put there."""
    content = io.BytesIO(path_of(folder, trial, slots).read_bytes())
    with np.load(content, allow_pickle=False) as file:
        contexts = {name: file[_field(name)] for name in CONTEXTS if _field(name) in file}
        return Material(
            labels=file["labels"],
            answers=file["answers"],
            coins=tuple(file["coins"].tolist()),
            noise=tuple(file["noise"].tolist()),
            contexts={**contexts, "none": np.empty((slots, 0))},
            labels_before=file["labels_before"],
            answers_before=file["answers_before"],
        )


def path_of(folder: Path, trial: str, slots: int) -> Path:
    """Return where the material of a trial stands."""
    key = hashlib.sha256(json.dumps([trial, slots]).encode()).hexdigest()[:8]
    name = re.sub(r"\W+", "-", trial.lower())
    return folder / "material" / f"{name}-{slots}-{key}.npz"


def _contexts(stream: Stream, start: int, slots: int) -> dict[str, Floats]:
    names = [name for name in CONTEXTS if _NEEDS.get(name, stream.names[0]) in stream.names]
    return {_field(name): CONTEXTS[name](stream, start, slots)[:, None] for name in names}


# Context -> the column without which it is not to be had.
_NEEDS = {"A2": "src_bytes", "A2 log": "src_bytes", "hour": "hour"}


def _field(context: str) -> str:
    return f"context_{context}"


def _rate(kind: str) -> float:
    noisy, _, rate = kind.partition(" ")
    return float(rate) / 100 if noisy == _NOISY else -1.0
