"""Every key of `[policy]` with every policy: it changes what is decided, or it is refused."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

import covey
from covey.bandit.policies import PRESETS, RECORDS, keys_of, policy_from
from covey.errors import ConfigError, CoveyError
from golden.configurations import TABLES, Table, config_of, log_of

OWN = "support.own_policies:CellUCB"
POLICIES = (*PRESETS, OWN)
EVERY_KEY = sorted({key for record in RECORDS.values() for key in keys_of(record)})
THRESHOLDS = ["explore", "train", "explore-peers"]
OFTEN = {"scale": 2.0, "power": 0.3}
THEOREM = {"parameters": "theorem"}


class Witness(NamedTuple):
    """A value of a key, and where it matters."""

    value: Any
    network: Mapping[str, Any] = {}  # an extension of the golden configuration
    beside: Mapping[str, Any] = {}  # keys that it needs
    drop: Sequence[str] = ()  # keys of the golden policies that would hide it
    more: Mapping[str, Any] = {}  # keys that need it


LATE: Table = {"data": {"delay": "late"}}
HELPED = TABLES["extensions"]
WITNESSES: dict[str, Witness] = {
    "seed": Witness(3, HELPED["labels by chance"] | {"policy": {}}),
    "label-wait": Witness(5, LATE),
    "pending": Witness(True, LATE),
    "reward": Witness({"cost": 8.0}),
    "harm": Witness({"points": 25.0, "confidence": 0.6}),
    "carry-serving-costs": Witness(True, HELPED["serving costs"] | {"policy": {}}),
    "relearn-every": Witness(30, HELPED["learnt costs of links"] | {"policy": {}}),
    "max-cells": Witness(1),
    "slices": Witness(3, drop=["slices"]),
    "index-scale": Witness(8.0),
    "alarm": Witness(0.5, HELPED["every row at all sites"]),
    "reading": Witness("paper"),
    "count": Witness("labelled", {"data": {"revealed": "seen"}}),
    "history": Witness("predictions", HELPED["context-only peers"]),
    "unlabelled": Witness("accuracy", HELPED["a learner without labels"]),
    "batch": Witness("slot", HELPED["batches"]),
    "parameters": Witness("z2", drop=THRESHOLDS),
    "horizon": Witness("doubling", drop=["slices"], more={"first-epoch": 32}),
    "first-epoch": Witness(32, beside={"horizon": "doubling"}, drop=["slices"]),
    "alpha": Witness(0.3, beside=THEOREM, drop=THRESHOLDS),
    "most-functions": Witness(1, beside=THEOREM | {"alpha": 0.1}, drop=["train"]),
    "explore": Witness(OFTEN),
    "train": Witness(OFTEN),
    "explore-peers": Witness(OFTEN),
    "forget": Witness({"window": 4}),
    "split-scale": Witness(5.0, drop=["split-scale"]),
    "split-power": Witness(1.0, drop=["split-power"]),
    "max-level": Witness(0),
    "inherit": Witness(True),
    "policy": Witness("support.own_policies:EpsilonGreedy", drop=["options"]),
    "options": Witness({"scale": 5.0}, drop=["options"]),
}

DEFAULTS = {("auto", "pending"): False}  # where the value above is the default


def decided(config: Table) -> Any:
    """Return what a replay decides, or why it ends."""
    try:
        return covey.replay(config, log_of(config)).trace.columns()
    except CoveyError as error:
        return str(error)


@pytest.mark.parametrize("preset", POLICIES)
@pytest.mark.parametrize("key", WITNESSES)
def test_a_key_changes_what_is_decided_or_is_refused(key: str, preset: str) -> None:
    witness = WITNESSES[key]
    dropped = [*witness.network.get("drop", []), *witness.drop]
    config = config_of(preset, {**witness.network, "drop": dropped, "policy": witness.beside})
    value = DEFAULTS.get((preset, key), witness.value)
    given = {**config["policy"], key: value, **witness.more}
    if key == "policy":
        given["preset"] = "own"
    having = [name for name, record in RECORDS.items() if key in keys_of(record)]

    if preset.replace(OWN, "own") not in having:
        for table in ({"preset": preset}, {}) if preset == "auto" else ({"preset": preset},):
            with pytest.raises(ConfigError, match=rf"\[policy\] {key} is a key of .*{having[0]}"):
                policy_from({**table, key: value})
        return
    assert decided({**config, "policy": given}) != decided(config)


def test_every_key_is_tested() -> None:
    """What `check-claims` changes needs a peer that reports falsely: see `test_liars.py`."""
    assert sorted([*WITNESSES, "check-claims"]) == EVERY_KEY
