"""Every configuration decides what its record says, with the kernel that runs."""

import pytest

import covey
from covey.errors import ConfigError
from covey.kernel import is_compiled
from golden.configurations import (
    DOORS,
    PRESETS,
    SLOTS,
    TABLES,
    Golden,
    configurations,
    log_of,
    refusals,
)
from golden.doors import record
from golden.write import recorded
from support.effort import IS_LONG

CONFIGURATIONS, REFUSALS = list(configurations()), list(refusals())
PLAYED = DOORS if is_compiled() or IS_LONG else ("replay", "network")
# Where decisions of a replay and of live sites differ in what is recorded, and why.
APART = {
    "every row at all sites, auto": "live, sites decide one after another in a slot",
    "views": "a replay has the predictions of the log, whatever a function sees",
    "random costs": "live, the price of a decision is without the cost that comes with the label",
    "learnt costs of links": "likewise",
    "labels that come too late, cos": "a live site without new rows does not see that time passes",
    "labels that come too late, dcza": "likewise",
    "votes by gradient, auto": "a node that is asked for its vote chooses as a helper does",
    "votes by majority in cells, auto": "likewise",
    "votes by hedge, auto": "likewise",
}


@pytest.mark.parametrize("golden", CONFIGURATIONS, ids=lambda golden: golden.name)
def test_each_door_decides_what_is_recorded(golden: Golden) -> None:
    """Nodes call what a network calls: the plain kernel, which is slow, plays them in long runs."""
    doors = [door for door in golden.doors if door in PLAYED]

    assert {door: record(golden, door) for door in doors} == {
        door: kept for door, kept in recorded()[golden.name].items() if door in PLAYED
    }


@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_learners_is_replayed(count: int) -> None:
    """Three in the others: arrays of an odd number of learners fill no whole words."""
    learners = [{"name": f"{k}", "functions": ["f0"], "peers": {}} for k in range(count)]
    config = {"data": {"context": ["x"]}, "learner": learners}

    assert len(covey.replay(config, log_of(config))) == count * SLOTS


@pytest.mark.parametrize(("golden", "key"), REFUSALS, ids=lambda part: getattr(part, "name", ""))
def test_each_door_refuses_a_key_that_a_policy_does_not_have(golden: Golden, key: str) -> None:
    for door in golden.doors:
        with pytest.raises(ConfigError, match=rf"\b{key}\b"):
            record(golden, door)


def test_every_extension_is_played_or_refused_with_each_policy() -> None:
    names = {golden.name for golden in CONFIGURATIONS} | {golden.name for golden, _ in REFUSALS}

    assert names >= {f"{title}, {preset}" for title in TABLES["extensions"] for preset in PRESETS}


def test_every_record_is_compared() -> None:
    assert {golden.name for golden in CONFIGURATIONS} == recorded().keys()


@pytest.mark.parametrize("name", list(recorded()))
def test_a_replay_a_network_and_restarted_nodes_decide_the_same(name: str) -> None:
    doors = [recorded()[name].get(door, {}) for door in ("replay", "network", "node")]
    decided = [{door[kind] for door in doors if kind in door} for kind in ("decisions", "votes")]

    assert (max(map(len, decided)) > 1) == name.startswith(tuple(APART))
