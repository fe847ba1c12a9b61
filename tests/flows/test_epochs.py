"""Unknown horizon and unknown alpha, live: the decisions of a replay, and what cells mean."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.bandit.epochs import EpochKey, EpochTable
from covey.config import load
from covey.errors import ConfigError, DataError
from covey.node.network import learner_of
from covey.node.node import Question
from covey.server import doctor
from support import virtual
from support.flow import (
    NODE_SLOTS,
    Stream,
    column_file,
    config_of,
    decided_in_a_network,
    drawn_stream,
    recorded_stream,
    replayed,
    through_nodes,
    through_processes,
)
from support.site_processes import Offices

FIRST = 50  # slots of the first epoch: the fourth is the last of a stream
ROUGH = 1_800  # the first epoch where alpha is to be found
ROUGH_SLOTS = 2_300


@pytest.fixture(scope="module")
def stream() -> Stream:
    return recorded_stream()


def doubling(preset: str, **policy: Any) -> dict[str, Any]:
    config = config_of(preset, "spec")
    usual = {key: value for key, value in config["policy"].items() if key != "slices"}
    epochs = {"horizon": "doubling", "first-epoch": FIRST, "pending": False, **policy}
    return {**config, "policy": {**usual, **epochs}}


PRESETS = pytest.mark.parametrize("preset", ["cos", "dcza", "cos-ce"])


@PRESETS
def test_a_network_restarts_in_epochs_as_a_replay_does(stream: Stream, preset: str) -> None:
    live = decided_in_a_network(stream, doubling(preset))

    assert live == replayed(stream, doubling(preset))
    assert live != decided_in_a_network(stream, doubling(preset, horizon=2 * FIRST))
    assert any(row[1].startswith("site") for row in live[7 * FIRST :])


@PRESETS
@pytest.mark.parametrize("restart_every", [10, NODE_SLOTS + 1])
def test_nodes_restart_in_epochs_as_a_replay_does(
    stream: Stream, preset: str, restart_every: int
) -> None:
    live = virtual.run(through_nodes(stream, doubling(preset), restart_every=restart_every))

    assert live == replayed(stream, doubling(preset))[:NODE_SLOTS]


@pytest.mark.parametrize("trust", ["isolated", "earned"])
def test_nodes_that_do_not_trust_fully_have_epochs_restarted_or_not(
    stream: Stream, trust: str
) -> None:
    first, second = (
        virtual.run(
            through_nodes(stream, doubling("cos"), slots=300, restart_every=every, trust=trust)
        )
        for every in (10, 1_000)
    )

    assert first == second


def test_a_site_counts_again_when_its_file_gets_epochs(stream: Stream) -> None:
    async def change() -> tuple[list[str], set[str]]:
        world = virtual.World(
            doubling("cos", horizon=100), stream.functions, dimension=2, trust="full"
        )
        for slot in range(90):
            node, id_ = world.nodes[stream.at[slot]], str(slot)
            context = tuple(stream.contexts[slot].tolist())
            await node.predict(slot, context, question=Question("", id_), slot=slot + 1)
            await node.learn(id_, int(stream.labels[slot]))
            await node.drained()
        world.setup = load(doubling("cos"))
        world.crash("site0")
        world.boot("site0")
        node = world.nodes["site0"]
        cells = {name.split("@")[1] for name, _ in node.learner.snapshot().cells}
        for one in world.nodes.values():
            one.stop()
        return node.plan.lines(), cells

    lines, epochs = virtual.run(change())

    assert lines[0] == (
        "changes cells: 3 slices per dimension before, in epochs of 50 slots, doubled, alpha 1.0: "
        "at first 3 slices per dimension now"
    )
    assert epochs == {"0", "1"}


# -- alpha ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rough() -> Stream:
    """Return two sites: accuracies of one are straight lines, those of the other random walks."""
    rng = np.random.default_rng(9)
    x = np.arange(ROUGH_SLOTS) * 0.618034 % 1
    walks = np.cumsum(rng.normal(size=(2, 256)), axis=1)
    walks = (walks - walks.min(axis=1, keepdims=True)) / np.ptp(walks, axis=1, keepdims=True)
    chance = np.stack([0.02 + 0.96 * x, 0.98 - 0.96 * x, *walks[:, (x * 256).astype(int)]])
    labels = rng.integers(0, 2, ROUGH_SLOTS)
    predictions = np.where(rng.random(chance.shape) < chance, labels, 1 - labels)
    at = [f"site{k}" for k in rng.integers(0, 2, ROUGH_SLOTS)]
    return Stream(predictions, labels, x[:, np.newaxis], at, ("x",))


def estimated(**policy: Any) -> dict[str, Any]:
    return {
        "data": {"context": ["x"]},
        "policy": {
            "preset": "dcza",
            "parameters": "theorem",
            "horizon": "doubling",
            "first-epoch": ROUGH,
            "alpha": "estimated",
            "split-scale": 0.01,
            "explore": {"scale": 0.01, "power": 0.8},
            "train": {"scale": 0.5, "power": 0.0},
            "explore-peers": {"scale": 0.5, "power": 0.0},
            "pending": False,
            "check-claims": False,
            **policy,
        },
        "learner": [
            {"name": "site0", "functions": ["f0", "f1"], "peers": {"site1": 0.05}},
            {"name": "site1", "functions": ["f2", "f3"], "peers": {"site0": 0.05}},
        ],
    }


def test_sites_with_different_alphas_decide_as_in_a_replay(rough: Stream) -> None:
    """The rougher functions get a smaller alpha, so cells of the two sites differ."""
    network = covey.Network(estimated(), functions=rough.functions)
    live = []
    for slot, name in enumerate(rough.at):
        answer = network[name].predict(slot, (float(rough.contexts[slot, 0]),), slot=slot + 1)
        settled = network[name].learn(answer.ticket, int(rough.labels[slot]))
        live.append((answer.phase, answer.arm, answer.function, answer.price, settled.is_right))

    assert live == replayed(rough, estimated())
    assert live != replayed(rough, estimated(alpha=1.0))
    smooth, less = (alpha_at(network[f"site{k}"].learner, ROUGH_SLOTS) for k in range(2))
    assert smooth > less
    assert any(row[1].startswith("site") for row in live[ROUGH:])  # cells of both are asked about


def alpha_at(learner: Any, slot: int) -> int:
    table = learner.table
    assert isinstance(table, EpochTable)
    return table.key_at(slot).percent


def test_restarted_nodes_with_different_alphas_decide_as_in_a_replay(rough: Stream) -> None:
    live = virtual.run(through_nodes(rough, estimated(), slots=ROUGH_SLOTS, restart_every=90))

    assert live == replayed(rough, estimated())


# -- sites whose slots differ ---------------------------------------------------------------------


def two_sites(**policy: Any) -> dict[str, Any]:
    small = {"scale": 0.3, "power": 0.0}
    return {
        "policy": {
            "preset": "cos",
            "horizon": "doubling",
            "first-epoch": 16,
            "explore": small,
            "train": small,
            "explore-peers": small,
            **policy,
        },
        "learner": [
            {"name": "north", "functions": ["a"], "peers": {"south": 0.1}},
            {"name": "south", "functions": ["b"], "peers": {}},
        ],
    }


def test_a_site_that_is_asked_by_one_in_a_later_epoch_counts_in_the_cells_of_the_asker() -> None:
    network = covey.Network(
        two_sites(), functions={"a": lambda x: 0, "b": lambda x: 1}, dimension=1
    )
    north, south = network["north"], network["south"]
    south.learn(south.predict(None, (0.1,), slot=1).ticket, 1)
    for slot in range(150, 200):  # of the fourth epoch, of 128 slots
        north.learn(north.predict(None, (0.1,), slot=slot).ticket, 1)

    cells = dict(south.learner.snapshot().cells)
    asked = {name for name in cells if name.endswith("@3")}
    assert north.predict(None, (0.1,)).arm == "south"
    assert asked == {"g4:0@3"}
    assert {name for name in cells if name not in asked} == {"g2:0@0"}


def test_labels_of_a_peer_in_a_later_epoch_are_there_when_the_site_gets_to_it() -> None:
    network = covey.Network(
        two_sites(), functions={"a": lambda x: 0, "b": lambda x: 1}, dimension=1
    )
    for slot in range(150, 200):
        north = network["north"]
        north.learn(north.predict(None, (0.1,), slot=slot).ticket, 1)

    answer = network["south"].predict(None, (0.1,), slot=200)

    assert answer.phase == "exploit"  # its function has labels in this cell of this epoch


def test_cells_of_other_epochs_are_refused_in_a_sentence() -> None:
    names = learner_of(load(two_sites()), 0, 1).names
    estimating = learner_of(load(two_sites(alpha="estimated")), 0, 1).names

    assert names.of(names.parse("g4:3@3")) == "g4:3@3"
    assert estimating.of(estimating.parse("g7:6@3:55")) == "g7:6@3:55"
    for wrong in ("g4:3", "g4:3@44", "g4:3@-1", "g4:3@03", "g4:3@3:55", "@", ""):
        with pytest.raises(DataError, match=r"does not end with an epoch of this site, such as"):
            names.parse(wrong)
    for wrong in ("g7:6@3", "g7:6@3:53", "g7:6@3:20", "g7:6@3:105"):
        with pytest.raises(DataError, match=r"such as '@3:55'; write the same horizon and alpha"):
            estimating.parse(wrong)
    with pytest.raises(DataError, match="is not in a grid of 4 slices"):
        names.parse("g5:3@3")


def test_each_epoch_counts_its_slots_from_one() -> None:
    cells = learner_of(load(two_sites()), 0, 1).policies[""].partition
    slots = [1, 16, 17, 48, 49, 112, 113]

    assert [cells.number_at(slot) for slot in slots] == [0, 0, 1, 1, 2, 2, 3]
    found = [cells.slot_in(cells.number_at(slot), slot) for slot in slots]
    assert found == [1, 16, 1, 32, 1, 64, 1]
    assert cells.slot_in(3, 5) == 1  # an asker that is behind


def test_a_batch_may_begin_in_one_epoch_and_end_in_the_next() -> None:
    site = covey.Network(two_sites(), functions={"a": lambda x: 0, "b": lambda x: 1}, dimension=1)[
        "south"
    ]

    answers = site.predict_batch(list(range(40)), np.full((40, 1), 0.6))
    settled = site.learn_batch([one.ticket for one in answers], [1] * 40)

    assert [site.cell_of(one.ticket) for one in answers] == ["g2:1@0"] * 16 + ["g3:1@1"] * 24
    assert all(one.is_new for one in settled)


def test_a_batch_that_fails_across_epochs_changes_no_counter() -> None:
    def fails_at_30(x: int) -> int:
        if x == 30:
            raise ValueError(x)
        return 0

    site = covey.Network(two_sites(), functions={"a": lambda x: 0, "b": fails_at_30}, dimension=1)[
        "south"
    ]
    site.predict_batch(list(range(10)), np.full((10, 1), 0.6))
    site.predict(11, (0.6,), slot=17)
    before = site.learner.snapshot().cells

    with pytest.raises(covey.CoveyError, match="30"):
        site.predict_batch(list(range(20, 40)), np.full((20, 1), 0.6), slot=18)

    assert site.learner.snapshot().cells == before


def test_prices_that_change_hold_in_later_epochs() -> None:
    network = covey.Network(
        two_sites(), functions={"a": lambda x: 0, "b": lambda x: 1}, dimension=1
    )
    north = network["north"]
    north.learn(north.predict(None, (0.1,), slot=1).ticket, 1)
    network.reprice("north", "south", None)

    arms = set()
    for slot in range(200, 260):
        answer = north.predict(None, (0.1,), slot=slot)
        north.learn(answer.ticket, 1)
        arms.add(answer.arm)

    assert arms == {"a"}


@pytest.mark.parametrize(
    ("policy", "learner", "sentence"),
    [
        ({"preset": "auto"}, {}, r"horizon = \"doubling\" and preset 'auto' only work together"),
        (
            {},
            {"candidates": [["x"], ["y"]]},
            r'horizon = "doubling" and several candidates only work together in a replay',
        ),
    ],
)
def test_what_epochs_cannot_be_combined_with_is_refused_at_the_start(
    policy: dict[str, Any], learner: dict[str, Any], sentence: str
) -> None:
    table = two_sites(**policy)
    table["learner"][0] |= learner

    with pytest.raises(ConfigError, match=sentence):
        covey.Network(table, functions=dict.fromkeys("ab", lambda x: 0))


def test_the_alpha_of_an_epoch_stays_once_the_site_has_decided_in_it() -> None:
    learner = learner_of(load(two_sites(alpha="estimated")), 0, 1)
    table = learner.table
    assert isinstance(table, EpochTable)
    table.table_of(EpochKey(1, 55))  # a peer has asked
    assert table.key_at(20) == EpochKey(1, 100)  # nothing is known of its own functions

    other = learner_of(load(two_sites(alpha="estimated")), 0, 1)
    other.tables[""].table_of(EpochKey(1, 55)).decide((0.5,), 1)

    assert other.table.key_at(20) == EpochKey(1, 55)


# -- served sites ---------------------------------------------------------------------------------


@pytest.mark.beside_the_kernel
def test_served_sites_restart_in_epochs_as_a_replay_does_restarted_in_between(
    tmp_path: Path,
) -> None:
    play = drawn_stream(2, ["x"], slots=160, seed=5)
    config = {
        "data": {"context": ["x"]},
        **two_sites(**{"pending": False, "check-claims": False, "first-epoch": 24}),
        "learner": [
            {"name": "site0", "functions": ["f0", "f1"], "peers": {"site1": 0.05}},
            {"name": "site1", "functions": ["f2", "f3"], "peers": {"site0": 0.05}},
        ],
    }
    offices = Offices(tmp_path, ["site0", "site1"])
    sites = {name: column_file(offices, play, config, name) for name in ("site0", "site1")}

    live = through_processes(play, sites, tmp_path, slots=range(60))
    live += through_processes(play, sites, tmp_path, slots=range(60, 160))

    assert live == replayed(play, config)
    assert any(row[1].startswith("site") for row in live[72:])  # in the third epoch
    found = {one.what: one for one in doctor.examine(tmp_path / "site0.toml")}
    assert found["horizon"].message == (
        "epochs of 24 slots, then 48, 96 and so on; cells and thresholds begin anew in each"
    )


def test_a_saved_network_continues_in_its_epochs(rough: Stream, tmp_path: Path) -> None:
    network = covey.Network(estimated(), functions=rough.functions)
    live = []
    for slot, name in enumerate(rough.at):
        if slot in (ROUGH - 5, ROUGH + 200):
            network.save(tmp_path / "network")
            network = covey.Network.load(tmp_path / "network", functions=rough.functions)
        answer = network[name].predict(slot, (float(rough.contexts[slot, 0]),), slot=slot + 1)
        settled = network[name].learn(answer.ticket, int(rough.labels[slot]))
        live.append((answer.phase, answer.arm, answer.function, answer.price, settled.is_right))

    assert live == replayed(rough, estimated())
