"""Calls between a router and a shard over one connected socket, many at a time, in order.

A frame is its length in four bytes and MessagePack: a number and a call, or a number, the name of
an error and what the call gave. Calls arrive in the order in which they were made; answers come as
they are ready.
"""

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from covey import errors
from covey.errors import CoveyError
from covey.server.shard_messages import ANSWERS, AnyCall

log = logging.getLogger(__name__)
HEAD = 4  # bytes
ERRORS: dict[str, type[CoveyError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, CoveyError)
}
UNEXPECTED = "unexpected"  # the name of an error that no code expects
Answer = Callable[[AnyCall], Awaitable[Any]]


class ChannelClosed(CoveyError):
    """The process at the other end is gone; what it did with the call is not known."""


_calls = msgspec.msgpack.Decoder(tuple[int, AnyCall])
_replies = msgspec.msgpack.Decoder(tuple[int, str, msgspec.Raw])
_decoders = {kind: msgspec.msgpack.Decoder(gives) for kind, gives in ANSWERS.items()}
_encoder = msgspec.msgpack.Encoder()


class Channel(asyncio.Protocol):
    """One end of a connection: reads frames, and sends those of one round of the loop together."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._outgoing = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether the other end is there."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) >= at + HEAD:
            end = at + HEAD + int.from_bytes(received[at : at + HEAD], "big")
            if len(received) < end:
                break
            self._take(bytes(received[at + HEAD : end]))
            at = end
        del received[:at]

    def _take(self, frame: bytes) -> None:
        raise NotImplementedError

    def _send(self, message: Any) -> None:
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        start = len(self._outgoing)
        self._outgoing += b"\0" * HEAD
        _encoder.encode_into(message, self._outgoing, start + HEAD)
        size = len(self._outgoing) - start - HEAD
        self._outgoing[start : start + HEAD] = size.to_bytes(HEAD, "big")

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, bytearray()
        if outgoing and self._transport is not None:
            self._transport.write(bytes(outgoing))


class CallingEnd(Channel):
    """The end of the router."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[asyncio.Future[Any], type[Any]]] = {}

    async def call(self, call: AnyCall) -> Any:
        """Return what the other end gives; raise its `CoveyError`, or `ChannelClosed`."""
        if self._transport is None:
            raise ChannelClosed("the other end is gone")
        number = next(self._numbers)
        given: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = given, type(call)
        self._send((number, call))
        try:
            return await given
        finally:
            self._waiting.pop(number, None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for given, _ in self._waiting.values():
            if not given.done():
                given.set_exception(ChannelClosed("the other end is gone"))

    def _take(self, frame: bytes) -> None:
        number, error, raw = _replies.decode(frame)
        if number not in self._waiting:  # its caller waits no longer
            return
        given, kind = self._waiting.pop(number)
        if given.done():
            return
        if not error:
            given.set_result(_decoders[kind].decode(raw))
            return
        sentence = msgspec.msgpack.decode(raw, type=str)
        if error == UNEXPECTED:
            given.set_exception(RuntimeError(sentence))
        else:
            given.set_exception(ERRORS[error](sentence))


class AnsweringEnd(Channel):
    """The end of a shard."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()

    def _take(self, frame: bytes) -> None:
        number, call = _calls.decode(frame)
        task = asyncio.get_running_loop().create_task(self._reply(number, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reply(self, number: int, call: AnyCall) -> None:
        try:
            given = await self._answer(call)
        except CoveyError as error:
            kind = next(one for one in type(error).__mro__ if ERRORS.get(one.__name__) is one)
            self._send((number, kind.__name__, str(error)))
        except Exception as error:
            log.error("unexpected failure of a call", exc_info=error)
            self._send((number, UNEXPECTED, repr(error)))
        else:
            self._send((number, "", given))


async def connected(make: Callable[[], Channel], end: socket.socket) -> Channel:
    """Return an end of a connection over a socket."""
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_unix_connection(make, sock=end)
    return channel
