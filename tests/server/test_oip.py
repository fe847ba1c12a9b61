"""Whatever bytes come, a message is understood whole or refused with a status below 500."""

import json
import re
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.node.functions import Limits
from covey.server import oip
from covey.server.config import NodeTable
from covey.server.http import HttpProblem
from covey.server.oip import Inference, Model

SERVING = NodeTable(name="north", store="s", features={"size": "FP64", "count": "FP64"})
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def tensor(**fields: Any) -> dict[str, Any]:
    usual = {"name": "instances", "shape": [1, 2], "datatype": "FP64", "data": [1, 2.5]}
    return usual | fields


def body(*tensors: Any, **fields: Any) -> bytes:
    return json.dumps({"inputs": list(tensors), **fields}).encode()


def table(sent: bytes, dimension: int | None = None) -> oip.TensorTable:
    return Model(SERVING, dimension, limits=Limits(rows=4)).rows(oip.inference(sent)[0].inputs)


def rows(sent: bytes) -> list[dict[str, Any]]:
    return table(sent).records()


def digest(sent: bytes) -> str:
    return oip.inference(sent)[1]


@given(st.binary() | TREES.map(lambda tree: json.dumps(tree).encode()))
def test_any_bytes_are_refused_with_a_status_below_500(sent: bytes) -> None:
    for read in (oip.inference, partial(oip.feedback, most=4)):
        with pytest.raises(HttpProblem) as refused:
            read(sent)

        assert refused.value.status in (400, 422)
        assert json.loads(refused.value.reply().body)["code"] == refused.value.code


@given(
    name=st.sampled_from(["instances", "size", "count", "context"]),
    shape=st.lists(st.integers(-1, 3), max_size=3),
    datatype=st.sampled_from(["FP64", "INT64", "BYTES", "BOOL", ""]),
    data=st.lists(TREES, max_size=4),
)
def test_a_tensor_is_read_whole_or_refused(
    name: str, shape: list[int], datatype: str, data: list[Any]
) -> None:
    sent = body(tensor(name=name, shape=shape, datatype=datatype, data=data))
    try:
        found = rows(sent)
    except HttpProblem as problem:
        assert problem.status in (400, 422)  # noqa: PT017 - or else it is read whole
    else:
        assert [list(row) for row in found] == [["size", "count"]] * shape[0]
        assert all(type(x) is float for row in found for x in row.values())


TWO = [{"size": 1.0, "count": 2.0}, {"size": 3.0, "count": 4.0}]


@pytest.mark.parametrize(
    "sent",
    [
        [tensor(shape=[2, 2], data=[1, 2, 3, 4])],
        [tensor(shape=[2, 2], data=[[1, 2], [3, 4]])],
        [tensor(name="input-0", shape=[2, 2], data=[1, 2, 3, 4])],
        [
            tensor(name="count", shape=[2], data=[2, 4]),
            tensor(name="size", shape=[2, 1], data=[[1], [3]], datatype="INT8"),
        ],
    ],
    ids=["flat", "nested", "of any name", "one by one"],
)
def test_features_may_be_sent_in_many_ways(sent: list[Any]) -> None:
    context = tensor(name="context", shape=[2, 2], data=[0, 0.5, 1, 0.25])
    found = table(body(*sent, context), dimension=2)
    points = found.points()

    assert found.records() == TWO
    assert points is not None
    assert points.tolist() == [[0.0, 0.5], [1.0, 0.25]]


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ([tensor(name="sise", shape=[2], data=[1, 2])], "unknown feature 'sise'; known: size"),
        ([tensor(name="size", shape=[2, 1], data=[1, 2])], "input 'count' is missing"),
        ([tensor(name="x", shape=[1, 3], data=[1, 2, 3])], "expected [rows, 2"),
        ([tensor(), tensor(name="sex", shape=[1], data=[1])], "all features; remove 'sex'"),
        ([tensor(data=[1, None])], "holds null, which is not FP64"),
        ([tensor(shape=[5, 2], data=[0] * 10)], "rows"),
    ],
)
def test_what_is_wrong_with_a_tensor_is_named(sent: list[Any], says: str) -> None:
    with pytest.raises(HttpProblem, match=re.escape(says)):
        rows(body(*sent))


NESTED = {"content_type": "np", "headers": {"x": ["y"]}, "binary_data_output": None}


@pytest.mark.parametrize(
    "fields",
    [
        {"model_name": "north", "model_version": None, "id": "", "outputs": None},
        {"parameters": None},
        {"parameters": NESTED, "outputs": [{"name": "label", "parameters": None}]},
    ],
)
def test_fields_that_clients_add_change_nothing(fields: dict[str, Any]) -> None:
    request, found = oip.inference(body(tensor(), **fields))

    assert found == digest(body(tensor()))
    assert not request.id
    assert rows(body(tensor(parameters=NESTED), **fields)) == rows(body(tensor()))
    assert rows(body(tensor(parameters=None), **fields)) == rows(body(tensor()))


@pytest.mark.parametrize(
    ("classes", "datatype"),
    [
        (("a", "b"), "BYTES"),
        ((0, 1), "INT64"),
        ((False, True), "BOOL"),
        ((0.5, 1.5), "FP64"),
        ((0, "a"), "BYTES"),
        ((), "BYTES"),
    ],
)
def test_metadata_have_the_datatype_of_the_labels(classes: Any, datatype: str) -> None:
    found = Model(SERVING, 1, classes=classes).metadata()

    assert [(output.name, output.datatype) for output in found.outputs[:2]] == [
        ("label", datatype),
        ("ticket", "BYTES"),
    ]
    assert [(one.name, one.shape) for one in found.inputs] == [
        ("size", [-1]),
        ("count", [-1]),
        ("context", [-1, 1]),
        ("instances", [-1, 2]),
    ]
    assert found.versions == ["1"]
    mixed = msgspec.structs.replace(SERVING, features={"size": "FP64", "kind": "BYTES"})
    named = Model(mixed, None).metadata().inputs
    assert [one.name for one in named] == ["size", "kind"]  # no tensor has both datatypes


def test_the_digest_is_of_what_is_asked_not_of_how_it_is_written() -> None:
    one = b'{"id": "a", "inputs": [{"name":"x","shape":[1],"datatype":"FP64","data":[1]}]}'
    other = b'{"inputs": [ {"shape":[1],"name":"x","data":[1],"datatype":"FP64"} ], "id":"b"}'

    assert digest(one) == digest(other)
    assert digest(one) != digest(one.replace(b"[1]}", b"[2]}"))
    asked = [b'{"inputs": [], "parameters": {"slot": %d}}' % slot for slot in (1, 2)]
    assert digest(asked[0]) != digest(asked[1])


GIVEN = msgspec.structs.replace(SERVING, slots="given")


def slot(serving: NodeTable, **parameters: Any) -> int | None:
    return Model(serving).first_slot(Inference([], parameters=parameters), count=3)


NAMES = st.sampled_from(["a", "b", "c:", ":", '"', "ä"])
VALUES = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", ":", '{"a": 1}', "x"])
)
DOCUMENTS = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(NAMES, inner), max_size=3),
    max_leaves=8,
)


def written(value: Any) -> str:
    """Return JSON in which pairs are objects, whether or not their keys are all different."""
    if isinstance(value, list) and value and all(isinstance(one, tuple) for one in value):
        pairs = [f"{json.dumps(name)}: {written(inner)}" for name, inner in value]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


def has_twins(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    names = [one[0] for one in value if isinstance(one, tuple)]
    inner = [one[1] if isinstance(one, tuple) else one for one in value]
    return len(names) != len(set(names)) or any(map(has_twins, inner))


@given(st.lists(st.tuples(NAMES, DOCUMENTS), min_size=1, max_size=4))
def test_a_key_may_not_stand_twice_wherever_it_is(pairs: list[tuple[str, Any]]) -> None:
    body = written(pairs)
    if has_twins(pairs):
        with pytest.raises(HttpProblem, match="duplicate key"):
            oip._parsed(body.encode())
    else:
        assert oip._parsed(body.encode()) == json.loads(body)


@pytest.mark.parametrize(
    "parameters", [{}, *({"slot": one} for one in (0, -1, True, 1.0, "1", 2**53))]
)
def test_a_slot_that_is_given_is_a_whole_number_from_one_on(parameters: dict[str, Any]) -> None:
    with pytest.raises(HttpProblem, match="must be the slot of the first row"):
        slot(GIVEN, **parameters)
