"""A remote model as a function, called by the Open Inference Protocol over HTTP."""

import http.client
import io
import ipaddress
import math
import os
import queue
import select
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec
import numpy as np
from msgspec import Meta

from covey.data.inputs import named, picked
from covey.errors import ConfigError, DataError, PeerError
from covey.functions.function import Named, Scalar
from covey.functions.model_files import numbers, winners

MOST_CODE, MOST_SENTENCE = 40, 200  # characters of a refusal that are read


class _Received(msgspec.Struct):
    """The fields of a refusal that a caller uses; other servers may send fewer, or more."""

    code: str = ""
    detail: str = ""
    error: Any = ""


def read_refusal(body: bytes) -> tuple[str, str]:
    try:
        refusal = msgspec.json.decode(body, type=_Received)
    except (ValueError, RecursionError):
        return "", ""
    is_code = (
        refusal.code.isidentifier() and refusal.code.isascii() and len(refusal.code) <= MOST_CODE
    )
    sentence = (refusal.detail or str(refusal.error))[:MOST_SENTENCE]
    printable = "".join(letter if letter.isprintable() else " " for letter in sentence)
    return refusal.code if is_code else "", printable


MOST_BYTES = 64 * 2**20  # of a response


class HttpClient:
    """A base URL with timeout, token and TLS settings; it keeps one connection open.

    Threads may share it: one that finds the connection in use opens another for its request.
    """

    def __init__(
        self, url: str, timeout_s: float, token: str | None = None, authority: Path | None = None
    ) -> None:
        """Trust the certificates of the file `authority`, or those of the system.

        Raises `ConfigError` if the URL, the token or the file is not valid, or if the token would
        be sent unencrypted to another machine.
        """
        self._kept: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue(maxsize=1)
        parts = checked(url)
        if token is not None:
            _check_token(token, parts)
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._token = token
        self._tls = _trusting(authority) if parts.scheme == "https" else None

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of the response to a request for `path` below the URL.

        A server may close a connection that it has kept; the request is then sent once more. Raises
        `PeerError` if there is no response in time, or if it is too long.
        """
        end = time.monotonic() + self._timeout_s
        try:
            kept = self._take()
            if kept is not None:
                with suppress(ConnectionResetError, BrokenPipeError):
                    return self._exchange(kept, end, method, path, body)
            return self._exchange(self._connect(end), end, method, path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            is_late = time.monotonic() >= end or isinstance(error, TimeoutError)
            late = f"no complete response within {self._timeout_s:g} s"
            raise PeerError(f"{self.url}: {late if is_late else _reason(error)}") from error

    def close(self) -> None:
        with suppress(queue.Empty):
            self._kept.get_nowait().close()

    def __del__(self) -> None:
        self.close()

    def _take(self) -> http.client.HTTPConnection | None:
        try:
            connection = self._kept.get_nowait()
        except queue.Empty:
            return None
        timed: Any = connection.sock
        if not timed.has_input():
            return connection
        connection.close()
        return None

    def _connect(self, end: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host, port, left_s = parts.hostname or "", parts.port, end - time.monotonic()
        connection = http.client.HTTPConnection(host, port, timeout=left_s)
        if self._tls is not None:
            connection = http.client.HTTPSConnection(host, port, timeout=left_s, context=self._tls)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        connection.sock = _TimedSocket(connection.sock)
        return connection

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        end: float,
        method: str,
        path: str,
        body: bytes | None,
    ) -> tuple[int, bytes]:
        """Return status and body of a response; keep the connection if both sides can."""
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        timed: Any = connection.sock
        timed.end = end
        try:
            connection.request(method, urlsplit(self.url).path + path, body, headers)
            response = connection.getresponse()
            content = response.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ValueError(f"the response has more than {MOST_BYTES} bytes")
            if response.length:
                raise http.client.IncompleteRead(content, response.length)
            if response.isclosed() and not response.will_close:
                self._kept.put_nowait(connection)
                return response.status, content
        except queue.Full:
            pass  # another thread was faster; one is enough
        except BaseException:
            connection.close()
            raise
        connection.close()
        return response.status, content


class _TimedSocket:
    """A socket of `http.client` with one deadline: single bytes reset the socket's own timeout."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.end = math.inf

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.in_time().send(rest) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self))

    def close(self) -> None:
        self.sock.close()

    def in_time(self) -> socket.socket:
        left_s = self.end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.sock.settimeout(left_s)
        return self.sock

    def has_input(self) -> bool:
        """Return whether something arrived, which between requests is the end of a connection."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))


class _TimedReader(io.RawIOBase):
    """The bytes that a socket receives before its deadline."""

    def __init__(self, timed: _TimedSocket) -> None:
        self._timed = timed
        self._file = timed.sock.makefile("rb", buffering=0)  # keeps the socket open until closed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._timed.in_time()
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def checked(url: str) -> SplitResult:
    """Return the parts of a URL; raise `ConfigError` if it is invalid or holds a password."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not url.isprintable() or set(url) & set(" ?#"):
        raise ConfigError(f"url is {url!r}; write http://host:port/... or https://host/...")
    if "@" in parts.netloc:
        raise ConfigError("the url contains a user name or a password; give a token instead")
    return parts


def _check_token(token: str, parts: SplitResult) -> None:
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError("the token is not one line of printable ASCII characters")
    if not is_safe(parts):
        raise ConfigError("the token would be sent unencrypted; use https")


def is_safe(parts: SplitResult) -> bool:
    """Return whether nobody can read what is sent to a URL: it is encrypted, or stays here."""
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _trusting(authority: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:  # includes SSLError
        reason = "no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"cannot read certificates from {authority}: {reason}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"certificate not trusted ({error.verify_message}); give the CA file (ca, --ca) and a "
            "host name of the certificate"
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"no response: {reason}"


Whole = Literal["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
Datatype = Literal["BOOL", Whole, "FP16", "FP32", "FP64", "BYTES"]
Parameters = dict[str, Any] | None  # clients and servers send null, and nested ones
NUMBERS = {
    "BOOL": np.bool_,
    **{
        f"{sign}INT{bits}": np.dtype(f"{sign}int{bits}".lower())
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}


class RemoteInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor of a request: the values of some columns, by default of the one with its name."""

    name: str
    datatype: Datatype = "FP64"
    columns: list[str] | None = None


class Remote(Named, frozen=True, kw_only=True, rename="kebab"):
    """A model's URL up to its name (or version), and its tensors."""

    url: str
    timeout_s: Annotated[float, Meta(gt=0, le=1e9)] = 5.0
    token_variable: str | None = None  # the environment variable that holds the bearer token
    ca: str | None = None  # file of the CA certificates to trust
    input: str | None = None  # of a single tensor; "input-0"
    datatype: Datatype | None = None  # of a single tensor; FP64
    inputs: list[RemoteInput] | None = None  # several tensors
    output: str | None = None
    columns: list[str] | None = None
    classes: list[Scalar] | None = None
    version: str = ""


class RemoteTensor(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A named input of a model; `data` is flat or nested, row by row.

    Without `data`, `binary_data_size` in its parameters is the number of its bytes after the JSON.
    """

    name: str
    shape: list[Annotated[int, Meta(ge=0)]]
    datatype: Datatype
    data: list[Any] | msgspec.UnsetType = msgspec.UNSET
    parameters: Parameters = None


class Output(msgspec.Struct, omit_defaults=True):
    """A named output of a model; without `data`, in bytes after the JSON."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | msgspec.UnsetType = msgspec.UNSET
    parameters: Parameters = None


class Outputs(msgspec.Struct):
    """The used part of a model's response."""

    outputs: list[Output]


class RemoteModel(NamedTuple):
    client: HttpClient
    table: Remote

    def predict(self, instances: Any) -> list[Any]:
        if len(instances) == 0:
            return []
        status, content = self.client.send("POST", "/infer", self._request(instances))
        if status != 200:
            message = read_refusal(content)[1]
            reason = f"{status}: {message}" if message else f"{status}"
            raise DataError(f"{self.client.url} answered {reason}")
        try:
            answer = msgspec.json.decode(content, type=Outputs)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"{self.client.url} returned an invalid response: {error}") from None
        return self._labels(answer, len(instances))

    def _request(self, instances: Any) -> bytes:
        table = self.table
        if table.inputs is None:
            name, datatype = table.input or "input-0", table.datatype or "FP64"
            tensors = [_tensor_of(instances, name, datatype, table.columns)]
        else:
            records = [named(instance, table.columns) for instance in instances]
            tensors = [
                _tensor_of(records, tensor.name, tensor.datatype, tensor.columns or [tensor.name])
                for tensor in table.inputs
            ]
        wanted = {} if table.output is None else {"outputs": [{"name": table.output}]}
        return msgspec.json.encode({"inputs": tensors, **wanted})

    def _labels(self, answer: Outputs, count: int) -> list[Any]:
        tensor = self._tensor(answer.outputs)
        values = _flat(tensor.data or [])
        if not tensor.shape or tensor.shape[0] != count or math.prod(tensor.shape) != len(values):
            raise DataError(
                f"{self.client.url} returned output {tensor.name!r} of shape {tensor.shape} with "
                f"{len(values)} values for {count} rows"
            )
        if self.table.classes is not None:
            return list(winners(_scores(tensor, values), self.table.classes))
        if len(values) != count:
            raise DataError(
                f"{self.client.url} returned output {tensor.name!r} of shape {tensor.shape} for "
                f"{count} rows; if these are scores, give classes"
            )
        return values

    def _tensor(self, outputs: list[Output]) -> Output:
        wanted = self.table.output
        fitting = [output for output in outputs if wanted in (None, output.name)]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(output.name for output in outputs) or "none"
        raise DataError(
            f"{self.client.url} returned the outputs {names}; set output to one of them"
        )


def load_remote(table: Remote, folder: Path) -> RemoteModel:
    """Return the model; the first request is sent with the first instance."""
    where = f"function {table.name!r}"
    if table.inputs is not None and (table.input or table.datatype or not table.inputs):
        raise ConfigError(
            f"{where}: give inputs for several tensors, or input and datatype for one, not both"
        )
    variable = table.token_variable
    token = None if variable is None else os.environ.get(variable)
    if variable is not None and not token:
        raise ConfigError(
            f"{where}: the environment variable {variable} is empty; set it, or remove "
            "token-variable"
        )
    authority = None if table.ca is None else folder / table.ca
    try:
        return RemoteModel(HttpClient(table.url, table.timeout_s, token, authority), table)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _tensor_of(
    instances: Any, name: str, datatype: Datatype, columns: list[str] | None
) -> RemoteTensor:
    """Return rows as one tensor; raise `DataError` for values that it cannot hold."""
    width = len(columns) if columns else None
    if datatype != "BYTES":
        rows = numbers(instances, columns, width=width, kind=NUMBERS[datatype])
        return RemoteTensor(name, list(rows.shape), datatype, rows.ravel().tolist())
    texts = [list(row) for row in picked(instances, columns)]
    width = len(texts[0]) if width is None else width
    for index, row in enumerate(texts):
        if len(row) != width:
            raise DataError(f"an instance has {len(row)} values, but the model takes {width}")
        for value in row:
            if not isinstance(value, str):
                raise DataError(f"row {index} has {value!r}, but the model takes text in {name!r}")
    flat = [str(value) for row in texts for value in row]
    return RemoteTensor(name, [len(texts), width], datatype, flat)


def _flat(data: list[Any]) -> list[Any]:
    while data and all(isinstance(row, list) for row in data):
        data = [value for row in data for value in row]
    return data


def _scores(tensor: Output, values: list[Any]) -> np.ndarray:
    if not all(isinstance(value, int | float) for value in values):
        raise DataError(
            f"output {tensor.name!r} has values that are not numbers, but classes need scores"
        )
    return np.array(values, dtype=float).reshape(tensor.shape)
