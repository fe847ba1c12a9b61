"""A simulation runs every task once and resumes after interruptions."""

import multiprocessing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from covey.errors import ConfigError, LimitError
from covey.simulation import runner, scenario
from covey.simulation.run import Run
from covey.simulation.scenario import Scenario
from support.plays import die, fail_late, play

TABLES: dict[str, Any] = {
    "scenario": {"horizon-slots": 1000, "seeds": 3, "checkpoints": [10, 100], "workers": 2},
    "policy": [{"name": "grid", "preset": "cos", "slices": 4}, {"name": "zoom", "preset": "dcza"}],
    "environment": [{"name": "one", "case": "C1"}, {"name": "all", "case": "C2"}],
}
RUNS = 2 * 2 * 3


@pytest.fixture(scope="module")
def chosen() -> Scenario:
    return scenario.load(TABLES)


@pytest.fixture(scope="module")
def whole(chosen: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a simulation that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    runner.simulate(chosen, folder, play=play)
    return folder


def test_every_policy_runs_in_every_environment_with_every_seed(whole: Path) -> None:
    found = {tuple(path.relative_to(whole / "runs").parts) for path in run_files(whole)}

    assert found == {
        (policy, environment, f"{seed}.json")
        for policy in ("grid", "zoom")
        for environment in ("one", "all")
        for seed in range(3)
    }


def test_results_have_a_row_per_run_checkpoint_and_cause(whole: Path) -> None:
    table = pq.read_table(whole / "results.parquet").to_pylist()

    assert len(table) == RUNS * 3 * 2
    assert list(table[0]) == [
        "policy", "environment", "seed", "learners", "slot", "cause", "regret"
    ]  # fmt: skip
    assert {
        "policy": "grid", "environment": "all", "seed": 1, "learners": 4, "slot": 100,
        "cause": "exploration", "regret": 3 * 100**0.501,
    } in table  # fmt: skip


def test_an_interrupted_simulation_resumes_with_the_same_results(
    whole: Path, chosen: Scenario, tmp_path: Path
) -> None:
    told: list[float] = []

    def interrupt_halfway(share: float, slots: int) -> None:
        told.append(share)
        if share >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.simulate(chosen, tmp_path, play=play, progress=interrupt_halfway)
    before = {path: stamp(path) for path in run_files(tmp_path)}
    runner.simulate(chosen, tmp_path, play=play)

    assert told == [count / RUNS for count in range(1, RUNS // 2 + 1)]
    assert len(before) == RUNS // 2
    assert {path: stamp(path) for path in before} == before
    assert contents(tmp_path) == contents(whole)
    results = [pq.read_table(folder / "results.parquet") for folder in (tmp_path, whole)]
    assert results[0].equals(results[1])


def test_an_interruption_leaves_no_process_and_no_part_of_a_file(
    chosen: Scenario, tmp_path: Path
) -> None:
    def interrupt(share: float, slots: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.simulate(chosen, tmp_path, play=play, progress=interrupt)

    assert multiprocessing.active_children() == []
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [
        "scenario.json",
        "0.json",
    ]


def test_a_finished_simulation_runs_nothing_again(whole: Path, chosen: Scenario) -> None:
    before = {path: stamp(path) for path in run_files(whole)}
    told: list[float] = []

    again = runner.simulate(
        chosen, whole, play=die, progress=lambda share, slots: told.append(share)
    )

    assert len(again) == RUNS
    assert told == []
    assert {path: stamp(path) for path in run_files(whole)} == before


def test_more_seeds_extend_a_finished_simulation(whole: Path, tmp_path: Path) -> None:
    runner.simulate(scenario.load(TABLES, seeds=1), tmp_path, play=play)
    before = {path: stamp(path) for path in run_files(tmp_path)}

    found = runner.simulate(scenario.load(TABLES, seeds=3, workers=1), tmp_path, play=play)

    assert len(before) == 4
    assert {path: stamp(path) for path in before} == before
    assert [run.seed for run in found] == [0] * 4 + [1] * 4 + [2] * 4
    assert contents(tmp_path) == contents(whole)


def test_a_damaged_run_file_is_run_again(whole: Path, chosen: Scenario, tmp_path: Path) -> None:
    runner.simulate(scenario.load(TABLES, seeds=1), tmp_path, play=play)
    torn = tmp_path / "runs/grid/one/0.json"
    torn.write_bytes(torn.read_bytes()[:40])

    runner.simulate(chosen, tmp_path, play=play)

    assert contents(tmp_path) == contents(whole)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scenario": {"horizon-slots": 2000}}, "horizon-slots is 1000 there and 2000 here"),
        ({"scenario": {"horizon-slots": 1000}}, "checkpoints is "),
        ({"policy": [{"name": "grid", "preset": "cos", "slices": 5}, *TABLES["policy"][1:]]},
         "policy grid slices is 4 there and 5 here"),
        ({"environment": [{"name": "one", "case": "C3"}, *TABLES["environment"][1:]]},
         "environment one case is 'C1' there and 'C3' here"),
    ],
)  # fmt: skip
def test_a_folder_of_another_scenario_is_refused_with_the_reason(
    whole: Path, change: dict[str, Any], reason: str
) -> None:
    before = {path: stamp(path) for path in whole.rglob("*") if path.is_file()}

    with pytest.raises(ConfigError, match="holds runs of another scenario") as caught:
        runner.simulate(scenario.load({**TABLES, **change}), whole, play=play)

    assert reason in str(caught.value)
    assert {path: stamp(path) for path in whole.rglob("*") if path.is_file()} == before


def test_a_run_that_fails_is_named_and_those_before_it_are_kept(tmp_path: Path) -> None:
    one_by_one = scenario.load(TABLES, workers=1)

    with pytest.raises(LimitError, match="policy 'grid' in environment 'one', seed 2: more than 7"):
        runner.simulate(one_by_one, tmp_path, play=fail_late)

    assert len(run_files(tmp_path)) == 8


def test_a_killed_worker_is_reported(chosen: Scenario, tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="a worker process was killed"):
        runner.simulate(chosen, tmp_path, play=die)

    assert multiprocessing.active_children() == []


def run_files(folder: Path) -> list[Path]:
    return sorted((folder / "runs").rglob("*.json"))


def stamp(path: Path) -> tuple[bytes, int, int]:
    return path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino


def contents(folder: Path) -> dict[str, Run]:
    """Return all runs without the seconds that they took."""
    return {
        str(path.relative_to(folder)): msgspec.structs.replace(
            msgspec.json.decode(path.read_bytes(), type=Run), seconds=0.0
        )
        for path in run_files(folder)
    }
