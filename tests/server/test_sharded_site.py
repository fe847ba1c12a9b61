"""`covey serve --shards`: what it refuses, and what becomes of processes that are killed."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey import cli
from covey.errors import ConfigError
from covey.node.store import Store
from covey.server import config, sharded
from covey.server.doctor import examine
from covey.server.shard import store_of
from support.served import CONSTANTS
from support.sharded import KEY, question

SITE = (
    """
[node]
name = "north"
features = { size = "FP64" }
store = "north.store"
address = "127.0.0.1:0"
dimension = 1

[policy]
preset = "cos"
pending = false
slices = 8

[[learner]]
name = "north"
functions = ["zero", "one"]
"""
    + CONSTANTS
)
KEYS = 'certificate = "a.crt"\nkey = "a.key"\nauthority = "ca.crt"\npeer-address = "127.0.0.1:0"\n'
PEER = f'[[peer]]\nname = "south"\nkey = "{KEY}"\nurl = "https://127.0.0.1:9"\nshare = "data"\n'
TAUGHT = 'kind = "python"\nentry = "support.sharded:Learning"\nclasses = [0, 1]'


def with_peer(text: str, peer: str = "", peers: str = "south = 0.1") -> str:
    text = text.replace("dimension = 1\n", f"dimension = 1\n{KEYS}")
    text = text.replace('"one"]\n', f'"one"]\npeers = {{ {peers} }}\n')
    return text + PEER + peer


def test_a_site_of_a_grid_can_be_divided(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(with_peer(SITE, 'may-ask = true\ntrust = "isolated"\n'))

    sharded.check_divisible(config.load(tmp_path / "site.toml"), 3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SITE.replace('preset = "cos"\npending = false', ""), "preset 'auto' couples all cells"),
        (SITE.replace("pending = false\n", ""), "pending couples all cells"),
        (SITE.replace('preset = "cos"', 'preset = "dcza"').replace("slices = 8", ""), "'dcza'"),
        (SITE.replace("dimension = 1\n", ""), "only one cell; set context or dimension"),
        (SITE.replace('kind = "constant"\nlabel = 0', TAUGHT), "function zero learns"),
        (with_peer(SITE, "may-ask = true\n"), 'south has trust = "earned"'),
        (with_peer(SITE, "budget = { per-day = 5.0 }\n"), "budget is spent by all cells"),
        (with_peer(SITE).replace('"one"]\n', '"one"]\nrelay = true\n'), "relay = true"),
        (SITE.replace("dimension = 1", "dimension = 1\nshadow = 0.1"), "[node] shadow is for"),
        (
            with_peer(SITE, "", "south = 0.0") + "[ensemble]\nbase = 0\n",
            "[ensemble] couples all cells",
        ),
    ],
    ids=[
        "auto",
        "pending",
        "dcza",
        "one cell",
        "learns",
        "earned",
        "budget",
        "relay",
        "shadow",
        "ensemble",
    ],
)
def test_what_couples_all_cells_is_refused_by_name(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "site.toml").write_text(text)

    with pytest.raises(ConfigError, match=re.escape(sentence)):
        sharded.check_divisible(config.load(tmp_path / "site.toml"), 2)


@pytest.mark.parametrize("shards", [0, 65])
def test_the_number_of_shards_is_checked(
    tmp_path: Path, shards: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text(SITE)

    assert cli.main(["serve", str(tmp_path / "site.toml"), "--shards", str(shards)]) == 2
    assert "it must be from 1 to 64" in capsys.readouterr().err


@pytest.mark.parametrize(("there", "wanted"), [(0, 2), (2, 0), (2, 3)])
def test_stores_of_another_number_of_shards_are_refused(
    tmp_path: Path, there: int, wanted: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    store = tmp_path / "north.store"
    Store(store_of(store, 1, there) if there else store)
    more = ["--shards", str(wanted)] if wanted else []

    assert cli.main(["serve", str(tmp_path / "site.toml"), *more]) == 2
    assert "was written with another number of shards" in capsys.readouterr().err


def test_a_start_is_refused_if_the_store_of_a_shard_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    Store(store_of(tmp_path / "north.store", 2, 2))

    assert cli.main(["serve", str(tmp_path / "site.toml"), "--shards", "2"]) == 2
    assert "north.store.1-of-2 is missing, and" in capsys.readouterr().err


def test_the_doctor_examines_every_store(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    for number in (1, 2):
        Store(store_of(tmp_path / "north.store", number, 2)).close()

    found = [one for one in examine(tmp_path / "site.toml") if one.what in ("shards", "store")]

    assert [one.state for one in found] == ["ok"] * 3
    assert "--shards 2" in found[0].message
    (tmp_path / "north.store.1-of-2").unlink()
    missing = [one for one in examine(tmp_path / "site.toml") if one.what == "shards"]
    assert [one.state for one in missing] == ["failure"]


# -- processes ------------------------------------------------------------------------------------


class Site:
    """A served site, and one connection to it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stderr is not None
        url = process.stderr.readline().strip()
        assert url.startswith("http"), url + process.stderr.read()
        self._way = http.client.HTTPConnection(url.split("/")[2], timeout=30)

    def send(self, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
        data = None if body is None else json.dumps(body)
        self._way.request("GET" if body is None else "POST", path, data)
        answer = self._way.getresponse()
        return answer.status, json.loads(answer.read()), dict(answer.getheaders())

    def close(self) -> None:
        self._way.close()

    def state(self) -> Any:
        return self.send("/v2/models/north/state")[1]

    def until_ready(self) -> None:
        while self.send("/v2/health/ready")[0] != 200:
            pass  # asking takes its time

    def label(self, id_: str, truth: int) -> int:
        return self.send("/v2/models/north/feedback", {"id": id_, "truth": truth})[0]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Site]:
    command = [sys.executable, "-m", "covey", "serve", str(folder / "site.toml"), "--shards", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            with contextlib.closing(Site(process)) as site:
                yield site
        finally:
            process.kill()


def test_killed_processes_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    points = [(k + 0.5) / 8 for k in range(8)]
    with serving(tmp_path) as site:
        asked = [site.send(*question(f"a{k}", [x]))[0] for k, x in enumerate(points)]
        labelled = [site.label(f"a{k}", 1) for k in range(8)]
        pids = [shard["pid"] for shard in site.state()["shards"]]
        os.kill(pids[0], signal.SIGKILL)
        found = [site.send(*question(f"b{k}", [x])) for k, x in enumerate(points)]
        site.until_ready()
        again = [site.send(*question(f"b{k}", [x]))[0] for k, x in enumerate(points)]
        conflict = site.send(*question("a3", [0.9]))[0]
        state = site.state()
        os.kill(site.process.pid, signal.SIGKILL)  # the router; its shards end with it
        site.process.wait()

    assert set(asked) == {200}
    assert set(labelled) == {202}
    away = [headers for status, _, headers in found if status == 503]
    assert 0 < len(away) < 8
    assert all(int(headers["Retry-After"]) > 0 for headers in away)
    assert {status for status, _, _ in found} == {200, 503}
    assert set(again) == {200}
    assert conflict == 409
    assert sum(arm["labels"] for arm in state["arms"]) == 8
    assert [shard["restarts"] for shard in state["shards"]] == [1, 0]

    with serving(tmp_path) as site:
        after = site.state()
        repeated = [site.label(f"a{k}", 1) for k in range(8)]
        site.process.send_signal(signal.SIGTERM)
        code = site.process.wait(30)

    assert after["slot"] == state["slot"] >= 16  # that of a request in progress is not given again
    assert sum(arm["labels"] for arm in after["arms"]) == 8
    assert set(repeated) == {200}
    assert code == 0
