"""Messages of the peer protocol: typed, bounded, with a version and a request id."""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from covey.bandit.learner import NO_ANSWER
from covey.data.inputs import MOST_TEXT, MOST_WHOLE
from covey.errors import DataError, PeerError
from covey.node.peers import MOST_HOPS, MOST_PRICE, MOST_TOLD, RelayRoute
from covey.server.http import HttpProblem, invalid
from covey.site.requests import NO_INSTANCE, AskRow, Assistance, QueryKind
from covey.types import Label

MOST_FEATURES = 4_096
VERSION = 1  # of the protocol and of every message
# Bodies are strict, so a site announces in headers what it speaks.
VERSIONS_HEADER, SOFTWARE_HEADER = "Covey-Versions", "Covey-Software"
NOT_ANNOUNCED = "not announced"
MOST_ANNOUNCED = 40  # characters of such a header that are shown
ROOT = "/covey/v1"
KIND = "application/msgpack"
MOST_BYTES = 4 * 1024 * 1024
MOST_ROWS = 1_024
MOST_LABELS = 1_024
MOST_DEADLINE_MS = 600_000
MOST_CELL = 10_000  # characters of the name of a cell
MOST_SPACES = 1_024  # that a greeting has

Id = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00]*\Z")]  # to be stored
CellName = Annotated[str, Meta(min_length=1, max_length=MOST_CELL)]
Name = Annotated[str, Meta(max_length=1_024)]
SiteName = Annotated[str, Meta(min_length=1, max_length=63)]
Count = Annotated[int, Meta(ge=0, lt=MOST_WHOLE)]
Slot = Annotated[int, Meta(ge=1, le=MOST_WHOLE)]
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Whole = Annotated[int, Meta(ge=-MOST_WHOLE, le=MOST_WHOLE)]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Amount = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Truth = Text | Whole | Finite | bool


# What an instance may be: text, numbers, true, false and None, in lists and records, which may be
# in others twice.
Plain = None | bool | Whole | Finite | str
_Inner = Plain | list[Plain] | dict[str, Plain]
_Middle = Plain | list[_Inner] | dict[str, _Inner]
Instance = Plain | list[_Middle] | dict[str, _Middle]
SENDABLE = "text and finite numbers within 2**53, in lists and records at most 4 deep"


class _Values(msgspec.Struct):
    values: list[Instance]  # in a struct, for which msgspec keeps what it knows of the type


class PeerMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of every request."""

    version: int
    request: Id  # comes back with the answer
    deadline_ms: Annotated[int, Meta(ge=0, le=MOST_DEADLINE_MS)]  # that are left when it is sent


class PeerReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of every response."""

    version: int
    request: Id


class AskEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One row: the id under which its label will be sent, its cell, the asker's slot."""

    id: Id
    cell: CellName
    slot: Slot


class RoutedMessage(PeerMessage, frozen=True, kw_only=True):
    """A question, which the receiver forwards if `to` names another site.

    `via` has the sites that it has passed, the asker first. A question to the receiver itself has
    neither, so that sites that know no relays understand it.
    """

    to: SiteName | UnsetType = UNSET
    via: Annotated[list[SiteName], Meta(max_length=2 * MOST_HOPS)] | UnsetType = UNSET


class AskQuery(RoutedMessage, frozen=True, kw_only=True):
    """Asks for labels; without `values`, only the cells are shown."""

    rows: Annotated[list[AskEntry], Meta(min_length=1, max_length=MOST_ROWS)]
    price: Annotated[int, Meta(ge=0, le=MOST_PRICE)] = 0  # of each answered row, in millionths
    values: list[Instance] | None = None


class ReportQuery(RoutedMessage, frozen=True, kw_only=True):
    """Asks for the arrivals in a cell and bounds of the best accuracy; or for labels and accuracy.

    The accuracy is that of the site's functions, or that of the label seen most.
    """

    cell: CellName
    slot: Slot
    what: QueryKind = "arrivals"


class LabelEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The true label of a row."""

    id: Id
    label: Truth


class LabelsQuery(PeerMessage, frozen=True, kw_only=True):
    """True labels of earlier rows."""

    labels: Annotated[list[LabelEntry], Meta(min_length=1, max_length=MOST_LABELS)]


class HelloQuery(PeerMessage, frozen=True, kw_only=True):
    """Asks for the site's name and settings."""


class AskAnswer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A label or None, and the function that gave it."""

    label: Truth | None
    function: Name


class AskReply(PeerReply, frozen=True, kw_only=True):
    """The answer to `AskQuery`, row by row."""

    given: Annotated[list[AskAnswer], Meta(max_length=MOST_ROWS)]


class ReportReply(PeerReply, frozen=True, kw_only=True):
    """The answer to `ReportQuery`; `told` has what the policy tells besides."""

    arrivals: Count
    low: Annotated[float, Meta(ge=-1, le=sys.float_info.max)]
    high: Amount
    told: Annotated[list[Whole], Meta(max_length=MOST_TOLD)] = []


class DeliveryReply(PeerReply, frozen=True, kw_only=True):
    """The answer to `LabelsQuery`, one word each."""

    words: Annotated[list[str], Meta(max_length=MOST_LABELS)]


class SpaceInfo(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A context space: its name where there are several, its cells in words, its dimension."""

    name: Name
    cells: Name
    dimension: Count


class FeatureInfo(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A feature of instances."""

    name: Name
    datatype: Annotated[str, Meta(max_length=16)]


class HelloReply(PeerReply, frozen=True, kw_only=True):
    """The answer to `HelloQuery`: the site's name, and how often it has been started.

    The other fields are empty for peers that do not need them.
    """

    name: Annotated[str, Meta(max_length=63)]
    incarnation: Count
    preset: Annotated[str, Meta(max_length=63)] = ""
    spaces: Annotated[list[SpaceInfo], Meta(max_length=MOST_SPACES)] = []
    instance: Annotated[str, Meta(max_length=16)] = ""  # "record" or "row"
    features: Annotated[list[FeatureInfo], Meta(max_length=MOST_FEATURES)] = []


class _Head(msgspec.Struct):
    version: int


AnyMessage = TypeVar("AnyMessage", bound=PeerMessage)
AnyReply = TypeVar("AnyReply", bound=PeerReply)


def write(message: Any) -> bytes:
    """Return a message, or instances, as bytes; raise `DataError` if a text is not Unicode."""
    try:
        return msgspec.msgpack.encode(message)
    except UnicodeEncodeError:
        raise DataError("a text cannot be encoded as UTF-8") from None


def read(body: bytes, kind: type[AnyMessage]) -> AnyMessage:
    """Return a received request; raise `HttpProblem` if it is not one of this kind."""
    if len(body) > MOST_BYTES:
        text = f"the message has {len(body)} bytes; at most {MOST_BYTES}"
        raise HttpProblem(413, "too_large", text)
    query: AnyMessage = _decoded(body, kind)
    if query.version != VERSION:
        raise _other_version(query.version)
    return query


def read_answer(body: bytes, kind: type[AnyReply], query: PeerMessage) -> AnyReply:
    """Return the response to a request; raise `PeerError` if it is not one."""
    try:
        answer: AnyReply = _decoded(body, kind)
    except HttpProblem as problem:
        raise PeerError(f"the response cannot be read: {problem.detail}") from None
    if (answer.version, answer.request) != (VERSION, query.request):
        raise PeerError("the response has another request id or version")
    return answer


def announcement() -> dict[str, str]:
    """Return the headers by which a site says which protocol and which software it has."""
    return {VERSIONS_HEADER: str(VERSION), SOFTWARE_HEADER: f"covey {version('covey')}"}


def announced(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the protocol versions and the software of a peer, as far as they can be printed."""
    return _shown(headers.get(VERSIONS_HEADER, "")), _shown(headers.get(SOFTWARE_HEADER, ""))


def _shown(value: str) -> str:
    return value[:MOST_ANNOUNCED] if value and value.isprintable() else NOT_ANNOUNCED


def ask(requests: Sequence[AskRow], *, request: str, deadline_ms: int, **route: Any) -> AskQuery:
    """Return the message that asks for labels; raise `DataError` if instances cannot be sent."""
    instances = [row.instance for row in requests if row.instance is not NO_INSTANCE]
    if instances and len(instances) != len(requests):
        raise DataError("a batch must hold either every instance or none")
    try:
        values = msgspec.convert({"values": instances}, _Values).values if instances else None
    except (msgspec.ValidationError, RecursionError) as error:
        raise DataError(f"an instance cannot be sent ({error}); a peer takes {SENDABLE}") from None
    return AskQuery(
        version=VERSION,
        request=request,
        deadline_ms=deadline_ms,
        rows=[AskEntry(row.id, str(row.cell), row.slot) for row in requests],
        price=requests[0].price,
        values=values,
        **route,
    )


def route_of(query: RoutedMessage) -> RelayRoute | None:
    """Return where a question is to be forwarded; None: it is for this site."""
    if query.to is UNSET:
        return None
    via = () if query.via is UNSET else tuple(query.via)
    return RelayRoute(query.to, via, query.deadline_ms / 1e3)


def requests_of(query: AskQuery) -> list[AskRow]:
    """Return what is asked; raise `HttpProblem` if instances and rows do not fit."""
    instances = query.values
    if instances is None:
        return [AskRow(row.id, row.cell, row.slot, price=query.price) for row in query.rows]
    if len(instances) != len(query.rows):
        raise invalid(f"there are {len(instances)} instances for {len(query.rows)} rows")
    return [
        AskRow(row.id, row.cell, row.slot, instance, query.price)
        for row, instance in zip(query.rows, instances, strict=True)
    ]


def helped(query: AskQuery, answers: Sequence[Assistance]) -> AskReply:
    """Return the answer to a question."""
    rows = [
        AskAnswer(None if answer.label is NO_ANSWER else _sent(answer.label), answer.function)
        for answer in answers
    ]
    return AskReply(version=VERSION, request=query.request, given=rows)


def helps_of(answer: AskReply) -> list[Assistance]:
    """Return what a peer answered."""
    return [
        Assistance(NO_ANSWER if row.label is None else row.label, row.function)
        for row in answer.given
    ]


def delivery(labels: Sequence[tuple[str, Label]], *, request: str, deadline_ms: int) -> LabelsQuery:
    """Return the message that delivers true labels."""
    sent = [LabelEntry(id_, _sent(label)) for id_, label in labels]
    return LabelsQuery(version=VERSION, request=request, deadline_ms=deadline_ms, labels=sent)


def _sent(label: Label) -> Truth:
    if not isinstance(label, str | int | float):
        raise DataError(f"the label is {label!r}; a node takes text and numbers")
    return label


def _decoded(body: Any, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _other_or_invalid(body, str(error)) from None
    except RecursionError:
        raise HttpProblem(400, "bad_message", "the message is nested too deeply") from None
    except ValueError as error:  # what msgspec raises, and broken UTF-8
        raise HttpProblem(400, "bad_message", f"the message is not MessagePack: {error}") from None


def _other_or_invalid(body: Any, detail: str) -> HttpProblem:
    """Return why a message is invalid; one of another version may have other fields."""
    try:
        sent = msgspec.msgpack.decode(body, type=_Head).version
    except (ValueError, RecursionError):
        sent = VERSION
    if sent != VERSION:
        return _other_version(sent)
    return invalid(detail[:200])  # it may quote the message


def _other_version(sent: int) -> HttpProblem:
    return HttpProblem(
        422,
        "protocol_version",
        f"the message has version {sent}; this site speaks {VERSION}",
        {VERSIONS_HEADER: str(VERSION)},
    )
