"""Functions from installed code: objects and factories."""

from pathlib import Path

import pytest

from covey.errors import ConfigError, FunctionError
from support.models import Table, loaded


def table(entry: str, **more: object) -> Table:
    return {"name": "f", "kind": "python", "entry": entry, **more}


def test_a_name_is_the_function_and_a_class_is_called_with_its_options(tmp_path: Path) -> None:
    made = loaded(table("support.models:Majority", options={"first": "scan"}), tmp_path)

    assert loaded(table("support.models:by_sign"), tmp_path).answer([1.0]) == "spam"
    assert loaded(table("support.models:Majority"), tmp_path).answer("x") == "ham"
    assert made.answer("") == "scan"


def test_created_models_learn_unless_learns_is_false(tmp_path: Path) -> None:
    learning, fixed = (
        loaded(table("support.models:Majority", learns=learns), tmp_path)
        for learns in (True, False)
    )
    learning.learn("x", "spam")
    fixed.learn("x", "spam")

    assert (learning.answer("x"), fixed.answer("x")) == ("spam", "ham")


@pytest.mark.parametrize("line", ["None.gone", "raise SystemExit('gone')"])
def test_a_module_that_raises_is_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising_module.py").write_text(line)
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ConfigError, match="'raising_module:f' cannot be imported .*: .*gone"):
        loaded(table("raising_module:f"), tmp_path)


def test_a_function_that_raises_is_named(tmp_path: Path) -> None:
    with pytest.raises(FunctionError, match="'f' of learner 'north' raised TypeError"):
        loaded(table("support.models:by_sign"), tmp_path).answer(None)
