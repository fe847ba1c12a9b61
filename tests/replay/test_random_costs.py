"""Costs that come with the answer are learnt with the reward, cell by cell."""

import numpy as np

import covey
from support.two_sites import answers, stream


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
    assert min(np.count_nonzero(late & low), np.count_nonzero(late & ~low)) > 1_000
    assert not asks[late & low].any()
    assert asks[late & ~low].all()
