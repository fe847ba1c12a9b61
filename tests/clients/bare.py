"""Import modules of a package without the package itself, which may need far more."""

import importlib.util
import sys
import types


def bare(name: str) -> None:
    """Let modules of the package be imported without running its `__init__`."""
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.submodule_search_locations is not None
    package = types.ModuleType(name)
    package.__path__ = list(found.submodule_search_locations)
    sys.modules[name] = package
