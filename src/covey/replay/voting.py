"""An ensemble over the learners of a replay, replayed from their trace."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from covey.bandit.ensemble import Ensemble, Weighing
from covey.data.logs import EncodedLog, Trace, label_delays
from covey.replay.outcome import EnsembleOutcome, LearnerOutcome
from covey.types import Phase

MOST_POINTS = 256  # an even number, so that halving keeps the points evenly apart
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
        self._pending: dict[int, list[tuple[list[int], int, str]]] = {}
        self._slot = 0
        self._judged = self._errors = self._exploit_errors = 0
        self._is_base_seen = False
        self._visits: Counter[str] = Counter()
        self._slots_per_point = 1
        self._history: list[list[float]] = []

    def add(self, played: Trace, log: EncodedLog) -> None:
        """Let the ensemble answer and learn on the rows that its learners decided."""
        labels = np.asarray(log.labels)
        shape = (len(labels), len(self._ensemble.learners))
        votes = played.prediction.reshape(shape)
        # All learners receive the same rows, so they are in the same cell. Cell numbers may differ
        # between chunks, names do not.
        names = played.names["cell"]
        cells = [str(names[number]) for number in played.cell.reshape(shape)[:, 0].tolist()]
        delays = label_delays(log, self._wait).tolist()
        rows = zip(votes.tolist(), labels.tolist(), cells, delays, strict=True)
        answers = np.fromiter((self._play(*row) for row in rows), np.int64, len(labels))
        is_wrong = (answers != labels) & (labels >= 0)
        is_exploited = (played.phase.reshape(shape) == Phase.EXPLOIT).all(axis=1)
        self._judged += int(np.count_nonzero(labels >= 0))
        self._errors += int(np.count_nonzero(is_wrong))
        self._exploit_errors += int(np.count_nonzero(is_wrong & is_exploited))
        self._is_base_seen |= bool((labels == 0).any() or (votes == 0).any())
        self._visits.update(cells)

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
        members = [learner for learner in learners if learner.name in self._ensemble.learners]
        best = min(members, key=lambda member: member.errors)
        cells = sorted(self._visits) if self._is_local else [EVERYWHERE]
        return EnsembleOutcome(
            title=self._settings.title,
            judged=self._judged,
            errors=self._errors,
            exploit_errors=self._exploit_errors,
            best_member=best.name,
            best_member_errors=best.errors,
            weights={cell: self._ensemble.weights(cell) for cell in cells},
            mean_weights=self._mean(),
            slots_per_point=self._slots_per_point,
            history=self._history,
        )

    def _play(self, votes: list[int], label: int, cell: str, delay: int) -> int:
        answer = self._ensemble.elect(votes, cell)
        self._slot += 1
        if delay > 0:
            self._pending.setdefault(self._slot + delay, []).append((votes, label, cell))
        for late in self._pending.pop(self._slot, ()):
            self._ensemble.move(*late)
        if delay == 0:
            self._ensemble.move(votes, label, cell)
        if not self._is_local and self._slot % self._slots_per_point == 0:
            self._note()
        return answer

    def _note(self) -> None:
        """Record the weights; when all points are used, keep every second one."""
        if len(self._history) < MOST_POINTS:
            self._history.append([*self._ensemble.weights().values()])
            return
        self._history = self._history[1::2]
        self._slots_per_point *= 2

    def _mean(self) -> dict[str, float]:
        visits = self._visits if self._is_local else {EVERYWHERE: self._slot}
        total = np.zeros(len(self._ensemble.learners))
        for cell, slots in visits.items():
            total += slots * np.array([*self._ensemble.weights(cell).values()])
        return dict(zip(self._ensemble.learners, (total / self._slot).tolist(), strict=True))
