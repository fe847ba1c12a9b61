"""Stores of every kind, for tests of what all of them must do."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from covey.store.store import Store
from support.postgres import Server, servers

KINDS = ("file", "memory", "postgres")
Make = Callable[..., Store]
PLACES: WeakKeyDictionary[Store, str] = WeakKeyDictionary()  # from which they were opened
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Yield a PostgreSQL server with no stores in it."""
    with servers() as (one,):
        one.create()
        one.start()
        yield one


@pytest.fixture
def database(server: Server) -> str:
    """Return the URL of an empty schema, whose password is in it."""
    return new_schema(server)


def new_schema(server: Server) -> str:
    import psycopg

    name = f"site{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as base:
        base.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.url()}?options=-csearch_path%3D{name}"


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Yield what makes an empty store of a kind; each call makes another one."""
    with ExitStack() as stack:

        def made(**given: Any) -> Store:
            place = ":memory:"
            if request.param == "file":
                place = str(tmp_path / f"{next(_numbers)}.store")
            if request.param == "postgres":
                place = new_schema(request.getfixturevalue("server"))
            store = Store(place, **given)
            PLACES[store] = place
            stack.callback(store.close)
            return store

        yield made
