"""All errors are in one hierarchy, and the drawn hierarchy is complete."""

import inspect
import re

from covey import errors
from covey.errors import CoveyError

CLASSES = [
    one
    for _, one in inspect.getmembers(errors, inspect.isclass)
    if one.__module__ == "covey.errors" and not issubclass(one, Warning)
]


def drawn() -> list[tuple[str, str]]:
    """Return every class of the drawing with the one it hangs from."""
    lines = [
        re.match(r"([│├└─ ]*)([A-Z]\w+)", one) for one in (errors.__doc__ or "").split("\n")[2:]
    ]
    path: list[str] = []
    found = []
    for line in filter(None, lines):
        depth = len(line[1]) // 4
        path[depth:] = [line[2]]
        found.append((line[2], path[depth - 1] if depth else "Exception"))
    return found


def test_every_error_is_a_covey_error() -> None:
    assert len(CLASSES) > 15
    assert all(issubclass(one, CoveyError) for one in CLASSES)


def test_the_drawn_hierarchy_matches_the_classes() -> None:
    assert sorted(drawn()) == sorted((one.__name__, one.__bases__[0].__name__) for one in CLASSES)
