"""Alarms of the change detection: in a trace, in reports, in a simulation and in a network."""

from typing import Any

import msgspec
import pytest

import covey
from covey.bandit.policies import policy_from
from covey.config import load
from covey.data.logs import EncodedLog
from covey.replay.engine import ReplayEngine
from covey.replay.outcome import AlarmNumbers
from covey.report.page import replay_page
from covey.simulation.environment import Drift, Environment
from covey.simulation.run import play
from support.outcomes import small_learner, small_outcome
from support.streams import log_of

POLICY = {"preset": "share-ucb", "slices": 1, "alarm": 1.8}
ONE: dict[str, Any] = {"policy": POLICY, "learner": [{"name": "north", "functions": ["a"]}]}
TWO: dict[str, Any] = {
    "policy": POLICY,
    "learner": [
        {"name": "north", "functions": ["a"], "peers": {"south": 0.0}},
        {"name": "south", "functions": ["b"], "peers": {}},
    ],
}
# After twenty right answers one wrong one, ln(25 / 4) = 1.83, is enough; then it begins anew.
RIGHT = [1] * 20 + [0] + [1] * 20 + [0] + [1] * 10
SLOTS = [21, 42]


def traced(config: dict[str, Any], right: list[list[int]], **options: Any) -> dict[str, list[int]]:
    """Return, per learner, the slots of the rows with an alarm; the label is always 1."""
    slots = len(right[0])
    trace = covey.replay(
        config, predictions=right, labels=[1] * slots, contexts=[[0.5]] * slots, **options
    )
    columns = trace.columns()
    assert set(columns["alarm"]) <= {0, 1}
    rows = list(zip(columns["learner"], columns["slot"], columns["alarm"], strict=True))
    return {
        name: [slot for learner, slot, alarm in rows if learner == name and alarm]
        for name in dict.fromkeys(columns["learner"])
    }


def test_a_row_says_that_the_labels_of_its_slot_raised_an_alarm() -> None:
    assert traced(ONE, [RIGHT]) == {"north": SLOTS}


def test_an_alarm_of_a_late_label_is_at_the_slot_in_which_it_arrives() -> None:
    # With all labels three slots late the first alarm ignores those of the three pending ones.
    assert traced(ONE, [RIGHT], delay=[3] * len(RIGHT))["north"][0] == 24


def test_an_alarm_of_a_learner_that_only_served_is_at_its_next_own_row() -> None:
    # South errs in slot 41, in a row of north; its own next row is slot 44.
    at = ["north"] * 43 + ["south"] * 3
    right = [1] * 40 + [0] + [1] * 5

    assert traced(TWO, [[0] * 46, right], at=at)["south"] == [44]


def chunk(at: list[int], *right: list[int]) -> EncodedLog:
    slots = len(at)
    return log_of(right, [1] * slots, at=at, contexts=[0.5] * slots)


def test_an_alarm_is_marked_in_a_later_chunk_if_the_learner_has_no_row_before() -> None:
    setup = load(TWO)
    engine = ReplayEngine(setup, setup.sites, 1, [0, 1])

    first = engine.play(chunk([0] * 41, [0] * 41, [1] * 40 + [0]))
    second = engine.play(chunk([0, 1, 1, 0], [0] * 4, [1] * 4))

    assert engine.alarms()[1] == [41]
    assert (first.alarm[first.learner == 1].tolist(), second.alarm.tolist()) == ([], [0, 1, 0, 0])


@pytest.mark.parametrize("cut", [20, 21, 41])
def test_an_alarm_in_the_first_or_last_slot_of_a_chunk_is_marked(cut: int) -> None:
    setup = load(ONE)
    engine = ReplayEngine(setup, setup.sites, 1, [0, 1])
    marked = []
    for right in (RIGHT[:cut], RIGHT[cut:]):
        marked += engine.play(chunk([0] * len(right), right)).alarm.tolist()

    assert [slot for slot, is_marked in enumerate(marked, 1) if is_marked] == SLOTS


def test_a_network_keeps_its_alarms_when_pending_labels_are_counted_from_a_batch_on() -> None:
    network = covey.Network(ONE, functions={"a": lambda right: right}, dimension=1)
    for _ in range(12):
        for right in RIGHT[:21]:
            network["north"].learn(network["north"].predict(right, (0.5,)).ticket, 1)
    before = network["north"].alarms

    network["north"].predict_batch([1, 1], [(0.5,), (0.5,)])

    assert network["north"].alarms == before
    assert len(before) == network["north"].learner.alarm_count == 12


def test_a_result_has_alarms_as_numbers_and_as_text() -> None:
    result = covey.replay(ONE, {"label": [1] * len(RIGHT), "a": RIGHT})
    text = result.table()

    assert result.summary().learners["north"].alarms == AlarmNumbers(2, SLOTS)
    assert "raised 2 alarms, the last at slot 42." in " ".join(text.split())
    heading = next(line for line in text.splitlines() if line.startswith("learner"))
    assert heading.split()[-1] == "alarms"


def test_the_page_of_a_replay_marks_alarms_and_says_so() -> None:
    calm = small_learner("a", slots=200, errors=20, alone_errors=30)
    alarms = AlarmNumbers(2, [40, 120])
    numbers = msgspec.structs.replace(calm.numbers, alarms=alarms)
    alarmed = msgspec.structs.replace(calm, numbers=numbers, alarms=[40, 120])
    pages = [
        replay_page(small_outcome(one), title="t").split("Error over time")[1]
        for one in (calm, alarmed)
    ]

    assert ["Triangles on the axis mark alarms" in page for page in pages] == [False, True]
    # Marks share one shape, which the figure uses once for each.
    marks = [page.split("</svg>")[0].count("<use ") for page in pages]
    assert marks[1] - marks[0] == 2


def test_a_run_of_a_simulation_counts_the_alarms_of_all_its_learners() -> None:
    drifting = Environment(name="drift", drift=Drift(severity=0.6, every_slots=500), learners=2)
    options: dict[str, Any] = {"seed": 1, "horizon": 2_000, "checkpoints": [2_000]}
    alarmed = policy_from({"preset": "share-ucb", "alarm": 3.0, "slices": 1})
    calm = policy_from({"preset": "share-ucb", "slices": 1})

    assert play(drifting, alarmed, **options).alarms > 0
    assert play(drifting, calm, **options).alarms == 0
