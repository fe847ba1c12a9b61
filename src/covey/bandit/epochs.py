"""Unknown horizon and alpha, live: a table for each epoch, and cells that say their epoch.

Sites whose slots differ, or that estimate another alpha, have other cells. The name of a cell says
its epoch and its alpha, so a site that is asked counts in its own table of just these cells.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from covey.bandit.settings import Settings
from covey.bandit.smoothness import Epoch, Seen, adapt, estimate
from covey.errors import ConfigError, DataError
from covey.kernel import CHOICE, Clock, Table, code_of, row_of, table_of
from covey.kernel.rules import Cell, Level, Report, Rule

if TYPE_CHECKING:
    from covey.bandit.policies import Policy

MOST_EPOCHS = 44  # of 1024 slots and twice as many each: beyond any number of slots
LEVELS = 64  # of one partition, at most
PERCENTS = 128  # more than those of an alpha
STEP = 5  # percent: estimates are rounded down to a multiple
LEAST = 25


class EpochKey(NamedTuple):
    """An epoch, from 0 on, and its alpha in percent; 0: alpha is given in the settings."""

    number: int
    percent: int = 0


def percent_of(alpha: float) -> int:
    """Return an alpha in percent, rounded down: one that is too small is safe.

    Few values, so that sites that estimate about the same have the same cells.

    >>> percent_of(0.549), percent_of(1.0)
    (50, 100)
    """
    return max(LEAST, int(alpha * 100 / STEP + 1e-9) * STEP)


def seen_in(table: Table, policy: "Policy", functions: int) -> Iterator[list[Seen]]:
    """Yield, for every own function, its labels in the cells of a table."""
    sides = [level.side for level in policy.partition.levels(policy.dimension)]
    cells = [table.cell(row) for row in range(len(table))]
    for function in range(functions):
        yield [
            Seen(sides[cell.level], cell.coordinates, *table.record(row, function))
            for row, cell in enumerate(cells)
        ]


def epoched(settings: Settings, resolve: Callable[[Settings], "Policy"]) -> "Policy":
    """Return the policy of all epochs of settings with `horizon = "doubling"`."""
    is_estimated = isinstance(settings.alpha, str)

    @cache
    def policy_of(key: EpochKey) -> "Policy":
        alpha = key.percent / 100 if is_estimated else settings.alpha
        slots = settings.first_epoch << key.number
        epoch = Epoch(slots - settings.first_epoch + 1, slots)
        return resolve(adapt(settings, epoch, alpha=float(alpha)))

    cells = EpochCells(policy_of, settings.first_epoch, is_estimated)
    first = policy_of(cells.first)
    title = f"{first.title}; epochs of {settings.first_epoch} slots, doubled"
    return first._replace(title=title, partition=cells, settings=settings)


class EpochCells(NamedTuple):
    """The cells of all epochs, each with its own partition; names end with epoch and alpha.

    The level of a cell says the epoch, the alpha and the level in the partition of these.
    """

    policy_of: "Callable[[EpochKey], Policy]"
    first_epoch: int  # slots
    is_estimated: bool

    @property
    def first(self) -> EpochKey:
        """The first epoch; an unknown alpha is taken for 1."""
        return EpochKey(0, 100 if self.is_estimated else 0)

    def levels(self, dimension: int) -> tuple[Level, ...]:
        """Return the levels of the first epoch."""
        return self.policy_of(self.first).partition.levels(dimension)

    def side(self, cell: Cell) -> int:
        """Return how many such cells there are per dimension."""
        key, own = unpacked(cell)
        policy = self.policy_of(key)
        return policy.partition.levels(policy.dimension)[own.level].side

    def number_at(self, slot: int) -> int:
        """Return the number of the epoch of a slot.

        >>> [EpochCells(None, 10, False).number_at(slot) for slot in (1, 10, 11, 30, 31)]
        [0, 0, 1, 1, 2]
        """
        return max(0, ((slot - 1) // self.first_epoch + 1).bit_length() - 1)

    def end_of(self, number: int) -> int:
        """Return the last slot of an epoch."""
        return self.first_epoch * ((2 << number) - 1)

    def slot_in(self, number: int, slot: int) -> int:
        """Return a slot as the epoch counts it; at least 1, as another site may be elsewhere."""
        return slot if slot < 1 else max(1, slot - self.end_of(number - 1) if number else slot)

    def name(self, cell: Cell) -> str:
        """Return the name in the partition of its epoch, and the epoch.

        The alpha in percent follows, if it is estimated.
        """
        key, own = unpacked(cell)
        alpha = f":{key.percent}" if self.is_estimated else ""
        return f"{self.policy_of(key).partition.name(own)}@{key.number}{alpha}"

    def parse(self, name: str) -> Cell:
        """Return the cell of a name; the inverse of `name`."""
        own, _, suffix = name.rpartition("@")
        key = self._keys().get(suffix)
        if key is None:
            raise DataError(
                f"cell {name!r} does not end with an epoch of this site, such as "
                f"'@3{':55' * self.is_estimated}'; write the same horizon and alpha at all sites"
            )
        try:
            partition = self.policy_of(key).partition
        except ConfigError as error:  # more slices than can be numbered
            raise DataError(f"cell {name!r}: {error}") from None
        return packed(key, partition.parse(own))

    def _keys(self) -> dict[str, EpochKey]:
        return _keys(self.is_estimated)


@cache
def _keys(is_estimated: bool) -> dict[str, EpochKey]:
    """Return all epochs by the ends of names."""
    numbers = range(MOST_EPOCHS)
    if not is_estimated:
        return {str(number): EpochKey(number) for number in numbers}
    percents = range(LEAST, 101, STEP)
    return {f"{number}:{one}": EpochKey(number, one) for number in numbers for one in percents}


def packed(key: EpochKey, cell: Cell) -> Cell:
    """Return a cell of an epoch as one of all epochs."""
    level = (key.number * PERCENTS + key.percent) * LEVELS + cell.level
    return Cell(level, cell.coordinates)


def unpacked(cell: Cell) -> tuple[EpochKey, Cell]:
    """Return the epoch of a cell, and the cell in it."""
    rest, level = divmod(cell.level, LEVELS)
    return EpochKey(*divmod(rest, PERCENTS)), Cell(level, cell.coordinates)


def _by_row(name: str) -> Any:
    """Return a method that the table of a row has, for the row."""

    def call(self: "EpochTable", row: int, *rest: Any) -> Any:
        key, own = self.at(row)
        return getattr(self.tables[key], name)(own, *rest)

    return call


def _by_code(name: str) -> Any:
    """Return a method that the table of a decision has, for the decision."""

    def call(self: "EpochTable", code: int, *rest: Any) -> Any:
        key, own = self.inside(code)
        return getattr(self.tables[key], name)(own, *rest)

    return call


class EpochTable(Table):
    """A table for each epoch and alpha, as one; each counts its slots from 1.

    Own rows are decided in the epoch of their slot, those of peers in that of their cells. Rows
    are numbered together, in the order in which they became known.
    """

    def __init__(self, policy: "Policy", rule_of: "Callable[[Policy], Rule]") -> None:
        """`policy` is that of all epochs; `rule_of` returns the rule for that of one."""
        rule = rule_of(policy)
        Table.__init__(self, Clock([], []), rule)
        self.tables: dict[EpochKey, Table] = {}
        self._functions = rule.functions
        self._partition = cast("EpochCells", policy.partition)
        self._rule_of = rule_of
        self._numbered: list[tuple[EpochKey, int]] = []  # row -> epoch, and the row there
        self._outer: dict[EpochKey, list[int]] = {}  # the reverse
        self._percents: dict[int, int] = {}  # alphas of own decisions, by the number of the epoch
        self._costs: dict[int, float] = {}  # that were changed, by arm

    # -- epochs ---------------------------------------------------------------------------------

    def table_of(self, key: EpochKey) -> Table:
        """Return the table of an epoch, which is empty if it is new."""
        if key not in self.tables:
            policy = self._partition.policy_of(key)
            clock = Clock(policy.scales(), policy.powers())
            table = self.tables[key] = table_of(clock, self._rule_of(policy))
            self._outer[key] = []
            for arm, cost in self._costs.items():
                table.set_cost(arm, cost)
        return self.tables[key]

    def key_at(self, slot: int) -> EpochKey:
        """Return the epoch of an own decision at a slot."""
        number = self._partition.number_at(slot)
        return EpochKey(number, self._percent(number) if self._partition.is_estimated else 0)

    def _percent(self, number: int) -> int:
        """Return the alpha of own decisions in an epoch, in percent.

        It is estimated from the labels in the epoch before, and then stays.
        """
        if number not in self._percents:
            decided = self._decided(number)
            self._percents[number] = self._estimated(number) if decided is None else decided
        return self._percents[number]

    def _decided(self, number: int) -> int | None:
        """Return the alpha of own decisions that were made; None: none was."""
        for key, table in self.tables.items():
            if key.number == number and any(table.own(row) for row in range(len(table))):
                return key.percent
        return None

    def _estimated(self, number: int) -> int:
        if number == 0:
            return self._partition.first.percent
        before = EpochKey(number - 1, self._percent(number - 1))
        table, policy = self.tables.get(before), self._partition.policy_of(before)
        seen = None if table is None else estimate(seen_in(table, policy, self._functions))
        return before.percent if seen is None else percent_of(seen.safe_alpha)

    # -- rows -----------------------------------------------------------------------------------

    def at(self, row: int) -> tuple[EpochKey, int]:
        """Return the epoch of a row, and the row there."""
        return self._numbered[row]

    def inside(self, code: int) -> tuple[EpochKey, int]:
        """Return the epoch of a decision, and the decision there."""
        key, row = self._numbered[row_of(code)]
        return key, code_of(row, 0, 0) | code & CHOICE

    def _outside(self, key: EpochKey, code: int) -> int:
        """Return a decision of an epoch, or `-1 - row` there, as one of all epochs."""
        places = self._number(key)
        if code < 0:
            return -1 - places[-1 - code]
        found: int = code_of(places[row_of(code)], 0, 0) | code & CHOICE
        return found

    def _number(self, key: EpochKey) -> list[int]:
        """Give numbers to the rows that an epoch has by now; return all of its numbers."""
        places = self._outer[key]
        for own in range(len(places), len(self.tables[key])):
            places.append(len(self._numbered))
            self._numbered.append((key, own))
        return places

    def _slot(self, key: EpochKey, slot: int) -> int:
        return self._partition.slot_in(key.number, slot)

    def __len__(self) -> int:
        return len(self._numbered)

    def cell(self, row: int) -> Cell:
        key, own = self.at(row)
        return packed(key, self.tables[key].cell(own))

    def meet(self, cell: Cell, slot: int) -> int:
        key, own = unpacked(cell)
        row = self.table_of(key).meet(own, self._slot(key, slot))
        return self._number(key)[row]

    def open_foreign(self, cell: Cell, slot: int) -> int:
        key, own = unpacked(cell)
        row = self.table_of(key).open_foreign(own, self._slot(key, slot))
        return self._number(key)[row]

    def find(self, cell: Cell) -> int:
        key, own = unpacked(cell)
        row = self.tables[key].find(own) if key in self.tables else -1
        return row if row < 0 else self._number(key)[row]

    def foreign_cells(self) -> int:
        return sum(table.foreign_cells() for table in self.tables.values())

    def layers(self, row: int) -> list[int]:
        key, own = self.at(row)
        return [self._outer[key][one] for one in self.tables[key].layers(own)]

    def around(self, context: tuple[float, ...]) -> list[int]:
        """Return the rows around a context in all epochs."""
        return [
            self._outer[key][row]
            for key, table in self.tables.items()
            for row in table.around(context)
        ]

    def around_batch(self, contexts: memoryview, count: int) -> set[int]:
        return {
            self._outer[key][row]
            for key, table in self.tables.items()
            for row in table.around_batch(contexts, count)
        }

    is_foreign = _by_row("is_foreign")
    is_split = _by_row("is_split")
    own = _by_row("own")
    arrivals = _by_row("arrivals")
    record = _by_row("record")
    spending = _by_row("spending")
    best = _by_row("best")
    best_own = _by_row("best_own")
    estimate = _by_row("estimate")
    recall = _by_row("recall")
    known = _by_row("known")
    know = _by_row("know")
    pending = _by_row("pending")
    unrefresh = _by_row("unrefresh")
    arm_counters = _by_row("arm_counters")
    load_arm = _by_row("load_arm")
    add_labels = _by_row("add_labels")

    # -- own decisions --------------------------------------------------------------------------

    def locate(self, context: tuple[float, ...], slot: int) -> int:
        key = self.key_at(slot)
        row = self.table_of(key).locate(context, self._slot(key, slot))
        return self._number(key)[row]

    def decide(self, context: tuple[float, ...], slot: int, closed: bytes | None = None) -> int:
        """Choose an arm in the epoch of `slot`, as `Table.decide`."""
        key = self.key_at(slot)
        code = self.table_of(key).decide(context, self._slot(key, slot), closed)
        return self._outside(key, code)

    def resume(
        self, row: int, context: tuple[float, ...], slot: int, closed: bytes | None = None
    ) -> int:
        key, own = self.at(row)
        code = self.tables[key].resume(own, context, self._slot(key, slot), closed)
        return self._outside(key, code)

    def consult(
        self,
        row: int,
        context: tuple[float, ...],
        told: list[tuple[float, int]],
        closed: bytes | None = None,
    ) -> int:
        key, own = self.at(row)
        return self._outside(key, self.tables[key].consult(own, context, told, closed))

    def stale(self, row: int, slot: int, closed: bytes | None = None) -> list[int]:
        key, own = self.at(row)
        return self.tables[key].stale(own, self._slot(key, slot), closed)

    def hear(self, row: int, peer: int, report: Report, slot: int) -> int:
        key, own = self.at(row)
        return self.tables[key].hear(own, peer, report, self._slot(key, slot))

    def blind_decisions(self) -> int:
        return sum(table.blind_decisions() for table in self.tables.values())

    # -- for peers ------------------------------------------------------------------------------

    def report(self, row: int, slot: int) -> Report:
        key, own = self.at(row)
        return self.tables[key].report(own, self._slot(key, slot))

    def serve(self, row: int, slot: int, function: int = -1) -> int:
        key, own = self.at(row)
        return self._outside(key, self.tables[key].serve(own, self._slot(key, slot), function))

    width = _by_code("width")

    def combine(self, row: int, other: Any, by: int) -> None:
        """Add the counts that `other` has in the same epoch, or subtract them."""
        key, own = self.at(row)
        if key in other.tables:
            self.tables[key].combine(own, other.tables[key], by)

    # -- labels ---------------------------------------------------------------------------------

    def retract(self, code: int, context: tuple[float, ...], slot: int) -> None:
        key, own = self.inside(code)
        self.tables[key].retract(own, context, self._slot(key, slot))

    def settle(
        self, code: int, gain: int, context: tuple[float, ...], slot: int, *paid: int
    ) -> None:
        key, own = self.inside(code)
        self.tables[key].settle(own, gain, context, self._slot(key, slot), *paid)

    def score(
        self, code: int, function: int, gain: int, context: tuple[float, ...], slot: int
    ) -> None:
        key, own = self.inside(code)
        self.tables[key].score(own, function, gain, context, self._slot(key, slot))

    def remember(
        self, code: int, label: Any, context: tuple[float, ...], slot: int, answer: Any = None
    ) -> None:
        key, own = self.inside(code)
        self.tables[key].remember(own, label, context, self._slot(key, slot), answer)

    expect = _by_code("expect")
    forget = _by_code("forget")

    # -- many rows ------------------------------------------------------------------------------

    def decide_batch(
        self,
        contexts: memoryview,
        first_slot: int,
        decisions: memoryview,
        closed: bytes | None = None,
    ) -> int:
        """Decide for consecutive slots; an epoch may end among them."""
        for k, context in enumerate(_points(contexts, len(decisions))):
            decisions[k] = self.decide(context, first_slot + k, closed)
            if decisions[k] < 0:
                return k
        return len(decisions)

    def count_batch(self, contexts: memoryview, decisions: memoryview) -> None:
        width = len(contexts) // max(1, len(decisions))
        for k in range(len(decisions)):
            key, own = self.inside(decisions[k])
            decision = memoryview(array("q", [own]))
            self.tables[key].count_batch(contexts[k * width : (k + 1) * width], decision)

    def retract_batch(self, contexts: memoryview, first_slot: int, decisions: memoryview) -> None:
        for k, context in enumerate(_points(contexts, len(decisions))):
            if decisions[k] >= 0:
                self.retract(decisions[k], context, first_slot + k)

    def settle_batch(
        self,
        contexts: memoryview,
        slots: memoryview,
        decisions: memoryview,
        gains: memoryview,
        paid: memoryview,
    ) -> None:
        for k, context in enumerate(_points(contexts, len(decisions))):
            self.settle(decisions[k], gains[k], context, slots[k], paid[k])

    def forget_batch(self, decisions: memoryview) -> None:
        for decision in decisions:
            self.forget(decision)

    # -- changing, saving, loading --------------------------------------------------------------

    def set_cost(self, arm: int, cost: float) -> None:
        self._costs[arm] = cost
        for table in self.tables.values():
            table.set_cost(arm, cost)

    def load_stored(self, cell: Cell, stored: list[int], labels: list[tuple[Any, int]]) -> int:
        key, own = unpacked(cell)
        row = self.table_of(key).load_stored(own, stored, labels)
        return self._number(key)[row]

    def stored(self, row: int) -> list[int]:
        if row == len(self) == 0:  # asked for how many counters there are
            return self.table_of(self._partition.first).stored(0)
        key, own = self.at(row)
        return self.tables[key].stored(own)

    def take_row(self, old: Any, row: int, arms: list[int]) -> int:
        """Take a row of a table of other arms."""
        key, own = old.at(row)
        taken = self.table_of(key).take_row(old.tables[key], own, arms)
        return self._number(key)[taken]

    def take_over(self, old: Any, pending: Iterable[int]) -> None:
        """Continue from another table, whose rows keep their numbers."""
        for row in range(len(old)):
            self.load_stored(old.cell(row), old.stored(row), old.known(row))
        for decision in pending:
            self.expect(decision)
        self.take_doubts(old.doubts())

    def doubts(self) -> list[int]:
        """Return what the tables of all epochs doubt: epoch, alpha, count and numbers of each."""
        doubts: list[int] = []
        for key, table in self.tables.items():
            own = table.doubts()
            doubts += [*key, len(own), *own]
        return doubts

    def take_doubts(self, doubts: list[int]) -> None:
        at = 0
        while at < len(doubts):
            number, percent, count = doubts[at : at + 3]
            own = doubts[at + 3 : at + 3 + count]
            self.table_of(EpochKey(number, percent)).take_doubts(own)
            at += 3 + count

    def forget_labels(self, slot: int) -> None:
        for table in self.tables.values():
            table.forget_labels(slot)


def _points(contexts: memoryview, count: int) -> Iterator[tuple[float, ...]]:
    """Yield flat coordinates row by row."""
    width = len(contexts) // max(1, count)
    for k in range(count):
        yield tuple(contexts[k * width : (k + 1) * width])
