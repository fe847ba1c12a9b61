"""Candidate contexts, features apart, context-only and busy peers, random costs: what they claim.

Each claim is shown by a run that would fail without the feature. That the kernel does what the
reference does is `test_extended_kernel.py`'s business.
"""

import csv
import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey import cli
from covey.config import load
from covey.encoding import Log
from covey.errors import ConfigError, CoveyError, DataError
from covey.games import Game, start

GRID, ZOOMING = {"preset": "cos", "slices": 4}, {"preset": "dcza"}
BOTH = pytest.mark.parametrize("preset", ["grid", "zooming"])
NORTH = {"name": "north", "functions": ["a", "b"], "peers": {}}
SOUTH = {"name": "south", "functions": ["c"], "peers": {}}
THREE = ["x0", "x1", "x2"]


def answers(labels: np.ndarray, *accuracies: Any, seed: int = 0) -> np.ndarray:
    """Return predictions of functions that are right with these chances, slot by slot or always."""
    rng = np.random.default_rng([7, seed])
    chance = np.array([np.broadcast_to(one, len(labels)) for one in accuracies])
    return np.where(rng.random(chance.shape) < chance, labels, 1 - labels)


def stream(slots: int, *accuracies: float, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, slots)
    return {
        "predictions": answers(labels, *accuracies, seed=seed),
        "labels": labels,
        "contexts": rng.random((slots, 1)),
    }


def late_arms(trace: covey.Trace, place: int = 0) -> list[str]:
    """Return what a learner exploited in the second half of the log."""
    is_late = (trace.slot > trace.slot[-1] / 2) & (trace.phase == 2) & (trace.learner == place)
    return [str(trace.names["arm"][arm]) for arm in trace.arm[is_late]]


# -- several candidate contexts ----------------------------------------------------------------

SLOTS = 20_000


@functools.cache
def found(preset: str, *candidates: str) -> tuple[covey.Trace, np.ndarray]:
    """Return the trace of a learner with these contexts, and its regret up to each slot.

    Of three contexts only x1 says which function is right: regret is against who goes by it.
    """
    rng = np.random.default_rng(1)
    labels, contexts = rng.integers(0, 2, SLOTS), rng.random((SLOTS, 3))
    is_low = contexts[:, 1] < 0.5
    chances = np.array([np.where(is_low, 0.9, 0.5), np.where(is_low, 0.5, 0.9)])
    trace = covey.replay(
        {
            "data": {"candidates": list(candidates)},
            "policy": GRID if preset == "grid" else ZOOMING,
            "learner": [NORTH],
        },
        predictions=answers(labels, *chances),
        labels=labels,
        contexts=contexts[:, [THREE.index(name) for name in candidates]],
    )
    return trace, np.cumsum(chances.max(axis=0) - chances[trace.arm, np.arange(SLOTS)])


@BOTH
def test_of_three_contexts_the_one_that_matters_is_found(preset: str) -> None:
    trace, _ = found(preset, *THREE)
    is_late = (trace.phase == 2) & (trace.slot > SLOTS / 2)
    went_by = Counter(trace.names["cell"][cell].split("/")[0] for cell in trace.cell[is_late])

    assert set(went_by) == set(THREE)
    assert went_by["x1"] > 0.8 * went_by.total()


@BOTH
def test_the_regret_against_the_best_single_context_grows_as_the_theorem_says(preset: str) -> None:
    """With alpha = 1 it is T^(3/4); sixteen times as many slots are then eight times the regret."""
    _, regret = found(preset, *THREE)

    assert regret[-1] < 8 * regret[SLOTS // 16]


@BOTH
def test_not_being_told_the_context_costs_less_than_one_slot_in_fifty(preset: str) -> None:
    _, regret = found(preset, *THREE)
    _, told = found(preset, "x1")

    assert told[-1] < regret[-1] < told[-1] + SLOTS / 50


@BOTH
def test_with_the_wrong_context_alone_nothing_is_found(preset: str) -> None:
    _, regret = found(preset, "x0")

    assert regret[-1] > 15 * regret[SLOTS // 16]
    assert regret[-1] > 0.19 * SLOTS


def test_a_candidate_may_be_a_pair_where_no_single_context_matters() -> None:
    rng = np.random.default_rng(4)
    labels, contexts = rng.integers(0, 2, 20_000), rng.random((20_000, 2))
    is_same = (contexts[:, 0] < 0.5) == (contexts[:, 1] < 0.5)
    given = {
        "predictions": answers(labels, np.where(is_same, 0.9, 0.5), np.where(is_same, 0.5, 0.9)),
        "labels": labels,
        "contexts": contexts,
    }

    def right(candidates: list[Any]) -> float:
        config = {
            "data": {"candidates": candidates},
            "policy": {"preset": "cos", "slices": 2},
            "learner": [NORTH],
        }
        return float(covey.replay(config, **given).correct[-5_000:].mean())

    assert right(["x0", "x1"]) < 0.75
    assert right(["x0", "x1", ["x0", "x1"]]) > 0.87


def test_candidates_of_everybody_and_of_one_learner_are_the_same_thing() -> None:
    given = stream(500, 0.6, 0.9, 0.8)
    given["contexts"] = np.random.default_rng(2).random((500, 2))
    everybody = {
        "data": {"candidates": ["x0", "x1"]},
        "learner": [NORTH, SOUTH],
    }
    each = {"learner": [{**one, "candidates": ["x0", "x1"]} for one in (NORTH, SOUTH)]}

    assert covey.replay(everybody, **given).columns() == covey.replay(each, **given).columns()


def test_who_knows_something_by_any_candidate_does_not_decide_blindly() -> None:
    """Labels are seen on the left only; on the right the candidate without contexts knows them."""
    rng = np.random.default_rng(6)
    is_south = np.arange(400) % 2 == 1
    labels = rng.integers(0, 2, 400)

    def blind(candidates: list[Any]) -> int:
        sites = [{"name": "north", "functions": ["a"], "peers": {}}]
        sites.append({"name": "south", "functions": ["b"], "supervised": False})
        config = {
            "data": {"candidates": candidates},
            "policy": {"preset": "cos", "slices": 2},
            "learner": sites,
        }
        setup = load(config)
        game = start(setup, setup.sites, 1, [0, 1])
        log = Log(
            contexts=(0.25 + 0.5 * is_south).data,
            predictions=answers(labels, 0.9, 0.5).astype(np.int32).data,
            labels=labels.astype(np.int32).data,
            at=is_south.astype(np.int32).data,
            delays=None,
            shown=np.tile(np.array([1, 0], np.int8), (400, 1)).data,
        )
        game.play(log)
        return game.blind()[1]

    assert blind(["x0"]) == 200
    assert blind(["x0", []]) == blind([[], "x0"]) == 0


# -- features that are apart -------------------------------------------------------------------


def apart(slots: int, *, south: str, has_arrivals: bool = True) -> tuple[Game, covey.Trace]:
    """North goes by x0; south, whom it asks, by a context of its own or by the same."""
    rng = np.random.default_rng(9)
    labels = rng.integers(0, 2, slots)
    config = {
        "data": {"context": ["x0", "x1"]},
        "policy": {"preset": "cos", "slices": 2},
        "learner": [
            {"name": "north", "functions": ["a"], "context": ["x0"], "peers": {"south": 0.05}},
            {
                "name": "south",
                "functions": ["b", "c"],
                "context": [south],
                "peers": {},
                "arrivals": has_arrivals,
            },
        ],
    }
    setup = load(config)
    game = start(setup, setup.sites, 2, [0, 1])
    assert isinstance(game, Game)
    log = Log(
        contexts=rng.random(2 * slots).data,
        predictions=answers(labels, 0.6, 0.5, 0.9).astype(np.int32).data,
        labels=labels.astype(np.int32).data,
        at=None,
        delays=None,
    )
    return game, game.play(log)


def decisions_of_north(trace: covey.Trace) -> list[tuple[int, ...]]:
    mine = trace.learner == 0
    columns = (trace.phase, trace.arm, trace.function, trace.correct)
    return list(zip(*(column[mine].tolist() for column in columns), strict=True))


def test_cells_are_named_by_the_space_they_belong_to() -> None:
    _, trace = apart(200, south="x1")

    assert set(trace.names["cell"]) == {"x0/g2:0", "x0/g2:1", "x1/g2:0", "x1/g2:1"}


def test_in_the_space_of_who_asks_a_helper_counts_requests_and_nothing_else() -> None:
    game, trace = apart(3_000, south="x1")
    asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("south"))
    asked_in = Counter(trace.names["cell"][cell] for cell in trace.cell[asks])
    table = game.ledgers[1].tables[0]
    counted = {
        game.field.cell_name(0, table.cell(row)): table.arrivals(row) for row in range(len(table))
    }

    assert min(counted.values()) > 500
    assert counted == asked_in
    labels = [sum(table.record(row, f)[0] for f in (0, 1)) for row in range(len(table))]
    assert labels == list(counted.values())


def test_what_a_helper_sees_in_contexts_of_its_own_teaches_it_nothing_about_the_askers() -> None:
    """The paper's worst correlation: to who asks, it is as if nothing else came to the helper."""
    with_stream, without = (
        decisions_of_north(apart(3_000, south="x1", has_arrivals=has)[1]) for has in (True, False)
    )
    shared, alone = (
        decisions_of_north(apart(3_000, south="x0", has_arrivals=has)[1]) for has in (True, False)
    )

    assert with_stream == without
    assert shared != alone
    trained = [sum(phase == 0 for phase, *_ in rows) for rows in (shared, without)]
    assert trained[0] < 0.2 * trained[1]


def test_a_learner_whose_own_context_says_nothing_still_learns_whom_to_ask() -> None:
    _, trace = apart(3_000, south="x1")

    assert set(late_arms(trace)) == {"south"}
    assert trace.correct[trace.learner == 0][-1_000:].mean() > 0.85


# -- peers that see the cell only --------------------------------------------------------------


def by_cell(*, is_told_by_the_cell: bool, history: str = "labels", **north: Any) -> covey.Trace:
    """North's functions are bad; south sees the same contexts, where labels may depend on them."""
    rng = np.random.default_rng(5)
    contexts = rng.random((6_000, 1))
    labels = rng.integers(0, 2, 6_000)
    if is_told_by_the_cell:
        is_usual = rng.random(6_000) < 0.95
        labels = np.where(is_usual, contexts[:, 0] > 0.5, contexts[:, 0] <= 0.5).astype(int)
    policy = {"preset": "cos", "slices": 4, "history": history}
    config = {"policy": policy, "learner": [{**NORTH, **north}, SOUTH]}
    predictions = answers(labels, 0.55, 0.5, 0.95)
    return covey.replay(config, predictions=predictions, labels=labels, contexts=contexts)


def late_of_north(trace: covey.Trace) -> tuple[float, float]:
    mine = (trace.learner == 0) & (trace.slot > 3_000)
    return float(trace.correct[mine].mean()), float(trace.cost[mine].mean())


def test_who_is_shown_the_cell_alone_beats_bad_functions_and_costs_less_than_data() -> None:
    alone, _ = late_of_north(by_cell(is_told_by_the_cell=True))
    by_data, price = late_of_north(by_cell(is_told_by_the_cell=True, peers={"south": 0.2}))
    shown, low_price = late_of_north(
        by_cell(is_told_by_the_cell=True, **{"context-peers": {"south": 0.02}})
    )

    assert alone < 0.6
    assert shown > 0.92
    assert shown > by_data - 0.03
    assert low_price < price / 5


def test_where_the_cell_does_not_tell_the_label_nobody_goes_by_it() -> None:
    trace = by_cell(is_told_by_the_cell=False, **{"context-peers": {"south": 0.02}})

    assert Counter(late_arms(trace))["south (context)"] < 0.05 * len(late_arms(trace))


def test_who_keeps_only_what_it_was_right_about_says_the_first_label_for_ever() -> None:
    trace = by_cell(is_told_by_the_cell=True, history="asked", **{"context-peers": {"south": 0.02}})
    columns = trace.columns()
    said = {
        prediction
        for function, prediction in zip(columns["function"], columns["prediction"], strict=True)
        if function == "(labels seen)"
    }

    assert said == {0}
    assert late_of_north(trace)[0] < 0.85  # right in the cells of that label only


def test_a_network_refuses_a_history_that_only_a_replay_knows() -> None:
    config = {"policy": {"history": "asked"}, "learner": [NORTH, SOUTH]}

    with pytest.raises(ConfigError, match='history = "asked", which only a replay knows'):
        covey.Network(config, functions={}, dimension=1)


def test_what_is_answered_from_memory_is_written_down_as_such() -> None:
    columns = by_cell(is_told_by_the_cell=True, **{"context-peers": {"south": 0.02}}).columns()
    rows = list(zip(*(columns[n] for n in ("arm", "function", "prediction", "cost")), strict=True))

    assert ("south (context)", "(labels seen)", 1, 0.02) in rows
    assert {function for arm, function, *_ in rows if arm == "south (context)"} == {"(labels seen)"}


# -- random costs ------------------------------------------------------------------------------


def test_of_two_equally_good_arms_the_one_that_is_cheaper_on_average_is_found() -> None:
    given = stream(4_000, 0.9, 0.9)
    rng = np.random.default_rng(3)
    fees = {"fee-a": rng.random(4_000) * 0.6, "fee-b": rng.random(4_000) * 0.2}
    learns = {**NORTH, "cost-columns": {"a": "fee-a", "b": "fee-b"}}

    trace = covey.replay({"policy": GRID, "learner": [learns]}, **given, columns=fees)
    blind = covey.replay({"policy": GRID, "learner": [NORTH]}, **given)

    assert set(late_arms(trace)) == {"b"}
    assert "a" in late_arms(blind)
    paid = np.where(trace.arm == 0, fees["fee-a"], fees["fee-b"])
    assert np.abs(trace.cost - paid).max() < 1e-6


def test_a_price_that_differs_by_cell_is_learnt_by_cell() -> None:
    given = stream(6_000, 0.8, 0.9, 0.9)
    is_low = given["contexts"][:, 0] < 0.5
    rng = np.random.default_rng(3)
    toll = np.where(is_low, 0.5, 0.0) + rng.random(6_000) * 0.2
    config = {
        "policy": {"preset": "cos", "slices": 2},
        "learner": [
            {"name": "north", "functions": ["own"], "peers": {"south": 0.0}}
            | {"cost-columns": {"south": "toll"}},
            {"name": "south", "functions": ["s0", "s1"], "peers": {}},
        ],
    }
    given["predictions"][0] = answers(given["labels"], 0.7)[0]

    trace = covey.replay(config, **given, columns={"toll": toll})

    late = (trace.learner == 0) & (trace.slot > 3_000) & (trace.phase == 2)
    asks = trace.arm == trace.names["arm"].index("south")
    low = is_low[trace.slot - 1]
    assert not asks[late & low].any()
    assert asks[late & ~low].all()


# -- busy peers --------------------------------------------------------------------------------


def busy(wait: int | None) -> covey.Trace:
    """South is five slots late in the first half of the log, and then at once."""
    given = stream(4_000, 0.55, 0.5, 0.95)
    north = {**NORTH, "peers": {"south": 0.1}}
    if wait is not None:
        north["answer-wait"] = wait
    late = np.where(np.arange(4_000) < 2_000, 5, 0)
    config = {"policy": GRID, "learner": [north, {**SOUTH, "answer-delay": "late"}]}
    return covey.replay(config, **given, columns={"late": late})


def test_who_does_not_wait_answers_itself_and_yet_learns_how_good_the_busy_peer_is() -> None:
    trace = busy(0)
    asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("south"))
    is_busy = trace.slot <= 2_000

    assert set(trace.function[asks & is_busy].tolist()) <= {0, 1}
    assert trace.correct[asks & is_busy].mean() < 0.6
    assert set(trace.function[asks & ~is_busy].tolist()) == {2}
    first = (trace.learner == 0) & (trace.slot > 2_000) & (trace.slot <= 2_200)
    assert Counter(trace.phase[first].tolist())[2] > 190
    assert trace.correct[first].mean() > 0.9


def test_who_waits_has_the_answer_of_the_busy_peer() -> None:
    for wait in (None, 5):
        trace = busy(wait)
        asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("south"))

        assert set(trace.function[asks].tolist()) == {2}


def test_a_label_waits_for_the_answer_that_it_is_about() -> None:
    """With answers later than labels are waited for, a peer stays unknown and is tried for ever."""
    given = stream(300, 0.55, 0.5, 0.95)
    config = {
        "policy": {
            "preset": "cos",
            "slices": 1,
            "label-wait": 4,
            "explore": {"scale": 0.1, "power": 0.1},
        },
        "learner": [{**NORTH, "peers": {"south": 0.1}}, {**SOUTH, "answer-delay": 5}],
    }

    trace = covey.replay(config, **given)

    last = (trace.learner == 0) & (trace.slot > 200)
    assert set(trace.phase[last].tolist()) <= {0, 1}


# -- what makes no sense -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "north", "sentence"),
    [
        (
            {"context": ["x"], "candidates": ["y"]},
            {},
            "[data] has context and candidates; choose one of them",
        ),
        (
            {},
            {"context": ["x"], "candidates": ["y"]},
            "learner 'north' has context and candidates; choose one of them",
        ),
        (
            {},
            {"candidates": ["x", ["x", "y"], ["x"]]},
            "learner 'north' has the same candidate twice; keep one",
        ),
        ({"candidates": []}, {}, "[data] candidates is empty; list contexts to choose from"),
        ({"candidates": "x"}, {}, "[data] candidates: expected array, got str"),
        ({"candidate": ["x"]}, {}, "unknown key 'candidate' in [data]; did you mean 'candidates'?"),
        (
            {},
            {"cost-columns": {"suth": "fee"}},
            "learner 'north' has a cost column for 'suth', which is none of its arms; did you mean "
            "'south'?",
        ),
        (
            {},
            {"context-peers": {"suoth": 0.1}},
            "learner 'north' lists unknown learner 'suoth' in context-peers; did you mean 'south'?",
        ),
        (
            {},
            {"context-peers": {"north": 0.1}},
            "learner 'north' lists itself in context-peers",
        ),
        (
            {},
            {"context-peers": {"south": -0.1}},
            "the cost of peer 'south' is -0.1; it must be 0 or more",
        ),
        (
            {"loss": {"kind": "squared", "bound": 1.0}},
            {"context-peers": {"south": 0.1}},
            "[data] has a loss, but peers that see only the cell answer with whole labels",
        ),
        ({}, {"answer-wait": -1}, "learner 'north': answer-wait is -1; it must be 0 slots or more"),
        ({}, {"answer-delay": -2}, "answer-delay is -2; it must be 0 slots or more"),
        ({}, {"answer-wait": "long"}, "[[learner]] 1 answer-wait: expected int, got str"),
    ],
)
def test_what_makes_no_sense_is_refused(
    data: dict[str, Any], north: dict[str, Any], sentence: str
) -> None:
    config = {
        "data": data,
        "learner": [{**NORTH, "peers": {"south": 0.1}, **north}, SOUTH],
    }

    with pytest.raises(ConfigError) as raised:
        load(config)
    assert sentence in str(raised.value)


def test_weights_per_cell_need_one_context_space() -> None:
    learners = [{**NORTH, "context": ["x"]}, {**SOUTH, "context": ["y"]}]

    with pytest.raises(ConfigError, match="the learners do not share one context space"):
        load({"ensemble": {"weights": "cell"}, "learner": learners})
    assert load({"ensemble": {"weights": "global"}, "learner": learners}).ensemble is not None


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([0.1, 1.5], "row 2: column 'fee' is 1.5; a cost must lie in [0, 1]"),
        ([-0.1, 0.5], "row 1: column 'fee' is -0.1; a cost must lie in [0, 1]"),
        ([0.1, float("nan")], "row 2: column 'fee' is nan; a cost must lie in [0, 1]"),
        ([0.1, "cheap"], "row 2: column 'fee' is 'cheap'; a cost must lie in [0, 1]"),
        ([0.1], "'fee' has shape (1,); it must have 2 entries"),
        (None, "the configuration names column 'fee'; give it in columns; did you mean 'fees'?"),
    ],
)
def test_a_column_of_costs_that_is_none_is_refused(values: Any, sentence: str) -> None:
    config = {"learner": [{**NORTH, "cost-columns": {"a": "fee"}}]}
    columns = {"fees": [0, 0]} if values is None else {"fee": values}

    with pytest.raises(DataError) as raised:
        covey.replay(config, **stream(2, 0.5, 0.5), columns=columns)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("slots", [-1, 0.5, "soon"])
def test_an_answer_delay_that_is_no_number_of_slots_is_refused_with_its_row(slots: Any) -> None:
    config = {"learner": [NORTH, {**SOUTH, "answer-delay": "late"}]}

    with pytest.raises(DataError) as raised:
        covey.replay(config, **stream(2, 0.5, 0.5, 0.5), columns={"late": [1, slots]})
    assert f"row 2: column 'late' is {slots!r}; it must be a whole number" in str(raised.value)


@pytest.mark.parametrize(
    ("north", "what"),
    [
        ({"candidates": ["x", "y"]}, "learner 'north' with several candidates"),
        ({"answer-wait": 3}, "answer-delay or answer-wait (give Network a wait instead)"),
        ({"answer-delay": 3}, "answer-delay or answer-wait (give Network a wait instead)"),
    ],
)
def test_a_network_refuses_what_only_a_replay_knows(north: dict[str, Any], what: str) -> None:
    functions = dict.fromkeys(("a", "b", "c"), lambda x: 1)
    config = {"learner": [{**NORTH, **north}, SOUTH]}

    with pytest.raises(ConfigError) as raised:
        covey.Network(config, functions=functions, dimension=1)
    assert f"the configuration has {what}, which only a replay knows" in str(raised.value)


# -- from the command line ---------------------------------------------------------------------

COLUMNS = ("x0", "x1", "label", "a", "b", "c", "fee", "late")
TOML = """
[data]
{data}

[policy]
slices = 2

[[learner]]
name = "north"
functions = ["a", "b"]
peers = {{ south = 0.05 }}
{north}

[[learner]]
name = "south"
functions = ["c"]
peers = {{}}
{south}
"""
FEATURES = {
    "candidates": ('candidates = ["x0", "x1", ["x0", "x1"]]', "", ""),
    "features apart": ('context = ["x0", "x1"]', 'context = ["x0"]', 'context = ["x1"]'),
    "context only": ('context = ["x0"]', "context-peers = { south = 0.02 }", ""),
    "random costs": ('context = ["x0"]', 'cost-columns = { south = "fee", a = "fee" }', ""),
    "busy peers": ('context = ["x0"]', "answer-wait = 1", 'answer-delay = "late"'),
}


@functools.cache
def log_columns(slots: int = 1_500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(12)
    contexts = rng.random((2, slots)).round(4)
    labels = (contexts[0] > 0.5).astype(int) ^ (rng.random(slots) < 0.1)
    said = answers(labels, 0.6, 0.5, 0.9)
    fee, late = rng.random(slots).round(3) / 4, rng.integers(0, 4, slots)
    return dict(zip(COLUMNS, (*contexts, labels, *said, fee, late), strict=True))


@pytest.fixture(params=FEATURES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    data, north, south = FEATURES[request.param]
    (tmp_path / "sites.toml").write_text(TOML.format(data=data, north=north, south=south))
    write_log(tmp_path, log_columns())
    return tmp_path


def write_log(folder: Path, columns: dict[str, Any]) -> None:
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(c).tolist() for c in columns.values()), strict=True))


def run(folder: Path, *more: str) -> int:
    log, toml = str(folder / "log.csv"), str(folder / "sites.toml")
    return cli.main(["replay", log, "--config", toml, "--quiet", *more])


def test_a_file_is_replayed_as_its_arrays_are(folder: Path) -> None:
    assert run(folder, "--trace", str(folder / "trace.csv")) == 0

    given = log_columns()
    width = load(folder / "sites.toml").context.dimension
    trace = covey.replay(
        folder / "sites.toml",
        predictions=[given[name] for name in "abc"],
        labels=given["label"],
        contexts=np.array([given["x0"], given["x1"]][:width]).T,
        columns=given,
    ).columns()
    with (folder / "trace.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert rows == [list(map(str, row)) for row in zip(*trace.values(), strict=True)]
    assert header == list(trace)


def test_each_feature_changes_what_north_does(folder: Path) -> None:
    plain = TOML.format(data='context = ["x0"]', north="", south="")
    (folder / "plain.toml").write_text(plain)
    given = log_columns()

    def decided(toml: str, contexts: Any) -> Any:
        trace = covey.replay(
            folder / toml,
            predictions=[given[name] for name in "abc"],
            labels=given["label"],
            contexts=contexts,
            columns=given,
        )
        mine = trace.learner == 0
        return [c[mine].tolist() for c in (trace.phase, trace.function, trace.cost)]

    width = load(folder / "sites.toml").context.dimension
    both = np.array([given["x0"], given["x1"]]).T
    assert decided("sites.toml", both[:, :width]) != decided("plain.toml", both[:, :1])


def test_a_missing_column_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = load(folder / "sites.toml")
    named = [*last.cost_columns, *(d for d in last.answer_delays if isinstance(d, str))]
    missing = (named or ["x1" if last.context.dimension > 1 else "x0"])[0]
    write_log(folder, {name: c for name, c in log_columns().items() if name != missing})

    assert run(folder) == 2
    assert f"{missing!r}" in capsys.readouterr().err


# -- the report --------------------------------------------------------------------------------


def reported(folder: Path, feature: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, Any]:
    """Return the page of a replay with a feature on, and the summary."""
    data, north, south = FEATURES[feature]
    (folder / "sites.toml").write_text(TOML.format(data=data, north=north, south=south))
    write_log(folder, log_columns())
    assert run(folder, "--json", "--report", str(folder / "out")) == 0
    return (folder / "out" / "report.html").read_text(), json.loads(capsys.readouterr().out)


def test_the_page_has_a_map_for_every_candidate_and_says_which_it_went_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, summary = reported(tmp_path, "candidates", capsys)
    went_by = summary["learners"]["north"]["candidates"]

    for contexts in ("x0", "x1", "x0 and x1"):
        assert page.count(f'aria-label="arms that north prefers by {contexts}"') == 1
    assert set(went_by) == {"x0", "x1", "x0+x1"}
    assert sum(went_by.values()) == 1_500
    share = f"{100 * went_by['x0'] / 1_500:.1f}%"
    assert "3 context spaces" in page
    assert f"x0 in {share}" in page


def test_the_page_shows_each_learner_in_the_contexts_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, summary = reported(tmp_path, "features apart", capsys)

    assert page.count('aria-label="arms that north prefers by x0"') == 1
    assert page.count('aria-label="arms that south prefers by x1"') == 1
    assert page.count("arms that north prefers") == 1
    assert "candidates" not in summary["learners"]["north"]


def test_the_page_tells_who_saw_the_cell_only_from_who_saw_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, summary = reported(tmp_path, "context only", capsys)

    assert summary["learners"]["north"]["arms"]["south (context)"] > 500
    assert "south (context)</span>" in page or "south (context) " in page
    assert "A pale hue is a peer that is shown only the cell." in page
    assert "Peers that were shown only the cell count as any others." in page


def test_the_page_says_how_often_a_peer_was_too_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, summary = reported(tmp_path, "busy peers", capsys)
    times = summary["learners"]["north"]["stood_in"]

    assert 0 < times < summary["learners"]["north"]["arms"]["south"]
    assert f"In {times:,} of 1,500 slots of north the peer it chose had no answer" in page


def test_contexts_that_cannot_be_drawn_are_listed_beside_those_that_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**log_columns(), "x2": log_columns()["fee"]}
    write_log(tmp_path, given)
    toml = TOML.format(data='candidates = ["x0", ["x0", "x1", "x2"], []]', north="", south="")
    (tmp_path / "sites.toml").write_text(toml)

    assert run(tmp_path, "--report", str(tmp_path / "out")) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('aria-label="arms that north prefers by x0"') == 1
    assert "more than two contexts, or none" in page
    assert ">everywhere<" in page
    assert "north went by" in capsys.readouterr().out


def test_every_refusal_is_one_that_a_caller_can_catch() -> None:
    assert issubclass(ConfigError, CoveyError)
    assert issubclass(DataError, CoveyError)
