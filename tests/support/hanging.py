"""Functions that hang or raise, for sites that are served in this process or in another one."""

import threading
from typing import Any


class Gate:
    """While it is shut, calls do not return."""

    def __init__(self) -> None:
        self._is_open = threading.Event()
        self.is_called = threading.Event()
        self.open()

    def open(self) -> None:
        self._is_open.set()

    def shut(self) -> None:
        self.is_called.clear()
        self._is_open.clear()

    def __call__(self, instance: Any) -> int:
        self.is_called.set()
        self._is_open.wait()
        return 1


gate = Gate()


def never(instance: Any) -> int:
    """Do not return."""
    threading.Event().wait()
    return 1


def interrupt(instance: Any) -> int:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt
