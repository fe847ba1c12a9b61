"""covey as a classifier of River: it chooses among River models, by context."""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.errors import need_of, optional_module
from covey.network.network import ModelChoice

_MISSING = need_of("covey.river", "river", extra="river")
_Classifier: Any = optional_module("river.base", missing=_MISSING).Classifier


class CoveyClassifier(_Classifier):  # type: ignore[misc]
    """Answers every instance with one of several classifiers, and learns which is right where.

    All models are trained with every label, and every label scores all of them: in the region of
    the contexts around the instance.

    Parameters
    ----------
    models
        Classifiers by name. They are cloned: those that are given are not trained.
    context
        What the context of an instance is made of, as in the table `[data]` of a configuration:
        names of features in [0, 1], or dicts with `column`, `scale`, `low` and `high`. Without it
        there is one region.
    policy
        The table `[policy]` of a configuration; without it the default policy.

    Examples
    --------
    >>> from river import datasets, evaluate, linear_model, metrics, naive_bayes, preprocessing
    >>> from covey.river import CoveyClassifier
    >>> model = CoveyClassifier(
    ...     {
    ...         "bayes": naive_bayes.GaussianNB(),
    ...         "linear": preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    ...     }
    ... )
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 89.20%

    """

    def __init__(
        self,
        models: Mapping[str, Any],
        context: Sequence[Any] | None = None,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        self.models = models
        self.context = context
        self.policy = policy
        self._models = {name: model.clone() for name, model in models.items()}
        self._choice = ModelChoice(list(models), context, policy)
        self._labels: dict[Any, float] = {} if self._multiclass else {False: 0.0, True: 0.0}

    @property
    def _multiclass(self) -> bool:
        return all(model._multiclass for model in self.models.values())

    @classmethod
    def _unit_test_params(cls) -> Any:
        names = ("linear_model", "naive_bayes", "preprocessing")
        modules = [optional_module(f"river.{name}", missing=_MISSING) for name in names]
        linear_model, naive_bayes, preprocessing = modules
        linear = preprocessing.StandardScaler() | linear_model.LogisticRegression()
        yield {"models": {"bayes": naive_bayes.GaussianNB(), "linear": linear}}
        yield {"models": {"bayes": naive_bayes.GaussianNB()}, "policy": {"preset": "cos"}}

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Score the answers of all models with the label, then train them."""
        self._labels[y] = 0.0
        self._choice.learn(x, self._said(x), y)
        for model in self._models.values():
            model.learn_one(x, y)

    def predict_one(self, x: dict[Any, Any]) -> Any:
        """Return the answer of the chosen model; None while no model has one."""
        answers = self._said(x)
        return answers[self._choice.best(x, answers)]

    def predict_proba_one(self, x: dict[Any, Any]) -> dict[Any, float]:
        """Return the probabilities of the chosen model; 1 for its answer if it has none."""
        answers = self._said(x)
        best = self._choice.best(x, answers)
        try:
            shares = self._models[best].predict_proba_one(x)
        except NotImplementedError:
            shares = {} if answers[best] is None else {answers[best]: 1.0}
        if not shares:  # all labels seen so far are alike
            return dict.fromkeys(self._labels, 1 / max(1, len(self._labels)))
        return {**self._labels, **shares}

    def _said(self, x: dict[Any, Any]) -> dict[str, Any]:
        return {name: model.predict_one(x) for name, model in self._models.items()}
