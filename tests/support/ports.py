"""Ports for servers of tests that others must know before they listen."""

import itertools
import os
import socket

# Below the range from which Linux takes ports of outgoing connections: a port that is drawn
# there may be in use by some client's connection when its server begins to listen.
LOWEST, HIGHEST = 15_000, 32_000
# Processes of one test run, and runs side by side, begin at different ports.
_NEXT = itertools.count(os.getpid() * 101)


def free_port() -> int:
    """Return a port of the loopback at which nobody listens; each call gives another one."""
    while True:
        port = LOWEST + next(_NEXT) % (HIGHEST - LOWEST)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
