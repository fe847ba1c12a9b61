"""A site accepts the labels of its classes and no others, from clients and from peers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.data.inputs import LabelSet
from covey.errors import UnfitLabel
from covey.server import config as server_config
from covey.site.requests import AskRow
from covey.store.store import Store
from support import virtual
from support.served import FEEDBACK, INFER, INPUTS, SITE, Client, infer, metrics_of, run, served
from support.virtual import World

SET = SITE.replace("dimension = 1", "dimension = 1\nclasses = [0, 1]")
UNFIT: list[Any] = [2, "1", True, "", 0.5, "zero"]
SCALARS = st.one_of(st.booleans(), st.integers(-2, 2), st.sampled_from(["", "0", "1", "a", 0.5]))


def is_same(one: Any, other: Any) -> bool:
    """Return, slowly, whether two labels are one and the same in JSON."""
    return one == other and all(
        isinstance(one, kind) == isinstance(other, kind) for kind in (str, bool)
    )


@given(st.lists(SCALARS.filter(lambda one: one != ""), min_size=1), SCALARS)
def test_a_label_fits_if_it_is_one_of_the_classes_in_kind_and_value(
    classes: Any, label: Any
) -> None:
    labels = LabelSet(classes)
    fits = any(is_same(label, one) for one in classes)

    assert labels.has(label) == fits
    if fits:
        labels.check([label])
    else:
        with pytest.raises(UnfitLabel):
            labels.check([classes[0], label])


def test_a_label_outside_the_classes_is_rejected_without_effect(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a"))
        for truth in UNFIT:
            status, told = await client.post(FEEDBACK, {"id": "a", "truth": truth})
            assert (status, told["code"]) == (422, "invalid")
            assert "truth is" in told["detail"]
        assert "one of the classes 0, 1" in told["detail"]
        assert (await client.post(FEEDBACK, {"id": "a", "truth": 1.0}))[0] == 202
        told = await metrics_of(client)
        assert (told["covey_labels_total", "unfit"], told["covey_labels_total", "joined"]) == (6, 1)

    run(tmp_path, story, SET)
    store = Store(tmp_path / "north.store")
    assert sum(count for count, _ in store.counters().values()) == 1
    store.close()


@served()
async def test_the_empty_text_is_never_a_label(client: Client) -> None:
    await client.post(INFER, infer("a"))
    assert (await client.post(FEEDBACK, {"id": "a", "truth": ""}))[0] == 422
    assert (await client.post(FEEDBACK, {"id": "a", "truth": 7}))[0] == 202


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {**one, "shape": [count, *one["shape"][1:]], "data": one["data"] * count} for one in INPUTS
    ]


@served(SET)
async def test_one_invalid_label_rejects_all_rows(client: Client) -> None:
    await client.post(INFER, infer("a", inputs=rows(3)))
    for truth in ([0, 1, "1"], [True, 0, 1], [2, 0, 0]):
        told = await client.post(FEEDBACK, {"id": "a", "rows": [0, 1, 2], "truth": truth})
        assert told[0] == 422
    status, told = await client.post(FEEDBACK, {"id": "a", "rows": [1, 2], "truth": [0, 1]})
    assert (status, told["new"]) == (202, [True, True])


PYTHON = '\n[[function]]\nname = "{}"\nkind = "python"\nentry = "labelled:Pupil"\nclasses = {}\n'
MODULE = """
class Pupil:
    def predict(self, instance):
        return 5

    def learn(self, instance, label):
        pass
"""


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ('["a", "b"]', None, ("a", "b")),
        ('["a", "b"]', '["b", "a"]', ("a", "b")),
        ('["a", "b"]', '["a", "c"]', ()),
        ("[0, 1]", "[false, true]", ()),
    ],
)
def test_classes_are_those_of_the_functions_if_these_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str | None, found: Any
) -> None:
    text = SITE.replace('["zero", "one"]', '["zero", "one", "x", "y"]')
    text += PYTHON.format("x", first)
    text += (
        PYTHON.format("y", second)
        if second
        else '\n[[function]]\nname = "y"\nkind = "constant"\nlabel = 3\n'
    )

    assert loaded(tmp_path, monkeypatch, text).labels.classes == found


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> server_config.SiteConfig:
    monkeypatch.syspath_prepend(folder)
    (folder / "labelled.py").write_text(MODULE)
    (folder / "site.toml").write_text(text)
    return server_config.load(folder / "site.toml")


class Choosy(World):
    labels = LabelSet([0, 1])


CHOOSY = {
    "policy": {"preset": "cos", "slices": 1},
    "learner": [
        {"name": "north", "functions": ["odd", "own"], "peers": {"south": 0.0}},
        {"name": "south", "functions": ["snow"], "peers": {}},
    ],
}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("unfit", ["snow", True, 2])
@virtual.timed
async def test_answers_outside_the_classes_reach_no_client_and_are_failures_of_the_arm(
    rows: int, unfit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    functions = {"odd": lambda _: unfit, "own": lambda _: 1, "snow": lambda _: unfit}
    node = Choosy(CHOOSY, functions, dimension=1).nodes["north"]
    arms = []
    for _ in range(60):
        request = await node.answer(["x"] * rows, [(0.5,)] * rows)
        assert request.answers == [1] * rows
        arms += [request.group(row).arm for row in range(rows)]
        await node.learn_rows(request.id, range(rows), [1] * rows)
    assert node.failures["odd"] > 0 == node.failures["own"]
    assert node.unfit_answers == {"south": arms.count("south")}
    counted = {arm.name: arm for arm in node.state().arms}
    assert counted["odd"].labels > 0 < counted["south"].labels
    assert counted["odd"].right == 0 == counted["south"].right
    assert "function 'odd' of learner 'north' returned a label that is not one of" in caplog.text
    assert "peer 'south' answers with labels that are not one of the classes 0, 1" in caplog.text
    assert "snow" not in caplog.text


class Pupil:
    def __init__(self) -> None:
        self.lessons: list[Any] = []

    def predict(self, instance: Any) -> int:
        return 1

    def learn(self, instance: Any, label: Any) -> None:
        self.lessons.append(label)


@virtual.timed
async def test_an_invalid_label_of_a_peer_is_dropped_and_not_resent() -> None:
    pupil = Pupil()

    config = {
        "policy": {"preset": "cos", "slices": 1},
        "learner": [
            {"name": "north", "functions": ["pupil"], "peers": {}},
            {"name": "south", "functions": ["other"], "peers": {"north": 0.0}},
        ],
    }
    functions = {"pupil": pupil, "other": int}
    world = Choosy(config, functions, dimension=1, trust="full")
    north, south = world.nodes["north"], world.nodes["south"]
    asked = []
    for k in range(40):
        request = await south.answer([k], [(0.5,)])
        await south.learn(request.id, 7)
        asked += [request.group(0).cell] if request.group(0).peer else []
    await asyncio.wait_for(south.drained(), 60)
    assert north.state().open_tickets == len(asked) > 0
    await north.for_peers.assist([AskRow("q", asked[0], 1, 3)], source="south")
    outcomes = [
        await north.for_peers.take_labels([("q", label)], source="south") for label in ("", 0)
    ]
    assert outcomes == [["unfit"], ["taken"]]
    assert pupil.lessons == [0]
