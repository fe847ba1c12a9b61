"""The CPU seconds of the slowest tests, their processes included, after every run of tests.

CPU seconds hardly depend on what else the machine does. `--slowest 50` prints more of them.
"""

import time
from collections import Counter
from collections.abc import Generator
from pathlib import PurePosixPath
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import pytest

KEY = "cpu_s"  # in the properties of a report, one for each of setup, call and teardown


def _cpu_s() -> float:
    children = getrusage(RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _measured(item: pytest.Item) -> Generator[None, Any, Any]:
    before_s = _cpu_s()
    try:
        return (yield)
    finally:
        item.user_properties.append((KEY, _cpu_s() - before_s))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Any:
    return (yield from _measured(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    return (yield from _measured(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Any:
    return (yield from _measured(item))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the sum, the sums of folders, and the slowest tests; those of parameters together."""
    tests: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if getattr(report, "when", "") == "teardown":
            spent_s = sum(value for key, value in report.user_properties if key == KEY)
            tests[report.nodeid.split("[")[0]] += spent_s
            folders[PurePosixPath(report.nodeid.split("::")[0]).parent.as_posix()] += spent_s
    count = config.getoption("slowest")
    if not count or not tests:
        return
    terminalreporter.section(f"CPU seconds: {tests.total():.0f}")
    terminalreporter.line(", ".join(f"{name} {cpu_s:.0f}" for name, cpu_s in folders.most_common()))
    for name, spent_s in tests.most_common(count):
        terminalreporter.line(f"{spent_s:7.1f}  {name}")
