"""What the documents say is run: their Python, their commands, the examples in docstrings."""

import doctest
import importlib
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import msgspec
import pytest

from covey import cli, config
from covey.bandit import policies
from support.required import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")])
FOLDERS = ("benchmarks", "examples", "experiments")
MEASURED = [page for folder in FOLDERS for page in (ROOT / folder).glob("**/*.md")]
MARKDOWN = sorted({*PAGES, *ROOT.glob("*.md"), *MEASURED})
OF_SCENARIOS = ("name", "context", "candidates")  # keys of a [[policy]] that are not the policy's
MODULES = [
    "bandit.bounds",
    "bandit.ensemble",
    "bandit.links",
    "bandit.partitions",
    "bandit.policies",
    "network.network",
    "replay.baselines",
    "report.results",
    "server.keys",
    "simulation.comparison",
    "simulation.environment",
    "simulation.world",
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


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
    commands = re.findall(r"^\$ covey (.*)$", "".join(blocks(page, "console")), re.MULTILINE)
    if commands:
        assert cli.main(["demo", "--out", ".", "--slots", "2000", "--quiet"]) == 0
    for command in commands:
        assert cli.main(shlex.split(command.split("|")[0])) == 0


def test_the_readme_shows_what_a_replay_of_the_demo_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--out", ".", "--quiet"]) == 0
    capsys.readouterr()
    (command,) = blocks(ROOT / "README.md", "console")
    assert cli.main(shlex.split(command.removeprefix("$ covey "))) == 0

    (shown,) = blocks(ROOT / "README.md", "text")
    assert shown in capsys.readouterr().out


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


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_policy_of_a_page_is_accepted(page: Path) -> None:
    for block in blocks(page, "toml"):
        found = tomllib.loads(block).get("policy", [])
        for table in found if isinstance(found, list) else [found]:
            policies.policy_from({key: table[key] for key in table if key not in OF_SCENARIOS})


def test_the_page_of_keys_is_that_of_the_records() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_policy_keys.py"))

    assert made["page"]() == made["PAGE"].read_text(encoding="utf-8")


def test_every_key_of_the_configuration_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    kinds = (config.Data, config.LearnerTable, *policies.RECORDS.values())
    keys = [field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)]

    assert len(keys) > 40
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_the_table_of_extensions_names_the_keys_that_presets_refuse() -> None:
    played = tomllib.loads((ROOT / "tests/golden/configurations.toml").read_text())["extensions"]
    refused = {pair for part in played.values() for pair in part.get("refused", {}).items()}
    page = (ROOT / "docs" / "reference" / "extensions.md").read_text()
    rows = [row.split(" | ")[2:5] for row in page.splitlines() if row.startswith("| ")]
    cells = [pair for row in rows for pair in zip(("auto", "cos", "dcza"), row, strict=True)]

    assert {(name, cell.split("`")[1]) for name, cell in cells if "no `" in cell} == refused


def test_every_preset_is_in_the_table_of_presets() -> None:
    page = (ROOT / "docs" / "guide" / "policies.md").read_text().split("\n## ")[0]

    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == list(policies.PRESETS)
