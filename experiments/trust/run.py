"""Measure what a site gains and loses by trust that is earned; write the table of the README.

`make trust` runs all of it; `--quick` plays two short runs of each scene.
"""

import argparse
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import sites

from covey.site.trust import Trust

SEEDS, SLOTS = 20, 2_000
GOAL = 1.05
RESAMPLES = 10_000
FOLDER = Path(__file__).parent
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
SHOWN_IN_FULL = (sites.BEST_WRONG.name,)


class Job(NamedTuple):
    """One run."""

    scene: str
    trust: Trust
    seed: int
    slots: int


SCENES = {**sites.HONEST, **sites.CHANGING, **sites.FALSE}


def jobs(seeds: int, slots: int) -> list[Job]:
    """Return all runs; those that show the goals come first."""
    found = []
    for name, scene in SCENES.items():
        is_false = scene.lie is not None
        trusts: list[Trust] = ["earned", "isolated" if is_false else "full"]
        if name in SHOWN_IN_FULL:
            trusts.append("full")
        found += [Job(name, one, seed, slots) for one in trusts for seed in range(seeds)]
    return found


def twin(job: Job) -> Job:
    """Return a run that is the same: an isolated site does not depend on what others do."""
    if job.trust != "isolated":
        return job
    changes = SCENES[job.scene].changes
    same = (name for name, one in sites.FALSE.items() if one.changes == changes)
    return job._replace(scene=next(same))


def played(job: Job) -> tuple[Job, Any]:
    """Play one run."""
    return job, sites.play(SCENES[job.scene], job.trust, job.seed, job.slots)._asdict()


def interval(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of two means and its 95 % interval, over seeds in pairs."""
    rng = np.random.default_rng(0)
    picked = rng.integers(len(ours), size=(RESAMPLES, len(ours)))
    ratios = ours[picked].mean(axis=1) / theirs[picked].mean(axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(ours.mean() / theirs.mean()), float(low), float(high)


def table(results: dict[tuple[str, str], list[Any]], scenes: Any, base: str) -> list[str]:
    """Return the lines of a table that compares earned trust with another one."""
    lines = [
        f"| labels of the sources | `earned` | `{base}` | ratio | goal | parted: liar, honest |",
        "|---|---|---|---|---|---|",
    ]
    for name, scene in scenes.items():
        earned, other = results[name, "earned"], results[name, base]
        losses = [np.array([run["loss"] for run in runs]) for runs in (earned, other)]
        ratio, low, high = interval(*losses)
        goal = "met" if high <= GOAL else "**not met**"
        liars = {sites.LIAR} if scene.lie is not None else set()
        counts = [
            sum(any(run["parted"][one] for one in some) for run in earned)
            for some in (liars, set(sites.SOURCES) - liars)
        ]
        parted = f"{counts[0] if liars else '-'}, {counts[1]} of {len(earned)}"
        lines.append(
            f"| {name} | {losses[0].mean():.4f} | {losses[1].mean():.4f} "
            f"| {ratio:.3f} ({low:.3f} to {high:.3f}) | {goal} | {parted} |"
        )
    return lines


def alarms(results: dict[tuple[str, str], list[Any]]) -> list[str]:
    """Return how often changes were found with earned trust, where there were none and some."""
    lines = []
    for what, is_changing in (("without a change", False), ("with one or two changes", True)):
        runs = [
            run
            for (name, trust), several in results.items()
            if trust == "earned" and bool(SCENES[name].changes) == is_changing
            for run in several
        ]
        found = sum(run["alarms"] > 0 for run in runs)
        lines.append(f"With `earned` trust, {found} of {len(runs)} runs {what} had an alarm.")
    return lines


def page(results: dict[tuple[str, str], list[Any]], seeds: int, slots: int) -> str:
    """Return the measured part of the README."""
    poisoned = [
        f"With `full` trust the site loses {np.mean([run['loss'] for run in runs]):.4f} where the "
        f"liar makes {name!r} of it."
        for name in SHOWN_IN_FULL
        if (runs := results.get((name, "full")))
    ]
    return "\n".join(
        [
            f"{slots:,} slots, {seeds} seeds.",
            "",
            "All sources are honest:",
            "",
            *table(results, sites.HONEST, "full"),
            "",
            "The same, with a change within the half that is measured:",
            "",
            *table(results, sites.CHANGING, "full"),
            "",
            "One of the three sources lies:",
            "",
            *table(results, sites.FALSE, "isolated"),
            "",
            *poisoned,
            "",
            *alarms(results),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds, 200 slots")
    parser.add_argument("--out", type=Path, default=FOLDER / "README.md", help="page to write into")
    parser.add_argument("--kept", type=Path, help="file of runs that need not be played again")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    seeds, slots = (2, 200) if given.quick else (SEEDS, SLOTS)
    todo, done = jobs(seeds, slots), {}
    if given.kept is not None and given.kept.exists():
        lines = map(json.loads, given.kept.read_text().splitlines())
        done = {Job(*line["job"]): line["run"] for line in lines}
    left = [job for job in dict.fromkeys(map(twin, todo)) if job not in done]
    with multiprocessing.Pool(given.processes) as pool:
        for count, (job, run) in enumerate(pool.imap_unordered(played, left), 1):
            done[job] = run
            print(f"{count} of {len(left)} runs", end="\r", file=sys.stderr)
            if given.kept is not None:
                with given.kept.open("a") as file:
                    file.write(json.dumps({"job": job, "run": run}) + "\n")
    results: dict[tuple[str, str], list[Any]] = {}
    for job in todo:
        results.setdefault((job.scene, job.trust), []).append(done[twin(job)])
    text = given.out.read_text() if given.out.exists() else f"{BEGIN}\n{END}\n"
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    given.out.write_text(f"{before}{BEGIN}\n{page(results, seeds, slots)}\n{END}{after}")


if __name__ == "__main__":
    main()
