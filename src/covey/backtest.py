"""`replay`: recorded predictions in, a trace of decisions out.

The same network is also played with nobody to ask, so that what cooperation gained can be said.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey import accounts, logs
from covey.baselines import make
from covey.config import ReplayConfig, load
from covey.contest import Contest
from covey.contexts import Contexts, check_unit
from covey.encoding import Log, Luck, Vocabulary, arrivals, encode, furnish
from covey.errors import ConfigError, DataError
from covey.fields import nearest
from covey.games import start
from covey.tally import Tally
from covey.traces import Trace, TraceFile
from covey.types import Account, Outcome
from covey.voting import Voting

Progress = Callable[[float, int], None]  # share of the log that is done, slots so far


def replay(
    config: str | Path | Mapping[str, Any],
    *,
    predictions: Any,
    labels: Any,
    contexts: Any,
    at: Any = None,
    revealed: Any = None,
    delay: Any = None,
    columns: Mapping[str, Any] | None = None,
) -> Trace:
    """Replay arrays and return the trace.

    `predictions` is functions x slots, in the order in which the learners list them; `labels` has
    one entry per slot, `contexts` is slots x dimensions. `at` (names of the receiving learners),
    `revealed` (0 or 1) and `delay` (in slots) have one entry per slot, where they are given;
    `columns` has those that the configuration names besides: costs, and how long answers take.

    >>> config = {"learner": [{"name": "north", "functions": ["nb", "tree"]}]}
    >>> trace = replay(config, predictions=[[1, 1], [0, 1]], labels=[1, 1], contexts=[[0.2], [0.9]])
    >>> trace.columns()["arm"], trace.columns()["correct"]
    (['nb', 'nb'], [1, 1])
    """
    given = _columns({"label": labels, "at": at, "revealed": revealed, "delay": delay})
    setup = _for_arrays(load(config), given)
    slots = len(given["label"])
    further = _further(setup, columns or {}, slots)
    points = _points(setup, contexts, slots)
    plain, vocabulary = _encoded(setup, given, predictions, points)
    log = furnish(plain, setup, further, 1)
    _check_horizon(setup, len(log.labels))
    return start(setup, setup.sites, points.shape[1], vocabulary.values).play(log)


def replay_file(
    path: Path,
    setup: ReplayConfig,
    *,
    trace: TraceFile | None = None,
    progress: Progress = lambda share, slots: None,
    baselines: Sequence[str] = (),
) -> Outcome:
    """Replay the log at `path`, chunk by chunk, and return what came of it.

    `baselines` are the names of those that are to be compared with.
    """
    reader = logs.open_log(path, _wanted(setup))
    vocabulary = Vocabulary(is_typed=reader.is_typed, loss=setup.data.loss)
    width = setup.context.dimension
    together = start(setup, setup.sites, width, vocabulary.values)
    alone = start(setup, [site.alone() for site in setup.sites], width, vocabulary.values)
    tally = Tally(setup.sites, setup.unit)
    voting = _voting(setup, vocabulary)
    contest = _contest(setup, baselines) if baselines else None
    _check_horizon(setup, reader.rows_total or 0)
    for log in _read(setup, reader, vocabulary):
        _check_horizon(setup, together.slots + len(log.labels))
        played = together.play(log)
        tally.add(played, alone.play(log) if voting is None else played)
        tally.add_functions(log)
        if voting is not None:
            voting.add(played, log)
        if contest is not None:
            contest.add(log)
        if trace is not None:
            trace.write(played.columns())
        progress(reader.share_read(), together.slots)
    if not together.slots:
        raise DataError(f"{path.name} has no rows; a log needs at least one")
    views = [together.cells(place) for place in range(len(setup.sites))]
    outcome = tally.outcome(setup.context.names, together.title, views, together.blind())
    return msgspec.structs.replace(
        outcome,
        accounts=_accounts(setup, outcome),
        ensemble=None if voting is None else voting.outcome(outcome.learners),
        spaces=len(setup.plan.of_width(width)),
        baselines=None if contest is None else contest.outcome(),
    )


def _contest(setup: ReplayConfig, names: Sequence[str]) -> Contest:
    functions = sum(len(site.functions) for site in setup.sites)
    return Contest(
        make(names, functions=functions, seed=setup.settings.seed),
        functions=functions,
        label_wait=setup.settings.label_wait,
        receivers=[place for place, site in enumerate(setup.sites) if site.receives],
    )


def _accounts(setup: ReplayConfig, outcome: Outcome) -> dict[str, Account] | None:
    serving = {site.name: site.serving_cost for site in setup.sites}
    if not any(serving.values()):
        return None
    are_carried = setup.settings.carry_serving_costs
    return accounts.settle(outcome.learners, serving, are_carried=are_carried)


def _voting(setup: ReplayConfig, vocabulary: Vocabulary) -> Voting | None:
    """Return the ensemble that is asked for; its base class gets the first code of all."""
    if setup.ensemble is None:
        return None
    base = setup.ensemble.base
    if base is not None:
        vocabulary.encode([base], name="base of [ensemble]", first_slot=0)
    voters = [site.name for site in setup.sites if site.receives]
    return Voting(setup.ensemble, voters, label_wait=setup.settings.label_wait)


def _wanted(setup: ReplayConfig) -> list[str]:
    data = setup.data
    named = [data.label, data.at, data.revealed, data.delay]
    functions = [name for site in setup.sites for name in site.functions]
    used = [*filter(None, named), *setup.context.columns, *functions, *_named(setup)]
    return list(dict.fromkeys(used))


def _named(setup: ReplayConfig) -> list[str]:
    """Return the columns of costs and of how long answers take."""
    return [*setup.cost_columns, *(d for d in setup.answer_delays if isinstance(d, str))]


def _read(setup: ReplayConfig, reader: logs.Reader, vocabulary: Vocabulary) -> Iterator[Log]:
    slot = 1
    luck = Luck(setup)
    for columns in _with_sample(setup.context, reader.chunks()):
        arrived = arrivals(setup, columns, vocabulary, slot)
        known = [*vocabulary.values, None]
        points = setup.context.extract(
            columns,
            first_slot=slot,
            labels=[known[code] for code in arrived.labels.tolist()],
            at=arrived.at,
            revealed=arrived.revealed,
            delay=arrived.delay,
        )
        answers = [(name, columns[name]) for site in setup.sites for name in site.functions]
        log = encode(answers, arrived, points, vocabulary, slot, luck)
        yield furnish(log, setup, columns, slot)
        slot += len(arrived.labels)


def _with_sample(context: Contexts, chunks: Iterator[logs.Columns]) -> Iterator[logs.Columns]:
    """Show the first rows to the scales that rank against a sample, then yield every chunk."""
    held: list[logs.Columns] = []
    rows = 0
    while rows < context.sample_rows and (chunk := next(chunks, None)):
        held.append(chunk)
        rows += len(next(iter(chunk.values())))
    if held:
        sample = {
            name: [value for chunk in held for value in chunk[name]][: context.sample_rows]
            for name in context.columns
        }
        context.learn_sample(sample)
    return chain(held, chunks)


def _check_horizon(setup: ReplayConfig, slots: int) -> None:
    horizon = setup.settings.horizon
    if isinstance(horizon, int) and slots > horizon:
        raise ConfigError(
            f"the log has more rows than the horizon of {horizon} slots; raise horizon in [policy]"
        )


def _for_arrays(setup: ReplayConfig, columns: Mapping[str, Any]) -> ReplayConfig:
    """Return the set-up with the columns named as the arguments of `replay` are."""
    for name in ("at", "revealed", "delay"):
        if getattr(setup.data, name) is not None and name not in columns:
            raise ConfigError(
                f"the configuration has {name} in [data]; give replay the array {name}"
            )
    if setup.ensemble is not None and "at" in columns:
        raise ConfigError("[ensemble] needs every learner's vote on every row; leave out at")
    names = {name: name if name in columns else None for name in ("at", "revealed", "delay")}
    data = msgspec.structs.replace(setup.data, label="label", **names)
    return setup._replace(data=data)


def _columns(given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    columns = {name: _array(values, name) for name, values in given.items() if values is not None}
    slots = len(columns["label"]) if columns["label"].ndim else 0
    if not slots:
        raise DataError("there are no slots to replay; labels is empty")
    for name, column in columns.items():
        _check_slots(column, name, slots)
    return columns


def _further(setup: ReplayConfig, given: Mapping[str, Any], slots: int) -> dict[str, np.ndarray]:
    found = {}
    for name in _named(setup):
        if name not in given:
            raise DataError(
                f"the configuration names column {name!r}; give it in columns{nearest(name, given)}"
            )
        found[name] = _array(given[name], name)
        _check_slots(found[name], name, slots)
    return found


def _answers(setup: ReplayConfig, predictions: Any, slots: int) -> list[tuple[str, np.ndarray]]:
    functions = [name for site in setup.sites for name in site.functions]
    if len(predictions) != len(functions):
        raise DataError(
            f"predictions has {len(predictions)} rows, but the learners list {len(functions)} "
            "functions; give one row per function"
        )
    answers = [
        (name, _array(row, f"the predictions of {name!r}"))
        for name, row in zip(functions, predictions, strict=True)
    ]
    for name, row in answers:
        _check_slots(row, name, slots)
    return answers


def _encoded(
    setup: ReplayConfig, columns: Mapping[str, Any], predictions: Any, points: np.ndarray
) -> tuple[Log, Vocabulary]:
    answers = _answers(setup, predictions, len(columns["label"]))
    vocabulary = Vocabulary(is_typed=True, loss=setup.data.loss)
    arrived = arrivals(setup, columns, vocabulary, 1)
    return encode(answers, arrived, points, vocabulary, 1, Luck(setup)), vocabulary


def _points(setup: ReplayConfig, contexts: Any, slots: int) -> np.ndarray:
    points = _array(contexts, "contexts", np.float64)
    if points.ndim != 2 or len(points) != slots:
        raise DataError(
            f"contexts has shape {points.shape}; it must be slots x dimensions, here {slots} x d"
        )
    names = setup.context.names
    if setup.plan.entries and len(names) != points.shape[1]:
        raise ConfigError(
            f"the configuration names {len(names)} contexts, but the array has {points.shape[1]}"
        )
    names = names or [f"context {k}" for k in range(points.shape[1])]
    check_unit(points, names=names)
    return points


def _array(values: Any, name: str, kind: Any = None) -> np.ndarray:
    try:
        return np.asarray(values, kind)
    except (TypeError, ValueError):
        wanted = "numbers of one shape" if kind else "one entry per slot"
        raise DataError(f"{name} cannot be read as an array; it must hold {wanted}") from None


def _check_slots(column: np.ndarray, name: str, slots: int) -> None:
    if column.shape != (slots,):
        raise DataError(f"{name!r} has shape {column.shape}; it must have {slots} entries")
