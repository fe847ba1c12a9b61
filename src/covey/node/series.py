"""What a site decided, paid and got right over time: minutes, hours and days of fixed number."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from covey.node.requests import SeriesLine
from covey.node.status import ArmState
from covey.node.tables import HOUR_S, SPANS_KEPT
from covey.types import MILLIONTHS

MINUTE_S, DAY_S = 60, 86_400
TOGETHER_S = 300  # for which minutes wait to be written together


class Tally(NamedTuple):
    """Rows of an arm that were decided, labelled and right, and what they cost in millionths."""

    decisions: int = 0
    labels: int = 0
    right: int = 0
    cost: int = 0

    def plus(self, other: "Tally") -> "Tally":
        return Tally(*(one + two for one, two in zip(self, other, strict=True)))

    def since(self, before: "Tally") -> "Tally":
        """Return what was added; nothing if counting began again."""
        added = Tally(*(one - two for one, two in zip(self, before, strict=True)))
        return added if min(added) >= 0 else Tally()

    def most(self, other: "Tally") -> "Tally":
        """Return the larger one of each count."""
        return Tally(*map(max, self, other))


class SiteHistory:
    """The tallies of each arm by minute, hour and day.

    Spans that are over are written every five minutes, along with another commit, so that they
    cost no write of their own. Until an hour is written it is the sum of its minutes in the store,
    and a day that of its hours.
    """

    def __init__(self, lines: Iterable[SeriesLine] = ()) -> None:
        self._buckets: dict[tuple[int, int], dict[str, Tally]] = {}
        for line in lines:
            tallies = {arm: Tally(*counts) for arm, counts in line.counts.items()}
            self._buckets[line.every_s, line.at] = tallies
        self._totals: dict[str, Tally] | None = None
        self._changed: set[tuple[int, int]] = set()  # unwritten
        self._due_s = math.inf  # when the first unwritten minute has waited enough
        self._complete(HOUR_S, MINUTE_S)
        self._complete(DAY_S, HOUR_S)

    def _complete(self, every_s: int, of_s: int) -> None:
        """Add what the store has of the parts of a span, which ended before it was written."""
        sums: dict[tuple[int, int], dict[str, Tally]] = {}
        for (size, at), bucket in self._buckets.items():
            if size == of_s:
                whole = sums.setdefault((every_s, at // every_s * every_s), {})
                for arm, one in bucket.items():
                    whole[arm] = whole.get(arm, Tally()).plus(one)
        for key, found in sums.items():
            known = self._buckets.get(key, {})
            # Of an old span the store no longer has all parts.
            most = {arm: one.most(known.get(arm, Tally())) for arm, one in found.items()}
            if known != known | most:
                self._buckets[key] = known | most
                self._changed.add(key)

    def note(self, arms: Iterable[ArmState], now_s: float) -> None:
        """Add what has happened since this was last called; the first call only begins."""
        totals = {
            arm.name: Tally(arm.decisions, arm.labels, arm.right, round(arm.spent * MILLIONTHS))
            for arm in arms
        }
        before, self._totals = self._totals, totals
        if before is None:
            return
        added = {arm: one.since(before[arm]) for arm, one in totals.items() if arm in before}
        added = {arm: one for arm, one in added.items() if any(one)}
        if added:
            for every_s in (MINUTE_S, HOUR_S, DAY_S):
                self._add((every_s, int(now_s) // every_s * every_s), added)
            self._forget(now_s)

    def _add(self, key: tuple[int, int], added: Mapping[str, Tally]) -> None:
        bucket = self._buckets.setdefault(key, {})
        for arm, one in added.items():
            bucket[arm] = bucket.get(arm, Tally()).plus(one)
        self._changed.add(key)
        if key[0] == MINUTE_S:
            self._due_s = min(self._due_s, key[1] + TOGETHER_S)

    def _forget(self, now_s: float) -> None:
        for key in [one for one in self._buckets if one[0] in SPANS_KEPT]:
            if key[1] <= now_s - SPANS_KEPT[key[0]] - key[0]:
                del self._buckets[key]
                self._changed.discard(key)

    # -- the store ------------------------------------------------------------------------------

    def due(self, now_s: float, *, is_last: bool = False) -> list[SeriesLine]:
        """Return what to write now: spans that are over, once one of them has waited enough.

        `is_last`: nothing waits, and this minute is written, too.
        """
        if now_s < self._due_s and not is_last:
            return []
        due = [key for key in self._changed if sum(key) <= now_s or (is_last and key[0] < HOUR_S)]
        return [self._line(key) for key in due]

    def written(self, lines: Sequence[SeriesLine]) -> None:
        """Note that lines are in the store; those that have changed meanwhile stay due."""
        if not lines:
            return
        for line in lines:
            key = (line.every_s, line.at)
            if key in self._changed and self._line(key) == line:
                self._changed.discard(key)
        minutes = (at for every_s, at in self._changed if every_s == MINUTE_S)
        self._due_s = min(minutes, default=math.inf) + TOGETHER_S

    def _line(self, key: tuple[int, int]) -> SeriesLine:
        return SeriesLine(*key, {arm: tuple(one) for arm, one in self._buckets[key].items()})

    def lines(self) -> list[SeriesLine]:
        """Return all that is known."""
        return [self._line(key) for key in self._buckets]

    # -- reading --------------------------------------------------------------------------------

    def span(self, span_s: float | None, now_s: float) -> dict[str, Tally]:
        """Return the tallies of arms in the last hour, day or other span; None: of all time."""
        every_s = DAY_S if span_s is None else MINUTE_S
        since = -1.0 if span_s is None else now_s - span_s
        found: dict[str, Tally] = {}
        for (size, at), bucket in self._buckets.items():
            if size == every_s and at > since:
                for arm, one in bucket.items():
                    found[arm] = found.get(arm, Tally()).plus(one)
        return found

    def points(self, every_s: int, since_s: float) -> list[tuple[int, Tally]]:
        """Return the sums over all arms, by time."""
        found = []
        for size, at in sorted(self._buckets):
            if size == every_s and at >= since_s:
                whole = Tally()
                for one in self._buckets[size, at].values():
                    whole = whole.plus(one)
                found.append((at, whole))
        return found
