"""`covey.open_store`: what served sites decided, as a replay of the same rows has it."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

import covey
from covey.node.store import Store
from support.flow import Stream, column_file, drawn_stream, through_processes
from support.served import SITE, Client, run
from support.site_processes import Offices

SLOTS = 90
CONFIG: dict[str, Any] = {
    "data": {"context": ["x"]},
    "policy": {
        "preset": "cos",
        "slices": 2,
        "explore": {"scale": 0.3, "power": 0.0},
        "train": {"scale": 0.3, "power": 0.0},
        "explore-peers": {"scale": 0.3, "power": 0.0},
        "pending": False,
        "check-claims": False,
    },
    "learner": [
        {"name": "site0", "functions": ["f0", "f1"], "peers": {"site1": 0.05}},
        {"name": "site1", "functions": ["f2", "f3"], "peers": {"site0": 0.05}},
    ],
}
SAME = ("learner", "cell", "phase", "arm", "function", "prediction", "label", "correct", "cost")


@pytest.fixture(scope="module")
def play() -> Stream:
    return drawn_stream(2, ["x"], slots=SLOTS, seed=3)


@pytest.fixture(scope="module")
def folder(play: Stream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores of two sites that have served the stream."""
    path = tmp_path_factory.mktemp("sites")
    offices = Offices(path, ["site0", "site1"])
    sites = {name: column_file(offices, play, CONFIG, name) for name in ("site0", "site1")}
    through_processes(play, sites, path, slots=range(SLOTS))
    return path


def store_of(folder: Path, name: str) -> Path:
    (found,) = folder.glob(f"**/{name}.store")
    return found


@pytest.mark.parametrize("name", ["site0", "site1"])
def test_a_store_has_the_decisions_of_a_replay(play: Stream, folder: Path, name: str) -> None:
    replayed = covey.replay(
        CONFIG,
        predictions=play.predictions,
        labels=play.labels,
        contexts=play.contexts,
        at=play.at,
    )
    columns = replayed.trace.columns()
    own = [row for row, learner in enumerate(columns["learner"]) if learner == name]
    result = covey.open_store(store_of(folder, name))
    stored = result.trace.columns()
    found, expected = result.summary().learners[name], replayed.summary().learners[name]

    for column in SAME:
        assert stored[column] == [columns[column][row] for row in own], column
    assert (found.slots, found.errors, found.arms) == (
        expected.slots, expected.errors, expected.arms,
    )  # fmt: skip
    assert found.cost_total == pytest.approx(expected.cost_total)
    assert [(one.peer, one.asked, one.right) for one in found.pairs] == [
        (one.peer, one.asked, one.right) for one in expected.pairs
    ]


def test_cells_have_their_best_arm_and_arrivals(folder: Path) -> None:
    result = covey.open_store(store_of(folder, "site0"), config=CONFIG)
    (learner,) = result.outcome.learners
    trace = result.trace.columns()

    assert {cell.name: cell.arrivals for cell in learner.cells} == {
        name: trace["cell"].count(name) for name in set(trace["cell"])
    }
    assert [cell.bounds for cell in sorted(learner.cells, key=lambda one: one.low)] == [
        [(0.0, 0.5)],
        [(0.5, 1.0)],
    ]
    assert all(cell.arm in ("f0", "f1", "site1") for cell in learner.cells)
    assert result.outcome.context_names == ["x"]


def test_a_store_is_shown_and_drawn_without_what_is_not_known(folder: Path, tmp_path: Path) -> None:
    path = store_of(folder, "site0")
    before = path.read_bytes()
    result = covey.open_store(path)
    page = result.report(tmp_path / "out").read_text(encoding="utf-8")

    assert repr(result).startswith("<Result of a store 'site0': 1 learner, ")
    assert isinstance(result.plot(), Axes)
    assert "best own %" not in result.table()
    assert "only chosen functions ran" in " ".join(result.table().split())
    assert result.summary().learners["site0"].net_gain_points is None
    assert "<h1>Store of site0</h1>" in page
    assert "What the site got from each peer." in page
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("missing", "there is no store"),
        ("text", "not a store of covey"),
        ("other", "is not a store of covey"),
        ("empty", "holds no site yet"),
    ],
)
def test_what_is_no_store_is_refused_by_a_sentence(
    kind: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "some.store"
    if kind == "text":
        path.write_text("no database " * 100)
    elif kind == "other":
        base = sqlite3.connect(path)
        base.execute("CREATE TABLE mine (one)")
        base.close()
    elif kind == "empty":
        Store(path).close()

    with pytest.raises(covey.StoreError, match=sentence):
        covey.open_store(path)


def test_a_site_without_requests_has_nothing_to_show(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await client.get("/v2")

    run(tmp_path, story, SITE)
    with pytest.raises(covey.StoreError, match="no requests of own clients yet"):
        covey.open_store(tmp_path / "north.store")
