"""Changes the modules of decisions, statistics and stores, and says which changes no test notices.

Run it in the folder of the tests:

    python -m mutants --each 40             so many changes of each module
    python -m mutants --each 40 replay      of the modules in this package or file only
    python -m mutants --planted             the fixed changes of `planted.toml` only
"""

import argparse
import itertools
import os
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen

from covey.kernel import is_compiled
from mutants.changes import drawn, planted
from mutants.runner import is_noticed, watch

HERE = Path(__file__).parent
TABLES = tomllib.loads((HERE / "planted.toml").read_text(encoding="utf-8"))
SEED, GOAL = 1, 90.0  # % of the changes
TOTAL = "total"


def _try(group: int, wanted: str, each: int) -> None:
    """Make changes of the modules of a group, one by one, and say which of them nobody notices."""
    table = TABLES["group"][group]
    modules = [module for module in table["modules"] if module.startswith(wanted)]
    seen = watch([f"{HERE.parent / test}" for test in table["tests"]])
    for module in modules:
        changes, noticed, idle = drawn(module, each, SEED), 0, 0
        for change in changes:
            what = change.show()
            why = next((why for part, why in TABLES["idle"].items() if part in what), "")
            if is_noticed(change, seen):
                noticed += 1
            elif why:
                idle += 1
            else:
                print(f"  SURVIVES  {what}", flush=True)
        print(f"{module}: {noticed} of {len(changes) - idle} noticed, {idle} idle", flush=True)
        print(TOTAL, len(changes) - idle, noticed, flush=True)


def _plants() -> int:
    """Make the planted changes; return how many tests do not notice as they should."""
    plants = [
        table for table in TABLES["planted"] if not (_is_kernel(table["module"]) and is_compiled())
    ]
    seen = watch(sorted({f"{HERE.parent / test}" for one in plants for test in one["tests"]}))
    wrong = 0
    for plant in plants:
        change = planted(plant["module"], plant["old"], plant["new"])
        if is_noticed(change, seen) == plant.get("survives", False):
            wrong += 1
            print(f"  WRONG  {change.show()}: {plant['what']}", flush=True)
    print(f"planted: {len(plants) - wrong} of {len(plants)} as they should be")
    return wrong


def _is_kernel(module: str) -> bool:
    return module.startswith("kernel/")


def _all(wanted: str, each: int, jobs: int) -> int:
    """Try each group in a process of its own: the kernel is plain where it is what changes."""

    def run(group: int) -> list[tuple[int, int]]:
        found = []
        words = [
            sys.executable,
            "-m",
            "mutants",
            wanted,
            "--each",
            f"{each}",
            "--group",
            f"{group}",
        ]
        is_kernel = any(map(_is_kernel, TABLES["group"][group]["modules"]))
        form = {"COVEY_KERNEL": "plain"} if is_kernel else {}
        with Popen(
            words, env={**os.environ, **form}, stdout=PIPE, text=True, cwd=HERE.parent
        ) as process:
            for line in process.stdout or ():
                if line.startswith(TOTAL):
                    count, noticed = map(int, line.split()[1:])
                    found.append((count, noticed))
                else:
                    print(line, end="", flush=True)
        assert process.returncode == 0
        return found

    groups = [
        group
        for group, table in enumerate(TABLES["group"])
        if any(module.startswith(wanted) for module in table["modules"])
    ]
    with ThreadPoolExecutor(jobs) as pool:
        counts, noticed = zip(*itertools.chain.from_iterable(pool.map(run, groups)), strict=True)
    share = 100 * sum(noticed) / max(1, sum(counts))
    print(f"{sum(noticed)} of {sum(counts)} changes are noticed, {share:.1f} %")
    return int(share < GOAL)


def main() -> int:
    """Read the command line, and do what it asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("wanted", nargs="?", default="")
    parser.add_argument("--each", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--group", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.planted:
        return int(_plants() > 0)
    if options.group is not None:
        _try(options.group, options.wanted, options.each)
        return 0
    return _all(options.wanted, options.each, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
