"""Names of cells, as used between peers and in stores."""

from collections.abc import Mapping

from covey.errors import DataError
from covey.policies import Policy
from covey.types import Cell


class CellNames:
    """Cell names of all context spaces of a learner; the space name is the prefix."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._policies = policies

    def of(self, cell: Cell) -> str:
        """Return the name of a cell."""
        name = self._policies[cell.space].partition.name(cell)
        return f"{cell.space}/{name}" if cell.space else name

    def parse(self, name: str) -> Cell:
        """Return the cell of a name; raise `DataError` for an invalid name."""
        space, _, rest = name.rpartition("/")
        policy = self._policies.get(space)
        if policy is None:
            raise DataError(f"cell {name!r} is in an unknown context space")
        cell = policy.partition.parse(rest)
        if len(cell.coordinates) != policy.dimension:
            raise DataError(f"cell {name!r} needs {policy.dimension} coordinates")
        return cell._replace(space=space) if space else cell
