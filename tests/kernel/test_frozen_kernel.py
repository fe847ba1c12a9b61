"""The kernel decides, counts and reports as that of 0.1.0 did: every preset, every option."""

import collections
import dataclasses
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from covey import kernel as kernel_module
from covey.kernel import rules as kernel_rules
from frozen import kernel, kernel_records
from frozen.kernel_records import Rule
from frozen.scenes import PHASES, PRESETS, Scene, plain_scene, scene

EVERY_PRESET = pytest.mark.parametrize("preset", PRESETS)
SEEDS = range(24) if kernel_module.is_compiled() else range(0, 24, 3)


def _interleaved_cells(_: Any, tables: list[list[Any]], numbers: list[int]) -> list[Any]:
    """Return a space and a cell for numbers that are rows of different tables, interleaved."""
    places = [(space, table) for of_one in tables for space, table in enumerate(of_one)]
    cells = []
    for number in numbers:
        row, place = divmod(number, len(places))
        space, table = places[place]
        cells.append((space, tuple(table.cell(row))[:2]))
    return cells


def _numbered_cells(arena: Any, _: list[list[Any]], numbers: list[int]) -> list[Any]:
    """Return a space and a cell for numbers that all learners share."""
    known = [(space, tuple(cell)[:2]) for space, cell in arena.cells_since(0)]
    return [known[number] for number in numbers]


FROZEN = SimpleNamespace(
    Clock=kernel.Clock,
    Table=kernel.Table,
    Ledger=kernel.Ledger,
    Arena=kernel.Arena,
    Cell=kernel_records.Cell,
    rule=lambda rule: rule,
    seat=lambda seat: seat,
    retract=lambda table, decision, context: table.retract(decision, context),
    cells=_interleaved_cells,
)
LATEST = 2**62  # after every slot


def _rule_now(rule: Rule) -> Any:
    """Return a frozen rule as the running kernel is told it."""
    told = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    told["levels"] = tuple(kernel_rules.Level(*one) for one in rule.levels)
    told["rewards"] = tuple(kernel_rules.Reward(**dataclasses.asdict(r)) for r in rule.rewards)
    if rule.index is not None:
        told["index"] = kernel_rules.Index(**dataclasses.asdict(rule.index))
    if rule.elimination is not None:
        told["elimination"] = kernel_rules.Elimination(**dataclasses.asdict(rule.elimination))
    return kernel_rules.Rule(**told)


RUNNING = SimpleNamespace(
    Clock=kernel_module.Clock,
    Table=kernel_module.table_of,
    Ledger=kernel_module.Ledger,
    Arena=kernel_module.Arena,
    Cell=kernel_rules.Cell,
    rule=_rule_now,
    seat=lambda seat: kernel_rules.Seat(*seat),
    # The frozen kernel takes a decision back in cells that became known after it, too.
    retract=lambda table, decision, context: table.retract(decision, context, LATEST),
    cells=_numbered_cells,
)
KINDS = (FROZEN, RUNNING)


def tables_of(kind: Any, played: Scene) -> list[list[Any]]:
    """Return the tables of a scene per learner and space, with what they know before it."""
    clocks = [kind.Clock(played.scales, played.powers) for _ in played.spaces]
    tables = [
        [kind.Table(clock, kind.rule(rule)) for clock, rule in zip(clocks, rules, strict=True)]
        for rules in played.rules
    ]
    if played.labels_before:
        for of_one, rules in zip(tables, played.rules, strict=True):
            for table, rule in zip(of_one, rules, strict=True):
                preload(kind, table, rule, played)
    return tables


def preload(kind: Any, table: Any, rule: Rule, played: Scene) -> None:
    """Let the coarsest cell be known with counts at the border of 32 bits."""
    cell = kind.Cell(0, (0,) * rule.dimension)
    counters = table.counters(table.meet(cell, played.first_slot))
    arms = len(rule.costs)
    labels = [played.labels_before + arm for arm in range(arms)]
    right = [n * rule.unit * (5 + arm) // (9 + arm) for arm, n in enumerate(labels)]
    counters[:3] = [played.first_slot, sum(labels), counters[2]]
    counters[3 : 3 + 2 * arms] = labels + right
    table.load(cell, counters)


def state_of(table: Any) -> Any:
    """Return all that a table knows."""
    rows = range(len(table))
    return (
        [tuple(table.cell(row))[:2] for row in rows],
        [table.counters(row) for row in rows],
        [table.is_split(row) for row in rows],
        [table.known(row) for row in rows],
        table.doubts()[:4],  # alarms are counted since
        table.blind_decisions(),
    )


def replayed(kind: Any, played: Scene, times: int = 1) -> tuple[list[Any], list[Any]]:
    """Return the trace of a scene, played so many times, and what the tables know at its end."""
    tables = tables_of(kind, played)
    ledgers = [
        kind.Ledger(of_one, own, played.spaces)
        for of_one, own in zip(tables, played.own, strict=True)
    ]
    seats = [kind.seat(one) for one in played.seats]
    arena = kind.Arena(ledgers, seats, played.hidden_from, played.label_wait)
    for time in range(times):
        room = played.room()
        arena.run(played.fresh_log(), played.first_slot + time * len(played.log.labels), room)
    trace = [
        kind.cells(arena, tables, np.asarray(room.cell).tolist()),
        *(np.asarray(column).tolist() for column in room[1:]),
    ]
    known = [state_of(table) for of_one in tables for table in of_one]
    if played.labels_before:
        # Compiled, 0.1.0 adds labels of peers up in 32 bits to see whether there are any.
        known = [one[:-1] for one in known]
    return trace, known


@EVERY_PRESET
def test_a_replay_without_options_decides_as_with_the_frozen_kernel(preset: str) -> None:
    for seed in SEEDS:
        played = plain_scene(preset, seed)
        frozen, running = (replayed(kind, played, times=2) for kind in KINDS)

        assert running == frozen, (preset, seed)


def test_the_frozen_kernel_imports_nothing_of_the_library() -> None:
    for module in (kernel, kernel_records):
        assert "covey" not in Path(str(module.__file__)).read_text(encoding="utf-8")


@EVERY_PRESET
def test_a_replay_decides_and_counts_as_with_the_frozen_kernel(preset: str) -> None:
    for seed in SEEDS:
        played = scene(preset, seed)
        frozen, running = (replayed(kind, played) for kind in KINDS)

        names = ("cell", "phase", "arm", "function", "correct", "paid")
        for name, old, new in zip(names, frozen[0], running[0], strict=True):
            assert new == old, (preset, seed, name)
        assert running[1] == frozen[1], (preset, seed, "counters")


class Steps:
    """Two sites that take one step at a time; what they answer is noted."""

    def __init__(self, kind: Any, played: Scene) -> None:
        self.kind, self.played = kind, played
        self.rule = played.rules[0][0]
        costs = (*self.rule.costs[: self.rule.functions], 0.05)
        rule = dataclasses.replace(
            self.rule, costs=costs, rewards=(), context_peers=0, remembers=True
        )
        clock = kind.Clock(played.scales, played.powers)
        self.here, self.there = (kind.Table(clock, kind.rule(rule)) for _ in range(2))
        if played.labels_before:
            preload(kind, self.here, rule, played)
        self.open: list[tuple[int, tuple[float, ...], int, int]] = []
        self.noted: list[Any] = []

    def run(self, seed: int) -> list[Any]:
        chance = random.Random(seed)  # noqa: S311
        slot = self.played.first_slot
        for step in range(60):
            slot += chance.choice([0, 1, 1, 5])
            verb = chance.choice(["decide", "decide", "settle", "settle", "serve", "batch", "undo"])
            context = tuple(chance.random() for _ in range(self.rule.dimension))
            getattr(self, f"_{verb}")(context, slot, chance)
            if step % 10 == 9:
                self.noted += [state_of(self.here), state_of(self.there)]
        return self.noted

    def _decide(self, context: tuple[float, ...], slot: int, chance: random.Random) -> None:
        decision = self.here.decide(context, slot)
        while decision < 0:
            row = -1 - decision
            if not self.rule.is_supervised:
                met = self.there.meet(self.here.cell(row), slot)
                decision = self.here.consult(row, context, [self.there.estimate(met)])
                break
            stale = self.here.stale(row, slot)
            self.noted.append(stale)
            for peer in stale:
                met = self.there.meet(self.here.cell(row), slot)
                report = self._limited(self.there.report(met, slot), row, peer, slot)
                self.noted.append((report, self.here.hear(row, peer, report, slot)))
            decision = self.here.resume(row, context, slot)
        self.noted.append((decision, self.here.best(decision >> 20)))
        self.noted.append(self.here.best_own(decision >> 20))
        self.open.append((decision, context, slot, 0))

    def _limited(self, report: Any, row: int, peer: int, slot: int) -> Any:
        """Return bounds that own labels do not contradict: labels here are drawn regardless."""
        drop, arm = self.rule.elimination, self.rule.functions + peer
        counters, arms = self.here.counters(row), self.rule.functions + 1
        labels, right = counters[3 + arm], counters[3 + arms + arm]
        if drop is None or not self.rule.floors_training or not labels:
            return report
        radius = math.sqrt(math.log(drop.confidence * slot * slot) / (2 * labels))
        most = right / (labels * self.rule.unit) + radius + drop.bias
        return report[0], min(report[1], most), min(report[2], most)

    def _serve(self, context: tuple[float, ...], slot: int, chance: random.Random) -> None:
        level = chance.randrange(min(2, len(self.rule.levels)))
        side = self.rule.levels[level].side
        cell = self.kind.Cell(level, tuple(min(int(x * side), side - 1) for x in context))
        row = self.here.meet(cell, slot)
        served = self.here.serve(row, slot)
        self.noted.append((served, self.here.arrivals(row), self.here.recall(row)))
        if self.rule.index is not None and self.rule.index.is_balanced:
            self.noted.append(self.here.width(served))
        self.open.append((served, context, slot, 0))

    def _settle(self, context: tuple[float, ...], slot: int, chance: random.Random) -> None:
        if not self.open:
            return
        decision, where, at, _ = self.open.pop(chance.randrange(len(self.open)))
        gain = chance.choice([0, self.rule.unit, chance.randrange(self.rule.unit + 1)])
        paid = (chance.randrange(10**6),) if self.rule.learns_costs else ()
        if self.rule.is_supervised or decision & 3 == kernel.SERVE:
            self.here.settle(decision, gain, where, at, *paid)
            self.here.remember(decision, chance.randrange(3), where, at)
        else:
            self.here.forget(decision)

    def _undo(self, context: tuple[float, ...], slot: int, chance: random.Random) -> None:
        if self.open and chance.random() < 0.5:
            decision, where, _, _ = self.open.pop()
            self.kind.retract(self.here, decision, where)
        elif self.open:
            self.here.forget(self.open.pop(0)[0])
        cost = chance.choice([0.0, 0.5, float("inf")])
        self.here.set_cost(self.rule.functions, cost)

    def _batch(self, context: tuple[float, ...], slot: int, chance: random.Random) -> None:
        if not self.rule.is_supervised:
            return
        points = np.array([[chance.random() for _ in context] for _ in range(6)]).reshape(-1)
        decisions = np.zeros(6, np.int64)
        done = self.here.decide_batch(points.data, slot, decisions.data)
        self.noted += [done, decisions.tolist()]
        width = len(context)
        known = decisions[:done].copy()
        gains = np.array([chance.choice([0, self.rule.unit]) for _ in known], np.int64)
        slots = np.arange(slot, slot + done)
        paid = np.full(done, kernel.UNPAID, np.int64)
        if done and chance.random() < 0.5:
            places = points[: done * width].copy()
            self.here.settle_batch(places.data, slots.data, known.data, gains.data, paid.data)
        elif done:
            self.here.forget_batch(known.data)


@EVERY_PRESET
def test_each_step_of_a_site_is_as_with_the_frozen_kernel(preset: str) -> None:
    for seed in SEEDS:
        played = scene(preset, seed)
        frozen, running = (Steps(kind, played).run(seed) for kind in KINDS)

        assert running == frozen, (preset, seed)


@EVERY_PRESET
def test_a_table_continues_from_the_counters_of_the_frozen_one(preset: str) -> None:
    for seed in SEEDS:
        played = scene(preset, seed)
        old = Steps(FROZEN, played)
        old.run(seed)
        clock = kernel_module.Clock(played.scales, played.powers)
        rule = dataclasses.replace(
            old.rule,
            costs=(*old.rule.costs[: old.rule.functions], 0.05),
            rewards=(),
            context_peers=0,
            remembers=True,
        )
        new = kernel_module.table_of(clock, _rule_now(rule))
        for row in range(len(old.here)):
            new.load(kernel_rules.Cell(*old.here.cell(row)), old.here.counters(row))
            new.know(row, old.here.known(row))
        new.take_doubts(old.here.doubts())

        assert state_of(new)[1:5] == state_of(old.here)[1:5], (preset, seed)


@pytest.mark.parametrize("slot", [1, 2, 31, 33, 2**31 - 1, 2**31, 2**31 + 1, 2**40, 2**53])
def test_thresholds_are_those_of_the_frozen_kernel(slot: int) -> None:
    for scale in (0.0, 0.05, 1.0, 7.5, 1e300):
        for power in (0.0, 0.125, 0.5, 0.999):
            given = [scale, 1.0, 2.0], [power, 0.3, 0.6]
            assert kernel_module.Clock(*given).at(slot) == kernel.Clock(*given).at(slot)


def test_the_scenes_hold_every_option_and_every_phase() -> None:
    seen: dict[str, set[Any]] = collections.defaultdict(set)
    phases: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for preset in PRESETS:
        for seed in range(0, 40, 2):
            played = scene(preset, seed)
            for field in dataclasses.fields(Rule):
                seen[field.name] |= {
                    repr(getattr(rule, field.name)) for of_one in played.rules for rule in of_one
                }
            for name in ("lies", "receives", "patience"):
                seen[name] |= {getattr(seat, name) for seat in played.seats}
            seen["first_slot"].add(played.first_slot)
            seen["labels_before"].add(played.labels_before)
            for name, value in played.log._asdict().items():
                seen[f"log {name}"].add(value is None)
            phases[preset].update(replayed(RUNNING, played)[0][1])

    assert all(len(seen[name]) > 1 for name in seen if name not in ONE_VALUE), seen
    assert max(seen["first_slot"]) > 2**31
    for preset in PRESETS:
        most = (kernel.TRAIN, kernel.EXPLORE, kernel.EXPLOIT)
        for phase in most if preset in PHASES else most[1:]:
            assert phases[preset][phase] > 50, (preset, phase)


ONE_VALUE = (
    *("most_cells", "log contexts", "log predictions", "log labels", "log delays"),
    *("log batches", "log slots"),  # which the frozen kernel does not have
)
