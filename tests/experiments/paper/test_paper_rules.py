"""Baselines that only the tables of the paper have: win-stay, and online boosting."""

import numpy as np
import pytest
from river import base, ensemble

from covey.replay.baselines import BaselineRun
from reproduction.rules import OzaRussell, WinStay
from support.streams import log_of, stream


@pytest.mark.parametrize(
    ("labels", "delays", "expected"),
    [
        ([1, 2, 2, 2, 3, 1], None, [1, 1, 2, 2, 2, 3]),
        # The first two answers are wrong, and their labels come together: it shifts once.
        ([2, 2, 2, 2, 2, 2], [1, 0, 0, 0, 0, 0], [1, 1, 2, 2, 2, 2]),
    ],
)
def test_win_stay_stays_while_right_and_takes_the_next_when_wrong(
    labels: list[int], delays: list[int] | None, expected: list[int]
) -> None:
    said = np.repeat([[1], [2], [3]], 6, axis=1)
    answers = BaselineRun([WinStay()]).add(log_of(said, labels, delays))

    assert answers["win-stay"].tolist() == expected


class Column(base.Classifier):
    """A member for River that says what its function says, and cannot be taught."""

    place = 0

    def learn_one(self, x: dict[int, int], y: int) -> None:
        """Learn nothing."""

    def predict_one(self, x: dict[int, int]) -> int:
        return x[self.place]


@pytest.mark.parametrize("classes", [2, 3])
def test_online_boosting_has_the_sums_of_river_whatever_river_draws(classes: int) -> None:
    said, labels = stream([0.5, 0.9, 0.7, 0.6], 500, classes=classes, seed=4)
    theirs = ensemble.AdaBoostClassifier(Column(), n_models=4, seed=1)
    for place, member in enumerate(theirs):
        member.place = place
    ours = OzaRussell(4)
    BaselineRun([ours]).add(log_of(said, labels))
    for votes, label in zip(said.T.tolist(), labels.tolist(), strict=True):
        theirs.learn_one(dict(enumerate(votes)), label)

    assert ours.right == pytest.approx([theirs.correct_weight[k] for k in range(4)])
    assert ours.wrong == pytest.approx([theirs.wrong_weight[k] for k in range(4)])
