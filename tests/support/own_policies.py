"""Policies of one's own, as a user would write them."""

import math

from covey import CellState, CustomPolicy


class CellUCB(CustomPolicy):
    """UCB1 in every cell, its cost subtracted."""

    def __init__(self, functions: int, peers: int, *, scale: float = 2.0) -> None:
        super().__init__(functions, peers)
        self._scale = scale

    def choose(self, cell: CellState) -> int:
        """Return the arm with the largest upper bound, untried ones first."""
        level = self._scale * math.log(cell.slot + 1)

        def value(arm: int) -> float:
            tried = cell.labels[arm] + cell.pending[arm]
            if not tried:
                return math.inf if cell.costs[arm] < math.inf else -math.inf
            return cell.accuracy(arm) + math.sqrt(level / tried) - cell.costs[arm]

        return max(range(self.functions + self.peers), key=value)


class EpsilonGreedy(CustomPolicy):
    """The best arm so far, and one in ten at random."""

    def choose(self, cell: CellState) -> int:
        """Return a random arm with probability 0.1, else the best one."""
        arms = [arm for arm, cost in enumerate(cell.costs) if cost < math.inf]
        if cell.random() < 0.1:
            return arms[int(cell.random() * len(arms))]
        return max(arms, key=lambda arm: cell.accuracy(arm) - cell.costs[arm])

    def serve(self, cell: CellState) -> int:
        """Return a function at random now and then, else the most accurate one."""
        if cell.random() < 0.1:
            return int(cell.random() * self.functions)
        return super().serve(cell)
