"""Totals of a replay: errors, costs, phases and arms per learner, also over time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from covey.config import Site
from covey.encoding import Log
from covey.spaces import space_of
from covey.traces import Trace
from covey.types import BY_CONTEXT, CellView, Label, LearnerOutcome, Outcome, Phase, Timeline

MOST_BUCKETS = 256


class Tally:
    """Sums over the chunks of a replay; its memory does not grow with the log."""

    def __init__(self, sites: Sequence[Site], unit: int = 1) -> None:
        self._sites = sites
        self._unit = unit
        self._functions = [name for site in sites for name in site.functions]
        arms = len(self._functions) + 2 * len(sites)
        self._learners = [_Learner(arms, has_candidates=len(s.spaces) > 1) for s in sites]
        # The owner of each function; answers from memory have none.
        owners = [index for index, site in enumerate(sites) for _ in site.functions]
        self._owners = np.array(owners + [-1] * len(sites))
        self._wrong = np.zeros(len(self._functions))
        self._slots = self._judged = 0

    def add(self, together: Trace, alone: Trace) -> None:
        """Add the same rows, replayed with peers and without."""
        for index, learner in enumerate(self._learners):
            rows = together.learner == index
            learner.add(together, rows)
            is_asked = together.arm[rows] >= len(self._functions)
            is_own = self._owners[together.function[rows]] == index
            learner.stood_in += int(np.count_nonzero(is_asked & is_own))
            correct = alone.correct[alone.learner == index]
            learner.alone_errors += float(_errors(correct).sum())

    def add_functions(self, log: Log) -> None:
        """Add the errors that every function would have made."""
        labels = np.asarray(log.labels)
        judged = labels >= 0
        self._slots += len(labels)
        self._judged += int(np.count_nonzero(judged))
        if log.gains is not None:
            self._wrong += (1.0 - np.asarray(log.gains)[:, judged] / self._unit).sum(axis=1)
            return
        for k, row in enumerate(np.asarray(log.predictions)[: len(self._wrong)]):
            self._wrong[k] += np.count_nonzero((row != labels) & judged)

    def outcome(
        self,
        context_names: list[str],
        policy: str,
        cells: Sequence[list[CellView]],
        blind: Sequence[int] | None = None,
    ) -> Outcome:
        """Return the totals as one record."""
        learners = [site.name for site in self._sites]
        arms = [*self._functions, *learners, *(name + BY_CONTEXT for name in learners)]
        return Outcome(
            slots=self._slots,
            dimension=len(context_names),
            context_names=context_names,
            policy=policy,
            learners=[
                learner.outcome(site, arms, views, decisions)
                for learner, site, views, decisions in zip(
                    self._learners, self._sites, cells, blind or [0] * len(cells), strict=True
                )
            ],
            functions={
                name: 100.0 * float(wrong) / self._judged if self._judged else None
                for name, wrong in zip(self._functions, self._wrong, strict=True)
            },
        )


class _Learner:
    def __init__(self, arms: int, *, has_candidates: bool) -> None:
        self.alone_errors = 0.0
        self.stood_in = 0
        self._has_candidates = has_candidates
        self._candidates: Counter[str] = Counter()
        self._chosen = np.zeros(arms, np.int64)
        self._cost = 0.0
        self._slots_per_bucket = 1
        # Rows: slots, judged, errors, train, explore.
        self._buckets = np.zeros((5, MOST_BUCKETS))

    def add(self, trace: Trace, rows: np.ndarray) -> None:
        slot, phase, correct = trace.slot[rows], trace.phase[rows], trace.correct[rows]
        if not len(slot):
            return
        self._chosen += np.bincount(trace.arm[rows], minlength=len(self._chosen))
        self._cost += float(trace.cost[rows].sum())
        if self._has_candidates:
            self._count_candidates(trace.names["cell"], trace.cell[rows])
        while (slot[-1] - 1) // self._slots_per_bucket >= MOST_BUCKETS:
            self._widen()
        bucket = (slot - 1) // self._slots_per_bucket
        counted = (
            np.ones(len(slot)),
            correct >= 0,
            _errors(correct),
            phase == Phase.TRAIN,
            phase == Phase.EXPLORE,
        )
        for row, weights in enumerate(counted):
            self._buckets[row] += np.bincount(bucket, weights, minlength=MOST_BUCKETS)

    def _count_candidates(self, names: Sequence[Label], cells: np.ndarray) -> None:
        for cell, times in enumerate(np.bincount(cells).tolist()):
            if times:
                self._candidates[space_of(str(names[cell]))] += times

    def _widen(self) -> None:
        pairs = self._buckets.reshape(5, MOST_BUCKETS // 2, 2).sum(axis=2)
        self._buckets = np.concatenate([pairs, np.zeros_like(pairs)], axis=1)
        self._slots_per_bucket *= 2

    def outcome(
        self, site: Site, arms: list[str], cells: list[CellView], blind: int
    ) -> LearnerOutcome:
        slots, judged, errors, train, explore = map(_plain, self._buckets.sum(axis=1))
        return LearnerOutcome(
            name=site.name,
            functions=list(site.functions),
            slots=slots,
            judged=judged,
            errors=errors,
            train=train,
            explore=explore,
            exploit=slots - train - explore,
            cost_total=self._cost,
            arms={arms[k]: int(n) for k, n in enumerate(self._chosen) if n},
            alone_errors=_plain(self.alone_errors),
            blind=blind,
            stood_in=self.stood_in,
            candidates=dict(self._candidates.most_common()),
            timeline=self._timeline(),
            cells=cells,
        )

    def _timeline(self) -> Timeline:
        used = np.flatnonzero(self._buckets[0])
        rows = self._buckets[:, : used[-1] + 1 if len(used) else 0]
        return Timeline(self._slots_per_bucket, *([_plain(n) for n in row] for row in rows))


def _errors(correct: np.ndarray) -> np.ndarray:
    """Return the loss of each answer; 0 where the log has no label."""
    return np.where(correct < 0, 0, 1 - correct)


def _plain(number: float) -> Any:
    """Return a sum as an int if it is whole, as all sums of 0/1 losses are."""
    return int(number) if float(number).is_integer() else float(number)
