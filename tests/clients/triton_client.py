"""Ask two sites with tritonclient, and print the labels that every way of asking gives."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from asked import COLOURS, CONTEXTS, HOSTS, ROWS, SIZES
from tritonclient import http
from tritonclient.http import aio


def tensor(name: str, values: Any, datatype: str, *, is_binary: bool) -> http.InferInput:
    kinds = {"FP64": np.float64, "FP32": np.float32, "BYTES": np.object_}
    array = np.array(values, kinds[datatype])
    made = http.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=is_binary)
    return made


def rows(name: str, *, is_binary: bool, datatype: str = "FP64") -> list[http.InferInput]:
    return [tensor(name, ROWS, datatype, is_binary=is_binary)]


def ways(is_binary: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield a name, a model, and the arguments of a call."""
    sent = rows("input-0", is_binary=is_binary)
    apart = [
        tensor(name, [row[k] for row in ROWS], "FP64", is_binary=is_binary)
        for k, name in enumerate("ab")
    ]
    words = [
        tensor("size", SIZES, "FP64", is_binary=is_binary),
        tensor("colour", COLOURS, "BYTES", is_binary=is_binary),
        tensor("context", CONTEXTS, "FP64", is_binary=is_binary),
    ]
    yield "one tensor", "rows", {"inputs": sent}
    yield "instances", "rows", {"inputs": rows("instances", is_binary=is_binary)}
    yield "FP32", "rows", {"inputs": rows("x", is_binary=is_binary, datatype="FP32")}
    yield "a tensor each", "rows", {"inputs": apart}
    yield "version", "rows", {"inputs": sent, "model_version": "1"}
    yield "id", "rows", {"inputs": sent, "request_id": f"triton-{is_binary}"}
    yield "parameters", "rows", {"inputs": sent, "priority": 1, "timeout": 10**6}
    yield "sequence", "rows", {"inputs": sent, "sequence_id": 7, "sequence_start": True}
    for is_out in (False, True):
        outputs = [http.InferRequestedOutput("label", binary_data=is_out)]
        yield f"outputs {is_out}", "rows", {"inputs": sent, "outputs": outputs}
    for algorithm in ("gzip", "deflate"):
        zipped = {"inputs": sent, "request_compression_algorithm": algorithm}
        yield algorithm, "rows", zipped
    yield "texts", "words", {"inputs": words}


def labels(result: http.InferResult) -> list[Any]:
    values = result.as_numpy("label")
    assert values is not None
    return [one.decode() if isinstance(one, bytes) else one for one in values.tolist()]


def name_of(name: str, is_binary: bool) -> str:
    return f"{name}, {'binary' if is_binary else 'JSON'}"


def sync() -> dict[str, Any]:
    clients = {
        name: http.InferenceServerClient(host, concurrency=4) for name, host in HOSTS.items()
    }
    client = clients["rows"]
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("rows")
    assert client.is_model_ready("rows", model_version="1")
    assert not client.is_model_ready("rows", model_version="2")
    assert client.get_server_metadata()["name"] == "covey"
    told: dict[str, Any] = {"metadata": client.get_model_metadata("rows", model_version="1")}
    for is_binary in (False, True):
        for name, model, call in ways(is_binary):
            result = clients[model].infer(model, **call)
            told[name_of(name, is_binary)] = labels(result)
            assert call.get("request_id") in (None, result.get_response()["id"])
        sent = rows("input-0", is_binary=is_binary)
        running = [client.async_infer("rows", sent) for _ in range(20)]
        for k, one in enumerate(running):
            told[name_of(f"async {k}", is_binary)] = labels(one.get_result())
    assert client.get_model_config("rows")["name"] == "rows"
    (stats,) = client.get_inference_statistics("rows", "1")["model_stats"]
    assert stats["inference_stats"]["success"]["count"] > 40
    for one in clients.values():
        one.close()
    return told


async def asynchronous() -> dict[str, Any]:
    clients = {name: aio.InferenceServerClient(host) for name, host in HOSTS.items()}
    client = clients["rows"]
    assert await client.is_server_live()
    assert await client.is_model_ready("rows", model_version="1")
    told: dict[str, Any] = {}
    for is_binary in (False, True):
        for name, model, call in ways(is_binary):
            result = await clients[model].infer(model, **call)
            told[name_of(f"aio {name}", is_binary)] = labels(result)
    for one in clients.values():
        await one.close()
    return told


print(json.dumps(sync() | asyncio.run(asynchronous())))
