"""One site of the example: its files, its process, and a client of it that does not give up."""

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from covey.server import keys, tokens

HERE = Path(__file__).parent
CLIENT = "stream"  # the name of its token
PRICE = 0.05
WAIT_S = 30.0  # for one answer
MOST_S = 600.0  # for any one thing to happen, also on a machine that is busy
SITE = """\
[node]
name = "{name}"
features = {{ service = "FP64", rate = "FP64", ports = "FP64", volume = "FP64", payload = "FP64" }}
store = "{name}.store"
address = "127.0.0.1:{port}"
tokens = "tokens.json"
certificate = "{name}.crt"
key = "{name}.key"
tls = true
peer-address = "127.0.0.1:{peer_port}"

[data]
context = ["service"]

[[learner]]
name = "{name}"
functions = ["{sign}", "mixed"]
peers = {{ {peers} }}

[[function]]
name = "{sign}"
kind = "python"
entry = "traffic:Above"
options = {{ sign = "{sign}" }}

[[function]]
name = "mixed"
kind = "python"
entry = "traffic:mixed"
"""
PEER = """
[[peer]]
name = "{name}"
key = "{key}"
url = "https://127.0.0.1:{port}"
share = "data"
may-ask = true
functions = 2
"""


class Site:
    """A site as an operator sees it: a folder, and a process that can be killed and started."""

    def __init__(self, name: str, sign: str, root: Path, ports: Sequence[int]) -> None:
        """`ports` are those for clients and for peers."""
        self.name = name
        self.sign = sign
        self.folder = root / name
        self.store = self.folder / f"{name}.store"
        self.log = self.folder / f"{name}.log"
        self.port, self.peer_port = ports
        card = keys.new(name, hosts=["127.0.0.1"], folder=self.folder)
        self.key = card.key
        scopes = ["infer", "feedback", "read"]
        self.token, _ = tokens.new(self.folder / "tokens.json", CLIENT, scopes=scopes)
        self.is_up = threading.Event()

    def write(self, others: "list[Site]") -> None:
        """Write the file of the site."""
        text = SITE.format(
            name=self.name,
            sign=self.sign,
            port=self.port,
            peer_port=self.peer_port,
            peers=", ".join(f"{one.name} = {PRICE}" for one in others),
        )
        tables = [PEER.format(name=one.name, key=one.key, port=one.peer_port) for one in others]
        (self.folder / "site.toml").write_text(text + "".join(tables))

    def start(self) -> None:
        """Start the process, and return without waiting for it."""
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "covey", "serve", str(self.folder / "site.toml")],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": _paths()},
            )

    def wait_until_up(self) -> None:
        """Return when the site answers."""
        client = Client(self)
        while not client.is_ready():
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} did not start: {self.log.read_text()}")
            time.sleep(0.05)  # a process that starts sends no event
        client.close()
        self.is_up.set()

    def kill(self) -> None:
        """Have the process end at once, wherever it is."""
        self.is_up.clear()
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Tell the process to stop, and wait until it has."""
        if self._process.poll() is None:
            self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.communicate(timeout=WAIT_S)


class Client:
    """A client of one site. What was not answered is sent again: ids make that safe."""

    def __init__(self, site: Site) -> None:
        self._site = site
        context = ssl.create_default_context(cafile=site.folder / f"{site.name}.crt")
        self._way = http.client.HTTPSConnection(
            "127.0.0.1", site.port, timeout=WAIT_S, context=context
        )

    def infer(self, id_: str, record: dict[str, float]) -> tuple[str, str]:
        """Return the label of a flow, and the arm that gave it."""
        inputs = [
            {"name": name, "shape": [1], "datatype": "FP64", "data": [value]}
            for name, value in record.items()
        ]
        response = self._insist("POST", "/infer", {"id": id_, "inputs": inputs})[1]
        return response["outputs"][0]["data"][0], response["parameters"]["arm"]

    def label(self, id_: str, truth: str) -> bool:
        """Send the true label of a flow; return whether the site did not have it before."""
        status, _ = self._insist("POST", "/feedback", {"id": id_, "truth": truth})
        return bool(status == 202)

    def state(self) -> Any:
        """Return how the site stands."""
        return self._insist("GET", "/state")[1]

    def is_ready(self) -> bool:
        """Say whether the site answers."""
        try:
            return self._send("GET", "/ready", None)[0] == 200
        except (OSError, http.client.HTTPException):
            self.close()
            return False

    def close(self) -> None:
        """Close the connection."""
        self._way.close()

    def _insist(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        while True:
            try:
                status, response = self._send(method, path, body)
            except (OSError, http.client.HTTPException):
                self.close()
                # It is down until the others have done their part, however long they take.
                if not self._site.is_up.wait(MOST_S):
                    raise
                continue
            if status >= 300:
                raise RuntimeError(f"{self._site.name}: {status} {response}")
            return status, response

    def _send(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self._site.token}",
        }
        data = None if body is None else json.dumps(body)
        self._way.request(method, f"/v2/models/{self._site.name}{path}", data, headers)
        answer = self._way.getresponse()
        return answer.status, json.loads(answer.read())


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback, and that no outgoing call takes meanwhile."""
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = secrets.choice(range(10_000, 30_000))
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
        return ports


def _paths() -> str:
    """Return where the process finds the rules of this example, and covey."""
    return os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
