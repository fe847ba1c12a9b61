"""Tables of found and printed numbers, their entries and remarks, and the blocks of the report."""

import re

import pytest

from reproduction.claims import CLAIMS, keys_of
from reproduction.data import PRINTED, TABLES
from reproduction.experiments import Case, CaseResult
from reproduction.findings import table_of
from reproduction.report import (
    REMARKS,
    BulletList,
    Grid,
    Paragraph,
    table_blocks,
)
from reproduction.tables import BEYOND, NAMES, PLANS, TableEntry, printed_key
from support.required import ROOT

ENTRIES = [entry for make in PLANS.values() for entry in make()]


def played(numbers: dict[int, float]) -> tuple[TableEntry, dict[str, CaseResult]]:
    """Return an entry of a printed error with these errors, by seed."""
    cases = tuple(Case(trial="S2", seed=seed) for seed in numbers)
    keys = {"error": ("errorperc", "CoS", "0.5", "error")}
    entry = TableEntry("errorperc", "a line", "paper", keys, cases)
    done = {case.key(): CaseResult(case, {"error": numbers[case.seed]}) for case in cases}
    return entry, done


def test_a_number_is_the_median_of_its_seeds_and_counts_those_that_match() -> None:
    entry, done = played({0: 14.0, 1: 30.0, 2: 13.0, 3: 50.0, 4: 12.0})
    number = table_of("errorperc", [entry], done).lines[0].numbers["paper"]["error"]

    assert number.printed is not None
    assert (number.printed.text, number.found.value) == ("13.9", 14.0)
    assert (number.found.low, number.found.high) == (12.0, 50.0)
    assert (number.agrees, number.seeds_that_agree) == (True, 3)


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


def test_lines_quoted_in_the_documents_are_in_the_generated_report() -> None:
    report = (ROOT / "experiments" / "paper" / "README.md").read_text().splitlines()
    page = (ROOT / "docs" / "research" / "paper.md").read_text()
    quoted = page[page.index("## Which numbers match") :].splitlines()
    lines = [line for line in quoted if re.match(r"\||- Goal|Claims of the text", line)]

    assert len(lines) > 20
    assert [line for line in lines if line not in report] == []
