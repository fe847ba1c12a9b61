"""Ask two sites with clients that were generated: the working group's, and one made just now.

The first is made from the OpenAPI document of the protocol, the second from that of the site.
"""

import asyncio
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from asked import COLOURS, CONTEXTS, HOSTS, ROWS, SIZES
from open_inference.openapi.client import AsyncOpenInferenceClient, OpenInferenceClient
from open_inference.openapi.types import InferenceRequest, RequestInput

URLS = {name: f"http://{host}" for name, host in HOSTS.items()}


def requests() -> dict[str, tuple[str, InferenceRequest]]:
    rows = RequestInput(name="input", shape=[3, 2], datatype="FP64", data=ROWS)
    words = [
        RequestInput(name="size", shape=[3], datatype="FP64", data=SIZES),
        RequestInput(name="colour", shape=[3], datatype="BYTES", data=COLOURS),
        RequestInput(name="context", shape=[3, 1], datatype="FP64", data=CONTEXTS),
    ]
    return {
        "one tensor": ("rows", InferenceRequest(inputs=[rows])),
        "id": ("rows", InferenceRequest(id="generated", inputs=[rows])),
        "texts": ("words", InferenceRequest(inputs=words)),
    }


def labels(response: Any) -> list[Any]:
    (output,) = (one for one in response.outputs if one.name == "label")
    data = output.data
    return list(getattr(data, "__root__", data))


def working_group() -> dict[str, Any]:
    told: dict[str, Any] = {}
    clients = {name: OpenInferenceClient(base_url=url) for name, url in URLS.items()}
    client = clients["rows"]
    client.check_server_liveness()
    client.check_server_readiness()
    client.check_model_readiness("rows")
    client.check_model_version_readiness("rows", "1")
    assert client.read_server_metadata().name == "covey"
    assert client.read_model_metadata("rows").versions == ["1"]
    assert client.read_model_version_metadata("rows", "1").name == "rows"
    for name, (model, request) in requests().items():
        told[name] = labels(clients[model].model_infer(model, request=request))
        of_version = clients[model].model_version_infer(model, "1", request=request)
        told[f"{name}, version"] = labels(of_version)
    return told


async def asynchronous() -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name, (model, request) in requests().items():
        client = AsyncOpenInferenceClient(base_url=URLS[model])
        told[f"{name}, async"] = labels(await client.model_infer(model, request=request))
    return told


def from_the_document() -> dict[str, Any]:
    """Generate a client in the working directory, and ask with it."""
    made = subprocess.run(
        [
            Path(sys.executable).with_name("openapi-python-client"),
            *("generate", "--url", f"{URLS['rows']}/v2/openapi.json"),
            *("--meta", "none", "--output-path", "site_client"),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": str(Path(sys.executable).parent)},
    )
    assert "warning" not in (made.stdout + made.stderr).lower(), made.stdout + made.stderr
    sys.path.insert(0, "")
    site = importlib.import_module("site_client")
    models = importlib.import_module("site_client.models")
    ask = importlib.import_module("site_client.api.default.post_v2_models_model_infer")
    told = {}
    data = {"name": "any", "shape": [3, 2], "datatype": "FP64", "data": ROWS}
    request = models.Inference.from_dict({"inputs": [data], "id": "from the document"})
    answer = ask.sync(client=site.Client(base_url=URLS["rows"]), body=request)
    told["from the document"] = labels(answer)
    return told


print(json.dumps(working_group() | asyncio.run(asynchronous()) | from_the_document()))
