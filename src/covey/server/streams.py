"""Event streams of the live page: what changes is made once for all browsers that see the same."""

import asyncio
import time
from collections.abc import Callable, Mapping

from covey.server import page
from covey.server.http import HttpRequest, Reader, unexpected
from covey.server.markup import Markup

EVERY_S, MOST_EVERY_S = 2.0, 5.0  # between events
SHARE = 0.01  # of the time that may be spent on making them
FRESH_S = 1.0  # for which sections are not made again
MOST_STREAMS = 32
Parts = Mapping[str, Markup]


class _Audience:
    """What browsers with the same query see, and those that follow it."""

    def __init__(self, parts: Parts, now_s: float) -> None:
        self.parts, self.made_s = parts, now_s
        self.readers: dict[Reader, HttpRequest] = {}
        self.behind: set[Reader] = set()  # that have missed an event

    def forget(self, reader: Reader) -> None:
        self.readers.pop(reader, None)
        self.behind.discard(reader)

    def become(self, parts: Parts, now_s: float) -> None:
        """Send the readers what has changed; all, to those that have missed an event."""
        changed = {name: one for name, one in parts.items() if self.parts.get(name) != one}
        self.parts, self.made_s = parts, now_s
        sent, whole = page.event(changed), page.event(parts) if self.behind else b""
        for reader in list(self.readers):
            if reader.push(whole if reader in self.behind else sent):
                self.behind.discard(reader)
            else:
                self.behind.add(reader)


class EventStreams:
    """The open streams of a site; nothing is made while there is none."""

    def __init__(self) -> None:
        self._views: dict[str, _Audience] = {}  # by query
        self._timer: asyncio.TimerHandle | None = None
        self._make: Callable[[str], Parts] = lambda query: {}
        self._may_read: Callable[[HttpRequest], bool] = lambda call: True

    def __len__(self) -> int:
        return sum(len(view.readers) for view in self._views.values())

    def use(self, make: Callable[[str], Parts], may_read: Callable[[HttpRequest], bool]) -> None:
        """Show from now on what `make` returns for a query, to requests that may still read."""
        self._make, self._may_read = make, may_read

    def latest(self, query: str) -> Parts:
        """Return the sections for a query, which may be a second old."""
        return self._view(query).parts

    def follow(self, call: HttpRequest, query: str, reader: Reader) -> Callable[[], None]:
        """Send a reader all events; return what to call when it has left."""
        view = self._view(query)
        view.readers[reader] = call
        if self._timer is None:
            self._wait(0.0)

        def leave() -> None:
            view.forget(reader)
            if not len(self) and self._timer is not None:
                self._timer.cancel()
                self._timer = None

        return leave

    def _view(self, query: str) -> _Audience:
        now_s = asyncio.get_running_loop().time()
        self._views = {
            key: one
            for key, one in self._views.items()
            if one.readers or now_s - one.made_s < FRESH_S
        }
        if query not in self._views:
            self._views[query] = _Audience(self._make(query), now_s)
        return self._views[query]

    def _wait(self, took_s: float) -> None:
        pause_s = min(MOST_EVERY_S, max(EVERY_S, took_s / SHARE))
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._tick)

    def _tick(self) -> None:
        begun_s = time.thread_time()
        try:
            self._end_sessions()
            for query, view in list(self._views.items()):
                if view.readers:
                    view.become(self._make(query), asyncio.get_running_loop().time())
        except Exception as error:
            unexpected(error)
        self._timer = None
        if len(self):
            self._wait(time.thread_time() - begun_s)

    def _end_sessions(self) -> None:
        """End the streams of people that have logged out, or whose token is void."""
        for view in list(self._views.values()):
            for reader, call in list(view.readers.items()):
                if not self._may_read(call):
                    view.forget(reader)
                    reader.push(page.ENDED)
                    reader.finish()
