"""What must hold of every store and node when a storm is over.

Stores are compared, number by number, with what clients were told.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from chaos import records
from chaos.clients import Oracle
from chaos.records import RowRecord, Rows
from chaos.states import picture
from chaos.world import Network
from covey.bandit.learner import NO_ANSWER, UNKNOWN
from covey.bandit.partitions import places_of, side
from covey.errors import StoreError
from covey.node.node import Node
from covey.site.requests import (
    NO_PEERS,
    NOT_COUNTED,
    OWN,
    CountedArm,
    Counts,
    DayPayments,
    ShadowRow,
    ShadowSpan,
    add_counts,
    is_drawn,
    is_own,
)
from covey.site.state import loaded_state
from covey.site.trust import Trust
from covey.store.store import Store
from covey.types import MILLIONTHS


class Found(msgspec.Struct):
    """What the stores of a network hold when all nodes have stopped."""

    rows: dict[str, Rows]
    stores: dict[str, Store]

    @classmethod
    def of(cls, network: Network) -> "Found":
        """Open every store and read it."""
        stores = {name: network.store(name) for name in network.names}
        return cls({name: records.read(store) for name, store in stores.items()}, stores)

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


def acknowledged_labels_are_there(network: Network, oracle: Oracle, found: Found) -> None:
    """I1, I10: a label that was acknowledged is there, and no other is."""
    for (site, source, id_), entry in oracle.entries.items():
        kept = found.rows[site].get((source, id_))
        truth = UNKNOWN if kept is None else kept.truth
        promise = "I1" if entry.is_acknowledged else "I10"
        network.expect(
            truth in entry.possible,
            promise,
            f"{site} has {truth!r} for {id_}, which can only be one of {entry.possible}",
        )


def answered_rows_are_there(network: Network, oracle: Oracle, found: Found) -> None:
    """I3: a row that was answered is stored as it was answered."""
    for (site, source, id_), entry in oracle.entries.items():
        if entry.answer is None:
            continue
        kept = found.rows[site].get((source, id_))
        is_same = kept is not None and kept.as_answered == entry.answer
        network.expect(is_same, "I3", f"{site} does not have {id_} as it was answered")


def no_label_counts_twice(network: Network, oracle: Oracle, found: Found) -> None:
    """I2, I4: counters are the sum of the labels that clients and peers know to have sent."""
    for site, store in found.stores.items():
        for sentence in store.check():
            network.blame("I4", f"{site}: {sentence}")
        counted: Counter[tuple[str, str, str]] = Counter()
        right: Counter[tuple[str, str, str]] = Counter()
        for row in found.rows[site].values():
            if row.truth is not UNKNOWN and row.phase not in NOT_COUNTED:
                where = (row.cell, row.source, row.arm)
                counted[where] += 1
                right[where] += row.prediction == row.truth
        expected = {where: (count, right[where]) for where, count in counted.items()}
        network.expect(
            store.counters() == expected, "I2", f"{site} counts labels that were never sent"
        )


def statistics_count_labels_of_their_own_source(
    network: Network, oracle: Oracle, found: Found
) -> None:
    """I4, I6: own statistics count own and fully trusted labels; an overlay those of its source.

    Where cells are never split, both are sums over the labels of requests in the cell.
    """
    if network.plan.config["policy"]["preset"] == "dcza":  # cells are split
        return
    for site, store in found.stores.items():
        counters = dict(store.counters())
        for row in found.rows[site].values():  # labels score free functions, too
            for arm in row.scored if row.truth is not UNKNOWN else ():
                add_counts(counters, {(row.cell, row.source, arm): (int(arm != row.arm), 0)})
        labels = {(one.source, one.cell, one.arm): one.counters[0] for one in store.all(CountedArm)}
        for source, cell, _ in records.cells_of(store):
            for arm in network.arms[site]:
                count = labels.get((source, cell, arm), 0)
                known = _counted(network.trust[site], counters, source, cell, arm)
                where = f"statistics of {source!r} at {site}, {cell}, {arm}"
                network.expect(count == known, "I6", f"{where}: {count} labels, not {known}")


def _counted(trust: Mapping[str, Trust], counters: Counts, whose: str, cell: str, arm: str) -> int:
    def counts(source: str) -> bool:
        is_pooled = is_own(source) or trust[source] == "full"
        return is_pooled if whose == OWN else source == whose

    return sum(
        count
        for (at, source, by), (count, _) in counters.items()
        if by == arm and _is_within(at, cell) and counts(source)
    )


def _is_within(cell: str, other: str) -> bool:
    if cell == other or not other.startswith("z"):
        return cell == other
    halvings = round(math.log2(side(other) / side(cell)))
    return halvings > 0 and places_of(other) == tuple(k >> halvings for k in places_of(cell))


def arrivals_are_those_of_requests(network: Network, oracle: Oracle, found: Found) -> None:
    """I4: a request that failed since the last start left no arrival behind."""
    if network.plan.config["policy"]["preset"] == "dcza":  # cells are split
        return
    for site, store in found.stores.items():
        if site in network.plan.unsupervised:  # it counts labelled rows only
            continue
        more = records.arrivals_without_request(store, network.trust[site])
        more.subtract(network.lost_arrivals[site])
        for (source, cell), count in more.items():
            where = f"statistics of {source!r} at {site}, {cell}"
            network.expect(count == 0, "I4", f"{where}: {count} arrivals without a request")


def labels_reached_the_peer_that_answered(network: Network, oracle: Oracle, found: Found) -> None:
    """I2, I8: the peer that answered has the label, unless it came too late there."""
    for site, rows in found.rows.items():
        count = found.stores[site].size()["deliveries"]
        network.expect(count == 0, "I8", f"{site} has {count} undelivered labels")
        for row in rows.values():
            if not row.peer_id or row.truth is UNKNOWN:
                continue
            there = found.rows[row.peer].get((site, row.peer_id))
            if there is None:
                network.blame("I2", f"{row.peer} lost what {site} asked it")
            elif there.truth is UNKNOWN:
                network.expect(
                    not there.is_open, "I2", f"{row.peer} never received a label of {site}"
                )
            else:
                is_same = there.truth == row.truth
                network.expect(is_same, "I2", f"{row.peer} received another label of {site}")


def every_label_was_sent(network: Network, oracle: Oracle, found: Found) -> None:
    """I5, I6: the source of a label has sent it."""
    by_peer_id = {site: _by_peer_id(found, site) for site in network.names}
    for site, rows in found.rows.items():
        for (source, id_), row in rows.items():
            if row.truth is UNKNOWN:
                continue
            if (site, source, id_) in network.poison:
                is_sent = row.truth in network.poison[site, source, id_]
            elif source in network.names:
                asked = by_peer_id[source].get((site, id_))
                is_sent = asked is not None and asked.truth == row.truth
            else:
                entry = oracle.entries.get((site, source, id_))
                is_sent = entry is not None and row.truth in entry.possible
            network.expect(is_sent, "I5", f"{site} has a label for {id_} that was never sent")


def peers_are_trained_no_more_than_needed(network: Network, oracle: Oracle, found: Found) -> None:
    """I13: whatever a peer reports, it is trained at most D2(t) times in a cell, and a bit."""
    for site, rows in found.rows.items():
        (slot,) = (
            found.stores[site]
            ._base.execute("SELECT slot FROM sources WHERE source = ''")
            .fetchone()
        )
        budget = network.training_budget(site, max(slot, 2))
        in_progress = sum(client.rows for client in network.plan.clients if client.site == site)
        trained = Counter((row.cell, row.peer) for row in rows.values() if row.phase == "train")
        for (cell, peer), count in trained.items():
            most = math.floor(budget) + 1 + in_progress
            network.expect(
                count <= most, "I13", f"{site} trained {peer} {count} times in {cell}, not {most}"
            )


def answers_are_paid_for_at_both_ends(network: Network, oracle: Oracle, found: Found) -> None:
    """I19: both ends have the same price of an answer, and count what they paid and earned."""
    for site, rows in found.rows.items():
        sums: Counter[tuple[bool, str]] = Counter()
        for row in rows.values():
            if row.peer_id and row.prediction is not NO_ANSWER:
                price = round(row.price * MILLIONTHS)
                sums[True, row.peer] += price
                there = found.rows[row.peer].get((site, row.peer_id))
                is_same = there is not None and there.offered == price
                network.expect(is_same, "I19", f"{row.peer} has another price of a row of {site}")
            if row.answer is not NO_ANSWER:
                sums[False, row.source] += row.offered
        for day in found.stores[site].all(DayPayments):
            sums[day.is_ours, day.peer] -= day.amount * (day.peer not in NO_PEERS)
        network.expect(not any(sums.values()), "I19", f"{site} counted other payments: {sums}")


def shadows_are_of_drawn_rows(network: Network, oracle: Oracle, found: Found) -> None:
    """A row in the shadow was drawn."""
    for site, store in found.stores.items():
        spans, requests = store.all(ShadowSpan), {one.number: one for one in store.requests()}
        for shadow in store.all(ShadowRow):
            network.counts["rows in the shadow"] += 1
            request = requests.get(shadow.request)
            if request is None:
                network.blame("shadow", f"{site} has answers to a request that is not there")
                continue
            span = next(one for one in reversed(spans) if one.first <= request.number)
            network.expect(
                is_drawn(span, request.source, request.id, shadow.row)
                and shadow.answers.keys() <= {*span.arms},
                "shadow",
                f"{site} ran a row of {request.id} in the shadow that was not drawn",
            )


PROMISES: tuple[Callable[[Network, Oracle, Found], None], ...] = (
    acknowledged_labels_are_there,
    answered_rows_are_there,
    no_label_counts_twice,
    statistics_count_labels_of_their_own_source,
    arrivals_are_those_of_requests,
    labels_reached_the_peer_that_answered,
    every_label_was_sent,
    peers_are_trained_no_more_than_needed,
    answers_are_paid_for_at_both_ends,
    shadows_are_of_drawn_rows,
)


async def memory_agrees_with_the_store(network: Network, name: str, node: Node) -> None:
    """I4: a node that starts from this store continues as this one does."""
    try:
        await node._journal.flush()
        loaded = network.stores[name].load(node.name, _fingerprint(network.stores[name]))
    except StoreError as error:
        network.blame("I4", str(error))
        return
    network.starts[name] = loaded.starts
    restarted = loaded_state(network.fresh_learner(name), loaded, network.trust[name])
    here, there = picture(node._state), picture(restarted)
    for part, value in here.items():
        how = f"{name}, {part}: {_differing(value, there[part])}"
        network.expect(value == there[part], "I4", how)


def limits_hold(network: Network) -> None:
    """I7: no node holds more than it may."""
    for name, node in network.nodes.items():
        held = {source: node._state.open.held(source) for source in ("", *network.names)}
        for source, count in held.items():
            most = network.peer_tickets if source else network.limits.tickets
            network.expect(count <= most, "I7", f"{name} holds {count} rows of {source!r}")


def _differing(here: Any, there: Any) -> str:
    """Return where two values differ, in short."""
    if isinstance(here, dict) and isinstance(there, dict):
        keys = [key for key in {**here, **there} if here.get(key) != there.get(key)]
        return "; ".join(f"{key}: {_differing(here.get(key), there.get(key))}" for key in keys[:3])
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        pairs = [f"{a} but stored {b}" for a, b in zip(here, there, strict=True) if a != b]
        return "; ".join(pairs[:3])
    return f"{here} but stored {there}"


def _by_peer_id(found: Found, site: str) -> dict[tuple[str, str], RowRecord]:
    """Return the rows that peers answered for a site, by their ids there."""
    rows = found.rows[site].values()
    return {(row.peer, row.peer_id): row for row in rows if row.peer_id}


def _fingerprint(store: Store) -> str:
    (fingerprint,) = store._base.execute("SELECT fingerprint FROM site").fetchone()
    return str(fingerprint)
