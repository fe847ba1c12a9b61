"""The HTML of a report: its frame, its style, and a section for each figure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import msgspec

from covey import figures
from covey.drawing import NONE, shorten
from covey.spaces import Space, space_name
from covey.types import BY_CONTEXT, CellView, EnsembleOutcome, LearnerOutcome, Outcome

_WIDTH = 1080  # pixels that figures may fill
_GAP = 24  # pixels between panels
_BUSIEST = 12  # cells listed where they cannot be drawn
_PREFERENCES = "Whom each region prefers"
_HOW_DRAWN = (
    "Each box is a cell of the context space, every context scaled to run from 0 to 1, in the "
    "colour of the arm that did best there, less its price (by an index, of the one with most "
    "labels): a grey is an own function, a hue is the peer of that colour. Percents are "
    "shares of the learner's arrivals. Hatched cells "
    "had less than a tenth of the visits of an average cell, so that their preference is "
    "little more than a guess."
)
_PALE = " A pale hue is a peer that is shown only the cell."
_HOW_LISTED = (
    f"Listed are the {_BUSIEST} most visited cells of those that cannot be drawn without "
    "misleading: more than two contexts, or none. A context that is not named may have any value. "
    "The arm is the one that did best, less its price; the estimate is its share of right "
    "answers before the price."
)


class _View(NamedTuple):
    """The cells of a learner in one of its context spaces."""

    learner: LearnerOutcome
    space: Space
    cells: list[CellView]


def document(body: str, *, title: str) -> str:
    """Return a whole page that loads nothing and runs nothing."""
    return _FRAME.format(title=escape(title), style=_STYLE, body=body)


def section(heading: str, content: str, how: str) -> str:
    """Return a section of ready HTML, with `how` below it saying how to read it."""
    return f'<section><h2>{heading}</h2>{content}<p class="how">{how}</p></section>'


def swatch(colour: str) -> str:
    """Return a small square of `colour`."""
    return f'<i style="background: {colour}"></i>'


def grid(panels: Sequence[str], *, columns: int | None = None) -> str:
    """Return panels side by side."""
    columns = columns or _columns(len(panels))
    return f'<div class="grid" style="--columns: {columns}">{"".join(panels)}</div>'


def panel_width(panels: int) -> int:
    """Return the pixels across that each of so many panels has."""
    return _width(_columns(panels))


def panel(name: str, drawn: str, *, note: str = "") -> str:
    """Return a drawing under a name."""
    shown = escape(shorten(name, 60))
    heading = f'<h3 title="{escape(name)}"><b>{shown}</b><span>{note}</span></h3>'
    return f"<figure>{heading}{drawn}</figure>"


def legend(keys: Iterable[str]) -> str:
    """Return a line of keys."""
    return f'<p class="legend">{"".join(keys)}</p>'


def key(colour: str, name: str, *, note: str = "") -> str:
    """Return a name beside its colour."""
    shown = f"{escape(shorten(name, 24))} {note}".rstrip()
    return f'<span class="key" title="{escape(name)}">{swatch(colour)}{shown}</span>'


def sign(kind: str, meaning: str) -> str:
    """Return what a kind of line or box means."""
    return f'<span class="key"><i class="{kind}"></i>{meaning}</span>'


def tile(name: str, number: str, unit: str) -> str:
    """Return a number large enough to be read from afar."""
    suffix = "" if number == NONE else f"<small>{unit}</small>"
    return f"<div><dt>{name}</dt><dd>{minus(number)}{suffix}</dd></div>"


def minus(number: str) -> str:
    """Return a printed number with a real minus sign."""
    return number.replace("-", "\N{MINUS SIGN}")


def errors(outcome: Outcome) -> str:
    """Return the section that shows each learner's error over time."""
    judged = [learner for learner in outcome.learners if learner.judged]
    if not judged:
        return section("Error over time", "", "The log holds no true label, so none is known.")
    colours = figures.arm_colours(outcome.learners)
    ceiling, width = _ceiling(judged), panel_width(len(judged))
    panels = []
    for learner in judged:
        colour = colours[learner.name]
        drawn = figures.draw_errors(learner, colour=colour, ceiling=ceiling, width=width)
        panels.append(panel(learner.name, drawn, note=_long_run(learner)))
    keys = [
        sign("heavy", "around that time"),
        sign("thin", "whole log"),
        sign("dotted", "alone"),
    ]
    how = (
        "The heavy line is the share of errors around that time, taken over a few neighbouring "
        "stretches. Where the thin line lies below the dotted one, asking peers paid off in "
        "errors. All panels share one scale."
    )
    return section("Error over time", legend(keys) + grid(panels), how)


def ensemble(outcome: Outcome, found: EnsembleOutcome) -> str:
    """Return the section that shows whose votes weigh how much."""
    colours = figures.arm_colours(outcome.learners)
    members = [learner for learner in outcome.learners if learner.name in found.mean_weights]
    lines = [
        f'<tr><th scope="row">{key(colours[member.name], member.name)}</th>'
        f"<td>{_error(member.errors, member.judged)}</td>"
        f"<td>{found.mean_weights[member.name]:.3f}</td></tr>"
        for member in members
    ]
    table = (
        '<div class="wide"><table><thead><tr><th scope="col">member</th>'
        '<th scope="col">error %</th><th scope="col">weight</th></tr></thead>'
        f'<tbody>{"".join(lines)}</tbody><tfoot><tr><th scope="row">ensemble</th>'
        f"<td>{_error(found.errors, found.judged)}</td><td></td></tr></tfoot></table></div>"
    )
    drawn = figures.draw_weights(found, colours=colours, width=_WIDTH) if found.history else ""
    how = (
        f"The ensemble ({found.title}) answers with the label that the weights of its members "
        "come to. Weights are those at the end of the log"
        f"{'; the drawing shows how they moved' if drawn else ', the mean over the cells'}."
    )
    return section("The ensemble", table + drawn, how)


def phases(outcome: Outcome) -> str:
    """Return the section that shows how each learner's slots were used over time."""
    busy = [learner for learner in outcome.learners if learner.slots]
    if not busy:
        return section("Phases over time", "", "The log holds no rows, so there is none.")
    width = panel_width(len(busy))
    panels = [panel(learner.name, figures.draw_phases(learner, width=width)) for learner in busy]
    keys = [key(colour, phase) for phase, colour in figures.PHASE_COLOURS.items()]
    how = (
        "<b>train</b>: a peer is asked so that it learns, and its answer is not held for or "
        "against it. <b>explore</b>: an arm is tried because too little is known of it. "
        "<b>exploit</b>: the arm that looks best is used. A healthy run turns pale as it learns; "
        "where dark comes back, cells were split or new regions visited."
    )
    return section("Phases over time", legend(keys) + grid(panels), how)


def matrix(outcome: Outcome) -> str:
    """Return the section that shows whom each learner chose."""
    if len(outcome.learners) < 2:
        return section("Who asked whom", "", "There is one learner, so there was nobody to ask.")
    how = (
        "Each row is a learner, and says whom it chose in its slots: itself with its own functions "
        "(bold, on the diagonal) or the peer named above the column. A row adds up to 100%. "
        "A dark column off the diagonal is a site on which others lean."
    )
    if _shows_cells(outcome):
        how += " Peers that were shown only the cell count as any others."
    return section("Who asked whom", figures.draw_matrix(outcome.learners), how)


def preferences(outcome: Outcome) -> str:
    """Return the section that shows which arm each region of the context space prefers."""
    if outcome.dimension == 0:
        return section(_PREFERENCES, "", _without_contexts(outcome.learners))
    views = _views(outcome)
    drawn = [view for view in views if len(view.space) in (1, 2)]
    listed = [view for view in views if len(view.space) not in (1, 2)]
    content, how = "", []
    if drawn:
        keys = [sign("rare", "rarely visited"), sign("blank", "no label yet")]
        content += legend(keys) + _maps(outcome, drawn)
        how.append(_HOW_DRAWN + _PALE * _shows_cells(outcome) + _repeats(outcome))
    if listed:
        content += _busiest(outcome, listed)
        how.append(_HOW_LISTED)
    return section(_PREFERENCES, content, " ".join(how))


def _ceiling(judged: Sequence[LearnerOutcome]) -> float:
    """Return the top of the common scale: it shows every line, and is never zero."""
    smoothed = [value for learner in judged for value in figures.smoothed_errors(learner.timeline)]
    alone = [100 * learner.alone_errors / learner.judged for learner in judged]
    highest = max(value for value in [*smoothed, *alone, 1.0] if not math.isnan(value))
    return min(100.0, highest * 1.08)


def _long_run(learner: LearnerOutcome) -> str:
    error = 100 * learner.errors / learner.judged
    alone = 100 * learner.alone_errors / learner.judged
    return f"{error:.2f}%, alone {alone:.2f}%"


def _error(errors: float, judged: int) -> str:
    return f"{100 * errors / judged:.2f}" if judged else NONE


def _without_contexts(learners: Sequence[LearnerOutcome]) -> str:
    found = [
        f"{shorten(learner.name, 30)} prefers {shorten(cell.arm, 30)}"
        for learner in learners
        for cell in learner.cells
        if cell.arm is not None
    ]
    ending = f" In the end {', '.join(found)}." if found else ""
    return escape(f"No context was used, so each learner has one cell for everything.{ending}")


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
        f'<td class="words">{escape(_region(cell, outcome))}</td><td>{cell.arrivals:,}</td>'
        f'<td class="words">{_preferred(cell, colours)}</td><td>{_estimate(cell)}</td></tr>'
        for learner, cell in found[:_BUSIEST]
    ]
    return (
        '<div class="wide"><table><thead><tr><th scope="col">learner</th>'
        '<th scope="col" class="words">region</th><th scope="col">visits</th>'
        '<th scope="col" class="words">prefers</th><th scope="col">estimate</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _region(cell: CellView, outcome: Outcome) -> str:
    sides = zip(_context_names(outcome), cell.low, cell.high, strict=True)
    bounds = [
        f"{shorten(name, 20)} {low:.3g}{NONE}{high:.3g}"
        for name, low, high in sides
        if high - low < 1
    ]
    return ", ".join(bounds) or "everywhere"


def _context_names(outcome: Outcome) -> list[str]:
    unnamed = [f"context {position + 1}" for position in range(outcome.dimension)]
    given = outcome.context_names[: outcome.dimension]
    return [*given, *unnamed[len(given) :]]


def _preferred(cell: CellView, colours: Mapping[str, str]) -> str:
    return "no label yet" if cell.arm is None else key(_colour(cell.arm, colours), cell.arm)


def _estimate(cell: CellView) -> str:
    return NONE if cell.estimate is None else f"{cell.estimate:.3f}"


def _maps(outcome: Outcome, views: Sequence[_View]) -> str:
    strips = [view for view in views if len(view.space) == 1]
    squares = [view for view in views if len(view.space) == 2]
    # With one context space a strip has the whole width, so that fine cells can be told apart.
    columns = 1 if outcome.spaces == 1 else _columns(len(strips))
    across, square = _width(columns), min(400, panel_width(len(squares)))
    content = ""
    if strips:
        drawn = [_map(outcome, view, figures.draw_strip, across) for view in strips]
        content += grid(drawn, columns=columns)
    if squares:
        # A single square would leave its heading at the far end of the line.
        columns = _columns(len(squares) if outcome.spaces == 1 else max(2, len(squares)))
        drawn = [_map(outcome, view, figures.draw_square, square) for view in squares]
        content += grid(drawn, columns=columns)
    return content


def _map(outcome: Outcome, view: _View, draw: Callable[..., str], width: int) -> str:
    colours = figures.arm_colours(outcome.learners)
    every = _context_names(outcome)
    learner = msgspec.structs.replace(
        view.learner, cells=[_within(cell, view.space) for cell in view.cells]
    )
    names = [every[place] for place in view.space]
    drawn = draw(learner, colours=colours, contexts=names, width=width)
    note = _went_by(view, every) if outcome.spaces > 1 else ""
    return panel(learner.name, drawn + legend(_shares(view.cells, colours)), note=note)


def _within(cell: CellView, space: Space) -> CellView:
    """Return a cell with the bounds of its own contexts alone."""
    low, high = (tuple(bounds[place] for place in space) for bounds in (cell.low, cell.high))
    return msgspec.structs.replace(cell, low=low, high=high)


def _went_by(view: _View, names: Sequence[str]) -> str:
    space = space_name(view.space, names)
    by = f"by {escape(shorten(space, 30))}"
    decided = view.learner.candidates.get(space, 0)
    if not view.learner.candidates:
        return by
    return f"{by}: {figures.percent(decided / view.learner.slots)} of slots"


def _shares(cells: Sequence[CellView], colours: Mapping[str, str]) -> list[str]:
    """Return a key for each preferred arm, with the share of arrivals in cells that prefer it."""
    arrivals: dict[str, int] = {}
    for cell in cells:
        if cell.arm is not None:
            arrivals[cell.arm] = arrivals.get(cell.arm, 0) + cell.arrivals
    everything = sum(cell.arrivals for cell in cells) or 1
    return [
        key(_colour(arm, colours), arm, note=figures.percent(count / everything))
        for arm, count in sorted(arrivals.items(), key=lambda pair: -pair[1])
    ]


def _shows_cells(outcome: Outcome) -> bool:
    """Say whether somebody is shown the cell and not the data."""
    return any(arm.endswith(BY_CONTEXT) for learner in outcome.learners for arm in learner.arms)


def _colour(arm: str, colours: Mapping[str, str]) -> str:
    return colours.get(arm, figures.BLANK)


def _repeats(outcome: Outcome) -> str:
    distinct = len(figures.LEARNER_COLOURS)
    if len(outcome.learners) <= distinct:
        return ""
    return f" Hues repeat after {distinct} learners: go by the names."


def _columns(panels: int) -> int:
    """Return how many panels stand side by side, such that the last row is not left lonely."""
    if panels <= 4:
        return max(1, panels)
    return 3 if panels in (5, 6, 9) else 4


def _width(columns: int) -> int:
    return (_WIDTH - _GAP * (columns - 1)) // columns


# The content policy holds even if a name ever slipped through unescaped.
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

_STYLE = """
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
