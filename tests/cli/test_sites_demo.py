"""The example of four sites, in short: it runs, and it would notice if something were missing."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from covey.node.store import Store
from support.site_processes import SRC

EXAMPLE = SRC.parent / "examples" / "sites"


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """The folder of a short run, its exit code, and its output."""
    folder = tmp_path_factory.mktemp("four")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), "--flows", "60", "--folder", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        check=False,
    )
    return folder, done.returncode, done.stdout + done.stderr


def test_a_killed_and_restarted_site_loses_no_label(finished_run: tuple[Path, int, str]) -> None:
    folder, code, output = finished_run

    assert code == 0, output
    assert "west is killed (SIGKILL)" in output
    assert "missing: 0, not delivered to a peer: 0, counted twice: 0" in output
    assert str(folder) in output


def test_the_other_sites_continue_and_ask_each_other(finished_run: tuple[Path, int, str]) -> None:
    with_peers = 0
    for name in ("north", "east", "south", "west"):
        store = Store(finished_run[0] / name / f"{name}.store", is_new_allowed=False)
        found = [store.find("client/stream", f"flow-{place}") for place in range(60)]
        store.close()
        assert None not in found
        with_peers += sum(one is not None and one[0].group(0).peer != "" for one in found)

    assert with_peers > 0


def test_a_label_that_is_not_in_the_store_would_be_noticed(
    finished_run: tuple[Path, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    example: Any = import_module("run")
    site = SimpleNamespace(name="north", store=finished_run[0] / "north" / "north.store")

    def stream(acknowledged: dict[str, str]) -> Any:
        return SimpleNamespace(site=site, acknowledged=acknowledged, repeated=0, answers=[])

    def lost(acknowledged: dict[str, str]) -> int:
        store = Store(site.store, is_new_allowed=False)
        try:
            return int(example._missing([stream(acknowledged)], {"north": store})[0])
        finally:
            store.close()

    assert lost({}) == 0
    assert lost({"flow-61": "attack"}) == 1  # there is no such flow
    assert lost({"flow-0": "a third kind"}) == 1  # there is another label
    assert example.verify([stream({"flow-61": "attack"})]) > 0
