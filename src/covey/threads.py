"""What blocks, in threads: the store in one, functions in another."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from covey.store import Store


class Threads:
    """Runs what blocks, one at a time in each thread: a classifier need not bear two callers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writer = ThreadPoolExecutor(1, "covey-store")
        self._runner = ThreadPoolExecutor(1, "covey-functions")

    async def __call__(self, run: Callable[..., Any], /, *given: Any) -> Any:
        """Return what `run` returns."""
        pool = self._writer if getattr(run, "__self__", None) is self._store else self._runner
        return await asyncio.get_running_loop().run_in_executor(pool, run, *given)

    def close(self) -> None:
        """Wait for what is under way."""
        self._runner.shutdown()
        self._writer.shutdown()
