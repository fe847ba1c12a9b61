"""Functions in processes: same answers; late, dying and leftover processes; reloads; refusals."""

import asyncio
import multiprocessing
import os
import select
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from covey.errors import ConfigError, CoveyError, FunctionBusy, FunctionError
from covey.functions.function import Function
from covey.functions.registry import functions_from
from covey.node.functions import Answering, ThreadWorkers
from covey.server import config, tokens
from covey.store.store import Store
from covey.toml import modules_beside
from support.served import FEEDBACK, INFER, INPUTS, SITE, Client, serving
from support.site_processes import Client as SiteClient
from support.site_processes import started

PARITY = 'name = "one"\nkind = "python"\nentry = "support.elsewhere:parity"\n'
OUTPUTS = {"outputs": [{"name": name} for name in ("label", "arm", "phase")]}
IN_THREADS = SITE.replace('name = "one"\nkind = "constant"\nlabel = 1\n', PARITY).replace(
    'preset = "cos"\nslices = 4\n', ""
)
IN_PROCESSES = IN_THREADS.replace(PARITY, f"{PARITY}processes = 2\n")


def function_of(**more: Any) -> Function:
    table = {"name": "f", "kind": "python", "entry": "support.elsewhere:pid", "processes": 2}
    (function,) = functions_from([table | more], owner="north", folder=Path()).values()
    return function


def run(function: Function, story: Callable[..., Awaitable[None]]) -> None:
    """Open the processes of a function, and let a story call it; nothing may be left after it."""

    async def main() -> None:
        workers = ThreadWorkers(Store.memory())
        try:
            await workers.open([function])

            async def answered(*rows: Any) -> list[Any]:
                found = await workers.run(function, Answering(function, list(rows)), patience_s=60)
                if isinstance(found, CoveyError):
                    raise found
                assert isinstance(found, list)
                return found

            async def available() -> None:
                while not workers.is_available(function):
                    await asyncio.sleep(0)

            await story(answered, available)
        finally:
            workers.close()

    asyncio.run(asyncio.wait_for(main(), 120))
    assert multiprocessing.active_children() == []


def test_a_batch_is_divided_among_the_processes() -> None:
    async def story(answered: Any, available: Any) -> None:
        first, second, *others = dict.fromkeys(await answered(*range(600)))
        assert (others, os.getpid() in (int(first), int(second))) == ([], False)
        assert await answered(*range(600)) == [first] * 300 + [second] * 300
        assert set(await answered("x")) < {first, second}

    run(function_of(), story)


def test_what_a_function_raises_there_fails_its_rows_and_the_process_stays() -> None:
    async def story(answered: Any, available: Any) -> None:
        before = await answered(*range(600))
        with pytest.raises(FunctionError, match="ValueError") as raised:
            await answered("raise, secret")
        assert "elsewhere.py:" in str(raised.value.__cause__)  # which is what a site logs
        assert "secret" not in str(raised.value.__cause__)
        with pytest.raises(FunctionError, match="KeyboardInterrupt"):
            await answered("interrupt")
        assert await answered(*range(600)) == before

    run(function_of(), story)


def test_a_process_that_dies_fails_its_call_and_is_replaced() -> None:
    async def story(answered: Any, available: Any) -> None:
        before = set(await answered(*range(600)))
        with pytest.raises(FunctionError, match="has ended; another one is started"):
            await answered("die")
        (left,) = await answered("x")  # the other process answers meanwhile
        assert left in before
        os.kill(int(left), signal.SIGKILL)
        with suppress(FunctionError):
            while True:  # until it is noticed
                await answered("x")
        await available()
        assert not set(await answered("x")) & before

    run(function_of(), story)


def test_a_call_that_is_late_fails_and_its_process_is_replaced() -> None:
    async def story(answered: Any, available: Any) -> None:
        (before,) = await answered("x")
        with pytest.raises(FunctionBusy, match=r"within 1\.5 s; its process is replaced"):
            await answered("hang")
        await available()
        (after,) = await answered("x")
        assert after != before

    run(function_of(processes=1, **{"timeout-s": 1.5}), story)


def test_a_call_that_never_returns_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("covey.node.functions.CLOSE_S", 0.1)

    async def story(answered: Any, available: Any) -> None:
        hanging = asyncio.ensure_future(answered("hang"))
        assert len(await answered("x")) == 1
        hanging.cancel()

    run(function_of(), story)


# -- served sites -------------------------------------------------------------------------------


async def decided(client: Client, rows: int, first: int = 0) -> list[Any]:
    """Return what a site answers to requests of one row and of many, which get labels."""
    found = []
    for number in range(first, first + rows):
        count = 1 if number % 3 else 4
        sizes = [(number * 7 + k) % 10 / 10 for k in range(count)]
        inputs = [
            {**one, "shape": [count, *one["shape"][1:]], "data": data}
            for one, data in zip(INPUTS, (sizes, ["a"] * count, sizes), strict=True)
        ]
        status, told = await client.post(INFER, {"id": f"r{number}", "inputs": inputs, **OUTPUTS})
        assert status == 200, told
        found.append([output["data"] for output in told["outputs"]])
        truths = [int(size * 10) % 2 if number % 5 else 0 for size in sizes]
        label = {"id": f"r{number}", "truth": truths, "rows": list(range(count))}
        assert (await client.post(FEEDBACK, label))[0] == 202
    return found


def test_a_site_decides_and_answers_as_without_processes(tmp_path: Path) -> None:
    """The policy is the default one."""

    async def main() -> list[list[Any]]:
        found = []
        for name, text in (("threads", IN_THREADS), ("processes", IN_PROCESSES)):
            (tmp_path / name).mkdir()
            async with serving(tmp_path / name, text) as client:
                assert len(multiprocessing.active_children()) == (2 if name == "processes" else 0)
                found.append(await decided(client, 60))
        return found

    threads, processes = asyncio.run(asyncio.wait_for(main(), 120))

    assert threads == processes
    assert "one" in str(threads)
    assert multiprocessing.active_children() == []


def test_a_site_goes_on_when_a_process_dies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = IN_PROCESSES.replace(":parity", ":pid").replace("processes = 2", "processes = 1")
    deadly = [{**one, "data": ["die"]} if one["name"] == "kind" else one for one in INPUTS]
    outputs = [{"name": "arm"}, {"name": "function"}]

    async def main() -> dict[str, str]:
        async with serving(tmp_path, text) as client:
            answered = {}
            while "one" not in answered:  # it is explored
                status, told = await client.post(INFER, {"inputs": deadly, "outputs": outputs})
                assert status == 200, told
                arm, function = (output["data"][0] for output in told["outputs"])
                answered[arm] = function
            return answered

    assert asyncio.run(asyncio.wait_for(main(), 120))["one"] == "zero"
    assert "the process of function 'one' of learner 'north' has ended" in caplog.text
    assert multiprocessing.active_children() == []


def test_a_reload_ends_the_processes_that_are_no_longer_named(tmp_path: Path) -> None:
    def pids() -> set[int | None]:
        return {process.pid for process in multiprocessing.active_children()}

    def closed(text: str) -> str:
        return text.replace("[node]", '[node]\ntokens = "tokens.json"')

    scopes = ["infer", "feedback", "admin"]
    secret, _ = tokens.new(tmp_path / "tokens.json", "operator", scopes=scopes)

    async def main() -> None:
        async with serving(tmp_path, closed(IN_THREADS)) as anyone:
            client = anyone.known_by(secret)

            async def reloaded(text: str) -> int:
                (tmp_path / "site.toml").write_text(closed(text))
                return (await client.post("/admin/reload", b""))[0]

            assert await reloaded(IN_PROCESSES) == 200
            assert len(known := pids()) == 2
            assert await reloaded(f"{IN_PROCESSES}\n# another file") == 200
            assert pids() == known
            assert await reloaded(IN_PROCESSES.replace("processes = 2", "processes = 0")) == 409
            assert pids() == known
            await decided(client, 3)
            assert await reloaded(IN_THREADS) == 200
            await decided(client, 3, first=3)

    asyncio.run(asyncio.wait_for(main(), 120))

    assert multiprocessing.active_children() == []


def test_processes_end_with_a_site_that_is_killed(tmp_path: Path) -> None:
    entry = "support.elsewhere:pid"
    text = IN_PROCESSES.replace("support.elsewhere:parity", entry).replace('"zero", "one"', '"one"')
    (tmp_path / "site.toml").write_text(text)

    with ExitStack() as stack, started("serve", str(tmp_path / "site.toml")) as site:
        assert site.stderr is not None
        client = SiteClient(site.stderr.readline().strip(), site)
        answer = client.infer("r", INPUTS)
        client.close()
        (label,) = answer["outputs"][0]["data"]
        ended = os.pidfd_open(int(label))
        stack.callback(os.close, ended)
        site.kill()
        assert select.select([ended], [], [], 60)[0] == [ended]


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"processes": 0}, "processes: expected int >= 1"),
        ({"processes": 65}, "processes: expected int <= 64"),
        ({"processes": "2"}, "processes"),
        ({"entry": "support.elsewhere:Pupil"}, "set learns = false, or remove processes"),
        ({"kind": "river"}, "processes is for functions of kind python"),
        ({"kind": "constant", "label": 1}, "processes is for functions of kind python"),
    ],
    ids=str,
)
def test_processes_that_make_no_sense_are_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        function_of(**table)


def test_a_file_that_cannot_be_loaded_there_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(
        "import multiprocessing\n"
        "def zero(instance):\n    return 0\n"
        "if multiprocessing.parent_process() is not None:\n    raise OSError('no device')\n"
    )
    (tmp_path / "site.toml").write_text(
        IN_PROCESSES.replace("support.elsewhere:parity", "once:zero")
    )
    served = config.load(tmp_path / "site.toml")

    async def main() -> None:
        workers = ThreadWorkers(Store.memory())
        try:
            await workers.open(served.functions)
        finally:
            workers.close()

    refused = pytest.raises(ConfigError, match="cannot be loaded in a process: .*no device")
    with modules_beside(tmp_path / "site.toml"), refused:
        asyncio.run(asyncio.wait_for(main(), 120))
    assert multiprocessing.active_children() == []
