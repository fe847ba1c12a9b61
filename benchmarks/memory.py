"""What the kernel's state takes per used cell and arm."""

import numpy as np
from figures import Figure, Row, Verdict, short

from covey.bandit.policies import DCZA, CoS, PolicyRecord
from covey.kernel import Clock, table_of

NAME = "memory"
TITLE = "Memory of the state"
GOAL = 100.0  # bytes
CELLS = 100_000
ARMS = 5
SLICES = 1_000
METHOD = (
    "`Counters.nbytes()` (counters, the index of cells, spare room included) over cells and arms; "
    f"2 own functions + 3 peers, 2 dimensions, {CELLS:,} cells in use. Arrays grow by half when "
    "they are full, so the row below each gives the worst moment between 1,000 and 100,000 cells. "
    f"CoS: a grid of {SLICES:,} x {SLICES:,} with contexts all over it. DCZA: cells split early "
    "(split-power 0.5), so that there are as many."
)


def measure(effort: str) -> Figure:
    """Fill a table with cells; `effort` changes nothing."""
    del effort
    rows = []
    for name, settings in (
        ("CoS", CoS(slices=SLICES)),
        ("DCZA", DCZA(split_power=0.5, split_scale=2.0)),
    ):
        now, worst = _fill(settings)
        rows.append(Row(f"{name}, {CELLS:,} cells", now, "bytes", note="per used cell and arm"))
        rows.append(Row(f"{name}, worst moment", worst, "bytes", note="per used cell and arm"))
    verdict = Verdict(
        all(row.value <= GOAL for row in rows),
        f"the state takes {short(rows[0].value)} bytes per used cell and arm with CoS and "
        f"{short(rows[2].value)} with DCZA, at the worst moment {short(rows[1].value)} and "
        f"{short(rows[3].value)}; the goal is at most {GOAL:.0f}.",
    )
    return Figure(NAME, TITLE, METHOD, rows, [verdict])


def _fill(settings: PolicyRecord) -> tuple[float, float]:
    policy = settings.resolve(dimension=2, most_functions=2)
    rule = policy.rule(functions=2, costs=(0.0,) * ARMS, position=0)
    table = table_of(Clock(*policy.curves()), rule)
    rng = np.random.default_rng(0)
    worst = 0.0
    slot = 0
    while len(table) < CELLS:
        for context in rng.random((10_000, 2)).tolist():
            slot += 1
            table.decide(tuple(context), slot)
            if len(table) >= CELLS:
                break
            if len(table) >= 1_000:
                worst = max(worst, table.counters.nbytes() / (len(table) * ARMS))
    return table.counters.nbytes() / (len(table) * ARMS), worst
