"""What a report says of other choices and of peers, on which rows, and how often it is right."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from covey import cli
from covey.node.requests import Request, ShadowSpan
from covey.node.shadow import ShadowSettings
from covey.node.store import Store
from covey.report.shadow import known_rows, shadow_outcome
from covey.report.stores import stored_site
from support import virtual
from support.virtual import PayingLink, World

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

    noon_s = 1_794_916_800.0

    def __init__(self, folder: Path, settings: ShadowSettings) -> None:
        self.folder = folder
        self.shadow = {"north": settings}
        learners = [
            {"name": "north", "functions": ["low", "high"], "peers": {"south": PRICE}},
            {"name": "south", "functions": ["south_own"], "peers": {}},
        ]
        config = {"policy": {"preset": "cos", "slices": 2, "horizon": 500}, "learner": learners}
        super().__init__(config, FUNCTIONS, dimension=1, seed=2, link=PayingLink)

    def store(self, name: str) -> Store:
        return self.stores.get(name) or Store(self.folder / f"{name}.store")


def lived(folder: Path, *, asks_peers: bool) -> list[Request]:
    """Let the sites serve, and return the requests of the first."""

    async def main() -> list[Request]:
        world = Filed(folder, ShadowSettings(1.0, asks_peers=asks_peers))
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


class Bought(NamedTuple):
    """The store of a site that asked its peer about all rows, and its requests."""

    store: Path
    requests: list[Request]


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> Bought:
    folder = tmp_path_factory.mktemp("bought")
    return Bought(folder / "north.store", lived(folder, asks_peers=True))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def errors(name: str, rows: list[int]) -> float:
    return 100 * sum(FUNCTIONS[name](k) != k % 2 for k in rows) / len(rows)


def test_without_answers_of_its_own_a_peer_is_compared_on_the_rows_that_it_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = lived(tmp_path, asks_peers=False)
    asked = [int(one.id[1:]) for one in requests if one.groups[0].peer == "south"]
    found = told(capsys, "report", str(tmp_path / "north.store"))["shadow"]
    exported = told(
        capsys, "export", str(tmp_path / "north.store"), "--out", str(tmp_path / "log.csv")
    )
    (peer,) = found["peers"]
    own = {name: errors(name, asked) for name in ("low", "high")}

    assert 0 < len(asked) < ROWS
    assert (peer["peer"], peer["rows"]) == ("south", len(asked))
    assert peer["error_percent"] == pytest.approx(errors("south_own", asked))
    assert peer["best_own_percent"] == pytest.approx(min(own.values()))
    assert [one["choice"] for one in found["estimates"]] == ["low", "high", "map of own functions"]
    assert found["paid"] == 0
    assert (exported["sampled"], exported["with_peers"]) == (ROWS, [])


def test_peers_that_are_asked_in_the_shadow_are_estimated_and_replayed(
    bought: Bought, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = sum(one.groups[0].peer == "south" for one in bought.requests)
    found = told(capsys, "report", str(bought.store))["shadow"]
    estimates = {one["choice"]: one for one in found["estimates"]}
    log = tmp_path / "log.csv"
    exported = told(capsys, "export", str(bought.store), "--out", str(log))
    replayed = told(capsys, "replay", str(log), "--config", exported["config"])
    everything = list(range(ROWS))

    assert estimates["south"]["error_percent"] == pytest.approx(errors("south_own", everything))
    assert estimates["south"]["price"] == PRICE
    assert estimates["low"]["error_percent"] == pytest.approx(errors("low", everything))
    assert "map of all arms" in estimates
    assert found["peers"][0]["rows"] == ROWS
    assert found["paid"] == pytest.approx((ROWS - asked) * PRICE)
    assert (exported["sampled"], exported["with_peers"]) == (ROWS, ["south"])
    assert replayed["functions"]["south_answer"] == pytest.approx(errors("south_own", everything))
    assert set(replayed["learners"]) == {"north", "south"}


def test_over_many_draws_estimates_are_unbiased_and_intervals_cover(bought: Bought) -> None:
    site = stored_site(bought.store)
    cells = site.outcome.learners[0].cells
    arms = site.spans[0].arms

    def found(share: float, seed: int) -> dict[str, Any]:
        """Return the estimates, had other rows been drawn."""
        span = ShadowSpan(1, share, f"{seed:064x}", arms)
        drawn = known_rows(site.requests, [span], ())
        kept = {(one.request.number, one.row) for one in drawn if one.is_drawn}
        shadows = [one for one in site.shadows if (one.request, one.row) in kept]
        rows = known_rows(site.requests, [span], shadows)
        outcome = shadow_outcome(rows, shadows, site.arms, cells, site.counters)
        assert outcome is not None
        return {one.choice: one for one in outcome.estimates}

    truth = {name: one.error_percent for name, one in found(1.0, 0).items()}
    runs = [found(0.3, seed) for seed in range(1, 301)]

    assert len(truth) == 5
    for choice, error in truth.items():
        estimates = np.array([one[choice].error_percent for one in runs])
        covered = sum(one[choice].low_percent <= error <= one[choice].high_percent for one in runs)
        assert abs(estimates.mean() - error) <= 4 * estimates.std() / len(runs) ** 0.5
        # 95 % of 300 draws is 285, with a standard deviation of 3.8.
        assert covered >= 285 - 3 * 3.8, choice
