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


def test_attacks_come_in_bursts(flows: list[dict[str, str]]) -> None:
    labels = [flow["label"] for flow in flows]
    runs = [len(list(run)) for label, run in groupby(labels) if label == "attack"]
    share = labels.count("attack") / len(labels)
    independent = 1 / (1 - share)  # the mean run, were each flow drawn by itself

    # 7.2 flows against 1.8.
    assert 0.3 < share < 0.6
    assert np.mean(runs) > 3 * independent


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
