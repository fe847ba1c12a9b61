"""The room for tickets is never overrun, and is given to whoever fits into it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

import virtual
from covey.books import holder
from covey.errors import FunctionError, LimitError
from covey.node.node import Limits, Node
from covey.peers import Request
from covey.store import Store
from virtual import World

CONFIG = {
    "policy": {"preset": "cos", "slices": 1, "horizon": 500},
    "learner": [{"name": "site", "functions": ["f"], "peers": {}}],
}
OWN_ROOM, PEER_ROOM = 9, 4


class Asked(NamedTuple):
    """A request: who comes when, with how many rows, and how long the function takes for it."""

    source: str
    at_s: int
    rows: int
    takes_s: int  # 0: the function fails


class Slow(World):
    """A world whose functions take their time."""

    limits = Limits(tickets=OWN_ROOM, peer_tickets=PEER_ROOM, under_way=1_000, for_peers=1_000)

    def disk(self, name: str) -> Any:
        commit = super().disk(name)

        async def work(run: Callable[..., Any], /, *given: Any) -> Any:
            if not isinstance(getattr(run, "__self__", None), Store):
                takes_s = given[0] if isinstance(given[0], int) else given[1][0][0]
                await asyncio.sleep(takes_s)
            return await commit(run, *given)

        return work


def function(takes_s: int) -> int:
    if takes_s <= 0:
        raise ValueError("no")
    return takes_s


requests = st.builds(
    Asked,
    st.sampled_from(["", "client/a", "east", "west"]),
    st.integers(0, 20),
    st.integers(1, 4),
    st.integers(0, 9),
)


@settings(max_examples=200)
@given(st.lists(requests, max_size=30))
def test_requests_under_way_count_and_nobody_is_refused_for_whom_there_is_room(
    script: list[Asked],
) -> None:
    async def main() -> None:
        world = Slow(CONFIG, {"f": function}, dimension=0)
        node, taken = world.nodes["site"], Counter[str]()
        await asyncio.gather(*(ask(node, number, one, taken) for number, one in enumerate(script)))

        assert {who: node._book.held(who) for who in taken} == dict(taken)

    virtual.run(main())


async def ask(node: Node, number: int, one: Asked, taken: Counter[str]) -> None:
    """Ask, and compare with what the room must be by the books kept here."""
    who, most = holder(one.source), OWN_ROOM if holder(one.source) == "" else PEER_ROOM
    rows = one.rows if who == "" else 1
    await asyncio.sleep(one.at_s)
    has_room = taken[who] + rows <= most
    taken[who] += rows if has_room else 0
    is_refused = False
    try:
        await say(node, number, one)
    except LimitError:
        is_refused = True
    except FunctionError:
        taken[who] -= rows

    assert is_refused is not has_room
    assert node._book.held(one.source) <= most


async def say(node: Node, number: int, one: Asked) -> None:
    if holder(one.source):
        await node.assist(Request(str(number), "g1", 1, one.takes_s), source=one.source)
    elif one.rows == 1:
        await node.predict(one.takes_s)
    else:
        await node.predict_batch([one.takes_s] * one.rows, [()] * one.rows)
