"""Two nodes of one site over two PostgreSQL servers, one of which is a synchronous standby.

Under load, connections of the node are ended, nodes are killed with -9, and so is the primary
server, after which the standby is promoted. Clients then compare what was acknowledged with what
the store holds. Run it in the folder of the tests: python -m chaos.failover --rounds 5
"""

import argparse
import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from chaos import prove
from chaos.kill import FUNCTIONS, NO_RESPONSE, POLICY, Load, Outcome, Process, compare, until
from support.postgres import Server, servers
from support.site_processes import table

NAME = "north"
BEHIND_S = 0.3  # in which a standby reads nothing before the primary is lost


class FailoverOutcome(Outcome):
    """What the failures came to."""

    connections_ended: int = 0
    nodes_killed: int = 0
    servers_killed: int = 0
    exits: list[int] = msgspec.field(default_factory=list)  # of nodes, by themselves
    slowest_takeover_s: float = 0.0  # from a failure until the next acknowledged label


class Pair:
    """A primary and its synchronous standby; the standby is promoted when the primary is lost."""

    def __init__(self, first: Server, second: Server) -> None:
        self.primary, self.standby = first, second
        ports = ",".join(f"127.0.0.1:{one.port}" for one in (first, second))
        self.url = f"postgresql://postgres@{ports}/postgres"
        self._names = {first.port: "one", second.port: "other"}

    def start(self) -> None:
        """Start both, and return when commits wait for the standby."""
        self.primary.create()
        self.primary.start()
        self._follow()

    def fail_over(self) -> None:
        """Kill both as a loss of power would; only the standby comes back, and is promoted.

        Before that the standby reads nothing for a while: commits must wait for it.
        """
        self.standby.send(signal.SIGSTOP)
        time.sleep(BEHIND_S)
        self.primary.end()
        self.standby.end()
        self.standby.start()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def heal(self) -> None:
        """Make a standby of the server that was lost, if one was."""
        if not self.standby.is_running:
            shutil.rmtree(self.standby.data)
            self._follow()

    def ask(self, statement: str) -> Any:
        """Return the first column of the first row of what the primary says."""
        with psycopg.connect(self.primary.url(), autocommit=True) as base:
            row = base.execute(statement.encode()).fetchone()
            return None if row is None else row[0]

    def end_connections(self) -> None:
        """End the connection of the node that has the store."""
        self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        )

    def _follow(self) -> None:
        name = self._names[self.standby.port]
        self.standby.copy(self.primary, name)
        self.standby.start()
        for statement in (
            f"ALTER SYSTEM SET synchronous_standby_names = '{name}'",
            "SELECT pg_reload_conf()",
        ):
            with psycopg.connect(self.primary.url(), autocommit=True) as base:
                base.execute(statement.encode())
        following = "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        until(lambda: self.ask(following) == 1)


class TwoNodes:
    """Two processes that serve one site; one has the store, the other waits for it.

    Each is started again when it ends, as a supervisor does it.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.name, self.store = NAME, url
        (folder / "site.toml").write_text(site(url))
        self._folder, self._lock = folder, threading.Lock()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._urls: dict[int, str] = {}  # of those that serve
        self.exits: list[int] = []
        self._is_over = False
        self._threads = [threading.Thread(target=self._supervise, args=(k,)) for k in range(2)]
        for thread in self._threads:
            thread.start()

    def _supervise(self, number: int) -> None:
        while not self._is_over:
            process = subprocess.Popen(
                [sys.executable, "-m", "covey", "serve", "site.toml", "--wait"],
                cwd=self._folder,
                stderr=subprocess.PIPE,
                text=True,
            )
            with self._lock:
                self._processes[number] = process
                if self._is_over:
                    process.terminate()
            with process:
                for line in process.stderr or ():
                    if line.startswith("http"):
                        self._urls[number] = line.strip()
                self._urls.pop(number, None)
            code = process.returncode
            if not self._is_over:
                self.exits.append(code)

    def kill(self) -> None:
        """Kill the node that serves."""
        for number in list(self._urls):
            self._processes[number].kill()

    def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Send a request to the node that serves; `NO_RESPONSE` if there is none."""
        for url in list(self._urls.values()):
            process = Process.__new__(Process)
            process.url = url
            found = process.post(path, body)
            if found != NO_RESPONSE:
                return found
        return NO_RESPONSE

    def end(self) -> None:
        """Stop both."""
        with self._lock:
            self._is_over = True
            for process in self._processes.values():
                process.send_signal(signal.SIGTERM)
        for thread in self._threads:
            thread.join()


def site(url: str) -> str:
    features = {"size": "FP64"}
    node = {"name": NAME, "store": url, "address": "127.0.0.1:0", "features": features}
    functions = [
        table("[[function]]", {"name": one, "kind": "constant", "label": label})
        for one, label in FUNCTIONS.items()
    ]
    learner = {"name": NAME, "functions": list(FUNCTIONS)}
    return "\n".join(
        [
            table("[node]", {**node, "dimension": 1}),
            POLICY,
            table("[[learner]]", learner),
            *functions,
        ]
    )


@contextlib.contextmanager
def pair() -> Iterator[Pair]:
    """Yield two servers, which end with the context."""
    with servers(2) as (first, second):
        made = Pair(first, second)
        made.start()
        yield made


def fail_often(rounds: int, *, seed: int = 0, clients: int = 4) -> FailoverOutcome:
    """Let a connection, a node and a server fail in each round; compare what clients know."""
    chance = random.Random(seed)  # noqa: S311 - a seeded world
    with pair() as base, tempfile.TemporaryDirectory() as name:
        outcome = FailoverOutcome()
        nodes = TwoNodes(Path(name), base.url)
        load = Load([nodes], clients)  # type: ignore[list-item]
        try:
            _wait_for_labels(load)
            for _ in range(rounds):
                failures = [
                    ("connections_ended", base.end_connections),
                    ("nodes_killed", nodes.kill),
                    ("servers_killed", base.fail_over),
                ]
                chance.shuffle(failures)
                for what, fail in failures:
                    time.sleep(chance.uniform(0.1, 0.5))
                    begun_s = time.monotonic()
                    fail()
                    setattr(outcome, what, getattr(outcome, what) + 1)
                    _wait_for_labels(load)
                    took_s = time.monotonic() - begun_s
                    outcome.slowest_takeover_s = max(outcome.slowest_takeover_s, took_s)
                    base.heal()
        finally:
            load.end()
            nodes.end()
        outcome.exits = sorted(set(nodes.exits))
        compare([nodes], load, outcome)  # type: ignore[list-item]
        return outcome


def _wait_for_labels(load: Load) -> None:
    """Return when labels are acknowledged that were not sent before."""
    known = _acknowledged(load)
    until(lambda: _acknowledged(load) > known + len(load.clients))


def _acknowledged(load: Load) -> int:
    return sum(len(client.acknowledged) for client in load.clients)


def rows_of(outcome: FailoverOutcome) -> list[tuple[str, ...]]:
    """Return the table of the page."""
    failures = (outcome.connections_ended, outcome.nodes_killed, outcome.servers_killed)
    return [
        (
            "connections ended, nodes killed, times that both servers were killed",
            ", ".join(map(str, failures)),
        ),
        ("labels acknowledged", f"{outcome.acknowledged:,}"),
        ("of these lost", f"{outcome.lost:,}"),
        ("counted twice", f"{outcome.twice:,}"),
        ("requests without an answer, sent again", f"{outcome.unanswered:,}"),
        (
            "disagreements of `covey check`, and answers that changed",
            f"{len(outcome.disagreements)}",
        ),
        (
            "longest time until labels were acknowledged again",
            f"{outcome.slowest_takeover_s:.1f} s",
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Let databases and nodes fail under load.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="into RESULTS.md")
    options = parser.parse_args()
    outcome = fail_often(options.rounds, seed=options.seed)
    for name, value in msgspec.structs.asdict(outcome).items():
        print(f"{name.replace('_', ' ')}: {value}")
    if options.write:
        prove.write("failover", prove.table(rows_of(outcome), "", ""))
    return int(bool(outcome.lost or outcome.twice or outcome.disagreements))


if __name__ == "__main__":
    sys.exit(main())
