"""covey as a classifier of scikit-learn: it chooses among models with `partial_fit`, by context."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from covey.errors import ConfigError, need_of, optional_module
from covey.functions.function import framed
from covey.network.network import ModelChoice

_MISSING = need_of("covey.sklearn", "scikit-learn", extra="sklearn")
_base = optional_module("sklearn.base", missing=_MISSING)
_ClassifierMixin: Any = _base.ClassifierMixin
_BaseEstimator: Any = _base.BaseEstimator
# Naive Bayes divides by variances, which are 0 before it has seen two rows of a class.
QUIET: Any = {"divide": "ignore", "invalid": "ignore"}
PARTS = 20  # in which `fit` reads its rows: a part is predicted before it trains


class CoveyClassifier(_ClassifierMixin, _BaseEstimator):  # type: ignore[misc]
    """Answers every row with one of several classifiers, and learns which is right where.

    Rows come as a stream: each part is predicted by all models, scored in the regions of the
    contexts around its rows, and then used for training. So a score is never of rows that a model
    was trained with.

    Parameters
    ----------
    models : dict of name to classifier, default=None
        Those with `partial_fit` are cloned: what is given is not trained. Others, such as a fitted
        forest, must be fitted and stay as they are. None: naive Bayes and a linear model.
    context : list, default=None
        What the context of a row is made of, as in the table `[data]` of a configuration: names of
        columns with values in [0, 1], or dicts with `column`, `scale`, `low` and `high`. Columns
        without names are called x0, x1 and so on. None: there is one region.
    policy : dict, default=None
        The table `[policy]` of a configuration. None: the default policy.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    models_ : dict
        The trained models.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray
        The names of the columns, if they have names.
    """

    def __init__(
        self,
        models: Mapping[str, Any] | None = None,
        context: Sequence[Any] | None = None,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        self.models = models
        self.context = context
        self.policy = policy

    def fit(self, X: Any, y: Any) -> "CoveyClassifier":
        """Forget what was learnt, and learn from rows in their order."""
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import validate_data

        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self._begin(np.unique(y))
        for part in np.array_split(np.arange(len(X)), min(PARTS, len(X))):
            self._learn(X[part], y[part])
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "CoveyClassifier":
        """Learn from more rows; the first call needs all labels as `classes`."""
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import validate_data

        is_first = not hasattr(self, "classes_")
        X, y = validate_data(self, X, y, reset=is_first)
        check_classification_targets(y)
        if is_first:
            if classes is None:
                raise ConfigError("the first partial_fit needs classes; give all labels")
            self._begin(np.unique(classes))
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ConfigError(
                f"the label {unknown.tolist()[0]!r} is not one of the classes; give it there"
            )
        self._learn(X, y)
        return self

    def predict(self, X: Any) -> Any:
        """Return the answer of the chosen model for each row."""
        X, answers, chosen = self._chosen(X)
        codes = [answers[name][row] for row, name in enumerate(chosen)]
        return self.classes_[np.array(codes, np.intp)]

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the chosen model; 1 for its answer if it has none."""
        X, answers, chosen = self._chosen(X)
        probabilities = np.zeros((len(X), len(self.classes_)))
        for name in dict.fromkeys(chosen):
            rows = np.flatnonzero([model_name == name for model_name in chosen])
            model = self.models_[name]
            probabilities[rows, answers[name][rows]] = 1.0
            if hasattr(model, "predict_proba") and len(self.classes_) > 1:
                with np.errstate(**QUIET):
                    shares = model.predict_proba(self._rows(model, X[rows]))
                is_given = np.isfinite(shares).all(axis=1)
                probabilities[rows[is_given]] = 0.0
                codes = self._codes(name, model.classes_)
                probabilities[np.ix_(rows[is_given], codes)] = shares[is_given]
        return probabilities

    def _begin(self, classes: Any) -> None:
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        given = self._given()
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"models are a {type(given).__name__}; give a dict from names to models"
            )
        self.classes_, self.models_ = classes, {}
        for name, model in given.items():
            learns = hasattr(model, "partial_fit")
            try:
                self.models_[name] = _base.clone(model) if learns else model
                if not learns:
                    check_is_fitted(model)
            except (NotFittedError, TypeError) as error:
                raise ConfigError(
                    f"model {name!r} is a {type(model).__name__} without partial_fit that is not "
                    "fitted; fit it first, or give a model that learns from a stream"
                ) from error
        self._choice = ModelChoice(list(self.models_), self.context, self.policy)
        self._is_trained = not self._learners()  # fitted models have answers from the start

    def _learners(self) -> list[Any]:
        return [model for model in self.models_.values() if hasattr(model, "partial_fit")]

    def _given(self) -> Mapping[str, Any]:
        if self.models is not None:
            return self.models
        from sklearn.linear_model import SGDClassifier
        from sklearn.naive_bayes import GaussianNB

        return {"bayes": GaussianNB(), "linear": SGDClassifier(loss="log_loss", random_state=0)}

    def _learn(self, X: Any, y: Any) -> None:
        """Score the answers of all models to rows, if they have any, and train with them."""
        codes = np.searchsorted(self.classes_, y)
        if len(self.classes_) < 2:  # there is nothing to choose, and models may refuse it
            return
        if self._is_trained:
            for instance, code in zip(self._instances(X, self._said(X)), codes, strict=True):
                self._choice.learn(*instance, int(code))
        for model in self._learners():
            if self._is_trained:
                model.partial_fit(X, codes)
            else:
                model.partial_fit(X, codes, classes=np.arange(len(self.classes_)))
        self._is_trained = True

    def _chosen(self, X: Any) -> tuple[Any, dict[str, Any], list[str]]:
        """Return checked rows, the answers of all models, and the model of each row."""
        from sklearn.utils.validation import check_is_fitted, validate_data

        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        answers = self._said(X)
        instances = self._instances(X, answers)
        if not self.context:  # one region: the same model everywhere
            return X, answers, [self._choice.best(*next(instances))] * len(X)
        return X, answers, [self._choice.best(*instance) for instance in instances]

    def _said(self, X: Any) -> dict[str, Any]:
        if len(self.classes_) < 2:
            return {name: np.zeros(len(X), np.intp) for name in self.models_}
        with np.errstate(**QUIET):
            return {
                name: self._codes(name, model.predict(self._rows(model, X)))
                for name, model in self.models_.items()
            }

    def _rows(self, model: Any, X: Any) -> Any:
        """Return rows as a model takes them: with names, if it was fitted on a frame."""
        is_named = hasattr(model, "feature_names_in_") and hasattr(self, "feature_names_in_")
        return framed(list(self.feature_names_in_), X) if is_named else X

    def _codes(self, name: str, labels: Any) -> Any:
        """Return answers of a model as codes; one that is trained here answers with these."""
        if hasattr(self.models_[name], "partial_fit"):
            return labels.astype(np.intp)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ConfigError(
                f"model {name!r} answers {unknown.tolist()[0]!r}, which is not one of the classes"
            )
        return np.searchsorted(self.classes_, labels)

    def _instances(self, X: Any, said: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each row by name, if contexts are made of it, and the answers to it."""
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(X.shape[1])])
        for row, values in enumerate(X):
            record = dict(zip(names, values.tolist(), strict=True)) if self.context else {}
            yield record, {name: int(column[row]) for name, column in said.items()}
