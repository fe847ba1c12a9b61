"""Independent sites classify their streams together: a cooperative contextual bandit."""

from importlib.metadata import version

from covey._deprecated import register
from covey.bandit.bounds import bound
from covey.bandit.ensemble import Ensemble
from covey.bandit.policies import DCZA, Auto, CoS
from covey.data.logs import Trace
from covey.errors import CoveyError
from covey.functions.function import frozen, untrained
from covey.kernel.rules import CellState, CustomPolicy
from covey.node.network import Network
from covey.report.results import Result, replay
from covey.simulation.runner import simulate

__all__ = [
    "DCZA",
    "Auto",
    "CellState",
    "CoS",
    "CoveyError",
    "CustomPolicy",
    "Ensemble",
    "Network",
    "Result",
    "Trace",
    "bound",
    "frozen",
    "replay",
    "simulate",
    "untrained",
]
__version__ = version("covey")
register()
