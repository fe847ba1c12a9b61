"""How much a test plays: enough in `make test`, and more in `make long`."""

import os

from covey.kernel import is_compiled

IS_LONG = bool(os.environ.get("COVEY_LONG"))


def effort(usual: int, *, long: int, plain: int | None = None) -> int:
    """Return how many examples, seeds or slots a test plays.

    The plain kernel is much slower, so a test can play less with it.
    """
    if IS_LONG:
        return long
    return usual if plain is None or is_compiled() else plain
