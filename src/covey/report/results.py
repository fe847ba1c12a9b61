"""`covey.replay`, and the object that it returns: numbers, table, trace, plot and report."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from covey.config import tables_in
from covey.data.logs import Trace
from covey.errors import ConfigError
from covey.replay.outcome import Outcome
from covey.replay.replay import ConfigLike, Decided, replay_arrays, replay_table
from covey.report import figures
from covey.report import replay as replay_report
from covey.report.summary import Summary, summarise

ARRAYS = ("predictions", "labels", "contexts")


class Result:
    """What a replay found.

    The columns of the trace are attributes of the result, too: `result.arm` is
    `result.trace.arm`.
    """

    def __init__(self, decided: Decided, *, title: str = "Replay") -> None:
        self._decided = decided
        self._title = title

    @property
    def trace(self) -> Trace:
        """Every decision; `to_arrow`, `to_pandas` and `to_polars` return it as a table."""
        return self._decided.trace

    @property
    def outcome(self) -> Outcome:
        """All counts, by learner, cell and time; computed on first use."""
        return self._decided.outcome

    @cached_property
    def _summary(self) -> Summary:
        return summarise(self.outcome)

    def summary(self) -> Summary:
        """Return the numbers of the replay, as `covey replay --json` prints them."""
        return self._summary

    def table(self) -> str:
        """Return the table that `covey replay` prints, with its conclusions."""
        return replay_report.text(self.outcome)

    def plot(self) -> Any:
        """Draw the error of each learner over time and return the matplotlib axes.

        Raises `MissingExtra` if matplotlib is not installed.
        """
        return figures.plot_errors(self.outcome.learners)

    def report(self, folder: str | Path) -> Path:
        """Write `report.html` and `summary.json` into a folder; return the path of the page.

        Raises `MissingExtra` if matplotlib is not installed.
        """
        return replay_report.write(self.outcome, Path(folder), title=self._title)

    def __len__(self) -> int:
        return len(self.trace)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.trace, name)

    def __repr__(self) -> str:
        total = self._summary.total
        learners = len(self._summary.learners)
        shown = f"{learners} learner{'' if learners == 1 else 's'}, {self._summary.slots:,} slots"
        if total.error_percent is not None:
            shown += f", {total.error_percent:.2f}% errors"
        if total.net_gain_points is not None:
            shown += f", net gain {total.net_gain_points.mean:+.2f} points"
        return f"<Result of a replay: {shown}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.table())}</pre>"


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
    config = tables_in(config, policy=policy)
    given = {"predictions": predictions, "labels": labels, "contexts": contexts}
    optional = {"at": at, "revealed": revealed, "delay": delay, "batch": batch, "columns": columns}
    arrays = [name for name, values in (given | optional).items() if values is not None]
    if data is not None:
        if arrays:
            raise ConfigError(f"pass data or arrays, not both; remove data or {arrays[0]}")
        title = f"Replay of {Path(data).name}" if isinstance(data, str | Path) else "Replay"
        return Result(replay_table(config, data, baselines=baselines), title=title)
    for name in ARRAYS[:2]:
        if given[name] is None:
            raise ConfigError(f"pass data, or the arrays predictions and labels; {name} is missing")
    if contexts is None:
        given["contexts"] = [()] * len(labels)
    return Result(replay_arrays(config, **given, **optional, baselines=baselines))
