"""A store in PostgreSQL: a node that was replaced commits nothing; no message has a password."""

import asyncio
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from covey import cli
from covey.errors import ConfigError, MissingExtra, StoreAway, StoreError, StoreFull
from covey.node import functions
from covey.site.requests import Commit, DayPayments
from covey.store import postgres
from covey.store.database import DatabaseUrl, store_place
from covey.store.store import Store
from support.postgres import Server
from support.requests_of_nodes import commit_of, request
from support.stores import database, server

__all__ = ["database", "server"]  # fixtures

SECRET = "s3cr3t"  # noqa: S105 - of no database
FULL = (  # as the server says it of its disk
    "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE SQLSTATE '53100'; END $$",
    "CREATE TRIGGER on_insert BEFORE INSERT ON requests EXECUTE FUNCTION full_disk()",
)


def opened(url: str) -> Store:
    store = Store(url)
    store.load("north", "fingerprint")
    return store


def ids(url: str) -> list[str]:
    with closing(opened(url)) as store:
        return [one.id for one in store.requests()]


# -- one node at a time -------------------------------------------------------------------------


def test_a_node_whose_connection_was_ended_commits_nothing_more(
    server: Server, database: str
) -> None:
    first = opened(database)
    first.commit(commit_of([request(1)]))
    end_connections(server, first)

    with pytest.raises(StoreAway, match="cannot be written: the connection was lost"):
        first.commit(commit_of([request(2)]))
    with pytest.raises(StoreError):
        first.find("", "t1")

    assert ids(database) == ["t1"]


def test_a_node_that_lost_its_lock_but_not_its_connection_commits_nothing_after_the_next_start(
    database: str,
) -> None:
    first = opened(database)
    first.commit(commit_of([request(1)]))
    first._base.execute("SELECT pg_advisory_unlock_all()")
    second = opened(database)

    with pytest.raises(StoreError, match="taken over by another node .start 1 is not the latest"):
        first.commit(commit_of([request(2)]))
    with pytest.raises(StoreError, match="taken over by another node"):
        first.load_again([])
    second.commit(commit_of([request(3)]))

    second.close()
    assert ids(database) == ["t1", "t3"]


def test_a_start_waits_for_the_commit_of_the_node_before_it(database: str) -> None:
    first = opened(database)
    first._base.execute("SELECT pg_advisory_unlock_all()")
    first.write(commit_of([request(1)]))
    first._base._send()  # type: ignore[attr-defined]
    second = Store(database)

    with pytest.raises(StoreAway, match="in use by another node"):
        second.load("north", "fingerprint")
    first.sync(Commit())

    assert [one.id for one in second.load("north", "fingerprint").requests] == ["t1"]


def end_connections(server: Server, store: Store) -> None:
    (number,) = store._base.execute("SELECT pg_backend_pid()").fetchone()
    with psycopg.connect(server.url(), autocommit=True) as base:
        base.execute("SELECT pg_terminate_backend(%s, 5000)", (number,))


def test_a_commit_that_did_not_happen_is_not_acknowledged(database: str) -> None:
    store = opened(database)
    store.write(commit_of([request(1)]))
    with pytest.raises(psycopg.Error):
        store._base.execute("SELECT no_such_function()")

    with pytest.raises(StoreError):
        store.sync(Commit())

    store.close()
    assert ids(database) == []


def test_a_node_gives_up_a_commit_that_its_server_does_not_finish(
    server: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "LONGEST_CALL_S", 0.1)
    store, name = opened(database), database.rpartition("%3D")[2]
    threads = functions.ThreadWorkers(store)

    with psycopg.connect(server.url()) as other:
        other.execute(f"LOCK TABLE {name}.site".encode())
        with pytest.raises(StoreAway, match="no answer in time"):
            asyncio.run(threads.commit(commit_of([request(1)])))

    threads.close()
    with closing(opened(database)) as again:  # whether it was committed later is not known
        assert again.check() == []


# -- databases that are refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE TABLE theirs (x BIGINT)", "is not a store of covey"),
        ("DROP SCHEMA {name}", "names no schema that is there"),
    ],
)
def test_a_database_of_another_kind_is_refused_and_left_as_it_is(
    database: str, statement: str, said: str
) -> None:
    name = database.rpartition("%3D")[2]
    with psycopg.connect(database, autocommit=True) as base:
        base.execute(statement.format(name=name).encode())

    with pytest.raises(StoreError, match=said):
        Store(database)


def test_a_server_that_may_lose_commits_with_the_power_is_refused(
    server: Server, database: str
) -> None:
    with psycopg.connect(server.url(), autocommit=True) as base:
        base.execute("ALTER SYSTEM SET fsync = off")
        base.execute("SELECT pg_reload_conf()")
        with pytest.raises(StoreError, match="fsync = off: acknowledged labels would be lost"):
            open_until_refused(database)
        base.execute("ALTER SYSTEM RESET fsync")
        base.execute("SELECT pg_reload_conf()")


def open_until_refused(database: str) -> None:
    while True:  # the server reads its files some moments later
        Store(database).close()


def test_a_full_disk_of_the_server_is_not_the_end_of_the_node(database: str) -> None:
    with closing(opened(database)) as store:
        for statement in FULL:
            store._base.execute(statement)
        with pytest.raises(StoreFull, match="the disk of its server is full; make room"):
            store.commit(commit_of([request(1)]))
        store._base.execute("DROP FUNCTION full_disk CASCADE")
        store.commit(commit_of([request(1)]))

    assert ids(database) == ["t1"]


def test_a_role_that_may_not_write_is_told_so_and_not_to_wait(server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as base:
        base.execute("CREATE ROLE reader LOGIN")

    with pytest.raises(StoreError, match="permission denied for schema public") as refused:
        Store(server.url().replace("postgres@", "reader@"))

    assert not isinstance(refused.value, StoreAway)


def test_a_store_that_is_not_there_is_not_begun_by_a_check(database: str) -> None:
    with pytest.raises(StoreError, match="there is no store in postgresql://"):
        Store(database, is_new_allowed=False)
    with (
        pytest.raises(StoreError, match="there is no store in postgresql://"),
        Store.reading(DatabaseUrl(database)),
    ):
        pass


def test_without_the_extra_a_sentence_names_it(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str, *, missing: str) -> None:
        raise MissingExtra(missing)

    monkeypatch.setattr(postgres, "optional_module", missing)

    with pytest.raises(MissingExtra, match=r'stores in PostgreSQL need psycopg.*"\.\[postgres\]"'):
        Store(database)


# -- secrets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://covey:{SECRET}@db.example/north", "postgresql://covey@db.example/north"),
        (f"postgres://covey:{SECRET}@a:1,b:2/n?connect_timeout=3", "postgresql://covey@a:1,b:2/n"),
        (
            f"postgresql:///north?host=/run/x&password={SECRET}&user=me&sslpassword={SECRET}",
            "postgresql:///north?host=/run/x&user=me",
        ),
        ("postgresql://", "postgresql:///"),
    ],
)
def test_the_text_of_a_url_has_no_password(url: str, shown: str) -> None:
    place = store_place(url)

    assert (str(place), SECRET in repr(place)) == (shown, False)
    assert place == DatabaseUrl(url)


@pytest.mark.parametrize(
    "url", [f"postgresql://covey:{SECRET}@home@db/north", f"postgresql:covey:{SECRET}@db/north"]
)
def test_a_url_that_cannot_be_read_is_not_repeated(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="the URL of the store cannot be read") as raised:
        store_place(url)
    with pytest.raises(SystemExit):
        cli.main(["check", url])

    assert SECRET not in str(raised.value) + "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://covey:{SECRET}@127.0.0.1:1/north",
        f"postgresql://covey:{SECRET}@127.0.0.1:{SECRET}/north",
        f"postgresql://covey:{SECRET}@127.0.0.1/north?{SECRET}=1",
        f"postgresql://covey:{SECRET}@127.0.0.1/north?sslmode={SECRET}",
    ],
)
def test_an_error_at_connecting_has_no_password(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["check", url])
    said = "".join(capsys.readouterr())

    assert code == 2
    assert f":{SECRET}@" not in said
    assert "postgresql://covey@" in said


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://db.example/north", {"sslmode": "verify-full"}),
        ("postgresql://127.0.0.1,db.example/north", {"sslmode": "verify-full"}),
        ("postgresql://127.0.0.1,[::1],localhost/north", {}),
        ("postgresql:///north?host=/run/postgresql", {}),
    ],
)
def test_a_server_elsewhere_must_prove_its_name(url: str, mode: dict[str, str]) -> None:
    from psycopg.conninfo import conninfo_to_dict

    assert postgres._verified(conninfo_to_dict(url)) == mode


# -- commands -----------------------------------------------------------------------------------


def test_a_store_moves_to_a_database_and_back_with_every_row(
    tmp_path: Path, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again = tmp_path / "a.store", tmp_path / "b.store"
    with closing(opened(str(first))) as store:
        commit = commit_of([request(k, rows=1 + k % 3) for k in range(1, 6_000)], {7: [1], 8: [0]})
        commit.records = [DayPayments(True, 20_000, "south", 1, 1, 5)]
        store.commit(commit)

    codes = [
        cli.main(["migrate", f"sqlite:{first}", database, "--quiet"]),
        cli.main(["check", database]),
        cli.main(["migrate", database, str(again), "--quiet"]),
        cli.main(["check", str(again)]),
    ]
    told = capsys.readouterr()

    assert (codes, told.err) == ([0] * 4, "")
    assert told.out.count("2 with label, 0 undelivered to peers") == 4
    assert contents(again) == contents(first)


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(Store(path)) as store:
        names = ("site", "sources", "requests", "labels", "counters", "payments")
        return {name: list(store.stored_rows(name)) for name in names}


def test_a_store_does_not_move_to_a_place_that_has_one_or_with_damage(
    tmp_path: Path, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(opened(str(tmp_path / "a"))) as store:
        store.commit(commit_of([request(1)], {1: [1]}))
        store._base.execute("UPDATE counters SET labels = 7")
    damaged = cli.main(["migrate", str(tmp_path / "a"), database])
    first = capsys.readouterr().err
    opened(str(tmp_path / "b")).close()
    whole = cli.main(["migrate", str(tmp_path / "b"), database])
    again = cli.main(["migrate", str(tmp_path / "b"), database])

    assert (damaged, whole, again) == (2, 0, 2)
    assert "1 right of 7 are kept" in first
    assert "there is a store in postgresql://" in capsys.readouterr().err
