"""Plain baselines, played beside the engine in the same worlds, at the same prices.

What covey's policies can know, they know: the owner of a function sees every labelled use of it,
and tells all learners what it is worth at a context. So functions have one record each, and a
learner takes the one that is worth most after its price. All seeds are played at once, in arrays
whose axes are seed, receiving learner (or stream), function. Every seed has random numbers of its
own, so that a run does not depend on those beside it.
"""

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from covey.bandit.partitions import slices_for
from covey.simulation.environment import Environment
from covey.simulation.run import Run
from covey.simulation.world import World
from covey.types import Array

_MOST_NUMBERS = 2**22  # random ones, drawn at once
_MOST_SLOTS = 1_024  # in one chunk
_SURE = 1e-9  # least distance of a mean to 0 and 1


class Game(NamedTuple):
    """What a baseline knows of a world beforehand."""

    seeds: int
    receivers: int
    streams: int
    functions: int
    dimension: int
    horizon: int  # slots
    costs: Array  # receiver, function


class Labels(NamedTuple):
    """Labels that come at the same time, of one slot."""

    at: Any  # what `choose` returned beside the choices
    chosen: Array  # seed, receiver -> function
    shown: Array  # seed, receiver -> whether the label came
    right: Array  # seed, receiver -> whether the answer was right


class Baseline:
    """A rule that has a value for every function, and takes the largest after its price."""

    normals = 0  # random numbers of each receiver and function in a slot: standard normal
    uniforms = 0  # of each receiver in a slot

    def __init__(self, game: Game) -> None:
        self.game = game
        # Learners that see the same should not all try the same.
        ties = np.random.default_rng(0).random((game.receivers, game.functions))
        self.handicaps = game.costs + 1e-9 * ties

    def choose(self, slot: int, points: Array, noise: Array) -> tuple[Array, Any]:
        """Return the functions for contexts (seed, stream, dimension), and what to learn with."""
        values, at = self.values(slot, points, noise)
        return (values - self.handicaps).argmax(axis=2), at

    def values(self, slot: int, points: Array, noise: Array) -> tuple[Array, Any]:
        """Return what functions are worth: seed, receiver or stream, function."""
        raise NotImplementedError

    def learn(self, labels: Labels) -> None:
        """Take in labels."""
        raise NotImplementedError

    def end_slot(self) -> None:
        """Forget as a slot ends."""


class _Cells(Baseline):
    """Counts of labels, and of right answers, in the cells of a grid."""

    def __init__(self, game: Game, *, slices: int | None, discount: float = 1.0) -> None:
        """Without `slices`, as many as CoS has for this horizon; labels discount those before."""
        super().__init__(game)
        self._slices = slices or slices_for(game.horizon, alpha=1.0, dimension=game.dimension)
        self._discount = discount
        shape = (game.seeds, self._slices**game.dimension, game.functions)
        self.right, self.wrong = np.zeros(shape), np.zeros(shape)
        self._seeds = np.arange(game.seeds)[:, None]

    def cells(self, points: Array) -> Array:
        """Return the cell of each context: seed, stream."""
        corners = np.minimum((points * self._slices).astype(np.int64), self._slices - 1)
        return corners @ self._slices ** np.arange(points.shape[2])

    def counts(self, cells: Array) -> tuple[Array, Array]:
        """Return right and wrong answers of every function there."""
        return self.right[self._seeds, cells], self.wrong[self._seeds, cells]

    def learn(self, labels: Labels) -> None:
        cells = np.broadcast_to(labels.at, labels.chosen.shape)
        if self._discount < 1:
            for counts in (self.right, self.wrong):
                for receiver, shown in enumerate(labels.shown.T):
                    counts[self._seeds[:, 0], cells[:, receiver]] *= np.where(
                        shown, self._discount, 1.0
                    )[:, None]
        where = (self._seeds, cells, labels.chosen)
        np.add.at(self.right, where, labels.shown & labels.right)
        np.add.at(self.wrong, where, labels.shown & ~labels.right)


class Thompson(_Cells):
    """Samples of the Beta posterior, each a ratio of Gamma numbers (Wilson and Hilferty)."""

    normals = 2

    def values(self, slot: int, points: Array, noise: Array) -> tuple[Array, Any]:
        cells = self.cells(points)
        right, wrong = self.counts(cells)
        yes, no = (_gamma(1 + count, noise[..., k]) for k, count in enumerate((right, wrong)))
        return yes / (yes + no), cells


def _gamma(shape: Array, normal: Array) -> Array:
    root = 1 - 1 / (9 * shape) + normal / (3 * np.sqrt(shape))
    return shape * np.maximum(root, 1e-3) ** 3


class DiscountedThompson(Thompson):
    """Thompson sampling in one cell; every slot discounts all labels."""

    def __init__(self, game: Game, *, by_slot: float) -> None:
        super().__init__(game, slices=1)
        self._by_slot = by_slot

    def end_slot(self) -> None:
        self.right *= self._by_slot
        self.wrong *= self._by_slot


class DiscountedKLUCB(_Cells):
    """KL-UCB in one cell; every slot discounts all labels (Garivier and Moulines' level)."""

    def __init__(self, game: Game, *, by_slot: float, level: float) -> None:
        super().__init__(game, slices=1)
        self._by_slot, self._level = by_slot, level

    def values(self, slot: int, points: Array, noise: Array) -> tuple[Array, Any]:
        cells = self.cells(points)
        right, wrong = self.counts(cells)
        tries = np.maximum(right + wrong, 1e-9)
        level = self._level * np.log(np.maximum(tries.sum(axis=2, keepdims=True), math.e))
        return klucb(right / tries, level / tries), cells

    def end_slot(self) -> None:
        self.right *= self._by_slot
        self.wrong *= self._by_slot


def klucb(mean: Array, level: Array, steps: int = 3) -> Array:
    """Return about the largest q with kl(mean, q) <= level: Newton's steps from above.

    kl is convex, and the first q, by Pinsker's inequality, too large: so are those that follow.
    """
    mean = np.clip(mean, _SURE, 1 - 2 * _SURE)
    entropy = mean * np.log(mean) + (1 - mean) * np.log1p(-mean)
    upper = np.minimum(mean + np.sqrt(level / 2) + _SURE, 1 - _SURE)
    for _ in range(steps):
        excess = entropy - mean * np.log(upper) - (1 - mean) * np.log1p(-upper) - level
        slope = (upper - mean) / (upper * (1 - upper))
        upper = np.clip(upper - np.maximum(excess, 0) / slope, mean + _SURE / 2, 1 - _SURE)
    return upper


class WindowLeader(Baseline):
    """The best share of right answers of the latest slots; nothing known of one counts as right."""

    def __init__(self, game: Game, *, window: int) -> None:
        super().__init__(game)
        self._ring = np.zeros((window, 2, game.seeds, game.functions))
        self._sums = np.zeros((2, game.seeds, game.functions))
        self._slot = 0
        self._seeds = np.arange(game.seeds)[:, None]

    def values(self, slot: int, points: Array, noise: Array) -> tuple[Array, Any]:
        right, wrong = self._sums
        return ((right + 1) / (right + wrong + 1))[:, None], None

    def learn(self, labels: Labels) -> None:
        where = (self._seeds, labels.chosen)
        now = self._ring[self._slot % len(self._ring)]
        for kind, counted in enumerate((labels.right, ~labels.right)):
            np.add.at(now[kind], where, labels.shown & counted)
            np.add.at(self._sums[kind], where, labels.shown & counted)

    def end_slot(self) -> None:
        self._slot += 1
        expired = self._ring[self._slot % len(self._ring)]
        self._sums -= expired
        expired[:] = 0


class LinUCB(Baseline):
    """Ridge regression of each function on features of the context, and its uncertainty added.

    Features are 1, the coordinates, their squares, and bumps around the points of a grid.
    """

    def __init__(self, game: Game, *, width: float) -> None:
        """Uncertainty counts `width` times, in standard deviations of an even coin."""
        super().__init__(game)
        side = {1: 12, 2: 6}.get(game.dimension, 4)
        line = (np.arange(side) + 0.5) / side
        self._centres = np.array(list(itertools.product(line, repeat=game.dimension)))
        self._side, self._width = side, width / 2
        size = 1 + 2 * game.dimension + len(self._centres)
        self._inverse = np.tile(np.eye(size), (game.seeds, game.functions, 1, 1))
        self._sums = np.zeros((game.seeds, game.functions, size))

    def values(self, slot: int, points: Array, noise: Array) -> tuple[Array, Any]:
        away = ((points[:, :, None] - self._centres) ** 2).sum(axis=3)
        bumps = np.exp(-away * (self._side**2 / 2))
        ones = np.ones((*points.shape[:2], 1))
        features = np.concatenate([ones, points, points**2, bumps], axis=2)
        # seed, stream, function
        found = np.empty((*features.shape[:2], self.game.functions))
        for stream in range(features.shape[1]):
            own = features[:, stream]
            turned = (self._inverse @ own[:, None, :, None])[..., 0]
            means = (turned * self._sums).sum(axis=2)
            spread = np.sqrt(np.maximum((turned * own[:, None]).sum(axis=2), 0))
            found[:, stream] = 0.5 + means + self._width * spread
        return found, features

    def learn(self, labels: Labels) -> None:
        features = labels.at
        is_use = labels.chosen[..., None] == np.arange(self.game.functions)
        is_use &= labels.shown[..., None]
        wins = is_use & labels.right[..., None]
        for stream in range(features.shape[1]):
            mine = slice(None) if features.shape[1] == 1 else slice(stream, stream + 1)
            uses = is_use[:, mine].sum(axis=1)
            rights = wins[:, mine].sum(axis=1)
            seed, function = np.nonzero(uses)
            own, count = features[seed, stream], uses[seed, function][:, None]
            inverse = self._inverse[seed, function]
            turned = (inverse @ own[..., None])[..., 0]
            weight = count / (1 + count * (turned * own).sum(axis=1, keepdims=True))
            inverse -= (weight * turned)[:, :, None] * turned[:, None, :]
            self._inverse[seed, function] = inverse
            self._sums[seed, function] += (rights[seed, function][:, None] - count / 2) * own


class EXP3S(Baseline):
    """EXP3.S of Auer and others, each learner by itself, with the parameters for one change."""

    uniforms = 1

    def __init__(self, game: Game) -> None:
        super().__init__(game)
        count, horizon = game.functions, game.horizon
        drift = 2 * (math.log(count * horizon) + math.e)  # one change: two pieces
        self._mixed = min(1.0, math.sqrt(count * drift / ((math.e - 1) * horizon)))
        self._share = 1 / horizon
        self._logs = np.zeros((game.seeds, game.receivers, count))
        self._costs = np.minimum(game.costs, 1.0)

    def choose(self, slot: int, points: Array, noise: Array) -> tuple[Array, Any]:
        weights = np.exp(self._logs)
        weights[:, ~np.isfinite(self.game.costs)] = 0
        odds = (1 - self._mixed) * weights / weights.sum(axis=2, keepdims=True)
        odds += self._mixed / self.game.functions
        odds[:, ~np.isfinite(self.game.costs)] = 0
        sums = odds.cumsum(axis=2)
        chosen = (sums <= noise[..., :1] * sums[..., -1:]).sum(axis=2)
        return chosen, np.take_along_axis(odds, chosen[..., None], axis=2)[..., 0]

    def learn(self, labels: Labels) -> None:
        receivers = np.arange(self.game.receivers)
        gain = (labels.right - self._costs[receivers, labels.chosen] + 1) / 2  # from 0 to 1
        estimate = np.where(labels.shown, gain / labels.at, 0.0)
        added = np.zeros_like(self._logs)
        np.put_along_axis(added, labels.chosen[..., None], estimate[..., None], axis=2)
        weights = np.exp(self._logs)
        total = weights.sum(axis=2, keepdims=True)
        count = self.game.functions
        weights = (
            weights * np.exp(self._mixed * added / count) + math.e * self._share / count * total
        )
        self._logs = np.log(weights / weights.max(axis=2, keepdims=True))


BASELINES: dict[str, Callable[[Game], Baseline]] = {
    "LinUCB": partial(LinUCB, width=1.0),
    "Thompson cells": partial(Thompson, slices=None),
    "Thompson": partial(Thompson, slices=1),
    "Thompson cells discounted": partial(Thompson, slices=None, discount=0.995),
    "Thompson discounted": partial(DiscountedThompson, by_slot=0.999),
    "KL-UCB discounted": partial(DiscountedKLUCB, by_slot=0.999, level=0.6),
    "window leader": partial(WindowLeader, window=1_000),
    "EXP3.S": EXP3S,
}


@lru_cache(maxsize=1)
def code() -> str:
    """Return a name for the code of this file."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


def play(
    name: str,
    environment: Environment,
    *,
    seeds: Sequence[int],
    horizon: int,
    checkpoints: Sequence[int],
) -> list[Run]:
    """Play a baseline in the worlds of all these seeds; a run for each."""
    began = perf_counter()
    game = _game(environment, len(seeds), horizon)
    baseline = BASELINES[name](game)
    worlds = [World(environment, seed=seed, horizon=horizon) for seed in seeds]
    random = [np.random.default_rng([seed, *name.encode()]) for seed in seeds]
    per_slot = game.receivers * (game.functions * baseline.normals + baseline.uniforms) * len(seeds)
    most = max(1, min(_MOST_SLOTS, _MOST_NUMBERS // max(1, per_slot)))
    waiting: dict[int, list[Labels]] = defaultdict(list)  # by the slot of their arrival
    lost = np.zeros(len(seeds))
    errors = np.zeros(len(seeds))
    paid = np.zeros(len(seeds))
    curves = []
    slot = 0
    for end in checkpoints:
        while slot < end:
            chunk = _Chunk(worlds, min(most, end - slot))
            noise = _noise(random, baseline, game, chunk.slots)
            chosen = np.empty((chunk.slots, len(seeds), game.receivers), np.int64)
            for k in range(chunk.slots):
                slot += 1
                picks, at = baseline.choose(slot, chunk.points[k], noise[k])
                chosen[k] = picks
                for due, labels in chunk.labels(k, at, picks):
                    waiting[slot + due].append(labels)
                for labels in waiting.pop(slot, ()):
                    baseline.learn(labels)
                baseline.end_slot()
            costs, worth, right = chunk.judge(chosen, game)
            lost += worth
            paid += costs
            errors += right
        curves.append(lost.copy())
    decisions = horizon * game.receivers
    return [
        Run(
            policy=name,
            environment=environment.name,
            seed=seed,
            slots=list(checkpoints),
            regret={"all": [float(curve[k]) for curve in curves]},
            learners=game.receivers,
            errors=float(errors[k]) / decisions,
            cost=float(paid[k]) / decisions,
            phases={},
            messages={},
            seconds=(perf_counter() - began) / len(seeds),
        )
        for k, seed in enumerate(seeds)
    ]


def _game(environment: Environment, seeds: int, horizon: int) -> Game:
    owners = [place for place, count in enumerate(environment.counts) for _ in range(count)]
    price = environment.prices if environment.prices <= 1 else math.inf
    costs = np.array(
        [
            [environment.function_costs if asker == owner else price for owner in owners]
            for asker in range(len(environment.receiving))
        ]
    )
    return Game(
        seeds,
        len(environment.receiving),
        environment.streams,
        len(owners),
        environment.dimension,
        horizon,
        costs,
    )


def _noise(
    random: Sequence[np.random.Generator], baseline: Baseline, game: Game, slots: int
) -> Array:
    """Return random numbers: slot, seed, and what the baseline wants."""
    if baseline.normals:
        shape = (slots, game.receivers, game.functions, baseline.normals)
        return np.stack([rng.standard_normal(shape) for rng in random], axis=1)
    return np.stack([rng.random((slots, game.receivers, baseline.uniforms)) for rng in random], 1)


class _Chunk:
    """The same slots of several worlds."""

    def __init__(self, worlds: Sequence[World], slots: int) -> None:
        drawn = [world.draw(slots) for world in worlds]
        self.slots = slots
        self.points = np.stack([one.points for one in drawn], axis=1)  # slot, seed, stream, ...
        # slot, seed, stream, function
        self.accuracy = np.stack([np.moveaxis(one.accuracy, 2, 0) for one in drawn], axis=1)
        self.right = np.stack([np.moveaxis(one.right, 2, 0) for one in drawn], axis=1) > 0
        receivers = len(worlds[0].environment.receiving)
        shape = (slots, len(worlds), receivers)
        shown = [one.shown for one in drawn]
        self.shown = np.ones(shape, bool)
        if shown[0] is not None:
            self.shown = np.stack([one[:, :receivers] for one in shown], axis=1) > 0
        delays = [one.delays for one in drawn]
        self.delays = None if delays[0] is None else np.stack(delays, axis=1)

    def labels(self, k: int, at: Any, chosen: Array) -> list[tuple[int, Labels]]:
        """Return the labels of a slot, by when they come."""
        right = _taken(self.right[k], chosen)
        if self.delays is None:
            return [(0, Labels(at, chosen, self.shown[k], right))]
        return [
            (
                int(delay),
                Labels(at, chosen, self.shown[k] & (self.delays[k] == delay)[:, None], right),
            )
            for delay in np.unique(self.delays[k])
        ]

    def judge(self, chosen: Array, game: Game) -> tuple[Array, Array, Array]:
        """Return what was paid, lost to the best choice, and wrong: the sums by seed."""
        costs = np.round(game.costs * 2**22) / 2**22
        best = np.full(chosen.shape, -np.inf)
        for receiver in range(game.receivers):
            stream = receiver if game.streams > 1 else 0
            best[..., receiver] = (self.accuracy[:, :, stream] - costs[receiver]).max(axis=2)
        paid = costs[np.arange(game.receivers), chosen]
        lost = best - (_taken(self.accuracy, chosen) - paid)
        wrong = ~_taken(self.right, chosen)
        return tuple(part.sum(axis=(0, 2), dtype=float) for part in (paid, lost, wrong))


def _taken(values: Array, chosen: Array) -> Array:
    """Return the values (..., stream, function) of the functions that receivers chose."""
    wide = np.broadcast_to(values, (*chosen.shape, values.shape[-1]))
    return np.take_along_axis(wide, chosen[..., None], axis=-1)[..., 0]
