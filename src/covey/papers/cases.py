"""One replay of an experiment, described so that it can be named, kept and done again."""

import hashlib
from typing import Any, Literal

import msgspec

from covey.papers.functions import SLOTS

FUNCTIONS = 2  # of each learner
Arrivals = Literal["all", "first"]
Does = Literal["replay", "ensemble", "yardsticks", "boosting", "river", "bumps"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is played: whose functions, by which context, under which policy, and how."""

    trial: str
    context: str = "none"
    does: Does = "replay"
    policy: dict[str, Any] = {}
    seed: int = 0  # of coins, of noise, and of labels that are seen by chance
    slots: int = SLOTS
    learners: int = 4
    arrivals: Arrivals = "all"  # who receives the instances
    price: float = 0.0  # of asking any peer
    labels: float = 1.0  # share that is seen
    shown: Literal["data", "context"] = "data"  # to peers that are asked
    weights: Literal["global", "cell"] = "global"  # of an ensemble

    def key(self) -> str:
        """Return the name under which what came of it is kept."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:24]


def config(case: Case) -> dict[str, Any]:
    """Return the case as the configuration of a replay."""
    places = range(1, case.learners + 1)
    learners = [_learner(case, place, [str(k) for k in places if k != place]) for place in places]
    policy = {"seed": case.seed, **case.policy}
    if "history" in policy:  # kept figures are named after cases that have it here
        policy["reading"] = {"history": policy.pop("history")}
    # The default policy needs none, and is played as it is for who names nothing.
    if policy.get("preset") != "auto":
        policy["horizon"] = case.slots
    table: dict[str, Any] = {"policy": policy, "learner": learners}
    if case.does == "ensemble":
        table["ensemble"] = {"weights": case.weights, "base": 0}
    return table


def _learner(case: Case, place: int, others: list[str]) -> dict[str, Any]:
    prices = dict.fromkeys(others, case.price)
    # As the published figures have it, only the first learner misses labels.
    is_missing = place == 1 or case.policy.get("mode") != "paper"
    return {
        "name": str(place),
        "functions": [f"{place}.{k + 1}" for k in range(FUNCTIONS)],
        "arrivals": place == 1 or case.arrivals == "all",
        "label-probability": case.labels if is_missing else 1.0,
        "peers": prices if case.shown == "data" else {},
        "context-peers": prices if case.shown == "context" else {},
    }
