"""Ensembles: learners vote, and their weights are updated as labels come."""

import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from covey import toml
from covey.bandit.learner import LABEL_WAIT_SLOTS, RIGHT, WRONG, Settlement
from covey.errors import ConfigError, ConflictingLabel, DataError, UnknownTicket
from covey.types import Label

ABSTAINED = -1  # the code of a learner that does not vote


class EnsembleState(NamedTuple):
    """State of an ensemble's weights, in one cell or global."""

    weights: tuple[float, ...]  # one per learner
    labels: int  # number of labels applied
    losses: tuple[float, ...]  # one per learner, in mistakes


class Update(Protocol):
    """Update rule of the weights of an ensemble."""

    @property
    def name(self) -> str: ...

    @property
    def threshold(self) -> float | None:
        """Return the weight a class needs to win; None: at least the weight of the base class."""

    @property
    def is_share(self) -> bool:
        """Whether the weights are non-negative and sum to 1."""

    def move(self, standing: EnsembleState, votes: Sequence[int], label: int) -> EnsembleState:
        """Return the state after a label for these votes; 0 is the base class."""


class Gradient(msgspec.Struct, frozen=True):
    """Stochastic gradient descent on the squared error of the weighted votes.

    With `decay` the step of the t-th label is `step / t`.
    """

    name: ClassVar[str] = "gradient"
    threshold: ClassVar[float | None] = 0.5
    is_share: ClassVar[bool] = False

    step: float = 0.01
    decay: bool = False

    def move(self, standing: EnsembleState, votes: Sequence[int], label: int) -> EnsembleState:
        labels = standing.labels + 1
        step = self.step / labels if self.decay else self.step
        sums = sums_of(standing.weights, votes)
        # Votes for the base class change no weight, nor do learners without a vote.
        weights = [
            weight + step * ((vote == label) - sums[vote]) if vote > 0 else weight
            for weight, vote in zip(standing.weights, votes, strict=True)
        ]
        return EnsembleState(tuple(weights), labels, standing.losses)


class Majority(msgspec.Struct, frozen=True):
    """Weighted majority: every mistake multiplies a weight by `beta`."""

    name: ClassVar[str] = "majority"
    threshold: ClassVar[float | None] = None
    is_share: ClassVar[bool] = True

    beta: float = 0.5

    def move(self, standing: EnsembleState, votes: Sequence[int], label: int) -> EnsembleState:
        losses = _losses(standing, votes, label)
        least = min(losses)  # with differences of losses, weights cannot all underflow
        weights = _shares([self.beta ** (loss - least) for loss in losses])
        return EnsembleState(weights, standing.labels + 1, losses)


class Hedge(msgspec.Struct, frozen=True):
    """Exponential weights: w ~ exp(-rate * mistakes); the default rate decreases over time."""

    name: ClassVar[str] = "hedge"
    threshold: ClassVar[float | None] = None
    is_share: ClassVar[bool] = True

    rate: float | None = None

    def move(self, standing: EnsembleState, votes: Sequence[int], label: int) -> EnsembleState:
        losses = _losses(standing, votes, label)
        labels = standing.labels + 1
        rate = _rate(self.rate, labels + 1, len(losses))  # of the next slot
        return EnsembleState(_exponential(losses, rate), labels, losses)

    def bound(self, slots: float, *, learners: int) -> float:
        """Return a bound on the expected mistakes beyond those of the best learner.

        It holds for sampled answers and any votes and labels, if every label arrives before the
        next answer.
        """
        spread = math.log(learners)
        if self.rate is not None:
            return spread / self.rate + self.rate * slots / 8
        return 2 * math.sqrt(slots / 2 * spread) + math.sqrt(spread / 8)


class FixedShare(msgspec.Struct, frozen=True):
    """Hedge that redistributes `share` of the total weight evenly after every label.

    The new weights are converted back to losses.
    """

    name: ClassVar[str] = "fixed-share"
    threshold: ClassVar[float | None] = None
    is_share: ClassVar[bool] = True

    share: float = 0.01
    rate: float | None = None

    def move(self, standing: EnsembleState, votes: Sequence[int], label: int) -> EnsembleState:
        losses = _losses(standing, votes, label)
        labels = standing.labels + 1
        rate = _rate(self.rate, labels + 1, len(losses))
        even = self.share / len(losses)
        weights = [(1 - self.share) * weight + even for weight in _exponential(losses, rate)]
        if rate > 0:
            most = max(weights)
            losses = tuple([math.log(most / weight) / rate for weight in weights])
        return EnsembleState(tuple(weights), labels, losses)


def sums_of(weights: Sequence[float], votes: Sequence[int]) -> dict[int, float]:
    """Return the total weight of the votes per class."""
    sums: dict[int, float] = {}
    for weight, vote in zip(weights, votes, strict=True):
        if vote != ABSTAINED:
            sums[vote] = sums.get(vote, 0.0) + weight
    return sums


def _losses(standing: EnsembleState, votes: Sequence[int], label: int) -> tuple[float, ...]:
    pairs = zip(standing.losses, votes, strict=True)
    return tuple([loss + (vote not in (label, ABSTAINED)) for loss, vote in pairs])


def _rate(given: float | None, slot: int, learners: int) -> float:
    return math.sqrt(8 * math.log(learners) / slot) if given is None else given


def _exponential(losses: Sequence[float], rate: float) -> tuple[float, ...]:
    least = min(losses)
    return _shares([math.exp(-rate * (loss - least)) for loss in losses])


def _shares(weights: Sequence[float]) -> tuple[float, ...]:
    total = sum(weights)
    return tuple([weight / total for weight in weights])


class Weighing(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The `[ensemble]` table."""

    weights: Literal["global", "cell"] = "global"
    update: Literal["gradient", "majority", "hedge", "fixed-share"] = "gradient"
    predict: Literal["vote", "sample"] = "vote"
    seed: int = 0
    base: str | int | float | None = None  # None: the first class, in a replay the first label
    step: float = 0.01
    decay: bool = False
    beta: float = 0.5
    rate: float | None = None  # None: sqrt(8 ln M / t)
    share: float = 0.01

    @property
    def title(self) -> str:
        """One-line description."""
        kind = "weights per cell" if self.weights == "cell" else "global weights"
        return f"{self.update}, {kind}, by {self.predict}"


class Ensemble:
    """Combines the votes of several learners into one label; learns from true labels.

    `classes` are all labels, the base class first; without them, votes and labels are codes 0, 1,
    2, ... Other keywords are the keys of the `[ensemble]` table, such as `update`, `weights` and
    `predict`; `rule` is a custom update rule that replaces `update`.

    >>> ensemble = Ensemble(["north", "south"], classes=["normal", "attack"], update="majority")
    >>> label, ticket = ensemble.vote(["attack", "normal"])
    >>> label
    'attack'
    >>> ensemble.learn(ticket, "normal").is_right
    False
    >>> {name: round(weight, 3) for name, weight in ensemble.weights().items()}
    {'north': 0.333, 'south': 0.667}
    """

    def __init__(
        self,
        learners: Sequence[str],
        *,
        classes: Sequence[Label] | None = None,
        rule: Update | None = None,
        label_wait: int = LABEL_WAIT_SLOTS,
        **settings: Any,
    ) -> None:
        chosen = weighing_from(settings, rule=rule)
        self.learners = _checked_members(learners)
        if label_wait < 0:
            raise ConfigError(f"label_wait is {label_wait} slots; it must be 0 or more")
        self.label_wait = label_wait  # slots
        self.rule = UPDATES[chosen.update](chosen) if rule is None else rule
        self._is_local = chosen.weights == "cell"
        self._is_drawn = chosen.predict == "sample"
        self._classes = _ordered(classes, chosen.base)
        self._codes = {label: code for code, label in enumerate(self._classes)}
        count = len(self.learners)
        self._start = EnsembleState((1 / count,) * count, 0, (0,) * count)
        self._standings: dict[Hashable, EnsembleState] = {}
        self._rng = np.random.Generator(np.random.PCG64(chosen.seed))
        self.draws = 0  # how many there were
        self._tickets: dict[int, _Ballot] = {}
        self._slot = 0

    @property
    def open_tickets(self) -> int:
        """Number of pending labels."""
        return sum(ballot.truth is None for ballot in self._tickets.values())

    def vote(self, votes: Sequence[Label], *, cell: Hashable = None) -> tuple[Label, int]:
        """Return the label for `votes`, one per learner, and the ticket for its true label.

        `cell` is the cell of the context; only weights per cell use it.
        """
        codes = self._read_votes(votes)
        code = self.elect(codes, cell)
        self._slot += 1
        self._tickets.pop(self._slot - self.label_wait - 1, None)
        self._tickets[self._slot] = _Ballot(codes, self._key(cell), code)
        return self._label(code), self._slot

    def learn(self, ticket: int, label: Label) -> Settlement:
        """Update the weights with the true label of a ticket.

        Raises `UnknownTicket` if the ticket was never issued or has expired, `ConflictingLabel` if
        another label was settled before, `ConfigError` if a weight would become invalid; the
        weights are then unchanged. A repeated label has no effect; the settlement shows this.
        """
        ballot = self._tickets.get(ticket)
        if ballot is None:
            raise self._unknown(ticket)
        code = self._read(label, "the label")
        if ballot.truth is None:
            self.move(ballot.votes, code, ballot.cell)
            ballot.truth = code
            return RIGHT if ballot.code == code else WRONG
        if ballot.truth != code:
            raise ConflictingLabel(
                f"ticket {ticket} of the ensemble was settled with {self._label(ballot.truth)!r}; "
                f"label {label!r} rejected"
            )
        return Settlement(False, ballot.code == code)

    def weights(self, cell: Hashable = None) -> dict[str, float]:
        """Return the weight of every learner, in `cell` if weights are per cell."""
        return dict(zip(self.learners, self._standing(cell).weights, strict=True))

    def elect(self, codes: Sequence[int], cell: Hashable = None) -> int:
        """Return the winning code of votes given as codes; no ticket is issued."""
        weights = self._standing(cell).weights
        if self._is_drawn:
            self.draws += 1
            return codes[_drawn(weights, codes, self._rng.random())]
        threshold = self.rule.threshold
        if threshold is not None and ABSTAINED in codes:  # of the weight of those that vote
            total = sum(weights)
            cast = sum(w for w, code in zip(weights, codes, strict=True) if code != ABSTAINED)
            threshold *= cast / total if total > 0 else 1.0
        return winner(weights, codes, threshold)

    def move(self, codes: Sequence[int], label: int, cell: Hashable = None) -> None:
        """Update the weights with a label code, without a ticket.

        Raises `ConfigError` if a weight would become non-finite, or all of them zero.
        """
        before = self._standing(cell)
        after = self.rule.move(before, codes, label)
        self._check_weights(before.weights, after.weights)
        self._standings[self._key(cell)] = after

    def standings(self) -> dict[Hashable, EnsembleState]:
        """Return the state of the weights by cell; None stands for all cells."""
        return self._standings

    def restore(self, standings: Mapping[Hashable, EnsembleState], draws: int) -> None:
        """Continue from earlier `standings`, after so many draws."""
        self._standings = dict(standings)
        self._rng.bit_generator.advance(draws - self.draws)  # type: ignore[attr-defined]
        self.draws = draws

    def _standing(self, cell: Hashable) -> EnsembleState:
        return self._standings.get(self._key(cell), self._start)

    def _key(self, cell: Hashable) -> Hashable:
        if not self._is_local:
            return None
        if cell is None:
            raise DataError('weights = "cell" needs a cell; pass cell=')
        return cell

    def _check_weights(self, before: Sequence[float], after: Sequence[float]) -> None:
        total = sum(after)
        if total and math.isfinite(total):
            return
        is_any_left = any(after)
        if is_any_left and all(map(math.isfinite, after)):
            return
        lost = [not math.isfinite(weight) for weight in after] if is_any_left else list(before)
        place = next(place for place, is_lost in enumerate(lost) if is_lost)
        raise ConfigError(
            f"the update rule {self.rule.name!r} would give learner {self.learners[place]!r} the "
            f"weight {after[place]}{'' if is_any_left else ', like all others'}; the "
            "weights are unchanged (use a smaller step, or another rule)"
        )

    def _read_votes(self, votes: Sequence[Label]) -> tuple[int, ...]:
        if len(votes) != len(self.learners):
            raise DataError(
                f"{len(votes)} votes for {len(self.learners)} learners; pass one for "
                f"each of {', '.join(self.learners)}, in this order"
            )
        pairs = zip(self.learners, votes, strict=True)
        return tuple(self._read(vote, f"the vote of {learner!r}") for learner, vote in pairs)

    def _read(self, label: Any, what: str) -> int:
        try:
            code = self._codes.get(label, -1) if self._codes else operator.index(label)
        except TypeError:
            code = -1
        if code < 0:
            known = ", ".join(map(repr, self._classes)) or "integers from 0"
            raise DataError(f"{what} is {label!r}, which is not one of the classes: {known}")
        return code

    def _label(self, code: int) -> Label:
        return self._classes[code] if self._classes else code

    def _unknown(self, ticket: object) -> UnknownTicket:
        why = "it was never issued"
        if isinstance(ticket, int) and 0 < ticket <= self._slot:
            why = f"its label was due within {self.label_wait} slots"
        return UnknownTicket(f"unknown ticket {ticket!r} of the ensemble: {why}")


def weighing_from(table: Mapping[str, Any], *, rule: Update | None = None) -> Weighing:
    """Return the settings of an `[ensemble]` table.

    Raises `ConfigError` for an unknown key, a wrong type, a value out of range, or a key that the
    update rule does not have.
    """
    settings = toml.read(table, Weighing, where="[ensemble]")
    chosen = UPDATES[settings.update](settings) if rule is None else rule
    for key, (updates, is_fine, wanted) in _OPTIONS.items():
        value = getattr(settings, key)
        if key in table and chosen.name not in updates:
            owners = " or ".join(f'"{update}"' for update in updates)
            raise ConfigError(
                f'[ensemble] {key} needs update = {owners}, but update is "{chosen.name}"'
            )
        if value is not None and not is_fine(value):
            raise ConfigError(f"[ensemble] {key} is {value}; it must {wanted}")
    if not 0 <= settings.seed <= 2**40:
        raise ConfigError(f"[ensemble] seed is {settings.seed}; it must lie from 0 to {2**40}")
    if settings.predict == "sample" and not chosen.is_share:
        raise ConfigError(
            f'[ensemble] predict = "sample" needs weights that sum to 1, unlike update = '
            f'"{chosen.name}"; use predict = "vote", or another update'
        )
    return settings


def winner(weights: Sequence[float], votes: Sequence[int], threshold: float | None) -> int:
    """Return the class with the most weight.

    The base class wins if no other reaches `threshold` (None: the weight of the base class).
    """
    sums = sums_of(weights, votes)
    best, most = 0, -math.inf
    for code, weight in sums.items():
        if code and (weight > most or (weight == most and code < best)):
            best, most = code, weight
    return best if most >= (sums.get(0, 0.0) if threshold is None else threshold) else 0


UPDATES: dict[str, Callable[[Weighing], Update]] = {
    "gradient": lambda settings: Gradient(settings.step, settings.decay),
    "majority": lambda settings: Majority(settings.beta),
    "hedge": lambda settings: Hedge(settings.rate),
    "fixed-share": lambda settings: FixedShare(settings.share, settings.rate),
}

_RATED = ("hedge", "fixed-share")
# Key -> the updates that have it, a check of the value, and the check as text.
_OPTIONS: dict[str, tuple[tuple[str, ...], Callable[[float], bool], str]] = {
    "step": (("gradient",), lambda step: 0 < step < math.inf, "be above 0 and finite"),
    "decay": (("gradient",), lambda decay: True, ""),
    "beta": (("majority",), lambda beta: 0 < beta < 1, "lie between 0 and 1"),
    "rate": (_RATED, lambda rate: 1e-9 <= rate <= 1e9, "lie from 1e-9 to 1e9"),
    "share": (("fixed-share",), lambda share: 1e-12 <= share < 1, "lie from 1e-12 to below 1"),
}


class _Ballot(msgspec.Struct):
    votes: tuple[int, ...]
    cell: Hashable
    code: int  # of the label that was answered
    truth: int | None = None


def _drawn(weights: Sequence[float], codes: Sequence[int], chance: float) -> int:
    """Return the index at which the cumulative sum of `weights` exceeds `chance`.

    Learners without a vote are left out.
    """
    places = [place for place, code in enumerate(codes) if code != ABSTAINED]
    if len(places) < len(weights):
        chance *= sum(weights[place] for place in places)
    for place in places:
        chance -= weights[place]
        if chance < 0:
            return place
    # The sum can fall short of `chance` by rounding.
    return max(places, key=weights.__getitem__)


def _checked_members(learners: Sequence[str]) -> tuple[str, ...]:
    if not learners:
        raise ConfigError("an ensemble needs at least one learner")
    for k, learner in enumerate(learners):
        if learner in learners[:k]:
            raise ConfigError(f"duplicate learner name {learner!r}")
    return tuple(learners)


def _ordered(classes: Sequence[Label] | None, base: Label) -> tuple[Label, ...]:
    """Return the classes, the base class first; empty if labels are codes."""
    if classes is None and base is not None:
        raise ConfigError(f"base is {base!r}, but no classes are given; pass classes")
    ordered = [*classes] if classes is not None else []
    try:
        is_fine = classes is None or len(set(ordered)) == len(ordered) > 1
    except TypeError:
        is_fine = False
    if not is_fine:
        raise ConfigError(f"the classes are {ordered}; they must be two or more different labels")
    if base is None:
        return tuple(ordered)
    if base not in ordered:
        hint = toml.nearest(str(base), map(str, ordered))
        raise ConfigError(f"base is {base!r}, which is not one of the classes{hint}")
    return (ordered.pop(ordered.index(base)), *ordered)
