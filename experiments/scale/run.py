"""Measure how error, messages, time and memory grow with the sites of one simulation.

`make scale` runs all of it, which takes some minutes; it writes the figure and the tables of
docs/research/scale.md. `--quick` ends at 1,000 sites and writes nothing.
"""

import argparse
import gc
import json
import math
import multiprocessing
import resource
import statistics
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from covey.bandit.policies import CoS
from covey.replay.engine import start
from covey.report import figures
from covey.simulation.environment import Environment, environment_from
from covey.simulation.run import lengths, log_of, network, play
from covey.simulation.values import oracle_of
from covey.simulation.world import World

DOCS = Path(__file__).parents[2] / "docs" / "research"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
POLICY = CoS(slices=4, parameters="z1")
SLOTS = 500  # of every site
FUNCTIONS, PRICE = 2, 0.05
# Networks of few sites differ more: more of them are drawn.
SEEDS = {10: 30, 30: 10, 100: 10, 1_000: 3, 10_000: 3, 100_000: 3}
SERIES: dict[str, tuple[int | None, Sequence[int]]] = {  # peers of each site; None: all others
    "3 peers each": (3, (10, 100, 1_000, 10_000, 100_000)),
    "8 peers each": (8, (10, 100, 1_000, 10_000)),
    "all others": (None, (10, 30, 100)),
}
COLOURS = {"3 peers each": "#1f77b4", "8 peers each": "#2ca02c", "all others": "#d62728"}


class Played(NamedTuple):
    """What the runs of a network show, on average over seeds."""

    series: str
    sites: int
    error_percent: float
    spread: float  # standard deviation of the error over seeds
    messages: float  # per decision
    exploited_percent: float


class Cost(NamedTuple):
    """What a network takes: CPU, and bytes of its state after 4 cells are in use."""

    sites: int
    set_up_us: float  # per site
    world_ns: float  # per decision
    kernel_ns: float
    oracle_ns: float
    state_bytes: float  # per site
    peak_bytes: float  # per site, of the process, above what it took before


def environment_of(sites: int, peers: int | None) -> Environment:
    """Return a network in which every site has its own instances."""
    table: dict[str, Any] = {
        "name": "scale",
        "learners": sites,
        "functions": FUNCTIONS,
        "correlation": "independent",
        "prices": PRICE,
    }
    if peers is not None:
        table["topology"] = {"peers-each": peers}
    return environment_from(table)


def played(series: str, sites: int, *, slots: int = SLOTS) -> Played:
    """Play a network with every seed."""
    environment = environment_of(sites, SERIES[series][0])
    options: Any = {"horizon": slots, "checkpoints": [slots]}
    runs = [play(environment, POLICY, seed=seed, **options) for seed in range(SEEDS[sites])]
    errors = [100 * run.errors for run in runs]
    return Played(
        series,
        sites,
        statistics.fmean(errors),
        statistics.stdev(errors) if len(errors) > 1 else math.nan,
        statistics.fmean(sum(run.messages.values()) / 1_000 for run in runs),
        statistics.fmean(100 * run.phases["exploit"] for run in runs),
    )


def timed(sites: int, *, slots: int) -> Cost:
    """Set up a network and play it, each part by itself; the state is not measured."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = process_time()
    environment = environment_of(sites, 3)
    world = World(environment, seed=0, horizon=slots)
    setup = network(environment, POLICY)
    game = start(setup, setup.sites, 1, environment.labels)
    oracle = oracle_of(environment, POLICY, setup, seed=0)
    set_up, spent = process_time() - begin, [0.0, 0.0, 0.0]
    for length in lengths(environment, slots):
        at = [process_time()]
        chunk = world.draw(length)
        at.append(process_time())
        log = log_of(chunk)
        trace = game.play(log)
        at.append(process_time())
        oracle.judge(trace, chunk, log).sums()
        at.append(process_time())
        spent = [s + b - a for s, a, b in zip(spent, at[:-1], at[1:], strict=True)]
    peak = 1_024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    per_decision = [1e9 * seconds / sites / slots for seconds in spent]
    return Cost(sites, 1e6 * set_up / sites, *per_decision, math.nan, peak / sites)


def held(sites: int) -> tuple[float, int]:
    """Return the bytes per site of a network with 4 used cells each, and its allocated blocks.

    That is all that a simulation keeps from slot to slot: the kernel, the world, who asks whom, the
    oracle, and the last slot.
    """
    environment = environment_of(sites, 3)
    gc.collect()
    tracemalloc.start()
    try:
        world = World(environment, seed=1, horizon=100)
        setup = network(environment, POLICY)
        game = start(setup, setup.sites, 1, environment.labels)
        oracle = oracle_of(environment, POLICY, setup, seed=1)
        for _ in range(60):
            chunk = world.draw(1)
            log = log_of(chunk)
            oracle.judge(game.play(log), chunk, log)
        del chunk, log
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        count = sum(one.count for one in tracemalloc.take_snapshot().statistics("filename"))
    finally:
        tracemalloc.stop()
    assert min(len(ledger.tables[0]) for ledger in game.ledgers) == 4
    return size / sites, count


def alone(call: Any, *given: Any, **options: Any) -> Any:
    """Return the result of a call in a process of its own, whose memory is no other's."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, given, options)


def cost(sites: int) -> Cost:
    """Return what a network of 3 peers each takes."""
    slots = max(30, min(2_000, 3_000_000 // sites))
    found: Cost = alone(timed, sites, slots=slots)
    state, _ = alone(held, min(sites, 10_000))
    return found._replace(state_bytes=state)


def table(rows: Sequence[Played], costs: Sequence[Cost]) -> str:
    """Return the measured part of the page."""
    lines = [
        "| network | sites | error % | messages a decision | exploited % |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        spread = "" if math.isnan(row.spread) else f" ± {row.spread:.2f}"
        lines.append(
            f"| {row.series} | {row.sites:,} | {row.error_percent:.2f}{spread} | "
            f"{row.messages:.2f} | {row.exploited_percent:.0f} |"
        )
    lines += [
        "",
        "| sites, 3 peers each | set-up, us a site | world, ns | kernel, ns | oracle, ns "
        "| decisions a second | kernel alone | state, bytes a site | peak, bytes a site |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in costs:
        whole = one.world_ns + one.kernel_ns + one.oracle_ns
        lines.append(
            f"| {one.sites:,} | {one.set_up_us:.0f} | {one.world_ns:.0f} | {one.kernel_ns:.0f} | "
            f"{one.oracle_ns:.0f} | {1e3 / whole:.2f} M | {1e3 / one.kernel_ns:.2f} M | "
            f"{one.state_bytes:,.0f} | {one.peak_bytes:,.0f} |"
        )
    return "\n".join(lines)


def picture(rows: Sequence[Played]) -> str:
    """Return the figure: error and messages against the number of sites."""

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2)
        labels = ("error in percent", "messages per decision")
        for axes, label, field in zip(panels, labels, ("error_percent", "messages"), strict=True):
            for series, colour in COLOURS.items():
                own = [row for row in rows if row.series == series]
                values = [getattr(row, field) for row in own]
                axes.plot([row.sites for row in own], values, "o-", color=colour, label=series)
            axes.set(xscale="log", xlabel="sites", ylabel=label)
            axes.margins(y=0.1)
            axes.set_ylim(bottom=0)
            axes.minorticks_off()
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        panels[0].legend()
        figure.tight_layout()

    return figures.svg(draw, size=(860, 320), label="error and messages by the number of sites")


def main() -> int:
    """Play all networks, print the tables, and write them."""
    parser = argparse.ArgumentParser(description="Measure networks of many sites.")
    parser.add_argument("--quick", action="store_true", help="up to 1,000 sites; write nothing")
    parser.add_argument("--json", action="store_true", help="print JSON lines, no tables")
    options = parser.parse_args()
    most = 1_000 if options.quick else 100_000
    rows, costs = [], []
    for series, (_, counts) in SERIES.items():
        for sites in counts:
            if sites <= most:
                print(f"{series}, {sites:,} sites", file=sys.stderr, flush=True)
                rows.append(alone(played, series, sites, slots=200 if options.quick else SLOTS))
    for sites in SERIES["3 peers each"][1]:
        if sites <= most:
            print(f"time and memory of {sites:,} sites", file=sys.stderr, flush=True)
            costs.append(cost(sites))
    if options.json:
        print("\n".join(json.dumps(one._asdict()) for one in (*rows, *costs)))
    else:
        print(table(rows, costs))
    if not options.quick:
        page = DOCS / "scale.md"
        head, rest = page.read_text().split(BEGIN)
        tail = rest.split(END)[1]
        page.write_text(f"{head}{BEGIN}\n{table(rows, costs)}\n{END}{tail}")
        (DOCS / "scale.svg").write_text(picture(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
