"""Features that are apart: a helper learns of its askers in their contexts, not in its own."""

from collections import Counter

import numpy as np

import covey
from covey.config import load
from covey.data.logs import EncodedLog
from covey.replay.engine import ReplayEngine
from support.two_sites import answers, late_arms


def apart(slots: int, *, south: str, has_arrivals: bool = True) -> tuple[ReplayEngine, covey.Trace]:
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
    game = ReplayEngine(setup, setup.sites, 2, [0, 1])
    log = EncodedLog(
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


def test_in_the_space_of_the_asker_a_helper_counts_requests_only() -> None:
    game, trace = apart(3_000, south="x1")
    asks = (trace.learner == 0) & (trace.arm == trace.names["arm"].index("south"))
    asked_in = Counter(trace.names["cell"][cell] for cell in trace.cell[asks])
    table = game.tables[1][0]
    counted = {
        game.cell_name(0, table.cells.cell(row)): table.cells.arrivals(row)
        for row in range(len(table))
    }

    assert min(counted.values()) > 500
    assert counted == asked_in
    labels = [sum(table.record(row, f)[0] for f in (0, 1)) for row in range(len(table))]
    assert labels == list(counted.values())


def test_what_a_helper_sees_in_contexts_of_its_own_teaches_it_nothing_about_the_askers() -> None:
    """The paper's worst correlation: for the asker it is as if the helper received nothing else."""
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


def test_a_learner_with_an_uninformative_context_still_learns_which_peer_to_ask() -> None:
    _, trace = apart(3_000, south="x1")

    assert set(late_arms(trace)) == {"south"}
    assert trace.correct[trace.learner == 0][-1_000:].mean() > 0.85
