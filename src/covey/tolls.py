"""What requests over links turn out to cost in a replay: paid as observed, learnt link by link."""

import itertools
from collections.abc import Sequence

import numpy as np

from covey.config import ReplayConfig, Repricing, Site, repricings
from covey.encoding import Log
from covey.links import Pair, PriceChange, Prices
from covey.traces import Trace
from covey.types import MILLIONTHS
from covey.wiring import Wiring


class Tolls:
    """The links of a replay, some of whose costs are seen only when a request goes over them.

    A request takes the path that is cheapest by what had been learnt when prices were last worked
    out, and pays what the links of that path cost in its slot.
    """

    def __init__(self, setup: ReplayConfig, wiring: Wiring, sites: Sequence[Site]) -> None:
        self._settings = setup.settings
        self._sites = sites
        self._links = wiring.links.copy()
        self._changes = list(wiring.changes)
        columns = setup.cost_columns
        self._rows = {pair: columns.index(column) for pair, column in wiring.columns.items()}
        self._first_peer = sum(len(site.functions) for site in sites)
        self._uses: dict[Pair, tuple[int, int]] = {}  # millionths and times, not yet learnt from

    def next_slot(self, slot: int) -> int:
        """Return the first slot after `slot` before which prices may move."""
        every = self._settings.relearn_every
        learnt = ((slot - 1) // every + 1) * every + 1
        return min([learnt, *(change.slot for change in self._changes[:1])])

    def moves(self, slot: int) -> tuple[Repricing, ...]:
        """Return how the costs of arms move before anyone decides in `slot`."""
        prices: Prices = {}
        if (slot - 1) % self._settings.relearn_every == 0:
            uses = {pair: (total / MILLIONTHS, n) for pair, (total, n) in self._uses.items()}
            prices |= self._links.observe_uses(uses)
            self._uses = {}
        due = list(itertools.takewhile(lambda change: change.slot <= slot, self._changes))
        if due:
            del self._changes[: len(due)]
            prices |= self._links.apply(due)
        moved = [PriceChange(slot, asker, peer, p) for (asker, peer), p in prices.items()]
        return repricings(moved, self._sites, self._settings)

    def charge(self, trace: Trace, log: Log) -> None:
        """Let a trace say what was paid in place of what was thought, and keep what was seen."""
        peer = trace.arm - self._first_peer
        is_asked = (peer >= 0) & (peer < len(self._sites))
        pairs = trace.learner * len(self._sites) + peer
        paid = trace.paid / MILLIONTHS if len(trace.paid) else np.zeros(len(trace))
        for number in np.unique(pairs[is_asked]).tolist():
            rows = np.flatnonzero(is_asked & (pairs == number))
            asker, asked = (self._sites[place] for place in divmod(number, len(self._sites)))
            toll = self._toll((asker.name, asked.name), trace.slot[rows] - trace.slot[0], log)
            if self._settings.carry_serving_costs:
                toll += asked.serving_cost
            trace.cost[rows] = toll + paid[rows]

    def _toll(self, pair: Pair, slots: np.ndarray, log: Log) -> np.ndarray:
        """Return what the path between two learners cost in these slots of the log."""
        toll = np.zeros(len(slots))
        for link in itertools.pairwise(self._links.path(*pair) or ()):
            if not self._links.is_learnt(*link):
                toll += self._links.cost(*link)
                continue
            seen = np.asarray(log.costs)[self._rows[link], slots]
            total, times = self._uses.get(link, (0, 0))
            self._uses[link] = (total + int(seen.sum()), times + len(slots))
            toll += seen / MILLIONTHS
        return toll
