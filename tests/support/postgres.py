"""Real PostgreSQL servers on this machine, in folders of their own, for tests of stores."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.ports import free_port
from support.required import require

FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))  # where Debian has the servers
USER = "postgres"  # a server refuses to run as root
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": 40,
    "shared_buffers": "16MB",
    "max_wal_size": "256MB",
    "wal_level": "replica",
    "logging_collector": "off",
}


def programs() -> Path:
    """Return the folder of the programs of PostgreSQL; skip or fail the test without them."""
    require(FOLDERS, "needs postgresql: make ci-tools")
    return FOLDERS[-1]


class Server:
    """A server that can be killed; it listens on the loopback and on a socket in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        """Make an empty one."""
        run("initdb", "-D", self.data, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")

    def copy(self, primary: "Server", slot: str) -> None:
        """Make a standby of another one, which follows it from now on."""
        where = ["-h", "127.0.0.1", "-p", primary.port, "-U", USER]
        now = ("--checkpoint=fast", "-R", "-X", "stream", "-C", "-S", slot)
        run("pg_basebackup", "-D", self.data, *where, *now)
        config = self.data / "postgresql.auto.conf"
        text = config.read_text().replace("user=", f"application_name={slot} user=")
        config.write_text(text)

    def start(self, **settings: object) -> None:
        """Start it, and return when it answers."""
        given = {**SETTINGS, "port": self.port, "unix_socket_directories": self.folder, **settings}
        options = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                as_user(programs() / "postgres", "-D", self.data, *options),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        ready = [programs() / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run([*ready, "-t", "10"], check=False).returncode:
            assert self._process.poll() is None, (self.folder / "log").read_text()

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def promote(self) -> None:
        """Make a primary of a standby."""
        run("pg_ctl", "promote", "-D", self.data, "-w")

    def end(self) -> None:
        """Kill all its processes, as a loss of power would end them."""
        if self._process is not None and self.is_running:
            self.send(signal.SIGKILL)
            self._process.wait()

    def send(self, number: int) -> None:
        """Send a signal to all its processes."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def processes(self) -> list[int]:
        """Return the ids of its processes, the postmaster first."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [self._process.pid, *map(int, children.read_text().split())]


@contextlib.contextmanager
def servers(count: int = 1) -> Iterator[list[Server]]:
    """Yield servers that are neither made nor started; they end with the context."""
    programs()
    root = Path(tempfile.mkdtemp(prefix="covey-postgres-"))
    made = []
    try:
        os.chmod(root, 0o755)  # noqa: S103 - another user has the folders in it
        for number in range(count):
            folder = root / str(number)
            folder.mkdir()
            if os.getuid() == 0:
                shutil.chown(folder, USER)
            made.append(Server(folder))
        yield made
    finally:
        for server in made:
            server.end()
        shutil.rmtree(root, ignore_errors=True)


def as_user(*command: object) -> list[str]:
    """Return a command that does not run as root."""
    given = [str(part) for part in command]
    if os.getuid():
        return given
    user = pwd.getpwnam(USER)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *given]


def run(program: str, *arguments: object) -> None:
    done = subprocess.run(
        as_user(programs() / program, *arguments), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
