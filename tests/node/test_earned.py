"""A site decides by the labels of sources that it pools, and nothing is left of a parted one."""

from typing import Any

import numpy as np
from test_overlay import ADDITIVE, POLICIES, drawn_cell, make, own_row, settle

from covey.bandit.learner import Learner
from covey.kernel import arm_of
from covey.kernel.rules import Cell
from covey.site.earned import PERIOD, EarnedTrust, is_audit
from covey.site.requests import OwnLabel, RelationLine
from covey.site.trust import PoolingLearner, SourceStatistics, Trust
from support.presets import INDEXED, with_seeds

SOUTH, EAST, NEAR = "south", "east", "near"
TRUST: dict[str, Trust] = {SOUTH: "earned", EAST: "earned", NEAR: "full"}


def part(statistics: SourceStatistics, source: str) -> None:
    """Let labels of a source differ from the site's own until it is parted."""
    earned = statistics.earned
    assert earned is not None
    cell = Cell(0, (0,))
    for slot in range(500):
        earned.take(source, cell, "a", 0.0, slot)
        earned.take_own("", (0.01,), "a", 1.0, slot)
        if not earned.is_pooled(source):
            return
    raise AssertionError


def own_labels(learner: Learner, rng: np.random.Generator, slots: int) -> None:
    """Give a learner labels of its own: here those of a fully trusted peer."""
    for slot in range(1, slots):
        code = learner.serve(drawn_cell(rng, learner), slot, "", int(rng.integers(3)))
        learner.settle(code, int(rng.random() < 0.3 + 0.2 * arm_of(code)), (), slot, space="")


def labels_of(statistics: SourceStatistics, source: str, seed: int, right: float) -> None:
    """Let a source ask and send labels."""
    rng = np.random.default_rng(seed)
    for slot in range(1, 60):
        cell = drawn_cell(rng, statistics._learner)
        code = statistics.serve(source, cell, slot)
        settle(statistics, source, code, slot, int(rng.random() < right))


def decisions(judge: Any, learner: Learner) -> list[Any]:
    """Return what own rows would choose, without counting them."""
    found = []
    for place in range(16):
        context, slot = ((place + 0.5) / 16,), 200 + place
        code = own_row(learner, context, slot, judge)
        found.append((arm_of(code), code & 3))
        learner.retract(code, context, slot)
    return found


@with_seeds("policy", ADDITIVE)
def test_own_rows_are_decided_as_if_pooled_labels_were_in_the_same_table(
    policy: dict[str, Any], seed: int
) -> None:
    """Without change detection, and where a row is no audit."""
    rng = np.random.default_rng(seed)
    alarm = {"alarm": 0} if policy["preset"] in INDEXED else {}
    site, both = make({**policy, **alarm}), make({**policy, **alarm})
    apart, full = SourceStatistics(site, TRUST), SourceStatistics(both, {SOUTH: "full"})
    judge: Any = PoolingLearner(site, apart)
    for slot in range(1, 100):
        context = (float(rng.integers(16)) / 16,)
        for learner in (site, both):  # so that both know the cell from the same slot on
            learner.table.locate(context, slot)
        if is_audit(slot):
            continue
        cell = site.table.cells.cell(site.table.locate(context, slot))
        if rng.random() < 0.5:
            a, b = own_row(site, context, slot, judge), own_row(both, context, slot)
            assert (arm_of(a), a & 3) == (arm_of(b), b & 3)
            gain = int(rng.random() < 0.5)
            site.settle(a, gain, context, slot)
            both.settle(b, gain, context, slot)
        else:
            a, b = (one.serve(SOUTH, cell, slot) for one in (apart, full))
            assert arm_of(a) == arm_of(b)
            label = int(rng.random() < 0.3 + 0.2 * arm_of(a))
            settle(apart, SOUTH, a, slot, label)
            both.settle(b, label, (), slot, space="")
            both.remember(b, label, (), slot, space="")


@with_seeds("policy", POLICIES, examples=3)
def test_a_parted_source_leaves_exactly_what_the_others_gave(
    policy: dict[str, Any], seed: int
) -> None:
    poisoned, clean = make(policy), make(policy)
    for learner in (poisoned, clean):
        own_labels(learner, np.random.default_rng(seed), 80)
    statistics, never = SourceStatistics(poisoned, TRUST), SourceStatistics(clean, TRUST)
    before = {
        poisoned.name_at("", row): poisoned.table.saved.stored(row)
        for row in range(len(poisoned.table))
    }
    labels_of(statistics, SOUTH, seed + 1, 0.0)
    part(statistics, SOUTH)
    for one in (statistics, never):
        labels_of(one, EAST, seed + 2, 0.5)

    found = decisions(PoolingLearner(poisoned, statistics), poisoned)

    assert found == decisions(PoolingLearner(clean, never), clean)
    table = poisoned.table
    own = {
        poisoned.name_at("", row): table.saved.stored(row)
        for row in range(len(table))
        if not table.cells.is_foreign(row)
    }
    known = 2 + len(poisoned.arms)  # what is after them holds caches of reports
    for name, counters in before.items():
        assert own[name][1:known] == counters[1:known]


@with_seeds("policy", POLICIES, examples=2)
def test_rows_of_a_batch_are_decided_as_one_by_one(policy: dict[str, Any], seed: int) -> None:
    sites = [make(policy), make(policy)]
    judges = []
    for learner in sites:
        statistics = SourceStatistics(learner, TRUST)
        labels_of(statistics, SOUTH, seed, 0.6)
        judges.append(PoolingLearner(learner, statistics))
    contexts = np.random.default_rng(seed).random((12, 1))
    codes = np.full(12, -1, np.int64)

    done = judges[0].decide_rows(contexts, 100, codes)
    single = [judges[1].decide(tuple(contexts[k]), 100 + k) for k in range(done)]

    assert codes[:done].tolist() == single
    assert done == 12 or codes[done] < 0


def test_labels_seen_are_those_of_the_site_of_pooled_sources_and_of_the_asker() -> None:
    learner = make({"preset": "cos", "slices": 1})
    statistics = SourceStatistics(learner, TRUST)
    cell = Cell(0, (0,))
    learner.remember(own_row(learner, (0.5,), 1), "own", (0.5,), 1)
    for source, label in ((SOUTH, "x"), (EAST, "y")):
        for _ in range(2):
            _, code = statistics.recall(source, cell, 2)
            settle(statistics, source, code, 2, label, phase="recall")
    earned = statistics.earned
    assert earned is not None

    seen = {
        source: statistics.estimate(source, cell, 3, is_by_context=True)[1]
        for source in (SOUTH, EAST, NEAR)
    }
    part(statistics, EAST)
    then = {
        source: statistics.estimate(source, cell, 3, is_by_context=True)[1]
        for source in (SOUTH, EAST, NEAR)
    }

    assert seen == {SOUTH: 5, EAST: 5, NEAR: 5}
    assert then == {SOUTH: 3, EAST: 5, NEAR: 3}


def test_an_own_label_costs_the_same_with_any_number_of_sources_and_a_restart_changes_nothing() -> (
    None
):
    def taught(sources: int) -> EarnedTrust:
        names = [f"p{k}" for k in range(sources)]
        earned = EarnedTrust(names, make({"preset": "cos"}).policies)
        for slot in range(2 * PERIOD):
            earned.take_own("", (0.01,), "a", 1.0, slot)
            if slot % 2:
                earned.take(names[slot // 2 % sources], Cell(0, (0,)), "a", 0.0, slot)
        return earned

    written = []
    for sources in (1, 16):
        earned = taught(sources)
        before = earned.changes()
        relations = [one for one in before if isinstance(one, RelationLine)]
        labels = [one for one in before if isinstance(one, OwnLabel)]
        earned.take_own("", (0.01,), "a", 1.0, 2 * PERIOD)
        written.append(earned.changes())
        again = EarnedTrust([f"p{k}" for k in range(sources)], make({"preset": "cos"}).policies)
        again.load(relations, [*labels, written[-1][0]][-PERIOD:])  # type: ignore[list-item]
        for one in (earned, again):
            one.take("p0", Cell(0, (0,)), "a", 0.0, 2 * PERIOD + 1)
        assert again.states() == earned.states()
        assert again.changes() == earned.changes()

    assert written[0] == written[1]
    assert len(written[0]) == 1
