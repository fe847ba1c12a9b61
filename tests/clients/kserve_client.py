"""Ask two sites with KServe's REST client, and print the labels of every way of asking."""

import asyncio
import json
from typing import Any

import numpy as np
from asked import COLOURS, CONTEXTS, HOSTS, ROWS, SIZES
from bare import bare

bare("kserve")  # the package itself imports a server and the API of Kubernetes
from kserve.inference_client import InferenceRESTClient, RESTConfig  # noqa: E402
from kserve.protocol.infer_type import (  # noqa: E402
    InferInput,
    InferRequest,
    InferResponse,
    RequestedOutput,
)


def tensor(name: str, values: Any, datatype: str, *, is_binary: bool) -> InferInput:
    kinds = {"FP64": np.float64, "BYTES": np.object_}
    array = np.array(values, kinds[datatype])
    made = InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=is_binary)
    return made


def request(model: str, *tensors: InferInput, **more: Any) -> InferRequest:
    return InferRequest(model_name=model, infer_inputs=list(tensors), **more)


def ways(is_binary: bool) -> dict[str, InferRequest]:
    sent = tensor("input-0", ROWS, "FP64", is_binary=is_binary)
    outputs = [RequestedOutput("label", parameters={"binary_data": is_binary})]
    return {
        "one tensor": request("rows", sent),
        "id": request("rows", sent, request_id=f"kserve-{is_binary}"),
        "parameters": request("rows", sent, parameters={"content_type": "np"}),
        "outputs": request("rows", sent, request_outputs=outputs),
        "texts": request(
            "words",
            tensor("size", SIZES, "FP64", is_binary=is_binary),
            tensor("colour", COLOURS, "BYTES", is_binary=is_binary),
            tensor("context", CONTEXTS, "FP64", is_binary=is_binary),
        ),
    }


def labels(response: InferResponse) -> list[Any]:
    values = response.get_output_by_name("label").as_numpy()
    return [one.decode() if isinstance(one, bytes) else one for one in values.tolist()]


async def main() -> dict[str, Any]:
    told: dict[str, Any] = {}
    urls = {name: f"http://{host}" for name, host in HOSTS.items()}
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        assert await client.is_server_live(urls["rows"])
        assert await client.is_server_ready(urls["rows"])
        assert await client.is_model_ready(urls["rows"], "rows")
        for is_binary in (False, True):
            for name, sent in ways(is_binary).items():
                model = sent.model_name
                answer = await client.infer(urls[model], sent, model_name=model)
                told[f"{name}, {'binary' if is_binary else 'JSON'}"] = labels(answer)
                assert sent.id in (None, answer.id)
        data = {"name": "x", "shape": [3, 2], "datatype": "FP64", "data": ROWS}
        plain = await client.infer(urls["rows"], {"inputs": [data]}, model_name="rows")
        told["a dictionary"] = labels(plain)
    return told


print(json.dumps(asyncio.run(main())))
