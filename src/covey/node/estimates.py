"""What other choices would have done at a site, estimated from rows that were run in the shadow."""

import math
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from covey.bandit.learner import NO_ANSWER, UNKNOWN
from covey.node.requests import Arm, Request, RowGroup, ShadowRow, ShadowSpan
from covey.node.shadow import is_drawn
from covey.replay.engine import CellView
from covey.replay.outcome import ChoiceEstimate, PeerRows, ShadowNumbers, percent
from covey.types import Array

CellCounters = Mapping[str, Mapping[str, tuple[int, int]]]  # cell, arm -> labels, right
Z_95 = 1.959964  # quantile of the normal distribution, for an interval of 95 %


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
    by_row = {(shadow.request, shadow.row): shadow.answers for shadow in shadows}
    firsts = [span.first for span in spans]
    known = []
    for request in requests:
        place = bisect(firsts, request.number) - 1
        span = spans[place] if place >= 0 and spans[place].share else None
        for row in range(len(request)):
            answers = {**_answered(request, row), **by_row.get((request.number, row), {})}
            drawn = span is not None and is_drawn(span, request.source, request.id, row)
            known.append(KnownRow(request, row, answers, span, drawn))
    return sorted(known, key=lambda row: row.slot)


def _answered(request: Request, row: int) -> dict[str, Any]:
    """Return what the chosen arm and free functions answered."""
    answers = {arm: label for arm, label in request.scored.get(row, {}).items() if arm}
    group, said = request.group(row), request.predictions[row]
    if group.arm:
        answers[group.counted_as] = None if said is NO_ANSWER else said
    return answers


def estimate(
    choice: str,
    *,
    served: Array,
    right: Array,
    drawn: Array,
    share: Array,
    price: float | None = None,
) -> ChoiceEstimate:
    """Return the error of a choice over all rows, of which the drawn ones are known.

    By row: `served` is 1 if the answer was right, `right` is 1 if that of the choice is (0 if it is
    not, -1 if that is not known), `drawn` is whether it was drawn, and `share` the probability of
    that. Where a drawn row is not known, the interval allows for both cases.
    """
    rows = len(served)
    is_known = drawn & (right >= 0)
    known, missing = int(is_known.sum()), int((drawn & ~is_known).sum())
    if not known:
        return ChoiceEstimate(choice, rows, known, missing, None, None, None, price)
    weights = 1.0 / share
    gained = float((weights * (right - served))[is_known].sum())
    lost = is_known != drawn
    least = gained - float((weights * served)[lost].sum())
    most = gained + float((weights * (1 - served))[lost].sum())
    # Rows that are missing are taken to be like the others.
    gained *= float(weights[drawn].sum() / weights[is_known].sum())
    half = Z_95 * math.sqrt(_variance(right - served, share, is_known))
    wrong = rows - float(served.sum())

    mean, low, high = (100 * (wrong - more) / rows for more in (gained, most + half, least - half))
    return ChoiceEstimate(
        choice, rows, known, missing, mean, max(0.0, low), min(100.0, high), price
    )


def _variance(difference: Array, share: Array, is_known: Array) -> float:
    """Return the variance of the estimated sum.

    One row more is taken to have gained, and one to have lost: a few rows without a difference do
    not show that there is none.
    """
    each = (1 - share) / share**2
    variance = float((each * difference**2)[is_known].sum())
    return variance + 2 * float(each[is_known].mean())


def shadow_numbers(
    rows: Sequence[KnownRow],
    arms: Sequence[Arm],
    cells: Sequence[CellView],
    counters: CellCounters,
) -> ShadowNumbers | None:
    """Return what the drawn rows tell; None if no row was ever drawn."""
    spanned = [row for row in rows if row.span is not None]
    drawn = [row for row in spanned if row.is_drawn]
    if not drawn:
        return None
    labelled = [row for row in spanned if row.label is not None]
    served = _served(labelled)
    prices = _prices(rows)
    present = [arm for arm in arms if arm.place >= 0]
    choices = [_always(arm, labelled, prices.get(arm.name)) for arm in present]
    own = {arm.name: arm.id for arm in present if is_own_arm(arm)}
    choices.append(_mapped(labelled, _Located(cells, counters, own)))
    return ShadowNumbers(
        rows=len(spanned),
        labelled=len(labelled),
        drawn=len(drawn),
        complete=sum(row.is_complete for row in drawn),
        served_percent=percent(len(served) - float(served.sum()), len(served)),
        estimates=[choice for choice in choices if choice is not None],
        peers=[_peer(arm, drawn, own) for arm in present if not is_own_arm(arm)],
    )


def _served(rows: Sequence[KnownRow]) -> Array:
    return np.array([float(row.correct) for row in rows])


def _prices(rows: Sequence[KnownRow]) -> dict[str, float]:
    """Return the latest price of an answer of each arm, as far as it is known."""
    return {row.group.arm: row.group.price for row in rows}


def _estimate(
    choice: str, rows: Sequence[KnownRow], right: Sequence[int], price: float | None = None
) -> ChoiceEstimate:
    return estimate(
        choice,
        served=_served(rows),
        right=np.array(right, float),
        drawn=np.array([row.is_drawn for row in rows], bool),
        share=np.array([row.span.share if row.span else 0.0 for row in rows]),
        price=price,
    )


def _always(arm: Arm, labelled: Sequence[KnownRow], price: float | None) -> ChoiceEstimate | None:
    """Return the estimate of one arm for all rows; None: it is not run in the shadow."""
    rows = [row for row in labelled if row.span is not None and arm.id in row.span.arms]
    if not rows:
        return None
    return _estimate(arm.name, rows, [row.is_right(arm.id) for row in rows], price)


def _mapped(labelled: Sequence[KnownRow], locate: "_Located") -> ChoiceEstimate | None:
    """Return the estimate of the preferred functions of the cells.

    None: an arm of the map is not run in the shadow, or no own function has a label.
    """
    used = {*locate.arms, locate.overall}
    rows = [row for row in labelled if row.span is not None and used <= {*row.span.arms}]
    if not rows or not locate.overall:
        return None
    right = [row.is_right(locate.arm_of(row)) for row in rows]
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

    def arm_of(self, row: KnownRow) -> str:
        """Return the id of the arm."""
        place = self._places.get(row.group.cell)
        if place is not None:
            return self.arms[place]
        point = np.array(row.request.context(row.row))  # its cell was split later
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
        row
        for row in drawn
        if row.label is not None
        and row.answers.get(arm.id) is not None
        and row.answers.keys() >= {*own.values()}
    ]
    errors = {name: sum(not row.is_right(id_) for row in rows) for name, id_ in own.items()}
    best = min(errors, key=lambda name: errors[name], default=None) if rows else None
    return PeerRows(
        peer=arm.name,
        rows=len(rows),
        error_percent=percent(sum(not row.is_right(arm.id) for row in rows), len(rows)),
        best_own=best,
        best_own_percent=None if best is None else percent(errors[best], len(rows)),
    )
