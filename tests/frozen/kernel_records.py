"""What the frozen kernel is told: the records of version 0.1.0, and its errors."""

import dataclasses
from typing import NamedTuple

Report = tuple[int, float, float]  # arrivals in a cell, and bounds of the best accuracy there


class ContextError(Exception):
    """A context that does not fit."""


class LimitError(Exception):
    """More cells than are allowed."""


class Cell(NamedTuple):
    """A region of a context space: a level of a partition, and integer coordinates in it."""

    level: int
    coordinates: tuple[int, ...]


class Level(NamedTuple):
    """One resolution of a partition: `side` slices per dimension."""

    side: int
    split_at: float  # own arrivals from which a cell of this level is split; inf = never


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reward:
    """What an arm is worth: a * accuracy ** q - b * cost * (1 + sum of c * x over the context)."""

    accuracy: float = 1.0
    power: float = 1.0
    cost: float = 1.0
    context: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index:
    """A choice by what arms may be worth at most, in place of thresholds."""

    scale: float = 1.0
    is_recent: bool = False
    bias: tuple[float, ...] = ()
    is_balanced: bool = False
    alarm: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elimination:
    """Thresholds only for arms that may still be the best."""

    confidence: float
    bias: float
    most_functions: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """What one learner's table is told: its arms, its partition, its reading of the rule."""

    dimension: int
    functions: int
    costs: tuple[float, ...]
    levels: tuple[Level, ...]
    most_cells: int
    trains_first: bool
    explores_to_help: bool
    counted: int
    is_pending: bool
    seed: int | None
    inherits: bool = False
    window: int = 0
    discount: float = 1.0
    unit: int = 1
    rewards: tuple[Reward, ...] = ()
    is_supervised: bool = True
    context_peers: int = 0
    learns_costs: bool = False
    index: Index | None = None
    elimination: Elimination | None = None
    remembers: bool = False
    floors_training: bool = False
    asked_only: bool = False


class Seat(NamedTuple):
    """A learner's place in a replay."""

    behind: tuple[int, ...]
    cost_columns: tuple[int, ...]
    receives: bool = True
    stream: int = 0
    patience: int = -1
    lies: bool = False


class Log(NamedTuple):
    """Rows of a log as the kernel takes them."""

    contexts: memoryview
    predictions: memoryview
    labels: memoryview
    at: memoryview | None = None
    delays: memoryview | None = None
    shown: memoryview | None = None
    gains: memoryview | None = None
    busy: memoryview | None = None
    costs: memoryview | None = None
    batches: memoryview | None = None  # newer than the frozen kernel, which does not read it
    slots: memoryview | None = None  # the same


class Decided(NamedTuple):
    """Where the kernel writes: one entry per decision, by slot and then by learner."""

    cell: memoryview
    phase: memoryview
    arm: memoryview
    function: memoryview
    correct: memoryview
    paid: memoryview
