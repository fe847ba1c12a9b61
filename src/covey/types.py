"""What every package shares: labels, contexts, phases, losses."""

import enum
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from covey import _deprecated

Array = npt.NDArray[Any]
Label = Hashable
Context = tuple[float, ...]

WHOLE = 1_000_000  # gain of a fully correct answer when answers can be partly correct
MILLIONTHS = 1_000_000  # unit of costs


class Loss(msgspec.Struct, frozen=True):
    """Loss of a numeric prediction: absolute or squared error, clipped at `bound`."""

    kind: Literal["absolute", "squared"]
    bound: float

    def gains(self, distance: Any) -> Any:
        """Return the gain of a prediction at this distance from the truth, from 0 to `WHOLE`."""
        lost = distance**2 if self.kind == "squared" else distance
        return np.rint(WHOLE * (1.0 - np.minimum(1.0, lost / self.bound)))


class Phase(enum.IntEnum):
    """Why an arm was chosen."""

    TRAIN = 0
    EXPLORE = 1
    EXPLOIT = 2


BY_CONTEXT = " (context)"  # name suffix of a peer that receives only the cell
MEMORY = "(labels seen)"  # function name in a trace when a learner answers from stored labels
PHASES = tuple(phase.name.lower() for phase in Phase)

if not TYPE_CHECKING:
    __getattr__ = _deprecated.attribute_of("types")
