"""Scores are means over seeds, of one receiving learner each."""

import math

import pytest

from covey.simulation.comparison import Comparison, Score, compare
from support.compared import CHOSEN, SLOTS, runs


@pytest.fixture
def found() -> Comparison:
    return compare(CHOSEN, runs())


def test_scores_are_ordered_by_environment_and_then_by_policy(found: Comparison) -> None:
    assert [(score.environment, score.policy) for score in found.scores] == [
        ("one", "grid"), ("one", "zoom"), ("all", "grid"), ("all", "zoom"),
    ]  # fmt: skip


def test_regret_is_that_of_one_learner_however_many_receive(found: Comparison) -> None:
    assert score(found, "grid", "one").regret.mean == pytest.approx([2 * s**0.5 for s in SLOTS])
    assert score(found, "grid", "all").regret.mean == pytest.approx([2 * s**0.5 for s in SLOTS])
    assert score(found, "grid", "all").regret_per_slot.mean == pytest.approx(200 / 10_000)


def test_causes_add_up_to_the_regret_at_the_end(found: Comparison) -> None:
    for each in found.scores:
        assert math.fsum(each.causes.values()) == pytest.approx(each.regret.mean[-1])
    assert score(found, "grid", "all").causes == pytest.approx(
        {"exploration": 150.0, "wrong choice": 50.0}
    )


def test_ratios_are_paired_by_seed_and_to_the_first_policy(found: Comparison) -> None:
    against = score(found, "zoom", "one").ratio

    assert score(found, "grid", "one").ratio is None
    assert against is not None
    assert (against.low, against.mean, against.high) == pytest.approx((20.0, 20.0, 20.0))


def test_shares_and_messages_are_means_over_seeds(found: Comparison) -> None:
    each = score(found, "grid", "one")

    assert (each.error_percent.mean, each.cost_per_slot.mean) == pytest.approx((11.0, 0.15))
    assert each.phases == pytest.approx({"train": 0.0, "explore": 0.1, "exploit": 0.9})
    assert each.messages == pytest.approx({"requests": 50.0})


def score(found: Comparison, policy: str, environment: str) -> Score:
    return next(e for e in found.scores if (e.policy, e.environment) == (policy, environment))
