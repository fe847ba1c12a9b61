"""An ensemble over the learners of a replay, replayed from their trace."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from covey.bandit.ensemble import Cells, Ensemble, Weighing
from covey.data.logs import EncodedLog, Trace, label_delays
from covey.replay.outcome import EnsembleNumbers, EnsembleOutcome, LearnerOutcome, percent
from covey.types import Phase

EVERYWHERE = "all"


class EnsembleReplay:
    """An ensemble of all learners that receive rows, driven in chunks.

    In a slot it answers first; at the slot's end it learns from the labels that arrive then, those
    of older slots first. It never receives labels that are hidden or later than `label_wait`.
    """

    def __init__(
        self, settings: Weighing, learners: Sequence[str], *, label_wait: int | None
    ) -> None:
        self._settings = settings
        # The base class already has code 0: its label is encoded first.
        options = msgspec.to_builtins(msgspec.structs.replace(settings, base=None))
        self._ensemble = Ensemble(learners, **options)
        self._is_local = settings.weights == "cell"
        self._wait = label_wait
        self._pending: dict[int, list[tuple[list[int], int, Cells]]] = {}
        self._slot = 0
        self._judged = self._errors = self._exploit_errors = 0
        self._is_base_seen = False
        self._visits: list[Counter[str]] = [Counter() for _ in learners]  # of each, by cell

    def add(self, played: Trace, log: EncodedLog) -> None:
        """Let the ensemble answer and learn on the rows that its learners decided."""
        labels = np.asarray(log.labels)
        shape = (len(labels), len(self._ensemble.learners))
        votes = played.prediction.reshape(shape)
        # Cell numbers may differ between chunks, names do not.
        numbers, names = played.cell.reshape(shape), [*map(str, played.names["cell"])]
        columns = [[names[number] for number in column] for column in numbers.T.tolist()]
        cells: list[Any] = columns[0]
        if self._is_local and (numbers != numbers[:, :1]).any():
            by_row = zip(*columns, strict=True)
            cells = [dict(zip(self._ensemble.learners, row, strict=True)) for row in by_row]
        delays = label_delays(log, self._wait).tolist()
        rows = zip(votes.tolist(), labels.tolist(), cells, delays, strict=True)
        answers = np.fromiter((self._play(*row) for row in rows), np.int64, len(labels))
        is_wrong = (answers != labels) & (labels >= 0)
        is_exploited = (played.phase.reshape(shape) == Phase.EXPLOIT).all(axis=1)
        self._judged += int(np.count_nonzero(labels >= 0))
        self._errors += int(np.count_nonzero(is_wrong))
        self._exploit_errors += int(np.count_nonzero(is_wrong & is_exploited))
        self._is_base_seen |= bool((labels == 0).any() or (votes == 0).any())
        for visits, column in zip(self._visits, columns, strict=True):
            visits.update(column)

    def errors(self) -> dict[str, float]:
        """Return the shares of errors: of all slots, and of those where all members exploited."""
        judged = max(1, self._judged)
        return {"all": self._errors / judged, "exploit": self._exploit_errors / judged}

    def outcome(self, learners: Iterable[LearnerOutcome]) -> EnsembleOutcome:
        """Return the ensemble's result and its best member."""
        if self._settings.base is not None and not self._is_base_seen:
            warnings.warn(
                f"[ensemble] base is {self._settings.base!r}, which is not a label of the log",
                stacklevel=2,
            )
        members = {learner.name: learner.numbers for learner in learners}
        best = min(self._ensemble.learners, key=lambda name: members[name].errors or 0)
        cells = sorted(set().union(*self._visits)) if self._is_local else [EVERYWHERE]
        judged = self._judged
        return EnsembleOutcome(
            EnsembleNumbers(
                title=self._settings.title,
                errors=self._errors if judged else None,
                error_percent=percent(self._errors, judged),
                exploit_errors=self._exploit_errors if judged else None,
                exploit_error_percent=percent(self._exploit_errors, judged),
                best_member=best,
                best_member_error_percent=percent(members[best].errors, judged),
                weights={cell: self._weights_in(cell) for cell in cells},
            ),
            mean_weights=self._mean(),
        )

    def _weights_in(self, cell: str) -> dict[str, float]:
        """Return the weights of the learners that have been in a cell."""
        weights = self._ensemble.weights(cell).items()
        visited = [not self._is_local or cell in visits for visits in self._visits]
        return {
            name: weight for (name, weight), is_in in zip(weights, visited, strict=True) if is_in
        }

    def _play(self, votes: list[int], label: int, cell: Cells, delay: int) -> int:
        answer = self._ensemble.elect(votes, cell)
        self._slot += 1
        if delay >= 0:
            self._pending.setdefault(self._slot + delay, []).append((votes, label, cell))
        for late in self._pending.pop(self._slot, ()):
            self._ensemble.move(*late)
        return answer

    def _mean(self) -> dict[str, float]:
        learners = self._ensemble.learners
        every = self._visits if self._is_local else [{EVERYWHERE: self._slot}] * len(learners)
        means = {}
        for name, visits in zip(learners, every, strict=True):
            weights = (times * self._ensemble.weights(cell)[name] for cell, times in visits.items())
            means[name] = sum(weights) / self._slot
        return means
