"""Every deliberate error of covey.

CoveyError
├── ConfigError         a configuration that cannot be used            (ValueError)
├── DataError           a row or column that cannot be used            (ValueError)
│   ├── ContextError    a context outside the unit cube
│   └── UnfitLabel      a label that a site does not have
├── FunctionError       a classification function failed               (RuntimeError)
├── LimitError          a stated cap on cells or levels was reached    (RuntimeError)
├── MissingExtra        an optional package is not installed           (ImportError)
├── PeerError           a peer that did not answer, or not sensibly    (ConnectionError)
│   ├── PeerBusy            temporarily overloaded; retry after `wait_s`
│   ├── PeerDeclined        it does not accept such a message, and says why
│   └── PeerRefused         a site that is not the one on the allow list
├── StoreError          a store that cannot be used, or not be written (OSError)
│   ├── StoreFull           its disk is full
│   └── StoreFailed         it failed under a node, which has stopped for that
└── TicketError         a label that cannot be settled                 (LookupError)
    ├── UnknownTicket       never given out, or waited for too long
    │   ├── LateLabel           given out, and waited for too long
    │   └── UnknownRow          of a batch: a row that it does not have (DataError)
    └── ConflictingLabel    another label was settled for this ticket
"""

import warnings


class CoveyError(Exception):
    """The root: catch this to catch all that covey raises on purpose."""


class CoveyDeprecationWarning(FutureWarning):
    """A key or name that has a new place; the old one works for one release."""


def warn_deprecated(old: str, new: str) -> None:
    """Warn that `old` works for one release only, and name what replaces it."""
    warnings.warn(
        f"{old} is deprecated and will be removed in the next release; use {new}",
        CoveyDeprecationWarning,
        stacklevel=3,
    )


class ConfigError(CoveyError, ValueError):
    """A configuration that cannot be used; the message names the field and what to do."""


class DataError(CoveyError, ValueError):
    """A row or a column that cannot be used; the message names both."""


class ContextError(DataError):
    """A context of the wrong length, not finite, or outside [0, 1]."""


class UnfitLabel(DataError):
    """A true label that is not one of those that a site has."""


class FunctionError(CoveyError, RuntimeError):
    """A classification function raised, or answered with something that is not a label."""


class LimitError(CoveyError, RuntimeError):
    """A stated cap on the number of cells or on their level was reached."""


class MissingExtra(CoveyError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class PeerError(CoveyError, ConnectionError):
    """A peer that did not answer in time, or answered something that makes no sense."""


class PeerRefused(PeerError):
    """A site showed no certificate, or not one that the allow list has."""


class PeerBusy(PeerError):
    """A peer that is temporarily overloaded; retry after `wait_s`."""

    def __init__(self, said: str, *, wait_s: float) -> None:
        super().__init__(said)
        self.wait_s = wait_s


class PeerDeclined(PeerError):
    """A peer that does not accept such a message, and says why: do not send it again."""


class StoreError(CoveyError, OSError):
    """A store that is damaged, newer, of another site or in use, or that cannot be written."""


class StoreFull(StoreError):
    """The disk of a store is full."""


class StoreFailed(StoreError):
    """A store could not be written while its node served, so the node has stopped."""


class TicketError(CoveyError, LookupError):
    """A label that cannot be settled."""


class UnknownTicket(TicketError):
    """The ticket was never given out, or its label was waited for too long."""


class LateLabel(UnknownTicket):
    """The ticket was given out, but its label was waited for too long."""


class UnknownRow(UnknownTicket, DataError):
    """A row that a batch does not have, or a row of what is no batch."""


class ConflictingLabel(TicketError):
    """Another label has already been settled for this ticket."""
