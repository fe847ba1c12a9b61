"""Run baselines over a log in chunks: each predicts a slot, then receives the labels that arrive.

Every baseline receives the predictions of all functions of all sites, and each label that any
learner that received the row gets.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from covey.encoding import Log
from covey.errors import ConfigError
from covey.types import Array, Baseline, BaselineOutcome, Chunk, Guess, Swift

HINDSIGHT = "best-in-hindsight"


class Contest:
    """Baselines driven in chunks; memory grows with the pending labels only."""

    def __init__(
        self,
        baselines: Iterable[Baseline],
        *,
        label_wait: int | None = None,
        receivers: Sequence[int] | None = None,
        functions: int | None = None,
    ) -> None:
        self._players = [_Player(baseline) for baseline in baselines]
        self._wait = label_wait
        self._receivers = receivers  # indices of the learners; None: all
        self._functions = functions  # rows of predictions that belong to functions
        self._pending: _Labels | None = None
        self._first = 0
        self._judged = 0
        self._function_errors: Array = np.zeros(0, np.int64)
        names = [player.baseline.name for player in self._players]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"duplicate baseline name {name!r}; names must differ")

    def add(self, log: Log) -> dict[str, Array]:
        """Let all baselines predict and learn on the next rows; return predictions by name."""
        if log.gains is not None:
            raise ConfigError(
                "baselines need predictions that are right or wrong, but [data] has a loss; remove "
                "one of them"
            )
        votes = np.asarray(log.predictions)[: self._functions].T
        labels = np.asarray(log.labels)
        chunk, is_awaited = self._chunk(votes, labels, self._delays(log))
        is_judged = labels >= 0
        predictions = {}
        for player in self._players:
            predicted = player.play(chunk, is_awaited, self._first)
            player.errors += int(np.count_nonzero((predicted != labels) & is_judged))
            predictions[player.baseline.name] = predicted
        wrong = np.count_nonzero((votes != labels[:, None]) & is_judged[:, None], axis=0)
        self._function_errors = wrong + (self._function_errors if self._first else 0)
        self._judged += int(np.count_nonzero(is_judged))
        self._first += len(labels)
        return predictions

    def outcome(self) -> dict[str, BaselineOutcome]:
        """Return the errors of each baseline and of the best single function."""
        errors = {player.baseline.name: player.errors for player in self._players}
        errors[HINDSIGHT] = int(self._function_errors.min(initial=self._judged))
        return {name: BaselineOutcome(number, self._judged) for name, number in errors.items()}

    def _delays(self, log: Log) -> Array:
        """Return the delay of each label in slots; -1: it never arrives."""
        slots = np.arange(len(log.labels))
        delays = np.zeros(len(slots), np.int64) if log.delays is None else np.asarray(log.delays)
        is_lost = (delays < 0) | (np.asarray(log.labels) < 0)
        if self._wait is not None:
            is_lost |= delays > self._wait
        if log.shown is not None:
            shown = np.asarray(log.shown) > 0
            if log.at is not None:
                is_lost |= ~shown[slots, np.asarray(log.at)]
            else:
                is_lost |= ~shown[:, self._receivers or slice(None)].any(axis=1)
        return np.where(is_lost, -1, delays)

    def _chunk(self, votes: Array, labels: Array, delays: Array) -> tuple[Chunk, Array]:
        slots = self._first + np.arange(len(labels))
        arrives = delays >= 0
        known = _Labels((slots + delays)[arrives], slots[arrives], labels[arrives], votes[arrives])
        if self._pending is not None:
            pairs = zip(self._pending, known, strict=True)
            known = _Labels(*(np.concatenate(pair) for pair in pairs))
        order = np.argsort(known.due, kind="stable")  # ties: by slot
        end = int(np.searchsorted(known.due[order], self._first + len(labels)))
        due, self._pending = known.take(order[:end]), known.take(order[end:])
        came = np.searchsorted(due.due, slots)
        return Chunk(votes, came, due.labels, due.votes, due.slots - self._first), arrives


class _Labels(NamedTuple):
    due: Array  # the slot at whose end they arrive
    slots: Array
    labels: Array
    votes: Array  # label, function -> code

    def take(self, rows: Array) -> "_Labels":
        return _Labels(*(column[rows] for column in self))


class _Player:
    """A baseline, and its predictions whose labels are pending."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.errors = 0
        self._pending: dict[int, Guess] = {}

    def play(self, chunk: Chunk, is_awaited: Array, first: int) -> Array:
        if isinstance(self.baseline, Swift):
            return self.baseline.play(chunk)
        return np.array(self._predictions(chunk, is_awaited.tolist(), first), np.int64)

    def _predictions(self, chunk: Chunk, is_awaited: list[bool], first: int) -> list[int]:
        predict, learn, pending = self.baseline.predict, self.baseline.learn, self._pending
        arriving = zip((chunk.slots + first).tolist(), chunk.labels.tolist(), strict=True)
        # The number of labels that arrive at the end of each slot.
        counts = np.diff(chunk.came, append=len(chunk.labels)).tolist()
        rows = zip(*chunk.said.T.tolist(), strict=True)
        predictions = []
        for slot, (votes, count, is_pending) in enumerate(
            zip(rows, counts, is_awaited, strict=True), first
        ):
            prediction = predict(votes)
            predictions.append(prediction.label)
            if is_pending:
                pending[slot] = prediction
            for origin, label in islice(arriving, count):
                learn(pending.pop(origin), label)
        return predictions
