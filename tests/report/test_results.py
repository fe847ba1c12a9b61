"""`covey.replay` on frames, files, mappings and arrays: the same result, and what it offers."""

import csv
import re
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markupsafe import escape
from matplotlib.axes import Axes

import covey
from covey.cli import demo
from covey.errors import ConfigError, DataError
from covey.replay.replay import replay_file

SLOTS = 1_500


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The log and the configuration of the demo."""
    return demo.write(tmp_path_factory.mktemp("demo"), slots=SLOTS, seed=1)


@pytest.fixture(scope="module")
def by_path(files: tuple[Path, Path]) -> covey.Result:
    log, config = files
    return covey.replay(config, log)


def categories(frame: pd.DataFrame) -> pd.DataFrame:
    text = frame.select_dtypes(exclude="number").columns
    return frame.astype(dict.fromkeys(text, "category"))


KINDS: dict[str, Any] = {
    "pandas": lambda frame: frame,
    "pandas categories": categories,
    "polars": pl.from_pandas,
    "polars categories": lambda frame: pl.from_pandas(frame).with_columns(
        pl.col(pl.String).cast(pl.Categorical)
    ),
    "polars lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": pa.Table.from_pandas,
    "record batches": lambda frame: pa.Table.from_pandas(frame).to_reader(100),
    "mapping of arrays": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "mapping of lists": lambda frame: {name: frame[name].tolist() for name in frame},
    "mapping of series": lambda frame: {name: frame[name] for name in frame},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_gives_the_decisions_of_the_file(
    kind: str, files: tuple[Path, Path], by_path: covey.Result
) -> None:
    log, config = files
    result = covey.replay(config, KINDS[kind](pd.read_csv(log)))

    assert result.trace.columns() == by_path.trace.columns()
    assert result.summary() == by_path.summary()


def test_a_result_has_the_outcome_of_the_command_line(
    files: tuple[Path, Path], by_path: covey.Result
) -> None:
    log, config = files

    assert by_path.outcome == replay_file(log, covey.config.load(config))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"label": [1, 0]}, "the table has no column 'nb'"),
        ({"label": [1, 0], "nb": [1]}, "column 'label' has 2 rows, but 'nb' has 1"),
        ({"label": [1, 0], "nb": [[1, 0], [0, 1]]}, "column 'nb' has a list in each row"),
        ({"label": [], "nb": []}, "the table has no rows"),
        (pd.DataFrame({"label": [1]}), "the table has no column 'nb'"),
        (pl.DataFrame({"label": [1], "nb": [[1]]}), "column 'nb' has a list in each row"),
        (7, "data is a int; pass the path of a log, a data frame, a pyarrow table"),
        ("nowhere.csv", "log nowhere.csv does not exist"),
    ],
)
def test_data_that_cannot_be_replayed_are_refused_by_a_sentence(data: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        covey.replay({"learner": [{"name": "north", "functions": ["nb"]}]}, data)


CONFIG = {"learner": [{"name": "north", "functions": ["nb"]}]}


def test_data_and_arrays_cannot_be_combined() -> None:
    with pytest.raises(ConfigError, match="pass data or arrays, not both; remove data or labels"):
        covey.replay(CONFIG, {"label": [1], "nb": [1]}, labels=[1])
    with pytest.raises(ConfigError, match="labels is missing"):
        covey.replay(CONFIG, predictions=[[1]])


def test_a_result_is_described_in_a_line_and_as_a_table(by_path: covey.Result) -> None:
    assert repr(by_path).startswith("<Replay of log.csv: 4 learners, 1,500 slots, ")
    assert repr(by_path.trace).startswith("<Trace of 1,500 decisions by campus, hospital")
    assert len(by_path) == SLOTS


def test_a_trace_becomes_a_frame_of_every_kind(by_path: covey.Result) -> None:
    trace = by_path.trace
    expected = trace.columns()

    assert trace.to_pandas()["arm"].tolist() == expected["arm"]
    assert trace.to_polars()["arm"].to_list() == expected["arm"]
    assert pl.DataFrame(trace)["cost"].to_list() == expected["cost"]
    assert pa.table(trace)["cell"].to_pylist() == expected["cell"]


def test_a_result_draws_axes_with_a_line_for_each_learner(by_path: covey.Result) -> None:
    axes = by_path.plot()

    assert isinstance(axes, Axes)
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {
        *("campus", "hospital", "bank", "branch")
    }


def test_a_notebook_shows_tables_and_gains_over_time(by_path: covey.Result) -> None:
    shown = by_path._repr_html_()
    (*lines,) = by_path.plot("gain").get_lines()
    learner = by_path.outcome.learners[0]

    assert shown.count("<table>") == 2
    assert "net gain" in shown
    assert lines[0].get_ydata()[-1] == pytest.approx(sum(learner.timeline.gain))
    with pytest.raises(ConfigError, match='"gain"'):
        by_path.plot("gian")  # type: ignore[arg-type]


def test_a_report_ends_with_version_date_and_configuration(
    by_path: covey.Result, files: tuple[Path, Path], tmp_path: Path
) -> None:
    of_file = by_path.report(tmp_path / "file").read_text(encoding="utf-8")
    data = {"label": [1, 0], "nb": [1, 1]}
    of_table = covey.replay(CONFIG, data, policy=covey.CoS(slices=3)).report(tmp_path / "table")

    with (tmp_path / "file" / "results.csv").open(encoding="utf-8") as table:
        assert [row[0] for row in csv.reader(table)] == [
            *("learner", "campus", "hospital", "bank", "branch", "all")
        ]
    assert escape(files[1].read_text()) in of_file
    assert re.search(rf"covey {covey.__version__}, \d{{4}}-\d\d-\d\d \d\d:\d\d UTC", of_file)
    assert escape('"slices": 3') in of_table.read_text(encoding="utf-8")


def test_a_result_without_decisions_has_numbers_and_no_trace(by_path: covey.Result) -> None:
    result = covey.Result(by_path.outcome)

    assert result.summary() == by_path.summary()
    assert msgspec.json.decode(result.json()) == msgspec.to_builtins(by_path.summary())
    with pytest.raises(DataError, match="the decisions were not kept"):
        result.trace  # noqa: B018 - the access is what is tested


SCENARIO = {
    "scenario": {"horizon-slots": 300, "seeds": 2},
    "policy": [{"name": "CoS", "preset": "cos"}, {"name": "DCZA", "preset": "dcza"}],
    "environment": [{"name": "shared", "case": "C2", "prices": 0.05}],
}


def test_a_simulation_without_a_folder_is_refused_by_a_sentence() -> None:
    nowhere: Any = None
    with pytest.raises(ConfigError, match="the folder is None; give the path"):
        covey.simulate(None, nowhere)


def test_a_simulation_returns_a_result_with_its_runs(tmp_path: Path) -> None:
    result = covey.simulate(SCENARIO, tmp_path / "runs")
    again = covey.simulate(SCENARIO, tmp_path / "runs")
    page = result.report(tmp_path / "out").read_text(encoding="utf-8")
    labels = {text.get_text() for text in result.plot().get_legend().get_texts()}

    assert [run.policy for run in result] == ["CoS", "DCZA"] * 2
    assert (len(result), list(again)) == (4, list(result))
    assert repr(result) == "<Result of a simulation: 2 policies, 1 environments, 4 runs>"
    assert result._repr_html_().count("<table>") == 1
    assert [score.policy for score in result.summary().scores] == ["CoS", "DCZA"]
    assert result.trace.to_pydict() == pq.read_table(tmp_path / "runs/results.parquet").to_pydict()
    assert labels == {"CoS, shared", "DCZA, shared"}
    assert f"covey {covey.__version__}, " in page
    assert escape('"horizon-slots": 300') in page
    numbers = msgspec.json.decode((tmp_path / "out" / "summary.json").read_bytes())
    assert numbers == msgspec.json.decode(result.json())


@pytest.mark.parametrize("said", [[0.37, 0.81, 0.64], [1, 0.81, 0.64], [0, 2, 0.5]])
def test_predictions_most_of_which_are_no_labels_get_a_warning(said: list[float]) -> None:
    data = {"label": [1, 0, 1], "nb": said}
    with pytest.warns(UserWarning, match="of the predictions of 'nb' are not labels"):
        covey.replay(CONFIG, data).summary()


def test_predictions_half_of_which_are_labels_get_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        covey.replay(CONFIG, {"label": [1, 0, 1, 0], "nb": [1, 0, 0.4, 0.6]}).summary()
