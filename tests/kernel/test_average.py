"""The default policy equals its reference in every step, and its beliefs are what they claim."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import kernel
from covey.bandit.policies import policy_from
from covey.config import load
from covey.kernel import Table, arm_of, phase_of, row_of
from covey.kernel.rules import Cell as KernelCell
from covey.replay.engine import ReplayEngine
from reference.average import WHOLE, Learner, Place, Report, Tree, above, of_one_coordinate
from reference.owners import index_setup
from reference.records import Cell, level_of
from support.effort import effort
from support.streams import log_of
from support.tables import plain_kernel, rows_of

PHASES = ("train", "explore", "exploit", "serve")
NAMES = ("north", "south", "east")
FUNCTIONS = 2
ALONE = bytes([0, 0, 1, 1])  # no peer can be asked
FALSE_REPORT = (0, 0.0, 1.0, ())


@dataclass(frozen=True)
class Options:
    """How the learners of a story are set up; what is drawn of it is in `OPTIONS`."""

    dimension: int = 1
    alarm: float = 5.0
    unit: int = 1
    pending: bool = True
    check_claims: bool = False
    pays: bool = False
    liar: bool = False  # the last learner reports falsely

    def costs(self, place: int) -> tuple[float, ...]:
        return (0.0, 0.1, *(0.02 * place for name in NAMES if name != NAMES[place]))

    def table(self, place: int = 0, engine: Any = kernel) -> Any:
        keys = {"alarm": self.alarm, "pending": self.pending, "check-claims": self.check_claims}
        policy = policy_from(keys).resolve(dimension=self.dimension, most_functions=FUNCTIONS)
        rule = policy.rule(
            functions=FUNCTIONS,
            costs=self.costs(place),
            name=NAMES[place],
            position=place,
            unit=self.unit,
            learns_costs=self.pays,
        )
        return engine.table_of(engine.Clock(*policy.curves()), rule)

    def reference(self, place: int = 0) -> Learner:
        setup = index_setup(
            "auto", (), alarm=self.alarm, pending=self.pending, check_claims=self.check_claims
        )
        costs = self.costs(place)
        return Learner(setup, NAMES[place], FUNCTIONS, costs, self.dimension, unit=self.unit)


def as_kernel(place: Place) -> KernelCell:
    if place.point:
        return KernelCell(8, tuple(int(256 * x) for x in place.point))
    return KernelCell(level_of(place.cell), place.cell.place)


@dataclass
class Label:
    """A pending label: the decision of an asker, and the answer of a peer to it."""

    asker: int
    code: int
    place: Place
    context: tuple[float, ...]
    slot: int
    gain: int = 0
    owner: int = -1
    served: int = 0


@dataclass
class Story:
    """Learners of the kernel and of the reference that live through the same days."""

    options: Options
    rng: np.random.Generator
    waiting: list[Label] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = [self.options.table(asker) for asker in range(len(NAMES))]
        self.learners = [self.options.reference(asker) for asker in range(len(NAMES))]
        self.chances = self.rng.choice([0.1, 0.5, 0.9, 0.98], (len(NAMES), FUNCTIONS))

    def play(self, slots: int) -> None:
        for slot in range(1, slots + 1):
            if slot == slots // 2:  # everything turns
                self.chances = 1.0 - self.chances
            for asker in self.rng.permutation(len(NAMES)).tolist():
                self.live(asker, slot)
            while self.waiting and self.rng.random() < 0.75:
                last = len(self.waiting) - 1
                which = last if self.rng.random() < 0.5 else int(self.rng.integers(last + 1))
                self.end(self.waiting.pop(which))
            if self.rng.random() < 0.02:
                self.restart(int(self.rng.integers(len(NAMES))))

    def live(self, asker: int, slot: int) -> None:
        context = tuple((self.rng.integers(0, 9, self.options.dimension) / 8).tolist())
        closed = bytes(self.rng.integers(0, 2, 4).tolist()) if self.rng.random() < 0.2 else None
        table, learner = self.tables[asker], self.learners[asker]
        place = learner.place_of(0, context)
        code = table.decide(context, slot, closed)
        phase, arm, wanted = learner.choose(place, slot, shut(closed))
        if wanted:
            row = -1 - code
            assert table.stale(row, slot, closed) == [arm - FUNCTIONS for arm in wanted]
            for arm in wanted:
                report = self.report(asker, self.peer(asker, arm), place, slot)
                table.hear(row, arm - FUNCTIONS, report, slot)
                learner.hear(place.cell, arm, Report(*report[1:]), slot)
            code = table.resume(row, context, slot, closed)
            phase, arm, _ = learner.choose(place, slot, shut(closed))
        assert code >= 0
        assert table.cells.cell(row_of(code)).coordinates == place.cell.place
        assert (PHASES[phase_of(code)], arm_of(code)) == (phase, arm)
        learner.waits.own.instances += 1
        self.wait(asker, arm, 1, is_served=False)
        self.answer(Label(asker, code, place, context, slot), arm)

    def wait(self, owner: int, arm: int, by: int, *, is_served: bool) -> None:
        if self.options.pending:
            learner = self.learners[owner]
            learner.pending[arm, is_served] += by
            (learner.waits.peers if is_served else learner.waits.own).pending += by

    def peer(self, asker: int, arm: int) -> int:
        return [k for k in range(len(NAMES)) if k != asker][arm - FUNCTIONS]

    def report(self, asker: int, peer: int, place: Place, slot: int) -> Any:
        if self.options.liar and peer == len(NAMES) - 1:
            return FALSE_REPORT
        offset = self.learners[asker].offset
        table = self.tables[peer]
        report = table.report(table.cells.meet(as_kernel(place), slot), slot, offset)
        assert Report(*report[1:]) == self.learners[peer].report(place, slot, offset)
        return report

    def answer(self, label: Label, arm: int) -> None:
        owner, function = label.asker, arm
        if arm >= FUNCTIONS:
            owner = label.owner = self.peer(label.asker, arm)
            offset, table = self.learners[label.asker].offset, self.tables[owner]
            row = table.cells.meet(as_kernel(label.place), label.slot)
            label.served = table.serve(row, label.slot, -1, offset)
            function = self.learners[owner].help(label.place, label.slot, offset)
            assert arm_of(label.served) == function
            self.learners[owner].waits.peers.instances += 1
            self.wait(owner, function, 1, is_served=True)
        label.gain = int(self.rng.binomial(self.options.unit, self.chances[owner, function]))
        self.waiting.append(label)

    def end(self, label: Label) -> None:
        """Let a label arrive, get lost, or belong to a decision that is taken back."""
        how = str(self.rng.choice(["settle", "forget", "retract"], p=[0.9, 0.05, 0.05]))
        if label.owner >= 0:
            self.end_served(label, how)
        table, learner = self.tables[label.asker], self.learners[label.asker]
        arm = arm_of(label.code)
        self.wait(label.asker, arm, -1, is_served=False)
        if how == "settle":
            self.settle(label, arm)
        elif how == "forget":
            table.forget(label.code)
        else:
            table.retract(label.code, label.context, label.slot)
            learner.waits.own.instances -= 1

    def settle(self, label: Label, arm: int) -> None:
        table, learner = self.tables[label.asker], self.learners[label.asker]
        paid = int(self.rng.integers(0, 200_000)) if self.options.pays else None
        more = () if paid is None else (paid,)
        table.settle(label.code, label.gain, label.context, label.slot, *more)
        learner.waits.own.come(label.slot)
        is_alarm = learner.learn(label.place, arm, label.gain, label.slot, paid)
        assert table.take_alarm() == is_alarm
        for peer in range(len(NAMES)):
            if is_alarm and peer != label.asker:
                self.tables[peer].hear_alarm(label.slot)
                self.learners[peer].hear_alarm(label.slot)
        self.score(label, label.asker, label.code)

    def end_served(self, label: Label, how: str) -> None:
        table, learner = self.tables[label.owner], self.learners[label.owner]
        function, slot = arm_of(label.served), label.slot
        self.wait(label.owner, function, -1, is_served=True)
        if how == "settle":
            table.settle(label.served, label.gain, label.context, slot)
            learner.waits.peers.come(slot)
            learner.learn_more(label.place, function, label.gain, slot)
            self.score(label, label.owner, label.served)
        elif how == "forget":
            table.forget(label.served)
        else:
            table.retract(label.served, (), slot)
            learner.waits.peers.instances -= 1

    def score(self, label: Label, owner: int, code: int) -> None:
        """Sometimes the other function of the owner is free."""
        function = 1 - arm_of(code)
        if function >= 0 and self.rng.random() < 0.2:
            gain = int(self.rng.binomial(self.options.unit, self.chances[owner, function]))
            self.tables[owner].score(code, function, gain, label.context, label.slot)
            self.learners[owner].learn_more(label.place, function, gain, label.slot)

    def restart(self, asker: int) -> None:
        again = self.options.table(asker)
        codes = [label.code for label in self.waiting if label.asker == asker]
        codes += [label.served for label in self.waiting if label.owner == asker]
        again.saved.take_over(self.tables[asker], codes)
        self.tables[asker] = again

    def check(self) -> None:
        for table, learner in zip(self.tables, self.learners, strict=True):
            for row in range(len(table)):
                level, coordinates = table.cells.cell(row)[:2]
                cell = Cell(0, 2**level, tuple(coordinates))
                for arm in range(len(learner.costs)):
                    assert table.record(row, arm) == learner.counted(cell, arm)
            assert table.policy.alarms == learner.alarms or table.policy.alarm_count == len(
                learner.alarms
            )
            logs = learner.logs()
            length = table.policy.state()[0]
            assert table.policy.state()[2 + length : 2 + length + len(logs)] == logs


def shut(closed: bytes | None) -> list[int]:
    return [arm for arm, is_closed in enumerate(closed or b"") if is_closed]


OPTIONS = st.builds(
    Options,
    dimension=st.integers(0, 5),
    alarm=st.sampled_from([0.0, 0.5, 5.0]),
    unit=st.sampled_from([1, 1, 10]),
    pending=st.booleans(),
    check_claims=st.booleans(),
    pays=st.booleans(),
    liar=st.booleans(),
)


@settings(max_examples=effort(20, plain=12, long=100), deadline=None)
@given(options=OPTIONS, seed=st.integers(0, 2**32))
def test_every_step_equals_that_of_the_reference(options: Options, seed: int) -> None:
    story = Story(options, np.random.default_rng(seed))
    story.play(60)
    story.check()


def test_such_stories_have_alarms_and_labels_that_do_not_arrive() -> None:
    """Otherwise nothing above would have compared them."""
    story = Story(Options(alarm=0.5), np.random.default_rng(3))
    story.play(80)

    assert any(learner.alarms for learner in story.learners)
    assert all(learner.waits.own.last_pool > 0 for learner in story.learners)
    assert any(not label.is_prompt for learner in story.learners for label in learner.labels)


# -- beliefs -----------------------------------------------------------------------------------

Taught = list[tuple[tuple[float, ...], int]]  # contexts and gains of the first function


def taught(table: Any, labels: Taught) -> Any:
    """Let a table learn labels of its first function; the second one is closed."""
    closed = bytes([0, 1, 1, 1])
    for slot, (context, gain) in enumerate(labels, 1):
        table.settle(table.decide(context, slot, closed), gain, context, slot)
    return table


def drawn_labels(seed: int, count: int, dimension: int = 1) -> Taught:
    rng = np.random.default_rng(seed)
    contexts = rng.random((count, dimension))
    gains = rng.random(count) < np.where(contexts[:, 0] < 0.5, 0.9, 0.3)
    return [(tuple(x), int(gain)) for x, gain in zip(contexts.tolist(), gains, strict=True)]


def prunings(cell: Cell, depth: int) -> Iterator[tuple[float, list[Cell]]]:
    """Give all ways to divide a cell at most `depth` times, with their prior probabilities."""
    yield (0.5 if depth else 1.0), [cell]
    if depth == 0:
        return
    places = product(*([2 * k, 2 * k + 1] for k in cell.place))
    children = [Cell(cell.space, 2 * cell.side, tuple(place)) for place in places]
    for parts in product(*(list(prunings(child, depth - 1)) for child in children)):
        yield 0.5 * math.prod(p for p, _ in parts), [c for _, cells in parts for c in cells]


def coin(labels: list[tuple[Cell, int]], cell: Cell) -> tuple[float, float]:
    """Return the likelihood of the labels in a cell as those of one coin, and its mean."""
    gains = [gain for where, gain in labels if cell in above(where)]
    right, wrong = sum(gains), len(gains) - sum(gains)
    beta = math.lgamma(right + 0.5) + math.lgamma(wrong + 0.5) - math.lgamma(len(gains) + 1.0)
    return math.exp(beta) / math.pi, (right + 0.5) / (len(gains) + 1)


@pytest.mark.parametrize(("dimension", "depth"), [(1, 3), (2, 1)])
@pytest.mark.parametrize("count", [0, 5, 40])
def test_the_weighted_tree_is_the_average_over_all_prunings(
    dimension: int, depth: int, count: int
) -> None:
    rng = np.random.default_rng(count)
    side = 2**depth
    cells = [Cell(0, side, tuple(place)) for place in product(range(side), repeat=dimension)]
    labels = [
        (cells[k], int(rng.random() < 0.1 + 0.8 * k / len(cells)))
        for k in rng.integers(0, len(cells) // 2 + 1, count).tolist()
    ]
    tree = Tree(labels, 1, depth)
    for cell in cells:
        total = moment = 0.0
        for prior, leaves in prunings(Cell(0, 1, (0,) * dimension), depth):
            weight = prior * math.prod(coin(labels, leaf)[0] for leaf in leaves)
            leaf = next(leaf for leaf in leaves if leaf in above(cell))
            total += weight
            moment += weight * coin(labels, leaf)[1]

        assert tree.weighted(cell).mean == pytest.approx(moment / total, abs=1e-6)


@pytest.mark.parametrize("dimension", [1, 2])
def test_the_gaussian_tree_is_gaussian_conditioning(dimension: int) -> None:
    learner = Options(dimension=dimension).reference()
    labels = [(learner.place_of(0, x).cell, gain) for x, gain in drawn_labels(1, 80, dimension)]
    cells = list(dict.fromkeys(cell for cell, _ in labels))
    cells.append(learner.place_of(0, (0.999,) * dimension).cell)
    paths = [set(above(cell)) for cell in cells]
    prior = np.array(
        [
            [sum(0.25 if c.side == 1 else (0.5 / c.side) ** 2 for c in a & b) for a in paths]
            for b in paths
        ]
    )
    design = np.array([[cell == one for one in cells] for cell, _ in labels], float)
    gains = np.array([gain for _, gain in labels], float)
    pull = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + np.eye(len(labels)) / 4)
    means = 0.5 + pull @ (gains - 0.5)
    variances = np.diag(prior - pull @ design @ prior)
    tree = Tree(labels, 1, learner.finest)

    for k, cell in enumerate(cells):
        assert tree.gaussian(cell).mean == pytest.approx(means[k].clip(0, 1), abs=1e-4)
        assert tree.gaussian(cell).variance == pytest.approx(4 * variances[k], rel=1e-4)


def test_a_tree_without_labels_is_the_prior() -> None:
    cell = Cell(0, 256, (77,))
    tree = Tree([], 1, 8)

    assert tree.one_cell(cell) == tree.weighted(cell) == (0.5, 1.0)
    assert tree.gaussian(cell) == (0.5, pytest.approx(4 / 3, abs=1e-4))


@pytest.mark.parametrize("dimension", [0, 1, 3])
@pytest.mark.parametrize("unit", [1, 4])
def test_sums_of_cells_do_not_depend_on_the_order_of_labels(dimension: int, unit: int) -> None:
    rng = np.random.default_rng(dimension)
    contexts = [tuple(row) for row in rng.random((60, dimension)).tolist()]
    labels = list(zip(contexts, rng.integers(0, unit + 1, 60).tolist(), strict=True))
    options = Options(dimension=dimension, unit=unit, alarm=0.0)
    sums = []
    for shuffled in (labels, [labels[k] for k in rng.permutation(60)]):
        table = taught(options.table(), shuffled)
        cells = [table.cells.cell(row) for row in range(len(table))]
        counters = [table.saved.arm_counters(row, 0)[:14] for row in range(len(table))]
        sums.append(dict(zip(cells, counters, strict=True)))

    assert sums[0] == sums[1]


def test_combined_labels_are_withdrawn_without_a_trace() -> None:
    options = Options(alarm=0.0)
    table, other = (taught(options.table(), drawn_labels(seed, 80)) for seed in (1, 2))
    row = table.cells.meet(other.cells.cell(8), 80)
    before = rows_of(table), table.report(row, 81)
    table.combine(row, other, 1)
    assert table.report(row, 81) != before[1]
    table.combine(row, other, -1)

    assert (rows_of(table), table.report(row, 81)) == before


def test_one_coordinate_of_many_is_found_by_few_labels() -> None:
    rng = np.random.default_rng(3)
    contexts = [tuple(point) for point in rng.random((300, 10)).tolist()]
    gains = [int(rng.random() < (0.9 if point[3] < 0.5 else 0.4)) for point in contexts]
    labels = list(zip(contexts, gains, strict=True))
    low, high = (of_one_coordinate(labels, 1, (0.5,) * 3 + (x,) + (0.5,) * 6) for x in (0.3, 0.7))
    unrelated = list(zip(contexts[::-1], gains, strict=True))

    assert low.mean == pytest.approx(0.9, abs=0.06)
    assert high.mean == pytest.approx(0.4, abs=0.06)
    assert of_one_coordinate(unrelated, 1, contexts[0]).mean == pytest.approx(0.65, abs=0.08)


@pytest.mark.parametrize("unit", [1, 4])
def test_counts_by_coordinate_do_not_depend_on_the_order_of_labels(unit: int) -> None:
    options = Options(dimension=4, unit=unit, alarm=0.0)
    labels = [(x, gain * k % (unit + 1)) for k, (x, gain) in enumerate(drawn_labels(6, 80, 4))]
    counts = 4 * 2 * 32  # the last of what is kept of a function, before the number of its notes
    tables = [taught(options.table(), part) for part in (labels, labels[::-1])]
    kept = [table.policy.beliefs()[0][-1 - counts : -1] for table in tables]

    assert kept[0] == kept[1]
    assert sum(kept[0][::2]) == 4 * len(labels)


def test_weights_are_the_posterior_of_the_beliefs() -> None:
    learner = Options(alarm=0.0).reference()
    for slot, (context, gain) in enumerate(drawn_labels(4, 60), 1):
        learner.add(learner.place_of(0, context), 0, gain, slot)
    logs = np.array(learner.logs()[:3]) / WHOLE
    weights, _ = learner.weights()

    assert sum(weights) == pytest.approx(1)
    assert weights == pytest.approx(np.exp(logs) / np.exp(logs).sum())
    assert weights[0] < 0.001  # contexts tell accuracies apart, so there is not one cell


# -- changes -----------------------------------------------------------------------------------


def streamed(right: np.ndarray, seed: int, dimension: int = 1) -> Any:
    contexts = np.random.default_rng(seed).random((len(right), dimension)).tolist()
    labels = [(tuple(x), int(gain)) for x, gain in zip(contexts, right.tolist(), strict=True)]
    return taught(Options(dimension=dimension).table(), labels)


@pytest.mark.parametrize("accuracy", [0.05, 0.5, 0.7, 0.9, 0.98])
def test_labels_that_agree_with_what_is_believed_raise_no_alarm(accuracy: float) -> None:
    tables = [
        streamed(np.random.default_rng([seed, 7]).random(1_500) < accuracy, seed)
        for seed in range(10)
    ]

    assert sum(table.policy.alarm_count for table in tables) == 0


@pytest.mark.parametrize("dimension", [0, 1, 5])
def test_a_fall_raises_an_alarm_soon(dimension: int) -> None:
    rng = np.random.default_rng(9)
    right = np.concatenate([rng.random(1_000) < 0.9, rng.random(100) < 0.4])
    table = streamed(right, 1, dimension)

    assert table.policy.alarm_count >= 1
    assert 1_000 < table.policy.alarms[0] <= 1_060


def test_an_alarm_that_is_told_forgets_labels_and_is_not_counted() -> None:
    table = taught(Options().table(), drawn_labels(3, 50))
    table.hear_alarm(40)
    late = table.decide((0.5,), 51, ALONE)
    table.settle(late, 1, (0.5,), 40)  # it was decided before

    assert table.record(0, 0) == (0, 0)
    assert (table.policy.alarm_count, table.policy.forgotten, table.take_alarm()) == (0, 40, False)
    table.hear_alarm(30)
    assert table.policy.forgotten == 40


# -- what is kept ------------------------------------------------------------------------------


def both(first: Table, second: Table, dimension: int, slots: int = 150) -> None:
    """Let two tables live through the same slots, and compare every decision."""
    rng = np.random.default_rng(6)
    for slot in range(201, 201 + slots):
        context = tuple(rng.random(dimension).tolist())
        codes = [table.decide(context, slot, ALONE) for table in (first, second)]
        assert codes[0] == codes[1]
        gain = int(rng.integers(2))
        for table in (first, second):
            table.settle(codes[0], gain, context, slot)
    assert first.policy.state() == second.policy.state()
    assert rows_of(first) == rows_of(second)


@pytest.mark.parametrize("dimension", [0, 1, 3, 4])
def test_a_restored_table_continues_with_the_same_bits(dimension: int) -> None:
    options = Options(dimension=dimension)
    labels = [(x, int(k < 100)) for k, (x, _) in enumerate(drawn_labels(5, 200, max(1, dimension)))]
    table = taught(options.table(), [(x[:dimension], gain) for x, gain in labels])
    again = options.table()
    again.saved.take_over(table, [])

    assert table.policy.alarm_count > 0
    both(table, again, dimension)


@pytest.mark.skipif(not kernel.is_compiled(), reason="it would be compared with itself")
@pytest.mark.parametrize("dimension", [0, 1, 3, 4])
@pytest.mark.parametrize("unit", [1, 4])
def test_the_plain_kernel_equals_the_compiled_one(dimension: int, unit: int) -> None:
    options = Options(dimension=dimension, unit=unit, alarm=1.0)
    both(options.table(), options.table(engine=plain_kernel()), dimension, 300)


@pytest.mark.parametrize("stop", [100, 300])
def test_many_coordinates_are_calibrated_by_the_first_labels_and_kept(stop: int) -> None:
    """Features are made with the 256th label; a restart before and after changes nothing."""
    options = Options(dimension=70)
    rng = np.random.default_rng(1)
    contexts = [tuple(row) for row in rng.random((400, 70)).tolist()]
    labels = [(x, int(rng.random() < 0.9)) for x in contexts[:stop]]
    table = taught(options.table(), labels)
    again = options.table()
    again.saved.take_over(table, [])
    for slot, context in enumerate(contexts[stop:], stop + 1):
        codes = [one.decide(context, slot, ALONE) for one in (table, again)]
        assert codes[0] == codes[1]
        for one in (table, again):
            one.settle(codes[0], 1, context, slot)

    assert table.policy.state() == again.policy.state()


def test_a_table_that_was_replayed_waits_for_reports_when_it_decides_by_itself() -> None:
    learners = [
        {"name": "a", "functions": ["f"], "peers": {"b": 0.0}},
        {"name": "b", "functions": ["g"], "peers": {"a": 0.0}},
    ]
    setup = load({"policy": {"preset": "auto"}, "learner": learners})
    engine = ReplayEngine(setup, setup.sites, 1, [0, 1])
    engine.play(log_of([[0] * 20, [1] * 20], [0] * 20, contexts=np.linspace(0.0, 0.9, 20)))

    assert engine.tables[1][0].decide((0.5,), 21) < 0
