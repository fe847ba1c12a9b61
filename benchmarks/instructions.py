"""Instructions per learner-slot of the compiled replay: a measure without noise.

python benchmarks/instructions.py [--json]

The 4 x 2 network of `replay.py` is replayed twice under callgrind (a part of valgrind), for two
numbers of slots; the difference is divided by the learner-slots between them. What the count has is
all that grows with the slots from arrays as the kernel takes them: the decisions, their labels, the
trace columns and the names of cells.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import network

import replay

FROM, TO = 20_000, 70_000
PRESETS = {
    "cos": {"preset": "cos", "slices": 12},
    "two-sizes": {"preset": "two-sizes"},
    "auto": {"preset": "auto"},
}
COLLECTED = re.compile(r"Collected : (\d+)")


def main() -> int:
    """Print the instructions of each preset, or play one of them for callgrind."""
    parser = argparse.ArgumentParser(description="Count instructions of the compiled replay.")
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")
    parser.add_argument("--play", nargs=2, metavar=("PRESET", "SLOTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        preset, slots = options.play
        replay._play(network.config(**PRESETS[preset]), network.draw(int(slots)))
        return 0
    if shutil.which("valgrind") is None:
        print("this needs valgrind; install the package of that name", file=sys.stderr)
        return 69  # EX_UNAVAILABLE of `sysexits.h`
    drawn = _count("cos", FROM, is_played=False), _count("cos", TO, is_played=False)
    counts = {}
    for preset in PRESETS:
        played = _count(preset, TO) - _count(preset, FROM) - (drawn[1] - drawn[0])
        counts[preset] = round(played / (TO - FROM) / network.SITES)
        if not options.json:
            print(f"{preset:10}{counts[preset]:8,} instructions per learner-slot", flush=True)
    if options.json:
        print(json.dumps(counts))
    return 0


def _count(preset: str, slots: int, *, is_played: bool = True) -> int:
    """Return the instructions of a process that draws a network, and replays it."""
    play = [str(Path(__file__)), "--play", preset, str(slots)]
    draw = ["-c", f"import network, replay; network.draw({slots})"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = ["valgrind", "--tool=callgrind", f"--log-file={log}"]
        command += [f"--callgrind-out-file={folder}/out", sys.executable]
        subprocess.run(
            [*command, *(play if is_played else draw)],
            check=True,
            cwd=Path(__file__).parent,
            stdout=subprocess.DEVNULL,
        )
        found = COLLECTED.search(log.read_text())
    assert found is not None
    return int(found[1])


if __name__ == "__main__":
    raise SystemExit(main())
