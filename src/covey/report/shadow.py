"""What rows that were run in the shadow tell of a site: estimates, and their place in a report."""

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from covey.bandit.learner import NO_ANSWER, UNKNOWN
from covey.node.requests import Arm, Request, RowGroup, ShadowRow, ShadowSpan
from covey.node.shadow import is_drawn
from covey.replay.engine import CellView
from covey.replay.outcome import ChoiceEstimate, PeerRows, ShadowOutcome, estimate
from covey.report import page
from covey.report import text as report_text
from covey.report.text import number, percent, shorten
from covey.types import Array

CellCounters = Mapping[str, Mapping[str, tuple[int, int]]]  # cell, arm -> labels, right
_NAME = 30  # characters of a name in a table
_HEADINGS = ("always", "error %", "95 % interval", "of rows", "drawn", "missing", "price")
_HOW = (
    "What the site would have done with one choice for all rows: one arm always, or in each cell "
    "the arm that its map prefers now. Estimated from the drawn rows, unbiased for the labelled "
    "rows that each line names; the interval also allows for drawn rows whose answer is missing."
)


def is_own_arm(arm: Arm) -> bool:
    """Return whether an arm is a function of the site; where its kind is not known, it is."""
    return arm.kind in ("own", "")


class KnownRow(NamedTuple):
    """A row of a client, with all answers to it that are known."""

    request: Request
    row: int
    answers: Mapping[str, Any]  # by what labels of the arm count as; None: it failed
    span: ShadowSpan | None  # None: no rows were drawn yet
    is_drawn: bool

    @property
    def group(self) -> RowGroup:
        """How the row was decided."""
        return self.request.group(self.row)

    @property
    def slot(self) -> int:
        """The slot of the row."""
        return self.request.slot_of(self.row)

    @property
    def answer(self) -> Any:
        """What the client got; None: no answer."""
        answer = self.request.answers[self.row]
        return None if answer is NO_ANSWER else answer

    @property
    def label(self) -> Any:
        """The true label; None: has not arrived."""
        truth = self.request.truths[self.row]
        return None if truth is UNKNOWN else truth

    @property
    def correct(self) -> int:
        """1 or 0 for the answer; -1 without a label."""
        return -1 if self.label is None else int(self.answer == self.label)

    def is_right(self, arm: str) -> int:
        """Return 1 or 0 for an arm on a labelled row; -1: what it answers is not known."""
        return int(self.answers[arm] == self.label) if arm in self.answers else -1

    @property
    def is_complete(self) -> bool:
        """Whether the row is drawn, and all answers of its span are known."""
        return self.is_drawn and self.span is not None and self.answers.keys() >= {*self.span.arms}


def known_rows(
    requests: Iterable[Request], spans: Sequence[ShadowSpan], shadows: Iterable[ShadowRow]
) -> list[KnownRow]:
    """Return the rows of requests, by slot, with what every arm is known to have answered."""
    by_row = {(one.request, one.row): one.answers for one in shadows}
    firsts = [one.first for one in spans]
    found = []
    for request in requests:
        place = bisect(firsts, request.number) - 1
        span = spans[place] if place >= 0 and spans[place].share else None
        for row in range(len(request)):
            answers = {**_answered(request, row), **by_row.get((request.number, row), {})}
            drawn = span is not None and is_drawn(span, request.source, request.id, row)
            found.append(KnownRow(request, row, answers, span, drawn))
    return sorted(found, key=lambda one: one.slot)


def _answered(request: Request, row: int) -> dict[str, Any]:
    """Return what the chosen arm and free functions answered."""
    answers = {arm: label for arm, label in request.scored.get(row, {}).items() if arm}
    group, said = request.group(row), request.predictions[row]
    if group.arm:
        answers[group.counted_as] = None if said is NO_ANSWER else said
    return answers


def shadow_outcome(
    rows: Sequence[KnownRow],
    arms: Sequence[Arm],
    cells: Sequence[CellView],
    counters: CellCounters,
) -> ShadowOutcome | None:
    """Return what the drawn rows tell; None if no row was ever drawn."""
    spanned = [one for one in rows if one.span is not None]
    drawn = [one for one in spanned if one.is_drawn]
    if not drawn:
        return None
    labelled = [one for one in spanned if one.label is not None]
    served = _served(labelled)
    prices = _prices(rows)
    present = [arm for arm in arms if arm.place >= 0]
    choices = [_always(arm, labelled, prices.get(arm.name)) for arm in present]
    own = {arm.name: arm.id for arm in present if is_own_arm(arm)}
    choices.append(_mapped(labelled, _Located(cells, counters, own)))
    found = [one for one in choices if one is not None]
    return ShadowOutcome(
        rows=len(spanned),
        labelled=len(labelled),
        drawn=len(drawn),
        complete=sum(one.is_complete for one in drawn),
        served_percent=percent(len(served) - float(served.sum()), len(served)),
        estimates=found,
        peers=[_peer(arm, drawn, own) for arm in present if not is_own_arm(arm)],
    )


def _served(rows: Sequence[KnownRow]) -> Array:
    return np.array([float(one.correct) for one in rows])


def _prices(rows: Sequence[KnownRow]) -> dict[str, float]:
    """Return the latest price of an answer of each arm, as far as it is known."""
    return {one.group.arm: one.group.price for one in rows}


def _estimate(
    choice: str, rows: Sequence[KnownRow], right: Sequence[int], price: float | None = None
) -> ChoiceEstimate:
    return estimate(
        choice,
        served=_served(rows),
        right=np.array(right, float),
        drawn=np.array([one.is_drawn for one in rows], bool),
        share=np.array([one.span.share if one.span else 0.0 for one in rows]),
        price=price,
    )


def _always(arm: Arm, labelled: Sequence[KnownRow], price: float | None) -> ChoiceEstimate | None:
    """Return the estimate of one arm for all rows; None: it is not run in the shadow."""
    rows = [one for one in labelled if one.span is not None and arm.id in one.span.arms]
    if not rows:
        return None
    return _estimate(arm.name, rows, [one.is_right(arm.id) for one in rows], price)


def _mapped(labelled: Sequence[KnownRow], locate: "_Located") -> ChoiceEstimate | None:
    """Return the estimate of the preferred functions of the cells.

    None: an arm of the map is not run in the shadow, or no own function has a label.
    """
    used = {*locate.arms, locate.overall}
    rows = [one for one in labelled if one.span is not None and used <= {*one.span.arms}]
    if not rows or not locate.overall:
        return None
    right = [one.is_right(locate.arm_of(one)) for one in rows]
    return _estimate("map of own functions", rows, right)


class _Located:
    """Finds the cell of the map that a row lies in, and the arm that it prefers."""

    def __init__(
        self, cells: Sequence[CellView], counters: CellCounters, ids: Mapping[str, str]
    ) -> None:
        totals: Counter[str] = Counter()
        rights: Counter[str] = Counter()
        for counts in counters.values():
            for arm, (labels, right) in counts.items():
                totals[arm] += labels
                rights[arm] += right
        # The best own function over all cells stands in for one where none has a label.
        self.overall = _preferred({arm: (totals[arm], rights[arm]) for arm in totals}, ids)
        of_cells = (counters.get(cell.name, {}) for cell in cells)
        self.arms = [_preferred(counts, ids) or self.overall for counts in of_cells]
        self._places = {cell.name: place for place, cell in enumerate(cells)}
        self._boxes = [(np.array(cell.low), np.array(cell.high)) for cell in cells]

    def arm_of(self, one: KnownRow) -> str:
        """Return the id of the arm."""
        place = self._places.get(one.group.cell)
        if place is not None:
            return self.arms[place]
        point = np.array(one.request.context(one.row))  # its cell was split later
        for arm, (low, high) in zip(self.arms, self._boxes, strict=True):
            if len(low) == len(point) and ((low <= point) & (point <= high)).all():
                return arm
        return self.overall


def _preferred(counts: Mapping[str, tuple[int, int]], ids: Mapping[str, str]) -> str:
    """Return the id of the arm with the best share of right answers; "": none has a label."""
    shares = {arm: right / labels for arm, (labels, right) in counts.items() if labels}
    known = [arm for arm in shares if arm in ids]
    return ids[max(known, key=lambda arm: shares[arm])] if known else ""


def _peer(arm: Arm, drawn: Sequence[KnownRow], own: Mapping[str, str]) -> PeerRows:
    """Return how a peer and the own functions did on the drawn rows that the peer answered."""
    rows = [
        one
        for one in drawn
        if one.label is not None
        and one.answers.get(arm.id) is not None
        and one.answers.keys() >= {*own.values()}
    ]
    errors = {name: sum(not one.is_right(id_) for one in rows) for name, id_ in own.items()}
    best = min(errors, key=lambda name: errors[name], default=None) if rows else None
    return PeerRows(
        peer=arm.name,
        rows=len(rows),
        error_percent=percent(sum(not one.is_right(arm.id) for one in rows), len(rows)),
        best_own=best,
        best_own_percent=None if best is None else percent(errors[best], len(rows)),
    )


# -- output -------------------------------------------------------------------------------------


def remarks(found: ShadowOutcome) -> list[str]:
    """Return what was drawn, and what it tells of peers, in sentences."""
    missing = found.drawn - found.complete
    lost = f"; for {missing:,} of them some answers are missing" if missing else ""
    said = [
        f"Of {found.rows:,} rows since shadow mode is on, {found.drawn:,} were drawn{lost}. "
        f"{found.labelled:,} rows have a label; {number(found.served_percent, '.2f')}% of their "
        "answers were wrong."
    ]
    for one in found.peers:
        if one.rows:
            said.append(
                f"{shorten(one.peer, _NAME)} was wrong on {one.error_percent:.2f}% of the "
                f"{one.rows:,} drawn rows that it answered; {one.best_own}, the best own function "
                f"there, on {one.best_own_percent:.2f}%."
            )
        else:
            said.append(f"{shorten(one.peer, _NAME)} answered none of the drawn rows with a label.")
    return said


def text(found: ShadowOutcome) -> str:
    """Return the estimates for a terminal."""
    table = report_text.table([_HEADINGS, *map(_printed, found.estimates)])
    sentences = "\n".join(map(report_text.fill, remarks(found)))
    return f"{report_text.fill(_HOW)}\n\n{table}\n\n{sentences}"


def section(found: ShadowOutcome) -> str:
    """Return the estimates as a section of a page."""
    lines = [page.TableRow(escape(name), cells) for name, *cells in map(_printed, found.estimates)]
    how = f"{_HOW} {' '.join(remarks(found))}"
    return page.section("Other choices", page.table(_HEADINGS, lines), escape(how))


def _printed(one: ChoiceEstimate) -> tuple[str, ...]:
    interval = report_text.NONE
    if one.low_percent is not None and one.high_percent is not None:
        interval = f"{one.low_percent:.2f} to {one.high_percent:.2f}"
    return (
        shorten(one.choice, _NAME),
        number(one.error_percent, ".2f"),
        interval,
        f"{one.rows:,}",
        f"{one.drawn:,}",
        f"{one.missing:,}",
        number(one.price, "g"),
    )
