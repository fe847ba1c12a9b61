"""Rules of the paper's tables for which covey has no setting.

A greedy helper answers with its most accurate function at once, and so keeps its first choice. A
peer that locks in and sees the context only stores a label if its own answer was right.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from covey.bandit.policies import Policy
from covey.config import NetworkConfig
from covey.kernel.history import History
from covey.kernel.rules import Rule


class AskedHistory(History):
    """Only labels that its own answers got right, beginning with the first label of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen = 0

    def take_own(self, row: int, label: Any, answer: Any) -> None:
        """Store nothing."""

    def take(self, row: int, label: Any, answer: Any) -> None:
        """Store the label if it is the answer that was given."""
        leader, _, _ = self.recall(row)
        if label == (leader or 0):
            super().take(row, label, answer)


GREEDY = {"explores_to_help": False}
LOCKED_IN = {"history": AskedHistory}


def varied(setup: NetworkConfig, changes: Mapping[str, Any]) -> NetworkConfig:
    """Return the configuration with other fields in the rule of every learner."""

    class VariedPolicy(Policy):
        def rule(self, **site: Any) -> Rule:
            return msgspec.structs.replace(super().rule(**site), **changes)

    class VariedConfig(NetworkConfig):
        def policy(self, dimension: int) -> Policy:
            return VariedPolicy(*super().policy(dimension))

    return VariedConfig(*setup)
