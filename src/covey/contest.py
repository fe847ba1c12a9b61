"""Baselines on a log, chunk after chunk: each answers a slot, then gets the labels that come.

All that was said is known to every baseline, whoever owns the functions; a label is known to them
if it is to any learner that received the row.
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
    """Baselines that are played chunk by chunk; memory grows with the labels under way only."""

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
        self._receivers = receivers  # places of the learners; None: all of them
        self._functions = functions  # rows of predictions; those beyond are no function's
        self._open: _Labels | None = None  # under way
        self._first = 0
        self._judged = 0
        self._function_errors: Array = np.zeros(0, np.int64)
        names = [player.baseline.name for player in self._players]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two baselines are called {name!r}; names must differ")

    def add(self, log: Log) -> dict[str, Array]:
        """Let all baselines answer and learn on the next rows; return their answers by name."""
        if log.gains is not None:
            raise ConfigError(
                "baselines need answers that are right or wrong, but [data] has a loss; leave one "
                "of them out"
            )
        said = np.asarray(log.predictions)[: self._functions].T
        labels = np.asarray(log.labels)
        chunk, is_awaited = self._chunk(said, labels, self._delays(log))
        is_judged = labels >= 0
        answers = {}
        for player in self._players:
            given = player.play(chunk, is_awaited, self._first)
            player.errors += int(np.count_nonzero((given != labels) & is_judged))
            answers[player.baseline.name] = given
        wrong = np.count_nonzero((said != labels[:, None]) & is_judged[:, None], axis=0)
        self._function_errors = wrong + (self._function_errors if self._first else 0)
        self._judged += int(np.count_nonzero(is_judged))
        self._first += len(labels)
        return answers

    def outcome(self) -> dict[str, BaselineOutcome]:
        """Return what each has come to, and what the best single function would have."""
        errors = {player.baseline.name: player.errors for player in self._players}
        errors[HINDSIGHT] = int(self._function_errors.min(initial=self._judged))
        return {name: BaselineOutcome(number, self._judged) for name, number in errors.items()}

    def _delays(self, log: Log) -> Array:
        """Return after how many slots each label comes; -1 is never."""
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

    def _chunk(self, said: Array, labels: Array, delays: Array) -> tuple[Chunk, Array]:
        slots = self._first + np.arange(len(labels))
        comes = delays >= 0
        new = _Labels((slots + delays)[comes], slots[comes], labels[comes], said[comes])
        known = new if self._open is None else self._open.joined(new)
        order = np.argsort(known.due, kind="stable")  # by slot where they come together
        end = int(np.searchsorted(known.due[order], self._first + len(labels)))
        here, self._open = known.take(order[:end]), known.take(order[end:])
        came = np.searchsorted(here.due, slots)
        return Chunk(said, came, here.labels, here.said, here.slots - self._first), comes


class _Labels(NamedTuple):
    due: Array  # at the end of which slot they come
    slots: Array
    labels: Array
    said: Array  # label, function -> code

    def joined(self, more: "_Labels") -> "_Labels":
        return _Labels(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))

    def take(self, places: Array) -> "_Labels":
        return _Labels(*(column[places] for column in self))


class _Player:
    """A baseline, and the guesses whose labels are under way."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.errors = 0
        self._open: dict[int, Guess] = {}

    def play(self, chunk: Chunk, is_awaited: Array, first: int) -> Array:
        if isinstance(self.baseline, Swift):
            return self.baseline.play(chunk)
        return np.array(self._answers(chunk, is_awaited.tolist(), first), np.int64)

    def _answers(self, chunk: Chunk, is_awaited: list[bool], first: int) -> list[int]:
        predict, learn, held = self.baseline.predict, self.baseline.learn, self._open
        coming = zip((chunk.slots + first).tolist(), chunk.labels.tolist(), strict=True)
        # How many labels come at the end of each slot.
        numbers = np.diff(chunk.came, append=len(chunk.labels)).tolist()
        rows = zip(*chunk.said.T.tolist(), strict=True)
        answers = []
        slots = enumerate(zip(rows, numbers, is_awaited, strict=True), first)
        for slot, (said, number, is_open) in slots:
            guess = predict(said)
            answers.append(guess.label)
            if is_open:
                held[slot] = guess
            for origin, label in islice(coming, number):
                learn(held.pop(origin), label)
        return answers
