"""Ray clusters of several hosts on this machine: network namespaces on a bridge of their own.

Nothing outside can reach them, and they reach nothing outside. Namespaces need root and iproute2.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from support.required import program, require

RAY = Path(sys.executable).parent / "ray"
IP = shutil.which("ip") or "ip"
START_S = 300.0  # a raylet that starts on busy cores
STORE_BYTES = 100_000_000
NETWORK = "10.99.0."
PORT, CLIENT_PORT = 6379, 10001
_numbers = count()  # of the clusters of this process


class Host:
    """One machine of the cluster: a namespace, with its address."""

    def __init__(self, number: int, cpus: int, prefix: str, env: Mapping[str, str]) -> None:
        self.name, self.address = f"{prefix}h{number}", f"{NETWORK}{number + 1}"
        self.is_head, self.cpus = number == 0, cpus
        self.env = dict(env)

    def start(self) -> None:
        """Start Ray on the host; the head must run before the others."""
        where = [f"--address={NETWORK}1:{PORT}"]
        if self.is_head:
            where = ["--head", f"--port={PORT}", f"--ray-client-server-port={CLIENT_PORT}"]
            where += ["--include-dashboard=false", f"--temp-dir={self.env['RAY_TMPDIR']}"]
        own = (f"--node-ip-address={self.address}", f"--num-cpus={self.cpus}")
        store = (f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats")
        found = self.run(str(RAY), "start", *where, *own, *store)
        assert found.returncode == 0, found.stdout + found.stderr

    def command(self, *words: str) -> list[str]:
        return [IP, "netns", "exec", self.name, *words]

    def run(
        self, *words: str, timeout_s: float = START_S, cwd: Path | None = None, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program on the host until it ends."""
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**self.env, **env},
            cwd=cwd,
        )

    def begin(self, *words: str, cwd: Path, **env: str) -> "subprocess.Popen[str]":
        """Start a program on the host."""
        return subprocess.Popen(
            self.command(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.env, **env},
            cwd=cwd,
        )

    def processes(self) -> dict[int, str]:
        """Return the processes of the host, with their command lines."""
        listed = subprocess.run(
            [IP, "netns", "pids", self.name], capture_output=True, text=True, check=False
        )
        found = {}
        for pid in map(int, listed.stdout.split()):
            try:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        return found

    def kill(self, part: str = "") -> int:
        """Kill the processes of the host with this in their command line; return their number."""
        chosen = [pid for pid, line in self.processes().items() if part in line]
        for pid in chosen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(chosen)


def require_namespaces() -> None:
    """Skip the test, or fail it in CI, where hosts cannot be made."""
    require(find_spec("ray") is not None, "needs Ray: make cluster-tools")
    program("ip")
    require(os.geteuid() == 0, "needs root, to make network namespaces")
    tried = [program("unshare"), "--net", "true"]
    made = subprocess.run(tried, capture_output=True, check=False)
    require(made.returncode == 0, "needs permission to make network namespaces")


@contextmanager
def hosts(
    cpus: Sequence[int], more: Mapping[int, Mapping[str, str]] | None = None
) -> Iterator[list[Host]]:
    """Yield hosts in a Ray cluster with so many CPUs each, the head first.

    `more` has further variables of a host, by its number.
    """
    prefix = f"cv{os.getpid()}-{next(_numbers)}"
    folder = Path(tempfile.mkdtemp(prefix="cv", dir="/tmp"))
    env = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ADDRESS": f"{NETWORK}1:{PORT}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_agent_register_timeout_ms": "180000",
        "RAY_raylet_start_wait_time_s": "180",
        "RAY_TMPDIR": str(folder),
    }
    made = [
        Host(k, count, prefix, {**env, **(more or {}).get(k, {})}) for k, count in enumerate(cpus)
    ]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(_network(f"{prefix}s", made))
        for host in made:
            host.start()
        yield made


@contextmanager
def _network(switch: str, made: Sequence[Host]) -> Iterator[None]:
    """Make a namespace for each host, and a bridge between them; end all their processes."""
    names = [switch, *(host.name for host in made)]
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for k, host in enumerate(made):
            ends = ("type", "veth", "peer", "name", "e0", "netns", host.name)
            _ip("link", "add", f"v{k}", "netns", switch, *ends)
            _ip("-n", switch, "link", "set", f"v{k}", "master", "br0", "up")
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "e0")
            _ip("-n", host.name, "link", "set", "e0", "up")
            # Ray finds its own address by the route to others.
            _ip("-n", host.name, "route", "add", "default", "dev", "e0")
        yield
    finally:
        for host in made:
            host.kill()
        for name in names:
            subprocess.run([IP, "netns", "del", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run([IP, *words], check=True, capture_output=True)
