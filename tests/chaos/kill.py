"""Real sites over https under load, killed with -9 again and again: what they acknowledged stays.

Run it in the folder of the tests: python -m chaos.kill --times 200
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from chaos import records
from chaos.records import Rows
from covey.bandit.learner import UNKNOWN
from covey.site.requests import NOT_COUNTED
from covey.store.store import Store
from support.site_processes import Offices, table

NAMES = ("north", "south", "east")
FUNCTIONS = {"zero": 0, "one": 1}
WAIT_S = 120.0  # for what must happen, on a machine however slow
EARLY = {"scale": 0.5, "power": 0.0}
POLICY = table("[policy]", {"preset": "cos", "slices": 3, "explore": EARLY, "train": EARLY})
NO_RESPONSE = (0, {})


class Outcome(msgspec.Struct):
    """What many kills came to."""

    kills: int = 0
    answered: int = 0
    acknowledged: int = 0
    delivered: int = 0  # labels that a peer had to receive, too
    unanswered: int = 0  # requests, sent again
    lost: int = 0
    twice: int = 0
    disagreements: list[str] = []  # of `covey check`, of answers that changed
    slowest_start_s: float = 0.0


def sites(folder: Path, names: Sequence[str] = NAMES) -> dict[str, str]:
    """Return the files of sites that ask each other, over https with keys of their own."""
    offices = Offices(folder, list(names))
    return {name: _site(offices, name, [one for one in names if one != name]) for name in names}


def _site(offices: Offices, name: str, others: list[str]) -> str:
    own = [f"{name}-{function}" for function in FUNCTIONS]
    learner = {"name": name, "functions": own, "peers": dict.fromkeys(others, 0.01)}
    rights = {"share": "data", "may-ask": True, "functions": len(own)}
    functions = [
        table("[[function]]", {"name": one, "kind": "constant", "label": label})
        for one, label in zip(own, FUNCTIONS.values(), strict=True)
    ]
    return "\n".join(
        [
            offices.node(name, features={"size": "FP64"}, dimension=1),
            POLICY,
            table("[[learner]]", learner),
            *(offices.peer(other, **rights) for other in others),
            *functions,
        ]
    )


class Process:
    """A site in a process of its own, which can be started again on the same store."""

    def __init__(self, folder: Path, name: str, text: str, before: Sequence[str] = ()) -> None:
        self.folder, self.name, self.before = folder, name, before
        (folder / f"{name}.toml").write_text(text)
        self.url, self.store = "", str(folder / f"{name}.store")
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start it, and return after how long it listened, in seconds."""
        before_s = time.monotonic()
        self._process = subprocess.Popen(
            [*self.before, sys.executable, "-m", "covey", "serve", f"{self.name}.toml"],
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

    @property
    def undelivered(self) -> int:
        """How many labels it still has to deliver to peers."""
        status, told = self.send("GET", "/state")
        return int(told["owed"]) if status == 200 else 1

    def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Return status and answer of a request with a body."""
        return self.send("POST", path, json.dumps(body))

    def send(self, method: str, path: str, body: str | None = None) -> tuple[int, dict[str, Any]]:
        """Return status and answer; `NO_RESPONSE` if there was none, or not all of it."""
        where = urlsplit(self.url)
        if not where.hostname:
            return NO_RESPONSE
        connection = http.client.HTTPConnection(where.hostname, where.port or 80, timeout=10)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, where.path + path, body, headers)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        except (OSError, http.client.HTTPException, ValueError):
            return NO_RESPONSE
        finally:
            connection.close()


class Client:
    """Sends requests and labels, and remembers the responses."""

    def __init__(self, process: Process, number: int, stop: threading.Event) -> None:
        self.process, self.number, self._stop = process, number, stop
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
            self._one(f"{self.number}-{k}", self._chance.randrange(2))

    def _one(self, id_: str, truth: int) -> None:
        if self._ask(id_) and self._chance.random() < 0.8:
            self._say(id_, truth)
        if id_ in self.acknowledged and self._chance.random() < 0.05:
            status, _ = self._persist("/feedback", {"id": id_, "truth": 1 - truth})
            if status not in (0, 409, 507):  # a full disk takes none either
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
            status, answer = self.process.post(path, body)
            if status not in (0, 503):
                return status, answer
            self.counts["unanswered"] += 1
            time.sleep(0.02)
        return NO_RESPONSE


class Load:
    """Several clients at once, of one site or of many."""

    def __init__(self, processes: Sequence[Process], clients: int) -> None:
        self._stop = threading.Event()
        self.clients = [
            Client(processes[k % len(processes)], k, self._stop) for k in range(clients)
        ]
        self._threads = [threading.Thread(target=client.work) for client in self.clients]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def kill_often(times: int, *, seed: int = 0, clients: int = 6) -> Outcome:
    """Kill sites `times` times under load, and compare their stores with what clients know."""
    chance = random.Random(seed)  # noqa: S311 - a seeded world
    with tempfile.TemporaryDirectory() as name:
        folder, outcome = Path(name), Outcome(kills=times)
        processes = [Process(folder, one, text) for one, text in sites(folder).items()]
        for process in processes:
            process.start()
        load = Load(processes, clients)
        try:
            for _ in range(times):
                time.sleep(chance.uniform(0.02, 0.6))
                process = chance.choice(processes)
                process.end(signal.SIGKILL)
                outcome.slowest_start_s = max(outcome.slowest_start_s, process.start())
            time.sleep(0.5)
        finally:
            load.end()
            until(lambda: not any(process.undelivered for process in processes))
            codes = [process.end(signal.SIGTERM) for process in processes]
        if any(codes):
            outcome.disagreements.append(f"after SIGTERM, sites ended with {codes}")
        compare(processes, load, outcome)
        return outcome


def until(is_so: Callable[[], bool]) -> None:
    """Return when something is so; it must be soon."""
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end_s, "what must happen has not happened"
        time.sleep(0.05)


def compare(processes: Sequence[Process], load: Load, outcome: Outcome) -> None:
    """Count what of the clients' knowledge the stores do not have, and what they have twice."""
    found = {process.name: _rows(process, outcome) for process in processes}
    for client in load.clients:
        kept = found[client.process.name]
        mine = {id_: one for (source, id_), one in kept.items() if source == ""}
        labelled = {id_: one.truth for id_, one in mine.items() if one.truth is not UNKNOWN}
        outcome.answered += len(client.answers)
        outcome.acknowledged += len(client.acknowledged)
        outcome.unanswered += client.counts["unanswered"]
        outcome.disagreements += client.wrong
        outcome.lost += sum(labelled.get(a) != b for a, b in client.acknowledged.items())
        outcome.lost += sum(id_ not in mine for id_ in client.answers)
        sent = {id_ for id_ in labelled if id_.startswith(f"{client.number}-")}
        outcome.twice += len(sent - set(client.tried))
    for name, kept in found.items():
        for one in kept.values():
            if one.peer_id and one.truth is not UNKNOWN:
                there = found[one.peer].get((name, one.peer_id))
                outcome.delivered += 1
                outcome.lost += there is None or there.truth != one.truth


def _rows(process: Process, outcome: Outcome) -> Rows:
    """Return the rows of a store; note whether `covey check` agrees with its counters."""
    checked = subprocess.run(
        [sys.executable, "-m", "covey", "check", process.store],
        capture_output=True,
        text=True,
        check=False,
    )
    if checked.returncode:
        outcome.disagreements.append(checked.stderr)
    store = Store(process.store, is_new_allowed=False)
    rows = records.read(store)
    counted = sum(labels for labels, _ in store.counters().values())
    store.close()
    outcome.twice += counted - sum(
        row.truth is not UNKNOWN and row.phase not in NOT_COUNTED for row in rows.values()
    )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill real sites under load, again and again.")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcome = kill_often(options.times, seed=options.seed)
    for name, value in msgspec.structs.asdict(outcome).items():
        print(f"{name.replace('_', ' ')}: {value}")
    return int(bool(outcome.lost or outcome.twice or outcome.disagreements))


if __name__ == "__main__":
    sys.exit(main())
