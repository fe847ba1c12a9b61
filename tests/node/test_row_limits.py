"""The limits on rows in memory are never exceeded, and no request that fits is refused."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from covey.errors import FunctionError, LimitError
from covey.node.functions import Answering, Limits, Workers
from covey.node.node import Node
from covey.site.requests import AskRow, holder
from support import virtual
from support.virtual import Disk, World

CONFIG = {
    "policy": {"preset": "cos", "slices": 1},
    "learner": [{"name": "site", "functions": ["f"], "peers": {}}],
}
OWN_ROWS, PEER_ROWS = 9, 4


class Asked(NamedTuple):
    """A request: its source, when it comes, its rows, and how long the function takes for it."""

    source: str
    at_s: int
    rows: int
    takes_s: int  # 0: the function fails


class SlowDisk(Disk):
    async def run(self, function: Any, call: Callable[..., Any], **how: Any) -> Any:
        await asyncio.sleep(cast("Answering", call).rows[0])
        return await super().run(function, call, **how)


class Slow(World):
    """A world whose functions take as long as their instances say."""

    limits, peer_tickets = Limits(tickets=OWN_ROWS), PEER_ROWS

    def disk(self, name: str) -> Workers:
        return SlowDisk(self, name)


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
def test_requests_in_progress_count_and_none_that_fits_is_refused(script: list[Asked]) -> None:
    async def main() -> None:
        world = Slow(CONFIG, {"f": function}, dimension=0)
        node, taken = world.nodes["site"], Counter[str]()
        await asyncio.gather(*(ask(node, number, one, taken) for number, one in enumerate(script)))

        assert {who: node._state.open.held(who) for who in taken} == dict(taken)

    virtual.run(main())


async def ask(node: Node, number: int, one: Asked, taken: Counter[str]) -> None:
    """Send a request, and compare with the rows that are counted here."""
    who = holder(one.source)
    most = PEER_ROWS if who else OWN_ROWS
    await asyncio.sleep(one.at_s)
    has_room = taken[who] + one.rows <= most
    taken[who] += one.rows if has_room else 0
    is_refused = False
    try:
        await send(node, number, one)
    except LimitError:
        is_refused = True
    except FunctionError:
        taken[who] -= one.rows

    assert is_refused is not has_room
    assert node._state.open.held(one.source) <= most


async def send(node: Node, number: int, one: Asked) -> None:
    if holder(one.source):
        rows = [AskRow(f"{number}-{k}", "g1", 1, one.takes_s) for k in range(one.rows)]
        await node.for_peers.assist(rows, source=one.source)
    else:
        await node.answer([one.takes_s] * one.rows, [()] * one.rows)
