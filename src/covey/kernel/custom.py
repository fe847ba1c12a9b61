# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Policies of one's own: plain Python that chooses by the counters of a cell."""

from __future__ import annotations

import operator
from typing import Any

from covey.errors import PolicyError
from covey.kernel.counters import CLOSED, EXPLOIT, EXPLORE
from covey.kernel.rules import CellState, CustomPolicy, Rule
from covey.kernel.table import Table
from covey.kernel.thresholds import Clock


class CustomTable(Table):
    """Lets an object with `choose` and `serve` decide, by what is counted in a cell."""

    def __init__(self, clock: Clock, rule: Rule) -> None:
        Table.__init__(self, clock, rule)
        assert rule.custom is not None
        self.title = rule.custom.name
        policy = rule.custom.make(self.functions, self.arms - self.functions)
        self.choosing, self.serving = policy.choose, policy.serve
        # What every policy inherits needs no call of Python.
        self.serves_best = getattr(type(policy), "serve", None) is CustomPolicy.serve
        self.view = CellState(self.functions, rule.custom.seed, self.cell)
        self.nothing = [0] * self.arms
        self.fixed = list(rule.costs)  # while all arms are available

    def set_cost(self, arm: int, cost: float) -> None:
        """Change the cost of `arm` and keep its counters; infinite: unavailable."""
        Table.set_cost(self, arm, cost)
        self.fixed = [self.costs[k] for k in range(self.arms)]

    def _choose(self, row: int, slot: int, is_fresh: bool) -> int:
        arm = self._call(self.choosing, row, slot, self.arms)
        return arm << 2 | (EXPLOIT if self._best(row * self.stride) == arm else EXPLORE)

    def _help(self, row: int) -> int:
        if not self.serves_best:
            return self._call(self.serving, row, self.clock.now, self.functions)
        base = row * self.stride
        chosen = 0
        largest = -1.0
        for function in range(self.functions):
            labels = self.rows[base + self.labels + function]
            value = 0.0
            if labels > 0:
                value = float(self.rows[base + self.right + function]) / self.unit / labels
            if value > largest:
                largest = value
                chosen = function
        return chosen

    def _needs_report(self, row: int, peer: int) -> bool:
        return False

    def _call(self, method: Any, row: int, slot: int, end: int) -> int:
        """Return the arm that the policy chooses, which must be below `end` and available."""
        self._show(row, slot)
        try:
            answer = method(self.view)
        except Exception as error:
            raise PolicyError(
                f"policy {self.title!r} raised {type(error).__name__} in {method.__name__}: {error}"
            ) from error
        fault = ""
        arm = -1
        try:
            arm = operator.index(answer)
        except TypeError:
            fault = "return the number of an arm"
        if not fault and not 0 <= arm < end:
            fault = f"it must be 0 to {end - 1}"
        elif not fault and self.costs[arm] >= CLOSED:
            fault = "which is not available now (its cost is inf)"
        if fault:
            raise PolicyError(
                f"policy {self.title!r}: {method.__name__} returned {answer!r}; {fault}"
            )
        return arm

    def _show(self, row: int, slot: int) -> int:
        """Set what the policy sees to the counters of a row."""
        view: Any = self.view
        base = row * self.stride
        arms = range(self.arms)
        view.slot = slot
        view.row = row
        view.labels = [self.rows[base + self.labels + arm] for arm in arms]
        view.right = [self.rows[base + self.right + arm] for arm in arms]
        if self.unit > 1:
            view.right = [one / self.unit for one in view.right]
        view.pending = self.nothing
        if self.is_pending:
            view.pending = [self.rows[base + self.underway + arm] for arm in arms]
        view.costs = self.fixed
        if self.adds_costs or self.is_closing:
            view.costs = [self._price(base, arm) for arm in arms]
        view.draws = 0
        return 0
