"""One learner's judgement: decide, assist, settle, snapshot. No I/O, no clock, no randomness.

Events in, instructions out: `decide` says which peers to ask for their arrivals (`inform` takes
what they say) and then which arm to run; `accept` takes the arm's label and gives the ticket out,
`abandon` takes the decision back, `withdraw` even after it was accepted.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from covey.cellnames import CellNames
from covey.decisions import (
    LABEL_WAIT_SLOTS,
    NO_ANSWER,
    OPEN,
    RECALL,
    RIGHT,
    UNKNOWN,
    WRONG,
    Choice,
    Decision,
    Settlement,
    Snapshot,
    gained,
    settle_again,
    unknown,
)
from covey.engine import HEAD, Clock, Table, doubts_of
from covey.policies import Policy
from covey.types import (
    BY_CONTEXT,
    MILLIONTHS,
    PHASES,
    WHOLE,
    Cell,
    Context,
    Label,
    Loss,
    Report,
    Reward,
)
from covey.underway import with_under_way

_PHASES = (*PHASES, "serve")
_SERVE = 3


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
        rewards: Sequence[Reward] = (),
        context_peers: Sequence[str] = (),
        spaces: Mapping[str, Policy] | None = None,
        space: str = "",
        loss: Loss | None = None,
        is_supervised: bool = True,
        learns_costs: bool = False,
        remembers: bool = False,
    ) -> None:
        """`spaces` has the policy of every context space, `space` names the learner's own."""
        self.name = name
        wait = policy.settings.label_wait
        self.label_wait = LABEL_WAIT_SLOTS if wait is None else wait
        self._policy = policy
        self._functions = len(functions)
        self._peers = (*peers, *context_peers)
        self._asked = len(functions) + len(peers)  # arms before this one see the instance
        self.arms = (*functions, *peers, *(peer + BY_CONTEXT for peer in context_peers))
        self.costs = tuple(costs)
        self._loss = loss
        self._rule = policy.rule(
            functions=len(functions),
            costs=self.costs,
            position=position,
            rewards=tuple(rewards),
            unit=1 if loss is None else WHOLE,
            context_peers=len(context_peers),
            is_supervised=is_supervised,
            learns_costs=learns_costs,
            remembers=remembers,
        )
        self._space = space
        self.policies = {space: policy} if spaces is None else dict(spaces)
        self.names = CellNames(self.policies)
        self._choices = [self._choice(code) for code in range(4 * len(self.arms))]
        self._begin()

    def _begin(self) -> None:
        self.slot = 0
        self.tables = {name: self._empty_table(name) for name in self.policies}
        self._table = self.tables[self._space]
        self._names: dict[tuple[str, int], str] = {}  # of cells, by their rows
        self._tickets: dict[int, Decision] = {}
        self._oldest_ticket = self._next_ticket = 1
        self._expiry_slot = self._settled = 0  # tickets that are known, and so is their label

    def twin(self, *, spare_cells: int = 0) -> "Learner":
        """Return a learner of the same kind that has seen nothing, and may know more cells."""
        other = copy.copy(self)
        most = self._rule.most_cells + spare_cells
        other._rule = msgspec.structs.replace(self._rule, most_cells=most)
        other._begin()
        return other

    @property
    def kept_tickets(self) -> range:
        """The tickets that it still knows, up to the latest."""
        return range(self._oldest_ticket, self._next_ticket)

    @property
    def open_tickets(self) -> int:
        """How many labels are waited for."""
        return len(self._tickets) - self._settled

    @property
    def known_cells(self) -> int:
        """How many cells have been met so far."""
        return len(self._table)

    @property
    def is_supervised(self) -> bool:
        """Whether it sees labels; if not, it goes by what others know."""
        return self._rule.is_supervised

    @property
    def remembers(self) -> bool:
        """Whether it keeps labels for those who may show it the cell only."""
        return self._rule.remembers

    @property
    def blind_decisions(self) -> int:
        """How often it decided without labels where nobody it could ask had any."""
        return self._table.blind_decisions()

    @property
    def tells_at_once(self) -> bool:
        """Whether an instance counts in what others are told before its label comes."""
        return self._policy.settings.reading.count == "arrivals"

    def decide(self, context: Context, slot: int | None = None) -> Decision:
        """Decide for an own instance at the next slot, or at `slot` if that is handed in."""
        if slot is None:
            slot = self.slot + 1
        elif slot < self.slot:
            slot = self.slot
        code = self._table.decide(context, slot)
        if code < 0:
            return self.undecided(-1 - code, context, slot)
        return Decision(code, context, slot, self._choices[code & 0xFFFFF], space=self._space)

    def undecided(self, row: int, context: Context, slot: int) -> Decision:
        """Return the decision for a context in the cell of `row`, where peers must be asked."""
        is_supervised = self._rule.is_supervised
        stale = self._table.stale(row, slot) if is_supervised else range(len(self._peers))
        asks = tuple(self._peers[k] for k in stale)
        decision = Decision(row << 20, context, slot, OPEN, asks, space=self._space)
        if not asks:  # everybody is closed
            self.inform(decision, ()) if is_supervised else self.consult(decision, ())
        return decision

    def choice(self, code: int) -> Choice:
        """Return what the kernel chose."""
        return self._choices[code & 0xFFFFF]

    @property
    def space(self) -> str:
        """The context space of its own instances."""
        return self._space

    def consult(self, decision: Decision, told: Sequence[tuple[float, int]]) -> None:
        """Go on without labels, given what each of `asks` says of its accuracy, and by how many."""
        code = self._table.consult(decision.code >> 20, decision.context, list(told))
        decision.code = code
        decision.choice = self._choices[code & 0xFFFFF]
        decision.asks = ()

    def inform(self, decision: Decision, reports: Sequence[Report]) -> None:
        """Go on with a decision, given what the peers it asks report; it may ask once more."""
        row = decision.code >> 20
        places = [self._peers.index(peer) for peer in decision.asks]
        decision.refreshed += tuple(
            (place, self._table.hear(row, place, report, decision.slot))
            for place, report in zip(places, reports, strict=True)
        )
        code = self._table.resume(row, decision.context, decision.slot)
        if code < 0:
            decision.asks = tuple(self._peers[k] for k in self._table.stale(row, decision.slot))
            return
        decision.code = code
        decision.choice = self._choices[code & 0xFFFFF]
        decision.asks = ()

    def reprice(self, peer: str, cost: float) -> None:
        """Let asking `peer` cost something else from now on; infinite: it is not to be asked.

        Nothing that was learnt is lost, and decisions under way keep the price they were made at.
        """
        arm = self._functions + self._peers.index(peer)
        self.costs = (*self.costs[:arm], cost, *self.costs[arm + 1 :])
        self._rule = msgspec.structs.replace(self._rule, costs=self.costs)
        self._choices = [self._choice(code) for code in range(4 * len(self.arms))]
        for table in self.tables.values():
            table.set_cost(arm, cost)

    def behind(self) -> list[tuple[str, bool]]:
        """Return whom each arm asks, beyond own functions, and whether by the cell only."""
        return [(peer, k >= self._asked) for k, peer in enumerate(self._peers, self._functions)]

    def report(self, cell: Cell, slot: int) -> Report:
        """Return the arrivals in `cell` that a peer which asks at its slot `slot` may know of.

        With them the bounds of its best function's accuracy, 0 and 1 where none are needed.
        """
        table, row = self._meet(cell, slot)
        return table.report(row, slot)

    def estimate(self, cell: Cell, slot: int, *, is_by_context: bool) -> tuple[float, int]:
        """Return how accurate its answers in `cell` would be, and by how many labels it says so."""
        table, row = self._meet(cell, slot)
        if not is_by_context:
            return table.estimate(row)
        _, count, labels = table.recall(row)
        return (count / labels if labels else 0.0), labels

    def assist(self, cell: Cell, slot: int, function: int | None = None) -> Decision:
        """Decide for somebody else's instance, which lies in `cell`: always an own function."""
        table, row = self._meet(cell, slot)
        if function is None:
            code = table.serve(row, slot)
        else:
            table.repeat(code := row << 20 | function << 2 | _SERVE, ())
        width = table.width(code) if self._policy.keeps_widths else 0
        choice = self._choices[code & 0xFFFFF]
        return Decision(code, (), slot, choice, space=cell.space, width=width)

    def recall(self, cell: Cell, slot: int) -> Decision:
        """Answer for an instance of which only the cell is shown: the label seen most there.

        The decision is accepted already; its label is `NO_ANSWER` where none was ever seen.
        """
        table, row = self._meet(cell, slot)
        label, _, labels = table.recall(row)
        decision = Decision(row << 20 | _SERVE, (), slot, RECALL, space=cell.space)
        self.accept(decision, label if labels else NO_ANSWER)
        return decision

    def accept(self, decision: Decision, label: Label, peer_ticket: int | str | None = None) -> int:
        """Take the label that the arm gave, and give out the ticket for the true one."""
        slot = decision.slot
        if slot > self.slot:  # noqa: PLR1730 - max() costs more than all the rest of this method
            self.slot = slot
        if slot > self._expiry_slot:
            self._expire(slot)
        self._next_ticket = 1 + (ticket := self._next_ticket)
        decision.label = label
        decision.ticket = ticket
        decision.peer_ticket = peer_ticket
        self._tickets[ticket] = decision
        return ticket

    def accept_all(
        self,
        decisions: Sequence[Decision],
        labels: Sequence[Label],
        peer_tickets: Sequence[int | None],
    ) -> None:
        """Accept the decisions of a batch; none of them is older than the wait for labels."""
        if not decisions:
            return
        self.advance(decisions[-1].slot)
        self._expiry_slot = min(self._expiry_slot, decisions[0].slot + self.label_wait)
        tickets = self._tickets
        given = zip(decisions, labels, peer_tickets, strict=True)
        for ticket, (decision, label, peer_ticket) in enumerate(given, self._next_ticket):
            decision.label, decision.peer_ticket = label, peer_ticket
            decision.ticket = ticket
            tickets[ticket] = decision
        self._next_ticket += len(decisions)

    def advance(self, slot: int) -> None:
        """Come to `slot`: labels that are older than the wait are waited for no longer."""
        self.slot = max(self.slot, slot)
        if slot > self._expiry_slot:
            self._expire(slot)

    def abandon(self, decision: Decision) -> None:
        """Take back a decision that came to nothing: all counters are as before."""
        if not decision.asks and decision.choice is not RECALL:
            self.tables[decision.space].retract(decision.code, decision.context)
        for peer, old in decision.refreshed:
            self._table.unrefresh(decision.code >> 20, peer, old)

    def withdraw(self, ticket: int) -> None:
        """Take back the latest ticket, and its decision with it."""
        self.abandon(self._tickets.pop(ticket))
        self._next_ticket = ticket

    def abandon_all(self, decisions: Sequence[Decision], known_cells: int) -> None:
        """Take back consecutive decisions, made when there were `known_cells`.

        A decision is taken off every known cell around it, and so off those too that became known
        after it; they are emptied.
        """
        if not decisions:
            return
        for decision in reversed(decisions):
            self.abandon(decision)
        for row in range(known_cells, len(self._table)):
            zeros = [0] * (len(self._table.counters(row)) - 1)
            self._table.load(self._table.cell(row), [decisions[0].slot, *zeros])

    def waiting(self) -> list[Decision]:
        """Return the decisions whose label has not come."""
        return [decision for decision in self._tickets.values() if decision.truth is UNKNOWN]

    def held(self, ticket: int) -> Decision | None:
        """Return the decision of a ticket; None if it is not known."""
        return self._tickets.get(ticket)

    def check(self, ticket: int, label: Label) -> Decision:
        """Return the decision of a ticket that could be settled with `label`; raise as `settle`."""
        decision = self._tickets.get(ticket)
        if decision is None:
            raise unknown(ticket, self.kept_tickets, owner=self.name, wait=self.label_wait)
        if decision.truth is not UNKNOWN:
            settle_again(decision, label, owner=self.name)
        return decision

    def settle(self, ticket: int, label: Label, paid: float | None = None) -> Settlement:
        """Take the true label of a ticket, and what the arm cost beyond its fixed cost.

        Raises `UnknownTicket` if the ticket was never given out or its label was waited for too
        long, `ConflictingLabel` if another label was settled before. The same label again does
        nothing, and the settlement says so.
        """
        decision = self._tickets.get(ticket)
        if decision is None:
            raise unknown(ticket, self.kept_tickets, owner=self.name, wait=self.label_wait)
        is_right = decision.label == label
        if decision.truth is not UNKNOWN:
            return settle_again(decision, label, owner=self.name)
        table = self.tables[decision.space]
        if decision.choice is not RECALL:
            loss = self._loss
            gain = is_right if loss is None else gained(loss, decision, label, owner=self.name)
            if paid is not None:
                cost = round(paid * MILLIONTHS)
                table.settle(decision.code, gain, decision.context, decision.slot, cost)
            elif decision.peer_ticket is not None and self._policy.keeps_widths:
                table.settle(decision.code, gain, decision.context, decision.slot, decision.width)
            else:
                table.settle(decision.code, gain, decision.context, decision.slot)
        if self._rule.remembers:
            table.remember(decision.code, label, decision.context, decision.slot)
        decision.truth = label
        self._settled += 1
        if decision.peer_ticket is None:
            return RIGHT if is_right else WRONG
        return Settlement(True, is_right, decision.choice.peer, decision.peer_ticket)

    def best_own(self, decision: Decision) -> int:
        """Return the own function with the largest estimate in the cell, its cost taken off."""
        return self._table.best_own(decision.code >> 20)

    def count_under_way(self) -> None:
        """Let labels under way count from now on, as with `pending`.

        Labels that are waited for already count too, and rows keep their numbers.
        """
        if not self._rule.is_pending:
            self._rule = msgspec.structs.replace(self._rule, is_pending=True)
            self._count_open(self._tickets.values())

    def _count_open(self, decisions: Iterable[Decision]) -> None:
        """Count the labels under way anew: those of `decisions`."""
        waiting = [one for one in decisions if one.truth is UNKNOWN]
        for space, old in self.tables.items():
            here = [one for one in waiting if one.space == space]
            table = self._empty_table(space)
            self.tables[space] = with_under_way(old, table, here, self._under_way)
        self._table = self.tables[self._space]

    def cell(self, decision: Decision) -> Cell:
        """Return the cell that a decision lies in."""
        return self.known_cell(decision.space, decision.code >> 20)

    def known_cell(self, space: str, row: int) -> Cell:
        """Return the known cell of a number."""
        cell = self.tables[space].cell(row)
        return cell._replace(space=space) if space else cell

    def name_at(self, space: str, row: int) -> str:
        """Return the name of the known cell of a number."""
        if (space, row) not in self._names:
            self._names[space, row] = self.names.of(self.known_cell(space, row))
        return self._names[space, row]

    def cell_name(self, decision: Decision) -> str:
        """Return the name of the cell that a decision lies in."""
        return self.name_at(decision.space, decision.code >> 20)

    def snapshot(self) -> Snapshot:
        """Return the counters, cell by cell."""
        tables = self.tables
        lines = [self.line(space, row) for space in tables for row in range(len(tables[space]))]
        seen = [(name, labels) for name, _, labels in lines] if self._rule.remembers else []
        cells = [(name, counters) for name, counters, _ in lines]
        return Snapshot(self.slot, cells, seen, doubts_of(tables))

    def line(self, space: str, row: int) -> tuple[str, list[int], list[tuple[Any, int]]]:
        """Return the name of a known cell, its counters, and the labels kept for who asks by it."""
        table = self.tables[space]
        counters = table.counters(row)
        if self._rule.is_pending:
            del counters[self._under_way]
        return self.name_at(space, row), counters, table.known(row)

    def reopen(
        self, decisions: Sequence[Decision], kept: range, others: Sequence[Decision] = ()
    ) -> None:
        """Wait again for the labels of tickets given out; those of `others` are under way too."""
        self._oldest_ticket, self._next_ticket = kept.start, kept.stop
        for decision in decisions:
            if decision.choice is not RECALL:
                decision.choice = self._choices[decision.code & 0xFFFFF]
            self._tickets[decision.ticket] = decision
            self._settled += decision.truth is not UNKNOWN
        if self._rule.is_pending:
            self._count_open([*decisions, *others])

    def restore(self, snapshot: Snapshot) -> None:
        """Take over the counters of a snapshot; meant for a learner that has not begun."""
        self.slot = snapshot.slot
        none, place = [0] * len(self.arms), self._under_way.start
        for name, known in snapshot.cells:
            counters = [*known[:place], *none, *known[place:]] if self._rule.is_pending else known
            cell = self.names.parse(name)
            self.tables[cell.space].load(cell, counters)
        for name, labels in snapshot.seen:
            cell = self.names.parse(name)
            table = self.tables[cell.space]
            table.know(table.meet(cell, self.slot), labels)
        for space, doubts in snapshot.doubts.items():
            self.tables[space].take_doubts(doubts)

    def _meet(self, cell: Cell, slot: int) -> tuple[Table, int]:
        """Return the table of the asker's context space, and the row of its cell there."""
        self.slot = max(self.slot, slot)
        table = self.tables[cell.space]
        return table, table.meet(cell, slot)

    @property
    def _under_way(self) -> slice:
        """Where a row that counts labels under way has them: after labels, right and untrained."""
        start = HEAD + 2 * len(self.arms) + self._asked - self._functions
        return slice(start, start + len(self.arms))

    def _empty_table(self, space: str) -> Table:
        policy = self.policies[space]
        rule = self._rule
        if space != self._space:
            levels = policy.partition.levels(policy.dimension)
            rule = msgspec.structs.replace(
                rule, dimension=policy.dimension, levels=levels, rewards=()
            )
        return Table(Clock(policy.scales(), policy.powers()), rule)

    def _choice(self, code: int) -> Choice:
        arm, phase = code >> 2, _PHASES[code & 3]
        price = 0.0 if phase == "serve" else self.costs[arm]
        if arm < self._functions:
            return Choice(phase, self.arms[arm], price, arm)
        peer = self._peers[arm - self._functions]
        return Choice(phase, self.arms[arm], price, -1, peer, arm >= self._asked)

    def _expire(self, slot: int) -> None:
        """Stop waiting for labels that are older than the wait; tickets are in order of slots."""
        tickets = self._tickets
        while (oldest := tickets.get(self._oldest_ticket)) is not None:
            self._expiry_slot = oldest.slot + self.label_wait
            if slot <= self._expiry_slot:
                return
            del tickets[self._oldest_ticket]
            self._oldest_ticket += 1
            self._settled -= oldest.truth is not UNKNOWN
            if oldest.truth is UNKNOWN and oldest.choice is not RECALL:
                self.tables[oldest.space].forget(oldest.code)
        self._expiry_slot = slot + self.label_wait
