"""Old requests leave the store, and nothing but their ids is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.node import store as stores
from covey.node.requests import Commit
from covey.node.store import Store
from support.pruned import some_commits
from support.requests_of_nodes import commit_of, request

KEPT = 10


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31))
def test_a_store_that_folds_old_requests_counts_as_one_that_keeps_them(seed: int) -> None:
    pruned, whole = Store(":memory:", rows_kept=KEPT), Store.memory()
    for store in (pruned, whole):
        store.load("north", "fingerprint")
        for commit in some_commits(seed):
            store.commit(commit)
    again, kept = (store.load("north", "fingerprint") for store in (pruned, whole))

    assert pruned.check() == whole.check() == []
    assert again.counters == kept.counters
    assert again.asked == kept.asked
    assert [one.number for one in again.requests] == [one.number for one in kept.requests]
    assert [one.truths for one in again.requests] == [one.truths for one in kept.requests]
    rows_open = sum(map(len, again.requests))
    if whole.size()["rows"] > KEPT + rows_open:
        assert pruned.size()["rows"] < whole.size()["rows"]
    assert pruned.size()["rows"] <= max(KEPT, rows_open)


def test_the_oldest_closed_requests_are_folded_first_and_their_ids_are_unknown() -> None:
    store = Store(":memory:", rows_kept=KEPT)
    store.load("north", "fingerprint")
    ids = ["x", "y", "z"]
    many = request(1, rows=3, source="south", id="x", row_ids=ids, slots=[1] * 3)
    store.commit(commit_of([many], {1: [1, 0]}))
    store.commit(commit_of([request(k) for k in range(2, 14)], {2: [1]}))
    store.commit(Commit(closed=[1, 2, 3, 4]))
    found = [store.find("south", one) for one in ids] + [store.find("", "t2")]

    assert found == [None] * 4
    assert store.find("", "t3") is None  # five of 15 rows are too many
    assert store.find("", "t4") is not None
    assert store.size() == {"requests": 10, "rows": 10, "labels": 0, "deliveries": 0}
    assert store.counters() == {("g4:1", "south", "f"): (2, 1), ("g4:1", "", "f"): (1, 1)}
    assert store._base.execute("SELECT COUNT(*) FROM row_ids").fetchone() == (0,)


def test_open_requests_stay_however_many_they_are() -> None:
    store = Store(":memory:", rows_kept=KEPT)
    store.load("north", "fingerprint")
    store.commit(commit_of([request(k) for k in range(1, 41)]))
    store.commit(Commit(closed=[20, 40]))

    left = [one.number for one in store.load("north", "fingerprint").requests]

    assert left == [k for k in range(1, 41) if k not in (20, 40)]
    assert store.find("", "t20") is None


def test_more_is_folded_in_a_commit_than_comes_but_never_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "PRUNED_AT_ONCE", 4)
    store = Store(":memory:", rows_kept=1000)
    store.load("north", "fingerprint")
    store.commit(commit_of([request(k) for k in range(1, 101)]))
    store.commit(Commit(closed=list(range(1, 101))))
    store._rows_kept = KEPT

    store.commit(commit_of([request(101)]))

    assert store.size()["rows"] == 101 - (2 * 1 + 4)


def test_check_finds_folded_sums_that_were_changed_in_the_file() -> None:
    store = Store(":memory:", rows_kept=KEPT)
    store.load("north", "fingerprint")
    for k in range(1, 31):
        store.commit(commit_of([request(k)], {k: [1]}))
        store.commit(Commit(closed=[k]))
    assert store.check() == []

    store._base.execute("UPDATE folded SET labels = labels + 1")
    assert store.check() != []
