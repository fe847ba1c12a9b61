"""The rows of a store as a log: decisions, labels, contexts and all predictions that are known.

A replay needs the predictions of all functions. So the column `sampled` is 1 in rows that have them
by the draw of the shadow mode, and the configuration beside the log replays only these.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey import config as configs
from covey import files, toml
from covey.data.logs import TraceFile
from covey.errors import DataError, StoreError
from covey.node.requests import Arm
from covey.replay.replay import ConfigLike
from covey.report.shadow import KnownRow, is_own_arm
from covey.report.stores import StoredSite, network_tables
from covey.types import BY_CONTEXT

SAMPLED = "sampled"
DECIDED = ("slot", "id", "row", "phase", "cell", "arm", "function", "answer", "cost")


class Exported(msgspec.Struct, frozen=True):
    """What an export wrote."""

    log: str
    config: str
    rows: int
    labelled: int
    drawn: int
    sampled: int  # rows that the configuration replays


class _Column(NamedTuple):
    """The predictions of an arm in the log."""

    arm: Arm
    name: str


def export(site: StoredSite, path: Path, *, config: ConfigLike | None = None) -> Exported:
    """Write the log of a site, and a configuration for it beside it.

    `config` is the file of the site: the configuration gets its policy and prices. Raises
    `ConfigError` for another kind of file, and `DataError` if a file cannot hold the labels.
    """
    columns = _columns(site)
    replayed = _replayed(site)
    is_sampled = [_is_sampled(one, replayed) for one in site.rows]
    if not any(is_sampled) and not site.spans:
        # Without a draw, rows whose answers are known by chance would favour chosen functions.
        own = [one.arm for one in columns if is_own_arm(one.arm) and one.arm.place >= 0]
        every = [_is_whole(one, own) for one in site.rows]
        is_sampled = every if all(every) else is_sampled
    toml_path = path.with_suffix(".toml")
    with TraceFile(path, what="log") as file:
        try:
            file.write(_content(site, columns, is_sampled))
        except (TypeError, ValueError, OverflowError) as error:  # those of pyarrow, too
            raise DataError(
                f"{path.name} cannot hold these labels together ({error}); write a .csv file"
            ) from None
    written = _configuration(site, columns, config, path)
    files.replace(toml_path, written.encode())
    return Exported(
        log=str(path),
        config=str(toml_path),
        rows=len(site.rows),
        labelled=sum(one.label is not None for one in site.rows),
        drawn=sum(one.is_drawn for one in site.rows),
        sampled=sum(is_sampled),
    )


def _columns(site: StoredSite) -> list[_Column]:
    """Return the columns of predictions: present arms, and retired ones that answered rows."""
    answered = {id_ for one in site.rows for id_ in one.answers}
    taken = {*DECIDED, "label", "revealed", "drawn", "share", SAMPLED, *_context_names(site)}
    found = []
    for arm in site.arms:
        if arm.place < 0 and arm.id not in answered:
            continue
        name = arm.name if arm.place >= 0 else arm.id
        name = name if is_own_arm(arm) else f"{name}_answer"
        while name in taken:
            name += "_"
        taken.add(name)
        found.append(_Column(arm, name))
    return found


def _context_names(site: StoredSite) -> list[str]:
    count = max((len(one.request.context(one.row)) for one in site.rows), default=0)
    names = site.context_names
    if len(names) != count or len(set(names)) < count:
        names = [str(k + 1) for k in range(count)]
    return [f"context_{name}" for name in names]


def _replayed(site: StoredSite) -> list[Arm]:
    """Return the arms that are replayed: those of the latest span in which rows were drawn."""
    drawn = [one for one in site.spans if one.share]
    ids = drawn[-1].arms if drawn else []
    return [arm for arm in site.arms if arm.place >= 0 and arm.id in ids]


def _is_sampled(one: KnownRow, replayed: Sequence[Arm]) -> bool:
    ids = {arm.id for arm in replayed}
    if not one.is_drawn or one.span is None or not ids <= {*one.span.arms}:
        return False
    return _is_whole(one, replayed)


def _is_whole(one: KnownRow, arms: Sequence[Arm]) -> bool:
    return all(one.answers.get(arm.id) is not None for arm in arms)


def _content(
    site: StoredSite, columns: Sequence[_Column], is_sampled: Sequence[bool]
) -> Mapping[str, Sequence[Any]]:
    rows = site.rows
    contexts = [one.request.context(one.row) for one in rows]
    return {
        "slot": [one.slot for one in rows],
        "id": [one.request.id for one in rows],
        "row": [one.row for one in rows],
        "phase": [one.group.phase for one in rows],
        "cell": [one.group.cell for one in rows],
        "arm": [one.group.arm for one in rows],
        "function": [one.request.function(one.row) for one in rows],
        "answer": [one.answer for one in rows],
        "cost": [one.group.price for one in rows],
        "label": [one.label for one in rows],
        "revealed": [int(one.label is not None) for one in rows],
        **{
            name: [point[k] if k < len(point) else None for point in contexts]
            for k, name in enumerate(_context_names(site))
        },
        **{name: [one.answers.get(arm.id) for one in rows] for arm, name in columns},
        "drawn": [int(one.is_drawn) for one in rows],
        "share": [None if one.span is None else one.span.share for one in rows],
        SAMPLED: [int(one) for one in is_sampled],
    }


# -- the configuration --------------------------------------------------------------------------


def _configuration(
    site: StoredSite,
    columns: Sequence[_Column],
    config: ConfigLike | None,
    path: Path,
) -> str:
    own = [one for one in columns if is_own_arm(one.arm) and one.arm.place >= 0]
    tables = {} if config is None else network_tables(config)
    costs = _costs(site, tables)
    policy: dict[str, Any] = dict(tables.get("policy", {}))
    if config is None:
        policy = {"preset": site.preset}
    data: dict[str, Any] = {"label": "label", "revealed": "revealed", "only": SAMPLED}
    loss = tables.get("data", {}).get("loss")
    data |= {"context": _context_names(site)} | ({} if loss is None else {"loss": loss})
    learner: dict[str, Any] = {"name": site.name, "functions": [one.name for one in own]}
    if any(costs.get(one.arm.name) for one in own):
        learner["function-costs"] = [costs.get(one.arm.name, 0.0) for one in own]
    free = [one.name for one in own if one.arm.name in _free(site, config)]
    learner |= {"free": free} if free else {}
    learner["peers"] = {}
    lines = [*_head(site, config, path), *_table("[data]", data), *_table("[policy]", policy)]
    lines += _table("[[learner]]", learner)
    text = "\n".join(lines)
    configs.load(tomllib.loads(text))
    return text


def _head(site: StoredSite, config: ConfigLike | None, path: Path) -> Iterator[str]:
    yield f"# Rows of site {site.name!r}, exported from its store. To replay those that have the"
    yield "# predictions of all functions:"
    yield f"#   covey replay {path.name} --config {path.with_suffix('.toml').name}"
    yield "# Contexts are as the site scaled them, from 0 to 1."
    if config is None:
        yield "# The store knows the preset of the policy, not its other keys, and the prices that"
        yield "# were paid: `covey export --config` takes both from the file of the site."
    yield ""


def _table(title: str, table: Mapping[str, Any]) -> list[str]:
    return [
        title,
        *(f"{toml.key_text(name)} = {toml.text_of(value)}" for name, value in table.items()),
        "",
    ]


def _free(site: StoredSite, config: ConfigLike | None) -> list[str]:
    """Return the functions that are free by the file of the site."""
    tables = {} if config is None else configs.tables_in(config)
    listed = [one["name"] for one in tables.get("function", []) if one.get("free")]
    for one in tables.get("learner", []):
        if one.get("name") == site.name:
            free = one.get("free", [])
            listed += list(one["functions"]) if free is True else list(free or [])
    return listed


def _costs(site: StoredSite, tables: Mapping[str, Any]) -> dict[str, float]:
    """Return what an answer of each arm costs: by the configuration, or as it was last paid."""
    if not tables:
        return {one.group.arm: one.group.price for one in site.rows}
    setup = configs.load(tables)
    spec = next((one for one in setup.sites if one.name == site.name), None)
    if spec is None:
        raise StoreError(f"the store is of site {site.name!r}, which --config does not have")
    names = [one.name for one in setup.sites]
    behind = [*(names[k] for k in spec.peers), *(names[k] + BY_CONTEXT for k in spec.context_peers)]
    return dict(zip([*spec.functions, *behind], spec.costs, strict=True))
