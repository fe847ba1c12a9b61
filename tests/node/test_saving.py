"""Networks that are saved, pickled and copied: they continue exactly, with their open tickets."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import covey
from covey.bandit.policies import PRESETS
from covey.errors import ConflictingLabel, DataError, StoreError, UnknownTicket
from support.flow import MORE, Stream, config_of, recorded_stream, with_more

OWN = "support.own_policies"
OWN_POLICIES = ("CellUCB", "EpsilonGreedy", "LinUCB", "ByReports")
EVERY_POLICY = [*sorted(PRESETS), *(f"{OWN}:{name}" for name in OWN_POLICIES)]
SLOTS = 600
LATE = 25  # slots until a label comes
Again = Callable[[covey.Network, Path], covey.Network]


class Recorded:
    """A function that says what was recorded; it can be pickled."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def __call__(self, slot: int) -> int:
        return int(self.said[slot])


def functions_of(stream: Stream) -> dict[str, Recorded]:
    return {f"f{k}": Recorded(said) for k, said in enumerate(stream.predictions)}


@pytest.fixture(scope="module")
def stream() -> Stream:
    return recorded_stream()


def saved(network: covey.Network, folder: Path) -> covey.Network:
    """Return the network after it was saved and loaded."""
    given = network._given
    network.save(folder / "network.covey")
    return covey.Network.load(
        folder / "network.covey", functions=given.functions, config=given.config
    )


def pickled(network: covey.Network, folder: Path) -> covey.Network:
    copied: covey.Network = pickle.loads(pickle.dumps(network))  # noqa: S301 - written above
    return copied


def copied(network: covey.Network, folder: Path) -> covey.Network:
    return copy.deepcopy(network)


AGAIN = (saved, pickled, copied)


def decided(
    stream: Stream,
    network: covey.Network,
    *,
    again: Again | None = None,
    folder: Path = Path(),
    delay: int = LATE,
    rows: int = 1,
) -> list[Any]:
    """Return decisions with late labels; `again` replaces the network every 150 slots."""
    live: list[Any] = []
    tickets: dict[int, tuple[str, int]] = {}
    for slot in range(0, SLOTS, rows):
        if again is not None and slot % 150 == 140:
            network = again(network, folder)
        name = stream.at[slot]
        some = list(range(slot, slot + rows))
        if rows == 1:
            answers = [network[name].predict(slot, tuple(stream.contexts[slot]))]
        else:
            answers = network[name].predict_batch(some, stream.contexts[some])
        for one, answer in zip(some, answers, strict=True):
            live.append((answer.label, answer.ticket, answer.phase, answer.arm, answer.function))
            tickets[one] = (name, answer.ticket)
        for one in some:
            site, ticket = tickets.get(one - delay, (name, 0))
            if ticket and network[site].learner.is_supervised:
                settled = network[site].learn(ticket, int(stream.labels[one - delay]))
                live.append((settled.is_new, settled.is_right))
    return live


@pytest.mark.parametrize(
    ("preset", "reading", "again", "rows"),
    [
        *((preset, "spec", again, 1) for preset in EVERY_POLICY for again in AGAIN),
        *((preset, "spec", again, 20) for preset in sorted(PRESETS) for again in AGAIN),
        ("cos", "paper", saved, 1),
        ("dcza", "paper", saved, 1),
    ],
)
def test_a_network_that_was_saved_pickled_or_copied_decides_the_same(
    stream: Stream, preset: str, reading: str, again: Again, rows: int, tmp_path: Path
) -> None:
    config = config_of(preset, reading)

    def network() -> covey.Network:
        return covey.Network(config, functions=functions_of(stream), dimension=2)

    live = decided(stream, network(), again=again, folder=tmp_path, rows=rows)

    assert live == decided(stream, network(), rows=rows)


@pytest.mark.parametrize("again", [saved, pickled])
@pytest.mark.parametrize("what", MORE)
def test_all_that_a_network_knows_continues(
    stream: Stream, what: str, again: Again, tmp_path: Path
) -> None:
    config = with_more(MORE[what])

    def network() -> covey.Network:
        return covey.Network(config, functions=functions_of(stream), dimension=2)

    one, other = network(), network()
    live = decided(stream, one, again=again, folder=tmp_path)

    assert live == decided(stream, other)


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
