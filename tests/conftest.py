"""Examples are the same in every run; `--hypothesis-profile searching` looks for others."""

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("searching", deadline=None, print_blob=True)
settings.load_profile("repeatable")

# Folders of tests in which the form of the kernel changes nothing, besides the marked modules.
BESIDE_THE_KERNEL = {"data", "functions", "report"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these folders, so that they run with one form of the kernel only."""
    for item in items:
        if item.path.parent.name in BESIDE_THE_KERNEL:
            item.add_marker(pytest.mark.beside_the_kernel)
