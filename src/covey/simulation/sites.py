"""The sites of an environment: the configuration of a replay, and its instances as a log."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np

from covey import toml
from covey.bandit.ensemble import weighing_from
from covey.bandit.settings import Settings
from covey.config import (
    Candidates,
    Data,
    Entry,
    LearnerTable,
    NetworkConfig,
    Tables,
    assemble,
)
from covey.data.logs import EncodedLog
from covey.errors import ConfigError
from covey.simulation.environment import Environment
from covey.simulation.graphs import AlikeSites, complete, graph_of
from covey.simulation.labels import Labelled
from covey.simulation.world import WorldChunk
from covey.types import MILLIONTHS, Array


class PolicyContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy uses of the contexts of a world; the oracle is not restricted by it."""

    context: list[Entry] = []
    candidates: Candidates | None = None

    @property
    def title(self) -> str:
        """What is used, in one line for reports."""

        def named(entry: Any) -> str:
            if isinstance(entry, list):
                return " and ".join(map(named, entry))
            return entry if isinstance(entry, str) else f"{entry.get('scale')}"

        listed = self.context if self.candidates is None else self.candidates
        kind = "context" if self.candidates is None else "candidates"
        return f"{kind} {', '.join(map(named, listed))}"

    def within(self, environment: Environment) -> Environment:
        """Return the environment as the policy sees it."""
        return msgspec.structs.replace(
            environment, context=self.context, candidates=self.candidates
        )


_Seen = TypeVar("_Seen", Environment, PolicyContext)


def with_horizon(seen: _Seen, horizon: int) -> _Seen:
    """Return contexts of time with this horizon where they name none."""

    def filled(entry: Any) -> Any:
        if isinstance(entry, list):
            return [filled(one) for one in entry]
        is_time = isinstance(entry, Mapping) and entry.get("scale") == "slot"
        return {"horizon": horizon, **entry} if is_time else entry

    candidates = None if seen.candidates is None else filled(seen.candidates)
    return msgspec.structs.replace(seen, context=filled(seen.context), candidates=candidates)


def network(environment: Environment, settings: Settings) -> NetworkConfig:
    """Return the replay configuration of an environment under a policy."""
    if environment.topology is not None:
        return _graph_network(environment, settings)
    check_extensions(environment)
    members = [_member(environment, place) for place in range(len(environment.names))]
    if settings.check_claims is None and environment.liars:
        settings = msgspec.structs.replace(settings, check_claims=True)
    data = Data(
        context=_context(environment),
        candidates=environment.candidates,
        batch="batch" if environment.batch > 1 else None,
        loss=environment.loss,
    )
    links = {"link": environment.link, "link-change": environment.link_change}
    ensemble = None if environment.ensemble is None else weighing_from(environment.ensemble)
    tables = Tables(
        settings,
        members,
        data,
        links={key: tables for key, tables in links.items() if tables},
        ensemble=ensemble,
    )
    try:
        setup = assemble(tables)
    except ConfigError as error:
        raise ConfigError(f"environment {environment.name!r}: {error}") from None
    are_apart = environment.streams != 1
    sites = tuple(
        site._replace(
            stream=place * are_apart,
            reports_falsely=environment.liars.get(site.name) == "zero-arrivals",
            labels_falsely=environment.liars.get(site.name) == "false-labels",
        )
        for place, site in enumerate(setup.sites)
    )
    return setup._replace(sites=sites)


def _graph_network(environment: Environment, settings: Settings) -> NetworkConfig:
    """Return the network of alike sites: what they share is that of a few that ask each other."""
    if settings.reading.askers == "first":
        raise ConfigError(
            f"environment {environment.name!r}: topology cannot be combined with a policy whose "
            'reading has askers = "first"; remove one of them'
        )
    if settings.check_claims is None and environment.liars:
        settings = msgspec.structs.replace(settings, check_claims=True)
    few = network(complete(environment), settings)
    places = {name: k for k, name in enumerate(environment.names)} if environment.liars else {}
    liars = {places[name]: kind for name, kind in environment.liars.items()}
    sites = AlikeSites(few.sites[0], graph_of(environment), liars)
    return few._replace(sites=sites)


def unrestricted(environment: Environment, settings: Settings) -> NetworkConfig:
    """Return the network of the oracle: it may ask any peer, even if the policy restricts that."""
    reading = msgspec.structs.replace(settings.reading, askers="all")
    return network(environment, msgspec.structs.replace(settings, reading=reading))


def width_of(environment: Environment, setup: NetworkConfig) -> int:
    """Return the number of coordinates of a context."""
    return setup.context.dimension or environment.dimension


def _member(environment: Environment, place: int) -> LearnerTable:
    """Return the table of a learner: keys of the environment, overridden by its own table."""
    name, count = environment.names[place], environment.counts[place]
    keys = {
        "name": name,
        "functions": [f"{name}.{k + 1}" for k in range(count)],
        "function-costs": [environment.function_cost(place, k) for k in range(count)],
        "free": environment.free,
        "label-probability": environment.label_probability,
        "peers": None if environment.link else _prices(environment, place),
        **environment.tables.get(name, {}),
        "arrivals": place in environment.receiving,
    }
    return toml.read(keys, LearnerTable, where=_where(environment, name))


def _prices(environment: Environment, place: int) -> dict[str, float]:
    return {
        peer: price
        for other, peer in enumerate(environment.names)
        if other != place and (price := environment.price(place, other)) <= 1
    }


def _where(environment: Environment, name: str) -> str:
    return f"environment {environment.name!r}: [[environment.learner]] {name!r}"


def _context(environment: Environment) -> list[Entry]:
    """Return the coordinates that all sites see; none: they need no names."""
    if environment.context or environment.candidates:
        return environment.context
    has_own = any("context" in table or "candidates" in table for table in environment.learner)
    return [*environment.coordinates] if has_own else []


def log_of(stretch: WorldChunk) -> EncodedLog:
    """Return a chunk as rows of a log: the label is always 1, a right function predicts 1."""
    slots = len(stretch.points)
    return EncodedLog(
        contexts=stretch.points.reshape(-1).data,
        predictions=stretch.right.reshape(-1, slots).data,
        labels=np.ones(slots, np.int32).data,
        at=None,
        delays=None if stretch.delays is None else stretch.delays.data,
        shown=None if stretch.shown is None else stretch.shown.data,
    )


class WorldLog:
    """Makes the rows of a log from the chunks of a world, in order."""

    def __init__(self, environment: Environment, setup: NetworkConfig) -> None:
        self._environment = environment
        self._context = setup.context
        # The kernel writes answers from stored labels into further rows, one per learner.
        has_memory = any(site.context_peers for site in setup.sites)
        self._room = len(setup.sites) if has_memory else 0
        self._cost_columns = setup.cost_columns
        self._answer_delays = setup.answer_delays

    def rows(self, stretch: WorldChunk) -> EncodedLog:
        """Return the next chunk as rows of a log."""
        log = log_of(stretch)
        changes: dict[str, Any] = {}
        if self._context.dimension:
            changes["contexts"] = self._contexts(stretch).reshape(-1).data
        if stretch.labelled is not None:
            changes |= self._classes(stretch.labelled)
        if self._environment.loss is not None:
            changes["gains"] = log.predictions
            changes["predictions"] = np.zeros(np.shape(log.predictions), np.int32).data
        if self._cost_columns:
            changes["costs"] = self._costs(stretch).data
        if self._environment.batch > 1:
            changes["batches"] = (np.arange(len(stretch.points)) // self._environment.batch).data
        if any(self._answer_delays):
            changes["busy"] = self._busy(stretch).data
        return log._replace(**changes)

    def _contexts(self, stretch: WorldChunk) -> Array:
        """Return what the sites see: slot, stream, coordinate."""
        names = self._environment.coordinates
        seen = [
            self._context.extract(
                dict(zip(names, np.ascontiguousarray(points.T), strict=True)),
                first_slot=stretch.first_slot,
            )
            for points in np.moveaxis(stretch.points, 1, 0)
        ]
        return np.ascontiguousarray(np.stack(seen, axis=1))

    def _classes(self, labelled: Labelled) -> Mapping[str, memoryview]:
        answers = labelled.answers[0]
        unknown = np.full((self._room, answers.shape[1]), -1, np.int32)
        predictions = np.concatenate([answers, unknown])
        return {"labels": labelled.labels.data, "predictions": predictions.data}

    def _costs(self, stretch: WorldChunk) -> Array:
        drawn = [self._environment.columns[name] for name in self._cost_columns]
        values = [
            column.low + (column.high - column.low) * stretch.columns[name]
            for name, column in zip(self._cost_columns, drawn, strict=True)
        ]
        return np.rint(np.array(values) * MILLIONTHS).astype(np.int32)

    def _busy(self, stretch: WorldChunk) -> Array:
        busy = np.empty((len(stretch.points), len(self._answer_delays)), np.int64)
        for learner, delay in enumerate(self._answer_delays):
            if isinstance(delay, str):
                column = self._environment.columns[delay]
                values = column.low + (column.high - column.low + 1) * stretch.columns[delay]
                busy[:, learner] = values.astype(np.int64)
            else:
                busy[:, learner] = delay
        return busy


def check_extensions(environment: Environment) -> None:
    """Raise `ConfigError` for tables of extensions that are wrong or cannot be combined."""
    where = f"environment {environment.name!r}"
    for table in environment.learner:
        for key in ("functions", "view"):
            if key in table:
                raise ConfigError(
                    f"{_where(environment, table['name'])} has {key}, which the world sets; "
                    f"remove {key}"
                )
        _check_entries(environment, table, _where(environment, table["name"]))
    _check_entries(
        environment,
        {"context": environment.context, "candidates": environment.candidates},
        where,
    )
    if not environment.receiving:
        raise ConfigError(f"{where}: every learner has arrivals = false; let one receive instances")
    for name in environment.measured:
        if environment.names.index(name) not in environment.receiving:
            raise ConfigError(
                f"{where}: measured names {name!r}, which receives no instances (correlation, "
                "arrivals); remove it"
            )
    _check_regions(environment, where)
    _check_columns(environment, where)
    _check_labels(environment, where)
    _check_liars(environment, where)
    if environment.link and environment.prices:
        raise ConfigError(f"{where} has prices and link, which sets prices; remove one of them")
    if environment.link_change and not environment.link:
        raise ConfigError(f"{where} has link-change without link; list the links first")
    if environment.ensemble is not None:
        _check_ensemble(environment, environment.ensemble, where)


def _check_liars(environment: Environment, where: str) -> None:
    has_readers = any(table.get("context-peers") for table in environment.learner)
    if has_readers and "false-labels" in environment.liars.values():
        raise ConfigError(
            f"{where}: liars with false-labels cannot be combined with context-peers; remove one "
            "of them"
        )


def _check_entries(environment: Environment, table: Mapping[str, Any], where: str) -> None:
    listed = [*(table.get("context") or []), *(table.get("candidates") or [])]
    for entry in listed:
        for one in entry if isinstance(entry, list) else [entry]:
            is_slot = isinstance(one, Mapping) and one.get("scale") == "slot"
            if not is_slot and one not in environment.coordinates:
                known = ", ".join(environment.coordinates)
                raise ConfigError(
                    f"{where}: the context {one!r} is not in the world; it has {known} and "
                    '{ scale = "slot" }'
                )


def _check_regions(environment: Environment, where: str) -> None:
    if not environment.regions:
        return
    if not environment.is_embedded or environment.process.arrivals != "uniform":
        raise ConfigError(
            f'{where}: regions need arrivals = "uniform", without environment, log and case; '
            "remove one of them"
        )
    if environment.process.correlation != "independent":
        raise ConfigError(
            f'{where}: regions need correlation = "independent", as other learners receive the '
            "same instances; set it, or remove regions"
        )
    for name, region in environment.regions.items():
        if len(region) != environment.dimension:
            raise ConfigError(
                f"{where}: regions.{name} has {len(region)} intervals; it must have "
                f"{environment.dimension}"
            )
        for low, high in region:
            if not 0 <= low < high <= 1:
                raise ConfigError(
                    f"{where}: regions.{name} holds [{low}, {high}]; it must be an interval of "
                    "numbers from 0 to 1"
                )


def _check_columns(environment: Environment, where: str) -> None:
    used: dict[str, str] = {}
    for table in environment.learner:
        for column in table.get("cost-columns", {}).values():
            used[column] = "cost-columns"
        if isinstance(table.get("answer-delay"), str):
            used[table["answer-delay"]] = "answer-delay"
    used |= {
        table["cost-column"]: "cost-column" for table in environment.link if "cost-column" in table
    }
    for name, key in used.items():
        if name not in environment.columns:
            hint = toml.nearest(name, environment.columns)
            raise ConfigError(f"{where}: {key} names {name!r}, which is not in columns{hint}")
        column = environment.columns[name]
        most = 2.0**53 if key == "answer-delay" else 1.0
        if not 0 <= column.low <= column.high <= most:
            raise ConfigError(
                f"{where}: columns.{name} goes from {column.low:g} to {column.high:g}; for {key} "
                f"it must be a range from 0 to {most:g}"
            )
        if key == "answer-delay" and (column.low % 1 or column.high % 1):
            raise ConfigError(f"{where}: columns.{name} must hold whole numbers of slots")
    for name in environment.columns:
        if name not in used:
            raise ConfigError(
                f"{where}: no cost-columns, answer-delay or cost-column names columns.{name}; "
                "remove it"
            )


def _check_labels(environment: Environment, where: str) -> None:
    classes, loss = environment.classes, environment.loss
    if loss is not None:
        given = {
            "classes": classes,
            "log": environment.log,
            "dependence": environment.dependence,
        }
        for key, value in given.items():
            if value:
                raise ConfigError(
                    f"{where} has loss and {key}, which cannot be combined; remove one of them"
                )
    has_memory = any(table.get("context-peers") for table in environment.learner)
    if classes is None:
        if has_memory:
            raise ConfigError(
                f"{where}: context-peers answer with class labels, but the environment has no "
                "classes; add classes"
            )
        return
    toml.check_range(classes.number, 2, 1_000, f"{where}: classes.number")
    toml.check_range(classes.usual, 1 / classes.number, 1, f"{where}: classes.usual")
    if environment.log is not None:
        raise ConfigError(f"{where} has classes and log, whose labels are used; remove one of them")
    if environment.streams > 1:
        raise ConfigError(
            f"{where}: classes need one stream of instances, but correlation gives each learner "
            "its own; remove one of them"
        )


def _check_ensemble(environment: Environment, table: Mapping[str, Any], where: str) -> None:
    if environment.classes is None:
        raise ConfigError(
            f"{where}: ensemble needs labels of several classes, or every vote would be for or "
            "against the same one; add classes"
        )
    if table.get("base", 0) != 0:
        raise ConfigError(
            f"{where}: ensemble.base is {table['base']!r}; classes are numbers, and the base class "
            "is 0"
        )
