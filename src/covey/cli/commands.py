"""The commands of logs, simulations and theory: init, replay, compare, demo, simulate, bounds."""

import argparse
import contextlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from covey import config, files, kernel
from covey.bandit import bounds
from covey.bandit.bounds import FORMS, Problem
from covey.bandit.policies import PRESETS
from covey.cli import demo, init
from covey.cli.parser import add_common, as_number, describe, show
from covey.data.logs import TraceFile
from covey.errors import ConfigError, MissingExtra
from covey.jobs.running import cores
from covey.replay import baselines
from covey.replay import replay as replaying
from covey.report import bounds as bounds_report
from covey.report.comparison import compare
from covey.report.results import Result, Shown, SimulationResult, check_folder
from covey.report.text import Progress
from covey.simulation import runner as simulator
from covey.simulation import scenario
from covey.toml import modules_beside

PRESETS_HELP = f"presets of [policy]: {', '.join(PRESETS)}, or module:Class of your own\n"
INIT_EXAMPLES = """\
examples:
  covey init log.csv
  covey init log.parquet --label truth --at station --out stations.toml
"""
REPLAY_EXAMPLES = """\
examples:
  covey replay log.csv --config sites.toml
  covey replay log.parquet --config sites.toml --trace trace.parquet --report out/
  covey replay log.csv.gz --config sites.toml --json | jq .learners.north.error_percent
  covey replay log.csv --config sites.toml --baselines
"""
COMPARE_EXAMPLES = """\
examples:
  covey compare log.csv --config sites.toml
  covey compare log.csv --config sites.toml --presets cos,share-ucb --slices 4,8,16
  covey compare log.parquet --config sites.toml --policies mine.toml --out compared --report out/
  covey compare log.csv --config sites.toml --json | jq -r .conclusion
  covey compare /shared/log.parquet --config sites.toml --on ray://head:10001
"""
BOUNDS_EXAMPLES = """\
examples:
  covey bounds
  covey bounds T1 --horizon 1e6 --dimension 2
  covey bounds dcza --form printed --json
"""
PROBLEM_HELP = {
    "horizon": "slots",
    "alpha": "smoothness of accuracies over contexts, up to 1; above, they are constant",
    "dimension": "of the contexts, 0 to 8",
    "lipschitz": "L: accuracies differ by at most L times distance ** alpha",
    "learners": "of the network",
    "functions": "of the learner that the bound applies to",
    "most-functions": "of any learner (default: the same)",
    "label-probability": "that a label arrives, for T4",
    "longest-delay": "of a label in slots, for T3",
    "split-scale": "A of DCZA",
    "split-power": "p of DCZA (default: that of the theorem)",
}

SIMULATE_EXAMPLES = """\
examples:
  covey simulate
  covey simulate scenario.toml --out runs --html
  covey simulate scenario.toml --out runs --seeds 20 --workers 8
  covey simulate scenario.toml --out runs --on ray://head:10001
  covey simulate --horizon-slots 2000 --json | jq '.scores[] | {policy, environment, exponent}'
"""


def add_init(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Guess which columns of a log are labels, predictions, sites and contexts, say so, and "
        "write a configuration to check and change.",
        INIT_EXAMPLES,
    )
    command.add_argument("log", type=Path, metavar="LOG", help=".csv, .csv.gz or .parquet")
    command.add_argument("--label", metavar="COLUMN", help="the column of true labels")
    command.add_argument("--at", metavar="COLUMN", help="the column that names the site of a row")
    command.add_argument("--out", type=Path, default=Path("sites.toml"), metavar="FILE")
    add_common(command, _init)


def add_replay(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Replay a log of recorded predictions, one row per slot, as if the sites had "
        "cooperated, and report the gain and the cost.",
        f"{PRESETS_HELP}\n{REPLAY_EXAMPLES}",
    )
    _add_log(command)
    command.add_argument(
        "--trace", type=Path, metavar="OUT", help="write every decision to a .csv or .parquet file"
    )
    _add_report(command, "report.html and summary.json")
    command.add_argument(
        "--baselines",
        nargs="?",
        const=",".join(baselines.PLAIN),
        default="",
        metavar="NAMES",
        help=f"comma-separated: {', '.join(baselines.BASELINES)} (no names: all but River's)",
    )
    add_common(command, _replay)


def add_compare(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Replay several policies on the same log and compare their errors and costs, with "
        "intervals of the differences on the same rows. The configured policy is the reference. "
        "Without --presets, --slices and --policies, the usual presets are compared.",
        f"{PRESETS_HELP}\n{COMPARE_EXAMPLES}",
    )
    _add_log(command)
    command.add_argument(
        "--presets", type=_names, default=[], metavar="NAMES", help="comma-separated, see below"
    )
    command.add_argument(
        "--slices",
        type=_counts,
        default=[],
        metavar="N,N",
        help="of each preset; without --presets, of the configured policy",
    )
    command.add_argument(
        "--policies", type=Path, metavar="FILE", help="TOML: [[policy]] tables with a name"
    )
    _add_place(command)
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", help="keeps finished replays, to resume"
    )
    _add_report(command, "comparison.html and comparison.json")
    add_common(command, _compare)


def _add_log(command: argparse.ArgumentParser) -> None:
    config_help = "TOML: columns, policy, sites"
    command.add_argument("log", type=Path, metavar="LOG", help=".csv, .csv.gz or .parquet")
    command.add_argument("--config", type=Path, required=True, metavar="FILE", help=config_help)


def _add_report(command: argparse.ArgumentParser, names: str) -> None:
    command.add_argument("--report", type=Path, metavar="DIR", help=f"folder for {names}")


def _add_place(command: argparse.ArgumentParser) -> None:
    """Add where jobs run."""
    place = command.add_mutually_exclusive_group()
    place.add_argument(
        "--workers", type=_count, metavar="N", help="processes (default: one per core)"
    )
    place.add_argument(
        "--on",
        metavar="CLUSTER",
        help="ray, or ray://host:port: the workers of a Ray cluster (docs/operations/cluster.md)",
    )


def add_demo(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Generate a seeded stream of bursty attacks on four sites, replay it, and "
        "write the report, the log and the configuration.",
        "example:\n  covey demo --out demo-report --slots 50000 --seed 7\n",
    )
    command.add_argument("--out", type=Path, default=Path("demo-report"), metavar="DIR")
    command.add_argument("--slots", type=_count, default=4_600, metavar="N")
    command.add_argument("--seed", type=int, default=1, metavar="N")
    add_common(command, _demo)


def add_simulate(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Run policies in environments with known accuracies, for several seeds, and "
        "report the regret against the oracle, its causes and its growth. The default scenario is "
        "CoS and DCZA in the four cases of arrival. Interrupted runs resume.",
        f"{PRESETS_HELP}\n{SIMULATE_EXAMPLES}",
    )
    command.add_argument(
        "scenario", type=Path, nargs="?", metavar="SCENARIO", help="TOML: policies, environments"
    )
    command.add_argument(
        "--out",
        type=Path,
        default=Path("simulation"),
        metavar="FOLDER",
        help="finished runs, results.parquet and summary.json (default: simulation)",
    )
    command.add_argument("--seeds", type=_count, metavar="N", help="instead of the scenario's")
    command.add_argument(
        "--horizon-slots", type=_count, metavar="N", help="instead of the scenario's"
    )
    _add_place(command)
    command.add_argument(
        "--html", action="store_true", help="write report.html, with the curves, to the folder"
    )
    add_common(command, _simulate)


def add_bounds(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Evaluate the paper's theorems for a network, by term, with the prescribed "
        "parameters and the horizon from which the bounds are not void.",
        BOUNDS_EXAMPLES,
    )
    command.add_argument(
        "theorem",
        nargs="*",
        metavar="THEOREM",
        help="T1 to T6, C1 to C4; cos, learning, delay, missing, cos-mc, dcza "
        "(default: a summary of all)",
    )
    defaults = {field.name: field.default for field in msgspec.structs.fields(Problem)}
    for name, meaning in PROBLEM_HELP.items():
        default = defaults[name.replace("-", "_")]
        hint = meaning if default is None else f"{meaning} (default: {default:g})"
        command.add_argument(f"--{name}", type=_number, default=default, metavar="N", help=hint)
    command.add_argument(
        "--form",
        choices=FORMS,
        default="corrected",
        help="as printed, or with errors corrected (default)",
    )
    add_common(command, _bounds)


def _init(options: argparse.Namespace) -> None:
    if options.out.exists():
        raise ConfigError(f"{options.out} exists; move it, or name another file with --out")
    guessed = init.guess(options.log, label=options.label, at=options.at)
    written = init.text(guessed, log=options.log.name)
    config.load(tomllib.loads(written))
    files.replace(options.out, written.encode())
    if options.json:
        print(msgspec.json.encode(guessed._asdict()).decode())
        return
    for note in guessed.notes:
        print(note)
    for warning in guessed.warnings:
        print(f"covey: warning: {warning}", file=sys.stderr)
    print(f"\n{options.out} is written; check it, then:", file=sys.stderr)
    print(f"  covey replay {options.log} --config {options.out}", file=sys.stderr)


def _replay(options: argparse.Namespace) -> None:
    if options.report is not None:
        check_folder(options.report)
    setup, methods = config.load(options.config), _names(options.baselines)
    with contextlib.ExitStack() as stack:
        trace = None if options.trace is None else stack.enter_context(TraceFile(options.trace))
        progress = stack.enter_context(Progress("replay", is_quiet=options.quiet))
        outcome = replaying.replay_file(
            options.log, setup, trace=trace, progress=progress, baselines=methods
        )
    result = Result(outcome, title=f"Replay of {options.log.name}", config=options.config)
    _show(result, options)


def _show(result: Shown, options: argparse.Namespace) -> None:
    show(result, options)
    if options.report is not None:
        print(f"report: {result.report(options.report)}", file=sys.stderr)


def _compare(options: argparse.Namespace) -> None:
    if options.report is not None:
        check_folder(options.report)
    with _kept_in(options.out, "replays"), Progress("compare", is_quiet=options.quiet) as progress:
        comparison = compare(
            options.config,
            options.log,
            presets=options.presets,
            slices=options.slices,
            policies=options.policies,
            workers=options.workers or cores(),
            out=options.out,
            progress=progress,
            on=options.on,
        )
    _show(comparison, options)


@contextlib.contextmanager
def _kept_in(folder: Path | None, what: str) -> Iterator[None]:
    """Say after an interrupt that finished work is kept, and how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is not None:
            text = f"{folder} keeps finished {what}; repeat the command to resume"
            print(f"\ncovey: {text}", file=sys.stderr)
        raise


def _demo(options: argparse.Namespace) -> None:
    log, toml = demo.write(options.out, slots=options.slots, seed=options.seed)
    setup = config.load(toml)
    with Progress("demo", is_quiet=options.quiet) as progress:
        outcome = replaying.replay_file(log, setup, progress=progress)
    result = Result(outcome, title="Four sites under bursty attack", config=toml)
    show(result, options)
    print(f"\nlog and configuration: {log}, {toml}", file=sys.stderr)
    try:
        print(f"report: {result.report(options.out)}", file=sys.stderr)
    except MissingExtra as missing:
        print(f"report: left out; {missing}", file=sys.stderr)
    print(f"try: covey replay {log} --config {toml} --trace trace.csv", file=sys.stderr)
    if not kernel.is_compiled():
        text = "the kernel ran as plain Python; `make fast` compiles it: the same numbers, sooner"
        print(text, file=sys.stderr)


def _simulate(options: argparse.Namespace) -> None:
    chosen = scenario.load(
        options.scenario,
        usual_workers=cores(),
        seeds=options.seeds,
        horizon_slots=options.horizon_slots,
        workers=options.workers,
    )
    out: Path = options.out
    if options.html:
        check_folder(out)
    with (
        _kept_in(out, "runs"),
        modules_beside(options.scenario),
        Progress("simulate", is_quiet=options.quiet) as progress,
    ):
        runs = simulator.simulate(chosen, out, progress=progress, on=options.on)
    result = SimulationResult(chosen, runs, config=options.scenario)
    files.replace(out / "summary.json", result.json(indent=2).encode())
    show(result, options)
    if options.html:
        print(f"report: {result.report(out)}", file=sys.stderr)


def _bounds(options: argparse.Namespace) -> None:
    names = [name.replace("-", "_") for name in PROBLEM_HELP]
    problem = Problem(**{name: getattr(options, name) for name in names})
    sheet = bounds.sheet(options.theorem, problem, form=options.form)
    if options.json:
        print(msgspec.json.encode(sheet).decode())
    elif options.theorem:
        print(bounds_report.details(sheet))
    else:
        print(bounds_report.summary(sheet))


def _number(text: str) -> float:
    """Return a number; whole numbers as int, also if written like 1e6."""
    number = as_number(text)
    return int(number) if number.is_integer() and abs(number) <= bounds.MOST_SLOTS else number


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _counts(text: str) -> list[int]:
    return [_count(number) for number in _names(text)]


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number
