"""Real and generated streams with all their features as contexts: the default policy and others.

python experiments/streams/run.py            # writes README.md; a stream a line while it runs
python experiments/streams/run.py digits wine --draws 1

Four sites have two classifiers each. On a hard stream each knows one region of the features only;
on an easy one all are trained on half of the rows before the stream, and are nearly perfect. An
answer of a peer costs 0.05. A row arrives at a random site.
"""

import argparse
import csv
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from river import datasets as river
from river.datasets import synth
from sklearn import datasets as sklearn
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import covey

PAGE = Path(__file__).with_name("README.md")
SITES, FUNCTIONS, PRICE = 4, 2, 0.05
MOST_TRAINING = 4_000  # rows before the stream
NAMES = [f"site{k}" for k in range(SITES)]
Rows = tuple[np.ndarray, np.ndarray]  # features, labels


def _of_river(rows: Iterator[tuple[dict[str, Any], Any]], count: int) -> Rows:
    points, labels = zip(*islice(rows, count), strict=True)
    numbers = np.array([[float(value) for value in point.values()] for point in points])
    return numbers, np.unique([str(label) for label in labels], return_inverse=True)[1]


def _of_sklearn(load: Callable[[], Any]) -> Rows:
    bunch = load()
    return bunch.data, bunch.target


def _electricity(count: int, first: int = 0) -> Rows:
    """Return rows of the Electricity stream in the folder COVEY_DATA."""
    path = Path(os.environ["COVEY_DATA"], "elec.csv.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [*islice(csv.reader(file), first + 1, first + count + 1)]
    numbers = np.array([[float(value) for value in line[:-1]] for line in lines])
    return numbers, np.unique([line[-1] for line in lines], return_inverse=True)[1]


def _agrawal() -> Any:
    parts = [synth.Agrawal(classification_function=k, seed=4, perturbation=0.1) for k in (2, 5)]
    return synth.ConceptDriftStream(*parts, position=6_000, width=500, seed=4)


class Stream(NamedTuple):
    """Where rows come from, how many are played, and whether functions are nearly perfect."""

    load: Callable[[], Rows]
    rows: int
    is_easy: bool = False
    is_ordered: bool = False  # rows stay in their order, which may change what is right


LED = {"noise_percentage": 0.1, "irrelevant_features": True, "n_drift_features": 3}
PLANE = {"n_features": 20, "n_drift_features": 4, "mag_change": 0.0005, "noise_percentage": 0.05}
TREE = {"n_num_features": 8, "n_cat_features": 0}
BALLS = {"n_classes": 5, "n_features": 12, "n_centroids": 40}
STREAMS = {
    "electricity": Stream(lambda: _electricity(20_000), 12_000, is_ordered=True),
    "phishing": Stream(lambda: _of_river(iter(river.Phishing()), 5_000), 800),
    "digits": Stream(lambda: _of_sklearn(sklearn.load_digits), 1_200),
    "bananas": Stream(lambda: _of_river(iter(river.Bananas()), 6_000), 3_600),
    "waveform": Stream(
        lambda: _of_river(iter(synth.Waveform(seed=1, has_noise=True)), 9_000), 6_000
    ),
    "led": Stream(
        lambda: _of_river(iter(synth.LEDDrift(seed=2, **LED)), 9_000), 6_000, is_ordered=True
    ),
    "hyperplane": Stream(
        lambda: _of_river(iter(synth.Hyperplane(seed=3, **PLANE)), 9_000), 6_000, is_ordered=True
    ),
    "balls": Stream(
        lambda: _of_river(iter(synth.RandomRBF(seed_model=5, seed_sample=5, **BALLS)), 9_000), 6_000
    ),
    "segments": Stream(lambda: _of_river(iter(river.ImageSegments()), 5_000), 1_600),
    "agrawal": Stream(lambda: _of_river(iter(_agrawal()), 9_000), 6_000, is_ordered=True),
    "cancer": Stream(lambda: _of_sklearn(sklearn.load_breast_cancer), 390, is_easy=True),
    "easy phishing": Stream(lambda: _of_river(iter(river.Phishing()), 5_000), 800, is_easy=True),
    "late electricity": Stream(lambda: _electricity(16_000, 25_000), 10_000, is_ordered=True),
    "trees": Stream(
        lambda: _of_river(
            iter(synth.RandomTree(seed_tree=3, seed_sample=3, n_classes=3, **TREE)), 9_000
        ),
        6_000,
    ),
    "easy trees": Stream(
        lambda: _of_river(iter(synth.RandomTree(seed_tree=4, seed_sample=4, **TREE)), 9_000),
        3_000,
        is_easy=True,
    ),
    "easy digits": Stream(lambda: _of_sklearn(sklearn.load_digits), 1_200, is_easy=True),
    "easy waveform": Stream(
        lambda: _of_river(iter(synth.Waveform(seed=11)), 9_000), 6_000, is_easy=True
    ),
    "easy agrawal": Stream(
        lambda: _of_river(
            iter(synth.Agrawal(classification_function=6, seed=9, perturbation=0.05)), 9_000
        ),
        1_500,
        is_easy=True,
    ),
    "wine": Stream(lambda: _of_sklearn(sklearn.load_wine), 120, is_easy=True),
}
# Constants of the policy were chosen while these were looked at.
CHOSEN_ON = ("electricity", "phishing", "digits", "bananas", "waveform", "led", "hyperplane")
CHOSEN_ON += ("balls", "cancer", "easy phishing")


class Log(NamedTuple):
    """A stream with the answers of all functions."""

    contexts: np.ndarray
    answers: np.ndarray  # function, row
    labels: np.ndarray
    at: np.ndarray  # the site of each row


def log_of(stream: Stream, draw: int) -> Log:
    """Train the functions on the first rows, and let them answer the others."""
    points, labels = stream.load()
    rng = np.random.default_rng(draw)
    if not stream.is_ordered:
        order = rng.permutation(len(points))
        points, labels = points[order], labels[order]
    count = min(3 * len(points) // 10, MOST_TRAINING)
    early, late = slice(count), slice(count, count + stream.rows)
    scaled = np.clip(StandardScaler().fit(points[early]).transform(points), -8, 8)
    total = SITES * FUNCTIONS
    regions = KMeans(total, n_init=3, random_state=draw).fit(scaled[early]).labels_
    answers = []
    for k in rng.permutation(total).tolist():
        rows = rng.permutation(count)[: max(count // 2, 20)]
        if not stream.is_easy:
            rows = np.r_[
                np.flatnonzero(regions == k), rng.permutation(count)[: max(count // 20, 10)]
            ]
        if len(np.unique(labels[early][rows])) < 2:
            rows = np.r_[rows, rng.permutation(count)[: count // 10]]
        tree = DecisionTreeClassifier(max_depth=8, random_state=draw)
        model = tree if k % 2 else LogisticRegression(max_iter=500)
        answers.append(model.fit(scaled[early][rows], labels[early][rows]).predict(scaled[late]))
    low, high = points[early].min(axis=0), points[early].max(axis=0)
    contexts = np.clip((points[late] - low) / np.maximum(high - low, 1e-9), 0, 1)
    at = rng.integers(0, SITES, len(contexts))
    return Log(contexts, np.array(answers), labels[late], at)


def config() -> dict[str, Any]:
    """Return the four sites, each of which may ask all others."""
    own = {name: [f"{name}.{k}" for k in range(FUNCTIONS)] for name in NAMES}
    peers = {name: {other: PRICE for other in NAMES if other != name} for name in NAMES}
    return {
        "learner": [{"name": name, "functions": own[name], "peers": peers[name]} for name in NAMES]
    }


def prices() -> np.ndarray:
    """Return what each site pays for each function."""
    owner = np.repeat(np.arange(SITES), FUNCTIONS)
    return np.where(owner[None] == np.arange(SITES)[:, None], 0.0, PRICE)


def best_single(log: Log) -> float:
    """Return the points of the best function for each site in hindsight, with its price."""
    wrong = log.answers != log.labels
    lost = [
        (wrong[:, log.at == site].mean(axis=1) + prices()[site]).min() * (log.at == site).mean()
        for site in range(SITES)
    ]
    return 100 * float(sum(lost))


def lin_ucb(log: Log, width: float = 0.5) -> float:
    """Return the points of one linear bandit that sees the rows and labels of all sites."""
    points = log.contexts
    spread = points[:300].std(axis=0) + 1e-6
    scaled = np.clip((points - points[:300].mean(axis=0)) / spread, -4, 4)
    features = np.c_[np.ones(len(points)), scaled / points.shape[1] ** 0.5]
    size, total = features.shape[1], len(log.answers)
    inverse, weights = np.tile(np.eye(size), (total, 1, 1)), np.zeros((total, size))
    cost, lost = prices(), 0.0
    for row, point in enumerate(features):
        reach = inverse @ point
        bound = 0.5 + weights @ point + width / 2 * np.sqrt(np.maximum(reach @ point, 0))
        arm = int((bound - cost[log.at[row]]).argmax())
        gain = float(log.answers[arm, row] == log.labels[row])
        lost += 1 - gain + cost[log.at[row], arm]
        error = gain - 0.5 - weights[arm] @ point
        weights[arm] += reach[arm] * error / (1 + reach[arm] @ point)
        inverse[arm] -= np.outer(reach[arm], reach[arm]) / (1 + reach[arm] @ point)
    return 100 * lost / len(points)


def play(log: Log) -> dict[str, float]:
    """Return errors and costs in points, of the default policy and of what it is compared with."""
    result = covey.replay(
        config(),
        predictions=log.answers,
        labels=log.labels,
        contexts=log.contexts,
        at=[NAMES[site] for site in log.at.tolist()],
    )
    worth, total = result.outcome.contexts, result.summary().total
    assert worth is not None
    assert total.alone_percent is not None
    return {
        "auto": worth.total.given_points,
        "no contexts": worth.total.none_points,
        "alone": total.alone_percent,
        "LinUCB": lin_ucb(log),
        "best single": best_single(log),
    }


COLUMNS = ("auto", "LinUCB", "best single", "alone", "no contexts")


def line_of(name: str, log: Log, runs: Sequence[dict[str, float]]) -> str:
    """Return a line of the table: means over draws, the smallest in bold."""
    means = {column: float(np.mean([run[column] for run in runs])) for column in COLUMNS}
    least = min(means.values())
    shown = [f"**{mean:.2f}**" if mean == least else f"{mean:.2f}" for mean in means.values()]
    size = (f"{len(log.labels):,}", str(log.contexts.shape[1]))
    return " | ".join(["", name, *size, *shown, ""]).strip()


def page(lines: dict[str, str], draws: int) -> str:
    """Return the page."""
    head = "| stream | rows | features | " + " | ".join(COLUMNS) + " |\n|---|" + "--:|" * 7
    chosen = "\n".join(line for name, line in lines.items() if name in CHOSEN_ON)
    other = "\n".join(line for name, line in lines.items() if name not in CHOSEN_ON)
    return f"""\
# Streams with many features

Made by `python experiments/streams/run.py --draws {draws}`; do not edit by hand.

Errors and costs in points, hundredths of a right answer per row, means of {draws} draws of
functions and arrivals. Four sites have two classifiers each; an answer of a peer costs {PRICE}.
*auto* is the default policy with all features as contexts. *LinUCB* is one linear bandit that sees
the rows and labels of all sites at once. *best single* is the best function for each site in
hindsight, with its price. *alone* is auto without peers, *no contexts* is auto without contexts.

Streams on which constants of the policy were chosen:

{head}
{chosen}

Others:

{head}
{other}
"""


def main() -> None:
    """Play the named streams, or all and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("streams", nargs="*", choices=[*STREAMS, []], metavar="STREAM")
    parser.add_argument("--draws", type=int, default=3, help="of functions (default: 3)")
    parser.add_argument("--json", action="store_true", help="print the points of each draw")
    options = parser.parse_args()
    lines = {}
    for name in options.streams or STREAMS:
        if "electricity" in name and "COVEY_DATA" not in os.environ:
            print(f"{name} is left out: COVEY_DATA names no folder", file=sys.stderr)
            continue
        logs = [log_of(STREAMS[name], 100 + draw) for draw in range(options.draws)]
        runs = [play(log) for log in logs]
        lines[name] = line_of(name, logs[0], runs)
        print(json.dumps({name: runs}) if options.json else lines[name], flush=True)
    if not options.streams:
        PAGE.write_text(page(lines, options.draws), encoding="utf-8")
        print(f"written: {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    main()
