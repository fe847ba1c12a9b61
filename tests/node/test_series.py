"""What a site did over time: rolled up to minutes, hours and days, and kept in its store."""

from contextlib import closing
from pathlib import Path

from covey.site.requests import HOUR_S, Commit, SeriesLine
from covey.site.status import DAY_S, MINUTE_S, TOGETHER_S, ArmState, SeriesPoint, SiteHistory
from covey.store.store import Store

BEGIN = 1_800_000_000 // DAY_S * DAY_S  # the first second of a day


def arms(decisions: int, labels: int = 0, right: int = 0, spent: float = 0.0) -> list[ArmState]:
    return [
        ArmState("a", "own", 0.0, decisions, 0, spent, labels, right),
        ArmState("b", "peer", 0.1, 0, 0, 0.0, 0, 0),
    ]


def test_spans_add_up_what_happened_in_them() -> None:
    history = SiteHistory()
    history.note(arms(0), BEGIN)
    history.note(arms(1, 1, 1, 0.5), BEGIN + 10)
    history.note(arms(3, 2, 1, 1.5), BEGIN + 2 * HOUR_S)
    now = BEGIN + 25 * HOUR_S
    history.note(arms(6, 2, 1, 1.5), now)

    hours = [SeriesPoint(BEGIN + 2 * HOUR_S, 2, 1, 0, 1.0), SeriesPoint(now, 3, 0, 0, 0.0)]
    assert history.points(HOUR_S, now - DAY_S) == hours
    assert history.points(DAY_S, 0) == [
        SeriesPoint(BEGIN, 3, 2, 1, 1.5),
        SeriesPoint(BEGIN + DAY_S, 3, 0, 0, 0.0),
    ]


def spans(lines: list[SeriesLine]) -> dict[tuple[int, int], int]:
    """The decisions of arm a, by length and begin of the span."""
    return {(line.every_s, line.at - BEGIN): line.counts["a"][0] for line in lines}


def test_minutes_are_due_together_and_until_they_are_written() -> None:
    history = SiteHistory()
    history.note(arms(0), BEGIN)
    history.note(arms(1), BEGIN + 30)
    history.note(arms(3), BEGIN + 90)

    assert history.due(BEGIN + TOGETHER_S - 1) == []
    history.note(arms(7), BEGIN + TOGETHER_S)  # a minute that is not over
    lines = history.due(BEGIN + TOGETHER_S)
    assert spans(lines) == {(MINUTE_S, 0): 1, (MINUTE_S, 60): 2}
    history.note(arms(8), BEGIN + 91)  # while it was written
    history.written(lines)
    assert spans(history.due(BEGIN + TOGETHER_S, is_last=True)) == {
        (MINUTE_S, 60): 3,
        (MINUTE_S, TOGETHER_S): 4,
    }
    lines = history.due(BEGIN + HOUR_S)
    assert spans(lines) == {(MINUTE_S, 60): 3, (MINUTE_S, TOGETHER_S): 4, (HOUR_S, 0): 8}
    lines = history.due(BEGIN + DAY_S)
    assert spans(lines).keys() - {(DAY_S, 0)} == spans(history.due(BEGIN + HOUR_S)).keys()
    history.written(lines)
    assert history.due(BEGIN + 2 * DAY_S, is_last=True) == []


def test_hours_and_days_that_were_never_written_are_the_sums_of_their_parts() -> None:
    history = SiteHistory()
    history.note(arms(0), BEGIN)
    kept: dict[tuple[int, int], SeriesLine] = {}
    for count, now in enumerate((BEGIN, BEGIN + 61, BEGIN + HOUR_S, BEGIN + 2 * HOUR_S), start=1):
        history.note(arms(count), now)
        lines = history.due(now, is_last=True)
        kept |= {(line.every_s, line.at): line for line in lines}
        history.written(lines)
    del kept[HOUR_S, BEGIN]  # as if the site had stopped before

    again = SiteHistory(kept.values())

    assert again.due(BEGIN + DAY_S) == []  # they are written with the next minutes
    assert spans(again.due(BEGIN + DAY_S, is_last=True)) == {
        (HOUR_S, 0): 2,
        (HOUR_S, 2 * HOUR_S): 1,
        (DAY_S, 0): 4,
    }
    assert again.points(DAY_S, 0) == history.points(DAY_S, 0)


def test_the_store_keeps_a_day_of_minutes_a_month_of_hours_and_all_days(tmp_path: Path) -> None:
    days, count = 40, 0
    history = SiteHistory()
    history.note(arms(0), BEGIN)
    with closing(Store(tmp_path / "a.store")) as store:
        for now in range(BEGIN, BEGIN + days * DAY_S, 20 * MINUTE_S):
            count += 1
            history.note(arms(count), now)
            lines = history.due(now, is_last=True)
            store.commit(Commit([*lines]))
            history.written(lines)
        kept = store.all(SeriesLine)
        assert store.check() == []

    sizes = [one.every_s for one in kept]
    assert 72 <= sizes.count(MINUTE_S) <= 72 + 6  # three in an hour
    assert 31 * 24 <= sizes.count(HOUR_S) <= 31 * 24 + 1
    assert sizes.count(DAY_S) == days - 1  # and the last one is the sum of its hours
    again = SiteHistory(kept)
    for every_s, since_s in ((MINUTE_S, now - HOUR_S), (HOUR_S, now - DAY_S), (DAY_S, 0)):
        assert again.points(every_s, since_s) == history.points(every_s, since_s)
    assert sum(day.decisions for day in again.points(DAY_S, 0)) == count


def test_a_restart_goes_on_with_the_same_minute() -> None:
    history = SiteHistory([SeriesLine(MINUTE_S, BEGIN, {"a": (5, 4, 3, 2)})])
    history.note(arms(0), BEGIN + 5)
    history.note(arms(1), BEGIN + 10)

    (minute,) = history.points(MINUTE_S, BEGIN)
    assert (minute.decisions, minute.labels, minute.right) == (6, 4, 3)
