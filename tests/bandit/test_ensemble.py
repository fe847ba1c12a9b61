"""The ensemble: winning labels, what each update rule must keep, weights by hand, every message."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from covey.bandit.ensemble import ABSTAINED, Ensemble, EnsembleState, Weighing, winner
from covey.errors import CoveyError

LEARNERS = ["north", "south", "west"]
CLASSES = ["normal", "attack", "probe"]
HALF = 0.5


def complaint(act: Callable[..., Any], *arguments: Any, **more: Any) -> str:
    with pytest.raises(CoveyError) as caught:
        act(*arguments, **more)
    return str(caught.value)


def taught(ensemble: Ensemble, rows: Sequence[tuple[Sequence[Any], Any]]) -> Ensemble:
    for votes, label in rows:
        ensemble.learn(votes, label)
    return ensemble


def errors_of(ensemble: Ensemble, votes: np.ndarray, labels: np.ndarray) -> int:
    """Play the slots in turn, every label at once, and return how often the answer is wrong."""
    wrong = 0
    for row, label in zip(votes.tolist(), labels.tolist(), strict=True):
        wrong += ensemble.vote(row) != label
        ensemble.learn(row, label)
    return wrong


def switching(
    slots: int, *, every: int, seed: int, good: float = 0.9, bad: float = 0.55
) -> tuple[np.ndarray, np.ndarray]:
    """Make votes of four members, two of which are good at a time, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, slots)
    turn = np.arange(slots) // every % 2
    accuracy = np.where(turn[:, None] == np.array([0, 1, 0, 1]), good, bad)
    is_right = rng.random((slots, 4)) < accuracy
    return np.where(is_right, labels[:, None], 1 - labels[:, None]), labels


@pytest.mark.parametrize(
    ("weights", "votes", "threshold", "expected"),
    [
        ([0.49, 0.2], [1, 0], HALF, 0),
        ([0.5, 0.2], [1, 0], HALF, 1),
        ([0.5, 3.0], [1, 0], HALF, 1),  # votes for the base do not matter
        ([0.3, 0.3, 0.4], [1, 1, 2], HALF, 1),
        ([0.3, 0.3, 0.4], [1, 2, 3], HALF, 0),
        ([0.9, -0.5], [1, 1], HALF, 0),  # a negative weight votes against
        ([0.4, 0.35, 0.25], [0, 1, 1], None, 1),  # without a threshold most weight wins
        ([0.4, 0.35, 0.25], [0, 1, 2], None, 0),
        ([0.5, 0.5], [0, 1], None, 1),  # ties avoid the base, and take the lowest code
        ([0.5, 0.5], [2, 1], None, 1),
        ([0.5, 0.2], [2, 1], None, 2),
        ([0.25, 0.25, 0.5], [2, 0, 1], None, 1),
    ],
)
def test_the_class_with_the_most_weight_wins_if_it_reaches_the_threshold(
    weights: list[float], votes: list[int], threshold: float | None, expected: int
) -> None:
    assert winner(weights, votes, threshold) == expected


def test_the_default_base_is_the_first_class() -> None:
    split = ["attack", "normal", "probe"]
    answers = [
        Ensemble(LEARNERS, classes=CLASSES, **base).vote(split) for base in ({}, {"base": "probe"})
    ]

    # Each vote weighs a third, which is below the threshold of the gradient rule.
    assert answers == ["normal", "probe"]


@pytest.mark.parametrize("beta", [0.5, 0.9])
def test_the_vote_of_the_weighted_majority_keeps_its_bound_on_mistakes(beta: float) -> None:
    votes, labels = switching(2_000, every=500, seed=6)
    best = int((votes != labels[:, None]).sum(axis=0).min())
    wrong = errors_of(Ensemble(["a", "b", "c", "d"], update="majority", beta=beta), votes, labels)

    assert wrong <= (best * math.log(1 / beta) + math.log(4)) / math.log(2 / (1 + beta))


def test_global_weights_beat_the_best_member_on_a_stream_that_switches() -> None:
    votes, labels = switching(6_000, every=1_000, seed=3)
    best = (votes != labels[:, None]).mean(axis=0).min()
    error = errors_of(Ensemble(["a", "b", "c", "d"]), votes, labels) / 6_000

    # Members err on 27 % (10 % and 45 % in turn), the ensemble on 9 to 12 %; slack 10 points.
    assert (best > 0.25, error < best - 0.1) == (True, True)


def test_a_label_that_would_leave_no_weight_is_rejected_and_nothing_changes() -> None:
    ensemble = Ensemble(["north"], step=1.0)

    assert "'north' the weight 0.0, like all others" in complaint(ensemble.learn, [1], 0)
    assert ensemble.weights() == {"north": 1.0}


def test_weights_that_add_up_to_nothing_are_kept_while_one_is_left() -> None:
    ensemble, weights = Ensemble(LEARNERS), (0.5, -0.5, 0.0)
    ensemble.restore({None: START._replace(weights=weights)})
    ensemble.learn([0, 0, 0], 0)

    assert tuple(ensemble.weights().values()) == weights


def test_a_too_large_step_is_rejected_before_weights_overflow() -> None:
    ensemble = Ensemble(["north", "south"], step=1e200)
    rows = [([1, 0], 1), ([1, 0], 0)] * 2
    sentence = complaint(taught, ensemble, rows)

    assert sentence == (
        "the update rule 'gradient' would give learner 'north' the weight -inf; the weights are "
        "unchanged (use a smaller step, or another rule)"
    )
    assert all(map(math.isfinite, ensemble.weights().values()))


@pytest.mark.parametrize("label", [-1, 0.5, "1", None])
@pytest.mark.parametrize("classes", [None, CLASSES])
def test_a_label_outside_the_classes_or_codes_changes_no_weight(label: Any, classes: Any) -> None:
    ensemble = Ensemble(LEARNERS, classes=classes)
    votes = [0, 1, 1] if classes is None else CLASSES

    known = "integers from 0" if classes is None else ", ".join(map(repr, CLASSES))
    assert f"the label is {label!r}" in complaint(ensemble.learn, votes, label)
    assert known in complaint(ensemble.learn, votes, label)
    assert set(ensemble.weights().values()) == {1 / 3}


def test_weights_per_cell_need_a_cell() -> None:
    ensemble = Ensemble(LEARNERS, weights="cell")

    assert 'weights = "cell" needs a cell' in complaint(ensemble.vote, [0, 1, 1])


UPDATES: tuple[Any, ...] = ("gradient", "majority", "hedge")
RULES = {update: Weighing(update=update) for update in UPDATES}
START = EnsembleState((1 / 3, 1 / 3, 1 / 3), (0, 0, 0), (0, 0, 0))
every_update = pytest.mark.parametrize("update", UPDATES)
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)

Row = tuple[list[int], int]  # votes, label


def noisy_rows(slots: int, seed: int, accuracies: Sequence[float] = (0.9, 0.6, 0.4)) -> list[Row]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, slots)
    is_wrong = rng.random((slots, 3)) > np.array(accuracies)
    votes = (labels[:, None] + is_wrong * rng.integers(1, 3, is_wrong.shape)) % 3
    return list(zip(votes.tolist(), labels.tolist(), strict=True))


def fold(rule: Weighing, rows: Sequence[Row], standing: EnsembleState = START) -> EnsembleState:
    for votes, label in rows:
        standing = rule.moved(standing, votes, label)
    return standing


@every_rule
def test_learners_may_change_their_places(rule: Weighing) -> None:
    rows = noisy_rows(200, 6)
    turned = [(votes[::-1], label) for votes, label in rows]

    # Sums in another order are rounded differently.
    assert fold(rule, turned).weights == pytest.approx(fold(rule, rows).weights[::-1], abs=1e-9)


@every_update
def test_weights_per_cell_do_not_mix(update: str) -> None:
    ensemble = Ensemble(LEARNERS, update=update, weights="cell")
    here, there = noisy_rows(40, 8), noisy_rows(40, 9)
    for (votes, label), (other_votes, other_label) in zip(here, there, strict=True):
        ensemble.learn(votes, label, cell="g2:0")
        ensemble.learn(other_votes, other_label, cell="g2:1")

    assert tuple(ensemble.weights("g2:0").values()) == fold(RULES[update], here).weights
    assert tuple(ensemble.weights("g2:1").values()) == fold(RULES[update], there).weights


@pytest.mark.parametrize(
    ("update", "both", "of_a", "of_b"),
    [
        # s = 0.5, so the weight of a moves by 0.01 * (1 - 0.5), and that of b, for the base, never.
        ("gradient", (0.505, 0.5), (0.505, 0.5), (0.5, 0.5)),
        ("majority", (2 / 3, 1 / 3), (0.5, 0.5), (2 / 3, 1 / 3)),
    ],
)
def test_weights_in_cells_of_each_learner_s_own_context_are_those_of_its_labels_there(
    update: str, both: tuple[float, ...], of_a: tuple[float, ...], of_b: tuple[float, ...]
) -> None:
    ensemble = Ensemble(["a", "b"], update=update, weights="cell")
    ensemble.learn([1, 0], 1, cell={"a": "g2:0", "b": "g4:1"})

    for cells, expected in (
        (("g2:0", "g4:1"), both),
        (("g2:0", "g4:2"), of_a),
        (("g2:1", "g4:1"), of_b),
    ):
        weights = ensemble.weights(dict(zip("ab", cells, strict=True)))
        assert tuple(weights.values()) == pytest.approx(expected)


LN_2 = 0.6931471805599453


def majority(beta: float) -> Weighing:
    return Weighing(update="majority", beta=beta)


def hedge(rate: float | None = None) -> Weighing:
    return Weighing(update="hedge", rate=rate)


def weights_of(rule: Weighing, *rows: Row) -> tuple[float, ...]:
    count = len(rows[0][0])
    return fold(rule, rows, EnsembleState((1 / count,) * count, (0,) * count, (0,) * count)).weights


STEP = Weighing(step=0.1)
BY_HAND: list[tuple[Weighing, list[Row], tuple[float, ...]]] = [
    # s = 0.5, so the first member moves by 0.1 * (0 - 0.5).
    (STEP, [([1, 0], 0)], (0.45, 0.5)),
    # s = 0.45 + 0.5, so both members move by 0.1 * (1 - 0.95).
    (STEP, [([1, 0], 0), ([1, 1], 1)], (0.455, 0.505)),
    # The second step is divided by the number of the label: 0.05 * (1 - 0.95).
    (Weighing(step=0.1, decay=True), [([1, 0], 0), ([1, 1], 1)], (0.4525, 0.5025)),
    # Both sums are 1/3: one is off by -1/3, the other by 2/3; the base has none.
    (Weighing(step=0.3), [([1, 2, 0], 2)], (1 / 3 - 0.1, 1 / 3 + 0.2, 1 / 3)),
    # Two of three were wrong: 0.5, 0.5, 1.
    (majority(0.5), [([1, 1, 0], 0)], (0.25, 0.25, 0.5)),
    # 0.5 ** 5000 is 0 in floating point, the ratio of two of them is not.
    (majority(0.5), [([1, 1], 0)] * 5_000 + [([1, 0], 0)], (1 / 3, 2 / 3)),
    # Of learners far apart one weight is 0, and none overflows.
    (majority(0.5), [([1, 0], 0)] * 5_000, (0.0, 1.0)),
    (hedge(LN_2), [([1, 0], 0)] * 5_000, (0.0, 1.0)),
    # exp(-ln 2) = 1/2 per mistake.
    (hedge(LN_2), [([1, 0], 0)], (1 / 3, 2 / 3)),
    (hedge(LN_2), [([1, 0], 0)] * 2, (1 / 5, 4 / 5)),
    # The second answer is weighed at sqrt(8 ln 2 / 2) = 1.6651, exp(-1.6651) = 0.18917.
    (hedge(), [([1, 0], 0)], (0.159077, 0.840923)),
    # One mistake each, weighed again at the current rate, which does not matter then.
    (hedge(), [([1, 0], 0), ([0, 1], 0)], (0.5, 0.5)),
]


@pytest.mark.parametrize(("rule", "rows", "expected"), BY_HAND)
def test_weights_are_those_worked_out_by_hand(
    rule: Weighing, rows: list[Row], expected: tuple[float, ...]
) -> None:
    assert weights_of(rule, *rows) == pytest.approx(expected, abs=1e-6)


def test_hedge_weighs_each_learner_at_the_rate_of_its_own_labels() -> None:
    """Of cells of their own, in which they have 1 and 7 labels: sqrt(8 ln 2 / 2), half of that."""
    rates = [math.sqrt(4 * LN_2), math.sqrt(LN_2)]
    weights = [math.exp(-2 * rates[0]), math.exp(-3 * rates[1])]

    assert hedge().multiplied((1, 7), (2, 3)) == pytest.approx(
        [weight / sum(weights) for weight in weights]
    )


@pytest.mark.parametrize("rule", [majority(0.7), hedge(), hedge(0.3)], ids=repr)
def test_label_order_does_not_matter_for_mistake_counts(rule: Weighing) -> None:
    rows = noisy_rows(5, 6)

    assert len({weights_of(rule, *order) for order in itertools.permutations(rows)}) == 1


@every_update
def test_a_learner_that_does_not_vote_decides_nothing_and_makes_no_mistake(update: str) -> None:
    ensemble = Ensemble(["north", "south", "west"], update=update)
    for _ in range(20):
        ensemble.move([1, 0, ABSTAINED], 1)
    weights = ensemble.weights()

    assert ensemble.elect([1, ABSTAINED, ABSTAINED]) == 1
    assert ensemble.elect([ABSTAINED, 0, ABSTAINED]) == 0
    assert weights["west"] >= weights["south"]
