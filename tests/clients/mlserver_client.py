"""Ask two sites with requests that MLServer's codecs make, and print the labels."""

import json
from typing import Any

import httpx
import numpy as np
import pandas as pd
from asked import COLOURS, CONTEXTS, HOSTS, ROWS, SIZES
from bare import bare

bare("mlserver")  # the package itself imports a server
from mlserver import types  # noqa: E402
from mlserver.codecs import (  # noqa: E402
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    StringCodec,
)


def post(model: str, request: types.InferenceRequest, **dump: Any) -> types.InferenceResponse:
    url = f"http://{HOSTS[model]}/v2/models/{model}/infer"
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(url, content=request.model_dump_json(**dump), headers=headers)
    answer.raise_for_status()
    return types.InferenceResponse.model_validate_json(answer.content)


def ways() -> dict[str, tuple[str, types.InferenceRequest]]:
    array = np.array(ROWS)
    codec = NumpyRequestCodec.encode_request(array)
    nulls = codec.model_copy(update={"id": "", "outputs": None, "parameters": None})
    nested = types.Parameters(content_type="np", headers={"x-trace": "1", "more": {"a": [1]}})
    frame = PandasCodec.encode_request(pd.DataFrame(ROWS, columns=["a", "b"]))
    words = types.InferenceRequest(
        inputs=[
            NumpyCodec.encode_input("size", np.array(SIZES)),
            StringCodec.encode_input("colour", COLOURS),
            NumpyCodec.encode_input("context", np.array(CONTEXTS)),
        ]
    )
    return {
        "an array": ("rows", codec),
        "nulls": ("rows", nulls),
        "nested parameters": ("rows", codec.model_copy(update={"parameters": nested})),
        "a frame": ("rows", frame),
        "texts": ("words", words),
    }


def labels(response: types.InferenceResponse) -> list[Any]:
    output = next(one for one in response.outputs if one.name == "label")
    if output.datatype == "BYTES":
        return StringCodec.decode_output(output)
    return NumpyCodec.decode_output(output).ravel().tolist()


told: dict[str, Any] = {}
for name, (model, request) in ways().items():
    told[name] = labels(post(model, request, exclude_none=True))
    told[f"{name}, with nulls"] = labels(post(model, request))
metadata = httpx.get(f"http://{HOSTS['rows']}/v2/models/rows")
types.MetadataModelResponse.model_validate_json(metadata.content)
print(json.dumps(told))
