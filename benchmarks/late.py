"""CPU time of a replay by when labels come: at once, or 1, 100 or 10,000 slots late.

python benchmarks/late.py

The 4 x 2 network of `network.py` is replayed from arrays, by turns; the least time of each counts.
"""

import argparse

import network

import replay

SLOTS = 100_000
DELAYS = (0, 1, 100, 10_000)
POLICIES = {
    "cos": {"preset": "cos", "slices": 12},
    "dcza": {"preset": "dcza"},
    "auto": {"preset": "auto"},
}


def main() -> None:
    """Print the times, and their ratios to those of prompt labels."""
    parser = argparse.ArgumentParser(description="Time replays with late labels.")
    parser.add_argument("--rounds", type=int, default=3, help="of all delays by turns (3)")
    options = parser.parse_args()
    recorded = network.draw(SLOTS)
    for name, policy in POLICIES.items():
        rounds = [
            [replay._play(network.config(**policy), recorded, delay) for delay in DELAYS]
            for _ in range(options.rounds)
        ]
        best = [min(times) for times in zip(*rounds, strict=True)]
        for delay, seconds in zip(DELAYS, best, strict=True):
            each = 1e9 * seconds / SLOTS / network.SITES
            ratio = seconds / best[0]
            print(f"{name:6}{delay:8,} slots late{each:8.0f} ns per learner-slot{ratio:7.2f}")


if __name__ == "__main__":
    main()
