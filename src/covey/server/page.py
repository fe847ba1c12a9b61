"""The live page of a site, made of its state: complete without scripts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from importlib.metadata import version

import msgspec

from covey.bandit.preferences import CellPreference
from covey.node.series import Tally
from covey.node.status import ArmState, PeerState, State
from covey.server import drawings
from covey.server.drawings import Axis
from covey.server.events import SiteEvent
from covey.server.http import HttpResponse
from covey.server.markup import Markup, bar, join, table, tag
from covey.server.metrics import DiskUse
from covey.server.peer_messages import SiteInfo
from covey.server.pulse import LastMinute
from covey.server.summaries import PeerView, best_own, links_of, site_info
from covey.types import BY_CONTEXT, MILLIONTHS

HTML_KIND = "text/html; charset=utf-8"
STREAM_KIND = "text/event-stream"
ASSETS = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
RETRY_MS = 2_000  # after which a browser asks again when a stream has ended
ENDED = b"event: ended\ndata: log in again\n\n"  # the last event of a session
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
NONE = "\N{EN DASH}"
SPANS = {"last hour": 3_600.0, "last day": 86_400.0, "all": None}
KINDS = {"own": "own function", "peer": "peer", "context_only": "peer, sees the cell only"}
STATES = {"open": "ready", "resting": "resting", "over_budget": "over budget"}
PHASES = {
    "train": "rows that train a peer",
    "explore": "rows that try an arm",
    "exploit": "rows for the best arm",
    "serve": "rows of peers, by own functions",
    "recall": "rows of peers, by labels seen",
    "relay": "rows of peers, forwarded",
}


class PageContent(msgspec.Struct, frozen=True):
    """What the page shows."""

    state: State
    moment: datetime  # now
    in_progress: int = 0  # requests that are being answered
    waiting: int = 0  # and those that wait for their turn
    disk: DiskUse | None = None
    events: Sequence[SiteEvent] = ()
    has_log_out: bool = False
    minute: LastMinute = LastMinute(0.0, {}, {})
    cells: Sequence[CellPreference] = ()
    axes: Sequence[Axis] = ()  # of all contexts
    chosen: Sequence[Axis] = ()  # one or two of these, for the map
    earlier_map: Markup | None = None  # its section, if it need not be drawn again
    spans: Mapping[str, Mapping[str, Tally]] = {}  # what arms did, by spans of time
    trends: Mapping[str, Sequence[tuple[int, Tally]]] = {}  # the sums over time, by span
    peers: Sequence[PeerView] = ()  # what those with a url tell of themselves

    @property
    def info(self) -> SiteInfo:
        """What this site tells peers that may see its status."""
        return site_info(self.state, self.minute, self.spans.get("last hour", {}))


def page(content: PageContent) -> HttpResponse:
    """Return the page of a site."""
    late = tag("p", id="stale", role="status", class_="bad")
    plain = tag("noscript", tag("p", "Reload the page for newer numbers: scripts are off."))
    script = tag("script", src="/assets/page.js", defer=True)
    main = tag("main", *sections(content).values())
    return html(f"{content.state.name} \N{MIDDLE DOT} covey", late, plain, main, script)


def event(parts: Mapping[str, Markup]) -> bytes:
    """Return sections as a server-sent event."""
    return b"data: %b\n\n" % msgspec.json.encode(parts, enc_hook=str)


def events(parts: Mapping[str, Markup]) -> HttpResponse:
    """Return the first event of a stream, which may be the only one: then browsers ask again."""
    body = b"retry: %d\n%b" % (RETRY_MS, event(parts))
    # Proxies that hold back what they have read would hold back events.
    return HttpResponse(200, body, STREAM_KIND, HEADERS | {"X-Accel-Buffering": "no"})


def redirect(path: str, cookie: str | None = None) -> HttpResponse:
    """Return the way to another page of the site, with a cookie to set."""
    more = {} if cookie is None else {"Set-Cookie": cookie}
    return HttpResponse(303, b"", HTML_KIND, {**HEADERS, **more, "Location": path})


def log_in_form(site: str, why: str = "", status: int = 200) -> HttpResponse:
    """Return the form to log in; `why` says what was wrong with the token before."""
    told = tag("p", f"{why[:1].upper()}{why[1:]}.", id="why", role="alert", class_="bad")
    field = tag(
        "input",
        id="token",
        name="token",
        type="password",
        autocomplete="current-password",
        required=True,
        autofocus=True,
        maxlength="200",
        aria_describedby="why hint" if why else "hint",
    )
    hint = "A token with scope read, as covey tokens new printed it. You stay logged in for 12 h."
    form = tag(
        "form",
        tag("label", "Token", for_="token"),
        field,
        tag("p", hint, id="hint", class_="how"),
        tag("button", "Log in", type="submit"),
        method="post",
        action="/session",
    )
    heading = tag("h1", "Site ", tag("b", site))
    inside = tag("main", heading, _section("login", "Log in", *([told] if why else []), form))
    return html(f"Log in \N{MIDDLE DOT} {site} \N{MIDDLE DOT} covey", inside, status=status)


def html(title: str, *inside: Markup, status: int = 200) -> HttpResponse:
    """Return a document; it loads nothing but the assets of the site, and no script of others."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="/assets/icon.svg"),
        tag("link", rel="stylesheet", href="/assets/page.css"),
    )
    foot = tag("footer", f"covey {version('covey')}")
    whole = "<!doctype html>" + tag("html", head, tag("body", *inside, foot), lang="en")
    return HttpResponse(status, whole.encode(), HTML_KIND, HEADERS)


def asset(name: str) -> HttpResponse:
    """Return a file of the package that pages load."""
    found = resources.files("covey.server").joinpath("assets", name).read_bytes()
    return HttpResponse(200, found, ASSETS[name], HEADERS | {"Cache-Control": "no-cache"})


def sections(content: PageContent) -> dict[str, Markup]:
    """Return the parts of the page by their ids."""
    state = content.state
    alarms = join([_alarms(state), _events(content.events)])
    parts = {
        "figures": ("At a glance", _figures(content)),
        "history": ("Over time", _history(content)),
        "sites": ("Sites", _sites(content)),
        "network": ("Who asks whom", _network(content)),
        "phases": ("Phases", _phases(state.phases)),
        "map": ("Whom each region prefers", Markup() if content.earlier_map else _map(content)),
        "arms": ("Arms", _arms(state.arms)),
        "peers": ("Peers", _peers(state)),
        "events": ("Alarms and events", alarms),
    }
    if not content.peers:
        del parts["sites"]
    made = {"top": _top(content)}
    made |= {name: _section(name, *part) for name, part in parts.items()}
    return made if content.earlier_map is None else made | {"map": content.earlier_map}


def _top(content: PageContent) -> Markup:
    state = content.state
    word, kind = (
        ("ready", "good") if state.is_ready else ("not ready: labels cannot be kept", "bad")
    )
    facts = join(
        [
            tag("span", word, class_=f"state {kind}"),
            f" \N{MIDDLE DOT} slot {_count(state.slot)} \N{MIDDLE DOT} up for ",
            _duration(state.uptime_s),
            f" \N{MIDDLE DOT} start {_count(state.starts)}",
        ]
    )
    told = tag("p", "As of ", _time(content.moment), id="age")
    leave = tag("form", tag("button", "Log out"), method="post", action="/logout")
    more = [leave] if content.has_log_out else []
    heading = tag("h1", "Site ", tag("b", state.name))
    return tag("header", heading, tag("p", facts), told, *more, id="top")


def _section(name: str, heading: str, *inside: Markup) -> Markup:
    title = tag("h2", heading, id=f"{name}-title")
    return tag("section", title, *inside, id=name, aria_labelledby=f"{name}-title")


# -- figures ---------------------------------------------------------------------------------------


def _figures(content: PageContent) -> Markup:
    state = content.state
    labels, right = (sum(getattr(arm, name) for arm in state.arms) for name in ("labels", "right"))
    decisions, spent = sum(arm.decisions for arm in state.arms), sum(a.spent for a in state.arms)
    best = best_own(state.arms)
    own = "no own function has labels"
    if best is not None:
        own = f"best own function: {best.name}, {_error(best)} of its rows"
    per = f"{_amount(spent / decisions)} per decision" if decisions else "no decision yet"
    if best is not None and best.price is not None:
        per += f"; {best.name} costs {_amount(best.price)}"
    tiles = [
        ("Error", _percent(labels - right, labels), own),
        ("Cost since the start", _amount(spent), per),
        ("Decisions since the start", _count(decisions), _served(state)),
        ("Pending labels", _count(state.open_tickets), f"{_count(labels)} came, over all starts"),
        ("Undelivered to peers", _count(state.owed), "labels that wait in the store"),
        ("Requests in progress", _count(content.in_progress), f"{_count(content.waiting)} wait"),
        ("Cells", _count(state.cells), "known parts of the context space"),
        ("Store", *_disk(content.disk)),
    ]
    return tag("dl", *(_tile(*one) for one in tiles), class_="tiles")


def _tile(name: str, value: str, note: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", tag("b", value), " ", tag("small", note)))


def _served(state: State) -> str:
    return f"and {_count(sum(arm.served for arm in state.arms))} for peers"


def _disk(disk: DiskUse | None) -> tuple[str, str]:
    if disk is None:
        return NONE, "in a database, or the file is not there"
    return _bytes(disk.store_bytes), f"{_bytes(disk.free_bytes)} free on its disk"


# -- drawings --------------------------------------------------------------------------------------


def _network(content: PageContent) -> Markup:
    state = content.state
    if not state.peers:
        return tag("p", "This site has no peers.")
    how = (
        f"Numbers are rows of the last {content.minute.span_s:.0f} s; an arrow points to the site "
        "that is asked. A dashed red line: the peer rests, as it failed or is busy."
    )
    others = {one.name: one.info.links for one in content.peers if one.info and not one.why}
    if others:
        how += " Bent arrows are what peers tell of themselves."
    drawn = drawings.network(
        state.name,
        links_of(state, content.minute),
        drawings.arm_classes(state.arms),
        others,
    )
    return join([drawn, tag("p", how, class_="how")])


def _sites(content: PageContent) -> Markup:
    own = PeerView(content.state.name, content.info, content.moment, "")
    rows = [_site(one, content.moment) for one in (own, *content.peers)]
    headings = [
        "site",
        "state",
        "slot",
        "error, last hour",
        "error, all",
        "best own function",
        "its error",
        "cost per decision",
        "pending labels",
        "undelivered",
        "alarms",
    ]
    how = (
        "A peer is shown if its file lets this site see its status; it is asked every few seconds "
        "while somebody looks at this page."
    )
    return join([table("Sites of the network", headings, rows), tag("p", how, class_="how")])


def _site(one: PeerView, now: datetime) -> list[object]:
    info = one.info
    if info is None or one.moment is None:
        return [one.name, tag("td", one.why, class_="how"), *[NONE] * 9]
    word, kind = ("ready", "good") if info.is_ready else ("not ready", "bad")
    if one.why:
        word, kind = f"{one.why} for {_duration((now - one.moment).total_seconds())}", "bad"
    return [
        one.name,
        tag("td", word, class_=kind),
        _count(info.slot),
        _percent(info.hour_labels - info.hour_right, info.hour_labels),
        _percent(info.labels - info.right, info.labels),
        info.best or NONE,
        _percent(info.best_labels - info.best_right, info.best_labels),
        _amount(info.cost / info.decisions if info.decisions else None),
        _count(info.pending),
        _count(sum(link.undelivered for link in info.links)),
        _count(info.alarms),
    ]


def _map(content: PageContent) -> Markup:
    if not content.axes:
        return tag("p", "The contexts of this site have no coordinates: there is one cell.")
    form = drawings.choice(content.axes, content.chosen) if len(content.axes) > 1 else Markup()
    wanted = {axis.place for axis in content.chosen}
    shown = [cell for cell in content.cells if wanted <= set(cell.places)]
    if not shown:
        return join([form, tag("p", "No row has come yet in cells of these contexts.")])
    classes = drawings.arm_classes(content.state.arms)
    how = (
        "Each box is a part of the context space in the colour of the arm with the best answers "
        "less its price there; own functions are grey."
    )
    drawn = drawings.cells_map(shown, content.chosen, classes)
    return join([form, drawn, drawings.legend(shown, classes), tag("p", how, class_="how")])


# -- over time -------------------------------------------------------------------------------------


def _history(content: PageContent) -> Markup:
    rows = [_span(name, tallies, content.state.arms) for name, tallies in content.spans.items()]
    headings = [
        "span",
        "decisions",
        "labels",
        "error",
        "cost per decision",
        "best own function",
        "its error",
        "its price",
    ]
    how = (
        "The best own function is that with the best answers less its price, on the rows which it "
        "answered in this span. Labels count in the minute in which they came."
    )
    now_s = content.moment.timestamp()
    lines = [
        drawings.error_line(points, (now_s - (SPANS[name] or 0.0), now_s), name)
        for name, points in content.trends.items()
    ]
    shown = tag("div", *lines, class_="trends")
    return join([table("Error and cost", headings, rows), shown, tag("p", how, class_="how")])


def _span(name: str, tallies: Mapping[str, Tally], arms: Sequence[ArmState]) -> list[object]:
    whole = Tally()
    for one in tallies.values():
        whole = whole.plus(one)
    counted = [
        msgspec.structs.replace(arm, labels=found.labels, right=found.right)
        for arm in arms
        if (found := tallies.get(arm.name)) is not None
    ]
    best = best_own(counted)
    return [
        name,
        tag("td", _count(whole.decisions)),
        _count(whole.labels),
        _percent(whole.labels - whole.right, whole.labels),
        _amount(whole.cost / MILLIONTHS / whole.decisions if whole.decisions else None),
        *([NONE] * 3 if best is None else [best.name, _error(best), _amount(best.price)]),
    ]


# -- tables ----------------------------------------------------------------------------------------


def _arms(arms: Sequence[ArmState]) -> Markup:
    chosen, classes = max(1, sum(arm.decisions for arm in arms)), drawings.arm_classes(arms)
    headings = [
        "arm",
        "kind",
        "price",
        "decisions",
        "share",
        "for peers",
        "spent",
        "labels",
        "error",
    ]
    rows = [
        (
            arm.name,
            KINDS[arm.kind],
            _amount(arm.price),
            _count(arm.decisions),
            bar(arm.decisions / chosen, classes[arm.name]),
            _count(arm.served),
            _amount(arm.spent),
            _count(arm.labels),
            _error(arm),
        )
        for arm in arms
    ]
    how = (
        "Decisions, answers for peers and costs are since the start; labels of own clients and "
        "errors are over all starts, of the rows that the arm answered."
    )
    return join([table("Decisions per arm", headings, rows), tag("p", how, class_="how")])


def _peers(state: State) -> Markup:
    if not state.peers:
        return tag("p", "This site has no peers.")
    prices, asked = dict[str, float | None](), Counter[str]()
    for arm in state.arms:
        if arm.kind != "own":
            peer_of_arm = arm.name.removesuffix(BY_CONTEXT)
            prices[peer_of_arm] = arm.price
            asked[peer_of_arm] += arm.decisions
    trust = {one.source: one.state for one in state.trust}
    rows = [
        (
            peer.name,
            tag("td", _peer_state(peer), class_="bad" if peer.state == "resting" else ""),
            _amount(prices.get(peer.name)),
            _count(asked[peer.name]),
            _count(peer.asked),
            tag("td", _count(peer.owed), class_="bad" if peer.owed else ""),
            _budget(peer),
            trust.get(peer.name, NONE),
        )
        for peer in state.peers
    ]
    headings = [
        "peer",
        "state",
        "price",
        "asked by this site",
        "rows it asked",
        "labels to deliver",
        "paid today",
        "its labels",
    ]
    how = (
        "A resting peer failed or is busy; it is tried again by itself. Labels to deliver wait in "
        "the store until the peer takes them."
    )
    return join([table("Peers and their states", headings, rows), tag("p", how, class_="how")])


def _peer_state(peer: PeerState) -> str:
    return STATES.get(peer.state, peer.state)


def _budget(peer: PeerState) -> str:
    of = "" if peer.budget is None else f" of {_amount(peer.budget)}"
    return _amount(peer.spent_today) + of


def _phases(phases: dict[str, int]) -> Markup:
    if not phases:
        return tag("p", "No decision since the start.")
    whole = sum(phases.values())
    known = [name for name in PHASES if name in phases]
    rows = [
        (name, PHASES.get(name, ""), _count(phases[name]), bar(phases[name] / whole))
        for name in [*known, *(phases.keys() - PHASES.keys())]
    ]
    return table("Decisions since the start", ["phase", "what it is", "decisions", "share"], rows)


def _alarms(state: State) -> Markup:
    if not state.alarms_total:
        return tag("p", "The change detection has given no alarm.")
    latest = ", ".join(_count(slot) for slot in reversed(state.alarm_slots))
    told = f"{_count(state.alarms_total)} alarms of the change detection, {_count(state.alarms)} "
    return tag("p", f"{told}since the start; the latest at slots {latest}.")


def _events(events: Sequence[SiteEvent]) -> Markup:
    if not events:
        return tag("p", "No event since the start.")
    lines = [
        tag("li", _time(one.moment), " ", tag("b", one.level, class_=one.level), " ", one.text)
        for one in events
    ]
    listed = tag("ol", *lines, class_="events")
    return tag("div", listed, class_="wide", tabindex="0", role="region", aria_label="Events")


# -- numbers ---------------------------------------------------------------------------------------


def _count(number: int) -> str:
    return f"{number:,}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f} %" if whole else NONE


def _error(arm: ArmState) -> str:
    return _percent(arm.labels - arm.right, arm.labels)


def _amount(amount: float | None) -> str:
    if amount is None:
        return NONE
    return f"{amount:,.0f}" if abs(amount) >= 10_000 else f"{amount:.4g}"


def _time(moment: datetime) -> Markup:
    shown = moment.astimezone(UTC)
    return tag("time", f"{shown:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{shown:%Y-%m-%dT%H:%M:%SZ}")


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    days, hours = divmod(minutes // 60, 24)
    parts = ((days, "d"), (hours, "h"), (minutes % 60, "min"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1_000:
            return f"{count:.3g} {unit}"
        count /= 1_024
    return f"{count:.3g} TiB"
