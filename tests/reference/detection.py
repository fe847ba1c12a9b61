"""What the oracle of the default policy tests: falls of accuracies, errors in runs, one cell."""

import math
from dataclasses import dataclass, field

WHOLE = 2**20  # of fixed-point numbers
LEAST_BELIEF = 0.02
BLOCK = 32
REMEMBERED, LONGEST = 0.75, 64  # of a deviation a slot later, and slots until it is forgotten


def whole(value: float) -> int:
    """Return the nearest whole number; negative ones are rounded towards 0."""
    return int(value + 0.5)


@dataclass
class Detector:
    """Two sums of log-likelihood ratios against lower accuracies than what is believed."""

    margin: float
    large: int = 0
    small: int = 0
    labels: int = 0
    last_limit: int = 0
    errors: list[tuple[int, int]] = field(default_factory=list)  # of the block, and variances
    ratios: list[int] = field(default_factory=list)  # of the blocks that are full

    def restart(self) -> None:
        """Begin anew; the dependence of errors stays known."""
        self.large = self.small = self.labels = 0
        self.errors = []

    @property
    def dependence(self) -> float:
        """Return the variance of sums of errors to that of independent ones; as if 2 in 8 more."""
        return max(1.0, (2.0 * 8 + sum(self.ratios) / WHOLE) / (8 + len(self.ratios)))

    @property
    def limit(self) -> int:
        """Return the threshold, which grows when the number of labels has doubled."""
        until = 2
        while self.labels > until:
            until = 2 * until + 2
        return whole((self.margin + math.log(until)) * WHOLE)

    def is_fall(self, believed: float, share: float) -> bool:
        """Take in a label, the share that it gained; return whether it raises an alarm."""
        believed = min(1.0 - LEAST_BELIEF, max(LEAST_BELIEF, believed))
        unit = WHOLE / self.dependence
        self.large = max(0, self.large + whole(ratio(0.5, believed, share) * unit))
        self.small = max(0, self.small + whole(ratio(0.85, believed, share) * unit))
        self.labels += 1
        self.last_limit = self.limit
        if max(self.large, self.small) > self.last_limit:
            return True
        variance = whole(believed * (1.0 - believed) * WHOLE)
        self.errors.append((whole((share - believed) * WHOLE), variance))
        if len(self.errors) == BLOCK:
            error, variance = (sum(one) for one in zip(*self.errors, strict=True))
            self.ratios.append(whole(float(error) * float(error) / variance))
            self.errors = []
        return False


@dataclass
class Moods:
    """What the latest deviations of labels from what was believed say of the next labels."""

    # Per arm: slots and deviations; None: those before are forgotten.
    deviations: dict[int, list[tuple[int, float | None]]] = field(default_factory=dict)
    products: int = 0  # sums of the regression of deviations on what is left of earlier ones
    squares: int = 0
    residuals: int = 0
    labels: int = 0

    def left(self, arm: int, slot: int) -> float:
        """Return what is left at a slot of the deviations of an arm."""
        kept, latest = 0, 0
        for then, error in self.deviations.get(arm, []):
            kept = 0 if error is None else whole((faded(kept, then - latest) + error) * WHOLE)
            latest = max(then, latest)
        return faded(kept, slot - latest)

    def note(self, arm: int, error: float, slot: int) -> float:
        """Take in a deviation; return the one that was expected."""
        left = self.left(arm, slot)
        expected = self.slope * left
        self.products += whole(left * error * WHOLE)
        self.squares += whole(left * left * WHOLE)
        self.residuals += whole(error * error * WHOLE)
        self.labels += 1
        self.deviations.setdefault(arm, []).append((slot, error))
        return expected

    def note_next(self, function: int, error: float) -> float:
        """Do the same for labels whose slots are not known: each is one later than the last."""
        seen = self.deviations.get(function, [(0, None)])
        return self.note(function, error, seen[-1][0] + 1)

    def forget(self, end: int, first: int = 0) -> None:
        for arm, seen in self.deviations.items():
            if first <= arm < end:
                seen[:] = [(max(slot for slot, _ in seen), None)]

    @property
    def slope(self) -> float:
        """Return the slope of the regression less three standard deviations, at least 0."""
        if self.squares <= 0:
            return 0.0
        squares = self.squares / WHOLE
        variance = self.residuals / WHOLE / self.labels
        return max(0.0, self.products / WHOLE / squares - 3.0 * math.sqrt(variance / squares))


@dataclass
class Contest:
    """Whether one cell for all contexts predicts labels better than the tree."""

    margin: float
    lead: int = 0  # of one cell
    labels: int = 0
    uses_one_cell: bool = False

    def note(self, fine: float, plain: float, share: float) -> None:
        """Take in a label, the share that it gained, and what both predicted."""
        self.labels += 1
        fine, plain = (min(1.0 - LEAST_BELIEF, max(LEAST_BELIEF, one)) for one in (fine, plain))
        right = share * math.log(plain / fine) if share > 0 else 0.0
        wrong = (1.0 - share) * math.log((1.0 - plain) / (1.0 - fine)) if share < 1 else 0.0
        limit = whole((self.margin + math.log(1.0 + self.labels)) * WHOLE)
        self.lead = min(limit, max(-limit, self.lead + whole((right + wrong) * WHOLE)))
        self.uses_one_cell = self.lead >= 0 if self.uses_one_cell else self.lead == limit

    def restart(self) -> None:
        """Begin with the tree again."""
        self.lead, self.uses_one_cell = 0, False


def faded(kept: int, age: int) -> float:
    return kept * REMEMBERED ** max(0, age) / WHOLE if age < LONGEST else 0.0


def ratio(fall: float, believed: float, share: float) -> float:
    """Return the log-likelihood of a label after a fall, less that of what is believed."""
    right = share * math.log(fall) if share > 0 else 0.0
    if share >= 1:
        return right
    return right + (1.0 - share) * math.log((1.0 - fall * believed) / (1.0 - believed))
