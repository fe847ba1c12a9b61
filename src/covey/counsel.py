"""What a node hears of its peers while it decides, and how it decides without them."""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from covey.books import Book
from covey.decisions import Decision
from covey.errors import ConfigError, PeerError
from covey.learner import Learner
from covey.lotbook import Draft
from covey.peers import Guard, Patience, Peer
from covey.rates import Seldom
from covey.types import Context, Report

log = logging.getLogger(__name__)
NOTHING_TOLD = (0.0, 0)
ANY_ACCURACY = (0.0, 1.0)  # what peers report that need say no more than arrivals
NOTHING_REPORTED = (0, *ANY_ACCURACY)


def none_sent(peer: str) -> int:
    """Say that nothing is about to be sent."""
    return 0


class Talk(NamedTuple):
    """What one request has heard so far, and which of its rows peers have yet to see."""

    deadline_s: float
    heard: dict[tuple[str, str], tuple[int, Report]]  # by peer and cell, with the slot of it
    sent: Callable[[str], int] = none_sent  # to a peer, in the cell that is asked about


class Counsel:
    """The peers of a site, each behind a guard; those that fail are left alone for a while."""

    def __init__(
        self,
        learner: Learner,
        book: Book,
        peers: Mapping[str, Peer],
        patience: Patience,
        chance: random.Random,
    ) -> None:
        self.prices = _prices(learner)
        self.guards = {
            peer: Guard(peer, _door(learner, peers, peer), patience, chance) for peer in self.prices
        }
        self._learner = learner
        self._book = book
        self._shut: set[str] = set()  # peers that are not to be asked for now
        self._unsaid = 0  # rows decided alone since that was last written to the log
        self._lines = Seldom()

    def begin(self) -> Talk:
        """Begin to decide: all that peers are asked for has one deadline."""
        self._open_and_shut()
        deadline_s = min((one.deadline_s() for one in self.guards.values()), default=math.inf)
        return Talk(deadline_s, {})

    async def consult(self, decision: Decision, talk: Talk) -> None:
        """Ask peers what the decision needs to know."""
        if not self._learner.is_supervised:
            await self._consult_blindly(decision, talk.deadline_s)
            return
        cell = self._learner.cell_name(decision)
        reports = await asyncio.gather(
            *(self._report(peer, cell, decision.slot, talk) for peer in decision.asks)
        )
        # Whatever a peer says, it has seen what it answered: so it cannot have itself trained on.
        self._book.inform(
            decision,
            [
                (max(arrivals, self._book.asked(cell, peer)) + talk.sent(peer), low, high)
                for peer, (arrivals, low, high) in zip(decision.asks, reports, strict=True)
            ],
        )

    def decide_alone(self, context: Context, slot: int, why: PeerError) -> Decision:
        """Decide as if there were nobody to ask."""
        self._note_alone(1, why)
        with self._all_shut():
            decision = self._book.decide(context, slot)
            if decision.asks:
                self._book.consult(decision, [NOTHING_TOLD for _ in self._learner.behind()])
        return decision

    def decide_rest_alone(self, draft: Draft, why: PeerError) -> None:
        """Decide the rest of a lot as if there were nobody to ask."""
        self._note_alone(len(draft) - draft.done, why)
        with self._all_shut():
            while (decision := self._book.lots.decide(draft)) is not None:
                self._book.consult(decision, [NOTHING_TOLD for _ in self._learner.behind()])
                self._book.lots.go_on(draft, decision)

    def _note_alone(self, rows: int, why: PeerError) -> None:
        self._book.ledger.alone += rows
        self._unsaid += rows
        if self._lines.is_due(asyncio.get_running_loop().time()):
            log.warning("%d rows were decided without peers: %s", self._unsaid, why)
            self._unsaid = 0

    async def _report(self, peer: str, cell: str, slot: int, talk: Talk) -> Report:
        """Return what a peer reports; within a request it is asked again when the slot doubled."""
        at, report = talk.heard.get((peer, cell), (0, NOTHING_REPORTED))
        if slot <= 2 * at or (at and report[1:] == ANY_ACCURACY):
            return report
        report = await self.guards[peer].report(cell, slot, talk.deadline_s)
        talk.heard[peer, cell] = slot, report
        return report

    async def _consult_blindly(self, decision: Decision, deadline_s: float) -> None:
        cell, slot = self._learner.cell_name(decision), decision.slot
        told = await asyncio.gather(
            *(
                self.guards[peer].estimate(cell, slot, deadline_s, is_by_context=is_by_context)
                for peer, is_by_context in self._learner.behind()
            ),
            return_exceptions=True,
        )
        for one in told:
            if isinstance(one, BaseException) and not isinstance(one, PeerError):
                raise one
        self._book.consult(
            decision, [NOTHING_TOLD if isinstance(one, BaseException) else one for one in told]
        )

    @contextlib.contextmanager
    def _all_shut(self) -> Iterator[None]:
        is_open = [peer for peer in self.prices if peer not in self._shut]
        for peer in is_open:
            self._learner.reprice(peer, math.inf)
        yield
        for peer in is_open:
            self._learner.reprice(peer, self.prices[peer])

    def _open_and_shut(self) -> None:
        """Let the learner know which peers are left alone for now."""
        for peer, guard in self.guards.items():
            if guard.is_resting != (peer in self._shut):
                self._shut ^= {peer}
                price = math.inf if peer in self._shut else self.prices[peer]
                self._learner.reprice(peer, price)


def _door(learner: Learner, peers: Mapping[str, Peer], peer: str) -> Peer:
    if peer not in peers:
        raise ConfigError(f"learner {learner.name!r} may ask {peer!r}, but there is no way to it")
    return peers[peer]


def _prices(learner: Learner) -> dict[str, float]:
    """Return what asking each peer costs."""
    behind = learner.behind()
    names = [peer for peer, _ in behind]
    for peer in names:
        if names.count(peer) > 1:
            raise ConfigError(
                f"learner {learner.name!r} has {peer!r} in peers and in context-peers; a node "
                "takes one of them"
            )
    costs = learner.costs[len(learner.costs) - len(names) :]
    return dict(zip(names, costs, strict=True))
