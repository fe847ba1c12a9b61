"""Many rows of one request, answered together: every function and every peer is called once."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from covey.batches import PLAIN, Rows, grouped, plain_label, share_of
from covey.books import Book, Question
from covey.classifiers import Function
from covey.counsel import Counsel, Talk
from covey.decisions import NO_ANSWER, Choice
from covey.errors import (
    ConflictingLabel,
    CoveyError,
    DataError,
    FunctionError,
    PeerError,
    UnknownRow,
)
from covey.lotbook import Draft, Said
from covey.lots import Helped, Lot
from covey.peers import NO_INSTANCE, Help, Request
from covey.records import Ticket
from covey.standins import OwnFunctions
from covey.types import Label
from covey.views import ALL, View, cut, shown

Broken = dict[int, FunctionError]  # own functions that failed for a request


class Group(NamedTuple):
    """Rows that one arm answers, and what it sees of them."""

    choice: Choice
    view: int
    places: list[int]


class Sheet(msgspec.Struct, eq=False):
    """The rows of a request, and what has been said to them so far."""

    rows: Rows
    draft: Draft
    talk: Talk
    predictions: list[Any]
    answers: dict[int, Label] = {}  # where the asker is told something else
    helped: dict[int, Helped] = {}
    lessons: dict[int, tuple[int, Any]] = {}

    def said(self) -> Said:
        """Return what goes into the lot."""
        answers = self.predictions
        if self.answers:
            answers = [self.answers.get(k, one) for k, one in enumerate(self.predictions)]
        return Said(self.predictions, answers, self.helped, self.lessons)


class Bulk:
    """Decides for many rows, lets their arms answer, and gives them out as one lot."""

    def __init__(
        self,
        book: Book,
        counsel: Counsel,
        own: OwnFunctions,
        *,
        views: Sequence[View],
        new_id: Callable[[], str],
    ) -> None:
        self._learner = book.learner
        self._book = book
        self._counsel = counsel
        self._own = own
        self._views = views
        self._new_id = new_id

    async def answer(self, rows: Rows, contexts: np.ndarray, question: Question, slot: int) -> Lot:
        """Answer rows in the slots from `slot` on; if that fails, all of it is taken back."""
        talk = self._counsel.begin()
        draft = self._book.lots.draft(contexts, slot)
        sheet = Sheet(rows, draft, talk, [None] * len(rows))
        try:
            await self._decide(draft, talk)
            await self._fill(sheet)
        except BaseException:
            self._book.lots.abandon(draft)
            raise
        return self._book.accept_lot(draft, question, sheet.said(), self._counsel.prices)

    async def _decide(self, draft: Draft, talk: Talk) -> None:
        """Decide row by row; from where a peer fails, as if there were none."""
        lots = self._book.lots
        try:
            while (decision := lots.decide(draft)) is not None:
                asking = talk._replace(sent=partial(self._sent, draft, decision.code >> 20))
                try:
                    while decision.asks:
                        await self._counsel.consult(decision, asking)
                except BaseException:
                    self._book.abandon(decision)
                    raise
                lots.go_on(draft, decision)
        except PeerError as error:
            self._counsel.decide_rest_alone(draft, error)

    def _sent(self, draft: Draft, row: int, peer: str) -> int:
        """Return how many rows decided so far are about to be sent to a peer, in one cell."""
        if not self._learner.tells_at_once or peer not in self._learner.arms:
            return 0
        arm = self._learner.arms.index(peer)
        return int(np.count_nonzero(draft.codes[: draft.done] >> 2 == (row << 18 | arm)))

    # -- answers --------------------------------------------------------------------------------

    async def _fill(self, sheet: Sheet) -> None:
        """Let own functions and peers answer at the same time; then those who stand in."""
        groups = self._groups(sheet.draft, range(len(sheet.draft)))
        own = [group for group in groups if group.choice.function >= 0]
        asked = [group for group in groups if group.choice.function < 0]
        done = await asyncio.gather(
            self._run(sheet, own, sheet.predictions),
            *(self._ask(sheet, group) for group in asked),
            return_exceptions=True,
        )
        for one in done:
            if isinstance(one, BaseException) and not isinstance(one, PeerError):
                raise one
        failed: list[int] = []
        for group, one in zip(asked, done[1:], strict=True):
            if isinstance(one, PeerError):
                self._decide_alone(sheet.draft, group.places, one)
                failed += group.places
        broken = cast("Broken", done[0])
        if failed:
            groups = self._groups(sheet.draft, failed)
            broken = {**broken, **await self._run(sheet, groups, sheet.predictions)}
        await self._stand_in(sheet, broken)

    def _decide_alone(self, draft: Draft, places: Sequence[int], why: PeerError) -> None:
        """Decide rows whose peer failed as if there were nobody to ask."""
        for one in self._book.lots.decide_again(draft, places):
            self._counsel.decide_rest_alone(one, why)

    async def _stand_in(self, sheet: Sheet, broken: Broken) -> None:
        """Where a peer has no answer, or a function failed, an own function has one."""
        if not sheet.helped and not broken:
            return
        silent = [row for row, said in enumerate(sheet.predictions) if said is NO_ANSWER]
        answers: list[Any] = [NO_ANSWER] * len(sheet.predictions)
        while silent:
            groups = self._groups_standing_in(sheet, silent, broken)
            broken = {**broken, **await self._run(sheet, groups, answers)}
            for group in groups:
                for row in group.places:
                    if row in sheet.helped:
                        one = sheet.helped[row]
                        sheet.helped[row] = one._replace(function=group.choice.arm)
            silent = [row for row in silent if answers[row] is NO_ANSWER]
        sheet.answers = {row: one for row, one in enumerate(answers) if one is not NO_ANSWER}

    def _groups_standing_in(
        self, sheet: Sheet, silent: Sequence[int], broken: Broken
    ) -> list[Group]:
        """Return rows by who may stand in; raise `FunctionError` if nobody is left."""
        draft, found = sheet.draft, dict[int, int]()  # by the kernel's decision
        groups: dict[tuple[int, int], list[int]] = {}
        for row in silent:
            code = int(draft.codes[row])
            if code not in found:
                found[code] = self._stand_in_for(code, broken)
            number = found[code]
            is_asked = row in sheet.helped
            view = self._view(draft, row, "" if is_asked else self._learner.arms[number])
            groups.setdefault((number, view), []).append(row)
        choices = {number: self._learner.choice(number << 2) for number, _ in groups}
        return [Group(choices[number], view, rows) for (number, view), rows in groups.items()]

    def _stand_in_for(self, code: int, broken: Broken) -> int:
        """Return the best function that has not failed."""
        cell, first = code >> 20, self._learner.choice(code).function
        if first < 0:
            first = self._learner.tables[self._learner.space].best_own(cell)
        for number in chain((first,), self._own.others(cell, first)):
            if number not in broken:
                return number
        raise next(iter(broken.values()))

    async def _run(self, sheet: Sheet, groups: Sequence[Group], into: list[Any]) -> Broken:
        """Let own functions answer their rows; return those that failed, which answer none."""
        functions = [self._own.functions[group.choice.function] for group in groups]
        shares = [
            _as_taken(function, self._share(sheet.rows, group))
            for function, group in zip(functions, groups, strict=True)
        ]
        broken: Broken = {}
        given = await self._own.work(_answer_all, functions, shares)
        for group, share, labels in zip(groups, shares, given, strict=True):
            number = group.choice.function
            if isinstance(labels, CoveyError):
                broken[number] = self._own.failed(number, labels)
                _put(into, group.places, [NO_ANSWER] * len(group.places))
                continue
            _put(into, group.places, labels)
            if self._own.functions[number].teach is not None:
                lessons = zip(repeat(number), share)
                sheet.lessons.update(zip(group.places, lessons, strict=True))
        return broken

    async def _ask(self, sheet: Sheet, group: Group) -> None:
        """Ask a peer for all its rows at once."""
        instances: Sequence[Any] | Rows = self._share(sheet.rows, group)
        if group.choice.is_by_context:
            instances = [NO_INSTANCE] * len(group.places)
        elif isinstance(instances, np.ndarray):
            instances = instances.tolist()
        requests = self._requests(sheet.draft, group.places, instances)
        peer = self._counsel.guards[group.choice.peer]
        given: list[Help] = await peer.ask(requests, sheet.talk.deadline_s)
        for row, request, one in zip(group.places, requests, given, strict=True):
            sheet.predictions[row] = one.label
            sheet.helped[row] = Helped(one.function, request.id, one.width)

    def _requests(self, draft: Draft, places: Sequence[int], instances: Any) -> list[Request]:
        id_, learner, codes = self._new_id(), self._learner, draft.codes
        names = [learner.name_at(learner.space, int(codes[row]) >> 20) for row in places]
        return [
            Request(f"{id_}:{row}", name, draft.slot + row, instance)
            for row, name, instance in zip(places, names, instances, strict=True)
        ]

    # -- rows -----------------------------------------------------------------------------------

    def _groups(self, draft: Draft, places: Sequence[int]) -> list[Group]:
        """Return the rows at `places` by arm, and by what it sees of them."""
        codes = draft.codes[places] if len(places) < len(draft) else draft.codes
        arms = codes >> 2 & 0x3FFFF
        groups = []
        for arm in np.unique(arms).tolist():
            choice = self._learner.choice(arm << 2)
            mine = np.flatnonzero(arms == arm).tolist()
            rows = mine if len(places) == len(draft) else [places[k] for k in mine]
            if not self._views:
                groups.append(Group(choice, ALL, rows))
                continue
            for view, some in grouped(self._view(draft, row) for row in rows).items():
                groups.append(Group(choice, view, [rows[k] for k in some]))
        return groups

    def _view(self, draft: Draft, row: int, arm: str = "") -> int:
        """Return what the arm of a row gets to see, or another in its place."""
        if not self._views:
            return ALL
        arm = arm or self._learner.choice(int(draft.codes[row])).arm
        return shown(self._views, arm, tuple(draft.contexts[row].tolist()))

    def _share(self, rows: Rows, group: Group) -> Rows:
        share = rows if len(group.places) == len(rows) else share_of(rows, group.places)
        if group.view == ALL:
            return share
        return [cut(row, self._views[group.view].columns) for row in share]


def _as_taken(function: Function, share: Rows) -> Rows:
    """Return rows as a function takes them: those that take one at a time are given lists."""
    takes_arrays = function.predict_many is not None and function.teach is None
    return share if takes_arrays or not isinstance(share, np.ndarray) else share.tolist()


def _answer_all(
    functions: Sequence[Function], shares: Sequence[Rows]
) -> list[list[Label] | CoveyError]:
    return [_answers(one, share) for one, share in zip(functions, shares, strict=True)]


def _answers(function: Function, share: Rows) -> list[Label] | CoveyError:
    """Return the labels of rows, or why there are none."""
    try:
        labels = function.answer_many(share)
        _check_plain(labels)
    except (FunctionError, DataError) as error:
        return error
    return labels


def _check_plain(labels: list[Any]) -> None:
    """Put plain labels in the place of others; raise `DataError` for what cannot be stored."""
    if set(map(type, labels)) <= set(PLAIN):
        for label in set(labels):
            plain_label(label)
    else:
        labels[:] = map(plain_label, labels)


def _put(column: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
    if len(places) == len(column):
        column[:] = values
        return
    for place, value in zip(places, values, strict=True):
        column[place] = value


def told_of(found: Ticket | Lot, rows: Sequence[int], labels: Any) -> dict[int, Label]:
    """Return the label of each row that is spoken of; raise `DataError` or `ConflictingLabel`."""
    given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(rows) != len(given):
        raise DataError(f"there are {len(rows)} rows and {len(given)} labels; give one for each")
    count = len(found) if isinstance(found, Lot) else 1
    if len(rows) and not 0 <= min(rows) <= max(rows) < count:
        there = f"rows from 0 to {count - 1}" if count > 1 else "one row, which is 0"
        raise UnknownRow(f"{found.id!r} has {there}; speak of no other")
    _check_plain(given)
    truths: dict[int, Label] = dict(zip(rows, given, strict=True))
    if len(truths) < len(rows):
        for row, label in zip(rows, given, strict=True):
            if truths[row] != label:
                raise ConflictingLabel(
                    f"row {row} of {found.id!r} is given two labels; none was taken"
                )
    return truths
