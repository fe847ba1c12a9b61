"""The state of a site: its learner, and the requests whose labels it accepts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from covey.bandit.learner import UNKNOWN, Learner
from covey.bandit.links import SitePrices
from covey.data.inputs import check_kind
from covey.errors import ConflictingLabel, LateLabel
from covey.kernel import UNPAID, arm_of, row_of
from covey.kernel.rules import Cell, Report
from covey.node.requests import (
    DETACHED,
    FEW,
    NONE,
    OWN,
    RECALL,
    PeerAnswer,
    QueryKind,
    Request,
    RowGroup,
)
from covey.node.trust import PoolingLearner, SourceStatistics, take_label
from covey.types import MILLIONTHS, Cost, Label

MOST_CELLS = 65_536  # that a peer may open
MOST_GROUPS = 100_000  # that are cached
ONE_GROUP = (0,)
FEW_LABELS = 4  # that are settled one by one
Truths = Mapping[int, Any]  # by row
Costs = Mapping[int, Cost] | None  # by row


class Settlements(msgspec.Struct, frozen=True, gc=False):
    """The effect of labels, one by one."""

    is_new: list[bool]  # False: the same label had been settled before, or is kept
    is_right: list[bool]
    kept: Collection[int] = ()  # rows whose label waits for the answer of a busy peer


class SiteState:
    """The learner of a site and the requests whose labels it accepts.

    Where these are, and what their numbers mean, is up to the classes that inherit.
    """

    pending_rows: int  # whose label has not arrived

    def __init__(self, learner: Learner, sources: SourceStatistics) -> None:
        self.learner = learner
        self.sources = sources  # what each peer is served from
        self.judge: Learner | PoolingLearner = learner  # decides own rows
        self.arm_ids: dict[str, str] = {}  # of arms whose labels are not counted under their name
        self.latest_slot = learner.slot  # that was given to a request
        self._groups: dict[Any, RowGroup] = {}

    @property
    def places(self) -> dict[str, int]:
        """The own functions, by what their labels count as."""
        own = self.learner.arms[: len(self.learner.arms) - len(self.learner.behind())]
        return {self.id_of(arm): place for place, arm in enumerate(own)}

    def id_of(self, arm: str) -> str:
        """Return what labels of an arm count as."""
        return self.arm_ids.get(arm, arm)

    # -- slots ----------------------------------------------------------------------------------

    def next_slot(self, slot: int | None) -> int:
        """Return the slot that `take_slots` would return."""
        latest = max(self.latest_slot, self.learner.slot)
        return latest + 1 if slot is None else max(slot, latest)

    def take_slots(self, slot: int | None, rows: int) -> int:
        """Return the first slot of a request: the next one, or `slot` unless it has passed."""
        latest, now = self.latest_slot, self.learner.slot  # as `next_slot`, without a call
        if now > latest:  # noqa: PLR1730 - max() costs twice as much
            latest = now
        first = latest + 1 if slot is None else max(slot, latest)
        self.latest_slot = first + rows - 1
        self.expire(first)
        # The rows of a request have the prices of its first slot.
        prices = self.learner.prices
        if prices is not None and prices.apply(self.learner, first):
            self.prices_changed()
        return first

    def expire(self, slot: int) -> None:
        """Forget rows whose labels are no longer waited for in `slot`, before it is decided."""
        raise NotImplementedError

    def return_slots(self, first: int, rows: int) -> None:
        """Give back the slots of a request that failed, unless later ones are in use."""
        if self.latest_slot == first + rows - 1:
            self.latest_slot = first - 1

    # -- requests -------------------------------------------------------------------------------

    def accept(  # noqa: PLR0913 - the fields of a request
        self,
        codes: Sequence[int],
        *,
        space: str,
        slot: int,
        contexts: Any,
        predictions: list[Any],
        answers: list[Any],
        source: str = OWN,
        id: str = "",
        digest: str = "",
        slots: Sequence[int] | None = None,
        peer_answers: Mapping[int, PeerAnswer] = NONE,
        row_ids: Sequence[str] | None = None,
        training: Mapping[int, tuple[str, Any]] = NONE,
        scored: Mapping[int, Mapping[str, Label]] = NONE,
    ) -> Request:
        """Record answered rows as a request whose labels are accepted from now on."""
        count = len(codes)
        if count == 1:
            groups: Sequence[RowGroup] = (self._group(source, space, codes[0]),)
            group_of: Any = ONE_GROUP
            truths = [UNKNOWN]
        else:
            unique, group_of = np.unique(np.asarray(codes), return_inverse=True)
            groups = [self._group(source, space, code) for code in unique.tolist()]
            group_of = group_of.tolist() if count <= FEW else group_of.astype(np.uint32)
            truths = [UNKNOWN] * count
        request = Request(  # by position, which takes a third of the time
            0,
            source,
            id,
            slot,
            groups,
            contexts,
            predictions,
            answers,
            truths,
            space,
            group_of,
            digest,
            slots,
            peer_answers,
            row_ids,
            training,
            scored,
        )
        self._hold(request)
        return request

    def recall(
        self, source: str, cells: Sequence[Cell], slots: Sequence[int], ids: Sequence[str] = ("",)
    ) -> Request:
        """Answer a peer that shows only cells: with the label seen most often in each."""
        labels, groups = [], []
        for cell, slot in zip(cells, slots, strict=True):
            self._touch(source)
            label, code = self.sources.recall(source, cell, slot)
            labels.append(label)
            groups.append(RowGroup(self.learner.names.of(cell), RECALL, "", 0.0, code=code))
        contexts = [self.learner.middle(cell) for cell in cells]
        return self._record(source, groups, cells[0].space, slots, ids, labels, contexts)

    def _record(
        self,
        source: str,
        groups: Sequence[RowGroup],
        space: str,
        slots: Sequence[int],
        ids: Sequence[str],
        labels: list[Label],
        contexts: Any,
        peer_answers: Mapping[int, PeerAnswer] = NONE,
    ) -> Request:
        """Record rows of a peer, each with a group of its own, which no own function answered."""
        request = Request(
            number=0,
            source=source,
            id=ids[0],
            slot=slots[0],
            slots=list(slots),
            space=space,
            groups=groups,
            group_of=range(len(groups)),
            contexts=contexts,
            predictions=labels,
            answers=labels,
            row_ids=ids if len(ids) > 1 else None,
            truths=[UNKNOWN] * len(labels),
            peer_answers=peer_answers,
        )
        self._hold(request)
        return request

    def _hold(self, request: Request) -> None:
        """Give a request its number, and accept its labels."""
        raise NotImplementedError

    def _group(self, source: str, space: str, code: int) -> RowGroup:
        """Return what rows with this decision have in common."""
        group = self._groups.get((space, code))
        if group is None:
            learner = self.learner
            cell = learner.name_at(space, row_of(code))
            group = self._groups[space, code] = self._new_group(code, cell)
        return group

    def _new_group(self, code: int, cell: str) -> RowGroup:
        if len(self._groups) >= MOST_GROUPS:
            self.prices_changed()
        choice = self.learner.choice(code)
        id_ = self.arm_ids.get(choice.arm, "")
        return RowGroup(cell, choice.phase, choice.arm, choice.price, choice.peer, id_, code)

    def prices_changed(self) -> None:
        """Read the prices of arms again."""
        self._groups.clear()

    def retract(self, contexts: Any, slot: int, codes: Any, done: int) -> None:
        """Take back the own decisions of a request that failed: its first `done` rows."""
        for place in range(done):
            if codes[place] >= 0:
                self.learner.retract(int(codes[place]), tuple(contexts[place]), slot + place)

    def undo_reports(self, undo: Sequence[tuple[int, int, int]]) -> None:
        """Undo reports of peers in own cells: row, peer, and its training counter before."""
        for one in reversed(undo):
            self.learner.table.unrefresh(*one)

    # -- rows of peers --------------------------------------------------------------------------

    def teaches(self, source: str) -> bool:
        """Return whether labels of a source count for the site itself now."""
        return self.sources.teaches(source)

    def _touch(self, source: str, slot: int | None = None) -> None:
        """Note that a peer asks, at a slot where that is one of the site itself."""
        if slot is not None and self.sources.is_pooled(source):
            self.expire(slot)

    def answered(self, row: int, peer: str) -> int:
        """Return how many arrivals a peer must have seen in an own cell, as it answered them."""
        return 0

    def serve(self, source: str, cells: Sequence[Cell], slots: Sequence[int]) -> list[int]:
        """Choose own functions for rows of a peer, and count them; if that fails, count nothing."""
        codes: list[int] = []
        functions = [-1] * len(cells)
        if self.learner.shares_slots and len(cells) > 1:
            functions = self._chosen(source, cells, slots)
        try:
            for cell, slot, function in zip(cells, slots, functions, strict=True):
                codes.append(self._serve(source, cell, slot, function))
        except BaseException:
            self.retract_served(source, cells[0].space, codes)
            raise
        return codes

    def _chosen(self, source: str, cells: Sequence[Cell], slots: Sequence[int]) -> list[int]:
        """Choose functions for rows that share a slot: none of them counts for another."""
        functions = []
        for cell, slot in zip(cells, slots, strict=True):
            code = self._serve(source, cell, slot)
            self.retract_served(source, cell.space, [code])
            functions.append(arm_of(code))
        return functions

    def _serve(self, source: str, cell: Cell, slot: int, function: int = -1) -> int:
        """Count a row of a peer; -1: the learner chooses the function."""
        self._touch(source, slot)
        return self.sources.serve(source, cell, slot, function)

    def retract_served(self, source: str, space: str, codes: Sequence[int]) -> None:
        """Take back the choices of `serve`."""
        self.sources.retract(source, space, codes)

    def report(self, source: str, cell: Cell, slot: int) -> Report:
        """Return what a peer may know of a cell, which is known from now on."""
        self._touch(source, slot)
        return self.sources.report(source, cell, slot)

    def query(self, source: str, cell: Cell, slot: int, what: QueryKind) -> Report:
        """Return what a peer asks to know of a cell: see `Driver.report`."""
        if what == "arrivals":
            return self.report(source, cell, slot)
        accuracy, labels = self.estimate(source, cell, slot, is_by_context=what == "seen")
        return labels, accuracy, accuracy, ()

    def estimate(
        self, source: str, cell: Cell, slot: int, *, is_by_context: bool
    ) -> tuple[float, int]:
        """Return the accuracy of answers to a peer in a cell, and the labels behind it."""
        self._touch(source)
        return self.sources.estimate(source, cell, slot, is_by_context=is_by_context)

    # -- labels ---------------------------------------------------------------------------------

    def check(self, request: Request, truths: Mapping[int, Any]) -> None:
        """Raise `ConflictingLabel` or `LateLabel` if a request cannot take these labels.

        And `UnfitLabel` for text if the answer is a number, or the reverse.
        """
        known = request.truths
        for row, label in truths.items():
            check_kind(label, request.predictions[row], self._name(request, row))
        if request.is_open and known.count(UNKNOWN) == len(known):
            return
        for row, label in truths.items():
            if known[row] is UNKNOWN:
                if not request.is_open:
                    raise LateLabel(
                        f"label for {self._name(request, row)} rejected: label-wait has expired"
                    )
            elif known[row] != label:
                raise ConflictingLabel(
                    f"{self._name(request, row)} has the label {known[row]!r}; the conflicting "
                    f"label {label!r} was rejected"
                )

    def _name(self, request: Request, row: int) -> str:
        return f"ticket {request.number + row} of learner {self.learner.name!r}"

    def settle(
        self,
        request: Request,
        truths: Mapping[int, Any],
        costs: Costs = None,
        kept: Collection[int] = (),
    ) -> Settlements:
        """Learn from labels that were checked; the same label again has no effect."""
        known, predictions = request.truths, request.predictions
        rows = [row for row in truths if known[row] is UNKNOWN]
        is_right = [bool(predictions[row] == label) for row, label in truths.items()]
        if len(rows) == len(truths):
            is_new, right = [True] * len(rows), is_right
        else:
            is_new = [known[row] is UNKNOWN for row in truths]
            right = [one for one, new in zip(is_right, is_new, strict=True) if new]
        if rows:
            labels = [truths[row] for row in rows]
            self._learn(request, rows, labels, costs)
            if costs and self.learner.prices is not None:
                self._observe(request, rows, costs, self.learner.prices)
            for row, label in zip(rows, labels, strict=True):
                known[row] = label
            self.pending_rows -= len(rows)
            self._settled(request, rows, labels, right)
        return Settlements(is_new, is_right, kept)

    def _observe(
        self, request: Request, rows: Sequence[int], costs: Mapping[int, Cost], prices: SitePrices
    ) -> None:
        """Learn what the links to the peers that were asked have cost."""
        for row in rows:
            cost, group = costs.get(row), request.group(row)
            if isinstance(cost, Mapping) and group.peer == group.arm:
                prices.observe(group.peer, request.slot_of(row), cost)

    def _paid(self, request: Request, row: int, costs: Costs) -> int:
        """Return what the arm cost beyond its price, in millionths."""
        cost = None if costs is None else costs.get(row)
        if isinstance(cost, Mapping):
            cost = cost.get(self.learner.cost_columns.get(request.group(row).arm, ""))
        return UNPAID if cost is None else round(cost * MILLIONTHS)

    def _learn(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        """Let the learner learn from labels of own rows, or of rows of pooled peers."""
        # Row by row where free functions are scored: a label counts before that of the next row.
        if len(rows) > FEW_LABELS and request.groups[0].phase != RECALL and not request.scored:
            self._learn_rows(request, rows, labels, costs)
        else:
            for row, label in zip(rows, labels, strict=True):
                self._learn_row(request, row, label, costs)

    def _learn_row(self, request: Request, row: int, label: Label, costs: Costs) -> None:
        paid = UNPAID
        if costs is not None or request.peer_answers:
            paid = self._paid(request, row, costs)
        learner, code = self.learner, request.groups[request.group_of[row]].code
        table = learner.tables[request.space]
        take_label(learner, table, code, request, row, label, self.places, paid)

    def _learn_rows(
        self, request: Request, rows: Sequence[int], labels: Sequence[Label], costs: Costs
    ) -> None:
        learner, places = self.learner, np.array(rows, np.int64)
        codes = request.codes[places]
        contexts = np.asarray(request.contexts, np.float64).reshape(len(request), -1)[places]
        slots = request.slots_of(rows)
        gains = learner.gains_of([request.predictions[row] for row in rows], labels)
        paid = None
        if costs is not None or request.peer_answers:
            paid = np.array([self._paid(request, row, costs) for row in rows], np.int64)
        learner.settle_rows(contexts, slots, codes, gains, paid, request.space)
        if learner.remembers:
            points = map(tuple, contexts.tolist())
            said = [request.predictions[row] for row in rows]
            for code, label, point, slot, answer in zip(
                codes.tolist(), labels, points, slots.tolist(), said, strict=True
            ):
                learner.remember(code, label, point, slot, request.space, answer)

    def _settled(
        self, request: Request, rows: list[int], labels: list[Label], right: list[bool]
    ) -> None:
        """Follow up on labels that were learnt."""

    # -- expiry ---------------------------------------------------------------------------------

    def _close(self, request: Request) -> None:
        request.is_open = False
        request.training = NONE
        if UNKNOWN in request.truths:
            pending = request.pending
            self.pending_rows -= len(pending)
            if request.groups[0].phase != RECALL:
                self._forget(request, pending)
        self._closed(request)

    def _forget(self, request: Request, rows: Sequence[int]) -> None:
        self.learner.forget_rows(request.codes_of(rows), request.space)

    def _closed(self, request: Request) -> None:
        """Follow up on a request that has expired."""


def codes_of(pending: Iterable[tuple[Request, int]]) -> dict[str, list[int]]:
    codes: dict[str, list[int]] = {}
    for request, row in pending:
        group = request.group(row)
        if group.phase != RECALL and group.code != DETACHED:
            codes.setdefault(request.space, []).append(group.code)
    return codes
