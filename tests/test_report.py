import itertools
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from covey import figures, report
from covey.errors import MissingExtra
from covey.types import BaselineOutcome, CellView, Context, LearnerOutcome, Outcome, Timeline

SITES = ["north", "east", "south", "west", "harbour", "airport", "uptown", "campus"]
HOSTILE = ["<b>a&b</b>", "$x_1$ \\frac", "_hidden", "w" * 90, '"quoted" <script>', "東京\x1b\n"]
VOID = {"meta"}
NONE = "\N{EN DASH}"


def make_learner(
    name: str,
    rng: np.random.Generator,
    *,
    peers: list[str],
    dimension: int,
    side: int = 3,
    is_judged: bool = True,
) -> LearnerOutcome:
    functions = [f"{name}-tree", f"{name}-bayes"]
    arms = [*functions, *peers]
    slots = rng.integers(40, 50, size=30)
    judged = slots if is_judged else 0 * slots
    errors = rng.binomial(judged, 0.2)
    train = rng.binomial(slots, 0.1)
    explore = rng.binomial(slots - train, 0.2)
    total = int(slots.sum())
    chosen = rng.multinomial(total, np.full(len(arms), 1 / len(arms)))
    return LearnerOutcome(
        name=name,
        functions=functions,
        slots=total,
        judged=int(judged.sum()),
        errors=int(errors.sum()),
        train=int(train.sum()),
        explore=int(explore.sum()),
        exploit=total - int(train.sum() + explore.sum()),
        cost_total=0.05 * float(chosen[2:].sum()),
        arms=dict(zip(arms, chosen.tolist(), strict=True)),
        alone_errors=int(errors.sum() * 1.5),
        timeline=Timeline(50, *(x.tolist() for x in (slots, judged, errors, train, explore))),
        cells=make_cells(rng, arms, dimension=dimension, side=side),
    )


def make_cells(
    rng: np.random.Generator, arms: list[str], *, dimension: int, side: int
) -> list[CellView]:
    cells = []
    for corner in itertools.product(range(side), repeat=dimension):
        low: Context = tuple(step / side for step in corner)
        high: Context = tuple((step + 1) / side for step in corner)
        arm = arms[int(rng.integers(len(arms)))]
        cells.append(CellView(str(corner), low, high, int(rng.integers(1, 99)), arm, 0.8))
    return cells


def idle_learner(name: str) -> LearnerOutcome:
    nothing = [0] * 30
    timeline = Timeline(50, nothing, nothing, nothing, nothing, nothing)
    return LearnerOutcome(name, ["idle-tree"], 0, 0, 0, 0, 0, 0, 0.0, {}, 0, timeline, [])


def make_outcome(
    names: list[str], *, dimension: int = 2, side: int = 3, is_judged: bool = True
) -> Outcome:
    rng = np.random.default_rng(7)
    learners = [
        make_learner(
            name,
            rng,
            peers=[peer for peer in names if peer != name],
            dimension=dimension,
            side=side,
            is_judged=is_judged,
        )
        for name in names
    ]
    functions = [function for learner in learners for function in learner.functions]
    errors = [10.0 + position if is_judged else None for position in range(len(functions))]
    return Outcome(
        slots=1500,
        dimension=dimension,
        context_names=["hour", "load", "heat"][:dimension],
        policy="CoS (spec), 9 cells",
        learners=learners,
        functions=dict(zip(functions, errors, strict=True)),
    )


def small_learner(name: str, *, slots: int, errors: int, alone_errors: int) -> LearnerOutcome:
    timeline = Timeline(slots, [slots], [slots], [errors], [slots // 10], [slots // 5])
    return LearnerOutcome(
        name=name,
        functions=[f"{name}-tree"],
        slots=slots,
        judged=slots,
        errors=errors,
        train=slots // 10,
        explore=slots // 5,
        exploit=slots - slots // 10 - slots // 5,
        cost_total=slots / 100,
        arms={f"{name}-tree": slots - 30, "peer": 30},
        alone_errors=alone_errors,
        timeline=timeline,
        cells=[CellView("all", (), (), slots, f"{name}-tree", 0.9)],
    )


def small_outcome(*learners: LearnerOutcome) -> Outcome:
    functions = {"a-tree": 25.0, "b-tree": 12.5, "unheard": None}
    return Outcome(300, 0, [], "CoS", list(learners), functions)


class Reader(HTMLParser):
    """Collects what a browser would see, and fails on tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.nesting: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for key, value in attrs if key == "id"]
        self.links += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.nesting.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.nesting.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.nesting.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.nesting == []
    return reader


def drawings(page: str) -> list[ElementTree.Element]:
    found = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    return [ElementTree.fromstring(svg) for svg in found]  # noqa: S314 - drawn by covey itself


def shown_words(page: str) -> str:
    return " ".join(" ".join(read(page).words).split())


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_summary_of_a_learner_holds_its_counts_as_percents() -> None:
    outcome = small_outcome(small_learner("a", slots=200, errors=20, alone_errors=30))

    assert report.summary(outcome) == {
        "learners": {
            "a": {
                "slots": 200,
                "errors": 20,
                "error_percent": 10.0,
                "train_percent": 10.0,
                "explore_percent": 20.0,
                "exploit_percent": 70.0,
                "cost_total": 2.0,
                "arms": {"a-tree": 170, "peer": 30},
                "alone": 15.0,
            }
        },
        "functions": {"a-tree": 25.0, "b-tree": 12.5, "unheard": None},
    }


def test_the_error_percent_is_of_the_judged_slots_only() -> None:
    learner = small_learner("a", slots=200, errors=20, alone_errors=40)
    half = msgspec.structs.replace(learner, judged=100)
    numbers = report.summary(small_outcome(half))["learners"]["a"]

    assert (numbers["error_percent"], numbers["alone"]) == (20.0, 40.0)


def test_a_learner_without_rows_has_no_numbers_but_its_slots() -> None:
    numbers = report.summary(small_outcome(idle_learner("a")))["learners"]["a"]

    assert numbers == {
        "slots": 0,
        "errors": None,
        "error_percent": None,
        "train_percent": None,
        "explore_percent": None,
        "exploit_percent": None,
        "cost_total": None,
        "arms": {},
        "alone": None,
    }


def test_without_true_labels_the_summary_knows_phases_but_no_errors() -> None:
    outcome = make_outcome(["north"], is_judged=False)
    numbers = report.summary(outcome)["learners"]["north"]

    assert numbers["error_percent"] is None
    assert numbers["alone"] is None
    assert numbers["train_percent"] > 0


def test_the_text_has_one_line_for_each_learner_and_one_for_all() -> None:
    first = small_learner("a", slots=200, errors=20, alone_errors=30)
    second = small_learner("b", slots=100, errors=40, alone_errors=31)
    lines = report.text(small_outcome(first, second)).splitlines()

    assert [line.split() for line in lines[5:8]] == [
        ["a", "200", "10.00", "15.00", "+5.00", "25.00", "0.0100", "10.0", "20.0", "70.0"],
        ["b", "100", "40.00", "31.00", "-9.00", "12.50", "0.0100", "10.0", "20.0", "70.0"],
        ["all", "300", "20.00", "20.33", "+0.33", NONE, "0.0100", "10.0", "20.0", "70.0"],
    ]


def with_baselines() -> Outcome:
    found = {"win-stay": BaselineOutcome(3, 8), "oza-russell": BaselineOutcome(0, 0)}
    return msgspec.structs.replace(make_outcome(SITES[:2]), baselines=found)


def test_the_summary_holds_the_errors_of_the_baselines() -> None:
    assert report.summary(with_baselines())["baselines"] == {
        "win-stay": {"errors": 3, "error_percent": 37.5},
        "oza-russell": {"errors": 0, "error_percent": None},
    }


def test_the_text_ends_with_a_table_of_the_baselines() -> None:
    lines = report.text(with_baselines()).splitlines()

    assert [line.split() for line in lines[-4:]] == [
        ["baseline", "error", "%"],
        ["-" * 20],
        ["win-stay", "37.50"],
        ["oza-russell", NONE],
    ]


def test_the_page_lists_the_baselines_best_first() -> None:
    page = report.html(with_baselines(), title="Replay")

    assert page.index("Error % of each baseline") < page.index("win-stay") < page.index("oza-")


def test_without_baselines_nothing_is_said_about_them() -> None:
    outcome = make_outcome(SITES[:2])

    assert "baseline" not in report.text(outcome) + report.html(outcome, title="Replay")
    assert "baselines" not in report.summary(outcome)


def test_the_columns_of_the_text_line_up() -> None:
    lines = report.text(make_outcome(SITES)).splitlines()
    table = lines[lines.index("") + 1 :]
    table = table[: table.index("")]

    assert len(table) == 11
    assert len({len(line) for line in table}) == 1


@pytest.mark.parametrize("count", [1, 4, 8])
def test_the_text_fits_a_terminal_of_100_columns_when_names_are_short(count: int) -> None:
    lines = report.text(make_outcome(SITES[:count])).splitlines()

    assert max(map(len, lines)) <= 100


def test_the_text_shows_no_number_for_a_learner_without_rows() -> None:
    busy = small_learner("a", slots=200, errors=20, alone_errors=30)
    lines = report.text(small_outcome(busy, idle_learner("b"))).splitlines()

    assert lines[6].split() == ["b", "0", *[NONE] * 8]


def test_the_text_names_the_best_single_function_of_the_network() -> None:
    outcome = small_outcome(small_learner("a", slots=200, errors=20, alone_errors=30))

    assert "best single function of the network is b-tree, wrong on 12.50%" in report.text(outcome)


@pytest.mark.parametrize(
    ("alone_errors", "sentence"),
    [
        (60, "cooperation gained 10.00 points: the error fell from 20.00% alone to 10.00%"),
        (15, "cooperation lost 5.00 points: the error rose from 5.00% alone to 10.00%"),
        (30, "cooperation changed nothing: 10.00% wrong either way"),
    ],
)
def test_the_text_says_honestly_what_cooperation_did(alone_errors: int, sentence: str) -> None:
    first = small_learner("a", slots=300, errors=30, alone_errors=alone_errors)
    printed = " ".join(report.text(small_outcome(first, idle_learner("b"))).split())

    assert f"Over all sites {sentence}" in printed


@pytest.mark.parametrize(
    ("cost_total", "price"),
    [
        (12.0, "at a cost of 0.0400 per slot, which weighs as much as 4.00 points."),
        (0.0, "at no cost."),
    ],
)
def test_the_text_says_what_the_gain_was_paid_with(cost_total: float, price: str) -> None:
    first = small_learner("a", slots=300, errors=30, alone_errors=60)
    first = msgspec.structs.replace(first, cost_total=cost_total)
    printed = " ".join(report.text(small_outcome(first, idle_learner("b"))).split())

    assert printed.endswith(price)


def test_what_cooperation_gained_is_weighted_by_slots() -> None:
    large = small_learner("a", slots=300, errors=30, alone_errors=90)
    small = small_learner("b", slots=100, errors=50, alone_errors=30)
    printed = report.text(small_outcome(large, small))

    assert "cooperation gained 10.00 points" in printed


def test_without_true_labels_the_text_does_not_judge() -> None:
    printed = report.text(make_outcome(["north", "east"], is_judged=False))

    assert "what cooperation gained cannot be said" in printed
    assert "No function can be judged" in printed


def test_the_text_of_a_single_learner_does_not_speak_of_cooperation() -> None:
    printed = report.text(make_outcome(["north"]))

    assert "nobody to ask" in printed
    assert "cooperation" not in printed


def test_a_name_cannot_send_control_characters_to_the_terminal() -> None:
    printed = report.text(make_outcome(HOSTILE))

    assert all(letter.isprintable() for letter in printed.replace("\n", ""))


@pytest.mark.parametrize("dimension", [0, 1, 2, 3])
@pytest.mark.parametrize("count", [1, 4, 8])
def test_the_page_is_well_formed_and_loads_nothing(count: int, dimension: int) -> None:
    page = report.html(make_outcome(SITES[:count], dimension=dimension), title="A replay")
    reader = read(page)

    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(reader.tags)
    assert all(link.startswith("#") for link in reader.links)
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []


@pytest.mark.parametrize(
    ("dimension", "count", "expected"),
    [(0, 4, 9), (1, 4, 13), (2, 4, 13), (3, 4, 9), (2, 8, 25), (2, 1, 3), (0, 1, 2)],
)
def test_each_figure_is_drawn_for_each_learner(dimension: int, count: int, expected: int) -> None:
    page = report.html(make_outcome(SITES[:count], dimension=dimension), title="A replay")

    assert len(drawings(page)) == expected


def test_ids_in_the_page_are_unique_and_every_reference_has_its_target() -> None:
    page = report.html(make_outcome(SITES[:4]), title="A replay")
    reader = read(page)
    referred = {link.removeprefix("#") for link in reader.links}
    referred |= set(re.findall(r"url\(#([^)]*)\)", page))

    assert len(reader.ids) == len(set(reader.ids))
    assert referred <= set(reader.ids)


def test_hostile_names_are_shown_as_they_are_written() -> None:
    outcome = make_outcome(HOSTILE)
    page = report.html(outcome, title="<i>A & B</i>")
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
    page = report.html(hostile, title="A replay")

    assert "<u>CoS</u> & $x" in shown_words(page)
    assert "u" not in read(page).tags


def test_figures_cut_long_names() -> None:
    page = report.html(make_outcome(HOSTILE), title="A replay")
    texts = [node.text or "" for svg in drawings(page) for node in svg.iter() if node.text]

    assert any(text.endswith("…") for text in texts)
    assert max(len(text.strip()) for text in texts) <= 40


def test_the_same_outcome_gives_the_same_page() -> None:
    outcome = make_outcome(SITES[:2])

    assert report.html(outcome, title="A replay") == report.html(outcome, title="A replay")


def test_drawing_leaves_the_settings_of_matplotlib_as_they_were() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    report.html(make_outcome(["north"]), title="A replay")

    assert dict(matplotlib.rcParams) == before


def test_the_settings_of_a_user_do_not_change_the_page() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    plain = report.html(make_outcome(["north"]), title="A replay")
    with matplotlib.rc_context({"axes.facecolor": "black", "lines.linewidth": 9}):
        styled = report.html(make_outcome(["north"]), title="A replay")

    assert styled == plain


def test_a_learner_without_rows_is_named_but_not_drawn() -> None:
    outcome = make_outcome(["north", "east"])
    learners = [*outcome.learners, idle_learner("south")]
    page = report.html(msgspec.structs.replace(outcome, learners=learners), title="A replay")

    assert len(drawings(page)) == 7
    assert "Without rows in the log: south." in shown_words(page)


def test_a_log_without_rows_still_gives_a_page() -> None:
    page = report.html(small_outcome(idle_learner("a"), idle_learner("b")), title="A replay")

    assert len(drawings(page)) == 1
    assert "The log holds no rows" in shown_words(page)


def test_without_true_labels_the_page_draws_no_error() -> None:
    page = report.html(make_outcome(SITES[:4], is_judged=False), title="A replay")

    assert len(drawings(page)) == 9
    assert "The log holds no true label" in shown_words(page)


def test_a_log_of_a_single_stretch_is_drawn() -> None:
    learner = small_learner("a", slots=200, errors=20, alone_errors=30)

    assert len(drawings(report.html(small_outcome(learner), title="A replay"))) == 2


def test_stretches_without_slots_are_left_open() -> None:
    learner = small_learner("a", slots=200, errors=20, alone_errors=30)
    gap = Timeline(200, [200, 0, 200], [200, 0, 0], [20, 0, 0], [20, 0, 0], [40, 0, 0])
    broken = msgspec.structs.replace(learner, timeline=gap)

    assert len(drawings(report.html(small_outcome(broken), title="A replay"))) == 2


def test_without_contexts_a_sentence_says_what_each_learner_prefers() -> None:
    first = small_learner("a", slots=200, errors=20, alone_errors=30)
    page = report.html(small_outcome(first), title="A replay")

    assert "In the end a prefers a-tree." in shown_words(page)


def test_beyond_two_dimensions_the_twelve_most_visited_cells_are_listed() -> None:
    outcome = make_outcome(["north", "east"], dimension=3)
    visits = [cell.arrivals for learner in outcome.learners for cell in learner.cells]
    page = report.html(outcome, title="A replay")
    listed = page[page.index("<h2>Whom each region prefers") :]
    shown = [int(number) for number in re.findall(r"<td>(\d+)</td>", listed)]

    assert shown == sorted(visits, reverse=True)[:12]


def test_a_context_that_a_cell_does_not_bound_is_not_listed() -> None:
    outcome = make_outcome(["north"], dimension=3)
    cell = CellView("0", (0.0, 0.25, 0.0), (1.0, 0.5, 1.0), 9, None, None)
    learner = msgspec.structs.replace(outcome.learners[0], cells=[cell])
    page = report.html(msgspec.structs.replace(outcome, learners=[learner]), title="A replay")

    assert f"load 0.25{NONE}0.5 9 no label yet {NONE}" in shown_words(page)


def test_contexts_without_names_are_numbered() -> None:
    outcome = msgspec.structs.replace(make_outcome(["north"]), context_names=["hour"])

    assert "context 2" in shown_words(report.html(outcome, title="A replay"))


def test_cells_show_the_colour_of_the_arm_they_prefer() -> None:
    cells = [
        CellView("0", (0.0,), (0.5,), 50, "north-tree", 0.8),
        CellView("1", (0.5,), (1.0,), 50, "east", 0.9),
    ]
    learner = msgspec.structs.replace(make_outcome(["north"]).learners[0], cells=cells)
    colours = {"north-tree": "#4a4a4a", "east": "#e69f00"}
    drawn = figures.draw_strip(learner, colours=colours, contexts=["hour"], width=600)

    assert drawn.count("fill: #4a4a4a") == 1
    assert drawn.count("fill: #e69f00") == 1


def test_rarely_visited_cells_are_hatched() -> None:
    cells = [
        CellView("0", (0.0,), (0.5,), 1, "north-tree", 0.8),
        CellView("1", (0.5,), (1.0,), 99, "north-tree", 0.9),
    ]
    learner = msgspec.structs.replace(make_outcome(["north"]).learners[0], cells=cells)
    drawn = figures.draw_strip(
        learner, colours={"north-tree": "#4a4a4a"}, contexts=["hour"], width=600
    )

    assert drawn.count("<pattern") == 1


def test_a_cell_without_a_label_is_blank_and_counts_for_no_arm() -> None:
    outcome = make_outcome(["north"], dimension=1)
    cells = [
        CellView("0", (0.0,), (0.5,), 60, None, None),
        CellView("1", (0.5,), (1.0,), 40, "north-tree", 0.9),
    ]
    learner = msgspec.structs.replace(outcome.learners[0], cells=cells)
    page = report.html(msgspec.structs.replace(outcome, learners=[learner]), title="A replay")

    assert "north-tree 40%" in shown_words(page)
    assert f"fill: {figures.BLANK}; stroke: #ffffff" in page


def test_the_name_of_an_arm_is_not_written_under_a_finer_cell() -> None:
    coarse = CellView("0", (0.0, 0.0), (1.0, 1.0), 50, "coarse-arm", 0.8)
    fine = CellView("1", (0.25, 0.25), (0.75, 0.75), 50, "fine-arm", 0.9)
    learner = msgspec.structs.replace(make_outcome(["north"]).learners[0], cells=[fine, coarse])
    drawn = figures.draw_square(learner, colours={}, contexts=["hour", "load"], width=400)

    assert "fine-arm" in drawn
    assert "coarse-arm" not in drawn


def test_very_many_cells_are_drawn_as_an_image_within_the_page() -> None:
    page = report.html(make_outcome(["north"], side=32), title="A replay")

    assert "data:image/png;base64," in page
    assert len(page) < 200_000


def test_an_arm_that_is_no_learner_of_the_outcome_has_its_own_column() -> None:
    first = small_learner("a", slots=200, errors=20, alone_errors=30)
    second = small_learner("b", slots=100, errors=20, alone_errors=30)
    drawn = figures.draw_matrix([first, second])
    texts = [node.text for node in drawings(drawn)[0].iter() if node.text]

    assert "peer" in texts
    assert "15%" in texts


def test_answers_of_own_functions_count_as_the_learner_itself() -> None:
    learner = small_learner("a", slots=200, errors=20, alone_errors=30)

    assert figures.chosen_sites(learner) == {"a": 0.85, "peer": 0.15}


def test_errors_are_smoothed_over_neighbouring_stretches() -> None:
    judged, errors = [10] * 24, [0] * 12 + [10] + [0] * 11
    timeline = Timeline(10, judged, judged, errors, [0] * 24, [0] * 24)

    assert figures.smoothed_errors(timeline)[9:16] == [0, 20, 20, 20, 20, 20, 0]


def test_where_nothing_could_be_judged_there_is_no_smoothed_error() -> None:
    timeline = Timeline(10, [10], [0], [0], [0], [0])

    assert math.isnan(figures.smoothed_errors(timeline)[0])


def test_every_arm_a_learner_can_choose_has_a_colour_of_its_own() -> None:
    outcome = make_outcome(SITES)
    colours = figures.arm_colours(outcome.learners)
    palettes = [[colours[arm] for arm in learner.arms] for learner in outcome.learners]

    assert len(palettes) == 8
    assert all(len(set(palette)) == len(palette) for palette in palettes)


def test_functions_that_learners_share_keep_one_colour_and_stay_apart() -> None:
    first = msgspec.structs.replace(idle_learner("a"), functions=["f", "g"])
    second = msgspec.structs.replace(idle_learner("b"), functions=["g", "h"])
    colours = figures.arm_colours([first, second])

    assert colours["g"] not in (colours["f"], colours["h"])


def test_beyond_eight_learners_the_page_says_that_colours_repeat() -> None:
    page = report.html(make_outcome([*SITES, "ninth"]), title="A replay")

    assert "Hues repeat after 8 learners" in shown_words(page)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("north", "north"), ("northern", "north…"), ("nort hern", "nort…"), ("a\tb", "a\ufffdb")],
)
def test_names_are_cut_with_an_ellipsis(name: str, shown: str) -> None:
    assert figures.shorten(name, 6) == shown


@pytest.mark.parametrize(("share", "shown"), [(0.0, NONE), (0.001, "<1%"), (0.126, "13%")])
def test_little_and_nothing_look_different(share: float, shown: str) -> None:
    assert figures.percent(share) == shown


def test_write_makes_the_folder_and_returns_the_page(tmp_path: Path) -> None:
    outcome = make_outcome(["north", "east"])
    path = report.write(outcome, tmp_path / "new" / "folder", title="A replay")

    assert path == tmp_path / "new" / "folder" / "report.html"
    assert path.read_text(encoding="utf-8") == report.html(outcome, title="A replay")


def test_the_written_summary_is_indented_json_of_the_summary(tmp_path: Path) -> None:
    outcome = make_outcome(["north", "東京"])
    report.write(outcome, tmp_path, title="A replay")
    written = (tmp_path / "summary.json").read_text(encoding="utf-8")

    assert json.loads(written) == report.summary(outcome)
    assert written.startswith('{\n  "learners": {\n    "north"')


def test_write_replaces_an_older_report_and_leaves_nothing_else(tmp_path: Path) -> None:
    report.write(make_outcome(["north"]), tmp_path, title="Older")
    path = report.write(make_outcome(["north"]), tmp_path, title="Newer")

    assert "<h1>Newer</h1>" in path.read_text(encoding="utf-8")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["report.html", "summary.json"]


def test_a_failed_write_keeps_the_older_file_and_no_part(tmp_path: Path) -> None:
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(OSError, match=re.escape("summary.json")):
        report.write(make_outcome(["north"]), tmp_path, title="A replay")

    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


WITHOUT_MATPLOTLIB = """
import sys
sys.modules["matplotlib"] = None
from covey import report
from covey.types import LearnerOutcome, Outcome, Timeline
learner = LearnerOutcome(
    "a", ["f"], 1, 1, 0, 0, 0, 1, 0.0, {"f": 1}, 0, Timeline(1, [1], [1], [0], [0], [0]), []
)
outcome = Outcome(1, 0, [], "CoS", [learner], {"f": 0.0})
"""


def test_numbers_and_text_need_no_matplotlib() -> None:
    code = WITHOUT_MATPLOTLIB + "print(report.summary(outcome), report.text(outcome))"
    done = run_python(code)

    assert done.returncode == 0, done.stderr
    assert "error_percent" in done.stdout


def test_a_page_without_matplotlib_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=re.escape('pip install "covey[report]"')):
        report.write(make_outcome(["north"]), tmp_path / "out", title="A replay")

    assert not (tmp_path / "out").exists()


def test_importing_the_report_does_not_import_matplotlib() -> None:
    done = run_python("import sys, covey.report; print('matplotlib' in sys.modules)")

    assert done.stdout == "False\n"


def test_drawing_does_not_touch_pyplot() -> None:
    code = WITHOUT_MATPLOTLIB.replace('sys.modules["matplotlib"] = None', "") + (
        "report.html(outcome, title='A replay'); print('matplotlib.pyplot' in sys.modules)"
    )
    done = run_python(code)

    assert done.stdout == "False\n"
