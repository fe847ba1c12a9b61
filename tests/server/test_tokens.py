"""Tokens: shown once, good for what they were made for, until they end or are revoked."""

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from covey import cli
from covey.errors import ConfigError
from covey.server import tokens
from covey.server.tokens import Token

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def make(path: Path, name: str = "camera", *scopes: str, days: int | None = 10) -> str:
    return tokens.new(path, name, scopes=scopes or ["infer"], days=days, now=NOW)[0]


def find(path: Path, header: str | None, now: datetime = NOW) -> Token | tokens.Why:
    return tokens.find(tokens.listed(path), header, now=now)


def name_of(found: Token | tokens.Why) -> str:
    assert isinstance(found, Token)
    return found.name


def test_a_token_ends_when_its_days_are_over(path: Path) -> None:
    secret = make(path, days=10)

    end = NOW + timedelta(days=10)
    assert name_of(find(path, f"Bearer {secret}", end - timedelta(seconds=1))) == "camera"
    assert find(path, f"Bearer {secret}", end) == "expired"


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (None, "missing"),
        ("", "missing"),
        ("Bearer", "malformed"),
        ("Basic dXNlcjpwYXNz", "malformed"),
        ("Bearer covey_short", "malformed"),
        ("Bearer covey_" + "a" * 43, "unknown"),
        ("Bearer covey_" + "a" * 43 + "\n", "malformed"),
        ("Bearer" + " " * 1000 + "covey_" + "a" * 43, "malformed"),
    ],
)
def test_a_header_without_a_known_token_is_refused(
    path: Path, header: str | None, why: tokens.Why
) -> None:
    make(path)

    assert find(path, header) == why


def test_the_file_is_the_owners_alone_and_does_not_hold_the_token(path: Path) -> None:
    secret = make(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret.removeprefix(tokens.PREFIX) not in path.read_text()
    assert [one.name for one in path.parent.iterdir()] == ["tokens.json"]


@pytest.mark.parametrize(
    ("name", "scopes", "days", "sentence"),
    [
        ("camera", ["infr"], 1, "unknown scope 'infr'; did you mean 'infer'?"),
        ("camera", [], 1, "needs a scope; known: infer"),
        ("", ["infer"], 1, "cannot name a token"),
        ("two\nlines", ["infer"], 1, "cannot name a token"),
        ("camera", ["infer"], 0, "0 days"),
        ("old", ["infer"], 1, "has a token named 'old'"),
    ],
)
def test_a_token_that_cannot_be_made_leaves_the_file_as_it_was(
    path: Path, name: str, scopes: list[str], days: int, sentence: str
) -> None:
    make(path, "old")
    before = path.read_bytes()

    with pytest.raises(ConfigError) as caught:
        tokens.new(path, name, scopes=scopes, days=days, now=NOW)

    assert sentence in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b'{"tokens": [{"name": 1}]}', b'{"version": 2, "tokens": []}']
)
def test_a_damaged_file_admits_no_client_and_is_not_overwritten(path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match="is not there"):
        find(path, None)
    path.write_bytes(content)

    for act in (lambda: make(path), lambda: find(path, None)):
        with pytest.raises(ConfigError, match="is not a file of tokens"):
            act()
    assert path.read_bytes() == content


def test_commands_that_add_tokens_at_the_same_time_lose_none(path: Path) -> None:
    start = threading.Barrier(4)

    def add(client: int) -> None:
        start.wait()
        for k in range(5):
            make(path, f"{client}-{k}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))

    assert len(tokens.listed(path)) == 20


def test_the_command_prints_the_token_and_nothing_else(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tokens", "new", "camera", "--scope", "infer", "--file", str(path)]) == 0
    secret = capsys.readouterr().out.strip()

    assert name_of(find(path, f"Bearer {secret}")) == "camera"
    assert cli.main(["tokens", "list", "--file", str(path)]) == 0
    assert cli.main(["tokens", "list", "--file", str(path), "--json"]) == 0
    shown = capsys.readouterr()
    assert "camera" in shown.out
    assert secret not in shown.out + shown.err
    assert tokens.listed(path)[0].sha256 not in shown.out + shown.err
    assert cli.main(["tokens", "revoke", "camera", "--file", str(path)]) == 0
    assert tokens.listed(path) == ()
