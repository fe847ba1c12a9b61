"""The kernel takes no more instructions than recorded: a measure of speed without noise."""

import json
import runpy
from pathlib import Path

import pytest

from covey.kernel import is_compiled
from support.required import program, require

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "instructions.py"


def test_no_case_takes_a_twentieth_more_instructions_than_recorded() -> None:
    recorded = json.loads(BENCHMARK.with_suffix(".json").read_text())
    program("valgrind")
    require(is_compiled(), "instructions are those of the compiled kernel")
    script = runpy.run_path(str(BENCHMARK))
    if script["compiler"]() != recorded.pop("compiler"):
        pytest.skip("recorded with another compiler; benchmarks/instructions.py --write")

    counts = script["counted"]()

    assert {case: count for case, count in counts.items() if count > 1.05 * recorded[case]} == {}
