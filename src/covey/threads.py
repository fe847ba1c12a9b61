"""What blocks, in threads: the store in one, functions in another."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from covey.store import Batch, Store
from covey.watchers import Watcher


class Threads:
    """Runs what blocks, one at a time in each thread: a classifier need not bear two callers."""

    def __init__(self, store: Store, watcher: Watcher | None = None) -> None:
        """`watcher` hears how long batches take to write."""
        self._store = store
        self._watcher = Watcher() if watcher is None else watcher
        self._writer = ThreadPoolExecutor(1, "covey-store")
        self._runner = ThreadPoolExecutor(1, "covey-functions")

    async def __call__(self, run: Callable[..., Any], /, *given: Any) -> Any:
        """Return what `run` returns."""
        if run == self._store.commit:
            return await self._commit(*given)
        pool = self._writer if getattr(run, "__self__", None) is self._store else self._runner
        return await asyncio.get_running_loop().run_in_executor(pool, run, *given)

    async def _commit(self, batch: Batch) -> None:
        loop, is_written = asyncio.get_running_loop(), False
        begun_s = loop.time()
        try:
            await loop.run_in_executor(self._writer, self._store.commit, batch)
            is_written = True
        finally:
            self._watcher.write(loop.time() - begun_s, is_written=is_written)

    def close(self) -> None:
        """Wait for what is under way."""
        self._runner.shutdown()
        self._writer.shutdown()
