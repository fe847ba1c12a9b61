"""What every kind of function must keep, whatever library is behind it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey.errors import ConfigError, FunctionError, MissingExtra
from covey.functions.registry import KINDS, functions_from
from support.models import (
    COLUMNS,
    LABELS,
    ROWS,
    Table,
    as_protocol,
    loaded,
    mapping,
    onnx_table,
    serving,
    skops_table,
    trained,
)
from support.required import ROOT

BAYES = {"entry": "river.naive_bayes:GaussianNB", "columns": COLUMNS, "classes": ["ham", "spam"]}
NEEDS = {"skops": "skops", "onnx": "onnxruntime", "river": "river"}  # kind -> its library
EXTRAS = {"skops": "sklearn", "onnx": "onnx", "river": "river"}

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(as_protocol(trained().predict)) as (url, _):
        yield url


@pytest.fixture
def tables(tmp_path: Path, address: str) -> dict[str, Table]:
    """One table per kind: this is the list to add to."""
    rows = {"columns": COLUMNS}
    return {
        "constant": {"name": "f", "kind": "constant", "label": "ham"},
        "onnx": onnx_table(tmp_path, trained(), **rows),
        "python": {"name": "f", "kind": "python", "entry": "support.models:by_sign"},
        "remote": {"name": "f", "kind": "remote", "url": address, **rows},
        "river": {"name": "f", "kind": "river", **BAYES},
        "skops": skops_table(tmp_path, trained(), **rows),
    }


def refusal(table: Any, folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(table, folder)
    return str(caught.value)


@every_kind
def test_a_row_is_answered_alike_alone_and_in_a_batch(
    kind: str, tables: dict[str, Table], tmp_path: Path
) -> None:
    function = loaded(tables[kind], tmp_path)
    alone = [function.answer(row) for row in ROWS[:20]]

    assert (function.answer_many(ROWS[:20]), set(alone) <= set(LABELS)) == (alone, True)


@every_kind
def test_a_batch_may_be_empty(kind: str, tables: dict[str, Table], tmp_path: Path) -> None:
    assert loaded(tables[kind], tmp_path).answer_many([]) == []


@pytest.mark.parametrize("kind", ["onnx", "remote", "river", "skops"])
def test_a_mapping_is_answered_like_its_row(
    kind: str, tables: dict[str, Table], tmp_path: Path
) -> None:
    function = loaded(tables[kind], tmp_path)
    named = [dict(reversed(mapping(row).items())) | {"more": 1.0} for row in ROWS[:20]]

    assert function.answer_many(named[:20]) == function.answer_many(ROWS[:20])


@pytest.mark.parametrize("kind", ["onnx", "remote", "river", "skops"])
def test_an_instance_of_another_width_is_refused(
    kind: str, tables: dict[str, Table], tmp_path: Path
) -> None:
    function = loaded(tables[kind], tmp_path)

    with pytest.raises(FunctionError, match="function 'f' of learner 'north'.* 2 .* 4"):
        function.answer([1.0, 2.0])


@pytest.mark.parametrize("kind", ["onnx", "remote", "river", "skops"])
def test_an_instance_that_is_not_a_number_is_refused(
    kind: str, tables: dict[str, Table], tmp_path: Path
) -> None:
    function = loaded(tables[kind], tmp_path)

    with pytest.raises(FunctionError, match="(?i)function 'f' of learner 'north'.*nan"):
        function.answer([1.0, 2.0, np.nan, 4.0])


@every_kind
def test_a_network_runs_it(kind: str, tables: dict[str, Table], tmp_path: Path) -> None:
    functions = functions_from([tables[kind]], owner="north", folder=tmp_path)
    config = {"learner": [{"name": "north", "functions": ["f"]}]}
    north = covey.Network(config, functions=functions, dimension=0)["north"]
    answer = north.predict(ROWS[0])

    assert north.learn(answer.ticket, answer.label).is_right


@every_kind
def test_a_key_that_it_does_not_know_is_refused(
    kind: str, tables: dict[str, Table], tmp_path: Path
) -> None:
    said = refusal({**tables[kind], "nmae": "g"}, tmp_path)

    assert said == "unknown key 'nmae' in [[function]] 1; did you mean 'name'?"


@every_kind
def test_a_table_without_its_own_keys_is_refused(kind: str, tmp_path: Path) -> None:
    assert "missing required field" in refusal({"name": "f", "kind": kind}, tmp_path)


@every_kind
def test_nothing_is_unpickled(kind: str, tables: dict[str, Table], tmp_path: Path) -> None:
    loaded(tables[kind], tmp_path).answer(ROWS[0])  # libraries are imported by now
    UNPICKLED.clear()
    loaded(tables[kind], tmp_path).answer(ROWS[0])

    assert UNPICKLED == []


@pytest.mark.parametrize("kind", NEEDS)
def test_a_library_that_is_missing_is_named_with_its_extra(
    kind: str, tables: dict[str, Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, NEEDS[kind], None)

    with pytest.raises(
        MissingExtra, match=rf'kind {kind} need .*pip install "\.\[{EXTRAS[kind]}\]"'
    ):
        loaded(tables[kind], tmp_path)


@every_kind
def test_its_keys_are_documented(kind: str) -> None:
    page = (ROOT / "docs" / "guide" / "functions.md").read_text()
    keys = [field.encode_name for field in msgspec.structs.fields(KINDS[kind].table)]

    assert [key for key in keys if f"`{key}`" not in page] == []


def test_a_constant_that_is_not_a_label_is_a_failure_of_the_function(tmp_path: Path) -> None:
    function = loaded({"name": "f", "kind": "constant", "label": float("nan")}, tmp_path)

    with pytest.raises(FunctionError, match="answered nan, which is not a label"):
        function.answer(ROWS[0])


UNPICKLED: list[Any] = []
sys.addaudithook(lambda event, _: UNPICKLED.append(event) if event == "pickle.find_class" else None)
