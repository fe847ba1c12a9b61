"""The prices of a replay as links change, and as their costs are learnt from use."""

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
    """What an arm costs a learner from now on; inf: it is closed."""

    place: int  # of the learner that pays
    arm: int  # its place among the learner's costs
    cost: float


class Roads:
    """The links of a replay: what prices are at a slot, and what going over links has cost.

    Between the slots at which prices may move, requests take the paths that were cheapest then.
    """

    def __init__(self, setup: ReplayConfig, sites: Sequence[Site]) -> None:
        wiring = setup.wiring
        assert wiring is not None
        self._links = wiring.links.copy()
        self._changes = list(wiring.changes)
        rows = {column: row for row, column in enumerate(setup.cost_columns)}
        self._rows = {pair: rows[column] for pair, column in wiring.tolls.items()}
        self._every = setup.settings.relearn_every if self._rows else 2**60
        self._seen: dict[Pair, tuple[int, int]] = {}  # millionths and times, since the last look
        self._names = [site.name for site in sites]
        self._first_asked = sum(len(site.functions) for site in sites)
        self._arms: dict[Pair, tuple[int, int]] = {}
        self._carried: dict[Pair, float] = {}  # what prices hold beyond the path's costs
        for place, site in enumerate(sites):
            for arm, peer in enumerate(site.peers, len(site.functions)):
                pair = (site.name, sites[peer].name)
                self._arms[pair] = (place, arm)
                is_carried = setup.settings.carry_serving_costs
                self._carried[pair] = sites[peer].serving_cost if is_carried else 0.0

    def next_slot(self, slot: int) -> int:
        """Return the first slot after this one at which prices may move."""
        look = slot - (slot - 1) % self._every + self._every
        return min(look, self._changes[0].slot) if self._changes else look

    def moves(self, slot: int) -> list[Repricing]:
        """Return what costs something else from `slot` on."""
        moved = self._look(slot) | self._change(slot)
        return [
            Repricing(*self._arms[pair], math.inf if price is None else price + self._carried[pair])
            for pair, price in moved.items()
            if pair in self._arms
        ]

    def charge(self, trace: Trace, log: Log) -> None:
        """Let requests of `trace` cost what their paths did cost in `log`, and remember that."""
        if not self._rows or log.costs is None:
            return
        sites = len(self._names)
        peer = trace.arm - self._first_asked
        pair = np.where((peer >= 0) & (peer < sites), trace.learner * sites + peer, -1)
        cost = trace.cost.copy()
        for asked in np.unique(pair[pair >= 0]).tolist():
            rows = np.flatnonzero(pair == asked)
            slots = trace.slot[rows] - trace.slot[0]
            place, other = divmod(asked, sites)
            names = (self._names[place], self._names[other])
            cost[rows] = self._toll(names, slots, np.asarray(log.costs)) + self._carried[names]
            if len(trace.paid):
                cost[rows] += trace.paid[rows] / MILLIONTHS
        trace.cost = cost

    def _toll(self, pair: Pair, slots: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Return what the path of a pair cost in these slots, and keep what was seen of its links.

        Added up anew, and not as a difference to the price: nobody is charged a rounding error.
        """
        toll = np.zeros(len(slots))
        for link in itertools.pairwise(self._links.path(*pair) or ()):
            if link not in self._rows:
                toll += self._links.cost(*link)
                continue
            seen = costs[self._rows[link], slots]
            total, times = self._seen.get(link, (0, 0))
            self._seen[link] = (total + int(seen.sum()), times + len(seen))
            toll += seen / MILLIONTHS
        return toll

    def _look(self, slot: int) -> Prices:
        if not self._seen or (slot - 1) % self._every:
            return {}
        seen = {link: (total / MILLIONTHS, times) for link, (total, times) in self._seen.items()}
        self._seen = {}
        return self._links.learn(seen)

    def _change(self, slot: int) -> Prices:
        due = [change for change in self._changes if change.slot <= slot]
        del self._changes[: len(due)]
        return self._links.apply(due) if due else {}
