"""Read and write the messages of clients (Open Inference Protocol v2). No I/O.

An invalid message is a `HttpProblem` with a stable code; nothing is coerced.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from covey.data.inputs import MOST_WHOLE
from covey.functions.remote import Parameters, RemoteTensor
from covey.server import tensors
from covey.server.config import FeatureType, NodeTable
from covey.server.http import (
    BINARY,
    JSON,
    JSON_KINDS,
    KIB,
    LENGTH,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    SiteLimits,
    content_type,
    invalid,
    is_all_json,
)
from covey.server.tensors import Feedback, Inference, Scalar, TensorKind, Wanted
from covey.types import Label

SLOT = "slot"
VERSION = "1"  # the only one of a model: what it learns changes no version
USUAL = (Wanted("label"), Wanted("ticket"))  # the default outputs
ALL_BINARY = "binary_data_output"  # the parameter of a request that wants all outputs in bytes


class Asked(NamedTuple):
    """A request, the digest of what it asks, and the bytes of its tensors."""

    request: Inference
    digest: str
    parts: tensors.Parts


def halves(call: HttpRequest, limits: SiteLimits) -> tuple[bytes, memoryview | None]:
    """Return the JSON of a body, and the bytes after it; None for a body that is all JSON."""
    if is_all_json(call.headers):
        return call.body, None
    if content_type(call.headers) not in JSON_KINDS:
        raise HttpProblem(415, "media_type", f"send {JSON}, or {BINARY} with {LENGTH}")
    text = call.headers.get(LENGTH.lower(), "")
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) > len(call.body):
        raise tensors.broken(f"{LENGTH} must say how many bytes of the body are JSON")
    size = int(text)
    if size > limits.json_kib * KIB:
        raise HttpProblem(413, "too_large", f"the JSON may have {limits.json_kib} KiB")
    return call.body[:size], memoryview(call.body)[size:]


def feedback(body: bytes, tail: memoryview | None = None, *, depth: int, most: int) -> Feedback:
    """Return up to `most` true labels: JSON no deeper than `depth`, or tensors with `tail`."""
    raw = _parsed(body, depth)
    request = _plain_feedback(raw) if tail is None else _binary_feedback(raw, tail, most)
    if request.rows is not None and isinstance(request.truth, list):
        if not request.rows:
            raise invalid("there are no rows")
        tensors.check_count(len(request.rows), most)
        if len(request.rows) != len(request.truth):
            raise invalid(f"there are {len(request.rows)} rows and {len(request.truth)} labels")
    return request


def _plain_feedback(raw: Any) -> Feedback:
    request: Feedback = _typed(raw, Feedback)
    if (request.rows is None) == isinstance(request.truth, list):
        raise invalid(
            "truth must be a list where there are rows, and one label where there are not"
        )
    if isinstance(request.cost, list) == (request.rows is None) and request.cost is not None:
        raise invalid(
            "cost must be a list where there are rows, and a number, or numbers by column, where "
            "there are not"
        )
    truths = request.truth if isinstance(request.truth, list) else [request.truth]
    if any(isinstance(truth, int) and abs(truth) > MOST_WHOLE for truth in truths):
        raise invalid("truth is a whole number beyond 2**53")
    return request


def _binary_feedback(raw: Any, tail: memoryview, most: int) -> Feedback:
    request: tensors.BinaryFeedback = _typed(raw, tensors.BinaryFeedback)
    parts = tensors.parts_of(request.inputs, tail)
    inputs = tensors.by_name(request.inputs)
    if inputs.keys() != {"rows", "truth"}:
        raise invalid("labels are the inputs 'rows' and 'truth', and no others")
    tensors.check_counts(request.inputs, most)
    rows = tensors.plain(tensors.column_of(inputs["rows"], parts, "INT64"))
    if rows and not 0 <= min(rows) <= max(rows) <= tensors.MOST_ROW:
        raise invalid(f"input 'rows' holds a row that is not one from 0 to {tensors.MOST_ROW}")
    truths = tensors.plain(tensors.column_of(inputs["truth"], parts))
    return Feedback(request.id, truths, rows, request.parameters)


def wanted_of(request: Inference) -> Sequence[Wanted]:
    """Return the outputs that a client wants, in order."""
    return USUAL if request.outputs is None else request.outputs


def inference(body: bytes, tail: bytes | memoryview = b"", *, depth: int) -> Asked:
    """Return a request, nested no deeper than `depth`, with `tail` after its JSON."""
    raw = _parsed(body, depth)
    request: Inference = _typed(raw, Inference)
    _is_said(request.parameters, ALL_BINARY)
    for one in request.outputs or ():
        _is_said(one.parameters, tensors.BINARY)
    try:
        digest = hashlib.sha256(_SORTED.encode([raw["inputs"], slot_of(request)]))
    except OverflowError:
        raise invalid("inputs hold a whole number that is too large") from None
    digest.update(tail)
    return Asked(request, digest.hexdigest(), tensors.parts_of(request.inputs, tail))


def rows_of(
    asked: Asked, serving: NodeTable, *, dimension: int | None, most: int
) -> tensors.TensorTable:
    """Return up to `most` rows; with a `dimension`, contexts are sent beside them."""
    inputs, features = asked.request.inputs, serving.features
    return tensors.table_of(inputs, asked.parts, features, dimension=dimension, most=most)


def slot_of(request: Inference) -> Any:
    """Return the parameter `slot` of a request, unchecked; None if it has none."""
    return (request.parameters or {}).get(SLOT)


def first_slot(request: Inference, serving: NodeTable, *, count: int) -> int | None:
    """Return the slot of the first row, if the client says it; None where the node counts."""
    first = slot_of(request)
    if serving.slots == "counted":
        if first is not None:
            raise invalid("parameters.slot: slots are counted here; leave it out")
        return None
    if type(first) is not int or not 1 <= first <= MOST_WHOLE - count:
        raise invalid("parameters.slot must be the slot of the first row, from 1 to 2**53")
    return first


def answer(
    columns: Mapping[str, Sequence[Any]],
    request: Inference,
    *,
    model: str,
    id: str,
    parameters: Mapping[str, Scalar],
) -> HttpResponse:
    """Return the answer to a request: the columns that it wants, in JSON or in bytes."""
    is_usual = _is_said(request.parameters, ALL_BINARY)
    outputs, bodies, has_binary = [], [], False
    for one in wanted_of(request):
        is_binary = _is_said(one.parameters, tensors.BINARY, is_usual)
        output, body = tensors.output_of(one.name, columns[one.name], is_binary=is_binary)
        outputs.append(output)
        bodies.append(body)
        has_binary |= is_binary
    head = msgspec.json.encode(tensors.InferenceResponse(model, id, outputs, dict(parameters)))
    if not has_binary:
        return HttpResponse(body=head)
    return HttpResponse(body=head + b"".join(bodies), kind=BINARY, headers={LENGTH: str(len(head))})


def metadata(
    serving: NodeTable, *, dimension: int | None, classes: Sequence[Label]
) -> tensors.ModelMetadata:
    """Return what the model takes and gives; its labels are of the datatype of its classes."""
    inputs = [TensorKind(name, kind, [-1]) for name, kind in serving.features.items()]
    if dimension is not None:
        inputs.append(TensorKind(tensors.CONTEXT, "FP64", [-1, dimension]))
    if len(set(serving.features.values())) == 1:
        (kind,) = set(serving.features.values())
        together = {"instead_of": ", ".join(serving.features)}
        shape = [-1, len(serving.features)]
        inputs.append(TensorKind(tensors.INSTANCES, kind, shape, together))
    kinds = {"label": tensors.datatype_of(classes) or "BYTES", "price": "FP64"}
    outputs = [
        TensorKind(name, kinds.get(name, "BYTES"), [-1]) for name in get_args(tensors.OutputName)
    ]
    return tensors.ModelMetadata(serving.name, [VERSION], "covey", inputs, outputs)


def example(serving: NodeTable, *, dimension: int | None) -> Inference:
    """Return a request of one row that the model takes."""
    values: dict[FeatureType, Any] = {"BOOL": True, "INT64": 1, "FP64": 0.5, "BYTES": "text"}
    inputs = [
        RemoteTensor(name, [1], kind, [values[kind]]) for name, kind in serving.features.items()
    ]
    if dimension:
        inputs.append(RemoteTensor(tensors.CONTEXT, [1, dimension], "FP64", [0.5] * dimension))
    return Inference(inputs, parameters={SLOT: 1} if serving.slots == "given" else {})


def _is_said(parameters: Parameters, name: str, usual: bool = False) -> bool:
    value = (parameters or {}).get(name)
    if value is None:
        return usual
    if not isinstance(value, bool):
        raise invalid(f"parameter {name} must be true or false")
    return value


# Text, also such that never ends, and all that opens or closes something.
_MARKS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def _parsed(body: bytes, depth: int) -> Any:
    """Return the JSON of a body; no key may stand twice, and numbers must be finite."""
    _check_depth(body, depth)
    try:
        raw = msgspec.json.decode(body)
    except UnicodeDecodeError:
        raise HttpProblem(400, "bad_json", "the body is not UTF-8 text") from None
    except msgspec.DecodeError as error:
        raise HttpProblem(400, "bad_json", f"the body is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise invalid("the body must be a JSON object")
    if body.count(b":") != _pairs(raw):  # or else it holds no key that got lost
        try:
            json.loads(body, object_pairs_hook=_unique)
        except ValueError as error:
            raise HttpProblem(400, "bad_json", f"the body is not valid JSON: {error}") from None
    return raw


def _pairs(value: dict[str, Any]) -> int:
    """Return how many keys there are, or fewer: not all that is nested is looked at."""
    count = len(value)
    for inner in value.values():
        if type(inner) is dict:
            count += _pairs(inner)
        elif type(inner) is list and inner and type(inner[0]) is dict:
            count += sum([_pairs(one) for one in inner if type(one) is dict])
    return count


def _check_depth(body: bytes, most: int) -> None:
    """Raise a `HttpProblem` for JSON that is nested too deeply, before it is read."""
    if body.count(b"[") + body.count(b"{") <= most:
        return
    depth = 0
    for mark in _MARKS.findall(body):
        if mark in b"[{":
            depth += 1
            if depth > most:
                raise HttpProblem(400, "bad_json", f"the body is nested more than {most} deep")
        elif mark in b"]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key in an object")
    return found


_SORTED = msgspec.json.Encoder(order="sorted")


def _typed(raw: Any, kind: type[Any]) -> Any:
    """Return a message whose id, if any, can be printed."""
    try:
        message = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    if not (message.id or "").isprintable():
        raise invalid("id holds a character that cannot be printed")
    return message
