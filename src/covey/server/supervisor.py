"""The processes of a sharded site: they are started, started again after a crash, and stopped."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from covey.errors import CoveyError, StoreAway
from covey.server import shard_messages as messages
from covey.server.channel import CallingEnd, ChannelClosed, connected
from covey.server.shard_messages import AnyCall

log = logging.getLogger(__name__)
FIRST_WAIT_S, MOST_WAIT_S = 0.1, 5.0  # before a shard that crashed is started again
STEADY_S = 10.0  # after which a shard that crashes counts as having crashed for the first time
LOCKED_S = 5.0  # for which a store may still be in use by a shard of a router that was killed
STOP_S = 15.0
IDS_AT_ONCE = 65_536
OnStart = Callable[[int, messages.Started], None]


class ShardProcess:
    """One shard: its process, and the channel to it."""

    def __init__(self, start: messages.Start) -> None:
        """`start` says which part of which site it is."""
        self._start = start
        self._process: asyncio.subprocess.Process | None = None
        self._channel: CallingEnd | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.is_up = False
        self.restarts = 0

    @property
    def pid(self) -> int:
        """The id of the process; 0: there is none."""
        return 0 if self._process is None else self._process.pid

    async def call(self, call: AnyCall) -> Any:
        """Return what a call gives; raise its `CoveyError`, or `ChannelClosed`."""
        if self._channel is None or not self.is_up:
            raise ChannelClosed("the shard is not up")
        return await self._channel.call(call)

    async def begin(self) -> messages.Started:
        """Start the process; raise `CoveyError` if it cannot use its file or store."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LOCKED_S
        while True:
            try:
                return await self._launch()
            except StoreAway:
                if loop.time() > until_s:
                    raise
            await asyncio.sleep(FIRST_WAIT_S)

    async def ids(self) -> list[tuple[str, str]]:
        """Return the sources and ids of the requests that it knows."""
        keys: list[tuple[str, str]] = []
        at = 0
        while True:
            found = await self.call(messages.ListIds(at, IDS_AT_ONCE))
            keys += found.keys
            if not found.last:
                return keys
            at = found.last

    def watch(self, again: OnStart) -> None:
        """Start the process again whenever it ends, and call `again` then, until `stop`."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch(again))

    async def stop(self) -> None:
        """End the process, after the calls in progress."""
        self._is_stopping = True
        if self._watcher is not None:
            self._watcher.cancel()
        with contextlib.suppress(ChannelClosed, TimeoutError, CoveyError):
            await asyncio.wait_for(self.call(messages.Stop()), STOP_S)
        await self._end()

    async def _launch(self) -> messages.Started:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # it finds the modules that this process finds, in the same places
                "-m",
                "covey.server.shard",
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        ours.setblocking(False)
        channel = await connected(CallingEnd, ours)
        assert isinstance(channel, CallingEnd)
        self._channel = channel
        try:
            started: messages.Started = await channel.call(self._start)
        except BaseException:
            await self._end()
            raise
        self.is_up = True
        channel.closed.add_done_callback(self._lost)
        return started

    def _lost(self, closed: "asyncio.Future[None]") -> None:
        self.is_up = False

    async def _watch(self, again: OnStart) -> None:
        loop, wait_s = asyncio.get_running_loop(), FIRST_WAIT_S
        number, shards = self._start.number, self._start.shards
        while True:
            assert self._channel is not None
            begun_s = loop.time()
            await asyncio.wait([self._channel.closed])
            code = await self._end()
            if loop.time() - begun_s > STEADY_S:
                wait_s = FIRST_WAIT_S
            log.error("shard %d of %d ended (%s); it is started again", number, shards, code)
            while not self.is_up:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, MOST_WAIT_S)
                try:
                    started = await self._launch()
                except (CoveyError, OSError) as error:
                    log.error("shard %d of %d cannot start: %s", number, shards, error)
                    continue
                self.restarts += 1
                again(number - 1, started)
                log.info("shard %d of %d is up again", number, shards)

    async def _end(self) -> int | None:
        """Close the channel, which ends the process; return its exit code."""
        self.is_up = False
        if self._channel is not None:
            self._channel.close()
        if self._process is None:
            return None
        try:
            return await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            return await self._process.wait()
