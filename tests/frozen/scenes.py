"""Networks of learners as a kernel is told of them, generated from seeds, and their streams."""

import dataclasses
import math
from typing import Any

import numpy as np

from frozen.kernel_records import Decided, Elimination, Index, Level, Log, Reward, Rule, Seat

PRESETS = (
    "auto",
    "cos",
    "dcza",
    "share-ucb",
    "discounted",
    "multi-resolution",
    "cos-ce",
    "balance",
)
PHASES = ("cos", "dcza", "cos-ce")
LAYERS = ("auto", "multi-resolution")
WHOLE = 1_000_000  # what a right answer is worth where answers are right in part
SPACES = ((0,), (1,), (0, 1))


@dataclasses.dataclass
class Scene:
    """A network, what it is told before the stream begins, and the stream."""

    preset: str
    rules: list[list[Rule]]  # per learner and space
    own: list[tuple[int, ...]]  # per learner, its own spaces
    seats: list[Seat]
    spaces: tuple[tuple[int, ...], ...]
    scales: list[float]
    powers: list[float]
    hidden_from: int
    label_wait: int | None
    first_slot: int
    labels_before: int  # that every arm has in the known cells
    log: Log
    decisions: int

    @property
    def unit(self) -> int:
        """What a right answer is worth."""
        return self.rules[0][0].unit

    def room(self) -> Decided:
        """Return where a kernel can write its trace."""
        kinds = (np.int32, np.int8, np.int32, np.int32, np.int32)
        columns = [np.full(self.decisions, -9, kind).data for kind in kinds]
        paid = np.full(0 if self.log.costs is None else self.decisions, -9, np.int32).data
        return Decided(*columns, paid)

    def fresh_log(self) -> Log:
        """Return the stream with predictions of its own, among which kernels write."""
        return self.log._replace(predictions=np.array(self.log.predictions).data)


def scene(preset: str, seed: int) -> Scene:
    """Return the network of a preset and a seed."""
    rng = np.random.default_rng([seed, PRESETS.index(preset)])
    is_phased = preset in PHASES
    learners = int(rng.integers(1, 5))
    spaces = SPACES if rng.random() < 0.4 else ((), (0,), (0, 1))[int(rng.integers(0, 3)) :][:1]
    functions = rng.integers(1, 4, learners).tolist()
    peers = [_others(rng, learners, k) for k in range(learners)]
    readers = [_others(rng, learners, k) if is_phased else [] for k in range(learners)]
    if rng.random() < 0.5:
        readers = [[] for _ in readers]
    unit = _unit(preset, rng) if not any(readers) else 1
    has_costs = rng.random() < 0.3
    common = _common(preset, rng, unit)
    own = [_own_spaces(rng, len(spaces), is_phased) for _ in range(learners)]
    rules, seats = [], []
    for k in range(learners):
        behind = (-1,) * functions[k] + tuple(peers[k]) + tuple(readers[k])
        columns = (
            tuple(rng.integers(-1, 2, len(behind)).tolist()) if has_costs else (-1,) * len(behind)
        )
        told = {
            **common,
            "functions": functions[k],
            "costs": tuple(rng.choice([0.0, 0.0, 0.05, 0.3, 1.0], len(behind)).tolist()),
            "is_supervised": bool(rng.random() < 0.85),
            "context_peers": len(readers[k]),
            "learns_costs": any(c >= 0 for c in columns) or preset == "balance",
            "remembers": any(k in asked for asked in readers),
            "seed": int(rng.integers(0, 2**40)) if common["seed"] else None,
        }
        rewards = _rewards(rng, len(behind)) if rng.random() < 0.2 else ()
        rules.append([_rule(told, rewards, len(space), preset) for space in spaces])
        seats.append(_seat(rng, behind, columns))
    seats[0] = seats[0]._replace(receives=True)
    stream = _Stream(rng, rules, seats, unit, has_costs=has_costs, has_readers=any(readers))
    is_index = not is_phased
    return Scene(
        preset=preset,
        rules=rules,
        own=own,
        seats=seats,
        spaces=spaces,
        scales=[0.0] * 3 if is_index else rng.choice([0.0, 0.05, 0.3, 1.0, 2.0], 3).tolist(),
        powers=[0.0] * 3 if is_index else rng.choice([0.0, 0.125, 0.5, 0.9], 3).tolist(),
        hidden_from=int(rng.integers(1, learners + 1)),
        label_wait=[None, None, 0, 3][int(rng.integers(0, 4))],
        first_slot=[1, 1, 2**31 - 40, 2**33][int(rng.integers(0, 4))],
        labels_before=[0, 0, 0, 2**31 - 5][int(rng.integers(0, 4))],
        log=stream.log(max(map(len, spaces)) if spaces != SPACES else 2),
        decisions=stream.decisions,
    )


def plain_scene(preset: str, seed: int) -> Scene:
    """Return a network whose learners all see each instance and its label at once."""
    rng = np.random.default_rng([seed, PRESETS.index(preset), 1])
    learners = int(rng.integers(2, 5))
    dimension = int(rng.integers(1, 3))
    common = _common(preset, rng, 1)
    common["side"] = [common["side"], 80, 5_000][int(rng.integers(0, 3))]
    rules, seats = [], []
    for k in range(learners):
        functions = int(rng.integers(1, 4))
        behind = (-1,) * functions + tuple(_others(rng, learners, k))
        told = {
            **common,
            "functions": functions,
            "costs": tuple(rng.choice([0.0, 0.05, 0.3], len(behind)).tolist()),
            "learns_costs": preset == "balance",
            "seed": int(rng.integers(0, 2**40)) if common["seed"] else None,
        }
        rules.append([_rule(told, (), dimension, preset)])
        seats.append(_seat(rng, behind, (-1,) * len(behind))._replace(receives=True))
    stream = _Stream(rng, rules, seats, 1, has_costs=False, has_readers=False)
    log = stream.log(dimension)
    options = dict.fromkeys(("at", "delays", "shown", "gains", "busy", "costs"))
    is_index = preset not in PHASES
    return Scene(
        preset=preset,
        rules=rules,
        own=[(0,)] * learners,
        seats=seats,
        spaces=(tuple(range(dimension)),),
        scales=[0.0] * 3 if is_index else rng.choice([0.0, 0.05, 0.3, 1.0], 3).tolist(),
        powers=[0.0] * 3 if is_index else rng.choice([0.0, 0.125, 0.5], 3).tolist(),
        hidden_from=1,
        label_wait=None,
        first_slot=[1, 2**31 - 40, 2**33][int(rng.integers(0, 3))],
        labels_before=[0, 2**31 - 5][int(rng.integers(0, 2))],
        log=log._replace(labels=np.maximum(log.labels, 0).data, **options),
        decisions=stream.slots * learners,
    )


def _others(rng: np.random.Generator, count: int, place: int) -> list[int]:
    return [k for k in range(count) if k != place and rng.random() < 0.7]


def _own_spaces(rng: np.random.Generator, count: int, is_phased: bool) -> tuple[int, ...]:
    most = int(rng.integers(1, count + 1)) if is_phased else 1
    return tuple(rng.permutation(count)[:most].tolist())


def _unit(preset: str, rng: np.random.Generator) -> int:
    # With these two, 0.1.0 served function -1 once a graded label of a peer had come.
    is_graded = preset not in ("share-ucb", "balance") and rng.random() < 0.35
    return WHOLE if is_graded else 1


def _common(preset: str, rng: np.random.Generator, unit: int) -> dict[str, Any]:
    """Return what all tables of a network have in common."""
    told: dict[str, Any] = {
        "most_cells": 5_000_000,
        "trains_first": bool(rng.integers(0, 2)),
        "explores_to_help": bool(rng.integers(0, 2)),
        "counted": int(rng.integers(0, 3)),
        "is_pending": bool(rng.integers(0, 2)),
        "seed": bool(rng.random() < 0.25),
        "unit": unit,
        "floors_training": bool(rng.random() < 0.3),
        "asked_only": bool(rng.random() < 0.3),
        "inherits": bool(rng.integers(0, 2)),
        "side": int(rng.integers(1, 6)),
        "split": (float(rng.choice([0.5, 2.0, 4.0])), float(rng.choice([0.8, 1.0, 2.0]))),
        "index_scale": float(rng.choice([0.1, 0.5, 1.0, 2.0])),
        "alarm": float(rng.choice([0.0, 0.3, 3.0, 9.0])),
        "finest": int(rng.integers(1, 5)),
        "lipschitz": float(rng.choice([0.05, 0.25, 2.0])),
    }
    if preset in PHASES:
        told |= [{}, {}, {"window": 5}, {"discount": 0.9}][int(rng.integers(0, 4))]
    if preset == "discounted":
        told["discount"] = float(rng.choice([0.5, 0.99]))
    return told


def _rewards(rng: np.random.Generator, arms: int) -> tuple[Reward, ...]:
    numbers = rng.choice([0.5, 1.0, 2.0], (arms, 3)).tolist()
    return tuple(Reward(accuracy=a, power=q, cost=b, context=(0.5, -0.2)) for a, q, b in numbers)


def _rule(told: dict[str, Any], rewards: tuple[Reward, ...], dimension: int, preset: str) -> Rule:
    given = dict(told)
    side, split, finest = given.pop("side"), given.pop("split"), given.pop("finest")
    scale, alarm, slope = given.pop("index_scale"), given.pop("alarm"), given.pop("lipschitz")
    levels: tuple[Level, ...] = (Level(side if dimension else 1, math.inf),)
    if preset == "dcza" and dimension:
        levels = tuple(Level(2**k, split[0] * 2 ** (split[1] * k)) for k in range(21))
    if preset in LAYERS and dimension:
        step = 2 if preset == "auto" else 1
        sides = [2**k for k in range(finest % step, finest + 1, step)]
        levels = (*(Level(one, 0.0) for one in sides[:-1]), Level(sides[-1], math.inf))
    index = elimination = None
    if preset == "cos-ce":
        elimination = Elimination(confidence=2.0 * 6 * side, bias=slope / side, most_functions=3)
    elif preset not in PHASES:
        bias = tuple(slope * math.sqrt(dimension) / one.side for one in levels)
        index = Index(
            scale=scale,
            is_recent=preset == "discounted",
            bias=bias if len(levels) > 1 else (),
            is_balanced=preset == "balance",
            alarm=0.0 if preset in ("discounted", "balance") else alarm,
        )
    fitting = tuple(dataclasses.replace(one, context=one.context[:dimension]) for one in rewards)
    return Rule(
        dimension=dimension,
        levels=levels,
        index=index,
        elimination=elimination,
        rewards=fitting,
        **given,
    )


def _seat(rng: np.random.Generator, behind: tuple[int, ...], columns: tuple[int, ...]) -> Seat:
    return Seat(
        behind=behind,
        cost_columns=columns,
        receives=bool(rng.random() < 0.8),
        patience=int(rng.choice([-1, 0, 2])),
        lies=bool(rng.random() < 0.1),
    )


class _Stream:
    """The stream of a network, with all that one may hold."""

    def __init__(
        self,
        rng: np.random.Generator,
        rules: list[list[Rule]],
        seats: list[Seat],
        unit: int,
        *,
        has_costs: bool,
        has_readers: bool,
    ) -> None:
        self.rng, self.seats, self.unit = rng, seats, unit
        self.has_costs, self.has_readers = has_costs, has_readers
        self.slots = int(rng.choice([30, 90, 150]))
        self.functions = sum(of_one[0].functions for of_one in rules)
        self.receivers = [k for k, seat in enumerate(seats) if seat.receives]
        self.has_at = bool(rng.integers(0, 2))
        self.decisions = self.slots * (1 if self.has_at else len(self.receivers))

    def log(self, width: int) -> Log:
        """Return it as the kernel takes it."""
        rng, slots = self.rng, self.slots
        labels = rng.integers(0, 3, slots).astype(np.int32)
        chances = rng.random((self.functions, 2))
        late = (np.arange(slots) > slots // 2).astype(int)
        is_right = rng.random((self.functions, slots)) < chances[:, late]
        predictions = np.where(is_right, labels, (labels + 1) % 3).astype(np.int32)
        gains = np.where(is_right, self.unit, rng.integers(0, self.unit, predictions.shape))
        if self.has_readers:
            room = np.full((len(self.seats), slots), -1, np.int32)
            predictions = np.concatenate([predictions, room])
        return Log(
            contexts=np.ascontiguousarray(rng.random((slots, width))).reshape(-1).data,
            predictions=predictions.data,
            labels=np.where(rng.random(slots) < 0.05, -1, labels).astype(np.int32).data,
            at=rng.choice(self.receivers, slots).astype(np.int32).data if self.has_at else None,
            delays=self._delays(labels),
            shown=self._maybe(rng.integers(0, 2, (slots, len(self.seats))).astype(np.int8)),
            gains=gains.astype(np.int32).data if self.unit > 1 else None,
            busy=self._maybe(rng.choice([0, 0, 1, 5], (slots, len(self.seats)))),
            costs=self._costs(),
        )

    def _maybe(self, values: np.ndarray) -> memoryview | None:
        return np.ascontiguousarray(values).data if self.rng.random() < 0.4 else None

    def _delays(self, labels: np.ndarray) -> memoryview:
        delays = self.rng.choice([0, 0, 1, 2, 7], len(labels))
        is_hidden = self.rng.random(len(labels)) < 0.1
        return np.where(is_hidden, -1 - delays, delays).astype(np.int64).data

    def _costs(self) -> memoryview | None:
        if not self.has_costs:
            return None
        return self.rng.integers(0, WHOLE // 4, (2, self.slots)).astype(np.int32).data
