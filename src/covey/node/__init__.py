"""Sites at work: the request handler, the in-process network, the durable node."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from covey.node.node import Node

__all__ = ["Node"]


def __getattr__(name: str) -> Any:
    """Import the asynchronous node only where it is used."""
    if name == "Node":
        from covey.node.node import Node

        return Node
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
