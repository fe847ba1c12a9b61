"""A reproduction as files, and as text for a terminal."""

from pathlib import Path

import msgspec

from covey import files, terminal
from covey.papers import document, grids, story
from covey.papers.entries import HERE, READINGS
from covey.papers.goals import Goal, goals
from covey.papers.reproduction import Reproduced
from covey.papers.running import TITLE


def write(found: Reproduced, folder: Path) -> Path:
    """Write README.md, report.html, figures and summary.json to the folder; return the page.

    Raises `MissingExtra` if matplotlib is not installed.
    """
    sections = story.sections(found, is_drawn=True)
    for drawing in document.drawings(sections):
        path = folder / drawing.file
        path.parent.mkdir(exist_ok=True)
        files.replace(path, drawing.alone.encode())
    page = folder / "report.html"
    files.replace(page, document.html(TITLE, sections).encode())
    files.replace(folder / "README.md", document.markdown(TITLE, sections).encode())
    numbers = msgspec.json.format(msgspec.json.encode(summary(found)), indent=2)
    files.replace(folder / "summary.json", numbers + b"\n")
    return page


def summary(found: Reproduced) -> dict[str, object]:
    """Return every number, verdict and goal, ready for JSON."""
    judged = story.verdicts(found)
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
        "goals": {name: [goal._asdict() for goal in group] for name, group in _goals(found)},
        "left out": found.left_out,
    }


def text(found: Reproduced) -> str:
    """Return what came out, in a few lines for a terminal."""
    readings = (HERE, *READINGS[:2])
    rows: list[tuple[str, ...]] = [("printed numbers that come out", *readings)]
    for name, table in found.tables.items():
        counts = [grids.agreement(table, reading) for reading in readings]
        rows.append((name, *(f"{near} of {all_}" if all_ else "" for near, all_ in counts)))
    met = [
        f"{name}: {sum(goal.is_met for goal in group)} of {len(group)} goals met."
        for name, group in _goals(found)
    ]
    claims = f"Claims of the paper's text: {story.counted(story.verdicts(found)['together'])}."
    return "\n".join([terminal.table(rows), "", *met, claims, *found.left_out]) + "\n"


def _goals(found: Reproduced) -> list[tuple[str, list[Goal]]]:
    return list(goals(found.tables).items())
