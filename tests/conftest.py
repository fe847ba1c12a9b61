"""Examples are the same in every run; `--hypothesis-profile searching` looks for others."""

import gc
from pathlib import Path

import pytest
from hypothesis import settings

from support import slowest

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("searching", deadline=None, print_blob=True)
settings.load_profile("repeatable")

# Folders of tests in which the form of the kernel changes nothing, besides the marked modules.
BESIDE_THE_KERNEL = {"data", "experiments", "facades", "functions", "report", "server"}
HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slowest", type=int, default=10, help="tests to name with CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(slowest)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these folders, so that they run with one form of the kernel only."""
    for item in items:
        if item.path.relative_to(HERE).parts[0] in BESIDE_THE_KERNEL:
            item.add_marker(pytest.mark.beside_the_kernel)


def pytest_collection() -> None:
    """Imports and tests are all kept: looking for garbage among them takes seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()
