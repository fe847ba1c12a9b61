"""Independent sites classify their streams together: a cooperative contextual bandit."""

from covey.backtest import replay
from covey.bounds import bound
from covey.classifiers import fresh as untrained
from covey.classifiers import frozen
from covey.ensemble import Ensemble
from covey.errors import CoveyError
from covey.node.network import Network
from covey.policies import DCZA, Auto, CoS
from covey.simulation import simulate
from covey.traces import Trace

__all__ = [
    "DCZA",
    "Auto",
    "CoS",
    "CoveyError",
    "Ensemble",
    "Network",
    "Trace",
    "bound",
    "frozen",
    "replay",
    "simulate",
    "untrained",
]
