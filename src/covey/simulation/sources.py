"""Instances that covey does not draw: from a class of the user's, or from a log."""

import math
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey import toml
from covey.bandit.partitions import slices_for
from covey.bandit.policies import Auto
from covey.config import Data, LearnerTable, Tables, assemble
from covey.data.tables import open_log
from covey.errors import ConfigError, DataError, place_of
from covey.replay.encoding import Encoder
from covey.replay.replay import chunks_of, used_columns
from covey.simulation.environment import Environment, RecordedLog
from covey.types import Array

_OWN_SLOTS = 1_024  # that a class of the user's draws at a time, whatever the chunks


class OwnSource:
    """The user's class or function; what it returns is checked."""

    def __init__(self, environment: Environment, rng: np.random.Generator, where: str) -> None:
        """Call it; `where` names the environment and the class in messages."""
        self._where = where
        assert environment.entry is not None
        entry = toml.imported(environment.entry, where=f"environment {environment.name!r}:")
        made = self._call(entry, rng=rng, **environment.options)
        self._draw = getattr(made, "draw", made)
        if not callable(self._draw):
            raise ConfigError(f"{where} returned {made!r}, which has no method draw")
        streams, functions = environment.drawn_streams, sum(environment.counts)
        # Name -> shape, and the axis of the streams.
        self._shapes = {
            "contexts": ((_OWN_SLOTS, streams, environment.dimension), 1),
            "accuracies": ((streams, functions, _OWN_SLOTS), 0),
            "answers": ((streams, functions, _OWN_SLOTS), 0),
        }
        self._left: list[Array] = []  # drawn, but not used yet; slots are the last axis
        self._slots = 0  # drawn

    def draw(self, first_slot: int, slots: int) -> tuple[Array, Array, Array | None]:
        blocks = [self._left] if self._left else []
        while self._slots < first_slot + slots - 1:
            blocks.append(self._block())
            self._slots += _OWN_SLOTS
        if len(set(map(len, blocks))) > 1:
            raise DataError(f"{self._where} gives answers for some slots only")
        whole = [np.concatenate(parts, axis=-1) for parts in zip(*blocks, strict=True)]
        self._left = [part[..., slots:] for part in whole]
        points, accuracy, *right = (part[..., :slots] for part in whole)
        points = np.ascontiguousarray(np.moveaxis(points, -1, 0))
        answers = right[0].astype(np.int32, order="C") if right else None
        return points, accuracy.astype(np.float32, order="C"), answers

    def _block(self) -> list[Array]:
        given = self._call(self._draw, self._slots + 1, _OWN_SLOTS)
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise DataError(
                f"{self._where} drew {type(given).__name__}; it must return a tuple of contexts, "
                "accuracies and, if it draws them, answers"
            )
        points, *others = map(self._checked, given, self._shapes)
        return [np.moveaxis(points, 0, -1), *others]

    def _checked(self, given: Any, what: str) -> Array:
        """Return an array of numbers from 0 to 1; a single stream needs no axis."""
        try:
            array = np.array(given, np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{self._where} gives {what} that are not numbers") from None
        full, axis = self._shapes[what]
        short = full[:axis] + full[axis + 1 :] if full[axis] == 1 else full
        if array.shape not in (full, short):
            raise DataError(
                f"{self._where} gives {what} of shape {array.shape}; it must be {short}"
            )
        is_valid, wanted = (array >= 0) & (array <= 1), "lie from 0 to 1"
        if what == "answers":
            is_valid, wanted = (array == 0) | (array == 1), "be 0 or 1"
        if not is_valid.all():
            value = array[~is_valid][0]
            raise DataError(f"{self._where} gives {value} in {what}; they must {wanted}")
        return array.reshape(full)

    def _call(self, call: Any, *args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except Exception as error:
            raised = f"{type(error).__name__}: {error} ({place_of(error)})"
            raise ConfigError(f"{self._where} raised {raised}") from error


class LogRows(NamedTuple):
    """A log in memory."""

    points: Array  # row, dimension
    right: Array  # function, row -> 1 where the prediction is the label
    cell: Array  # row -> cell
    accuracy: Array  # function, cell -> share of right predictions, over the whole log
    block: int  # rows


@lru_cache(maxsize=4)
def recorded_rows(packed: bytes, version: tuple[int, int] | None) -> LogRows:
    """Return the rows of a log, its table encoded for the cache; a changed file is read again."""
    log = msgspec.json.decode(packed, type=RecordedLog)
    listed = enumerate(log.functions, 1)
    members = [LearnerTable(name=f"learner-{k}", functions=[*own]) for k, own in listed]
    setup = assemble(Tables(Auto(), members, Data(label=log.label, context=log.context)))
    reader = open_log(Path(log.path), used_columns(setup))
    encoder = Encoder(setup, is_typed=reader.is_typed)
    points, right = [np.empty((0, len(log.context)))], []
    for chunk in chunks_of(setup, reader, encoder):
        points.append(np.asarray(chunk.contexts).reshape(len(chunk.labels), -1))
        right.append((np.asarray(chunk.predictions) == chunk.labels).astype(np.int8))
    places = np.concatenate(points)
    rows, dimension = places.shape
    if not rows:
        raise DataError(f"{log.path} has no rows; a log needs at least one")
    slices = log.slices or slices_for(rows, alpha=1.0, dimension=dimension)
    corners = np.minimum(places * slices, slices - 1).astype(np.int64)
    _, cell = np.unique(corners, axis=0, return_inverse=True)
    cell, answers = cell.reshape(-1), np.concatenate(right, axis=1)
    shares = np.array([np.bincount(cell, own) for own in answers]) / np.bincount(cell)
    return LogRows(places, answers, cell, shares, log.block_slots or math.ceil(rows**0.5))


class LogSource:
    """Blocks of consecutive rows of a log, each from a random row on; the first follows the last.

    So errors depend on each other as in the log, within a block, and every row is equally likely.
    """

    def __init__(self, rows: LogRows, rng: np.random.Generator, *, streams: int) -> None:
        self._rows = rows
        self._rng = rng
        self._block = -1  # the latest one
        self._starts = np.empty((0, streams), np.int64)  # of the blocks in the latest slots

    def draw(self, first_slot: int, slots: int) -> tuple[Array, Array, Array]:
        rows = self._rows
        block, offset = np.divmod(np.arange(first_slot - 1, first_slot - 1 + slots), rows.block)
        fresh = (int(block[-1]) - self._block, self._starts.shape[1])
        starts = self._rng.integers(0, len(rows.points), fresh)
        self._block, self._starts = int(block[-1]), np.concatenate([self._starts[-1:], starts])
        index = self._starts[block - self._block - 1] + offset[:, None]  # slot, stream
        index %= len(rows.points)
        accuracy = rows.accuracy[:, rows.cell[index.T]].astype(np.float32)
        right = rows.right[:, index.T].astype(np.int32)
        return rows.points[index], *(np.moveaxis(part, 0, 1).copy() for part in (accuracy, right))
