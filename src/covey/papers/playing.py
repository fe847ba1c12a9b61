"""A case -> what learner 1 came to in it, in percent of the slots."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from covey import runs
from covey.backtest import replay
from covey.baselines import make
from covey.boosting import AdaBoost
from covey.contest import Contest
from covey.encoding import Log
from covey.ensemble import Ensemble
from covey.environments import environment_from
from covey.papers.cases import FUNCTIONS, Case, config
from covey.papers.material import Material, load
from covey.policies import settings_from
from covey.traces import Trace
from covey.types import Array, Phase

POINTS = 80  # of a curve
RIVER = ("river-epsilon-greedy", "river-ucb", "river-thompson", "river-forest")


class Played(msgspec.Struct, frozen=True):
    """What came of a case, by name; curves are percentages in equal stretches of time."""

    case: Case
    numbers: dict[str, float]
    curves: dict[str, list[float]] = {}


def play(case: Case, folder: Path) -> Played:
    """Play a case on the material in `folder`, or in a world that needs none."""
    if case.does == "bumps":
        return _play_bumps(case)
    return _PLAYS[case.does](case, load(folder, case.trial, case.slots))


def _play_replay(case: Case, material: Material) -> Played:
    trace = _replay(case, material)
    is_first = trace.learner == 0
    phase, arm = trace.phase[is_first], trace.arm[is_first]
    is_wrong = trace.correct[is_first] == 0
    is_exploit = phase == Phase.EXPLOIT
    marks = {"error": is_wrong, "training": phase == Phase.TRAIN}
    marks |= {"exploration": phase == Phase.EXPLORE, "exploitation error": is_wrong & is_exploit}
    owner = _owner(arm, case.learners)
    numbers = {name: _percent(mark) for name, mark in marks.items()}
    numbers["asked"] = _percent(arm >= FUNCTIONS * case.learners)
    numbers["net reward"] = 100 - numbers["error"] - case.price * numbers["asked"]
    for place in range(case.learners):
        numbers[f"training {place + 1}"] = _percent(marks["training"] & (owner == place))
        numbers[f"selection {place + 1}"] = _percent((owner == place)[is_exploit])
    curves = {name: _curve(mark) for name, mark in marks.items()}
    return Played(case, numbers, curves)


def _play_ensemble(case: Case, material: Material) -> Played:
    """Let the learners vote, each for itself; an exploitation error is one where all exploit."""
    trace = _replay(case, material)
    names = [learner["name"] for learner in config(case)["learner"]]
    ensemble = Ensemble(names, weights=case.weights)
    shape = (case.slots, len(names))
    votes, cells = trace.prediction.reshape(shape), trace.cell.reshape(shape)[:, 0]
    answers = []
    rows = zip(votes.tolist(), material.labels.tolist(), cells.tolist(), strict=True)
    for said, label, cell in rows:
        answers.append(ensemble.elect(said, cell))
        ensemble.move(said, label, cell)
    is_wrong = np.array(answers) != material.labels
    is_exploit = (trace.phase.reshape(shape) == Phase.EXPLOIT).all(axis=1)
    numbers = {"error": _percent(is_wrong), "exploitation error": _percent(is_wrong & is_exploit)}
    return Played(case, numbers)


def _play_bumps(case: Case) -> Played:
    """Play in a world that stays as it is: the mean regret of a learner, per 100 slots.

    Instances at all learners are the same for all; the curve is the regret up to then, in slots.
    """
    correlation = "best" if case.arrivals == "all" else "worst"
    run = runs.play(
        environment_from({"name": "bumps", "correlation": correlation}),
        settings_from(config(case)["policy"]),
        seed=case.seed,
        horizon=case.slots,
        checkpoints=[(point + 1) * case.slots // POINTS for point in range(POINTS)],
    )
    curve = np.sum(list(run.regret.values()), axis=0) / run.learners
    numbers = {"regret": 100 * float(curve[-1]) / case.slots}
    return Played(case, numbers, {"regret": curve.round(4).tolist()})


def _play_yardsticks(case: Case, material: Material) -> Played:
    """Let what needs no weights answer, and say how often each function errs by itself."""
    functions = FUNCTIONS * case.learners
    said = material.said(case.seed, functions)
    contest = Contest(make(("previous-label", "win-stay"), functions=functions))
    is_seen = np.random.default_rng([case.seed, functions]).random(case.slots) < case.labels
    answers = contest.add(_log(material.labels, said, is_seen))
    numbers = {name: _percent(given != material.labels) for name, given in answers.items()}
    errors = [_percent(row != material.labels) for row in said]
    numbers |= {"best single function": min(errors)}
    numbers |= {f"function {place + 1}": error for place, error in enumerate(errors)}
    return Played(case, numbers)


def _play_boosting(case: Case, material: Material) -> Played:
    """Let AdaBoost, trained on the rows before the window, and its sliding forms answer."""
    functions = FUNCTIONS * case.learners
    names = ("sliding-adaboost-100", "sliding-adaboost-1000", "oza-russell")
    boosted = AdaBoost(functions, training=len(material.labels_before))
    contest = Contest([boosted, *make(names, functions=functions)])
    contest.add(_log(material.labels_before, material.said_before(case.seed, functions)))
    return _answered(case, material, contest)


def _play_river(case: Case, material: Material) -> Played:
    """Let what River brings answer; it begins with the window, as covey does."""
    return _answered(
        case,
        material,
        Contest(make(RIVER, functions=FUNCTIONS * case.learners, seed=case.seed)),
    )


def _answered(case: Case, material: Material, contest: Contest) -> Played:
    said = material.said(case.seed, FUNCTIONS * case.learners)
    answers = contest.add(_log(material.labels, said))
    numbers = {name: _percent(given != material.labels) for name, given in answers.items()}
    return Played(case, numbers)


_PLAYS = {
    "replay": _play_replay,
    "ensemble": _play_ensemble,
    "yardsticks": _play_yardsticks,
    "boosting": _play_boosting,
    "river": _play_river,
}


def _replay(case: Case, material: Material) -> Trace:
    return replay(
        config(case),
        predictions=material.said(case.seed, FUNCTIONS * case.learners),
        labels=material.labels,
        contexts=material.contexts[case.context],
    )


def _log(labels: Array, said: Array, is_seen: Array | None = None) -> Log:
    return Log(
        contexts=np.empty(0).data,
        predictions=said.astype(np.int32).data,
        labels=labels.astype(np.int32).data,
        at=None,
        delays=None if is_seen is None else np.where(is_seen, 0, -1).astype(np.int64).data,
        shown=None,
    )


def _owner(arm: Array, learners: int) -> Array:
    """Return the place of the learner whose functions an arm uses: an own one, or a peer's."""
    functions = FUNCTIONS * learners
    owner: Array = np.where(arm < functions, arm // FUNCTIONS, (arm - functions) % learners)
    return owner


def _percent(mark: Array) -> float:
    return 100.0 * float(mark.mean()) if len(mark) else 0.0


def _curve(mark: Any) -> list[float]:
    stretches = np.array_split(mark, min(POINTS, len(mark)))
    return [round(_percent(stretch), 4) for stretch in stretches]
