"""What was taught is taught again: the same model after a restart, however it stopped."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier

from covey.errors import ConfigError, DataError, FunctionError
from covey.sources.lessons import Lessons, plain
from covey.sources.registry import functions_from
from models import LABELS, ROWS, Table, loaded, mapping, skops_table

TREE = {
    "kind": "river",
    "entry": "river.tree:HoeffdingTreeClassifier",
    "options": {"grace_period": 20},
}
some = settings(max_examples=60)
values = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.text(), st.booleans()
)


def table(**more: Any) -> Table:
    return {"name": "f", "lessons": "f.jsonl", "classes": ["ham", "spam"], **TREE, **more}


def counting(**more: Any) -> Table:
    return {"name": "f", "kind": "python", "entry": "models:Majority", "lessons": "f.jsonl", **more}


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "f.jsonl").read_text().splitlines()]


def test_a_river_model_answers_after_a_restart_as_before(tmp_path: Path) -> None:
    before = loaded(table(), tmp_path)
    rows = list(map(mapping, ROWS))
    for row, label in zip(rows[:200], LABELS.tolist(), strict=False):
        before.learn(row, label)
    after = loaded(table(), tmp_path)

    answers = after.answer_many(rows)
    assert (answers == before.answer_many(rows), len(set(answers)) > 1) == (True, True)


def test_a_model_taught_in_batches_is_taught_again_in_the_same_ones(tmp_path: Path) -> None:
    # Batches matter here: partial_fit shuffles each.
    model = SGDClassifier(random_state=0).fit(ROWS[:20], LABELS[:20])
    saved = skops_table(tmp_path, model, learns=True, lessons="f.jsonl")
    before = loaded(saved, tmp_path)
    for start, stop in ((20, 21), (21, 150), (150, 300)):
        before.learn_many(list(ROWS[start:stop].astype(np.float32)), LABELS[start:stop].tolist())
    after = loaded(saved, tmp_path)

    assert len(lines(tmp_path)) == 3
    assert after.answer_many(ROWS) == before.answer_many(ROWS) != model.predict(ROWS).tolist()


def test_only_the_last_lessons_are_taught_again(tmp_path: Path) -> None:
    before = loaded(counting(**{"lessons-kept": 3}), tmp_path)
    for label in ["spam"] * 4 + ["scan"] * 2:
        before.learn("x", label)
    after = loaded(counting(**{"lessons-kept": 3}), tmp_path)

    assert (before.answer("x"), after.answer("x")) == ("spam", "scan")


def test_the_file_stays_within_twice_what_is_kept(tmp_path: Path) -> None:
    function = loaded(counting(**{"lessons-kept": 5}), tmp_path)
    sizes = []
    for k in range(40):
        function.learn(k, "spam")
        sizes.append(len(lines(tmp_path)))

    assert (max(sizes), lines(tmp_path)[-1]) == (10, [[39], ["spam"]])


def test_a_batch_larger_than_what_is_kept_is_kept_whole(tmp_path: Path) -> None:
    lessons = Lessons(tmp_path / "f.jsonl", most=2)
    with lessons.taking(([1, 2, 3], ["a", "b", "c"])):
        pass

    assert lessons.recall() == [([1, 2, 3], ["a", "b", "c"])]


def test_a_lesson_that_the_function_refuses_is_not_kept(tmp_path: Path) -> None:
    function = loaded(counting(), tmp_path)
    function.learn("x", "spam")
    with pytest.raises(FunctionError, match="when it was taught: no such label"):
        function.learn("y", "unheard of")
    function.learn("z", "spam")

    assert lines(tmp_path) == [[["x"], ["spam"]], [["z"], ["spam"]]]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_line_that_was_cut_off_is_dropped(cut: int, tmp_path: Path) -> None:
    function = loaded(counting(), tmp_path)
    function.learn(1, "spam")
    function.learn(2, "spam")
    path = tmp_path / "f.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    loaded(counting(), tmp_path).learn(3, "spam")

    assert lines(tmp_path) == [[[1], ["spam"]], [[3], ["spam"]]]


@pytest.mark.parametrize("line", ["nonsense", "{}", "[[1], []]", "[1, 2]", "3"])
def test_a_line_that_is_no_lesson_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text(f'[[1],["spam"]]\n{line}\n')

    with pytest.raises(ConfigError, match="f.jsonl line 2 is not a lesson; move the file away"):
        loaded(counting(), tmp_path)


def test_lessons_that_the_function_no_longer_takes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text('[["x"],["unheard of"]]\n')

    with pytest.raises(ConfigError, match="f.jsonl does not fit: no such label; .*'f'.* changed"):
        loaded(counting(), tmp_path)


def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    function = loaded(counting(**{"lessons-kept": 1}), tmp_path)
    modes = []
    for k in range(4):  # the last two after the file was made anew
        function.learn(k, "spam")
        modes.append((tmp_path / "f.jsonl").stat().st_mode & 0o777)

    assert modes == [0o600] * 4


@given(st.dictionaries(st.text(), st.one_of(values, st.lists(values, max_size=3)), max_size=4))
@some
def test_what_is_kept_comes_back_as_it_was_taught(instance: Any) -> None:
    kept = plain(instance)

    assert repr(json.loads(json.dumps(kept))) == repr(kept) == repr(instance)


@pytest.mark.parametrize(
    ("instance", "same"),
    [
        (np.array([1.5, 2.0], dtype=np.float32), [1.5, 2.0]),
        ((1, (2, None)), [1, [2, None]]),
        ({"a": np.int64(3)}, {"a": 3}),
        (np.str_("x"), "x"),
    ],
)
def test_an_instance_is_kept_as_json_has_it(instance: Any, same: Any) -> None:
    assert repr(plain(instance)) == repr(same)


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        ({1: 2.0}, "names that are no text"),
        ([float("nan")], "JSON, which has no nan"),
        ({"a": {1, 2}}, "JSON, which has no set"),
    ],
)
def test_an_instance_that_json_cannot_hold_is_refused(instance: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        plain(instance)


def test_a_label_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FunctionError, match="the label is a tuple"):
        loaded(counting(), tmp_path).learn("x", ("spam", 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lessons-kept": 0}, "lessons-kept is 0; it must be 1 or more"),
        ({"entry": "models:by_sign"}, "cannot be taught, so it has no lessons to keep"),
        ({"lessons": "."}, "cannot keep lessons in .*: Is a directory"),
        ({"lessons": "no/f.jsonl"}, "cannot keep lessons in .*: No such file or directory"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(change: Table, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        loaded(counting(**change), tmp_path)


def test_two_functions_must_not_share_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'f' and 'g' keep their lessons in the same file"):
        functions_from(
            [counting(), counting(name="g", lessons="./f.jsonl")], owner="n", folder=tmp_path
        )
