"""scikit-learn models in skops files: pinned, of trusted types, equal to the original."""

from pathlib import Path

import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from covey.errors import ConfigError, FunctionError
from support.models import LABELS, ROWS, loaded, mapping, pinned, skops_table, trained

TREE = "sklearn.tree._tree.Tree"


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(5, random_state=0).fit(ROWS, LABELS)


@pytest.mark.parametrize(
    ("model", "trusted"),
    [
        (trained(), []),
        (make_pipeline(StandardScaler(), GaussianNB()).fit(ROWS, LABELS), []),
        (forest(), [TREE]),
    ],
    ids=["linear", "pipeline", "forest"],
)
def test_every_row_is_answered_as_by_the_model_that_was_saved(
    model: LogisticRegression, trusted: list[str], tmp_path: Path
) -> None:
    function = loaded(skops_table(tmp_path, model, trusted=trusted), tmp_path)

    assert function.answer_many(ROWS) == model.predict(ROWS).tolist()


def test_types_that_are_not_trusted_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"types that are not trusted: {TREE}; if you know"):
        loaded(skops_table(tmp_path, forest()), tmp_path)


def test_another_file_than_the_pinned_one_is_refused_with_both_hashes(tmp_path: Path) -> None:
    table = skops_table(tmp_path, trained())
    other = skops_table(tmp_path, forest())

    with pytest.raises(ConfigError) as caught:
        loaded(table, tmp_path)
    assert f"has sha256 {other['sha256']}, but {table['sha256']} is pinned" in str(caught.value)


def test_a_file_that_is_no_skops_file_is_refused(tmp_path: Path) -> None:
    table = {**pinned(tmp_path, "f.skops", b"\x80\x04N."), "kind": "skops"}  # a pickle

    with pytest.raises(ConfigError, match="cannot be read as a skops file: BadZipFile"):
        loaded(table, tmp_path)


def test_a_mapping_needs_columns(tmp_path: Path) -> None:
    function = loaded(skops_table(tmp_path, trained()), tmp_path)

    with pytest.raises(FunctionError, match="an instance is a mapping, .*columns = "):
        function.answer(mapping(ROWS[0]))


def test_a_model_that_learns_ends_as_the_original_does(tmp_path: Path) -> None:
    model = SGDClassifier(random_state=0).fit(ROWS[:150], LABELS[:150])
    function = loaded(skops_table(tmp_path, model, learns=True), tmp_path)
    before = function.answer_many(ROWS)

    function.learn_many(list(ROWS[150:]), LABELS[150:].tolist())
    model.partial_fit(ROWS[150:], LABELS[150:])

    assert before != function.answer_many(ROWS) == model.predict(ROWS).tolist()
