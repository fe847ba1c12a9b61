"""The long form of test_hostile.py, and schemathesis over the site's own document.

Prints what was tried and what came of it, and fails if anything was answered with 5xx.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

from covey.server import tokens
from support.corpus import CORPUS, SITE, mutated, site, statuses

TOKENS = SITE.replace("dimension", 'tokens = "tokens.json"\ndimension')
# A request can fit its schema and still not the site: names, shapes and numbers of values must
# agree with each other, which a schema cannot say.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "403", "404", "409", "410", "413", "422"]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000, help="mutated requests")
    parser.add_argument("--examples", type=int, default=200, help="of schemathesis, per operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--schemathesis", type=Path, default=Path(sys.executable).with_name("schemathesis")
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        failures = _flood(Path(folder), options.seed, options.count)
    with tempfile.TemporaryDirectory() as folder:
        return max(failures, _contract(Path(folder), options))


def _flood(folder: Path, seed: int, count: int) -> int:
    """Send the corpus and mutated requests, and print figures."""
    found: list[int] = []
    with site(folder) as served:
        served.exchange_all([*CORPUS.values(), *mutated(seed, 500)])
        before = served.memory_kib()
        rest = mutated(seed + 1, count)
        while some := list(islice(rest, 500)):
            found += [status for answer in served.exchange_all(some) for status in statuses(answer)]
        after = served.memory_kib()
    failures = sum(status >= 500 for status in found)
    print(f"mutated requests: {count}, answered {len(found)}, with 5xx {failures}")
    print(f"memory: {before / 1024:.1f} MiB before, {after / 1024:.1f} MiB after")
    return min(1, failures)


def _contract(folder: Path, options: argparse.Namespace) -> int:
    """Run all checks of schemathesis over every operation."""
    scopes = ["infer", "feedback", "feedback-any", "read", "metrics"]
    secret, _ = tokens.new(folder / "tokens.json", "all", scopes=scopes)
    (folder / "schemathesis.toml").write_text(CONFIG)
    with site(folder, TOKENS) as served:
        run = [
            str(options.schemathesis),
            "--config-file",
            str(folder / "schemathesis.toml"),
            "run",
            f"http://127.0.0.1:{served.port}/v2/openapi.json",
            *("--header", f"Authorization: Bearer {secret}"),
            *("--checks", "all", "--continue-on-failure"),
            *("--seed", str(options.seed), "--max-examples", str(options.examples)),
        ]
        plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(run, check=False, env=plain, cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
