"""Whom and what a bound speaks of: the numbers that go into every theorem, checked."""

import math

import msgspec

from covey import fields
from covey.errors import ConfigError

SQUARES = math.pi**2 / 6  # beta_2: the sum of 1 / t**2 over all slots


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Whom and what a bound speaks of; the defaults are the size of the paper's experiments."""

    horizon: float = 20_000  # slots
    alpha: float = 1.0
    dimension: int = 1
    lipschitz: float = 1.0
    learners: int = 4
    functions: int = 2  # of the learner that the bound is for
    most_functions: int | None = None  # of any learner; None: as many
    label_probability: float = 0.5
    longest_delay: int = 100  # slots
    split_scale: float = 1.0
    split_power: float | None = None  # None: what the theorem prescribes
    cost: float = 0.0  # of the dearest arm; only the cautious form asks for it

    def __post_init__(self) -> None:
        """Raise `ConfigError` with a sentence for a number that no theorem speaks of."""
        for name in _RANGES:
            _check_kind(name, getattr(self, name))
        fields.check_ranges(self, _RANGES, where="")
        if self.most < self.functions:
            raise ConfigError(
                f"most-functions is {self.most}, but the learner itself has {self.functions}"
            )
        if self.split_power is not None and self.split_power <= 2 * self.alpha:
            raise ConfigError(
                f"split-power is {self.split_power:g}; it must lie above 2 alpha = "
                f"{2 * self.alpha:g}, so that thresholds grow more slowly than time"
            )

    @property
    def most(self) -> int:
        """F_max, the most functions of any learner."""
        return self.functions if self.most_functions is None else self.most_functions

    @property
    def peers(self) -> int:
        """M - 1."""
        return self.learners - 1

    @property
    def arms(self) -> int:
        """K, own functions and peers."""
        return self.functions + self.peers

    @property
    def rounds(self) -> int:
        """Z: exploring takes so many times t^z ln t slots of a cell if peers must be trained."""
        return self.functions + self.peers * (self.most + 1)

    @property
    def mistakes(self) -> float:
        """(M - 1) F_max beta_2: half of what helpers get wrong in a cell by chance."""
        return self.peers * self.most * SQUARES

    def distance(self, dimension: int) -> float:
        """L d^(alpha/2), the most that accuracies differ over the whole space."""
        return float(self.lipschitz * dimension ** (self.alpha / 2))


_OPTIONAL = ("most_functions", "split_power")
_WHOLE = ("dimension", "learners", "functions", "most_functions", "longest_delay")
_RANGES = {
    "horizon": (1, 1e300),
    "alpha": (1e-3, 1),
    "dimension": (1, 8),
    "lipschitz": (1e-9, 1e9),
    "learners": (1, 10**4),
    "functions": (1, 10**4),
    "most_functions": (1, 10**4),
    "label_probability": (1e-9, 1),
    "longest_delay": (0, 2**53),
    "split_scale": (1, 1e18),
    "split_power": (0, 64),
    "cost": (0, 1),
}


def _check_kind(name: str, value: float | None) -> None:
    if value is None and name in _OPTIONAL:
        return
    key = name.replace("_", "-")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{key} is {value!r}; it must be a number")
    if name in _WHOLE and not isinstance(value, int):
        raise ConfigError(f"{key} is {value:g}; it must be a whole number")
