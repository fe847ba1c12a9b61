"""What a network in one process has learnt, as records that a file, a pickle or a copy holds.

A file has one line that says what it is, with a checksum, and then MessagePack. Functions are code
and are not in it; nor is a configuration that names code.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey import files
from covey.bandit.accounts import Dealings
from covey.bandit.learner import NO_ANSWER, UNKNOWN
from covey.bandit.links import PriceState
from covey.data.inputs import plain_label
from covey.errors import DataError, StoreError
from covey.functions.function import Late
from covey.node import tables
from covey.node.cells import ArmPlaces, StoredTables
from covey.node.ensemble import Votes
from covey.node.local_site import LocalSite
from covey.node.requests import (
    DETACHED,
    NONE,
    OWN,
    Arm,
    Belief,
    BeliefNotes,
    CellLine,
    CountedArm,
    Loaded,
    Request,
    RowGroup,
    SourceState,
)
from covey.node.rows import TicketState
from covey.node.state import codes_of
from covey.node.trust import table_records

FORMAT = 1
KIND = "covey network"
LATER = 0  # a slot before all others: nothing expires while rows are restored


class SavedSite(msgspec.Struct, frozen=True):
    """A site: what its learner has counted, its tickets and its prices."""

    name: str
    meaning: str  # of the counters, as `schema_fingerprint` returns it
    state: SourceState
    cells: list[CellLine]
    counters: list[CountedArm]  # of retired arms, too, and so are beliefs
    beliefs: list[Belief]
    notes: list[BeliefNotes]
    is_pending: bool
    latest_slot: int
    first: int  # the oldest ticket that is held
    next: int  # the next ticket
    due: int
    costs: list[float | None]  # None: infinite
    prices: PriceState | None  # where they change by slot, or are learnt
    requests: list[Any]  # in a file their columns, labels and training
    dealings: Dealings = msgspec.field(default_factory=Dealings)
    arms: list[Arm] = []  # that the site has or had, where functions were changed


class SavedNetwork(msgspec.Struct, frozen=True):
    """All that a network continues from, beside functions."""

    config: Any  # None: it names code, and must be given again
    dimension: int | None
    sites: list[SavedSite]
    votes: Votes | None = None  # of an ensemble
    times: list[tuple[int, dict[str, int]]] = []  # and the tickets that were given by them


# -- a site ---------------------------------------------------------------------------------------


def saved_site(site: LocalSite) -> SavedSite:
    """Return what a site continues from; raise `DataError` for an answer that has not come yet."""
    learner, state = site.learner, site.state
    own = SourceState(OWN, learner.slot, latest=state.latest)
    arms = ArmPlaces(learner, state.arms)
    records = [*table_records(learner, own, learner.tables, arms), *state.aside]
    return SavedSite(
        name=learner.name,
        meaning=site.meaning,
        state=next(one for one in records if isinstance(one, SourceState)),
        cells=[one for one in records if isinstance(one, CellLine)],
        counters=[one for one in records if isinstance(one, CountedArm)],
        beliefs=[one for one in records if isinstance(one, Belief)],
        notes=[one for one in records if isinstance(one, BeliefNotes)],
        is_pending=learner.is_pending,
        latest_slot=state.latest_slot,
        first=state.tickets.first,
        next=state.tickets.next,
        due=state.tickets.due,
        costs=[None if math.isinf(cost) else cost for cost in learner.costs],
        prices=None if learner.prices is None else learner.prices.state(),
        requests=[_copied(request, learner.name) for request in state.held()],
        dealings=msgspec.structs.replace(site.dealings),
        arms=state.arms,
    )


def loaded_of(saved: SavedSite) -> Loaded:
    """Return what a site has learnt as a store would have it."""
    return Loaded(
        sources={OWN: saved.state},
        cells={OWN: saved.cells},
        counters={},
        deliveries=[],
        answered=[],
        starts=1,
        requests=[],
        latest_number=saved.next - 1,
        fingerprint=saved.meaning,
        arms=saved.arms,
        counters_of=saved.counters,
        beliefs=saved.beliefs,
        notes=saved.notes,
    )


def restore_site(site: LocalSite, saved: SavedSite) -> None:
    """Let a site that has not begun continue from an earlier one."""
    learner, state = site.learner, site.state
    arms = ArmPlaces(learner, saved.arms)
    learner.slot = saved.state.slot
    StoredTables(learner, loaded_of(saved), arms).fill(OWN, learner.tables)
    if learner.prices is not None and saved.prices is not None:
        learner.prices.restore(saved.prices, learner)
    for (peer, is_by_context), cost, now in zip(
        learner.behind(),
        saved.costs[-len(learner.behind()) :],
        learner.costs[-len(learner.behind()) :],
        strict=False,
    ):
        before = math.inf if cost is None else cost
        if before != now and not is_by_context:
            learner.reprice(peer, before)
    state.latest_slot, state.latest = saved.latest_slot, saved.state.latest
    several: list[Any] = [*saved.counters, *saved.beliefs, *saved.notes]
    state.take_arms(saved.arms, [one for one in several if one.arm not in arms.places])
    _restore_tickets(state, saved, arms)
    site.dealings = saved.dealings


def _copied(request: Request, learner: str) -> Request:
    """Return a request that changes apart; raise `DataError` for an answer that has not come."""
    for row, label in enumerate(request.predictions):
        if type(label) is Late:
            raise DataError(
                f"ticket {request.number + row} of learner {learner!r} waits for the late answer "
                f"of {label.function}; wait for it and settle its label, then save or copy the "
                "network"
            )
    return msgspec.structs.replace(
        request,
        truths=list(request.truths),
        training=dict(request.training),
        peer_answers=dict(request.peer_answers),
        scored=dict(request.scored),
    )


def _restore_tickets(state: TicketState, saved: SavedSite, arms: ArmPlaces) -> None:
    """Hold the rows and requests of an earlier network under their tickets."""

    def resolved(group: RowGroup, space: str) -> RowGroup:
        learner = state.learner
        code = arms.code_of(group, learner.names, learner.tables[space].cells.find)
        return msgspec.structs.replace(group, code=DETACHED if code is None else code)

    held = state.tickets
    held.begin(saved.first, saved.due)
    for request in (_copied(request, saved.name) for request in saved.requests):
        request.groups = [resolved(group, request.space) for group in request.groups]
        held.hold_request(request, len(request), request.last_slot, LATER)
        held.pending -= len(request) - len(request.pending)
    codes = codes_of(state.pending())
    codes.setdefault(state.learner.space, []).extend(held.pending_codes())
    if saved.is_pending:
        state.learner.count_pending(codes)
        held.count_in(state.learner.table, True)
    elif state.learner.knows_ends:
        for space, decisions in codes.items():
            for decision in decisions:
                state.learner.tables[space].expect(decision)


# -- files ----------------------------------------------------------------------------------------


class _FileHead(msgspec.Struct, frozen=True):
    kind: str
    format: int
    sha256: str


def write(path: Path, saved: SavedNetwork) -> None:
    """Write a network; raise `DataError` for what a file cannot hold."""
    sites = [_plain_site(site) for site in saved.sites]
    body = msgspec.msgpack.encode(msgspec.structs.replace(saved, sites=sites))
    head = msgspec.json.encode(_FileHead(KIND, FORMAT, hashlib.sha256(body).hexdigest()))
    try:
        files.replace(path, head + b"\n" + body)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None


def read(path: Path) -> SavedNetwork:
    """Return the network in a file; raise `StoreError` for a damaged or another one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None
    line, _, body = content.partition(b"\n")
    try:
        head = msgspec.json.decode(line, type=_FileHead)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        head = None
    if head is None or head.kind != KIND:
        raise StoreError(f"{path} is not a network that covey saved; give the path of Network.save")
    if head.format != FORMAT:
        raise StoreError(
            f"{path} has format {head.format} of a newer covey, and this one reads {FORMAT}; "
            "upgrade covey"
        )
    if hashlib.sha256(body).hexdigest() != head.sha256:
        raise StoreError(f"{path} is damaged: it does not fit its checksum; use a backup")
    try:
        saved = msgspec.msgpack.decode(body, type=SavedNetwork)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} cannot be read: {error}; use a backup") from None
    sites = [
        msgspec.structs.replace(site, requests=[_restored_request(*one) for one in site.requests])
        for site in saved.sites
    ]
    return msgspec.structs.replace(saved, sites=sites)


def plain_config(table: Any) -> Any:
    """Return a configuration that a file can hold; None if it names or holds code."""
    policy = table.get("policy", {})
    if not _is_plain(table) or not isinstance(policy, dict):
        return None
    named = [policy.get(key, "") for key in ("preset", "policy", "reward")]
    for learner in table.get("learner", []):
        named += [*learner.get("rewards", {}).values()]
    return None if any(isinstance(one, str) and ":" in one for one in named) else table


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, bool) or _is_finite(value)


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _plain_site(site: SavedSite) -> SavedSite:
    """Return a site with labels and instances that a file can hold."""
    for line in site.cells:
        _check_labels(label for label, _ in line.seen)
    requests = [_plain_request(request, site.name) for request in site.requests]
    return msgspec.structs.replace(site, requests=requests)


def _plain_request(request: Request, learner: str) -> tuple[Any, ...]:
    _check_labels([*request.predictions, *request.answers, *request.truths])
    for scored in request.scored.values():
        _check_labels(scored.values())
    training = {
        row: (arm, _packed(instance, request.number + row, learner))
        for row, (arm, instance) in request.training.items()
    }
    truths = [None if truth is UNKNOWN else truth for truth in request.truths]
    return tables.request_columns(request), truths, training


def _check_labels(labels: Iterable[Any]) -> None:
    for label in labels:
        if label is not NO_ANSWER and label is not UNKNOWN and type(label) is not str:
            plain_label(label)


def _restored_request(columns: Any, truths: Any, training: Any) -> Request:
    request = tables.request_of(columns)
    request.truths = [UNKNOWN if truth is None else truth for truth in truths]
    unpacked = {row: (arm, _unpacked(instance)) for row, (arm, instance) in training.items()}
    request.training = unpacked or NONE
    return request


def _packed(value: Any, ticket: int, learner: str) -> Any:
    """Return an instance as JSON that `_unpacked` takes; raise `DataError` if it has no such form.

    Everything but text, whole numbers and truth values is an object with one key.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (str, int, bool) or _is_finite(value):
        return value
    if type(value) is float:
        return {"float": str(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return {"array": [value.dtype.str, list(value.shape), value.tobytes()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_packed(one, ticket, learner) for one in value]}
    if type(value) is dict:
        pairs = [[_packed(one, ticket, learner) for one in pair] for pair in value.items()]
        return {"dict": pairs}
    raise DataError(
        f"ticket {ticket} of learner {learner!r} is to train a function with a "
        f"{type(value).__name__}, which a file cannot hold; settle its label first, or give "
        "instances that are numbers, text, lists, dicts or NumPy arrays"
    )


def _unpacked(packed: Any) -> Any:
    if not isinstance(packed, Mapping):
        return packed
    ((kind, value),) = packed.items()
    if kind == "float":
        return float(value)
    if kind == "array":
        dtype, shape, content = value
        flat = np.frombuffer(msgspec.convert(content, bytes), np.dtype(dtype))
        return flat.reshape(shape).copy()
    if kind == "dict":
        return {_unpacked(key): _unpacked(one) for key, one in value}
    values = [_unpacked(one) for one in value]
    return tuple(values) if kind == "tuple" else values
