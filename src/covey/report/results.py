"""What `covey.replay` and `covey.simulate` return: numbers, table, trace, plot and report."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from covey import files
from covey.config import load as load_config
from covey.config import tables_in
from covey.data.logs import Trace, arrow_module
from covey.errors import ConfigError, DataError
from covey.replay.outcome import Outcome, Summary
from covey.replay.replay import ConfigLike, Decided, Progress, table_of_arrays
from covey.report import figures, page
from covey.report import simulation as simulation_report
from covey.report import text as report_text
from covey.simulation import runner
from covey.simulation.comparison import Comparison
from covey.simulation.comparison import compare as compared
from covey.simulation.run import Run
from covey.simulation.runner import curves_of
from covey.simulation.scenario import Scenario, load
from covey.toml import modules_beside


def check_folder(folder: Path) -> None:
    """Raise what `Shown.report` would raise: call it before a long replay.

    Raises `MissingExtra` without matplotlib and jinja2, and `ConfigError` if a file is there.
    """
    page.check_extra()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name another folder for the report, or move it")


class Shown:
    """What results of every kind offer; a notebook shows tables and sentences."""

    _files = ("report.html", "summary.json")
    _title = ""  # if none is given

    def __init__(self, found: Any, *, title: str = "", config: ConfigLike | None = None) -> None:
        """`found` is what is shown; the page ends with `config`."""
        self._found, self._config = found, config
        self._title = title or self._title

    def summary(self) -> Any:
        """Return the numbers as a typed record."""
        raise NotImplementedError

    def _head(self) -> str:
        """Return how much was looked at."""
        raise NotImplementedError

    def _parts(self) -> Sequence[report_text.Part]:
        """Return the tables and the sentences on them."""
        raise NotImplementedError

    def plot(self) -> Any:
        """Draw what matters most over time, and return matplotlib axes.

        Raises `MissingExtra` if matplotlib is not installed.
        """
        raise NotImplementedError

    def _page(self) -> str:
        """Return one self-contained HTML page."""
        raise NotImplementedError

    def table(self) -> str:
        """Return the tables that the command prints, with its conclusions."""
        return report_text.printed(self._head(), self._parts())

    def report(self, folder: str | Path) -> Path:
        """Write a page, the numbers as JSON, and the tables as CSV and LaTeX into a folder.

        Return the path of the page. Raises as `check_folder` does; then nothing is written.
        """
        folder = Path(folder)
        check_folder(folder)
        page_name, json_name = self._files
        tables = [part for part in self._parts() if isinstance(part, report_text.Section)]
        latex = "\n".join(report_text.latex(table.lines) for table in tables)
        contents = {
            json_name: self.json(indent=2),
            **{f"{table.name}.csv": report_text.csv_of(table.lines) for table in tables},
            Path(page_name).with_suffix(".tex").name: latex,
            page_name: self._page(),  # last: an older page stays if a file cannot be written
        }
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            files.replace(folder / name, content.encode())
        return folder / page_name

    def json(self, *, indent: int | None = None) -> str:
        """Return the numbers as JSON, as the command prints them with `--json`."""
        packed = msgspec.json.encode(self.summary())
        if indent is None:
            return packed.decode()
        return msgspec.json.format(packed, indent=indent).decode() + "\n"

    def _repr_html_(self) -> str:
        return "".join(map(report_text.html, self._parts()))


class Result(Shown):
    """What a replay found, or what the store of a site holds.

    The columns of the trace are attributes of the result, too: `result.arm` is
    `result.trace.arm`.
    """

    _title = "Replay"

    def __init__(self, found: Any, *, data: Any = None, **shown: Any) -> None:
        """`found` is an outcome, or has `outcome` and `trace`; `data` is the log of a replay."""
        super().__init__(found, **shown)
        self._data = data

    @property
    def trace(self) -> Trace:
        """Every decision; `to_arrow`, `to_pandas` and `to_polars` return it as a table."""
        if isinstance(self._found, Outcome):
            raise DataError("the decisions were not kept; replay with covey.replay to have a trace")
        return cast("Trace", self._found.trace)

    @property
    def outcome(self) -> Outcome:
        """All counts, by learner, cell and time; computed on first use."""
        outcome = self._found if isinstance(self._found, Outcome) else self._found.outcome
        return cast("Outcome", outcome)

    @cached_property
    def _summary(self) -> Summary:
        return self.outcome.summary

    def summary(self) -> Summary:
        """Return the numbers of the replay, as `covey replay --json` prints them."""
        return self._summary

    def _head(self) -> str:
        return report_text.head(self.outcome)

    def _parts(self) -> list[report_text.Part]:
        return report_text.parts(self.outcome)

    def plot(self, what: Literal["error", "gain"] = "error") -> Any:
        """Draw errors over time, or cumulative gains with their 95 % intervals; return axes."""
        if what not in ("error", "gain"):
            raise ConfigError(f'a result has no plot {what!r}; known: "error", "gain"')
        draw = figures.plot_errors if what == "error" else figures.plot_gains
        return draw(self.outcome.learners)

    def advice(self, **options: Any) -> Any:
        """Return a `covey.Advice` on contracts, from more replays; see `covey.advise`."""
        from covey.report.advice import advise

        if self._data is None or self._config is None:
            raise DataError("advice needs the log; call covey.advise(config, log) instead")
        return advise(self._config, self._data, **options)

    def _page(self) -> str:
        return page.replay_page(self.outcome, title=self._title, config=self._config)

    def __len__(self) -> int:
        return len(self.trace)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.trace, name)

    def __repr__(self) -> str:
        total = self._summary.total
        learners = report_text.count(self._summary.learners, "learner")
        shown = f"{learners}, {self._summary.slots:,} slots"
        if total.error_percent is not None:
            shown += f", {total.error_percent:.2f}% errors"
        if total.net_gain_points is not None:
            shown += f", net gain {total.net_gain_points.mean:+.2f} points"
        return f"<{self._title}: {shown}>"


class SimulationResult(Shown, Sequence[Run]):
    """What a simulation found: its runs, in order, and how the policies compare."""

    def __init__(self, scenario: Scenario, runs: Sequence[Run], **shown: Any) -> None:
        super().__init__(list(runs), **shown)
        self._scenario = scenario

    @cached_property
    def _comparison(self) -> Comparison:
        return compared(self._scenario, self._found)

    def summary(self) -> Comparison:
        """Return the numbers of the simulation, as `covey simulate --json` prints them."""
        return self._comparison

    def _head(self) -> str:
        return simulation_report.head(self._comparison)

    def _parts(self) -> list[report_text.Part]:
        return simulation_report.parts(self._comparison)

    @property
    def trace(self) -> Any:
        """The regret by run, slot and cause, as a `pyarrow.Table`; results.parquet holds it too."""
        return arrow_module("pyarrow", what="Data frames").table(curves_of(self._found))

    def plot(self) -> Any:
        """Draw the mean regret of each policy in each environment; return matplotlib axes."""
        return figures.plot_growth(self._comparison.scores)

    def _page(self) -> str:
        return simulation_report.html(self._comparison, config=self._config)

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, place: Any) -> Any:
        return self._found[place]

    def __repr__(self) -> str:
        comparison = self._comparison
        worlds = f"{len(comparison.policies)} policies, {len(comparison.environments)} environments"
        return f"<Result of a simulation: {worlds}, {len(self)} runs>"


def simulate(
    scenario: Scenario | str | Path | Mapping[str, Any] | None,
    folder: str | Path,
    *,
    progress: Progress = lambda share, slots: None,
    on: str | None = None,
) -> SimulationResult:
    """Run what is not finished yet in `folder`, and return all runs and their comparison.

    `scenario` is a TOML file, its tables, or None for the embedded one. Raises `ConfigError` if the
    folder belongs to another scenario or version. Interrupted simulations resume. `on` is a Ray
    cluster, "ray" or "ray://host:port"; without it, this process runs all, or so many processes as
    `workers` of the scenario says.
    """
    if not isinstance(folder, str | Path):
        raise ConfigError(f"the folder is {folder!r}; give the path where runs are to be kept")
    with modules_beside(scenario):
        chosen = scenario if isinstance(scenario, Scenario) else load(scenario)
        runs = runner.simulate(chosen, folder, progress=progress, on=on)
    is_file = isinstance(scenario, str | Path | Mapping)
    return SimulationResult(chosen, runs, config=scenario if is_file else None)


def replay(
    config: ConfigLike,
    data: Any = None,
    *,
    predictions: Any = None,
    labels: Any = None,
    contexts: Any = None,
    at: Any = None,
    revealed: Any = None,
    delay: Any = None,
    batch: Any = None,
    columns: Mapping[str, Any] | None = None,
    baselines: Sequence[str] = (),
    policy: Any = None,
) -> Result:
    """Replay a log, and return decisions and numbers.

    `data` is a data frame (pandas, polars, pyarrow, or anything with an Arrow stream), a dict of
    columns, or the path of a log; `[data]` of the configuration says what its columns are. In
    place of it, arrays can be passed. `predictions` is then functions x slots, in the order in
    which the learners list them; `labels` has one entry per slot, `contexts` is slots x
    dimensions, scaled to [0, 1]. The optional `at` (names of the receiving learners), `revealed`
    (0 or 1) and `delay` (in slots) have one entry per slot. Consecutive rows with the same value
    of `batch` are a batch. `columns` holds the other columns that the configuration names: costs
    and answer delays. `baselines` are names of simpler methods to compare with. `policy` is used in
    place of the `[policy]` table: settings such as `CoS(slices=4)`, a preset's name, a table, or a
    class of your own.

    >>> config = {"learner": [{"name": "north", "functions": ["nb", "tree"]}]}
    >>> result = replay(config, {"label": [1, 1], "nb": [1, 1], "tree": [0, 1]})
    >>> result.trace.columns()["arm"], result.summary().total.error_percent
    (['nb', 'nb'], 0.0)
    """
    source, config = config, tables_in(config, policy=policy)
    shown = source if policy is None else config
    arguments = {"predictions": predictions, "labels": labels, "contexts": contexts, "at": at}
    arguments |= {"revealed": revealed, "delay": delay, "batch": batch, "columns": columns}
    arrays = [name for name, values in arguments.items() if values is not None]
    if data is not None:
        if arrays:
            raise ConfigError(f"pass data or arrays, not both; remove data or {arrays[0]}")
        title = f"Replay of {Path(data).name}" if isinstance(data, str | Path) else "Replay"
        with modules_beside(source):
            decided = Decided(load_config(config), data, baselines)
        return Result(decided, title=title, config=shown, data=data)
    for name in ("predictions", "labels"):
        if arguments[name] is None:
            raise ConfigError(f"pass data, or the arrays predictions and labels; {name} is missing")
    if contexts is None:
        arguments["contexts"] = [()] * len(labels)
    with modules_beside(source):
        decided = Decided(*table_of_arrays(load_config(config), arguments), baselines)
    return Result(decided, config=shown)
