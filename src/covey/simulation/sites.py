"""The sites of an environment: the configuration of a replay, and its instances as a log."""

from collections.abc import Mapping, Sequence
from typing import Any

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


def log_of(chunk: WorldChunk, environment: Environment, setup: NetworkConfig) -> EncodedLog:
    """Return a chunk as rows of a log.

    Without classes the label is always 1, and a right function predicts 1.
    """
    slots = len(chunk.points)
    right = chunk.right.reshape(-1, slots)
    labels: Array = np.ones(slots, np.int32)
    predictions, gains = right, None
    if chunk.labelled is not None:
        labels, predictions = chunk.labelled.labels, chunk.labelled.answers[0]
    if environment.loss is not None:
        predictions, gains = np.zeros_like(right), right
    columns = {
        "contexts": _contexts(chunk, environment, setup).reshape(-1),
        "predictions": predictions,
        "labels": labels,
        "delays": chunk.delays,
        "shown": chunk.shown,
        "gains": gains,
        "costs": _costs(chunk, environment, setup.cost_columns),
        "batches": np.arange(slots) // environment.batch if environment.batch > 1 else None,
        "busy": _busy(chunk, environment, setup.answer_delays),
    }
    views = {name: None if column is None else column.data for name, column in columns.items()}
    return EncodedLog(at=None, **views)  # type: ignore[arg-type]


def _contexts(chunk: WorldChunk, environment: Environment, setup: NetworkConfig) -> Array:
    """Return what the sites see: slot, stream, coordinate."""
    if not setup.context.dimension:
        return chunk.points
    seen = [
        setup.context.extract(
            dict(zip(environment.coordinates, np.ascontiguousarray(points.T), strict=True)),
            first_slot=chunk.first_slot,
        )
        for points in np.moveaxis(chunk.points, 1, 0)
    ]
    return np.ascontiguousarray(np.stack(seen, axis=1))


def _costs(chunk: WorldChunk, environment: Environment, names: Sequence[str]) -> Array | None:
    values = [environment.columns[name].number(chunk.columns[name]) for name in names]
    return np.rint(np.array(values) * MILLIONTHS).astype(np.int32) if names else None


def _busy(chunk: WorldChunk, environment: Environment, delays: Sequence[int | str]) -> Array | None:
    columns = [
        environment.columns[delay].whole(chunk.columns[delay])
        if isinstance(delay, str)
        else np.full(len(chunk.points), delay)
        for delay in delays
    ]
    return np.stack(columns, axis=1) if any(delays) else None
