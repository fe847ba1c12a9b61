"""An unknown horizon: epochs of doubling length, live a table for each.

Sites whose slots differ have other cells. The name of a cell says its epoch, so a site that is
asked counts in its own table of just these cells.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from covey.bandit.several import Counted, Several, by_row
from covey.errors import ConfigError, DataError
from covey.kernel import CHOICE, Clock, Table, code_of, row_of, table_of
from covey.kernel.rules import Cell, Level, Rule
from covey.types import Context

if TYPE_CHECKING:
    from covey.bandit.policies import Policy, PolicyRecord

MOST_EPOCHS = 44  # of 1024 slots and twice as many each: beyond any number of slots
NUMBERS = {str(number): number for number in range(MOST_EPOCHS)}  # as names of cells end
LEVELS = 64  # of one partition, at most


class Doubling(NamedTuple):
    """An unknown horizon: epochs of doubling length, in each of which a policy begins anew.

    They are numbered from 0.
    """

    first_epoch: int  # slots
    alpha: float  # of the cells and thresholds of all epochs

    def number_at(self, slot: int) -> int:
        """Return the number of the epoch of a slot.

        >>> [Doubling(10, 1.0).number_at(slot) for slot in (1, 10, 11, 30, 31)]
        [0, 0, 1, 1, 2]
        """
        return max(0, ((slot - 1) // self.first_epoch + 1).bit_length() - 1)

    def slots(self, number: int) -> int:
        return self.first_epoch << number

    def before(self, number: int) -> int:
        return self.first_epoch * ((1 << number) - 1)

    def slot_in(self, number: int, slot: int) -> int:
        """Return a slot as the epoch counts it; at least 1, as another site may be elsewhere."""
        return slot if slot < 1 else max(1, slot - self.before(number))


def epoched(settings: "PolicyRecord", **size: int) -> "Policy":
    """Return the policy of all epochs of settings with `horizon = "doubling"`.

    `size` has the arguments of `PolicyRecord.resolve`.
    """
    doubling = settings.doubling
    assert doubling is not None

    @cache
    def policy_of(epoch: int) -> "Policy":
        return settings.in_epoch(doubling.slots(epoch)).resolve(**size)

    first = policy_of(0)
    title = f"{first.title}; epochs of {doubling.first_epoch} slots, doubled"
    cells = EpochCells(policy_of, doubling)
    return first._replace(title=title, partition=cells, settings=settings)


class EpochCells(NamedTuple):
    """The cells of all epochs, each with its own partition; names end with the epoch.

    The level of a cell says the epoch, and the level in its partition.
    """

    policy_of: "Callable[[int], Policy]"  # of an epoch
    doubling: Doubling

    def levels(self, dimension: int) -> tuple[Level, ...]:
        return self.policy_of(0).partition.levels(dimension)

    def side(self, cell: Cell) -> int:
        epoch, own = unpacked(cell)
        policy = self.policy_of(epoch)
        return policy.partition.levels(policy.dimension)[own.level].side

    def name(self, cell: Cell) -> str:
        epoch, own = unpacked(cell)
        return f"{self.policy_of(epoch).partition.name(own)}@{epoch}"

    def parse(self, name: str) -> Cell:
        """Return the cell of a name; the inverse of `name`."""
        own, _, suffix = name.rpartition("@")
        epoch = NUMBERS.get(suffix)
        if epoch is None:
            raise DataError(
                f"cell {name!r} does not end with an epoch, such as '@3'; write the same horizon "
                "at all sites"
            )
        try:
            partition = self.policy_of(epoch).partition
        except ConfigError as error:  # more slices than can be numbered
            raise DataError(f"cell {name!r}: {error}") from None
        return packed(epoch, partition.parse(own))


def packed(epoch: int, cell: Cell) -> Cell:
    return Cell(epoch * LEVELS + cell.level, cell.coordinates)


def unpacked(cell: Cell) -> tuple[int, Cell]:
    epoch, level = divmod(cell.level, LEVELS)
    return epoch, Cell(level, cell.coordinates)


def _decision_by_row(name: str, slot: int | None = None) -> Any:
    call_inside = by_row(name, slot)

    def call(self: "EpochTable", row: int, *rest: Any) -> int:
        return self._outside(self._numbered[row][0], call_inside(self, row, *rest))

    return call


class EpochTable(Several):
    """A table for each epoch, as one; each counts its slots from 1.

    Own rows are decided in the epoch of their slot, those of peers in that of their cells. Rows
    are numbered together, in the order in which they became known.
    """

    def __init__(self, policy: "Policy", rule_of: "Callable[[Policy], Rule]") -> None:
        """`policy` is that of all epochs; `rule_of` returns the rule for that of one."""
        self.tables: dict[int, Table] = {}  # by epoch
        self._partition = cast("EpochCells", policy.partition)
        self._doubling = self._partition.doubling
        self._rule_of = rule_of
        self._numbered: list[tuple[int, int]] = []  # row -> epoch, and the row there
        self._outer: dict[int, list[int]] = {}  # the reverse
        self._costs: dict[int, float] = {}  # that were changed, by arm

    # -- epochs ---------------------------------------------------------------------------------

    def table_of(self, epoch: int) -> Table:
        if epoch not in self.tables:
            policy = self._partition.policy_of(epoch)
            clock = Clock(policy.scales(), policy.powers())
            table = self.tables[epoch] = table_of(clock, self._rule_of(policy))
            self._outer[epoch] = []
            for arm, cost in self._costs.items():
                table.set_cost(arm, cost)
        return self.tables[epoch]

    @property
    def used(self) -> list[int]:
        return [
            epoch
            for epoch, table in self.tables.items()
            if any(table.cells.own(row) for row in range(len(table)))
        ]

    # -- rows -----------------------------------------------------------------------------------

    def at(self, row: int, slot: int) -> tuple[Table, int, int]:
        epoch, own = self._numbered[row]
        return self.tables[epoch], own, self._doubling.slot_in(epoch, slot)

    def inside(self, decision: int, context: Context = (), slot: int = 0) -> Iterable[Counted]:
        table, row, now = self.at(row_of(decision), slot)
        return [(table, code_of(row, 0, 0) | decision & CHOICE, context, now)]

    def _outside(self, epoch: int, code: int) -> int:
        """Return a decision of an epoch, or `-1 - row` there, as one of all epochs."""
        places = self._number(epoch)
        if code < 0:
            return -1 - places[-1 - code]
        outside: int = code_of(places[row_of(code)], 0, 0) | code & CHOICE
        return outside

    def _number(self, epoch: int) -> list[int]:
        """Give numbers to the rows that an epoch has by now; return all of its numbers."""
        places = self._outer[epoch]
        for own in range(len(places), len(self.tables[epoch])):
            places.append(len(self._numbered))
            self._numbered.append((epoch, own))
        return places

    def _now(self, slot: int) -> tuple[int, Table, int]:
        epoch = self._doubling.number_at(slot)
        return epoch, self.table_of(epoch), self._doubling.slot_in(epoch, slot)

    def __len__(self) -> int:
        return len(self._numbered)

    def cell(self, row: int) -> Cell:
        epoch, own = self._numbered[row]
        return packed(epoch, self.tables[epoch].cells.cell(own))

    def meet(self, cell: Cell, slot: int) -> int:
        epoch, own = unpacked(cell)
        row = self.table_of(epoch).cells.meet(own, self._doubling.slot_in(epoch, slot))
        return self._number(epoch)[row]

    def find(self, cell: Cell) -> int:
        epoch, own = unpacked(cell)
        row = self.tables[epoch].cells.find(own) if epoch in self.tables else -1
        return row if row < 0 else self._number(epoch)[row]

    @property
    def foreign(self) -> int:
        return sum(table.cells.foreign for table in self.tables.values())

    def layers(self, row: int) -> list[int]:
        epoch, own = self._numbered[row]
        return [self._outer[epoch][layer] for layer in self.tables[epoch].cells.layers(own)]

    def around(self, context: Context) -> list[int]:
        return [
            self._outer[epoch][row]
            for epoch, table in self.tables.items()
            for row in table.cells.around(context)
        ]

    def around_batch(self, contexts: memoryview, count: int) -> set[int]:
        return {
            self._outer[epoch][row]
            for epoch, table in self.tables.items()
            for row in table.cells.around_batch(contexts, count)
        }

    is_foreign = by_row("cells.is_foreign")
    arrivals = by_row("cells.arrivals")
    best_own = by_row("best_own")
    known = by_row("saved.known")
    pending = by_row("saved.pending")
    stored = by_row("saved.stored")
    arm_counters = by_row("saved.arm_counters")
    load_arm = by_row("saved.load_arm")

    # -- decisions ------------------------------------------------------------------------------

    def locate(self, context: Context, slot: int) -> int:
        epoch, table, now = self._now(slot)
        row = table.locate(context, now)
        return self._number(epoch)[row]

    def decide(self, context: Context, slot: int, closed: bytes | None = None) -> int:
        epoch, table, now = self._now(slot)
        return self._outside(epoch, table.decide(context, now, closed))

    resume = _decision_by_row("resume", slot=1)
    consult = _decision_by_row("consult")
    serve = _decision_by_row("serve", slot=0)

    @property
    def blind_decisions(self) -> int:
        return sum(table.blind_decisions for table in self.tables.values())

    def combine(self, row: int, other: Any, by: int) -> None:
        epoch, own = self._numbered[row]
        if epoch in other.tables:
            self.tables[epoch].combine(own, other.tables[epoch], by)

    @property
    def memory(self) -> "EpochTable":
        """What peers that show only the cell are answered from."""
        return self

    recall = by_row("cells.memory.recall")

    def recall_sum(self, own: dict[Any, int], theirs: dict[Any, int]) -> Any:
        return self.table_of(0).cells.memory.recall_sum(own, theirs)

    # -- changing, saving, loading --------------------------------------------------------------

    def set_cost(self, arm: int, cost: float) -> None:
        self._costs[arm] = cost
        for table in self.tables.values():
            table.set_cost(arm, cost)

    @property
    def size(self) -> int:
        return self.table_of(0).saved.size

    def load_stored(self, cell: Cell, stored: list[int], labels: list[tuple[Any, int]]) -> int:
        epoch, own = unpacked(cell)
        row = self.table_of(epoch).saved.load_stored(own, stored, labels)
        return self._number(epoch)[row]

    def take_row(self, old: Any, row: int, arms: list[int]) -> int:
        epoch, own = old._numbered[row]
        taken = self.table_of(epoch).saved.take_row(old.tables[epoch], own, arms)
        return self._number(epoch)[taken]

    def state(self) -> list[int]:
        state: list[int] = []
        for epoch, table in self.tables.items():
            own = table.policy.state()
            state += [epoch, len(own), *own]
        return state

    def restore(self, state: list[int]) -> None:
        at = 0
        while at < len(state):
            epoch, count = state[at : at + 2]
            self.table_of(epoch).policy.restore(state[at + 2 : at + 2 + count])
            at += 2 + count
