"""The rows of a store as a log: decisions, labels, contexts and all predictions that are known.

A replay needs the predictions of all functions. So the column `sampled` is 1 in rows that have them
by the draw of the shadow mode, and the configuration beside the log replays only these.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey import config as configs
from covey import files, toml
from covey.bandit.partitions import MOST_DRAWN
from covey.data.logs import TraceFile
from covey.errors import DataError, StoreError
from covey.node.reading import KnownRow, StoredSite, is_own_arm, network_tables
from covey.node.requests import Arm
from covey.replay.replay import ConfigLike
from covey.types import BY_CONTEXT, Context

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


class _ContextColumn(NamedTuple):
    """A context in the log, or a vector."""

    name: str
    first: int  # of its coordinates
    size: int | None  # None: it is no vector

    @property
    def entry(self) -> Any:
        """The context of the configuration."""
        scale = {"scale": "linear", "low": 0, "high": 1}
        return self.name if self.size is None else {"vector": self.name, "size": self.size, **scale}

    def value(self, point: Context) -> Any:
        if self.first >= len(point):
            return None
        if self.size is None:
            return point[self.first]
        return list(point[self.first : self.first + self.size])


def export(site: StoredSite, path: Path, *, config: ConfigLike | None = None) -> Exported:
    """Write the log of a site, and a configuration for it beside it.

    `config` is the file of the site: the configuration gets its policy and prices. Raises
    `ConfigError` for another kind of file, and `DataError` if a file cannot hold the labels.
    """
    columns = _columns(site)
    replayed = _replayed(site)
    is_sampled = [_is_sampled(row, replayed) for row in site.rows]
    if not any(is_sampled) and not site.spans:
        # Without a draw, rows whose answers are known by chance would favour chosen functions.
        own = [column.arm for column in columns if is_own_arm(column.arm) and column.arm.place >= 0]
        every = [_is_whole(row, own) for row in site.rows]
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
        labelled=sum(row.label is not None for row in site.rows),
        drawn=sum(row.is_drawn for row in site.rows),
        sampled=sum(is_sampled),
    )


def _columns(site: StoredSite) -> list[_Column]:
    """Return the columns of predictions: present arms, and retired ones that answered rows."""
    answered = {id_ for row in site.rows for id_ in row.answers}
    contexts = [column.name for column in _contexts(site)]
    taken = {*DECIDED, "label", "revealed", "drawn", "share", SAMPLED, *contexts}
    columns = []
    for arm in site.arms:
        if arm.place < 0 and arm.id not in answered:
            continue
        name = arm.name if arm.place >= 0 else arm.id
        name = name if is_own_arm(arm) else f"{name}_answer"
        while name in taken:
            name += "_"
        taken.add(name)
        columns.append(_Column(arm, name))
    return columns


def _contexts(site: StoredSite) -> list[_ContextColumn]:
    """Return the columns of contexts: vectors, and many without a name, are one column each."""
    count = max((len(row.request.context(row.row)) for row in site.rows), default=0)
    sizes = site.context_sizes
    if sum(size or 1 for _, size in sizes) != count or len(dict(sizes)) < len(sizes):
        sizes = [(str(k + 1), None) for k in range(count)]
        if count > MOST_DRAWN:
            sizes = [("all", count)]
    ends = accumulate(size or 1 for _, size in sizes)
    return [
        _ContextColumn(f"context_{name}", end - (size or 1), size)
        for (name, size), end in zip(sizes, ends, strict=True)
    ]


def _replayed(site: StoredSite) -> list[Arm]:
    """Return the arms that are replayed: those of the latest span in which rows were drawn."""
    drawn = [span for span in site.spans if span.share]
    ids = drawn[-1].arms if drawn else []
    return [arm for arm in site.arms if arm.place >= 0 and arm.id in ids]


def _is_sampled(row: KnownRow, replayed: Sequence[Arm]) -> bool:
    ids = {arm.id for arm in replayed}
    if not row.is_drawn or row.span is None or not ids <= {*row.span.arms}:
        return False
    return _is_whole(row, replayed)


def _is_whole(row: KnownRow, arms: Sequence[Arm]) -> bool:
    return all(row.answers.get(arm.id) is not None for arm in arms)


def _content(
    site: StoredSite, columns: Sequence[_Column], is_sampled: Sequence[bool]
) -> Mapping[str, Sequence[Any]]:
    rows = site.rows
    contexts = [row.request.context(row.row) for row in rows]
    return {
        "slot": [row.slot for row in rows],
        "id": [row.request.id for row in rows],
        "row": [row.row for row in rows],
        "phase": [row.group.phase for row in rows],
        "cell": [row.group.cell for row in rows],
        "arm": [row.group.arm for row in rows],
        "function": [row.request.function(row.row) for row in rows],
        "answer": [row.answer for row in rows],
        "cost": [row.group.price for row in rows],
        "label": [row.label for row in rows],
        "revealed": [int(row.label is not None) for row in rows],
        **{column.name: [column.value(point) for point in contexts] for column in _contexts(site)},
        **{name: [row.answers.get(arm.id) for row in rows] for arm, name in columns},
        "drawn": [int(row.is_drawn) for row in rows],
        "share": [None if row.span is None else row.span.share for row in rows],
        SAMPLED: [int(flag) for flag in is_sampled],
    }


# -- the configuration --------------------------------------------------------------------------


def _configuration(
    site: StoredSite,
    columns: Sequence[_Column],
    config: ConfigLike | None,
    path: Path,
) -> str:
    own = [column for column in columns if is_own_arm(column.arm) and column.arm.place >= 0]
    tables = {} if config is None else network_tables(config)
    costs = _costs(site, tables)
    policy: dict[str, Any] = dict(tables.get("policy", {}))
    if config is None:
        policy = {"preset": site.preset}
    data: dict[str, Any] = {"label": "label", "revealed": "revealed", "only": SAMPLED}
    loss = tables.get("data", {}).get("loss")
    entries = [column.entry for column in _contexts(site)]
    data |= {"context": entries} | ({} if loss is None else {"loss": loss})
    learner: dict[str, Any] = {"name": site.name, "functions": [column.name for column in own]}
    if any(costs.get(column.arm.name) for column in own):
        learner["function-costs"] = [costs.get(column.arm.name, 0.0) for column in own]
    free = [column.name for column in own if column.arm.name in _free(site, config)]
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
    listed = [table["name"] for table in tables.get("function", []) if table.get("free")]
    for learner in tables.get("learner", []):
        if learner.get("name") == site.name:
            free = learner.get("free", [])
            listed += list(learner["functions"]) if free is True else list(free or [])
    return listed


def _costs(site: StoredSite, tables: Mapping[str, Any]) -> dict[str, float]:
    """Return what an answer of each arm costs: by the configuration, or as it was last paid."""
    if not tables:
        return {row.group.arm: row.group.price for row in site.rows}
    setup = configs.load(tables)
    spec = next((each for each in setup.sites if each.name == site.name), None)
    if spec is None:
        raise StoreError(f"the store is of site {site.name!r}, which --config does not have")
    names = [each.name for each in setup.sites]
    behind = [*(names[k] for k in spec.peers), *(names[k] + BY_CONTEXT for k in spec.context_peers)]
    return dict(zip([*spec.functions, *behind], spec.costs, strict=True))
