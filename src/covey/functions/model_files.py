"""Models from files with a pinned hash: skops and ONNX."""

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey.data.inputs import Columns, picked
from covey.errors import ConfigError, DataError, need_of, optional_module
from covey.functions.function import Named, Scalar, Taught


def content_of(table: "Skops | Onnx", folder: Path) -> bytes:
    """Return the hashed bytes, so that the file cannot be replaced between check and use.

    Raises `ConfigError` if the file is missing or has another hash.
    """
    path = folder / table.file
    where = f"function {table.name!r}"
    if len(table.sha256) != 64 or not set(table.sha256.lower()) <= set("0123456789abcdef"):
        raise ConfigError(
            f"{where}: sha256 is {table.sha256!r}; write the 64 digits that sha256sum prints for "
            f"{table.file}"
        )
    if path.exists() and not path.is_file():
        raise ConfigError(f"{where}: {path} is not a file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: cannot read {path}: {error.strerror}") from None
    digest = hashlib.sha256(content).hexdigest()
    if not hmac.compare_digest(digest, table.sha256.lower()):
        raise ConfigError(
            f"{where}: {path} has sha256 {digest}, but {table.sha256.lower()} is pinned; it was "
            "not loaded. If the change is intended, pin the new hash"
        )
    return content


def numbers(instances: Any, columns: Columns, *, width: int | None, kind: Any) -> np.ndarray:
    """Return the instances as an array of rows of `kind`.

    Raises `DataError` for another width, and for values that are not finite numbers of that kind.
    """
    rows = _table(picked(instances, columns))
    if width is not None and rows.shape[1] != width:
        raise DataError(f"an instance has {rows.shape[1]} values, but the model takes {width}")
    with np.errstate(over="ignore", invalid="ignore"):
        exact = rows.astype(kind)
    # A float may be rounded, an integer may not.
    is_lost = ~np.isfinite(exact) if exact.dtype.kind == "f" else exact != rows
    if is_lost.any():
        row, column = np.argwhere(is_lost)[0].tolist()
        name = columns[column] if columns else column
        raise DataError(
            f"row {row} has {rows[row, column]} in column {name!r}; the model needs finite numbers "
            f"of type {exact.dtype}"
        )
    return exact


def winners(scores: np.ndarray, classes: Sequence[Scalar]) -> list[Scalar]:
    """Return the class with the highest score in each row; ties: the first."""
    if scores.ndim != 2 or scores.shape[1] != len(classes):
        shape = " x ".join(map(str, scores.shape))
        raise DataError(
            f"the model returned scores of shape {shape} for {len(classes)} classes; it must "
            "return one per row and class"
        )
    is_bad = ~np.isfinite(scores).all(axis=1)
    if is_bad.any():
        row = int(np.flatnonzero(is_bad)[0])
        raise DataError(f"the model returned scores {scores[row].tolist()} for row {row}")
    return [classes[index] for index in scores.argmax(axis=1).tolist()]


def _table(rows: Any) -> np.ndarray:
    try:
        table = np.asarray(rows)
    except ValueError:
        raise DataError("rows of a batch must have one width") from None
    if table.ndim != 2:
        raise DataError(f"an instance has {table.ndim - 1} dimensions; give a row of numbers")
    if table.dtype.kind not in "fiub":
        values = (value for row in rows for value in row)
        value = next(value for value in values if np.asarray(value).dtype.kind not in "fiub")
        raise DataError(f"an instance has {value!r}, which is not a number")
    return table


class Skops(Taught, frozen=True, kw_only=True):
    """A model whose file lists its types; unknown types must be named in `trusted`."""

    file: str
    sha256: str
    trusted: list[str] = msgspec.field(default_factory=list)
    columns: list[str] | None = None
    learns: bool = False  # a pinned model is expected not to change


class SkopsModel:
    """A model that takes rows or mappings; a table says whether it learns."""

    def __init__(self, model: Any, columns: Columns) -> None:
        self.model = model
        self.columns = columns

    def predict(self, rows: Any) -> Any:
        return self.model.predict(picked(rows, self.columns)) if len(rows) else []

    @property
    def classes_(self) -> Any:
        return self.model.classes_

    def partial_fit(self, rows: Any, labels: Any, **more: Any) -> None:
        self.model.partial_fit(picked(rows, self.columns), labels, **more)


def load_skops(table: Skops, folder: Path) -> SkopsModel:
    missing = need_of("functions of kind skops", "scikit-learn and skops", extra="sklearn")
    optional_module("sklearn", missing=missing)
    skops = optional_module("skops.io", missing=missing)
    content = content_of(table, folder)
    where = f"function {table.name!r}"
    try:
        unknown = skops.get_untrusted_types(data=content)
        refused = sorted(set(unknown) - set(table.trusted))
        model = None if refused else skops.loads(content, trusted=table.trusted)
    except Exception as error:
        raise ConfigError(
            f"{where}: {table.file} cannot be read as a skops file: {type(error).__name__}: {error}"
        ) from error
    if refused:
        raise ConfigError(
            f"{where}: {table.file} contains types that are not trusted: {', '.join(refused)}; if "
            "you know them all, list them in trusted"
        )
    if not hasattr(model, "predict"):
        raise ConfigError(
            f"{where}: {table.file} contains a {type(model).__name__} without predict"
        )
    if table.learns and not hasattr(model, "partial_fit"):
        raise ConfigError(
            f"{where}: a {type(model).__name__} cannot learn, it has no partial_fit; remove learns"
        )
    return SkopsModel(model, table.columns)


NUMBERS = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}
LABELS = ("tensor(int64)", "tensor(int32)", "tensor(string)", "tensor(bool)")
SCORES = ("tensor(float16)", "tensor(float)", "tensor(double)")


class Onnx(Named, frozen=True, kw_only=True):
    """A model with one input of rows, and an output of labels, or of scores for `classes`."""

    file: str
    sha256: str
    input: str | None = None
    output: str | None = None
    columns: list[str] | None = None
    classes: list[Scalar] | None = None


class OnnxModel(NamedTuple):
    """A loaded model."""

    table: Onnx
    session: Any
    input: str
    output: str
    kind: Any  # of its numbers
    width: int | None
    takes_one: bool  # its input shape has a single row

    def predict(self, instances: Any) -> list[Any]:
        if len(instances) == 0:
            return []
        rows = numbers(instances, self.table.columns, width=self.width, kind=self.kind)
        parts = rows[:, None, :] if self.takes_one else [rows]
        values = np.concatenate(
            [self.session.run([self.output], {self.input: part})[0] for part in parts]
        )
        if self.table.classes is not None:
            return winners(values, self.table.classes)
        if values.size != len(rows):
            raise DataError(
                f"output {self.output!r} of the model has {values.size} values for {len(rows)} "
                "rows; if they are scores, give classes"
            )
        return [*values.reshape(-1).tolist()]


def load_onnx(table: Onnx, folder: Path) -> OnnxModel:
    session = _opened(table, folder)
    port = _chosen(table, "input", session.get_inputs(), NUMBERS)
    kinds = LABELS if table.classes is None else SCORES
    output = _chosen(table, "output", session.get_outputs(), kinds)
    rows, *widths = port.shape
    if len(widths) != 1 or (isinstance(rows, int) and rows != 1):
        raise ConfigError(
            f"function {table.name!r}: input {port.name!r} has shape {port.shape}; it must be "
            "rows x values, with one row or any number"
        )
    width = widths[0] if isinstance(widths[0], int) else None
    kind = NUMBERS[port.type]
    return OnnxModel(table, session, port.name, output.name, kind, width, takes_one=rows == 1)


def _opened(table: Onnx, folder: Path) -> Any:
    missing = need_of("functions of kind onnx", "onnx and onnxruntime", extra="onnx")
    onnx = optional_module("onnx", missing=missing)
    onnxruntime = optional_module("onnxruntime", missing=missing)
    content = content_of(table, folder)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised; do not print them, too
    try:
        # onnxruntime would read external data from the working directory.
        if not any(_outside(onnx.load_model_from_string(content))):
            return onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
    except Exception as error:
        raise ConfigError(
            f"function {table.name!r}: {table.file} cannot be read as an ONNX model: {error}"
        ) from error
    raise ConfigError(
        f"function {table.name!r}: {table.file} refers to other files, which are not pinned; save "
        "the model as one file"
    )


def _chosen(table: Onnx, what: str, ports: list[Any], kinds: Any) -> Any:
    name = getattr(table, what)
    named = [port for port in ports if name in (None, port.name)]
    fitting = [port for port in named if port.type in kinds]
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(f"{port.name} ({port.type})" for port in ports)
    hint = "; scores need classes" if what == "output" and table.classes is None else ""
    value = "not named" if name is None else repr(name)
    raise ConfigError(
        f"function {table.name!r}: {what} is {value}, but {len(fitting)} of the model's {what}s "
        f"fit: {listed}; name one{hint}"
    )


def _outside(message: Any) -> Iterator[bool]:
    """Yield True for every tensor below `message` whose data is in another file."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield bool(message.external_data) or message.data_location == message.EXTERNAL
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for child in [value] if hasattr(value, "ListFields") else value:
                yield from _outside(child)
