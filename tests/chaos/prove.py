"""Storms for as long as asked, and what they came to.

Run it in the folder of the tests:

    python -m chaos.prove --minutes 10 --jobs 2     as many seeds as fit
    python -m chaos.prove --seeds 1000 --jobs 2     seeds 0 to 999
    python -m chaos.prove --seed 17                 one seed, told at length
    python -m chaos.prove --teeth 600               every planted bug, within 600 seeds
"""

import argparse
import itertools
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from chaos import plans, teeth
from chaos.power import cut_everywhere
from chaos.runs import Verdict, play

PAGE = Path(__file__).with_name("RESULTS.md")
TWICE_EVERY = 10  # seeds, one is played twice
CUT_BATCHES = 20


class Total(msgspec.Struct):
    """What many seeds came to."""

    seeds: int = 0
    hours: float = 0.0
    node_hours: float = 0.0
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    again: int = 0
    differing: int = 0
    broken: list[Verdict] = []

    def add(self, verdict: Verdict, is_same: bool | None) -> None:
        """Take the verdict of one seed, and whether it came out the same once more."""
        self.seeds += 1
        self.hours += verdict.hours
        self.node_hours += verdict.hours * verdict.nodes
        self.counts.update(verdict.counts)
        self.again += is_same is not None
        self.differing += is_same is False
        if verdict.found:
            self.broken = [*self.broken, verdict]

    def rows(self) -> list[tuple[str, str]]:
        """Return the table."""
        counts, promises = self.counts, Counter(a for one in self.broken for a, _ in one.found)
        return [
            ("seeds", f"{self.seeds:,}"),
            ("simulated hours of a network", f"{self.hours:,.0f}"),
            ("simulated hours of a node", f"{self.node_hours:,.0f}"),
            ("crashes", f"{counts['crashes']:,}"),
            ("of these without power", f"{counts['power losses']:,}"),
            ("commits that failed (no room, no sync, no power)", f"{counts['failed commits']:,}"),
            ("partitions", f"{counts['partitions']:,}"),
            ("messages between sites", f"{counts['messages']:,}"),
            ("of these lost", f"{counts['lost']:,}"),
            ("and repeated", f"{counts['repeated']:,}"),
            (
                "and damaged, or their response",
                f"{counts['damaged messages'] + counts['damaged responses']:,}",
            ),
            ("and answered with the response to another", f"{counts['responses to others']:,}"),
            ("pauses of nodes", f"{counts['pauses']:,}"),
            ("labels that trained a function", f"{counts['trainings']:,}"),
            ("labels acknowledged", f"{counts['acknowledged']:,}"),
            ("of these lost", f"{promises['I1']:,}"),
            (
                "labels counted twice, or counters out of step",
                f"{promises['I2'] + promises['I4']:,}",
            ),
            ("other guarantees broken", f"{_others(promises):,}"),
            ("seeds run twice", f"{self.again:,}"),
            ("of these with another trace", f"{self.differing:,}"),
        ]


def _others(promises: Counter[str]) -> int:
    return sum(count for promise, count in promises.items() if promise not in ("I1", "I2", "I4"))


def verdict(seed: int) -> tuple[Verdict, bool | None]:
    """Play a seed, some of them twice."""
    first = play(seed)
    if seed % TWICE_EVERY:
        return first, None
    return first, play(seed).trace == first.trace


def prove(seeds: Iterator[int], jobs: int, until_s: float) -> Total:
    """Play seeds until there are no more, or no time."""
    total = Total()
    with multiprocessing.Pool(jobs, maxtasksperchild=200) as pool:
        for one, is_same in pool.imap_unordered(verdict, seeds):
            total.add(one, is_same)
            if one.found:
                _say(f"seed {one.seed}: {one.found[0]}; replay it: make prove SEED={one.seed}")
            if total.seeds % 100 == 0:
                _say(f"{total.seeds} seeds, {len(total.broken)} with something broken")
            if time.monotonic() > until_s:
                pool.terminate()
                break
    return total


def tell(seed: int) -> int:
    """Play one seed, and say all of it."""
    _say(str(plans.plan(seed)))
    one = play(seed)
    for promise, how in one.found:
        _say(f"{promise}: {how}")
    _say(f"trace {one.trace}; {one.hours:.2f} h; {one.counts}")
    return int(bool(one.found))


def table(rows: list[tuple[str, ...]], *titles: str) -> str:
    """Return rows as Markdown."""
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(name: str, text: str, path: Path = PAGE) -> None:
    """Put a generated part into a page."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = path.read_text()
    before, rest = page.split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def _storms(options: argparse.Namespace) -> int:
    until_s = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    seeds = iter(range(options.seeds)) if options.seeds else itertools.count()
    start_s = time.monotonic()
    total = prove(seeds, options.jobs, until_s)
    rows = total.rows()
    cuts = cut_everywhere(CUT_BATCHES)
    rows.append(
        ("losses of power at every operation of a script, on a store alone", f"{cuts.cuts:,}")
    )
    rows.append(("of these with something lost or torn", f"{cuts.bad:,}"))
    for name, value in rows:
        _say(f"{value:>12}  {name}")
    _say(f"in {(time.monotonic() - start_s) / 60:.1f} minutes")
    if options.write:
        write("storms", table(rows, "", ""))
    return int(bool(total.broken or total.differing or cuts.bad))


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """Read the command line and do what it asks for."""
    logging.getLogger("covey").setLevel(logging.CRITICAL)  # what goes wrong is meant to
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--teeth", type=int)
    parser.add_argument("--write", action="store_true", help="into RESULTS.md")
    options = parser.parse_args()
    if options.seed is not None:
        return tell(options.seed)
    if options.teeth:
        return int(len(teeth.look(options.teeth, say=_say)) < len(teeth.BUGS))
    return _storms(options)


if __name__ == "__main__":
    sys.exit(main())
