"""A store in a PostgreSQL database: one connection, which holds the lock of the store.

All writes of a commit are sent in one pipeline with its BEGIN and COMMIT, so a commit waits for the
server once. Each transaction begins with a look at the number of starts: the lock is lost with the
connection, and a node that was replaced must not commit anything, whatever it believes.
"""

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from covey.errors import StoreAway, StoreError, StoreFull, need_of, optional_module
from covey.store import tables
from covey.store.database import (
    APPLICATION,
    TAKEN_OVER,
    VERSION,
    Database,
    DatabaseUrl,
    Dialect,
    Form,
)

FORM = "covey_store"  # the table that says what the others are
LOCK_MS = 2_000  # for which a start waits for locks: a killed process is noticed late
PREPARED = 500  # statements, at most
STREAMED = 1_000  # rows at once
MOST_WAITING = 10_000  # sets of parameters that are kept until the commit; only copies have more
# A client that is away without a word is noticed after 25 s, and so is a server.
ALIVE = {"idle": 10, "interval": 5, "count": 3}
LEFT_MS = 25_000
DEFAULTS = {
    "application_name": "covey",
    "connect_timeout": 10,
    "target_session_attrs": "read-write",
    "tcp_user_timeout": LEFT_MS,
    **{f"keepalives_{name}": value for name, value in ALIVE.items()},
}
SETTINGS = {
    "synchronous_commit": "on",
    "client_min_messages": "warning",
    "default_transaction_isolation": "read committed",
    # The plan of a write is made once, perhaps while the tables are empty: to plan 64 rows again
    # takes as long as to write them. It must be good for full tables, and so must the plan of a
    # read before the server knows what they hold: they follow an index, as those of SQLite do.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "statement_timeout": 0,
    "idle_in_transaction_session_timeout": 0,
    "idle_session_timeout": 0,
    "lock_timeout": LOCK_MS,
    "tcp_user_timeout": LEFT_MS,
    **{f"tcp_keepalives_{name}": value for name, value in ALIVE.items()},
}
POSTGRES = Dialect("BIGINT", 'TEXT COLLATE "C"', "BYTEA")  # texts compare by bytes, as in SQLite
# A request is changed when it is closed. With room on its page, its indexes need no new entries.
ROOM = "ALTER TABLE requests SET (fillfactor = 50)"
KEY = "hashtextextended('covey ' || current_schema(), 0)"
LOCK = f"SELECT pg_advisory_lock({KEY})"
IS_FREE = f"SELECT pg_try_advisory_xact_lock_shared({KEY})"
FOLLOWING = """
SELECT CASE WHEN pg_has_role('pg_read_all_stats', 'MEMBER')
THEN (SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) END
"""
# Fails with a division by zero if there was a later start; until the transaction ends, there is
# none, because that must change the row.
FENCE = """
SELECT 1 / COUNT(*)
FROM (SELECT 1 FROM site WHERE one = 1 AND starts = ? FOR SHARE) AS mine
"""
TABLES = """
SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()
"""
COLUMNS = f"""
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name <> '{FORM}'
ORDER BY table_name, ordinal_position
"""
SIZE = """
SELECT COALESCE(SUM(pg_total_relation_size(oid)), 0) FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
"""
SENTENCES: dict[str, tuple[type[StoreError], str]] = {
    "55P03": (StoreAway, "is in use by another node; a store has one node at a time"),
    "53100": (
        StoreFull,
        "cannot be written, the disk of its server is full; make room, and the node continues",
    ),
    "25006": (StoreAway, "cannot be written: its server is a standby; name all servers in the URL"),
    "22012": (StoreError, TAKEN_OVER),
}
# Of messages at connecting, which have no codes: a later attempt would have the same.
LASTING = re.compile(r"authentication|pg_hba|does not exist|certificate|SSL|permission", re.I)


@cache
def numbered(statement: str) -> str:
    """Return a statement of `tables` with numbered parameters."""
    first, *rest = statement.split("?")
    return first + "".join(f"${number}{text}" for number, text in enumerate(rest, 1))


def driver() -> Any:
    """Return psycopg; raise `MissingExtra` without it."""
    missing = need_of("stores in PostgreSQL", "psycopg", extra="postgres")
    return optional_module("psycopg", missing=missing)


class DatabaseState(NamedTuple):
    """What a server says of itself and of the store in it."""

    version: str
    has_store: bool
    is_in_use: bool
    has_checksums: bool  # of its pages
    is_near: bool  # on this machine
    is_encrypted: bool
    standbys: str  # that commits wait for, as the server names them
    following: int | None  # of these, now; None: the role may not see it


class PostgresDatabase(Database):
    """The tables of one store in a schema of a database, and the lock on them."""

    dialect = POSTGRES
    sentences = SENTENCES

    def __init__(
        self, url: DatabaseUrl, *, is_new_allowed: bool = True, only_reads: bool = False
    ) -> None:
        """Connect, and take the lock; raise `StoreError` if that cannot be, or it is not there.

        `only_reads`: read the store as it is now, from any server; a node may have it meanwhile.
        """
        self.name, self._driver = str(url), driver()
        self.errors = self._driver.Error
        self._warnings: list[str] = []
        self._queue: list[tuple[str, list[Sequence[Any]]]] = []
        self._waiting = 0  # sets of parameters in the queue
        self._has_given_up = False
        self._is_begun = self._is_sent = False
        self._base = connect(url, **({"target_session_attrs": "any"} if only_reads else {}))
        try:
            if only_reads:
                self._base.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            else:
                self._configure()
            if self.form() is None and (only_reads or not is_new_allowed):
                raise StoreError(
                    f"there is no store in {self.name}; give one that a node has written"
                )
        except self.errors as error:
            failure = self.failure("opened", error)
            self.close()
            raise failure from error
        except BaseException:
            self.close()
            raise

    def _configure(self) -> None:
        self._base.add_notice_handler(self._note)
        numeric, string = (
            optional_module(f"psycopg.types.{name}", missing="") for name in ("numeric", "string")
        )
        # Statements are prepared for the types of their parameters, so there must be few of these.
        self._base.adapters.register_dumper(int, numeric.Int8BinaryDumper)
        self._base.adapters.register_dumper(bytes, string.BytesBinaryDumper)
        self._base.prepared_max = PREPARED
        with self._base.pipeline():
            for name, value in SETTINGS.items():
                self._base.execute(f"SET {name} TO '{value}'")
        (schema,) = self.execute("SELECT current_schema()").fetchone()
        if schema is None:
            raise StoreError(f"{self.name} names no schema that is there; make one")
        for name, wanted, advice in (
            ("server_encoding", "UTF8", "make a database with encoding UTF8"),
            ("fsync", "on", "acknowledged labels would be lost with the power; set fsync = on"),
        ):
            (setting,) = self.execute(f"SHOW {name}").fetchone()
            if setting != wanted:
                raise StoreError(f"{self.name} has {name} = {setting}: {advice}")
        self.execute(LOCK)
        self.execute("SET lock_timeout TO 0")

    def _note(self, notice: Any) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(str(notice.message_primary))

    # -- statements -----------------------------------------------------------------------------

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        if self._is_begun:
            self._send()
        return self._base.execute(numbered(statement), values, prepare=False, binary=True)

    def stream(self, query: str, values: Sequence[Any] = (), /) -> Iterator[Any]:
        if self._is_begun:
            self._send()
        with self._base.cursor(binary=True) as cursor:
            yield from cursor.stream(numbered(query), values, size=_streamed())

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Keep rows until they are sent with the transaction."""
        waiting = list(rows)
        if waiting:
            self._queue.append((statement, waiting))
            self._waiting += len(waiting)
        if self._waiting >= MOST_WAITING:
            self._send()

    # -- transactions ---------------------------------------------------------------------------

    def begin(self, start: int | None) -> None:
        self.start, self._is_begun, self._is_sent = start, True, False
        self._queue, self._waiting = [], 0

    def commit(self) -> None:
        self._warnings.clear()
        done = self._send("COMMIT")
        self._is_begun = False
        # The server says so, too, if the transaction had failed.
        if done.statusmessage != "COMMIT":
            raise self._driver.InternalError(f"the commit ended with {done.statusmessage}")
        # A commit that no longer waits for a standby is a success with a warning.
        if self._warnings:
            raise self._driver.OperationalError(self._warnings[0])

    def rollback(self) -> None:
        is_sent, self._is_begun, self._is_sent = self._is_sent, False, False
        self._queue, self._waiting = [], 0
        if is_sent and not self._base.closed:
            with contextlib.suppress(self._driver.Error):  # it was lost, and so it is rolled back
                self._base.execute("ROLLBACK")

    def _send(self, last: str | None = None) -> Any:
        """Send what waits, and a last statement, in one pipeline; return the last result."""
        is_first, self._is_sent = not self._is_sent, True
        waiting, self._queue, self._waiting = self._queue, [], 0
        if not (is_first or waiting or last):
            return None
        done = None
        with self._base.pipeline():
            if is_first:
                self._base.execute("BEGIN")
                if self.start is None:  # a node that still commits has the row of the site
                    self._base.execute(f"SET LOCAL lock_timeout TO {LOCK_MS}")
                else:
                    self._base.execute(numbered(FENCE), (self.start,), prepare=True)
            for statement, rows in waiting:
                self._base.cursor().executemany(numbered(statement), rows)
            if last is not None:
                done = self._base.execute(last, prepare=True)
        return done

    # -- opening and checking -------------------------------------------------------------------

    def form(self) -> Form | None:
        names = {name for (name,) in self.execute(TABLES)}
        if FORM not in names:
            return Form(0, 0) if names else None
        row = self.execute(f"SELECT application, version FROM {FORM}").fetchone()
        return Form(*row) if row else Form(0, 0)

    def mark(self) -> None:
        self.execute(ROOM)
        self.execute(f"CREATE TABLE IF NOT EXISTS {FORM} (application BIGINT, version BIGINT)")
        self.execute(f"DELETE FROM {FORM}")
        form = (APPLICATION, VERSION)
        self.executemany(f"INSERT INTO {FORM} VALUES (?, ?)", [form])

    def inspect(self, tell: Callable[[str], None]) -> None:
        """Say how large it is; the server checks its own pages."""
        tell(f"{self.name} has {self.number(SIZE) / 1e6:.1f} MB")

    def faults(self) -> list[str]:
        columns: dict[str, tuple[str, ...]] = {}
        for table, column in self.execute(COLUMNS):
            columns[table] = (*columns.get(table, ()), column)
        is_changed = columns != {name: table.columns for name, table in tables.TABLES.items()}
        return [tables.CHANGED] if is_changed else []

    # -- errors ---------------------------------------------------------------------------------

    def code_of(self, error: Exception) -> str:
        return getattr(error, "sqlstate", None) or ""

    def failure(self, verb: str, error: Exception) -> StoreError:
        if self.code_of(error) in SENTENCES:
            return super().failure(verb, error)
        text = _first_line(error)
        if self._has_given_up:
            text = "no answer in time; is its synchronous standby away?"
        elif self._base.closed:
            text = f"the connection was lost ({text})"
        kind = StoreAway if self._base.closed else StoreError
        return kind(f"{self.name} cannot be {verb}: {text}")

    def refused_table(self, error: Exception) -> str | None:
        if not isinstance(error, self._driver.IntegrityError):
            return None
        table: str | None = error.diag.table_name
        return table

    def give_up(self) -> None:
        """Close the socket under the call that waits for the server."""
        self._has_given_up = True
        with contextlib.suppress(OSError, self._driver.Error):
            other = socket.socket(fileno=os.dup(self._base.fileno()))
            with contextlib.closing(other):
                other.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._base.close()


# -- connecting ---------------------------------------------------------------------------------


def connect(url: DatabaseUrl, **options: Any) -> Any:
    """Return a connection; raise `StoreAway` if there is no server now that can be written.

    Other errors are `StoreError`. No message has a password: libpq repeats none that it was given.
    """
    psycopg = driver()
    info = optional_module("psycopg.conninfo", missing="")
    try:
        wanted = info.conninfo_to_dict(url.url)
    except psycopg.Error:  # its message may repeat a part of the password
        raise StoreError(
            f"{url} has a parameter that PostgreSQL does not know; see its page on connection URLs"
        ) from None
    try:
        return psycopg.connect(
            **{**DEFAULTS, **_verified(wanted), **wanted, **options},
            autocommit=True,
            client_encoding="utf8",
            cursor_factory=psycopg.RawCursor,
        )
    except psycopg.Error as error:
        text = _first_line(error)
        kind = StoreError if LASTING.search(str(error)) else StoreAway
        raise kind(f"{url} cannot be opened: {text}") from None


def look(url: DatabaseUrl) -> DatabaseState:
    """Return what `covey doctor` says of a database; raise `StoreError` if it cannot be reached."""
    with contextlib.closing(connect(url)) as base:

        def value_of(query: str) -> Any:
            return base.execute(query).fetchone()[0]

        try:
            return DatabaseState(
                version=value_of("SHOW server_version"),
                has_store=FORM in {name for (name,) in base.execute(TABLES)},
                is_in_use=not value_of(IS_FREE),
                has_checksums=value_of("SHOW data_checksums") == "on",
                is_near=all(map(_is_near, (base.info.host or "").split(","))),
                is_encrypted=bool(base.pgconn.ssl_in_use),
                standbys=value_of("SHOW synchronous_standby_names"),
                following=value_of(FOLLOWING),
            )
        except driver().Error as error:
            raise StoreError(f"{url} cannot be read: {_first_line(error)}") from error


def _verified(wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return the default for TLS: a server on another machine must prove its name."""
    hosts = str(wanted.get("host") or os.environ.get("PGHOST", "")).split(",")
    is_near = all(map(_is_near, hosts)) and not wanted.get("hostaddr")
    return {} if is_near or "service" in wanted else {"sslmode": "verify-full"}


def _is_near(host: str) -> bool:
    """Return whether a host is this machine: a socket, or a loopback address."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _first_line(error: Exception) -> str:
    message = getattr(getattr(error, "diag", None), "message_primary", None)
    text: str = message or " ".join(str(error).split())
    return text


@cache
def _streamed() -> int:
    """Return how many rows are read at once; libpq before 17 reads one."""
    return STREAMED if driver().capabilities.has_stream_chunked() else 1
