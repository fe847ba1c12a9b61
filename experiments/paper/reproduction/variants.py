"""Rules of the paper's tables for which covey has no setting.

A greedy helper answers with its most accurate function at once, and so keeps its first choice. A
peer that locks in and sees the context only stores a label if its own answer was right.
"""

from typing import Any

import msgspec

from covey.bandit.policies import Policy
from covey.config import NetworkConfig
from covey.kernel.rules import Rule

GREEDY = {"explores_to_help": False}
LOCKED_IN = {"asked_only": True, "scores_predictions": False}


def varied(setup: NetworkConfig, changes: dict[str, bool]) -> NetworkConfig:
    """Return the configuration with other fields in the rule of every learner."""

    class VariedPolicy(Policy):
        def rule(self, **site: Any) -> Rule:
            return msgspec.structs.replace(super().rule(**site), **changes)

    class VariedConfig(NetworkConfig):
        def policy(self, dimension: int) -> Policy:
            return VariedPolicy(*super().policy(dimension))

    return VariedConfig(*setup)
