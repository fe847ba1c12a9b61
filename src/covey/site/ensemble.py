"""Ensembles: learners vote on an instance, and labels change their weights.

A served site votes with its peers, and stores the weights. Its own learner decides without peers,
and every peer is asked about every row; a peer that does not answer does not vote. A label teaches
the own learner, every voter, and then the weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from covey.bandit.ensemble import ABSTAINED, Ensemble, EnsembleState, Weighing
from covey.bandit.learner import NO_ANSWER, Learner
from covey.config import LearnerTable
from covey.data.inputs import FeatureView
from covey.errors import (
    ConfigError,
    PeerError,
)
from covey.kernel import row_of
from covey.site.handler import Effects, Handler
from covey.site.requests import (
    CLIENT,
    AskRow,
    Commit,
    Delivery,
    Draft,
    Loaded,
    Request,
    SourceState,
    is_own,
)
from covey.site.state import Costs, RecordedState, Settlements
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


class ByArm:
    """How the clients of a site are answered: by the arm that its learner chooses."""

    voters: Sequence[str] = ()  # peers that are asked about every row

    def state(self, learner: Learner, loaded: Loaded, *given: Any, **more: Any) -> RecordedState:
        """Return the state of the site; arguments are those of `RecordedState`."""
        return RecordedState(learner, loaded, *given, **more)

    def handler(self, state: Any, views: Sequence[FeatureView], effects: Effects) -> Handler:
        """Return what answers requests."""
        return Handler(state, views, effects)

    def weights(self) -> dict[str, dict[str, float]] | None:
        """Return the weights of voters by cell and learner; "" stands for all cells."""
        return None


class SiteEnsemble(ByArm):
    """Answers by the vote of a site and of its peers, whose weights it keeps."""

    def __init__(
        self,
        own: str,
        voters: Sequence[str],
        settings: Weighing,
        classes: Sequence[Label] | None = None,
    ) -> None:
        """`classes` are the labels of the site, if they are known."""
        self.own = own
        self.voters = tuple(voters)
        self._is_local = settings.weights == "cell"
        self._first_classes = classes_of(settings, classes)
        self._options = msgspec.to_builtins(msgspec.structs.replace(settings, base=None))
        self._begin()

    def _begin(self) -> None:
        self._known = ClassCodes(self._first_classes)
        self._ensemble = Ensemble((self.own, *self.voters), **self._options)

    def state(self, learner: Learner, loaded: Loaded, *given: Any, **more: Any) -> RecordedState:
        return VotedState(self, learner, loaded, *given, **more)

    def handler(self, state: Any, views: Sequence[FeatureView], effects: Effects) -> Handler:
        return VotingHandler(state, views, effects)

    def weights(self) -> dict[str, dict[str, float]] | None:
        cells: Iterable[Any] = self._ensemble.standings() if self._is_local else [None]
        return {str(cell or ""): self._ensemble.weights(cell) for cell in cells}

    def elect(self, votes: Mapping[str, Label], cell: str) -> Label:
        """Return the label that wins, for votes by learner."""
        code = self._ensemble.elect(self._codes(votes), self._cell(cell))
        return self._known.classes[code]

    def move(self, votes: Mapping[str, Label], label: Label, cell: str) -> None:
        """Change the weights by a true label; one that would make them invalid has no effect."""
        codes = self._codes(votes)
        try:
            self._ensemble.move(codes, self._known.code(label), self._cell(cell))
        except ConfigError:
            return

    def _cell(self, cell: str) -> str | None:
        return cell if self._is_local else None

    def _codes(self, votes: Mapping[str, Label]) -> list[int]:
        return [
            self._known.code(votes[name]) if name in votes else ABSTAINED
            for name in self._ensemble.learners
        ]

    def stored(self) -> SourceState:
        """Return the weights as they are stored."""
        kept = kept_weights(self._ensemble, self._known)
        return SourceState(WEIGHTS, 0, latest=(0, msgspec.to_builtins(kept)))

    def restore(self, state: SourceState | None) -> None:
        """Continue from what was stored; weights of other members or classes begin anew."""
        self._begin()
        if state is None or state.latest is None:
            return
        kept = msgspec.convert(state.latest[1], KeptWeights)
        first = kept.classes[: len(self._first_classes)]
        if kept.members != [*self._ensemble.learners] or first != self._first_classes:
            return
        self._known = ClassCodes(kept.classes)
        restore_weights(self._ensemble, kept)


def answering_of(
    own: str, voters: Sequence[str], settings: Weighing | None, classes: Sequence[Label] | None
) -> ByArm:
    """Return how the clients of a site are answered, by the table `[ensemble]` of its file."""
    return ByArm() if settings is None else SiteEnsemble(own, voters, settings, classes)


class VotedState(RecordedState):
    """The state of a site that answers with a vote; labels change the weights as well."""

    def __init__(
        self, ensemble: SiteEnsemble, learner: Any, loaded: Loaded, *given: Any, **more: Any
    ) -> None:
        super().__init__(learner, loaded, *given, **more)
        self.ensemble = ensemble
        ensemble.restore(loaded.sources.get(WEIGHTS))
        self._written = ensemble.stored()

    def settle(
        self, request: Request, truths: Mapping[int, Any], costs: Costs = None, kept: Any = ()
    ) -> Settlements:
        """Learn from labels; right is what the vote answered right."""
        settled = super().settle(request, truths, costs, kept)
        if not is_own(request.source):
            return settled
        right = [bool(request.answers[row] == label) for row, label in truths.items()]
        return Settlements(settled.is_new, right, kept)

    def _settled(self, request: Request, rows: list[int], right: list[bool]) -> None:
        super()._settled(request, rows, right)
        for row in rows:
            votes, label = dict(request.scored.get(row, {})), request.truths[row]
            id_ = votes.pop(ROW_ID, None)
            if id_ is None:  # of a time without an ensemble
                continue
            self.ensemble.move(votes, label, request.group(row).cell)
            self.commit.deliveries += [
                Delivery(peer, str(id_), label) for peer in votes if peer != self.ensemble.own
            ]

    def take(self) -> Commit | None:
        """Return what has changed since it was last taken, the weights included."""
        commit = super().take()
        if commit is not None:
            state = self.ensemble.stored()
            if state != self._written:
                self._written = state
                commit.records.append(state)
        return commit


class VotingHandler(Handler):
    """Answers requests of the site's clients with the vote of the site and its peers."""

    def __init__(self, state: VotedState, *given: Any) -> None:
        super().__init__(state, *given)
        self._ensemble = state.ensemble

    async def _call_arms(self, draft: Draft) -> list[Any]:
        """Run own functions and ask all voters at the same time."""
        effects, count = self._effects, len(draft.codes)
        id_ = effects.new_id()
        ids = [f"{id_}:{place}" if count > 1 else id_ for place in range(count)]
        space, own_rows = self._learner.space, [row_of(int(code)) for code in draft.codes]
        cells = [
            str(effects.cell(space, row, draft.context(place)))
            for place, row in enumerate(own_rows)
        ]
        rows = draft.rows.tolist() if isinstance(draft.rows, np.ndarray) else draft.rows
        asked = [
            AskRow(*row)
            for row in zip(ids, cells, map(draft.slot_of, range(count)), rows, strict=True)
        ]
        voters = self._ensemble.voters
        own, *answers = await effects.together(
            [super()._call_arms(draft), *(effects.ask(peer, asked) for peer in voters)]
        )
        if isinstance(own, BaseException):
            raise own
        for place in range(count):
            votes = {self._ensemble.own: own[place]}
            for peer, answer in zip(voters, answers, strict=True):
                if not isinstance(answer, PeerError) and answer[place].label is not NO_ANSWER:
                    votes[peer] = answer[place].label
            draft.scored[place] = {ROW_ID: ids[place], **votes}
        return [
            self._ensemble.elect(
                {name: vote for name, vote in draft.scored[place].items() if name != ROW_ID},
                self._learner.name_at(space, own_rows[place]),
            )
            for place in range(count)
        ]


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


def kept_weights(ensemble: Ensemble, known: ClassCodes) -> KeptWeights:
    cells = {str(cell or ""): state for cell, state in ensemble.standings().items()}
    return KeptWeights(list(ensemble.learners), known.classes, cells)


def restore_weights(ensemble: Ensemble, kept: KeptWeights) -> None:
    """Let an ensemble continue from what was stored."""
    ensemble.restore({cell or None: state for cell, state in kept.cells.items()})
