"""What a report says of other choices and of peers, on which rows, and how often it is right."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from covey import cli
from covey.site.requests import Request
from covey.store.reading import shadow_numbers, stored_site
from covey.store.store import Store
from support import virtual
from support.virtual import World

ROWS = 120
PRICE = 0.1
# A row is a number, and its label whether it is even; south is right on all small ones.
FUNCTIONS = {
    "low": lambda x: x % 2 if x % 3 else 0,
    "high": lambda x: 1,
    "south_own": lambda x: x % 2 if x < 90 else 0,
}


class Filed(World):
    """Two sites with stores in files; the first draws rows."""

    def __init__(self, folder: Path, share: float) -> None:
        self.folder = folder
        self.shadow = {"north": share}
        learners = [
            {"name": "north", "functions": ["low", "high"], "peers": {"south": PRICE}},
            {"name": "south", "functions": ["south_own"], "peers": {}},
        ]
        config = {"policy": {"preset": "cos", "slices": 2}, "learner": learners}
        super().__init__(config, FUNCTIONS, dimension=1, seed=2)

    def store(self, name: str) -> Store:
        return self.stores.get(name) or Store(self.folder / f"{name}.store")


def lived(folder: Path) -> list[Request]:
    """Let the sites serve, and return the requests of the first."""

    async def main() -> list[Request]:
        world = Filed(folder, 1.0)
        for k in range(ROWS):
            await world.predict("north", f"r{k}", k, (k % 7 / 7,))
            await world.learn("north", f"r{k}", k % 2)
        await asyncio.sleep(10.0)
        requests = list(world.stores["north"].requests())
        for name in list(world.nodes):
            world.crash(name)
            world.stores[name].close()
        return requests

    return virtual.run(main())


class Served(NamedTuple):
    """The store of a site, and its requests."""

    store: Path
    requests: list[Request]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("served")
    return Served(folder / "north.store", lived(folder))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def errors(name: str, rows: list[int]) -> float:
    return 100 * sum(FUNCTIONS[name](k) != k % 2 for k in rows) / len(rows)


def test_a_peer_is_compared_on_the_rows_that_it_answered(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        int(request.id[1:]) for request in served.requests if request.groups[0].peer == "south"
    ]
    found = told(capsys, "report", str(served.store))["shadow"]
    exported = told(capsys, "export", str(served.store), "--out", str(tmp_path / "log.csv"))
    (peer,) = found["peers"]
    own = {name: errors(name, asked) for name in ("low", "high")}

    assert 0 < len(asked) < ROWS
    assert (peer["peer"], peer["rows"]) == ("south", len(asked))
    assert peer["error_percent"] == pytest.approx(errors("south_own", asked))
    assert peer["best_own_percent"] == pytest.approx(min(own.values()))
    assert [one["choice"] for one in found["estimates"]] == ["low", "high", "map of own functions"]
    assert exported["sampled"] == ROWS


def test_the_map_of_one_own_function_is_that_function_also_where_only_a_peer_has_labels(
    served: Served,
) -> None:
    site = stored_site(served.store)
    arms = [arm for arm in site.arms if arm.name != "high"]
    cells = site.outcome.learners[0].cells
    counters = {**site.counters, cells[0].name: {"south": (9, 9)}}
    outcome = shadow_numbers(site.rows, arms, cells, counters)
    assert outcome is not None
    always, mapped = outcome.estimates

    assert mapped.choice == "map of own functions"
    assert msgspec.structs.replace(mapped, choice="low", price=always.price) == always
