"""What every package shares: labels, contexts, phases, losses."""

import enum
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Label = Hashable
Context = tuple[float, ...]
Cost = float | Mapping[str, float] | None  # of an arm beyond its price, or by the names of costs

WHOLE = 1_000_000  # gain of a fully correct answer when answers can be partly correct
MILLIONTHS = 1_000_000  # unit of costs


class Loss(msgspec.Struct, frozen=True):
    """Loss of a prediction, clipped at `bound`: absolute or squared error, or errors by class."""

    kind: Literal["absolute", "squared", "classes"]
    bound: float
    # Of "classes": true class -> loss of an error, or of each predicted class; else it is `bound`.
    errors: dict[str, float | dict[str, float]] = {}

    @property
    def is_numeric(self) -> bool:
        """Whether labels and predictions are numbers."""
        return self.kind != "classes"

    def gain(self, prediction: Any, label: Any) -> int:
        """Return the gain of a prediction, from 0 to `WHOLE`; raise `TypeError` for no numbers."""
        if self.is_numeric:
            return int(self.gains(abs(prediction - label)))
        lost = self.bound
        if prediction == label:
            lost = 0.0
        else:
            error = self.errors.get(str(label), self.bound)
            lost = error.get(str(prediction), lost) if isinstance(error, dict) else error
        return round(WHOLE * (1.0 - lost / self.bound))

    def gains(self, distance: Any) -> Any:
        """Return the gain of a prediction at this distance from the truth, from 0 to `WHOLE`."""
        lost = distance**2 if self.kind == "squared" else distance
        return np.rint(WHOLE * (1.0 - np.minimum(1.0, lost / self.bound)))


class Value(msgspec.Struct, frozen=True):
    """What a right answer is worth in money."""

    amount: Annotated[float, msgspec.Meta(gt=0, le=1e300)]
    currency: Annotated[str, msgspec.Meta(min_length=1, max_length=8)]


class Interval(msgspec.Struct, frozen=True):
    """A mean and the ends of its 95 % interval; None: too few rows or runs for one."""

    mean: float
    low: float | None = None
    high: float | None = None


class Phase(enum.IntEnum):
    """Why an arm was chosen."""

    TRAIN = 0
    EXPLORE = 1
    EXPLOIT = 2


BY_CONTEXT = " (context)"  # name suffix of a peer that receives only the cell
MEMORY = "(labels seen)"  # function name in a trace when a learner answers from stored labels
PHASES = tuple(phase.name.lower() for phase in Phase)
KEPT_ROW = "own"  # the phase of rows that a limit of harm keeps for own functions
OWN_PHASES = (*PHASES, KEPT_ROW)  # of rows of own clients
