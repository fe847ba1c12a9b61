"""The names of cells, under which peers speak of them and stores keep them."""

from collections.abc import Mapping

from covey.errors import DataError
from covey.policies import Policy
from covey.types import Cell


class CellNames:
    """Names in all context spaces of a learner; that of the space stands before the cell's own."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._policies = policies

    def of(self, cell: Cell) -> str:
        """Return the name of a cell."""
        name = self._policies[cell.space].partition.name(cell)
        return f"{cell.space}/{name}" if cell.space else name

    def parse(self, name: str) -> Cell:
        """Return the cell of a name; raise `DataError` if there can be none such."""
        space, _, rest = name.rpartition("/")
        policy = self._policies.get(space)
        if policy is None:
            raise DataError(f"cell {name!r} lies in a context space that is not known here")
        cell = policy.partition.parse(rest)
        if len(cell.coordinates) != policy.dimension:
            raise DataError(f"cell {name!r} does not have {policy.dimension} coordinates")
        return cell._replace(space=space) if space else cell
