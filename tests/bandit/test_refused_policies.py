"""Policies, links and ensembles that cannot be used are refused with what to do."""

from typing import Any

import pytest

from covey.bandit.bounds import Problem
from covey.bandit.ensemble import Ensemble, weighing_from
from covey.bandit.policies import policy_from
from covey.config import load
from support.refusals import refusals, refuses

LEARNERS = [{"name": name, "functions": [f"{name}-f"]} for name in ("north", "south", "west")]
LINKS = [  # that changes are about
    {"from": "north", "to": "south", "cost": 0.5},
    {"from": "south", "to": "north", "cost": "gone"},
    {"from": "west", "to": "north", "cost-column": "toll"},
]
CLASSES = ["normal", "attack", "probe"]


def _policy(policy: dict[str, Any]) -> None:
    policy_from(policy).resolve(dimension=1, most_functions=2)


DOORS = {
    "policy": _policy,
    "problem": lambda problem: Problem(**problem),
    "ensemble": weighing_from,
    "arguments": lambda arguments: Ensemble(**{"learners": ["north", "south"], **arguments}),
    "votes": lambda votes: Ensemble(["north", "south", "west"], classes=CLASSES).vote(votes),
    "links": lambda **tables: load(
        {"learner": LEARNERS, **{key.replace("_", "-"): table for key, table in tables.items()}}
    ),
    "link": lambda link: load({"learner": LEARNERS, "link": link}),
    "change": lambda change: load({"learner": LEARNERS, "link": LINKS, "link-change": change}),
}


@pytest.mark.parametrize(("door", "given", "says"), refusals(__file__))
def test_what_cannot_be_used_is_refused(door: str, given: dict[str, Any], says: list[str]) -> None:
    refuses(DOORS, door, given, says)
