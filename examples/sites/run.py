"""Four sites on this machine, with fresh keys: they help each other, one is killed and restarted.

Prints what happened; fails if anything that was acknowledged is missing.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from processes import CLIENT, MOST_S, PRICE, Client, Site, free_ports
from traffic import SIGNS, Above, Flow, flows, mixed

from covey.report.text import table
from covey.site.requests import PeerAnswer
from covey.store.store import Store

NAMES = ("north", "east", "south", "west")


class Answer(NamedTuple):
    """The answer of a site to a flow."""

    flow: Flow
    label: str
    arm: str


class Stream:
    """The flows of one site on their way: questions at once, true labels when they are known."""

    def __init__(self, site: Site, coming: list[Flow]) -> None:
        self.site = site
        self.coming = coming
        self.answers: list[Answer] = []
        self.acknowledged: dict[str, str] = {}
        self.repeated = 0
        self._due: list[tuple[int, str, Flow]] = []

    @property
    def done(self) -> int:
        """How many flows were answered."""
        return len(self.answers)

    def run(self) -> None:
        """Send everything; whatever a dead site did not answer is sent again when it is back."""
        with closing(Client(self.site)) as client:
            for place, flow in enumerate(self.coming):
                id_ = f"flow-{place}"
                self.answers.append(Answer(flow, *client.infer(id_, flow.record)))
                if flow.delay is not None:
                    self._due.append((place + flow.delay, id_, flow))
                self._send_labels(client, place)
            self._send_labels(client, None)

    def _send_labels(self, client: Client, place: int | None) -> None:
        """Send the labels that are known by now; None: all of them."""
        known = [one for one in self._due if place is None or one[0] <= place]
        self._due = [one for one in self._due if not (place is None or one[0] <= place)]
        for _, id_, flow in known:
            for _ in range(1 + flow.is_label_sent_twice):
                self.repeated += not client.label(id_, flow.truth)
                self.acknowledged[id_] = flow.truth


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flows", type=int, default=800, metavar="N", help="of each site (800)")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="(default: a new one)")
    text = "of the page of the first site (needs playwright and chromium)"
    parser.add_argument("--picture", type=Path, metavar="PNG", help=text)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="covey-sites-"))
    begin_s = time.monotonic()
    streams = set_up(folder, options.flows, options.seed)
    with ExitStack() as stack:
        for stream in streams:
            stream.site.start()
            stack.callback(stream.site.stop)
        for stream in streams:
            stream.site.wait_until_up()
        say(f"{len(streams)} sites serve, each with two rules of its own; asking costs {PRICE}")
        play(streams)
        if options.picture:
            draw(streams[0].site, options.picture)
    missing = verify(streams)
    compare(streams)
    say(f"{time.monotonic() - begin_s:.0f} s; files, stores, logs and private keys: {folder}")
    return 1 if missing else 0


def set_up(folder: Path, count: int, seed: int) -> list[Stream]:
    """Make keys, tokens and files of all sites, and what each will see."""
    ports = free_ports(2 * len(NAMES))
    sites = [
        Site(name, sign, folder, ports[2 * place : 2 * place + 2])
        for place, (name, sign) in enumerate(zip(NAMES, SIGNS, strict=True))
    ]
    for site in sites:
        site.write([other for other in sites if other is not site])
    say(f"fresh keys of {len(sites)} sites, a token for each client: {folder}")
    return [
        Stream(site, list(flows(seed * 1_000 + place, count))) for place, site in enumerate(sites)
    ]


def play(streams: list[Stream]) -> None:
    """Run the streams; in the middle, kill the last site and start it again."""
    *others, victim = streams
    with ThreadPoolExecutor(len(streams)) as pool:
        running = [pool.submit(stream.run) for stream in streams]
        count = len(victim.coming)
        _until(lambda: victim.done >= count // 3, running)
        before = sum(one.done for one in others)
        victim.site.kill()
        say(f"{victim.site.name} is killed (SIGKILL) after {victim.done} of its {count} flows")
        _until(lambda: all(one.done >= 2 * count // 3 for one in others), running)
        after, waiting = sum(one.done for one in others), undelivered_labels(others)
        say(f"the others answer {after - before} flows without it; {waiting} labels undelivered")
        victim.site.start()
        victim.site.wait_until_up()
        say(f"{victim.site.name} is started again, and its client continues")
        for one in running:
            one.result()
    _until(lambda: undelivered_labels(streams) == 0)
    say(f"all flows are answered; {victim.site.name} has its labels, none is undelivered")


def draw(site: Site, file: Path) -> None:
    """Keep how the page of a site looks now."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers:
        path, options = shutil.which("chromium"), ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = browsers.chromium.launch(executable_path=path, args=options)
        size = {"width": 1200, "height": 1500}
        page = browser.new_context(ignore_https_errors=True, viewport=size).new_page()
        page.add_init_script(f"sessionStorage.setItem('covey-token', {site.token!r})")
        page.goto(f"https://127.0.0.1:{site.port}/")
        page.locator("#facts", has_text="slot").wait_for()
        page.locator("svg").first.wait_for()
        page.screenshot(path=file)
        browser.close()


def undelivered_labels(streams: list[Stream]) -> int:
    """Return how many labels for peers are not yet delivered."""
    total = 0
    for stream in streams:
        with closing(Client(stream.site)) as client:
            total += client.state()["owed"]
    return total


def verify(streams: list[Stream]) -> int:
    """Compare what was acknowledged with what the stores have; return how much is missing."""
    with ExitStack() as stack:
        stores = {}
        for stream in streams:
            checked = subprocess.run(
                [sys.executable, "-m", "covey", "check", str(stream.site.store), "--json"],
                capture_output=True,
                text=True,
                check=False,
            )
            if checked.returncode:
                raise SystemExit(checked.stderr)
            store = Store(stream.site.store, is_new_allowed=False)
            stack.callback(store.close)
            stores[stream.site.name] = (store, json.loads(checked.stdout)["labels"])
        kept = {name: store for name, (store, _) in stores.items()}
        lost, passed, undelivered = _missing(streams, kept)
    acknowledged = sum(len(stream.acknowledged) for stream in streams)
    repeated = sum(stream.repeated for stream in streams)
    never = sum(answer.flow.delay is None for stream in streams for answer in stream.answers)
    labels = sum(count for _, count in stores.values())
    say(
        f"{acknowledged} labels acknowledged ({repeated} of them sent twice, {never} flows never "
        f"labelled), {passed} delivered to a peer that had answered"
    )
    extra = labels - acknowledged - passed + lost + undelivered
    say(
        f"in the stores: {labels} labels, every counter agrees with them; missing: {lost}, not "
        f"delivered to a peer: {undelivered}, counted twice: {extra}"
    )
    return lost + undelivered + abs(extra)


def _missing(streams: list[Stream], kept: dict[str, Store]) -> tuple[int, int, int]:
    """Return how many labels are lost, how many a peer needs, and how many of these it lacks."""
    fate: Counter[str] = Counter()
    for stream in streams:
        for id_, truth in stream.acknowledged.items():
            request, _ = kept[stream.site.name].find(f"client/{CLIENT}", id_) or (None, None)
            if request is None or request.truths != [truth]:
                fate["lost"] += 1
                continue
            answer = request.peer_answers.get(0)
            if answer is not None and answer.id:
                peer = kept[request.group(0).peer]
                fate["passed"] += 1
                fate["undelivered"] += not _is_delivered(answer, truth, peer, stream)
    return fate["lost"], fate["passed"], fate["undelivered"]


def _is_delivered(answer: PeerAnswer, truth: str, peer: Store, asker: Stream) -> bool:
    """Return whether a peer has the label of a row that it answered."""
    found = peer.find(asker.site.name, answer.id)
    return found is not None and found[0].truths[found[1] or 0] == truth


def compare(streams: list[Stream]) -> None:
    """Print what each site got wrong, alone and together."""
    lines = [["errors in %", "own rule", "mixed", "alone", "together", "at the end", "asked"]]
    for stream in streams:
        rules = {stream.site.sign: Above(stream.site.sign), "mixed": mixed}
        own = {
            name: [rule(one.flow.record) != one.flow.truth for one in stream.answers]
            for name, rule in rules.items()
        }
        wrong = [one.label != one.flow.truth for one in stream.answers]
        asked = [one.arm not in rules for one in stream.answers]
        figures = [*own.values(), _alone(stream, own), wrong, wrong[-len(wrong) // 4 :], asked]
        lines.append([stream.site.name, *(f"{100 * sum(one) / len(one):.1f}" for one in figures)])
    print(f"\n{table(lines)}\n")
    print("alone: the better of the two own rules for each kind of service, known in advance")
    print("at the end: of the last quarter of the flows; asked: flows that a peer answered\n")


def _alone(stream: Stream, own: dict[str, list[bool]]) -> list[bool]:
    """Return the errors of the own rule that is best for each kind of service."""
    kinds = [min(int(one.flow.record["service"] * 4), 3) for one in stream.answers]
    best: list[bool] = []
    for kind in range(4):
        places = [place for place, one in enumerate(kinds) if one == kind]
        best += min(([wrong[place] for place in places] for wrong in own.values()), key=sum)
    return best


def say(sentence: str) -> None:
    """Print a line of the story."""
    print(f"- {sentence}", flush=True)


def _until(is_so: Callable[[], bool], running: "Sequence[Future[None]]" = ()) -> None:
    """Return when something is so; raise what ended a stream early, or that it took too long."""
    end_s = time.monotonic() + MOST_S
    while not is_so():
        for one in running:
            if one.done():
                one.result()
        if time.monotonic() > end_s:
            raise SystemExit(f"it took more than {MOST_S:.0f} s; the logs may say why")
        time.sleep(0.02)  # real processes are waited for; they send no event


if __name__ == "__main__":
    sys.exit(main())
