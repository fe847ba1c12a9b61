"""Policies side by side: the same rows, paired intervals, a conclusion, finished replays kept."""

import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

import covey
from covey.errors import ConfigError, CoveyError
from covey.replay.outcome import gain_of
from covey.report.comparison import ComparisonSummary, PolicySummary
from support.own_policies import CellUCB
from support.required import ROOT

DOCS = ROOT / "docs"
ROWS = 2_560
CONFIG: dict[str, Any] = {
    "data": {"context": ["load"]},
    "policy": {"preset": "share-ucb", "slices": 2},
    "learner": [
        {"name": "north", "functions": ["nb"], "peers": {"south": 0.05}},
        {"name": "south", "functions": ["rules"], "peers": {"north": 0.05}},
    ],
}


def log() -> dict[str, np.ndarray]:
    """A log of two functions, each right in the other half of the contexts."""
    rng = np.random.default_rng(6)
    load, labels = rng.random(ROWS), rng.integers(0, 2, ROWS)
    good = {"nb": load < 0.5, "rules": load >= 0.5}
    answers = {
        name: np.where(rng.random(ROWS) < np.where(where, 0.95, 0.5), labels, 1 - labels)
        for name, where in good.items()
    }
    return {"load": load, "label": labels, **answers}


@pytest.fixture(scope="module")
def found() -> covey.ReplayComparison:
    return covey.compare(CONFIG, log(), slices=[1, 4], presets=["cos"])


def net(config: dict[str, Any]) -> np.ndarray:
    """Return right answers less costs of both learners, in each slot of a replay."""
    trace = covey.replay(config, log()).trace
    gained: np.ndarray = np.bincount(trace.slot - 1, trace.correct - trace.cost)
    return gained


def test_the_configured_policy_is_the_first_and_has_the_numbers_of_its_replay(
    found: covey.ReplayComparison,
) -> None:
    summary, replayed = found.summary(), covey.replay(CONFIG, log()).summary()
    first = summary.policies["as configured"]

    assert list(summary.policies) == ["as configured", "cos slices=1", "cos slices=4"]
    assert (summary.reference, summary.slots) == ("as configured", ROWS)
    assert first.numbers == replayed.total
    assert first.against_points is None
    assert found.outcomes["as configured"] == covey.replay(CONFIG, log()).outcome


def test_differences_are_paired_on_the_same_rows_as_by_hand(found: covey.ReplayComparison) -> None:
    cos = {**CONFIG, "policy": {"preset": "cos", "slices": 4}}
    gained = (net(cos) - net(CONFIG)).reshape(32, -1).sum(axis=1)
    expected = gain_of(gained, [2 * ROWS / 32] * 32, comparisons=2)
    against = found.summary().policies["cos slices=4"].against_points

    assert expected is not None
    assert against is not None
    assert expected.low is not None
    assert msgspec.structs.astuple(against) == pytest.approx(msgspec.structs.astuple(expected))


def test_the_conclusion_names_the_best_policy_and_its_lead() -> None:
    one_cell = {**CONFIG, "policy": {"preset": "share-ucb", "slices": 1}}
    found = covey.compare(one_cell, log(), slices=[2])
    lead = found.summary().policies["slices=2"].against_points

    assert lead is not None
    assert lead.low is not None
    assert lead.low > 0
    assert found.summary().best == "slices=2"
    assert found.summary().conclusion.startswith("'slices=2' does best: ")
    assert f"{lead.mean:.2f} points less than 'as configured'" in found.summary().conclusion
    assert "chance" not in found.summary().conclusion


def test_few_rows_have_no_interval_and_no_labels_no_conclusion() -> None:
    few = {name: column[:5] for name, column in log().items()}
    hidden = {**few, "label": [None] * 5, "shown": [0] * 5}
    data = {**CONFIG["data"], "revealed": "shown"}

    few_rows = covey.compare(CONFIG, few, slices=[1]).summary()
    unlabelled = covey.compare({**CONFIG, "data": data}, hidden, slices=[1]).summary()

    assert "too few rows for an interval" in few_rows.conclusion
    assert unlabelled.best is None
    assert unlabelled.conclusion.startswith("The policies cannot be compared")


def test_without_a_choice_the_usual_presets_that_fit_are_compared() -> None:
    candidates = {**CONFIG, "data": {"candidates": ["load", []]}, "policy": {"preset": "cos"}}

    usual = covey.compare(CONFIG, log()).summary().policies
    fitting = covey.compare(candidates, log()).summary().policies

    assert list(usual) == ["as configured", "auto", "cos", "dcza"]  # it is share-ucb itself
    assert list(fitting) == ["as configured", "auto", "dcza"]


def test_policies_of_your_own_are_settings_tables_and_classes() -> None:
    own = {
        "settings": covey.CoS(slices=3),
        "table": {"preset": "dcza"},
        "class": {"preset": CellUCB, "slices": 2},
    }
    policies = covey.compare(CONFIG, log(), policies=own).summary().policies

    assert [policies[name].settings["preset"] for name in own] == [
        *("cos", "dcza", "support.own_policies:CellUCB")
    ]


def test_a_file_of_policies_and_a_log_on_disk_give_the_same(tmp_path: Path) -> None:
    pd.DataFrame(log()).to_parquet(tmp_path / "log.parquet")
    (tmp_path / "own.toml").write_text('[[policy]]\nname = "mine"\npreset = "cos"\nslices = 4\n')
    of_file = covey.compare(CONFIG, tmp_path / "log.parquet", policies=tmp_path / "own.toml")
    of_frame = covey.compare(CONFIG, pd.DataFrame(log()), policies={"mine": covey.CoS(slices=4)})

    assert of_file.summary() == of_frame.summary()


def test_processes_find_the_same(found: covey.ReplayComparison) -> None:
    there = covey.compare(CONFIG, log(), slices=[1, 4], presets=["cos"], workers=2)

    assert there.summary() == found.summary()
    assert there.outcomes == found.outcomes


def test_finished_replays_are_kept_and_only_missing_ones_replayed(
    tmp_path: Path, found: covey.ReplayComparison
) -> None:
    told: list[float] = []

    def again(slices: list[int]) -> covey.ReplayComparison:
        told.clear()
        return covey.compare(
            CONFIG,
            log(),
            presets=["cos"],
            slices=slices,
            out=tmp_path,
            progress=lambda share, slots: told.append(slots),
        )

    again([1])
    assert told == [ROWS, 2 * ROWS]
    resumed = again([1, 4])
    assert told == [ROWS]
    assert resumed.summary() == found.summary()
    again([1, 4])
    assert told == []


def test_a_folder_of_another_log_or_configuration_is_refused(tmp_path: Path) -> None:
    covey.compare(CONFIG, log(), slices=[1], out=tmp_path)
    other = {**log(), "nb": log()["rules"]}
    free = {**CONFIG, "learner": [{"name": "north", "functions": ["nb"]}]}

    with pytest.raises(ConfigError, match="holds runs of another comparison: data is"):
        covey.compare(CONFIG, other, slices=[1], out=tmp_path)
    with pytest.raises(ConfigError, match="holds runs of another comparison"):
        covey.compare(free, log(), slices=[1], out=tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"presets": ["cso"]}, "policy 'cso': unknown preset 'cso' in .policy.; did you mean"),
        ({"slices": [0]}, "policy 'slices=0': .*slices: expected"),
        ({"slices": [2]}, "there is one policy only"),
        ({"policies": {"a/b": {}}}, "name is 'a/b'; it must begin with a letter"),
        ({"policies": {"mine": {"slice": 3}}}, "policy 'mine': .*did you mean 'slices'"),
        ({"policies": "nowhere.toml"}, "nowhere.toml"),
        ({"policies": {"paper": {"preset": "cos", "batch": "slot"}}}, "count slots differently"),
    ],
)
def test_policies_that_cannot_be_compared_are_refused(
    options: dict[str, Any], sentence: str
) -> None:
    data = {**CONFIG["data"], "batch": "batch"}
    with pytest.raises(CoveyError, match=sentence):
        covey.compare({**CONFIG, "data": data}, {**log(), "batch": np.arange(ROWS) // 2}, **options)


def test_a_warning_of_several_replays_is_given_once() -> None:
    scores = {**log(), "nb": log()["load"]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        covey.compare(CONFIG, scores, slices=[1])

    assert [str(each.message)[:25] for each in caught] == ["100% of the predictions o"]


def test_a_comparison_is_described_drawn_and_written(
    found: covey.ReplayComparison, tmp_path: Path
) -> None:
    page = found.report(tmp_path / "out")
    axes = found.plot()
    summary = found.summary()

    assert repr(found).startswith("<Comparison of 3 policies, 2,560 slots, least loss: ")
    assert isinstance(axes, Axes)
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {
        *("cos slices=1", "cos slices=4")
    }
    lead = axes.get_lines()[1].get_ydata()[-1]
    assert summary.policies["cos slices=1"].against_points is not None
    assert lead == pytest.approx(
        summary.policies["cos slices=1"].against_points.mean * 2 * ROWS / 100
    )
    assert "cos slices=4" in page.read_text(encoding="utf-8")
    assert f"covey {covey.__version__}" in page.read_text(encoding="utf-8")
    numbers = msgspec.json.decode((tmp_path / "out" / "comparison.json").read_bytes())
    assert numbers == msgspec.to_builtins(summary)


def test_every_field_of_the_numbers_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "summary.md").read_text()
    records = (ComparisonSummary, PolicySummary)
    fields = {field.name for record in records for field in msgspec.structs.fields(record)}

    assert len(fields) > 10
    assert {name for name in fields if f"`{name}`" not in page} == set()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"workers": 0}, "workers is 0; give the number of processes"),
        ({"slices": 4}, r"slices is 4; give a list, such as \[4\]"),
        ({"presets": "auto"}, r"presets is 'auto'; give a list, such as \['auto'\]"),
    ],
)
def test_what_is_no_list_and_no_number_of_processes_is_refused(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        covey.compare(CONFIG, log(), **given)
