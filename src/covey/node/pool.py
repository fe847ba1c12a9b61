"""Decide own rows by the labels of a site and of the sources that it pools."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from covey.bandit.learner import Learner
from covey.kernel import Table
from covey.node.earned import is_audit
from covey.node.trust import SourceStatistics, with_added
from covey.types import Context


class PoolingLearner:
    """The decisions of a learner, with the statistics of pooled sources added for each of them.

    The learner's counters stay its own. Rows of a batch are decided one by one while a source is
    pooled; else the learner decides them all at once.
    """

    def __init__(self, learner: Learner, sources: SourceStatistics) -> None:
        self._learner = learner
        self._sources = sources

    def _added(self, slot: int) -> Sequence[Table]:
        if self._learner.is_supervised and is_audit(slot):
            return ()
        return self._sources.added(self._learner.space)

    def decide(self, context: Context, slot: int, closed: bytes | None = None) -> int:
        """Decide for an own row: see `Learner.decide`."""
        learner, others = self._learner, self._added(slot)
        if not others:
            return learner.decide(context, slot, closed)
        row = learner.table.locate(context, slot)
        return with_added(learner.table, row, others, lambda: learner.decide(context, slot, closed))

    def decide_rows(
        self, contexts: np.ndarray, slot: int, codes: np.ndarray, closed: bytes | None = None
    ) -> int:
        """Decide for consecutive slots: see `Learner.decide_rows`."""
        if not self._sources.added(self._learner.space):
            return self._learner.decide_rows(contexts, slot, codes, closed)
        for k, context in enumerate(contexts.tolist()):
            codes[k] = self.decide(tuple(context), slot + k, closed)
            if codes[k] < 0:
                return k
        return len(codes)

    def peers_to_query(self, row: int, slot: int, closed: bytes | None = None) -> list[int]:
        """Return the peers whose report or estimate a row needs."""
        learner = self._learner
        return with_added(
            learner.table,
            row,
            self._added(slot),
            lambda: learner.peers_to_query(row, slot, closed),
        )

    def resume(self, row: int, context: Context, slot: int, closed: bytes | None = None) -> int:
        """Continue after the reports: see `Learner.resume`."""
        learner = self._learner
        return with_added(
            learner.table,
            row,
            self._added(slot),
            lambda: learner.resume(row, context, slot, closed),
        )

    def consult(
        self,
        row: int,
        context: Context,
        estimates: Mapping[int, tuple[float, int]],
        closed: bytes | None = None,
    ) -> int:
        """Decide without labels of own instances: see `Learner.consult`."""
        learner, added = self._learner, self._sources.added(self._learner.space)
        return with_added(
            learner.table, row, added, lambda: learner.consult(row, context, estimates, closed)
        )

    def __getattr__(self, name: str) -> Any:
        """Return what pooled sources do not change."""
        return getattr(self._learner, name)
