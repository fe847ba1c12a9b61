"""A Ray cluster of three hosts: the results of one machine, also while hosts are killed.

The hosts are network namespaces, a head without CPUs and two workers with one CPU each; killing a
host kills all its processes. Run it as root in the folder of the tests:

    python -m chaos.cluster --rows 100000000
"""

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as arrow
from pyarrow import parquet

from chaos.prove import table, write
from covey.bandit.policies import PRESETS
from support.ray_hosts import CLIENT_PORT, CpuMeter, Host, hosts
from support.required import ROOT

PAGE = ROOT / "docs" / "operations" / "cluster.md"
COVEY = (sys.executable, "-m", "covey")
PAPER = (sys.executable, str(ROOT / "experiments" / "paper" / "run.py"))
GROUP = 250_000  # rows of a row group
LEARNERS, FUNCTIONS, SLICES = 4, 2, 12
SEEDS = 3
POLL_S = 0.1
PAPER_TABLE = "callcost"
MOST_S = 1800.0
WORKERS_LOST_S = 120.0  # until Ray has seen it, and the command says it


class Shown(NamedTuple):
    """A claim, what was done, and whether it held."""

    claim: str
    did: str
    holds: bool


def write_log(path: Path, rows: int, seed: int = 1) -> None:
    """Write a log of functions whose accuracies differ over two contexts."""
    rng = np.random.default_rng(seed)
    writer = None
    for first in range(0, rows, GROUP):
        count = min(GROUP, rows - first)
        columns = {"x": rng.random(count), "y": rng.random(count)}
        labels = columns["label"] = rng.integers(0, 2, count, np.int8)
        for k in range(LEARNERS * FUNCTIONS):
            accuracy = 0.55 + 0.4 * np.abs(np.sin(3 * columns["x"] + k) * np.cos(columns["y"] + k))
            is_right = rng.random(count) < accuracy
            columns[f"f{k}"] = np.where(is_right, labels, 1 - labels)
        group = arrow.table(columns)
        writer = writer or parquet.ParquetWriter(path, group.schema)
        writer.write_table(group)
    assert writer is not None
    writer.close()


def write_files(folder: Path, *, rows: int, traced: int, slots: int) -> None:
    """Write a scenario, and two logs with so many rows: the second is replayed with a trace."""
    write_log(folder / "log.parquet", rows)
    write_log(folder / "short.parquet", traced, seed=2)
    learners = "".join(
        f'[[learner]]\nname = "site {k}"\n'
        f'functions = ["f{FUNCTIONS * k}", "f{FUNCTIONS * k + 1}"]\n'
        for k in range(LEARNERS)
    )
    policy = f'[policy]\npreset = "cos"\nslices = {SLICES}\n'
    (folder / "grid.toml").write_text(f'[data]\ncontext = ["x", "y"]\n{policy}{learners}')
    (folder / "long.toml").write_text(
        "[scenario]\nhorizon-slots = 1_000_000\nseeds = 20\n"
        '[[policy]]\nname = "cos"\npreset = "cos"\n[[policy]]\nname = "auto"\npreset = "auto"\n'
        '[[environment]]\nname = "bumps"\n'
    )
    policies = "".join(f'[[policy]]\nname = "{one}"\npreset = "{one}"\n' for one in PRESETS)
    (folder / "scenario.toml").write_text(
        f"[scenario]\nhorizon-slots = {slots}\nseeds = {SEEDS}\n{policies}"
        '[[environment]]\nname = "bumps"\n'
    )


def has_runs(folder: Path, number: int) -> bool:
    """Return whether so many runs of a simulation are finished."""
    return len(list(folder.glob("runs/**/*.json"))) >= number


def digest(folder: Path) -> str:
    """Return a digest of all runs of a simulation, but for the seconds that they took."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("runs/**/*.json")):
        run = json.loads(path.read_text())
        run.pop("seconds", None)
        found.update(json.dumps([str(path.relative_to(folder)), run]).encode())
    return found.hexdigest()[:16]


def spent_s() -> float:
    """Return the CPU seconds of all ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def here(folder: Path, *words: str, program: Sequence[str] = COVEY) -> tuple[str, float]:
    """Run covey on this machine; return what it printed, and its CPU seconds."""
    before = spent_s()
    found = subprocess.run(
        [*program, *words, "--quiet"], cwd=folder, capture_output=True, text=True, check=True
    )
    return found.stdout, spent_s() - before


SIMULATE = ("simulate", "scenario.toml", "--out")
REPLAY = ("replay", "log.parquet", "--config", "grid.toml", "--json")
TRACED = ("replay", "short.parquet", "--config", "grid.toml", "--json", "--trace")


class Cluster:
    """What is shown on a cluster of a head and two workers."""

    def __init__(self, made: Sequence[Host], folder: Path) -> None:
        self.head, self.first, self.second = made
        self.hosts = made
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

    def run_and_kill(
        self, words: Sequence[str], is_time: Callable[[], bool], part: str = ""
    ) -> str:
        """Run covey, and kill (a part of) the second worker when it is time; start it again."""
        process = self.head.begin(*COVEY, *words, "--quiet", "--on", "ray", cwd=self.folder)
        while not is_time() and process.poll() is None:
            time.sleep(POLL_S)
        assert process.poll() is None, "it ended before the host was killed"
        assert self.second.kill(part)
        said, wrong = process.communicate(timeout=MOST_S)
        if process.returncode:
            raise SystemExit(wrong)
        self.second.kill()
        self.second.start()
        return said


def same_runs(cluster: Cluster, folder: Path) -> Shown:
    here(folder, *SIMULATE, "here")
    cluster.run(*SIMULATE, "there", on=cluster.client)
    what = f"{SEEDS * len(PRESETS)} runs of {len(PRESETS)} presets"
    return Shown("same runs", what, digest(folder / "there") == digest(folder / "here"))


def same_runs_after(cluster: Cluster, folder: Path, lost: str, part: str) -> Shown:
    """Kill a part of the second worker after some runs."""
    killed = folder / f"killed-{lost}"
    cluster.run_and_kill((*SIMULATE, killed.name), partial(has_runs, killed, 3), part)
    what = f"one {lost} of two killed after 3 runs"
    return Shown("same runs", what, digest(killed) == digest(folder / "here"))


def reproduction(cluster: Cluster, folder: Path) -> list[Shown]:
    """Compare one table of the paper; needs its data."""
    data = os.environ.get("COVEY_DATA")
    if data is None:
        print("the paper's script is left out: it needs its data (set COVEY_DATA)")
        return []
    words = (PAPER_TABLE, "--data", str(Path(data).absolute()), "--json", "--out")
    found = cluster.run(*words, "paper-there", program=PAPER)
    expected, _ = here(folder, *words, "paper-here", program=PAPER)
    cases = sorted(path.name for path in (folder / "paper-here" / "runs").iterdir())
    is_same = found == expected and all(
        (folder / "paper-there" / "runs" / name).read_bytes()
        == (folder / "paper-here" / "runs" / name).read_bytes()
        for name in cases
    )
    return [Shown("same table of the paper", f"{PAPER_TABLE}, {len(cases)} cases", is_same)]


@cache
def traced_here(folder: Path) -> str:
    """Write the trace of one process once; return what it printed."""
    return here(folder, *TRACED, "here.parquet")[0]


def same_trace(cluster: Cluster, folder: Path) -> Shown:
    expected = traced_here(folder)
    found = cluster.run(*TRACED, "there.parquet")
    what = f"{parquet.read_metadata(folder / 'here.parquet').num_rows:,} decisions"
    is_same = same(folder / "here.parquet", folder / "there.parquet")
    return Shown("same trace and result", what, is_same and found == expected)


def same_trace_after(cluster: Cluster, folder: Path) -> Shown:
    """Kill the second worker after the first stretch."""
    expected = traced_here(folder)
    out = folder / "kept"
    found = cluster.run_and_kill(
        (*TRACED, "killed.parquet", "--out", "kept"), lambda: len(list(out.glob("parts/*"))) >= 1
    )
    is_same = same(folder / "here.parquet", folder / "killed.parquet")
    what = "one host of two killed after the first stretch"
    return Shown("same trace and result", what, is_same and found == expected)


def same(first: Path, second: Path) -> bool:
    """Return whether two traces have the same rows."""
    return _plain(first).equals(_plain(second))


def _plain(path: Path) -> "arrow.Table":
    """Return a table whose texts have no dictionaries: their order may differ."""
    found = parquet.read_table(path)
    columns = {}
    for name, column in zip(found.column_names, found.columns, strict=True):
        is_coded = arrow.types.is_dictionary(column.type)
        columns[name] = column.cast(column.type.value_type) if is_coded else column
    return arrow.table(columns)


class Cost(NamedTuple):
    """CPU seconds of a command in one process, in two, and on a cluster, with its parts."""

    what: str
    one_s: float
    two_s: float
    on_cluster: Mapping[str, float]

    def row(self) -> tuple[str, ...]:
        total = sum(self.on_cluster.values())
        seconds = (self.one_s, self.two_s, total)
        parts = [self.on_cluster.get(kind, 0.0) for kind in ("workers", "command", "daemons")]
        shares = (self.one_s / self.two_s, self.one_s / total)
        return (
            self.what,
            *(f"{one:.1f}" for one in (*seconds, *parts)),
            *(f"{one:.2f}" for one in shares),
        )


def costs_of(rows: Sequence[Cost]) -> str:
    """Return the table of CPU seconds."""
    titles = ("one process", "two processes", "Ray, all", "workers", "command", "daemons")
    shares = ("efficiency of processes", "of Ray")
    return table([cost.row() for cost in rows], "CPU seconds", *titles, *shares)


def replay_cost(cluster: Cluster, folder: Path, rows: int) -> tuple[Cost, Shown]:
    expected, one_s = here(folder, *REPLAY)
    _, two_s = here(folder, *REPLAY, "--workers", "2")
    with CpuMeter(cluster.hosts) as meter:
        found = cluster.run(*REPLAY)
    cost = Cost(f"a replay of {rows:,} rows", one_s, two_s, meter.spent_s())
    return cost, Shown("same result", f"{rows:,} rows", found == expected)


def simulation_cost(cluster: Cluster, folder: Path) -> Cost:
    """Measure runs that take about a second each."""
    simulate = ("simulate", "long.toml", "--out")
    _, one_s = here(folder, *simulate, "long-one", "--workers", "1")
    _, two_s = here(folder, *simulate, "long-two", "--workers", "2")
    with CpuMeter(cluster.hosts) as meter:
        cluster.run(*simulate, "long-ray")
    assert digest(folder / "long-ray") == digest(folder / "long-one")
    runs = len(list((folder / "long-one").glob("runs/**/*.json")))
    return Cost(f"a simulation of {runs} runs", one_s, two_s, meter.spent_s())


def lost_workers(cluster: Cluster, folder: Path) -> Shown:
    """Kill all workers, and see that the command ends with a sentence; start them again."""
    process = cluster.head.begin(*COVEY, *SIMULATE, "lost", "--quiet", "--on", "ray", cwd=folder)
    lost = folder / "lost"
    while not has_runs(lost, 1) and process.poll() is None:
        time.sleep(POLL_S)
    cluster.first.kill()
    cluster.second.kill()
    _, said = process.communicate(timeout=WORKERS_LOST_S)
    for host in (cluster.first, cluster.second):
        host.start()
    holds = process.returncode == 2 and said.rstrip().endswith("finished runs are kept")
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
    parser.add_argument("--rows", type=int, default=100_000_000, help="of the log for efficiency")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE}")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traced = min(options.rows, 3_000_000)
        write_files(folder, rows=options.rows, traced=traced, slots=100_000)
        with hosts([0, 1, 1]) as made:
            cluster = Cluster(made, folder)
            shown = [
                same_runs(cluster, folder),
                same_runs_after(cluster, folder, "raylet", "raylet/raylet"),
                same_runs_after(cluster, folder, "host", ""),
            ]
            print(*shown, sep="\n")
            simulated = simulation_cost(cluster, folder)
            replayed, result = replay_cost(cluster, folder, options.rows)
            costs = costs_of([replayed, simulated])
            print(costs)
            shown += [result, same_trace(cluster, folder), same_trace_after(cluster, folder)]
            shown += [*reproduction(cluster, folder), lost_workers(cluster, folder)]
        shown.append(other_kernel(folder))
    print(*shown, sep="\n")
    rows = [(one.claim, one.did, "yes" if one.holds else "**no**") for one in shown]
    if options.write:
        write("cluster", f"{table(rows, 'shown', 'with', 'holds')}\n\n{costs}", PAGE)
    return 0 if all(one.holds for one in shown) else 1


if __name__ == "__main__":
    sys.exit(main())
