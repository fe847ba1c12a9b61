"""What a network in one process has learnt, as records that a file, a pickle or a copy holds.

A file has one line that says what it is, with a checksum, and a line of JSON. Functions are code
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
from covey.bandit.learner import NO_ANSWER, UNKNOWN, Snapshot
from covey.bandit.links import PriceState
from covey.data.inputs import plain_label
from covey.errors import DataError, StoreError
from covey.functions.function import Late
from covey.node.ensemble import Votes
from covey.node.local_site import LocalSite
from covey.node.requests import FEW, NONE, Arm, PeerAnswer, Request, RowGroup, SetAside
from covey.node.rows import TicketState
from covey.node.state import codes_of

FORMAT = 1
KIND = "covey network"
LATER = 0  # a slot before all others: nothing expires while rows are restored


class SavedRequest(msgspec.Struct, frozen=True):
    """A request; None stands for a missing label or answer."""

    number: int
    source: str
    slot: int
    groups: list[RowGroup]
    group_of: list[int]
    contexts: list[tuple[float, ...]]
    predictions: list[Any]
    answers: list[Any] | None  # None: the predictions
    truths: list[Any]
    space: str = ""
    slots: list[int] | None = None
    peer_answers: dict[int, tuple[str, Any, bool]] = {}
    training: dict[int, tuple[int, Any]] = {}
    scored: dict[int, dict[str, Any]] = {}


class SavedSite(msgspec.Struct, frozen=True):
    """A site: what its learner has counted, its tickets and its prices."""

    name: str
    meaning: str  # of the counters, as `schema_fingerprint` returns it
    counters: Snapshot
    is_pending: bool
    latest_slot: int
    latest: tuple[int, Any] | None
    first: int  # the oldest ticket that is held
    next: int  # the next ticket
    due: int
    costs: list[float | None]  # None: infinite
    prices: PriceState | None  # where they change by slot, or are learnt
    requests: list[SavedRequest]
    dealings: Dealings = msgspec.field(default_factory=Dealings)
    arms: list[Arm] = []  # that the site has or had, where functions were changed
    aside: list[SetAside] = []  # what was learnt of retired arms


class SavedNetwork(msgspec.Struct, frozen=True):
    """All that a network continues from, beside functions."""

    config: Any  # None: it names code, and must be given again
    dimension: int | None
    sites: list[SavedSite]
    votes: Votes | None = None  # of an ensemble


# -- a site ---------------------------------------------------------------------------------------


def saved_site(site: LocalSite) -> SavedSite:
    """Return what a site continues from; raise `DataError` for an answer that has not come yet."""
    learner, state = site.learner, site.state
    return SavedSite(
        name=learner.name,
        meaning=site.meaning,
        counters=learner.snapshot(),
        is_pending=learner.is_pending,
        latest_slot=state.latest_slot,
        latest=state.latest,
        first=state.tickets.first,
        next=state.tickets.next,
        due=state.tickets.due,
        costs=[None if math.isinf(cost) else cost for cost in learner.costs],
        prices=None if learner.prices is None else learner.prices.state(),
        requests=[saved_request(request, learner.name) for request in state.held()],
        dealings=msgspec.structs.replace(site.dealings),
        arms=state.arms,
        aside=state.aside,
    )


def restore_site(site: LocalSite, saved: SavedSite) -> None:
    """Let a site that has not begun continue from an earlier one."""
    learner, state = site.learner, site.state
    learner.restore(saved.counters)
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
    state.latest_slot, state.latest = saved.latest_slot, saved.latest
    state.take_arms(saved.arms, saved.aside)
    _restore_tickets(state, saved)
    site.dealings = saved.dealings


def _said(label: Any, ticket: int, learner: str) -> Any:
    if type(label) is Late:
        raise DataError(
            f"ticket {ticket} of learner {learner!r} waits for the late answer of "
            f"{label.function}; wait for it and settle its label, then save or copy the network"
        )
    return None if label is NO_ANSWER else label


def saved_request(request: Request, learner: str) -> SavedRequest:
    """Return a request as a record; raise `DataError` for an answer that has not come yet."""
    predictions = [
        _said(one, request.number + row, learner) for row, one in enumerate(request.predictions)
    ]
    is_same = request.answers is request.predictions
    return SavedRequest(
        number=request.number,
        source=request.source,
        slot=request.slot,
        groups=list(request.groups),
        group_of=[int(one) for one in request.group_of],
        contexts=[tuple(map(float, request.context(row))) for row in range(len(request))],
        predictions=predictions,
        answers=None
        if is_same
        else [_said(answer, request.number, "") for answer in request.answers],
        truths=[None if truth is UNKNOWN else truth for truth in request.truths],
        space=request.space,
        slots=None if request.slots is None else [int(slot) for slot in request.slots],
        peer_answers={row: (*one,) for row, one in request.peer_answers.items()},
        training=dict(request.training),
        scored={row: dict(one) for row, one in request.scored.items()},
    )


def request_of(saved: SavedRequest) -> Request:
    count = len(saved.truths)
    predictions = [
        NO_ANSWER if prediction is None else prediction for prediction in saved.predictions
    ]
    answers = predictions
    if saved.answers is not None:
        answers = [NO_ANSWER if answer is None else answer for answer in saved.answers]
    return Request(
        number=saved.number,
        source=saved.source,
        id="",
        slot=saved.slot,
        groups=saved.groups,
        # Rows of peers have no contexts.
        contexts=np.array(saved.contexts) if count > 1 and saved.contexts[0] else saved.contexts,
        predictions=predictions,
        answers=answers,
        truths=[UNKNOWN if truth is None else truth for truth in saved.truths],
        space=saved.space,
        group_of=saved.group_of if count <= FEW else np.array(saved.group_of, np.uint32),
        slots=saved.slots,
        peer_answers={row: PeerAnswer(*one) for row, one in saved.peer_answers.items()} or NONE,
        training=dict(saved.training) or NONE,
        scored=saved.scored or NONE,
    )


def _restore_tickets(state: TicketState, saved: SavedSite) -> None:
    """Hold the rows and requests of an earlier network under their tickets."""
    held = state.tickets
    held.begin(saved.first, saved.due)
    for request in map(request_of, saved.requests):
        request.resolve(state.learner)
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
    body = msgspec.json.encode(msgspec.structs.replace(saved, sites=sites))
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
        saved = msgspec.json.decode(body, type=SavedNetwork)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} cannot be read: {error}; use a backup") from None
    sites = [_restored_site(site) for site in saved.sites]
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
    requests = []
    for request in site.requests:
        _check_labels([*request.predictions, *(request.answers or ()), *request.truths])
        for scored in request.scored.values():
            _check_labels(scored.values())
        training = {
            row: (function, _packed(instance, request.number + row, site.name))
            for row, (function, instance) in request.training.items()
        }
        requests.append(msgspec.structs.replace(request, training=training))
    for _, seen in site.counters.seen:
        _check_labels(label for label, _ in seen)
    return msgspec.structs.replace(site, requests=requests)


def _check_labels(labels: Iterable[Any]) -> None:
    for label in labels:
        if label is not None and type(label) is not str:
            plain_label(label)


def _restored_site(site: SavedSite) -> SavedSite:
    requests = [
        msgspec.structs.replace(
            request,
            training={
                row: (place, _unpacked(this)) for row, (place, this) in request.training.items()
            },
        )
        for request in site.requests
    ]
    return msgspec.structs.replace(site, requests=requests)


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
