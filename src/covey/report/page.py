"""Pages of reports: what the templates are filled with. Names are escaped by the templates."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey.bandit.partitions import Space, space_of
from covey.errors import need_of, optional_module
from covey.replay.engine import CellView
from covey.replay.outcome import LearnerOutcome, Outcome
from covey.report import figures, text
from covey.report.text import number, shorten
from covey.types import BY_CONTEXT

Config = str | Path | Mapping[str, Any]
WIDTH = 1080  # pixels that figures may fill
_GAP = 24  # pixels between panels


class Key(NamedTuple):
    """A name with its colour."""

    name: str
    colour: str
    note: str = ""


class Panel(NamedTuple):
    """A figure with its heading, and a legend below it."""

    name: str
    drawn: Any
    note: Any = ""
    keys: Sequence[Key] = ()


@cache
def _templates() -> Any:
    """Return the templates; raise `MissingExtra` if jinja2 is not installed."""
    jinja2 = optional_module("jinja2", missing=need_of("Pages", "jinja2", extra="report"))
    folder = resources.files("covey.report") / "templates"
    templates = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text("utf-8")),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters |= {
        "shorten": shorten,
        "minus": lambda shown: shown.replace("-", "\N{MINUS SIGN}"),
    }
    templates.globals |= {
        "number": number,
        "text": text,
        "columns": lambda panels: columns_of(len(panels)),
    }
    return templates


def check_extra() -> None:
    """Raise `MissingExtra` if a page cannot be made."""
    figures.figure_type()
    _templates()


def markup(html: str) -> Any:
    """Return HTML that is not escaped again."""
    return optional_module("markupsafe", missing="").Markup(html)


def filled(template: str, *, title: str, config: Config | None = None, **values: Any) -> str:
    """Return a complete page without scripts or external resources; it ends with `config`."""
    if isinstance(config, Mapping):
        config = msgspec.json.format(msgspec.json.encode(config, enc_hook=str), indent=2).decode()
    elif config is not None:
        config = Path(config).read_text(encoding="utf-8")
    made = f"covey {version('covey')}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    made_of = _templates().get_template(f"{template}.jinja")
    page: str = made_of.render(title=title, config=config, made=made, **values)
    return page


def columns_of(panels: int) -> int:
    """Return the number of columns, such that the last row is not nearly empty."""
    if panels <= 4:
        return max(1, panels)
    return 3 if panels in (5, 6, 9) else 4


def width_of(columns: int) -> int:
    """Return the width in pixels of a panel in one of so many columns."""
    return (WIDTH - _GAP * (columns - 1)) // columns


def replay_page(outcome: Outcome, *, title: str, config: Config | None = None) -> str:
    """Return `outcome` as one self-contained HTML page, which ends with the configuration.

    Raises `MissingExtra` if matplotlib or jinja2 is not installed.
    """
    check_extra()
    colours = figures.arm_colours(outcome.learners)
    return filled(
        "replay",
        title=title,
        config=config,
        outcome=outcome,
        colours=colours,
        accounts=text.account_lines(outcome),
        ranked=_ranked,
        baselines=_ranked(
            {name: each.error_percent for name, each in (outcome.baselines or {}).items()}
        ),
        idle=[shorten(each.name) for each in outcome.learners if not each.numbers.slots],
        errors=_errors(outcome, colours),
        shows_cells=any(
            arm.endswith(BY_CONTEXT) for each in outcome.learners for arm in each.numbers.arms
        ),
        members=_members(outcome),
        **_preferences(outcome, colours),
    )


def _ranked(errors: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """Return errors, the least first; those that are not known are last."""
    order = sorted(errors.items(), key=lambda pair: math.inf if pair[1] is None else pair[1])
    return [(name, number(error, ".2f")) for name, error in order]


def _errors(outcome: Outcome, colours: Mapping[str, str]) -> list[Panel]:
    """Return each learner's error over time."""
    judged = [learner for learner in outcome.learners if learner.judged]
    width = width_of(columns_of(len(judged)))
    smoothed = [value for each in judged for value in figures.smoothed_errors(each.timeline)]
    alone = [each.numbers.alone_percent or 0.0 for each in judged]
    highest = max(value for value in [*smoothed, *alone, 1.0] if not math.isnan(value))
    panels = []
    for learner in judged:
        drawn = figures.draw_errors(
            learner, colour=colours[learner.name], ceiling=min(100.0, highest * 1.08), width=width
        )
        note = f"{number(learner.numbers.error_percent, '.2f')}%"
        if learner.numbers.alone_percent is not None:
            note += f", alone {learner.numbers.alone_percent:.2f}%"
        panels.append(Panel(learner.name, markup(drawn), note))
    return panels


def _members(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Return the members of an ensemble, with the weights of their votes, and the ensemble."""
    voted = outcome.ensemble
    if voted is None:
        return []
    members = [
        (member.name, number(member.numbers.error_percent, ".2f"), f"{weight:.3f}")
        for member in outcome.learners
        if (weight := voted.mean_weights.get(member.name)) is not None
    ]
    return [*members, ("ensemble", number(voted.numbers.error_percent, ".2f"), "")]


# -- preferred arms -----------------------------------------------------------------------------


class _View(NamedTuple):
    """The cells of a learner in one of its context spaces."""

    learner: LearnerOutcome
    space: Space
    cells: list[CellView]


def _preferences(outcome: Outcome, colours: Mapping[str, str]) -> dict[str, Any]:
    """Return the preferred arm in each region of the context space: drawn, or listed."""
    every = tuple(range(outcome.dimension))
    views = []
    for learner in outcome.learners if outcome.dimension else ():
        by_space: dict[Space, list[CellView]] = {}
        for cell in learner.cells:
            by_space.setdefault(every if cell.space is None else cell.space, []).append(cell)
        views += [_View(learner, space, cells) for space, cells in by_space.items()]
    strips, squares = ([view for view in views if len(view.space) == size] for size in (1, 2))
    # With one context space a strip has the full width, so that fine cells are distinguishable;
    # the heading of a single square stays close to it.
    is_one = outcome.spaces == 1
    width = width_of(1 if is_one else columns_of(len(strips)))
    side = min(400, width_of(columns_of(len(squares))))
    return {
        "preferred": [
            f"{shorten(learner.name)} prefers {shorten(cell.arm)}"
            for learner in outcome.learners
            for cell in learner.cells
            if cell.arm is not None
        ],
        "strips": [_map(outcome, view, colours, width) for view in strips],
        "squares": [_map(outcome, view, colours, side) for view in squares],
        "square_columns": columns_of(len(squares) if is_one else max(2, len(squares))),
        "hidden": len(views) - len(strips) - len(squares),
        "hues": len(figures.LEARNER_COLOURS),
    }


def _context_names(outcome: Outcome) -> list[str]:
    names = outcome.context_names[: outcome.dimension]
    return [*names, *(f"context {k + 1}" for k in range(len(names), outcome.dimension))]


def _map(outcome: Outcome, view: _View, colours: Mapping[str, str], width: int) -> Panel:
    every = _context_names(outcome)
    ticks = [outcome.context_ticks[index] for index in view.space] if outcome.context_ticks else []
    cells = [  # with the bounds of their own contexts only
        msgspec.structs.replace(
            cell,
            low=tuple(cell.low[index] for index in view.space),
            high=tuple(cell.high[index] for index in view.space),
        )
        for cell in view.cells
    ]
    drawn = figures.draw_map(
        msgspec.structs.replace(view.learner, cells=cells),
        colours=colours,
        contexts=[every[index] for index in view.space],
        width=width,
        ticks=ticks,
    )
    space, numbers = space_of(view.cells[0].name), view.learner.numbers
    note = f"by {shorten(space)}" if outcome.spaces > 1 else ""
    if numbers.candidates:
        note += f": {figures.percent(numbers.candidates.get(space, 0) / numbers.slots)} of slots"
    return Panel(view.learner.name, markup(drawn), note, _shares(view.cells, colours))


def _shares(cells: Sequence[CellView], colours: Mapping[str, str]) -> list[Key]:
    """Return a key for each preferred arm, with the share of arrivals in cells that prefer it."""
    arrivals = Counter[str]()
    for cell in cells:
        if cell.arm is not None:
            arrivals[cell.arm] += cell.arrivals
    everything = sum(cell.arrivals for cell in cells) or 1
    return [
        Key(arm, colours.get(arm, figures.BLANK), figures.percent(times / everything))
        for arm, times in arrivals.most_common()
    ]
