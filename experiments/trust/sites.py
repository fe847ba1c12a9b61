"""A site that is asked by three others, in a simulated world: what it loses by the trust it has."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from covey.bandit.learner import Learner
from covey.bandit.policies import policy_from
from covey.kernel import row_of
from covey.kernel.rules import Cell
from covey.network.local_site import run
from covey.site.handler import Handler
from covey.site.requests import OWN, Loaded, SourceState
from covey.site.state import loaded_state
from covey.site.trust import Trust

FUNCTIONS = ("f", "g", "h")
COSTS = (0.0, 0.02, 0.04)
SOURCES = ("south", "east", "west")
LIAR = "west"
BEFORE, WITHIN = (0.375,), (0.25, 0.625)
PATIENCE = 1_000  # labels for which a patient liar is honest
COMMITTED = 50  # slots
TURN = 100  # labels after which a liar in turns changes


class Scene(NamedTuple):
    """What happens in a run."""

    lie: "Lie | None" = None  # None: all sources are honest
    is_shifted: bool = False  # instances of the sources differ from those of the site
    changes: tuple[float, ...] = ()  # shares of the run after which the accuracies are others
    rows: int = 1  # of the liar in a slot
    is_labelled: bool = True  # the liar sends labels


class Row(NamedTuple):
    """An instance: its true label, the answers of the functions, and their accuracies."""

    truth: int
    answers: tuple[int, ...]
    accuracies: tuple[float, ...]


class Lie(NamedTuple):
    """How a liar labels the answer of a function."""

    name: str
    label: Callable[[Row, int, int, np.random.Generator], int]  # function, labels so far


def _best(row: Row) -> int:
    return max(range(len(FUNCTIONS)), key=row.accuracies.__getitem__)


def _worst(row: Row) -> int:
    return min(range(len(FUNCTIONS)), key=row.accuracies.__getitem__)


def _turns_the_best(row: Row, function: int, sent: int, rng: np.random.Generator) -> int:
    """Let the worst function look right, and all others wrong."""
    answer = row.answers[function]
    return answer if function == _worst(row) else 1 - answer


def _slanders(row: Row, function: int, sent: int, rng: np.random.Generator) -> int:
    return 1 - row.answers[function] if function == _best(row) else row.truth


def _praises(row: Row, function: int, sent: int, rng: np.random.Generator) -> int:
    return row.answers[function] if function == _worst(row) else row.truth


def _is_patient(row: Row, function: int, sent: int, rng: np.random.Generator) -> int:
    return row.truth if sent < PATIENCE else _turns_the_best(row, function, sent, rng)


def _takes_turns(row: Row, function: int, sent: int, rng: np.random.Generator) -> int:
    is_honest = sent // TURN % 2 == 0
    return row.truth if is_honest else _turns_the_best(row, function, sent, rng)


BEST_WRONG = Lie("the worst function right, all others wrong", _turns_the_best)
LIES = (
    BEST_WRONG,
    Lie("every label false", lambda row, function, sent, rng: 1 - row.truth),
    Lie("always the same label", lambda row, function, sent, rng: 0),
    Lie("random labels", lambda row, function, sent, rng: int(rng.integers(2))),
    Lie("the best function wrong", _slanders),
    Lie("the worst function right", _praises),
    Lie(f"honest for {PATIENCE:,} labels, then as the first", _is_patient),
    Lie(f"{TURN} honest labels and {TURN} false ones in turn", _takes_turns),
)
HONEST = {
    "honest": Scene(),
    "honest, other instances in the cells": Scene(is_shifted=True),
    "honest, after a change of the accuracies": Scene(changes=BEFORE),
    "honest, both": Scene(is_shifted=True, changes=BEFORE),
}
# Here the change itself lies in the half that is measured: how soon it is seen matters, too.
CHANGING = {"honest, a change in the last half": Scene(changes=WITHIN)}
FALSE = {
    **{lie.name: Scene(lie) for lie in LIES},
    "as the first, four rows in each slot": Scene(BEST_WRONG, rows=4),
    "asks four rows in each slot and sends no labels": Scene(BEST_WRONG, rows=4, is_labelled=False),
    "as the first, after a change of the accuracies": Scene(BEST_WRONG, changes=BEFORE),
}


class World:
    """Contexts, instances, and the accuracies of the functions; one for each seed."""

    def __init__(self, seed: int, scene: Scene, slots: int) -> None:
        self._rng = np.random.default_rng([seed, 1])
        self._phases = self._rng.random((3, len(FUNCTIONS)))  # before and after each change
        self._scene = scene
        self._slots = slots

    def accuracies(self, context: float, slot: int, shift: float) -> tuple[float, ...]:
        era = sum(slot > share * self._slots for share in self._scene.changes)
        waves = (math.sin(2 * math.pi * (context + phase)) for phase in self._phases[era])
        return tuple(min(0.97, max(0.3, 0.7 + shift + 0.25 * wave)) for wave in waves)


class Stream:
    """The instances of the site or of one source; the same whatever the trust is."""

    def __init__(self, world: World, seed: int, place: int, scene: Scene) -> None:
        self._world = world
        self._rng = np.random.default_rng([seed, 2, place])
        is_other = scene.is_shifted and place > 0
        # Within a cell: more of its upper part, and instances that are harder or easier.
        self._power = (1.0, 0.8, 1.25, 0.7)[place] if is_other else 1.0
        self._shift = (0.0, -0.05, 0.04, -0.03)[place] if is_other else 0.0

    def draw(self, slot: int) -> tuple[float, Row]:
        rng = self._rng
        context = float(rng.random() ** self._power)
        truth = int(rng.integers(2))
        accuracies = self._world.accuracies(context, slot, self._shift)
        right = rng.random(len(accuracies)) < accuracies
        answers = tuple(truth if one else 1 - truth for one in right)
        return context, Row(truth, answers, accuracies)


class AskedSite:
    """A site with a state and a handler, and no store; functions answer from the instance."""

    trainable = ()

    def __init__(self, policy: Mapping[str, Any], trust: Trust) -> None:
        made = policy_from(dict(policy)).resolve(dimension=1, most_functions=len(FUNCTIONS))
        self.learner = Learner(
            "north", functions=FUNCTIONS, peers=(), costs=COSTS, policy=made, position=0
        )
        loaded = Loaded({SourceState: [SourceState(OWN, 0)]})
        self.state = loaded_state(self.learner, loaded, dict.fromkeys(SOURCES, trust))
        self._handler = Handler(self.state, (), self)

    def answer(self, row: Row, context: float, slot: int) -> int:
        """Answer an own row, take its label, and return the function that was chosen."""
        request = run(self._handler.answer([row], [(context,)], slot=slot, id=f"{slot}"))
        function = self.learner.choice(request.group(0).code).function
        self.learn(request, row.truth)
        return function

    def assist(self, source: str, row: Row, cell: Cell, slot: int, id_: str) -> Any:
        """Answer a row of a source; return the request."""
        return run(self._handler.assist([row], [cell], [slot], source=source, ids=[id_]))

    def learn(self, request: Any, label: int) -> None:
        """Take a label."""
        self.state.check(request, {0: label})
        self.state.settle(request, {0: label})

    def commit(self) -> None:
        """Forget what a store would have."""
        commit = self.state.take()
        if commit is not None:
            self.state.is_written(commit)

    # -- what the handler needs -----------------------------------------------------------------

    def unavailable(self) -> None:
        return None

    async def run(self, function: int, rows: Sequence[Row], *, is_served: bool = False) -> Any:
        return [row.answers[function] for row in rows]

    async def together(self, calls: Sequence[Awaitable[Any]]) -> list[Any]:
        return [await call for call in calls]


class Asker:
    """A source: it asks in its own cells, which are split as it goes."""

    def __init__(self, name: str, policy: Mapping[str, Any], stream: Stream) -> None:
        self.name = name
        made = policy_from(dict(policy)).resolve(dimension=1, most_functions=len(FUNCTIONS))
        self._own = Learner(name, functions=("own",), peers=(), costs=(0.0,), policy=made)
        self._stream = stream
        self._slot = 0
        self.sent = 0

    def ask(self, site: AskedSite, slot: int, lie: Lie | None, rng: np.random.Generator) -> Any:
        """Ask one row and return a function that sends its label."""
        self._slot += 1
        context, row = self._stream.draw(slot)
        code = self._own.decide((context,), self._slot)
        cell = self._own.known_cell("", row_of(code))
        request = site.assist(self.name, row, cell, self._slot, f"{self._slot}")
        function = site.learner.choice(request.group(0).code).function
        label = row.truth if lie is None else lie.label(row, function, self.sent, rng)

        def send() -> None:
            self.sent += 1
            site.learn(request, label)

        return send


class Played(NamedTuple):
    """What a run had."""

    loss: float  # error and cost of own rows, over the last half
    parted: dict[str, int]  # sources, and how often they were parted
    at_end: list[str]  # sources that were parted in the end
    alarms: int  # of the change detection


def play(
    scene: Scene, trust: Trust, seed: int, slots: int, policy: Mapping[str, Any] | None = None
) -> Played:
    """Play one site and three sources; the first half is for learning."""
    policy = {"preset": "auto"} if policy is None else policy
    world = World(seed, scene, slots)
    site = AskedSite(policy, trust)
    own = Stream(world, seed, 0, scene)
    askers = [
        Asker(name, policy, Stream(world, seed, place, scene))
        for place, name in enumerate(SOURCES, 1)
    ]
    rng, earned = np.random.default_rng([seed, 3]), site.state.sources.earned
    lost, parted = 0.0, dict.fromkeys(SOURCES, 0)
    if trust == "isolated":
        askers = []  # they change nothing for the site: tests/node/test_trust.py
    for slot in range(1, slots + 1):
        context, row = own.draw(slot)
        function = site.answer(row, context, slot)
        if slot > slots // 2:
            lost += 1 - row.accuracies[function] + COSTS[function]
        for asker in askers:
            lie = scene.lie if asker.name == LIAR else None
            for _ in range(1 if lie is None else scene.rows):
                send = asker.ask(site, slot, lie, rng)
                if lie is None or scene.is_labelled:
                    send()
        if slot % COMMITTED == 0:
            site.commit()
        if earned is not None:
            for one in earned.turned:
                parted[one.source] += one.state == "parted"
            earned.turned.clear()
    states = [] if earned is None else earned.states()
    at_end = [one.source for one in states if one.state == "parted"]
    return Played(lost / (slots - slots // 2), parted, at_end, site.learner.alarm_count)
