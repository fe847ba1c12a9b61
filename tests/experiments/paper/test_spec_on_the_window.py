"""On the paper's window, `spec` equals the reference slot by slot."""

import os
from pathlib import Path

import pytest

import covey
import reference
from reproduction import data
from reproduction.experiments import CONTEXTS, Case, config
from reproduction.models import SETS, SLOTS, START, PredictionCache
from reproduction.tables import policy_table
from support.effort import effort

PLAYED = effort(4_000, long=SLOTS)  # slots of the window
DATA = os.environ.get("COVEY_DATA", "")
LEARNERS, FUNCTIONS = 4, 2


def setup_of(algorithm: str, *, is_alone: bool) -> reference.Setup:
    """Return the algorithm with the parameters Z1, as the paper's table of them says."""
    sites = tuple(
        reference.Site(
            name=str(place + 1),
            functions=FUNCTIONS,
            costs=(0.0,) * FUNCTIONS,
            arrivals=place == 0 or not is_alone,
            peers=tuple((peer, 0.0) for peer in range(LEARNERS) if peer != place),
        )
        for place in range(LEARNERS)
    )
    return reference.Setup(
        sites=sites,
        zooming=algorithm == "DCZA",
        slices=12,  # the fourth root of 20,000, rounded up
        split_scale=1.0,
        split_power=4.0,
        explore=(1.0, 1 / 8),
        train=(2.0, 1 / 8),
        explore_peers=(1.0, 1 / 8),
    )


@pytest.mark.skipif(not DATA, reason="COVEY_DATA names no folder with the KDD Cup 1999 data")
@pytest.mark.parametrize(
    ("algorithm", "context", "arrivals"), [("CoS", "A3", "all"), ("DCZA", "A1", "first")]
)
def test_spec_equals_the_reference_in_every_slot(
    algorithm: str, context: str, arrivals: str
) -> None:
    stream = data.load_kdd(Path(DATA))
    labels = stream.labels_of(START, PLAYED)
    said = PredictionCache(stream).predict(SETS["S2"], start=START, slots=PLAYED)
    points = CONTEXTS[context](stream, START, PLAYED)[:, None]
    case = Case(
        trial="S2", context=context, policy=policy_table(algorithm, "Z1", "spec"), arrivals=arrivals
    )
    trace = covey.replay(config(case), predictions=said, labels=labels, contexts=points)
    setup = setup_of(algorithm, is_alone=arrivals == "first")
    rows = reference.replay(
        setup,
        contexts=[tuple(point) for point in points.tolist()],
        predictions=said.tolist(),
        labels=labels.tolist(),
    )

    found = trace.columns()
    names = ["slot", "cell", "phase", "correct"]
    assert len(rows) == len(found["slot"]) >= PLAYED
    assert trace.learner.tolist() == [row.site for row in rows]
    assert trace.function.tolist() == [row.function for row in rows]
    for name in names:
        assert found[name] == [getattr(row, name) for row in rows]
