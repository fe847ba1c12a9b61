"""Tensors in bytes are read as those in JSON are, or refused; what is written can be read again."""

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.functions.remote import RemoteTensor
from covey.node.functions import Limits
from covey.server import oip
from covey.server.http import BINARY, HttpProblem, HttpRequest
from covey.store.store import Store
from support.served import FEEDBACK, INFER, Client, run, served

FORMATS = {
    "BOOL": "?",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}


def packed(datatype: str, values: list[Any]) -> bytes:
    """The bytes of a tensor, one value after the other."""
    if datatype == "BYTES":
        texts = [value.encode() for value in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return b"".join(struct.pack("<" + FORMATS[datatype], value) for value in values)


def unpacked(output: dict[str, Any], tail: bytes) -> list[Any]:
    """The values of an output, and nothing else may be in its bytes."""
    values: list[Any] = []
    while tail:
        if output["datatype"] == "BYTES":
            (length,) = struct.unpack("<I", tail[:4])
            values.append(tail[4 : 4 + length].decode())
            tail = tail[4 + length :]
        else:
            size = struct.calcsize("<" + FORMATS[output["datatype"]])
            values += struct.unpack("<" + FORMATS[output["datatype"]], tail[:size])
            tail = tail[size:]
    return values


def read(datatype: str, part: bytes, shape: list[int], kind: Any = None) -> list[Any]:
    tensor = RemoteTensor("x", shape, datatype)  # type: ignore[arg-type]
    usual = "INT64" if datatype in oip.WHOLE else "FP64" if datatype in oip.NUMBERS else datatype
    return oip.plain(oip.column_of(tensor, {"x": memoryview(part)}, kind or usual))


LIMITS = {
    name: (0 if name[0] == "U" else -(2 ** (bits - 1)), 2 ** (bits - (name[0] != "U")) - 1)
    for name in oip.WHOLE
    for bits in [int(name.lstrip("UINT"))]
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, list[Any]]:
    datatype = draw(st.sampled_from([*FORMATS, "BYTES"]))
    if datatype in LIMITS:
        low, high = LIMITS[datatype]
        values = st.integers(max(low, -(2**53)), min(high, 2**53))
    else:
        width = int(datatype[2:]) if datatype[:2] == "FP" else 64
        usual = st.floats(allow_nan=False, allow_infinity=False, width=width)  # type: ignore[call-overload]
        values = {"BOOL": st.booleans(), "BYTES": st.text(max_size=5)}.get(datatype, usual)
    return datatype, draw(st.lists(values, max_size=5))


@given(columns())
def test_bytes_are_read_as_the_values_that_were_written(column: tuple[str, list[Any]]) -> None:
    datatype, values = column

    found = read(datatype, packed(datatype, values), [len(values)])

    assert found == values
    assert list(map(type, found)) == list(map(type, values))


@given(columns(), st.integers(-9, 9).filter(bool))
def test_bytes_that_are_too_many_or_too_few_are_refused(
    column: tuple[str, list[Any]], more: int
) -> None:
    datatype, values = column
    part = packed(datatype, values)
    wrong = part + bytes(more) if more > 0 else part[:more]
    if wrong == part:
        wrong = part + b"\0"

    with pytest.raises(HttpProblem) as refused:
        read(datatype, wrong, [len(values)])

    assert (refused.value.status, refused.value.code) == (422, "invalid")


@given(
    st.sampled_from([*FORMATS, "BYTES"]),
    st.binary(max_size=24),
    st.integers(0, 4) | st.just(10**18),
    st.sampled_from(["BOOL", "INT64", "FP64", "BYTES"]),
)
def test_any_bytes_are_plain_finite_values_or_refused(
    datatype: str, part: bytes, count: int, kind: str
) -> None:
    try:
        found = read(datatype, part, [count], kind)
    except HttpProblem as problem:
        assert problem.status == 422  # noqa: PT017 - or else it is read whole
    else:
        types = {"BOOL": bool, "INT64": int, "FP64": float, "BYTES": str}
        assert [type(value) for value in found] == [types[kind]] * count
        assert kind == "BYTES" or all(np.isfinite(found))


@given(
    st.lists(st.integers(-(2**53), 2**53))
    | st.lists(st.booleans())
    | st.lists(st.text(max_size=4))
    | st.lists(st.floats(allow_nan=False, allow_infinity=False))
)
def test_outputs_in_bytes_are_those_in_json(values: list[Any]) -> None:
    in_json, nothing = oip.output_of("label", values, is_binary=False)
    in_bytes, part = oip.output_of("label", values, is_binary=True)

    told = msgspec.to_builtins(in_bytes)
    assert nothing == b""
    assert "data" not in told
    assert (told["shape"], told["datatype"]) == (in_json.shape, in_json.datatype)
    assert told["parameters"] == {"binary_data_size": len(part)}
    assert unpacked(told, part) == in_json.data


def call(body: bytes, length: Any, kind: str = "application/octet-stream") -> HttpRequest:
    headers = {"content-type": kind, "inference-header-content-length": str(length)}
    return HttpRequest("POST", INFER, headers, body)


@pytest.mark.parametrize(
    "kind", ["application/json", "application/octet-stream", "application/x-www-form-urlencoded"]
)
def test_the_length_of_the_json_decides_what_a_body_is(kind: str) -> None:
    both = call(b"{}ab", 2, kind)
    missing = HttpRequest("POST", INFER, {"inference-header-content-length": "2"}, b"{}ab")

    for one in (both, missing):
        assert oip.halves(one, Limits()) == (b"{}", b"ab")
    for headers in ({}, {"content-type": kind}, {"content-type": f"{kind.upper()}; charset=x"}):
        assert oip.halves(HttpRequest("POST", INFER, headers, b"{}"), Limits()) == (b"{}", None)


@pytest.mark.parametrize(
    ("length", "kind", "body", "status"),
    [
        *((length, BINARY, b"{}", 400) for length in ("", "x", "-1", "3", "+1", "1.0", "²")),
        ("9" * 30, BINARY, b"{}", 400),
        ("2", "text/plain", b"{}", 415),
        ("2000", BINARY, b" " * 5_000, 413),
    ],
)
def test_a_body_whose_json_does_not_end_where_it_may_is_refused(
    length: str, kind: str, body: bytes, status: int
) -> None:
    with pytest.raises(HttpProblem) as refused:
        oip.halves(call(body, length, kind), Limits(json_kib=1))

    assert refused.value.status == status


# -- served -------------------------------------------------------------------------------------


def tensor(name: str, datatype: str, values: list[Any], width: int = 0) -> tuple[Any, bytes]:
    part = packed(datatype, values)
    shape = [len(values) // width, width] if width else [len(values)]
    told = {"name": name, "shape": shape, "datatype": datatype}
    return {**told, "parameters": {"binary_data_size": len(part)}}, part


def rows_of(count: int) -> list[tuple[Any, bytes]]:
    return [
        tensor("size", "FP32", [float(k) for k in range(count)]),
        tensor("kind", "BYTES", [f"kind {k}" for k in range(count)]),
        tensor("context", "FP64", [k / count for k in range(count)], 1),
    ]


def as_json(parts: list[tuple[Any, bytes]]) -> list[Any]:
    """The same tensors in JSON."""
    return [
        {key: told[key] for key in ("name", "shape", "datatype")} | {"data": unpacked(told, part)}
        for told, part in parts
    ]


async def post(
    client: Client, path: str, body: dict[str, Any], parts: list[tuple[Any, bytes]]
) -> tuple[int, Any, bytes]:
    """Post tensors in bytes; return status, JSON, and the bytes after it."""
    head = json.dumps({**body, "inputs": [told for told, _ in parts]}).encode()
    headers = {"Content-Type": "application/octet-stream", oip.LENGTH: str(len(head))}
    data = head + b"".join(part for _, part in parts)
    async with client.session.post(client.root + path, data=data, headers=headers) as response:
        whole = await response.read()
        length = int(response.headers.get(oip.LENGTH, len(whole)))
        is_binary = response.content_type == "application/octet-stream"
        assert is_binary == (oip.LENGTH in response.headers)
        return response.status, json.loads(whole[:length]), whole[length:]


@pytest.mark.parametrize("count", [1, 2, 100])
def test_bytes_and_json_are_answered_alike(tmp_path: Path, count: int) -> None:
    told: list[Any] = []

    async def in_json(client: Client) -> None:
        told.append(await client.post(INFER, {"id": "a", "inputs": as_json(rows_of(count))}))

    async def in_bytes(client: Client) -> None:
        told.append((await post(client, INFER, {"id": "a"}, rows_of(count)))[:2])

    for story, name in ((in_json, "json"), (in_bytes, "bytes")):
        (tmp_path / name).mkdir()
        run(tmp_path / name, story)

    assert told[0] == told[1]
    assert told[0][0] == 200
    tickets = told[0][1]["outputs"][1]["data"]
    assert tickets == (["a"] if count == 1 else [f"a:{k}" for k in range(count)])


def test_rows_are_one_record_and_labelled_by_id_and_row(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        _, told = await client.post(INFER, {"id": "a", "inputs": as_json(rows_of(6))})
        said = told["outputs"][0]["data"]

        labels = {"id": "a", "rows": [0, 3], "truth": [said[0], 1 - said[3]]}
        first = await client.post(FEEDBACK, labels)
        assert first == (202, {"id": "a", "new": [True, True], "right": [True, False]})
        assert (await client.post(FEEDBACK, labels))[0] == 200
        one = await client.post(FEEDBACK, {"id": "a:1", "truth": said[1]})
        assert one == (202, {"id": "a:1", "new": True, "right": True})
        both = await client.post(FEEDBACK, {"id": "a", "rows": [1, 2], "truth": said[1:3]})
        assert both == (202, {"id": "a", "new": [False, True], "right": [True] * 2})
        parts = [tensor("rows", "INT64", [4]), tensor("truth", "INT64", [said[4]])]
        assert (await post(client, FEEDBACK, {"id": "a"}, parts))[0] == 415

    run(tmp_path, story)
    store = Store(tmp_path / "north.store")
    found = store.find("", "a")
    assert found is not None
    assert len(found[0]) == 6
    assert sum(labels for labels, _ in store.counters().values()) == 4


@served()
async def test_a_request_of_one_row_named_like_a_row_keeps_its_own_label(client: Client) -> None:
    await client.post(INFER, {"id": "a", "inputs": as_json(rows_of(2))})
    await client.post(INFER, {"id": "a:0", "inputs": as_json(rows_of(1))})

    assert (await client.post(FEEDBACK, {"id": "a:0", "truth": 0}))[0] == 202
    status, told = await client.post(FEEDBACK, {"id": "a", "rows": [0], "truth": [0]})
    assert (status, told["new"]) == (202, [True])
