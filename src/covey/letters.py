"""Messages between sites: MessagePack, typed, bounded and strict. No I/O.

A request that cannot be read is a `Problem` with status 400, 413 or 422; a response that cannot be
read is a `PeerError`. Nothing is coerced, and unknown fields are refused.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from covey import parcels
from covey.batches import MOST_TEXT, MOST_WHOLE
from covey.calls import Problem
from covey.decisions import NO_ANSWER
from covey.errors import DataError, PeerError
from covey.node.peers import OUTCOMES
from covey.node.requests import NO_INSTANCE, AskRow, Assistance
from covey.types import Label

VERSION = 1  # of the protocol and of every message
# Bodies are strict, so a site announces in headers what it speaks: 0.1.0 ignores these.
VERSIONS_HEADER, SOFTWARE_HEADER = "Covey-Versions", "Covey-Software"
FIRST_SOFTWARE = "covey 0.1.0"
MOST_ANNOUNCED = 40  # characters of such a header that are shown
ROOT = "/covey/v1"
KIND = "application/msgpack"
MOST_BYTES = 4 * 1024 * 1024
MOST_PLAIN_BYTES = 1024 * 1024  # of instances that are not a block of numbers
NONE = msgspec.Raw(b"\xc0")
MOST_ROWS = 1_024
MOST_LABELS = 1_024
MOST_DEADLINE_MS = 600_000
MOST_SPACES, MOST_FEATURES = 1_024, 4_096  # that a greeting has

Id = Annotated[str, Meta(min_length=1, max_length=200)]
CellName = Annotated[str, Meta(min_length=1, max_length=1_024)]
Name = Annotated[str, Meta(max_length=1_024)]
Count = Annotated[int, Meta(ge=0, lt=MOST_WHOLE)]
Slot = Annotated[int, Meta(ge=1, le=MOST_WHOLE)]
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Whole = Annotated[int, Meta(ge=-MOST_WHOLE, le=MOST_WHOLE)]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Truth = Text | Whole | Finite | bool


class Letter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of every request."""

    version: int
    request: Id  # comes back with the answer
    deadline_ms: Annotated[int, Meta(ge=0, le=MOST_DEADLINE_MS)]  # that are left when it is sent


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of every response."""

    version: int
    request: Id


class Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One row: the id under which its label will be sent, its cell, the asker's slot."""

    id: Id
    cell: CellName
    slot: Slot


class Ask(Letter, frozen=True, kw_only=True):
    """Asks for labels; with neither `block` nor `values`, only the cells are shown."""

    rows: Annotated[list[Row], Meta(min_length=1, max_length=MOST_ROWS)]
    block: parcels.Block | None = None
    values: msgspec.Raw = NONE  # a list of plain instances


class Report(Letter, frozen=True, kw_only=True):
    """Asks for the arrivals in a cell, and for bounds of the best accuracy."""

    cell: CellName
    slot: Slot


class Estimate(Letter, frozen=True, kw_only=True):
    """Asks how accurate answers in a cell would be."""

    cell: CellName
    slot: Slot
    is_by_context: bool


class Told(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The true label of a row."""

    id: Id
    label: Truth


class Labels(Letter, frozen=True, kw_only=True):
    """True labels of earlier rows."""

    labels: Annotated[list[Told], Meta(min_length=1, max_length=MOST_LABELS)]


class Hello(Letter, frozen=True, kw_only=True):
    """Asks for the site's name and settings."""


class HelpOne(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A label or None, the function that gave it, and its uncertainty in millionths."""

    label: Truth | None
    function: Name
    width: Annotated[int, Meta(ge=0, le=1_000_000)]


class Helped(Answer, frozen=True, kw_only=True):
    """The answer to `Ask`, row by row."""

    given: Annotated[list[HelpOne], Meta(max_length=MOST_ROWS)]


class Reported(Answer, frozen=True, kw_only=True):
    """The answer to `Report`."""

    arrivals: Count
    low: float
    high: float


class Estimated(Answer, frozen=True, kw_only=True):
    """The answer to `Estimate`."""

    accuracy: Annotated[float, Meta(ge=0, le=1)]
    labels: Count


class Outcomes(Answer, frozen=True, kw_only=True):
    """The answer to `Labels`, one word each."""

    words: Annotated[list[str], Meta(max_length=MOST_LABELS)]


class Space(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A context space: its name where there are several, its cells in words, its dimension."""

    name: Name
    cells: Name
    dimension: Count


class Feature(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A feature of instances."""

    name: Name
    datatype: Annotated[str, Meta(max_length=16)]


class Greeting(Answer, frozen=True, kw_only=True):
    """The answer to `Hello`: the site's name, and how often it has been started.

    The other fields are empty for peers that do not need them.
    """

    name: Annotated[str, Meta(max_length=63)]
    incarnation: Count
    preset: Annotated[str, Meta(max_length=63)] = ""
    spaces: Annotated[list[Space], Meta(max_length=MOST_SPACES)] = []
    instance: Annotated[str, Meta(max_length=16)] = ""  # "record" or "row"
    features: Annotated[list[Feature], Meta(max_length=MOST_FEATURES)] = []


class _Head(msgspec.Struct):
    version: int


AnyLetter = TypeVar("AnyLetter", bound=Letter)
AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


def write(letter: Letter | Answer) -> bytes:
    """Return a message as bytes; raise `DataError` if a text is not valid Unicode."""
    return _encoded(letter)


def read(body: bytes, kind: type[AnyLetter]) -> AnyLetter:
    """Return a received request; raise `Problem` if it is not one of this kind."""
    if len(body) > MOST_BYTES:
        raise Problem(413, "too_large", f"the message has {len(body)} bytes; at most {MOST_BYTES}")
    letter: AnyLetter = _decoded(body, kind)
    if letter.version != VERSION:
        raise _other_version(letter.version)
    return letter


def read_answer(body: bytes, kind: type[AnyAnswer], letter: Letter) -> AnyAnswer:
    """Return the response to a request; raise `PeerError` if it is not one."""
    try:
        answer: AnyAnswer = _decoded(body, kind)
    except Problem as problem:
        raise PeerError(f"the response cannot be read: {problem.detail}") from None
    if (answer.version, answer.request) != (VERSION, letter.request):
        raise PeerError("the response has another request id or version")
    return answer


def announcement(software: str) -> dict[str, str]:
    """Return the headers by which a site says which protocol and which software it has."""
    return {VERSIONS_HEADER: str(VERSION), SOFTWARE_HEADER: software}


def announced(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the protocol versions and the software of a peer; 0.1.0 announces neither."""
    versions = headers.get(VERSIONS_HEADER, "")
    software = headers.get(SOFTWARE_HEADER, "")
    return _shown(versions) or str(VERSION), _shown(software) or FIRST_SOFTWARE


def _shown(said: str) -> str:
    return said[:MOST_ANNOUNCED] if said.isprintable() else ""


# -- questions ----------------------------------------------------------------------------------


def ask(requests: Sequence[AskRow], *, request: str, deadline_ms: int) -> Ask:
    """Return the message that asks for labels; raise `DataError` if instances cannot be sent."""
    instances = [one.instance for one in requests if one.instance is not NO_INSTANCE]
    if instances and len(instances) != len(requests):
        raise DataError("a batch must hold either every instance or none")
    block = parcels.block_of(instances)
    values = NONE
    if instances and block is None:
        parcels.check_plain(instances)
        values = msgspec.Raw(_encoded(instances))
    return Ask(
        version=VERSION,
        request=request,
        deadline_ms=deadline_ms,
        rows=[Row(one.id, str(one.cell), one.slot) for one in requests],
        block=block,
        values=values,
    )


def requests_of(letter: Ask) -> list[AskRow]:
    """Return what is asked; raise `Problem` if instances and rows do not fit."""
    instances = _instances(letter)
    if instances is None:
        return [AskRow(row.id, row.cell, row.slot) for row in letter.rows]
    if len(instances) != len(letter.rows):
        raise _invalid(f"there are {len(instances)} instances for {len(letter.rows)} rows")
    return [
        AskRow(row.id, row.cell, row.slot, instance)
        for row, instance in zip(letter.rows, instances, strict=True)
    ]


def helped(letter: Ask, given: Sequence[Assistance]) -> Helped:
    """Return the answer to a question."""
    rows = [
        HelpOne(None if one.label is NO_ANSWER else _sent(one.label), one.function, one.width)
        for one in given
    ]
    return Helped(version=VERSION, request=letter.request, given=rows)


def helps_of(answer: Helped) -> list[Assistance]:
    """Return what a peer answered."""
    return [
        Assistance(NO_ANSWER if one.label is None else one.label, one.function, one.width)
        for one in answer.given
    ]


def words_of(answer: Outcomes) -> list[str]:
    """Return the outcomes of labels; raise `PeerError` for an unknown one."""
    for word in answer.words:
        if word not in OUTCOMES:
            raise PeerError(f"the unknown outcome {word[:20]!r} of a label")
    return answer.words


def told(labels: Sequence[tuple[str, Label]], *, request: str, deadline_ms: int) -> Labels:
    """Return the message that delivers true labels."""
    sent = [Told(id_, _sent(label)) for id_, label in labels]
    return Labels(version=VERSION, request=request, deadline_ms=deadline_ms, labels=sent)


def _instances(letter: Ask) -> list[Any] | None:
    if letter.values == NONE and letter.block is None:
        return None
    try:
        if letter.block is not None:
            if letter.values != NONE:
                raise DataError("both block and values are given; send one of them")
            return letter.block.rows()
        if len(letter.values) > MOST_PLAIN_BYTES:
            raise Problem(413, "too_large", f"plain instances may have {MOST_PLAIN_BYTES} bytes")
        values: list[Any] = _decoded(letter.values, list[Any])
        parcels.check_plain(values)
    except DataError as error:
        raise _invalid(str(error)) from None
    return values


def _sent(label: Label) -> Truth:
    if not isinstance(label, str | int | float):
        raise DataError(f"the label is {label!r}; a node takes text and numbers")
    return label


# -- bytes --------------------------------------------------------------------------------------


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        raise DataError("a text cannot be encoded as UTF-8") from None


def _decoded(body: Any, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _other_or_invalid(body, kind, str(error)) from None
    except RecursionError:
        raise Problem(400, "bad_letter", "the message is nested too deeply") from None
    except ValueError as error:  # what msgspec raises, and broken UTF-8
        raise Problem(400, "bad_letter", f"the message is not MessagePack: {error}") from None


def _other_or_invalid(body: Any, kind: Any, said: str) -> Problem:
    """Return why a message is invalid; one of another version may have other fields."""
    if kind != list[Any]:
        try:
            version = msgspec.msgpack.decode(body, type=_Head).version
        except (ValueError, RecursionError):
            version = VERSION
        if version != VERSION:
            return _other_version(version)
    return _invalid(said[:200])  # it may quote what came


def _other_version(version: int) -> Problem:
    return Problem(
        422,
        "protocol_version",
        f"the message has version {version}; this site speaks {VERSION}",
        {VERSIONS_HEADER: str(VERSION)},
    )


def _invalid(detail: str) -> Problem:
    return Problem(422, "invalid", detail)
