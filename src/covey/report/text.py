"""Text for a terminal: tables, progress, and what a replay found, in sentences that pages share."""

import csv
import io
import sys
import textwrap
import time
import tomllib
from collections.abc import Mapping, Sequence, Sized
from functools import cache
from html import escape
from importlib import resources
from operator import attrgetter
from typing import Any, NamedTuple, Self

import msgspec

from covey.replay.baselines import HINDSIGHT
from covey.replay.outcome import (
    ContextWorth,
    LearnerOutcome,
    Outcome,
    ShadowNumbers,
    TellingContext,
    percent,
)
from covey.types import Interval, Value

WIDTH = 100
NAME = 30  # characters of a name in a table
NONE = "\N{EN DASH}"
REACH = "\N{PLUS-MINUS SIGN}"


Lines = Sequence[Sequence[str]]  # a table: rows of cells, the first of them headings


class Section(NamedTuple):
    """A table of a result, with its name in files."""

    name: str
    lines: Lines
    title: str = ""
    longest: int = NAME  # characters of a name


Part = Section | str  # a table, or a sentence


class Column(NamedTuple):
    """A column of a table, on a terminal and on a page."""

    heading: str
    attribute: str  # of the record in a row
    format: str  # of an interval: its mean, or with REACH its half width


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((resources.files("covey.report") / "tables.toml").read_text("utf-8"))


def columns_named(name: str) -> list[Column]:
    """Return the columns of a kind of table."""
    return [Column(*column) for column in _tables()[name]]


def sentence(name: str) -> str:
    """Return the sentence that explains a table."""
    return str(_tables()["sentences"][name])


def meanings() -> dict[str, str]:
    """Return the meanings of the columns of a simulation."""
    return dict(_tables()["meanings"])


def shorten(name: str, length: int = NAME) -> str:
    """Return `name` in at most `length` printable characters, ending in an ellipsis if cut."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    return shown if len(shown) <= length else shown[: length - 1].rstrip() + "…"


def table(lines: Lines, longest: int = WIDTH) -> str:
    """Return a table; names are left and at most so long, numbers right."""
    lines = [(shorten(name, longest), *numbers) for name, *numbers in lines]
    first, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    printed = [
        "  ".join([name.ljust(first), *map(str.rjust, numbers, widths)]) for name, *numbers in lines
    ]
    return "\n".join([printed[0], "-" * len(printed[0]), *printed[1:]])


def printed(head: str, parts: Sequence[Part]) -> str:
    """Return the parts of a result for a terminal, below its head."""
    return "\n\n".join([head, *map(_printed, parts)]) + "\n"


def _printed(part: Part) -> str:
    if isinstance(part, str):
        return fill(part)
    shown = table(part.lines, part.longest)
    return f"{fill(part.title)}\n\n{shown}" if part.title else shown


def html(part: Part) -> str:
    """Return a part of a result as HTML, which exports of a notebook keep."""
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"

    def row(cells: Sequence[str], tag: str) -> str:
        sides = ["left", *["right"] * (len(cells) - 1)]
        return "".join(
            f'<{tag} style="text-align: {side}">{escape(shorten(cell, part.longest))}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )

    head, *body = part.lines
    rows = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in body)
    title = html(part.title) if part.title else ""
    return f"{title}<table><thead><tr>{row(head, 'th')}</tr></thead><tbody>{rows}</tbody></table>"


def csv_of(lines: Lines) -> str:
    """Return a table as CSV."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()


_ESCAPED = str.maketrans({letter: rf"\{letter}" for letter in "&%$#_{}"} | {REACH: r"$\pm$"})


def latex(lines: Lines) -> str:
    """Return a table as LaTeX."""
    rows = [" & ".join(cell.translate(_ESCAPED) for cell in line) + r" \\" for line in lines]
    columns = "l" + "r" * (len(lines[0]) - 1)
    begin, rule = rf"\begin{{tabular}}{{{columns}}}", r"\hline"
    return "\n".join([begin, rule, rows[0], rule, *rows[1:], rule, r"\end{tabular}", ""])


def fill(sentence: str) -> str:
    """Return a sentence wrapped to the width of a terminal."""
    return textwrap.fill(sentence, width=WIDTH)


def number(value: float | str | Interval | None, form: str) -> str:
    """Return a formatted number, or a dash for None; text is shown as it is."""
    if isinstance(value, str):
        return shorten(value.replace("_", " "), 60)
    if isinstance(value, Interval):
        reach = None if value.high is None else value.high - value.mean
        value = reach if form.startswith(REACH) else value.mean
    return NONE if value is None else format(value, form.removeprefix(REACH))


def count(things: Sized, noun: str, many: str = "") -> str:
    """Return how many things there are, and what they are."""
    return f"{len(things)} {noun if len(things) == 1 else many or noun + 's'}"


def interval(value: Interval, *, doubt: str) -> str:
    """Return the interval of a gain; `doubt` is said where it may be none."""
    low, high = value.low, value.high
    if low is None or high is None:
        return "too few rows for an interval"
    return f"95 % interval {low:+.2f} to {high:+.2f}{'' if low > 0 or high < 0 else doubt}"


def cells(record: object, columns: Sequence[Column]) -> list[str]:
    """Return the numbers of a record in these columns, formatted."""
    values = [attrgetter(column.attribute)(record) for column in columns]
    return [
        number(value, column.format) if column.format or isinstance(value, str) else str(value)
        for value, column in zip(values, columns, strict=True)
    ]


def lines_of(first: str, kind: str | Sequence[Column], records: Mapping[str, Any]) -> Lines:
    """Return records by their names as a table of a kind, or with these columns."""
    columns = columns_named(kind) if isinstance(kind, str) else kind
    lines = [[name, *cells(record, columns)] for name, record in records.items()]
    return [[first, *(column.heading for column in columns)], *lines]


SECONDS_BETWEEN = {True: 0.1, False: 5.0}  # on a terminal; in a file, where lines accumulate


class Progress:
    """Prints share, slots and speed; called with the finished share and the slots so far."""

    def __init__(self, name: str, *, is_quiet: bool = False, unit: str = "slots") -> None:
        self._name, self._unit = name, unit
        self._is_quiet = is_quiet
        self._is_terminal = sys.stderr.isatty()
        self._started = self._shown = time.monotonic()
        self._slots = 0

    def __enter__(self) -> Self:
        return self

    def __call__(self, share: float, slots: int) -> None:
        """Print the progress, at most once per interval."""
        self._slots = slots
        now = time.monotonic()
        if now - self._shown >= SECONDS_BETWEEN[self._is_terminal]:
            self._shown = now
            left_s = (now - self._started) * (1 - share) / share if share else 0.0
            self._print(f"{100 * share:3.0f} %, {slots:,} {self._unit}, {left_s:.0f} s left")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        taken_s = time.monotonic() - self._started
        if kind is None:
            speed = self._slots / max(taken_s, 1e-9)
            self._print(f"{self._slots:,} {self._unit} in {taken_s:.1f} s ({speed:,.0f} a second)")
        if self._is_terminal and not self._is_quiet:
            print(file=sys.stderr)

    def _print(self, text: str) -> None:
        if self._is_quiet:
            return
        if self._is_terminal:
            print(f"\r\x1b[2K{self._name}: {text}", end="", file=sys.stderr, flush=True)
        else:
            print(f"{self._name}: {text}", file=sys.stderr)


# -- a replay -----------------------------------------------------------------------------------

_OF_REPLAYS = ("best_own_percent", "alone_percent")
MOST_PAIRS = 8  # named as bought at a loss


def head(outcome: Outcome) -> str:
    """Return how large a replay was, and its policy."""
    return f"{extent(outcome)}\n{fill(outcome.policy)}"


def parts(outcome: Outcome) -> list[Part]:
    """Return the tables of an outcome, and sentences on the gain of cooperation."""
    shown: list[Part] = [Section("results", result_lines(outcome))]
    if accounts := account_lines(outcome):
        shown += [Section("accounts", accounts), sentence("prices")]
    shown += sentences(outcome)
    if outcome.baselines:
        baselines = lines_of("baseline", "baselines", outcome.baselines)
        shown.append(Section("baselines", baselines, sentence("central")))
        shown += filter(None, [compared(outcome)])
    shown += [Section("arms", lines) for lines in arm_lines(outcome)]
    if outcome.shadow is not None:
        shown.append(Section("choices", choice_lines(outcome.shadow), sentence("choices")))
        shown += shadow_sentences(outcome.shadow)
    return shown


def result_lines(outcome: Outcome) -> Lines:
    """Return the learners, and all if there are several, with the columns that have numbers."""
    hidden = set() if outcome.is_replayed else {*_OF_REPLAYS}
    if not outcome.is_replayed and outcome.total.net_gain_points is None:
        hidden.add("net_gain_points")
    hidden |= set() if outcome.total.alarms.count else {"alarms.count"}
    columns = [column for column in columns_named("replay") if column.attribute not in hidden]
    learners = {learner.name: learner.numbers for learner in outcome.learners}
    total = {"all": outcome.total} if len(learners) > 1 else {}
    return lines_of("learner", columns, {**learners, **total})


def arm_lines(outcome: Outcome) -> list[Lines]:
    """Return the arms of each served site."""
    served = (learner.numbers.by_arm for learner in outcome.learners)
    return [lines_of("arm", "arms", arms) for arms in served if arms]


def choice_lines(shadow: ShadowNumbers) -> Lines:
    """Return what would have been, had the choice been the same for all rows."""
    return lines_of("always", "choices", {each.choice: each for each in shadow.estimates})


def worth_lines(worth: ContextWorth) -> Lines:
    """Return what contexts were worth to learners, and to all if there are several."""
    total = {"all": worth.total} if len(worth.learners) > 1 else {}
    return lines_of("learner", "worth of contexts", {**worth.learners, **total})


def telling_lines(worth: ContextWorth) -> Lines:
    """Return the contexts that tell functions apart."""
    lines = [
        (each.context, number(each.gain_points, "+.2f"), best_parts(each)) for each in worth.telling
    ]
    return [("context", "gain alone", "best function"), *lines]


def pair_lines(outcome: Outcome) -> Lines:
    """Return what learners asked of each other."""
    columns = columns_named("pairs")
    lines = [
        [learner.name, shorten(pair.peer), *cells(pair, columns)]
        for learner in outcome.learners
        for pair in learner.numbers.pairs
    ]
    return [["learner", "asked", *(column.heading for column in columns)], *lines]


def extent(outcome: Outcome) -> str:
    """Return how large a replay was."""
    return f"{count(outcome.learners, 'learner')}, {outcome.slots:,} slots"


def sentences(outcome: Outcome) -> list[str]:
    """Return what follows from the numbers, in sentences."""
    learners = outcome.learners
    lines = [_verdict(outcome)]
    lines += _losses(outcome)
    lines += [
        f"{learner.name} gets no labels, and in {learner.blind:,} of {learner.numbers.slots:,} "
        "slots none of its peers had any either: there it cannot learn."
        for learner in learners
        if learner.blind
    ]
    lines += [
        f"In {learner.numbers.stood_in:,} of {learner.numbers.slots:,} slots of {learner.name} the "
        "chosen peer did not answer in time; its own best function answered."
        for learner in learners
        if learner.numbers.stood_in
    ]
    lines += [_alarms(learner) for learner in learners if learner.alarms]
    lines += [] if outcome.contexts is None else context_sentences(outcome.contexts)
    return lines


def _verdict(outcome: Outcome) -> str:
    if outcome.ensemble is not None:
        return _ensemble_verdict(outcome)
    if not outcome.is_replayed:
        return _as_it_was(outcome)
    total = outcome.total
    error, best_own, gain = total.error_percent, total.best_own_percent, total.net_gain_points
    if error is None or total.alone_percent is None:
        return "The gain of cooperation is unknown: the log has no true labels."
    if best_own is None or gain is None:
        return f"No site has own functions; together they were wrong on {error:.2f}%."
    money = money_of(outcome.value, gain, total.slots, ", or ")
    gained = (
        f"a net {'gain' if gain.mean >= 0 else 'loss'} of {abs(gain.mean):.2f} points "
        f"({interval(gain, doubt=', which may be chance')}){money}"
    )
    if len(outcome.learners) == 1:
        return (
            f"There is one learner and no peer; it was wrong on {error:.2f}% of its slots, "
            f"its best own function on {best_own:.2f}%: {gained}."
        )
    spent, paid = total.cost_points or 0.0, 0.0
    if total.account is not None:
        paid = percent(total.account.paid, total.slots) or 0.0
        spent = percent(total.account.spent + total.account.serving_cost, total.slots) or 0.0
    outside = f" and spent {spent:.2f} points" if spent else ""
    inside = f" They paid each other {paid:.2f} points, which stay." if paid else ""
    return (
        f"Over all sites, the best own function of each was wrong on {best_own:.2f}% of its "
        f"rows. Together they were wrong on {error:.2f}%{outside}: {gained}.{inside} "
        f"Without peers the same policy was wrong on {total.alone_percent:.2f}%."
    )


def money_of(value: Value | None, gain: Interval | None, slots: int, before: str) -> str:
    """Return the gain of so many slots in money, if a right answer has a value."""
    if value is None or gain is None:
        return ""
    return f"{before}{gain.mean / 100 * slots * value.amount:+,.2f} {value.currency}"


def _losses(outcome: Outcome) -> list[str]:
    """Return which sites lose by taking part, and what they should not buy."""
    lines, pairs = [], []
    for learner in outcome.learners if outcome.is_replayed else ():
        gain, name = learner.numbers.net_gain_points, shorten(learner.name)
        if gain is not None and gain.high is not None and gain.high < 0:
            lines.append(
                f"{name} loses by taking part: {signed(gain)} points"
                f"{money_of(outcome.value, gain, learner.numbers.slots, ', or ')}."
            )
        for pair in learner.numbers.pairs:
            worth = pair.worth_points
            if worth is not None and worth.high is not None and worth.high < 0:
                price = f"{pair.paid / pair.asked:.4g}"
                pairs.append(
                    f"{name} should not buy from {shorten(pair.peer)} at {price}: {signed(worth)}"
                )
    if pairs:
        more = f"; and {len(pairs) - MOST_PAIRS} more pairs" if len(pairs) > MOST_PAIRS else ""
        lines.append(f"{'; '.join(pairs[:MOST_PAIRS])}{more}.")
    return lines


def signed(value: Interval | None) -> str:
    """Return a gain and its interval."""
    if value is None:
        return "unknown"
    if value.low is None or value.high is None:
        return f"{value.mean:+.2f}"
    return f"{value.mean:+.2f} ({value.low:+.2f} to {value.high:+.2f})"


def account_lines(outcome: Outcome) -> Lines:
    """Return what each site and all of them bought and sold; nothing if nobody did.

    The headings are first. Amounts are in money if a right answer has a value.
    """
    accounts = {**outcome.accounts}
    if not any(account.bought for account in accounts.values()):
        return []
    if len(accounts) > 1 and outcome.total.account is not None:
        accounts["all"] = outcome.total.account
    value = outcome.value
    headings = [column.heading for column in columns_named("accounts")]
    if value is not None:
        headings[2:] = [f"{heading} {value.currency}" for heading in headings[2:]]
        names = ("paid", "earned", "serving_cost", "balance")
        accounts = {
            site: msgspec.structs.replace(
                own, **{name: value.amount * getattr(own, name) for name in names}
            )
            for site, own in accounts.items()
        }
    _, *lines = lines_of("site", "accounts", accounts)
    return [["site", *headings], *lines]


def _as_it_was(outcome: Outcome) -> str:
    """Return what really happened; functions that were not chosen did not run."""
    total = outcome.total
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


def _ensemble_verdict(outcome: Outcome) -> str:
    assert outcome.ensemble is not None
    numbers = outcome.ensemble.numbers
    if numbers.error_percent is None:
        return "The gain of the ensemble is unknown: the log has no true labels."
    return (
        f"The ensemble ({numbers.title}) was wrong on {numbers.error_percent:.2f}% of the log; the "
        f"best of its members, {shorten(numbers.best_member)}, on "
        f"{numbers.best_member_error_percent:.2f}%. Slots in which every learner exploited "
        f"contribute {numbers.exploit_error_percent:.2f} points of its error."
    )


def context_sentences(worth: ContextWorth) -> list[str]:
    """Return what contexts were worth, and which of them tell functions apart."""
    total = worth.total
    own = total.best_own_points
    best = "" if own is None else f", with the best own function of each site {own:.2f}"
    text = (
        f"Errors and costs are {total.given_points:.2f} points with the given contexts, "
        f"{total.none_points:.2f} without any{best}"
    )
    if total.gain_points is not None:
        gain = total.gain_points
        text += (
            f": contexts {'gain' if gain.mean >= 0 else 'lose'} {abs(gain.mean):.2f} points "
            f"({interval(gain, doubt=', which may be chance')})"
        )
        if gain.high is not None and gain.high < 0:
            text += "; leave them out, or give others"
    telling = "; ".join(_telling(context) for context in worth.telling[:3])
    return [f"{text}.", *([f"Functions are told apart by {telling}."] if telling else [])]


def _telling(context: TellingContext) -> str:
    gain = context.gain_points.mean
    return f"{shorten(context.context)} (alone {gain:.2f} points: {best_parts(context)})"


def best_parts(context: TellingContext) -> str:
    """Return the best function in each part of an axis."""
    return ", ".join(
        f"{shorten(best.function)} for {_end(best.low)}"
        if best.low == best.high
        else f"{shorten(best.function)} from {_end(best.low)} to {_end(best.high)}"
        for best in context.best
    )


def _end(value: float | str) -> str:
    return shorten(value) if isinstance(value, str) else f"{value:.4g}"


def _alarms(learner: LearnerOutcome) -> str:
    times = len(learner.alarms)
    raised = "1 alarm," if times == 1 else f"{times:,} alarms, the last"
    name = shorten(learner.name)
    return f"The change detection of {name} raised {raised} at slot {learner.alarms[-1]:,}."


def compared(outcome: Outcome) -> str:
    """Return what the baselines say of the sites, in a sentence, or nothing."""
    total = outcome.total
    errors = {
        name: baseline.error_percent
        for name, baseline in (outcome.baselines or {}).items()
        if baseline.error_percent is not None and name != HINDSIGHT
    }
    if not errors or total.error_percent is None or total.cost_points is None:
        return ""
    best = min(errors, key=lambda name: errors[name])
    net = total.error_percent + total.cost_points
    than = "fewer" if errors[best] < net else "more"
    return (
        f"The best baseline, {best}, has {errors[best]:.2f}% errors: {abs(net - errors[best]):.2f} "
        f"points {than} than the sites' errors and costs together ({net:.2f}). It sees all "
        "functions of all sites on every row, free of charge."
    )


def shadow_sentences(shadow: ShadowNumbers) -> list[str]:
    """Return what was drawn, and what it tells of peers, in sentences."""
    missing = shadow.drawn - shadow.complete
    lost = f"; for {missing:,} of them some answers are missing" if missing else ""
    lines = [
        f"Of {shadow.rows:,} rows since shadow mode is on, {shadow.drawn:,} were drawn{lost}. "
        f"{shadow.labelled:,} rows have a label; {number(shadow.served_percent, '.2f')}% of their "
        "answers were wrong."
    ]
    if shadow.gain:
        lines.append(f"The net gain over the best own function is {shadow.gain}.")
    for peer in shadow.peers:
        name = shorten(peer.peer)
        lines.append(
            f"{name} was wrong on {peer.error_percent:.2f}% of the {peer.rows:,} drawn rows that "
            f"it answered; {peer.best_own}, the best own function there, on "
            f"{peer.best_own_percent:.2f}%."
            if peer.rows
            else f"{name} answered none of the drawn rows with a label."
        )
    return lines
