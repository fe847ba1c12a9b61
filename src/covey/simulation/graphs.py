"""Networks of many alike sites, each of which asks a few others: who asks whom, and their world.

All that is kept grows with the number of links. A site sees the answers of its own functions and
of those of its peers, so only these are drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from covey.config import LearnerSpec
from covey.simulation.environment import Environment, Topology
from covey.simulation.surfaces import Purpose, bits_for, distances
from covey.types import Array

_BLOCK = 4_096  # sites whose answers fit into a cache


class Graph:
    """Who asks whom: each site asks equally many others."""

    def __init__(self, members: Array, functions: int, *, are_apart: bool) -> None:
        """`members` has the site itself and its peers, ascending; `functions` is of each site.

        `are_apart`: each site has its own instances, and functions answer it separately.
        """
        self.members, self.functions, self.are_apart = members, functions, are_apart
        self.sites, self.reach = len(members), members.shape[1]
        own = np.arange(self.sites, dtype=members.dtype)
        # Where a site stands among these.
        self.own = np.argmax(members == own[:, None], axis=1).astype(members.dtype)

    def blocks(self) -> Iterator[slice]:
        """Yield the sites in blocks."""
        for first in range(0, self.sites, _BLOCK):
            yield slice(first, min(first + _BLOCK, self.sites))


def graph_of(environment: Environment) -> Graph:
    """Return the graph of an environment with a topology."""
    assert environment.topology is not None
    are_apart = environment.streams > 1
    members = _members(environment.topology, len(environment.names))
    return Graph(members, environment.counts[0], are_apart=are_apart)


@lru_cache(maxsize=4)
def _members(topology: Topology, sites: int) -> Array:
    """Return, per site, itself and the sites that it asks, ascending."""
    rng = np.random.default_rng(topology.seed)
    count = topology.peers_each
    if topology.kind == "random":
        steps = np.zeros((sites, count), np.int64)
        unset = np.ones(steps.shape, bool)
    else:
        nearest = [(1 + k // 2) * (1 if k % 2 == 0 else -1) for k in range(count)]
        steps = np.tile(np.array(nearest), (sites, 1)) % sites
        unset = np.zeros(steps.shape, bool)
        if topology.kind == "small-world":
            unset = rng.random(steps.shape) < topology.rewired
    while unset.any():  # a peer is drawn anew if the site asks it already
        steps[unset] = rng.integers(1, sites, int(unset.sum()))
        steps.sort(axis=1)
        unset[:] = False
        unset[:, 1:] = steps[:, 1:] == steps[:, :-1]
    own = np.arange(sites)[:, None]
    members = np.concatenate([own, (own + steps) % sites], axis=1)
    members.sort(axis=1)
    return members.astype(np.int32)


class AlikeSites(Sequence[LearnerSpec]):
    """The sites of a graph, each made when it is asked for."""

    def __init__(self, usual: LearnerSpec, graph: Graph, liars: Mapping[int, str]) -> None:
        """`usual` has what all sites share; `liars` says which of them report or label falsely."""
        self._usual, self._graph, self._liars = usual, graph, liars

    def __len__(self) -> int:
        return len(self._graph.members)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self[k] for k in range(*place.indices(len(self))))
        if not -len(self) <= place < len(self):
            raise IndexError(f"there is no site {place} among {len(self)}")
        return self._site(place % len(self))

    def __iter__(self) -> Iterator[LearnerSpec]:
        return map(self._site, range(len(self)))

    def _site(self, place: int) -> LearnerSpec:
        graph, count = self._graph, self._graph.functions
        members = graph.members[place].tolist()
        name, own = f"learner-{place + 1}", int(graph.own[place])
        peers = (*members[:own], *members[own + 1 :])
        answers: tuple[int, ...] = ()
        if graph.are_apart:
            first = place * graph.reach * count
            rows = range(first, first + graph.reach * count, count)
            answers = (
                *range(rows[own], rows[own] + count),
                *rows[:own],
                *rows[own + 1 :],
            )
        return self._usual._replace(
            name=name,
            functions=tuple([f"{name}.{k + 1}" for k in range(count)]),
            peers=peers,
            stream=place * graph.are_apart,
            answers=answers,
            reports_falsely=self._liars.get(place) == "zero-arrivals",
            labels_falsely=self._liars.get(place) == "false-labels",
        )


class GraphSource:
    """Contexts, accuracies and answers of the functions that each site can reach.

    A slot takes equally many random bits, so chunks of any length give the same world.
    """

    def __init__(self, environment: Environment, *, seed: int) -> None:
        self._graph = graph = graph_of(environment)
        self._environment = environment
        rng = np.random.Generator(bits_for(seed, Purpose.SURFACES))
        shape = (graph.sites * graph.functions, environment.dimension)
        middle = (environment.low + environment.high) / 2
        self._at = rng.random(shape)
        self._every = rng.uniform(0.3, 1.0, len(self._at))
        self._high = rng.uniform(middle, environment.high, len(self._at)).astype(np.float32)
        self._toward = self._at  # no direction matters
        if environment.shape != "bumps":
            self._toward = rng.normal(size=shape)
            self._toward /= np.linalg.norm(self._toward, axis=1, keepdims=True)
        self._points = np.random.Generator(bits_for(seed, Purpose.POINTS))
        self._answers = bits_for(seed, Purpose.ANSWERS)

    def draw(self, first_slot: int, slots: int) -> tuple[Array, Array, Array]:
        graph, count = self._graph, self._graph.functions
        streams = graph.sites if graph.are_apart else 1
        points = self._points.random((slots, streams, self._environment.dimension))
        answers = graph.sites * (graph.reach if graph.are_apart else 1) * count
        words = self._answers.random_raw(slots * ((answers + 1) // 2)).view(np.uint32)
        bits = words.reshape(slots, -1)[:, :answers]
        accuracy = np.empty((answers, slots), np.float32)
        right = np.empty((answers, slots), np.int32)
        each = np.arange(count)
        for block in graph.blocks():
            if graph.are_apart:
                functions = (graph.members[block, :, None] * count + each).reshape(-1)
                here = np.repeat(points[:, block], graph.reach * count, axis=1)
                rows = slice(*(k * graph.reach * count for k in (block.start, block.stop)))
            else:
                rows = slice(block.start * count, block.stop * count)
                functions = np.arange(rows.start, rows.stop)
                here = points
            heights = self._accuracy(here, functions)
            # Both are multiples of 2**-22, as in other worlds: sums of them are exact.
            drawn = (bits[:, rows] >> 10 | 0x40000000).view(np.float32)
            right[rows] = (drawn < heights + 2).T
            accuracy[rows] = heights.T
        shape = (streams, answers // streams, slots)
        return points, accuracy.reshape(shape), right.reshape(shape)

    def _accuracy(self, points: Array, functions: Array) -> Array:
        """Return the accuracies of functions (slot, function) at points (slot, function, axis)."""
        environment, high = self._environment, self._high[functions]
        given = (values[functions] for values in (self._at, self._toward, self._every))
        heights = distances(environment.shape, points, *given).astype(np.float32)
        if environment.alpha != 1:
            np.power(heights, environment.alpha, out=heights)
        heights *= -environment.lipschitz
        heights += high
        np.clip(heights, environment.low, high, out=heights)
        heights += 2
        heights -= 2
        return heights


def complete(environment: Environment) -> Environment:
    """Return an environment of few sites: each asks all others, and as many as in the graph."""
    assert environment.topology is not None
    return msgspec.structs.replace(
        environment, topology=None, learners=environment.topology.peers_each + 1, liars={}
    )
