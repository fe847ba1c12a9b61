"""`covey replay` writes the traces of 0.1.0, byte by byte, for two hundred configurations."""

import collections
import csv
import io
import tomllib
from pathlib import Path

import pytest
from pyarrow import parquet

from covey.kernel import is_compiled
from frozen.configurations import COUNT, configurations
from frozen.options import ANY, OF_PHASES, OF_PRESET, PRESETS
from frozen.write import digest, recorded, trace_of

# Keys that moved since still work where they were, with a warning.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
FROZEN = list(configurations())
# The plain kernel is slow, and other tests compare it with the compiled one.
STEP = 1 if is_compiled() else 4
CHOICES = {  # keys of [policy] that take one of these values
    "mode": {"paper"},
    "parameters": {"z1", "z2", "theorem"},
    "order": {"own-train-peers", "train-own-peers"},
    "helper": {"explore-first", "greedy"},
    "count": {"arrivals", "labelled", "uses"},
    "level-offset": {0, 1},
    "ties": {"random"},
    "pending": {True},
    "askers": {"all", "first"},
    "hidden-from": {"all", "first"},
    "history": {"labels", "asked"},
    "inherit": {True},
    "carry-serving-costs": {True, False},
    "check-claims": {True},
}
NUMBERS = [
    "slices",
    "horizon",
    "first-epoch",
    "alpha",
    "most-functions",
    "split-scale",
    "split-power",
    "explore",
    "train",
    "explore-peers",
    "seed",
    "label-wait",
    "forget",
    "reward",
    "index-scale",
    "lipschitz",
    "finest-level",
    "alarm",
    "relearn-every",
    "max-level",
    "max-cells",
]
OF_LEARNERS = [
    "name",
    "functions",
    "function-costs",
    "arrivals",
    "label-probability",
    "supervised",
    "serving-cost",
    "rewards",
    "peers",
    "context-peers",
    "cost-columns",
    "answer-delay",
    "answer-wait",
    "context",
    "candidates",
    "view",
]
OF_DATA = ["context", "candidates", "at", "revealed", "delay", "loss"]
OF_ENSEMBLES = {
    "weights": {"global", "cell"},
    "update": {"gradient", "majority", "hedge", "fixed-share"},
    "predict": {"vote", "sample"},
}


@pytest.mark.parametrize("preset", PRESETS, ids=str)
def test_each_trace_is_the_one_of_0_1_0(preset: str | None, tmp_path: Path) -> None:
    kept = recorded()
    place = PRESETS.index(preset)
    of_preset = FROZEN[place :: len(PRESETS)][::STEP]

    differing = [one.name for one in of_preset if digest(trace_of(one, tmp_path)) != kept[one.name]]

    assert differing == []


@pytest.mark.parametrize("preset", PRESETS, ids=str)
def test_a_parquet_trace_holds_what_the_csv_trace_holds(preset: str | None, tmp_path: Path) -> None:
    for one in FROZEN[PRESETS.index(preset) :: len(PRESETS)][:: 4 * STEP]:
        text = trace_of(one, tmp_path).decode()
        trace_of(one, tmp_path, kind="parquet")
        rows = zip(
            *parquet.read_table(tmp_path / "trace.parquet").to_pydict().values(), strict=True
        )
        read = [["" if value is None else str(value) for value in row] for row in rows]

        assert read == list(csv.reader(io.StringIO(text, newline="")))[1:], one.name


def test_the_configurations_are_those_that_were_recorded() -> None:
    assert [one.name for one in FROZEN] == list(recorded())
    assert len(FROZEN) == COUNT


def test_every_option_occurs_at_least_three_times() -> None:
    options = ANY.keys() | OF_PHASES.keys() | {name for one in OF_PRESET.values() for name in one}
    times = collections.Counter(
        option for one in FROZEN for option in one.name.partition(": ")[2].split(", ")
    )

    assert {option: times[option] for option in options if times[option] < 3} == {}


def test_every_key_and_every_choice_occurs() -> None:
    policy, learner, data, ensemble = (collections.defaultdict(list) for _ in range(4))
    for one in FROZEN:
        tables = tomllib.loads(one.toml)
        for found, table in (
            (policy, tables["policy"]),
            (data, tables["data"]),
            (ensemble, tables.get("ensemble", {})),
            *((learner, table) for table in tables["learner"]),
        ):
            for key, value in table.items():
                found[key].append(value)

    assert {*policy} == {"preset", *CHOICES, *NUMBERS}
    assert {*learner} == {*OF_LEARNERS}
    assert {*data} == {*OF_DATA}
    assert {*policy["preset"]} == {preset for preset in PRESETS if preset}
    assert {key: set(policy[key]) for key in CHOICES} == CHOICES
    assert {key: set(ensemble[key]) for key in OF_ENSEMBLES} == OF_ENSEMBLES
    assert "doubling" in policy["horizon"]
    assert "estimated" in policy["alpha"]


def test_each_preset_decides_often_in_every_phase_that_it_has() -> None:
    rows = collections.Counter[tuple[str, str]]()
    for name, kept in recorded().items():
        for phase, times in kept["rows"].items():
            rows[name[4:].partition(":")[0], phase] += times

    for preset in (preset or "no preset" for preset in PRESETS):
        is_phased = preset in ("cos", "dcza", "cos-ce", "no preset")
        for phase in ("train", "explore", "exploit") if is_phased else ("explore", "exploit"):
            assert rows[preset, phase] > 500, (preset, phase)
