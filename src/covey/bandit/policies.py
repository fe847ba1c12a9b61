"""Policies as records: each has the keys of one preset, and resolves them for a network.

A `[policy]` table and `CoS(slices=4)` are the same record; `preset` says which one. A record is the
only place that knows what its keys mean: `resolve` gives the kernel's parameters.
"""

import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

import msgspec
import numpy as np
from msgspec import Meta

from covey import toml
from covey.bandit.partitions import (
    Doubling,
    Dyadic,
    EpochCells,
    Partition,
    Threshold,
    Uniform,
    Zooming,
    checked_slices,
    cos_power,
    slices_for,
    split_power,
)
from covey.errors import ConfigError, PolicyError
from covey.kernel import Table
from covey.kernel.history import History, PredictionHistory
from covey.kernel.rules import (
    Custom,
    CustomPolicy,
    CustomReward,
    Index,
    Reward,
    Rule,
    Tree,
)
from covey.types import Loss

LABEL_WAIT_SLOTS = 10_000  # of a site without label-wait
CANDIDATES, CONTEXT_PEERS = "several candidates", "context-peers"  # what not all policies support

Slots = Annotated[int, Meta(ge=1, le=2**53)]
Duration = Annotated[str, Meta(min_length=2)]
Slices = Annotated[int, Meta(ge=1, le=2**31)]
Scale = Annotated[float, Meta(ge=1e-6, le=1e6)]
Alarm = Annotated[float, Meta(ge=0, le=1e6)]


NEVER = Threshold(0.0, 0.0)
FEW_ARRIVALS = 64  # in a cell that is shown as one


class Forget(msgspec.Struct, frozen=True):
    """Labels that estimates use: a window of the latest ones, or all with decaying weight."""

    window: Annotated[int, Meta(ge=1, le=10**6)] | None = None  # labels
    discount: Annotated[float, Meta(gt=0, le=0.9999)] | None = None


class Harm(msgspec.Struct, frozen=True):
    """How much worse than its best own function a learner may be for asking peers."""

    points: Annotated[float, Meta(gt=0, le=100)]  # per 100 rows
    confidence: Annotated[float, Meta(ge=0.5, le=0.999999)] = 0.95


AnyReward = Reward | CustomReward


class Reading(NamedTuple):
    """What the paper's pseudocode does otherwise than its text, and other policies never do."""

    is_paper: bool = False  # it is taken to the letter
    counts_labelled: bool = False  # reports to peers count arrivals when their labels come
    keeps_predictions: bool = False  # context peers answer by these, and not by labels seen
    ignores_prices: bool = False  # learners without labels go by accuracies alone
    shares_slots: bool = False  # the rows of a batch share one


class Policy(NamedTuple):
    """A record resolved for a network: a partition, thresholds and what the kernel needs."""

    title: str
    partition: Partition
    dimension: int
    settings: "PolicyRecord"
    explore: Threshold = NEVER
    train: Threshold = NEVER
    explore_peers: Threshold = NEVER

    @property
    def by_index(self) -> Index | Tree | None:
        """How arms are chosen by an upper index, in place of phases."""
        kernel = self.settings.kernel()
        return kernel.get("index") or kernel.get("tree")

    def preferred(self, table: Table, row: int, arms: Sequence[str]) -> tuple[str | None, int, int]:
        """Return the preferred arm of a row (None: no labels), its labels and right ones."""
        # An index ignores a high mean of few labels.
        most = table.worth if self.by_index is None else lambda row, arm: table.record(row, arm)[0]
        best = max(range(len(arms)), key=partial(most, row))
        labels, right = table.record(row, best)
        return arms[best] if labels else None, labels, right

    @property
    def detects_changes(self) -> bool:
        """Whether statistics are reset when labels no longer fit them."""
        return self.by_index is not None and self.by_index.alarm > 0

    def rule(self, *, position: int, name: str = "", **site: Any) -> Rule:
        """Return the kernel parameters of the learner `name`, at `position` in the network.

        `site` has the fields of a `Rule` that do not depend on the policy: `functions`, `costs`
        and others, such as `rewards`.
        """
        kernel = self.settings.kernel()
        if not site.get("is_supervised", True) and not self.settings.rules.is_paper:
            # Arrivals without labels are no training: peers would never pass labels on.
            kernel["counts_labelled"] = True
        if "custom" in kernel:
            seed = self.settings.seed * 1_000_003 + position
            kernel["custom"] = msgspec.structs.replace(kernel["custom"], seed=seed)
        return Rule(
            dimension=self.dimension,
            levels=self.partition.levels(self.dimension),
            ignores_prices=self.settings.rules.ignores_prices
            and not site.get("is_supervised", True),
            offset=zlib.crc32(name.encode()),
            **kernel,
            **site,
        )

    def curves(self) -> tuple[list[float], list[float]]:
        """Return the scales and the powers of the three thresholds, in the kernel's order."""
        curves = (self.explore, self.train, self.explore_peers)
        return [curve.scale for curve in curves], [curve.power for curve in curves]


class _Called(msgspec.StructMeta):
    """Makes a record of keyword arguments as of a table: both are checked alike."""

    def __call__(cls, **keys: Any) -> Any:  # noqa: N805 - it is a metaclass
        table = {name.replace("_", "-"): value for name, value in keys.items()}
        return policy_from({"preset": cls.__struct_config__.tag, **table})


class PolicyRecord(
    msgspec.Struct,
    metaclass=_Called,
    frozen=True,
    kw_only=True,
    rename="kebab",
    tag_field="preset",
    omit_defaults=True,
):
    """The keys that all policies have."""

    lacks: ClassVar[tuple[str, ...]] = ()  # features of a network
    joins_candidates: ClassVar[bool] = False  # to one context: it finds out what matters

    seed: Annotated[int, Meta(ge=0, le=2**40)] = 0
    label_wait: Annotated[int, Meta(ge=0, le=2**53)] | Duration | None = None  # slots, or by time
    pending: bool | None = None  # None: in a node and in batches
    reward: Reward | str | None = None  # or "module:function" of one of one's own
    carry_serving_costs: bool = False
    harm: Harm | None = None  # None: no limit
    relearn_every: Slots = 100  # when link costs are learnt
    max_cells: Annotated[int, Meta(ge=1, le=2**31 - 2)] = 5_000_000

    @property
    def preset(self) -> str:
        """The name of the policy."""
        return str(self.__struct_config__.tag)

    @property
    def slots_waited(self) -> int | None:
        """After how many slots a label expires; None: after none, or by time."""
        return self.label_wait if isinstance(self.label_wait, int) else None

    @property
    def live_wait(self) -> int:
        """After how many slots a label expires at a site; by time, after none."""
        if isinstance(self.label_wait, str):
            return 2**53
        return LABEL_WAIT_SLOTS if self.label_wait is None else self.label_wait

    @property
    def is_importable(self) -> bool:
        """Whether every process finds what the record names as "module:name"."""
        named = (self.reward, getattr(self, "policy", None))
        return all(toml.is_importable(name) for name in named if isinstance(name, str))

    # What only some policies have.

    @property
    def rules(self) -> Reading:
        """How the paper is read."""
        return Reading()

    @property
    def slots(self) -> int | None:
        """For how many slots the policy is made; None: for any number."""
        return None

    @property
    def doubling(self) -> Doubling | None:
        """The epochs of an unknown horizon."""
        return None

    def checked(self) -> Self:
        """Return the record for peers that may lie; a record that says how to check stays."""
        return self

    def unrestricted(self) -> Self:
        """Return the record by which every learner may ask."""
        return self

    def in_epoch(self, slots: int) -> Self:
        """Return the record for an epoch of so many slots."""
        return self

    # What every policy has in its own way.

    def check(self) -> None:
        """Raise `ConfigError` for keys that do not fit each other."""

    def resolve(self, *, dimension: int, most_functions: int) -> Policy:
        """Return the policy for contexts of this dimension and learners with so many functions."""
        raise NotImplementedError

    def check_features(self, features: Mapping[str, bool]) -> None:
        """Raise `ConfigError` for a feature that a network has and the policy does not support."""
        for feature, is_there in features.items():
            if is_there and feature in self.lacks:
                having = [name for name, record in RECORDS.items() if feature not in record.lacks]
                raise ConfigError(
                    f"[policy] preset {self.preset!r} does not support {feature}; use "
                    f"{_listed(having, 'or')}"
                )

    def kernel(self) -> dict[str, Any]:
        """Return the fields of a `Rule` that depend on the policy only."""
        is_pending = bool(self.pending) or self.harm is not None
        return {"most_cells": self.max_cells, "is_pending": is_pending}

    def _titled(self, text: str) -> str:
        """Return a title with the options that many policies have."""
        kernel = self.kernel()
        window, discount = kernel.get("window"), kernel.get("discount", 1.0)
        extras = (
            (kernel.get("inherits"), "finer cells inherit"),
            (window, f"estimates by the latest {window} labels of a cell"),
            (discount < 1, f"labels discounted by {discount}"),
            (kernel["is_pending"], "pending labels count"),
            (self.harm, f"at most {self.harm.points:g} points of harm" if self.harm else ""),
        )
        return "; ".join([text, *(extra for is_on, extra in extras if is_on)])


class _Reporting(PolicyRecord, frozen=True):
    """Policies by which learners report to each other."""

    check_claims: bool | None = None  # None: in a node, and in simulations with false reports

    def checked(self) -> Self:
        is_said = self.check_claims is not None
        return self if is_said else msgspec.structs.replace(self, check_claims=True)

    def kernel(self) -> dict[str, Any]:
        return {**super().kernel(), "floors_training": bool(self.check_claims)}


class Auto(_Reporting, tag="auto", frozen=True):
    """The default: an average of beliefs over any number of contexts."""

    joins_candidates = True

    index_scale: Scale = Tree().scale
    alarm: Alarm = Tree().alarm
    batch: Literal["slots", "slot"] = "slots"  # of a batch: one per row, or one in all

    @property
    def rules(self) -> Reading:
        return Reading(shares_slots=self.batch == "slot")

    def resolve(self, *, dimension: int, most_functions: int) -> Policy:
        title = self._titled(f"auto: an average of beliefs; index of {self.index_scale:g} ln t")
        return Policy(title, Dyadic(), dimension, self)

    def kernel(self) -> dict[str, Any]:
        # Where labels come at once, pending ones change nothing.
        tree = Tree(scale=self.index_scale, alarm=self.alarm)
        is_pending = self.pending is not False or self.harm is not None
        return {**super().kernel(), "tree": tree, "is_pending": is_pending, "weighs_pending": True}


class _Phased(_Reporting, frozen=True):
    """The three phases of the paper."""

    reading: Literal["spec", "paper"] = "spec"  # of the paper's pseudocode
    count: Literal["arrivals", "labelled"] = "arrivals"  # in reports to peers
    # None: by the reading.
    history: Literal["labels", "predictions"] | None = None  # by which context peers answer
    unlabelled: Literal["net", "accuracy"] | None = None  # what learners without labels go by
    batch: Literal["slots", "slot"] | None = None  # of a batch: one per row, or one in all
    parameters: Literal["z1", "z2", "theorem"] = "z1"
    horizon: Slots | Literal["doubling"] | None = None
    first_epoch: Slots = 1024
    alpha: Annotated[float, Meta(ge=1e-3, le=1)] = 1.0
    most_functions: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    explore: Threshold | None = None
    train: Threshold | None = None
    explore_peers: Threshold | None = None
    forget: Forget = Forget()

    @property
    def rules(self) -> Reading:
        is_paper = self.reading == "paper"
        keys = ((self.history, "predictions"), (self.unlabelled, "accuracy"), (self.batch, "slot"))
        by_key = (is_paper if value is None else value == word for value, word in keys)
        return Reading(is_paper, self.count == "labelled", *by_key)

    @property
    def slots(self) -> int | None:
        return self.horizon if isinstance(self.horizon, int) else None

    @property
    def doubling(self) -> Doubling | None:
        if self.horizon != "doubling":
            return None
        return Doubling(self.first_epoch, self.alpha)

    def unrestricted(self) -> Self:
        return msgspec.structs.replace(self, reading="spec")

    def check(self) -> None:
        is_theorem = self.parameters == "theorem"
        if None not in (self.forget.window, self.forget.discount):
            raise ConfigError("[policy] forget has window and discount; remove one of them")
        if self.first_epoch != 1024 and self.doubling is None:
            raise _without_effect("first-epoch", 'horizon = "doubling"')
        if self.most_functions is not None and not (is_theorem and self.train is None):
            raise _without_effect("most-functions", 'parameters = "theorem" and no train')

    def resolve(self, *, dimension: int, most_functions: int) -> Policy:
        if self.doubling is not None:
            return self._of_all_epochs(self.doubling, dimension, most_functions)
        partition, power, cells = self._cells(dimension)
        most = 2.0
        if self.parameters == "theorem":
            most = float(self.most_functions or most_functions)
        thresholds = {
            "explore": self.explore or Threshold(1.0, power),
            "train": self.train or Threshold(most, power),
            "explore peers": self.explore_peers or Threshold(1.0, power),
        }
        formulas = ", ".join(f"{name} {limit.formula()}" for name, limit in thresholds.items())
        title = f"{type(self).__name__} ({self.reading}): {cells}; {formulas}"
        return Policy(self._titled(title), partition, dimension, self, *thresholds.values())

    def _of_all_epochs(self, doubling: Doubling, dimension: int, most_functions: int) -> Policy:
        @cache
        def policy_of(epoch: int) -> Policy:
            record = self.in_epoch(doubling.slots(epoch))
            return record.resolve(dimension=dimension, most_functions=most_functions)

        first = policy_of(0)
        title = f"{first.title}; epochs of {doubling.first_epoch} slots, doubled"
        cells = EpochCells(policy_of, doubling)
        return first._replace(title=title, partition=cells, settings=self)

    def _cells(self, dimension: int) -> tuple[Partition, float, str]:
        """Return the partition, the power of the thresholds and the cells in words."""
        raise NotImplementedError

    def kernel(self) -> dict[str, Any]:
        rules, forget = self.rules, self.forget
        return {
            **super().kernel(),
            "is_paper": rules.is_paper,
            "counts_labelled": rules.counts_labelled,
            "history": PredictionHistory if rules.keeps_predictions else History,
            "weighs_pending": True,
            "window": forget.window or 0,
            "discount": 1.0 if forget.discount is None else forget.discount,
        }


class CoS(_Phased, tag="cos", frozen=True):
    """Three phases over a uniform grid."""

    slices: Slices | None = None

    def in_epoch(self, slots: int) -> Self:
        return msgspec.structs.replace(self, horizon=slots)

    def check(self) -> None:
        super().check()
        has_grid = self.horizon is None or self.slices is not None
        if self.alpha != 1.0 and self.parameters != "theorem" and has_grid:
            raise _without_effect("alpha", 'parameters = "theorem", or a horizon without slices')

    def _cells(self, dimension: int) -> tuple[Partition, float, str]:
        alpha = self.alpha
        powers = {"z1": 1 / 8, "z2": 1 / 2, "theorem": cos_power(alpha, dimension)}
        slices = self.slices
        if slices is None and dimension > 0 and self.slots is not None:
            slices = checked_slices(slices_for(self.slots, alpha=alpha, dimension=dimension))
        elif slices is None and dimension > 0 and self.parameters == "theorem":
            raise ConfigError(
                '[policy] parameters = "theorem" needs a horizon (in slots), or slices'
            )
        partition, cells = _grid(slices, dimension)
        return partition, powers[self.parameters], cells


class DCZA(_Phased, tag="dcza", frozen=True):
    """Three phases over cells that are split as contexts arrive in them."""

    horizon: Literal["doubling"] | None = None
    split_scale: Annotated[float, Meta(ge=1e-9, le=1e18)] = 1.0
    split_power: Annotated[float, Meta(ge=0, le=64)] | None = None
    max_level: Annotated[int, Meta(ge=0, le=52)] = 40
    inherit: bool = False

    def in_epoch(self, slots: int) -> Self:
        return msgspec.structs.replace(self, horizon=None)

    def check(self) -> None:
        super().check()
        if self.alpha != 1.0 and self.parameters != "theorem":
            raise _without_effect("alpha", 'parameters = "theorem"')

    def _cells(self, dimension: int) -> tuple[Partition, float, str]:
        theorem, is_paper = split_power(self.alpha, dimension), self.rules.is_paper
        split = {"z1": 4.0, "z2": (3 + math.sqrt(17)) / 2, "theorem": theorem}[self.parameters]
        powers = {"z1": 1 / 8, "z2": 2 / split, "theorem": 2 * self.alpha / split}
        used = split if self.split_power is None else self.split_power
        partition = Zooming(self.split_scale, used, int(is_paper), self.max_level)
        level = "(level + 1)" if is_paper else "level"
        cells = f"cells split at {self.split_scale:g} * 2^({used:.4g} * {level}) own arrivals"
        return partition, powers[self.parameters], cells

    def kernel(self) -> dict[str, Any]:
        return {**super().kernel(), "inherits": self.inherit}


class ShareUCB(_Reporting, tag="share-ucb", frozen=True):
    """The arm with the largest index over a grid; peers report theirs."""

    lacks = (CANDIDATES, CONTEXT_PEERS)

    slices: Slices | None = None
    index_scale: Scale = Index().scale
    alarm: Alarm = Index().alarm

    def resolve(self, *, dimension: int, most_functions: int) -> Policy:
        partition, cells = _grid(self.slices, dimension)
        title = self._titled(f"Share-UCB: {cells}; KL index of {self.index_scale:g} ln t")
        return Policy(title, partition, dimension, self)

    def kernel(self) -> dict[str, Any]:
        return {**super().kernel(), "index": Index(scale=self.index_scale, alarm=self.alarm)}


class Own(PolicyRecord, tag="own", frozen=True):
    """A policy of one's own over a grid; `preset = "module:Class"` is short for it."""

    lacks = (CANDIDATES, CONTEXT_PEERS)

    policy: str  # "module:Class"
    options: dict[str, Any] = {}  # its keyword arguments
    slices: Slices | None = None

    @property
    def preset(self) -> str:
        return self.policy

    def check(self) -> None:
        """Raise `ConfigError` unless the policy can be made with its options."""
        make = self._class()
        try:
            make(1, 1, **self.options)
        except Exception as error:
            raise ConfigError(
                f"[policy] preset {self.policy!r} with options {self.options} raised "
                f"{type(error).__name__}: {error}"
            ) from error

    def resolve(self, *, dimension: int, most_functions: int) -> Policy:
        partition, cells = _grid(self.slices, dimension)
        return Policy(self._titled(f"{self.policy}: {cells}"), partition, dimension, self)

    def kernel(self) -> dict[str, Any]:
        custom = Custom(self.policy, partial(self._class(), **self.options), self.seed)
        return {**super().kernel(), "custom": custom}

    def _class(self) -> Any:
        made = toml.imported(self.policy, where="[policy] preset")
        if not all(callable(getattr(made, name, None)) for name in ("choose", "serve")):
            raise ConfigError(
                f"[policy] preset {self.policy!r} has no methods choose and serve; inherit from "
                f"covey.{CustomPolicy.__name__}"
            )
        if hasattr(made, "state") != hasattr(made, "restore"):
            raise ConfigError(
                f"[policy] preset {self.policy!r} has one of the methods state and restore; add "
                "the other"
            )
        return made


AnyPolicy = Auto | CoS | DCZA | ShareUCB | Own
RECORDS: Mapping[str, type[PolicyRecord]] = {
    record.__struct_config__.tag: record for record in get_args(AnyPolicy)
}
PRESETS = tuple(name for name in RECORDS if name != "own")


@cache
def keys_of(record: type[PolicyRecord]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the keys of a policy besides `preset`, in order."""
    return {field.encode_name: field for field in msgspec.structs.fields(record)}


def policy_table(policy: Any) -> Mapping[str, Any]:
    """Return the `[policy]` table of a record, of a preset's name, or of a class of one's own.

    >>> policy_table(CoS(slices=12))
    {'preset': 'cos', 'slices': 12}
    """
    if isinstance(policy, Mapping):
        return policy
    if not isinstance(policy, PolicyRecord):
        return {"preset": policy}
    table: dict[str, Any] = msgspec.to_builtins(policy, enc_hook=str)
    if isinstance(policy.reward, str):
        table["reward"] = policy.reward
    if isinstance(policy, Own):
        del table["policy"]
        table["preset"] = policy.policy
    return table


def policy_from(table: Any, *, where: str = "[policy]") -> PolicyRecord:
    """Return the record of a `[policy]` table; raise `ConfigError` for an invalid one.

    Its preset may be a record or a class of one's own, its reward a function.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is not a table of keys and values")
    preset = table.get("preset", "auto")
    keys = {key: value for key, value in table.items() if key != "preset"}
    if isinstance(preset, PolicyRecord):
        return policy_from({**policy_table(preset), **keys}, where=where)
    preset = toml.named(preset) if callable(preset) else preset
    for key in ("policy", "reward"):
        if callable(keys.get(key)):
            keys[key] = toml.named(keys[key])
    if isinstance(preset, str) and ":" in preset:
        preset, keys["policy"] = "own", preset
    if preset not in PRESETS and preset != "own":
        raise ConfigError(
            f"unknown preset {preset!r} in {where}{toml.nearest(str(preset), PRESETS)}"
        )
    _check_keys(keys, preset, where)
    record = toml.read(keys, RECORDS[preset], where=where)
    record.check()
    return record


def _check_keys(keys: Mapping[str, Any], preset: str, where: str) -> None:
    """Raise `ConfigError` for keys that the policy does not have; it names those that have them."""
    every = {key: None for record in RECORDS.values() for key in keys_of(record)}
    wrong = []
    for key in keys:
        having = [name for name, record in RECORDS.items() if key in keys_of(record)]
        if not having:
            wrong.append(f"unknown key {key!r} in {where}{toml.nearest(str(key), every)}")
        elif preset not in having:
            wrong.append(
                f"{where} {key} is a key of the preset{'s' * (len(having) > 1)} "
                f"{_listed(having, 'and')}, and the preset is {preset!r}; name another "
                f"preset, or remove {key}"
            )
    if wrong:
        raise ConfigError("; ".join(wrong))


def _grid(slices: int | None, dimension: int) -> tuple[Uniform, str]:
    """Return a grid, of 12 slices unless they are given, and its cells in words."""
    usual = 12 if dimension > 0 else 1
    slices = usual if slices is None else slices
    return Uniform(slices), f"{slices} slices per dimension"


def _without_effect(key: str, needs: str) -> ConfigError:
    return ConfigError(f"[policy] {key} has no effect here: it needs {needs}; remove it")


def _listed(names: Sequence[str], word: str) -> str:
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def used_rows(table: Any) -> list[tuple[int, int]]:
    """Return the rows in which a learner decides, each after its own arrivals.

    Of cells of all sizes at once, these are the largest ones with few arrivals.
    """
    rows = [(table.cells.own(row), row) for row in range(len(table))]
    if not (rows and table.layout.has_tree):
        return [(own, row) for own, row in rows if own and not table.cells.is_split(row)]
    arrivals: Counter[int] = Counter()
    parents: dict[int, int] = {}
    for own, row in rows:
        layers = table.cells.layers(row) if own else []
        arrivals.update(dict.fromkeys(layers, own))
        parents.update(pairwise(layers))
    finest = {row for own, row in rows if own}
    return [
        (count, row)
        for row, count in arrivals.items()
        if (row in finest or count < FEW_ARRIVALS)
        and (row not in parents or arrivals[parents[row]] >= FEW_ARRIVALS)
    ]


# -- rewards: what an arm is worth, by its accuracy or expected loss, its cost and the context -----


def reward_from(reward: Reward | str, *, where: str, loss: Loss | None = None) -> AnyReward:
    """Return the reward of a table: a formula, or the function that it names.

    A function takes the accuracy or, with a loss, the expected loss.
    """
    if isinstance(reward, Reward):
        return reward
    if ":" not in reward:
        raise ConfigError(
            f"{where} is {reward!r}; write a table such as {{ cost = 2.0 }}, or module:function"
        )
    function = toml.imported(reward, where=where)
    if not callable(function):
        raise ConfigError(
            f"{where} {reward!r} is not a function; write one of accuracy, cost and context"
        )
    return CustomReward(reward, function, 0.0 if loss is None else loss.bound)


def check_reward(reward: CustomReward, *, where: str, dimension: int) -> None:
    """Raise `ConfigError` if the function fails for a perfect arm or for a useless one."""
    try:
        for accuracy in (0.0, 1.0):
            reward.worth(accuracy, 0.0, (0.5,) * dimension)
    except PolicyError as error:
        raise ConfigError(
            f"{where}: {error}; it must return a number for every accuracy (or expected loss, with "
            "[data] loss), cost and context"
        ) from error


def worths(
    reward: AnyReward | None, accuracies: np.ndarray, costs: Any, contexts: np.ndarray
) -> np.ndarray:
    """Return the value of an arm for many instances; `contexts` is n x d, `costs` n or one.

    None: accuracy minus cost.
    """
    accuracy = np.asarray(accuracies, np.float64)
    cost = np.broadcast_to(np.asarray(costs, np.float64), accuracy.shape)
    if reward is None:
        return accuracy - cost
    if isinstance(reward, Reward):
        slope: Any = 1.0 + contexts @ np.array(reward.context) if reward.context else 1.0
        return np.asarray(
            reward.accuracy * accuracy**reward.power - reward.cost * cost * slope, np.float64
        )
    values = np.full(accuracy.shape, -np.inf)
    is_open = cost < np.inf  # an arm that cannot be reached is worth nothing, whatever it says
    columns = (column[is_open].tolist() for column in (accuracy, cost, contexts))
    values[is_open] = [
        reward.worth(share, paid, tuple(context))
        for share, paid, context in zip(*columns, strict=True)
    ]
    return values
