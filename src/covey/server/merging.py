"""The state of a site in several processes: the sums over its shards."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from covey.node.requests import SeriesLine
from covey.node.status import (
    AccountState,
    ArmState,
    PeerState,
    ServedState,
    ShardState,
    State,
)
from covey.server.shard_messages import Status

Named = TypeVar("Named", ArmState, PeerState)


class ProcessInfo(Protocol):
    """A process of the site, as far as its state needs it."""

    @property
    def is_up(self) -> bool: ...

    @property
    def pid(self) -> int: ...

    @property
    def restarts(self) -> int: ...


def merged(
    name: str,
    statuses: Sequence[Status | None],
    processes: Sequence[ProcessInfo],
    slot: int,
    *,
    is_ready: bool,
) -> State:
    """Return one state for the states of all shards; None: nothing is known of a shard yet."""
    states = [one.state for one in statuses if one is not None]
    phases: Counter[str] = Counter()
    for one in states:
        phases.update(one.phases)
    shards = [
        ShardState(
            number,
            process.is_up,
            process.pid,
            process.restarts,
            *(_of_shard(status.state) if status is not None else (0, 0, 0, 0)),
        )
        for number, (status, process) in enumerate(zip(statuses, processes, strict=True), 1)
    ]
    return State(
        name=name,
        is_ready=is_ready,
        starts=max((one.starts for one in states), default=0),
        uptime_s=max((one.uptime_s for one in states), default=0.0),
        slot=slot,
        alarms=0,  # change detection couples all cells, so there is none
        alarm_slot=0,
        phases=dict(phases),
        arms=_arms(states),
        peers=_peers(states),
        open_tickets=sum(one.open_tickets for one in states),
        cells=sum(one.cells for one in states),
        owed=sum(one.owed for one in states),
        for_peers=ServedState(
            sum(one.for_peers.open_tickets for one in states),
            sum(one.for_peers.labels for one in states),
            sum(one.for_peers.cells for one in states),
        ),
        spent_today=sum(one.spent_today for one in states),
        account=_account([one.account for one in states if one.account is not None]),
        horizon=states[0].horizon if states else None,
        shards=shards,
    )


def _of_shard(state: State) -> tuple[int, int, int, int]:
    return state.slot, state.cells, state.open_tickets, sum(arm.labels for arm in state.arms)


def _arms(states: Sequence[State]) -> list[ArmState]:
    def joined(old: ArmState, arm: ArmState) -> ArmState:
        return ArmState(
            arm.name,
            arm.kind,
            arm.price,
            old.decisions + arm.decisions,
            old.served + arm.served,
            old.spent + arm.spent,
            old.labels + arm.labels,
            old.right + arm.right,
            arm.version,
        )

    return _by_name((arm for one in states for arm in one.arms), joined)


def _peers(states: Sequence[State]) -> list[PeerState]:
    """Return each peer; it rests if it rests for a shard."""

    def joined(old: PeerState, peer: PeerState) -> PeerState:
        return PeerState(
            peer.name,
            peer.state if old.state == "open" else old.state,
            old.owed + peer.owed,
            old.asked + peer.asked,
            old.spent_today + peer.spent_today,
        )

    return _by_name((peer for one in states for peer in one.peers), joined)


def _by_name(given: Iterable[Named], joined: Callable[[Named, Named], Named]) -> list[Named]:
    """Return one of each name, in the order of the first of each."""
    found: dict[str, Named] = {}
    for one in given:
        found[one.name] = joined(found[one.name], one) if one.name in found else one
    return list(found.values())


def _account(accounts: Sequence[AccountState]) -> AccountState | None:
    if not accounts:
        return None
    return AccountState(
        sum(one.right for one in accounts),
        sum(one.paid for one in accounts),
        sum(one.served for one in accounts),
        sum(one.served_cost for one in accounts),
        sum(one.utility for one in accounts),
    )


def merged_series(several: Iterable[Sequence[SeriesLine]]) -> list[SeriesLine]:
    """Return what the arms did over time, in all shards together."""
    sums: dict[tuple[int, int], dict[str, tuple[int, ...]]] = {}
    for line in (line for lines in several for line in lines):
        counts = sums.setdefault((line.every_s, line.at), {})
        for arm, more in line.counts.items():
            old = counts.get(arm, (0,) * len(more))
            counts[arm] = tuple(one + other for one, other in zip(old, more, strict=True))
    return [SeriesLine(*key, counts) for key, counts in sums.items()]
