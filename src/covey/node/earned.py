"""Trust that is earned: which sources' labels a site pools for its own decisions, and why.

The labels of each source are kept apart, as those of isolated ones. A source is *pooled* while its
labels agree with the site's own: then its statistics are added to those of the site wherever a
function is chosen. It is *parted* once they do not: nothing of it is added any more, and no counter
has to be changed for that.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isqrt
from typing import Literal

import msgspec

from covey.bandit.epochs import EpochCells
from covey.bandit.partitions import Candidates
from covey.bandit.policies import Policy
from covey.kernel.rules import Cell
from covey.node.agreement import Relation
from covey.node.drift import ChangeTest
from covey.node.requests import OWN, RelationLine
from covey.types import Context

MOST_REGIONS = 4  # of the finest kind
ENOUGH_PAIRS = 20  # with the site's own labels, from which on these decide alone
GOLDEN, TURN = 1327217885, (1 << 31) - 1  # multiples of the golden ratio are spread evenly
RELATION = msgspec.json.Decoder(Relation)


def is_audit(slot: int) -> bool:
    """Return whether a row is decided as without pooled sources: one in `8 + slot ** 0.5`.

    So the site has labels of its own, whatever others say of its functions.
    """
    return ((slot & TURN) * GOLDEN & TURN) * (8 + isqrt(slot)) < TURN


class TrustState(msgspec.Struct, frozen=True):
    """Whether a source with earned trust is pooled, since which slot of the site, and why."""

    source: str
    state: Literal["pooled", "parted"]
    since: int
    pairs: int  # of labels that were compared with the site's own
    why: str

    def __str__(self) -> str:
        return f"{self.source}: {self.state} since slot {self.since}, {self.why}"


class Regions:
    """The coarse regions of a context space, in which labels of sources are compared.

    A region is a cell, or, for cells that are too small, the part of the space around it.
    """

    def __init__(self, policy: Policy) -> None:
        dimension = policy.dimension
        self._partition = policy.partition
        self._sides = [level.side for level in policy.partition.levels(dimension)]
        self._finest = 2 ** ((MOST_REGIONS.bit_length() - 1) // dimension) if dimension else 1
        if len(self._sides) == 1:  # the grids of later epochs are finer
            self._finest = min(self._finest, self._sides[0])

    def of_cell(self, cell: Cell) -> str:
        """Return the region of a cell that a peer names."""
        if isinstance(self._partition, EpochCells):
            return self._name(self._partition.side(cell), cell.coordinates)
        return self._name(self._sides[cell.level], cell.coordinates)

    def around(self, context: Context) -> list[str]:
        """Return the regions of all sizes around a context."""
        found = [
            self._name(side, [min(int(one * side), side - 1) for one in context])
            for side in self._sides
        ]
        return list(dict.fromkeys(found))

    def _name(self, side: int, coordinates: Sequence[int]) -> str:
        if side > self._finest:
            coordinates = [int(one * self._finest // side) for one in coordinates]
            side = self._finest
        return f"{side}:{','.join(map(str, coordinates))}"


class EarnedTrust:
    """The sources whose labels are pooled as long as they agree."""

    def __init__(
        self,
        sources: Iterable[str],
        policies: Mapping[str, Policy],
        candidates: Mapping[str, Candidates] | None = None,
    ) -> None:
        """Labels of `candidates` are compared in the regions of the first one."""
        self._sources = frozenset(sources)
        self._regions = {space: Regions(policy) for space, policy in policies.items()}
        self._candidates = candidates or {}
        self._relations: dict[tuple[str, str], Relation] = {}
        self._with_own: list[Relation] = []
        self._changed: dict[tuple[str, str], Relation] = {}
        self._active: list[str] = []  # sources that have sent labels
        self._parted: dict[str, str] = {}  # source -> why
        is_alarmed = any(policy.detects_changes for policy in policies.values())
        self._change_test = ChangeTest() if is_alarmed else None
        self.turned: list[TrustState] = []  # sources that were parted or pooled again, to be told

    def is_pooled(self, source: str) -> bool:
        """Return whether the labels of a source count for the site now."""
        return source in self._sources and source not in self._parted

    def states(self) -> list[TrustState]:
        """Return whether each source that has sent labels is pooled."""
        return [self._state(source) for source in self._active]

    def _state(self, source: str) -> TrustState:
        own = self._relations[source, OWN]
        why, since = self._parted.get(source, ""), own.since
        if why and not own.differs:
            since = max(one.since for one in self._others(source) if one.differs)
        told = why or f"{own.pairs} labels compared with the site's own"
        return TrustState(source, "parted" if why else "pooled", since, own.pairs, told)

    # -- labels ---------------------------------------------------------------------------------

    def follow(self, forgotten: int) -> None:
        """Note the sum of the slots at which the site's tables last forgot labels."""
        if self._change_test is not None:
            self._change_test.follow(forgotten)

    def take_own(self, space: str, context: Context, function: str, gain: float, slot: int) -> bool:
        """Compare a label of the site's own instance with those of the sources.

        Returns whether labels of all now show that functions have changed.
        """
        if not self._with_own:
            return False
        if space in self._candidates:
            several = self._candidates[space]
            space, context = several.spaces[0], several.first_point(context)
        regions = [f"{space}/{one}" for one in self._regions[space].around(context)]
        return self._take_as_own(regions, function, gain, slot)

    def _take_as_own(self, regions: Sequence[str], function: str, gain: float, slot: int) -> bool:
        for relation in self._with_own:
            self._take(relation, function, regions, gain, is_first=False, slot=slot)
        return self._is_change(OWN, function, regions[-1], gain)

    def take(self, source: str, cell: Cell, function: str, gain: float, slot: int) -> bool:
        """Compare a label of a source with the site's own, and with those of the other sources.

        Labels of a fully trusted peer are taken as the site's own. Returns what `take_own` does.
        """
        if source == OWN:
            return self._take_as_own([self._region(cell)], function, gain, slot)
        if source not in self._sources:
            return False
        if (source, OWN) not in self._relations:
            self._begin(source)
        regions = [self._region(cell)]
        for other in (OWN, *self._active):
            # Where own labels decide on both, what one says of the other changes nothing.
            if other != source and not (self._is_known(source) and self._is_known(other)):
                relation = self._relation(source, other)
                is_first = relation.first == source
                self._take(relation, function, regions, gain, is_first=is_first, slot=slot)
        return source not in self._parted and self._is_change(source, function, regions[0], gain)

    def _is_change(self, source: str, function: str, region: str, gain: float) -> bool:
        pooled = [one for one in self._active if one not in self._parted]
        test = self._change_test
        return test is not None and test.take(source, function, region, gain, pooled)

    def _take(
        self,
        relation: Relation,
        function: str,
        regions: Sequence[str],
        gain: float,
        *,
        is_first: bool,
        slot: int,
    ) -> None:
        before = relation.pairs
        is_turned = relation.take(function, regions, gain, is_first=is_first, slot=slot)
        self._changed[relation.first, relation.second] = relation
        if is_turned or before < relation.pairs == ENOUGH_PAIRS:
            self._judge()

    def _is_known(self, source: str) -> bool:
        """Return whether own labels decide on a source."""
        return source != OWN and self._relations[source, OWN].pairs >= ENOUGH_PAIRS

    def _region(self, cell: Cell) -> str:
        if cell.space in self._candidates:
            cell = self._candidates[cell.space].first_cell(cell)
        return f"{cell.space}/{self._regions[cell.space].of_cell(cell)}"

    # -- verdicts -------------------------------------------------------------------------------

    def _begin(self, source: str) -> None:
        self._active.append(source)
        self._with_own.append(self._relation(source, OWN))
        self._judge()

    def _relation(self, one: str, other: str) -> Relation:
        key = (one, other) if other == OWN else (min(one, other), max(one, other))
        relation = self._relations.get(key)
        if relation is None:
            relation = Relation(*key, number=len(self._relations) + 1)
            self._relations[key] = relation
        return relation

    def _others(self, source: str) -> list[Relation]:
        """Return the relations of a source to other ones."""
        return [
            one
            for key, one in self._relations.items()
            if source in key and key[1] != OWN and set(key) <= set(self._active)
        ]

    def _judge(self) -> None:
        """Say again which sources are parted: by own labels or, without them, by the others."""
        before, self._parted = self._parted, {}
        for source in self._active:
            own, others = self._relations[source, OWN], self._others(source)
            against = sum(one.differs for one in others)
            if own.differs:
                self._parted[source] = f"its labels of {_listed(own)} differ from the site's own"
            elif own.pairs < ENOUGH_PAIRS and 2 * against > len(self._active) - 1:
                self._parted[source] = (
                    f"its labels differ from those of {against} of {len(self._active) - 1} others"
                )
        turned = [one for one in self._active if (one in before) != (one in self._parted)]
        self.turned += [self._state(one) for one in turned]
        if self._change_test is not None:
            for source in turned:
                self._change_test.drop(source)

    # -- commits --------------------------------------------------------------------------------

    def changes(self) -> list[RelationLine]:
        """Return the relations that changed since the last call, as they are stored."""
        changed, self._changed = self._changed, {}
        lines = [(*key, msgspec.json.encode(one).decode()) for key, one in changed.items()]
        return lines if self._change_test is None else lines + self._change_test.changes()

    def load(self, lines: Iterable[RelationLine]) -> None:
        """Continue from stored relations."""
        relations = []
        for first, second, state in lines:
            if first != OWN:
                relations.append(RELATION.decode(state))
            elif self._change_test is not None:
                self._change_test.load(second, state)
        for relation in sorted(relations, key=lambda one: one.number):
            self._relations[relation.first, relation.second] = relation
            if relation.second == OWN and relation.first in self._sources:
                self._active.append(relation.first)
                self._with_own.append(relation)
        self._judge()
        self.turned = []


def _listed(relation: Relation) -> str:
    return ", ".join(map(repr, relation.functions))
