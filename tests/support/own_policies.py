"""Policies of one's own, as a user would write them."""

import math
from typing import Any

import numpy as np

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


class LinUCB(CustomPolicy):
    """Ridge regression of each arm on the context, and its uncertainty added."""

    def __init__(self, functions: int, peers: int, *, width: float = 1.0) -> None:
        super().__init__(functions, peers)
        self._width = width
        self._sums: dict[int, tuple[Any, Any]] = {}  # arm -> matrix and vector of its regression

    def choose(self, cell: CellState) -> int:
        """Return the arm with the largest upper bound after its cost."""
        return max(
            range(self.functions + self.peers),
            key=lambda arm: self._bound(cell.context, arm) - cell.costs[arm],
        )

    def serve(self, cell: CellState) -> int:
        """Return the function with the largest upper bound in the middle of the cell."""
        return max(range(self.functions), key=lambda arm: self._bound(cell.context, arm))

    def learn(self, context: tuple[float, ...], arm: int, gain: float) -> None:
        """Add a label to the regression of an arm."""
        x = np.array([1.0, *context])
        matrix, vector = self._sums.get(arm, (np.eye(len(x)), np.zeros(len(x))))
        self._sums[arm] = matrix + np.outer(x, x), vector + gain * x

    def state(self) -> Any:
        """Return the sums of all arms."""
        return [[arm, one.tolist(), other.tolist()] for arm, (one, other) in self._sums.items()]

    def restore(self, value: Any) -> None:
        """Restore them."""
        self._sums = {arm: (np.array(one), np.array(other)) for arm, one, other in value}

    def _bound(self, context: tuple[float, ...], arm: int) -> float:
        x = np.array([1.0, *context])
        matrix, vector = self._sums.get(arm, (np.eye(len(x)), np.zeros(len(x))))
        spread = np.linalg.solve(matrix, x)
        return float(spread @ vector + self._width * math.sqrt(x @ spread))


class ByReports(EpsilonGreedy):
    """The same, where peers are judged by what they report."""

    asks_peers = True

    def choose(self, cell: CellState) -> int:
        """Return a random arm with probability 0.1, else the best one, reports included."""
        arms = [arm for arm, cost in enumerate(cell.costs) if cost < math.inf]
        if cell.random() < 0.1:
            return arms[int(cell.random() * len(arms))]
        reports = [report[2] if report else 0.0 for report in cell.reports]
        accuracies = [cell.accuracy(arm) for arm in range(self.functions)] + reports
        return max(arms, key=lambda arm: accuracies[arm] - cell.costs[arm])
