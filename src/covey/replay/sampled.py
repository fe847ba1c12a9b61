"""What a fixed choice would have done on all rows, estimated from rows that were drawn at random.

The error of what was answered is known for every labelled row. So only the difference to it is
estimated: each drawn row counts for the rows that it stands for, one over its probability to be
drawn (Horvitz and Thompson). That is unbiased whatever the differences are, because rows are drawn
independently of them.
"""

import math

import msgspec

from covey.types import Array

Z_95 = 1.959964  # quantile of the normal distribution, for an interval of 95 %


class ChoiceEstimate(msgspec.Struct, frozen=True):
    """The error of a fixed choice over labelled rows, in percent, with its 95 % interval."""

    choice: str
    rows: int  # that the estimate is for
    drawn: int  # of these, those whose answer is known by the draw
    missing: int  # drawn rows whose answer is not known; they widen the interval
    error_percent: float | None
    low_percent: float | None
    high_percent: float | None
    price: float | None = None  # of an answer, as it was last paid; None: not known


class PeerRows(msgspec.Struct, frozen=True):
    """A peer beside the own functions, on the drawn rows that it answered."""

    peer: str
    rows: int
    error_percent: float | None
    best_own: str | None  # with the fewest errors on the same rows
    best_own_percent: float | None


class ShadowOutcome(msgspec.Struct, frozen=True):
    """What rows that were run in the shadow tell."""

    rows: int  # own rows since rows are drawn, as far as they are stored
    labelled: int
    drawn: int
    complete: int  # drawn rows whose answers are all known
    served_percent: float | None  # error of what was answered, on labelled rows
    paid: float  # to peers, for answers in the shadow
    estimates: list[ChoiceEstimate]
    peers: list[PeerRows]


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

    def percent(more: float) -> float:
        return 100 * (wrong - more) / rows

    low, high = max(0.0, percent(most + half)), min(100.0, percent(least - half))
    return ChoiceEstimate(choice, rows, known, missing, percent(gained), low, high, price)


def _variance(difference: Array, share: Array, is_known: Array) -> float:
    """Return the variance of the estimated sum.

    One row more is taken to have gained, and one to have lost: a few rows without a difference do
    not show that there is none.
    """
    each = (1 - share) / share**2
    found = float((each * difference**2)[is_known].sum())
    return found + 2 * float(each[is_known].mean())
