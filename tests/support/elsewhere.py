"""Functions that sites run in processes: they tell where they ran, and fail as asked."""

import os
import threading
from collections.abc import Sequence
from typing import Any


def pid(instance: Any) -> str:
    """Return the process that ran it; end that process, hang or raise if asked to."""
    text = str(instance)
    if "die" in text:
        os._exit(3)
    if "hang" in text:
        threading.Event().wait()
    if "raise" in text:
        raise ValueError(instance)
    if "interrupt" in text:
        raise KeyboardInterrupt
    return str(os.getpid())


class Batches:
    """Takes many rows at once, and tells in which process and how many."""

    def __init__(self, word: str = "") -> None:
        self._word = word

    def __call__(self, instance: Any) -> str:
        return f"{self._word}{os.getpid()} 1"

    def predict_many(self, rows: Sequence[Any]) -> list[str]:
        return [f"{self._word}{os.getpid()} {len(rows)}"] * len(rows)


def parity(instance: Any) -> int:
    """Return a label of the first value."""
    value = instance["size"] if isinstance(instance, dict) else instance[0]
    return int(value * 10) % 2


class Pupil:
    """Learns, which no function in processes can."""

    def predict(self, instance: Any) -> int:
        return 0

    def learn(self, instance: Any, label: Any) -> None:
        pass
