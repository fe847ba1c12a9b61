"""What the documents say is run: their Python, their commands, the examples in docstrings."""

import doctest
import importlib
import re
import shlex
from pathlib import Path

import msgspec
import pytest

from covey import cli, config
from covey.bandit import policies
from support.required import ROOT

pytestmark = pytest.mark.beside_the_kernel

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")])
MARKDOWN = sorted(
    {
        *PAGES,
        *ROOT.glob("*.md"),
        *(
            page
            for folder in ("benchmarks", "examples", "experiments")
            for page in (ROOT / folder).glob("**/*.md")
        ),
    }
)
MODULES = [
    "bandit.bounds",
    "bandit.ensemble",
    "bandit.links",
    "bandit.partitions",
    "bandit.policies",
    "bandit.smoothness",
    "node.network",
    "replay.baselines",
    "report.results",
    "server.certificates",
    "simulation.comparison",
    "simulation.environment",
    "simulation.world",
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_pages_with_code() -> None:
    assert sum(bool(blocks(page, "python")) for page in PAGES) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)  # noqa: S102 - our own documents


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_succeed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines `$ covey ...` of console blocks, in the folder that the demo makes."""
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    commands = [line[8:] for line in lines if line.startswith("$ covey ")]
    if commands:
        assert cli.main(["demo", "--out", ".", "--slots", "2000", "--quiet"]) == 0
    for command in commands:
        assert cli.main(shlex.split(command.split("|")[0])) == 0


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"covey.{name}"))

    assert (result.attempted > 0, result.failed) == (True, 0)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as a host of Markdown makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def resolves(link: str, anchor: str, page: Path) -> bool:
    target = page.parent / link if link else page
    return target.exists() and (not anchor or anchor in anchors(target))


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_resolves(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text)

    assert [link for link in links if not resolves(*link, page)] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    folders = ["guide", "operations", "reference", "research"]
    pages = [page for folder in folders for page in (ROOT / "docs" / folder).glob("*.md")]

    assert len(pages) > 25
    assert [p.name for p in pages if f"({p.parent.name}/{p.name})" not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lines_of_prose_are_at_most_120_characters(page: Path) -> None:
    text = re.sub(r"<!-- \w+: begin -->.*?end -->", "", page.read_text(), flags=re.DOTALL)
    prose = [line for line in text.splitlines() if not line.startswith("|")]

    assert [line for line in prose if len(line) > 120] == []


def test_every_key_of_the_configuration_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    kinds = (config.Data, config.LearnerTable, policies.Settings, policies.Reading)
    keys = [field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)]

    assert len(keys) > 40
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_every_preset_is_in_one_of_the_two_tables_of_presets() -> None:
    page = (ROOT / "docs" / "guide" / "policies.md").read_text()
    stable, experimental = page.split("\n## ")[0].split("\n### Experimental presets\n")

    def presets(text: str) -> list[str]:
        return re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)

    assert sorted(presets(experimental)) == sorted(policies.EXPERIMENTAL)
    assert sorted(presets(stable)) == sorted(set(policies.PRESETS) - set(policies.EXPERIMENTAL))
