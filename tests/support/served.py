"""A site that is served over real HTTP on the loopback, and a client of it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from covey.server import app, config
from covey.server.client_api import CODES, EVERYWHERE, NOWHERE, ROUTES
from covey.server.http import ProblemBody
from support.coroutines import Story, as_test

CONSTANTS = """
[[function]]
name = "zero"
kind = "constant"
label = 0

[[function]]
name = "one"
kind = "constant"
label = 1
"""
SITE = (
    """
[node]
name = "north"
features = { size = "FP64", kind = "BYTES" }
store = "north.store"
address = "127.0.0.1:0"
dimension = 1

[limits]
json-kib = 16
rows = 100

[policy]
preset = "cos"
slices = 4
label-wait = 20

[[learner]]
name = "north"
functions = ["zero", "one"]
"""
    + CONSTANTS
)
INPUTS = [
    {"name": "size", "shape": [1], "datatype": "FP64", "data": [1.5]},
    {"name": "kind", "shape": [1], "datatype": "BYTES", "data": ["a"]},
    {"name": "context", "shape": [1, 1], "datatype": "FP64", "data": [[0.3]]},
]
INFER, FEEDBACK = "/v2/models/north/infer", "/v2/models/north/feedback"


class Client:
    """What a client does: it posts, and reads a status and JSON."""

    def __init__(self, session: aiohttp.ClientSession, root: str, **headers: str) -> None:
        self.session = session
        self.root = root
        self._headers = headers

    def known_by(self, token: str) -> "Client":
        """The same with a token."""
        return Client(self.session, self.root, Authorization=f"Bearer {token}")

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return await self._send("GET", path, headers=headers)

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        return await self._send("POST", path, data=data, headers=sent)

    async def _send(
        self, method: str, path: str, *, headers: dict[str, str], data: bytes | None = None
    ) -> tuple[int, Any]:
        async with self.session.request(
            method, self.root + path, data=data, headers=self._headers | headers
        ) as response:
            told = await response.json(content_type=None)
        promised(method, path.partition("?")[0], response.status, told)
        return response.status, told


def promised(method: str, path: str, status: int, told: Any) -> None:
    """Raise unless the document of the site says that this may be answered."""
    for route in ROUTES:
        if (route.method, route.at("north")) == (method, path):
            break
    else:
        assert told["code"] in EVERYWHERE | set(NOWHERE)
        assert status == CODES[told["code"]]
        return
    if status in route.gives and "code" not in told:
        msgspec.convert(told, route.gives[status])
    else:
        assert told["code"] in route.codes()
        assert status == CODES[told["code"]]
        assert msgspec.convert(told, ProblemBody).status == status


@asynccontextmanager
async def serving(
    folder: Path, text: str = SITE, *, ca: Path | None = None
) -> AsyncIterator[Client]:
    """Serve a site; its client trusts the file `ca` where there is TLS."""
    (folder / "site.toml").write_text(text)
    is_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    served = config.load(folder / "site.toml")
    task = asyncio.create_task(app.serve(served, is_up=lambda url, *_: is_up.set_result(url)))
    await asyncio.wait([task, is_up], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    root = (await is_up).partition("/v2/")[0]
    trust = ssl.create_default_context(cafile=ca) if ca else True
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        yield Client(session, root)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@asynccontextmanager
async def serving_all(folder: Path, texts: Mapping[str, str]) -> AsyncIterator[dict[str, Client]]:
    """Serve sites, whose keys `Offices` has made in a folder, each from a folder of its name."""
    for name in texts:
        if not (folder / name).exists():
            (folder / name).mkdir()
            for path in [*folder.glob("*.crt"), *folder.glob("*.key")]:
                (folder / name / path.name).symlink_to(path)
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                serving(folder / name, text, ca=folder / f"{name}.crt")
            )
            for name, text in texts.items()
        }


def run(folder: Path, story: Callable[[Client], Awaitable[None]], text: str = SITE) -> None:
    async def main() -> None:
        async with serving(folder, text) as client:
            await story(client)

    asyncio.run(main())


def served(text: str = SITE) -> Callable[[Story], Callable[..., None]]:
    """Make a test of the story of a `client` of a site."""
    return lambda story: as_test(
        story,
        lambda story, values: run(values["tmp_path"], lambda client: story(client=client), text),
        gets=["client"],
        needs=["tmp_path"],
    )


def infer(id_: str | None = "a", **changes: Any) -> dict[str, Any]:
    body = {"inputs": INPUTS, **changes}
    return body if id_ is None else {"id": id_, **body}


async def metrics_of(client: Client) -> dict[tuple[str, ...], float]:
    async with client.session.get(client.root + "/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        text = await response.text()
    return {
        (sample.name, *map(sample.labels.get, sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }
