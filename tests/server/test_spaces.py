"""A message says what its cells mean, and a site that means others refuses it by name."""

import re
from typing import Any

import msgspec
import pytest
from test_peer_api import BODIES, call, world_of

from covey.config import learner_of, load
from covey.errors import DataError
from covey.server.http import HttpRequest
from covey.server.peer_api import PeerApi
from covey.server.spaces import SpaceNames, announced, names_of
from support import virtual
from support.message_links import neighbour, respond

HOUR = {"column": "hour", "scale": "linear", "low": 0.0, "high": 24.0}


def names(*contexts: Any, place: int = 0) -> SpaceNames:
    """Return the spaces of a site whose file lists learners with these contexts."""
    setup = load(
        {
            "learner": [
                {"name": f"site{k}", "functions": [f"f{k}"], "context": context}
                for k, context in enumerate(contexts)
            ]
        }
    )
    return names_of(setup, learner_of(setup, place, setup.context.dimension))


def headers(sender: SpaceNames) -> dict[str, str]:
    """Return the headers of a message as a server reads them."""
    return {name.lower(): value for name, value in sender.announcement().items()}


@pytest.mark.parametrize(
    ("sender", "receiver", "sent", "here"),
    [
        (names(["a"]), names(["a"]), "g2:1", "g2:1"),
        (names(["a"], ["b"]), names(["a"]), "a/g2:1", "g2:1"),
        (names(["a"]), names(["b"], ["a"]), "g2:1", "a/g2:1"),
        (names(["a"], ["b"], place=1), names(["b"], ["a"]), "b/g2:1", "b/g2:1"),
        (names(["a", "b"]), names(["c"], ["a", "b"]), "g2:1:0", "a+b/g2:1:0"),
        (names(["wetter, südlich = 1"]), names(["wetter, südlich = 1"], []), "g2:1", None),
    ],
)
def test_a_cell_is_found_by_what_it_means_whatever_its_space_is_called(
    sender: SpaceNames, receiver: SpaceNames, sent: str, here: str | None
) -> None:
    found = receiver.local(sent, headers(sender), sender="north")

    assert found == (here or "wetter, südlich = 1/g2:1")


@pytest.mark.parametrize(
    ("sender", "receiver", "said"),
    [
        (names(["a"]), names(["b"]), "'north' asks by contexts 'a', and 'site0' knows 'b'"),
        (names(["a", "b"]), names(["b", "a"]), "contexts 'a+b'"),
        (names([HOUR]), names(["hour"]), "contexts 'hour' of 'north' are scaled in another way"),
    ],
)
def test_cells_of_another_meaning_are_refused_by_name(
    sender: SpaceNames, receiver: SpaceNames, said: str
) -> None:
    with pytest.raises(DataError, match=re.escape(said)):
        receiver.local("g2:1", headers(sender), sender="north")


def test_a_site_whose_clients_send_contexts_announces_and_compares_nothing() -> None:
    by_clients = names([])

    assert by_clients.announcement() == {}
    assert by_clients.local("g2:1", headers(names(["a"])), sender="north") == "g2:1"
    assert names(["a"]).local("g2:1", headers(by_clients), sender="north") == "g2:1"


def test_a_greeting_says_the_spaces_that_a_site_asks_in_and_those_that_it_knows() -> None:
    here = names(["a"], ["b"])

    own, known = announced(here.description())

    assert ([one.name for one in own], [one.name for one in known]) == (["a"], ["a", "b"])


@pytest.mark.parametrize("name", ["ask", "report"])
@virtual.timed
async def test_a_message_about_cells_of_another_meaning_is_refused_and_counts_nothing(
    name: str,
) -> None:
    def sent(spaces: SpaceNames) -> HttpRequest:
        one = call(name, BODIES[name])
        return HttpRequest(
            one.method, one.path, {**one.headers, **headers(spaces)}, one.body, one.who
        )

    world = world_of()
    back = PeerApi(world.nodes["south"], {"north": neighbour("north")}, spaces=names(["a", "b"]))
    refused = await respond(back, sent(names(["b", "a"])))
    before = world.nodes["south"].state().cells
    taken = await respond(back, sent(names(["a", "b"])))

    assert (refused.status, taken.status, before) == (422, 200, 0)
    problem = msgspec.json.decode(refused.body)
    assert problem["code"] == "invalid"
    assert "'north' asks by contexts 'b+a', and 'site0' knows 'a+b'" in problem["detail"]
