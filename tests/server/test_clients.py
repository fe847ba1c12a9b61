"""Other projects' clients, unmodified, against served sites: each in an environment of its own."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.corpus import site
from support.required import ROOT, environment, program

ROWS_SITE = """
[node]
name = "rows"
features = { a = "FP64", b = "FP64" }
instance = "row"
classes = [0, 1]
store = "rows.store"
address = "127.0.0.1:0"

[[learner]]
name = "rows"
functions = ["larger"]

[[function]]
name = "larger"
kind = "python"
entry = "client_rules:is_first_larger"
"""
WORDS_SITE = """
[node]
name = "words"
features = { size = "FP64", colour = "BYTES" }
dimension = 1
store = "words.store"
address = "127.0.0.1:0"

[[learner]]
name = "words"
functions = ["large"]

[[function]]
name = "large"
kind = "python"
entry = "client_rules:said"
"""
RULES = """
def is_first_larger(row):
    return int(row[0] > row[1])


def said(record):
    return f"{record['colour']}, {record['size']:g}"
"""
# What the sites answer to the rows of tests/clients/asked.py.
LABELS = [0, 1, 1]
SENTENCES = ["red, 1.5", "grün, 20", "red, 30"]
CLIENTS = {"triton": 92, "kserve": 11, "mlserver": 10, "generated": 10}  # and how many answers


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    folder = tmp_path_factory.mktemp("sites")
    for name in ("rows", "words"):
        (folder / name).mkdir()
        (folder / name / "client_rules.py").write_text(RULES)
    with site(folder / "rows", ROWS_SITE) as rows, site(folder / "words", WORDS_SITE) as words:
        yield {"rows": rows.port, "words": words.port}


def run(client: str, ports: dict[str, int], folder: Path) -> dict[str, Any]:
    """Run the script of a client in its environment; return what it was told."""
    script = ROOT / "tests" / "clients" / f"{client}_client.py"
    where = ",".join(f"{name}={port}" for name, port in ports.items())
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [environment(client), script, where],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=plain,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("client", CLIENTS)
def test_a_foreign_client_gets_the_labels_in_every_way_it_asks(
    client: str, ports: dict[str, int], tmp_path: Path
) -> None:
    told = run(client, ports, tmp_path)
    metadata = told.pop("metadata", None)

    assert told == {name: SENTENCES if "texts" in name else LABELS for name in told}
    assert len(told) == CLIENTS[client]
    if metadata is not None:
        assert metadata["versions"] == ["1"]
        assert metadata["outputs"][0] == {"name": "label", "datatype": "INT64", "shape": [-1]}


def test_the_curl_commands_of_the_page_work(tmp_path: Path) -> None:
    program("curl")
    page = (ROOT / "docs" / "operations" / "node.md").read_text()
    (text,) = re.findall(r'Path\("site.toml"\).write_text\("""(.*?)"""', page, re.DOTALL)
    block, *_ = re.findall(r"^```console\n(\$ curl .*?)^```", page, re.DOTALL | re.MULTILINE)
    with site(tmp_path, text) as served:
        told = []
        for command in block.replace("8080", str(served.port)).split("$ curl ")[1:]:
            sent = ["curl", "--silent", "--fail", *shlex.split(command)]
            done = subprocess.run(sent, capture_output=True, check=True)
            told.append(json.loads(done.stdout))

    assert told[0]["outputs"][1]["data"] == ["flow-18"]
    assert told[1]["new"] is True
