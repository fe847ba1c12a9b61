"""Names of cells in all context spaces of a learner, as sites and stores use them."""

from collections.abc import Mapping

from covey.bandit.partitions import Candidates
from covey.bandit.policies import Policy
from covey.errors import DataError
from covey.kernel.rules import Cell


class CellNames:
    """Cell names of all context spaces of a learner; the space name is the prefix."""

    def __init__(
        self, policies: Mapping[str, Policy], candidates: Mapping[str, Candidates] | None = None
    ) -> None:
        self._policies = policies
        self._candidates = candidates or {}

    def of(self, cell: Cell) -> str:
        """Return the name of a cell."""
        several = self._candidates.get(cell.space)
        partition = self._policies[cell.space].partition if several is None else several
        name = partition.name(cell)
        return f"{cell.space}/{name}" if cell.space else name

    def parse(self, name: str) -> Cell:
        """Return the cell of a name; raise `DataError` for an invalid name."""
        space, _, rest = name.rpartition("/")
        if space in self._candidates:
            return self._candidates[space].parse(rest)._replace(space=space)
        policy = self._policies.get(space)
        if policy is None:
            raise DataError(f"cell {name!r} is in an unknown context space")
        cell = policy.partition.parse(rest)
        if len(cell.coordinates) != policy.dimension:
            raise DataError(f"cell {name!r} needs {policy.dimension} coordinates")
        return cell._replace(space=space) if space else cell
