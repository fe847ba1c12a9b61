"""Read and write the messages of clients (Open Inference Protocol v2). No I/O.

An invalid message is a `HttpProblem` with a stable code; nothing is coerced.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
import numpy as np
from msgspec import Meta

from covey.data.inputs import MOST_WHOLE
from covey.functions import function
from covey.functions.remote import Output, Parameters, RemoteTensor
from covey.node.functions import Limits
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
    content_type,
    invalid,
    is_all_json,
)
from covey.types import Context, Label

MOST_ID = 200
Scalar = function.Scalar
MOST_ROW = 65_535
Place = Annotated[int, Meta(ge=0, le=MOST_ROW)]
Id = Annotated[str, Meta(min_length=1, max_length=MOST_ID)]
TicketId = Annotated[str, Meta(min_length=1, max_length=MOST_ID + len(f":{MOST_ROW}"))]
OutputName = Literal["label", "ticket", "phase", "arm", "function", "price"]


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """An output that a client asks for; label and ticket by default."""

    name: OutputName
    parameters: Parameters = None


class Inference(msgspec.Struct):
    """A request for labels. Clients send further fields, such as the name of the model."""

    inputs: list[RemoteTensor]
    id: Annotated[str, Meta(max_length=MOST_ID)] | None = None  # empty: none
    parameters: Parameters = None
    outputs: list[Wanted] | None = None


class Feedback(msgspec.Struct, forbid_unknown_fields=True):
    """A true label for a ticket, or labels for `rows` of a request."""

    id: TicketId
    truth: Scalar | list[Scalar]
    rows: list[Place] | None = None
    parameters: Parameters = None
    # Of the arm, beyond its price; or by the columns of the arm and of the links that were used.
    cost: float | dict[str, float] | list[float | dict[str, float] | None] | None = None


class Live(msgspec.Struct):
    """Whether the server runs."""

    live: bool


class Ready(msgspec.Struct):
    """Whether it answers, and stores labels."""

    ready: bool


class ServerMetadata(msgspec.Struct):
    """What the server is."""

    name: str
    version: str
    extensions: list[str]


class TensorKind(msgspec.Struct, omit_defaults=True):
    """A tensor that the model takes or gives; -1 is any number of rows."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, str] = {}


class ModelMetadata(msgspec.Struct):
    """What the model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorKind]
    outputs: list[TensorKind]


class TensorConfig(msgspec.Struct):
    """A tensor as configurations of models have it."""

    name: str
    data_type: str
    dims: list[int]


class ModelConfig(msgspec.Struct):
    """What the model takes and gives, as Triton has it; `perf_analyzer` asks for it."""

    name: str
    platform: str
    backend: str
    max_batch_size: int  # 0: the first of `dims` is the number of rows
    input: list[TensorConfig]
    output: list[TensorConfig]


class Duration(msgspec.Struct):
    """How many requests there were, and how long they took together."""

    count: int = 0
    ns: int = 0


class ModelStats(msgspec.Struct):
    """What the model was asked since the start of the site."""

    name: str
    version: str
    last_inference: int  # not known: 0
    inference_count: int
    execution_count: int
    # By how they ended, and the parts of those that succeeded.
    inference_stats: dict[str, Duration]
    batch_stats: list[Duration] = []


class Statistics(msgspec.Struct):
    """The statistics of the only model, as Triton has them."""

    model_stats: list[ModelStats]


class InferenceResponse(msgspec.Struct, omit_defaults=True):
    """Labels and tickets; for a single row also how it was decided."""

    model_name: str
    id: str
    outputs: list[Output]
    parameters: dict[str, Scalar] = {}


class Settled(msgspec.Struct):
    """What was taken: `new` unless it was there before; lists where `rows` were given."""

    id: str
    new: bool | list[bool]
    right: bool | list[bool]


INSTANCES, CONTEXT = "instances", "context"
SIZE, IN_BYTES = "binary_data_size", "binary_data"  # parameters of an input, and of an output
NUMBERS = ("FP16", "FP32", "FP64")
WHOLE = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
Column = list[Any] | np.ndarray
Parts = Mapping[str, memoryview]  # name -> bytes of a binary tensor
NO_VECTORS: Mapping[str, int] = MappingProxyType({})
_LITTLE = {"BOOL": "|u1", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"} | {
    name: f"<{name[0].lower()}{int(name.lstrip('UINT')) // 8}" for name in WHOLE
}
_HELD = {"BOOL": np.bool_, "INT64": np.int64, "FP64": np.float64}
_LENGTH = struct.Struct("<I")


class TensorTable(msgspec.Struct, frozen=True):
    """The rows of a request by column, with the client's contexts, if any."""

    columns: dict[str, Column]  # a vector has a row of numbers for each
    contexts: Column | None  # flat
    count: int

    def context(self) -> Context:
        """Return the context of the only row."""
        return () if self.contexts is None else tuple(plain(self.contexts))

    def points(self) -> np.ndarray | None:
        """Return the contexts of all rows."""
        if self.contexts is None:
            return None
        return np.array(self.contexts, np.float64).reshape(self.count, -1)

    def records(self) -> list[dict[str, Any]]:
        names = list(self.columns)
        rows = zip(*map(plain, self.columns.values()), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def matrix(self) -> np.ndarray | list[list[Any]]:
        """Return all rows as one array if all columns have the same numeric type, else as lists."""
        columns = list(self.columns.values())
        arrays = [column for column in columns if isinstance(column, np.ndarray)]
        if len(arrays) == len(columns) and len({column.dtype for column in arrays}) == 1:
            return np.column_stack(arrays)
        return [flattened(row) for row in zip(*map(plain, columns), strict=True)]


def flattened(values: Iterable[Any]) -> list[Any]:
    """Return the values of an instance as one row, in which those of a vector follow each other."""
    lists = [value if isinstance(value, list) else [value] for value in values]
    return [entry for entries in lists for entry in entries]


def parts_of(inputs: Sequence[RemoteTensor], tail: bytes | memoryview) -> Parts:
    """Split the bytes after the JSON by tensor; all bytes must be used."""
    parts, rest = {}, memoryview(tail)
    for tensor in inputs:
        size = (tensor.parameters or {}).get(SIZE)
        if size is None and tensor.data is not msgspec.UNSET:
            continue
        where = f"input {tensor.name!r}"
        if size is None:
            raise invalid(f"{where} has neither data nor {SIZE}")
        if type(size) is not int or size < 0:
            raise invalid(f"{where}: {SIZE} must be a number of bytes")
        if tensor.data is not msgspec.UNSET:
            raise invalid(f"{where} has both data and {SIZE}")
        if size > len(rest):
            raise broken(f"{where} needs {size} bytes; {len(rest)} are left after the JSON")
        parts[tensor.name], rest = rest[:size], rest[size:]
    if len(rest):
        raise broken(f"{len(rest)} bytes after the JSON belong to no input")
    return parts


def check_count(count: int, most: int) -> None:
    """Raise a `HttpProblem` for more than `most` rows."""
    if count > most:
        raise HttpProblem(413, "too_many_rows", f"{count} rows; at most {most} at once")


def column_of(tensor: RemoteTensor, parts: Parts, kind: FeatureType) -> Column:
    if len(tensor.shape) not in (1, 2) or tensor.shape[1:] not in ([], [1]):
        raise invalid(f"input {tensor.name!r} has shape {tensor.shape}; expected [rows]")
    return _values(tensor, parts, kind)


def plain(column: Column) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else column


def datatype_of(values: Sequence[Any]) -> str | None:
    """Return the datatype of values; None if they are of several types, or if there are none."""
    kinds = set(map(type, values))
    return _WORDS.get(kinds.pop()) if len(kinds) == 1 else None


def output_of(name: str, values: Sequence[Any], *, is_binary: bool) -> tuple[Output, bytes]:
    """Return a tensor of one column and its bytes; mixed types are sent as text."""
    datatype = datatype_of(values)
    if datatype is None:
        datatype, values = "BYTES", [str(value) for value in values]
    if not is_binary:
        return Output(name, [len(values)], datatype, list(values)), b""
    content = _bytes(datatype, values)
    return Output(name, [len(values)], datatype, parameters={SIZE: len(content)}), content


def broken(detail: str) -> HttpProblem:
    """Return the problem of a wrong number of bytes."""
    return HttpProblem(400, "broken_body", detail)


def _check_unit(values: Column) -> None:
    if isinstance(values, np.ndarray):
        low, high = values.min(), values.max()
    else:
        low, high = min(values), max(values)
    if low < 0.0 or high > 1.0:
        outside = low if low < 0.0 else high
        raise invalid(f"input 'context' holds {outside}; it must lie in [0, 1]")


def _values(tensor: RemoteTensor, parts: Parts, kind: FeatureType) -> Column:
    """Return the values of a tensor, flat and checked against the expected datatype."""
    takes, is_one = _KINDS[kind]
    if tensor.datatype not in takes:
        raise invalid(f"input {tensor.name!r} has datatype {tensor.datatype!r}; expected {kind}")
    if tensor.name in parts:
        return _from_bytes(tensor, parts[tensor.name], kind)
    values, types = _flat(tensor.data, tensor.name)
    if len(values) != math.prod(tensor.shape):
        raise invalid(f"input {tensor.name!r} has {len(values)} values for shape {tensor.shape}")
    if types == _PLAIN.get(kind):
        return values
    for value in values:
        if not is_one(value):
            shown = "null" if value is None else repr(value)[:40]
            raise invalid(f"input {tensor.name!r} holds {shown}, which is not {kind}")
    return list(map(float, values)) if kind == "FP64" else values


def _flat(data: Any, name: str) -> tuple[list[Any], set[type]]:
    """Return the values of nested lists, and their types."""
    values: list[Any] = data
    types = set(map(type, values))
    while list in types:
        if len(types) > 1:
            raise invalid(f"input {name!r} mixes lists and values")
        values = [value for inner in values for value in inner]
        types = set(map(type, values))
    return values, types


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= MOST_WHOLE


_KINDS: dict[FeatureType, tuple[tuple[str, ...], Callable[[Any], bool]]] = {
    "BOOL": (("BOOL",), lambda value: type(value) is bool),
    "INT64": (WHOLE, _is_whole),
    "FP64": ((*NUMBERS, *WHOLE), lambda value: type(value) is float or _is_whole(value)),
    "BYTES": (("BYTES",), lambda value: type(value) is str),
}
_PLAIN: dict[FeatureType, set[type]] = {"BOOL": {bool}, "FP64": {float}, "BYTES": {str}}
_WORDS: dict[type, str] = {bool: "BOOL", int: "INT64", float: "FP64", str: "BYTES"}


def _from_bytes(tensor: RemoteTensor, part: memoryview, kind: FeatureType) -> Column:
    where, count = f"input {tensor.name!r}", math.prod(tensor.shape)
    if kind == "BYTES":
        return _texts(bytes(part), count, where)
    dtype = np.dtype(_LITTLE[tensor.datatype])
    if len(part) != count * dtype.itemsize:
        raise invalid(f"{where} has {len(part)} bytes for {tensor.datatype} {tensor.shape}")
    values = np.frombuffer(part, dtype)
    if not _are(values, kind):
        raise invalid(f"{where} holds a value that is not {kind}")
    return values.astype(_HELD[kind])


def _are(values: np.ndarray, kind: FeatureType) -> bool:
    """Return whether values are finite, exact as floats, and 0 or 1 for BOOL."""
    if values.dtype.kind == "f":
        return bool(np.isfinite(values).all())
    if not values.size:
        return True
    low, high = int(values.min()), int(values.max())
    return high <= 1 if kind == "BOOL" else low >= -MOST_WHOLE and high <= MOST_WHOLE


def _texts(part: bytes, count: int, where: str) -> list[str]:
    """Return length-prefixed texts."""
    texts, at = [], 0
    if count * _LENGTH.size > len(part):
        raise invalid(f"{where} has {len(part)} bytes, too few for {count} texts")
    try:
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(part, at)
            at += _LENGTH.size + length
            texts.append(part[at - length : at].decode())
    except UnicodeDecodeError:
        raise invalid(f"{where} holds a text that is not UTF-8") from None
    except struct.error:
        at = len(part) + 1
    if at != len(part):
        raise invalid(f"{where} has {len(part)} bytes, which do not match {count} texts")
    return texts


def _bytes(datatype: str, values: Sequence[Any]) -> bytes:
    if datatype != "BYTES":
        return np.array(values, _LITTLE[datatype]).tobytes()
    texts = [value.encode() for value in values]
    return b"".join([part for text in texts for part in (_LENGTH.pack(len(text)), text)])


SLOT = "slot"
VERSION = "1"  # the only one of a model: what it learns changes no version
USUAL = (Wanted("label"), Wanted("ticket"))  # the default outputs
OUTPUTS = get_args(OutputName)
ALL_BINARY = "binary_data_output"  # the parameter of a request that wants all outputs in bytes
DATA_TYPES = {"BYTES": "TYPE_STRING"}  # others have the same name in both forms


class Model(NamedTuple):
    """What the model of a site takes and gives."""

    serving: NodeTable
    dimension: int | None = 0  # of the contexts that clients send; None: the site makes them
    vectors: Mapping[str, int] = NO_VECTORS  # features with several numbers, and how many
    classes: Sequence[Label] = ()
    limits: Limits = Limits()

    @property
    def width(self) -> int:
        """How many values an instance has."""
        return len(self.serving.features) + sum(self.vectors.values()) - len(self.vectors)

    def read(self, call: HttpRequest) -> tuple[Inference, str, TensorTable]:
        """Return a request, the digest of what it asks, and its rows.

        Raises `HttpProblem` if it cannot be understood.
        """
        head, tail = halves(call, self.limits)
        request, digest = inference(head, tail or b"")
        return request, digest, self.rows(request.inputs, tail or b"")

    def rows(self, inputs: Sequence[RemoteTensor], tail: bytes | memoryview = b"") -> TensorTable:
        """Return the rows of tensors; `tail` is what follows the JSON."""
        parts = parts_of(inputs, tail)
        tensors = {tensor.name: tensor for tensor in inputs}
        if len(tensors) != len(inputs):
            raise invalid("duplicate input name")
        for tensor in inputs:  # before any of their values is read
            check_count(tensor.shape[0] if tensor.shape else 0, self.limits.rows)
        context = tensors.pop(CONTEXT, None)
        contexts = self._contexts(context, parts)
        columns = self._columns(tensors, parts)
        count = len(next(iter(columns.values())))
        if any(len(column) != count for column in columns.values()):
            raise invalid("the inputs differ in their number of rows")
        if count == 0:
            raise invalid("there are no rows")
        if context is not None and context.shape[0] != count:
            raise invalid(f"there are {context.shape[0]} contexts for {count} rows")
        return TensorTable(columns, contexts, count)

    def _contexts(self, tensor: RemoteTensor | None, parts: Parts) -> Column | None:
        if self.dimension is None:
            if tensor is not None:
                raise invalid("contexts are computed from the features; remove input 'context'")
            return None
        expected = f"[rows, {self.dimension}]"
        if tensor is None:
            if self.dimension:
                raise invalid(f"input 'context' is missing; send FP64 of shape {expected}")
            return None
        if len(tensor.shape) != 2 or tensor.shape[1] != self.dimension:
            raise invalid(f"input 'context' has shape {tensor.shape}; expected {expected}")
        values = _values(tensor, parts, "FP64")
        if len(values):
            _check_unit(values)
        return values

    def _columns(self, tensors: Mapping[str, RemoteTensor], parts: Parts) -> dict[str, Column]:
        """Return a column per feature, sent separately or together in one tensor of any name."""
        features = self.serving.features
        if len(tensors) == 1:
            (tensor,) = tensors.values()
            if tensor.name == INSTANCES or (tensor.name not in features and len(tensor.shape) == 2):
                return self._together(tensor, parts)
        if INSTANCES in tensors and INSTANCES not in features:
            others = ", ".join(repr(name) for name in tensors if name != INSTANCES)
            raise invalid(f"'instances' contains all features; remove {others}")
        for name in tensors:
            if name not in features:
                raise invalid(f"unknown feature {name!r}; known: {', '.join(features)}")
        for name in features:
            if name not in tensors:
                raise invalid(f"input {name!r} is missing")
        return {
            name: _matrix(tensors[name], parts, self.vectors[name])
            if name in self.vectors
            else column_of(tensors[name], parts, kind)
            for name, kind in features.items()
        }

    def _together(self, tensor: RemoteTensor, parts: Parts) -> dict[str, Column]:
        features, vectors, width = self.serving.features, self.vectors, self.width
        _check_width(tensor, width)
        (kind, *others) = set(features.values())
        if others:
            raise invalid("the features have different datatypes; send each as a separate input")
        if not vectors:
            values = _values(tensor, parts, kind)
            return {name: values[k::width] for k, name in enumerate(features)}
        ends = accumulate(vectors.get(name, 1) for name in features)
        pieces = np.split(_matrix(tensor, parts, width), [*ends][:-1], axis=1)
        pairs = zip(features, pieces, strict=True)
        return {name: part if name in vectors else part[:, 0] for name, part in pairs}

    def first_slot(self, request: Inference, *, count: int) -> int | None:
        """Return the slot of the first row, if the client says it; None where the node counts."""
        first = slot_of(request)
        if self.serving.slots == "counted":
            if first is not None:
                raise invalid("parameters.slot: slots are counted here; leave it out")
            return None
        if type(first) is not int or not 1 <= first <= MOST_WHOLE - count:
            raise invalid("parameters.slot must be the slot of the first row, from 1 to 2**53")
        return first

    def metadata(self) -> ModelMetadata:
        """Return what the model takes and gives; its labels are of the datatype of its classes."""
        features, vectors = self.serving.features, self.vectors
        inputs = [
            TensorKind(name, kind, [-1, vectors[name]] if name in vectors else [-1])
            for name, kind in features.items()
        ]
        if self.dimension is not None:
            inputs.append(TensorKind(CONTEXT, "FP64", [-1, self.dimension]))
        if len(set(features.values())) == 1:
            (kind,) = set(features.values())
            together = {"instead_of": ", ".join(features)}
            inputs.append(TensorKind(INSTANCES, kind, [-1, self.width], together))
        kinds = {"label": datatype_of(self.classes) or "BYTES", "price": "FP64"}
        outputs = [TensorKind(name, kinds.get(name, "BYTES"), [-1]) for name in OUTPUTS]
        return ModelMetadata(self.serving.name, [VERSION], "covey", inputs, outputs)

    def config(self) -> ModelConfig:
        """Return the same in the form of Triton."""
        model = self.metadata()

        def triton(tensor: TensorKind) -> TensorConfig:
            kind = DATA_TYPES.get(tensor.datatype, f"TYPE_{tensor.datatype}")
            return TensorConfig(tensor.name, kind, tensor.shape)

        inputs, outputs = map(triton, model.inputs), map(triton, model.outputs)
        return ModelConfig(model.name, model.platform, model.platform, 0, [*inputs], [*outputs])

    def statistics(self, success: Duration, fail: Duration) -> Statistics:
        stats = dict.fromkeys(("queue", "compute_input", "compute_output"), Duration())
        stats |= {"success": success, "fail": fail, "compute_infer": success}
        count = success.count
        return Statistics([ModelStats(self.serving.name, VERSION, 0, count, count, stats)])

    def example(self) -> Inference:
        """Return a request of one row that the model takes."""
        values: dict[FeatureType, Any] = {"BOOL": True, "INT64": 1, "FP64": 0.5, "BYTES": "text"}
        inputs = []
        for name, kind in self.serving.features.items():
            size = self.vectors.get(name, 1)
            shape = [1, size] if name in self.vectors else [1]
            inputs.append(RemoteTensor(name, shape, kind, [values[kind]] * size))
        if self.dimension:
            size = self.dimension
            inputs.append(RemoteTensor(CONTEXT, [1, size], "FP64", [0.5] * size))
        return Inference(inputs, parameters={SLOT: 1} if self.serving.slots == "given" else {})


def _check_width(tensor: RemoteTensor, width: int) -> None:
    if len(tensor.shape) != 2 or tensor.shape[1] != width:
        raise invalid(f"input {tensor.name!r} has shape {tensor.shape}; expected [rows, {width}]")


def _matrix(tensor: RemoteTensor, parts: Parts, width: int) -> np.ndarray:
    _check_width(tensor, width)
    return np.asarray(_values(tensor, parts, "FP64"), np.float64).reshape(-1, width)


def halves(call: HttpRequest, limits: Limits) -> tuple[bytes, memoryview | None]:
    """Return the JSON of a body, and the bytes after it; None for a body that is all JSON."""
    if is_all_json(call.headers):
        return call.body, None
    if content_type(call.headers) not in JSON_KINDS:
        raise HttpProblem(415, "media_type", f"send {JSON}, or {BINARY} with {LENGTH}")
    text = call.headers.get(LENGTH.lower(), "")
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) > len(call.body):
        raise broken(f"{LENGTH} must say how many bytes of the body are JSON")
    size = int(text)
    if size > limits.json_kib * KIB:
        raise HttpProblem(413, "too_large", f"the JSON may have {limits.json_kib} KiB")
    return call.body[:size], memoryview(call.body)[size:]


def feedback(body: bytes, *, most: int) -> Feedback:
    """Return up to `most` true labels."""
    request: Feedback = _typed(_parsed(body), Feedback)
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
    if request.rows is not None:
        if not request.rows:
            raise invalid("there are no rows")
        check_count(len(request.rows), most)
        if len(request.rows) != len(truths):
            raise invalid(f"there are {len(request.rows)} rows and {len(truths)} labels")
    return request


def wanted_of(request: Inference) -> Sequence[Wanted]:
    """Return the outputs that a client wants, in order."""
    return USUAL if request.outputs is None else request.outputs


def inference(body: bytes, tail: bytes | memoryview = b"") -> tuple[Inference, str]:
    """Return a request, and the digest of what it asks; `tail` is what follows its JSON."""
    raw = _parsed(body)
    request: Inference = _typed(raw, Inference)
    _is_said(request.parameters, ALL_BINARY)
    for wanted in request.outputs or ():
        _is_said(wanted.parameters, IN_BYTES)
    try:
        digest = hashlib.sha256(_SORTED.encode([raw["inputs"], slot_of(request)]))
    except OverflowError:
        raise invalid("inputs hold a whole number that is too large") from None
    digest.update(tail)
    return request, digest.hexdigest()


def slot_of(request: Inference) -> Any:
    """Return the parameter `slot` of a request, unchecked; None if it has none."""
    return (request.parameters or {}).get(SLOT)


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
    for wanted in wanted_of(request):
        is_binary = _is_said(wanted.parameters, IN_BYTES, is_usual)
        output, body = output_of(wanted.name, columns[wanted.name], is_binary=is_binary)
        outputs.append(output)
        bodies.append(body)
        has_binary |= is_binary
    head = msgspec.json.encode(InferenceResponse(model, id, outputs, dict(parameters)))
    if not has_binary:
        return HttpResponse(body=head)
    return HttpResponse(body=head + b"".join(bodies), kind=BINARY, headers={LENGTH: str(len(head))})


def _is_said(parameters: Parameters, name: str, usual: bool = False) -> bool:
    value = (parameters or {}).get(name)
    if value is None:
        return usual
    if not isinstance(value, bool):
        raise invalid(f"parameter {name} must be true or false")
    return value


def _parsed(body: bytes) -> Any:
    """Return the JSON of a body; no key may stand twice, and numbers must be finite."""
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
            count += sum([_pairs(item) for item in inner if type(item) is dict])
    return count


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key in an object")
    return members


_SORTED = msgspec.json.Encoder(order="sorted")


def _typed(raw: Any, kind: type[Any]) -> Any:
    """Return a message whose id, if any, can be printed."""
    try:
        message = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        hint = f"; known: {', '.join(OUTPUTS)}" if "$.outputs" in str(error) else ""
        raise invalid(f"{error}{hint}") from None
    if not (message.id or "").isprintable():
        raise invalid("id holds a character that cannot be printed")
    return message
