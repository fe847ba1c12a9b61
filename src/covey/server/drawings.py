"""Drawings of the live page, as SVG: the network of a site, and the map of its cells."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from covey.bandit.preferences import CellPreference
from covey.node.series import Tally
from covey.node.status import ArmState
from covey.server.markup import Markup, join, tag
from covey.server.peer_messages import LinkInfo
from covey.types import BY_CONTEXT

OWN_COLOURS, PEER_COLOURS = 6, 8  # of the style sheet
FEW, FEW_SIZE, MANY_SIZE = 4, (480.0, 340.0), (620.0, 480.0)  # of the network, by its sites
SIDE, LEFT, BOTTOM = 360.0, 76.0, 44.0  # of the map, in units of the drawing
TALL = 100.0  # the height of a line over time
STRIP = 60.0  # the height of a map of one context
MOST_LETTERS = 14


class Axis(NamedTuple):
    """A context: its place among all, its name, and what places from 0 to 1 stand for."""

    place: int
    name: str
    ticks: Sequence[tuple[float, float | str]]


def plain_axes(dimension: int) -> list[Axis]:
    """Return the axes of contexts that clients send as numbers from 0 to 1."""
    ticks = [(quarter / 4, quarter / 4) for quarter in range(5)]
    return [Axis(place, f"context {place + 1}", ticks) for place in range(dimension)]


def arm_classes(arms: Iterable[ArmState]) -> dict[str, str]:
    """Return the class of each arm in the style sheet: own functions are grey, peers have hues."""
    classes, own, peers = {}, 0, dict[str, int]()
    for arm in arms:
        if arm.kind == "own":
            classes[arm.name] = f"own{own % OWN_COLOURS}"
            own += 1
        else:
            number = peers.setdefault(arm.name.removesuffix(BY_CONTEXT), len(peers))
            classes[arm.name] = f"peer{number % PEER_COLOURS}"
    return classes


# -- the network ----------------------------------------------------------------------------------


def network(
    name: str,
    links: Sequence[LinkInfo],
    classes: Mapping[str, str],
    others: Mapping[str, Sequence[LinkInfo]] | None = None,
) -> Markup:
    """Draw a site, its peers, prices, and who asks whom; resting peers are red and dashed.

    `others` are the links of peers that show them, with the sites that only these know.
    """
    others, own = others or {}, {link.peer: link for link in links}
    far = [one.peer for known in others.values() for one in known if one.peer != name]
    ring = list(dict.fromkeys([*own, *far]))
    # Two beside the site, more around it.
    begin = 0.0 if len(ring) < 3 else -math.pi / 2
    turns = [2 * math.pi * number / len(ring) + begin for number in range(len(ring))]
    wide, tall = FEW_SIZE if len(ring) <= FEW else MANY_SIZE
    places = {
        peer: ((wide / 2 - 75) * math.cos(turn), (tall / 2 - 48) * math.sin(turn))
        for peer, turn in zip(ring, turns, strict=True)
    }
    chords = _asked(name, others)
    parts = [_arrow_head()]
    for chord in chords:
        parts += _chord(places[chord.asker], places[chord.peer], chord)
    told = []
    for peer, link in own.items():
        kind = _kind(link)
        parts += _links(places[peer], (link.asked, link.asks), kind, link.price is not None)
        parts.append(_site(places[peer], peer, f"{classes.get(peer, 'plain')} {kind}"))
        parts.append(_note(places[peer], _told(link)))
        told.append(f"{peer}: {_state(link)}, asked {link.asked} rows, asks {link.asks}")
    for peer in ring:
        if peer not in own:
            parts.append(_site(places[peer], peer, "plain"))
    told += [f"{one.asker} asks {one.peer}: {one.rows} rows" for one in chords]
    parts.append(_site((0.0, 0.0), name, "self"))
    label = f"{name} and its peers in the last minute. {'; '.join(told)}"
    tall = tall if len(ring) > 2 else 120.0
    return tag(
        "svg",
        *parts,
        viewBox=f"{-wide / 2:g} {-tall / 2:g} {wide:g} {tall:g}",
        role="img",
        aria_label=label,
        class_="net",
    )


class Chord(NamedTuple):
    """Rows that one peer has asked another."""

    asker: str
    peer: str
    rows: int
    kind: str


def _asked(name: str, others: Mapping[str, Sequence[LinkInfo]]) -> list[Chord]:
    """Return who asks whom among the peers of a site, each as the asker tells it if it does."""
    found = []
    for site, links in others.items():
        for link in links:
            if link.peer == name:
                continue
            if link.asked or link.state == "resting":
                found.append(Chord(site, link.peer, link.asked, _kind(link)))
            if link.asks and link.peer not in others:
                found.append(Chord(link.peer, site, link.asks, "calm"))
    return found


def _chord(begin: tuple[float, float], end: tuple[float, float], chord: Chord) -> list[Markup]:
    """Draw an arrow that is bent outwards, so that it passes the site in the middle."""
    (x1, y1), (x2, y2) = begin, end
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    # The two directions lie beside each other, or on two sides of the site in the middle.
    out, by = (x, y), 0.12 if chord.asker < chord.peer else 0.3
    if math.hypot(x, y) < 20:
        out, by = (y1 - y2, x2 - x1), 0.25
    far = by * math.dist(begin, end) / math.hypot(*out)
    bend = (x + far * out[0], y + far * out[1])
    (x1, y1), (x2, y2) = _toward(begin, bend), _toward(end, bend)
    drawn = tag(
        "path",
        d=f"M{x1:.1f},{y1:.1f} Q{bend[0]:.1f},{bend[1]:.1f} {x2:.1f},{y2:.1f}",
        stroke_width=_width(chord.rows),
        marker_end="url(#head)" if chord.rows else None,
        class_=f"link chord {chord.kind}",
    )
    middle = ((x1 + 2 * bend[0] + x2) / 4, (y1 + 2 * bend[1] + y2) / 4 + 4)
    return [drawn, _text(middle, f"{chord.rows:,}", "rows")] if chord.rows else [drawn]


def _toward(place: tuple[float, float], goal: tuple[float, float]) -> tuple[float, float]:
    """Return where a line from a site to a goal leaves the circle of the site."""
    (x, y), far = place, math.dist(place, goal)
    return x + (goal[0] - x) / far * 30, y + (goal[1] - y) / far * 30


def _width(rows: int) -> str:
    return f"{1 + math.log2(1 + rows) / 2 if rows else 0.8:.1f}"


def _kind(link: LinkInfo) -> str:
    return "resting" if link.state == "resting" else "calm"


def _arrow_head() -> Markup:
    shape = tag("path", d="M0,0 L12,6 L0,12 z", class_="head")
    size = {"markerWidth": "12", "markerHeight": "12", "refX": "10", "refY": "6"}
    size["markerUnits"] = "userSpaceOnUse"
    return tag("defs", tag("marker", shape, id="head", orient="auto", **size))


def _links(
    at: tuple[float, float], rows: tuple[int, int], kind: str, may_ask: bool
) -> list[Markup]:
    """Draw who asks whom: from this site on one side, to it on the other."""
    (x, y), far = at, math.hypot(*at)
    along = (x / far, y / far)
    drawn = []
    for count, sign, is_own in ((rows[0], 1, True), (rows[1], -1, False)):
        if not count and not (is_own and may_ask):
            continue
        aside = (-along[1] * 9 * sign, along[0] * 9 * sign)
        ends = [
            (along[0] * 44 + aside[0], along[1] * 36 + aside[1]),
            (x - along[0] * 44 + aside[0], y - along[1] * 36 + aside[1]),
        ]
        (x1, y1), (x2, y2) = ends if is_own else ends[::-1]
        drawn.append(
            tag(
                "line",
                x1=f"{x1:.1f}",
                y1=f"{y1:.1f}",
                x2=f"{x2:.1f}",
                y2=f"{y2:.1f}",
                stroke_width=_width(count),
                marker_end="url(#head)" if count else None,
                class_=f"link {kind}{'' if count else ' idle'}",
            )
        )
        if count:
            middle = ((x1 + x2) / 2 + 1.6 * aside[0], (y1 + y2) / 2 + 1.6 * aside[1] + 4)
            drawn.append(_text(middle, f"{count:,}", "rows"))
    return drawn


def _site(at: tuple[float, float], name: str, kind: str) -> Markup:
    shape = tag("circle", cx=f"{at[0]:.1f}", cy=f"{at[1]:.1f}", r="27", class_=f"site {kind}")
    return tag("g", tag("title", name), shape, _text((at[0], at[1] + 4), _short(name), "name"))


def _note(at: tuple[float, float], text: str) -> Markup:
    outside = 42 if at[1] >= -1 else -34  # where no line is
    return _text((at[0], at[1] + outside), text, "note")


def _told(link: LinkInfo) -> str:
    shown = "" if link.price is None else f"price {link.price:.3g}"
    state = _state(link) if link.state != "open" else ""
    waiting = f"{link.undelivered:,} labels wait" if link.undelivered else ""
    return ", ".join(one for one in (shown, state, waiting) if one)


def _state(link: LinkInfo) -> str:
    return link.state.replace("_", " ")


# -- the map --------------------------------------------------------------------------------------


def cells_map(
    cells: Sequence[CellPreference], axes: Sequence[Axis], classes: Mapping[str, str]
) -> Markup:
    """Draw the cells by one or two contexts, each in the colour of the arm it prefers.

    Where cells differ in other contexts only, the arm with the most arrivals in them is shown.
    """
    boxes: dict[tuple[float, ...], Counter[str | None]] = {}
    for cell in cells:
        if all(axis.place in cell.places for axis in axes):
            at = [cell.places.index(axis.place) for axis in axes]
            box = tuple(bound for k in at for bound in (cell.low[k], cell.high[k]))
            boxes.setdefault(box, Counter())[cell.arm] += cell.arrivals
    is_strip = len(axes) == 1
    tall = STRIP if is_strip else SIDE
    left = 12.0 if is_strip else LEFT
    drawn = [_box(box, arms, axes, classes, (left, tall)) for box, arms in boxes.items()]
    drawn.append(
        tag("rect", x=f"{left:g}", y="8", width=f"{SIDE:g}", height=f"{tall:g}", class_="frame")
    )
    drawn += _ticks_below(axes[0], left, tall)
    if not is_strip:
        drawn += _ticks_beside(axes[1])
    size = f"0 0 {left + SIDE + 24:g} {tall + BOTTOM + 10:g}"
    label = f"arms preferred by {' and '.join(axis.name for axis in axes)}"
    return tag("svg", *drawn, viewBox=size, role="img", aria_label=label, class_="map")


def _box(
    box: tuple[float, ...],
    arms: "Counter[str | None]",
    axes: Sequence[Axis],
    classes: Mapping[str, str],
    frame: tuple[float, float],
) -> Markup:
    (arm, _), (left, tall) = arms.most_common(1)[0], frame
    low, high = (0.0, 1.0) if len(axes) == 1 else box[2:]
    told = f"{arm or 'no label yet'}, {arms.total():,} arrivals"
    return tag(
        "rect",
        tag("title", told),
        x=f"{left + box[0] * SIDE:.1f}",
        y=f"{8 + (1 - high) * tall:.1f}",
        width=f"{(box[1] - box[0]) * SIDE:.1f}",
        height=f"{(high - low) * tall:.1f}",
        class_=f"cell {classes.get(arm or '', 'blank')}",
    )


def _ticks_below(axis: Axis, left: float, tall: float) -> list[Markup]:
    step = -(-len(axis.ticks) // 6)  # so that they do not touch
    drawn = [
        _text((left + place * SIDE, tall + 24), _tick(value), "tick")
        for place, value in axis.ticks[::step]
    ]
    return [*drawn, _text((left + SIDE / 2, tall + 44), axis.name, "axis")]


def _ticks_beside(axis: Axis) -> list[Markup]:
    step = -(-len(axis.ticks) // 12)
    drawn = [
        _text((LEFT - 6, 12 + (1 - place) * SIDE), _tick(value), "tick side")
        for place, value in axis.ticks[::step]
    ]
    middle = f"rotate(-90 14 {8 + SIDE / 2:g})"
    name = tag("text", axis.name, x="14", y=f"{8 + SIDE / 2:g}", transform=middle, class_="axis")
    return [*drawn, name]


def legend(cells: Sequence[CellPreference], classes: Mapping[str, str]) -> Markup:
    """Return the colours of arms, with the share of arrivals in the cells that prefer them."""
    arrivals: Counter[str | None] = Counter()
    for cell in cells:
        arrivals[cell.arm] += cell.arrivals
    whole, keys = arrivals.total(), []
    for arm, count in arrivals.most_common():
        shape = tag(
            "rect", width="12", height="12", class_=f"cell {classes.get(arm or '', 'blank')}"
        )
        box = tag("svg", shape, viewBox="0 0 12 12", aria_hidden="true", class_="swatch")
        told = f" {arm or 'no label yet'}, {100 * count / whole:.0f} % of arrivals"
        keys.append(tag("li", box, told))
    return tag("ul", *keys, class_="legend")


# -- error over time ------------------------------------------------------------------------------


def error_line(points: Sequence[tuple[int, Tally]], span: tuple[float, float], name: str) -> Markup:
    """Draw the error of labels that came, over a span from one moment to another."""
    begin, end = span
    shares = [(at, 1 - one.right / one.labels) for at, one in points if one.labels]
    most = max((share for _, share in shares), default=0.0) or 1.0
    places = [
        (LEFT + (at - begin) / (end - begin) * SIDE, 8 + (1 - share / most) * TALL)
        for at, share in shares
        if at >= begin
    ]
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    frame = {"x": f"{LEFT:g}", "y": "8", "width": f"{SIDE:g}", "height": f"{TALL:g}"}
    drawn = [
        tag("rect", **frame, class_="frame"),
        tag("polyline", points=way, class_="line"),
        *(tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="2", class_="dot") for x, y in places),
        _text((LEFT - 6, 14), f"{100 * most:.3g} %", "tick side"),
        _text((LEFT - 6, TALL + 8), "0 %", "tick side"),
        _text((LEFT + SIDE / 2, TALL + 28), f"error in the {name}", "axis"),
    ]
    latest = f", now {100 * shares[-1][1]:.3g} %" if shares else ", no labels"
    size = f"0 0 {LEFT + SIDE + 24:g} {TALL + 36:g}"
    label = f"error in the {name}, at most {100 * most:.3g} %{latest}"
    return tag("svg", *drawn, viewBox=size, role="img", aria_label=label, class_="trend")


def _tick(value: float | str) -> str:
    if isinstance(value, str):
        return _short(value)
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _short(name: str) -> str:
    return (
        name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    )


def _text(at: tuple[float, float], text: str, kind: str) -> Markup:
    return tag("text", text, x=f"{at[0]:.1f}", y=f"{at[1]:.1f}", class_=kind)


def choice(axes: Sequence[Axis], chosen: Sequence[Axis]) -> Markup:
    """Return the form by which the viewer chooses one or two contexts."""
    fields = []
    for name, label, axis in zip(
        ("x", "y"), ("across", "up"), (chosen[0], chosen[-1]), strict=True
    ):
        options = [
            tag("option", one.name, value=str(one.place), selected=one.place == axis.place)
            for one in axes
        ]
        fields += [tag("label", label, for_=name), tag("select", *options, id=name, name=name)]
    button = tag("button", "Show", type="submit")
    return tag("form", join(fields), button, method="get", action="/", class_="choice")
