"""Peers that report falsely, and learners that check claims against own statistics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.policies import CoS, policy_from
from covey.kernel import Clock, Table, table_of
from covey.replay.engine import ReplayEngine
from covey.simulation.environment import environment_from
from covey.simulation.run import Run, log_of, network, play
from covey.simulation.world import World
from reference import Site, index
from support.presets import fitting

TRAIN, EXPLORE, EXPLOIT = range(3)


def wary_table(is_wary: bool) -> Table:
    """One own function and one peer, which is to be trained 1,000 ln t times."""
    policy = CoS(
        slices=1,
        explore={"scale": 0, "power": 0},
        train={"scale": 1000, "power": 0},
        explore_peers={"scale": 0, "power": 0},
        check_claims=is_wary,
    ).resolve(dimension=1, most_functions=1)
    rule = policy.rule(functions=1, costs=(0.0, 0.0), position=0)
    return table_of(Clock(*policy.curves()), rule)


def phase_at(table: Table, slot: int, claim: int) -> int:
    """Let the peer claim so many arrivals if it is asked; return the phase."""
    decision = table.decide((0.5,), slot)
    if decision < 0:
        for peer in table.stale(-1 - decision, slot):
            table.hear(-1 - decision, peer, (claim, 0.0, 1.0, ()), slot)
        decision = table.resume(-1 - decision, (0.5,), slot)
    table.settle(decision, 1, (0.5,), slot)
    return decision & 3


def test_a_peer_that_underreports_its_arrivals_is_not_trained_again() -> None:
    table = wary_table(True)

    assert [phase_at(table, slot, 0) for slot in range(1, 7)] == [
        EXPLORE,  # the own function
        TRAIN,  # nothing was sent yet, so that 0 may be true
        EXPLORE,  # 0 is less than the one training: the peer is tried like any arm
        EXPLOIT,
        EXPLOIT,
        EXPLOIT,
    ]


def test_without_claim_checks_a_false_reporter_is_trained_for_ever() -> None:
    table = wary_table(False)

    assert [phase_at(table, slot, 0) for slot in range(1, 7)] == [EXPLORE] + [TRAIN] * 5


def test_a_claim_that_may_be_true_is_believed_again() -> None:
    table = wary_table(True)
    phases = [phase_at(table, slot, claim) for slot, claim in enumerate([0, 0, 0, 2, 3], 1)]

    assert phases == [EXPLORE, TRAIN, EXPLORE, TRAIN, TRAIN]


def without_seconds(run: Run) -> Run:
    return Run(**{**{f: getattr(run, f) for f in run.__struct_fields__}, "seconds": 0.0})


WORLDS = st.fixed_dictionaries(
    {
        "case": st.sampled_from(["C1", "C2", "C3", "C4"]),
        "delay-slots": st.sampled_from([0, 7]),
        "label-probability": st.sampled_from([1.0, 0.6]),
    }
)
POLICIES = st.fixed_dictionaries(
    {
        "preset": st.sampled_from(["cos", "dcza"]),
        "count": st.sampled_from(["arrivals", "labelled"]),
        "pending": st.booleans(),
        "inherit": st.booleans(),
        "slices": st.just(3),
    }
)


@settings(max_examples=40)
@given(world=WORLDS, policy=POLICIES, seed=st.integers(0, 1000))
def test_claim_checks_do_not_affect_honest_peers(
    world: dict[str, object], policy: dict[str, object], seed: int
) -> None:
    environment = environment_from({"name": "x", **world})
    trusting, wary = (
        without_seconds(
            play(
                environment,
                policy_from(fitting({**policy, "check-claims": is_wary})),
                seed=seed,
                horizon=600,
                checkpoints=[100, 600],
            )
        )
        for is_wary in (False, True)
    )

    assert wary == trusting


@pytest.mark.parametrize("seed", range(4))
def test_a_reported_index_is_capped_by_the_own_statistics(seed: int) -> None:
    flat = [{"at": [0.5], "high": high, "low": high} for high in (0.5, 0.75, 0.3, 0.6)]
    environment = environment_from(
        {
            "name": "x",
            "case": "C1",
            "surfaces": [[surface] for surface in flat],
            "liars": {"learner-3": "zero-arrivals"},
        }
    )
    setup = network(environment, policy_from({"preset": "share-ucb", "slices": 1}))
    stretch = World(environment, seed=seed, horizon=1_500).draw(1_500)
    trace = ReplayEngine(setup, setup.sites, 1, [0, 1]).play(log_of(stretch, environment, setup))
    sites = tuple(
        Site(
            name=f"learner-{k + 1}",
            functions=1,
            costs=(0.0,),
            arrivals=k == 0,
            peers=tuple((peer, 0.0) for peer in range(4) if peer != k),
            lies=k == 2,
        )
        for k in range(4)
    )
    rows = index.replay(
        index.index_setup("share-ucb", sites, slices=1, check_claims=True),
        contexts=[tuple(point) for point in stretch.points[:, 0].tolist()],
        predictions=np.asarray(stretch.right[0]).tolist(),
        labels=[1] * 1_500,
    )

    assert trace.function.tolist() == [row.function for row in rows]


def liar_shares(preset: str, case: str, **more: bool) -> dict[str, float]:
    environment = environment_from(
        {
            "name": "x",
            "case": case,
            "liars": {"learner-3": "zero-arrivals"},
            "failing": {"learner-3": 0.7},  # it is never better than another
        }
    )
    table = {"preset": preset, **{key.replace("_", "-"): value for key, value in more.items()}}
    run = play(environment, policy_from(table), seed=0, horizon=20_000, checkpoints=[20_000])
    return run.to_liars


@pytest.mark.parametrize("case", ["C1", "C2", "C3", "C4"])
def test_a_liar_gets_few_requests(case: str) -> None:
    assert 0 < liar_shares("cos", case)["worst cell"] <= 0.03
    assert 0 < liar_shares("auto", case)["overall"] <= 0.005


@pytest.mark.parametrize(
    # By the default policy only a share of the width counts, which it uses up to 1.
    ("preset", "share"),
    [("cos", 0.5), ("auto", 0.2)],
)
def test_without_claim_checks_a_false_reporter_gets_many_requests(
    preset: str, share: float
) -> None:
    assert liar_shares(preset, "C1", check_claims=False)["overall"] > share


def test_without_false_reporters_no_shares_are_reported() -> None:
    environment = environment_from({"name": "x"})

    assert play(environment, CoS(), seed=0, horizon=50, checkpoints=[50]).to_liars == {}
