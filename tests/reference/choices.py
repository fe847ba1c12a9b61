"""Regret of a network in a known world, decision by decision, by the simplest code."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from covey.data.logs import Trace

Learner = Mapping[str, Any]  # a `[[learner]]` table of a replay


class Choice(NamedTuple):
    """An arm of a learner in a slot."""

    learner: int
    arm: str
    slot: int  # from 0
    accuracy: float
    cost: float


Worth = Callable[[Choice], float]


def plain(choice: Choice) -> float:
    """Accuracy less cost."""
    return choice.accuracy - choice.cost


class World(NamedTuple):
    """What is known: accuracies by stream, function and slot, and the learners' tables."""

    learners: Sequence[Learner]
    accuracy: np.ndarray
    usual: float = 0.0  # accuracy of the best label by the context alone
    late: Mapping[tuple[str, str], float] = {}  # asker and peer -> probability of a late answer

    def functions(self) -> list[tuple[int, str]]:
        """Owner and name of every function."""
        return [
            (place, name)
            for place, learner in enumerate(self.learners)
            for name in learner["functions"]
        ]

    def known(self, learner: int, function: int, slot: int) -> float:
        stream = learner if len(self.accuracy) > 1 else 0
        return float(self.accuracy[stream, function, slot])

    def best(self, learner: int, owner: int, slot: int) -> float:
        """The accuracy of the best function of `owner` on an instance of `learner`."""
        return max(
            self.known(learner, k, slot)
            for k, (who, _) in enumerate(self.functions())
            if who == owner
        )

    def choices(self, learner: int, slot: int) -> list[Choice]:
        """All arms at their best."""
        table, found = self.learners[learner], []
        costs = table.get("function-costs", [0.0] * len(table["functions"]))
        for k, (owner, name) in enumerate(self.functions()):
            if owner == learner:
                cost = costs[table["functions"].index(name)]
                found.append(Choice(learner, name, slot, self.known(learner, k, slot), cost))
        for place, other in enumerate(self.learners):
            name = other["name"]
            if name in table.get("peers", {}):
                late = self.late.get((table["name"], name), 0.0)
                mean = (1 - late) * self.best(learner, place, slot)
                mean += late * self.best(learner, learner, slot)
                found.append(Choice(learner, name, slot, mean, table["peers"][name]))
            if name in table.get("context-peers", {}):
                price = table["context-peers"][name]
                found.append(Choice(learner, f"{name} (context)", slot, self.usual, price))
        return found


def regret(
    world: World,
    trace: Trace,
    worth: Worth = plain,
    *,
    remembered: Callable[[int, Any], float] = lambda slot, label: 0.0,
) -> np.ndarray:
    """What each decision of the trace lost against the best arm.

    `remembered` is the accuracy of an answer from stored labels, by slot and answered label.
    """
    columns = trace.columns()
    names = [name for _, name in world.functions()]
    places = {learner["name"]: k for k, learner in enumerate(world.learners)}
    lost = []
    for row, slot in enumerate(trace.row.tolist()):  # a batch may share a slot, but not its rows
        learner = places[columns["learner"][row]]
        choices = {choice.arm: choice for choice in world.choices(learner, slot)}
        used, function = choices[columns["arm"][row]], columns["function"][row]
        if function in names:
            answered = world.known(learner, names.index(function), slot)
        else:
            answered = remembered(slot, columns["prediction"][row])
        gained = worth(used._replace(accuracy=answered))
        lost.append(max(map(worth, choices.values())) - gained)
    return np.array(lost)
