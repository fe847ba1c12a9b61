"""The `[policy]` table: settings, their ranges, and the readings of the paper."""

import math
from typing import Any, Literal

import msgspec

from covey import toml
from covey.errors import ConfigError
from covey.kernel.rules import Reward

COUNTS = ("arrivals", "labelled", "uses")


class Threshold(msgspec.Struct, frozen=True):
    """D(t) = scale * t ** power * ln t: an arm with at most D(t) labels needs exploration."""

    scale: float
    power: float

    def at(self, slot: float) -> float:
        """Return D(slot)."""
        return float(self.scale * slot**self.power * math.log(slot))

    def formula(self) -> str:
        """Return D(t) as text."""
        growth = f" t^{self.power:.4g}" if self.power else ""
        return f"{self.scale:g}{growth} ln t"


class Forget(msgspec.Struct, frozen=True):
    """Labels that estimates use: a window of the latest ones, or all with decaying weight."""

    window: int | None = None  # labels
    discount: float | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The `[policy.reading]` table: variants of the paper's pseudocode."""

    order: Literal["own-train-peers", "train-own-peers"] = "own-train-peers"
    helper: Literal["explore-first", "greedy"] = "explore-first"
    count: Literal["arrivals", "labelled", "uses"] = "arrivals"
    level_offset: Literal[0, 1] = 0
    ties: Literal["lowest", "random"] = "lowest"
    askers: Literal["all", "first"] = "all"
    hidden_from: Literal["all", "first"] = "all"
    history: Literal["labels", "asked", "predictions"] = "labels"  # of context peers
    queries: Literal["all", "one"] = "all"  # of untrained peers, per decision
    children: Literal["pooled", "averaged"] = "pooled"  # the estimates of a cell, with `inherit`
    unlabelled: Literal["net", "accuracy"] = "net"  # what learners without labels go by
    batch: Literal["slots", "slot"] = "slots"  # of a batch: one per row, or one in all


READINGS = {
    "spec": Reading(),
    "paper": Reading(
        order="train-own-peers",
        level_offset=1,
        askers="first",
        hidden_from="first",
        history="predictions",
        queries="one",
        children="averaged",
        unlabelled="accuracy",
        batch="slot",
    ),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The `[policy]` table; None means the default of the preset."""

    preset: str = "auto"  # or "module:Class" of a policy of one's own
    options: dict[str, Any] = {}  # for that
    mode: Literal["spec", "paper"] = "spec"
    parameters: Literal["z1", "z2", "theorem"] = "z1"
    slices: int | None = None
    horizon: int | Literal["doubling"] | None = None  # slots
    first_epoch: int = 1024  # slots, with horizon = "doubling"
    alpha: float | Literal["estimated"] = 1.0
    most_functions: int | None = None
    split_scale: float = 1.0
    split_power: float | None = None
    explore: Threshold | None = None
    train: Threshold | None = None
    explore_peers: Threshold | None = None
    reading: Reading = Reading()
    seed: int = 0
    pending: bool | None = None
    label_wait: int | None = None  # slots
    inherit: bool = False
    forget: Forget = Forget()
    reward: Reward | str | None = None  # or "module:function" of one of one's own
    carry_serving_costs: bool = False
    index_scale: float | None = None
    lipschitz: float = 0.25
    finest_level: int | None = None
    spread: float = 0.5
    alarm: float | None = None
    check_claims: bool | None = None  # None: in a node, and in simulations with false reports
    relearn_every: int = 100  # slots, when link costs are learnt
    max_level: int = 40
    max_cells: int = 5_000_000


def check_ranges(settings: Settings) -> None:
    """Raise `ConfigError` for the first value out of range."""
    for name in ("explore", "train", "explore_peers"):
        _check_threshold(f"[policy] {name.replace('_', '-')}", getattr(settings, name))
    _check_forget(settings.forget)
    toml.check_ranges(settings, _RANGES, where="[policy]")


_RANGES = {
    "horizon": (1, 2**53),
    "first_epoch": (1, 2**53),
    "alpha": (1e-3, 1),
    "most_functions": (1, 10**6),
    "split_scale": (1e-9, 1e18),
    "split_power": (0, 64),
    "seed": (0, 2**40),
    "label_wait": (0, 2**53),
    "index_scale": (1e-6, 1e6),
    "lipschitz": (1e-9, 1e9),
    "finest_level": (0, 30),
    "spread": (1e-6, 10),
    "alarm": (0, 1e6),
    "relearn_every": (1, 2**53),
    "max_level": (0, 52),
    "max_cells": (1, 2**31 - 2),
}


def _check_forget(forget: Forget) -> None:
    window, discount = forget.window, forget.discount
    if window is not None and discount is not None:
        raise ConfigError("[policy] forget has window and discount; remove one of them")
    if window is not None and not 1 <= window <= 10**6:
        raise ConfigError(f"[policy] forget.window is {window}; it must be 1 to 1000000 labels")
    if discount is not None and not 0 < discount <= 0.9999:
        raise ConfigError(f"[policy] forget.discount is {discount}; it must lie in (0, 0.9999]")


def _check_threshold(name: str, threshold: Threshold | None) -> None:
    if threshold is None:
        return
    if not 0 <= threshold.scale < math.inf:
        raise ConfigError(f"{name}.scale is {threshold.scale}; it must be 0 or more")
    if not 0 <= threshold.power < 1:
        raise ConfigError(f"{name}.power is {threshold.power}; it must lie in [0, 1)")
