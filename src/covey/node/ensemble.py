"""Ensembles: learners vote on an instance, and labels change their weights.

A served site votes with its peers, and stores the weights. Its own learner decides without peers,
and every peer is asked about every row; a peer that does not answer does not vote. A label teaches
the own learner, every voter, and then the weights.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import numpy as np

from covey.bandit.ensemble import ABSTAINED, Ensemble, EnsembleState, Weighing
from covey.bandit.learner import NO_ANSWER, RIGHT, WRONG, Learner, Settlement
from covey.config import LearnerTable
from covey.data.inputs import FeatureView, truths_of
from covey.errors import (
    ConfigError,
    ConflictingLabel,
    DataError,
    FunctionError,
    PeerError,
    UnknownTicket,
)
from covey.kernel import row_of
from covey.node.handler import Effects, Handler
from covey.node.local_site import LocalSite
from covey.node.requests import (
    CLIENT,
    AskRow,
    Commit,
    Delivery,
    Draft,
    Loaded,
    Prediction,
    Request,
    SourceState,
    is_own,
)
from covey.node.state import Costs, RecordedState, Settlements
from covey.toml import nearest
from covey.types import Context, Label

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


class Vote(msgspec.Struct, frozen=True):
    """The label of an ensemble, and the ticket under which its true label is to be reported."""

    label: Label
    ticket: int
    votes: dict[str, Label]  # by learner


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


class Ballot(msgspec.Struct):
    """The votes on an instance, and its label; None: it has not arrived."""

    codes: list[int]
    cell: dict[str, str] | None  # of each learner's context, where weights are per cell
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
        sites: Mapping[str, LocalSite],
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
        ballots = {ticket: msgspec.structs.replace(vote) for ticket, vote in self._ballots.items()}
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
        the record `instance`. A learner whose function fails does not vote; `FunctionError` is
        raised if none is left.
        """
        with self._lock:
            return self._elected(
                self._asked(lambda site, point: site.predict(instance, point, slot=slot), context)
            )

    def predict_batch(
        self, instances: Any, contexts: Any = None, *, slot: int | None = None
    ) -> list[Vote]:
        """Return one vote per row, with the weights before any label of the batch.

        `contexts` are those of all learners, or have those of each by name. Raises as `predict`.
        """
        with self._lock:
            answers = self._asked(
                lambda site, points: site.predict_batch(instances, points, slot=slot), contexts
            )
            rows = range(len(next(iter(answers.values()))))
            return [
                self._elected({name: own[row] for name, own in answers.items()}) for row in rows
            ]

    def _asked(self, ask: Callable[[LocalSite, Any], Any], context: Any) -> dict[str, Any]:
        """Return the answers of the learners whose functions do not fail."""
        answers: dict[str, Any] = {}
        failure: FunctionError | None = None
        for name, site in self._sites.items():
            try:
                answers[name] = ask(
                    site, context[name] if isinstance(context, Mapping) else context
                )
            except FunctionError as error:
                failure = error
        if failure is not None and not answers:
            raise failure
        return answers

    def _elected(self, answers: Mapping[str, Prediction]) -> Vote:
        tickets = {name: answer.ticket for name, answer in answers.items()}
        votes = {name: answer.label for name, answer in answers.items()}
        codes = [
            self._known.code(votes[name]) if name in votes else ABSTAINED for name in self._sites
        ]
        cell = self._cells(tickets) if self._is_local else None
        winner = self._ensemble.elect(codes, cell)
        self._latest += 1
        self._ballots.pop(self._latest - self._label_wait - 1, None)
        self._ballots[self._latest] = Ballot(codes, cell, winner, tickets)
        return Vote(self._known.classes[winner], self._latest, votes)

    def _cells(self, tickets: Mapping[str, int]) -> dict[str, str]:
        """Return the cell of each learner's own context; without a vote that of the first."""
        cells = {name: self._sites[name].cell_of(ticket) for name, ticket in tickets.items()}
        first = next(iter(cells.values()))
        return {name: cells.get(name, first) for name in self._sites}

    def learn(
        self, ticket: int, label: Label, cost: Mapping[str, float] | None = None
    ) -> Settlement:
        """Let every learner that voted learn the true label, then change the weights.

        `cost` has what functions cost beyond their fixed costs, by the names of `cost-columns`. The
        same label again has no effect. Raises as `LocalSite.learn` does.
        """
        with self._lock:
            return self._learn(ticket, label, cost)

    def learn_batch(
        self,
        tickets: Sequence[int],
        labels: Any,
        costs: Sequence[Mapping[str, float] | None] | None = None,
    ) -> list[Settlement]:
        """Settle tickets in order, as `learn` does."""
        truths = truths_of(tickets, labels)
        paid = [None] * len(tickets) if costs is None else costs
        with self._lock:
            return [
                self._learn(ticket, truths[ticket], cost)
                for ticket, cost in zip(tickets, paid, strict=True)
            ]

    def _learn(self, ticket: int, label: Label, cost: Mapping[str, float] | None) -> Settlement:
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
        columns = {
            name: {*site.learner.cost_columns.values()} for name, site in self._sites.items()
        }
        known = set().union(*columns.values())
        for column in cost or ():
            if column not in known:
                raise DataError(
                    f"no learner has the cost column {column!r}{nearest(column, known)}"
                )
        for name, own in ballot.tickets.items():
            paid = (
                {column: cost[column] for column in columns[name] & cost.keys()} if cost else None
            )
            if self._sites[name].learner.is_supervised:
                self._sites[name].learn(own, label, paid or None)
        self._ensemble.move(ballot.codes, self._known.code(label), ballot.cell)
        ballot.truth = label
        return RIGHT if is_right else WRONG
