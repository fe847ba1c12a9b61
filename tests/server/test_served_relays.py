"""Files of sites that relay, or ask through relays: what is refused, and what the doctor finds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from covey.errors import ConfigError
from covey.server import config
from support.examined import FEATURES, FUNCTION, examine, states
from support.site_processes import Client, Offices, served, table

pytestmark = pytest.mark.beside_the_kernel
NAMES = ["north", "south", "west"]


@pytest.fixture(scope="module")
def offices(tmp_path_factory: pytest.TempPathFactory) -> Offices:
    return Offices(tmp_path_factory.mktemp("offices"), NAMES)


def site(offices: Offices, name: str, own: dict[str, Any], *peers: str) -> str:
    return "\n".join(
        [
            offices.node(name, features=FEATURES, dimension=1),
            table("[policy]", {"preset": "cos", "slices": 2}),
            table("[[learner]]", {"name": name, "functions": ["zero"], **own}),
            FUNCTION,
            *peers,
        ]
    )


def north(offices: Offices, **south: Any) -> str:
    """Return the file of a site that asks west through south."""
    known = {"share": "data", "relays": {"west": 0.04}, **south}
    return site(offices, "north", {"peers": {"south": 0.05}}, offices.peer("south", **known))


def south(offices: Offices, *, relay: bool = True, may_ask: bool = True) -> str:
    own = {"peers": {"west": 0.04}, **({"relay": True} if relay else {})}
    asking = {"may-ask": True} if may_ask else {}
    return site(
        offices,
        "south",
        own,
        offices.peer("north", **asking),
        offices.peer("west", share="data"),
    )


def west(offices: Offices) -> str:
    return site(offices, "west", {}, offices.peer("south", **{"may-ask": True}))


def loaded(offices: Offices, text: str) -> config.SiteConfig:
    path = offices.folder / "loaded.toml"
    path.write_text(text)
    return config.load(path)


def test_a_site_behind_a_relay_is_an_arm_and_needs_no_table(offices: Offices) -> None:
    found = loaded(offices, north(offices))

    assert found.learner.arms == ("zero", "south", "west")
    assert found.learner.costs == pytest.approx((0.0, 0.05, 0.09))
    assert (found.relays, found.is_relay) == ({"west": "south"}, False)
    assert list(found.neighbours) == ["south"]


def test_links_and_relay_of_a_learner_say_the_same_as_relays_of_a_peer(offices: Offices) -> None:
    known = {"name": "south", "functions": ["s"], "relay": True}
    far = {"name": "west", "functions": ["w"]}
    links = [("north", "south", 0.05), ("south", "west", 0.04)]
    text = site(
        offices,
        "north",
        {},
        *(table("[[learner]]", one) for one in (known, far)),
        *(table("[[link]]", {"from": a, "to": b, "cost": cost}) for a, b, cost in links),
        offices.peer("south", share="data"),
    )
    found, other = loaded(offices, text), loaded(offices, north(offices))

    assert found.learner.arms == other.learner.arms
    assert found.learner.costs == other.learner.costs
    assert found.relays == other.relays


def test_a_budget_of_a_relay_must_allow_an_answer_from_behind_it(offices: Offices) -> None:
    found = loaded(offices, north(offices, budget={"per-day": 0.5}))

    assert found.budgets.peers == {"south": 500_000}
    with pytest.raises(ConfigError, match=r"budget per-day is 0.07, less than the price 0.09"):
        loaded(offices, north(offices, budget={"per-day": 0.07}))


def test_what_cannot_be_combined_with_relays_is_refused_by_both_keys(offices: Offices) -> None:
    link = table("[[link]]", {"from": "north", "to": "south", "cost": 0.05})
    learner = table("[[learner]]", {"name": "south", "functions": ["s"]})
    plain = north(offices)
    for text, sentence in (
        (plain.replace("peers = { south = 0.05 }", "") + link, "relays, but the file has .*link"),
        (plain + learner, r"'south' has relays, but the file has a \[\[learner\]\] table 'south'"),
        (north(offices, share="context"), "needs share = 'data'"),
        (
            south(offices).replace("peers = { west = 0.04 }", "peers = {}"),
            "'south' has relay = true, but no peers",
        ),
        (
            south(offices) + table("[ensemble]", {"update": "majority"}),
            r"relay = true, which cannot be combined with \[ensemble\]",
        ),
    ):
        with pytest.raises(ConfigError, match=sentence):
            loaded(offices, text)


def asked(clients: dict[str, Client], ids: Sequence[str]) -> list[str]:
    """Send instances to north; return the arms that answered."""
    arms = []
    for id_ in ids:
        inputs = [
            {"name": "size", "shape": [1], "datatype": "FP64", "data": [1.0]},
            {"name": "context", "shape": [1, 1], "datatype": "FP64", "data": [0.5]},
        ]
        arms.append(clients["north"].infer(id_, inputs)["parameters"]["arm"])
        clients["north"].label(id_, 0)
    return arms


def test_a_site_begins_to_relay_when_its_file_is_read_again(offices: Offices) -> None:
    sites = {"south": south(offices, relay=False), "west": west(offices), "north": north(offices)}
    with served(offices.folder, sites) as clients:
        before = examine(offices.folder, north(offices))["peer south, relaying"].state
        (offices.folder / "south.toml").write_text(south(offices))
        clients["south"].reload()
        while examine(offices.folder, north(offices))["peer south, relaying"].state != "ok":
            pass  # reading takes its time
        arms = asked(clients, [f"a{k}" for k in range(20)])
        relayed = clients["south"].state()["phases"]["relay"]

    assert before == "failure"
    assert relayed == arms.count("west") > 0


@pytest.mark.parametrize("is_relay", [True, False])
def test_the_doctor_says_whether_a_peer_forwards(
    offices: Offices, tmp_path: Path, is_relay: bool
) -> None:
    sites = {"south": south(offices, relay=is_relay), "west": west(offices)}
    with served(offices.folder, sites) as clients:
        before = [client.state()["for_peers"] for client in clients.values()]
        found = examine(offices.folder, north(offices))
        after = [client.state()["for_peers"] for client in clients.values()]

    assert states(found) == ({} if is_relay else {"peer south, relaying": "failure"})
    message = found["peer south, relaying"].message
    if is_relay:
        assert message == "forwards questions to 'west'"
    else:
        assert "must set relay = true in [[learner]] 'south', 'west' in its peers" in message
    assert before == after


def test_the_doctor_says_for_whom_a_site_forwards(offices: Offices) -> None:
    found = examine(offices.folder, south(offices))
    nobody = examine(offices.folder, south(offices, may_ask=False))

    assert "forwards questions of 1 peers that may ask to west" in found["relay"].message
    assert (nobody["relay"].state, found["relay"].state) == ("warning", "ok")
    assert "relay = true, but no [[peer]] has may-ask = true" in nobody["relay"].message


def test_the_doctor_warns_of_sites_behind_a_relay_that_are_never_asked(offices: Offices) -> None:
    dear = north(offices, relays={"west": 0.96})
    lonely = north(offices).replace("peers = { south = 0.05 }", "peers = {}")
    fine = north(offices)

    for text, state in ((dear, "warning"), (lonely, "warning"), (fine, None)):
        found = examine(offices.folder, text).get("relay")
        assert (None if found is None else found.state) == state
        if found is not None:
            assert "'west' is in relays of 'south', but is never asked" in found.message


LINK = {"from": "north", "to": "south", "cost-column": "line"}


def over_links(offices: Offices, *more: str, **peer: Any) -> str:
    known = {"share": "data", **peer}
    return site(
        offices, "north", {}, table("[[link]]", LINK), offices.peer("south", **known), *more
    )


def test_the_doctor_says_where_costs_of_links_come_from(offices: Offices) -> None:
    found = examine(offices.folder, over_links(offices))["link costs"]

    assert found.message == "learnt every 100 slots from `cost` of labels, which has line by name"


def test_a_budget_may_limit_prices_that_are_learnt_from_nothing(offices: Offices) -> None:
    budget = {"budget": {"per-day": 5.0}}

    assert loaded(offices, over_links(offices, **budget)).budgets.peers == {"south": 5_000_000}


def test_a_served_site_refuses_learnt_links_with_relays_by_both_keys(offices: Offices) -> None:
    relay = table("[[learner]]", {"name": "south", "functions": ["s"], "relay": True})

    with pytest.raises(ConfigError, match=r"\[\[link\]\] with cost-column and relay = true"):
        loaded(offices, over_links(offices, relay))
