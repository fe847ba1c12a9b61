"""Networks that are saved, pickled and copied, with their open tickets.

That they continue exactly, with every policy and extension, is shown in `golden`.
"""

import copy
import pickle
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey.errors import ConflictingLabel, DataError, StoreError, UnknownTicket

OWN = "support.own_policies"


def saved(network: covey.Network, folder: Path) -> covey.Network:
    """Return the network after it was saved and loaded."""
    given = network._given
    network.save(folder / "network.covey")
    return covey.Network.load(
        folder / "network.covey", functions=given.functions, config=given.config
    )


# -- tickets --------------------------------------------------------------------------------------

TWO: dict[str, Any] = {
    "learner": [
        {"name": "north", "functions": ["guess"], "peers": {"south": 0.1}},
        {"name": "south", "functions": ["sign"]},
    ]
}


def guess(x: float) -> int:
    return 0


def sign(x: float) -> int:
    return int(x > 0)


BOTH = {"guess": guess, "sign": sign}


def two() -> covey.Network:
    return covey.Network(TWO, functions=BOTH, dimension=1)


def test_open_tickets_take_their_label_once_and_settled_ones_know_theirs(tmp_path: Path) -> None:
    network = two()
    first, second = (network["north"].predict(0.5, (0.3,)).ticket for _ in range(2))
    network["north"].learn(first, 1)

    north = saved(network, tmp_path)["north"]

    assert not north.learn(first, 1).is_new
    assert north.learn(second, 1).is_new
    with pytest.raises(ConflictingLabel, match="has the label 1"):
        north.learn(first, 0)
    with pytest.raises(UnknownTicket, match="never issued"):
        north.learn(second + 1, 0)


class Frequency:
    """Answers the most frequent label."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def predict(self, x: Any) -> Any:
        return max(self.seen, key=self.seen.count, default=0)

    def learn(self, x: Any, label: Any) -> None:
        self.seen.append((label, x))


INSTANCES: list[Any] = [
    0.5,
    float("nan"),
    "text",
    (1, 2.5, None),
    [True, ["a"]],
    {"size": 1.5, 3: (4,)},
    np.array([[1.0, 2.0]]),
    np.array(["a", "bc"]),
    np.float32(0.5),
]


@pytest.mark.parametrize("instance", INSTANCES, ids=repr)
def test_a_label_after_loading_trains_with_the_instance(instance: Any, tmp_path: Path) -> None:
    config = {"learner": [{"name": "north", "functions": ["learns"]}]}
    network = covey.Network(config, functions={"learns": Frequency()}, dimension=0)
    ticket = network["north"].predict(instance).ticket
    network.save(tmp_path / "file")
    model = Frequency()

    covey.Network.load(tmp_path / "file", functions={"learns": model})["north"].learn(ticket, 1)

    ((label, trained),) = model.seen
    assert label == 1
    np.testing.assert_equal(trained, instance)
    assert type(trained) is (float if isinstance(instance, np.floating) else type(instance))


def test_instances_that_no_file_holds_are_named(tmp_path: Path) -> None:
    config = {"learner": [{"name": "north", "functions": ["learns"]}]}
    network = covey.Network(config, functions={"learns": Frequency()}, dimension=0)
    network["north"].predict(object())

    with pytest.raises(DataError, match="ticket 1 of learner 'north' is to train .* a object"):
        network.save(tmp_path / "file")


def test_labels_that_no_file_holds_are_named(tmp_path: Path) -> None:
    network = covey.Network(TWO, functions={**BOTH, "guess": lambda x: ("a", 1)}, dimension=1)
    network["north"].predict(0.5, (0.3,))

    with pytest.raises(DataError, match=r"the label is \('a', 1\)"):
        network.save(tmp_path / "file")


def test_an_answer_that_has_not_come_is_named(tmp_path: Path) -> None:
    class Pending:
        def done(self) -> bool:
            return False

        def result(self) -> int:
            raise AssertionError("nobody waits")

    slow = {**BOTH, "sign": lambda x: Pending()}
    network = covey.Network(TWO, functions=slow, dimension=1)
    while network["north"].predict(0.5, (0.3,)).arm != "south":
        pass

    with pytest.raises(DataError, match="waits for the late answer of function 'sign'"):
        network.save(tmp_path / "file")


# -- files ----------------------------------------------------------------------------------------


def test_a_configuration_that_names_code_must_be_given_again(tmp_path: Path) -> None:
    config = {**TWO, "policy": {"preset": f"{OWN}:CellUCB"}}
    covey.Network(config, functions=BOTH, dimension=1).save(tmp_path / "file")

    with pytest.raises(StoreError, match="names code, which is not in the file; give config"):
        covey.Network.load(tmp_path / "file", functions=BOTH)
    assert covey.Network.load(tmp_path / "file", functions=BOTH, config=config)


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    two().save(tmp_path / "file")
    other = {**TWO, "policy": {"preset": "cos", "slices": 3}}

    with pytest.raises(StoreError, match="other settings of learner 'north': cells: "):
        covey.Network.load(tmp_path / "file", functions=BOTH, config=other)
    alone = {"learner": [{"name": "west", "functions": ["guess", "sign"]}]}
    with pytest.raises(StoreError, match="has the sites north, south"):
        covey.Network.load(tmp_path / "file", functions=BOTH, config=alone)


def test_a_damaged_file_is_refused_wherever_it_is_damaged(tmp_path: Path) -> None:
    network = two()
    network["north"].predict(0.5, (0.3,))
    network.save(tmp_path / "file")
    whole = (tmp_path / "file").read_bytes()

    for place in range(0, len(whole), 7):
        damaged = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        (tmp_path / "file").write_bytes(damaged)
        with pytest.raises(StoreError):
            covey.Network.load(tmp_path / "file", functions=BOTH)
    (tmp_path / "file").write_bytes(whole[:-1])
    with pytest.raises(StoreError, match="is damaged: it does not fit its checksum"):
        covey.Network.load(tmp_path / "file", functions=BOTH)


def test_a_file_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    head = msgspec.json.encode({"kind": "covey network", "format": 2, "sha256": ""})
    (tmp_path / "file").write_bytes(head + b"\n{}")

    with pytest.raises(StoreError, match="has format 2 of a newer covey"):
        covey.Network.load(tmp_path / "file", functions=BOTH)


# -- pickles and copies ---------------------------------------------------------------------------


def test_a_function_that_cannot_be_pickled_is_named() -> None:
    network = covey.Network(TWO, functions={**BOTH, "sign": lambda x: 1}, dimension=1)

    with pytest.raises(DataError, match="function 'sign' cannot be pickled: "):
        pickle.dumps(network)


def test_a_site_is_copied_with_its_network_only() -> None:
    for copied_by in (pickle.dumps, copy.deepcopy, copy.copy):
        with pytest.raises(DataError, match="site 'north' is a part of its network; pickle or"):
            copied_by(two()["north"])


def test_a_copy_and_its_models_are_independent() -> None:
    config = {"learner": [{"name": "north", "functions": ["learns"]}]}
    model = Frequency()
    network = covey.Network(config, functions={"learns": model}, dimension=0)
    ticket = network["north"].predict("x").ticket

    other = copy.deepcopy(network)
    other["north"].learn(ticket, 1)

    assert model.seen == []
    assert network["north"].learn(ticket, 1).is_new
