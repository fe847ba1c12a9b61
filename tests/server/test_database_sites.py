"""A site whose store is in PostgreSQL: it is served, checked and planned as one with a file."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from chaos.kill import Process
from covey import cli
from covey.store.store import Store
from support.postgres import Server
from support.served import FEEDBACK, INFER, SITE, infer
from support.stores import database, server

__all__ = ["database", "server"]  # fixtures
SECRET = "s3cr3t"  # noqa: S105 - the server of the tests asks for none


@pytest.fixture
def url(database: str) -> str:
    return database.replace("postgres@", f"postgres:{SECRET}@")


@pytest.fixture
def site(tmp_path: Path, url: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(SITE.replace("north.store", url))
    return path


@pytest.fixture
def running(site: Path) -> Iterator[tuple["subprocess.Popen[str]", Process]]:
    """Yield a served site, and a way to send it requests."""
    command = [sys.executable, "-m", "covey", "serve", site.name, "--log", "plain"]
    with subprocess.Popen(
        command, cwd=site.parent, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            lines = []
            while not lines or not lines[-1].startswith("http"):
                assert process.stderr is not None
                lines.append(process.stderr.readline())
                assert lines[-1], lines
            assert SECRET not in "".join(lines)
            client = Process.__new__(Process)
            client.url = lines[-1].strip().removesuffix("/v2/models/north")
            yield process, client
        finally:
            process.terminate()


def test_a_served_site_keeps_its_labels_in_the_database_and_stops_when_that_is_lost(
    running: tuple["subprocess.Popen[str]", Process], server: Server, url: str
) -> None:
    process, client = running

    answered = client.post(INFER, infer("a"))
    labelled = client.post(FEEDBACK, {"id": "a", "truth": 1})
    with psycopg.connect(server.url(), autocommit=True) as base:
        base.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'"
        )
    refused, told = client.post(INFER, infer("b"))
    _, said = process.communicate()

    assert (answered[0], labelled[0]) == (200, 202)
    assert (refused, told["code"]) == (503, "store_failed")
    assert process.returncode == 74
    assert "the connection was lost" in said
    assert "check the database, and restart" in said
    assert SECRET not in said
    store = Store(url)
    found = store.find("", "a")
    assert (found and found[0].truths, store.find("", "b"), store.check()) == ([1], None, [])
    store.close()


def test_doctor_plan_and_a_second_node_see_a_store_that_is_in_use(
    running: tuple["subprocess.Popen[str]", Process], site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, client = running
    client.post(INFER, infer("a"))

    codes = [cli.main([command, str(site)]) for command in ("doctor", "plan", "serve")]
    out, err = capsys.readouterr()

    assert codes == [0, 0, 74]
    assert "ok       database" in out
    assert "is in use, so a node is running" in out
    assert "agrees with its labels; 1 starts so far" in out
    assert "nothing changes in postgresql://postgres@127.0.0.1" in out
    assert "is in use by another node" in err
    assert "wait for it with --wait" in err
    assert SECRET not in out + err


def test_a_node_that_waits_for_its_store_ends_with_a_signal(
    running: tuple["subprocess.Popen[str]", Process], site: Path
) -> None:
    command = [sys.executable, "-m", "covey", "serve", site.name, "--wait", "--log", "plain"]
    with subprocess.Popen(command, cwd=site.parent, stderr=subprocess.PIPE, text=True) as second:
        assert second.stderr is not None
        line = next(line for line in second.stderr if "waits" in line)
        second.terminate()
        _, rest = second.communicate()

    assert "waits for its store: postgresql://postgres@127.0.0.1" in line
    assert "is in use by another node" in line
    assert (second.returncode, rest.count("waits")) == (0, 0)


def test_doctor_and_plan_say_that_a_database_is_empty_or_away(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = [cli.main([command, str(site)]) for command in ("doctor", "plan")]
    told = capsys.readouterr().out
    site.write_text(SITE.replace("north.store", f"postgresql://me:{SECRET}@127.0.0.1:1/north"))
    away = cli.main(["doctor", str(site)])
    out, err = capsys.readouterr()

    assert codes == [0, 0]
    assert "holds no store yet; it will be made" in told
    assert "is not there; a start makes it" in told
    assert away == 1
    assert "failure  store" in out
    assert "postgresql://me@127.0.0.1:1/north cannot be opened" in out
    assert SECRET not in told + out + err
