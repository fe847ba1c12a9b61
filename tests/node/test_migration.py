"""A store of version 1 opens, nothing that it counted is lost, and a copy of it is kept.

The folder `version_1` has stores that covey 0.1.0 wrote, as SQL: one with all its tickets, one of
which most were folded. Both are of a site `north` with own clients, and with a peer `south` whose
labels are kept apart.
"""

import json
import os
import sqlite3
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.disk import Disk, File
from chaos.power import PATTERNS
from covey import cli
from covey.bandit.learner import NO_ANSWER, UNKNOWN
from covey.errors import StoreError
from covey.node.requests import MigratedCell, Request
from covey.node.store import Store
from covey.types import MEMORY
from support.effort import effort

pytestmark = pytest.mark.beside_the_kernel

FOLDER = Path(__file__).parents[1] / "version_1"
Row = dict[str, Any]


@pytest.fixture(params=["whole", "pruned"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return written(tmp_path / "north.store", request.param)


def written(path: Path, name: str) -> Path:
    with sqlite3.connect(path) as base:
        base.executescript((FOLDER / f"{name}.sql").read_text())
    base.close()
    return path


def rows(path: Path, query: str) -> list[Row]:
    base = sqlite3.connect(path)
    base.row_factory = sqlite3.Row
    found = [dict(row) for row in base.execute(query).fetchall()]
    base.close()
    return found


def fingerprint(path: Path) -> str:
    return str(rows(path, "SELECT shape FROM site")[0]["shape"])


def found(store: Store, source: str, id_: str) -> Request:
    known = store.find(source, id_)
    assert known is not None
    assert known[1] is None
    return known[0]


def test_every_ticket_is_a_request_of_one_row(old: Path) -> None:
    tickets = rows(
        old, "SELECT tickets.*, ticket >= oldest AS is_open FROM tickets JOIN desks USING (desk)"
    )
    assert len(tickets) > 20
    store = Store(old)

    for ticket in tickets:
        request = found(store, ticket["source"], ticket["id"])
        group = request.group(0)
        assert (len(request), request.parts) == (1, int(ticket["truth"] is not None))
        assert (request.digest, request.slot) == (ticket["digest"], ticket["slot"])
        assert (request.is_open, request.space) == (bool(ticket["is_open"]), ticket["space"])
        assert list(request.contexts[0]) == json.loads(ticket["context"])
        assert msgspec.structs.astuple(group)[1:6] == tuple(
            ticket[n] for n in ("cell", "phase", "arm", "price", "peer")
        )
        assert request.function(0) == ticket["function"]
        assert request.width(0) == ticket["width"]
        answer = request.peer_answers.get(0)
        assert (answer.id if answer else "") == (ticket["peer_ticket"] or "")
        assert request.predictions == [_label(ticket["prediction"], NO_ANSWER)]
        assert request.answers == [_label(ticket["answer"], NO_ANSWER)]
        assert request.truths == [_label(ticket["truth"], UNKNOWN)]
        # The rows of an isolated source's cells were those of a table that is gone.
        code = ticket["code"]
        assert group.code == (-1 - code % 2**20 if ticket["desk"] else code)


def _label(text: str | None, without: Any) -> Any:
    return without if text is None else json.loads(text)


def test_every_batch_of_version_1_is_a_request_with_its_labels(old: Path) -> None:
    lots = rows(old, "SELECT * FROM lots")
    told = {lot["lot"]: dict[int, Any]() for lot in lots}
    for part in rows(old, "SELECT * FROM lot_labels"):
        places = struct.unpack(f"{part['labels']}I", part["rows"])
        told[part["lot"]] |= dict(zip(places, json.loads(part["truths"]), strict=True))
    assert lots
    store = Store(old)

    for lot in lots:
        request = found(store, lot["source"], lot["id"])
        assert (len(request), request.slot) == (lot["rows"], lot["slot"])
        assert request.is_open == bool(lot["is_open"])
        assert [list(msgspec.structs.astuple(group)[:6]) for group in request.groups] == json.loads(
            lot["kinds"]
        )
        assert list(request.group_of) == list(struct.unpack(f"{lot['rows']}I", lot["which"]))
        assert b"".join(struct.pack("d", *point) for point in request.contexts) == lot["contexts"]
        assert request.predictions == [_answer(one) for one in json.loads(lot["predictions"])]
        assert {row: list(answer) for row, answer in request.peer_answers.items()} == {
            int(row): answer for row, answer in json.loads(lot["helped"] or "{}").items()
        }
        expected = [told[lot["lot"]].get(row, UNKNOWN) for row in range(lot["rows"])]
        assert request.truths == expected


def _answer(label: Any) -> Any:
    return NO_ANSWER if label is None else label


def test_the_counters_are_the_same_and_a_recount_agrees(old: Path) -> None:
    counters = {
        (one["cell"], one["source"], one["arm"]): (one["labels"], one["right"])
        for one in rows(old, "SELECT * FROM counters")
    }
    tickets = rows(old, "SELECT cell, peer, truth FROM tickets WHERE peer <> ''")
    lots = rows(old, "SELECT source, id FROM lots WHERE helped IS NOT NULL")
    shape = fingerprint(old)
    store = Store(old)
    loaded = store.load("north", shape)

    assert loaded.counters == counters
    assert store.check() == []
    answered, labelled = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for one in tickets:
        answered[one["cell"], one["peer"]] += 1
        labelled[one["cell"], one["peer"]] += one["truth"] is not None
    for lot in lots:
        request = found(store, lot["source"], lot["id"])
        for row in request.peer_answers:
            group = request.group(row)
            answered[group.cell, group.peer] += 1
            labelled[group.cell, group.peer] += request.truths[row] is not UNKNOWN
    assert loaded.asked == {key: (count, labelled[key]) for key, count in answered.items()}


def test_the_site_continues_from_its_state_and_its_open_requests(old: Path) -> None:
    (site,) = rows(old, "SELECT * FROM desks WHERE desk = ''")
    cells = rows(old, "SELECT * FROM cells WHERE desk = '' ORDER BY space, line")
    starts = rows(old, "SELECT starts FROM site")[0]["starts"]
    oldest = site["oldest"]
    own = rows(old, f"SELECT id, slot FROM tickets WHERE desk = '' AND ticket >= {oldest}")  # noqa: S608
    own += rows(old, "SELECT id, slot FROM lots WHERE is_open")
    shape = fingerprint(old)
    loaded = Store(old).load("north", shape)

    state = loaded.sources[""]
    assert (state.slot, state.migrated) == (site["slot"], None)
    assert json.loads(json.dumps([state.changes, state.latest])) == [
        json.loads(site["doubts"]),
        json.loads(site["latest"]),
    ]
    assert [(one.name, one.counters) for one in loaded.cells[""]] == [
        (one["name"], json.loads(one["counters"])) for one in cells
    ]
    opened = [one.id for one in loaded.requests if one.source != "south"]
    assert opened == [one["id"] for one in sorted(own, key=lambda one: one["slot"])]
    assert loaded.starts == starts + 1


def test_open_requests_of_a_peer_stay_in_order(old: Path) -> None:
    (desk,) = rows(old, "SELECT * FROM desks WHERE desk = 'south'")
    oldest = desk["oldest"]
    asked = rows(old, f"SELECT id FROM tickets WHERE desk = 'south' AND ticket >= {oldest}")  # noqa: S608
    shape = fingerprint(old)
    loaded = Store(old).load("north", shape)

    opened = [one.id for one in loaded.requests if one.source == "south"]
    assert opened == [one["id"] for one in asked]
    assert loaded.sources["south"].slot == desk["slot"]
    assert loaded.cells["south"] == []


def test_what_an_isolated_source_caused_is_what_the_counters_have_of_it(old: Path) -> None:
    served = Counter(
        one["cell"]
        for one in rows(old, "SELECT cell FROM tickets WHERE desk = 'south' AND phase = 'serve'")
    )
    for one in rows(old, "SELECT cell, labels FROM folded WHERE source = 'south'"):
        served[one["cell"]] += one["labels"]
    truths = rows(old, "SELECT truth FROM tickets WHERE desk = 'south' AND truth IS NOT NULL")
    shape = fingerprint(old)
    store = Store(old)
    migrated = store.load("north", shape).sources["south"].migrated

    assert migrated is not None
    assert {
        (cell, "south", arm): counted
        for cell, one in migrated.items()
        for arm, counted in one.labels.items()
    } == {key: counted for key, counted in store.counters().items() if key[1] == "south"}
    assert {cell: one.arrivals for cell, one in migrated.items() if one.arrivals} == served
    seen = Counter[str]()
    for one in migrated.values():
        seen.update({json.dumps(label): count for label, count in one.seen})
    assert seen == Counter(one["truth"] for one in truths)
    assert all(isinstance(one, MigratedCell) for one in migrated.values())


def test_an_answer_from_memory_keeps_its_name(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "whole")
    recalled = rows(path, "SELECT id FROM tickets WHERE phase = 'recall'")
    store = Store(path)

    assert recalled
    assert {found(store, "south", one["id"]).function(0) for one in recalled} == {MEMORY}


def test_a_copy_of_the_old_file_is_kept_for_its_owner_alone(old: Path) -> None:
    before = dump(old)
    Store(old).close()

    copy = old.with_name("north.store.v1.bak")
    assert dump(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600
    assert rows(copy, "PRAGMA user_version") == [{"user_version": 1}]
    assert sorted(one.name for one in old.parent.iterdir()) == [old.name, copy.name]


def test_a_store_is_migrated_once(old: Path) -> None:
    Store(old).close()
    copy = old.with_name("north.store.v1.bak")
    copy.unlink()
    after = dump(old)
    Store(old).close()

    assert dump(old) == after
    assert not copy.exists()


def test_a_copy_of_another_file_is_not_overwritten(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "whole")
    earlier = written(tmp_path / "a.v1.bak", "pruned")
    (tmp_path / "a.v1.bak.2").write_bytes(b"torn")
    before = dump(path), dump(earlier)
    store = Store(path)

    assert store.copy == tmp_path / "a.v1.bak.3"
    store.close()
    assert (dump(tmp_path / "a.v1.bak.3"), dump(earlier)) == before


def test_a_migration_that_is_repeated_has_one_copy(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "whole")
    content = path.read_bytes()
    for _ in range(2):
        path.write_bytes(content)  # as after a crash between the copy and the migration
        Store(path).close()

    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "a.v1.bak"]


def test_a_store_that_cannot_be_copied_stays_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "whole")
    before = dump(path)
    (tmp_path / f".a.{os.getpid()}.part").mkdir()

    with pytest.raises(StoreError, match=r"a is to be migrated, and no copy of it can be written"):
        Store(path)

    assert dump(path) == before


def test_check_of_an_old_store_agrees_and_says_where_the_old_file_is(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dump(old)
    assert cli.main(["check", str(old)]) == 0
    first = capsys.readouterr()
    assert cli.main(["check", str(old)]) == 0
    again = capsys.readouterr()

    assert "every counter is the sum of its labels" in first.out
    assert first.err == (
        f"{old} was written by an earlier covey and is migrated now; the old file is {old}.v1.bak\n"
    )
    assert dump(Path(f"{old}.v1.bak")) == before
    assert (again.out, again.err) == (first.out, "")


def test_check_as_json_has_the_keys_of_0_1_0_beside_the_new_ones(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single = rows(old, "SELECT COUNT(*) AS tickets, COUNT(truth) AS labels FROM tickets")[0]
    many = rows(old, "SELECT COUNT(*) AS lots, SUM(rows) AS rows FROM lots")[0]
    labels = rows(old, "SELECT COALESCE(SUM(labels), 0) AS labels FROM lot_labels")[0]["labels"]
    outbox = rows(old, "SELECT COUNT(*) AS labels FROM outbox")[0]["labels"]
    assert cli.main(["check", str(old), "--json"]) == 0

    count = single["tickets"] + many["rows"]
    assert json.loads(capsys.readouterr().out) == {
        "requests": single["tickets"] + many["lots"],
        "rows": count,
        "tickets": count,
        "labels": single["labels"] + labels,
        "deliveries": outbox,
        "owed": outbox,
        "differences": [],
    }


def test_a_migrated_store_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    Store(old).close()
    Store(tmp_path / "new").close()
    columns = (
        "SELECT tables.name, columns.name AS column, columns.type, pk "
        "FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns "
        "WHERE tables.type = 'table' ORDER BY 1, cid"
    )

    assert rows(old, columns) == rows(tmp_path / "new", columns)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_migration_is_whole_or_not_at_all_wherever_the_power_is_cut(
    tmp_path: Path, pattern: str
) -> None:
    content = written(tmp_path / "a", "pruned").read_bytes()
    shape = fingerprint(tmp_path / "a")
    whole = Store(tmp_path / "a")
    expected = [tuple(one) for one in whole._base.execute("SELECT * FROM requests")]
    whole.close()
    every = effort(4, long=1)  # patterns in turn, so that the power is cut at every operation
    fuse, is_cut = list(PATTERNS).index(pattern) % every, True
    while is_cut:
        disk = disk_with(content)
        disk.fuse = fuse
        try:
            Store("a", connect=disk.connect).close()  # type: ignore[arg-type]
        except StoreError:
            assert disk.is_cut
        is_cut = disk.is_cut
        disk.lose_power(PATTERNS[pattern]())
        again = Store("a", connect=disk.connect)  # type: ignore[arg-type]
        again.load("north", shape)
        assert [tuple(one) for one in again._base.execute("SELECT * FROM requests")] == expected
        assert again.check() == []
        again.close()
        disk.remove()
        fuse += every

    assert fuse > 10


def disk_with(content: bytes) -> Disk:
    disk = Disk()
    disk.files["a"] = file = File()
    file.apply((0, content))
    file.sync()
    return disk


def dump(path: Path) -> list[str]:
    base = sqlite3.connect(path)
    lines = list(base.iterdump())
    base.close()
    return lines
