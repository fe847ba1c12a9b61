"""The functions of the paper's learners: trained by scikit-learn once, their predictions kept.

Training rows and test window are those for which the error of each function is the printed one.
They were found by a search for these errors, so they show nothing beyond them; the paper does not
say which rows it used.
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from covey.files import replace
from reproduction.data import Floats, Instances, LabelledStream, Labels, sklearn_version

Predict = Callable[[Instances], Labels]


def train(kind: str, rows: Instances, labels: Labels) -> Predict:
    """Return a function of this `kind`, one of `KINDS`, trained on rows labelled 0 or 1.

    Where only one label is to be seen there is nothing to learn: the function says it always.
    """
    sklearn_version()
    seen = np.unique(labels)
    if len(seen) == 1:
        return lambda rows: np.full(len(rows.numbers), seen[0], np.int8)
    return _TRAINERS[kind](rows, labels)


class _FeatureEncoder:
    """How rows become numbers; a word that the training rows did not hold is none of the known."""

    def __init__(self, rows: Instances) -> None:
        from sklearn.preprocessing import StandardScaler

        self._known = [np.unique(column) for column in rows.words.T]
        self._scaler = StandardScaler().fit(self._flags(rows))

    def scaled(self, rows: Instances) -> Floats:
        """Return numbers and a column per known word, standardised by the training rows."""
        scaled: Floats = self._scaler.transform(self._flags(rows))
        return scaled

    def codes(self, rows: Instances) -> Floats:
        """Return numbers as they are, and words as their places among the known, 0 for none."""
        codes = [flags @ np.arange(1, flags.shape[1] + 1) for flags in self._is_known(rows)]
        return np.column_stack([rows.numbers, *codes])

    def _flags(self, rows: Instances) -> Floats:
        return np.column_stack([rows.numbers, *self._is_known(rows)])

    def _is_known(self, rows: Instances) -> list[npt.NDArray[np.bool_]]:
        return [
            column[:, None] == known
            for column, known in zip(rows.words.T, self._known, strict=True)
        ]


def _naive_bayes(rows: Instances, labels: Labels) -> Predict:
    from sklearn.naive_bayes import GaussianNB

    return _on_scaled(GaussianNB(), rows, labels)


def _logistic(rows: Instances, labels: Labels) -> Predict:
    from sklearn.linear_model import LogisticRegression

    return _on_scaled(LogisticRegression(C=1.0, max_iter=1_000), rows, labels)


def _voted_perceptron(rows: Instances, labels: Labels) -> Predict:
    return _on_scaled(VotedPerceptron(), rows, labels)


def _rbf_network(rows: Instances, labels: Labels) -> Predict:
    return _on_scaled(RbfNetwork(), rows, labels)


def _j48(rows: Instances, labels: Labels) -> Predict:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(criterion="entropy", min_samples_leaf=2, random_state=0)
    return _on_codes(tree, rows, labels)


def _random_tree(rows: Instances, labels: Labels) -> Predict:
    from sklearn.tree import DecisionTreeClassifier

    # As many features to choose from as Weka takes of 41: one more than their logarithm to base 2.
    features = min(6, rows.numbers.shape[1] + rows.words.shape[1])
    tree = DecisionTreeClassifier(criterion="entropy", max_features=features, random_state=1)
    return _on_codes(tree, rows, labels)


_TRAINERS: dict[str, Callable[[Instances, Labels], Predict]] = {
    "naive-bayes": _naive_bayes,
    "logistic": _logistic,
    "voted-perceptron": _voted_perceptron,
    "rbf-network": _rbf_network,
    "j48": _j48,
    "random-tree": _random_tree,
}
KINDS = tuple(_TRAINERS)


def _on_scaled(model: Any, rows: Instances, labels: Labels) -> Predict:
    encoding = _FeatureEncoder(rows)
    model.fit(encoding.scaled(rows), labels)
    return lambda rows: np.asarray(model.predict(encoding.scaled(rows)), np.int8)


def _on_codes(model: Any, rows: Instances, labels: Labels) -> Predict:
    encoding = _FeatureEncoder(rows)
    model.fit(encoding.codes(rows), labels)
    return lambda rows: np.asarray(model.predict(encoding.codes(rows)), np.int8)


class VotedPerceptron:
    """The voted perceptron of Freund and Schapire: linear, with a bias, one pass over the rows.

    Every vector that the perceptron went through votes, with as many votes as rows it survived.
    """

    def fit(self, points: Floats, labels: Labels) -> None:
        """Go through the rows once."""
        vector, vectors, votes = np.zeros(points.shape[1] + 1), [], []
        survived = 0
        for point, sign in zip(_with_bias(points), 2.0 * labels - 1.0, strict=True):
            if sign * (vector @ point) > 0:
                survived += 1
                continue
            vectors.append(vector)
            votes.append(survived)
            vector, survived = vector + sign * point, 1
        self._vectors = np.array([*vectors, vector])
        self._votes = np.array([*votes, survived], np.float64)

    def predict(self, points: Floats) -> Labels:
        """Return 1 where the votes for it are more than those against."""
        sides = np.sign(_with_bias(points) @ self._vectors.T)
        said: Labels = (sides @ self._votes > 0).astype(np.int8)
        return said


class RbfNetwork:
    """Gaussians around two centres for each label, and a logistic regression on top of them."""

    def fit(self, points: Floats, labels: Labels) -> None:
        """Place the centres by k-means, each as wide as its rows are spread."""
        from sklearn.linear_model import LogisticRegression

        clusters = [_clusters(points[labels == label]) for label in (0, 1)]
        self._centres = np.concatenate([centres for centres, _ in clusters])
        self._spreads = np.concatenate([spreads for _, spreads in clusters])
        self._top = LogisticRegression(C=1e4, max_iter=1_000).fit(self._bumps(points), labels)

    def predict(self, points: Floats) -> Labels:
        """Return the likelier label."""
        said: Labels = self._top.predict(self._bumps(points))
        return said

    def _bumps(self, points: Floats) -> Floats:
        distances = [((points - centre) ** 2).sum(axis=1) for centre in self._centres]
        bumps: Floats = np.exp(-np.stack(distances, axis=1) / (2.0 * self._spreads))
        return bumps


def _clusters(points: Floats) -> tuple[Floats, Floats]:
    """Return two centres, one where all points are the same, and the spread of their points."""
    from sklearn.cluster import KMeans

    count = min(2, len(np.unique(points, axis=0)))
    found = KMeans(count, n_init=10, random_state=0).fit(points)
    centres: Floats = found.cluster_centers_
    squares = ((points - centres[found.labels_]) ** 2).sum(axis=1)
    spreads = [squares[found.labels_ == place].mean() for place in range(count)]
    return centres, np.maximum(spreads, _LEAST_SPREAD)


_LEAST_SPREAD = 1e-6


def _with_bias(points: Floats) -> Floats:
    return np.column_stack([points, np.ones(len(points))])


VERSION = 1  # of what is kept; raise it when functions are made otherwise
START, SLOTS = 80_553, 20_000  # the test window
TRAINING_ROWS = 5_000


class PaperFunction(NamedTuple):
    """A function as the paper names it: how it is made, and from which rows if it is trained."""

    name: str
    kind: str  # one of KINDS, or "always-0", "always-1", "random", "last-label"
    start: int = 0
    rows: int = TRAINING_ROWS


NAIVE_BAYES = PaperFunction("Naive Bayes", "naive-bayes", 27_000)
LOGISTIC = PaperFunction("Logistic", "logistic", 7_000)
VOTED_PERCEPTRON = PaperFunction("Voted Perceptron", "voted-perceptron", 41_250)
RBF_NETWORK = PaperFunction("RBF Network", "rbf-network", 1_000)
J48 = PaperFunction("J48", "j48", 36_000)
RANDOM_TREE = PaperFunction("Random Tree", "random-tree", 17_000)
ALWAYS_0 = PaperFunction("Always 0", "always-0")
ALWAYS_1 = PaperFunction("Always 1", "always-1")
RANDOM = PaperFunction("Random", "random")
LAST_LABEL = PaperFunction("Last label", "last-label")

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


class PredictionCache:
    """What functions answer on a stream; what trained ones said is kept in `results`."""

    def __init__(
        self, stream: LabelledStream, *, results: Path | None = None, seed: int = 1
    ) -> None:
        self._stream = stream
        self._rows = lru_cache(maxsize=1)(stream.rows)  # all functions look at one window
        self._results = results
        self._seed = seed
        self._trained: dict[PaperFunction, Predict] = {}

    def predict(self, functions: Sequence[PaperFunction], *, start: int, slots: int) -> Labels:
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

    def error_rates(
        self, functions: Sequence[PaperFunction], *, start: int, slots: int
    ) -> list[float]:
        """Return the percentage of errors of each function in a window."""
        is_wrong = self.predict(functions, start=start, slots=slots) != self._stream.labels_of(
            start, slots
        )
        errors: list[float] = (100.0 * is_wrong.mean(axis=1)).tolist()
        return errors

    def _trained_answers(self, function: PaperFunction, start: int, slots: int) -> Labels:
        path = self._path(function, start, slots)
        kept = None if path is None else _load(path, slots)
        if kept is not None:
            return kept
        answers = self._predictor(function)(self._rows(start, slots))
        if path is not None:
            _save(path, answers)
        return answers

    def _predictor(self, function: PaperFunction) -> Predict:
        if function not in self._trained:
            rows = self._stream.rows(function.start, function.rows)
            labels = self._stream.labels_of(function.start, function.rows)
            self._trained[function] = train(function.kind, rows, labels)
        return self._trained[function]

    def _path(self, function: PaperFunction, start: int, slots: int) -> Path | None:
        """Return where these answers are kept: under all that they depend on."""
        if self._results is None:
            return None
        made_of = [VERSION, sklearn_version(), self._stream.sha256, *function[1:], start, slots]
        key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
        return self._results / f"predictions-{function.kind}-{start}-{key}.npz"


def _labels_before(stream: LabelledStream, start: int, slots: int) -> Labels:
    """Return the label of the row before each; 0 stands for that of the first row of all."""
    labels = stream.labels_of(max(0, start - 1), slots)
    return labels if start else np.concatenate([np.zeros(1, np.int8), labels[:-1]])


def _load(path: Path, slots: int) -> Labels | None:
    """Return the answers kept at `path`, or None where there are none or they are damaged."""
    try:
        file = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        answers: Labels = file["answers"]
    except (OSError, EOFError, LookupError, ValueError, zipfile.BadZipFile, zlib.error):
        return None
    is_whole = answers.shape == (slots,) and answers.dtype == np.int8
    return answers if is_whole else None


def _save(path: Path, answers: Labels) -> None:
    content = io.BytesIO()
    np.savez_compressed(content, answers=answers)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, content.getvalue())
