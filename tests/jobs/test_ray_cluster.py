"""A Ray cluster gives the results of one machine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from chaos.cluster import (
    Cluster,
    lost_workers,
    other_kernel,
    same_runs,
    same_runs_after,
    write_files,
)
from covey import cli
from covey.kernel import is_compiled
from support.ray_hosts import CLIENT_PORT, Host, hosts, require_namespaces

GRID = """
[data]
context = ["x"]
delay = "delay"
[policy]
preset = "cos"
slices = 6
[[learner]]
name = "a"
functions = ["f"]
[[learner]]
name = "b"
functions = ["g"]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_namespaces()
    folder = tmp_path_factory.mktemp("cluster")
    write_files(folder, slots=2_000)
    with hosts([0, 1, 1]) as made:
        yield Cluster(made, folder)


@pytest.fixture
def head(cluster: Cluster) -> Host:
    return cluster.head


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 3_000)
    columns = {"x": rng.random(3_000), "label": labels, "delay": rng.integers(0, 9, 3_000)}
    for k, name in enumerate("fg"):
        columns[name] = np.where(rng.random(3_000) < 0.6 + 0.2 * k, labels, 1 - labels)
    parquet.write_table(arrow.table(columns), tmp_path / "log.parquet", row_group_size=500)
    (tmp_path / "grid.toml").write_text(GRID)
    return tmp_path


def covey(head: Host, folder: Path, *words: str, **env: str) -> tuple[int, str, str]:
    found = head.run(sys.executable, "-m", "covey", *words, cwd=folder, **env)
    return found.returncode, found.stdout, found.stderr


def test_a_cluster_gives_the_runs_of_one_machine(cluster: Cluster) -> None:
    assert same_runs(cluster, cluster.folder).holds


def test_a_cluster_compares_as_one_machine(
    head: Host, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    compared = ("compare", "log.parquet", "--config", "grid.toml", "--slices", "3,6", "--quiet")
    assert cli.main([*compared, "--report", "here"]) == 0
    status, _, said = covey(head, folder, *compared, "--report", "there", "--on", "ray")

    assert status == 0, said
    here, there = (folder / place / "comparison.json" for place in ("here", "there"))
    assert there.read_bytes() == here.read_bytes()


def test_a_cluster_advises_as_one_machine(
    head: Host, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    advised = ("advise", "log.parquet", "--config", "grid.toml", "--prices", "0,0.1", "--quiet")
    assert cli.main([*advised, "--workers", "1", "--json"]) == 0
    status, there, said = covey(head, folder, *advised, "--json", "--on", "ray")

    assert status == 0, said
    assert there == capsys.readouterr().out


def test_a_cluster_beyond_the_loopback_needs_tokens(head: Host, folder: Path) -> None:
    address = f"ray://{head.address}:{CLIENT_PORT}"
    status, _, said = covey(
        head, folder, "simulate", "--quiet", "--on", address, RAY_AUTH_MODE="disabled"
    )

    assert status == 2
    assert "set RAY_AUTH_MODE=token here and on all nodes" in said


def test_an_error_of_a_job_is_a_sentence_that_names_the_node(
    cluster: Cluster, head: Host, folder: Path
) -> None:
    elsewhere = str(folder / "log.parquet")
    grid = folder / "grid.toml"
    grid.write_text(grid.read_text().replace("delay = ", "revealed = "))
    words = ("compare", elsewhere, "--config", "grid.toml", "--slices", "3", "--quiet")
    status, _, said = covey(head, folder, *words, "--on", "ray")

    assert status == 2
    assert "it must be 0 or 1" in said
    workers = [f"(on node {host.address})" for host in (cluster.first, cluster.second)]
    assert said.rstrip().endswith(tuple(workers))
    assert said.count("\n") == 1


def test_no_cluster_at_an_address_is_one_sentence(head: Host, folder: Path) -> None:
    status, _, said = covey(
        head, folder, "simulate", "--quiet", "--on", "ray://127.0.0.1:9", RAY_AUTH_MODE="disabled"
    )

    assert status == 2
    assert "there is no Ray cluster at ray://127.0.0.1:9 (no answer within 5 s)" in said
    assert said.count("\n") == 1


def test_a_killed_raylet_changes_no_run(cluster: Cluster) -> None:
    assert same_runs_after(cluster, cluster.folder, "raylet", "raylet/raylet").holds


def test_a_killed_host_changes_no_run(cluster: Cluster) -> None:
    assert same_runs_after(cluster, cluster.folder, "host", "").holds


def test_without_workers_the_command_ends_with_a_sentence_and_keeps_runs(cluster: Cluster) -> None:
    assert lost_workers(cluster).holds


@pytest.mark.skipif(not is_compiled(), reason="without a compiled kernel all nodes have the plain")
def test_a_node_with_another_kernel_is_refused_by_its_address(cluster: Cluster) -> None:
    assert other_kernel(cluster.folder).holds
