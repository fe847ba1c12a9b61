"""What a node writes while it serves."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from covey.cli import serve

LOG = logging.getLogger("covey.server.listener")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    ours = logging.getLogger("covey")
    before = ours.handlers, ours.propagate, ours.level
    yield
    ours.handlers, ours.propagate, ours.level = before


def written(form: str, sentence: str, *given: object) -> str:
    stream = io.StringIO()
    serve.set_up_logging(form, stream)
    LOG.warning(sentence, *given)
    return stream.getvalue()


def test_an_event_is_one_json_object_in_a_line() -> None:
    line = written("json", "a peer was refused: %s", 'it is "north"')

    assert line.endswith("\n")
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    said = 'a peer was refused: it is "north"'
    assert found == {"level": "warning", "from": "covey.server.listener", "event": said}


@pytest.mark.parametrize("form", serve.FORMS)
def test_no_printed_text_contains_line_breaks_or_terminal_codes(form: str) -> None:
    line = written(form, "refused: %s", "x\n2026 info forged\r\x1b[2J\u2028")

    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


@pytest.mark.parametrize("form", serve.FORMS)
def test_of_a_failure_the_kind_and_the_place_are_written_and_no_message(form: str) -> None:
    stream = io.StringIO()
    serve.set_up_logging(form, stream)
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
