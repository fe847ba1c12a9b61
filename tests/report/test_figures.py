"""Figures of a replay: contents, colours and names."""

import msgspec
import pytest

from covey.replay.engine import CellView
from covey.replay.outcome import Timeline
from covey.report import figures
from covey.report.page import replay_page
from covey.report.text import shorten
from support.outcomes import (
    SITES,
    drawings,
    make_outcome,
)


@pytest.mark.parametrize(
    ("dimension", "count", "expected"),
    [(0, 4, 4), (1, 2, 4), (2, 2, 4), (3, 2, 2), (2, 1, 2)],
)
def test_each_figure_is_drawn_for_each_learner(dimension: int, count: int, expected: int) -> None:
    page = replay_page(make_outcome(SITES[:count], dimension=dimension), title="A replay")

    assert len(drawings(page)) == expected


def test_cells_show_the_colour_of_the_arm_they_prefer_hatched_if_rarely_visited() -> None:
    cells = [
        CellView("0", (0.0,), (0.5,), 1, "north-tree", 0.8),
        CellView("1", (0.5,), (1.0,), 99, "east", 0.9),
    ]
    learner = msgspec.structs.replace(make_outcome(["north"]).learners[0], cells=cells)
    colours = {"north-tree": "#4a4a4a", "east": "#e69f00"}
    drawn = figures.draw_map(learner, colours=colours, contexts=["hour"], width=600)

    assert drawn.count("fill: #e69f00") == 1
    assert drawn.count("<pattern") == 1


def test_very_many_cells_are_drawn_as_an_image_within_the_page() -> None:
    page = replay_page(make_outcome(["north"], side=32), title="A replay")

    assert "data:image/png;base64," in page
    assert len(page) < 200_000


def test_errors_are_smoothed_over_neighbouring_buckets() -> None:
    judged, errors = [10] * 24, [0] * 12 + [10] + [0] * 11
    timeline = Timeline(10, judged, judged, errors, [0] * 24, [0] * 24)

    assert figures.smoothed_errors(timeline)[9:16] == [0, 20, 20, 20, 20, 20, 0]


def test_every_arm_a_learner_can_choose_has_a_colour_of_its_own() -> None:
    outcome = make_outcome(SITES)
    colours = figures.arm_colours(outcome.learners)
    palettes = [[colours[arm] for arm in learner.numbers.arms] for learner in outcome.learners]

    assert len(palettes) == 8
    assert all(len(set(palette)) == len(palette) for palette in palettes)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("north", "north"), ("northern", "north…"), ("nort hern", "nort…"), ("a\tb", "a\ufffdb")],
)
def test_names_are_cut_with_an_ellipsis(name: str, shown: str) -> None:
    assert shorten(name, 6) == shown
