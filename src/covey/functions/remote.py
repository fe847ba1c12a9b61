"""A remote model as a function, called by the Open Inference Protocol over HTTP."""

import http.client
import ipaddress
import math
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec
import numpy as np
from msgspec import Meta

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
    """Return the code and the sentence of a refusal, "" for what is missing or not printable."""
    try:
        found = msgspec.json.decode(body, type=_Received)
    except (ValueError, RecursionError):
        return "", ""
    is_code = found.code.isidentifier() and found.code.isascii() and len(found.code) <= MOST_CODE
    sentence = (found.detail or str(found.error))[:MOST_SENTENCE]
    printable = "".join(one if one.isprintable() else " " for one in sentence)
    return found.code if is_code else "", printable


MOST_BYTES = 64 * 2**20  # of a response


class HttpClient(NamedTuple):
    """A base URL with timeout, token and TLS settings."""

    url: str
    timeout_s: float
    token: str | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def at(
        cls, url: str, *, timeout_s: float, token: str | None = None, authority: Path | None = None
    ) -> "HttpClient":
        """Return the client of a URL; `authority` is a file of certificates to trust.

        Raises `ConfigError` if the URL, the token or the file is not valid, or if the token would
        be sent unencrypted to another machine.
        """
        parts = checked(url)
        if token is not None:
            _check_token(token, parts)
        tls = _trusting(authority) if parts.scheme == "https" else None
        return cls(url.rstrip("/"), timeout_s, token, tls)

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of the response to a request for `path` below the URL.

        Raises `PeerError` if there is none in time, or if it is too long.
        """
        end = time.monotonic() + self.timeout_s
        connection = self._connection()
        try:
            connection.connect()
            with _cut_at(end, connection.sock):
                response = self._exchange(connection, method, path, body)
            if time.monotonic() >= end:
                raise TimeoutError  # a truncated response may look complete
            return response
        except (OSError, http.client.HTTPException, ValueError) as error:
            is_late = time.monotonic() >= end or isinstance(error, TimeoutError)
            late = f"no complete response within {self.timeout_s:g} s"
            raise PeerError(f"{self.url}: {late if is_late else _reason(error)}") from error
        finally:
            connection.close()

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection.request(method, urlsplit(self.url).path + path, body, headers)
        response = connection.getresponse()
        content = response.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"the response has more than {MOST_BYTES} bytes")
        if response.length:
            raise http.client.IncompleteRead(content, response.length)
        return response.status, content

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host, port, timeout_s = parts.hostname or "", parts.port, self.timeout_s
        if self.tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self.tls)


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
    if parts.scheme == "http" and not _is_this_machine(parts.hostname or ""):
        raise ConfigError("the token would be sent unencrypted; use https")


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _trusting(authority: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:  # includes SSLError
        reason = "no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"cannot read certificates from {authority}: {reason}") from None


@contextmanager
def _cut_at(end: float, sock: socket.socket) -> Iterator[None]:
    """Close the connection at the deadline: single bytes reset the socket's own timeout."""

    def cut() -> None:
        with suppress(OSError):  # it may be closed already
            # The base method: that of a TLS socket also frees objects that the reader uses.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, end - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"certificate not trusted ({error.verify_message}); give the CA file (ca, --ca) and a "
            "host name of the certificate"
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"no response: {reason}"


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
    version: str = ""


class RemoteTensor(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
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


class RemoteModel(NamedTuple):
    """A remote model."""

    client: HttpClient
    table: Remote

    def predict(self, instances: Any) -> list[Any]:
        """Return the labels of the instances, with one request."""
        if len(instances) == 0:
            return []
        columns = self.table.columns
        width = len(columns) if columns else None
        rows = numbers(instances, columns, width=width, kind=NUMBERS[self.table.datatype])
        status, content = self.client.send("POST", "/infer", self._request(rows))
        if status != 200:
            message = read_refusal(content)[1]
            reason = f"{status}: {message}" if message else f"{status}"
            raise DataError(f"{self.client.url} answered {reason}")
        try:
            answer = msgspec.json.decode(content, type=Outputs)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"{self.client.url} returned an invalid response: {error}") from None
        return self._labels(answer, len(rows))

    def _request(self, rows: np.ndarray) -> bytes:
        shape, values = list(rows.shape), rows.ravel().tolist()
        tensor = RemoteTensor(self.table.input, shape, self.table.datatype, values)
        output = self.table.output
        wanted = {} if output is None else {"outputs": [{"name": output}]}
        return msgspec.json.encode({"inputs": [tensor], **wanted})

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
    if not 0 < table.timeout_s < math.inf:
        raise ConfigError(f"{where}: timeout-s is {table.timeout_s}; it must be above 0 and finite")
    variable = table.token_variable
    token = None if variable is None else os.environ.get(variable)
    if variable is not None and not token:
        raise ConfigError(
            f"{where}: the environment variable {variable} is empty; set it, or remove "
            "token-variable"
        )
    authority = None if table.ca is None else folder / table.ca
    try:
        client = HttpClient.at(
            table.url, timeout_s=table.timeout_s, token=token, authority=authority
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return RemoteModel(client, table)


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
