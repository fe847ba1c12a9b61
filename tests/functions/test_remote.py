"""Models behind the Open Inference Protocol, called over real sockets."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.errors import ConfigError, FunctionError
from covey.functions import remote
from covey.server import keys
from support.models import ROWS, Answer, Table, as_protocol, loaded, serving, trained
from support.ports import free_port

MODEL = trained()
CLASSES = MODEL.classes_.tolist()


def table(url: str, **more: Any) -> Table:
    return {"name": "f", "kind": "remote", "url": url, **more}


def saying(status: int, body: Any) -> Callable[[Table], Answer]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda request: (status, content)


def output(data: list[Any], shape: list[int], name: str = "predict") -> Table:
    return {"name": name, "shape": shape, "datatype": "FP64", "data": data}


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """Serve `head` and then a byte every 20 ms, until the client hangs up."""
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        with server.accept()[0] as connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + head)
                while not over.wait(0.02):
                    connection.sendall(b" ")
            except OSError:
                pass  # it has hung up

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v2/models/f"
    finally:
        over.set()
        thread.join()
        server.close()


def test_a_request_follows_the_protocol(tmp_path: Path) -> None:
    named = {"input": "rows", "output": "predict", "datatype": "FP32", "columns": ["a", "b"]}
    with serving(as_protocol(lambda rows: [7] * len(rows))) as (url, seen):
        function = loaded(table(url + "/versions/3/", **named), tmp_path)
        label = function.answer({"b": 2.5, "a": 1})

    tensor = {"name": "rows", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.5]}
    assert (label, seen[0]["path"]) == (7, "/v2/models/f/versions/3/infer")
    assert seen[0]["body"] == {"inputs": [tensor], "outputs": [{"name": "predict"}]}


def test_requests_share_a_connection_and_start_no_timer(tmp_path: Path) -> None:
    timers: list[threading.Thread] = []

    def answer(request: Table) -> Answer:
        timers.extend(one for one in threading.enumerate() if isinstance(one, threading.Timer))
        return as_protocol(MODEL.predict)(request)

    with serving(answer) as (url, seen):
        function = loaded(table(url), tmp_path)
        answers = [function.answer(row) for row in ROWS[:5]]

    assert answers == MODEL.predict(ROWS[:5]).tolist()
    assert (len(seen), len({one["port"] for one in seen})) == (5, 1)
    assert timers == []


def test_requests_share_a_connection_over_tls(tmp_path: Path) -> None:
    keys.new("f", hosts=["127.0.0.1"], folder=tmp_path)
    tls = keys.open_context(tmp_path / "f.crt", tmp_path / "f.key")
    with serving(as_protocol(MODEL.predict), tls) as (url, seen):
        function = loaded(table(url, ca="f.crt"), tmp_path)
        many = np.tile(ROWS, (100, 1))  # more than a socket buffers
        assert function.answer_many(many) == MODEL.predict(many).tolist()
        assert [function.answer(row) for row in ROWS[:3]] == MODEL.predict(ROWS[:3]).tolist()
        with pytest.raises(FunctionError, match=r"certificate not trusted .*; give the CA file"):
            loaded(table(url), tmp_path).answer(ROWS[0])

    assert (len(seen), len({one["port"] for one in seen})) == (4, 1)


def test_threads_that_ask_at_once_have_a_connection_each_and_one_is_kept(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=30)
    is_first = True

    def answer(request: Table) -> Answer:
        if is_first:
            both.wait()
        return as_protocol(lambda rows: [7] * len(rows))(request)

    with serving(answer) as (url, seen):
        function = loaded(table(url), tmp_path)
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(function.answer, ROWS[:2])) == [7, 7]
        is_first = False
        assert [function.answer(row) for row in ROWS[:3]] == [7] * 3

    first, later = ({one["port"] for one in some} for some in (seen[:2], seen[2:]))
    assert (len(first), len(later), later <= first) == (2, 1, True)


@pytest.mark.parametrize("reads_first", [False, True], ids=["idle", "in a request"])
def test_a_request_is_sent_again_if_the_server_closed_the_connection(
    reads_first: bool, tmp_path: Path
) -> None:
    content = json.dumps({"outputs": [output([7], [1])]}).encode()
    is_closed = threading.Event()

    def serve(server: socket.socket) -> None:
        for _ in range(2):
            with server.accept()[0] as connection:
                connection.recv(2**16)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content)
                )
                if reads_first:
                    connection.recv(2**16)  # the next request, which gets no answer
            is_closed.set()

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve, server)
        function = loaded(table(f"http://127.0.0.1:{server.getsockname()[1]}/f"), tmp_path)
        assert function.answer(ROWS[0]) == 7
        if not reads_first:
            is_closed.wait()
        assert function.answer(ROWS[0]) == 7
        del function  # closes its connection
        served.result()


def test_tensors_can_be_several_and_of_text(tmp_path: Path) -> None:
    inputs = [
        {"name": "dense", "datatype": "FP32", "columns": ["size", "age"]},
        {"name": "colour", "datatype": "BYTES"},
        {"name": "is_new", "datatype": "BOOL"},
        {"name": "age", "datatype": "UINT8"},
    ]
    records = [
        {"colour": "red", "size": 1.5, "age": 3, "is_new": True},
        {"colour": "grün", "size": 2, "age": 4, "is_new": False},
    ]
    columns = ["size", "age", "colour", "is_new"]
    rows = [[record[name] for name in columns] for record in records]
    answer = saying(200, {"outputs": [output(["a", "b"], [2])]})
    with serving(answer) as (url, seen):
        assert loaded(table(url, inputs=inputs), tmp_path).answer_many(records) == ["a", "b"]
        by_row = loaded(table(url, inputs=inputs, columns=columns), tmp_path)
        assert by_row.answer_many(rows) == ["a", "b"]

    assert seen[0]["body"] == seen[1]["body"]
    assert seen[0]["body"]["inputs"] == [
        {"name": "dense", "shape": [2, 2], "datatype": "FP32", "data": [1.5, 3.0, 2.0, 4.0]},
        {"name": "colour", "shape": [2, 1], "datatype": "BYTES", "data": ["red", "grün"]},
        {"name": "is_new", "shape": [2, 1], "datatype": "BOOL", "data": [True, False]},
        {"name": "age", "shape": [2, 1], "datatype": "UINT8", "data": [3, 4]},
    ]


def test_one_tensor_may_hold_text(tmp_path: Path) -> None:
    answer = saying(200, {"outputs": [output([1, 2], [2])]})
    with serving(answer) as (url, seen):
        function = loaded(table(url, datatype="BYTES"), tmp_path)
        assert function.answer_many([["a", "b"], ["c", "d"]]) == [1, 2]
        with pytest.raises(FunctionError, match="row 0 has 1.5, but the model takes text"):
            function.answer([1.5, "b"])
        with pytest.raises(FunctionError, match="an instance has 1 values, but .* takes 2"):
            function.answer_many([["a", "b"], ["c"]])

    sent = {"name": "input-0", "shape": [2, 2], "datatype": "BYTES", "data": ["a", "b", "c", "d"]}
    assert [one["body"]["inputs"] for one in seen] == [[sent]]


def test_scores_become_the_class_of_the_highest(tmp_path: Path) -> None:
    with serving(as_protocol(MODEL.predict_proba)) as (url, _):
        answers = loaded(table(url, classes=CLASSES), tmp_path).answer_many(ROWS)

    assert answers == MODEL.predict(ROWS).tolist()


@pytest.mark.parametrize("data", [[1, 2, 3], [[1], [2], [3]]])
def test_values_may_be_flat_or_nested(data: list[Any], tmp_path: Path) -> None:
    with serving(saying(200, {"outputs": [output(data, [3, 1])]})) as (url, _):
        assert loaded(table(url), tmp_path).answer_many(ROWS[:3]) == [1, 2, 3]


def test_the_named_output_is_used(tmp_path: Path) -> None:
    both = [output([1], [1], "first"), output([2], [1], "second")]
    with serving(saying(200, {"outputs": both})) as (url, _):
        assert loaded(table(url, output="second"), tmp_path).answer(ROWS[0]) == 2
        with pytest.raises(FunctionError, match="outputs first, second; set output"):
            loaded(table(url), tmp_path).answer(ROWS[0])


def test_the_token_is_sent_and_never_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAUD_TOKEN", "s3cret")
    with serving(saying(403, {"error": "not you"})) as (url, seen):
        function = loaded(table(url, **{"token-variable": "FRAUD_TOKEN"}), tmp_path)
        with pytest.raises(FunctionError) as caught:
            function.answer(ROWS[0])

    assert seen[0]["headers"]["Authorization"] == "Bearer s3cret"
    assert str(caught.value).endswith(" answered 403: not you")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, b"<html>", "answered 500$"),
        (503, {"error": "loading"}, "answered 503: loading$"),
        (302, b"", "answered 302"),
        (200, b"<html>", "returned an invalid response: JSON is malformed"),
        (200, b"[" * 100_000, "returned an invalid response"),
        (200, {"outputs": []}, "returned the outputs none"),
        (200, {"labels": [1]}, "missing required field `outputs`"),
        (200, {"outputs": [output([1], [1])]}, r"shape \[1\] with 1 values for 2 rows"),
        (200, {"outputs": [output([1, 2], [3])]}, r"shape \[3\] with 2 values for 2 rows"),
        (200, {"outputs": [output([1] * 4, [2, 2])]}, "if these are scores, give classes"),
        (200, {"outputs": [output([1, None], [2])]}, "answered None, which is not a label"),
        (200, {"outputs": [output([1, [2]], [2])]}, "answered a list, which is not a label"),
        (200, {"outputs": [output([[1], 2], [2])]}, "answered a list, which is not a label"),
        (200, b'{"outputs":[{"name":"p","shape":[2],"data":[NaN,1]}]}', "JSON is malformed"),
    ],
)
def test_an_answer_that_cannot_be_used_is_a_sentence(
    status: int, body: Any, said: str, tmp_path: Path
) -> None:
    with serving(saying(status, body)) as (url, _):
        function = loaded(table(url), tmp_path)
        with pytest.raises(FunctionError, match=f"function 'f' of learner 'north'.*{said}"):
            function.answer_many(ROWS[:2])


@pytest.mark.parametrize(
    ("data", "shape", "said"),
    [
        ([0.1, None, 0.2], [1, 3], "values that are not numbers, but classes need scores"),
        ([0.1, 0.2], [1, 2], "scores of shape 1 x 2 for 3 classes"),
        ([1], [1], "scores of shape 1 for 3 classes"),
    ],
)
def test_scores_that_cannot_be_used_are_refused(
    data: list[Any], shape: list[int], said: str, tmp_path: Path
) -> None:
    with serving(saying(200, {"outputs": [output(data, shape)]})) as (url, _):
        function = loaded(table(url, classes=CLASSES), tmp_path)
        with pytest.raises(FunctionError, match=said):
            function.answer(ROWS[0])


def test_an_answer_that_is_too_long_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MOST_BYTES", 100)
    with serving(saying(200, b" " * 101)) as (url, _):
        function = loaded(table(url), tmp_path)
        with pytest.raises(FunctionError, match="the response has more than 100 bytes"):
            function.answer(ROWS[0])


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    over = threading.Event()

    def never(request: Table) -> Answer:
        over.wait()
        return 500, b""

    with serving(never) as (url, _):
        function = loaded(table(url, **{"timeout-s": 0.1}), tmp_path)
        try:
            with pytest.raises(FunctionError, match="no complete response within 0.1 s"):
                function.answer(ROWS[0])
        finally:
            over.set()


@pytest.mark.parametrize("head", [b"X: ", b'\r\n{"outputs": []}'], ids=["header", "body"])
def test_a_server_that_drips_is_given_up(head: bytes, tmp_path: Path) -> None:
    with dripping(head) as url:
        function = loaded(table(url, **{"timeout-s": 0.2}), tmp_path)
        with pytest.raises(FunctionError, match="no complete response within 0.2 s"):
            function.answer(ROWS[0])


def test_a_truncated_response_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def break_off() -> None:
            with server.accept()[0] as connection:
                connection.recv(2**16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}")
                connection.shutdown(socket.SHUT_WR)
                connection.recv(2**16)

        thread = threading.Thread(target=break_off)
        thread.start()
        function = loaded(table(f"http://127.0.0.1:{server.getsockname()[1]}/f"), tmp_path)
        with pytest.raises(FunctionError, match="no response: IncompleteRead"):
            function.answer(ROWS[0])
        thread.join()


def test_an_unreachable_server_is_an_error(tmp_path: Path) -> None:
    function = loaded(table(f"http://127.0.0.1:{free_port()}/v2/models/f"), tmp_path)

    with pytest.raises(FunctionError, match="no response: Connection refused"):
        function.answer(ROWS[0])


def test_a_token_is_sent_over_tls_or_within_the_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAUD_TOKEN", "s3cret")
    named = {"token-variable": "FRAUD_TOKEN"}

    for url in ("http://models.example/f", "http://127.0.0.1.example/f"):
        with pytest.raises(ConfigError, match="function 'f': the token would be sent unencrypted"):
            loaded(table(url, **named), tmp_path)
    for url in ("https://models.example/f", "http://[::1]:8080/f"):
        assert loaded(table(url, **named), tmp_path).teach is None
