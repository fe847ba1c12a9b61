"""Instructions per learner-slot of the compiled replay: a measure without noise.

python benchmarks/instructions.py [--json] [--write]

Networks are replayed under callgrind (a part of valgrind), which counts what the kernel's loop over
a log takes: decisions, reports, labels and the trace. `instructions.json` has the counts that a
test compares with, and `--write` writes them.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from covey.config import load
from covey.data.logs import EncodedLog
from covey.replay.engine import ReplayEngine

RECORDS = Path(__file__).with_suffix(".json")
SLOTS = 5_000
LOOP = "__pyx_f_5covey_6kernel_5arena_5Arena_run"
COUNTED = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
COS = {"preset": "cos", "slices": 12}
# Policy, sites, and the slots after which labels come.
CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "cos": (COS, 4, 0),
    "cos, labels 100 slots late": (COS, 4, 100),
    "dcza": ({"preset": "dcza"}, 4, 0),
    "share-ucb": ({"preset": "share-ucb", "slices": 12}, 4, 0),
    "auto": ({"preset": "auto"}, 4, 0),
    "auto, labels 100 slots late": ({"preset": "auto"}, 4, 100),
    "auto, 16 sites": ({"preset": "auto"}, 16, 0),
}


def main() -> int:
    """Print the instructions of each case, or play all of them for callgrind."""
    parser = argparse.ArgumentParser(description="Count instructions of the compiled replay.")
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")
    parser.add_argument("--write", action="store_true", help=f"write {RECORDS.name}")
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        for policy, sites, delay in CASES.values():
            _play(policy, sites, delay)
        return 0
    if shutil.which("valgrind") is None:
        print("this needs valgrind; install the package of that name", file=sys.stderr)
        return 69  # EX_UNAVAILABLE of `sysexits.h`
    counts = counted()
    if options.write:
        RECORDS.write_text(json.dumps({"compiler": compiler(), **counts}, indent=2) + "\n")
    if options.json:
        print(json.dumps(counts))
    else:
        for case, count in counts.items():
            print(f"{case:30}{count:8,} instructions per learner-slot")
    return 0


def compiler() -> str:
    """Return the version of the C compiler, on which the counts depend."""
    command = ["cc", "-dumpversion"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def counted() -> dict[str, int]:
    """Return the instructions per learner-slot of each case."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [f"--toggle-collect={LOOP}", f"--dump-after={LOOP}", sys.executable]
        subprocess.run(
            [*command, str(Path(__file__)), "--play"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        dumps = [Path(folder) / f"out.{number}" for number in range(1, 1 + len(CASES))]
        totals = [int(COUNTED.findall(dump.read_text())[-1]) for dump in dumps]
    pairs = zip(CASES.items(), totals, strict=True)
    return {case: round(total / SLOTS / sites) for (case, (_, sites, _)), total in pairs}


def _play(policy: dict[str, Any], sites: int, delay: int) -> None:
    """Replay functions whose accuracy differs between 12 slices of the context."""
    functions = [f"f{k}" for k in range(2 * sites)]
    rng = np.random.default_rng(0)
    labels, contexts = rng.integers(0, 2, SLOTS), rng.random((SLOTS, 1))
    accuracy = rng.uniform(0.5, 0.95, (len(functions), 12))[:, (contexts[:, 0] * 12).astype(int)]
    is_right = rng.random((len(functions), SLOTS)) < accuracy
    log = EncodedLog(
        contexts=contexts.reshape(-1).data,
        predictions=np.where(is_right, labels, 1 - labels).astype(np.int32).data,
        labels=labels.astype(np.int32).data,
        at=None,
        delays=np.full(SLOTS, delay, np.int64).data if delay else None,
    )
    names = [f"site{k}" for k in range(sites)]
    learners = [
        {
            "name": name,
            "functions": functions[2 * k : 2 * k + 2],
            "peers": {peer: 0.0 for peer in names if peer != name},
        }
        for k, name in enumerate(names)
    ]
    setup = load({"policy": policy, "learner": learners})
    ReplayEngine(setup, setup.sites, 1, [0, 1]).play(log)


if __name__ == "__main__":
    raise SystemExit(main())
