"""A real `covey serve` under load, killed with -9 again and again: what it acknowledged is there.

Run it in the folder of the tests: python -m storm.kill --times 200
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from covey.decisions import UNKNOWN
from covey.store import Store, _ticket

SITE = """
[node]
name = "north"
features = { size = "FP64" }
store = "north.store"
address = "127.0.0.1:0"
dimension = 1

[policy]
preset = "cos"
slices = 3

[[learner]]
name = "north"
functions = ["zero", "one"]

[[function]]
name = "zero"
kind = "constant"
label = 0

[[function]]
name = "one"
kind = "constant"
label = 1
"""
NOBODY = (0, {})  # what is heard of a node that is down


class Outcome(msgspec.Struct):
    """What many kills came to."""

    kills: int = 0
    answered: int = 0
    acknowledged: int = 0
    unanswered: int = 0  # requests, sent again
    lost: int = 0
    twice: int = 0
    disagreements: list[str] = []  # of `covey check`, of answers that changed
    slowest_start_s: float = 0.0


class Process:
    """The site in a process of its own, which can be started again on the same store."""

    def __init__(self, folder: Path, before: Sequence[str] = ()) -> None:
        self.folder, self.before = folder, before
        (folder / "site.toml").write_text(SITE)
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start it, and return after how long it listened, in seconds."""
        before_s = time.monotonic()
        self._process = subprocess.Popen(
            [*self.before, sys.executable, "-m", "covey", "serve", "site.toml"],
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stderr is not None
        line = self._process.stderr.readline().strip()
        if not line.startswith("http"):
            raise RuntimeError(f"the site does not start: {line}")
        self.url = line
        return time.monotonic() - before_s

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def end(self, number: int) -> int:
        """Send a signal to it and whatever runs it; return its exit status."""
        assert self._process is not None
        self.url = ""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        self._process.communicate()
        return self._process.returncode

    def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Return status and answer; `NOBODY` if there was none, or not all of it."""
        where = urlsplit(self.url)
        if not where.hostname:
            return NOBODY
        connection = http.client.HTTPConnection(where.hostname, where.port or 80, timeout=10)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", where.path + path, json.dumps(body), headers)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        except (OSError, http.client.HTTPException, ValueError):
            return NOBODY
        finally:
            connection.close()


class Client:
    """Asks, says labels, and remembers what it was told."""

    def __init__(self, process: Process, number: int, stop: threading.Event) -> None:
        self._process, self._number, self._stop = process, number, stop
        self._chance = random.Random(number)  # noqa: S311 - a seeded world
        self.counts: Counter[str] = Counter()
        self.answers: dict[str, Any] = {}
        self.acknowledged: dict[str, int] = {}
        self.tried: dict[str, int] = {}
        self.wrong: list[str] = []

    def work(self) -> None:
        k = 0
        while not self._stop.is_set():
            k += 1
            self._one(f"{self._number}-{k}", self._chance.randrange(2))

    def _one(self, id_: str, truth: int) -> None:
        if self._ask(id_) and self._chance.random() < 0.8:
            self._say(id_, truth)
        if id_ in self.acknowledged and self._chance.random() < 0.05:
            status, _ = self._persist("/feedback", {"id": id_, "truth": 1 - truth})
            if status not in (0, 409):
                self.wrong.append(f"{id_} took a second label: {status}")

    def _ask(self, id_: str) -> bool:
        context = {"shape": [1, 1], "datatype": "FP64", "data": [self._chance.random()]}
        size = {"shape": [1], "datatype": "FP64", "data": [1.0]}
        inputs = [{"name": "size", **size}, {"name": "context", **context}]
        for _ in range(self._times()):
            status, answer = self._persist("/infer", {"id": id_, "inputs": inputs})
            if status != 200:
                return False
            label = answer["outputs"][0]["data"]
            if self.answers.setdefault(id_, label) != label:
                self.wrong.append(f"{id_} was answered with {self.answers[id_]}, then {label}")
        return True

    def _say(self, id_: str, truth: int) -> None:
        self.tried[id_] = truth
        for _ in range(self._times()):
            status, _ = self._persist("/feedback", {"id": id_, "truth": truth})
            if status in (200, 202):
                self.acknowledged[id_] = truth

    def _times(self) -> int:
        return 1 + (self._chance.random() < 0.1)

    def _persist(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Send it until there is an answer."""
        while not self._stop.is_set():
            status, answer = self._process.post(path, body)
            if status not in (0, 503):
                return status, answer
            self.counts["unanswered"] += 1
            time.sleep(0.02)
        return NOBODY


class Load:
    """Several clients at once."""

    def __init__(self, process: Process, clients: int) -> None:
        self._stop = threading.Event()
        self.clients = [Client(process, k, self._stop) for k in range(clients)]
        self._threads = [threading.Thread(target=client.work) for client in self.clients]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def kill_often(times: int, *, seed: int = 0, clients: int = 4) -> Outcome:
    """Kill a site `times` times under load, and compare its store with what clients were told."""
    chance = random.Random(seed)  # noqa: S311 - a seeded world
    with tempfile.TemporaryDirectory() as name:
        process, outcome = Process(Path(name)), Outcome(kills=times)
        process.start()
        load = Load(process, clients)
        try:
            for _ in range(times):
                time.sleep(chance.uniform(0.02, 0.6))
                process.end(signal.SIGKILL)
                outcome.slowest_start_s = max(outcome.slowest_start_s, process.start())
            time.sleep(0.5)
        finally:
            load.end()
            status = process.end(signal.SIGTERM)
        if status:
            outcome.disagreements.append(f"told to stop, the site ended with {status}")
        compare(Path(name), load, outcome)
        return outcome


def compare(folder: Path, load: Load, outcome: Outcome) -> None:
    """Count what of the clients' knowledge the store does not have, and what it has twice."""
    checked = subprocess.run(
        [sys.executable, "-m", "covey", "check", str(folder / "north.store")],
        capture_output=True,
        text=True,
        check=False,
    )
    if checked.returncode:
        outcome.disagreements.append(checked.stderr)
    store = Store(folder / "north.store", is_new_allowed=False)
    kept = {
        one.id: one for one in map(_ticket, store._base.execute("SELECT * FROM tickets").fetchall())
    }
    counted = sum(labels for labels, _ in store.counters().values())
    store.close()
    labelled = {id_: one.truth for id_, one in kept.items() if one.truth is not UNKNOWN}
    outcome.twice += counted - len(labelled)
    for client in load.clients:
        outcome.answered += len(client.answers)
        outcome.acknowledged += len(client.acknowledged)
        outcome.unanswered += client.counts["unanswered"]
        outcome.disagreements += client.wrong
        outcome.lost += sum(labelled.get(a) != b for a, b in client.acknowledged.items())
        outcome.lost += sum(id_ not in kept for id_ in client.answers)
        sent = {id_ for id_ in labelled if id_.startswith(f"{client._number}-")}
        outcome.twice += len(sent - set(client.tried))


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a real site under load, again and again.")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcome = kill_often(options.times, seed=options.seed)
    for name, value in msgspec.structs.asdict(outcome).items():
        print(f"{name.replace('_', ' ')}: {value}")
    return int(bool(outcome.lost or outcome.twice or outcome.disagreements))


if __name__ == "__main__":
    sys.exit(main())
