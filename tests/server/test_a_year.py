"""A year of an operator, under a virtual clock: no acknowledged label is lost.

Sites are whole, from their files to their stores; messages between them are the bytes of the peer
protocol, and only sockets and TLS are left out. A peer is let in if its certificate is valid on
that day and its key is listed.
"""

import asyncio
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from covey.errors import PeerError
from covey.functions.function import Function
from covey.node.requests import is_own
from covey.node.store import Store
from covey.node.threads import Steps
from covey.node.workers import ThreadWorkers
from covey.server import config, http, keys, tokens
from covey.server.app import Present, ServedSite
from covey.server.config import SiteConfig
from covey.server.http import HttpRequest, HttpResponse
from covey.server.metrics import Metrics
from covey.server.peer_client import PeerClient
from covey.server.peer_messages import KIND
from support.changes import Known, known_of
from support.site_processes import table
from support.virtual import VirtualLoop

WEEKS, DAYS, ROWS = 52, 3, 6  # days of a week on which clients send as many rows
FIRST_DAY = datetime(2026, 1, 5, tzinfo=UTC)
MODULE = "models_of_a_year"
CODE = """
def tree(instance):
    return int(instance["size"] % {period} == 0) ^ int(instance["size"] % 2)


def rules(instance):
    return int(instance["size"] % 2)
"""


class YearLoop(VirtualLoop):
    """What a site does in threads is done at once."""

    def run_in_executor(self, executor: Any, call: Callable[..., Any], *arguments: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(call(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


class YearWorkers(ThreadWorkers):
    """Functions are called at once, as threads do not know the clock of the loop."""

    async def run(self, function: Function, call: Callable[..., Any], /, *arguments: Any) -> Any:
        if isinstance(call, Steps):
            while not call.step():
                pass
            return call.result
        return call(*arguments)


class Wires:
    """The peers of a site, each by the API for peers of a site in this process."""

    def __init__(self, year: "Year", served: SiteConfig, _: Any) -> None:
        self.by_name = {
            name: PeerClient(one, partial(year.pass_on, served.serving.name, name), year.chance)
            for name, one in served.neighbours.items()
            if one.url is not None
        }

    def reload(self) -> None:
        """Nothing: certificates are read for every message."""

    async def close(self) -> None:
        """Nothing is open."""


class Year:
    """Sites, their files, and all labels that were acknowledged to clients of north."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chance = random.Random(26)  # noqa: S311
        self.sites: dict[str, ServedSite] = {}
        self.stores: dict[str, tuple[Store, ThreadWorkers]] = {}
        self.day = 0
        self.acknowledged: Counter[tuple[str, bool]] = Counter()  # arm and whether it was right
        self.open: list[tuple[str, list[int], list[tuple[str, str, int]]]] = []
        self.asked: Counter[str] = Counter()  # rows with a label, by the peer that answered
        self.refused = 0  # messages that were not let in
        # What the file of north says.
        self.functions = ["tree", "zero"]
        self.version, self.carry, self.slices = "w0", 0.0, 2
        self.asks = ["south"]
        self.knows = ["south"]
        keys.new_authority(folder / "office", now=FIRST_DAY)
        for name in ("north", "south", "west"):
            keys.new_site(name, authority=folder / "office", folder=folder, now=FIRST_DAY)
        tokens.new(folder / "tokens.json", "operator", scopes=tokens.SCOPES)

    @property
    def now(self) -> datetime:
        return FIRST_DAY + timedelta(days=self.day)

    # -- files ----------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the files of all sites."""
        functions = [
            {"name": "tree", "kind": "python", "entry": f"{MODULE}:tree"}
            | {"version": self.version, "carry": self.carry},
            {"name": "zero", "kind": "constant", "label": 0},
            {"name": "rules", "kind": "python", "entry": f"{MODULE}:rules"},
        ]
        used = [one for one in functions if one["name"] in self.functions]
        peers = dict.fromkeys(self.asks, 0.01)
        self._write("north", {"functions": self.functions, "peers": peers}, used, self.knows)
        for name in ("south", "west"):
            own = {"name": f"of {name}", "kind": "python", "entry": f"{MODULE}:rules"}
            self._write(name, {"functions": [own["name"]], "peers": {}}, [own], ["north"])

    def _write(
        self, name: str, learner: dict[str, Any], functions: list[Any], peers: list[str]
    ) -> None:
        node = {"name": name, "features": {"size": "FP64"}, "store": f"{name}.store"}
        node |= {"tokens": "tokens.json", "peer-address": "127.0.0.1:0", "dimension": 1}
        node |= {"certificate": f"{name}.crt", "key": f"{name}.key", "authority": "office/ca.crt"}
        quick = {"scale": 0.3, "power": 0.1}
        policy = {"preset": "cos", "slices": self.slices, "explore": quick, "train": quick}
        parts = [table("[node]", node), table("[policy]", policy)]
        parts += [table("[[learner]]", {"name": name, **learner})]
        parts += [table("[[function]]", one) for one in functions]
        for peer in peers:
            known = {"name": peer, "key": self.key(peer), "url": f"https://{peer}.example"}
            rights = {"share": "data", "may-ask": True}
            parts.append(table("[[peer]]", known | rights))
        (self.folder / f"{name}.toml").write_text("\n".join(parts))

    def key(self, name: str) -> str:
        return keys.show(self.folder / f"{name}.crt").key_hash

    def retrain(self, version: str) -> None:
        """Put a model of another version into its place."""
        self.version = version
        period = 3 + int(version.removeprefix("w")) % 7
        (self.folder / f"{MODULE}.py").write_text(CODE.format(period=period))

    # -- sites ----------------------------------------------------------------------------------

    async def start(self, name: str) -> None:
        served = config.load(self.folder / f"{name}.toml")
        store = Store(served.store)
        threads = YearWorkers(store)
        self.stores[name] = store, threads
        wires: Any = partial(Wires, self)
        self.sites[name] = ServedSite(store, threads, Metrics({}), wires)
        assert served.identity is not None
        certificate = keys.OwnCertificate(*served.identity, now=lambda: self.now)
        await self.sites[name].open(served, certificate)

    async def stop(self, name: str) -> None:
        await self.sites.pop(name).close()
        store, threads = self.stores.pop(name)
        threads.close()
        store.close()

    async def pass_on(self, source: str, target: str, path: str, body: bytes) -> HttpResponse:
        """Pass a message on to a site, if both know the valid key of the other."""
        site = self.sites.get(target)
        if site is None:
            raise PeerError(f"{target} is down")
        for one, other in ((source, site), (target, self.sites[source])):
            shown = keys.show(self.folder / f"{one}.crt", now=self.now)
            if shown.state != "valid" or other.allowed.get(one) != shown.key_hash:
                self.refused += 1
                raise PeerError(f"{one} is not let in")
        present = Present(site, lambda: site.for_peers, lambda: site.gate)
        return await http.respond(
            present, HttpRequest("POST", path, {"content-type": KIND}, body, source)
        )

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Return what north answers to a client that may do everything."""
        site, content = self.sites["north"], json.dumps(body).encode()
        present = Present(site, lambda: site.for_clients, lambda: site.gate)
        rights = frozenset(tokens.SCOPES)
        headers = {"content-type": "application/json"}
        call = HttpRequest("POST", path, headers, content, "operator", rights)
        reply = await http.respond(present, call)
        return reply.status, json.loads(reply.body)

    # -- clients --------------------------------------------------------------------------------

    async def work(self) -> None:
        """Send rows, and the labels of some that were sent before."""
        sizes = [self.chance.randrange(1000) for _ in range(ROWS)]
        points = [[self.chance.random()] for _ in sizes]
        tensors: list[dict[str, Any]] = [
            {"name": "size", "shape": [ROWS], "datatype": "FP64", "data": sizes},
            {"name": "context", "shape": [ROWS, 1], "datatype": "FP64", "data": points},
        ]
        wanted = [{"name": name} for name in ("label", "arm", "phase")]
        id_ = f"day-{self.day}"
        body = {"id": id_, "inputs": tensors, "outputs": wanted}
        status, answer = await self.post("/v2/models/north/infer", body)
        assert status == 200, answer
        labels, arms, phases = (one["data"] for one in answer["outputs"])
        ids = {arm.name: arm.id for arm in self.sites["north"].node.arms if arm.place >= 0}
        decided = list(zip([ids[arm] for arm in arms], phases, labels, strict=True))
        self.open.append((id_, [size % 2 for size in sizes], decided))
        while len(self.open) > 4:
            await self.label(*self.open.pop(0))

    async def label(self, id_: str, truths: list[int], decided: list[tuple[str, str, int]]) -> None:
        """Send the labels of a request, in two parts; remember what was acknowledged."""
        for rows in (range(2), range(2, ROWS)):
            body = {"id": id_, "rows": list(rows), "truth": [truths[row] for row in rows]}
            status, settled = await self.post("/v2/models/north/feedback", body)
            assert (status, settled["new"]) == (202, [True] * len(rows)), settled
            for row, is_right in zip(rows, settled["right"], strict=True):
                arm, phase, _ = decided[row]
                if phase != "train":
                    self.acknowledged[arm, is_right] += 1
                self.asked[arm] += arm in ("south", "west")

    # -- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """Every acknowledged label is in the store, under the version that answered."""
        store, _ = self.stores["north"]
        kept: Counter[tuple[str, bool]] = Counter()
        for (_, source, arm), (labels, right) in store.counters().items():
            if is_own(source):
                kept[arm, True] += right
                kept[arm, False] += labels - right
        assert +kept == +self.acknowledged
        assert store.check() == []

    async def change(self, how: int) -> None:
        """Apply the files: by request, by a signal, or by a restart."""
        node = self.sites["north"].node
        before, slices = known_of(node), node.learner.policies[""].partition
        self.write()
        for name in sorted(self.sites):
            if name != "north":
                await self.sites[name].reload()
        if how == 0:
            status, plan = await self.post("/admin/reload", {})
            assert status == 200, plan
        elif how == 1:
            site = self.sites["north"]
            site.on_hangup()
            await asyncio.gather(*site._tasks)
        else:
            await self.stop("north")
            await self.start("north")
        node = self.sites["north"].node
        present = {arm.name: arm for arm in node.arms if arm.place >= 0}
        assert present["tree"].version == self.version
        if node.learner.policies[""].partition == slices:
            check_unchanged(before, known_of(node))
        self.check()

    def renew(self) -> None:
        """Renew the certificates of all sites; their keys stay."""
        for name in ("north", "south", "west"):
            known = self.key(name)
            keys.renew(self.folder / f"{name}.crt", authority=self.folder / "office", now=self.now)
            assert self.key(name) == known
        for site in self.sites.values():
            site.reload_certificates()

    async def restore(self) -> None:
        """Stop, copy the store, lose it, and start from the copy."""
        await self.stop("north")
        path, copy = self.folder / "north.store", self.folder / "north.copy"
        base = sqlite3.connect(path)
        base.execute(f"VACUUM INTO '{copy}'")
        base.close()
        path.write_bytes(b"lost")
        Path(f"{path}-wal").unlink(missing_ok=True)
        path.unlink()
        copy.rename(path)
        await self.start("north")
        self.check()

    async def week(self, number: int) -> None:
        """Do what the operator does in a week."""
        self.retrain(f"w{number}")
        self.carry = 0.5 if number % 4 == 3 else 0.0
        match number:
            case 8 | 30:
                self.functions = ["tree", "rules", "zero"]
            case 20:
                self.functions = ["tree", "zero"]
            case 12:
                self.write()
                await self.start("west")
                self.asks, self.knows = ["south", "west"], ["south", "west"]
            case 26:
                self.slices = 4
            case 34:
                self.asks = ["south"]
            case 36:
                self.knows = ["south"]
                await self.stop("west")
            case 40:
                await self.restore()
            case 45:
                self.retrain("w43")
        if number % 11 == 10:
            self.renew()
        await self.change(number % 3)


def check_unchanged(before: Known, after: Known) -> None:
    """What was learnt of arms that stay is unchanged."""
    stay = {arm for _, arm in before} & {arm for _, arm in after}
    assert stay
    for key, counters in before.items():
        if key[1] in stay:
            assert after[key] == counters, key


def test_a_year_of_an_operator_loses_no_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    # Two samples a day: at one every five seconds, a year of them takes minutes.
    monkeypatch.setattr("covey.server.app.NOTED_S", 43_200.0)

    async def main() -> None:
        year = Year(tmp_path)
        year.retrain("w0")
        year.write()
        for name in ("south", "north"):
            await year.start(name)
        for number in range(1, WEEKS + 1):
            for _ in range(DAYS):
                await year.work()
                await asyncio.sleep(86_400)
                year.day += 1
            year.day += 7 - DAYS
            await year.week(number)
        for one in year.open:
            await year.label(*one)
        await year.sites["north"].node.drained()
        year.check()

        arms = {arm.id: arm for arm in year.stores["north"][0].arms()}
        trees = [arm for arm in arms.values() if arm.name == "tree"]
        assert (len(trees), sum(arm.place >= 0 for arm in trees)) == (WEEKS, 1)
        assert sum(year.acknowledged.values()) > 700
        assert {arm for arm, _ in year.acknowledged} >= {"zero", "rules", "south"}
        assert len({arm for arm, _ in year.acknowledged}) > 45
        assert year.refused == 0
        learnt = year.stores["south"][0].counters()
        assert sum(labels for labels, _ in learnt.values()) > 0
        for name in list(year.sites):
            assert year.stores[name][0].check() == []
            await year.stop(name)
        for name in ("south", "west"):
            store = Store(tmp_path / f"{name}.store")
            assert store.size()["labels"] == year.asked[name] > 0
            store.close()

    with asyncio.Runner(loop_factory=YearLoop) as runner:
        runner.run(main())
