"""What the paper's extensions claim, each shown by a run that would fail without it."""

from typing import Any

import numpy as np
import pytest

import covey
import reference
from covey.config import load
from covey.replay.encoding import Luck
from support.networks import Case, config_of, kernel_rows
from support.two_sites import GRID, NORTH, SOUTH, answers, stream

ONE = [{"name": "north", "functions": ["a", "b"], "peers": {}}]


def explored(trace: covey.Trace) -> int:
    return int(np.count_nonzero(trace.phase == 1))


def wrong(trace: covey.Trace) -> float:
    return float((trace.correct == 0).mean())


# -- labels that are late ----------------------------------------------------------------------


def test_with_labels_ten_slots_late_each_arm_gets_at_most_ten_forced_slots_more_per_cell() -> None:
    given = stream(3_000, 0.6, 0.9)
    config = {"policy": {"preset": "cos", "slices": 3}, "learner": ONE}

    prompt = covey.replay(config, **given)
    late = covey.replay(config, **given, delay=np.full(3_000, 10))

    for cell in range(3):
        for arm in range(2):
            forced = [
                np.count_nonzero((t.phase == 1) & (t.cell == cell) & (t.arm == arm))
                for t in (prompt, late)
            ]
            assert forced[1] <= forced[0] + 10


# -- labels that never come --------------------------------------------------------------------


def test_a_learner_without_labels_learns_nothing_and_its_peer_is_unchanged() -> None:
    given = stream(500, 0.6, 0.9)
    both = [{"name": n, "functions": [f], "peers": {}} for n, f in (("north", "a"), ("south", "b"))]
    deaf = [{**both[0], "label-probability": 0.0}, both[1]]

    as_before = covey.replay({"policy": {"preset": "cos"}, "learner": both}, **given)
    without = covey.replay({"policy": {"preset": "cos"}, "learner": deaf}, **given)

    assert (without.phase[without.learner == 0] == 1).all()
    south = [t.phase[t.learner == 1].tolist() for t in (as_before, without)]
    assert south[0] == south[1]


def test_what_chance_hides_is_hidden_from_the_reference_too() -> None:
    sites = tuple(
        reference.Site(
            f"site{k}", 2, (0.0, 0.1), True, tuple((j, 0.05) for j in range(3) if j != k)
        )
        for k in range(3)
    )
    curves = (0.3, 0.1), (0.6, 0.1), (0.3, 0.1)
    setup = reference.Setup(sites, False, 3, 1.0, 4.0, *curves)
    given = stream(400, *np.linspace(0.5, 1.0, 6))
    case = Case(setup, **given, at=None, revealed=None, delay=None)
    config = config_of(case)
    for learner, share in zip(config["learner"], (0.5, 1.0, 0.2), strict=True):
        learner["label-probability"] = share
    shown = np.asarray(Luck(load(config)).draw(400)).tolist()

    trace = covey.replay(config, **given)
    expected = reference.replay(
        setup,
        contexts=[tuple(c) for c in given["contexts"].tolist()],
        predictions=given["predictions"].tolist(),
        labels=given["labels"].tolist(),
        shown=shown,
    )

    assert trace.function.tolist() == [row.function for row in expected]
    assert kernel_rows(case) != expected  # the same without the chance is another run


# -- exploration reduction ---------------------------------------------------------------------


def test_cells_that_inherit_explore_less_and_err_less() -> None:
    given = stream(20_000, 0.6, 0.9)
    anew = {"policy": {"preset": "dcza"}, "learner": ONE}
    inherit = {"policy": {"preset": "dcza", "inherit": True}, "learner": ONE}

    fresh, heir = covey.replay(anew, **given), covey.replay(inherit, **given)

    assert explored(heir) < 0.7 * explored(fresh)
    assert wrong(heir) < wrong(fresh)


# -- drift -------------------------------------------------------------------------------------


def switching(slots: int, *, seed: int = 2) -> dict[str, Any]:
    """Two functions that change places halfway; no context shows it."""
    given = stream(slots, 0.95, 0.55, seed=seed)
    half = slots // 2
    given["predictions"][:, half:] = given["predictions"][::-1, half:].copy()
    return given


@pytest.mark.parametrize("forget", [{"window": 100}, {"discount": 0.98}])
def test_statistics_that_forget_follow_a_switch_that_no_context_shows(
    forget: dict[str, float],
) -> None:
    given = switching(8_000)
    small = {"scale": 0.3, "power": 0.125}
    policy = {"preset": "cos", "slices": 1, "explore": small}

    keeps = covey.replay({"policy": policy, "learner": ONE}, **given)
    forgets = covey.replay({"policy": {**policy, "forget": forget}, "learner": ONE}, **given)

    assert wrong(forgets) < 0.08
    assert wrong(keeps) > 0.15


# -- rewards -----------------------------------------------------------------------------------


def chosen_at_last(config: dict[str, Any], given: dict[str, Any]) -> set[str]:
    columns = covey.replay(config, **given).columns()
    last = list(zip(columns["phase"], columns["arm"], strict=True))[-500:]
    return {arm for phase, arm in last if phase == "exploit"}


def test_a_reward_with_doubled_cost_avoids_the_expensive_arm() -> None:
    given = stream(4_000, 0.7, 0.9)
    site = {"name": "north", "functions": ["cheap", "dear"], "function-costs": [0.0, 0.15]}

    plain = chosen_at_last({"learner": [site]}, given)
    twice = chosen_at_last({"policy": {"reward": {"cost": 2.0}}, "learner": [site]}, given)

    assert "dear" in plain
    assert twice == {"cheap"}


# -- labels that are numbers -------------------------------------------------------------------


def test_numbers_are_right_in_part_and_the_nearer_function_is_found() -> None:
    rng = np.random.default_rng(8)
    labels = rng.normal(size=3_000).round(3)
    near = labels + rng.normal(scale=0.2, size=3_000).round(3)
    far = labels + rng.normal(scale=1.0, size=3_000).round(3)
    config = {
        "data": {"loss": {"kind": "squared", "bound": 4.0}},
        "policy": {"preset": "cos", "slices": 2},
        "learner": ONE,
    }

    trace = covey.replay(
        config, predictions=[far, near], labels=labels, contexts=rng.random((3_000, 1))
    )

    answered = np.where(trace.arm == 1, near, far)
    expected = 1 - np.minimum(1, (answered - labels) ** 2 / 4.0)
    assert np.abs(trace.correct - expected).max() < 1e-6
    assert (trace.arm[-1_000:][trace.phase[-1_000:] == 2] == 1).all()


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


SLOTS, SEEDS = 3_000, 6
ACCURACIES = (0.9, 0.55, 0.7)  # of north, and of the two functions of south
SITES = [
    {"name": "north", "functions": ["n"], "peers": {"south": 0.0}},
    {"name": "south", "functions": ["a", "b"], "supervised": False, "peers": {"north": 0.0}},
]


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza"])
def test_it_ends_at_the_best_arm_with_each_seed(preset: str) -> None:
    policy = {"preset": preset, **({"slices": 1} if preset == "cos" else {})}
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, SLOTS)
        right = rng.random((3, SLOTS)) < np.array(ACCURACIES)[:, None]
        result = covey.replay(
            {"policy": policy, "learner": SITES},
            predictions=np.where(right, labels, 1 - labels),
            labels=labels,
        )

        arms = np.array(result.columns()["arm"]).reshape(SLOTS, 2)[SLOTS // 2 :, 1]
        assert (arms == "north").mean() > 0.8, seed
