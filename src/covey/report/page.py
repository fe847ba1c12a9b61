"""HTML of reports: document, style, and a section per figure."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey.bandit.partitions import Space, space_name
from covey.replay.engine import CellView
from covey.replay.outcome import EnsembleOutcome, LearnerOutcome, Outcome
from covey.report import figures
from covey.report.text import NONE, number, percent, shorten
from covey.types import BY_CONTEXT

_WIDTH = 1080  # pixels that figures may fill
_GAP = 24  # pixels between panels
_BUSIEST = 12  # cells listed if they cannot be drawn
_WORDS = ' class="words"'
_PREFERENCES = "Preferred arm per region"
_HOW_DRAWN = (
    "Each box is a cell of the context space, in the colour of its best arm by accuracy less price "
    "(with an index policy: the arm with most labels). Grey is an own function, a hue is the peer "
    "of that colour. Percentages are shares of the learner's arrivals. Hatched cells had less than "
    "a tenth of the visits of an average cell, so their preference is uncertain."
)
_PALE = " A pale hue is a peer that receives only the cell."
_HOW_LISTED = (
    f"The {_BUSIEST} most visited cells with more than two contexts, or none, which cannot be "
    "drawn. Contexts that are not named are unbounded. The arm is the best by accuracy less price; "
    "the estimate is its share of right answers before the price."
)


class _View(NamedTuple):
    """The cells of a learner in one of its context spaces."""

    learner: LearnerOutcome
    space: Space
    cells: list[CellView]


def document(body: str, *, title: str) -> str:
    """Return a complete page without scripts or external resources."""
    return _FRAME.format(title=escape(title), style=_PAGE_STYLE, body=body)


def header(title: str, extent: str, sentences: Iterable[str], *, more: str = "") -> str:
    """Return the top of a page; `more` is HTML before the sentences."""
    verdicts = "".join(f'<p class="verdict">{escape(sentence)}</p>' for sentence in sentences)
    top = f'<h1>{escape(title)}</h1><p class="extent">{extent}</p>'
    return f"<header>{top}{more}{verdicts}</header>"


def origin(config: str | Path | Mapping[str, Any]) -> str:
    """Return the section that says what a page was made from: version, date, configuration."""
    if isinstance(config, Mapping):
        packed = msgspec.json.encode(config, enc_hook=str)
        shown = msgspec.json.format(packed, indent=2).decode()
    else:
        shown = Path(config).read_text(encoding="utf-8")
    made = f"covey {version('covey')}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return section("Configuration", f"<pre>{escape(shown)}</pre>", made)


def section(heading: str, content: str, how: str) -> str:
    """Return a section with the explanation `how` below its content."""
    return f'<section><h2>{heading}</h2>{content}<p class="how">{how}</p></section>'


def table(
    headings: Iterable[str],
    body: str,
    *,
    foot: str | None = None,
    words: Sequence[str] = (),
    kind: str = "",
) -> str:
    """Return a table; `body` and `foot` are its rows, `words` the headings of text columns."""
    head = "".join(
        f'<th scope="col"{_WORDS * (heading in words)}>{escape(heading)}</th>'
        for heading in headings
    )
    ending = "" if foot is None else f"<tfoot>{foot}</tfoot>"
    return (
        f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody>{ending}</table></div>"
    )


def swatch(colour: str) -> str:
    return f'<i style="background: {colour}"></i>'


def grid(panels: Sequence[str], *, columns: int | None = None) -> str:
    columns = columns or _columns(len(panels))
    return f'<div class="grid" style="--columns: {columns}">{"".join(panels)}</div>'


def panel_width(panels: int) -> int:
    """Return the width in pixels of each of so many panels."""
    return _width(_columns(panels))


def panel(name: str, drawn: str, *, note: str = "") -> str:
    shown = escape(shorten(name, 60))
    heading = f'<h3 title="{escape(name)}"><b>{shown}</b><span>{note}</span></h3>'
    return f"<figure>{heading}{drawn}</figure>"


def legend(keys: Iterable[str]) -> str:
    return f'<p class="legend">{"".join(keys)}</p>'


def key(colour: str, name: str, *, note: str = "") -> str:
    """Return a name with its colour."""
    shown = f"{escape(shorten(name, 24))} {note}".rstrip()
    return f'<span class="key" title="{escape(name)}">{swatch(colour)}{shown}</span>'


def sign(kind: str, meaning: str) -> str:
    """Return a legend entry for a kind of line or box."""
    return f'<span class="key"><i class="{kind}"></i>{meaning}</span>'


def tile(name: str, number: str, unit: str) -> str:
    """Return a large number with its name and unit."""
    suffix = "" if number == NONE else f"<small>{unit}</small>"
    return f"<div><dt>{name}</dt><dd>{minus(number)}{suffix}</dd></div>"


def minus(number: str) -> str:
    """Return a printed number with a typographic minus sign."""
    return number.replace("-", "\N{MINUS SIGN}")


def errors(outcome: Outcome) -> str:
    """Return the section on each learner's error over time."""
    judged = [learner for learner in outcome.learners if learner.judged]
    if not judged:
        return section("Error over time", "", "The log has no true labels, so errors are unknown.")
    colours = figures.arm_colours(outcome.learners)
    ceiling, width = _ceiling(judged), panel_width(len(judged))
    panels = []
    for learner in judged:
        colour = colours[learner.name]
        drawn = figures.draw_errors(learner, colour=colour, ceiling=ceiling, width=width)
        note = f"{_error(learner.errors, learner)}%"
        if learner.alone_errors is not None:
            note += f", alone {_error(learner.alone_errors, learner)}%"
        panels.append(panel(learner.name, drawn, note=note))
    keys = [sign("heavy", "moving average"), sign("thin", "whole log")]
    how = "The heavy line is a moving average of the error."
    if outcome.is_replayed:
        keys.append(sign("dotted", "alone"))
        how += (
            " If the thin line is below the dotted one, asking peers reduced the error. All panels "
            "share one scale."
        )
    if any(learner.alarms for learner in judged):
        how = f"{how} Triangles on the axis mark alarms of the change detection."
    return section("Error over time", legend(keys) + grid(panels), how)


def ensemble(outcome: Outcome, found: EnsembleOutcome) -> str:
    """Return the section on the weights of the members' votes."""
    colours = figures.arm_colours(outcome.learners)
    members = [learner for learner in outcome.learners if learner.name in found.mean_weights]
    lines = [
        f'<tr><th scope="row">{key(colours[member.name], member.name)}</th>'
        f"<td>{_error(member.errors, member)}</td>"
        f"<td>{found.mean_weights[member.name]:.3f}</td></tr>"
        for member in members
    ]
    total = f'<tr><th scope="row">ensemble</th><td>{_error(found.errors, found)}</td><td></td></tr>'
    weights = table(["member", "error %", "weight"], "".join(lines), foot=total)
    drawn = figures.draw_weights(found, colours=colours, width=_WIDTH) if found.history else ""
    how = (
        f"The ensemble ({found.title}) predicts by the weighted votes of its members. Weights are "
        "those at the end of the log"
        f"{'; the figure shows them over time' if drawn else ', the mean over the cells'}."
    )
    return section("Ensemble", weights + drawn, how)


def phases(outcome: Outcome) -> str:
    """Return the section on each learner's phases over time."""
    busy = [learner for learner in outcome.learners if learner.slots]
    if not busy:
        return section("Phases over time", "", "The log has no rows.")
    width = panel_width(len(busy))
    panels = [panel(learner.name, figures.draw_phases(learner, width=width)) for learner in busy]
    keys = [key(colour, phase) for phase, colour in figures.PHASE_COLOURS.items()]
    how = (
        "<b>train</b>: a peer is asked so that it learns; its answer is not counted. "
        "<b>explore</b>: an arm is tried because it has too few labels. <b>exploit</b>: the arm "
        "with the best estimate is used. The share of exploitation should grow; when it falls, "
        "cells were split or new regions visited."
    )
    return section("Phases over time", legend(keys) + grid(panels), how)


def matrix(outcome: Outcome) -> str:
    """Return the section on the requests between learners."""
    pairs = _pairs(outcome)
    if len(outcome.learners) < 2:
        how = "What the site got from each peer." if pairs else "There is one learner and no peer."
        return section("Requests between learners", pairs, how)
    how = (
        "Each row is a learner, with the share of its slots for which it chose its own functions "
        "(bold, on the diagonal) or the peer of the column. A row sums to 100%. A dark column off "
        "the diagonal is a site that others ask often."
    )
    if _shows_cells(outcome):
        how += " Peers that received only the cell are included."
    content = figures.draw_matrix(outcome.learners)
    if pairs:
        content += pairs
        how += (
            " In the table, <b>right</b> is how often the peer was right when it was asked, and "
            "<b>own best</b> how often the learner's own function that fits these rows best would "
            "have been; <b>worth</b> is the difference in right answers less what was paid."
        )
    return section("Requests between learners", content, how)


def _pairs(outcome: Outcome) -> str:
    """Return a table of what each learner got from each peer, or nothing."""
    colours = figures.arm_colours(outcome.learners)
    lines = []
    for learner in outcome.learners:
        for pair in learner.pairs:
            is_known = pair.judged and outcome.is_replayed
            worth = None if not is_known else pair.right - pair.best_own_right - pair.paid
            own = number(percent(pair.best_own_right, pair.judged), ".1f")
            lines.append(
                f'<tr><th scope="row">{key(colours[learner.name], learner.name)}</th>'
                f"<td{_WORDS}>{escape(shorten(pair.peer, 30))}</td><td>{pair.asked:,}</td>"
                f"<td>{pair.paid:,.1f}</td>"
                f"<td>{number(percent(pair.right, pair.judged), '.1f')}</td>"
                f"<td>{own if pair.best_own else NONE}</td>"
                f"<td>{minus(number(worth, '+,.1f'))}</td></tr>"
            )
    headings = ["learner", "asked", "times", "paid", "right %", "own best %", "worth"]
    shown = table(headings, "".join(lines), words=["asked"])
    return f'<div class="pairs">{shown}</div>' if lines else ""


def preferences(outcome: Outcome) -> str:
    """Return the section on the preferred arm in each region of the context space."""
    if outcome.dimension == 0:
        return section(_PREFERENCES, "", _without_contexts(outcome.learners))
    views = _views(outcome)
    drawn = [view for view in views if len(view.space) in (1, 2)]
    listed = [view for view in views if len(view.space) not in (1, 2)]
    content, how = "", []
    if drawn:
        keys = [sign("rare", "rarely visited"), sign("blank", "no label yet")]
        content += legend(keys) + _maps(outcome, drawn)
        colours = len(figures.LEARNER_COLOURS)
        repeats = f" Colours repeat after {colours} learners: read the names."
        has_repeats = len(outcome.learners) > colours
        how.append(_HOW_DRAWN + _PALE * _shows_cells(outcome) + repeats * has_repeats)
    if listed:
        content += _busiest(outcome, listed)
        how.append(_HOW_LISTED)
    return section(_PREFERENCES, content, " ".join(how))


def _ceiling(judged: Sequence[LearnerOutcome]) -> float:
    """Return the top of the common scale, above every line and never zero."""
    smoothed = [value for learner in judged for value in figures.smoothed_errors(learner.timeline)]
    alone = [100 * (learner.alone_errors or 0.0) / learner.judged for learner in judged]
    highest = max(value for value in [*smoothed, *alone, 1.0] if not math.isnan(value))
    return min(100.0, highest * 1.08)


def _error(errors: float, judged: LearnerOutcome | EnsembleOutcome) -> str:
    return number(percent(errors, judged.judged), ".2f")


def _without_contexts(learners: Sequence[LearnerOutcome]) -> str:
    found = [
        f"{shorten(learner.name, 30)} prefers {shorten(cell.arm, 30)}"
        for learner in learners
        for cell in learner.cells
        if cell.arm is not None
    ]
    ending = f" At the end {', '.join(found)}." if found else ""
    return escape(f"There are no contexts, so each learner has one cell.{ending}")


def _views(outcome: Outcome) -> list[_View]:
    every = tuple(range(outcome.dimension))
    views = []
    for learner in outcome.learners:
        by_space: dict[Space, list[CellView]] = {}
        for cell in learner.cells:
            by_space.setdefault(every if cell.space is None else cell.space, []).append(cell)
        views += [_View(learner, space, cells) for space, cells in by_space.items()]
    return views


def _busiest(outcome: Outcome, views: Sequence[_View]) -> str:
    found = [(view.learner, cell) for view in views for cell in view.cells]
    found.sort(key=lambda pair: -pair[1].arrivals)
    colours = figures.arm_colours(outcome.learners)
    lines = [
        f'<tr><th scope="row">{key(colours[learner.name], learner.name)}</th>'
        f"<td{_WORDS}>{escape(_region(cell, outcome))}</td><td>{cell.arrivals:,}</td>"
        f"<td{_WORDS}>{_preferred(cell, colours)}</td><td>{number(cell.estimate, '.3f')}</td></tr>"
        for learner, cell in found[:_BUSIEST]
    ]
    headings = ["learner", "region", "visits", "prefers", "estimate"]
    return table(headings, "".join(lines), words=["region", "prefers"])


def _region(cell: CellView, outcome: Outcome) -> str:
    sides = zip(_context_names(outcome), cell.low, cell.high, strict=True)
    shown = cell.bounds or list(zip(cell.low, cell.high, strict=True))
    bounds = [
        f"{shorten(name, 20)} {_range(figures.tick(first), figures.tick(last))}"
        for (name, low, high), (first, last) in zip(sides, shown, strict=True)
        if high - low < 1
    ]
    return ", ".join(bounds) or "everywhere"


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first}{NONE}{last}"


def _context_names(outcome: Outcome) -> list[str]:
    unnamed = [f"context {position + 1}" for position in range(outcome.dimension)]
    given = outcome.context_names[: outcome.dimension]
    return [*given, *unnamed[len(given) :]]


def _preferred(cell: CellView, colours: Mapping[str, str]) -> str:
    if cell.arm is None:
        return "no label yet"
    return key(colours.get(cell.arm, figures.BLANK), cell.arm)


def _maps(outcome: Outcome, views: Sequence[_View]) -> str:
    strips = [view for view in views if len(view.space) == 1]
    squares = [view for view in views if len(view.space) == 2]
    content = ""
    if strips:
        # With one context space a strip has the full width, so that fine cells are distinguishable.
        columns = 1 if outcome.spaces == 1 else _columns(len(strips))
        drawn = [_map(outcome, view, _width(columns)) for view in strips]
        content += grid(drawn, columns=columns)
    if squares:
        # Keeps the heading of a single square close to it.
        columns = _columns(len(squares) if outcome.spaces == 1 else max(2, len(squares)))
        width = min(400, panel_width(len(squares)))
        content += grid([_map(outcome, view, width) for view in squares], columns=columns)
    return content


def _map(outcome: Outcome, view: _View, width: int) -> str:
    colours = figures.arm_colours(outcome.learners)
    every = _context_names(outcome)
    learner = msgspec.structs.replace(
        view.learner, cells=[_within(cell, view.space) for cell in view.cells]
    )
    names = [every[index] for index in view.space]
    ticks = [outcome.context_ticks[index] for index in view.space] if outcome.context_ticks else []
    drawn = figures.draw_map(learner, colours=colours, contexts=names, width=width, ticks=ticks)
    note = _space_note(view, every) if outcome.spaces > 1 else ""
    return panel(learner.name, drawn + legend(_shares(view.cells, colours)), note=note)


def _within(cell: CellView, space: Space) -> CellView:
    """Return a cell with the bounds of its own contexts only."""
    low, high = (tuple(bounds[index] for index in space) for bounds in (cell.low, cell.high))
    return msgspec.structs.replace(cell, low=low, high=high)


def _space_note(view: _View, names: Sequence[str]) -> str:
    space = space_name(view.space, names)
    by = f"by {escape(shorten(space, 30))}"
    decided = view.learner.candidates.get(space, 0)
    if not view.learner.candidates:
        return by
    return f"{by}: {figures.percent(decided / view.learner.slots)} of slots"


def _shares(cells: Sequence[CellView], colours: Mapping[str, str]) -> list[str]:
    """Return a key for each preferred arm, with the share of arrivals in cells that prefer it."""
    arrivals = Counter[str]()
    for cell in cells:
        if cell.arm is not None:
            arrivals[cell.arm] += cell.arrivals
    everything = sum(cell.arrivals for cell in cells) or 1
    return [
        key(colours.get(arm, figures.BLANK), arm, note=figures.percent(count / everything))
        for arm, count in arrivals.most_common()
    ]


def _shows_cells(outcome: Outcome) -> bool:
    """Return whether any peer receives the cell instead of the instance."""
    return any(arm.endswith(BY_CONTEXT) for learner in outcome.learners for arm in learner.arms)


def _columns(panels: int) -> int:
    """Return the number of columns, such that the last row is not nearly empty."""
    if panels <= 4:
        return max(1, panels)
    return 3 if panels in (5, 6, 9) else 4


def _width(columns: int) -> int:
    return (_WIDTH - _GAP * (columns - 1)) // columns


# The content policy protects even if a name is not escaped.
_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

_PAGE_STYLE = """
:root { color-scheme: light; --ink: #1f2428; --faint: #626a72; --rule: #e0e4e7; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
main { max-width: 1144px; margin: 0 auto; padding: 40px 32px 64px; }
h1 { margin: 0; font-size: 30px; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 0 0 16px; font-size: 19px; break-after: avoid; }
h3 { margin: 0 0 2px; font-size: 14px; display: flex; justify-content: space-between; gap: 10px; }
h3 b { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
h3 span { font-weight: 400; font-size: 13px; color: var(--faint); white-space: nowrap; }
.pairs { margin-top: 28px; }
section { margin-top: 48px; padding-top: 24px; border-top: 1px solid var(--rule); }
.extent, .policy, .how { color: var(--faint); overflow-wrap: anywhere; }
.extent { margin: 6px 0 0; }
.policy { margin: 0; }
.how { max-width: 760px; margin: 16px 0 0; font-size: 14px; }
.how b { color: var(--ink); font-weight: 600; }
.verdict { font-size: 18px; max-width: 860px; margin: 20px 0 0; }
.tiles { display: flex; flex-wrap: wrap; gap: 16px 56px; margin: 28px 0 0; }
.tiles dt { color: var(--faint); font-size: 13px; }
.tiles dd { margin: 0; font-size: 32px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tiles small { font-size: 15px; color: var(--faint); margin-left: 4px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 0 6px 18px; text-align: right; font-weight: 400; white-space: nowrap; }
th:first-child { padding-left: 0; text-align: left; }
thead th { color: var(--faint); font-size: 13px; border-bottom: 1px solid var(--ink); }
tbody tr + tr > * { border-top: 1px solid var(--rule); }
tbody th, tfoot tr > * { font-weight: 600; }
tfoot tr > * { border-top: 1px solid var(--ink); }
table.grouped tbody tr:not(.opens) > * { border-top: 0; padding-top: 0; }
th.words, td.words { text-align: left; white-space: normal; }
.functions, .legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 14px 0 0; padding: 0;
  list-style: none; font-size: 13px; }
.legend { margin: 0 0 14px; }
figure .legend { margin: 4px 0 0; gap: 0 12px; }
.functions li:first-child { color: var(--faint); }
pre { font-size: 13px; line-height: 1.45; overflow-x: auto; max-height: 480px; }
.field dt { font-weight: 600; margin-top: 10px; }
.field dd { margin: 0; color: var(--faint); }
sup { line-height: 0; }
.key { white-space: nowrap; }
i { display: inline-block; width: 11px; height: 11px; margin-right: 6px; border-radius: 2px; }
i.heavy, i.thin, i.dotted, i.dashed { width: 22px; height: 0; border-radius: 0;
  vertical-align: middle; }
i.heavy { border-top: 3px solid var(--ink); }
i.thin { border-top: 1px solid var(--ink); }
i.dotted { border-top: 2px dotted var(--faint); }
i.dashed { border-top: 2px dashed var(--ink); }
i.rare { background: repeating-linear-gradient(-45deg, #8a9096 0 2px, #fff 2px 4px); }
i.blank { background: #f4f4f1; outline: 1px solid var(--rule); }
.grid { display: grid; gap: 28px 24px;
  grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); }
.grid + .grid { margin-top: 28px; }
figure { margin: 0; min-width: 0; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
@media screen and (max-width: 900px) {
  main { padding: 24px 16px 48px; }
  .grid { grid-template-columns: repeat(auto-fit, minmax(min(240px, 100%), 1fr)); }
}
@media print {
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { zoom: 0.66; padding: 0; max-width: none; }
  h3 { flex-wrap: wrap; gap: 0 10px; }
  section { margin-top: 24px; break-inside: avoid; }
}
"""
