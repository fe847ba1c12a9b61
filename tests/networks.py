"""Generated networks and streams, and the two ways of replaying them: kernel and reference."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import covey
import reference

CURVES = st.tuples(
    st.sampled_from([0.0, 0.05, 0.3, 1.0, 2.0]), st.sampled_from([0.0, 0.125, 0.5, 0.9])
)


@dataclass(frozen=True)
class Case:
    """A set-up, a stream, and the switches that differ from the mode's."""

    setup: reference.Setup
    mode: str
    contexts: np.ndarray
    predictions: np.ndarray
    labels: np.ndarray
    at: np.ndarray | None
    revealed: np.ndarray | None
    delay: np.ndarray | None


@st.composite
def sites(draw: st.DrawFn) -> tuple[reference.Site, ...]:
    """1-6 learners with 1-4 functions each; at least one receives instances."""
    count = draw(st.integers(1, 6))
    receiving = draw(st.sets(st.integers(0, count - 1), min_size=1))
    prices = st.sampled_from([0.0, 0.1, 0.5, 1.0])
    made = []
    for place in range(count):
        functions = draw(st.integers(1, 4))
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
def cases(draw: st.DrawFn) -> Case:
    """A network and a stream of up to 400 slots: both partitions, both modes, all switches."""
    made = draw(sites())
    mode = draw(st.sampled_from(["spec", "paper"]))
    is_paper = mode == "paper"
    setup = reference.Setup(
        sites=made,
        zooming=draw(st.booleans()),
        slices=draw(st.integers(1, 5)),
        split_scale=draw(st.sampled_from([0.5, 1.0, 3.0])),
        split_power=draw(st.sampled_from([0.8, 2.0, 4.0])),
        level_offset=1 if is_paper else 0,
        explore=draw(CURVES),
        train=draw(CURVES),
        explore_peers=draw(CURVES),
        order="train-own-peers" if is_paper else "own-train-peers",
        helper=draw(st.sampled_from(["explore-first", "greedy"])),
        count=draw(st.sampled_from(["arrivals", "arrivals", "labelled", "uses"])),
        askers="first" if is_paper else "all",
        hidden_from="first" if is_paper else "all",
        pending=draw(st.booleans()),
        label_wait=draw(st.sampled_from([None, None, 0, 3])),
        inherit=draw(st.booleans()),
        **draw(st.sampled_from([{}, {}, {"window": 5}, {"discount": 0.9}])),
    )
    return _with_stream(setup, mode, draw)


def _with_stream(setup: reference.Setup, mode: str, draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    slots = draw(st.sampled_from([1, 30, 150, 400]))
    dimension = draw(st.integers(0, 3))
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
        mode=mode,
        contexts=contexts,
        predictions=np.where(wrong, labels + 1, labels),
        labels=labels,
        at=rng.choice(receiving, slots) if has_at else None,
        revealed=rng.integers(0, 2, slots) if has_hidden else None,
        delay=rng.choice([0, 0, 1, 2, 7], slots) if has_delay else None,
    )


def config_of(case: Case) -> dict[str, Any]:
    """Return the replay configuration that says what the case's set-up says."""
    setup = case.setup
    policy: dict[str, Any] = {
        "preset": "dcza" if setup.zooming else "cos",
        "mode": case.mode,
        "slices": setup.slices,
        "split-scale": setup.split_scale,
        "split-power": setup.split_power,
        "helper": setup.helper,
        "count": setup.count,
        "pending": setup.pending,
    }
    for name in ("explore", "train", "explore_peers"):
        scale, power = getattr(setup, name)
        policy[name.replace("_", "-")] = {"scale": scale, "power": power}
    if setup.label_wait is not None:
        policy["label-wait"] = setup.label_wait
    policy["inherit"] = setup.inherit
    if setup.window:
        policy["forget"] = {"window": setup.window}
    if setup.discount < 1:
        policy["forget"] = {"discount": setup.discount}
    return {
        "policy": policy,
        "learner": [_learner(k, setup.sites) for k in range(len(setup.sites))],
    }


def _learner(place: int, all_sites: tuple[reference.Site, ...]) -> dict[str, Any]:
    site = all_sites[place]
    return {
        "name": site.name,
        "functions": [f"{site.name}-f{k}" for k in range(site.functions)],
        "function-costs": list(site.costs),
        "arrivals": site.arrivals,
        "supervised": site.supervised,
        "peers": {all_sites[peer].name: price for peer, price in site.peers},
    }


def kernel_rows(case: Case) -> list[reference.Row]:
    """Return the trace of the kernel, written as the reference writes it."""
    names = [site.name for site in case.setup.sites]
    trace = covey.replay(
        config_of(case),
        predictions=case.predictions,
        labels=case.labels,
        contexts=case.contexts,
        at=None if case.at is None else [names[k] for k in case.at],
        revealed=case.revealed,
        delay=case.delay,
    )
    local = [_local_arms(case.setup, place) for place in range(len(names))]
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


def _local_arms(setup: reference.Setup, place: int) -> dict[str, int]:
    site = setup.sites[place]
    own = [f"{site.name}-f{k}" for k in range(site.functions)]
    peers = [setup.sites[peer].name for peer, _ in site.peers]
    return {name: arm for arm, name in enumerate([*own, *peers])}


def reference_rows(case: Case) -> list[reference.Row]:
    """Return the trace of the reference."""
    return reference.replay(
        case.setup,
        contexts=[tuple(point) for point in case.contexts.tolist()],
        predictions=case.predictions.tolist(),
        labels=case.labels.tolist(),
        at=None if case.at is None else case.at.tolist(),
        revealed=None if case.revealed is None else case.revealed.tolist(),
        delay=None if case.delay is None else case.delay.tolist(),
    )
