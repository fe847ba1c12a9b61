"""The vote of all learners is the same in a replay, a network, nodes and processes."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.config import load
from covey.node.ensemble import ByArm, SiteEnsemble
from covey.node.node import Question
from covey.replay.replay import replay_file
from support import virtual
from support.examined import examine, states
from support.flow import Stream, column_file, drawn_stream, send
from support.presets import fitting
from support.site_processes import Offices, served

SITES = ["site0", "site1", "site2"]
SLOTS = 900
PROCESS_SLOTS = 80
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


def voted(play: Stream, setup: dict[str, Any], *, delay: int = 0) -> tuple[list[int], Any]:
    """Return the answers of an ensemble over the members of a replay, and its last weights."""
    trace = covey.replay(
        setup,
        predictions=play.predictions,
        labels=play.labels,
        contexts=play.contexts,
        delay=np.full(len(play.labels), delay),
    )
    shape = (len(play.labels), len(SITES))
    said = np.array(trace.columns()["prediction"]).reshape(shape)
    cells = np.array(trace.columns()["cell"]).reshape(shape)[:, 0]
    options = {key: value for key, value in setup["ensemble"].items() if key != "base"}
    ensemble = covey.Ensemble(SITES, classes=[0, 1], **options)
    answers, tickets = [], []
    for slot, votes in enumerate(said.tolist()):
        answer, ticket = ensemble.vote(votes, cell=str(cells[slot]))
        answers.append(answer)
        tickets.append(ticket)
        if slot >= delay:
            ensemble.learn(tickets[slot - delay], int(play.labels[slot - delay]))
    return answers, ensemble


def test_the_reference_is_what_a_replay_of_a_file_reports(play: Stream, tmp_path: Path) -> None:
    setup = config("gradient")
    with (tmp_path / "log.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a", "label", *(f"f{k}" for k in range(6))])
        rows.writerows(zip(play.contexts[:, 0], play.labels, *play.predictions, strict=True))
    setup["ensemble"]["base"] = "0"

    found = replay_file(tmp_path / "log.csv", load(setup)).ensemble

    answers, ensemble = voted(play, config("gradient"))
    assert found is not None
    assert found.errors == sum(
        one != label for one, label in zip(answers, play.labels, strict=True)
    )
    assert found.weights["all"] == ensemble.weights()


def first(play: Stream, slots: int) -> Stream:
    return play._replace(
        predictions=play.predictions[:, :slots],
        labels=play.labels[:slots],
        contexts=play.contexts[:slots],
    )


def files(offices: Offices, play: Stream, setup: dict[str, Any]) -> dict[str, str]:
    """Return the files of sites; the first votes with the others, which know nothing of it."""
    voting = {**setup, "learner": [{**one, "peers": {}} for one in setup["learner"]]}
    voting["learner"][0]["peers"] = dict.fromkeys(SITES[1:], 0.0)
    plain = {key: value for key, value in voting.items() if key != "ensemble"}
    return {
        name: column_file(offices, play, voting if name == "site0" else plain, name, known=[])
        for name in SITES
    }


def test_replay_and_processes_over_https_vote_the_same_also_after_a_restart(
    play: Stream, tmp_path: Path
) -> None:
    setup = config("hedge", pending=False)
    sites = files(Offices(tmp_path, SITES), play, setup)
    live = []
    for part in (range(PROCESS_SLOTS // 2), range(PROCESS_SLOTS // 2, PROCESS_SLOTS)):
        with served(tmp_path, sites) as clients:
            for slot in part:
                answer = send(clients["site0"], play, slot)
                live.append(answer["outputs"][0]["data"][0])
                clients["site0"].label(str(slot), int(play.labels[slot]))
                clients["site0"].drain()
            weights = clients["site0"].state()["ensemble"]

    answers, ensemble = voted(first(play, PROCESS_SLOTS), setup)
    assert live == answers
    assert weights == {"": ensemble.weights()}


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


def test_the_doctor_looks_at_the_rights_of_voters(play: Stream, tmp_path: Path) -> None:
    sites = files(Offices(tmp_path, SITES), play, config("gradient"))
    with served(
        tmp_path,
        {
            "site1": sites["site1"],
            "site2": sites["site2"].replace("may-ask = true", "may-ask = false"),
        },
    ):
        found = examine(tmp_path, sites["site0"])

    assert states(found) == {"peer site2, asking": "failure"}
