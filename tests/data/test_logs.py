"""Logs: the same columns from CSV, gzipped CSV and Parquet, and every file that cannot be read."""

import csv
import decimal
import gzip
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from covey.data import tables
from covey.data.tables import ROWS_PER_CHUNK, open_log
from covey.errors import DataError


@pytest.fixture(params=["plain", "pyarrow"], autouse=True)
def csv_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tables, "_SMALL_BYTES", 0 if request.param == "pyarrow" else 2**60)
    return str(request.param)


def csv_log(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def parquet_log(folder: Path, **columns: Any) -> Path:
    path = folder / "log.parquet"
    parquet.write_table(arrow.table(columns), path)
    return path


def read(path: Path, *wanted: str) -> dict[str, list[Any]]:
    """Return the wanted columns, the chunks put together."""
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    for chunk in open_log(path, wanted).chunks():
        for name in wanted:
            columns[name] += list(chunk[name])
    return columns


def sentence_of(path: Path, *wanted: str) -> str:
    with pytest.raises(DataError) as caught:
        read(path, *wanted)
    return str(caught.value)


def test_csv_gives_the_wanted_columns_as_text(tmp_path: Path) -> None:
    path = csv_log(tmp_path, "label,other,nb\n1,x,0.5\n0,y,\n")

    assert read(path, "nb", "label") == {"nb": ["0.5", ""], "label": ["1", "0"]}


PLAIN_CSV = b"label,nb\n1,0\n0,1\n"
SAME_CSV = {
    "other line endings": ("log.csv", PLAIN_CSV.replace(b"\n", b"\r\n")),
    "a byte order mark": ("log.csv", b"\xef\xbb\xbf" + PLAIN_CSV),
    "blank lines at the end": ("log.csv", PLAIN_CSV + b"\n\r\n\n"),
    "gzipped": ("log.csv.gz", gzip.compress(PLAIN_CSV)),
}


@pytest.mark.parametrize(("name", "content"), SAME_CSV.values(), ids=SAME_CSV)
def test_csv_is_read_however_it_is_stored(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    assert read(path, "label", "nb") == {"label": ["1", "0"], "nb": ["0", "1"]}


def test_quotes_keep_commas_and_line_breaks_and_blanks_together(tmp_path: Path) -> None:
    path = csv_log(tmp_path, 'label,nb\n"a,b"," c"\n"d\ne","say ""f"""\n')

    assert read(path, "label", "nb") == {"label": ["a,b", "d\ne"], "nb": [" c", 'say "f"']}


def test_a_blank_line_in_the_middle_is_a_row_that_lacks_its_fields(tmp_path: Path) -> None:
    path = csv_log(tmp_path, "label,nb\n1,0\n\n\n1,0\n")

    assert sentence_of(path, "label") == "row 2 has 0 fields, but the header has 2"


@pytest.mark.parametrize(("row", "fields"), [("1", 1), ("1,0,0", 3), ("  ", 1)])
def test_a_ragged_row_is_named(tmp_path: Path, row: str, fields: int) -> None:
    path = csv_log(tmp_path, f"label,nb\n1,0\n1,0\n{row}\n")

    assert sentence_of(path, "label") == f"row 3 has {fields} fields, but the header has 2"


def test_row_numbers_continue_across_chunks(tmp_path: Path) -> None:
    path = csv_log(tmp_path, "label,nb\n" + "1,0\n" * ROWS_PER_CHUNK + "1,0\n1\n")

    where = f"row {ROWS_PER_CHUNK + 2}"
    assert sentence_of(path, "label") == f"{where} has 1 fields, but the header has 2"


def test_logs_come_in_chunks_that_lose_nothing(tmp_path: Path) -> None:
    rows = ROWS_PER_CHUNK + 4_000
    text = csv_log(tmp_path, "label,nb\n" + "".join(f"{k},0\n" for k in range(rows)))
    for path in (text, parquet_log(tmp_path, label=np.arange(rows))):
        chunks = [chunk["label"] for chunk in open_log(path, ["label"]).chunks()]

        assert [len(chunk) for chunk in chunks] == [ROWS_PER_CHUNK, 4_000]
        assert [int(label) for chunk in chunks for label in chunk] == list(range(rows))


def test_both_readers_give_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    pieces = ["", "0.5", "a", "é", " b ", "NA", "null", "nan", "1e-3"]
    pieces += ['say "x"', "a;b", "l\nm", ","]  # what is quoted
    for number in range(30):
        rows = [[pieces[k] for k in rng.integers(0, len(pieces), 3)] for _ in range(200)]
        path = tmp_path / f"{number}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=",;\t"[number % 3], quoting=number % 2)
            writer.writerows([["x", "y", "z"], *rows])
        columns = []
        for small in (0, 2**60):
            monkeypatch.setattr(tables, "_SMALL_BYTES", small)
            monkeypatch.setattr(tables, "_BLOCK_BYTES", 1_000)  # blocks end within fields
            columns.append(read(path, "x", "z"))

        assert columns[0] == columns[1] == {"x": [r[0] for r in rows], "z": [r[2] for r in rows]}


@pytest.mark.parametrize("end", ["\n\n\r\n", '\n"open,1\n', '\n"1"2,1\n', "\n\n1,2\n", "\n1\n"])
def test_both_readers_judge_the_end_of_a_log_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    path = csv_log(tmp_path, "x,y" + "\n1,2" * 2_000 + end)
    outcomes = []
    for small in (0, 2**60):
        monkeypatch.setattr(tables, "_SMALL_BYTES", small)
        monkeypatch.setattr(tables, "_BLOCK_BYTES", 1_000)
        try:
            outcomes.append(str(len(read(path, "x")["x"])))
        except DataError as error:
            outcomes.append(str(error))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("lable", "has no column 'lable'; did you mean 'label'?"),
        ("xyz", "has no column 'xyz'; known: label, nb"),
        (" nb", "has no column ' nb'; did you mean 'nb'?"),
    ],
)
def test_a_missing_column_is_named_with_the_nearest(
    tmp_path: Path, wanted: str, sentence: str
) -> None:
    text = csv_log(tmp_path, "label,nb\n1,0\n")
    table = parquet_log(tmp_path, label=[1], nb=[0])

    assert sentence_of(text, "label", wanted) == f"log.csv {sentence}"
    assert sentence_of(table, "label", wanted) == f"log.parquet {sentence}"


def test_a_duplicate_wanted_column_is_rejected(tmp_path: Path) -> None:
    path = csv_log(tmp_path, "nb,label,nb\n1,0,1\n")

    assert sentence_of(path, "nb") == "log.csv has duplicate columns 'nb'; rename one"


PARQUET_KINDS = [
    ("int8", arrow.array([0, 1], arrow.int8()), [0, 1]),
    ("uint64", arrow.array([0, 2**63], arrow.uint64()), [0, 2**63]),
    ("float", arrow.array([0.5, 1.0], arrow.float32()), [0.5, 1.0]),
    ("float with a null", arrow.array([None, 0.5]), [pytest.approx(np.nan, nan_ok=True), 0.5]),
    ("time", arrow.array([datetime(2024, 5, 1, 13, 30)]), [np.datetime64("2024-05-01T13:30")]),
    ("bool", arrow.array([False, True]), [0, 1]),
    ("decimal", arrow.array([decimal.Decimal("0.50"), decimal.Decimal("1.25")]), [0.5, 1.25]),
    ("text", arrow.array(["a", " a"]), ["a", " a"]),
    ("large text", arrow.array(["a", "b"], arrow.large_string()), ["a", "b"]),
    ("text in a dictionary", arrow.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
    ("numbers in a dictionary", arrow.array([7, 9]).dictionary_encode(), [7, 9]),
]


@pytest.mark.parametrize(
    ("column", "values"), [case[1:] for case in PARQUET_KINDS], ids=[c[0] for c in PARQUET_KINDS]
)
def test_parquet_columns_become_numbers_or_text(
    tmp_path: Path, column: arrow.Array, values: list[Any]
) -> None:
    assert read(parquet_log(tmp_path, x=column), "x") == {"x": values}


@pytest.mark.parametrize(
    "values", [["a", None], [1, None], [True, None], [None, None], [2**60 + 1, None]]
)
def test_a_parquet_null_is_none_and_integers_beside_it_stay_integers(
    tmp_path: Path, values: list[Any]
) -> None:
    first, second = read(parquet_log(tmp_path, x=values), "x")["x"]

    assert [first, second] == values
    assert type(first) in (type(values[0]), int)


def test_a_parquet_column_of_lists_of_text_is_refused(tmp_path: Path) -> None:
    path = parquet_log(tmp_path, x=[["a"], ["b"]])

    assert sentence_of(path, "x").startswith("column 'x' is of type list<")
    assert sentence_of(path, "x").endswith("; its lists must hold numbers")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_fraction_read_grows_from_zero_to_one(tmp_path: Path, kind: str) -> None:
    rows = 2 * ROWS_PER_CHUNK + 1
    path = (
        csv_log(tmp_path, "x\n" + "1\n" * rows)
        if kind == "csv"
        else parquet_log(tmp_path, x=np.ones(rows))
    )
    reader = open_log(path, ["x"])
    shares = [reader.share_read(), *(reader.share_read() for _ in reader.chunks())]

    assert (shares[0], shares[-1], len(shares)) == (0.0, 1.0, 4)
    assert shares == sorted(shares)


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "log.csv", tmp_path):  # a folder is none
        assert sentence_of(path, "x") == f"log {path} does not exist"


@pytest.mark.parametrize("name", ["log.txt", "log", "log.json.gz", "log.csv.bz2"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    assert sentence_of(csv_log(tmp_path, "x\n1\n", name), "x") == (
        f"log {name} must be .csv, .csv.gz or .parquet; convert it"
    )


WHOLE_GZIP = gzip.compress(b"x,y\n" + b"".join(b"%d,1\n" % (k * k) for k in range(3000)))
BROKEN_CSV = {
    "not UTF-8": ("log.csv", b"x,y\ncaf\xe9,1\n"),
    "not gzipped": ("log.csv.gz", b"x,y\n1,2\n"),
    "cut short": ("log.csv.gz", WHOLE_GZIP[:-20]),
    "spoilt": ("log.csv.gz", WHOLE_GZIP[:20] + b"\xff" * 20 + WHOLE_GZIP[40:]),
}


@pytest.mark.parametrize(("name", "content"), BROKEN_CSV.values(), ids=BROKEN_CSV)
def test_unreadable_csv_gives_one_message(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    sentence = sentence_of(path, "x")

    assert sentence.startswith(f"{name} cannot be read as CSV: ")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('x,y\n1,2\n1,"2"3\n', "line 3: invalid CSV (',' expected after '\"')"),
        ('x,y\n1,"2\n1,2\n', "line 3: invalid CSV (unexpected end of data)"),
    ],
)
def test_a_line_that_is_not_csv_is_named(tmp_path: Path, text: str, problem: str) -> None:
    assert sentence_of(csv_log(tmp_path, text), "x") == f"log.csv, {problem}"


def test_a_damaged_parquet_file_gives_one_message(tmp_path: Path) -> None:
    path = parquet_log(tmp_path, x=np.random.default_rng(1).integers(0, 10**9, 1000))
    content = path.read_bytes()
    for damaged in (content[:4] + b"\xff" * 40 + content[44:], b"x,y\n1,2\n"):
        path.write_bytes(damaged)
        sentence = sentence_of(path, "x")

        assert sentence.startswith("log.parquet cannot be read as Parquet: ")
        assert "\n" not in sentence


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; sys.modules['pyarrow'] = None\n"
        "from covey.errors import MissingExtra\n"
        "from covey.data.tables import open_log\n"
        "try: open_log(pathlib.Path(sys.argv[1]), ['x'])\n"
        "except MissingExtra as error: print(error)\n"
    )
    path = csv_log(tmp_path, "", "log.parquet")
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )

    assert done.stdout == (
        "Parquet files need pyarrow; install the extra in a clone of covey: "
        'pip install ".[parquet]"\n'
    )
