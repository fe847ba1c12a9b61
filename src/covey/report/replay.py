"""Reports of a replay: terminal table and HTML page."""

import math
from collections.abc import Mapping
from html import escape

from covey.bandit.accounts import system_utility
from covey.replay.baselines import HINDSIGHT, BaselineOutcome
from covey.replay.outcome import EnsembleOutcome, LearnerOutcome, Outcome
from covey.replay.replay import ConfigLike
from covey.report import page, shadow
from covey.report import text as report_text
from covey.report.figures import arm_colours
from covey.report.summary import TotalSummary, total_of
from covey.report.text import number, percent, shorten
from covey.types import Interval

_COLUMNS = {
    "slots": ("slots", ","),
    "error %": ("error_percent", ".2f"),
    "cost": ("cost_points", ".2f"),
    "best own %": ("best_own_percent", ".2f"),
    "net gain": ("net_gain_points.mean", "+.2f"),
    "\N{PLUS-MINUS SIGN}": ("net_gain_points.half_width", ".2f"),
    "alone %": ("alone_percent", ".2f"),
    "train %": ("train_percent", ".1f"),
    "explore %": ("explore_percent", ".1f"),
}
_ARM_HEADINGS = ("arm", "decisions", "share %", "labels", "cost")
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
        *(
            report_text.table([_ARM_HEADINGS, *_arm_lines(learner)])
            for learner in outcome.learners
            if learner.by_arm
        ),
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
    )
    return page.document(sections, title=title, config=config)


Named = tuple[str, TotalSummary]  # the numbers of a learner, or of all


def _rows(outcome: Outcome) -> list[Named]:
    return [(one.name, total_of([one], one.gain)) for one in outcome.learners]


def _totals(outcome: Outcome) -> list[Named]:
    return [("all", _total(outcome))] if len(outcome.learners) > 1 else []


def _total(outcome: Outcome) -> TotalSummary:
    return total_of(outcome.learners, outcome.gain)


def _columns(outcome: Outcome) -> report_text.Columns:
    has_alarms = any(learner.alarms for learner in outcome.learners)
    shown = {
        name: column
        for name, column in _COLUMNS.items()
        if outcome.is_replayed or name not in _OF_REPLAYS
    }
    return shown | _ALARMS if has_alarms else shown


def _headings(outcome: Outcome) -> tuple[str, ...]:
    return ("learner", *_columns(outcome))


def _printed(row: Named, outcome: Outcome) -> tuple[str, ...]:
    name, numbers = row
    return shorten(name, _NAME), *report_text.cells(numbers, _columns(outcome))


def _extent(outcome: Outcome) -> str:
    return f"{report_text.count(outcome.learners, 'learner')}, {outcome.slots:,} slots"


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
    error, best_own, gain = total.error_percent, total.best_own_percent, total.net_gain_points
    if error is None or total.alone_percent is None:
        return "The gain of cooperation is unknown: the log has no true labels."
    if best_own is None or gain is None:
        return f"No site has own functions; together they were wrong on {error:.2f}%."
    if len(outcome.learners) == 1:
        return (
            f"There is one learner and no peer; it was wrong on {error:.2f}% of its slots, "
            f"its best own function on {best_own:.2f}%: {_gained(gain)}."
        )
    return (
        f"Over all sites, the best own function of each was wrong on {best_own:.2f}% of its "
        f"rows. Together they were wrong on {error:.2f}% and paid {total.cost_points:.2f} points: "
        f"{_gained(gain)}. Without peers the same policy was wrong on {total.alone_percent:.2f}%."
    )


def _as_it_was(outcome: Outcome, total: TotalSummary) -> str:
    """Return what really happened; functions that were not chosen did not run."""
    if total.error_percent is None:
        return "No labels have arrived yet."
    labelled = sum(learner.judged for learner in outcome.learners)
    others = "What other choices would have done is estimated from the rows that were drawn."
    if outcome.shadow is None:
        others = (
            "What the best own function would have done is not known, because only chosen "
            "functions ran; shadow mode tells it."
        )
    return (
        f"Of {total.slots:,} rows, {labelled:,} have a label; {total.error_percent:.2f}% of those "
        f"were wrong. Answers cost {total.cost_points:.2f} points. {others}"
    )


def _arm_lines(learner: LearnerOutcome) -> list[tuple[str, ...]]:
    return [
        (
            shorten(arm, _NAME),
            f"{one.decisions:,}",
            number(percent(one.decisions, learner.slots), ".1f"),
            f"{one.judged:,}",
            f"{one.cost_total:,.2f}",
        )
        for arm, one in learner.by_arm.items()
    ]


def _gained(gain: Interval) -> str:
    """Return the net gain in words, with its interval and whether it is certain."""
    found = f"a net {'gain' if gain.mean >= 0 else 'loss'} of {abs(gain.mean):.2f} points"
    return f"{found} ({report_text.interval(gain, doubt=', which may be chance')})"


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
    if not found or total.error_percent is None or total.cost_points is None:
        return ""
    best = min(found, key=lambda name: found[name])
    net = total.error_percent + total.cost_points
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
    shown = {
        "error with peers": ("error_percent", ".2f"),
        "cost": ("cost_points", ".2f"),
        "best own functions": ("best_own_percent", ".2f"),
        "net gain": ("net_gain_points.mean", "+.2f"),
    }
    numbers = report_text.cells(_total(outcome), shown)
    units = ("%", "points", "%", "points")
    tiles = [page.tile(*one) for one in zip(shown, numbers, units, strict=True)]
    if not outcome.is_replayed:
        tiles = tiles[:2]
    elif len(outcome.learners) == 1:
        tiles = [page.tile("error", numbers[0], "%")]
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
    body = [_line(row, outcome, page.swatch(colours[row[0]])) for row in _rows(outcome)]
    foot = [_line(row, outcome) for row in _totals(outcome)]
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
            lines = [
                page.TableRow(
                    page.swatch(colours.get(arm, colours[learner.name])) + escape(name), cells
                )
                for arm, (name, *cells) in zip(learner.by_arm, _arm_lines(learner), strict=True)
            ]
            errors += page.table(_ARM_HEADINGS, lines)
            how += " <b>cost</b> of an arm is in units of reward."
    if outcome.baselines:
        found = {name: each.error_percent for name, each in outcome.baselines.items()}
        errors += _errors("Error % of each baseline", found)
        how = f"{how} {_CENTRAL} {escape(_compared(outcome))}"
    return page.section("Results", page.table(_headings(outcome), body, foot=foot) + errors, how)


def _line(row: Named, outcome: Outcome, swatch: str = "") -> page.TableRow:
    name, *numbers = _printed(row, outcome)
    return page.TableRow(swatch + escape(name), numbers, title=row[0])


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
