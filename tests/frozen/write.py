"""Write `traces.json`: the hash of each frozen configuration's trace, and its rows per phase.

Run as `python -m frozen.write` in the folder `tests`. The file holds what version 0.1.0 wrote. It
may be written anew only with the code of 0.1.0, when configurations are added, or when a release
deliberately decides otherwise than 0.1.0; the changelog then says which decisions are others, and
why. It is never written anew to make a failing test pass.

Six configurations with `pending` and late labels are those of 0.2.0: a pending label counts in the
tests of the phases by the share of labels that arrive. One of them has context-only peers and links
that change: its trace holds the answers of these peers, which 0.1.0 lost where links changed.
"""

import collections
import contextlib
import csv
import hashlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from covey import cli
from frozen.configurations import Configuration, configurations

FORMER_PAPER = [
    'queries = "all"',
    'children = "pooled"',
    'unlabelled = "net"',
    'batch = "slots"',
]
TRACES = Path(__file__).with_name("traces.json")


def trace_of(configuration: Configuration, folder: Path, kind: str = "csv") -> bytes:
    """Return the trace that `covey replay` writes; warnings go to stderr and are ignored."""
    log, toml, trace = (folder / name for name in ("log.csv", "sites.toml", f"trace.{kind}"))
    log.write_text(configuration.log, encoding="utf-8", newline="")
    text = configuration.toml.replace('preset = "auto"', 'preset = "two-sizes"')  # its name now
    if 'mode = "paper"' in text:  # what it meant then
        former = FORMER_PAPER if "history" in text else [*FORMER_PAPER, 'history = "labels"']
        table = f'mode = "paper"\nreading = {{ {", ".join(former)} }}'
        text = text.replace('mode = "paper"', table)
    toml.write_text(text, encoding="utf-8", newline="")
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = cli.main(
            ["replay", str(log), "--config", str(toml), "--quiet", "--trace", str(trace)]
        )
    if code:
        raise AssertionError(f"{configuration.name}: exit code {code}: {said.getvalue()}")
    return trace.read_bytes()


def recorded() -> dict[str, dict[str, Any]]:
    """Return what was kept, by the name of the configuration."""
    kept: dict[str, dict[str, Any]] = json.loads(TRACES.read_text(encoding="utf-8"))
    return kept


def digest(trace: bytes) -> dict[str, Any]:
    """Return what is kept of a trace; the last column, `alarm`, is newer."""
    header, *rows = csv.reader(io.StringIO(trace.decode(), newline=""))
    old = io.StringIO(newline="")
    csv.writer(old, lineterminator="\n").writerows(row[:-1] for row in (header, *rows))
    phases = collections.Counter(row[header.index("phase")] for row in rows)
    digested = hashlib.sha256(old.getvalue().encode()).hexdigest()
    return {"sha256": digested, "rows": dict(sorted(phases.items()))}


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {one.name: digest(trace_of(one, Path(folder))) for one in configurations()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in kept)
    TRACES.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
