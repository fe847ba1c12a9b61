"""The vote of all learners is the same in a replay, a network, nodes and processes."""

from pathlib import Path
from typing import Any

import pytest

from covey.config import load
from covey.node.ensemble import ByArm, SiteEnsemble
from covey.node.node import Question
from support import virtual
from support.examined import examine
from support.flow import Stream, column_file, drawn_stream
from support.presets import fitting
from support.site_processes import Offices

SITES = ["site0", "site1", "site2"]
SLOTS = 900
EARLY = {"slices": 2, "explore": {"scale": 0.5, "power": 0.0}, "check-claims": False}
RULES: dict[str, dict[str, Any]] = {
    "gradient": {"update": "gradient", "step": 0.02},
    "majority": {"update": "majority", "weights": "cell"},
    "hedge": {"update": "hedge"},
}


@pytest.fixture(scope="module")
def play() -> Stream:
    return drawn_stream(3, ["a"], slots=SLOTS)


def config(rule: str, preset: str = "cos", **policy: Any) -> dict[str, Any]:
    settings = fitting({"preset": preset, **EARLY, **policy})
    return {
        "data": {"context": ["a"]},
        "policy": settings,
        "ensemble": {"base": 0, **RULES[rule]},
        "learner": [
            {"name": name, "functions": [f"f{2 * k}", f"f{2 * k + 1}"]}
            for k, name in enumerate(SITES)
        ],
    }


def first(play: Stream, slots: int) -> Stream:
    return play._replace(
        predictions=play.predictions[:, :slots],
        labels=play.labels[:slots],
        contexts=play.contexts[:slots],
    )


class VotingWorld(virtual.World):
    """A network whose first site answers with the vote of all."""

    def answering(self, name: str) -> ByArm:
        assert self.setup.ensemble is not None
        return SiteEnsemble(name, SITES[1:], self.setup.ensemble) if name == "site0" else ByArm()


def test_a_site_votes_with_the_peers_that_answer_and_weighs_these_only(play: Stream) -> None:
    async def main() -> tuple[list[Any], Any, Any]:
        world = VotingWorld(config("majority"), play.functions, dimension=1, trust="full")
        world.setup = world.setup._replace(
            ensemble=load(config("gradient")).ensemble  # global weights
        )
        world.crash("site0")
        world.boot("site0")
        before = world.nodes["site0"].state().ensemble
        world.crash("site2")
        answers = []
        for slot in range(20):
            node, context = world.nodes["site0"], (float(play.contexts[slot, 0]),)
            ticket = await node.predict(slot, context, question=Question("", str(slot)))
            await node.learn(str(slot), int(play.labels[slot]))
            answers.append(ticket.label)
        after = world.nodes["site0"].state().ensemble
        for node in world.nodes.values():
            node.stop()
        return answers, before, after

    answers, before, after = virtual.run(main())

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
        ({"view": [{"columns": ["a"]}]}, "[[learner.view]]"),
        ({"free": True}, "free functions"),
    ],
)
def test_what_cannot_be_combined_with_a_vote_is_refused_with_both_keys(
    play: Stream, tmp_path: Path, own: dict[str, Any], said: str
) -> None:
    setup = config("gradient")
    setup["learner"] = [{**one, "peers": {}} for one in setup["learner"]]
    setup["learner"][0] |= {"peers": {"site1": 0.0}, **own}

    found = examine(tmp_path, column_file(Offices(tmp_path, SITES), play, setup, "site0", known=[]))

    failures = [one.message for one in found.values() if one.state == "failure"]
    assert any("[ensemble]" in one and said in one for one in failures), failures
