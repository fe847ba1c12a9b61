"""Totals of a replay equal hand-computed ones in any chunks; intervals are wide enough."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import UNSET

from covey.config import LearnerSpec
from covey.data.logs import ArmTable, DecisionColumns, EncodedLog, Trace
from covey.replay.outcome import (
    AlarmNumbers,
    LearnerNumbers,
    LearnerOutcome,
    Outcome,
    OutcomeBuilder,
    PairNumbers,
    Timeline,
    aligned,
    gain_of,
    student,
)
from covey.types import Interval
from support.streams import log_of

SITES = (
    LearnerSpec("north", ("nb", "tree"), (1,), (0.0, 0.25, 0.5), receives=True),
    LearnerSpec("south", ("svm",), (), (0.0,), receives=True),
    LearnerSpec("west", ("knn",), (), (0.0,), receives=False),
)
FUNCTIONS = 4
COSTS = np.array([[0.0, 0.25, 0.0, 0.0, 0.0, 0.5, 0.0], [0.0] * 7, [0.0] * 7])
TRAIN, EXPLORE, EXPLOIT = 0, 1, 2
NORTH, SOUTH = 4, 5  # as arms: after the four functions

# slot, learner, phase, arm, correct
Row = tuple[int, int, int, int, int]
SIX_ROWS: list[Row] = [
    (1, 0, EXPLORE, 0, 1),
    (2, 0, EXPLORE, 1, 0),
    (3, 1, EXPLORE, 2, 0),
    (4, 0, TRAIN, SOUTH, -1),
    (5, 0, EXPLOIT, SOUTH, 1),
    (6, 1, EXPLOIT, 2, 1),
]
ALONE_CORRECT = [0, 0, 1, -1, 0, 1]


def trace_of(
    rows: Sequence[Row],
    correct: Sequence[int] | None = None,
    *,
    function_of_peer: int = 2,
    cells: Sequence[int] | None = None,
    names: Sequence[str] = (),
    log: EncodedLog | None = None,
) -> Trace:
    """Make the trace of consecutive slots, one row each."""
    slots, learners, phases, arms, right = zip(*rows, strict=True)
    return Trace(
        DecisionColumns(
            cell=np.array([0] * len(rows) if cells is None else cells, np.int32),
            phase=np.array(phases, np.int8),
            arm=np.array(arms, np.int32),
            function=np.array([function_of_peer if arm >= FUNCTIONS else arm for arm in arms]),
            correct=np.array(right if correct is None else correct, np.int8),
        ),
        log or log_of(np.zeros((FUNCTIONS, len(rows))), [0] * len(rows), at=learners),
        first_slot=slots[0],
        arms=ArmTable.full(COSTS),
        receivers=(0, 1),
        names={"cell": names},
    )


def outcome_of(tally: OutcomeBuilder) -> Outcome:
    learners = tally.learners([[], [], []])
    return tally.outcome(learners, context_names=["hour"], policy="CoS")


def tally_of(*parts: slice) -> OutcomeBuilder:
    tally = OutcomeBuilder(SITES)
    for part in parts:
        tally.add(trace_of(SIX_ROWS[part]), trace_of(SIX_ROWS[part], ALONE_CORRECT[part]))
    return tally


def learners_of(*parts: slice) -> list[LearnerOutcome]:
    return outcome_of(tally_of(*parts)).learners


def long_tally(slots: int, *, rows_per_chunk: int = 100) -> LearnerOutcome:
    """Add as many slots of north, wrong in the first one only, and return what came of it."""
    rows = [(slot, 0, EXPLORE, 0, int(slot > 1)) for slot in range(1, slots + 1)]
    tally = OutcomeBuilder(SITES)
    for start in range(0, slots, rows_per_chunk):
        trace = trace_of(rows[start : start + rows_per_chunk])
        tally.add(trace, trace)
    return outcome_of(tally).learners[0]


def test_a_learner_is_added_up_as_by_hand() -> None:
    north, *_ = learners_of(slice(6))

    assert (north.name, north.functions, north.judged) == ("north", ["nb", "tree"], 3)
    assert north.numbers == LearnerNumbers(
        slots=4,
        errors=1,
        error_percent=100 / 3,
        train_percent=25.0,
        explore_percent=50.0,
        exploit_percent=25.0,
        cost_total=1.25,
        arms={"nb": 1, "tree": 1, "south": 2},
        alone_percent=100.0,
        best_own="nb",
        best_own_percent=0.0,
        net_gain_points=Interval(100 * ((2 - 0.25 - 0.5 - 3) / 3)),
        pairs=[PairNumbers("south", 2, 1.0, 1, 1, "nb", 1, Interval(100 * (-0.5 / 3)))],
        alarms=AlarmNumbers(0, []),
        buyer_gain_points=Interval(100 * ((2 - 0.25 - 0.5 - 3) / 3)),
    )
    assert north.timeline == Timeline(
        slots_per_bucket=1,
        slots=[1, 1, 0, 1, 1],
        judged=[1, 1, 0, 0, 1],
        errors=[0, 1, 0, 0, 0],
        train=[0, 0, 0, 1, 0],
        explore=[1, 1, 0, 0, 0],
        spent=[0, 0.25, 0, 0, 0.5],
        gain=[0, -1.25, 0, 0, -0.5],
        income=[0, 0, 0, 0, 0],
    )


def test_a_learner_without_rows_has_no_numbers() -> None:
    *_, west = learners_of(slice(6))
    numbers = west.numbers

    assert (numbers.slots, numbers.errors, numbers.cost_total, numbers.arms) == (0, None, None, {})
    assert (west.judged, numbers.best_own, numbers.net_gain_points) == (0, None, None)
    assert west.timeline == Timeline(1, [], [], [], [], [], [])


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_sums_over_chunks_equal_the_whole(cut: int) -> None:
    assert learners_of(slice(cut), slice(cut, 6)) == learners_of(slice(6))


@pytest.mark.parametrize(
    ("slots", "per_bucket", "buckets"),
    [(255, 1, 255), (256, 1, 256), (257, 2, 129), (512, 2, 256), (513, 4, 129), (3000, 16, 188)],
)
def test_buckets_double_in_length_at_256(slots: int, per_bucket: int, buckets: int) -> None:
    timeline = long_tally(slots).timeline

    assert (timeline.slots_per_bucket, len(timeline.slots)) == (per_bucket, buckets)


@pytest.mark.parametrize("rows_per_chunk", [1, 7, 3000])
def test_doubling_the_buckets_keeps_all_counts(rows_per_chunk: int) -> None:
    north = long_tally(3000, rows_per_chunk=rows_per_chunk)

    assert north.timeline.slots == [16] * 187 + [8]
    assert (north.timeline.errors[0], sum(north.timeline.errors), north.numbers.errors) == (1, 1, 1)


def test_functions_are_judged_on_the_labels_that_the_log_holds() -> None:
    tally = OutcomeBuilder(SITES)
    tally.add_functions(log_of([[1, 0, 1], [0, 0, 0], [0, 1, 1], [1, 1, 0]], [1, 0, -1]))
    tally.add_functions(log_of([[1, 1], [0, 1], [0, 0], [1, 1]], [1, 1]))

    assert outcome_of(tally).functions == {"nb": 0.0, "tree": 50.0, "svm": 100.0, "knn": 25.0}


def test_slots_in_which_an_own_function_replaced_a_peer_are_counted() -> None:
    tally = OutcomeBuilder(SITES)
    for function in (2, 0, 4):  # the peer's, an own one, and what a peer remembers for north
        trace = trace_of(SIX_ROWS, function_of_peer=function)
        tally.add(trace, trace)
    north, south, west = outcome_of(tally).learners

    stood_in = [learner.numbers.stood_in for learner in (north, south, west)]

    assert stood_in == [2, UNSET, UNSET]


def test_the_first_learner_is_asked_as_others_are() -> None:
    tally = OutcomeBuilder(SITES)
    trace = trace_of([(slot, 1, EXPLOIT, NORTH, 1) for slot in (1, 2, 3)], function_of_peer=2)
    tally.add(trace, trace)
    south = outcome_of(tally).learners[1].numbers

    assert south.arms == {"north": 3}
    assert south.stood_in == 3
    assert [(pair.peer, pair.asked, pair.right) for pair in south.pairs] == [("north", 3, 3)]


def test_decisions_are_counted_by_candidate_under_whatever_number_a_cell_has() -> None:
    sites = (SITES[0]._replace(spaces=(0, 1)), *SITES[1:])
    tally = OutcomeBuilder(sites)
    for cells, names in (
        ([0, 1, 0, 1, 1, 0], ["hour/g2:0", "hour+load/g2:1:1"]),
        ([0, 2, 0, 1, 1, 0], ["hour+load/g2:1:1", "hour/g2:1", "hour/g2:0"]),
    ):
        trace = trace_of(SIX_ROWS, cells=cells, names=names)
        tally.add(trace, trace)
    north, south, _ = outcome_of(tally).learners

    assert north.numbers.candidates == {"hour+load": 4, "hour": 4}
    assert south.numbers.candidates is UNSET


def test_the_gain_is_over_the_best_own_function_on_the_rows_of_the_learner_net_of_costs() -> None:
    rows: list[Row] = [
        (slot, slot % 2, EXPLOIT, SOUTH if slot % 2 == 0 else 2, 1) for slot in range(1, 401)
    ]
    said = [[slot % 8 == 0 for slot in range(1, 401)], [1] * 200 + [0] * 200, [1] * 400, [0] * 400]
    log = log_of(said, [1] * 400, at=[row[1] for row in rows])
    trace = trace_of(rows, log=log)
    tally = OutcomeBuilder(SITES)
    tally.add(trace, trace)
    outcome = outcome_of(tally)
    north, south, west = (learner.numbers for learner in outcome.learners)

    # North gets the even slots: nb is right in each fourth of them, tree in the first half.
    assert (north.best_own, north.best_own_percent) == ("tree", 50.0)
    assert north.net_gain_points is not None
    assert north.net_gain_points.mean == pytest.approx(100 * (200 - 0.5 * 200 - 100) / 200)
    assert (south.best_own, south.net_gain_points) == ("svm", Interval(0.0, 0.0, 0.0))
    assert (west.best_own, west.net_gain_points) == (None, None)
    assert outcome.total.net_gain_points is not None
    assert outcome.total.net_gain_points.mean == pytest.approx(0.0)
    (pair,) = north.pairs
    assert pair.worth_points is not None
    assert pair.worth_points.mean == pytest.approx(0.0)
    expected = PairNumbers("south", 200, 100.0, 200, 200, "tree", 100, pair.worth_points)
    assert pair == expected


def test_no_rows_give_no_gain_and_few_rows_no_interval() -> None:
    assert gain_of([0.0] * 4, [0] * 4) is None
    assert gain_of([1.0, 0.0], [2, 2]) == Interval(25.0)


def test_the_interval_is_that_of_batch_means_by_hand() -> None:
    sums = [1.0, -1.0] * 16
    found = gain_of(sums, [10] * 32)

    # 32 batches with mean 0; the variance of their mean is 32 / 31 * 32 * 1 / 320 ** 2.
    assert found is not None
    assert found.mean == 0.0
    expected = 100 * student(31) * math.sqrt(32 / 31 * 32 / 320**2)
    assert (found.low, found.high) == pytest.approx((-expected, expected))


def test_intervals_of_several_comparisons_are_those_of_a_higher_certainty() -> None:
    sums = [1.0, -1.0] * 16
    one, five = gain_of(sums, [10] * 32), gain_of(sums, [10] * 32, comparisons=5)

    assert one is not None
    assert five is not None
    assert one.high is not None
    assert five.high is not None
    assert five.high / one.high == pytest.approx(student(31, 0.99) / student(31))


def test_sums_of_learners_with_other_buckets_are_aligned() -> None:
    fine = (2, np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.0, 2.0, 1.0]))
    coarse = (4, np.array([10.0, 20.0]), np.array([4.0, 4.0]))
    sums, counts = aligned([fine, coarse])

    assert sums[:2].tolist() == [13.0, 27.0]
    assert counts[:2].tolist() == [8.0, 7.0]
    assert not sums[2:].any()


def coverage(stay: float, *, runs: int = 1_000, rows: int = 4_096) -> float:
    """Return how often the interval holds the true mean, 0, of a chain of +1 and -1."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(runs):
        turns = np.where(rng.random(rows) < stay, 1, -1)
        chain = rng.choice([-1, 1]) * np.cumprod(turns)
        found = gain_of(chain.reshape(256, -1).sum(axis=1), [rows // 256] * 256)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0 <= found.high
    return hits / runs


@pytest.mark.parametrize("stay", [0.5, 0.8, 0.9])
def test_the_interval_holds_the_truth_where_errors_come_in_runs(stay: float) -> None:
    assert 0.93 <= coverage(stay) <= 0.97
