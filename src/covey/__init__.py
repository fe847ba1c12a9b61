"""Independent sites classify their streams together: a cooperative contextual bandit."""

from covey.backtest import replay
from covey.ensemble import Ensemble
from covey.errors import CoveyError
from covey.node.network import Network
from covey.policies import DCZA, CoS
from covey.traces import Trace

__all__ = ["DCZA", "CoS", "CoveyError", "Ensemble", "Network", "Trace", "replay"]
