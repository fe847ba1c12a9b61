"""Reports of a replay: terminal table and HTML page."""

import math
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

import msgspec

from covey import files
from covey.bandit.accounts import system_utility
from covey.errors import ConfigError
from covey.replay.gains import Gain
from covey.replay.outcome import (
    HINDSIGHT,
    BaselineOutcome,
    EnsembleOutcome,
    LearnerOutcome,
    Outcome,
)
from covey.replay.replay import ConfigLike
from covey.report import page, shadow
from covey.report import text as report_text
from covey.report.figures import arm_colours, figure_type
from covey.report.summary import best_own_percent, summarise, total_of
from covey.report.text import number, percent, shorten

_COLUMNS = {  # heading -> attribute of a row, format
    "slots": ("slots", ","),
    "error %": ("error", ".2f"),
    "cost": ("cost", ".2f"),
    "best own %": ("best_own", ".2f"),
    "net gain": ("net_gain", "+.2f"),
    "\N{PLUS-MINUS SIGN}": ("half_width", ".2f"),
    "alone %": ("alone", ".2f"),
    "train %": ("train", ".1f"),
    "explore %": ("explore", ".1f"),
}
_ARM_HEADINGS = ("arm", "decisions", "share %", "labels", "error %", "cost")
_OF_REPLAYS = ("best own %", "net gain", "\N{PLUS-MINUS SIGN}", "alone %")
_ALARMS = {"alarms": ("alarms", ",")}  # shown only if there are any
_NAME = 30  # characters of a name in a table
_CENTRAL = (
    "Baselines use the predictions of all functions of all sites on every row, free of charge."
)


def text(outcome: Outcome) -> str:
    """Return `outcome` as a terminal table, and a sentence on the gain of cooperation."""
    rows = [*_rows(outcome), *_totals(outcome)]
    parts = (
        f"{_extent(outcome)}\n{report_text.fill(outcome.policy)}",
        report_text.table([_headings(outcome), *(_printed(row, outcome) for row in rows)]),
        *([report_text.fill(_best_single(outcome))] if outcome.is_replayed else []),
        report_text.fill(_verdict(outcome)),
        *map(report_text.fill, _remarks(outcome)),
        *([_baselines(outcome.baselines)] if outcome.baselines else []),
        *([report_text.fill(compared)] if (compared := _compared(outcome)) else []),
        *(_by_arm(learner) for learner in outcome.learners if learner.by_arm),
        *([] if outcome.shadow is None else [shadow.text(outcome.shadow)]),
    )
    return "\n\n".join(parts) + "\n"


def html(outcome: Outcome, *, title: str, config: ConfigLike | None = None) -> str:
    """Return `outcome` as one self-contained HTML page, which ends with the configuration.

    Raises `MissingExtra` if matplotlib is not installed.
    """
    sections = (
        _header(outcome, title),
        _numbers_section(outcome),
        *([] if outcome.shadow is None else [shadow.section(outcome.shadow)]),
        *([page.ensemble(outcome, outcome.ensemble)] if outcome.ensemble else []),
        page.errors(outcome),
        page.phases(outcome),
        page.matrix(outcome),
        page.preferences(outcome),
        *([] if config is None else [page.origin(config)]),
    )
    return page.document("\n".join(sections), title=title)


def check_folder(folder: Path) -> None:
    """Raise what `write` would raise: call it before a long replay.

    Raises `MissingExtra` if matplotlib is not installed, and `ConfigError` if a file is there.
    """
    figure_type()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name another folder for the report, or move it")


def write(outcome: Outcome, folder: Path, *, title: str, config: ConfigLike | None = None) -> Path:
    """Write `report.html` and `summary.json` into `folder`, and return the path of the page.

    Raises as `check_folder` does; then nothing is written.
    """
    check_folder(folder)
    content = html(outcome, title=title, config=config)
    numbers = msgspec.json.format(msgspec.json.encode(summarise(outcome)), indent=2)
    return write_files(folder, content, numbers.decode() + "\n")


def write_files(folder: Path, page_text: str, numbers: str, *, name: str = "report") -> Path:
    """Write a page and its numbers, and return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    json_name = "summary.json" if name == "report" else f"{name}.json"
    files.replace(folder / json_name, numbers.encode())
    files.replace(folder / f"{name}.html", page_text.encode())
    return folder / f"{name}.html"


class _Row(NamedTuple):
    """Numbers of a learner in percent, or of all of them; gains and costs are in points."""

    name: str
    slots: int
    error: float | None
    alone: float | None
    best_own: float | None  # on the same rows
    cost: float | None
    gain: Gain | None  # over the best own function, net of costs
    train: float | None
    explore: float | None
    alarms: int = 0

    @property
    def net_gain(self) -> float | None:
        return None if self.gain is None else 100 * self.gain.mean

    @property
    def half_width(self) -> float | None:
        if self.gain is None or self.gain.half_width is None:
            return None
        return 100 * self.gain.half_width


def _row(learner: LearnerOutcome) -> _Row:
    return _Row(
        name=learner.name,
        slots=learner.slots,
        error=percent(learner.errors, learner.judged),
        alone=percent(learner.alone_errors, learner.judged),
        best_own=best_own_percent(learner),
        cost=percent(learner.cost_total, learner.slots),
        gain=learner.gain,
        train=percent(learner.train, learner.slots),
        explore=percent(learner.explore, learner.slots),
        alarms=len(learner.alarms),
    )


def _rows(outcome: Outcome) -> list[_Row]:
    return [_row(learner) for learner in outcome.learners]


def _total(outcome: Outcome) -> _Row:
    """Return the means over all learners, weighted by slots."""
    total = total_of(outcome)
    return _Row(
        name="all",
        slots=total.slots,
        error=total.error_percent,
        alone=total.alone_percent,
        best_own=total.best_own_percent,
        cost=total.cost_points,
        gain=outcome.gain,
        train=total.train_percent,
        explore=total.explore_percent,
        alarms=total.alarms,
    )


def _totals(outcome: Outcome) -> list[_Row]:
    return [_total(outcome)] if len(outcome.learners) > 1 else []


def _columns(outcome: Outcome) -> dict[str, tuple[str, str]]:
    has_alarms = any(learner.alarms for learner in outcome.learners)
    shown = {
        name: column
        for name, column in _COLUMNS.items()
        if outcome.is_replayed or name not in _OF_REPLAYS
    }
    return shown | _ALARMS if has_alarms else shown


def _headings(outcome: Outcome) -> tuple[str, ...]:
    return ("learner", *_columns(outcome))


def _printed(row: _Row, outcome: Outcome) -> tuple[str, ...]:
    numbers = [number(getattr(row, name), form) for name, form in _columns(outcome).values()]
    return shorten(row.name, _NAME), *numbers


def _extent(outcome: Outcome) -> str:
    learners = len(outcome.learners)
    return f"{learners} learner{'' if learners == 1 else 's'}, {outcome.slots:,} slots"


def _best_single(outcome: Outcome) -> str:
    known = {name: error for name, error in outcome.functions.items() if error is not None}
    if not known:
        return "Functions cannot be judged: the log has no true labels."
    best = min(known, key=lambda name: known[name])
    return (
        f"The best single function in hindsight is {shorten(best, _NAME)}, wrong on "
        f"{known[best]:.2f}% of the log."
    )


def _verdict(outcome: Outcome) -> str:
    if outcome.ensemble is not None:
        return _ensemble_verdict(outcome.ensemble)
    total = _total(outcome)
    if not outcome.is_replayed:
        return _as_it_was(outcome, total)
    if total.error is None or total.alone is None:
        return "The gain of cooperation is unknown: the log has no true labels."
    if total.best_own is None or total.gain is None or total.net_gain is None:
        return f"No site has own functions; together they were wrong on {total.error:.2f}%."
    if len(outcome.learners) == 1:
        return (
            f"There is one learner and no peer; it was wrong on {total.error:.2f}% of its slots, "
            f"its best own function on {total.best_own:.2f}%: {_gained(total)}."
        )
    return (
        f"Over all sites, the best own function of each was wrong on {total.best_own:.2f}% of its "
        f"rows. Together they were wrong on {total.error:.2f}% and paid {total.cost:.2f} points: "
        f"{_gained(total)}. Without peers the same policy was wrong on {total.alone:.2f}%."
    )


def _as_it_was(outcome: Outcome, total: _Row) -> str:
    """Return what really happened; functions that were not chosen did not run."""
    if total.error is None:
        return "No labels have arrived yet."
    labelled = sum(learner.judged for learner in outcome.learners)
    return (
        f"Of {total.slots:,} rows, {labelled:,} have a label; {total.error:.2f}% of those were "
        f"wrong. Answers cost {total.cost:.2f} points. {_others(outcome)}"
    )


def _others(outcome: Outcome) -> str:
    if outcome.shadow is not None:
        return "What other choices would have done is estimated from the rows that were drawn."
    return (
        "What the best own function would have done is not known, because only chosen functions "
        "ran; shadow mode tells it."
    )


def _by_arm(learner: LearnerOutcome) -> str:
    """Return what the arms of a served site did, as a table."""
    return report_text.table([_ARM_HEADINGS, *_arm_lines(learner)])


def _arm_lines(learner: LearnerOutcome) -> list[tuple[str, ...]]:
    return [
        (
            shorten(arm, _NAME),
            f"{one.decisions:,}",
            number(percent(one.decisions, learner.slots), ".1f"),
            f"{one.judged:,}",
            number(percent(one.errors, one.judged), ".2f"),
            f"{one.cost_total:,.2f}",
        )
        for arm, one in learner.by_arm.items()
    ]


def _gained(total: _Row) -> str:
    """Return the net gain in words, with its interval and whether it is certain."""
    gain, mean = total.gain, total.net_gain
    assert gain is not None
    assert mean is not None
    found = f"a net {'gain' if mean >= 0 else 'loss'} of {abs(mean):.2f} points"
    if gain.interval is None:
        return f"{found} (too few rows for an interval)"
    low, high = (100 * end for end in gain.interval)
    certain = "" if low > 0 or high < 0 else ", which may be chance"
    return f"{found} (95 % interval {low:+.2f} to {high:+.2f}{certain})"


def _baselines(baselines: Mapping[str, BaselineOutcome]) -> str:
    lines = [(name, number(each.error_percent, ".2f")) for name, each in baselines.items()]
    table = report_text.table([("baseline", "error %"), *lines])
    return f"{report_text.fill(_CENTRAL)}\n\n{table}"


def _compared(outcome: Outcome) -> str:
    """Return what the baselines say of the sites, in a sentence."""
    total = _total(outcome)
    found = {
        name: each.error_percent
        for name, each in (outcome.baselines or {}).items()
        if each.error_percent is not None and name != HINDSIGHT
    }
    if not found or total.error is None or total.cost is None:
        return ""
    best = min(found, key=lambda name: found[name])
    net = total.error + total.cost
    than = "fewer" if found[best] < net else "more" if found[best] > net else "as many"
    more = f"{abs(net - found[best]):.2f} points {than}" if than != "as many" else than
    return (
        f"The best baseline, {best}, has {found[best]:.2f}% errors: {more} than the sites' errors "
        f"and costs together ({net:.2f}). It sees all functions of all sites on every row, free "
        "of charge."
    )


def _ensemble_verdict(ensemble: EnsembleOutcome) -> str:
    if not ensemble.judged:
        return "The gain of the ensemble is unknown: the log has no true labels."
    error, best, exploit = (
        100 * errors / ensemble.judged
        for errors in (ensemble.errors, ensemble.best_member_errors, ensemble.exploit_errors)
    )
    return (
        f"The ensemble ({ensemble.title}) was wrong on {error:.2f}% of the log; the best of its "
        f"members, {shorten(ensemble.best_member, _NAME)}, on {best:.2f}%. Slots in which every "
        f"learner exploited contribute {exploit:.2f} points of its error."
    )


def _remarks(outcome: Outcome) -> list[str]:
    """Return further sentences for the reader, if any."""
    remarks = []
    if outcome.accounts is not None:
        each = ", ".join(f"{name} {a.utility:.1f}" for name, a in outcome.accounts.items())
        remarks.append(
            f"Utility (right answers less all costs, including serving): {each}; total "
            f"{system_utility(outcome.accounts):.1f}."
        )
    remarks += [
        f"{learner.name} gets no labels, and in {learner.blind:,} of {learner.slots:,} slots none "
        "of its peers had any either: there it cannot learn."
        for learner in outcome.learners
        if learner.blind
    ]
    remarks += [
        f"In {learner.stood_in:,} of {learner.slots:,} slots of {learner.name} the chosen peer did "
        "not answer in time; its own best function answered."
        for learner in outcome.learners
        if learner.stood_in
    ]
    remarks += [_alarms(learner) for learner in outcome.learners if learner.alarms]
    return remarks + [_candidates(learner) for learner in outcome.learners if learner.candidates]


def _alarms(learner: LearnerOutcome) -> str:
    count = len(learner.alarms)
    raised = "1 alarm," if count == 1 else f"{count:,} alarms, the last"
    name = shorten(learner.name, _NAME)
    return f"The change detection of {name} raised {raised} at slot {learner.alarms[-1]:,}."


def _candidates(learner: LearnerOutcome) -> str:
    shares = [
        f"{shorten(name or 'none', _NAME)} in {100 * times / learner.slots:.1f}%"
        for name, times in learner.candidates.items()
    ]
    return f"Candidate contexts that {learner.name} used: {', '.join(shares)} of its slots."


def _header(outcome: Outcome, title: str) -> str:
    total = _total(outcome)
    tiles = [
        page.tile("error with peers", number(total.error, ".2f"), "%"),
        page.tile("cost", number(total.cost, ".2f"), "points"),
        page.tile("best own functions", number(total.best_own, ".2f"), "%"),
        page.tile("net gain", number(total.net_gain, "+.2f"), "points"),
    ]
    if not outcome.is_replayed:
        tiles = tiles[:2]
    elif len(outcome.learners) == 1:
        tiles = [page.tile("error", number(total.error, ".2f"), "%")]
    if outcome.ensemble is not None:
        voted = outcome.ensemble
        error = percent(voted.errors, voted.judged)
        best = percent(voted.best_member_errors, voted.judged)
        tiles = [
            page.tile("error of the ensemble", number(error, ".2f"), "%"),
            page.tile("best member", number(best, ".2f"), "%"),
        ]
    policy = f'<p class="policy">{escape(outcome.policy)}</p>'
    more = f'{policy}<dl class="tiles">{"".join(tiles)}</dl>'
    return page.header(title, _extent(outcome), [_verdict(outcome), *_remarks(outcome)], more=more)


def _numbers_section(outcome: Outcome) -> str:
    colours = arm_colours(outcome.learners)
    body = "".join(_line(row, outcome, colour=colours[row.name]) for row in _rows(outcome))
    foot = "".join(_line(row, outcome, colour=None) for row in _totals(outcome))
    how = (
        "All columns of a row are of the same slots: those that arrived at the learner. "
        "<b>cost</b> is in points: 1 point is 0.01 per slot. <b>best own</b> is the learner's own "
        "function with the fewest errors, chosen in hindsight; <b>net gain</b> is its error less "
        "the learner's error and cost, with the half width of the 95 % interval (batch means, so "
        "errors in runs are allowed for). <b>alone</b> is the same policy without peers. "
        f"{escape(_best_single(outcome))}{escape(_idle(outcome))}"
    )
    if not outcome.is_replayed:
        how = "<b>cost</b> is in points: 1 point is 0.01 per slot. Rows are those still stored."
    is_shown = outcome.is_replayed
    errors = _errors("Error % of each function", outcome.functions) if is_shown else ""
    for learner in outcome.learners:
        if learner.by_arm:
            lines = "".join(
                f'<tr><th scope="row">{page.swatch(colours.get(arm, colours[learner.name]))}'
                f"{escape(name)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
                for arm, (name, *cells) in zip(learner.by_arm, _arm_lines(learner), strict=True)
            )
            errors += page.table(_ARM_HEADINGS, lines)
            how += " <b>cost</b> of an arm is in units of reward, and its error that of its rows."
    if outcome.baselines:
        found = {name: each.error_percent for name, each in outcome.baselines.items()}
        errors += _errors("Error % of each baseline", found)
        how = f"{how} {_CENTRAL} {escape(_compared(outcome))}"
    return page.section("Results", page.table(_headings(outcome), body, foot=foot) + errors, how)


def _line(row: _Row, outcome: Outcome, *, colour: str | None) -> str:
    name, *numbers = _printed(row, outcome)
    swatch = "" if colour is None else page.swatch(colour)
    cells = "".join(f"<td>{page.minus(number)}</td>" for number in numbers)
    return f'<tr><th scope="row" title="{escape(row.name)}">{swatch}{escape(name)}</th>{cells}</tr>'


def _errors(heading: str, errors: Mapping[str, float | None]) -> str:
    ranked = sorted(errors.items(), key=lambda pair: math.inf if pair[1] is None else pair[1])
    items = [
        f'<li title="{escape(name)}">{escape(shorten(name, _NAME))} '
        f"<b>{number(error, '.2f')}</b></li>"
        for name, error in ranked
    ]
    return f'<ul class="functions"><li>{heading}</li>{"".join(items)}</ul>'


def _idle(outcome: Outcome) -> str:
    names = [shorten(learner.name, _NAME) for learner in outcome.learners if not learner.slots]
    return f" Learners without rows: {', '.join(names)}." if names else ""
