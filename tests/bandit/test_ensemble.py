"""The ensemble: winning labels, tickets, streams that switch, and every error message."""

import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from covey import Ensemble
from covey.bandit.ensemble import EnsembleState, weighing_from, winner
from covey.errors import ConfigError, ConflictingLabel, CoveyError, DataError, UnknownTicket

pytestmark = pytest.mark.beside_the_kernel

LEARNERS = ["north", "south", "west"]
CLASSES = ["normal", "attack", "probe"]
HALF = 0.5


class Broken:
    """A rule that gives the second learner the weight it was made with, and the others none."""

    name = "broken"
    threshold = None
    is_share = False

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def move(self, standing: EnsembleState, votes: Sequence[int], label: int) -> EnsembleState:
        return EnsembleState((0.0, self.weight, 0.0), standing.labels + 1, standing.losses)


class Faint:
    """A rule whose weights are meant as shares, but of which a part got lost."""

    name = "faint"
    threshold = None
    is_share = True

    def move(self, standing: EnsembleState, votes: Sequence[int], label: int) -> EnsembleState:
        return EnsembleState((0.0, 1e-9, 0.0), standing.labels + 1, standing.losses)


def complaint(act: Callable[..., Any], *arguments: Any, **more: Any) -> str:
    with pytest.raises(CoveyError) as caught:
        act(*arguments, **more)
    return str(caught.value)


def taught(ensemble: Ensemble, rows: Sequence[tuple[Sequence[Any], Any]]) -> Ensemble:
    for votes, label in rows:
        ensemble.learn(ensemble.vote(votes)[1], label)
    return ensemble


def errors_of(ensemble: Ensemble, votes: np.ndarray, labels: np.ndarray) -> int:
    """Play the slots in turn, every label at once, and return how often the answer is wrong."""
    wrong = 0
    for row, label in zip(votes.tolist(), labels.tolist(), strict=True):
        _, ticket = ensemble.vote(row)
        wrong += not ensemble.learn(ticket, label).is_right
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


def test_with_two_classes_the_threshold_is_a_half() -> None:
    assert [winner([weight, 0.2], [1, 0], HALF) for weight in (0.49, 0.5, 0.51)] == [0, 1, 1]


def test_with_a_threshold_votes_for_the_base_are_ignored() -> None:
    assert winner([0.5, 3.0], [1, 0], HALF) == 1


def test_the_class_with_most_weight_wins_if_it_reaches_the_threshold() -> None:
    weights = [0.3, 0.3, 0.4]

    assert (winner(weights, [1, 1, 2], HALF), winner(weights, [1, 2, 3], HALF)) == (1, 0)


def test_without_a_threshold_the_class_with_the_most_weight_wins() -> None:
    weights = [0.4, 0.35, 0.25]

    assert [winner(weights, votes, None) for votes in ([0, 1, 1], [0, 1, 2])] == [1, 0]


def test_ties_avoid_the_base_and_take_the_lowest_code() -> None:
    ties = [([0.5, 0.5], [0, 1]), ([0.5, 0.5], [2, 1]), ([0.25, 0.25, 0.5], [2, 0, 1])]

    assert [winner(weights, votes, None) for weights, votes in ties] == [1, 1, 1]


def test_negative_weights_vote_against() -> None:
    assert winner([0.9, -0.5], [1, 1], HALF) == 0


def test_votes_and_labels_are_classes() -> None:
    ensemble = Ensemble(LEARNERS, classes=CLASSES, update="majority")
    label, ticket = ensemble.vote(["probe", "probe", "normal"])

    assert (label, ensemble.learn(ticket, "normal").is_right) == ("probe", False)


def test_the_default_base_is_the_first_class() -> None:
    split = ["attack", "normal", "probe"]
    answers = [
        Ensemble(LEARNERS, classes=CLASSES, **base).vote(split)[0]
        for base in ({}, {"base": "probe"})
    ]

    # Each vote weighs a third, which is below the threshold of the gradient rule.
    assert answers == ["normal", "probe"]


def test_a_label_updates_the_weights_with_the_votes_of_its_slot() -> None:
    ensemble = Ensemble(["north", "south"], step=0.1)
    _, first = ensemble.vote([1, 0])
    _, second = ensemble.vote([0, 1])
    ensemble.learn(first, 0)

    assert ensemble.weights() == pytest.approx({"north": 0.45, "south": 0.5})
    assert (ensemble.open_tickets, second) == (1, 2)


@pytest.mark.parametrize("update", ["majority", "hedge"])
def test_mistake_counts_do_not_depend_on_label_order(update: str) -> None:
    votes, labels = switching(30, every=10, seed=2)
    members = ["a", "b", "c", "d"]
    in_order, reversed_ = (Ensemble(members, update=update) for _ in range(2))
    for ensemble, step in ((in_order, 1), (reversed_, -1)):
        tickets = [ensemble.vote(row)[1] for row in votes.tolist()]
        for ticket, label in list(zip(tickets, labels.tolist(), strict=True))[::step]:
            ensemble.learn(ticket, label)

    assert reversed_.weights() == in_order.weights()


def test_sampled_answers_follow_the_weights() -> None:
    ensemble = Ensemble(
        ["north", "south"], update="hedge", rate=math.log(3), predict="sample", seed=5
    )
    taught(ensemble, [([1, 0], 0)])
    answers = [ensemble.vote([1, 0])[0] for _ in range(2_000)]

    # One of four goes to north; four standard deviations are 0.04.
    assert np.mean(answers) == pytest.approx(0.25, abs=0.04)


def test_sampling_is_repeatable_by_its_seed() -> None:
    drawn = [
        [Ensemble(LEARNERS, update="hedge", predict="sample", seed=seed).vote([0, 1, 2])[0]]
        for seed in (3, 3)
    ]

    assert drawn[0] == drawn[1]


def test_sampling_assigns_the_rounding_remainder_to_the_largest_weight() -> None:
    ensemble = taught(Ensemble(LEARNERS, rule=Faint(), predict="sample"), [([0, 0, 0], 0)])

    assert [ensemble.vote([0, 1, 2])[0] for _ in range(20)] == [1] * 20


def test_the_vote_of_hedge_errs_at_most_twice_the_bound_of_a_sample() -> None:
    votes, labels = switching(2_000, every=500, seed=3)
    ensemble = Ensemble(["a", "b", "c", "d"], update="hedge")
    best = int((votes != labels[:, None]).sum(axis=0).min())
    wrong = errors_of(ensemble, votes, labels)

    assert wrong <= 2 * (best + ensemble.rule.bound(2_000, learners=4))  # type: ignore[attr-defined]


@pytest.mark.parametrize("beta", [0.5, 0.9])
def test_the_vote_of_the_weighted_majority_keeps_its_bound_on_mistakes(beta: float) -> None:
    votes, labels = switching(2_000, every=500, seed=6)
    best = int((votes != labels[:, None]).sum(axis=0).min())
    wrong = errors_of(Ensemble(["a", "b", "c", "d"], update="majority", beta=beta), votes, labels)

    assert wrong <= (best * math.log(1 / beta) + math.log(4)) / math.log(2 / (1 + beta))


def test_fixed_share_follows_a_switch_that_hedge_misses() -> None:
    """One member is right until the middle of the stream, the other from then on."""
    labels = np.random.default_rng(4).integers(0, 2, 2_000)
    is_late = np.arange(2_000) >= 1_000
    votes = np.column_stack(
        [np.where(is_late, 1 - labels, labels), np.where(is_late, labels, 1 - labels)]
    )
    members = ["early", "late"]
    hedge, share = (
        errors_of(Ensemble(members, update=update), votes, labels)
        for update in ("hedge", "fixed-share")
    )

    # Hedge has to live through as many mistakes as the first half held right answers, 1000;
    # fixed share through ln(2 / 0.01) / rate, about 75.
    assert (hedge > 900, share < 150) == (True, True)


@pytest.mark.parametrize("update", ["gradient", "fixed-share"])
def test_global_weights_beat_the_best_member_on_a_stream_that_switches(update: str) -> None:
    votes, labels = switching(6_000, every=1_000, seed=3)
    best = (votes != labels[:, None]).mean(axis=0).min()
    error = errors_of(Ensemble(["a", "b", "c", "d"], update=update), votes, labels) / 6_000

    # Members err on 27 % (10 % and 45 % in turn), the ensembles on 9 to 12 %; slack 10 points.
    assert (best > 0.25, error < best - 0.1) == (True, True)


def test_an_ensemble_can_be_pickled() -> None:
    ensemble = taught(Ensemble(LEARNERS, update="hedge", predict="sample"), [([1, 0, 2], 1)] * 5)
    copy = pickle.loads(pickle.dumps(ensemble))  # noqa: S301 - our own

    assert [copy.vote([0, 1, 2]) for _ in range(9)] == [ensemble.vote([0, 1, 2]) for _ in range(9)]


@pytest.mark.parametrize("weight", [math.nan, math.inf, 0.0])
def test_an_invalid_weight_is_rejected_and_nothing_changes(weight: float) -> None:
    ensemble = Ensemble(LEARNERS, rule=Broken(weight))
    _, ticket = ensemble.vote([1, 0, 1])
    before = ensemble.weights()
    sentence = complaint(ensemble.learn, ticket, 1)

    culprit = "north" if weight == 0 else "south"
    assert (
        f"the update rule 'broken' would give learner {culprit!r} the weight {weight}" in sentence
    )
    assert (ensemble.weights(), ensemble.open_tickets) == (before, 1)


def test_a_too_large_step_is_rejected_before_weights_overflow() -> None:
    ensemble = Ensemble(["north", "south"], step=1e200)
    rows = [([1, 0], 1), ([1, 0], 0)] * 2
    sentence = complaint(taught, ensemble, rows)

    assert sentence == (
        "the update rule 'gradient' would give learner 'north' the weight -inf; the weights are "
        "unchanged (use a smaller step, or another rule)"
    )
    assert all(map(math.isfinite, ensemble.weights().values()))


def test_weights_that_sum_to_zero_are_valid() -> None:
    ensemble = Ensemble(["north", "south"], step=2.0)
    taught(ensemble, [([1, 0], 0)])

    assert ensemble.weights() == {"north": -0.5, "south": 0.5}


@pytest.mark.parametrize(
    ("votes", "sentence"),
    [
        (
            ["normal"],
            "1 votes for 3 learners; pass one for each of north, south, west, in this order",
        ),
        (
            ["normal", "atack", "probe"],
            "the vote of 'south' is 'atack', which is not one of the classes: 'normal', 'attack', "
            "'probe'",
        ),
        (
            ["normal", "probe", ["probe"]],
            "the vote of 'west' is ['probe'], which is not one of the classes: 'normal', 'attack', "
            "'probe'",
        ),
    ],
)
def test_invalid_votes_are_named(votes: list[Any], sentence: str) -> None:
    ensemble = Ensemble(LEARNERS, classes=CLASSES)

    assert complaint(ensemble.vote, votes) == sentence
    assert ensemble.open_tickets == 0


@pytest.mark.parametrize("label", [-1, 0.5, "1", None])
def test_without_classes_labels_are_codes(label: Any) -> None:
    ensemble = Ensemble(LEARNERS)
    _, ticket = ensemble.vote([0, 1, 1])

    assert complaint(ensemble.learn, ticket, label) == (
        f"the label is {label!r}, which is not one of the classes: integers from 0"
    )
    assert ensemble.open_tickets == 1


def test_a_label_outside_the_classes_changes_no_weight() -> None:
    ensemble = Ensemble(LEARNERS, classes=CLASSES)
    _, ticket = ensemble.vote(["normal"] * 3)

    with pytest.raises(DataError, match="the label is 'flood'"):
        ensemble.learn(ticket, "flood")
    assert ensemble.open_tickets == 1


def test_an_unknown_ticket_is_named() -> None:
    ensemble = Ensemble(LEARNERS, label_wait=1)
    for _ in range(3):
        ensemble.vote([0, 0, 0])

    assert [complaint(ensemble.learn, ticket, 0) for ticket in (1, 4)] == [
        "unknown ticket 1 of the ensemble: its label was due within 1 slots",
        "unknown ticket 4 of the ensemble: it was never issued",
    ]
    assert issubclass(UnknownTicket, LookupError)


def test_a_conflicting_label_is_named() -> None:
    ensemble = Ensemble(LEARNERS, classes=CLASSES)
    _, ticket = ensemble.vote(["normal"] * 3)
    ensemble.learn(ticket, "probe")

    with pytest.raises(ConflictingLabel) as caught:
        ensemble.learn(ticket, "attack")
    assert str(caught.value) == (
        "ticket 1 of the ensemble was settled with 'probe'; label 'attack' rejected"
    )


def test_weights_per_cell_need_a_cell() -> None:
    ensemble = Ensemble(LEARNERS, weights="cell")

    assert complaint(ensemble.vote, [0, 1, 1]) == ('weights = "cell" needs a cell; pass cell=')


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"learners": []}, "an ensemble needs at least one learner"),
        (
            {"learners": ["north", "north"]},
            "duplicate learner name 'north'",
        ),
        ({"label_wait": -1}, "label_wait is -1 slots; it must be 0 or more"),
        ({"classes": ["a"]}, "the classes are ['a']; they must be two or more different labels"),
        (
            {"classes": ["a", "a"]},
            "the classes are ['a', 'a']; they must be two or more different labels",
        ),
        (
            {"classes": [[1], [2]]},
            "the classes are [[1], [2]]; they must be two or more different labels",
        ),
        ({"base": "a"}, "base is 'a', but no classes are given; pass classes"),
        (
            {"classes": ["good", "bad"], "base": "god"},
            "base is 'god', which is not one of the classes; did you mean 'good'?",
        ),
    ],
)
def test_invalid_arguments_give_one_message(arguments: dict[str, Any], sentence: str) -> None:
    assert complaint(Ensemble, **{"learners": LEARNERS, **arguments}) == sentence


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"wieghts": "cell"}, "unknown key 'wieghts' in [ensemble]; did you mean 'weights'?"),
        ({"update": "hedg"}, "[ensemble] update: invalid enum value 'hedg'; did you mean 'hedge'?"),
        ({"step": "x"}, "[ensemble] step: expected float, got str"),
        ({"step": 0.0}, "[ensemble] step is 0.0; it must be above 0 and finite"),
        ({"step": math.nan}, "[ensemble] step is nan; it must be above 0 and finite"),
        (
            {"update": "majority", "beta": 1.0},
            "[ensemble] beta is 1.0; it must lie between 0 and 1",
        ),
        (
            {"update": "hedge", "rate": -1.0},
            "[ensemble] rate is -1.0; it must lie from 1e-9 to 1e9",
        ),
        (
            {"update": "fixed-share", "share": 0.0},
            "[ensemble] share is 0.0; it must lie from 1e-12 to below 1",
        ),
        ({"seed": -1}, "[ensemble] seed is -1; it must lie from 0 to 1099511627776"),
        (
            {"update": "hedge", "beta": 0.5},
            '[ensemble] beta needs update = "majority", but update is "hedge"',
        ),
        (
            {"rate": 0.5},
            '[ensemble] rate needs update = "hedge" or "fixed-share", but update is "gradient"',
        ),
        (
            {"predict": "sample"},
            '[ensemble] predict = "sample" needs weights that sum to 1, unlike update = '
            '"gradient"; use predict = "vote", or another update',
        ),
        ([], "[ensemble] is not a table of keys and values"),
    ],
)
def test_an_invalid_table_gives_one_message(table: Any, sentence: str) -> None:
    assert complaint(weighing_from, table) == sentence


def test_a_custom_rule_takes_no_keys_of_other_rules() -> None:
    with pytest.raises(ConfigError, match='step needs update = "gradient"'):
        Ensemble(LEARNERS, rule=Broken(1.0), step=0.1)
