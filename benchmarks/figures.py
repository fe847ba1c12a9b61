"""What a measurement found, as a table for the terminal and as Markdown."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

HEAD = ("figure", "candidate", "best", "median", "ratio", "note")


class Row(NamedTuple):
    """One candidate: its best round, and how far the median lies above it."""

    candidate: str
    value: float | None  # None: it was not measured, the note says why
    unit: str = ""
    over_best: float | None = None  # as a share
    ratio: float | None = None  # to the row that the figure compares with
    note: str = ""


class Verdict(NamedTuple):
    """A goal, and whether it is reached; None: it could not be measured."""

    is_reached: bool | None
    sentence: str

    def __str__(self) -> str:
        word = {True: "Reached", False: "Missed", None: "Not measured"}[self.is_reached]
        return f"{word}: {self.sentence}"


class Figure(NamedTuple):
    """One of the figures to reach, measured."""

    name: str
    title: str
    method: str
    rows: Sequence[Row]
    verdicts: Sequence[Verdict]


def skipped(name: str, title: str, why: str) -> Figure:
    """Return a figure that could not be measured."""
    return Figure(name, title, "", [Row("skipped", None, note=why)], [Verdict(None, why + ".")])


def table(figures: Iterable[Figure]) -> str:
    """Return all rows as one aligned table, the verdicts below it."""
    figures = list(figures)
    cells = [HEAD, *((figure.name, *_cells(row)) for figure in figures for row in figure.rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(HEAD))]
    lines = [_aligned(line, widths) for line in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    verdicts = [f"{figure.name}: {verdict}" for figure in figures for verdict in figure.verdicts]
    return "\n".join([*lines, "", *verdicts])


def markdown(figures: Iterable[Figure], *, command: str, setting: str) -> str:
    """Return the page of results; `command` is what made it, `setting` where it ran."""
    parts = ["# Measured speed and memory", f"Made by `{command}`; do not edit by hand.", setting]
    for figure in figures:
        parts += [f"## {figure.title}", *(f"**{verdict}**" for verdict in figure.verdicts)]
        parts += [figure.method] if figure.method else []
        parts.append(_markdown_table(figure.rows))
    return "\n\n".join(parts) + "\n"


def short(value: float) -> str:
    """Return a number with three digits that matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.candidate,
        "-" if row.value is None else f"{short(row.value)} {row.unit}",
        "" if row.over_best is None else f"{100 * row.over_best:+.0f} %",
        "" if row.ratio is None else f"{short(row.ratio)}x",
        row.note,
    )


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    left = [text.ljust(width) for text, width in zip(line[:2], widths, strict=False)]
    right = [text.rjust(width) for text, width in zip(line[2:5], widths[2:], strict=False)]
    return "  ".join([*left, *right, line[5]]).rstrip()


def _markdown_table(rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(HEAD[1:]) + " |", "|---|--:|--:|--:|---|"]
    return "\n".join([*lines, *("| " + " | ".join(_cells(row)) + " |" for row in rows)])
