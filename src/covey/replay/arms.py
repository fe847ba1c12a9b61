"""The arms of all learners of a replay: columns for traces, and names made when asked for."""

import bisect
import itertools
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from covey.config import LearnerSpec
from covey.data.logs import ArmColumns
from covey.types import BY_CONTEXT, MEMORY


def arms_of(sites: Sequence[LearnerSpec]) -> ArmColumns:
    """Return the arms of all learners, with the rows of their answers if streams are separate."""
    offsets = [0, *itertools.accumulate(len(site.functions) for site in sites)]
    total, starts, has_streams = offsets[-1], [0], False
    codes, answers, firsts = array("q"), array("q"), array("q")
    costs = array("d")
    for index, site in enumerate(sites):
        own = range(offsets[index], offsets[index + 1])
        functions = [*own, *(offsets[peer] for peer in (*site.peers, *site.context_peers))]
        codes.extend(own)
        codes.extend(total + peer for peer in site.peers)
        codes.extend(total + len(sites) + peer for peer in site.context_peers)
        costs.extend(site.costs)
        firsts.extend(functions)
        answers.extend(site.answers or (site.stream * total + first for first in functions))
        starts.append(len(codes))
        has_streams = has_streams or site.stream > 0
    table = ArmColumns(*(np.array(column) for column in (starts[:-1], codes, costs)))
    if not has_streams:
        return table
    return table._replace(firsts=np.array(firsts), answers=np.array(answers))


FUNCTIONS, LEARNERS, READERS, STORED = range(4)  # kinds of names


class SiteNames(Sequence[str]):
    """Names of functions and learners, one kind after another; each is made when asked for."""

    def __init__(
        self, sites: Sequence[LearnerSpec], kinds: Sequence[int], ends: Sequence[int] = (0,)
    ) -> None:
        """Create the names; `ends` count the functions up to and including each learner's."""
        self._sites, self._kinds, self._ends = sites, kinds, ends
        self._lengths = [ends[-1] if kind == FUNCTIONS else len(sites) for kind in kinds]

    def __len__(self) -> int:
        return sum(self._lengths)

    def __getitem__(self, code: Any) -> Any:
        if isinstance(code, slice):
            return [self[k] for k in range(*code.indices(len(self)))]
        left = code if code >= 0 else code + len(self)
        for kind, length in zip(self._kinds, self._lengths, strict=True):
            if 0 <= left < length:
                return self._name(kind, left)
            left -= length
        raise IndexError(f"there is no name {code} among {len(self)}")

    def _name(self, kind: int, place: int) -> str:
        if kind == STORED:
            return MEMORY
        if kind == FUNCTIONS:
            owner = bisect.bisect_right(self._ends, place)
            own = self._sites[owner].functions
            return own[place - self._ends[owner]]  # counted from the end
        name = self._sites[place].name
        return name + BY_CONTEXT if kind == READERS else name
