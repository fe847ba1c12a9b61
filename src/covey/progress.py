"""A progress line on standard error."""

import sys
import time
from typing import Self

SECONDS_BETWEEN = {True: 0.1, False: 5.0}  # on a terminal; in a file, where lines accumulate


class Progress:
    """Prints share, slots and speed; called with the finished share and the slots so far."""

    def __init__(self, name: str, *, is_quiet: bool = False) -> None:
        self._name = name
        self._is_quiet = is_quiet
        self._is_terminal = sys.stderr.isatty()
        self._started = self._shown = time.monotonic()
        self._slots = 0

    def __enter__(self) -> Self:
        return self

    def __call__(self, share: float, slots: int) -> None:
        """Print the progress, at most once per interval."""
        self._slots = slots
        now = time.monotonic()
        if now - self._shown >= SECONDS_BETWEEN[self._is_terminal]:
            self._shown = now
            left_s = (now - self._started) * (1 - share) / share if share else 0.0
            self._print(f"{100 * share:3.0f} %, {slots:,} slots, {left_s:.0f} s left")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        taken_s = time.monotonic() - self._started
        if kind is None:
            speed = self._slots / max(taken_s, 1e-9)
            self._print(f"{self._slots:,} slots in {taken_s:.1f} s ({speed:,.0f} a second)")
        if self._is_terminal and not self._is_quiet:
            print(file=sys.stderr)

    def _print(self, text: str) -> None:
        if self._is_quiet:
            return
        if self._is_terminal:
            print(f"\r\x1b[2K{self._name}: {text}", end="", file=sys.stderr, flush=True)
        else:
            print(f"{self._name}: {text}", file=sys.stderr)
