"""Reports of a replay: summary, text and files."""

import json
import re
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from covey.replay.gains import Gain
from covey.replay.outcome import BaselineOutcome, Outcome
from covey.report import replay as replay_report
from support.outcomes import (
    HOSTILE,
    NONE,
    SITES,
    idle_learner,
    make_outcome,
    numbers_of,
    small_learner,
    small_outcome,
)


def test_the_summary_of_a_learner_holds_its_counts_as_percents() -> None:
    outcome = small_outcome(small_learner("a", slots=200, errors=20, alone_errors=30))

    assert numbers_of(outcome) == {
        "version": version("covey"),
        "policy": "CoS",
        "slots": 300,
        "total": {
            "slots": 200,
            "error_percent": 10.0,
            "cost_points": 1.0,
            "best_own_percent": 25.0,
            "net_gain_points": pytest.approx({"mean": 14.0, "low": 13.0, "high": 15.0}),
            "alone_percent": 15.0,
            "train_percent": 10.0,
            "explore_percent": 20.0,
            "alarms": 0,
        },
        "learners": {
            "a": {
                "slots": 200,
                "errors": 20,
                "error_percent": 10.0,
                "train_percent": 10.0,
                "explore_percent": 20.0,
                "exploit_percent": 70.0,
                "cost_total": 2.0,
                "arms": {"a-tree": 170, "peer": 30},
                "alone_percent": 15.0,
                "alone": 15.0,
                "best_own": "a-tree",
                "best_own_percent": 25.0,
                "net_gain_points": pytest.approx({"mean": 14.0, "low": 12.0, "high": 16.0}),
                "pairs": [
                    {
                        "peer": "peer",
                        "asked": 30,
                        "paid": 2.0,
                        "judged": 30,
                        "right": 27,
                        "best_own": "a-tree",
                        "best_own_right": 20,
                    }
                ],
                "alarms": {"count": 0, "slots": []},
            }
        },
        "functions": {"a-tree": 25.0, "b-tree": 12.5, "unheard": None},
    }


def test_the_error_percent_is_of_the_judged_slots_only() -> None:
    learner = small_learner("a", slots=200, errors=20, alone_errors=40)
    half = msgspec.structs.replace(learner, judged=100)
    numbers = numbers_of(small_outcome(half))["learners"]["a"]

    assert (numbers["error_percent"], numbers["alone"]) == (20.0, 40.0)


def test_a_learner_without_rows_has_no_numbers_but_its_slots() -> None:
    numbers = numbers_of(small_outcome(idle_learner("a")))["learners"]["a"]

    assert numbers == {
        "slots": 0,
        "errors": None,
        "error_percent": None,
        "train_percent": None,
        "explore_percent": None,
        "exploit_percent": None,
        "cost_total": None,
        "arms": {},
        "alone_percent": None,
        "alone": None,
        "best_own": None,
        "best_own_percent": None,
        "net_gain_points": None,
        "pairs": [],
        "alarms": {"count": 0, "slots": []},
    }


def test_without_true_labels_the_summary_knows_phases_but_no_errors() -> None:
    outcome = make_outcome(["north"], is_judged=False)
    numbers = numbers_of(outcome)["learners"]["north"]

    assert numbers["error_percent"] is None
    assert numbers["alone"] is None
    assert numbers["train_percent"] > 0


def test_the_text_has_one_line_for_each_learner_and_one_for_all() -> None:
    first = small_learner("a", slots=200, errors=20, alone_errors=30)
    second = small_learner("b", slots=100, errors=40, alone_errors=31)
    lines = replay_report.text(small_outcome(first, second)).splitlines()

    assert [line.split() for line in lines[5:8]] == [
        ["a", "200", "10.00", "1.00", "25.00", "+14.00", "2.00", "15.00", "10.0", "20.0"],
        ["b", "100", "40.00", "1.00", "25.00", "-16.00", "2.00", "31.00", "10.0", "20.0"],
        ["all", "300", "20.00", "1.00", "25.00", "+4.00", "1.00", "20.33", "10.0", "20.0"],
    ]


def with_baselines() -> Outcome:
    found = {"win-stay": BaselineOutcome(3, 8), "oza-russell": BaselineOutcome(0, 0)}
    return msgspec.structs.replace(make_outcome(SITES[:2]), baselines=found)


def test_the_summary_holds_the_errors_of_the_baselines() -> None:
    assert numbers_of(with_baselines())["baselines"] == {
        "win-stay": {"errors": 3, "error_percent": 37.5},
        "oza-russell": {"errors": 0, "error_percent": None},
    }


def test_the_text_ends_with_a_table_of_the_baselines_and_what_follows_from_it() -> None:
    *_, table, conclusion = replay_report.text(with_baselines()).strip().split("\n\n")

    assert [line.split() for line in table.splitlines()] == [
        ["baseline", "error", "%"],
        ["-" * 20],
        ["win-stay", "37.50"],
        ["oza-russell", NONE],
    ]
    assert conclusion.startswith("The best baseline, win-stay, has 37.50% errors: ")
    assert "points more than the sites' errors and costs together" in " ".join(conclusion.split())


def test_the_page_lists_the_baselines_best_first() -> None:
    found = {"oza-russell": (0, 0), "win-stay": (3, 8), "adaboost": (1, 8)}
    baselines = {name: BaselineOutcome(*counts) for name, counts in found.items()}
    page = replay_report.html(
        msgspec.structs.replace(make_outcome(SITES[:2]), baselines=baselines), title="Replay"
    )

    listed = page[page.index("Error % of each baseline") :]
    assert re.findall(r'<li title="([^"]*)">', listed) == ["adaboost", "win-stay", "oza-russell"]


def test_without_baselines_the_report_omits_them() -> None:
    outcome = make_outcome(SITES[:2])

    assert "baseline" not in replay_report.text(outcome) + replay_report.html(
        outcome, title="Replay"
    )
    assert "baselines" not in numbers_of(outcome)


def test_the_columns_of_the_text_line_up() -> None:
    lines = replay_report.text(make_outcome(SITES)).splitlines()
    table = lines[lines.index("") + 1 :]
    table = table[: table.index("")]

    assert len(table) == 11
    assert len({len(line) for line in table}) == 1


@pytest.mark.parametrize("count", [1, 4, 8])
def test_the_text_fits_a_terminal_of_100_columns_when_names_are_short(count: int) -> None:
    lines = replay_report.text(make_outcome(SITES[:count])).splitlines()

    assert max(map(len, lines)) <= 100


def test_the_text_shows_no_number_for_a_learner_without_rows() -> None:
    busy = small_learner("a", slots=200, errors=20, alone_errors=30)
    lines = replay_report.text(small_outcome(busy, idle_learner("b"))).splitlines()

    assert lines[6].split() == ["b", "0", *[NONE] * 8]


def test_the_text_names_the_best_single_function_of_the_network() -> None:
    outcome = small_outcome(small_learner("a", slots=200, errors=20, alone_errors=30))

    assert "best single function in hindsight is b-tree, wrong on 12.50%" in replay_report.text(
        outcome
    )


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
    printed = " ".join(replay_report.text(small_outcome(first, idle_learner("b"))).split())

    share = f"{errors / 3:.2f}"
    start = "Over all sites, the best own function of each was wrong on 25.00% of its rows. "
    both = f"Together they were wrong on {share}% and paid 1.00 points: {sentence}"
    assert start + both in printed.replace("a net gain of 0.00", "a net loss of 0.00")
    assert printed.endswith("Without peers the same policy was wrong on 20.00%.")


def test_few_rows_give_no_interval() -> None:
    first = small_learner("a", slots=300, errors=30, alone_errors=60)
    outcome = msgspec.structs.replace(
        small_outcome(first, idle_learner("b")), gain=Gain(0.14, None)
    )
    printed = " ".join(replay_report.text(outcome).split())

    assert "a net gain of 14.00 points (too few rows for an interval)" in printed


def test_sites_without_functions_have_nothing_to_compare_with() -> None:
    first = small_learner("a", slots=300, errors=30, alone_errors=60)
    bare = msgspec.structs.replace(first, own_errors={}, gain=None)
    printed = replay_report.text(small_outcome(bare, idle_learner("b")))

    assert "No site has own functions; together they were wrong on 10.00%." in printed


def test_without_true_labels_the_text_does_not_judge() -> None:
    printed = replay_report.text(make_outcome(["north", "east"], is_judged=False))

    assert "The gain of cooperation is unknown" in printed
    assert "Functions cannot be judged" in printed


def test_the_text_of_a_single_learner_does_not_mention_cooperation() -> None:
    printed = replay_report.text(make_outcome(["north"]))

    assert "no peer" in printed
    assert "cooperation" not in printed


def test_a_name_cannot_send_control_characters_to_the_terminal() -> None:
    printed = replay_report.text(make_outcome(HOSTILE))

    assert all(letter.isprintable() for letter in printed.replace("\n", ""))


def test_write_makes_the_folder_and_returns_the_page(tmp_path: Path) -> None:
    outcome = make_outcome(["north", "east"])
    path = replay_report.write(outcome, tmp_path / "new" / "folder", title="A replay")

    assert path == tmp_path / "new" / "folder" / "report.html"
    assert path.read_text(encoding="utf-8") == replay_report.html(outcome, title="A replay")


def test_the_written_summary_is_indented_json_of_the_summary(tmp_path: Path) -> None:
    outcome = make_outcome(["north", "東京"])
    replay_report.write(outcome, tmp_path, title="A replay")
    written = (tmp_path / "summary.json").read_text(encoding="utf-8")

    assert json.loads(written) == numbers_of(outcome)
    assert written.startswith('{\n  "version": "')


def test_write_replaces_an_older_report_without_other_files(tmp_path: Path) -> None:
    replay_report.write(make_outcome(["north"]), tmp_path, title="Older")
    path = replay_report.write(make_outcome(["north"]), tmp_path, title="Newer")

    assert "<h1>Newer</h1>" in path.read_text(encoding="utf-8")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["report.html", "summary.json"]


def test_a_failed_write_keeps_the_older_file_and_no_part(tmp_path: Path) -> None:
    older = replay_report.write(make_outcome(["north"]), tmp_path, title="Older")
    (tmp_path / "summary.json").unlink()
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(OSError, match=re.escape("summary.json")):
        replay_report.write(make_outcome(["north"]), tmp_path, title="Newer")

    assert "<h1>Older</h1>" in older.read_text(encoding="utf-8")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["report.html", "summary.json"]
