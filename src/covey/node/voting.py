"""Ensembles of sites: all learners vote on an instance, and labels change their weights."""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from covey.bandit.ensemble import ABSTAINED, Ensemble, EnsembleState, Weighing
from covey.bandit.learner import RIGHT, WRONG, Learner, Settlement
from covey.errors import ConfigError, ConflictingLabel, FunctionError, UnknownTicket
from covey.node.requests import Prediction
from covey.types import Context, Label


class ClassCodes:
    """Labels as the codes of an ensemble: the base class is 0, others follow as they appear."""

    def __init__(self, classes: Sequence[Label]) -> None:
        self.classes = list(classes)
        self._codes = {label: code for code, label in enumerate(self.classes)}

    def code(self, label: Any) -> int:
        """Return the code of a label; a new one gets the next."""
        code = self._codes.get(label)
        if code is None:
            code = self._codes[label] = len(self.classes)
            self.classes.append(label)
        return code


def classes_of(settings: Weighing, declared: Sequence[Label] | None) -> list[Label]:
    """Return the known classes of an ensemble, the base class first.

    `declared` are those that all functions can answer, if they say so.
    """
    base = settings.base
    if base is None and not declared:
        raise ConfigError(
            "[ensemble] needs base, the base class, as the functions do not declare their classes; "
            'write it like base = "normal"'
        )
    others = [label for label in declared or () if base is None or label != base]
    return others if base is None else [base, *others]


class Vote(msgspec.Struct, frozen=True):
    """The label of an ensemble, and the ticket under which its true label is to be reported."""

    label: Label
    ticket: int
    votes: dict[str, Label]  # by learner


class Voter(Protocol):
    """A site of the same process that votes."""

    @property
    def learner(self) -> Learner:
        """Its judgement."""

    def predict(
        self, instance: Any, context: Context | None = None, *, slot: int | None = None
    ) -> Prediction: ...

    def learn(self, ticket: int, label: Label) -> Settlement: ...

    def cell_of(self, ticket: int) -> str:
        """Return the name of the cell that decided."""


class KeptWeights(msgspec.Struct):
    """What is stored of an ensemble."""

    members: list[str]
    classes: list[Any]
    draws: int
    cells: dict[str, tuple[list[float], int, list[float]]]  # weights, labels, losses; "": all cells


def kept_weights(ensemble: Ensemble, known: ClassCodes) -> KeptWeights:
    """Return the weights of an ensemble as they are stored."""
    cells = {
        str(cell or ""): (list(one.weights), one.labels, list(one.losses))
        for cell, one in ensemble.standings().items()
    }
    return KeptWeights(list(ensemble.learners), known.classes, ensemble.draws, cells)


def restore_weights(ensemble: Ensemble, kept: KeptWeights) -> None:
    """Let an ensemble continue from what was stored."""
    cells: dict[Hashable, EnsembleState] = {
        cell or None: EnsembleState(tuple(weights), labels, tuple(losses))
        for cell, (weights, labels, losses) in kept.cells.items()
    }
    ensemble.restore(cells, kept.draws)


class Ballot(msgspec.Struct):
    """The votes on an instance, and its label; None: it has not arrived."""

    codes: list[int]
    cell: str | None
    answer: int
    tickets: dict[str, int]  # of the learners
    truth: Any = None


class Votes(msgspec.Struct):
    """What an ensemble in one process continues from."""

    weights: KeptWeights
    ballots: dict[int, Ballot]  # by ticket
    latest: int  # ticket


class LocalEnsemble:
    """The learners of a network that vote on every instance; each decides by itself."""

    def __init__(
        self,
        sites: Mapping[str, Voter],
        settings: Weighing,
        *,
        classes: Sequence[Label] | None = None,
        label_wait: int,
        lock: AbstractContextManager[Any],
    ) -> None:
        """`classes` are those that the functions declare, if they do; `lock` is the network's."""
        self._lock = lock
        self._sites = dict(sites)
        self._known = ClassCodes(classes_of(settings, classes))
        self._is_local = settings.weights == "cell"
        options = msgspec.to_builtins(msgspec.structs.replace(settings, base=None))
        self._ensemble = Ensemble(list(sites), **options)
        self._label_wait = label_wait
        self._ballots: dict[int, Ballot] = {}
        self._latest = 0

    def saved(self) -> Votes:
        """Return what another one continues from."""
        weights = kept_weights(self._ensemble, self._known)
        weights.classes = list(weights.classes)
        ballots = {ticket: msgspec.structs.replace(one) for ticket, one in self._ballots.items()}
        return Votes(weights, ballots, self._latest)

    def restore(self, votes: Votes) -> None:
        """Continue from an earlier one with the same learners."""
        self._known = ClassCodes(votes.weights.classes)
        restore_weights(self._ensemble, votes.weights)
        self._ballots, self._latest = dict(votes.ballots), votes.latest

    @property
    def members(self) -> tuple[str, ...]:
        """The learners that vote."""
        return self._ensemble.learners

    def weights(self, cell: str | None = None) -> dict[str, float]:
        """Return the weight of every learner, in `cell` if weights are per cell."""
        return self._ensemble.weights(cell)

    def predict(
        self,
        instance: Any,
        context: Context | Mapping[str, Context] | None = None,
        *,
        slot: int | None = None,
    ) -> Vote:
        """Let every learner answer, and return the label that their weighted vote gives.

        `context` is that of all learners, or has one for each by name; without it, it is made of
        the record `instance`. A learner whose function
        fails does not vote; `FunctionError` is raised if none is left.
        """
        with self._lock:
            return self._predict(instance, context, slot)

    def _predict(
        self, instance: Any, context: Context | Mapping[str, Context] | None, slot: int | None
    ) -> Vote:
        tickets: dict[str, int] = {}
        votes: dict[str, Label] = {}
        failure: FunctionError | None = None
        for name, site in self._sites.items():
            point = context[name] if isinstance(context, Mapping) else context
            try:
                answer = site.predict(instance, point, slot=slot)
            except FunctionError as error:
                failure = error
                continue
            tickets[name], votes[name] = answer.ticket, answer.label
        if failure is not None and not votes:
            raise failure
        codes = [
            self._known.code(votes[name]) if name in votes else ABSTAINED for name in self._sites
        ]
        cell = None
        if self._is_local:
            first = next(iter(tickets))
            cell = self._sites[first].cell_of(tickets[first])
        winner = self._ensemble.elect(codes, cell)
        self._latest += 1
        self._ballots.pop(self._latest - self._label_wait - 1, None)
        self._ballots[self._latest] = Ballot(codes, cell, winner, tickets)
        return Vote(self._known.classes[winner], self._latest, votes)

    def learn(self, ticket: int, label: Label) -> Settlement:
        """Let every learner that voted learn the true label, then change the weights.

        The same label again has no effect. Raises as `LocalSite.learn` does.
        """
        with self._lock:
            return self._learn(ticket, label)

    def _learn(self, ticket: int, label: Label) -> Settlement:
        ballot = self._ballots.get(ticket)
        if ballot is None:
            raise UnknownTicket(
                f"unknown ticket {ticket!r} of the ensemble: it was never issued, or its label "
                f"was due within {self._label_wait} slots"
            )
        is_right = bool(self._known.classes[ballot.answer] == label)
        if ballot.truth is not None:
            if ballot.truth != label:
                raise ConflictingLabel(
                    f"ticket {ticket} of the ensemble has the label {ballot.truth!r}; the "
                    f"conflicting label {label!r} was rejected"
                )
            return Settlement(False, is_right)
        for name, own in ballot.tickets.items():
            if self._sites[name].learner.is_supervised:
                self._sites[name].learn(own, label)
        self._ensemble.move(ballot.codes, self._known.code(label), ballot.cell)
        ballot.truth = label
        return RIGHT if is_right else WRONG
