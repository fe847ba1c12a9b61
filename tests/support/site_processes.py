"""Sites that are served by processes of their own, with fresh keys, and clients of them."""

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from covey.server import keys
from covey.server.config import Identity, PeerConfig
from covey.server.peer_client import HttpsPeers, PeerClient
from support.ports import free_port

TESTS = Path(__file__).parents[1]
SRC = TESTS.parent / "src"
FOR_PEERS = re.compile(r"for peers: https://[\d.]+:\d+")
Inputs = list[dict[str, Any]]


def recorded(place: int) -> Callable[[list[int]], int]:
    """Return a function that finds its answer in the instance; sites find it by its name."""
    return itemgetter(place)


class Client:
    """A client of one site, over one connection."""

    def __init__(self, url: str, process: "subprocess.Popen[str]") -> None:
        self._process = process
        _, _, host, path = url.split("/", 3)
        self._model = f"/{path}"
        self._way = http.client.HTTPConnection(host, timeout=30)

    def infer(
        self, id_: str, inputs: Inputs, *, outputs: Inputs | None = None, **parameters: Any
    ) -> Any:
        body: dict[str, Any] = {"id": id_, "inputs": inputs, "parameters": parameters}
        if outputs is not None:
            body["outputs"] = outputs
        return self._send("POST", "/infer", body)

    def label(self, id_: str, truth: Any, cost: Any = None) -> Any:
        more = {} if cost is None else {"cost": cost}
        return self._send("POST", "/feedback", {"id": id_, "truth": truth, **more})

    def drain(self) -> None:
        """Return when peers have been told all labels."""
        while self.state()["owed"]:
            pass  # asking takes its time

    def reload(self) -> None:
        """Let the site read its file again; it does so while it serves."""
        self._process.send_signal(signal.SIGHUP)

    def state(self) -> Any:
        return self._send("GET", "/state")

    def close(self) -> None:
        self._way.close()

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body)
        self._way.request(method, self._model + path, data, {"Content-Type": "application/json"})
        answer = self._way.getresponse()
        told = json.loads(answer.read())
        assert answer.status < 300, told
        return told


class Offices:
    """The keys and ports of sites."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        for name in names:
            keys.new(name, folder=folder)
        self.ports = {name: free_port() for name in names}

    def node(self, name: str, **more: Any) -> str:
        """Return the lines of `[node]` that say who a site is, and where."""
        told = {
            "name": name,
            "store": f"{name}.store",
            "address": "127.0.0.1:0",
            "certificate": f"{name}.crt",
            "key": f"{name}.key",
            "peer-address": f"127.0.0.1:{self.ports[name]}",
            "timeout-s": 30.0,  # on a machine however busy
            **more,
        }
        return table("[node]", told)

    def peer(self, name: str, **more: Any) -> str:
        """Return a `[[peer]]` table."""
        told = {
            "name": name,
            "key": self.key(name),
            "url": self.url(name),
            **more,
        }
        return table("[[peer]]", told)

    def file(
        self,
        name: str,
        *tables: str,
        learner: Mapping[str, Any] | None = None,
        labels: Mapping[str, Any] | None = None,
        **node: Any,
    ) -> str:
        """Return the file of a site whose functions always give these labels."""
        labels = {"zero": 0} if labels is None else labels
        own = table("[[learner]]", {"name": name, "functions": [*labels], **(learner or {})})
        functions = [
            table("[[function]]", {"name": function, "kind": "constant", "label": label})
            for function, label in labels.items()
        ]
        return "\n".join([self.node(name, **node), own, *functions, *tables])

    def key(self, name: str) -> str:
        """Return a site's public key."""
        return keys.show(self.folder / f"{name}.crt").key

    def url(self, name: str) -> str:
        """Return where peers reach a site."""
        return f"https://127.0.0.1:{self.ports[name]}"


def table(head: str, values: Mapping[str, Any]) -> str:
    """Return a table of TOML."""
    return "\n".join([head, *(f"{key} = {_toml(value)}" for key, value in values.items()), ""])


@contextmanager
def served(folder: Path, sites: Mapping[str, str]) -> Iterator[dict[str, Client]]:
    """Serve sites, each in a process, and yield a client of each; files are named by site."""
    with ExitStack() as stack:
        started = {}
        for name, text in sites.items():
            (folder / f"{name}.toml").write_text(text)
            started[name] = _start(folder / f"{name}.toml")
            stack.callback(_stop, started[name])
        yield {name: _client(process, stack) for name, process in started.items()}


def _start(site: Path) -> "subprocess.Popen[str]":
    return started("serve", str(site))


def started(*words: str) -> "subprocess.Popen[str]":
    """Return a process that runs a command of covey."""
    paths = os.pathsep.join([str(SRC), str(TESTS)])
    return subprocess.Popen(
        [sys.executable, "-m", "covey", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def _client(process: "subprocess.Popen[str]", stack: ExitStack) -> Client:
    assert process.stderr is not None
    line = process.stderr.readline().strip()
    assert line.startswith("http"), line
    client = Client(line, process)
    stack.callback(client.close)
    return client


def _stop(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None
    process.terminate()
    process.wait(timeout=30)
    with process.stderr as lines:
        said = lines.read()  # `communicate` would miss what `readline` has buffered
    more = [line for line in said.splitlines() if not FOR_PEERS.fullmatch(line)]
    assert (process.returncode, more) == (0, []), f"{process.returncode}: {more}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


@asynccontextmanager
async def way(offices: Offices, name: str) -> AsyncIterator[PeerClient]:
    """Yield the way of a site to north."""
    folder = offices.folder
    known = PeerConfig(
        name="north", key=offices.key("north"), url=offices.url("north"), share="data"
    )
    own = Identity(folder / f"{name}.crt", folder / f"{name}.key")
    chance = random.Random(3)  # noqa: S311
    peers = HttpsPeers({"north": known}, own, chance)
    try:
        yield peers.by_name["north"]
    finally:
        await peers.close()
