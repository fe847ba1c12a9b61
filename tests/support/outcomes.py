"""Outcomes of replays, made up; and what a browser would see of their pages."""

import itertools
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np

from covey.replay.engine import CellView
from covey.replay.outcome import (
    AlarmNumbers,
    LearnerNumbers,
    LearnerOutcome,
    Outcome,
    PairNumbers,
    Timeline,
    percent,
    total_of,
)
from covey.types import Context, Interval

SITES = ["north", "east", "south", "west", "harbour", "airport", "uptown", "campus"]
HOSTILE = ["<b>a&b</b>", "$x_1$ \\frac", "_hidden", "w" * 90, '"quoted" <script>', "東京\x1b\n"]
VOID = {"meta"}
NONE = "\N{EN DASH}"


def around(mean: float, half_width: float) -> Interval:
    """Return an interval in points."""
    return Interval(100 * mean, 100 * (mean - half_width), 100 * (mean + half_width))


def numbers(
    slots: int,
    judged: int,
    errors: int,
    phases: tuple[int, int] = (0, 0),
    *,
    cost: float = 0.0,
    arms: dict[str, int] | None = None,
    alone: int = 0,
    own: tuple[str, int] | None = None,
    gain: Interval | None = None,
    pairs: list[PairNumbers] | None = None,
) -> LearnerNumbers:
    """Make the numbers of a learner from counts; `own` is its best function, with its errors."""
    train, explore = phases
    return LearnerNumbers(
        slots=slots,
        errors=errors if slots else None,
        error_percent=percent(errors, judged),
        train_percent=percent(train, slots),
        explore_percent=percent(explore, slots),
        exploit_percent=percent(slots - train - explore, slots),
        cost_total=cost if slots else None,
        arms=arms or {},
        alone_percent=percent(alone, judged),
        best_own=None if own is None or not judged else own[0],
        best_own_percent=None if own is None else percent(own[1], judged),
        net_gain_points=gain,
        pairs=pairs or [],
        alarms=AlarmNumbers(0, []),
    )


def make_learner(
    name: str,
    rng: np.random.Generator,
    *,
    peers: list[str],
    dimension: int,
    side: int = 3,
    is_judged: bool = True,
) -> LearnerOutcome:
    functions = [f"{name}-tree", f"{name}-bayes"]
    arms = [*functions, *peers]
    slots = rng.integers(40, 50, size=30)
    judged = slots if is_judged else 0 * slots
    errors = rng.binomial(judged, 0.2)
    train = rng.binomial(slots, 0.1)
    explore = rng.binomial(slots - train, 0.2)
    total = int(slots.sum())
    chosen = rng.multinomial(total, np.full(len(arms), 1 / len(arms)))
    counts = numbers(
        total,
        int(judged.sum()),
        int(errors.sum()),
        (int(train.sum()), int(explore.sum())),
        cost=0.05 * float(chosen[2:].sum()),
        arms=dict(zip(arms, chosen.tolist(), strict=True)),
        alone=int(errors.sum() * 1.5),
        own=(functions[0], int(judged.sum()) // 4),
        gain=Interval(2.0, 1.0, 3.0) if is_judged else None,
        pairs=[
            PairNumbers(peer, times, times / 20, times, 0.8 * times, functions[0], 0.7 * times)
            for peer, times in zip(peers, chosen[2:].tolist(), strict=True)
        ],
    )
    timeline = Timeline(50, *(x.tolist() for x in (slots, judged, errors, train, explore)))
    cells = make_cells(rng, arms, dimension=dimension, side=side)
    return LearnerOutcome(name, functions, int(judged.sum()), counts, timeline, cells)


def make_cells(
    rng: np.random.Generator, arms: list[str], *, dimension: int, side: int
) -> list[CellView]:
    cells = []
    for corner in itertools.product(range(side), repeat=dimension):
        low: Context = tuple(step / side for step in corner)
        high: Context = tuple((step + 1) / side for step in corner)
        arm = arms[int(rng.integers(len(arms)))]
        cells.append(CellView(str(corner), low, high, int(rng.integers(1, 99)), arm, 0.8))
    return cells


def idle_learner(name: str) -> LearnerOutcome:
    nothing = [0] * 30
    timeline = Timeline(50, nothing, nothing, nothing, nothing, nothing)
    return LearnerOutcome(name, ["idle-tree"], 0, numbers(0, 0, 0), timeline, [])


def make_outcome(
    names: list[str], *, dimension: int = 2, side: int = 3, is_judged: bool = True
) -> Outcome:
    rng = np.random.default_rng(7)
    learners = [
        make_learner(
            name,
            rng,
            peers=[peer for peer in names if peer != name],
            dimension=dimension,
            side=side,
            is_judged=is_judged,
        )
        for name in names
    ]
    functions = [function for learner in learners for function in learner.functions]
    errors = [10.0 + position if is_judged else None for position in range(len(functions))]
    return Outcome(
        slots=1500,
        dimension=dimension,
        context_names=["hour", "load", "heat"][:dimension],
        policy="CoS (spec), 9 cells",
        learners=learners,
        functions=dict(zip(functions, errors, strict=True)),
        total=total_of(
            [learner.numbers for learner in learners],
            Interval(0.02, 0.015, 0.025) if is_judged else None,
        ),
    )


def small_learner(name: str, *, slots: int, errors: int, alone_errors: int) -> LearnerOutcome:
    """Make a learner that pays a hundredth per slot and whose own function errs in a fourth."""
    timeline = Timeline(slots, [slots], [slots], [errors], [slots // 10], [slots // 5])
    tree = f"{name}-tree"
    counts = numbers(
        slots,
        slots,
        errors,
        (slots // 10, slots // 5),
        cost=slots / 100,
        arms={tree: slots - 30, "peer": 30},
        alone=alone_errors,
        own=(tree, slots // 4),
        gain=around(0.25 - errors / slots - 0.01, 0.02),
        pairs=[PairNumbers("peer", 30, slots / 100, 30, 27, tree, 20)],
    )
    cells = [CellView("all", (), (), slots, tree, 0.9)]
    return LearnerOutcome(name, [tree], slots, counts, timeline, cells)


def small_outcome(*learners: LearnerOutcome) -> Outcome:
    functions = {"a-tree": 25.0, "b-tree": 12.5, "unheard": None}
    points = [(each.judged, each.numbers.net_gain_points) for each in learners]
    gains = [(judged, gain.mean / 100) for judged, gain in points if gain is not None]
    rows = sum(judged for judged, _ in gains)
    mean = sum(judged * gain for judged, gain in gains) / max(1, rows)
    gain = around(mean, 0.01) if rows else None
    total = total_of([learner.numbers for learner in learners], gain)
    return Outcome(300, 0, [], "CoS", list(learners), functions, total)


def numbers_of(outcome: Outcome) -> Any:
    """Return the summary of an outcome as its JSON has it."""
    return msgspec.to_builtins(outcome.summary)


class Reader(HTMLParser):
    """Collects what a browser would see, and fails on tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.nesting: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for key, value in attrs if key == "id"]
        self.links += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.nesting.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.nesting.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.nesting.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.nesting == []
    return reader


def drawings(page: str) -> list[ElementTree.Element]:
    found = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    return [ElementTree.fromstring(svg) for svg in found]  # noqa: S314 - drawn by covey itself


def shown_words(page: str) -> str:
    return " ".join(" ".join(read(page).words).split())
