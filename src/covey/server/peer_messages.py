"""Messages of the peer protocol: typed, bounded, with a version and a request id."""

import math
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from covey.bandit.learner import NO_ANSWER
from covey.data.inputs import MOST_TEXT, MOST_WHOLE
from covey.errors import DataError, PeerError
from covey.node.peers import MOST_HOPS, MOST_PRICE, MOST_TOLD, OUTCOMES, RelayRoute
from covey.node.requests import NO_INSTANCE, AskRow, Assistance, QueryKind
from covey.server.http import HttpProblem, invalid
from covey.types import Label

MOST_FEATURES = 4_096
MOST_DEPTH = 4
Key = Annotated[str, Meta(max_length=1_024)]


class NumericBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Instances that are rows of numbers: eight bytes each, little-endian, row by row."""

    kind: Literal["f8", "i8"]  # numbers, or whole numbers
    width: Annotated[int, Meta(ge=1, le=MOST_FEATURES)]
    numbers: bytes
    keys: Annotated[list[Key], Meta(max_length=MOST_FEATURES)] | None = None  # None: lists

    def rows(self) -> list[Any]:
        """Return the instances, as lists or as records; raise `DataError` if they do not fit."""
        width, keys = self.width, self.keys
        if keys is not None and (len(keys) != width or len(set(keys)) != width):
            raise DataError(f"the block has {len(keys)} keys for {width} columns, or one twice")
        if len(self.numbers) % (8 * width):
            raise DataError(f"the block has {len(self.numbers)} bytes, not rows of {width} numbers")
        numbers: list[float] = np.frombuffer(self.numbers, f"<{self.kind}").tolist()
        for number in numbers:
            _check_number(number)
        rows = [numbers[k : k + width] for k in range(0, len(numbers), width)]
        return rows if keys is None else [dict(zip(keys, row, strict=True)) for row in rows]


def block_of(instances: Sequence[Any]) -> NumericBlock | None:
    """Return instances as one block, if they are alike and all their numbers of one type."""
    first = instances[0] if instances else None
    if not first or not isinstance(first, dict | list | tuple) or len(first) > MOST_FEATURES:
        return None
    keys = list(first) if isinstance(first, dict) else None
    if keys is not None and not all(isinstance(key, str) for key in keys):
        return None
    values: list[Any] = []
    for instance in instances:
        if type(instance) is not type(first) or len(instance) != len(first):
            return None
        if keys is not None and list(instance) != keys:
            return None
        values += instance.values() if isinstance(instance, dict) else instance
    types = set(map(type, values))
    is_whole = types == {int} and all(abs(value) <= MOST_WHOLE for value in values)
    if types != {float} and not is_whole:
        return None
    kind: Literal["f8", "i8"] = "i8" if is_whole else "f8"
    return NumericBlock(kind, len(first), np.array(values, f"<{kind}").tobytes(), keys)


def check_plain(instances: Sequence[Any]) -> None:
    """Raise `DataError` unless all is text, numbers, true, false, None, in lists and records."""
    layer: list[Any] = list(instances)
    for _ in range(MOST_DEPTH):
        layer = [inner for value in layer for inner in _inner(value)]
        if not layer:
            return
    raise DataError(f"an instance is nested more than {MOST_DEPTH} deep")


def _inner(value: Any) -> Sequence[Any]:
    """Return what a value is made of; nothing, if it is plain itself."""
    if value is None or isinstance(value, str | bool):
        return ()
    if isinstance(value, int | float):
        _check_number(value)
        return ()
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise DataError("an instance has a key that is no text")
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    raise DataError(f"an instance holds a {type(value).__name__}; text and numbers can be sent")


def _check_number(value: float) -> None:
    is_good = abs(value) <= MOST_WHOLE if isinstance(value, int) else math.isfinite(value)
    if not is_good:
        raise DataError("an instance holds a number that is not finite, or beyond 2**53")


VERSION = 1  # of the protocol and of every message
# Bodies are strict, so a site announces in headers what it speaks.
VERSIONS_HEADER, SOFTWARE_HEADER = "Covey-Versions", "Covey-Software"
NOT_ANNOUNCED = "not announced"
MOST_ANNOUNCED = 40  # characters of such a header that are shown
ROOT = "/covey/v1"
KIND = "application/msgpack"
MOST_BYTES = 4 * 1024 * 1024
MOST_PLAIN_BYTES = 1024 * 1024  # of instances that are not a block of numbers
NONE = msgspec.Raw(b"\xc0")
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
    """Asks for labels; with neither `block` nor `values`, only the cells are shown."""

    rows: Annotated[list[AskEntry], Meta(min_length=1, max_length=MOST_ROWS)]
    price: Annotated[int, Meta(ge=0, le=MOST_PRICE)] = 0  # of each answered row, in millionths
    block: NumericBlock | None = None
    values: msgspec.Raw = NONE  # a list of plain instances


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
    instances = [one.instance for one in requests if one.instance is not NO_INSTANCE]
    if instances and len(instances) != len(requests):
        raise DataError("a batch must hold either every instance or none")
    block = block_of(instances)
    values = NONE
    if instances and block is None:
        check_plain(instances)
        values = msgspec.Raw(write(instances))
    return AskQuery(
        version=VERSION,
        request=request,
        deadline_ms=deadline_ms,
        rows=[AskEntry(one.id, str(one.cell), one.slot) for one in requests],
        price=requests[0].price,
        block=block,
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
    instances = _instances(query)
    if instances is None:
        return [AskRow(row.id, row.cell, row.slot, price=query.price) for row in query.rows]
    if len(instances) != len(query.rows):
        raise invalid(f"there are {len(instances)} instances for {len(query.rows)} rows")
    return [
        AskRow(row.id, row.cell, row.slot, instance, query.price)
        for row, instance in zip(query.rows, instances, strict=True)
    ]


def helped(query: AskQuery, given: Sequence[Assistance]) -> AskReply:
    """Return the answer to a question."""
    rows = [
        AskAnswer(None if one.label is NO_ANSWER else _sent(one.label), one.function)
        for one in given
    ]
    return AskReply(version=VERSION, request=query.request, given=rows)


def helps_of(answer: AskReply) -> list[Assistance]:
    """Return what a peer answered."""
    return [
        Assistance(NO_ANSWER if one.label is None else one.label, one.function)
        for one in answer.given
    ]


def words_of(answer: DeliveryReply) -> list[str]:
    """Return the outcomes of labels; raise `PeerError` for an unknown one."""
    for word in answer.words:
        if word not in OUTCOMES:
            raise PeerError(f"the unknown outcome {word[:20]!r} of a label")
    return answer.words


def delivery(labels: Sequence[tuple[str, Label]], *, request: str, deadline_ms: int) -> LabelsQuery:
    """Return the message that delivers true labels."""
    sent = [LabelEntry(id_, _sent(label)) for id_, label in labels]
    return LabelsQuery(version=VERSION, request=request, deadline_ms=deadline_ms, labels=sent)


def _instances(query: AskQuery) -> list[Any] | None:
    if query.values == NONE and query.block is None:
        return None
    try:
        if query.block is not None:
            if query.values != NONE:
                raise DataError("both block and values are given; send one of them")
            return query.block.rows()
        if len(query.values) > MOST_PLAIN_BYTES:
            raise HttpProblem(
                413, "too_large", f"plain instances may have {MOST_PLAIN_BYTES} bytes"
            )
        values: list[Any] = _decoded(query.values, list[Any])
        check_plain(values)
    except DataError as error:
        raise invalid(str(error)) from None
    return values


def _sent(label: Label) -> Truth:
    if not isinstance(label, str | int | float):
        raise DataError(f"the label is {label!r}; a node takes text and numbers")
    return label


def _decoded(body: Any, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _other_or_invalid(body, kind, str(error)) from None
    except RecursionError:
        raise HttpProblem(400, "bad_message", "the message is nested too deeply") from None
    except ValueError as error:  # what msgspec raises, and broken UTF-8
        raise HttpProblem(400, "bad_message", f"the message is not MessagePack: {error}") from None


def _other_or_invalid(body: Any, kind: Any, detail: str) -> HttpProblem:
    """Return why a message is invalid; one of another version may have other fields."""
    if kind != list[Any]:
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
