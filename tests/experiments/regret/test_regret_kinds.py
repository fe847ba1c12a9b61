"""Runs in kinds of worlds are kept under what they depend on, and compared as the page says."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from covey.bandit.policies import PRESETS
from covey.simulation.environment import Environment
from covey.simulation.run import Run
from support.required import ROOT

FOLDER = ROOT / "experiments" / "regret"


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    sys.path.insert(0, str(FOLDER))
    names = ("baselines", "kinds", "kind_tables", "playing")
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def kinds(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["kinds"]


@pytest.fixture(scope="module")
def kind_tables(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["kind_tables"]


def part(kinds: ModuleType, **more: Any) -> Any:
    worlds = {
        name: Environment(name=name, prices=price) for name, price in (("a", 0.1), ("b", 0.2))
    }
    usual = {"policies": ("auto", "LinUCB"), "environments": worlds, "seeds": (0, 1)}
    return kinds.Part(**{"name": "worlds", **usual, "checkpoints": (20, 60), **more})


def kept(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_ino for path in folder.rglob("*.json")}


def test_another_default_leaves_the_runs_of_baselines(
    kinds: ModuleType,
    modules: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds.play(part(kinds), tmp_path, workers=1)
    before = kept(tmp_path)
    monkeypatch.setattr(modules["playing"], "behaviour", lambda _: "another")
    kinds.play(part(kinds), tmp_path, workers=1)
    fresh = {path: node for path, node in kept(tmp_path).items() if path not in before}

    assert [path.split("/")[1] for path in fresh] == ["auto", "auto"]
    assert before.items() <= kept(tmp_path).items()


def test_a_fingerprint_tells_worlds_apart_and_not_their_names(kinds: ModuleType) -> None:
    def print_of(**keys: Any) -> str:
        return str(kinds.fingerprint(Environment(**{"name": "x", **keys}), 100))

    assert print_of(name="y") == print_of()
    changed = [{"prices": 0.1}, {"dependence": 0.1}, {"correlation": "worst"}, {"low": 0.2}]
    changed.append({"free": True})
    assert len({print_of(), *(print_of(**keys) for keys in changed)}) == 6


@pytest.mark.parametrize("name", ["worlds", "worlds-short", "worlds-long", "growth-presets"])
def test_the_numbers_of_the_former_default_are_of_the_worlds_of_today(
    kinds: ModuleType, name: str
) -> None:
    today = kinds.part_of(name)
    former = kinds.recalled(today)

    assert sorted(former) == sorted((kinds.FORMER, world) for world in today.environments)
    assert {len(runs) for runs in former.values()} == {len(today.seeds)}


def test_every_preset_plays_in_every_part(kinds: ModuleType) -> None:
    parts = [kinds.part_of(name) for name in kinds.REMEMBERED if name != "streams"]

    assert [len(one.environments) for one in parts] == [44, 5, 7, 2]
    for one in parts:
        assert set(one.policies) >= {*PRESETS}


def runs(losses: dict[tuple[str, str], list[float]], kinds: ModuleType) -> dict[Any, list[Run]]:
    """Runs of 10 slots in which one learner lost so much per slot."""
    memory = {
        pair: kinds.Memory("", [10], [[10 * value] for value in values], values, values)
        for pair, values in losses.items()
    }
    return {
        (policy, world): [kinds._run(one, policy, world, seed) for seed in range(len(one.regret))]
        for (policy, world), one in memory.items()
    }


LOST = {
    ("former default", "a"): [0.2, 0.4],
    ("former default", "b"): [0.1, 0.1],
    ("auto", "a"): [0.1, 0.2],
    ("auto", "b"): [0.2, 0.2],
    ("LinUCB", "a"): [0.3, 0.3],
    ("LinUCB", "b"): [0.05, 0.05],
}


def test_ratios_are_to_the_former_default_and_to_the_best_of_the_others(
    kinds: ModuleType, kind_tables: ModuleType
) -> None:
    found = kind_tables.compared(runs(LOST, kinds))

    assert found.reference == "former default"
    assert [found.best(world) for world in found.worlds] == ["auto", "LinUCB"]
    assert found.to_reference("auto", "a").mean == pytest.approx(0.5)
    assert found.to_best("auto", "b").mean == pytest.approx(4.0)
    assert kind_tables.geometric(found, "auto").mean == pytest.approx(1.0)
    line = kind_tables.summary_table(found).splitlines()[3]
    assert line.startswith("| auto | 1.00 (")
    assert line.endswith("| 2.00 (b) | 2.00 | 4.00 (b) |")
