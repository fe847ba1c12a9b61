"""Make the tables of this folder: `python experiments/regret/run.py`, or `make regret`.

Finished runs are kept under `runs`, so that the same command goes on after an interruption.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import costs
import kind_tables
import kinds
import msgspec
import playing
import streams
import summary
import tables
from kinds import Part
from playing import Effort, Played

from covey import files
from covey.errors import CoveyError

QUICK = Effort(slots=200, seeds=1, horizons=(100, 200), workers=1)
POLICIES = playing.HERE.parents[1] / "docs" / "guide" / "policies.md"
COMMAND = "python experiments/regret/run.py"
READ = (
    "A cell has the regret per slot of one receiving learner and, below it, its ratio to the "
    "better of `cos` and `dcza` (both Z1) in that environment, with the 95 % interval of 10,000 "
    "resamples of the seeds in pairs. The one that is the better has no ratio."
)


READ_KINDS = (
    "All presets, and plain baselines ([baselines.py](baselines.py)) with the same prices and "
    "information: the owner of a function sees every labelled use of it and tells all learners "
    "what it is worth. Those of [linear.py](linear.py) are policies of one's own, which judge "
    "peers by the labels of the learner itself. EXP3.S and the two with cells know the horizon, "
    "which no preset does. "
    f"Of the *{kinds.FORMER}* the numbers are kept in [reference.json](reference.json); where they "
    "are of other worlds, ratios are to today's default. "
    "A cell has the regret per slot of one receiving learner and its ratio to the reference, with "
    "the 95 % interval of 10,000 resamples of the seeds in pairs. *The best of all* is, in each "
    "world, the preset or baseline that lost least there on average."
)
KINDS = (
    ("worlds", "Sizes, structures, changes, dependence and labels", "Names say how a world differs "
     "from four learners with two functions each, bumps, one dimension and price 0.05."),
    ("worlds-short", "Little time", "Policies have just begun."),
    ("worlds-long", "Much time", "Baselines that need too long are left out."),
)  # fmt: skip
PARTS = (*kinds.REMEMBERED, "sensitivity", "free")
QUICK_SLOTS = {
    "worlds": 40, "worlds-short": 40, "worlds-long": 40, "growth-presets": 1_000, "streams": 200
}  # fmt: skip
CONSTANTS = {"index-scale": 0.5, "alarm": 5.0}  # of the default
# Worlds in which functions are scored by every label, beside the same worlds where they are not.
FREE = ("one receives", "spread over sites", "two dimensions", "one good of 12 functions",
        "contexts say nothing", "switch 5000 one receives", "improving arms",
        "one improving arm one receives", "recurring concepts", "errors in runs 0.5",
        "labels of 5 percent")  # fmt: skip


class Found(NamedTuple):
    """All that was played and measured."""

    cases: Played
    suite: Played
    switching: Played
    one_cell: Played
    growth: list[Played]
    scaled: list[list[Played]]  # by dimension
    liars: Played
    useful: Played  # liars that are sometimes the best
    costs: costs.Costs
    kinds: "dict[str, PlayedPart]"  # by the name of the part
    sensitivity: "PlayedPart"
    free: "list[PlayedPart]"  # functions that are scored only where they were chosen, and all


def main() -> None:
    """Play what is left, and write the page, and the lines in that on policies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few slots and seeds, to see it run")
    parser.add_argument("--out", type=Path, help="the folder of the page and the runs")
    parser.add_argument("--guide", type=Path, help="the page on policies")
    parser.add_argument("--data", type=Path, help="folder of recorded streams (or COVEY_DATA)")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--only", choices=PARTS, help="print the tables of one part, and no page")
    parser.add_argument(
        "--policies",
        help="with --only: presets and baselines, with commas between; with keys: 'auto alarm=0'",
    )
    parser.add_argument("--worlds", default="", help="with --only: parts of names, with commas")
    parser.add_argument("--seeds", type=int, help="with --only: how many")
    parser.add_argument("--slots", type=int, help="with --only: how many")
    parser.add_argument(
        "--write-reference",
        action="store_true",
        help="keep what today's default loses as what later ones are compared with",
    )
    given = parser.parse_args()
    try:
        _make(given)
    except CoveyError as error:
        sys.exit(f"regret: {error}")


def _make(given: argparse.Namespace) -> None:
    out = given.out or (Path("build/regret") if given.quick else playing.HERE)
    effort = QUICK if given.quick else Effort()
    if given.quick:
        playing.probe_slots = QUICK.slots
    effort = effort._replace(workers=given.workers or effort.workers)
    if given.only or given.write_reference:
        (_remember if given.write_reference else _print_part)(given, out)
        return
    kept = out / "runs" / ("quick" if given.quick else "scenarios")
    kept.mkdir(parents=True, exist_ok=True)
    found = _find(kept, effort, given, out)
    sections = [
        _cases,
        _suite,
        _switching,
        _kinds,
        _recorded,
        _growth,
        _preset_growth,
        _liars,
        _costs,
    ]
    text = "\n\n".join([_head(effort), *(section(found) for section in sections)])
    files.replace(out / "README.md", f"{text}\n".encode())
    print(f"{out / 'README.md'} is written", file=sys.stderr)
    if given.guide or not given.quick:
        _tell_policies(given.guide or POLICIES, found)


class PlayedPart(NamedTuple):
    """A part of the kinds of worlds, and its runs, with the remembered ones."""

    part: Part
    runs: kinds.Runs

    @property
    def own(self) -> kinds.Runs:
        """The runs that were played now."""
        return {pair: runs for pair, runs in self.runs.items() if pair[0] in self.part.policies}


def _part(name: str, given: argparse.Namespace, out: Path) -> Part:
    """Return a part as the command asks for it."""
    slots, seeds = given.slots, given.seeds
    if given.quick:
        slots, seeds = slots or QUICK_SLOTS[name], seeds or 1
    if name == "streams":
        count = 1 if given.quick else len(streams.RECORDED)
        part = kinds.recorded_part(
            given.data, out / "runs" / "logs", slots=slots, seeds=seeds, count=count
        )
    else:
        part = kinds.part_of(name, slots=slots, seeds=seeds)
    if given.policies:
        part = part._replace(policies=tuple(one.strip() for one in given.policies.split(",")))
    chosen = given.worlds.split(",")
    worlds = part.environments.items()
    kept = {world: one for world, one in worlds if any(text.strip() in world for text in chosen)}
    if given.quick and name == "worlds":
        kept = {world: one for world, one in kept.items() if world in FREE}
    return part._replace(environments=kept)


def _played(part: Part, given: argparse.Namespace, out: Path) -> PlayedPart:
    workers = given.workers or (1 if given.quick else len(os.sched_getaffinity(0)))
    runs = kinds.play(part, out / "runs" / "kinds", workers=workers)
    return PlayedPart(part, {**kinds.recalled(part), **runs})


def _remember(given: argparse.Namespace, out: Path) -> None:
    parts = [_part(name, given, out) for name in kinds.REMEMBERED]
    kinds.remember(parts, out / "runs" / "kinds", workers=given.workers or 1)


def _print_part(given: argparse.Namespace, out: Path) -> None:
    """Print the tables of one part, for the policies and worlds asked for."""
    if given.only == "sensitivity":
        print(kind_tables.sensitivity_table(_sensitivity(given, out).runs))
        return
    if given.only == "free":
        print(_free_table(_free(given, out)))
        return
    played = _played(_part(given.only, given, out), given, out)
    if given.only == "streams":
        print(kind_tables.stream_table(played.runs))
    elif given.only == "growth-presets":
        print(kind_tables.growth_table(played.runs))
    else:
        found = kind_tables.compared(played.runs)
        print(kind_tables.ratio_table(found, played.part.policies))
        print(f"\n{kind_tables.summary_table(found)}")


def _sensitivity(given: argparse.Namespace, out: Path) -> PlayedPart:
    """Return runs of the default with each of its constants halved and doubled."""
    part = _part("worlds", given, out)
    changed = [
        f"{kinds.DEFAULT} {key}={factor * value:g}"
        for key, value in CONSTANTS.items()
        for factor in (0.5, 2.0)
    ]
    return _played(part._replace(policies=(kinds.DEFAULT, *changed)), given, out)


def _free(given: argparse.Namespace, out: Path) -> list[PlayedPart]:
    """Return runs of the default where functions are not free, and where they are."""
    part = _part("worlds", given, out)
    worlds = {name: one for name, one in part.environments.items() if name in FREE}
    free = {name: msgspec.structs.replace(one, free=True) for name, one in worlds.items()}
    return [
        _played(part._replace(policies=(kinds.DEFAULT,), environments=some), given, out)
        for some in (worlds, free)
    ]


def _free_table(parts: Sequence[PlayedPart]) -> str:
    return kind_tables.free_table(*(part.own for part in parts))


def _find(kept: Path, effort: Effort, given: argparse.Namespace, out: Path) -> Found:
    return Found(
        cases=playing.play("cases", kept, effort),
        suite=playing.play("suite", kept, effort),
        switching=playing.play("switching", kept, effort),
        one_cell=playing.play("switching-one-cell", kept, effort),
        growth=playing.play_series("growth", kept, effort),
        scaled=[playing.play_series(f"growth-scaled-{d}d", kept, effort) for d in (1, 2)],
        liars=playing.play("liars", kept, effort),
        useful=playing.play("liars-useful", kept, effort),
        costs=_measured(kept / "costs.json", effort),
        kinds={name: _played(_part(name, given, out), given, out) for name in kinds.REMEMBERED},
        sensitivity=_sensitivity(given, out),
        free=_free(given, out),
    )


def _measured(path: Path, effort: Effort) -> costs.Costs:
    if not path.exists():
        measured = costs.measure(costs.QUICK if effort.slots else costs.FULL)
        files.replace(path, msgspec.json.encode(measured))
    return msgspec.json.decode(path.read_bytes(), type=costs.Costs)


def _tell_policies(path: Path, found: Found) -> None:
    ratios = {
        "in the four cases": tables.entries(found.cases),
        "in the wider suite": tables.entries(found.suite),
        "where accuracies switch": tables.entries(found.switching),
        "where they switch and contexts say nothing": tables.entries(found.one_cell),
    }
    text = summary.block(ratios, found.liars, found.costs)
    files.replace(path, summary.splice(path.read_text(), text).encode())


def _head(effort: Effort) -> str:
    command = f"{COMMAND}{' --quick' if effort.slots else ''}"
    return (
        "# Regret, measured\n\n"
        f"Made by `{command}`{'' if effort.slots else ' (`make regret`)'}; no number here is typed "
        "by hand. What is played stands in the TOML files beside this page; what the words mean, "
        "in [simulation](../../docs/research/simulation.md), "
        "[environments](../../docs/research/simulation.md#keys-of-an-environment) and "
        "[policies](../../docs/guide/policies.md). "
        "Worlds differ from seed to seed, and all policies "
        "meet the same ones."
    )


def _played_as(played: Played) -> str:
    scenario = played.scenario
    return f"{scenario.horizon:,} slots, {len(scenario.seeds)} seeds"


def _cases(found: Found) -> str:
    played = found.cases
    entries = tables.entries(played)
    return _joined(
        f"## The four cases ([cases.toml](cases.toml), {_played_as(played)})",
        "4 learners with 2 functions each, bumps, one dimension.",
        READ,
        tables.matrix(entries),
        tables.goal(entries, 0.8),
        tables.no_harm(entries, 1.05),
    )


def _suite(found: Found) -> str:
    played = found.suite
    entries = tables.entries(played)
    return _joined(
        f"## A wider suite ([suite.toml](suite.toml), {_played_as(played)})",
        "Price 0.05; uniform contexts, the same for all, unless the name says otherwise.",
        tables.matrix(entries),
        tables.no_harm(entries, 1.05),
    )


def _switching(found: Found) -> str:
    parts = []
    for name, title, played in (
        ("switching", "with contexts", found.switching),
        ("switching-one-cell", "no context, one cell", found.one_cell),
    ):
        entries = tables.entries(played)
        parts += [
            f"### {title} ([{name}.toml]({name}.toml), {_played_as(played)})",
            tables.matrix(entries),
            tables.goal(entries, 0.25),
        ]
    return _joined("## Accuracies that switch", *parts)


def _growth(found: Found) -> str:
    series = found.growth
    seeds = len(series[0].scenario.seeds)
    horizons = [played.scenario.horizon for played in series]
    return _joined(
        f"## How regret grows ([growth.toml](growth.toml), {seeds} seeds at each horizon)",
        "CoS and DCZA with the theorems' parameters, each run made for its horizon. *Over T*: p of "
        "c · T^p through the regret at the later half of the horizons; *within the longest*: "
        "through that of the slots of the longest runs. ± is Student's 95 % over seeds. On the "
        "right, regret of one receiving learner and, in brackets, how much of the time it trained "
        "or explored. A regret that grows less than the theorem allows keeps to it. "
        "The exponent for DCZA in C3 and C4 is proved for p = 3 alpha only; played is the p of C1 "
        "and C2 ([why that matters](../../docs/research/bounds.md)). "
        "DCZA loses in steps, as cells are "
        "split, so that its exponents swing.",
        tables.growth_table(series),
        "### When CoS begins to exploit where contexts are spread evenly",
        "Before, all is training and exploring, and no exponent says anything. Computed "
        "([bounds](../../docs/research/bounds.md)), not played.",
        tables.exploitation_table([horizons[0], horizons[-1]]),
        "### A hundredth of the thresholds "
        "([one dimension](growth-scaled-1d.toml), [two](growth-scaled-2d.toml))",
        "The theorems' powers of t, and 0.01 of their scales: nothing is proved of it.",
        *(tables.growth_table(one) for one in found.scaled),
    )


def _kinds(found: Found) -> str:
    parts = []
    for name, title, note in KINDS:
        played = found.kinds[name]
        part, ratios = played.part, kind_tables.compared(played.runs)
        presets = [policy for policy in part.policies if policy not in kinds.PLAIN]
        plain = [policy for policy in part.policies if policy in kinds.PLAIN]
        parts += [
            f"### {title} ([{name}.toml]({name}.toml), {part.horizon:,} slots, "
            f"{len(part.seeds)} seeds)",
            note,
            kind_tables.summary_table(ratios),
            "Every world, presets:",
            kind_tables.ratio_table(ratios, presets),
            *(["Baselines:", kind_tables.ratio_table(ratios, plain)] if plain else []),
            f"The best in hindsight, and `{kinds.DEFAULT}`:",
            kind_tables.best_table(ratios),
            f"What `{kinds.DEFAULT}` does besides:",
            kind_tables.measure_table(played.own),
        ]
    seeds = len(found.sensitivity.part.seeds)
    return _joined(
        "## Kinds of worlds",
        READ_KINDS,
        *parts,
        f"### Constants of `{kinds.DEFAULT}`, halved and doubled "
        f"([worlds.toml](worlds.toml), {seeds} seeds)",
        kind_tables.sensitivity_table(found.sensitivity.runs),
        f"### Free functions ([worlds.toml](worlds.toml), {seeds} seeds)",
        f"Regret per slot of `{kinds.DEFAULT}` where an owner learns of the function that was "
        "chosen only, and where all its functions are "
        "[free](../../docs/guide/functions.md#free-functions): every label scores all of them.",
        _free_table(found.free),
    )


def _recorded(found: Found) -> str:
    played = found.kinds["streams"]
    part, title = played.part, "## Recorded streams, drawn in blocks"
    if not part.environments:
        return _joined(
            title,
            "Left out: COVEY_DATA names no folder with the data, or scikit-learn, which trains the "
            "functions, is not installed.",
        )
    return _joined(
        f"{title} ({part.horizon:,} slots, {len(part.seeds)} seeds)",
        "Blocks of consecutive rows keep the dependence of errors "
        "(`Blocks` in `streams.py`). Eight functions of "
        "four learners, trained on rows before the window; an answer of a peer costs "
        f"{streams.PRICE:g}. Percent of decisions that were wrong plus what was paid, in points; "
        "below, the two.",
        kind_tables.stream_table(played.runs),
    )


def _preset_growth(found: Found) -> str:
    played = found.kinds["growth-presets"]
    return _joined(
        "## How the regret of every preset grows "
        f"([growth-presets.toml](growth-presets.toml), {len(played.part.seeds)} seeds)",
        "Regret per slot, and local exponents: p of c · T^p through the regret at the ends of a "
        "decade, ± Student's 95 % over seeds. No preset is made for the horizon; one learner "
        "receives. A regret that is linear has an exponent of 1.",
        kind_tables.growth_table(played.runs),
    )


def _liars(found: Found) -> str:
    played = found.liars
    return _joined(
        f"## Lying peers ([liars.toml](liars.toml), {_played_as(played)})",
        "One of four learners lies of itself, and its answers are so often wrong that it is never "
        "better than another; *checked* is `check-claims = true` "
        "([what it does](../../docs/guide/policies.md#peers-that-lie)), *trusting* is false. "
        "Shares of decisions in percent, of all learners that receive; the liar, where it receives "
        "too, is one of them. *Worst cell*: the largest over seeds, learners and cells of at "
        "least 1,000 decisions (0: there is none). Regret per slot; *honest*: the same worlds, "
        "and nobody lies.",
        tables.liar_table(played),
        tables.liar_goal(played, 0.03),
        "### A liar of some use "
        f"([liars-useful.toml](liars-useful.toml), {_played_as(found.useful)})",
        "Where a liar is about the best there is, it is asked, and may be: then the share of its "
        "cells says nothing, and the regret does.",
        tables.liar_table(found.useful),
    )


def _costs(found: Found) -> str:
    measured = found.costs
    return _joined(
        "## Time and bytes",
        f"CPU time per slot of one learner, 4 learners with 2 functions each, the best of a few "
        f"rounds; {measured.place}.",
        "The decisions alone (CoS), as a run goes on (Z1, 12 slices) and as more cells are in use "
        "(a label of each arm is enough, and every cell has begun to exploit):",
        _flat(measured.by_slot),
        _flat(measured.by_cells),
        f"{_within(measured.by_slot, 'slots')} {_within(measured.by_cells, 'cells')} "
        f"The last column of the second table has contexts that keep to {costs.FEW_CELLS} of all "
        "these cells: what differs from there is, most likely, the wait for memory that no cache "
        "holds.",
        "Whole runs (`covey.simulation.run.play`), the world and the regret included, and where "
        "the time goes (`benchmarks/simulated.py` has the same for CoS):",
        _by_policy(measured.by_policy),
    )


def _flat(lines: Sequence[costs.Line]) -> str:
    rows = [
        [
            line.what,
            f"{line.nanoseconds:.0f}",
            f"{line.nanoseconds / lines[0].nanoseconds:.2f}",
            f"{line.bytes_per_cell:.0f}",
            *(f"{part:.0f}" for part in line.parts.values()),
        ]
        for line in lines
    ]
    heads = ["", "ns per learner-slot", "to the first", "bytes per used cell"]
    return tables.table([*heads, *lines[0].parts], rows)


def _within(lines: Sequence[costs.Line], what: str) -> str:
    times = [line.nanoseconds for line in lines]
    factor = max(times) / min(times)
    told = "met" if factor <= 2 else "missed"
    return f"Goal: within a factor of 2 over all {what}; **{told}**, {factor:.2f}."


def _by_policy(lines: Sequence[costs.Line]) -> str:
    parts = list(lines[0].parts)
    rows = [
        [
            line.what,
            f"{1e3 / line.nanoseconds:.1f}",
            f"{line.nanoseconds:.0f}",
            *(f"{line.parts[part]:.0f}" for part in parts),
        ]
        for line in lines
    ]
    return tables.table(["", "million learner-slots a second", "ns", *parts], rows)


def _joined(*parts: str) -> str:
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
