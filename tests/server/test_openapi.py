"""The document of a site says all that it answers, and nothing else."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.server import client_api
from covey.server.client_api import CODES, EVERYWHERE, NOWHERE, OPEN_PATHS, ROUTES
from covey.server.http import STATUSES, HttpProblem
from support.served import INFER, Client, served

SOURCES = Path(covey.__file__).parent
# What clients may meet on their way: peer messages have other problems.
FRONT = ["client_api", "connection", "http", "listener", "oip", "page_api", "tensors"]
PAGES = [SOURCES.parents[1] / "docs" / "operations" / name for name in ("node.md", "operating.md")]
DOCUMENT = client_api.openapi_document("north", has_tokens=True)


def raised() -> Iterator[tuple[int, str]]:
    """Yield status and code of every problem that the sources for clients speak of."""
    for name in FRONT:
        path = SOURCES / "server" / f"{name}.py"
        tree = ast.parse(path.read_text()) if path.exists() else ast.Module([], [])
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "HttpProblem":
                given = [getattr(arg, "value", None) for arg in node.args[:2]]
                if all(given):
                    yield tuple(given)  # type: ignore[misc]
    yield from ((status, code) for _, status, code in STATUSES)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
    ]


def test_every_problem_that_can_be_raised_has_its_code_and_every_code_is_raised() -> None:
    assert dict(map(reversed, raised())) == CODES
    assert len(set(raised())) == len(CODES)


def test_every_code_is_answered_by_some_route_or_where_there_is_none() -> None:
    answered = set().union(*(route.codes() for route in ROUTES)) | set(NOWHERE)

    assert answered == set(CODES)
    assert set(CODES) >= EVERYWHERE


def test_the_document_lists_every_route_and_nothing_else() -> None:
    assert [(method, path) for method, path, _ in operations()] == [
        (route.method, route.at("north")) for route in ROUTES
    ]
    assert len({operation["operationId"] for *_, operation in operations()}) == len(ROUTES)


@pytest.mark.parametrize("place", range(len(ROUTES)), ids=[route.path for route in ROUTES])
def test_an_operation_has_every_status_and_code_of_its_route(place: int) -> None:
    route, (_, path, operation) = ROUTES[place], operations()[place]
    codes = {
        code
        for response in operation["responses"].values()
        for content in response["content"].values()
        if "allOf" in content["schema"]
        for code in content["schema"]["allOf"][1]["properties"]["code"]["enum"]
    }

    assert codes == route.codes()
    assert {int(status) for status in operation["responses"]} == {
        *route.gives,
        *(CODES[code] for code in codes),
    }
    assert ("security" in operation) == (path not in OPEN_PATHS)
    assert ("requestBody" in operation) == (route.method == "POST")


def test_references_lead_somewhere() -> None:
    def references(tree: Any) -> Iterator[str]:
        if isinstance(tree, dict):
            yield from (one for key, one in tree.items() if key == "$ref")
            tree = list(tree.values())
        for one in tree if isinstance(tree, list) else ():
            yield from references(one)

    found = {reference.removeprefix("#/components/schemas/") for reference in references(DOCUMENT)}
    assert found == set(DOCUMENT["components"]["schemas"])
    assert len(found) > 10


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_in_the_pages_with_its_status(code: str) -> None:
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    tables = [line for line in lines if line.startswith("|")]
    rows = [
        table for table in tables if f"`{code}`" in table.split("|")[1].replace(",", " ").split()
    ]
    rows = [row for row in rows if " " not in row.split("|")[1].strip().replace(", ", "")]

    assert len(rows) == 1
    codes, statuses = (
        [one.strip(" `") for one in cell.split(",")] for cell in rows[0].split("|")[1:3]
    )
    assert dict(zip(codes, statuses, strict=True))[code] == str(CODES[code])


@served()
async def test_the_document_is_served(client: Client) -> None:
    status, told = await client.get("/v2/openapi.json")

    assert (status, told["openapi"]) == (200, "3.1.0")
    (example, _) = (
        told["paths"][path]["post"]["requestBody"]["content"]["application/json"].pop("example")
        for path in (INFER, INFER.replace("north/", "north/versions/1/"))
    )
    assert told == client_api.openapi_document("north", has_tokens=False)
    assert (await client.post(INFER, example))[0] == 200


def test_a_problem_has_retry_after_if_a_retry_can_succeed() -> None:
    assert HttpProblem(503, "busy", "x").headers == {"Retry-After": "1"}
    assert HttpProblem(429, "too_often", "x", {"Retry-After": "7"}).headers == {"Retry-After": "7"}
    assert HttpProblem(400, "bad_json", "x").headers == {}
