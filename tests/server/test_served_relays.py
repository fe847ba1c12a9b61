"""Sites that relay, or ask through relays: their files, and what the doctor finds."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from covey.server import config, tokens
from support.coroutines import looped
from support.examined import FEATURES, examine, states
from support.served import FEEDBACK, INFER, INPUTS, infer, serving_all
from support.site_processes import Offices, table

ROW = [one for one in INPUTS if one["name"] != "kind"]


@pytest.fixture
def offices(tmp_path: Path) -> Offices:
    return Offices(tmp_path, ["north", "south", "west"])


def site(offices: Offices, name: str, own: dict[str, Any], *peers: str, **node: Any) -> str:
    policy = table("[policy]", {"preset": "cos", "slices": 2})
    more = {"learner": own, "features": FEATURES, "dimension": 1, **node}
    return offices.file(name, policy, *peers, **more)


def north(offices: Offices, **south: Any) -> str:
    """Return the file of a site that asks west through south."""
    known = {"share": "data", "relays": {"west": 0.04}, **south}
    return site(offices, "north", {"peers": {"south": 0.05}}, offices.peer("south", **known))


def south(offices: Offices, *, relay: bool = True, may_ask: bool = True, **node: Any) -> str:
    own = {"peers": {"west": 0.04}, **({"relay": True} if relay else {})}
    asker = offices.peer("north", **({"may-ask": True} if may_ask else {}))
    return site(offices, "south", own, asker, offices.peer("west", share="data"), **node)


def west(offices: Offices) -> str:
    return site(offices, "west", {}, offices.peer("south", **{"may-ask": True}))


def loaded(offices: Offices, text: str) -> config.SiteConfig:
    path = offices.folder / "loaded.toml"
    path.write_text(text)
    return config.load(path)


def test_a_site_behind_a_relay_is_an_arm_and_needs_no_table(offices: Offices) -> None:
    found = loaded(offices, north(offices, budget={"per-day": 0.5}))

    assert found.learner.arms == ("zero", "south", "west")
    assert found.learner.costs == pytest.approx((0.0, 0.05, 0.09))
    assert (found.relays, found.is_relay) == ({"west": "south"}, False)
    assert list(found.neighbours) == ["south"]
    assert found.budgets.peers == {"south": 500_000}


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


@looped
async def test_a_site_begins_to_relay_when_its_file_is_read_again(
    offices: Offices,
) -> None:
    folder, text = offices.folder, north(offices)
    secret, _ = tokens.new(folder / "tokens.json", "operator", scopes=tokens.SCOPES)
    own = {"tokens": str(folder / "tokens.json")}

    files = {"south": south(offices, relay=False, **own), "west": west(offices), "north": text}
    async with serving_all(folder, files) as clients:
        operator = clients["south"].known_by(secret)
        (folder / "south" / "site.toml").write_text(south(offices, **own))
        assert (await operator.post("/admin/reload", b""))[0] == 200
        after = await asyncio.to_thread(examine, folder / "north", text)
        for k in itertools.count():
            _, told = await clients["north"].post(INFER, infer(f"a{k}", inputs=ROW))
            await clients["north"].post(FEEDBACK, {"id": f"a{k}", "truth": 0})
            if told["parameters"]["arm"] == "west":  # which is reached through south alone
                break

    assert states(after) == {}
