"""The table of extensions in the README: every cell names a test that exists, or a reason."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.beside_the_kernel

ROOT = Path(__file__).parents[2]
WAYS = ["replay", "simulate", "Network", "node"]
SHOWN = re.compile(r'\[Y\]\((tests/[\w/]+\.py) "(test_\w+)"\)')
MISSING = re.compile(r"· \((\d)\)")


def section() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split("## Extensions of the paper\n")[1].split("\n## ")[0]


def rows() -> list[list[str]]:
    lines = [line for line in section().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def cells() -> list[tuple[str, str, str]]:
    heading, _, *extensions = rows()
    return [
        (name, way, cell)
        for name, *shown in extensions
        for way, cell in zip(heading[1:], shown, strict=True)
    ]


def test_the_table_has_the_four_ways_to_run_a_network() -> None:
    assert rows()[0] == ["extension", *WAYS]
    assert len(rows()) - 2 == 26


@pytest.mark.parametrize(("name", "way", "cell"), cells())
def test_a_cell_names_a_test_that_exists_or_a_reason(name: str, way: str, cell: str) -> None:
    reason = MISSING.fullmatch(cell)
    if reason is not None:
        assert f"({reason[1]}) " in " ".join(section().split("· not there: ")[1].split())
        return
    shown = SHOWN.fullmatch(cell)

    assert shown is not None, (name, way, cell)
    source = (ROOT / shown[1]).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def {shown[2]}\(", source, re.MULTILINE), (name, way)
