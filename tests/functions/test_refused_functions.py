"""Tables of functions and instances that are refused with a sentence: see refusals.toml."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from covey.functions.registry import functions_from
from support.models import COLUMNS, Table, loaded, onnx_table, skops_table, trained
from support.refusals import refusals, refuses

REMOTE = {"name": "f", "kind": "remote", "url": "http://127.0.0.1:9/v2/models/f"}
TENSORS = [{"name": "size"}, {"name": "colour", "datatype": "BYTES"}]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[..., Any]]:
    folder, entry = tmp_path_factory.mktemp("functions"), "support.models:Majority"
    tables: dict[str, Table] = {
        "python": {"name": "f", "kind": "python", "entry": entry, "lessons": "f.jsonl"},
        "skops": skops_table(folder, trained()),
        "onnx": onnx_table(folder, trained(), columns=COLUMNS),
        "remote": {**REMOTE, "columns": COLUMNS},
        "tensors": {**REMOTE, "inputs": TENSORS},
    }
    return {
        "tables": partial(functions_from, owner="north", folder=folder),
        "table": lambda kind, change: loaded({**tables[kind], **change}, folder),
        "answer": partial(answer, tables, folder),
    }


def answer(tables: dict[str, Table], folder: Path, *, kind: str, instance: Any) -> Any:
    return loaded(tables[kind], folder).answer(instance)


@pytest.mark.parametrize(("door", "given", "says"), refusals(__file__))
def test_what_cannot_be_used_is_refused_with_a_sentence(
    doors: dict[str, Callable[..., Any]], door: str, given: dict[str, Any], says: list[str]
) -> None:
    refuses(doors, door, given, says)
