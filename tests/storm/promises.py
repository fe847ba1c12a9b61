"""What must hold of every store and node when a storm is over; each check bears its name.

Stores are compared, number by number, with what clients were told.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from covey.books import is_own
from covey.decisions import NO_ANSWER, UNKNOWN
from covey.desks import Trust
from covey.errors import StoreError
from covey.node.node import Node
from covey.records import Ticket, ticket_of
from covey.store import Store
from storm.clients import Oracle
from storm.world import Network

Tickets = dict[tuple[str, str], Ticket]
Counters = dict[tuple[str, str, str], tuple[int, int]]  # cell, source, arm -> labels, right


class Found(msgspec.Struct):
    """What the stores of a network hold when all nodes have stopped."""

    tickets: dict[str, Tickets]
    stores: dict[str, Store]

    @classmethod
    def of(cls, network: Network) -> "Found":
        """Open every store and read it."""
        stores = {name: network.store(name) for name in network.names}
        return cls({name: _tickets(store) for name, store in stores.items()}, stores)

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


def acknowledged_labels_are_there(network: Network, oracle: Oracle, found: Found) -> None:
    """I1, I10: a label that was acknowledged is there, and no other is."""
    for (site, source, id_), entry in oracle.entries.items():
        kept = found.tickets[site].get((source, id_))
        truth = UNKNOWN if kept is None else kept.truth
        promise = "I1" if entry.is_acknowledged else "I10"
        network.expect(
            truth in entry.possible,
            promise,
            f"{site} has {truth!r} for {id_}, which can only be one of {entry.possible}",
        )


def answered_tickets_are_there(network: Network, oracle: Oracle, found: Found) -> None:
    """I3: a ticket that was given out is as it was given out."""
    for (site, source, id_), entry in oracle.entries.items():
        if entry.answer is None:
            continue
        kept = found.tickets[site].get((source, id_))
        is_same = kept is not None and _plain(kept) == _plain(entry.answer)
        network.expect(is_same, "I3", f"{site} does not have the ticket {id_} as it was given")


def no_label_counts_twice(network: Network, oracle: Oracle, found: Found) -> None:
    """I2, I4: counters are the sum of the labels that clients and peers know to have sent."""
    for site, store in found.stores.items():
        for sentence in store.check():
            network.blame("I4", f"{site}: {sentence}")
        counted: Counter[tuple[str, str, str]] = Counter()
        right: Counter[tuple[str, str, str]] = Counter()
        for ticket in found.tickets[site].values():
            if ticket.truth is not UNKNOWN and ticket.phase not in ("train", "recall"):
                where = (ticket.cell, ticket.source, ticket.arm)
                counted[where] += 1
                right[where] += ticket.prediction == ticket.truth
        expected = {where: (count, right[where]) for where, count in counted.items()}
        network.expect(store.counters() == expected, "I2", f"{site} counts what nobody sent")


def desks_count_their_own_labels_only(network: Network, oracle: Oracle, found: Found) -> None:
    """I4, I6: who is served at a desk is served by the labels that count there, and by no others.

    Where cells are never split, a desk's counters are the sum over the sources that it trusts.
    """
    if network.plan.config["policy"]["preset"] in ("dcza", "multi-resolution"):
        return
    for site, store in found.stores.items():
        counters = store.counters()
        rows = store._base.execute("SELECT desk, name, counters FROM cells").fetchall()
        for desk, cell, text in rows:
            labels = json.loads(text)[3 : 3 + len(network.arms[site])]
            for arm, count in zip(network.arms[site], labels, strict=True):
                known = _counted(network.trust[site], counters, desk, cell, arm)
                where = f"desk {desk!r} of {site}, {cell}, {arm}"
                network.expect(count == known, "I6", f"{where}: {count} labels, not {known}")


def _counted(trust: Mapping[str, Trust], counters: Counters, desk: str, cell: str, arm: str) -> int:
    return sum(
        count
        for (at, source, by), (count, _) in counters.items()
        if (at, by) == (cell, arm) and (is_own(source) or source == desk or trust[source] == "full")
    )


def labels_reached_who_answered(network: Network, oracle: Oracle, found: Found) -> None:
    """I2, I8: the peer that answered has the label, unless it came too late there."""
    for site, tickets in found.tickets.items():
        owed = found.stores[site].size()["owed"]
        network.expect(owed == 0, "I8", f"{site} still owes {owed} labels")
        for ticket in tickets.values():
            if ticket.peer_ticket is None or ticket.truth is UNKNOWN:
                continue
            there = found.tickets[ticket.peer].get((site, ticket.peer_ticket))
            if there is None:
                network.blame("I2", f"{ticket.peer} lost what {site} asked it")
            elif there.truth is UNKNOWN:
                is_old = there.ticket < _oldest(found.stores[ticket.peer], there.desk)
                network.expect(is_old, "I2", f"{ticket.peer} never heard a label of {site}")
            else:
                is_same = there.truth == ticket.truth
                network.expect(is_same, "I2", f"{ticket.peer} heard another label of {site}")


def nothing_moves_without_a_label(network: Network, oracle: Oracle, found: Found) -> None:
    """I5, I6: whoever is named as the source of a label has sent it."""
    for site, tickets in found.tickets.items():
        for (source, id_), ticket in tickets.items():
            if ticket.truth is UNKNOWN:
                continue
            if (site, source, id_) in network.poison:
                is_sent = ticket.truth in network.poison[site, source, id_]
            elif source in network.names:
                asked = _by_peer_ticket(found, source).get((site, id_))
                is_sent = asked is not None and asked.truth == ticket.truth
            else:
                entry = oracle.entries.get((site, source, id_))
                is_sent = entry is not None and ticket.truth in entry.possible
            network.expect(is_sent, "I5", f"{site} has a label for {id_} that nobody sent")


def peers_are_trained_no_more_than_needed(network: Network, oracle: Oracle, found: Found) -> None:
    """I13: whatever a peer reports, it is trained at most D2(t) times in a cell, and a bit."""
    for site, tickets in found.tickets.items():
        rows = found.stores[site]._base.execute("SELECT slot FROM desks WHERE desk = ''")
        (slot,) = rows.fetchone()
        budget = network.training_budget(site, max(slot, 2))
        under_way = sum(client.site == site for client in network.plan.clients)
        trained = Counter((t.cell, t.peer) for t in tickets.values() if t.phase == "train")
        for (cell, peer), count in trained.items():
            most = math.floor(budget) + 1 + under_way
            network.expect(
                count <= most, "I13", f"{site} trained {peer} {count} times in {cell}, not {most}"
            )


PROMISES: tuple[Callable[[Network, Oracle, Found], None], ...] = (
    acknowledged_labels_are_there,
    answered_tickets_are_there,
    no_label_counts_twice,
    desks_count_their_own_labels_only,
    labels_reached_who_answered,
    nothing_moves_without_a_label,
    peers_are_trained_no_more_than_needed,
)


async def memory_is_in_step(network: Network, name: str, node: Node) -> None:
    """I4: a node that would start from its store now would go on as this one does."""
    try:
        await node._journal.flush()
        loaded = network.stores[name].load(node.name, _shape(network.stores[name]))
    except StoreError as error:
        network.blame("I4", str(error))
        return
    network.starts[name] = loaded.starts
    learners = node._book.learners
    is_same = sorted(learners) == sorted(loaded.desks)
    network.expect(is_same, "I4", f"{name} has other desks than its store")
    for desk, learner in learners.items() if is_same else ():
        saved = loaded.desks[desk]
        here, there = learner.snapshot(), saved.snapshot
        is_same = (here.slot, dict(here.cells)) == (there.slot, dict(there.cells))
        network.expect(is_same, "I4", f"{name}, desk {desk!r}: counters differ from the store's")
        seen = {cell: labels for cell, labels in here.seen if labels}
        network.expect(seen == dict(there.seen), "I4", f"{name}, desk {desk!r}: labels differ")
        is_same = learner.kept_tickets == saved.kept
        network.expect(is_same, "I3", f"{name}, desk {desk!r}: other tickets than in the store")


def limits_hold(network: Network) -> None:
    """I7: no node holds more than it may."""
    limits = network.limits
    for name, node in network.nodes.items():
        held = {source: node._book.held(source) for source in ("", *network.names)}
        for source, count in held.items():
            most = limits.peer_tickets if source else limits.tickets
            network.expect(count <= most, "I7", f"{name} holds {count} tickets of {source!r}")
        own = sum(is_own(source) for source, _ in node._under_way)
        peers = len(node._under_way) - own
        is_less = own <= limits.under_way and peers <= limits.for_peers
        network.expect(is_less, "I7", f"{name} answers {own} clients and {peers} peers at once")


def _plain(ticket: Ticket) -> dict[str, Any]:
    fields = msgspec.structs.asdict(ticket)
    fields.pop("truth")
    return {name: None if one is NO_ANSWER else one for name, one in fields.items()}


def _tickets(store: Store) -> Tickets:
    rows = map(ticket_of, store._base.execute("SELECT * FROM tickets").fetchall())
    return {(ticket.source, ticket.id): ticket for ticket in rows}


def _by_peer_ticket(found: Found, site: str) -> dict[tuple[str, str], Ticket]:
    return {
        (one.peer, one.peer_ticket): one
        for one in found.tickets[site].values()
        if one.peer_ticket is not None
    }


def _oldest(store: Store, desk: str) -> int:
    rows = store._base.execute("SELECT oldest FROM desks WHERE desk = ?", (desk,))
    return int(rows.fetchone()[0])


def _shape(store: Store) -> str:
    (shape,) = store._base.execute("SELECT shape FROM site").fetchone()
    return str(shape)
