"""Ensembles in a replay equal the class driven directly, and are reported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.data import tables
from covey.replay.outcome import EnsembleNumbers, Outcome
from covey.report.page import replay_page
from covey.report.results import Result
from support.outcomes import numbers_of
from support.replays import play

Columns = dict[str, list[Any]]
Config = dict[str, Any]

SITES = ["north", "south", "west"]
FUNCTIONS = {"north": ["nb", "tree"], "south": ["svm"], "west": ["knn"]}
CLASSES = ["ham", "spam", "scam"]


def config_of(ensemble: Config | None, *, label_wait: int | None = 30) -> Config:
    """Return a network of three voters; `far` has no arrivals and does not vote."""
    learners = [{"name": name, "functions": FUNCTIONS[name], "peers": {}} for name in SITES]
    away = {"name": "far", "functions": ["rules"], "arrivals": False, "peers": {}}
    table: Config = {
        "data": {"context": ["hour"], "revealed": "seen", "delay": "late"},
        "policy": {
            "preset": "share-ucb",
            "slices": 3,
            **({} if label_wait is None else {"label-wait": label_wait}),
        },
        "learner": [*learners, away],
    }
    return table if ensemble is None else {**table, "ensemble": ensemble}


def stream(slots: int, *, seed: int = 5) -> Columns:
    """Make a log of three classes with labels that are late, too late, hidden and empty."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, slots)
    labels[:3] = [0, 1, 2]  # so that the classes are met in the order above, which decides ties
    wrong = rng.random((5, slots)) < np.array([[0.4], [0.3], [0.25], [0.2], [0.1]])
    said = (labels + wrong * rng.integers(1, 3, (5, slots))) % 3
    seen = rng.random(slots) < 0.8
    seen[:3] = True
    is_empty = ~seen & (rng.random(slots) < 0.5)
    named = np.array(CLASSES)
    return {
        "hour": rng.random(slots).tolist(),
        "label": np.where(is_empty, "", named[labels]).tolist(),
        "seen": seen.astype(int).tolist(),
        "late": rng.choice([0, 0, 1, 7, 50], slots).tolist(),
        **dict(zip(["nb", "tree", "svm", "knn", "rules"], named[said].tolist(), strict=True)),
    }


def ensemble_of(outcome: Outcome) -> EnsembleNumbers:
    assert outcome.ensemble is not None
    return outcome.ensemble.numbers


def test_weights_per_cell_survive_a_new_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epoch of an unknown horizon has a finer grid, and numbers its cells from 0."""
    config = config_of({"update": "hedge", "weights": "cell"})
    config["policy"] = {"preset": "cos", "horizon": "doubling", "first-epoch": 16}
    whole = play(stream(400), config, tmp_path)
    monkeypatch.setattr(tables, "ROWS_PER_CHUNK", 37)

    assert ensemble_of(play(stream(400), config, tmp_path)) == ensemble_of(whole)
    assert {name.split(":")[0] for name in ensemble_of(whole).weights} > {"g2", "g3"}


def test_exploitation_errors_are_those_of_slots_in_which_every_member_exploits(
    tmp_path: Path,
) -> None:
    """North explores each of its two functions once, the others their one; then all exploit."""
    config: Config = {
        "policy": {"preset": "cos", "explore": {"scale": 0.0, "power": 0.0}},
        "ensemble": {"update": "majority"},
        "learner": [{"name": name, "functions": FUNCTIONS[name]} for name in SITES],
    }
    columns = {
        "label": [0, 1, 0, 1],
        "nb": [0, 1, 1, 1],
        "tree": [0, 1, 1, 1],
        "svm": [1, 1, 1, 1],
        "knn": [1, 1, 1, 1],
    }
    found = ensemble_of(play(columns, config, tmp_path))

    # Wrong in slots 1 (while exploring) and 3.
    assert (found.errors, found.exploit_errors) == (2, 1)


def test_labels_later_than_the_label_wait_do_not_train(tmp_path: Path) -> None:
    columns = {**stream(100), "seen": [1] * 100, "late": [4] * 100}
    columns["label"] = [label or "ham" for label in columns["label"]]
    waits = [
        ensemble_of(play(columns, config_of({"update": "hedge"}, label_wait=wait), tmp_path))
        for wait in (3, 4, None)
    ]

    assert [one.weights["all"]["north"] == 1 / 3 for one in waits] == [True, False, False]


def test_the_base_may_be_named(tmp_path: Path) -> None:
    """Each of the votes weighs a third at first, so that nothing but the base is answered."""
    columns = {"label": ["ham"], "nb": ["ham"], "svm": ["spam"], "knn": ["scam"]}
    learners = [{"name": name, "functions": FUNCTIONS[name][:1]} for name in SITES]
    bases: list[Config] = [{}, {"base": "ham"}, {"base": "spam"}]
    errors = [
        ensemble_of(play(columns, {"ensemble": base, "learner": learners}, tmp_path)).errors
        for base in bases
    ]

    assert errors == [0, 0, 1]


def test_a_base_that_the_log_does_not_hold_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"base is 'hamm', which is not a label of the log"):
        play(stream(50), config_of({"base": "hamm"}), tmp_path)


def test_mean_weights_are_those_of_the_cells_by_their_slots(tmp_path: Path) -> None:
    columns = stream(300)
    outcome = play(columns, config_of({"update": "hedge", "weights": "cell"}), tmp_path)
    found, voted = ensemble_of(outcome), outcome.ensemble
    assert voted is not None
    visits = np.bincount((np.array(columns["hour"]) * 3).astype(int))
    souths = [found.weights[f"g3:{cell}"]["south"] for cell in range(3)]

    assert voted.mean_weights["south"] == pytest.approx(np.average(souths, weights=visits))


def test_the_ensemble_is_reported_as_text_and_on_the_page(tmp_path: Path) -> None:
    outcome = play(stream(200), config_of({"update": "hedge"}), tmp_path)
    found = ensemble_of(outcome)
    said = " ".join(Result(outcome).table().split())
    page = replay_page(outcome, title="x")
    section = page[page.index("<h2>Ensemble</h2>") : page.index("<h2>Error over time</h2>")]

    assert f"(hedge, global weights) was wrong on {found.error_percent:.2f}%" in said
    assert f"members, {found.best_member}, on {found.best_member_error_percent:.2f}%" in said
    assert "cooperation" not in said
    assert section.count("<tr>") == 1 + 3 + 1
    assert numbers_of(outcome)["ensemble"]["weights"] == found.weights


def test_without_true_labels_the_ensemble_is_not_judged(tmp_path: Path) -> None:
    columns = {**stream(50), "seen": [0] * 50, "label": [""] * 50}
    outcome = play(columns, config_of({}), tmp_path)

    assert "The gain of the ensemble is unknown" in Result(outcome).table()
    assert numbers_of(outcome)["ensemble"]["error_percent"] is None
    assert "The ensemble" in replay_page(outcome, title="x")
