"""What a slot costs: time and bytes, over the length of a run, the cells in use, and the policy."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time

import msgspec
import numpy as np

from covey.bandit.policies import PRESETS, CoS, PolicyRecord, policy_from
from covey.data.logs import DecisionColumns, EncodedLog
from covey.kernel import Arena, Clock, is_compiled, table_of
from covey.kernel.rules import Seat

sys.path.append(
    str(Path(__file__).parents[2] / "benchmarks")
)  # after this folder, which has a streams.py too

import simulated
from timing import interleave, pin

STRETCH = 65_536  # slots
LEARNERS = 4
FUNCTIONS = 2
FEW_CELLS = 100


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured."""

    slots: tuple[int, ...]
    cells: tuple[int, ...]
    rounds: int
    length: int  # of the stretches of whole runs, in slots
    stretches: int


FULL = Sizes(
    slots=(10**5, 10**6, 10**7),
    cells=(10**2, 10**3, 10**4, 10**5, 10**6),
    rounds=7,
    length=STRETCH,
    stretches=8,
)
QUICK = Sizes(slots=(1_000, 2_000), cells=(10, 100), rounds=1, length=200, stretches=1)


class Line(msgspec.Struct, frozen=True):
    """One row of a table: what a learner's slot takes, and its cells."""

    what: str
    nanoseconds: float
    bytes_per_cell: float | None = None
    parts: dict[str, float] = {}  # nanoseconds


class Costs(msgspec.Struct, frozen=True):
    """All that was measured, and where."""

    place: str
    by_slot: list[Line]
    by_cells: list[Line]
    by_policy: list[Line]


def measure(sizes: Sizes) -> Costs:
    """Measure on one core."""
    place = f"{pin()}, {'compiled' if is_compiled() else 'plain'} kernel"
    return Costs(
        place,
        list(_over_slots(sizes)),
        list(_over_cells(sizes)),
        [_of(preset, sizes) for preset in PRESETS],
    )


class Field:
    """Four learners on one stream in one process: the decisions alone, no world around them."""

    def __init__(self, settings: PolicyRecord) -> None:
        policy = settings.resolve(dimension=1, most_functions=FUNCTIONS)
        clock = Clock(*policy.curves())
        arms = FUNCTIONS + LEARNERS - 1
        self.tables = [
            table_of(clock, policy.rule(functions=FUNCTIONS, costs=(0.0,) * arms, position=place))
            for place in range(LEARNERS)
        ]
        seats = [
            Seat(
                behind=(-1,) * FUNCTIONS + tuple(k for k in range(LEARNERS) if k != place),
                cost_columns=(-1,) * arms,
            )
            for place in range(LEARNERS)
        ]
        tables = [[table] for table in self.tables]
        self._arena = Arena(tables, [clock], [(0,)], seats, LEARNERS, None)
        self._rng = np.random.default_rng(0)
        self.slots = 0

    def play(self, slots: int, contexts: np.ndarray | None = None) -> float:
        """Play so many slots and return the seconds that the decisions took."""
        right = self._rng.random((LEARNERS * FUNCTIONS, slots)) < np.linspace(
            0.5, 0.9, LEARNERS * FUNCTIONS
        ).reshape(-1, 1)
        log = EncodedLog(
            contexts=(self._rng.random(slots) if contexts is None else contexts).data,
            predictions=right.astype(np.int32).data,
            labels=np.ones(slots, np.int32).data,
            at=None,
            delays=None,
        )
        rows = slots * LEARNERS
        numbers = {
            name: np.empty(rows, np.int8 if name == "phase" else np.int32).data
            for name in ("cell", "phase", "arm", "function", "correct")
        }
        empty = np.empty(0, np.int32).data
        decided = DecisionColumns(**numbers, paid=empty, recalled=empty)
        begin = process_time()
        self._arena.run(log, self.slots + 1, decided)
        self.slots += slots
        return process_time() - begin

    def bytes_per_cell(self) -> float:
        """Return what a used cell of a learner takes."""
        return sum(t.counters.nbytes() for t in self.tables) / sum(len(t) for t in self.tables)


def _over_slots(sizes: Sizes) -> Iterator[Line]:
    """Time the stretches around some slots of one run."""
    field = Field(CoS(slices=12))
    length = min(STRETCH, sizes.slots[0])
    for slot in sizes.slots:
        while field.slots + sizes.rounds * length < slot:
            field.play(length)
        best = min(field.play(length) for _ in range(sizes.rounds))
        took = 1e9 * best / (LEARNERS * length)
        yield Line(f"{slot:,} slots", took, field.bytes_per_cell())


def _over_cells(sizes: Sizes) -> Iterator[Line]:
    """Time decisions on grids of which every cell is in use and exploits, contexts all over."""
    once = {"scale": 0, "power": 0}  # a label of each arm is enough
    for cells in sizes.cells:
        field = Field(CoS(slices=cells, explore=once, train=once, explore_peers=once))
        middles = (np.arange(cells) + 0.5) / cells
        for seed in range(2 * (FUNCTIONS + LEARNERS)):
            field.play(cells, np.random.default_rng(seed).permutation(middles))
        length = min(STRETCH, 100 * cells)
        anywhere = _best(field, sizes.rounds, np.random.default_rng(0).random(length))
        few = np.random.default_rng(0).choice(middles[:FEW_CELLS], length)
        used = sum(len(table) for table in field.tables) / LEARNERS
        parts = {f"contexts in {FEW_CELLS} cells": _best(field, sizes.rounds, few)}
        yield Line(f"{used:,.0f} cells", anywhere, field.bytes_per_cell(), parts)


def _best(field: Field, rounds: int, contexts: np.ndarray) -> float:
    """Return the nanoseconds of a learner's slot in the best of a few rounds."""
    best = min(field.play(len(contexts), contexts) for _ in range(rounds))
    return 1e9 * best / (LEARNERS * len(contexts))


def _of(preset: str, sizes: Sizes) -> Line:
    """Time whole runs of a policy, the world and the regret included, and their parts."""
    settings = policy_from({"preset": preset})
    slots = sizes.stretches * sizes.length
    whole = interleave(sizes.rounds, {preset: partial(simulated.run, slots, settings)})[preset]
    parts = simulated.parts(sizes.stretches, sizes.rounds, settings, sizes.length)
    return Line(
        preset,
        1e9 * whole.best / (LEARNERS * slots),
        parts={
            name: 1e9 * timing.best / (LEARNERS * sizes.length) for name, timing in parts.items()
        },
    )
