"""The fifth door: sites that are served from files, and talk https to each other."""

from itertools import takewhile
from pathlib import Path
from typing import Any

from golden.configurations import SITES, Golden, Table
from golden.doors import Batch, Row, Stream
from support.served import Client, serving_all
from support.site_processes import Offices, table

TYPES = {int: "INT64", float: "FP64", str: "BYTES"}
OF_A_LOG = ("at", "batch", "label", "delay", "revealed")  # keys of [data] that no site has
HOW = ("phase", "arm", "function", "price")
RIGHTS = {"share": "data", "trust": "full", "may-ask": True, "functions": 2}


def file_of(golden: Golden, stream: Stream, offices: Offices, name: str) -> str:
    """Return the file of a site."""
    config = golden.config
    (own,) = (learner for learner in config["learner"] if learner["name"] == name)
    data = {key: value for key, value in config["data"].items() if key not in OF_A_LOG}
    features = {key: TYPES[type(values[0])] for key, values in stream.columns.items()}
    policy = {**config["policy"], "check-claims": False}  # as in a replay
    functions = {"kind": "python", "entry": "golden.doors:Answer"}
    is_by_context = any("context-peers" in learner for learner in config["learner"])
    rights = {**RIGHTS, "asks-by-context": is_by_context}
    return "\n".join(
        [
            offices.node(name, features=features, slots="given", shadow=0.0),
            table("[data]", data),
            table("[policy]", policy),
            *(table("[ensemble]", votes) for votes in [config.get("ensemble")] if votes),
            *(table("[[learner]]", learner) for learner in config["learner"]),
            *(table("[[link]]", link) for link in config.get("link", ())),
            *(offices.peer(other, **rights) for other in SITES if other != name),
            *(
                table("[[function]]", {"name": f, **functions, "options": {"name": f}})
                for f in own["functions"]
            ),
        ]
    )


async def decided(golden: Golden, folder: Path, *, slots: int) -> list[Row]:
    """Return what served sites decide in the first slots; their stores stay in the folder."""
    stream, offices = Stream(golden), Offices(folder, list(SITES))
    files = {name: file_of(golden, stream, offices, name) for name in SITES}
    decisions, arms = list[Row](), dict[str, str]()
    async with serving_all(folder, files) as clients:
        for batch in takewhile(lambda batch: batch.rows[-1] < slots, stream.arrivals()):
            rows = await _answer(clients[batch.site], stream, batch)
            arms[batch.id] = rows[-1][1]
            decisions += [
                (slot, batch.site, *row) for slot, row in zip(batch.slots, rows, strict=True)
            ]
            for due in stream.labelled_after(batch):
                await _label(clients, stream, due, arms[due.id])
    return decisions


async def _answer(client: Client, stream: Stream, batch: Batch) -> list[Row]:
    """Send the rows of a batch, and return how each was answered."""
    columns = {key: [values[row] for row in batch.rows] for key, values in stream.columns.items()}
    inputs = [
        {"name": key, "shape": [len(values)], "datatype": TYPES[type(values[0])], "data": values}
        for key, values in columns.items()
    ]
    body = {
        "id": batch.id,
        "inputs": inputs,
        "parameters": {"slot": batch.slots[0]},
        "outputs": [{"name": name} for name in HOW],
    }
    told = await _send(client, batch.site, "infer", body)
    outputs = {output["name"]: output["data"] for output in told["outputs"]}
    return list(zip(*(outputs[name] for name in HOW), strict=True))


async def _label(clients: dict[str, Client], stream: Stream, due: Batch, arm: str) -> None:
    """Send labels, and wait until all peers know them."""
    labels = stream.truth_of(due)
    if not labels:
        return
    if stream.is_batched:
        body = {"id": due.id, "truth": labels, "rows": [*range(len(labels))]}
    else:
        body = {"id": due.id, "truth": labels[0], "cost": stream.cost(due, arm)}
    await _send(clients[due.site], due.site, "feedback", body)
    for name in [due.site, *SITES] if stream.is_relayed else [due.site]:
        while arm in SITES and await _owed(clients[name], name):
            pass  # asking takes its time


async def _send(client: Client, site: str, what: str, body: Table) -> Any:
    path = f"{client.root}/v2/models/{site}/{what}"
    async with client.session.post(path, json=body) as response:
        told = await response.json()
        assert response.status < 300 or told["code"] == "label_too_late", told
        return told


async def _owed(client: Client, site: str) -> int:
    """Return how many labels a site has yet to pass on."""
    async with client.session.get(f"{client.root}/v2/models/{site}/state") as response:
        return int((await response.json())["owed"])
