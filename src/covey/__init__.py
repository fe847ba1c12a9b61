"""Independent sites classify their streams together: a cooperative contextual bandit.

Replay and simulate: replay, compare, advise, simulate, open_store, bound with Problem; they return
a Result with Summary and Trace, a ReplayComparison, an Advice, a SimulationResult.

Run sites in this process: Network, LocalSite, Prediction, Settlement, Ensemble, Links, and columns,
frozen, untrained, functions_from for functions.

Policies: Auto, CoS, DCZA, ShareUCB, Own are records; CustomPolicy with CellState is the base of
your own. Every error that covey raises on purpose is a CoveyError.

help(covey.replay) shows the help of one name. Names that are not listed here, and modules that the
page on the Python API does not list, are internal: they can change in any release.
"""

import importlib as _importlib
from typing import TYPE_CHECKING

from covey.errors import ConfigError as ConfigError
from covey.errors import ConflictingLabel as ConflictingLabel
from covey.errors import ContextError as ContextError
from covey.errors import CoveyError as CoveyError
from covey.errors import DataError as DataError
from covey.errors import FunctionBusy as FunctionBusy
from covey.errors import FunctionError as FunctionError
from covey.errors import LateLabel as LateLabel
from covey.errors import LimitError as LimitError
from covey.errors import MissingExtra as MissingExtra
from covey.errors import NoAnswerYet as NoAnswerYet
from covey.errors import PeerBusy as PeerBusy
from covey.errors import PeerDeclined as PeerDeclined
from covey.errors import PeerError as PeerError
from covey.errors import PeerRefused as PeerRefused
from covey.errors import PolicyError as PolicyError
from covey.errors import StoreAway as StoreAway
from covey.errors import StoreError as StoreError
from covey.errors import StoreFailed as StoreFailed
from covey.errors import StoreFull as StoreFull
from covey.errors import TicketError as TicketError
from covey.errors import UnfitLabel as UnfitLabel
from covey.errors import UnknownRow as UnknownRow
from covey.errors import UnknownSite as UnknownSite
from covey.errors import UnknownTicket as UnknownTicket

if TYPE_CHECKING:
    from covey.bandit.bounds import Problem as Problem
    from covey.bandit.bounds import bound as bound
    from covey.bandit.ensemble import Ensemble as Ensemble
    from covey.bandit.learner import Settlement as Settlement
    from covey.bandit.links import Links as Links
    from covey.bandit.policies import DCZA as DCZA
    from covey.bandit.policies import Auto as Auto
    from covey.bandit.policies import CoS as CoS
    from covey.bandit.policies import Own as Own
    from covey.bandit.policies import ShareUCB as ShareUCB
    from covey.data.logs import Trace as Trace
    from covey.functions.function import columns as columns
    from covey.functions.function import frozen as frozen
    from covey.functions.function import untrained as untrained
    from covey.functions.registry import functions_from as functions_from
    from covey.kernel.rules import CellState as CellState
    from covey.kernel.rules import CustomPolicy as CustomPolicy
    from covey.network.local_site import LocalSite as LocalSite
    from covey.network.network import Network as Network
    from covey.replay.outcome import Summary as Summary
    from covey.report.advice import Advice as Advice
    from covey.report.advice import advise as advise
    from covey.report.comparison import ReplayComparison as ReplayComparison
    from covey.report.comparison import compare as compare
    from covey.report.results import Result as Result
    from covey.report.results import SimulationResult as SimulationResult
    from covey.report.results import replay as replay
    from covey.report.results import simulate as simulate
    from covey.site.requests import Prediction as Prediction
    from covey.store.reading import open_store as open_store

    __version__: str

_ERRORS = [name for name, value in globals().items() if isinstance(value, type)]
_NAMES = {  # module below covey -> its public names, which are imported on first use
    "bandit.bounds": ("Problem", "bound"),
    "bandit.ensemble": ("Ensemble",),
    "bandit.learner": ("Settlement",),
    "bandit.links": ("Links",),
    "bandit.policies": ("DCZA", "Auto", "CoS", "Own", "ShareUCB"),
    "data.logs": ("Trace",),
    "functions.function": ("columns", "frozen", "untrained"),
    "functions.registry": ("functions_from",),
    "kernel.rules": ("CellState", "CustomPolicy"),
    "network.local_site": ("LocalSite",),
    "network.network": ("Network",),
    "store.reading": ("open_store",),
    "site.requests": ("Prediction",),
    "replay.outcome": ("Summary",),
    "report.advice": ("Advice", "advise"),
    "report.comparison": ("ReplayComparison", "compare"),
    "report.results": ("Result", "SimulationResult", "replay", "simulate"),
}
_SOURCES = {name: module for module, names in _NAMES.items() for name in names}
# Modules that are documented themselves, or were always there after `import covey`.
_MODULES = frozenset(("bandit", "config", "data", "errors", "functions", "node", "simulation"))

if not TYPE_CHECKING:  # else every misspelt name would be an attribute

    def __getattr__(name):
        """Import a public name on first use, so that `import covey` takes no time."""
        if name == "__version__":
            from importlib.metadata import version

            value = version("covey")
        elif name in _SOURCES:
            value = getattr(_importlib.import_module(f"covey.{_SOURCES[name]}"), name)
        elif name in _MODULES:
            value = _importlib.import_module(f"covey.{name}")
        else:
            raise AttributeError(f"module 'covey' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*_ERRORS, *_SOURCES, "__doc__", "__version__"]


# The package `replay` is imported now, and its name removed: else a later import of the package
# would hide the function of the same name.
_importlib.import_module("covey.replay")
globals().pop("replay")
