"""The default policy beside its two former rules: `python experiments/regret/since.py --seeds 5`.

Runs of 0.1.0 are in reference.json, seed by seed; of 0.2.0 published.json has the published means.
"""

import argparse
import math
from pathlib import Path

import kinds
import msgspec
import tables

from covey.simulation.run import Run

PUBLISHED = Path(__file__).with_name("published.json")
HEADS = ["", "0.1.0", "now", "now to 0.1.0", "0.2.0 to 0.1.0", "now to 0.2.0", "points", "of 0.2.0",
         "alarms", "of 0.2.0"]  # fmt: skip


class Published(msgspec.Struct, frozen=True):
    """What the page had of the default of 0.2.0 in a world, means of all seeds."""

    former: float  # regret per slot of 0.1.0
    regret: float
    alarms: float
    points: float  # errors and costs in points, less those of 0.1.0


def main() -> None:
    """Play what is left of a part, and print how regret compares with that of former rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ["worlds", "worlds-short", "worlds-long"]
    parser.add_argument("--part", default="worlds", choices=parts)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    part = kinds.part_of(options.part, seeds=options.seeds)._replace(policies=(kinds.DEFAULT,))
    played = kinds.play(part, options.out / "runs" / "kinds", workers=1)
    runs = {**kinds.recalled(part), **played}
    lost = kinds.losses(runs)
    by_part = msgspec.json.decode(PUBLISHED.read_bytes(), type=dict[str, dict[str, Published]])
    rows, ratios = [], []
    for world, before in by_part[options.part].items():
        now, first = (tables.mean(lost[name, world]) for name in (kinds.DEFAULT, kinds.FORMER))
        later = before.regret / before.former
        ratios.append((now / first, later))
        played_now, played_first = (runs[name, world] for name in (kinds.DEFAULT, kinds.FORMER))
        points = [f"{_points(played_now) - _points(played_first):+.2f}", f"{before.points:+.2f}"]
        alarms = [f"{tables.mean([run.alarms for run in played_now]):.1f}", f"{before.alarms:.1f}"]
        regrets = [f"{first:.4f}", f"{now:.4f}"]
        rows.append([world, *regrets, *_ratios(now / first, later), *points, *alarms])
    middles = [math.exp(tables.mean([math.log(pair[k]) for pair in ratios])) for k in range(2)]
    print(tables.table(HEADS, [["geometric mean", "", "", *_ratios(*middles), *[""] * 4], *rows]))


def _ratios(now: float, before: float) -> list[str]:
    return [f"{now:.2f}", f"{before:.2f}", f"{now / before:.2f}"]


def _points(runs: list[Run]) -> float:
    return tables.mean([100 * (run.errors + run.cost) for run in runs])


if __name__ == "__main__":
    main()
