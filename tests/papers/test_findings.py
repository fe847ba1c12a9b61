"""Found beside printed: what is near, what a line says over seeds, and how a report is written."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey.papers import beyond, document, elsewhere, grids, plan, remarks, trials
from covey.papers.cases import Case
from covey.papers.claims import CLAIMS
from covey.papers.document import Drawing, Grid, Items, Section, Text
from covey.papers.entries import Entry, printed_key
from covey.papers.findings import figures, is_near, table_of
from covey.papers.judging import keys_of
from covey.papers.playing import Played
from covey.papers.printed import PRINTED, TABLES
from covey.papers.reproduction import NAMES

ROOT = Path(covey.__file__).parents[2]
ENTRIES = [entry for make in plan.PLANS.values() for entry in make()]


def played(numbers: dict[int, float]) -> tuple[Entry, dict[str, Played]]:
    """Return an entry of a printed error with these errors, by seed."""
    cases = tuple(Case(trial="S2", seed=seed) for seed in numbers)
    keys = {"error": ("errorperc", "CoS", "0.5", "error")}
    entry = Entry("errorperc", "a line", "paper", keys, cases)
    done = {case.key(): Played(case, {"error": numbers[case.seed]}) for case in cases}
    return entry, done


@given(st.floats(0, 100), st.sampled_from(sorted(PRINTED)))
def test_near_is_a_matter_of_points_or_of_percent(value: float, key: tuple[str, ...]) -> None:
    printed = PRINTED[key]
    is_error = key[-1] == "error" or "error" in key[1]
    points, percent = (0.3, 25) if is_error else (0.15, 15)
    distance = abs(value - printed.value)

    if distance < points - 1e-6 or 100 * distance < percent * printed.value - 1e-6:
        assert is_near(printed, value)
    elif distance > points + 1e-6 and 100 * distance > percent * printed.value + 1e-6:
        assert not is_near(printed, value)


def test_a_number_is_the_median_of_its_seeds_and_says_how_many_are_near() -> None:
    entry, done = played({0: 14.0, 1: 30.0, 2: 13.0, 3: 50.0, 4: 12.0})
    number = table_of("errorperc", [entry], done).lines[0].numbers["paper"]["error"]

    assert number.printed is not None
    assert (number.printed.text, number.found.value) == ("13.9", 14.0)
    assert (number.found.low, number.found.high) == (12.0, 50.0)
    assert (number.agrees, number.seeds_that_agree) == (True, 3)


def test_claims_go_by_the_line_that_decides() -> None:
    entry, done = played({0: 14.0})
    other, more = played({1: 20.0})
    table = table_of("errorperc", [entry, other._replace(line="other", decides=False)], done | more)

    assert figures([table], "paper") == {("errorperc", "CoS", "0.5", "error"): 14.0}
    assert figures([table], "spec") == {}


def test_the_logarithm_of_src_bytes_can_take_the_place_of_src_bytes() -> None:
    entry, done = played({0: 14.0})
    start = ("sim_results", "CoS", "Z1", "S1")
    logged = entry._replace(keys={"error": (*start, "A2 log", "error")})
    table = table_of("sim_results", [logged], done)

    assert (*start, "A2", "error") not in figures([table], "paper")
    assert figures([table], "paper", is_log=True)[*start, "A2", "error"] == 14.0


def test_every_printed_number_is_looked_for() -> None:
    looked_for = {printed_key(key) for entry in ENTRIES for key in entry.keys.values()}

    assert [key for key in PRINTED if key[0] != "par_setup" and key not in looked_for] == []
    assert list(remarks.ABOUT) == list(NAMES)
    assert set(plan.PLANS) == set(TABLES) - {"par_setup"}


@pytest.mark.parametrize("reading", ["paper", "spec"])
def test_every_claim_finds_its_figures_in_every_reading(reading: str) -> None:
    there = {
        key
        for entry in [*ENTRIES, *beyond.horizon()]
        if entry.reading in ("here", reading) and entry.decides
        for key in entry.keys.values()
    }

    assert [key for claim in CLAIMS for key in keys_of(claim) if key not in there] == []


def test_no_two_lines_decide_the_same_figure() -> None:
    keys = [
        (entry.reading, key)
        for entry in ENTRIES
        if entry.decides and entry.reading in ("here", "paper", "spec")
        for key in entry.keys.values()
    ]

    assert len(keys) == len(set(keys)) > 400


def test_a_number_that_does_not_match_says_so_and_names_a_reason_below() -> None:
    entry, done = played({0: 14.0})
    other, more = played({1: 30.0, 2: 14.0, 3: 31.0})
    table = table_of("errorperc", [entry, other._replace(line="DCZA, other")], done | more)
    grid, count, reasons = grids.blocks(table)

    assert isinstance(grid, Grid)
    assert [row[3] for row in grid.rows] == ["**14.00**", "30.00 ≠a [14.00, 31.00]"]
    assert count == Text("`paper`: 1 of 2 printed numbers come out.")
    assert isinstance(reasons, Items)
    assert reasons.lines[0].startswith("≠a does not match (1 in `paper`): DCZA came out so in no")
    assert "DCZA, other, error in `paper` with 1 of 3" in reasons.lines[0]


def test_every_window_elsewhere_has_every_table_of_the_paper() -> None:
    windows = [trial._replace(name=f"{trial.name} from row 9", start=9) for trial in trials.paper()]
    lines = [entry.line for entry in elsewhere.further(windows) if entry.reading != "yardsticks"]
    there = {line.removeprefix("from row 9, ").partition(":")[0] for line in lines}

    assert there == set(TABLES) - {"par_setup", "nlearn"}
    cases = [case for entry in elsewhere.further(windows) for case in entry.cases]
    assert {case.trial for case in cases} == {trial.name for trial in windows}


def test_a_figure_is_a_file_beside_the_report_that_stands_alone() -> None:
    drawing = Drawing('<svg style="max-width: 9px"></svg>', "A curve", "callcost CoS, price")
    sections = [Section("", [Text("first"), drawing])]

    assert drawing.file == "figures/callcost-cos-price.svg"
    assert 'style="background: #fff; font-family: sans-serif; max-width' in drawing.alone
    assert f"![A curve]({drawing.file})" in document.markdown("T", sections)
    assert document.drawings(sections) == [drawing]


def test_a_report_is_the_same_in_markdown_and_on_a_page() -> None:
    blocks = [Text("a < `b`"), Items(["one", "**two**"]), Grid(["", "x"], [["name", "1 & 2"]])]
    sections = [Section("", [Text("first")]), Section("Then", blocks)]

    assert document.markdown("T", sections) == (
        "# T\n\nfirst\n\n## Then\n\na < `b`\n\n- one\n- **two**\n\n"
        "|   | x |\n| --- | --- |\n| name | 1 & 2 |\n"
    )
    page = document.html("T", sections)
    assert "<p>a &lt; <code>b</code></p>" in page
    assert "<li><b>two</b></li>" in page
    assert '<th scope="row">name</th><td>1 &amp; 2</td>' in page


def test_what_the_documents_quote_stands_in_the_generated_report() -> None:
    report = (ROOT / "experiments" / "paper" / "README.md").read_text().splitlines()
    page = (ROOT / "docs" / "research" / "paper.md").read_text()
    quoted = page[page.index("## What comes out") :].splitlines()
    lines = [line for line in quoted if re.match(r"\||- Goal|Claims of the text", line)]

    assert len(lines) > 30
    assert [line for line in lines if line not in report] == []
