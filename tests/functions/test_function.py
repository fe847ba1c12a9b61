"""Callables, pairs, River and scikit-learn models as functions that predict and learn."""

import asyncio
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import naive_bayes as river_bayes
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier

import covey
from covey.errors import ConfigError, ConflictingLabel, FunctionError
from covey.functions.function import Function, Late, as_function, columns, frozen, untrained

X = [[0.0, 0.1], [0.2, 0.0], [1.0, 0.9], [0.8, 1.0]]
Y = ["low", "low", "high", "high"]
FITTED: list[Callable[[], Any]] = [
    GaussianNB,
    BernoulliNB,
    MultinomialNB,
    lambda: SGDClassifier(random_state=0),
    lambda: MLPClassifier((4,), max_iter=2_000, random_state=0, learning_rate_init=0.1),
]


def function(given: Any) -> Function:
    return as_function(given, name="f", owner="north")


class Online:
    """Predicts and learns one instance at a time."""

    def __init__(self) -> None:
        self.lessons: list[tuple[object, object]] = []

    def predict(self, instance: object) -> object:
        return self.lessons[-1][1] if self.lessons else None

    def learn(self, instance: object, label: object) -> None:
        self.lessons.append((instance, label))


class OnlineCallable(Online):
    def __call__(self, instance: object) -> object:
        return Online.predict(self, instance)

    predict = property()  # type: ignore[assignment] - not there


def pair() -> Any:
    model = Online()
    return model.predict, model.learn


@pytest.mark.parametrize("form", [Online, OnlineCallable, pair])
def test_what_takes_one_instance_predicts_and_learns(form: Callable[[], Any]) -> None:
    model = function(form())

    model.learn("x", "spam")

    assert model.answer("y") == "spam"


@pytest.mark.parametrize("make", FITTED)
def test_a_fresh_model_gets_its_classes_and_returns_the_first_before_training(
    make: Callable[[], Any],
) -> None:
    one = function(untrained(make(), classes=["low", "high"]))
    before = [one.answer([1.0, 0.9]), *one.answer_many(np.array(X))]

    one.learn_many(X, Y)
    for _ in range(100):
        one.learn([1.0, 0.9], "high")
        one.learn([0.0, 0.1], "low")

    assert before == ["low"] * 5
    assert one.answer([1.0, 0.9]) == "high"
    assert one.answer_many(X)[2] == "high"


def test_a_fitted_model_does_not_get_other_classes() -> None:
    one = function(untrained(GaussianNB().fit(X, Y), classes=["low", "high", "unheard of"]))

    one.learn([1.0, 0.9], "high")

    assert one.answer([1.0, 0.9]) == "high"


def test_a_frozen_function_does_not_learn() -> None:
    model = Online()
    model.learn("x", "spam")
    one = function(frozen(model))

    one.learn("x", "ham")

    assert one.teach is None
    assert one.answer("y") == "spam"


def test_a_function_without_a_training_method_does_not_learn() -> None:
    dummy = DummyClassifier(strategy="constant", constant="low").fit(X, Y)

    assert [function(given).teach for given in (dummy, lambda row: 1)] == [None, None]


@pytest.mark.parametrize(
    ("given", "instance", "message"),
    [
        (river_bayes.GaussianNB(), {"x": 1.0}, "answered None, .*function.untrained"),
        (GaussianNB(), [0.0], "raised NotFittedError: .*function.untrained"),
    ],
)
def test_an_untrained_model_raises_an_error_with_a_hint(
    given: Any, instance: Any, message: str
) -> None:
    with pytest.raises(FunctionError, match=message):
        function(given).answer(instance)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "function 'f' is a int; give a callable or an object with predict"),
        ((lambda x: 1, 3), "function 'f' is a tuple"),
        (untrained(lambda x: 1, classes=[1]), "function 'f' is fresh, but a function cannot learn"),
    ],
)
def test_an_invalid_function_is_named_in_the_error(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        function(given)


def test_a_fresh_function_needs_a_class() -> None:
    with pytest.raises(ConfigError, match="needs classes"):
        untrained(GaussianNB(), classes=[])


def test_a_training_error_names_the_function_and_its_owner() -> None:
    model = GaussianNB().fit(X, Y)

    with pytest.raises(
        FunctionError,
        match="function 'f' of learner 'north' raised ValueError in training: .*sent again",
    ):
        function(model).learn([0.0, 0.1], "unheard of")


def test_scikit_learn_gets_all_rows_at_once_and_answers_with_plain_labels() -> None:
    answers = function(GaussianNB().fit(X, [0, 0, 1, 1])).answer_many(np.array(X))

    assert answers == [0, 0, 1, 1]
    assert {type(answer) for answer in answers} == {int}


def test_batches_are_split_for_functions_that_learn_single_instances() -> None:
    model = Online()

    function(model).learn_many(["x", "y"], ["ham", "spam"])

    assert model.lessons == [("x", "ham"), ("y", "spam")]


@pytest.mark.parametrize("verb", ["predict_batch", "predict_many"])
def test_a_callable_may_accept_batches(verb: str) -> None:
    def one(row: object) -> object:
        raise AssertionError

    setattr(one, verb, lambda rows: ["spam"] * len(rows))

    assert function(one).answer_many(["x", "y"]) == ["spam", "spam"]


def test_a_pending_answer_is_awaited_if_no_other_function_answers() -> None:
    future: Future[object] = Future()
    future.set_result(np.int64(3))

    assert function(lambda row: future).answer("x") == 3


def test_an_answer_that_fails_later_names_its_function() -> None:
    future: Future[object] = Future()
    future.set_exception(OSError("gone"))
    late = function(lambda row: future).ask("x")

    assert isinstance(late, Late)
    with pytest.raises(FunctionError, match="function 'f' of learner 'north' raised OSError: gone"):
        late.label()


def test_two_labels_that_contradict_each_other_are_not_kept_for_one_answer() -> None:
    late = Late(function(lambda row: 1), Future())
    late.keep(7, "spam")

    late.keep(7, "spam")
    with pytest.raises(ConflictingLabel, match="contradicts 'spam', which is kept until"):
        late.keep(7, "ham")


class Odd(BaseException):
    """What no handler of `Exception` catches."""


CALLS: dict[str, Callable[[Any], Any]] = {
    "answer": lambda f: function(f).answer("x"),
    "answer_many": lambda f: function(with_batches(f)).answer_many(["x", "y"]),
    "learn": lambda f: function((int, lambda row, label: f(row))).learn("x", 1),
    "late": lambda f: function(lambda row: Failing(f)).answer("x"),
    "async": lambda f: asyncio.run(awaited(as_coroutine(f))),
}


def awaited(call: Callable[[Any], Any]) -> Any:
    config = {"learner": [{"name": "north", "functions": ["f"]}]}
    network = covey.Network(config, functions={"f": call}, dimension=1)
    return network["north"].apredict("x", (0.5,))


class Failing:
    def __init__(self, call: Callable[[Any], Any]) -> None:
        self._call = call

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self._call("x")


def with_batches(call: Callable[[Any], Any]) -> Any:
    def one(row: object) -> Any:
        return call(row)

    one.predict_many = call  # type: ignore[attr-defined]
    return one


def as_coroutine(call: Callable[[Any], Any]) -> Any:
    async def one(row: object) -> Any:
        return call(row)

    return one


def raising(error: BaseException) -> Callable[[Any], Any]:
    def call(row: object) -> Any:
        raise error

    return call


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), Odd()], ids=repr)
@pytest.mark.parametrize("call", CALLS)
def test_whatever_a_function_raises_is_its_failure(call: str, error: BaseException) -> None:
    with pytest.raises(FunctionError, match=f"'f' of .* raised {type(error).__name__}"):
        CALLS[call](raising(error))


@pytest.mark.parametrize("call", CALLS)
def test_only_the_user_interrupts_the_main_thread(call: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        CALLS[call](raising(KeyboardInterrupt()))
    with ThreadPoolExecutor(1) as pool, pytest.raises(FunctionError, match="KeyboardInterrupt"):
        pool.submit(CALLS[call], raising(KeyboardInterrupt())).result()


@pytest.mark.parametrize("call", CALLS)
def test_no_function_hides_that_the_memory_is_used_up(call: str) -> None:
    with pytest.raises(MemoryError):
        CALLS[call](raising(MemoryError()))


def test_a_function_is_cancelled_with_the_task_that_awaits_it() -> None:
    async def endless(row: object) -> int:
        return await asyncio.get_running_loop().create_future()

    async def main() -> None:
        task = asyncio.create_task(awaited(endless))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_model_that_was_fitted_on_a_frame_gets_frames_and_does_not_warn() -> None:
    frame = pd.DataFrame({"size": [0.0, 1.0, 2.0, 3.0], "age": [1.0, 1.0, 0.0, 0.0]})
    model = SGDClassifier(random_state=0).fit(frame, [0, 0, 1, 1])
    function = as_function(columns(model, ["size", "age"]), name="f", owner="north")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function.answer({"size": 3.0, "age": 0.0, "more": 1}) == 1
        assert function.answer_many([[0.0, 1.0], [3.0, 0.0]]) == [0, 1]
        function.learn([0.0, 1.0], 0)


def test_a_model_of_rows_that_gets_a_mapping_names_the_remedy_in_one_line() -> None:
    model = SGDClassifier(random_state=0).fit([[0.0], [1.0]], [0, 1])

    with pytest.raises(FunctionError, match=r"^[^\n]*covey\.columns\(function, names\)$"):
        as_function(model, name="f", owner="north").answer({"size": 1.0})
