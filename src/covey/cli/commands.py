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
from covey.bandit.bounds import Bound, BoundTable, Problem
from covey.cli import demo, init
from covey.cli.parser import names_in, show
from covey.data.logs import TraceFile
from covey.errors import ConfigError, MissingExtra
from covey.jobs.running import cores
from covey.replay import baselines
from covey.replay import replay as replaying
from covey.report.advice import PRICES, advise
from covey.report.comparison import compare
from covey.report.results import Result, SimulationResult, check_folder
from covey.report.text import Progress, fill, sentence, table
from covey.simulation import runner as simulator
from covey.simulation import scenario
from covey.toml import modules_beside


def run_init(options: argparse.Namespace) -> None:
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


def run_replay(options: argparse.Namespace) -> None:
    setup, methods = config.load(options.config), names_in(options.baselines)
    methods = [*baselines.PLAIN] if methods == ["plain"] else methods
    with contextlib.ExitStack() as stack:
        trace = None if options.trace is None else stack.enter_context(TraceFile(options.trace))
        progress = stack.enter_context(Progress("replay", is_quiet=options.quiet))
        outcome = replaying.replay_file(
            options.log, setup, trace=trace, progress=progress, baselines=methods
        )
    result = Result(outcome, title=f"Replay of {options.log.name}", config=options.config)
    show(result, options)


def run_compare(options: argparse.Namespace) -> None:
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
    show(comparison, options)


def run_advise(options: argparse.Namespace) -> None:
    if options.slide and options.report is None:
        raise ConfigError("--slide needs a folder; name one with --report")
    progress = Progress("advise", is_quiet=options.quiet, unit="replays")
    with _kept_in(options.out, "replays"), progress:
        advice = advise(
            options.config,
            options.log,
            prices=options.prices or PRICES,
            workers=options.workers or cores(),
            out=options.out,
            progress=progress,
            on=options.on,
        )
    show(advice, options, has_slide=options.slide)


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


def run_demo(options: argparse.Namespace) -> None:
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


def run_simulate(options: argparse.Namespace) -> None:
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


def run_bounds(options: argparse.Namespace) -> None:
    values = {name: getattr(options, name) for name in Problem.__struct_fields__}
    problem = Problem(**{name: value for name, value in values.items() if value is not None})
    sheet = bounds.sheet(options.theorem, problem, form=options.form)
    if options.json:
        print(msgspec.json.encode(sheet).decode())
    else:
        print(bounds_text(sheet, has_terms=bool(options.theorem)))


# -- the tables of `covey bounds` ------------------------------------------------------------------


def bounds_text(sheet: BoundTable, *, has_terms: bool) -> str:
    """Return one line per bound, and what follows or the terms of the bounds with notes."""
    bounds = table([_BOUND_HEADINGS, *map(_bound_line, sheet.bounds)])
    parts = [_extent(sheet), bounds, fill(_verdict(sheet)), fill(sentence("bounds"))]
    if has_terms:
        lines = [
            (
                f"{bound.theorem} {term.name}",
                (f"T^{term.exponent:.4g} " * bool(term.exponent) + term.logs).strip() or "constant",
                figure(term.value),
                f"{100 * term.value / bound.value if bound.value else 0.0:.1f}",
            )
            for bound in sheet.bounds
            for term in bound.terms
        ]
        notes = dict.fromkeys(note for bound in sheet.bounds for note in bound.notes)
        parts[2:] = [table([("term", "growth", "value", "share %"), *lines])]
        parts += [fill(f"- {note}") for note in notes]
    return "\n\n".join(parts) + "\n"


def figure(value: float | None) -> str:
    """Return a short number for a table, or `never` for None."""
    if value is None:
        return "never"
    if 100 <= value < 1e7:
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("e+0", "e").replace("e+", "e")


_BOUND_HEADINGS = ("theorem", "regret <=", "per slot", "order", "below T from", "2T from")


def _extent(sheet: BoundTable) -> str:
    numbers = {**msgspec.structs.asdict(sheet.problem), "most_functions": sheet.problem.most}
    shown = ", ".join(
        f"{name.replace('_', ' ')} {'as prescribed' if value is None else figure(value)}"
        for name, value in numbers.items()
    )
    return fill(f"{shown}; {sheet.form} form")


def _bound_line(bound: Bound) -> tuple[str, ...]:
    below = figure(bound.below_horizon_from), figure(bound.below_twice_horizon_from)
    value, per_slot = figure(bound.value), figure(bound.per_slot)
    return f"{bound.theorem} {bound.title}", value, per_slot, bound.order, *below


def _verdict(sheet: BoundTable) -> str:
    horizon = sheet.problem.horizon
    below = [bound.theorem for bound in sheet.bounds if bound.value < horizon]
    verdict = f"below T: {', '.join(below)}" if below else "no bound is below T"
    return f"At T = {figure(horizon)} slots, {verdict}."
