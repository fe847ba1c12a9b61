"""What a store needs of a database; the statements are those of `tables`.

There are two: a file of SQLite (`store_file`) and a database of PostgreSQL (`postgres`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl

from covey.errors import ConfigError, StoreError

APPLICATION = 0x636F7679  # "covy"
VERSION = 1  # of the tables
CANNOT = "cannot be {verb}: {error}"
TAKEN_OVER = "was taken over by another node (start {start} is not the latest), so this one stops"


class Form(NamedTuple):
    """What a database says that it holds: a number of the application, and a version of it."""

    application: int
    version: int


class Dialect(NamedTuple):
    """What a database calls the types of columns, and writes after those of a table."""

    integer: str
    text: str
    blob: str
    end_of_rows: str = ""
    end_of_keys: str = ""  # of a table whose rows are found by their keys alone


class Database(Protocol):
    """One connection, for as long as the store is open; no other process has the store then."""

    name: str  # of the file, or of the database
    errors: type[Exception]  # the base class of those that its calls raise
    dialect: Dialect
    # What errors mean, and what to do, by their codes.
    sentences: Mapping[str, tuple[type[StoreError], str]]
    # Runs a query on what is committed, at once and also while `commit` runs; None: none does.
    lookup: Callable[..., Any] | None = None
    start: int | None = None  # of the node that writes

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        """Run a statement now, after all that was written before it; return its rows."""

    def stream(self, query: str, values: Sequence[Any] = (), /) -> Iterable[Any]:
        """Return the rows of a query, which need not fit into memory; they must be read first."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Write rows; they may be sent as late as by `commit`, which then raises their errors."""

    def begin(self, start: int | None) -> None:
        """Begin a transaction of the node that counted this start; None: of none.

        Where another process can take over a database, the transaction fails if there was a later
        start.
        """

    def commit(self) -> None:
        """Return when the transaction is durable."""

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""

    def form(self) -> Form | None:
        """Return what it says that it holds; None: nothing."""

    def mark(self) -> None:
        """Say that it holds the tables of a store, which were made."""

    def inspect(self, tell: Callable[[str], None]) -> None:
        """Look for damage as far as that is fast; raise `StoreError` if there is some."""

    def faults(self) -> list[str]:
        """Return a sentence for each kind of damage of its structure."""

    def code_of(self, error: Exception) -> str:
        """Return the code of an error, as `sentences` has them."""

    def refused_table(self, error: Exception) -> str | None:
        """Return the table whose constraints forbid a row; None: the error is another one."""

    def close(self) -> None:
        """Release it."""

    def create(self, schema: Iterable[str]) -> None:
        """Make all tables that are not there, and set the form."""
        for statement in schema:
            self.execute(statement)
        if self.form() != Form(APPLICATION, VERSION):
            self.mark()

    def is_set_up(self) -> None:
        """Note that the tables are as they should be, and that it is used from now on."""
        return

    def give_up(self) -> None:
        """Let the call that waits for it in another thread fail, if it can."""
        return

    def failure(self, verb: str, error: Exception) -> StoreError:
        """Return what an error of it means, and what to do."""
        kind, sentence = self.sentences.get(self.code_of(error), (StoreError, CANNOT))
        return kind(f"{self.name} " + sentence.format(verb=verb, error=error, start=self.start))

    def number(self, query: str) -> int:
        """Return the number that a query is for."""
        return int(self.execute(query).fetchone()[0])


_URL = re.compile(
    r"postgres(?:ql)?://(?:(?P<user>[^:@/?#]*)(?::[^@/?#]*)?@)?(?P<hosts>[^@/?#]*)"
    r"(?:/(?P<database>[^?#]*))?(?:\?(?P<more>[^#]*))?"
)
_SHOWN = ("host", "port", "dbname", "user", "service")  # of the parameters of a URL


class DatabaseUrl:
    """The URL of a PostgreSQL database; as text it has no password."""

    def __init__(self, url: str) -> None:
        """Raise `ConfigError` if it is none; the message repeats nothing of it."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ConfigError(
                "the URL of the store cannot be read; write it like postgresql://user@host/database"
                ", with %40 for @, %2F for / and %3A for : in a name or a password"
            )
        self.url = url
        user, hosts, database, more = match.group("user", "hosts", "database", "more")
        options = [option for option in parse_qsl(more or "") if option[0] in _SHOWN]
        shown = f"{user}@{hosts}" if user else hosts
        self._text = f"postgresql://{shown}/{database or ''}"
        if options:
            self._text += "?" + "&".join(f"{name}={value}" for name, value in options)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"DatabaseUrl({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatabaseUrl) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)


def is_url(text: str) -> bool:
    """Return whether the place of a store is a database, and not a file."""
    return text.startswith(("postgresql:", "postgres:"))


def store_place(text: str, folder: Path = Path()) -> Path | DatabaseUrl:
    """Return the file, which may be relative to a folder, or the database that a text names."""
    return DatabaseUrl(text) if is_url(text) else folder / text.removeprefix("sqlite:")
