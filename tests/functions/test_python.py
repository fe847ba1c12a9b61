"""Functions from installed code: objects and factories."""

from pathlib import Path

import pytest

from covey.errors import ConfigError, FunctionError
from support.models import Table, loaded


def table(entry: str, **more: object) -> Table:
    return {"name": "f", "kind": "python", "entry": entry, **more}


def test_a_name_in_a_module_is_the_function(tmp_path: Path) -> None:
    assert loaded(table("support.models:by_sign"), tmp_path).answer([1.0]) == "spam"


def test_a_class_is_made(tmp_path: Path) -> None:
    assert loaded(table("support.models:Majority"), tmp_path).answer("x") == "ham"


def test_a_class_is_called_with_its_options(tmp_path: Path) -> None:
    assert (
        loaded(table("support.models:Majority", options={"first": "scan"}), tmp_path).answer("")
        == "scan"
    )


def test_created_models_learn_unless_learns_is_false(tmp_path: Path) -> None:
    learning, fixed = (
        loaded(table("support.models:Majority", learns=learns), tmp_path)
        for learns in (True, False)
    )
    learning.learn("x", "spam")
    fixed.learn("x", "spam")

    assert (learning.answer("x"), fixed.answer("x")) == ("spam", "ham")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("models", "entry is 'models'; write package.module:name"),
        ("no_such_module:f", "No module named 'no_such_module'; put the module beside"),
        ("support.models:by_sing", "support.models has no by_sing"),
        ("support.models:Majority.guess", "support.models has no Majority.guess"),
    ],
)
def test_an_entry_that_leads_nowhere_is_refused(entry: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"function 'f': {said}"):
        loaded(table(entry), tmp_path)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "support.models:broken",
            "support.models:broken raised OSError .* its options: no licence",
        ),
        ("support.models:Majority", "raised TypeError .* unexpected keyword"),
    ],
)
def test_a_failing_entry_is_refused(entry: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        loaded(table(entry, options={"colour": 1}), tmp_path)


def test_a_module_that_raises_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raising_module.py").write_text("None.gone\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ConfigError, match="importing raising_module raised AttributeError: .*gone"):
        loaded(table("raising_module:f"), tmp_path)


def test_an_entry_that_is_not_a_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="function 'f' is a list; give a callable"):
        loaded(table("support.models:COLUMNS"), tmp_path)


def test_a_function_that_raises_is_named(tmp_path: Path) -> None:
    with pytest.raises(FunctionError, match="'f' of learner 'north' raised TypeError"):
        loaded(table("support.models:by_sign"), tmp_path).answer(None)
