"""Answers the messages of peers, which their certificates identify. No sockets."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from covey.errors import (
    CoveyError,
    DataError,
    FunctionError,
    LimitError,
    PeerDeclined,
    PeerError,
    StoreError,
    TicketError,
)
from covey.node.functions import Limits
from covey.node.node import Node
from covey.server import peer_messages
from covey.server.config import PeerConfig
from covey.server.http import AdmissionQueue, HttpProblem, HttpRequest, HttpResponse, Rates
from covey.server.peer_messages import KIND, VERSION, AnyMessage
from covey.server.spaces import SpaceNames
from covey.site.requests import ALARM, NO_INSTANCE, AskRow, alarm_id, alarm_of
from covey.store.fingerprint import describe_cells, preset_of

ROOT = peer_messages.ROOT
NAMES = ("ask", "report", "labels", "hello")
PATHS = tuple(f"{ROOT}/{name}" for name in NAMES)
MESSAGES_PER_S = 1_000.0  # of a peer whose table has no number; a decision can take three
RIGHTLESS_PER_S = 20.0  # messages of a peer that may not ask
RIGHTLESS_BYTES = 64 * 1_024  # of each of them
# The first match counts. A sentence says no more of this site than a peer needs to know; without
# one, the error is about what the peer sent, and it gets the message of the error.
PROBLEMS: tuple[tuple[type[CoveyError], int, str, str], ...] = (
    (DataError, 422, "invalid", ""),
    (TicketError, 409, "conflict", "the id was used for another question; choose another"),
    (LimitError, 503, "busy", "too many requests are running or kept; try again later"),
    (FunctionError, 422, "not_classified", "no function here could classify what was sent"),
    (StoreError, 503, "store_failed", "this site cannot write now; try again later"),
    (PeerDeclined, 403, "not_relayed", ""),
    (PeerError, 502, "hop_failed", "the next site on the path did not answer; try again later"),
)


class PeerUse:
    """What peers have used of what each of them may; it stays when the file of a site changes."""

    def __init__(self) -> None:
        self.messages, self.rows = Rates(), Rates()
        self.in_flight: Counter[str] = Counter()


class PeerApi:
    """Answers peers within what each of them may."""

    def __init__(
        self,
        node: Node,
        neighbours: Mapping[str, PeerConfig],
        *,
        limits: Limits | None = None,
        features: Mapping[str, str] | None = None,
        instance: str = "",
        spaces: SpaceNames | None = None,
        use: PeerUse | None = None,
        queue: AdmissionQueue | None = None,
    ) -> None:
        """`features` and `instance` are what the site takes, as its file has it.

        `spaces` says what its cells mean; without it, names of cells are taken as they are.
        """
        self._spaces = SpaceNames({}, ()) if spaces is None else spaces
        self._node = node
        self._headers = peer_messages.announcement()
        self._greeting_headers = {**self._headers, **self._spaces.description()}
        self._features = [peer_messages.FeatureInfo(*item) for item in (features or {}).items()]
        self._instance = instance
        self._neighbours = neighbours
        self._limits = Limits() if limits is None else limits
        self._queue = queue or AdmissionQueue(self._limits.in_flight)
        self._use = use or PeerUse()
        answers = (self._ask, self._report, self._labels, self._hello)
        self._calls = dict(zip(PATHS, answers, strict=True))

    def expect(self, name: str) -> int:
        """Count a message of a peer; return how many bytes it may have.

        Raises `HttpProblem` if it comes too early. This is asked before the body is read.
        """
        peer = self._known(name)
        rate_per_s = MESSAGES_PER_S if peer.rate_per_s is None else peer.rate_per_s
        if not peer.may_ask:
            rate_per_s = min(rate_per_s, RIGHTLESS_PER_S)
        refusal = f"you may call {rate_per_s:g} times a second; wait a little"
        self._use.messages.spend(name, rate_per_s, refusal, is_last=True)
        # One that may ask no longer still delivers the labels of what it has asked.
        may_send = peer.may_ask or self._node.for_peers.has_asked(name)
        return peer_messages.MOST_BYTES if may_send else RIGHTLESS_BYTES

    def _known(self, name: str) -> PeerConfig:
        peer = self._neighbours.get(name)
        if peer is None:
            raise HttpProblem(403, "not_allowed", "this site does not know you")
        return peer

    async def handle(self, call: HttpRequest) -> HttpResponse:
        peer = self._known(call.who)
        answer = self._calls.get(call.path)
        if answer is None:
            raise HttpProblem(404, "not_found", f"nothing is here; send messages to {ROOT}/...")
        if call.method != "POST":
            raise HttpProblem(405, "method", "send messages by POST", {"Allow": "POST"})
        if call.headers.get("content-type", "") != KIND:
            raise HttpProblem(415, "media_type", f"send {KIND}")
        if self._use.in_flight[peer.name] >= peer.in_flight:
            raise HttpProblem(503, "busy", f"{peer.in_flight} requests of yours are running")
        self._use.in_flight[peer.name] += 1
        try:
            reply = await answer(call, peer)
        except CoveyError as error:
            raise _problem_of(error) from error
        finally:
            self._use.in_flight[peer.name] -= 1
        headers = self._headers
        if isinstance(reply, peer_messages.HelloReply) and reply.spaces:
            headers = self._greeting_headers
        return HttpResponse(200, peer_messages.write(reply), KIND, headers)

    async def _ask(self, call: HttpRequest, peer: PeerConfig) -> peer_messages.PeerReply:
        _check_may_ask(peer)
        query = self._read(call, peer, peer_messages.AskQuery)
        self._spend_rows(peer, len(query.rows))
        rows = self._local_rows(peer_messages.requests_of(query), call, peer)
        if rows[0].instance is NO_INSTANCE and not peer.asks_by_context:
            raise HttpProblem(403, "not_allowed", "you may not ask here by the cell alone")
        route = peer_messages.route_of(query)
        async with self._queue:
            answers = await self._node.for_peers.assist(rows, source=peer.name, route=route)
        return peer_messages.helped(query, answers)

    async def _report(self, call: HttpRequest, peer: PeerConfig) -> peer_messages.PeerReply:
        _check_may_ask(peer)
        query = self._read(call, peer, peer_messages.ReportQuery)
        cell = self._local(query.cell, call, peer)
        arrivals, low, high, logs = await self._node.for_peers.report(
            cell, query.slot, query.what, source=peer.name, route=peer_messages.route_of(query)
        )
        return peer_messages.ReportReply(
            version=VERSION,
            request=query.request,
            arrivals=arrivals,
            low=low,
            high=high,
            told=list(logs),
        )

    async def _labels(self, call: HttpRequest, peer: PeerConfig) -> peer_messages.PeerReply:
        """Take labels, also of a peer that may no longer ask: they are of its earlier queries."""
        if not peer.may_ask and not self._node.for_peers.has_asked(peer.name):
            raise HttpProblem(403, "not_allowed", "you may not ask here, and never have")
        query = self._read(call, peer, peer_messages.LabelsQuery)
        self._spend_rows(peer, len(query.labels))
        labels = [(self._local_id(label.id, call, peer), label.label) for label in query.labels]
        words = await self._node.for_peers.take_labels(labels, source=peer.name)
        return peer_messages.DeliveryReply(version=VERSION, request=query.request, words=words)

    async def _hello(self, call: HttpRequest, peer: PeerConfig) -> peer_messages.PeerReply:
        query = peer_messages.read(call.body, peer_messages.HelloQuery)
        learner = self._node.learner
        knows_cells = peer.may_ask or peer.may_see("context")
        knows_data = peer.may_ask or peer.may_see("data")
        return peer_messages.HelloReply(
            version=VERSION,
            request=query.request,
            name=self._node.name,
            incarnation=self._node.starts,
            preset=preset_of(learner.policies) if knows_cells else "",
            spaces=[
                peer_messages.SpaceInfo(name, describe_cells(policy), policy.dimension)
                for name, policy in learner.policies.items()
                if knows_cells
            ],
            instance=self._instance if knows_data else "",
            features=self._features if knows_data else [],
        )

    def _read(self, call: HttpRequest, peer: PeerConfig, kind: type[AnyMessage]) -> AnyMessage:
        """Return the query of a call; raise `HttpProblem` if its deadline is over.

        What may not be forwarded is refused before that.
        """
        query = peer_messages.read(call.body, kind)
        if isinstance(query, peer_messages.RoutedMessage):
            route = peer_messages.route_of(query)
            if route is not None:
                self._node.for_peers.next_hop(route, peer.name)
        if not query.deadline_ms:
            raise HttpProblem(408, "deadline_over", "deadline exceeded; request not processed")
        return query

    def _local(self, cell: str, call: HttpRequest, peer: PeerConfig) -> str:
        """Return the name here of a cell; raise `DataError` if the peer means other cells."""
        return self._spaces.local(cell, call.headers, sender=peer.name)

    def _local_id(self, id: str, call: HttpRequest, peer: PeerConfig) -> str:
        """Return the id of a label, or of an alarm as it is called here."""
        if not id.startswith(ALARM):
            return id
        slot, cell = alarm_of(id)
        return alarm_id(slot, self._local(cell, call, peer))

    def _local_rows(
        self, rows: Sequence[AskRow], call: HttpRequest, peer: PeerConfig
    ) -> list[AskRow]:
        cells = {str(row.cell) for row in rows}
        local = {cell: self._local(cell, call, peer) for cell in cells}
        return [msgspec.structs.replace(row, cell=local[str(row.cell)]) for row in rows]

    def _spend_rows(self, peer: PeerConfig, rows: int) -> None:
        most = self._limits.peer_rows_per_s
        refusal = f"you may send {most:g} rows and labels a second; wait a little"
        self._use.rows.spend(peer.name, most, refusal, rows)


def _check_may_ask(peer: PeerConfig) -> None:
    if not peer.may_ask:
        raise HttpProblem(403, "not_allowed", "you may not ask here")


def _problem_of(error: CoveyError) -> HttpProblem:
    for kind, status, code, sentence in PROBLEMS:
        if isinstance(error, kind):
            return HttpProblem(status, code, sentence or str(error))
    return HttpProblem(503, "busy", "this site cannot answer now; try again later")
