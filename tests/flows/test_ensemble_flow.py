"""A node that answers with the vote of all, without some of them, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from covey.config import load
from covey.node.node import Question
from golden.configurations import SITES, configurations
from golden.doors import Stream, World
from golden.https import file_of
from support import virtual
from support.examined import examine
from support.site_processes import Offices

GOLDEN = {golden.name: golden for golden in configurations()}
IN_CELLS, GLOBAL = GOLDEN["votes by majority in cells, cos"], GOLDEN["votes by gradient, cos"]


@virtual.timed
async def test_a_site_votes_with_the_peers_that_answer_and_weighs_these_only() -> None:
    stream = Stream(IN_CELLS)
    world = World(IN_CELLS.config, stream.functions, dimension=1, trust="full")
    world.setup = world.setup._replace(ensemble=load(GLOBAL.config).ensemble)
    world.crash("site0")
    world.boot("site0")
    before = world.nodes["site0"].state().ensemble
    world.crash("site2")
    answers = []
    for slot in range(20):
        node, row = world.nodes["site0"], stream.records[slot]
        ticket = await node.predict(row, (row["x"],), question=Question("", str(slot)))
        await node.learn(str(slot), row["label"])
        answers.append(ticket.label)
    after = world.nodes["site0"].state().ensemble

    assert set(answers) == {0, 1}
    assert after[""]["site2"] == before[""]["site2"]
    assert after[""]["site0"] != before[""]["site0"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"peers": {}}, "no peers to vote with"),
        ({"peers": {"site1": 0.1}}, "a price for site1 in peers"),
        ({"context-peers": {"site1": 0.0}}, "context-peers"),
        ({"supervised": False}, "supervised = false"),
        ({"view": [{"columns": ["x"]}]}, "[[learner.view]]"),
        ({"free": True}, "free functions"),
    ],
)
def test_what_cannot_be_combined_with_a_vote_is_refused_with_both_keys(
    tmp_path: Path, own: dict[str, Any], said: str
) -> None:
    site = {"name": "site0", "functions": ["f0", "f1"], "peers": {"site1": 0.0}, **own}
    alone = GLOBAL._replace(config={**GLOBAL.config, "learner": [site]})

    found = examine(
        tmp_path, file_of(alone, Stream(alone), Offices(tmp_path, list(SITES)), "site0")
    )

    failures = [one.message for one in found.values() if one.state == "failure"]
    assert any("[ensemble]" in failure and said in failure for failure in failures), failures
