"""`covey.compare`: replay presets and slices on one log, in parallel; interrupted runs resume."""

import contextlib
import hashlib
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey.bandit.policies import EXPERIMENTAL, PRESETS, is_importable, policy_table
from covey.config import NetworkConfig, load, tables_in
from covey.data import tables
from covey.errors import ConfigError, CoveyError
from covey.jobs.folders import claim, keep, kept
from covey.jobs.running import Pool, SameProcess, completed, open_pool, unbroken
from covey.replay.replay import ConfigLike, Progress, replay_file, used_columns
from covey.report.comparison import PolicyRun, ReplayComparison
from covey.simulation.scenario import named_tables
from covey.toml import read_toml

CONFIGURED = "as configured"
USUAL = tuple(name for name in PRESETS if name not in EXPERIMENTAL)
# Keys of [policy] that do not belong to a preset: they hold for all that are compared.
_COMMON = ("seed", "label-wait", "max-cells", "max-level", "reward", "carry-serving-costs")

Policies = dict[str, Mapping[str, Any]]  # name -> [policy] table
Source = Path | Mapping[str, Any]  # a log, or its columns


def compare(
    config: ConfigLike,
    data: Any,
    *,
    presets: Sequence[str] = (),
    slices: Sequence[int] = (),
    policies: str | Path | Mapping[str, Any] | None = None,
    workers: int = 1,
    out: str | Path | None = None,
    progress: Progress = lambda share, slots: None,
    on: str | None = None,
) -> ReplayComparison:
    """Replay several policies on the same log, and return how they compare.

    The first policy, and the reference, is that of the configuration. Each of the `presets` is
    replayed with each of the `slices`; without presets, the configured policy is. `policies` are
    policies of your own: by name a `[policy]` table or settings such as `covey.CoS(slices=4)`, or
    the path of a TOML file with `[[policy]]` tables. Without any of the three, the usual presets
    are compared. `data` is as in `covey.replay`.

    `workers` is the number of processes; 1 replays in this one. The folder `out` keeps finished
    replays: a repeated call replays only what is missing. `on` is a Ray cluster, "ray" or
    "ray://host:port", in place of processes here; all its nodes must find the log by its path.
    """
    table = tables_in(config)
    chosen = _policies(table, presets, slices, policies)
    setups = _setups(table, chosen, is_lenient=not (presets or slices or policies))
    if len(setups) < 2:
        raise ConfigError("there is one policy only; name others in presets, slices or policies")
    if len({setup.shares_slots for setup in setups.values()}) > 1:
        raise ConfigError(
            "the policies count slots differently, so their rows cannot be paired; compare those "
            'with the same [policy.reading] batch only ("slots" or "slot")'
        )
    source = _source(data, setups[CONFIGURED])
    folder = None if out is None else Path(out)
    if folder is not None:
        claim(folder, _identity(table, source), file="comparison.json", what="comparison")
    runs = {name: run for name in setups if (run := _kept(folder, name, setups[name])) is not None}
    left = [name for name in setups if name not in runs]
    jobs = {name: {**table, "policy": chosen[name]} for name in left}
    are_found = all(is_importable(setup.settings) for setup in setups.values())
    count = min(workers, max(1, len(left)))
    pool = (
        SameProcess()
        if workers == 1 and on is None
        else open_pool(on, workers=count, is_importable=are_found)
    )
    with contextlib.closing(_replays(jobs, source, pool)) as results:
        for count, (name, run) in enumerate(results, 1):
            if folder is not None:
                keep(_path(folder, name), run)
            runs[name] = run
            progress(count / len(left), count * run.outcome.slots)
    _warn(runs.values())
    title = f"Policies on {source.name}" if isinstance(source, Path) else "Policies compared"
    return ReplayComparison({name: runs[name] for name in setups}, title=title, config=config)


def _policies(
    table: Mapping[str, Any],
    presets: Sequence[str],
    slices: Sequence[int],
    own: str | Path | Mapping[str, Any] | None,
) -> Policies:
    """Return the `[policy]` tables to compare, by name; the configured one is first."""
    base = table.get("policy", {})
    common = {key: base[key] for key in _COMMON if key in base}
    chosen: Policies = {CONFIGURED: base}
    is_free = not (presets or slices or own)
    for preset in USUAL if is_free else presets:
        sliced = {**common, "preset": preset}
        if slices:
            chosen |= {f"{preset} slices={n}": {**sliced, "slices": n} for n in slices}
        else:
            kept_slices = {"slices": base["slices"]} if "slices" in base else {}
            chosen[preset] = {**sliced, **kept_slices}
    if not presets:
        chosen |= {f"slices={n}": {**base, "slices": n} for n in slices}
    return chosen | _own(own)


def _own(own: str | Path | Mapping[str, Any] | None) -> Policies:
    if own is None:
        return {}
    if not isinstance(own, Mapping):
        own = named_tables(read_toml(Path(own)), "policy")
        own = {name: _without_name(table) for name, table in own.items()}
    named_tables({"policy": [{"name": name} for name in own]}, "policy")  # names of files
    return {name: policy_table(policy) for name, policy in own.items()}


def _without_name(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "name"}


def _setups(
    table: Mapping[str, Any], chosen: Policies, *, is_lenient: bool
) -> dict[str, NetworkConfig]:
    """Return the checked configurations, without those that decide as an earlier one does."""
    setups: dict[str, NetworkConfig] = {}
    for name, policy in chosen.items():
        try:
            setup = load({**table, "policy": policy})
            setup.policies(setup.context.dimension)
        except CoveyError as error:
            if is_lenient and name != CONFIGURED:
                continue
            raise type(error)(f"policy {name!r}: {error}") from None
        if setup.settings not in [other.settings for other in setups.values()]:
            setups[name] = setup
    return setups


def _source(data: Any, setup: NetworkConfig) -> Source:
    """Return what worker processes read: the path of a log, or the columns that are used."""
    if isinstance(data, str | Path):
        return Path(data)
    return tables.whole(tables.open_table(data, used_columns(setup)))


def _identity(table: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Return all that a replay depends on besides its policy."""
    config = {key: value for key, value in table.items() if key != "policy"}
    return {
        "covey": version("covey"),
        "data": _digest(source),
        "config": msgspec.to_builtins(config, enc_hook=repr),
    }


def _digest(source: Source) -> str:
    digest = hashlib.sha256()
    if isinstance(source, Path):
        tables.open_log(source, [])  # it is there and has a known form
        with source.open("rb") as log:
            return hashlib.file_digest(log, "sha256").hexdigest()
    for name, column in sorted(source.items()):
        digest.update(name.encode())
        is_array = isinstance(column, np.ndarray)
        digest.update(column.tobytes() if is_array else msgspec.json.encode(list(column)))
    return digest.hexdigest()


def _path(folder: Path, name: str) -> Path:
    return folder / "policies" / f"{name.replace(':', '.')}.json"


def _kept(folder: Path | None, name: str, setup: NetworkConfig) -> PolicyRun | None:
    """Return the finished replay of a policy, if the folder has it with the same settings."""
    run = None if folder is None else kept(_path(folder, name), PolicyRun)
    return run if run is not None and run.settings == _settings(setup) else None


def _settings(setup: NetworkConfig) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(setup.settings))
    return found


def play(table: Mapping[str, Any], source: Source) -> PolicyRun:
    """Replay one policy; called in worker processes, whose warnings the caller repeats."""
    setup = load(table)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = replay_file(source, setup)
    told = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning))
    return PolicyRun(_settings(setup), outcome, list(told))


def _replays(
    jobs: Mapping[str, Mapping[str, Any]], source: Source, pool: AbstractContextManager[Pool]
) -> Generator[tuple[str, PolicyRun], None, None]:
    """Yield each name with its replay, in the order in which they finish."""

    def submit(workers: Pool, name: str) -> Future[PolicyRun]:
        with _named(name):
            return workers.submit(play, jobs[name], source)

    if not jobs:
        return
    with pool as workers, unbroken("replays"):
        for name, future in completed(jobs, submit, workers):
            with _named(name):
                yield name, future.result()


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the policy in errors."""
    try:
        yield
    except CoveyError as error:
        raise type(error)(f"policy {name!r}: {error}") from None


def _warn(runs: Iterable[PolicyRun]) -> None:
    for message in dict.fromkeys(message for run in runs for message in run.warnings):
        warnings.warn(message, stacklevel=3)
