"""A function without an answer in some rows is an arm that is unavailable there."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.errors import ConfigError
from golden.configurations import PRESETS, TABLES, config_of, log_of

DOWN = slice(40, 90)
NAMED = ("slot", "learner", "function", "prediction", "arm")


def functions_of(learner: str) -> list[str]:
    """Return the functions of site0, site1 or site2."""
    place = int(learner[-1])
    return [f"f{2 * place}", f"f{2 * place + 1}"]


def log_with_gaps(*, everywhere: bool = False, nowhere: bool = False) -> dict[str, Any]:
    """Make a log; f0 is down for 50 rows, and site2 bought no function before row 60."""
    rng = np.random.default_rng(3)
    label = rng.integers(0, 2, 150)
    right = rng.random((6, 150)) < np.array([0.9, 0.6, 0.7, 0.6, 0.9, 0.6])[:, None]
    answers = np.where(right, label, 1 - label).astype(float)
    if everywhere:
        answers[:, DOWN] = np.nan
    elif not nowhere:
        answers[0, DOWN] = np.nan
        answers[4:, :60] = np.nan
    sites = rng.integers(0, 3, 150)
    columns = {f"f{k}": row for k, row in enumerate(answers)}
    return {"label": label, "x": rng.random(150), "site": [f"site{k}" for k in sites], **columns}


def trace(
    policy: Any, log: dict[str, Any], revealed: str | None = None, **learner: Any
) -> covey.Trace:
    sites = [f"site{k}" for k in range(3)]
    learners = [
        {
            "name": name,
            "functions": functions_of(name),
            "peers": {other: 0.05 for other in sites if other != name},
            **learner,
        }
        for name in sites
    ]
    data = {"context": ["x"], "at": "site", "missing": "unavailable"}
    data |= {} if revealed is None else {"revealed": revealed}
    config = {"data": data, "policy": policy, "learner": learners}
    return covey.replay(config, log).trace


POLICIES = [{"preset": "auto"}, {"preset": "cos", "slices": 2}, {"preset": "dcza"}]
POLICIES += [{"preset": "share-ucb", "slices": 2}, {"preset": "support.own_policies:CellUCB"}]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy["preset"]))
@pytest.mark.parametrize("more", [{}, {"free": True}, {"answer-wait": 1, "answer-delay": 2}])
def test_no_function_without_an_answer_is_chosen(policy: Any, more: dict[str, Any]) -> None:
    log = log_with_gaps()
    columns = trace(policy, log, **more).columns()

    for slot, learner, function, said, arm in zip(*map(columns.get, NAMED), strict=True):
        own = [log[name][slot - 1] for name in functions_of(learner)]
        if np.isnan(own).all() and more.get("answer-wait"):
            continue  # peers answer too late, and nobody else is there
        assert said == log[function][slot - 1]
        assert arm != "f0" or slot - 1 not in range(DOWN.start, DOWN.stop)
    tried = [slot for slot, arm in zip(columns["slot"], columns["arm"], strict=True) if arm == "f0"]
    assert max(tried) > DOWN.stop


def test_a_log_without_gaps_is_decided_as_without_the_key() -> None:
    log = log_with_gaps() | {f"f{k}": np.zeros(150) for k in range(6)}
    config = {"data": {"context": ["x"]}, "learner": [{"name": "a", "functions": ["f0", "f1"]}]}
    with_key = {**config, "data": {"context": ["x"], "missing": "unavailable"}}

    assert covey.replay(config, log).trace.columns() == covey.replay(with_key, log).trace.columns()


def test_a_row_that_nobody_can_answer_is_wrong_and_teaches_nothing() -> None:
    policy = {"preset": "cos", "slices": 2}
    hidden = np.ones(150, int)
    hidden[DOWN] = 0
    nobody = trace(policy, log_with_gaps(everywhere=True))
    unlabelled = trace(policy, {**log_with_gaps(nowhere=True), "seen": hidden}, revealed="seen")
    is_down = (nobody.slot > DOWN.start) & (nobody.slot <= DOWN.stop)

    assert (set(nobody.prediction[is_down]), set(nobody.correct[is_down])) == ({-1}, {0})
    assert (nobody.arm == unlabelled.arm).all()
    assert (nobody.phase == unlabelled.phase).all()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("title", TABLES["extensions"])
def test_gaps_are_taken_with_every_extension_but_ensembles(preset: str, title: str) -> None:
    extension = TABLES["extensions"][title]
    config = config_of(preset, extension)
    config["data"]["missing"] = "unavailable"
    log, rng = log_of(config), np.random.default_rng(2)
    for name in (f"f{k}" for k in range(6)):
        log[name] = [None if rng.random() < 0.2 else said for said in log[name]]
    if "ensemble" in config:
        with pytest.raises(ConfigError, match="missing"):
            covey.replay(config, log)
    elif preset not in extension.get("refused", {}) and "replay" not in extension.get(
        "without", {}
    ):
        said = covey.replay(config, log).trace.prediction
        assert (said < 0).mean() < 0.06


def test_a_missing_prediction_is_refused_without_the_key() -> None:
    config = {"learner": [{"name": "a", "functions": ["f0"]}]}

    with pytest.raises(covey.DataError, match='row 41: .*set missing = "unavailable"'):
        covey.replay(config, log_with_gaps())
