"""Where a site listens."""

import errno
import socket
from typing import NamedTuple

from covey.errors import ConfigError


class Address(NamedTuple):
    """A host and a port; port 0 is any free one."""

    host: str
    port: int

    def bind(self, *, backlog: int = 128) -> socket.socket:
        """Return a socket that listens here; raise `ConfigError` if that cannot be."""
        try:
            family = socket.getaddrinfo(*self, type=socket.SOCK_STREAM)[0][0]
            bound = socket.create_server(self, family=family, backlog=backlog)
        except OSError as error:
            raise ConfigError(f"cannot serve at {self.host}:{self.port}: {_why(error)}") from None
        return bound


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "it is in use by another process; stop that, or give another address"
    return error.strerror or str(error)
