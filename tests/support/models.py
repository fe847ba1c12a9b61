"""Real models in real files and behind a real socket, for `[[function]]` tables."""

import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import skops.io
from skl2onnx import to_onnx
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from covey.functions.function import Function
from covey.functions.registry import functions_from

COLUMNS = ["bytes", "ports", "hosts", "age"]
Table = dict[str, Any]
Answer = tuple[int, bytes]


def data(classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rows, labels = make_classification(
        300, len(COLUMNS), n_informative=4, n_redundant=0, n_classes=classes, random_state=0
    )
    # What both 32 and 64 bits hold exactly, so that ONNX and scikit-learn see the same.
    return rows.astype(np.float32).astype(np.float64), np.array(["ham", "spam", "scan"])[labels]


ROWS, LABELS = data()


def trained() -> LogisticRegression:
    return LogisticRegression(max_iter=1_000).fit(ROWS, LABELS)


def pinned(folder: Path, name: str, content: bytes) -> Table:
    (folder / name).write_bytes(content)
    return {"name": "f", "file": name, "sha256": hashlib.sha256(content).hexdigest()}


def skops_table(folder: Path, model: Any, **more: Any) -> Table:
    return {**pinned(folder, "f.skops", skops.io.dumps(model)), "kind": "skops", **more}


def onnx_bytes(model: Any, kind: Any = np.float32, **options: Any) -> bytes:
    made = to_onnx(model, ROWS[:1].astype(kind), options={id(model): options})
    content: bytes = made.SerializeToString()
    return content


def onnx_table(folder: Path, model: Any, **more: Any) -> Table:
    content = onnx_bytes(model, zipmap=False)
    return {**pinned(folder, "f.onnx", content), "kind": "onnx", **more}


def loaded(table: Table, folder: Path) -> Function:
    (function,) = functions_from([table], owner="north", folder=folder).values()
    return function


def mapping(row: Any) -> dict[str, float]:
    return dict(zip(COLUMNS, map(float, row), strict=True))


class Majority:
    """Says the label it was taught most often, or what it was made with."""

    def __init__(self, first: str = "ham") -> None:
        self.counts = {first: 0}

    def predict(self, instance: object) -> str:
        return max(self.counts, key=lambda label: self.counts[label])

    def learn(self, instance: object, label: str) -> None:
        if label == "unheard of":
            raise ValueError("no such label")
        self.counts[label] = self.counts.get(label, 0) + 1


def by_sign(row: Any) -> str:
    return "spam" if row[0] > 0 else "ham"


def broken(**options: Any) -> None:
    raise OSError("no licence")


def as_protocol(predict: Callable[[np.ndarray], Any]) -> Callable[[Table], Answer]:
    """Answer requests of the Open Inference Protocol by what `predict` says of their rows."""

    def answer(request: Table) -> Answer:
        (tensor,) = request["body"]["inputs"]
        said = np.asarray(predict(np.array(tensor["data"]).reshape(tensor["shape"])))
        kind = {"f": "FP64", "i": "INT64"}.get(said.dtype.kind, "BYTES")
        output = {"name": "predict", "shape": said.shape, "datatype": kind, "data": said.tolist()}
        return 200, json.dumps({"model_name": "f", "outputs": [output]}).encode()

    return answer


@contextmanager
def serving(
    answer: Callable[[Table], Answer], tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[Table]]]:
    """Serve at the address that is given, and list the requests that came."""
    seen: list[Table] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told = {"path": self.path, "headers": dict(self.headers), "body": body}
            seen.append({**told, "port": self.client_address[1]})
            status, content = answer(seen[-1])
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(BrokenPipeError):  # who asked may not wait for all of it
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_port}/v2/models/f", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
