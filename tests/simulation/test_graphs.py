"""Networks of many alike sites: who asks whom, their worlds, and what they take."""

from typing import Any

import numpy as np
import pytest

from covey.bandit.policies import Auto, CoS
from covey.errors import ConfigError
from covey.replay.engine import start
from covey.simulation import scenario
from covey.simulation.environment import environment_from
from covey.simulation.graphs import graph_of
from covey.simulation.oracle import Oracle
from covey.simulation.run import log_of, network, play
from covey.simulation.values import oracle_of
from covey.simulation.world import World

KINDS = ("random", "ring", "small-world")
STREAMS = ("independent", "best")
SLOTS = 60
SITES = 12


def world_of(sites: int = SITES, *, correlation: str = "independent", **keys: Any) -> Any:
    topology = {"peers-each": 3, **keys.pop("topology", {})}
    table = {"name": "g", "learners": sites, "correlation": correlation, "prices": 0.05}
    return environment_from({**table, "topology": topology, **keys})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sites", [4, 5, 300])
def test_every_site_asks_as_many_others_and_none_twice(kind: str, sites: int) -> None:
    graph = graph_of(world_of(sites, topology={"kind": kind}))

    assert graph.members.shape == (sites, 4)
    assert (np.diff(graph.members, axis=1) > 0).all()
    assert (graph.members[np.arange(sites), graph.own] == np.arange(sites)).all()


def test_a_site_of_a_ring_asks_its_nearest_neighbours() -> None:
    graph = graph_of(world_of(10, topology={"kind": "ring"}))

    assert graph.members[5].tolist() == [4, 5, 6, 7]


def test_a_small_world_is_a_ring_with_some_other_links() -> None:
    ring, small = (
        graph_of(world_of(400, topology={"kind": kind})).members for kind in ("ring", "small-world")
    )
    kept = sum(len(set(a) & set(b)) - 1 for a, b in zip(ring.tolist(), small.tolist(), strict=True))

    assert 0.85 <= kept / (3 * 400) <= 0.95


@pytest.mark.parametrize("correlation", STREAMS)
@pytest.mark.parametrize("shape", ["bumps", "ramps", "steps"])
def test_chunks_of_any_length_give_the_same_world(correlation: str, shape: str) -> None:
    environment = world_of(correlation=correlation, shape=shape, dimension=2, functions=3)
    whole = World(environment, seed=5, horizon=SLOTS).draw(SLOTS)
    world = World(environment, seed=5, horizon=SLOTS)
    parts = [world.draw(slots) for slots in (1, 17, 42)]

    assert (np.concatenate([part.points for part in parts]) == whole.points).all()
    for name in ("accuracy", "right"):
        joined = np.concatenate([getattr(part, name) for part in parts], axis=2)
        assert (joined == getattr(whole, name)).all()


@pytest.mark.parametrize("correlation", STREAMS)
def test_answers_are_right_with_their_accuracies(correlation: str) -> None:
    environment = world_of(correlation=correlation, alpha=0.5, lipschitz=0.8)
    drawn = World(environment, seed=5, horizon=4_000).draw(4_000)
    errors = drawn.right.mean(axis=2) - drawn.accuracy.mean(axis=2)

    # 5 standard deviations of the mean of 4,000 draws, each at most 1/2
    assert np.abs(errors).max() < 5 * 0.5 / np.sqrt(4_000)
    assert ((drawn.accuracy >= 0.3 - 1e-6) & (drawn.accuracy <= 0.95)).all()


def test_a_function_has_one_surface_for_all_sites_that_reach_it() -> None:
    graph = graph_of(world_of())
    drawn = World(world_of(), seed=5, horizon=SLOTS).draw(SLOTS)
    alone = world_of(correlation="best")
    shared = World(alone, seed=5, horizon=SLOTS).draw(SLOTS)
    nearest = [np.abs(drawn.points[:, k, 0] - shared.points[:, 0, 0]) < 0.01 for k in range(SITES)]
    site, slot = np.nonzero(nearest)
    own = graph.own[site]

    assert len(site) > 3
    for function in range(2):
        here = drawn.accuracy[site, 2 * own + function, slot]
        there = shared.accuracy[0, 2 * site + function, slot]
        assert np.abs(here - there).max() <= 0.01 + 1e-6  # lipschitz is 1


@pytest.mark.parametrize("correlation", STREAMS)
@pytest.mark.parametrize("policy", [CoS(slices=2, parameters="z1"), Auto()])
def test_a_graph_plays_as_the_same_sites_in_a_log_of_all_answers(
    correlation: str, policy: Any
) -> None:
    """Give every site the answers of all functions, as other networks have them."""
    environment = world_of(correlation=correlation)
    setup, graph = network(environment, policy), graph_of(environment)
    drawn = World(environment, seed=2, horizon=SLOTS).draw(SLOTS)
    log = log_of(drawn)
    listed = tuple(site._replace(answers=()) for site in setup.sites)
    everything = np.full((SITES, 2 * SITES, SLOTS), -1, np.int32)
    reached = (2 * graph.members[:, :, None] + np.arange(2)).reshape(SITES, -1)
    if correlation == "independent":
        everything[np.arange(SITES)[:, None], reached] = drawn.right
        everything = everything.reshape(-1, SLOTS)
    else:
        everything = drawn.right[0]

    sparse = start(setup, setup.sites, 1, environment.labels).play(log)
    dense = start(setup, listed, 1, environment.labels).play(
        log._replace(predictions=everything.data)
    )
    assert sparse.columns() == dense.columns()


@pytest.mark.parametrize("correlation", STREAMS)
def test_the_loop_for_plain_rows_decides_as_the_one_for_all_options(correlation: str) -> None:
    environment = world_of(correlation=correlation)
    setup = network(environment, CoS(slices=2, parameters="z1"))
    log = log_of(World(environment, seed=2, horizon=SLOTS).draw(SLOTS))
    at_once = log._replace(delays=np.zeros(SLOTS, np.int64).data)
    plain, general = (
        start(setup, setup.sites, 1, environment.labels).play(rows) for rows in (log, at_once)
    )

    assert plain.columns() == general.columns()


@pytest.mark.parametrize("costs", [0.0, 0.02])
def test_the_oracle_of_a_graph_judges_as_the_one_of_listed_sites(costs: float) -> None:
    environment = world_of(correlation="best", **{"function-costs": costs})
    policy = CoS(slices=2, parameters="z1")
    setup = network(environment, policy)
    chunk = World(environment, seed=2, horizon=SLOTS).draw(SLOTS)
    log = log_of(chunk)
    trace = start(setup, setup.sites, 1, environment.labels).play(log)
    listed = Oracle(setup.sites, lipschitz=1.0, alpha=1.0, dimension=1).judge(trace, chunk, log)
    found = oracle_of(environment, policy, setup, seed=2).judge(trace, chunk, log)

    assert np.allclose(found.sums(), listed.sums(), rtol=0, atol=1e-9)
    assert (found.cause == listed.cause).all()
    assert found.paid == pytest.approx(listed.paid)


def test_a_site_with_its_own_stream_loses_what_its_members_would_have_gained() -> None:
    environment = world_of(prices=0.0)
    policy = CoS(slices=2, parameters="z1")
    setup = network(environment, policy)
    chunk = World(environment, seed=2, horizon=SLOTS).draw(SLOTS)
    log = log_of(chunk)
    trace = start(setup, setup.sites, 1, environment.labels).play(log)
    lost = oracle_of(environment, policy, setup, seed=2).judge(trace, chunk, log)
    rows = trace._arms.rows(trace.learner, trace.arm, trace.function)
    answered = chunk.accuracy.reshape(-1, SLOTS)[rows, trace.row]
    best = chunk.accuracy.max(axis=1)[trace.learner, trace.row]

    assert np.array_equal(lost.itself + lost.by_helper, best - answered)


def test_a_run_does_not_depend_on_the_length_of_its_chunks(monkeypatch: Any) -> None:
    environment, policy = world_of(), CoS(slices=2, parameters="z1")
    options: Any = {"seed": 1, "horizon": SLOTS, "checkpoints": [20, SLOTS]}
    whole = play(environment, policy, **options)
    monkeypatch.setattr("covey.simulation.run._MUCH", 1)
    monkeypatch.setattr("covey.simulation.run._MOST_ANSWERS", 1)
    slotwise = play(environment, policy, **options)

    assert slotwise.regret == whole.regret
    assert (slotwise.errors, slotwise.messages) == (whole.errors, whole.messages)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"drift": {"severity": 0.1, "every-slots": 9}}, "drift cannot be combined with topology"),
        ({"learner": [{"name": "learner-1"}]}, "learner cannot be combined with topology"),
        ({"prices": [[0.0] * 12] * 12}, "prices must be one number for all sites"),
        ({"correlation": "worst"}, 'correlation = "best" or "independent"'),
        ({"topology": {"peers-each": 12}}, "topology.peers-each is 12; it must lie from 1 to 11"),
    ],
)
def test_what_alike_sites_cannot_have_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        world_of(**keys)


def test_many_learners_need_a_topology() -> None:
    with pytest.raises(ConfigError, match=r"add topology = \{ peers-each = 3 \}"):
        environment_from({"name": "g", "learners": 1_001})


def test_the_results_of_a_scenario_do_not_grow_with_the_sites() -> None:
    table = {"name": "g", "learners": 500, "topology": {"peers-each": 3}, "correlation": "best"}
    loaded = scenario.load(
        {
            "scenario": {"horizon-slots": 20, "seeds": 1, "checkpoints": [20]},
            "policy": [{"name": "CoS", "preset": "cos", "slices": 4}],
            "environment": [table],
        }
    )

    assert loaded.descriptions()["g"].count("learner-") == 0
    assert loaded.titles()["CoS"].startswith("CoS")
