"""The `[limits]` table of a site's file: sizes, times, connections and requests."""

from collections.abc import Mapping

import msgspec

from covey import fields
from covey.errors import ConfigError

KIB = 1_024
MIB = 1_024 * KIB
JSON = "application/json"
PEER_ROWS = 1_024  # of one request of a peer
TICKET_LIMITS = ("tickets", "peer_tickets")


class SiteLimits(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The limits of a site; clients and peers have a port each and are counted separately."""

    json_kib: int = 256  # of a body in JSON
    binary_kib: int = 16_384  # of any other body
    bodies_mib: int = 256  # of all bodies that are held at once
    head_kib: int = 16  # of a request's head
    depth: int = 8  # of JSON: lists and objects within each other
    rows: int = 1_024  # of a request
    handshake_s: float = 5.0  # within which TLS is agreed on
    head_s: float = 5.0  # within which the head of a request comes
    body_s: float = 10.0  # within which its body comes
    answer_s: float = 10.0  # within which the answer is taken
    idle_s: float = 60.0  # after which a connection without a request is closed
    finish_s: float = 15.0  # to finish requests in progress at the end
    connections: int = 256
    connections_per_address: int = 128
    in_flight: int = 64  # requests that are being answered
    queue: int = 256  # requests that wait for their turn
    requests_per_s: float | None = None  # of a client; None: 1,000 off the loopback
    tickets: int = 1_000_000  # of own clients in memory, labelled or not; more for a long wait
    peer_tickets: int = 100_000  # of each peer; the same
    tickets_kept: int = 1_000_000  # in the store; of older ones it keeps what they counted
    cells: int = 65_536  # that each peer may make known

    def most_bytes(self, kind: str) -> int:
        """Return the largest body of a content type, in bytes."""
        is_json = kind.partition(";")[0].strip().lower() == JSON
        return (self.json_kib if is_json else self.binary_kib) * KIB


RANGES: fields.Ranges = {
    "json_kib": (1, 65_536),
    "binary_kib": (1, 1_048_576),
    "bodies_mib": (1, 1_048_576),
    "head_kib": (1, 1_024),
    "depth": (5, 64),
    "rows": (1, 65_536),
    "handshake_s": (0.05, 600),
    "head_s": (0.05, 600),
    "body_s": (0.05, 600),
    "answer_s": (0.05, 600),
    "idle_s": (0.05, 86_400),
    "finish_s": (0, 600),
    "connections": (1, 65_536),
    "connections_per_address": (1, 65_536),
    "in_flight": (1, 65_536),
    "queue": (0, 65_536),
    "requests_per_s": (0.001, 1e9),
    "tickets": (1, 1e8),
    "peer_tickets": (1, 1e8),
    "tickets_kept": (1, 1e10),
    "cells": (1, 1e8),
}


def read(table: object, *, label_wait: int) -> SiteLimits:
    """Return the limits of a table, for a site that waits so many slots for a label.

    Raises `ConfigError` for one that makes no sense, or by which the site would refuse for good.
    """
    limits = fields.read(table, SiteLimits, where="[limits]")
    fields.check_ranges(limits, RANGES, where="[limits]")
    given = table if isinstance(table, Mapping) else {}
    room = {
        name: _room(name, limits, label_wait, is_given=_key(name) in given)
        for name in TICKET_LIMITS
    }
    return msgspec.structs.replace(limits, **room)


def _room(name: str, limits: SiteLimits, label_wait: int, *, is_given: bool) -> int:
    """Return for how many tickets there is to be room; what was left out is made to fit.

    A ticket is held until `label_wait` slots have passed, which only new tickets let pass. Besides,
    rows wait for the last of their request, and the next request needs room.
    """
    rows = limits.rows if name == "tickets" else PEER_ROWS
    room, needed, (_, most) = getattr(limits, name), label_wait + 2 * rows, RANGES[name]
    waits = f"[policy] label-wait is {label_wait}, and the tickets of so many slots are held"
    if needed > most:
        raise ConfigError(f"{waits}; make it {most - 2 * rows:.0f} at most")
    if is_given and room < needed:
        raise ConfigError(
            f"{waits}, for which [limits] {_key(name)} = {room} is no room; make that {needed} or "
            "more, or label-wait less"
        )
    return int(max(room, needed))


def _key(name: str) -> str:
    return name.replace("_", "-")
