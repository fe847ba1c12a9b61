"""What another configuration makes of what a site has learnt: the plan, and the change itself.

An arm has an identity in the store: what is known of it is stored under it for ever. An arm that
stays keeps its counters, a new one begins with none, and those of one that goes are read no more
until it comes back; a function with another version is another arm. Other cells or another preset
mean other counters: these are counted again from the requests that are still in the store.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from covey.bandit.learner import UNKNOWN, Learner
from covey.errors import DataError, StoreError
from covey.functions.function import Function
from covey.kernel import SERVE, Table, arm_of, code_of, row_of, undecided_row
from covey.site.cells import ArmPlaces, empty_table, kinds_of, phase_number
from covey.site.requests import (
    DETACHED,
    NOT_COUNTED,
    OWN,
    RECALL,
    Arm,
    ArmKind,
    Commit,
    CountedArm,
    Loaded,
    Request,
    RowGroup,
    add_counts,
    is_own,
)
from covey.site.trust import Trust, table_records, take_label
from covey.store.fingerprint import differences
from covey.store.store import Store

UNCHANGED = ("keep", "retired")
COUNTS = 6  # of `arm_counters` that can be discounted
# Parts of a fingerprint whose counters can be counted again; others decide what contexts are.
COUNTED_AGAIN = ("cells", "preset", "forgets", "harm", "loss", "costs", "reports")
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

    @property
    def is_change(self) -> bool:
        """Whether anything in the store changes."""
        is_same = all(step.what in UNCHANGED for step in self.steps)
        return not is_same or bool(self.settings)

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
        return lines


def wanted_arms(learner: Learner, functions: Sequence[Function]) -> list[WantedArm]:
    """Return the arms of a learner with the versions of its functions."""
    own = {
        function.name: WantedArm(function.name, "own", function.version, function.carry)
        for function in functions
    }
    return [own.get(name, WantedArm(name, kind)) for name, kind in kinds_of(learner).items()]


def adopt(
    store: Store,
    loaded: Loaded,
    learner: Learner,
    wanted: Sequence[WantedArm],
    fingerprint: str,
    trust: Mapping[str, Trust],
) -> tuple[Plan, Loaded]:
    """Make a store that of a configuration; return what that changed, and what is stored now.

    Raises `StoreError` if nothing of it could be used; then nothing has changed.
    """
    plan, commit = planned(store, loaded, learner, wanted, fingerprint, trust)
    if plan.is_change or commit.of(Arm) != loaded.of(Arm):
        store.change(commit, fingerprint, is_recounted=bool(plan.settings))
        loaded = store.load_again(loaded.requests)
    return plan, loaded


def planned(
    store: Store,
    loaded: Loaded,
    learner: Learner,
    wanted: Sequence[WantedArm],
    fingerprint: str,
    trust: Mapping[str, Trust],
) -> tuple[Plan, Commit]:
    """Return what `adopt` would change in a store, in words and in records; raise as it does."""
    settings = _changed_settings(store.path, loaded.fingerprint, fingerprint)
    if settings:  # what was counted by other settings is not carried
        wanted = [arm._replace(carry=0.0) for arm in wanted]
    steps, arms = _steps(wanted, loaded)
    labels = sum(counter[0] for counter in loaded.counters.values())
    plan, commit = Plan(learner.name, steps, settings, labels), Commit([*arms])
    if settings:
        recount = _Recount(learner, ArmPlaces(learner, arms), trust)
        recount.take(store.requests())
        commit.records += recount.records(loaded)
        plan = msgspec.structs.replace(plan, counted=recount.counted)
    else:
        commit.records += _carried(steps, loaded)
    return plan, commit


def _carried(steps: Sequence[ArmStep], loaded: Loaded) -> Iterator[CountedArm]:
    """Yield what new versions begin with: a share of the counts of the earlier ones."""
    carrying = {step.instead_of: step for step in steps if step.carry}
    for counted in loaded.of(CountedArm):
        if counted.arm in carrying:
            step = carrying[counted.arm]
            counts = [int(count * step.carry) for count in counted.counters[:COUNTS]]
            counts += [0] * (len(counted.counters) - COUNTS)  # its dates and reports are its own
            yield CountedArm(counted.source, counted.cell, step.id, counts)


# -- the plan -----------------------------------------------------------------------------------


def _changed_settings(path: str, old: str, new: str) -> list[str]:
    """Return which settings differ; raise `StoreError` if contexts do."""
    lines = [
        difference for difference in differences(old, new) if not difference.startswith("arm: ")
    ]
    refused = [line for line in lines if not line.startswith(COUNTED_AGAIN)]
    if refused:
        raise StoreError(f"{path} was written with other settings: {'; '.join(lines)}: {WHY_NOT}")
    return lines


def _steps(wanted: Sequence[WantedArm], loaded: Loaded) -> tuple[list[ArmStep], list[Arm]]:
    """Return what becomes of each arm, and all arms after that."""
    slot = loaded.sources[OWN].slot
    earlier = loaded.of(Arm)
    present = sorted((arm for arm in earlier if arm.place >= 0), key=lambda arm: arm.place)
    by_name = {arm.name: arm for arm in present}
    retired = [arm for arm in earlier if arm.place < 0]
    totals: dict[str, tuple[int, int]] = {}
    for (_, _, id_), counts in loaded.counters.items():
        add_counts(totals, {id_: counts})
    taken = {arm.id for arm in earlier}
    steps, arms = list[ArmStep](), list[Arm]()
    what: Step
    for place, want in enumerate(wanted):
        now = by_name.get(want.name)
        before = now if now is not None and now.kind == want.kind else None
        if before is not None and before.version == want.version:
            what, arm = "keep", before
        else:
            what = "add" if before is None else "renew"
            fresh = Arm(_new_id(want, taken), *want[:3], since=slot, number=len(taken))
            same = (arm for arm in retired if (arm.name, arm.kind, arm.version) == want[:3])
            arm = next(same, fresh)
            what = "return" if arm is not fresh else what
        taken.add(arm.id)
        arms.append(msgspec.structs.replace(arm, place=place, until=None))
        instead_of = before.id if before is not None and what != "keep" else ""
        carry = want.carry if what == "renew" else 0.0
        steps.append(_step(what, arms[-1], totals, instead_of=instead_of, carry=carry))
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


def _step(what: Step, arm: Arm, totals: Mapping[str, tuple[int, int]], **more: Any) -> ArmStep:
    counts = totals.get(arm.id, (0, 0))
    return ArmStep(what, arm.name, arm.kind, arm.version, arm.id, *counts, **more)


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


# -- counting again -----------------------------------------------------------------------------


class _Recount:
    """Tables that are filled again from requests, as if they had been decided by new settings."""

    def __init__(self, learner: Learner, arms: ArmPlaces, trust: Mapping[str, Trust]) -> None:
        self._learner = learner
        self._arms = arms
        self._trust = trust
        self._tables: dict[str, dict[str, Table]] = {}  # by source and space
        self._closed = learner.closed(peer for peer, _ in learner.behind())
        self.counted = 0

    def take(self, requests: Iterable[Request]) -> None:
        """Count all rows and labels of requests."""
        for request in requests:
            take = self._own if is_own(request.source) else self._served
            for row in range(len(request)):
                take(request, row)

    def records(self, loaded: Loaded) -> list[msgspec.Struct]:
        """Return all cells, and the states of all sources."""
        return [
            record
            for state in loaded.sources.values()
            for record in table_records(
                self._learner, state, self._tables.get(state.source, {}), self._arms
            )
        ]

    def _table(self, source: str, space: str) -> Table:
        is_pooled = is_own(source) or self._trust.get(source) == "full"
        tables = self._tables.setdefault(OWN if is_pooled else source, {})
        if space not in tables:
            tables[space] = empty_table(self._learner, space)
            if space in self._learner.candidates:
                self._learner.join(tables[space], space, lambda name: self._table(source, name))
        return tables[space]

    def _own(self, request: Request, row: int) -> None:
        """Count an own row, wherever it lies now."""
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
        self._learn(table, self._code(request.group(row), row_of(code)), request, row)

    def _served(self, request: Request, row: int) -> None:
        """Count a row of a peer, if the cell that it names is one of the cells now."""
        group, slot = request.group(row), request.slot_of(row)
        try:
            cell = self._learner.names.parse(group.cell)
        except DataError:
            return
        table = self._table(request.source, cell.space)
        at = table.cells.meet(cell, slot)
        code = code_of(at, 0, SERVE) if group.phase == RECALL else self._code(group, at)
        if code == DETACHED:
            return
        if group.phase != RECALL:
            table.serve(at, slot, arm_of(code))
        self._learn(table, code, request, row)

    def _learn(self, table: Table, code: int, request: Request, row: int) -> None:
        """Count the label of a row, if it is known."""
        label = request.truths[row]
        if label is not UNKNOWN:
            take_label(self._learner, table, code, request, row, label, self._arms.places)
            self.counted += code != DETACHED and request.group(row).phase not in NOT_COUNTED

    def _code(self, group: RowGroup, row: int) -> int:
        place = self._arms.places.get(group.counted_as)
        return DETACHED if place is None else int(code_of(row, place, phase_number(group)))
