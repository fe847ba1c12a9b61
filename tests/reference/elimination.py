"""The oracle of CoS with elimination."""

import math

from reference.owners import OnceNetwork
from reference.records import Cell, Curve, limit, short_of_labels


class CosCe(OnceNetwork):
    """CoS whose three tests leave out the arms that cannot be best any more."""

    def log_term(self, cell: Cell, slot: int) -> float:
        cells = self.setup.slices ** len(cell.place)
        return math.log(2 * self.setup.all_functions * cells * slot * slot)

    def bias(self, cell: Cell) -> float:
        diagonal = math.sqrt(len(cell.place)) / self.setup.slices
        bias: float = self.setup.lipschitz * diagonal**self.setup.alpha
        return bias

    def cap(self, cell: Cell, slot: int) -> float:
        bias = self.bias(cell)
        # Choice: where all accuracies are the same everywhere (no coordinates), nothing is capped.
        return math.inf if bias == 0 else self.log_term(cell, slot) / (2 * bias * bias)

    def capped(self, curve: Curve, cell: Cell, slot: int, times: int = 1) -> float:
        return min(limit(curve, slot), self.cap(cell, slot) * times)

    def bounds(self, owner: int, cell: Cell, slot: int) -> list[tuple[float, float]]:
        """Return low and high of each of the owner's functions in the cell."""
        functions = self.setup.sites[owner].functions
        bounds = []
        for tally in self.record(owner, cell, slot).arms[:functions]:
            if tally.labels == 0:
                bounds.append((-math.inf, math.inf))
                continue
            accuracy = tally.right / tally.labels
            radius = math.sqrt(self.log_term(cell, slot) / (2 * tally.labels))
            bounds.append((accuracy - radius, accuracy + radius))
        return bounds

    def reply(self, peer: int, cell: Cell, slot: int) -> tuple[float, float]:
        bounds = self.bounds(peer, cell, slot)
        return max(low for low, _ in bounds), max(high for _, high in bounds)

    def active(self, site: int, cell: Cell, slot: int) -> list[int]:
        """Return the arms that may still be best, by what their owners say."""
        bounds = self.bounds(site, cell, slot)
        bounds += [self.reply(peer, cell, slot) for peer, _ in self.peers(site)]
        costs = [*self.setup.sites[site].costs, *(price for _, price in self.peers(site))]
        best = max(low - cost for (low, _), cost in zip(bounds, costs, strict=True))
        slack = 2 * self.bias(cell)
        return [
            arm
            for arm, ((_, high), cost) in enumerate(zip(bounds, costs, strict=True))
            if (high - cost) + slack >= best
        ]

    def choose(self, site: int, cells: tuple[Cell, ...], slot: int) -> tuple[str, int, Cell]:
        if not self.setup.sites[site].supervised:
            return super().choose(site, cells, slot)
        (cell,) = cells
        self.waits[site, cell.space].own.look(slot)
        active = self.active(site, cell, slot)
        own = [arm for arm in active if arm < self.setup.sites[site].functions]
        peers = [arm for arm in active if arm not in own]
        arm = self.under_explored(site, own, cell, self.capped(self.setup.explore, cell, slot))
        if arm is not None:
            return "explore", arm, cell
        arm = self.under_trained_of(site, peers, cell, slot)
        if arm is not None:
            return "train", arm, cell
        enough = self.capped(self.setup.explore_peers, cell, slot)
        arm = self.under_explored(site, peers, cell, enough)
        if arm is None:
            explore = self.capped(self.setup.explore, cell, slot)
            limits = dict.fromkeys(own, explore) | dict.fromkeys(peers, enough)
            arm = short_of_labels(self.known[site][cell], limits, self.waits[site, cell.space])
        if arm is not None:
            return "explore", arm, cell
        estimates = self.estimates(site, cell)
        return "exploit", max(active, key=lambda arm: (estimates[arm], -arm)), cell

    def under_explored(self, site: int, arms: list[int], cell: Cell, enough: float) -> int | None:
        record = self.known[site][cell]
        return next((arm for arm in arms if record.arms[arm].tried <= enough), None)

    def under_trained_of(self, site: int, arms: list[int], cell: Cell, slot: int) -> int | None:
        record = self.known[site][cell]
        enough = self.capped(self.setup.train, cell, slot, times=self.setup.most_functions)
        for arm in arms:
            if record.training[arm] <= enough:
                peer, _ = self.peers(site)[arm - self.setup.sites[site].functions]
                reported = self.record(peer, cell, slot).arrivals
                record.training[arm] = reported - record.arms[arm].tried
        return next((arm for arm in arms if record.training[arm] <= enough), None)
