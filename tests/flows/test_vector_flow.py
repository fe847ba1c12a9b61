"""Vectors as contexts in live sites: a network in process, a served site, its store and export."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey import cli
from covey.config import load
from covey.data import contexts
from covey.data.tables import open_log
from covey.server import oip
from support.coroutines import looped
from support.served import CONSTANTS, FEEDBACK, INFER, Client, run, served, serving_all
from support.site_processes import Offices, table

SIZE, SLOTS = 40, 60
RNG = np.random.default_rng(3)
VECTORS, HOURS = RNG.normal(size=(SLOTS, SIZE)), RNG.random(SLOTS)
LABELS = RNG.integers(0, 2, SLOTS)
SITE = f"""
[node]
name = "north"
features = {{ hour = "FP64", embedding = "FP64" }}
store = "north.store"
address = "127.0.0.1:0"

[data]
context = ["hour", {{ vector = "embedding", size = {SIZE} }}]

[policy]
POLICY

[[learner]]
name = "north"
functions = ["zero", "one"]
{CONSTANTS}
"""
POLICIES = {"auto": "", "cos": 'preset = "cos"\nslices = 2\nalpha = 1.0\npending = false'}
ONE = SITE.replace("POLICY", "")
POINTS = contexts.parse(["hour", {"vector": "embedding", "size": SIZE}]).extract(
    {"hour": HOURS, "embedding": VECTORS}, first_slot=1
)


def tables(policy: str) -> dict[str, Any]:
    given = tomllib.loads(SITE.replace("POLICY", POLICIES[policy]))
    return {key: given[key] for key in ("data", "policy", "learner")}


def tensor(name: str, numbers: np.ndarray) -> dict[str, Any]:
    told = {"name": name, "shape": [*numbers.shape], "datatype": "FP64"}
    return {**told, "data": numbers.tolist()}


def rows_in_json(rows: Sequence[int]) -> dict[str, Any]:
    return {"inputs": [tensor("hour", HOURS[rows]), tensor("embedding", VECTORS[rows])]}


async def in_bytes(client: Client, path: str, rows: Sequence[int]) -> Any:
    """Send both features as one tensor, in bytes."""
    content = np.column_stack([HOURS[rows], VECTORS[rows]]).tobytes()
    told = {"name": "instances", "shape": [len(rows), SIZE + 1], "datatype": "FP64"}
    head = {"inputs": [{**told, "parameters": {"binary_data_size": len(content)}}]}
    text = json.dumps(head).encode()
    headers = {"Content-Type": "application/octet-stream", oip.LENGTH: str(len(text))}
    _, answer = await client.post(path, text + content, **headers)
    return answer


def record(row: int) -> dict[str, Any]:
    return {"hour": HOURS[row], "embedding": VECTORS[row]}


def replayed(policy: str) -> list[tuple[str, str]]:
    zeros = np.zeros(SLOTS, np.int64)
    data = {"label": LABELS, "zero": zeros, "one": zeros + 1, "hour": HOURS, "embedding": VECTORS}
    columns = covey.replay(tables(policy), data=data).columns()
    return list(zip(columns["phase"], columns["arm"], strict=True))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_served_site_decides_as_a_replay_also_after_a_restart(
    policy: str, tmp_path: Path
) -> None:
    text = SITE.replace("POLICY", POLICIES[policy])
    live: list[tuple[str, str]] = []

    async def story(client: Client) -> None:
        for row in range(len(live), len(live) + SLOTS // 2):
            if row % 2:
                answer = await in_bytes(client, INFER, [row])
            else:
                _, answer = await client.post(INFER, rows_in_json([row]))
            live.append((answer["parameters"]["phase"], answer["parameters"]["arm"]))
            await client.post(FEEDBACK, {"id": answer["id"], "truth": int(LABELS[row])})

    run(tmp_path, story, text)
    run(tmp_path, story, text)

    assert live == replayed(policy)


def test_a_function_gets_the_vector_in_its_record_or_row(tmp_path: Path) -> None:
    rows = oip.TensorTable({"hour": HOURS[:3], "embedding": VECTORS[:3]}, None, 3)

    record = rows.records()[1]
    assert record == {"hour": HOURS[1], "embedding": VECTORS[1].tolist()}
    assert oip.flattened(record.values()) == [HOURS[1], *VECTORS[1].tolist()]
    assert np.array_equal(rows.matrix(), np.column_stack([HOURS[:3], VECTORS[:3]]))
    mixed = oip.TensorTable({"kind": ["a", "b"], "embedding": VECTORS[:2]}, None, 2)
    assert mixed.matrix() == [["a", *VECTORS[0].tolist()], ["b", *VECTORS[1].tolist()]]


def file_of(offices: Offices, name: str, other: str, label: int) -> str:
    node = {"features": {"hour": "FP64", "embedding": "FP64"}}
    data = table("[data]", {"context": ["hour", {"vector": "embedding", "size": SIZE}]})
    known = offices.peer(other, share="data", **{"may-ask": True})
    own = {"learner": {"peers": {other: 0.01}}, "labels": {"f": label}}
    return offices.file(name, data, known, **own, **node)


@looped
async def test_sites_ask_each_other_with_vectors(tmp_path: Path) -> None:
    offices = Offices(tmp_path, ["north", "south"])
    sites = [("north", "south", 0), ("south", "north", 1)]
    files = {site[0]: file_of(offices, *site) for site in sites}
    arms = []
    async with serving_all(tmp_path, files) as clients:
        for rows in np.split(np.arange(SLOTS), 12):
            _, answer = await clients["north"].post(
                INFER, {**rows_in_json(rows), "outputs": [{"name": "arm"}]}
            )
            arms += answer["outputs"][0]["data"]
            truth = {"rows": [*range(len(rows))], "truth": [1] * len(rows)}
            await clients["north"].post(FEEDBACK, {"id": answer["id"], **truth})

    assert arms.count("south") > SLOTS / 2  # its function is right, the own one is not


WRONG: list[tuple[Mapping[str, Any], str]] = [
    ({"shape": [1]}, "input 'embedding' has shape [1]; expected [rows, 40]"),
    ({"shape": [1, 39]}, "input 'embedding' has shape [1, 39]; expected [rows, 40]"),
    ({"data": [0.5] * 39}, "input 'embedding' has 39 values for shape [1, 40]"),
    ({"data": [*[0.5] * 39, None]}, "input 'embedding' holds null, which is not FP64"),
    ({"datatype": "BYTES"}, "input 'embedding' has datatype 'BYTES'; expected FP64"),
    ({"name": "embeding"}, "unknown feature 'embeding'; known: hour, embedding"),
]


@served(ONE)
async def test_a_request_with_a_wrong_vector_is_refused(client: Client) -> None:
    for change, sentence in WRONG:
        body = rows_in_json([0])
        body["inputs"][1] |= change
        status, told = await client.post(INFER, body)

        assert (status, told["detail"]) == (422, sentence)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_store_with_vectors_is_exported_reported_and_replayed(kind: str, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        _, answer = await client.post(INFER, rows_in_json(range(SLOTS)))
        truth = {"rows": [*range(SLOTS)], "truth": LABELS.tolist()}
        await client.post(FEEDBACK, {"id": answer["id"], **truth})

    run(
        tmp_path, story, ONE.replace('store = "north.store"', 'store = "north.store"\nshadow = 1.0')
    )
    result = covey.open_store(tmp_path / "north.store")
    assert result.outcome.context_names[:3] == ["hour", "embedding[0]", "embedding[1]"]
    assert [cell.name for cell in result.outcome.learners[0].cells] == ["z0"]
    assert "of more than two contexts" in result.report(tmp_path / "report").read_text()
    log = tmp_path / f"log.{kind}"
    cli.main(["export", str(tmp_path / "north.store"), "--out", str(log)])

    setup = load(log.with_suffix(".toml"))
    (columns,) = open_log(log, setup.context.columns).chunks()
    points = setup.context.extract(columns, first_slot=1)
    assert np.array_equal(points, POINTS)
    assert len(covey.replay(log.with_suffix(".toml"), data=log)) == SLOTS
