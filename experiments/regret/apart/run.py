"""The default policy in worlds kept apart: `python experiments/regret/apart/run.py --seeds 20`.

Of its two former rules `published.json` has the mean regret of 20 seeds in the same worlds, played
with the kernels of those versions.
"""

import argparse
import json
import math
from pathlib import Path

from covey.simulation import scenario
from covey.simulation.comparison import total
from covey.simulation.run import play

HERE = Path(__file__).parent
FORMER = ("0.1.0", "0.2.0")


def main() -> None:
    """Play all worlds, and print how regret compares with that of former rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--slots", type=int, default=None)
    options = parser.parse_args()
    published = json.loads((HERE / "published.json").read_text())
    chosen = scenario.load(HERE / "worlds.toml", horizon_slots=options.slots, seeds=options.seeds)
    print("| world | now | to 0.1.0 | to 0.2.0 | alarms |\n|---|--:|--:|--:|--:|")
    logs: dict[str, list[float]] = {name: [] for name in FORMER}
    for world, environment in chosen.environments.items():
        runs = [
            play(
                environment,
                chosen.policies["auto"],
                seed=seed,
                horizon=chosen.horizon,
                checkpoints=[chosen.horizon],
            )
            for seed in chosen.seeds
        ]
        lost = sum(total(run)[-1] for run in runs) / len(runs) / chosen.horizon
        ratios = {name: lost / published[world][name] for name in FORMER}
        for name, ratio in ratios.items():
            logs[name].append(math.log(ratio))
        alarms = sum(run.alarms for run in runs) / len(runs)
        shown = " | ".join([f"{ratio:.2f}" for ratio in ratios.values()])
        print(f"| {world} | {lost:.4f} | {shown} | {alarms:.1f} |", flush=True)
    for name, values in logs.items():
        mean, worst = math.exp(sum(values) / len(values)), math.exp(max(values))
        print(f"to {name}: geometric mean {mean:.2f}, worst {worst:.2f}")


if __name__ == "__main__":
    main()
