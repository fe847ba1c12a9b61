"""Every kind of store keeps what it acknowledged, and refuses what it cannot vouch for."""

import random
from pathlib import Path

import numpy as np
import pytest

from covey.bandit.learner import NO_ANSWER, UNKNOWN
from covey.errors import StoreAway, StoreError
from covey.site.requests import (
    Arm,
    Belief,
    BeliefNotes,
    CellLine,
    Commit,
    CountedArm,
    Counts,
    Delivery,
    LabelPart,
    Loaded,
    PeerAnswer,
    Request,
    RowGroup,
    SeriesLine,
    ShadowRow,
    ShadowSpan,
    SourceState,
)
from covey.store import tables
from covey.store.database import VERSION
from covey.store.store import Store
from support.pruned import some_commits
from support.requests_of_nodes import commit_of, request
from support.stores import KINDS, PLACES, Make, database, make, server

__all__ = ["database", "make", "server"]  # fixtures

PHASES = ("train", "explore", "exploit", "recall")


@pytest.fixture
def store(make: Make) -> Store:
    made = make()
    load(made)
    return made


def load(store: Store) -> Loaded:
    return store.load("north", "fingerprint")


def test_what_was_answered_in_the_shadow_is_kept_until_its_request_is_folded(make: Make) -> None:
    store = make(rows_kept=2)
    load(store)
    spans = [ShadowSpan(1, 0.05, "ab" * 32, ["a", "b"]), ShadowSpan(3, 1 / 3, "cd" * 32, ["a"])]
    rows = [ShadowRow(1, 0, {"b": "red", "c": None}), ShadowRow(2, 0, {"b": 1.5})]
    first = commit_of([request(1, id="a"), request(2, id="b")])
    first.records = [*spans[:1], *rows]
    store.commit(first)
    store.commit(Commit([*spans[1:], *rows[:1]]))

    assert (store.all(ShadowSpan), store.all(ShadowRow)) == (spans, rows)
    assert store.check() == []
    later = commit_of([request(number, id=f"r{number}") for number in range(3, 9)])
    later.closed = [1, 2]
    store.commit(later)
    assert store.all(ShadowRow) == []
    assert store.all(ShadowSpan) == spans
    assert store.check() == []


def test_there_are_three_kinds_of_stores() -> None:
    assert len(KINDS) == 3


def test_what_was_committed_is_loaded_again(store: Store) -> None:
    group = RowGroup("g4:1", "exploit", "south", 0.5, "south")
    asked = request(
        groups=[group],
        prediction="red",
        peer_answers={0: PeerAnswer("f", "p1", is_awaited=True)},
        digest="d",
    )
    state = SourceState("", 9, {"": [1, 2]}, (8, "blue"))
    cell = CellLine("", "", 0, "g4:1", [1, 2, 3], [("red", 2)])
    delivery = Delivery("south", "p1", "blue")

    commit = commit_of([asked], {1: ["blue"]})
    commit.records, commit.deliveries = [state, cell], [delivery]
    store.commit(commit)
    loaded = load(store)

    assert (loaded.sources, loaded.of(CellLine)) == ({"": state}, [cell])
    assert (loaded.of(Delivery), loaded.latest_number) == ([delivery], 1)
    (again,) = loaded.requests
    assert again.groups == [group]
    assert (again.digest, again.slot, again.contexts) == ("d", 1, [(0.3,)])
    assert (again.predictions, again.truths, again.parts) == (["red"], ["blue"], 1)
    assert again.peer_answers == {0: PeerAnswer("f", "p1", is_awaited=True)}
    assert (again.is_open, again.is_stored) == (True, True)


def test_a_request_of_many_rows_is_loaded_again(store: Store) -> None:
    groups = [RowGroup(f"g4:{k}", "explore", "f", 0.0) for k in range(3)]
    many = request(
        rows=40,
        groups=groups,
        group_of=np.arange(40, dtype=np.uint32) % 3,
        contexts=np.linspace(0.0, 1.0, 80).reshape(40, 2),
        predictions=list(range(40)),
        answers=list(range(1, 41)),
    )

    store.commit(commit_of([many], {1: [None, 5, None, 7]}))
    (again,) = load(store).requests

    assert (again.groups, list(again.group_of)) == (groups, list(many.group_of))
    assert np.array_equal(again.contexts, many.contexts)
    assert (again.predictions, again.answers) == (many.predictions, many.answers)
    assert (again.truths[1], again.truths[3], len(again.pending)) == (5, 7, 38)
    assert (again.last_slot, again.slot_of(3)) == (40, 4)


def test_rows_of_a_peer_keep_their_slots_and_are_found_by_their_ids(store: Store) -> None:
    ids = ["x:1", "x:2", "y:1"]
    of_peer = request(
        rows=3, source="south", id="x:1", row_ids=ids, slots=[5, 9, 2], slot=5, contexts=[()] * 3
    )
    alone = request(2, source="south", id="x:3", contexts=[()])

    store.commit(commit_of([of_peer, alone], {1: [None, 1]}))
    found = {id_: store.find("south", id_) for id_ in [*ids, "x:3", "x:4", "x"]}

    assert {id_: one and (one[0].number, one[1]) for id_, one in found.items()} == {
        "x:1": (1, 0),
        "x:2": (1, 1),
        "y:1": (1, 2),
        "x:3": (2, None),
        "x:4": None,
        "x": None,
    }
    assert store.find("", "x:1") is None
    again = load(store).requests[0]
    assert (again.slots, again.last_slot, again.slot_of(2)) == ([5, 9, 2], 9, 2)
    assert (again.contexts, again.row_ids) == ([()] * 3, ids)


def test_labels_keep_their_type(store: Store) -> None:
    given = [1, True, 1.5, "1", "ä", NO_ANSWER]

    store.commit(commit_of([request(k, prediction=a) for k, a in enumerate(given, 1)]))
    kept = [one.predictions[0] for one in load(store).requests]

    assert [(type(one), one) for one in kept] == [(type(one), one) for one in given]


def test_a_label_counts_once_for_its_source_and_not_in_training(store: Store) -> None:
    phases = {1: "explore", 2: "exploit", 3: "train", 4: "recall"}
    kept = [request(k, phase=phase) for k, phase in phases.items()]
    kept.append(request(5, phase="serve", source="south"))

    store.commit(commit_of(kept, {k: [0 if k == 2 else 1] for k in range(1, 6)}))

    assert store.counters() == {("g4:1", "", "f"): (2, 1), ("g4:1", "south", "f"): (1, 1)}
    assert store.check() == []


def test_a_second_label_of_a_row_is_refused_with_its_whole_commit(store: Store) -> None:
    first = request(rows=2)
    store.commit(commit_of([first], {1: [1]}))
    again = commit_of([request(2)])
    first.truths[:] = [0, 1]
    again.add_labels(first, [1, 0], [True, False])

    with pytest.raises(StoreError, match="of a row that waits for none"):
        store.commit(again)

    assert store.find("", "t2") is None
    assert store.counters() == {("g4:1", "", "f"): (1, 1)}


@pytest.mark.parametrize(
    "part",
    [
        LabelPart(1, 0, [0, 0], [1, 1], [True, True]),  # a row twice
        LabelPart(1, 1, [0], [1], [True]),  # a row that has its label
        LabelPart(1, 0, [1], [1], [True]),  # a part that there is
        LabelPart(2, 0, [0], [1], [True]),  # a request that there is not
    ],
)
def test_labels_that_no_row_waits_for_are_refused(store: Store, part: LabelPart) -> None:
    store.commit(commit_of([request(rows=2)], {1: [1]}))

    with pytest.raises(StoreError, match="of a row that waits for none"):
        store.commit(Commit(labels={part.request: part}))

    assert store.counters() == {("g4:1", "", "f"): (1, 1)}
    assert store.check() == []


@pytest.mark.parametrize("count", [1, 3, 4, 63, 64, 65, 211])
def test_many_labels_count_as_one_after_the_other_would(store: Store, count: int) -> None:
    chance = random.Random(count)  # noqa: S311 - no secret
    kept = {k: some_request(k, chance) for k in range(1, count + 1)}
    told = [(k, row) for k, one in kept.items() for row in range(len(one))]
    chance.shuffle(told)
    truths = {where: chance.choice([0, 1, "x"]) for where in told}
    expected: Counts = {}
    for (number, row), truth in truths.items():
        group = kept[number].group(row)
        if group.phase in ("explore", "exploit"):
            key = (group.cell, kept[number].source, group.arm)
            labels, right = expected.get(key, (0, 0))
            expected[key] = labels + 1, right + (truth == 1)

    store.commit(commit_of(list(kept.values())))
    for some in (told[: len(told) // 3], told[len(told) // 3 :]):
        commit = Commit()
        for number, row in some:
            truth = kept[number].truths[row] = truths[number, row]
            commit.add_labels(kept[number], [row], [truth == 1])
        store.commit(commit)

    assert store.counters() == expected
    assert store.check() == []
    found = {k: store.find(one.source, one.id) for k, one in kept.items()}
    assert truths == {
        (k, row): truth
        for k, one in found.items()
        if one
        for row, truth in enumerate(one[0].truths)
    }


def some_request(number: int, chance: random.Random) -> Request:
    groups = [
        RowGroup(f"g4:{chance.randrange(3)}", chance.choice(PHASES), chance.choice("fg"), 0.0)
        for k in range(3)
    ]
    rows = chance.choice([1, 1, 3, 20])
    return request(
        number,
        rows=rows,
        source=chance.choice(["", "client/a"]),
        groups=groups[: 1 if rows == 1 else 3],
        group_of=[0] if rows == 1 else [chance.randrange(3) for _ in range(rows)],
    )


def test_labels_of_many_rows_count_as_those_of_few() -> None:
    groups = [RowGroup("g4:1", phase, "f", 0.0) for phase in PHASES]
    which = [k % 4 for k in range(100)]
    right = [k % 3 == 0 for k in range(100)]
    whole, parts = (request(k, rows=100, groups=groups, group_of=which) for k in (1, 2))
    together, one_by_one = Commit(), Commit()
    together.add_labels(whole, list(range(100)), right)
    for row in range(100):
        one_by_one.add_labels(parts, [row], [right[row]])

    assert together.counts == one_by_one.counts == {("g4:1", "", "f"): (50, 16)}


def test_the_same_id_may_be_used_by_two_sources_but_not_twice_by_one(store: Store) -> None:
    store.commit(commit_of([request(1, id="x"), request(2, id="x", source="south")]))

    with pytest.raises(StoreError, match="(?i)unique"):
        store.commit(commit_of([request(3, id="x")]))

    found = store.find("south", "x")
    assert found is not None
    assert (found[0].number, found[0].truths, found[1]) == (2, [UNKNOWN], None)


def test_the_cells_and_the_state_of_each_source_are_its_own(store: Store) -> None:
    cells = [CellLine("", "", 0, "g4:1", [1]), CellLine("south", "", 0, "g4:2", [2])]
    states = [SourceState("", 4), SourceState("south", 7, {"": [3]})]

    store.commit(Commit([*states, *cells]))
    loaded = load(store)

    assert loaded.sources == {"": states[0], "south": states[1]}
    assert loaded.of(CellLine) == cells


def test_a_closed_request_is_not_loaded_but_found(store: Store) -> None:
    store.commit(commit_of([request(k) for k in range(1, 8)], {2: [1]}))
    store.commit(Commit(closed=[1, 2, 3, 4, 6]))

    found = store.find("", "t2")

    assert [one.number for one in load(store).requests] == [5, 7]
    assert found is not None
    assert (found[0].is_open, found[0].truths) == (False, [1])


def test_a_label_for_a_peer_stays_until_it_is_delivered(store: Store) -> None:
    delivery = Delivery("south", "p1", 1)
    store.commit(Commit(deliveries=[delivery, delivery]))

    before = load(store).of(Delivery)
    store.commit(Commit(delivered=[delivery]))

    assert (before, load(store).of(Delivery)) == ([delivery], [])


def test_a_store_of_another_site_is_refused(store: Store) -> None:
    for read in (lambda: store.load("south", "fingerprint"), lambda: store.peek("south")):
        with pytest.raises(StoreError, match="store of site 'north', not of 'south'"):
            read()


def test_all_requests_are_read_some_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.store.store.READ_AT_ONCE", 3)
    store.commit(commit_of([request(number) for number in range(1, 8)]))

    assert [one.number for one in store.requests()] == list(range(1, 8))


def test_only_a_file_is_read_without_a_wait_for_the_commit(store: Store) -> None:
    assert store.finds_at_once == (store.path.startswith("/"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kept", [10, 1_000_000])
def test_the_same_commits_make_the_same_rows_in_every_kind(
    make: Make, seed: int, kept: int
) -> None:
    one, other = make(rows_kept=kept), Store(":memory:", rows_kept=kept)
    for each in (one, other):
        load(each)
        for commit in some_commits(seed):
            each.commit(commit)
    again, expected = load(one), load(other)

    assert one.check() == []
    for table in tables.TABLES:
        assert list(one.stored_rows(table)) == list(other.stored_rows(table)), table
    assert [row.truths for row in again.requests] == [row.truths for row in expected.requests]
    assert again.counters == expected.counters
    assert [row.number for row in one.requests()] == [row.number for row in other.requests()]


def test_of_a_row_that_is_written_twice_in_a_commit_the_last_one_stays(store: Store) -> None:
    cells = [CellLine("", "", 0, "g4:1", [k]) for k in (1, 2)]

    store.commit(Commit([SourceState("", 1), SourceState("", 2), *cells]))
    loaded = load(store)

    assert loaded.of(CellLine) == cells[1:]
    assert loaded.sources[""].slot == 2


def test_a_configuration_that_changes_a_store_is_loaded_again(store: Store) -> None:
    arms = [Arm("f", "f", "own"), Arm("g", "g", "own", "v1", 0, 1, None, 1)]
    kept, new = (CountedArm("", "g4:1", arm, [1, 1]) for arm in "fg")
    cells = [CellLine("", "", 0, cell, [7]) for cell in ("g4:1", "g4:2")]
    store.commit(Commit([kept, cells[0], Belief("", "", "f", b"1"), BeliefNotes("", "", "f", [1])]))

    store.change(Commit([*arms, SourceState("", 3), new]), "arm: g")
    loaded = load(store)
    assert (loaded.fingerprint, loaded.of(Arm)) == ("arm: g", arms)
    assert (loaded.of(CellLine), loaded.of(CountedArm)) == (cells[:1], [kept, new])
    assert len(loaded.of(Belief)) == len(loaded.of(BeliefNotes)) == 1

    store.change(Commit([*arms, cells[1], new]), "arm: g", is_recounted=True)
    loaded = load(store)
    assert (loaded.of(CellLine), loaded.of(CountedArm)) == (cells[1:], [new])
    assert (loaded.of(Belief), loaded.of(BeliefNotes)) == ([], [])
    assert store.check() == []


def test_spans_of_time_are_replaced_and_old_minutes_removed_with_an_hour(store: Store) -> None:
    minutes = [SeriesLine(60, 60 * k, {"f": (k, 1, 1, 0)}) for k in (1, 2, 2_000)]
    again = SeriesLine(60, 60, {"f": (9, 0, 0, 0)})
    hour = SeriesLine(3_600, 100_800, {"f": (1, 0, 0, 0)})

    store.commit(Commit([*minutes[:2]]))
    store.commit(Commit([minutes[2], again]))
    assert store.all(SeriesLine) == [again, *minutes[1:]]
    store.commit(Commit([hour]))

    assert store.all(SeriesLine) == [minutes[2], hour]


def test_a_store_that_is_in_use_is_refused_and_opens_after_it_is_closed(make: Make) -> None:
    first = make()
    if first.path == ":memory:":
        return
    place = PLACES[first]
    with pytest.raises(StoreAway, match="is in use by another"):
        Store(place)
    first.close()

    Store(place).close()


def test_a_changed_row_is_found(store: Store, tmp_path: Path) -> None:
    store.commit(commit_of([request(1)], {1: [1]}))
    store._base.execute("UPDATE labels SET truths = '[0]'")

    assert "the row of table labels that begins with 1" in store.check()[0]
    with pytest.raises(StoreError, match="is damaged .the row of table labels"):
        store.find("", "t1")


def test_a_changed_schema_is_found(store: Store) -> None:
    store._base.execute("ALTER TABLE series RENAME COLUMN at TO later")

    assert store.check() == ["the schema is damaged"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE counters SET labels = labels + 1", "1 right of 2 are kept, .* have 1 of 1"),
        ("UPDATE folded SET labels = labels + 1", "2 right of 2 are kept, .* have 2 of 3"),
        (
            """INSERT INTO labels SELECT request, 1, rows, truths, "right", 0 FROM labels""",
            "a row of request 9 has two labels",
        ),
    ],
)
def test_counters_that_are_not_the_sum_of_the_labels_are_refused(
    make: Make, statement: str, said: str
) -> None:
    store = make(rows_kept=2)
    load(store)
    if "folded" in statement:
        folded = commit_of([request(1), request(2)], {1: [1], 2: [1]})
        folded.closed = [1, 2]
        store.commit(folded)
        store.commit(commit_of([request(number) for number in range(3, 9)]))
    else:
        store.commit(commit_of([request(9)], {9: [1]}))
    store._base.begin(None)
    store._base.execute(statement)
    store._base.commit()

    with pytest.raises(StoreError, match=said):
        load(store)
    assert store.check() != []


def test_impossible_counters_cannot_be_written(store: Store) -> None:
    store.commit(commit_of([request(1)], {1: [1]}))

    with pytest.raises(store._base.errors):
        store._base.execute('UPDATE counters SET "right" = labels + 1')


def test_another_form_is_refused(make: Make) -> None:
    first = make()
    if first.path == ":memory:":
        return
    place, statement = PLACES[first], f"PRAGMA user_version = {VERSION + 1}"
    if place != first.path:
        statement = f"UPDATE covey_store SET version = {VERSION + 1}"  # noqa: S608
    first._base.execute(statement)
    first.close()

    with pytest.raises(StoreError, match=f"form {VERSION + 1}.*use the covey that wrote it"):
        Store(place)
