"""Functions that are run on rows for which other arms were chosen.

Free ones are run with each request, and scored when labels come; `node.shadow` runs all of them on
a share of the rows.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from covey.bandit.learner import Choice, Learner
from covey.data.inputs import ALL, FeatureView, Rows, grouped, shown
from covey.errors import FunctionError
from covey.functions.function import Late
from covey.kernel import code_of
from covey.node.requests import Request
from covey.types import Context, Label

Group = tuple[Choice, int, list[int]]  # an arm, its view of instances, and its rows


class Runner(Protocol):
    """What runs functions, as far as free ones need it."""

    async def run(
        self, function: int, rows: Rows, *, is_served: bool = False
    ) -> list[Label] | FunctionError: ...

    async def gather(self, calls: Sequence[Awaitable[Any]]) -> list[Any]: ...


class OtherFunctions:
    """Runs functions of a site beside the chosen arms."""

    def __init__(
        self,
        learner: Learner,
        arm_ids: Mapping[str, str],
        views: Sequence[FeatureView],
        share: Callable[[Rows, Group], Rows],
        runner: Runner,
    ) -> None:
        """`arm_ids` has the arms whose labels are not counted under their name.

        `share` returns the rows of a group as its arm sees them.
        """
        self._learner = learner
        self._arm_ids = arm_ids
        self._views = views
        self._share = share
        self._runner = runner

    async def run(
        self,
        functions: Sequence[int],
        rows: Rows,
        arms: Sequence[int],
        closed: bytes | None,
        context_of: Callable[[int], Context] | None = None,
    ) -> dict[int, dict[str, Label]]:
        """Return the answers to rows for which other `arms` were chosen, by what they count as.

        A function that is not available, fails or answers later is left out. Rows of peers have no
        context: they are shown as they are.
        """
        groups = [
            group
            for function in functions
            if closed is None or not closed[function]
            for group in self._groups(function, arms, context_of)
        ]
        calls = [self._labels(one[0].function, self._share(rows, one)) for one in groups]
        answers: dict[int, dict[str, Label]] = {}
        for (choice, _, places), labels in zip(
            groups, await self._runner.gather(calls), strict=True
        ):
            id_ = self._arm_ids.get(choice.arm, choice.arm)
            for place, label in zip(places, labels, strict=False):
                if type(label) is not Late:
                    answers.setdefault(place, {})[id_] = label
        return answers

    def _groups(
        self, function: int, arms: Sequence[int], context_of: Callable[[int], Context] | None
    ) -> list[Group]:
        """Return the rows of a function, by the view that it gets."""
        choice = self._learner.choice(code_of(0, function, 0))
        places = [place for place, arm in enumerate(arms) if arm != function]
        views = [ALL] * len(places)
        if self._views and context_of is not None:
            views = [shown(self._views, choice.arm, context_of(place)) for place in places]
        return [(choice, view, [places[k] for k in some]) for view, some in grouped(views).items()]

    async def _labels(self, function: int, rows: Rows) -> list[Label]:
        try:
            labels = await self._runner.run(function, rows, is_served=True)
        except FunctionError:
            return []
        return [] if isinstance(labels, FunctionError) else labels


def scored_gains(
    request: Request,
    row: int,
    label: Label,
    places: Mapping[str, int],
    gain_of: Callable[[Label, Label], int],
) -> list[tuple[int, int]]:
    """Return the free functions that the label of a row scores, and what each of them gains.

    `places` has the own functions by what their labels count as.
    """
    answers = request.scored.get(row)
    if not answers:
        return []
    chosen = request.group(row).counted_as
    return [
        (places[id_], gain_of(answer, label))
        for id_, answer in answers.items()
        if id_ in places and id_ != chosen
    ]
