"""One decision at a time through the kernel object, against an empty pair of C-level methods."""

from collections.abc import Callable
from functools import partial
from time import process_time

import task
from compiler import NoFloor, floor
from figures import Figure, Row, Verdict, short
from timing import Timing, interleave

from covey.bandit.policies import DCZA, CoS, PolicyRecord
from covey.kernel import Clock, Table, is_compiled, table_of
from covey.kernel.rules import Cell

NAME = "kernel"
TITLE = "The kernel, one decision at a time"
GOAL = 3.0
ROUNDS = {"full": 400, "quick": 60}
PLENTY = 10**12  # arrivals of a peer that needs no training
FLOOR = "empty C-level pair"
GRID = CoS(slices=task.SLICES, parameters="z1")
METHOD = (
    f"CPU time of `decide` and `settle` in one Python loop over {task.SLOTS:,} slots from an empty "
    f"table; {task.ARMS} arms, one context, {task.SLICES} slices, thresholds 1, 2, 1 x t^0.125 ln "
    "t. Peers report their arrivals once, before the loop. The empty pair has the same signatures "
    "and is called by the same loop, whose own time is in every row. Ratios are to the empty pair."
)

Maker = Callable[[], Table]


def measure(effort: str) -> Figure:
    """Time the pair of calls."""
    played = task.draw(0)
    candidates = {"the loop alone": partial(_loop, played)}
    verdict = Verdict(None, "")
    try:
        candidates[FLOOR] = partial(_pairs, floor().Pair, played, [True] * task.SLOTS)
    except NoFloor as error:
        verdict = Verdict(None, f"{error}.")
    makers = _makers()
    notes = {}
    for name, make in makers.items():
        rights, notes[name] = _rehearse(make, played)
        candidates[name] = partial(_pairs, make, played, rights)
    timings = interleave(ROUNDS[effort], candidates)
    rows = [_row(name, timing, timings, notes) for name, timing in timings.items()]
    return Figure(NAME, TITLE, METHOD, rows, [_verdict(timings, verdict)])


def _makers() -> dict[str, Maker]:
    form = "compiled" if is_compiled() else "plain"
    return {
        f"{form}, 5 own arms": partial(_table, GRID, 5),
        f"{form}, 2 own + 3 peers": partial(_table, GRID, 2),
        f"{form}, 5 own arms, DCZA": partial(_table, DCZA(), 5),
    }


def _table(settings: PolicyRecord, functions: int) -> Table:
    policy = settings.resolve(dimension=1, most_functions=2)
    rule = policy.rule(functions=functions, costs=(0.0,) * task.ARMS, position=0)
    table = table_of(Clock(*policy.curves()), rule)
    if functions < task.ARMS:
        for coordinate in range(task.SLICES):
            row = table.cells.meet(Cell(0, (coordinate,)), 1)
            for peer in range(task.ARMS - functions):
                table.hear(row, peer, (PLENTY, 0.0, 1.0, ()), 1)
    return table


def _rehearse(make: Maker, played: task.Task) -> tuple[list[bool], str]:
    """Return whether each slot's decision is right, so that the timed loop need not look it up."""
    table = make()
    rights = []
    exploited = 0
    for slot, (context, outcomes) in enumerate(
        zip(played.contexts, played.outcomes, strict=True), start=1
    ):
        decision = table.decide(context, slot)
        assert decision >= 0
        rights.append(outcomes[decision >> 2 & 0x3FFFF] == 1)
        table.settle(decision, rights[-1], context, slot)
        exploited += decision & 3 == 2
    return rights, f"{100 * exploited / len(rights):.0f} % exploited"


def _pairs(make: Maker, played: task.Task, rights: list[bool]) -> float:
    table = make()
    decide, settle = table.decide, table.settle
    slots = range(1, len(rights) + 1)
    begin = process_time()
    for slot, context, is_right in zip(slots, played.contexts, rights, strict=True):
        settle(decide(context, slot), is_right, context, slot)
    return process_time() - begin


def _loop(played: task.Task) -> float:
    slots = range(1, task.SLOTS + 1)
    begin = process_time()
    for _slot, _context, _bucket in zip(slots, played.contexts, played.buckets, strict=True):
        pass
    return process_time() - begin


def _row(name: str, timing: Timing, timings: dict[str, Timing], notes: dict[str, str]) -> Row:
    ratio = timing.best / timings[FLOOR].best if FLOOR in timings else None
    value = 1e9 * timing.best / task.SLOTS
    return Row(name, value, "ns", timing.over_best, ratio, notes.get(name, ""))


def _verdict(timings: dict[str, Timing], otherwise: Verdict) -> Verdict:
    if FLOOR not in timings:
        return otherwise
    names = ("compiled, 5 own arms", "compiled, 2 own + 3 peers")
    if names[0] not in timings:
        return Verdict(None, "the compiled kernel was not built.")
    ratios = [timings[name].best / timings[FLOOR].best for name in names]
    loop = timings["the loop alone"].best
    net = [(timings[name].best - loop) / (timings[FLOOR].best - loop) for name in names]
    return Verdict(
        max(ratios) <= GOAL,
        f"a decision and its label cost {short(ratios[0])}x (own arms) and {short(ratios[1])}x "
        f"(with peers) the empty pair of C-level methods; the goal is at most {GOAL:g}x. With the "
        f"time of the loop itself taken out it is {short(net[0])}x and {short(net[1])}x.",
    )
