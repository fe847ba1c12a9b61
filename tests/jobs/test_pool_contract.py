"""Every place of jobs gives their results, their own errors, and what follows from results."""

import operator
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from covey.errors import ConfigError
from covey.jobs import running
from covey.jobs.ray_cluster import check_address, check_fingerprint, fingerprint
from covey.jobs.running import finished, path_of, worked
from covey.toml import check_range

SCRIPT = """
import covey

tables = {
    "scenario": {"horizon-slots": 50, "seeds": 2, %s},
    "policy": [{"name": "cos", "preset": "cos"}],
    "environment": [{"name": "bumps"}],
}
print(len(covey.simulate(tables, "out")))
"""
places = pytest.mark.parametrize("workers", [1, 2])  # a Ray cluster is in test_ray_cluster.py


@places
def test_all_results_arrive(workers: int) -> None:
    results = finished(range(9), lambda n: partial(operator.pow, n, 2), workers=workers)

    assert dict(results) == {number: number**2 for number in range(9)}


@places
def test_an_error_is_the_one_that_the_job_raised_and_names_the_job(workers: int) -> None:
    results = finished(
        [7, 8],
        lambda n: partial(check_range, n, 1, 3, "speed"),
        workers=workers,
        title="job {}".format,
    )

    with pytest.raises(ConfigError, match="^job ([78]): speed is \\1"):
        next(results)


def test_finished_work_is_kept_and_a_damaged_file_is_worked_again(tmp_path: Path) -> None:
    calls = {number: partial(operator.pow, number, 2) for number in (3, 1, 2)}
    paths = {number: path_of(call, tmp_path) for number, call in calls.items()}
    told: list[tuple[float, int]] = []

    def work(calls: Any) -> dict[int, int]:
        return worked(
            calls,
            kind=int,
            paths=paths,
            workers=1,
            on=None,
            progress=lambda share, result: told.append((share, result)),
        )

    assert len({*paths.values()}) == 3
    assert list(work(calls).items()) == [(3, 9), (1, 1), (2, 4)]
    assert told == [(1 / 3, 9), (2 / 3, 1), (1.0, 4)]
    paths[1].write_text("[")
    del told[:]
    others = {number: partial(operator.mul, number, 2) for number in calls}
    assert list(work(others).items()) == [(3, 9), (1, 2), (2, 4)]
    assert told == [(1.0, 2)]


class DoneAtOnce:
    """A pool whose calls have all ended before anybody looks."""

    workers = 3

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call())
        except ConfigError as error:
            future.set_exception(error)
        return future

    def result(self, future: Future[Any]) -> Any:
        return future.result()


def test_finished_jobs_come_before_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_pool", lambda *_, **__: nullcontext(DoneAtOnce()))
    results = finished(range(6), lambda n: partial(check_range, n, 2, 4, "speed"), workers=2)
    come = [next(results)[0] for _ in range(3)]

    assert sorted(come) == [2, 3, 4]
    with pytest.raises(ConfigError, match="speed is"):
        next(results)


def test_what_only_this_process_has_runs_here_or_not_at_all() -> None:
    here = finished(range(3), lambda n: lambda: n, workers=2, is_importable=False)

    assert dict(here) == {0: 0, 1: 1, 2: 2}
    with pytest.raises(ConfigError, match="only this process has"):
        list(finished([1], lambda n: lambda: n, workers=2, on="ray", is_importable=False))


@pytest.mark.parametrize("on", ["spark", "ray://", "ray://head", "ray://head:port", ""])
def test_an_address_that_is_none_is_refused(on: str) -> None:
    with pytest.raises(ConfigError, match="use ray, or ray://host:port"):
        check_address(on)


@pytest.mark.parametrize("key", fingerprint())
def test_a_node_that_could_give_other_results_is_refused_by_name(key: str) -> None:
    here = fingerprint()

    check_fingerprint("10.0.0.3", here, here=here)
    with pytest.raises(ConfigError, match=f"node 10.0.0.3 .* {key} other there, .* here"):
        check_fingerprint("10.0.0.3", {**here, key: "other"}, here=here)


@pytest.mark.parametrize(
    ("keys", "code", "printed", "sentence"),
    [
        ("", 0, "2\n", ""),
        ('"workers": 1', 0, "2\n", ""),
        ('"workers": 2', 1, "", 'mine.py again; put its calls under `if __name__ == "__main__":`'),
    ],
)
def test_a_script_without_a_guard_simulates_in_its_own_process_only(
    tmp_path: Path, keys: str, code: int, printed: str, sentence: str
) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT % keys)
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (code, printed)
    assert sentence in done.stderr
