"""CPU time and peak memory of `covey replay` beside Vowpal Wabbit, each on its own kind of log.

python benchmarks/vowpal.py --vowpal /path/to/python [--rows 1000000] [--rounds 3]

`--vowpal` is a Python that has vowpalwabbit; it may be any environment. Writes VOWPAL.md.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as arrow
from command import COVEY, METER, Used
from large_log import POLICIES
from msgspec import json
from pyarrow import csv

PAGE = Path(__file__).with_name("VOWPAL.md")
FUNCTIONS = 8
METHOD = f"""\
One stream of one site with {FUNCTIONS} functions and two contexts, in two forms: a CSV log of
contexts, label and all predictions for covey, and a text log of Vowpal Wabbit's own,
`action:cost:probability | x:.. y:..`, of one function by turns of chance. Each command runs in a
process of its own, start of the interpreter included; the candidates take turns, and the least
CPU time of all rounds counts. The algorithms differ, and so do their results: `covey replay` also
plays the same policy without contexts, and prints intervals."""


def write_logs(folder: Path, rows: int) -> None:
    """Write a stream as `log.csv` and as `log.vw`."""
    rng = np.random.default_rng(1)
    x, y = rng.random((2, rows)).round(4)
    labels = rng.integers(0, 2, rows)
    phases = np.arange(FUNCTIONS)[:, None]
    accuracy = 0.55 + 0.4 * np.abs(np.sin(3 * x + phases) * np.cos(y + phases))
    is_right = rng.random((FUNCTIONS, rows)) < accuracy
    predictions = np.where(is_right, labels, 1 - labels)
    named = {f"f{k}": column for k, column in enumerate(predictions)}
    csv.write_csv(arrow.table({"x": x, "y": y, "label": labels, **named}), folder / "log.csv")
    chosen = rng.integers(0, FUNCTIONS, rows)
    costs = 1 - is_right[chosen, np.arange(rows)]
    with (folder / "log.vw").open("w", encoding="utf-8") as file:
        file.writelines(
            f"{action + 1}:{cost}:{1 / FUNCTIONS} | x:{a} y:{b}\n"
            for action, cost, a, b in zip(
                chosen.tolist(), costs.tolist(), x.tolist(), y.tolist(), strict=True
            )
        )
    site = f'[[learner]]\nname = "site"\nfunctions = {[*named]}\n'
    for policy, text in POLICIES.items():
        tables = f'[data]\ncontext = ["x", "y"]\n[policy]\n{text}\n{site}'
        (folder / f"{policy}.toml").write_text(tables, encoding="utf-8")


def commands(vowpal: str) -> dict[str, list[str]]:
    """Return the candidates."""
    learn = [vowpal, "-m", "vowpalwabbit", "--cb_explore", str(FUNCTIONS), "-d", "log.vw"]
    replays = {
        f"covey replay, {policy}": [*COVEY, "replay", "log.csv", "--config", f"{policy}.toml"]
        for policy in POLICIES
    }
    learners = {"epsilon-greedy": [], "squarecb": ["--squarecb"]}
    others = {f"Vowpal Wabbit, {name}": [*learn, *more] for name, more in learners.items()}
    return {**replays, **others}


def measure(vowpal: str, rows: int, rounds: int) -> dict[str, Used]:
    """Return the least CPU time of each candidate, and the memory of that round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_logs(folder, rows)
        used: dict[str, list[Used]] = {title: [] for title in commands(vowpal)}
        for _ in range(rounds):
            for title, command in commands(vowpal).items():
                metered = [sys.executable, "-I", "-S", str(METER), "printed", *command, "--quiet"]
                done = subprocess.run(metered, cwd=folder, capture_output=True, check=True)
                used[title].append(Used(**json.decode(done.stdout)))
    return {title: min(runs, key=lambda run: run.cpu_s) for title, runs in used.items()}


def table(found: dict[int, dict[str, Used]]) -> str:
    """Return the table of all candidates, with logs of each size."""
    lines = ["| rows | candidate | CPU us a row | to Vowpal Wabbit | peak memory, MB |"]
    lines.append("|--:|---|--:|--:|--:|")
    for rows, used in found.items():
        least = min(run.cpu_s for title, run in used.items() if title.startswith("Vowpal"))
        for title, run in used.items():
            cells = f"{1e6 * run.cpu_s / rows:.2f} | {run.cpu_s / least:.2f}"
            lines.append(f"| {rows:,} | {title} | {cells} | {run.peak_bytes / 1e6:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure logs of two sizes, print the table and write it."""
    parser = argparse.ArgumentParser(description="Replay a stream beside Vowpal Wabbit.")
    parser.add_argument("--vowpal", required=True, help="a Python that has vowpalwabbit")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the smaller log")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sizes = (options.rows, 4 * options.rows)
    found = {rows: measure(options.vowpal, rows, options.rounds) for rows in sizes}
    lines = table(found)
    made_by = " ".join(["python benchmarks/vowpal.py", *sys.argv[1:]])
    page = f"# Beside Vowpal Wabbit\n\nMade by `{made_by}`; do not edit by hand.\n\n"
    PAGE.write_text(f"{page}{METHOD}\n\n{lines}\n", encoding="utf-8")
    print(lines)


if __name__ == "__main__":
    main()
