"""Malformed requests, as bytes, and a site in a process to send them to."""

import hashlib
import json
import random
import re
import socket
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from covey.store.store import Store
from support.served import FEEDBACK, INFER, INPUTS, SITE, infer

# A site whose connections have half a second for everything.
SERVE = """
import sys
from covey import cli
from covey.server import connection
for name in ("HANDSHAKE_S", "HEAD_S", "BODY_S", "IDLE_S"):
    setattr(connection, name, 0.5)
sys.exit(cli.main(["serve", sys.argv[1]]))
"""
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"


def post(body: bytes, *, path: str = INFER, more: bytes = b"", length: Any = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\n".encode() + HOST + JSON + more
    return head + f"Content-Length: {size}\r\n\r\n".encode() + body


def chunked(*chunks: bytes, more: bytes = b"") -> bytes:
    head = f"POST {INFER} HTTP/1.1\r\n".encode() + HOST + JSON + more
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)


def sent(value: Any) -> bytes:
    return post(json.dumps(value).encode())


def with_data(text: str) -> bytes:
    return post(json.dumps(infer("x")).replace("[1.5]", f"[{text}]").encode())


def in_bytes(tail: bytes, *, size: int, length: Any = None, **fields: Any) -> bytes:
    """Return a request whose feature `size` comes in bytes after the JSON."""
    tensor = {"name": "size", "shape": [1], "datatype": "FP64", **fields}
    tensor["parameters"] = {"binary_data_size": size}
    head = json.dumps(infer("x", inputs=[tensor, *INPUTS[1:]])).encode()
    said = f"Inference-Header-Content-Length: {len(head) if length is None else length}\r\n"
    whole = post(head + tail, more=said.encode())
    return whole.replace(b"application/json", b"application/octet-stream", 1)


VALID = json.dumps(infer("x")).encode()
WIDE = {"name": "instances", "shape": [1, 10**6], "datatype": "FP64", "data": [0]}
# None of these is ever answered with 2xx.
CORPUS: dict[str, bytes] = {
    "nothing": b"",
    "NUL": b"\0" * 1_000,
    "no HTTP": b"nonsense\r\n\r\n",
    "HTTP/0.9": b"GET /v2\r\n\r\n",
    "HTTP/9.9": b"GET /nowhere HTTP/9.9\r\n" + HOST + b"\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS to a plain port": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "SSH": b"SSH-2.0-OpenSSH_9.0\r\n",
    "half a head": b"POST " + INFER.encode() + b" HTTP/1.1\r\nHost: loc",
    "a head with NUL": b"GET /v2 HTTP/1.1\r\nHost: a\0b\r\n\r\n",
    "a folded header": b"GET /nowhere HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
    "a header without a colon": b"GET /v2 HTTP/1.1\r\nHost localhost\r\n\r\n",
    "a space before the colon": b"GET /v2 HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "another host": b"GET /v2 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "two hosts": b"GET /nowhere HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n",
    "a huge head": b"GET /v2 HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
    "many headers": b"GET /v2 HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 10_000 + b"\r\n",
    "a long path": b"GET /" + b"y" * 100_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "dots": b"GET /v2/../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n",
    "encoded dots": b"GET /v2/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n",
    "broken percents": b"GET /%zz%0 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path that is no text": b"GET /%ff%fe HTTP/1.1\r\n" + HOST + b"\r\n",
    "a line break in the path": b"GET /a%0d%0aX:%20y HTTP/1.1\r\n" + HOST + b"\r\n",
    "a URL for a path": b"GET http://evil.example/v2x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "an unknown method": b"BREW /v2 HTTP/1.1\r\n" + HOST + b"\r\n",
    "DELETE": f"DELETE {INFER} HTTP/1.1\r\n".encode() + HOST + b"\r\n",
    "a websocket": f"GET {INFER} HTTP/1.1\r\n".encode()
    + HOST
    + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "a length that is no number": post(b"{}", length="x"),
    "a negative length": post(b"{}", length=-1),
    "a gigabyte": post(b"{", length=10**9),
    "a length beyond all": post(b"{", length=10**40),
    "two lengths": post(VALID, more=b"Content-Length: 3\r\n"),
    "length and chunks": chunked(b"0\r\n\r\n", more=b"Content-Length: 5\r\n"),
    "chunks twice": chunked(b"0\r\n\r\n", more=b"Transfer-Encoding: chunked\r\n"),
    "another coding": post(VALID, more=b"Transfer-Encoding: gzip\r\n"),
    "a chunk of nonsense": chunked(b"zz\r\n"),
    "a negative chunk": chunked(b"-5\r\nhello\r\n0\r\n\r\n"),
    "an endless chunk size": chunked(b"f" * 10_000 + b"\r\n"),
    "chunks that stop": chunked(b"5\r\nhel"),
    "chunks beyond the limit": chunked(*[b"400\r\n" + b" " * 1_024 + b"\r\n"] * 40),
    "a body that stops": post(VALID[:-10], length=len(VALID)),
    "compressed": post(b"\x1f\x8b" + bytes(100), more=b"Content-Encoding: gzip\r\n"),
    "a compressed hundred megabytes": post(
        zlib.compress(bytes(10**8)), more=b"Content-Encoding: deflate\r\n"
    ),
    "compressed twice": post(VALID, more=b"Content-Encoding: gzip, gzip\r\n"),
    "another protocol after it": post(VALID, more=b"Connection: upgrade\r\nUpgrade: h2c\r\n"),
    "a page of another site": post(VALID, more=b"Origin: https://evil.example\r\n"),
    "endless lines after the body": chunked(b"0\r\nX: " + b"y" * 10**6),
    "requests ahead": b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000,
    "waits for a word, then silence": post(
        b"", more=b"Expect: 100-continue\r\n", length=len(VALID)
    ),
    "another type": post(VALID).replace(b"application/json", b"text/html"),
    "a form": post(b"id=a&truth=0", path=FEEDBACK),
    "empty": post(b""),
    "NaN": with_data("NaN"),
    "Infinity": with_data("-Infinity"),
    "1e400": with_data("1e400"),
    "2**53 + 1": with_data(str(2**53 + 1)),
    "4,301 digits": with_data("9" * 4_301),
    "hexadecimal": with_data("0x10"),
    "an exponent of a million digits": with_data("1e" + "9" * 10_000),
    "true for 1": with_data("true"),
    "text for 1": with_data('"1"'),
    "a lone surrogate": post(b'{"id": "\\ud800", "inputs": []}'),
    "a byte order mark": post(b"\xef\xbb\xbf" + VALID),
    "UTF-16": post(VALID.decode().encode("utf-16")),
    "not UTF-8": post(b'{"id": "\xff"}'),
    "NUL in the id": sent(infer("a\0b")),
    "a key twice": post(b'{"id": "a", "id": "b", "inputs": []}'),
    "100,000 lists": post(b'{"inputs": ' + b"[" * 10_000),
    "100,000 objects": post(b'{"a":' * 3_000),
    "an unknown field": sent(infer("a", inputs=[{**INPUTS[0], "__proto__": {}}])),
    "a million features": sent(infer("a", inputs=[WIDE])),
    "no features": sent(infer("a", inputs=[])),
    "a context just outside": with_data("1.5").replace(b"[0.3]", b"[1.0000000000000002]"),
    "a context just below": with_data("1.5").replace(b"[0.3]", b"[-5e-324]"),
    "a huge shape": sent(infer("a", inputs=[{**INPUTS[0], "shape": [10**18, 10**18]}])),
    "feedback for an unknown id": post(b'{"id": "never", "truth": 0}', path=FEEDBACK),
    "feedback with a list": post(b'{"id": "kept", "truth": [0]}', path=FEEDBACK),
    "feedback with NaN": post(b'{"id": "kept", "truth": NaN}', path=FEEDBACK),
    "feedback that contradicts": post(b'{"id": "kept", "truth": "other"}', path=FEEDBACK),
    "feedback for a client": post(
        b'{"id": "kept", "truth": 0, "parameters": {"client": "\'; DROP TABLE tickets; --"}}',
        path=FEEDBACK,
    ),
    "rows beyond one row": post(b'{"id": "kept", "rows": [0, 1], "truth": [0, 0]}', path=FEEDBACK),
    "a row beyond one row": post(b'{"id": "kept:1", "truth": 0}', path=FEEDBACK),
    "an empty label": post(b'{"id": "kept", "truth": ""}', path=FEEDBACK),
    "rows without labels": post(b'{"id": "kept", "rows": [0], "truth": []}', path=FEEDBACK),
    "a row beyond all": post(b'{"id": "kept", "rows": [1e9], "truth": [0]}', path=FEEDBACK),
    "bytes too few": in_bytes(bytes(7), size=8),
    "bytes too many": in_bytes(bytes(9), size=8),
    "bytes for another shape": in_bytes(bytes(16), size=16),
    "bytes of no number": in_bytes(b"\xff" * 8, size=8),
    "bytes without end": in_bytes(bytes(8), size=10**18),
    "less than no bytes": in_bytes(bytes(8), size=-8),
    "bytes for a huge shape": in_bytes(bytes(8), size=8, shape=[10**18, 10**18]),
    "bytes and data": in_bytes(bytes(8), size=8, data=[1.0]),
    "JSON of no length": in_bytes(bytes(8), size=8, length="x"),
    "JSON beyond the body": in_bytes(bytes(8), size=8, length=10**6),
    "JSON of negative length": in_bytes(bytes(8), size=8, length=-1),
    "JSON cut short": in_bytes(bytes(8), size=8, length=20),
    "the page under another host": b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "the page for another site": b"GET / HTTP/1.1\r\n" + HOST + b"Origin: null\r\n\r\n",
    "a form to the page": post(b"<script>alert(1)</script>", path="/"),
    "a file beside the page's": b"GET /assets/%2e%2e/live.py HTTP/1.1\r\n" + HOST + b"\r\n",
    "a folder of the page": b"GET /assets/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a state with another query": b"GET /v2/models/north/state?cells=1e9 HTTP/1.1\r\n"
    + HOST
    + b"\r\n",
    "a state with many queries": b"GET /v2/models/north/state?%b HTTP/1.1\r\n%b\r\n"
    % (b"cells=1&" * 500 + b"x", HOST),
    "a state that is posted": post(b"{}", path="/v2/models/north/state"),
    "a token in the path": b"GET /nowhere?token=abc HTTP/1.1\r\n" + HOST + b"\r\n",
}


def mutated(seed: int, count: int) -> Iterator[bytes]:
    """Yield requests that were right once, each with some bytes changed."""
    chance = random.Random(seed)  # noqa: S311 - seeded
    marks = [b"\0", b"\r\n", b'"', b"[", b"}", b"\\", b"\xff", b"9" * 20, b"%", b":", b" ", b"-"]
    for k in range(count):
        body = json.dumps(infer(f"m{seed}-{k}")).encode()
        whole = bytearray(post(body) if k % 4 else post(b'{"id":"m","truth":1}', path=FEEDBACK))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(whole))
            match chance.randrange(4):
                case 0:
                    whole[at] = chance.randrange(256)
                case 1:
                    del whole[at : at + chance.randint(1, 20)]
                case 2:
                    whole[at:at] = chance.choice(marks)
                case _:
                    whole[at:at] = whole[at : at + chance.randint(1, 50)]
        yield bytes(whole)


class Site(NamedTuple):
    """A site that runs, and where."""

    process: "subprocess.Popen[str]"
    port: int

    def exchange(self, data: bytes) -> bytes:
        """Send bytes and return the first answer to them; nothing if there is none."""
        return self._send(data, is_enough=_has_answer)

    def linger(self, data: bytes) -> bytes:
        """Send bytes and return all that comes until the site closes the connection."""
        return self._send(data, is_enough=lambda answer: False)

    def exchange_all(self, many: Iterable[bytes]) -> list[bytes]:
        """Send each over a connection of its own, several at a time."""
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(self.exchange, many))

    def _send(self, data: bytes, *, is_enough: Callable[[bytes], bool]) -> bytes:
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as way:
            with suppress(ConnectionError):
                way.sendall(data)
            with suppress(ConnectionError):
                while not is_enough(answer) and (chunk := way.recv(65_536)):
                    answer += chunk
        return answer

    def memory_kib(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _has_answer(answer: bytes) -> bool:
    head, blank, body = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(blank and length and len(body) >= int(length[1]))


@contextmanager
def site(folder: Path, text: str = SITE) -> Iterator[Site]:
    """Serve a site in a process of its own."""
    (folder / "site.toml").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder / "site.toml")],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    url = process.stderr.readline().strip()
    try:
        assert url.startswith("http"), url
        yield Site(process, int(url.split(":")[2].partition("/")[0]))
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "Traceback" not in said


def statuses(answer: bytes) -> list[int]:
    """The statuses of all answers on a connection, but for `100 Continue`."""
    lines = [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.")]
    lines += [part for part in answer.split(b"}")[1:] if part.startswith(b"HTTP/1.")]
    return [int(line.split()[1]) for line in lines if line.split()[1] != b"100"]


def fingerprint(store: Path) -> str:
    """A hash of all that a store has, but for how often it was opened."""
    base = sqlite3.connect(store)
    lines = [line for line in base.iterdump() if 'INSERT INTO "site"' not in line]
    base.close()
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def counts(store: Path) -> tuple[int, int]:
    """How many rows a store has, and how many labels."""
    with closing(Store(store)) as opened:
        size = opened.size()
    return size["rows"], size["labels"]
