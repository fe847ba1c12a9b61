"""What clients send and get, in the words of the Open Inference Protocol, version 2. No I/O.

Whatever is wrong with a message is a `Problem` with a stable code; nothing is coerced.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from covey.calls import Problem
from covey.messages import Answer, Feedback, Inference, Model, Output, Tensor, TensorKind, Wanted
from covey.sites import Datatype, Serving
from covey.store import Ticket
from covey.types import Context

INSTANCES, CONTEXT, SLOT = "instances", "context", "slot"
NUMBERS = ("FP16", "FP32", "FP64")
WHOLE = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
MOST_WHOLE = 2**53


class Row(NamedTuple):
    """One instance of a request, and its context if the client sent one."""

    record: dict[str, Any]
    context: Context | None


def feedback(body: bytes, *, depth: int) -> Feedback:
    """Return a true label that was sent, nested no deeper than `depth`."""
    told: Feedback = _typed(_parsed(body, depth), Feedback)
    _check_id(told.id)
    if isinstance(told.truth, int) and abs(told.truth) > MOST_WHOLE:
        raise _invalid("truth is a whole number beyond 2**53")
    return told


def inference(body: bytes, *, depth: int) -> tuple[Inference, str]:
    """Return a request, nested no deeper than `depth`, and the digest of what it asks."""
    raw = _parsed(body, depth)
    request: Inference = _typed(raw, Inference)
    if request.id is not None:
        _check_id(request.id)
    asked = json.dumps([raw["inputs"], request.parameters.get(SLOT)], sort_keys=True)
    return request, hashlib.sha256(asked.encode()).hexdigest()


def rows_of(request: Inference, serving: Serving, *, dimension: int | None, most: int) -> list[Row]:
    """Return up to `most` rows; with a `dimension`, contexts are sent beside them."""
    tensors = {tensor.name: tensor for tensor in request.inputs}
    if len(tensors) != len(request.inputs):
        raise _invalid("two inputs have the same name")
    contexts = _contexts(tensors.pop(CONTEXT, None), dimension)
    columns = _columns(tensors, serving)
    count = len(next(iter(columns.values())))
    if any(len(column) != count for column in columns.values()):
        raise _invalid("the inputs differ in their number of rows")
    if count > most:
        raise Problem(413, "too_many_rows", f"{count} rows; at most {most} at once")
    if count == 0:
        raise _invalid("there are no rows")
    if contexts is not None and len(contexts) != count:
        raise _invalid(f"there are {len(contexts)} contexts for {count} rows")
    records = [{name: column[k] for name, column in columns.items()} for k in range(count)]
    return [
        Row(record, None if contexts is None else contexts[k]) for k, record in enumerate(records)
    ]


def slots_of(request: Inference, serving: Serving, *, count: int) -> Sequence[int | None]:
    """Return the slots of the rows, one after the other; None where the node counts them."""
    first = request.parameters.get(SLOT)
    if serving.slots == "counted":
        if first is not None:
            raise _invalid("parameters.slot: slots are counted here; leave it out")
        return [None] * count
    if type(first) is not int or not 1 <= first <= MOST_WHOLE - count:
        raise _invalid("parameters.slot must be the slot of the first row, from 1 to 2**53")
    return range(first, first + count)


def answer(
    tickets: Sequence[Ticket],
    *,
    model: str,
    id: str,  # noqa: A002 - the protocol's word
    wanted: Sequence[Wanted] | None,
) -> bytes:
    """Return the answer to a request as JSON."""
    labels = [ticket.answer for ticket in tickets]
    outputs = {
        "label": _output("label", labels),
        "ticket": _output("ticket", [ticket.id for ticket in tickets]),
    }
    names = list(outputs) if wanted is None else [one.name for one in wanted]
    told = Answer(model, id, [outputs[name] for name in names])
    if len(tickets) == 1:
        (ticket,) = tickets
        told.parameters = {
            "phase": ticket.phase,
            "arm": ticket.arm,
            "function": ticket.function,
            "price": ticket.price,
        }
    return msgspec.json.encode(told)


def metadata(serving: Serving, *, dimension: int | None) -> bytes:
    """Return what the model takes and gives."""
    inputs = [TensorKind(name, kind, [-1]) for name, kind in serving.features.items()]
    if dimension is not None:
        inputs.append(TensorKind(CONTEXT, "FP64", [-1, dimension]))
    outputs = [TensorKind(name, "BYTES", [-1]) for name in ("label", "ticket")]
    return msgspec.json.encode(Model(serving.name, "covey", inputs, outputs))


def example(serving: Serving, *, dimension: int | None) -> Inference:
    """Return a request of one row that the model takes."""
    values: dict[Datatype, Any] = {"BOOL": True, "INT64": 1, "FP64": 0.5, "BYTES": "text"}
    inputs = [Tensor(name, [1], kind, [values[kind]]) for name, kind in serving.features.items()]
    if dimension:
        inputs.append(Tensor(CONTEXT, [1, dimension], "FP64", [0.5] * dimension))
    return Inference(inputs, parameters={SLOT: 1} if serving.slots == "given" else {})


# -- JSON ---------------------------------------------------------------------------------------


# Text, also such that never ends, and all that opens or closes something.
_MARKS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def _parsed(body: bytes, depth: int) -> Any:
    """Return the JSON of a body; no key may stand twice, and numbers must be finite."""
    _check_depth(body, depth)
    try:
        text = body.decode("utf-8")
        raw = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite
        )
        # A lone surrogate can be written in JSON, but neither stored nor sent.
        json.dumps(raw, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise Problem(400, "bad_json", "the body is not UTF-8 text") from None
    except ValueError as error:
        raise Problem(400, "bad_json", f"the body is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise _invalid("the body must be a JSON object")
    return raw


def _check_depth(body: bytes, most: int) -> None:
    """Raise a `Problem` for JSON that is nested too deeply, before it is read."""
    depth = 0
    for mark in _MARKS.findall(body):
        if mark in b"[{":
            depth += 1
            if depth > most:
                raise Problem(400, "bad_json", f"the body is nested more than {most} deep")
        elif mark in b"]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


def _constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def _typed(raw: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None


def _check_id(id: str) -> None:  # noqa: A002 - the protocol's word
    if not id.isprintable():
        raise _invalid("id holds a character that cannot be printed")


def _invalid(detail: str) -> Problem:
    return Problem(422, "invalid", detail)


# -- tensors ------------------------------------------------------------------------------------


def _contexts(tensor: Tensor | None, dimension: int | None) -> list[Context] | None:
    if dimension is None:
        if tensor is not None:
            raise _invalid("contexts are made of the features here; leave out input 'context'")
        return None
    if tensor is None:
        if dimension:
            raise _invalid(f"input 'context' is missing; give FP64 of shape [rows, {dimension}]")
        return None
    if len(tensor.shape) != 2 or tensor.shape[1] != dimension:
        raise _invalid(f"input 'context' has shape {tensor.shape}; expected [rows, {dimension}]")
    values = _values(tensor, "FP64")
    for value in values:
        if not 0.0 <= value <= 1.0:
            raise _invalid(f"input 'context' holds {value}; it must lie in [0, 1]")
    return [tuple(values[k * dimension : (k + 1) * dimension]) for k in range(tensor.shape[0])]


def _columns(tensors: Mapping[str, Tensor], serving: Serving) -> dict[str, list[Any]]:
    """Return a column per feature, sent one by one or together as `instances`."""
    features = serving.features
    if INSTANCES in tensors and len(tensors) == 1:
        return _together(tensors[INSTANCES], features)
    for name in tensors:
        if name not in features:
            raise _invalid(f"there is no feature {name!r}; there are {', '.join(features)}")
    columns = {}
    for name, kind in features.items():
        if name not in tensors:
            raise _invalid(f"input {name!r} is missing")
        tensor = tensors[name]
        if len(tensor.shape) not in (1, 2) or tensor.shape[1:] not in ([], [1]):
            raise _invalid(f"input {name!r} has shape {tensor.shape}; expected [rows]")
        columns[name] = _values(tensor, kind)
    return columns


def _together(tensor: Tensor, features: Mapping[str, Datatype]) -> dict[str, list[Any]]:
    width = len(features)
    if len(tensor.shape) != 2 or tensor.shape[1] != width:
        raise _invalid(f"input 'instances' has shape {tensor.shape}; expected [rows, {width}]")
    (kind, *others) = set(features.values())
    if others:
        raise _invalid("the features differ in their datatype; send each as an input of its own")
    values = _values(tensor, kind)
    return {name: values[k::width] for k, name in enumerate(features)}


def _values(tensor: Tensor, kind: Datatype) -> list[Any]:
    """Return the values of a tensor, flat and checked against the datatype that is expected."""
    where = f"input {tensor.name!r}"
    takes, is_one = _KINDS[kind]
    if tensor.datatype not in takes:
        raise _invalid(f"{where} has datatype {tensor.datatype!r}; expected {kind}")
    values = _flat(tensor.data, where)
    if len(values) != math.prod(tensor.shape):
        raise _invalid(f"{where} has {len(values)} values for shape {tensor.shape}")
    for value in values:
        if not is_one(value):
            raise _invalid(f"{where} holds {str(value)[:40]!r}, which is no {kind}")
    return [float(value) for value in values] if kind == "FP64" else values


def _flat(data: list[Any], where: str) -> list[Any]:
    values: list[Any] = data
    while any(isinstance(value, list) for value in values):
        if not all(isinstance(value, list) for value in values):
            raise _invalid(f"{where} mixes lists and values")
        values = [value for inner in values for value in inner]
    return values


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= MOST_WHOLE


def _is_number(value: Any) -> bool:
    return type(value) is float or _is_whole(value)


_KINDS: dict[Datatype, tuple[tuple[str, ...], Callable[[Any], bool]]] = {
    "BOOL": (("BOOL",), lambda value: type(value) is bool),
    "INT64": (WHOLE, _is_whole),
    "FP64": ((*NUMBERS, *WHOLE), _is_number),
    "BYTES": (("BYTES",), lambda value: type(value) is str),
}


def _output(name: str, values: Sequence[Any]) -> Output:
    """Return a tensor of one column; values of several types are sent as text."""
    kinds = {type(value) for value in values}
    for kind, datatype in ((bool, "BOOL"), (int, "INT64"), (float, "FP64"), (str, "BYTES")):
        if kinds == {kind}:
            return Output(name, [len(values)], datatype, list(values))
    return Output(name, [len(values)], "BYTES", [str(value) for value in values])
