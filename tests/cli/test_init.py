"""`covey init` guesses a configuration that replays, says what it guessed, and warns."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from covey import cli
from covey.cli.init import guess

ROWS = 400


def columns() -> dict[str, list[Any]]:
    """A log of two sites with a constant column, text, a gap and a column of scores."""
    rng = np.random.default_rng(4)
    truth = rng.choice(["yes", "no"], ROWS)
    site = rng.choice(["east", "west"], ROWS)

    def predicted(share: float) -> list[str]:
        other = np.where(truth == "yes", "no", "yes")
        return np.where(rng.random(ROWS) < share, truth, other).tolist()

    load = rng.lognormal(3, 2, ROWS).round(3)
    return {
        "note": [f"row {row}" for row in range(ROWS)],
        "day": [f"2026-{row % 12 + 1:02}-{row % 28 + 1:02}" for row in range(ROWS)],
        "short": [f"2026-03-{row % 5 + 1:02}" for row in range(ROWS)],
        "weather": rng.choice(["dry", "wet", "snow"], ROWS).tolist(),
        "time": [f"2026-03-01T{hour:02}:30:00" for hour in rng.integers(0, 24, ROWS)],
        "truth": truth.tolist(),
        "site": site.tolist(),
        "east_tree": predicted(0.9),
        "west_bayes": predicted(0.7),
        "west_proba": rng.random(ROWS).round(4).tolist(),
        "temperature": rng.normal(10, 5, ROWS).round(2).tolist(),
        "bytes": load.tolist(),
        "version": ["1.2"] * ROWS,
        "pressure": ["" if k == 7 else k for k in range(ROWS)],
    }


def write(path: Path, table: dict[str, list[Any]], *, separator: str = ",") -> Path:
    rows = [
        separator.join(table),
        *(separator.join(map(str, r)) for r in zip(*table.values(), strict=True)),
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


def init(log: Path, out: Path, *more: str) -> int:
    return cli.main(["init", str(log), "--out", str(out), *more])


def test_a_guessed_configuration_replays_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = write(tmp_path / "log.csv", columns()), tmp_path / "sites.toml"

    assert init(log, out) == 0
    printed, warned = capsys.readouterr()
    assert "true labels: truth (2 classes)" in printed
    assert "predictions: east_tree, west_bayes" in printed
    assert "sites: site (2)" in printed
    written = out.read_text()
    for entry in (
        '{ column = "time", scale = "hour" }',
        '{ column = "day", scale = "weekday" }',
        '{ column = "day", scale = "month" }',
        'scale = "category", values = ["dry","snow","wet"], other = "own" }',
        '"bytes", scale = "log"',
        '"temperature", scale = "linear"',
    ):
        assert any(entry in line for line in written.splitlines())
    for sentence in (
        "version is constant in the log; it is left out",
        "pressure is a row number or a running clock; it is left out",
        "note holds 400 different texts, too many for categories; it is left out",
        "short holds times of less than two weeks; it is left out",
    ):
        assert sentence in warned
    assert cli.main(["replay", str(log), "--config", str(out), "--quiet"]) == 0
    assert "east" in capsys.readouterr().out


def test_functions_belong_to_the_site_that_is_a_word_of_their_names(tmp_path: Path) -> None:
    table = columns()
    names = {"east_tree": "tree-EAST", "west_bayes": "bayes_west_2"}
    log = write(tmp_path / "log.csv", {names.get(name, name): table[name] for name in table})

    assert guess(log).learners == {"east": ["tree-EAST"], "west": ["bayes_west_2"]}


@pytest.mark.parametrize(("days", "is_proposed"), [(13, False), (14, True)])
def test_weekdays_are_proposed_from_two_weeks_on(
    days: int, is_proposed: bool, tmp_path: Path
) -> None:
    moments = ["2026-03-01", f"2026-03-{1 + days:02}"]
    log = write(tmp_path / "log.csv", {"day": moments, "label": [0, 1], "a_tree": [0, 1]})

    assert any("weekday" in entry for entry, _ in guess(log).ranked) == is_proposed


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_lists_is_proposed_as_a_vector(kind: str, tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(ROWS, 5)).tolist()
    whole = {name: columns()[name] for name in ("truth", "east_tree", "west_bayes", "weather")}
    whole |= {"embedding": vectors, "gaps": [[], *vectors[1:]]}
    log = tmp_path / f"log.{kind}"
    if kind == "csv":
        write(log, whole, separator="|")
    else:
        pq.write_table(pa.table(whole), log)
    out = tmp_path / "guess.toml"

    assert init(log, out, "--label", "truth") == 0
    text = out.read_text()
    assert '{ vector = "embedding", size = 5 },' in text
    assert "gaps" not in text
    assert cli.main(["replay", str(log), "--config", str(out)]) == 0


def messy(**changes: Any) -> dict[str, list[Any]]:
    """A log of two sites in which the hour tells which function is right."""
    rng = np.random.default_rng(7)
    truth, hour = rng.choice(["fraud", "ok"], ROWS), np.arange(ROWS) % 24
    other = np.where(truth == "ok", "fraud", "ok")
    good = rng.random((2, ROWS)) < np.where(hour < 12, [[0.95], [0.5]], [[0.5], [0.95]])
    table: dict[str, Any] = {
        "label": truth.tolist(),
        "bank": rng.choice(["alpha", "beta"], ROWS).tolist(),
        "alpha_gbm": np.where(good[0], truth, other).tolist(),
        "beta_logit": np.where(good[1], truth, other).tolist(),
        "hour": hour.tolist(),
        "noise": rng.random(ROWS).round(3).tolist(),
    }
    return {**table, **changes}


def gap(column: str) -> list[Any]:
    return ["" if row in (3, 50, 99) else value for row, value in enumerate(messy()[column])]


def test_contexts_that_gain_are_active_and_others_are_comments_with_their_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sites.toml"
    log = write(tmp_path / "log.csv", messy(minute=[60 * hour for hour in messy()["hour"]]))

    assert init(log, out) == 0
    assert "sites: bank (2)" in capsys.readouterr().out  # functions are named by its values
    lines = [line.strip() for line in out.read_text().splitlines()]
    (active,) = (line for line in lines if line.startswith("{ column"))
    assert '"hour"' in active  # and not the minute, which says the same
    assert any(line.startswith('# "noise",  # rank 3: alone ') for line in lines)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tx": [10**25 + 7 * row for row in range(ROWS)]}, "tx is an id of the row"),
        ({"user_id": [f"u{row * 7919 % ROWS}" for row in range(ROWS)]}, "user_id is an id"),
        ({"at": [1_700_000_000 + 60 * row for row in range(ROWS)]}, "at is a row number or a"),
        ({"day": [f"{1 + row % 28:02}.03.2025" for row in range(ROWS)]}, "not ISO 8601"),
        ({"sum": [f"{row % 90},50" for row in range(ROWS)]}, "decimal commas"),
        ({"sum": [*map(float, range(ROWS - 1)), "inf"]}, "infinite values"),
        ({"label": gap("label")}, "revealed: label (3 rows have no label"),
        ({"beta_logit": gap("beta_logit")}, "beta_logit lacks 3 predictions"),
    ],
)
def test_messy_columns_get_a_sentence_and_a_configuration_that_replays(
    changes: dict[str, list[Any]],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = write(tmp_path / "log.csv", messy(**changes), separator=";")
    out = tmp_path / "sites.toml"

    assert init(log, out) == 0
    assert words in "".join(capsys.readouterr())
    assert cli.main(["replay", str(log), "--config", str(out), "--quiet"]) == 0


def test_a_label_column_is_found_by_its_trimmed_name(tmp_path: Path) -> None:
    table = {" Ground Truth ": messy()["label"], **messy()}
    del table["label"]

    assert guess(write(tmp_path / "log.csv", table)).label == " Ground Truth "


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("label,a\n1,1\n".encode("utf-16"), "iconv -f utf-16"),
        ("label,\xe4\n1,1\n".encode("latin1"), "iconv -f latin1"),
    ],
)
def test_files_in_another_encoding_say_how_to_convert_them(
    content: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_bytes(content)

    assert init(tmp_path / "log.csv", tmp_path / "sites.toml") == 2
    assert sentence in capsys.readouterr().err
