"""covey as a classifier of scikit-learn: its own checks, names, clones and pickles."""

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import Perceptron, SGDClassifier
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from covey.errors import ConfigError
from covey.sklearn import CoveyClassifier

# Checks that are not run, and why.
SKIPPED = {"check_array_api_input": "scikit-learn runs it only with SCIPY_ARRAY_API set"}


def test_every_check_of_scikit_learn_passes() -> None:
    found = check_estimator(CoveyClassifier(), on_fail=None, on_skip=None)
    others = {one["check_name"] for one in found if one["status"] != "passed"}

    assert others == set(SKIPPED)
    assert Counter(one["status"] for one in found)["passed"] >= 54


def test_it_works_in_a_pipeline_and_in_cross_validation() -> None:
    rows, labels = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(rows))

    scores = cross_val_score(
        make_pipeline(StandardScaler(), CoveyClassifier()), rows[order], labels[order], cv=3
    )

    assert scores.mean() > 0.85


def stream(count: int = 400) -> tuple[pd.DataFrame, Any]:
    """Return rows whose label is the sign of `x` in one half of the hours, and not in the other."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=count), "hour": rng.uniform(0, 24, count)})
    labels = np.where((frame["x"] > 0) == (frame["hour"] < 12), "up", "down")
    return frame, labels


class Sign(SGDClassifier):
    """A model that answers with the sign of the first column, or the opposite."""

    def __init__(self, is_opposite: bool = False) -> None:
        super().__init__()
        self.is_opposite = is_opposite

    def predict(self, rows: Any) -> Any:
        return ((rows[:, 0] > 0) != self.is_opposite).astype(int)


def test_another_model_answers_in_another_region_of_the_contexts() -> None:
    frame, labels = stream()
    model = CoveyClassifier(
        {"sign": Sign(), "opposite": Sign(is_opposite=True)},
        context=[{"column": "hour", "scale": "linear", "low": 0, "high": 24}],
        policy={"preset": "cos", "slices": 2},
    ).fit(frame, labels)

    assert list(model.feature_names_in_) == ["x", "hour"]
    assert model.score(frame, labels) > 0.95
    best = model.predict_proba(frame).argmax(axis=1)
    assert model.classes_[best].tolist() == model.predict(frame).tolist()


def test_partial_fit_continues_and_fit_begins_again() -> None:
    frame, labels = stream()
    model = CoveyClassifier()
    for part in np.array_split(np.arange(len(frame)), 8):
        model.partial_fit(frame.iloc[part], labels[part], classes=["down", "up"])
    once = model.predict_proba(frame)

    assert set(model.classes_) == {"down", "up"}
    np.testing.assert_allclose(once.sum(axis=1), 1)
    again = CoveyClassifier().fit(frame, labels).predict_proba(frame)
    np.testing.assert_array_equal(model.fit(frame, labels).predict_proba(frame), again)


def test_clones_and_pickles_answer_the_same() -> None:
    frame, labels = stream()
    given = {"perceptron": Perceptron(), "bayes": GaussianNB()}
    model = CoveyClassifier(given, context=None).fit(frame, labels)
    other = pickle.loads(pickle.dumps(model))  # noqa: S301 - written above

    np.testing.assert_array_equal(other.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(
        clone(model).fit(frame, labels).predict(frame), model.predict(frame)
    )
    assert not hasattr(given["bayes"], "classes_")


def test_mistakes_get_a_sentence() -> None:
    frame, labels = stream(40)

    with pytest.raises(ConfigError, match="'tree' is a DecisionTreeClassifier without partial_fit"):
        CoveyClassifier({"tree": DecisionTreeClassifier()}).fit(frame, labels)
    with pytest.raises(ConfigError, match="the first partial_fit needs classes"):
        CoveyClassifier().partial_fit(frame, labels)
    model = CoveyClassifier().partial_fit(frame, labels, classes=["down", "up"])
    with pytest.raises(ConfigError, match="'left' is not one of the classes"):
        model.partial_fit(frame, np.where(labels == "up", "left", labels))


def test_fitted_models_are_chosen_among_and_stay_as_they_are() -> None:
    frame, labels = stream(800)
    by_day = [
        DecisionTreeClassifier(random_state=0).fit(frame[rows], labels[rows])
        for rows in (frame["hour"] < 12, frame["hour"] >= 12)
    ]
    day = {"column": "hour", "scale": "linear", "low": 0, "high": 24}
    models = {"morning": by_day[0], "evening": by_day[1]}
    before = pickle.dumps(models)

    choice = CoveyClassifier(models, context=[day]).fit(frame, labels)

    assert choice.score(frame, labels) > 0.9 > max(tree.score(frame, labels) for tree in by_day)
    assert (choice.classes_[choice.predict_proba(frame).argmax(1)] == choice.predict(frame)).all()
    assert pickle.dumps(models) == before


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ([GaussianNB()], "give a dict from names to models"),
        ({"tree": DecisionTreeClassifier()}, "fit it first"),
        ({"tree": DecisionTreeClassifier().fit([[0], [1]], ["x", "y"])}, "not one of the classes"),
    ],
)
def test_models_that_cannot_be_chosen_are_refused(models: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        CoveyClassifier(models).fit([[0.0], [1.0]], ["up", "down"])
