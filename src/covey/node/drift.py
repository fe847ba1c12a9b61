"""Whether labels of several sources show that functions have changed: read after every label.

Each source, the site included, is compared with its own past: per function and region, how often
the function was right. A test multiplies, label by label, the likelihood by what all sources said
lately over that by the past; so it is an e-process of this source. The largest of them are left
out: sources that lie cannot show a change as long as they are fewer than half.
`docs/operations/trust.md` has the derivation, and what the test cannot see.
"""

from collections.abc import Collection
from math import exp, log

import msgspec

from covey.node.agreement import share
from covey.node.requests import OWN, RelationLine

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
            self._pasts = {one: SourcePast() for one in self._pasts}
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
            known = past.evidence
            past.evidence = {one: known.get(one, 0.0) + evidence for one in self._starts()}
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
        before, after = (min(1.0 - LEAST, max(LEAST, one)) for one in (before, after))
        return gain * log(after / before) + (1.0 - gain) * log((1.0 - after) / (1.0 - before))

    def _is_shown(self, pooled: Collection[str]) -> bool:
        """Return whether the capital of all starts is large, without the largest of sources."""
        known = [self._pasts[one].evidence for one in pooled if one in self._pasts]
        kept = len(known) - max(1, (len(known) - 1) // 2)
        own = self._common.own.evidence
        capital = 0.0
        for start in self._starts():
            least = sorted([one.get(start, 0.0) for one in known])[:kept]
            capital += share(start) * exp(min(MOST_EVIDENCE, own.get(start, 0.0) + sum(least)))
        return capital >= 1.0 / CHANGE_LEVEL

    # -- commits --------------------------------------------------------------------------------

    def changes(self) -> list[RelationLine]:
        """Return what has changed since the last call, as it is stored."""
        changed, self._changed = sorted(self._changed), set()
        parts = [(one, self._pasts[one] if one else self._common) for one in changed]
        return [(OWN, one, msgspec.json.encode(part).decode()) for one, part in parts]

    def load(self, source: str, state: str) -> None:
        """Continue from what is stored of a source."""
        if source == OWN:
            self._common = COMMON.decode(state)
            self._pasts[OWN] = self._common.own
        else:
            self._pasts[source] = PAST.decode(state)
