"""covey as a classifier of River: its own checks, evaluation, pipelines and metrics."""

import pickle
from typing import Any

import pytest
from river import checks, datasets, evaluate, linear_model, metrics, naive_bayes, preprocessing

from covey.errors import ConfigError
from covey.river import CoveyClassifier

# Every check of River that applies to a classifier; none is left out.
CHECKS = [
    (number, check)
    for number, params in enumerate(CoveyClassifier._unit_test_params())
    for check in checks.yield_checks(CoveyClassifier(**params))
]


def linear() -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def two(**more: Any) -> CoveyClassifier:
    return CoveyClassifier({"bayes": naive_bayes.GaussianNB(), "linear": linear()}, **more)


@pytest.mark.parametrize(
    ("number", "check"), CHECKS, ids=[f"{number}-{check.__name__}" for number, check in CHECKS]
)
def test_a_check_of_river_passes(number: int, check: Any) -> None:
    params = list(CoveyClassifier._unit_test_params())[number]

    check(CoveyClassifier(**params))


def test_it_is_about_as_right_as_the_best_of_its_models() -> None:
    def score(model: Any) -> float:
        return float(
            evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy()).get()
        )

    assert score(two()) > max(score(naive_bayes.GaussianNB()), score(linear())) - 0.01


@pytest.mark.parametrize("metric", [metrics.ROCAUC(), metrics.MacroF1()])
def test_it_stands_last_in_a_pipeline_and_takes_late_labels(metric: Any) -> None:
    """A guess has a half of both."""
    model = preprocessing.StandardScaler() | two()

    evaluate.progressive_val_score(datasets.Phishing().take(200), model, metric, delay=10)

    assert 0.6 < metric.get() <= 1


class Always:
    """A model of River that always gives one answer, in which nothing is learnt."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self._multiclass = False

    def clone(self) -> "Always":
        return Always(self.answer)

    def predict_one(self, x: dict[str, float]) -> bool:
        return self.answer

    def predict_proba_one(self, x: dict[str, float]) -> dict[bool, float]:
        raise NotImplementedError

    def learn_one(self, x: dict[str, float], y: bool) -> None: ...


def test_another_model_answers_in_another_region_of_the_contexts() -> None:
    model = CoveyClassifier(
        {"no": Always(False), "yes": Always(True)},
        context=[{"column": "hour", "scale": "linear", "low": 0, "high": 24}],
        policy={"preset": "cos", "slices": 2},
    )
    for hour in range(24):
        model.learn_one({"hour": hour}, hour >= 12)

    assert [model.predict_one({"hour": hour}) for hour in (3, 20)] == [False, True]
    assert model.predict_proba_one({"hour": 20}) == {False: 0.0, True: 1.0}


def test_a_pickle_continues_the_same() -> None:
    rows = [({"a": k % 7, "b": k % 3}, bool(k % 2)) for k in range(60)]
    model = CoveyClassifier({"bayes": naive_bayes.GaussianNB()})
    for x, y in rows[:30]:
        model.learn_one(x, y)
    other = pickle.loads(pickle.dumps(model))  # noqa: S301 - written above

    for x, y in rows[30:]:
        assert model.predict_proba_one(x) == other.predict_proba_one(x)
        model.learn_one(x, y)
        other.learn_one(x, y)


def test_the_models_that_are_given_are_not_trained() -> None:
    given = {"bayes": naive_bayes.GaussianNB()}
    CoveyClassifier(given).learn_one({"x": 1.0}, True)

    assert given["bayes"].predict_one({"x": 1.0}) is None


def test_without_models_it_says_so() -> None:
    with pytest.raises(ConfigError, match="there are no models; give at least one"):
        CoveyClassifier({})
