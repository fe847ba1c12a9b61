"""Bugs in how messages are read, what they show, and which labels train functions."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from covey.errors import FunctionError
from covey.node.functions import Trainer, Training
from covey.node.node import Sections
from covey.server import peer_api as backs
from covey.server import peer_client, peer_messages
from covey.server.http import HttpProblem
from covey.site.handler import Draft, Group, Handler
from covey.site.requests import NONE, Request
from covey.site.state import SiteState, StoredState

Patch = pytest.MonkeyPatch


def accepts_the_response_to_another_message(patch: Patch) -> None:
    def read(body: bytes, kind: Any, message: peer_messages.PeerMessage) -> Any:
        with contextlib.suppress(HttpProblem):
            request = peer_messages._decoded(body, kind).request
            message = msgspec.structs.replace(message, request=request)
        return real(body, kind, message)

    real = peer_messages.read_answer
    patch.setattr(peer_messages, "read_answer", read)


def ignores_a_byte_after_a_message(patch: Patch) -> None:
    def decoded(body: bytes, kind: Any) -> Any:
        try:
            return real(body, kind)
        except HttpProblem:
            return real(body[:-1], kind)

    real = peer_messages._decoded
    patch.setattr(peer_messages, "_decoded", decoded)


def accepts_messages_of_any_version(patch: Patch) -> None:
    def read(body: bytes, kind: Any) -> Any:
        return peer_messages._decoded(body, kind)

    patch.setattr(peer_messages, "read", read)


def answers_peers_that_may_not_ask(patch: Patch) -> None:
    patch.setattr(backs, "_check_may_ask", lambda peer: None)


def sends_instances_to_peers_that_may_see_cells_only(patch: Patch) -> None:
    async def ask(self: Handler, draft: Draft, group: Group) -> bool:
        choice, view, places = group
        choice = msgspec.structs.replace(choice, is_by_context=False)
        return await real(self, draft, (choice, view, places))

    real = Handler._ask
    patch.setattr(Handler, "_ask", ask)
    patch.setattr(peer_client, "check_may_see", lambda share, requests: None)


def trains_with_labels_of_any_source(patch: Patch) -> None:
    patch.setattr(Handler, "_trains", lambda self, source: True)


def trains_again_after_a_disconnect(patch: Patch) -> None:
    async def run(self: Sections, key: Any, work: Any) -> None:
        await work

    async def train(
        self: Trainer, request: Request, rows: Sequence[int], truths: Mapping[int, Any]
    ) -> None:
        for row in rows:
            arm, instance = request.training[row]
            function = self._functions[self._places()[arm]]
            await self._run(function, Training(function, [instance], [truths[row]]))
            request.training = {k: one for k, one in request.training.items() if k != row}

    patch.setattr(Sections, "run", run)
    patch.setattr(Trainer, "train", train)


def forgets_training_that_failed(patch: Patch) -> None:
    async def train(self: Trainer, request: Request, *given: Any) -> None:
        try:
            await real(self, request, *given)
        except FunctionError:
            request.training = NONE
            raise

    real = Trainer.train
    patch.setattr(Trainer, "train", train)


def trains_with_the_first_row_of_a_request_only(patch: Patch) -> None:
    def accept(self: StoredState, request: Request, codes: Sequence[int]) -> Request:
        training = request.training
        request.training = {row: one for row, one in training.items() if row == min(training)}
        return real(self, request, codes)

    real = SiteState.accept
    patch.setattr(SiteState, "accept", accept)
