"""Links with learnt costs in a replay: prices, payments, and a slow reference loop."""

import itertools
from typing import Any

import numpy as np
import pytest

import covey
from covey import config
from covey.bandit.links import Change, Links
from support.presets import fitting

SITES = ("north", "south", "west")
SLOTS = 1_500
LINKS = [
    {"from": "north", "to": "south", "cost": 0.05},
    {"from": "north", "to": "west", "cost-column": "direct", "guess": 0.1},
    {"between": ["south", "west"], "cost-column": "detour"},
]
TOLLS = {("north", "west"): "direct", ("south", "west"): "detour", ("west", "south"): "detour"}


def table(**more: Any) -> dict[str, Any]:
    learners = [{"name": name, "functions": [f"{name}-f"]} for name in SITES]
    policy = {"preset": "cos", "slices": 2, "relearn-every": 40}
    return {"policy": policy, "learner": learners, "link": LINKS} | more


def stream(slots: int = SLOTS) -> dict[str, Any]:
    """Return a log on which west is worth asking; directly it costs more than by way of south."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, slots)
    is_right = rng.random((3, slots)) < np.array([[0.6], [0.55], [0.95]])
    return {
        "predictions": np.where(is_right, labels, 1 - labels),
        "labels": labels,
        "contexts": rng.random((slots, 1)),
        "at": [SITES[k] for k in rng.integers(0, 3, slots)],
        "columns": {
            "direct": (0.2 + 0.2 * rng.random(slots)).round(3),
            "detour": (0.2 * rng.random(slots)).round(3),
        },
    }


def rows_of(trace: covey.Trace) -> list[tuple[Any, ...]]:
    columns = trace.columns()
    return list(zip(*(columns[k] for k in ("phase", "arm", "function", "cost")), strict=True))


def told(network: covey.Network, links: Links) -> None:
    for asker, peer in itertools.permutations(SITES, 2):
        network.reprice(asker, peer, links.price(asker, peer))


def by_hand(
    given: dict[str, Any], *, every: int, changes: dict[int, float], **policy: Any
) -> list[tuple[Any, ...]]:
    """Decide slot by slot, by a network that is told what its links have been seen to cost."""
    everybody = [{"between": pair, "cost": 0.0} for pair in itertools.combinations(SITES, 2)]
    network = covey.Network(
        table(policy=fitting({"slices": 2, **policy}), link=everybody),
        functions={
            f"{name}-f": lambda slot, row=row: int(row[slot])
            for name, row in zip(SITES, given["predictions"], strict=True)
        },
        dimension=1,
    )
    learnt = [("north", "west", 0.1), ("south", "west", 0.0), ("west", "south", 0.0)]
    links = Links(SITES, [("north", "south", 0.05)], learnt=learnt)
    rows: list[tuple[Any, ...]] = []
    seen: list[tuple[tuple[str, str], float]] = []
    for k, name in enumerate(given["at"]):
        if k % every == 0:
            for link, cost in seen:
                links.learn({link: (cost, 1)})
            seen = []
        if k + 1 in changes:
            links.apply([Change(k + 1, "north", "south", changes[k + 1])])
        told(network, links)
        answer = network[name].predict(k, tuple(given["contexts"][k]), slot=k + 1)
        paid = 0.0
        path = links.path(name, answer.arm) if answer.arm in SITES else None
        for link in itertools.pairwise(path or ()):
            cost = given["columns"][TOLLS[link]][k] if link in TOLLS else links.cost(*link)
            paid += cost
            seen += [(link, cost)] if link in TOLLS else []
        rows.append((answer.phase, answer.arm, answer.function, pytest.approx(paid)))
        network[name].learn(answer.ticket, int(given["labels"][k]))
    return rows


@pytest.mark.parametrize("preset", ["cos", "dcza"])
@pytest.mark.parametrize("every", [1, 7, 40, 10_000])
def test_a_replay_pays_and_learns_like_a_network_driven_slot_by_slot(
    preset: str, every: int
) -> None:
    given = stream()
    changes = {300: 0.3, 901: 0.01}
    policy = fitting({"slices": 2, "preset": preset, "relearn-every": every})
    later = [
        {"slot": slot, "from": "north", "to": "south", "cost": cost}
        for slot, cost in changes.items()
    ]

    trace = covey.replay(table(policy=policy, **{"link-change": later}), **given)

    assert rows_of(trace) == by_hand(given, every=every, changes=changes, preset=preset)


def asks_directly(trace: covey.Trace, given: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the slots in which north asked west, and whether it paid the direct link then."""
    asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("west"))
    is_direct = np.abs(trace.cost - given["columns"]["direct"][trace.slot - 1]) < 1e-9
    return trace.slot[asks], is_direct[asks]


FREE_AT_FIRST = [
    LINKS[0],
    {"from": "north", "to": "west", "cost-column": "direct"},
    {"from": "south", "to": "west", "cost-column": "detour"},
]


def test_a_peer_with_a_high_initial_price_can_become_available() -> None:
    """West is out of north's reach until south has found out what its link to west costs."""
    links = [
        {"from": "north", "to": "south", "cost": 0.2},
        {"from": "south", "to": "west", "cost-column": "detour", "guess": 0.9},
    ]
    given = stream(3_000)
    trace = covey.replay(table(link=links), **given)
    asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("west"))

    assert config.load(table(link=links)).sites[0].costs == (0.0, 0.2, np.inf)
    assert not asks[trace.slot <= 40].any()
    assert asks[trace.slot > 1_500].sum() > 100


def test_learnt_link_costs_carry_over_between_epochs() -> None:
    given = stream(3_000)
    epochs = {"preset": "cos", "horizon": "doubling", "first-epoch": 500}
    policy = {"slices": 2, "relearn-every": 400, **epochs}
    slot, is_direct = asks_directly(
        covey.replay(table(link=FREE_AT_FIRST, policy=policy), **given), given
    )

    assert slot[-1] > 2_500
    assert is_direct.tolist() == (slot <= 400).tolist()


def test_random_costs_of_a_peer_add_to_its_path_cost() -> None:
    given = stream()
    given["columns"]["fee"] = np.full(SLOTS, 0.125)
    setup = table()
    setup["learner"][0]["cost-columns"] = {"west": "fee"}

    plain, dearer = covey.replay(table(), **given), covey.replay(setup, **given)
    first = np.flatnonzero(plain.arm != dearer.arm)[0]
    asks = (plain.learner == 0) & (plain.arm == plain.names["arm"].index("west"))

    assert asks[:first].any()
    assert dearer.cost[:first] == pytest.approx(plain.cost[:first] + 0.125 * asks[:first])


@pytest.mark.parametrize("data", [{}, {"missing": "unavailable"}])  # a loop for rare options
def test_alone_every_learner_is_charged_by_its_own_columns(data: dict[str, Any]) -> None:
    """What arms of others cost does not shift the columns when no peer is asked."""
    rng = np.random.default_rng(2)
    slots = 2_000
    labels = rng.integers(0, 2, slots)
    said = {f: np.where(rng.random(slots) < 0.8, labels, 1 - labels) for f in "abc"}
    worse = np.where(rng.random(slots) < 0.6, labels, 1 - labels)
    columns = {"label": labels, **said, "d": worse, "p": np.full(slots, 0.9)}
    columns |= {"q": np.full(slots, 0.4), "r": np.zeros(slots)}

    def learners(**asks: Any) -> list[dict[str, Any]]:
        north = {"name": "north", "functions": ["a", "b"], "peers": dict.fromkeys(asks, 0.0)}
        north["cost-columns"] = {"a": "q", **asks}
        south = {"name": "south", "functions": ["c", "d"], "peers": {}}
        return [north, {**south, "cost-columns": {"c": "q", "d": "r"}}]

    together, separate = (
        [learner.numbers.alone_percent for learner in covey.replay(setup, columns).outcome.learners]
        for setup in (
            {"data": data, "learner": learners(south="p")},
            {"data": data, "learner": learners()},
        )
    )

    assert together == separate
