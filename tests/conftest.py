"""Examples are the same in every run; `--hypothesis-profile searching` looks for others."""

import gc

import pytest
from hypothesis import settings

from support import slowest

# Files with tests of several seconds: they come first, or one worker would wait for another's last.
LONG = {
    *("test_browser", "test_docs", "test_failover", "test_instructions", "test_kills"),
    *("test_mutants", "test_ray_cluster", "test_reproduction", "test_sites_demo", "test_storm"),
    *("test_teeth", "test_trust_experiment"),
}

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("searching", deadline=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slowest", type=int, default=10, help="tests to name with CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(slowest)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)


def pytest_collection() -> None:
    """Imports and tests are all kept: looking for garbage among them takes seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()
