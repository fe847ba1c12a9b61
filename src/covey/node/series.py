"""What a site decided, paid and got right over time: minutes, hours and days of fixed number."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from covey.node.requests import SeriesLine
from covey.node.status import ArmState
from covey.node.tables import SPANS_KEPT
from covey.types import MILLIONTHS

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
PATIENCE_S = 60.0  # for a commit that takes the lines along


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


class SiteHistory:
    """The tallies of each arm by minute, hour and day.

    What has changed is written along with other commits, so that it costs no write of its own.
    """

    def __init__(self, lines: Iterable[SeriesLine] = ()) -> None:
        self._buckets: dict[tuple[int, int], dict[str, Tally]] = {}
        for line in lines:
            tallies = {arm: Tally(*counts) for arm, counts in line.counts.items()}
            self._buckets[line.every_s, line.at] = tallies
        self._totals: dict[str, Tally] | None = None
        self._changed: dict[tuple[int, int], float] = {}  # since when, unwritten

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
                self._add((every_s, int(now_s) // every_s * every_s), added, now_s)
            self._forget(now_s)

    def _add(self, key: tuple[int, int], added: Mapping[str, Tally], now_s: float) -> None:
        bucket = self._buckets.setdefault(key, {})
        for arm, one in added.items():
            bucket[arm] = bucket.get(arm, Tally()).plus(one)
        self._changed.setdefault(key, now_s)

    def _forget(self, now_s: float) -> None:
        for key in [one for one in self._buckets if one[0] in SPANS_KEPT]:
            if key[1] <= now_s - SPANS_KEPT[key[0]] - key[0]:
                del self._buckets[key]
                self._changed.pop(key, None)

    # -- the store ------------------------------------------------------------------------------

    def due(self, now_s: float, *, is_last: bool = False) -> list[SeriesLine]:
        """Return what to write now: nothing while the oldest change is of this minute."""
        if not self._changed:
            return []
        oldest = min(self._changed.values())
        if not is_last and int(oldest) // MINUTE_S >= int(now_s) // MINUTE_S:
            return []
        return [self._line(key) for key in self._changed]

    def written(self, lines: Iterable[SeriesLine]) -> None:
        """Note that lines are in the store; those that have changed meanwhile stay due."""
        for line in lines:
            key = (line.every_s, line.at)
            if key in self._changed and self._line(key) == line:
                del self._changed[key]

    def is_overdue(self, now_s: float) -> bool:
        """Return whether no commit has taken the lines along; then they need one of their own."""
        oldest = min(self._changed.values(), default=now_s)
        return now_s - oldest > MINUTE_S + PATIENCE_S

    def _line(self, key: tuple[int, int]) -> SeriesLine:
        return SeriesLine(*key, {arm: tuple(one) for arm, one in self._buckets[key].items()})

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
