"""Ensembles: learners vote on an instance, and labels change their weights.

A served site votes with its peers, and stores the weights. Its own learner decides without peers,
and every peer is asked about every row; a peer that does not answer does not vote. A label teaches
the own learner, every voter, and then the weights.
"""

import contextlib
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from covey.bandit.ensemble import ABSTAINED, Ensemble, EnsembleState, Weighing
from covey.bandit.learner import Learner
from covey.config import LearnerTable
from covey.errors import ConfigError, PeerError
from covey.kernel import row_of
from covey.site.handler import Effects, rows_to_ask
from covey.site.requests import (
    CLIENT,
    Delivery,
    Draft,
    Request,
    SourceState,
)
from covey.types import Label

WEIGHTS = f"{CLIENT}/ensemble"  # the source under which weights are stored; no client is called so
ROW_ID = ""  # where votes have the id of the row at the voters


def voters_of(own: LearnerTable) -> list[str]:
    """Return the peers that vote with a site; raise `ConfigError` for what a vote cannot have."""
    priced = [peer for peer, price in (own.peers or {}).items() if price]
    for is_there, what in (
        (not own.peers, "no peers to vote with; list them, like peers = { south = 0.0 }"),
        (priced, f"a price for {', '.join(priced)} in peers, but all vote always; set it to 0"),
        (own.context_peers, "context-peers, which cannot vote; remove one of them"),
        (own.view, "[[learner.view]], but voters see whole instances; remove one of them"),
        (not own.supervised, "supervised = false, so no weight would change; remove one of them"),
    ):
        if is_there:
            raise ConfigError(f"learner {own.name!r} has [ensemble] and {what}")
    return list(own.peers or {})


class SiteEnsemble:
    """Answers the clients of a site by the vote of it and of its peers, whose weights it keeps."""

    def __init__(
        self,
        own: str,
        voters: Sequence[str],
        settings: Weighing,
        classes: Sequence[Label] | None = None,
    ) -> None:
        """`voters` are asked about every row; `classes` are the site's labels, if it knows them."""
        self._own = own
        self.voters = tuple(voters)
        self._is_local = settings.weights == "cell"
        self._first_classes = classes_of(settings, classes)
        self._options = msgspec.to_builtins(msgspec.structs.replace(settings, base=None))
        self._written: SourceState | None = None
        self.restore({})

    def weights(self) -> dict[str, dict[str, float]]:
        """Return the weights of voters by cell and learner; "" stands for all cells."""
        cells: Iterable[Any] = self._ensemble.standings() if self._is_local else [None]
        return {str(cell or ""): self._ensemble.weights(cell) for cell in cells}

    # -- requests and their labels --------------------------------------------------------------

    async def vote(
        self, draft: Draft, own: Awaitable[list[Any]], effects: Effects, learner: Learner
    ) -> list[Any]:
        """Ask all voters while the site answers rows itself; return the labels that win."""
        count = len(draft.codes)
        asked = rows_to_ask(effects, learner.space, draft, range(count), draft.rows)
        mine, *answers = await effects.together(
            [own, *(effects.ask(peer, asked) for peer in self.voters)]
        )
        if isinstance(mine, BaseException):
            raise mine
        labels = []
        for place in range(count):
            votes = {self._own: mine[place]}
            for peer, answer in zip(self.voters, answers, strict=True):
                if not isinstance(answer, PeerError) and answer[place].is_given:
                    votes[peer] = answer[place].label
            draft.scored[place] = {ROW_ID: asked[place].id, **votes}
            cell = learner.name_at(learner.space, row_of(int(draft.codes[place])))
            winner = self._ensemble.elect(self._codes(votes), self._cell(cell))
            labels.append(self._known.classes[winner])
        return labels

    def learn(self, request: Request, rows: Sequence[int]) -> list[Delivery]:
        """Change the weights by the labels of rows; return what the voters are told of them.

        A label that would make the weights invalid has no effect.
        """
        deliveries = []
        for row in rows:
            votes, label = dict(request.scored.get(row, {})), request.truths[row]
            id_ = votes.pop(ROW_ID, None)
            if id_ is None:  # of a time without an ensemble
                continue
            codes = self._codes(votes)
            with contextlib.suppress(ConfigError):
                cell = self._cell(request.group(row).cell)
                self._ensemble.move(codes, self._known.code(label), cell)
            others = [peer for peer in votes if peer != self._own]
            deliveries += [Delivery(peer, str(id_), label) for peer in others]
        return deliveries

    def _cell(self, cell: str) -> str | None:
        return cell if self._is_local else None

    def _codes(self, votes: Mapping[str, Label]) -> list[int]:
        return [
            self._known.code(votes[name]) if name in votes else ABSTAINED
            for name in self._ensemble.learners
        ]

    # -- the store ------------------------------------------------------------------------------

    def changes(self) -> list[SourceState]:
        """Return the weights as they are stored, if they have changed since this was last asked."""
        state = self._stored()
        if state == self._written:
            return []
        self._written = state
        return [state]

    def _stored(self) -> SourceState:
        kept = kept_weights(self._ensemble, self._known)
        return SourceState(WEIGHTS, 0, latest=(0, msgspec.to_builtins(kept)))

    def restore(self, sources: Mapping[str, SourceState]) -> None:
        """Continue from what was stored; weights of other members or classes begin anew."""
        state = sources.get(WEIGHTS)
        self._known = ClassCodes(self._first_classes)
        self._ensemble = Ensemble((self._own, *self.voters), **self._options)
        if state is not None and state.latest is not None:
            kept = msgspec.convert(state.latest[1], KeptWeights)
            first = kept.classes[: len(self._first_classes)]
            if kept.members == [*self._ensemble.learners] and first == self._first_classes:
                self._known = ClassCodes(kept.classes)
                restore_weights(self._ensemble, kept)
        self._written = self._stored()


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


class KeptWeights(msgspec.Struct):
    """What is stored of an ensemble."""

    members: list[str]
    classes: list[Any]
    cells: dict[str, EnsembleState]  # "": all cells


def kept_weights(ensemble: Ensemble, codes: ClassCodes) -> KeptWeights:
    cells = {str(cell or ""): state for cell, state in ensemble.standings().items()}
    return KeptWeights(list(ensemble.learners), codes.classes, cells)


def restore_weights(ensemble: Ensemble, kept: KeptWeights) -> None:
    """Let an ensemble continue from what was stored."""
    ensemble.restore({cell or None: state for cell, state in kept.cells.items()})
