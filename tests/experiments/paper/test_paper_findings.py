"""Tables of found and printed numbers, their entries and remarks, and the blocks of the report."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import DataError
from reproduction.claims import CLAIMS, keys_of
from reproduction.data import PRINTED, TABLES
from reproduction.experiments import Case, CaseResult, paper_trials
from reproduction.figures import ReportFigure
from reproduction.findings import figures_of, is_near, table_of
from reproduction.report import (
    REMARKS,
    BulletList,
    Grid,
    MismatchReason,
    Paragraph,
    Remarks,
    Section,
    TableRemark,
    checked_remarks,
    figures_in,
    html,
    markdown,
    table_blocks,
)
from reproduction.tables import BEYOND, ELSEWHERE, NAMES, PLANS, TableEntry, printed_key
from support.required import ROOT

ENTRIES = [entry for make in PLANS.values() for entry in make()]


def played(numbers: dict[int, float]) -> tuple[TableEntry, dict[str, CaseResult]]:
    """Return an entry of a printed error with these errors, by seed."""
    cases = tuple(Case(trial="S2", seed=seed) for seed in numbers)
    keys = {"error": ("errorperc", "CoS", "0.5", "error")}
    entry = TableEntry("errorperc", "a line", "paper", keys, cases)
    done = {case.key(): CaseResult(case, {"error": numbers[case.seed]}) for case in cases}
    return entry, done


@given(st.floats(0, 100), st.sampled_from(sorted(PRINTED)))
def test_near_is_measured_in_points_or_in_percent(value: float, key: tuple[str, ...]) -> None:
    printed = PRINTED[key]
    is_error = key[-1] == "error" or "error" in key[1]
    points, percent = (0.3, 25) if is_error else (0.15, 15)
    distance = abs(value - printed.value)

    if distance < points - 1e-6 or 100 * distance < percent * printed.value - 1e-6:
        assert is_near(printed, value)
    elif distance > points + 1e-6 and 100 * distance > percent * printed.value + 1e-6:
        assert not is_near(printed, value)


def test_a_number_is_the_median_of_its_seeds_and_counts_those_that_match() -> None:
    entry, done = played({0: 14.0, 1: 30.0, 2: 13.0, 3: 50.0, 4: 12.0})
    number = table_of("errorperc", [entry], done).lines[0].numbers["paper"]["error"]

    assert number.printed is not None
    assert (number.printed.text, number.found.value) == ("13.9", 14.0)
    assert (number.found.low, number.found.high) == (12.0, 50.0)
    assert (number.agrees, number.seeds_that_agree) == (True, 3)


def test_claims_use_the_line_that_decides() -> None:
    entry, done = played({0: 14.0})
    other, more = played({1: 20.0})
    table = table_of("errorperc", [entry, other._replace(line="other", decides=False)], done | more)

    assert figures_of([table], "paper") == {("errorperc", "CoS", "0.5", "error"): 14.0}
    assert figures_of([table], "spec") == {}


def test_the_logarithm_of_src_bytes_can_replace_src_bytes() -> None:
    entry, done = played({0: 14.0})
    start = ("sim_results", "CoS", "Z1", "S1")
    logged = entry._replace(keys={"error": (*start, "A2 log", "error")})
    table = table_of("sim_results", [logged], done)

    assert (*start, "A2", "error") not in figures_of([table], "paper")
    assert figures_of([table], "paper", is_log=True)[*start, "A2", "error"] == 14.0


def test_every_printed_number_has_an_entry() -> None:
    looked_for = {printed_key(key) for entry in ENTRIES for key in entry.keys.values()}

    assert [key for key in PRINTED if key[0] != "par_setup" and key not in looked_for] == []
    assert list(REMARKS.table) == list(NAMES)
    assert set(PLANS) == set(TABLES) - {"par_setup"}


@pytest.mark.parametrize("reading", ["paper", "spec"])
def test_every_claim_finds_its_figures_in_every_reading(reading: str) -> None:
    there = {
        key
        for entry in [*ENTRIES, *BEYOND["horizon"]()]
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


def test_a_mismatch_is_marked_and_its_reason_is_listed() -> None:
    entry, done = played({0: 14.0})
    other, more = played({1: 30.0, 2: 14.0, 3: 31.0})
    table = table_of("errorperc", [entry, other._replace(line="DCZA, other")], done | more)
    grid, count, reasons = table_blocks(table)

    assert isinstance(grid, Grid)
    assert [row[3] for row in grid.rows] == ["**14.00**", "30.00 ≠a [14.00, 31.00]"]
    assert count == Paragraph("`paper`: 1 of 2 printed numbers match.")
    assert isinstance(reasons, BulletList)
    assert reasons.lines[0].startswith(
        "≠a does not match (1 in `paper`): No reading that was tried gives"
    )
    assert "DCZA, other, error in `paper` with 1 of 3" in reasons.lines[0]


@pytest.mark.parametrize(
    ("named", "pattern", "problem"),
    [
        (["one", "unknown"], "x", "reason 'unknown' is not defined"),
        ([], "x", "reason 'one' belongs to no table"),
        (["one"], "(", "reason 'one': bad pattern"),
    ],
)
def test_remarks_with_a_bad_reason_are_rejected(
    named: list[str], pattern: str, problem: str
) -> None:
    remarks = Remarks(
        table={"t": TableRemark("T", "Text.", named)}, reason={"one": MismatchReason(pattern, "W.")}
    )

    with pytest.raises(DataError, match=problem):
        checked_remarks(remarks)


def test_every_other_window_has_every_table_of_the_paper() -> None:
    windows = [trial._replace(name=f"{trial.name} from row 9", start=9) for trial in paper_trials()]
    lines = [entry.line for entry in ELSEWHERE["further"](windows) if entry.reading != "yardsticks"]
    there = {line.removeprefix("from row 9, ").partition(":")[0] for line in lines}

    assert there == set(TABLES) - {"par_setup", "nlearn"}
    cases = [case for entry in ELSEWHERE["further"](windows) for case in entry.cases]
    assert {case.trial for case in cases} == {trial.name for trial in windows}


def test_a_figure_is_a_standalone_file_beside_the_report() -> None:
    figure = ReportFigure('<svg style="max-width: 9px"></svg>', "A curve", "callcost CoS, price")
    sections = [Section("", [Paragraph("first"), figure])]

    assert figure.file == "figures/callcost-cos-price.svg"
    assert 'style="background: #fff; font-family: sans-serif; max-width' in figure.standalone
    assert f"![A curve]({figure.file})" in markdown("T", sections)
    assert figures_in(sections) == [figure]


def test_a_report_has_the_same_blocks_in_markdown_and_html() -> None:
    blocks = [
        Paragraph("a < `b`"),
        BulletList(["one", "**two**"]),
        Grid(["", "x"], [["name", "1 & 2"]]),
    ]
    sections = [Section("", [Paragraph("first")]), Section("Then", blocks)]

    assert markdown("T", sections) == (
        "# T\n\nfirst\n\n## Then\n\na < `b`\n\n- one\n- **two**\n\n"
        "|   | x |\n| --- | --- |\n| name | 1 & 2 |\n"
    )
    page = html("T", sections)
    assert "<p>a &lt; <code>b</code></p>" in page
    assert "<li><b>two</b></li>" in page
    assert '<th scope="row">name</th><td>1 &amp; 2</td>' in page


def test_lines_quoted_in_the_documents_are_in_the_generated_report() -> None:
    report = (ROOT / "experiments" / "paper" / "README.md").read_text().splitlines()
    page = (ROOT / "docs" / "research" / "paper.md").read_text()
    quoted = page[page.index("## Which numbers match") :].splitlines()
    lines = [line for line in quoted if re.match(r"\||- Goal|Claims of the text", line)]

    assert len(lines) > 30
    assert [line for line in lines if line not in report] == []
