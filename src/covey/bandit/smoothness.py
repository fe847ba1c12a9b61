"""Unknown horizon and alpha: doubling epochs, and estimation of smoothness.

Each epoch uses the alpha that is estimated from the cells of the previous one.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from covey.bandit.settings import Settings

LEAST_LABELS = 20  # per cell
LEAST_PAIRS = 2  # per level
LEAST_LEVELS = 3
LOWEST_ALPHA = 0.25
ERROR_ALONE = 0.1  # largest standard error of alpha for an estimate from one function
ERROR_TOGETHER = 0.3  # and for a pooled estimate from several
LEAST_PEAK_PAIRS = 7  # per level, for the roughest place
PEAK_SURE = 2.0  # standard deviations of the largest difference beyond what chance alone makes

Means = dict[tuple[int, ...], tuple[float, float]]  # cell -> accuracy, variance of the estimate


class Epoch(NamedTuple):
    """A range of slots with its own horizon."""

    first_slot: int
    slots: int


class Seen(NamedTuple):
    """Labels of a function in a cell of a grid with `side` slices per dimension."""

    side: int
    coordinates: tuple[int, ...]
    labels: int
    right: int


class Spread(NamedTuple):
    """Differences of the accuracies of adjacent cells of one width."""

    width: float
    square: float  # mean squared difference, corrected for sampling noise
    chance: float  # sampling noise in the mean squared difference
    pairs: int
    peak: float = 0.0  # largest squared difference, if no chance explains it; else 0


class Smoothness(NamedTuple):
    """Estimate: accuracies at distance h differ by about lipschitz * h ** alpha."""

    alpha: float
    lipschitz: float
    error: float  # standard error of alpha before clipping
    levels: tuple[Spread, ...]  # data of the fit, finest first

    corner: float = 1.0  # alpha at the pairs of cells that differ most

    @property
    def safe_alpha(self) -> float:
        """Alpha that also holds at the roughest place: bounds need one that is not too large."""
        return max(LOWEST_ALPHA, min(self.alpha, self.corner))


def epochs(first: int, until: int | None = None) -> Iterator[Epoch]:
    """Yield epochs of `first` slots, then doubling lengths; the last one contains `until`.

    >>> list(epochs(1000, until=5000))
    [Epoch(first_slot=1, slots=1000), Epoch(first_slot=1001, slots=2000), \
Epoch(first_slot=3001, slots=4000)]
    """
    epoch = Epoch(1, first)
    while until is None or epoch.first_slot <= until:
        yield epoch
        epoch = Epoch(epoch.first_slot + epoch.slots, 2 * epoch.slots)


def adapt(settings: Settings, epoch: Epoch, *, alpha: float) -> Settings:
    """Return the settings for one epoch: its length as horizon, and `alpha`."""
    return msgspec.structs.replace(settings, horizon=epoch.slots, alpha=alpha)


def estimate(arms: Iterable[Iterable[Seen]], *, lowest: float = LOWEST_ALPHA) -> Smoothness | None:
    """Return the smoothness of the least smooth function; None without enough data.

    `arms` are the cells of each function: of several sides, or of one side, which is coarsened
    step by step. Functions with too noisy estimates are pooled, because the minimum of many noisy
    estimates is biased low. Alpha is clipped to [`lowest`, 1].
    """
    judged: list[Smoothness] = []
    rest: list[list[Spread]] = []
    corners: list[float] = []
    for cells in arms:
        levels = spreads(cells)
        corners.append(_corner(levels))
        alone = _fit(_visible(levels)[:LEAST_LEVELS], lowest)
        if alone is not None and alone.error <= ERROR_ALONE:
            judged.append(alone)
        else:
            rest.append(levels)
    levels = _visible(_pooled(rest))
    fits = (_fit(levels[:count], lowest) for count in range(LEAST_LEVELS, len(levels) + 1))
    together = next((one for one in fits if one and one.error <= ERROR_TOGETHER), None)
    found = min([*judged, *([together] if together else [])], default=None)
    return found and found._replace(corner=min(corners))


def spreads(cells: Iterable[Seen]) -> list[Spread]:
    """Return the spread of one function per cell width, finest first."""
    grids: dict[float, Means] = defaultdict(dict)
    for side, coordinates, labels, right in cells:
        if labels >= LEAST_LABELS:
            accuracy = right / labels
            chance = accuracy * (1 - accuracy) / (labels - 1)
            grids[1 / side][coordinates] = (accuracy, chance)
    if len(grids) == 1:
        (width,) = grids
        while len(grids[width]) > 1:
            grids[2 * width] = _coarser(grids[width])
            width *= 2
    levels = [_spread(width, grid) for width, grid in sorted(grids.items())]
    return [level for level in levels if level is not None]


def _coarser(grid: Means) -> Means:
    """Return the grid with cells twice as wide; cells with missing parts are dropped."""
    parts: dict[tuple[int, ...], list[tuple[float, float]]] = defaultdict(list)
    for coordinates, mean in grid.items():
        parts[tuple(coordinate // 2 for coordinate in coordinates)].append(mean)
    # Equal weight for every part, whatever the number of its contexts.
    return {
        cell: (
            sum(accuracy for accuracy, _ in means) / len(means),
            sum(chance for _, chance in means) / len(means) ** 2,
        )
        for cell, means in parts.items()
        if len(means) == 2 ** len(cell)
    }


def _spread(width: float, grid: Means) -> Spread | None:
    squares, chances = list[float](), list[float]()
    for cell, (accuracy, chance) in grid.items():
        for k in range(len(cell)):
            beside = grid.get((*cell[:k], cell[k] + 1, *cell[k + 1 :]))
            if beside is not None:
                squares.append((accuracy - beside[0]) ** 2)
                chances.append(chance + beside[1])
    pairs = len(squares)
    if not pairs:
        return None
    least = (math.sqrt(2 * math.log(2 * pairs)) + PEAK_SURE) ** 2
    seen = [square for square, by in zip(squares, chances, strict=True) if square > least * by]
    mean = (sum(squares) - sum(chances)) / pairs
    return Spread(width, mean, sum(chances) / pairs, pairs, max(seen, default=0.0))


def _pooled(arms: Sequence[list[Spread]]) -> list[Spread]:
    """Return the spreads of several functions, pooled per width."""
    pooled = []
    merged = sorted(itertools.chain.from_iterable(arms))
    for width, group in itertools.groupby(merged, lambda level: level.width):
        levels = list(group)
        pairs = sum(level.pairs for level in levels)
        square = sum(level.square * level.pairs for level in levels) / pairs
        chance = sum(level.chance * level.pairs for level in levels) / pairs
        pooled.append(Spread(width, square, chance, pairs))
    return pooled


def _corner(levels: Sequence[Spread]) -> float:
    """Fit log(peak) = 2 alpha log(width) + a constant over the finest widths; return alpha.

    Means over all pairs hardly see a single corner. Without clear differences it is 1.
    """
    many = [level for level in levels if level.pairs >= LEAST_PEAK_PAIRS]
    clear = [level for level in many if level.peak > 0.0][:LEAST_LEVELS]
    if len(clear) < LEAST_LEVELS:
        return 1.0
    across = [math.log(level.width) for level in clear]
    up = [math.log(level.peak - level.chance) for level in clear]
    middle = sum(across) / len(clear)
    lever = sum((x - middle) ** 2 for x in across)
    return sum((x - middle) * y for x, y in zip(across, up, strict=True)) / lever / 2


def _fit(levels: Sequence[Spread], lowest: float) -> Smoothness | None:
    """Fit log(square) = 2 alpha log(width) + a constant."""
    if len(levels) < LEAST_LEVELS:
        return None
    weights = [level.pairs / (1 + level.chance / level.square) ** 2 for level in levels]
    across = [math.log(level.width) for level in levels]
    up = [math.log(level.square) for level in levels]
    middle = sum(w * x for w, x in zip(weights, across, strict=True)) / sum(weights)
    lever = sum(w * (x - middle) ** 2 for w, x in zip(weights, across, strict=True))
    tilt = sum(w * (x - middle) * y for w, x, y in zip(weights, across, up, strict=True))
    alpha = min(1.0, max(lowest, tilt / lever / 2))
    # The logarithm of the mean of n squared normal variables has variance of about 2 / n.
    error = math.sqrt(2 / lever) / 2
    lipschitz = max(math.sqrt(level.square) * level.width**-alpha for level in levels)
    return Smoothness(alpha, lipschitz, error, tuple(levels))


def _visible(levels: Sequence[Spread]) -> list[Spread]:
    """Return the levels from the finest above noise to the one with the largest spread.

    Finer levels are dominated by noise; in wider cells the variation is averaged out.
    """
    levels = [level for level in levels if level.pairs >= LEAST_PAIRS]
    if not levels:
        return []
    top = max(range(len(levels)), key=lambda k: levels[k].square)
    downwards = itertools.takewhile(_is_above_chance, levels[top::-1])
    return list(downwards)[::-1]


def _is_above_chance(level: Spread) -> bool:
    return level.square > max(1e-12, 2 * level.chance * math.sqrt(2 / level.pairs))
