"""`covey.open_store`: what served sites decided, as a replay of the same rows has it."""

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from matplotlib.axes import Axes

import covey
from covey.store.store import Store
from golden.configurations import SITES, configurations
from golden.doors import replayed
from golden.https import decided
from support.served import SITE, Client, run

(PLAIN,) = (golden for golden in configurations() if golden.name == "plain, cos")
SLOTS = 90
SAME = ("learner", "cell", "phase", "arm", "function", "prediction", "label", "correct", "cost")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores of sites that have served a stream."""
    path = tmp_path_factory.mktemp("sites")
    asyncio.run(decided(PLAIN, path, slots=SLOTS))
    return path


def store_of(folder: Path, name: str) -> Path:
    return folder / name / f"{name}.store"


@pytest.mark.parametrize("name", SITES)
def test_a_store_has_the_decisions_of_a_replay(folder: Path, name: str) -> None:
    expected = replayed(PLAIN).trace.columns()
    own = [row for row in range(SLOTS) if expected["learner"][row] == name]
    result = covey.open_store(store_of(folder, name))
    stored, numbers = result.trace.columns(), result.summary().learners[name]
    paid = [expected["cost"][row] for row in own]
    asked = [expected["arm"][row] for row in own if expected["arm"][row] in SITES]

    for column in SAME:
        assert stored[column] == [expected[column][row] for row in own], column
    assert (numbers.slots, numbers.errors) == (len(own), stored["correct"].count(False))
    assert numbers.cost_total == pytest.approx(sum(paid))
    assert {pair.peer: pair.asked for pair in numbers.pairs} == Counter(asked)


def test_cells_have_their_best_arm_and_arrivals(folder: Path) -> None:
    result = covey.open_store(store_of(folder, "site0"), config=PLAIN.config)
    (learner,) = result.outcome.learners
    trace = result.trace.columns()

    assert {cell.name: cell.arrivals for cell in learner.cells} == {
        name: trace["cell"].count(name) for name in set(trace["cell"])
    }
    assert [cell.bounds for cell in sorted(learner.cells, key=lambda one: one.low)] == [
        [(0.0, 0.5)],
        [(0.5, 1.0)],
    ]
    assert all(cell.arm in ("f0", "f1", "site1", "site2") for cell in learner.cells)
    assert result.outcome.context_names == ["x"]


def test_a_store_is_shown_and_drawn_without_what_is_not_known(folder: Path, tmp_path: Path) -> None:
    path = store_of(folder, "site0")
    before = path.read_bytes()
    result = covey.open_store(path)
    page = result.report(tmp_path / "out").read_text(encoding="utf-8")

    assert repr(result).startswith("<Store of site0: 1 learner, ")
    assert isinstance(result.plot(), Axes)
    assert "best own %" not in result.table()
    assert "only chosen functions ran" in " ".join(result.table().split())
    assert result.summary().learners["site0"].net_gain_points is None
    assert "<h1>Store of site0</h1>" in page
    assert "how often the peer was right when it was asked" in page
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
