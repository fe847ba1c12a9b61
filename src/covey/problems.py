"""The parameters of the theorems, validated."""

import math

import msgspec

from covey import fields
from covey.errors import ConfigError

SQUARES = math.pi**2 / 6  # beta_2: the sum of 1 / t**2 over all slots


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a bound; the defaults match the paper's experiments."""

    horizon: float = 20_000  # slots
    alpha: float = 1.0
    dimension: int = 1
    lipschitz: float = 1.0
    learners: int = 4
    functions: int = 2  # of the learner of the bound
    most_functions: int | None = None  # of any learner; None: the same number
    label_probability: float = 0.5
    longest_delay: int = 100  # slots
    split_scale: float = 1.0
    split_power: float | None = None  # None: the value of the theorem
    cost: float = 0.0  # of the most expensive arm; used by the cautious form only

    def __post_init__(self) -> None:
        """Raise `ConfigError` for an invalid number."""
        for name in _RANGES:
            _check_kind(name, getattr(self, name))
        fields.check_ranges(self, _RANGES, where="")
        if self.most < self.functions:
            raise ConfigError(
                f"most-functions is {self.most}; it must be at least functions = {self.functions}"
            )
        if self.split_power is not None and self.split_power <= 2 * self.alpha:
            raise ConfigError(
                f"split-power is {self.split_power:g}; it must exceed {2 * self.alpha:g} (2 alpha)"
            )

    @property
    def most(self) -> int:
        """F_max, the largest number of functions of a learner."""
        return self.functions if self.most_functions is None else self.most_functions

    @property
    def peers(self) -> int:
        """M - 1."""
        return self.learners - 1

    @property
    def arms(self) -> int:
        """K, the number of own functions and peers."""
        return self.functions + self.peers

    @property
    def rounds(self) -> int:
        """Z: exploration and training of a cell take Z t^z ln t slots."""
        return self.functions + self.peers * (self.most + 1)

    @property
    def mistakes(self) -> float:
        """(M - 1) F_max beta_2: half of the expected wrong choices of helpers in a cell."""
        return self.peers * self.most * SQUARES

    def distance(self, dimension: int) -> float:
        """L d^(alpha/2), the maximum difference of accuracies over the whole space."""
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
