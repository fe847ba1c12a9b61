"""What a node writes while it serves."""

import io
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.server import log_lines
from support.served import FEEDBACK, INFER, SITE, Client, infer, run
from support.site_processes import SRC

LOG = logging.getLogger("covey.server.connection")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("covey", "asyncio")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for one, was in zip(loggers, before, strict=True):
        one.handlers, one.propagate, one.level = was


def written(form: str, sentence: str, *given: object) -> str:
    stream = io.StringIO()
    log_lines.set_up_logging(form, stream)
    LOG.warning(sentence, *given)
    return stream.getvalue()


def test_an_event_is_one_json_object_in_a_line() -> None:
    line = written("json", "a peer was refused: %s", 'it is "north"')

    assert line.endswith("\n")
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    said = 'a peer was refused: it is "north"'
    assert found == {"level": "warning", "from": "covey.server.connection", "event": said}


@pytest.mark.parametrize("form", log_lines.FORMS)
def test_no_printed_text_contains_line_breaks_or_terminal_codes(form: str) -> None:
    line = written(form, "refused: %s", "x\n2026 info forged\r\x1b[2J\u2028")

    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


@pytest.mark.parametrize("form", log_lines.FORMS)
def test_of_a_failure_the_kind_and_the_place_are_written_and_no_message(form: str) -> None:
    stream = io.StringIO()
    log_lines.set_up_logging(form, stream)
    try:
        raise ValueError("income 52000")
    except ValueError:
        LOG.exception("a request failed unexpectedly")

    assert "52000" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()
    assert "test_log_lines.py:" in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 1


def test_a_long_sentence_is_cut() -> None:
    assert len(written("plain", "y" * 10_000)) < 700


def events(folder: Path, *options: str, code: int = 0) -> list[str]:
    """Start a site in a process, stop it when it serves, and return its events."""
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", "covey", "serve", "site.toml", *options],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("{"):  # the command says its error, too
                lines.append(json.loads(line)["event"])
            if lines[-1].startswith("serves clients"):
                process.terminate()
    assert process.returncode == code
    return lines


@pytest.mark.parametrize("options", [["--log", "json"], ["--json"]])
def test_a_start_says_what_it_is_doing(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    first = events(tmp_path, *options)

    async def story(client: Client) -> None:
        for id_ in "ab":
            await client.post(INFER, infer(id_))
        await client.post(FEEDBACK, {"id": "a", "truth": 0})

    run(tmp_path, story)
    second = events(tmp_path, *options)

    assert first[:3] == [
        "loading function 'zero' (constant)",
        "loading function 'one' (constant)",
        "store north.store is new: the site begins with no labels",
    ]
    assert first[3:5] == [
        "north.store has 0 requests; their labels are counted",
        "north.store is read: 0 requests wait for labels",
    ]
    assert first[5] == (
        "store read: start 1, slot 0, 0 labels of own clients, 0 of peers, 0 cells, "
        "0 pending labels, 0 undelivered"
    )
    assert first[6].startswith("serves clients at http://")
    assert first[7:] == ["SIGTERM: requests in progress are answered first", "stopped"]
    assert any(line.startswith("north.store has 2 requests;") for line in second)
    read = [line for line in second if line.startswith("store read: ")]
    assert read == [
        "store read: start 3, slot 2, 1 labels of own clients, 0 of peers, 1 cells, "
        "1 pending labels, 0 undelivered"
    ]


def test_an_end_that_is_no_stop_is_logged_with_its_cause(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "site.toml").write_text(SITE.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        *_, last = events(tmp_path, "--log", "json", code=75)

    assert last.startswith(f"the site ends: ConfigError: cannot serve at 127.0.0.1:{port}")
