"""Letters come over as they were written, and whatever else comes is refused with a sentence."""

import contextlib
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bandit.learner import NO_ANSWER
from covey.data.inputs import MOST_TEXT
from covey.errors import DataError, PeerError
from covey.node.peers import OUTCOMES
from covey.server import peer_messages
from covey.server.http import HttpProblem
from covey.server.peer_messages import (
    MOST_ROWS,
    VERSION,
    AskQuery,
    AskReply,
    DeliveryReply,
    HelloQuery,
    HelloReply,
    LabelsQuery,
    ReportQuery,
    ReportReply,
)
from covey.site.requests import AskRow, Assistance

LETTERS = (AskQuery, ReportQuery, LabelsQuery, HelloQuery)
ANSWERS = (AskReply, ReportReply, DeliveryReply, HelloReply)
HEAD: dict[str, Any] = {"version": VERSION, "request": "m1", "deadline_ms": 900}
SAID: dict[str, Any] = {"version": VERSION, "request": "m1"}

wholes = st.integers(-(2**53), 2**53)
numbers = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=20)
scalars = st.none() | st.booleans() | wholes | numbers | texts
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
).filter(lambda value: depth(value) <= 4)
labels = st.text(max_size=MOST_TEXT) | wholes | numbers | st.booleans()
characters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
ids = st.text(characters, min_size=1, max_size=32)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 1


def typed(value: Any) -> Any:
    """Return a value in which 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [typed(inner) for inner in value]
    return type(value).__name__, value


def through(instances: list[Any]) -> tuple[AskQuery, list[Any]]:
    """Return the message that shows instances, and those that its reader finds."""
    asked = [AskRow(f"r{k}", "g2:1", 7, one) for k, one in enumerate(instances)]
    message = peer_messages.ask(asked, request="m1", deadline_ms=900)
    read = peer_messages.read(peer_messages.write(message), AskQuery)
    found = peer_messages.requests_of(read)
    assert [(one.id, one.cell, one.slot) for one in found] == [
        (one.id, one.cell, one.slot) for one in asked
    ]
    return read, [one.instance for one in found]


@given(st.lists(plain, min_size=1, max_size=5))
def test_plain_instances_come_over_as_they_are(instances: list[Any]) -> None:
    _, found = through(instances)

    assert typed(found) == typed(instances)


def test_a_question_by_the_cell_alone_shows_nothing() -> None:
    message = peer_messages.ask([AskRow("r", "g2:1", 7)], request="m1", deadline_ms=900)

    assert peer_messages.requests_of(
        peer_messages.read(peer_messages.write(message), AskQuery)
    ) == [AskRow("r", "g2:1", 7)]
    assert set(msgspec.msgpack.decode(peer_messages.write(message))) == {
        "version",
        "request",
        "deadline_ms",
        "rows",
        "price",
        "values",
    }
    assert message.values is None


@pytest.mark.parametrize(
    ("instances", "sentence"),
    [
        ([1.0, ...], "every instance or none"),
        *(
            ([one], "cannot be sent .*finite numbers within")
            for one in (object(), [math.nan, "x"], 2**53 + 1, {1: "x"}, [[[["x"]]]])
        ),
        (["\ud800"], "UTF-8"),
        ([{"\ud800": 1.0}], "UTF-8"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_is(instances: list[Any], sentence: str) -> None:
    asked = [
        AskRow("r", "g1:0", 1) if instance is ... else AskRow("r", "g1:0", 1, instance)
        for instance in instances
    ]
    with pytest.raises(DataError, match=sentence):
        peer_messages.write(peer_messages.ask(asked, request="m1", deadline_ms=900))


@given(st.lists(labels | st.just(NO_ANSWER), max_size=5))
def test_answers_come_over_as_they_are(given_: list[Any]) -> None:
    message = peer_messages.ask([AskRow("r", "g1:0", 1)], request="m1", deadline_ms=900)
    helps = [Assistance(label, "f") for label in given_]
    body = peer_messages.write(peer_messages.helped(message, helps))

    found = peer_messages.helps_of(peer_messages.read_answer(body, AskReply, message))

    assert typed([one.label for one in found]) == typed(given_)
    assert [one.function for one in found] == ["f"] * len(helps)


@given(st.lists(st.tuples(ids, labels), min_size=1, max_size=5))
def test_labels_come_over_as_they_are(sent: list[tuple[str, Any]]) -> None:
    body = peer_messages.write(peer_messages.delivery(sent, request="m1", deadline_ms=900))

    found = peer_messages.read(body, LabelsQuery).labels

    assert typed([(one.id, one.label) for one in found]) == typed(sent)


# -- what others may send -----------------------------------------------------------------------


def valid() -> list[bytes]:
    row = ["r", "g1:0", 1]
    return [
        msgspec.msgpack.encode(message)
        for message in (
            {**HEAD, "rows": [row, row], "values": [[1, "x"], {"a": [None]}]},
            {**HEAD, "rows": [row], "values": None},
            {**HEAD, "cell": "g1:0", "slot": 5, "what": "seen"},
            {**HEAD, "labels": [["r", "attack"], ["s", 0.5]]},
            HEAD,
            {**SAID, "given": [["attack", "f"], [None, "f"]]},
            {**SAID, "arrivals": 5, "low": 0.0, "high": 1.0},
            {**SAID, "words": list(OUTCOMES)},
            {**SAID, "name": "south", "incarnation": 3},
            {
                **SAID,
                "name": "south",
                "incarnation": 3,
                "preset": "auto",
                "spaces": [["", "cells of all sizes at once", 1]],
                "instance": "record",
                "features": [["size", "FP64"]],
            },
        )
    ]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Bytes of a good message of which some were changed, left out, put in or repeated."""
    body = bytearray(draw(st.sampled_from(valid())))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(body)))
        end = draw(st.integers(start, min(len(body), start + 4)))
        middle = draw(st.binary(max_size=4) | st.just(bytes(body[start:end]) * 2))
        body[start:end] = middle
    return bytes(body)


def read_all(body: bytes) -> None:
    """Read bytes as everything that they could be; raise anything but what is promised."""
    refused: list[HttpProblem] = []
    for kind in LETTERS:
        try:
            message = peer_messages.read(body, kind)
            if isinstance(message, AskQuery):
                peer_messages.requests_of(message)
        except HttpProblem as problem:
            refused.append(problem)
    for kind in ANSWERS:
        with contextlib.suppress(PeerError):
            answer = peer_messages.read_answer(body, kind, HelloQuery(**HEAD))
            if isinstance(answer, AskReply):
                peer_messages.helps_of(answer)
    assert {one.status for one in refused} <= {400, 413, 422}


@given(st.binary(max_size=200) | mutated())
def test_any_bytes_are_read_or_refused_with_a_sentence(body: bytes) -> None:
    read_all(body)


@pytest.mark.parametrize("place", range(9))
def test_a_valid_message_is_read_as_its_kind_only(place: int) -> None:
    body = valid()[place]
    good = []
    for kind in LETTERS:
        try:
            peer_messages.read(body, kind)
        except HttpProblem:
            continue
        good.append(kind)
    for kind in ANSWERS:
        try:
            peer_messages.read_answer(body, kind, HelloQuery(**HEAD))
        except PeerError:
            continue
        good.append(kind)

    assert good == [[AskQuery, *LETTERS, *ANSWERS][place]]


ROW = ["r", "g1:0", 1]


@pytest.mark.parametrize(
    ("changed", "status", "sentence"),
    [
        ({"rows": []}, 422, "rows"),
        ({"rows": [ROW] * (MOST_ROWS + 1)}, 422, "rows"),
        ({"rows": [["", "g1:0", 1]]}, 422, "rows"),
        ({"rows": [["r" * 201, "g1:0", 1]]}, 422, "rows"),
        ({"rows": [["r", "g" * 10_001, 1]]}, 422, "rows"),
        ({"rows": [["r", "g1:0", 0]]}, 422, "rows"),
        ({"rows": [["r", "g1:0", 2**53 + 1]]}, 422, "rows"),
        ({"rows": [["r", "g1:0", True]]}, 422, "rows"),
        ({"rows": [["r", "g1:0", 1, 1]]}, 422, "rows"),
        ({"deadline_ms": -1}, 422, "deadline_ms"),
        ({"deadline_ms": 600_001}, 422, "deadline_ms"),
        ({"request": ""}, 422, "request"),
        ({"other": 1}, 422, "other"),
        ({"o" * 100_000: 1}, 422, "unknown field"),
        ({"version": 3}, 422, "version 3; this site speaks 1"),
        ({"version": 3, "other": 1}, 422, "version 3; this site speaks 1"),
        ({"values": []}, 422, "0 instances for 1 rows"),
        ({"values": [1, 2]}, 422, "2 instances for 1 rows"),
        *(
            ({"values": values}, 422, "$.values")
            for values in (
                {"a": 1},
                [[[[[1]]]]],
                [math.inf],
                [2**53 + 1],
                [b"x"],
                [{1: "x"}],
                [msgspec.msgpack.Ext(5, b"x")],
            )
        ),
        ({"values": ["x" * (4 * 1024 * 1024)]}, 413, "at most"),
    ],
)
def test_a_question_out_of_bounds_is_refused(
    changed: dict[str, Any], status: int, sentence: str
) -> None:
    body = msgspec.msgpack.encode({**HEAD, "rows": [ROW], **changed})

    with pytest.raises(HttpProblem) as refused:
        peer_messages.requests_of(peer_messages.read(body, AskQuery))

    assert refused.value.status == status
    assert sentence in refused.value.detail
    assert len(refused.value.detail) < 500


@pytest.mark.parametrize("changed", [{"request": "m2"}, {"version": 2}])
def test_the_response_to_another_message_is_refused(changed: dict[str, Any]) -> None:
    answer = {**SAID, "name": "south", "incarnation": 3, **changed}

    with pytest.raises(PeerError, match="another request"):
        peer_messages.read_answer(msgspec.msgpack.encode(answer), HelloReply, HelloQuery(**HEAD))


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, -1.1])
@pytest.mark.parametrize("field", ["low", "high"])
def test_bounds_that_are_no_accuracy_are_a_peer_error(field: str, number: float) -> None:
    answer = {**SAID, "arrivals": 5, "low": 0.0, "high": 1.0, field: number}

    with pytest.raises(PeerError, match=field):
        peer_messages.read_answer(msgspec.msgpack.encode(answer), ReportReply, HelloQuery(**HEAD))
