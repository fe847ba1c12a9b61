"""Ports for servers of tests that others must know before they listen."""

import socket


def free_port() -> int:
    """Return a port of the loopback that stays reserved for the server of a test.

    A socket that is bound there, and never listens, keeps it: the system gives the port to no
    outgoing connection and to no other test, and whoever sets SO_REUSEADDR, as servers do, can
    listen there. Until then connections to it are refused.
    """
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))  # without SO_REUSEADDR: nobody else is bound there
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port: int = reserved.getsockname()[1]
    reserved.detach()  # stays open until this process ends
    return port


def is_served(root: str) -> bool:
    """Return whether anything takes connections at a URL."""
    host, _, port = root.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionError:  # refused, or reset as the port was being closed
        return False
    return True
