"""Functions that come and go while a network runs: what was learnt stays."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.bandit.policies import PRESETS
from covey.errors import ConfigError
from support.coroutines import looped
from support.flow import config_of, recorded_stream

OWN = "support.own_policies"
EVERY_POLICY = [*sorted(PRESETS), f"{OWN}:CellUCB"]
CONFIG: dict[str, Any] = {
    "policy": {"preset": "cos", "slices": 1, "explore": {"scale": 2, "power": 0}},
    "learner": [
        {"name": "north", "functions": ["zero", "one"], "peers": {"south": 0.3}},
        {"name": "south", "functions": ["two"]},
    ],
}


def zero(x: Any) -> int:
    return 0


def one(x: Any) -> int:
    return 1


def two(x: Any) -> int:
    return 2


def network(**config: Any) -> covey.Network:
    functions = {"zero": zero, "one": one, "two": two}
    return covey.Network({**CONFIG, **config}, functions=functions, dimension=1)


def learnt(sites: covey.Network, site: str = "north") -> dict[str, tuple[int, float]]:
    """Return the labels of each arm, and the right ones."""
    columns = sites[site].learnt().columns()
    return {
        arm: (labels, right)
        for arm, labels, right in zip(
            columns["arm"], columns["labels"], columns["right"], strict=True
        )
    }


def played(sites: covey.Network, slots: int = 10) -> covey.Network:
    for _ in range(slots):
        sites["north"].observe(0.5, 1, (0.3,))
    return sites


def test_a_function_that_is_added_is_an_arm_and_the_others_keep_what_was_learnt() -> None:
    sites = played(network())
    before, north = learnt(sites), sites["north"]

    sites.add_function("north", "three", lambda x: 3)

    assert learnt(sites) == {**before, "three": (0, 0.0)}
    assert north is sites["north"]
    assert north.observe(0.5, 3, (0.3,)).function == "three"  # it is explored
    assert learnt(sites)["three"] == (1, 1.0)


def test_a_function_that_is_retired_is_no_arm_and_continues_if_it_comes_back() -> None:
    sites = played(network())
    before = learnt(sites)
    assert before["zero"][0] > 0

    sites.retire_function("north", "zero")
    assert learnt(sites) == {arm: counts for arm, counts in before.items() if arm != "zero"}
    assert {sites["north"].predict(0.5, (0.3,)).function for _ in range(9)} <= {"one", "two"}

    sites.add_function("north", "zero", zero)
    assert learnt(sites) == before


@pytest.mark.parametrize(("carry", "labels"), [(0.0, 0), (0.5, 4), (1.0, 8)])
def test_a_function_that_is_replaced_begins_with_a_share(carry: float, labels: int) -> None:
    sites = network()
    while learnt(sites).get("one", (0, 0))[0] < 8:
        sites["north"].observe(0.5, 1, (0.3,))
    others = {arm: counts for arm, counts in learnt(sites).items() if arm != "one"}

    sites.replace_function("north", "one", lambda x: 11, carry=carry)

    assert learnt(sites) == {**others, "one": (labels, float(labels))}
    answers = [sites["north"].predict(0.5, (0.3,)) for _ in range(30)]
    assert {answer.label for answer in answers if answer.arm == "one"} == {11}


def test_a_label_counts_for_the_version_that_answered() -> None:
    sites = network()
    while (answer := sites["north"].predict(0.5, (0.3,))).arm != "one":
        sites["north"].learn(answer.ticket, 1)
    sites.replace_function("north", "one", lambda x: 11)

    settled = sites["north"].learn(answer.ticket, 1)

    assert (settled.is_new, settled.is_right) == (True, True)
    assert not sites["north"].learn(answer.ticket, 1).is_new
    assert learnt(sites)["one"] == (0, 0.0)
    assert sites["north"].state.open.pending_rows == 0


def test_open_tickets_of_other_arms_still_count() -> None:
    sites = network()
    while (answer := sites["north"].predict(0.5, (0.3,))).arm != "one":
        sites["north"].learn(answer.ticket, 1)
    before = learnt(sites)["one"]

    sites.retire_function("north", "zero")  # which moves "one" to another place
    sites["north"].learn(answer.ticket, 1)

    assert learnt(sites)["one"] == (before[0] + 1, before[1] + 1)


class Trained:
    """Keeps what it was trained with."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def predict(self, x: Any) -> int:
        return 0

    def learn(self, x: Any, label: Any) -> None:
        self.seen.append((x, label))


def test_the_function_that_answered_is_trained_wherever_it_stands_now() -> None:
    model = Trained()
    sites = covey.Network(CONFIG, functions={"zero": zero, "one": model, "two": two}, dimension=1)
    while (answer := sites["north"].predict("x", (0.3,))).arm != "one":
        sites["north"].learn(answer.ticket, 1)

    sites.retire_function("north", "zero")
    sites["north"].learn(answer.ticket, 5)

    assert model.seen == [("x", 5)]


@pytest.mark.parametrize("preset", EVERY_POLICY)
def test_a_function_that_came_and_went_changes_no_decision(preset: str) -> None:
    stream = recorded_stream()

    def play(*, is_altered: bool) -> list[Any]:
        sites = covey.Network(config_of(preset), functions=stream.functions, dimension=2)
        live: list[Any] = []
        tickets = []
        for slot in range(400):
            if is_altered and slot == 200:
                sites.add_function("site1", "extra", zero)
                sites.retire_function("site1", "extra")
            site, context = sites[stream.at[slot]], tuple(stream.contexts[slot].tolist())
            answer = site.predict(slot, context)
            live.append(answer)
            tickets.append((stream.at[slot], answer.ticket))
            if slot >= 20:
                name, ticket = tickets[slot - 20]
                live.append(sites[name].learn(ticket, int(stream.labels[slot - 20])))
        return live

    assert play(is_altered=True) == play(is_altered=False)


def test_a_network_with_changed_functions_is_saved_copied_and_changed_again(tmp_path: Path) -> None:
    sites = played(network())
    before = learnt(sites)
    sites.replace_function("north", "one", one, carry=0.0)
    sites.retire_function("north", "zero")
    sites.save(tmp_path / "file")
    functions = {"one": one, "two": two}

    for again in (covey.Network.load(tmp_path / "file", functions=functions), copy.deepcopy(sites)):
        again.add_function("north", "zero", zero)
        assert learnt(again)["zero"] == before["zero"]
        again.replace_function("north", "one", one, version="")  # back to the first version
        assert learnt(again)["one"] == before["one"]


def test_costs_rewards_and_free_functions_follow_the_functions() -> None:
    learner = {"name": "north", "functions": ["zero", "one"], "function-costs": [0.1, 0.2]}
    sites = network(learner=[learner, {"name": "south", "functions": ["two"]}])

    sites.add_function("north", "three", zero, cost=0.3)
    sites.retire_function("north", "zero")

    assert sites["north"].learner.costs[:2] == (0.2, 0.3)
    scored = {"name": "north", "functions": ["zero", "one"], "free": ["zero", "one"]}
    sites = network(learner=[scored, {"name": "south", "functions": ["two"]}])
    sites.retire_function("north", "zero")
    sites["north"].observe(0.5, 1, (0.3,))
    assert learnt(sites)["one"][0] == 1


def test_mistakes_get_a_sentence_and_change_nothing() -> None:
    sites = played(network())
    before = sites._saved()

    for what, sentence in (
        (lambda: sites.add_function("north", "one", zero), "has a function 'one'; replace it"),
        (lambda: sites.retire_function("north", "ome"), "has no function 'ome'"),
        (lambda: sites.replace_function("north", "ome", zero), "has no function 'ome'"),
        (lambda: sites.retire_function("south", "two"), "'two' is the last function of"),
        (lambda: sites.add_function("west", "one", zero), "the network has no site 'west'"),
        (lambda: sites.add_function("north", "three", None), "function 'three' is None"),
        (lambda: sites.add_function("north", "three", 3), "function 'three' is a int"),
    ):
        with pytest.raises(covey.CoveyError, match=sentence):
            what()  # type: ignore[no-untyped-call]

    assert sites._saved().sites[1].records == before.sites[1].records
    assert learnt(sites)["zero"][0] > 0


@looped
async def test_functions_do_not_change_while_requests_wait_for_them() -> None:
    async def slow(x: Any) -> int:
        await asyncio.sleep(0)
        return 1

    sites = covey.Network(CONFIG, functions={"zero": slow, "one": one, "two": two}, dimension=1)

    task = asyncio.create_task(sites["north"].apredict(0.5, (0.3,)))
    await asyncio.sleep(0)
    with pytest.raises(ConfigError, match="requests wait for functions"):
        sites.retire_function("north", "one")
    await task
    sites.retire_function("north", "one")


def test_a_function_that_two_sites_list_is_not_replaced_at_one() -> None:
    shared = [
        {"name": "north", "functions": ["zero", "one"]},
        {"name": "south", "functions": ["two", "one"]},
    ]

    with pytest.raises(ConfigError, match="'one' is also listed by learner 'south'"):
        network(learner=shared).replace_function("north", "one", zero)
