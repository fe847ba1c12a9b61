"""What another configuration makes of what a site has learnt: the plan, and the change itself.

An arm has an identity in the store: its labels are counted under it for ever. An arm that stays
keeps its counters, a new one begins with none, and those of one that goes are set aside; a function
with another version is another arm. Other cells or another preset mean other counters: these are
counted again from the requests that are still in the store.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from covey.bandit.learner import UNKNOWN, Learner
from covey.errors import DataError, StoreError
from covey.functions.function import Function
from covey.kernel import (
    SERVE,
    Table,
    arm_of,
    code_of,
    doubts_of,
    phase_of,
    row_of,
    take_doubts,
    undecided_row,
)
from covey.node.fingerprint import differences
from covey.node.requests import (
    BELIEFS,
    DETACHED,
    NOT_COUNTED,
    OWN,
    Arm,
    ArmKind,
    CellLine,
    Loaded,
    Regrouped,
    Request,
    RowGroup,
    SetAside,
    SourceState,
    StoreChange,
    add_counts,
    is_own,
    whole_doubts,
)
from covey.node.status import kinds_of
from covey.node.trust import NO_LIMIT, RECALL, Trust, take_label
from covey.types import PHASES

UNCHANGED = ("keep", "retired")
COUNTS = 6  # of `arm_counters` that can be discounted
# Parts of a fingerprint whose counters can be counted again; others decide what contexts are.
COUNTED_AGAIN = ("cells", "preset", "forgets", "loss", "costs", "reports")
WHY_NOT = (
    "its contexts would mean something else, and instances are not stored; put the configuration "
    "back, or begin a new file"
)


Step = Literal["keep", "add", "return", "renew", "retire", "retired"]


class WantedArm(NamedTuple):
    """An arm of a configuration."""

    name: str
    kind: ArmKind
    version: str = ""
    carry: float = 0.0  # the share of an earlier version's counters that it begins with


class ArmStep(msgspec.Struct, frozen=True):
    """What becomes of an arm."""

    what: Step
    name: str
    kind: str
    version: str
    id: str
    labels: int  # that are recorded for it, of all sources
    right: int
    instead_of: str = ""  # the id of its earlier version
    carry: float = 0.0


class Plan(msgspec.Struct, frozen=True):
    """What a configuration changes in a store."""

    site: str
    steps: list[ArmStep]
    settings: list[str] = []  # that differ, so that all labels are counted again
    labels: int = 0  # that are recorded
    counted: int = 0  # of these, counted again
    has_other_order: bool = False

    @property
    def is_change(self) -> bool:
        """Whether anything in the store changes."""
        is_same = all(step.what in UNCHANGED for step in self.steps)
        return not is_same or bool(self.settings) or self.has_other_order

    @property
    def sets_aside(self) -> bool:
        """Whether labels that decisions use now are used no longer."""
        is_less = any(
            step.what == "retire" and step.labels and not self._is_carried(step)
            for step in self.steps
        )
        return is_less or (bool(self.settings) and self.counted < self.labels)

    def _is_carried(self, retired: ArmStep) -> bool:
        return any(step.instead_of == retired.id and step.carry == 1.0 for step in self.steps)

    def lines(self) -> list[str]:
        """Return a sentence for everything that changes."""
        lines = [_sentence(step) for step in self.steps if step.what not in UNCHANGED]
        if self.settings:
            lines += [f"changes {setting}" for setting in self.settings]
            lines.append(
                f"counts again: {self.counted:,} of {self.labels:,} labels; the others stay in the "
                "store, but their requests are no longer there, or name an earlier cell only, or "
                "their arm is not among the arms"
            )
        if self.has_other_order:
            lines.append("arms are in another order; nothing learnt changes")
        return lines


def wanted_arms(learner: Learner, functions: Sequence[Function]) -> list[WantedArm]:
    """Return the arms of a learner with the versions of its functions."""
    own = {
        function.name: WantedArm(function.name, "own", function.version, function.carry)
        for function in functions
    }
    return [own.get(name, WantedArm(name, kind)) for name, kind in kinds_of(learner).items()]


class ArmStore(Protocol):
    """What keeps the counters of arms: a store, or a network in one process."""

    @property
    def path(self) -> str: ...

    def set_aside(self, id: str) -> Sequence[SetAside]: ...

    def requests(self) -> Iterator[Request]: ...

    def change(self, change: StoreChange) -> None: ...


def adopt(
    store: ArmStore,
    loaded: Loaded,
    learner: Learner,
    wanted: Sequence[WantedArm],
    fingerprint: str,
    trust: Mapping[str, Trust],
) -> tuple[Plan, Loaded]:
    """Make a store that of a configuration; return what that changed, and what is stored now.

    Raises `StoreError` if nothing of it could be used; then nothing has changed.
    """
    plan, change = planned(store, loaded, learner, wanted, fingerprint, trust)
    if plan.is_change or change.arms != loaded.arms or change.cells is not None:
        store.change(change)
        for request in change.requests:
            request.apply()
    return plan, _changed(loaded, change)


def planned(
    store: ArmStore,
    loaded: Loaded,
    learner: Learner,
    wanted: Sequence[WantedArm],
    fingerprint: str,
    trust: Mapping[str, Trust],
) -> tuple[Plan, StoreChange]:
    """Return what `adopt` would change in a store, in words and in records; raise as it does."""
    settings = _changed_settings(store.path, loaded.fingerprint, fingerprint)
    in_use = [arm for arm in loaded.arms if arm.place >= 0]
    present = sorted(in_use, key=lambda arm: arm.place)
    if settings:  # counters of other settings have another layout, and are not read
        wanted = [one._replace(carry=0.0) for one in wanted]
    steps, arms = _steps(present, wanted, loaded)
    plan = Plan(
        learner.name, steps, settings, sum(counter[0] for counter in loaded.counters.values())
    )
    places = {arm.id: arm.place for arm in arms if arm.place >= 0}
    change = StoreChange(fingerprint, arms)
    if settings:
        recount = _Recount(learner, places, trust)
        recount.take(store.requests())
        change = recount.change(change, loaded)
        plan = msgspec.structs.replace(plan, counted=recount.counted)
    else:
        order = [arm.id for arm in sorted(arms, key=lambda arm: arm.place) if arm.place >= 0]
        kept = [arm.id for arm in present if arm.id in places]
        has_other_order = kept != [id_ for id_ in order if id_ in kept]
        plan = msgspec.structs.replace(plan, has_other_order=has_other_order)
        if plan.is_change:
            aside = {step.id: store.set_aside(step.id) for step in steps if step.what == "return"}
            change = _Tables(learner, present).change(change, loaded, steps, places, aside)
    return plan, change


def _changed(loaded: Loaded, change: StoreChange) -> Loaded:
    """Return what is stored after a change; open requests have their groups already."""
    now = msgspec.structs.replace(loaded, fingerprint=change.fingerprint, arms=change.arms)
    if change.cells is None:
        return now
    cells: dict[str, list[CellLine]] = {source: [] for source in loaded.sources}
    for line in change.cells:
        cells.setdefault(line.source, []).append(line)
    sources = {**loaded.sources, **{one.source: one for one in change.sources}}
    return msgspec.structs.replace(now, cells=cells, sources=sources)


# -- the plan -----------------------------------------------------------------------------------


def _changed_settings(path: str, old: str, new: str) -> list[str]:
    """Return which settings differ; raise `StoreError` if contexts do."""
    found = [
        difference for difference in differences(old, new) if not difference.startswith("arm: ")
    ]
    refused = [one for one in found if not one.startswith(COUNTED_AGAIN)]
    if refused:
        raise StoreError(f"{path} was written with other settings: {'; '.join(found)}: {WHY_NOT}")
    return found


def _steps(
    present: Sequence[Arm], wanted: Sequence[WantedArm], loaded: Loaded
) -> tuple[list[ArmStep], list[Arm]]:
    """Return what becomes of each arm, and all arms after that."""
    slot = loaded.sources[OWN].slot
    by_name = {arm.name: arm for arm in present}
    retired = [arm for arm in loaded.arms if arm.place < 0]
    totals: dict[str, tuple[int, int]] = {}
    for (_, _, id_), counts in loaded.counters.items():
        add_counts(totals, {id_: counts})
    taken = {arm.id for arm in loaded.arms}
    steps, arms = list[ArmStep](), list[Arm]()
    what: Step
    for place, want in enumerate(wanted):
        now = by_name.get(want.name)
        before = now if now is not None and now.kind == want.kind else None
        if before is not None and before.version == want.version:
            what, arm = "keep", before
        else:
            what = "add" if before is None else "renew"
            fresh = Arm(_new_id(want, taken), want.name, want.kind, want.version, since=slot)
            known = (one for one in retired if (one.name, one.kind, one.version) == want[:3])
            arm = next(known, fresh)
            what = "return" if arm is not fresh else what
        taken.add(arm.id)
        arms.append(msgspec.structs.replace(arm, place=place, until=None))
        instead_of = before.id if before is not None and what != "keep" else ""
        carry = want.carry if what == "renew" else 0.0
        steps.append(_step(what, arms[-1], totals, instead_of, carry))
    stays = {arm.id for arm in arms}
    gone = [
        msgspec.structs.replace(arm, place=-1, until=slot) for arm in present if arm.id not in stays
    ]
    steps += [_step("retire", arm, totals) for arm in gone]
    left = [arm for arm in retired if arm.id not in stays]
    steps += [_step("retired", arm, totals) for arm in left]
    return steps, sorted(arms + gone + left, key=lambda arm: arm.id)


def _new_id(want: WantedArm, taken: set[str]) -> str:
    """Return an id that no arm has: the name, or the name and the version."""
    id_ = want.name
    if id_ in taken:
        id_ = f"{want.name}@{want.version[:12] or want.kind}"
    while id_ in taken:
        id_ += "+"
    return id_


def _step(
    what: Step,
    arm: Arm,
    totals: Mapping[str, tuple[int, int]],
    instead_of: str = "",
    carry: float = 0.0,
) -> ArmStep:
    labels, right = totals.get(arm.id, (0, 0))
    return ArmStep(what, arm.name, arm.kind, arm.version, arm.id, labels, right, instead_of, carry)


def _sentence(step: ArmStep) -> str:
    version = f" version {step.version[:12]}" if step.version else ""
    name = f"{'' if step.kind == 'own' else 'peer '}{step.name!r}{version}"
    after = f" in place of {step.instead_of!r}" if step.instead_of else ""
    match step.what:
        case "add":
            return f"adds {name}: it begins without labels"
        case "renew" if step.carry:
            return f"renews {name}{after}: it begins with {step.carry:g} of what that has learnt"
        case "renew":
            return f"renews {name}{after}: it begins without labels"
        case "return":
            return f"returns to {name}{after}: it continues with what it had learnt"
    return f"retires {name}: its {step.labels:,} labels stay readable in the store"


# -- arms that come and go ----------------------------------------------------------------------


class _Tables:
    """The tables of the arms in use, and those of other arms made from them."""

    def __init__(self, learner: Learner, arms: list[Arm]) -> None:
        self._learner = learner
        self._arms = arms

    def _old(self, space: str) -> Table:
        return _empty(
            self._learner,
            space,
            costs=(0.0,) * len(self._arms),
            functions=sum(arm.kind == "own" for arm in self._arms),
            context_peers=sum(arm.kind == "context_only" for arm in self._arms),
            rewards=(),
        )

    def change(
        self,
        change: StoreChange,
        loaded: Loaded,
        steps: Sequence[ArmStep],
        places: Mapping[str, int],
        aside: Mapping[str, Sequence[SetAside]],
    ) -> StoreChange:
        """Return the change with all cells and the groups of open requests."""
        change.cells = []
        change.returned = list(aside)
        self._carried = {
            places[step.id]: (self._place(step.instead_of), step.carry)
            for step in steps
            if step.carry
        }
        self._returned = {
            (one.source, one.cell, places[id_]): one.counters
            for id_, many in aside.items()
            for one in many
        }
        old_place = {arm.id: arm.place for arm in self._arms}
        self._old_of = [-1] * len(places)
        for id_, place in places.items():
            self._old_of[place] = old_place.get(id_, -1)
        gone = [arm for arm in self._arms if arm.id not in places]
        self._sources = loaded.sources
        self._doubts: dict[str, dict[str, list[int]]] = {}
        found = {}
        for source, lines in loaded.cells.items():
            for space in dict.fromkeys(line.space for line in lines):
                mine = [line for line in lines if line.space == space]
                found[source, space] = self._take(source, space, mine, change, gone)
        change.sources = [
            msgspec.structs.replace(loaded.sources[source], changes=doubts)
            for source, doubts in self._doubts.items()
        ]
        change.sources += [  # what was learnt is in those above
            SourceState(source, 0) for source in loaded.sources if source.startswith(BELIEFS)
        ]
        own = {space: table for (source, space), table in found.items() if source == OWN}
        change.requests = [self._regrouped(request, places, own) for request in loaded.requests]
        return change

    def _place(self, id_: str) -> int:
        return next(arm.place for arm in self._arms if arm.id == id_)

    def _take(
        self,
        source: str,
        space: str,
        lines: Sequence[CellLine],
        change: StoreChange,
        gone: Sequence[Arm],
    ) -> Table:
        learner, names = self._learner, self._learner.names
        old, new = self._old(space), _empty(learner, space)
        for line in lines:
            old.saved.load_stored(names.parse(line.name), line.counters, line.seen)
        for row in range(len(old)):
            new.saved.take_row(old, row, self._old_of)
        state = self._sources.get(source)
        if state is not None and space in state.changes and learner.rule.tree is not None:
            keys = {space, *(key for key in state.changes if key.rpartition("#")[0] == space)}
            doubts = whole_doubts(state, self._sources)
            take_doubts({space: old}, {key: doubts[key] for key in doubts if key in keys})
            new.policy.adopt(old.policy, self._old_of)
            self._doubts.setdefault(source, {}).update(doubts_of({space: new}))
        cells = change.cells if change.cells is not None else []
        for row in range(len(new)):
            name = names.of(new.cells.cell(row)._replace(space=space))
            for place, (before, share) in self._carried.items():
                new.saved.load_arm(
                    row, place, _discounted(old.saved.arm_counters(row, before), share)
                )
            for place in range(len(self._old_of)):
                counters = self._returned.get((source, name, place))
                if counters is not None:
                    new.saved.load_arm(row, place, counters)
            for arm in gone:
                counters = old.saved.arm_counters(row, arm.place)
                if any(counters):
                    change.set_aside.append(SetAside(arm.id, source, name, counters))
            cells.append(
                CellLine(source, space, row, name, new.saved.stored(row), new.saved.known(row))
            )
        return new

    def _regrouped(
        self, request: Request, places: Mapping[str, int], own: Mapping[str, Table]
    ) -> Regrouped:
        """Return an open request with codes that mean the new places."""
        groups = [
            group if group.phase == RECALL else self._moved(group, request, places, own)
            for group in request.groups
        ]
        training = {}
        for row, (function, instance) in request.training.items():
            place = places.get(self._arms[function].id, -1)
            if place >= 0:
                training[row] = place, instance
        return Regrouped(request, groups, request.group_of, training)

    def _moved(
        self, group: RowGroup, request: Request, places: Mapping[str, int], own: Mapping[str, Table]
    ) -> RowGroup:
        place = places.get(group.counted_as)
        code = DETACHED
        if place is not None:
            code = self._code(group, place, request, own)
        return group if code == group.code else msgspec.structs.replace(group, code=code)

    def _code(self, group: RowGroup, place: int, request: Request, own: Mapping[str, Table]) -> int:
        if group.code == DETACHED:  # the arm is back; the row is to be found by the cell
            if not is_own(request.source):
                return -1 - int(code_of(0, place, SERVE))
            try:
                row = own[request.space].cells.find(self._learner.names.parse(group.cell))
            except (DataError, KeyError):
                return DETACHED
            return code_of(row, place, _phase(group)) if row >= 0 else DETACHED
        if group.code < 0:  # the arm was back before, and the row is still to be found
            return -1 - int(code_of(0, place, phase_of(-1 - group.code)))
        return int(code_of(row_of(group.code), place, phase_of(group.code)))


def _empty(learner: Learner, space: str, **other: object) -> Table:
    """Return a table that counts as a learner's; pending labels are not counted in a store."""
    return learner.empty_table(space, is_pending=False, custom=None, most_cells=NO_LIMIT, **other)


def _discounted(counters: Sequence[int], share: float) -> list[int]:
    """Return a share of what an earlier version has learnt; its dates and reports are its own."""
    counts = [int(counter * share) for counter in counters[:COUNTS]]
    return counts + [0] * (len(counters) - COUNTS)


def _phase(group: RowGroup) -> int:
    return SERVE if group.phase == "serve" else PHASES.index(group.phase)


# -- counting again -----------------------------------------------------------------------------


class _Recount:
    """Tables that are filled again from requests, as if they had been decided by new settings."""

    def __init__(
        self, learner: Learner, places: Mapping[str, int], trust: Mapping[str, Trust]
    ) -> None:
        self._learner = learner
        self._places = places
        self._trust = trust
        self._tables: dict[tuple[str, str], Table] = {}
        self._closed = learner.closed(peer for peer, _ in learner.behind())
        self.counted = 0
        self._groups: dict[int, tuple[list[RowGroup], list[int]]] = {}  # by number, if it is open

    def take(self, requests: Iterable[Request]) -> None:
        """Count all rows and labels of requests."""
        for request in requests:
            take = self._own if is_own(request.source) else self._served
            places = [take(request, row) for row in range(len(request))]
            if request.is_open:
                self._groups[request.number] = _regrouped(request, places)

    def _doubts(self, source: str) -> dict[str, list[int]]:
        """Return what was learnt of a source that is in no row."""
        if self._learner.rule.tree is None:
            return {}
        tables = {space: table for (name, space), table in self._tables.items() if name == source}
        return doubts_of(tables)

    def change(self, change: StoreChange, loaded: Loaded) -> StoreChange:
        """Return the change with all cells and the groups of open requests."""
        names = self._learner.names
        change.cells = [
            CellLine(
                source,
                space,
                row,
                names.of(table.cells.cell(row)._replace(space=space)),
                table.saved.stored(row),
                table.saved.known(row),
            )
            for (source, space), table in self._tables.items()
            for row in range(len(table))
        ]
        change.sources = [
            SourceState(one.source, one.slot, self._doubts(one.source), one.latest)
            for one in loaded.sources.values()
            if not one.source.startswith(BELIEFS)
        ]
        change.sources += [  # what was learnt is in those above
            SourceState(source, 0) for source in loaded.sources if source.startswith(BELIEFS)
        ]
        change.requests = [
            Regrouped(request, *self._groups[request.number]) for request in loaded.requests
        ]
        return change

    def _table(self, source: str, space: str) -> Table:
        is_pooled = is_own(source) or self._trust.get(source) == "full"
        key = (OWN if is_pooled else source, space)
        if key not in self._tables:
            self._tables[key] = _empty(self._learner, space)
            if space in self._learner.candidates:
                self._learner.join(self._tables[key], space, lambda one: self._table(source, one))
        return self._tables[key]

    def _own(self, request: Request, row: int) -> tuple[int, str]:
        """Count an own row, wherever it lies now; return its code and its cell."""
        table, context = self._table(OWN, request.space), request.context(row)
        slot = request.slot_of(row)
        code = table.decide(context, slot, self._closed)
        if code < 0:
            at = undecided_row(code)
            if self._learner.is_supervised:
                code = table.resume(at, context, slot, self._closed)
            else:
                nothing = [(0.0, 0)] * len(self._learner.behind())
                code = table.consult(at, context, nothing, self._closed)
        group, name = request.group(row), request.group(row).cell
        if request.space in self._learner.candidates:  # the row is found again by its name
            cell = table.cells.cell(row_of(code))._replace(space=request.space)
            name = self._learner.names.of(cell)
        code = self._code(group, row_of(code))
        self._learn(table, code, request, row)
        return code, name

    def _served(self, request: Request, row: int) -> tuple[int, str]:
        """Count a row of a peer, if the cell that it names is one of the cells now."""
        group, slot = request.group(row), request.slot_of(row)
        try:
            cell = self._learner.names.parse(group.cell)
        except DataError:
            return DETACHED, group.cell
        table = self._table(request.source, cell.space)
        at = table.cells.meet(cell, slot)
        code = code_of(at, 0, SERVE) if group.phase == RECALL else self._code(group, at)
        if code != DETACHED:
            if group.phase != RECALL:
                table.serve(at, slot, arm_of(code))
            self._learn(table, code, request, row)
        return code, group.cell

    def _learn(self, table: Table, code: int, request: Request, row: int) -> None:
        """Count the label of a row, if it is known."""
        label = request.truths[row]
        if label is not UNKNOWN:
            take_label(self._learner, table, code, request, row, label, self._places)
            self.counted += code != DETACHED and request.group(row).phase not in NOT_COUNTED

    def _code(self, group: RowGroup, row: int) -> int:
        place = self._places.get(group.counted_as)
        return DETACHED if place is None else int(code_of(row, place, _phase(group)))


def _regrouped(
    request: Request, places: Sequence[tuple[int, str]]
) -> tuple[list[RowGroup], list[int]]:
    """Return groups of a request with these codes and cells, and the group of each row."""
    groups: dict[RowGroup, int] = {}
    of_row = []
    for row, (code, cell) in enumerate(places):
        group = msgspec.structs.replace(request.group(row), code=int(code), cell=cell)
        of_row.append(groups.setdefault(group, len(groups)))
    return list(groups), of_row
