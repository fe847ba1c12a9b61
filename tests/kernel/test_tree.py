"""The default policy equals its reference in every step, and infers as Gaussians do."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bandit.policies import policy_from
from covey.kernel import Clock, Table, arm_of, code_of, phase_of, row_of, table_of
from covey.kernel.rules import Cell as KernelCell
from reference.detection import WHOLE
from reference.owners import index_setup
from reference.records import Cell, level_of
from reference.tree import Learner, above
from support.effort import effort
from support.tables import rows_of

PHASES = ("train", "explore", "exploit", "serve")
NAMES = ("north", "south", "east")
FUNCTIONS = 2
FALSE_REPORT = (0, 0.0, 1.0)


@dataclass(frozen=True)
class Options:
    """How the learners of a story are set up; what is drawn of it is in `OPTIONS`."""

    dimension: int = 1
    alarm: float = 5.0
    unit: int = 1
    pending: bool = False
    check_claims: bool = False
    slices: int | None = None
    finest_level: int | None = None
    spread: float = 0.5
    pays: bool = False
    liar: bool = False  # the last learner reports falsely

    def policy(self) -> dict[str, Any]:
        keys = {"slices": self.slices, "finest-level": self.finest_level}
        return {
            "alarm": self.alarm,
            "pending": self.pending,
            "check-claims": self.check_claims,
            "spread": self.spread,
            **{key: value for key, value in keys.items() if value is not None},
        }

    def costs(self, place: int) -> tuple[float, ...]:
        return (0.0, 0.1, *(0.02 * place for name in NAMES if name != NAMES[place]))

    def table(self, place: int = 0) -> Table:
        policy = policy_from(self.policy()).resolve(
            dimension=self.dimension, most_functions=FUNCTIONS
        )
        rule = policy.rule(
            functions=FUNCTIONS,
            costs=self.costs(place),
            name=NAMES[place],
            position=place,
            unit=self.unit,
            learns_costs=self.pays,
        )
        return table_of(Clock(policy.scales(), policy.powers()), rule)

    def reference(self, place: int = 0) -> Learner:
        grid = {} if self.slices is None else {"zooming": False, "slices": self.slices}
        finest = {} if self.finest_level is None else {"finest_level": self.finest_level}
        setup = index_setup(
            "auto",
            (),
            alarm=self.alarm,
            pending=self.pending,
            check_claims=self.check_claims,
            spread=self.spread,
            **(grid | finest),
        )
        return Learner(setup, NAMES[place], FUNCTIONS, self.costs(place), unit=self.unit)


def as_reference(table: Table, row: int, options: Options) -> Cell:
    level, place, _ = table.cells.cell(row)
    return Cell(0, options.slices or 2**level, tuple(place))


def as_kernel(cell: Cell, options: Options) -> KernelCell:
    return KernelCell(0 if options.slices else level_of(cell), cell.place)


@dataclass
class Label:
    """A pending label: the decision of an asker, and the answer of a peer to it."""

    place: int
    code: int
    cell: Cell
    context: tuple[float, ...]
    slot: int
    gain: int
    owner: int = -1
    served: int = 0


@dataclass
class Story:
    """Learners of the kernel and of the reference that live through the same days."""

    options: Options
    rng: np.random.Generator
    waiting: list[Label] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = [self.options.table(place) for place in range(len(NAMES))]
        self.learners = [self.options.reference(place) for place in range(len(NAMES))]
        self.chances = self.rng.choice([0.1, 0.5, 0.9, 0.98], (len(NAMES), FUNCTIONS))

    def play(self, slots: int) -> None:
        for slot in range(1, slots + 1):
            if slot == slots // 2:  # everything turns
                self.chances = 1.0 - self.chances
            for place in self.rng.permutation(len(NAMES)).tolist():
                self.live(place, slot)
            while self.waiting and self.rng.random() < 0.75:
                self.end(self.waiting.pop(int(self.rng.integers(len(self.waiting)))))
            if self.rng.random() < 0.02:
                self.restart(int(self.rng.integers(len(NAMES))))

    def live(self, place: int, slot: int) -> None:
        point = self.rng.integers(0, 9, self.options.dimension) / 8
        context = tuple(point.tolist())
        closed = bytes(self.rng.integers(0, 2, 4).tolist()) if self.rng.random() < 0.2 else None
        table, learner = self.tables[place], self.learners[place]
        cell = learner.cell_of(0, context)
        code = table.decide(context, slot, closed)
        phase, arm = learner.choose(cell, slot, shut(closed))
        while phase == "ask":
            row = -1 - code
            assert as_reference(table, row, self.options) == cell
            assert table.stale(row, slot, closed) == [arm - FUNCTIONS]
            report = self.report(self.peer(place, arm), cell, slot)
            table.hear(row, arm - FUNCTIONS, report, slot)
            learner.hear(cell, arm, report[1:], slot)
            code = table.resume(row, context, slot, closed)
            phase, arm = learner.choose(cell, slot, shut(closed))
        assert code >= 0
        assert as_reference(table, row_of(code), self.options) == cell
        assert (PHASES[phase_of(code)], arm_of(code)) == (phase, arm)
        learner.arrivals[cell] += 1
        learner.waiting[cell, arm] += 1
        self.answer(Label(place, code, cell, context, slot, 0), arm)

    def peer(self, place: int, arm: int) -> int:
        return [k for k in range(len(NAMES)) if k != place][arm - FUNCTIONS]

    def report(self, peer: int, cell: Cell, slot: int) -> tuple[int, float, float]:
        if self.options.liar and peer == len(NAMES) - 1:
            return FALSE_REPORT
        row = self.tables[peer].cells.meet(as_kernel(cell, self.options), slot)
        report = self.tables[peer].report(row, slot)
        assert report[1:] == self.learners[peer].report(cell, slot)
        return report

    def answer(self, label: Label, arm: int) -> None:
        owner, function = label.place, arm
        if arm >= FUNCTIONS:
            owner = label.owner = self.peer(label.place, arm)
            row = self.tables[owner].cells.meet(as_kernel(label.cell, self.options), label.slot)
            label.served = self.tables[owner].serve(row, label.slot)
            function = self.learners[owner].help(label.cell, label.slot)
            assert arm_of(label.served) == function
            self.learners[owner].waiting[label.cell, function] += 1
        label.gain = int(self.rng.binomial(self.options.unit, self.chances[owner, function]))
        self.waiting.append(label)

    def end(self, label: Label) -> None:
        """Let a label arrive, get lost, or belong to a decision that is taken back."""
        how = self.rng.choice(["settle", "forget", "retract"], p=[0.9, 0.05, 0.05])
        paid = int(self.rng.integers(0, 200_000)) if self.options.pays else None
        table, learner = self.tables[label.place], self.learners[label.place]
        arm = arm_of(label.code)
        learner.waiting[label.cell, arm] -= 1
        if how == "settle":
            more = () if paid is None else (paid,)
            table.settle(label.code, label.gain, label.context, label.slot, *more)
            learner.learn(label.cell, arm, label.gain, label.slot, paid)
            self.score(label, label.place, label.code)
        elif how == "forget":
            table.forget(label.code)
        else:
            table.retract(label.code, label.context, label.slot)
            learner.arrivals[label.cell] -= 1
        if label.owner >= 0:
            self.end_served(label, how)

    def end_served(self, label: Label, how: str) -> None:
        table, learner = self.tables[label.owner], self.learners[label.owner]
        function = arm_of(label.served)
        learner.waiting[label.cell, function] -= 1
        if how == "settle":
            table.settle(label.served, label.gain, (), label.slot)
            learner.learn_served(label.cell, function, label.gain, label.slot)
            self.score(label, label.owner, label.served)
        elif how == "forget":
            table.forget(label.served)
        else:
            table.retract(label.served, (), label.slot)

    def score(self, label: Label, owner: int, code: int) -> None:
        """Sometimes the other function of the owner is free."""
        function = 1 - arm_of(code)
        if function >= 0 and self.rng.random() < 0.2:
            gain = int(self.rng.binomial(self.options.unit, self.chances[owner, function]))
            self.tables[owner].score(code, function, gain, label.context, label.slot)
            self.learners[owner].score(label.cell, function, gain, label.slot)

    def restart(self, place: int) -> None:
        again = self.options.table(place)
        mine = [label.code for label in self.waiting if label.place == place]
        mine += [label.served for label in self.waiting if label.owner == place]
        again.saved.take_over(self.tables[place], mine)
        self.tables[place] = again

    def check(self) -> None:
        for table, learner in zip(self.tables, self.learners, strict=True):
            for row in range(len(table)):
                cell = as_reference(table, row, self.options)
                for arm in range(len(learner.costs)):
                    assert table.record(row, arm) == learner.counted(cell, arm)
                    assert tuple(table.saved.arm_counters(row, arm)[9:11]) == learner.evidence(
                        cell, arm
                    )
            assert table.alarm_count == len(learner.alarms)


def shut(closed: bytes | None) -> list[int]:
    return [arm for arm, is_closed in enumerate(closed or b"") if is_closed]


OPTIONS = st.builds(
    Options,
    dimension=st.integers(0, 3),
    alarm=st.sampled_from([0.0, 0.5, 5.0]),
    unit=st.sampled_from([1, 1, 10]),
    pending=st.booleans(),
    check_claims=st.booleans(),
    spread=st.sampled_from([0.1, 0.5, 2.0]),
    pays=st.booleans(),
    liar=st.booleans(),
    finest_level=st.sampled_from([None, None, 0, 2]),
)


@settings(max_examples=effort(30, plain=20, long=100))
@given(options=OPTIONS, slices=st.sampled_from([None, None, 3]), seed=st.integers(0, 2**32))
def test_every_step_equals_that_of_the_reference(
    options: Options, slices: int | None, seed: int
) -> None:
    if slices is not None and options.finest_level is None:
        options = Options(**{**vars(options), "slices": slices})
    story = Story(options, np.random.default_rng(seed))
    story.play(120)
    story.check()


def test_such_stories_have_alarms_errors_in_runs_and_labels_that_do_not_arrive() -> None:
    """Otherwise nothing above would have compared them."""
    story = Story(Options(alarm=0.5, pending=True), np.random.default_rng(3))
    story.play(120)

    assert all(learner.alarms for learner in story.learners)
    assert any(learner.moods.slope > 0 for learner in story.learners)
    assert any(rise.labels for learner in story.learners for rise in learner.rises)
    assert all(learner.arriving < WHOLE for learner in story.learners)


def test_such_stories_have_learners_that_use_one_cell_and_some_that_try_the_tree() -> None:
    story = Story(Options(alarm=0.0, dimension=3), np.random.default_rng(0))
    story.play(160)
    story.check()

    users = [learner for learner in story.learners if learner.contest.uses_one_cell]
    assert users
    assert {learner.is_try(slot) for learner in users for slot in range(120, 160)} == {True, False}


# -- inference ---------------------------------------------------------------------------------

EXPLOIT = 2


def taught(options: Options, labels: list[tuple[tuple[float, ...], int, int]]) -> Table:
    """Return a table with these labels: a context of an own arrival, a function and a gain."""
    table = options.table()
    closed = bytes([0, 0, 1, 1])
    for slot, (context, function, gain) in enumerate(labels, 1):
        code = table.decide(context, slot, closed)
        table.forget(code)
        code = code_of(row_of(code), function, EXPLOIT)
        table.expect(code)
        table.settle(code, gain, context, slot)
    return table


def drawn_labels(
    seed: int, count: int, dimension: int = 1
) -> list[tuple[tuple[float, ...], int, int]]:
    rng = np.random.default_rng(seed)
    return [
        (tuple(rng.random(dimension).tolist()), int(rng.integers(FUNCTIONS)), int(rng.integers(2)))
        for _ in range(count)
    ]


def conditioned(cells: list[Cell], labels: list[tuple[Cell, int]], spread: float) -> Any:
    """Return means and variances of the tree's cells, by the matrix of covariances."""
    paths = [set(above(cell)) for cell in cells]
    variance = {
        cell: 0.25 if cell.side == 1 else (spread / cell.side) ** 2
        for path in paths
        for cell in path
    }
    prior = np.array([[sum(variance[c] for c in one & other) for other in paths] for one in paths])
    design = np.array([[cell == one for one in cells] for cell, _ in labels], float)
    gains = np.array([gain for _, gain in labels], float)
    gain_matrix = (
        prior @ design.T @ np.linalg.inv(design @ prior @ design.T + np.eye(len(labels)) / 4)
    )
    means = 0.5 + gain_matrix @ (gains - design @ np.full(len(cells), 0.5))
    return means, np.diag(prior - gain_matrix @ design @ prior)


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("spread", [0.1, 0.5, 2.0])
def test_mean_and_variance_are_those_of_gaussian_conditioning(
    spread: float, dimension: int
) -> None:
    options = Options(alarm=1e5, spread=spread, dimension=dimension)
    told = drawn_labels(1, 200, dimension)
    learner = options.reference()
    seen: list[tuple[Cell, int]] = []
    for context, function, gain in told:
        cell = learner.cell_of(0, context)
        learner.arrivals[cell] += 1
        learner.add(cell, function, gain)
        if function == 0:
            seen.append((cell, gain))
    table = taught(options, told)
    cells = [as_reference(table, row, options) for row in range(len(table))]
    means, variances = conditioned(cells, seen, spread)
    slot = len(told)

    for row, cell in enumerate(cells):
        belief = learner.belief(cell, 0)
        assert tuple(table.saved.arm_counters(row, 0)[9:11]) == learner.evidence(cell, 0)
        assert belief.mean == pytest.approx(min(1.0, max(0.0, means[row])), abs=1e-4)
        assert belief.variance == pytest.approx(4 * variances[row], rel=1e-4)
    assert len(cells) > 5
    row = table.cells.find(as_kernel(cells[-1], options))
    assert table.report(row, slot)[1:] == learner.report(cells[-1], slot)


def served(options: Options, labels: list[tuple[KernelCell, int, int]]) -> Table:
    """Return a table that has answered in these cells by this function, with this gain."""
    table = options.table()
    for cell, function, gain in labels:
        row = table.cells.meet(cell, 1)
        table.settle(table.serve(row, 1, function), gain, (), 1)
    return table


def counted(table: Table) -> dict[KernelCell, list[list[int]]]:
    rows, arms = range(len(table)), range(FUNCTIONS)
    return {
        table.cells.cell(row): [table.saved.arm_counters(row, arm) for arm in arms] for row in rows
    }


@given(seed=st.integers(0, 2**32), order=st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_labels_does_not_matter(seed: int, order: Any) -> None:
    rng = np.random.default_rng(seed)
    labels = []
    for _ in range(100):
        level = int(rng.integers(5))
        cell = KernelCell(level, (int(rng.integers(2**level)),))
        labels.append((cell, int(rng.integers(FUNCTIONS)), int(rng.integers(11))))
    shuffled = list(labels)
    order.shuffle(shuffled)
    options = Options(alarm=0, unit=10)

    assert counted(served(options, labels)) == counted(served(options, shuffled))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_a_cell_counts_its_own_labels_and_those_of_the_finer_cells_in_it(seed: int) -> None:
    table = taught(Options(alarm=0), drawn_labels(seed, 150))
    rows = {table.cells.cell(row): row for row in range(len(table))}
    own = {cell: [0, 0] for cell in rows}
    alone = Options(alarm=0).reference()
    for context, function, gain in drawn_labels(seed, 150):
        cell = alone.cell_of(0, context)
        alone.arrivals[cell] += 1
        if function == 0:
            own[as_kernel(cell, Options())][0] += 1
            own[as_kernel(cell, Options())][1] += gain

    for cell, row in rows.items():
        children = [KernelCell(cell.level + 1, (2 * cell.coordinates[0] + k,)) for k in (0, 1)]
        below = [table.record(rows[child], 0) for child in children if child in rows]
        sums = [sum(one) for one in zip(own[cell], *below, strict=True)]
        assert list(table.record(row, 0)) == sums


def test_adding_a_table_and_taking_it_away_again_leaves_every_counter() -> None:
    options = Options(pending=True)
    one, other = (taught(options, drawn_labels(seed, 150)) for seed in (1, 2))
    before = rows_of(one), one.doubts()
    for row in range(len(one)):
        one.combine(row, other, 1)
    between = rows_of(one)
    for row in range(len(one)):
        one.combine(row, other, -1)

    assert (rows_of(one), one.doubts()) == before
    assert between != before[0]


@pytest.mark.parametrize("pending", [False, True])
def test_a_table_that_is_loaded_decides_as_the_one_that_was_stored(pending: bool) -> None:
    """Restarts of the stories go through the same calls; here no label is pending."""
    options = Options(alarm=0.5, pending=pending)
    contexts = [context for context, _, _ in drawn_labels(5, 200)]
    one = taught(options, [(x, slot % 2, int(slot < 100)) for slot, x in enumerate(contexts)])
    two = options.table()
    for row in range(len(one)):
        two.saved.load_stored(one.cells.cell(row), one.saved.stored(row), [])
    two.take_doubts(one.doubts())
    closed = bytes([0, 0, 1, 1])

    assert one.alarm_count > 0
    for slot, (context, _, gain) in enumerate(drawn_labels(6, 300), 201):
        codes = [table.decide(context, slot, closed) for table in (one, two)]
        assert codes[0] == codes[1]
        for table in (one, two):
            table.settle(codes[0], gain, context, slot)
    assert one.doubts() == two.doubts()


def test_a_cell_is_whole_again_when_the_decisions_that_split_it_are_taken_back() -> None:
    """The finest cell in use is looked up in a grid, which must not outlast a retraction."""
    table, plain = Options(alarm=0).table(), Options(alarm=0).reference()
    closed = bytes([0, 0, 1, 1])
    rng = np.random.default_rng(2)
    made: list[tuple[int, tuple[float, ...], int, Cell]] = []
    for slot in range(1, 300):
        context = (float(rng.integers(0, 4)) / 4,)
        code, cell = table.decide(context, slot, closed), plain.cell_of(0, context)
        assert as_reference(table, row_of(code), Options()) == cell
        plain.arrivals[cell] += 1
        made.append((code, context, slot, cell))
        while made and rng.random() < 0.45:
            code, context, then, cell = made.pop(int(rng.integers(len(made))))
            table.retract(code, context, then)
            plain.arrivals[cell] -= 1


# -- change detection --------------------------------------------------------------------------


def streamed(answers: np.ndarray, seed: int, alarm: float = 5.0) -> Table:
    """Return a table whose one function gave these answers, over contexts at random."""
    options = Options(alarm=alarm)
    table = options.table()
    closed = bytes([0, 1, 1, 1])
    contexts = np.random.default_rng(seed).random(len(answers)).tolist()
    for slot, (x, gain) in enumerate(zip(contexts, answers.tolist(), strict=True), 1):
        code = table.decide((x,), slot, closed)
        table.settle(code, int(gain), (x,), slot)
    return table


def in_runs(rng: np.random.Generator, accuracy: float, stay: float, count: int) -> np.ndarray:
    """Return answers of a Markov chain: each repeats the one before with probability `stay`."""
    fresh = rng.random(count) < accuracy
    answers = fresh.copy()
    for k in np.flatnonzero(rng.random(count) < stay):
        answers[k] = answers[k - 1] if k else fresh[k]
    return answers


@pytest.mark.parametrize("accuracy", [0.05, 0.5, 0.7, 0.9, 0.98])
def test_labels_that_agree_with_what_is_believed_raise_no_alarm(accuracy: float) -> None:
    """The margin of 5 nats bounds the mean number of false alarms per doubling by about e ** -5."""
    alarms = [
        streamed(np.random.default_rng([seed, 7]).random(3_000) < accuracy, seed).alarm_count
        for seed in range(20)
    ]

    assert sum(alarms) == 0


@pytest.mark.parametrize(("before", "after"), [(0.9, 0.4), (0.98, 0.6), (0.7, 0.2)])
def test_a_fall_raises_an_alarm_soon(before: float, after: float) -> None:
    for seed in range(5):
        rng = np.random.default_rng([seed, 9])
        answers = np.concatenate([rng.random(2_000) < before, rng.random(200) < after])
        table = streamed(answers, seed)

        assert table.alarm_count >= 1
        assert 2_000 < table.alarms[0] <= 2_100


def test_errors_in_runs_raise_few_alarms() -> None:
    alarms = [
        streamed(in_runs(np.random.default_rng([seed, 5]), 0.8, 0.5, 3_000), seed).alarm_count
        for seed in range(20)
    ]

    assert sum(alarms) <= 2
