"""One learner's judgement over rows of its tables. No I/O, no clock, no randomness, no requests.

A decision is one integer, its code: the row of a cell, an arm and a phase (`row_of`, `arm_of` and
`phase_of` of `covey.kernel` take it apart). The learner keeps counters only; the caller keeps the
code, the context and the slot of a decision until its label comes. One own row takes this way:

    code = learner.decide(context, slot, closed)
    while code < 0:  # -1 - row: peers must be queried first
        row = undecided_row(code)
        for peer in learner.peers_to_query(row, slot, closed):
            learner.receive_report(row, peer, report_of(peer), slot)
        code = learner.resume(row, context, slot, closed)
    learner.advance(slot)
    learner.settle(code, learner.gain_of(prediction, label), context, slot)

Where `is_supervised` is False, `consult` takes the place of `receive_report` and `resume`. A code
belongs to the table of one context space; methods that take `space` mean the own one by default.
"""

import copy
import heapq
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from covey.bandit.harm import Limited
from covey.bandit.links import SitePrices, check_cost
from covey.bandit.partitions import MOST_DRAWN, Candidates, Dyadic, EpochCells
from covey.bandit.policies import AnyReward, Policy, used_rows
from covey.bandit.several import Restarted, Spaces
from covey.errors import DataError
from covey.kernel import (
    CHOICE,
    SERVE,
    UNPAID,
    Clock,
    Table,
    arm_of,
    code_of,
    phase_of,
    table_of,
)
from covey.kernel.rules import MOST_AXES, WIDE_LEVEL, Cell, Report, Rule, middle_of
from covey.types import BY_CONTEXT, KEPT_ROW, PHASES, WHOLE, Context, Cost, Label, Loss

UNKNOWN = msgspec.UNSET
WHOLE_SPACE = (0, ())  # the cell that a space of many dimensions is, without its name


class Choice(msgspec.Struct, frozen=True):
    """An arm, why it was chosen and at what price."""

    phase: str  # train, explore, exploit, own; serve or recall where another learner asked
    arm: str  # own function or asked learner
    price: float  # in units of reward, what is learnt of it left out
    function: int  # the own function to run; -1: ask `peer`
    peer: str = ""
    is_by_context: bool = False  # the peer is shown the cell and never the instance


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """The effect of a label; `is_new` is False if the same label had been settled before."""

    is_new: bool
    is_right: bool
    is_kept: bool = False  # nothing changed: the label is kept until a busy peer's answer comes


class _Missing(Enum):
    """It is the same object also after it was pickled."""

    NO_ANSWER = 0


NO_ANSWER: Any = _Missing.NO_ANSWER  # the answer of a peer without labels; it is never right
RIGHT = Settlement(True, True)
WRONG = Settlement(True, False)


_PHASES = (*PHASES, "serve")


@cache
def offset_of(name: str) -> int:
    """Return by what the decisions of a learner differ from those of others in the same slot."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


class Learner:
    """The judgement of one site: which arm, per cell, and what each label teaches."""

    def __init__(  # noqa: PLR0913 - a learner is its arms, their costs and how it judges them
        self,
        name: str,
        *,
        functions: Sequence[str],
        peers: Sequence[str],
        costs: Sequence[float],
        policy: Policy,
        position: int = 0,
        rewards: Sequence[AnyReward] = (),
        context_peers: Sequence[str] = (),
        spaces: Mapping[str, Policy] | None = None,
        space: str = "",
        candidates: Mapping[str, Candidates] | None = None,
        loss: Loss | None = None,
        is_supervised: bool = True,
        learns_costs: bool = False,
        remembers: bool = False,
        free: Sequence[int] = (),
        clocks: Mapping[str, Clock] | None = None,
    ) -> None:
        """`spaces` has the policy of every context space, `space` names the learner's own.

        `candidates` has those of learners that choose among several: `space` may be one of these.
        `free` are the indices of functions that every label scores. `clocks` are those of the
        spaces of learners that have the same slots; without them every table has its own.
        """
        self.name = name
        self.waits_by_time = isinstance(policy.settings.label_wait, str)
        self.label_wait = policy.settings.live_wait
        self.shares_slots = policy.settings.rules.shares_slots  # the rows of a request
        self.harm = policy.settings.harm  # the limit of it; None: there is none
        self.counts_at_once = not policy.settings.rules.counts_labelled  # before the label comes
        self._functions = len(functions)
        self._peers = (*peers, *context_peers)
        self._asked = len(functions) + len(peers)  # arms before this one see the instance
        self.arms = (*functions, *peers, *(peer + BY_CONTEXT for peer in context_peers))
        self.costs = tuple(costs)
        self.unit = 1 if loss is None else WHOLE  # the gain of a right answer
        self.loss = loss
        self.is_supervised = is_supervised  # it sees labels; if not, it uses peers' estimates
        self.remembers = remembers  # labels, for peers that show it the cell only
        self.free = tuple(free)
        self.rule = policy.rule(
            functions=len(functions),
            costs=self.costs,
            name=name,
            position=position,
            rewards=tuple(rewards),
            unit=self.unit,
            context_peers=len(context_peers),
            is_supervised=is_supervised,
            learns_costs=learns_costs,
            remembers=remembers,
            arm_names=zlib.crc32("\n".join(self.arms).encode()),
        )
        self.prices: SitePrices | None = None  # of peers, where these change by slot
        self.cost_columns: Mapping[str, str] = {}  # arm -> name of its cost beyond the price
        self.space = space
        self.policies = {space: policy} if spaces is None else dict(spaces)
        self.candidates = dict(candidates or {})
        several = self.candidates.get(space)
        # The context spaces in which it decides: its candidates, or the own one.
        self.own_spaces = (space,) if several is None else several.spaces
        self.dimension = policy.dimension if several is None else several.dimension
        self.names = CellNames(self.policies, self.candidates)
        self.clocks = dict(clocks or {})
        self.slot = 0  # the latest one that a decision was made at
        self.tables = self.empty_tables()
        self.table = self.tables[space]  # of the own context space
        self._names: dict[tuple[str, int], str] = {}  # of cells, by their rows

    @property
    def spaces(self) -> list[str]:
        """The names of the context spaces, and of candidates; `space` is the own one."""
        return [*self.policies, *self.candidates]

    @property
    def alarms(self) -> list[int]:
        """The slots of the alarms of the change detection; after a restart the latest ones."""
        return sorted(slot for table in self.tables.values() for slot in table.policy.alarms)

    @property
    def alarm_count(self) -> int:
        """How many alarms there were, over all starts."""
        return sum(table.policy.alarm_count for table in self.tables.values())

    @property
    def is_pending(self) -> bool:
        """Whether pending labels are counted."""
        return self.rule.is_pending

    @property
    def knows_ends(self) -> bool:
        """Whether it is told of decisions whose labels can come no more."""
        return self.rule.is_pending or bool(self.candidates)

    @property
    def counted_parts(self) -> list[tuple[str, str]]:
        """What its counters mean besides arms and cells, as names and values."""
        parts = []
        if self.loss is not None:
            parts.append(("loss", msgspec.json.encode(self.loss, order="sorted").decode()))
        if self.rule.learns_costs:
            parts.append(("costs", "learnt from what is reported with labels"))
        if self.space in self.candidates:
            parts += [("candidate", space) for space in self.own_spaces]
        return parts

    def check_costs(self, costs: Iterable[Cost]) -> None:
        """Raise `DataError` for costs that cannot be learnt."""
        arms = [*self.cost_columns.values()] if self.rule.learns_costs else []
        links = [] if self.prices is None else [*self.prices.columns]
        for cost in costs:
            if cost is not None:
                check_cost(cost, arms, links, learner=self.name)

    def behind(self) -> list[tuple[str, bool]]:
        """Return the peer of each arm after the own functions, and whether it sees the cell only.

        A peer's index in this list is the `peer` of `peers_to_query` and `receive_report`.
        """
        return [(peer, k >= self._asked) for k, peer in enumerate(self._peers, self._functions)]

    def closed(self, peers: Iterable[str]) -> bytes | None:
        """Return the `closed` argument for which the arms of `peers` are not available."""
        names = set(peers)
        if not names:
            return None
        return bytes(self._functions) + bytes([peer in names for peer in self._peers])

    def reprice(self, peer: str, cost: float) -> None:
        """Change what `peer` costs from now on; nothing learnt is lost."""
        arm = self._functions + self._peers.index(peer)
        self.use_costs((*self.costs[:arm], cost, *self.costs[arm + 1 :]))

    def use_costs(self, costs: Sequence[float]) -> None:
        """Let arms cost this from now on; nothing learnt is lost."""
        changed = [arm for arm, cost in enumerate(costs) if cost != self.costs[arm]]
        self.costs = tuple(costs)
        self.rule = msgspec.structs.replace(self.rule, costs=self.costs)
        self.__dict__.pop("choices", None)
        for table in self.tables.values():
            for arm in changed:
                table.set_cost(arm, costs[arm])

    def advance(self, slot: int) -> None:
        """Advance to `slot` if it is later than the current one."""
        if slot > self.slot:  # noqa: PLR1730 - max() costs twice as much
            self.slot = slot

    # -- own rows -------------------------------------------------------------------------------

    def decide(self, context: Context, slot: int, closed: bytes | None = None) -> int:
        """Decide for an own row and count its arrival; return its code.

        Where peers must be queried, nothing is counted and the result is `-1 - row`.
        `closed` has one byte per arm, 1 = not available now; None: all arms are available.
        """
        return self.table.decide(context, slot, closed)

    def decide_rows(
        self, contexts: np.ndarray, slot: int, codes: np.ndarray, closed: bytes | None = None
    ) -> int:
        """Decide for consecutive slots and write the `codes`; return how many rows are decided.

        It stops before a row for which peers must be queried; the code of that is `-1 - row`.
        `contexts` is n x d, C-contiguous float64, each coordinate within [0, 1] (checked by the
        caller); `codes` is int64, preset to `NOT_DECIDED`: if this raises, rows with codes >= 0
        are decided.
        """
        return self.table.decide_batch(contexts.reshape(-1).data, slot, codes.data, closed)

    def peers_to_query(self, row: int, slot: int, closed: bytes | None = None) -> list[int]:
        """Return the indices of peers whose report (or estimate, unsupervised) the row needs."""
        if self.is_supervised:
            return self.table.stale(row, slot, closed)
        first = self._functions
        peers = range(len(self._peers))
        return [k for k in peers if closed is None or not closed[first + k]]

    def receive_report(self, row: int, peer: int, report: Report, slot: int) -> int:
        """Take what a peer reports; return its old training counter, for `table.unrefresh`."""
        return self.table.hear(row, peer, report, slot)

    def resume(self, row: int, context: Context, slot: int, closed: bytes | None = None) -> int:
        """Continue after the reports; return the code, or `-1 - row` if more must be queried.

        With `peers_to_query` empty (all are closed) this decides too.
        """
        return self.table.resume(row, context, slot, closed)

    def consult(
        self,
        row: int,
        context: Context,
        estimates: Mapping[int, tuple[float, int]],
        closed: bytes | None = None,
    ) -> int:
        """Decide without labels, by the estimates of peers (index -> accuracy, labels).

        A peer without an estimate counts as one without labels.
        """
        judged = [estimates.get(peer, (0.0, 0)) for peer in range(len(self._peers))]
        return self.table.consult(row, context, judged, closed)

    def choice(self, code: int) -> Choice:
        """Return what a code chose: phase, arm, price and own function or peer."""
        return self.choices[code & CHOICE]

    def same_cell(self, row: int, rows: np.ndarray) -> list[int]:
        """Return those of own rows in which reports on `row` count the arrivals as well."""
        if self.space not in self.candidates:
            return [row]
        table: Any = self.table
        return [other for other in set(rows.tolist()) if table.is_alike(row, other)]

    # -- decisions and their labels -------------------------------------------------------------

    def retract(self, code: int, context: Context, slot: int, space: str | None = None) -> None:
        """Undo a decision made at `slot`; of served rows no context is needed."""
        self._at(space).retract(code, context, slot)

    def gains_of(self, predictions: Sequence[Label], labels: Sequence[Label]) -> np.ndarray:
        """Return `gain_of` for many rows."""
        gain_of = operator.eq if self.loss is None else self.gain_of
        return np.fromiter(map(gain_of, predictions, labels), np.int64, len(labels))

    def gain_of(self, prediction: Label, label: Label) -> int:
        """Return what a prediction gains, at most `unit`; `NO_ANSWER` gains nothing."""
        if self.loss is None:
            return int(prediction == label)
        if prediction is NO_ANSWER:
            return 0
        try:
            return self.loss.gain(prediction, label)
        except TypeError:
            if not isinstance(label, str):  # what a peer answers must not stop a site
                return 0
            raise DataError(
                f"a loss of kind {self.loss.kind!r} needs labels that are numbers; learner "
                f"{self.name!r} was given {label!r}"
            ) from None

    def settle(
        self,
        code: int,
        gain: int,
        context: Context,
        slot: int,
        paid: int | None = None,
        space: str | None = None,
    ) -> None:
        """Take the gain of a decision made at `slot`; a served one has the context of `middle`.

        `paid` is in millionths what the arm cost beyond its fixed cost; None: it is not known.
        """
        table = self.table if space is None else self.tables[space]
        table.settle(code, gain, context, slot, UNPAID if paid is None else paid)

    def settle_rows(
        self,
        contexts: np.ndarray,
        slots: np.ndarray,
        codes: np.ndarray,
        gains: np.ndarray,
        paid: np.ndarray | None = None,
        space: str | None = None,
    ) -> None:
        """Settle rows in order; all arrays but `contexts` are int64, `UNPAID` stands for no cost.

        Served rows have the contexts of `middle`: `contexts` may be n x 0.
        """
        if paid is None:
            paid = np.full(len(codes), UNPAID, np.int64)
        table: Any = self._at(space)
        table.settle_batch(contexts.reshape(-1).data, slots.data, codes.data, gains.data, paid.data)

    def remember(
        self,
        code: int,
        label: Label,
        context: Context,
        slot: int,
        space: str | None = None,
        answer: Label | None = None,
    ) -> None:
        """Keep a label for peers that show the cell only; nothing happens unless `remembers`.

        `answer` is what the arm said; None or `NO_ANSWER`: nothing.
        """
        if self.remembers:
            heard = None if answer is NO_ANSWER else answer
            self._at(space).remember(code, label, context, slot, heard)

    def forget_rows(self, codes: Sequence[int], space: str | None = None) -> None:
        """Count the labels of decisions as pending no longer."""
        if self.knows_ends:
            table = self._at(space)
            for code in codes:
                table.forget(code)

    def count_pending(self, codes: Mapping[str, Iterable[int]]) -> None:
        """Count pending labels from now on; those of `codes`, by space, are pending already.

        All that was counted as pending before is forgotten; rows keep their numbers. Codes of
        rows answered by `recall` are not pending.
        """
        self.rule = msgspec.structs.replace(self.rule, is_pending=True)
        for space, table in self.empty_tables().items():  # candidates come after their spaces
            table.saved.take_over(self.tables[space], codes.get(space, ()))
            self.tables[space] = table
        self.table = self.tables[self.space]

    # -- for peers ------------------------------------------------------------------------------

    def open(self, cell: Cell, slot: int) -> int:
        """Return the row of a cell that a peer names at `slot`; it is known from now on."""
        if slot > self.slot:  # noqa: PLR1730 - as `advance`, without a call
            self.slot = slot
        return self.tables[cell.space].cells.meet(cell, slot)

    def serve(self, cell: Cell, slot: int, source: str, function: int = -1) -> int:
        """Choose the own function for a row of a peer, or take `function`; return the code."""
        row = self.open(cell, slot)
        return self.tables[cell.space].serve(row, slot, function, offset_of(source))

    def report(self, cell: Cell, slot: int, source: str) -> Report:
        """Return the arrivals in `cell` that a peer may know of, and bounds of the best accuracy.

        The bounds are 0 and 1 where none are needed.
        """
        row = self.open(cell, slot)
        return self.tables[cell.space].report(row, slot, offset_of(source))

    def estimate(self, cell: Cell, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        """Return the estimated accuracy of its answers in `cell`, and the labels behind it."""
        row = self.open(cell, slot)
        table = self.tables[cell.space]
        if not is_by_context:
            return table.estimate(row)
        _, count, labels = table.cells.memory.recall(row)
        return (count / labels if labels else 0.0), labels

    def recall(self, cell: Cell, slot: int) -> tuple[Label, int]:
        """Return the answer by the cell alone (`NO_ANSWER`: there is none), a code for `remember`.

        Nothing is counted, so the code is never settled, retracted or pending.
        """
        row = self.open(cell, slot)
        label, _, labels = self.tables[cell.space].cells.memory.recall(row)
        return (label if labels else NO_ANSWER), code_of(row, 0, SERVE)

    # -- alarms ---------------------------------------------------------------------------------

    def take_alarm(self) -> int:
        """Return the slot of the decision whose label raised an alarm, for its peers; 0: none."""
        return self.table.policy.forgotten if self.table.take_alarm() else 0

    def hear_alarm(self, space: str, slot: int) -> None:
        """Forget what was learnt up to a slot, as a peer found that a change has happened."""
        self.advance(slot)
        self.tables[space].hear_alarm(slot)

    # -- cells ----------------------------------------------------------------------------------

    def place(self, space: str, row: int, context: Context) -> Cell:
        """Return what a peer is told of an instance in a row: the cell.

        In many dimensions it is the context to 8 bits.
        """
        cells = self.tables[space].cells
        if not cells.is_wide:
            return self.known_cell(space, row)
        return cells.place_of(row, context)._replace(space=space)

    def place_name(self, space: str, row: int, context: Context) -> str:
        """Return the name of `place`."""
        if not self.tables[space].cells.is_wide:
            return self.name_at(space, row)
        return self.names.of(self.place(space, row, context))

    def middle(self, cell: Cell) -> Context:
        """Return the context with which the label of a served row is settled."""
        return middle_of(cell.coordinates) if self.tables[cell.space].cells.is_wide else ()

    def known_cell(self, space: str, row: int) -> Cell:
        """Return the known cell of a row."""
        cell = self.tables[space].cells.cell(row)
        return cell._replace(space=space) if space else cell

    def name_at(self, space: str, row: int) -> str:
        """Return the name of the known cell of a row."""
        name = self._names.get((space, row))
        if name is None:
            name = self._names[space, row] = self.names.of(self.known_cell(space, row))
        return name

    # -- tables ---------------------------------------------------------------------------------

    def empty_table(self, space: str, **other: Any) -> Table:
        """Return a table for a context space; `other` are fields of the rule that differ.

        That of candidates must be joined with those of their spaces.
        """
        several = self.candidates.get(space)
        if several is not None:
            settings = self.policies[several.spaces[0]].settings
            drawn_by = f"{settings.seed} {self.name}" if settings.rules.is_paper else None
            spaces = Spaces(several, len(self.arms), drawn_by=drawn_by)
            rule = msgspec.structs.replace(self.rule, **other)
            return cast("Table", self._limited(spaces, space, rule))
        make, policy = partial(self._table, space, other), self.policies[space]
        if isinstance(policy.partition, EpochCells):
            return cast("Table", Restarted(policy, make))
        return make(policy, self.clocks.get(space))

    def _table(
        self, space: str, other: Mapping[str, Any], policy: Policy, clock: Clock | None = None
    ) -> Table:
        """Return an empty table of a policy, which is that of an epoch if there are several."""
        clock = Clock(*policy.curves()) if clock is None else clock
        of_policy = {
            "dimension": policy.dimension,
            "levels": policy.partition.levels(policy.dimension),
            "rewards": self.rule.rewards if space in self.own_spaces else (),
        }
        rule = msgspec.structs.replace(self.rule, **(of_policy | dict(other)))
        return cast("Table", self._limited(table_of(clock, rule), space, rule))

    def _limited(self, table: Any, space: str, rule: Rule) -> Any:
        """Return a table within the limit of harm, which is for own decisions."""
        if self.harm is None or space != self.space:
            return table
        return Limited(table, self.harm, rule)

    def empty_tables(self, **other: Any) -> dict[str, Table]:
        """Return a table for every context space, those of candidates joined."""
        tables = {space: self.empty_table(space, **other) for space in self.spaces}
        for space in self.candidates:
            self.join(tables[space], space, tables.__getitem__)
        return tables

    def with_tables(self, tables: Mapping[str, Table]) -> "Learner":
        """Return a learner of the same settings and costs that counts in other tables."""
        other = copy.copy(self)
        other.tables, other.table, other._names = dict(tables), tables[self.space], {}
        return other

    def join(self, table: Any, space: str, table_at: Callable[[str], Table]) -> None:
        """Let the table of candidates count in the tables of their spaces."""
        table.join([table_at(name) for name in self.candidates[space].spaces])

    def _at(self, space: str | None) -> Table:
        return self.table if space is None else self.tables[space]

    @cached_property
    def choices(self) -> list[Choice]:
        """What codes choose, by their part `CHOICE`."""
        codes = range(code_of(0, len(self.arms), 0))
        return [self._choice(arm_of(code), _PHASES[phase_of(code)]) for code in codes]

    def _choice(self, arm: int, phase: str) -> Choice:
        price = 0.0 if phase == "serve" else self.costs[arm]
        if arm < self._functions:
            phase = KEPT_ROW if phase == "train" else phase
            return Choice(phase, self.arms[arm], price, arm)
        peer = self._peers[arm - self._functions]
        return Choice(phase, self.arms[arm], price, -1, peer, arm >= self._asked)


class CellNames:
    """Cell names of all context spaces of a learner; the space name is the prefix."""

    def __init__(
        self, policies: Mapping[str, Policy], candidates: Mapping[str, Candidates] | None = None
    ) -> None:
        self._partitions: dict[str, Any] = {
            **{space: policy.partition for space, policy in policies.items()},
            **(candidates or {}),
        }
        self._dimensions = {space: policy.dimension for space, policy in policies.items()}

    def of(self, cell: Cell) -> str:
        """Return the name of a cell."""
        name = self._partitions[cell.space].name(cell)
        return f"{cell.space}/{name}" if cell.space else name

    def parse(self, name: str) -> Cell:
        """Return the cell of a name; raise `DataError` for an invalid name."""
        space, _, rest = name.rpartition("/")
        if space not in self._partitions:
            raise DataError(f"cell {name!r} is in an unknown context space")
        cell: Cell = self._partitions[space].parse(rest)
        count = len(cell.coordinates)
        if count != self._dimensions.get(space, count):  # candidates have looked at theirs
            if cell[:2] != WHOLE_SPACE or not self._is_wide(space):
                raise DataError(f"cell {name!r} needs {self._dimensions[space]} coordinates")
        elif cell.level and self._is_wide(space) and cell.level != WIDE_LEVEL:
            raise DataError(f"cell {name!r} is not a place of {self._dimensions[space]} dimensions")
        return cell._replace(space=space) if space else cell

    def parse_place(self, name: str) -> Cell:
        """Return what a peer tells of an instance; raise `DataError` for an invalid name."""
        cell = self.parse(name)
        if self._is_wide(cell.space) and cell.level != WIDE_LEVEL:
            raise DataError(
                f"cell {name!r} says nothing of the context; send x and two hexadecimal digits for "
                "each coordinate"
            )
        return cell

    def _is_wide(self, space: str) -> bool:
        is_layered = isinstance(self._partitions[space], Dyadic)
        return is_layered and self._dimensions[space] > MOST_AXES


class CellPreference(msgspec.Struct, frozen=True):
    """A cell in which a learner has decided, and the arm that it prefers there."""

    places: tuple[int, ...]  # of its coordinates in contexts
    low: tuple[float, ...]
    high: tuple[float, ...]
    arrivals: int
    arm: str | None  # with the largest estimate (index policies: most labels); None: no labels


class Region(NamedTuple):
    """A cell in which a learner has decided, with the arm that it prefers there."""

    number: int  # of its space among those of the learner
    cell: Cell
    shown: CellPreference
    record: tuple[int, int]  # labels of the preferred arm, and right ones


def preferences(learner: Learner, most: int) -> list[CellPreference]:
    """Return the cells with the most own arrivals, of the present epoch; split ones are left out.

    Nothing changes by it, and it takes little time: it can be called between decisions.
    """
    return [region.shown for region in regions(learner, most)]


def regions(learner: Learner, most: int | None = None) -> Iterator[Region]:
    """Yield the cells in which a learner decides; in each space `most` with the most arrivals."""
    several = learner.candidates.get(learner.space)
    for number, space in enumerate(learner.own_spaces):
        places = tuple(range(learner.dimension)) if several is None else several.columns[number]
        table, policy = _present(learner.tables[space], learner.policies[space])
        levels, rows = policy.partition.levels(policy.dimension), used_rows(table)
        for arrivals, row in rows if most is None else heapq.nlargest(most, rows):
            cell = table.cells.cell(row)
            side = levels[cell.level].side
            # A table of many dimensions has one cell, which has no coordinates.
            sides = (0,) * policy.dimension if table.cells.is_wide else cell.coordinates
            if policy.dimension > MOST_DRAWN:
                sides = ()
            low = tuple(coordinate / side for coordinate in sides)
            high = tuple((coordinate + 1) / side for coordinate in sides)
            if learner.rule.rewards and not table.cells.is_wide:
                # Rewards can depend on the context: the middle of the cell is now the current one.
                table.cells.around(tuple((place + 0.5) / side for place in cell.coordinates))
            arm, labels, right = policy.preferred(table, row, learner.arms)
            shown = CellPreference(places[: len(low)], low, high, arrivals, arm)
            yield Region(number, cell, shown, (labels, right))


def _present(table: Any, policy: Policy) -> tuple[Any, Policy]:
    """Return the table and policy that decide now: of epochs the latest with own arrivals."""
    if not isinstance(table, Restarted):
        return table, policy
    if not table.used:
        return (), policy
    last = max(table.used)
    return table.tables[last], cast("EpochCells", policy.partition).policy_of(last)
