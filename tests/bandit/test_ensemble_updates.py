"""Update rules: weights after a few labels, computed by hand, and the bound of Hedge."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from covey.bandit.ensemble import (
    ABSTAINED,
    Ensemble,
    EnsembleState,
    FixedShare,
    Gradient,
    Hedge,
    Majority,
    Update,
    sums_of,
)

pytestmark = pytest.mark.beside_the_kernel

LN_2 = 0.6931471805599453
ALWAYS_0, ALWAYS_1 = 0, 1

Row = tuple[list[int], int]  # votes, label


def start(learners: int) -> EnsembleState:
    return EnsembleState((1 / learners,) * learners, 0, (0,) * learners)


def moved(rule: Update, *rows: Row) -> EnsembleState:
    standing = start(len(rows[0][0]))
    for votes, label in rows:
        standing = rule.move(standing, votes, label)
    return standing


def weights_of(rule: Update, *rows: Row) -> tuple[float, ...]:
    return moved(rule, *rows).weights


def mixed_errors(rule: Update, rows: Sequence[Row]) -> float:
    """Return how often an ensemble that samples by the weights is wrong, on average."""
    standing = start(len(rows[0][0]))
    total = 0.0
    for votes, label in rows:
        total += 1 - sums_of(standing.weights, votes).get(label, 0.0)
        standing = rule.move(standing, votes, label)
    return total


def fewest_errors(rows: Sequence[Row]) -> int:
    members = range(len(rows[0][0]))
    return min(sum(votes[member] != label for votes, label in rows) for member in members)


def noisy_rows(slots: int, accuracies: Sequence[float], rng: np.random.Generator) -> list[Row]:
    """Make slots of three classes, on which each member is right as often as `accuracies` say."""
    labels = rng.integers(0, 3, slots)
    is_wrong = rng.random((slots, len(accuracies))) > np.array(accuracies)
    votes = (labels[:, None] + is_wrong * rng.integers(1, 3, is_wrong.shape)) % 3
    return list(zip(votes.tolist(), labels.tolist(), strict=True))


def test_a_gradient_step_reduces_the_weights_of_wrong_votes() -> None:
    # s = 0.5, so the first member moves by 0.1 * (0 - 0.5).
    assert weights_of(Gradient(0.1), ([1, 0], 0)) == pytest.approx((0.45, 0.5))


def test_gradient_steps_follow_the_squared_error() -> None:
    # s = 0.45 + 0.5, so both members move by 0.1 * (1 - 0.95).
    rows = ([1, 0], 0), ([1, 1], 1)

    assert weights_of(Gradient(0.1), *rows) == pytest.approx((0.455, 0.505))


def test_a_decaying_step_is_divided_by_the_number_of_the_label() -> None:
    # The second step is 0.05 * (1 - 0.95).
    rows = ([1, 0], 0), ([1, 1], 1)

    assert weights_of(Gradient(0.1, decay=True), *rows) == pytest.approx((0.4525, 0.5025))


def test_a_gradient_step_treats_each_class_separately() -> None:
    # Both sums are 1/3: one is off by -1/3, the other by 2/3; the base has none.
    weights = weights_of(Gradient(0.3), ([1, 2, 0], 2))

    assert weights == pytest.approx((1 / 3 - 0.1, 1 / 3 + 0.2, 1 / 3))


def test_gradient_steps_find_the_member_that_is_always_right() -> None:
    """Least squares on its votes is 0 * the first + 1 * the second."""
    rows = [([1, 1], 1), ([1, 0], 0)] * 400

    assert weights_of(Gradient(0.1), *rows) == pytest.approx((0.0, 1.0), abs=1e-3)


def test_a_mistake_multiplies_a_majority_weight_by_beta() -> None:
    # Two of three were wrong: 0.5, 0.5, 1.
    assert weights_of(Majority(0.5), ([1, 1, 0], 0)) == (0.25, 0.25, 0.5)


def test_majority_weights_multiply() -> None:
    # Mistakes 1, 2, 1: a half, a quarter, a half.
    rows = ([1, 1, 0], 0), ([0, 1, 1], 0)

    assert weights_of(Majority(0.5), *rows) == (0.4, 0.2, 0.4)


def test_majority_weights_do_not_all_underflow() -> None:
    # 0.5 ** 5000 is 0 in floating point, their ratio is not.
    rows = [([1, 1], 0)] * 5_000 + [([1, 0], 0)]

    assert weights_of(Majority(0.5), *rows) == pytest.approx((1 / 3, 2 / 3))


def test_hedge_at_a_given_rate_weighs_mistakes_exponentially() -> None:
    # exp(-ln 2) = 1/2 per mistake.
    assert weights_of(Hedge(LN_2), ([1, 0], 0)) == pytest.approx((1 / 3, 2 / 3))
    assert weights_of(Hedge(LN_2), *[([1, 0], 0)] * 2) == pytest.approx((1 / 5, 4 / 5))


def test_the_rate_of_hedge_falls_with_the_slots() -> None:
    # The second answer is weighed at sqrt(8 ln 2 / 2) = 1.6651, exp(-1.6651) = 0.18917.
    assert weights_of(Hedge(), ([1, 0], 0)) == pytest.approx((0.159077, 0.840923), abs=1e-6)


def test_hedge_reweighs_all_mistakes_at_the_current_rate() -> None:
    # One mistake each, the rate does not matter.
    assert weights_of(Hedge(), ([1, 0], 0), ([0, 1], 0)) == (0.5, 0.5)


def test_fixed_share_redistributes_a_share_evenly() -> None:
    # Hedge's 1/3 and 2/3, then 0.8 of each and 0.1 for all.
    weights = weights_of(FixedShare(0.2, LN_2), ([1, 0], 0))

    assert weights == pytest.approx((0.8 / 3 + 0.1, 1.6 / 3 + 0.1))


def test_fixed_share_continues_from_the_shared_weights() -> None:
    # 0.366667 : 0.633333 / 2 is 0.536585 : 0.463415, then 0.8 of each and 0.1.
    rows = ([1, 0], 0), ([0, 1], 0)

    assert weights_of(FixedShare(0.2, LN_2), *rows) == pytest.approx((0.529268, 0.470732), abs=1e-6)


@pytest.mark.parametrize("rate", [None, 0.1])
def test_fixed_share_with_a_tiny_share_is_hedge(rate: float | None) -> None:
    rows = noisy_rows(50, [0.9, 0.5, 0.4], np.random.default_rng(1))

    # Losses go through a logarithm and back, hence the tolerance.
    assert weights_of(FixedShare(1e-12, rate), *rows) == pytest.approx(
        weights_of(Hedge(rate), *rows), abs=1e-9
    )


def test_a_single_member_has_all_the_weight() -> None:
    rows = [([1], 0), ([0], 0)]

    assert [weights_of(rule, *rows) for rule in (Majority(), Hedge(), FixedShare())] == [(1.0,)] * 3


def test_the_bound_of_hedge_uses_the_decreasing_rate() -> None:
    # 2 * sqrt(5000 * ln 4) + sqrt(ln 4 / 8)
    assert Hedge().bound(10_000, learners=4) == pytest.approx(166.927, abs=1e-3)


def test_the_bound_of_hedge_at_a_fixed_rate_uses_that_rate() -> None:
    # ln 4 / 0.1 + 0.1 * 1000 / 8
    assert Hedge(0.1).bound(1_000, learners=4) == pytest.approx(26.36294, abs=1e-5)


@pytest.mark.parametrize("rate", [None, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_the_regret_of_hedge_stays_below_its_bound(seed: int, rate: float | None) -> None:
    """The bound is a theorem, so it needs no slack but that of rounding."""
    rows = noisy_rows(2_000, [0.7, 0.65, 0.6, 0.3], np.random.default_rng(seed))
    regret = mixed_errors(Hedge(rate), rows) - fewest_errors(rows)

    assert regret <= Hedge(rate).bound(len(rows), learners=4)


def test_the_regret_of_hedge_stays_below_its_bound_against_an_adaptive_opponent() -> None:
    """The heavier member is always wrong: the worst case for two members."""
    rule, standing = Hedge(), start(2)
    rows: list[Row] = []
    for _ in range(2_000):
        label = ALWAYS_1 if standing.weights[0] >= 0.5 else ALWAYS_0
        rows.append(([ALWAYS_0, ALWAYS_1], label))
        standing = rule.move(standing, *rows[-1])
    regret = mixed_errors(rule, rows) - fewest_errors(rows)

    # A third of the bound: the opponent is a real one.
    assert rule.bound(2_000, learners=2) / 3 < regret <= rule.bound(2_000, learners=2)


@pytest.mark.parametrize("rule", [Majority(0.7), Hedge(), Hedge(0.3)], ids=repr)
def test_label_order_does_not_matter_for_mistake_counts(rule: Update) -> None:
    rows = noisy_rows(5, [0.8, 0.5, 0.4], np.random.default_rng(6))

    assert len({weights_of(rule, *order) for order in itertools.permutations(rows)}) == 1


@pytest.mark.parametrize("rule", [Gradient(0.3), FixedShare(0.2)], ids=repr)
def test_label_order_matters_for_rules_that_update_weights(rule: Update) -> None:
    rows = [([1, 0], 1), ([1, 1], 0), ([1, 0], 0)]

    assert weights_of(rule, *rows) != pytest.approx(weights_of(rule, *reversed(rows)))


@pytest.mark.parametrize("update", ["gradient", "majority", "hedge", "fixed-share"])
def test_a_learner_that_does_not_vote_decides_nothing_and_makes_no_mistake(update: str) -> None:
    ensemble = Ensemble(["north", "south", "west"], update=update)
    for _ in range(20):
        ensemble.move([1, 0, ABSTAINED], 1)
    weights = ensemble.weights()

    assert ensemble.elect([1, ABSTAINED, ABSTAINED]) == 1
    assert ensemble.elect([ABSTAINED, 0, ABSTAINED]) == 0
    assert weights["west"] >= weights["south"]


def test_a_sample_is_drawn_among_those_that_vote() -> None:
    ensemble = Ensemble(["north", "south", "west"], update="hedge", predict="sample")

    assert {ensemble.elect([ABSTAINED, 2, 3]) for _ in range(50)} == {2, 3}


def test_an_ensemble_continues_its_draws_where_another_stopped() -> None:
    first, second = (
        Ensemble(["north", "south"], update="hedge", predict="sample", seed=4) for _ in range(2)
    )
    before = [first.elect([0, 1]) for _ in range(30)]
    second.restore(first.standings(), first.draws)

    assert [first.elect([0, 1]) for _ in range(30)] == [second.elect([0, 1]) for _ in range(30)]
    assert len(set(before)) == 2
