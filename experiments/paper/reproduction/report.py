"""The report: tables, claims and goals as blocks; the blocks as Markdown, HTML, JSON and text.

Every number in it is computed. A number that does not match the printed one carries a letter; the
reasons are listed below the table under their letters.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import ascii_lowercase
from typing import NamedTuple

import msgspec

from covey.errors import DataError
from covey.files import replace
from covey.report import text as report_text
from covey.report.page import filled, markup
from covey.report.text import NONE, shorten
from reproduction.claims import CLAIMS, FRONT, Judgement, Verdict, judge, judge_across
from reproduction.data import PRINTED, TABLES, printed_figures, read_data
from reproduction.figures import ReportFigure, figures_of_table
from reproduction.findings import (
    COUNT_POINTS,
    COUNT_SHARE,
    ERROR_POINTS,
    ERROR_SHARE,
    Goal,
    PaperTable,
    TableLine,
    TableNumber,
    figures_of,
    goals,
    in_readings,
)
from reproduction.run import TITLE, Reproduction
from reproduction.tables import HERE, READINGS, SEEDS, YARDSTICKS


class Paragraph(NamedTuple):
    """A paragraph."""

    words: str


class BulletList(NamedTuple):
    """Short sentences, one below the other."""

    lines: Sequence[str]


class Grid(NamedTuple):
    """A table: headings, and rows of cells, the first of each its name."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = Paragraph | BulletList | Grid | ReportFigure


class Section(NamedTuple):
    """A heading and its blocks."""

    title: str
    blocks: Sequence[Block]


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the report; its figures are files beside it."""
    parts = [f"# {title}"]
    for section in sections:
        if section.title:
            parts.append(f"## {section.title}")
        parts += [_markdown(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def html(title: str, sections: Sequence[Section]) -> str:
    """Return the report as one page that loads nothing."""
    first, *others = sections
    head = f"<header><h1>{escape(title)}</h1>{_all_html(first.blocks)}</header>"
    body = [
        f"<section><h2>{escape(section.title)}</h2>{_all_html(section.blocks)}</section>"
        for section in others
    ]
    return filled("base", title=title, body=markup("\n".join([head, *body])))


def figures_in(sections: Sequence[Section]) -> list[ReportFigure]:
    """Return the figures of a report."""
    return [b for section in sections for b in section.blocks if isinstance(b, ReportFigure)]


def _markdown(block: Block) -> str:
    if isinstance(block, Paragraph):
        return block.words
    if isinstance(block, BulletList):
        return "\n".join(f"- {line}" for line in block.lines)
    if isinstance(block, ReportFigure):
        return f"![{block.caption}]({block.file})\n\n{block.caption}"
    lines = [block.headings, ["---"] * len(block.headings), *block.rows]
    return "\n".join("| " + " | ".join(cell or " " for cell in line) + " |" for line in lines)


def _all_html(blocks: Sequence[Block]) -> str:
    return "\n".join(_html(block) for block in blocks)


def _html(block: Block) -> str:
    if isinstance(block, Paragraph):
        return f"<p>{_html_inline(block.words)}</p>"
    if isinstance(block, BulletList):
        return "<ul>" + "".join(f"<li>{_html_inline(line)}</li>" for line in block.lines) + "</ul>"
    if isinstance(block, ReportFigure):
        return f'{block.svg}<p class="how">{_html_inline(block.caption)}</p>'
    head = "".join(f'<th scope="col">{_html_inline(cell)}</th>' for cell in block.headings)
    rows = "".join(f"<tr>{_cells(row)}</tr>" for row in block.rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cells(row: Sequence[str]) -> str:
    name, *numbers = row
    cells = "".join(f"<td>{_html_inline(cell)}</td>" for cell in numbers)
    return f'<th scope="row">{_html_inline(name)}</th>{cells}'


def _html_inline(words: str) -> str:
    """Return Markdown text with code and bold as HTML."""
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))
    return re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", words)


class TableRemark(msgspec.Struct, forbid_unknown_fields=True):
    """The title of a table, what was done for it, and the names of the reasons for mismatches."""

    title: str
    text: str
    reasons: list[str] = []


class MismatchReason(msgspec.Struct, forbid_unknown_fields=True):
    """Why some numbers of a table differ from the printed ones."""

    pattern: str  # of "reading: line, quantity"
    text: str


class Remarks(msgspec.Struct, forbid_unknown_fields=True):
    """The content of remarks.toml."""

    table: dict[str, TableRemark]
    reason: dict[str, MismatchReason]


def checked_remarks(remarks: Remarks) -> Remarks:
    """Return the remarks; raises `DataError` for a reason that is unknown, unused or no pattern."""
    named = {name for table in remarks.table.values() for name in table.reasons}
    if odd := sorted(named ^ remarks.reason.keys()):
        problem = "is not defined" if odd[0] in named else "belongs to no table"
        raise DataError(f"remarks.toml: reason {odd[0]!r} {problem}")
    for name, reason in remarks.reason.items():
        try:
            re.compile(reason.pattern)
        except re.error as error:
            raise DataError(f"remarks.toml: reason {name!r}: bad pattern: {error}") from None
    return remarks


REMARKS = checked_remarks(read_data("remarks.toml", Remarks))


def sums_of_training() -> tuple[float, float]:
    """Return the sum of training in `callcost`, and the number of `sim_results` for that run."""
    split = sum(PRINTED["callcost", "0", "training", peer].value for peer in "234")
    return split, PRINTED["sim_results", "CoS", "Z1", "S2", "A1", "training"].value


def reason(table: str, name: str) -> str:
    """Return why a number does not match, by the first reason that fits "reading: line, quantity".

    >>> reason("errorperc", "paper: CoS, 1 of the labels, error")
    'No reason is known.'
    """
    reasons = (REMARKS.reason[one] for one in REMARKS.table[table].reasons)
    fitting = (one.text for one in reasons if re.search(one.pattern, name))
    return next(fitting, "No reason is known.")


JUDGED = (HERE, *READINGS[:2])  # the default policy is not expected to match
UNLIKE = "≠"


class Mismatch(NamedTuple):
    """A number that does not match the printed one, and the reason if one is known."""

    line: str
    reading: str
    quantity: str
    number: TableNumber
    reason: str


def table_blocks(table: PaperTable) -> list[Block]:
    """Return the table, the count of matching numbers, and the reasons for the others."""
    missed = list(_missed(table))
    letters = _letters(missed)
    marks = {(m.line, m.reading, m.quantity): UNLIKE + letters[m.reason] for m in missed}
    return [_grid(table, marks), *_agreement(table), *_reasons(missed, letters)]


def yardstick_blocks(table: PaperTable) -> list[Block]:
    """Return the table of methods that need no learning, if there is one."""
    if not table.yardsticks:
        return []
    rows = [
        [line.name, *(_number(line.numbers["yardsticks"][name]) for name in YARDSTICKS)]
        for line in table.yardsticks
    ]
    headings = ["without learning", "previous label", "win-stay, lose-shift"]
    return [Grid([*headings, "best single function"], rows)]


def agreement(table: PaperTable, reading: str) -> tuple[int, int]:
    """Return how many numbers of a reading match the printed ones, and how many are printed."""
    numbers = [
        number
        for line in table.lines
        for number in line.numbers.get(reading, {}).values()
        if number.printed is not None
    ]
    return sum(bool(number.agrees) for number in numbers), len(numbers)


def _missed(table: PaperTable) -> Iterator[Mismatch]:
    for line in table.lines:
        for reading in JUDGED:
            for quantity, number in line.numbers.get(reading, {}).items():
                if number.agrees is False:
                    why = reason(table.name, f"{reading}: {line.name}, {quantity}")
                    yield Mismatch(line.name, reading, quantity, number, why)


def _letters(missed: list[Mismatch]) -> dict[str, str]:
    """Return a letter for each reason, in the order in which a reader meets them."""
    return dict(zip(dict.fromkeys(miss.reason for miss in missed), ascii_lowercase, strict=False))


def _grid(table: PaperTable, marks: Mapping[tuple[str, str, str], str]) -> Grid:
    readings = [r for r in (HERE, *READINGS) if any(r in line.numbers for line in table.lines)]
    has_printed = any(agreement(table, reading)[1] for reading in readings)
    has_helper = any(_helper(line) for line in table.lines)
    headings = [""] + ["helper"] * has_helper + ["printed"] * has_printed + readings
    rows = [
        [
            line.name,
            *([_helper(line)] * has_helper),
            *([_printed(line)] * has_printed),
            *(_cell(line, reading, marks) for reading in readings),
        ]
        for line in table.lines
    ]
    return Grid(headings, rows)


def _helper(line: TableLine) -> str:
    return line.helpers.get(in_readings(line)[0], "")


def _printed(line: TableLine) -> str:
    numbers = line.numbers[in_readings(line)[0]].values()
    texts = [NONE if number.printed is None else number.printed.text for number in numbers]
    return " / ".join(texts) if any(text != NONE for text in texts) else NONE


def _cell(line: TableLine, reading: str, marks: Mapping[tuple[str, str, str], str]) -> str:
    """Return the numbers of a reading; the range is that of the first of them, the error."""
    return " / ".join(
        _number(
            number,
            has_range=place == 0,
            is_judged=reading in JUDGED,
            mark=marks.get((line.name, reading, quantity), ""),
        )
        for place, (quantity, number) in enumerate(line.numbers.get(reading, {}).items())
    )


def _number(
    number: TableNumber, *, has_range: bool = True, is_judged: bool = True, mark: str = ""
) -> str:
    spread = number.found
    text = f"{spread.value:.4g}" if number.key[0] == "par_setup" else f"{spread.value:.2f}"
    if is_judged and number.agrees:
        text = f"**{text}**"
    is_wide = f"{spread.low:.2f}" != f"{spread.high:.2f}"
    bounds = f" [{spread.low:.2f}, {spread.high:.2f}]" if has_range and is_wide else ""
    return text + (f" {mark}" if mark else "") + bounds


def _agreement(table: PaperTable) -> list[Block]:
    counts = {reading: agreement(table, reading) for reading in JUDGED}
    counted_readings = [
        f"`{reading}`: {near} of {there} printed numbers match."
        for reading, (near, there) in counts.items()
        if there
    ]
    return [Paragraph(" ".join(counted_readings))] if counted_readings else []


def _reasons(missed: list[Mismatch], letters: Mapping[str, str]) -> list[Block]:
    """List for each letter the reason, the count, and the seeds for which a number matches."""
    items = []
    for words, letter in letters.items():
        those = [miss for miss in missed if miss.reason == words]
        counts = Counter(miss.reading for miss in those)
        often = ", ".join(f"{count} in `{reading}`" for reading, count in counts.items())
        items.append(f"{UNLIKE}{letter} does not match ({often}): {words}{_by_seeds(those)}")
    return [BulletList(items)] if items else []


def _by_seeds(missed: list[Mismatch]) -> str:
    near = [
        f"{miss.line}, {miss.quantity} in `{miss.reading}` with {miss.number.seeds_that_agree} of "
        f"{len(miss.number.found.values)}"
        for miss in missed
        if miss.number.seeds_that_agree
    ]
    return f" Matches for some seeds: {'; '.join(near)}." if near else ""


COMMAND = "make paper DATA=FOLDER"
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "depends", "undecided")
_LETTERS = 300  # of what a verdict depends on


def sections(found: Reproduction, *, is_drawn: bool) -> list[Section]:
    """Return the report; figures need matplotlib, so they can be left out."""
    tables = found.tables.values()
    return [
        _front(found),
        _opening(found),
        *(_table(one, figures_of_table(one, found.results) if is_drawn else []) for one in tables),
        _claims(found),
        _goals(found),
    ]


def verdicts(found: Reproduction) -> dict[str, list[Judgement]]:
    """Return what the printed figures and those of each reading say of the claims.

    `together` is what all readings say, each with src_bytes as it is and with its logarithm.
    """
    tables = found.tables.values()
    readings = {
        f"{reading}{', log' if is_log else ''}": figures_of(tables, reading, is_log=is_log)
        for reading in ("paper", "spec")
        for is_log in (False, True)
    }
    return {
        "printed": [judge(claim, printed_figures()) for claim in CLAIMS],
        "paper": [judge(claim, readings["paper"]) for claim in CLAIMS],
        "spec": [judge(claim, readings["spec"]) for claim in CLAIMS],
        "together": [judge_across(claim, readings) for claim in CLAIMS],
    }


def counted(findings: Sequence[Judgement]) -> str:
    """Return how many claims have which verdict."""
    counts = Counter(finding.verdict for finding in findings)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def _opening(found: Reproduction) -> Section:
    made = ", ".join(f"{name} {_short(value)}" for name, value in found.identity.items())
    rows = [
        [REMARKS.table[name].title, *(_of(table, reading) for reading in (HERE, *READINGS[:2]))]
        for name, table in found.tables.items()
        if name in TABLES
    ]
    blocks: list[Block] = [
        Paragraph(
            f"{_both_counts(found)} Generated by `{COMMAND}`; do not edit. Made with {made}. The "
            "same command writes `report.html`, the same report as a page."
        ),
        Paragraph(
            "The paper is C. Tekin and M. van der Schaar, Decentralized Online Big Data "
            "Classification - a Bandit Framework (arXiv 1308.4565). Numbers are of learner 1, in "
            "percent of the slots. `paper` is the reading of the algorithm that the printed tables "
            "fit, found by comparing readings with them; `spec` is the algorithm as published; "
            "`default` is covey's own policy, `auto`, on the same data. "
            f"If functions or labels are random, a number is the median of {SEEDS} seeds, and "
            "brackets hold their range. The helper of a row is the rule by which a peer that is "
            "asked chooses, in `paper` and `spec`; in `default` the peer chooses by its index."
        ),
        Paragraph(
            f"**Bold** matches the printed number: an error within {ERROR_POINTS} points or "
            f"{100 * ERROR_SHARE:.0f} %, a count within {COUNT_POINTS} points or "
            f"{100 * COUNT_SHARE:.0f} %. {UNLIKE} does not match; the letter after it "
            "names the reason below the table, where one is known. Lines that read the same "
            "printed number in two ways count twice."
        ),
        Grid(["printed numbers that match", HERE, "paper", "spec"], rows),
        Paragraph(
            f"Claims of the text, all readings together: {counted(verdicts(found)['together'])}."
        ),
        BulletList(_met(found)),
    ]
    blocks += [Paragraph(sentence) for sentence in found.left_out]
    return Section("All numbers", blocks)


def _front(found: Reproduction) -> Section:
    """Return the page in ten rows: what the paper claims, whether it holds, and by how much."""
    judged = verdicts(found)
    rows = [
        [claim.text, judged["together"][place].verdict]
        + [judged[name][place].closest for name in ("printed", "paper", "spec")]
        for name in FRONT
        for place, claim in enumerate(CLAIMS)
        if claim.name == name
    ]
    blocks: list[Block] = [
        Grid(["what the paper claims", "does it hold", "as printed", "`paper`", "`spec`"], rows),
        Paragraph(
            "A claim is a comparison, the smaller number first; where it has several, the row "
            "shows the one that is nearest to fail, or fails most. A claim holds if it does so in "
            "both readings, with src_bytes as it is and with its logarithm. `paper` and `spec` are "
            "readings of the algorithm, explained below, where all claims and numbers are."
        ),
    ]
    return Section("", blocks)


def _both_counts(found: Reproduction) -> str:
    """Return how many printed numbers come out: of all, and of those listed as goals."""
    pairs = [agreement(one, "paper") for name, one in found.tables.items() if name in TABLES]
    near, there = sum(one for one, _ in pairs), sum(one for _, one in pairs)
    listed = [
        goal
        for name, group in goals(found.tables).items()
        if "`paper` mode" in name
        for goal in group
    ]
    met = sum(goal.is_met for goal in listed)
    return (
        f"In `paper` mode {near} of {there} printed numbers come out within the tolerance below. "
        f"Of the {len(listed)} that are listed as goals, {met} do; that list was chosen, and "
        "leaves out the errors of DCZA and the context src_bytes."
    )


def _of(table: PaperTable, reading: str) -> str:
    near, there = agreement(table, reading)
    return f"{near} of {there}" if there else ""


def _met(found: Reproduction) -> list[str]:
    return [
        f"Goal, {name}: {sum(goal.is_met for goal in group)} of {len(group)} met."
        for name, group in goals(found.tables).items()
    ]


def _table(table: PaperTable, drawn: Sequence[ReportFigure]) -> Section:
    about = REMARKS.table[table.name]
    blocks: list[Block] = [Paragraph(about.text), *table_blocks(table)]
    if table.name == "callcost":
        split, whole = sums_of_training()
        blocks.append(
            Paragraph(f"Training as printed: {split:.2f} here, {whole:.2f} in sim_results.")
        )
    return Section(about.title, [*blocks, *drawn, *yardstick_blocks(table)])


def _claims(found: Reproduction) -> Section:
    judged = verdicts(found)
    rows = [
        [
            f"{claim.text} ({claim.section}, line {claim.line})",
            *(judged[name][place].verdict for name in judged),
            shorten(judged["together"][place].on, _LETTERS),
        ]
        for place, claim in enumerate(CLAIMS)
    ]
    blocks: list[Block] = [
        Paragraph(
            "The statements of the paper's text about its figures, as comparisons, with the line "
            "of its LaTeX source: whether the printed figures confirm them, and whether the "
            "figures found here do. If instances arrive at learner 1 only, `paper` uses greedy "
            "helpers; if peers see the context only, it uses peers that lock in. `spec` uses "
            "neither. Together: both readings, with src_bytes as it is and with its logarithm."
        ),
        BulletList([f"{name}: {counted(findings)}." for name, findings in judged.items()]),
        Grid(["claim", *judged, "what it depends on"], rows),
    ]
    return Section("The claims of the paper", blocks)


def _goals(found: Reproduction) -> Section:
    blocks: list[Block] = []
    for name, group in goals(found.tables).items():
        blocks.append(
            Paragraph(f"{name}: {sum(goal.is_met for goal in group)} of {len(group)} met.")
        )
        rows = [[goal.name, goal.wanted, f"{goal.found:.2f}", _met_or_not(goal)] for goal in group]
        blocks.append(Grid(["goal", "wanted", "found", "met"], rows))
    return Section("The goals of covey", blocks)


def _met_or_not(goal: Goal) -> str:
    return ("yes" if goal.is_met else "**no**") + (f" ({goal.note})" if goal.note else "")


def _short(value: str) -> str:
    return value[:8] if len(value) > 16 else value


def write(found: Reproduction, folder: Path) -> Path:
    """Write README.md, report.html, figures and summary.json to the folder; return the page.

    Raises `MissingExtra` if matplotlib is not installed.
    """
    content = sections(found, is_drawn=True)
    for figure in figures_in(content):
        path = folder / figure.file
        path.parent.mkdir(exist_ok=True)
        replace(path, figure.standalone.encode())
    page = folder / "report.html"
    replace(page, html(TITLE, content).encode())
    replace(folder / "README.md", markdown(TITLE, content).encode())
    numbers = msgspec.json.format(msgspec.json.encode(summary(found)), indent=2)
    replace(folder / "summary.json", numbers + b"\n")
    return page


def summary(found: Reproduction) -> dict[str, object]:
    """Return every number, verdict and goal, ready for JSON."""
    judged, groups = verdicts(found), goals(found.tables)
    return {
        "identity": found.identity,
        "tables": {
            table.name: [
                {
                    "line": line.name,
                    "reading": reading,
                    "quantity": quantity,
                    "printed": None if number.printed is None else number.printed.value,
                    "found": number.found.value,
                    "low": number.found.low,
                    "high": number.found.high,
                    "agrees": number.agrees,
                }
                for line in [*table.lines, *table.yardsticks]
                for reading, numbers in line.numbers.items()
                for quantity, number in numbers.items()
            ]
            for table in found.tables.values()
        },
        "claims": {
            finding.claim.name: {name: judged[name][place].verdict for name in judged}
            for place, finding in enumerate(judged["together"])
        },
        "goals": {name: [goal._asdict() for goal in group] for name, group in groups.items()},
        "left out": found.left_out,
    }


def text(found: Reproduction) -> str:
    """Return the counts in a few lines for a terminal."""
    readings = (HERE, *READINGS[:2])
    rows: list[tuple[str, ...]] = [("printed numbers that match", *readings)]
    for name, table in found.tables.items():
        counts = [agreement(table, reading) for reading in readings]
        rows.append((name, *(f"{near} of {all_}" if all_ else "" for near, all_ in counts)))
    met = [
        f"{name}: {sum(goal.is_met for goal in group)} of {len(group)} goals met."
        for name, group in goals(found.tables).items()
    ]
    claims = f"Claims of the paper's text: {counted(verdicts(found)['together'])}."
    return "\n".join([report_text.table(rows), "", *met, claims, *found.left_out]) + "\n"
