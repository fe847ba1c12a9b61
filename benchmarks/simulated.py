"""A policy in a world whose accuracies are known: drawing it, deciding in it, its regret."""

from functools import partial
from time import process_time

from figures import Figure, Row, Verdict, short
from timing import Timing, interleave

from covey.bandit.policies import CoS, PolicyRecord
from covey.replay.engine import ReplayEngine
from covey.simulation.environment import Environment
from covey.simulation.run import MOST_SLOTS, Oracle, log_of, network, play
from covey.simulation.world import World

NAME = "simulated"
TITLE = "A run of a 4 x 2 network in a world with known accuracies"
GOAL = 10e6  # learner-slots per second
STRETCHES = {"full": 15, "quick": 3}
ROUNDS = {"full": 20, "quick": 3}
WORLD = Environment(name="world", lipschitz=1.2)
POLICY = CoS(slices=12)
LEARNERS = 4
WHOLE = "a whole run, CoS, 12 slices"
METHOD = (
    f"CPU time per learner-slot in stretches of {MOST_SLOTS:,} slots: {LEARNERS} learners with 2 "
    "functions each, bumps, L = 1.2, one context, all learners get the same instance, no prices, "
    "every label comes at once, Z1. The whole run "
    "is `covey.simulation.run.play` with all that it does "
    "once; the parts are those of its last stretch."
)


def measure(effort: str) -> Figure:
    """Time a run and its parts."""
    slots = STRETCHES[effort] * MOST_SLOTS
    whole = interleave(ROUNDS[effort], {WHOLE: partial(run, slots, POLICY)})[WHOLE]
    timings = parts(STRETCHES[effort], ROUNDS[effort], POLICY)
    rate = LEARNERS * slots / whole.best
    rows = [_row(name, timing, MOST_SLOTS) for name, timing in timings.items()]
    verdict = Verdict(
        rate >= GOAL,
        f"a run plays {rate / 1e6:.1f} million learner-slots a second on one core, the world and "
        f"the regret included; the goal is at least {GOAL / 1e6:.0f} million.",
    )
    return Figure(NAME, TITLE, METHOD, [_row(WHOLE, whole, slots), *rows], [verdict])


def run(slots: int, policy: PolicyRecord) -> float:
    """Return the seconds of a whole run."""
    begin = process_time()
    play(WORLD, policy, seed=1, horizon=slots, checkpoints=[slots])
    return process_time() - begin


def parts(
    stretches: int, rounds: int, policy: PolicyRecord, length: int = MOST_SLOTS
) -> dict[str, Timing]:
    """Time the parts of a run, in stretches after so many others."""
    horizon = (stretches + rounds) * length
    world = World(WORLD, seed=1, horizon=horizon)
    setup = network(WORLD, policy)
    game = ReplayEngine(setup, setup.sites, 1, [0, 1])
    oracle = Oracle(WORLD, policy, played=setup, seed=1)
    for _ in range(stretches):
        game.play(log_of(world.draw(length), WORLD, setup))
    held = []

    def draw() -> float:
        begin = process_time()
        held[:] = [world.draw(length)]
        return process_time() - begin

    def decide() -> float:
        begin = process_time()
        held.append(game.play(log_of(held[0], WORLD, setup)))
        return process_time() - begin

    def judge() -> float:
        begin = process_time()
        oracle.judge(held[1], held[0], log_of(held[0], WORLD, setup)).sums()
        return process_time() - begin

    return interleave(
        rounds,
        {"drawing the world": draw, "the decisions": decide, "the regret and its causes": judge},
    )


def _row(name: str, timing: Timing, slots: int) -> Row:
    nanoseconds = 1e9 * timing.best / (LEARNERS * slots)
    rate = f"{short(LEARNERS * slots / timing.best / 1e6)} M learner-slots/s"
    return Row(name, nanoseconds, "ns", timing.over_best, None, rate)
