"""What every baseline must keep: it hears functions, learns from labels that come, and no others.

River's are the real ones.
"""

import numpy as np
import pytest

from covey.data.logs import EncodedLog
from covey.replay.baselines import BASELINES, BaselineRun, make
from support.streams import cut, log_of, stream

RATES = (0.4, 0.9, 0.6)
SLOTS = 240
every_baseline = pytest.mark.parametrize("name", BASELINES)
few_or_many_classes = pytest.mark.parametrize("classes", [2, 4])


def answers(name: str, *logs: EncodedLog, functions: int = 3, seed: int = 5) -> list[int]:
    contest = BaselineRun(make([name], functions=functions, seed=seed))
    return [one for log in logs for one in contest.add(log)[name].tolist()]


def log_with_delays(classes: int, seed: int = 1) -> EncodedLog:
    """A log in which one label in five never comes, and others are up to 30 slots late."""
    rng = np.random.default_rng(seed)
    said, labels = stream(RATES, SLOTS, classes=classes, seed=seed)
    delays = np.where(rng.random(SLOTS) < 0.2, -1, rng.integers(0, 2, SLOTS))
    return log_of(said, labels, delays * rng.integers(1, 30, SLOTS))


@few_or_many_classes
@every_baseline
def test_the_same_seed_gives_the_same_answers(name: str, classes: int) -> None:
    log = log_with_delays(classes)

    assert answers(name, log) == answers(name, log)


@few_or_many_classes
@every_baseline
def test_every_answer_is_a_prediction_or_a_label_seen_so_far(name: str, classes: int) -> None:
    # Here the labels are classes that no function knows in the first half of the log.
    said, labels = stream(RATES, SLOTS, classes=classes, seed=2)
    said[:, : SLOTS // 2] += classes
    given = answers(name, log_of(said, labels))
    seen = [{*said[:, : t + 1].flat, *labels[:t]} for t in range(SLOTS)]

    assert all(one in known for one, known in zip(given, seen, strict=True))


@every_baseline
def test_a_label_that_never_comes_cannot_matter(name: str) -> None:
    said, labels = stream(RATES, SLOTS, classes=3, seed=3)
    is_hidden = np.random.default_rng(3).random(SLOTS) < 0.5
    delays = np.where(is_hidden, -1, 0)
    others = np.where(is_hidden, (labels + 1) % 3, labels)

    assert answers(name, log_of(said, labels, delays)) == answers(
        name, log_of(said, others, delays)
    )


@every_baseline
def test_a_label_cannot_matter_before_it_comes(name: str) -> None:
    said, labels = stream(RATES, SLOTS, classes=3, seed=4)
    late = np.zeros(SLOTS, int)
    late[:50] = 100
    others = labels.copy()
    others[:50] = (labels[:50] + 1) % 3
    one, other = (answers(name, log_of(said, told, late)) for told in (labels, others))

    assert one[:101] == other[:101]


@few_or_many_classes
@every_baseline
def test_chunks_do_not_matter(name: str, classes: int) -> None:
    log = log_with_delays(classes)

    assert answers(name, *cut(log, [1, 70, 71, 200])) == answers(name, log)


@every_baseline
def test_an_ensemble_with_one_function_that_is_always_right_is_soon_right(name: str) -> None:
    rng = np.random.default_rng(6)
    labels = np.full(1_600, 1)
    said = rng.integers(0, 2, (3, 1_600))
    said[1] = labels
    given = np.array(answers(name, log_of(said, labels)))

    # An epsilon of 0.1 costs 3 in 100: two functions in three are wrong half of the time.
    assert np.mean(given[1_000:] != 1) < 0.06
