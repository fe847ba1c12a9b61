"""Regret equals that of a slow oracle in exact fractions."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bandit.policies import CoS
from covey.config import LearnerSpec
from covey.data.logs import ArmTable, DecisionColumns, EncodedLog, Trace
from covey.simulation.environment import Environment, Surface
from covey.simulation.run import CAUSES, Losses, Oracle, network
from covey.simulation.world import WorldChunk
from covey.types import Phase

UNIT = 2**22  # accuracies and costs are multiples of one part in so many
CELLS = ["g4:0", "g100:7", "z0:0", "z3:5", "z9:17"]
SIDES = [Fraction(1, 4), Fraction(1, 100), Fraction(1), Fraction(1, 8), Fraction(1, 512)]


def world_of(
    counts: Sequence[int], prices: Any, cost: float = 0.0, correlation: Any = "worst", **more: Any
) -> Environment:
    """Learners with so many functions; a price above 1 closes the way."""
    flat = Surface(at=(0.5, 0.5), high=0.5, low=0.5)
    return Environment(
        name="x",
        dimension=2,
        surfaces=tuple((flat,) * count for count in counts),
        function_costs=cost,
        learner=[
            {
                "name": f"learner-{k + 1}",
                "peers": {
                    f"learner-{j + 1}": price
                    for j, price in enumerate(own)
                    if j != k and price <= 1
                },
            }
            for k, own in enumerate(prices)
        ],
        correlation=correlation,
        **more,
    )


def owners(sites: Sequence[LearnerSpec]) -> list[int]:
    return [place for place, site in enumerate(sites) for _ in site.functions]


def trace_of(
    sites: Sequence[LearnerSpec], function: np.ndarray, phase: np.ndarray, cell: Any
) -> Trace:
    """A trace in which learner i (columns) used that function in that slot (rows)."""
    owner = np.array(owners(sites))
    receivers = [place for place, site in enumerate(sites) if site.receives]
    arm = np.where(owner[function] == receivers, function, len(owner) + owner[function])
    columns = [np.asarray(column).reshape(-1) for column in (cell, phase, arm, function)]
    decided = DecisionColumns(*columns, np.ones(function.size, np.int32))
    return Trace(
        decided,
        rows_of(len(function)),
        first_slot=1,
        arms=ArmTable.full(np.zeros((1, 1))),
        receivers=receivers,
        names={"cell": CELLS, "learner": [site.name for site in sites]},
    )


def rows_of(slots: int, streams: int = 1) -> EncodedLog:
    """Rows of which nothing but the number is looked at."""
    contexts = np.zeros(2 * slots * streams).data
    return EncodedLog(contexts, np.zeros((1, slots)).data, np.zeros(slots).data, None, None)


def judged(world: Environment, trace: Trace, accuracy: np.ndarray) -> Losses:
    """The losses of decisions in a world with these accuracies."""
    played = network(world, CoS())
    streams, _, slots = accuracy.shape
    chunk = WorldChunk(1, np.zeros((slots, streams, 2)), accuracy, accuracy, None, None)
    oracle = Oracle(world, CoS(), played=played, seed=1)
    return oracle.judge(trace, chunk, rows_of(slots, streams))


def cost_of(sites: Sequence[LearnerSpec], learner: int, function: int) -> Fraction | None:
    """What an answer costs, rounded as accuracies are; None: no peer to ask."""
    site, owner = sites[learner], owners(sites)[function]
    if owner == learner:
        cost = site.costs[0]
    elif owner in site.peers:
        cost = site.costs[len(site.functions) + site.peers.index(owner)]
    else:
        return None
    return Fraction(round(cost * UNIT), UNIT)


def slow(
    sites: Sequence[LearnerSpec],
    trace: Trace,
    accuracy: np.ndarray,
    smoothness: tuple[float, float],
) -> list[dict[str, Fraction]]:
    """Return what every decision lost for every cause, one after the other."""
    lost = []
    receivers = [place for place, site in enumerate(sites) if site.receives]
    of = owners(sites)
    for row in range(len(trace)):
        slot, learner = row // len(receivers), receivers[row % len(receivers)]
        known = [Fraction(float(a)) for a in accuracy[learner if len(accuracy) > 1 else 0, :, slot]]
        costs = [cost_of(sites, learner, k) for k in range(len(known))]
        worth = [a - c for a, c in zip(known, costs, strict=True) if c is not None]
        used, cell, phase = (int(c[row]) for c in (trace.function, trace.cell, trace.phase))
        paid = costs[used]
        assert paid is not None
        total = max(worth) - (known[used] - paid)
        causes = dict.fromkeys(CAUSES, Fraction(0))
        if phase != Phase.EXPLOIT:
            causes[CAUSES[phase]] = total
        else:
            own = of[used]
            rivals = [a for k, a in enumerate(known) if of[k] == own]
            by_helper = max(rivals) - known[used] if own != learner else Fraction(0)
            lipschitz, alpha = smoothness
            most = 2 * lipschitz * float(2**0.5 * SIDES[cell]) ** alpha
            causes["helper's mistake"] = by_helper
            rest = total - by_helper
            causes["near-optimal" if rest <= most else "wrong choice"] = rest
        lost.append(causes)
    return lost


Game = tuple[Environment, list[LearnerSpec], Trace, np.ndarray]


@st.composite
def played(draw: st.DrawFn) -> Game:
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    prices = rng.choice([0.0, 0.1, 0.35, 2.0], (len(counts), len(counts)))
    lipschitz, alpha = draw(st.sampled_from([(0.2, 1.0), (0.7, 0.5)]))
    world = world_of(
        counts,
        prices.tolist(),
        draw(st.sampled_from([0.0, 0.15])),
        draw(st.sampled_from(["worst", "best", "independent"])),
        lipschitz=lipschitz,
        alpha=alpha,
    )
    sites = [*network(world, CoS()).sites]
    slots = draw(st.integers(1, 30))
    shape = (world.streams, sum(counts), slots)
    accuracy = np.float32(rng.integers(0, UNIT + 1, shape) / UNIT)
    usable = [
        [k for k in range(sum(counts)) if cost_of(sites, learner, k) is not None]
        for learner in world.receiving
    ]
    function = np.array([[rng.choice(own) for own in usable] for _ in range(slots)])
    phase = rng.choice(draw(st.sampled_from([[0, 1, 2], [2]])), function.shape).astype(np.int8)
    cell = rng.integers(0, len(CELLS), function.shape)
    return world, sites, trace_of(sites, function, phase, cell), accuracy


@given(played())
def test_losses_causes_and_sums_are_those_of_the_reference_oracle(game: Game) -> None:
    world, sites, trace, accuracy = game
    losses = judged(world, trace, accuracy)
    expected = slow(sites, trace, accuracy, (world.lipschitz, world.alpha))
    receivers = sum(site.receives for site in sites)

    for row, causes in enumerate(expected):
        own = {cause: lost for cause, lost in causes.items() if cause != "helper's mistake"}
        found = dict.fromkeys(own, Fraction(0))
        found[CAUSES[losses.cause[row]]] = Fraction(float(losses.itself[row]))
        assert found == own
        assert Fraction(float(losses.by_helper[row])) == causes["helper's mistake"]
    for learner, sums in enumerate(losses.sums().tolist()):
        totals = [sum(one[cause] for one in expected[learner::receivers]) for cause in CAUSES]
        assert [*map(Fraction, sums)] == totals


@given(played())
def test_the_oracle_itself_has_no_regret(
    game: Game,
) -> None:
    world, sites, _, accuracy = game
    receivers = sum(site.receives for site in sites)
    slots = accuracy.shape[2]
    function = np.zeros((slots, receivers), np.int64)
    for slot in range(slots):
        for learner in range(receivers):
            known = accuracy[learner if len(accuracy) > 1 else 0, :, slot]
            costs = [cost_of(sites, learner, k) for k in range(len(known))]
            worth = [
                -9 if cost is None else Fraction(float(height)) - cost
                for height, cost in zip(known, costs, strict=True)
            ]
            function[slot, learner] = int(np.argmax(np.array(worth, object)))
    phase = np.full(function.shape, Phase.EXPLOIT, np.int8)
    trace = trace_of(sites, function, phase, np.zeros(function.shape, np.int32))

    assert judged(world, trace, accuracy).sums().tolist() == [[0.0] * 5] * receivers


def one_decision(accuracy: list[float], function: int, cell: int, *, price: float) -> Losses:
    """A decision of the first of two learners, which have two functions each."""
    # With two dimensions of this steepness a cell varies as one of one dimension does.
    world = world_of([2, 2], [[0.0, price], [0.0, 0.0]], lipschitz=0.5**0.5)
    sites = network(world, CoS()).sites
    trace = trace_of(sites, np.array([[function]]), np.array([[2]]), np.array([[cell]]))
    return judged(world, trace, np.float32(accuracy).reshape(1, 4, 1))


def named(losses: Losses) -> dict[str, float]:
    sums = losses.sums().sum(axis=0).tolist()
    return {cause: lost for cause, lost in zip(CAUSES, sums, strict=True) if lost}


# In cell z3:5, whose side is 1/8, accuracies vary by 1/8 and two of them may seem 1/4 apart.
@pytest.mark.parametrize(
    ("accuracy", "function", "cell", "price", "expected"),
    [
        ([0.5, 0.75, 0.25, 0.5], 0, "z3:5", 0.0, {"near-optimal": 0.25}),
        ([0.5, 0.75, 0.25, 0.5], 0, "z9:17", 0.0, {"wrong choice": 0.25}),  # a finer one
        ([0.5, 0.75 + 1 / UNIT, 0.25, 0.5], 0, "z3:5", 0.0, {"wrong choice": 0.25 + 1 / UNIT}),
        ([0.5, 0.5, 0.875, 0.5], 1, "z3:5", 0.25, {"near-optimal": 0.125}),
        ([0.5, 0.5, 0.875, 0.5], 3, "z3:5", 0.25, {"helper's mistake": 0.375}),
        (
            *([0.5, 0.5, 0.625, 0.5], 3, "z3:5", 0.25),
            {"helper's mistake": 0.125, "near-optimal": 0.125},
        ),
        (
            *([1.0, 0.5, 0.625, 0.5], 3, "z3:5", 0.25),
            {"helper's mistake": 0.125, "wrong choice": 0.625},
        ),
    ],
)
def test_a_loss_is_split_by_hand_as_by_the_oracle(
    accuracy: list[float], function: int, cell: str, price: float, expected: dict[str, float]
) -> None:
    losses = one_decision(accuracy, function, CELLS.index(cell), price=price)

    assert named(losses) == expected
