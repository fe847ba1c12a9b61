"""ONNX models give the answers of the original, row by row, or an error."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sklearn.ensemble import RandomForestClassifier

from covey.errors import ConfigError, FunctionError
from support.models import LABELS, ROWS, Table, loaded, onnx_bytes, onnx_table, pinned, trained

CLASSES = ["ham", "scan", "spam"]  # sorted, as scikit-learn has them
LINEAR = trained()


def table_of(folder: Path, content: bytes, **more: Any) -> Table:
    return {**pinned(folder, "f.onnx", content), "kind": "onnx", **more}


def scoring(*, rows: int | None = None, weights: Any = None, kind: int = TensorProto.FLOAT) -> Any:
    """A model made by hand: scores = row x weights."""
    given = np.eye(2, dtype=np.float32) if weights is None else weights
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["scores"])],
        "by hand",
        [helper.make_tensor_value_info("x", kind, [rows, 2])],
        [helper.make_tensor_value_info("scores", kind, [rows, None])],
        [numpy_helper.from_array(given, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def hand(folder: Path, **options: Any) -> Table:
    return table_of(folder, scoring(**options).SerializeToString(), classes=["left", "right"])


@pytest.mark.parametrize(
    ("model", "more"),
    [
        (LINEAR, {}),
        (LINEAR, {"classes": CLASSES}),  # scores become the class of the highest
        (RandomForestClassifier(5, random_state=0).fit(ROWS, LABELS), {}),
    ],
    ids=["linear", "scores", "forest"],
)
def test_every_row_is_answered_as_by_the_model_that_was_converted(
    model: Any, more: Table, tmp_path: Path
) -> None:
    function = loaded(onnx_table(tmp_path, model, **more), tmp_path)

    assert function.answer_many(ROWS) == model.predict(ROWS).tolist()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_numbers_have_the_type_of_the_model_input(kind: Any, tmp_path: Path) -> None:
    table = table_of(tmp_path, onnx_bytes(LINEAR, kind, zipmap=False))

    assert loaded(table, tmp_path).answer_many(ROWS) == LINEAR.predict(ROWS).tolist()


def test_a_model_with_room_for_one_row_is_run_row_by_row(tmp_path: Path) -> None:
    function = loaded(hand(tmp_path, rows=1), tmp_path)

    assert function.answer_many([[1, 0], [0, 1], [3, 2]]) == ["left", "right", "left"]


def test_data_in_other_files_is_refused_even_where_it_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save_model(
        scoring(), "f.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    content = (tmp_path / "f.onnx").read_bytes()

    with pytest.raises(ConfigError, match="refers to other files, which are not pinned"):
        loaded(table_of(tmp_path, content, classes=["left", "right"]), tmp_path)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="f.onnx cannot be read as an ONNX model"):
        loaded(table_of(tmp_path, b"junk"), tmp_path)


def test_a_model_with_room_for_some_other_number_of_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has shape \[7, 2\]; it must be rows x values"):
        loaded(hand(tmp_path, rows=7), tmp_path)


def test_scores_that_are_nan_are_refused(tmp_path: Path) -> None:
    function = loaded(hand(tmp_path, weights=np.full((2, 2), np.nan, np.float32)), tmp_path)

    with pytest.raises(FunctionError, match=r"returned scores \[nan, nan\] for row 0"):
        function.answer([1.0, 2.0])


def test_a_whole_number_is_not_rounded(tmp_path: Path) -> None:
    weights = np.eye(2, dtype=np.int64)
    model = scoring(weights=weights, kind=TensorProto.INT64)
    function = loaded(table_of(tmp_path, model.SerializeToString(), output="scores"), tmp_path)

    with pytest.raises(FunctionError, match="row 0 has 1.5 in column 0; .* type int64"):
        function.answer([1.5, 2.0])
    with pytest.raises(FunctionError, match="has 2 values for 1 rows; if they are scores"):
        function.answer([1, 2])
