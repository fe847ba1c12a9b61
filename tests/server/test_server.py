"""A served site over real HTTP on the loopback: the protocol, labels, and whatever else is sent."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from covey.errors import StoreError
from covey.store.store import Store
from support.ports import is_served
from support.served import FEEDBACK, INFER, INPUTS, SITE, Client, infer, run, served


@served()
async def test_health_and_metadata_are_as_the_protocol_has_them(client: Client) -> None:
    status, told = await client.get("/v2")
    assert (status, told["extensions"][:2]) == (200, ["covey_feedback", "binary_tensor_data"])
    status, told = await client.get("/v2/models/north")
    assert [one["name"] for one in told["inputs"]] == ["size", "kind", "context"]
    assert told["inputs"][2] == {"name": "context", "datatype": "FP64", "shape": [-1, 1]}


@served()
async def test_an_answer_echoes_the_id_and_names_arm_and_phase(client: Client) -> None:
    status, told = await client.post(INFER, infer("a"))

    assert status == 200
    assert (told["model_name"], told["id"]) == ("north", "a")
    assert told["outputs"] == [
        {"name": "label", "shape": [1], "datatype": "INT64", "data": [0]},
        {"name": "ticket", "shape": [1], "datatype": "BYTES", "data": ["a"]},
    ]
    assert told["parameters"] == {
        "phase": "explore",
        "arm": "zero",
        "function": "zero",
        "price": 0.0,
    }


def test_a_label_is_202_then_200_then_409_and_404_where_unknown(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a"))

        told = [
            await client.post(FEEDBACK, {"id": id_, "truth": truth})
            for id_, truth in (("a", 0), ("a", 0), ("a", 1), ("b", 0))
        ]

        assert [status for status, _ in told] == [202, 200, 409, 404]
        assert told[0][1] == {"id": "a", "new": True, "right": True}
        assert [body["code"] for _, body in told[2:]] == ["conflict", "ticket_unknown"]

    run(tmp_path, story)
    assert Store(tmp_path / "north.store").counters() == {("g4:1", "", "zero"): (1, 1)}


@served()
async def test_a_label_that_comes_too_late_is_410(client: Client) -> None:
    for k in range(30):
        await client.post(INFER, infer(str(k)))

    status, told = await client.post(FEEDBACK, {"id": "0", "truth": 0})

    assert (status, told["code"]) == (410, "label_too_late")


@served()
async def test_the_same_request_again_gets_the_same_answer_and_another_409(client: Client) -> None:
    other = [{**INPUTS[0], "data": [2.5]}, *INPUTS[1:]]

    first = await client.post(INFER, infer("a"))
    again = await client.post(INFER, infer("a"))
    status, told = await client.post(INFER, infer("a", inputs=other))

    assert again == first
    assert (status, told["code"]) == (409, "conflict")


@served()
async def test_the_decisions_of_rows_are_returned_on_request(client: Client) -> None:
    how = ("phase", "arm", "function", "price")
    outputs = [{"name": name} for name in ("label", *how)]
    two = [{**one, "shape": [2, *one["shape"][1:]], "data": one["data"] * 2} for one in INPUTS]

    _, one = await client.post(INFER, infer("a", outputs=outputs))
    _, many = await client.post(INFER, infer("b", inputs=two, outputs=outputs))

    told = {output["name"]: output["data"] for output in one["outputs"]}
    assert {name: [one["parameters"][name]] for name in how} == {k: told[k] for k in how}
    told = {output["name"]: output["data"] for output in many["outputs"]}
    assert list(told) == ["label", *how]
    assert told["arm"] == told["function"] == ["one", "zero"]
    assert told["label"] == [1, 0]
    assert (told["phase"], told["price"]) == (["explore"] * 2, [0.0] * 2)
    status, told = await client.post(INFER, infer("c", outputs=[{"name": "labels"}]))
    assert (status, "known: label, ticket" in told["detail"]) == (422, True)


@served(SITE.replace("[node]", '[node]\nslots = "given"'))
async def test_where_slots_are_given_the_node_goes_by_them(client: Client) -> None:
    for slot in (5, 40, 12):
        status, _ = await client.post(INFER, infer(str(slot), parameters={"slot": slot}))
        assert status == 200
    status, state = await client.get("/v2/models/north/state")

    assert (status, state["slot"]) == (200, 40)
    assert (await client.post(INFER, infer("none")))[0] == 422


LOOKS_BACK = SITE.replace("dimension = 1\n", "").replace(
    "[policy]", '[data]\ncontext = [{ scale = "previous-label", classes = [0, 1, 2] }]\n[policy]'
)


def test_the_previous_label_of_a_site_places_the_next_instance(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        for id_ in "abc":
            assert (await client.post(INFER, infer(id_, inputs=INPUTS[:2])))[0] == 200
        await client.post(FEEDBACK, {"id": "b", "truth": 2})
        await client.post(FEEDBACK, {"id": "a", "truth": 0})  # older, and too late to be looked at
        assert (await client.post(INFER, infer("d", inputs=INPUTS[:2])))[0] == 200

    async def after_a_restart(client: Client) -> None:
        again = infer("d", inputs=INPUTS[:2])
        assert (await client.post(INFER, again))[0] == 200
        assert (await client.post(INFER, infer("e", inputs=INPUTS[:2])))[0] == 200
        await client.post(FEEDBACK, {"id": "e", "truth": 1})
        assert (await client.post(INFER, again))[0] == 200  # the very same, whatever came since
        two = [{**one, "shape": [2], "data": one["data"] * 2} for one in INPUTS[:2]]
        assert (await client.post(INFER, infer("f", inputs=two)))[0] == 200
        await client.post(FEEDBACK, {"id": "f", "rows": [1, 0], "truth": [2, 0]})
        assert (await client.post(INFER, infer("g", inputs=INPUTS[:2])))[0] == 200

    run(tmp_path, story, LOOKS_BACK)
    run(tmp_path, after_a_restart, LOOKS_BACK)

    store = Store(tmp_path / "north.store")
    found = {id_: store.find("", id_) for id_ in "abcdefg"}
    contexts = {
        id_: [one[0].context(row) for row in range(len(one[0]))]
        for id_, one in found.items()
        if one is not None
    }
    assert contexts == {
        **{id_: [(0.0,)] for id_ in "abc"},
        **{id_: [(1.0,)] for id_ in "deg"},
        "f": [(0.5,), (0.5,)],
    }


def test_a_label_that_nothing_can_look_back_at_is_refused(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a", inputs=INPUTS[:2]))
        status, told = await client.post(FEEDBACK, {"id": "a", "truth": 7})
        assert (status, "one of the classes" in told["detail"]) == (422, True)
        assert (await client.post(FEEDBACK, {"id": "a", "truth": 2}))[0] == 202

    run(tmp_path, story, LOOKS_BACK)
    with pytest.raises(StoreError, match=r"classes \(0, 1, 2\), initial 0\) before, .* now"):
        run(tmp_path, story, LOOKS_BACK.replace("[0, 1, 2]", "[0, 1]"))


def changed(place: int, **changes: Any) -> list[dict[str, Any]]:
    return [{**one, **changes} if k == place else one for k, one in enumerate(INPUTS)]


DEEP = b"[" * 100_000
BAD: dict[str, tuple[Any, int]] = {
    "empty": (b"", 400),
    "no JSON": (b"{", 400),
    "NaN": (json.dumps(infer(inputs=changed(0, data=[float("nan")]))).encode(), 400),
    "Infinity": (json.dumps(infer(inputs=changed(0, data=[float("inf")]))).encode(), 400),
    "1e400": (json.dumps(infer()).encode().replace(b"1.5", b"1e400"), 400),
    "4,301 digits": (json.dumps(infer()).encode().replace(b"1.5", b"9" * 4301), 400),
    "deep": (b'{"inputs":' + DEEP[:10_000] + b"]" * 6_000, 400),
    "deep and whole": (b'{"inputs":' + DEEP[:7_000] + b"]" * 7_000 + b"}", 400),
    "a key twice": (b'{"inputs": [], "inputs": []}', 400),
    "not UTF-8": (b'{"id": "\xff"}', 400),
    "a lone surrogate": (b'{"id": "\\ud800", "inputs": []}', 400),
    "UTF-16": (json.dumps(infer()).encode("utf-16"), 400),
    "a list": (b"[]", 422),
    "null": (b"null", 422),
    "an unknown field of a tensor": (infer(inputs=changed(0, more=1)), 422),
    "true for 1": (infer(inputs=changed(0, data=[True])), 422),
    "text for 1": (infer(inputs=changed(0, data=["1"])), 422),
    "2**53 + 1": (infer(inputs=changed(0, data=[2**53 + 1])), 422),
    "a number for text": (infer(inputs=changed(1, data=[1])), 422),
    "null in data": (infer(inputs=changed(0, data=[None])), 422),
    "an object in data": (infer(inputs=changed(0, data=[{}])), 422),
    "lists and values": (infer(inputs=changed(0, shape=[2], data=[1, [2]])), 422),
    "too few values": (infer(inputs=changed(0, shape=[2])), 422),
    "a negative shape": (infer(inputs=changed(0, shape=[-1])), 422),
    "a huge shape": (infer(inputs=changed(0, shape=[10**30])), 413),
    "no shape": (infer(inputs=changed(0, shape=[])), 422),
    "no rows": (infer(inputs=changed(0, shape=[0], data=[])), 422),
    "another datatype": (infer(inputs=changed(0, datatype="COMPLEX")), 422),
    "an unknown feature": (infer(inputs=[*INPUTS, {**INPUTS[0], "name": "more"}]), 422),
    "a missing feature": (infer(inputs=INPUTS[1:]), 422),
    "an input twice": (infer(inputs=[*INPUTS, INPUTS[0]]), 422),
    "no context": (infer(inputs=INPUTS[:2]), 422),
    "a context outside": (infer(inputs=changed(2, data=[1.0000001])), 422),
    "a context of two": (infer(inputs=changed(2, shape=[1, 2], data=[0.1, 0.1])), 422),
    "an unknown output": (infer(outputs=[{"name": "x"}]), 422),
    "a long id": (infer("x" * 201), 422),
    "NUL in the id": (infer("a\0"), 422),
    "a number for the id": (infer(id_=None, id=1), 422),
    "too large": (infer("x" * 20_000), 413),
}


def test_whatever_is_sent_is_refused_with_a_problem_and_moves_nothing(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        told = {}
        for name, (body, _) in BAD.items():
            sent = body.encode() if isinstance(body, str) else body
            status, problem = await client.post(INFER, sent)
            told[name] = status
            assert problem["status"] == status
            assert {"code", "detail", "error", "title", "type"} <= problem.keys()

        assert told == {name: status for name, (_, status) in BAD.items()}

    run(tmp_path, story)
    assert len(BAD) == 39
    assert Store(tmp_path / "north.store").size()["rows"] == 0


@served()
async def test_a_version_may_be_named_in_the_path(client: Client) -> None:
    model = "/v2/models/north"
    _, plain = await client.get(model)
    assert await client.get(f"{model}/versions/1") == (200, plain)
    assert (await client.get(f"{model}/versions/1/ready"))[0] == 200
    _, told = await client.post(f"{model}/versions/1/infer", infer("a"))
    assert (await client.post(INFER, infer("a")))[1] == told
    for path, code in {
        f"{model}/versions/2": "model_unknown",
        f"{model}/versions/2/infer": "model_unknown",
        f"{model}/versions/1/state": "not_found",
        f"{model}/states": "not_found",
        "/v2/models/south/versions/1": "model_unknown",
    }.items():
        assert (await client.get(path))[1]["code"] == code


@served()
async def test_configuration_and_statistics_are_as_perf_analyzer_reads_them(client: Client) -> None:
    for id_ in ("a", "b", 7):
        await client.post(INFER, infer(id_))
    _, config = await client.get("/v2/models/north/config")
    _, told = await client.get("/v2/models/north/versions/1/stats")
    (stats,) = told["model_stats"]
    inferences = stats["inference_stats"]

    assert config["input"][1] == {"name": "kind", "data_type": "TYPE_STRING", "dims": [-1]}
    assert (config["name"], config["max_batch_size"]) == ("north", 0)
    assert (stats["inference_count"], inferences["fail"]["count"]) == (2, 1)
    assert inferences["success"]["ns"] > 0 == inferences["queue"]["ns"]


@served()
async def test_feedback_that_makes_no_sense_is_422(client: Client) -> None:
    await client.post(INFER, infer("a"))
    truths = [{}, *({"truth": truth} for truth in (None, [0], 2**60)), {"truth": 0, "reward": 1}]
    for body in ({}, {"id": 1, "truth": 0}, *({"id": "a", **one} for one in truths)):
        status, told = await client.post(FEEDBACK, body)

        assert (status, told["code"]) == (422, "invalid")


@served()
async def test_wrong_paths_methods_and_types_are_4xx(client: Client) -> None:
    told = [
        await client.get("/nowhere"),
        await client.get("/v2/models/south"),
        await client.get(INFER),
        await client.post("/v2/models/south/infer", infer()),
        await client.post(INFER, infer(), **{"Content-Type": "text/plain"}),
        await client.post(INFER, infer(), **{"Content-Encoding": "br"}),
        await client.post(INFER, infer(), **{"Content-Encoding": "gzip"}),
    ]

    assert [status for status, _ in told] == [404, 404, 405, 404, 415, 415, 400]
    assert all("code" in body for _, body in told)


def test_a_site_whose_functions_all_fail_is_500_with_a_code(tmp_path: Path) -> None:
    text = SITE
    for label in (0, 1):
        old = f'kind = "constant"\nlabel = {label}'
        text = text.replace(old, 'kind = "python"\nentry = "operator:truediv"')

    async def story(client: Client) -> None:
        status, told = await client.post(INFER, infer("a"))

        assert (status, told["code"]) == (500, "function_failed")
        assert "function 'zero'" in told["detail"]

    run(tmp_path, story, text)


def test_a_second_stop_signal_ends_a_node_immediately(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "waiting.py").write_text(f"def wait(instance):\n    open({str(pipe)!r}).read()\n")
    waits = 'kind = "python"\nentry = "waiting:wait"'
    (tmp_path / "site.toml").write_text(SITE.replace('kind = "constant"\nlabel = 0', waits))
    process, root = started(tmp_path)
    host, port = root.removeprefix("http://").split(":")
    body = json.dumps(infer("a")).encode()
    head = f"POST {INFER} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        with pipe.open("w"):  # the function is at work
            process.send_signal(signal.SIGTERM)
            while is_served(root):
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            process.communicate()

    assert process.returncode == -signal.SIGTERM


def started(folder: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "covey", "serve", str(folder / "site.toml")],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
    )
    assert process.stderr is not None
    return process, process.stderr.readline().strip().removesuffix("/v2/models/north")
