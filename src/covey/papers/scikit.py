"""The one file that names scikit-learn: functions trained by it, and data that it can fetch."""

import tempfile
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from covey.errors import MissingExtra

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.str_]
Labels = npt.NDArray[np.int8]


class Rows(NamedTuple):
    """Instances as functions see them: numbers, and words that are not numbers."""

    numbers: Floats  # row, column
    words: Words  # row, column


Predict = Callable[[Rows], Labels]


def release() -> str:
    """Return which release of scikit-learn is installed, or say which extra brings it."""
    try:
        import sklearn
    except ModuleNotFoundError:
        raise MissingExtra(
            "the paper's functions are trained by scikit-learn; install it with pip install "
            '"covey[sklearn]"'
        ) from None
    return str(sklearn.__version__)


def fetch_kdd() -> bytes:
    """Return the text of the 10 % file of KDD Cup 1999, fetched from the internet.

    scikit-learn keeps what it fetches as a pickle, so it is given a folder that is gone afterwards.
    Raises `OSError` where there is no internet.
    """
    release()
    from sklearn.datasets import fetch_kddcup99

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fetch_kddcup99(data_home=folder, percent10=True, n_retries=1, delay=0.1)
    return text_from(found.data, found.target)


def text_from(data: npt.NDArray[Any], labels: npt.NDArray[Any]) -> bytes:
    """Return the text that scikit-learn read such a table from: rates have two decimals."""
    columns = [_written(column) for column in (*data.T, labels)]
    return b"".join(b",".join(row) + b"\n" for row in zip(*columns, strict=True))


def _written(column: Iterable[Any]) -> list[bytes]:
    return [
        value
        if isinstance(value, bytes)
        else (b"%.2f" if isinstance(value, float) else b"%d") % value
        for value in column
    ]


def train(kind: str, rows: Rows, labels: Labels) -> Predict:
    """Return a function of this `kind`, one of `KINDS`, trained on rows labelled 0 or 1.

    Where only one label is to be seen there is nothing to learn: the function says it always.
    """
    release()
    seen = np.unique(labels)
    if len(seen) == 1:
        return lambda rows: np.full(len(rows.numbers), seen[0], np.int8)
    return _TRAINERS[kind](rows, labels)


class _Encoding:
    """How rows become numbers; a word that the training rows did not hold is none of the known."""

    def __init__(self, rows: Rows) -> None:
        from sklearn.preprocessing import StandardScaler

        self._known = [np.unique(column) for column in rows.words.T]
        self._scaler = StandardScaler().fit(self._flags(rows))

    def scaled(self, rows: Rows) -> Floats:
        """Return numbers and a column per known word, standardised by the training rows."""
        scaled: Floats = self._scaler.transform(self._flags(rows))
        return scaled

    def codes(self, rows: Rows) -> Floats:
        """Return numbers as they are, and words as their places among the known, 0 for none."""
        codes = [flags @ np.arange(1, flags.shape[1] + 1) for flags in self._is_known(rows)]
        return np.column_stack([rows.numbers, *codes])

    def _flags(self, rows: Rows) -> Floats:
        return np.column_stack([rows.numbers, *self._is_known(rows)])

    def _is_known(self, rows: Rows) -> list[npt.NDArray[np.bool_]]:
        return [
            column[:, None] == known
            for column, known in zip(rows.words.T, self._known, strict=True)
        ]


def _naive_bayes(rows: Rows, labels: Labels) -> Predict:
    from sklearn.naive_bayes import GaussianNB

    return _on_scaled(GaussianNB(), rows, labels)


def _logistic(rows: Rows, labels: Labels) -> Predict:
    from sklearn.linear_model import LogisticRegression

    return _on_scaled(LogisticRegression(C=1.0, max_iter=1_000), rows, labels)


def _voted_perceptron(rows: Rows, labels: Labels) -> Predict:
    return _on_scaled(VotedPerceptron(), rows, labels)


def _rbf_network(rows: Rows, labels: Labels) -> Predict:
    return _on_scaled(RbfNetwork(), rows, labels)


def _j48(rows: Rows, labels: Labels) -> Predict:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(criterion="entropy", min_samples_leaf=2, random_state=0)
    return _on_codes(tree, rows, labels)


def _random_tree(rows: Rows, labels: Labels) -> Predict:
    from sklearn.tree import DecisionTreeClassifier

    # As many features to choose from as Weka takes of 41: one more than their logarithm to base 2.
    features = min(6, rows.numbers.shape[1] + rows.words.shape[1])
    tree = DecisionTreeClassifier(criterion="entropy", max_features=features, random_state=1)
    return _on_codes(tree, rows, labels)


_TRAINERS: dict[str, Callable[[Rows, Labels], Predict]] = {
    "naive-bayes": _naive_bayes,
    "logistic": _logistic,
    "voted-perceptron": _voted_perceptron,
    "rbf-network": _rbf_network,
    "j48": _j48,
    "random-tree": _random_tree,
}
KINDS = tuple(_TRAINERS)


def _on_scaled(model: Any, rows: Rows, labels: Labels) -> Predict:
    encoding = _Encoding(rows)
    model.fit(encoding.scaled(rows), labels)
    return lambda rows: np.asarray(model.predict(encoding.scaled(rows)), np.int8)


def _on_codes(model: Any, rows: Rows, labels: Labels) -> Predict:
    encoding = _Encoding(rows)
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
