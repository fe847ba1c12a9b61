"""A Ray cluster of three hosts: the results of one machine, also while hosts are killed.

The hosts are network namespaces, a head without CPUs and two workers with one CPU each; killing a
host kills all its processes. Run it as root in the folder of the tests:

    python -m chaos.cluster
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chaos.prove import table, write
from covey.bandit.policies import PRESETS
from support.ray_hosts import CLIENT_PORT, Host, hosts
from support.required import ROOT

PAGE = Path(__file__).with_name("RESULTS.md")
COVEY = (sys.executable, "-m", "covey")
PAPER = (sys.executable, str(ROOT / "experiments" / "paper" / "run.py"))
SEEDS = 3
POLL_S = 0.1
PAPER_TABLE = "callcost"
MOST_S = 1800.0
WORKERS_LOST_S = 120.0  # until Ray has seen it, and the command says it
GATE = "gate"
# Half of the runs cannot end before the file GATE is there, so a command is under way until then.
GATED_WORLD = f"""
import os
import time
from pathlib import Path

import numpy as np


class Gated:
    def __init__(self, rng, waits):
        self.rng, self.waits = rng, waits

    def draw(self, first_slot, slots):
        if self.waits and first_slot > 1:  # the first chunk is drawn before anything runs
            Path(f"waits-{{os.getpid()}}").touch()
            while not Path("{GATE}").exists():
                time.sleep({POLL_S})
        contexts = self.rng.random((slots, 1))
        return contexts, np.array([0.9 - 0.4 * contexts[:, 0], 0.5 + 0.4 * contexts[:, 0]])
"""
GATED = """
[scenario]
horizon-slots = 2_000
seeds = 2
[[policy]]
name = "cos"
preset = "cos"
[[policy]]
name = "auto"
preset = "auto"
[[environment]]
name = "free"
environment = "gated:Gated"
options = { waits = false }
learners = 2
functions = 1
[[environment]]
name = "gated"
environment = "gated:Gated"
options = { waits = true }
learners = 2
functions = 1
"""


class Shown(NamedTuple):
    """A claim, what was done, and whether it held."""

    claim: str
    did: str
    holds: bool


def write_files(folder: Path, *, slots: int) -> None:
    """Write a scenario of all presets with so many slots, and a gated one."""
    (folder / "gated.py").write_text(GATED_WORLD)
    (folder / "gated.toml").write_text(GATED)
    policies = "".join(
        f'[[policy]]\nname = "{preset}"\npreset = "{preset}"\n' for preset in PRESETS
    )
    (folder / "scenario.toml").write_text(
        f"[scenario]\nhorizon-slots = {slots}\nseeds = {SEEDS}\n{policies}"
        '[[environment]]\nname = "bumps"\n'
    )


def runs_of(folder: Path) -> list[Path]:
    """Return the files of the finished runs of a simulation."""
    return sorted(folder.glob("runs/**/*.json"))


def digest(folder: Path) -> str:
    """Return a digest of all runs of a simulation, but for the seconds that they took."""
    found = hashlib.sha256()
    for path in runs_of(folder):
        run = json.loads(path.read_text())
        run.pop("seconds", None)
        found.update(json.dumps([str(path.relative_to(folder)), run]).encode())
    return found.hexdigest()[:16]


def here(folder: Path, *words: str, program: Sequence[str] = COVEY) -> str:
    """Run covey on this machine; return what it printed."""
    command = [*program, *words, "--quiet"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


SIMULATE = ("simulate", "scenario.toml", "--out")
SIMULATE_GATED = ("simulate", "gated.toml", "--out")


class Cluster:
    """What is shown on a cluster of a head and two workers."""

    def __init__(self, made: Sequence[Host], folder: Path) -> None:
        self.head, self.first, self.second = made
        self.folder = folder
        self.client = f"ray://{self.head.address}:{CLIENT_PORT}"

    def run(self, *words: str, on: str = "ray", program: Sequence[str] = COVEY) -> str:
        """Run covey on the head, on all workers; return what it printed."""
        found = self.head.run(
            *program, *words, "--quiet", "--on", on, timeout_s=MOST_S, cwd=self.folder
        )
        if found.returncode:
            raise SystemExit(found.stderr)
        return found.stdout

    def begin_gated(self, out: str) -> "subprocess.Popen[str]":
        """Begin the gated scenario; return once both workers are in runs that cannot end."""
        (self.folder / GATE).unlink(missing_ok=True)
        for path in self.folder.glob("waits-*"):
            path.unlink()
        words = (*SIMULATE_GATED, out, "--quiet", "--on", "ray")
        process = self.head.begin(*COVEY, *words, cwd=self.folder)
        while len(list(self.folder.glob("waits-*"))) < 2 or len(runs_of(self.folder / out)) < 2:
            if process.poll() is not None:
                raise SystemExit(process.communicate()[1])
            time.sleep(POLL_S)
        return process


def same_runs(cluster: Cluster, folder: Path) -> Shown:
    here(folder, *SIMULATE, "here")
    cluster.run(*SIMULATE, "there", on=cluster.client)
    what = f"{SEEDS * len(PRESETS)} runs of {len(PRESETS)} presets"
    return Shown("same runs", what, digest(folder / "there") == digest(folder / "here"))


def same_runs_after(cluster: Cluster, folder: Path, lost: str, part: str) -> Shown:
    """Kill a part of the second worker in the middle of its run; start it again."""
    process = cluster.begin_gated(f"killed-{lost}")
    assert cluster.second.kill(part)
    (folder / GATE).touch()
    _, said = process.communicate(timeout=MOST_S)
    if process.returncode:
        raise SystemExit(said)
    cluster.second.kill()
    cluster.second.start()
    here(folder, *SIMULATE_GATED, f"kept-{lost}")
    is_same = digest(folder / f"killed-{lost}") == digest(folder / f"kept-{lost}")
    return Shown("same runs", f"one {lost} of two killed in a run", is_same)


def reproduction(cluster: Cluster, folder: Path) -> list[Shown]:
    """Compare one table of the paper; needs its data."""
    data = os.environ.get("COVEY_DATA")
    if data is None:
        print("the paper's script is left out: it needs its data (set COVEY_DATA)")
        return []
    words = (PAPER_TABLE, "--data", str(Path(data).absolute()), "--json", "--out")
    found = cluster.run(*words, "paper-there", program=PAPER)
    expected = here(folder, *words, "paper-here", program=PAPER)
    cases = sorted(path.name for path in (folder / "paper-here" / "runs").iterdir())
    is_same = found == expected and all(
        (folder / "paper-there" / "runs" / name).read_bytes()
        == (folder / "paper-here" / "runs" / name).read_bytes()
        for name in cases
    )
    return [Shown("same table of the paper", f"{PAPER_TABLE}, {len(cases)} cases", is_same)]


def lost_workers(cluster: Cluster) -> Shown:
    """Kill all workers, and see that the command ends with a sentence; start them again."""
    process = cluster.begin_gated("lost")
    for host in (cluster.first, cluster.second):
        host.kill()
    _, said = process.communicate(timeout=WORKERS_LOST_S)
    for host in (cluster.first, cluster.second):
        host.start()
    holds = process.returncode == 2 and "what is finished is kept" in said
    print(process.returncode, said)  # a failed test shows it, and what Ray itself wrote
    return Shown("a sentence, runs are kept", "both workers killed", holds)


def other_kernel(folder: Path) -> Shown:
    """See that a node with another kernel is refused by its address."""
    with hosts([0, 1], {1: {"COVEY_KERNEL": "plain"}}) as (head, other):
        found = head.run(*COVEY, *SIMULATE, "refused", "--quiet", "--on", "ray", cwd=folder)
    said = f"node {other.address} of the cluster could give other results: kernel plain there"
    holds = found.returncode == 2 and said in found.stderr
    return Shown("refused by its address", "a node with the plain kernel", holds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Show all; return 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE}")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, slots=100_000)
        with hosts([0, 1, 1]) as made:
            cluster = Cluster(made, folder)
            shown = [
                same_runs(cluster, folder),
                same_runs_after(cluster, folder, "raylet", "raylet/raylet"),
                same_runs_after(cluster, folder, "host", ""),
            ]
            shown += [*reproduction(cluster, folder), lost_workers(cluster)]
        shown.append(other_kernel(folder))
    print(*shown, sep="\n")
    rows = [(one.claim, one.did, "yes" if one.holds else "**no**") for one in shown]
    if options.write:
        write("cluster", table(rows, "shown", "with", "holds"), PAGE)
    return 0 if all(one.holds for one in shown) else 1


if __name__ == "__main__":
    sys.exit(main())
