"""A site's file says which sites it knows and what each may; whatever it does not say is denied."""

from pathlib import Path
from typing import Any

import pytest

from covey.bandit.learner import Learner
from covey.errors import PeerError
from covey.network.local_site import ticket_state
from covey.server import config
from covey.server.config import PeerConfig
from covey.server.peer_client import check_may_see
from covey.site.requests import AskRow, Request
from support.served import CONSTANTS
from support.snapshots import snapshot_of

KEY = "p256:A2sX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKW"
SOUTH = f'[[peer]]\nname = "south"\nkey = "{KEY}"\n'
SITE = (
    """
[node]
name = "north"
features = { size = "FP64" }
store = "north.store"
dimension = 1
certificate = "north.crt"
key = "north.key"
peer-address = "127.0.0.1:0"

[policy]
preset = "cos"
slices = 2

[[learner]]
name = "north"
functions = ["zero", "one"]
PEERS
"""
    + CONSTANTS
)


def load(folder: Path, peers: str, tables: str) -> config.SiteConfig:
    path = folder / "site.toml"
    path.write_text(SITE.replace("PEERS", peers) + tables)
    return config.load(path)


def test_the_default_permissions_deny() -> None:
    (one,) = config.read_peers([{"name": "south", "key": KEY}], own_name="north").values()

    assert one == PeerConfig(
        name="south", key=KEY, url=None, share="none", trust="earned", may_ask=False
    )
    assert not one.asks_by_context


@pytest.mark.parametrize(
    ("share", "is_shown_cells", "is_shown_data"),
    [("none", False, False), ("context", True, False), ("data", True, True)],
)
def test_a_peer_is_sent_only_what_it_may_see(
    share: Any, is_shown_cells: bool, is_shown_data: bool
) -> None:
    cell, data = AskRow("a", "g1:0", 1), AskRow("b", "g1:0", 1, [1.0])

    def is_shown(*requests: AskRow) -> bool:
        try:
            check_may_see(share, requests)
        except PeerError:
            return False
        return True

    assert is_shown(cell) == is_shown_cells
    assert is_shown(data) == is_shown_data
    assert is_shown(cell, data) == is_shown_data


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("https://South.Example", "https://south.example:443"),
        ("https://10.0.0.7:8443/", "https://10.0.0.7:8443"),
        ("https://[::1]:8443", "https://[::1]:8443"),
    ],
)
def test_a_site_is_reached_at_a_host_and_a_port(url: str, root: str) -> None:
    known = config.read_peers([{"name": "south", "key": KEY, "url": url}], own_name="north")

    assert known["south"].url == root


# -- with the learner ---------------------------------------------------------------------------

URL = 'url = "https://127.0.0.1:8443"\n'


def test_peers_are_arms_in_the_order_of_the_file(tmp_path: Path) -> None:
    east = SOUTH.replace("south", "east")
    served = load(
        tmp_path,
        "peers = { east = 0.1, south = 0.2 }",
        SOUTH + URL + 'share = "data"\n' + east + URL + 'share = "data"\n',
    )

    assert served.learner.arms == ("zero", "one", "south", "east")
    assert served.learner.costs == (0.0, 0.0, 0.2, 0.1)


def test_a_peer_that_sees_the_cell_needs_no_more_than_context(tmp_path: Path) -> None:
    served = load(
        tmp_path, "peers = {}\ncontext-peers = { south = 0.1 }", SOUTH + URL + 'share = "context"\n'
    )

    assert served.learner.behind() == [("south", True)]


def label(learner: Learner, truth: int, *, slot: int) -> str:
    """Let a learner decide and learn a label; return the cell."""
    state = ticket_state(learner)
    code = learner.decide((0.1,), slot)
    answered: Any = {"predictions": [0], "answers": [0], "contexts": [(0.1,)]}
    request = state.accept(Request(space=learner.space, slot=slot, **answered), [code])
    state.settle(request, {0: truth})
    return request.group(0).cell


def test_labels_are_stored_by_cell_only_with_asks_by_context(tmp_path: Path) -> None:
    def has_memory(more: str) -> bool:
        learner = load(tmp_path, "", SOUTH + "may-ask = true\n" + more).learner
        label(learner, 0, slot=1)
        return bool(snapshot_of(learner).seen)

    assert has_memory("asks-by-context = true\n")
    assert not has_memory("")
