"""The live page in a real browser: it follows the site, can be used by all, and loads nothing else.

Screenshots are kept in build/screenshots.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from covey.server import tokens
from support.required import ROOT, program, require
from support.served import SITE
from support.site_processes import Client, Offices, _start, table

pytestmark = pytest.mark.beside_the_kernel

SHOTS = ROOT / "build" / "screenshots"
MOST_MS = 30_000  # until what must happen has happened
INPUTS = [
    {"name": "size", "shape": [1], "datatype": "FP64", "data": [1.5]},
    {"name": "context", "shape": [1, 2], "datatype": "FP64", "data": [[0.3, 0.8]]},
]
POLICY = table(
    "[policy]",
    {
        "preset": "cos",
        "slices": 2,
        "explore": {"scale": 0.0, "power": 0.0},  # so that peers are asked from the first slot on
        "train": {"scale": 1.0, "power": 0.9},
        "explore-peers": {"scale": 1.0, "power": 0.9},
    },
)


class Tab:
    """A page of a browser, which fails the test for any error that a person could see."""

    def __init__(self, page: Any, root: str) -> None:
        self.page, self._root = page, root
        self.faults: list[str] = []
        self.hosts: set[str] = set()
        self.paths: list[str] = []
        page.set_default_timeout(MOST_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._hear)
        page.on("request", self._note)

    def _note(self, sent: Any) -> None:
        *host, path = sent.url.split("/", 3)
        self.hosts.add("/".join(host))
        self.paths.append(path)

    def _hear(self, told: Any) -> None:
        if told.type in ("error", "warning"):
            self.faults.append(told.text)

    def open(self, path: str = "/") -> None:
        self.page.goto(self._root + path)

    def wait_for(self, section: str, text: str) -> None:
        self.page.locator(f"#{section}", has_text=text).wait_for()

    def check(self) -> None:
        """Fail for errors in scripts, for what the policy of the page forbids, for other hosts."""
        assert self.faults == []
        assert self.hosts == {self._root}

    def keep(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    require(find_spec("playwright"), "needs playwright: pip install --group test")
    from playwright.sync_api import sync_playwright

    path = program("chromium")
    with sync_playwright() as started_one:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        found = started_one.chromium.launch(executable_path=path, args=options)
        yield found
        found.close()


@contextmanager
def tab(browser: Any, root: str, **options: Any) -> Iterator[Tab]:
    context = browser.new_context(**options)
    try:
        yield Tab(context.new_page(), root)
    finally:
        context.close()


class Running(NamedTuple):
    """A site that runs, a client of it, and where its page is."""

    process: "subprocess.Popen[str]"
    client: Client
    root: str

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)


@contextmanager
def started(file: Path, text: str | None = None) -> Iterator[Running]:
    if text is not None:
        file.write_text(text)
    process = _start(file)
    assert process.stderr is not None
    try:
        url = process.stderr.readline().strip()
        with closing(Client(url, process)) as client:
            yield Running(process, client, url.partition("/v2")[0])
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stderr.close()


def file_of(offices: Offices, name: str, other: str, function: str, label: int) -> str:
    node = {"features": {"size": "FP64"}, "dimension": 2, "timeout-s": 0.5}
    return "\n".join(
        [
            offices.node(name, **node),
            POLICY,
            table("[[learner]]", {"name": name, "functions": [function], "peers": {other: 0.1}}),
            table("[[function]]", {"name": function, "kind": "constant", "label": label}),
            offices.peer(other, share="data", may=["status"], **{"may-ask": True, "functions": 1}),
        ]
    )


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    """North, which runs with its peer south, and the file of south."""
    offices = Offices(tmp_path, ["north", "south"])
    (tmp_path / "north.toml").write_text(file_of(offices, "north", "south", "no", 0))
    (tmp_path / "south.toml").write_text(file_of(offices, "south", "north", "yes", 1))
    with started(tmp_path / "north.toml") as north:
        yield north, tmp_path / "south.toml"


def send(site: Running, first: int, count: int) -> None:
    for number in range(first, first + count):
        site.client.infer(f"r{number}", INPUTS)
        site.client.label(f"r{number}", 1)


def test_the_page_follows_decisions_a_killed_peer_and_its_return(
    browser: Any, pair: tuple[Running, Path]
) -> None:
    north, file = pair
    with ExitStack() as stack:
        south = stack.enter_context(started(file))
        now = stack.enter_context(tab(browser, north.root))
        now.open()
        now.wait_for("peers", "south")
        send(north, 0, 20)
        now.wait_for("top", "slot 20")  # by itself
        now.wait_for("network", "price 0.1")
        now.page.locator("#sites tr", has_text="south").locator("text=ready").wait_for()
        assert now.page.locator("#network line[marker-end]").count() == 1
        south.kill()
        sent = 20
        while not now.page.locator("#events", has_text="circuit open").count():
            send(north, sent, 1)
            sent += 1
        now.page.locator("#sites tr", has_text="south").locator("text=no answer").wait_for()
        now.keep("killed")
        stack.enter_context(started(file))
        while not now.page.locator("#events", has_text="circuit closed").count():
            send(north, sent, 1)
            sent += 1
        now.wait_for("top", f"slot {sent}")
        now.page.locator("#sites tr", has_text="south").locator("text=ready").wait_for()
        now.keep("returned")
        assert now.paths.count("events") == 1  # one stream for all of it
        now.check()


def test_the_page_says_that_it_is_out_of_date_and_when_it_is_not(
    browser: Any, tmp_path: Path
) -> None:
    with started(tmp_path / "north.toml", SITE) as north, tab(browser, north.root) as now:
        now.open()
        stale = now.page.locator("#stale", has_text="Out of date")
        os.kill(north.process.pid, signal.SIGSTOP)
        try:
            stale.wait_for()
        finally:
            os.kill(north.process.pid, signal.SIGCONT)
        now.page.locator("body.stale").wait_for(state="detached")
        now.check()


LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 420, "height": 900}, "color_scheme": "light"},
    "large": {"viewport": {"width": 3840, "height": 2160}, "color_scheme": "dark"},
}


def test_the_page_fits_every_screen_and_axe_finds_no_fault(
    browser: Any, pair: tuple[Running, Path]
) -> None:
    require(find_spec("axe_playwright_python"), "needs axe-core: pip install --group test")
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    north, file = pair
    with started(file):
        send(north, 0, 20)
        for name, look in LOOKS.items():
            # The script of axe is not of the site, which its policy would forbid.
            with tab(browser, north.root, bypass_csp=True, **look) as now:
                now.open()
                now.wait_for("top", "slot 20")
                now.keep(name)
                wide = now.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= look["viewport"]["width"], name
                now.page.evaluate(axe)
                found = now.page.evaluate("axe.run()")
                assert [(one["id"], one["help"]) for one in found["violations"]] == [], name
                assert len(found["passes"]) > 20


def test_a_person_logs_in_with_keys_alone_and_out_again(browser: Any, tmp_path: Path) -> None:
    secret, _ = tokens.new(tmp_path / "tokens.json", "eve", scopes=["read"])
    text = SITE.replace("dimension", 'tokens = "tokens.json"\ndimension')
    with started(tmp_path / "north.toml", text) as north, tab(browser, north.root) as now:
        now.open()
        now.wait_for("login", "Log in")
        now.keep("login")
        now.page.keyboard.type(secret)  # the field has the focus
        now.page.keyboard.press("Enter")
        now.wait_for("top", "Site north")
        (cookie,) = now.page.context.cookies()
        assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
        assert now.page.evaluate("document.cookie") == ""
        assert secret not in now.page.url + now.page.content()
        now.page.get_by_role("button", name="Log out").press("Enter")
        now.wait_for("login", "Log in")
        assert now.page.context.cookies() == []
        now.page.keyboard.type(secret)
        now.page.keyboard.press("Enter")
        now.wait_for("top", "Site north")
        tokens.revoke(tmp_path / "tokens.json", "eve")
        now.wait_for("login", "Log in")  # by itself
        now.check()


def test_the_contexts_of_the_map_are_chosen_without_scripts(
    browser: Any, pair: tuple[Running, Path]
) -> None:
    north, _ = pair
    send(north, 0, 1)
    with tab(browser, north.root, java_script_enabled=False) as now:
        now.open()
        now.page.get_by_label("across").select_option("context 2")
        now.page.get_by_label("up").select_option("context 1")
        now.page.get_by_role("button", name="Show").click()
        now.page.get_by_role("img", name="arms preferred by context 2 and context 1").wait_for()
        assert now.page.url.endswith("/?x=1&y=0")
        now.check()
