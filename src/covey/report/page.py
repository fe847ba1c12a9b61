"""HTML of reports: document, style, and a section per figure."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
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

_ASSETS = resources.files("covey.report") / "assets"
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


Config = str | Path | Mapping[str, Any]


def document(sections: Iterable[str], *, title: str, config: Config | None = None) -> str:
    """Return a complete page without scripts or external resources; it ends with `config`."""
    body = "\n".join([*sections, *([] if config is None else [_origin(config)])])
    frame, style = (
        _ASSETS.joinpath(f"report.{kind}").read_text("utf-8") for kind in ("html", "css")
    )
    return frame.format(title=escape(title), style=f"\n{style}", body=body)


def header(title: str, extent: str, sentences: Iterable[str], *, more: str = "") -> str:
    """Return the top of a page; `more` is HTML before the sentences."""
    verdicts = "".join(f'<p class="verdict">{escape(sentence)}</p>' for sentence in sentences)
    top = f'<h1>{escape(title)}</h1><p class="extent">{extent}</p>'
    return f"<header>{top}{more}{verdicts}</header>"


def _origin(config: Config) -> str:
    """Return the section that says what a page was made from: version, date, configuration."""
    if isinstance(config, Mapping):
        packed = msgspec.json.encode(config, enc_hook=str)
        shown = msgspec.json.format(packed, indent=2).decode()
    else:
        shown = Path(config).read_text(encoding="utf-8")
    made = f"covey {version('covey')}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return section("Configuration", f"<pre>{escape(shown)}</pre>", made)


def descriptions(heading: str, lines: Iterable[tuple[str, str]]) -> str:
    """Return a section with a line on each name."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(line)}</dd>" for name, line in lines)
    return f'<section><h2>{heading}</h2><dl class="field">{items}</dl></section>'


def section(heading: str, content: str, how: str) -> str:
    """Return a section with the explanation `how` below its content."""
    return f'<section><h2>{heading}</h2>{content}<p class="how">{how}</p></section>'


class TableRow(NamedTuple):
    """A row of a table."""

    name: str  # HTML, as the cells
    cells: Iterable[str]
    title: str = ""  # the whole name, if that may be cut
    kind: str = ""


def table(
    headings: Sequence[str],
    body: Iterable[TableRow],
    *,
    foot: Iterable[TableRow] | None = None,
    words: Sequence[str] = (),
    kind: str = "",
) -> str:
    """Return a table; `words` are the headings of columns of text, all others have numbers."""
    kinds = [_WORDS * (heading in words) for heading in headings]

    pairs = zip(headings, kinds, strict=True)
    head = "".join(f'<th scope="col"{text}>{escape(heading)}</th>' for heading, text in pairs)
    ending = "" if foot is None else f"<tfoot>{_rows(foot, kinds)}</tfoot>"
    return (
        f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead>'
        f"<tbody>{_rows(body, kinds)}</tbody>{ending}</table></div>"
    )


def _rows(lines: Iterable[TableRow], kinds: Sequence[str]) -> str:
    rows = ""
    for line in lines:
        title = f' title="{escape(line.title)}"' if line.title else ""
        pairs = zip(line.cells, kinds[1:], strict=True)
        cells = "".join(f"<td{kind}>{cell if kind else minus(cell)}</td>" for cell, kind in pairs)
        rows += f'<tr{line.kind}><th scope="row"{title}>{line.name}</th>{cells}</tr>'
    return rows


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
        TableRow(
            key(colours[member.name], member.name),
            [_error(member.errors, member), f"{found.mean_weights[member.name]:.3f}"],
        )
        for member in members
    ]
    total = TableRow("ensemble", [_error(found.errors, found), ""])
    weights = table(["member", "error %", "weight"], lines, foot=[total])
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
            cells = [
                escape(shorten(pair.peer, 30)),
                f"{pair.asked:,}",
                f"{pair.paid:,.1f}",
                number(percent(pair.right, pair.judged), ".1f"),
                own if pair.best_own else NONE,
                number(worth, "+,.1f"),
            ]
            lines.append(TableRow(key(colours[learner.name], learner.name), cells))
    headings = ["learner", "asked", "times", "paid", "right %", "own best %", "worth"]
    shown = table(headings, lines, words=["asked"])
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
    lines = []
    for learner, cell in found[:_BUSIEST]:
        region, preferred = escape(_region(cell, outcome)), _preferred(cell, colours)
        cells = [region, f"{cell.arrivals:,}", preferred, number(cell.estimate, ".3f")]
        lines.append(TableRow(key(colours[learner.name], learner.name), cells))
    headings = ["learner", "region", "visits", "prefers", "estimate"]
    return table(headings, lines, words=["region", "prefers"])


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
