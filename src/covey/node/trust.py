"""placeholder until the overlay lands."""

from typing import Literal

Trust = Literal["isolated", "robust", "full"]


class DirtyCells: ...


class SourceStatistics: ...
