"""A network that is told times decides as a replay of the same times."""

import copy
from typing import Any

import pytest

import covey
from covey.errors import ConfigError, DataError
from data.test_times import stream
from support import virtual

SITES = [
    {"name": "north", "functions": ["a", "b"], "peers": {"south": 0.05}},
    {"name": "south", "functions": ["c"], "peers": {"north": 0.05}},
]


def replayed(policy: dict[str, Any], log: dict[str, Any]) -> list[tuple[str, str]]:
    data = {"context": ["x"], "at": "site", "time": "hours", "label-time": "known"}
    columns = covey.replay({"data": data, "policy": policy, "learner": SITES}, log).columns()
    return list(zip(columns["phase"], columns["arm"], strict=True))


def live(policy: dict[str, Any], log: dict[str, Any], *, copied_at: int) -> list[tuple[str, str]]:
    """Give every label to the network before the first row that is not earlier than it."""
    row = dict.fromkeys("abc")
    functions = {name: (lambda k, name=name: int(log[name][k])) for name in row}
    network = covey.Network({"policy": policy, "learner": SITES}, functions=functions, dimension=1)
    decisions, open_rows = [], []
    for k, (time, name) in enumerate(zip(log["hours"], log["site"], strict=True)):
        due = [one for one in open_rows if one[0] <= time]
        open_rows = [one for one in open_rows if one[0] > time]
        for _, site, ticket, label in due:
            try:
                network[site].learn(ticket, label)
            except covey.UnknownTicket:  # its wait is over
                continue
        if k == copied_at:
            network = copy.deepcopy(network)
        answer = network[name].predict(k, (log["x"][k],), slot=k + 1, at=time)
        decisions.append((answer.phase, answer.arm))
        open_rows.append((log["known"][k], name, answer.ticket, int(log["label"][k])))
    return decisions


@pytest.mark.parametrize("wait", ["3h", "20h", "1000d"])
@pytest.mark.parametrize("preset", ["auto", "cos"])
def test_a_network_that_is_told_times_decides_as_a_replay_of_them(preset: str, wait: str) -> None:
    log = stream(400, seed=5)
    log["hours"] = [3_600 * int(hour) for hour in log["hours"]]
    log["known"] = [time + 3_600 * (k % 30) for k, time in enumerate(log["hours"])]
    log["site"] = [("north", "south")[k % 3 == 0] for k in range(400)]
    slices = {} if preset == "auto" else {"slices": 2}
    policy = {"preset": preset, "label-wait": wait, "pending": True, **slices}

    decisions = replayed(policy, log)

    assert live(policy, log, copied_at=150) == decisions
    assert len(set(decisions)) > 4


def test_times_that_a_network_cannot_use_are_refused() -> None:
    config = {"policy": {"label-wait": "7d"}, "learner": [{"name": "north", "functions": ["a"]}]}
    site = covey.Network(config, functions={"a": lambda x: 0}, dimension=0)["north"]
    site.predict(0, at="2024-05-02")

    for at, says in ((None, "pass at"), ("soon", "not a time"), ("2024-05-01", "keep their order")):
        with pytest.raises(DataError, match=says):
            site.predict(0, at=at)
    assert site.learn(1, 0).is_right


def test_a_node_counts_slots() -> None:
    config = {"policy": {"label-wait": "7d"}, "learner": [{"name": "north", "functions": ["a"]}]}

    with pytest.raises(ConfigError, match="a node counts slots"):
        virtual.World(config, {"a": lambda x: 0}, dimension=0)
