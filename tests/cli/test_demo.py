import csv
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from covey import config
from covey.cli import demo
from covey.replay import replay as replaying
from covey.replay.engine import CellView
from covey.replay.outcome import LearnerOutcome, Outcome

HOURS, SIZES = (axis.ravel() for axis in np.meshgrid(np.arange(0.5, 24), np.logspace(0, 6, 25)))


def read(log: Path) -> list[dict[str, str]]:
    with log.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def percent(part: int, whole: int) -> float:
    return 100 * part / whole


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return demo.write(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def flows(default: tuple[Path, Path]) -> list[dict[str, str]]:
    return read(default[0])


@pytest.fixture(scope="module")
def outcome(default: tuple[Path, Path]) -> Outcome:
    log, sites = default
    return replaying.replay_file(log, config.load(sites))


@pytest.fixture(scope="module")
def learners(outcome: Outcome) -> dict[str, LearnerOutcome]:
    return {learner.name: learner for learner in outcome.learners}


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in demo.write(tmp_path / "a", slots=500, seed=7)]
    second = [path.read_bytes() for path in demo.write(tmp_path / "b", slots=500, seed=7)]

    assert first == second


def test_another_seed_gives_another_log(tmp_path: Path) -> None:
    first, _ = demo.write(tmp_path / "a", slots=500, seed=7)
    second, _ = demo.write(tmp_path / "b", slots=500, seed=8)

    assert first.read_bytes() != second.read_bytes()


def test_the_files_are_written_into_a_new_folder(tmp_path: Path) -> None:
    log, sites = demo.write(tmp_path / "new" / "folder", slots=10)

    assert log == tmp_path / "new" / "folder" / "log.csv"
    assert sites == tmp_path / "new" / "folder" / "sites.toml"
    assert len(read(log)) == 10


def test_the_configuration_names_the_sites_and_functions_of_the_log(tmp_path: Path) -> None:
    log, sites = demo.write(tmp_path, slots=200)
    setup = config.load(sites)
    listed = [name for site in setup.sites for name in site.functions]

    assert len(listed) == 8
    assert list(read(log)[0]) == ["day", "hour", "site", "bytes", "label", *listed]
    assert [site.name for site in setup.sites] == list(demo.SITES)
    assert {flow["site"] for flow in read(log)} == set(demo.SITES)


@pytest.mark.parametrize("slots", [1, 300])
def test_a_shortened_stream_can_be_replayed(tmp_path: Path, slots: int) -> None:
    log, sites = demo.write(tmp_path, slots=slots)
    outcome = replaying.replay_file(log, config.load(sites))

    assert outcome.slots == slots
    assert sum(learner.slots for learner in outcome.learners) == slots


def test_the_flows_are_in_the_order_of_time(flows: list[dict[str, str]]) -> None:
    times = [24 * int(flow["day"]) + float(flow["hour"]) for flow in flows]

    assert times == sorted(times)
    assert max(float(flow["hour"]) for flow in flows) < 24


def test_attacks_come_in_bursts(flows: list[dict[str, str]]) -> None:
    labels = [flow["label"] for flow in flows]
    runs = [len(list(run)) for label, run in groupby(labels) if label == "attack"]
    share = labels.count("attack") / len(labels)
    independent = 1 / (1 - share)  # the mean run, were each flow drawn by itself

    # 7.2 flows against 1.8.
    assert 0.3 < share < 0.6
    assert np.mean(runs) > 3 * independent


def test_more_flows_are_attacks_at_night(flows: list[dict[str, str]]) -> None:
    is_attack = np.array([flow["label"] == "attack" for flow in flows])
    is_night = np.array([not 8 <= float(flow["hour"]) < 20 for flow in flows])

    assert is_attack[is_night].mean() > is_attack[~is_night].mean() + 0.1


@pytest.mark.parametrize("function", demo.FUNCTIONS, ids=lambda function: function.name)
def test_no_function_is_good_everywhere(function: demo.DemoFunction) -> None:
    accuracy = function.accuracy(HOURS, SIZES)

    assert accuracy.min() >= 0.55
    assert accuracy.max() <= 0.97
    assert accuracy.min() <= 0.64


def test_almost_every_context_has_a_good_function() -> None:
    best = np.max([function.accuracy(HOURS, SIZES) for function in demo.FUNCTIONS], axis=0)

    assert np.mean(best >= 0.85) > 0.8


@pytest.mark.parametrize(
    ("hours", "expected"),
    [((22.0, 2.0), [0.9, 0.9, 0.7, 0.5]), ((2.0, 22.0), [0.5, 0.5, 0.7, 0.9])],
)
def test_a_region_may_span_midnight(hours: tuple[float, float], expected: list[float]) -> None:
    function = demo.DemoFunction("clock", 0.9, 0.5, hours, demo.ANY)
    accuracy = function.accuracy(np.array([23.0, 0.0, 2.0, 12.0]), np.full(4, 100.0))

    assert accuracy == pytest.approx(expected)


def test_cooperation_halves_the_total_error(outcome: Outcome) -> None:
    together = percent(sum(learner.errors for learner in outcome.learners), outcome.slots)
    alone = percent(sum(learner.alone_errors for learner in outcome.learners), outcome.slots)

    # 14.8 and 29.0 on this stream; over a dozen seeds 14.5 to 15.8 and 29.0 to 30.2.
    assert together < 18
    assert alone > 26


@pytest.mark.parametrize("site", demo.SITES)
def test_every_site_makes_fewer_errors_with_peers(
    learners: dict[str, LearnerOutcome], site: str
) -> None:
    learner = learners[site]
    gained = percent(learner.alone_errors - learner.errors, learner.slots)

    # 10.7, 19.6, 21.1 and 11.1 points; over a dozen seeds no site gains less than 9.
    assert gained > 7


def test_every_site_beats_the_best_function_by_far_where_help_is_cheap(outcome: Outcome) -> None:
    errors = [error for error in outcome.functions.values() if error is not None]

    assert len(errors) == 8
    ahead = {s.name: min(errors) - percent(s.errors, s.slots) for s in outcome.learners}
    # 6.8 points at the branch, 4.6 to 6.8 over a dozen seeds; elsewhere never less than 14.
    assert 3 < ahead.pop("branch") < 9
    assert min(ahead.values()) > 12


def test_the_branch_pays_much_of_its_gain(learners: dict[str, LearnerOutcome]) -> None:
    spent = {
        name: learner.cost_total / (learner.alone_errors - learner.errors)
        for name, learner in learners.items()
    }

    # 0.52 of a right answer for each error avoided, 0.52 to 0.69 over a dozen seeds; others 0.1.
    assert 0.4 < spent.pop("branch") < 0.75
    assert max(spent.values()) < 0.15


@pytest.mark.parametrize("site", demo.SITES)
def test_exploration_declines_and_no_peer_is_trained(
    learners: dict[str, LearnerOutcome], site: str
) -> None:
    timeline = learners[site].timeline
    early, late = slice(len(timeline.slots) // 10), slice(len(timeline.slots) * 3 // 4, None)

    tried = [sum(timeline.explore[part]) / sum(timeline.slots[part]) for part in (early, late)]
    # 11 to 24 % of the slots early, 3 to 8 % late; at the branch 28 %: what it would gain by its
    # peers is about what they cost, so that the best arm stays unclear (14 to 28 % over a dozen
    # seeds).
    assert tried[0] > 0.05
    assert tried[1] < (0.35 if site == "branch" else tried[0])
    assert sum(timeline.train) == 0


@pytest.mark.parametrize(
    ("learner", "is_large", "is_night", "arm"),
    [
        ("campus", False, False, "campus_tree"),
        ("campus", True, False, "hospital"),
        ("campus", True, True, "bank"),
        ("hospital", False, False, "campus"),
        ("hospital", True, True, "bank"),
        ("branch", False, False, "branch_bayes"),
    ],
)
def test_preferences_follow_the_regions_of_the_functions(
    learners: dict[str, LearnerOutcome], learner: str, is_large: bool, is_night: bool, arm: str
) -> None:
    cells = [c for c in learners[learner].cells if lies(c, is_large=is_large, is_night=is_night)]
    arrivals = sum(cell.arrivals for cell in cells)

    assert len(cells) == 9
    # 0.92 or more on this stream; cells with few flows are still undecided.
    assert sum(cell.arrivals for cell in cells if cell.arm == arm) > 0.8 * arrivals


def lies(cell: CellView, *, is_large: bool, is_night: bool) -> bool:
    hour, size = ((low + high) / 2 for low, high in zip(cell.low, cell.high, strict=True))
    return (size > 0.5) == is_large and (not 8 <= 24 * hour < 20) == is_night
