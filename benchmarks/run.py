"""Measure the figures that covey promises, print them, and write RESULTS.md.

python benchmarks/run.py [--quick] [--only NAME] [--json] [--out FILE]
"""

import argparse
import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import cells
import command
import figures
import learner
import linear
import memory
import simulated
import trace_file
from timing import pin

import kernel
import replay
from covey import kernel as kernel_module

RESULTS = Path(__file__).with_name("RESULTS.md")
MEASURED = (kernel, cells, linear, learner, replay, simulated, memory, trace_file, command)
MODULES = {module.NAME: module for module in MEASURED}
NEEDS_COMPILED = (
    cells.NAME,
    linear.NAME,
    replay.NAME,
    simulated.NAME,
    trace_file.NAME,
    command.NAME,
)
PACKAGES = ("covey", "numpy", "msgspec", "pyarrow", "river", "Cython")


def main() -> int:
    """Measure what the arguments ask for."""
    options = _options()
    effort = "quick" if options.quick else "full"
    setting = _setting(pin())
    measured = []
    for name in options.only or MODULES:
        print(f"measuring {name} ...", file=sys.stderr)
        measured.append(_measure(name, effort))
    if options.json:
        print(json.dumps({"setting": setting, "figures": [_plain(one) for one in measured]}))
    else:
        print(figures.table(measured))
    is_whole = not options.quick and not options.only
    out = options.out or (RESULTS if is_whole else None)
    if out is None:
        print("RESULTS.md is as it was: this was not a full run", file=sys.stderr)
    else:
        made_by = " ".join(["python benchmarks/run.py", *sys.argv[1:]])
        out.write_text(figures.markdown(measured, command=made_by, setting=setting), "utf-8")
        print(f"written: {out}", file=sys.stderr)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the figures that covey promises.")
    parser.add_argument("--quick", action="store_true", help="less of everything, under a minute")
    parser.add_argument(
        "--only", action="append", choices=MODULES, metavar="NAME", help=", ".join(MODULES)
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: RESULTS.md beside this, for a full run"
    )
    return parser.parse_args()


def _measure(name: str, effort: str) -> figures.Figure:
    module = MODULES[name]
    if name in NEEDS_COMPILED and not kernel_module.is_compiled():
        return figures.skipped(name, module.TITLE, "the compiled kernel is not in use")
    return module.measure(effort)


def _plain(figure: figures.Figure) -> dict[str, object]:
    return {
        **figure._asdict(),
        "rows": [row._asdict() for row in figure.rows],
        "verdicts": [verdict._asdict() for verdict in figure.verdicts],
    }


def _setting(pinned: str) -> str:
    form = "compiled" if kernel_module.is_compiled() else "plain"
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {pinned}{load}; {platform.system()} "
        f"{platform.release()}; {platform.python_implementation()} {platform.python_version()}; "
        f"{', '.join(map(_version, PACKAGES))}; kernel: {form}. Candidates of a figure take turns "
        "in one run; the best of all rounds counts. `median` says by how much the median round "
        "lies above it, which shows how quiet the machine was."
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


if __name__ == "__main__":
    raise SystemExit(main())
