"""Generated networks and streams, and the two ways of replaying them: kernel and reference."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import covey
import reference
from reference import index as reference_index
from reference.index import IndexSetup, index_setup
from support.presets import fitting

CURVES = st.tuples(
    st.sampled_from([0.0, 0.05, 0.3, 1.0, 2.0]), st.sampled_from([0.0, 0.125, 0.5, 0.9])
)
PRICES = (0.0, 0.1, 0.5, 1.0)
EIGHTHS = (0.0, 0.125, 0.5, 1.0)  # any sum of these is exact
DELAYS = [0, 0, 1, 2, 7]
Space = tuple[int, ...]
INDEX_PRICES = (0.0, 0.0, 0.1, 0.3, 1.0)
_CURVE_NAMES = ("explore", "train", "explore_peers")
_INDEX_SETTINGS = {
    "index_scale": st.sampled_from([0.25, 0.5, 1.0, 2.0]),
    "check_claims": st.just(True),
    "alarm": st.sampled_from([0.0, 0.3, 1.0, 3.0]),  # low ones, which go off in short streams
}
_INDEX_KEYS = {
    "share-ucb": ("index_scale", "alarm"),
    "auto": ("index_scale", "alarm", "check_claims"),
}


@dataclass(frozen=True)
class Case:
    """A set-up and a stream."""

    setup: reference.Setup
    contexts: np.ndarray
    predictions: np.ndarray
    labels: np.ndarray
    at: np.ndarray | None
    revealed: np.ndarray | None
    delay: np.ndarray | None
    busy: np.ndarray | None = None  # slots x sites
    paid: np.ndarray | None = None  # columns x slots
    batch: np.ndarray | None = None


@st.composite
def sites(
    draw: st.DrawFn, prices_of: tuple[float, ...], *, most: int = 6, most_functions: int = 4
) -> tuple[reference.Site, ...]:
    """1-6 learners with 1-4 functions each; at least one receives instances."""
    count = draw(st.integers(1, most))
    receiving = draw(st.sets(st.integers(0, count - 1), min_size=1))
    prices = st.sampled_from(prices_of)
    made = []
    for place in range(count):
        functions = draw(st.integers(1, most_functions))
        peers = draw(st.sets(st.sampled_from([k for k in range(count) if k != place] or [place])))
        made.append(
            reference.Site(
                name=f"site{place}",
                functions=functions,
                costs=tuple(draw(st.lists(prices, min_size=functions, max_size=functions))),
                arrivals=place in receiving,
                supervised=draw(st.sampled_from([True, True, True, False])),
                peers=tuple((peer, draw(prices)) for peer in sorted(peers) if peer != place),
            )
        )
    return tuple(made)


@st.composite
def cases(draw: st.DrawFn, prices_of: tuple[float, ...] = PRICES) -> Case:
    """A network and a stream of up to 400 slots: both partitions, both readings."""
    made = draw(sites(prices_of))
    is_paper = draw(st.booleans())
    setup = reference.Setup(
        sites=made,
        zooming=draw(st.booleans()),
        slices=draw(st.integers(1, 5)),
        split_scale=draw(st.sampled_from([0.5, 1.0, 3.0])),
        split_power=draw(st.sampled_from([0.8, 2.0, 4.0])),
        is_paper=is_paper,
        **{name: values[is_paper] for name, values in READINGS.items()},
        explore=draw(CURVES),
        train=draw(CURVES),
        explore_peers=draw(CURVES),
        count=draw(st.sampled_from(["arrivals", "arrivals", "labelled"])),
        pending=draw(st.booleans()),
        label_wait=draw(st.sampled_from([None, None, 0, 3])),
        inherit=draw(st.booleans()),
        **draw(st.sampled_from([{}, {}, {"window": 5}, {"discount": 0.9}])),
    )
    slots = draw(st.sampled_from([1, 30, 150, 400]))
    return _with_stream(setup, draw, slots=slots, dimension=draw(st.integers(0, 3)))


def _with_stream(setup: reference.Setup, draw: st.DrawFn, *, slots: int, dimension: int) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    functions = sum(site.functions for site in setup.sites)
    labels = rng.integers(0, draw(st.sampled_from([2, 3])), slots)
    wrong = rng.random((functions, slots)) < rng.random((functions, 1))
    contexts = rng.choice(
        [rng.random((slots, dimension)), rng.integers(0, 9, (slots, dimension)) / 8]
    )
    receiving = [k for k, site in enumerate(setup.sites) if site.arrivals]
    has_at, has_hidden, has_delay = (draw(st.booleans()) for _ in range(3))
    return Case(
        setup=setup,
        contexts=contexts,
        predictions=np.where(wrong, labels + 1, labels),
        labels=labels,
        at=rng.choice(receiving, slots) if has_at else None,
        revealed=rng.integers(0, 2, slots) if has_hidden else None,
        delay=rng.choice(DELAYS, slots) if has_delay else None,
    )


@st.composite
def extended_cases(draw: st.DrawFn) -> Case:
    """A case of `cases()` to which spaces, readers, busy peers and random costs may come."""
    extensions = (_with_spaces, _with_readers, _with_busy_peers, _with_random_costs)
    wanted = [extend for extend in extensions if draw(st.sampled_from([False, True, True]))]
    case = draw(cases(EIGHTHS))
    for extend in wanted:
        case = extend(case, draw)
    return case


def _with_spaces(case: Case, draw: st.DrawFn) -> Case:
    """Give sites 1-3 candidates (with labels), out of spaces of 0-2 of the 1-3 coordinates."""
    coordinate = st.integers(0, draw(st.integers(1, 3)) - 1)
    space = st.lists(coordinate, max_size=2, unique=True).map(tuple)
    choices = draw(st.lists(space, min_size=2, max_size=4, unique=True))
    drawn = [
        draw(st.permutations(choices))[: draw(st.integers(1, 3)) if site.supervised else 1]
        for site in case.setup.sites
    ]
    # Coordinates and spaces are numbered as they are first mentioned, learner by learner.
    mentioned = list(dict.fromkeys(x for own in drawn for space in own for x in space))
    drawn = [[tuple(map(mentioned.index, space)) for space in own] for own in drawn]
    spaces = tuple(dict.fromkeys(space for own in drawn for space in own))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (len(case.labels), len(mentioned))
    return replace(
        case,
        contexts=rng.choice([rng.random(shape), rng.integers(0, 9, shape) / 8]),
        setup=replace(
            case.setup,
            spaces=spaces,
            sites=tuple(
                replace(site, spaces=tuple(map(spaces.index, own)))
                for site, own in zip(case.setup.sites, drawn, strict=True)
            ),
        ),
    )


def _with_sites(case: Case, made: list[reference.Site]) -> Case:
    return replace(case, setup=replace(case.setup, sites=tuple(made)))


def _with_readers(case: Case, draw: st.DrawFn) -> Case:
    made = []
    for place, site in enumerate(case.setup.sites):
        others = [k for k in range(len(case.setup.sites)) if k != place]
        is_asking = others and len(site.spaces) == 1
        asked = sorted(draw(st.sets(st.sampled_from(others)))) if is_asking else []
        readers = tuple((k, draw(st.sampled_from(EIGHTHS))) for k in asked)
        # Fewer peers, or readers would be tried only after all of them.
        peers = draw(st.sampled_from([site.peers, site.peers[:1], ()]))
        made.append(replace(site, readers=readers, peers=peers))
    return _with_sites(case, made)


def _with_busy_peers(case: Case, draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (len(case.labels), len(case.setup.sites))
    busy = rng.choice(DELAYS, shape)
    for place in range(shape[1]):
        if draw(st.booleans()):
            busy[:, place] = draw(st.sampled_from(DELAYS))
    patience = st.sampled_from([None, 0, 1, 5])
    made = [replace(site, patience=draw(patience)) for site in case.setup.sites]
    return replace(_with_sites(case, made), busy=busy)


def _with_random_costs(case: Case, draw: st.DrawFn) -> Case:
    """Columns of eighths, each of its own level; an arm may have none, arms may share one."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = draw(st.integers(1, 4))
    highest = rng.integers(1, 10, (columns, 1))
    paid = rng.integers(0, highest, (columns, len(case.labels))) / 8
    column = st.sampled_from([None, *range(columns)])
    made = []
    for site in case.setup.sites:
        arms = site.functions + len(site.peers) + len(site.readers)
        named = draw(st.sampled_from([0, arms, arms]))
        made.append(replace(site, cost_columns=tuple(draw(column) for _ in range(named))))
    return replace(_with_sites(case, made), paid=paid)


READINGS = {  # keys and their values in the readings spec and paper
    "batch": ("slots", "slot"),
    "unlabelled": ("net", "accuracy"),
    "history": ("labels", "predictions"),
}


@st.composite
def reading_cases(draw: st.DrawFn) -> Case:
    """An extended case with keys of the paper, those of its reading or any; in batches."""
    case = draw(extended_cases())
    own = {
        name: draw(st.sampled_from([*values, values[case.setup.is_paper]]))
        for name, values in READINGS.items()
    }
    case = replace(case, setup=replace(case.setup, **own))
    return _in_batches(case, draw) if draw(st.booleans()) else case


def _in_batches(case: Case, draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    longest = draw(st.sampled_from([1, 3, 10, 50]))
    batch = np.repeat(np.arange(400), rng.integers(1, longest + 1, 400))[: len(case.labels)]
    # Rows in slots of their own would all explore the same arm, did pending labels not count.
    pending = case.setup.pending or case.setup.batch == "slots"
    return replace(case, batch=batch, setup=replace(case.setup, pending=pending))


@st.composite
def free_cases(draw: st.DrawFn) -> Case:
    """A case of any policy in which some functions are free."""
    case = draw(st.one_of(cases().filter(lambda one: not one.setup.is_paper), index_cases()))
    if not isinstance(case.setup, IndexSetup) and draw(st.booleans()):
        case = _with_busy_peers(case, draw)
    if not isinstance(case.setup, IndexSetup) and draw(st.booleans()):
        case = _with_readers(case, draw)
    made = []
    for site in case.setup.sites:
        columns = (*site.cost_columns, *[None] * site.functions)[: site.functions]
        fixed = [function for function, column in enumerate(columns) if column is None]
        free = sorted(draw(st.sets(st.sampled_from(fixed)))) if fixed else []
        costs = [0.0 if function in free else cost for function, cost in enumerate(site.costs)]
        made.append(replace(site, free=tuple(free), costs=tuple(costs)))
    return _with_sites(case, made)


def crowded_case(seed: int) -> Case:
    """Four sites that ask each other all the time, everything on: what chance seldom draws."""
    rng = np.random.default_rng(seed)
    drawn = tuple(rng.permutation(4)[: rng.integers(1, 4)].tolist())
    # Sites of several candidates are supervised, and are shown instances.
    spaces = [(place,) for place in range(4)]
    if seed % 2:
        spaces = [(0, 1), (2,), drawn, (1, 3)]  # first mentioned in this order
    made = []
    for place in range(4):
        others = tuple((k, 0.0) for k in range(4) if k != place)
        site = reference.Site(
            name=f"site{place}",
            functions=2,
            costs=(0.5, 0.5),
            arrivals=place < 3,
            peers=others[: rng.integers(0, 3)],
            readers=others[rng.integers(0, 2) :] if len(spaces[place]) == 1 else (),
            supervised=place != 1,
            spaces=spaces[place],
            patience=[None, 0, 2][rng.integers(0, 3)],
        )
        arms = site.functions + len(site.peers) + len(site.readers)
        made.append(replace(site, cost_columns=tuple(rng.integers(0, 2, arms).tolist())))
    setup = reference.Setup(
        sites=tuple(made),
        spaces=((0,), (0, 1), (), (1,)),
        zooming=True,
        slices=1,
        split_scale=float(rng.choice([4.0, 16.0])),
        split_power=1.0,
        explore=(0.02, 0.5),
        train=(0.02, 0.5),
        explore_peers=(0.02, 0.5),
        count=str(rng.choice(["labelled", "arrivals"])),
        pending=bool(rng.integers(0, 2)),
        inherit=True,
    )
    labels = rng.integers(0, 3, 300)
    wrong = rng.random((8, 300)) < rng.random((8, 1))
    return Case(
        setup=setup,
        contexts=rng.random((300, 2)),
        predictions=np.where(wrong, labels + 1, labels),
        labels=labels,
        at=None,
        revealed=None,
        delay=rng.choice(DELAYS, 300),
        busy=rng.choice(DELAYS, (300, 4)),
        paid=rng.integers(0, 5, (2, 300)) / 8,
    )


@st.composite
def index_cases(draw: st.DrawFn) -> Case:
    """A network and a stream of up to 300 slots for any of the index policies."""
    preset = draw(st.sampled_from(sorted(reference_index.PRESETS)))
    drawn = {
        name: draw(values)
        for name, values in _INDEX_SETTINGS.items()
        if name in _INDEX_KEYS[preset] and draw(st.booleans())
    }
    drawn["slices"] = draw(st.integers(1, 5))
    drawn["label_wait"] = draw(st.sampled_from([None, None, 0, 3]))
    drawn["pending"] = draw(st.booleans())
    made = draw(sites(INDEX_PRICES, most=5, most_functions=3))
    slots = draw(st.sampled_from([1, 30, 100] if preset == "auto" else [1, 30, 150, 300]))
    case = _with_stream(
        index_setup(preset, made, **drawn),
        draw,
        slots=slots,
        dimension=draw(st.sampled_from([0, 1, 2, 3, 4, 5] if preset == "auto" else [0, 1, 2, 3])),
    )
    if preset == "auto":
        for extend in (_with_readers, _with_busy_peers, _with_random_costs):
            case = extend(case, draw) if draw(st.booleans()) else case
    return turned(case) if draw(st.booleans()) else case


@st.composite
def limited_cases(draw: st.DrawFn) -> Case:
    """A case of any policy with a limit of harm: all sites see labels, functions cost no more."""
    case = draw(st.one_of(reading_cases(), index_cases(), free_cases()))
    made = []
    for site in case.setup.sites:
        columns = (*[None] * site.functions, *site.cost_columns[site.functions :])
        columns = columns if any(column is not None for column in columns) else ()
        made.append(replace(site, supervised=True, cost_columns=columns))
    harm = (draw(st.sampled_from([2.0, 10.0, 30.0])), draw(st.sampled_from([0.5, 0.95])))
    setup = replace(case.setup, sites=tuple(made), harm=harm, pending=True)
    return replace(case, setup=setup)


def turned(case: Case) -> Case:
    """Return the case with the right answers of its second half wrong, and the wrong ones right."""
    is_late = np.arange(len(case.labels)) >= len(case.labels) // 2
    is_right = (case.predictions == case.labels) ^ is_late
    return replace(case, predictions=np.where(is_right, case.labels, case.labels + 1))


def config_of(case: Case) -> dict[str, Any]:
    """Return the replay configuration that says what the case's set-up says."""
    setup = case.setup
    is_index = isinstance(setup, IndexSetup)
    policy = _index_policy(setup) if is_index else _policy(setup)
    if setup.harm is not None:
        policy["harm"] = dict(zip(("points", "confidence"), setup.harm, strict=True))
    config = {
        "policy": policy,
        "learner": [_learner(case, place) for place in range(len(setup.sites))],
    }
    if setup.spaces is not None:
        # The contexts of the first learner are those of [data].
        config["data"] = _looks_at(setup, setup.sites[0])
    return config


def _index_policy(setup: IndexSetup) -> dict[str, Any]:
    """Say what differs from the preset, so that its defaults are compared as well."""
    policy: dict[str, Any] = {"preset": setup.preset}
    if not setup.zooming:
        policy["slices"] = setup.slices
    plain = index_setup(setup.preset, setup.sites)
    for name in (*_INDEX_KEYS[setup.preset], "label_wait", "pending"):
        if getattr(setup, name) != getattr(plain, name):
            policy[name.replace("_", "-")] = getattr(setup, name)
    return policy


def _policy(setup: reference.Setup) -> dict[str, Any]:
    policy: dict[str, Any] = {
        "preset": "dcza" if setup.zooming else "cos",
        "reading": "paper" if setup.is_paper else "spec",
        "slices": setup.slices,
        "split-scale": setup.split_scale,
        "split-power": setup.split_power,
        "count": setup.count,
        "pending": setup.pending,
    }
    for name, values in READINGS.items():
        if getattr(setup, name) != values[setup.is_paper]:
            policy[name] = getattr(setup, name)
    for name in _CURVE_NAMES:
        scale, power = getattr(setup, name)
        policy[name.replace("_", "-")] = {"scale": scale, "power": power}
    if setup.label_wait is not None:
        policy["label-wait"] = setup.label_wait
    policy["inherit"] = setup.inherit
    if setup.window:
        policy["forget"] = {"window": setup.window}
    if setup.discount < 1:
        policy["forget"] = {"discount": setup.discount}
    return fitting(policy)


def _learner(case: Case, place: int) -> dict[str, Any]:
    site = case.setup.sites[place]
    named = [other.name for other in case.setup.sites]
    table: dict[str, Any] = {
        "name": site.name,
        "functions": [f"{site.name}-f{k}" for k in range(site.functions)],
        "function-costs": list(site.costs),
        "arrivals": site.arrivals,
        "supervised": site.supervised,
        "peers": {named[peer]: price for peer, price in site.peers},
    }
    if site.free:
        table["free"] = [f"{site.name}-f{k}" for k in site.free]
    if site.readers:
        table["context-peers"] = {named[reader]: price for reader, price in site.readers}
    if site.patience is not None:
        table["answer-wait"] = site.patience
    if case.busy is not None:
        table["answer-delay"] = _answer_delay(case.busy[:, place].tolist(), site.name)
    if site.cost_columns:
        pairs = zip(_arms(case.setup, place), site.cost_columns, strict=True)
        table["cost-columns"] = {arm: f"paid-{k}" for arm, k in pairs if k is not None}
    return table | _own_context(case.setup, site)


def _answer_delay(slots: list[int], name: str) -> int | str:
    return slots[0] if len(set(slots)) == 1 else f"busy-{name}"


def _own_context(setup: reference.Setup, site: reference.Site) -> dict[str, Any]:
    if setup.spaces is None:
        return {}
    said = _looks_at(setup, setup.sites[0])
    own = _looks_at(setup, site)
    # No coordinates at all are always said: they are no default of anything.
    return {} if own == said and own != {"context": []} else own


def _looks_at(setup: reference.Setup, site: reference.Site) -> dict[str, Any]:
    spaces = setup.spaces or ()
    named = [[f"x{coordinate}" for coordinate in spaces[space]] for space in site.spaces]
    if len(named) == 1:
        return {"context": named[0]}
    return {"candidates": [space[0] if len(space) == 1 else space for space in named]}


def _columns(case: Case) -> dict[str, list[float]]:
    """Return the columns that the configuration names for answer delays and costs."""
    columns: dict[str, list[float]] = {}
    if case.busy is not None:
        for site, slots in zip(case.setup.sites, case.busy.T.tolist(), strict=True):
            if isinstance(_answer_delay(slots, site.name), str):
                columns[f"busy-{site.name}"] = slots
    if case.paid is not None:
        used = {k for site in case.setup.sites for k in site.cost_columns if k is not None}
        columns |= {f"paid-{k}": case.paid[k].tolist() for k in sorted(used)}
    return columns


def kernel_rows(case: Case) -> list[reference.Row]:
    """Return the trace of the kernel, written as the reference writes it."""
    names = [site.name for site in case.setup.sites]
    columns_named = _columns(case)
    trace = covey.replay(
        config_of(case),
        predictions=case.predictions,
        labels=case.labels,
        contexts=case.contexts,
        at=None if case.at is None else [names[k] for k in case.at],
        revealed=case.revealed,
        delay=case.delay,
        batch=case.batch,
        **({"columns": columns_named} if columns_named else {}),
    )
    local = [
        {name: arm for arm, name in enumerate(_arms(case.setup, place))}
        for place in range(len(names))
    ]
    columns = trace.columns()
    return [
        reference.Row(slot, learner, cell, phase, local[learner][arm], function, correct)
        for slot, learner, cell, phase, arm, function, correct in zip(
            columns["slot"],
            trace.learner.tolist(),
            columns["cell"],
            columns["phase"],
            columns["arm"],
            trace.function.tolist(),
            columns["correct"],
            strict=True,
        )
    ]


def _arms(setup: reference.Setup, place: int) -> list[str]:
    site = setup.sites[place]
    own = [f"{site.name}-f{k}" for k in range(site.functions)]
    peers = [setup.sites[peer].name for peer, _ in site.peers]
    readers = [f"{setup.sites[reader].name} (context)" for reader, _ in site.readers]
    return [*own, *peers, *readers]


def reference_rows(case: Case) -> list[reference.Row]:
    """Return the trace of the reference."""
    if isinstance(case.setup, IndexSetup):
        return reference_index.replay(case.setup, **_stream(case))
    return reference.replay(case.setup, **_stream(case))


def _stream(case: Case) -> dict[str, Any]:
    return {
        "contexts": [tuple(point) for point in case.contexts.tolist()],
        "predictions": case.predictions.tolist(),
        "labels": case.labels.tolist(),
        "at": None if case.at is None else case.at.tolist(),
        "revealed": None if case.revealed is None else case.revealed.tolist(),
        "delay": None if case.delay is None else case.delay.tolist(),
        "busy": None if case.busy is None else case.busy.tolist(),
        "paid": () if case.paid is None else case.paid.tolist(),
        "batch": None if case.batch is None else case.batch.tolist(),
    }
