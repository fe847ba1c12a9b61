"""Builds the documentation as a site, with warnings as errors: `make site`.

Pages lie in several folders of the project and link to each other and to sources. They are copied
with all that they link to, at their places, so that every link of a page is one of the site too.
"""

import logging
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import covey

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
FOLDERS = ("docs", "benchmarks", "experiments", "examples", "deploy")
LINK = re.compile(r"\]\(([^)#\s]+)")
KATEX = "katex@0.19.1"  # in the npm registry
SHOWN = re.compile(
    r"package/dist/(katex\.min\.(css|js)|contrib/auto-render\.min\.js|fonts/.*woff2)"
)
SCRIPT = r"""
const delimiters = [
  { left: "\\(", right: "\\)", display: false },
  { left: "\\[", right: "\\]", display: true },
];
addEventListener("DOMContentLoaded", () => {
  for (const math of document.querySelectorAll(".arithmatex")) {
    renderMathInElement(math, { delimiters });
  }
});
"""
PACKAGES = {"replay": "covey.report.results"}  # names that are packages, too


def main() -> None:
    """Copy the pages and build the site; exit with 1 on the first warning."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    pages = sorted(found for found in _pages() if "runs" not in found.parts)
    shutil.rmtree(PAGES, ignore_errors=True)
    for page in pages:
        _copy(page)
        for linked in _linked(page):
            _copy(linked)
    with (PAGES / "docs" / "reference" / "python-api.md").open("a") as page:
        page.write(signatures())
    config = str(ROOT / "docs" / "mkdocs.yml")
    build(load_config(config, strict=True, nav=_navigation(), **_katex(PAGES / "katex")))
    sys.stderr.write(f"{SITE / 'index.html'}: {len(pages)} pages\n")


def _katex(folder: Path) -> dict[str, list[str]]:
    """Put what typesets formulas into the site; without npm, pages show them as TeX."""
    npm = shutil.which("npm")
    with tempfile.TemporaryDirectory() as place:
        got = npm and subprocess.run(  # noqa: S603
            [npm, "pack", "--silent", "--fetch-retries=0", "--fetch-timeout=20000", KATEX],
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
        )
        if not got or got.returncode:
            sys.stderr.write(f"npm cannot get {KATEX}: formulas are shown as TeX\n")
            return {}
        with tarfile.open(next(Path(place).glob("*.tgz"))) as packed:
            members = [one for one in packed.getmembers() if SHOWN.fullmatch(one.name)]
            packed.extractall(place, members, filter="data")
        shutil.copytree(Path(place) / "package" / "dist", folder)
    (folder / "render.js").write_text(SCRIPT)
    scripts = ("katex.min.js", "contrib/auto-render.min.js", "render.js")
    return {
        "extra_css": ["katex/katex.min.css"],
        "extra_javascript": [f"katex/{name}" for name in scripts],
    }


def signatures() -> str:
    """Return the section with the signature and description of every public name."""
    names = [name for name in dir(covey) if not name.startswith("__")]
    listed = [f"::: {PACKAGES.get(name, 'covey')}.{name}\n" for name in names]
    return "\n".join(["\n## Signatures\n", *listed])


def _navigation() -> list[str | dict[str, Any]]:
    """Return the sections of the site: those of the index, with the pages that it lists."""
    index = (ROOT / "docs" / "README.md").read_text()
    sections: list[str | dict[str, Any]] = [
        {"covey": "README.md"},
        {"Tutorial": "docs/tutorial.md"},
        {"Notebook": "examples/notebooks/first-steps.ipynb"},
        {"Gallery": "docs/gallery.md"},
    ]
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        listed = re.findall(r"^\| \[([^\]]+)\]\(([^)]+\.md)\)", section, re.MULTILINE)
        if not listed:
            folder = ROOT / "docs" / title.lower()
            listed = [("", f"{title.lower()}/{page.name}") for page in sorted(folder.glob("*.md"))]
        pages = [{name: f"docs/{place}"} if name else f"docs/{place}" for name, place in listed]
        if pages:  # the questions have none
            sections.append({title: pages})
    measured = ["experiments/regret/README.md", "experiments/paper/README.md"]
    others = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
    return [*sections, {"Measured": measured}, {"Project": others}, {"Index": "docs/README.md"}]


def _pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))]


def _linked(page: Path) -> list[Path]:
    """Return the files of the project that a page links to."""
    targets = (page.parent / link for link in LINK.findall(page.read_text()) if ":" not in link)
    return [found for target in targets if (found := target.resolve()).is_file()]


def _copy(path: Path) -> None:
    place = PAGES / path.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, place)


if __name__ == "__main__":
    main()
