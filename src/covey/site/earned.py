"""Trust that is earned: which sources' labels a site pools for its own decisions, and why.

The labels of each source are kept apart, as those of isolated ones. A source is *pooled* while its
labels agree with the site's own: then its statistics are added to those of the site wherever a
function is chosen. It is *parted* once they do not: nothing of it is added any more, and no counter
has to be changed for that.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp, isqrt, log
from typing import Literal

import msgspec

from covey.bandit.partitions import MOST_DRAWN, Candidates, EpochCells
from covey.bandit.policies import Policy
from covey.kernel.rules import Cell
from covey.site.requests import OWN, OwnLabel, RelationLine
from covey.types import Context

# -- whether two sources agree on functions: read after every label -------------------------------
#
# A label says whether a function was right. Labels of two sources are compared in pairs: of one
# function, in one region of the context space, and of one period. Each pair has a
# difference between -1 and 1. A test bets on these differences: its capital is an e-process, so it
# reaches 1 / level with at most the probability `level`, however often it is read. One pair of
# tests shows that sources differ by more than `TOLERANCE`; another one, after that, that they
# differ by less than `CLEARLY`. `docs/operations/trust.md` has the derivation of both kinds of
# tests, and what they cannot see.

LEVEL = 0.01  # of all tests of all pairs of sources together
TOLERANCE = 0.1  # differences of accuracies up to this are those of honest sources
CLEARLY = 0.25  # a difference that must be excluded before a source is pooled again
BETS = (1 / 16, 1 / 4, 3 / 4)  # shares of the capital; below 1 / (1 + TOLERANCE)
PERIOD = 64  # labels of both sources, within which two of them form a pair
SUSPECT = 10.0  # the capital from which on a function counts among those that differ
PROOF = 128  # new pairs before a source is pooled again; doubled with each time it was parted
FEW_PAIRS = 32  # of a function that says nothing yet


def share(number: int) -> float:
    """Return the part of a whole for the first, second, third, ... of any number of tests."""
    return 1.0 / (number * (number + 1))


class Bets(msgspec.Struct):
    """Capital that grows while differences are above a zone (`above`), or below its opposite.

    A bet may begin at any pair: each start has its share of the capital. So agreement in the past
    does not hide a difference that begins later.
    """

    weight: float  # of this test among those of the two sources
    pairs: int = 0
    worth: float = 0.0  # its part of the capital of a test that differences lie within the zone
    above: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(BETS))
    below: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(BETS))

    def take(self, difference: float, zone: float) -> None:
        """Bet on the difference of one more pair."""
        self.pairs += 1
        start = share(self.pairs)
        for k, bet in enumerate(BETS):
            self.above[k] = (self.above[k] + start) * (1.0 + bet * (difference - zone))
            self.below[k] = (self.below[k] + start) * (1.0 - bet * (difference + zone))
        self.worth = self.weight * (sum(self.above) + sum(self.below)) / (2 * len(BETS))

    @property
    def both(self) -> float:
        """The lesser capital: of a test that the difference lies outside of a negative zone."""
        return min(sum(self.above), sum(self.below)) / len(BETS)


class Waiting(msgspec.Struct, array_like=True, frozen=True):
    """A label of one of two sources that has no counterpart yet."""

    at: int
    is_first: bool
    function: str
    regions: tuple[str, ...]
    gain: float


class Relation(msgspec.Struct):
    """What is known of the agreement of two sources; the second may be the site itself.

    All that it has is stored with it.
    """

    first: str
    second: str
    number: int  # among the relations of a site, from 1
    attempt: int = 1  # to be pooled
    differs: bool = False
    since: int = 0  # the site's slot at which that last changed
    labels: int = 0  # of both
    pairs: int = 0
    new_pairs: int = 0  # since it last changed
    functions: list[str] = []  # that differed when it last did
    wide: dict[str, Bets] = {}  # by function
    narrow: dict[str, Bets] = {}  # by function and region
    waiting: list[Waiting] = []
    seen: int = 0  # the number of the latest own label that was taken

    @property
    def level(self) -> float:
        """The level of the present test; all of them together have `LEVEL`."""
        return LEVEL / 2 * share(self.number) * share(self.attempt)

    def take(
        self, function: str, regions: Sequence[str], gain: float, *, is_first: bool, slot: int
    ) -> bool:
        """Take a label of one of the two, which lies in all of `regions`.

        Returns whether they differ from now on, or do so no longer.
        """
        self.labels += 1
        oldest = self.labels - PERIOD
        while self.waiting and self.waiting[0].at <= oldest:
            del self.waiting[0]
        for k in range(len(self.waiting) - 1, -1, -1):
            other = self.waiting[k]
            if other.is_first == is_first or other.function != function:
                continue
            region = next((region for region in regions if region in other.regions), None)
            if region is not None:
                del self.waiting[k]
                difference = gain - other.gain if is_first else other.gain - gain
                return self._compare(function, region, difference, slot)
        self.waiting.append(Waiting(self.labels, is_first, function, tuple(regions), gain))
        return False

    def _compare(self, function: str, region: str, difference: float, slot: int) -> bool:
        self.pairs += 1
        self.new_pairs += 1
        zone = -CLEARLY if self.differs else TOLERANCE
        tests = [(self.wide, function), (self.narrow, f"{function} {region}")]
        for bets, key in tests:
            if key not in bets:
                bets[key] = Bets(share(len(bets) + 1) / len(tests))
            bets[key].take(difference, zone)
        is_changed = self._is_near() if self.differs else self._is_apart()
        if is_changed:
            self._turn(slot)
        return is_changed

    def _is_apart(self) -> bool:
        tests = (*self.wide.values(), *self.narrow.values())
        return sum([bets.worth for bets in tests]) >= 1.0 / self.level

    def _is_near(self) -> bool:
        if self.new_pairs < PROOF << (self.attempt - 1):
            return False
        needed = {name for name, bets in self.wide.items() if bets.pairs >= FEW_PAIRS}
        needed.update(self.functions)
        nothing = Bets(0.0)
        # Each of the functions must be shown to agree: no share of the level is needed.
        return all(self.wide.get(name, nothing).both >= 1.0 / self.level for name in needed)

    def _turn(self, slot: int) -> None:
        if self.differs:
            self.attempt += 1
            self.functions = []
        else:
            capital: dict[str, float] = {}
            for key, bets in (*self.wide.items(), *self.narrow.items()):
                name = key if key in self.wide else key.rpartition(" ")[0]
                capital[name] = max(capital.get(name, 0.0), bets.worth / bets.weight)
            most = max(capital.values())
            self.functions = sorted(
                name for name, worth in capital.items() if worth >= min(most, SUSPECT)
            )
        self.differs = not self.differs
        self.since = slot
        self.new_pairs = 0
        self.wide, self.narrow = {}, {}


# -- whether labels of several sources show that functions have changed ---------------------------
#
# Each source, the site included, is compared with its own past: per function and region, how often
# the function was right. A test multiplies, label by label, the likelihood by what all sources said
# lately over that by the past; so it is an e-process of this source. The largest of them are left
# out: sources that lie cannot show a change as long as they are fewer than half.

CHANGE_LEVEL = 0.01  # of this test, for all time
UNCHANGED = 0.01  # an accuracy as near as this to that of the past has not changed
FEWEST_PAST = 16  # labels of a source, before a label is compared with them
LATEST = 32  # labels of all sources that say what is so now, in the mean
PAST_WEIGHT = 4.0  # labels that the past is worth among them
BLOCK = 128  # labels of all sources, after which another start of the change is considered
STARTS = 16  # that are considered at a time
LEAST = 0.02  # accuracies are taken to be as far as this from 0 and 1
MOST_EVIDENCE = 100.0  # whose exponential is still a number


class SourcePast(msgspec.Struct):
    """What a source said since the site last forgot, and how far that has changed."""

    labels: dict[str, tuple[int, float]] = {}  # by function and region: how many, and right ones
    evidence: dict[int, float] = {}  # a logarithm of likelihoods, by start


class CommonMoves(msgspec.Struct):
    """What all sources say now, by function and region; older labels weigh less."""

    forgotten: int = 0  # the sum of the slots at which tables of the site last forgot
    labels: int = 0  # over all time
    first: int = 1  # the first start since the site last forgot
    moves: dict[str, tuple[float, float]] = {}  # weights of labels, and of what they differ by
    own: SourcePast = msgspec.field(default_factory=SourcePast)


PAST, COMMON = msgspec.json.Decoder(SourcePast), msgspec.json.Decoder(CommonMoves)


class ChangeTest:
    """The test of a site; all that it knows is stored."""

    def __init__(self) -> None:
        self._common = CommonMoves()
        self._pasts = {OWN: self._common.own}
        self._changed: set[str] = set()

    def follow(self, forgotten: int) -> None:
        """Begin anew if the site has forgotten labels since the last call."""
        common = self._common
        if forgotten != common.forgotten:
            # A start has a number of its own for all time: so the level is shared by all of them.
            first = -(-common.labels // BLOCK) + 1
            self._common = CommonMoves(forgotten, (first - 1) * BLOCK, first)
            self._changed.update(self._pasts)
            self._pasts = {source: SourcePast() for source in self._pasts}
            self._pasts[OWN] = self._common.own

    def drop(self, source: str) -> None:
        """Forget what a source said."""
        if source in self._pasts:
            self._pasts[source] = SourcePast()
            self._changed.add(source)

    def take(
        self, source: str, function: str, region: str, gain: float, pooled: Collection[str]
    ) -> bool:
        """Take a label of the site or of a pooled source; return whether functions have changed."""
        key = f"{function} {region}"
        past = self._pasts.setdefault(source, SourcePast())
        self._changed |= {source, OWN}
        self._common.labels += 1
        evidence = self._evidence(past, key, gain)
        if evidence:
            earlier = past.evidence
            past.evidence = {start: earlier.get(start, 0.0) + evidence for start in self._starts()}
        count, right = past.labels.get(key, (0, 0.0))
        past.labels[key] = (count + 1, right + gain)
        return evidence > 0.0 and bool(pooled) and self._is_shown(pooled)

    def _starts(self) -> range:
        number = -(-self._common.labels // BLOCK)
        return range(max(self._common.first, number - STARTS + 1), number + 1)

    def _evidence(self, past: SourcePast, key: str, gain: float) -> float:
        """Return the logarithm of the likelihood of a label now over that in the past."""
        count, right = past.labels.get(key, (0, 0.0))
        if count < FEWEST_PAST:
            return 0.0
        before = (right + 0.5) / (count + 1)
        weight, moved = self._common.moves.get(key, (0.0, 0.0))
        fading = 1.0 - 1.0 / LATEST
        self._common.moves[key] = (fading * weight + 1.0, fading * moved + gain - before)
        after = before + moved / (weight + PAST_WEIGHT)
        # Of what counts as unchanged, that which is nearest to what is so now.
        before = min(max(after, before - UNCHANGED), before + UNCHANGED)
        before, after = (min(1.0 - LEAST, max(LEAST, rate)) for rate in (before, after))
        return gain * log(after / before) + (1.0 - gain) * log((1.0 - after) / (1.0 - before))

    def _is_shown(self, pooled: Collection[str]) -> bool:
        """Return whether the capital of all starts is large, without the largest of sources."""
        evidences = [self._pasts[source].evidence for source in pooled if source in self._pasts]
        kept = len(evidences) - max(1, (len(evidences) - 1) // 2)
        own = self._common.own.evidence
        capital = 0.0
        for start in self._starts():
            least = sorted([evidence.get(start, 0.0) for evidence in evidences])[:kept]
            capital += share(start) * exp(min(MOST_EVIDENCE, own.get(start, 0.0) + sum(least)))
        return capital >= 1.0 / CHANGE_LEVEL

    # -- commits --------------------------------------------------------------------------------

    def changes(self) -> list[RelationLine]:
        """Return what has changed since the last call, as it is stored."""
        changed, self._changed = sorted(self._changed), set()
        parts = [(name, self._pasts[name] if name else self._common) for name in changed]
        return [RelationLine(OWN, name, msgspec.json.encode(part).decode()) for name, part in parts]

    def load(self, source: str, state: str) -> None:
        """Continue from what is stored of a source."""
        if source == OWN:
            self._common = COMMON.decode(state)
            self._pasts[OWN] = self._common.own
        else:
            self._pasts[source] = PAST.decode(state)


# -- which sources are pooled ---------------------------------------------------------------------

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
        names = [
            self._name(side, [min(int(value * side), side - 1) for value in context])
            for side in self._sides
        ]
        return list(dict.fromkeys(names))

    def _name(self, side: int, coordinates: Sequence[int]) -> str:
        if side > self._finest:
            coordinates = [int(coordinate * self._finest // side) for coordinate in coordinates]
            side = self._finest
        shown = coordinates if len(coordinates) <= MOST_DRAWN else ()  # there is one region
        return f"{side}:{','.join(map(str, shown))}"


class EarnedTrust:
    """The sources whose labels are pooled as long as they agree."""

    def __init__(
        self,
        sources: Iterable[str],
        policies: Mapping[str, Policy],
        candidates: Mapping[str, Candidates] | None = None,
    ) -> None:
        """Labels of `candidates` are compared in the regions of the first one."""
        self._sources = frozenset(sources)  # those that may be pooled
        self._regions = {space: Regions(policy) for space, policy in policies.items()}
        self._candidates = candidates or {}
        self._relations: dict[tuple[str, str], Relation] = {}
        # The latest own labels. A source is compared with them when its next label comes, so that
        # an own label costs the same with any number of sources.
        self._own: deque[OwnLabel] = deque(maxlen=PERIOD)
        self._unwritten: list[OwnLabel] = []
        self._changed: dict[tuple[str, str], Relation] = {}
        self._active: list[str] = []  # sources that have sent labels
        self._parted: dict[str, str] = {}  # source -> why
        is_alarmed = any(policy.detects_changes for policy in policies.values())
        self._change_test = ChangeTest() if is_alarmed else None
        self.turned: list[TrustState] = []  # sources that were parted or pooled again, to be told

    def use_sources(self, sources: Iterable[str]) -> None:
        """Let labels of other sources count; what is known of one that comes back is used on."""
        self._sources = frozenset(sources)
        self._active = [
            source for source, other in self._relations if other == OWN and source in self._sources
        ]
        self._judge()

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
            since = max(other.since for other in self._others(source) if other.differs)
        reason = why or f"{own.pairs} labels compared with the site's own"
        return TrustState(source, "parted" if why else "pooled", since, own.pairs, reason)

    # -- labels ---------------------------------------------------------------------------------

    def follow(self, forgotten: int) -> None:
        """Note the sum of the slots at which the site's tables last forgot labels."""
        if self._change_test is not None:
            self._change_test.follow(forgotten)

    def take_own(self, space: str, context: Context, function: str, gain: float, slot: int) -> bool:
        """Compare a label of the site's own instance with those of the sources.

        Returns whether labels of all now show that functions have changed.
        """
        if not self._active:
            return False
        if space in self._candidates:
            several = self._candidates[space]
            space, context = several.spaces[0], several.points(context)[0]
        regions = [f"{space}/{region}" for region in self._regions[space].around(context)]
        return self._take_as_own(regions, function, gain, slot)

    def _take_as_own(self, regions: Sequence[str], function: str, gain: float, slot: int) -> bool:
        number = self._own[-1].number + 1 if self._own else 1
        label = OwnLabel(number % PERIOD, number, function, [*regions], gain, slot)
        self._own.append(label)
        self._unwritten.append(label)
        return self._is_change(OWN, function, regions[-1], gain)

    def _catch_up(self, relation: Relation) -> None:
        """Take the own labels since the latest label of a source; of many, the latest ones."""
        if self._own:
            relation.labels += max(0, self._own[0].number - 1 - relation.seen)
        for label in self._own:
            if label.number > relation.seen:
                self._take(relation, label.function, label.regions, label.gain, False, label.slot)
                relation.seen = label.number

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
                if other == OWN:
                    self._catch_up(relation)
                self._take(relation, function, regions, gain, relation.first == source, slot)
        return source not in self._parted and self._is_change(source, function, regions[0], gain)

    def _is_change(self, source: str, function: str, region: str, gain: float) -> bool:
        pooled = [active for active in self._active if active not in self._parted]
        test = self._change_test
        return test is not None and test.take(source, function, region, gain, pooled)

    def _take(
        self,
        relation: Relation,
        function: str,
        regions: Sequence[str],
        gain: float,
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
            cell = self._candidates[cell.space].parts(cell)[0]
        return f"{cell.space}/{self._regions[cell.space].of_cell(cell)}"

    # -- verdicts -------------------------------------------------------------------------------

    def _begin(self, source: str) -> None:
        self._active.append(source)
        self._relation(source, OWN).seen = self._own[-1].number if self._own else 0
        self._judge()

    def _relation(self, source: str, other: str) -> Relation:
        key = (source, other) if other == OWN else (min(source, other), max(source, other))
        relation = self._relations.get(key)
        if relation is None:
            relation = Relation(*key, number=len(self._relations) + 1)
            self._relations[key] = relation
        return relation

    def _others(self, source: str) -> list[Relation]:
        return [
            relation
            for key, relation in self._relations.items()
            if source in key and key[1] != OWN and set(key) <= set(self._active)
        ]

    def _judge(self) -> None:
        """Say again which sources are parted: by own labels or, without them, by the others."""
        before, self._parted = self._parted, {}
        for source in self._active:
            own, others = self._relations[source, OWN], self._others(source)
            against = sum(other.differs for other in others)
            if own.differs:
                self._parted[source] = f"its labels of {_listed(own)} differ from the site's own"
            elif own.pairs < ENOUGH_PAIRS and 2 * against > len(self._active) - 1:
                self._parted[source] = (
                    f"its labels differ from those of {against} of {len(self._active) - 1} others"
                )
        turned = [name for name in self._active if (name in before) != (name in self._parted)]
        self.turned += [self._state(name) for name in turned]
        if self._change_test is not None:
            for source in turned:
                self._change_test.drop(source)

    # -- commits --------------------------------------------------------------------------------

    def changes(self) -> list[RelationLine | OwnLabel]:
        """Return the relations that changed since the last call, and own labels since then."""
        changed, self._changed = self._changed, {}
        labels, self._unwritten = self._unwritten[-PERIOD:], []
        lines = [
            RelationLine(*key, msgspec.json.encode(item).decode()) for key, item in changed.items()
        ]
        tested = [] if self._change_test is None else self._change_test.changes()
        return [*lines, *labels, *tested]

    def load(self, lines: Iterable[RelationLine], labels: Iterable[OwnLabel] = ()) -> None:
        """Continue from stored relations and own labels."""
        self._own.extend(sorted(labels, key=lambda label: label.number))
        relations = []
        for line in lines:
            if line.source != OWN:
                relations.append(RELATION.decode(line.state))
            elif self._change_test is not None:
                self._change_test.load(line.other, line.state)
        for relation in sorted(relations, key=lambda relation: relation.number):
            self._relations[relation.first, relation.second] = relation
        self.use_sources(self._sources)
        self.turned = []


def _listed(relation: Relation) -> str:
    return ", ".join(map(repr, relation.functions))
