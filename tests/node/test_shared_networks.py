"""Networks that threads share, and functions that are coroutines."""

import asyncio
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.errors import ConfigError, FunctionError
from support.coroutines import looped
from support.flow import Stream, config_of, recorded_stream
from support.snapshots import snapshot_of

THREADS = 16
EACH = 400
CONFIG: dict[str, Any] = {
    "policy": {"preset": "cos", "slices": 2, "label-wait": 20_000},
    "learner": [
        {"name": "north", "functions": ["guess"], "peers": {"south": 0.1}, "serving-cost": 0.01},
        {"name": "south", "functions": ["sign"], "peers": {"north": 0.1}, "serving-cost": 0.01},
    ],
}
FUNCTIONS: dict[str, Callable[[float], int]] = {"guess": lambda x: 0, "sign": lambda x: int(x > 0)}


def together(work: Callable[[int], None]) -> None:
    """Run work in threads that switch as often as they can; raise what they raised."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(THREADS)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    if failures:
        raise failures[0]


def test_sixteen_threads_lose_nothing_and_count_nothing_twice() -> None:
    network = covey.Network(CONFIG, functions=FUNCTIONS, dimension=1)
    tickets: dict[str, list[int]] = {"north": [], "south": []}
    new = [0] * THREADS

    def work(number: int) -> None:
        name = ("north", "south")[number % 2]
        for k in range(EACH):
            answer = network[name].predict(0.5, ((number * EACH + k) % 97 / 97,))
            tickets[name].append(answer.ticket)
            new[number] += network[name].learn(answer.ticket, 1).is_new
            new[number] += network[name].learn(answer.ticket, 1).is_new

    together(work)

    assert sum(new) == THREADS * EACH
    assert len(set(tickets["north"])) == len(set(tickets["south"])) == THREADS * EACH / 2
    assert [site.state.open.pending_rows for site in network.values()] == [0, 0]
    counted = sum(
        site.learner.table.record(row, arm)[0]
        for site in network.values()
        for row in range(len(site.learner.table))
        for arm in range(2)
    )
    asked = sum(site.dealings.asked.get(peer, 0) for site, peer in pairs(network))
    trained = sum(account.sold for account in network.accounts.values())
    assert asked == trained
    # Every own decision that is not training counts once, and every answer to a peer once more.
    assert THREADS * EACH <= counted <= THREADS * EACH + asked


def pairs(network: covey.Network) -> list[tuple[Any, str]]:
    return [(network["north"], "south"), (network["south"], "north")]


def test_threads_that_share_a_ticket_settle_it_once() -> None:
    network = covey.Network(CONFIG, functions=FUNCTIONS, dimension=1)
    given = [network["north"].predict(0.5, (0.3,)).ticket for _ in range(EACH)]
    new = [0] * THREADS

    def work(number: int) -> None:
        for ticket in given:
            new[number] += network["north"].learn(ticket, 1).is_new

    together(work)

    assert sum(new) == EACH


def test_threads_that_save_to_one_file_leave_the_newest_state_in_it(tmp_path: Path) -> None:
    network = covey.Network(CONFIG, functions=FUNCTIONS, dimension=1)
    path = tmp_path / "network.covey"
    network.save(path)

    def work(number: int) -> None:
        for k in range(10):
            network["north"].observe(0.5, 1, ((number * 10 + k) % 97 / 97,))
            network.save(path)
            covey.Network.load(path, functions=FUNCTIONS)

    together(work)
    again = covey.Network.load(path, functions=FUNCTIONS)

    assert [one.name for one in tmp_path.iterdir()] == ["network.covey"]
    assert snapshot_of(again["north"].learner) == snapshot_of(network["north"].learner)


# -- coroutines -----------------------------------------------------------------------------------


async def slow_sign(x: float) -> int:
    await asyncio.sleep(0)
    return int(x > 0)


class SlowSign:
    """A callable object that is a coroutine function."""

    async def __call__(self, x: float) -> int:
        await asyncio.sleep(0)
        return int(x > 0)


class SlowModel:
    """A model whose `predict_one` is a coroutine function."""

    async def predict_one(self, x: float) -> int:
        await asyncio.sleep(0)
        return int(x > 0)


ASYNC = [slow_sign, SlowSign(), SlowModel(), functools.partial(slow_sign)]


@pytest.mark.parametrize("sign", ASYNC, ids=lambda one: type(one).__name__)
@looped
async def test_functions_that_are_coroutines_are_awaited(sign: Any) -> None:
    network = covey.Network(CONFIG, functions={**FUNCTIONS, "sign": sign}, dimension=1)

    found = set()
    for _ in range(60):
        answer = await network["north"].apredict(0.5, (0.3,))
        network["north"].learn(answer.ticket, 1)
        found.add((answer.arm, answer.label))

    assert found == {("guess", 0), ("south", 1)}


@pytest.mark.parametrize("sign", ASYNC, ids=lambda one: type(one).__name__)
def test_predict_never_returns_a_coroutine_as_a_label(sign: Any) -> None:
    network = covey.Network(CONFIG, functions={**FUNCTIONS, "sign": sign}, dimension=1)
    before = snapshot_of(network["south"].learner).slot

    with pytest.raises(FunctionError, match="'sign' .* is asynchronous .* await apredict"):
        network["south"].predict(0.5, (0.3,))
    assert (
        snapshot_of(network["south"].learner).slot,
        network["south"].state.open.pending_rows,
    ) == (
        before,
        0,
    )


def test_a_function_that_returns_a_coroutine_is_named() -> None:
    def returns_a_coroutine(x: float) -> Any:
        return slow_sign(x)

    functions = {**FUNCTIONS, "sign": returns_a_coroutine}
    network = covey.Network(CONFIG, functions=functions, dimension=1)

    with pytest.raises(FunctionError, match="returned a coroutine, which must be awaited; define"):
        network["south"].predict(0.5, (0.3,))


def test_a_function_whose_training_is_a_coroutine_is_refused() -> None:
    async def learn(x: float, label: int) -> None:
        raise AssertionError("never called")

    with pytest.raises(ConfigError, match="'sign' of learner 'south' learns with a coroutine"):
        covey.Network(CONFIG, functions={**FUNCTIONS, "sign": (FUNCTIONS["sign"], learn)})


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza", "share-ucb"])
def test_awaited_functions_decide_as_others_do(preset: str) -> None:
    stream = recorded_stream()
    config = config_of(preset)
    config["policy"]["pending"] = True

    def awaited(function: Callable[[int], int]) -> Any:
        async def called(slot: int) -> int:
            return function(slot)

        return called

    async def play(network: covey.Network) -> list[Any]:
        live = []
        for slot in range(300):
            site, context = network[stream.at[slot]], tuple(stream.contexts[slot].tolist())
            answer = await site.apredict(slot, context)
            settled = site.learn(answer.ticket, int(stream.labels[slot]))
            live.append((answer, settled))
        return live

    functions = {name: awaited(one) for name, one in stream.functions.items()}
    slow = covey.Network(config, functions=functions, dimension=2)
    fast = covey.Network(config, functions=stream.functions, dimension=2)

    assert asyncio.run(play(slow)) == [fast_row(fast, stream, slot) for slot in range(300)]


def fast_row(network: covey.Network, stream: Stream, slot: int) -> Any:
    site = network[stream.at[slot]]
    answer = site.predict(slot, tuple(stream.contexts[slot].tolist()))
    return answer, site.learn(answer.ticket, int(stream.labels[slot]))


@looped
async def test_requests_that_wait_for_functions_run_at_the_same_time() -> None:
    most, now = [0], [0]

    async def busy(x: float) -> int:
        now[0] += 1
        most[0] = max(most[0], now[0])
        for _ in range(3):
            await asyncio.sleep(0)
        now[0] -= 1
        return 1

    config = {"learner": [{"name": "north", "functions": ["busy"]}]}
    north = covey.Network(config, functions={"busy": busy}, dimension=0)["north"]

    answers = await asyncio.gather(*(north.apredict(0.5) for _ in range(10)))
    settled = [(answer.ticket, north.learn(answer.ticket, 1)) for answer in answers]

    assert most == [10]
    assert sorted(ticket for ticket, _ in settled) == list(range(1, 11))
    assert all(one.is_new and one.is_right for _, one in settled)


@looped
async def test_a_failure_while_others_wait_takes_back_its_own_row_only() -> None:
    async def fails_for_two(x: float) -> int:
        await asyncio.sleep(0)
        if x == 2:
            raise ValueError("two")
        return 1

    functions = {**FUNCTIONS, "sign": fails_for_two}
    network = covey.Network(CONFIG, functions=functions, dimension=1)

    calls = [network["south"].apredict(k, (0.3,)) for k in range(5)]
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [isinstance(answer, FunctionError) for answer in answers] == [
        False,
        False,
        True,
        False,
        False,
    ]
    good = [answer for answer in answers if not isinstance(answer, FunctionError)]
    assert all(network["south"].learn(one.ticket, 1).is_new for one in good)
    assert network["south"].state.open.pending_rows == 0


@looped
async def test_a_cancelled_request_changes_nothing() -> None:
    async def never(x: float) -> int:
        await asyncio.Event().wait()
        return 1

    config = {"learner": [{"name": "north", "functions": ["never"]}]}
    north = covey.Network(config, functions={"never": never}, dimension=0)["north"]

    task = asyncio.create_task(north.apredict(0.5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (north.state.open.pending_rows, north.state.latest_slot) == (0, 0)
