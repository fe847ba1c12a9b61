"""Python names of 0.1.0 that have moved: they work for one release, with a warning."""

import importlib
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

MODULES = {  # old module -> new module, both below covey
    "accounts": "bandit.accounts",
    "backtest": "replay.replay",
    "baselines": "replay.baselines",
    "boosting": "replay.baselines",
    "bounds": "bandit.bounds",
    "classifiers": "functions.function",
    "comparison": "simulation.comparison",
    "contest": "replay.outcome",
    "contexts": "data.contexts",
    "encoding": "replay.encoding",
    "ensemble": "bandit.ensemble",
    "environments": "simulation.environment",
    "keys": "server.keys",
    "learner": "bandit.learner",
    "links": "bandit.links",
    "network": "node.network",
    "policies": "bandit.policies",
    "problems": "bandit.theorems",
    "regret": "simulation.run",
    "runs": "simulation.run",
    "scenario": "simulation.scenario",
    "simulation": "simulation.runner",
    "smoothness": "bandit.smoothness",
    "sources": "functions",
    "sources.registry": "functions.registry",
    "store": "node.store",
    "terminal": "report.text",
    "theorems": "bandit.theorems",
    "tls": "server.keys",
    "tokens": "server.tokens",
    "traces": "data.logs",
    "updates": "bandit.ensemble",
    "worlds": "simulation.world",
}
NAMES = {  # names that have also changed, or that have left a module which is still there
    "accounts.settle": "replay.outcome.accounts_of",
    "accounts.system": "bandit.accounts.system_utility",
    "classifiers.as_label": "data.inputs.as_label",
    "classifiers.fresh": "functions.function.untrained",
    "contest.Contest": "replay.outcome.BaselineRun",
    "encoding.Log": "data.logs.EncodedLog",
    "types.Guess": "replay.baselines.BaselineAnswer",
    "types.LearnerOutcome": "replay.outcome.LearnerOutcome",
    "types.Outcome": "replay.outcome.Outcome",
    "types.Timeline": "replay.outcome.Timeline",
}


def attribute_of(old: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that finds the names which `covey.<old>` once had."""

    def __getattr__(name: str) -> Any:  # noqa: N807 - Python looks up this name in modules
        new = NAMES.get(f"{old}.{name}") or f"{MODULES.get(old, old)}.{name}"
        module, _, now = new.rpartition(".")
        if name.startswith("__") or (module == old and now == name):
            raise AttributeError(f"module 'covey.{old}' has no attribute {name!r}")
        found = getattr(importlib.import_module(f"covey.{module}"), now)
        warnings.warn(
            f"covey.{old}.{name} is now covey.{new}; the old name goes with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        return found

    return __getattr__


def register() -> None:
    """Let `covey.<old module>` be imported; the new module is imported once a name is used."""
    for old in MODULES.keys() - {"simulation"}:  # a package now, which looks here itself
        stub = ModuleType(f"covey.{old}", "Moved.")
        stub.__getattr__ = attribute_of(old)  # type: ignore[method-assign] # one per module
        if old == "sources":
            stub.__path__ = []
        sys.modules[f"covey.{old}"] = stub
