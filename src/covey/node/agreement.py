"""Whether two sources of labels agree on functions: tests that may be read after every label.

A label says whether a function was right. Labels of two sources are compared in pairs: of the same
function, in the same region of the context space, and of the same period. Each pair has a
difference between -1 and 1. A test bets on these differences: its capital is an e-process, so it
reaches 1 / level with at most the probability `level`, however often it is read. One pair of tests
shows that sources differ by more than `TOLERANCE`; another one, after that, that they differ by
less than `CLEARLY`. `docs/operations/trust.md` has the derivation, and what the tests cannot see.
"""

from collections.abc import Sequence

import msgspec

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
            region = next((one for one in regions if one in other.regions), None)
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
        return all(self.wide.get(one, nothing).both >= 1.0 / self.level for one in needed)

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
                name for name, one in capital.items() if one >= min(most, SUSPECT)
            )
        self.differs = not self.differs
        self.since = slot
        self.new_pairs = 0
        self.wide, self.narrow = {}, {}
