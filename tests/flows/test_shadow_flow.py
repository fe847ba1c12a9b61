"""A served site in shadow mode: its report, its export, and the replay of that."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey import cli
from support.served import FEEDBACK, INFER, SITE, Client, infer, run

ROWS = 120
SHADOW = SITE.replace("dimension = 1", "dimension = 1\nshadow = {share}")


def text_with(share: float) -> str:
    return SHADOW.replace("{share}", str(share))


def stream() -> tuple[list[float], list[int]]:
    rng = np.random.default_rng(4)
    points = rng.random(ROWS).round(3).tolist()
    return points, [int(point > 0.5) if rng.random() < 0.9 else 0 for point in points]


async def serve(client: Client, rows: range = range(ROWS)) -> None:
    points, labels = stream()
    for k in rows:
        body = infer(f"r{k}")
        point = {"name": "context", "shape": [1, 1], "datatype": "FP64", "data": [[points[k]]]}
        body["inputs"] = [*body["inputs"][:2], point]
        assert (await client.post(INFER, body))[0] == 200
        assert (await client.post(FEEDBACK, {"id": f"r{k}", "truth": labels[k]}))[0] == 202


def served(folder: Path, share: float) -> Path:
    run(folder, serve, text_with(share))
    return folder / "north.store"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a site that ran every row in the shadow."""
    return served(tmp_path_factory.mktemp("whole"), 1.0)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return served(tmp_path_factory.mktemp("drawn"), 0.3)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_report_of_all_rows_has_the_errors_of_each_function(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, "report", str(whole))["shadow"]
    _, labels = stream()
    ones = 100 * sum(labels) / ROWS
    errors = {one["choice"]: one["error_percent"] for one in found["estimates"]}

    assert (found["rows"], found["drawn"], found["complete"]) == (ROWS, ROWS, ROWS)
    assert errors["zero"] == pytest.approx(ones)
    assert errors["one"] == pytest.approx(100 - ones)
    assert errors["map of own functions"] < min(ones, 100 - ones)
    assert all(one["low_percent"] == one["high_percent"] for one in found["estimates"])


def test_the_estimate_of_a_draw_is_near_the_truth(
    drawn: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, "report", str(drawn))["shadow"]
    truth = told(capsys, "report", str(whole))["shadow"]
    errors = {one["choice"]: one["error_percent"] for one in truth["estimates"]}

    assert 15 < found["drawn"] == found["complete"] < 60
    for one in found["estimates"][:2]:
        # Which rows are drawn is random: twice the interval holds the truth all but always.
        width = one["high_percent"] - one["low_percent"]
        assert 0 < width < 50
        assert abs(one["error_percent"] - errors[one["choice"]]) <= width
        assert (one["rows"], one["drawn"]) == (ROWS, found["drawn"])


def test_a_report_shows_what_happened_and_other_choices(
    drawn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = drawn.parent / "site.toml"
    words = ["report", str(drawn), "--config", str(site), "--report", str(tmp_path / "out")]
    assert cli.main(words) == 0
    text, page = capsys.readouterr().out, (tmp_path / "out" / "report.html").read_text()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())

    for part in ("arm   ", "decisions", "always", "from", "map of own functions"):
        assert part in text
    # An arm is chosen where it is good: its error there says nothing beside that of the site.
    (headings,) = [line.split() for line in text.splitlines() if line.startswith("arm ")]
    assert headings == ["arm", "decisions", "labels", "cost"]
    assert "estimated from the rows that were drawn" in " ".join(text.split())
    assert "<h2>Other choices</h2>" in page
    assert sum(one["decisions"] for one in summary["learners"]["north"]["by_arm"].values()) == ROWS
    assert summary["shadow"]["drawn"] > 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_replay_of_all_rows_decides_as_the_site_did(
    ending: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, site = tmp_path / f"log.{ending}", whole.parent / "site.toml"
    found = told(capsys, "export", str(whole), "--out", str(log), "--config", str(site))
    trace = tmp_path / "trace.csv"
    code = cli.main(["replay", str(log), "--config", found["config"], "--trace", str(trace)])
    capsys.readouterr()
    with trace.open() as file:
        replayed = [(row["phase"], row["arm"], row["cell"]) for row in csv.DictReader(file)]
    stored = covey.open_store(whole).trace.columns()

    assert code == 0
    assert (found["rows"], found["labelled"], found["sampled"]) == (ROWS, ROWS, ROWS)
    assert replayed == list(zip(stored["phase"], stored["arm"], stored["cell"], strict=True))


def test_a_replay_of_a_draw_has_the_drawn_rows_only(
    drawn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    found = told(capsys, "export", str(drawn), "--out", str(log))
    summary = told(capsys, "replay", str(log), "--config", found["config"])
    with log.open() as file:
        rows = list(csv.DictReader(file))
    points, labels = stream()
    sampled = [row for row in rows if row["sampled"] == "1"]
    wrong = sum(row["label"] != "0" for row in sampled)

    assert summary["slots"] == found["sampled"] == found["drawn"] == len(sampled) < ROWS
    assert summary["functions"]["zero"] == pytest.approx(100 * wrong / len(sampled))
    assert [float(row["context_1"]) for row in rows] == points
    assert [int(row["label"]) for row in rows] == labels
    assert all((row["zero"], row["one"]) == ("0", "1") for row in sampled)
    # Of other rows only the answer of the chosen function is known.
    assert all((row["zero"] == "") != (row["one"] == "") for row in rows if row not in sampled)


def test_without_shadow_mode_an_export_says_how_to_get_a_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, lambda client: serve(client, range(5)), text_with(0.0))
    assert (
        cli.main(["export", str(tmp_path / "north.store"), "--out", str(tmp_path / "a.csv")]) == 0
    )

    assert "set shadow = 0.05 in the [node] table" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--out", "log.txt"], "the log log.txt must end in .csv or .parquet"),
        (["--out", "none/log.csv"], "of the log does not exist"),
        (["--out", "site.csv", "--config", "site.toml"], "would be overwritten"),
    ],
)
def test_an_export_that_cannot_be_written_is_refused(
    words: list[str],
    sentence: str,
    whole: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(whole.parent)
    before = sorted(whole.parent.iterdir())
    assert cli.main(["export", "north.store", *words]) == 2

    assert sentence in capsys.readouterr().err
    assert sorted(whole.parent.iterdir()) == before
