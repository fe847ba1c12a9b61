"""An unknown horizon, live: the decisions of a replay, and what cells mean."""

from typing import Any

import numpy as np
import pytest

import covey
from covey.config import learner_of, load
from covey.errors import ConfigError, DataError
from covey.node.node import Question
from support import virtual
from support.flow import (
    Stream,
    config_of,
    recorded_stream,
)
from support.snapshots import snapshot_of


@pytest.fixture(scope="module")
def stream() -> Stream:
    return recorded_stream()


def with_horizon(**horizon: Any) -> dict[str, Any]:
    config = config_of("cos")
    usual = {key: value for key, value in config["policy"].items() if key != "slices"}
    return {**config, "policy": {**usual, "pending": False, **horizon}}


@virtual.timed
async def test_a_site_counts_again_when_its_file_gets_epochs(stream: Stream) -> None:
    world = virtual.World(with_horizon(horizon=100), stream.functions, dimension=2, trust="full")
    for slot in range(90):
        node, id_ = world.nodes[stream.at[slot]], str(slot)
        context = tuple(stream.contexts[slot].tolist())
        await node.predict(slot, context, question=Question("", id_), slot=slot + 1)
        await node.learn(id_, int(stream.labels[slot]))
        await node.drained()
    world.setup = load(with_horizon(**{"horizon": "doubling", "first-epoch": 50}))
    world.crash("site0")
    world.boot("site0")
    node = world.nodes["site0"]
    epochs = {name.split("@")[1] for name, _ in snapshot_of(node.learner).cells}
    lines = node.plan.lines()

    assert lines[0] == (
        "changes cells: 3 slices per dimension before, in epochs of 50 slots, doubled, alpha 1.0: "
        "at first 3 slices per dimension now"
    )
    assert epochs == {"0", "1"}


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


def test_labels_of_a_peer_in_a_later_epoch_count_in_its_cells_and_are_there_for_the_site() -> None:
    network = covey.Network(
        two_sites(), functions={"a": lambda x: 0, "b": lambda x: 1}, dimension=1
    )
    north, south = network["north"], network["south"]
    south.learn(south.predict(None, (0.1,), slot=1).ticket, 1)
    for slot in range(150, 200):  # of the fourth epoch, of 128 slots
        north.learn(north.predict(None, (0.1,), slot=slot).ticket, 1)

    cells = {name for name, _ in snapshot_of(south.learner).cells}
    assert north.predict(None, (0.1,)).arm == "south"
    assert cells == {"g2:0@0", "g4:0@3"}
    answer = south.predict(None, (0.1,), slot=200)
    assert answer.phase == "exploit"  # its function has labels in this cell of this epoch


def test_cells_of_other_epochs_are_refused_in_a_sentence() -> None:
    names = learner_of(load(two_sites()), 0, 1).names

    assert names.of(names.parse("g4:3@3")) == "g4:3@3"
    for wrong in ("g4:3", "g4:3@44", "g4:3@-1", "g4:3@03", "g4:3@3:55", "@", ""):
        with pytest.raises(DataError, match="does not end with an epoch.*write the same horizon"):
            names.parse(wrong)
    with pytest.raises(DataError, match="is not in a grid of 4 slices"):
        names.parse("g5:3@3")


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
    before = snapshot_of(site.learner).cells

    with pytest.raises(covey.CoveyError, match="30"):
        site.predict_batch(list(range(20, 40)), np.full((20, 1), 0.6), slot=18)

    assert snapshot_of(site.learner).cells == before


@pytest.mark.parametrize(
    ("policy", "learner", "sentence"),
    [
        ({"preset": "auto"}, {}, "horizon is a key of the presets cos and dcza"),
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
