"""The OpenAPI document of a site, made from the routes and the messages."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from covey.calls import BINARY, JSON, PROBLEM, Refusal
from covey.messages import LENGTH, Inference
from covey.routes import CODES, NOWHERE, OPEN_PATHS, ROUTES, TEXT, Route

Schema = dict[str, Any]
BYTES = {"description": "The JSON, and the bytes of tensors after it.", "type": "string"}


def document(model: str, *, has_tokens: bool, example: Inference | None = None) -> Schema:
    """Return the document of a site whose model has this name, with a request that it serves."""
    kinds = [Refusal, *(kind for route in ROUTES for kind in _kinds(route))]
    unique = list({id(kind): kind for kind in kinds}.values())
    schemas, components = msgspec.json.schema_components(
        unique, ref_template="#/components/schemas/{name}"
    )
    by_kind = {id(kind): schema for kind, schema in zip(unique, schemas, strict=True)}
    components["Refusal"]["properties"]["code"]["enum"] = sorted(CODES)
    paths: dict[str, Any] = {}
    for route in ROUTES:
        operation = _operation(route, by_kind, has_tokens=has_tokens)
        paths.setdefault(route.at(model), {})[route.method.lower()] = operation
        if route.takes is Inference and example is not None:
            body = operation["requestBody"]["content"][JSON]
            body["example"] = msgspec.to_builtins(example)
    told: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": f"covey: {model}",
            "version": version("covey"),
            "description": "Open Inference Protocol v2, with true labels at /feedback. "
            + "Elsewhere: "
            + ", ".join(f"{status} {code}" for code, status in NOWHERE.items())
            + ".",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if has_tokens:
        told["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return told


def _kinds(route: Route) -> Iterable[Any]:
    return [*route.gives.values(), *([] if route.takes is None else [route.takes])]


def _operation(route: Route, schemas: dict[int, Schema], *, has_tokens: bool) -> Schema:
    by_status: dict[int, list[str]] = {}
    for code in sorted(route.codes()):
        by_status.setdefault(CODES[code], []).append(code)
    responses = {
        str(status): _response(_content(kind, schemas)) for status, kind in route.gives.items()
    }
    if route.gives_bytes:
        given = responses["200"]
        given["content"][BINARY] = {"schema": BYTES}
        given["headers"] = {LENGTH: _length()}
    for status, codes in sorted(by_status.items()):
        kept = responses.setdefault(str(status), _response({}))
        kept["content"][PROBLEM] = {"schema": _refusal(status, codes)}
        kept["description"] = ", ".join(codes)
    told: Schema = {
        "operationId": re.sub(r"[^a-z0-9]", "_", f"{route.method}{route.path}".lower()),
        "summary": route.says,
        "responses": responses,
    }
    if route.takes is not None:
        content = _content(route.takes, schemas)
        if route.takes_bytes:
            content[BINARY] = {"schema": BYTES}
            told["parameters"] = [{"name": LENGTH, "in": "header", **_length()}]
        told["requestBody"] = {"required": True, "content": content}
    if has_tokens and route.path not in OPEN_PATHS:
        told["security"] = [{"token": []}]
        if route.scopes:
            told["description"] = f"Needs scope {' or '.join(sorted(route.scopes))}."
    return told


def _length() -> Schema:
    """Return the header that goes with tensors in bytes."""
    return {
        "description": f"With {BINARY}: how many bytes of the body are JSON.",
        "required": False,
        "schema": {"type": "integer", "minimum": 0},
    }


def _response(content: Schema) -> Schema:
    return {"description": "", "content": content}


def _content(kind: Any, schemas: dict[int, Schema]) -> Schema:
    return {"text/plain" if kind is TEXT else JSON: {"schema": schemas[id(kind)]}}


def _refusal(status: int, codes: list[str]) -> Schema:
    """Return a problem that has one of these codes."""
    return {
        "allOf": [
            {"$ref": "#/components/schemas/Refusal"},
            {"properties": {"status": {"const": status}, "code": {"enum": codes}}},
        ],
        "title": HTTPStatus(status).phrase,
    }
