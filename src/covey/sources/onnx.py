"""`kind = "onnx"`: a model in a file, run by onnxruntime."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from covey.errors import ConfigError, DataError, MissingExtra
from covey.sources.pinned import content_of
from covey.sources.rows import Columns, numbers, winners
from covey.sources.tables import Kind, Named, Scalar

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


class Model(NamedTuple):
    """A loaded model."""

    session: Any
    input: str
    output: str
    kind: Any  # of its numbers
    width: int | None
    takes_one: bool  # its input shape has a single row
    columns: Columns
    classes: list[Scalar] | None

    def predict(self, instances: Any) -> list[Any]:
        """Return the labels of the instances."""
        if len(instances) == 0:
            return []
        rows = numbers(instances, self.columns, width=self.width, kind=self.kind)
        parts = rows[:, None, :] if self.takes_one else [rows]
        values = np.concatenate(
            [self.session.run([self.output], {self.input: part})[0] for part in parts]
        )
        if self.classes is not None:
            return winners(values, self.classes)
        if values.size != len(rows):
            raise DataError(
                f"output {self.output!r} of the model has {values.size} values for {len(rows)} "
                "rows; if they are scores, give classes"
            )
        return [*values.reshape(-1).tolist()]


def load(table: Onnx, folder: Path) -> Model:
    """Return the model in the file, which must not refer to other files."""
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
    return Model(
        session=session,
        input=port.name,
        output=output.name,
        kind=NUMBERS[port.type],
        width=widths[0] if isinstance(widths[0], int) else None,
        takes_one=rows == 1,
        columns=table.columns,
        classes=table.classes,
    )


def _opened(table: Onnx, folder: Path) -> Any:
    onnx, onnxruntime = _libraries()
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
    """Return the input or output that the table names, or the only one that fits."""
    name = getattr(table, what)
    named = [port for port in ports if name in (None, port.name)]
    fitting = [port for port in named if port.type in kinds]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(f"{port.name} ({port.type})" for port in ports)
    hint = "; scores need classes" if what == "output" and table.classes is None else ""
    value = "not named" if name is None else repr(name)
    raise ConfigError(
        f"function {table.name!r}: {what} is {value}, but {len(fitting)} of the model's {what}s "
        f"fit: {known}; name one{hint}"
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


def _libraries() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingExtra(
            "functions of kind onnx need onnx and onnxruntime; install them with "
            'pip install "covey[onnx]"'
        ) from None
    return onnx, onnxruntime


KIND = Kind(Onnx, load)
