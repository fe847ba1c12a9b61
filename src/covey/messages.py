"""Messages between clients and a site: Open Inference Protocol v2, and feedback."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from covey.sources import tables
from covey.sources.remote import Output, Tensor

MOST_ID = 200
Scalar = tables.Scalar
MOST_ROW = 65_535
Place = Annotated[int, Meta(ge=0, le=MOST_ROW)]
Id = Annotated[str, Meta(min_length=1, max_length=MOST_ID)]
TicketId = Annotated[str, Meta(min_length=1, max_length=MOST_ID + len(f":{MOST_ROW}"))]
LENGTH = "Inference-Header-Content-Length"  # bytes of the JSON before those of tensors
OutputName = Literal["label", "ticket", "phase", "arm", "function", "price"]


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """An output that a client asks for; label and ticket by default."""

    name: OutputName
    parameters: dict[str, Scalar] = {}


class Inference(msgspec.Struct, forbid_unknown_fields=True):
    """A request for labels."""

    inputs: list[Tensor]
    id: Id | None = None
    parameters: dict[str, Scalar] = {}
    outputs: list[Wanted] | None = None


class Feedback(msgspec.Struct, forbid_unknown_fields=True):
    """A true label for a ticket, or labels for `rows` of a request."""

    id: TicketId
    truth: Scalar | list[Scalar]
    rows: list[Place] | None = None
    parameters: dict[str, Scalar] = {}


class BinaryFeedback(msgspec.Struct, forbid_unknown_fields=True):
    """Labels for rows of a request, as the tensors `rows` and `truth`."""

    id: Id
    inputs: list[Tensor]
    parameters: dict[str, Scalar] = {}


class Live(msgspec.Struct):
    """Whether the server runs."""

    live: bool


class Ready(msgspec.Struct):
    """Whether it answers, and keeps what it is told."""

    ready: bool


class Server(msgspec.Struct):
    """What the server is."""

    name: str
    version: str
    extensions: list[str]


class TensorKind(msgspec.Struct):
    """A tensor that the model takes or gives; -1 is any number of rows."""

    name: str
    datatype: str
    shape: list[int]


class Model(msgspec.Struct):
    """What the model takes and gives."""

    name: str
    platform: str
    inputs: list[TensorKind]
    outputs: list[TensorKind]


class Answer(msgspec.Struct, omit_defaults=True):
    """Labels and tickets; for a single row also how the decision came about."""

    model_name: str
    id: str
    outputs: list[Output]
    parameters: dict[str, Scalar] = {}


class Settled(msgspec.Struct):
    """What was taken: `new` unless it was there before; lists where `rows` were said."""

    id: str
    new: bool | list[bool]
    right: bool | list[bool]
