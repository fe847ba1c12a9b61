"""Exceptions of covey.

CoveyError
├── ConfigError         invalid configuration                          (ValueError)
├── DataError           invalid row or column                          (ValueError)
│   ├── ContextError    a context outside the unit cube
│   └── UnfitLabel      a label that is not one of the site's classes
├── FunctionError       a classification function failed               (RuntimeError)
│   ├── FunctionBusy        it did not return in time, or is not free  (LimitError)
│   └── NoAnswerYet         it learns, and has had no label yet
├── PolicyError         a policy of one's own failed                   (RuntimeError)
├── LimitError          a limit on cells or levels was reached         (RuntimeError)
├── MissingExtra        an optional package is not installed           (ImportError)
├── PeerError           no valid response from a peer                  (ConnectionError)
│   ├── PeerBusy            temporarily overloaded; retry after `wait_s`
│   ├── PeerDeclined        message rejected; do not retry
│   └── PeerRefused         site or key not on the allow list
├── UnknownSite         no site of a network has this name             (KeyError)
├── StoreError          store cannot be read or written                (OSError)
│   ├── StoreAway           in use by another node, or its server is away
│   ├── StoreFull           the disk is full
│   └── StoreFailed         a write failed; the node has stopped
└── TicketError         a label that cannot be settled                 (LookupError)
    ├── UnknownTicket       never issued, or label-wait has expired
    │   ├── LateLabel           issued, but label-wait has expired
    │   └── UnknownRow          no such row in the batch               (DataError)
    └── ConflictingLabel    another label was settled for this ticket
"""

import importlib
import traceback
from typing import Any


def place_of(error: BaseException) -> str:
    """Return where in the code something was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


class CoveyError(Exception):
    """Base class of all errors that covey raises."""


class ConfigError(CoveyError, ValueError):
    """Invalid configuration; the message names the field and the remedy."""


class UnknownSite(CoveyError, KeyError):
    """No site of a network has this name."""

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return str(self.args[0]) if self.args else ""


class DataError(CoveyError, ValueError):
    """Invalid row or column; the message names both."""


class ContextError(DataError):
    """A context of the wrong length, not finite, or outside [0, 1]."""


class UnfitLabel(DataError):
    """A true label that is not one of the site's classes."""


class FunctionError(CoveyError, RuntimeError):
    """A classification function raised an exception, or returned an invalid label."""


class PolicyError(CoveyError, RuntimeError):
    """A policy of one's own raised, or returned what is not an available arm."""


class LimitError(CoveyError, RuntimeError):
    """A limit on the number of cells or on their level was reached."""


class FunctionBusy(FunctionError, LimitError):
    """A classification function did not return in time, or is not free now."""


class NoAnswerYet(FunctionError):
    """A classification function that learns has no answer before its first labels."""


class MissingExtra(CoveyError, ImportError):
    """An optional package is not installed; the message names the extra to install."""


def need_of(what: str, packages: str, *, extra: str) -> str:
    """Return the sentence that names missing packages, and how to install their extra.

    It names a clone: covey is on no package index, where another project could take its name.
    """
    return (
        f'{what} need {packages}; install the extra in a clone of covey: pip install ".[{extra}]"'
    )


def optional_module(name: str, *, missing: str) -> Any:
    """Return an optional module; raise `MissingExtra` with this message if it is not installed."""
    try:
        importlib.import_module(name.partition(".")[0])
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise MissingExtra(missing) from None


class PeerError(CoveyError, ConnectionError):
    """A peer did not respond in time, or sent an invalid response."""


class PeerRefused(PeerError):
    """A site presented no certificate, or one that is not on the allow list."""


class PeerBusy(PeerError):
    """A peer that is temporarily overloaded; retry after `wait_s`."""

    def __init__(self, message: str, *, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class PeerDeclined(PeerError):
    """A peer rejected the message for the given reason; do not retry."""


class StoreError(CoveyError, OSError):
    """A store is damaged, of another form, of another site, in use, or cannot be written."""


class StoreAway(StoreError):
    """A store that another node has in use, or whose server cannot be reached now."""


class StoreFull(StoreError):
    """The disk of a store is full."""


class StoreFailed(StoreError):
    """A write to the store of a running node failed; the node has stopped."""


class TicketError(CoveyError, LookupError):
    """A label that cannot be settled."""


class UnknownTicket(TicketError):
    """The ticket was never issued, or label-wait has expired."""


class LateLabel(UnknownTicket):
    """The ticket was issued, but label-wait has expired."""


class UnknownRow(UnknownTicket, DataError):
    """The batch has no such row, or the ticket is not of a batch."""


class ConflictingLabel(TicketError):
    """Another label has already been settled for this ticket."""
