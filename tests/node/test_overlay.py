"""An isolated source is served from the site's labels and its own, and changes nothing else."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from covey.bandit.learner import NO_ANSWER, UNKNOWN, Learner
from covey.bandit.policies import PRESETS
from covey.kernel import arm_of, row_of, undecided_row
from covey.kernel.rules import Cell
from covey.site.cells import ArmPlaces, StoredTables
from covey.site.requests import Commit, CountedArm, Request, RowGroup
from covey.site.trust import PoolingLearner, SourceStatistics
from covey.store.store import Store
from support.presets import INDEXED, policy_of, sides, with_seeds
from support.snapshots import restore, snapshot_of
from support.tables import rows_of

SOUTH, EAST = "south", "east"
POLICIES: list[dict[str, Any]] = [
    {"preset": preset, **more} for preset in sorted(PRESETS) for more in ({}, {"pending": True})
]
# In a tree, what labels of a cell are worth in its parent is not a sum over sources; nor is the
# share of pending labels that arrives, by which the phases weigh them.
ADDITIVE: list[dict[str, Any]] = [
    *({"preset": preset} for preset in ("cos", "dcza", "share-ucb")),
    {"preset": "share-ucb", "pending": True},
]


def make(policy: dict[str, Any], **more: Any) -> Learner:
    made = policy_of(policy, functions=3)
    costs = (0.0, 0.0, 0.0, 0.1)
    return Learner(
        "north",
        functions=("a", "b", "c"),
        peers=("west",),
        costs=costs,
        policy=made,
        **{"remembers": True, **more},
    )


def drawn_cell(rng: np.random.Generator, learner: Learner) -> Cell:
    levels = sides(learner.policies[""])[:3]
    level = int(rng.integers(len(levels)))
    return Cell(level, (int(rng.integers(min(4, levels[level]))),))


def request(
    statistics: SourceStatistics,
    source: str,
    codes: Sequence[int],
    slots: Sequence[int],
    *,
    phase: str = "serve",
    predictions: Sequence[Any] = (),
) -> Request:
    groups = [
        RowGroup(statistics.of(source).name("", row_of(code)), phase, arm, 0.0, code=code)
        for code in codes
        for arm in [statistics._learner.arms[arm_of(code)]]
    ]
    return Request(
        number=1,
        source=source,
        id="1",
        slot=slots[0],
        slots=list(slots),
        groups=groups,
        group_of=range(len(codes)),
        contexts=[()] * len(codes),
        predictions=list(predictions) or [1] * len(codes),
        answers=[1] * len(codes),
        truths=[UNKNOWN] * len(codes),
    )


def settle(
    statistics: SourceStatistics, source: str, code: int, slot: int, label: Any, **more: Any
) -> None:
    statistics.settle(request(statistics, source, [code], [slot], **more), [0], [label])


def own_row(
    learner: Learner, context: tuple[float, ...], slot: int, judge: PoolingLearner | None = None
) -> int:
    decides = judge or learner
    code = decides.decide(context, slot)
    while code < 0:
        row = undecided_row(code)
        for peer in decides.peers_to_query(row, slot):
            learner.receive_report(row, peer, (slot // 2, 0.3, 0.7, ()), slot)
        code = decides.resume(row, context, slot)
    learner.advance(slot)
    return code


def overlay_rows(statistics: SourceStatistics, source: str) -> dict[Cell, list[int]]:
    table = statistics._overlays[source].tables[""]
    return {row.cell: row.counters for row in rows_of(table)}


# -- what a source is served from ------------------------------------------------------------------


@with_seeds("policy", ADDITIVE)
def test_an_isolated_source_is_served_as_if_its_labels_and_the_sites_were_in_one_table(
    policy: dict[str, Any], seed: int
) -> None:
    """Without change detection, which looks at either part alone."""
    rng = np.random.default_rng(seed)
    alarm = {"alarm": 0} if policy["preset"] in INDEXED else {}
    site, both = make({**policy, **alarm}), make({**policy, **alarm})
    apart = SourceStatistics(site, {EAST: "full"})
    pooled = SourceStatistics(both, {EAST: "full", SOUTH: "full"})
    waiting: list[tuple[str, int, int, int]] = []

    for slot in range(1, 100):
        cell = drawn_cell(rng, site)
        if rng.random() < 0.5:  # the site's own labels, here of a pooled peer
            function = int(rng.integers(3))
            a = site.serve(cell, slot, SOUTH, function)
            b = both.serve(cell, slot, SOUTH, function)
            waiting.append((EAST, a, b, slot))
        else:
            a, b = (one.serve(SOUTH, cell, slot) for one in (apart, pooled))
            assert arm_of(a) == arm_of(b)
            waiting.append((SOUTH, a, b, slot))
        assert apart.report(SOUTH, cell, slot) == pooled.report(SOUTH, cell, slot)
        for by_context in (False, True):
            assert apart.estimate(SOUTH, cell, slot, is_by_context=by_context) == (
                pooled.estimate(SOUTH, cell, slot, is_by_context=by_context)
            )
        if rng.random() < 0.1:
            source, a, b, _ = waiting.pop()
            apart.retract(source, "", [a])
            pooled.retract(source, "", [b])
        if waiting and rng.random() < 0.8:
            source, a, b, decided = waiting.pop(int(rng.integers(len(waiting))))
            label = int(rng.random() < 0.3 + 0.2 * arm_of(a))
            both.settle(b, label, (), decided, space="")
            both.remember(b, label, (), decided, space="")
            if source == EAST:
                site.settle(a, label, (), decided, space="")
                site.remember(a, label, (), decided, space="")
            else:
                settle(apart, SOUTH, a, decided, label)


@with_seeds("policy", POLICIES)
def test_what_isolated_sources_do_changes_no_own_decision_and_no_own_cell(
    policy: dict[str, Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    alone, site = make(policy), make(policy)
    statistics = SourceStatistics(site, {})

    for slot in range(1, 80):
        context = (float(rng.integers(8)) / 8,)
        a, b = own_row(alone, context, slot), own_row(site, context, slot)
        assert alone.choice(a) is not None
        assert (arm_of(a), alone.name_at("", row_of(a))) == (arm_of(b), site.name_at("", row_of(b)))
        gain = int(rng.random() < 0.5)
        alone.settle(a, gain, context, slot)
        site.settle(b, gain, context, slot)
        for source in (SOUTH, EAST):
            named = int(rng.integers(1, 1_000))
            code = statistics.serve(source, drawn_cell(rng, site), named)
            settle(statistics, source, code, named, int(rng.integers(2)))
    table = site.tables[""]
    own = [row for row in range(len(table)) if not table.cells.is_foreign(row)]

    assert {site.name_at("", row): table.saved.stored(row) for row in own} == dict(
        snapshot_of(alone).cells
    )
    assert site.slot == alone.slot


@pytest.mark.parametrize(
    ("own", "theirs", "answer", "count", "total"),
    [
        ("", "", NO_ANSWER, 0, 0),
        ("x", "", "x", 1, 1),
        ("", "y", "y", 1, 1),
        ("x", "y", "x", 1, 2),  # a tie goes to the own leader
        ("x", "yy", "y", 2, 3),
        ("xxyy", "zzz", "z", 3, 7),
        ("xzzzyy", "yyx", "y", 4, 9),
        ("xyzzz", "yxxxyy", "x", 4, 11),  # then to the source's leader
    ],
)
def test_labels_seen_are_those_of_the_site_and_of_the_source(
    own: str, theirs: str, answer: Any, count: int, total: int
) -> None:
    learner = make({"preset": "cos", "slices": 4})
    statistics = SourceStatistics(learner, {})
    cell = Cell(0, (0,))
    for slot, label in enumerate(own, 1):
        learner.remember(own_row(learner, (0.01,), slot), label, (0.01,), slot)
    for label in theirs:
        _, code = statistics.recall(SOUTH, cell, 3)
        settle(statistics, SOUTH, code, 3, label, phase="recall")

    accuracy, labels = statistics.estimate(SOUTH, cell, 9, is_by_context=True)
    assert statistics.recall(SOUTH, cell, 9)[0] == answer
    assert (accuracy * max(1, labels), labels) == (pytest.approx(count), total)
    table = statistics.of(SOUTH).tables[""]
    assert [table.record(0, arm) for arm in range(3)] == [(0, 0)] * 3  # no function answered


# -- change detection ------------------------------------------------------------------------------


def wrong_then(statistics: SourceStatistics, source: str, slots: range, right: int) -> None:
    for slot in slots:
        code = statistics.serve(source, Cell(0, (0,)), slot)
        settle(statistics, source, code, slot, int(slot < right))


def test_an_alarm_by_a_sources_labels_forgets_these_alone() -> None:
    learner = make({"preset": "share-ucb", "alarm": 1.0, "slices": 1})
    statistics = SourceStatistics(learner, {})
    for slot in range(1, 20):
        learner.settle(own_row(learner, (0.5,), slot), 1, (0.5,), slot)
    before = snapshot_of(learner)
    late = statistics.serve(SOUTH, Cell(0, (0,)), 20)

    wrong_then(statistics, SOUTH, range(1, 60), right=40)

    table = statistics._overlays[SOUTH].tables[""]
    assert 40 <= table.policy.state()[3] < 60
    assert snapshot_of(learner) == before
    known = table.saved.stored(0)
    settle(statistics, SOUTH, late, 20, 1)  # decided before that
    assert table.saved.stored(0) == known


def test_a_source_forgets_when_the_site_does() -> None:
    learner = make({"preset": "share-ucb", "alarm": 1.0, "slices": 1})
    statistics = SourceStatistics(learner, {})
    wrong_then(statistics, SOUTH, range(1, 30), right=100)
    open_ = statistics.serve(SOUTH, Cell(0, (0,)), 30)
    for slot in range(1, 200):
        learner.settle(own_row(learner, (0.5,), slot), int(slot < 100), (0.5,), slot)
        if snapshot_of(learner).doubts[""][3]:
            break

    counters = [one.counters for one in statistics.take() if isinstance(one, CountedArm)]

    assert snapshot_of(learner).doubts[""][3] > 0
    assert [counter[:2] for counter in counters] == [[0, 0]] * len(counters)
    settle(statistics, SOUTH, open_, 30, 1)
    assert overlay_rows(statistics, SOUTH)[Cell(0, (0,))][3:9] == [0] * 6
    code = statistics.serve(SOUTH, Cell(0, (0,)), 31)
    settle(statistics, SOUTH, code, 31, 1)
    assert sum(overlay_rows(statistics, SOUTH)[Cell(0, (0,))][3:6]) == 1


def test_a_peers_alarm_forgets_what_the_peer_caused_or_all_if_it_teaches_the_site() -> None:
    learner = make({"preset": "auto"})
    statistics = SourceStatistics(learner, {EAST: "full"})
    wrong_then(statistics, SOUTH, range(1, 10), right=100)

    def forgotten() -> list[int]:
        return [statistics.of(one).tables[""].policy.forgotten for one in (SOUTH, EAST)]

    assert statistics.hear_alarm(SOUTH, "", 20)
    assert (forgotten()[0] > 0, forgotten()[1], statistics.of(SOUTH).slot) == (True, 0, 20)
    assert [statistics.hear_alarm(EAST, "", 30) for _ in range(2)] == [True, False]
    assert forgotten()[1] > 0


def test_cells_that_peers_opened_are_counted_whatever_the_trust_in_them() -> None:
    statistics = SourceStatistics(make({"preset": "cos", "slices": 4}), {EAST: "full"})

    for place, source in enumerate((SOUTH, EAST, EAST)):
        statistics.report(source, Cell(0, (place,)), 1)

    assert statistics.opened == 3


# -- commits ---------------------------------------------------------------------------------------


@with_seeds("policy", POLICIES, examples=5)
def test_loaded_statistics_go_on_as_those_that_were_taken(
    policy: dict[str, Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    learner, store = make(policy), Store.memory()
    statistics = SourceStatistics(learner, {})
    store.load("north", "")
    pending = []
    for slot in range(1, 60):
        source = str(rng.choice([SOUTH, EAST]))
        code = statistics.serve(source, drawn_cell(rng, learner), slot)
        if rng.random() < 0.2:
            pending.append(request(statistics, source, [code], [slot]))
        else:
            settle(statistics, source, code, slot, int(rng.integers(2)))
        if rng.random() < 0.2 or slot == 59:
            store.commit(Commit([*statistics.take()]))
    assert statistics.take() == []

    again, found = make(policy), store.load_again(list(pending))
    restore(again, snapshot_of(learner))
    others = SourceStatistics(again, {})
    others.load(found, StoredTables(again, found, ArmPlaces(again)))

    assert others.take() == []
    assert snapshot_of(again) == snapshot_of(learner)
    assert others.opened == statistics.opened
    for slot in range(60, 90):
        cell, label = drawn_cell(rng, learner), int(rng.integers(2))
        a, b = (one.serve(SOUTH, cell, slot) for one in (statistics, others))
        assert a == b
        assert statistics.report(SOUTH, cell, slot) == others.report(SOUTH, cell, slot)
        for one in (statistics, others):
            settle(one, SOUTH, a, slot, label)
            if pending:
                one.settle(pending[-1], [0], [label])
        pending = pending[:-1]
