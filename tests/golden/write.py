"""Write `records.json`: what each configuration decides behind each door.

Run as `python -m golden.write` in the folder `tests`; with names of configurations only these are
written anew. The docstring of the package says when a record may change.
"""

import json
import sys
from pathlib import Path
from typing import Any

from golden.configurations import configurations
from golden.doors import record

RECORDS = Path(__file__).with_name("records.json")


def recorded() -> dict[str, dict[str, Any]]:
    """Return the records by the name of the configuration and by door."""
    records: dict[str, dict[str, Any]] = json.loads(RECORDS.read_text(encoding="utf-8"))
    return records


def main(names: list[str]) -> None:
    """Write the file."""
    records = recorded() if names else {}
    for golden in configurations():
        if not names or golden.name in names:
            records[golden.name] = {door: record(golden, door) for door in golden.doors}
    lines = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f" {json.dumps(door)}: {json.dumps(kept)}" for door, kept in doors.items())
        + "\n}"
        for name, doors in records.items()
    ]
    RECORDS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
