"""Spans, where the parts of a request begin and end."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar

# The headers by which a peer continues a trace, during a call to it; a transport passes them on.
TRACE: ContextVar[Mapping[str, str] | None] = ContextVar("TRACE", default=None)


class Span:
    """A span with no-op methods, which begins and ends with a `with` block."""

    def __enter__(self) -> "Span":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, key: str, value: str | int) -> None:
        """Add an attribute."""


NO_SPAN = Span()


class Spans:
    """Begins spans that measure nothing; `covey.server.otel` has those that do."""

    def request(self, method: str, path: str, headers: Mapping[str, str]) -> Span:
        """Begin the span of a request of a client or a peer, whose headers may name a trace."""
        return NO_SPAN

    def peer(self, name: str, call: str) -> Span:
        """Begin the span of a call to a peer."""
        return NO_SPAN

    def function(self, name: str, rows: int) -> Span:
        """Begin the span of rows that an own function answers."""
        return NO_SPAN

    def commit(self, waiting: Sequence[object]) -> Span:
        """Begin the span of a commit, for which spans wait that `here` has returned."""
        return NO_SPAN

    def here(self) -> object | None:
        """Return what names the span in progress; None: there is none."""
        return None


NO_SPANS = Spans()
