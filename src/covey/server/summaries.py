"""What a site does now, as it tells peers that may see it, and what it knows of theirs."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from covey.errors import CoveyError, PeerDeclined
from covey.node.peers import DEADLINE_S
from covey.node.series import Tally
from covey.node.status import ArmState, State
from covey.server.peer_messages import MOST_LINKS, LinkInfo, SiteInfo
from covey.server.pulse import LastMinute
from covey.types import BY_CONTEXT

EVERY_S = 5.0  # after which peers are asked again, while people look
LOOKS_S = 15.0  # for which people look after a page or an event was made
TIMEOUT_S = 2.0
DECLINED_S = 60.0  # for which a peer that declines is not asked again
Ask = Callable[[], Awaitable[SiteInfo]]


class PeerView(NamedTuple):
    """What is known of a peer: its status and when it was told, or why there is none."""

    name: str
    info: SiteInfo | None = None
    moment: datetime | None = None  # of the status
    why: str = "not asked yet"  # "": the status is new


def best_own(arms: Sequence[ArmState]) -> ArmState | None:
    """Return the own function with the best answers less its price; None: none has labels."""
    own = [arm for arm in arms if arm.kind == "own" and arm.labels]
    return max(own, key=lambda arm: arm.right / arm.labels - (arm.price or 0.0), default=None)


def site_info(state: State, minute: LastMinute, hour: Mapping[str, Tally]) -> SiteInfo:
    """Return what a site does now, with the tallies of the last hour by arm."""
    best = best_own(state.arms)
    return SiteInfo(
        is_ready=state.is_ready,
        slot=state.slot,
        uptime_s=state.uptime_s,
        decisions=sum(arm.decisions for arm in state.arms),
        cost=sum(arm.spent for arm in state.arms),
        labels=sum(arm.labels for arm in state.arms),
        right=sum(arm.right for arm in state.arms),
        hour_labels=sum(one.labels for one in hour.values()),
        hour_right=sum(one.right for one in hour.values()),
        best="" if best is None else best.name,
        best_labels=0 if best is None else best.labels,
        best_right=0 if best is None else best.right,
        pending=state.open_tickets,
        alarms=state.alarms_total,
        links=links_of(state, minute)[:MOST_LINKS],
    )


def links_of(state: State, minute: LastMinute) -> list[LinkInfo]:
    """Return the peers of a site, with prices and the rows of the last minute."""
    prices, asked = dict[str, float | None](), Counter[str]()
    for arm in state.arms:
        if arm.kind != "own":
            peer = arm.name.removesuffix(BY_CONTEXT)
            prices[peer] = arm.price
            asked[peer] += minute.decisions.get(arm.name, 0)
    return [
        LinkInfo(
            peer=peer.name,
            state=peer.state,
            price=prices.get(peer.name),
            asked=asked[peer.name],
            asks=minute.asked.get(peer.name, 0),
            undelivered=peer.owed,
        )
        for peer in state.peers
    ]


class PeerStatuses:
    """The status of peers, which are asked only while people look at the page."""

    def __init__(self, asks: Mapping[str, Ask] | None = None) -> None:
        self._asks = dict(asks or {})
        self._views = {name: PeerView(name) for name in self._asks}
        self._not_before_s = dict.fromkeys(self._asks, 0.0)
        self._until_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def look(self) -> list[PeerView]:
        """Return what is known of the peers, and keep asking them for a while."""
        loop = asyncio.get_running_loop()
        self._until_s = loop.time() + LOOKS_S
        if self._asks and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._follow())
        return list(self._views.values())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self._until_s:
            now_s = loop.time()
            due = [name for name, from_s in self._not_before_s.items() if from_s <= now_s]
            await asyncio.gather(*map(self._ask, due))
            await asyncio.sleep(EVERY_S)

    async def _ask(self, name: str) -> None:
        """Ask a peer; an old status stays, with the reason why there is none that is new."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + TIMEOUT_S
        DEADLINE_S.set(deadline_s)  # of this task alone
        try:
            async with asyncio.timeout_at(deadline_s):
                info = await self._asks[name]()
        except PeerDeclined:
            self._not_before_s[name] = loop.time() + DECLINED_S
            self._views[name] = PeerView(name, why="does not show its status")
        except (CoveyError, OSError):  # a timeout is one, too
            self._views[name] = self._views[name]._replace(why="no answer")
        else:
            self._views[name] = PeerView(name, info, datetime.now(UTC), "")
