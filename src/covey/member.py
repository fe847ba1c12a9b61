"""One site of a network: its judgement, its functions, and the peers that it may ask."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from covey.batches import (
    Rows,
    as_label,
    contexts_of,
    costs_of,
    grouped,
    rows_of,
    share_of,
    truths_of,
)
from covey.classifiers import Function, Late, Later
from covey.config import Site
from covey.decisions import NO_ANSWER, UNKNOWN, Decision, Settlement
from covey.errors import ContextError, DataError, UnknownTicket
from covey.learner import Learner
from covey.types import MEMORY, Cell, Context, Label
from covey.views import ALL, cut, shown

KEPT = Settlement(False, False, is_kept=True)
Group = tuple[str, str, int]  # arm, peer that is asked ("": an own function), number of the view
Wait = Callable[[Later], object]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A label for an instance, and the ticket under which its true label is to be reported."""

    label: Label
    ticket: int
    phase: str  # train, explore, exploit; serve where another learner asked
    arm: str  # own function or asked learner
    function: str  # the one that answered
    price: float  # in units of reward
    width: int = 0  # where helpers say so: how far it may be from their best, in millionths


class Member:
    """One site of a network: its judgement and its functions."""

    def __init__(self, site: Site, learner: Learner, functions: list[Function]) -> None:
        self.name = site.name
        self.learner = learner
        self._functions = functions
        self._views = site.views
        self._others: Mapping[str, Member] = {}
        self._wait: Wait | None = None

    def meet(self, others: "Mapping[str, Member]", wait: Wait | None = None) -> None:
        """Get to know the other members of the network, and how to wait for a busy one."""
        self._others = others
        self._wait = wait

    def predict(self, instance: Any, context: Context = (), *, slot: int | None = None) -> Answer:
        """Return a label for `instance`, by an own function or by a peer that is paid for it.

        Raises `ContextError` for a context outside the unit cube and `FunctionError` if the chosen
        function fails; then every counter is as before.
        """
        learner, others = self.learner, self._others
        decision = learner.decide(tuple(context), slot)
        try:
            while decision.asks:
                self._consult(decision, Counter())
            choice = decision.choice
            if self._views:
                instance = self._shown(instance, decision)
            if choice.function >= 0:
                given = label = self._run(choice.function, instance, decision)
                function: str = choice.arm
                peer_ticket: int | None = None
            else:
                cell = learner.cell(decision)
                if choice.is_by_context:
                    helped = others[choice.peer].recall(cell, decision.slot)
                else:
                    helped = others[choice.peer].assist(instance, cell, decision.slot)
                given = label = helped.label
                function, peer_ticket = helped.function, helped.ticket
                decision.width = helped.width
                if type(label) is Late or label is NO_ANSWER:
                    label, function = self._meanwhile(helped, instance, decision)
        except BaseException:
            learner.abandon(decision)
            raise
        ticket = learner.accept(decision, given, peer_ticket)
        return Answer(label, ticket, choice.phase, choice.arm, function, choice.price)

    def assist(self, instance: Any, cell: Cell, slot: int) -> Answer:
        """Return a label for somebody else's instance, always by an own function.

        The label of an answer that its function gives later is a `Late`.
        """
        decision = self.learner.assist(cell, slot)
        choice = decision.choice
        function = self._functions[choice.function]
        try:
            label = function.ask(instance)
        except BaseException:
            self.learner.abandon(decision)
            raise
        if function.teach is not None:
            decision.lesson = (choice.function, instance)
        ticket = self.learner.accept(decision, label)
        return Answer(
            label, ticket, choice.phase, choice.arm, choice.arm, choice.price, decision.width
        )

    def recall(self, cell: Cell, slot: int) -> Answer:
        """Return the label seen most often in `cell`, to one who shows no more than that."""
        decision = self.learner.recall(cell, slot)
        return Answer(decision.label, decision.ticket, "recall", self.name, MEMORY, 0.0)

    def learn(self, ticket: int, label: Label, cost: float | None = None) -> Settlement:
        """Settle `ticket` with its true label, at the peer that was asked too.

        `cost` is what the arm cost beyond its fixed cost, where that is to be learnt. The function
        that answered is taught, if it can be. The same label again has no effect, and the
        settlement says so. Raises `FunctionError` if the function cannot learn from the label;
        then every counter is as before, and the label can be sent again.
        """
        kind = type(label)
        if kind is not str and kind is not int:
            label = _checked(label)
        decision = self.learner.held(ticket)
        if cost is not None or not self.learner.is_supervised:
            self._check_learns(decision, [cost])
        if decision is not None and decision.truth is UNKNOWN:
            if type(decision.label) is Late and not _has_answer(decision, label):
                return KEPT
            if decision.lesson is not UNKNOWN:
                self._teach(decision, label)
            if decision.peer_ticket is not None:
                self._pass_on(decision, label)
        return self.learner.settle(ticket, label, cost)

    def join(self) -> list[Settlement]:
        """Settle the labels that were kept for a busy peer's answer, where that has come by now.

        Raises `FunctionError` for an answer that failed; its label is kept no longer, and the
        others can be joined again.
        """
        settlements = []
        for decision in self.learner.waiting():
            late = decision.label
            if type(late) is Late and late.truth is not UNKNOWN and late.is_there():
                label, late.truth = late.truth, UNKNOWN
                settlements.append(self.learn(decision.ticket, label))
        return settlements

    def predict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None
    ) -> list[Answer]:
        """Return one answer per row, as `predict` would one by one with the labels still to come.

        Every function is called once with its rows, every peer once with its share. Labels under
        way count from now on, so that a batch spreads what it explores. Raises as `predict` does,
        and `DataError` for rows that do not fit together; then every counter is as before.
        """
        learner = self.learner
        rows = rows_of(instances)
        points = contexts_of(contexts, rows)
        if len(rows) > learner.label_wait + 1:
            raise DataError(
                f"the batch has {len(rows)} rows, but learner {self.name!r} waits "
                f"{learner.label_wait} slots for a label; raise label-wait, or cut the batch"
            )
        learner.count_under_way()
        known_cells = learner.known_cells
        first_slot = learner.slot + 1 if slot is None else max(slot, learner.slot)
        decisions: list[Decision] = []
        helped: dict[Group, list[Answer]] = {}
        try:
            self._decide_batch(points, first_slot, decisions)
            groups = grouped(map(self._group, decisions))
            labels = self._run_batch(rows, decisions, groups)
            self._ask_batch(rows, decisions, groups, helped)
            functions = [decision.choice.arm for decision in decisions]
            meant = self._stand_in_batch(rows, decisions, groups, helped, functions)
        except BaseException:
            for (_, peer, _), answers in helped.items():
                for answer in reversed(answers):
                    self._others[peer].learner.withdraw(answer.ticket)
            learner.abandon_all(decisions, known_cells)
            raise
        peer_tickets: list[int | None] = [None] * len(decisions)
        for group, answers in helped.items():
            for k, answer in zip(groups[group], answers, strict=True):
                labels[k], peer_tickets[k] = answer.label, answer.ticket
                decisions[k].width = answer.width
        learner.accept_all(decisions, labels, peer_tickets)
        shown = [meant.get(k, decision.label) for k, decision in enumerate(decisions)]
        return list(map(_answer, decisions, functions, shown))

    def assist_batch(self, rows: Rows, cells: Sequence[Cell], slots: Sequence[int]) -> list[Answer]:
        """Return labels for somebody else's instances, each function called once."""
        learner = self.learner
        learner.count_under_way()
        decisions: list[Decision] = []
        try:
            for cell, slot in zip(cells, slots, strict=True):
                decisions.append(learner.assist(cell, slot))
            functions = [decision.choice.arm for decision in decisions]
            labels = self._run_batch(rows, decisions, grouped(map(_plain_group, decisions)))
        except BaseException:
            learner.abandon_all(decisions, learner.known_cells)
            raise
        learner.accept_all(decisions, labels, [None] * len(decisions))
        return list(map(_answer, decisions, functions, labels))

    def learn_batch(
        self, tickets: Sequence[int], labels: Any, costs: Sequence[float | None] | None = None
    ) -> list[Settlement]:
        """Settle each ticket with its label, as `learn` does; every peer gets its labels at once.

        If a ticket is unknown, a label contradicts, or a function cannot learn, no label of the
        batch is taken; it can be sent again, and whoever has been taught is not taught twice.
        """
        truths = truths_of(tickets, labels)
        paid = costs_of(tickets, costs)
        if paid or not self.learner.is_supervised:
            self._check_learns(None, list(paid.values()))
        shares, kept = self._prepare(truths)
        for peer, share in shares.items():
            learner = self._others[peer].learner
            for peer_ticket, label in share.items():
                learner.settle(peer_ticket, label)
        settle = self.learner.settle
        return [KEPT if t in kept else settle(t, truths[t], paid.get(t)) for t in tickets]

    # -- one instance ---------------------------------------------------------------------------

    def _consult(self, decision: Decision, shares: Counter[tuple[str, Cell]]) -> None:
        """Ask peers what the decision needs to know; `shares` are instances still on their way."""
        cell, slot = self.learner.cell(decision), decision.slot
        if self.learner.is_supervised:
            reports = []
            for peer in decision.asks:
                arrivals, low, high = self._others[peer].learner.report(cell, slot)
                reports.append((arrivals + shares[peer, cell], low, high))
            self.learner.inform(decision, reports)
        else:
            self.learner.consult(
                decision,
                [
                    self._others[peer].learner.estimate(cell, slot, is_by_context=is_by_context)
                    for peer, is_by_context in self.learner.behind()
                ],
            )

    def _shown(self, instance: Any, decision: Decision) -> Any:
        number = shown(self._views, decision.choice.arm, decision.context)
        return instance if number == ALL else cut(instance, self._views[number].columns)

    def _check_learns(self, decision: Decision | None, costs: Sequence[float | None]) -> None:
        is_served = decision is not None and decision.choice.phase in ("serve", "recall")
        if not self.learner.is_supervised and not is_served:
            raise DataError(
                f"learner {self.name!r} has supervised = false, and takes no labels; it learns by "
                "helping others"
            )
        for cost in costs:
            if cost is not None and not 0 <= cost <= 1:
                raise DataError(f"the cost is {cost}; it must lie in [0, 1]")

    def _run(self, number: int, instance: Any, decision: Decision) -> Label:
        function = self._functions[number]
        label = function.ask(instance)
        if type(label) is Late:
            label = label.label()
        if function.teach is not None:
            decision.lesson = (number, instance)
        return label

    def _meanwhile(self, helped: Answer, instance: Any, decision: Decision) -> tuple[Label, str]:
        """Return the peer's label if it comes within the wait, else that of the own best."""
        late: Any = helped.label
        try:
            if self._wait is not None and late is not NO_ANSWER:
                self._wait(late.handle)
            if late is not NO_ANSWER and late.is_there():
                return late.label(), helped.function
            number = self.learner.best_own(decision)
            return self._run(number, instance, decision), self._functions[number].name
        except BaseException:
            self._others[decision.choice.peer].learner.withdraw(helped.ticket)
            raise

    def _teach(self, decision: Decision, label: Label) -> None:
        number, instance = _lesson(decision)
        self._functions[number].learn(instance, label)
        decision.lesson = UNKNOWN

    def _pass_on(self, decision: Decision, label: Label) -> None:
        try:
            self._others[decision.choice.peer].learn(_peer_ticket(decision), label)
        except UnknownTicket:
            return  # the peer's slots have run ahead, and it waits for this label no longer

    # -- batches --------------------------------------------------------------------------------

    def _decide_batch(
        self, points: list[Context], first_slot: int, decisions: list[Decision]
    ) -> None:
        """Append the decisions of a batch; peers have not seen their share of it yet."""
        learner = self.learner
        shares: Counter[tuple[str, Cell]] = Counter()
        for place, point in enumerate(points):
            try:
                decision = learner.decide(point, first_slot + place)
            except ContextError as error:
                raise ContextError(f"row {place} of the batch: {error}") from None
            decisions.append(decision)
            while decision.asks:
                self._consult(decision, shares)
            choice = decision.choice
            if choice.function < 0 and not choice.is_by_context and learner.tells_at_once:
                shares[choice.peer, learner.cell(decision)] += 1

    def _group(self, decision: Decision) -> Group:
        """Return what rows must have in common to be asked together: the arm, and what it sees."""
        choice = decision.choice
        view = shown(self._views, choice.arm, decision.context) if self._views else ALL
        return choice.arm, choice.peer, view

    def _share(self, rows: Rows, places: list[int], view: int) -> Rows:
        share = share_of(rows, places)
        return share if view == ALL else [cut(row, self._views[view].columns) for row in share]

    def _run_batch(
        self, rows: Rows, decisions: list[Decision], groups: Mapping[Group, list[int]]
    ) -> list[Label]:
        """Return the labels that own functions give, and None in the places of peers."""
        labels: list[Label] = [None] * len(decisions)
        for (_, _, view), places in groups.items():
            number = decisions[places[0]].choice.function
            if number < 0:
                continue
            function = self._functions[number]
            share = self._share(rows, places, view)
            for place, label in zip(places, function.answer_many(share), strict=True):
                labels[place] = label
            if function.teach is not None:
                for place, instance in zip(places, share, strict=True):
                    decisions[place].lesson = (number, instance)
        return labels

    def _ask_batch(
        self,
        rows: Rows,
        decisions: list[Decision],
        groups: Mapping[Group, list[int]],
        helped: dict[Group, list[Answer]],
    ) -> None:
        """Ask every peer once; `helped` holds what came of it, also if a peer then fails."""
        for group, places in groups.items():
            _, peer, view = group
            if not peer:
                continue
            cells = [self.learner.cell(decisions[place]) for place in places]
            slots = [decisions[place].slot for place in places]
            if decisions[places[0]].choice.is_by_context:
                helped[group] = list(map(self._others[peer].recall, cells, slots))
            else:
                share = self._share(rows, places, view)
                helped[group] = self._others[peer].assist_batch(share, cells, slots)

    def _stand_in_batch(
        self,
        rows: Rows,
        decisions: list[Decision],
        groups: Mapping[Group, list[int]],
        helped: Mapping[Group, list[Answer]],
        functions: list[str],
    ) -> dict[int, Label]:
        """Write down who answered, and answer by the own best function where a peer had none."""
        meant: dict[int, Label] = {}
        for group, answers in helped.items():
            for place, answer in zip(groups[group], answers, strict=True):
                functions[place] = answer.function
                if answer.label is NO_ANSWER:
                    number = self.learner.best_own(decisions[place])
                    (row,) = self._share(rows, [place], group[2])
                    meant[place] = self._run(number, row, decisions[place])
                    functions[place] = self._functions[number].name
        return meant

    def _prepare(self, truths: Mapping[int, Label]) -> tuple[dict[str, dict[int, Label]], set[int]]:
        """Check labels and teach from them, here and at peers: after that nothing can fail.

        Returns the peers' shares, and the tickets whose label is kept for a busy peer.
        """
        checked = [(self.learner.check(t, label), label) for t, label in truths.items()]
        lessons: dict[int, list[tuple[Decision, Label]]] = {}
        shares: dict[str, dict[int, Label]] = {}
        kept: set[int] = set()
        for decision, label in checked:
            if decision.truth is not UNKNOWN:
                continue
            if type(decision.label) is Late and not _has_answer(decision, label):
                kept.add(decision.ticket)
                continue
            if decision.lesson is not UNKNOWN:
                lessons.setdefault(decision.lesson[0], []).append((decision, label))
            if decision.peer_ticket is not None and self._is_waited_for(decision):
                shares.setdefault(decision.choice.peer, {})[_peer_ticket(decision)] = label
        for number, group in lessons.items():
            self._teach_batch(self._functions[number], group)
        for peer, share in shares.items():
            self._others[peer]._prepare(share)
        return shares, kept

    def _is_waited_for(self, decision: Decision) -> bool:
        learner = self._others[decision.choice.peer].learner
        return learner.held(_peer_ticket(decision)) is not None

    def _teach_batch(self, function: Function, group: list[tuple[Decision, Label]]) -> None:
        if function.teach_many is None:
            for decision, label in group:
                self._teach(decision, label)
            return
        instances = [_lesson(decision)[1] for decision, _ in group]
        function.learn_many(instances, [label for _, label in group])
        for decision, _ in group:
            decision.lesson = UNKNOWN


def _answer(decision: Decision, function: str, label: Label) -> Answer:
    choice = decision.choice
    return Answer(
        label, decision.ticket, choice.phase, choice.arm, function, choice.price, decision.width
    )


def _plain_group(decision: Decision) -> Group:
    """Return the group of a row that somebody else cut already."""
    return decision.choice.arm, "", ALL


def _has_answer(decision: Decision, label: Label) -> bool:
    """Put the late answer in its place; if it is not there yet, keep the label for it."""
    late: Any = decision.label
    if not late.is_there():
        late.keep(decision.ticket, label)
        return False
    decision.label = late.label()
    return True


def _checked(label: Any) -> Label:
    try:
        return as_label(label)
    except ValueError as error:
        raise DataError(f"the label is {error}") from None


def _lesson(decision: Decision) -> tuple[int, Any]:
    """Return the function that answered and the instance, of a decision that holds them."""
    return cast("tuple[int, Any]", decision.lesson)


def _peer_ticket(decision: Decision) -> int:
    """Return the helper's ticket, of a decision that asked one."""
    return cast("int", decision.peer_ticket)
