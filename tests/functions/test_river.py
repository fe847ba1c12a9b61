"""River models learn online and get validated instances only."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import linear_model, naive_bayes, preprocessing

from covey.errors import ConfigError, FunctionError
from support.models import LABELS, ROWS, Table, loaded, mapping

BAYES = "river.naive_bayes:GaussianNB"


def table(entry: str = BAYES, **more: object) -> Table:
    return {"name": "f", "kind": "river", "entry": entry, **more}


def pipeline(l2: float = 0.0) -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression(l2=l2)


def test_a_model_ends_as_the_original_does(tmp_path: Path) -> None:
    model = naive_bayes.GaussianNB()
    function = loaded(table(), tmp_path)
    for row, label in zip(ROWS, LABELS.tolist(), strict=True):
        model.learn_one(mapping(row), label)
        function.learn(mapping(row), label)

    assert function.answer_many(list(map(mapping, ROWS))) == [
        model.predict_one(mapping(row)) for row in ROWS
    ]


def test_a_factory_makes_a_pipeline_of_its_options(tmp_path: Path) -> None:
    model = pipeline(l2=0.1)
    function = loaded(table("test_river:pipeline", options={"l2": 0.1}), tmp_path)
    for row in ROWS:
        model.learn_one(mapping(row), bool(row[0] > 0))
        function.learn(mapping(row), bool(row[0] > 0))

    assert function.answer_many(list(map(mapping, ROWS))) == [
        model.predict_one(mapping(row)) for row in ROWS
    ]


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        ([1.0], "an instance is a list, but the model needs named values"),
        ({"bytes": float("inf")}, "an instance has inf for 'bytes'; omit missing values"),
        ({"bytes": np.float32("nan")}, "an instance has nan for 'bytes'"),
        ({"bytes": None}, "an instance has a NoneType for 'bytes'; give a number or text"),
    ],
)
def test_an_instance_that_would_spoil_the_model_is_refused(
    instance: Any, said: str, tmp_path: Path
) -> None:
    function = loaded(table(), tmp_path)

    with pytest.raises(FunctionError, match=said):
        function.answer(instance)
    with pytest.raises(FunctionError, match=f"{said}.*; the label was rejected"):
        function.learn(instance, "ham")


def test_a_record_without_a_name_that_columns_has_is_refused(tmp_path: Path) -> None:
    function = loaded(table(columns=["bytez"], classes=["ham"]), tmp_path)

    with pytest.raises(FunctionError, match="an instance has no 'bytez', which columns names"):
        function.answer(mapping(ROWS[0]))


def test_an_object_that_is_not_a_river_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a function without predict_one .*options = {}"):
        loaded(table("test_river:pipeline"), tmp_path)
