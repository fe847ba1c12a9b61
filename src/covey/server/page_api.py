"""The paths for people: the live page of a site, its files, and log-ins."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol
from urllib.parse import parse_qsl

import msgspec

from covey.bandit.preferences import CellPreference
from covey.node.series import DAY_S, MINUTE_S, SiteHistory
from covey.node.tables import HOUR_S
from covey.server import page, tokens
from covey.server.config import SiteConfig
from covey.server.drawings import Axis, plain_axes
from covey.server.events import EventLog
from covey.server.http import (
    AdmissionQueue,
    Caller,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    content_type,
)
from covey.server.markup import Markup
from covey.server.metrics import disk_use
from covey.server.pulse import Pulse
from covey.server.routed_node import AnyNode
from covey.server.streams import MOST_STREAMS, EventStreams
from covey.server.summaries import PeerStatuses

PAGE, EVENTS, LOG_IN, SESSION, LOG_OUT = "/", "/events", "/login", "/session", "/logout"
ASSET_PATHS = {f"/assets/{name}": name for name in page.ASSETS}
WITHOUT_TOKEN = frozenset([LOG_IN, SESSION, LOG_OUT, *ASSET_PATHS])
MOST_CELLS = 400  # of the map
MAP_S = 10.0  # for which browsers see the same map
MOST_QUERY = 200  # characters that are read
FORM = "application/x-www-form-urlencoded"


class Door(Protocol):
    """Logs people in and out: see `TokenAuth`."""

    def admit(self, head: HttpRequest, connection: None) -> Caller: ...

    def log_in(self, secret: str, cookie: str | None) -> str | tokens.Refused: ...

    def log_out(self, cookie: str | None) -> str: ...


class PageApi:
    """Answers people at one site; nothing that they send changes more than their session."""

    def __init__(
        self,
        served: SiteConfig,
        node: AnyNode,
        queue: AdmissionQueue,
        *,
        events: EventLog | None = None,
        door: Door | None = None,
        pulse: Pulse | None = None,
        history: SiteHistory | None = None,
        streams: EventStreams | None = None,
        peers: PeerStatuses | None = None,
        cells: Callable[[], list[CellPreference]] = list,
    ) -> None:
        """Without a `door` the site has no tokens, and nobody has to log in.

        `cells` returns those of the map.
        """
        self._cells = cells
        self._served, self._node, self._queue = served, node, queue
        self._events, self._door, self._pulse = events, door, pulse or Pulse()
        self._history = history or SiteHistory()
        self._peers = peers or PeerStatuses()
        self._axes = _axes(served)
        self._streams = EventStreams() if streams is None else streams
        self._streams.use(self._sections, self._may_read)
        self._maps: dict[str, tuple[float, Markup]] = {}  # by query, and when they were drawn
        self._answers: dict[str, Callable[[HttpRequest], HttpResponse]] = {
            "page": lambda call: page.page(self._content(call.query)),
            "events": self._event,
            "asset": lambda call: page.asset(ASSET_PATHS[call.path]),
            "login": self._form,
            "session": self._log_in,
            "logout": self._log_out,
        }

    def handle(self, name: str, call: HttpRequest) -> HttpResponse:
        """Answer at the route of this name."""
        if name in ("page", "events") and "read" not in call.rights:
            return self._refused(name, call)
        return self._answers[name](call)

    def _refused(self, name: str, call: HttpRequest) -> HttpResponse:
        if call.rights:
            raise HttpProblem(403, "not_allowed", tokens.Refused("scope").sentence)
        if name == "events":
            raise HttpProblem(401, "no_token", "log in again", {"WWW-Authenticate": "Bearer"})
        return page.redirect(LOG_IN)

    def _event(self, call: HttpRequest) -> HttpResponse:
        """Return a stream of events, to programs that say that they understand it.

        Others, and those beyond the limit, get one event and ask again.
        """
        query = call.query[:MOST_QUERY]
        given = page.events(self._streams.latest(query))
        if page.STREAM_KIND not in call.headers.get("accept", "").lower():
            return given
        if len(self._streams) >= MOST_STREAMS:
            return given
        follow = partial(self._streams.follow, call, query)
        return msgspec.structs.replace(given, follow=follow)

    def _may_read(self, call: HttpRequest) -> bool:
        """Return whether the token or the session of a request is valid still."""
        try:
            return self._door is None or "read" in self._door.admit(call, None).rights
        except HttpProblem:
            return False

    def _sections(self, query: str) -> dict[str, Markup]:
        """Return the sections for a stream; the map, which costs the most, is drawn less often."""
        now_s = asyncio.get_running_loop().time()
        self._maps = {key: one for key, one in self._maps.items() if now_s - one[0] < MAP_S}
        known = self._maps.get(query)
        parts = page.sections(self._content(query, None if known is None else known[1]))
        if known is None:
            self._maps[query] = now_s, parts["map"]
        return parts

    def _content(self, query: str, earlier_map: Markup | None = None) -> page.PageContent:
        """Return what the page shows now; the query says which contexts the map has."""
        cells = [] if earlier_map else self._cells()
        state, moment = self._node.state(), datetime.now(UTC)
        now_s = moment.timestamp()
        self._history.note(state.arms, now_s)
        return page.PageContent(
            state,
            moment,
            self._queue.in_progress,
            self._queue.waiting,
            disk_use(self._served.store),
            () if self._events is None else self._events.latest(),
            has_log_out=self._door is not None,
            minute=self._pulse.sample(self._node),
            cells=cells,
            axes=self._axes,
            chosen=_chosen(self._axes, query, cells),
            earlier_map=earlier_map,
            spans={name: self._history.span(span, now_s) for name, span in page.SPANS.items()},
            trends={
                "last hour": self._history.points(MINUTE_S, now_s - HOUR_S),
                "last day": self._history.points(HOUR_S, now_s - DAY_S),
            },
            peers=self._peers.look(),
        )

    # -- log-ins --------------------------------------------------------------------------------

    def _form(self, call: HttpRequest) -> HttpResponse:
        if self._door is None:
            return page.redirect(PAGE)
        return page.log_in_form(self._served.serving.name)

    def _log_in(self, call: HttpRequest) -> HttpResponse:
        given = self._checked(call).log_in(_token_of(call), call.headers.get("cookie"))
        if isinstance(given, tokens.Refused):
            name, status = self._served.serving.name, 403 if given.why == "scope" else 401
            return page.log_in_form(name, given.sentence, status)
        return page.redirect(PAGE, given)

    def _log_out(self, call: HttpRequest) -> HttpResponse:
        return page.redirect(LOG_IN, self._checked(call).log_out(call.headers.get("cookie")))

    def _checked(self, call: HttpRequest) -> Door:
        """Return the door, for a form that is from a page of the site itself."""
        if self._door is None:
            raise HttpProblem(403, "not_allowed", "this site has no tokens; nobody has to log in")
        # The gate has refused other origins; a browser sends this header with every form.
        if "origin" not in call.headers:
            raise HttpProblem(403, "not_allowed", "send the form from the page (no Origin header)")
        return self._door


def _axes(served: SiteConfig) -> list[Axis]:
    """Return the contexts, in the units of the features if the site makes them of these."""
    if not served.has_contexts:
        return plain_axes(served.learner.dimension)
    made = served.contexts
    parts = zip(made.names, made.ticks(), strict=True)
    return [Axis(place, name, ticks) for place, (name, ticks) in enumerate(parts)]


def _chosen(axes: Sequence[Axis], query: str, cells: Sequence[CellPreference]) -> list[Axis]:
    """Return the contexts that a query names, or the first two that have cells together."""
    given = dict(parse_qsl(query[:MOST_QUERY]))
    first = [*(cells[0].places[:2] if cells else ()), *range(len(axes))]
    wanted = [given.get("x", str(first[0])), given.get("y", str(first[1]))] if len(axes) > 1 else []
    by_place = {str(axis.place): axis for axis in axes}
    found = [by_place[place] for place in dict.fromkeys(wanted) if place in by_place]
    return found or list(axes[:2])


def _token_of(call: HttpRequest) -> str:
    if content_type(call.headers) != FORM:
        raise HttpProblem(415, "media_type", f"send a form ({FORM})")
    try:
        fields = parse_qsl(call.body.decode("ascii"), strict_parsing=True, max_num_fields=1)
    except ValueError:
        fields = []
    if len(fields) != 1 or fields[0][0] != "token":
        raise HttpProblem(422, "invalid", "send a form with the field token, and no other")
    return fields[0][1].strip()
