"""A function that does not return stops neither the site nor its end."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from covey.server import http
from support.hanging import gate
from support.served import FEEDBACK, INFER, INPUTS, SITE, Client, infer, metrics_of, run, served
from support.site_processes import _client, _start

FUNCTIONS = 'functions = ["zero", "one"]'
STATE = "/v2/models/north/state"


def site(function: str, *, is_only: bool = False, limits: str = "") -> str:
    """Return a site that explores this function, `slow`, before another one."""
    names = '["slow"]' if is_only else '["slow", "one"]'
    text = SITE.replace(FUNCTIONS, f"functions = {names}")
    text = text.replace("[limits]", f"[limits]\n{limits}")
    return f'{text}\n[[function]]\nname = "slow"\n{function}'


def shut(**more: Any) -> str:
    lines = [f"{key} = {value}" for key, value in more.items()]
    return "\n".join(['kind = "python"', 'entry = "support.hanging:gate"', *lines])


@pytest.fixture
def shut_gate() -> Iterator[None]:
    gate.shut()
    yield
    gate.open()


async def called() -> None:
    assert await asyncio.get_running_loop().run_in_executor(None, gate.is_called.wait, 30.0)


def arms(state: Any) -> dict[str, tuple[int, int]]:
    return {arm["name"]: (arm["decisions"], arm["labels"]) for arm in state["arms"]}


@pytest.mark.usefixtures("shut_gate")
@served(site(shut(**{"timeout-s": 0.1})))
async def test_another_function_stands_in_for_one_that_hangs_and_the_label_counts_for_that(
    client: Client,
) -> None:
    async with asyncio.timeout(30):
        told = [await client.post(INFER, infer(id_)) for id_ in "abc"]
        labelled = [await client.post(FEEDBACK, {"id": id_, "truth": 1}) for id_ in "abc"]
        status, state = await client.get(STATE)

    assert [(code, one["parameters"]["arm"]) for code, one in told] == [(200, "one")] * 3
    assert [code for code, _ in labelled] == [202] * 3
    assert (status, arms(state)) == (200, {"slow": (0, 0), "one": (3, 3)})


@pytest.mark.usefixtures("shut_gate")
def test_nothing_but_inference_waits_for_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "QUEUED", 1)

    async def story(client: Client) -> None:
        gate.open()
        await client.post(INFER, infer("old"))
        gate.shut()
        waiting = asyncio.create_task(client.post(INFER, infer("a")))
        await called()
        others = [asyncio.create_task(client.post(INFER, infer(id_))) for id_ in "bc"]
        async with asyncio.timeout(30):
            # One waits in the queue, and there is no room for the other one.
            (refused,), (queued,) = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
            paths = ("/v2/health/live", "/v2/health/ready", STATE, "/v2/models/north")
            statuses = [(await client.get(path))[0] for path in paths]
            labelled, _ = await client.post(FEEDBACK, {"id": "old", "truth": 1})
            await metrics_of(client)
        gate.open()

        assert (refused.result()[0], statuses, labelled) == (503, [200] * 4, 202)
        assert [(await one)[0] for one in (waiting, queued)] == [200, 200]

    slow = shut(**{"timeout-s": 600})
    run(tmp_path, story, site(slow, is_only=True, limits="in-flight = 1"))


@pytest.mark.usefixtures("shut_gate")
@served(site(shut(**{"timeout-s": 0.1}), is_only=True))
async def test_a_site_whose_only_function_hangs_says_that_it_is_busy(client: Client) -> None:
    async with asyncio.timeout(30):
        told = [await client.post(INFER, infer(id_)) for id_ in "ab"]
        ready, _ = await client.get("/v2/health/ready")

    assert [(code, one["code"]) for code, one in told] == [(503, "busy")] * 2
    assert "did not return within 0.1 s" in told[0][1]["detail"]
    assert ready == 200


def test_a_site_stops_though_a_function_never_returns(tmp_path: Path) -> None:
    never = 'kind = "python"\nentry = "support.hanging:never"\ntimeout-s = 0.1\n'
    (tmp_path / "north.toml").write_text(site(never))
    with ExitStack() as stack:
        process = _start(tmp_path / "north.toml")
        stack.callback(process.kill)
        told = _client(process, stack).infer("a", INPUTS)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)

    assert told["parameters"]["arm"] == "one"
    assert process.returncode == 0
    assert "function 'slow' has not returned; the site stops without it" in said
