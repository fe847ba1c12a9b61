"""Runs: checkpoints, messages equal to a slow count, invalid input."""

import msgspec
import numpy as np
import pytest

from covey.bandit.policies import Auto, CoS, PolicyRecord
from covey.errors import ConfigError
from covey.replay.engine import ReplayEngine
from covey.simulation.environment import Environment
from covey.simulation.run import CAUSES, Run, log_of, network, play
from covey.simulation.world import World

PRICED = Environment(name="priced", prices=0.1, lipschitz=1.2)


def same(run: Run) -> Run:
    """The run but for the time that it took."""
    return msgspec.structs.replace(run, seconds=0.0)


def lost(run: Run) -> np.ndarray:
    """What was lost in all, at each checkpoint."""
    return np.array([run.regret[cause] for cause in CAUSES]).sum(axis=0)


def test_checkpoints_only_look() -> None:
    few = play(PRICED, CoS(), seed=1, horizon=2_000, checkpoints=[1_000])
    many = play(PRICED, CoS(), seed=1, horizon=2_000, checkpoints=[1, 2, 30, 1_000, 1_700])

    assert (few.slots, many.slots) == ([1_000], [1, 2, 30, 1_000, 1_700])
    assert {cause: many.regret[cause][3:4] for cause in CAUSES} == few.regret
    assert same(msgspec.structs.replace(many, slots=[], regret={})) == same(
        msgspec.structs.replace(few, slots=[], regret={})
    )


def test_regret_never_falls() -> None:
    run = play(PRICED, CoS(), seed=2, horizon=3_000, checkpoints=list(range(100, 3_001, 100)))

    assert list(run.regret) == list(CAUSES)
    for cause in CAUSES:
        assert (np.diff(run.regret[cause]) >= 0).all()
    assert lost(run)[-1] > 0


@pytest.mark.parametrize("wait", [None, 4])
def test_requests_and_the_labels_passed_on_are_counted(wait: int | None) -> None:
    environment = Environment(name="x", delay_slots=9, label_probability=0.7)
    settings = CoS(slices=4, label_wait=wait)
    run = play(environment, settings, seed=5, horizon=1_000, checkpoints=[])
    world = World(environment, seed=5, horizon=1_000)
    setup = network(environment, settings)
    stretch = world.draw(1_000)
    trace = ReplayEngine(setup, setup.sites, 1, [0, 1]).play(log_of(stretch, environment, setup))
    requests = labels = 0
    for slot, learner, arm in zip(trace.slot, trace.learner, trace.arm, strict=True):
        if arm >= 8:
            delay = stretch.delays[slot - 1]
            requests += 1
            comes = slot + delay <= 1_000 and (wait is None or delay <= wait)
            labels += int(comes and stretch.shown[slot - 1, learner])

    assert 0 < labels < requests
    assert run.messages == {"requests": requests / 4, "labels": labels / 4}


@pytest.mark.parametrize(
    ("settings", "horizon", "checkpoints", "words"),
    [
        (CoS(horizon=50), 100, [], "horizon is 50 slots, but the run has 100; raise horizon"),
        (CoS(), 100, [10, 10], "checkpoint 10 follows 10 .* increasing order"),
        (CoS(), 100, [10, 101], "checkpoint 101 follows 10 .* increasing order"),
        (CoS(), 2**54, [], "the horizon is 18014398509481984; it must lie from 1"),
    ],
)
def test_an_invalid_run_is_refused(
    settings: PolicyRecord, horizon: int, checkpoints: list[int], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        play(PRICED, settings, seed=1, horizon=horizon, checkpoints=checkpoints)


@pytest.mark.parametrize("dimension", [1, 2])
def test_who_shares_nine_instances_of_ten_loses_little_more_than_who_shares_all(
    dimension: int,
) -> None:
    losses = []
    for share in (0.9, "best"):
        shared = Environment(name="x", dimension=dimension, correlation=share, prices=0.05)
        runs = [play(shared, Auto(), seed=k, horizon=8_000, checkpoints=[8_000]) for k in range(3)]
        losses.append(sum(lost(run)[-1] for run in runs))

    assert losses[0] < 1.6 * losses[1]  # 3 to 5 times, if copies of a label weighed beliefs
