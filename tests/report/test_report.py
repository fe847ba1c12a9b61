"""Reports of a replay: summary, text and files."""

import re
from pathlib import Path

import msgspec
import pytest

from covey.replay.baselines import BaselineNumbers
from covey.replay.outcome import Outcome
from covey.report.page import replay_page
from covey.report.results import Result
from support.outcomes import (
    HOSTILE,
    NONE,
    SITES,
    idle_learner,
    make_outcome,
    small_learner,
    small_outcome,
)


def test_the_text_has_one_line_for_each_learner_and_one_for_all() -> None:
    first = small_learner("a", slots=200, errors=20, alone_errors=30)
    second = small_learner("b", slots=100, errors=40, alone_errors=31)
    lines = Result(small_outcome(first, second)).table().splitlines()

    assert [line.split() for line in lines[5:8]] == [
        ["a", "200", "10.00", "+14.00", "2.00", "1.00", "25.00", "15.00", "10.0", "20.0"],
        ["b", "100", "40.00", "-16.00", "2.00", "1.00", "25.00", "31.00", "10.0", "20.0"],
        ["all", "300", "20.00", "+4.00", "1.00", "1.00", "25.00", "20.33", "10.0", "20.0"],
    ]


def with_baselines() -> Outcome:
    found = {"river-ucb": BaselineNumbers(3, 37.5), "follow-the-leader": BaselineNumbers(0, None)}
    return msgspec.structs.replace(make_outcome(SITES[:2]), baselines=found)


def test_the_text_ends_with_a_table_of_the_baselines_and_what_follows_from_it() -> None:
    *_, table, conclusion = Result(with_baselines()).table().strip().split("\n\n")

    assert [line.split() for line in table.splitlines()] == [
        ["baseline", "error", "%"],
        ["-" * 26],
        ["river-ucb", "37.50"],
        ["follow-the-leader", NONE],
    ]
    assert conclusion.startswith("The best baseline, river-ucb, has 37.50% errors: ")
    assert "points more than the sites' errors and costs together" in " ".join(conclusion.split())


def test_the_page_lists_the_baselines_best_first() -> None:
    found = {"follow-the-leader": (0, None), "river-ucb": (3, 37.5), "adaboost": (1, 12.5)}
    baselines = {name: BaselineNumbers(*counts) for name, counts in found.items()}
    page = replay_page(
        msgspec.structs.replace(make_outcome(SITES[:2]), baselines=baselines), title="Replay"
    )

    listed = page[page.index("Error % of each baseline") :]
    assert re.findall(r'<li title="([^"]*)">', listed) == [
        "adaboost",
        "river-ucb",
        "follow-the-leader",
    ]


@pytest.mark.parametrize(
    ("errors", "sentence"),
    [
        (30, "a net gain of 14.00 points (95 % interval +13.00 to +15.00). Without peers the same"),
        (90, "a net loss of 6.00 points (95 % interval -7.00 to -5.00). Without peers the same"),
        (72, "a net loss of 0.00 points (95 % interval -1.00 to +1.00, which may be chance)."),
    ],
)
def test_the_text_compares_with_the_best_own_functions_net_of_costs(
    errors: int, sentence: str
) -> None:
    first = small_learner("a", slots=300, errors=errors, alone_errors=60)
    printed = " ".join(Result(small_outcome(first, idle_learner("b"))).table().split())

    share = f"{errors / 3:.2f}"
    start = "Over all sites, the best own function of each was wrong on 25.00% of its rows. "
    both = f"Together they were wrong on {share}% and spent 1.00 points: {sentence}"
    assert start + both in printed.replace("a net gain of 0.00", "a net loss of 0.00")
    assert "Without peers the same policy was wrong on 20.00%." in printed
    assert ("a loses by taking part: -6.00" in printed) == (errors == 90)


def test_without_true_labels_the_text_does_not_judge() -> None:
    printed = Result(make_outcome(["north", "east"], is_judged=False)).table()

    assert "The gain of cooperation is unknown" in printed


def test_a_name_cannot_send_control_characters_to_the_terminal() -> None:
    printed = Result(make_outcome(HOSTILE)).table()

    assert all(letter.isprintable() for letter in printed.replace("\n", ""))


def test_a_failed_write_keeps_the_older_file_and_no_part(tmp_path: Path) -> None:
    older = Result(make_outcome(["north"]), title="Older").report(tmp_path)
    (tmp_path / "summary.json").unlink()
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(OSError, match=re.escape("summary.json")):
        Result(make_outcome(["north"]), title="Newer").report(tmp_path)

    assert "<h1>Older</h1>" in older.read_text(encoding="utf-8")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        *("report.html", "report.tex", "results.csv", "summary.json")
    ]
