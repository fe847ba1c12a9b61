"""The slow, obvious oracle: cooperating sites on a recorded stream, one slot at a time.

Nothing here is cached, batched or clever, and nothing comes from the package: a trace on which
this file and the fast kernel agree has been worked out twice.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reference.harm import Limit
from reference.records import (
    MILLION,
    Cell,
    Context,
    History,
    Predictions,
    Record,
    Setup,
    Site,
    SourceWaits,
    Tally,
    Waits,
    cell_at,
    cell_name,
    level_of,
    limit,
    lowest_of_largest,
    short_of_labels,
    under_explored,
)

__all__ = ["Row", "Setup", "Site", "replay"]


class Row(NamedTuple):
    slot: int
    site: int
    cell: str
    phase: str
    arm: int
    function: int
    correct: int | None


def replay(
    setup: Setup,
    *,
    contexts: Sequence[Context],
    predictions: Sequence[Sequence[object]],
    labels: Sequence[object],
    at: Sequence[int] | None = None,
    revealed: Sequence[int] | None = None,
    delay: Sequence[int] | None = None,
    shown: Sequence[Sequence[int]] | None = None,
    busy: Sequence[Sequence[int]] | None = None,
    paid: Sequence[Sequence[float]] = (),
    batch: Sequence[object] | None = None,
    network: "Network | None" = None,
) -> list[Row]:
    """Run the whole stream and return every decision, by slot and then by site."""
    network = network or Network(setup)
    everywhere = [index for index, site in enumerate(setup.sites) if site.arrivals]
    labels_due: dict[int, list[tuple[Decision, Lesson]]] = defaultdict(list)
    waits_over: dict[int, list[Decision]] = defaultdict(list)
    rows = []
    ends = ends_of_batches(batch, len(contexts))
    is_shared = batch is not None and setup.batch == "slot"
    for slot, together in enumerate(rows_of_slots(ends, is_shared=is_shared), start=1):
        # All learners decide before anything is counted: within a slot none is earlier.
        decisions = [
            (place, network.decide(site, contexts[place], slot, busy_in(setup, busy, place)))
            for place in together
            for site in (everywhere if at is None else [at[place]])
        ]
        for place, decision in decisions:
            label = labels[place]
            answers = [column[place] for column in predictions]
            is_shown = revealed is None or revealed[place] != 0
            network.end_slot(decision)
            network.limits[decision.site].pending.append(decision)
            # What the arm said need not be what the site answers: see `Decision.instead`.
            right = network.arm_says(decision, answers) == label
            function, answer = network.site_says(decision, answers)
            rest = 0 if is_shared else ends[place] - place  # labels come after the batch
            late = max(0 if delay is None else delay[place], rest, decision.answer_wait)
            seen = shown is None or shown[place][decision.site] != 0
            if label is not None and label_comes(
                setup, decision.site, shown=is_shown and seen, late=late
            ):
                cost = millionths(setup.sites[decision.site], decision, paid, place)
                labels_due[slot + late].append((decision, Lesson(label, right, cost, answers)))
            elif setup.label_wait is not None:
                waits_over[slot + setup.label_wait].append(decision)
            correct = None if label is None else int(answer == label)
            cell = cell_name(setup, decision.cell)
            rows.append(
                Row(slot, decision.site, cell, decision.phase, decision.arm, function, correct)
            )
        # Where the setup forgets, the order matters: this slot's labels first, then the late ones.
        # With batches, where nearly all are late, they come in the order of their instances.
        due = labels_due[slot]
        if batch is None:
            due = sorted(due, key=lambda one: one[0].slot != slot)
        for decision, lesson in due:
            network.learn(decision, lesson)
            network.score(decision, lesson)
            network.judge(decision, lesson)
        for decision in waits_over[slot]:
            network.limits[decision.site].pending.remove(decision)
            network.stop_waiting(decision)
    return rows


def ends_of_batches(batch: Sequence[object] | None, rows: int) -> list[int]:
    """Return the last row of the batch of each row; without batches, a row is one of its own."""
    ends = list(range(rows))
    for row in reversed(range(rows - 1)):
        if batch is not None and batch[row] == batch[row + 1]:
            ends[row] = ends[row + 1]
    return ends


def rows_of_slots(ends: list[int], *, is_shared: bool) -> list[list[int]]:
    """Return the rows of each slot: one, or those of a batch."""
    if not is_shared:
        return [[row] for row in range(len(ends))]
    return [[row for row in range(len(ends)) if ends[row] == end] for end in sorted(set(ends))]


def busy_in(setup: Setup, busy: Sequence[Sequence[int]] | None, row: int) -> Sequence[int]:
    return [0] * len(setup.sites) if busy is None else busy[row]


def label_comes(setup: Setup, site: int, *, shown: bool, late: int) -> bool:
    if not setup.sites[site].supervised:
        return False
    if not shown and (not setup.is_paper or site == 0):
        return False
    return setup.label_wait is None or late <= setup.label_wait


@dataclass(frozen=True)
class Decision:
    slot: int
    site: int
    context: Context
    cells: tuple[Cell, ...]  # the active one of each candidate
    cell: Cell  # of the candidate that decided
    phase: str
    arm: int
    owner: int  # the site that answers: the receiver itself, the peer or the reader it asked
    function: int | None  # among the owner's; None: a reader's answer, which takes no function
    leader: object  # what a reader answers; None: it has no answer
    instead: int | None  # own function whose answer stands in for one that is missing or late
    answer_wait: int  # slots until the asked peer answers

    @property
    def is_own(self) -> bool:
        return self.owner == self.site

    @property
    def asks_for_data(self) -> bool:
        return not self.is_own and self.function is not None


class Lesson(NamedTuple):
    label: object
    right: bool  # of what the arm said
    paid: int  # millionths, on top of the arm's fixed cost
    answers: Sequence[object] = ()  # of all functions


def millionths(site: Site, decision: Decision, paid: Sequence[Sequence[float]], row: int) -> int:
    column = site.cost_columns[decision.arm] if site.cost_columns else None
    return 0 if column is None else round(paid[column][row] * MILLION)


class Network:
    """All sites: per site, the records of the cells it knows."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.known: list[dict[Cell, Record]] = [{} for _ in setup.sites]
        points, confidence = setup.harm or (math.inf, 0.5)
        self.limits = [
            Limit(points, confidence, self.costs_of(place), site.functions)
            for place, site in enumerate(setup.sites)
        ]
        # By site and space.
        self.waits: dict[tuple[int, int], SourceWaits] = defaultdict(
            lambda: SourceWaits(Waits(), Waits())
        )

    def functions_before(self, site: int) -> int:
        return sum(earlier.functions for earlier in self.setup.sites[:site])

    def may_ask(self, site: int) -> bool:
        return not self.setup.is_paper or site == 0

    def peers(self, site: int) -> tuple[tuple[int, float], ...]:
        return self.setup.sites[site].peers if self.may_ask(site) else ()

    def readers(self, site: int) -> tuple[tuple[int, float], ...]:
        return self.setup.sites[site].readers if self.may_ask(site) else ()

    def costs_of(self, site: int) -> tuple[float, ...]:
        others = (*self.peers(site), *self.readers(site))
        return (*self.setup.sites[site].costs, *(price for _, price in others))

    def record(self, site: int, cell: Cell, slot: int) -> Record:
        """The site's record of the cell, opened now if this is the first it hears of it."""
        if cell not in self.known[site]:
            self.known[site][cell] = Record(
                functions=self.setup.sites[site].functions,
                peers=len(self.peers(site)),
                readers=len(self.readers(site)),
                since=slot,
            )
        return self.known[site][cell]

    def finer(self, cell: Cell, context: Context) -> Cell:
        return cell_at(self.setup, cell.space, context, 2 * cell.side)

    def active_cell(self, site: int, space: int, context: Context) -> Cell:
        if not self.setup.zooming:
            return cell_at(self.setup, space, context, self.setup.slices)
        cell = cell_at(self.setup, space, context, 1)
        while cell in self.known[site] and self.known[site][cell].has_split:
            cell = self.finer(cell, context)
        return cell

    # Deciding: reads the state of the slot's start. All it writes is which cells are known,
    # since when, and the asker's own view of its peers' training.

    def decide(self, site: int, context: Context, slot: int, busy: Sequence[int]) -> Decision:
        spaces = self.setup.sites[site].spaces
        cells = tuple(self.active_cell(site, space, context) for space in spaces)
        for cell in cells:
            self.record(site, cell, slot)
            if self.setup.inherit and self.setup.zooming and cell.place:
                # What will take over is known ahead, so that it need not begin anew.
                self.record(site, self.finer(cell, context), slot)
        kept = self.limits[site].function_to_keep() if self.setup.harm else None
        phase, arm, cell = (
            self.choose(site, cells, slot) if kept is None else ("own", kept, cells[0])
        )
        own, peers = self.setup.sites[site].functions, self.peers(site)
        owner, function, leader, instead, answer_wait = site, arm, None, None, 0
        if own <= arm < own + len(peers):
            owner = peers[arm - own][0]
            function = self.assist(owner, cells, slot)
            answer_wait = busy[owner]
            patience = self.setup.sites[site].patience
            if patience is not None and answer_wait > patience:
                instead = self.best_own_function(site, cells)
        elif arm >= own:
            owner = self.readers(site)[arm - own - len(peers)][0]
            function = None
            leader = self.leader(owner, cells, slot)
            if leader is None:
                instead = self.best_own_function(site, cells)
        return Decision(
            slot, site, context, cells, cell, phase, arm, owner, function, leader, instead,
            answer_wait,
        )  # fmt: skip

    def choose(self, site: int, cells: tuple[Cell, ...], slot: int) -> tuple[str, int, Cell]:
        if not self.setup.sites[site].supervised:
            return "exploit", *largest(cells, [self.hearsay(site, cell, slot) for cell in cells])
        forced: list[tuple[str, int, Cell]] = []
        draws = self.setup.is_paper and len(cells) > 1
        for cell in cells:
            forced += [(*choice, cell) for choice in self.forced(site, cell, slot)]
            if forced and not draws:
                return forced[0]
        if forced:
            return forced[drawn(f"0 {self.setup.sites[site].name} {slot}", len(forced))]
        return "exploit", *largest(cells, [self.estimates(site, cell) for cell in cells])

    def forced(self, site: int, cell: Cell, slot: int) -> list[tuple[str, int]]:
        """Run the three tests in the cell; none: there is nothing left to try, so exploit."""
        record = self.known[site][cell]
        own, waits = self.setup.sites[site].functions, self.waits[site, cell.space]
        waits.own.look(slot)
        others = range(own, len(record.arms))
        enough = dict.fromkeys(range(own), limit(self.setup.explore, slot))
        enough |= dict.fromkeys(others, limit(self.setup.explore_peers, slot))
        steps = ("train", "own", "peers") if self.setup.is_paper else ("own", "train", "peers")
        forced: dict[int, str] = {}
        for step in steps:
            if step == "train":
                # By the text peers are not asked where a function is to be explored.
                asks = self.setup.is_paper or not forced
                arm = self.under_trained(site, cell, slot) if asks else None
                forced |= {} if arm is None else {arm: "train"}
            else:
                arms = under_explored(record, range(own) if step == "own" else others, enough)
                forced |= {arm: "explore" for arm in arms if arm not in forced}
        left = {arm: enough[arm] for arm in enough if arm not in forced}
        forced |= dict.fromkeys(short_of_labels(record, left, waits), "explore")
        return [(phase, arm) for arm, phase in forced.items()]

    def under_trained(self, site: int, cell: Cell, slot: int) -> int | None:
        record = self.known[site][cell]
        enough = limit(self.setup.train, slot)
        for arm, (peer, _) in zip(record.training, self.peers(site), strict=True):
            # Once it was seen above the limit, a peer is not asked again until the limit is there.
            if record.training[arm] <= enough:
                reported = self.record(peer, cell, slot).arrivals
                # What is under way is among the reported only if arrivals do not wait for labels.
                waits = self.setup.count != "arrivals"
                asked = record.arms[arm].labels if waits else record.arms[arm].tried
                record.training[arm] = reported - asked
                if self.setup.is_paper:  # the first below the limit, no other: "else go to line 15"
                    return arm if record.training[arm] <= enough else None
        return next((arm for arm, used in record.training.items() if used <= enough), None)

    def estimates(self, site: int, cell: Cell) -> list[float]:
        """Value every arm by the site's own experience in the cell, after costs."""
        others = (*self.peers(site), *self.readers(site))
        costs = [*self.setup.sites[site].costs, *(price for _, price in others)]
        if not self.setup.sites[site].supervised and self.setup.unlabelled == "accuracy":
            costs = [0.0 for _ in costs]
        arms = self.known[site][cell].arms
        accuracies = [self.mean(site, cell, arm) for arm in range(len(arms))]
        return [
            tally.estimate(cost, accuracy)
            for tally, cost, accuracy in zip(arms, costs, accuracies, strict=True)
        ]

    def mean(self, site: int, cell: Cell, arm: int) -> float:
        """Return the accuracy of an arm that is exploited by: of the cell, or of its children."""
        of_cell = self.known[site][cell].arms[arm].accuracy
        if not (self.setup.inherit and self.setup.zooming and self.setup.is_paper):
            return of_cell
        means = []
        for number in range(2 ** len(cell.place)):
            place = tuple(2 * c + (number >> k & 1) for k, c in enumerate(cell.place))
            child = self.known[site].get(Cell(cell.space, 2 * cell.side, place))
            if cell.place and child is not None and child.arms[arm].labels:
                means.append(child.arms[arm].accuracy)
        total = 0.0
        for one in means:
            total += one
        return total / len(means) if means else of_cell

    def hearsay(self, site: int, cell: Cell, slot: int) -> list[float]:
        """Value every arm without labels: by what serving taught, and by what the others say."""
        values = self.own_estimates(site, cell)
        for peer, price in self.peers(site):
            theirs = self.record(peer, cell, slot).arms[: self.setup.sites[peer].functions]
            values.append(
                max(tally.accuracy for tally in theirs) - self.price_without_labels(price)
            )
        for reader, price in self.readers(site):
            # A learner that is queried about a cell opens a record of it: readers as peers.
            share = self.answers_of(self.record(reader, cell, slot)).share
            values.append(share - self.price_without_labels(price))
        return values

    def price_without_labels(self, price: float) -> float:
        return 0.0 if self.setup.unlabelled == "accuracy" else price

    def answers_of(self, record: Record) -> "History | Predictions":
        """Return what a reader answers by."""
        return record.predictions if self.setup.history == "predictions" else record.history

    def own_estimates(self, site: int, cell: Cell) -> list[float]:
        return self.estimates(site, cell)[: self.setup.sites[site].functions]

    def best_own_function(self, site: int, cells: tuple[Cell, ...]) -> int:
        function, _ = largest(cells, [self.own_estimates(site, cell) for cell in cells])
        return function

    def assist(self, helper: int, cells: tuple[Cell, ...], slot: int) -> int:
        """Pick the helper's own function for a request in the asker's cells."""
        records = [self.record(helper, cell, slot) for cell in cells]
        own_arms = range(self.setup.sites[helper].functions)
        for cell, record in zip(cells, records, strict=True):
            waits = self.waits[helper, cell.space]
            waits.peers.look(slot)
            enough = dict.fromkeys(own_arms, limit(self.setup.explore, slot))
            wanted = under_explored(record, own_arms, enough)
            wanted += short_of_labels(record, enough, waits)
            if wanted:
                return wanted[0]
        best = [self.most_accurate(record, own_arms) for record in records]
        accuracies = [r.arms[f].accuracy for r, f in zip(records, best, strict=True)]
        return best[lowest_of_largest(accuracies)]

    def most_accurate(self, record: Record, functions: range) -> int:
        # The price of the request is settled, so what a function costs its owner plays no part.
        return lowest_of_largest([record.arms[function].accuracy for function in functions])

    def leader(self, reader: int, cells: tuple[Cell, ...], slot: int) -> object:
        """Answer a request that shows the cells alone; None: no label was seen in any."""
        histories = [self.answers_of(self.record(reader, cell, slot)) for cell in cells]
        # One without labels has the share 0, which no other has.
        return histories[lowest_of_largest([history.share for history in histories])].leader

    # Answering.

    def arm_says(self, decision: Decision, answers: Sequence[object]) -> object:
        """Return what the arm is held to. A reader without answer says None, which is wrong."""
        if decision.function is None:
            return decision.leader
        return answers[self.functions_before(decision.owner) + decision.function]

    def site_says(self, decision: Decision, answers: Sequence[object]) -> tuple[int, object]:
        """Return the number of the function whose answer the site gives, and the answer."""
        if decision.instead is not None:
            number = self.functions_before(decision.site) + decision.instead
            return number, answers[number]
        if decision.function is None:
            return len(answers) + decision.site, decision.leader
        number = self.functions_before(decision.owner) + decision.function
        return number, answers[number]

    # Counting: the end of a slot.

    def end_slot(self, decision: Decision) -> None:
        self.count_arrival(decision, is_labelled=False)
        if self.setup.pending:
            for tally, is_served in self.tallies_in_cells(decision):
                tally.under_way += 1
                tally.for_peers += is_served
            for waits in self.waits_for(decision):
                waits.pending += 1
        for cell in decision.cells:
            self.waits[decision.site, cell.space].own.instances += 1
            if decision.asks_for_data:
                self.waits[decision.owner, cell.space].peers.instances += 1
        for cell in decision.cells:
            leaf = self.known[decision.site][cell]
            leaf.own_arrivals += 1
            if self.setup.zooming and cell.place:
                level = level_of(cell) + self.setup.is_paper
                full = self.setup.split_scale * 2 ** (self.setup.split_power * level)
                leaf.has_split = leaf.own_arrivals >= full

    def learn(self, decision: Decision, lesson: Lesson) -> None:
        """Take in the label of a decision, at the site and at whom it asked."""
        self.stop_waiting(decision)
        self.has_come(decision)
        self.count_arrival(decision, is_labelled=True)
        for record, tally in self.moved_at_site(decision):
            record.take(self.setup, tally, right=lesson.right)
            tally.pay(lesson.paid)
        if decision.asks_for_data:
            for record in self.records_asked(decision):
                told = lesson.right != self.setup.sites[decision.site].misleads
                record.take(self.setup, record.arms[decision.function], right=told)
        self.remember(decision, lesson)

    def remember(self, decision: Decision, lesson: Lesson) -> None:
        """Keep the label, for those that show only the cell."""
        for record in [*self.records_around(decision), *self.records_asked(decision)]:
            record.history.take(lesson.label)
        said = self.arm_says(decision, lesson.answers) if lesson.answers else None
        # What another site said is not a prediction of the site itself.
        own = self.records_around(decision) if decision.is_own else self.records_asked(decision)
        for record in own if said is not None else []:
            record.predictions.take(said, lesson.label)

    def score(self, decision: Decision, lesson: Lesson) -> None:
        """Take in what the label says of free functions that were not chosen."""
        self.score_at(decision, lesson, decision.site, decision.arm)
        if decision.asks_for_data:
            self.score_at(decision, lesson, decision.owner, decision.function)

    def judge(self, decision: Decision, lesson: Lesson) -> None:
        """Note the label of a decision for the limit of harm."""
        first = self.functions_before(decision.site)
        others = {
            function: int(lesson.answers[first + function] == lesson.label)
            for function in self.setup.sites[decision.site].free
            if function != decision.arm
        }
        self.limits[decision.site].take(decision, int(lesson.right), lesson.paid, others)

    def score_at(self, decision: Decision, lesson: Lesson, owner: int, chosen: int | None) -> None:
        for function in self.setup.sites[owner].free:
            if function != chosen:
                said = lesson.answers[self.functions_before(owner) + function]
                is_told = owner != decision.site and self.setup.sites[decision.site].misleads
                right = (said == lesson.label) != is_told
                self.score_function(decision, owner, function, right=right)

    def score_function(self, decision: Decision, owner: int, function: int, *, right: bool) -> None:
        is_here = owner == decision.site
        records = self.records_around(decision) if is_here else self.records_asked(decision)
        for record in records:
            record.take(self.setup, record.arms[function], right=right)

    def stop_waiting(self, decision: Decision) -> None:
        if self.setup.pending:
            for tally, is_served in self.tallies_in_cells(decision):
                tally.under_way -= 1
                tally.for_peers -= is_served
            for waits in self.waits_for(decision):
                waits.pending -= 1

    def has_come(self, decision: Decision) -> None:
        for waits in self.waits_for(decision):
            waits.come(decision.slot)

    def waits_for(self, decision: Decision) -> list[Waits]:
        """What the label of the decision is waited for in."""
        found = []
        for cell in decision.cells:
            if decision.phase != "train" or decision.is_own:
                found.append(self.waits[decision.site, cell.space].own)
            if decision.asks_for_data:
                found.append(self.waits[decision.owner, cell.space].peers)
        return found

    def counts_labels(self, site: int) -> bool:
        """Whether arrivals count when their labels come; those without labels train nobody."""
        is_trained = self.setup.sites[site].supervised or self.setup.is_paper
        return self.setup.count != "arrivals" or not is_trained

    def count_arrival(self, decision: Decision, *, is_labelled: bool) -> None:
        if self.counts_labels(decision.site) == is_labelled:
            for record in self.records_around(decision):
                record.arrivals += 1
        if decision.asks_for_data and self.counts_labels(decision.owner) == is_labelled:
            for record in self.records_asked(decision):
                record.arrivals += 1

    def tallies_in_cells(self, decision: Decision) -> list[tuple[Tally, bool]]:
        """The tallies that the decision concerns in its own cells: the site's, then the peer's."""
        here = self.known[decision.site]
        at_site = [(here[cell].arms[decision.arm], False) for cell in decision.cells]
        if not decision.asks_for_data:
            return at_site
        asked = self.records_asked(decision)
        at_peer = [(record.arms[decision.function], True) for record in asked]
        # A peer in training answers worse than it will later: the asker does not hold it to that.
        return at_peer if decision.phase == "train" else [*at_site, *at_peer]

    def moved_at_site(self, decision: Decision) -> list[tuple[Record, Tally]]:
        """Return what the label of the decision moves at the site itself."""
        if decision.phase == "train":
            return []
        if decision.is_own:
            return [(r, r.arms[decision.arm]) for r in self.records_around(decision)]
        cells = list(decision.cells)
        if self.setup.inherit:
            cells += [self.finer(cell, decision.context) for cell in decision.cells]
        records = [self.known[decision.site].get(cell) for cell in cells]
        return [
            (record, record.arms[decision.arm])
            for record in records
            if record is not None and record.since <= decision.slot
        ]

    def records_asked(self, decision: Decision) -> list[Record]:
        """The records of the decision's cells at the site that was asked, if any was."""
        if decision.is_own:
            return []
        return [self.known[decision.owner][cell] for cell in decision.cells]

    def records_around(self, decision: Decision) -> list[Record]:
        """The site's records around the context in its own spaces, known at the decision."""
        return [
            record
            for cell, record in self.known[decision.site].items()
            if cell.space in self.setup.sites[decision.site].spaces
            and record.since <= decision.slot
            and cell_at(self.setup, cell.space, decision.context, cell.side) == cell
        ]


def drawn(words: str, count: int) -> int:
    """Return a number below `count`, the same for the same words."""
    return int(hashlib.sha256(words.encode()).hexdigest()[:16], 16) % count


def largest(cells: tuple[Cell, ...], values: list[list[float]]) -> tuple[int, Cell]:
    """Return the arm of the largest value and its cell: of equals the first cell's lowest arm."""
    cell = lowest_of_largest([max(arms) for arms in values])
    return lowest_of_largest(values[cell]), cells[cell]
