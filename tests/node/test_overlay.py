"""An isolated source is served from the site's labels and its own, and changes nothing else."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from covey.bandit.learner import NO_ANSWER, UNKNOWN, Learner
from covey.bandit.policies import ALARMED, PRESETS
from covey.errors import LimitError
from covey.kernel import NOT_DECIDED, SERVE, arm_of, code_of, row_of, undecided_row
from covey.kernel.rules import Cell
from covey.node.medians import RobustMedians
from covey.node.requests import (
    OWN,
    CellLine,
    Counts,
    Loaded,
    MigratedCell,
    Request,
    RowGroup,
    SourceState,
)
from covey.node.trust import DirtyCells, SourceStatistics, Trust
from support.presets import policy_of, sides, with_seeds

SOUTH, EAST = "south", "east"
POLICIES: list[dict[str, Any]] = [
    {"preset": preset, **more} for preset in sorted(PRESETS) for more in ({}, {"pending": True})
]
# In a tree, what labels of a cell are worth in its parent is not a sum over sources.
ADDITIVE = [one for one in POLICIES if one["preset"] not in ("auto", "discounted")]


def make(policy: dict[str, Any], **more: Any) -> Learner:
    made = policy_of(policy, functions=3)
    costs = (0.0, 0.0, 0.0, 0.1)
    return Learner(
        "north",
        functions=("a", "b", "c"),
        peers=("west",),
        costs=costs,
        policy=made,
        learns_costs=made.keeps_widths,
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
        RowGroup(code, statistics.cell_name(source, "", row_of(code)), phase, "a", 0.0)
        for code in codes
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


def own_row(learner: Learner, context: tuple[float, ...], slot: int) -> int:
    code = learner.decide(context, slot)
    while code < 0:
        row = undecided_row(code)
        for peer in learner.peers_to_query(row, slot):
            learner.receive_report(row, peer, (slot // 2, 0.3, 0.7), slot)
        code = learner.resume(row, context, slot)
    learner.advance(slot)
    return code


def overlay_rows(statistics: SourceStatistics, source: str) -> dict[Cell, list[int]]:
    table = statistics._overlays[source].tables[""]
    return {table.cell(row): table.counters(row) for row in range(len(table))}


# -- what a source is served from ------------------------------------------------------------------


@with_seeds("policy", ADDITIVE)
def test_an_isolated_source_is_served_as_if_its_labels_and_the_sites_were_in_one_table(
    policy: dict[str, Any], seed: int
) -> None:
    """Without change detection, which looks at either part alone."""
    rng = np.random.default_rng(seed)
    alarm = {"alarm": 0} if policy["preset"] in ALARMED else {}
    site, both = make({**policy, **alarm}), make({**policy, **alarm})
    apart = SourceStatistics(site, {EAST: "full"})
    pooled = SourceStatistics(both, {EAST: "full", SOUTH: "full"})
    waiting: list[tuple[str, int, int, int]] = []

    for slot in range(1, 100):
        cell = drawn_cell(rng, site)
        if rng.random() < 0.5:  # the site's own labels, here of a pooled peer
            function = int(rng.integers(3))
            a = site.serve(site.open(cell, slot), slot, "", function)
            b = both.serve(both.open(cell, slot), slot, "", function)
            waiting.append((EAST, a, b, slot))
        else:
            (a,), (b,) = (one.serve(SOUTH, [cell], [slot]) for one in (apart, pooled))
            assert arm_of(a) == arm_of(b)
            assert apart.width(SOUTH, "", a) == pooled.width(SOUTH, "", b)
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
            (code,) = statistics.serve(source, [drawn_cell(rng, site)], [named])
            settle(statistics, source, code, named, int(rng.integers(2)))
    table = site.tables[""]
    own = [row for row in range(len(table)) if not table.is_foreign(row)]

    assert {site.name_at("", row): table.stored(row) for row in own} == dict(alone.snapshot().cells)
    assert site.slot == alone.slot


def test_own_labels_count_for_an_isolated_source_in_the_finer_cell_it_spoke_of() -> None:
    learner = make({"preset": "dcza", "split-power": 0.9})
    statistics = SourceStatistics(learner, {})
    fine = Cell(3, (0,))
    statistics.report(SOUTH, fine, 500)

    learner.settle(own_row(learner, (0.01,), 1), 1, (0.01,), 1)

    assert statistics.estimate(SOUTH, fine, 501, is_by_context=False) == (1.0, 1)
    assert statistics.report(SOUTH, fine, 501)[0] == 1


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_an_overlay_holds_only_what_its_source_caused(policy: dict[str, Any]) -> None:
    learner = make(policy)
    statistics = SourceStatistics(learner, {})
    cell = Cell(0, (0,))
    for slot in range(1, 30):
        learner.settle(own_row(learner, (0.01,), slot), 1, (0.01,), slot)
    (code,) = statistics.serve(SOUTH, [cell], [5])
    before = overlay_rows(statistics, SOUTH)

    statistics.report(SOUTH, cell, 6)
    statistics.estimate(SOUTH, cell, 6, is_by_context=False)
    statistics.width(SOUTH, "", code)
    with pytest.raises(ZeroDivisionError):
        statistics._combined(statistics._overlays[SOUTH], "", 0, lambda table: 1 // 0)

    assert overlay_rows(statistics, SOUTH) == before
    assert sum(before[cell][3:6]) == 0
    settle(statistics, SOUTH, code, 5, 1)
    assert sum(overlay_rows(statistics, SOUTH)[cell][3:6]) == 1
    assert statistics.slot(SOUTH) == 6


def test_sources_do_not_see_each_others_labels() -> None:
    statistics = SourceStatistics(make({"preset": "cos", "slices": 4}), {})
    cell = Cell(0, (0,))
    (code,) = statistics.serve(SOUTH, [cell], [1])
    settle(statistics, SOUTH, code, 1, 1)

    seen = {
        source: statistics.estimate(source, cell, 2, is_by_context=False)
        for source in (SOUTH, EAST)
    }

    assert seen == {SOUTH: (1.0, 1), EAST: (0.0, 0)}


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


def test_a_site_that_keeps_only_labels_it_was_right_about_does_so_for_a_source() -> None:
    learner = make({"preset": "cos", "slices": 4, "reading": {"history": "asked"}})
    statistics = SourceStatistics(learner, {})
    cell = Cell(0, (0,))

    for label in (1, 0, 0, 1):
        _, code = statistics.recall(SOUTH, cell, 3)
        settle(statistics, SOUTH, code, 3, label, phase="recall")

    table = statistics._overlays[SOUTH].tables[""]
    assert table.known(0) == [(0, 2)]


# -- the cap ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["isolated", "full"])
def test_a_source_may_open_so_many_cells_and_no_more(trust: Trust) -> None:
    learner = make({"preset": "cos", "slices": 8})
    statistics = SourceStatistics(learner, {SOUTH: trust}, most_cells=2)
    own_row(learner, (0.99,), 1)
    cells = [Cell(0, (place,)) for place in (7, 0, 1)]
    statistics.serve(SOUTH, cells, [2, 3, 4])
    before = statistics.report(SOUTH, cells[0], 5)

    with pytest.raises(LimitError, match="peer 'south' has opened 2 cells"):
        statistics.serve(SOUTH, [cells[0], Cell(0, (2,))], [6, 7])

    assert statistics.report(SOUTH, cells[0], 8) == before
    assert statistics.opened == 2
    statistics.serve(EAST, [Cell(0, (2,))], [1])


# -- change detection ------------------------------------------------------------------------------


def wrong_then(statistics: SourceStatistics, source: str, slots: range, right: int) -> None:
    for slot in slots:
        (code,) = statistics.serve(source, [Cell(0, (0,))], [slot])
        settle(statistics, source, code, slot, int(slot < right))


def test_an_alarm_by_a_sources_labels_forgets_these_alone() -> None:
    learner = make({"preset": "share-ucb", "alarm": 1.0, "slices": 1})
    statistics = SourceStatistics(learner, {})
    for slot in range(1, 20):
        learner.settle(own_row(learner, (0.5,), slot), 1, (0.5,), slot)
    before = learner.snapshot()
    (late,) = statistics.serve(SOUTH, [Cell(0, (0,))], [20])

    wrong_then(statistics, SOUTH, range(1, 60), right=40)

    table = statistics._overlays[SOUTH].tables[""]
    assert 40 <= table.doubts()[3] < 60
    assert learner.snapshot() == before
    known = table.counters(0)
    settle(statistics, SOUTH, late, 20, 1)  # decided before that
    assert table.counters(0) == known


def test_a_source_forgets_when_the_site_does() -> None:
    learner = make({"preset": "share-ucb", "alarm": 1.0, "slices": 1})
    statistics = SourceStatistics(learner, {})
    wrong_then(statistics, SOUTH, range(1, 30), right=100)
    (open_,) = statistics.serve(SOUTH, [Cell(0, (0,))], [30])
    for slot in range(1, 200):
        learner.settle(own_row(learner, (0.5,), slot), int(slot < 100), (0.5,), slot)
        if learner.snapshot().doubts[""][3]:
            break

    _, lines = statistics.take()

    assert learner.snapshot().doubts[""][3] > 0
    assert lines[0].counters[3:9] == [0] * 6
    settle(statistics, SOUTH, open_, 30, 1)
    assert overlay_rows(statistics, SOUTH)[Cell(0, (0,))][3:9] == [0] * 6
    (code,) = statistics.serve(SOUTH, [Cell(0, (0,))], [31])
    settle(statistics, SOUTH, code, 31, 1)
    assert sum(overlay_rows(statistics, SOUTH)[Cell(0, (0,))][3:6]) == 1


# -- robust trust ----------------------------------------------------------------------------------


def test_robust_sources_are_served_by_the_median_of_all_sources() -> None:
    learner = make({"preset": "cos", "slices": 1})
    trust: dict[str, Trust] = {SOUTH: "robust"}
    statistics = SourceStatistics(learner, trust)
    cell = Cell(0, (0,))
    counted: Counts = {("", "", arm): (40, 10 + 10 * k) for k, arm in enumerate("abc")}
    name = learner.names.of(cell)
    for source in (OWN, "client/x", EAST, "other"):
        statistics.count(source, {(name, source, arm): c for (_, _, arm), c in counted.items()})

    (code,), (other,) = (statistics.serve(one, [cell], [3]) for one in (SOUTH, EAST))

    assert (arm_of(code), arm_of(other)) == (2, 0)


def test_medians_need_enough_sources_with_enough_labels() -> None:
    medians = RobustMedians("ab")
    for source in ("x", "y", "z"):
        assert medians.best("cell") is None
        medians.add("cell", source, "a", (20, 10))
        medians.add("cell", source, "peer", (20, 20))
        medians.add("cell", source, "b", (19, 19))
    assert medians.best("cell") is None
    for source in ("x", "y", "z"):
        medians.add("cell", source, "b", (1, 0 if source == "x" else 1))

    assert medians.best("cell") == 1


# -- commits ---------------------------------------------------------------------------------------


def loaded(
    learner: Learner,
    lines: Sequence[CellLine],
    states: Sequence[SourceState],
    requests: Sequence[Request] = (),
) -> Loaded:
    cells: dict[str, list[CellLine]] = {}
    for line in lines:
        cells.setdefault(line.source, []).append(line)
    sources = {state.source: state for state in states}
    sources[OWN] = SourceState(OWN, learner.slot, learner.snapshot().doubts)
    return Loaded(sources, cells, {}, [], {}, 1, list(requests), 0)


def restored(
    learner: Learner, policy: dict[str, Any], found: Loaded, trust: dict[str, Trust] | None = None
) -> tuple[Learner, SourceStatistics]:
    again = make(policy)
    again.restore(learner.snapshot())
    statistics = SourceStatistics(again, trust or {})
    statistics.load(found)
    return again, statistics


@with_seeds("policy", POLICIES, examples=5)
def test_loaded_statistics_go_on_as_those_that_were_taken(
    policy: dict[str, Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    learner = make(policy)
    statistics = SourceStatistics(learner, {})
    store: dict[tuple[str, int], CellLine] = {}
    states: dict[str, SourceState] = {}
    pending = []
    for slot in range(1, 60):
        source = str(rng.choice([SOUTH, EAST]))
        (code,) = statistics.serve(source, [drawn_cell(rng, learner)], [slot])
        if rng.random() < 0.2:
            pending.append(request(statistics, source, [code], [slot]))
        else:
            settle(statistics, source, code, slot, int(rng.integers(2)))
        if rng.random() < 0.2 or slot == 59:
            some, lines = statistics.take()
            store |= {(line.source, line.line): line for line in lines}
            states |= {state.source: state for state in some}
    lines = [store[key] for key in sorted(store)]
    assert statistics.take() == ([], [])

    again, others = restored(
        learner, policy, loaded(learner, lines, list(states.values()), pending)
    )

    assert others.take() == ([], [])
    assert again.snapshot() == learner.snapshot()
    assert others.opened == statistics.opened
    for slot in range(60, 90):
        cell, label = drawn_cell(rng, learner), int(rng.integers(2))
        (a,), (b,) = (one.serve(SOUTH, [cell], [slot]) for one in (statistics, others))
        assert a == b
        assert statistics.report(SOUTH, cell, slot) == others.report(SOUTH, cell, slot)
        for one in (statistics, others):
            settle(one, SOUTH, a, slot, label)
            if pending:
                one.settle(pending[-1], [0], [label])
        pending = pending[:-1]


def test_only_cells_that_changed_are_taken() -> None:
    learner = make({"preset": "cos", "slices": 8})
    statistics = SourceStatistics(learner, {})
    cells = [Cell(0, (place,)) for place in range(4)]
    codes = statistics.serve(SOUTH, cells, [1, 2, 3, 4])
    assert [line.line for line in statistics.take()[1]] == [0, 1, 2, 3]

    settle(statistics, SOUTH, codes[2], 3, 1)
    statistics.report(SOUTH, cells[1], 9)
    states, lines = statistics.take()

    assert [(line.source, line.line, line.name) for line in lines] == [(SOUTH, 2, "g8:2")]
    assert [(state.source, state.slot) for state in states] == [(SOUTH, 9)]


def test_sums_of_an_old_store_become_rows_that_are_taken_with_the_state() -> None:
    policy = {"preset": "multi-resolution"}
    learner = make(policy)
    fine = Cell(1, (1,))
    name = learner.names.of(fine)
    migrated = {name: MigratedCell(7, {"a": (4, 3), "c": (2, 0)}, [("x", 5), ("y", 1)])}
    state = SourceState(SOUTH, 40, migrated=migrated)
    old = RowGroup(-1 - code_of(0, 2, SERVE), name, "serve", "c", 0.0)
    waiting = request(SourceStatistics(learner, {EAST: "full"}), EAST, [], [5])
    waiting.source, waiting.groups, waiting.group_of = SOUTH, [old], [0]
    waiting.truths, waiting.predictions = [UNKNOWN], [1]

    _, statistics = restored(learner, policy, loaded(learner, [], [state], [waiting]))

    table = statistics._overlays[SOUTH].tables[""]
    assert [table.record(table.find(fine), k) for k in range(3)] == [(4, 3), (0, 0), (2, 0)]
    assert [table.record(table.find(Cell(0, (0,))), k)[0] for k in range(3)] == [4, 0, 2]
    assert statistics.recall(SOUTH, fine, 41)[0] == "x"
    assert waiting.groups[0].code == code_of(table.find(fine), 2, SERVE)
    statistics.settle(waiting, [0], [1])
    assert table.record(table.find(fine), 2) == (3, 1)
    states, lines = statistics.take()
    assert [(one.source, one.migrated) for one in states] == [(SOUTH, None)]
    assert name in [line.name for line in lines]


@pytest.mark.parametrize("trust", [{}, {SOUTH: "full"}])
def test_codes_of_requests_are_resolved_when_the_trust_has_changed(
    trust: dict[str, Trust],
) -> None:
    policy = {"preset": "cos", "slices": 8}
    learner = make(policy)
    own_row(learner, (0.99,), 1)
    was: dict[str, Trust] = {} if trust else {SOUTH: "full"}
    statistics = SourceStatistics(learner, was)
    codes = statistics.serve(SOUTH, [Cell(0, (3,)), Cell(0, (7,))], [1, 2])
    waiting = request(statistics, SOUTH, codes, [1, 2])
    states, lines = statistics.take()

    again, others = restored(
        learner, policy, loaded(learner, lines, states, [waiting]), dict(trust)
    )

    for group, place in zip(waiting.groups, (3, 7), strict=True):
        assert others.cell_name(SOUTH, "", row_of(group.code)) == f"g8:{place}"
        assert again.choice(group.code).phase == "serve"


# -- changed cells of the site ---------------------------------------------------------------------


@with_seeds("policy", POLICIES)
def test_lines_taken_make_the_same_learner(policy: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    learner = make(policy)
    statistics = SourceStatistics(learner, {EAST: "full"})
    dirty, store = DirtyCells(learner), dict[int, CellLine]()
    for slot in range(1, 60, 4):
        statistics.report(SOUTH, drawn_cell(rng, learner), slot)
        statistics.report(EAST, drawn_cell(rng, learner), slot)
        (served,) = statistics.serve(EAST, [drawn_cell(rng, learner)], [slot])
        learner.settle(served, 1, (), slot, space="")
        dirty.note("", served)
        point = (float(rng.random()),)
        code = own_row(learner, point, slot)
        learner.settle(code, int(rng.integers(2)), point, slot)
        dirty.note("", code, point)
        contexts, codes = rng.random((3, 1)), np.full(3, NOT_DECIDED, np.int64)
        done = learner.decide_rows(contexts, slot + 1, codes)
        dirty.note_rows("", codes[:done], contexts[:done])
        learner.advance(slot + 3)
        store |= {line.line: line for line in dirty.take()}

    assert [line.name for line in store.values() if line.source] == []
    cells = [(store[line].name, store[line].counters) for line in sorted(store)]
    snapshot = learner.snapshot()
    # Replies of peers may be heard without a decision; they are not needed after a restart.
    known = 3 + 2 * len(learner.arms)
    assert [(name, counters[:known]) for name, counters in cells] == [
        (name, counters[:known]) for name, counters in snapshot.cells
    ]


def test_nothing_is_taken_twice_nor_after_clearing() -> None:
    learner = make({"preset": "cos", "slices": 8})
    dirty = DirtyCells(learner)
    dirty.note("", own_row(learner, (0.5,), 1), (0.5,))
    assert len(dirty.take()) == 1
    assert dirty.take() == []
    own_row(learner, (0.9,), 2)

    dirty.clear()

    assert dirty.take() == []


# -- costs -----------------------------------------------------------------------------------------


def calls_of_own_rows(sources: int) -> int:
    """Return how many calls own rows and their labels take beside so many isolated sources."""
    learner = make({"preset": "dcza", "split-power": 0.9})
    statistics = SourceStatistics(learner, {})
    dirty = DirtyCells(learner)
    for k in range(sources):
        statistics.serve(f"peer{k}", [Cell(2, (place,)) for place in range(4)], [1, 2, 3, 4])
    dirty.take()
    calls = 0

    def count(frame: Any, event: str, _what: Any) -> None:
        nonlocal calls
        caller = {"call": frame.f_back, "c_call": frame}.get(event)
        # What the plain kernel calls within itself is one call, as that of the compiled one.
        calls += caller is not None and "/covey/kernel/" not in caller.f_code.co_filename

    sys.setprofile(count)
    try:
        for slot in range(1, 21):
            code = own_row(learner, (0.1,), slot)
            learner.settle(code, 1, (0.1,), slot)
            dirty.note("", code, (0.1,))
    finally:
        sys.setprofile(None)
    return calls


def test_own_rows_take_as_many_calls_however_many_isolated_sources_there_are() -> None:
    assert calls_of_own_rows(0) == calls_of_own_rows(1) == calls_of_own_rows(16) > 60
