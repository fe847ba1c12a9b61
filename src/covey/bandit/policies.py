"""Policy presets: from settings to the parameters of the decision rule.

`Settings` are the user's input (the `[policy]` table, or `CoS(...)` and `DCZA(...)` in Python);
a `Policy` is the result for a given dimension and number of functions.
"""

import math
import zlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from covey import toml
from covey.bandit.epochs import epoched
from covey.bandit.partitions import (
    Layered,
    Partition,
    Refining,
    Uniform,
    Zooming,
    checked_slices,
    cos_power,
    slices_for,
    split_power,
)
from covey.bandit.settings import (
    COUNTS,
    READINGS,
    Forget,
    Reading,
    Settings,
    Threshold,
    check_ranges,
)
from covey.errors import ConfigError
from covey.kernel.rules import Custom, CustomPolicy, Elimination, Index, Rule, Tree


class Policy(NamedTuple):
    """A partition, the three thresholds and the settings."""

    title: str
    partition: Partition
    dimension: int
    explore: Threshold
    train: Threshold
    explore_peers: Threshold
    settings: Settings
    by_index: Index | None = None  # replaces the thresholds
    elimination: Elimination | None = None
    tree: Tree | None = None
    custom: Callable[[int, int], Any] | None = None  # makes a policy of one's own

    @property
    def has_index(self) -> bool:
        """Whether arms are chosen by an upper index, without phases."""
        return self.by_index is not None or self.tree is not None

    @property
    def detects_changes(self) -> bool:
        """Whether statistics are reset when labels no longer fit them."""
        return any(one is not None and one.alarm > 0 for one in (self.by_index, self.tree))

    @property
    def keeps_widths(self) -> bool:
        """Whether a learner records the uncertainty of its peers' answers."""
        return self.by_index is not None and self.by_index.is_balanced

    def rule(self, *, position: int, name: str = "", **site: Any) -> Rule:
        """Return the kernel parameters of the learner `name`, at `position` in the network.

        `site` has the fields of a `Rule` that do not depend on the policy: `functions`, `costs`
        and others, such as `rewards`.
        """
        settings, reading = self.settings, self.settings.reading
        site.setdefault("is_supervised", True)
        seed = settings.seed * 1_000_003 + position
        return Rule(
            dimension=self.dimension,
            levels=self.partition.levels(self.dimension),
            most_cells=settings.max_cells,
            trains_first=reading.order == "train-own-peers",
            explores_to_help=reading.helper == "explore-first",
            counted=COUNTS.index(reading.count),
            is_pending=bool(settings.pending),
            weighs_pending=not (self.by_index or self.tree or self.custom),
            seed=seed if reading.ties == "random" else None,
            inherits=settings.inherit,
            window=settings.forget.window or 0,
            discount=1.0 if settings.forget.discount is None else settings.forget.discount,
            asked_only=reading.history == "asked",
            scores_predictions=reading.history == "predictions",
            ignores_prices=reading.unlabelled == "accuracy" and not site["is_supervised"],
            asks_one=reading.queries == "one",
            averages_children=reading.children == "averaged",
            index=self.by_index,
            tree=self.tree,
            offset=zlib.crc32(name.encode()),
            elimination=self.elimination,
            floors_training=bool(settings.check_claims),
            custom=self.custom and Custom(settings.preset, self.custom, seed),
            **site,
        )

    def scales(self) -> list[float]:
        """Return the scales of the three thresholds, in the kernel's order."""
        return [self.explore.scale, self.train.scale, self.explore_peers.scale]

    def powers(self) -> list[float]:
        """Return their powers."""
        return [self.explore.power, self.train.power, self.explore_peers.power]


def CoS(**settings: Any) -> Settings:  # noqa: N802 - the paper's name
    """Return settings of CoS: a uniform grid.

    >>> CoS(slices=12).preset
    'cos'
    """
    return settings_from({"preset": "cos", **_kebab(settings)})


def DCZA(**settings: Any) -> Settings:  # noqa: N802 - the paper's name
    """Return settings of DCZA: cells that are split as contexts arrive in them.

    >>> DCZA(parameters="z2").parameters
    'z2'
    """
    return settings_from({"preset": "dcza", **_kebab(settings)})


def Auto(**settings: Any) -> Settings:  # noqa: N802 - named like the other two
    """Return settings of the default policy: inference on a tree of cells.

    >>> Auto(alarm=0).preset
    'auto'
    """
    return settings_from({"preset": "auto", **_kebab(settings)})


def policy_table(policy: Any) -> Mapping[str, Any]:
    """Return the `[policy]` table of settings, of a preset's name, or of a class of one's own.

    >>> policy_table(CoS(slices=12))
    {'preset': 'cos', 'slices': 12}
    """
    if isinstance(policy, Mapping):
        return policy
    if not isinstance(policy, Settings):
        return {"preset": policy}
    usual = Settings(reading=READINGS[policy.mode])
    changed = _changed(policy, usual)
    if "reading" in changed:
        changed["reading"] = _changed(policy.reading, usual.reading)
    table: dict[str, Any] = msgspec.to_builtins({**changed, "preset": policy.preset})
    return table


def _changed(record: msgspec.Struct, usual: msgspec.Struct) -> dict[str, Any]:
    """Return the keys in which a record differs from another, with their values."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(record)}
    values = {key: (getattr(record, name), getattr(usual, name)) for name, key in names.items()}
    return {key: value for key, (value, other) in values.items() if value != other}


def settings_from(table: Mapping[str, Any], *, where: str = "[policy]") -> Settings:
    """Return the settings of a `[policy]` table; raise `ConfigError` for an invalid one.

    Its preset may be settings or a class of one's own, its reward a function.
    """
    if isinstance(table, Mapping) and isinstance(table.get("preset"), Settings):
        others = {key: value for key, value in table.items() if key != "preset"}
        table = {**policy_table(table["preset"]), **others}
    for key in ("preset", "reward"):
        if isinstance(table, Mapping) and callable(table.get(key)):
            table = {**table, key: toml.named(table[key])}
    table = toml.moved(table, _READING_KEYS, into="reading", where=where)
    settings = toml.read(table, Settings, where=where)
    given = table.get("reading", {})
    reading = {**msgspec.to_builtins(READINGS[settings.mode]), **given}
    settings = msgspec.structs.replace(settings, reading=msgspec.convert(reading, Reading))
    _check(settings)
    definite = settings if "preset" in table else _definite(settings, given)
    _check_reading(definite, given)
    _check_alarm(definite)
    return definite


class Scene(NamedTuple):
    """The network that a policy is resolved for."""

    dimension: int
    most_functions: int  # of one learner
    all_functions: int  # of all learners


# Keys that imply `preset = "cos"` where no preset is given.
_OF_PHASES = (
    "mode",
    "parameters",
    "horizon",
    "alpha",
    "most_functions",
    "explore",
    "train",
    "explore_peers",
    "inherit",
    "forget",
)
_READINGS_OF_PHASES = (
    *("order", "helper", "count", "level-offset", "ties", "queries", "children", "batch"),
)
PHASED = ("cos", "dcza")  # presets that have all readings of the paper
EPOCHED = (*PHASED, "cos-ce")  # presets that a live network can restart in epochs
# Readings that others do not have.
_OF_PAPER = {"queries": "one", "children": "averaged", "batch": "slot"}
_READING_KEYS = [field.encode_name for field in msgspec.structs.fields(Reading)]


def shares_slots(settings: Settings) -> bool:
    """Return whether the rows of a batch share one slot."""
    return settings.reading.batch == "slot" and settings.preset in PHASED


def _check_reading(settings: Settings, given: Mapping[str, Any]) -> None:
    """Refuse readings that were asked for and that the preset does not have."""
    for key, value in _OF_PAPER.items():
        if given.get(key) == value and settings.preset not in PHASED:
            raise ConfigError(
                f'[policy.reading] {key} = "{value}" cannot be combined with preset '
                f"{settings.preset!r} of [policy]; use preset cos or dcza, or remove {key}"
            )


def _definite(settings: Settings, given: Collection[str]) -> Settings:
    """Return the settings with the implied preset; `given` are the explicit readings."""
    usual = Settings()
    is_phased = any(getattr(settings, name) != getattr(usual, name) for name in _OF_PHASES)
    is_phased = is_phased or any(key in given for key in _READINGS_OF_PHASES)
    return msgspec.structs.replace(settings, preset="cos") if is_phased else settings


def within(
    settings: Settings, *, is_named: bool, has_candidates: bool, has_context_peers: bool
) -> Settings:
    """Return the settings for a network with these features, which most index presets lack."""
    if not has_candidates and not has_context_peers:
        return settings
    if not is_named:
        by_phases = msgspec.structs.replace(settings, preset="cos")
        _check_alarm(by_phases)
        return by_phases
    if settings.preset == "auto" and not has_candidates:
        return settings
    if settings.preset in INDEXED or ":" in settings.preset:
        what, others = "context-peers", "auto, cos, dcza or cos-ce"
        if has_candidates:
            what, others = "several candidates", "cos, dcza or cos-ce"
        raise ConfigError(
            f"[policy] preset {settings.preset!r} does not support {what}; use {others}"
        )
    return settings


def resolve(
    settings: Settings, *, dimension: int, most_functions: int, all_functions: int = 0
) -> Policy:
    """Return the policy of `settings` for a network of this size; of several epochs, for all."""
    if settings.horizon == "doubling":
        counts = {"most_functions": most_functions, "all_functions": all_functions}
        return epoched(settings, lambda one: resolve(one, dimension=dimension, **counts))
    most = settings.most_functions or most_functions
    scene = Scene(dimension, most, all_functions or most_functions)
    policy = PRESETS.get(settings.preset, _custom)(settings, scene)
    return policy._replace(title="; ".join([policy.title, *_extras(policy.settings)]))


def _extras(settings: Settings) -> list[str]:
    """Return the parts of a title besides partition and thresholds."""
    forget = settings.forget
    return [
        text
        for is_on, text in (
            (settings.inherit, "finer cells inherit"),
            (forget.window, f"estimates by the latest {forget.window} labels of a cell"),
            (forget.discount, f"labels discounted by {forget.discount}"),
            (settings.pending, "pending labels count"),
        )
        if is_on
    ]


def _cos(settings: Settings, scene: Scene) -> Policy:
    dimension, most_functions, _ = scene
    power = {"z1": 1 / 8, "z2": 1 / 2, "theorem": cos_power(_alpha(settings), dimension)}
    slices = _slices(settings, dimension)
    thresholds = _thresholds(settings, power[settings.parameters], most_functions)
    title = f"CoS ({settings.mode}): {slices} slices per dimension; {_formulas(thresholds)}"
    return Policy(title, Uniform(slices), dimension, *thresholds, settings)


def _dcza(settings: Settings, scene: Scene) -> Policy:
    dimension, most_functions, _ = scene
    alpha = _alpha(settings)
    split = {
        "z1": 4.0,
        "z2": (3 + math.sqrt(17)) / 2,
        "theorem": split_power(alpha, dimension),
    }[settings.parameters]
    power = {"z1": 1 / 8, "z2": 2 / split, "theorem": 2 * alpha / split}[settings.parameters]
    thresholds = _thresholds(settings, power, most_functions)
    if settings.split_power is not None:
        split = settings.split_power
    partition = Zooming(
        settings.split_scale, split, settings.reading.level_offset, settings.max_level
    )
    level = "(level + 1)" if partition.offset else "level"
    title = (
        f"DCZA ({settings.mode}): cells split at {partition.scale:g} * 2^({split:.4g} * {level}) "
        f"own arrivals; {_formulas(thresholds)}"
    )
    return Policy(title, partition, dimension, *thresholds, settings)


def _cos_ce(settings: Settings, scene: Scene) -> Policy:
    """CoS that explores and trains only arms that may be optimal."""
    policy = _cos(settings, scene)
    slices, dimension = cast("Uniform", policy.partition).slices, scene.dimension
    bias = settings.lipschitz * (math.sqrt(dimension) / slices) ** _alpha(settings)
    elimination = Elimination(
        confidence=2.0 * scene.all_functions * slices**dimension,
        bias=bias,
        most_functions=scene.most_functions,
    )
    title = policy.title.replace("CoS", "CoS-CE", 1) + f"; arms within {2 * bias:.3g} of the best"
    return policy._replace(title=title, elimination=elimination)


def _custom(settings: Settings, scene: Scene) -> Policy:
    """Return a policy of one's own over a grid."""
    slices = _slices(settings, scene.dimension)
    thresholds = (Threshold(0.0, 0.0),) * 3
    title = f"{settings.preset}: {slices} slices per dimension"
    make = partial(custom_class(settings.preset), **settings.options)
    return Policy(title, Uniform(slices), scene.dimension, *thresholds, settings, custom=make)


def is_importable(settings: Settings) -> bool:
    """Return whether every process finds what the settings name as "module:name"."""
    names = [settings.preset, *([settings.reward] if isinstance(settings.reward, str) else [])]
    return all(":" not in name or toml.is_importable(name) for name in names)


def custom_class(preset: str) -> Callable[..., Any]:
    """Return the class of a policy of one's own; raise `ConfigError` if there is none."""
    found: Callable[..., Any] = toml.imported(preset, where="[policy] preset")
    if not callable(getattr(found, "choose", None)) or not callable(getattr(found, "serve", None)):
        raise ConfigError(
            f"[policy] preset {preset!r} has no methods choose and serve; inherit from "
            f"covey.{CustomPolicy.__name__}"
        )
    return found


def _auto(settings: Settings, scene: Scene) -> Policy:
    """Gaussian inference on the tree of dyadic cells."""
    usual = Tree()
    tree = Tree(
        scale=usual.scale if settings.index_scale is None else settings.index_scale,
        spread=settings.spread,
        alarm=usual.alarm if settings.alarm is None else settings.alarm,
    )
    used = _with_discount(settings, None)
    if used.pending is None:  # where labels come at once it changes nothing
        used = msgspec.structs.replace(used, pending=True)
    partition, cells = _levels(settings, Refining(), scene.dimension)
    thresholds = (Threshold(0.0, 0.0),) * 3
    title = f"auto: {cells}; index of {tree.scale:g} ln t"
    return Policy(title, partition, scene.dimension, *thresholds, used, tree=tree)


_BALANCED = "peers by what they did and how unsure it was"


def _indexed(
    name: str,
    usual: Layered | None = None,
    *,
    scale: float = 1.0,
    alarm: float = 0.0,
    discount: float | None = None,
    is_balanced: bool = False,
) -> "Preset":
    """Return a preset that chooses the arm with the largest index.

    It uses all levels of `usual` at once, or one grid without it or if slices are set.
    """

    def preset(settings: Settings, scene: Scene) -> Policy:
        used = _with_discount(settings, discount)
        partition, cells = _levels(settings, usual, scene.dimension)
        index = Index(
            scale=scale if settings.index_scale is None else settings.index_scale,
            bias=_bias(settings, partition, scene.dimension),
            is_recent=discount is not None,
            is_balanced=is_balanced,
            alarm=alarm if settings.alarm is None else settings.alarm,
        )
        how = _BALANCED if is_balanced else f"KL index of {index.scale:g} ln t"
        thresholds = (Threshold(0.0, 0.0),) * 3
        title = f"{name}: {cells}; {how}"
        return Policy(title, partition, scene.dimension, *thresholds, used, index)

    return preset


def _levels(
    settings: Settings, usual: Layered | Refining | None, dimension: int
) -> tuple[Partition, str]:
    level = settings.finest_level
    if usual is not None and settings.slices is not None and level is not None:
        raise ConfigError("[policy] has slices and finest-level; remove one of them")
    if usual is None or settings.slices is not None:
        slices = _slices(settings, dimension)
        return Uniform(slices), f"{slices} slices per dimension"
    partition = usual if level is None else usual._replace(finest=level)
    if isinstance(partition, Refining):
        return partition, "cells are halved as instances arrive"
    sides = [str(one.side) for one in partition.levels(dimension)]
    return partition, f"{' and '.join(sides)} slices per dimension at once"


def _bias(settings: Settings, partition: Partition, dimension: int) -> tuple[float, ...]:
    """Return the maximum difference of accuracies within a cell, per level."""
    levels = partition.levels(dimension)
    if len(levels) == 1:
        return ()
    alpha, reach = _alpha(settings), math.sqrt(dimension)
    return tuple(settings.lipschitz * (reach / level.side) ** alpha for level in levels)


def _with_discount(settings: Settings, discount: float | None) -> Settings:
    if settings.forget.window is not None:
        raise ConfigError(
            f"[policy] preset {settings.preset!r} does not support forget.window; use discount"
        )
    given = settings.forget.discount
    if discount is None and given is not None:
        raise ConfigError(f"[policy] preset {settings.preset!r} does not support forget; remove it")
    if given is not None or discount is None:
        return settings
    return msgspec.structs.replace(settings, forget=Forget(discount=discount))


Preset = Callable[[Settings, Scene], Policy]
PRESETS: dict[str, Preset] = {
    "auto": _auto,
    "cos": _cos,
    "dcza": _dcza,
    "share-ucb": _indexed("Share-UCB"),
    "two-sizes": _indexed("two sizes", Layered(3, step=2), scale=0.5, alarm=9.0),
    "discounted": _indexed("discounted Share-UCB", discount=0.99),
    "multi-resolution": _indexed("multi-resolution", Layered(6)),
    "cos-ce": _cos_ce,
    "balance": _indexed("balance", is_balanced=True),
}
EXPERIMENTAL = ("two-sizes", "discounted", "multi-resolution", "cos-ce", "balance")
PRESET_NAMES = (
    f"{', '.join(name for name in PRESETS if name not in EXPERIMENTAL)}; "
    f"experimental: {', '.join(EXPERIMENTAL)}"
)
INDEXED = ("auto", "two-sizes", "balance", "discounted", "multi-resolution", "share-ucb")
ALARMED = ("auto", "two-sizes", "multi-resolution", "share-ucb")


def _slices(settings: Settings, dimension: int) -> int:
    if settings.slices is not None:
        return settings.slices
    if dimension == 0:
        return 1
    if isinstance(settings.horizon, int):
        alpha = _alpha(settings)
        return checked_slices(slices_for(settings.horizon, alpha=alpha, dimension=dimension))
    if settings.parameters == "theorem":
        raise ConfigError('[policy] parameters = "theorem" needs a horizon (in slots), or slices')
    return 12


def _alpha(settings: Settings) -> float:
    if isinstance(settings.alpha, str):
        raise ConfigError(
            f'alpha = "{settings.alpha}" needs horizon = "doubling"; it is estimated per epoch'
        )
    return settings.alpha


def _thresholds(
    settings: Settings, power: float, most_functions: int
) -> tuple[Threshold, Threshold, Threshold]:
    most = float(most_functions) if settings.parameters == "theorem" else 2.0
    return (
        settings.explore or Threshold(1.0, power),
        settings.train or Threshold(most, power),
        settings.explore_peers or Threshold(1.0, power),
    )


def _formulas(thresholds: tuple[Threshold, Threshold, Threshold]) -> str:
    names = ("explore", "train", "explore peers")
    return ", ".join(f"{name} {d.formula()}" for name, d in zip(names, thresholds, strict=True))


def _check(settings: Settings) -> None:
    if ":" in settings.preset:
        _check_custom(settings)
    elif settings.preset not in PRESETS:
        hint = toml.nearest(settings.preset, PRESETS, listed=PRESET_NAMES)
        raise ConfigError(f"unknown preset {settings.preset!r} in [policy]{hint}")
    if settings.slices is not None:
        checked_slices(settings.slices)
    if settings.horizon != "doubling":
        _alpha(settings)
    check_ranges(settings)


def _check_custom(settings: Settings) -> None:
    """Raise `ConfigError` unless the policy can be made with its options."""
    try:
        custom_class(settings.preset)(1, 1, **settings.options)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"[policy] preset {settings.preset!r} with options {settings.options} raised "
            f"{type(error).__name__}: {error}"
        ) from error


def _check_alarm(settings: Settings) -> None:
    if settings.alarm is not None and settings.preset not in ALARMED:
        raise ConfigError(
            f"[policy] preset {settings.preset!r} does not support alarm; use "
            f"{', '.join(ALARMED[:-1])} or {ALARMED[-1]}"
        )


def _kebab(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments as a table; a reading is a record or a table."""
    table = {name.replace("_", "-"): value for name, value in settings.items()}
    reading = table.get("reading")
    if isinstance(reading, Mapping):
        table["reading"] = _kebab(reading)
    elif isinstance(reading, Reading):
        table["reading"] = msgspec.to_builtins(reading)
    return table
