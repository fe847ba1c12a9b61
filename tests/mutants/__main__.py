"""Changes the modules of decisions, statistics and stores, and says which changes no test notices.

Run it in the folder of the tests:

    python -m mutants --each 40             so many changes of each module
    python -m mutants --each 40 replay      of the modules in this package or file only
    python -m mutants --planted             the fixed changes of `planted.toml` only
"""

import argparse
import os
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen

from covey.kernel import is_compiled
from mutants.changes import Change, drawn, planted
from mutants.runner import is_noticed, watch

HERE = Path(__file__).parent
TABLES = tomllib.loads((HERE / "planted.toml").read_text(encoding="utf-8"))
SEED = 1


def _groups(wanted: str) -> Iterator[tuple[str, list[str]]]:
    """Yield modules, each with the tests that should notice its changes."""
    for group in TABLES["group"]:
        for module in group["modules"]:
            if module.startswith(wanted):
                yield module, group["tests"]


def _try(changes: list[Change], tests: list[str], known: dict[str, str]) -> tuple[int, int, int]:
    """Make changes one by one; return how many there are, were noticed, and are said to be idle."""
    seen, noticed, idle = watch(tests), 0, 0
    for change in changes:
        if is_noticed(change, seen):
            noticed += 1
        elif why := next((why for what, why in known.items() if what in change.show()), ""):
            idle += 1
            print(f"  idle      {change.show()} ({why})", flush=True)
        else:
            print(f"  SURVIVES  {change.show()}", flush=True)
    print(f"{changes[0].module}: {noticed} of {len(changes)} noticed, {idle} idle", flush=True)
    return len(changes), noticed, idle


def _plants() -> int:
    """Make the planted changes; return how many tests do not notice as they should."""
    plants = [one for one in TABLES["planted"] if not (_is_kernel(one["module"]) and is_compiled())]
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


def _module(module: str, each: int) -> None:
    """Try one module, in a process of its own: its kernel is plain if that is what changes."""
    ((_, tests),) = [pair for pair in _groups(module) if pair[0] == module]
    paths = [str(HERE.parent / test) for test in tests]
    total = _try(drawn(module, each, SEED), paths, TABLES["idle"])
    print("total", *total, flush=True)


def _all(wanted: str, each: int, jobs: int) -> int:
    def run(module: str) -> list[int]:
        words = [sys.executable, "-m", "mutants", "--each", str(each), "--module", module]
        form = {"COVEY_KERNEL": "plain"} if _is_kernel(module) else {}
        total = [0, 0, 0]
        with Popen(
            words, env={**os.environ, **form}, stdout=PIPE, text=True, cwd=HERE.parent
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("total "):
                    total = [int(word) for word in line.split()[1:]]
                else:
                    print(line, end="", flush=True)
        return total

    modules = [module for module, _ in _groups(wanted)]
    with ThreadPoolExecutor(jobs) as pool:
        count, noticed, idle = map(sum, zip(*pool.map(run, modules), strict=True))
    share = 100 * noticed / max(1, count - idle)
    print(f"{noticed} of {count - idle} changes are noticed, {share:.1f} %; {idle} change nothing")
    return int(share < 90)


def main() -> int:
    """Read the command line, and do what it asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("wanted", nargs="?", default="")
    parser.add_argument("--each", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--module", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.planted:
        return int(_plants() > 0)
    if options.module:
        _module(options.module, options.each)
        return 0
    return _all(options.wanted, options.each, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
