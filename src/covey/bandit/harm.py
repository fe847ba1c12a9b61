"""A limit of what deciding freely may cost a learner against its own functions alone.

Every own row is either free, so that the policy decides, or kept for own functions. Which of them
it is depends on earlier rows only, never on the context: the labels of kept rows say how accurate
the own functions are on free ones. `docs/guide/policies.md` has the rule and what it guarantees.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from covey.bandit.policies import Harm
from covey.bandit.several import Several
from covey.kernel import EXPLOIT, SERVE, UNPAID, arm_of, code_of, phase_of
from covey.kernel.rules import Rule
from covey.types import MILLIONTHS, Context

KEPT = 0  # the phase in the codes of kept rows: no policy trains with an own function
ROWS, FREE, GAINED, PAID, FUNCTIONS = range(5)  # what is counted; then labels and gain of each


@lru_cache(maxsize=4096)
def most_accurate(labels: int, gain: float, level: float) -> int:
    """Return the largest accuracy, in millionths, that such labels leave possible.

    `gain` is the sum over the labels, each in [0, 1]. The bound is that of Chernoff, for any number
    of labels at once: the sum of 1 / n**2 over all n is finite, and part of `level`.
    """
    if not labels:
        return MILLIONTHS
    mean, bound = gain / labels, (level + 2 * math.log(labels)) / labels
    low, high = int(mean * MILLIONTHS), MILLIONTHS
    while high - low > 1:
        middle = (low + high) // 2
        other = middle / MILLIONTHS
        divergence = (1 - mean) * math.log((1 - mean) / (1 - other))
        divergence += mean * math.log(mean / other) if mean else 0.0
        low, high = (low, middle) if divergence > bound else (middle, high)
    return high


class _Over:
    """An object with other attributes in place of some of its own."""

    def __init__(self, inner: Any, **own: Any) -> None:
        self.inner = inner
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _passed(name: str, by: int = 0) -> Any:
    """Return a method that takes a decision; `by`: so many labels more are pending."""

    def call(self: "Limited", decision: int, *rest: Any) -> None:
        getattr(self.table, name)(self.of_policy(decision), *rest)
        if by:
            self.hold(decision, by)

    return call


class Limited:
    """A table whose policy decides only while that can have cost no more than a limit.

    What is counted are sums of integers over labels that have come, so their order does not matter;
    a pending label of a free row is taken for wrong.
    """

    def __init__(self, table: Any, harm: Harm, rule: Rule) -> None:
        self.table = table
        self._prices: list[float] = [math.inf] * len(rule.costs)  # in millionths; inf: closed
        self._charged = [0] * len(rule.costs)  # the latest price of an open arm
        self._functions, self._unit = rule.functions, rule.unit
        self._has_peers = len(rule.costs) > rule.functions
        self._limit = round(harm.points * MILLIONTHS / 100)
        self._level = math.log(rule.functions * math.pi**2 / 6 / (1 - harm.confidence))
        for arm, cost in enumerate(rule.costs):
            self._charge(arm, cost)
        self.counts = [0] * (FUNCTIONS + 2 * rule.functions)
        self.pending = self.pending_free = 0
        own = {"state": self.state, "restore": self.restore, "adopt": self._adopt}
        self.policy = _Over(table.policy, counts=lambda: self.counts, **own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def __len__(self) -> int:
        return len(self.table)

    # -- the limit ------------------------------------------------------------------------------

    def _is_free(self, closed: bytes | None) -> bool:
        """Return whether the policy may decide the next row: at worst the limit still holds."""
        arms = self._open(closed, len(self._prices))
        if not self._has_peers or arms[0] >= self._functions:
            return True
        rows, free, gained, paid = self.counts[:FUNCTIONS]
        best = max(self._worth(function) for function in range(self._functions))
        dearest = max(self._prices[arm] for arm in arms)
        next_free = self.pending_free + 1
        lost = (free + next_free) * best + next_free * dearest + paid
        lost -= gained * MILLIONTHS // self._unit
        return lost <= self._limit * (rows + self.pending + 1)

    def _worth(self, function: int) -> float:
        """Return what an own function can be worth at most, in millionths."""
        labels, gain = self.counts[FUNCTIONS + 2 * function :][:2]
        return most_accurate(labels, gain / self._unit, self._level) - self._prices[function]

    def _open(self, closed: bytes | None, end: int) -> list[int]:
        """Return the arms before `end` that are available; the first one if none is."""
        return [
            arm
            for arm, price in enumerate(self._prices[:end])
            if price < math.inf and not (closed and closed[arm])
        ] or [0]

    def _kept(self, row: int, closed: bytes | None) -> int:
        """Return the decision on a kept row: the own function that can be worth most."""
        function = max(self._open(closed, self._functions), key=self._worth)
        return int(code_of(row, function, KEPT))

    def is_kept(self, decision: int) -> bool:
        """Return whether a decision is that on a kept row."""
        return bool(phase_of(decision) == KEPT and arm_of(decision) < self._functions)

    def of_policy(self, decision: int) -> int:
        """Return a decision as the policy knows it: on kept rows it exploits a function."""
        return int(decision) | EXPLOIT if self.is_kept(decision) else int(decision)

    def hold(self, decision: int, by: int) -> None:
        """Count a pending label."""
        if self._has_peers and phase_of(decision) != SERVE:
            self.pending += by
            self.pending_free += by * (not self.is_kept(decision))

    # -- decisions ------------------------------------------------------------------------------

    def decide(self, context: Context, slot: int, closed: bytes | None = None) -> int:
        if not self._is_free(closed):
            return self._counted(self._kept(self.table.locate(context, slot), closed), context)
        return self._begun(self.table.decide(context, slot, closed))

    def resume(self, row: int, context: Context, slot: int, closed: bytes | None = None) -> int:
        if not self._is_free(closed):
            return self._counted(self._kept(row, closed), context)
        return self._begun(self.table.resume(row, context, slot, closed))

    def choose(self, row: int, slot: int, is_fresh: bool, closed: bytes | None = None) -> int:
        if not self._is_free(closed):
            return self._kept(row, closed)
        code: int = self.table.choose(row, slot, is_fresh, closed)
        return code

    def _counted(self, code: int, context: Context) -> int:
        self.count(code, context)
        return code

    def _begun(self, code: int) -> int:
        """Return what the policy decided and counted; below 0, peers must be asked first."""
        if code >= 0:
            self.hold(code, 1)
        return code

    decide_batch = Several.decide_batch
    settle_batch = Several.settle_batch
    count = _passed("count", 1)
    expect = _passed("expect", 1)
    forget = _passed("forget", -1)
    retract = _passed("retract", -1)
    remember = _passed("remember")

    def settle(
        self, decision: int, gain: int, context: Context, slot: int, paid: int = UNPAID
    ) -> None:
        self.table.settle(self.of_policy(decision), gain, context, slot, paid)
        if not self._has_peers or phase_of(decision) == SERVE:
            return
        self.hold(decision, -1)
        self.counts[ROWS] += 1
        if self.is_kept(decision):
            self._measure(arm_of(decision), gain)
            return
        self.counts[FREE] += 1
        self.counts[GAINED] += gain
        self.counts[PAID] += self._charged[arm_of(decision)] + (0 if paid == UNPAID else paid)

    def score(self, decision: int, function: int, gain: int, context: Context, slot: int) -> None:
        self.table.score(self.of_policy(decision), function, gain, context, slot)
        if self.is_kept(decision):
            self._measure(function, gain)

    def _measure(self, function: int, gain: int) -> None:
        self.counts[FUNCTIONS + 2 * function] += 1
        self.counts[FUNCTIONS + 2 * function + 1] += gain

    def set_cost(self, arm: int, cost: float) -> None:
        self.table.set_cost(arm, cost)
        self._charge(arm, cost)

    def _charge(self, arm: int, cost: float) -> None:
        self._prices[arm] = math.inf
        if cost < math.inf:
            self._prices[arm] = self._charged[arm] = round(cost * MILLIONTHS)

    def combine(self, row: int, other: "Limited", by: int) -> None:
        self.table.combine(row, other.table, by)

    # -- saving, loading, changes ---------------------------------------------------------------

    @property
    def saved(self) -> Any:
        return _Over(self.table.saved, take_over=self._take_over)

    def _take_over(self, old: "Limited", pending: Iterable[int]) -> None:
        decisions = list(pending)
        self.table.saved.take_over(old.table, map(self.of_policy, decisions))
        self.counts, self.pending, self.pending_free = [*old.counts], 0, 0
        for decision in decisions:
            self.hold(decision, 1)

    def state(self) -> list[int]:
        """Return what is counted, after its length; then the state of the policy."""
        return [len(self.counts), *self.counts, *self.table.policy.state()]

    def restore(self, state: list[int]) -> None:
        """Restore the result of `state`; labels of other functions count no longer."""
        end = 1 + state[0]
        counts = state[1:end] if state[0] == len(self.counts) else state[1 : 1 + FUNCTIONS]
        self.counts = counts + [0] * (len(self.counts) - len(counts))
        self.table.policy.restore(state[end:])

    def _adopt(self, old: Any, arms: list[int]) -> None:
        """Continue from a table of other arms: arm `k` is `arms[k]` there; -1: it is new."""
        self.table.policy.adopt(old.inner, arms)
        counts = old.counts()
        self.counts[:FUNCTIONS] = counts[:FUNCTIONS]
        for function, there in enumerate(arms[: self._functions]):
            for k in range(2 if there >= 0 else 0):
                self.counts[FUNCTIONS + 2 * function + k] = counts[FUNCTIONS + 2 * there + k]
