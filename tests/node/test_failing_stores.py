"""A store that fails ends its site; a full disk does not."""

import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from covey import cli
from covey.store.store import Store
from support.ports import is_served
from support.served import FEEDBACK, INFER, SITE, infer

ROOM = 300_000  # bytes that a file of the site may have: enough for its start, and a few labels
# A write beyond that fails as a broken disk does, and not as a full one.
SERVE = f"""
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}))
sys.argv = ["covey", "serve", "site.toml"]
runpy.run_module("covey", run_name="__main__")
"""


def post(url: str, body: Any) -> tuple[int, Any]:
    sent = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - http
    try:
        with urlopen(sent) as response:  # noqa: S310 - http
            return response.status, json.load(response)
    except HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def started(folder: Path, text: str = SITE) -> tuple[subprocess.Popen[str], str]:
    (folder / "site.toml").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
    )
    assert process.stderr is not None
    return process, process.stderr.readline().strip().removesuffix("/v2/models/north")


def test_a_store_that_fails_ends_the_site_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    process, root = started(tmp_path)
    status, told, acknowledged = 202, {}, 0
    while status in (200, 202):
        for path, body in ((INFER, infer(str(acknowledged))), (FEEDBACK, label(acknowledged))):
            status, told = post(root + path, body)
            if status not in (200, 202):
                break
        acknowledged += status == 202
    _, said = process.communicate()

    assert (status, told["code"]) == (503, "store_failed")
    assert process.returncode == 74
    assert said.count("\n") == 1
    assert "disk I/O error" in said
    assert "check the disk, and restart" in said
    assert acknowledged > 0
    assert cli.main(["check", str(tmp_path / "north.store")]) == 0
    store = Store(tmp_path / "north.store")
    found = [store.find("", str(k)) for k in range(acknowledged)]
    assert [one[0].truths for one in found if one] == [[1]] * acknowledged


@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit, to let writes fail from now on")
def test_a_store_that_fails_while_a_site_stops_is_reported_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "waiting.py").write_text(
        f"def wait(x):\n    return len(open({str(pipe)!r}).read())\n"
    )
    waits = 'kind = "python"\nentry = "waiting:wait"'
    process, root = started(tmp_path, SITE.replace('kind = "constant"\nlabel = 0', waits))
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(post, root + INFER, infer("a"))
        with pipe.open("w"):  # the function is running
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))
            process.send_signal(signal.SIGTERM)
            while is_served(root):
                assert process.poll() is None
        status, told = answer.result()
    process.communicate()

    assert (status, told["code"]) == (503, "store_failed")
    assert process.returncode == 74


def label(number: int) -> dict[str, Any]:
    return {"id": str(number), "truth": 1}


def test_a_site_whose_store_is_deleted_acknowledges_nothing_more_and_keeps_what_it_had(
    tmp_path: Path,
) -> None:
    process, root = started(tmp_path)
    store = tmp_path / "north.store"
    first = [post(root + INFER, infer("0"))[0], post(root + FEEDBACK, label(0))[0]]
    post(root + INFER, infer("1"))
    store.unlink()
    (tmp_path / "north.store-wal").unlink()

    status, told = post(root + FEEDBACK, label(1))
    _, said = process.communicate()
    again, refused = started(tmp_path)
    again.communicate()
    (tmp_path / "north.store.saved").rename(store)
    found = Store(store).find("", "0")

    assert (first, status, told["code"]) == ([200, 202], 503, "store_failed")
    assert process.returncode == 74
    assert "north.store was removed while the site ran; all of it was saved" in said
    assert again.returncode == 2
    assert "north.store is not there, but what it held when it was removed" in refused
    assert found is not None
    assert found[0].truths == [1]
