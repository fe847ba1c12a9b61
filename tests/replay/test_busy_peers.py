"""A learner that does not wait for a busy peer answers itself and still learns its accuracy."""

import numpy as np

import covey
from support.two_sites import GRID, NORTH, SOUTH, stream


def busy(wait: int | None) -> covey.Trace:
    """South is five slots late in the first half of the log, and then at once."""
    given = stream(4_000, 0.55, 0.5, 0.95)
    north = {**NORTH, "peers": {"south": 0.1}}
    if wait is not None:
        north["answer-wait"] = wait
    late = np.where(np.arange(4_000) < 2_000, 5, 0)
    config = {"policy": GRID, "learner": [north, {**SOUTH, "answer-delay": "late"}]}
    return covey.replay(config, **given, columns={"late": late})


def test_a_site_that_waits_gets_the_answer_of_the_busy_peer() -> None:
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
