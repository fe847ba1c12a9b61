"""Ensembles: learners vote, and their weights are updated as labels come."""

import math
import operator
from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from covey import toml
from covey.errors import ConfigError, DataError
from covey.types import Label

Cells = Hashable | Mapping[str, Hashable]  # of a context, or of each learner's own
ABSTAINED = -1  # the code of a learner that does not vote


class EnsembleState(NamedTuple):
    """State of an ensemble's weights: one number per learner, in its cell or global."""

    weights: tuple[float, ...]
    labels: tuple[int, ...]  # applied
    losses: tuple[float, ...]  # in mistakes


class Weighing(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The `[ensemble]` table."""

    weights: Literal["global", "cell"] = "global"
    update: Literal["gradient", "majority", "hedge"] = "gradient"
    base: str | int | float | None = None  # None: the first class, in a replay the first label
    step: Annotated[float, msgspec.Meta(gt=0, le=1e300)] = 0.01
    decay: bool = False
    beta: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    rate: Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)] | None = None  # None: sqrt(8 ln M / t)

    @property
    def title(self) -> str:
        kind = "weights per cell" if self.weights == "cell" else "global weights"
        return f"{self.update}, {kind}"

    @property
    def threshold(self) -> float | None:
        """The weight that a class needs to win; None: at least the weight of the base class."""
        return 0.5 if self.update == "gradient" else None

    def moved(self, state: EnsembleState, votes: Sequence[int], label: int) -> EnsembleState:
        """Return the state after a label for these votes; 0 is the base class."""
        labels = tuple([count + 1 for count in state.labels])
        if self.update == "gradient":
            return EnsembleState(self._descended(state, labels, votes, label), labels, state.losses)
        pairs = zip(state.losses, votes, strict=True)
        losses = tuple([loss + (vote not in (label, ABSTAINED)) for loss, vote in pairs])
        return EnsembleState(self.multiplied(labels, losses), labels, losses)

    def _descended(
        self, state: EnsembleState, labels: Sequence[int], votes: Sequence[int], label: int
    ) -> tuple[float, ...]:
        """Stochastic gradient descent on the squared error of the weighted votes."""
        sums = sums_of(state.weights, votes)
        # Votes for the base class change no weight, nor do learners without a vote.
        return tuple(
            [
                weight + (self.step / count if self.decay else self.step) * (is_right - sums[vote])
                if vote > 0
                else weight
                for weight, count, vote in zip(state.weights, labels, votes, strict=True)
                for is_right in (vote == label,)
            ]
        )

    def multiplied(self, labels: Sequence[int], losses: Sequence[float]) -> tuple[float, ...]:
        """Return the weights after so many labels and mistakes of each learner.

        Weighted majority: every mistake multiplies a weight by `beta`. Hedge: w ~ exp(-rate *
        mistakes), and the default rate decreases over time.
        """
        least = min(losses)  # with differences of losses, weights cannot all underflow
        if self.update == "majority":
            weights = [self.beta ** (loss - least) for loss in losses]
        else:
            # The default is the rate of the next slot.
            default = 8 * math.log(len(losses))
            rates = [self.rate or math.sqrt(default / (count + 1)) for count in labels]
            least *= len(set(rates)) == 1
            costs = [rate * (loss - least) for rate, loss in zip(rates, losses, strict=True)]
            weights = [math.exp(min(costs) - cost) for cost in costs]
        total = sum(weights)
        return tuple([weight / total for weight in weights])


_OWNERS = {"step": "gradient", "decay": "gradient", "beta": "majority", "rate": "hedge"}


def sums_of(weights: Sequence[float], votes: Sequence[int]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for weight, vote in zip(weights, votes, strict=True):
        if vote != ABSTAINED:
            sums[vote] = sums.get(vote, 0.0) + weight
    return sums


class Ensemble:
    """Combines the votes of several learners into one label; learns from true labels.

    `classes` are all labels, the base class first; without them, votes and labels are codes 0, 1,
    2, ... Other keywords are the keys of the `[ensemble]` table, such as `update` and `weights`.

    >>> ensemble = Ensemble(["north", "south"], classes=["normal", "attack"], update="majority")
    >>> ensemble.vote(["attack", "normal"])
    'attack'
    >>> ensemble.learn(["attack", "normal"], "normal")
    >>> {name: round(weight, 3) for name, weight in ensemble.weights().items()}
    {'north': 0.333, 'south': 0.667}
    """

    def __init__(
        self,
        learners: Sequence[str],
        *,
        classes: Sequence[Label] | None = None,
        **settings: Any,
    ) -> None:
        self.weighing = weighing_from(settings)
        if not learners:
            raise ConfigError("an ensemble needs at least one learner")
        for k, learner in enumerate(learners):
            if learner in learners[:k]:
                raise ConfigError(f"duplicate learner name {learner!r}")
        self.learners = tuple(learners)
        self._is_local = self.weighing.weights == "cell"
        self._classes = _ordered(classes, self.weighing.base)
        self._codes = {label: code for code, label in enumerate(self._classes)}
        count = len(self.learners)
        self._start = EnsembleState((1 / count,) * count, (0,) * count, (0,) * count)
        self._standings: dict[Hashable, EnsembleState] = {}

    def vote(self, votes: Sequence[Label], *, cell: Cells = None) -> Label:
        """Return the label for `votes`, one per learner.

        `cell` is the cell of the context, or has that of each learner's own context by name; only
        weights per cell use it.
        """
        code = self.elect(self._read_votes(votes), cell)
        return self._classes[code] if self._classes else code

    def learn(self, votes: Sequence[Label], label: Label, *, cell: Cells = None) -> None:
        """Update the weights with the true label of `votes`; `cell` is that of `vote`.

        Raises `ConfigError` if a weight would become invalid; the weights are then unchanged.
        """
        self.move(self._read_votes(votes), self._read(label, "the label"), cell)

    def weights(self, cell: Hashable = None) -> dict[str, float]:
        """Return the weight of every learner, in `cell` if weights are per cell."""
        return dict(zip(self.learners, self._standing(cell).weights, strict=True))

    def elect(self, codes: Sequence[int], cell: Cells = None) -> int:
        """Return the winning code of votes given as codes."""
        weights = self._standing(cell).weights
        threshold = self.weighing.threshold
        if threshold is not None and ABSTAINED in codes:  # of the weight of those that vote
            total = sum(weights)
            cast = sum(w for w, code in zip(weights, codes, strict=True) if code != ABSTAINED)
            threshold *= cast / total if total > 0 else 1.0
        return winner(weights, codes, threshold)

    def move(self, codes: Sequence[int], label: int, cell: Cells = None) -> None:
        """Update the weights with the label of votes, all given as codes.

        Raises `ConfigError` if a weight would become non-finite, or all of them zero.
        """
        before = self._standing(cell)
        after = self.weighing.moved(before, codes, label)
        self._check_weights(before.weights, after.weights)
        keys = self._keys(cell)
        if keys is None:
            self._standings[self._key(cell)] = after
            return
        for place, key in enumerate(keys):
            fields: Any = zip(self._standings.get(key, self._start), after, strict=True)
            self._standings[key] = self._weighed(
                *((*old[:place], new[place], *old[place + 1 :]) for old, new in fields)
            )

    def standings(self) -> dict[Hashable, EnsembleState]:
        """Return the state of the weights by cell; None stands for all cells."""
        return self._standings

    def restore(self, standings: Mapping[Hashable, EnsembleState]) -> None:
        """Continue from earlier `standings`."""
        self._standings = dict(standings)

    def _standing(self, cell: Cells) -> EnsembleState:
        keys = self._keys(cell)
        if keys is None:
            return self._standings.get(self._key(cell), self._start)
        fields: Any = zip(*(self._standings.get(key, self._start) for key in keys), strict=True)
        return self._weighed(
            *(tuple([own[place] for place, own in enumerate(field)]) for field in fields)
        )

    def _weighed(self, weights: Any, labels: Any, losses: Any) -> EnsembleState:
        if self.weighing.update != "gradient" and any(labels):
            weights = self.weighing.multiplied(labels, losses)
        return EnsembleState(weights, labels, losses)

    def _keys(self, cell: Cells) -> list[Hashable] | None:
        """Return the cell of each learner's own context; None: it is that of all."""
        is_own = self._is_local and isinstance(cell, Mapping)
        return [cell[learner] for learner in self.learners] if is_own else None  # type: ignore[index]

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
            f"the update rule {self.weighing.update!r} would give learner {self.learners[place]!r} "
            f"the weight {after[place]}{'' if is_any_left else ', like all others'}; the "
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
            wanted = ", ".join(map(repr, self._classes)) or "integers from 0"
            raise DataError(f"{what} is {label!r}, which is not one of the classes: {wanted}")
        return code


def weighing_from(table: Mapping[str, Any]) -> Weighing:
    """Return the settings of an `[ensemble]` table.

    Raises `ConfigError` for an unknown key, a wrong type, a value out of range, or a key that the
    update rule does not have.
    """
    settings = toml.read(table, Weighing, where="[ensemble]")
    for key, owner in _OWNERS.items():
        if key in table and settings.update != owner:
            raise ConfigError(
                f'[ensemble] {key} needs update = "{owner}", but update is "{settings.update}"'
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
