"""Training logs: the same model after a restart, whatever the cause."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier

from covey.errors import ConfigError, DataError, FunctionError
from covey.functions.function import Function, as_function
from covey.functions.registry import MOST_SKIPPED, plain, replay_training, with_training_log
from support.models import LABELS, ROWS, Table, loaded, mapping, skops_table

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
    return {
        "name": "f",
        "kind": "python",
        "entry": "support.models:Majority",
        "lessons": "f.jsonl",
        **more,
    }


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


def test_retraining_uses_the_same_batches(tmp_path: Path) -> None:
    # Batches matter here: partial_fit shuffles each.
    model = SGDClassifier(random_state=0).fit(ROWS[:20], LABELS[:20])
    saved = skops_table(tmp_path, model, learns=True, lessons="f.jsonl")
    before = loaded(saved, tmp_path)
    for start, stop in ((20, 21), (21, 150), (150, 300)):
        before.learn_many(list(ROWS[start:stop].astype(np.float32)), LABELS[start:stop].tolist())
    after = loaded(saved, tmp_path)

    assert len(lines(tmp_path)) == 3
    assert after.answer_many(ROWS) == before.answer_many(ROWS) != model.predict(ROWS).tolist()


def test_only_the_latest_entries_are_used_for_retraining(tmp_path: Path) -> None:
    before = loaded(counting(**{"lessons-kept": 3}), tmp_path)
    for label in ["spam"] * 4 + ["scan"] * 2:
        before.learn("x", label)
    after = loaded(counting(**{"lessons-kept": 3}), tmp_path)

    assert (before.answer("x"), after.answer("x")) == ("spam", "scan")
    assert len(lines(tmp_path)) == 3


def test_the_log_has_at_most_twice_the_kept_entries(tmp_path: Path) -> None:
    function = loaded(counting(**{"lessons-kept": 5}), tmp_path)
    sizes = []
    for k in range(40):
        function.learn(k, "spam")
        sizes.append(len(lines(tmp_path)))

    assert (max(sizes), lines(tmp_path)[-1]) == (10, [[39], ["spam"]])


def test_a_failed_training_call_is_not_logged(tmp_path: Path) -> None:
    function = loaded(counting(), tmp_path)
    function.learn("x", "spam")
    with pytest.raises(FunctionError, match="in training: no such label"):
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
def test_an_invalid_line_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text(f'[[1],["spam"]]\n{line}\n')

    with pytest.raises(
        ConfigError, match="f.jsonl line 2 is not a training log entry; move the file away"
    ):
        loaded(counting(), tmp_path)


@pytest.mark.parametrize("bad", [1, MOST_SKIPPED])
def test_entries_that_fail_are_skipped(
    bad: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ['[["x"],["spam"]]\n', '[["x"],["unheard of"]]\n' * bad, '[["x"],["spam"]]\n']
    (tmp_path / "f.jsonl").write_text("".join(lines))

    function = loaded(counting(), tmp_path)

    assert function.answer("x") == "spam"
    skipped = [message for message in caplog.messages if "f.jsonl skipped: ValueError" in message]
    assert len(skipped) == bad
    assert (tmp_path / "f.jsonl").read_text() == "".join(lines)


class Forgetful:
    """Learns, and then fails if the label is b."""

    def __init__(self) -> None:
        self.taught: list[Any] = []

    def predict(self, instance: Any) -> str:
        return "a"

    def learn(self, instance: Any, label: str) -> None:
        self.taught.append((instance, label))
        if label == "b":
            raise ValueError("too late")


FOUR = '[[1],["a"]]\n[[2],["b"]]\n[[3],["a"]]\n[[4],["b"]]\n'


@pytest.mark.parametrize("load", [with_training_log, replay_training])
def test_a_function_is_created_again_after_a_failure(load: Any, tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text(FOUR)
    made: list[Forgetful] = []

    def make() -> Function:
        made.append(Forgetful())
        return as_function(made[-1], name="f", owner="north")

    function = load(make(), tmp_path / "f.jsonl", most=10, again=make)
    function.learn(5, "a")

    assert made[-1].taught == [(1, "a"), (3, "a"), (5, "a")]


def test_a_shared_object_gets_each_entry_once(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text(FOUR)
    given = Forgetful()
    function = as_function(given, name="f", owner="north")

    with_training_log(function, tmp_path / "f.jsonl", most=10, again=None)

    assert given.taught == [(1, "a"), (2, "b"), (3, "a"), (4, "b")]


def test_an_object_that_an_entry_names_is_not_taken_for_one_that_it_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only.py").write_text("from support.models import Majority\nONLY = Majority()\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "f.jsonl").write_text('[[1],["spam"]]\n[[2],["unheard of"]]\n[[3],["ham"]]\n' * 2)

    function = loaded(counting(entry="only:ONLY"), tmp_path)

    assert function.predict.__self__.counts == {"ham": 2, "spam": 2}  # type: ignore[attr-defined]


def test_a_log_with_too_many_failures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text('[["x"],["unheard of"]]\n' * (MOST_SKIPPED + 1))

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
def test_logged_instances_are_read_back_unchanged(instance: Any) -> None:
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
def test_an_instance_is_logged_as_json(instance: Any, same: Any) -> None:
    assert repr(plain(instance)) == repr(same)


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        ({1: 2.0}, "names that are not text"),
        ([float("nan")], "JSON, which has no nan"),
        ({"a": {1, 2}}, "JSON, which has no set"),
    ],
)
def test_an_instance_that_json_cannot_hold_is_refused(instance: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        plain(instance)
