"""A function that answers only when a test lets it."""

import threading
from typing import Any

ENTERED, RELEASED = threading.Event(), threading.Event()


def answer(instance: Any) -> int:
    """Return 0 once the test has set `RELEASED`."""
    ENTERED.set()
    RELEASED.wait(60)
    return 0
