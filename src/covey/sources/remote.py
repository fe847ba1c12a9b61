"""`kind = "remote"`: a model behind the Open Inference Protocol v2, called over HTTP in batches."""

import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from covey.calls import read_refusal
from covey.errors import ConfigError, DataError
from covey.sources.posting import HttpClient
from covey.sources.rows import Columns, numbers, winners
from covey.sources.tables import Kind, Named, Scalar

Datatype = Literal[
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BYTES",
]
Sent = Literal["FP64", "FP32", "INT64", "INT32"]
NUMBERS = {"FP64": np.float64, "FP32": np.float32, "INT64": np.int64, "INT32": np.int32}


class Remote(Named, frozen=True, kw_only=True, rename="kebab"):
    """A model's URL up to its name (or version), and its tensors."""

    url: str
    timeout_s: float = 5.0
    token_variable: str | None = None  # the environment variable that holds the bearer token
    ca: str | None = None  # file of the CA certificates to trust
    input: str = "input-0"
    datatype: Sent = "FP64"
    output: str | None = None
    columns: list[str] | None = None
    classes: list[Scalar] | None = None


class Tensor(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A named input of a model; `data` is flat or nested, row by row.

    Without `data`, `binary_data_size` in its parameters is the number of its bytes after the JSON.
    """

    name: str
    shape: list[Annotated[int, Meta(ge=0)]]
    datatype: Datatype
    data: list[Any] | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, Scalar] = {}


class Output(msgspec.Struct, omit_defaults=True):
    """A named output of a model; without `data`, in bytes after the JSON."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, Scalar] = {}


class Outputs(msgspec.Struct):
    """The used part of a model's response."""

    outputs: list[Output]


class Model(NamedTuple):
    """A remote model."""

    client: HttpClient
    input: str
    datatype: Sent
    output: str | None
    columns: Columns
    classes: list[Scalar] | None

    def predict(self, instances: Any) -> list[Any]:
        """Return the labels of the instances, with one request."""
        if len(instances) == 0:
            return []
        width = len(self.columns) if self.columns else None
        rows = numbers(instances, self.columns, width=width, kind=NUMBERS[self.datatype])
        status, content = self.client.send("POST", "/infer", self._request(rows))
        if status != 200:
            message = read_refusal(content)[1]
            reason = f"{status}: {message}" if message else f"{status}"
            raise DataError(f"{self.client.url} answered {reason}")
        return self._labels(_decoded(self.client.url, content), len(rows))

    def _request(self, rows: np.ndarray) -> bytes:
        tensor = Tensor(self.input, list(rows.shape), self.datatype, rows.ravel().tolist())
        wanted = {} if self.output is None else {"outputs": [{"name": self.output}]}
        return msgspec.json.encode({"inputs": [tensor], **wanted})

    def _labels(self, answer: Outputs, count: int) -> list[Any]:
        tensor = self._tensor(answer.outputs)
        values = _flat(tensor.data or [])
        if not tensor.shape or tensor.shape[0] != count or math.prod(tensor.shape) != len(values):
            raise DataError(
                f"{self.client.url} returned output {tensor.name!r} of shape {tensor.shape} with "
                f"{len(values)} values for {count} rows"
            )
        if self.classes is not None:
            return list(winners(_scores(tensor, values), self.classes))
        if len(values) != count:
            raise DataError(
                f"{self.client.url} returned output {tensor.name!r} of shape {tensor.shape} for "
                f"{count} rows; if these are scores, give classes"
            )
        return values

    def _tensor(self, outputs: list[Output]) -> Output:
        fitting = [output for output in outputs if self.output in (None, output.name)]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(output.name for output in outputs) or "none"
        raise DataError(
            f"{self.client.url} returned the outputs {names}; set output to one of them"
        )


def load(table: Remote, folder: Path) -> Model:
    """Return the model; the first request is sent with the first instance."""
    where = f"function {table.name!r}"
    if not 0 < table.timeout_s < math.inf:
        raise ConfigError(f"{where}: timeout-s is {table.timeout_s}; it must be above 0 and finite")
    try:
        client = HttpClient.at(
            table.url,
            timeout_s=table.timeout_s,
            token=_token(table),
            authority=None if table.ca is None else folder / table.ca,
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return Model(client, table.input, table.datatype, table.output, table.columns, table.classes)


def _token(table: Remote) -> str | None:
    if table.token_variable is None:
        return None
    token = os.environ.get(table.token_variable)
    if not token:
        raise ConfigError(
            f"the environment variable {table.token_variable} is empty; set it, or remove "
            "token-variable"
        )
    return token


def _decoded(url: str, content: bytes) -> Outputs:
    try:
        return msgspec.json.decode(content, type=Outputs)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{url} returned an invalid response: {error}") from None


def _flat(data: list[Any]) -> list[Any]:
    """Return the values of a tensor, which may be nested."""
    while data and all(isinstance(row, list) for row in data):
        data = [value for row in data for value in row]
    return data


def _scores(tensor: Output, values: list[Any]) -> np.ndarray:
    if not all(isinstance(value, int | float) for value in values):
        raise DataError(
            f"output {tensor.name!r} has values that are not numbers, but classes need scores"
        )
    return np.array(values, dtype=float).reshape(tensor.shape)


KIND = Kind(Remote, load)
