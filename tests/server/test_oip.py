"""Whatever bytes come, a message is understood whole or refused with a status below 500."""

import json
import re
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.functions.remote import RemoteTensor
from covey.server import oip
from covey.server import tensors as server_tensors
from covey.server.config import NodeTable
from covey.server.http import HttpProblem
from covey.server.tensors import Inference, TensorRow

SERVING = NodeTable(name="north", store="s", features={"size": "FP64", "count": "FP64"})
DEPTH = 8
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


def rows(sent: bytes, dimension: int | None = None) -> list[TensorRow]:
    asked = oip.inference(sent, depth=DEPTH)
    table = oip.rows_of(asked, SERVING, dimension=dimension, most=4)
    return [table.row(k) for k in range(table.count)]


def digest(sent: bytes) -> str:
    return oip.inference(sent, depth=DEPTH).digest


@given(st.binary() | TREES.map(lambda tree: json.dumps(tree).encode()))
def test_any_bytes_are_refused_with_a_status_below_500(sent: bytes) -> None:
    for read in (oip.inference, partial(oip.feedback, most=4)):
        with pytest.raises(HttpProblem) as refused:
            read(sent, depth=DEPTH)

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
        assert [list(row.record) for row in found] == [["size", "count"]] * shape[0]
        assert all(type(x) is float for row in found for x in row.record.values())


def test_flat_and_nested_data_are_the_same() -> None:
    flat = tensor(shape=[2, 2], data=[1, 2, 3, 4])
    nested = tensor(shape=[2, 2], data=[[1, 2], [3, 4]])

    assert rows(body(flat)) == rows(body(nested))
    assert [row.record for row in rows(body(flat))] == [
        {"size": 1.0, "count": 2.0},
        {"size": 3.0, "count": 4.0},
    ]


def test_features_may_be_sent_one_by_one_in_any_order() -> None:
    apart = [
        tensor(name="count", shape=[1], data=[2]),
        tensor(name="size", shape=[1, 1], data=[[1]], datatype="INT8"),
    ]

    assert [row.record for row in rows(body(*apart))] == [{"size": 1.0, "count": 2.0}]


@pytest.mark.parametrize("name", ["instances", "input-0", "x"])
def test_one_tensor_of_rows_may_have_any_name(name: str) -> None:
    found = rows(body(tensor(name=name, shape=[2, 2], data=[1, 2, 3, 4])))

    assert [list(row.record.values()) for row in found] == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (tensor(name="sise", shape=[2], data=[1, 2]), "unknown feature 'sise'; known: size, count"),
        (tensor(name="size", shape=[2, 1], data=[1, 2]), "input 'count' is missing"),
        (tensor(name="x", shape=[1, 3], data=[1, 2, 3]), "'x' has shape [1, 3]; expected [rows, 2"),
    ],
)
def test_one_tensor_that_has_not_all_features_is_refused(sent: Any, says: str) -> None:
    with pytest.raises(HttpProblem, match=re.escape(says)):
        rows(body(sent))


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
    plain = oip.inference(body(tensor()), depth=DEPTH)
    found = oip.inference(body(tensor(), **fields), depth=DEPTH)

    assert found.digest == plain.digest
    assert not found.request.id
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
    found = oip.metadata(SERVING, dimension=1, classes=classes)

    assert [(one.name, one.datatype) for one in found.outputs[:2]] == [
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


def test_features_of_several_datatypes_cannot_be_sent_in_one_tensor() -> None:
    mixed = msgspec.structs.replace(SERVING, features={"size": "FP64", "kind": "BYTES"})

    assert [one.name for one in oip.metadata(mixed, dimension=None, classes=()).inputs] == [
        "size",
        "kind",
    ]


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (
            [tensor(), tensor(name="sex", shape=[1], data=[1])],
            "contains all features; remove 'sex'",
        ),
        ([tensor(data=[1, None])], "holds null, which is not FP64"),
        ([tensor(data=[1, 10**400])], "holds 1000000000"),
    ],
)
def test_errors_in_a_tensor_are_named(sent: list[Any], says: str) -> None:
    asked = [msgspec.convert(one, RemoteTensor) for one in sent]
    with pytest.raises(HttpProblem, match=re.escape(says)):
        server_tensors.table_of(asked, {}, SERVING.features, dimension=None, most=4)


def test_contexts_are_read_row_by_row() -> None:
    context = tensor(name="context", shape=[2, 2], data=[0, 0.5, 1, 0.25])

    found = rows(body(tensor(shape=[2, 2], data=[1, 2, 3, 4]), context), dimension=2)

    assert [row.context for row in found] == [(0.0, 0.5), (1.0, 0.25)]


def test_more_rows_than_allowed_are_413() -> None:
    with pytest.raises(HttpProblem) as refused:
        rows(body(tensor(shape=[5, 2], data=[0] * 10)))

    assert (refused.value.status, refused.value.code) == (413, "too_many_rows")


def test_the_digest_is_of_what_is_asked_not_of_how_it_is_written() -> None:
    one = b'{"id": "a", "inputs": [{"name":"x","shape":[1],"datatype":"FP64","data":[1]}]}'
    other = b'{"inputs": [ {"shape":[1],"name":"x","data":[1],"datatype":"FP64"} ], "id":"b"}'

    assert digest(one) == digest(other)
    assert digest(one) != digest(one.replace(b"[1]}", b"[2]}"))


def depth_of(tree: Any) -> int:
    if isinstance(tree, dict):
        tree = list(tree.values())
    return 1 + max(map(depth_of, tree), default=0) if isinstance(tree, list) else 0


@given(
    st.dictionaries(st.text(), TREES, max_size=3),
    st.integers(1, 4),
    st.booleans(),
)
def test_json_is_refused_for_its_depth_exactly_if_it_is_deeper(
    tree: dict[str, Any], most: int, is_ascii: bool
) -> None:
    sent = json.dumps(tree, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")

    with pytest.raises(HttpProblem) as refused:
        oip.feedback(sent, depth=most, most=4)

    is_too_deep = "deep" in refused.value.detail
    assert is_too_deep == (depth_of(tree) > most)


@pytest.mark.parametrize(
    "sent",
    [
        b"]" * 100 + b"[" * 250_000,
        b'"' + b'\\"' * 120_000 + b"\\",
        b'["' * 120_000,
        b"[]" * 120_000,
        b'{"a":' * 50_000,
    ],
)
def test_what_only_looks_deep_is_no_work_either(sent: bytes) -> None:
    with pytest.raises(HttpProblem) as refused:
        oip.feedback(sent, depth=DEPTH, most=4)

    assert refused.value.code == "bad_json"


GIVEN = msgspec.structs.replace(SERVING, slots="given")


def slot(serving: NodeTable, **parameters: Any) -> int | None:
    return oip.first_slot(Inference([], parameters=parameters), serving, count=3)


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
            oip._parsed(body.encode(), 20)
    else:
        assert oip._parsed(body.encode(), 20) == json.loads(body)


def test_slots_are_counted_here_unless_the_site_has_them_given() -> None:
    assert slot(SERVING) is None
    assert slot(GIVEN, slot=7) == 7
    with pytest.raises(HttpProblem, match="leave it out"):
        slot(SERVING, slot=7)


@pytest.mark.parametrize(
    "parameters", [{}, *({"slot": one} for one in (0, -1, True, 1.0, "1", 2**53))]
)
def test_a_slot_that_is_given_is_a_whole_number_from_one_on(parameters: dict[str, Any]) -> None:
    with pytest.raises(HttpProblem, match="must be the slot of the first row"):
        slot(GIVEN, **parameters)


def test_another_slot_is_another_question() -> None:
    asked = [b'{"inputs": [], "parameters": {"slot": %d}}' % slot for slot in (1, 2)]

    assert digest(asked[0]) != digest(asked[1])
