"""Every place of jobs gives their results, their own errors, and what follows from results."""

import contextlib
import operator
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import pytest

from covey.errors import ConfigError
from covey.jobs.fingerprint import Fingerprint, fingerprint
from covey.jobs.ray_cluster import check_address, check_fingerprint
from covey.jobs.running import Pool, SameProcess, completed, open_pool
from covey.toml import check_range

pytestmark = pytest.mark.beside_the_kernel

PLACES: dict[str, Callable[[], AbstractContextManager[Pool]]] = {
    "this process": SameProcess,
    "processes": lambda: open_pool(None, workers=2),
}  # a Ray cluster is the third: test_ray_cluster.py


@pytest.fixture(scope="module", params=PLACES)
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with PLACES[request.param]() as found:
        yield found


def squared(workers: Pool, number: int) -> "Future[Any]":
    return workers.submit(operator.pow, number, 2)


def test_all_results_arrive(pool: Pool) -> None:
    found = {job: future.result() for job, future in completed(range(9), squared, pool)}

    assert found == {number: number**2 for number in range(9)}
    assert len(PLACES) == 2


def test_a_result_can_be_followed_by_another_job(pool: Pool) -> None:
    jobs, found = deque([2, 3]), []
    for _, future in completed(jobs, squared, pool):
        found.append(future.result())
        if found[-1] < 50:
            jobs.append(found[-1])

    assert sorted(found) == [4, 9, 16, 81, 256]


def test_an_error_is_the_one_that_the_job_raised(pool: Pool) -> None:
    future = pool.submit(check_range, 7, 1, 3, "speed")

    with pytest.raises(ConfigError, match="speed is 7"):
        future.result()


def test_a_failed_job_does_not_lose_those_that_finished(pool: Pool) -> None:
    def submit(workers: Pool, number: int) -> "Future[Any]":
        return workers.submit(operator.floordiv, 6, number)

    with contextlib.closing(completed([1, 0], submit, pool)) as results:
        (first, good), (second, bad) = results

    assert (first, good.result(), second) == (1, 6, 0)
    with pytest.raises(ZeroDivisionError):
        bad.result()


def test_what_only_this_process_has_runs_here_or_not_at_all() -> None:
    with open_pool(None, workers=2, is_importable=False) as here:
        assert isinstance(here, SameProcess)
    with pytest.raises(ConfigError, match="only this process has"):
        open_pool("ray", workers=2, is_importable=False)


@pytest.mark.parametrize("on", ["spark", "ray://", "ray://head", "ray://head:port", ""])
def test_an_address_that_is_none_is_refused(on: str) -> None:
    with pytest.raises(ConfigError, match="use ray, or ray://host:port"):
        check_address(on)


@pytest.mark.parametrize("field", Fingerprint._fields)
def test_a_node_that_could_give_other_results_is_refused_by_name(field: str) -> None:
    here = fingerprint()
    there = here._replace(**{field: "other"})

    check_fingerprint("10.0.0.3", here, expected=here)
    with pytest.raises(ConfigError, match=f"node 10.0.0.3 .* {field} other there, .* here"):
        check_fingerprint("10.0.0.3", there, expected=here)
