"""A store keeps what it acknowledged, refuses what it cannot vouch for, and says why."""

import multiprocessing
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from covey import cli
from covey.decisions import NO_ANSWER, UNKNOWN
from covey.errors import StoreError
from covey.records import Batch, Line, Owed, Standing, Ticket, Truth
from covey.schema import APPLICATION
from covey.store import Store


def ticket(number: int = 1, **fields: object) -> Ticket:
    usual = {
        "ticket": number,
        "source": "",
        "id": f"t{number}",
        "digest": "",
        "slot": number,
        "cell": "g4:1",
        "code": 0,
        "phase": "explore",
        "arm": "f",
        "function": "f",
        "price": 0.0,
        "space": "",
        "context": (0.3,),
        "prediction": 1,
        "answer": 1,
    }
    return Ticket(**(usual | fields))


def batch(**fields: object) -> Batch:
    return Batch(standings=[Standing("", 9, range(1, 9))], **fields)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made = Store(tmp_path / "north.store") if request.param == "file" else Store.memory()
    made.load("north", "shape")
    return made


def test_what_was_committed_is_loaded_again(store: Store) -> None:
    kept = ticket(prediction="red", answer="red", peer="south", peer_ticket="p1", width=7)
    line = Line("", 0, "g4:1", [1, 2, 3], [("red", 2)])
    owed = Owed("south", "p1", "blue")

    store.commit(batch(tickets=[kept], lines=[line], truths=[Truth(1, "blue", False)], owed=[owed]))
    loaded = store.load("north", "shape")

    site = loaded.desks[""]
    assert site.snapshot.cells == [("g4:1", [1, 2, 3])]
    assert site.snapshot.seen == [("g4:1", [("red", 2)])]
    assert (site.snapshot.slot, site.kept, loaded.owed) == (9, range(1, 9), [owed])
    (again,) = site.tickets
    assert (again.prediction, again.truth, again.peer_ticket) == ("red", "blue", "p1")
    assert loaded.asked == {("g4:1", "south"): (1, 1)}


def test_labels_keep_their_type(store: Store) -> None:
    given = [1, True, 1.5, "1", "ä", NO_ANSWER]

    store.commit(batch(tickets=[ticket(k, prediction=a) for k, a in enumerate(given, 1)]))
    kept = [one.prediction for one in store.load("north", "shape").desks[""].tickets]

    assert [(type(one), one) for one in kept] == [(type(one), one) for one in given]


def test_a_label_counts_once_for_who_sent_it_and_not_in_training(store: Store) -> None:
    phases = {1: "explore", 2: "exploit", 3: "train", 4: "recall"}
    kept = [ticket(k, phase=phase) for k, phase in phases.items()]
    kept.append(ticket(5, phase="serve", source="south"))

    truths = [Truth(k, 1, k != 2) for k in range(1, 6)]
    store.commit(batch(tickets=kept, truths=truths))

    assert store.counters() == {("g4:1", "", "f"): (2, 1), ("g4:1", "south", "f"): (1, 1)}
    assert store.check() == []


def test_a_second_label_of_a_ticket_is_refused_with_its_whole_batch(store: Store) -> None:
    store.commit(batch(tickets=[ticket()], truths=[Truth(1, 1, True)]))

    with pytest.raises(StoreError, match="of a ticket that waits for none"):
        store.commit(batch(tickets=[ticket(2)], truths=[Truth(1, 0, False)]))

    assert store.find("", "t2") is None
    assert store.counters() == {("g4:1", "", "f"): (1, 1)}


def test_two_labels_of_a_ticket_in_one_batch_are_refused(store: Store) -> None:
    store.commit(batch(tickets=[ticket(1), ticket(2)]))

    with pytest.raises(StoreError, match="of a ticket that waits for none"):
        store.commit(batch(truths=[Truth(2, 1, True), Truth(1, 1, True), Truth(1, 1, True)]))

    assert store.counters() == {}


@pytest.mark.parametrize("count", [1, 3, 4, 63, 64, 65, 211])
def test_many_labels_count_as_one_after_the_other_would(store: Store, count: int) -> None:
    chance = random.Random(count)  # noqa: S311 - no secret
    phases = ("train", "explore", "exploit", "recall")
    kept = [
        ticket(
            k,
            cell=f"g4:{chance.randrange(3)}",
            arm=chance.choice("fg"),
            source=chance.choice(["", "client/a"]),
            phase=chance.choice(phases),
        )
        for k in range(1, count + 1)
    ]
    told = [Truth(k, chance.choice([0, "x"]), chance.random() < 0.5) for k in range(1, count + 1)]
    chance.shuffle(told)
    expected: dict[tuple[str, str, str], tuple[int, int]] = {}
    for truth in told:
        one = kept[truth.ticket - 1]
        if one.phase in ("explore", "exploit"):
            labels, right = expected.get((one.cell, one.source, one.arm), (0, 0))
            expected[one.cell, one.source, one.arm] = labels + 1, right + truth.is_right

    store.commit(batch(tickets=kept, truths=told[: count // 3]))
    store.commit(batch(truths=told[count // 3 :]))

    assert store.counters() == expected
    assert store.check() == []
    found = {k: store.find(kept[k - 1].source, f"t{k}") for k in range(1, count + 1)}
    assert {k: one.truth for k, one in found.items() if isinstance(one, Ticket)} == {
        truth.ticket: truth.label for truth in told
    }


def test_the_same_id_may_be_used_by_two_sources_but_not_twice_by_one(store: Store) -> None:
    store.commit(batch(tickets=[ticket(1, id="x"), ticket(2, id="x", source="south")]))

    with pytest.raises(StoreError, match="UNIQUE"):
        store.commit(batch(tickets=[ticket(3, id="x")]))

    found = store.find("south", "x")
    assert found is not None
    assert (found.ticket, found.truth) == (2, UNKNOWN)


def test_desks_number_their_tickets_and_cells_apart(store: Store) -> None:
    lines = [Line("", 0, "g4:1", [1]), Line("", 0, "g4:2", [2], desk="south")]
    kept = [ticket(1), ticket(1, desk="south", source="south", id="x", phase="serve")]
    stood = [Standing("", 4, range(1, 2)), Standing("south", 7, range(1, 2))]

    store.commit(Batch(stood, lines, kept, [Truth(1, 1, True, "south")]))
    desks = store.load("north", "shape").desks

    assert [(name, one.snapshot.slot, one.snapshot.cells) for name, one in desks.items()] == [
        ("", 4, [("g4:1", [1])]),
        ("south", 7, [("g4:2", [2])]),
    ]
    assert [[one.truth for one in desk.tickets] for desk in desks.values()] == [[UNKNOWN], [1]]
    assert store.counters() == {("g4:1", "south", "f"): (1, 1)}


def test_an_owed_label_stays_until_it_is_told(store: Store) -> None:
    owed = Owed("south", "p1", 1)
    store.commit(batch(owed=[owed, owed]))

    before = store.load("north", "shape").owed
    store.commit(batch(told=[owed]))

    assert (before, store.load("north", "shape").owed) == ([owed], [])


def test_a_batch_that_was_not_committed_is_gone_after_a_crash(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    store.load("north", "shape")
    store.commit(batch(tickets=[ticket(1)]))
    with pytest.raises(StoreError):
        store.commit(batch(tickets=[ticket(2), ticket(2)]))

    again = crashed(tmp_path / "a", tmp_path / "b").load("north", "shape")

    assert [one.ticket for one in again.desks[""].tickets] == [1]


def test_a_file_is_synced_at_every_commit(tmp_path: Path) -> None:
    """Without FULL, a commit in WAL mode may be lost with the power."""
    base = Store(tmp_path / "a")._base

    told = [
        base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    ]

    assert told == ["wal", 2]


def test_starts_are_counted(store: Store) -> None:
    assert [store.load("north", "shape").starts for _ in range(2)] == [2, 3]


def test_a_new_store_is_for_its_owner_alone_and_the_mode_of_an_old_one_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    first = Store(path)
    first.load("north", "shape")
    modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
    first.close()
    path.chmod(0o640)
    Store(path).close()

    assert modes == {"a": 0o600, "a-wal": 0o600}
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_store_in_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot be opened; is there a folder .*nodir"):
        Store(tmp_path / "nodir" / "a")


def test_a_store_has_one_process_at_a_time(tmp_path: Path) -> None:
    first = Store(tmp_path / "a")

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        said = pool.apply(open_elsewhere, (tmp_path / "a",))

    assert "is in use by another process" in said
    first.close()


def open_elsewhere(path: Path) -> str:
    try:
        Store(path)
    except StoreError as error:
        return str(error)
    return "opened"


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("south", "shape", "store of site 'north', not of 'south'"),
        ("north", "x", "other settings: what they were cannot be told"),
    ],
)
def test_a_store_of_another_site_or_shape_is_refused(
    store: Store, name: str, shape: str, says: str
) -> None:
    with pytest.raises(StoreError, match=says):
        store.load(name, shape)


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "a").close()
    change(tmp_path / "a", "PRAGMA user_version = 2")

    with pytest.raises(StoreError, match="written by a newer covey"):
        Store(tmp_path / "a")


def test_another_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    change(tmp_path / "a", "CREATE TABLE theirs (x)")

    with pytest.raises(StoreError, match="is not a store of covey"):
        Store(tmp_path / "a")
    tables = change(tmp_path / "a", "SELECT name FROM sqlite_schema")

    assert tables == [("theirs",)]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"no database" * 1000)

    with pytest.raises(StoreError, match="is damaged, or not a store of covey"):
        Store(tmp_path / "a")


def test_a_truncated_store_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    store.load("north", "shape")
    store.commit(batch(tickets=[ticket(k, id="x" * 500 + str(k)) for k in range(1, 200)]))
    store.close()
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(StoreError, match="damaged"):
        Store(tmp_path / "a").load("north", "shape")


def test_counters_that_are_not_the_sum_of_the_labels_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "a")
    change(tmp_path / "a", "UPDATE counters SET labels = labels + 1")

    with pytest.raises(StoreError, match="1 right of 2 are kept, but the labelled tickets have 1"):
        Store(tmp_path / "a").load("north", "shape")


def test_impossible_counters_cannot_be_written(tmp_path: Path) -> None:
    written(tmp_path / "a")

    with pytest.raises(sqlite3.IntegrityError):
        change(tmp_path / "a", "UPDATE counters SET right = labels + 1")


def test_check_says_that_a_store_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "a")

    code = cli.main(["check", str(tmp_path / "a")])

    assert code == 0
    assert capsys.readouterr().out == (
        "1 tickets, 1 with their label, 0 owed to peers\nevery counter is the sum of its labels\n"
    )


def test_check_names_the_counter_that_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "a")
    change(tmp_path / "a", "DELETE FROM counters")

    code = cli.main(["check", str(tmp_path / "a")])

    assert code == 2
    assert "cell g4:1, source own, arm f: 0 right of 0 are kept" in capsys.readouterr().err


def test_check_of_a_file_that_is_not_there_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["check", str(tmp_path / "a")])

    assert (code, (tmp_path / "a").exists()) == (2, False)
    assert "there is no store" in capsys.readouterr().err


def written(path: Path) -> None:
    store = Store(path)
    store.load("north", "shape")
    store.commit(batch(tickets=[ticket()], truths=[Truth(1, 1, True)]))
    store.close()


def change(path: Path, statement: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as base:
        rows = base.execute(statement).fetchall()
        assert base.execute("PRAGMA application_id").fetchone()[0] in (0, APPLICATION)
    base.close()
    return rows


def crashed(path: Path, copy: Path) -> Store:
    """Return the store that another process would find, had this one been killed now."""
    for file in path.parent.glob(path.name + "*"):
        shutil.copy(file, copy.with_name(copy.name + file.name.removeprefix(path.name)))
    return Store(copy)
