"""The page of a replay is one self-contained file with escaped names and figures."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from covey.errors import MissingExtra
from covey.replay.engine import CellView
from covey.replay.outcome import Timeline
from covey.report import figures
from covey.report.page import replay_page
from covey.report.results import Result
from covey.report.text import shorten
from support.outcomes import (
    HOSTILE,
    SITES,
    drawings,
    idle_learner,
    make_outcome,
    read,
    shown_words,
    small_outcome,
)


@pytest.mark.parametrize(("count", "dimension"), [(1, 0), (4, 1), (8, 2), (2, 3)])
def test_the_page_is_well_formed_and_loads_nothing(count: int, dimension: int) -> None:
    page = replay_page(make_outcome(SITES[:count], dimension=dimension), title="A replay")
    reader = read(page)

    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(reader.tags)
    assert all(link.startswith("#") for link in reader.links)
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []


def test_ids_in_the_page_are_unique_and_every_reference_has_its_target() -> None:
    page = replay_page(make_outcome(SITES[:4]), title="A replay")
    reader = read(page)
    referred = {link.removeprefix("#") for link in reader.links}
    referred |= set(re.findall(r"url\(#([^)]*)\)", page))

    assert len(reader.ids) == len(set(reader.ids))
    assert referred <= set(reader.ids)


def test_hostile_names_are_shown_as_they_are_written() -> None:
    outcome = make_outcome(HOSTILE)
    page = replay_page(outcome, title="<i>A & B</i>")
    words = shown_words(page)

    assert "<i>A & B</i>" in words
    assert "<b>a&b</b>" in words
    assert "$x_1$ \\frac" in words
    assert '"quoted" <script>' in words
    assert "script" not in read(page).tags


@pytest.mark.parametrize("dimension", [0, 1, 2, 3])
def test_hostile_names_of_contexts_and_policies_are_escaped(dimension: int) -> None:
    outcome = make_outcome(["north", "east"], dimension=dimension)
    names = ["<u>$h$</u>"] * dimension
    hostile = msgspec.structs.replace(outcome, context_names=names, policy="<u>CoS</u> & $x")
    page = replay_page(hostile, title="A replay")

    assert "<u>CoS</u> & $x" in shown_words(page)
    assert "u" not in read(page).tags


def test_a_log_without_rows_still_gives_a_page() -> None:
    page = replay_page(small_outcome(idle_learner("a"), idle_learner("b")), title="A replay")

    assert drawings(page) == []
    assert "No learner asked a peer" in shown_words(page)


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


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_drawing_leaves_the_settings_of_matplotlib_as_they_were() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    replay_page(make_outcome(["north"]), title="A replay")

    assert dict(matplotlib.rcParams) == before


WITHOUT_EXTRAS = """
import sys
sys.modules["matplotlib"] = None
sys.modules["jinja2"] = None
import covey
config = {"learner": [{"name": "a", "functions": ["f"]}]}
result = covey.replay(config, {"label": [1], "f": [1]})
"""


def test_numbers_and_text_need_neither_matplotlib_nor_jinja2() -> None:
    code = WITHOUT_EXTRAS + "print(result.summary(), result.table())"
    done = run_python(code)

    assert done.returncode == 0, done.stderr
    assert "error_percent" in done.stdout


def test_a_page_without_matplotlib_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=re.escape('pip install ".[report]"')):
        Result(make_outcome(["north"])).report(tmp_path / "out")

    assert not (tmp_path / "out").exists()
