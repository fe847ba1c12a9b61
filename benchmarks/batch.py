"""Rows a second in a batch against one at a time, over four scikit-learn functions.

python benchmarks/batch.py [--quick]

The context says which of four rules labels a row, and each function was trained on the rows of one
rule, so once that is learnt every function gets about a quarter of the rows. Both ways predict
and then report all labels; the best of all rounds counts.
"""

import argparse
import os
from collections import Counter
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import covey
from covey.functions.function import frozen
from covey.network.network import LocalSite
from covey.site.requests import Prediction

ROWS = 1_024
FEATURES = 45
TRAINING_ROWS = 1_000
BATCHES_BEFORE = 8
GOAL = 50.0
ROUNDS = {"full": 20, "quick": 4}


class Stream(NamedTuple):
    """Rows, their contexts and their labels."""

    rows: np.ndarray
    contexts: np.ndarray
    labels: np.ndarray


Way = Callable[[LocalSite, Stream], list[Prediction]]


def main() -> int:
    """Measure both ways in turns, and say whether the goal is reached."""
    parser = argparse.ArgumentParser(description="Measure batches against one row at a time.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = ROUNDS["quick" if parser.parse_args().quick else "full"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rng = np.random.default_rng(0)
    rules = rng.normal(size=(4, FEATURES))
    models = _models(rng, rules)
    seconds = {way: _best(way, models, rng, rules, rounds) for way in (in_a_batch, one_at_a_time)}
    ratio = seconds[one_at_a_time] / seconds[in_a_batch]
    for way, best in seconds.items():
        name = way.__name__.replace("_", " ")
        print(f"{name:14}{ROWS / best:10,.0f} rows a second{1e6 * best / ROWS:10.2f} us a row")
    verdict = "Reached" if ratio >= GOAL else "Missed"
    print(f"{verdict}: {ratio:.0f}x as many rows a second in a batch; the goal is {GOAL:g}x")
    return 0


def in_a_batch(site: LocalSite, stream: Stream) -> list[Prediction]:
    """Predict and learn all rows at once."""
    answers = site.predict_batch(stream.rows, stream.contexts)
    site.learn_batch([answer.ticket for answer in answers], stream.labels)
    return answers


def one_at_a_time(site: LocalSite, stream: Stream) -> list[Prediction]:
    """Predict row by row, then learn label by label."""
    contexts = stream.contexts.tolist()
    rows = zip(stream.rows, contexts, strict=True)
    answers = [site.predict(row, context) for row, context in rows]
    for answer, label in zip(answers, stream.labels.tolist(), strict=True):
        site.learn(answer.ticket, label)
    return answers


def _models(rng: np.random.Generator, rules: np.ndarray) -> dict[str, object]:
    models = {
        "naive Bayes": GaussianNB(),
        "logistic": LogisticRegression(max_iter=1_000),
        "tree": DecisionTreeClassifier(max_depth=8, random_state=0),
        "forest": RandomForestClassifier(n_estimators=10, random_state=0),
    }
    for place, model in enumerate(models.values()):
        rows = rng.normal(size=(TRAINING_ROWS, FEATURES))
        model.fit(rows, (rows @ rules[place] > 0).astype(int))
    return {name: frozen(model) for name, model in models.items()}


def _best(
    way: Way, models: dict[str, object], rng: np.random.Generator, rules: np.ndarray, rounds: int
) -> float:
    config = {
        "policy": {"preset": "cos", "slices": 4},
        "learner": [{"name": "site", "functions": list(models)}],
    }
    site = covey.Network(config, functions=models, dimension=1)["site"]
    for _ in range(BATCHES_BEFORE):
        in_a_batch(site, _draw(rng, rules))
    seconds = []
    for _ in range(rounds):
        stream = _draw(rng, rules)
        begin = process_time()
        answers = way(site, stream)
        seconds.append(process_time() - begin)
    shares = ", ".join(f"{arm} {count}" for arm, count in Counter(a.arm for a in answers).items())
    print(f"{way.__name__.replace('_', ' ')}: of {ROWS:,} rows {shares}")
    return min(seconds)


def _draw(rng: np.random.Generator, rules: np.ndarray) -> Stream:
    rows = rng.normal(size=(ROWS, FEATURES))
    contexts = rng.random((ROWS, 1))
    chosen = rules[(4 * contexts[:, 0]).astype(int)]
    return Stream(rows, contexts, ((rows * chosen).sum(axis=1) > 0).astype(int))


if __name__ == "__main__":
    raise SystemExit(main())
