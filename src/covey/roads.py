"""Link prices in a replay: scheduled changes, and costs learnt from use."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from covey.config import ReplayConfig, Site
from covey.encoding import Log
from covey.links import Pair, Prices
from covey.traces import Trace
from covey.types import MILLIONTHS


class Repricing(NamedTuple):
    """The new cost of an arm; inf: unavailable."""

    place: int  # index of the learner that pays
    arm: int  # index among the learner's costs
    cost: float


class Roads:
    """The links of a replay: prices per slot, and the costs of their use.

    Paths are chosen when prices change, and kept until the next change.
    """

    def __init__(self, setup: ReplayConfig, sites: Sequence[Site]) -> None:
        wiring = setup.wiring
        assert wiring is not None
        self._links = wiring.links.copy()
        self._changes = list(wiring.changes)
        rows = {column: row for row, column in enumerate(setup.cost_columns)}
        self._rows = {pair: rows[column] for pair, column in wiring.tolls.items()}
        self._every = setup.settings.relearn_every if self._rows else 2**60
        self._seen: dict[Pair, tuple[int, int]] = {}  # millionths and uses, since the last update
        self._names = [site.name for site in sites]
        self._first_asked = sum(len(site.functions) for site in sites)
        self._arms: dict[Pair, tuple[int, int]] = {}
        self._carried: dict[Pair, float] = {}  # serving costs that prices include
        is_carried = setup.settings.carry_serving_costs
        for index, site in enumerate(sites):
            for arm, peer in enumerate(site.peers, len(site.functions)):
                pair = (site.name, sites[peer].name)
                self._arms[pair] = (index, arm)
                self._carried[pair] = sites[peer].serving_cost if is_carried else 0.0

    def next_slot(self, slot: int) -> int:
        """Return the first slot after this one at which prices may change."""
        update = slot - (slot - 1) % self._every + self._every
        return min(update, self._changes[0].slot) if self._changes else update

    def moves(self, slot: int) -> list[Repricing]:
        """Return the costs that change at `slot`."""
        changed = self._learn(slot) | self._change(slot)
        return [
            Repricing(*self._arms[pair], math.inf if price is None else price + self._carried[pair])
            for pair, price in changed.items()
            if pair in self._arms
        ]

    def charge(self, trace: Trace, log: Log) -> None:
        """Set the costs of requests in `trace` to those of their paths in `log`; record them."""
        if not self._rows or log.costs is None:
            return
        sites = len(self._names)
        peer = trace.arm - self._first_asked
        pair = np.where((peer >= 0) & (peer < sites), trace.learner * sites + peer, -1)
        cost = trace.cost.copy()
        for code in np.unique(pair[pair >= 0]).tolist():
            rows = np.flatnonzero(pair == code)
            slots = trace.slot[rows] - trace.slot[0]
            asker, helper = divmod(code, sites)
            names = (self._names[asker], self._names[helper])
            cost[rows] = self._path_cost(names, slots, np.asarray(log.costs)) + self._carried[names]
            if len(trace.paid):
                cost[rows] += trace.paid[rows] / MILLIONTHS
        trace.cost = cost

    def _path_cost(self, pair: Pair, slots: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Return the path cost of a pair in these slots, and record the costs of its links.

        It is a sum over links, not a difference to the price, so it has no rounding error.
        """
        path_cost = np.zeros(len(slots))
        for link in itertools.pairwise(self._links.path(*pair) or ()):
            if link not in self._rows:
                path_cost += self._links.cost(*link)
                continue
            observed = costs[self._rows[link], slots]
            total, uses = self._seen.get(link, (0, 0))
            self._seen[link] = (total + int(observed.sum()), uses + len(observed))
            path_cost += observed / MILLIONTHS
        return path_cost

    def _learn(self, slot: int) -> Prices:
        if not self._seen or (slot - 1) % self._every:
            return {}
        seen = {link: (total / MILLIONTHS, uses) for link, (total, uses) in self._seen.items()}
        self._seen = {}
        return self._links.learn(seen)

    def _change(self, slot: int) -> Prices:
        due = [change for change in self._changes if change.slot <= slot]
        del self._changes[: len(due)]
        return self._links.apply(due) if due else {}
