"""Adapt classifiers to one interface: predict one or many instances, and learn."""

import importlib.util
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, cast

import msgspec
from msgspec import Meta

from covey.data.inputs import PLAIN, as_label, key_of, named, picked
from covey.errors import ConfigError, ConflictingLabel, CoveyError, FunctionError, NoAnswerYet
from covey.types import Label

UNKNOWN = msgspec.UNSET
TIMEOUT_S = 10.0


class Later(Protocol):
    """A handle that a function may return instead of a label, such as a `Future`."""

    def done(self) -> bool:
        """Return whether the answer is available."""

    def result(self) -> Any:
        """Return the answer, or raise the error that prevented it."""


class Processes(NamedTuple):
    """How many processes run a function, and how each of them loads it."""

    number: int
    load: Callable[[], "Function"]


class Function(NamedTuple):
    """A classification function with its name and owner."""

    name: str
    owner: str
    predict: Callable[[Any], Any]  # an instance -> a label
    predict_many: Callable[[Any], Any] | None  # rows -> labels; None: one by one
    teach: Callable[[Any, Label], Any] | None  # None: it does not learn
    teach_many: Callable[[list[Any], list[Label]], Any] | None
    is_instant: bool = False  # too fast to be worth a thread
    classes: tuple[Label, ...] = ()  # all possible labels; empty: unknown
    timeout_s: float = TIMEOUT_S  # of one call at a node
    version: str = ""  # another one is another arm
    carry: float = 0.0  # share of what an earlier version has learnt that this one begins with
    table: Any = None  # the `[[function]]` table that it was made from
    is_async: bool = False  # `predict` is a coroutine function
    processes: Processes | None = None  # None: it runs in a thread

    def ask(self, instance: Any) -> "Label | Late":
        """Return the label of `instance`, or a `Late` for it.

        Raises `FunctionError` with the function's name if it raises or its answer is not a label.
        """
        try:
            answer: Label = self.predict(instance)
        except BaseException as error:
            raise self.failed(error, instance) from error
        kind = type(answer)
        if kind is str or kind is int or kind is bool:
            return answer
        if hasattr(answer, "done") and hasattr(answer, "result"):
            return Late(self, cast("Later", answer))
        return self.label(answer)

    def answer(self, instance: Any) -> Label:
        answer = self.ask(instance)
        return answer.label() if type(answer) is Late else answer

    def answer_many(self, rows: Any) -> list[Label]:
        if self.predict_many is None:
            return [self.answer(row) for row in rows]
        try:
            result = self.predict_many(rows)
            answers = list(result.tolist() if hasattr(result, "tolist") else result)
        except BaseException as error:
            raise self.failed(error) from error
        if isinstance(result, str):
            raise FunctionError(
                f"{self} returned one string for {len(rows)} rows; return one label per row"
            )
        if len(answers) != len(rows):
            raise FunctionError(f"{self} returned {len(answers)} labels for {len(rows)} rows")
        return [answer if type(answer) in PLAIN else self.label(answer) for answer in answers]

    def learn(self, instance: Any, label: Label) -> None:
        """Train the function; raise `FunctionError` with its name if that fails."""
        if self.teach is not None:
            self._train(self.teach, instance, label)

    def learn_many(self, instances: list[Any], labels: list[Label]) -> None:
        if self.teach_many is not None:
            self._train(self.teach_many, instances, labels)
            return
        for instance, label in zip(instances, labels, strict=True):
            self.learn(instance, label)

    def label(self, answer: Any) -> Label:
        if hasattr(answer, "__await__"):
            if hasattr(answer, "close"):  # else Python warns that it was never awaited
                answer.close()
            raise FunctionError(
                f"{self} returned a {type(answer).__name__}, which must be awaited; define the "
                "function with async def, and await apredict of a site of a Network"
            )
        try:
            return as_label(answer)
        except ValueError as error:
            if answer is None and self.teach is not None:
                raise NoAnswerYet(f"{self} answered {error}{_FRESH}") from None
            raise FunctionError(f"{self} answered {error}") from None

    def __str__(self) -> str:
        return f"function {self.name!r} of learner {self.owner!r}"

    def failed(self, error: BaseException, instance: Any = None) -> FunctionError:
        """Return what a function raised as the failure of it; raise what ends the process."""
        _check_is_failure(error)
        if isinstance(error, CoveyError):
            return FunctionError(f"{self}: {error}")
        is_new = type(error).__name__ == "NotFittedError" and self.teach is not None
        hint = _FRESH if is_new else ""
        if isinstance(instance, Mapping) and isinstance(error, TypeError | ValueError):
            hint = "; if it takes rows, name their values with covey.columns(function, names)"
        reason = " ".join(str(error).split())  # on one line
        return FunctionError(f"{self} raised {type(error).__name__}: {reason}{hint}")

    def _train(self, teach: Callable[[Any, Any], Any], instances: Any, labels: Any) -> None:
        try:
            teach(instances, labels)
        except FunctionError:
            raise
        except BaseException as error:
            _check_is_failure(error)
            raise FunctionError(
                f"{self} raised {type(error).__name__} in training: {error}; the label was "
                "rejected and can be sent again"
            ) from error


class Late(msgspec.Struct):
    """A pending answer, and the true label if that arrives first."""

    function: Function
    handle: Later
    truth: Label | msgspec.UnsetType = UNKNOWN

    def is_there(self) -> bool:
        return self.handle.done()

    def label(self) -> Label:
        """Return the answer, waiting as long as its handle does.

        Raises `FunctionError` with the function's name if the answer fails or is not a label.
        """
        try:
            answer = self.handle.result()
        except BaseException as error:
            raise self.function.failed(error) from error
        return self.function.label(answer)

    def keep(self, ticket: int, label: Label) -> None:
        """Keep the true label until the answer arrives; raise `ConflictingLabel` for another."""
        if self.truth is not UNKNOWN and self.truth != label:
            raise ConflictingLabel(
                f"label {label!r} for ticket {ticket} rejected: it contradicts {self.truth!r}, "
                f"which is kept until {self.function} answers"
            )
        self.truth = label


def _check_is_failure(error: BaseException) -> None:
    """Raise what is no failure of a function: no memory is left, or the user has pressed Ctrl-C.

    Python raises the latter in the main thread, wherever that is.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if isinstance(error, MemoryError) or (is_main and isinstance(error, KeyboardInterrupt)):
        raise error


class Described(NamedTuple):
    """A function, and what is said of it."""

    function: Any
    columns: tuple[str, ...] = ()  # the names of the values that it takes; none: all, as they are
    classes: tuple[Label, ...] = ()  # all labels, if it is untrained
    is_frozen: bool = False  # labels do not train it


def columns(function: Any, names: Sequence[str]) -> Described:
    """Return `function` with the names of the values that it takes, so that models can be mixed.

    River models get a dict of these values, all others a row of them. An instance may be a mapping,
    of which the other values are left out, or a row of just these values.
    """
    if isinstance(names, str) or not names:
        raise ConfigError(f"columns are {names!r}; give a list of at least one name")
    return _described(function)._replace(columns=tuple(names))


def frozen(function: Any) -> Described:
    """Return `function` marked as fixed: labels do not train it."""
    return _described(function)._replace(is_frozen=True)


def untrained(function: Any, *, classes: Sequence[Label]) -> Described:
    """Return an untrained function; until it can predict, it returns the first class.

    The first call of scikit-learn's `partial_fit` receives all classes.
    """
    if len(classes) == 0:
        raise ConfigError("a fresh function needs classes; give at least one")
    return _described(function)._replace(classes=tuple(classes))


def _described(source: Any) -> Described:
    return source if isinstance(source, Described) else Described(source)


def as_function(source: Any, *, name: str, owner: str) -> Function:
    """Return `source` as a `Function`.

    Takes what `columns`, `frozen` and `untrained` return, an object with `predict_one` (River), one
    with `predict` for rows (scikit-learn), one with `predict` and `learn` for an instance, a pair
    of these two callables, any callable, or a `Function`.
    """
    if isinstance(source, Function):
        return source._replace(name=name, owner=owner)
    model, names, classes, is_frozen = _described(source)
    is_instant = getattr(model, "is_instant", False) is True
    # A model that was fitted on a frame warns of rows without names.
    has_names = hasattr(model, "feature_names_in_") and importlib.util.find_spec("pandas")
    rows_of = partial(framed, list(names)) if names and has_names else list
    methods = _methods(name, model, classes, rows_of)
    function = _awaited(Function(name, owner, *methods, is_instant=is_instant))
    if classes and function.teach is None:
        raise ConfigError(
            f"function {name!r} is fresh, but a {type(model).__name__} cannot learn; it needs "
            "learn_one, partial_fit or learn"
        )
    if classes:
        function = _with_default(function, model, classes[0])
    if names and not has_names:
        function = _selecting(function, list(names), is_named=hasattr(model, "predict_one"))
    return function._replace(teach=None, teach_many=None) if is_frozen else function


def framed(names: list[str], rows: Any) -> Any:
    pandas: Any = importlib.import_module("pandas")
    return pandas.DataFrame(picked(rows, names), columns=names)


def _selecting(function: Function, names: list[str], *, is_named: bool) -> Function:
    def single(instance: Any) -> Any:
        if not is_named:
            return picked([instance], names)[0]
        record = named(instance, names)
        return dict(zip(names, picked([record], names)[0], strict=True))

    def many(rows: Any) -> Any:
        return [single(row) for row in rows] if is_named else picked(rows, names)

    predict, predict_many, teach, teach_many = function[2:6]

    async def predict_async(instance: Any) -> Any:
        return await predict(single(instance))

    return function._replace(
        predict=predict_async if function.is_async else lambda x: predict(single(x)),
        predict_many=predict_many and (lambda rows: predict_many(many(rows))),
        teach=teach and (lambda x, label: teach(single(x), label)),
        teach_many=teach_many and (lambda rows, labels: teach_many(many(rows), labels)),
    )


def _awaited(function: Function) -> Function:
    if _is_async(function.teach) or _is_async(function.teach_many):
        raise ConfigError(
            f"{function} learns with a coroutine (async def), which labels do not await; define "
            "its learn method with def"
        )
    if _is_async(function.predict_many):
        function = function._replace(predict_many=None)
    return function._replace(is_async=_is_async(function.predict))


def _is_async(call: Any) -> bool:
    is_coroutine = inspect.iscoroutinefunction
    return is_coroutine(call) or is_coroutine(getattr(call, "__call__", None))  # noqa: B004


_FRESH = "; if it is untrained, give covey.functions.function.untrained(function, classes=...)"
_Methods = tuple[Any, Any, Any, Any]  # predict one and many, teach one and many


def _methods(
    name: str, source: Any, classes: tuple[Label, ...], rows_of: Callable[[Any], Any]
) -> _Methods:
    if hasattr(source, "predict_one"):
        # River's own batch methods need a data frame.
        many = getattr(source, "predict_batch", None)
        return source.predict_one, many, getattr(source, "learn_one", None), None
    if (
        hasattr(source, "predict")
        and hasattr(source, "learn")
        and not hasattr(source, "partial_fit")
    ):
        return source.predict, _many(source), source.learn, None
    if hasattr(source, "predict"):
        return _of_rows(source, classes, rows_of)
    if isinstance(source, tuple) and len(source) == 2 and all(map(callable, source)):
        predict, learn = source
        return predict, _many(predict), learn, None
    if callable(source):
        return source, _many(source), getattr(source, "learn", None), None
    raise ConfigError(
        f"function {name!r} is a {type(source).__name__}; give a callable or an object with predict"
    )


def _many(source: Any) -> Any:
    return getattr(source, "predict_batch", None) or getattr(source, "predict_many", None)


def _of_rows(model: Any, classes: tuple[Label, ...], rows_of: Callable[[Any], Any]) -> _Methods:
    """Return the methods of a model that takes rows, such as scikit-learn's."""

    def predict(instance: Any) -> Any:
        return model.predict(rows_of([instance]))[0]

    def predict_many(rows: Any) -> Any:
        return model.predict(rows if rows_of is list else rows_of(rows))

    def teach_many(rows: list[Any], labels: list[Label]) -> None:
        # A fitted model has its classes, and may reject others.
        is_new = classes and not hasattr(model, "classes_")
        model.partial_fit(rows_of(rows), labels, **({"classes": list(classes)} if is_new else {}))

    def teach(instance: Any, label: Label) -> None:
        teach_many([instance], [label])

    if not hasattr(model, "partial_fit"):
        return predict, predict_many, None, None
    return predict, predict_many, teach, teach_many


def _with_default(function: Function, model: Any, first: Label) -> Function:
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


def declared(functions: Iterable[Function]) -> tuple[Label, ...]:
    listed = [function.classes for function in functions if function.classes]
    sets = {frozenset(map(key_of, classes)) for classes in listed}
    return listed[0] if len(sets) == 1 else ()


Scalar = str | int | float | bool  # a label in TOML and JSON


class Named(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The keys of every kind."""

    name: Annotated[str, Meta(min_length=1)]
    kind: str
    timeout_s: Annotated[float, Meta(gt=0, le=1e9)] = TIMEOUT_S  # of one call at a node
    # Share of what an earlier version has learnt that a new one begins with.
    carry: Annotated[float, Meta(ge=0, le=1)] = 0.0
    free: bool = False  # at a served site: every label scores it


class Taught(Named, frozen=True, kw_only=True, rename="kebab"):
    """The keys of every kind that can learn."""

    learns: bool = True
    classes: list[Scalar] = []  # of an untrained function
    lessons: str | None = None  # path of the training log
    lessons_kept: Annotated[int, Meta(ge=1)] = 10_000  # labelled instances


class FunctionKind(NamedTuple):
    """A kind of table, and its loader, which returns an object for `as_function`.

    Paths in the table are relative to the loader's `folder` argument.
    """

    table: type[Named]
    load: Callable[[Any, Path], Any]
