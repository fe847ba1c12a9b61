"""Replay: arrays and files alike, chunk after chunk, and what comes of labels that come late."""

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

import covey
from covey.backtest import compare_baselines, replay_file
from covey.config import load
from covey.errors import ConfigError, ContextError, DataError
from covey.traces import Trace, TraceFile
from covey.types import CellView, Outcome

Config = dict[str, Any]
Columns = dict[str, Any]

LEARNERS = [
    {"name": "north", "functions": ["nb", "tree"], "function-costs": [0.0, 0.125]},
    {"name": "south", "functions": ["svm"], "peers": {"west": 0.5, "north": 0.25}},
    {"name": "west", "functions": ["knn"], "arrivals": False},
]
NETWORK: Config = {
    "data": {"context": ["hour", "load"], "at": "site", "revealed": "seen", "delay": "late"},
    "policy": {"slices": 3, "train": {"scale": 1.0, "power": 0.0}},
    "learner": LEARNERS,
}
# One cell, and an arm is known well enough once a single label has come for it.
PATIENT: Config = {
    "policy": {"explore": {"scale": 0.0, "power": 0.0}},
    "learner": [{"name": "north", "functions": ["good", "bad"]}],
}
EVERY_KIND = pytest.mark.parametrize("kind", ["csv", "parquet"])


def stream(slots: int) -> Columns:
    """Make a log with all that one may hold: late, hidden and empty labels, rows for one site."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 3, slots)
    wrong = rng.random((4, slots)) < np.array([[0.4], [0.3], [0.2], [0.1]])
    seen = rng.random(slots) < 0.8
    is_empty = ~seen & (rng.random(slots) < 0.5)
    return {
        "label": [None if empty else int(v) for v, empty in zip(labels, is_empty, strict=True)],
        **dict(zip(["nb", "tree", "svm", "knn"], (labels + wrong) % 3, strict=True)),
        "hour": rng.random(slots),
        "load": rng.integers(0, 5, slots) / 4,
        "site": rng.choice(["north", "south"], slots),
        "seen": seen.astype(int),
        "late": rng.choice([0, 0, 1, 50], slots),
    }


def write(columns: Columns, path: Path) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(arrow.table(columns), path)
        return path
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def play(columns: Columns, config: Config, folder: Path, kind: str = "csv") -> Outcome:
    """Replay the columns as a file, and write the trace beside it."""
    path = write(columns, folder / f"log.{kind}")
    with TraceFile(folder / f"trace.{kind}") as trace:
        return replay_file(path, load(config), trace=trace)


def trace_in(folder: Path, kind: str = "csv") -> Columns:
    """Return the columns of the trace that `play` wrote; those of CSV are text."""
    path = folder / f"trace.{kind}"
    if kind == "parquet":
        return parquet.read_table(path).to_pydict()
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def play_arrays(columns: Columns, config: Config = NETWORK) -> Trace:
    data = config["data"]
    return covey.replay(
        config,
        predictions=[columns[name] for one in config["learner"] for name in one["functions"]],
        labels=columns["label"],
        contexts=np.column_stack([columns[name] for name in data["context"]]),
        **{name: columns[data[name]] for name in ("at", "revealed", "delay")},
    )


def play_patient(labels: Sequence[int], **told: Any) -> list[tuple[str, str]]:
    """Return phase and arm of every slot, where one function is always right and one never."""
    trace = covey.replay(
        PATIENT,
        predictions=[labels, [1 - label for label in labels]],
        labels=labels,
        contexts=np.empty((len(labels), 0)),
        **told,
    )
    columns = trace.columns()
    return list(zip(columns["phase"], columns["arm"], strict=True))


def as_text(columns: Columns) -> Columns:
    return {
        name: ["" if value is None else str(value) for value in values]
        for name, values in columns.items()
    }


def test_a_csv_log_gives_the_trace_of_its_arrays(tmp_path: Path) -> None:
    play(stream(300), NETWORK, tmp_path, "csv")

    assert trace_in(tmp_path, "csv") == as_text(play_arrays(stream(300)).columns())


def test_a_parquet_log_gives_the_trace_of_its_arrays(tmp_path: Path) -> None:
    play(stream(300), NETWORK, tmp_path, "parquet")

    assert trace_in(tmp_path, "parquet") == play_arrays(stream(300)).columns()


def test_csv_and_parquet_come_to_the_same(tmp_path: Path) -> None:
    outcomes = [play(stream(300), NETWORK, tmp_path, kind) for kind in ("csv", "parquet")]

    assert outcomes[0] == outcomes[1]


def test_chunks_do_not_matter(tmp_path: Path) -> None:
    columns = stream(70_000)
    play(columns, NETWORK, tmp_path, "parquet")

    assert trace_in(tmp_path, "parquet") == play_arrays(columns).columns()


def test_progress_is_told_after_every_chunk(tmp_path: Path) -> None:
    path = write(
        {"label": [1] * 70_000, "good": [1] * 70_000, "bad": [0] * 70_000}, tmp_path / "log.parquet"
    )
    told: list[tuple[float, int]] = []
    replay_file(path, load(PATIENT), progress=lambda share, slots: told.append((share, slots)))

    assert told == [(65_536 / 70_000, 65_536), (1.0, 70_000)]


def test_a_trace_is_integers_with_tables_of_names() -> None:
    trace = play_arrays(stream(50))
    named = ("learner", "cell", "phase", "arm", "function", "prediction")

    assert {getattr(trace, name).dtype.kind for name in (*named, "label", "correct")} == {"i"}
    assert {name: [trace.names[name][code] for code in getattr(trace, name)] for name in named} == {
        name: trace.columns()[name] for name in named
    }


def test_a_trace_goes_by_slot_and_then_by_learner_in_the_order_of_the_file() -> None:
    config = {"learner": [LEARNERS[1], LEARNERS[2], LEARNERS[0]]}
    trace = covey.replay(
        config, predictions=np.zeros((4, 2)), labels=[0, 0], contexts=[[0.1], [0.9]]
    )

    assert trace.columns()["slot"] == [1, 1, 2, 2]
    assert trace.columns()["learner"] == ["south", "north", "south", "north"]


def test_the_summary_is_what_the_trace_adds_up_to(tmp_path: Path) -> None:
    outcome = play(stream(400), NETWORK, tmp_path)
    trace = trace_in(tmp_path)
    for learner in outcome.learners:
        rows = [k for k, name in enumerate(trace["learner"]) if name == learner.name]
        phases = Counter(trace["phase"][k] for k in rows)
        correct = Counter(trace["correct"][k] for k in rows)

        assert (learner.slots, learner.judged) == (len(rows), correct["0"] + correct["1"])
        assert learner.errors == correct["0"]
        assert (learner.train, learner.explore, learner.exploit) == tuple(
            phases[phase] for phase in ("train", "explore", "exploit")
        )
        assert learner.arms == Counter(trace["arm"][k] for k in rows)
        assert learner.cost_total == sum(float(trace["cost"][k]) for k in rows)


def test_a_learner_without_arrivals_has_no_rows_and_helps(tmp_path: Path) -> None:
    outcome = play(stream(400), NETWORK, tmp_path)
    north, _, west = outcome.learners

    assert (west.slots, west.arms, west.cells) == (0, {}, [])
    assert north.arms["west"] > 0


def test_functions_are_judged_over_the_whole_log(tmp_path: Path) -> None:
    columns = {
        "label": [1, 1, 0, ""],
        "good": [1, 1, 0, 1],
        "bad": [0, 1, 1, 0],
        "seen": [1, 1, 1, 0],
    }
    outcome = play(columns, {**PATIENT, "data": {"revealed": "seen"}}, tmp_path)

    assert outcome.functions == {"good": 0.0, "bad": pytest.approx(200 / 3)}


def test_alone_is_the_same_network_with_nobody_to_ask(tmp_path: Path) -> None:
    columns = stream(400)
    outcome = play(columns, NETWORK, tmp_path)
    trace = play_arrays(columns, {**NETWORK, "learner": [{**one, "peers": {}} for one in LEARNERS]})
    errors = Counter(trace.learner[trace.correct == 0].tolist())

    assert [learner.alone_errors for learner in outcome.learners] == [errors[k] for k in range(3)]
    assert outcome.learners[1].alone_errors != outcome.learners[1].errors


@pytest.mark.parametrize(
    ("policy", "cell"),
    [
        ({}, "z0"),
        ({"slices": 12}, "g12"),
        ({"horizon": 20_000}, "g1"),
        ({"preset": "dcza"}, "z0"),
    ],
)
def test_no_context_is_one_cell_that_never_splits(
    tmp_path: Path, policy: Config, cell: str
) -> None:
    columns = {"label": [1] * 40, "good": [1] * 40, "bad": [0] * 40}
    play(columns, {**PATIENT, "policy": policy, "data": {"context": []}}, tmp_path)

    assert set(trace_in(tmp_path)["cell"]) == {cell}


def test_time_is_the_row_for_every_learner() -> None:
    # ln 8 is above 2: at the last row a single label is not enough. It would be at ln 2.
    config = {
        "policy": {"explore": {"scale": 1.0, "power": 0.0}},
        "learner": [{"name": name, "functions": [f"f-{name}"], "peers": {}} for name in "ab"],
    }
    trace = covey.replay(
        config,
        predictions=np.ones((2, 8)),
        labels=np.ones(8),
        contexts=np.empty((8, 0)),
        at=list("abaaaaab"),
    )
    columns = trace.columns()

    assert columns["slot"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [columns["phase"][row] for row in (1, 7)] == ["explore", "explore"]


def test_a_label_without_delay_is_known_in_the_next_slot() -> None:
    known = [("explore", "good"), ("explore", "bad"), ("exploit", "good"), ("exploit", "good")]

    assert play_patient([1, 0, 1, 0]) == play_patient([1, 0, 1, 0], delay=[0] * 4) == known


def test_a_delayed_label_is_applied_at_the_end_of_the_slot_in_which_it_is_due() -> None:
    assert play_patient([1, 0, 1, 0, 1, 0, 1, 0], delay=[2] * 8) == [
        *[("explore", "good")] * 3,
        *[("explore", "bad")] * 3,
        *[("exploit", "good")] * 2,
    ]


def test_labels_may_overtake_one_another() -> None:
    assert play_patient([1, 0, 1, 0, 1], delay=[3, 0, 1, 0, 0]) == [
        *[("explore", "good")] * 2,
        *[("explore", "bad")] * 2,
        ("exploit", "good"),
    ]


@EVERY_KIND
def test_labels_due_after_the_last_row_never_come(tmp_path: Path, kind: str) -> None:
    columns = {"label": [1, 1], "good": [1, 1], "bad": [0, 0], "late": [2, 1]}
    outcome = play(columns, {**PATIENT, "data": {"delay": "late"}}, tmp_path, kind)

    assert outcome.learners[0].cells == [CellView("g1", (), (), 2, None, None)]


def test_a_label_due_at_the_last_row_comes(tmp_path: Path) -> None:
    columns = {"label": [1, 1], "good": [1, 1], "bad": [0, 0], "late": [1, 1]}
    outcome = play(columns, {**PATIENT, "data": {"delay": "late"}}, tmp_path)

    assert outcome.learners[0].cells == [CellView("g1", (), (), 2, "good", 1.0)]


def test_hidden_labels_teach_nothing() -> None:
    decided = play_patient([1, 0, 1, 0], revealed=[0, 1, 0, 0])

    assert decided == [("explore", "good")] * 2 + [("explore", "bad")] * 2


def test_hidden_labels_count_in_the_error_and_empty_ones_do_not(tmp_path: Path) -> None:
    columns = {
        "label": [1, 1, 1, "", 1],
        "good": [1, 0, 0, 1, 1],
        "bad": [0, 0, 0, 0, 0],
        "seen": [0, 0, 0, 0, 0],
    }
    outcome = play(columns, {**PATIENT, "data": {"revealed": "seen"}}, tmp_path)

    assert (outcome.learners[0].errors, outcome.learners[0].judged) == (2, 4)
    assert trace_in(tmp_path)["correct"] == ["1", "0", "0", "", "1"]


def test_in_paper_mode_labels_are_hidden_from_the_first_only() -> None:
    policy = {**PATIENT["policy"], "mode": "paper"}
    learners = [{"name": name, "functions": [f"{name}1", f"{name}2"]} for name in "ab"]
    trace = covey.replay(
        {"policy": policy, "learner": [{**one, "peers": {}} for one in learners]},
        predictions=np.ones((4, 3)),
        labels=np.ones(3),
        contexts=np.empty((3, 0)),
        revealed=[0, 0, 0],
    )
    columns = trace.columns()

    assert columns["arm"][0::2] == ["a1", "a1", "a1"]
    assert columns["arm"][1::2] == ["b1", "b2", "b1"]


def test_what_is_paid_is_the_price_of_the_arm() -> None:
    columns = play_arrays(stream(400)).columns()
    prices = {
        ("north", "nb"): 0.0,
        ("north", "tree"): 0.125,
        ("north", "south"): 0.0,
        ("north", "west"): 0.0,
        ("south", "svm"): 0.0,
        ("south", "north"): 0.25,
        ("south", "west"): 0.5,
    }
    chosen = list(zip(columns["learner"], columns["arm"], strict=True))

    assert set(chosen) == set(prices)
    assert columns["cost"] == [prices[pair] for pair in chosen]


def test_two_learners_may_list_the_same_column(tmp_path: Path) -> None:
    config = {
        "policy": {"preset": "cos"},
        "learner": [
            {"name": "north", "functions": ["nb", "tree"]},
            {"name": "south", "functions": ["tree", "nb"]},
        ],
    }
    columns = {"label": [1, 1], "nb": [1, 1], "tree": [0, 1]}
    outcome = play(columns, config, tmp_path)

    assert trace_in(tmp_path)["arm"] == ["nb", "tree", "tree", "nb"]
    assert trace_in(tmp_path)["correct"] == ["1", "0", "1", "1"]
    assert outcome.functions == {"nb": 0.0, "tree": 50.0}


SCALES = [
    ({"column": "x", "scale": "log", "high": 15}, [0, 1, 3, 15], ["0", "1", "2", "3"]),
    ({"column": "x", "scale": "rank", "sample-rows": 4}, [5, 1, 5, 9], ["2", "0", "2", "3"]),
    ({"column": "x", "scale": "rank", "sample-rows": 2}, [5, 1, 7, 0], ["3", "1", "3", "0"]),
    ({"scale": "previous-label", "initial": 0.5}, [0, 0, 0, 0], ["2", "3", "0", "3"]),
    ({"scale": "slot", "horizon": 5}, [0, 0, 0, 0], ["0", "1", "2", "3"]),
]


@EVERY_KIND
@pytest.mark.parametrize(("entry", "x", "places"), SCALES)
def test_contexts_are_made_from_raw_columns(
    tmp_path: Path, kind: str, entry: Config, x: list[int], places: list[str]
) -> None:
    config = {**PATIENT, "data": {"context": [entry]}, "policy": {"slices": 4}}
    columns = {"label": [1, 0, 1, 1], "good": [1, 0, 1, 1], "bad": [0, 1, 0, 0], "x": x}
    play(columns, config, tmp_path, kind)

    assert trace_in(tmp_path, kind)["cell"] == [f"g4:{place}" for place in places]


def test_cells_that_were_split_are_not_shown(tmp_path: Path) -> None:
    columns = {"label": [1, 1], "good": [1, 1], "bad": [0, 0], "x": [0.75, 0.75]}
    config = {**PATIENT, "data": {"context": ["x"]}, "policy": {"preset": "dcza"}}
    outcome = play(columns, config, tmp_path)

    assert trace_in(tmp_path)["cell"] == ["z0:0", "z1:1"]
    assert outcome.learners[0].cells == [CellView("z1:1", (0.5,), (1.0,), 1, "good", 1.0)]


BAD_ROWS = [
    ("hour", "1.5", ContextError, "slot 3: context 'hour' is 1.5; contexts must lie in [0, 1]"),
    ("load", "nan", DataError, "slot 3: column 'load' is 'nan', which is not a number"),
    ("label", "", DataError, "row 3: the label in 'label' is missing"),
    ("tree", "", DataError, "row 3: the prediction in 'tree' is missing"),
    ("knn", "attack", DataError, "row 3: column 'knn' holds 'attack', but column 'label' (row 1)"),
    ("site", "nort", DataError, "row 3: column 'site' names 'nort', which is not a learner"),
    ("site", "west", DataError, "row 3: column 'site' names 'west', which has arrivals = false"),
    ("late", "-1", DataError, "row 3: column 'late' is '-1'; it must be a whole number of slots"),
    ("seen", "2", DataError, "row 3: column 'seen' is '2'; it must be 0 or 1"),
]


@pytest.mark.parametrize(("name", "value", "kind", "sentence"), BAD_ROWS)
def test_a_bad_row_is_named_and_leaves_no_trace(
    tmp_path: Path, name: str, value: str, kind: type[Exception], sentence: str
) -> None:
    columns = {**stream(5), "label": [1] * 5, "seen": [1] * 5}
    columns[name] = [*list(columns[name])[:2], value, *list(columns[name])[3:]]
    with pytest.raises(kind) as caught:
        play(columns, NETWORK, tmp_path)

    assert str(caught.value).startswith(sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


@EVERY_KIND
def test_a_column_that_the_log_lacks_is_named(tmp_path: Path, kind: str) -> None:
    columns = stream(5)
    columns["tre"] = columns.pop("tree")
    with pytest.raises(DataError) as caught:
        play(columns, NETWORK, tmp_path, kind)

    assert str(caught.value) == f"log.{kind} has no column 'tree'; did you mean 'tre'?"


@EVERY_KIND
def test_an_empty_log_is_refused_and_leaves_no_trace(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DataError) as caught:
        play({"label": [], "good": [], "bad": []}, PATIENT, tmp_path, kind)

    assert str(caught.value) == f"log.{kind} has no rows; a log needs at least one"
    assert [path.name for path in tmp_path.iterdir()] == [f"log.{kind}"]


@EVERY_KIND
def test_a_log_longer_than_the_horizon_is_refused(tmp_path: Path, kind: str) -> None:
    columns = {"label": [1] * 4, "good": [1] * 4, "bad": [1] * 4}
    with pytest.raises(ConfigError) as caught:
        play(columns, {**PATIENT, "policy": {"horizon": 3}}, tmp_path, kind)

    assert str(caught.value) == (
        "the log has more rows than the horizon of 3 slots; raise horizon in [policy]"
    )
    assert [path.name for path in tmp_path.iterdir()] == [f"log.{kind}"]


ONE_CONTEXT = {**PATIENT, "data": {"context": ["hour"]}}
RIGHT: Columns = {"predictions": [[1, 1], [0, 0]], "labels": [1, 1], "contexts": [[0.1], [0.9]]}
WRONG_ARRAYS = [
    (
        {"contexts": [0.1, 0.9]},
        "contexts has shape (2,); it must be slots x dimensions, here 2 x d",
    ),
    ({"contexts": [[0.1]]}, "contexts has shape (1, 1); it must be slots x dimensions, here 2 x d"),
    ({"contexts": np.zeros((2, 3))}, "the configuration names 1 contexts, but the array has 3"),
    ({"contexts": [[0.1], [1.5]]}, "slot 2: context 'hour' is 1.5; contexts must lie in [0, 1]"),
    ({"contexts": [[np.nan], [1]]}, "slot 1: context 'hour' is nan; contexts must lie in [0, 1]"),
    ({"predictions": [[1, 1]]}, "predictions has 1 rows, but the learners list 2 functions; give"),
    ({"predictions": [[1, 1], [0]]}, "'bad' has shape (1,); it must have 2 entries"),
    ({"predictions": [[1, 1], [[0], [0]]]}, "'bad' has shape (2, 1); it must have 2 entries"),
    ({"delay": [0]}, "'delay' has shape (1,); it must have 2 entries"),
    ({"at": ["north"] * 3}, "'at' has shape (3,); it must have 2 entries"),
    ({"predictions": [[1, None], [0, 0]]}, "row 2: the prediction in 'good' is missing"),
    ({"labels": [1, None]}, "row 2: the label in 'label' is missing"),
    (
        {"labels": [], "predictions": [[], []], "contexts": np.empty((0, 1))},
        "there are no slots to replay",
    ),
]


@pytest.mark.parametrize(("wrong", "sentence"), WRONG_ARRAYS)
def test_wrong_arrays_are_one_sentence(wrong: Columns, sentence: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        covey.replay(ONE_CONTEXT, **{**RIGHT, **wrong})

    assert str(caught.value).startswith(sentence)


def test_arrays_longer_than_the_horizon_are_refused() -> None:
    with pytest.raises(ConfigError, match="more rows than the horizon of 1 slots"):
        covey.replay({**ONE_CONTEXT, "policy": {"horizon": 1}}, **RIGHT)


def test_arrays_that_may_not_be_written_to_are_read() -> None:
    labels, contexts = np.array([1, 1], np.int32), np.array([[0.1], [0.9]])
    labels.setflags(write=False)
    contexts.setflags(write=False)
    trace = covey.replay(ONE_CONTEXT, **{**RIGHT, "labels": labels, "contexts": contexts})

    assert trace.columns()["correct"] == [1, 1]


def test_a_configuration_file_serves_arrays_too(tmp_path: Path) -> None:
    path = tmp_path / "replay.toml"
    path.write_text('[[learner]]\nname = "north"\nfunctions = ["good", "bad"]\n', encoding="utf-8")

    assert covey.replay(path, **RIGHT).columns()["arm"] == ["good", "good"]


@pytest.mark.parametrize(
    ("policy", "hidden_from", "errors"),
    [
        ({}, None, 1),  # Only the first slot has no label before it.
        ({}, "south", 1),
        ({}, "north", 6),  # South sees all labels, but receives no row.
        ({"label-wait": 1}, None, 6),
    ],
)
def test_baselines_know_the_labels_that_a_receiving_learner_knows_in_time(
    policy: dict[str, int], hidden_from: str | None, errors: int
) -> None:
    learners = [
        {"name": "north", "functions": ["a"], "arrivals": True},
        {"name": "south", "functions": ["b"], "arrivals": False},
    ]
    for learner in learners:
        learner["label-probability"] = float(learner["name"] != hidden_from)
    late = [2] * 6 if policy else [0] * 6
    found = compare_baselines(
        {"policy": policy, "learner": learners},
        ["previous-label"],
        predictions=np.zeros((2, 6), int),
        labels=np.ones(6, int),
        delay=late,
    )

    assert found["previous-label"].errors == errors


def test_a_log_of_several_chunks_gives_baselines_what_its_arrays_give(tmp_path: Path) -> None:
    columns = stream(70_000)
    names = ["previous-label", "win-stay", "follow-the-leader", "adaboost", "oza-russell"]
    path = write(columns, tmp_path / "log.parquet")
    told = {name: columns[NETWORK["data"][name]] for name in ("at", "revealed", "delay")}
    functions = [columns[name] for name in ("nb", "tree", "svm", "knn")]
    of_arrays = compare_baselines(
        NETWORK, names, predictions=functions, labels=columns["label"], **told
    )
    of_file = replay_file(path, load(NETWORK), baselines=names).baselines

    assert of_file == of_arrays
    assert list(of_arrays) == [*names, "best-in-hindsight"]


def test_answers_from_memory_are_no_functions_to_baselines(tmp_path: Path) -> None:
    shown = {"name": "south", "functions": ["svm"], "context-peers": {"north": 0.0}}
    network = {**NETWORK, "learner": [LEARNERS[0], shown, LEARNERS[2]]}
    path = write(stream(400), tmp_path / "log.csv")
    names = ["win-stay", "follow-the-leader", "oza-russell"]
    plain, with_memory = (
        replay_file(path, load(config), baselines=names).baselines for config in (NETWORK, network)
    )

    assert with_memory == plain
