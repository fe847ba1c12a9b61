"""Anything that classifies, as a function: it answers one instance or many, and may be taught."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from covey.batches import PLAIN, as_label
from covey.errors import ConfigError, ConflictingLabel, CoveyError, FunctionError
from covey.types import Label

UNKNOWN = msgspec.UNSET


class Later(Protocol):
    """What a function may return in place of a label: a handle on it, such as a `Future`."""

    def done(self) -> bool:
        """Say whether the answer is there."""

    def result(self) -> Any:
        """Return the answer, or raise what kept it from coming."""


class Function(NamedTuple):
    """Something that classifies, under the name that its owner gave it."""

    name: str
    owner: str
    predict: Callable[[Any], Any]  # an instance -> a label
    predict_many: Callable[[Any], Any] | None  # rows -> labels; None: one by one
    teach: Callable[[Any, Label], Any] | None  # None: it cannot be taught
    teach_many: Callable[[list[Any], list[Label]], Any] | None
    is_instant: bool = False  # it looks at nothing, and is not worth a thread
    classes: tuple[Label, ...] = ()  # all labels that there are; none: that is not said

    def ask(self, instance: Any) -> "Label | Late":
        """Return the label of `instance`, or a `Late` that will know it.

        Raises `FunctionError`, naming the function, if it raises or its answer is not a label.
        """
        try:
            answer = self.predict(instance)
        except Exception as error:
            raise self._failed(error) from error
        kind = type(answer)
        if kind is str or kind is int or kind is bool:
            return cast("Label", answer)
        if hasattr(answer, "done") and hasattr(answer, "result"):
            return Late(self, answer)
        return self.label(answer)

    def answer(self, instance: Any) -> Label:
        """Return the label of `instance`, waiting for it if need be."""
        answer = self.ask(instance)
        return answer.label() if type(answer) is Late else answer

    def answer_many(self, rows: Any) -> list[Label]:
        """Return the labels of `rows`, from one call if the function takes many."""
        if self.predict_many is None:
            return [self.answer(row) for row in rows]
        try:
            given = self.predict_many(rows)
            answers = list(given.tolist() if hasattr(given, "tolist") else given)
        except Exception as error:
            raise self._failed(error) from error
        if isinstance(given, str):
            raise FunctionError(f"{self} gave one text for {len(rows)} rows; one label per row")
        if len(answers) != len(rows):
            raise FunctionError(f"{self} gave {len(answers)} labels for {len(rows)} rows")
        return [one if type(one) in PLAIN else self.label(one) for one in answers]

    def learn(self, instance: Any, label: Label) -> None:
        """Teach the function; raise `FunctionError`, naming it, if that fails."""
        if self.teach is not None:
            self._taught(self.teach, instance, label)

    def learn_many(self, instances: list[Any], labels: list[Label]) -> None:
        """Teach the function many instances, at once if it takes that."""
        if self.teach_many is not None:
            self._taught(self.teach_many, instances, labels)
            return
        for instance, label in zip(instances, labels, strict=True):
            self.learn(instance, label)

    def label(self, answer: Any) -> Label:
        """Return an answer of the function as a label."""
        try:
            return as_label(answer)
        except ValueError as error:
            is_new = answer is None and self.teach is not None
            raise FunctionError(f"{self} answered {error}{_FRESH if is_new else ''}") from None

    def __str__(self) -> str:
        return f"function {self.name!r} of learner {self.owner!r}"

    def _failed(self, error: Exception) -> FunctionError:
        if isinstance(error, CoveyError):  # it says enough
            return FunctionError(f"{self}: {error}")
        is_new = type(error).__name__ == "NotFittedError" and self.teach is not None
        hint = _FRESH if is_new else ""
        return FunctionError(f"{self} raised {type(error).__name__}: {error}{hint}")

    def _taught(self, teach: Callable[[Any, Any], Any], instances: Any, labels: Any) -> None:
        try:
            teach(instances, labels)
        except Exception as error:
            raise FunctionError(
                f"{self} raised {type(error).__name__} when it was taught: {error}; the label was "
                "not taken and can be sent again"
            ) from error


class Late(msgspec.Struct):
    """An answer under way, and the true label if that comes first."""

    function: Function
    handle: Later
    truth: Label | msgspec.UnsetType = UNKNOWN

    def is_there(self) -> bool:
        """Say whether the answer has come."""
        return self.handle.done()

    def label(self) -> Label:
        """Return the answer, waiting as long as its handle does.

        Raises `FunctionError`, naming the function, if the answer fails or is not a label.
        """
        try:
            answer = self.handle.result()
        except Exception as error:
            raise self.function._failed(error) from error
        return self.function.label(answer)

    def keep(self, ticket: int, label: Label) -> None:
        """Keep the true label until the answer comes; raise `ConflictingLabel` for another."""
        if self.truth is not UNKNOWN and self.truth != label:
            raise ConflictingLabel(
                f"for ticket {ticket} the label {self.truth!r} is kept until {self.function} "
                f"answers; {label!r} contradicts it and was not taken"
            )
        self.truth = label


class Frozen(NamedTuple):
    """A function that is not to be taught."""

    function: Any


class Fresh(NamedTuple):
    """A function that has learnt nothing yet, and the labels that there are."""

    function: Any
    classes: tuple[Label, ...]


def frozen(function: Any) -> Frozen:
    """Return `function` so that it stays as it is: labels do not teach it."""
    return Frozen(function)


def fresh(function: Any, *, classes: Sequence[Label]) -> Fresh:
    """Return a function that learns from nothing; until it can answer it says the first class.

    scikit-learn's `partial_fit` is told all the classes when it is called first.
    """
    if len(classes) == 0:
        raise ConfigError("a fresh function needs its classes, at least one; it says the first")
    return Fresh(function, tuple(classes))


def as_function(given: Any, *, name: str, owner: str) -> Function:
    """Return `given` as a function of instances.

    Takes an object with `predict_one` (River), one with `predict` for rows (scikit-learn), one with
    `predict` and `learn` for an instance, a pair of these two callables, any callable, or a
    function that was made before.
    """
    if isinstance(given, Function):
        return given._replace(name=name, owner=owner)
    if isinstance(given, Frozen):
        return as_function(given.function, name=name, owner=owner)._replace(
            teach=None, teach_many=None
        )
    classes: tuple[Label, ...] = ()
    if isinstance(given, Fresh):
        given, classes = given
    is_instant = getattr(given, "is_instant", False) is True
    function = Function(name, owner, *_verbs(name, given, classes), is_instant=is_instant)
    if not classes:
        return function
    if function.teach is None:
        raise ConfigError(
            f"function {name!r} is fresh, but a {type(given).__name__} cannot be taught; it has "
            "neither learn_one nor partial_fit nor learn"
        )
    return _saying_first(function, given, classes[0])


_FRESH = "; if it has learnt nothing yet, give covey.classifiers.fresh(function, classes=...)"
_Verbs = tuple[Any, Any, Any, Any]  # predict and teach: one, many, one, many


def _verbs(name: str, given: Any, classes: tuple[Label, ...]) -> _Verbs:
    if hasattr(given, "predict_one"):
        # River's own verbs for many want a data frame.
        many = getattr(given, "predict_batch", None)
        return given.predict_one, many, getattr(given, "learn_one", None), None
    if hasattr(given, "predict") and hasattr(given, "learn") and not hasattr(given, "partial_fit"):
        return given.predict, _many(given), given.learn, None
    if hasattr(given, "predict"):
        return _of_rows(given, classes)
    if isinstance(given, tuple) and len(given) == 2 and all(map(callable, given)):
        predict, learn = given
        return predict, _many(predict), learn, None
    if callable(given):
        return given, _many(given), getattr(given, "learn", None), None
    raise ConfigError(
        f"function {name!r} is a {type(given).__name__}; give a callable or an object with predict"
    )


def _many(given: Any) -> Any:
    return getattr(given, "predict_batch", None) or getattr(given, "predict_many", None)


def _of_rows(model: Any, classes: tuple[Label, ...]) -> _Verbs:
    """Return the verbs of a model that takes rows, such as scikit-learn's."""

    def predict(instance: Any) -> Any:
        return model.predict([instance])[0]

    def teach_many(rows: list[Any], labels: list[Label]) -> None:
        # Whoever has been fitted knows its classes, and may refuse to be told others.
        if classes and not hasattr(model, "classes_"):
            model.partial_fit(rows, labels, classes=list(classes))
        else:
            model.partial_fit(rows, labels)

    def teach(instance: Any, label: Label) -> None:
        teach_many([instance], [label])

    if not hasattr(model, "partial_fit"):
        return predict, model.predict, None, None
    return predict, model.predict, teach, teach_many


def _saying_first(function: Function, model: Any, first: Label) -> Function:
    """Return `function` with `first` for an answer while its model has none."""
    predict, predict_many = function.predict, function.predict_many
    is_of_rows = function.teach_many is not None

    def has_answers() -> bool:
        return not is_of_rows or hasattr(model, "classes_")

    def predict_or_first(instance: Any) -> Any:
        answer = predict(instance) if has_answers() else None
        return first if answer is None else answer

    if predict_many is None:
        return function._replace(predict=predict_or_first)

    def predict_many_or_first(rows: Any) -> Any:
        answers = predict_many(rows) if has_answers() else [None] * len(rows)
        return [first if answer is None else answer for answer in answers]

    return function._replace(predict=predict_or_first, predict_many=predict_many_or_first)
