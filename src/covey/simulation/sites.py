"""The sites of an environment: the configuration of a replay, and its instances as a log."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from covey import toml
from covey.bandit.ensemble import weighing_from
from covey.bandit.policies import PolicyRecord
from covey.config import (
    Data,
    Entry,
    LearnerTable,
    NetworkConfig,
    Tables,
    assemble,
)
from covey.data.logs import EncodedLog
from covey.errors import ConfigError
from covey.simulation.environment import Environment, check
from covey.simulation.world import WorldChunk
from covey.types import MILLIONTHS, Array


def with_horizon(environment: Environment, horizon: int) -> Environment:
    """Return the environment with the horizon of contexts of time that have none."""

    def filled(entry: Any) -> Any:
        if isinstance(entry, list):
            return [filled(part) for part in entry]
        is_time = isinstance(entry, Mapping) and entry.get("scale") == "slot"
        return {"horizon": horizon, **entry} if is_time else entry

    return msgspec.structs.replace(
        environment, context=filled(environment.context), candidates=filled(environment.candidates)
    )


def network(environment: Environment, settings: PolicyRecord) -> NetworkConfig:
    check(environment)
    members = [_member(environment, place) for place in range(len(environment.names))]
    if environment.liars:
        settings = settings.checked()
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


def width_of(environment: Environment, setup: NetworkConfig) -> int:
    return setup.context.dimension or environment.dimension


def _member(environment: Environment, place: int) -> LearnerTable:
    """Return the table of a learner: keys of the environment, overridden by its own table."""
    name, count = environment.names[place], environment.counts[place]
    peers = [peer for peer in environment.names if peer != name and environment.prices <= 1]
    keys = {
        "name": name,
        "functions": [f"{name}.{k + 1}" for k in range(count)],
        "function-costs": [environment.function_costs] * count,
        "free": environment.free,
        "label-probability": environment.label_probability,
        "peers": None if environment.link else dict.fromkeys(peers, environment.prices),
        **environment.tables.get(name, {}),
        "arrivals": place in environment.receiving,
    }
    where = f"environment {environment.name!r}: [[environment.learner]] {name!r}"
    return toml.read(keys, LearnerTable, where=where)


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


class WorldLog(NamedTuple):
    """Makes the rows of a log from the chunks of a world, in order."""

    environment: Environment
    setup: NetworkConfig

    def rows(self, stretch: WorldChunk) -> EncodedLog:
        log = log_of(stretch)
        changes: dict[str, Any] = {}
        if self.setup.context.dimension:
            changes["contexts"] = self._contexts(stretch).reshape(-1).data
        if stretch.labelled is not None:
            changes["labels"] = stretch.labelled.labels.data
            changes["predictions"] = stretch.labelled.answers[0].data
        if self.environment.loss is not None:
            changes["gains"] = log.predictions
            changes["predictions"] = np.zeros(np.shape(log.predictions), np.int32).data
        if self.setup.cost_columns:
            changes["costs"] = self._costs(stretch).data
        if self.environment.batch > 1:
            changes["batches"] = (np.arange(len(stretch.points)) // self.environment.batch).data
        if any(self.setup.answer_delays):
            changes["busy"] = self._busy(stretch).data
        return log._replace(**changes)

    def _contexts(self, stretch: WorldChunk) -> Array:
        """Return what the sites see: slot, stream, coordinate."""
        names = self.environment.coordinates
        seen = [
            self.setup.context.extract(
                dict(zip(names, np.ascontiguousarray(points.T), strict=True)),
                first_slot=stretch.first_slot,
            )
            for points in np.moveaxis(stretch.points, 1, 0)
        ]
        return np.ascontiguousarray(np.stack(seen, axis=1))

    def _costs(self, stretch: WorldChunk) -> Array:
        drawn = [self.environment.columns[name] for name in self.setup.cost_columns]
        values = [
            column.low + (column.high - column.low) * stretch.columns[name]
            for name, column in zip(self.setup.cost_columns, drawn, strict=True)
        ]
        return np.rint(np.array(values) * MILLIONTHS).astype(np.int32)

    def _busy(self, stretch: WorldChunk) -> Array:
        busy = np.empty((len(stretch.points), len(self.setup.answer_delays)), np.int64)
        for learner, delay in enumerate(self.setup.answer_delays):
            if isinstance(delay, str):
                column = self.environment.columns[delay]
                values = column.low + (column.high - column.low + 1) * stretch.columns[delay]
                busy[:, learner] = values.astype(np.int64)
            else:
                busy[:, learner] = delay
        return busy
