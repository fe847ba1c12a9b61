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

import msgspec
import pytest

from covey.bandit.learner import CellPreference
from covey.server import tokens
from covey.site.status import (
    ArmState,
    AxisState,
    GainState,
    MapState,
    PeerState,
    SeriesPoint,
    ServedState,
    SiteCondition,
    SiteEvent,
    State,
)
from covey.types import Interval, Value
from support.required import ROOT, program, require
from support.served import SITE
from support.site_processes import Client, Offices, _start, table

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
        self.polls = 0
        page.set_default_timeout(MOST_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._hear)
        page.on("request", self._note)

    def _note(self, sent: Any) -> None:
        *host, path = sent.url.split("/", 3)
        self.hosts.add("/".join(host))
        self.polls += "/state" in path

    def _hear(self, told: Any) -> None:
        # A browser tells of every answer that is an error: here of a missing or a void token.
        if told.type in ("error", "warning") and "status of 40" not in told.text:
            self.faults.append(told.text)

    def open(self) -> None:
        self.page.goto(self._root + "/")

    def wait_for(self, where: str, text: str) -> None:
        self.page.locator(where, has_text=text).first.wait_for()

    def text(self, where: str) -> str:
        return str(self.page.locator(where).inner_text())

    def texts(self, where: str) -> list[str]:
        return [str(text) for text in self.page.locator(where).all_text_contents()]

    def give(self, state: State) -> None:
        """Let the page get this state, whatever the site answers."""
        body = msgspec.json.encode(state)
        answer = {"status": 200, "content_type": "application/json", "body": body}
        self.page.route("**/state*", lambda route: route.fulfill(**answer))

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


@pytest.fixture(scope="module")
def north(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A site without peers."""
    with started(tmp_path_factory.mktemp("site") / "north.toml", SITE) as site:
        yield site


def file_of(offices: Offices, name: str, other: str, function: str, label: int) -> str:
    node = {"features": {"size": "FP64"}, "dimension": 2, "timeout-s": 0.5}
    known = offices.peer(other, share="data", **{"may-ask": True, "functions": 1})
    own = {"learner": {"peers": {other: 0.1}}, "labels": {function: label}}
    return offices.file(name, POLICY, known, **own, **node)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    """North, which runs with its peer south, and the file of south."""
    offices = Offices(tmp_path, ["north", "south"])
    (tmp_path / "north.toml").write_text(file_of(offices, "north", "south", "no", 0))
    (tmp_path / "south.toml").write_text(file_of(offices, "south", "north", "yes", 1))
    with started(tmp_path / "north.toml") as site:
        yield site, tmp_path / "south.toml"


def send(site: Running, first: int, count: int) -> None:
    for number in range(first, first + count):
        site.client.infer(f"r{number}", INPUTS)
        site.client.label(f"r{number}", 1)


def test_the_page_follows_decisions_a_killed_peer_and_its_return(
    browser: Any, pair: tuple[Running, Path]
) -> None:
    site, file = pair
    with ExitStack() as stack:
        south = stack.enter_context(started(file))
        now = stack.enter_context(tab(browser, site.root))
        now.open()
        now.wait_for("#peers tr", "south")
        send(site, 0, 20)
        now.wait_for("#facts", "slot 20")  # by itself
        now.wait_for("#network", "price 0.1")
        assert now.page.locator("#network line[marker-end]").count() == 1
        assert now.text("#state") == "ready"
        south.kill()
        sent = 20
        while not now.page.locator("#events", has_text="circuit open").count():
            send(site, sent, 1)
            sent += 1
        now.wait_for("#conditions", "peer south gives no answers")
        now.wait_for("#peers tr", "resting")
        assert now.page.locator("#network .box.resting").count() == 1
        now.keep("killed")
        stack.enter_context(started(file))
        while not now.page.locator("#events", has_text="circuit closed").count():
            send(site, sent, 1)
            sent += 1
        now.wait_for("#facts", f"slot {sent:,}")
        now.page.locator("#network .box.resting").wait_for(state="detached")
        now.check()


def test_the_page_says_that_it_is_out_of_date_and_when_it_is_not(
    browser: Any, north: Running
) -> None:
    with tab(browser, north.root) as now:
        now.open()
        now.wait_for("#state", "ready")
        os.kill(north.process.pid, signal.SIGSTOP)
        try:
            now.wait_for("#late", "Out of date")
        finally:
            os.kill(north.process.pid, signal.SIGCONT)
        now.page.locator("body.late").wait_for(state="detached")
        now.check()


LOOKS = {
    "light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "large": {"viewport": {"width": 3840, "height": 2160}, "color_scheme": "dark"},
}


def test_the_page_fits_every_screen_and_axe_finds_no_fault(
    browser: Any, pair: tuple[Running, Path]
) -> None:
    require(find_spec("axe_playwright_python"), "needs axe-core: pip install --group test")
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    site, file = pair
    with started(file):
        send(site, 0, 20)
        for name, look in LOOKS.items():
            # The script of axe is not of the site, which its policy would forbid.
            with tab(browser, site.root, bypass_csp=True, **look) as now:
                now.open()
                now.wait_for("#facts", "slot 20")
                now.keep(name)
                wide = now.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= look["viewport"]["width"], name
                now.page.evaluate(axe)
                found = now.page.evaluate("axe.run()")
                assert [(one["id"], one["help"]) for one in found["violations"]] == [], name
                assert len(found["passes"]) > 20


def test_a_token_is_typed_with_keys_alone_and_kept_by_the_tab(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    secret, _ = tokens.new(file, "eve", scopes=["read"])
    other, _ = tokens.new(file, "camera", scopes=["infer"])
    text = SITE.replace("dimension", 'tokens = "tokens.json"\ndimension')

    def enter(now: Tab, token: str) -> None:
        now.page.keyboard.type(token)  # the field has the focus
        now.page.keyboard.press("Enter")

    with started(tmp_path / "north.toml", text) as site, tab(browser, site.root) as now:
        now.open()
        now.page.locator("#entry").wait_for()
        assert now.text("#refused") == ""
        now.keep("token")
        enter(now, "covey_wrong")
        now.wait_for("#refused", "does not hold a token")
        enter(now, other)
        now.wait_for("#refused", "scope 'read'")
        enter(now, secret)
        now.wait_for("#state", "ready")
        now.page.reload()
        now.wait_for("#state", "ready")
        assert now.page.context.cookies() == []
        assert secret not in now.page.url + now.page.content()
        second = Tab(now.page.context.new_page(), site.root)
        second.open()
        second.page.locator("#entry").wait_for()  # another tab has no token
        second.page.close()
        now.page.get_by_role("button", name="Forget the token").press("Enter")
        now.page.locator("#entry").wait_for()
        assert now.page.evaluate("sessionStorage.length + localStorage.length") == 0
        enter(now, secret)
        now.wait_for("#state", "ready")
        tokens.revoke(file, "eve")
        now.wait_for("#refused", "revoked")  # by itself
        assert now.page.locator("#site").is_hidden()
        now.check()


def test_without_scripts_the_page_names_another_way(browser: Any, north: Running) -> None:
    with tab(browser, north.root, java_script_enabled=False) as now:
        now.open()
        assert "covey status" in now.text("body")


# -- states that a site seldom has ----------------------------------------------------------------

NOW, NONE = 1_800_000_000, "\N{EN DASH}"
NASTY = "</title><script>window.hit = 1</script>\"'&<img src=x onerror=window.hit=1>\u202e\x00"


EURO = Value(2.0, "EUR")


def state(name: str = "east", **changes: Any) -> State:
    """The state of a site with two contexts, and with a peer of this name that rests."""
    ticks: list[tuple[float, float | str]] = [(0.0, 0.0), (1.0, 24.0)]
    cells = [
        CellPreference((0, 1), (0.0, 0.0), (0.5, 0.5), 7, "tree"),
        CellPreference((0, 1), (0.0, 0.5), (0.5, 1.0), 9, name),
        CellPreference((0, 1), (0.5, 0.5), (1.0, 1.0), 1, None),
        CellPreference((1,), (0.5,), (1.0,), 50, "tree"),  # of another space
    ]
    points = [(0, 10, 8, 6), (1, 10, 4, 4), (5, 10, 0, 0), (6, 10, 100, 90)]
    text = f"peer {name} gives no answers"
    needs = SiteCondition("peer", name, "warning", text, "covey doctor says why", NOW - 60.0)
    given = State(
        name="north",
        conditions=[needs],
        is_ready=True,
        starts=3,
        uptime_s=93_784.0,
        slot=12_345,
        alarms=1,
        alarm_slot=900,
        alarms_total=2,
        alarm_slots=[40, 900],
        phases={"explore": 25},
        arms=[
            ArmState("tree", "own", 0.0, 60, 7, 0.0, 50, 40),
            ArmState(name, "peer", 0.1, 30, 0, 3.0, 40, 39, peer=name),
        ],
        peers=[PeerState(name, "resting", 4, 11, 1.5, 20.0), PeerState("west", "not asked", 0, 2)],
        open_tickets=17,
        cells=8,
        owed=4,
        for_peers=ServedState(0, 0, 0),
        labels=100,
        right=88,
        gain=GainState(312, best_own="tree", points=Interval(4.214, -1.1, 9.52), value=EURO),
        at=NOW,
        store_bytes=3 << 20,
        free_bytes=5 << 30,
        minutes=[
            SeriesPoint(NOW - 1_800 + 60 * k, decisions, labels, right, 1.0)
            for k, decisions, labels, right in points
        ],
        events=[SiteEvent(NOW - 5.0, "warning", f"peer {name}: circuit open")],
        map=MapState([AxisState("hour", ticks), AxisState(name, ticks)], cells),
    )
    return msgspec.structs.replace(given, **changes)


def test_the_page_shows_all_of_a_state(browser: Any, north: Running) -> None:
    with tab(browser, north.root) as now:
        now.give(state(is_ready=False, why="the disk is full"))
        now.open()
        now.wait_for("#state", "not ready \u00b7 1 thing needs you")
        assert now.text("#conditions") == (
            "warning peer east gives no answers. What helps: covey doctor says why. "
            "Since 2027-01-15 07:59:00 UTC."
        )
        assert now.text("#facts").startswith(
            "slot 12,345 \u00b7 up for 1 d 2 h 3 min \u00b7 start 3"
        )
        tiles = dict(zip(now.texts(".tiles dt"), now.texts(".tiles b"), strict=True))
        assert [*tiles.values()][1:] == ["12.00 %", "3", "90", "17", "4", "0", "8", "3 MiB"]
        assert tiles["Net gain over the best own function"] == "+4.21 points"
        assert now.text("#gain small") == (
            "over tree on 312 rows (95 % interval \u22121.10 to +9.52), or +8.43 EUR in 100 rows"
        )
        assert now.texts("#arms tr:nth-child(2) td") == ["peer", "0.1", "30", "", "0", "3", "40"]
        assert now.texts("#peers td")[:7] == ["resting", "0.1", "30", "11", "4", "1.5 of 20", NONE]
        assert now.text("#alarms").endswith("the latest at slots 900, 40.")
        assert "2027-01-15 07:59:55 UTC warning peer east: circuit open" in now.text("#events")
        now.check()


def test_hostile_names_are_text(browser: Any, north: Running) -> None:
    # Without the policy of the page, which alone would stop what such a name tries.
    with tab(browser, north.root, bypass_csp=True) as now:
        now.give(state(NASTY, is_ready=False, why=NASTY))
        now.open()
        visible = "</title><script>window.hit"  # tables cut long names
        for where in ("#conditions", "#peers", "#events", "#legend", "#up"):
            now.wait_for(where, visible)
        assert now.page.locator("script, img").count() == 1  # its own script
        assert now.page.evaluate("window.hit") is None
        assert "\u202e" not in now.page.content()
        assert now.faults == []
